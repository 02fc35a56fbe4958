package evidence

import (
	"testing"
	"time"
)

// A hook's process is one that the shim has executed in the container since the deletion, or what it has left.
func TestMayBeHooks(t *testing.T) {
	at := time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)
	executed := Task{PID: 120, TID: 120, PPID: 50, Comm: "sh", State: Sleeping, Container: "c", Probe: &Probe{Started: at.Add(time.Second), Group: 120}}
	change := func(f func(*Task)) Task {
		t, probe := executed, *executed.Probe
		t.Probe = &probe
		f(&t)
		return t
	}
	for name, tc := range map[string]struct {
		task   *Task
		pod    func(*Pod)
		is, ok bool
	}{
		"none":                      {nil, nil, false, true},
		"executed":                  {&executed, nil, true, true},
		"when it began is unknown":  {new(change(func(t *Task) { t.Probe = nil })), nil, true, true},
		"with a terminal":           {new(change(func(t *Task) { t.Probe.Terminal = true })), nil, false, true},
		"before the deletion":       {new(change(func(t *Task) { t.Probe.Started = at.Add(-time.Minute) })), nil, false, true},
		"has ended":                 {new(change(func(t *Task) { t.State = Zombie })), nil, false, true},
		"the program's":             {new(change(func(t *Task) { t.PPID, t.Probe.Group = 100, 100 })), nil, false, true},
		"left behind":               {new(change(func(t *Task) { t.PPID, t.Probe.Group = 100, 119 })), nil, true, true},
		"of another container":      {new(change(func(t *Task) { t.Container = "d" })), nil, false, true},
		"host PIDs":                 {&executed, func(p *Pod) { p.HostPID = true }, false, false},
		"no shim":                   {&executed, func(p *Pod) { p.Parents = nil }, false, false},
		"processes unread":          {nil, func(p *Pod) { p.Lack(Processes, "x") }, false, false},
		"commands unread":           {nil, func(p *Pod) { p.Lack(RuntimeCommands, "x") }, false, false},
		"one is about to be":        {nil, func(p *Pod) { p.RuntimeCommands = []RuntimeCommand{{Command: "exec", Container: "c"}} }, false, false},
		"another container's is":    {nil, func(p *Pod) { p.RuntimeCommands = []RuntimeCommand{{Command: "exec", Container: "d"}} }, false, true},
		"shared PIDs":               {&executed, func(p *Pod) { p.ShareProcessNamespace = true }, true, true},
		"the shim names no process": {&executed, func(p *Pod) { p.Containers[0].Task.PID = 0 }, true, true},
	} {
		p := &Pod{
			UID: "u", Time: at.Add(10 * time.Second), DeletionRequested: at, Parents: []Task{{PID: 50, TID: 50, Comm: "containerd-shim"}},
			Containers: []Container{{ID: "c", State: StateRunning, PreStop: true, PreStopProgram: "sh", Task: ShimTask{PID: 100}}},
			Tasks: []Task{{
				PID: 100, TID: 100, PPID: 50, NSpid: []int{100, 1}, Container: "c", Comm: "app", Probe: &Probe{Started: at.Add(-time.Hour), Group: 100},
			}},
		}
		if tc.task != nil {
			p.Tasks = append(p.Tasks, *tc.task)
		}
		if tc.pod != nil {
			tc.pod(p)
		}
		hooks, ok := p.MayBeHooks(&p.Containers[0])
		if len(hooks) > 0 != tc.is || ok != tc.ok {
			t.Errorf("%s: %v, %t, want %t, %t", name, hooks, ok, tc.is, tc.ok)
		}
	}
}

// A hook is over since the first of the readings that show none; a reading that does not tell changes nothing.
func TestHookIsOver(t *testing.T) {
	at := time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)
	reading := func(after time.Duration, hook bool) *Pod {
		p := &Pod{
			UID: "u", Time: at.Add(after), DeletionRequested: at, Parents: []Task{{PID: 50, TID: 50, Comm: "containerd-shim"}},
			Containers: []Container{{ID: "c", State: StateRunning, PreStop: true, PreStopProgram: "sh", Task: ShimTask{PID: 100}}},
			Tasks:      []Task{{PID: 100, TID: 100, PPID: 50, NSpid: []int{100, 1}, Container: "c", Comm: "app"}},
		}
		if hook {
			p.Tasks = append(p.Tasks, Task{PID: 120, TID: 120, PPID: 50, Container: "c", Comm: "sleep", Probe: &Probe{Started: at.Add(time.Second), Group: 120}})
		}
		return p
	}
	var before *Pod
	for _, step := range []struct {
		after      time.Duration
		hook       bool
		seen, over time.Duration // 0 is never
	}{
		{1 * time.Second, false, 0, 1 * time.Second},
		{3 * time.Second, true, 3 * time.Second, 0},
		{5 * time.Second, true, 5 * time.Second, 0},
		{7 * time.Second, false, 5 * time.Second, 7 * time.Second},
		{9 * time.Second, false, 5 * time.Second, 7 * time.Second},
	} {
		p := reading(step.after, step.hook)
		p.Since(before)
		c := &p.Containers[0]
		for what, pair := range map[string][2]any{"seen": {c.HookSeen, step.seen}, "over": {c.HookOver, step.over}} {
			got, want := pair[0].(time.Time), pair[1].(time.Duration)
			if got.IsZero() != (want == 0) || want != 0 && !got.Equal(at.Add(want)) {
				t.Errorf("after %s: %s at %s, want %s", step.after, what, got, want)
			}
		}
		before = p
	}
	p := reading(11*time.Second, true)
	p.Lack(RuntimeCommands, "no time was left")
	p.Since(before)
	if c := &p.Containers[0]; !c.HookOver.Equal(at.Add(7 * time.Second)) {
		t.Errorf("a reading that does not tell: over at %s", c.HookOver)
	}
}
