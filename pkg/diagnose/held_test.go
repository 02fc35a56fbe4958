package diagnose_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// found returns what is said of a cause, and how sure it is; "" when it is not found.
func found(p *evidence.Pod, name string) (message, remedy string, c diagnose.Confidence) {
	d := cause.Diagnose(p)
	for _, f := range d.Findings {
		if f.Cause == name && !f.Symptom {
			return strings.Join(append([]string{f.Message}, f.Seen...), "\n"), f.Remedy, f.Confidence
		}
	}
	return "", "", ""
}

// sleeper is a process of the node.
func sleeper(pid int) evidence.Task {
	return evidence.Task{PID: pid, TID: pid, PPID: 1, Comm: "sleep", State: evidence.Sleeping, Probe: &evidence.Probe{Start: 77}}
}

// outputHeld is a pod whose container has ended and of which a process of the node has held
// the output open for 46 seconds.
func outputHeld(change func(p *evidence.Pod, c *evidence.Container, h *evidence.OutputHolder)) *evidence.Pod {
	return ended(func(p *evidence.Pod, c *evidence.Container) {
		c.Task.Drained, c.VacantSince, c.Task.HeldUntil = false, time.Time{}, p.Time
		p.OutputHolders = []evidence.OutputHolder{{Task: sleeper(4436), Since: p.Time.Add(-46 * time.Second)}}
		change(p, c, &p.OutputHolders[0])
	})
}

func TestStdioHeldOpen(t *testing.T) {
	type change = func(p *evidence.Pod, c *evidence.Container, h *evidence.OutputHolder)
	const held = " and holds its output open, so containerd waits"
	for name, test := range map[string]struct {
		change          change
		message, remedy string // parts; "" when it is not said
	}{
		"a process of the node": {func(*evidence.Pod, *evidence.Container, *evidence.OutputHolder) {},
			"container main has exited, but sleep (PID 4436) still runs outside the pod" + held, signalling("terminate", 4436, 77)},
		"two of them": {func(p *evidence.Pod, _ *evidence.Container, h *evidence.OutputHolder) {
			p.OutputHolders = append(p.OutputHolders, evidence.OutputHolder{Task: sleeper(4437), Since: h.Since})
		}, "holds its output open (and 1 more like it), so", "kill -TERM 4436"},
		"one has it for longer": {func(p *evidence.Pod, _ *evidence.Container, h *evidence.OutputHolder) {
			p.OutputHolders = append(p.OutputHolders, evidence.OutputHolder{Task: sleeper(4437), Since: h.Since.Add(-time.Second)})
		}, "sleep (PID 4437)", "kill -TERM 4437"},
		"one of another pod": {func(_ *evidence.Pod, _ *evidence.Container, h *evidence.OutputHolder) {
			h.Owner, h.OwnerName = strings.Repeat("a", 36), "x/y"
		}, "but sleep (PID 4436, of pod x/y) still runs outside the pod" + held, "kill -TERM 4436"},
		"runc, which writes to its own output": {func(p *evidence.Pod, _ *evidence.Container, h *evidence.OutputHolder) {
			h.Comm, h.PPID = "runc", p.Parents[0].PID
			p.RuntimeCommands = []evidence.RuntimeCommand{{Runtime: "runc", Command: "update", Container: "c", Tasks: []evidence.Task{h.Task}}}
		}, "", ""},
		"what runc has started, and which has a shim's pipe": {func(p *evidence.Pod, _ *evidence.Container, h *evidence.OutputHolder) {
			h.PPID = 4435
			p.RuntimeCommands = []evidence.RuntimeCommand{{Runtime: "runc", Command: "update", Container: "c", Tasks: []evidence.Task{sleeper(4435), h.Task}}}
		}, "", ""},
		"what was started with the container, in the place of runc": {func(p *evidence.Pod, _ *evidence.Container, h *evidence.OutputHolder) {
			h.PPID = p.Parents[0].PID
			p.RuntimeCommands = []evidence.RuntimeCommand{{Left: true, Tasks: []evidence.Task{h.Task}}}
		}, "sleep (PID 4436)", "kill -TERM 4436"},
		"a child of the shim, of which is not known what it is": {func(p *evidence.Pod, _ *evidence.Container, h *evidence.OutputHolder) {
			h.PPID = p.Parents[0].PID
			p.Lack(evidence.RuntimeCommands, "no")
		}, "", ""},
		"one of the pod, in no container": {func(p *evidence.Pod, _ *evidence.Container, h *evidence.OutputHolder) { h.Owner = p.UID },
			"but sleep (PID 4436) still runs in the pod's cgroups" + held, "kill -TERM 4436"},
		"the kubelet": {func(_ *evidence.Pod, _ *evidence.Container, h *evidence.OutputHolder) {
			h.Comm, h.Owner = "kubelet", "kubelet"
		},
			"kubelet (PID 4436)", "Do not end "},
		"the node's first process": {func(_ *evidence.Pod, _ *evidence.Container, h *evidence.OutputHolder) { h.PID, h.TID = 1, 1 }, "sleep (PID 1)", "Do not end "},
		"one that has been killed": {func(_ *evidence.Pod, _ *evidence.Container, h *evidence.OutputHolder) { h.Pending = bitKILL },
			"sleep (PID 4436)", "sleep (PID 4436) has not finished exiting"},
		"two containers have ended": {func(p *evidence.Pod, c *evidence.Container, _ *evidence.OutputHolder) {
			other := *c
			other.Name, other.ID = "other", "d"
			p.Containers = append(p.Containers, other)
		}, "a container of the pod has exited", "kill -TERM"},
		"the deadline is not over": {func(p *evidence.Pod, _ *evidence.Container, _ *evidence.OutputHolder) {
			p.Deadline = p.Time.Add(time.Second)
		}, "", ""},
		"for 44 seconds": {func(p *evidence.Pod, _ *evidence.Container, h *evidence.OutputHolder) {
			h.Since = p.Time.Add(-44 * time.Second)
		}, "", ""},
		"one reading":             {func(_ *evidence.Pod, _ *evidence.Container, h *evidence.OutputHolder) { h.Since = time.Time{} }, "", ""},
		"nobody: the log's disk":  {func(p *evidence.Pod, _ *evidence.Container, _ *evidence.OutputHolder) { p.OutputHolders = nil }, "", ""},
		"the output is closed":    {func(_ *evidence.Pod, c *evidence.Container, _ *evidence.OutputHolder) { c.Task.Drained = true }, "", ""},
		"the container lives":     {func(_ *evidence.Pod, c *evidence.Container, _ *evidence.OutputHolder) { c.Task.Status = "running" }, "", ""},
		"its first process lives": {func(_ *evidence.Pod, c *evidence.Container, _ *evidence.OutputHolder) { c.Task.PIDGone = false }, "", ""},
		"the record has its end":  {func(_ *evidence.Pod, c *evidence.Container, _ *evidence.OutputHolder) { c.State = evidence.StateExited }, "", ""},
		"a virtual machine": {func(_ *evidence.Pod, c *evidence.Container, _ *evidence.OutputHolder) {
			c.Runtime = "io.containerd.kata.v2"
		}, "", ""},
		"gVisor": {func(_ *evidence.Pod, c *evidence.Container, _ *evidence.OutputHolder) {
			c.Runtime = "io.containerd.runsc.v1"
		}, "", ""},
		"the sandbox":      {func(_ *evidence.Pod, c *evidence.Container, _ *evidence.OutputHolder) { c.Kind = evidence.Sandbox }, "", ""},
		"there is no shim": {func(p *evidence.Pod, _ *evidence.Container, _ *evidence.OutputHolder) { p.Parents = nil }, "", ""},
		"there are two shims": {func(p *evidence.Pod, _ *evidence.Container, _ *evidence.OutputHolder) {
			p.Parents = append(p.Parents, p.Parents[0])
		}, "", ""},
		"its files were not read": {func(p *evidence.Pod, _ *evidence.Container, _ *evidence.OutputHolder) {
			p.Lack(evidence.Suspects, "no")
		}, "", ""},
		"processes were not read": {func(p *evidence.Pod, _ *evidence.Container, _ *evidence.OutputHolder) {
			p.Lack(evidence.Processes, "no")
		}, "", ""},
		"containerd did not answer": {func(p *evidence.Pod, _ *evidence.Container, _ *evidence.OutputHolder) {
			p.Lack(evidence.Containers, "no")
		}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := outputHeld(test.change)
			message, remedy, _ := found(p, "StdioHeldOpen")
			if test.message == "" && message != "" || !strings.Contains(message, test.message) || !strings.Contains(remedy, test.remedy) {
				t.Errorf("%q, and %q", message, remedy)
			}
			if strings.Contains(test.remedy, "Do not end") && strings.Contains(remedy, "kill -") {
				t.Errorf("ends what the node needs: %s", remedy)
			}
		})
	}
}

// A leftover of a container with shared PIDs is told as that, once.
func TestLeftoverHoldsOutput(t *testing.T) {
	p := outputHeld(func(p *evidence.Pod, _ *evidence.Container, h *evidence.OutputHolder) {
		p.HostPID = true
		left := h.Task
		left.SignalsSince = h.Since
		p.Leftovers = []evidence.Task{left}
	})
	if m, _, _ := found(p, "HostPIDLeftover"); m == "" {
		t.Error("no leftover")
	}
	if m, _, _ := found(p, "StdioHeldOpen"); m != "" {
		t.Error(m)
	}
}

// A runtime that takes its time, as one that kills what shares PIDs, is nothing that the pod has
// left behind: the pipe of the shim that it writes to is its own.
func TestCommandIsNoLeftover(t *testing.T) {
	for name, change := range map[string]func(p *evidence.Pod, left *evidence.Task){
		"a command": func(p *evidence.Pod, left *evidence.Task) {
			p.RuntimeCommands = []evidence.RuntimeCommand{{Runtime: "runc", Command: "kill", Container: "c", Tasks: []evidence.Task{*left}}}
		},
		"it is not known what the shim's children are": func(p *evidence.Pod, _ *evidence.Task) { p.Lack(evidence.RuntimeCommands, "no") },
	} {
		t.Run(name, func(t *testing.T) {
			p := outputHeld(func(p *evidence.Pod, _ *evidence.Container, h *evidence.OutputHolder) {
				p.HostPID, p.OutputHolders = true, nil
				left := h.Task
				left.Comm, left.PPID, left.SignalsSince = "runc", p.Parents[0].PID, h.Since
				p.Leftovers = []evidence.Task{left}
				change(p, &p.Leftovers[0])
			})
			if m, _, _ := found(p, "HostPIDLeftover"); m != "" {
				t.Error(m)
			}
		})
	}
}

// rootfsUsed is a pod whose container has ended and been deleted by runc, and of which a
// process of the node has used the root file system for 31 seconds.
func rootfsUsed(change func(p *evidence.Pod, c *evidence.Container, h *evidence.Holder)) *evidence.Pod {
	return ended(func(p *evidence.Pod, c *evidence.Container) {
		p.Cgroups = nil
		c.Rootfs = &evidence.Mount{ID: 500, Type: "overlay", Point: "/run/containerd/io.containerd.runtime.v2.task/k8s.io/c/rootfs"}
		p.Holders = []evidence.Holder{{Task: sleeper(4436), MountID: 500, Via: "its working directory", Since: p.Time.Add(-31 * time.Second)}}
		change(p, c, &p.Holders[0])
	})
}

func TestRootfsUnmountBusy(t *testing.T) {
	type change = func(p *evidence.Pod, c *evidence.Container, h *evidence.Holder)
	for name, test := range map[string]struct {
		change          change
		message, remedy string // parts; "" when it is not said
	}{
		"a shell of the node": {func(*evidence.Pod, *evidence.Container, *evidence.Holder) {},
			"container main has exited, but its root file system is busy (EBUSY): sleep (PID 4436) uses it (its working directory)", "kill -TERM 4436"},
		"two of them": {func(p *evidence.Pod, _ *evidence.Container, h *evidence.Holder) { p.Holders = append(p.Holders, *h) }, "(and 1 more like it)", "kill -TERM"},
		"containerd": {func(_ *evidence.Pod, _ *evidence.Container, h *evidence.Holder) {
			h.Comm, h.Owner = "containerd", "containerd"
		},
			"containerd (PID 4436)", "Do not end "},
		"systemd manages groups": {func(p *evidence.Pod, _ *evidence.Container, _ *evidence.Holder) {
			p.Cgroups = []evidence.Cgroup{{Path: "/kubepods.slice/kubepods-podu.slice", Version: 2}}
		}, "EBUSY", "kill -TERM"},
		"of the sandbox": {func(_ *evidence.Pod, c *evidence.Container, _ *evidence.Holder) {
			c.Kind, c.Name = evidence.Sandbox, "POD"
		},
			"the pod's sandbox has exited, but its root file system is busy (EBUSY): sleep (PID 4436) uses it", "kill -TERM 4436"},
		"of the sandbox, and a container is stopped yet": {func(p *evidence.Pod, c *evidence.Container, _ *evidence.Holder) {
			c.Kind, c.Name = evidence.Sandbox, "POD"
			p.Containers = append(p.Containers, evidence.Container{Name: "main", Kind: evidence.App, ID: "d", State: evidence.StateRunning})
		}, "", ""},
		"one that was started long after the end": {func(p *evidence.Pod, c *evidence.Container, h *evidence.Holder) {
			c.VacantSince, h.Probe = p.Time.Add(-80*time.Second), &evidence.Probe{Start: 77, Started: p.Time.Add(-45 * time.Second)}
		}, "", ""},
		"one that was started before the end": {func(p *evidence.Pod, c *evidence.Container, h *evidence.Holder) {
			c.VacantSince, h.Probe = p.Time.Add(-80*time.Second), &evidence.Probe{Start: 77, Started: p.Time.Add(-90 * time.Second)}
		}, "sleep (PID 4436)", "kill -TERM 4436"},
		"one that walks through it": {func(p *evidence.Pod, _ *evidence.Container, h *evidence.Holder) {
			h.Since = p.Time.Add(-29 * time.Second)
		}, "", ""},
		"one reading":             {func(_ *evidence.Pod, _ *evidence.Container, h *evidence.Holder) { h.Since = time.Time{} }, "", ""},
		"another mount":           {func(_ *evidence.Pod, _ *evidence.Container, h *evidence.Holder) { h.MountID = 501 }, "", ""},
		"it is unmounted":         {func(_ *evidence.Pod, c *evidence.Container, _ *evidence.Holder) { c.Rootfs = nil }, "", ""},
		"nobody uses it":          {func(p *evidence.Pod, _ *evidence.Container, _ *evidence.Holder) { p.Holders = nil }, "", ""},
		"runc has not deleted it": {func(p *evidence.Pod, _ *evidence.Container, _ *evidence.Holder) { p.Cgroups = groupLeft(p) }, "", ""},
		"containerd was restarted": {func(_ *evidence.Pod, c *evidence.Container, _ *evidence.Holder) { c.State = evidence.StateUnknown },
			"sleep (PID 4436)", "kill -TERM 4436"},
		"its output is open":          {func(_ *evidence.Pod, c *evidence.Container, _ *evidence.Holder) { c.Task.Drained = false }, "", ""},
		"the shim says that it runs":  {func(_ *evidence.Pod, c *evidence.Container, _ *evidence.Holder) { c.Task.Status = "running" }, "", ""},
		"the shim does not answer":    {func(_ *evidence.Pod, c *evidence.Container, _ *evidence.Holder) { c.Task.Status = "" }, "", ""},
		"its first process lives":     {func(_ *evidence.Pod, c *evidence.Container, _ *evidence.Holder) { c.Task.PIDGone = false }, "", ""},
		"the record has its end":      {func(_ *evidence.Pod, c *evidence.Container, _ *evidence.Holder) { c.State = evidence.StateExited }, "", ""},
		"a virtual machine":           {func(_ *evidence.Pod, c *evidence.Container, _ *evidence.Holder) { c.Runtime = "io.containerd.kata.v2" }, "", ""},
		"the deadline is not over":    {func(p *evidence.Pod, _ *evidence.Container, _ *evidence.Holder) { p.Deadline = p.Time.Add(time.Second) }, "", ""},
		"there is no shim":            {func(p *evidence.Pod, _ *evidence.Container, _ *evidence.Holder) { p.Parents = nil }, "", ""},
		"the mounts were not read":    {func(p *evidence.Pod, _ *evidence.Container, _ *evidence.Holder) { p.Lack(evidence.Mounts, "no") }, "", ""},
		"its groups were not read":    {func(p *evidence.Pod, _ *evidence.Container, _ *evidence.Holder) { p.Lack(evidence.Cgroups, "no") }, "", ""},
		"processes were not read":     {func(p *evidence.Pod, _ *evidence.Container, _ *evidence.Holder) { p.Lack(evidence.Processes, "no") }, "", ""},
		"its holders were not looked": {func(p *evidence.Pod, _ *evidence.Container, _ *evidence.Holder) { p.Lack(evidence.Holders, "no") }, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			message, remedy, c := found(rootfsUsed(test.change), "RootfsUnmountBusy")
			if test.message == "" && message != "" || !strings.Contains(message, test.message) || !strings.Contains(remedy, test.remedy) {
				t.Errorf("%q, and %q", message, remedy)
			}
			if message != "" && (c == diagnose.Inferred) != (name == "systemd manages groups") {
				t.Errorf("it is %s", c)
			}
			if strings.Contains(test.remedy, "Do not end") && strings.Contains(remedy, "kill -") {
				t.Errorf("ends what the node needs: %s", remedy)
			}
		})
	}
}

// groupLeft are the pod's groups with the container's among them.
func groupLeft(p *evidence.Pod) []evidence.Cgroup {
	return []evidence.Cgroup{{Path: "/kubepods/podu/c", Version: 2, Container: p.Containers[0].ID}}
}

// executing is a pod with shared PIDs of which a process that was executed in the container
// has outlived it for 31 seconds.
func executing(change func(p *evidence.Pod, c *evidence.Container, x *evidence.ShimChild)) *evidence.Pod {
	return ended(func(p *evidence.Pod, c *evidence.Container) {
		p.HostPID = true
		c.Task.Status, c.Task.Executed = "running", true
		x := sleeper(4436)
		x.PPID, x.Cgroup, x.SignalsSince = 50, "/../../system.slice/run-1.scope", p.Time.Add(-31*time.Second)
		x.Probe.Group = x.PID
		p.Leftovers = []evidence.Task{x} // it has the output of its own, by a pipe of the shim
		p.ShimChildren = []evidence.ShimChild{{Task: x, Output: true, Since: x.SignalsSince}}
		change(p, c, &p.ShimChildren[0])
	})
}

func TestExecHoldsInitExit(t *testing.T) {
	for name, test := range map[string]struct {
		change func(p *evidence.Pod, c *evidence.Container, x *evidence.ShimChild)
		want   string // a part of the message; "" when it is not said
	}{
		"of a container with shared PIDs": {func(*evidence.Pod, *evidence.Container, *evidence.ShimChild) {},
			"container main has exited, but sleep (PID 4436), from an exec in it (perhaps kubectl exec), still runs outside the pod\n"},
		"containers share their PIDs": {func(p *evidence.Pod, _ *evidence.Container, _ *evidence.ShimChild) {
			p.HostPID, p.ShareProcessNamespace = false, true
		}, "sleep"},
		"two of them": {func(p *evidence.Pod, _ *evidence.Container, x *evidence.ShimChild) {
			other := *x
			other.PID, other.Probe = 4437, &evidence.Probe{Group: 4437}
			p.ShimChildren = append(p.ShimChildren, other)
		}, ", from an exec in it (perhaps kubectl exec), still runs outside the pod (and 1 more like it)\n"},
		"PIDs of its own": {func(p *evidence.Pod, _ *evidence.Container, _ *evidence.ShimChild) { p.HostPID = false }, ""},
		"for 29 seconds": {func(p *evidence.Pod, _ *evidence.Container, x *evidence.ShimChild) {
			x.Since = p.Time.Add(-29 * time.Second)
		}, ""},
		"one reading": {func(_ *evidence.Pod, _ *evidence.Container, x *evidence.ShimChild) { x.Since = time.Time{} }, ""},
		"the node is starved": {func(p *evidence.Pod, _ *evidence.Container, _ *evidence.ShimChild) {
			p.Node.Pressure.StarvedUntil = p.Time
		}, ""},
		"containerd is new": {func(p *evidence.Pod, _ *evidence.Container, x *evidence.ShimChild) {
			p.Node.Containerd.ConnectedSince = x.Since
		}, ""},
		"runc has not returned": {func(p *evidence.Pod, _ *evidence.Container, x *evidence.ShimChild) {
			p.ShimChildren = append(p.ShimChildren, evidence.ShimChild{Task: sleeper(4440), Since: x.Since})
		}, ""},
		"an orphan":                     {func(_ *evidence.Pod, _ *evidence.Container, x *evidence.ShimChild) { x.Probe.Group = 4000 }, ""},
		"it was not probed":             {func(_ *evidence.Pod, _ *evidence.Container, x *evidence.ShimChild) { x.Probe = nil }, ""},
		"the shim says that it stopped": {func(_ *evidence.Pod, c *evidence.Container, _ *evidence.ShimChild) { c.Task.Status = "stopped" }, ""},
		"the first process lives":       {func(_ *evidence.Pod, c *evidence.Container, _ *evidence.ShimChild) { c.Task.PIDGone = false }, ""},
		"nothing was executed":          {func(_ *evidence.Pod, c *evidence.Container, _ *evidence.ShimChild) { c.Task.Executed = false }, ""},
		"its group has tasks":           {func(p *evidence.Pod, _ *evidence.Container, _ *evidence.ShimChild) { p.Cgroups[0].Populated = true }, ""},
		"the shim is stopped": {func(p *evidence.Pod, _ *evidence.Container, _ *evidence.ShimChild) {
			p.Parents[0].State = evidence.Stopped
		}, ""},
		"a virtual machine": {func(_ *evidence.Pod, c *evidence.Container, _ *evidence.ShimChild) {
			c.Runtime = "io.containerd.kata.v2"
		}, ""},
		"another shim": {func(_ *evidence.Pod, _ *evidence.Container, x *evidence.ShimChild) {
			x.Comm, x.Owner = "containerd-shim", "shim"
		}, ""},
		"the deadline is not over": {func(p *evidence.Pod, _ *evidence.Container, _ *evidence.ShimChild) {
			p.Deadline = p.Time.Add(time.Second)
		}, ""},
		"its files were not read": {func(p *evidence.Pod, _ *evidence.Container, _ *evidence.ShimChild) { p.Lack(evidence.Suspects, "no") }, ""},
		"two containers": {func(p *evidence.Pod, c *evidence.Container, _ *evidence.ShimChild) {
			other := *c
			other.Name, other.ID = "other", "d"
			p.Containers = append(p.Containers, other)
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := executing(test.change)
			message, _, c := found(p, "ExecHoldsInitExit")
			if test.want == "" && message != "" || !strings.Contains(message, test.want) || message != "" && c != diagnose.Inferred {
				t.Errorf("%q (%s)", message, c)
			}
			if test.want != "" && !strings.Contains(message, "sleep (PID 4436) is a child of the shim in cgroup system.slice/run-1.scope") {
				t.Errorf("does not say where it is: %q", message)
			}
			if p.Containers[0].Task.Executed && p.Containers[0].Task.Status == "running" && p.Containers[0].Task.PIDGone {
				if m, _, _ := found(p, "HostPIDLeftover"); m != "" {
					t.Errorf("the executed process's own output is told as the container's: %s", m)
				}
				if m, _, _ := found(p, "ExitEventLost"); m != "" {
					t.Errorf("the shim may wait: %s", m)
				}
			}
		})
	}
}
