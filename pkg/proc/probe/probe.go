package probe

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kernfile"
	"golang.org/x/sys/unix"
)

// maxFiles bounds the descriptors of one process that are looked at.
const maxFiles = 4096

// Main is the helper process of a Prober: it answers the requests that it
// reads from in on out until in ends, and returns its exit status. It opens the
// files that can hang for ever and says so before each of them; whoever asks
// ends it when it does not come back.
//
// Its reads are of the kind that SIGKILL ends. It never follows a link: that
// could leave it asleep in a dead file system, where nothing ends it. What it does
// follow is the way to containerd's records, as containerd does.
func Main(in io.Reader, out io.Writer) int {
	if err := writeFrame(out, reply{Done: true}); err != nil {
		return 1
	}
	for {
		var q request
		if err := readFrame(in, &q); err != nil {
			if errors.Is(err, io.EOF) {
				return 0
			}
			return 1
		}
		p := probe{request: q, out: out}
		p.run()
		if p.dir != nil {
			p.seen.Work = p.dir.bytes>>10 + p.dir.links/16
		}
		if p.err != nil || p.send(reply{Done: true, Seen: p.seen}) != nil {
			return 1
		}
	}
}

// A probe is the work on one request.
type probe struct {
	request
	seen Seen
	dir  *dir // the task's
	// mounted has the names on which something is mounted, when they have been read.
	mounted map[string]bool
	out     io.Writer
	err     error // of the connection to the asker
}

func (p *probe) run() {
	switch p.What {
	case volumes:
		p.volumes()
		return
	case pods:
		p.pods()
		return
	case claims:
		p.claims()
		return
	case places:
		p.places()
		return
	case certificate:
		p.certificate()
		return
	}
	d, err := openDir(filepath.Join(p.Proc, strconv.Itoa(p.PID), "task", strconv.Itoa(p.TID)))
	if err != nil {
		p.note("task", err)
		return
	}
	defer d.close()
	p.dir = d
	switch p.What {
	case Task:
		p.task()
	case Wchan:
		if b := p.file("wchan"); b != nil {
			p.seen.Wchan = parseWchan(b)
		}
	case Shim:
		if b := p.file("cmdline"); b != nil {
			p.seen.ShimID = parseShimCmdline(b)
		}
	case Plugin:
		if b := p.file("environ"); b != nil {
			p.seen.CNI = parsePlugin(b)
		}
	case Limits:
		p.limits()
	case Content:
		p.content()
	case disk:
		p.store()
	case Command:
		if b := p.file("cmdline"); b != nil {
			p.seen.Command = parseCommand(b)
		}
	case PIDNS:
		p.seen.PIDNS, _ = inodeOfLink(p.link("ns/pid"), "pid")
	case Pipes:
		p.pipes()
	case Streams:
		p.streams()
	case Holds:
		p.holds()
	case Uses:
		p.uses()
	case Blocks:
		p.blocks()
	case Outputs:
		p.outputs()
	case Ends:
		p.links("pipe", func(_ int, inode uint64) { p.seen.Pipes = append(p.seen.Pipes, inode) })
		slices.Sort(p.seen.Pipes)
		p.seen.Pipes = slices.Compact(p.seen.Pipes)
	case Sockets:
		p.links("socket", func(_ int, inode uint64) { p.seen.Inodes = append(p.seen.Inodes, inode) })
	case writes:
		p.writes()
	case emptyDirs:
		p.emptyDirs()
	case Scanner:
		p.scanner()
	default:
		p.seen.Errors = append(p.seen.Errors, fmt.Sprintf("unknown request %q", p.What))
	}
}

// task reads everything about a task. The order matters: a file that hangs is
// the last one that is read, so what tells most comes first, and what hangs
// most rarely does so too.
func (p *probe) task() {
	if p.seen.Was = p.moment(); p.seen.Was == nil {
		return
	}
	defer func() { p.seen.Is = p.moment() }()
	if b := p.file("stat"); b != nil {
		s, err := parseStat(b)
		if err != nil {
			p.note("stat", err)
		}
		p.seen.Start, p.seen.Group, p.seen.Terminal, p.seen.Flags, p.seen.Reaped = s.Start, s.Group, s.Terminal, s.Flags, s.Reaped
	}
	if p.seen.Gone {
		return
	}
	if b := p.file("wchan"); b != nil {
		p.seen.Wchan = parseWchan(b)
	}
	if exe := p.link("exe"); exe != "" {
		p.seen.Exe = path.Base(strings.TrimSuffix(exe, " (deleted)"))
	}
	if b := p.file("stack"); b != nil {
		p.seen.Stack = parseStack(b)
	}
	b := p.file("syscall")
	if b == nil {
		return
	}
	c, err := parseSyscall(b)
	if err != nil {
		p.note("syscall", err)
		return
	}
	p.seen.Call = c
	if c.Outside {
		if b := p.file("maps"); b != nil {
			p.seen.Maps = parseMaps(b)
		}
	}
	p.paths()
	for _, o := range Operands(c.Name) {
		if o.FD < 0 {
			continue
		}
		if f, ok := p.descriptor(int(int32(c.Args[o.FD]))); ok {
			p.seen.Files = append(p.seen.Files, f)
		}
	}
}

// moment reads the task's status, nil when that cannot be done.
func (p *probe) moment() *Moment {
	b := p.file("status")
	if b == nil {
		return nil
	}
	s, err := kernfile.ParseStatus(b)
	if err != nil {
		p.note("status", err)
		return nil
	}
	return &Moment{Comm: s.Comm, PID: s.PID, PPID: s.PPID, NSpid: s.NSpid, Switches: s.Switches}
}

// descriptors returns the numbers of the task's open files, by a directory of them. One that
// exits has none while it closes them (exit_files, fs/file.c): of that one nothing is known.
func (p *probe) descriptors(dir string) []int {
	fds, err := p.lowest(dir)
	if err != nil {
		p.note(dir, err)
		return nil
	}
	return fds
}

// lowest returns the same numbers, and where there are too many the lowest ones with an error.
func (p *probe) lowest(dir string) ([]int, error) {
	if !p.announce(dir) {
		return nil, nil
	}
	fds, err := p.dir.numbers(dir, maxFiles)
	if err == nil && len(fds) == 0 && p.link("exe") == "" {
		err = errNoFiles
	}
	return fds, err
}

var errNoFiles = errors.New("no open files, and no program: it exits")

// descriptor reads what an open file of the task is; not ok when it has none of
// this number, or it is none of a file system. Of an instance of epoll, inotify, fanotify or
// io_uring the fdinfo is not opened: anybody may have one that watches a million files, and
// to read of it takes memory for all of them at once (fs/seq_file.c), or waits for what it watches.
func (p *probe) descriptor(fd int) (f OpenFile, ok bool) {
	if fd < 0 {
		return OpenFile{}, false
	}
	number := strconv.Itoa(fd)
	if text, err := p.dir.link("fd/" + number); err != nil || strings.HasPrefix(text, "anon_inode:") {
		if err != nil && !kernfile.Gone(err) {
			p.note("fdinfo", err)
		}
		return OpenFile{}, false
	}
	name := "fdinfo/" + number
	if !p.announce(name) {
		return OpenFile{}, false
	}
	b, err := p.dir.file(name)
	if errors.Is(err, unix.EINVAL) {
		return OpenFile{}, false // the task has left its namespaces
	}
	if err == nil {
		f, err = parseFDInfo(fd, b)
	}
	if err != nil {
		p.note("fdinfo", err)
		return OpenFile{}, false
	}
	return f, true
}

// writable reports whether a descriptor of the task is open for writing, as the mode of its link shows
// (tid_fd_update_inode, fs/proc/fd.c).
func (p *probe) writable(fd int) bool {
	var st unix.Stat_t
	return unix.Fstatat(p.dir.fd, "fd/"+strconv.Itoa(fd), &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Mode&unix.S_IWUSR != 0
}

// pipes reads which pipes the task reads from.
func (p *probe) pipes() {
	p.links("pipe", func(fd int, inode uint64) {
		if !p.writable(fd) {
			p.seen.Pipes = append(p.seen.Pipes, inode)
		}
	})
}

// streams reads which pipes the task writes to as its standard output or error.
func (p *probe) streams() {
	if !p.announce("fd") {
		return
	}
	p.texts([]int{0, 1, 2}, func(fd int, text string) {
		if inode, ok := inodeOfLink(text, "pipe"); ok && p.writable(fd) {
			p.seen.Pipes = append(p.seen.Pipes, inode)
		}
	})
}

// outputs reads of which containers the shim has the output open: the FIFOs into which
// it copies what their processes print (pkg/cio/io_unix.go in containerd, NewFIFOSetInDir).
// It copies from pipes: those that it reads and does not write to are among Pipes.
func (p *probe) outputs() {
	var written []uint64
	for _, fd := range p.descriptors("fd") {
		text := p.link("fd/" + strconv.Itoa(fd))
		if inode, ok := inodeOfLink(text, "pipe"); ok {
			if p.writable(fd) {
				written = append(written, inode)
			} else {
				add(&p.seen.Pipes, inode)
			}
			continue
		}
		switch id, executed := parseOutput(text); {
		case len(id)+len(executed) > maxID:
		case executed != "":
			add(&p.seen.Executed, executed)
		case id != "":
			add(&p.seen.Outputs, id)
		}
	}
	p.seen.Pipes = slices.DeleteFunc(p.seen.Pipes, func(n uint64) bool { return slices.Contains(written, n) })
}

// writes reads which of the pipes the task can write to.
func (p *probe) writes() {
	p.links("pipe", func(fd int, inode uint64) {
		if slices.Contains(p.Pipes, inode) && p.writable(fd) {
			add(&p.seen.Pipes, inode)
		}
	})
}

// opened calls do with the descriptors of the task and the texts of their links.
func (p *probe) opened(do func(fd int, text string)) { p.texts(p.descriptors("fd"), do) }

// texts calls do with some descriptors of the task and the texts of their links.
func (p *probe) texts(fds []int, do func(fd int, text string)) {
	for _, fd := range fds {
		text, err := p.dir.link("fd/" + strconv.Itoa(fd))
		if err != nil {
			if !kernfile.Gone(err) {
				p.note("fd", err)
			}
			continue
		}
		do(fd, text)
	}
}

// links calls do with those that are of a kind, pipe or socket.
func (p *probe) links(kind string, do func(fd int, inode uint64)) {
	p.opened(func(fd int, text string) {
		if inode, ok := inodeOfLink(text, kind); ok {
			do(fd, inode)
		}
	})
}

// add adds what is not there yet.
func add[T comparable](to *[]T, v T) {
	if !slices.Contains(*to, v) {
		*to = append(*to, v)
	}
}

// parseOutput returns the ID in the path of a container's FIFO, ID-stdout or ID-stderr; ""
// for other paths. executed is the ID of the container when the FIFO is that of a process
// which was executed in it, which has an ID of its own: the CRI plugin keeps both kinds in
// directories below CONTAINER/io (internal/cri/io/helpers.go, newFifos).
func parseOutput(file string) (id, executed string) {
	name := path.Base(file)
	for _, stream := range []string{"-stdout", "-stderr"} {
		id, ok := strings.CutSuffix(strings.TrimSuffix(name, " (deleted)"), stream)
		if !ok {
			continue
		}
		if dir := path.Dir(path.Dir(file)); path.Base(dir) == "io" && path.Base(path.Dir(dir)) != id {
			return "", path.Base(path.Dir(dir))
		}
		return id, ""
	}
	return "", ""
}

// paths reads the path arguments of the blocked call out of the task's memory.
func (p *probe) paths() {
	for _, o := range Operands(p.seen.Call.Name) {
		if o.Path < 0 {
			continue
		}
		if !p.announce("memory") {
			return
		}
		text, err := readString(p.TID, p.seen.Call.Args[o.Path])
		if errors.Is(err, unix.EFAULT) {
			return // no such address any more, as after execve
		}
		if err != nil {
			p.note("memory", err)
			return
		}
		// An absolute path, or one relative to the working directory or to a
		// descriptor. An empty one stands for the descriptor itself
		// (AT_EMPTY_PATH).
		via, base, mountID := "path", "", 0
		if len(text) == 0 || text[0] != '/' {
			via, base = "working directory", "cwd"
			if o.DirFD >= 0 {
				if fd := int32(p.seen.Call.Args[o.DirFD]); fd != unix.AT_FDCWD {
					via, base = fmt.Sprintf("fd %d", fd), fmt.Sprintf("fd/%d", fd)
					if f, ok := p.descriptor(int(fd)); ok {
						mountID = f.MountID
					}
				}
			}
		}
		full := string(text)
		if base != "" {
			dir := p.link(base)
			if !path.IsAbs(dir) || strings.HasSuffix(dir, " (deleted)") {
				return // unknown, unreachable or removed
			}
			full = dir + "/" + full
		}
		p.seen.Paths = append(p.seen.Paths, CallPath{Path: []byte(full), Via: via, MountID: mountID})
	}
}

// announce tells the asker which file is opened next.
func (p *probe) announce(name string) bool {
	if p.err == nil {
		p.err = p.send(reply{Opening: name, Seen: p.seen})
	}
	return p.err == nil
}

// send answers. What was read of a task may be too large for an answer, which then says so: that
// is no reason to end, because others are asked about next.
func (p *probe) send(r reply) error {
	err := writeFrame(p.out, r)
	if errors.Is(err, errTooLarge) {
		p.seen = Seen{TooLarge: true, Work: r.Seen.Work}
		r.Seen = p.seen
		err = writeFrame(p.out, r)
	}
	return err
}

// file reads a file of the task; nil when there is nothing.
func (p *probe) file(name string) []byte {
	if !p.announce(name) {
		return nil
	}
	b, err := p.dir.file(name)
	if err != nil {
		p.note(name, err)
		return nil
	}
	return b
}

// link reads a link of the task without following it; "" when there is none.
func (p *probe) link(name string) string {
	if !p.announce(name) {
		return ""
	}
	text, err := p.dir.link(name)
	// Kernel threads, zombies and exiting tasks have no exe: their other files
	// answer.
	if err != nil && !kernfile.Gone(err) {
		p.note(name, err)
	}
	return text
}

func (p *probe) note(name string, err error) {
	switch {
	case kernfile.Gone(err):
		p.seen.Gone = p.seen.Gone || name == "task" || name == "stat" || name == "status"
	case kernfile.Denied(err):
		if !slices.Contains(p.seen.Denied, name) {
			p.seen.Denied = append(p.seen.Denied, name)
		}
	case errors.Is(err, kernfile.ErrTooMany), errors.Is(err, unix.ENAMETOOLONG):
		p.seen.Beyond = fmt.Sprintf("read %s of task %d: %v", name, p.TID, err)
	default:
		p.seen.Errors = append(p.seen.Errors, fmt.Sprintf("read %s of task %d: %v", name, p.TID, err))
	}
}

// readString reads a string that ends with a NUL out of a task's memory. It
// reads up to the end of a page and goes on to the next one only when the string
// does: the page behind it may be one that hangs its reader.
func readString(tid int, addr uint64) ([]byte, error) {
	var out []byte
	page := uint64(os.Getpagesize())
	for len(out) < unix.PathMax {
		n := min(page-addr%page, uint64(unix.PathMax-len(out)))
		buf := make([]byte, n)
		local := []unix.Iovec{{Base: &buf[0]}}
		local[0].SetLen(len(buf))
		remote := []unix.RemoteIovec{{Base: uintptr(addr), Len: len(buf)}}
		got, err := unix.ProcessVMReadv(tid, local, remote, 0)
		if err != nil {
			return nil, fmt.Errorf("string at %#x: %w", addr, err)
		}
		if i := bytes.IndexByte(buf[:got], 0); i >= 0 {
			return append(out, buf[:i]...), nil
		}
		if got < len(buf) {
			break
		}
		out = append(out, buf...)
		addr += n
	}
	return nil, fmt.Errorf("string at %#x has no end", addr)
}

// parseShimCmdline gives the -id argument of a shim's command line, which is
// the sandbox's ID. The other arguments are dropped here.
func parseShimCmdline(b []byte) string {
	args := strings.Split(strings.TrimRight(string(b), "\x00"), "\x00")
	for i, a := range args {
		name, value, inline := strings.Cut(a, "=")
		if i == 0 || name != "-id" && name != "--id" {
			continue
		}
		if !inline && i+1 < len(args) {
			value = args[i+1]
		}
		if len(value) > maxID {
			return ""
		}
		return value
	}
	return ""
}

// parsePlugin gives what a CNI plugin was asked for. Everything else in the
// environment is dropped here, and so is what is longer than it can be.
func parsePlugin(b []byte) CNI {
	var c CNI
	for v := range strings.SplitSeq(string(b), "\x00") {
		name, value, _ := strings.Cut(v, "=")
		switch {
		case name == "CNI_ARGS":
			c.PodUID = podOfArgs(value)
		case len(value) > maxID:
		case name == "CNI_COMMAND":
			c.Command = value
		case name == "CNI_CONTAINERID":
			c.ContainerID = value
		}
	}
	return c
}

// podOfArgs returns the pod's UID out of CNI_ARGS, as in IgnoreUnknown=1;K8S_POD_UID=UID: no value
// there has a semicolon.
func podOfArgs(args string) string {
	for arg := range strings.SplitSeq(args, ";") {
		if uid, ok := strings.CutPrefix(arg, "K8S_POD_UID="); ok && len(uid) <= maxID {
			return uid
		}
	}
	return ""
}

// maxID bounds what is kept of an ID that a process has in its arguments, its environment or the
// names of its files, in bytes: that of a container has 64.
const maxID = 128

// inodeOfLink gives the number in the text of a link to what has no path, as in
// pid:[4026531836] or pipe:[12345].
func inodeOfLink(text, kind string) (uint64, bool) {
	s, ok := strings.CutPrefix(text, kind+":[")
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(strings.TrimSuffix(s, "]"), 10, 64)
	return n, err == nil
}
