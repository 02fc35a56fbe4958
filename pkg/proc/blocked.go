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
)

// maxBlockedKept bounds the tasks in state D that are kept in one reading, those of
// the kernel apart, which nobody can make many of. Each parent of a vfork is one.
const maxBlockedKept = 512

// ReadBlocked gives the tasks of the whole node that are in state D, with their
// owners: threads of pods, of the kubelet and its children, of the kernel. The
// first of them are probed. Those that are no threads of the kernel are at most 512.
// took is how long the search for them took. It reads the status of every thread of the node and
// is meant for once per period, while there is a pod to explain. Results that
// come with an error are good but not all.
func (r *Round) ReadBlocked(ctx context.Context) (tasks []evidence.Task, took time.Duration, err error) {
	began := time.Now()
	files, err := kernfile.Open(r.Proc)
	if err != nil {
		return nil, 0, err
	}
	defer files.Close()
	pids, err := r.pids()
	if err != nil {
		return nil, 0, err
	}
	found, err := readBlocked(ctx, files, pids)
	took = time.Since(began)
	var firstErr error
	if err != nil {
		firstErr = fmt.Errorf("look for blocked tasks: %w", err)
	}
	t := &tables{Round: r}
	// Those first that unmount something: a volume's pod waits for them. The kubelet's
	// own threads, of which there may be many, come last: ReadProcess has them too.
	for i := range found {
		s := &found[i]
		s.Cgroup = readCgroup(files, s.TID)
		s.Owner, s.Container = owner(&s.Task)
	}
	slices.SortStableFunc(found, func(a, b kernfile.TaskStatus) int { return cmp.Compare(probeOrder(&a), probeOrder(&b)) })
	probed := 0
	for i := range found {
		s := &found[i]
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
	return toTasks(found), took, firstErr
}

// probeOrder says which blocked tasks are probed first.
func probeOrder(s *kernfile.TaskStatus) int {
	switch {
	case strings.HasPrefix(s.Comm, "umount"), strings.HasPrefix(s.Comm, "fusermount"):
		return 0
	case slices.Contains(KubeletNames, s.Comm) && s.Owner == ownerKubelet:
		return 2
	}
	return 1
}

func readBlocked(ctx context.Context, r *kernfile.Reader, pids []int) ([]kernfile.TaskStatus, error) {
	var out []kernfile.TaskStatus
	kept := 0
	look := func(tid int) (threads int) {
		b, err := r.Task(tid, kernfile.Status)
		if err != nil {
			return 0
		}
		state, threads := kernfile.QuickStatus(b)
		if state == 'D' {
			if s, err := kernfile.ParseStatus(b); err == nil && (s.Kernel || kept < maxBlockedKept) {
				out = append(out, s)
				if !s.Kernel {
					kept++
				}
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
		var err error
		tids, err = r.TIDs(pid, tids[:0])
		if kernfile.Gone(err) {
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
