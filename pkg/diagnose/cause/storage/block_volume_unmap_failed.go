package storage

import (
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
	Needs:  []evidence.Source{evidence.Mounts, evidence.Volumes, evidence.Holders, evidence.Cgroups},
	Partly: []evidence.Source{evidence.VolumeCalls},
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
		Evidence: []string{
			"The containers have exited. The mount of the device, below the kubelet's directory plugins and with the pod's UID as its name, is " +
				"left. So is the pod's cgroup, which the kubelet removes later.",
			"Two readings ten seconds or more apart show what uses the device: one of the next three.",
			"A process in the host's mount namespace has a file open on that mount (mnt_id in /proc/PID/fdinfo). Or it has the loop device open " +
				"whose backing_file is that mount, or a partition of that loop device.",
			"The loop device, a partition of it or such a device has a holder (/sys/dev/block): a device-mapper device, a software RAID or " +
				"another block device. dm/uuid of a logical volume begins with LVM-, and a RAID has md/array_state.",
			"The file system of the loop device, or of a partition of it, is in the host's mount table.",
			"A device among the holders counts if all these readings show it, whether it is mounted or not.",
			"If nothing is found in the host's mount namespace, others with a process are checked. Their mountinfo has a mount of the loop " +
				"device or of a partition. Or a process has the loop device open (by the device number of the file).",
			"Family Failing: none of this is seen, but the kubelet has since counted more failed attempts at block volumes of the plugin " +
				"(storage_operation_duration_seconds, operation unmap_volume). It has not called the CSI driver yet.",
			"Inferred if all readings show something on the device, but one thing after another. That counts only if the kubelet has already " +
				"released the loop device (autoclear): the kernel then keeps it as long as it is in use.",
		},
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
	Check: func(p *fact.View) diagnose.Result {
		if !fact.DevicesLeft(p) && !fact.VolumesLeft(p) || p.Overdue() < fact.KillLatency || p.Time.Sub(p.UnchangedSince) < fact.SlowDevice {
			return diagnose.Result{}
		}
		if f, ok := onDevice(p); ok {
			return diagnose.Found(f)
		}
		if all := inOrder(p, meet(p, holdersOf(p, p.Devices), keepsLong)); len(all) > 0 {
			first := all[0]
			m := first.on
			if published(m) && driverAway(p, m) {
				return diagnose.Result{}
			}
			f := heldFinding(p, all)
			switch {
			case first.Mounted && f.Family == "":
				f.Family = elsewhere
			case first.Mounted:
				f.Variants = append(f.Variants, elsewhere)
			}
			return diagnose.Found(f)
		}
		return diagnose.Found(notUnmapped(p)...)
	},
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

// onDevice looks for what is on a loop device of the kubelet.
//
// When the kubelet releases a loop device that is in use, the kernel frees it at the last close. So one
// that is left after that has been in use without a gap since then, though not always by the same user.
// If the kubelet has not released it yet, as when losetup fails, there may be gaps.
func onDevice(p *fact.View) (diagnose.Finding, bool) {
	for i := range p.Loops {
		l := &p.Loops[i]
		m := byID(p.Devices, l.MountID)
		if m == nil || published(m) && driverAway(p, m) || l.Since.IsZero() {
			continue
		}
		f := diagnose.Finding{Confidence: diagnose.Proved, Objects: diagnose.Objects{Volumes: []string{m.Volume}, Mount: diagnose.MountOf(p, m)}}
		all := l.Mapper
		if !lasts(p, l.Since) {
			all = slices.DeleteFunc(slices.Clone(l.Mapper), func(d evidence.Mapped) bool { return !lasts(p, d.Since) })
		}
		switch {
		case len(all) > 0:
			describeMapped(p, &f, m, all, inUse(p, l, all))
		case l.Mount != nil && lasts(p, l.Since):
			describeMounted(p, &f, m, l)
		case !l.Used() || !lasts(p, l.UsedSince) || !l.Released:
			continue
		case len(l.Mapper) > 0:
			f.Confidence, f.Variants = diagnose.Inferred, []string{changing}
			describeMapped(p, &f, m, l.Mapper, inUse(p, l, l.Mapper))
		default:
			f.Confidence, f.Variants = diagnose.Inferred, []string{changing}
			describeMounted(p, &f, m, l)
		}
		return f, true
	}
	return diagnose.Finding{}, false
}

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

// notUnmapped is about a device that the kubelet fails to unmap before it calls a CSI driver:
// its own mount of the device is left.
func notUnmapped(p *fact.View) []diagnose.Finding {
	if !settled(p) {
		return nil
	}
	for i := range p.Volumes {
		v := &p.Volumes[i]
		c := fact.FailedUnmount(p, v)
		if c == nil || !notReached(p, v) || mappedOrMounted(p, v, c) || heldLately(p, v, c) {
			continue
		}
		if v.Driver != "" && fact.FailedCall(p, v.Driver) != nil {
			continue // a call for another volume of the driver, which the kubelet may count
		}
		return []diagnose.Finding{{
			Family: failing, Variants: whose(p, c), Confidence: confidence(p, c, []string{v.Name}),
			Objects: diagnose.Objects{Volumes: []string{v.Name}, Plugin: strings.ReplaceAll(v.Plugin, "~", "/")},
		}}
	}
	return nil
}

// mappedOrMounted reports whether something is on a loop device of a volume, even if only since a moment ago. It also
// reports what was there before the first reading that showed nothing: the last failed attempt may be from that time.
func mappedOrMounted(p *fact.View, v *evidence.Volume, failed *evidence.VolumeCall) bool {
	return slices.ContainsFunc(p.Loops, func(l evidence.Loop) bool {
		m := byID(p.Devices, l.MountID)
		return m != nil && m.Volume == v.Name && m.Plugin == v.Plugin && (l.Used() || !l.UsedUntil.IsZero() && failed.Rose.Before(l.Since))
	})
}

// heldLately is mappedOrMounted for a process that uses the device, or did.
func heldLately(p *fact.View, v *evidence.Volume, failed *evidence.VolumeCall) bool {
	return failed.Rose.Before(p.UnheldSince) || slices.ContainsFunc(p.Holders, func(h evidence.Holder) bool {
		m := byID(p.Devices, h.MountID)
		return m != nil && m.Volume == v.Name && m.Plugin == v.Plugin && !unmounts(&h.Task)
	})
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
