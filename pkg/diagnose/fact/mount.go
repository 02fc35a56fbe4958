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

// Answers reports whether the server of a mount is known to have answered
// everything.
func Answers(m *evidence.Mount) bool {
	return m.Unanswered != nil && *m.Unanswered == 0 && m.Connection == evidence.Established && m.Resent == 0
}
