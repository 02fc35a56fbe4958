package proc

import (
	"bytes"

	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kernfile"
)

// ReadKernel gives the release of the kernel, as uname -r does; "" when it
// cannot be read.
func (h *Host) ReadKernel() string {
	b, err := kernfile.Read(h.Proc, kernfile.OSRelease)
	if err != nil {
		return ""
	}
	return kernfile.Printable(bytes.TrimSpace(b))
}

// ReadCorePattern gives where core dumps go (core(5)): the program that they are
// piped to with its | but without its arguments, or the pattern of a file's
// name; "" when there is none or it cannot be read.
func (h *Host) ReadCorePattern() string {
	b, err := kernfile.Read(h.Proc, kernfile.CorePattern)
	if err != nil {
		return ""
	}
	return parseCorePattern(b)
}

// parseCorePattern gives the first word of core_pattern. Blanks may stand
// between the | and the program.
func parseCorePattern(b []byte) string {
	pipe := ""
	if rest, ok := bytes.CutPrefix(bytes.TrimSpace(b), []byte("|")); ok {
		b, pipe = rest, "|"
	}
	f := bytes.Fields(b)
	if len(f) == 0 {
		return ""
	}
	return pipe + kernfile.Printable(f[0])
}
