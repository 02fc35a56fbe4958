package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// floor opens, reads and closes files with the system calls that it takes, and
// makes nothing of them. A directory is listed.
func floor(b *testing.B, files []string) {
	b.Helper()
	buf := make([]byte, 64<<10)
	for _, name := range files {
		fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			continue
		}
		if _, err := unix.Read(fd, buf); errors.Is(err, unix.EISDIR) {
			_, _ = unix.Getdents(fd, buf)
		}
		_ = unix.Close(fd)
	}
}

// filesOf are the files that the reading of a pod opens when nothing in it is suspicious and the place of the kubepods groups is known: those
// that are read once in a round, and the pod's own.
func filesOf(b *testing.B, h *Host, e *evidence.Pod) (once, own []string) {
	b.Helper()
	tree, threads, frozen, told := h.Cgroup, "cgroup.threads", "cgroup.events", "cgroup.freeze"
	version := 2
	if _, err := os.Stat(filepath.Join(tree, "cgroup.controllers")); err != nil {
		tree, threads, version = filepath.Join(tree, "pids"), "tasks", 1
	}
	pids, freezer := tree, tree
	limits := []string{"cpu.stat", "cpu.max", "memory.current", "memory.high", "memory.max", "memory.events"}
	if version == 1 {
		pids, freezer, frozen, told = h.Cgroup+"/pids", h.Cgroup+"/freezer", "freezer.state", "freezer.self_freezing"
		limits = nil
	}
	for dir := path.Dir(e.Cgroups[0].Path); dir != "/"; dir = path.Dir(dir) {
		once = append(once, tree+dir, freezer+dir+"/"+frozen, freezer+dir+"/"+told)
	}
	once = append(once, tree, h.Proc+"/1/mountinfo")
	for _, g := range e.Cgroups {
		own = append(own, tree+g.Path, tree+g.Path+"/"+threads, pids+g.Path+"/pids.current", freezer+g.Path+"/"+frozen, freezer+g.Path+"/"+told)
		if version == 1 { // there are none, which takes an open too
			own = append(own, h.Cgroup+"/cpu"+g.Path+"/cpu.stat", h.Cgroup+"/memory"+g.Path+"/memory.usage_in_bytes")
		}
		for _, name := range limits {
			own = append(own, tree+g.Path+"/"+name)
		}
	}
	for _, t := range e.Tasks {
		own = append(own, fmt.Sprintf("%s/%d/status", h.Proc, t.TID))
	}
	for _, t := range e.Parents {
		own = append(own, fmt.Sprintf("%s/%d/status", h.Proc, t.TID), fmt.Sprintf("%s/%d/cgroup", h.Proc, t.TID))
	}
	return once, own
}

// measure runs a benchmark and adds the time on the CPU, which other work of
// the machine disturbs less than that of the clock.
func measure(b *testing.B, name string, do func() error) {
	b.Helper()
	b.Run(name, func(b *testing.B) {
		b.ReportAllocs()
		begin := cpuTime(b)
		for b.Loop() {
			if err := do(); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(cpuTime(b)-begin)/float64(b.N), "cpu-ns/op")
	})
}

func cpuTime(b *testing.B) int64 {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

// BenchmarkReadPod measures the reading of a healthy pod inside its grace period, in which nothing is suspicious: its groups, tasks, parents and
// mounts. Alone in a round it pays for what a round reads once. The floor is that of the files, in either case.
func BenchmarkReadPod(b *testing.B) {
	for _, n := range []int{20, 200, 5000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			pod, h := newTestPod(b), newHost(b)
			v := start(b, 0, "threads", strconv.Itoa(n))
			pod.add(b, v.pid())
			read := func(r *Round) (*evidence.Pod, error) {
				e := &evidence.Pod{Time: time.Now(), Deadline: time.Now().Add(time.Minute), RuntimeUID: pod.uid}
				r.ReadPod(context.Background(), e)
				if len(e.Tasks) < n {
					return nil, fmt.Errorf("%d tasks", len(e.Tasks))
				}
				return e, nil
			}
			e, err := read(h.Round())
			if err != nil {
				b.Fatal(err)
			}
			once, own := filesOf(b, h, e)
			measure(b, "floor", func() error {
				floor(b, own)
				return nil
			})
			measure(b, "floorAlone", func() error {
				floor(b, own)
				floor(b, once)
				return nil
			})
			// A round has room for so many tasks only.
			var shared *Round
			reads := 0
			measure(b, "ReadPod", func() error {
				if reads++; shared == nil || reads*(n+1) > maxTasks/2 {
					shared, reads = h.Round(), 0
				}
				_, err := read(shared)
				return err
			})
			measure(b, "ReadPodAlone", func() error {
				_, err := read(h.Round())
				return err
			})
			rules := cause.Table()
			measure(b, "ReadPodAndDiagnose", func() error {
				e, err := read(h.Round())
				if err != nil {
					return err
				}
				diagnose.Run(e, rules)
				return nil
			})
		})
	}
}

// BenchmarkReadBlocked compares the node view, which reads the status of every
// thread, with the floor and with what procfs does, which reads one file for
// each process, on a node with this many healthy processes more. ReadProcess
// looks for a service of the node by its name.
func BenchmarkReadBlocked(b *testing.B) {
	for _, n := range []int{1000, 5000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			h := newHost(b)
			start(b, 0, "children", strconv.Itoa(n))
			files := []string{"/proc"}
			pids, err := allPIDs()
			if err != nil {
				b.Fatal(err)
			}
			for _, pid := range pids {
				dir := fmt.Sprintf("/proc/%d/task", pid)
				tids, _ := threadsOf(pid) // one that has ended has none
				for _, tid := range tids {
					files = append(files, fmt.Sprintf("/proc/%d/status", tid))
				}
				if len(tids) > 1 {
					files = append(files, dir)
				}
			}
			measure(b, "floor", func() error {
				floor(b, files)
				return nil
			})
			measure(b, "ReadBlocked", func() error {
				_, _, err := h.Round().ReadBlocked(context.Background())
				return err
			})
			measure(b, "ReadProcess", func() error {
				_, _, err := h.Round().ReadProcess(context.Background(), "nobody")
				return err
			})
			measure(b, "procfs", func() error {
				procs, err := procfs.AllProcs()
				if err != nil {
					return err
				}
				for _, p := range procs {
					if s, err := p.Stat(); err == nil && s.State == "D" {
						_ = s
					}
				}
				return nil
			})
		})
	}
}

// BenchmarkProbe measures one suspect.
func BenchmarkProbe(b *testing.B) {
	requireRoot(b)
	h := newHost(b)
	s := stateOf(b, start(b, 0, "sleep").pid())
	for b.Loop() {
		if err := h.probe(context.Background(), &s, &tables{Round: h.Round()}, ""); err != nil {
			b.Fatal(err)
		}
	}
}
