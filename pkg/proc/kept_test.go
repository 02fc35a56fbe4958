package proc

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kerneltest"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kernfile"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/mount"
)

// A program is the shim: it reads what a container has printed, and has the FIFO into which
// it copies that open. Another one holds the other end, under a number of its own.
func TestReadKept(t *testing.T) {
	requireRoot(t)
	r, err := kernfile.Open("/proc")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	dir := filepath.Join(t.TempDir(), "c1", "io", "7")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	create := func(name string) *os.File {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	output, executed := create("c1-stdout"), create("e1-stdout")
	run := func(program string, files ...*os.File) int {
		c := exec.Command("sleep", "600")
		c.Args[0], c.ExtraFiles = program, files
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = c.Process.Kill(), c.Wait() })
		return c.Process.Pid
	}
	shim, withExec := run("shim", read, output), run("shim", read, output, executed)
	both := run("shim", read, write, output) // the pipe never ends for it
	none := run("shim", read)
	holder := run("holder", nil, nil, write)
	run("reader", read)
	write.Close()

	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	h := newHost(t)
	find := func(shim int, edit func(p *evidence.Pod)) []int {
		t.Helper()
		p := &evidence.Pod{Time: time.Now(), Deadline: time.Now().Add(-time.Second), UID: uid1, Containers: []evidence.Container{
			{Kind: evidence.App, ID: "c1", State: evidence.StateRunning, Task: evidence.ShimTask{Status: "stopped", PID: dead.Process.Pid}},
			{Kind: evidence.Sandbox, ID: "s1", State: evidence.StateRunning, Task: evidence.ShimTask{Status: "running", PID: os.Getpid()}},
		}}
		edit(p)
		parents := []kernfile.TaskStatus{{Task: evidence.Task{PID: shim, TID: shim, Owner: ownerShim}}}
		round := h.Round()
		saw, err := round.readDrained(t.Context(), p, nil, parents, &tables{Round: round})
		if err != nil {
			t.Fatal(err)
		}
		round.readKept(t.Context(), r, p, nil, parents, &saw)
		var pids []int
		for _, s := range p.OutputHolders {
			pids = append(pids, s.PID)
			if s.Comm != "sleep" || s.Probe == nil || s.Probe.Start == 0 {
				t.Errorf("holder %+v", s.Task)
			}
		}
		slices.Sort(pids)
		return pids
	}
	as := func(*evidence.Pod) {}
	// Of the programs of this test two have the writing end; one plays a shim.
	want := []int{both, holder}
	slices.Sort(want)
	if got := find(shim, as); !slices.Equal(got, want) {
		t.Errorf("found %d, want %d", got, want)
	}
	for name, got := range map[string][]int{
		"a process was executed, and its output is open": find(withExec, as),
		"the shim can write to the pipe":                 find(both, as),
		"the output is closed":                           find(none, as),
		"the deadline is not over":                       find(shim, func(p *evidence.Pod) { p.Deadline = p.Time.Add(time.Minute) }),
		"all containers have ended":                      find(shim, func(p *evidence.Pod) { p.Phase = "Succeeded" }),
		"containerd says that it is over":                find(shim, func(p *evidence.Pod) { p.Containers[0].State = evidence.StateExited }),
		"another container runs": find(shim, func(p *evidence.Pod) {
			p.Containers = append(p.Containers, evidence.Container{Kind: evidence.App, ID: "c2", State: evidence.StateRunning})
		}),
	} {
		if got != nil {
			t.Errorf("%s: %d", name, got)
		}
	}
}

// This program is the shim: one of its children prints to it, one is the pod's own, and one
// prints nothing.
func TestReadShimChildren(t *testing.T) {
	requireRoot(t)
	r, err := kernfile.Open("/proc")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	defer write.Close()
	run := func(output *os.File) int {
		c := exec.Command("sleep", "600")
		c.Stdout = output
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = c.Process.Kill(), c.Wait() })
		return c.Process.Pid
	}
	prints, silent, own := run(write), run(nil), run(write)
	info, err := read.Stat()
	if err != nil {
		t.Fatal(err)
	}
	pipe := info.Sys().(*syscall.Stat_t).Ino
	p := &evidence.Pod{UID: uid1}
	self := kernfile.TaskStatus{Task: evidence.Task{PID: os.Getpid(), TID: os.Getpid(), Owner: ownerShim}}
	tasks := []kernfile.TaskStatus{{Task: evidence.Task{PID: own, TID: own}}}
	newHost(t).Round().readShimChildren(t.Context(), r, p, tasks, []kernfile.TaskStatus{self}, []uint64{pipe})
	got := make(map[int]bool)
	for _, c := range p.ShimChildren {
		if got[c.PID] = c.Output; c.Probe == nil || c.PPID != os.Getpid() {
			t.Errorf("child %+v", c.Task)
		}
	}
	if output, ok := got[prints]; !ok || !output {
		t.Errorf("the one that prints: %v, %v", ok, output)
	}
	if output, ok := got[silent]; !ok || output {
		t.Errorf("the one that prints nothing: %v, %v", ok, output)
	}
	if _, ok := got[own]; ok {
		t.Error("a task of the pod is among them")
	}
}

// A container's root file system is told by its ID, and what is mounted inside goes with it.
func TestReadRootfs(t *testing.T) {
	const dir = "/run/containerd/io.containerd.runtime.v2.task/k8s.io/"
	host := &mount.Table{Lines: []mount.Line{
		{ID: 1, Point: "/"}, {ID: 2, Point: dir + "c1/rootfs", Type: "overlay"}, {ID: 3, Point: dir + "c1/rootfs/data"},
		{ID: 4, Point: dir + "c11/rootfs"}, {ID: 5, Point: dir + "c2/rootfs"}, {ID: 6, Point: dir + "s1/rootfs"}, {ID: 7, Point: "/x/c1/rootfs"},
	}}
	p := &evidence.Pod{Containers: []evidence.Container{
		{Kind: evidence.App, ID: "c1", State: evidence.StateUnknown}, {Kind: evidence.App, ID: "c2", State: evidence.StateExited},
		{Kind: evidence.Sandbox, ID: "s1", State: evidence.StateRunning}, {Kind: evidence.App, State: evidence.StateRunning},
	}}
	read := func() (ids []int) {
		for _, m := range newHost(t).Round().readRootfs(p, host) {
			ids = append(ids, m.ID)
		}
		return ids
	}
	if ids := read(); !slices.Equal(ids, []int{2, 3}) || p.Containers[0].Rootfs == nil || p.Containers[0].Rootfs.ID != 2 || p.Containers[1].Rootfs != nil {
		t.Errorf("mounts %d of %+v", ids, p.Containers)
	}
	p.Containers[2].Task.Drained = true // the sandbox has ended, too
	if ids := read(); !slices.Equal(ids, []int{2, 3, 6}) || p.Containers[2].Rootfs == nil || p.Containers[2].Rootfs.ID != 6 {
		t.Errorf("mounts %d of %+v", ids, p.Containers)
	}
}

// Who uses a mount is told beside those who use another one of the pod's.
func TestHoldersAreAdded(t *testing.T) {
	requireRoot(t)
	files, err := kernfile.Open("/proc")
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	r := newHost(t).Round()
	host, err := r.mounts.Host()
	if err != nil {
		t.Fatal(err)
	}
	p := &evidence.Pod{UID: uid1, Holders: []evidence.Holder{{MountID: 7, Via: "an open file"}}}
	r.addHolders(t.Context(), files, p, []evidence.Mount{{ID: -1}}, host, "a test")
	if len(p.Holders) != 1 || p.Holders[0].MountID != 7 {
		t.Errorf("%+v", p.Holders)
	}
}

// The image volumes of a pod are told by the ID of its sandbox, once that has ended.
func TestImageMounts(t *testing.T) {
	const dir = "/run/containerd/io.containerd.grpc.v1.cri/image-volumes/"
	host := &mount.Table{Lines: []mount.Line{
		{ID: 1, Point: "/"}, {ID: 2, Point: dir + "s1/abc", Type: "overlay"}, {ID: 3, Point: dir + "s1/abc/data"},
		{ID: 4, Point: dir + "s11/abc"}, {ID: 5, Point: dir + "s2/abc"}, {ID: 6, Point: dir + "s1"},
	}}
	p := &evidence.Pod{Containers: []evidence.Container{
		{Kind: evidence.App, ID: "s2", State: evidence.StateExited}, {Kind: evidence.Sandbox, State: evidence.StateExited},
		{Kind: evidence.Sandbox, ID: "s1", State: evidence.StateRunning},
	}}
	r := newHost(t).Round()
	if got := r.imageMounts(p, host); got != nil {
		t.Errorf("of a sandbox that runs: %+v", got)
	}
	p.Containers[2].State = evidence.StateExited
	var ids []int
	for _, m := range r.imageMounts(p, host) {
		ids = append(ids, m.ID)
		if m.HostPoint != m.Point {
			t.Errorf("it is mounted at %q", m.HostPoint)
		}
	}
	if !slices.Equal(ids, []int{2, 3}) {
		t.Errorf("mounts %d", ids)
	}
}

// Who holds the output of containers open is looked for once in a round, however many pods
// ask, and each one that is found is asked anew for each pod.
func TestOutputHoldersAreLookedForOnce(t *testing.T) {
	const pods, others = 110, 20 // a holder for each pod, and processes with pipes of their own
	root := t.TempDir()
	files := make(map[string]string)
	dir := func(pid int) string { return fmt.Sprintf("%s/%d/task/%d/fd", root, pid, pid) }
	pipe := func(pid int) uint64 { return uint64(100_000 + pid) }
	for i := range pods + others {
		pid := 1000 + i
		files[fmt.Sprintf("%d/status", pid)] = fmt.Sprintf("Name:\tx\nState:\tS "+
			"(sleeping)\nTgid:\t%d\nPid:\t%d\nPPid:\t1\nNSpid:\t%d\nThreads:\t1\nVmSize:\t1 kB\n", pid, pid, pid)
		files[fmt.Sprintf("%d/cgroup", pid)] = "0::/system.slice\n"
		files[fmt.Sprintf("%d/task/%d/fdinfo/1", pid, pid)] = fmt.Sprintf("pos:\t0\nflags:\t01\nmnt_id:\t14\nino:\t%d\n", pipe(pid))
	}
	kerneltest.Tree(t, root, files)
	var watched []string
	for i := range pods + others {
		pid := 1000 + i
		if err := os.Mkdir(dir(pid), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(fmt.Sprintf("pipe:[%d]", pipe(pid)), dir(pid)+"/1"); err != nil {
			t.Fatal(err)
		}
		watched = append(watched, dir(pid), fmt.Sprintf("%s/%d/status", root, pid))
	}
	h := newHost(t)
	h.Proc = root
	r, err := kernfile.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	find := func(round *Round, pid int) int {
		t.Helper()
		got, err := round.readOutputHolders(t.Context(), r, &evidence.Pod{UID: uid1}, []uint64{pipe(pid), 1})
		switch {
		case err != nil:
			t.Error(err)
		case len(got) == 1:
			return got[0].PID
		case len(got) > 1:
			t.Errorf("pipe of %d: %+v", pid, got)
		}
		return 0
	}
	o := watchOpens(t, watched...)
	round := h.Round()
	for i := range pods {
		if got := find(round, 1000+i); got != 1000+i {
			t.Errorf("the holder is %d, want %d", got, 1000+i)
		}
	}
	counts := o.counts(t)
	for i := range pods + others {
		pid, want := 1000+i, 1
		if i < pods {
			want = 2
		}
		if fds, status := counts[dir(pid)], counts[fmt.Sprintf("%s/%d/status", root, pid)]; fds != want || status != want {
			t.Errorf("process %d: its files were listed %d times, and its status read %d times, want %d", pid, fds, status, want)
		}
	}
	// One that has closed the pipe meanwhile holds nothing.
	if err := errors.Join(os.Remove(dir(1000)+"/1"), os.Symlink("/dev/null", dir(1000)+"/1")); err != nil {
		t.Fatal(err)
	}
	if got := find(round, 1000); got != 0 {
		t.Errorf("%d has closed the pipe", got)
	}
	// Pipes for which there is no room are asked for.
	full := h.Round()
	full.indexed = maxIndexed
	if got := find(full, 1001); got != 1001 {
		t.Errorf("without room the holder is %d", got)
	}
}
