package proc

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kernfile"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/mount"
	"github.com/nodeagent-io/nodeagent/pkg/proc/probe"
)

// rootfsAfter is how far past its deadline a pod is when those are looked for that use the
// root file system of a container: most are unmounted within a second.
const rootfsAfter = 3 * time.Second

// Bounds of the processes that are told of.
const (
	maxOutputHolders = 16
	maxKeptChildren  = 64
)

// readKept finds what keeps containers that have ended from being deleted: processes that
// hold their output open, and processes that use their root file systems. All of /proc is
// looked at for it, and so only when the pod is past its deadline and none of its
// containers, by the word of the kernel, has a process. Of a container that the shim says to
// run it finds the children of the shim that may have been executed in it.
func (r *Round) readKept(ctx context.Context, files *kernfile.Reader, p *evidence.Pod, tasks, parents []kernfile.TaskStatus, shim *probe.Seen) {
	if p.Overdue() < 0 || p.ContainersEnded() || r.Prober == nil {
		return
	}
	defer func() {
		if len(p.OutputHolders)+len(p.Holders)+len(p.ShimChildren) > 0 {
			p.TasksRead = time.Now()
		}
	}()
	if slices.ContainsFunc(p.Containers, func(c evidence.Container) bool { return c.Task.Executed && c.Task.Status == "running" }) {
		r.readShimChildren(ctx, files, p, tasks, parents, shim.Pipes)
	}
	open, closed := false, false
	for i := range p.Containers {
		c := &p.Containers[i]
		switch {
		case !c.Unended(), c.Kind == evidence.Sandbox && !over(c, tasks):
		case !over(c, tasks):
			return
		case slices.Contains(shim.Outputs, c.ID):
			open = true
		case c.Task.Drained:
			closed = true
		}
	}
	var err error
	if open && len(shim.Executed) == 0 && len(shim.Pipes) > 0 {
		p.OutputHolders, err = r.readOutputHolders(ctx, files, p, shim.Pipes)
		if err != nil && len(p.OutputHolders) == 0 {
			p.Lack(evidence.Holders, fmt.Sprintf("look for processes that hold output open: %v", err))
		}
	}
	if !closed {
		return
	}
	host, err := r.mounts.Host()
	if err != nil {
		return // Mounts is missing
	}
	mounts := r.readRootfs(p, host)
	if len(mounts) == 0 || p.Overdue() < rootfsAfter {
		return
	}
	r.addHolders(ctx, files, p, mounts, host, "the root file systems of containers")
}

// readImageVolumes finds the image volumes of the pod that are still mounted when its sandbox
// has ended, and who uses them.
func (r *Round) readImageVolumes(ctx context.Context, files *kernfile.Reader, p *evidence.Pod) {
	if p.Overdue() < 0 || p.ContainersEnded() || r.Prober == nil {
		return
	}
	host, err := r.mounts.Host()
	if err != nil {
		return // Mounts is missing
	}
	p.ImageMounts = r.imageMounts(p, host)
	if len(p.ImageMounts) == 0 || p.Overdue() < rootfsAfter {
		return
	}
	r.addHolders(ctx, files, p, p.ImageMounts, host, "image volumes of the pod")
}

// addHolders adds the processes that use some mounts: those in the host's mount namespace, or else those in others.
func (r *Round) addHolders(ctx context.Context, files *kernfile.Reader, p *evidence.Pod, mounts []evidence.Mount, host *mount.Table, what string) {
	ids := mountIDs(mounts)
	found, err := r.readHolders(ctx, files, cmp.Or(p.RuntimeUID, p.UID), ids, host)
	if err != nil && len(found) == 0 {
		p.Lack(evidence.Holders, fmt.Sprintf("look for processes that use %s: %v", what, err))
	}
	if len(found) == 0 && ctx.Err() == nil {
		found = r.readElsewhere(ctx, files, ids, host)
	}
	r.probeHolders(ctx, p, found)
	p.Holders = append(p.Holders, found...)
}

// imageMounts returns the host's mounts of the image volumes of the pod's sandboxes that have
// ended, and what is mounted inside of them.
func (r *Round) imageMounts(p *evidence.Pod, host *mount.Table) []evidence.Mount {
	var out []evidence.Mount
	for i := range p.Containers {
		c := &p.Containers[i]
		if c.Kind != evidence.Sandbox || c.ID == "" || c.State != evidence.StateExited {
			continue
		}
		for _, m := range r.mounts.OfContainer(host, c.ID) {
			if strings.Contains(m.Point, mount.ImageVolumes+c.ID+"/") {
				e := r.mounts.Mount(m)
				e.HostPoint = e.Point
				out = append(out, e)
			}
		}
	}
	return out
}

// probeHolders probes processes for when they were started.
func (r *Round) probeHolders(ctx context.Context, p *evidence.Pod, holders []evidence.Holder) {
	t := &tables{Round: r}
	for i := range holders {
		s := kernfile.TaskStatus{Task: holders[i].Task}
		_ = r.probe(ctx, &s, t, cmp.Or(p.RuntimeUID, p.UID))
		holders[i].Probe = s.Probe
	}
	if len(holders) > 0 {
		p.TasksRead = time.Now()
	}
}

// readOutputHolders finds the processes that can write to one of the pipes that the pod's
// shim reads. Nobody but the shim and those that it starts gets such a pipe by
// itself: who has one was started by a process of a container, has opened it through
// /proc/PID/fd, or was sent it over a socket. Of the node, containerd and shims are not
// looked at: they start processes, which have their files for a moment.
//
// Who may be one is known from a look at all processes once in a round, and each of these
// is asked anew.
//
// Results that come with an error are good but not all.
func (r *Round) readOutputHolders(ctx context.Context, files *kernfile.Reader, p *evidence.Pod, pipes []uint64) ([]evidence.OutputHolder, error) {
	uid := cmp.Or(p.RuntimeUID, p.UID)
	t := &tables{Round: r}
	users, hidden := r.pipeUsers(ctx, files, uid)
	var out []evidence.OutputHolder
	for i := range users {
		if !users[i].mayHave(pipes) {
			continue
		}
		s, ok := mayHold(files, p, users[i].pid)
		if !ok {
			continue
		}
		saw, err := r.writes(ctx, &s, pipes)
		if hides(&s, err) && hidden == nil {
			hidden = err // the others are looked at all the same
		}
		if len(saw.Pipes) == 0 {
			continue
		}
		// When it was started tells it from another one that gets its PID.
		_ = r.probe(ctx, &s, t, uid)
		if out = append(out, evidence.OutputHolder{Task: s.Task}); len(out) == maxOutputHolders {
			break
		}
	}
	return out, hidden
}

// A pipeUser is a process that has pipes open.
type pipeUser struct {
	pid   int
	pipes []uint64 // their inodes
	// unkept reports whether the pipes are not in the list, for which there was no room.
	unkept bool
}

// maxIndexed bounds the pipes of all processes that are kept in a round. A process with
// others is asked for each pod.
const maxIndexed = 128 << 10

// pipeUsers returns the processes that have pipes open, but not those that have the pipes
// of containers by office. With an error they are not all of them.
func (r *Round) pipeUsers(ctx context.Context, files *kernfile.Reader, uid string) ([]pipeUser, error) {
	return r.pipes.all(ctx, r, files, uid, func(s *kernfile.TaskStatus) (pipeUser, bool, error) {
		if byOffice(s) {
			return pipeUser{}, false, nil
		}
		saw, err := r.ask(ctx, probe.Ends, &s.Task)
		err = complaint(&saw, err, s, "fd")
		if r.indexed+len(saw.Pipes) > maxIndexed {
			return pipeUser{pid: s.PID, unkept: true}, true, err
		}
		r.indexed += len(saw.Pipes)
		return pipeUser{pid: s.PID, pipes: saw.Pipes}, len(saw.Pipes) > 0, err
	})
}

// mayHave reports whether one of some pipes can be among those that the process has open.
func (u *pipeUser) mayHave(pipes []uint64) bool {
	return u.unkept || slices.ContainsFunc(u.pipes, func(inode uint64) bool { return slices.Contains(pipes, inode) })
}

// readShimChildren fills in the children of the pod's shim that are not in its control
// groups.
func (r *Round) readShimChildren(ctx context.Context, files *kernfile.Reader, p *evidence.Pod, tasks, parents []kernfile.TaskStatus, pipes []uint64) {
	i := slices.IndexFunc(parents, func(s kernfile.TaskStatus) bool { return s.Owner == ownerShim })
	if i < 0 {
		return
	}
	known := make(map[int]bool, len(tasks))
	for j := range tasks {
		known[tasks[j].PID] = true
	}
	t := &tables{Round: r}
	for _, pid := range childrenOf(files, parents[i].PID) {
		s, err := files.TaskStatus(pid)
		if known[pid] || err != nil || !s.HasMemory || s.PPID != parents[i].PID {
			continue
		}
		if len(p.ShimChildren) == maxKeptChildren {
			p.Lack(evidence.Suspects, fmt.Sprintf("shim %d has more than %d children", parents[i].PID, maxKeptChildren))
			return
		}
		s.Cgroup = readCgroup(files, pid)
		s.Owner, s.Container = owner(&s.Task)
		if err := r.probe(ctx, &s, t, cmp.Or(p.RuntimeUID, p.UID)); err != nil {
			p.Lack(evidence.Suspects, err.Error())
		}
		saw, err := r.writes(ctx, &s, pipes)
		if err != nil {
			p.Lack(evidence.Suspects, err.Error())
		}
		p.ShimChildren = append(p.ShimChildren, evidence.ShimChild{Task: s.Task, Output: len(saw.Pipes) > 0})
	}
}

// mayHold reads a process; not ok when it has ended, is of the pod's sandbox, or has the
// containers' pipes by office.
func mayHold(files *kernfile.Reader, p *evidence.Pod, pid int) (s kernfile.TaskStatus, ok bool) {
	s, ok = notByOffice(files, pid)
	c, _ := p.Container(s.Container)
	return s, ok && (c == nil || c.Kind != evidence.Sandbox)
}

// writes asks which of the pipes a process can write to. One that has ended has none.
func (r *Round) writes(ctx context.Context, s *kernfile.TaskStatus, pipes []uint64) (probe.Seen, error) {
	saw, err := r.Prober.Writes(ctx, r.Proc, &s.Task, s.Owner, pipes)
	return saw, complaint(&saw, err, s, "fd")
}

// readRootfs notes which of the containers that have ended, and whether the sandbox that has,
// have their root file system mounted still, and returns these mounts and those inside of
// them, which the shim unmounts first.
func (r *Round) readRootfs(p *evidence.Pod, host *mount.Table) []evidence.Mount {
	var out []evidence.Mount
	for i := range p.Containers {
		c := &p.Containers[i]
		if c.ID == "" || !c.Unended() || c.Kind == evidence.Sandbox && !c.Task.Drained {
			continue
		}
		point := ""
		for _, m := range r.mounts.OfContainer(host, c.ID) {
			switch {
			case strings.HasSuffix(m.Point, mount.Tasks+c.ID+"/rootfs"):
				e := r.mounts.Mount(m)
				c.Rootfs, point = &e, m.Point
				out = append(out, e)
			case point != "" && strings.HasPrefix(m.Point, point+"/"):
				out = append(out, r.mounts.Mount(m))
			}
		}
	}
	return out
}
