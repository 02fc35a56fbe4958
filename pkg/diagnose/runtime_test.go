package diagnose_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// silent is a pod whose containerd, or shim, has not answered so many questions
// in the last seconds.
func silent(shim bool, attempts int, seconds time.Duration, change func(p *evidence.Pod)) *evidence.Pod {
	return stopping(func(p *evidence.Pod, first *evidence.Task) {
		p.Time = p.Deadline.Add(10 * time.Minute)
		first.Caught = bitTERM
		since := p.Time.Add(-seconds * time.Second)
		p.Node.Pressure = &evidence.Pressure{}
		if shim {
			p.Containers[0].Task = evidence.ShimTask{Asked: p.Time, UnansweredSince: since, Attempts: attempts}
			p.Parents = append(p.Parents, evidence.Task{PID: 90, TID: 90, Comm: "containerd-shim", State: evidence.Sleeping, UnchangedSince: since})
		} else {
			p.Node.Containerd = evidence.ContainerdService{Error: "no answer", Asked: p.Time, UnansweredSince: since, Attempts: attempts,
				Process: &evidence.Task{PID: 80, TID: 80, Comm: "containerd", State: evidence.Sleeping, UnchangedSince: since}}
		}
		change(p)
	})
}

// TestSilence checks when a silence of the container runtime is a hang.
func TestSilence(t *testing.T) {
	nothing := func(*evidence.Pod) {}
	// starved is a node that was short of something until so long ago.
	starved := func(ago time.Duration) func(*evidence.Pod) {
		return func(p *evidence.Pod) { p.Node.Pressure.StarvedUntil = p.Time.Add(-ago) }
	}
	unknown := func(p *evidence.Pod) { p.Node.Pressure = nil }
	containerdIn := func(state evidence.TaskState) func(*evidence.Pod) {
		return func(p *evidence.Pod) { p.Node.Containerd.Process.State = state }
	}
	for name, test := range map[string]struct {
		pod  *evidence.Pod
		want string
	}{
		"containerd, for a minute":                                 {silent(false, 3, 61, nothing), "ContainerdHung"},
		"containerd, for less":                                     {silent(false, 3, 59, nothing), ""},
		"containerd, for a minute, pressure not known":             {silent(false, 3, 61, unknown), ""},
		"containerd, for five minutes, pressure not known":         {silent(false, 20, 301, unknown), "ContainerdHung"},
		"containerd, for four minutes, the node is starved":        {silent(false, 16, 240, starved(0)), ""},
		"containerd, for four minutes, starved until a moment ago": {silent(false, 16, 240, starved(30*time.Second)), ""},
		"containerd, for four minutes, starved in the first two":   {silent(false, 16, 240, starved(2*time.Minute)), "ContainerdHung"},
		"containerd, for five minutes, the node is starved":        {silent(false, 20, 301, starved(0)), "ContainerdHung"},
		"containerd, stopped for five seconds":                     {silent(false, 2, 5, containerdIn(evidence.Stopped)), "ContainerdHung"},
		"containerd, in uninterruptible sleep for five seconds":    {silent(false, 2, 5, containerdIn(evidence.Uninterruptible)), ""},
		"containerd, in uninterruptible sleep for eleven seconds":  {silent(false, 2, 11, containerdIn(evidence.Uninterruptible)), "ContainerdHung"},
		"containerd, the same while the disk is busy": {silent(false, 2, 11, func(p *evidence.Pod) {
			starved(0)(p)
			containerdIn(evidence.Uninterruptible)(p)
		}), ""},
		"containerd, eleven seconds in synchronize_rcu": {silent(false, 2, 11, func(p *evidence.Pod) {
			containerdIn(evidence.Uninterruptible)(p)
			p.Node.Containerd.Process.Probe = &evidence.Probe{Wchan: "__wait_rcu_gp", Stack: []string{"__wait_rcu_gp", "synchronize_rcu", "namespace_unlock"}}
		}), ""},
		"shim, over three minutes": {silent(true, 3, 183, nothing), "ShimHung"},
		"shim, stopped":            {silent(true, 1, 5, func(p *evidence.Pod) { p.Parents[0].State = evidence.Stopped }), "ShimHung"},
		"a tracer in another pod that is called a shim, stopped": {silent(true, 1, 5, func(p *evidence.Pod) {
			p.Containers[0].Task = evidence.ShimTask{Status: "running", PID: 100}
			p.Parents[0].State, p.Parents[0].Owner = evidence.Stopped, podUID
		}), ""},
		"shim, over three minutes, the node is starved": {silent(true, 3, 183, starved(0)), ""},
		"shim, over six minutes, the node is starved":   {silent(true, 4, 363, starved(0)), "ShimHung"},
		"shim, the node was starved until its last question": {silent(true, 3, 240, func(p *evidence.Pod) {
			p.Containers[0].Task.Asked = p.Containers[0].Task.UnansweredSince.Add(183 * time.Second)
			starved(time.Minute)(p)
		}), ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := cause.Diagnose(test.pod)
			got := ""
			for _, f := range d.Findings {
				if f.Cause == "ContainerdHung" || f.Cause == "ShimHung" {
					got = f.Cause
				}
			}
			if got != test.want {
				t.Errorf("found %q, want %q", got, test.want)
			}
		})
	}
}

// One reading in state D does not tell why containerd is silent.
func TestBlockedContainerd(t *testing.T) {
	p := silent(false, 3, 61, func(p *evidence.Pod) {
		p.Node.Containerd.Process.State, p.Node.Containerd.Process.UnchangedSince = evidence.Uninterruptible, p.Time
	})
	d := cause.Diagnose(p)
	if v, _ := d.Verdict(); v.Cause != "ContainerdHung" || v.Family != "" {
		t.Errorf("%s, family %q after one reading: %s", v.Cause, v.Family, v.Remedy)
	}
}

// While containerd is silent the phase is not known, and what was found before is
// neither confirmed nor refuted.
func TestPhaseHidesNoCause(t *testing.T) {
	d := cause.Diagnose(silent(false, 2, 16, func(p *evidence.Pod) {
		p.Cgroups[0].Frozen, p.Cgroups[0].Version = true, 1
		p.Tasks[0].State, p.Tasks[0].Pending = evidence.Uninterruptible, bitKILL
		p.Lack(evidence.Containers, "no answer")
		p.Lack(evidence.Shims, "no answer")
	}))
	if !d.NotLookedFor("ContainerFrozen") {
		t.Error("ContainerFrozen counts as looked for, and would be taken back")
	}
}

// A runtime that is silent, and not yet for long enough, is not ruled out.
func TestPatienceIsNotUnknown(t *testing.T) {
	d := cause.Diagnose(silent(false, 16, 240, func(p *evidence.Pod) { p.Node.Pressure.StarvedUntil = p.Time }))
	v, _ := d.Verdict()
	if v.Cause != "Unknown" || strings.Contains(said(&v), "the known causes of kernel, runtime") || !strings.Contains(v.Message, "Not read in full: containerd") {
		t.Errorf("containerd is silent, and %s: %s", v.Cause, v.Message)
	}
}

// A silent shim is asked every three minutes. On a node that was starved, a question soon after that proves nothing: Unknown waits for the next one.
func TestUnknownWaitsForTheNextQuestion(t *testing.T) {
	for name, test := range map[string]struct {
		starvedFor, after time.Duration
		want              string
	}{
		"never starved":                        {0, 4 * time.Minute, ""},
		"never starved, and asked again":       {0, 5 * time.Minute, "Unknown"},
		"starved at first":                     {168 * time.Second, 323 * time.Second, ""},
		"starved at first, and asked again":    {168 * time.Second, 430 * time.Second, "Unknown"},
		"starved for long":                     {6 * time.Minute, 8 * time.Minute, ""},
		"starved for long, and asked again":    {6 * time.Minute, 9 * time.Minute, "Unknown"},
		"starved before the end of the period": {-time.Hour, 4 * time.Minute, ""},
		"starved before that, and asked again": {-time.Hour, 5 * time.Minute, "Unknown"},
	} {
		d := cause.Diagnose(silent(true, 4, 0, func(p *evidence.Pod) {
			p.Time = p.Deadline.Add(test.after)
			p.UnchangedSince = p.Deadline
			// Without an answer that is due by now.
			p.Containers[0].Task.UnansweredSince, p.Containers[0].Task.Asked = p.Deadline, p.Deadline.Add(43*time.Second)
			p.Parents[len(p.Parents)-1].UnchangedSince = p.Deadline
			if test.starvedFor != 0 {
				p.Node.Pressure.StarvedUntil = p.Deadline.Add(test.starvedFor)
			}
			p.Lack(evidence.Shims, "the shim does not answer about container main")
		}))
		if v, _ := d.Verdict(); v.Cause != test.want {
			t.Errorf("%s: %q, want %q: open %v", name, v.Cause, test.want, d.Open)
		}
	}
}

// On a node that is short of something a step of the kubelet may take longer than a
// minute.
func TestUnknownOnAStarvedNode(t *testing.T) {
	for after, want := range map[time.Duration]bool{100 * time.Second: false, 130 * time.Second: true} {
		p := stopping(func(p *evidence.Pod, first *evidence.Task) {
			first.Caught = bitTERM
			p.Time = p.Deadline.Add(after)
			p.UnchangedSince = p.Deadline
			p.Node.Pressure = &evidence.Pressure{CPU: 97, StarvedUntil: p.Time}
		})
		d := cause.Diagnose(p)
		if v, found := d.Verdict(); found != want || found && !strings.Contains(v.Message, "The node is under CPU pressure,") {
			t.Errorf("%s after the deadline: %q: %s", after, v.Cause, v.Message)
		}
	}
}

// A phase says what is seen, and no more.
func TestPhases(t *testing.T) {
	sandbox := evidence.Container{Name: "POD", Kind: evidence.Sandbox, ID: "s", State: evidence.StateRunning}
	for name, tc := range map[string]struct {
		change func(p *evidence.Pod)
		want   diagnose.Phase
	}{
		"a container is being created": {func(p *evidence.Pod) {
			p.Containers = []evidence.Container{sandbox, {Name: "main", Kind: evidence.App, ID: "c", State: evidence.StateCreated, Waiting: true}}
		}, diagnose.Startup},
		"a container has been created and not been started": {func(p *evidence.Pod) {
			p.Containers = []evidence.Container{sandbox, {Name: "main", Kind: evidence.App, ID: "c", State: evidence.StateCreated, Waiting: true}}
			p.Tasks = []evidence.Task{task(100, 50, "runc:[2:INIT]", evidence.Sleeping, "openat")}
		}, diagnose.Startup},
		"a container has been created, and another one runs": {func(p *evidence.Pod) {
			p.Containers = []evidence.Container{sandbox, {Name: "main", Kind: evidence.App, ID: "c", State: evidence.StateRunning}, {Name: "second",
				Kind: evidence.App, ID: "d", State: evidence.StateCreated, Waiting: true}}
			p.Tasks = []evidence.Task{task(100, 50, "app", evidence.Sleeping, "epoll_wait")}
		}, diagnose.StopSignal},
		"a preStop hook may run": {func(p *evidence.Pod) {
			p.Containers = []evidence.Container{sandbox, {Name: "main", Kind: evidence.App, ID: "c", State: evidence.StateRunning, PreStop: true}}
			p.Tasks, p.Deadline = []evidence.Task{task(100, 50, "app", evidence.Sleeping, "epoll_wait")}, p.Time.Add(time.Minute)
		}, diagnose.PreStop},
		"a container with a preStop hook is being signalled": {func(p *evidence.Pod) {
			p.Containers = []evidence.Container{sandbox, {Name: "main", Kind: evidence.App, ID: "c", State: evidence.StateRunning, PreStop: true}}
			p.Tasks, p.Deadline = []evidence.Task{task(100, 50, "app", evidence.Sleeping, "epoll_wait")}, p.Time.Add(time.Minute)
			p.RuntimeCommands = []evidence.RuntimeCommand{{Runtime: "runc", Command: "kill", Container: "c"}}
		}, diagnose.StopSignal},
		"an image is pulled, or a sandbox without containers is taken down": {func(p *evidence.Pod) {
			p.Containers = []evidence.Container{sandbox, {Name: "main", Kind: evidence.App, Waiting: true}}
		}, diagnose.PhaseUnknown},
		"the sandbox is taken down": {func(p *evidence.Pod) {
			p.Containers = []evidence.Container{sandbox, {Name: "main", Kind: evidence.App, ID: "c", State: evidence.StateExited}}
		}, diagnose.Sandbox},
		"the sandbox of a pod whose init container failed is taken down": {func(p *evidence.Pod) {
			p.Containers = []evidence.Container{sandbox,
				{Name: "init", Kind: evidence.Init, ID: "i", State: evidence.StateExited}, {Name: "main", Kind: evidence.App, Exit: &evidence.Exit{}}}
		}, diagnose.Sandbox},
		"files are deleted, or the group removed": {func(p *evidence.Pod) { p.Phase = "Succeeded" }, diagnose.Cleanup},
		"a volume is mounted": {func(p *evidence.Pod) {
			p.Phase, p.Mounts = "Succeeded", []evidence.Mount{{Point: "/var/lib/kubelet/pods/u/volumes/x/y", Type: "ext4"}}
		}, diagnose.Volumes},
		"nothing is left": {func(p *evidence.Pod) { p.Phase, p.Cgroups = "Succeeded", nil }, diagnose.FinalDelete},
	} {
		p := stopping(func(p *evidence.Pod, _ *evidence.Task) {
			p.Tasks = nil
			p.Time, p.UnchangedSince = p.Deadline.Add(2*time.Minute), p.Deadline
			tc.change(p)
		})
		d := cause.Diagnose(p)
		if d.Phase != tc.want {
			t.Errorf("%s: %s, want %s", name, d.Phase, tc.want)
		}
		if v, _ := d.Verdict(); v.Cause == "Unknown" && d.Phase == diagnose.Cleanup {
			t.Errorf("%s is told as stuck after two minutes", name)
		}
	}
}

// A thread that is exiting shows nothing of its SIGKILL: that its leader is a zombie keeps nobody
// from killing it.
func TestZombieLeaderWasKilled(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(thread *evidence.Task)
		told   bool
	}{
		"nobody has killed it":                      {func(*evidence.Task) {}, true},
		"it runs, and is not looked at":             {func(k *evidence.Task) { k.State, k.Probe = evidence.Runnable, nil }, true},
		"SIGKILL was pending in an earlier reading": {func(k *evidence.Task) { k.WasKilled = true }, false},
		"it was exiting in an earlier reading":      {func(k *evidence.Task) { k.Probe, k.WasExiting = nil, true }, false},
		"it has gone before it could be looked at":  {func(k *evidence.Task) { k.Probe = nil }, false},
		"its stat could not be read in time":        {func(k *evidence.Task) { k.Probe = &evidence.Probe{Hung: []string{"stat"}} }, false},
		"it is exiting":                             {func(k *evidence.Task) { k.Probe.Flags |= evidence.PFExiting }, false},
	} {
		p := fixtureNamed(t, "zombie_leader_not_killed")
		for i := range p.Tasks {
			if k := &p.Tasks[i]; k.Comm == "victim" && !k.Leader() {
				tc.change(k)
			}
		}
		d := cause.Diagnose(p)
		if v, _ := d.Verdict(); (v.Cause == "ZombieLeaderNotKilled") != tc.told {
			t.Errorf("%s: %s", name, v.Cause)
		}
	}
}

// What io_uring has left of a process that was killed takes its SIGKILL, and shows it no more:
// to send it again ends nothing.
func TestZombieLeaderAndRings(t *testing.T) {
	for name, tc := range map[string]struct {
		comm   string
		state  evidence.TaskState
		probe  *evidence.Probe
		others bool // that no other thread lives
		told   bool
	}{
		"a thread waits for io_uring on its way out": {"app", evidence.Uninterruptible,
			&evidence.Probe{Wchan: "io_wq_put_and_exit", Stack: []string{"io_wq_put_and_exit", "io_uring_cancel_generic", "do_exit", "do_group_exit",
				"get_signal"}}, false, false},
		"only the thread that polls is left, and waits": {"iou-sqp-9", evidence.Uninterruptible,
			&evidence.Probe{Flags: evidence.PFIOWorker, Wchan: "io_uring_cancel_generic", Stack: []string{"io_uring_cancel_generic", "io_sq_thread",
				"ret_from_fork"}}, true, false},
		"only the thread that polls is left, and runs": {"iou-sqp-9", evidence.Runnable, nil, true, false},
		"a thread that polls, and others live": {"iou-sqp-9", evidence.Sleeping,
			&evidence.Probe{Flags: evidence.PFIOWorker, Wchan: "io_sq_thread", Stack: []string{"io_sq_thread", "ret_from_fork"}}, false, true},
	} {
		p, changed := fixtureNamed(t, "zombie_leader_not_killed"), false
		p.Tasks = slices.DeleteFunc(p.Tasks, func(o evidence.Task) bool {
			is := o.Comm == "victim" && !o.Leader() && changed && tc.others
			changed = changed || o.Comm == "victim" && !o.Leader()
			return is
		})
		i := slices.IndexFunc(p.Tasks, func(o evidence.Task) bool { return o.Comm == "victim" && !o.Leader() })
		o := &p.Tasks[i]
		o.Comm, o.State, o.Probe = tc.comm, tc.state, tc.probe
		d := cause.Diagnose(p)
		if v, _ := d.Verdict(); (v.Cause == "ZombieLeaderNotKilled") != tc.told {
			t.Errorf("%s: %s: %s", name, v.Cause, v.Message)
		}
	}
}

// That nobody has sent SIGKILL is no fault of runc's while it may not be due.
func TestZombieLeaderMayNotBeDue(t *testing.T) {
	for name, change := range map[string]func(p *evidence.Pod){
		"the kubelet was started since": func(p *evidence.Pod) {
			p.Node.Kubelet.Process.Probe = &evidence.Probe{Started: p.DeletionRequested.Add(time.Second)}
		},
		"a second deletion may have moved the deadline": func(p *evidence.Pod) { p.DeadlineUnsure = true },
		"a static pod runs on":                          func(p *evidence.Pod) { p.Mirror = true },
		"somebody traces the kubelet":                   func(p *evidence.Pod) { p.Node.Kubelet.Process.State = evidence.Traced },
		"the kubelet is unwell":                         func(p *evidence.Pod) { p.Node.Kubelet.Health = "failing checks: syncloop" },
	} {
		p := fixtureNamed(t, "zombie_leader_not_killed")
		change(p)
		d := cause.Diagnose(p)
		if v, _ := d.Verdict(); v.Cause == "ZombieLeaderNotKilled" {
			t.Errorf("%s: %s", name, v.Message)
		}
	}
}
