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

// commanded is a pod whose containers have ended and whose shim has waited for so long for
// runc to kill the sandbox; runc waits for its child.
func commanded(ago time.Duration, change func(p *evidence.Pod, c *evidence.RuntimeCommand)) *evidence.Pod {
	return tornDown("", func(p *evidence.Pod) {
		p.KillFailures = nil
		p.Time = p.Deadline.Add(10 * time.Minute)
		for i := range p.Containers {
			p.Containers[i].Runtime = "io.containerd.runc.v2"
		}
		p.Containers[1].State = evidence.StateRunning
		p.Parents = []evidence.Task{{PID: 50, TID: 50, Comm: "containerd-shim", State: evidence.Sleeping, Owner: "shim"}}
		runc, child := task(200, 50, "runc", evidence.Sleeping, "wait4"), task(201, 200, "sleep", evidence.Sleeping, "clock_nanosleep")
		for _, t := range []*evidence.Task{&runc, &child} {
			t.Container, t.Owner, t.UnchangedSince = "", "shim", p.Time.Add(-ago)
			t.Probe.Started = p.Time.Add(-ago)
		}
		child.Probe.Wchan = "hrtimer_nanosleep"
		p.RuntimeCommands = []evidence.RuntimeCommand{{
			Runtime: "runc", Command: "kill", Container: sandboxID, Since: p.Time.Add(-min(ago, 15*time.Second)), Tasks: []evidence.Task{runc, child},
		}}
		change(p, &p.RuntimeCommands[0])
	})
}

func TestRuntimeCommandHanging(t *testing.T) {
	type change = func(p *evidence.Pod, c *evidence.RuntimeCommand)
	nothing := func(*evidence.Pod, *evidence.RuntimeCommand) {}
	starved := func(p *evidence.Pod, _ *evidence.RuntimeCommand) { p.Node.Pressure.StarvedUntil = p.Time }
	both := func(all ...change) change {
		return func(p *evidence.Pod, c *evidence.RuntimeCommand) {
			for _, do := range all {
				do(p, c)
			}
		}
	}
	// gaveUpWith has the kubelet give up 35 seconds ago, with an answer of containerd.
	gaveUpWith := func(answer string) change {
		return func(p *evidence.Pod, _ *evidence.RuntimeCommand) {
			f := kubeletSays(p, answer)
			f.First, f.Last = f.First.Add(-30*time.Second), f.Last.Add(-30*time.Second)
			p.KillFailures = []evidence.KillFailure{f}
		}
	}
	const late = "context deadline exceeded"
	gaveUp := gaveUpWith("rpc error: code = DeadlineExceeded desc = " + late)
	moves := func(p *evidence.Pod, c *evidence.RuntimeCommand) {
		c.Tasks[1].UnchangedSince = p.Time.Add(-time.Second)
	}
	// afterAnother has nodeagent have seen another command last so long ago, which hung.
	afterAnother := func(ago time.Duration, command, container string) change {
		return func(p *evidence.Pod, c *evidence.RuntimeCommand) {
			last := *c
			last.Command, last.Container, last.Tasks = command, container, slices.Clone(c.Tasks)
			for i := range last.Tasks {
				last.Tasks[i].PID, last.Tasks[i].TID, last.Tasks[i].UnchangedSince = 100+i, 100+i, p.Time.Add(-ago-2*time.Minute)
				last.Tasks[i].Probe = &evidence.Probe{Started: last.Tasks[i].UnchangedSince}
			}
			last.Tasks[1].PPID = 100
			p.Kills = []evidence.Interrupted{{Last: last, Seen: p.Time.Add(-ago), Until: p.Time.Add(-ago), Tries: 1}}
		}
	}
	// inContainer has the command be about the container, which runs.
	inContainer := func(command string) change {
		return func(p *evidence.Pod, c *evidence.RuntimeCommand) {
			c.Container, c.Command = "c", command
			p.Containers[0].State, p.Containers[0].Task = evidence.StateRunning, evidence.ShimTask{PID: 100}
			p.Tasks = []evidence.Task{task(100, 50, "app", evidence.Sleeping, "epoll_wait")}
		}
	}
	// beforeStart has the command be about the container, of which nothing runs yet, or runc init.
	beforeStart := func(command string) change {
		return func(p *evidence.Pod, c *evidence.RuntimeCommand) {
			c.Container, c.Command = "c", command
			p.Containers[0].State, p.Containers[0].Waiting, p.Tasks = evidence.StateCreated, true, nil
			if command == "start" {
				p.Tasks = []evidence.Task{task(100, 50, "runc:[2:INIT]", evidence.Sleeping, "openat")}
			}
		}
	}
	createsSandbox := func(p *evidence.Pod, c *evidence.RuntimeCommand) {
		c.Command, p.Phase, p.Tasks = "create", "Pending", nil
		p.Containers[0] = evidence.Container{Name: "main", Kind: evidence.App, Waiting: true}
		p.Containers[1].State, p.Containers[1].Task = evidence.StateCreated, evidence.ShimTask{Absent: true}
	}
	vacant := func(p *evidence.Pod, _ *evidence.RuntimeCommand) { p.Tasks = nil }
	left := func(p *evidence.Pod, c *evidence.RuntimeCommand) {
		*c = evidence.RuntimeCommand{Left: true, Since: c.Since, Tasks: c.Tasks[1:]}
		c.Tasks[0].PPID = 50
		p.Containers[1].Task = evidence.ShimTask{Asked: p.Time, UnansweredSince: p.Time.Add(-30 * time.Second), Attempts: 2}
	}
	for name, test := range map[string]struct {
		ago    time.Duration
		change change
		want   string // "" when it is not told
	}{
		"runc kill": {61 * time.Second, nothing, "the shim waits for runc kill (PID 200, since " +
			"03:09:29 UTC, for the pod's sandbox)"},
		"its child":                   {61 * time.Second, nothing, "Its child sleep (PID 201) sleeps in clock_nanosleep (hrtimer_nanosleep)$"},
		"for less than a minute":      {59 * time.Second, nothing, ""},
		"for a minute, and moves":     {61 * time.Second, moves, "runc kill (PID 200, "},
		"on a starved node":           {99 * time.Second, starved, ""},
		"longer, on a starved node":   {101 * time.Second, starved, "runc kill (PID 200, "},
		"slow, on a starved node":     {290 * time.Second, both(starved, moves), ""},
		"for long, on a starved node": {301 * time.Second, both(starved, moves), "runc kill (PID 200, "},
		"runs, on a starved node": {290 * time.Second, both(starved, func(_ *evidence.Pod,
			c *evidence.RuntimeCommand) {
			c.Tasks[1].State = evidence.Runnable
		}), ""},
		"slow disk, on a starved node": {290 * time.Second, both(starved, func(_ *evidence.Pod,
			c *evidence.RuntimeCommand) {
			c.Tasks[1].State = evidence.Uninterruptible
		}), ""},
		"after the kubelet gave up":                        {12 * time.Second, gaveUp, "runc kill (PID 200, "},
		"after the kubelet gave up, on a starved node":     {12 * time.Second, both(starved, gaveUp), "runc kill (PID 200, "},
		"after the kubelet gave up, and moves":             {20 * time.Second, both(gaveUp, moves), ""},
		"after the kubelet gave up, only just started":     {9 * time.Second, gaveUp, ""},
		"after the kubelet gave up on killing the sandbox": {12 * time.Second, gaveUpWith(`rpc error: code = Unknown desc = failed to stop sandbox \"` + sandboxID + `\": ` + late), "runc kill (PID 200, "},
		"after the kubelet gave up on a container":         {20 * time.Second, gaveUpWith(`rpc error: code = Unknown desc = failed to stop container \"c\": ` + late), ""},
		"after the kubelet gave up on the network": {20 * time.Second, both(gaveUpWith(`rpc error: code = Unknown desc = failed to destroy network for sandbox \"`+sandboxID+`\": `+late),
			func(p *evidence.Pod, _ *evidence.RuntimeCommand) { p.Containers[1].State = evidence.StateExited }), ""},
		"after another one that hung":                    {12 * time.Second, afterAnother(13*time.Second, "kill", sandboxID), "runc kill (PID 200, "},
		"after another one that hung, on a starved node": {12 * time.Second, both(starved, afterAnother(13*time.Second, "kill", sandboxID)), "runc kill (PID 200, "},
		"after another one that hung, only just started": {9 * time.Second, afterAnother(13*time.Second, "kill", sandboxID), ""},
		"after another one that hung, and moves":         {20 * time.Second, both(afterAnother(30*time.Second, "kill", sandboxID), moves), ""},
		"after another one that moved": {20 * time.Second, both(afterAnother(30*time.Second, "kill", sandboxID), func(p *evidence.Pod, _ *evidence.RuntimeCommand) {
			p.Kills[0].Last.Tasks[1].UnchangedSince = p.Kills[0].Seen.Add(-time.Second)
		}), ""},
		"long after another one that hung":         {20 * time.Second, afterAnother(10*time.Minute, "kill", sandboxID), ""},
		"after one that hung at another container": {20 * time.Second, afterAnother(30*time.Second, "kill", "c"), ""},
		"beside one that hung":                     {40 * time.Second, afterAnother(30*time.Second, "kill", sandboxID), ""},
		"under way when the kubelet gave up":       {36 * time.Second, gaveUp, ""},
		"after the kubelet gave up, and a thread runs": {20 * time.Second, both(gaveUp, func(_ *evidence.Pod, c *evidence.RuntimeCommand) {
			thread := c.Tasks[1]
			thread.TID, thread.State = 203, evidence.Runnable
			c.Tasks = append(c.Tasks, thread)
		}), ""},
		"pressure is not known":         {99 * time.Second, func(p *evidence.Pod, _ *evidence.RuntimeCommand) { p.Node.Pressure = nil }, ""},
		"about to execute something":    {61 * time.Second, func(p *evidence.Pod, c *evidence.RuntimeCommand) { c.Since = p.Time.Add(-time.Second) }, ""},
		"when it was started is hidden": {time.Hour, func(_ *evidence.Pod, c *evidence.RuntimeCommand) { c.Tasks[0].Probe.Started = time.Time{} }, ""},
		"nobody has waited for it yet":  {time.Hour, func(_ *evidence.Pod, c *evidence.RuntimeCommand) { c.Tasks[0].State = evidence.Zombie }, ""},
		"of another runtime":            {time.Hour, func(p *evidence.Pod, _ *evidence.RuntimeCommand) { p.Containers[1].Runtime = "io.containerd.kata.v2" }, ""},
		"about no container of the pod": {time.Hour, func(_ *evidence.Pod, c *evidence.RuntimeCommand) { c.Container = "other" }, ""},
		"a program without a known name": {time.Hour, func(_ *evidence.Pod, c *evidence.RuntimeCommand) { c.Runtime, c.Tasks[0].Comm = "", "my runtime" },
			`"my runtime" kill (PID 200, `},
		"two children, of which any may be waited for": {time.Hour, func(_ *evidence.Pod, c *evidence.RuntimeCommand) {
			c.Tasks = append(c.Tasks, task(202, 200, "logger", evidence.Sleeping, "read"))
		}, "It sleeps in wait4"},
		"a thread that hangs in the kernel": {time.Hour, func(_ *evidence.Pod, c *evidence.RuntimeCommand) {
			thread := c.Tasks[1]
			thread.PID, thread.TID, thread.State, thread.Probe = 200, 203, evidence.Uninterruptible, &evidence.Probe{Syscall: "openat", Wchan: "cgroup_lock"}
			c.Tasks = append(c.Tasks[:1], thread)
		}, "Thread 203 (sleep) is in D state in cgroup_lock"},

		"kills a container that lives": {61 * time.Second, inContainer("kill"), "the shim waits for runc kill (PID 200, since " +
			"03:09:29 UTC, for container main)"},
		"deletes a container": {61 * time.Second, both(inContainer("delete"), vacant), "the shim waits for runc delete " +
			"(PID 200, since 03:09:29 UTC, for container main)"},
		"has deleted a container": {61 * time.Second, both(inContainer("delete"), vacant, func(p *evidence.Pod,
			_ *evidence.RuntimeCommand) {
			p.Containers[0].State = evidence.StateExited
		}), ""},
		"a probe, in a container that is well": {time.Hour, inContainer("exec"), ""},
		"a probe, and the container has ended": {61 * time.Second, both(inContainer("exec"), vacant), "the shim waits for runc exec (PID " +
			"200, since 03:09:29 UTC, for container main)"},
		"writes down all memory": {time.Hour, inContainer("checkpoint"), ""},
		"lists processes":        {time.Hour, inContainer("ps"), ""},
		"a probe that hangs with a kill": {61 * time.Second, both(inContainer("exec"), vacant, func(p *evidence.Pod, c *evidence.RuntimeCommand) {
			kill := *c
			kill.Command = "kill"
			p.RuntimeCommands = append(p.RuntimeCommands, kill)
		}), "the shim waits for runc kill (PID 200, since 03:09:29 UTC, for container main)"},
		"others could not be read": {61 * time.Second, func(p *evidence.Pod, _ *evidence.RuntimeCommand) { p.Lack(evidence.RuntimeCommands, "denied") }, "runc kill"},
		"inside the grace period": {61 * time.Second, func(p *evidence.Pod, _ *evidence.RuntimeCommand) { p.Deadline = p.Time.Add(time.Minute) },
			"runc kill (PID 200, "},
		"kills a container, inside the grace period": {61 * time.Second, both(inContainer("kill"), func(p *evidence.Pod,
			_ *evidence.RuntimeCommand) {
			p.Deadline = p.Time.Add(time.Minute)
		}),
			". SIGTERM may not have arrived\n"},
		"kills a container with a preStop hook, inside the grace period": {61 * time.Second, both(inContainer("kill"), func(p *evidence.Pod,
			_ *evidence.RuntimeCommand) {
			p.Deadline, p.Containers[0].PreStop = p.Time.Add(time.Minute), true
		}), ". SIGTERM may not have arrived"},
		"kills a container that has ended by itself, inside the grace " +
			"period": {61 * time.Second, both(inContainer("kill"), vacant, func(p *evidence.Pod, _ *evidence.RuntimeCommand) { p.Deadline = p.Time.Add(time.Minute) }),
			"Its child sleep (PID 201) sleeps in clock_nanosleep (hrtimer_nanosleep)$"},
		"executes a preStop hook": {time.Hour, both(inContainer("exec"), func(p *evidence.Pod, _ *evidence.RuntimeCommand) {
			p.Deadline, p.Containers[0].PreStop = p.Time.Add(time.Minute), true
		}), ""},
		"as soon as it is deleted": {61 * time.Second, func(p *evidence.Pod, _ *evidence.RuntimeCommand) {
			p.Deadline, p.DeletionRequested = p.Time.Add(time.Minute), p.Time.Add(-4*time.Second)
		}, ""},

		"creates a container": {61 * time.Second, beforeStart("create"),
			"the shim waits for runc create (PID 200, since 03:09:29 UTC, for container main)"},
		"the kubelet waits for that": {61 * time.Second, beforeStart("create"),
			"the kubelet waits for runtimeRequestTimeout (2 minutes by default)"},
		"creates it for less than a minute":      {59 * time.Second, beforeStart("create"), ""},
		"creates it on a starved node":           {99 * time.Second, both(starved, beforeStart("create")), ""},
		"creates it for long, on a starved node": {101 * time.Second, both(starved, beforeStart("create")), "runc create (PID 200, "},
		"creates it slowly, on a starved node":   {110 * time.Second, both(starved, beforeStart("create"), moves), ""},
		"starts a container":                     {61 * time.Second, beforeStart("start"), "runc start (PID 200, since 03:09:29 UTC, for container main)"},
		"creates a container that was given up": {61 * time.Second, both(beforeStart("create"), func(p *evidence.Pod,
			_ *evidence.RuntimeCommand) {
			p.Containers[0].State = evidence.StateExited
		}), ""},
		"starts one of which the state is unknown": {61 * time.Second, both(beforeStart("start"), func(p *evidence.Pod,
			_ *evidence.RuntimeCommand) {
			p.Containers[0].State = evidence.StateUnknown
		}), "runc start (PID 200, since 03:09:29 UTC, for container main)"},

		"creates the sandbox": {61 * time.Second, createsSandbox, "the shim waits for runc create (PID 200, since 03:09:29 UTC, for the pod's sandbox)"},
		"the kubelet waits for that twice as long": {61 * time.Second, createsSandbox,
			"the kubelet waits for twice runtimeRequestTimeout (2 minutes by default)"},

		"a process is left behind": {61 * time.Second, left, "the pod's shim is blocked: sleep (PID 201), left by a runtime command at " +
			"03:09:29 UTC, holds that command's output open"},
		"left behind only just now": {61 * time.Second, both(left, func(p *evidence.Pod, c *evidence.RuntimeCommand) { c.Since = p.Time.Add(-9 * time.Second) }), ""},
		"started with the container, and writes to its output": {61 * time.Second, both(left, func(p *evidence.Pod, c *evidence.RuntimeCommand) {
			c.Tasks[0].Probe.Started = p.DeletionRequested.Add(-time.Hour)
		}), ""},
		"left behind, and the shim answers": {61 * time.Second, both(left, func(p *evidence.Pod,
			_ *evidence.RuntimeCommand) {
			p.Containers[1].Task = evidence.ShimTask{}
		}), ""},
		"left behind, and the shim is stopped": {61 * time.Second, both(left, func(p *evidence.Pod,
			_ *evidence.RuntimeCommand) {
			p.Parents[0].State = evidence.Stopped
		}), ""},
		"left behind for less than that": {59 * time.Second, left, ""},
		"left behind, beside a hung delete": {61 * time.Second, both(func(p *evidence.Pod,
			c *evidence.RuntimeCommand) {
			p.RuntimeCommands = append(p.RuntimeCommands, *c)
		}, left), "runc kill"},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			for _, f := range cause.Diagnose(commanded(test.ago, test.change)).Findings {
				if f.Cause == "RuntimeCommandHanging" && got == "" {
					got = strings.Join(append([]string{f.Message}, f.Seen...), "\n")
				}
			}
			want, whole := strings.CutSuffix(test.want, "$") // the end of the words
			if (got == "") != (want == "") || !strings.Contains(got, want) || whole && !strings.HasSuffix(got, want) {
				t.Errorf("found %q, want %q", got, test.want)
			}
		})
	}
}

// The kubelet does not wait for what is done to a container that is not started but to start it.
func TestRuntimeCommandThatStartsNothing(t *testing.T) {
	for _, command := range []string{"kill", "delete", "update"} {
		for _, sandbox := range []bool{false, true} {
			d := cause.Diagnose(commanded(61*time.Second, func(p *evidence.Pod, c *evidence.RuntimeCommand) {
				c.Command, p.Tasks = command, nil
				p.Containers[0].State, p.Containers[0].Waiting = evidence.StateCreated, true
				if sandbox {
					p.Containers[0].ID, p.Containers[0].State = "", ""
					p.Containers[1].State = evidence.StateCreated
				} else {
					c.Container = "c"
				}
			}))
			if v, _ := d.Verdict(); v.Cause != "RuntimeCommandHanging" || strings.Contains(said(&v), "kubelet "+
				"waits") || strings.Contains(v.Remedy, "The kubelet then handles the deletion") {
				t.Errorf("%s, of the sandbox %v: %s: %s; %s", command, sandbox, v.Cause, v.Message, v.Remedy)
			}
		}
	}
}

// What ends a command that creates a container does not have the kubelet try again: the pod is to
// be deleted.
func TestRuntimeCommandBeforeTheStart(t *testing.T) {
	for state, want := range map[evidence.ContainerState]string{
		evidence.StateCreated: "The kubelet then handles the deletion.",
		evidence.StateUnknown: "The stop of the pod then continues.",
	} {
		d := cause.Diagnose(commanded(61*time.Second, func(p *evidence.Pod, c *evidence.RuntimeCommand) {
			c.Container, c.Command = "c", "start"
			p.Containers[0].State, p.Tasks = state, nil
		}))
		if v, _ := d.Verdict(); v.Cause != "RuntimeCommandHanging" || !strings.Contains(v.Remedy, want) || strings.Contains(said(&v),
			"kubelet waits") != (state == evidence.StateCreated) {
			t.Errorf("%s: %s: %s; %s", state, v.Cause, v.Message, v.Remedy)
		}
	}
}

// When the start of a container was given up and that of the next one has begun, the verdict about
// the first one is not refuted before the second one has had its time.
func TestRuntimeCommandOfTheNextContainer(t *testing.T) {
	failed := evidence.Container{Name: "other", Kind: evidence.App, ID: "o", State: evidence.StateExited, Waiting: true, Runtime: "io.containerd.runc.v2"}
	for name, test := range map[string]struct {
		change func(p *evidence.Pod)
		want   bool
	}{
		"the first one was given up":     {func(*evidence.Pod) {}, true},
		"there is no other":              {func(p *evidence.Pod) { p.Containers = p.Containers[:2] }, false},
		"the first one has run":          {func(p *evidence.Pod) { p.Containers[2].Exit = new(evidence.Exit) }, false},
		"the first one runs":             {func(p *evidence.Pod) { p.Containers[2].State = evidence.StateRunning }, false},
		"the next one is not begun with": {func(p *evidence.Pod) { p.RuntimeCommands = nil }, false},
		"the next one has started":       {func(p *evidence.Pod) { p.Containers[0].State = evidence.StateRunning }, false},
		"the first one ran before, and the kubelet has written that it failed": {func(p *evidence.Pod) { p.Containers[2].BackedOff = true }, false},
		"since when the next one is begun with is not known":                   {func(p *evidence.Pod) { p.RuntimeCommands[0].Tasks[0].Probe.Started = time.Time{} }, true},
		"of the next one's command nothing is known":                           {func(p *evidence.Pod) { p.RuntimeCommands[0].Tasks[0].Probe = nil }, true},
		"the next one's command has no process":                                {func(p *evidence.Pod) { p.RuntimeCommands[0].Tasks = nil }, false},
	} {
		p := commanded(5*time.Second, func(p *evidence.Pod, c *evidence.RuntimeCommand) {
			c.Container, c.Command = "c", "create"
			p.Containers[0].State, p.Containers[0].Waiting, p.Tasks = evidence.StateCreated, true, nil
			p.Containers = append(p.Containers, failed)
		})
		test.change(p)
		if message, _, _ := found(p, "RuntimeCommandHanging"); message != "" {
			t.Errorf("%s: found %s", name, message)
		}
		d := cause.Diagnose(p)
		if d.NotLookedFor("RuntimeCommandHanging") != test.want {
			t.Errorf("%s: left open is %v", name, !test.want)
		}
		// Nor is it ruled out for Unknown.
		if v, ok := d.Verdict(); ok && v.Cause == diagnose.Unrecognised.Cause && slices.Contains(v.Objects.RuledOut, "runtime") == test.want {
			t.Errorf("%s: %s", name, v.Message)
		} else if test.want && !ok {
			t.Errorf("%s: no verdict", name)
		}
	}
}

// rootfsBusy is a container that runc has deleted, and of which a process of the node has used the
// root file system for a minute.
func rootfsBusy(p *evidence.Pod, _ *evidence.Interrupted) {
	c := &p.Containers[0]
	c.Task.Drained, c.Rootfs = true, &evidence.Mount{ID: 500, Type: "overlay", Point: "/run/containerd/io.containerd.runtime.v2.task/k8s.io/c/rootfs"}
	p.Holders = []evidence.Holder{{Task: sleeper(4436), MountID: 500, Via: "its working directory", Since: p.Time.Add(-time.Minute)}}
}

// TestUnfinishedDelete checks when a container is not deleted because the runtime does not return,
// and is not only slow.
func TestUnfinishedDelete(t *testing.T) {
	type change = func(p *evidence.Pod, d *evidence.Interrupted)
	for name, test := range map[string]struct {
		change change
		want   string // "" when it is not told
	}{
		"two tries": {func(*evidence.Pod, *evidence.Interrupted) {},
			"the shim cannot delete container main: runc delete does not return, so containerd kills it each time after 10s. runc last waited for sleep\n" +
				"At least two attempts of runc delete did not finish\nThe child sleep of runc was last seen in clock_nanosleep (hrtimer_nanosleep)"},
		"without a child": {func(_ *evidence.Pod, d *evidence.Interrupted) { d.Last.Tasks = d.Last.Tasks[:1] }, "runc was last seen in wait4"},
		"of the sandbox": {func(p *evidence.Pod, d *evidence.Interrupted) {
			d.Last.Container = sandboxID
			p.Containers[0].State = evidence.StateExited
		}, "the shim cannot delete the pod's sandbox: runc delete does not return, so containerd kills it"},
		"one of them runs now": {func(p *evidence.Pod, d *evidence.Interrupted) {
			p.RuntimeCommands = []evidence.RuntimeCommand{d.Last}
		}, "runc delete does not return, so containerd kills it"},
		"one try":                      {func(_ *evidence.Pod, d *evidence.Interrupted) { d.Tries = 1 }, ""},
		"two tries, on a starved node": {func(p *evidence.Pod, _ *evidence.Interrupted) { p.Node.Pressure.StarvedUntil = p.Time }, ""},
		"two tries, and no pressure":   {func(p *evidence.Pod, _ *evidence.Interrupted) { p.Node.Pressure = nil }, ""},
		"three tries on a starved node": {func(p *evidence.Pod, d *evidence.Interrupted) { d.Tries, p.Node.Pressure.StarvedUntil = 3, p.Time },
			"runc delete does not return, so containerd kills it"},
		"it moves": {func(_ *evidence.Pod, d *evidence.Interrupted) {
			d.Last.Tasks[1].UnchangedSince = d.Seen.Add(-2 * time.Second)
		}, ""},
		"it has got through, and the root file system is busy": {rootfsBusy, ""},
		"it has not got through, and the root file system is busy": {func(p *evidence.Pod, d *evidence.Interrupted) {
			rootfsBusy(p, d)
			p.Cgroups = []evidence.Cgroup{{Path: "/kubepods/podu/c", Container: "c"}}
		}, "runc delete does not return, so containerd kills it"},
		"its group was systemd's, and the root file system is busy": {func(p *evidence.Pod, d *evidence.Interrupted) {
			rootfsBusy(p, d)
			p.Cgroups = []evidence.Cgroup{{Path: "/kubepods.slice/kubepods-podu.slice", Version: 2}}
		}, "runc delete does not return, so containerd kills it"},
		"groups were not read, and the root file system is busy": {func(p *evidence.Pod, d *evidence.Interrupted) {
			rootfsBusy(p, d)
			p.Lack(evidence.Cgroups, "no")
		}, "runc delete does not return, so containerd kills it"},
		"it runs":                    {func(_ *evidence.Pod, d *evidence.Interrupted) { d.Last.Tasks[1].State = evidence.Runnable }, ""},
		"long ago":                   {func(p *evidence.Pod, d *evidence.Interrupted) { d.Seen = p.Time.Add(-6 * time.Minute) }, ""},
		"it is deleted":              {func(p *evidence.Pod, _ *evidence.Interrupted) { p.Containers[0].State = evidence.StateExited }, ""},
		"of another runtime":         {func(p *evidence.Pod, _ *evidence.Interrupted) { p.Containers[0].Runtime = "io.containerd.kata.v2" }, ""},
		"of no container of the pod": {func(_ *evidence.Pod, d *evidence.Interrupted) { d.Last.Container = "other" }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := commanded(9*time.Second, func(p *evidence.Pod, c *evidence.RuntimeCommand) {
				p.Containers[0].State, p.Containers[0].Task = evidence.StateRunning, evidence.ShimTask{Status: "stopped", PID: 100, PIDGone: true}
				c.Container, c.Command = "c", "delete"
				p.Deletes = []evidence.Interrupted{{Last: *c, Seen: p.Time, Tries: 2}}
				p.RuntimeCommands = nil
				test.change(p, &p.Deletes[0])
			})
			message, _, c := found(p, "RuntimeCommandHanging")
			if (message == "") != (test.want == "") || !strings.Contains(message, test.want) || message != "" && c != "Inferred" {
				t.Errorf("found %q (%s), want %q", message, c, test.want)
			}
		})
	}
}

// While containerd tries again to have a container deleted, a pod is not called stuck without
// a cause: on a starved node only the third try tells.
func TestUnknownWaitsForTheNextDelete(t *testing.T) {
	for past, want := range map[time.Duration]bool{3 * time.Minute: false, 6 * time.Minute: true} {
		p := commanded(past, func(p *evidence.Pod, c *evidence.RuntimeCommand) {
			p.Containers[0].State, p.Containers[0].Task = evidence.StateRunning, evidence.ShimTask{Status: "stopped", PID: 100, PIDGone: true}
			c.Container, c.Command = "c", "delete"
			p.Time, p.UnchangedSince = p.Deadline.Add(past), p.Deadline
			p.Deletes = []evidence.Interrupted{{Last: *c, Seen: p.Time, Tries: 1}}
			p.RuntimeCommands = nil
		})
		if message, _, _ := found(p, "Unknown"); (message != "") != want {
			t.Errorf("%s past the deadline: %q", past, message)
		}
	}
}

// What could not be read is not taken for absent.
func TestUnreadCommands(t *testing.T) {
	d := cause.Diagnose(commanded(time.Hour, func(p *evidence.Pod, _ *evidence.RuntimeCommand) {
		p.RuntimeCommands = nil
		p.Lack(evidence.RuntimeCommands, "more than 32")
	}))
	if !d.NotLookedFor("RuntimeCommandHanging") {
		t.Error("commands that were not read are taken for none")
	}
}

// A shim that waits for runc has nothing to answer meanwhile.
func TestRuntimeCommandExplainsTheSilence(t *testing.T) {
	d := cause.Diagnose(commanded(10*time.Minute, func(p *evidence.Pod, _ *evidence.RuntimeCommand) {
		p.Containers[1].Task = evidence.ShimTask{Asked: p.Time, UnansweredSince: p.Time.Add(-5 * time.Minute), Attempts: 4}
	}))
	v, _ := d.Verdict()
	if v.Cause != "RuntimeCommandHanging" || len(d.Findings) != 2 || !d.Findings[1].Symptom {
		t.Errorf("%s, %+v", v.Cause, d.Findings)
	}
}

// A shim that waited for runc when it was asked is not said to hang, also when runc has been ended since, and begun again.
func TestShimWaitsForCommands(t *testing.T) {
	for name, tc := range map[string]struct {
		age       time.Duration // of the command that is at work, 0 for none
		seen      time.Duration // how long ago the one before was
		excused   int
		want      string
		undecided bool
	}{
		"the first one":                      {50 * time.Second, 0, 4, "Unknown", false},
		"between two":                        {0, 30 * time.Second, 4, "Unknown", true},
		"the second one has begun":           {5 * time.Second, 20 * time.Second, 4, "Unknown", true},
		"the second one hangs, too":          {12 * time.Second, 25 * time.Second, 4, "RuntimeCommandHanging", true},
		"no other one comes":                 {0, 46 * time.Second, 4, "Unknown", false},
		"asked twice when none was there":    {0, 10 * time.Minute, 2, "Unknown", false},
		"asked again when none was there":    {0, 10 * time.Minute, 1, "ShimHung", false},
		"asked when none was there, always":  {0, 0, 0, "ShimHung", false},
		"asked when none was there, and one": {5 * time.Second, 0, 0, "ShimHung", false},
	} {
		d := cause.Diagnose(commanded(tc.age, func(p *evidence.Pod, c *evidence.RuntimeCommand) {
			p.UnchangedSince = p.Deadline
			p.Containers[1].Task = evidence.ShimTask{Asked: p.Time, UnansweredSince: p.Deadline, Attempts: 4, ExcusedAttempts: tc.excused}
			if tc.excused > 0 {
				p.Containers[1].Task.ExcusedAt = p.Time.Add(-time.Minute)
			}
			if tc.seen > 0 {
				last := *c
				last.Tasks = slices.Clone(c.Tasks)
				for i := range last.Tasks {
					last.Tasks[i].UnchangedSince = p.Time.Add(-tc.seen - time.Minute)
					last.Tasks[i].Probe = &evidence.Probe{Started: last.Tasks[i].UnchangedSince}
				}
				p.Kills = []evidence.Interrupted{{Last: last, Seen: p.Time.Add(-tc.seen), Until: p.Time.Add(-tc.seen), Tries: 1}}
			}
			if tc.age == 0 {
				p.RuntimeCommands = nil
			}
		}))
		if v, _ := d.Verdict(); v.Cause != tc.want || d.NotLookedFor("RuntimeCommandHanging") != tc.undecided || tc.want != "ShimHung" &&
			!d.NotLookedFor("ShimHung") {
			t.Errorf("%s: %s, want %s; left open: %v, want %v; %s", name, v.Cause, tc.want, d.NotLookedFor("RuntimeCommandHanging"), tc.undecided, v.Message)
		}
	}
}

// unsignalled is a pod whose container runc fails to signal.
func unsignalled(change func(p *evidence.Pod, first *evidence.Task)) *evidence.Pod {
	return stopping(func(p *evidence.Pod, first *evidence.Task) {
		p.Time = p.Deadline.Add(40 * time.Second)
		first.Caught = bitTERM
		p.Containers[0].Runtime = "io.containerd.runc.v2"
		p.Containers = append(p.Containers, evidence.Container{Name: "POD", Kind: evidence.Sandbox, ID: sandboxID, State: evidence.StateRunning,
			Runtime: "io.containerd.runc.v2"})
		p.Node.Pressure = &evidence.Pressure{}
		p.KillFailures = []evidence.KillFailure{kubeletSays(p, unsignalledAnswer)}
		change(p, first)
	})
}

const unsignalledAnswer = `rpc error: code = Unknown desc = failed to stop container \"c\": failed to kill container \"c\": ` +
	`unknown error after kill: runc did not terminate successfully: exit status 1: unable to signal init: permission denied`

func TestRuntimeCommandFailing(t *testing.T) {
	type change = func(p *evidence.Pod, first *evidence.Task)
	says := func(old, text string) change {
		return func(p *evidence.Pod, _ *evidence.Task) {
			p.KillFailures[0].Text = strings.ReplaceAll(p.KillFailures[0].Text, old, text)
		}
	}
	told := func(change func(p *evidence.Pod, f *evidence.KillFailure)) change {
		return func(p *evidence.Pod, _ *evidence.Task) { change(p, &p.KillFailures[0]) }
	}
	for name, test := range map[string]struct {
		change change
		want   bool
	}{
		"it fails": {func(*evidence.Pod, *evidence.Task) {}, true},
		"once":     {told(func(_ *evidence.Pod, f *evidence.KillFailure) { f.Count = 1 }), false},
		"once, and something else before": {func(p *evidence.Pod, _ *evidence.Task) {
			p.KillFailures[0].Count, p.KillFailures[0].First = 1, p.KillFailures[0].Last
			other := kubeletSays(p, `rpc error: code = Unknown desc = failed to stop container \"c\": context deadline exceeded`)
			other.Last = other.First
			p.KillFailures = append(p.KillFailures, other)
		}, false},
		"once each, of two containers": {func(p *evidence.Pod, _ *evidence.Task) {
			p.Containers = append(p.Containers, evidence.Container{Name: "other", Kind: evidence.App, ID: "d", State: evidence.StateRunning})
			p.KillFailures[0].Count, p.KillFailures[0].First = 1, p.KillFailures[0].Last
			other := kubeletSays(p, strings.ReplaceAll(unsignalledAnswer, `\"c\"`, `\"d\"`))
			other.Count, other.Last = 1, other.First
			p.KillFailures = append(p.KillFailures, other)
		}, true},
		"twice, in other words": {func(p *evidence.Pod, _ *evidence.Task) {
			p.KillFailures[0].Count, p.KillFailures[0].First = 1, p.KillFailures[0].Last
			other := kubeletSays(p, strings.ReplaceAll(unsignalledAnswer, "permission denied", "too many open files"))
			other.Count, other.Last = 1, other.First
			p.KillFailures = append(p.KillFailures, other)
		}, true},
		"something else failed since": {func(p *evidence.Pod, _ *evidence.Task) {
			p.KillFailures = append([]evidence.KillFailure{kubeletSays(p, `rpc error: code = Unknown desc = failed to stop container \"c\": no such file`)}, p.KillFailures...)
		}, false},
		"before the deletion": {told(func(p *evidence.Pod, f *evidence.KillFailure) {
			f.First, f.Last = p.DeletionRequested.Add(-time.Minute), p.DeletionRequested.Add(10*time.Second)
		}), false},
		"before the deletion, and since": {told(func(p *evidence.Pod, f *evidence.KillFailure) { f.First = p.DeletionRequested.Add(-time.Minute) }), true},
		"about another container":        {says(`container \"c\"`, `container \"d\"`), false},
		"another container of the pod":   {says(`container \"c\"`, `container \"`+sandboxID+`\"`), false},
		"of another pod":                 {says(`for "u"`, `for "v"`), false},
		"no answer":                      {says("exit status 1", "context deadline exceeded"), false},
		"it was killed with its request": {says("exit status 1", "signal: killed"), false},
		"something else failed":          {says("unknown error after kill: ", ""), false},
		"long ago": {told(func(p *evidence.Pod, f *evidence.KillFailure) {
			f.First, f.Last = p.DeletionRequested, p.Time.Add(-76*time.Second)
			p.Time = p.Time.Add(10 * time.Second)
		}), false},
		"as long ago as the next try takes": {told(func(p *evidence.Pod, f *evidence.KillFailure) {
			f.First, f.Last = p.DeletionRequested, p.Deadline
			p.Time = p.Deadline.Add(74 * time.Second)
		}), true},
		"long ago, for the kubelet has told it often": {told(func(p *evidence.Pod, f *evidence.KillFailure) {
			f.Count, f.First = 30, p.DeletionRequested
			p.Time = p.Time.Add(4 * time.Minute)
		}), true},
		"by a kubelet that is gone": {func(p *evidence.Pod, _ *evidence.Task) {
			p.Node.Kubelet.AbsentSince, p.Node.Kubelet.LastSeen = p.Time, p.DeletionRequested
		}, false},
		"SIGKILL has come":               {func(_ *evidence.Pod, first *evidence.Task) { first.SharedPending = bitKILL }, false},
		"it has ended":                   {func(_ *evidence.Pod, first *evidence.Task) { first.State = evidence.Zombie }, false},
		"the record says that it exited": {func(p *evidence.Pod, _ *evidence.Task) { p.Containers[0].State = evidence.StateExited }, false},
		"the shim says that it stopped":  {func(p *evidence.Pod, _ *evidence.Task) { p.Containers[0].Task.Status = "stopped" }, false},
		"the shim was not asked":         {func(p *evidence.Pod, _ *evidence.Task) { p.Lack(evidence.Shims, "no answer") }, false},
		"another process has its number": {func(_ *evidence.Pod, first *evidence.Task) { first.Container = "d" }, false},
		"of another runtime":             {func(p *evidence.Pod, _ *evidence.Task) { p.Containers[0].Runtime = "io.containerd.kata.v2" }, false},
		"Events could not be listed":     {func(p *evidence.Pod, _ *evidence.Task) { p.Lack(evidence.Events, "forbidden") }, false},
	} {
		t.Run(name, func(t *testing.T) {
			message := ""
			for _, f := range cause.Diagnose(unsignalled(test.change)).Findings {
				if f.Cause == "RuntimeCommandFailing" {
					message = f.Message
				}
			}
			if (message != "") != test.want || test.want && !strings.Contains(message,
				`container main still runs: the runtime fails to signal it each time: "runc did not terminate successfully: exit status 1: unable to signal init: permission denied"`) {
				t.Errorf("found %q", message)
			}
		})
	}
}
