package proc

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

// A stat is the part of /proc/PID/task/TID/stat that no other file shows
// (fs/proc/array.c, do_task_stat). Only the helper reads it: since the series
// "proc: protect ptrace_may_access() with exec_update_lock" the file waits for
// a task that is inside execve.
type stat struct {
	Flags uint64 // field 9, the PF_ bits
	Start uint64 // field 22, clock ticks since boot
}

var errStat = errors.New("a stat file of unknown form")

// parseStat parses a stat file. The name in parentheses may hold blanks,
// parentheses and newlines, so that the fields are counted from the last closing
// one.
func parseStat(b []byte) (stat, error) {
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return stat{}, errStat
	}
	f := bytes.Fields(b[i+1:])
	// f[0] is field 3, the state.
	if len(f) < 20 {
		return stat{}, errStat
	}
	flags, err := strconv.ParseUint(string(f[9-3]), 10, 64)
	if err != nil {
		return stat{}, fmt.Errorf("flags in stat: %w", err)
	}
	start, err := strconv.ParseUint(string(f[22-3]), 10, 64)
	if err != nil {
		return stat{}, fmt.Errorf("start time in stat: %w", err)
	}
	return stat{Flags: flags, Start: start}, nil
}
