package probe

import (
	"path/filepath"
	"slices"
)

// holds reads which mounts a task of the host's mount namespace uses. Of a task in
// another one nothing is read: a mount there is another mount, and keeps none of the
// host's busy.
func (p *probe) holds() {
	first, err := openDir(filepath.Join(p.Proc, "1"))
	if err != nil {
		p.note("ns/mnt", err)
		return
	}
	defer first.close()
	if !p.announce("ns/mnt") {
		return
	}
	host, err := first.link("ns/mnt")
	if err != nil {
		p.note("ns/mnt", err)
		return
	}
	if p.link("ns/mnt") != host {
		return
	}
	p.seen.InHost = true
	p.seen.Dirs = make(map[string]string, 3)
	for _, name := range []string{"cwd", "root", "exe"} {
		if text := p.link(name); text != "" {
			p.seen.Dirs[name] = text
		}
	}
	if !p.announce("fdinfo") {
		return
	}
	fds, err := p.dir.numbers("fdinfo", maxFiles)
	if err != nil {
		p.note("fdinfo", err)
		return
	}
	for _, fd := range fds {
		if f, ok := p.descriptor(fd); ok && !slices.Contains(p.seen.Mounts, f.MountID) {
			p.seen.Mounts = append(p.seen.Mounts, f.MountID)
		}
	}
}
