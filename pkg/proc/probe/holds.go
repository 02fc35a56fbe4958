package probe

import (
	"fmt"
	"path"
	"path/filepath"
	"regexp"
	"strconv"

	"golang.org/x/sys/unix"
)

// holds reads which mounts a task of the host's mount namespace uses. Of a task in
// another one only that is read: a mount there is another mount.
func (p *probe) holds() {
	host, own := p.namespaces()
	switch {
	case host == "" || own == "":
	case own != host:
		p.seen.Namespace = own
	default:
		p.seen.InHost = true
		p.uses()
	}
}

// namespaces returns the texts of the links to the mount namespaces of the first process and
// of the task, "" for one that could not be read.
func (p *probe) namespaces() (host, own string) {
	first, err := openDir(filepath.Join(p.Proc, "1"))
	if err != nil {
		p.note("ns/mnt", err)
		return "", ""
	}
	defer first.close()
	if !p.announce("ns/mnt") {
		return "", ""
	}
	if host, err = first.link("ns/mnt"); err != nil {
		p.note("ns/mnt", err)
		return "", ""
	}
	return host, p.link("ns/mnt")
}

// uses reads which mounts the task uses.
func (p *probe) uses() {
	p.seen.Dirs = make(map[string]string, 3)
	for _, name := range []string{"cwd", "root", "exe"} {
		if text := p.link(name); text != "" {
			p.seen.Dirs[name] = text
		}
	}
	for _, fd := range p.descriptors("fdinfo") {
		f, ok := p.descriptor(fd)
		if !ok {
			continue
		}
		add(&p.seen.Mounts, f.MountID)
		if !f.onlyPath() {
			p.loop(f)
		}
	}
}

// blocks reads which loop devices a task has open that is in a mount namespace of its own.
// There a path tells nothing, and the file itself is asked for its number: of one that is called
// as loop devices are, and without asking a server (AT_STATX_DONT_SYNC, statx(2)).
func (p *probe) blocks() {
	host, own := p.namespaces()
	if host == "" || own == "" || host == own {
		return
	}
	for _, fd := range p.descriptors("fd") {
		text, err := p.dir.link("fd/" + strconv.Itoa(fd))
		if err != nil || !loopDevice.MatchString("/dev/"+path.Base(text)) || len(p.seen.Blocks) == maxLoops {
			continue
		}
		if f, ok := p.descriptor(fd); !ok || f.onlyPath() {
			continue
		}
		if number := p.number(fd); number != "" {
			add(&p.seen.Blocks, number)
		}
	}
}

// number returns the number of a block device that the task has open, "" for another file.
func (p *probe) number(fd int) string {
	st, ok := p.statx(fd, unix.STATX_TYPE)
	if !ok || st.Mode&unix.S_IFMT != unix.S_IFBLK {
		return ""
	}
	return fmt.Sprintf("%d:%d", st.Rdev_major, st.Rdev_minor)
}

// statx asks an open file of the task for what the mask names, and no server.
func (p *probe) statx(fd, mask int) (st unix.Statx_t, ok bool) {
	name := "fd/" + strconv.Itoa(fd)
	if !p.announce(name) {
		return st, false
	}
	if err := unix.Statx(p.dir.fd, name, unix.AT_STATX_DONT_SYNC, mask, &st); err != nil {
		p.note("fd", err)
		return st, false
	}
	return st, true
}

// An OpenLoop is an open file by the text of its link, which is that of a loop device, and
// the mount that it is on: the text alone could be that of a file of any pod.
type OpenLoop struct {
	Path    string `json:"path"`
	MountID int    `json:"mountID"`
}

// maxLoops bounds the loop devices that a process is told to have open.
const maxLoops = 64

// loop notes an open file that is called as a loop device is. A link is a text that the
// kernel makes of its own records: no file system is asked.
func (p *probe) loop(f OpenFile) {
	text, err := p.dir.link("fd/" + strconv.Itoa(f.FD))
	if err != nil || len(p.seen.Loops) == maxLoops {
		return // closed meanwhile, or not to be read, of which the other files tell
	}
	if loopDevice.MatchString(text) {
		add(&p.seen.Loops, OpenLoop{Path: text, MountID: f.MountID})
	}
}

// loopDevice is what a loop device is called, or a partition of one.
var loopDevice = regexp.MustCompile(`^/dev/loop[0-9]{1,7}(p[0-9]{1,3})?$`)
