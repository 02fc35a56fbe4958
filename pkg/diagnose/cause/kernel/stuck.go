package kernel

import (
	"cmp"
	"slices"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// unkillableFamilies are the words about what holds an unkillable task.
var unkillableFamilies = []diagnose.Family{
	{
		Name:   fact.FamilyFsFrozen,
		Shared: true,
		Meaning: "The file system is frozen (fsfreeze, or a snapshot of a volume or of the machine that never thawed it). " +
			"Every writer waits until it is thawed.",
		Remedy: "Find out first who froze it: a snapshot or a backup takes up to a minute, and a thaw in the middle spoils it. " +
			"When nobody is at work any more, on the node: {unfreeze}; the thread ends immediately.",
		Danger: "Do not force-delete: the writer is alive and goes on writing when the file system is thawed, perhaps after the volume has been given to another pod.",
	},
	{
		Name:    fact.FamilyNFS,
		Shared:  true,
		Meaning: "The NFS server does not answer, and the mount is hard (the default): the kernel repeats its requests without end.",
		Remedy:  "Bring the NFS server {server} back under the same address; the thread goes on by itself and no data is lost.",
		Danger: "umount -f throws away the writes that wait. umount -l hides the mount and leaves the thread. " +
			"A force delete lets a second pod write to the same files.",
	},
	{
		Name:   fact.FamilyCIFS,
		Shared: true,
		Meaning: "The SMB server does not answer. Only what waits for data to be written cannot be killed. " +
			"With the mount option soft, which is the default, that wait ends with an error when the server has not answered for three times the echo_interval, " +
			"three minutes by default; with hard it goes on.",
		Remedy: "Bring the SMB server {server} back under the same address; the thread goes on by itself.",
		Danger: "umount -f throws away the writes that wait. A force delete lets a second pod write to the same files.",
	},
	{
		Name:    fact.FamilyCeph,
		Shared:  true,
		Meaning: "The Ceph cluster does not answer, or has cut this client off.",
		Remedy:  "Look at the Ceph cluster's health and network, {server}; the thread goes on by itself when the cluster answers.",
		Danger:  "A force delete lets a second pod write to the same image or files.",
	},
	{
		Name:   fact.FamilyFUSE,
		Shared: true,
		Meaning: "A FUSE file system's daemon has taken a request and does not answer it. " +
			"Until the task is killed such a wait shows as S, and only then as D.",
		Remedy: "Restart or repair the FUSE daemon of {filesystem}. " +
			"Else, on the node: echo 1 > /sys/fs/fuse/connections/{fuse}/abort, which ends all waits on this mount immediately; writes that wait are lost.",
		Danger: "umount -l hides the mount and leaves the thread. Aborting a connection affects every user of that mount.",
	},
	{
		Name:    fact.FamilyBlock,
		Shared:  true,
		Meaning: "The block device below the file system does not complete its I/O.",
		Remedy: "Bring the device {which} back (path, array, cloud disk, nbd server); the thread ends when its I/O completes or fails. " +
			"If it never can: drain the node and reboot it.",
		Danger: "Do not force-delete or detach: the write may still reach the disk, and a second writer corrupts it. " +
			"Restarting containerd or the kubelet does not help.",
	},
	{
		Name:    fact.FamilyGPU,
		Shared:  true,
		Meaning: "The GPU's driver does not return.",
		Remedy:  "Look for Xid or reset messages in the kernel log, drain the node, then reset the GPU or reboot.",
		Danger:  "Do not run the GPU vendor's tools on this node: they hang in the same place.",
	},
	{
		Name:    fact.FamilyOther,
		Shared:  true,
		Meaning: "The kernel function is none of those that nodeagent can assign.",
		Remedy:  "Look at /proc/{thread}/stack on the node and repair what it waits for. If nothing can: drain the node and reboot it.",
		Danger:  "Do not force-delete: the process is alive and may hold volumes and devices.",
	},
}

// unkillablePhrases are the words about where an unkillable task hangs.
var unkillablePhrases = map[string][]diagnose.Choice{
	"on": {
		{Text: " on {fstype}, mounted at {point}{about}"},
		{Variant: fact.FamilyBlock, Text: ", and threads of the kernel hang on the device {device}"},
		// The one to look for has requests that wait.
		{Variant: fact.FamilyFUSE, Text: " on a FUSE file system (one for which /sys/fs/fuse/connections/N/waiting is not 0; N is the second part of its device number in mountinfo)"},
		{Text: ""},
	},
	"about":      {{Text: " ({details})"}, {Text: ""}},
	"more":       {{Text: " (and {threads} more like it)"}, {Text: ""}},
	"filesystem": {{Text: "{mountpoint}"}, {Text: "the file system"}},
	"fuse":       {{Text: "{connection}"}, {Text: "N"}},
	"which":      {{Text: "{source}"}, {Text: "{device}"}, {Text: "below the file system"}},
}

// stuckIn gives one finding for each container with tasks that stick, as the
// rule that asks understands it, and whose cgroup is not frozen. The one that
// tells most is named, the others are counted.
func stuckIn(p *evidence.Pod, sticks func(*evidence.Pod, *evidence.Task) bool) []diagnose.Finding {
	stuck := make(map[string][]*evidence.Task)
	for i := range p.Tasks {
		if t := &p.Tasks[i]; sticks(p, t) && fact.FrozenGroup(p, t) == nil {
			stuck[t.Container] = append(stuck[t.Container], t)
		}
	}
	containers := make([]string, 0, len(stuck))
	for c := range stuck {
		containers = append(containers, c)
	}
	slices.Sort(containers)
	var out []diagnose.Finding
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
	case t.Probe.Mount != nil && fact.FamilyOf(t) != fact.FamilyOther:
		return 3
	case fact.FamilyOf(t) != fact.FamilyOther:
		return 2
	}
	return 1
}

// stuckFinding is about the first of some tasks of a container.
func stuckFinding(p *evidence.Pod, tasks []*evidence.Task) diagnose.Finding {
	t := tasks[0]
	f := diagnose.Finding{
		Container: p.ContainerName(t), Family: fact.FamilyOf(t), Confidence: diagnose.Proved,
		Objects: diagnose.Objects{Process: diagnose.ProcessOf(p, leaderOf(p, t)), Thread: diagnose.ThreadOf(t), Alike: len(tasks) - 1},
	}
	if m := fact.Culprit(p, t); m != nil {
		f.Objects.Mount = diagnose.MountOf(p, m)
	} else if f.Family == fact.FamilyBlock {
		f.Objects.Device = fact.OnlyDevice(p)
	}
	return f
}

// leaderOf is the leader of a task's process, or the task itself when the leader
// was not seen.
func leaderOf(p *evidence.Pod, t *evidence.Task) *evidence.Task {
	for i := range p.Tasks {
		if l := &p.Tasks[i]; l.Leader() && l.PID == t.PID {
			return l
		}
	}
	return t
}
