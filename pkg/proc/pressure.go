package proc

import (
	"bytes"
	"strconv"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kernfile"
)

// ReadPressure returns how much of the last minute the node's tasks lost to
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

// parsePressure returns avg60 of the line "some": the share of the last minute, in
// percent, in which at least one task waited.
func parsePressure(b []byte) (percent float64, ok bool) {
	for line := range bytes.Lines(b) {
		fields := bytes.Fields(line)
		if len(fields) == 0 || string(fields[0]) != "some" {
			continue
		}
		for _, f := range fields[1:] {
			if value, is := bytes.CutPrefix(f, []byte("avg60=")); is {
				percent, err := strconv.ParseFloat(string(value), 64)
				return percent, err == nil
			}
		}
	}
	return 0, false
}
