package fact

import (
	"slices"
	"strings"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// A FirstProcess is the process of a container that gets the stop signal, as
// far as it matters whether the signal reaches it.
type FirstProcess struct {
	Container *evidence.Container
	Leader    *evidence.Task
	Threads   []*evidence.Task // all of them, the leader too
	Children  []*evidence.Task // leaders in the same container

	pod *View
}

// FirstProcesses returns the first processes of the running containers whose turn
// to end has come. Left out are sidecars while a container of the app lives, or a
// sidecar that stands behind them in the specification, because they are stopped
// after these (terminationOrdering, pkg/kubelet/kuberuntime), and sandboxes,
// because their stop signal is not what they wait for; containers in a kernel of their
// own; and what was put into the PID
// namespace of another container to debug it, because it ends with that one. A static pod has none: the deletion of its mirror ends
// nothing.
func FirstProcesses(p *View) []FirstProcess {
	if p.Mirror {
		return nil
	}
	var out []FirstProcess
	for i := range p.Containers {
		c := &p.Containers[i]
		if c.State != evidence.StateRunning || c.Kind == evidence.Sandbox || Sandboxed(c) || c.Kind == evidence.Sidecar && waitsForTurn(p, i) {
			continue
		}
		leader := FirstLeader(p, c)
		if leader == nil || c.Kind == evidence.Ephemeral && !leader.NamespaceInit() && !p.HostPID && !p.ShareProcessNamespace {
			continue
		}
		out = append(out, Assemble(p, c, leader))
	}
	return out
}

// Sandboxed reports whether a runtime that is not runc's shim has started the
// container. What gVisor and Kata run on the node for it is no program of the container,
// and takes no stop signal for it.
func Sandboxed(c *evidence.Container) bool {
	return c.Runtime != "" && !strings.HasPrefix(c.Runtime, "io.containerd.runc.") && c.Runtime != "io.containerd.runtime.v1.linux"
}

// waitsForTurn reports whether a container lives that is stopped before the sidecar
// with that index.
func waitsForTurn(p *View, sidecar int) bool {
	for i, o := range p.Containers {
		if o.State == evidence.StateRunning && (o.Kind == evidence.App || o.Kind == evidence.Sidecar && i > sidecar) {
			return true
		}
	}
	return false
}

// FirstLeader returns the leader of a container's first process: the shim knows
// its number, else it is the init of the container's own PID namespace.
func FirstLeader(p *View, c *evidence.Container) *evidence.Task {
	var init *evidence.Task
	for i := range p.Tasks {
		t := &p.Tasks[i]
		switch {
		case t.Container != c.ID || !t.Leader():
		case t.PID == c.Task.PID:
			return t
		case t.NamespaceInit() && !Foreign(p, t):
			init = t
		}
	}
	return init
}

// Assemble returns a process with its threads and children.
func Assemble(p *View, c *evidence.Container, leader *evidence.Task) FirstProcess {
	fp := FirstProcess{Container: c, Leader: leader, pod: p}
	for i := range p.Tasks {
		t := &p.Tasks[i]
		switch {
		case t.PID == leader.PID:
			fp.Threads = append(fp.Threads, t)
		case t.Leader() && t.PPID == leader.PID && t.State != evidence.Zombie:
			fp.Children = append(fp.Children, t)
		}
	}
	return fp
}

// Settled reports whether the dispositions of a process for signals are known and
// were the same in two readings, LeastStill or more apart.
func Settled(p *View, t *evidence.Task) bool {
	since := signalsSince(t, Shell(t))
	return !since.IsZero() && p.Time.Sub(since) >= LeastStill
}

// Foreign reports whether a process, though the init of some PID namespace, is
// not the one that the runtime signals: a container in the container has an init
// of its own, whose parent is in the pod.
func Foreign(p *View, t *evidence.Task) bool {
	for i := range p.Tasks {
		if o := &p.Tasks[i]; o.Leader() && o.PID == t.PPID {
			return true
		}
	}
	return false
}

// forwarders are the small inits that pass their signals on to one child and
// end when that ends.
var forwarders = map[string]bool{"tini": true, "tini-static": true, "docker-init": true, "dumb-init": true, "catatonit": true, "podman-init": true}

// ForwardsTo returns the process that the first process hands its signals to, nil
// when it is no such init.
func (fp FirstProcess) ForwardsTo() *evidence.Task {
	if !fp.forwards() {
		return nil
	}
	// Orphans of the container become children of its init, too. The program
	// was there before them.
	var oldest *evidence.Task
	for _, c := range fp.Children {
		if ageless(c) {
			return nil
		}
		if oldest == nil || c.Probe.Start < oldest.Probe.Start {
			oldest = c
		}
	}
	return oldest
}

// ForwardsUnread reports whether the first process is such an init, and which of its children is the program is not known: when one was started
// was not read.
func (fp FirstProcess) ForwardsUnread() bool {
	return fp.forwards() && slices.ContainsFunc(fp.Children, ageless)
}

func (fp FirstProcess) forwards() bool {
	return forwarders[fp.Leader.Comm] || fp.Leader.Probe != nil && forwarders[fp.Leader.Probe.Exe]
}

func ageless(t *evidence.Task) bool { return t.Probe == nil || t.Probe.Start == 0 }

// Runs reports whether the process runs the program file of that name.
func (fp FirstProcess) Runs(exe string) bool {
	return fp.Leader.Probe != nil && fp.Leader.Probe.Exe == exe
}

// Program returns the name of what the process runs. The container's own name
// for it says most, unless the process has executed another program since.
func (fp FirstProcess) Program() string {
	name, t := fp.Container.Program, fp.Leader
	const maxComm = 15 // TASK_COMM_LEN less the NUL (include/linux/sched.h)
	if name != "" && (strings.HasPrefix(name, t.Comm) && (len(name) == len(t.Comm) || len(t.Comm) == maxComm) ||
		t.Probe != nil && t.Probe.Exe == name) {
		return name
	}
	return t.Comm
}
