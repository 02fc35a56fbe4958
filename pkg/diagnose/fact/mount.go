package fact

import (
	"strings"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// Backing returns the mount that carries the data: of an overlay its upper one.
func Backing(m *evidence.Mount) *evidence.Mount {
	if m != nil && m.Backing != nil {
		return m.Backing
	}
	return m
}

// minor returns the second part of a device number; of a FUSE mount it is the
// number of its connection (Documentation/filesystems/fuse.rst).
func minor(device string) string {
	_, m, _ := strings.Cut(device, ":")
	return m
}

// Culprit returns the mount that a task hangs on. A close, or the end of a
// process, leaves no descriptor to follow: then it is the pod's only volume of
// the kind that the kernel stack shows, or none, because a wrong name is worse.
func Culprit(p *evidence.Pod, t *evidence.Task) *evidence.Mount {
	if t.Probe == nil {
		return nil
	}
	if t.Probe.Mount != nil {
		return t.Probe.Mount
	}
	var only *evidence.Mount
	for i := range p.Mounts {
		m := &p.Mounts[i]
		if f := FamilyOfType(m.Type); f == "" || f != FamilyOf(t) {
			continue
		}
		if only != nil && only.Device != m.Device {
			return nil
		}
		only = m
	}
	return only
}
