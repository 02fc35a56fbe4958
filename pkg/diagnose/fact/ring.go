package fact

import (
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
	return OfRing(fn)
}

func OfRing(fn string) bool {
	return slices.ContainsFunc(ringFunctions, func(prefix string) bool { return strings.HasPrefix(fn, prefix) })
}

// Exits reports whether a task is known to be inside do_exit. The requests of io_uring are
// waited for before it gets the flag (do_exit, kernel/exit.c).
func Exits(t *evidence.Task) bool {
	return t.Exiting() || FamilyOf(t) == FamilyIoUring && Through(t, "do_exit")
}
