package kernel

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// ringAtFault reports whether a task that waits for io_uring, and for no other thread, waits for a lock or for workers. Only io_uring itself can
// leave these behind.
//
// A wait for requests is another matter. Direct I/O is in flight without any thread, and a disk, a server or a FUSE daemon can hold it up. The
// polling thread waits for requests with a lock that others want, also of other processes. Workers are another matter too on a kernel that
// has them as threads of its own.
func ringAtFault(p *fact.View, t *evidence.Task) bool {
	var major, minor int
	if n, _ := fmt.Sscanf(p.Node.Kernel, "%d.%d", &major, &minor); n < 2 || major < 5 || major == 5 && minor < 12 {
		return false
	}
	return fact.FamilyOf(t) == fact.FamilyIoUring && !slices.ContainsFunc(p.Tasks, func(o evidence.Task) bool {
		return slices.ContainsFunc(requestFunctions, func(prefix string) bool { return strings.HasPrefix(fact.SleepsIn(&o), prefix) })
	})
}

// requestFunctions are the prefixes of the functions that wait for the end of requests (io_uring_cancel_generic, io_uring/io_uring.c; its names
// and callers since Linux 5.5).
var requestFunctions = []string{
	"io_uring_cancel_", "__io_uring_cancel", "io_uring_task_cancel", "__io_uring_task_cancel", "io_uring_files_cancel", "__io_uring_files_cancel",
}

// awaitsThread reports whether a task that waits for io_uring may wait for another thread, which lives and is not known to hang in io_uring too:
//   - one of its own process, as the workers of a process are (create_io_thread, kernel/fork.c);
//   - one of another process that is at work in io_uring, because the two can share a ring and its lock. A thread of another pod does not count: a
//     ring would have to be handed to it over a socket.
//
// The reason is with that thread, whether it works, hangs, cannot be read, or is not seen at all. A thread of its own process that sleeps and does
// not exit is fine: it waits for results. Of processes outside the pod only those in state D are seen. Where not all threads were read, another
// process of the pod may be at work there.
func awaitsThread(p *fact.View, t *evidence.Task) bool {
	if fact.FamilyOf(t) != fact.FamilyIoUring {
		return false
	}
	if fact.Missing(p, evidence.Suspects) {
		return true
	}
	seen := 0
	for i := range p.Tasks {
		if p.Tasks[i].PID == t.PID {
			seen++
		}
	}
	awaited := func(o evidence.Task) bool { return mayBeAwaited(p, t, &o) }
	return seen < t.Threads || slices.ContainsFunc(p.Tasks, awaited) || slices.ContainsFunc(p.Node.Blocked, func(o evidence.Task) bool {
		return o.PID != t.PID && (!o.InPod() || o.Owner == p.RuntimeUID) && fact.FamilyOf(&o) != fact.FamilyIoUring && awaited(o)
	})
}

// mayBeAwaited reports whether a thread lives that one in io_uring may wait for, and is not known to hang there too.
func mayBeAwaited(p *fact.View, t, o *evidence.Task) bool {
	own := o.PID == t.PID
	if o.TID == t.TID || o.State == evidence.Zombie || o.State == evidence.Dead || !own && (o.Probe == nil || !slices.ContainsFunc(o.Probe.Stack, fact.OfRing)) {
		return false
	}
	return fact.FamilyOf(o) != fact.FamilyIoUring || own && o.State == evidence.Sleeping && !fact.Exits(o) || o.Unchanged(p.Time) < fact.Motionless(o)
}
