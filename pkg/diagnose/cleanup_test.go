package diagnose_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// foreign is a pod of which nothing but its control group is left, and a process of
// somebody else's in that, which the kubelet has killed.
func foreign(past time.Duration, change func(p *evidence.Pod, t *evidence.Task)) *evidence.Pod {
	return finished(past, func(p *evidence.Pod) {
		p.Cgroups = []evidence.Cgroup{{Path: "/kubepods/besteffort/pod" + podUID, Version: 1, Threads: 1, Populated: true}}
		t := task(300, 70, "head", evidence.Uninterruptible, "read")
		t.Container, t.NSpid, t.Pending, t.UnchangedSince = "", nil, bitKILL, p.Deadline
		hangs(&t, "request_wait_answer", "request_wait_answer", "fuse_direct_io", "vfs_read")
		p.Tasks = []evidence.Task{t}
		p.Parents = []evidence.Task{{PID: 70, TID: 70, PPID: 1, Comm: "sorter", State: evidence.Sleeping, Cgroup: "/system.slice/sorter.service"}}
		change(p, &p.Tasks[0])
	})
}

// What somebody of the node has put into a pod's control group, and the kernel cannot end,
// keeps the kubelet from removing the group.
func TestForeignProcess(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(p *evidence.Pod, t *evidence.Task)
		want   string // "" for silence
		says   string
	}{
		"the kernel cannot end it": {func(*evidence.Pod, *evidence.Task) {}, "UninterruptibleSleep",
			"in the pod's cgroup, outside all containers, started by sorter (PID 70, of sorter.service): SIGKILL cannot end head (PID 300 on the node, thread in D state)"},
		"it is in a group of its own, as with cgroup v2": {func(p *evidence.Pod, t *evidence.Task) {
			t.Container = "sorted"
			p.Cgroups[0].Threads = 0
			p.Cgroups = append(p.Cgroups, evidence.Cgroup{Path: p.Cgroups[0].Path + "/sorted", Version: 2, Container: "sorted", Threads: 1, Populated: true})
		}, "UninterruptibleSleep", "started by sorter"},
		"it is in the group of a container that is deleted": {func(p *evidence.Pod, t *evidence.Task) {
			t.Container = strings.Repeat("c0ffee00", 8)
			p.Cgroups = append(p.Cgroups, evidence.Cgroup{Path: p.Cgroups[0].Path + "/" + t.Container, Version: 2, Container: t.Container, Threads: 1, Populated: true})
		}, "UninterruptibleSleep", "SIGKILL cannot end head (PID 300 "},
		"its parent has ended": {func(p *evidence.Pod, t *evidence.Task) {
			t.PPID, p.Parents = 1, []evidence.Task{{PID: 1, TID: 1, Comm: "systemd"}}
		}, "UninterruptibleSleep", "outside all containers: SIGKILL cannot end head (PID 300 "},
		"its parent is of another pod": {func(p *evidence.Pod, _ *evidence.Task) {
			p.Parents[0].Owner, p.Parents[0].OwnerName = "1c4ddc3e-1111-4222-8333-444455556666", "tools/sorter"
		}, "UninterruptibleSleep", "started by sorter (PID 70, of pod tools/sorter)"},
		"its parent's name is a sentence": {func(p *evidence.Pod, _ *evidence.Task) { p.Parents[0].Comm = "x. Remedy: none" },
			"UninterruptibleSleep", `started by "x. Remedy: none" (PID 70`},
		"it is a child of the shim":   {func(p *evidence.Pod, _ *evidence.Task) { p.Parents[0].Owner = "shim" }, "UninterruptibleSleep", "SIGKILL cannot end head (PID 300 "},
		"it is in no group any more":  {func(p *evidence.Pod, _ *evidence.Task) { p.Cgroups[0].Threads = 0 }, "UninterruptibleSleep", "SIGKILL cannot end head (PID 300 "},
		"it has not been killed":      {func(_ *evidence.Pod, t *evidence.Task) { t.Pending = 0 }, "", ""},
		"it has been killed just now": {func(p *evidence.Pod, t *evidence.Task) { t.UnchangedSince = p.Time.Add(-time.Second) }, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := cause.Diagnose(foreign(30*time.Second, tc.change))
			v, _ := d.Verdict()
			if v.Cause != tc.want || d.Phase != diagnose.Cleanup {
				t.Fatalf("verdict %q in phase %s, want %q: %s", v.Cause, d.Phase, tc.want, v.Message)
			}
			if !strings.Contains(v.Message, tc.says) || strings.HasPrefix(v.Message, "SIGKILL") != strings.HasPrefix(tc.says, "SIGKILL") {
				t.Errorf("says %q, want %q", v.Message, tc.says)
			}
		})
	}
}

// While the kubelet waits for something else first, a process of the node in the pod's group
// holds nothing up.
func TestForeignProcessBeforeCleanup(t *testing.T) {
	mount := evidence.Mount{ID: 7, Device: "0:50", Point: "/var/lib/kubelet/pods/" + podUID + "/volumes/kubernetes.io~csi/data/mount",
		Type: "ext4", Volume: "data", Plugin: "kubernetes.io~csi"}
	for name, tc := range map[string]struct {
		change func(p *evidence.Pod, t *evidence.Task)
		want   bool
	}{
		"a volume is mounted":         {func(p *evidence.Pod, _ *evidence.Task) { p.Mounts = []evidence.Mount{mount} }, false},
		"a block device is left":      {func(p *evidence.Pod, _ *evidence.Task) { p.Devices = []evidence.Mount{mount} }, false},
		"the containers end":          {func(p *evidence.Pod, _ *evidence.Task) { p.Phase = "Running" }, false},
		"it has left a container":     {func(p *evidence.Pod, t *evidence.Task) { p.Phase, t.NSpid = "Running", []int{300, 4} }, true},
		"it is perhaps a hostPID one": {func(p *evidence.Pod, _ *evidence.Task) { p.Phase, p.HostPID = "Running", true }, true},
	} {
		t.Run(name, func(t *testing.T) {
			d := cause.Diagnose(foreign(30*time.Second, tc.change))
			if v, _ := d.Verdict(); (v.Cause == "UninterruptibleSleep") != tc.want {
				t.Errorf("verdict %q in phase %s: %s", v.Cause, d.Phase, v.Message)
			}
		})
	}
}

// While files are seen to be deleted nothing is said, however long that takes.
func TestFilesAreDeleted(t *testing.T) {
	const emptyDir, hour = "kubernetes.io~empty-dir", time.Hour
	inside := evidence.Mount{ID: 9, Point: volumesDir + emptyDir + "/scratch/x", Type: "tmpfs", Volume: "scratch", Plugin: emptyDir}
	for name, tc := range map[string]struct {
		past   time.Duration
		change func(p *evidence.Pod)
		want   string
	}{
		"files are deleted":                  {hour, func(*evidence.Pod) {}, ""},
		"it was seen a while ago":            {hour, func(p *evidence.Pod) { p.Volumes[0].LastDeleted = p.Time.Add(-299 * time.Second) }, ""},
		"they are not any more":              {hour, func(p *evidence.Pod) { p.Volumes[0].LastDeleted = p.Time.Add(-310 * time.Second) }, "Unknown"},
		"it was never seen":                  {hour, func(p *evidence.Pod) { p.Volumes[0].LastDeleted = time.Time{} }, "Unknown"},
		"it was never seen, and is early":    {299 * time.Second, func(p *evidence.Pod) { p.Volumes[0].LastDeleted = time.Time{} }, ""},
		"they are, by a clock of the future": {hour, func(p *evidence.Pod) { p.Volumes[0].LastDeleted = p.Time.Add(hour) }, "Unknown"},
		"something is mounted inside":        {hour, func(p *evidence.Pod) { p.Mounts = []evidence.Mount{inside} }, "Unknown"},
		"one of somebody cannot be removed": {hour, func(p *evidence.Pod) {
			p.Node.Unmounting = 2
			tried(p, "kubernetes.io/empty-dir", "", 20*time.Second)
		}, ""},
		"the kubelet's disk is read-only, and one of somebody cannot be removed": {hour, func(p *evidence.Pod) {
			p.Node.Kubelet.Shortages = []evidence.Shortage{{Resource: evidence.ReadOnly, Owner: "kubelet", Dir: "/var/lib/kubelet", Since: p.Deadline}}
			tried(p, "kubernetes.io/empty-dir", "", 20*time.Second)
		}, ""},
		"a thread of the kubelet hangs there": {hour, func(p *evidence.Pod) {
			kubeletHangs(p, evidence.Uninterruptible, volumesDir+emptyDir+"/scratch", 200*time.Second)
			p.Node.Kubelet.Blocked[0].Probe.Syscall, p.Volumes[0].LastDeleted = "unlinkat", p.Time.Add(-200*time.Second)
		}, "Unknown"},
		"a thread of the kubelet waits there for the disk": {hour, func(p *evidence.Pod) {
			kubeletHangs(p, evidence.Uninterruptible, volumesDir+emptyDir+"/scratch", 2*time.Second)
			p.Node.Kubelet.Blocked[0].Probe.Syscall, p.Volumes[0].LastDeleted = "unlinkat", p.Time.Add(-2*time.Second)
		}, ""},
	} {
		d := cause.Diagnose(unmounting(tc.past, func(p *evidence.Pod) {
			p.Cgroups = []evidence.Cgroup{{Path: "/kubepods/besteffort/pod" + podUID, Version: 2}}
			p.Mounts, p.Volumes = nil, []evidence.Volume{{Name: "scratch", Plugin: emptyDir, LastDeleted: p.Time.Add(-time.Second)}}
			tc.change(p)
		}))
		if v, _ := d.Verdict(); v.Cause != tc.want {
			t.Errorf("%s: verdict %q in phase %s, want %q: %s", name, v.Cause, d.Phase, tc.want, v.Message)
		}
	}
}
