package fact

import "github.com/nodeagent-io/nodeagent/pkg/evidence"

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
