package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// scan is a scanner that everybody asks who opens the file (fanotify(7)), and that answers all
// but shims.
func scan(path string) error {
	fd, err := unix.FanotifyInit(unix.FAN_CLASS_CONTENT|unix.FAN_CLOEXEC, unix.O_RDONLY)
	if err != nil {
		return fmt.Errorf("fanotify_init: %w", err)
	}
	if err := unix.FanotifyMark(fd, unix.FAN_MARK_ADD, unix.FAN_OPEN_PERM, unix.AT_FDCWD, path); err != nil {
		return fmt.Errorf("fanotify_mark %s: %w", path, err)
	}
	buf := make([]byte, 4096)
	for {
		n, err := unix.Read(fd, buf)
		if err != nil {
			return fmt.Errorf("read events of %s: %w", path, err)
		}
		for r := bytes.NewReader(buf[:n]); r.Len() > 0; {
			var e unix.FanotifyEventMetadata
			if err := binary.Read(r, binary.NativeEndian, &e); err != nil {
				return fmt.Errorf("an event of %s: %w", path, err)
			}
			comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", e.Pid))
			if bytes.HasPrefix(comm, []byte("containerd-shim")) {
				continue
			}
			var answer bytes.Buffer
			if err := binary.Write(&answer, binary.NativeEndian, unix.FanotifyResponse{Fd: e.Fd, Response: unix.FAN_ALLOW}); err != nil {
				return err
			}
			if _, err := unix.Write(fd, answer.Bytes()); err != nil {
				return fmt.Errorf("answer about %s: %w", path, err)
			}
			_ = unix.Close(int(e.Fd))
		}
	}
}
