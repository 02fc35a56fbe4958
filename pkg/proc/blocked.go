package proc

import (
	"context"
	"fmt"
	"strconv"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// ReadBlocked gives the tasks of the whole node that are in state D, with their
// owners: threads of pods, of the kubelet and its children, of the kernel. The
// first of them are probed. It reads the status of every thread of the node and
// is meant for once per period, while there is a pod to explain. Results that
// come with an error are good but not all.
func (r *Round) ReadBlocked(ctx context.Context) ([]evidence.Task, error) {
	files, err := newReader(r.Proc)
	if err != nil {
		return nil, err
	}
	defer files.close()
	pids, err := r.pids()
	if err != nil {
		return nil, err
	}
	found, err := readBlocked(ctx, files, pids)
	var firstErr error
	if err != nil {
		firstErr = fmt.Errorf("look for blocked tasks: %w", err)
	}
	t := &tables{Round: r}
	probed := 0
	for i := range found {
		s := &found[i]
		s.Cgroup = readCgroup(files, s.TID)
		s.Owner, s.Container = owner(&s.Task)
		if r.Prober == nil || s.Kernel || probed >= maxBlocked {
			continue
		}
		probed++
		if err := r.probe(ctx, s, t, ""); err != nil && firstErr == nil {
			firstErr = err
		}
		if ctx.Err() != nil {
			break
		}
	}
	return toTasks(found), firstErr
}

func readBlocked(ctx context.Context, r *reader, pids []int) ([]status, error) {
	var out []status
	look := func(tid int) (threads int) {
		b, err := r.ofTask(tid, "status")
		if err != nil {
			return 0
		}
		state, threads := quickStatus(b)
		if state == 'D' {
			if s, err := parseStatus(b); err == nil {
				out = append(out, s)
			}
		}
		return threads
	}
	var tids []int
	for i, pid := range pids {
		if i%64 == 0 && ctx.Err() != nil {
			return out, ctx.Err()
		}
		if look(pid) <= 1 {
			continue
		}
		r.name = append(strconv.AppendInt(r.name[:0], int64(pid), 10), "/task"...)
		var err error
		tids, err = r.ids(tids[:0])
		if gone(err) {
			continue
		}
		if err != nil {
			return out, err
		}
		for j, tid := range tids {
			if j%64 == 0 && ctx.Err() != nil {
				return out, ctx.Err()
			}
			if tid != pid {
				look(tid)
			}
		}
	}
	return out, nil
}
