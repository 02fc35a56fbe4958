package probe

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kernfile"
	"golang.org/x/sys/unix"
)

// largestFile bounds what is read of one file, in bytes.
const largestFile = 4 << 20

// A dir is an open directory of /proc. Its files are opened relative to it and
// without following a link, so that one of a task stands for this task only:
// should its number go to another task meanwhile, the kernel answers ESRCH or
// ENOENT.
type dir struct {
	fd   int
	buf  []byte
	path []byte // that a link leads to
	// bytes and links are what has been read by it.
	bytes, links int
}

// single are the files that the kernel produces in one piece (proc_single_file_operations, fs/proc/base.c): a read that does not fill the buffer was
// the last.
var single = map[string]bool{"limits": true, "stack": true, "stat": true, "status": true, "syscall": true, "wchan": true}

func openDir(name string) (*dir, error) {
	fd, err := openat(unix.AT_FDCWD, name, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return &dir{fd: fd, buf: make([]byte, 8<<10)}, nil
}

func (d *dir) close() { _ = unix.Close(d.fd) }

func openat(at int, name string, flags int) (int, error) {
	for {
		fd, err := unix.Openat(at, name, flags|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

// file reads a file. What it returns is good until the next call.
func (d *dir) file(name string) ([]byte, error) {
	b, err := d.head(name, largestFile)
	if err == nil && len(b) == largestFile {
		return nil, fmt.Errorf("%s is larger than %d bytes", name, largestFile)
	}
	return b, err
}

// head reads the first bytes of a file. What it returns is good until the next call.
func (d *dir) head(name string, most int) ([]byte, error) {
	fd, err := openat(d.fd, name, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	n := 0
	defer func() { d.bytes += n }()
	for n < most {
		if n == len(d.buf) {
			d.buf = append(d.buf, make([]byte, n)...)
		}
		m, err := unix.Read(fd, d.buf[n:min(len(d.buf), most)])
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return nil, err
		case m == 0:
			return d.buf[:n], nil
		}
		if n += m; single[name] && n < len(d.buf) {
			break
		}
	}
	return d.buf[:n], nil
}

// link reads a link without following it.
func (d *dir) link(name string) (string, error) {
	if d.path == nil {
		d.path = make([]byte, unix.PathMax)
	}
	d.links++
	for {
		n, err := unix.Readlinkat(d.fd, name, d.path)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return "", err
		}
		return string(d.path[:n]), nil
	}
}

// statfs asks the file system of what a name below the root of the process leads to, links followed as the process
// follows them, and returns the number of the mount.
func (d *dir) statfs(name string) (s unix.Statfs_t, mount int, err error) {
	root, err := unix.Openat(d.fd, "root", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return s, 0, err
	}
	defer unix.Close(root)
	fd, err := inRoot(root, name)
	if err != nil {
		return s, 0, err
	}
	defer unix.Close(fd)
	for err = unix.EINTR; errors.Is(err, unix.EINTR); {
		err = unix.Fstatfs(fd, &s)
	}
	if err != nil {
		return s, 0, err
	}
	b, err := os.ReadFile("/proc/self/fdinfo/" + strconv.Itoa(fd))
	if err != nil {
		return s, 0, err
	}
	f, err := parseFDInfo(fd, b)
	return s, f.MountID, err
}

// numbers returns the numbers among the names of a directory; none when it has none. More
// than limit are an error, and the first ones are returned all the same: those of descriptors are in order.
func (d *dir) numbers(name string, limit int) ([]int, error) {
	fd, err := openat(d.fd, name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	names, err := f.Readdirnames(limit + 1)
	if err != nil && !errors.Is(err, io.EOF) { // that of a directory without names
		return nil, err
	}
	err = nil
	if len(names) > limit {
		names, err = names[:limit], fmt.Errorf("more than %d: %w", limit, kernfile.ErrTooMany)
	}
	d.links += len(names)
	var out []int
	for _, s := range names {
		if n, err := strconv.Atoi(s); err == nil {
			out = append(out, n)
		}
	}
	return out, err
}
