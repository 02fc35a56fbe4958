package fact

import "github.com/nodeagent-io/nodeagent/pkg/evidence"

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
