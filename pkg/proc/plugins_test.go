package proc

import (
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kerneltest"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kernfile"
)

// A shell that calls itself containerd runs plugins; one of them is of the pod's
// sandbox, and waits for a child.
func TestReadPlugins(t *testing.T) {
	requireRoot(t)
	r, err := kernfile.Open("/proc")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	const sandbox = "5a4db0"
	service := exec.Command("sh", "-c", `printf containerd >/proc/$$/comm
plugin() { env CNI_COMMAND=$1 CNI_CONTAINERID=$2 CNI_ARGS="IgnoreUnknown=1;K8S_POD_UID=$3" sh -c 'sleep 600; true' & }
plugin ADD `+sandbox+` another
plugin ADD second `+uid1+`
plugin DEL another `+uid1+`
plugin DEL `+sandbox+`
sleep 600 &
wait`)
	service.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := service.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = syscall.Kill(-service.Process.Pid, syscall.SIGKILL), service.Wait() })
	pod := func(edit func(*evidence.Pod)) *evidence.Pod {
		p := &evidence.Pod{Time: time.Now(), UID: uid1, Containers: []evidence.Container{
			{Kind: evidence.App, ID: "c1", State: evidence.StateExited}, {Kind: evidence.Sandbox, ID: sandbox, State: evidence.StateExited},
		}}
		edit(p)
		return p
	}
	h := newHost(t)
	both := func(p *evidence.Pod, tasks []kernfile.TaskStatus) (down, up []kernfile.TaskStatus) {
		t.Helper()
		down, up, err := h.Round().readPlugins(t.Context(), r, p, tasks)
		if err != nil {
			t.Error(err)
		}
		return down, up
	}
	find := func(p *evidence.Pod, tasks []kernfile.TaskStatus) []kernfile.TaskStatus {
		t.Helper()
		down, _ := both(p, tasks)
		return down
	}
	var found []kernfile.TaskStatus
	kerneltest.Eventually(t, "a plugin and its child", func() bool {
		found = find(pod(func(*evidence.Pod) {}), nil)
		return len(found) == 2 && found[1].Comm == "sleep" && found[1].State == evidence.Sleeping // and is in a system call
	})
	plugin, child := found[0], found[1]
	if plugin.PPID != service.Process.Pid || child.PPID != plugin.PID || plugin.Probe == nil || plugin.Probe.Started.IsZero() || child.Probe.Syscall == "" {
		t.Errorf("plugin %+v, child %+v", plugin.Task, child.Task)
	}
	lives := []kernfile.TaskStatus{{Task: evidence.Task{PID: 1 << 22, TID: 1 << 22, Container: "c1"}}}
	for name, got := range map[string][]kernfile.TaskStatus{
		"a process of the container lives": find(pod(func(*evidence.Pod) {}), lives),
		"inside the grace period":          find(pod(func(p *evidence.Pod) { p.Deadline = p.Time.Add(time.Minute) }), nil),
		"another sandbox":                  find(pod(func(p *evidence.Pod) { p.Containers[1].ID = "c0ffee" }), nil),
		"no sandbox":                       find(pod(func(p *evidence.Pod) { p.Containers = slices.Delete(p.Containers, 1, 2) }), nil),
	} {
		if got != nil {
			t.Errorf("%s: %+v", name, got)
		}
	}

	// The network of a second sandbox is set up when all of the first one has ended.
	up := func(edit func(*evidence.Pod), tasks []kernfile.TaskStatus) []kernfile.TaskStatus {
		t.Helper()
		_, up := both(pod(edit), tasks)
		return up
	}
	kerneltest.Eventually(t, "the plugin of the second sandbox and its child", func() bool {
		found = up(func(*evidence.Pod) {}, nil)
		return len(found) == 2 && found[1].Comm == "sleep"
	})
	if found[0].PID == plugin.PID || found[0].PPID != service.Process.Pid || found[1].PPID != found[0].PID || found[0].Probe == nil ||
		found[0].Probe.Started.IsZero() {
		t.Errorf("plugin %+v, child %+v", found[0].Task, found[1].Task)
	}
	if found := up(func(p *evidence.Pod) { p.Containers = nil }, nil); len(found) != 2 {
		t.Errorf("of the first sandbox: %+v", found)
	}
	if found := up(func(p *evidence.Pod) {
		p.Containers = append(p.Containers, evidence.Container{Kind: evidence.Sandbox, ID: "second", State: evidence.StateCreated})
	}, nil); len(found) != 2 {
		t.Errorf("of a sandbox of which containerd has a record before: %+v", found)
	}
	for name, got := range map[string][]kernfile.TaskStatus{
		"a process of the pod lives": up(func(*evidence.Pod) {}, lives),
		"inside the grace period":    up(func(p *evidence.Pod) { p.Deadline = p.Time.Add(time.Minute) }, nil),
		"a pod without a plugin":     up(func(p *evidence.Pod) { p.UID = "0ther" }, nil),
		"a sandbox runs":             up(func(p *evidence.Pod) { p.Containers[1].State = evidence.StateRunning }, nil),
		"a container is created":     up(func(p *evidence.Pod) { p.Containers[0].State = evidence.StateCreated }, nil),
		"all containers have ended":  up(func(p *evidence.Pod) { p.Phase = "Failed" }, nil),
		"containerd did not tell":    up(func(p *evidence.Pod) { p.Lack(evidence.Containers, "x") }, nil),
	} {
		if got != nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
