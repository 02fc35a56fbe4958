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
