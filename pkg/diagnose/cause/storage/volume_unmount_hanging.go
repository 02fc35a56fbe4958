package storage

import (
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
	Needs:  []evidence.Source{evidence.Mounts, evidence.Kubelet},
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
		Evidence: []string{
			"A thread of the kubelet, or a thread of any process inside umount2, has not moved in two readings ten seconds or more apart.",
			"The thread is in state D, or waits for a FUSE daemon, which shows as S.",
			"The path of its blocked system call is a volume of this pod.",
			"A process of another pod counts only if that pod is the one of the volume's CSI driver.",
			"Inferred if the kubelet only checks how full the volume is (statfs).",
			"Not reported if the file system is NFS, SMB or Ceph, and the thread is the kubelet's: that is NetworkFilesystemUnreachable.",
		},
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
	Check: func(p *fact.View) diagnose.Result {
		t := fact.Unmounter(p)
		if t == nil || t.AwaitsScanner() || t.Unchanged(p.Time) < fact.SlowDevice {
			return diagnose.Result{}
		}
		f := diagnose.Finding{Confidence: diagnose.Proved, Objects: diagnose.Objects{Thread: diagnose.ThreadOf(t), Process: diagnose.ProcessOf(p, t)}}
		if fact.OnlyCounted(p) {
			f.Confidence = diagnose.Inferred
		}
		if t.Probe.Syscall != "umount2" {
			f.Variants = []string{asking}
		}
		m := volumeMount(p, t.Probe.VolumePath)
		switch {
		case m != nil && !agrees(t, m):
			return diagnose.Result{} // it waits for something that is mounted inside
		case m != nil && fact.NetworkFamily(m.Type) != "" && t.Owner == "kubelet":
			return diagnose.Result{} // NetworkFilesystemUnreachable
		case m != nil:
			f.Objects.Mount = diagnose.MountOf(p, m)
			f.Objects.Volumes = []string{m.Volume}
			if fact.FamilyOfType(m.Type) == fact.FamilyFUSE {
				f.Family, f.Objects.DriverPod = fact.FamilyFUSE, driverPod(p, m)
				if m.Plugin == "kubernetes.io~csi" {
					f.Variants = append(f.Variants, ofCSI)
				}
			}
		case t.Probe.Syscall == "umount2":
			f.Variants = append(f.Variants, detached)
			f.Objects.Volumes = []string{volumeOf(t.Probe.VolumePath)}
		default:
			return diagnose.Result{} // it may wait for the kubelet's own disk
		}
		return diagnose.Found(f)
	},
}
