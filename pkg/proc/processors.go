package proc

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/cgroup"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kernfile"
)

// Between two counts there are at least leastWindow, and at most mostWindow: what was counted before is forgotten.
const (
	leastWindow = 10 * time.Second
	mostWindow  = time.Minute
	maxUsers    = 3
)

// A processorCount is what the kernel has counted of the kubelet and of all who use the processors, at a time.
type processorCount struct {
	at          time.Time
	pid         int
	ran, waited time.Duration
	used        map[string]uint64
	quotas      map[string]evidence.CPU
	own         string // the path of the kubelet's group
}

// A processorWindow is the last count, and what follows from it and the one before.
type processorWindow struct {
	mu   sync.Mutex
	from processorCount
	last *evidence.Processors
}

// ReadProcessors tells how the kubelet has fared with the processors for the last ten seconds or more, and who has used
// them; nil when it was not asked for as long as that, or the kubelet is not found.
func (r *Round) ReadProcessors(ctx context.Context) (*evidence.Processors, error) {
	files, err := kernfile.Open(r.Proc)
	if err != nil {
		return nil, err
	}
	defer files.Close()
	kubelet, err := r.service(ctx, files, KubeletNames)
	if kubelet == nil {
		return nil, err
	}
	return r.processors.since(r.countProcessors(files, kubelet.PID)), nil
}

// countProcessors counts. What cannot be read is 0: nothing follows from that.
func (r *Round) countProcessors(files *kernfile.Reader, pid int) processorCount {
	n := processorCount{at: time.Now(), pid: pid}
	tids, _ := files.TIDs(pid, nil)
	for _, tid := range tids[:min(len(tids), maxThreads)] {
		b, err := files.Thread(pid, tid, kernfile.Schedstat)
		if err != nil {
			continue
		}
		ran, waited := parseSchedstat(b)
		n.ran, n.waited = n.ran+ran, n.waited+waited
	}
	if b, err := files.Task(pid, kernfile.Cgroup); err == nil {
		n.own, n.quotas = r.tree().Quotas(b)
	}
	if own := allowed(files, pid); own != "" && own == allowed(files, 1) {
		n.used = r.tree().Used() // else who runs on other processors takes nothing from it
	}
	return n
}

// allowed returns the processors on which a process may run, as its status file has them.
func allowed(files *kernfile.Reader, pid int) string {
	b, err := files.Task(pid, kernfile.Status)
	if err != nil {
		return ""
	}
	for line := range bytes.Lines(b) {
		if list, ok := bytes.CutPrefix(line, []byte("Cpus_allowed_list:")); ok {
			return string(bytes.TrimSpace(list))
		}
	}
	return ""
}

// parseSchedstat parses a file of a thread: for how long it has run, and waited for a processor, both in nanoseconds, and how
// often (Documentation/scheduler/sched-stats.rst).
func parseSchedstat(b []byte) (ran, waited time.Duration) {
	f := bytes.Fields(b)
	if len(f) < 2 {
		return 0, 0
	}
	n, err1 := strconv.ParseInt(string(f[0]), 10, 64)
	m, err2 := strconv.ParseInt(string(f[1]), 10, 64)
	if err1 != nil || err2 != nil || n < 0 || m < 0 {
		return 0, 0
	}
	return time.Duration(n), time.Duration(m)
}

// since returns what has happened since the count before, if that is old enough, and else what it returned last.
func (w *processorWindow) since(n processorCount) *evidence.Processors {
	w.mu.Lock()
	defer w.mu.Unlock()
	from := w.from
	switch age := n.at.Sub(from.at); {
	case from.at.IsZero(), age > mostWindow, from.pid != n.pid:
		w.from, w.last = n, nil
	case age >= leastWindow:
		w.from, w.last = n, between(from, n)
	}
	return w.last
}

// between returns what has happened between two counts. A thread that has ended takes what it has counted with it.
func between(from, to processorCount) *evidence.Processors {
	out := &evidence.Processors{Since: from.at, Until: to.at, Ran: max(0, to.ran-from.ran), Waited: max(0, to.waited-from.waited)}
	for group, now := range to.quotas {
		before, ok := from.quotas[group]
		if !ok || now.Periods < before.Periods || now.Throttled < before.Throttled {
			continue
		}
		periods, throttled := now.Periods-before.Periods, now.Throttled-before.Throttled
		if out.Group == "" || throttled > out.Throttled || throttled == out.Throttled && group < out.Group {
			out.Group, out.Millis, out.Periods, out.Throttled = kernfile.Printable([]byte(group)), now.Millis, periods, throttled
		}
	}
	for group, now := range to.used {
		before, ok := from.used[group]
		if !ok || now <= before {
			continue
		}
		use := time.Duration(now-before) * time.Microsecond
		if group == to.own {
			use = max(0, use-out.Ran) // others in it
		}
		u := evidence.ProcessorUser{Own: group == to.own, Millis: int64(use.Seconds() * 1000 / to.at.Sub(from.at).Seconds())}
		if u.PodUID, _ = cgroup.PodOfPath(group); u.PodUID == "" {
			u.Group = kernfile.Printable([]byte(group))
		}
		out.Users = append(out.Users, u)
	}
	slices.SortFunc(out.Users, func(a, b evidence.ProcessorUser) int {
		return cmp.Or(cmp.Compare(b.Millis, a.Millis), cmp.Compare(a.PodUID+a.Group, b.PodUID+b.Group))
	})
	out.Users = slices.Clip(out.Users[:min(len(out.Users), maxUsers)])
	return out
}
