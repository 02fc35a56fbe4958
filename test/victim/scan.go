package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// scan is what a virus scanner on access is to other programs: the kernel asks it before it opens the
// file, or the directory and what is in it (fanotify(7)), and it takes its time for each, one after the other.
// When it is killed all are allowed that wait.
func scan(path string, takes time.Duration) error {
	fd, err := unix.FanotifyInit(unix.FAN_CLASS_CONTENT|unix.FAN_CLOEXEC, unix.O_RDONLY|unix.O_CLOEXEC)
	if err != nil {
		return fmt.Errorf("fanotify_init: %w", err)
	}
	which := uint64(unix.FAN_OPEN_PERM)
	if st, err := os.Stat(path); err == nil && st.IsDir() {
		which |= unix.FAN_ONDIR | unix.FAN_EVENT_ON_CHILD
	}
	if err := unix.FanotifyMark(fd, unix.FAN_MARK_ADD, which, unix.AT_FDCWD, path); err != nil {
		return fmt.Errorf("fanotify_mark %s: %w", path, err)
	}
	buf := make([]byte, 4096)
	for {
		n, err := unix.Read(fd, buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read events of %s: %w", path, err)
		}
		for r := bytes.NewReader(buf[:n]); r.Len() > 0; {
			var e unix.FanotifyEventMetadata
			if err := binary.Read(r, binary.NativeEndian, &e); err != nil {
				return fmt.Errorf("an event of %s: %w", path, err)
			}
			time.Sleep(takes)
			var answer bytes.Buffer
			if err := binary.Write(&answer, binary.NativeEndian, unix.FanotifyResponse{Fd: e.Fd, Response: unix.FAN_ALLOW}); err != nil {
				return err
			}
			if _, err := unix.Write(fd, answer.Bytes()); err != nil {
				return fmt.Errorf("answer about %s: %w", path, err)
			}
			if err := unix.Close(int(e.Fd)); err != nil {
				return err
			}
		}
	}
}
