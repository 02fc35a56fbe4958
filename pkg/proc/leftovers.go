package proc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kernfile"
	"github.com/nodeagent-io/nodeagent/pkg/proc/probe"
)

// Bounds of the search for what a pod has left behind: processes looked at, and
// processes told of.
const (
	maxSearched  = 32_768
	maxLeftovers = 64
)

// readLeftovers finds the processes outside the pod's groups that hold the
// standard output or error of a container whose first process has ended. The
// shim reads these pipes until everybody has closed them, and containerd says
// that the container runs until the shim is done. Where PIDs are shared, a
// process that was moved into another group (sudo, systemd-run, a container
// made by the container) lives on when the others of its container are killed.
//
// Only for such a pod is all of /proc looked at. Results that come with an error
// are good but not all. A pipe that a process holds under another number than 0, 1
// and 2 is not found.
func (r *Round) readLeftovers(ctx context.Context, files *kernfile.Reader, p *evidence.Pod, tasks,
	parents []kernfile.TaskStatus) ([]kernfile.TaskStatus, error) {
	if !p.HostPID && !p.ShareProcessNamespace || !slices.ContainsFunc(p.Containers, func(c evidence.Container) bool { return ended(&c, tasks) }) {
		return nil, nil
	}
	pipes := make(map[uint64]bool)
	known := make(map[int]bool)
	for i := range tasks {
		known[tasks[i].PID] = true
	}
	for i := range parents {
		if parents[i].Owner != ownerShim {
			continue
		}
		known[parents[i].PID] = true
		if err := r.readPipes(ctx, &parents[i], pipes); err != nil {
			return nil, err
		}
	}
	if len(pipes) == 0 {
		return nil, nil
	}
	uid := cmp.Or(p.RuntimeUID, p.UID)
	t := &tables{Round: r}
	var out []kernfile.TaskStatus
	var hidden error
	if err := r.each(ctx, files, func(one process) bool {
		if known[one.pid] || one.payer == uid {
			return true
		}
		s, err := r.read(files, one)
		if err != nil {
			return true
		}
		s, ok := withoutOffice(files, s)
		if !ok || s.Owner == uid {
			return true
		}
		held, err := r.holdsPipe(ctx, &s, pipes)
		if hides(&s, err) && hidden == nil {
			hidden = err // the others are looked at all the same
		}
		if !held {
			return true
		}
		// Its number may have gone to another process in between.
		if s, ok = outside(files, one.pid, uid); !ok {
			return true
		}
		if held, _ := r.holdsPipe(ctx, &s, pipes); !held {
			return true
		}
		// When it was started tells it from another one that gets its PID. No rule
		// needs that.
		_ = r.probe(ctx, &s, t, uid)
		out = append(out, s)
		return len(out) < maxLeftovers
	}); err != nil {
		return out, err
	}
	return out, hidden
}

// outside reads a process; not ok when it has ended, has no files, belongs to the
// pod, or is one of those that hold the containers' pipes by office.
func outside(files *kernfile.Reader, pid int, uid string) (s kernfile.TaskStatus, ok bool) {
	s, ok = notByOffice(files, pid)
	return s, ok && s.Owner != uid
}

// notByOffice reads a process; not ok when it has ended, has no files, or is a shim or
// containerd, which hold the containers' pipes by office.
func notByOffice(files *kernfile.Reader, pid int) (s kernfile.TaskStatus, ok bool) {
	s, err := files.TaskStatus(pid)
	if err != nil {
		return kernfile.TaskStatus{}, false
	}
	return withoutOffice(files, s)
}

// withoutOffice is notByOffice of one whose status was read.
func withoutOffice(files *kernfile.Reader, s kernfile.TaskStatus) (kernfile.TaskStatus, bool) {
	if s.Kernel || s.State == evidence.Zombie {
		return kernfile.TaskStatus{}, false
	}
	s.Cgroup = readCgroup(files, s.PID)
	s.Owner, s.Container = owner(&s.Task)
	return s, !byOffice(&s)
}

// byOffice reports whether a process is a shim or containerd, which hold the pipes of
// containers by office.
func byOffice(s *kernfile.TaskStatus) bool {
	return s.Owner == ownerShim || s.Owner == ownerContainerd && s.Comm == ownerContainerd
}

// ended says that a container runs by the word of containerd, while its first
// process, which the shim knows, and all others in its group are gone.
func ended(c *evidence.Container, tasks []kernfile.TaskStatus) bool {
	return c.Kind != evidence.Sandbox && over(c, tasks)
}

// over says the same of a container, or of the sandbox, which has no output and whose process is
// there as long as all is well.
func over(c *evidence.Container, tasks []kernfile.TaskStatus) bool {
	return c.ID != "" && c.Unended() && c.Task.PID > 0 && (c.Kind != evidence.Sandbox || c.Task.PIDGone) &&
		!slices.ContainsFunc(tasks, func(s kernfile.TaskStatus) bool { return s.Container == c.ID || s.TID == c.Task.PID })
}

// readDrained notes of the containers that have ended whether the shim has closed their
// output, and probes it: when it was started tells it from another process that gets its
// PID. No rule needs that. It returns what it has read of the shim.
func (r *Round) readDrained(ctx context.Context, p *evidence.Pod, tasks, parents []kernfile.TaskStatus, t *tables) (saw probe.Seen, err error) {
	var found []*evidence.Container
	for i := range p.Containers {
		if c := &p.Containers[i]; over(c, tasks) {
			found = append(found, c)
		}
	}
	i := slices.IndexFunc(parents, func(s kernfile.TaskStatus) bool { return s.Owner == ownerShim })
	if len(found) == 0 || i < 0 {
		return saw, nil
	}
	if slices.ContainsFunc(parents[i+1:], func(s kernfile.TaskStatus) bool { return s.Owner == ownerShim }) {
		return saw, nil // which of them had the output is not known
	}
	if saw, err = r.askFiles(ctx, probe.Outputs, &parents[i]); err != nil {
		return probe.Seen{}, err
	}
	if parents[i].Probe == nil {
		_ = r.probe(ctx, &parents[i], t, "")
	}
	for _, c := range found {
		c.Task.Executed = slices.Contains(saw.Executed, c.ID)
		c.Task.Drained = !saw.Gone && !slices.Contains(saw.Outputs, c.ID)
	}
	return saw, nil
}

// readPipes adds the inodes of the pipes that a shim reads from.
func (r *Round) readPipes(ctx context.Context, shim *kernfile.TaskStatus, pipes map[uint64]bool) error {
	saw, err := r.askFiles(ctx, probe.Pipes, shim)
	for _, inode := range saw.Pipes {
		pipes[inode] = true
	}
	return err
}

// holdsPipe reports whether a standard stream of a process writes to one of the
// pipes.
func (r *Round) holdsPipe(ctx context.Context, s *kernfile.TaskStatus, pipes map[uint64]bool) (bool, error) {
	saw, err := r.askFiles(ctx, probe.Streams, s)
	return slices.ContainsFunc(saw.Pipes, func(inode uint64) bool { return pipes[inode] }), err
}

// askFiles asks for open files of a process. One that has ended has none.
func (r *Round) askFiles(ctx context.Context, what probe.What, s *kernfile.TaskStatus) (probe.Seen, error) {
	if r.Prober == nil {
		return probe.Seen{}, errNoProber
	}
	saw, err := r.ask(ctx, what, &s.Task)
	return saw, complaint(&saw, err, s, "fdinfo")
}

// complaint returns why the open files of a process could not be read in full.
func complaint(saw *probe.Seen, err error, s *kernfile.TaskStatus, file string) error {
	switch {
	case err != nil:
		return fmt.Errorf("files of process %d: %w", s.PID, err)
	case saw.Beyond != "":
		return probe.Charge(errors.New(saw.Beyond))
	case len(saw.Denied) > 0:
		return fmt.Errorf("read %s of process %d: %w%s", file, s.PID, errDenied, grant(file, nil))
	case len(saw.Errors) > 0:
		return errors.New(saw.Errors[0])
	}
	return nil
}
