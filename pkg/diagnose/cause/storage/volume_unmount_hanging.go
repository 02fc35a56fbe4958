package storage

import (
	"slices"
	"strings"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// detached is the variant of a volume that is no longer in the mount table.
const detached = "Detached"

// asking is the variant of a thread in a system call other than umount2.
const asking = "Asking"

// ofCSI is the variant of a volume that a CSI driver has mounted.
const ofCSI = "CSI"

// namesBackend is what to do about the log of a CSI driver that runs FUSE daemons.
const namesBackend = "names a backend that does not respond, restore that. If not, ask the driver's owner"

// VolumeUnmountHanging is a thread that hangs in the kernel while it tears down a volume
// whose file system is no network file system.
var VolumeUnmountHanging = &diagnose.Rule{
	Cause:  "VolumeUnmountHanging",
	Phases: []diagnose.Phase{diagnose.Volumes},
	Doc: diagnose.Doc{
		Layer:   "storage",
		Title:   "unmounting a volume hangs in the kernel",
		Who:     diagnose.ByStorage,
		Message: "volume {volumes}: a thread of {process} is blocked {where}; {on} does not respond",
		Phrases: map[string][]diagnose.Choice{
			"where": {{Variant: asking, Text: "before unmounting it"}, {Text: "while unmounting it"}},
			"on": {
				{Variant: detached, Text: "the file system (already detached)"},
				{Text: "its {fstype} file system"},
				{Text: "its file system"},
			},
			"from":       {{Text: ", source {source}"}, {Text: ""}},
			"filesystem": {{Text: "{mountpoint}"}, {Text: "the volume"}},
			"first": {
				{Text: "pod {driverpod} of its CSI driver"}, {Variant: ofCSI, Text: "the pod of its CSI driver on this node"},
				{Text: "the process that has /dev/fuse open for it"},
			},
			"log": {
				{Text: "if the log of the driver's pod {driverpod} (cluster rights) " + namesBackend},
				{Variant: ofCSI, Text: "if the log of the driver's pod on this node (cluster rights) " + namesBackend},
				{Text: "on the node, as root: find /proc/[0-9]*/fd -lname /dev/fuse lists the FUSE daemons. " +
					"Ask the owner of the volume's daemon to repair it"},
			},
		},
		Meaning: "The containers have exited, and the pod's volume has to be unmounted. The kubelet, or the program that unmounts for it, makes a " +
			"system call on the file system and gets no response. It waits in the kernel without a time limit. The kubelet logs nothing about " +
			"it and reports itself healthy.",
		Seen: []string{
			"Thread {thread} is in state {state}, in the system call {syscall} ({function})",
			"The volume is mounted at {mountpoint} (type {fstype}{from})",
			"No process of the pod is left",
		},
		Remedy: "First check whether the disk is only slow: on the node, run iostat -x 1. " +
			"Repair what is behind {filesystem} (a disk, a server, a daemon); the thread then resumes. " +
			"If it can never respond again, ask the volume's owner: what is not written is lost. " +
			"Then drain the node (kubectl drain --skip-wait-for-delete-timeout=60 does not wait for this pod) and reboot it.",
		Danger: "umount -l hides the mount and leaves the thread. ls or df on the mount can hang your shell. Restarting the kubelet " +
			"leaves the thread and can hang the new kubelet. " +
			"A force delete leaves the volume attached to this node, and another node may mount it too.",
		First: "on the node, as root: if dmesg shows I/O errors, restore that disk or server. " +
			"If iostat -x 1 shows r/s or w/s, wait. If neither, ask its owner",
		Avoid: "ls or df on the mount (can hang your shell)",
		Families: []diagnose.Family{{
			Name: fact.FamilyFUSE,
			Meaning: "The daemon of a FUSE file system, such as gcsfuse, s3fs, rclone or JuiceFS, does not respond. Often its process is stopped or " +
				"waits for its own backend, or a CSI driver's pod that ran it is being replaced. The daemon can be a process of the node, or of " +
				"another pod than the driver's. It has /dev/fuse open.",
			Remedy: "Check {first}, and repair or restart the volume's FUSE daemon. Ask first: a restart affects every user of that mount. " +
				"If that does not help, ask the volume's owner: an abort ends all waits on this mount immediately and loses writes that the daemon has not stored. " +
				"Then, on the node: {abort}.",
			Danger: "Restarting the daemon or aborting the connection affects every user of that mount. umount -l hides the mount and leaves the thread. " +
				"ls or df on the mount hangs your shell. Restarting the kubelet leaves the thread and can hang the new kubelet. " +
				"A force delete leaves the volume mounted on this node.",
			First: "{log}",
			Avoid: "ls or df there (hang), a restart unasked (breaks mounts)",
		}},
	},
	By: diagnose.By[*evidence.Task]{
		From: []evidence.Source{evidence.Kubelet},
		Of:   unmounters,
		Facts: slices.Concat([]diagnose.Fact[*evidence.Task]{
			{Says: "The thread is one of the kubelet's, or one of any process inside umount2. " +
				"It is in state D, or waits for a FUSE daemon, which shows as S."},
		}, blockedOnVolume, []diagnose.Fact[*evidence.Task]{
			{
				Says: "Its process belongs to no pod, or to the pod of the volume's CSI driver.",
				Is:   diagnose.If(servesVolumes), Partly: []evidence.Source{evidence.Volumes},
			},
			{Says: "Its process does not belong to this pod.", Is: diagnose.If(isNotOfPod)},
			{Says: "The volume is in the mount table, or the thread is inside umount2. Otherwise it may wait for the kubelet's own disk.",
				Is: diagnose.If(isOnVolume), From: []evidence.Source{evidence.Mounts}},
			{Says: "If the volume is mounted, the thread waits for its file system, not for another one that is mounted inside.",
				Is: diagnose.If(waitsForVolume), From: []evidence.Source{evidence.Mounts}},
			{Says: "The file system is not NFS, SMB or Ceph, or the thread is not the kubelet's. Otherwise, it is NetworkFilesystemUnreachable.",
				Is: diagnose.If(isNotOnNetwork), From: []evidence.Source{evidence.Mounts}},
			{Says: "The thread has not moved in two readings ten seconds or more apart.", Is: hangsOnDevice},
			{Says: "Inferred if the kubelet only checks how full the volume is (statfs)."},
		}),
		Tell: diagnose.Each(tellUnmountHangs),
	},
}

// blockedOnVolume are the facts about a thread that is blocked on a volume of the pod, whatever its file system is.
var blockedOnVolume = []diagnose.Fact[*evidence.Task]{
	{Says: "The path of the thread's blocked system call is a volume of this pod.", Is: diagnose.If(isInVolume)},
	{Says: "Of several such threads, it is one of the kubelet's if there is one, and of those the one that has not moved for longest.",
		Is: diagnose.If(isFirstBlocked)},
	awaitsNoListener,
}

// awaitsNoListener is the fact that a thread does not wait for a program that scans files: no volume holds it then.
var awaitsNoListener = diagnose.Fact[*evidence.Task]{
	Says: "The thread does not wait for a fanotify permission listener (antivirus, EDR): that is FileScannerNotAnswering.",
	Is:   diagnose.If(awaitsNoScanner),
}

// kubeletBlocked returns the threads of the kubelet that are in state D, or wait for a FUSE daemon.
func kubeletBlocked(p *fact.View) (out []*evidence.Task) {
	for i := range p.Node.Kubelet.Blocked {
		out = append(out, &p.Node.Kubelet.Blocked[i])
	}
	return out
}

// unmounters returns the blocked threads of the kubelet, and those of other processes of the node that are inside umount2.
func unmounters(p *fact.View) []*evidence.Task {
	out := kubeletBlocked(p)
	for i := range p.Node.Blocked {
		if t := &p.Node.Blocked[i]; isInUmount(t) {
			out = append(out, t)
		}
	}
	return out
}

// volumePath returns the path of a volume on which a thread is blocked, "" where there is none, or it could not be read.
func volumePath(t *evidence.Task) string {
	if t.Probe == nil {
		return ""
	}
	return t.Probe.VolumePath
}

func isInUmount(t *evidence.Task) bool { return t.Probe != nil && t.Probe.Syscall == "umount2" }

func isInVolume(p *fact.View, t *evidence.Task) bool {
	return p.RuntimeUID != "" && strings.Contains(volumePath(t), "/pods/"+p.RuntimeUID+"/")
}

// isFirstBlocked reports whether a thread is the one that tells of all that are blocked on the pod's volumes (fact.Unmounter). One that was
// just blocked may become it.
func isFirstBlocked(p *fact.View, t *evidence.Task) bool {
	first := fact.Unmounter(p)
	return first == nil || first == t || t.Unchanged(p.Time) < fact.LeastStill
}

func awaitsNoScanner(_ *fact.View, t *evidence.Task) bool { return !t.AwaitsScanner() }

// servesVolumes reports whether a thread is of the node, or of the pod of a CSI driver of the pod's volumes. Any other pod may have a path of that
// name in a mount namespace of its own.
func servesVolumes(p *fact.View, t *evidence.Task) bool { return !t.InPod() || ofDriverPod(p, t) }

func isNotOfPod(p *fact.View, t *evidence.Task) bool { return t.Owner != p.RuntimeUID }

func isOnVolume(p *fact.View, t *evidence.Task) bool {
	return isInUmount(t) || volumeMount(p, volumePath(t)) != nil
}

func waitsForVolume(p *fact.View, t *evidence.Task) bool {
	m := volumeMount(p, volumePath(t))
	return m == nil || agrees(t, m)
}

func isNotOnNetwork(p *fact.View, t *evidence.Task) bool {
	m := volumeMount(p, volumePath(t))
	return m == nil || fact.NetworkFamily(m.Type) == "" || t.Owner != "kubelet"
}

func hangsOnDevice(p *fact.View, t *evidence.Task) diagnose.Holding {
	return diagnose.Still(p, t, fact.SlowDevice)
}

func tellUnmountHangs(p *fact.View, t *evidence.Task) diagnose.Finding {
	f := diagnose.Finding{Confidence: diagnose.Proved, Objects: diagnose.Objects{Thread: diagnose.ThreadOf(t), Process: diagnose.ProcessOf(p, t)}}
	if fact.OnlyCounted(p) {
		f.Confidence = diagnose.Inferred
	}
	if !isInUmount(t) {
		f.Variants = []string{asking}
	}
	m := volumeMount(p, volumePath(t))
	if m == nil {
		f.Variants = append(f.Variants, detached)
		f.Objects.Volumes = []string{volumeOf(volumePath(t))}
		return f
	}
	f.Objects.Mount, f.Objects.Volumes = diagnose.MountOf(p, m), []string{m.Volume}
	if fact.FamilyOfType(m.Type) == fact.FamilyFUSE {
		f.Family, f.Objects.DriverPod = fact.FamilyFUSE, driverPod(p, m)
		if m.Plugin == "kubernetes.io~csi" {
			f.Variants = append(f.Variants, ofCSI)
		}
	}
	return f
}
