package kernel

import (
	"cmp"
	"net/netip"
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
		Name:   fact.FamilySuspended,
		Shared: true,
		Meaning: "The device mapper has suspended the block device below the file system, and holds back whatever is sent to it: " +
			"somebody has run dmsetup suspend, or a snapshot, a resize or a change of paths (LVM, multipath, LUKS) has stopped halfway. " +
			"The file system is frozen with it as a rule; thawing it with fsfreeze -u would hang as well.",
		Remedy: "Find out first who suspended it: a snapshot takes seconds, and is spoiled when the device is resumed in the middle. " +
			"When nobody is at work any more, on the node: {resume}; the thread goes on immediately.",
		Danger: "Do not run fsfreeze -u: it hangs on the suspended device and cannot be killed. " +
			"Do not force-delete: the writer is alive and goes on writing when the device is resumed, perhaps after the volume has been given to another pod.",
	},
	{
		Name:    fact.FamilyNFS,
		Shared:  true,
		Meaning: "The NFS server does not answer, and the mount is hard (the default): the kernel repeats its requests without end.",
		Remedy:  "{nfs} back under the same address; the thread goes on by itself, and on a hard mount no data is lost.",
		Danger: "umount -f throws away the writes that wait. umount -l hides the mount and leaves the thread. " +
			"A force delete lets a second pod write to the same files.",
	},
	{
		Name:   fact.FamilyCIFS,
		Shared: true,
		Meaning: "The SMB server does not answer. Only what waits for data to be written cannot be killed. " +
			"With the mount option soft, which is the default, that wait ends with an error when the server has not answered for three times the echo_interval, " +
			"three minutes by default; with hard it goes on.",
		Remedy: "{smb} back under the same address; the thread goes on by itself.",
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
			"Until the task is killed such a wait shows as S, and only then as D. " +
			"The daemon is a process that has /dev/fuse open: of the node, or of a pod, such as a sidecar (gcsfuse), a pod for each volume (JuiceFS) or the pod of a CSI driver. " +
			"When it exits, its requests end with an error. The mount answers with errors from then on, and pods that use it have to be started anew.",
		Remedy: "Repair or restart the FUSE daemon of {filesystem} (its container if it is a process of a pod, else its service on the node). " +
			"If you cannot, on the node: {abort}. This ends all waits on this mount immediately; writes that wait are lost.",
		Danger: "umount -l hides the mount and leaves the thread. Restarting the daemon or aborting the connection affects every user of that mount.",
	},
	{
		Name:   fact.FamilyBlock,
		Shared: true,
		Meaning: "The block device below the file system does not complete its I/O. " +
			"That is proved where the device has requests under way and has completed none for ten seconds or more (/sys/dev/block/MAJOR:MINOR/stat), and inferred where that is not known.",
		Remedy: "Bring the device {which} back (path, array, cloud disk, nbd server); the thread ends when its I/O completes or fails. {never}.",
		Danger: "Do not force-delete or detach: the write may still reach the disk, and a second writer corrupts it. " +
			"Restarting containerd or the kubelet does not help.",
	},
	{
		Name:    fact.FamilySlowBlock,
		Shared:  true,
		Meaning: "The block device below the file system works: requests complete, but so slowly, or behind so many others, that the thread has waited for half a minute or more.",
		Remedy: "Wait: the thread ends when its turn has come. Find out what keeps the device {which} busy, or what limits it " +
			"(iostat -x on the node, the throughput and the burst credit of a cloud disk, io.max of control groups).",
		Danger: "Do not force-delete, detach or reboot: data that has not been written yet would be lost, and the device is not broken.",
	},
	{
		Name:    fact.FamilyGPU,
		Shared:  true,
		Meaning: "The GPU's driver does not return.",
		Remedy:  "Look for Xid or reset messages in the kernel log, then drain the node (kubectl drain --skip-wait-for-delete-timeout=60 does not wait for this pod) and reboot it: a GPU that a process still uses cannot be reset.",
		Danger:  "Do not run the GPU vendor's tools on this node: they hang in the same place.",
	},
	{
		Name:   fact.FamilyIoUring,
		Shared: true,
		Meaning: "The thread waits for io_uring itself: for one of its locks, or for the end of its workers. " +
			"No other thread of its process is left that works on a request, so this is most likely a bug of the kernel. " +
			"Programs, most of them on Node.js, met such a bug in Linux 6.1.113 to 6.1.115 and 6.6.57 to 6.6.59 (nodejs/node#55587, NixOS/nixpkgs#355567, axboe/liburing#1289). " +
			"Amazon Linux 2023 (amazonlinux/amazon-linux-2023#840), Bottlerocket 1.27.1 (bottlerocket-os/bottlerocket#4308) and " +
			"Container-Optimized OS 113 (actions/actions-runner-controller#3903) had it too. " +
			"It is inferred, because other processes can share a ring. A thread that waits for the end of requests is of family Other: direct I/O needs no thread, and a disk or a server can hold it up.",
		Remedy: "If the thread is still there after some minutes, drain the node (kubectl drain --skip-wait-for-delete-timeout=60 does not wait for this pod) and reboot it: nothing else is known to end it. Give the node a newer kernel than {release}. " +
			"Until then keep the program from io_uring: Node.js does without it when its environment has UV_USE_IO_URING=0.",
		Danger: "Do not force-delete: the process is alive and holds its files. Another pod of this program on this node may hang in the same place.",
	},
	{
		Name:    fact.FamilyOther,
		Shared:  true,
		Meaning: "The kernel function is none of those that nodeagent can assign.",
		Remedy:  "Look at /proc/{thread}/stack on the node and repair what it waits for. If nothing can: drain the node (kubectl drain --skip-wait-for-delete-timeout=60 does not wait for this pod) and reboot it.",
		Danger:  "Do not force-delete: the process is alive and may hold volumes and devices.",
	},
}

// wherePhrase are the words about whose a stuck thread is.
var wherePhrase = []diagnose.Choice{
	{Text: "container {container}: "},
	{Variant: variantForeign, Text: "a process is in the pod's control group and in that of none of its containers, started by {parent}: "},
	{Variant: variantForeign, Text: "a process is in the pod's control group and in that of none of its containers: "},
	{Text: ""},
}

// unkillablePhrases are the words about where an unkillable task hangs.
var unkillablePhrases = map[string][]diagnose.Choice{
	"where": wherePhrase,
	"on": {
		{Text: " on {fstype}, mounted at {point}{about}"},
		{Variant: fact.FamilyBlock, Text: ", and threads of the kernel hang on the device {device}"},
		// The one to look for has requests that wait.
		{Variant: fact.FamilyFUSE, Text: " on a FUSE file system (one for which /sys/fs/fuse/connections/N/waiting is not 0; N is the second part of its device number in mountinfo)"},
		{Variant: fact.FamilyNFS, Text: " on an NFS mount"},
		{Variant: fact.FamilyCIFS, Text: " on an SMB mount"},
		{Variant: fact.FamilyIoUring, Text: ", and no thread of its process is left that works for io_uring"},
		{Text: ""},
	},
	"stays": {
		{Variant: variantGVisor, Text: "of gVisor works for a program of the pod, which SIGKILL does not end before the thread returns"},
		{Text: "has been killed but cannot die"},
	},
	"ring":       {{Variant: variantRing, Text: ", an io_uring worker of process {pid}"}, {Text: ""}},
	"about":      {{Text: " ({details})"}, {Text: ""}},
	"more":       {{Text: " (and {threads} more like it)"}, {Text: ""}},
	"filesystem": {{Text: "{mountpoint}"}, {Text: "the file system"}},
	"which":      {{Text: "{source}"}, {Text: "{device}"}, {Text: "below the file system"}},
	"never": {
		{Variant: variantDead, Text: "If it never can: drain the node (kubectl drain --skip-wait-for-delete-timeout=60 does not wait for this pod) and reboot it"},
		{Text: "See first whether it is merely slow: the numbers in its file in /sys/block/*/stat move then"},
	},
	"release": {{Text: "its Linux {kernel}"}, {Text: "it has"}},
	"nfs": {
		// A mount that is encrypted by a program of the node, as Amazon's EFS is.
		{Variant: variantProxy, Text: "Bring the program that listens on {server} of this node, and the NFS server that it speaks to,"},
		{Text: "Bring the NFS server {server}"},
		{Text: "Find the NFS server that does not answer (/proc/PID/mountstats and ss -t show requests that are sent again) and bring it"},
	},
	"smb": {{Text: "Bring the SMB server {server}"}, {Text: "Find the SMB server that does not answer (/proc/fs/cifs/DebugData) and bring it"}},
	"resume": {
		{Text: "dmsetup resume {mapper}"},
		{Text: "dmsetup resume with the name of the device (dmsetup info shows those that are SUSPENDED)"},
	},
}

// variantDead is a block device that has requests under way and completes none;
// variantProxy a server whose address is one of the node itself; variantForeign a process
// that somebody has put into the pod's control group; variantRing a thread that io_uring has
// started; variantGVisor one of gVisor's, which nobody has killed.
const (
	variantDead    = "Dead"
	variantProxy   = "Proxy"
	variantForeign = "Foreign"
	variantRing    = "Ring"
	variantGVisor  = "GVisor"
)

// ofNoContainer reports whether a task is in the pod's own control group, or in one below
// that is no container's: neither the kubelet nor the runtime puts any there. One that has
// left its group on its way out is in none.
func ofNoContainer(p *fact.View, t *evidence.Task) bool {
	if _, known := p.Container(t.Container); known || len(t.Container) == containerID || t.Exiting() || fact.OfGVisor(p, t) {
		return false
	}
	if parent, inside := fact.ByID(p, t.PPID); parent != nil && !inside && fact.Essential(parent) && parent.PID != 1 {
		return false // the runtime's own
	}
	return slices.ContainsFunc(p.Cgroups, func(c evidence.Cgroup) bool { return c.Container == t.Container && c.Threads > 0 })
}

// notYetInTheWay reports whether a task is of no container and came from the node, while the
// kubelet waits for what comes before it empties the pod's control group: for the end of the
// containers, or for the volumes. A task that has left a container is not meant.
func notYetInTheWay(p *fact.View, t *evidence.Task) bool {
	if p.HostPID || len(t.NSpid) > 1 || !ofNoContainer(p, t) {
		return false
	}
	return !p.ContainersEnded() || len(p.Mounts) > 0 || fact.DevicesLeft(p) || fact.VolumesLeft(p) || fact.Unmounter(p) != nil
}

// containerID is the length of containerd's IDs: a container that is deleted is not listed
// any more.
const containerID = 64

// The sources of the rules about tasks that stick: on a starved node the time may not suffice for a look at all of a
// pod's threads.
var (
	stuckNeeds  = []evidence.Source{evidence.Processes, evidence.Cgroups}
	stuckPartly = []evidence.Source{evidence.Suspects}
)

// partlyLookedAt is what these rules ask for then.
const partlyLookedAt = "Where the pod's suspicious threads could not all be looked at, a thread without a kernel stack does not count, " +
	"one that waits for a lock only after sixty seconds, and for a disk that is not known after thirty. "

// stuckIn gives one finding for each container with tasks that stick, as the
// rule that asks understands it, and whose cgroup is not frozen. The one that
// tells most is named, the others are counted. One that may wait for another thread is
// neither.
func stuckIn(p *fact.View, sticks func(*fact.View, *evidence.Task) bool) []diagnose.Finding {
	stuck := make(map[string][]*evidence.Task)
	for i := range p.Tasks {
		if t := &p.Tasks[i]; sticks(p, t) && fact.FrozenGroup(p, t) == nil && !blind(p, t) && !behindSlowDisk(p, t) && !awaitsThread(p, t) {
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

// blind reports whether it is not known of a task, where not all were looked at, whether it exits, is in execve or waits for the
// kernel's own processors: its stack was not read.
func blind(p *fact.View, t *evidence.Task) bool {
	return fact.Missing(p, evidence.Suspects) && t.Probe != nil && len(t.Probe.Stack) == 0
}

// behindSlowDisk reports whether a task of which only a lock is seen may wait for
// another one of its container, which a disk that works, or may work, holds up, or that waits for what takes as long or
// longer, as the kernel's own processors may; or one that has not been
// looked at; or for such a disk itself, when its files were not all read.
func behindSlowDisk(p *fact.View, t *evidence.Task) bool {
	family, still := fact.FamilyOf(t), t.Unchanged(p.Time)
	if family != fact.FamilyOther && family != fact.FamilyBlock {
		return false
	}
	if t.Probe.Mount == nil && fact.Missing(p, evidence.Suspects) && (still < fact.SlowDisk || still < fact.SlowRCU && family == fact.FamilyOther) {
		return true
	}
	return family == fact.FamilyOther && slices.ContainsFunc(p.Tasks, func(o evidence.Task) bool {
		patience := fact.SlowRCU
		if o.Probe != nil {
			patience = fact.Motionless(&o)
		}
		return o.Container == t.Container && o.State == evidence.Uninterruptible && still < patience
	})
}

// telling orders tasks by how much they say about the culprit: one with a mount
// before one with only a stack. A task that merely waits for the inode lock of
// another one names no file system, and one that waits for io_uring not even what does not
// go on.
func telling(t *evidence.Task) int {
	switch {
	case t.Probe == nil:
		return 0
	case fact.FamilyOf(t) == fact.FamilyIoUring:
		return 1
	case fact.FamilyOf(t) == fact.FamilyOther:
		return 2
	case t.Probe.Mount == nil:
		return 3
	}
	return 4
}

// stuckFinding is about the first of some tasks of a container.
func stuckFinding(p *fact.View, tasks []*evidence.Task) diagnose.Finding {
	t := tasks[0]
	f := diagnose.Finding{
		Container: p.ContainerName(t), Family: fact.FamilyOf(t), Confidence: diagnose.Proved,
		Objects: diagnose.Objects{Process: diagnose.ProcessOf(p, leaderOf(p, t)), Thread: diagnose.ThreadOf(t), Alike: len(tasks) - 1},
	}
	if f.Family == fact.FamilyOther && fact.Through(t, "exit_aio") && fact.OnlyDevice(p) != "" {
		f.Family = fact.FamilyBlock // its asynchronous I/O, which has no file any more
	}
	if t.IOWorker() {
		f.Variants = append(f.Variants, variantRing)
	}
	if fact.HeldUnderGVisor(p, t) {
		f.Container, f.Variants = "", append(f.Variants, variantGVisor) // one serves all containers
	}
	if ofNoContainer(p, t) {
		f.Variants, f.Objects.Parent = append(f.Variants, variantForeign), starter(p, t)
	}
	m, certain := culprit(p, t)
	if m != nil {
		f.Objects.Mount = diagnose.MountOf(p, m)
	} else if f.Family == fact.FamilyBlock {
		f.Objects.Device = fact.OnlyDevice(p)
	}
	if !refine(p, t, &f, m, certain) {
		f.Confidence = diagnose.Inferred
	}
	return f
}

// starter returns the process of the node that has started a task, nil when that is its first one, or is not known.
func starter(p *fact.View, t *evidence.Task) *diagnose.Process {
	parent, inside := fact.ByID(p, t.PPID)
	if parent == nil || inside || parent.PID == 1 {
		return nil
	}
	o := diagnose.ProcessOf(p, parent)
	if parent.Owner == "" {
		o.Unit = fact.UnitOf(parent.Cgroup)
	}
	return o
}

// refine adds to a finding what its family makes of the culprit, and reports whether that is proved, where the culprit is
// certain or not. A disk that works is another family, and so is io_uring that is not at fault.
func refine(p *fact.View, t *evidence.Task, f *diagnose.Finding, m *evidence.Mount, certain bool) bool {
	switch f.Family {
	case fact.FamilyBlock:
		if fact.WorkingDisk(t.Probe.Mount) {
			f.Family = fact.FamilySlowBlock
			return false // its request may be the one that is lost
		}
		if !fact.DeadDisk(m) {
			return false
		}
		f.Variants = append(f.Variants, variantDead)
	case fact.FamilyNFS:
		if a, err := netip.ParseAddr(serverOf(m)); err == nil && a.IsLoopback() {
			f.Variants = append(f.Variants, variantProxy)
		}
	case fact.FamilyFsFrozen:
		return (certain || m == nil) && !freezeUnderWay(p)
	case fact.FamilyIoUring:
		if ringAtFault(p, t) {
			f.Objects.Kernel = p.Node.Kernel
		} else {
			f.Family = fact.FamilyOther
		}
	case fact.FamilyGPU:
		return true
	case fact.FamilyOther:
		// Which of them holds the lock that the others wait for is not known when not all were looked at.
		return !fact.Missing(p, evidence.Suspects)
	}
	return certain
}

// serverOf is the address of a mount's server, "" when there is none.
func serverOf(m *evidence.Mount) string {
	if m == nil {
		return ""
	}
	return fact.Backing(m).Server
}

// leaderOf is the leader of a task's process, or the task itself when the leader
// was not seen.
func leaderOf(p *fact.View, t *evidence.Task) *evidence.Task {
	for i := range p.Tasks {
		if l := &p.Tasks[i]; l.Leader() && l.PID == t.PID {
			return l
		}
	}
	return t
}

// freezeUnderWay reports whether a task of the node is about to freeze a file system
// and waits for those that write to it (freeze_super, fs/super.c): what they wait for
// then holds up the others, and there is nothing to thaw.
func freezeUnderWay(p *fact.View) bool {
	return slices.ContainsFunc(p.Node.Blocked, func(t evidence.Task) bool { return fact.Through(&t, "freeze_super") })
}

// culprit returns the mount that a task hangs on, nil when it is not known, because a
// wrong name is worse than none. Certain reports whether no other one is left. A mount
// that was not found through an open file is named only for what is seen of itself: a
// close, or the end of a process, leaves no descriptor to follow, and a path may lead
// through a link. Certain is then only the one FUSE connection of the node that has
// requests waiting.
func culprit(p *fact.View, t *evidence.Task) (m *evidence.Mount, certain bool) {
	if t.Probe == nil || fact.FamilyOf(t) == fact.FamilyIoUring {
		return nil, false
	}
	if m = t.Probe.Mount; m != nil {
		b := fact.Backing(m)
		switch {
		case fact.FamilyOf(t) == fact.FamilyFUSE && b.FUSEWaiting != nil && *b.FUSEWaiting == 0:
			return nil, false // it has answered everything
		case t.Probe.Indirect && !suspicious(p, t, b):
			return nil, false
		case t.Probe.Indirect:
			return m, b.OnlyWaiting
		}
		return m, !fact.Answers(b)
	}
	for i := range t.Probe.Candidates {
		c := &t.Probe.Candidates[i]
		switch {
		case !suspicious(p, t, c):
		case m != nil:
			return nil, false // two could be it
		default:
			m = c
		}
	}
	return m, false
}

// suspicious reports whether something is seen of a mount itself that makes a task
// wait as this one does.
func suspicious(p *fact.View, t *evidence.Task, m *evidence.Mount) bool {
	switch family := fact.FamilyOf(t); family {
	case fact.FamilyFUSE:
		return m.FUSEWaiting != nil && *m.FUSEWaiting > 0
	case fact.FamilyNFS, fact.FamilyCIFS:
		// A server that is well has requests under way too, when it is asked much.
		return fact.OutOfReach(m) || m.Unanswered != nil && *m.Unanswered > 0 && m.Connection != evidence.Established
	case fact.FamilySuspended:
		return true
	case fact.FamilyBlock:
		return fact.DeadDisk(m)
	case fact.FamilyFsFrozen:
		return writerOnFrozen(p, t, m)
	}
	return false
}

// writerOnFrozen reports whether another task waits for the same file system to be
// thawed, and has it open.
func writerOnFrozen(p *fact.View, t *evidence.Task, m *evidence.Mount) bool {
	for _, tasks := range [][]evidence.Task{p.Tasks, p.Node.Blocked} {
		for i := range tasks {
			o := &tasks[i]
			if o.TID != t.TID && fact.FamilyOf(o) == fact.FamilyFsFrozen && o.Probe.Mount != nil && !o.Probe.Indirect && fact.Backing(o.Probe.Mount).Device == m.Device {
				return true
			}
		}
	}
	return false
}
