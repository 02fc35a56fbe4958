package probe

import (
	"context"
	"path"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Place asks which of some directories of the host is the kubelet's, and what it is called without links, as the mount table has it:
// the first one with the directory of a pod, by its UID, or of any pod where that is ""; "" for none.
func (p *Prober) Place(ctx context.Context, proc, pod string, of ...string) (string, error) {
	saw, err := p.askDir(ctx, request{What: places, Proc: proc, PID: 1, TID: 1, Owner: "kubelet", Pod: pod, Places: of})
	return saw.Place, err
}

func (p *probe) places() {
	root, err := unix.Open(filepath.Join(p.Proc, "1", "root"), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		p.note("root", err)
		return
	}
	defer unix.Close(root)
	for _, name := range p.Places {
		if !p.announce(name) {
			return
		}
		way, err := follow(root, name)
		if err != nil || p.Pod != "" && path.Base(p.Pod) != p.Pod {
			continue
		}
		if way = append(way, "pods"); isDir(root, way) && (p.Pod == "" || isDir(root, append(way, p.Pod))) {
			p.seen.Place = "/" + path.Join(way[:len(way)-1]...)
			return
		}
	}
}

// isDir reports whether a name is a directory, and no link.
func isDir(root int, way []string) bool {
	fd, err := openBelow(root, way)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	var s unix.Stat_t
	return unix.Fstat(fd, &s) == nil && s.Mode&unix.S_IFMT == unix.S_IFDIR
}
