package proc

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kerneltest"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/mount"
	"github.com/nodeagent-io/nodeagent/pkg/proc/probe"
)

// A node full of tasks in state D costs a bounded list, in which those of the kernel
// all are, also when they come last. The kernel lists processes by their numbers; a directory
// of the test has an order of its own.
func TestBlockedTasksAreBounded(t *testing.T) {
	root := t.TempDir()
	files := make(map[string]string)
	var pids []int
	add := func(pid int, kernel string) {
		pids = append(pids, pid)
		files[fmt.Sprintf("%d/status", pid)] = fmt.Sprintf("Name:\tx\nState:\tD (disk "+
			"sleep)\nTgid:\t%d\nPid:\t%d\nPPid:\t1\nNSpid:\t%d\nThreads:\t1\n%s", pid, pid, pid, kernel)
	}
	for i := range maxBlockedKept + 100 {
		add(1000+i, "VmSize:\t1 kB\n")
	}
	add(5000, "Kthread:\t1\n")
	kerneltest.Tree(t, root, files)
	r := (&Host{Proc: root}).Round()
	r.pids = func() ([]int, error) { return pids, nil }
	got, _, err := r.ReadBlocked(t.Context())
	if err != nil || len(got) != maxBlockedKept+1 || !got[len(got)-1].Kernel {
		t.Errorf("%d tasks, the last one %+v, %v", len(got), got[len(got)-1], err)
	}
}

// Pods of many threads share what is read in a round; a small one is always read.
func TestThreadsOfARoundAreBounded(t *testing.T) {
	h, _, _ := roundNode(t, 1)
	r := h.Round()
	var tids strings.Builder
	const n = 10_000
	for i := range n {
		fmt.Fprintln(&tids, 100_000+i) // they have ended when they are looked at
	}
	large := make(map[string]string)
	for i := range 5 {
		large[fmt.Sprintf("cgroup/kubepods/pod%s/cgroup.threads", podUID(10+i))] = tids.String()
	}
	large[fmt.Sprintf("cgroup/kubepods/pod%s/cgroup.threads", podUID(20))] = "4\n"
	kerneltest.Tree(t, filepath.Dir(h.Cgroup), large)
	read := func(i int) *evidence.Pod {
		p := &evidence.Pod{Time: time.Now(), UID: podUID(i), RuntimeUID: podUID(i)}
		r.ReadPod(t.Context(), p)
		return p
	}
	left := 0
	for i := range 5 {
		p := read(10 + i)
		if why := p.Missing[evidence.Processes]; strings.Contains(why, "more than are read at a time") {
			left++
		}
		if len(p.Cgroups) != 1 || p.Cgroups[0].Threads != n {
			t.Errorf("groups %+v, want one of %d threads", p.Cgroups, n)
		}
	}
	if want := 5 - maxTasks*4/6/n; left != want {
		t.Errorf("%d of five large pods were left out, want %d", left, want)
	}
	if p := read(20); len(p.Tasks) != 1 || p.Missing[evidence.Processes] != "" {
		t.Errorf("tasks %+v of a small pod, missing %v", p.Tasks, p.Missing)
	}
}

// All pods of a round share one room: large ones first lose theirs, and as many small ones as a kubelet runs are always read.
func TestOneRoomForAllTasks(t *testing.T) {
	r := (&Host{}).Round()
	total := 0
	for _, tasks := range []int{16_384, 512, 64} {
		for r.admits(tasks) {
			total += tasks
		}
		if r.admits(tasks + 1) {
			t.Errorf("there is room for a pod of %d threads, and not for one of %d", tasks+1, tasks)
		}
	}
	small := 0
	for r = (&Host{}).Round(); r.admits(8 * fewTasks); {
	}
	for r.admits(fewTasks) {
		small++
	}
	if total > maxTasks || small < 110 {
		t.Errorf("%d tasks are kept, %d small pods have room beside large ones", total, small)
	}
}

// A table that was read in part names no mount: the right one may be in its rest.
func TestCutTableAccusesNoMount(t *testing.T) {
	own, err := mount.Parse(strings.NewReader(kerneltest.ContainerMounts))
	if err != nil {
		t.Fatal(err)
	}
	saw := &probe.Seen{Call: probe.Call{Name: "stat"}, Paths: []probe.CallPath{{Path: []byte("/data/x"), Via: "path"}}}
	for _, l := range own.Lines {
		saw.Maps = append(saw.Maps, probe.Mapping{Device: l.Device})
		break
	}
	m, _ := byPaths(own, saw)
	if m == nil || mapped(own, saw) == nil {
		t.Fatalf("the whole table shows %+v and %+v", m, mapped(own, saw))
	}
	own.Cut = true
	if m, _ := byPaths(own, saw); m != nil || mapped(own, saw) != nil {
		t.Errorf("the cut table shows %+v and %+v", m, mapped(own, saw))
	}
	saw.Files = []probe.OpenFile{{FD: 3, MountID: own.Lines[0].ID}}
	if m, _ := byDescriptors(own, saw); m == nil {
		t.Error("a descriptor tells its mount by its number, and it is in the table")
	}
}

// However many suspects there are with large tables, few of them are read.
func TestTablesOfAReadingAreBounded(t *testing.T) {
	root := t.TempDir()
	files := make(map[string]string)
	var large strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&large, "%d 27 0:60 / /%d/%s rw - tmpfs t rw\n", i, i, strings.Repeat("x", 200))
	}
	const tasks = 20
	for pid := range tasks {
		files[fmt.Sprintf("%d/task/%d/mountinfo", pid, pid)] = large.String()
	}
	kerneltest.Tree(t, root, files)
	tb := &tables{Round: (&Host{Proc: root}).Round()}
	read := 0
	for pid := range tasks {
		m, err := tb.of(&evidence.Task{PID: pid, TID: pid})
		if err != nil || m.Whole() {
			t.Fatalf("task %d: the whole table, or %v", pid, err)
		}
		if len(m.Lines) > 0 {
			read++
		}
	}
	if read != maxUnkept || tb.size > maxKept {
		t.Errorf("%d large tables were read, and %d bytes are kept", read, tb.size)
	}
}
