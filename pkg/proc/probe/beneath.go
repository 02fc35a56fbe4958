package probe

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// beneath opens a name below an open directory, whose own name on the host is base. No link is followed, nothing above the directory is
// reached, and with oneMount no mount is crossed: what is mounted below is not touched.
//
// openat2(2) does that since Linux 5.6. Where it is missing, or refused as by a seccomp profile, the way is gone name by name, and a name on
// which something is mounted is refused by the mount table of the first process. That something is mounted there between the two
// is what this cannot see.
func (p *probe) beneath(at int, base, name string, flags uint64, oneMount bool) (int, error) {
	resolve := uint64(unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_BENEATH)
	if oneMount {
		resolve |= unix.RESOLVE_NO_XDEV
	}
	fd, err := unix.Openat2(at, name, &unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: resolve})
	if !unserved(err) {
		return fd, err
	}
	var mounts map[string]bool
	if oneMount {
		if mounts, err = p.mountPoints(); err != nil {
			return -1, err
		}
	}
	return walk(at, base, name, int(flags), mounts)
}

// unserved reports whether there is no openat2, or none for this process: it returns EPERM for nothing else that is asked of it here.
func unserved(err error) bool { return errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) }

// walk opens a name below an open directory, name by name.
func walk(at int, base, name string, flags int, mounts map[string]bool) (int, error) {
	fd := at
	names := strings.Split(name, "/")
	for i, n := range names {
		if n == "" || n == "." || n == ".." {
			return closed(fd, at, unix.EXDEV)
		}
		base = path.Join(base, n)
		if mounts[base] {
			return closed(fd, at, unix.EXDEV)
		}
		how := unix.O_PATH | unix.O_DIRECTORY
		if i == len(names)-1 {
			how = flags
		}
		next, err := openat(fd, n, how)
		if errors.Is(err, unix.ENOTDIR) && isLink(fd, n) {
			err = unix.ELOOP // as openat2 has it: a link to a directory is not an absent one
		}
		if err != nil {
			return closed(fd, at, err)
		}
		if fd != at {
			_ = unix.Close(fd) // nothing was written
		}
		fd = next
	}
	return fd, nil
}

// closed closes what the walk has opened.
func closed(fd, at int, err error) (int, error) {
	if fd != at {
		_ = unix.Close(fd) // nothing was written
	}
	return -1, err
}

func isLink(at int, name string) bool {
	var s unix.Stat_t
	return unix.Fstatat(at, name, &s, unix.AT_SYMLINK_NOFOLLOW) == nil && s.Mode&unix.S_IFMT == unix.S_IFLNK
}

// largestMountinfo bounds what is read of it, in bytes.
const largestMountinfo = 4 << 20

// mountPoints returns the names on which something is mounted in the mount namespace of the first process (proc_pid_mountinfo(5)).
func (p *probe) mountPoints() (map[string]bool, error) {
	if p.mounted != nil {
		return p.mounted, nil
	}
	f, err := os.Open(filepath.Join(p.Proc, "1", "mountinfo"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	// A container with mounts that spread may make any number of them.
	b, err := io.ReadAll(io.LimitReader(f, largestMountinfo+1))
	if err == nil && len(b) > largestMountinfo {
		err = fmt.Errorf("mountinfo of process 1 is larger than %d bytes", largestMountinfo)
	}
	if err != nil {
		return nil, err
	}
	p.mounted = make(map[string]bool)
	for line := range bytes.Lines(b) {
		if f := bytes.Fields(line); len(f) > 4 {
			p.mounted[unescaped(string(f[4]))] = true
		}
	}
	return p.mounted, nil
}

// unescaped is a name of mountinfo, in which a blank, a tab, a newline and a backslash are octal.
func unescaped(name string) string {
	var b strings.Builder
	for {
		before, after, ok := strings.Cut(name, `\`)
		b.WriteString(before)
		if !ok {
			return b.String()
		}
		if len(after) < 3 {
			return b.String() + `\` + after
		}
		code, err := strconv.ParseUint(after[:3], 8, 8)
		if err != nil {
			b.WriteByte('\\')
			name = after
			continue
		}
		b.WriteByte(byte(code))
		name = after[3:]
	}
}

// mostLinks is how many links a name may lead over, as for the kernel (MAXSYMLINKS).
const mostLinks = 40

// inRoot opens a name with the links in it followed as a process with that root follows them, as RESOLVE_IN_ROOT of openat2(2) does.
func inRoot(root int, name string) (int, error) {
	fd, err := unix.Openat2(root, name, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT})
	if !unserved(err) {
		return fd, err
	}
	way, err := follow(root, name)
	if err != nil {
		return -1, err
	}
	return openBelow(root, way)
}

// follow returns where a name leads when the links in it are followed so: names of which none is a link, at least one.
func follow(root int, name string) ([]string, error) {
	var way []string
	todo := strings.Split(name, "/")
	for links := 0; len(todo) > 0; {
		n := todo[0]
		todo = todo[1:]
		switch n {
		case "", ".":
			continue
		case "..":
			way = way[:max(len(way)-1, 0)]
			continue
		}
		target, err := linkBelow(root, append(way, n))
		switch {
		case err != nil:
			return nil, err
		case target == "":
			way = append(way, n)
			continue
		case links == mostLinks:
			return nil, unix.ELOOP
		}
		links++
		if strings.HasPrefix(target, "/") {
			way = nil
		}
		todo = append(strings.Split(target, "/"), todo...)
	}
	if len(way) == 0 {
		way = []string{"."}
	}
	return way, nil
}

// linkBelow returns what a link leads to, "" for what is none.
func linkBelow(root int, way []string) (string, error) {
	fd, err := openBelow(root, way)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	var s unix.Stat_t
	if err := unix.Fstat(fd, &s); err != nil || s.Mode&unix.S_IFMT != unix.S_IFLNK {
		return "", err
	}
	b := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, "", b)
	return string(b[:max(n, 0)]), err
}

// openBelow opens a name whose parts are no links, but perhaps for the last, which is not followed.
func openBelow(root int, way []string) (int, error) {
	fd := root
	for _, n := range way {
		next, err := openat(fd, n, unix.O_PATH)
		if fd != root {
			_ = unix.Close(fd) // nothing was written
		}
		if err != nil {
			return -1, err
		}
		fd = next
	}
	return fd, nil
}
