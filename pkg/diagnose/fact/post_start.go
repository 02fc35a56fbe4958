package fact

import "github.com/nodeagent-io/nodeagent/pkg/evidence"

// What PostStartHook, PostStartLeft, PostStartSleep and PostStartRequest go by, each by itself.

// ShimExecuted returns the processes that the shim has started in a container and that live, but for its first one.
func ShimExecuted(p *View, c *evidence.Container, first *evidence.Task) []*evidence.Task {
	return executed(p, c, first.PID)
}

// NothingLeftToStart reports whether all containers of the pod but this one run.
func NothingLeftToStart(p *View, c *evidence.Container) bool { return nothingLeftToStart(p, c) }

// RunsSinceKnown reports whether it is known since when the kubelet and containerd run.
func RunsSinceKnown(p *View) bool { return sinceBefore(p) }

// MayRunHook reports whether a process of a container may be a hook, because it is not known to be no child of the shim.
func MayRunHook(p *View, c *evidence.Container, first *evidence.Task) bool {
	return mayRunHook(p, c, first)
}

// Orphaned reports whether the leader of a process's group is gone.
func Orphaned(p *View, t *evidence.Task) bool { return orphaned(p, t) }

// IsShell reports whether a program of a specification is a shell, which may execute another program in its place.
func IsShell(program string) bool { return shells[program] }

// Runs reports whether a process runs the program of that name.
func Runs(t *evidence.Task, program string) bool { return runs(t, program) }
