package proc

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kernfile"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/mount"
	"github.com/nodeagent-io/nodeagent/pkg/proc/probe"
)

// culprit finds the mount that a blocked call works on. A wrong one sends an
// operator to repair what is not broken, so there is none when the evidence
// leaves a doubt:
//
//   - a call on a descriptor: the mount that it was opened on (fdinfo), also one that
//     only another process of the pod sees, from which the task has the descriptor,
//     and that of a directory like this to which a path is relative;
//   - a call on a path: the mount that the path lies on, by name. Links are not
//     followed, so that a kernel stack of another kind of file system refutes it,
//     and a path with .. in it is not used at all;
//   - a page fault: the device of the mapped files, when only one fits;
//   - else, close and exit among them, for a task that waits for a FUSE daemon:
//     the only connection mounted where the task is that has requests waiting;
//   - else, for one that waits for a file server: nothing, but the mounts that it
//     can be are listed, with what is seen of each one's server.
func (h *Host) culprit(s *kernfile.TaskStatus, saw *probe.Seen, t *tables, uid string) error {
	e := s.Probe
	for _, p := range saw.Paths {
		if point, ok := t.mounts.Volume(path.Clean(string(p.Path))); ok && !climbs(string(p.Path)) {
			e.VolumePath, e.Relative = kernfile.Printable(point), strings.HasPrefix(p.Via, "fd ")
		}
	}
	if s.State == evidence.Zombie || s.State == evidence.Runnable || saw.Flags&evidence.PFExiting != 0 && len(saw.Stack) == 0 {
		return nil
	}
	if !e.Fault && len(saw.Paths)+len(saw.Files) == 0 && len(stackTypes(saw)) == 0 {
		return nil // it works on no file, and waits for no file system: its mounts tell nothing
	}
	// A host table that cannot be read is told of as missing Mounts.
	host, _ := t.mounts.Host()
	if host != nil && !host.Whole() {
		host = nil // another mount could be the better answer
	}
	own, err := t.of(&s.Task)
	switch {
	case err == nil:
	case kernfile.Gone(err) || kernfile.NoNamespaces(err):
		// A task that has left its namespaces has none, and may yet wait.
		own = &mount.Table{}
	default:
		return fmt.Errorf("read mountinfo of task %d: %w%s", s.TID, err, grant("mountinfo", err))
	}
	if m, via := byCall(own, t.opened(s, own, saw), saw, e.Fault); m != nil {
		on := t.mounts.MountOfTask(m, host, uid)
		if !refutes(saw, on) {
			e.Mount, e.Via, e.Indirect = on, via, len(saw.Paths) > 0 && !e.Fault
			return nil
		}
	}
	if m := h.onlyWaitingFUSE(own, host, saw); m != nil {
		e.Mount, e.Via, e.Indirect = t.mounts.MountOfTask(m, host, uid), "only FUSE connection here with requests waiting", true
		return nil
	}
	e.Candidates = t.candidates(s, own, host, saw, uid)
	return nil
}

// byCall finds the mount of what the blocked call works on, or of the page that a fault
// waits for. Opened is the table of what its descriptors are on.
func byCall(own, opened *mount.Table, saw *probe.Seen, fault bool) (m *mount.Line, via string) {
	switch {
	case fault:
		return mapped(own, saw), "mapped file"
	case pageFault(saw.Stack):
		// The call itself waits for a page of the task's memory, which need
		// not be on what the call works on.
		return nil, ""
	case slices.Contains(saw.Stack, "do_exit"):
		// SIGKILL has ended the call, and the task may still have the files that it
		// worked on.
		return nil, ""
	case len(saw.Paths) > 0 && opened != own:
		return byDirectories(opened, saw)
	case len(saw.Paths) > 0:
		return byPaths(own, saw)
	}
	return byDescriptors(opened, saw)
}

// opened returns a table that has the mounts of the descriptors that a blocked call works on,
// as far as the task or another process of the pod sees them, in which they were opened then. The
// kernel gives each mount a number of its own, whatever namespace it is in (mnt_alloc_id,
// fs/namespace.c). gVisor's sentry sees no mount of the pod, and has descriptors of what its
// gofers see.
func (t *tables) opened(s *kernfile.TaskStatus, own *mount.Table, saw *probe.Seen) *mount.Table {
	var ids []int
	for _, f := range saw.Files {
		ids = append(ids, f.MountID)
	}
	for _, p := range saw.Paths {
		if p.MountID != 0 {
			ids = append(ids, p.MountID)
		}
	}
	if s.State != evidence.Uninterruptible || !slices.ContainsFunc(ids, func(id int) bool { return own.ByID(id) == nil }) {
		return own
	}
	var on mount.Table
	for _, id := range ids {
		m := own.ByID(id)
		for _, first := range t.besides(s) {
			if m != nil {
				break
			}
			if table, err := t.of(first); err == nil {
				m = table.ByID(id)
			}
		}
		if m != nil {
			on.Lines = append(on.Lines, *m)
		}
	}
	return &on
}

// maxBesides bounds the threads of a pod among which besides looks for processes.
const maxBesides = 512

// besides returns the processes of a task's pod that may see more mounts than it: those that
// somebody outside has started.
func (t *tables) besides(s *kernfile.TaskStatus) []*evidence.Task {
	if t.first != nil || !s.InPod() {
		return t.first
	}
	if known, ok := t.others[s.Owner]; ok {
		return known
	}
	if t.others == nil {
		t.others = make(map[string][]*evidence.Task)
	}
	t.others[s.Owner] = nil
	groups, err := t.podGroups.Pod(s.Owner, false)
	files, failed := kernfile.Open(t.Proc)
	if err != nil || failed != nil {
		return nil
	}
	defer files.Close()
	var tasks []kernfile.TaskStatus
	for _, g := range groups {
		for _, tid := range g.TIDs[:min(len(g.TIDs), maxBesides-len(tasks))] {
			if one, err := files.TaskStatus(tid); err == nil {
				tasks = append(tasks, one)
			}
		}
	}
	t.others[s.Owner] = startedOutside(tasks)
	return t.others[s.Owner]
}

// sentryComm is what gVisor's processes call themselves: they are started by way of /proc/self/exe
// (runsc/sandbox/sandbox.go).
const sentryComm = "exe"

// seen returns the mounts that a task has open: those that it sees, or of gVisor's processes,
// when none of these fits, also those that other processes of the pod see.
func (t *tables) seen(s *kernfile.TaskStatus, own *mount.Table, fits func(mount.Line) bool) *mount.Table {
	if s.Comm != sentryComm || len(own.Lines) == 0 || slices.ContainsFunc(own.Lines, fits) {
		return own
	}
	all := *own
	all.Lines = slices.Clone(own.Lines)
	for _, first := range t.besides(s) {
		table, err := t.of(first)
		if err != nil {
			all.Cut = true
			continue
		}
		all.Lines = append(all.Lines, table.Lines...)
		all.Cut, all.Bad = all.Cut || table.Cut, all.Bad+table.Bad
	}
	return &all
}

// maxCandidates bounds the mounts that a task's wait can be about.
const maxCandidates = 64

// candidates lists the mounts of the kind of network file system that a task's
// stack shows, among those that it has open.
func (t *tables) candidates(s *kernfile.TaskStatus, own, host *mount.Table, saw *probe.Seen, uid string) []evidence.Mount {
	types := stackTypes(saw)
	switch {
	case !types["nfs"] && !types["cifs"], len(own.Lines) == 0 && host == nil:
		return nil
	case len(own.Lines) == 0:
		return t.servedBy(host, host, types, uid)
	}
	return t.servedBy(t.seen(s, own, func(l mount.Line) bool { return types[l.Type] }), host, types, uid)
}

// servedBy lists the mounts of network file systems of some types, each device once; none when there
// are too many.
func (t *tables) servedBy(seen, host *mount.Table, types map[string]bool, uid string) []evidence.Mount {
	var out []evidence.Mount
	for i := range seen.Lines {
		l := &seen.Lines[i]
		switch l.Type {
		case "nfs", "nfs4", "cifs", "smb3":
		default:
			continue
		}
		if !types[l.Type] || slices.ContainsFunc(out, func(m evidence.Mount) bool { return m.Device == l.Device }) {
			continue
		}
		if len(out) == maxCandidates {
			return nil
		}
		m := t.mounts.MountOfTask(l, host, uid)
		t.mounts.AskServer(m)
		out = append(out, *m)
	}
	return out
}

// climbs reports whether a path has an element "..", which means another
// directory than its text says where a link comes before it.
func climbs(p string) bool { return slices.Contains(strings.Split(p, "/"), "..") }

// byPaths finds the mount of the paths of a call. The two of a rename must lie
// on one.
func byPaths(own *mount.Table, saw *probe.Seen) (*mount.Line, string) {
	if !own.Whole() {
		return nil, "" // a mount further down may be in the table's rest
	}
	var found *mount.Line
	n := 0
	for _, o := range probe.Operands(saw.Call.Name) {
		if o.Path >= 0 {
			n++
		}
	}
	if len(saw.Paths) != n {
		return nil, ""
	}
	for _, p := range saw.Paths {
		if climbs(string(p.Path)) {
			return nil, ""
		}
		clean := path.Clean(string(p.Path))
		m := own.Holding(clean)
		switch {
		case m == nil || found != nil && m.ID != found.ID:
			return nil, ""
		case saw.Call.Name == "mount":
			// What is being mounted is not in the table yet.
			return nil, ""
		case saw.Call.Name == "umount2" && m.Point != clean:
			// It is not in the table any more.
			return nil, ""
		}
		found = m
	}
	if found == nil {
		return nil, ""
	}
	return found, saw.Paths[0].Via
}

// byDirectories finds the mount of the open directories that all paths of a call are relative to.
func byDirectories(opened *mount.Table, saw *probe.Seen) (*mount.Line, string) {
	var found *mount.Line
	for _, p := range saw.Paths {
		m := opened.ByID(p.MountID)
		if m == nil || found != nil && found.ID != m.ID || climbs(string(p.Path)) {
			return nil, ""
		}
		found = m
	}
	return found, saw.Paths[0].Via
}

// byDescriptors finds the mount of the descriptors of a call. Those of pipes
// and sockets are on none; two on different mounts are a doubt.
func byDescriptors(own *mount.Table, saw *probe.Seen) (*mount.Line, string) {
	var found *mount.Line
	via := ""
	for _, f := range saw.Files {
		m := own.ByID(f.MountID)
		if m == nil {
			continue
		}
		if found != nil && found.ID != m.ID {
			return nil, ""
		}
		found, via = m, fmt.Sprintf("fd %d", f.FD)
	}
	return found, via
}

var errDenied = errors.New("permission denied")

// faulting reports whether a task outside of any system call waits for a page.
// It could also have been stopped or frozen on its way through user mode.
func faulting(t *evidence.Task, stack []string) bool {
	if t.State != evidence.Uninterruptible && t.State != evidence.Sleeping {
		return false
	}
	if len(stack) == 0 {
		return t.State == evidence.Uninterruptible
	}
	return pageFault(stack)
}

// pageFault reports whether a stack goes through the entry of a page fault, on
// amd64 or arm64.
func pageFault(stack []string) bool {
	for _, fn := range stack {
		switch fn {
		case "asm_exc_page_fault", "exc_page_fault", "do_user_addr_fault", "handle_mm_fault", "do_page_fault", "do_translation_fault",
			"do_mem_abort", "el0_da", "el0_ia", "el1_abort":
			return true
		}
	}
	return false
}

// mapped finds the mount whose device is the only one, among the mapped files,
// that can be what the fault waits for.
func mapped(own *mount.Table, saw *probe.Seen) *mount.Line {
	if !own.Whole() {
		return nil // another one that fits may be in its rest
	}
	store := slices.ContainsFunc(saw.Stack, func(fn string) bool {
		return strings.HasSuffix(fn, "page_mkwrite") || strings.HasSuffix(fn, "write_fault") || fn == "do_shared_fault"
	})
	types := stackTypes(saw)
	device := ""
	var found *mount.Line
	for _, f := range saw.Maps {
		if store && !f.Shared {
			continue
		}
		for i := range own.Lines {
			m := &own.Lines[i]
			if m.Device != f.Device || len(types) > 0 && !types[m.Type] {
				continue
			}
			switch {
			case device != "" && device != f.Device:
				return nil // two devices fit
			case found != nil && (found.Root != m.Root || found.Type != m.Type):
				return nil // two directories of the device are mounted
			case found == nil:
				found, device = m, f.Device
			}
		}
	}
	return found
}

// onlyWaitingFUSE is for a task that waits for a FUSE daemon and whose call
// does not name a file any more: of the connections that have requests waiting,
// the only one that is mounted where the task is. Of a task that has left its
// mount namespace it must be the only one on the node.
func (h *Host) onlyWaitingFUSE(own, host *mount.Table, saw *probe.Seen) *mount.Line {
	if h.FUSE == "" || own != nil && !own.Whole() || !stackTypes(saw)["fuse"] {
		return nil
	}
	minors, err := mount.WaitingConnections(h.FUSE)
	if err != nil {
		return nil
	}
	if own != nil && len(own.Lines) > 0 {
		return own.OnlyFUSE(minors)
	}
	if host == nil || len(minors) != 1 {
		return nil
	}
	return host.OnlyFUSE(minors)
}

// stackTypes are the types of the file systems whose functions a task's stack
// goes through; none when the stack names no file system.
func stackTypes(saw *probe.Seen) map[string]bool {
	var out map[string]bool
	for _, fn := range append([]string{saw.Wchan}, saw.Stack...) {
		for _, f := range []struct {
			prefixes, types []string
		}{
			{[]string{"fuse_", "request_wait_answer"}, []string{"fuse", "fuseblk", "virtiofs"}},
			{[]string{"nfs_", "nfs3_", "nfs4_", "__nfs_", "rpc_", "nlmclnt_"}, []string{"nfs", "nfs4"}},
			{[]string{"cifs_", "smb2_", "SMB2_", "smb3_"}, []string{"cifs", "smb3"}},
			{[]string{"ceph_"}, []string{"ceph"}},
			{[]string{"v9fs_", "p9_"}, []string{"9p"}},
			{[]string{"ext4_"}, []string{"ext4", "ext3", "ext2"}},
			{[]string{"xfs_", "__xfs_"}, []string{"xfs"}},
			{[]string{"btrfs_"}, []string{"btrfs"}},
			{[]string{"ovl_"}, []string{"overlay"}},
		} {
			if !slices.ContainsFunc(f.prefixes, func(p string) bool { return strings.HasPrefix(fn, p) }) {
				continue
			}
			if out == nil {
				out = make(map[string]bool)
			}
			for _, t := range f.types {
				out[t] = true
			}
		}
	}
	return out
}

// refutes reports whether the stack shows another kind of file system than the
// mount's. A mount of overlay is also what a stack of its backing file system
// means; a backing one of another kind is taken off, because the task may be in
// a lower layer.
func refutes(saw *probe.Seen, m *evidence.Mount) bool {
	types := stackTypes(saw)
	if len(types) == 0 {
		return false
	}
	kind := m.Type
	if strings.HasPrefix(kind, "fuse.") {
		kind = "fuse"
	}
	if m.Type != "overlay" {
		return !types[kind]
	}
	if m.Backing == nil {
		return !types["overlay"]
	}
	backing := m.Backing.Type
	if strings.HasPrefix(backing, "fuse.") {
		backing = "fuse"
	}
	if types[backing] {
		return false
	}
	if !types["overlay"] {
		return true
	}
	if len(types) > 1 {
		m.Backing = nil
	}
	return false
}
