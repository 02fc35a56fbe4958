package proc

import (
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

// PodDirs returns the UIDs of the pods that the kubelet has directories of.
func (r *Round) PodDirs(ctx context.Context) ([]string, error) {
	if r.Prober == nil {
		return nil, errNoProber
	}
	return r.Prober.Pods(ctx, r.Proc, r.KubeletDir)
}

// readVolumes fills in what is left of the pod's volumes, and who uses their mounts.
func (r *Round) readVolumes(ctx context.Context, files *kernfile.Reader, p *evidence.Pod, uid string) {
	if r.Prober == nil {
		p.Lack(evidence.Volumes, errNoProber.Error())
		p.Lack(evidence.Holders, errNoProber.Error())
		return
	}
	dirs, sockets, err := r.Prober.Volumes(ctx, r.Proc, r.KubeletDir, uid)
	if err != nil {
		p.Lack(evidence.Volumes, fmt.Sprintf("list the directories of the pod's volumes: %v", err))
	}
	for _, d := range dirs {
		v := evidence.Volume{Name: printable(d.Name), Plugin: printable(d.Plugin), Block: d.Block, Driver: printable(d.Driver), Subpaths: d.Subpaths}
		v.Unregistered = d.Driver != "" && !slices.ContainsFunc(sockets, func(s string) bool { return strings.HasPrefix(s, d.Driver) })
		p.Volumes = append(p.Volumes, v)
	}
	if len(p.Mounts) == 0 || p.Overdue() < holdersAfter {
		return
	}
	host, err := r.mounts.Host()
	if err != nil {
		return // Mounts is missing
	}
	if p.Holders, err = r.readHolders(ctx, files, p, host); err != nil {
		p.Lack(evidence.Holders, fmt.Sprintf("look for processes that use the pod's mounts: %v", err))
	}
}

func printable(s string) string { return kernfile.Printable([]byte(s)) }

const (
	// maxHolders bounds the processes that are told of.
	maxHolders = 16
	// holdersAfter is how far past its deadline a pod is when the files of all
	// processes are looked at: most volumes are unmounted within a second.
	holdersAfter = 10 * time.Second
)

// readHolders finds the processes in the host's mount namespace that use a mount of
// the pod. An open file names its mount by its ID. Of a directory or a program only
// the path is known, so that nothing is said where two mounts are at one place.
// Results that come with an error are good but not all.
func (r *Round) readHolders(ctx context.Context, files *kernfile.Reader, p *evidence.Pod, host *mount.Table) ([]evidence.Holder, error) {
	users, err := r.users(ctx, files)
	var out []evidence.Holder
	for i := range users {
		u := &users[i]
		id, via := holds(p, host, &u.saw)
		if via == "" {
			continue
		}
		if out = append(out, evidence.Holder{Task: u.task, MountID: id, Via: via}); len(out) == maxHolders {
			break
		}
	}
	return out, err
}

// A user is a process in the host's mount namespace and what it uses of it.
type user struct {
	task evidence.Task
	saw  probe.Seen
}

// search is the look of a round at what the processes of the node use: for one pod it
// costs as much as for all. Who has no time left leaves the rest to the next pod.
type search struct {
	turn   chan struct{} // holds one token; who has it may use the rest
	next   int           // of the round's processes
	users  []user
	hidden error // the first one, of a process that could not be read
}

// users returns the processes in the host's mount namespace. Those that come with an
// error are not all of them.
func (r *Round) users(ctx context.Context, files *kernfile.Reader) ([]user, error) {
	pids, err := r.pids()
	if err != nil {
		return nil, err
	}
	f := &r.search
	select {
	case <-f.turn:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { f.turn <- struct{}{} }()
	for ; f.next < min(len(pids), maxSearched); f.next++ {
		s, err := files.TaskStatus(pids[f.next])
		if err != nil || s.Kernel || s.State == evidence.Zombie {
			continue
		}
		s.Cgroup = readCgroup(files, s.PID)
		s.Owner, s.Container = owner(&s.Task)
		saw, err := r.askFiles(ctx, probe.Holds, &s)
		if ctx.Err() != nil {
			return f.users, ctx.Err()
		}
		if err != nil && f.hidden == nil {
			f.hidden = err
		}
		if saw.InHost {
			f.users = append(f.users, user{s.Task, saw})
		}
	}
	if len(pids) > maxSearched {
		return f.users, fmt.Errorf("more than %d processes: %w", maxSearched, kernfile.ErrTooMany)
	}
	return f.users, f.hidden
}

// holds returns the mount of the pod that a process uses, and by what; "" when it
// uses none.
func holds(p *evidence.Pod, host *mount.Table, saw *probe.Seen) (id int, via string) {
	if !saw.InHost {
		return 0, ""
	}
	for _, id := range saw.Mounts {
		if slices.ContainsFunc(p.Mounts, func(m evidence.Mount) bool { return m.ID == id }) {
			return id, "an open file"
		}
	}
	for _, link := range []struct{ name, via string }{
		{"cwd", "its working directory"}, {"root", "its root directory"}, {"exe", "its program"},
	} {
		text := strings.TrimSuffix(saw.Dirs[link.name], " (deleted)")
		if text == "" {
			continue
		}
		m := host.Holding(text)
		if m == nil || host.Stacked(m) || !slices.ContainsFunc(p.Mounts, func(e evidence.Mount) bool { return e.ID == m.ID }) {
			continue
		}
		return m.ID, link.via
	}
	return 0, ""
}
