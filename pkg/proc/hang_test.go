package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kerneltest"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kernfile"
	"github.com/nodeagent-io/nodeagent/pkg/proc/probe"
	"golang.org/x/sys/unix"
)

func requireFUSE(t testing.TB) {
	t.Helper()
	requireRoot(t)
	if _, err := os.Stat("/dev/fuse"); err != nil {
		t.Skipf("needs FUSE: %v", err)
	}
}

// ownThreads counts the threads of this process.
func ownThreads(t *testing.T) int {
	t.Helper()
	tids, err := threadsOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	return len(tids)
}

// waitFor waits until a task sleeps in a function. It may be asked of tasks that
// cannot hang their reader only.
func waitFor(t *testing.T, tid int, fn string) {
	t.Helper()
	kerneltest.Eventually(t, fmt.Sprintf("task %d in %s", tid, fn), func() bool {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/wchan", tid))
		return err == nil && string(b) == fn
	})
}

// A process that is stuck inside execve with its exec_update_lock hangs every reader of its
// stack file, and of most others. The readings must come back in time, say which file hung, cost
// the agent no thread, and leave the helper fit for the next task.
func TestHangInExecve(t *testing.T) {
	requireFUSE(t)
	pod, h := newTestPod(t), newHost(t)
	s := start(t, unix.CLONE_NEWNS|unix.CLONE_NEWPID, "scene-fuse", "exec-aio dread")
	pid := s.number(t, "exec-aio")
	healthy := start(t, 0, "sleep").pid()
	pod.add(t, pid)
	pod.add(t, healthy)
	stuckInExecve(t, pid)
	// A plain SIGKILL makes it a suspect, and it does not die of it.
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	kerneltest.Eventually(t, "state D", func() bool { return stateOf(t, pid).State == evidence.Uninterruptible })

	began := time.Now()
	e := pod.read(t, h) // returns although a file hangs
	t.Logf("ReadPod with one hang: %v", time.Since(began))
	k := taskOf(t, e.Tasks, pid)
	if k.State != evidence.Uninterruptible || !k.Killed() || k.Probe == nil || len(k.Probe.Hung) != 1 {
		t.Fatalf("task %+v, probe %+v", k, k.Probe)
	}
	// Kernels before the series of May 2026 lock stack and syscall only.
	if first := k.Probe.Hung[0]; first != "stat" && hangs(t, pid, "stat", time.Second) || !hangs(t, pid, first, time.Second) {
		t.Errorf("hung %v", k.Probe.Hung)
	}

	hangs := h.Prober.Hangs()
	pod.read(t, h)
	if again := h.Prober.Hangs() - hangs; again != 0 {
		t.Errorf("a task that has not moved was read again, and hung %d helpers", again)
	}

	runtime.GC()
	before := ownThreads(t)
	h.Prober.Timeout = 400 * time.Millisecond
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	for i := range 20 {
		saw, err := h.Prober.Ask(ctx, probe.Task, h.Proc, &evidence.Task{PID: pid, TID: pid, Switches: uint64(i)}, "")
		hung := (*probe.HungError)(nil)
		if !errors.As(err, &hung) {
			t.Fatalf("probe %d: %+v, %v", i, saw, err)
		}
		saw, err = h.Prober.Ask(ctx, probe.Task, h.Proc, &evidence.Task{PID: healthy, TID: healthy}, "")
		if err != nil || saw.Start == 0 || saw.Call.Name == "" {
			t.Fatalf("probe of a healthy task after %d hangs: %+v, %v", i+1, saw, err)
		}
	}
	if after := ownThreads(t); after > before+3 {
		t.Errorf("%d threads before 20 hangs, %d after", before, after)
	} else {
		t.Logf("%d threads before 20 hangs, %d after", before, after)
	}
	if n := h.Prober.Hangs(); n != 21 {
		t.Errorf("%d hangs counted", n)
	}
	if n := h.Prober.Restarts(); n != 21 {
		t.Errorf("%d restarts counted", n)
	}
	kerneltest.Eventually(t, "helpers reaped", func() bool { return h.Prober.Abandoned() == 0 })

	// A deadline shorter than the hang is kept.
	short, cancel2 := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel2()
	h.Prober.Timeout = time.Second
	_, err := h.Prober.Ask(short, probe.Task, h.Proc, &evidence.Task{PID: pid, TID: pid, Switches: 1 << 40}, "")
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a question with a deadline of 50 ms: %v", err)
	}

	// Everything is let go once the file system answers.
	s.in.Close()
	kerneltest.Eventually(t, "release", func() bool { return stateOf(t, pid).TID == 0 })
}

// A process that is stuck inside execve because a file of it cannot be closed is seen to be there:
// its stack tells, or, on kernels that take exec_update_lock before they close files, that files hang.
func TestCloseInExecve(t *testing.T) {
	requireFUSE(t)
	pod, h := newTestPod(t), newHost(t)
	pid := start(t, unix.CLONE_NEWNS|unix.CLONE_NEWPID, "scene-fuse", "exec flush").number(t, "exec")
	pod.add(t, pid)
	stuckInExecve(t, pid)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	kerneltest.Eventually(t, "state D", func() bool { return stateOf(t, pid).State == evidence.Uninterruptible })
	k := taskOf(t, pod.read(t, h).Tasks, pid)
	if k.Probe == nil || slices.Contains(k.Probe.Stack, "begin_new_exec") == (len(k.Probe.Hung) > 0) {
		t.Fatalf("task %+v, probe %+v", k, k.Probe)
	}
	if hung := hangs(t, pid, "stack", time.Second); hung != (len(k.Probe.Hung) > 0) {
		t.Errorf("a reader of stack hangs: %v, probe %+v", hung, k.Probe)
	}
}

// stuckInExecve waits until a process is stuck inside execve: its other threads are gone, which nothing
// but this tells that does not hang. It may sleep so that signals wake it, unless one of the Go
// runtime's own was pending already.
func stuckInExecve(t *testing.T, pid int) {
	t.Helper()
	kerneltest.Eventually(t, "stuck inside execve", func() bool {
		k := stateOf(t, pid)
		time.Sleep(100 * time.Millisecond)
		now := stateOf(t, pid)
		return k.Threads == 1 && k.State == now.State && now.Switches == k.Switches &&
			(k.State == evidence.Sleeping || k.State == evidence.Uninterruptible)
	})
}

// hangs reports whether a file or directory of a process hangs its reader, which is a process of its
// own that can be left behind.
func hangs(t *testing.T, pid int, name string, limit time.Duration) bool {
	t.Helper()
	program := "cat"
	if name == "task" {
		program = "ls"
	}
	cmd := exec.Command(program, filepath.Join("/proc", strconv.Itoa(pid), name))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		_ = cmd.Wait() // a task that has left its namespaces has no mountinfo
		close(done)
	}()
	select {
	case <-done:
		return false
	case <-time.After(limit):
		_ = cmd.Process.Kill()
		return true
	}
}

// An epoll instance that waits for a FUSE daemon hangs whoever reads the fdinfo of
// its descriptor, and no signal ends that; one that watches a million files takes memory
// for all of them. So it is not read, of a pod that has such a process, nor where all processes
// of the node are searched.
func TestHangInEpoll(t *testing.T) {
	requireFUSE(t)
	hostile, other, h := newTestPod(t), newTestPod(t), newHost(t)
	h.Prober.Timeout = 400 * time.Millisecond
	const n = 4
	s := start(t, unix.CLONE_NEWNS|unix.CLONE_NEWPID, "scene-epoll", strconv.Itoa(n))
	var containers []evidence.Container
	for i := range n {
		pid := s.number(t, fmt.Sprintf("epoll%d", i))
		hostile.add(t, pid)
		kerneltest.Eventually(t, "a thread in request_wait_answer", func() bool { return waits(t, pid, "request_wait_answer") })
		containers = append(containers, evidence.Container{ID: hostile.container, Task: evidence.ShimTask{PID: pid}})
	}
	healthy := start(t, 0, "sleep").pid()
	other.add(t, healthy)
	sane := []evidence.Container{{ID: other.container, Task: evidence.ShimTask{PID: healthy}}}
	read := func(p *testPod, containers []evidence.Container) *evidence.Pod {
		t.Helper()
		e := &evidence.Pod{Time: time.Now(), RuntimeUID: p.uid, Containers: containers}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		h.Round().ReadPod(ctx, e)
		return e
	}
	probed := func() bool {
		e := read(other, sane)
		k := taskOf(t, e.Tasks, healthy)
		return k.Probe != nil && k.Probe.Syscall != "" && len(k.Probe.Hung) == 0 && len(e.Missing) == 0
	}
	if !probed() {
		t.Fatal("a healthy pod is not probed")
	}
	before := ownThreads(t)
	e := read(hostile, containers)
	seen := 0
	for _, k := range e.Tasks {
		if k.Probe != nil && len(k.Probe.Hung) == 0 && k.Probe.Syscall == "read" {
			seen++
		}
	}
	if seen < n || len(e.Missing) > 0 || h.Prober.Hangs() > 0 || h.Prober.Abandoned() > 0 {
		t.Errorf("%d tasks were seen to read, missing %v, %d hangs", seen, e.Missing, h.Prober.Hangs())
	}
	if !probed() {
		t.Error("a healthy pod is not probed beside a hostile one")
	}

	// The search for leftovers looks at the standard streams of everybody.
	h2 := newHost(t)
	h2.Prober.Timeout = h.Prober.Timeout
	r, err := kernfile.Open("/proc")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	pipeRead, pipeWrite, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer pipeRead.Close()
	defer pipeWrite.Close()
	shim := []kernfile.TaskStatus{{Task: evidence.Task{PID: os.Getpid(), TID: os.Getpid(), Owner: ownerShim}}}
	p := &evidence.Pod{Time: time.Now(), UID: uid1, HostPID: true, Containers: []evidence.Container{
		{Kind: evidence.App, ID: "c1", State: evidence.StateRunning, Task: evidence.ShimTask{PID: 1 << 22}},
	}}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, _ = h2.Round().readLeftovers(ctx, r, p, nil, shim) // some machines hide what the first process has open
	if ctx.Err() != nil || h2.Prober.Hangs() != 0 {
		t.Errorf("%d processes have hung the search: %v", h2.Prober.Hangs(), ctx.Err())
	}
	if after := ownThreads(t); after > before+3 {
		t.Errorf("%d threads before, %d after", before, after)
	}
	s.in.Close()
}

// waits reports whether a thread of a process sleeps in a function.
func waits(t *testing.T, pid int, fn string) bool {
	t.Helper()
	tids, err := threadsOf(pid)
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(tids, func(tid int) bool {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/wchan", tid))
		return err == nil && string(b) == fn
	})
}

// The files that are read in the process itself come back whatever the task is
// stuck in, also when it has been killed.
func TestFilesThatDoNotHang(t *testing.T) {
	requireFUSE(t)
	epoll := start(t, unix.CLONE_NEWNS|unix.CLONE_NEWPID, "scene-epoll", "1")
	dead := start(t, unix.CLONE_NEWNS|unix.CLONE_NEWPID, "scene-fuse", "exec flush", "exec-aio dread", "close flush", "read dread")
	pids := map[string]int{"epoll": epoll.number(t, "epoll0")}
	for _, op := range []string{"exec", "exec-aio", "close", "read"} {
		pids[op] = dead.number(t, op)
	}
	kerneltest.Eventually(t, "stuck", func() bool {
		return waits(t, pids["epoll"], "request_wait_answer") && waits(t, pids["read"], "request_wait_answer")
	})
	read := func() {
		for op, pid := range pids {
			own := strconv.Itoa(pid)
			files := []string{"task"} // a directory
			for _, f := range kernfile.OfTasks() {
				if f == kernfile.Children {
					files = append(files, filepath.Join("task", own, f.String()))
				} else {
					files = append(files, f.String())
				}
			}
			for _, name := range files {
				if hangs(t, pid, name, 30*time.Second) {
					t.Errorf("%s of a task stuck in %s hangs its reader", name, op)
				}
			}
		}
	}
	read()
	for _, op := range []string{"exec", "exec-aio", "read"} {
		if err := syscall.Kill(pids[op], syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	read()
}

func TestCulpritFUSE(t *testing.T) {
	requireFUSE(t)
	pod, h := newTestPod(t), newHost(t)
	s := start(t, unix.CLONE_NEWNS|unix.CLONE_NEWPID, "scene-fuse", "read dread", "close flush")
	reader, closer := s.number(t, "read"), s.number(t, "close")
	pod.add(t, reader)
	pod.add(t, closer)
	waitFor(t, reader, "request_wait_answer")
	h.FUSE = filepath.Join("/proc", strconv.Itoa(s.pid()), "root", s.said["connections"])
	if err := syscall.Kill(reader, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	kerneltest.Eventually(t, "state D", func() bool { return stateOf(t, reader).State == evidence.Uninterruptible })
	kerneltest.Eventually(t, "exit", func() bool {
		return slices.ContainsFunc(pod.read(t, h).Tasks, func(k evidence.Task) bool { return k.PID == closer && k.Exiting() && k.State == evidence.Sleeping })
	})
	e := pod.read(t, h)

	k := taskOf(t, e.Tasks, reader)
	m := k.Probe.Mount
	if m == nil || m.Point != s.said["dir"] || m.Type != "fuse.dead" || m.Device != s.said["device"] || m.Source != "nowhere" ||
		!strings.HasPrefix(k.Probe.Via, "fd ") {
		t.Fatalf("probe %+v, mount %+v", k.Probe, m)
	}
	if m.FUSEWaiting == nil || *m.FUSEWaiting < 2 {
		t.Errorf("waiting requests %v", m.FUSEWaiting)
	}
	if k.Probe.Syscall != "read" || !slices.ContainsFunc(k.Probe.Stack, func(f string) bool { return strings.HasPrefix(f, "fuse_") }) {
		t.Errorf("probe %+v", k.Probe)
	}

	// It exits, for ever, in state S with nothing pending.
	// The descriptors are closed by whichever thread ends last.
	i := slices.IndexFunc(e.Tasks, func(k evidence.Task) bool { return k.PID == closer && k.State == evidence.Sleeping })
	if i < 0 {
		t.Fatalf("no thread of %d is asleep: %+v", closer, e.Tasks)
	}
	k = &e.Tasks[i]
	if k.Probe == nil || !k.Exiting() || k.Probe.Wchan != "request_wait_answer" {
		t.Fatalf("exiting task %+v, probe %+v", k, k.Probe)
	}
	// Its file is gone, and two requests wait on the only connection.
	if m := k.Probe.Mount; m != nil && m.Device != s.said["device"] {
		t.Errorf("mount of the exiting task %+v", m)
	}

	// ReadProcess finds the sleepers of a service that wait for a daemon.
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	is, err := h.blocked(ctx, &kernfile.TaskStatus{Task: *k})
	if err != nil || !is {
		t.Errorf("a task in request_wait_answer is not blocked: %v", err)
	}
	all, _, err := h.Round().ReadBlocked(ctx)
	if err != nil && !errors.Is(err, errDenied) { // of what else is in state D on this machine
		t.Error(err)
	}
	b := taskOf(t, all, reader)
	if b.Owner != pod.uid || b.Container != pod.container || b.Probe == nil {
		t.Errorf("blocked task %+v", b)
	}
}

func TestCulpritFrozen(t *testing.T) {
	requireRoot(t)
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		t.Skipf("needs loop devices: %v", err)
	}
	pod, h := newTestPod(t), newHost(t)
	h.Blocks = "/sys/dev/block"
	s := start(t, unix.CLONE_NEWNS, "scene-frozen", "write file", "create new", "link other")
	writer, creator, linked := s.number(t, "write"), s.number(t, "create"), s.number(t, "link")
	for _, pid := range []int{writer, creator, linked} {
		pod.add(t, pid)
		waitFor(t, pid, "percpu_rwsem_wait")
	}
	e := pod.read(t, h)
	for tid, via := range map[int]string{writer: "fd ", creator: "path"} {
		k := taskOf(t, e.Tasks, tid)
		if k.State != evidence.Uninterruptible || k.Probe == nil || k.Probe.Wchan != "percpu_rwsem_wait" {
			t.Fatalf("task %+v, probe %+v", k, k.Probe)
		}
		m := k.Probe.Mount
		if m == nil || m.Type != "ext4" || m.Point != s.said["dir"] || !strings.HasPrefix(m.Source, "/dev/loop") || !strings.HasPrefix(k.Probe.Via, via) {
			t.Errorf("%s: mount %+v, via %q", k.Probe.Syscall, m, k.Probe.Via)
		}
		if k.Probe.Indirect != (tid == creator) {
			t.Errorf("%s: indirect %v", k.Probe.Syscall, k.Probe.Indirect)
		}
		if m != nil && (m.Disk == nil || m.Disk.Completed == 0 || m.Disk.Suspended || m.Disk.Read.IsZero()) {
			t.Errorf("%s: disk %+v", k.Probe.Syscall, m.Disk)
		}
	}
	// The text of a path names the mount that its link is on, which is not frozen.
	if k := taskOf(t, e.Tasks, linked); k.Probe == nil || k.Probe.Mount != nil && (k.Probe.Mount.Point == s.said["dir"] || !k.Probe.Indirect) {
		t.Errorf("by a link: %+v, mount %+v", k.Probe, k.Probe.Mount)
	} else if m := k.Probe.Mount; m != nil {
		t.Logf("by a link the path is on %s, mounted at %s", m.Type, m.Point)
	}
	if err := syscall.Kill(writer, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond)
	if k := taskOf(t, pod.read(t, h).Tasks, writer); !k.Killed() || k.State != evidence.Uninterruptible {
		t.Errorf("killed writer %+v", k)
	}
}

// A disk that completes nothing has requests under way, and the same number of
// completed ones in each reading.
func TestDeadDisk(t *testing.T) {
	requireRoot(t)
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		t.Skipf("needs loop devices: %v", err)
	}
	pod, h := newTestPod(t), newHost(t)
	h.Blocks = "/sys/dev/block"
	s := start(t, unix.CLONE_NEWNS, "scene-dead-disk")
	writer := s.number(t, "sync")
	pod.add(t, writer)
	settled(t, writer, evidence.Uninterruptible)
	disk := func(e *evidence.Pod) *evidence.Disk {
		t.Helper()
		k := taskOf(t, e.Tasks, writer)
		if k.Probe == nil || k.Probe.Mount == nil || k.Probe.Mount.Disk == nil || k.Probe.Mount.Point != s.said["dir"] {
			t.Fatalf("task %+v, probe %+v", k, k.Probe)
		}
		return k.Probe.Mount.Disk
	}
	// What else reads from it, as udev does from a new disk, comes to its end.
	var first, second *evidence.Pod
	kerneltest.Eventually(t, "nothing completed for a second", func() bool {
		first = pod.read(t, h)
		first.Since(nil)
		time.Sleep(time.Second)
		second = pod.read(t, h)
		second.Since(first)
		return disk(first).Completed == disk(second).Completed
	})
	if a, b := disk(first), disk(second); a.InFlight == 0 || b.InFlight == 0 || b.Completed != a.Completed || b.Still() < time.Second || !b.Moved.IsZero() {
		t.Errorf("a disk that completes nothing: %+v, then %+v", a, b)
	}
}
