package probe

import (
	"path/filepath"
	"regexp"
	"strconv"
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
