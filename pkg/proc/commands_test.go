package proc

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kerneltest"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kernfile"
)

// Of the children of a shim only those are its commands that are in its process group and have
// the arguments of a runtime, or what such a one has left behind.
func TestReadCommands(t *testing.T) {
	requireRoot(t)
	id := strings.Repeat("0f", 32)
	v := start(t, 0, "shim-commands", t.TempDir(), id, "-id", id)
	files, err := kernfile.Open("/proc")
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	children := childrenOf(files, v.pid())
	t.Cleanup(func() {
		for _, pid := range children {
			_ = syscall.Kill(-pid, syscall.SIGKILL)
		}
		_ = syscall.Kill(-v.pid(), syscall.SIGKILL)
	})
	command, left := v.number(t, "command"), v.number(t, "left")
	h := newHost(t)
	read := func(edit func(*evidence.Pod)) *evidence.Pod {
		p := &evidence.Pod{
			Time: time.Now(), RuntimeUID: "00000000-0000-4000-8000-000000000000",
			Containers: []evidence.Container{{Kind: evidence.Sandbox, ID: id, Runtime: runcV2}},
		}
		edit(p)
		h.Round().ReadPod(t.Context(), p)
		return p
	}
	var p *evidence.Pod
	kerneltest.Eventually(t, "a command with its child", func() bool {
		p = read(func(*evidence.Pod) {})
		lastLeft(p)
		return len(p.RuntimeCommands) == 2 && len(p.RuntimeCommands[0].Tasks) == 2 && p.RuntimeCommands[0].Tasks[1].Comm == "sleep"
	})
	if why := p.Missing[evidence.RuntimeCommands]; why != "" {
		t.Error(why)
	}
	first, second := p.RuntimeCommands[0], p.RuntimeCommands[1]
	if first.Runtime != "runc" || first.Command != "kill" || first.Container != id || first.Left || first.Tasks[0].PID != command ||
		first.Tasks[1].PPID != command || first.Tasks[1].Comm != "sleep" || first.Tasks[0].Probe.Started.IsZero() {
		t.Errorf("command %+v", first)
	}
	if !second.Left || second.Command != "" || second.Tasks[0].PID != left || second.Tasks[0].PPID != v.pid() {
		t.Errorf("left behind %+v", second)
	}
	later := read(func(*evidence.Pod) {})
	lastLeft(later)
	p.Since(nil)
	later.Since(p)
	if later.RuntimeCommands[0].Since != p.RuntimeCommands[0].Since || later.RuntimeCommands[0].Since.IsZero() {
		t.Errorf("since %s, and %s", p.RuntimeCommands[0].Since, later.RuntimeCommands[0].Since)
	}
	if p := read(func(p *evidence.Pod) {
		p.Deadline, p.Containers[0].Task.UnansweredSince = p.Time.Add(time.Minute), p.Time
	}); len(p.RuntimeCommands) != 2 {
		t.Errorf("inside the grace period, of a shim that does not answer: %+v, %s", p.RuntimeCommands, p.Missing[evidence.RuntimeCommands])
	}
	for name, edit := range map[string]func(*evidence.Pod){
		"inside the grace period":  func(p *evidence.Pod) { p.Deadline = p.Time.Add(time.Minute) },
		"of another runtime":       func(p *evidence.Pod) { p.Containers[0].Runtime = "io.containerd.kata.v2" },
		"the runtime is not known": func(p *evidence.Pod) { p.Containers[0].Runtime = "" },
	} {
		if p := read(edit); p.RuntimeCommands != nil || p.Missing[evidence.RuntimeCommands] != "" {
			t.Errorf("%s: %+v, %s", name, p.RuntimeCommands, p.Missing[evidence.RuntimeCommands])
		}
	}
	if p := read(func(p *evidence.Pod) {
		p.Containers[0].Runtime, p.Containers[0].Task.UnansweredSince = "", p.Time
	}); p.RuntimeCommands != nil || p.Missing[evidence.RuntimeCommands] == "" {
		t.Errorf("of a shim that does not answer, and the runtime is not known: %+v", p.RuntimeCommands)
	}
}

// A shim of which the arguments cannot be read, or are another one's, has no command at work if it has no child.
func TestReadCommandsOfUnknownShim(t *testing.T) {
	requireRoot(t)
	files, err := kernfile.Open("/proc")
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	lone := exec.Command("sleep", "1000")
	if err := lone.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = lone.Process.Kill()
		_ = lone.Wait()
	})
	for pid, want := range map[int]bool{lone.Process.Pid: true, os.Getpid(): false} {
		shim, err := files.TaskStatus(pid)
		if err != nil {
			t.Fatal(err)
		}
		shim.Owner = ownerShim
		p := &evidence.Pod{
			Time: time.Now(), RuntimeUID: "00000000-0000-4000-8000-000000000000",
			Containers: []evidence.Container{{Kind: evidence.Sandbox, ID: strings.Repeat("0f", 32), Runtime: runcV2,
				Task: evidence.ShimTask{UnansweredSince: time.Now()}}},
		}
		r := newHost(t).Round()
		_, err = r.readCommands(t.Context(), files, p, nil, []kernfile.TaskStatus{shim}, &tables{Round: r})
		if known := err == nil; known != want {
			t.Errorf("process %d as the shim: %v, known %v, want %v", pid, err, known, want)
		}
	}
}

// The children of a shim are counted, and what is beyond the bound is not known.
func TestReadCommandsBound(t *testing.T) {
	requireRoot(t)
	id := strings.Repeat("0f", 32)
	v := start(t, 0, "shim-children", "-id", id)
	p := &evidence.Pod{
		Time: time.Now(), RuntimeUID: "00000000-0000-4000-8000-000000000000",
		Containers: []evidence.Container{{Kind: evidence.Sandbox, ID: id, Runtime: runcV2}},
	}
	newHost(t).Round().ReadPod(t.Context(), p)
	if len(p.RuntimeCommands) > maxCommands || !strings.Contains(p.Missing[evidence.RuntimeCommands], "children") {
		t.Errorf("%d commands of shim %d; %v", len(p.RuntimeCommands), v.pid(), p.Missing)
	}
}

// lastLeft puts what has been left behind last.
func lastLeft(p *evidence.Pod) {
	slices.SortFunc(p.RuntimeCommands, func(a, b evidence.RuntimeCommand) int { return len(b.Command) - len(a.Command) })
}
