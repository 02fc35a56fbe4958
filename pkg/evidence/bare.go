package evidence

import (
	"slices"
	"time"
)

// Seen is what readings of a pod have found of it on its node, this one or one before
// it. Where something of the pod was found once it can be told to be gone; where
// nothing ever was, it may be kept in another place.
type Seen struct {
	// Group reports whether a control group of the pod was found, and Directory
	// whether the kubelet's directory of the pod was.
	Group     bool `json:"group,omitempty"`
	Directory bool `json:"directory,omitempty"`
	// Runtimes are containerd's runtimes of its containers and of its sandbox, sorted.
	Runtimes []string `json:"runtimes,omitempty"`
}

// maxRuntimes bounds Seen.Runtimes: a pod has one.
const maxRuntimes = 4

// since adds what the reading p shows to what was seen before.
func (s *Seen) since(e *Seen, p *Pod) {
	s.Group = s.Group || e.Group || len(p.Cgroups) > 0 || p.Before != nil && len(p.Before.Tasks) > 0
	s.Directory = s.Directory || e.Directory
	all := slices.Concat(s.Runtimes, e.Runtimes)
	for i := range p.Containers {
		if r := p.Containers[i].Runtime; r != "" {
			all = append(all, r)
		}
	}
	slices.Sort(all)
	all = slices.Compact(all)
	s.Runtimes = all[:min(len(all), maxRuntimes)]
}

// bare reports whether this reading could read all sources and shows nothing of the
// pod on its node.
func (p *Pod) bare() bool {
	if len(p.Missing) > 0 || !p.ContainersEnded() || p.Overdue() <= 0 || p.TasksRead.IsZero() ||
		len(p.Tasks) > 0 || len(p.Cgroups) > 0 || len(p.Leftovers) > 0 || len(p.Plugins)+len(p.NetworkSetup) > 0 ||
		len(p.Mounts) > 0 || len(p.ImageMounts) > 0 || len(p.Devices) > 0 || len(p.Volumes) > 0 || len(p.Holders) > 0 {
		return false
	}
	// A shim may be on its way out, with what it holds.
	return !slices.ContainsFunc(p.Parents, func(t Task) bool { return t.Owner == "shim" }) &&
		!slices.ContainsFunc(p.Containers, func(c Container) bool { return c.ID != "" && c.State != StateExited })
}

// bareSince sets BareSince. read is when all that it rests on had been read.
func (p *Pod) bareSince(e *Pod, read time.Time) {
	p.BareSince = time.Time{}
	if p.bare() {
		p.BareSince = firstOf(e.BareSince, read)
	}
}
