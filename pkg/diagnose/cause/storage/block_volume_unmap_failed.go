package storage

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// BlockVolumeUnmapFailed is a block device of a pod (volumeMode: Block) that the kubelet cannot
// unmap.
//
// The kubelet mounts the device on a file of its own, and puts a loop device on that. To unmap
// it, the kubelet releases the loop device, which the kernel does when the last user closes it
// (drivers/block/loop.c, loop_clr_fd). Then it unmounts the file, and has the CSI driver
// unpublish the volume (pkg/volume/util/util.go, UnmapBlockVolume; GenerateUnmapVolumeFunc,
// pkg/volume/util/operationexecutor). It waits for neither NodeUnstageVolume nor the detach.
var BlockVolumeUnmapFailed = &diagnose.Rule{
	Cause:  "BlockVolumeUnmapFailed",
	Phases: []diagnose.Phase{diagnose.Volumes},
	Doc: diagnose.Doc{
		Layer:   "storage",
		Title:   "a raw block volume cannot be unmapped, usually because in use",
		Who:     diagnose.ByNode,
		Message: "block volume {volumes} cannot be unmapped{why}",
		Phrases: map[string][]diagnose.Choice{
			"why": {
				{Variant: changing, Text: " (EBUSY): one thing after another uses it, now {now}"},
				{Variant: mapped, Text: " (EBUSY): logical volume {logical}{used} is active on it"},
				{Variant: other, Text: " (EBUSY): block device {device}{used} is built on it"},
				{Variant: mapped, Text: " (EBUSY): device-mapper device {device}{used} is active on it"},
				{Variant: raid, Text: " (EBUSY): software RAID {device}{used} is assembled on it"},
				{Variant: partition, Text: " (EBUSY): its partition {innersource} ({innertype}) is mounted on the node"},
				{Variant: inside, Text: " (EBUSY): its {innertype} file system is mounted on the node"},
				{Variant: failing, Text: ": the kubelet's attempts fail{others} (plugin {plugin}), and no user of the device is seen"},
				{Variant: elsewhere, Text: " (EBUSY): its file system is mounted in the mount namespace of {process}{and}"},
				{Text: " (EBUSY): {process} uses it ({via}){more}"},
			},
			"now": {
				{Variant: mapped, Text: "logical volume {logical}"}, {Text: "block device {device}"},
				{Text: "a mount at {innerpoint} ({innertype})"}, {Text: "a mount ({innertype})"},
			},
			"others":   {{Variant: others, Text: ", at it or another one of this node"}, {Text: ""}},
			"more":     orMore,
			"look":     lookAtThem,
			"spare":    spare,
			"but":      exempt,
			"servants": servants,
			"stopping": stopThem,
			"and":      {{Variant: one, Text: " and in that of {also}"}, {Variant: more, Text: " and in those of {also}"}, {Text: ""}},
			"each": {
				{Variant: one, Text: "Ask the owners to unmount it in both namespaces, or to stop what runs there{spare}"},
				{Variant: more, Text: "Ask the owners to unmount it in each namespace, or to stop what runs there{spare}"},
				{Text: "Ask its owner to unmount it there, or to stop what runs there"},
			},
			"asked": {
				{Variant: one, Text: "on the node: {whoseeach}. " +
					"Ask both owners to unmount it, or to stop the processes{but}"},
				{Variant: more, Text: "on the node: {whoseeach}. " +
					"Ask the owners to unmount it, or to stop the processes{but}"},
				{Text: "on the node: {whose}. " +
					"Ask that owner to unmount it."},
			},
			"list": {{Variant: other, Text: "lsblk"}, {Text: "dmsetup info {mapped}"}, {Text: "dmsetup ls --tree"}},
			"how":  {{Variant: other, Text: ""}, {Text: " (dmsetup remove, or vgchange -an if the whole volume group is on this device)"}},
			"filter": {{Variant: other, Text: "Afterwards, keep that program from using loop devices."}, {Text: "Afterwards, keep LVM from " +
				"scanning loop devices (global_filter in lvm.conf)."}},
			"stop": {{Text: "mdadm --stop /dev/{mapped}"}, {Text: "mdadm --stop"}},
			"then": {{Text: ". After it, remove in this order: {rest} (dmsetup remove, or mdadm --stop for a RAID)"}, {Text: ""}},
			"mount": {
				{Variant: changing, Text: "Find out what mounts it again and again (on the node: findmnt shows the present mount). Ask the " +
					"volume's owner, then stop that: each new mount follows an earlier one"},
				{Variant: ofPod, Text: "Do not unmount it: it is a volume of the pod whose UID findmnt shows. That pod must terminate first: ask its owner"},
				{Text: "Find out who mounted it, and ask the volume's owner. If the mount is no longer needed, on the node: umount {innerpoint}"},
				{Text: "Find out who mounted it, and ask the volume's owner. If the mount is no longer needed, unmount it on the node (findmnt shows where)"},
			},
			"used": {
				{Variant: atTimes, Text: ", mounted again and again ({innertype}),"},
				{Variant: ofPod, Text: ", mounted as a volume of a pod ({innertype}),"},
				{Text: ", mounted at {innerpoint} ({innertype}),"}, {Text: ", mounted on the node ({innertype}),"}, {Text: ""},
			},
			"first": {
				{Variant: changing, Text: "on the node: repeat lsblk and findmnt until they show what uses the device. " +
					"Ask the volume's owner before you stop that"},
				{Variant: atTimes, Text: "on the node: repeat lsblk and findmnt until they show where it is mounted. " +
					"Ask the volume's owner what mounts it, and to stop that"},
				{Variant: ofPod, Text: "on the node: findmnt shows the UID of the pod that mounts it. " +
					"Find it (kubectl get pods -A -o yaml, cluster rights). Ask its owner to stop that pod"},
				{Variant: raid, Text: "on the node: lsblk and cat /proc/mdstat show the RAID. " +
					"If the volume's owner agrees, stop it as Fix says. If not, wait"},
				{Variant: mapped, Text: "on the node: lsblk shows what is on it. " +
					"If the volume's owner agrees, deactivate that as Fix says. If not, wait"},
				{Text: "ask the volume's owner if this mount is needed. If the owner says no, on the node, as root: umount {innerpoint}. If unsure, wait"},
				{Text: "ask the volume's owner if this mount is needed. If the owner says no, unmount it as Fix says. If unsure, wait"},
			},
			"deactivate": {
				{Variant: changing, Text: "Find out what activates it again and again, and stop that. Deactivate what is left"},
				{Variant: atTimes, Text: "Find out what mounts it again and again, and stop that (findmnt shows where, while it is mounted). Then deactivate it"},
				{Variant: ofPod, Text: "Do not unmount it: the pod whose UID findmnt shows must terminate first. Then deactivate it"},
				{Text: "If the mount is no longer needed: umount {innerpoint}. Then deactivate it"},
				{Variant: other, Text: "Remove it when nothing uses it, with the program that made it"},
				{Text: "Deactivate it when nothing is mounted from it"},
			},
			"release": {
				{Variant: changing, Text: "Find out what assembles it again and again, and stop that. Stop what is left"},
				{Variant: atTimes, Text: "Find out what mounts it again and again, and stop that (findmnt shows where, while it is mounted). Then stop the RAID"},
				{Variant: ofPod, Text: "Do not unmount what is on it: the pod whose UID findmnt shows must terminate first. Then stop the RAID"},
				{Text: "If the mount is no longer needed: umount {innerpoint}. Then stop the RAID"},
				{Text: "Stop the RAID when nothing uses it"},
			},
		},
		Meaning: "The containers have exited, and the kubelet has to unmap the block device of the pod (volumeMode: Block). It keeps a mount and a " +
			"loop device on it, and has to remove both. Something on the node uses one of them: a process, or what was made of the device's " +
			"content. The kubelet retries without end, with pauses of up to two minutes, and reports it in its log only.",
		Seen: []string{
			"The kubelet's own mount of the device is left at {mountpoint}",
			"Readings at least 10 s apart show {process} on the device: {via}",
			"Block device {device} is on the kubelet's loop device of the volume",
			"Its {innertype} file system was seen mounted at {innerpoint}",
			"The kubelet has counted new failed unmap attempts (plugin {plugin})",
			"No process of the pod is left",
		},
		Remedy: "{stopping}. The kubelet then unmaps the device within two minutes.",
		Danger: "Do not force-delete: the volume may be given to another pod or node while this one can still write to it, which destroys its data. " +
			"Do not remove the loop device or the files below plugins by hand.",
		First: "{look}",
		Avoid: "losetup -d (can free a device in use)",
		Families: []diagnose.Family{
			{
				Name: mapped,
				Meaning: "The node has scanned the device, found an LVM physical volume, a LUKS or a multipath device on it, and activated that. LVM finds " +
					"its physical volume twice, on the device and on the loop device, and may take either. If the pod is a virtual machine, the volume " +
					"group belongs to its guest.",
				Remedy: "On the node: {list} shows what it is. Ask the volume's owner before you change it. {deactivate}{how}{then}. " +
					"The kubelet then unmaps the device within two minutes. {filter}",
				First: "{first}",
			},
			{
				Name: raid,
				Meaning: "The node has found a part of a software RAID (mdadm) on the device, and has assembled it. udev may do that by itself when a block " +
					"device appears (mdadm --incremental; newer versions leave loop devices out). If the pod is a virtual machine, the RAID belongs to " +
					"its guest. A RAID that lacks parts is not started, but keeps the device in use all the same.",
				Remedy: "On the node: cat /proc/mdstat and lsblk show what is on it. Ask the volume's owner before you change it. {release}: " +
					"{stop}{then}. The kubelet then unmaps the device within two minutes. " +
					"Afterwards, keep mdadm from assembling what is on loop devices (AUTO -all in mdadm.conf, with an ARRAY line for each RAID of the node's own).",
				First: "{first}",
			},
			{
				Name:    inside,
				Who:     diagnose.ByNode,
				Meaning: "The file system on the device has been mounted by hand, or by an automatic mounter that found it on the loop device.",
				Remedy:  "{mount}. The kubelet then unmaps the device within two minutes.",
				First:   "{first}",
			},
			{
				Name: failing,
				Who:  diagnose.ByStorage,
				Meaning: "Nothing is seen that uses the device, but the kubelet still fails. Perhaps losetup is missing or fails, or the device has vanished " +
					"under it. Or its user is something that nodeagent does not check, such as a mount namespace without a process.",
				Remedy: "On the node: " + unmapErrors + ". The error names the step and the path. " +
					"Repair that; the kubelet unmaps the device within two minutes.",
				First: "on the node, 'UnmapVolume' in the kubelet's log (journalctl -u kubelet) names what failed: restore that. " +
					"If no line shows, ask the driver's owner",
			},
			{
				Name:    diagnose.Essential,
				Meaning: "The process serves other pods or the whole node.",
				Remedy:  "{servants}. The kubelet then unmaps the device within two minutes.",
				First:   keepServing,
				Avoid:   notEnd,
			},
			{
				Name: elsewhere,
				Meaning: "The file system on the device is mounted in another mount namespace. It was mounted by a container that has the node's devices, by " +
					"a service with a mount namespace of its own, or with unshare. The node's own mount table does not show it. The process that is " +
					"named is the first one of that mount namespace.",
				Remedy: "Find out who mounted it: on the node, findmnt -N {pid} lists the mounts of the first mount namespace. {each}. " +
					"The kubelet then unmaps the device within two minutes.",
				First: "{asked}",
			},
		},
	},
	Recurs: uncounted(func(v *evidence.Volume) bool { return v.Block }),
	By: diagnose.Ways{
		diagnose.By[loop]{
			Title: "If something is on the kubelet's loop device",
			From:  []evidence.Source{evidence.Mounts}, Partly: []evidence.Source{evidence.Holders},
			Of: loops,
			Facts: slices.Concat(deviceLeft[loop](), loopInUse, []diagnose.Fact[loop]{
				{Says: "The loop device, a partition of it or such a device has a holder (/sys/dev/block): a device-mapper device, a software RAID or " +
					"another block device. dm/uuid of a logical volume begins with LVM-, and a RAID has md/array_state."},
				{Says: "A file system counts if it is in the host's mount table."},
				{Says: "Inferred if all readings show something on the device, but one thing after another."},
			}),
			Tell: diagnose.First(tellLoop),
		},
		diagnose.By[holder]{
			Title: "If a process uses the device",
			From:  []evidence.Source{evidence.Mounts, evidence.Holders},
			Of:    holdersOfDevices,
			Facts: slices.Concat(deviceLeft[holder](), []diagnose.Fact[holder]{{Says: noLoopInUse, Pod: diagnose.IfPod(noLoopIsInUse)}}, keepsLong,
				[]diagnose.Fact[holder]{
					isOnFirstUsed,
					{Says: "A process in the host's mount namespace has a file open on that mount (mnt_id in /proc/PID/fdinfo). Or it has the loop device open " +
						"whose backing_file is that mount, or a partition of that loop device."},
					{Says: "If nothing is found in the host's mount namespace, others with a process are checked. Their mountinfo has a mount of the loop " +
						"device or of a partition. Or a process has the loop device open (by the device number of the file)."},
				}, driverThere[holder](evidence.Volumes)),
			Tell: tellDeviceHeld,
		},
		diagnose.By[*evidence.Volume]{
			Title: "If nothing is seen that uses it (family " + failing + ")",
			From:  []evidence.Source{evidence.Mounts, evidence.Volumes},
			Of:    blockVolumes,
			Facts: slices.Concat(deviceLeft[*evidence.Volume](), []diagnose.Fact[*evidence.Volume]{
				{Says: noLoopInUse, Pod: diagnose.IfPod(noLoopIsInUse)},
				{Says: "No process has used a block device of the pod for ten seconds or more.", Pod: diagnose.IfPod(noDeviceIsHeld),
					From: []evidence.Source{evidence.Holders}},
				{Says: "The kubelet has not called the CSI driver yet: its own mount of the device is left.", Is: diagnose.If(notReached)},
				{Says: "Nothing is on the loop device of the volume.", Is: diagnose.If(hasNothingOn)},
				{Says: "No process uses the device.", Is: diagnose.If(isNotHeld), From: []evidence.Source{evidence.Holders}},
				{Says: "The pod is past its deadline by one minute, and all readings of that minute show the same.", Pod: settledFor},
				{
					Says: "The kubelet has since counted more failed attempts at block volumes of the plugin (storage_operation_duration_seconds, operation " +
						"unmap_volume).",
					Is: diagnose.If(unmapFails), From: []evidence.Source{evidence.VolumeCalls},
				},
				{Says: "No call to the volume's CSI driver has failed: the kubelet may count that as an attempt.", Is: diagnose.If(noCallFails),
					From: []evidence.Source{evidence.VolumeCalls}},
				{Says: "The last failed attempt came after the first reading that showed nothing on the loop device.", Is: failsWithNothingOn,
					From: []evidence.Source{evidence.VolumeCalls}},
				{Says: "It came after the first reading that showed no process that uses the device.", Is: failsUnheld,
					From: []evidence.Source{evidence.VolumeCalls, evidence.Holders}},
			}),
			Tell: diagnose.First(tellUnmapFails),
		},
	},
}

// deviceLeft are the facts that the kubelet must have tried to unmap a block device of the pod.
func deviceLeft[T any]() []diagnose.Fact[T] {
	return []diagnose.Fact[T]{
		{
			Says: "The mount of a device, below the kubelet's directory plugins and with the pod's UID as its name, is left. So is the pod's cgroup, which " +
				"the kubelet removes later. Or the kubelet fails to tear down a volume of the pod.",
			Pod: diagnose.IfPod(isLeft), From: []evidence.Source{evidence.Cgroups}, Partly: []evidence.Source{evidence.Volumes, evidence.VolumeCalls},
		},
		{Says: overdueAsBefore, Pod: isOverdueAsBefore},
	}
}

// loopInUse are the facts about a loop device that has a user.
//
// When the kubelet releases a loop device that is in use, the kernel frees it at the last close. So one
// that is left after that has been in use without a gap since then, though not always by the same user.
// If the kubelet has not released it yet, as when losetup fails, there may be gaps.
var loopInUse = slices.Concat([]diagnose.Fact[loop]{
	{Says: "On the loop device, or on a partition of it, is a block device or a file system that is mounted.", Is: diagnose.If(isUsed)},
	{
		Says: "Readings ten seconds or more apart show the same there: all of it, or a block device, whether that is mounted or not. Or they show one " +
			"thing after another, and the kubelet has already released the loop device (autoclear): it stays as long as it is in use.",
		Is: isUsedForLong,
	},
}, driverThere[loop](evidence.Volumes))

const noLoopInUse = "Nothing has been on a loop device of the pod for ten seconds or more."

// A loop is a loop device of the kubelet, and the mount of the block device of the pod that it is on.
type loop struct {
	*evidence.Loop
	on *evidence.Mount
}

// Named says which one it is.
func (l loop) Named(*fact.View) string {
	return fmt.Sprintf("loop device %.40q of volume %.63q", l.Name, l.on.Volume)
}

func (l loop) mount() *evidence.Mount { return l.on }

func loops(p *fact.View) (out []loop) {
	for i := range p.Loops {
		if m := byID(p.Devices, p.Loops[i].MountID); m != nil {
			out = append(out, loop{&p.Loops[i], m})
		}
	}
	return out
}

func holdersOfDevices(p *fact.View) []holder { return holdersOf(p, p.Devices) }

func blockVolumes(p *fact.View) (out []*evidence.Volume) {
	for i := range p.Volumes {
		if v := &p.Volumes[i]; v.Block {
			out = append(out, v)
		}
	}
	return out
}

func isLeft(p *fact.View) bool { return fact.DevicesLeft(p) || fact.VolumesLeft(p) }

func isUsed(_ *fact.View, l loop) bool { return l.Used() }

// isUsedForLong answers whether something has been on a loop device for long: all that is there, one block device of it, or one thing after another.
func isUsedForLong(p *fact.View, l loop) diagnose.Holding {
	since := l.Since
	earlier := func(t time.Time) {
		if !t.IsZero() && t.Before(since) {
			since = t
		}
	}
	for _, d := range l.Mapper {
		earlier(d.Since)
	}
	if l.Released {
		earlier(l.UsedSince)
	}
	return usedSince(p, since)
}

func noLoopIsInUse(p *fact.View) bool { return len(diagnose.MetAsRead(p, loops(p), loopInUse)) == 0 }

func noDeviceIsHeld(p *fact.View) bool {
	return len(diagnose.MetAsRead(p, holdersOfDevices(p), keepsLong)) == 0
}

func tellLoop(p *fact.View, l loop) diagnose.Finding {
	f := diagnose.Finding{Confidence: diagnose.Proved, Objects: diagnose.Objects{Volumes: []string{l.on.Volume}, Mount: diagnose.MountOf(p, l.on)}}
	all := l.Mapper
	if !lasts(p, l.Since) {
		all = slices.DeleteFunc(slices.Clone(l.Mapper), func(d evidence.Mapped) bool { return !lasts(p, d.Since) })
		if len(all) == 0 {
			f.Confidence, f.Variants, all = diagnose.Inferred, []string{changing}, l.Mapper
		}
	}
	if len(all) > 0 {
		describeMapped(p, &f, l.on, all, inUse(p, l.Loop, all))
	} else {
		describeMounted(p, &f, l.on, l.Loop)
	}
	return f
}

func tellDeviceHeld(p *fact.View, found []holder) []diagnose.Finding {
	all := inOrder(p, found)
	f := heldFinding(p, all)
	switch {
	case all[0].Mounted && f.Family == "":
		f.Family = elsewhere
	case all[0].Mounted:
		f.Variants = append(f.Variants, elsewhere)
	}
	return []diagnose.Finding{f}
}

// The families: mapped and raid for a device whose content was made into another device, failing
// for one without a visible user. If its file system is mounted, the family is inside, or elsewhere
// in another mount namespace than the host's.
const (
	mapped    = "Mapped"
	raid      = "RAID"
	failing   = "Failing"
	elsewhere = "MountElsewhere"
	// other is the variant of Mapped with a device that is not a device-mapper device.
	other = "OtherDevice"
	// partition is the variant of a file system that is on a partition of the device.
	partition = "Partition"
	// atTimes is the variant of a device that stays while its file system is mounted again and
	// again. changing is that of a loop device with one user after another.
	atTimes  = "MountedAtTimes"
	changing = "Changing"
	// ofPod is the variant of a file system that is mounted below the kubelet's directory. A
	// provisioner does that if its storage is on block volumes.
	ofPod = "OfPod"
)

// lasts reports whether something has been seen since a time for long enough.
func lasts(p *fact.View, since time.Time) bool {
	return !since.IsZero() && p.Time.Sub(since) >= fact.SlowDevice
}

// describeMapped adds to a finding that device d, one of all, is built on the pod's device.
func describeMapped(p *fact.View, f *diagnose.Finding, m *evidence.Mount, all []evidence.Mapped, d *evidence.Mapped) {
	f.Family, f.Objects.Device, f.Objects.Logical, f.Objects.Rest = mapped, d.Name, d.Logical, besides(all, d)
	switch {
	case mountedAtTimes(p, d) && !slices.Contains(f.Variants, changing):
		f.Variants = append(f.Variants, atTimes)
		f.Objects.Inner = diagnose.MountOf(p, d.Unmounted)
	case d.Mount != nil:
		f.Objects.Inner = diagnose.MountOf(p, d.Mount)
		f.Variants = append(f.Variants, forPod(m, d.Mount)...)
	}
	switch d.Kind {
	case evidence.MadeByMD:
		f.Family = raid
	case evidence.MadeByOther:
		f.Variants = append(f.Variants, other)
	}
}

// mountedAtTimes reports whether the file system on a device has been mounted more than once, and neither
// its mount nor its unmount has lasted yet.
func mountedAtTimes(p *fact.View, d *evidence.Mapped) bool {
	return d.Mounts > 1 && d.Unmounted != nil && !lasts(p, d.MountSince)
}

// describeMounted adds to a finding that the file system of the device, or of a partition, is mounted.
func describeMounted(p *fact.View, f *diagnose.Finding, m *evidence.Mount, l *evidence.Loop) {
	f.Family, f.Objects.Inner = inside, diagnose.MountOf(p, l.Mount)
	f.Variants = append(f.Variants, forPod(m, l.Mount)...)
	if slices.Contains(l.Numbers[min(1, len(l.Numbers)):], l.Mount.Device) {
		f.Variants = append(f.Variants, partition)
	}
}

// forPod returns ofPod where it applies: the device's own mount is below plugins in the kubelet's
// directory.
func forPod(device, in *evidence.Mount) []string {
	if dir, _, ok := strings.Cut(device.Point, "/plugins/"); ok && strings.HasPrefix(in.Point, dir+"/") {
		return []string{ofPod}
	}
	return nil
}

// inUse returns the device on a loop device that has to be removed first: one whose file system is
// mounted and stays so, else one whose file system is mounted at times, else the last one, which is
// built on the others.
func inUse(p *fact.View, l *evidence.Loop, all []evidence.Mapped) *evidence.Mapped {
	for _, first := range []func(m evidence.Mapped) bool{
		func(m evidence.Mapped) bool { return m.Mount != nil && (lasts(p, l.Since) || lasts(p, m.MountSince)) },
		func(m evidence.Mapped) bool { return m.Mount != nil || mountedAtTimes(p, &m) },
	} {
		if i := slices.IndexFunc(all, first); i >= 0 {
			return &all[i]
		}
	}
	return &all[len(all)-1]
}

// besides returns the names of the others, those first that are on the rest.
func besides(all []evidence.Mapped, d *evidence.Mapped) []string {
	var out []string
	for i := len(all) - 1; i >= 0; i-- {
		if &all[i] != d {
			out = append(out, all[i].Name)
		}
	}
	return out
}

// loopsOf returns the loop devices of a volume.
func loopsOf(p *fact.View, v *evidence.Volume) []loop {
	return slices.DeleteFunc(loops(p), func(l loop) bool { return l.on.Volume != v.Name || l.on.Plugin != v.Plugin })
}

func hasNothingOn(p *fact.View, v *evidence.Volume) bool {
	return !slices.ContainsFunc(loopsOf(p, v), func(l loop) bool { return l.Used() })
}

func isNotHeld(p *fact.View, v *evidence.Volume) bool {
	return !slices.ContainsFunc(holdersOfDevices(p), func(h holder) bool {
		return h.on.Volume == v.Name && h.on.Plugin == v.Plugin && !unmounts(&h.Task)
	})
}

func unmapFails(p *fact.View, v *evidence.Volume) bool { return fact.FailedUnmount(p, v) != nil }

// noCallFails reports whether no call to the driver of a volume has failed, which may be one for another volume that the kubelet counts.
func noCallFails(p *fact.View, v *evidence.Volume) bool {
	return v.Driver == "" || fact.FailedCall(p, v.Driver) == nil
}

// failsWithNothingOn answers whether the last failed attempt is not from the time when something was on the loop device.
func failsWithNothingOn(p *fact.View, v *evidence.Volume) diagnose.Holding {
	var free time.Time
	for _, l := range loopsOf(p, v) {
		if !l.UsedUntil.IsZero() {
			free = fact.Latest(free, l.Since)
		}
	}
	return failsSince(p, v, free)
}

// failsUnheld answers whether the last failed attempt is not from the time when a process used the device.
func failsUnheld(p *fact.View, v *evidence.Volume) diagnose.Holding {
	return failsSince(p, v, p.UnheldSince)
}

// failsSince answers whether the last failed attempt at a volume came no sooner than what was in the way had gone: the next one tells.
func failsSince(p *fact.View, v *evidence.Volume, free time.Time) diagnose.Holding {
	failed := fact.FailedUnmount(p, v)
	return diagnose.IsOr(failed == nil || !failed.Rose.Before(free), diagnose.Seen(p, diagnose.Next))
}

// tellUnmapFails is about a device that the kubelet fails to unmap before it calls a CSI driver: its own mount of the device is left.
func tellUnmapFails(p *fact.View, v *evidence.Volume) diagnose.Finding {
	c := fact.FailedUnmount(p, v)
	return diagnose.Finding{
		Family: failing, Variants: whose(p, c), Confidence: confidence(p, c, []string{v.Name}),
		Objects: diagnose.Objects{Volumes: []string{v.Name}, Plugin: strings.ReplaceAll(v.Plugin, "~", "/")},
	}
}

// notReached reports whether a volume is a block device and the kubelet's own mount of it is
// left. The kubelet has not called the driver then.
func notReached(p *fact.View, v *evidence.Volume) bool {
	return v.Block && slices.ContainsFunc(p.Devices, func(m evidence.Mount) bool { return m.Volume == v.Name && m.Plugin == v.Plugin && !published(&m) })
}

// published reports whether a mount of a block device is the one that its CSI driver has
// made, which the driver has to unmount.
func published(m *evidence.Mount) bool { return strings.Contains(m.Point, "/volumeDevices/publish/") }

// byID returns the mount of the given number, nil when there is none.
func byID(mounts []evidence.Mount, id int) *evidence.Mount {
	if i := slices.IndexFunc(mounts, func(m evidence.Mount) bool { return m.ID == id }); i >= 0 {
		return &mounts[i]
	}
	return nil
}
