package report

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/verdict"
)

// Anybody may create pods that do not terminate, and each series costs Prometheus memory. So an agent has one
// for each of the pods that are latest, and for each of the workloads with the most stuck pods.
const (
	maxPodSeries      = 250
	maxWorkloadSeries = 200
	// stuckAfter is how far a pod counted by workload is past its deadline, as for the alerts.
	stuckAfter = 2 * time.Minute
)

// latest returns the verdicts about the pods that are furthest past their deadlines, in turn from each namespace and at most
// maxPodSeries. It sorts standing.
func latest(standing []verdict.Standing) []verdict.Standing {
	slices.SortFunc(standing, func(a, b verdict.Standing) int {
		return cmp.Or(a.Deadline.Compare(b.Deadline), cmp.Compare(a.UID, b.UID))
	})
	standing = verdict.InTurn(standing, func(s *verdict.Standing) string { return s.Namespace })
	return standing[:min(len(standing), maxPodSeries)]
}

// A stuckWorkload names one time series of nodeagent_stuck_pods.
type stuckWorkload struct {
	namespace string
	workload  verdict.Workload
	cause     string
}

// stuckByWorkload counts the pods that are more than stuckAfter past their deadlines at the time now. Beyond
// maxWorkloadSeries the namespace and the workload are "".
func stuckByWorkload(standing []verdict.Standing, now time.Time) map[stuckWorkload]int {
	count := make(map[stuckWorkload]int)
	for _, s := range standing {
		if now.Sub(s.Deadline) > stuckAfter {
			count[stuckWorkload{s.Namespace, s.Workload, s.Cause}]++
		}
	}
	if len(count) <= maxWorkloadSeries {
		return count
	}
	all := slices.Collect(maps.Keys(count))
	slices.SortFunc(all, func(a, b stuckWorkload) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(a.namespace, b.namespace),
			cmp.Compare(a.workload.Name, b.workload.Name), cmp.Compare(a.workload.Type, b.workload.Type), cmp.Compare(a.cause, b.cause))
	})
	all = verdict.InTurn(all, func(w *stuckWorkload) string { return w.namespace })
	for _, w := range all[maxWorkloadSeries:] {
		count[stuckWorkload{cause: w.cause}] += count[w]
		delete(count, w)
	}
	return count
}
