// Slowscan is what a virus scanner on access is to a program that opens many directories: the kernel asks it
// before it opens one of a directory (fanotify(7)), and it takes its time to answer.
package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const usage = "slowscan DIRECTORY DURATION  has each opening of DIRECTORY, and of the directories in it, wait for so long"

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(2)
	}
	if err := scan(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// scan answers one opening after the other until it is killed, which allows those that wait.
func scan(dir, duration string) error {
	takes, err := time.ParseDuration(duration)
	if err != nil {
		return err
	}
	fd, err := unix.FanotifyInit(unix.FAN_CLASS_CONTENT|unix.FAN_CLOEXEC, unix.O_RDONLY|unix.O_CLOEXEC)
	if err != nil {
		return fmt.Errorf("fanotify_init: %w", err)
	}
	const which = unix.FAN_OPEN_PERM | unix.FAN_ONDIR | unix.FAN_EVENT_ON_CHILD
	if err := unix.FanotifyMark(fd, unix.FAN_MARK_ADD|unix.FAN_MARK_ONLYDIR, which, unix.AT_FDCWD, dir); err != nil {
		return fmt.Errorf("fanotify_mark %s: %w", dir, err)
	}
	events := make([]byte, 4096)
	for {
		n, err := unix.Read(fd, events)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read events: %w", err)
		}
		for b := events[:n]; len(b) >= unix.FAN_EVENT_METADATA_LEN; b = b[binary.NativeEndian.Uint32(b):] {
			opened := int32(binary.NativeEndian.Uint32(b[16:])) // struct fanotify_event_metadata
			time.Sleep(takes)
			answer := binary.NativeEndian.AppendUint32(binary.NativeEndian.AppendUint32(nil, uint32(opened)), unix.FAN_ALLOW)
			if _, err := unix.Write(fd, answer); err != nil {
				return fmt.Errorf("answer: %w", err)
			}
			if err := unix.Close(int(opened)); err != nil {
				return err
			}
		}
	}
}
