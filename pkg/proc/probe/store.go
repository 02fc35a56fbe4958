package probe

import (
	"bytes"
	"errors"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// database is where containerd keeps what it knows, below its root directory, and has it open for as long
// as it runs (plugins/metadata/plugin.go in github.com/containerd/containerd).
const database = "/io.containerd.metadata.v1.bolt/meta.db"

// records is where containerd's CRI plugin has a directory of each container, below the root directory
// (internal/cri/config/config.go, internal/cri/server/helpers.go).
const records = "/io.containerd.grpc.v1.cri/containers"

// opensEarly is above the number of that open file: containerd opens it as it starts.
const opensEarly = 1024

// A Store is the file system of a directory (statfs(2)).
type Store struct {
	// Dir is the directory as its process names it: that of containerd's records below its root directory, such as
	// /var/lib/containerd.
	Dir string `json:"dir,omitempty"`
	// ReadOnly reports whether the file system, or its mount, is read-only.
	ReadOnly bool `json:"readOnly,omitempty"`
	// Size and Free are in bytes; those that only root may use are free.
	Size int64 `json:"size,omitempty"`
	Free int64 `json:"free,omitempty"`
	// Inodes is how many there can be, 0 where the file system has no such number.
	Inodes     int64 `json:"inodes,omitempty"`
	FreeInodes int64 `json:"freeInodes,omitempty"`
}

// store asks the file system of a directory, as the process gets there, how full it is. Without a name it is that of
// containerd's records; of a process that does not have containerd's database open nothing is told then.
func (p *probe) store() {
	if p.Dir != "" {
		p.measure(p.Dir)
		return
	}
	for fd := range opensEarly {
		text, err := p.dir.link("fd/" + strconv.Itoa(fd))
		root, is := strings.CutSuffix(text, database)
		if err != nil || !is {
			continue // there is none, or it is another file
		}
		p.measure(root+records, root)
		return
	}
}

// measure asks the file system of the first of some directories that there is.
func (p *probe) measure(dirs ...string) {
	for i, dir := range dirs {
		if !p.announce("root" + dir) {
			return
		}
		s, id, err := p.dir.statfs(dir)
		if errors.Is(err, unix.ENOENT) && i+1 < len(dirs) {
			continue
		}
		if err != nil {
			p.note("root"+dir, err)
			return
		}
		free := int64(s.Bavail)
		if s.Type == unix.EXT4_SUPER_MAGIC || s.Type == unix.OVERLAYFS_SUPER_MAGIC {
			// What only root may use is not among the available ones, and what nobody may use, kept for its
			// own records, is among the free ones of ext4 (fs/ext4/super.c, ext4_calculate_resv_clusters, ext4_statfs).
			free = max(free, int64(s.Bfree)-min(int64(s.Blocks)/50, 4096))
		}
		p.seen.Store = Store{
			Dir: dir, ReadOnly: s.Flags&unix.ST_RDONLY != 0 || p.stopped(id), Size: int64(s.Blocks) * s.Frsize, Free: free * s.Frsize,
			Inodes: int64(s.Files), FreeInodes: int64(s.Ffree),
		}
		return
	}
}

// stopped reports whether the file system of a mount has stopped to write after an error, which ext4 does not tell
// by the flag for read-only ones since Linux 6.12, but among its options (fs/ext4/super.c, _ext4_show_options).
func (p *probe) stopped(mount int) bool {
	return hasStopped(p.file("mountinfo"), mount)
}

// hasStopped parses a mountinfo file: the number of a mount comes first, and the options of its file system last
// (proc_pid_mountinfo(5)).
func hasStopped(mountinfo []byte, mount int) bool {
	for line := range bytes.Lines(mountinfo) {
		id, _, _ := bytes.Cut(line, []byte(" "))
		if string(id) != strconv.Itoa(mount) {
			continue
		}
		f := bytes.Fields(line)
		for _, option := range bytes.Split(f[len(f)-1], []byte(",")) {
			if string(option) == "emergency_ro" || string(option) == "shutdown" {
				return true
			}
		}
	}
	return false
}
