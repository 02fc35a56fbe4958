package fact

import (
	"slices"
	"strings"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// The words of Go's runtime and of the C library for what a process is refused that has used up a
// limit: EAGAIN of clone(2), and EMFILE (errno(3)). A runtime that can be started and gets too few
// threads ends with words of its own.
const (
	noTask       = "resource temporarily unavailable"
	noThread     = "failed to create new os thread" // with the number of the error behind it
	noDescriptor = "too many open files"
)

// Exhausted returns which resource an error says is used up, "" for other errors. ENFILE is about the
// whole node and has other words ("too many open files in system").
func Exhausted(text string) string {
	text = strings.ToLower(text)
	switch {
	case strings.Contains(text, "fork/exec ") && strings.Contains(text, noTask), strings.Contains(text, noThread) && strings.Contains(text, "errno=11"):
		return evidence.Tasks
	case strings.Contains(text, noDescriptor) && !strings.Contains(text, noDescriptor+" in system"):
		return evidence.Descriptors
	}
	return ""
}

// Shortage returns the limit of an owner on a resource that readings in a row have shown used up: for
// SlowDevice, and since before something failed at the moment that is given. nil when there is none.
func Shortage(p *evidence.Pod, owner, resource string, failed time.Time) *evidence.Shortage {
	for i := range p.Shortages {
		s := &p.Shortages[i]
		if s.Owner == owner && s.Resource == resource && s.Ended.IsZero() && !s.Since.IsZero() && p.Time.Sub(s.Since) >= SlowDevice && failed.After(s.Since) {
			return s
		}
	}
	return nil
}

// Relieved reports whether what failed for want of something may succeed at the next try: the limit
// that readings had shown used up is not any more, and nothing has been told of a failure since.
func Relieved(p *evidence.Pod, f *SandboxFailure) bool {
	resource := Exhausted(f.Error)
	return slices.ContainsFunc(p.Shortages, func(s evidence.Shortage) bool {
		return s.Resource == resource && !s.Ended.IsZero() && !f.Last.After(s.Ended)
	})
}

// unwritable are what containerd writes no record for want of, for which it makes a new file
// (continuity.AtomicWriteFile).
var unwritable = []string{evidence.Descriptors, evidence.Space, evidence.Inodes, evidence.ReadOnly}

// Unwritable returns why containerd can write no record, as Shortage does of each of the reasons.
func Unwritable(p *evidence.Pod) *evidence.Shortage {
	for _, resource := range unwritable {
		if s := Shortage(p, "containerd", resource, p.Time); s != nil {
			return s
		}
	}
	return nil
}

// MayBeUnwritable reports whether a reading shows that containerd can write no record, or one did a short while ago.
func MayBeUnwritable(p *evidence.Pod) bool {
	return slices.ContainsFunc(p.Shortages, func(s evidence.Shortage) bool {
		return s.Owner == "containerd" && slices.Contains(unwritable, s.Resource)
	})
}
