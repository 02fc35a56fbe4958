package proc

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kerneltest"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kernfile"
)

// A roundCost is what a round has opened, asked and allocated.
type roundCost struct{ opens, questions, allocations int64 }

// least lowers the costs to those of another round: what else the machine does only ever adds.
func (c *roundCost) least(o roundCost) {
	*c = roundCost{min(c.opens, o.opens), min(c.questions, o.questions), min(c.allocations, o.allocations)}
}

func costOfRound(h *Host, pods []*evidence.Pod) roundCost {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	opens, questions := kernfile.Opens.Load(), h.Prober.Questions()
	r := h.Round()
	for _, p := range pods {
		r.ReadPod(context.Background(), p)
	}
	runtime.ReadMemStats(&after)
	return roundCost{kernfile.Opens.Load() - opens, h.Prober.Questions() - questions, int64(after.Mallocs - before.Mallocs)}
}

// What one pod more costs in a round does not depend on what else the machine runs, but for processes that come meanwhile. A change that makes it cost
// more says why.
func TestRoundCosts(t *testing.T) {
	requireRoot(t)
	const few, many = 5, 15
	var living []*testPod
	pids := make(map[*testPod]int)
	for range many {
		p := newTestPod(t)
		pids[p] = start(t, 0, "sleep").pid()
		p.add(t, pids[p])
		living = append(living, p)
	}
	groups := map[string]string{"cgroup.controllers": "pids"}
	lateUID := func(i int) string { return fmt.Sprintf("%08d-0000-4000-8000-000000000000", i) }
	for i := range 250 { // of neighbours
		groups["kubepods/burstable/pod"+lateUID(1000+i)+"/cgroup.threads"] = ""
	}
	late, here := newHost(t), newHost(t)
	late.Cgroup = t.TempDir()
	kerneltest.Tree(t, late.Cgroup, groups)
	for _, tc := range []struct {
		what string
		host *Host
		pod  func(i int, now time.Time) *evidence.Pod
		most roundCost
	}{
		{"a late pod without a process", late, func(i int, now time.Time) *evidence.Pod {
			return &evidence.Pod{
				Time: now, UID: lateUID(i), RuntimeUID: lateUID(i), Phase: "Failed", Deadline: now.Add(-time.Minute),
				Containers: []evidence.Container{
					{Name: "main", Kind: evidence.App, ID: strings.Repeat("ab", 32), State: evidence.StateExited},
					{Kind: evidence.Sandbox, ID: strings.Repeat("cd", 32), State: evidence.StateExited},
				},
			}
		}, roundCost{2, 2, 150}},
		{"a pod of one process in its grace period", here, func(i int, now time.Time) *evidence.Pod {
			p := living[i]
			return &evidence.Pod{
				Time: now, UID: p.uid, RuntimeUID: p.uid, Phase: "Running", Deadline: now.Add(time.Minute),
				Containers: []evidence.Container{{
					Name: "main", Kind: evidence.App, ID: p.container, State: evidence.StateRunning, Task: evidence.ShimTask{PID: pids[p], Status: "running"},
				}},
			}
		}, roundCost{34, 2, 350}},
	} {
		pods := func(n int) (pods []*evidence.Pod) {
			for i := range n {
				pods = append(pods, tc.pod(i, time.Now()))
			}
			return pods
		}
		costOfRound(tc.host, pods(many)) // it remembers where the groups are
		a, b := costOfRound(tc.host, pods(few)), costOfRound(tc.host, pods(many))
		for range 4 {
			a.least(costOfRound(tc.host, pods(few)))
			b.least(costOfRound(tc.host, pods(many)))
		}
		each := func(a, b int64) int64 { return (b - a + (many-few)/2) / (many - few) }
		got := roundCost{each(a.opens, b.opens), each(a.questions, b.questions), each(a.allocations, b.allocations)}
		t.Logf("%s costs %+v", tc.what, got)
		if got.opens > tc.most.opens || got.questions > tc.most.questions || got.allocations > tc.most.allocations {
			t.Errorf("%s costs %+v, want at most %+v", tc.what, got, tc.most)
		}
	}
}

// The limits of groups are read for as long as a rule asks for them.
func TestLimitsAreReadWhileAsked(t *testing.T) {
	if limitsTell < fact.KillLatency {
		t.Errorf("limits are read until %v after the deadline, and asked for until %v", limitsTell, fact.KillLatency)
	}
}
