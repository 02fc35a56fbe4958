package kernfile

import (
	"github.com/prometheus/procfs"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// Sysctl returns the words of one of the kernel's parameters, such as
// kernel.osrelease (proc_sys(5)); none when it cannot be read.
func Sysctl(proc, name string) []string {
	fs, err := procfs.NewFS(proc)
	if err != nil {
		return nil
	}
	words, err := fs.SysctlStrings(name)
	if err != nil {
		return nil
	}
	for i, w := range words {
		words[i] = Printable([]byte(w))
	}
	return words
}

// Pressure returns the larger of "some avg10" and "some avg60" of the pressure files
// of the node (Documentation/accounting/psi.rst). It returns nil where the kernel
// does not count that: CONFIG_PSI is not set, or psi=0 was given at boot.
func Pressure(proc string) *evidence.Pressure {
	fs, err := procfs.NewFS(proc)
	if err != nil {
		return nil
	}
	var p evidence.Pressure
	for resource, share := range map[string]*float64{"cpu": &p.CPU, "memory": &p.Memory, "io": &p.IO} {
		s, err := fs.PSIStatsForResource(resource)
		if err != nil || s.Some == nil {
			return nil
		}
		*share = max(s.Some.Avg10, s.Some.Avg60)
	}
	return &p
}
