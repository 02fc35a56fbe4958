package proc

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kernfile"
	"github.com/nodeagent-io/nodeagent/pkg/proc/probe"
)

// readShortages finds the limits that the pod's shims and containerd have used up: of their control
// groups on tasks, and their own on open files; and what the file system of its records lacks. Of several containerds of which it is not known which one the
// kubelet speaks to nothing is told. Results that come with an error are good but not all.
func (r *Round) readShortages(ctx context.Context, files *kernfile.Reader, p *evidence.Pod, parents []kernfile.TaskStatus) ([]evidence.Shortage, error) {
	// The end of a container that obeys the stop signal is written down, or not, long before the deadline.
	ended := slices.ContainsFunc(p.Containers, func(c evidence.Container) bool { return c.State == evidence.StateRunning && c.Task.Absent })
	if p.Overdue() <= 0 && !ended {
		return nil, nil
	}
	var out []evidence.Shortage
	var hidden error
	for i := range parents {
		if parents[i].Owner != ownerShim {
			continue
		}
		found, err := r.shortages(ctx, files, &parents[i])
		if err != nil && hidden == nil {
			hidden = err
		}
		out = append(out, found...)
	}
	found, err := r.ofContainerd.get(ctx, func() (short, error) {
		all, err := r.ofService(ctx, files, "", ownerContainerd)
		if errors.Is(err, errSeveral) {
			err = nil
		}
		return short{all, err}, nil
	})
	return append(out, found.all...), errors.Join(hidden, err, found.err)
}

// ReadKubeletShortages finds the limits that the kubelet has used up, and what the file system of its directory lacks.
// Results that come with an error are good but not all.
func (r *Round) ReadKubeletShortages(ctx context.Context) ([]evidence.Shortage, error) {
	files, err := kernfile.Open(r.Proc)
	if err != nil {
		return nil, err
	}
	defer files.Close()
	if r.kubelet == "" {
		return nil, errors.New(r.mountsUnknown())
	}
	return r.ofService(ctx, files, r.kubelet, KubeletNames...)
}

// ofService returns the limits that a service has used up, and what the file system of its directory lacks; none when
// it does not run.
func (r *Round) ofService(ctx context.Context, files *kernfile.Reader, dir string, comms ...string) ([]evidence.Shortage, error) {
	s, err := r.service(ctx, files, comms)
	if s == nil {
		return nil, err
	}
	all, err := r.shortages(ctx, files, s)
	full, unasked := r.full(ctx, s, dir)
	return append(all, full...), errors.Join(err, unasked)
}

// A short is what a round knows of containerd's shortages.
type short struct {
	all []evidence.Shortage
	err error
}

// shortages returns the limits that a process has used up. One that has exited has none.
func (r *Round) shortages(ctx context.Context, files *kernfile.Reader, s *kernfile.TaskStatus) ([]evidence.Shortage, error) {
	var out []evidence.Shortage
	b, err := files.Task(s.PID, kernfile.Cgroup)
	if kernfile.Gone(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read cgroup of process %d: %w", s.PID, err)
	}
	full, hidden := r.tree().Full(b, s.PID)
	if full != nil {
		out = append(out, evidence.Shortage{
			Resource: evidence.Tasks, Owner: s.Owner, PID: s.PID, Cgroup: kernfile.Printable(full.Path), Limit: full.Limit, Used: full.Tasks,
		})
	}
	saw, err := r.askFiles(ctx, probe.Limits, s)
	if err == nil && saw.MaxOpen > 0 && saw.Open >= saw.MaxOpen {
		out = append(out, evidence.Shortage{Resource: evidence.Descriptors, Owner: s.Owner, PID: s.PID, Limit: saw.MaxOpen, Used: saw.Open})
	}
	return out, errors.Join(hidden, err)
}

// littleSpace is what is left of a file system, in bytes, that is full: what is freed and used from one moment to
// the next.
const littleSpace = 1 << 20

// full returns what the file system of a directory of a service lacks, "" for that of containerd's records. One that has
// no number of inodes makes them as it needs them.
func (r *Round) full(ctx context.Context, s *kernfile.TaskStatus, dir string) ([]evidence.Shortage, error) {
	if r.Prober == nil {
		return nil, errNoProber
	}
	saw, err := r.Prober.Disk(ctx, r.Proc, &s.Task, s.Owner, dir)
	err = complaint(&saw, err, s, "fdinfo")
	d := saw.Store
	if err != nil || d.Dir == "" {
		return nil, err
	}
	lack := evidence.Shortage{Owner: s.Owner, PID: s.PID, Dir: kernfile.Printable(d.Dir)}
	switch {
	case d.ReadOnly:
		lack.Resource = evidence.ReadOnly
	case d.Size > 0 && d.Free < littleSpace:
		lack.Resource, lack.Limit, lack.Used = evidence.Space, d.Size, d.Size-d.Free
	case d.Inodes > 0 && d.FreeInodes == 0:
		lack.Resource, lack.Limit, lack.Used = evidence.Inodes, d.Inodes, d.Inodes
	default:
		return nil, nil
	}
	return []evidence.Shortage{lack}, nil
}
