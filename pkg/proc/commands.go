package proc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/cgroup"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kernfile"
	"github.com/nodeagent-io/nodeagent/pkg/proc/probe"
)

// runcV2 is the runtime whose shim starts a program such as runc for what it does.
const runcV2 = "io.containerd.runc.v2"

// Bounds of the search for what a shim has started: children that are looked at and asked
// what they are, processes of one command and threads of each that are.
const (
	maxShimChildren = 1024
	maxCommands     = 32
	maxOfACommand   = 16
	maxItsThreads   = 16
)

// readCommands finds the commands of the runtime that the pod's shim has started and that
// have not returned, and what others have left behind.
//
// A shim's child is believed to be a command when it is in no pod's control group and in the
// shim's own process group. What comes out of a container is in neither: a container's first
// process, and each that is executed in it, begins a session of its own (setsid in
// libcontainer/nsenter/nsexec.c), and nobody can join the group of another session
// (setpgid(2)). Results that come with an error are good but not all.
func (r *Round) readCommands(ctx context.Context, files *kernfile.Reader, p *evidence.Pod, tasks, parents []kernfile.TaskStatus,
	t *tables) ([]evidence.RuntimeCommand, error) {
	silent := slices.ContainsFunc(p.Containers, func(c evidence.Container) bool { return !c.Task.UnansweredSince.IsZero() })
	if p.Overdue() <= 0 && !silent {
		return nil, nil
	}
	if !onlyRuncV2(p) {
		if silent && !slices.ContainsFunc(p.Containers, func(c evidence.Container) bool { return c.Runtime != "" }) {
			return nil, errors.New("which runtime the pod has is not known")
		}
		return nil, nil
	}
	shim, err := r.onlyShim(ctx, p, parents, t)
	if shim == nil && err == nil && silent && p.NoShimSince.IsZero() {
		err = errors.New("the pod's shim was not found")
	}
	if shim == nil {
		if err != nil && childless(files, tasks, parents) {
			err = nil // whichever it is, no command is at work for it
		}
		return nil, err
	}
	children, hidden := shimsOwn(files, shim, tasks)
	var out []evidence.RuntimeCommand
	for i := range children {
		c, err := r.command(ctx, files, shim, &children[i], t, cmp.Or(p.RuntimeUID, p.UID))
		if ctx.Err() != nil {
			return out, ctx.Err()
		}
		if err != nil && hidden == nil {
			hidden = err // the others are looked at all the same
		}
		if c != nil && (c.Left || slices.ContainsFunc(p.Containers, func(o evidence.Container) bool { return o.ID == c.Container })) {
			out = append(out, *c)
		}
	}
	return out, hidden
}

// onlyRuncV2 reports whether all containers are run by shims that start a program such as
// runc; other shims have children of other kinds, such as virtual machines.
func onlyRuncV2(p *evidence.Pod) bool {
	is := false
	for _, c := range p.Containers {
		if c.Runtime != "" && c.Runtime != runcV2 {
			return false
		}
		is = is || c.ID != "" && c.Runtime == runcV2
	}
	return is
}

// onlyShim returns the shim of the pod's sandbox with its probe; nil without an error when
// there is none.
func (r *Round) onlyShim(ctx context.Context, p *evidence.Pod, parents []kernfile.TaskStatus, t *tables) (*kernfile.TaskStatus, error) {
	var shim *kernfile.TaskStatus
	for i := range parents {
		if parents[i].Owner != ownerShim {
			continue
		}
		if shim != nil {
			return nil, errors.New("which of several shims is the pod's is not known")
		}
		shim = &parents[i]
	}
	if shim == nil {
		return nil, nil
	}
	if r.Prober == nil {
		return nil, errNoProber
	}
	sandbox, err := r.sandboxOf(ctx, shim)
	if err != nil {
		return nil, fmt.Errorf("read cmdline of shim %d: %w", shim.PID, err)
	}
	if !slices.ContainsFunc(p.Containers, func(c evidence.Container) bool { return c.Kind == evidence.Sandbox && c.ID != "" && c.ID == sandbox }) {
		return nil, fmt.Errorf("process %d is not the shim of the pod's sandbox", shim.PID)
	}
	if shim.Probe == nil {
		if err := r.probe(ctx, shim, t, ""); err != nil && shim.Probe == nil {
			return nil, err
		}
	}
	if shim.Probe == nil || shim.Probe.Group == 0 {
		return nil, nil // it has exited
	}
	return shim, nil
}

// shimsOwn returns the living children of a shim that are in no pod's control group.
func shimsOwn(files *kernfile.Reader, shim *kernfile.TaskStatus, tasks []kernfile.TaskStatus) (out []kernfile.TaskStatus, err error) {
	inside := make(map[int]bool, len(tasks))
	for i := range tasks {
		inside[tasks[i].PID] = true
	}
	looked := 0
	for _, pid := range childrenOf(files, shim.PID) {
		if inside[pid] {
			continue
		}
		if looked++; looked > maxShimChildren {
			return out, fmt.Errorf("shim %d has more than %d children", shim.PID, maxShimChildren)
		}
		group := readCgroup(files, pid)
		if uid, _ := cgroup.PodOfPath(group); uid != "" {
			continue
		}
		s, err := files.TaskStatus(pid)
		if err != nil || s.PPID != shim.PID || s.State == evidence.Zombie || s.Kernel || len(s.NSpid) > len(shim.NSpid) {
			continue
		}
		s.Cgroup = group
		if len(out) == maxCommands {
			return out, fmt.Errorf("shim %d has more than %d children outside of pods", shim.PID, maxCommands)
		}
		out = append(out, s)
	}
	return out, nil
}

// childless reports whether there are shims, and none of them has a living child outside of pods. That takes no
// file that waits for the shim's memory, which one that hangs in the kernel may have locked.
func childless(files *kernfile.Reader, tasks, parents []kernfile.TaskStatus) bool {
	shims := 0
	for i := range parents {
		if parents[i].Owner != ownerShim {
			continue
		}
		shims++
		if own, err := shimsOwn(files, &parents[i], tasks); len(own) > 0 || err != nil {
			return false
		}
	}
	return shims > 0
}

// command returns what a child of a shim does for it; nil when it does nothing that the
// shim waits for.
//
// Those of one pod that hang their readers do not keep the shims of others from being read:
// they are asked about in the name of the pod.
func (r *Round) command(ctx context.Context, files *kernfile.Reader, shim, s *kernfile.TaskStatus, t *tables, uid string) (*evidence.RuntimeCommand, error) {
	saw, err := r.Prober.Ask(ctx, probe.Command, r.Proc, &s.Task, uid)
	if err == nil && len(saw.Denied)+len(saw.Errors) > 0 {
		err = errors.New("permission denied" + grant("cmdline", nil))
	}
	if err != nil {
		return nil, fmt.Errorf("read cmdline of process %d: %w", s.PID, err)
	}
	if saw.Gone || saw.Command.Shim {
		return nil, nil // about to execute something
	}
	err = r.probe(ctx, s, t, uid)
	if s.Probe == nil {
		return nil, err // it has exited
	}
	if s.Probe.Group != shim.Probe.Group && (s.Probe.Group != 0 || len(s.Probe.Hung) == 0) {
		return nil, nil
	}
	c := &evidence.RuntimeCommand{Runtime: saw.Command.Runtime, Command: saw.Command.Command, Container: saw.Command.ContainerID}
	switch {
	case s.Probe.Group == 0:
		return nil, fmt.Errorf("process %d cannot be read", s.PID)
	case !saw.Command.Is:
		held, err := r.holdsOutput(ctx, shim, s)
		if !held || err != nil {
			return nil, err
		}
		c.Left = true
	case c.Command == "":
		return nil, fmt.Errorf("what process %d runs is not known", s.PID)
	}
	c.Tasks = toTasks(r.withDescendants(ctx, files, *s, t, uid))
	return c, nil
}

// holdsOutput reports whether a process writes to a pipe that the shim reads.
func (r *Round) holdsOutput(ctx context.Context, shim, s *kernfile.TaskStatus) (bool, error) {
	if strings.HasPrefix(s.Comm, shimComm) {
		return false, nil
	}
	pipes := make(map[uint64]bool)
	if err := r.readPipes(ctx, shim, pipes); err != nil {
		return false, err
	}
	return r.holdsPipe(ctx, s, pipes)
}

// withDescendants returns a process and its descendants with their probes, parents before
// children, each followed by those of its threads that say more of what it waits for. What
// cannot be read of them is left out: it only says more.
func (r *Round) withDescendants(ctx context.Context, files *kernfile.Reader, first kernfile.TaskStatus, t *tables, uid string) []kernfile.TaskStatus {
	line := []kernfile.TaskStatus{first}
	for i := 0; i < len(line) && len(line) < maxOfACommand; i++ {
		for _, pid := range childrenOf(files, line[i].PID) {
			s, err := files.TaskStatus(pid)
			if err != nil || s.PPID != line[i].PID || len(line) == maxOfACommand {
				continue
			}
			s.Cgroup = readCgroup(files, pid)
			if in, container := cgroup.PodOfPath(s.Cgroup); in != "" {
				s.Owner, s.Container = in, container
			}
			_ = r.probe(ctx, &s, t, uid)
			line = append(line, s)
		}
	}
	var out []kernfile.TaskStatus
	for i := range line {
		out = append(out, line[i])
		if thread := r.telling(ctx, files, &line[i], t, uid); thread != nil {
			out = append(out, *thread)
		}
	}
	return out
}

// telling returns, where the first thread of a process only waits for the others, as those of Go
// programs do most of the time, one that runs; else one that is in state D, or waits for
// something else. nil when there is none.
func (r *Round) telling(ctx context.Context, files *kernfile.Reader, s *kernfile.TaskStatus, t *tables, uid string) *kernfile.TaskStatus {
	if s.Threads < 2 || s.State != evidence.Sleeping || s.Probe == nil || !idle(s) {
		return nil
	}
	tids, err := files.TIDs(s.PID, nil)
	if err != nil {
		return nil
	}
	var found *kernfile.TaskStatus
	for _, tid := range tids[:min(len(tids), maxItsThreads)] {
		thread, err := files.TaskStatus(tid)
		if err != nil || thread.PID != s.PID || thread.Leader() {
			continue
		}
		thread.Cgroup, thread.Owner, thread.Container = s.Cgroup, s.Owner, s.Container
		switch {
		case thread.State == evidence.Runnable:
			return &thread
		case thread.State == evidence.Uninterruptible && (found == nil || found.State != evidence.Uninterruptible):
			_ = r.probe(ctx, &thread, t, uid)
			found = &thread
		case found == nil && thread.State == evidence.Sleeping:
			if _ = r.probe(ctx, &thread, t, uid); thread.Probe != nil && !idle(&thread) {
				found = &thread
			}
		}
	}
	return found
}

// idle reports whether a thread waits in a system call in which the threads of Go programs
// wait for each other, for time to pass, or for whatever comes.
func idle(s *kernfile.TaskStatus) bool {
	return slices.Contains([]string{"futex", "epoll_pwait", "epoll_wait", "nanosleep", "clock_nanosleep", "rt_sigtimedwait", ""}, s.Probe.Syscall)
}
