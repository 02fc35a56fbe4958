package fact

import (
	"slices"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// RunscV1 is the runtime of gVisor: a program of the node, the sentry, is the kernel of all
// containers of a pod. Other programs of it, its gofers, open files for it.
const RunscV1 = "io.containerd.runsc.v1"

// UnderGVisor reports whether the pod's containers run under gVisor.
func UnderGVisor(p *View) bool {
	return slices.ContainsFunc(p.Containers, func(c evidence.Container) bool { return c.Runtime == RunscV1 })
}

// Sentry returns the threads of the program that is the kernel of the pod's containers, its
// first one before the others; none where that is not known.
//
// It is a child of a shim, in the pod's own control group, or in that of the sandbox where systemd
// makes the groups (setPodCgroup, pkg/shim/v1/runsc/service.go). Its number is the one that the shim
// gives. When the sentry does not run the shim does not answer as a rule; then it is the one that has
// processes of its own there, in which it has the containers' programs run: gofers have none, and
// with gVisor's platform KVM the sentry has none either.
func Sentry(p *View) []*evidence.Task {
	sandbox := slices.IndexFunc(p.Containers, func(c evidence.Container) bool {
		return c.Kind == evidence.Sandbox && c.State == evidence.StateRunning && c.Runtime == RunscV1
	})
	if sandbox < 0 {
		return nil
	}
	s := &p.Containers[sandbox]
	leader := 0
	for i := range p.Tasks {
		t := &p.Tasks[i]
		if !t.Leader() || t.Container != "" && t.Container != s.ID || !childOfShim(p, t) ||
			s.Task.PID != t.PID && (s.Task.PID != 0 || !hasChildren(p, t)) {
			continue
		}
		if leader != 0 {
			return nil // of two it is not known
		}
		leader = t.PID
	}
	var out []*evidence.Task
	for i := range p.Tasks {
		switch t := &p.Tasks[i]; {
		case leader == 0 || t.PID != leader:
		case t.Leader():
			out = slices.Insert(out, 0, t)
		default:
			out = append(out, t)
		}
	}
	return out
}

// maxStubs is how far the processes in which a sentry has programs run are below it.
const maxStubs = 4

// OfGVisor reports whether a task is one of those that gVisor has on the node for a pod: of the
// sentry, of a gofer, or of a process in which the sentry has programs run. None of them is a program
// of the pod.
//
// What it has open was opened in other mount namespaces of the pod, where the mount is found by its number.
func OfGVisor(p *View, t *evidence.Task) bool {
	if !slices.ContainsFunc(p.Containers, func(c evidence.Container) bool { return c.Kind == evidence.Sandbox && c.Runtime == RunscV1 }) {
		return false
	}
	for range maxStubs {
		if childOfShim(p, t) {
			return true
		}
		parent, inside := ByID(p, t.PPID)
		if !inside {
			return false
		}
		t = parent
	}
	return false
}

// HeldUnderGVisor reports whether a task of gVisor's does not return from the kernel, so that what
// it works for cannot end: SIGKILL to a container is delivered inside of the sentry, and the task
// itself gets none. One that is frozen does not hang (__refrigerator, kernel/freezer.c). The program waits for the host's
// system call to return, whatever signal it has (pkg/sentry/fsimpl/gofer/handle.go, writeFromBlocksAt). A wait for a FUSE
// daemon is not seen: it shows S for as long as no signal has come to the task (request_wait_answer, fs/fuse/dev.c).
// SIGKILL has had its time. One that waits for a program that scans files is not meant (FileScannerNotAnswering): no file
// system holds it.
func HeldUnderGVisor(p *View, t *evidence.Task) bool {
	return p.Kill.Done && !t.Killed() && OfGVisor(p, t) && !t.AwaitsScanner() && FrozenGroup(p, t) == nil &&
		!Through(t, "__refrigerator") && sleepsUninterruptibly(p, t)
}

func childOfShim(p *View, t *evidence.Task) bool {
	return slices.ContainsFunc(p.Parents, func(s evidence.Task) bool { return s.PID == t.PPID && s.Owner == "shim" })
}

func hasChildren(p *View, t *evidence.Task) bool {
	return slices.ContainsFunc(p.Tasks, func(o evidence.Task) bool { return o.Leader() && o.PPID == t.PID })
}
