package runtime

import (
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// containers returns the pod's containers, the sandbox among them.
func containers(p *fact.View) []*evidence.Container {
	return containersThat(p, func(*evidence.Container) bool { return true })
}

// programs returns them without the sandbox, and sandboxesOf that only.
func programs(p *fact.View) []*evidence.Container {
	return containersThat(p, func(c *evidence.Container) bool { return c.Kind != evidence.Sandbox })
}

func sandboxesOf(p *fact.View) []*evidence.Container {
	return containersThat(p, func(c *evidence.Container) bool { return c.Kind == evidence.Sandbox })
}

// containersThat returns those of the pod's containers that are of some kind.
func containersThat(p *fact.View, are func(*evidence.Container) bool) (out []*evidence.Container) {
	for i := range p.Containers {
		if c := &p.Containers[i]; are(c) {
			out = append(out, c)
		}
	}
	return out
}

// The facts that several rules ask of a container.

func ofRunc(_ *fact.View, c *evidence.Container) bool { return c.Runtime == fact.RuncV2 }

func isRunning(_ *fact.View, c *evidence.Container) bool { return c.State == evidence.StateRunning }

func isAbsent(_ *fact.View, c *evidence.Container) bool { return c.Task.Absent }

func shimSaysRunning(_ *fact.View, c *evidence.Container) bool { return c.Task.Status == running }
