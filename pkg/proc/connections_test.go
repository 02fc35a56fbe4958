package proc

import (
	"testing"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kerneltest"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kernfile"
)

// The connections of a pod are read while its program may be slow to end, in the pod's own network.
func TestConnections(t *testing.T) {
	const list = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n" +
		"  33: 0100F40A:A000 0900F40A:1F90 01 00000010:00000000 01:0000038F 00000007     0        0 500 1 0 20 0 0 11 -1\n"
	h := newHost(t)
	h.Proc = t.TempDir()
	kerneltest.Tree(t, h.Proc, map[string]string{"7/net/tcp": list})
	requested := time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)
	read := func(r *Round, change func(p *evidence.Pod, pause *evidence.Task)) *evidence.Connections {
		p := &evidence.Pod{
			Time: requested.Add(10 * time.Second), DeletionRequested: requested, Deadline: requested.Add(30 * time.Second),
			Containers: []evidence.Container{
				{Name: "main", ID: "m", Task: evidence.ShimTask{PID: 8}},
				{Name: "POD", Kind: evidence.Sandbox, ID: "s", Task: evidence.ShimTask{PID: 7}},
			},
		}
		pause := kernfile.TaskStatus{Task: evidence.Task{PID: 7, TID: 7, State: evidence.Sleeping, Container: "s"}}
		change(p, &pause.Task)
		return r.readConnections(p, []kernfile.TaskStatus{pause})
	}
	for name, tc := range map[string]struct {
		change func(p *evidence.Pod, pause *evidence.Task)
		want   bool
	}{
		"in the grace period":         {func(*evidence.Pod, *evidence.Task) {}, true},
		"at its end":                  {func(p *evidence.Pod, _ *evidence.Task) { p.Time = p.Deadline.Add(2 * time.Second) }, true},
		"it has just begun":           {func(p *evidence.Pod, _ *evidence.Task) { p.Time = requested.Add(4 * time.Second) }, false},
		"long after the deadline":     {func(p *evidence.Pod, _ *evidence.Task) { p.Time = p.Deadline.Add(time.Minute) }, false},
		"in the network of the node":  {func(p *evidence.Pod, _ *evidence.Task) { p.HostNetwork = true }, false},
		"a static pod":                {func(p *evidence.Pod, _ *evidence.Task) { p.Mirror = true }, false},
		"no sandbox":                  {func(p *evidence.Pod, _ *evidence.Task) { p.Containers = p.Containers[:1] }, false},
		"the sandbox has ended":       {func(_ *evidence.Pod, pause *evidence.Task) { pause.State = evidence.Zombie }, false},
		"its PID has another process": {func(_ *evidence.Pod, pause *evidence.Task) { pause.Container = "other" }, false},
		"it cannot be read":           {func(p *evidence.Pod, pause *evidence.Task) { p.Containers[1].Task.PID, pause.PID, pause.TID = 9, 9, 9 }, false},
	} {
		if got := read(h.Round(), tc.change); (got != nil) != tc.want || got != nil && *got != (evidence.Connections{All: 1, Unanswered: 1}) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	r := h.Round()
	for i := range maxConnected + 1 {
		if got := read(r, func(*evidence.Pod, *evidence.Task) {}); (got != nil) != (i < maxConnected) {
			t.Errorf("pod %d of a round: %+v", i, got)
		}
	}
}
