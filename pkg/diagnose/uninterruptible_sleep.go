package diagnose

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// unkillableFamilies are the words about what holds an unkillable task.
var unkillableFamilies = []Family{
	{
		Name:    familyFsFrozen,
		Meaning: "The file system is frozen (fsfreeze, or a snapshot of a volume or of the machine that never thawed it). Every writer waits until it is thawed.",
		Remedy:  "Thaw it on the node: fsfreeze -u {mountpoint}; the thread ends at once. Then find the backup or snapshot job that left it frozen.",
		Danger:  "Do not force-delete: the writer is alive and goes on writing when the file system is thawed, perhaps after the volume has been given to another pod.",
	},
	{
		Name:    familyNFS,
		Meaning: "The NFS server does not answer, and the mount is hard (the default): the kernel asks again for ever.",
		Remedy:  "Bring the NFS server {server} back under the same address; the thread goes on by itself and no data is lost.",
		Danger:  "umount -f throws away the writes that wait. umount -l hides the mount and leaves the thread. A force delete lets a second pod write to the same files.",
	},
	{
		Name: familyCIFS,
		Meaning: "The SMB server does not answer. Only what waits for data to be written cannot be killed. With the mount option soft, which is the default, that wait ends with an error when the server " +
			"has been silent for three times the echo_interval, three minutes by default; with hard it goes on.",
		Remedy: "Bring the SMB server {server} back under the same address; the thread goes on by itself.",
		Danger: "umount -f throws away the writes that wait. A force delete lets a second pod write to the same files.",
	},
	{
		Name:    familyCeph,
		Meaning: "The Ceph cluster does not answer, or has cut this client off.",
		Remedy:  "Look at the Ceph cluster's health and network, {server}; the thread goes on by itself when the cluster answers.",
		Danger:  "A force delete lets a second pod write to the same image or files.",
	},
	{
		Name:    familyFUSE,
		Meaning: "A FUSE file system's daemon has taken a request and does not answer it. Until the task is killed such a wait shows as S, and only then as D.",
		Remedy:  "Restart or repair the FUSE daemon of {mountpoint}. Else, on the node: echo 1 > /sys/fs/fuse/connections/{connection}/abort, which ends all waits on this mount at once; writes that wait are lost.",
		Danger:  "umount -l hides the mount and leaves the thread. Aborting a connection affects every user of that mount.",
	},
	{
		Name:    familyBlock,
		Meaning: "The block device below the file system does not complete its I/O.",
		Remedy:  "Bring the device {source} back (path, array, cloud disk, nbd server); the thread ends when its I/O completes or fails. If it never can: drain the node and reboot it.",
		Danger:  "Do not force-delete or detach: the write may still reach the disk, and a second writer corrupts it. Restarting containerd or the kubelet does not help.",
	},
	{
		Name:    familyGPU,
		Meaning: "The GPU's driver does not return.",
		Remedy:  "Look for Xid or reset messages in the kernel log, drain the node, then reset the GPU or reboot.",
		Danger:  "Do not run the GPU vendor's tools on this node: they hang in the same place.",
	},
	{
		Name:    familyOther,
		Meaning: "The kernel function is none of those that nodeagent can assign.",
		Remedy:  "Look at /proc/{thread}/stack on the node and repair what it waits for. If nothing can: drain the node and reboot it.",
		Danger:  "Do not force-delete: the process is alive and may hold volumes and devices.",
	},
}

// UninterruptibleSleep is a killed task that the kernel cannot end.
var UninterruptibleSleep = &Rule{
	Cause: "UninterruptibleSleep",
	Needs: []evidence.Source{evidence.Processes, evidence.Suspects, evidence.Cgroups},
	Doc: Doc{
		Layer:   "kernel",
		Title:   "a killed thread that the kernel cannot end",
		Message: "{where}thread {thread} ({comm}) has been killed but cannot die: it hangs in the kernel in {function}{on}{more}",
		Meaning: "The thread sleeps inside the kernel in a wait that no signal ends, not even SIGKILL. The container's processes are not gone until it returns, so the kubelet repeats the kill for ever.",
		Evidence: "SIGKILL is pending in the thread (SigPnd, bit 0x100), its state is D, and two readings three seconds or more apart (ten where a device, a daemon or a server that can be reached may just be slow, sixty where the kernel waits for its own processors) show the same state and the same number of context switches. " +
			"State D alone proves nothing: many such waits end at SIGKILL, and I/O that progresses switches context. " +
			"The file system is found from the blocked system call: its file descriptor's mount ID in fdinfo, or its path, in the task's mountinfo.",
		Remedy:   "Repair what the thread waits for; it ends by itself then.",
		Danger:   "Do not force-delete: the process is alive and may hold volumes and devices.",
		Families: unkillableFamilies,
	},
	Check: func(p *evidence.Pod) []Finding {
		return stuckIn(p, func(p *evidence.Pod, t *evidence.Task) bool { return unkillable(p, t) && !behindZombieLeader(p, t) })
	},
}

// unkillable says that a task is killed, in state D and does not move, on its
// way neither through exit nor through execve, which are causes of their own.
func unkillable(p *evidence.Pod, t *evidence.Task) bool {
	return t.State == evidence.Uninterruptible && t.Killed() && !t.Exiting() && !inExec(t) && t.Unchanged(p.Time) >= motionless(t)
}

// stuckIn gives one finding for each container with tasks that stick, as the
// rule that asks understands it, and whose cgroup is not frozen. The one that
// tells most is named, the others are counted.
func stuckIn(p *evidence.Pod, sticks func(*evidence.Pod, *evidence.Task) bool) []Finding {
	stuck := make(map[string][]*evidence.Task)
	for i := range p.Tasks {
		if t := &p.Tasks[i]; sticks(p, t) && !frozenByCgroup(p, t) {
			stuck[t.Container] = append(stuck[t.Container], t)
		}
	}
	containers := make([]string, 0, len(stuck))
	for c := range stuck {
		containers = append(containers, c)
	}
	slices.Sort(containers)
	var out []Finding
	for _, c := range containers {
		tasks := stuck[c]
		slices.SortStableFunc(tasks, func(a, b *evidence.Task) int {
			return cmp.Or(cmp.Compare(telling(b), telling(a)), cmp.Compare(a.TID, b.TID))
		})
		out = append(out, stuckFinding(p, tasks))
	}
	return out
}

// telling orders tasks by how much they say about the culprit: one with a mount
// before one with only a stack. A task that merely waits for the inode lock of
// another one names no file system.
func telling(t *evidence.Task) int {
	switch {
	case t.Probe == nil:
		return 0
	case t.Probe.Mount != nil && familyOf(t) != familyOther:
		return 3
	case familyOf(t) != familyOther:
		return 2
	}
	return 1
}

// motionless is how long a task must not have moved to be called stuck. A frozen
// file system needs no patience: nothing there is slow.
func motionless(t *evidence.Task) time.Duration {
	switch {
	case t.Probe == nil:
		return SlowDevice
	case waitsForRCU(t):
		return SlowRCU
	case familyOf(t) == familyFsFrozen:
		return Stuck
	}
	return patience(t.Probe.Mount)
}

// waitsForRCU says that a task waits until all processors have gone through a
// quiescent state, as the last task of a mount namespace does at its end
// (namespace_unlock, fs/namespace.c), or one that closes an inotify descriptor.
// Where the processors are busy, or emulated, that takes seconds, and the kernel
// itself complains after 21 (Documentation/RCU/stallwarn.rst). Readers of SRCU may
// sleep: these waits can be true hangs and are told later.
func waitsForRCU(t *evidence.Task) bool {
	return t.Probe != nil && slices.ContainsFunc(append([]string{t.Probe.Wchan}, t.Probe.Stack...), isRCUWait)
}

// waitsForProcessors is the same without SRCU, behind which a driver or a device
// may stand.
func waitsForProcessors(probe *evidence.Probe) bool {
	return slices.ContainsFunc(append([]string{probe.Wchan}, probe.Stack...), func(fn string) bool {
		return isRCUWait(fn) && !strings.Contains(fn, "srcu")
	})
}

// isRCUWait knows the functions of kernel/rcu that wait, from Linux 5.14 to 6.18.
func isRCUWait(fn string) bool {
	switch fn {
	case "__wait_rcu_gp", "exp_funnel_lock", "rcu_sync_enter", "srcu_barrier", "cleanup_srcu_struct", "fsnotify_wait_marks_destroyed":
		return true
	}
	for _, prefix := range []string{"synchronize_rcu", "synchronize_srcu", "__synchronize_srcu", "rcu_barrier", "kvfree_rcu_barrier"} {
		if strings.HasPrefix(fn, prefix) {
			return true
		}
	}
	return false
}

func stuckFinding(p *evidence.Pod, tasks []*evidence.Task) Finding {
	t := tasks[0]
	f := Finding{
		Container:  p.ContainerName(t),
		Family:     familyOf(t),
		Confidence: Proved,
		Values: map[string]string{
			"where":    inContainer(p.ContainerName(t)),
			"thread":   strconv.Itoa(t.TID),
			"comm":     t.Comm,
			"function": sleepsIn(t),
			"on":       "",
			"more":     "",
		},
	}
	if n := len(tasks) - 1; n > 0 {
		f.Values["more"] = fmt.Sprintf(" (and %s more like it)", count(n, "thread"))
	}
	m := culprit(p, t)
	switch device := onlyDevice(p); {
	case m != nil:
		mountValues(f.Values, p, m)
	case f.Family == familyBlock && device != "":
		f.Values["source"] = device
		f.Values["on"] = ", and threads of the kernel hang on the device " + device
	case f.Family == familyFUSE:
		// The one to look for has requests that wait.
		f.Values["mountpoint"] = "the file system"
		f.Values["connection"] = "N"
		f.Values["on"] = " on a FUSE file system (one for which /sys/fs/fuse/connections/N/waiting is not 0; N is the second part of its device number in mountinfo)"
	}
	return f
}

// culprit is the mount that a task hangs on. A close, or the end of a process,
// leaves no descriptor to follow: then it is the pod's only volume of the kind
// that the kernel stack shows, or none, because a wrong name is worse.
func culprit(p *evidence.Pod, t *evidence.Task) *evidence.Mount {
	if t.Probe == nil {
		return nil
	}
	if t.Probe.Mount != nil {
		return t.Probe.Mount
	}
	var only *evidence.Mount
	for i := range p.Mounts {
		m := &p.Mounts[i]
		if f := familyOfType(m.Type); f == "" || f != familyOf(t) {
			continue
		}
		if only != nil && only.Device != m.Device {
			return nil
		}
		only = m
	}
	return only
}

// mountValues fills in what is said about a culprit's mount.
func mountValues(v map[string]string, p *evidence.Pod, m *evidence.Mount) {
	b := backing(m)
	v["mountpoint"] = bound(operatorPoint(b), 200)
	v["source"] = bound(b.Source, 120)
	v["fstype"] = b.Type
	v["server"] = bound(cmp.Or(b.Server, b.Source), 120)
	v["connection"] = minor(b.Device)
	on := fmt.Sprintf(" on %s, mounted at %s", b.Type, bound(b.Point, 180))
	var more []string
	if b.HostPoint != "" && b.HostPoint != b.Point {
		more = append(more, "on the node "+bound(b.HostPoint, 150))
	}
	if b.Source != "" && b.Source != "none" {
		more = append(more, "source "+v["source"])
	}
	if vol := cmp.Or(m.Volume, b.Volume); vol != "" {
		more = append(more, "volume "+bound(vol, 80))
	}
	if s := silence(b); s != "" {
		more = append(more, s)
	}
	if t := deviceThread(p, b); t != nil {
		more = append(more, "for which the kernel's thread "+t.Comm+" waits too")
	}
	if len(more) > 0 {
		on += " (" + strings.Join(more, ", ") + ")"
	}
	v["on"] = on
}

// behindZombieLeader says that the task's process has lost its leader and
// lives on as other threads.
func behindZombieLeader(p *evidence.Pod, t *evidence.Task) bool {
	if t.Leader() {
		return false
	}
	for i := range p.Tasks {
		if l := &p.Tasks[i]; l.Leader() && l.PID == t.PID {
			return l.State == evidence.Zombie && l.Threads > 1
		}
	}
	return false
}

// frozenByCgroup says that the task's cgroup or one above it is frozen: on
// cgroup v1 such tasks are in state D and cannot be killed either.
func frozenByCgroup(p *evidence.Pod, t *evidence.Task) bool {
	for _, c := range p.Cgroups {
		if c.Frozen && (c.Container == "" || c.Container == t.Container) {
			return true
		}
	}
	return false
}

// count says a number of things in words, "thread" or "threads".
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return strconv.Itoa(n) + " " + thing + "s"
}
