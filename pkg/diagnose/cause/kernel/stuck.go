package kernel

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// unkillableFamilies are the words about what holds an unkillable task.
var unkillableFamilies = []diagnose.Family{
	{
		Name:    fact.FamilyFsFrozen,
		Meaning: "The file system is frozen (fsfreeze, or a snapshot of a volume or of the machine that never thawed it). Every writer waits until it is thawed.",
		Remedy:  "Thaw it on the node: fsfreeze -u {mountpoint}; the thread ends at once. Then find the backup or snapshot job that left it frozen.",
		Danger:  "Do not force-delete: the writer is alive and goes on writing when the file system is thawed, perhaps after the volume has been given to another pod.",
	},
	{
		Name:    fact.FamilyNFS,
		Meaning: "The NFS server does not answer, and the mount is hard (the default): the kernel asks again for ever.",
		Remedy:  "Bring the NFS server {server} back under the same address; the thread goes on by itself and no data is lost.",
		Danger:  "umount -f throws away the writes that wait. umount -l hides the mount and leaves the thread. A force delete lets a second pod write to the same files.",
	},
	{
		Name: fact.FamilyCIFS,
		Meaning: "The SMB server does not answer. Only what waits for data to be written cannot be killed. With the mount option soft, which is the default, that wait ends with an error when the server " +
			"has been silent for three times the echo_interval, three minutes by default; with hard it goes on.",
		Remedy: "Bring the SMB server {server} back under the same address; the thread goes on by itself.",
		Danger: "umount -f throws away the writes that wait. A force delete lets a second pod write to the same files.",
	},
	{
		Name:    fact.FamilyCeph,
		Meaning: "The Ceph cluster does not answer, or has cut this client off.",
		Remedy:  "Look at the Ceph cluster's health and network, {server}; the thread goes on by itself when the cluster answers.",
		Danger:  "A force delete lets a second pod write to the same image or files.",
	},
	{
		Name:    fact.FamilyFUSE,
		Meaning: "A FUSE file system's daemon has taken a request and does not answer it. Until the task is killed such a wait shows as S, and only then as D.",
		Remedy:  "Restart or repair the FUSE daemon of {mountpoint}. Else, on the node: echo 1 > /sys/fs/fuse/connections/{connection}/abort, which ends all waits on this mount at once; writes that wait are lost.",
		Danger:  "umount -l hides the mount and leaves the thread. Aborting a connection affects every user of that mount.",
	},
	{
		Name:    fact.FamilyBlock,
		Meaning: "The block device below the file system does not complete its I/O.",
		Remedy:  "Bring the device {source} back (path, array, cloud disk, nbd server); the thread ends when its I/O completes or fails. If it never can: drain the node and reboot it.",
		Danger:  "Do not force-delete or detach: the write may still reach the disk, and a second writer corrupts it. Restarting containerd or the kubelet does not help.",
	},
	{
		Name:    fact.FamilyGPU,
		Meaning: "The GPU's driver does not return.",
		Remedy:  "Look for Xid or reset messages in the kernel log, drain the node, then reset the GPU or reboot.",
		Danger:  "Do not run the GPU vendor's tools on this node: they hang in the same place.",
	},
	{
		Name:    fact.FamilyOther,
		Meaning: "The kernel function is none of those that nodeagent can assign.",
		Remedy:  "Look at /proc/{thread}/stack on the node and repair what it waits for. If nothing can: drain the node and reboot it.",
		Danger:  "Do not force-delete: the process is alive and may hold volumes and devices.",
	},
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

func stuckFinding(p *evidence.Pod, tasks []*evidence.Task) diagnose.Finding {
	t := tasks[0]
	f := diagnose.Finding{
		Container:  p.ContainerName(t),
		Family:     fact.FamilyOf(t),
		Confidence: diagnose.Proved,
		Values: map[string]string{
			"where":    diagnose.InContainer(p.ContainerName(t)),
			"thread":   strconv.Itoa(t.TID),
			"comm":     t.Comm,
			"function": fact.SleepsIn(t),
			"on":       "",
			"more":     "",
		},
	}
	if n := len(tasks) - 1; n > 0 {
		f.Values["more"] = fmt.Sprintf(" (and %s more like it)", diagnose.Count(n, "thread"))
	}
	m := fact.Culprit(p, t)
	switch device := fact.OnlyDevice(p); {
	case m != nil:
		mountValues(f.Values, p, m)
	case f.Family == fact.FamilyBlock && device != "":
		f.Values["source"] = device
		f.Values["on"] = ", and threads of the kernel hang on the device " + device
	case f.Family == fact.FamilyFUSE:
		// The one to look for has requests that wait.
		f.Values["mountpoint"] = "the file system"
		f.Values["connection"] = "N"
		f.Values["on"] = " on a FUSE file system (one for which /sys/fs/fuse/connections/N/waiting is not 0; N is the second part of its device number in mountinfo)"
	}
	return f
}

// mountValues fills in what is said about a culprit's mount.
func mountValues(v map[string]string, p *evidence.Pod, m *evidence.Mount) {
	b := fact.Backing(m)
	v["mountpoint"] = diagnose.Bound(fact.OperatorPoint(b), 200)
	v["source"] = diagnose.Bound(b.Source, 120)
	v["fstype"] = b.Type
	v["server"] = diagnose.Bound(cmp.Or(b.Server, b.Source), 120)
	v["connection"] = fact.Minor(b.Device)
	on := fmt.Sprintf(" on %s, mounted at %s", b.Type, diagnose.Bound(b.Point, 180))
	var more []string
	if b.HostPoint != "" && b.HostPoint != b.Point {
		more = append(more, "on the node "+diagnose.Bound(b.HostPoint, 150))
	}
	if b.Source != "" && b.Source != "none" {
		more = append(more, "source "+v["source"])
	}
	if vol := cmp.Or(m.Volume, b.Volume); vol != "" {
		more = append(more, "volume "+diagnose.Bound(vol, 80))
	}
	if s := fact.Silence(b); s != "" {
		more = append(more, s)
	}
	if t := fact.DeviceThread(p, b); t != nil {
		more = append(more, "for which the kernel's thread "+t.Comm+" waits too")
	}
	if len(more) > 0 {
		on += " (" + strings.Join(more, ", ") + ")"
	}
	v["on"] = on
}

// withProcess adds the process of the thread that each finding names.
func withProcess(p *evidence.Pod, found []diagnose.Finding) []diagnose.Finding {
	for i := range found {
		tid, _ := strconv.Atoi(found[i].Values["thread"])
		for _, t := range p.Tasks {
			if t.TID == tid {
				found[i].Values["process"] = strconv.Itoa(t.PID)
			}
		}
	}
	return found
}
