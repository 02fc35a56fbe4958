package diagnose_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc"
)

// unreturned is what is known of a pod while a reading of its files does not return.
func unreturned(e *evidence.Pod) *evidence.Pod {
	p := *e
	p.Unreturned = p.Time.Add(-time.Minute)
	p.Missing = nil
	for s, why := range e.Missing {
		p.Lack(s, why)
	}
	for _, s := range proc.Sources {
		p.Lack(s, "an earlier reading has not returned")
	}
	p.Cgroups, p.Tasks, p.Parents, p.Leftovers, p.OutputHolders, p.ShimChildren = nil, nil, nil, nil, nil, nil
	p.Plugins, p.NetworkSetup, p.RuntimeCommands, p.Requests, p.Shortages = nil, nil, nil, nil, nil
	p.Mounts, p.Devices, p.Loops, p.ImageMounts, p.Volumes, p.Holders = nil, nil, nil, nil, nil, nil
	p.CgroupsRead, p.TasksRead = time.Time{}, time.Time{}
	return &p
}

// While a reading does not return no cause is told that is not told otherwise, and at last Unknown.
func TestUnreturnedReadings(t *testing.T) {
	for _, f := range fixtures(t) {
		if f.evidence.Gone {
			continue
		}
		seen := cause.Diagnose(f.evidence)
		d := cause.Diagnose(unreturned(f.evidence))
		v, found := d.Verdict()
		if found && v.Cause != diagnose.Unrecognised.Cause && !slices.ContainsFunc(seen.Findings, func(s diagnose.Finding) bool { return s.Cause == v.Cause }) {
			t.Errorf("%s: %s: %s", f.name, v.Cause, v.Message)
		}
		if d.Force != nil && d.Force.Answer == diagnose.ForceYes && (seen.Force == nil || seen.Force.Answer != diagnose.ForceYes) {
			t.Errorf("%s: a force delete is said to be safe: %+v", f.name, d.Force)
		}
		p := unreturned(f.evidence)
		p.Time = p.Deadline.Add(time.Hour)
		p.Node.Time, p.Unwritable = p.Time, nil // which Since forgets
		d = cause.Diagnose(p)
		if v, found = d.Verdict(); !found {
			t.Errorf("%s: nothing is told for an hour", f.name)
		}
		if v.Cause == diagnose.Unrecognised.Cause && (!strings.Contains(v.Message, "nodeagent's own reading of the pod hangs in the kernel") || !strings.Contains(v.Remedy, "task/*/stack")) {
			t.Errorf("%s: says %q and %q", f.name, v.Message, v.Remedy)
		}
	}
}
