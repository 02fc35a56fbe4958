package diagnose_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// awaited is a pod that the kubelet has not begun to stop, by its status, so long after its deadline.
func awaited(past time.Duration, change func(p *evidence.Pod)) *evidence.Pod {
	return goesOn(past, func(p *evidence.Pod) {
		p.StopAwaited = true
		p.Node.Kubelet.Blocked, p.Node.Kubelet.Strangers = nil, nil
		p.Node.Ready = &evidence.NodeReady{Status: "True", Reason: "KubeletReady"}
		p.Node.Awaiting = 1
		change(p)
	})
}

// fared is what the kubelet has had of the processors in the last twelve seconds, and who has used them.
func fared(ran, waited time.Duration, users ...evidence.ProcessorUser) func(p *evidence.Pod) {
	return func(p *evidence.Pod) {
		p.Node.Processors = &evidence.Processors{Since: p.Time.Add(-15 * time.Second), Until: p.Time.Add(-3 * time.Second), Ran: ran, Waited: waited, Users: users}
	}
}

func TestKubeletLate(t *testing.T) {
	const s = time.Second
	throttled := func(p *evidence.Pod) {
		fared(s/10, 11*s)(p)
		c := p.Node.Processors
		c.Group, c.Millis, c.Periods, c.Throttled = "system.slice/kubelet.service", 10, 120, 118
	}
	starved := fared(s, 30*s, evidence.ProcessorUser{Pod: "batch/burner", PodUID: "b", Millis: 1900}, evidence.ProcessorUser{Group: "user.slice", Millis: 1000},
		evidence.ProcessorUser{Group: "init.scope", Millis: 20})
	own := fared(s, 30*s, evidence.ProcessorUser{Group: "system.slice/kubelet.service", Own: true, Millis: 1900},
		evidence.ProcessorUser{Group: "user.slice", Millis: 1800})
	unheard := func(p *evidence.Pod) {
		p.Node.Ready = &evidence.NodeReady{Status: "Unknown", Reason: "NodeStatusUnknown", Asked: p.Time, Since: p.Time.Add(-10 * s), Transition: p.Time.Add(-10 * s)}
		p.Node.Kubelet.Answers, p.Node.Kubelet.SilentSince = false, p.Time.Add(-30*s)
	}
	both := func(changes ...func(p *evidence.Pod)) func(p *evidence.Pod) {
		return func(p *evidence.Pod) {
			for _, change := range changes {
				change(p)
			}
		}
	}
	two := func(p *evidence.Pod) { p.Node.Awaiting = 2 }
	health := func(h string) func(p *evidence.Pod) { return func(p *evidence.Pod) { p.Node.Kubelet.Health = h } }
	pull := func(p *evidence.Pod) {
		p.Phase, p.Tasks = "Pending", nil
		p.Containers[0] = evidence.Container{Name: "main", Kind: evidence.App, Waiting: true}
		p.Pulls = []evidence.Pull{{Container: "main", Image: "registry/ml:20g", Since: requested.Add(-20 * s)}}
		p.Node.Kubelet.Process.Probe = &evidence.Probe{Started: requested.Add(-time.Hour)}
		p.Node.Containerd.Downloads = []evidence.Download{{Offset: 5e9, Total: 2e10, Updated: p.Time.Add(-s)}}
	}
	runc := func(p *evidence.Pod) {
		p.RuntimeCommands = []evidence.RuntimeCommand{{Command: "create", Container: "c1"}}
	}
	started := func(ago time.Duration) func(p *evidence.Pod) {
		return func(p *evidence.Pod) { p.Node.Kubelet.Process.Probe = &evidence.Probe{Started: p.Time.Add(-ago)} }
	}
	ready := func(ago time.Duration) func(p *evidence.Pod) {
		return func(p *evidence.Pod) { p.Node.Ready.Transition = p.Time.Add(-ago) }
	}
	const late = 6 * time.Minute
	const cpu, gets, hears, unseen = "the CPU limit of its cgroup", "it gets no CPU time", "no longer hears of deletions", "the reason is not visible"
	for name, tc := range map[string]struct {
		past   time.Duration
		change func(p *evidence.Pod)
		says   string // "" for another cause, or none
		whole  bool
	}{
		"throttled":                {61 * s, throttled, cpu, true},
		"throttled, and not heard": {61 * s, both(throttled, unheard), cpu, true},
		"throttled two times of three": {61 * s, both(throttled, func(p *evidence.Pod) {
			p.Node.Processors.Throttled, p.Node.Processors.Waited = 80, s
		}), unseen, false},
		"throttled, and soon":         {59 * s, throttled, "", false},
		"throttled a while ago":       {61 * s, both(throttled, func(p *evidence.Pod) { p.Node.Processors.Until = p.Time.Add(-2 * time.Minute) }), unseen, false},
		"throttled, and a pull":       {late, both(throttled, pull), "", false},
		"throttled, and runc works":   {late, both(throttled, runc), "", false},
		"throttled, and young":        {late, both(throttled, started(50*s)), "", false},
		"throttled, and ready again":  {late, both(throttled, ready(50*s)), "", false},
		"throttled, and older":        {late, both(throttled, started(61*s), ready(61*s)), cpu, true},
		"starved":                     {61 * s, starved, gets, true},
		"starved by its own cgroup":   {61 * s, own, "Most is used by other processes in its own cgroup system.slice/kubelet.service", true},
		"starved, with unknown users": {61 * s, fared(s, 30*s), gets, true},
		"it waits less than the time": {61 * s, fared(0, 11*s), unseen, false},
		"a busy node":                 {61 * s, fared(2*s, 30*s), unseen, false},
		"nothing is known of it":      {61 * s, fared(0, 0), unseen, false},
		"short of I/O":                {61 * s, func(p *evidence.Pod) { p.Node.Pressure = &evidence.Pressure{IO: 60} }, "under I/O pressure", false},
		"short of I/O for long": {late, func(p *evidence.Pod) {
			p.Node.Pressure = &evidence.Pressure{IO: 60, StarvedUntil: p.Time}
		}, "under I/O pressure", false},
		"it is stopped":                {61 * s, both(starved, func(p *evidence.Pod) { p.Node.Kubelet.Process.State = evidence.Stopped }), "", false},
		"it has begun":                 {61 * s, both(starved, func(p *evidence.Pod) { p.StopAwaited, p.StopBegun = false, true }), "", false},
		"of a static pod":              {61 * s, both(starved, func(p *evidence.Pod) { p.Mirror = true }), "", false},
		"two wait":                     {late, two, hears, true},
		"two wait, and it is early":    {280 * s, two, "", false},
		"two wait, and it is not well": {late, both(two, health("failing checks: log")), "", false},
		"two wait, its health unknown": {late, both(two, health("")), unseen, false},
		"two wait, heard again":        {late, both(two, ready(2*s)), "", false},
		"two wait, one begun before":   {late, both(two, func(p *evidence.Pod) { p.Node.LastBegun = requested.Add(-time.Minute) }), hears, true},
		"two wait, one begun after":    {late, both(two, func(p *evidence.Pod) { p.Node.LastBegun = requested.Add(s) }), unseen, false},
		"two wait, not ready": {late, both(two, func(p *evidence.Pod) {
			p.Node.Ready = &evidence.NodeReady{Status: "False", Reason: "KubeletNotReady"}
		}), "", false},
		"two wait, and runc works":     {late, both(two, runc), "", false},
		"two wait, and its loop hangs": {late, both(two, onlySaid(time.Minute)), "", false},
		"alone":                        {late, func(*evidence.Pod) {}, unseen, false},
		"alone, and soon":              {61 * s, func(p *evidence.Pod) { p.UnchangedSince = p.Time.Add(-30 * s) }, "", false},
		"alone, heard again":           {late, ready(2 * s), "", false},
		"alone, and a silent shim":     {late, func(p *evidence.Pod) { p.Lack(evidence.Shims, "no answer") }, "", false},
		"alone, and started anew":      {late, started(5 * s), "", false},
		"alone, and refused": {late, func(p *evidence.Pod) {
			p.Refusal = &evidence.Refusal{Webhook: "b.test", Code: "403", At: p.Time.Add(-time.Minute)}
		}, "", false},
	} {
		d := cause.Diagnose(awaited(tc.past, tc.change))
		v, _ := d.Verdict()
		if (v.Cause == "KubeletLate") != (tc.says != "") || !strings.Contains(v.Message, tc.says) || tc.says != "" && v.WholeNode != tc.whole {
			t.Errorf("%s: %s (whole node %t): %s", name, v.Cause, v.WholeNode, v.Message)
		}
		if v.Cause == "Unknown" && strings.Contains(said(&v), "Ruled out: the known causes of kubelet") {
			t.Errorf("%s: %s", name, said(&v))
		}
	}
	v, _ := ptr(cause.Diagnose(awaited(61*s, starved))).Verdict()
	if !strings.Contains(v.Message, "Most is used by pod batch/burner, cgroup user.slice") {
		t.Error(v.Message)
	}
	// What nothing is left of for anybody is told as before.
	for _, name := range []string{"containerd_hung", "pleg_unhealthy", "kubelet_disconnected_refused"} {
		for _, f := range fixtures(t) {
			if !strings.HasPrefix(f.name, name) {
				continue
			}
			want, _ := ptr(cause.Diagnose(f.evidence)).Verdict()
			f.evidence.StopAwaited = true
			throttled(f.evidence)
			if got, _ := ptr(cause.Diagnose(f.evidence)).Verdict(); got.Cause != want.Cause {
				t.Errorf("%s, and throttled: %s", f.name, got.Cause)
			}
		}
	}
}
