package proc

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kerneltest"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kernfile"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/mount"
	"github.com/nodeagent-io/nodeagent/pkg/proc/probe"
	"golang.org/x/sys/unix"
)

// newHost is this machine.
func newHost(t testing.TB) *Host {
	p := &probe.Prober{Argv: []string{"/proc/self/exe", "probe"}}
	t.Cleanup(p.Close)
	return &Host{Proc: "/proc", Cgroup: "/sys/fs/cgroup", KubeletDir: "/var/lib/kubelet", Prober: p}
}

func requireRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes control groups, namespaces and mounts")
	}
}

// A testPod is a pod's control groups on this machine, in the hierarchies that
// it has.
type testPod struct {
	uid, container string
	dirs           []string // of the container
}

func newTestPod(t testing.TB) *testPod {
	t.Helper()
	requireRoot(t)
	var u [16]byte
	_, _ = rand.Read(u[:])
	p := &testPod{
		uid:       fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:]),
		container: strings.Repeat("c0ffee00", 8),
	}
	roots := []string{"/sys/fs/cgroup"}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err != nil {
		roots = []string{"/sys/fs/cgroup/pids", "/sys/fs/cgroup/freezer"}
	}
	for _, root := range roots {
		pod := filepath.Join(root, "kubepods", "besteffort", "pod"+p.uid)
		dir := filepath.Join(pod, p.container)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Skipf("no control group can be made here: %v", err)
		}
		p.dirs = append(p.dirs, dir)
		t.Cleanup(func() {
			for range 3000 {
				err := os.Remove(dir)
				if err == nil || os.IsNotExist(err) {
					break
				}
				time.Sleep(20 * time.Millisecond)
			}
			for d := pod; d != root; d = filepath.Dir(d) {
				if err := os.Remove(d); err != nil && d == pod {
					t.Errorf("control group is left: %v", err)
				}
			}
		})
	}
	return p
}

// add puts a process into the container.
func (p *testPod) add(t testing.TB, pid int) {
	t.Helper()
	for _, d := range p.dirs {
		if err := os.WriteFile(filepath.Join(d, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0); err != nil {
			t.Fatal(err)
		}
	}
}

// count has the kernel count the tasks of the pod's groups. In version 2 each group above has to ask
// for that, as kubelet and the runtime have it do.
func (p *testPod) count(t testing.TB) {
	t.Helper()
	if len(p.dirs) > 1 {
		return
	}
	for _, d := range []string{"", "kubepods", "kubepods/besteffort", "kubepods/besteffort/pod" + p.uid} {
		if err := os.WriteFile(filepath.Join("/sys/fs/cgroup", d, "cgroup.subtree_control"), []byte("+pids"), 0); err != nil {
			t.Skipf("tasks cannot be counted here: %v", err)
		}
	}
}

func (p *testPod) read(t testing.TB, h *Host) *evidence.Pod {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	e := &evidence.Pod{Time: time.Now(), UID: p.uid, RuntimeUID: p.uid}
	h.Round().ReadPod(ctx, e)
	for s, why := range e.Missing {
		t.Errorf("missing %s: %s", s, why)
	}
	if b, err := json.Marshal(e); err != nil || !json.Valid(b) {
		t.Errorf("not valid as JSON: %v", err)
	}
	return e
}

func taskOf(t testing.TB, tasks []evidence.Task, tid int) *evidence.Task {
	t.Helper()
	i := slices.IndexFunc(tasks, func(k evidence.Task) bool { return k.TID == tid })
	if i < 0 {
		t.Fatalf("task %d is not among %d tasks", tid, len(tasks))
	}
	return &tasks[i]
}

func stateOf(t testing.TB, tid int) kernfile.TaskStatus {
	t.Helper()
	r, err := kernfile.Open("/proc")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	s, err := r.TaskStatus(tid)
	if err != nil {
		return kernfile.TaskStatus{}
	}
	return s
}

// asleep waits until a victim that is ready sleeps. On a busy machine its thread still has something to do after
// it has said so.
func asleep(t testing.TB, v *scene) {
	t.Helper()
	settled(t, v.pid(), evidence.Sleeping)
}

// settled waits until a task is in a state, and has not left it between two looks.
func settled(t testing.TB, tid int, state evidence.TaskState) {
	t.Helper()
	switches := uint64(1<<64 - 1)
	kerneltest.Eventually(t, fmt.Sprintf("task %d in state %s", tid, state), func() bool {
		s := stateOf(t, tid)
		before := switches
		switches = s.Switches
		return s.State == state && s.Switches == before
	})
}

func TestReadPodWithoutCgroup(t *testing.T) {
	p := &testPod{uid: "00000000-0000-4000-8000-000000000000"}
	e := p.read(t, newHost(t))
	if len(e.Cgroups)+len(e.Tasks)+len(e.Parents)+len(e.Mounts) != 0 {
		t.Errorf("found something of a pod that never was: %+v", e)
	}
}

func TestReadPodUnreadable(t *testing.T) {
	h := &Host{Proc: t.TempDir(), Cgroup: t.TempDir(), KubeletDir: "/var/lib/kubelet"}
	e := &evidence.Pod{Time: time.Now(), RuntimeUID: "00000000-0000-4000-8000-000000000000"}
	h.Round().ReadPod(context.Background(), e)
	for _, s := range []evidence.Source{evidence.Cgroups, evidence.Processes, evidence.Mounts, evidence.Suspects} {
		if e.Missing[s] == "" {
			t.Errorf("%s is not missing", s)
		}
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	pod := newTestPod(t)
	pod.add(t, start(t, 0, "sleep").pid())
	e = &evidence.Pod{Time: time.Now(), RuntimeUID: pod.uid}
	newHost(t).Round().ReadPod(ended, e)
	if e.Missing[evidence.Processes] == "" {
		t.Error("a reading without time is complete")
	}
}

func TestReadPod(t *testing.T) {
	pod, h := newTestPod(t), newHost(t)
	pod.count(t)
	began := time.Now().Add(-20 * time.Millisecond) // ticks are cut off
	v := start(t, 0, "sighup-ignored")
	pod.add(t, v.pid())
	asleep(t, v)

	e := pod.read(t, h)
	if len(e.Cgroups) != 2 || e.Cgroups[1].Container != pod.container || e.Cgroups[0].Container != "" {
		t.Fatalf("control groups %+v", e.Cgroups)
	}
	c := e.Cgroups[1]
	if !c.Populated || !e.Cgroups[0].Populated || c.Threads == 0 || c.PIDs < int64(c.Threads) || c.Frozen {
		t.Errorf("container's group %+v", c)
	}
	k := taskOf(t, e.Tasks, v.pid())
	if !k.Ignored.Has(evidence.SIGHUP) || !k.Caught.Has(evidence.SIGTERM) || k.Container != pod.container || k.Threads != c.Threads ||
		k.State != evidence.Sleeping || k.Probe != nil {
		t.Errorf("task %+v", k)
	}
	if parent := taskOf(t, e.Parents, os.Getpid()); parent.Comm == "" || parent.Cgroup == "" {
		t.Errorf("parent %+v", parent)
	}

	// The shim says that this is the container's first process.
	ctx := context.Background()
	e2 := &evidence.Pod{Time: time.Now(), RuntimeUID: pod.uid, Containers: []evidence.Container{{ID: pod.container, Task: evidence.ShimTask{PID: v.pid()}}}}
	h.Round().ReadPod(ctx, e2)
	k = taskOf(t, e2.Tasks, v.pid())
	if k.Probe != nil && (k.Probe.Group <= 0 || k.Probe.Started.After(time.Now()) || k.Probe.Started.Before(began)) {
		t.Errorf("group %d, started %v, not after %v", k.Probe.Group, k.Probe.Started, began)
	}
	if k.Probe == nil || k.Probe.Syscall == "" || k.Probe.Start == 0 || k.Probe.Exe != ownName(t) ||
		k.Probe.Wchan == "" || len(k.Probe.Stack) == 0 {
		t.Fatalf("probe %+v, missing %v", k.Probe, e2.Missing)
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", v.pid()))
	if err != nil {
		t.Fatal(err)
	}
	// The ninth field, which may be 0; the second, in brackets, may hold blanks.
	_, behind, _ := strings.Cut(string(stat), ") ")
	if want := strings.Fields(behind)[9-3]; fmt.Sprint(k.Probe.Flags) != want {
		t.Errorf("flags %d, want %s", k.Probe.Flags, want)
	}

	if err := syscall.Kill(v.pid(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	kerneltest.Eventually(t, "stopped", func() bool { return stateOf(t, v.pid()).State == evidence.Stopped })
	k = taskOf(t, pod.read(t, h).Tasks, v.pid())
	if k.State != evidence.Stopped || k.Probe == nil || k.Probe.Wchan != "do_signal_stop" {
		t.Errorf("stopped task %+v, probe %+v", k, k.Probe)
	}
	if err := syscall.Kill(v.pid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	k = taskOf(t, pod.read(t, h).Tasks, v.pid())
	if !k.SharedPending.Has(evidence.SIGTERM) || k.Killed() {
		t.Errorf("pending %x %x", k.Pending, k.SharedPending)
	}
}

// A program in sigwait. Whether this machine's kernel has do_sigtimedwait or
// do_sigtimedwait.isra.0, as 6.18 by GCC 15 does, the reading has the former.
func TestProbeSigwait(t *testing.T) {
	v := start(t, 0, "sigwait")
	symbol := ""
	kerneltest.Eventually(t, "in do_sigtimedwait", func() bool {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/wchan", v.pid()))
		if err != nil {
			t.Skipf("wchan is unreadable: %v", err)
		}
		symbol = string(b)
		if symbol == "0" && os.Geteuid() != 0 && stateOf(t, v.pid()).State == evidence.Sleeping {
			t.Skip("wchan is unreadable: it is 0 of a task that sleeps")
		}
		return strings.HasPrefix(symbol, "do_sigtimedwait")
	})
	t.Logf("wchan holds %s", symbol)
	h, s := newHost(t), stateOf(t, v.pid())
	if err := h.probe(t.Context(), &s, &tables{Round: h.Round()}, ""); err != nil && os.Geteuid() == 0 {
		t.Fatal(err)
	}
	if s.Probe == nil || s.Probe.Wchan != "do_sigtimedwait" || s.Probe.Syscall != "rt_sigtimedwait" {
		t.Fatalf("probe %+v", s.Probe)
	}
	if os.Geteuid() == 0 && !slices.Contains(s.Probe.Stack, "do_sigtimedwait") {
		t.Errorf("stack %q", s.Probe.Stack)
	}
}

func TestReadPodFrozen(t *testing.T) {
	pod, h := newTestPod(t), newHost(t)
	v := start(t, 0, "sleep")
	pod.add(t, v.pid())
	file, freeze, thaw := "freezer.state", "FROZEN", "THAWED"
	dir := pod.dirs[len(pod.dirs)-1]
	if len(pod.dirs) == 1 {
		file, freeze, thaw = "cgroup.freeze", "1", "0"
	}
	// The pod's own group is frozen, the container's is so with it.
	file = filepath.Join(filepath.Dir(dir), file)
	if err := os.WriteFile(file, []byte(freeze), 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.WriteFile(file, []byte(thaw), 0) })
	// In version 2 it is frozen when each of its threads has stopped.
	var e *evidence.Pod
	kerneltest.Eventually(t, "frozen", func() bool {
		e = pod.read(t, h)
		return !slices.ContainsFunc(e.Cgroups, func(c evidence.Cgroup) bool { return !c.Frozen })
	})
	for _, c := range e.Cgroups {
		if !c.Frozen || c.FrozenBy != e.Cgroups[0].Path {
			t.Errorf("%s is not frozen, or by %q", c.Path, c.FrozenBy)
		}
	}
	if err := os.WriteFile(file, []byte(thaw), 0); err != nil {
		t.Fatal(err)
	}
	for _, c := range pod.read(t, h).Cgroups {
		if c.Frozen || c.FrozenBy != "" {
			t.Errorf("%s is frozen, by %q", c.Path, c.FrozenBy)
		}
	}
}

func TestReadPodZombieLeader(t *testing.T) {
	pod, h := newTestPod(t), newHost(t)
	v := start(t, 0, "leader-exits")
	pod.add(t, v.pid())
	if _, err := v.in.Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}
	kerneltest.Eventually(t, "zombie leader", func() bool { return stateOf(t, v.pid()).State == evidence.Zombie })
	e := pod.read(t, h)
	k := taskOf(t, e.Tasks, v.pid())
	if k.State != evidence.Zombie || k.Threads < 2 || k.Container != pod.container || k.Probe == nil || !k.Exiting() {
		t.Errorf("leader %+v, probe %+v", k, k.Probe)
	}
	if len(e.Tasks) < 2 {
		t.Errorf("only %d tasks", len(e.Tasks))
	}
}

func TestReadPodTraced(t *testing.T) {
	pod, h := newTestPod(t), newHost(t)
	v := start(t, 0, "trace")
	child := v.number(t, "child")
	pod.add(t, child)
	e := pod.read(t, h)
	k := taskOf(t, e.Tasks, child)
	if k.State != evidence.Traced || k.TracerPID == 0 || k.Probe == nil || k.Probe.Wchan != "ptrace_stop" {
		t.Errorf("task %+v, probe %+v", k, k.Probe)
	}
	taskOf(t, e.Parents, k.TracerPID)
}

func TestReadPodNamespaceInit(t *testing.T) {
	pod, h := newTestPod(t), newHost(t)
	v := start(t, unix.CLONE_NEWPID, "sleep")
	pod.add(t, v.pid())
	asleep(t, v) // one that runs is in no system call
	k := taskOf(t, pod.read(t, h).Tasks, v.pid())
	if !k.NamespaceInit() || k.Probe == nil || k.Probe.Syscall == "" {
		t.Errorf("task %+v, probe %+v", k, k.Probe)
	}
}

// many is a tenth of a number with -short: an emulated processor starts ten threads in a second, not a thousand.
func many(n int) int {
	if testing.Short() {
		return n / 10
	}
	return n
}

func TestReadPodThreads(t *testing.T) {
	pod, h := newTestPod(t), newHost(t)
	n := many(10_000)
	requireRoom(t, n)
	v := start(t, 0, "threads", strconv.Itoa(n))
	pod.add(t, v.pid())
	began := time.Now()
	e := pod.read(t, h)
	t.Logf("%d tasks in %v", len(e.Tasks), time.Since(began))
	if len(e.Tasks) <= n {
		t.Errorf("%d tasks", len(e.Tasks))
	}
}

// requireRoom skips a test on a machine that forbids so many threads more.
func requireRoom(t *testing.T, threads int) {
	t.Helper()
	load, err := os.ReadFile("/proc/loadavg") // 0.20 0.18 0.12 1/80 11206
	if err != nil {
		t.Fatal(err)
	}
	_, total, _ := strings.Cut(strings.Fields(string(load))[3], "/")
	used, err := strconv.Atoi(total)
	if err != nil {
		t.Fatal(err)
	}
	limits := []int{}
	for _, name := range []string{"threads-max", "pid_max"} {
		b, err := os.ReadFile("/proc/sys/kernel/" + name)
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.Atoi(strings.TrimSpace(string(b)))
		if err != nil {
			t.Fatal(err)
		}
		limits = append(limits, n)
	}
	var own unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NPROC, &own); err != nil {
		t.Fatal(err)
	}
	if own.Max < 1<<31 {
		limits = append(limits, int(own.Cur))
	}
	if least := slices.Min(limits); used+threads+1000 > least {
		t.Skipf("%d threads are there and %d are allowed: no room for %d more", used, least, threads)
	}
}

// A process may call itself what it likes; that must not make another state, or
// another process, of it.
func TestReadPodOddComm(t *testing.T) {
	pod, h := newTestPod(t), newHost(t)
	for name, want := range map[string]string{
		"a) R (\nb\t c":     `a) R (\n` + "b\ufffd c", // the tab is a control character
		"\nState:\tD\n":     `\nState:` + "\ufffd" + `D\n`,
		"\xff\xfe\x1b[31mx": "\ufffd\ufffd[31mx",
		" ":                 " ",
		") Z 1 1 1 1 1 1":   ") Z 1 1 1 1 1 1",
	} {
		v := start(t, 0, "named", name)
		pod.add(t, v.pid())
		asleep(t, v)
		e := &evidence.Pod{Time: time.Now(), RuntimeUID: pod.uid, Containers: []evidence.Container{{ID: pod.container, Task: evidence.ShimTask{PID: v.pid()}}}}
		h.Round().ReadPod(t.Context(), e)
		k := taskOf(t, e.Tasks, v.pid())
		if k.Comm != want || k.State != evidence.Sleeping || k.PPID != os.Getpid() || k.Kernel {
			t.Errorf("%q: %+v", name, k)
		}
		if k.Probe == nil || k.Probe.Start == 0 || k.Probe.Group != v.pid() || len(e.Missing) > 0 {
			t.Errorf("%q: probe %+v, missing %v", name, k.Probe, e.Missing)
		}
		b, err := json.Marshal(e)
		if err != nil || !utf8.Valid(b) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// Processes end while they are read, some of them suspects. That is no error,
// and what is left is told as it is.
func TestReadPodVanishing(t *testing.T) {
	pod, h := newTestPod(t), newHost(t)
	stays := start(t, 0, "sleep")
	pod.add(t, stays.pid())
	const n = 60
	var going []*exec.Cmd
	for i := range n {
		c := exec.Command("sleep", "600")
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Process.Kill() }) // of a test that failed before it has ended
		going = append(going, c)
		pod.add(t, c.Process.Pid)
		if i%2 == 0 {
			_ = c.Process.Signal(syscall.SIGSTOP) // a suspect
		}
	}
	groups, err := h.tree().Snapshot(time.Now).Pod(pod.uid, true)
	if err != nil {
		t.Fatal(err)
	}
	end := func(c *exec.Cmd) { _, _ = c.Process.Kill(), c.Wait() }
	// Between the group's list and the task's files.
	listed := going[0].Process.Pid
	end(going[0])
	r, err := kernfile.Open("/proc")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	tasks, err := readTasks(r.TaskStatus, groups)
	if err != nil || slices.ContainsFunc(tasks, func(s kernfile.TaskStatus) bool { return s.TID == listed }) {
		t.Errorf("a task that has ended: %v", err)
	}
	// Between its status and its other files.
	i := slices.IndexFunc(tasks, func(s kernfile.TaskStatus) bool { return s.TID == going[2].Process.Pid })
	end(going[2])
	if err := h.probe(t.Context(), &tasks[i], &tables{Round: h.Round()}, pod.uid); err != nil || tasks[i].Probe != nil {
		t.Errorf("probe of a task that has ended: %+v, %v", tasks[i].Probe, err)
	}
	// While all of it is read.
	var wg sync.WaitGroup
	wg.Go(func() {
		for i, c := range going {
			if i != 0 && i != 2 {
				end(c)
				time.Sleep(2 * time.Millisecond) // so that there are readings in between
			}
		}
	})
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	for reading := 0; ; reading++ {
		select {
		case <-done:
			e := pod.read(t, h)
			t.Logf("%d readings", reading)
			if slices.ContainsFunc(e.Tasks, func(k evidence.Task) bool { return k.PID != stays.pid() }) {
				t.Errorf("%d tasks are left", len(e.Tasks))
			}
			return
		default:
			taskOf(t, pod.read(t, h).Tasks, stays.pid())
		}
	}
}

// The node view allocates for what is blocked, and not for each healthy process.
func TestReadBlockedAllocations(t *testing.T) {
	requireRoom(t, many(6000))
	r, err := kernfile.Open("/proc")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	// Other processes that come and go only add to what is counted.
	once := func() float64 {
		blocked := 0
		n := testing.AllocsPerRun(3, func() {
			found, err := newHost(t).Round().readBlocked(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			blocked = max(blocked, len(found))
		})
		// Those of other processes that happen to be in state D: each takes a
		// few, and the list of them.
		return n - float64(8*blocked)
	}
	count := func() float64 { return min(once(), once(), once()) }
	start(t, 0, "children", strconv.Itoa(many(1000)))
	before := count()
	more := many(4000)
	start(t, 0, "children", strconv.Itoa(more))
	after := count()
	t.Logf("%v allocations, %v with %d processes more", before, after, more)
	// One for each process would be as many more. The list of their numbers grows a few times, and on a
	// busy machine processes come and go meanwhile.
	if after > before+200 {
		t.Errorf("%v allocations, %v with %d processes more", before, after, more)
	}
}

func TestReadHeld(t *testing.T) {
	pod, h := newTestPod(t), newHost(t)
	start(t, unix.CLONE_NEWPID, "children", "300") // of other pods there are more than could be told of
	v := start(t, unix.CLONE_NEWPID, "sleep")
	pod.add(t, v.pid())
	// The test itself is the parent outside that does not reap: it enters a
	// process into the namespace, which is a zombie once the init is killed.
	in := start(t, 0, "enter", strconv.Itoa(v.pid()))
	held := in.number(t, "child")
	if err := syscall.Kill(v.pid(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	kerneltest.Eventually(t, "zombie", func() bool { return stateOf(t, held).State == evidence.Zombie })
	var e *evidence.Pod
	kerneltest.Eventually(t, "zap_pid_ns_processes", func() bool {
		e = &evidence.Pod{Time: time.Now(), RuntimeUID: pod.uid, Containers: []evidence.Container{{ID: pod.container, Task: evidence.ShimTask{PID: v.pid()}}}}
		h.Round().ReadPod(context.Background(), e)
		return slices.ContainsFunc(e.Tasks, func(k evidence.Task) bool {
			return k.PID == v.pid() && k.Probe != nil && k.Probe.Wchan == "zap_pid_ns_processes"
		}) && slices.ContainsFunc(e.Tasks, func(k evidence.Task) bool { return k.PID == held })
	})
	if len(e.Missing) > 0 {
		t.Errorf("missing: %v", e.Missing)
	}
	k := taskOf(t, e.Tasks, held)
	if k.State != evidence.Zombie || k.PPID != in.pid() || k.Container != pod.container {
		t.Errorf("held task %+v", k)
	}
	taskOf(t, e.Parents, in.pid())
}

func TestReadProcessAndBlocked(t *testing.T) {
	h := newHost(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	v := start(t, 0, "sleep")
	name := fmt.Sprintf("na-%d", os.Getpid())
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/comm", v.pid()), []byte(name), 0); err == nil {
		p, _, err := h.Round().ReadProcess(ctx, name)
		if err != nil || p == nil || p.PID != v.pid() {
			t.Errorf("process %+v, %v", p, err)
		}
	}
	p, blocked, err := h.Round().ReadProcess(ctx, "no such service")
	if p != nil || blocked != nil || err != nil {
		t.Errorf("found %+v, %v, %v", p, blocked, err)
	}
	// What of this machine is in state D just now may be of a kind that not even
	// root may read.
	if _, _, err := h.Round().ReadBlocked(ctx); err != nil && !errors.Is(err, errDenied) {
		t.Error(err)
	}
}

func TestShim(t *testing.T) {
	requireRoot(t)
	h := newHost(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	v := start(t, 0, "shim", "-namespace", "k8s.io", "-id", "5a4d", "-address", "/run/x.sock")
	s, err := h.Round().Shim(ctx, "5a4d")
	if err != nil || s == nil || s.PID != v.pid() || s.Owner != "shim" {
		t.Errorf("shim %+v, %v", s, err)
	}
	child := v.number(t, "child")
	kerneltest.Eventually(t, "zombie", func() bool { return stateOf(t, child).State == evidence.Zombie })
	e := &evidence.Pod{
		Time: time.Now(), RuntimeUID: "00000000-0000-4000-8000-000000000000",
		Containers: []evidence.Container{{Kind: evidence.Sandbox, ID: "5a4d"}},
	}
	h.Round().ReadPod(ctx, e)
	taskOf(t, e.Parents, v.pid())
	if !e.NoShimSince.IsZero() {
		t.Error("the shim was found, and is said to be gone")
	}
	if k := taskOf(t, e.Tasks, child); k.PPID != v.pid() {
		t.Errorf("unreaped child %+v", k)
	}
	if s, err := h.Round().Shim(ctx, "5a4"); s != nil || err != nil {
		t.Errorf("shim of another sandbox: %+v, %v", s, err)
	}
	e.Containers[0].ID = "5a4"
	if h.Round().ReadPod(ctx, e); e.NoShimSince.IsZero() {
		t.Errorf("no shim has this sandbox; missing %v", e.Missing)
	}
}

func TestReadMountinfoMany(t *testing.T) {
	requireRoot(t)
	const n = 5000
	v := start(t, unix.CLONE_NEWNS, "scene-mounts", strconv.Itoa(n))
	began := time.Now()
	table, err := mount.ReadTable(fmt.Sprintf("/proc/%d", v.pid()))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d mounts in %v", len(table.Lines), time.Since(began))
	if table.Bad != 0 || len(table.Lines) <= n {
		t.Errorf("%d lines, %d bad", len(table.Lines), table.Bad)
	}
	m := table.Holding(v.said["dir"] + "/a blank\\and\ttab 4999/some file")
	if m == nil || !strings.HasSuffix(m.Point, "/a blank\\and\ttab 4999") {
		t.Errorf("mount %+v", m)
	}
}

func ownName(t testing.TB) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Base(exe)
}

func allPIDs() ([]int, error) {
	r, err := kernfile.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return r.PIDs()
}

func threadsOf(pid int) ([]int, error) {
	r, err := kernfile.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return r.TIDs(pid, nil)
}

// The limits of a pod's own group as this machine's kernel tells them.
func TestReadPodLimits(t *testing.T) {
	pod, h := newTestPod(t), newHost(t)
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		t.Skip("needs cgroup version 1: in version 2 the controllers of a group are its parent's to give")
	}
	limits := map[string]string{"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "5000", "memory.limit_in_bytes": "67108864"}
	for _, c := range []string{"cpu", "cpuacct", "memory"} {
		root := controller(t, h.Cgroup, c)
		if root == "" {
			t.Skipf("no controller %s here", c)
		}
		dir := filepath.Join(root, "kubepods", "besteffort", "pod"+pod.uid)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Skipf("no control group can be made here: %v", err)
		}
		t.Cleanup(func() {
			for d := dir; d != root; d = filepath.Dir(d) {
				if err := os.Remove(d); err != nil && d == dir {
					t.Errorf("control group is left: %v", err)
				}
			}
		})
		for name, text := range limits {
			if strings.HasPrefix(name, c+".") {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0); err != nil {
					t.Skipf("no limit can be set here: %v", err)
				}
			}
		}
	}
	read := func(past time.Duration) evidence.Cgroup {
		p := &evidence.Pod{Time: time.Now(), Deadline: time.Now().Add(-past), RuntimeUID: pod.uid}
		if h.Round().ReadPod(t.Context(), p); len(p.Cgroups) == 0 {
			t.Fatalf("no control group; missing %v", p.Missing)
		}
		return p.Cgroups[0]
	}
	if c := read(limitsTell - 2*time.Second); c.CPU == nil || c.CPU.Millis != 50 || c.Memory == nil || c.Memory.Max != 64<<20 || c.Memory.High != 0 {
		t.Errorf("CPU %+v, memory %+v", c.CPU, c.Memory)
	}
	if c := read(limitsTell + time.Second); c.CPU != nil || c.Memory != nil {
		t.Errorf("after SIGKILL has had its time: CPU %+v, memory %+v", c.CPU, c.Memory)
	}
}

// controller is the directory of a controller of version 1, "" for none.
func controller(t *testing.T, root, name string) string {
	t.Helper()
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if slices.Contains(strings.Split(e.Name(), ","), name) {
			return filepath.Join(root, e.Name())
		}
	}
	return ""
}

// The agent has no hostPID: there is a task without a number.
func TestReadPodWithoutHostPID(t *testing.T) {
	for version, files := range map[int]map[string]string{
		1: {"pids/tasks": "", "pids/kubepods/pod" + uid1 + "/tasks": "0\n"},
		2: {"cgroup.controllers": "", "kubepods/pod" + uid1 + "/cgroup.threads": "0\n"},
	} {
		root := t.TempDir()
		kerneltest.Tree(t, root, files)
		p := &evidence.Pod{Time: time.Now(), RuntimeUID: uid1}
		(&Host{Proc: "/proc", Cgroup: root}).Round().ReadPod(t.Context(), p)
		if !strings.Contains(p.Missing[evidence.Processes], "hostPID") {
			t.Errorf("version %d: missing %v", version, p.Missing)
		}
	}
}

func TestOwner(t *testing.T) {
	for _, tt := range []struct {
		task evidence.Task
		want string
	}{
		{evidence.Task{Comm: "kubelet", Cgroup: "/kubepods/pod" + uid1 + "/" + id1}, uid1},
		{evidence.Task{Comm: "kubelet", Cgroup: "/system.slice/kubelet.service"}, "kubelet"},
		{evidence.Task{Comm: "umount", Cgroup: "/system.slice/kubelet.service"}, "kubelet"},
		{evidence.Task{Comm: "containerd-shim"}, "shim"},
		{evidence.Task{Comm: "runc", Cgroup: "/system.slice/containerd.service"}, "containerd"},
		{evidence.Task{Comm: "jbd2/vda-8", Kernel: true}, "kernel"},
		{evidence.Task{Comm: "sshd", Cgroup: "/system.slice/ssh.service"}, ""},
	} {
		if got, _ := owner(&tt.task); got != tt.want {
			t.Errorf("%+v is %q's", tt.task, got)
		}
	}
}
