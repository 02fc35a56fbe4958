package bed

import (
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// What a verdict has to say is missed wherever it is missing, and so is what each verdict has.
func TestUnsaid(t *testing.T) {
	const (
		note = "Probably stuck: container main: thread 7 (dd) waits. First: wait. Avoid: umount -l on it. Force delete: no. More: condition TerminationBlocked."
		gone = "Was probably stuck: container main: thread 7 (dd) waited. Fix: wait. Avoid: haste. More: nodeagent explain A."
		text = "Cause: Probably stuck in phase Kill: container main: thread 7 (dd) waits. Also found: B.\nSeen: it is in state D.\nFix: wait, or kill -CONT 7.\n" +
			"Avoid: umount -l.\nForce delete: no, process dd is still running.\nTimeline: deleted 2026-03-01 03:00:00."
	)
	all := []string{
		"thread 7 (dd)", "First: wait", "Cause: Probably stuck in phase Kill", "Seen: state D", "Fix: kill -CONT", "Avoid: " +
			"umount", "Force delete: no, process dd", "Timeline: deleted ",
	}
	for name, tc := range map[string]struct {
		says            []string
		cause           string
		note, condition string // no condition is none
		want            string // "" for none
	}{
		"all of it":          {all, "A", note, text, ""},
		"a pod that is gone": {[]string{"thread 7 (dd)"}, "A", gone, "", ""},
		"the whole node": {nil, "A", "WHOLE NODE n1: Stuck: x. First: y. More: condition C.", "Cause: WHOLE NODE n1: Stuck " +
			"in an unknown phase: x.\nFix: y.\nAvoid: z.", ""},
		"nothing is broken":     {nil, "A", "Slow stop: x. First: y. More: condition C.", "Cause: Slow stop in phase StopSignal: x.\nFix: y.\nAvoid: z.", ""},
		"not in the Event":      {[]string{"state D"}, "A", note, text, `the Event does not say "state D"`},
		"not in the condition":  {[]string{"Fix: reboot"}, "A", note, text, `the condition does not say "Fix: reboot"`},
		"in another line":       {[]string{"Fix: state D"}, "A", note, text, `the condition does not say "Fix: state D"`},
		"there is no condition": {[]string{"Fix: wait"}, "A", gone, "", `the condition does not say "Fix: wait"`},
		"another beginning": {nil, "A", "Blocked in phase Kill: x. First: y. More: condition C.", "Cause: Stuck in phase Kill: " +
			"x.\nFix: y.\nAvoid: z.", "does not begin as a verdict does"},
		"no first step":               {nil, "A", "Stuck: x. More: condition C.", "Cause: Stuck in phase Kill: x.\nFix: y.\nAvoid: z.", "does not say what to do"},
		"nothing to do, and gone":     {nil, "A", "Was stuck: x. More: nodeagent explain A.", "", "does not say what to do"},
		"no fix":                      {nil, "A", note, strings.Replace(text, "Fix", "Fixes", 1), "lacks a line"},
		"no lines":                    {nil, "A", note, "Probably stuck in phase Kill: container main: thread 7 (dd) waits.", "lacks a line"},
		"too long":                    {nil, "A", note, text + strings.Repeat("x", 4096), "bytes"},
		"of two threads":              {nil, "A", note, strings.Replace(text, "thread 7", "thread 8", 1), "differ"},
		"of two threads, and Unknown": {nil, "Unknown", note, strings.Replace(text, "thread 7", "thread 8", 1), ""},
	} {
		r := Run{Scenario: Scenario{Want: Want{Cause: tc.cause, Says: tc.says}}, Node: &Node{Name: "n1"}}
		var c *corev1.PodCondition
		if tc.condition != "" {
			c = &corev1.PodCondition{Message: tc.condition}
		}
		switch wrong := errors.Join(slices.Concat(r.Malformed(tc.note, c), r.Unsaid(tc.note, c))...); {
		case tc.want == "" && wrong != nil:
			t.Errorf("%s: %v", name, wrong)
		case tc.want != "" && (wrong == nil || !strings.Contains(wrong.Error(), tc.want)):
			t.Errorf("%s: %v, want %q", name, wrong, tc.want)
		}
	}
}
