package kernel

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// unkillableFamilies are what can hold an unkillable task.
var unkillableFamilies = []diagnose.Family{
	{
		Name:   fact.FamilyFsFrozen,
		Who:    diagnose.ByStorage,
		Shared: true,
		Meaning: "The file system is frozen: by fsfreeze, or by a snapshot of a volume or of the machine that never thawed it. " +
			"Every writer waits until it is thawed.",
		Remedy: "Find out who froze it: a snapshot or a backup takes up to a minute, and thawing in the middle ruins it. " +
			"If none runs, on the node: {unfreeze}; the thread then resumes. " +
			"If fsfreeze reports \"Invalid argument\", it is not frozen yet: a freeze is under way and waits for another writer.",
		Danger: "Do not thaw it in the middle of a snapshot or a backup. Do not force-delete: the writer is alive and resumes writing at " +
			"the thaw, perhaps after another pod has the volume.",
		First: "ask the backup team if a snapshot or backup runs. If yes or unsure, wait. If no, on the node, as root: {unfreeze}",
		Avoid: "thawing during a snapshot (ruins it)",
	},
	{
		Name: fact.FamilySuspended,
		Who:  diagnose.ByStorage, NotApp: true,
		Shared: true,
		Meaning: "The device mapper has suspended the block device below the file system, and holds back all I/O to it. " +
			"Either dmsetup suspend was run, or a snapshot, a resize or a change of paths (LVM, multipath, LUKS) has stopped halfway. " +
			"The file system is usually frozen with it; fsfreeze -u would hang as well.",
		Remedy: "Find out who suspended the device: a snapshot takes seconds, and resuming in the middle ruins it. " +
			"If no snapshot, resize or path change runs, on the node: {resume}; the thread then resumes.",
		Danger: "Do not run fsfreeze -u: it hangs on the suspended device and cannot be killed. " +
			"dmsetup resume also activates an inactive table: dmsetup info shows whether there is one. " +
			"Do not force-delete: the writer is alive and resumes writing with the device, perhaps after another pod has the volume.",
		First: "ask the backup team if a snapshot or resize runs. If yes or unsure, wait. If no, on the node, as root: {resume}",
		Avoid: "fsfreeze -u (hangs too, unkillable)",
	},
	{
		Name:    fact.FamilyNFS,
		Who:     diagnose.ByStorage,
		Shared:  true,
		Meaning: "The NFS server does not respond, and the mount is hard (the default). The kernel repeats its requests without end.",
		Remedy: "Restore {nfs} at the same address; the thread then resumes, and a hard mount loses no data. " +
			"If the server never returns, {drain}. A reboot loses the pending writes.",
		Danger: "umount -f discards the pending writes. umount -l hides the mount and leaves the thread. " +
			"A force delete lets a second pod write to the same files.",
		First: "{nfsfirst}",
		Avoid: "ls or df there (hang), umount -f (loses writes)",
	},
	{
		Name: fact.FamilyCIFS,
		Who:  diagnose.ByStorage, NotApp: true,
		Shared: true,
		Meaning: "The SMB server does not respond. Only a wait for data to be written cannot be killed. " +
			"With the mount option soft, the default, that wait ends with an error when the server has not responded for three " +
			"times the echo_interval. " +
			"That is three minutes by default. With hard the wait continues.",
		Remedy: "Restore {smb} at the same address; the thread then resumes. " +
			"On a soft mount (the default) the wait ends with an error, by default after three minutes without a response. " +
			"If the mount is hard and the server never returns, {drain}. A reboot loses the pending writes.",
		Danger: "umount -f discards the pending writes. A force delete lets a second pod write to the same files.",
		First:  "{smbfirst}",
		Avoid:  "umount -f (loses pending writes)",
	},
	{
		Name: fact.FamilyCeph,
		Who:  diagnose.ByStorage, NotApp: true,
		Shared:  true,
		Meaning: "The Ceph cluster does not respond, or has cut off this client.",
		Remedy: "Check the health of the Ceph cluster{cluster} (ceph health detail) and the node's network to it; the thread resumes when it responds. " +
			"Check whether the cluster has cut off this node's client: ceph osd blocklist ls.",
		Danger: "Do not remove a blocklist entry while another node may use the image. A force delete lets a second pod write to the same image or files.",
		First: "run ceph health detail, and repair what explains this. If nothing does, look for this node in ceph osd blocklist ls, then test " +
			"its network",
		Avoid: "lifting a blocklist entry (two writers)",
	},
	{
		Name:   fact.FamilyFUSE,
		Who:    diagnose.ByStorage,
		Shared: true,
		Meaning: "The daemon of a FUSE file system has taken a request and does not respond to it. " +
			"Until the task is killed, such a wait shows as S, and only then as D. " +
			"The daemon is a process that has /dev/fuse open. It runs on the node or in a pod: a sidecar (gcsfuse), a pod for each " +
			"volume (JuiceFS), a CSI driver's pod. " +
			"When it exits, its requests end with an error. From then on the mount returns errors, and pods that use it have to be " +
			"restarted.",
		Remedy: "{waiting}, on the node: find /proc/[0-9]*/fd -path /proc/{pid}/fd -prune -o -lname /dev/fuse -print. " +
			"Ask its owner, then repair or restart it (its container, its pod or its service). " +
			"For virtiofs it is virtiofsd, on the host of the virtual machine. " +
			"If that is not possible, on the node: {abort}. This ends all waits on this mount immediately; pending writes are lost.",
		Danger: "A restart of the daemon, like an abort, affects every user of the mount: it returns errors until their pods are " +
			"restarted. umount -l hides the mount and leaves the thread.",
		First: "{restart}",
		Avoid: "a restart without asking (breaks its mounts)",
	},
	{
		Name:   fact.FamilyBlock,
		Who:    diagnose.ByStorage,
		Shared: true,
		Meaning: "The block device below the file system does not complete its I/O. " +
			"That is proved where the device has requests in flight and has completed none for ten seconds or more " +
			"(/sys/dev/block/MAJOR:MINOR/stat). " +
			"Where the counters are not known, it is inferred.",
		Remedy: "{slow}{restored}.{never}",
		Danger: "Do not force-delete or detach: the write may still reach the disk, and a second writer corrupts it. " +
			"Restarting containerd or the kubelet does not help.",
		First: "{revive}",
		Avoid: "detaching it (can corrupt data)",
	},
	{
		Name:   fact.FamilySlowBlock,
		Who:    diagnose.ByStorage,
		Shared: true,
		Meaning: "The block device below the file system works, but it is slow. " +
			"Requests complete so slowly, or behind so many others, that the thread has waited for half a minute or more.",
		Remedy: "Wait: the thread resumes when its I/O completes. Find out what keeps {which} busy or limits it, on the node: iostat -x 1. " +
			"Also check throughput and burst credit of a cloud disk, and io.max of the cgroups.",
		Danger: "Do not force-delete, detach or reboot: unwritten data is lost, and the device is not broken.",
		First:  "can wait until its I/O completes. If that takes long, on the node: iostat -x 1 shows how busy {which} is",
		Avoid:  "detaching or rebooting (loses unwritten data)",
	},
	{
		Name:    fact.FamilyGPU,
		Who:     diagnose.ByNode,
		Shared:  true,
		Meaning: "The GPU driver does not return.",
		Remedy: "Look for Xid or reset messages in the kernel log, on the node: dmesg | grep -iE 'xid|nvrm|amdgpu'. Then {drain}. A GPU " +
			"that a process still uses cannot be reset.",
		Danger: "Do not run the GPU vendor's tools (nvidia-smi, rocm-smi) on this node: they hang in the same place.",
		First: "on the node, as root: dmesg | grep -iE 'xid|nvrm|amdgpu' may show the error. If the owners of the node's pods " +
			"agree, drain and reboot the node (see Fix)",
		Avoid: "nvidia-smi or rocm-smi (they hang too)",
	},
	{
		Name:   fact.FamilyIoUring,
		Who:    diagnose.ByNode,
		Shared: true,
		Meaning: "The thread waits for io_uring itself: for one of its locks, or for the end of its workers. " +
			"No other thread of its process still works on a request, so this is most likely a kernel bug. It is inferred, because " +
			"other processes can share a ring.\n\n" +
			"Such a bug met programs, most of them on Node.js, in Linux 6.1.113 to 6.1.115 and 6.6.57 to 6.6.59 (nodejs/node#55587, " +
			"NixOS/nixpkgs#355567, axboe/liburing#1289). " +
			"Amazon Linux 2023 (amazonlinux/amazon-linux-2023#840), Bottlerocket 1.27.1 (bottlerocket-os/bottlerocket#4308) and " +
			"Container-Optimized OS 113 (actions/actions-runner-controller#3903) had it too.\n\n" +
			"A thread that waits for the end of requests is of family Other: direct I/O needs no thread, and a disk or a server can " +
			"hold it up.",
		Remedy: "Wait some minutes. If the thread is still stuck, {drain}. Nothing else is known to end it. Then install a newer kernel than {release}. " +
			"Until then keep the program from using io_uring: for Node.js, set UV_USE_IO_URING=0 in its environment.",
		Danger: "Do not force-delete: the process is alive and holds its files. Another pod of this program may get stuck in the same place on this node.",
		First:  "wait 5 minutes. If still stuck and the owners of the node's pods agree, drain and reboot the node (see Fix)",
		Avoid:  "starting this program there (may hang too)",
	},
	{
		Name:    fact.FamilyOther,
		Who:     diagnose.ByNode,
		Shared:  true,
		Meaning: "The thread waits in a kernel function that nodeagent cannot assign to any of the other families.",
		Remedy:  "On the node, as root: timeout 5 cat /proc/{thread}/stack. Repair what the thread waits for. If that is not possible, {drain}.",
		Danger:  "Do not force-delete: the process is alive and may hold volumes and devices.",
		First: "on the node, as root: timeout 5 cat /proc/{pid}/task/*/stack may name a driver or file system: ask its owner. " +
			"If unclear: see Fix",
	},
}

// wherePhrase says what a stuck thread belongs to.
var wherePhrase = []diagnose.Choice{
	{Text: "container {container}: "},
	{Variant: variantForeign, Text: "in the pod's cgroup, outside all containers, started by {parent}: "},
	{Variant: variantForeign, Text: "in the pod's cgroup, outside all containers: "},
	{Text: ""},
}

// unkillablePhrases say where an unkillable task hangs.
var unkillablePhrases = map[string][]diagnose.Choice{
	"where": wherePhrase,
	"why": {
		{Variant: fact.FamilyNFS, Text: "NFS server {proxied}{server}{of} does not respond"},
		{Variant: fact.FamilyNFS, Text: "an NFS server does not respond"},
		{Variant: fact.FamilyCIFS, Text: "SMB server {server}{of} does not respond"},
		{Variant: fact.FamilyCIFS, Text: "an SMB server does not respond"},
		{Variant: fact.FamilyCeph, Text: "the Ceph cluster{of} does not serve this node's client"},
		{Variant: fact.FamilyFUSE, Text: "the FUSE daemon of {fs} does not respond"},
		{Variant: fact.FamilyFsFrozen, Text: "{fs} is frozen"},
		{Variant: fact.FamilySuspended, Text: "device {mapper}{below} is suspended"},
		{Variant: fact.FamilySuspended, Text: "the device{below} is suspended"},
		{Variant: variantIdle, Text: "it waits for {source}{below}, which has no request in flight"},
		{Variant: fact.FamilyBlock, Text: "I/O on {source}{below} does not complete"},
		{Variant: fact.FamilyBlock, Text: "I/O on device {device} does not complete"},
		{Variant: fact.FamilyBlock, Text: "I/O on a block device does not complete"},
		{Variant: fact.FamilySlowBlock, Text: "I/O on {source}{below} is slow"},
		{Variant: fact.FamilySlowBlock, Text: "I/O on a block device is slow"},
		{Variant: fact.FamilyGPU, Text: "the GPU driver does not return"},
		{Variant: fact.FamilyIoUring, Text: "it waits for io_uring itself, most likely a kernel bug"},
		{Variant: fact.FamilyOther, Text: "it waits in the kernel{on}, for a reason not known"},
		{Text: "what it waits for could not be read"},
	},
	"unless": {{Variant: variantByPath, Text: "It was opening a file below {point}, unless a symbolic link leads elsewhere"}, {Text: ""}},
	// Who has read the stack had the lock for which these reads wait (lock_trace).
	"unreadable": {
		{Variant: variantUnreadable, Text: "Reads of stat, wchan or stack of process {pid} may hang, and so may ps, top, lsof and runc"},
		{Text: ""},
	},
	"stays": {
		{Variant: variantGVisor, Text: "gVisor ({program}, PID {pid} on the node) hangs in D state, so SIGKILL cannot end the pod's program"},
		{Text: "SIGKILL cannot end {program} (PID {pid} on the node, thread in D state)"},
		{Text: "SIGKILL cannot end {comm} (thread in D state)"},
	},
	"pending": {
		{Variant: variantGVisor, Text: "Thread {thread} ({comm}) serves a program of the pod"},
		{Text: "Thread {thread} ({comm}{ring}) has a pending SIGKILL"},
	},
	"asleep": {
		{Text: "Thread {thread} ({comm}) is in state {state} in {function} (system call {syscall}) and did not run between two readings{proof}"},
		{Text: "Thread {thread} ({comm}) is in state {state} in {function} and did not run between two readings{proof}"},
		{Text: "Two readings show the same"},
	},
	"proof": {
		{Variant: variantDead, Text: ". Its block device has requests in flight and completes none"},
		{Variant: fact.FamilySlowBlock, Text: ". Its block device completes other requests"},
		{Variant: fact.FamilyIoUring, Text: ". No thread of its process still works for io_uring"},
		{Text: ""},
	},
	"fs": {
		{Text: "volume {volume} ({fstype} at {point}{inside})"}, {Text: "{fstype} at {point}{inside}"},
		// Of a FUSE file system the one to look for has requests that wait.
		{Variant: fact.FamilyFUSE, Text: "a FUSE file system"}, {Text: "a file system"},
	},
	"of":    {{Text: " (volume {volume} at {point}{inside})"}, {Text: " ({fstype} at {point}{inside})"}, {Text: ""}},
	"on":    {{Text: ", on volume {volume} ({fstype} at {point}{inside})"}, {Text: ", on {fstype} at {point}{inside}"}, {Text: ""}},
	"below": {{Text: " (volume {volume}, {fstype} at {point}{inside})"}, {Text: " ({fstype} at {point}{inside})"}, {Text: " below a file system"}},
	"inside": {
		{Variant: variantOnNode, Text: " on the node"}, {Variant: variantUnplaced, Text: ""}, {Variant: variantForeign, Text: ""},
		{Variant: variantGVisor, Text: ""}, {Text: " in the container"},
	},
	"proxied": {{Variant: variantProxy, Text: "behind proxy "}, {Text: ""}},
	"ring":    {{Variant: variantRing, Text: ", io_uring worker of process {pid}"}, {Text: ""}},
	"about":   {{Text: " ({details})"}, {Text: ""}},
	"which":   {{Text: "device {source}"}, {Text: "device {device}"}, {Text: "the device below the file system"}},
	"cluster": {{Text: " of {source}"}, {Text: ""}},
	"restart": {
		{Text: "find the {fstype} daemon (a sidecar, a CSI pod or a service) with Fix. Ask its owner to repair or restart it"},
		{Text: "on the node, as root: grep -H . /sys/fs/fuse/connections/*/waiting. If one stays above 0, find its daemon with Fix. " +
			"If none: ask the volumes' owners"},
	},
	"waiting": {
		{Text: "Find the {fstype} daemon among the FUSE daemons"},
		{Text: "Find the connection that waits (not 0), on the node: grep -H . /sys/fs/fuse/connections/*/waiting. Then find its daemon"},
	},
	"restored": {
		{Variant: variantIdle, Text: "Find what holds the I/O back at {which}. On the node: dmsetup status (a thin pool that is out of data space queues), " +
			"cat /sys/fs/cgroup/kubepods*/io.max (throttling), and the threads in D state: ps -eLo stat,pid,wchan:30,comm | grep ^D"},
		{Text: "Restore {which} (path, array, cloud disk, nbd server); the thread resumes when its I/O completes or fails"},
	},
	"revive": {
		{Variant: variantIdle, Text: "on the node, as root: dmsetup status. If a thin pool shows out_of_data_space, extend it. If not: Fix"},
		{Variant: variantDead, Text: "restore {which} (path, array, cloud disk, nbd server). The process then exits. If it never returns: Fix"},
		{Text: "on the node: grep . /sys/block/*/stat twice. If number 1 or 5 (completed) of the device grows, wait. If not, restore it " +
			"(path, array, cloud disk)"},
	},
	// Where it may only be slow, a reboot loses what is not written yet.
	"never": {{Variant: variantDead, Text: " If it never returns, {drain}."}, {Text: ""}},
	"slow": {
		{Variant: variantDead, Text: ""}, {Variant: variantIdle, Text: ""},
		{Text: "First check whether it is only slow, on the node: iostat -x 1, or grep . /sys/block/*/stat twice. If number 1 or 5 (completed) grows, wait. "},
	},
	// What ends the other pods of the node too.
	"drain": {
		{Text: "ask the owners of the node's pods, drain the node and reboot it. kubectl drain --skip-wait-for-delete-timeout=60 does not wait for this pod"},
	},
	"release": {{Text: "its Linux {kernel}"}, {Text: "it has"}},
	"nfsfirst": {
		{Variant: variantProxy, Text: "on the node, as root: ss -tlnp. If no proxy listens on {server}, restore it. If one does, restore the NFS server behind it"},
		{Text: "restore NFS server {server} (usually port 2049) or the network to it, at the same address. If it never returns: Fix"},
		{Text: "on the node: ss -tno dport = :2049 shows the dead NFS server in SYN-SENT or retransmitting. Restore it. If none: ask the " +
			"volumes' owners"},
	},
	"smbfirst": {
		{Text: "restore SMB server {server} (usually port 445) or the network to it. A soft mount (the default) gives up after 3 minutes (loses " +
			"writes)"},
		{Text: "cat /proc/fs/cifs/DebugData on the node shows the SMB server to restore. A soft mount (the default) gives up after 3 minutes " +
			"(loses writes)"},
	},
	"nfs": {
		// A mount that is encrypted by a program of the node, as Amazon's EFS is.
		{Variant: variantProxy, Text: "the proxy that listens on {server} of this node, and the NFS server behind it,"},
		{Text: "NFS server {server}"},
		{Text: "the NFS server that does not respond (on the node: ss -tno dport = :2049 shows SYN-SENT or retransmissions)"},
	},
	"smb": {
		{Text: "SMB server {server}"},
		{Text: "the SMB server that does not respond (on the node: cat /proc/fs/cifs/DebugData)"},
	},
	"resume": {
		{Text: "dmsetup resume {mapper}"},
		{Text: "dmsetup info shows the device that is SUSPENDED; run dmsetup resume with its name"},
	},
}

const (
	variantDead       = "Dead"       // a block device that has requests in flight and completes none
	variantIdle       = "Idle"       // a block device that has no requests in flight
	variantByPath     = "ByPath"     // a mount that only the path of a blocked open leads to
	variantProxy      = "Proxy"      // a server whose address is one of the node itself
	variantForeign    = "Foreign"    // a process that was put into the pod's cgroup from outside
	variantRing       = "Ring"       // a thread that io_uring has started
	variantUnreadable = "Unreadable" // a task whose stack cannot be read, as others' reads of it hang too
	variantGVisor     = "GVisor"     // a thread of gVisor, which has got no SIGKILL
	variantOnNode     = "OnNode"     // a mount whose path is the same on the node
	variantUnplaced   = "Unplaced"   // a mount whose path may be one of the node, or of a container
)

// ofNoContainer reports whether a task is in the pod's own cgroup, or in one below it that is no container's. Neither the kubelet nor the
// runtime puts tasks there. A task that has left its cgroup while it exits is in none.
func ofNoContainer(p *fact.View, t *evidence.Task) bool {
	if _, known := p.Container(t.Container); known || len(t.Container) == containerID || t.Exiting() || fact.OfGVisor(p, t) {
		return false
	}
	if parent, inside := fact.ByID(p, t.PPID); parent != nil && !inside && fact.Essential(parent) && parent.PID != 1 {
		return false // the runtime's own
	}
	return slices.ContainsFunc(p.Cgroups, func(c evidence.Cgroup) bool { return c.Container == t.Container && c.Threads > 0 })
}

// inTheWay reports whether a task is not one of no container that came from the node, or the kubelet is done with the containers and the volumes.
// It empties the pod's cgroup only after these. A task that has left a container is in the way.
func inTheWay(p *fact.View, t *evidence.Task) bool {
	return p.HostPID || len(t.NSpid) > 1 || !ofNoContainer(p, t) ||
		p.ContainersEnded() && len(p.Mounts) == 0 && !fact.DevicesLeft(p) && !fact.VolumesLeft(p) && fact.Unmounter(p) == nil
}

// containerID is the length of containerd's IDs. It tells the cgroup of a container that has been deleted, which is not listed any more.
const containerID = 64

// stuckFacts are what the causes about stuck threads ask of each after what tells them apart. On a starved node the time may not suffice to read
// all threads of a pod.
var stuckFacts = []diagnose.Fact[*evidence.Task]{
	{Says: "Two readings three seconds or more apart show the same state and the same number of context switches.", Is: motionless},
	{Says: "The time between the readings is ten seconds where a device, a daemon or a reachable server may just be slow. It is thirty where the " +
		"disk works, forty-five where the thread waits for io_uring, and sixty where the kernel waits for its own processors (RCU)."},
	{Says: "The thread is in no frozen cgroup.", Is: diagnose.If(isThawed), From: cgroups},
	{Says: "If not all suspicious threads of the pod could be read: the kernel stack of this one could.", Is: stackIsRead},
	{Says: "If not all could be read: a wait for a lock has lasted sixty seconds, and a wait for an unknown disk thirty.", Is: outlastsUnread},
	{Says: "A wait for a lock has lasted as long as any thread of the container in state D may take: that one may hold the lock.",
		Is: outlastsOthers},
	{Says: "A thread that waits for io_uring waits for no other thread, which works or hangs elsewhere.", Is: awaitsNoThread},
}

// asleepFacts tell a task that sleeps where not even SIGKILL ends it from those that are about to exit, or to execute another program.
var asleepFacts = []diagnose.Fact[*evidence.Task]{
	{Says: "The kernel function that the thread sleeps in could be read, or a read of its files in /proc did not return.",
		Is: diagnose.If(isAsleep), Partly: stuckPartly},
	{Says: "The thread does not exit: that is StuckInExit.", Is: diagnose.If(staysAlive)},
	{Says: "The thread is not inside execve: that is StuckInExec.", Is: diagnose.If(isNotInExec)},
}

// stuckPartly is the source of what tasks sleep in. A thread of which that was not read may be stuck too.
var stuckPartly = []evidence.Source{evidence.Suspects}

// isAsleep reports whether a task sleeps. One of which the probe shows no function was not asleep any more when it was probed.
func isAsleep(_ *fact.View, t *evidence.Task) bool {
	return t.Probe != nil && (fact.SleepsIn(t) != "" || len(t.Probe.Hung) > 0)
}

func staysAlive(_ *fact.View, t *evidence.Task) bool { return !fact.Exits(t) }

func isNotInExec(_ *fact.View, t *evidence.Task) bool { return !fact.InExec(t) }

func sleeps(_ *fact.View, t *evidence.Task) bool {
	return t.State == evidence.Sleeping || t.State == evidence.Uninterruptible
}

func uninterruptible(_ *fact.View, t *evidence.Task) bool { return t.State == evidence.Uninterruptible }

// killPending answers whether SIGKILL is pending in a task.
func killPending(p *fact.View, t *evidence.Task) diagnose.Holding {
	if h := killDue(p, t); !h.Yes() {
		return h
	}
	return diagnose.Is(t.Killed())
}

// killDue answers whether SIGKILL is pending in a task, or the kubelet has had the time to have the pod killed. The deletion of a mirror pod has
// nothing killed.
func killDue(p *fact.View, t *evidence.Task) diagnose.Holding {
	if t.Killed() || p.Kill.Done || p.Mirror {
		return diagnose.Is(t.Killed() || p.Kill.Done)
	}
	return diagnose.NotYet(diagnose.Waits(p.Deadline, p.Kill.Late+fact.StepPatience(p), diagnose.Late))
}

func motionless(p *fact.View, t *evidence.Task) diagnose.Holding {
	return diagnose.Still(p, t, fact.Motionless(t))
}

func isThawed(p *fact.View, t *evidence.Task) bool { return fact.FrozenGroup(p, t) == nil }

// stackIsRead answers whether the stack of a task was read, where not all tasks were: else it is not known whether it exits, is in execve or waits
// for RCU.
func stackIsRead(p *fact.View, t *evidence.Task) diagnose.Holding {
	if fact.Missing(p, evidence.Suspects) && t.Probe != nil && len(t.Probe.Stack) == 0 {
		return diagnose.NotRead(evidence.Suspects)
	}
	return diagnose.Is(true)
}

// outlastsUnread answers whether a task that waits for a lock does not merely wait behind one that was not read, which may take its time. Where its
// own files were not all read, it may also wait for a disk that works.
func outlastsUnread(p *fact.View, t *evidence.Task) diagnose.Holding {
	if !fact.Missing(p, evidence.Suspects) || t.Probe != nil && t.Probe.Mount != nil {
		return diagnose.Is(true)
	}
	return diagnose.Still(p, t, map[string]time.Duration{fact.FamilyOther: fact.SlowRCU, fact.FamilyBlock: fact.SlowDisk}[fact.FamilyOf(t)])
}

// outlastsOthers answers whether a task that waits for a lock does not merely wait behind another one of its container, held up by a disk that
// works, or may work, or by what takes as long or longer, such as RCU.
func outlastsOthers(p *fact.View, t *evidence.Task) diagnose.Holding {
	var long time.Duration
	for i := range p.Tasks {
		switch o := &p.Tasks[i]; {
		case fact.FamilyOf(t) != fact.FamilyOther, o.Container != t.Container, o.State != evidence.Uninterruptible:
		case o.Probe == nil:
			long = max(long, fact.SlowRCU)
		default:
			long = max(long, fact.Motionless(o))
		}
	}
	return diagnose.Still(p, t, long)
}

// awaitsNoThread answers whether a task does not wait in io_uring for another thread, which may get on at any time (awaitsThread).
func awaitsNoThread(p *fact.View, t *evidence.Task) diagnose.Holding {
	switch {
	case !awaitsThread(p, t):
		return diagnose.Is(true)
	case fact.Missing(p, evidence.Suspects):
		return diagnose.NotRead(evidence.Suspects)
	}
	return diagnose.NotYet(diagnose.Seen(p, diagnose.Slow))
}

// tellStuck tells of each container that has stuck tasks. The task that tells most is named, the others are counted.
func tellStuck(p *fact.View, found []*evidence.Task) []diagnose.Finding {
	stuck := make(map[string][]*evidence.Task)
	for _, t := range found {
		stuck[t.Container] = append(stuck[t.Container], t)
	}
	var out []diagnose.Finding
	for _, c := range slices.Sorted(maps.Keys(stuck)) {
		tasks := stuck[c]
		slices.SortStableFunc(tasks, func(a, b *evidence.Task) int {
			return cmp.Or(cmp.Compare(telling(b), telling(a)), cmp.Compare(a.TID, b.TID))
		})
		out = append(out, stuckFinding(p, tasks))
	}
	return out
}

// telling orders tasks by how much they show of what holds them: one with a mount comes before one with only a stack. A task that merely waits
// for the inode lock of another one names no file system. One that waits for io_uring does not even show what makes no progress.
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
	if f.Family == fact.FamilyOther && fact.Through(t, "exit_aio") && onlyDevice(p) != "" {
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
	if m == nil && opensBelow(t) {
		m, f.Variants = t.Probe.Mount, append(f.Variants, variantByPath)
	}
	if m != nil {
		f.Objects.Mount = diagnose.MountOf(p, m)
		switch b := fact.Backing(m); {
		case b.Point == b.HostPoint:
			f.Variants = append(f.Variants, variantOnNode)
		case t.Probe.Mount == nil: // a task that has left its namespaces is given the node's mounts
			f.Variants = append(f.Variants, variantUnplaced)
		}
	} else if f.Family == fact.FamilyBlock {
		f.Objects.Device = onlyDevice(p)
	}
	if !refine(p, t, &f, m, certain) {
		f.Confidence = diagnose.Inferred
	}
	return f
}

// onlyDevice returns the device for which threads of the kernel are stuck, when
// there is one such device on the node.
func onlyDevice(p *fact.View) string {
	var devices []string
	for i := range p.Node.Blocked {
		if d := fact.DeviceOf(p, &p.Node.Blocked[i]); d != "" && !slices.Contains(devices, d) {
			devices = append(devices, d)
		}
	}
	if len(devices) != 1 {
		return ""
	}
	return devices[0]
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

// refine adds to a finding what its family makes of the mount, and reports whether that is proved, given whether the mount is certain. A disk
// that works is another family, and so is io_uring that is not at fault.
func refine(p *fact.View, t *evidence.Task, f *diagnose.Finding, m *evidence.Mount, certain bool) bool {
	switch f.Family {
	case fact.FamilyBlock:
		if fact.WorkingDisk(t.Probe.Mount) {
			f.Family = fact.FamilySlowBlock
			return false // its request may be the one that is lost
		}
		switch {
		case idleDisk(m):
			f.Variants = append(f.Variants, variantIdle)
			return false
		case !deadDisk(m):
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

// freezeUnderWay reports whether a task of the node is freezing a file system and waits for its writers (freeze_super, fs/super.c). What the
// writers wait for then holds up the others, and there is nothing to thaw yet.
func freezeUnderWay(p *fact.View) bool {
	return slices.ContainsFunc(p.Node.Blocked, func(t evidence.Task) bool { return fact.Through(&t, "freeze_super") })
}

// culprit returns the mount that a task hangs on, nil when it is not known: a wrong name is worse than none. Certain reports whether no other
// mount is possible. A mount that was not found through an open file is named only if it shows a reason of its own. A close, or the end of a
// process, leaves no descriptor to follow, and a path may lead through a link. Such a mount is certain only if it is the one FUSE connection of
// the node that has requests waiting.
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

// opensBelow reports whether a task hangs as it opens a file whose path leads to a mount. A symbolic link in the path may lead elsewhere, most
// often out of the container's own root, which is never named. The mount is still worth naming: it is where to look first.
func opensBelow(t *evidence.Task) bool {
	if t.Probe == nil || t.Probe.Mount == nil || !t.Probe.Indirect || t.Probe.Via != "path" || t.Probe.Mount.Point == "/" {
		return false
	}
	family := fact.FamilyOf(t)
	return family == fact.FamilyFsFrozen || family == fact.FamilyBlock
}

// deadDisk reports whether the block device below a mount has requests under way and
// has completed none for long: a disk that is merely slow completes some.
func deadDisk(m *evidence.Mount) bool {
	d := fact.DiskOf(m)
	return d != nil && d.InFlight > 0 && d.Still() >= fact.SlowDevice
}

// idleDisk reports whether the block device below a mount has had no request under way for long. What is waited for is above it, or in it:
// a target of the device mapper that keeps requests, as a thin pool without space does, counts them when it hands them on
// (accounts_remapped_io, drivers/md, since Linux 5.18).
func idleDisk(m *evidence.Mount) bool {
	d := fact.DiskOf(m)
	return d != nil && !d.Suspended && d.InFlight == 0 && d.Still() >= fact.SlowDevice
}

// suspicious reports whether a mount itself shows a reason for a task to wait as this one does.
func suspicious(p *fact.View, t *evidence.Task, m *evidence.Mount) bool {
	switch family := fact.FamilyOf(t); family {
	case fact.FamilyFUSE:
		return m.FUSEWaiting != nil && *m.FUSEWaiting > 0
	case fact.FamilyNFS, fact.FamilyCIFS:
		// A server that works has requests in flight too, when it is busy.
		return fact.OutOfReach(m) || m.Unanswered != nil && *m.Unanswered > 0 && m.Connection != evidence.Established
	case fact.FamilySuspended:
		return true
	case fact.FamilyBlock:
		return deadDisk(m)
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
