package proc

import (
	"strings"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kernfile"
)

// ReadKernel returns the release of the kernel, as uname -r does; "" when it
// cannot be read.
func (h *Host) ReadKernel() string {
	return strings.Join(kernfile.Sysctl(h.Proc, "kernel.osrelease"), " ")
}

// ReadCorePattern returns where core dumps go (core(5)): the program that they are
// piped to with its | but without its arguments, or the pattern of a file's
// name; "" when there is none or it cannot be read.
func (h *Host) ReadCorePattern() string {
	return corePattern(kernfile.Sysctl(h.Proc, "kernel.core_pattern"))
}

// corePattern returns the first word of core_pattern. Blanks may stand between
// the | and the program.
func corePattern(words []string) string {
	switch {
	case len(words) == 0 || words[0] == "|" && len(words) == 1:
		return ""
	case words[0] == "|":
		return "|" + words[1]
	}
	return words[0]
}

// ReadPressure returns how much of their time the node's tasks have just lost to
// waiting; nil where the kernel does not count that.
func (h *Host) ReadPressure() *evidence.Pressure { return kernfile.Pressure(h.Proc) }
