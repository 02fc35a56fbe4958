package proc

import (
	"os/exec"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kernfile"
)

func TestParseSchedstat(t *testing.T) {
	for text, want := range map[string][2]time.Duration{
		"5357946402 2568534175 4579\n": {5357946402, 2568534175}, "0 0 0\n": {}, "": {}, "7\n": {}, "7 x 1\n": {}, "-7 1 1\n": {}, "7 -1 1\n": {},
	} {
		if ran, waited := parseSchedstat([]byte(text)); ran != want[0] || waited != want[1] {
			t.Errorf("%q: %s, %s", text, ran, waited)
		}
	}
}

// What is told is of at least ten seconds, of the same kubelet, and of no more than a minute.
func TestProcessorWindow(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var w processorWindow
	for i, step := range []struct {
		at, pid int
		told    bool
		from    int // the step that the window begins with
	}{
		{0, 7, false, 0}, {2, 7, false, 0}, {9, 7, false, 0}, {10, 7, true, 0}, {12, 7, true, 0}, {20, 7, true, 10},
		{22, 8, false, 0}, {33, 8, true, 22}, {95, 8, false, 0},
	} {
		at := start.Add(time.Duration(step.at) * time.Second)
		got := w.since(processorCount{at: at, pid: step.pid})
		if (got != nil) != step.told || got != nil && !got.Since.Equal(start.Add(time.Duration(step.from)*time.Second)) {
			t.Errorf("step %d: %+v", i, got)
		}
	}
}

func TestProcessorsBetween(t *testing.T) {
	const pod = "kubepods/pod0b4ddc3e-1111-4222-8333-444455556666"
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	from := processorCount{at: start, ran: 5 * time.Second, waited: time.Second,
		used: map[string]uint64{pod: 1_000_000, "a.service": 2_000_000, "b.service": 0, "c.service": 5, "anew": 9_000_000},
		quotas: map[string]evidence.CPU{
			"/a": {Periods: 10, Throttled: 1, Millis: 500}, "/a/b": {Periods: 10, Throttled: 1, Millis: 10}, "/anew": {Periods: 10, Throttled: 1},
		}}
	to := processorCount{at: start.Add(10 * time.Second), own: "a.service", ran: 6 * time.Second, waited: 20 * time.Second,
		used: map[string]uint64{pod: 16_000_000, "a.service": 4_000_000, "b.service": 2_000_000, "c.service": 6, "anew": 1, "new": 99_000_000},
		quotas: map[string]evidence.CPU{
			"/a": {Periods: 110, Throttled: 2, Millis: 500}, "/a/b": {Periods: 109, Throttled: 99, Millis: 10}, "/anew": {Periods: 3, Throttled: 3},
		}}
	want := &evidence.Processors{
		Since: from.at, Until: to.at, Ran: time.Second, Waited: 19 * time.Second,
		Group: "/a/b", Millis: 10, Periods: 99, Throttled: 98,
		Users: []evidence.ProcessorUser{
			{PodUID: "0b4ddc3e-1111-4222-8333-444455556666", Millis: 1500}, {Group: "b.service", Millis: 200}, {Group: "a.service", Own: true, Millis: 100},
		},
	}
	if diff := cmp.Diff(want, between(from, to)); diff != "" {
		t.Error(diff)
	}
}

// A real process that runs, as the kernel counts it. A machine without control groups names no user.
func TestCountProcessors(t *testing.T) {
	cmd := exec.Command("sh", "-c", "while :; do :; done")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	h := newHost(t)
	files, err := kernfile.Open(h.Proc)
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	r := h.Round()
	first := r.countProcessors(files, cmd.Process.Pid)
	for range 100 {
		time.Sleep(50 * time.Millisecond)
		if second := r.countProcessors(files, cmd.Process.Pid); second.ran > first.ran {
			return
		}
	}
	t.Error("a process that runs has not run")
}
