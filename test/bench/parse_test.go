package main

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nodeagent-io/nodeagent/test/bed"
)

func TestParseBenchmarks(t *testing.T) {
	got, err := parseBenchmarks(`goos: linux
BenchmarkReadPod/20/floor-2         	     708	    524544 ns/op	    477612 cpu-ns/op	    1911 B/op	      40 allocs/op
BenchmarkReadPod/20/floor-2         	     792	    465211 ns/op	    439319 cpu-ns/op	    1904 B/op	      40 allocs/op
BenchmarkParse-2   	     100	   12 ns/op
PASS
`, cpu)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(map[string]float64{"BenchmarkReadPod/20/floor": 439319}, got); d != "" {
		t.Error(d)
	}
}

func TestLatencies(t *testing.T) {
	rows := latencies(bed.Results{
		{Name: "handles-term", Node: "native1", Verdict: "silent"},
		{Name: "shell-pid1", Node: "native1", Deletion: 7123 * time.Millisecond, Deadline: -22900 * time.Millisecond,
			Warning: "FailedPreStopHook", Warned: 9 * time.Second},
		{Name: "shell-pid1", Node: "vm1", Deletion: time.Minute},
		{Name: "finalizer", Node: "vm1", Deletion: time.Minute, Deadline: 12 * time.Second},
		{Name: "containerd-stopped", Node: "vm1", Deletion: 10 * time.Second, Deadline: 7 * time.Second, Warning: "FailedKillPod", Warned: 123 * time.Second},
		{Name: "shim-stopped", Node: "vm1", Verdict: "MISSED"},
	})
	want := map[string]struct {
		measured string
		met      bool
	}{
		"  shell-pid1: deletion to Event":         {"7.1s on native1; the kubelet's own first: 9s (FailedPreStopHook)", true},
		"  finalizer: deadline to Event":          {"12s on vm1; the kubelet's own first: none while the fault lasted", false},
		"  containerd-stopped: deadline to Event": {"7s on vm1; the kubelet's own first: 2m0s (FailedKillPod)", true},
		"  shim-stopped: deadline to Event":       {"no verdict", false},
		"  sleep-pid1: deletion to Event":         {"not in the run", false},
	}
	for _, r := range rows {
		if w, ok := want[r.what]; ok && (r.measured != w.measured || r.met != w.met) {
			t.Errorf("%s: %s, %t, want %s, %t", r.what, r.measured, r.met, w.measured, w.met)
		}
		delete(want, r.what)
	}
	if len(want) > 0 {
		t.Errorf("no rows for %v", want)
	}
}

func TestOpened(t *testing.T) {
	got := opened(`17 openat(AT_FDCWD</root>, "/proc/1/mountinfo", O_RDONLY|O_CLOEXEC) = 11</proc/1/mountinfo>
17 openat(5</proc>, "42/status", O_RDONLY|O_NOFOLLOW|O_CLOEXEC <unfinished ...>
17 <... openat resumed>)          = 6</proc/42/status>
18 openat(5</proc/42/task/43>, "wchan", O_RDONLY) = -1 ENOENT (No such file or directory)
18 readlink("/proc/self/exe", "/x", 128) = 2
18 readlinkat(5</proc/42/task/43>, "exe", "/bin/sleep", 4096) = 10
17 openat(AT_FDCWD</root>, "/sys/fs/cgroup/pids", O_RDONLY) = 5</sys/fs/cgroup/pids>
17 openat(AT_FDCWD</proc>, "7", O_RDONLY) = 5</proc/7>
`)
	want := []string{
		"/proc/1/mountinfo", "/proc/42/status", "/proc/42/task/43/wchan", "/proc/self/exe", "/proc/42/task/43/exe", "/proc/7",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}
