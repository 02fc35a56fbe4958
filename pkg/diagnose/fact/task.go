package fact

import (
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// AppTasks returns the pod's live tasks outside of its sandbox container: the
// sandbox lives until the containers have ended.
func AppTasks(p *View) []*evidence.Task {
	var out []*evidence.Task
	for i := range p.Tasks {
		t := &p.Tasks[i]
		if c, ok := p.Container(t.Container); ok && c.Kind == evidence.Sandbox {
			continue
		}
		if t.State == evidence.Zombie && t.Threads <= 1 || t.State == evidence.Dead {
			continue
		}
		out = append(out, t)
	}
	return out
}

// Dying reports whether the task has been killed, by whatever signal, and is
// still there. A plain SIGTERM with the default action leaves SIGKILL pending in
// each thread too; of a process killed while a thread cannot end, the leader is
// a zombie with live threads.
func Dying(t *evidence.Task) bool {
	return t.Killed() || Exits(t) || t.Leader() && t.State == evidence.Zombie && t.Threads > 1
}

// LastOf returns the last of the living descendants of a process among the tasks, as far as
// each has one child; itself when it has none, or several, of which any may be waited for.
func LastOf(tasks []evidence.Task, first *evidence.Task) *evidence.Task {
	last := first
	for range tasks {
		var only *evidence.Task
		for i := range tasks {
			switch t := &tasks[i]; {
			case t.PPID != last.PID || t.State == evidence.Zombie || !t.Leader():
			case only != nil:
				return last
			default:
				only = t
			}
		}
		if only == nil {
			return last
		}
		last = only
	}
	return last
}

// lastSeen is how long before the deadline the last reading of a container may
// be, to tell what it was at. Anywhere in the second half of a long grace period
// will do.
const lastSeen = 20 * time.Second

// ClockSkew is evidence.ClockSkew.
const ClockSkew = evidence.ClockSkew

// EndedAtDeadline reports whether the container was seen shortly before the
// deadline and has ended after it, soon enough for SIGKILL to be the reason: the
// end of a large or throttled process takes a while.
func EndedAtDeadline(p *View, c *evidence.Container) bool {
	if c.Exit == nil || c.Exit.OutOfMemory || !p.Kill.Known {
		return false
	}
	late := c.Exit.At.Sub(p.Deadline)
	return late >= -min(p.ClockDoubt(), ClockSkew) && late <= UnknownAfter && p.Deadline.Sub(p.Time) <= max(lastSeen, Grace(p)/2)
}

// Grace returns the grace period that the deletion gave the pod.
func Grace(p *View) time.Duration {
	return p.Deadline.Sub(p.DeletionRequested).Round(time.Second)
}

// killedExit is the exit code of a container that SIGKILL has ended.
const killedExit = 128 + int(evidence.SIGKILL)

// KilledAtDeadline reports whether the container was seen shortly before the
// deadline and has been ended by SIGKILL after it.
func KilledAtDeadline(p *View, c *evidence.Container) bool {
	return EndedAtDeadline(p, c) && c.Exit.Code == killedExit
}
