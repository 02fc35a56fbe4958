//go:build !race

// With the race detector the replays would take ten minutes. make race runs all tests of the package without it, too.

package diagnose_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/verdict"
)

// replayed is how long a fixture with a verdict goes on, and disturbed when something happens that heals nothing.
const (
	replayed  = 5 * time.Minute
	disturbed = 20 * time.Second
)

// A replay is a fixture that goes on: readings come, as the agent makes them, of a node on which nothing is healed.
type replay struct {
	of *evidence.Pod
	// anew reports whether the agent was started with the first reading, and knows nothing but the condition.
	anew bool
	// loops reports whether the kubelet, or containerd, does not stay up.
	loops bool
	// disturb changes a reading that is so much later than the first one.
	disturb func(p, fixture *evidence.Pod, by time.Duration)
}

// lasts returns for how long the replay goes on. What a program does inside its grace period ends with it.
func (r *replay) lasts(rule *diagnose.Rule) time.Duration {
	if rule.When == diagnose.InGrace || rule.When == diagnose.InGraceAndAfter {
		return min(replayed, r.of.Deadline.Sub(r.of.Time))
	}
	for _, c := range r.of.Containers {
		if c.Waiting && c.PostStartSleep > 0 { // it was started before the deletion
			return r.of.DeletionRequested.Add(time.Duration(c.PostStartSleep) * time.Second).Sub(r.of.Time)
		}
	}
	return replayed
}

// read returns the reading that is so much later than the fixture.
func (r *replay) read(by time.Duration) *evidence.Pod {
	p := r.of.AfterStep(time.Time{}, 0) // a copy
	p.Missing = maps.Clone(p.Missing)
	goOn(p, by)
	if r.loops {
		loop(p, by)
	}
	if r.anew {
		unknowing(p, r.of.Time, by)
	}
	if r.disturb != nil && by >= disturbed {
		r.disturb(p, r.of, by)
	}
	return p
}

// goOn makes of a fixture what is read later: the reading has a later time, and who tries in vain tries again.
func goOn(p *evidence.Pod, by time.Duration) {
	later := func(times ...*time.Time) {
		for _, t := range times {
			if !t.IsZero() {
				*t = t.Add(by)
			}
		}
	}
	n := &p.Node
	k, c := &n.Kubelet, &n.Containerd
	p.Seen.Group = p.Seen.Group || len(p.Cgroups) > 0 || p.ContainersEnded() || p.NothingLeft()         // an agent that was there saw it
	for _, t := range []*time.Time{&p.ContainersRead, &p.CgroupsRead, &p.TasksRead, &n.Time, &n.Read} { // one of an older agent has not all
		if t.IsZero() {
			*t = p.Time
		}
	}
	if u := n.Processors; u != nil {
		moved := *u
		later(&moved.Since, &moved.Until)
		n.Processors = &moved
	}
	k.YoungSince, k.Starts, k.StartSeen, k.LastStart = time.Time{}, 0, time.Time{}, time.Time{}
	c.Ends, c.FirstEnd, c.AnsweringSince = 0, time.Time{}, time.Time{}
	if pressure := n.Pressure; pressure != nil && !pressure.StarvedUntil.IsZero() && pressure.StarvedUntil.Before(n.Time.Add(-time.Minute)) {
		n.Pressure = &evidence.Pressure{StarvedUntil: pressure.StarvedUntil} // set back by hand
	}
	later(&p.Time, &p.ContainersRead, &p.CgroupsRead, &p.TasksRead, &n.Time, &n.Read, &n.BlockedRead, &n.ScannersRead, &k.VolumeCallsRead, &c.Asked)
	for i := range p.Containers {
		later(&p.Containers[i].Task.Asked)
	}
	for i := range c.Lists {
		later(&c.Lists[i].Asked)
	}
	if n.Ready != nil {
		later(&n.Ready.Asked)
		if n.Ready.PLEG != nil {
			later(&n.Ready.PLEG.Said)
		}
	}
	for _, tasks := range [][]evidence.Task{p.Tasks, p.Parents} {
		for i := range tasks {
			if tasks[i].Probe == nil {
				continue
			}
			for m := tasks[i].Probe.Mount; m != nil; m = m.Backing {
				if m.Disk != nil {
					later(&m.Disk.Read)
				}
			}
		}
	}
	// A count that has risen rises again after the same while, that of volumes after the kubelet's longest.
	rises := func(rose, before time.Time, usual time.Duration) uint64 {
		if rose.IsZero() {
			return 0
		}
		every := usual
		if !before.IsZero() {
			every = rose.Sub(before)
		}
		return uint64(max(0, p.Time.Sub(rose)) / every)
	}
	for i := range k.VolumeCalls {
		v := &k.VolumeCalls[i]
		v.Count += rises(v.Rose, time.Time{}, 122*time.Second)
		v.Rose = time.Time{}
	}
	for i := range k.APICalls {
		v := &k.APICalls[i]
		v.Count += rises(v.Rose, v.RoseBefore, 10*time.Second)
		v.Rose, v.RoseBefore = time.Time{}, time.Time{}
	}
	for i := range k.ClaimCalls {
		v := &k.ClaimCalls[i]
		v.Count += rises(v.Rose, v.RoseBefore, 90*time.Second)
		v.Rose, v.RoseBefore = time.Time{}, time.Time{}
	}
	if len(k.Strangers) > 0 && p.Time.Sub(p.DeletionRequested) >= 5*time.Minute { // the loop has not come round for that long
		k.Health = "failing checks: syncloop"
	}
	for i := range p.KillFailures {
		f := &p.KillFailures[i]
		every := 15 * time.Second
		if strings.Contains(f.Text, "DeadlineExceeded") {
			every = 2*time.Minute + time.Duration(p.GracePeriodSeconds)*time.Second + 15*time.Second
		}
		tries := max(0, p.Time.Sub(f.Last)) / every
		f.Last, f.Count = f.Last.Add(tries*every), f.Count+int(tries)
	}
}

// everyLoop is after what time a kubelet, or a containerd, that does not stay up ends again.
const everyLoop = 8 * time.Second

// loop lets what does not stay up end again and again.
func loop(p *evidence.Pod, by time.Duration) {
	c, k := &p.Node.Containerd, &p.Node.Kubelet
	last := p.Node.Time.Add(-by % everyLoop)
	if c.ConnectedSince.After(p.DeletionRequested) {
		c.ConnectedSince = last
	} else if k.Process != nil {
		process, probe := *k.Process, *k.Process.Probe
		probe.Started, probe.Start = last, probe.Start+uint64(by/everyLoop)
		process.PID, process.Probe = process.PID+int(by/everyLoop), &probe
		k.Process = &process
	}
}

// unknowing takes from a reading what only an agent knows that has been there before.
func unknowing(p *evidence.Pod, began time.Time, by time.Duration) {
	p.Before, p.Deletes, p.Kills, p.ScannerWaits = nil, nil, nil, evidence.ScannerWaits{}
	p.StopAwaitedUntil, p.UnheldSince, p.Unwritable, p.Seen = time.Time{}, time.Time{}, nil, evidence.Seen{}
	n := &p.Node
	c := &n.Containerd
	if n.Pressure != nil {
		n.Pressure.StarvedUntil = time.Time{}
	}
	silence := func(since *time.Time, attempts *int) {
		if !since.IsZero() {
			*since, *attempts = began, 1+int(by/(10*time.Second))
		}
	}
	silence(&c.UnansweredSince, &c.Attempts)
	if !c.RefusedSince.IsZero() {
		c.RefusedSince = began
	}
	if !c.ConnectedSince.IsZero() && c.ConnectedSince.Before(began) {
		c.ConnectedSince = began
	}
	for i := range c.Lists {
		silence(&c.Lists[i].UnansweredSince, &c.Lists[i].Attempts)
	}
	for i := range p.Containers {
		silence(&p.Containers[i].Task.UnansweredSince, &p.Containers[i].Task.Attempts)
	}
	if n.Ready != nil {
		n.Ready.Since = began
	}
	k := &n.Kubelet
	if k.Process == nil {
		k.LastSeen = time.Time{}
	}
	k.SilentUntil, k.LackedUntil, k.VolumeCallsSince = time.Time{}, time.Time{}, time.Time{}
	n.UnmountingUntil, n.DeletablesUntil, n.UnpreparingUntil, n.LastBegun = time.Time{}, time.Time{}, time.Time{}, time.Time{}
}

// ruleOf returns the rule of a cause.
func ruleOf(name string) *diagnose.Rule {
	return cause.All()[slices.IndexFunc(cause.All(), func(r *diagnose.Rule) bool { return r.Cause == name })]
}

// run has a case look at the replay at the agent's pace, and returns when what stands has changed, and to what.
func (r *replay) run(t *testing.T, stood string) (changes []string) {
	t.Helper()
	lasts := r.lasts(ruleOf(stood))
	c := verdict.Case{Late: r.anew}
	var earlier *evidence.Pod
	for by := time.Duration(0); by <= lasts; by += 2 * time.Second {
		p := r.read(by)
		if !c.Due(p.Time) {
			continue
		}
		last := new(evidence.Pod)
		if earlier != nil {
			last = earlier
		} else if !r.anew {
			last = r.of
		}
		p.Node.Since(&last.Node)
		p.Since(last)
		earlier = p
		now := c.Standing().Cause
		cond := &verdict.Condition{Blocked: true, Reason: stood, Since: r.of.Time.Add(-5 * time.Minute)}
		if len(changes) > 0 && now == "" {
			cond = &verdict.Condition{Reason: verdict.Resolved, Since: p.Time}
		} else if now != "" {
			cond.Reason = now
		}
		if !r.anew && by == 0 {
			cond = nil
		}
		c.Judge(verdict.Subject{Namespace: p.Namespace, Name: p.Name, UID: p.UID, Condition: cond}, p, cause.Diagnose(p))
		if s := c.Standing().Cause; s != now && (by > 0 || s != stood) {
			changes = append(changes, by.String()+" "+s)
		}
	}
	return changes
}

// A disturbance changes a reading that is so much later than the fixture, of a node on which nothing is healed.
type disturbance struct {
	change func(p, fixture *evidence.Pod, by time.Duration)
	// heals reports whether it ends what a cause is about.
	heals func(p *evidence.Pod, cause string) bool
}

// unread is for how long a source is unread.
const unread = 20 * time.Second

// unreadFor makes a change for so long.
func unreadFor(change func(p *evidence.Pod)) disturbance {
	return disturbance{change: func(p, _ *evidence.Pod, by time.Duration) {
		if by < disturbed+unread {
			change(p)
		}
	}}
}

var disturbances = map[string]disturbance{
	"containerd is restarted": {
		func(p, _ *evidence.Pod, by time.Duration) {
			if by < disturbed+2*time.Second {
				noRuntime(p)
				return
			}
			p.Node.Containerd.ConnectedSince = p.Node.Time.Add(disturbed + 2*time.Second - by)
		},
		func(p *evidence.Pod, cause string) bool {
			return p.Node.Containerd.Error != "" || cause == "ContainerdDown"
		},
	},
	"the kubelet is restarted": {
		func(p, of *evidence.Pod, by time.Duration) {
			k := &p.Node.Kubelet
			started := p.Node.Time.Add(disturbed - by)
			process, probe := *k.Process, evidence.Probe{Start: 1}
			if k.Process.Probe != nil {
				probe = *k.Process.Probe
			}
			probe.Started, process.PID, process.TID, process.Probe = started, process.PID+1000, process.PID+1000, &probe
			process.SignalsSince, process.UnchangedSince = time.Time{}, time.Time{}
			k.Process = &process
			// It counts from nothing, and has failed again after some seconds.
			recount(k, &of.Node.Kubelet, by)
		},
		func(p *evidence.Pod, cause string) bool {
			switch cause {
			case "KubeletDown", "KubeletLate", "KubeletSyncLoopStalled", "ImagePullHanging", "PostStartHookRunning", "PreStopHookRunning":
				return true
			case "PLEGUnhealthy", "VolumeLeftMounted": // it asks for lists anew, and looks for volumes anew
				return true
			}
			return p.Node.Kubelet.Process == nil
		},
	},
	"the node is starved": {change: func(p, _ *evidence.Pod, _ time.Duration) { p.Node.Pressure = &evidence.Pressure{CPU: 97} }},
	"the pod's files are unread": unreadFor(func(p *evidence.Pod) {
		q := unreturned(p)
		q.HungSince = time.Time{}
		*p = *q
	}),
	"containerd is unread": {unreadFor(noRuntime).change, func(p *evidence.Pod, _ string) bool { return p.Node.Containerd.Error != "" }},
	"the shims are unread": {unreadFor(func(p *evidence.Pod) {
		for i := range p.Containers {
			if c := &p.Containers[i]; c.State == evidence.StateRunning {
				c.Task = evidence.ShimTask{Asked: p.Time, UnansweredSince: p.Time.Add(-2 * time.Second), Attempts: 1}
				p.Lack(evidence.Shims, "the shim does not answer about container "+c.Name)
			}
		}
	}).change, func(p *evidence.Pod, _ string) bool { return fact.Missing(fact.See(p), evidence.Shims) }},
	"the kubelet is unread": unreadFor(func(p *evidence.Pod) {
		k := &p.Node.Kubelet
		*k = evidence.KubeletService{Error: "no", ShortagesError: "no", VolumeCallsError: "no"}
		for _, s := range []evidence.Source{evidence.Kubelet, evidence.VolumeCalls, evidence.APICalls, evidence.ClaimCalls} {
			p.Lack(s, "no")
		}
	}),
	"the API server is unread": unreadFor(func(p *evidence.Pod) {
		p.KillFailures, p.Pulls, p.Node.Ready, p.FinalizerSetters = nil, nil, nil, nil
		for _, s := range []evidence.Source{evidence.Events, evidence.Pulls, evidence.NodeObject} {
			p.Lack(s, "no")
		}
	}),
}

// noRuntime takes from a reading what containerd and the shims tell.
func noRuntime(p *evidence.Pod) {
	const why = "containerd does not answer"
	p.Node.Containerd = evidence.ContainerdService{Error: why}
	for _, s := range []evidence.Source{evidence.Containerd, evidence.Containers, evidence.Shims} {
		p.Lack(s, why)
	}
	p.Containers = slices.DeleteFunc(p.Containers, func(c evidence.Container) bool { return c.Kind == evidence.Sandbox })
	for i := range p.Containers {
		c := &p.Containers[i]
		c.SaidID, c.ID, c.State, c.Runtime, c.Program, c.StopSignal, c.Task, c.VacantSince = c.ID, "", "", "", "", 0, evidence.ShimTask{}, time.Time{}
	}
}

// recount has a kubelet that was restarted count what rose in the fixture: volumes with pauses that begin anew and double.
func recount(k, of *evidence.KubeletService, by time.Duration) {
	var volumes uint64
	for at, pause := disturbed+5*time.Second, time.Second; at <= by; at, pause = at+pause, min(2*pause, 122*time.Second) {
		volumes++
	}
	every := func(pause time.Duration) uint64 { return uint64((by - disturbed) / pause) }
	k.VolumeCalls, k.APICalls, k.ClaimCalls = nil, nil, nil
	for _, c := range of.VolumeCalls {
		if c.Count = volumes; !c.Rose.IsZero() && c.Count > 0 {
			c.Rose = time.Time{}
			k.VolumeCalls = append(k.VolumeCalls, c)
		}
	}
	for _, c := range of.APICalls {
		if c.Count = every(10 * time.Second); !c.Rose.IsZero() && c.Count > 0 {
			c.Rose, c.RoseBefore = time.Time{}, time.Time{}
			k.APICalls = append(k.APICalls, c)
		}
	}
	for _, c := range of.ClaimCalls {
		if c.Count = every(15 * time.Second); !c.Rose.IsZero() && c.Count > 0 {
			c.Rose, c.RoseBefore = time.Time{}, time.Time{}
			k.ClaimCalls = append(k.ClaimCalls, c)
		}
	}
}

// A verdict stands while nothing heals: over a start of the agent, which knows nothing but the condition then, and over what happens beside.
func TestVerdictsStand(t *testing.T) {
	type replayable struct {
		fixture
		cause string
		loops bool
	}
	var all []replayable
	for _, f := range fixtures(t) {
		if v := verdictOf(f.evidence); !f.evidence.Gone && v.Cause != "" && v.Cause != diagnose.Unrecognised.Cause {
			all = append(all, replayable{f, v.Cause, v.Family == "Restarts"})
		}
	}
	stand := func(name string, anew bool, d disturbance) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ran := 0
			for _, f := range all {
				if d.heals != nil && d.heals(f.evidence, f.cause) {
					continue
				}
				ran++
				r := replay{of: f.evidence, anew: anew, loops: f.loops, disturb: d.change}
				if changes := r.run(t, f.cause); len(changes) > 0 {
					t.Errorf("%s: %s: %s", f.name, f.cause, strings.Join(changes, ", "))
				}
			}
			t.Logf("%d fixtures", ran)
		})
	}
	stand("nothing happens", false, disturbance{})
	stand("a new agent", true, disturbance{})
	for name, d := range disturbances {
		stand(name, false, d)
	}
}

// A verdict ends soon when its cause has: nothing of the pod is left on the node, and all that serves it is well.
func TestVerdictsEnd(t *testing.T) {
	const soon = 80 * time.Second // a kubelet, or a containerd, that stays up takes a minute of it
	heal := func(p, _ *evidence.Pod, by time.Duration) {
		*p = *unreturned(p) // without its files
		p.HungSince, p.Missing, p.CgroupsRead, p.TasksRead = time.Time{}, nil, p.Time, p.Time
		p.Phase, p.Finalizers, p.KillFailures, p.Pulls, p.Claims, p.Unwritable, p.NoShimSince = "Succeeded", nil, nil, nil, nil, nil, time.Time{}
		p.Containers = slices.Clone(p.Containers)
		for i := range p.Containers {
			c := &p.Containers[i]
			c.State, c.Task, c.Waiting, c.Rootfs, c.StatusError = evidence.StateExited, evidence.ShimTask{}, false, nil, ""
		}
		n := &p.Node
		n.Blocked, n.Scanners, n.Pressure, n.Ready = nil, nil, &evidence.Pressure{}, nil
		n.Containerd = evidence.ContainerdService{Version: "v2.4.2", ConnectedSince: n.Time.Add(disturbed - by)}
		process := evidence.Task{PID: 7, TID: 7, Comm: "kubelet", State: evidence.Sleeping, Probe: &evidence.Probe{Start: 7, Started: n.Time.Add(disturbed - by)}}
		n.Kubelet = evidence.KubeletService{Process: &process, Health: "ok", Answers: true, LastSeen: n.Time, VolumeCallsRead: n.Read}
	}
	for _, f := range fixtures(t) {
		v := verdictOf(f.evidence)
		r := replay{of: f.evidence, disturb: heal}
		if f.evidence.Gone || v.Cause == "" || v.Cause == diagnose.Unrecognised.Cause {
			continue
		}
		for _, r.anew = range []bool{false, true} {
			changes := r.run(t, v.Cause)
			if rule := ruleOf(v.Cause); len(changes) == 0 && r.lasts(rule) <= disturbed+soon {
				continue // the grace period is over before
			}
			if v.Cause == "FileScannerNotAnswering" {
				continue // its rule waits for what was seen to wait before
			}
			changes = append(changes, "never")
			ended, err := time.ParseDuration(strings.Fields(changes[0])[0])
			if err != nil || ended > disturbed+soon {
				t.Errorf("%s (a new agent: %t): %s", f.name, r.anew, changes)
			}
		}
	}
}
