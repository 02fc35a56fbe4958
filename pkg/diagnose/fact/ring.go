package fact

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// ringFunctions are how functions of io_uring begin in which a task can wait
// (io_uring/io_uring.c, io-wq.c, tctx.c, cancel.c, sqpoll.c, poll.c).
var ringFunctions = []string{
	"io_uring_", "__io_uring_", "__do_sys_io_uring_", "__x64_sys_io_uring_", "__arm64_sys_io_uring_",
	"io_wq_", "io_worker_exit", "io_ring_", "io_sq_thread", "io_sqd_", "io_cqring_", "__io_cqring_", "io_submit_sqes",
	"io_poll_task_func", "io_req_task_", "io_handle_tw_list", "tctx_task_work",
}

// waitsForRing reports whether a task waits for io_uring itself and not for what a request
// does, by the innermost function: for a ring's lock (uring_lock), or for the end of requests
// and of their workers (io_uring_cancel_generic, io_wq_put_and_exit). The functions that lock
// and wait are in neither wchan nor stack.
func waitsForRing(p *evidence.Probe) bool {
	fn := p.Wchan
	if fn == "" && len(p.Stack) > 0 {
		fn = p.Stack[0]
	}
	return ofRing(fn)
}

func ofRing(fn string) bool {
	return slices.ContainsFunc(ringFunctions, func(prefix string) bool { return strings.HasPrefix(fn, prefix) })
}

// requestFunctions are how those of them begin that wait for the end of requests
// (io_uring_cancel_generic, io_uring/io_uring.c; its names and callers since Linux 5.5).
var requestFunctions = []string{
	"io_uring_cancel_", "__io_uring_cancel", "io_uring_task_cancel", "__io_uring_task_cancel", "io_uring_files_cancel", "__io_uring_files_cancel",
}

// RingAtFault reports whether a task that waits for io_uring, and for no other thread, waits
// for a lock or for workers, which only io_uring itself can leave behind. Requests are another
// matter: direct I/O is under way without any thread, and a disk, a server or a FUSE daemon can
// hold it up, and the thread that polls waits for them with a lock that others want, of other
// processes too. So are the workers of a kernel that has them as threads of its own.
func RingAtFault(p *View, t *evidence.Task) bool {
	var major, minor int
	if n, _ := fmt.Sscanf(p.Node.Kernel, "%d.%d", &major, &minor); n < 2 || major < 5 || major == 5 && minor < 12 {
		return false
	}
	return FamilyOf(t) == FamilyIoUring && !slices.ContainsFunc(p.Tasks, func(o evidence.Task) bool {
		return slices.ContainsFunc(requestFunctions, func(prefix string) bool { return strings.HasPrefix(SleepsIn(&o), prefix) })
	})
}

// AwaitsThread reports whether a task that waits for io_uring may wait for another thread,
// which lives and of which it is not known that it hangs in io_uring too: one of its process,
// as the workers of a process are (create_io_thread, kernel/fork.c), or one of another process
// that is at work in io_uring, because the two can share a ring and its lock; not one of another
// pod, to which a ring would have to be handed over a socket. That thread has
// the reason, whether it works, hangs or cannot be read, or is not seen at all. One of its
// process that sleeps and does not exit is well: it waits for results. Of processes outside of
// the pod only those in state D are seen. Where not all threads were looked at, another process of the pod may be at work there.
func AwaitsThread(p *View, t *evidence.Task) bool {
	if FamilyOf(t) != FamilyIoUring {
		return false
	}
	if Missing(p, evidence.Suspects) {
		return true
	}
	seen := 0
	for i := range p.Tasks {
		if p.Tasks[i].PID == t.PID {
			seen++
		}
	}
	awaited := func(o evidence.Task) bool {
		return o.TID != t.TID && o.State != evidence.Zombie && o.State != evidence.Dead &&
			(o.PID == t.PID || o.Probe != nil && slices.ContainsFunc(o.Probe.Stack, ofRing)) &&
			(FamilyOf(&o) != FamilyIoUring || o.PID == t.PID && o.State == evidence.Sleeping && !Exits(&o) || o.Unchanged(p.Time) < Motionless(&o))
	}
	return seen < t.Threads || slices.ContainsFunc(p.Tasks, awaited) || slices.ContainsFunc(p.Node.Blocked, func(o evidence.Task) bool {
		return o.PID != t.PID && (!o.InPod() || o.Owner == p.RuntimeUID) && FamilyOf(&o) != FamilyIoUring && awaited(o)
	})
}

// Exits reports whether a task is known to be inside do_exit. The requests of io_uring are
// waited for before it gets the flag (do_exit, kernel/exit.c).
func Exits(t *evidence.Task) bool {
	return t.Exiting() || FamilyOf(t) == FamilyIoUring && Through(t, "do_exit")
}
