package proc

import (
	"context"
	"errors"
	"fmt"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kernfile"
	"github.com/nodeagent-io/nodeagent/pkg/proc/probe"
)

// maxScanners bounds the programs that scan files and are told of.
const maxScanners = 8

// ReadScanners finds the processes that the kernel asks before it lets others open, read or execute files: each has a
// group of fanotify open that is asked (fanotify(7)). All of /proc is looked at. Results that come with an error are
// good but not all. Where the time did not suffice, and none was found, the next search goes on from there.
func (r *Round) ReadScanners(ctx context.Context) ([]evidence.Task, error) {
	if r.Prober == nil {
		return nil, errNoProber
	}
	files, err := kernfile.Open(r.Proc)
	if err != nil {
		return nil, err
	}
	defer files.Close()
	var out []evidence.Task
	var hidden error
	t := &tables{Round: r}
	after := int(r.searched.Load())
	tried, last := after, after
	err = r.eachAfter(ctx, files, after, func(p process) bool {
		s, err := r.read(files, p)
		if err != nil || s.Kernel || s.State == evidence.Zombie && s.Threads <= 1 {
			return true
		}
		s.Cgroup = readCgroup(files, p.pid)
		s.Owner, s.Container = owner(&s.Task)
		tried = p.pid
		saw, err := r.ask(ctx, probe.Scanner, &s.Task)
		if err = complaint(&saw, err, &s, "fdinfo"); hides(&s, err) && hidden == nil && ctx.Err() == nil {
			hidden = err // the others are asked all the same
		}
		if ctx.Err() == nil {
			last = p.pid
		}
		if !saw.Scans {
			return ctx.Err() == nil
		}
		if len(out) == maxScanners {
			hidden = fmt.Errorf("more than %d processes have files scanned", maxScanners)
			return false
		}
		_ = r.probe(ctx, &s, t, "") // it says more of it, and tells it from another process
		out = append(out, s.Task)
		return ctx.Err() == nil
	})
	switch {
	case ctx.Err() == nil:
		r.searched.Store(0)
	case len(out) == 0 && last == after:
		r.searched.Store(int64(tried)) // the first one has taken all of the time
	case len(out) == 0:
		r.searched.Store(int64(last))
	}
	return out, errors.Join(err, hidden, ctx.Err())
}
