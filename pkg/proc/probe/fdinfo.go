package probe

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"
)

// An OpenFile is what /proc/PID/fdinfo/N says of any open file (fs/proc/fd.c,
// seq_show). Only the helper reads it: a kind of file may add lines of its own,
// and that of an epoll instance waits, where no signal ends it, for a lock that is
// held while the instance asks a file system whether a file is ready
// (fs/eventpoll.c, ep_show_fdinfo).
//
// Unlike the link in fd, it names the mount even when no path does any more.
type OpenFile struct {
	FD      int `json:"fd"`
	Flags   int `json:"flags"` // of open(2)
	MountID int `json:"mountID"`
}

// onlyPath reports whether the file was opened as a place only (O_PATH): that keeps its mount
// busy, and opens no device.
func (f OpenFile) onlyPath() bool { return f.Flags&unix.O_PATH != 0 }

var errFDInfo = errors.New("an fdinfo file without flags and mnt_id")

// parseFDInfo parses the fdinfo file of a descriptor. What a kind of file adds
// comes after the lines that all have, and can hold words of the same names.
func parseFDInfo(fd int, b []byte) (OpenFile, error) {
	f := OpenFile{FD: fd, Flags: -1, MountID: -1}
	for line := range bytes.Lines(b) {
		key, v, _ := bytes.Cut(line, []byte(":"))
		text := string(bytes.TrimSpace(v))
		var err error
		switch string(key) {
		case "flags":
			if f.Flags < 0 {
				var n uint64
				n, err = strconv.ParseUint(text, 8, 32)
				f.Flags = int(n)
			}
		case "mnt_id":
			if f.MountID < 0 {
				f.MountID, err = strconv.Atoi(text)
			}
		}
		if err != nil {
			return OpenFile{}, fmt.Errorf("%s in fdinfo: %w", key, err)
		}
	}
	if f.Flags < 0 || f.MountID < 0 {
		return OpenFile{}, errFDInfo
	}
	return f, nil
}
