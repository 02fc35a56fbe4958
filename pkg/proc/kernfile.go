package proc

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unicode"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Sizes of kernel files, in bytes. A status file is about 1.5 KiB, but its
// Groups line can name 65,536 groups.
const (
	usualFile   = 8 << 10
	largestFile = 4 << 20
)

// A reader reads kernel files one after the other into one buffer, with three
// system calls for each and no allocation: at 5 µs a file those of os.ReadFile
// and its file object would cost as much as the kernel does.
type reader struct {
	dir  int // an open directory, or unix.AT_FDCWD
	buf  []byte
	name []byte // of the file that is read, ends with a NUL while it is opened
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
	r.name = append(r.name[:0], name...)
	return r.read(true)
}

// ofTask does the same for a file of the task with this ID, whether or not it is
// a leader: those of the others are in /proc too, only not listed.
func (r *reader) ofTask(id int, file string) ([]byte, error) {
	r.name = append(append(strconv.AppendInt(r.name[:0], int64(id), 10), '/'), file...)
	return r.read(true)
}

// all reads a file that the kernel produces line by line, which ends only where
// a read returns nothing. The result is good until the next read.
func (r *reader) all(name string) ([]byte, error) {
	r.name = append(r.name[:0], name...)
	return r.read(false)
}

func (r *reader) read(single bool) ([]byte, error) {
	fd, err := r.open(unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	n := 0
	for {
		if n == len(r.buf) {
			if n >= largestFile {
				return nil, fmt.Errorf("%s is larger than %d bytes", strings.TrimSuffix(string(r.name), "\x00"), largestFile)
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

// open opens the file that r.name names. It never follows the last element when
// that is a link.
func (r *reader) open(flags int) (int, error) {
	r.name = append(r.name, 0)
	if bytes.IndexByte(r.name, 0) != len(r.name)-1 {
		return -1, unix.EINVAL
	}
	// unix.Openat would copy the name each time.
	flags |= unix.O_CLOEXEC | unix.O_NOFOLLOW | unix.O_LARGEFILE
	for {
		fd, _, errno := unix.Syscall6(unix.SYS_OPENAT, uintptr(r.dir), uintptr(unsafe.Pointer(&r.name[0])), uintptr(flags), 0, 0, 0)
		switch errno {
		case 0:
			return int(fd), nil
		case unix.EINTR:
		default:
			return -1, errno
		}
	}
}

// openat opens a file below a directory as open does.
func openat(dir int, name string, flags int) (int, error) {
	r := reader{dir: dir, name: []byte(name)}
	return r.open(flags)
}

// ids adds the numbers among the names in a directory to a list, in the order of
// the directory, which in /proc is that of the numbers. It reads the directory
// through the reader's buffer.
func (r *reader) ids(out []int) ([]int, error) {
	fd, err := r.open(unix.O_RDONLY | unix.O_DIRECTORY)
	if err != nil {
		return out, err
	}
	defer unix.Close(fd)
	for {
		n, err := unix.Getdents(fd, r.buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n <= 0 {
			return out, err
		}
		out = parseDirents(r.buf[:n], out)
	}
}

// parseDirents adds the numbers among the names in entries of a directory, as
// getdents64(2) gives them: inode, offset, the length of the entry in 16 bits,
// a type in 8, and a name that ends with a NUL.
func parseDirents(b []byte, out []int) []int {
	const length, name = 16, 19
	for len(b) > name {
		size := int(binary.NativeEndian.Uint16(b[length:]))
		if size <= name || size > len(b) {
			return out
		}
		text := b[name:size]
		if i := bytes.IndexByte(text, 0); i >= 0 {
			text = text[:i]
		}
		if n := decimal(text); len(text) > 0 && digits(text) {
			out = append(out, n)
		}
		b = b[size:]
	}
	return out
}

func digits(b []byte) bool {
	for _, c := range b {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}

// listIDs gives the numbers among the names of a directory.
func listIDs(dir int, name string) ([]int, error) {
	r := reader{dir: dir, buf: make([]byte, usualFile), name: []byte(name)}
	return r.ids(nil)
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
