package evidence

import (
	"slices"
	"time"
)

// A Shortage is a limit that the pod's shim, containerd or the kubelet has used up, or the file system of containerd's
// records or of the kubelet's directory, which is full or read-only.
type Shortage struct {
	// Resource is Tasks, Descriptors, Space, Inodes or ReadOnly.
	Resource string `json:"resource"`
	// Owner is whose limit it is, containerd, shim or kubelet, and PID the number of its process.
	Owner string `json:"owner"`
	PID   int    `json:"pid"`
	// Cgroup is the control group that has a limit on tasks, the process's own or one above it,
	// below the mount point of its hierarchy; "" for Descriptors.
	Cgroup string `json:"cgroup,omitempty"`
	// Dir is the directory of containerd's records, or the kubelet's own, for what its file system lacks.
	Dir string `json:"dir,omitempty"`
	// Limit is how many there may be, and Used how many there are: pids.max and pids.current of
	// the group (Documentation/admin-guide/cgroup-v2.rst), or the soft limit RLIMIT_NOFILE and the
	// open files of the process below that number (getrlimit(2)), or the size of the file system in
	// bytes or inodes (statfs(2)). ReadOnly has none.
	Limit int64 `json:"limit"`
	Used  int64 `json:"used"`
	// Since is when the first of the readings in a row had ended that showed it, and Ended when the
	// first one had that did not any more; zero while it is so. It is kept for a while then: the kubelet
	// tries again later what failed meanwhile.
	Since time.Time `json:"since,omitzero"`
	Ended time.Time `json:"ended,omitzero"`
	// Until is when the last reading that showed it had ended, of the kubelet's that could not be read since; zero when
	// this reading shows it.
	Until time.Time `json:"until,omitzero"`
}

// Lasted returns for how long readings in a row have shown it, at the time of the last one.
func (s *Shortage) Lasted(now time.Time) time.Duration {
	if !s.Until.IsZero() {
		now = s.Until
	}
	return now.Sub(s.Since)
}

// A Span is from the first to the last of some readings.
type Span struct {
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
}

// Unwritable reports whether it keeps containerd from writing into its record what has become of a container, for
// which it makes a new file (continuity.AtomicWriteFile).
func (s *Shortage) Unwritable() bool { return s.Owner == "containerd" && s.Resource != Tasks }

// KeepsVolumes reports whether it keeps the kubelet from taking down volumes, of which it removes the directories: on a
// full disk it can.
func (s *Shortage) KeepsVolumes() bool { return s.Resource == ReadOnly || s.Resource == Descriptors }

// NextRecord is the longest time after which containerd tries again to write down the end of a container, with what
// that takes (backOffMaxDuration, internal/cri/server/events/events.go).
const NextRecord = 5*time.Minute + 10*time.Second

// keepShortage is for how long one that has ended is kept. The kubelet tries again after ten seconds or
// a little more, and may then wait for a grace period: what it has said before is of the shortage as long as it is looked at.
const keepShortage = 6 * time.Minute

// What Shortage.Resource can be: processes and threads, open files, and of a file system its space, its inodes,
// and that it can be written to.
const (
	Tasks       = "Tasks"
	Descriptors = "Descriptors"
	Space       = "Space"
	Inodes      = "Inodes"
	ReadOnly    = "ReadOnly"
)

// sinceShortages carries over since when the same limits have been used up, and keeps those that are
// not any more. Where they could not be read nothing has changed.
func (p *Pod) sinceShortages(e *Pod, t time.Time) {
	if p.Unwritable = e.Unwritable; p.Unwritable != nil && t.Sub(p.Unwritable.Last) > NextRecord {
		p.Unwritable = nil
	}
	if p.Missing[Limits] != "" && len(p.Shortages) == 0 {
		p.Shortages = e.Shortages
		return
	}
	if slices.ContainsFunc(p.Shortages, func(s Shortage) bool { return s.Unwritable() }) {
		span := Span{First: t, Last: t}
		if p.Unwritable != nil {
			span.First = p.Unwritable.First
		}
		p.Unwritable = &span
	}
	p.Shortages = sinceShortages(p.Shortages, e.Shortages, t)
}

// sinceShortages is the same for those of the kubelet. What could not be read is not known to last: the reading before
// had ended at the time last.
func (k *KubeletService) sinceShortages(e *KubeletService, last, t time.Time) {
	k.LackedUntil = e.LackedUntil
	if slices.ContainsFunc(k.Shortages, func(s Shortage) bool { return s.KeepsVolumes() }) {
		k.LackedUntil = t
	}
	if k.ShortagesError != "" && len(k.Shortages) == 0 {
		k.Shortages = slices.Clone(e.Shortages)
		for i := range k.Shortages {
			k.Shortages[i].Until = firstOf(k.Shortages[i].Until, last)
		}
		return
	}
	k.Shortages = sinceShortages(k.Shortages, e.Shortages, t)
}

// sinceShortages returns what a reading has shown, which ended at a time, with what is known of before.
func sinceShortages(now, before []Shortage, t time.Time) []Shortage {
	read := len(now)
	for _, b := range before {
		i := slices.IndexFunc(now[:read], func(s Shortage) bool {
			return b.Resource == s.Resource && b.PID == s.PID && b.Cgroup == s.Cgroup && b.Dir == s.Dir && (b.Limit == s.Limit || s.Dir != "")
		})
		switch {
		case i >= 0 && b.Ended.IsZero():
			now[i].Since = b.Since
		case i >= 0:
		case b.Ended.IsZero():
			b.Ended, b.Until = t, time.Time{}
			now = append(now, b)
		case t.Sub(b.Ended) < keepShortage:
			now = append(now, b)
		}
	}
	for i := range now {
		now[i].Since = firstOf(now[i].Since, t)
	}
	return now
}
