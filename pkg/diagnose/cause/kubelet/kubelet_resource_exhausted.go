package kubelet

import (
	"slices"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// The variants of KubeletResourceExhausted.
const (
	aVolume     = "Volume"      // the kubelet cannot tear a volume down
	unwitnessed = "Unwitnessed" // the kubelet's counts cannot be read
)

// KubeletResourceExhausted is a kubelet that may open no file, or whose directory is on a disk that is full or
// read-only, so that it cannot end any pod.
//
// When the containers have ended, the kubelet unprepares the pod's resource claims and writes a new checkpoint, also for a pod without claims
// (unprepareResources, pkg/kubelet/cm/dra/manager.go). Only then does it write that the containers have ended (SyncTerminatingPod,
// pkg/kubelet/kubelet.go).
//
// The number of the kubelet's tasks is not looked at.
var KubeletResourceExhausted = &diagnose.Rule{
	Cause:  "KubeletResourceExhausted",
	Phases: []diagnose.Phase{diagnose.DynamicResources, diagnose.Volumes, diagnose.Cleanup},
	Needs:  []evidence.Source{evidence.Processes},
	Partly: []evidence.Source{evidence.Limits, evidence.Containers, evidence.Cgroups, evidence.Claims, evidence.ClaimCalls, evidence.Volumes,
		evidence.VolumeCalls},
	Doc: diagnose.Doc{
		Layer:   "kubelet",
		Title:   "the kubelet lacks open files, disk space or write access",
		Who:     diagnose.ByNode,
		Message: "{short}, so the kubelet {what}",
		Phrases: map[string][]diagnose.Choice{
			"what": {
				{Variant: aVolume, Text: "cannot tear down volume {volumes}"},
				{Variant: unwitnessed, Text: "does not complete the deletion, though all containers have exited"},
				{Text: "cannot save its state and complete the deletion"},
			},
			"short": {
				{Variant: evidence.Descriptors, Text: "{process} has reached its open file limit (RLIMIT_NOFILE {limit})"},
				{Variant: evidence.Space, Text: "on the node, the file system of {dir} is full (size {size})"},
				{Variant: evidence.Inodes, Text: "on the node, the file system of {dir} has no free inode (of {limit})"},
				{Variant: evidence.ReadOnly, Text: "on the node, the file system of {dir} is read-only"},
				{Text: "the kubelet lacks a resource"},
			},
			"lack": {
				{Variant: evidence.Descriptors, Text: "{process} has used all {limit} open files of its limit, in all readings over ten seconds or more"},
				{Variant: evidence.Space, Text: "The file system at {dir} ({size}) has less than 1 MiB free, in all readings over ten seconds or more"},
				{Variant: evidence.Inodes, Text: "The file system at {dir} has no free inode (of {limit}), in all readings over ten seconds or more"},
				{Variant: evidence.ReadOnly, Text: "The file system at {dir} is read-only, in all readings over ten seconds or more"},
				{Text: "The kubelet lacks the same resource in all readings over ten seconds or more"},
			},
			"effect": {
				{Variant: aVolume, Text: "The kubelet's count of failed teardowns has increased since then, for the plugin of volume {volumes} " +
					"(storage_operation_duration_seconds)"},
				{Variant: unwitnessed, Text: "The kubelet's port has not responded for ten seconds or more, and nothing has changed about the pod for a minute"},
				{Text: "Since then at least two of the kubelet's attempts to unprepare claims, which write its checkpoint (dra_manager_state), " +
					"have failed, and none has succeeded (dra_operations_duration_seconds)"},
			},
			"du":      {{Text: "df {root}, then du -xh -d 3 of its mount point"}, {Text: "du -xh -d 3 of the mount point"}},
			"inodes":  {{Text: "df {root}, then du -x --inodes -d 3 of its mount point"}, {Text: "du -x --inodes -d 3 of the mount point"}},
			"findmnt": {{Text: "findmnt -T {root}"}, {Text: "findmnt"}},
		},
		Seen:  []string{"All containers of the pod have exited", "{lack}", "{effect}"},
		First: "on the node: make room as Fix says. The kubelet retries within 15 seconds",
		Meaning: "When the containers of a pod have ended, the kubelet writes a file: its checkpoint of resource claims " +
			"(dra_manager_state). Only then does it write that they have ended. " +
			"Kubernetes 1.34 and later writes that file for each pod, with resource claims or without. The kubelet also tears " +
			"volumes down, which removes directories. " +
			"Where these fail, no pod of the node terminates. Nothing is wrong with the pod.",
		Evidence: []string{
			"All containers of the pod have ended.",
			"The kubelet has lacked the same resource in all readings over ten seconds or more. A shorter lack is not reported.",
			"Open files: it has as many open as /proc/PID/limits allows.",
			"Disk: the file system of its directory is read-only, has no free inode, or has less than 1 MiB free, for root too " +
				"(statfs).",
			"After both, at least two of its attempts to unprepare claims have failed, for whichever pods, and none has succeeded " +
				"(dra_operations_duration_seconds).",
			"Or its count of failed attempts at volumes has grown for the plugin of a volume that is left " +
				"(storage_operation_duration_seconds).",
			"A kubelet that may open no file may also take no connection and report no counts. Then it is enough that its port has not " +
				"responded for ten seconds, and nothing has changed about the pod for a minute.",
			"It is always inferred.",
			"On a disk with room for the checkpoint (64 KiB or more), attempts to unprepare claims do not count while calls of a DRA " +
				"driver fail.",
			"Attempts at volumes do not count on a full disk, where files can be removed. Nor do they for a lack of open files if the " +
				"CSI driver has responded with an error.",
		},
		Remedy: "On the node: make room. The kubelet retries within 15 seconds.",
		Danger: "Do not force-delete the pods of this node: their volumes stay mounted there, with no API object tracking them. " +
			"Their mounts from other disks stay too.",
		Families: []diagnose.Family{
			{
				Name: evidence.Descriptors,
				Meaning: "Each connection, watch and exec takes some of the kubelet's open files. A limit below some tens of thousands " +
					"(LimitNOFILE of its unit) is too low for it. With a higher one something leaks. " +
					"Probes of running pods fail too, and the kubelet restarts their containers, nodeagent's among them, which it then cannot start.",
				First: "on the node, as root: save the output of ls -l /proc/{pid}/fd, then systemctl restart kubelet (containers keep running)",
				Avoid: "a reboot (ends all pods of the node)",
				Remedy: "On the node: ls -l /proc/{pid}/fd shows what {process} has open. Then restart it: systemctl restart kubelet. Containers keep running. " +
					"Where the kubelet is part of another program, as of K3s, restart that program's unit. " +
					"Without a restart: {raisefiles}. Choose a LIMIT above {limit}. " +
					"For the future: raise LimitNOFILE of its unit, or repair the leak.",
			},
			{
				Name: evidence.Space,
				Meaning: "The kubelet evicts pods before its disk is full (evictionHard), but evicted pods need the same file written. " +
					"It does not stop what fills the disk faster than it checks, or what is not in its pods.",
				First: "on the node, as root: {du}. If /var/lib/kubelet is biggest: du -xh -d2 of its pods directory, and ask that pod's owner. If not: Fix",
				Avoid: "rm in the kubelet's directory (has pods' data)",
				Remedy: "On the node, find what fills the file system: {du}. Remove files known to be unneeded, such as old logs, or make the file system larger. " +
					"What a running container has written: ask its owner, and remove it inside of the container with kubectl exec. " +
					"What df counts and du does not show is in deleted files that are still open: find /proc/[0-9]*/fd -lname '*(deleted)'. The " +
					"kubelet retries within 15 seconds.",
				Danger: "Do not remove anything in the kubelet's directory by hand: below pods are the volumes of running pods, with their data. " +
					"Do not force-delete the pods of this node: their data stays on it, and so do their mounts.",
			},
			{
				Name: evidence.Inodes,
				Meaning: "Each file and directory needs an inode. ext4 has a number of inodes that is set when it is made. Many small files use " +
					"them up while there is space.",
				First:  "on the node, as root: {inodes}. If /var/lib/kubelet has most: the same for its pods directory, and ask that pod's owner. If not: Fix",
				Avoid:  "rm in the kubelet's directory (has pods' data)",
				Remedy: "On the node, find where the files are: {inodes}. Remove files known to be unneeded. The kubelet retries within 15 seconds.",
				Danger: "Do not remove anything in the kubelet's directory by hand: below pods are the volumes of running pods, with their data. " +
					"Do not force-delete the pods of this node: their data stays on it, and so do their mounts.",
			},
			{
				Name: evidence.ReadOnly,
				Meaning: "The kernel makes a file system read-only when it meets an error in it or of its disk (mount option errors=remount-ro). " +
					"No pod of the node can be started, and no stop of a pod is completed.",
				First: "on the node, as root: dmesg | grep -iE 'read-?only|i/o error'. Then follow Fix",
				Avoid: "remount,rw after an error (more damage)",
				Remedy: "On the node: dmesg | grep -iE 'read-?only|i/o error' shows why. " +
					"After an error of the disk: ask the owners of this node's pods, then replace the disk or the node. " +
					"After another error: ask these owners, then reboot the node, so that the file system is checked. " +
					"Mounted read-only on purpose: {findmnt} shows the mount, and mount -o remount,rw of that mount undoes it. " +
					"The kubelet retries within 15 seconds, and volumes within two minutes.",
				Danger: "Do not make it writable again after an error before it was checked: that can damage it further. " +
					"Do not force-delete the pod: its volumes stay mounted on the node, with no API object tracking them.",
			},
		},
	},
	Recurs: func(p *fact.View) (time.Duration, time.Time) {
		if !slices.ContainsFunc(p.Node.Kubelet.Shortages, func(s evidence.Shortage) bool { return s.Ended.IsZero() }) {
			return 0, time.Time{}
		}
		return fact.UncountedVolumes(p)
	},
	Check: func(p *fact.View) diagnose.Result {
		return diagnose.Result{Found: exhausted(p), Open: mayLack(p)}
	},
}

// mayLack returns what is open:
//   - it is not known whether the kubelet can write its checkpoint;
//   - the kubelet has had no file to open, but not for long enough yet;
//   - the kubelet lacked something until lately: its next attempt tells whether anything else is in the way.
func mayLack(p *fact.View) []diagnose.Open {
	var out []diagnose.Open
	if checkpointUncounted(p) {
		out = append(out, diagnose.OpenUnread(p, evidence.ClaimCalls))
	}
	if long := unwitnessedSoon(p); long > 0 {
		out = append(out, diagnose.Waits(p.Time, long, diagnose.Slow))
	}
	if long := triesAgain(p); long > 0 {
		out = append(out, diagnose.Waits(p.Time, long, diagnose.Next))
	}
	return out
}

// exhausted returns what the kubelet lacks.
func exhausted(p *fact.View) []diagnose.Finding {
	f := diagnose.Finding{Confidence: diagnose.Inferred}
	s := fact.CheckpointFails(p)
	if s == nil {
		var v *evidence.Volume
		if s, v = unmountFails(p); s == nil {
			return nil
		}
		f.Variants, f.Objects.Volumes = []string{aVolume}, []string{v.Name}
	} else if s.Resource == evidence.Descriptors && fact.Unwitnessed(p, s) {
		f.Variants = []string{unwitnessed}
	}
	f.Family, f.Objects.Limit, f.Objects.Dir = s.Resource, s.Limit, s.Dir
	f.Objects.Process = &diagnose.Process{PID: s.PID, Comm: "kubelet"}
	if k := p.Node.Kubelet.Process; k != nil && k.PID == s.PID {
		f.Objects.Process.Comm = k.Comm // of a program that contains it, as of K3s
	}
	return []diagnose.Finding{f}
}

// checkpointUncounted reports whether the kubelet lacks what it needs to write its checkpoint for a pod, and its counts of attempts could not be
// read.
func checkpointUncounted(p *fact.View) bool {
	return p.Node.Kubelet.VolumeCallsError != "" && !p.ContainersEnded() && len(fact.AppTasks(p)) == 0 &&
		slices.ContainsFunc(p.Node.Kubelet.Shortages, func(s evidence.Shortage) bool { return fact.Lacks(p, &s) })
}

// unmountFails returns what the kubelet lacks to tear a volume of the pod down, and the first such volume. Attempts failed since the lack began and
// since the pod reached its present stage. A full disk does not keep it from that, and a CSI driver's own error is not from a lack of open files.
func unmountFails(p *fact.View) (*evidence.Shortage, *evidence.Volume) {
	for i := range p.Node.Kubelet.Shortages {
		s := &p.Node.Kubelet.Shortages[i]
		if !fact.Lacks(p, s) || !s.KeepsVolumes() {
			continue
		}
		for j := range p.Volumes {
			v := &p.Volumes[j]
			failed := fact.FailedUnmountAfter(p, v, fact.Latest(p.UnchangedSince, s.Since)) != nil
			if failed && (s.Resource != evidence.Descriptors || !answersWithError(p, s, v.Driver)) {
				return s, v
			}
		}
	}
	return nil, nil
}

// unwitnessedSoon returns for how much longer the kubelet must have no file to open, and not respond, for Unwitnessed; 0 when it has a file or
// responds. The first reading of the kubelet may be some rounds younger than the pod's stage.
func unwitnessedSoon(p *fact.View) time.Duration {
	k := &p.Node.Kubelet
	for i := range k.Shortages {
		s := &k.Shortages[i]
		if !k.SilentSince.IsZero() && s.Resource == evidence.Descriptors && fact.Lacks(p, s) && s.Until.IsZero() && k.VolumeCallsRead.Before(s.Since) {
			return max(0, min(2*fact.UnknownAfter-p.Time.Sub(p.UnchangedSince), fact.UnknownAfter-s.Lasted(p.Time)))
		}
	}
	return 0
}

// triesAgain returns within what time a kubelet that lacked until lately what it needs to tear volumes down tries again; 0 for another kubelet. That
// attempt tells whether anything else is in the way. A lack that comes and goes is not waited for.
func triesAgain(p *fact.View) time.Duration {
	k := &p.Node.Kubelet
	if k.LackedUntil.IsZero() || slices.ContainsFunc(k.Shortages, func(s evidence.Shortage) bool {
		return s.KeepsVolumes() && (s.Ended.IsZero() || s.Ended.Sub(s.Since) < fact.SlowDevice)
	}) {
		return 0
	}
	return max(0, fact.VolumeRetry-p.Time.Sub(k.LackedUntil))
}

// answersWithError reports whether a CSI driver has responded with an error since the kubelet lacks something and since the pod reached its present
// stage. The kubelet then had an open file for the connection, which it makes for each call.
func answersWithError(p *fact.View, s *evidence.Shortage, driver string) bool {
	return driver != "" && slices.ContainsFunc(p.Node.Kubelet.VolumeCalls, func(c evidence.VolumeCall) bool {
		return c.Method == evidence.NodeUnpublish && c.Driver == driver && c.Failed() && c.Status != evidence.CallUnanswered && c.Status != evidence.CallTimedOut &&
			c.Rose.After(fact.Latest(p.UnchangedSince, s.Since))
	})
}
