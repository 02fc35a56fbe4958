package probe

import (
	"bytes"
	"errors"
	"strconv"

	"golang.org/x/sys/unix"
)

// scanner reads whether the task has a group of fanotify open that is asked before others open, read or execute a
// file (FAN_CLASS_CONTENT and FAN_CLASS_PRE_CONTENT, fanotify_init(2)). Of its open files only these groups are read.
// One that does not answer has each file open that it has been asked about, and its group from before.
func (p *probe) scanner() {
	fds, few := p.lowest("fd")
	defer func() {
		if few != nil && !p.seen.Scans {
			p.note("fd", few)
		}
	}()
	p.texts(fds, func(fd int, text string) {
		name := "fdinfo/" + strconv.Itoa(fd)
		if text != "anon_inode:[fanotify]" || p.seen.Scans || !p.mayScan() || !p.announce(name) {
			return
		}
		b, err := p.dir.head(name, maxMarks)
		if err != nil {
			p.note("fdinfo", err)
			return
		}
		p.seen.Scans = asksPermission(b, len(b) == maxMarks)
	})
}

// mayScan reports whether the task has, or had, what it takes to be asked: CAP_SYS_ADMIN in the first user namespace
// (fanotify_init in fs/notify/fanotify/fanotify_user.c). Anybody may have a group that is told only, with a million marks, and
// to read its fdinfo takes memory for all of them at once (fs/seq_file.c), of this process. Of one that is not read
// nothing is known.
func (p *probe) mayScan() bool {
	status, ns := p.file("status"), p.link("ns/user")
	if status == nil || ns == "" {
		return false
	}
	if inode, ok := inodeOfLink(ns, "user"); !ok || inode != firstUserNS || !bounded(status).may(unix.CAP_SYS_ADMIN) {
		if p.seen.Errors == nil {
			p.note("fdinfo", errUnprivileged)
		}
		return false
	}
	return true
}

var errUnprivileged = errors.New("a group of fanotify's of a process without CAP_SYS_ADMIN")

// firstUserNS is the inode of the user namespace in which a kernel starts (PROC_USER_INIT_INO, include/linux/proc_ns.h).
const firstUserNS = 0xEFFFFFFD

// capabilities are a set of these, by number.
type capabilities uint64

func (c capabilities) may(n uint) bool { return c>>n&1 != 0 }

// bounded returns the capabilities that a task, and what it executes, can have, out of its status: those that it has dropped
// are among them.
func bounded(status []byte) capabilities {
	for line := range bytes.Lines(status) {
		if rest, ok := bytes.CutPrefix(line, []byte("CapBnd:")); ok {
			n, err := strconv.ParseUint(string(bytes.TrimSpace(rest)), 16, 64)
			if err != nil {
				return 0
			}
			return capabilities(n)
		}
	}
	return 0
}

// maxMarks bounds what is read of a group's fdinfo, in bytes: it has a line of a hundred bytes or more for each mark.
const maxMarks = 64 << 10

// The classes of a group that can ask, and the events that do (include/uapi/linux/fanotify.h).
const (
	askingClasses = unix.FAN_CLASS_CONTENT | unix.FAN_CLASS_PRE_CONTENT
	askingEvents  = unix.FAN_OPEN_PERM | unix.FAN_ACCESS_PERM | unix.FAN_OPEN_EXEC_PERM | 0x100000 // FAN_PRE_ACCESS
)

// asksPermission reports whether a group of fanotify is asked, by its fdinfo (fanotify_show_fdinfo in fs/notify/
// fdinfo.c): the class allows it, and a mark has an event that does. Where not all marks were read, one of the rest may.
func asksPermission(b []byte, cut bool) bool {
	class := false
	for line := range bytes.Lines(b) {
		rest, ok := bytes.CutPrefix(line, []byte("fanotify "))
		if !ok {
			continue
		}
		for field := range bytes.FieldsSeq(rest) {
			key, v, _ := bytes.Cut(field, []byte(":"))
			n, err := strconv.ParseUint(string(v), 16, 64)
			switch {
			case err != nil:
			case string(key) == "flags":
				class = n&askingClasses != 0
			case string(key) == "mask" && n&askingEvents != 0 && class:
				return true
			}
		}
	}
	return class && cut
}
