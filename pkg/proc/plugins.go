package proc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/cgroup"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kernfile"
	"github.com/nodeagent-io/nodeagent/pkg/proc/probe"
)

// Bounds of the search for CNI plugins: children of containerd that are asked what
// they are, and processes of one plugin that are told of.
const (
	maxPlugins    = 256
	maxOfAPlugin  = 16
	commandAdd    = "ADD"
	commandDelete = "DEL"
)

// readPlugins finds the CNI plugins that containerd runs to take down the network of the pod's
// sandbox, and to set up the one of a sandbox that is yet to be started, each followed by its
// descendants, if nothing else of the pod lives. Results that come with an error are good but not
// all.
func (r *Round) readPlugins(ctx context.Context, files *kernfile.Reader, p *evidence.Pod, tasks []kernfile.TaskStatus) (down,
	up []kernfile.TaskStatus, err error) {
	sandboxes, starts := sandboxesAlone(p, tasks), mayBeSetUp(p, tasks)
	if len(sandboxes) == 0 && !starts {
		return nil, nil, nil
	}
	if r.Prober == nil {
		return nil, nil, errNoProber
	}
	running, err := r.plugins.get(ctx, func() (plugins, error) { return r.allPlugins(ctx, files) })
	if err != nil {
		return nil, nil, err
	}
	for _, id := range sandboxes {
		down = append(down, running.deletes[id]...)
	}
	if starts {
		up = slices.Clone(running.adds[cmp.Or(p.RuntimeUID, p.UID)])
	}
	hidden := running.hidden
	t := &tables{Round: r}
	for _, of := range [][]kernfile.TaskStatus{down, up} {
		for i := range of {
			if err := r.probe(ctx, &of[i], t, ""); err != nil && hidden == nil {
				hidden = err
			}
		}
	}
	return down, up, hidden
}

// plugins are the CNI plugins that containerd runs, each followed by its descendants: those that
// take down the network of a sandbox, by the sandbox's ID, and those that set one up, by the pod's
// UID. hidden is why they may not be all.
type plugins struct {
	deletes, adds map[string][]kernfile.TaskStatus
	hidden        error
}

// allPlugins finds those of all sandboxes. containerd starts a plugin as its child, with
// the command, the sandbox and the pod in its environment (CNI specification, section 2). All of
// /proc is looked at.
func (r *Round) allPlugins(ctx context.Context, files *kernfile.Reader) (plugins, error) {
	services, err := r.office(ctx, files, func(c string) bool { return c == ownerContainerd })
	if err != nil {
		return plugins{}, err
	}
	children, err := r.children(ctx, files)
	if err != nil {
		return plugins{}, err
	}
	out := plugins{deletes: make(map[string][]kernfile.TaskStatus), adds: make(map[string][]kernfile.TaskStatus)}
	asked := 0
	for i := range services {
		for _, pid := range children[services[i].PID] {
			s, err := files.TaskStatus(pid)
			if err != nil || s.PPID != services[i].PID || s.Comm == ownerContainerd {
				continue // it has ended, or is about to become something else
			}
			if asked++; asked > maxPlugins {
				out.hidden = fmt.Errorf("containerd has more than %d children", maxPlugins)
				return out, nil
			}
			s.Cgroup, s.Owner = readCgroup(files, pid), ownerContainerd
			if uid, _ := cgroup.PodOfPath(s.Cgroup); uid != "" {
				continue
			}
			saw, err := r.Prober.Ask(ctx, probe.Plugin, r.Proc, &s.Task, ownerContainerd)
			if ctx.Err() != nil {
				return plugins{}, ctx.Err()
			}
			if err == nil && len(saw.Denied)+len(saw.Errors) > 0 {
				err = errors.New("permission denied" + grant("environ", nil))
			}
			if err != nil {
				if out.hidden == nil {
					out.hidden = fmt.Errorf("read environ of process %d: %w", pid, err)
				}
				continue
			}
			switch id, uid := saw.CNI.ContainerID, saw.CNI.PodUID; {
			case saw.CNI.Command == commandDelete:
				out.deletes[id] = append(out.deletes[id], family(files, s, children)...)
			case saw.CNI.Command == commandAdd && uid != "":
				out.adds[uid] = append(out.adds[uid], family(files, s, children)...)
			}
		}
	}
	return out, nil
}

// sandboxesAlone returns the pod's sandboxes when no process of its other containers
// lives: their network is taken down after the containers have ended.
func sandboxesAlone(p *evidence.Pod, tasks []kernfile.TaskStatus) []string {
	var ids []string
	if p.Overdue() <= 0 {
		return nil
	}
	for _, c := range p.Containers {
		if c.Kind == evidence.Sandbox && c.ID != "" {
			ids = append(ids, c.ID)
		}
	}
	for i := range tasks {
		if !slices.Contains(ids, tasks[i].Container) && tasks[i].Container != "" && tasks[i].State != evidence.Zombie {
			return nil
		}
	}
	return ids
}

// mayBeSetUp reports whether containerd may be setting up the network of a sandbox of the pod: it
// does that before it starts the sandbox, and the kubelet has it done when nothing of the pod runs.
// A sandbox of before, and its containers, have ended then. Before 2.0 containerd has a record of
// the new one by then, which says that it is being created (RunPodSandbox, pkg/cri/server/sandbox_run.go).
func mayBeSetUp(p *evidence.Pod, tasks []kernfile.TaskStatus) bool {
	if _, unknown := p.Missing[evidence.Containers]; unknown || p.Overdue() <= 0 || p.ContainersEnded() {
		return false
	}
	live := func(c evidence.Container) bool {
		return c.State != "" && c.State != evidence.StateExited && (c.Kind != evidence.Sandbox || c.State != evidence.StateCreated)
	}
	return !slices.ContainsFunc(p.Containers, live) &&
		!slices.ContainsFunc(tasks, func(t kernfile.TaskStatus) bool { return t.State != evidence.Zombie })
}

// children returns the processes of the node by their parents.
func (r *Round) children(ctx context.Context, files *kernfile.Reader) (map[int][]int, error) {
	out := make(map[int][]int)
	if err := r.each(ctx, files, func(p process) bool {
		if s, err := r.read(files, p); err == nil && !s.Kernel {
			out[s.PPID] = append(out[s.PPID], p.pid)
		}
		return true
	}); err != nil {
		return nil, err
	}
	return out, nil
}

// family returns a process and its descendants, parents before children.
func family(files *kernfile.Reader, first kernfile.TaskStatus, children map[int][]int) []kernfile.TaskStatus {
	out := []kernfile.TaskStatus{first}
	for i := 0; i < len(out) && len(out) < maxOfAPlugin; i++ {
		for _, pid := range children[out[i].PID] {
			s, err := files.TaskStatus(pid)
			if err != nil || s.PPID != out[i].PID || len(out) == maxOfAPlugin {
				continue
			}
			s.Cgroup, s.Owner = readCgroup(files, pid), first.Owner
			out = append(out, s)
		}
	}
	return out
}
