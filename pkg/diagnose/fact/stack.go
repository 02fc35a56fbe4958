package fact

import (
	"slices"
	"strings"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// ZapPIDNS is the kernel function in which the init of a PID namespace waits for
// the others (kernel/pid_namespace.c).
const ZapPIDNS = "zap_pid_ns_processes"

// Through reports whether a task's kernel stack goes through one of the
// functions.
func Through(t *evidence.Task, functions ...string) bool {
	return t.Probe != nil && (slices.Contains(functions, t.Probe.Wchan) ||
		slices.ContainsFunc(t.Probe.Stack, func(fn string) bool { return slices.Contains(functions, fn) }))
}

// SleepsIn returns the kernel function that a task waits in, "" when it could
// not be read.
func SleepsIn(t *evidence.Task) string {
	if t.Probe == nil {
		return ""
	}
	if t.Probe.Wchan != "" {
		return t.Probe.Wchan
	}
	for _, fn := range t.Probe.Stack {
		if fn != "" {
			return fn
		}
	}
	return ""
}

// WaitsForRCU reports whether a task waits until all processors have gone
// through a quiescent state, as the last task of a mount namespace does at its
// end (namespace_unlock, fs/namespace.c), or one that closes an inotify
// descriptor. Where the processors are busy, or emulated, that takes seconds,
// and the kernel itself complains after 21 (Documentation/RCU/stallwarn.rst).
// Readers of SRCU may sleep: these waits can be true hangs and are told later.
func WaitsForRCU(t *evidence.Task) bool {
	return t.Probe != nil && slices.ContainsFunc(append([]string{t.Probe.Wchan}, t.Probe.Stack...), isRCUWait)
}

// waitsForProcessors reports the same without SRCU, behind which a driver or a
// device may stand.
func waitsForProcessors(probe *evidence.Probe) bool {
	return slices.ContainsFunc(append([]string{probe.Wchan}, probe.Stack...), func(fn string) bool {
		return isRCUWait(fn) && !strings.Contains(fn, "srcu")
	})
}

// isRCUWait knows the functions of kernel/rcu that wait, from Linux 5.14 to 6.18.
func isRCUWait(fn string) bool {
	switch fn {
	case "__wait_rcu_gp", "exp_funnel_lock", "rcu_sync_enter", "srcu_barrier", "cleanup_srcu_struct", "fsnotify_wait_marks_destroyed":
		return true
	}
	for _, prefix := range []string{"synchronize_rcu", "synchronize_srcu", "__synchronize_srcu", "rcu_barrier", "kvfree_rcu_barrier"} {
		if strings.HasPrefix(fn, prefix) {
			return true
		}
	}
	return false
}
