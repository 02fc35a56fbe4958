package fact

import "github.com/nodeagent-io/nodeagent/pkg/evidence"

// FrozenGroup returns the frozen control group that a task is in, nil when it is
// in none.
func FrozenGroup(p *evidence.Pod, t *evidence.Task) *evidence.Cgroup {
	for i := range p.Cgroups {
		if c := &p.Cgroups[i]; c.Frozen && (c.Container == "" || c.Container == t.Container) {
			return c
		}
	}
	return nil
}
