package proc

import (
	"context"
	"fmt"
	"os"
	"strconv"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"golang.org/x/sys/unix"
)

// ReadBlocked gives the tasks of the whole node that are in state D, with their
// owners: threads of pods, of the kubelet and its children, of the kernel. The
// first of them are probed. It reads the status of every thread of the node and
// is meant for once per period, while there is a pod to explain. Results that
// come with an error are good but not all.
func (h *Host) ReadBlocked(ctx context.Context) ([]evidence.Task, error) {
	r, err := newReader(h.Proc)
	if err != nil {
		return nil, err
	}
	defer r.close()
	found, err := readBlocked(ctx, r, h.Proc)
	var firstErr error
	if err != nil {
		firstErr = fmt.Errorf("look for blocked tasks: %w", err)
	}
	t := &tables{h: h}
	probed := 0
	for i := range found {
		s := &found[i]
		s.Cgroup = readCgroup(r, s.TID)
		s.Owner, s.Container = owner(&s.Task)
		if h.Prober == nil || s.Kernel || probed >= maxBlocked {
			continue
		}
		probed++
		if err := h.probe(ctx, s, t, ""); err != nil && firstErr == nil {
			firstErr = err
		}
		if ctx.Err() != nil {
			break
		}
	}
	return toTasks(found), firstErr
}

func readBlocked(ctx context.Context, r *reader, proc string) ([]status, error) {
	pids, err := listIDs(unix.AT_FDCWD, proc)
	if err != nil {
		return nil, err
	}
	var out []status
	name := make([]byte, 0, 64)
	look := func(tid int) (threads int) {
		name = append(strconv.AppendInt(name[:0], int64(tid), 10), "/status"...)
		b, err := r.single(string(name))
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
	for i, pid := range pids {
		if i%64 == 0 && ctx.Err() != nil {
			return out, ctx.Err()
		}
		if look(pid) <= 1 {
			continue
		}
		tids, err := listIDs(r.dir, strconv.Itoa(pid)+"/task")
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

// listIDs gives the numbers among the names of a directory, in its order, which
// is that of the numbers.
func listIDs(dir int, name string) ([]int, error) {
	fd, err := openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	d := os.NewFile(uintptr(fd), name)
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	out := make([]int, 0, len(names))
	for _, n := range names {
		if id, err := strconv.Atoi(n); err == nil {
			out = append(out, id)
		}
	}
	return out, nil
}
