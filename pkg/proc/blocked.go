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
	found, err := r.readBlocked(ctx, files)
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

// readBlocked reads the status of all threads of the node. Each is charged to its pod.
func (r *Round) readBlocked(ctx context.Context, files *kernfile.Reader) ([]kernfile.TaskStatus, error) {
	var out []kernfile.TaskStatus
	kept := 0
	look := func(tid int, payer string) (threads int) {
		if r.threads.empty(payer) {
			return 0
		}
		b, err := files.Task(tid, kernfile.Status)
		if err != nil {
			return 0
		}
		if cost := costOf(len(b)); payer == rootGroup {
			r.threads.pay(payer, cost-1)
		} else {
			r.threads.pay(payer, cost)
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
	var failed error
	err := r.each(ctx, files, func(p process) bool {
		if look(p.pid, p.payer) <= 1 {
			return true
		}
		var err error
		tids, err = files.TIDs(p.pid, tids[:0])
		if err != nil && !kernfile.Gone(err) {
			failed = err
			return false
		}
		for _, tid := range tids {
			if ctx.Err() != nil {
				break
			}
			if tid != p.pid {
				look(tid, p.payer)
			}
		}
		return true
	})
	return out, cmp.Or(err, failed, ctx.Err())
}
