package proc

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/cgroup"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kernfile"
	"github.com/nodeagent-io/nodeagent/pkg/proc/probe"
)

// maxHeld bounds the processes whose namespace is looked up.
const maxHeld = 256

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
	var out []kernfile.TaskStatus
	asked := 0
	var failed error
	err = r.each(ctx, files, func(p process) bool {
		pid := p.pid
		if slices.ContainsFunc(known, func(s kernfile.TaskStatus) bool { return s.TID == pid }) {
			return true
		}
		s, err := r.read(files, p)
		if err != nil || len(s.NSpid) < len(init.NSpid) {
			return true
		}
		if asked++; asked > maxHeld {
			failed = fmt.Errorf("more than %d processes to look at: %w", maxHeld, kernfile.ErrTooMany)
			return false
		}
		s.Owner, _ = cgroup.PodOfPath(readCgroup(files, pid))
		member, err := r.pidNamespace(ctx, &s.Task)
		if err != nil {
			failed = err
			return false
		}
		if member == ns {
			s.Container, s.Owner = init.Container, ""
			out = append(out, s)
		}
		return true
	})
	return out, cmp.Or(failed, err)
}

// pidNamespace gives the number of a task's PID namespace; 0 when it is gone or
// cannot be told.
func (h *Host) pidNamespace(ctx context.Context, t *evidence.Task) (uint64, error) {
	saw, err := h.Prober.Ask(ctx, probe.PIDNS, h.Proc, t, t.Owner)
	return saw.PIDNS, err
}
