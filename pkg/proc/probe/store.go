package probe

import (
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// database is where containerd keeps what it knows, below its root directory, and has it open for as long
// as it runs (plugins/metadata/plugin.go in github.com/containerd/containerd).
const database = "/io.containerd.metadata.v1.bolt/meta.db"

// A Store is the file system of containerd's root directory (statfs(2)).
type Store struct {
	// Root is containerd's root directory as it names it, such as /var/lib/containerd.
	Root string `json:"root,omitempty"`
	// ReadOnly reports whether the file system, or its mount, is read-only.
	ReadOnly bool `json:"readOnly,omitempty"`
	// Size and Free are in bytes; those that only root may use are free.
	Size int64 `json:"size,omitempty"`
	Free int64 `json:"free,omitempty"`
	// Inodes is how many there can be, 0 where the file system has no such number.
	Inodes     int64 `json:"inodes,omitempty"`
	FreeInodes int64 `json:"freeInodes,omitempty"`
}

// store asks the file system of containerd's root directory, as containerd gets there, how full it is; of a
// process that does not have such a database open nothing is told.
func (p *probe) store() {
	for _, fd := range p.descriptors("fd") {
		name := "fd/" + strconv.Itoa(fd)
		text, err := p.dir.link(name)
		root, is := strings.CutSuffix(text, database)
		if err != nil || !is {
			continue // it has closed it, or it is another file
		}
		name = "root" + root
		if !p.announce(name) {
			return
		}
		s, err := p.dir.statfs(name)
		if err != nil {
			p.note(name, err)
			return
		}
		free := int64(s.Bavail)
		if s.Type == unix.EXT4_SUPER_MAGIC {
			// What only root may use is not among the available ones, and what nobody may use, kept for its
			// own records, is among the free ones (fs/ext4/super.c, ext4_calculate_resv_clusters, ext4_statfs).
			free = max(0, int64(s.Bfree)-min(int64(s.Blocks)/50, 4096))
		}
		p.seen.Store = Store{
			Root: root, ReadOnly: s.Flags&unix.ST_RDONLY != 0, Size: int64(s.Blocks) * s.Frsize, Free: free * s.Frsize,
			Inodes: int64(s.Files), FreeInodes: int64(s.Ffree),
		}
		return
	}
}
