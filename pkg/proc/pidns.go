package proc

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kernfile"
	"github.com/nodeagent-io/nodeagent/pkg/proc/probe"
)

// maxHeld bounds the processes that are told to hold a namespace.
const maxHeld = 256

// A member is a process in a PID namespace that is not the node's, by its number (the file ns/pid).
type member struct {
	pid       int
	namespace uint64
}

func newMembers() *walk[member] {
	w := newWalk[member]()
	w.zombies = true
	return w
}

// readHeld finds the processes that keep the init of a PID namespace from
// ending and are in no control group of the pod: zombies, which are in none,
// and processes that entered the namespace from outside. An init that has been
// killed waits in zap_pid_ns_processes until the last of them is reaped, which
// for one that entered is up to its parent outside (kernel/pid_namespace.c).
// Only in that case is all of /proc looked at.
func (r *Round) readHeld(ctx context.Context, files *kernfile.Reader, p *evidence.Pod, tasks []kernfile.TaskStatus) []kernfile.TaskStatus {
	inits := make(map[int]bool)
	for i := range tasks {
		if tasks[i].Leader() && tasks[i].NamespaceInit() {
			inits[tasks[i].PID] = true
		}
	}
	var out []kernfile.TaskStatus
	for i := range tasks {
		// It can be any thread of the init: the last one waits.
		init := tasks[i].Task
		init.Owner = cmp.Or(p.RuntimeUID, p.UID)
		if init.Probe == nil || !inits[init.PID] ||
			init.Probe.Wchan != "zap_pid_ns_processes" && !slices.Contains(init.Probe.Stack, "zap_pid_ns_processes") {
			continue
		}
		held, err := r.membersOutside(ctx, files, &init, append(slices.Clone(tasks), out...))
		out = append(out, held...)
		if err != nil {
			p.Lack(evidence.Processes, fmt.Sprintf("look for what holds the PID namespace of process %d: %v", init.PID, err))
		}
	}
	return out
}

func (r *Round) membersOutside(ctx context.Context, files *kernfile.Reader, init *evidence.Task, known []kernfile.TaskStatus) ([]kernfile.TaskStatus, error) {
	ns, err := r.pidNamespace(ctx, init)
	if err != nil || ns == 0 {
		return nil, err
	}
	members, err := r.members.all(ctx, r, files, init.Owner, func(s *kernfile.TaskStatus) (member, bool, error) {
		if len(s.NSpid) < 2 {
			return member{}, false, nil
		}
		in, err := r.pidNamespace(ctx, &s.Task)
		return member{s.PID, in}, in != 0, err
	})
	var out []kernfile.TaskStatus
	for _, m := range members {
		if m.namespace != ns || slices.ContainsFunc(known, func(s kernfile.TaskStatus) bool { return s.TID == m.pid }) {
			continue
		}
		if len(out) == maxHeld {
			return out, cmp.Or(err, fmt.Errorf("more than %d processes: %w", maxHeld, kernfile.ErrTooMany))
		}
		if s, err := files.TaskStatus(m.pid); err == nil && len(s.NSpid) >= len(init.NSpid) { // its number may be another one's
			s.Container = init.Container
			out = append(out, s)
		}
	}
	return out, err
}

// pidNamespace gives the number of a task's PID namespace; 0 when it is gone or
// cannot be told.
func (r *Round) pidNamespace(ctx context.Context, t *evidence.Task) (uint64, error) {
	saw, err := r.ask(ctx, probe.PIDNS, t)
	return saw.PIDNS, err
}
