package probe

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// limits reads how many files the process may have open, and how many it has of those numbers. A limit
// that was lowered leaves those open that are above it, and numbers below may be free.
func (p *probe) limits() {
	b := p.file("limits")
	if b == nil {
		return
	}
	limit := parseMaxOpen(b)
	if limit == 0 || !p.announce("fd") {
		return
	}
	open, err := p.dir.count("fd", maxFiles)
	if err != nil {
		p.note("fd", err)
		return
	}
	if open >= limit && limit <= maxFiles {
		open = 0
		for fd := range limit {
			if _, err := p.dir.link("fd/" + strconv.FormatInt(fd, 10)); err == nil {
				open++
			}
		}
	}
	p.seen.MaxOpen, p.seen.Open = limit, open
}

// parseMaxOpen returns the soft limit on open files out of /proc/PID/limits, 0 where there is none
// (fs/proc/base.c, proc_pid_limits): the name of a limit, the soft and the hard one, and their unit.
func parseMaxOpen(b []byte) int64 {
	for line := range bytes.Lines(b) {
		rest, ok := bytes.CutPrefix(line, []byte("Max open files "))
		if f := bytes.Fields(rest); ok && len(f) > 0 {
			n, err := strconv.ParseInt(string(f[0]), 10, 64)
			if err != nil {
				return 0 // unlimited
			}
			return n
		}
	}
	return 0
}

// count returns how many names there are in a directory of open files. Since Linux 6.2 its size says
// that (proc_fd_getattr, fs/proc/fd.c); before that they are counted, up to limit.
func (d *dir) count(name string, limit int) (int64, error) {
	fd, err := openat(d.fd, name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return 0, err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Size > 0 {
		return st.Size, err
	}
	names, err := f.Readdirnames(limit)
	if errors.Is(err, io.EOF) {
		err = nil // it exits, and has closed all
	}
	return int64(len(names)), err
}
