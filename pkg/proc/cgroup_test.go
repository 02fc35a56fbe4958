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
				(&Host{Proc: "/proc", Cgroup: root}).Round().ReadPod(context.Background(), p)
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
	// Behind a leader that is a zombie, a thread may be inside exit.
	tasks[0].State = evidence.Zombie
	if chosen, _ := suspects(&evidence.Pod{}, tasks); len(chosen) != 2 {
		t.Errorf("%d chosen of a zombie with a thread", len(chosen))
	}
}

// Of several FUSE connections with requests waiting, a task waits for one that
// is mounted where it is.
func TestOnlyWaitingFUSE(t *testing.T) {
	dir := t.TempDir()
	for minor, waiting := range map[string]string{"41": "1\n", "42": "3\n", "43": "0\n"} {
		if err := os.MkdirAll(filepath.Join(dir, minor), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, minor, "waiting"), []byte(waiting), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h := &Host{FUSE: dir}
	table := func(devices ...string) *mountTable {
		out := new(mountTable)
		for _, d := range devices {
			out.lines = append(out.lines, mountLine{device: d, fstype: "fuse.x", point: "/" + d})
		}
		return out
	}
	saw := &seen{Wchan: "request_wait_answer"}
	for _, tt := range []struct {
		name      string
		own, host *mountTable
		want      string
	}{
		{"one of them is mounted here", table("0:42", "0:43"), table("0:41", "0:42", "0:43"), "0:42"},
		{"one of them is mounted here, twice", table("0:42", "0:42"), nil, "0:42"},
		{"both are mounted here", table("0:41", "0:42"), nil, ""},
		{"none is mounted here", table("0:43"), table("0:41"), ""},
		{"the task has no mounts any more, both are on the node", table(), table("0:41", "0:42"), ""},
	} {
		got := ""
		if m := h.onlyWaitingFUSE(tt.own, tt.host, saw); m != nil {
			got = m.device
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	if m := h.onlyWaitingFUSE(table("0:42"), nil, &seen{Wchan: "do_wait"}); m != nil {
		t.Errorf("a task that does not wait for FUSE waits for %s", m.device)
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

// write makes files of a tree of control groups.
func write(t *testing.T, root string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

const (
	pod1  = "kubepods.slice/kubepods-pod0b4ddc3e_1111_4222_8333_444455556666.slice"
	leaf1 = pod1 + "/cri-containerd-" + id1 + ".scope"
)

func TestReadLimits(t *testing.T) {
	none := map[string]string{"memory.current": "4096\n", "memory.high": "max\n", "memory.max": "max\n", "memory.events": "low 0\nhigh 0\nmax 0\noom 0\n",
		"cpu.stat": "usage_usec 7\nuser_usec 3\n"} // without a cpu controller
	limited := map[string]string{"memory.current": "104857600\n", "memory.high": "104857600\n", "memory.max": "209715200\n", "memory.events": "low 0\nhigh 31\nmax 2\noom 0\n",
		"memory.pressure": "some avg10=90.10 avg60=1.00 avg300=0.00 total=9\nfull avg10=72.95 avg60=1.00 avg300=0.00 total=8\n",
		"cpu.stat":        "usage_usec 123456\nuser_usec 3\nnr_periods 40\nnr_throttled 39\nthrottled_usec 5\n", "cpu.max": "5000 100000\n"}
	limited1 := map[string]string{
		"memory/%s/memory.usage_in_bytes": "104857600\n", "memory/%s/memory.limit_in_bytes": "209715200\n", "memory/%s/memory.failcnt": "2\n",
		"cpu,cpuacct/%s/cpu.stat": "nr_periods 40\nnr_throttled 39\nthrottled_time 5\n", "cpu,cpuacct/%s/cpu.cfs_quota_us": "5000\n", "cpu,cpuacct/%s/cpu.cfs_period_us": "100000\n",
		"cpu,cpuacct/%s/cpuacct.usage": "123456789\n",
	}
	none1 := map[string]string{
		"memory/%s/memory.usage_in_bytes": "4096\n", "memory/%s/memory.limit_in_bytes": "9223372036854771712\n", "memory/%s/memory.failcnt": "0\n",
		"cpu,cpuacct/%s/cpu.stat": "nr_periods 0\nnr_throttled 0\n", "cpu,cpuacct/%s/cpu.cfs_quota_us": "-1\n", "cpu,cpuacct/%s/cpu.cfs_period_us": "100000\n",
		"cpu,cpuacct/%s/cpuacct.usage": "7000\n",
	}
	at := func(dir string, files map[string]string) map[string]string {
		out := make(map[string]string)
		for name, text := range files {
			if strings.Contains(name, "%s") {
				out[fmt.Sprintf(name, dir)] = text
			} else {
				out[filepath.Join(dir, name)] = text
			}
		}
		return out
	}
	free := evidence.Cgroup{CPU: &evidence.CPU{UsedMicros: 7}, Memory: &evidence.Memory{Current: 4096}}
	full := evidence.Cgroup{
		CPU:    &evidence.CPU{UsedMicros: 123456, Periods: 40, Throttled: 39, Millis: 50},
		Memory: &evidence.Memory{Current: 104857600, High: 104857600, Max: 209715200, HighEvents: 31, MaxEvents: 2, StalledMicros: 8},
	}
	full1 := evidence.Cgroup{CPU: full.CPU, Memory: &evidence.Memory{Current: 104857600, Max: 209715200, MaxEvents: 2}}
	for _, tt := range []struct {
		name      string
		files     []map[string]string
		links     map[string]string
		pod, leaf evidence.Cgroup
		version   int
	}{
		{name: "v2", version: 2, files: []map[string]string{{"cgroup.controllers": "cpu memory pids\n"}, at(pod1, none), at(leaf1, limited), at(leaf1+"/init.scope", limited)}, pod: free, leaf: full},
		{name: "v2 without controllers", version: 2, files: []map[string]string{{"cgroup.controllers": "pids\n"}}},
		{name: "v2 not understood", version: 2, files: []map[string]string{{"cgroup.controllers": "cpu memory\n"},
			at(leaf1, map[string]string{"cpu.stat": "usage_usec 1\n", "cpu.max": "many\n", "memory.current": "x\n", "memory.high": "max\n", "memory.max": "max\n", "memory.events": "\n"})}},
		{name: "v1 with links", version: 1, files: []map[string]string{{"pids/tasks": "", "cpu,cpuacct/cgroup.procs": "", "memory/cgroup.procs": ""}, at(pod1, none1), at(leaf1, limited1)},
			links: map[string]string{"cpu": "cpu,cpuacct", "cpuacct": "cpu,cpuacct"}, pod: free, leaf: full1},
		{name: "v1 without links", version: 1, files: []map[string]string{{"pids/tasks": "", "cpu,cpuacct/cgroup.procs": "", "memory/cgroup.procs": ""}, at(pod1, none1), at(leaf1, limited1)}, pod: free, leaf: full1},
		{name: "v1 without controllers", version: 1, files: []map[string]string{{"pids/tasks": ""}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			base, file := "", "cgroup.threads"
			if tt.version == 1 {
				base, file = "pids/", "tasks"
			}
			write(t, root, map[string]string{base + pod1 + "/" + file: "", base + leaf1 + "/" + file: "", base + leaf1 + "/init.scope/" + file: ""})
			for _, files := range tt.files {
				write(t, root, files)
			}
			for name, target := range tt.links {
				if err := os.Symlink(target, filepath.Join(root, name)); err != nil {
					t.Fatal(err)
				}
			}
			groups, err := (&Host{Cgroup: root}).readPodGroups(uid1, time.Now())
			if err != nil || len(groups) != 3 {
				t.Fatalf("%d groups, %v", len(groups), err)
			}
			for i, want := range []evidence.Cgroup{tt.pod, tt.leaf, {}} { // of a nested group nothing is read
				got := evidence.Cgroup{CPU: groups[i].CPU, Memory: groups[i].Memory}
				if d := cmp.Diff(want, got); d != "" {
					t.Errorf("%s: %s", groups[i].Path, d)
				}
			}
		})
	}
}

func TestFrozenBy(t *testing.T) {
	for _, tt := range []struct {
		name          string
		files         map[string]string
		podBy, leafBy string
		podIs, leafIs bool
		v1            bool
	}{
		{name: "v2 pod", files: map[string]string{pod1 + "/cgroup.freeze": "1\n", pod1 + "/cgroup.events": "populated 1\nfrozen 1\n", leaf1 + "/cgroup.freeze": "0\n", leaf1 + "/cgroup.events": "populated 1\nfrozen 1\n"},
			podBy: "/" + pod1, leafBy: "/" + pod1, podIs: true, leafIs: true},
		{name: "v2 container", files: map[string]string{pod1 + "/cgroup.freeze": "0\n", leaf1 + "/cgroup.freeze": "1\n", leaf1 + "/cgroup.events": "populated 1\nfrozen 1\n"},
			leafBy: "/" + leaf1, leafIs: true},
		{name: "v2 all pods", files: map[string]string{"kubepods.slice/cgroup.freeze": "1\n", "kubepods.slice/cgroup.events": "frozen 1\n"},
			podBy: "/kubepods.slice", leafBy: "/kubepods.slice", podIs: true, leafIs: true},
		{name: "v2 both", files: map[string]string{"kubepods.slice/cgroup.freeze": "1\n", leaf1 + "/cgroup.freeze": "1\n", "kubepods.slice/cgroup.events": "frozen 1\n"},
			podBy: "/kubepods.slice", leafBy: "/" + leaf1, podIs: true, leafIs: true},
		// A task in state D keeps the group from being frozen.
		{name: "v2 not yet", files: map[string]string{leaf1 + "/cgroup.freeze": "1\n", leaf1 + "/cgroup.events": "populated 1\nfrozen 0\n"}, leafBy: "/" + leaf1},
		{name: "v1 pod", v1: true, files: map[string]string{"freezer/" + pod1 + "/freezer.state": "FROZEN\n", "freezer/" + pod1 + "/freezer.self_freezing": "1\n", "freezer/" + leaf1 + "/freezer.state": "FROZEN\n", "freezer/" + leaf1 + "/freezer.self_freezing": "0\n"},
			podBy: "/" + pod1, leafBy: "/" + pod1, podIs: true, leafIs: true},
		{name: "v1 container", v1: true, files: map[string]string{"freezer/" + leaf1 + "/freezer.state": "FREEZING\n", "freezer/" + leaf1 + "/freezer.self_freezing": "1\n"},
			leafBy: "/" + leaf1, leafIs: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			if !tt.v1 {
				write(t, root, map[string]string{"cgroup.controllers": "", pod1 + "/cgroup.threads": "", leaf1 + "/cgroup.threads": ""})
			} else {
				write(t, root, map[string]string{"pids/tasks": "", "pids/" + pod1 + "/tasks": "", "pids/" + leaf1 + "/tasks": ""})
			}
			write(t, root, tt.files)
			groups, err := (&Host{Cgroup: root}).readPodGroups(uid1, time.Now())
			if err != nil || len(groups) != 2 {
				t.Fatalf("%d groups, %v", len(groups), err)
			}
			pod, leaf := groups[0], groups[1]
			if pod.FrozenBy != tt.podBy || pod.Frozen != tt.podIs || leaf.FrozenBy != tt.leafBy || leaf.Frozen != tt.leafIs {
				t.Errorf("pod %v by %q, container %v by %q", pod.Frozen, pod.FrozenBy, leaf.Frozen, leaf.FrozenBy)
			}
		})
	}
}

func TestParseCPUMax(t *testing.T) {
	for text, want := range map[string]int64{"max 100000\n": 0, "50000 100000\n": 500, "250000 100000": 2500, "1 1000000\n": 1, "1000 0\n": 0} {
		if got, err := parseCPUMax([]byte(text)); err != nil || got != want {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
	for _, bad := range []string{"", "max", "x 100000", "1 x", "1 2 3"} {
		if _, err := parseCPUMax([]byte(bad)); err == nil {
			t.Errorf("%q is a cpu.max", bad)
		}
	}
}
