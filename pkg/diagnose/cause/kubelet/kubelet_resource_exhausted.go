package kubelet

import (
	"fmt"
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
	By: diagnose.Ways{
		diagnose.By[*evidence.Shortage]{
			Title:  "While the kubelet cannot write its checkpoint",
			Partly: []evidence.Source{evidence.Limits},
			Of:     shortages,
			Facts: slices.Concat(beforeCheckpoint, lackedForLong, []diagnose.Fact[*evidence.Shortage]{
				{
					Says: "None of the kubelet's attempts to unprepare claims has succeeded since then, for whichever pods (dra_operations_duration_seconds).",
					Is:   diagnose.If(noneSucceeds), Partly: claimCounts,
				},
				{
					Says: "On a disk with room for the checkpoint (64 KiB or more): no calls of a DRA driver fail, and the pod's drivers are registered.",
					Is:   diagnose.If(driversWork), Partly: append(claimCounts, evidence.Claims),
				},
				{Says: "At least two of these attempts have failed since then.", Is: attemptsFailFor, Partly: claimCounts},
				{Says: "It is always inferred."},
			}),
			Tell: diagnose.First(tellLack),
		},
		diagnose.By[*evidence.Shortage]{
			Title:  "While the kubelet may open no file, and reports no counts",
			Partly: []evidence.Source{evidence.Limits},
			Of:     openFiles,
			Facts: slices.Concat(beforeCheckpoint, []diagnose.Fact[*evidence.Shortage]{
				{Says: "The kubelet has as many files open as /proc/PID/limits allows, in the last reading too.", Is: diagnose.If(lacking)},
				{
					Says: "It has reported no counts since then. A kubelet that may open no file may also take no connection.",
					Is:   diagnose.If(countsNothing),
				},
				{Says: "Its port has not responded for ten seconds or more.", Pod: portSilentForLong},
				{Says: "It has been so in all readings over a minute.", Is: lackedForMinute},
				{Says: "The deadline passed a minute ago or more.", Pod: minuteOverdue},
				{Says: "Nothing has changed about the pod for a minute.", Pod: minuteUnchanged},
				{Says: "It is always inferred."},
			}),
			Tell: diagnose.First(tellUnwitnessed),
		},
		diagnose.By[lackAndVolume]{
			Title:  "While the kubelet cannot tear down a volume",
			Partly: []evidence.Source{evidence.Limits, evidence.Volumes, evidence.VolumeCalls},
			Of:     volumesOfLacks,
			Facts: []diagnose.Fact[lackAndVolume]{
				{Says: "The kubelet lacks open files, or the file system of its directory is read-only. On a full disk, files can be removed.",
					Is: diagnose.If(keepsVolumes)},
				{Says: "The last reading shows that too. After it has ended, the kubelet's next attempt shows whether anything else is in the way.",
					Is: lackingVolume},
				{Says: "It has been so in all readings over ten seconds or more.", Is: diagnose.IfLater(lackedVolumeForLong, diagnose.Slow)},
				{
					Says: "Its count of failed attempts at volumes has grown since then for the volume's plugin (storage_operation_duration_seconds).",
					Is:   unmountFails, Partly: []evidence.Source{evidence.VolumeCalls},
				},
				{
					Says: "If it lacks open files: the volume's CSI driver has not responded with an error since then. " +
						"Each call to it opens a connection, which is a file.",
					Is: diagnose.If(noErrorOfDriver),
				},
				{Says: "The kubelet's attempts to write its checkpoint do not fail for such a lack.", Pod: diagnose.IfPod(checkpointWorks)},
				{Says: "It is always inferred."},
			},
			Tell: diagnose.First(tellVolume),
		},
	},
}

// beforeCheckpoint are the facts about a pod for which the kubelet has to write its checkpoint.
var beforeCheckpoint = []diagnose.Fact[*evidence.Shortage]{
	{
		Says: "All containers of the pod have ended.", Pod: diagnose.IfPod(noneLive),
		From: []evidence.Source{evidence.Processes}, Partly: []evidence.Source{evidence.Containers, evidence.Cgroups},
	},
	{Says: "The kubelet has not written that into the pod's status.", Pod: diagnose.IfPod(notWritten)},
}

// lackedForLong are the facts about what the kubelet has lacked for a while. A shorter lack is none.
var lackedForLong = []diagnose.Fact[*evidence.Shortage]{
	{Says: "Open files: the kubelet has as many open as /proc/PID/limits allows."},
	{Says: "Disk: the file system of its directory is read-only, has no free inode, or has less than 1 MiB free, for root too (statfs)."},
	{Says: "The last reading shows one of these.", Is: diagnose.If(lacking)},
	{Says: "So do all readings over ten seconds or more.", Is: diagnose.IfLater(lackedAWhile, diagnose.Slow)},
}

var claimCounts = []evidence.Source{evidence.ClaimCalls}

// shortages returns what the kubelet lacks or has lacked lately, but for tasks.
func shortages(p *fact.View) (out []*evidence.Shortage) {
	for i := range p.Node.Kubelet.Shortages {
		if s := &p.Node.Kubelet.Shortages[i]; s.Resource != evidence.Tasks {
			out = append(out, s)
		}
	}
	return out
}

func openFiles(p *fact.View) []*evidence.Shortage {
	return slices.DeleteFunc(shortages(p), func(s *evidence.Shortage) bool { return s.Resource != evidence.Descriptors })
}

func lacking(_ *fact.View, s *evidence.Shortage) bool { return s.Ended.IsZero() }

// lackedAWhile does not wait for a lack that comes and goes.
func lackedAWhile(p *fact.View, s *evidence.Shortage) bool {
	return !s.Since.IsZero() && s.Lasted(p.Time) >= fact.SlowDevice
}

// noneSucceeds reports whether the kubelet has had no claims of a pod of this node unprepared since it lacks something, since the pod is at its
// present stage, and lately: it has written its checkpoint then.
func noneSucceeds(p *fact.View, s *evidence.Shortage) bool {
	return fact.Claimed(p, evidence.Unprepare, "", func(c *evidence.ClaimCall) bool {
		return c.Status == evidence.ClaimsSucceeded && c.Rose.After(s.Since)
	}) == nil
}

// driversWork reports whether attempts do not fail before the kubelet comes to its checkpoint, where there may be room for that.
func driversWork(p *fact.View, s *evidence.Shortage) bool {
	return !fact.LittleRoom(s) || !slices.ContainsFunc(p.Node.Kubelet.ClaimCalls, func(of evidence.ClaimCall) bool {
		return fact.Claimed(p, evidence.NodeUnprepare, of.Driver, func(c *evidence.ClaimCall) bool {
			return c.Status != evidence.CallOK && c.Rose.After(s.Since)
		}) != nil
	}) && !slices.ContainsFunc(p.Claims, func(c evidence.Claim) bool {
		return slices.ContainsFunc(c.Drivers, func(d evidence.ClaimDriver) bool { return d.Unregistered })
	})
}

// attemptsFailFor answers whether the kubelet's attempts have failed since it lacks something. While its counts cannot be read, that is not known.
// Of a short lack nothing is left open.
func attemptsFailFor(p *fact.View, s *evidence.Shortage) diagnose.Holding {
	fails := fact.Claimed(p, evidence.Unprepare, "", func(c *evidence.ClaimCall) bool {
		return c.Status == evidence.ClaimsFailed && c.RoseBefore.After(p.UnchangedSince) && c.RoseBefore.After(s.Since)
	}) != nil
	if !fails && p.Node.Kubelet.VolumeCallsError != "" && lackedAWhile(p, s) {
		return diagnose.NotRead(evidence.ClaimCalls)
	}
	return diagnose.Is(fails)
}

func countsNothing(p *fact.View, s *evidence.Shortage) bool {
	return p.Node.Kubelet.VolumeCallsRead.Before(s.Since)
}

// portSilentForLong answers whether the kubelet's port does not respond. One that responds has opened a file for that: each question has a
// connection of its own.
func portSilentForLong(p *fact.View) diagnose.Holding {
	return diagnose.Lasted(p, p.Node.Kubelet.SilentSince, fact.SlowDevice, diagnose.Slow)
}

// lackedForMinute waits for no lack that comes and goes. The first reading of the kubelet may be some rounds younger than the pod's stage.
func lackedForMinute(p *fact.View, s *evidence.Shortage) diagnose.Holding {
	lasted := s.Lasted(p.Time)
	if !s.Since.IsZero() && lasted >= fact.UnknownAfter {
		return diagnose.Is(true)
	}
	long := max(0, min(2*fact.UnknownAfter-p.Time.Sub(p.UnchangedSince), fact.UnknownAfter-lasted))
	if s.Since.IsZero() || !s.Until.IsZero() || lasted < fact.SlowDevice {
		long = 0
	}
	return diagnose.NotYet(diagnose.Waits(p.Time, long, diagnose.Slow))
}

func minuteOverdue(p *fact.View) diagnose.Holding {
	return diagnose.Lasted(p, p.Deadline, fact.UnknownAfter, diagnose.Slow)
}

func minuteUnchanged(p *fact.View) diagnose.Holding {
	return diagnose.Lasted(p, p.UnchangedSince, fact.UnknownAfter, diagnose.Slow)
}

func tellLack(p *fact.View, s *evidence.Shortage) diagnose.Finding {
	f := diagnose.Finding{Family: s.Resource, Confidence: diagnose.Inferred, Objects: diagnose.Objects{
		Limit: s.Limit, Dir: s.Dir, Process: &diagnose.Process{PID: s.PID, Comm: "kubelet"},
	}}
	if k := p.Node.Kubelet.Process; k != nil && k.PID == s.PID {
		f.Objects.Process.Comm = k.Comm // of a program that contains it, as of K3s
	}
	return f
}

func tellUnwitnessed(p *fact.View, s *evidence.Shortage) diagnose.Finding {
	f := tellLack(p, s)
	f.Variants = []string{unwitnessed}
	return f
}

// A lackAndVolume is what the kubelet lacks or has lacked lately, and a volume of the pod; nil for a pod of which none is left.
type lackAndVolume struct {
	lack   *evidence.Shortage
	volume *evidence.Volume
}

// Named says which volume it is, and what the kubelet lacks.
func (t lackAndVolume) Named(*fact.View) string {
	if t.volume == nil {
		return fmt.Sprintf("no volume, and the kubelet's resource %s", t.lack.Resource)
	}
	return fmt.Sprintf("volume %.63q, and the kubelet's resource %s", t.volume.Name, t.lack.Resource)
}

func volumesOfLacks(p *fact.View) (out []lackAndVolume) {
	for _, s := range shortages(p) {
		for i := range p.Volumes {
			out = append(out, lackAndVolume{s, &p.Volumes[i]})
		}
		if len(p.Volumes) == 0 {
			out = append(out, lackAndVolume{s, nil})
		}
	}
	return out
}

func keepsVolumes(_ *fact.View, t lackAndVolume) bool { return t.lack.KeepsVolumes() }

func lackingVolume(p *fact.View, t lackAndVolume) diagnose.Holding {
	switch long := triesAgain(p); {
	case t.lack.Ended.IsZero() || long == 0:
		return diagnose.Is(t.lack.Ended.IsZero())
	case t.volume != nil && t.volume != &p.Volumes[0]:
		return diagnose.NotYet(diagnose.Open{}) // the first one says until when
	default:
		return diagnose.NotYet(diagnose.Waits(p.Time, long, diagnose.Next))
	}
}

func lackedVolumeForLong(p *fact.View, t lackAndVolume) bool { return lackedAWhile(p, t.lack) }

// unmountFails answers whether attempts at a volume failed since the lack began and since the pod reached its present stage. After the lack, those
// before tell nothing.
func unmountFails(p *fact.View, t lackAndVolume) diagnose.Holding {
	if !t.lack.Ended.IsZero() {
		return diagnose.NotYet(diagnose.Open{})
	}
	return diagnose.Is(t.volume != nil && fact.FailedUnmountAfter(p, t.volume, fact.Latest(p.UnchangedSince, t.lack.Since)) != nil)
}

func checkpointWorks(p *fact.View) bool { return fact.CheckpointFails(p) == nil }

func tellVolume(p *fact.View, t lackAndVolume) diagnose.Finding {
	f := tellLack(p, t.lack)
	if f.Variants = []string{aVolume}; t.volume != nil {
		f.Objects.Volumes = []string{t.volume.Name}
	}
	return f
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

// noErrorOfDriver reports whether the volume's CSI driver has not responded with an error since the kubelet lacks open files and since the pod
// reached its present stage. The kubelet then had an open file for the connection, which it makes for each call.
func noErrorOfDriver(p *fact.View, t lackAndVolume) bool {
	if t.volume == nil || t.volume.Driver == "" || t.lack.Resource != evidence.Descriptors {
		return true
	}
	return !slices.ContainsFunc(p.Node.Kubelet.VolumeCalls, func(c evidence.VolumeCall) bool {
		return c.Method == evidence.NodeUnpublish && c.Driver == t.volume.Driver && c.Failed() &&
			c.Status != evidence.CallUnanswered && c.Status != evidence.CallTimedOut && c.Rose.After(fact.Latest(p.UnchangedSince, t.lack.Since))
	})
}
