package proc

import (
	"github.com/prometheus/procfs"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// ReadPressure returns how much of the last minute the node's tasks lost to
// waiting (Documentation/accounting/psi.rst of the kernel). It returns nil where
// the kernel does not count that: CONFIG_PSI is not set, or psi=0 was given at
// boot.
func (h *Host) ReadPressure() *evidence.Pressure {
	fs, err := procfs.NewFS(h.Proc)
	if err != nil {
		return nil
	}
	var p evidence.Pressure
	for resource, share := range map[string]*float64{"cpu": &p.CPU, "memory": &p.Memory, "io": &p.IO} {
		s, err := fs.PSIStatsForResource(resource)
		if err != nil || s.Some == nil {
			return nil
		}
		*share = s.Some.Avg60
	}
	return &p
}
