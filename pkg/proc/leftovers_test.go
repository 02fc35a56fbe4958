package proc

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kernfile"
)

// A program is the shim: it reads what a container has printed. Of the others one
// is left that can still print.
func TestReadLeftovers(t *testing.T) {
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
	sleep := func(prepare func(*exec.Cmd)) *exec.Cmd {
		c := exec.Command("sleep", "600")
		prepare(c)
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = c.Process.Kill(), c.Wait() })
		return c
	}
	left := sleep(func(c *exec.Cmd) { c.Stderr = write })
	sleep(func(c *exec.Cmd) { c.Stdin = read }) // reads, and holds up nobody
	reader := sleep(func(c *exec.Cmd) { c.Stdin = read }).Process.Pid
	sleep(func(*exec.Cmd) {})
	write.Close()

	const id = "c1"
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	pod := func(edit func(*evidence.Pod)) *evidence.Pod {
		p := &evidence.Pod{Time: time.Now(), UID: uid1, HostPID: true, Containers: []evidence.Container{
			{Kind: evidence.App, ID: id, State: evidence.StateRunning, Task: evidence.ShimTask{Status: "stopped", PID: dead.Process.Pid}},
		}}
		edit(p)
		return p
	}
	shim := []kernfile.TaskStatus{{Task: evidence.Task{PID: reader, TID: reader, Owner: ownerShim}}}
	h := newHost(t)
	find := func(p *evidence.Pod, tasks, parents []kernfile.TaskStatus) []int {
		t.Helper()
		out, err := h.Round().readLeftovers(t.Context(), r, p, tasks, parents)
		if err != nil && !errors.Is(err, errDenied) { // of processes with more capabilities than here
			t.Error(err)
		}
		var pids []int
		for _, s := range out {
			pids = append(pids, s.PID)
			if s.Cgroup == "" || s.Comm != "sleep" || s.Probe == nil || s.Probe.Start == 0 {
				t.Errorf("leftover %+v", s.Task)
			}
		}
		return pids
	}
	if got := find(pod(func(*evidence.Pod) {}), nil, shim); !slices.Equal(got, []int{left.Process.Pid}) {
		t.Errorf("found %d, not %d", got, left.Process.Pid)
	}
	if got := find(pod(func(p *evidence.Pod) { p.HostPID, p.ShareProcessNamespace = false, true }), nil, shim); len(got) != 1 {
		t.Errorf("of a pod that shares its PIDs: %d", got)
	}
	inside := []kernfile.TaskStatus{{Task: evidence.Task{PID: 1 << 22, TID: 1 << 22, Container: id}}}
	for name, got := range map[string][]int{
		"PIDs of its own":                  find(pod(func(p *evidence.Pod) { p.HostPID = false }), nil, shim),
		"a process of the container lives": find(pod(func(*evidence.Pod) {}), inside, shim),
		"the first process lives":          find(pod(func(p *evidence.Pod) { p.Containers[0].Task.PID = 1 << 22; p.Containers[0].ID = "c2" }), inside, shim),
		"containerd says that it is over":  find(pod(func(p *evidence.Pod) { p.Containers[0].State = evidence.StateExited }), nil, shim),
		"the shim knows no process":        find(pod(func(p *evidence.Pod) { p.Containers[0].Task.PID = 0 }), nil, shim),
		"it is the sandbox":                find(pod(func(p *evidence.Pod) { p.Containers[0].Kind = evidence.Sandbox }), nil, shim),
		"no shim":                          find(pod(func(*evidence.Pod) {}), nil, nil),
		"another process is the shim": find(pod(func(*evidence.Pod) {}), nil,
			[]kernfile.TaskStatus{{Task: evidence.Task{PID: dead.Process.Pid, Owner: ownerShim}}}),
		"it is a task of the pod": find(pod(func(*evidence.Pod) {}), []kernfile.TaskStatus{{Task: evidence.Task{PID: left.Process.Pid,
			TID: left.Process.Pid}}}, shim),
	} {
		if got != nil {
			t.Errorf("%s: %d", name, got)
		}
	}
	if err := left.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = left.Wait()
	if got := find(pod(func(*evidence.Pod) {}), nil, shim); got != nil {
		t.Errorf("after its end: %d", got)
	}
}

// A program is the shim: it has the output of one of two containers that have ended open.
func TestReadDrained(t *testing.T) {
	requireRoot(t)
	output, err := os.Create(filepath.Join(t.TempDir(), "c1-stderr"))
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command("sleep", "600")
	c.Stderr = output
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	output.Close()
	t.Cleanup(func() { _, _ = c.Process.Kill(), c.Wait() })
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	task := evidence.ShimTask{Status: "stopped", PID: dead.Process.Pid}
	p := &evidence.Pod{Containers: []evidence.Container{
		{Kind: evidence.App, ID: "c1", State: evidence.StateRunning, Task: task},
		{Kind: evidence.App, ID: "c2", State: evidence.StateRunning, Task: task},
		{Kind: evidence.App, ID: "c3", State: evidence.StateRunning, Task: task},
	}}
	lives := []kernfile.TaskStatus{{Task: evidence.Task{PID: 1 << 22, TID: 1 << 22, Container: "c3"}}}
	shim := []kernfile.TaskStatus{stateOf(t, c.Process.Pid)}
	shim[0].Owner = ownerShim
	r := newHost(t).Round()
	if _, err := r.readDrained(t.Context(), p, lives, shim, &tables{Round: r}); err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{false, true, false} {
		if c := p.Containers[i]; c.Task.Drained != want {
			t.Errorf("%s: drained %v, want %v", c.ID, c.Task.Drained, want)
		}
	}
	if shim[0].Probe == nil || shim[0].Probe.Start == 0 {
		t.Errorf("the shim was not probed: %+v", shim[0].Task)
	}
	p.Containers[1].Task.Drained = false
	other := kernfile.TaskStatus{Task: evidence.Task{PID: 1, TID: 1, Owner: ownerShim}}
	if _, err := r.readDrained(t.Context(), p, nil, append(shim, other), &tables{Round: r}); err != nil || p.Containers[1].Task.Drained {
		t.Errorf("of two shims: %v, %v", p.Containers[1].Task.Drained, err)
	}
	gone := []kernfile.TaskStatus{{Task: evidence.Task{PID: dead.Process.Pid, TID: dead.Process.Pid, Owner: ownerShim}}}
	if _, err := r.readDrained(t.Context(), p, nil, gone, &tables{Round: r}); err != nil || p.Containers[1].Task.Drained {
		t.Errorf("of a shim that is gone: %v, %v", p.Containers[1].Task.Drained, err)
	}
}
