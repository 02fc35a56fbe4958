package runtime

import (
	"fmt"
	"slices"
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
	By: diagnose.By[rootfsUse]{
		From: []evidence.Source{evidence.Containers, evidence.Mounts, evidence.Holders},
		Of:   rootfsUses,
		Facts: []diagnose.Fact[rootfsUse]{
			{Says: "The root file system of the container is still in the host's mount table, below /run/containerd."},
			{Says: "A process in the host's mount namespace uses this very mount. It has a file open there (mnt_id in /proc/PID/fdinfo), or its " +
				"working directory, root directory or program."},
			{Says: "If there is none, a process in another mount namespace uses the copy that the kernel unmounts together with this mount. A " +
				"DaemonSet with mountPropagation HostToContainer has such a copy."},
			{Says: runsRunc + ".", Is: inUse(ofRunc)},
			{Says: saysRunning + " After a restart of containerd it says unknown.", Is: inUse(isUnended)},
			{Says: "The shim says that the container has stopped.", Is: inUse(shimSaysStopped), Partly: shims},
			{Says: pidGone, Is: inUse(isPIDGone), From: processes, Partly: shims},
			{Says: "The shim has closed the container's output.", Is: inUse(isDrained), From: []evidence.Source{evidence.Suspects}, Partly: shims},
			{Says: "runc has removed the container's cgroup.", Is: inUse(groupGone), From: []evidence.Source{evidence.Cgroups}},
			{Says: afterContainers, Is: inUse(containersFirst)},
			{Says: oneShim, Is: inUse(ofOneShim), From: []evidence.Source{evidence.Processes}},
			{Says: "The process was not started long after the container had exited.", Is: diagnose.If(cameBefore)},
			{Says: "It has used the mount for 30 seconds or more.", Is: usedForLong},
			{Says: "Inferred if systemd manages cgroups: then systemd, and not runc, may have removed the container's cgroup."},
		},
		Tell: tellBusy,
	},
}

// A rootfsUse is a process that uses the root file system of a container.
type rootfsUse struct {
	container *evidence.Container
	holder    *evidence.Holder
}

// Named returns what it is, in words.
func (u rootfsUse) Named(*fact.View) string {
	return fmt.Sprintf("container %.63q, whose root file system process %.40q (PID %d) uses", u.container.Name, u.holder.Comm, u.holder.PID)
}

// rootfsUses returns those of each container in turn.
func rootfsUses(p *fact.View) (out []rootfsUse) {
	for _, c := range containers(p) {
		for i := range p.Holders {
			if h := &p.Holders[i]; c.Rootfs != nil && h.MountID == c.Rootfs.ID {
				out = append(out, rootfsUse{c, h})
			}
		}
	}
	return out
}

// inUse makes a fact of one about the container.
func inUse(is func(*fact.View, *evidence.Container) bool) func(*fact.View, rootfsUse) diagnose.Holding {
	return func(p *fact.View, u rootfsUse) diagnose.Holding { return diagnose.Is(is(p, u.container)) }
}

func isUnended(_ *fact.View, c *evidence.Container) bool { return c.Unended() }

func shimSaysStopped(_ *fact.View, c *evidence.Container) bool { return c.Task.Status == stopped }

func isDrained(_ *fact.View, c *evidence.Container) bool { return c.Task.Drained }

func groupGone(p *fact.View, c *evidence.Container) bool { return groupOf(p, c) == nil }

// cameBefore reports whether the process was not started long after the container had exited. One that was has not kept the shim from
// unmounting the root file system.
func cameBefore(_ *fact.View, u rootfsUse) bool {
	vacant, probe := u.container.VacantSince, u.holder.Probe
	return vacant.IsZero() || probe == nil || probe.Started.Sub(vacant) <= usedFor
}

// uses reports whether a process has used a container's root file system for long.
func uses(p *fact.View, c *evidence.Container, h *evidence.Holder) bool {
	return h.MountID == c.Rootfs.ID && !h.Since.IsZero() && p.Time.Sub(h.Since) >= usedFor
}

// usedForLong answers whether the process has used it for long. Programs may come and go there.
func usedForLong(p *fact.View, u rootfsUse) diagnose.Holding {
	return diagnose.Lasted(p, u.holder.Since, usedFor, diagnose.Slow).Unawaited(p)
}

// tellBusy tells of each container with the process that has used its root file system for the longest time, and how many more do.
func tellBusy(p *fact.View, found []rootfsUse) (out []diagnose.Finding) {
	for len(found) > 0 {
		c, n := found[0].container, 1
		for n < len(found) && found[n].container == c {
			n++
		}
		first := slices.MinFunc(found[:n], func(a, b rootfsUse) int { return a.holder.Since.Compare(b.holder.Since) }).holder
		f := about(c, diagnose.Proved)
		f.Objects = diagnose.Objects{Process: diagnose.ProcessOf(p, &first.Task), Via: first.Via, Alike: n - 1}
		if bySystemd(p) {
			f.Confidence = diagnose.Inferred
		}
		if fact.Essential(&first.Task) {
			f.Variants = append(f.Variants, diagnose.Essential)
		}
		out, found = append(out, f), found[n:]
	}
	return out
}
