package cgroup

import (
	"maps"
	"testing"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kerneltest"
)

// Each pod has its use, and each unit; what is above them has it twice.
func TestUsed(t *testing.T) {
	const slice, unit, pod = "/system.slice", "/system.slice/kubelet.service", "/" + pod1
	used := map[string]string{
		"": "999", "/kubepods.slice": "50", pod: "40", pod + "/cri-containerd-" + id1 + ".scope": "39",
		slice: "30", unit: "20", unit + "/x": "9", "/init.scope": "3",
	}
	want := map[string]uint64{pod[1:]: 40, unit[1:]: 20, "init.scope": 3}
	for version, of := range map[int]func(string) map[string]string{
		1: func(n string) map[string]string { return map[string]string{"cpuacct.usage": n + "000\n"} },
		2: func(n string) map[string]string {
			return map[string]string{"cpu.stat": "usage_usec " + n + "\nuser_usec 1\n"}
		},
	} {
		root, base := t.TempDir(), ""
		files := map[string]string{"cgroup.controllers": "cpu\n"}
		if version == 1 {
			base, files = "cpu,cpuacct", map[string]string{"cpu,cpuacct/cgroup.procs": "1\n"}
		}
		for dir, n := range used {
			for name, text := range of(n) {
				files[base+dir+"/"+name] = text
			}
		}
		kerneltest.Tree(t, root, files)
		if got := (&Tree{Root: root}).Used(); !maps.Equal(got, want) {
			t.Errorf("version %d: %v", version, got)
		}
	}
}

// The quotas of a process are those of its group and of all above it.
func TestQuotas(t *testing.T) {
	const slice, unit = "/system.slice", "/system.slice/kubelet.service"
	want := map[string]evidence.CPU{
		unit[1:]:  {UsedMicros: 7, Periods: 40, Throttled: 39, Millis: 10},
		slice[1:]: {UsedMicros: 9, Periods: 50, Throttled: 2, Millis: 2000},
	}
	root2, root1 := t.TempDir(), t.TempDir()
	kerneltest.Tree(t, root2, map[string]string{
		"cgroup.controllers": "cpu\n",
		unit + "/cpu.stat":   "usage_usec 7\nnr_periods 40\nnr_throttled 39\n", unit + "/cpu.max": "1000 100000\n",
		slice + "/cpu.stat": "usage_usec 9\nnr_periods 50\nnr_throttled 2\n", slice + "/cpu.max": "200000 100000\n",
	})
	const base = "cpu,cpuacct"
	kerneltest.Tree(t, root1, map[string]string{
		base + "/cgroup.procs":     "1\n",
		base + unit + "/cpu.stat":  "nr_periods 40\nnr_throttled 39\n",
		base + slice + "/cpu.stat": "nr_periods 50\nnr_throttled 2\n",

		base + unit + "/cpuacct.usage": "7000\n", base + unit + "/cpu.cfs_quota_us": "1000\n", base + unit + "/cpu.cfs_period_us": "100000\n",
		base + slice + "/cpuacct.usage": "9000\n", base + slice + "/cpu.cfs_quota_us": "200000\n", base + slice + "/cpu.cfs_period_us": "100000\n",
	})
	for root, line := range map[string]string{root2: "0::" + unit + "\n", root1: "3:pids:/other\n2:cpu,cpuacct:" + unit + "\n0::/\n"} {
		if own, got := (&Tree{Root: root}).Quotas([]byte(line)); own != unit[1:] || !maps.Equal(got, want) {
			t.Errorf("%q: %s, %+v", line, own, got)
		}
	}
}
