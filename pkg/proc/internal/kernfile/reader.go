package kernfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
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

// Opens counts the files and directories of the kernel that were opened, or that could not be: what a round costs.
var Opens atomic.Int64

// A Reader reads kernel files one after the other into one buffer, with three
// system calls for each and no allocation: at 5 µs a file those of os.ReadFile
// and its file object would cost as much as the kernel does. It is not safe for
// use by several goroutines.
type Reader struct {
	dir  int // an open directory, or unix.AT_FDCWD
	buf  []byte
	name []byte // of the file that is read, ends with a NUL while it is opened
}

// Open opens a directory of the kernel for reading files below it.
func Open(dir string) (*Reader, error) {
	r := Reader{dir: unix.AT_FDCWD, name: []byte(dir)}
	fd, err := r.open(unix.O_PATH | unix.O_DIRECTORY)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	return &Reader{dir: fd, buf: make([]byte, usualFile)}, nil
}

// New returns a Reader for files whose directories are named in full.
func New() *Reader { return &Reader{dir: unix.AT_FDCWD, buf: make([]byte, usualFile)} }

// Close closes the directory.
func (r *Reader) Close() {
	if r.dir >= 0 {
		_ = unix.Close(r.dir)
	}
}

// Read reads a file of a directory, "" for the Reader's own. The result is good
// until the next read.
func (r *Reader) Read(dir string, f File) ([]byte, error) {
	r.name = append(r.name[:0], dir...)
	if dir != "" {
		r.name = append(r.name, '/')
	}
	r.name = append(r.name, f.name...)
	return r.read(f.single)
}

// Task does the same for a file of the task with this ID, whether or not it is a
// leader: those of the others are in /proc too, only not listed. The Reader is open
// on /proc.
func (r *Reader) Task(id int, f File) ([]byte, error) {
	r.name = append(append(strconv.AppendInt(r.name[:0], int64(id), 10), '/'), f.name...)
	return r.read(f.single)
}

// Thread does the same for a file that is there for threads only.
func (r *Reader) Thread(pid, tid int, f File) ([]byte, error) {
	return r.Read(Thread(pid, tid), f)
}

// PIDs returns the processes that /proc lists, in ascending order.
func (r *Reader) PIDs() ([]int, error) {
	r.name = append(r.name[:0], '.')
	return r.ids(nil)
}

// TIDs adds the threads of a process to a list, in ascending order.
func (r *Reader) TIDs(pid int, out []int) ([]int, error) {
	r.name = append(strconv.AppendInt(r.name[:0], int64(pid), 10), "/task"...)
	return r.ids(out)
}

func (r *Reader) read(single bool) ([]byte, error) {
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
func (r *Reader) open(flags int) (int, error) {
	r.name = append(r.name, 0)
	if bytes.IndexByte(r.name, 0) != len(r.name)-1 {
		return -1, unix.EINVAL
	}
	Opens.Add(1)
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

// ids adds the numbers among the names in a directory to a list, in the order of
// the directory, which in /proc is that of the numbers. It reads the directory
// through the reader's buffer.
func (r *Reader) ids(out []int) ([]int, error) {
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

// parseDirents adds the numbers among the names in entries of a directory to a list.
func parseDirents(b []byte, out []int) []int {
	for text := range dirents(b) {
		if n := Decimal(text); len(text) > 0 && digits(text) {
			out = append(out, n)
		}
	}
	return out
}

// dirents yields the names in entries of a directory and their types, as getdents64(2) gives them: inode, offset, the length of the entry in 16
// bits, the type in 8, and a name that ends with a NUL.
func dirents(b []byte) iter.Seq2[[]byte, uint8] {
	const length, kind, name = 16, 18, 19
	return func(yield func([]byte, uint8) bool) {
		for len(b) > name {
			size := int(binary.NativeEndian.Uint16(b[length:]))
			if size <= name || size > len(b) {
				return
			}
			text := b[name:size]
			if i := bytes.IndexByte(text, 0); i >= 0 {
				text = text[:i]
			}
			if !yield(text, b[kind]) {
				return
			}
			b = b[size:]
		}
	}
}

func digits(b []byte) bool {
	for _, c := range b {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}

// Read reads a file of at most 4 MiB.
func Read(dir string, f File) ([]byte, error) {
	r := Reader{dir: unix.AT_FDCWD, buf: make([]byte, 512)}
	b, err := r.Read(dir, f)
	if err != nil {
		return nil, &os.PathError{Op: "read", Path: filepath.Join(dir, f.name), Err: err}
	}
	return b, nil
}

// Stream opens a file that is too large to be kept.
func Stream(dir string, f File) (io.ReadCloser, error) {
	Opens.Add(1)
	return os.Open(filepath.Join(dir, f.name))
}

// Exists reports whether a directory has a file.
func Exists(dir string, f File) bool {
	_, err := os.Stat(filepath.Join(dir, f.name))
	return err == nil
}

// An Entry is a name in a directory.
type Entry struct {
	name string
	kind uint8 // DT_DIR and others (getdents64(2))
}

// Name is the entry's own, without the directory.
func (e Entry) Name() string { return e.name }

// IsDir reports whether it is a directory. A link to one is none.
func (e Entry) IsDir() bool { return e.kind == unix.DT_DIR }

// buffers are those for listings.
var buffers = sync.Pool{New: func() any { return new([usualFile]byte) }}

// List returns what is in a directory of control groups, of block devices or of FUSE connections, at most limit of them, in the order of the
// directory. Truncated says that there were more.
func List(name string, limit int) (entries []Entry, truncated bool, err error) {
	Opens.Add(1)
	fd, err := open(name)
	if err != nil {
		return nil, false, &os.PathError{Op: "open", Path: name, Err: err}
	}
	defer unix.Close(fd)
	buf := buffers.Get().(*[usualFile]byte)
	defer buffers.Put(buf)
	for {
		n, err := unix.Getdents(fd, buf[:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return entries, false, &os.PathError{Op: "list", Path: name, Err: err}
		}
		if n <= 0 {
			return entries, false, nil
		}
		for text, kind := range dirents(buf[:n]) {
			if string(text) == "." || string(text) == ".." {
				continue
			}
			if len(entries) == limit {
				return entries, true, nil
			}
			entries = append(entries, Entry{string(text), kind})
		}
	}
}

func open(directory string) (fd int, err error) {
	for err = unix.EINTR; errors.Is(err, unix.EINTR); {
		fd, err = unix.Open(directory, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	}
	return fd, err
}

// Named returns the last name of what a link of sysfs leads to, as in loop7 for 7:112 in
// /sys/dev/block; not ok when it is no link.
func Named(link string) (name string, ok bool) {
	to, err := os.Readlink(link)
	return filepath.Base(to), err == nil
}

// ErrTooMany says that there is more of something than is read.
var ErrTooMany = errors.New("too many")

// Gone reports whether an error says that the process, thread or control group
// does not exist any more, which is an answer and no error. Files of a removed
// control group give ENODEV.
func Gone(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENODEV)
}

// Denied reports whether an error is one of permission.
func Denied(err error) bool {
	return errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM)
}

// NoNamespaces reports whether an error is that of the mountinfo of a task that
// has left its namespaces.
func NoNamespaces(err error) bool { return errors.Is(err, unix.EINVAL) }

// Thread returns the directory of a thread below /proc.
func Thread(pid, tid int) string {
	return strconv.Itoa(pid) + "/task/" + strconv.Itoa(tid)
}

// Printable makes text of the kernel's fit for JSON and for a line of an Event:
// bytes that are no UTF-8 and control characters become U+FFFD. A process
// chooses its comm itself and may choose an escape sequence.
func Printable[T string | []byte](b T) string {
	for i := range len(b) {
		if c := b[i]; c < ' ' || c >= 0x7f {
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
