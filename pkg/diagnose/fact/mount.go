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

// Culprit returns the mount that a task hangs on, nil when it is not known, because a
// wrong name is worse than none. Certain reports whether no other one is left. A mount
// that was not found through an open file is named only for what is seen of itself: a
// close, or the end of a process, leaves no descriptor to follow, and a path may lead
// through a link. Certain is then only the one FUSE connection of the node that has
// requests waiting.
func Culprit(p *View, t *evidence.Task) (m *evidence.Mount, certain bool) {
	if t.Probe == nil || FamilyOf(t) == FamilyIoUring {
		return nil, false
	}
	if m = t.Probe.Mount; m != nil {
		b := Backing(m)
		switch {
		case FamilyOf(t) == FamilyFUSE && b.FUSEWaiting != nil && *b.FUSEWaiting == 0:
			return nil, false // it has answered everything
		case t.Probe.Indirect && !suspicious(p, t, b):
			return nil, false
		case t.Probe.Indirect:
			return m, b.OnlyWaiting
		}
		return m, !Answers(b)
	}
	for i := range t.Probe.Candidates {
		c := &t.Probe.Candidates[i]
		switch {
		case !suspicious(p, t, c):
		case m != nil:
			return nil, false // two could be it
		default:
			m = c
		}
	}
	return m, false
}

// suspicious reports whether something is seen of a mount itself that makes a task
// wait as this one does.
func suspicious(p *View, t *evidence.Task, m *evidence.Mount) bool {
	switch family := FamilyOf(t); family {
	case FamilyFUSE:
		return m.FUSEWaiting != nil && *m.FUSEWaiting > 0
	case FamilyNFS, FamilyCIFS:
		// A server that is well has requests under way too, when it is asked much.
		return OutOfReach(m) || m.Unanswered != nil && *m.Unanswered > 0 && m.Connection != evidence.Established
	case FamilySuspended:
		return true
	case FamilyBlock:
		return DeadDisk(m)
	case FamilyFsFrozen:
		return writerOnFrozen(p, t, m)
	}
	return false
}

// Answers reports whether the server of a mount is known to have answered
// everything.
func Answers(m *evidence.Mount) bool {
	return m.Unanswered != nil && *m.Unanswered == 0 && m.Connection == evidence.Established && m.Resent == 0
}

// writerOnFrozen reports whether another task waits for the same file system to be
// thawed, and has it open.
func writerOnFrozen(p *View, t *evidence.Task, m *evidence.Mount) bool {
	for _, tasks := range [][]evidence.Task{p.Tasks, p.Node.Blocked} {
		for i := range tasks {
			o := &tasks[i]
			if o.TID != t.TID && FamilyOf(o) == FamilyFsFrozen && o.Probe.Mount != nil && !o.Probe.Indirect && Backing(o.Probe.Mount).Device == m.Device {
				return true
			}
		}
	}
	return false
}
