package proc

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// floor reads the status of tasks with the three system calls that it takes, and
// makes nothing of them.
func floor(b *testing.B, tids []int) {
	b.Helper()
	buf := make([]byte, usualFile)
	for _, tid := range tids {
		fd, err := unix.Open("/proc/"+strconv.Itoa(tid)+"/status", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			continue
		}
		_, _ = unix.Read(fd, buf)
		_ = unix.Close(fd)
	}
}

// BenchmarkReadPod measures the reading of a healthy pod, in which nothing is
// suspicious: its groups, tasks, parents and mounts.
func BenchmarkReadPod(b *testing.B) {
	for _, n := range []int{20, 200, 5000} {
		pod, h := newTestPod(b), newHost(b)
		v := start(b, 0, "threads", strconv.Itoa(n))
		pod.add(b, v.pid())
		tids, err := listIDs(unix.AT_FDCWD, fmt.Sprintf("/proc/%d/task", v.pid()))
		if err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("%d/floor", n), func(b *testing.B) {
			for b.Loop() {
				floor(b, tids)
			}
		})
		b.Run(fmt.Sprintf("%d/tasks", n), func(b *testing.B) {
			b.ReportAllocs()
			r, err := newReader("/proc")
			if err != nil {
				b.Fatal(err)
			}
			defer r.close()
			for b.Loop() {
				groups, err := h.readPodGroups(pod.uid, time.Now())
				if err != nil {
					b.Fatal(err)
				}
				if _, err := readTasks(context.Background(), r, groups); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("%d/ReadPod", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				e := &evidence.Pod{Time: time.Now(), RuntimeUID: pod.uid}
				h.ReadPod(context.Background(), e)
				if len(e.Tasks) < n {
					b.Fatalf("%d tasks", len(e.Tasks))
				}
			}
		})
	}
}

// BenchmarkReadBlocked compares the node view with the floor and with what
// procfs does.
func BenchmarkReadBlocked(b *testing.B) {
	h := newHost(b)
	start(b, 0, "children", "1000")
	pids, err := listIDs(unix.AT_FDCWD, "/proc")
	if err != nil {
		b.Fatal(err)
	}
	b.Logf("%d processes", len(pids))
	b.Run("floor", func(b *testing.B) {
		for b.Loop() {
			floor(b, pids)
		}
	})
	b.Run("ReadBlocked", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := h.ReadBlocked(context.Background()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("procfs", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			procs, err := procfs.AllProcs()
			if err != nil {
				b.Fatal(err)
			}
			for _, p := range procs {
				if s, err := p.Stat(); err == nil && s.State == "D" {
					_ = s
				}
			}
		}
	})
}

// BenchmarkProbe measures one suspect.
func BenchmarkProbe(b *testing.B) {
	requireRoot(b)
	h := newHost(b)
	s := stateOf(b, start(b, 0, "sleep").pid())
	for b.Loop() {
		if err := h.probe(context.Background(), &s, &tables{h: h}, ""); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParseStatus(b *testing.B) {
	text, err := os.ReadFile("testdata/status_odd_comm")
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := parseStatus(text); err != nil {
			b.Fatal(err)
		}
	}
}
