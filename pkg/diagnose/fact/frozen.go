package fact

import (
	"strings"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// FrozenGroup returns the frozen control group that a task is in, nil when it is
// in none. A program may make groups inside its container's, and freeze them: docker
// pause in a container that runs docker, systemctl freeze in one that runs systemd. They
// hold only the tasks in them.
func FrozenGroup(p *View, t *evidence.Task) *evidence.Cgroup {
	for i := range p.Cgroups {
		c := &p.Cgroups[i]
		if c.Frozen && (c.Container == "" || c.Container == t.Container && (!Nested(p, c) || within(t.Cgroup, c.Path))) {
			return c
		}
	}
	return nil
}

// Nested reports whether a group lies inside another one of the same container.
func Nested(p *View, c *evidence.Cgroup) bool {
	for i := range p.Cgroups {
		if o := &p.Cgroups[i]; o.Container == c.Container && o.Path != c.Path && within(c.Path, o.Path) {
			return true
		}
	}
	return false
}

// within reports whether a path is that of a directory, or lies below it.
func within(path, dir string) bool {
	rest, ok := strings.CutPrefix(path, dir)
	return ok && (rest == "" || rest[0] == '/')
}
