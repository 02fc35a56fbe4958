package proc

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/cgroup"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kernfile"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/mount"
	"github.com/nodeagent-io/nodeagent/pkg/proc/probe"
)

// A Host is the host's kernel file systems as they are mounted for the agent.
// It is safe for use by several goroutines.
type Host struct {
	Proc   string // the host's /proc; PIDs in it must be the agent's too (hostPID)
	Cgroup string // the host's /sys/fs/cgroup
	FUSE   string // the host's /sys/fs/fuse/connections; "" when there is none
	Blocks string // the host's /sys/dev/block; "" when there is none
	// KubeletDir is the kubelet's root directory, /var/lib/kubelet, as it is
	// called in the host's mountinfo, which shows it without links; "" while Locate has not found it.
	KubeletDir string
	// Places are where it may be, by names in which there may be links.
	Places []string
	// PodUID is that of the agent's own pod, "" outside of one.
	PodUID string
	// Containerd returns the PID of the process that listens on the socket of the kubelet's containerd,
	// and when that was seen, with a reading of the monotonic clock; 0 when that is not known. It is asked
	// on a node of several containerds. nil is allowed.
	Containerd func() (pid int, seen time.Time)
	// Prober reads what can hang. Without one the source Suspects is missing.
	Prober *probe.Prober

	// Dear is called with the UID of a pod whose processes have cost more to read than those of a pod may. nil is allowed.
	Dear func(uid string)

	once   sync.Once
	ledger ledger
	groups cgroup.Tree
	// searched is the process after which the next search for programs that scan files begins.
	searched   atomic.Int64
	located    atomic.Pointer[string] // the kubelet's directory
	unlocated  atomic.Pointer[error]  // why it was not found
	processors processorWindow
}

// tree returns the host's control groups.
func (h *Host) tree() *cgroup.Tree {
	h.once.Do(func() { h.groups.Root = h.Cgroup })
	return &h.groups
}

// limitsTell is how long after the deadline the limits of a pod's groups are read: they tell why a program was slow to act on its stop signal,
// which is not asked once SIGKILL has had its time (KillLatency, pkg/diagnose/fact).
const limitsTell = 10 * time.Second

// Sources are those that ReadPod reads.
var Sources = []evidence.Source{
	evidence.Cgroups, evidence.Processes, evidence.Suspects, evidence.Mounts, evidence.Volumes, evidence.Holders,
	evidence.Plugins, evidence.RuntimeCommands, evidence.Requests, evidence.Limits,
}

// ReadPod fills in the pod's Cgroups, Tasks, Parents, Leftovers, OutputHolders, ShimChildren,
// Plugins, NetworkSetup, RuntimeCommands, Requests, Connections,
// Shortages, Mounts, Devices, Loops, ImageMounts, Volumes and Holders, whether the kubelet's directory was
// found (Seen), when these were read (CgroupsRead, TasksRead), and in Missing what could not be read.
// It needs the pod's UIDs; it makes use of the pod's Containers for the processes
// that the shims call first, and for the sandbox whose shim to look for. It returns
// when the context ends.
func (r *Round) ReadPod(ctx context.Context, p *evidence.Pod) {
	uid := cmp.Or(p.RuntimeUID, p.UID)
	groups, err := r.podGroups.Pod(uid, p.Overdue() < limitsTell)
	if err != nil {
		p.Lack(evidence.Cgroups, err.Error())
		p.Lack(evidence.Processes, err.Error())
	}
	n := 0
	for _, g := range groups {
		n += len(g.TIDs)
	}
	if !r.admits(n) {
		p.Lack(evidence.Processes, fmt.Sprintf("the pod has %d threads, and the terminating pods of the node more than are read at a time", n))
		for i := range groups {
			groups[i].TIDs = nil
		}
	}
	p.CgroupsRead, p.NoShimSince = time.Now(), time.Time{}
	p.Cgroups, p.Tasks, p.Parents, p.Leftovers, p.Plugins, p.Mounts, p.Unprobed, p.TasksRead = nil, nil, nil, nil, nil, nil, 0, time.Time{}
	p.Volumes, p.Holders, p.Devices, p.Loops, p.RuntimeCommands, p.Requests = nil, nil, nil, nil, nil, nil
	p.OutputHolders, p.ShimChildren, p.ImageMounts, p.NetworkSetup, p.Shortages, p.Connections = nil, nil, nil, nil, nil, nil
	for _, g := range groups {
		p.Cgroups = append(p.Cgroups, g.Cgroup)
	}
	files, err := kernfile.Open(r.Proc)
	if err != nil {
		p.Lack(evidence.Processes, err.Error())
		p.Lack(evidence.RuntimeCommands, err.Error())
		return
	}
	defer files.Close()
	t := &tables{Round: r}
	if host, err := r.mounts.Host(); err != nil {
		p.Lack(evidence.Mounts, fmt.Sprintf("read the host's mounts: %v%s", err, grant("mountinfo", err)))
	} else {
		if host.Bad > 0 {
			p.Lack(evidence.Mounts, fmt.Sprintf("%d lines of the host's mountinfo were not understood", host.Bad))
		}
		if host.Cut {
			p.Lack(evidence.Mounts, fmt.Sprintf("the host's mountinfo was read as far as its first %d mounts: it is too long", len(host.Lines)))
		}
		if why := r.mountsUnknown(); why != "" {
			p.Lack(evidence.Mounts, why)
		}
		p.Mounts, p.Devices = r.mounts.PodMounts(host, uid), r.mounts.PodDevices(host, uid)
		for i := range p.Mounts {
			if p.Overdue() > 0 {
				r.mounts.AskServer(&p.Mounts[i])
			}
		}
	}
	status := statusOfPod(ctx, files)
	tasks, err := readTasks(status, groups)
	if err != nil {
		p.Lack(evidence.Processes, err.Error())
	}
	tasks = append(tasks, readFirst(files, status, p, tasks, uid)...)
	turns := newSchedule(ctx)
	defer turns.done()
	parents := r.readParents(turns.next(forShim), files, p, tasks)
	// Those that were not found in a control group may have a tracer, or a parent
	// outside, of their own.
	more := func(found []kernfile.TaskStatus) {
		if len(found) == 0 {
			return
		}
		tasks = append(tasks, found...)
		known := parents
		for _, s := range r.readParents(ctx, files, p, tasks) {
			if !slices.ContainsFunc(known, func(k kernfile.TaskStatus) bool { return k.TID == s.TID }) {
				parents = append(parents, s)
			}
		}
	}
	more(readEnded(files, status, parents, tasks))
	p.TasksRead = time.Now()
	r.probeSuspects(turns.next(forSuspects), p, tasks, parents, t, uid)
	if held := r.readHeld(turns.next(forOther), files, p, tasks); len(held) > 0 {
		more(held)
		p.TasksRead = time.Now()
	}
	shim, err := r.readDrained(turns.next(forOther), p, tasks, parents, t)
	if err != nil {
		p.Lack(evidence.Suspects, fmt.Sprintf("look at the output of the pod's containers: %v", err))
	}
	p.Tasks = toTasks(tasks)
	p.Parents = toTasks(parents)
	left, err := r.readLeftovers(turns.next(forOther), files, p, tasks, parents)
	if err != nil {
		p.Lack(evidence.Processes, fmt.Sprintf("look for processes that the pod left behind: %v", err))
	}
	if len(left) > 0 {
		p.TasksRead = time.Now()
	}
	p.Leftovers = toTasks(left)
	r.readKept(turns.next(forOther), files, p, tasks, parents, &shim)
	r.readImageVolumes(turns.next(forOther), files, p)
	down, up, err := r.readPlugins(turns.next(forOther), files, p, tasks)
	if err != nil {
		p.Lack(evidence.Plugins, fmt.Sprintf("look for CNI plugins: %v", err))
	}
	if len(down)+len(up) > 0 {
		p.TasksRead = time.Now()
	}
	p.Plugins, p.NetworkSetup = toTasks(down), toTasks(up)
	if p.RuntimeCommands, err = r.readCommands(turns.next(forOther), files, p, tasks, parents, t); err != nil {
		p.Lack(evidence.RuntimeCommands, fmt.Sprintf("look for commands of the runtime: %v", err))
	}
	if len(p.RuntimeCommands) > 0 {
		p.TasksRead = time.Now()
	}
	if p.Requests, err = r.readRequests(turns.next(forOther), p); err != nil {
		p.Lack(evidence.Requests, fmt.Sprintf("look for the kubelet's requests to the pod: %v", err))
	}
	if len(p.Requests) > 0 {
		p.TasksRead = time.Now()
	}
	p.Connections = r.readConnections(p, tasks)
	if p.Shortages, err = r.readShortages(turns.next(forOther), files, p, parents); err != nil {
		p.Lack(evidence.Limits, fmt.Sprintf("look for limits that are used up: %v", err))
	}
	if looksDone(p) && p.Overdue() > 0 {
		r.readVolumes(turns.next(forVolumes), files, p, uid)
	}
}

// looksDone reports whether the kubelet may be at work on the pod's volumes, or be done with
// them: the containers have ended, or the kubelet has said that one runs, of which neither
// containerd nor a control group of the pod tells. After a restart of the node there is none either, and all of the
// volumes' directories are there.
func looksDone(p *evidence.Pod) bool {
	return p.ContainersEnded() || p.Gone ||
		len(p.Cgroups) == 0 && !slices.ContainsFunc(p.Containers, func(c evidence.Container) bool { return c.State == evidence.StateRunning }) &&
			slices.ContainsFunc(p.Containers, func(c evidence.Container) bool { return c.Running })
}

func toTasks(s []kernfile.TaskStatus) []evidence.Task {
	if len(s) == 0 {
		return nil
	}
	out := make([]evidence.Task, len(s))
	for i := range s {
		out[i] = s[i].Task
	}
	return out
}

// readTasks reads the status of each thread in the groups, and of those leaders
// that are in no group because they are zombies while threads of theirs live.
func readTasks(status readStatus, groups []cgroup.Group) ([]kernfile.TaskStatus, error) {
	n := 0
	for _, g := range groups {
		n += len(g.TIDs)
	}
	tasks := make([]kernfile.TaskStatus, 0, n)
	leaders := make(map[int]string) // of threads, with their container
	hidden, unseen := 0, 0
	above := make(map[string]string) // the first group of a container, which the others are in
	for _, g := range groups {
		hidden += g.Hidden
		nested := ""
		if _, ok := above[g.Container]; !ok {
			above[g.Container] = g.Path
		} else if g.Container != "" && strings.HasPrefix(g.Path, above[g.Container]+"/") {
			nested = g.Path
		}
		for _, tid := range g.TIDs {
			s, err := status(tid)
			if kernfile.Gone(err) {
				unseen++
				continue
			}
			if err != nil {
				return tasks, fmt.Errorf("read status of task %d, after %d of %d: %w", tid, len(tasks), n, err)
			}
			s.Container, s.Cgroup = g.Container, nested
			tasks = append(tasks, s)
			if _, ok := leaders[s.PID]; !ok {
				leaders[s.PID] = g.Container
			}
		}
	}
	for i := range tasks {
		if tasks[i].Leader() {
			delete(leaders, tasks[i].PID)
		}
	}
	for pid, container := range leaders {
		s, err := status(pid)
		if kernfile.Gone(err) {
			continue
		}
		if err != nil {
			return tasks, fmt.Errorf("read status of process %d: %w", pid, err)
		}
		s.Container = container
		tasks = append(tasks, s)
	}
	slices.SortFunc(tasks, func(a, b kernfile.TaskStatus) int {
		return cmp.Or(cmp.Compare(a.PID, b.PID), cmp.Compare(a.TID, b.TID))
	})
	switch {
	case hidden > 0:
		return tasks, fmt.Errorf("%d tasks of the pod belong to a PID namespace that is not visible here: the agent needs hostPID: true", hidden)
	case unseen > 8 && len(tasks) == 0:
		return tasks, fmt.Errorf("none of the %d tasks of the pod is visible in /proc: the agent needs hostPID: true and a /proc without hidepid", unseen)
	}
	return tasks, nil
}

// readFirst reads those first processes of the containers that are in no
// control group any more: zombies, and an init that waits in
// zap_pid_ns_processes. The shim knows their numbers; a number that went to
// another process since then is told by its group.
func readFirst(r *kernfile.Reader, status readStatus, p *evidence.Pod, tasks []kernfile.TaskStatus, uid string) []kernfile.TaskStatus {
	var out []kernfile.TaskStatus
	for i := range p.Containers {
		c := &p.Containers[i]
		pid := c.Task.PID
		if pid <= 0 || slices.ContainsFunc(tasks, func(s kernfile.TaskStatus) bool { return s.TID == pid }) {
			continue
		}
		s, err := status(pid)
		c.Task.PIDGone = kernfile.Gone(err)
		if err != nil || s.HasMemory || s.Kernel || !s.Leader() {
			continue
		}
		if owner, _ := cgroup.PodOfPath(readCgroup(r, pid)); owner != "" && owner != uid {
			continue
		}
		s.Container = c.ID
		out = append(out, s)
		out = append(out, readThreads(r, status, &s)...)
	}
	return out
}

// readThreads reads the other threads of a process whose leader is a zombie.
// The last thread of an init is the one that waits for its PID namespace.
func readThreads(r *kernfile.Reader, status readStatus, leader *kernfile.TaskStatus) []kernfile.TaskStatus {
	if leader.State != evidence.Zombie || leader.Threads < 2 {
		return nil
	}
	tids, err := r.TIDs(leader.PID, nil)
	if err != nil {
		return nil
	}
	var out []kernfile.TaskStatus
	for _, tid := range tids {
		if s, err := status(tid); err == nil && s.PID == leader.PID && !s.Leader() {
			s.Container = leader.Container
			out = append(out, s)
		}
	}
	return out
}

// readEnded reads those children of the pod's shims that have ended, or are
// about to, and are in no control group any more. The listing of children names
// zombies too.
func readEnded(r *kernfile.Reader, status readStatus, parents, tasks []kernfile.TaskStatus) []kernfile.TaskStatus {
	var out []kernfile.TaskStatus
	known := make(map[int]bool, len(tasks))
	for i := range tasks {
		known[tasks[i].TID] = true
	}
	for i := range parents {
		if parents[i].Owner != ownerShim {
			continue
		}
		for _, child := range childrenOf(r, parents[i].PID) {
			if known[child] {
				continue
			}
			known[child] = true
			if s, err := status(child); err == nil && !s.HasMemory && !s.Kernel {
				out = append(out, s)
				out = append(out, readThreads(r, status, &s)...)
			}
		}
	}
	return out
}

// childrenOf returns the processes that the threads of a process have as children, zombies
// too, in ascending order; none when it has exited.
func childrenOf(r *kernfile.Reader, pid int) []int {
	tids, err := r.TIDs(pid, nil)
	if err != nil {
		return nil
	}
	var out []int
	for _, tid := range tids {
		if b, err := r.Thread(pid, tid, kernfile.Children); err == nil {
			out = append(out, parseChildren(b)...)
		}
	}
	slices.Sort(out)
	return out
}

// parseChildren parses /proc/PID/task/TID/children.
func parseChildren(b []byte) []int {
	var out []int
	for _, f := range bytes.Fields(b) {
		if n := kernfile.Decimal(f); n > 0 {
			out = append(out, n)
		}
	}
	return out
}

// readParents reads the processes outside the pod that are parent or tracer of
// one of its tasks, and the shim of its sandbox when it is none of them because
// no task is left. It notes when there is none.
func (r *Round) readParents(ctx context.Context, files *kernfile.Reader, p *evidence.Pod, tasks []kernfile.TaskStatus) []kernfile.TaskStatus {
	inside := make(map[int]bool, len(tasks))
	for i := range tasks {
		inside[tasks[i].PID] = true
		inside[tasks[i].TID] = true
	}
	var out []kernfile.TaskStatus
	shim, absent := false, false
	for i := range tasks {
		for _, pid := range []int{tasks[i].PPID, tasks[i].TracerPID} {
			if pid == 0 || inside[pid] {
				continue
			}
			inside[pid] = true
			s, err := files.TaskStatus(pid)
			if kernfile.Gone(err) {
				continue
			}
			if err != nil {
				p.Lack(evidence.Processes, fmt.Sprintf("read status of process %d: %v", pid, err))
				continue
			}
			s.Cgroup = readCgroup(files, pid)
			s.Owner, _ = owner(&s.Task)
			shim = shim || s.Owner == ownerShim
			out = append(out, s)
		}
	}
	for _, c := range p.Containers {
		if shim || c.Kind != evidence.Sandbox || c.ID == "" || r.Prober == nil {
			continue
		}
		switch s, err := r.shim(ctx, files, c.ID); {
		case err != nil:
			p.Lack(evidence.Suspects, fmt.Sprintf("look for the shim of sandbox %s: %v", c.ID, err))
		case s != nil:
			out = append(out, *s)
			shim = true
		default:
			absent = true
		}
	}
	if p.NoShimSince = (time.Time{}); absent && !shim {
		p.NoShimSince = time.Now()
	}
	return out
}

func readCgroup(r *kernfile.Reader, pid int) string {
	b, err := r.Task(pid, kernfile.Cgroup)
	if err != nil {
		return ""
	}
	return cgroup.ParsePath(b)
}

// Words for owners other than pods.
const (
	ownerKubelet    = "kubelet"
	ownerContainerd = "containerd"
	ownerShim       = "shim"
	ownerKernel     = "kernel"
	shimComm        = "containerd-shim" // as much as fits into a comm
)

// owner says whose a task is: the UID of a pod, a word, or "". The group
// decides before the name, which a process can choose.
func owner(t *evidence.Task) (who, container string) {
	if uid, container := cgroup.PodOfPath(t.Cgroup); uid != "" {
		return uid, container
	}
	switch {
	case t.Kernel:
		return ownerKernel, ""
	case strings.HasPrefix(t.Comm, shimComm):
		return ownerShim, ""
	case slices.Contains(KubeletNames, t.Comm):
		return ownerKubelet, ""
	case t.Comm == ownerContainerd:
		return t.Comm, ""
	}
	for e := range strings.SplitSeq(t.Cgroup, "/") {
		switch e {
		case "kubelet.service":
			return ownerKubelet, ""
		case "containerd.service":
			return ownerContainerd, ""
		}
	}
	return "", ""
}

// tables keeps the mount tables of tasks that one reading has looked at.
type tables struct {
	*Round
	own    map[int]*mount.Table // by PID
	size   int                  // of those that are kept
	unkept int                  // tables that were read and found no room
	// first are the processes of the pod that somebody outside has started. Where the tasks of several
	// pods are looked at, others has them for each that was asked for.
	first  []*evidence.Task
	others map[string][]*evidence.Task
}

// Bounds of what one reading spends on the tables of tasks: the memory of those that it
// keeps, in bytes, which is enough for 64 tasks in a container of 70 mounts each; and how
// many more it reads.
const (
	maxKept   = 2 << 20
	maxUnkept = 4
)

// of gives the table of a task's mount namespace. The threads of a process
// share it, unless one has called unshare, which cannot be told cheaply and is
// taken care of by comparing mounts by ID and by name.
func (t *tables) of(task *evidence.Task) (*mount.Table, error) {
	if m, ok := t.own[task.PID]; ok {
		return m, nil
	}
	if t.unkept >= maxUnkept {
		return &mount.Table{Cut: true}, nil
	}
	m, err := mount.ReadTable(filepath.Join(t.Proc, kernfile.Thread(task.PID, task.TID)))
	if err != nil {
		return nil, err
	}
	if t.size+m.Size > maxKept {
		t.unkept++
		return m, nil
	}
	if t.own == nil {
		t.own = make(map[int]*mount.Table)
	}
	t.own[task.PID] = m
	t.size += m.Size
	return m, nil
}

// grant says what to allow the agent so that a file becomes readable.
func grant(file string, err error) string {
	if err != nil && !kernfile.Denied(err) {
		return ""
	}
	if file == "stack" {
		return ": grant CAP_SYS_ADMIN in the initial user namespace"
	}
	return ": grant CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH, and run unconfined by AppArmor and SELinux"
}

var errNoProber = errors.New("the agent runs without its helper process")
