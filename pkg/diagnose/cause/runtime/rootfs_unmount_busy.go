package runtime

import (
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// usedFor is how long a process must have used the root file system of a container.
// A program that walks through all files of the node uses it for less.
const usedFor = 30 * time.Second

// RootfsUnmountBusy is a container that cannot be deleted, because a process uses its root
// file system.
//
// The shim unmounts it without MNT_DETACH when runc has deleted the container
// (cmd/containerd-shim-runc-v2/process/init.go, delete). containerd gets the error, and
// tries again after up to five minutes (internal/cri/server/events/events.go).
var RootfsUnmountBusy = &diagnose.Rule{
	Cause:  "RootfsUnmountBusy",
	Phases: []diagnose.Phase{diagnose.Runtime, diagnose.Sandbox},
	Needs:  []evidence.Source{evidence.Processes, evidence.Suspects, evidence.Cgroups, evidence.Containers, evidence.Mounts, evidence.Holders},
	Partly: []evidence.Source{evidence.Shims},
	Doc: diagnose.Doc{
		Layer:   "runtime",
		Title:   "a process keeps a container's root file system busy",
		Who:     diagnose.ByNode,
		Message: "{what} has exited, but its root file system is busy (EBUSY): {process} uses it ({via}){more}",
		Phrases: map[string][]diagnose.Choice{
			"what": {{Variant: aboutSandbox, Text: "the pod's sandbox"}, {Text: "container {container}"}},
			"more": {{Text: " (and {alike} more like it)"}, {Text: ""}},
			"step": {
				{Variant: diagnose.Essential, Text: "ask the owner of {program} to make it leave this file system; containerd retries within 5 minutes. " +
					"If it cannot: Fix"},
				{Text: "{askowner}; containerd retries within 5 minutes"},
			},
			"harm": {
				{Variant: diagnose.Essential, Text: "ending {comm} (others need it), umount -l (leaves files behind)"},
				{Text: "ending {comm} unasked, umount -l (leaves files behind)"},
			},
			"end": {
				{Variant: diagnose.Essential, Text: "Do not end {process}: it serves other pods, or the whole node. Find out what it does " +
					"there. Restart its service when the other pods allow it"},
				{Text: "On the node: find out what {process} does, and whose it is. Let it leave the root file system, or once its owner agrees: {terminate}"},
			},
		},
		Meaning: "When a container has exited, its shim has runc delete it, and unmounts its root file system. A process on the node uses that file " +
			"system: a shell that has changed into the directory, a security scanner, a backup. The kernel returns EBUSY. containerd does not " +
			"record the exit, and retries after up to five minutes. The pod's sandbox, in which the pause program runs, has a root file system " +
			"too.",
		Evidence: []string{
			"The pod is past its deadline, and containerd's CRI status says that the container runs. After a restart of containerd it says unknown.",
			"The shim says that the container has stopped, and has closed its output. No process of the container is left, and runc has removed " +
				"its cgroup.",
			"The root file system is still in the host's mount table, below /run/containerd.",
			"A process in the host's mount namespace has used this very mount for 30 seconds or more. It has a file open there (mnt_id in " +
				"/proc/PID/fdinfo), or its working directory, root directory or program.",
			"This process was not started long after the container had exited.",
			"If there is none, a process in another mount namespace uses the copy that the kernel unmounts together with this mount. A " +
				"DaemonSet with mountPropagation HostToContainer has such a copy.",
			"Inferred if systemd manages cgroups: then systemd, and not runc, may have removed the container's cgroup.",
		},
		Seen: []string{
			"The shim says that {what} has stopped, but its root file system is still mounted below /run/containerd",
			"{process} uses that mount: {via}",
		},
		First:  "{step}",
		Avoid:  "{harm}",
		Remedy: "{end}. containerd tries again within five minutes, and the pod then terminates.",
		Danger: "Do not use umount -l: it hides the mount while files stay in use, and containerd then cannot remove the container's files. " +
			"Do not kill the shim. A force delete leaves the pod's sandbox, addresses and volumes on the node with no API object tracking them.",
	},
	Check: func(p *fact.View) diagnose.Result {
		if p.Overdue() < 0 || ownShim(p) == nil {
			return diagnose.Result{}
		}
		var out []diagnose.Finding
		for i := range p.Containers {
			c := &p.Containers[i]
			if c.Kind == evidence.Sandbox && containersLeft(p) || c.Runtime != fact.RuncV2 || !c.Unended() || c.Rootfs == nil ||
				c.Task.Status != stopped || !c.Task.PIDGone || !c.Task.Drained || groupOf(p, c) != nil {
				continue
			}
			first, n := usesRootfs(p, c)
			if first == nil {
				continue
			}
			f := about(c, diagnose.Proved)
			f.Objects = diagnose.Objects{Process: diagnose.ProcessOf(p, &first.Task), Via: first.Via, Alike: n - 1}
			if bySystemd(p) {
				f.Confidence = diagnose.Inferred
			}
			if fact.Essential(&first.Task) {
				f.Variants = append(f.Variants, diagnose.Essential)
			}
			out = append(out, f)
		}
		return diagnose.Found(out...)
	},
}

// cameLater reports whether a process was started long after the container had exited. Then something else kept the
// shim from unmounting the root file system.
func cameLater(c *evidence.Container, h *evidence.Holder) bool {
	return !c.VacantSince.IsZero() && h.Probe != nil && h.Probe.Started.Sub(c.VacantSince) > usedFor
}

// uses reports whether a process has used a container's root file system for long.
func uses(p *fact.View, c *evidence.Container, h *evidence.Holder) bool {
	return h.MountID == c.Rootfs.ID && !h.Since.IsZero() && p.Time.Sub(h.Since) >= usedFor
}

// usesRootfs returns the process that has used a container's root file system for the
// longest time, and how many use it. It counts only those that were there when the container exited.
func usesRootfs(p *fact.View, c *evidence.Container) (first *evidence.Holder, n int) {
	for i := range p.Holders {
		h := &p.Holders[i]
		if !uses(p, c, h) || cameLater(c, h) {
			continue
		}
		n++
		if first == nil || h.Since.Before(first.Since) {
			first = h
		}
	}
	return first, n
}
