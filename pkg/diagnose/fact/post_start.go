package fact

import "github.com/nodeagent-io/nodeagent/pkg/evidence"

// What the facts about postStart hooks share with PreStopHook.

// ShimExecuted returns the processes that the shim has started in a container and that live, but for its first one.
func ShimExecuted(p *View, c *evidence.Container, first *evidence.Task) []*evidence.Task {
	return executed(p, c, first.PID)
}

// Runs reports whether a process runs the program of that name.
func Runs(t *evidence.Task, program string) bool { return runs(t, program) }
