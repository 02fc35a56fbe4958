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
	"github.com/nodeagent-io/nodeagent/pkg/verdict"
)

// unreturned is what is known of a pod while a reading of its files does not return.
func unreturned(e *evidence.Pod) *evidence.Pod {
	p := *e
	p.HungSince = p.Time.Add(-time.Minute)
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
		// That the kubelet has not begun is told with the remedy for that.
		remedy := strings.Contains(v.Remedy, "task/*/stack") || strings.Contains(v.Message, "The kubelet has not begun to stop the pod")
		if v.Cause == diagnose.Unrecognised.Cause && (!strings.Contains(v.Message, "nodeagent's own reading of the pod hangs in the kernel") || !remedy) {
			t.Errorf("%s: says %q and %q", f.name, v.Message, v.Remedy)
		}
	}
}

// after returns a reading that shows the same some time later, of the pod and of its node.
func after(e *evidence.Pod, by time.Duration) *evidence.Pod {
	p := *e
	p.Time, p.Node.Time, p.Node.Read = p.Time.Add(by), p.Node.Time.Add(by), p.Node.Read.Add(by)
	return &p
}

// lookOn has a case look at a pod every two seconds between two times after a fixture, and returns the last reading. see is told
// what stands then.
func lookOn(c *verdict.Case, last *evidence.Pod, from, to time.Duration, read func(by time.Duration) *evidence.Pod,
	see func(by time.Duration, d *diagnose.Diagnosis, stands string)) *evidence.Pod {
	for by := from; by < to; by += 2 * time.Second {
		p := read(by)
		p.Since(last)
		d := cause.Diagnose(p)
		c.Judge(verdict.Subject{UID: p.UID}, p, d)
		see(by, &d, c.Standing().Cause)
		last = p
	}
	return last
}

// What stands when a reading hangs is neither confirmed nor refuted by looks without the pod's files. A force delete is
// never said to be safe meanwhile, whatever was known before.
func TestVerdictsOutlastAReadingThatHangs(t *testing.T) {
	inGrace := make(map[string]bool)
	for _, r := range cause.All() {
		inGrace[r.Cause] = r.When == diagnose.InGrace
	}
	for _, f := range fixtures(t) {
		d := cause.Diagnose(f.evidence)
		v, found := d.Verdict()
		if f.evidence.Gone || !found || v.Cause == diagnose.Unrecognised.Cause {
			continue
		}
		var c verdict.Case
		c.Judge(verdict.Subject{UID: f.evidence.UID}, f.evidence, d)
		blind := func(by time.Duration) *evidence.Pod { return unreturned(after(f.evidence, by)) }
		failed := false
		lookOn(&c, f.evidence, 46*time.Second, 10*time.Minute, blind, func(by time.Duration, d *diagnose.Diagnosis, stands string) {
			if failed {
				return
			}
			failed = true
			switch {
			case stands == "" && !inGrace[v.Cause]:
				t.Errorf("%s: %s is withdrawn after %s", f.name, v.Cause, by)
			case stands == diagnose.Unrecognised.Cause && by < 46*time.Second+time.Minute:
				t.Errorf("%s: Unknown stands after %s", f.name, by)
			case d.Force != nil && d.Force.Answer == diagnose.ForceYes:
				t.Errorf("%s: a force delete is said to be safe after %s", f.name, by)
			default:
				failed = false
			}
		})
	}
}

// That a shim hangs is not ruled out when it is not seen.
func TestShimThatHangsOutlastsAReading(t *testing.T) {
	p := unreturned(after(fixtureNamed(t, "shim_hung_stopped"), time.Minute))
	for i := range p.Containers {
		if s := &p.Containers[i].Task; !s.UnansweredSince.IsZero() {
			s.UnansweredSince, s.Asked, s.Attempts = p.Time.Add(-10*time.Minute), p.Time, 5
		}
	}
	if d := cause.Diagnose(p); !d.NotLookedFor("ShimHung") {
		t.Errorf("not known are %+v", d.Unknown)
	}
}

// That a reading has not returned is not told of a pod for long when it has, and not at all when the pod has gone on.
func TestUnknownAfterAReadingThatReturns(t *testing.T) {
	for _, f := range fixtures(t) {
		if !strings.HasPrefix(f.name, "healthy_") || f.evidence.Gone || f.evidence.Overdue() < 0 {
			continue
		}
		var c verdict.Case
		stood, withdrawn := false, time.Duration(0)
		blind := func(by time.Duration) *evidence.Pod {
			p := unreturned(after(f.evidence, by))
			p.Unwritable = nil
			return p
		}
		const returns = 15 * time.Minute
		last := lookOn(&c, f.evidence, 46*time.Second, returns, blind, func(_ time.Duration, _ *diagnose.Diagnosis, stands string) {
			stood = stands == diagnose.Unrecognised.Cause
		})
		if !stood {
			continue // containerd is what is told of
		}
		moves := func(by time.Duration) *evidence.Pod {
			p := after(f.evidence, by)
			p.Finalizers = []string{by.String()}
			return p
		}
		lookOn(&c, last, returns, returns+3*time.Minute, moves, func(by time.Duration, _ *diagnose.Diagnosis, stands string) {
			if withdrawn == 0 && stands != diagnose.Unrecognised.Cause {
				withdrawn = by - returns
			}
			if withdrawn != 0 && stands == diagnose.Unrecognised.Cause {
				t.Errorf("%s: Unknown is told again, of a pod that gets on, after %s", f.name, by-returns)
			}
		})
		if withdrawn == 0 {
			t.Errorf("%s: Unknown stands three minutes after the reading has returned, and the pod gets on", f.name)
		}
	}
}

// While it is not seen whether the kubelet deletes the files of a volume, a pod of which the containers have ended is given as
// long as that may take unseen.
func TestUnreturnedWhileFilesMayBeDeleted(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for phase, want := range map[string]time.Duration{"Running": time.Minute, "Succeeded": 4 * time.Minute} {
		first := &evidence.Pod{Time: start, Deadline: start.Add(-time.Second), DeletionRequested: start.Add(-30 * time.Second), Phase: phase,
			Node: evidence.Node{Pressure: &evidence.Pressure{}, Kubelet: evidence.KubeletService{Process: &evidence.Task{PID: 9, TID: 9}}}}
		var c verdict.Case
		told := time.Duration(0)
		blind := func(by time.Duration) *evidence.Pod { return unreturned(after(first, by)) }
		lookOn(&c, nil, 0, 10*time.Minute, blind, func(by time.Duration, d *diagnose.Diagnosis, _ string) {
			if _, found := d.Verdict(); found && told == 0 {
				told = by
			}
		})
		if told != want {
			t.Errorf("%s: Unknown is told after %s, want %s", phase, told, want)
		}
	}
}
