package cgroup

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strconv"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kernfile"
)

// readCPU reads what a group may use of the processors and has used; nil when
// it cannot be told. The files are those of Documentation/admin-guide/
// cgroup-v2.rst, or of version 1 (scheduler/sched-bwc.rst, cgroup-v1/
// cpuacct.rst), where the quota and the use are two controllers that are
// mounted together or apart.
func (w *walk) readCPU(dir string) *evidence.CPU {
	if w.c.version == 1 {
		return w.readCPU1(dir)
	}
	b, err := w.r.Read(filepath.Join(w.c.dir, dir), kernfile.CPUStat)
	if err != nil {
		return nil
	}
	stat := parseKeys(b)
	used, ok := stat["usage_usec"]
	if !ok {
		return nil
	}
	c := &evidence.CPU{UsedMicros: used, Periods: stat["nr_periods"], Throttled: stat["nr_throttled"]}
	// A group without the cpu controller has the use, but neither a quota nor
	// periods.
	b, err = w.r.Read(filepath.Join(w.c.dir, dir), kernfile.CPUMax)
	if kernfile.Gone(err) {
		return c
	}
	if err != nil {
		return nil
	}
	if c.Millis, err = parseCPUMax(b); err != nil {
		return nil
	}
	return c
}

func (w *walk) readCPU1(dir string) *evidence.CPU {
	cpu, acct := w.t.controller("cpu"), w.t.controller("cpuacct")
	if cpu == "" || acct == "" {
		return nil
	}
	b, err := w.r.Read(filepath.Join(cpu, dir), kernfile.CPUStat)
	if err != nil {
		return nil
	}
	stat := parseKeys(b)
	used, ok1 := w.readNumber(filepath.Join(acct, dir), kernfile.CPUAcctUsage) // nanoseconds
	quota, ok2 := w.readNumber(filepath.Join(cpu, dir), kernfile.CPUCFSQuota)
	period, ok3 := w.readNumber(filepath.Join(cpu, dir), kernfile.CPUCFSPeriod)
	if !ok1 || !ok2 || !ok3 {
		return nil
	}
	return &evidence.CPU{
		UsedMicros: uint64(max(used, 0)) / 1000,
		Periods:    stat["nr_periods"],
		Throttled:  stat["nr_throttled"],
		Millis:     quotaMillis(quota, period),
	}
}

// parseCPUMax parses cpu.max, a quota and its period in microseconds, into
// thousandths of a processor: "50000 100000" are 500, and "max 100000" is none.
func parseCPUMax(b []byte) (millis int64, err error) {
	f := bytes.Fields(b)
	if len(f) != 2 {
		return 0, fmt.Errorf("cpu.max %.40q: not two words", b)
	}
	period, err := strconv.ParseInt(string(f[1]), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("period in cpu.max: %w", err)
	}
	if string(f[0]) == noLimit {
		return 0, nil
	}
	quota, err := strconv.ParseInt(string(f[0]), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("quota in cpu.max: %w", err)
	}
	return quotaMillis(quota, period), nil
}

// quotaMillis is a quota in thousandths of a processor, at least one of them; 0
// stands for none, which version 1 writes as -1.
func quotaMillis(quota, period int64) int64 {
	if quota <= 0 || period <= 0 {
		return 0
	}
	return max(int64(float64(quota)/float64(period)*1000), 1)
}

// parseKeys parses the lines "key value" of a control group's flat keyed file,
// such as cpu.stat and memory.events. What is no such line is passed over.
func parseKeys(b []byte) map[string]uint64 {
	out := make(map[string]uint64, 8)
	for line := range bytes.Lines(b) {
		key, v, ok := bytes.Cut(bytes.TrimSpace(line), []byte(" "))
		if !ok {
			continue
		}
		if n, err := strconv.ParseUint(string(v), 10, 64); err == nil {
			out[string(key)] = n
		}
	}
	return out
}
