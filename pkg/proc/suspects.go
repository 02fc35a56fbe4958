package proc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kernfile"
	"github.com/nodeagent-io/nodeagent/pkg/proc/probe"
)

// Bounds of what is probed in one reading. A probe takes some 100 µs, but a
// second when it hangs.
const (
	maxSuspects    = 64
	maxInitThreads = 16
	maxChildren    = 16 // and grandchildren of one first process
)

// The ranks of suspects, the most telling first.
const (
	rankInit     = iota // a first process: whether a signal gets through to it
	rankDying           // killed, exiting, blocked in the kernel, or a leader that has gone before its threads
	rankStopped         // stopped, traced, dumping core
	rankThread          // a thread of an init that may wait for signals in its stead, or one behind a zombie leader
	rankChild           // a child or grandchild of a first process, which may wait for it
	rankExecuted        // executed in a container that has a hook: it may be the hook
	rankNone
)

// rank says whether a task is a suspect, and how good a one. A task that sleeps
// interruptibly, and to which nobody has sent SIGKILL, is none, with these
// exceptions: one that has no memory any more is inside do_exit, where it shows
// S, and nothing pending, for as long as a dead file system keeps it; and the
// first process of a container is always looked at, because what becomes of its
// stop signal depends on the system call that it waits in, and so are, by
// suspects, the processes that it may wait for.
func rank(s *kernfile.TaskStatus, first bool) int {
	switch {
	case s.Kernel || s.State == evidence.Dead:
		return rankNone
	case s.State == evidence.Zombie:
		if s.Leader() && s.Threads > 1 {
			return rankDying
		}
		return rankNone
	case s.Leader() && (first || s.NamespaceInit()):
		return rankInit
	case dies(s):
		return rankDying
	case s.State == evidence.Stopped || s.State == evidence.Traced || s.TracerPID != 0 || s.CoreDumping || s.State == evidence.Idle:
		return rankStopped
	}
	return rankNone
}

// dies reports whether a task has been killed, exits or is blocked in the kernel.
func dies(s *kernfile.TaskStatus) bool {
	return s.Killed() || s.ExitingByStatus() || s.State == evidence.Uninterruptible
}

// suspects chooses the tasks to probe, in the order in which that is done. Each container has its
// turn to choose, and in each the better rank goes first, and a new process before another thread
// of one that is there already. Left is the number of those that were not chosen.
func suspects(p *evidence.Pod, tasks []kernfile.TaskStatus) (chosen []*kernfile.TaskStatus, left int) {
	first := make(map[int]bool)
	stop := make(map[string]evidence.Signal)
	for _, c := range p.Containers {
		if c.Task.PID != 0 {
			first[c.Task.PID] = true
		}
		if c.ID != "" && c.StopSignal != 0 {
			stop[c.ID] = c.StopSignal
		}
	}
	// Threads of a first process whose stop signal has no handler may wait for
	// it in sigwait, which leaves no trace in their masks. Those behind a leader
	// that is a zombie may be inside exit, which shows nowhere else.
	waiters := make(map[int]int)
	for i := range tasks {
		t := &tasks[i].Task
		if t.Leader() && t.Threads > 1 && (t.State == evidence.Zombie ||
			(first[t.PID] || t.NamespaceInit()) && !t.Caught.Has(cmp.Or(stop[t.Container], evidence.SIGTERM))) {
			waiters[t.PID] = maxInitThreads
		}
	}
	children := childrenOfFirst(tasks, first)
	executed := executedIn(p, tasks, first)
	type suspect struct {
		*kernfile.TaskStatus
		rank, order int
	}
	byContainer := make(map[string][]suspect)
	var containers []string
	order := make(map[int]int)
	for i := range tasks {
		s := &tasks[i]
		k := rank(s, first[s.PID])
		if k == rankNone && waiters[s.PID] > 0 && !s.Leader() && s.State == evidence.Sleeping {
			waiters[s.PID]--
			k = rankThread
		}
		if k == rankNone && children[s.TID] {
			k = rankChild
		}
		if k == rankNone && executed[s.TID] {
			k = rankExecuted
		}
		if k == rankNone {
			continue
		}
		if _, ok := byContainer[s.Container]; !ok {
			containers = append(containers, s.Container)
		}
		byContainer[s.Container] = append(byContainer[s.Container], suspect{s, k, order[s.PID]})
		order[s.PID]++
	}
	for _, list := range byContainer {
		slices.SortStableFunc(list, func(a, b suspect) int {
			return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.order, b.order))
		})
	}
	for round := 0; ; round++ {
		any := false
		for _, c := range containers {
			if round >= len(byContainer[c]) {
				continue
			}
			any = true
			if s := byContainer[c][round]; len(chosen) < maxSuspects {
				chosen = append(chosen, s.TaskStatus)
			} else if s.rank < rankThread {
				left++
			}
		}
		if !any {
			break
		}
	}
	// On a starved node the time may not suffice for all of them. What becomes of a signal takes the
	// knowledge of all, a thread that cannot die its own.
	slices.SortStableFunc(chosen, func(a, b *kernfile.TaskStatus) int {
		switch first := dies(a); {
		case first == dies(b):
			return 0
		case first:
			return -1
		}
		return 1
	})
	return chosen, left
}

// childrenOfFirst gives the leaders of those processes that a first process, or
// a child of one, has started, the children before the grandchildren. What a
// shell or a small init does with a signal depends on them. A zombie has nothing
// more to tell.
func childrenOfFirst(tasks []kernfile.TaskStatus, first map[int]bool) map[int]bool {
	if !slices.ContainsFunc(tasks, func(s kernfile.TaskStatus) bool { return s.Leader() && (first[s.PID] || s.NamespaceInit()) }) {
		return nil
	}
	byParent := make(map[int][]int)
	for i := range tasks {
		s := &tasks[i]
		if s.Leader() && s.PPID != 0 && s.State != evidence.Zombie && s.State != evidence.Dead {
			byParent[s.PPID] = append(byParent[s.PPID], s.PID)
		}
	}
	out := make(map[int]bool)
	for i := range tasks {
		s := &tasks[i]
		if !s.Leader() || !first[s.PID] && !s.NamespaceInit() {
			continue
		}
		// One that is also a first process has its own rank and costs no place.
		room := maxChildren
		line := slices.Clone(byParent[s.PID])
		for _, child := range byParent[s.PID] {
			line = append(line, byParent[child]...)
		}
		for _, pid := range line {
			if room == 0 {
				break
			}
			if !first[pid] && !out[pid] {
				out[pid] = true
				room--
			}
		}
	}
	return out
}

// executedIn returns the leaders of the processes that a shim has executed in
// containers that have a preStop or a postStart hook.
func executedIn(p *evidence.Pod, tasks []kernfile.TaskStatus, first map[int]bool) map[int]bool {
	hook := make(map[string]bool)
	for _, c := range p.Containers {
		hook[c.ID] = c.ID != "" && (c.PreStopProgram != "" || c.PostStartProgram != "")
	}
	inside := make(map[int]bool)
	for i := range tasks {
		inside[tasks[i].PID] = true
	}
	out := make(map[int]bool)
	for i := range tasks {
		if s := &tasks[i]; hook[s.Container] && s.Leader() && !first[s.PID] && !s.NamespaceInit() && !inside[s.PPID] {
			out[s.PID] = true
		}
	}
	return out
}

// probeSuspects probes the suspicious ones among the pod's tasks and their
// parents, and says in Missing what was in the way.
func (h *Host) probeSuspects(ctx context.Context, p *evidence.Pod, tasks, parents []kernfile.TaskStatus, t *tables, uid string) {
	chosen, left := suspects(p, tasks)
	p.Unprobed = left
	t.first = startedOutside(tasks)
	for i := range parents {
		if k := rank(&parents[i], false); k == rankDying || k == rankStopped || holdsTask(&parents[i], tasks) {
			chosen = append(chosen, &parents[i])
		}
	}
	if h.Prober == nil {
		p.Lack(evidence.Suspects, errNoProber.Error())
		return
	}
	for i, s := range chosen {
		err := h.probe(ctx, s, t, uid)
		if err == nil {
			continue
		}
		if ctx.Err() != nil {
			p.Lack(evidence.Suspects, fmt.Sprintf("%d of %d suspicious tasks were looked at before the time was over", i, len(chosen)))
			return
		}
		p.Lack(evidence.Suspects, err.Error())
	}
}

// maxFirst bounds the processes that startedOutside returns.
const maxFirst = 64

// startedOutside returns the processes of a pod of which the parent is outside of it.
func startedOutside(tasks []kernfile.TaskStatus) []*evidence.Task {
	inside := make(map[int]bool, len(tasks))
	for i := range tasks {
		inside[tasks[i].PID] = true
	}
	var out []*evidence.Task
	for i := range tasks {
		if t := &tasks[i].Task; t.Leader() && !inside[t.PPID] && len(out) < maxFirst {
			out = append(out, t)
		}
	}
	return out
}

// holdsTask reports whether a process outside the pod traces a task, or has not reaped
// one: what is said about it names it by when it was started.
func holdsTask(parent *kernfile.TaskStatus, tasks []kernfile.TaskStatus) bool {
	return slices.ContainsFunc(tasks, func(s kernfile.TaskStatus) bool {
		return s.TracerPID == parent.PID || s.State == evidence.Zombie && s.PPID == parent.PID
	})
}

// probe fills in a task's Probe. An error says that something could not be
// read; what could be is filled in all the same. A task that is gone gets none.
func (h *Host) probe(ctx context.Context, s *kernfile.TaskStatus, t *tables, uid string) error {
	if h.Prober == nil {
		return errNoProber
	}
	saw, err := h.Prober.Ask(ctx, probe.Task, h.Proc, &s.Task, cmp.Or(s.Owner, uid))
	hung := (*probe.HungError)(nil)
	if err != nil && !errors.As(err, &hung) {
		return fmt.Errorf("probe task %d: %w", s.TID, err)
	}
	if saw.Gone || !same(s, saw.Was) {
		return nil
	}
	e := &evidence.Probe{
		Start:    saw.Start,
		Group:    saw.Group,
		Terminal: saw.Terminal,
		Flags:    saw.Flags,
		Reaped:   saw.Reaped,
		Exe:      kernfile.Printable(saw.Exe),
		Wchan:    saw.Wchan,
		Stack:    saw.Stack,
		Syscall:  saw.Call.Name,
		Fault:    saw.Call.Outside && faulting(&s.Task, saw.Stack),
	}
	e.Started = probe.Started(saw.Start)
	s.Probe = e
	if hung != nil {
		e.Hung = []string{hung.File}
		return nil
	}
	err = h.culprit(s, &saw, t, uid)
	if e.Mount != nil || e.VolumePath != "" || e.Candidates != nil {
		// The files were read one after the other. Only of a task that has not
		// run meanwhile do they tell of one and the same wait.
		if saw.Is == nil || saw.Is.Comm != s.Comm || saw.Is.Switches != s.Switches {
			e.Mount, e.Via, e.Indirect, e.VolumePath, e.Relative, e.Candidates = nil, "", false, "", false, nil
		}
	}
	if e.Mount != nil {
		t.mounts.AskServer(e.Mount)
		t.mounts.AskDisk(e.Mount)
		t.mounts.AskDaemon(e.Mount)
	}
	var why reasons
	for _, name := range saw.Denied {
		why = append(why, fmt.Errorf("read %s of task %d: %w%s", name, s.TID, errDenied, grant(name, nil)))
	}
	for _, text := range saw.Errors {
		why = append(why, errors.New(text))
	}
	if err != nil {
		why = append(why, err)
	}
	if len(why) > 0 {
		return why
	}
	return nil
}

// reasons are errors of one task, told in one line.
type reasons []error

func (r reasons) Error() string {
	var all []string
	for _, err := range r {
		all = append(all, err.Error())
	}
	return strings.Join(all, "; ")
}

func (r reasons) Unwrap() []error { return r }

// same reports whether what the helper has read is of the task of which the status was read before: its number may
// have gone to another one in between. A task that has another name or parent meanwhile is not known to be the same.
func same(s *kernfile.TaskStatus, was *probe.Moment) bool {
	return was != nil && was.PID == s.PID && was.Comm == s.Comm && was.PPID == s.PPID && was.Switches >= s.Switches && slices.Equal(was.NSpid, s.NSpid)
}
