package fact

import (
	"slices"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// Motionless returns for how long a task must not have moved to be called stuck. A
// frozen file system needs no patience: nothing there is slow.
func Motionless(t *evidence.Task) time.Duration {
	switch {
	case t.Probe == nil:
		return SlowDevice
	case WaitsForRCU(t):
		return SlowRCU
	case FamilyOf(t) == FamilyFsFrozen:
		return LeastStill
	case FamilyOf(t) == FamilyIoUring:
		return SlowRing
	case mayWork(t):
		return SlowDisk
	}
	return MountPatience(t.Probe.Mount)
}

// sleepsUninterruptibly reports whether a task is in state D and does not move, on its
// way neither through exit nor through execve, which are causes of their own. That
// takes its probe: a task of which the probe shows no function was not asleep any
// more when it was probed.
func sleepsUninterruptibly(p *View, t *evidence.Task) bool {
	return t.State == evidence.Uninterruptible && sleepsStill(p, t)
}

// sleepsStill is that in any state.
func sleepsStill(p *View, t *evidence.Task) bool {
	return t.Probe != nil && (SleepsIn(t) != "" || len(t.Probe.Hung) > 0) && !Exits(t) && !InExec(t) && t.Unchanged(p.Time) >= Motionless(t)
}

// InExec reports whether a task is inside execve behind the point from which it
// does not return to its old program. There it holds the lock exec_update_lock
// for a while, for which the readers of some files wait (fs/proc/base.c,
// lock_trace; fs/exec.c, begin_new_exec). A task that waits in de_thread for its
// other threads is not meant: SIGKILL ends that wait.
func InExec(t *evidence.Task) bool {
	return Through(t, "begin_new_exec", "flush_old_exec", "exec_mmap") && !Through(t, "de_thread") || execHidden(t)
}

// execHidden reports whether files of a task could not be read in time that block
// their readers during execve.
func execHidden(t *evidence.Task) bool {
	return t.Probe != nil && slices.ContainsFunc(t.Probe.Hung, func(file string) bool {
		return file == "stat" || file == "wchan" || file == "stack" || file == "syscall"
	})
}

// BehindZombieLeader reports whether the task's process has lost its leader and
// lives on as other threads.
func BehindZombieLeader(p *View, t *evidence.Task) bool {
	if t.Leader() {
		return false
	}
	for i := range p.Tasks {
		if l := &p.Tasks[i]; l.Leader() && l.PID == t.PID {
			return l.State == evidence.Zombie && l.Threads > 1
		}
	}
	return false
}
