package cgroup

import (
	"bytes"
	"errors"
	"path/filepath"
	"strconv"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kernfile"
)

// noLimit is the word of version 2 for a limit that is not set.
const noLimit = "max"

// noLimit1 is the least number, in bytes, that version 1 shows where no limit
// is set: PAGE_COUNTER_MAX pages, which is the largest int64 less what does not
// fill a page of 64 KiB at most.
const noLimit1 = 1<<63 - 64<<10

// readMemory reads a group's use of memory and its limits; nil when it cannot
// be told (cgroup-v2.rst, cgroup-v1/memory.rst). Version 1 has no throttling at
// a limit that is not the last one; its failcnt counts what memory.events calls
// max.
func (w *walk) readMemory(dir string) *evidence.Memory {
	if w.c.version == 1 {
		base := w.t.controller("memory")
		if base == "" {
			return nil
		}
		current, ok1 := w.readNumber(filepath.Join(base, dir), kernfile.MemoryUsage)
		limit, ok2 := w.readNumber(filepath.Join(base, dir), kernfile.MemoryLimit)
		failed, ok3 := w.readNumber(filepath.Join(base, dir), kernfile.MemoryFailcnt)
		if !ok1 || !ok2 || !ok3 {
			return nil
		}
		if limit < 0 || limit >= noLimit1 {
			limit = 0
		}
		return &evidence.Memory{Current: current, Max: limit, MaxEvents: uint64(max(failed, 0))}
	}
	base := filepath.Join(w.c.dir, dir)
	current, ok1 := w.readNumber(base, kernfile.MemoryCurrent)
	high, ok2 := w.readNumber(base, kernfile.MemoryHigh)
	limit, ok3 := w.readNumber(base, kernfile.MemoryMax)
	if !ok1 || !ok2 || !ok3 {
		return nil
	}
	b, err := w.r.Read(base, kernfile.MemoryEvents)
	if err != nil {
		return nil
	}
	events := parseKeys(b)
	m := &evidence.Memory{Current: current, High: high, Max: limit, HighEvents: events["high"], MaxEvents: events["max"]}
	if high > 0 {
		// Kernels without pressure stall information have no such file.
		if b, err := w.r.Read(base, kernfile.MemoryPressure); err == nil {
			m.StalledMicros = parseFullPressure(b)
		}
	}
	return m
}

// parseFullPressure gives the time, in microseconds, in which all tasks were
// stalled (Documentation/accounting/psi.rst).
func parseFullPressure(b []byte) uint64 {
	_, line, _ := bytes.Cut(b, []byte("\nfull "))
	_, total, _ := bytes.Cut(line, []byte("total="))
	n, err := strconv.ParseUint(string(bytes.TrimSpace(total)), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// readNumber reads a file that holds one number; the word for no limit gives 0.
func (w *walk) readNumber(dir string, f kernfile.File) (int64, bool) {
	b, err := w.r.Read(dir, f)
	if err != nil {
		return 0, false
	}
	n, err := parseNumber(b)
	return n, err == nil
}

// parseNumber parses a file of one number. One that is too large for an int64
// is the largest.
func parseNumber(b []byte) (int64, error) {
	s := string(bytes.TrimSpace(b))
	if s == noLimit {
		return 0, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if errors.Is(err, strconv.ErrRange) {
		return n, nil
	}
	return n, err
}
