package diagnose_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// ended is a pod whose container has ended by what the shim and the kernel show, and runs
// by containerd's record, for 31 seconds.
func ended(change func(p *evidence.Pod, c *evidence.Container)) *evidence.Pod {
	return stopping(func(p *evidence.Pod, _ *evidence.Task) {
		p.Time = p.Deadline.Add(35 * time.Second)
		p.Tasks = nil
		p.UnchangedSince = p.Deadline
		p.Cgroups[0].Threads, p.Cgroups[0].Populated = 0, false
		p.Parents = []evidence.Task{{PID: 50, TID: 50, Comm: "containerd-shim", State: evidence.Sleeping, Owner: "shim"}}
		p.Node.Pressure = &evidence.Pressure{}
		p.Node.Time = p.Time
		p.Node.Containerd = evidence.ContainerdService{Version: "v1.7.20", ConnectedSince: p.Time.Add(-61 * time.Second)}
		c := &p.Containers[0]
		c.Task = evidence.ShimTask{Status: "stopped", PID: 100, PIDGone: true, Drained: true}
		c.VacantSince, c.Runtime = p.Time.Add(-31*time.Second), "io.containerd.runc.v2"
		change(p, c)
	})
}

// TestExitEventLost checks when the end of a container is lost, and not only late, or
// held up by something else.
func TestExitEventLost(t *testing.T) {
	runs := func(_ *evidence.Pod, c *evidence.Container) { c.Task.Status = "running" }
	absent := func(_ *evidence.Pod, c *evidence.Container) { c.Task = evidence.ShimTask{Absent: true} }
	behind := func(p *evidence.Pod) {
		p.Node.Containerd.Version = "v2.4.2"
		p.Containers = append(p.Containers, evidence.Container{Name: "first", Kind: evidence.App, ID: "f", State: evidence.StateExited})
	}
	const lost = "ExitEventLost"
	for name, test := range map[string]struct {
		change func(p *evidence.Pod, c *evidence.Container)
		want   string // what the message says besides that it is lost; "" when it is not
	}{
		"the shim says that it has stopped": {func(*evidence.Pod, *evidence.Container) {}, "The CRI status of containerd (v1.7.20) says " +
			"running, but the kernel shows no process of container main\nThe shim (PID 50) says stopped\n" +
			"containerd v1.7.20 is known to lose the exit of a container: containerd issue #11634, fixed in 1.7.34"},
		"the shim says that it runs": {runs, "and so does its shim (PID 50)\nThe CRI status of containerd (v1.7.20) says running, but " +
			"the kernel shows no process of container main\nThe shim (PID 50) says running\n" +
			"containerd v1.7.20 is known to lose the exit of a container: containerd issue #10589, fixed in 1.7.22"},
		"there is no task": {absent, "The CRI status of containerd (v1.7.20) says running, but the kernel shows no process of container " +
			"main\ncontainerd has no task for it"},
		"the shim says that it runs, and has runc execute something": {func(p *evidence.Pod, c *evidence.Container) {
			runs(p, c)
			p.RuntimeCommands = []evidence.RuntimeCommand{{Runtime: "runc", Command: "exec", Container: c.ID}}
		}, ""},
		"the shim says that it runs, and has runc do something elsewhere": {func(p *evidence.Pod, c *evidence.Container) {
			runs(p, c)
			p.RuntimeCommands = []evidence.RuntimeCommand{{Runtime: "runc", Command: "exec", Container: "other"}}
		}, "fixed in 1.7.22"},
		"the shim says that it runs, and what it has runc do is not known": {func(p *evidence.Pod, c *evidence.Container) {
			runs(p, c)
			p.Lack(evidence.RuntimeCommands, "no")
		}, ""},
		"a version without the bug": {func(p *evidence.Pod, c *evidence.Container) {
			runs(p, c)
			p.Node.Containerd.Version = "v1.7.22"
		}, "The CRI status of containerd (v1.7.22) says running"},
		"a version of a distribution": {func(p *evidence.Pod, _ *evidence.Container) { p.Node.Containerd.Version = "1.7.12-0ubuntu4" },
			"The CRI status of containerd (1.7.12-0ubuntu4) says running"},
		"a bug that is not fixed": {func(p *evidence.Pod, c *evidence.Container) {
			runs(p, c)
			behind(p)
		}, "It is reported, but not confirmed, that containerd v2.4.2 can lose the exit of a container: containerd issue #13814"},
		"the same, and systemd has removed the control group": {func(p *evidence.Pod, c *evidence.Container) {
			runs(p, c)
			behind(p)
			p.Cgroups = []evidence.Cgroup{{Path: "/kubepods.slice/kubepods-podu.slice", Version: 2}}
		}, "containerd issue #13814"},
		"a thread of the shim hangs": {func(p *evidence.Pod, c *evidence.Container) {
			runs(p, c)
			p.Node.Blocked = []evidence.Task{blockedIn(p, 50, 30*time.Second)}
		}, "The shim (PID 50) says running, and thread 57 of the shim is in D state in fanotify_handle_event\ncontainerd v1.7.20 is " +
			"known to lose the exit of a container: containerd issue #10589, fixed in 1.7.22"},
		"a thread of the shim has hung for 29 seconds": {func(p *evidence.Pod, c *evidence.Container) {
			runs(p, c)
			p.Node.Blocked = []evidence.Task{blockedIn(p, 50, 29*time.Second)}
		}, "The CRI status of containerd (v1.7.20) says running, but the kernel shows no process of container main\nThe shim (PID 50) says running\n" +
			"containerd v1.7.20 is known to lose the exit of a container: containerd issue #10589, fixed in 1.7.22"},
		"a thread of another process hangs": {func(p *evidence.Pod, c *evidence.Container) {
			runs(p, c)
			p.Node.Blocked = []evidence.Task{blockedIn(p, 51, time.Minute)}
		}, "The CRI status of containerd (v1.7.20) says running, but the kernel shows no process of container main\nThe shim (PID 50) says running\n" +
			"containerd v1.7.20 is known to lose the exit of a container: containerd issue #10589, fixed in 1.7.22"},
		"the same on cgroup v1": {func(p *evidence.Pod, c *evidence.Container) {
			runs(p, c)
			behind(p)
			p.Cgroups[0].Version = 1
		}, "The CRI status of containerd (v2.4.2) says running"},
		"the same, of the first end in the pod": {func(p *evidence.Pod, c *evidence.Container) {
			runs(p, c)
			p.Node.Containerd.Version = "v2.4.2"
		}, "The CRI status of containerd (v2.4.2) says running"},
		"systemd has removed the control group": {func(p *evidence.Pod, _ *evidence.Container) {
			p.Cgroups = []evidence.Cgroup{{Path: "/kubepods.slice/kubepods-podu.slice", Version: 2}}
		}, "fixed in 1.7.34"},
		"for 29 seconds": {func(p *evidence.Pod, c *evidence.Container) { c.VacantSince = p.Time.Add(-29 * time.Second) }, ""},
		"it came so late that containerd's next try is yet to come": {func(p *evidence.Pod, c *evidence.Container) {
			c.VacantSince = p.Deadline.Add(2 * time.Minute)
			p.Time = c.VacantSince.Add(2 * time.Minute)
			p.Node.Time, p.Node.Containerd.ConnectedSince = p.Time, p.Time.Add(-time.Hour)
		}, ""},
		"it came late, and containerd's next try has failed": {func(p *evidence.Pod, c *evidence.Container) {
			c.VacantSince = p.Deadline.Add(2 * time.Minute)
			p.Time = c.VacantSince.Add(130 * time.Second)
			p.Node.Time, p.Node.Containerd.ConnectedSince = p.Time, p.Time.Add(-time.Hour)
		}, "The CRI status of containerd (v1.7.20) says running"},
		"it was only just seen": {func(_ *evidence.Pod, c *evidence.Container) { c.VacantSince = time.Time{} }, ""},
		"the node is starved":   {func(p *evidence.Pod, _ *evidence.Container) { p.Node.Pressure.StarvedUntil = p.Time }, ""},
		"the node is starved, for 91 seconds": {func(p *evidence.Pod, c *evidence.Container) {
			p.Node.Pressure.StarvedUntil, c.VacantSince = p.Time, p.Time.Add(-91*time.Second)
		}, "fixed in 1.7.34"},
		"pressure is not known": {func(p *evidence.Pod, _ *evidence.Container) { p.Node.Pressure = nil }, ""},
		"containerd is new": {func(p *evidence.Pod, _ *evidence.Container) {
			p.Node.Containerd.ConnectedSince = p.Time.Add(-59 * time.Second)
		}, ""},
		"containerd is not known":                         {func(p *evidence.Pod, _ *evidence.Container) { p.Node.Containerd.ConnectedSince = time.Time{} }, ""},
		"containerd has failed":                           {func(p *evidence.Pod, _ *evidence.Container) { p.Node.Containerd.Error = "no" }, ""},
		"the record says that it has exited":              {func(_ *evidence.Pod, c *evidence.Container) { c.State = evidence.StateExited }, ""},
		"somebody held its output until five minutes ago": {func(p *evidence.Pod, c *evidence.Container) { c.Task.HeldUntil = p.Time.Add(-5 * time.Minute) }, ""},
		"somebody held its output until six minutes ago": {func(p *evidence.Pod,
			c *evidence.Container) {
			c.Task.HeldUntil = p.Time.Add(-6 * time.Minute)
		}, "fixed in 1.7.34"},
		"runc was at work about it until 29 seconds ago": {func(p *evidence.Pod, c *evidence.Container) {
			runs(p, c)
			c.Task.CommandedUntil = p.Time.Add(-29 * time.Second)
		}, ""},
		"runc was at work about it until half a minute ago": {func(p *evidence.Pod, c *evidence.Container) {
			runs(p, c)
			c.Task.CommandedUntil = p.Time.Add(-30 * time.Second)
		}, "fixed in 1.7.22"},
		"runc has removed its control group": {func(p *evidence.Pod, _ *evidence.Container) { p.Cgroups = nil }, ""},
		"a group below its own has tasks":    {func(p *evidence.Pod, _ *evidence.Container) { p.Cgroups[0].Populated = true }, ""},
		"it is of a virtual machine":         {func(_ *evidence.Pod, c *evidence.Container) { c.Runtime = "io.containerd.kata.v2" }, ""},
		"its runtime is not known":           {func(_ *evidence.Pod, c *evidence.Container) { c.Runtime = "" }, ""},
		"there are two shims": {func(p *evidence.Pod, _ *evidence.Container) {
			p.Parents = append(p.Parents, evidence.Task{PID: 51, TID: 51, Comm: "containerd-shim", Owner: "shim"})
		}, ""},
		"a process of another pod is called like a shim": {func(p *evidence.Pod, _ *evidence.Container) { p.Parents[0].Owner = "other" }, ""},
		"a container has made a slice": {func(p *evidence.Pod, _ *evidence.Container) {
			p.Cgroups = []evidence.Cgroup{{Path: "/kubepods/podu/other/x.slice", Container: "other"}}
		}, ""},
		"containerd has run since before the deletion": {func(p *evidence.Pod, _ *evidence.Container) {
			p.Node.Containerd.ConnectedSince = p.DeletionRequested.Add(-time.Second)
		}, "The CRI status of containerd (v1.7.20) says running"},
		"a version that is not known to have the bug": {func(p *evidence.Pod, c *evidence.Container) {
			runs(p, c)
			behind(p)
			p.Node.Containerd.Version = "v2.3.5"
		}, "The CRI status of containerd (v2.3.5) says running"},
		"the shim is stopped": {func(p *evidence.Pod, _ *evidence.Container) { p.Parents[0].State = evidence.Stopped }, ""},
		"there is no shim":    {func(p *evidence.Pod, _ *evidence.Container) { p.Parents = nil }, ""},
		"it is the sandbox":   {func(_ *evidence.Pod, c *evidence.Container) { c.Kind, c.Name = evidence.Sandbox, "POD" }, "fixed in 1.7.34"},
		"it is the sandbox, and a container is stopped yet": {func(p *evidence.Pod, c *evidence.Container) {
			c.Kind, c.Name = evidence.Sandbox, "POD"
			p.Containers = append(p.Containers, evidence.Container{Name: "main", Kind: evidence.App, ID: "d", State: evidence.StateRunning})
		}, ""},
		"it is the sandbox, of which there is no task": {func(p *evidence.Pod, c *evidence.Container) {
			absent(p, c)
			c.Kind, c.Name = evidence.Sandbox, "POD"
		}, ""},
		"its processes could not be read": {func(p *evidence.Pod, _ *evidence.Container) { p.Lack(evidence.Processes, "no") }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			for _, f := range cause.Diagnose(ended(test.change)).Findings {
				if f.Cause == lost {
					got = strings.Join(append([]string{f.Message}, f.Seen...), "\n")
				}
				if sandbox := strings.HasPrefix(f.Message, "the pod's sandbox has exited"); f.Cause == lost && sandbox != (name == "it is the sandbox") {
					t.Error(f.Message)
				}
			}
			if test.want == "" && got != "" || test.want != "" && got == "" || !strings.Contains(got, test.want) {
				t.Errorf("%q does not say %q", got, test.want)
			}
			if bug := strings.Contains(test.want, "fixed in") || strings.Contains(test.want, "issue #"); strings.Contains(got, "lose the exit") != bug {
				t.Errorf("%q tells of a bug of this version: want %v", got, bug)
			}
		})
	}
}

// blockedIn is a thread of a process that a scanner of files lets wait.
func blockedIn(p *evidence.Pod, pid int, since time.Duration) evidence.Task {
	t := task(pid, 1, "containerd-shim", evidence.Uninterruptible, "openat")
	t.TID, t.Container, t.UnchangedSince = 57, "", p.Time.Add(-since)
	hangs(&t, "fanotify_handle_event", "fanotify_handle_event", "fsnotify", "do_dentry_open")
	return t
}

// What disagrees is said when no cause is known.
func TestUnknownTellsTheViews(t *testing.T) {
	p := ended(func(p *evidence.Pod, c *evidence.Container) {
		p.Time = p.Deadline.Add(2 * time.Minute)
		c.VacantSince = time.Time{}
	})
	d := cause.Diagnose(p)
	v, _ := d.Verdict()
	if v.Cause != "Unknown" || !strings.Contains(v.Message, ". Container states disagree: main (containerd's record: running, the "+
		"shim: stopped, the kernel: no process)") {
		t.Errorf("%s: %s", v.Cause, v.Message)
	}
	p.Containers[0].Runtime = "io.containerd.kata.v2"
	d = cause.Diagnose(p)
	if v, _ := d.Verdict(); strings.Contains(v.Message, "states disagree") {
		t.Errorf("a virtual machine's processes are missed: %s", v.Message)
	}
	p.Containers[0].Runtime = "io.containerd.runc.v2"
	p.Lack(evidence.Processes, "no")
	d = cause.Diagnose(p)
	if v, _ := d.Verdict(); strings.Contains(v.Message, "states disagree") {
		t.Errorf("what was not read is told: %s", v.Message)
	}
}

// orphaned is a pod whose container lives on without a shim, for 31 seconds.
func orphaned(change func(p *evidence.Pod, c *evidence.Container)) *evidence.Pod {
	return ended(func(p *evidence.Pod, c *evidence.Container) {
		first := task(100, 1, "app", evidence.Sleeping, "epoll_wait")
		first.NSpid = []int{100, 1}
		p.Tasks, p.Parents = []evidence.Task{first}, []evidence.Task{{PID: 1, TID: 1, Comm: "systemd", State: evidence.Sleeping}}
		c.VacantSince, c.Task, c.Runtime = time.Time{}, evidence.ShimTask{Absent: true}, "io.containerd.runc.v2"
		p.NoShimSince = p.Time.Add(-31 * time.Second)
		change(p, c)
	})
}

// TestShimDead checks when a container has no shim, and nobody can be about to end it.
func TestShimDead(t *testing.T) {
	for name, test := range map[string]struct {
		change func(p *evidence.Pod, c *evidence.Container)
		want   bool
	}{
		"a process lives":         {func(*evidence.Pod, *evidence.Container) {}, true},
		"for 29 seconds":          {func(p *evidence.Pod, _ *evidence.Container) { p.NoShimSince = p.Time.Add(-29 * time.Second) }, false},
		"there is a shim":         {func(p *evidence.Pod, _ *evidence.Container) { p.NoShimSince = time.Time{} }, false},
		"the node is starved":     {func(p *evidence.Pod, _ *evidence.Container) { p.Node.Pressure.StarvedUntil = p.Time }, false},
		"containerd is new":       {func(p *evidence.Pod, _ *evidence.Container) { p.Node.Containerd.ConnectedSince = p.NoShimSince }, false},
		"there is a task":         {func(_ *evidence.Pod, c *evidence.Container) { c.Task = evidence.ShimTask{Status: "running", PID: 100} }, false},
		"containerd was silent":   {func(_ *evidence.Pod, c *evidence.Container) { c.Task = evidence.ShimTask{} }, false},
		"the record is right":     {func(_ *evidence.Pod, c *evidence.Container) { c.State = evidence.StateExited }, false},
		"it is another runtime":   {func(_ *evidence.Pod, c *evidence.Container) { c.Runtime = "io.containerd.kata.v2" }, false},
		"it shares its PIDs":      {func(p *evidence.Pod, _ *evidence.Container) { p.Tasks[0].NSpid = []int{100} }, false},
		"another process's init":  {func(p *evidence.Pod, _ *evidence.Container) { p.Tasks[0].NSpid = []int{100, 7, 1} }, false},
		"pods share the node's":   {func(p *evidence.Pod, _ *evidence.Container) { p.HostPID = true }, false},
		"containers share PIDs":   {func(p *evidence.Pod, _ *evidence.Container) { p.ShareProcessNamespace = true }, false},
		"it has been killed":      {func(p *evidence.Pod, _ *evidence.Container) { p.Tasks[0].SharedPending = bitKILL }, false},
		"a zombie is left":        {func(p *evidence.Pod, _ *evidence.Container) { p.Tasks[0].State = evidence.Zombie }, false},
		"nobody could look":       {func(p *evidence.Pod, _ *evidence.Container) { p.Lack(evidence.Suspects, "no") }, false},
		"it is of the sandbox":    {func(_ *evidence.Pod, c *evidence.Container) { c.Kind = evidence.Sandbox }, false},
		"the task is of no group": {func(p *evidence.Pod, _ *evidence.Container) { p.Tasks[0].Container = "" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := cause.Diagnose(orphaned(test.change))
			v, _ := d.Verdict()
			if found := v.Cause == "ShimDead"; found != test.want {
				t.Errorf("%q: %s", v.Cause, v.Message)
			}
			if test.want && !strings.Contains(v.Message, "app (PID 100), which still runs") {
				t.Error(v.Message)
			}
		})
	}
}

// As long as containerd may be about to try again, since somebody may have held the output of what has ended,
// nothing is called stuck.
func TestUnknownWaitsForTheNextTry(t *testing.T) {
	for held, want := range map[time.Duration]string{5 * time.Minute: "", 6 * time.Minute: "ExitEventLost"} {
		d := cause.Diagnose(ended(func(p *evidence.Pod, c *evidence.Container) {
			p.Time = p.Deadline.Add(20 * time.Minute)
			p.Node.Time, p.UnchangedSince, c.VacantSince = p.Time, p.Deadline, p.Deadline
			p.Node.Containerd.ConnectedSince = p.DeletionRequested.Add(-time.Hour)
			c.Task.HeldUntil = p.Time.Add(-held)
		}))
		if v, _ := d.Verdict(); v.Cause != want {
			t.Errorf("held until %s ago: %q %s, want %q", held, v.Cause, v.Message, want)
		}
	}
}
