package main

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
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

func TestParseVerdicts(t *testing.T) {
	got := parseVerdicts(`
cgroup v2, 2026-11-21 15:00:00
SCENARIO               TRUE CAUSE                     VERDICT    FROM DELETION  FROM DEADLINE  WRONG NAMES
handles-term           (innocent)                     silent                                   none
shell-pid1             ShellPID1NoTrap                true                7.1s         -22.9s  none
finalizer              FinalizersPending              true               1m2.5s          5.4s  none
shim-stopped           ShimHung                       MISSED                                   Unknown: a; b

4 scenarios: 2 true, 1 innocent and silent, 1 missed, 0 accused
`)
	want := []verdict{
		{scenario: "handles-term"},
		{"shell-pid1", true, 7100 * time.Millisecond, -22900 * time.Millisecond},
		{"finalizer", true, 62500 * time.Millisecond, 5400 * time.Millisecond},
		{scenario: "shim-stopped"},
	}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(verdict{})); d != "" {
		t.Error(d)
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
