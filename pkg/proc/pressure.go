package proc

import (
	"bytes"
	"strconv"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kernfile"
)

// ReadPressure returns how much of their time the node's tasks have just lost to
// waiting (Documentation/accounting/psi.rst of the kernel). It returns nil where
// the kernel does not count that: CONFIG_PSI is not set, or psi=0 was given at
// boot.
func (h *Host) ReadPressure() *evidence.Pressure {
	var p evidence.Pressure
	for _, of := range []struct {
		file  kernfile.File
		share *float64
	}{
		{kernfile.NodeCPUPressure, &p.CPU},
		{kernfile.NodeMemoryPressure, &p.Memory},
		{kernfile.NodeIOPressure, &p.IO},
	} {
		b, err := kernfile.Read(h.Proc, of.file)
		if err != nil {
			return nil
		}
		var ok bool
		if *of.share, ok = parsePressure(b); !ok {
			return nil
		}
	}
	return &p
}

// parsePressure returns the larger of avg10 and avg60 of the line "some": the share
// of that time, in percent, in which at least one task waited.
func parsePressure(b []byte) (percent float64, ok bool) {
	for line := range bytes.Lines(b) {
		fields := bytes.Fields(line)
		if len(fields) == 0 || string(fields[0]) != "some" {
			continue
		}
		for _, f := range fields[1:] {
			name, value, _ := bytes.Cut(f, []byte("="))
			if string(name) != "avg10" && string(name) != "avg60" {
				continue
			}
			share, err := strconv.ParseFloat(string(value), 64)
			if err != nil {
				return 0, false
			}
			percent, ok = max(percent, share), true
		}
	}
	return percent, ok
}
