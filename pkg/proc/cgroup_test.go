package proc

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

const (
	uid1 = "0b4ddc3e-1111-4222-8333-444455556666"
	id1  = "c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1"
)

func TestFindPod(t *testing.T) {
	under := strings.ReplaceAll(uid1, "-", "_")
	for _, tt := range []struct {
		name, pod, leaf string
		container       string
	}{
		{"cgroupfs, guaranteed", "kubepods/pod" + uid1, id1, id1},
		{"cgroupfs, burstable", "kubepods/burstable/pod" + uid1, id1, id1},
		{"systemd, guaranteed", "kubepods.slice/kubepods-pod" + under + ".slice", "cri-containerd-" + id1 + ".scope", id1},
		{"systemd, besteffort", "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" + under + ".slice", "crio-" + id1 + ".scope", id1},
		{"systemd, docker", "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + under + ".slice", "docker-" + id1 + ".scope", id1},
		{"kind, systemd", "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-pod" + under + ".slice", "cri-containerd-" + id1 + ".scope", id1},
		{"kind, cgroupfs", "docker/" + id1 + "/kubelet/kubepods/besteffort/pod" + uid1, id1, id1},
		{"cgroup root", "a/b/kubepods/besteffort/pod" + uid1, id1, id1},
		{"drivers differ", "system.slice/containerd.service/kubepods-burstable-pod" + under + ".slice:cri-containerd:" + id1, "", id1},
		{"monitor of CRI-O", "kubepods.slice/kubepods-pod" + under + ".slice", "crio-conmon-" + id1 + ".scope", ""},
	} {
		for _, version := range []int{1, 2} {
			t.Run(fmt.Sprintf("%s, v%d", tt.name, version), func(t *testing.T) {
				root := t.TempDir()
				base, file := root, "cgroup.threads"
				write := func(name, text string) {
					t.Helper()
					if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
						t.Fatal(err)
					}
					if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				if version == 1 {
					base, file = filepath.Join(root, "pids"), "tasks"
					write(filepath.Join(base, "tasks"), "")
				} else {
					write(filepath.Join(root, "cgroup.controllers"), "pids")
				}
				for i := range 20 {
					write(filepath.Join(base, "system.slice", fmt.Sprintf("s%d.service", i), file), "")
					write(filepath.Join(base, "kubepods", "burstable", fmt.Sprintf("pod0b4ddc3e-1111-4222-8333-4444555566%02d", i), id1, file), "7\n")
				}
				dir := filepath.Join(base, tt.pod)
				leaf := filepath.Join(dir, tt.leaf)
				write(filepath.Join(dir, file), "")
				write(filepath.Join(leaf, file), "11\n12\n0\n")
				write(filepath.Join(leaf, "init.scope", file), "13\n")
				write(filepath.Join(leaf, "pids.current"), "5\n")
				write(filepath.Join(leaf, "cgroup.events"), "populated 1\nfrozen 1\n")
				write(filepath.Join(root, "freezer", tt.pod, tt.leaf, "freezer.state"), "FREEZING\n")

				h := &Host{Cgroup: root}
				now := time.Now()
				for range 2 { // the second time from memory
					groups, err := h.readPodGroups(uid1, now)
					if err != nil {
						t.Fatal(err)
					}
					var all []evidence.Cgroup
					hidden := 0
					for _, g := range groups {
						all = append(all, g.Cgroup)
						hidden += g.hidden
					}
					path := "/" + filepath.Join(tt.pod, tt.leaf)
					pids := int64(5)
					want := []evidence.Cgroup{
						{Path: path, Version: version, Container: tt.container, Threads: 2, Populated: true, PIDs: pids, Frozen: true},
						{Path: path + "/init.scope", Version: version, Container: tt.container, Threads: 1, Populated: true, PIDs: -1, Frozen: true},
					}
					if tt.leaf != "" {
						want = append([]evidence.Cgroup{{Path: "/" + tt.pod, Version: version, Populated: true, PIDs: -1}}, want...)
					}
					if d := cmp.Diff(want, all); d != "" {
						t.Error(d)
					}
					if hidden != 1 {
						t.Errorf("%d hidden", hidden)
					}
				}
				if groups, err := h.readPodGroups("0b4ddc3e-9999-4222-8333-444455556666", now); err != nil || groups != nil {
					t.Errorf("another pod has groups: %v, %v", groups, err)
				}
				uid, container := podOfPath("/" + filepath.Join(tt.pod, tt.leaf, "init.scope"))
				if uid != uid1 || container != tt.container {
					t.Errorf("path is of %q, %q", uid, container)
				}

				// The agent has no hostPID: there is a task without a number.
				p := &evidence.Pod{Time: now, RuntimeUID: uid1}
				(&Host{Proc: "/proc", Cgroup: root}).ReadPod(context.Background(), p)
				if !strings.Contains(p.Missing[evidence.Processes], "hostPID") {
					t.Errorf("missing %v", p.Missing)
				}
			})
		}
	}
}

func TestParseCgroup(t *testing.T) {
	for text, want := range map[string]string{
		"9:name=systemd:/s\n8:pids:/p\n4:memory:/m\n0::/\n": "/p",
		"9:name=systemd:/s\n8:pids:/\n4:memory:/m\n":        "/s",
		"5:cpu,cpuacct:/c\n":                                "/c",
		"0::/kubepods/pod1/x (deleted)\n":                   "/kubepods/pod1/x",
		"0::/../a:b\n":                                      "/../a:b",
		"2:pids:/\n0::/\n":                                  "/",
		"":                                                  "",
	} {
		if got := parseCgroup([]byte(text)); got != want {
			t.Errorf("%q: %q", text, got)
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

func TestSuspects(t *testing.T) {
	var tasks []status
	for i := range 300 {
		tasks = append(tasks, status{hasMemory: true, Task: evidence.Task{PID: 100, TID: 100 + i, Threads: 300, State: "D", Container: "a", NSpid: []int{100 + i, 1 + i}}})
	}
	tasks = append(tasks,
		status{Task: evidence.Task{PID: 900, TID: 900, State: "S", Container: "b"}},                  // exiting
		status{hasMemory: true, Task: evidence.Task{PID: 901, TID: 901, State: "S", Container: "b"}}, // healthy
		status{Task: evidence.Task{PID: 902, TID: 902, State: "Z", Threads: 1, Container: "b"}},
		status{hasMemory: true, Task: evidence.Task{PID: 903, TID: 903, State: "R", Container: "c"}},
	)
	chosen, left := suspects(&evidence.Pod{}, tasks)
	if len(chosen) != maxSuspects || left != 301-maxSuspects {
		t.Errorf("%d chosen, %d left", len(chosen), left)
	}
	if chosen[0].TID != 100 || chosen[1].TID != 900 {
		t.Errorf("the first are %d and %d", chosen[0].TID, chosen[1].TID)
	}
	for _, s := range chosen {
		if s.TID > 900 {
			t.Errorf("task %d is a suspect", s.TID)
		}
	}
	// Threads of an init without a handler may be in sigwait.
	tasks = []status{
		{hasMemory: true, Task: evidence.Task{PID: 5, TID: 5, Threads: 3, State: "S", NSpid: []int{5, 1}}},
		{hasMemory: true, Task: evidence.Task{PID: 5, TID: 6, Threads: 3, State: "S", NSpid: []int{6, 2}}},
	}
	if chosen, _ := suspects(&evidence.Pod{}, tasks); len(chosen) != 2 {
		t.Errorf("%d chosen of an init with a thread", len(chosen))
	}
	tasks[0].Caught = 1 << (evidence.SIGTERM - 1)
	if chosen, _ := suspects(&evidence.Pod{}, tasks); len(chosen) != 1 {
		t.Errorf("%d chosen of an init with a handler", len(chosen))
	}
}

// A shell waits for its child: that is probed too, and its children, but of
// hundreds only a few, and they take nobody else's place.
func TestSuspectsChildren(t *testing.T) {
	process := func(pid, ppid int, container string) status {
		return status{hasMemory: true, Task: evidence.Task{PID: pid, TID: pid, PPID: ppid, Threads: 1, State: "S", Container: container, NSpid: []int{pid}}}
	}
	// PIDs are shared: only the shim knows which processes are first.
	p := &evidence.Pod{Containers: []evidence.Container{{ID: "a", Task: evidence.ShimTask{PID: 10}}, {ID: "b", Task: evidence.ShimTask{PID: 20}}}}
	dead := process(13, 10, "a")
	dead.State, dead.hasMemory = "Z", false
	thread := process(12, 10, "a")
	thread.TID = 14
	tasks := []status{
		process(10, 1, "a"), process(11, 10, "a"), process(12, 10, "a"), dead, thread,
		process(15, 11, "a"), process(16, 15, "a"), process(17, 1, "a"),
		process(20, 1, "b"),
	}
	for i := range 40 {
		tasks = append(tasks, process(100+i, 20, "b"))
	}
	chosen, left := suspects(p, tasks)
	var got []int
	for _, s := range chosen {
		got = append(got, s.TID)
	}
	slices.Sort(got)
	want := []int{10, 11, 12, 15, 20}
	for i := range maxChildren {
		want = append(want, 100+i)
	}
	if d := cmp.Diff(want, got); d != "" || left != 0 {
		t.Errorf("%d left, %s", left, d)
	}
	// A blocked process of the same container comes before them.
	blocked := process(99, 1, "b")
	blocked.State = "D"
	chosen, _ = suspects(p, append(tasks, blocked))
	rest := slices.DeleteFunc(chosen, func(s *status) bool { return s.Container != "b" })
	if rest[0].TID != 20 || rest[1].TID != 99 {
		t.Errorf("the first are %d and %d", rest[0].TID, rest[1].TID)
	}
}
