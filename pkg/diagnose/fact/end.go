package fact

import (
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// Missing reports whether any of the sources could not be read.
func Missing(p *evidence.Pod, sources ...evidence.Source) bool {
	for _, s := range sources {
		if _, ok := p.Missing[s]; ok {
			return true
		}
	}
	return false
}

// AppTasks are the pod's live tasks outside of its sandbox container: the
// sandbox lives until the containers have ended.
func AppTasks(p *evidence.Pod) []*evidence.Task {
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

// Dying reports whether the task has been killed, by whatever signal, and is still
// there. A plain SIGTERM with the default action leaves SIGKILL pending in each
// thread too; of a process killed while a thread cannot end, the leader is a
// zombie with live threads.
func Dying(t *evidence.Task) bool {
	return t.Killed() || t.Exiting() || t.Leader() && t.State == evidence.Zombie && t.Threads > 1
}

// lastSeen is how long before the deadline the last reading of a container may
// be, to tell what it was at. Anywhere in the second half of a long grace period
// will do.
const lastSeen = 20 * time.Second

// clockSkew is how far the node's clock, by which a container ends, may be behind
// the API server's, by which the deadline is set. Both count whole seconds.
const clockSkew = 3 * time.Second

// EndedAtDeadline reports whether the container was seen shortly before the deadline
// and has ended after it, soon enough for SIGKILL to be the reason: the end of a
// large or throttled process takes a while.
func EndedAtDeadline(p *evidence.Pod, c *evidence.Container) bool {
	if c.Exit == nil || c.Exit.OutOfMemory {
		return false
	}
	late := c.Exit.At.Sub(p.Deadline)
	return late >= -clockSkew && late <= UnknownAfter && p.Deadline.Sub(p.Time) <= max(lastSeen, Grace(p)/2)
}

// Grace is the grace period that the deletion gave the pod.
func Grace(p *evidence.Pod) time.Duration {
	return p.Deadline.Sub(p.DeletionRequested).Round(time.Second)
}
