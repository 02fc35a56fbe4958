package proc

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/cgroup"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kernfile"
	"github.com/nodeagent-io/nodeagent/pkg/proc/probe"
)

// What a search of the node costs depends on those that are searched: a status file takes the kernel 8 µs, and 7 ms for a
// process with 65,536 supplementary groups. So each pod pays for its own processes. Costs are in KiB that the kernel writes, at
// about 10 µs each, and not in time, which is another one on a busy node. A process counts as one, and what is beyond the
// first usualStatus KiB of its status.
const (
	usualStatus = 4
	// allowance is what a search may spend on one pod in a round, and on all dear ones together.
	allowance = 16 << 10
	// commonAllowance is what it may spend on all usual pods. When they cost more, each that costs more than oneOfMany is dear: a
	// node has some hundred pods.
	commonAllowance = 4 * allowance
	oneOfMany       = allowance / 16
	// dearFor is how long a pod that has cost more is dear: it is searched after all others.
	dearFor = 2 * time.Minute
)

// costOf returns what the reading of a status file of so many bytes costs.
func costOf(size int) int { return 1 + max(0, size>>10-usualStatus) }

// ownAllowance is what the reading of a pod may spend on its own tasks: more than 16,384 threads cost, which are the most
// that are read.
const ownAllowance = 4 * allowance

// A readStatus reads the status of a task.
type readStatus func(tid int) (kernfile.TaskStatus, error)

// statusOfPod returns one for the tasks of one pod, which ends with the context and with the pod's allowance (errDear).
func statusOfPod(ctx context.Context, files *kernfile.Reader) readStatus {
	left := ownAllowance
	return func(tid int) (kernfile.TaskStatus, error) {
		switch {
		case ctx.Err() != nil:
			return kernfile.TaskStatus{}, ctx.Err()
		case left <= 0:
			return kernfile.TaskStatus{}, errDear
		}
		s, err := files.TaskStatus(tid)
		left -= costOf(s.Size)
		return s, err
	}
}

// A process is one of a round's, with whom it is charged to: the UID of a pod, rootGroup, or "" for a process of the node.
type process struct {
	pid   int
	payer string
}

// rootGroup pays for those in the root group: threads of the kernel, and, with version 1, zombies of any pod. As
// nobody is known to have made them so many, they pay for their size only.
const rootGroup = "/"

// A ledger has the dear pods of a host.
type ledger struct {
	mu     sync.Mutex
	until  map[string]time.Time
	passed int64 // processes and threads that were passed over
}

// dear returns the pods that are dear at a time.
func (l *ledger) dear(now time.Time) map[string]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.until, func(_ string, until time.Time) bool { return now.After(until) })
	out := make(map[string]bool, len(l.until))
	for pod := range l.until {
		out[pod] = true
	}
	return out
}

// note makes a pod dear, and reports whether it was not.
func (l *ledger) note(pod string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, was := l.until[pod]
	if l.until == nil {
		l.until = make(map[string]time.Time)
	}
	l.until[pod] = now.Add(dearFor)
	return !was
}

// PassedOver returns how many processes and threads were left out of searches of the node, because those of their pod have
// cost too much.
func (h *Host) PassedOver() int64 {
	h.ledger.mu.Lock()
	defer h.ledger.mu.Unlock()
	return h.ledger.passed
}

// A purse is what searches of one kind spend on each pod in a round. It is safe for use by several goroutines.
type purse struct {
	host *Host
	mu   sync.Mutex
	// dear are the pods that were when the round began: they have one allowance.
	dear  map[string]bool
	spent map[string]int
	usual int // spent on those that were not
}

func newPurse(h *Host) *purse {
	return &purse{host: h, dear: h.ledger.dear(time.Now()), spent: make(map[string]int)}
}

// allDear is the account of the dear pods.
const allDear = "dear"

func (p *purse) account(payer string) string {
	if p.dear[payer] {
		return allDear
	}
	return payer
}

// pay charges a pod with what was read of its processes. It may be called by whoever reads something of them.
func (p *purse) pay(payer string, cost int) {
	if payer == "" {
		return
	}
	p.mu.Lock()
	account := p.account(payer)
	p.spent[account] += cost
	if account == payer {
		p.usual += cost
	}
	over := p.spent[account] > allowance || p.usual > commonAllowance && p.spent[account] > oneOfMany
	p.mu.Unlock()
	if over && account == payer && payer != rootGroup && p.host.ledger.note(payer, time.Now()) && p.host.Dear != nil {
		p.host.Dear(payer)
	}
}

// empty reports whether nothing more is read of a pod's processes, and counts that as one that is passed over.
func (p *purse) empty(payer string) bool {
	if payer == "" {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.spent[p.account(payer)] <= allowance {
		return false
	}
	p.host.ledger.mu.Lock()
	p.host.ledger.passed++
	p.host.ledger.mu.Unlock()
	return true
}

// errDear is why something is not known of a pod whose processes were passed over.
var errDear = fmt.Errorf("to read its processes takes too long, as with many supplementary groups: %w", kernfile.ErrTooMany)

// A census is the processes of the node in the order in which they are searched: by their IDs, and those of dear pods last.
type census struct {
	all   []process
	usual int   // how many of these are not of dear pods
	cut   error // says that there are more of these
}

// taken returns the census of the round.
func (r *Round) taken(ctx context.Context, files *kernfile.Reader) (census, error) {
	return r.census.get(ctx, func() (census, error) { return r.takeCensus(ctx, files) })
}

// takeCensus reads the groups of the processes of the node: 6 µs each, however dear one is. Those of dear pods, of
// which there may be very many, are told by the groups' own lists.
func (r *Round) takeCensus(ctx context.Context, files *kernfile.Reader) (census, error) {
	pids, err := r.pids()
	if err != nil {
		return census{}, err
	}
	listed := make(map[int]string)
	for pod := range r.purse.dear {
		groups, _ := r.tree().Leaders(pod, time.Now())
		for i := range groups {
			for _, pid := range groups[i].PIDs {
				listed[pid] = pod
			}
		}
	}
	payers := make(map[string]string) // by what the file says: of many processes there are few groups
	all, count := make([]process, 0, len(pids)), make(map[string]int)
	for _, pid := range pids {
		if ctx.Err() != nil {
			return census{}, ctx.Err()
		}
		payer, ok := listed[pid]
		if !ok {
			b, _ := files.Task(pid, kernfile.Cgroup)
			if payer, ok = payers[string(b)]; !ok {
				payer = payerOf(cgroup.ParsePath(b))
				payers[string(b)] = payer
			}
		}
		all = append(all, process{pid, payer})
		count[payer]++
	}
	for payer, n := range count {
		if payer != rootGroup {
			r.purse.pay(payer, n)
		}
	}
	last := r.last(count)
	isDear := func(p process) bool { return last[p.payer] }
	usual := slices.DeleteFunc(slices.Clone(all), isDear)
	var cut error
	if len(usual) > maxSearched {
		usual, cut = usual[:maxSearched], fmt.Errorf("more than %d processes: %w", maxSearched, kernfile.ErrTooMany)
	}
	out := census{usual: len(usual), cut: cut}
	out.all = append(usual, slices.DeleteFunc(all, func(p process) bool { return !isDear(p) })...)
	return out, nil
}

// last returns the pods that are searched last, of how many processes each has: those that are dear, and, where that is not
// enough for the others to be searched in full, those with the most. So it is with the root group.
func (r *Round) last(count map[string]int) map[string]bool {
	out, usual := maps.Clone(r.purse.dear), 0
	for payer, n := range count {
		if n > allowance && payer != "" {
			out[payer] = true
		}
		if !out[payer] {
			usual += n
		}
	}
	for usual > maxSearched {
		most := ""
		for payer, n := range count {
			if payer != "" && !out[payer] && (most == "" || n > count[most] || n == count[most] && payer < most) {
				most = payer
			}
		}
		if most == "" {
			break
		}
		out[most] = true
		usual -= count[most]
	}
	return out
}

// payerOf returns whom a process in a group is charged to.
func payerOf(group string) string {
	if uid, _ := cgroup.PodOfPath(group); uid != "" {
		return uid
	}
	if group == "/" {
		return rootGroup
	}
	return ""
}

// each calls do with the processes of the node, until it returns false. With an error it has not been called with all of them.
func (r *Round) each(ctx context.Context, files *kernfile.Reader, do func(p process) bool) error {
	return r.eachAfter(ctx, files, 0, do)
}

// eachAfter is the same, and begins after one of them.
func (r *Round) eachAfter(ctx context.Context, files *kernfile.Reader, after int, do func(p process) bool) error {
	known, err := r.taken(ctx, files)
	if err != nil {
		return err
	}
	all := known.all
	if after > 0 {
		usual := all[:known.usual]
		i, _ := slices.BinarySearchFunc(usual, after+1, func(p process, pid int) int { return p.pid - pid })
		all = slices.Concat(usual[i:], usual[:i], all[known.usual:])
	}
	for _, p := range all {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !do(p) {
			return nil
		}
	}
	return known.cut
}

// read reads the status of a process, and charges it. It is errDear when those of its pod have cost too much.
func (r *Round) read(files *kernfile.Reader, p process) (kernfile.TaskStatus, error) {
	if r.purse.empty(p.payer) {
		return kernfile.TaskStatus{}, errDear
	}
	s, err := files.TaskStatus(p.pid)
	if err == nil {
		r.purse.pay(p.payer, costOf(s.Size)-1) // the process itself was counted
	}
	return s, err
}

// ask asks the helper about a process in a search of the node, and charges its pod. It is errDear when the processes of that pod have
// cost too much.
func (r *Round) ask(ctx context.Context, what probe.What, t *evidence.Task) (probe.Seen, error) {
	payer := ""
	if t.InPod() {
		payer = t.Owner
	}
	if r.purse.empty(payer) {
		return probe.Seen{}, probe.Charge(errDear)
	}
	saw, err := r.Prober.Ask(ctx, what, r.Proc, t, t.Owner)
	r.purse.pay(payer, saw.Work)
	return saw, err
}
