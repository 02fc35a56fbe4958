package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kerneltest"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kernfile"
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

				h := &Tree{Root: root}
				now := time.Now()
				for range 2 { // the second time from memory
					groups, err := h.Snapshot(func() time.Time { return now }).Pod(uid1, true)
					if err != nil {
						t.Fatal(err)
					}
					var all []evidence.Cgroup
					hidden := 0
					for _, g := range groups {
						all = append(all, g.Cgroup)
						hidden += g.Hidden
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
				if groups, err := h.Snapshot(func() time.Time { return now }).Pod("0b4ddc3e-9999-4222-8333-444455556666", true); err != nil || groups != nil {
					t.Errorf("another pod has groups: %v, %v", groups, err)
				}
				uid, container := PodOfPath("/" + filepath.Join(tt.pod, tt.leaf, "init.scope"))
				if uid != uid1 || container != tt.container {
					t.Errorf("path is of %q, %q", uid, container)
				}
			})
		}
	}
}

func TestParseCgroup(t *testing.T) {
	for text, want := range map[string]string{
		"9:name=systemd:/s\n8:pids:/p\n4:memory:/m\n0::/\n":                         "/p",
		"9:name=systemd:/s\n8:pids:/\n4:memory:/m\n":                                "/s",
		"5:cpu,cpuacct:/c\n":                                                        "/c",
		"3:pids:/kubepods/pod" + uid1 + "/x\n0::/system.slice/containerd.service\n": "/kubepods/pod" + uid1 + "/x",
		"0::/kubepods/pod1/x (deleted)\n":                                           "/kubepods/pod1/x",
		"0::/../a:b\n":                                                              "/../a:b",
		"2:pids:/\n0::/\n":                                                          "/",
		"":                                                                          "",
	} {
		if got := ParsePath([]byte(text)); got != want {
			t.Errorf("%q: %q", text, got)
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
	limited := map[string]string{"memory.current": "104857600\n", "memory.high": "104857600\n", "memory.max": "209715200\n",
		"memory.events":   "low 0\nhigh 31\nmax 2\noom 0\n",
		"memory.pressure": "some avg10=90.10 avg60=1.00 avg300=0.00 total=9\nfull avg10=72.95 avg60=1.00 avg300=0.00 total=8\n",
		"cpu.stat":        "usage_usec 123456\nuser_usec 3\nnr_periods 40\nnr_throttled 39\nthrottled_usec 5\n", "cpu.max": "5000 100000\n"}
	limited1 := map[string]string{
		"memory/%s/memory.usage_in_bytes": "104857600\n", "memory/%s/memory.limit_in_bytes": "209715200\n", "memory/%s/memory.failcnt": "2\n",
		"cpu,cpuacct/%s/cpu.stat": "nr_periods 40\nnr_throttled 39\nthrottled_time " +
			"5\n", "cpu,cpuacct/%s/cpu.cfs_quota_us": "5000\n", "cpu,cpuacct/%s/cpu.cfs_period_us": "100000\n",
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
		{name: "v2", version: 2, files: []map[string]string{{"cgroup.controllers": "cpu memory " +
			"pids\n"}, at(pod1, none), at(leaf1, limited), at(leaf1+"/init.scope", limited)}, pod: free, leaf: full},
		{name: "v2 without controllers", version: 2, files: []map[string]string{{"cgroup.controllers": "pids\n"}}},
		{name: "v2 not understood", version: 2, files: []map[string]string{{"cgroup.controllers": "cpu memory\n"},
			at(leaf1, map[string]string{"cpu.stat": "usage_usec 1\n", "cpu.max": "many\n", "memory.current": "x\n", "memory.high": "max\n",
				"memory.max": "max\n", "memory.events": "\n"})}},
		{name: "v1 with links", version: 1, files: []map[string]string{{"pids/tasks": "", "cpu,cpuacct/cgroup.procs": "",
			"memory/cgroup.procs": ""}, at(pod1, none1), at(leaf1, limited1)},
			links: map[string]string{"cpu": "cpu,cpuacct", "cpuacct": "cpu,cpuacct"}, pod: free, leaf: full1},
		{name: "v1 without links", version: 1, files: []map[string]string{{"pids/tasks": "", "cpu,cpuacct/cgroup.procs": "",
			"memory/cgroup.procs": ""}, at(pod1, none1), at(leaf1, limited1)}, pod: free, leaf: full1},
		{name: "v1 without controllers", version: 1, files: []map[string]string{{"pids/tasks": ""}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			base, file := "", "cgroup.threads"
			if tt.version == 1 {
				base, file = "pids/", "tasks"
			}
			kerneltest.Tree(t, root, map[string]string{base + pod1 + "/" + file: "", base + leaf1 + "/" + file: "", base + leaf1 + "/init.scope/" + file: ""})
			for _, files := range tt.files {
				kerneltest.Tree(t, root, files)
			}
			for name, target := range tt.links {
				if err := os.Symlink(target, filepath.Join(root, name)); err != nil {
					t.Fatal(err)
				}
			}
			groups, err := (&Tree{Root: root}).Snapshot(time.Now).Pod(uid1, true)
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
		{name: "v2 pod", files: map[string]string{pod1 + "/cgroup.freeze": "1\n", pod1 + "/cgroup.events": "populated 1\nfrozen " +
			"1\n", leaf1 + "/cgroup.freeze": "0\n", leaf1 + "/cgroup.events": "populated 1\nfrozen 1\n"},
			podBy: "/" + pod1, leafBy: "/" + pod1, podIs: true, leafIs: true},
		{name: "v2 container", files: map[string]string{pod1 + "/cgroup.freeze": "0\n", leaf1 + "/cgroup.freeze": "1\n",
			leaf1 + "/cgroup.events": "populated 1\nfrozen 1\n"},
			leafBy: "/" + leaf1, leafIs: true},
		{name: "v2 all pods", files: map[string]string{"kubepods.slice/cgroup.freeze": "1\n", "kubepods.slice/cgroup.events": "frozen 1\n"},
			podBy: "/kubepods.slice", leafBy: "/kubepods.slice", podIs: true, leafIs: true},
		{name: "v2 both", files: map[string]string{"kubepods.slice/cgroup.freeze": "1\n", leaf1 + "/cgroup.freeze": "1\n",
			"kubepods.slice/cgroup.events": "frozen 1\n"},
			podBy: "/kubepods.slice", leafBy: "/" + leaf1, podIs: true, leafIs: true},
		// A task in state D keeps the group from being frozen.
		{name: "v2 not yet", files: map[string]string{leaf1 + "/cgroup.freeze": "1\n", leaf1 + "/cgroup.events": "populated 1\nfrozen 0\n"}, leafBy: "/" + leaf1},
		{name: "v1 pod", v1: true, files: map[string]string{"freezer/" + pod1 + "/freezer.state": "FROZEN\n",
			"freezer/" + pod1 + "/freezer.self_freezing": "1\n", "freezer/" + leaf1 + "/freezer.state": "FROZEN\n",
			"freezer/" + leaf1 + "/freezer.self_freezing": "0\n"},
			podBy: "/" + pod1, leafBy: "/" + pod1, podIs: true, leafIs: true},
		{name: "v1 container", v1: true, files: map[string]string{"freezer/" + leaf1 + "/freezer.state": "FREEZING\n",
			"freezer/" + leaf1 + "/freezer.self_freezing": "1\n"},
			leafBy: "/" + leaf1, leafIs: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			if !tt.v1 {
				kerneltest.Tree(t, root, map[string]string{"cgroup.controllers": "", pod1 + "/cgroup.threads": "", leaf1 + "/cgroup.threads": ""})
			} else {
				kerneltest.Tree(t, root, map[string]string{"pids/tasks": "", "pids/" + pod1 + "/tasks": "", "pids/" + leaf1 + "/tasks": ""})
			}
			kerneltest.Tree(t, root, tt.files)
			groups, err := (&Tree{Root: root}).Snapshot(time.Now).Pod(uid1, true)
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

func FuzzCgroupFiles(f *testing.F) {
	kerneltest.Fuzz(f, []string{"0::/kubepods/pod1/x\n", "frozen 1\n", "12\n0\n", "50000 100000\n", "max 100000\n",
		"usage_usec 19\nnr_periods 3\nnr_throttled 2\n", "9223372036854771712\n", "max\n"}, func(b []byte) {
		PodOfPath(ParsePath(b))
		parseTasks(b)
		parseKeys(b)
		_, _ = parseNumber(b)
		_, _ = parseCPUMax(b)
		parseFreezerState(b)
	})
}

// Of a group of very many threads no more are told than are read of a pod.
func TestThreadsAreBounded(t *testing.T) {
	root := t.TempDir()
	var tids strings.Builder
	for i := range 100_000 {
		fmt.Fprintln(&tids, 1000+i)
	}
	kerneltest.Tree(t, root, map[string]string{
		"cgroup.controllers":                                  "pids",
		"kubepods/pod" + uid1 + "/cgroup.threads":             "",
		"kubepods/pod" + uid1 + "/" + id1 + "/cgroup.threads": tids.String(),
	})
	h := &Tree{Root: root}
	groups, err := h.Snapshot(time.Now).Pod(uid1, true)
	if !errors.Is(err, kernfile.ErrTooMany) || len(groups) != 2 {
		t.Fatalf("%d groups, %v", len(groups), err)
	}
	if g := groups[1]; len(g.TIDs) != maxTasks || g.Threads != 100_000 || !g.Populated {
		t.Errorf("%d threads of %d, populated %v", len(g.TIDs), g.Threads, g.Populated)
	}
}

// Leaders lists the processes of the containers, and not those of groups that a
// container has made.
func TestLeaders(t *testing.T) {
	for _, version := range []int{1, 2} {
		t.Run(fmt.Sprintf("v%d", version), func(t *testing.T) {
			root := t.TempDir()
			write := func(name, text string) {
				t.Helper()
				if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			base := root
			if version == 1 {
				base = filepath.Join(root, "pids")
				write(filepath.Join(base, "tasks"), "")
			} else {
				write(filepath.Join(root, "cgroup.controllers"), "pids")
			}
			pod := filepath.Join(base, "kubepods/burstable/pod"+uid1)
			write(filepath.Join(pod, "cgroup.procs"), "")
			write(filepath.Join(pod, id1, "cgroup.procs"), "7\n9\n")
			write(filepath.Join(pod, id1, "init.scope", "cgroup.procs"), "11\n")
			tree := &Tree{Root: root}
			got, err := tree.Leaders(uid1, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]Leaders{{Container: id1, PIDs: []int{7, 9}}}, got); diff != "" {
				t.Errorf("leaders differ (-want +got):\n%s", diff)
			}
			if got, err := tree.Leaders(strings.ReplaceAll(uid1, "0b4", "0b5"), time.Now()); err != nil || got != nil {
				t.Errorf("of a pod without groups: %v, %v", got, err)
			}

			// What is remembered of a pod hides no container, and not that it has moved or gone.
			write(filepath.Join(pod, strings.ReplaceAll(id1, "c", "d"), "cgroup.procs"), "13\n")
			if got, err := tree.Leaders(uid1, time.Now()); err != nil || len(got) != 2 {
				t.Errorf("with a second container: %v, %v", got, err)
			}
			if err := os.Rename(filepath.Join(base, "kubepods/burstable"), filepath.Join(base, "kubepods/besteffort")); err != nil {
				t.Fatal(err)
			}
			if got, err := tree.Leaders(uid1, time.Now()); err != nil || len(got) != 2 {
				t.Errorf("in another group: %v, %v", got, err)
			}
			if err := os.RemoveAll(filepath.Join(base, "kubepods")); err != nil {
				t.Fatal(err)
			}
			if got, err := tree.Leaders(uid1, time.Now()); err != nil || got != nil {
				t.Errorf("of a pod that has gone: %v, %v", got, err)
			}
		})
	}
}
