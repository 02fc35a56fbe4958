package proc

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/sys/unix"
)

// Sizes of kernel files, in bytes. A status file is about 1.5 KiB, but its
// Groups line can name 65,536 groups.
const (
	usualFile   = 8 << 10
	largestFile = 4 << 20
)

// A reader reads kernel files one after the other into one buffer, with three
// system calls for each: at 5 µs a file the allocations of os.ReadFile and its
// file object would cost as much as the kernel does.
type reader struct {
	dir int // an open directory, or unix.AT_FDCWD
	buf []byte
}

// newReader opens a directory of the kernel for reading files below it.
func newReader(dir string) (*reader, error) {
	fd, err := openat(unix.AT_FDCWD, dir, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	return &reader{dir: fd, buf: make([]byte, usualFile)}, nil
}

func (r *reader) close() { _ = unix.Close(r.dir) }

// single reads a file that the kernel produces in one piece (single_open), so
// that a read that does not fill the buffer was the last. The result is good
// until the next read.
func (r *reader) single(name string) ([]byte, error) {
	return r.read(name, true)
}

// all reads a file that the kernel produces line by line, which ends only where
// a read returns nothing. The result is good until the next read.
func (r *reader) all(name string) ([]byte, error) {
	return r.read(name, false)
}

func (r *reader) read(name string, single bool) ([]byte, error) {
	fd, err := openat(r.dir, name, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	n := 0
	for {
		if n == len(r.buf) {
			if n >= largestFile {
				return nil, fmt.Errorf("%s is larger than %d bytes", name, largestFile)
			}
			r.buf = append(r.buf, make([]byte, n)...)
		}
		m, err := unix.Read(fd, r.buf[n:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, err
		}
		n += m
		if m == 0 || single && n < len(r.buf) {
			return r.buf[:n], nil
		}
	}
}

// openat opens a file below a directory. It never follows the last element when
// that is a link.
func openat(dir int, name string, flags int) (int, error) {
	for {
		fd, err := unix.Openat(dir, name, flags|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

// readFile reads one kernel file of at most largestFile bytes.
func readFile(name string) ([]byte, error) {
	r := reader{dir: unix.AT_FDCWD, buf: make([]byte, 512)}
	b, err := r.all(name)
	if err != nil {
		return nil, &os.PathError{Op: "read", Path: name, Err: err}
	}
	return b, nil
}

// listDir gives the names in a kernel directory, at most limit of them.
// Truncated says that there were more.
func listDir(name string, limit int) (entries []os.DirEntry, truncated bool, err error) {
	d, err := os.Open(name)
	if err != nil {
		return nil, false, err
	}
	defer d.Close()
	entries, err = d.ReadDir(limit + 1)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if len(entries) > limit {
		return entries[:limit], true, err
	}
	return entries, false, err
}

// gone reports whether an error says that the process, thread or control group
// does not exist any more, which is an answer and no error. Files of a removed
// control group give ENODEV; the mountinfo of a task that has left its
// namespaces gives EINVAL.
func gone(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENODEV)
}

// denied reports whether an error is one of permission.
func denied(err error) bool {
	return errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM)
}

func taskFile(pid, tid int, name string) string {
	return filepath.Join(strconv.Itoa(pid), "task", strconv.Itoa(tid), name)
}

// printable makes text of the kernel's fit for JSON and for a line of an Event:
// bytes that are no UTF-8 and control characters become U+FFFD. A process
// chooses its comm itself and may choose an escape sequence.
func printable(b []byte) string {
	for _, c := range b {
		if c < ' ' || c >= 0x7f {
			return strings.Map(func(r rune) rune {
				if unicode.IsControl(r) {
					return unicode.ReplacementChar
				}
				return r
			}, strings.ToValidUTF8(string(b), string(unicode.ReplacementChar)))
		}
	}
	return string(b)
}
