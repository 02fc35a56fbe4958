package probe

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// A stat is the part of /proc/PID/task/TID/stat that no other file shows
// (fs/proc/array.c, do_task_stat). Only the helper reads it: since the series
// "proc: protect ptrace_may_access() with exec_update_lock" the file waits for
// a task that is inside execve.
type stat struct {
	Group    int    // field 5, the process group; 0 for a task that has been reaped meanwhile
	Terminal bool   // field 7, whether it has a controlling terminal
	Flags    uint64 // field 9, the PF_ bits
	Reaped   uint64 // fields 11 and 13, the page faults of the children that the process has waited for
	Start    uint64 // field 22, clock ticks since boot
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
	group, err := strconv.Atoi(string(f[5-3]))
	if err != nil {
		return stat{}, fmt.Errorf("process group in stat: %w", err)
	}
	flags, err := strconv.ParseUint(string(f[9-3]), 10, 64)
	if err != nil {
		return stat{}, fmt.Errorf("flags in stat: %w", err)
	}
	minor, err := strconv.ParseUint(string(f[11-3]), 10, 64)
	if err != nil {
		return stat{}, fmt.Errorf("minor faults of children in stat: %w", err)
	}
	major, err := strconv.ParseUint(string(f[13-3]), 10, 64)
	if err != nil {
		return stat{}, fmt.Errorf("major faults of children in stat: %w", err)
	}
	start, err := strconv.ParseUint(string(f[22-3]), 10, 64)
	if err != nil {
		return stat{}, fmt.Errorf("start time in stat: %w", err)
	}
	return stat{Group: max(group, 0), Terminal: string(f[7-3]) != "0", Flags: flags, Reaped: minor + major, Start: start}, nil
}

// tick is the unit of times in stat, USER_HZ of them in a second. It is 100 on
// all architectures that this is built for (include/asm-generic/param.h).
const tick = time.Second / 100

// Started returns the moment by the wall clock of a start time in ticks since
// boot; zero when it cannot be told.
func Started(start uint64) time.Time {
	boot, err := sinceBoot()
	if err != nil {
		return time.Time{}
	}
	return startedAt(start, time.Now(), boot)
}

// startedAt is the moment by the wall clock of a start time in ticks since
// boot. Now and boot are the same moment by CLOCK_REALTIME and CLOCK_BOOTTIME,
// which goes on while the machine sleeps. Two readings of one task can differ by
// a tick, and by more once somebody has set the clock: Start says whether a task
// is the same.
func startedAt(start uint64, now time.Time, boot time.Duration) time.Time {
	if start == 0 || start > uint64(boot/tick)+1 {
		return time.Time{} // not known, or in the future: another clock
	}
	return now.Add(time.Duration(start)*tick - boot).Round(tick)
}

// sinceBoot reads CLOCK_BOOTTIME.
func sinceBoot() (time.Duration, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return 0, err
	}
	return time.Duration(t.Nano()), nil
}
