package proc

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// readMountID gives the ID of the mount that a descriptor of a task was opened
// on. Unlike the link in fd, fdinfo can be read of a task in any state, and it
// names the mount even when no path does any more.
func readMountID(fs procfs.FS, pid, tid, fd int) (int, error) {
	p, err := fs.Thread(pid, tid)
	if err != nil {
		return 0, err
	}
	info, err := p.FDInfo(strconv.Itoa(fd))
	if err != nil {
		return 0, err
	}
	id, err := strconv.Atoi(info.MntID)
	if err != nil {
		return 0, fmt.Errorf("mount of descriptor %d of task %d: %w", fd, tid, err)
	}
	return id, nil
}

// An fdinfo is what /proc/PID/fdinfo/N says of any open file (fs/proc/fd.c,
// seq_show).
type fdinfo struct {
	flags   int // of open(2)
	mountID int
	// inode is 0 before kernel 5.14, which does not tell it.
	inode uint64
}

// writable says that the file was opened for writing.
func (f fdinfo) writable() bool { return f.flags&unix.O_ACCMODE != unix.O_RDONLY }

// readFDInfo reads an fdinfo with r, which is open on /proc.
func readFDInfo(r *reader, pid, fd int) (fdinfo, error) {
	b, err := r.all(strconv.Itoa(pid) + "/fdinfo/" + strconv.Itoa(fd))
	if err != nil {
		return fdinfo{}, err
	}
	return parseFDInfo(b)
}

var errFDInfo = errors.New("an fdinfo file without flags and mnt_id")

// parseFDInfo parses an fdinfo file. What a kind of file adds comes after the
// lines that all have, and can hold words of the same names.
func parseFDInfo(b []byte) (fdinfo, error) {
	f := fdinfo{flags: -1, mountID: -1}
	for line := range bytes.Lines(b) {
		key, v, _ := bytes.Cut(line, []byte(":"))
		text := string(bytes.TrimSpace(v))
		var err error
		switch string(key) {
		case "flags":
			var n uint64
			n, err = strconv.ParseUint(text, 8, 32)
			f.flags = int(n)
		case "mnt_id":
			f.mountID, err = strconv.Atoi(text)
		case "ino":
			f.inode, err = strconv.ParseUint(text, 10, 64)
		}
		if err != nil {
			return fdinfo{}, fmt.Errorf("%s in fdinfo: %w", key, err)
		}
	}
	if f.flags < 0 || f.mountID < 0 {
		return fdinfo{}, errFDInfo
	}
	return f, nil
}
