package storage

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// VolumeUnmountBusy is a mount that the kernel does not unmount, because it is in use.
var VolumeUnmountBusy = &diagnose.Rule{
	Cause:  "VolumeUnmountBusy",
	Phases: []diagnose.Phase{diagnose.Volumes},
	Doc: diagnose.Doc{
		Layer:   "storage",
		Title:   "a volume cannot be unmounted: it is in use",
		Who:     diagnose.ByNode,
		Message: "volume {volumes} cannot be unmounted (EBUSY): {user}{said}",
		Phrases: map[string][]diagnose.Choice{
			"user": {
				{Variant: inside, Text: "{innertype} (source {innersource}) is mounted inside it"},
				{Variant: inside, Text: "{innertype} is mounted inside it"},
				{Text: "{process} uses it ({via}){more}"},
			},
			"more":     orMore,
			"look":     lookAtThem,
			"finish":   {{Variant: givenUp, Text: " Then unmount it as Fix says"}, {Text: ""}},
			"stop":     stopThem,
			"spare":    spare,
			"but":      exempt,
			"servants": servants,
			"said": {
				{Variant: givenUp, Text: ". CSI driver {driver} still reported it as unpublished, so the kubelet has not retried since {since}"},
				{Text: ""},
			},
			"calls": {
				{Variant: givenUp, Text: "NodeUnpublishVolume calls to CSI driver {driver} have succeeded; the kubelet has counted no attempt since {since}"},
				{Variant: saidOK, Text: "CSI driver {driver} has since reported the volume{others} as unpublished, and no call has failed"},
				{Variant: unfailed, Text: "No failed NodeUnpublishVolume call to CSI driver {driver} is known"},
				{Text: "NodeUnpublishVolume calls to CSI driver {driver} have failed"},
			},
			"others": orOthers,
			"unmounted": {
				{Variant: givenUp, Text: "The kubelet does not retry. Then, on the node: {unmount}"},
				{Variant: unfailed, Text: "The kubelet then unmounts within two minutes, unless the CSI driver has reported the volume as " +
					"unpublished. In that case, on the node: {unmount}"},
				{Text: "The kubelet then unmounts within two minutes"},
			},
			"unmount": {{Text: "umount {hostmount}"}, {Text: "unmount the volume's mount point, which findmnt lists"}},
			"mount":   {{Text: "grep {hostmount}/ /proc/1/mountinfo"}, {Text: "findmnt"}},
		},
		Meaning: "The containers have exited, and the kubelet has to unmount the pod's volume. A process outside the pod uses it, perhaps in a " +
			"container or service that sees the node's mounts. Or something else is mounted inside. The kernel returns EBUSY. The kubelet " +
			"retries without end, with pauses of up to two minutes, and reports it in its log only.",
		Seen: []string{
			"The volume is mounted at {mountpoint} (type {fstype})",
			"Readings at least 10 s apart show {process} on this mount: {via}",
			"The {innertype} mount inside it is at {innerpoint}",
			"{calls}",
			"No process of the pod is left",
		},
		Remedy: "{stop}. {unmounted}.",
		Danger: "umount -l hides the mount while the file system stays in use. If it is then attached to another node, its data is damaged. " +
			"Do not delete files below the mount: they are the volume's data.",
		First: "{look}{finish}",
		Avoid: "umount -l (only hides the use; data at risk)",
		Families: []diagnose.Family{
			{
				Name: inside,
				Who:  diagnose.ByNode,
				Meaning: "Something is mounted inside the volume: by a container with mountPropagation Bidirectional, by docker or a FUSE daemon in the pod, " +
					"or by hand.",
				Remedy: "On the node: {mount} lists what is mounted inside. Ask the volume's owner whether that is still needed. " +
					"Unmount it, innermost first, without -f or -l. {unmounted}.",
				First: "ask the volume's owner if the mount inside is needed. If the owner says no, unmount it as Fix says. " +
					"If unsure, wait",
			},
			{
				Name:    diagnose.Essential,
				Meaning: "The process serves other pods or the whole node.",
				Remedy:  "{servants}. {unmounted}.",
				First:   keepServing,
				Avoid:   notEnd,
			},
		},
	},
	By: diagnose.Ways{
		diagnose.By[mountIn]{
			Title: "If something is mounted inside the volume",
			From:  []evidence.Source{evidence.Mounts, evidence.Holders},
			Of:    mountsInside,
			Facts: mountedInside,
			Tell:  diagnose.First(tellInside),
		},
		diagnose.By[holder]{
			Title: "If a process uses it",
			From:  []evidence.Source{evidence.Mounts, evidence.Holders},
			Of:    holdersOfMounts,
			Facts: heldBusy,
			Tell:  tellHeld,
		},
	},
}

// mountedInside are the facts about a mount inside a volume, and heldBusy those about a process that uses a mount.
var (
	mountedInside = slices.Concat([]diagnose.Fact[mountIn]{
		{Says: "The mount table shows a mount inside the volume, and that of the volume itself.", Is: diagnose.If(hasVolumeMount)},
		{Says: "Of several mounts inside volumes, it is the first one.", Is: diagnose.If(isFirstInside), Partly: []evidence.Source{evidence.Volumes}},
	}, driverThere[mountIn](), unmountOverdue[mountIn]())

	heldBusy = slices.Concat([]diagnose.Fact[holder]{
		{Says: "Nothing is mounted inside a volume of the pod.", Pod: diagnose.IfPod(nothingInside), Partly: []evidence.Source{evidence.Volumes}},
	}, keepsLong, []diagnose.Fact[holder]{
		isOnFirstUsed,
		{Says: "The process has a file open on this very mount (mnt_id in /proc/PID/fdinfo), or its working directory, root directory or program."},
		{Says: "If no process in the host's mount namespace is found, other mount namespaces that have a process are checked. A process there that " +
			"uses a copy keeps the mount busy if the kernel unmounts both together (a slave or a peer, mount_namespaces(7))."},
		{Says: "A copy in a mount namespace whose mounts are private does not count."},
	}, driverThere[holder](), []diagnose.Fact[holder]{
		{
			Says: "No call to the CSI driver has failed, or a process on the mount was started less than ten seconds after the containers had exited. " +
				"What failed before a process was started may fail now.",
			Is: diagnose.If(wasThereBeforeFailure),
		},
		{Says: "The kubelet still tries to unmount the volume, or a process on the mount was started as early as that. Otherwise, it is VolumeLeftMounted.",
			Is: diagnose.If(wasThereBeforeEnd)},
	}, unmountOverdue[holder](), []diagnose.Fact[holder]{
		{Says: "Of several processes, the first ones are named: one of each mount namespace before a second one of any."},
		{Says: "Inferred if the process was started ten seconds or more after the containers had exited, or is one of the driver's pod."},
	})
)

// driverThere are the facts that somebody has tried to unmount a volume: what uses it has made no unmount fail before. from are the sources.
func driverThere[T onMount](from ...evidence.Source) []diagnose.Fact[T] {
	return []diagnose.Fact[T]{
		{Says: "If a CSI driver unmounts the volume, the kubelet knows which (vol_data.json).", Is: diagnose.If(isRecorded[T]), From: from},
		{Says: "If one does, it is registered and answers on its socket.", Is: diagnose.IfLater(isRegistered[T], diagnose.Restarting), From: from},
	}
}

// unmountOverdue are the facts that an unmount must have failed by now.
func unmountOverdue[T onMount]() []diagnose.Fact[T] {
	return []diagnose.Fact[T]{
		{Says: overdueAsBefore, Pod: isOverdueAsBefore},
		{
			Says: "The driver unmounts a CSI volume. If the kubelet's counts are known, an attempt must be among them, or a failed call to the driver " +
				"(NodeUnpublishVolume).",
			Is: isAttempted[T],
		},
		{Says: "Inferred if the counts show no failed call."},
		{Says: "The driver may have returned OK without unmounting: the kubelet then does not retry (VolumeLeftMounted). nodeagent reports that if " +
			"the kubelet has counted an OK, or nothing for five minutes."},
	}
}

const overdueAsBefore = "The pod is past its deadline by ten seconds or more, and all readings of the last ten seconds show the same."

// isOverdueAsBefore answers whether SIGKILL has come (fact.KillLatency), and the pod has made no progress for as long.
func isOverdueAsBefore(p *fact.View) diagnose.Holding {
	return diagnose.Lasted(p, fact.Latest(p.Deadline, p.UnchangedSince), fact.SlowDevice, diagnose.Slow)
}

// keepsLong are the facts about a process that uses a mount or a block device of the pod for long.
var keepsLong = []diagnose.Fact[holder]{
	isNoUnmount,
	{
		Says: "It does not belong to the pod of the volume's CSI driver, or the kubelet has counted a failed call to the driver. " +
			"A process of that pod may be the one that unmounts, once the kubelet has called the driver.",
		Is: diagnose.IfLater(failsToUnmount, diagnose.Retry),
	},
	{Says: "It does not belong to that pod, or none of these calls has timed out.", Is: diagnose.If(isNotHanging)},
	{Says: "Readings ten seconds or more apart show the process there.", Is: usesForLong},
}

// isNoUnmount is the fact that a process is none of those that unmount, or release the kubelet's loop device before that (losetup -d;
// removeLoopDevice, pkg/volume/util/volumepathhandler).
var isNoUnmount = diagnose.Fact[holder]{
	Says: "The process is none of those that unmount or release a loop device: umount, fusermount and losetup.", Is: diagnose.If(doesNotUnmount),
}

// isOnFirstUsed is the fact that a process is on the mount that the finding is about, where several are in use.
var isOnFirstUsed = diagnose.Fact[holder]{
	Says: "Of several mounts in use, it is on that of the process that is named first: if possible one that was there before the containers had " +
		"exited, and that may be stopped.",
	Is: diagnose.If(isOnFirst),
}

// A mountIn is a mount inside a volume, and the volume's own one, nil when there is none.
type mountIn struct{ inner, volume *evidence.Mount }

// Named says what it is.
func (m mountIn) Named(*fact.View) string {
	return fmt.Sprintf("a mount of type %.40q inside volume %.63q", m.inner.Type, m.inner.Volume)
}

func (m mountIn) mount() *evidence.Mount { return m.volume }

// A holder is a process that uses one of several mounts of the pod: its volumes, its block devices or its image volumes.
type holder struct {
	*evidence.Holder
	on *evidence.Mount
	of []evidence.Mount
}

// Named says which process it is.
func (h holder) Named(*fact.View) string {
	return fmt.Sprintf("process %.40q (PID %d), %s", h.Comm, h.PID, h.Via)
}

func (h holder) mount() *evidence.Mount { return h.on }

// An onMount is something about a mount that has to be unmounted, nil where that is not there.
type onMount interface{ mount() *evidence.Mount }

func mountsInside(p *fact.View) (out []mountIn) {
	for i := range p.Mounts {
		if in := &p.Mounts[i]; isInner(in) {
			out = append(out, mountIn{in, root(p, in)})
		}
	}
	return out
}

func holdersOfMounts(p *fact.View) []holder { return holdersOf(p, p.Mounts) }

// holdersOf returns the processes that use one of some mounts.
func holdersOf(p *fact.View, mounts []evidence.Mount) (out []holder) {
	for i := range p.Holders {
		if m := byID(mounts, p.Holders[i].MountID); m != nil {
			out = append(out, holder{&p.Holders[i], m, mounts})
		}
	}
	return out
}

// keptBusy finds a mount of the pod that is in use.
func keptBusy(p *fact.View) []diagnose.Finding {
	if mounts := diagnose.MetAsRead(p, mountsInside(p), mountedInside); len(mounts) > 0 {
		return []diagnose.Finding{tellInside(p, mounts[0])}
	}
	if held := diagnose.MetAsRead(p, holdersOfMounts(p), heldBusy); len(held) > 0 {
		return tellHeld(p, held)
	}
	return nil
}

func hasVolumeMount(_ *fact.View, m mountIn) bool { return m.volume != nil }

// firstInside returns the first mount inside a volume that can have made an unmount fail, nil when there is none.
func firstInside(p *fact.View) *evidence.Mount {
	for _, m := range mountsInside(p) {
		if m.volume != nil && isRecorded(p, m) && isRegistered(p, m) {
			return m.inner
		}
	}
	return nil
}

func isFirstInside(p *fact.View, m mountIn) bool {
	first := firstInside(p)
	return first == nil || first == m.inner
}

func nothingInside(p *fact.View) bool { return firstInside(p) == nil }

func tellInside(p *fact.View, m mountIn) diagnose.Finding {
	f := diagnose.Finding{Family: inside, Confidence: diagnose.Proved, Objects: diagnose.Objects{
		Mount: diagnose.MountOf(p, m.volume), Inner: diagnose.MountOf(p, m.inner), Volumes: []string{m.volume.Volume},
	}}
	saysOfDriver(p, &f, m.volume)
	return f
}

const (
	// inside is the family of a volume with another mount in it.
	inside = "MountInside"
	// one is the variant of a mount that one more process uses.
	one = "OneMore"
)

// more is the variant of a mount that several more processes use.
const more = "More"

// The words about further processes that use a mount, about what to do with all of them, and about
// those that must not be ended.
var (
	orMore     = []diagnose.Choice{{Variant: one, Text: ", and so does {also}"}, {Variant: more, Text: ", and so do {also}"}, {Text: ""}}
	lookAtThem = []diagnose.Choice{
		{Variant: one, Text: "on the node: {whoseeach}. " +
			"Ask both owners to stop them{but}."},
		{Variant: more, Text: "on the node: {whoseeach}. " +
			"Ask the owners to stop them{but}."},
		{Text: "{askowner}."},
	}
	stopThem = []diagnose.Choice{
		{Variant: one, Text: "Find out what both processes do with the volume. Ask their owners to stop them or to close the " +
			"volume{spare}. On the node: systemctl status {pid} shows what the first one is"},
		{Variant: more, Text: "Find out what these processes do with the volume. Ask their owners to stop them or to close the " +
			"volume{spare}. On the node: systemctl status {pid} shows what the first one is"},
		{Text: "Find out what {process} is: on the node, systemctl status {pid}. Ask its owner to stop it or to close the volume. With " +
			"the owner's consent, on the node: {terminate}"},
	}
	spare    = []diagnose.Choice{{Text: ", but not {spared}, which the node needs: restart its service when the other pods allow it"}, {Text: ""}}
	exempt   = []diagnose.Choice{{Text: ", but not {spared}, which the node needs"}, {Text: ""}}
	servants = []diagnose.Choice{
		{Text: "{process} and {also} serve the node: do not stop them. Find out what they do there. Restart their services when the other pods allow it"},
		{Text: "{process} serves the node: do not stop it. Find out what it does there. Restart its service when the other pods allow it"},
	}
)

// The first step about a process outside the pod that uses a volume, that about one which serves other pods too, and what to avoid of the latter.
const (
	keepServing = "on the node, as root: ls -l /proc/{pid} /proc/{pid}/fd shows its files. " +
		"Restart its service only if the owners of the node's pods agree"
	notEnd = "killing that process (other pods need it)"
)

func tellHeld(p *fact.View, found []holder) []diagnose.Finding {
	all := inOrder(p, found)
	f := heldFinding(p, all)
	saysOfDriver(p, &f, all[0].on)
	return []diagnose.Finding{f}
}

// The variants of a volume whose CSI driver is not known to have failed to unmount it: unfailed for
// all, saidOK for one that the driver may have reported as unpublished, and givenUp for one that the
// kubelet does not try to unmount any more for that reason.
const (
	unfailed = "Unfailed"
	saidOK   = "SaidOK"
	givenUp  = "GivenUp"
)

// saysOfDriver adds to a finding what is known of the CSI driver that has to unmount the volume. A driver
// that has reported the volume as unpublished is not called again.
func saysOfDriver(p *fact.View, f *diagnose.Finding, m *evidence.Mount) {
	v := csiVolume(p, m)
	if v == nil {
		return
	}
	o := ofDriver(p, v.Driver, f.Objects.Volumes)
	f.Objects.Driver, f.Objects.DriverPod, f.Objects.DriverState = o.Driver, o.DriverPod, o.DriverState
	if fact.FailedCall(p, o.Driver) != nil {
		return
	}
	f.Confidence, f.Variants = diagnose.Inferred, append(f.Variants, unfailed)
	if hasGivenUp(p, m) {
		f.Objects.Since, f.Variants = untriedSince(p), append(f.Variants, givenUp)
		return
	}
	// The counts may not be read, or have not been yet.
	if calls := fact.UnpublishCalls(p, o.Driver); len(calls) > 0 && !p.Node.Kubelet.VolumeCallsRead.IsZero() {
		f.Variants = append(append(f.Variants, saidOK), whose(p, calls[0])...)
	}
}

// csiVolume returns the volume of a mount that a CSI driver has to unmount, also where it is not known which one; nil where the kubelet does
// that itself, as with its own mount of a block device.
func csiVolume(p *fact.View, m *evidence.Mount) *evidence.Volume {
	if m == nil || byID(p.Devices, m.ID) != nil && !published(m) {
		return nil
	}
	i := slices.IndexFunc(p.Volumes, func(v evidence.Volume) bool {
		return v.Name == m.Volume && v.Plugin == m.Plugin && (v.Driver != "" || v.NoRecord)
	})
	if i < 0 {
		return nil
	}
	return &p.Volumes[i]
}

func isRecorded[T onMount](p *fact.View, t T) bool {
	v := csiVolume(p, t.mount())
	return v == nil || !v.NoRecord
}

// isRegistered reports whether a driver is there. What uses its volume tells nothing before that: it may just be started.
func isRegistered[T onMount](p *fact.View, t T) bool {
	v := csiVolume(p, t.mount())
	return v == nil || p.CSI[v.Driver].State != fact.Gone
}

// isAttempted answers whether the kubelet's next attempt at a volume cannot show any more that its driver fails: it does not try again, or what it
// counts is not known, or must have an attempt among it.
func isAttempted[T onMount](p *fact.View, t T) diagnose.Holding {
	m := t.mount()
	v := csiVolume(p, m)
	if v == nil || fact.FailedCall(p, v.Driver) != nil || hasGivenUp(p, m) || p.Node.Kubelet.VolumeCallsRead.IsZero() || attemptDue(p) {
		return diagnose.Is(true)
	}
	return diagnose.NotYet(diagnose.Waits(p.UnchangedSince, attemptsCounted, diagnose.Retry))
}

// cameLater reports whether a process was started after the containers had exited, as the kubelet
// reports. The first attempt at the volumes may have failed without it.
func cameLater(p *fact.View, h holder) bool {
	ended := lastExit(p)
	return !ended.IsZero() && h.Probe != nil && h.Probe.Started.Sub(ended) >= fact.SlowDevice
}

// lastExit returns when the last container has exited, zero where that is not known.
func lastExit(p *fact.View) (ended time.Time) {
	for i := range p.Containers {
		if e := p.Containers[i].Exit; e != nil {
			ended = fact.Latest(ended, e.At)
		}
	}
	return ended
}

func wasThereBeforeFailure(p *fact.View, h holder) bool {
	v := csiVolume(p, h.on)
	return v == nil || fact.FailedCall(p, v.Driver) == nil || !cameLater(p, firstOf(p, h))
}

func wasThereBeforeEnd(p *fact.View, h holder) bool {
	return !hasGivenUp(p, h.on) || !cameLater(p, firstOf(p, h))
}

// firstOf returns the process that is named first of those that use the same mounts as another one, which is that one while none of them has for
// long.
func firstOf(p *fact.View, h holder) holder {
	if all := inOrder(p, diagnose.MetAsRead(p, holdersOf(p, h.of), keepsLong)); len(all) > 0 {
		return all[0]
	}
	return h
}

func isOnFirst(p *fact.View, h holder) bool { return sameUse(h, firstOf(p, h)) }

func sameUse(a, b holder) bool { return a.MountID == b.MountID && a.Mounted == b.Mounted }

// inOrder returns those of some processes that use the same mount as the first one. If possible, the first process was there before the containers
// had exited, and may be stopped.
func inOrder(p *fact.View, all []holder) []holder {
	slices.SortStableFunc(all, func(a, b holder) int {
		return cmp.Or(last(cameLater(p, a), cameLater(p, b)), last(serves(p, a), serves(p, b)), a.Since.Compare(b.Since))
	})
	return slices.DeleteFunc(all, func(h holder) bool { return !sameUse(h, all[0]) })
}

// last orders false before true.
func last(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// serves reports whether a process serves other pods too.
func serves(p *fact.View, h holder) bool { return ofDriverPod(p, &h.Task) || fact.Essential(&h.Task) }

// named is how many of the further processes are named.
const named = 2

// heldFinding is about the processes that use a mount.
func heldFinding(p *fact.View, all []holder) diagnose.Finding {
	first := all[0]
	if serves(p, first) { // those that serve nothing came later
		all = slices.DeleteFunc(all, func(h holder) bool { return !serves(p, h) })
	}
	rest := oneOfEach(all)[1:]
	f := diagnose.Finding{Confidence: diagnose.Proved, Objects: diagnose.Objects{
		Mount: diagnose.MountOf(p, first.on), Process: holderOf(p, first), Via: first.Via, Alike: len(rest),
		AtLeast: len(p.Holders) >= evidence.MaxHolders, Volumes: []string{first.on.Volume},
	}}
	o := &f.Objects
	for i, h := range rest {
		if i < named {
			o.Others = append(o.Others, holderOf(p, h))
		}
		if len(o.Spared) < named && serves(p, h) && !serves(p, first) { // also of those that are only counted
			o.Spared = append(o.Spared, holderOf(p, h))
		}
	}
	if ofDriverPod(p, &first.Task) || cameLater(p, first) {
		f.Confidence = diagnose.Inferred
	}
	switch {
	case len(rest) > 1:
		f.Variants = []string{more}
	case len(rest) == 1:
		f.Variants = []string{one}
	}
	if serves(p, first) {
		f.Family = diagnose.Essential
	}
	return f
}

func holderOf(p *fact.View, h holder) *diagnose.Process {
	o := diagnose.ProcessOf(p, &h.Task)
	if h.Owner == "" {
		o.Unit = fact.UnitOf(h.Cgroup)
	}
	return o
}

// oneOfEach returns holders so that the first ones are each of another mount namespace.
func oneOfEach(all []holder) []holder {
	var out, others []holder
	seen := make(map[string]bool)
	for _, h := range all {
		if seen[h.Namespace] {
			others = append(others, h)
			continue
		}
		seen[h.Namespace] = true
		out = append(out, h)
	}
	return append(out, others...)
}

// unmounts reports whether a process is one of those that unmount, or release the kubelet's
// loop device before that (losetup -d; removeLoopDevice, pkg/volume/util/volumepathhandler).
func unmounts(t *evidence.Task) bool {
	return t.Comm == "umount" || t.Comm == "losetup" || strings.HasPrefix(t.Comm, "umount.") || strings.HasPrefix(t.Comm, "fusermount")
}

// ofDriverPod reports whether a process is of the pod of a CSI driver of the pod's volumes, which
// serves all pods of the node, perhaps with a FUSE daemon for each volume.
func ofDriverPod(p *fact.View, t *evidence.Task) bool {
	return t.OwnerName != "" && slices.ContainsFunc(p.Volumes, func(v evidence.Volume) bool { return v.DriverPod == t.OwnerName })
}

// callsToUnmount returns what the kubelet counts of its calls to a CSI driver to whose pod a process belongs that uses a volume, perhaps in order to
// unmount it, for example in a sync before that. may is false for any other process, and while the driver has not been called because the kubelet
// itself has to unmount first.
func callsToUnmount(p *fact.View, h holder) (last, timedOut *evidence.VolumeCall, may bool) {
	for i := range p.Volumes {
		v := &p.Volumes[i]
		if v.Name == h.on.Volume && v.Plugin == h.on.Plugin && v.DriverPod != "" && v.DriverPod == h.OwnerName && !notReached(p, v) {
			last, timedOut = unpublish(p, v.Driver)
			return last, timedOut, true
		}
	}
	return nil, nil, false
}

func failsToUnmount(p *fact.View, h holder) bool {
	failed, _, may := callsToUnmount(p, h)
	return failed != nil || !may
}

func isNotHanging(p *fact.View, h holder) bool {
	_, timedOut, _ := callsToUnmount(p, h)
	return timedOut == nil
}

func doesNotUnmount(_ *fact.View, h holder) bool { return !unmounts(&h.Task) }

func usesForLong(p *fact.View, h holder) diagnose.Holding { return usedSince(p, h.Since) }

// usedSince answers whether what uses a volume has been seen for long. Until then nothing is waited for: something else may use it at each reading.
func usedSince(p *fact.View, since time.Time) diagnose.Holding {
	if since.IsZero() || lasts(p, since) {
		return diagnose.Is(!since.IsZero())
	}
	return diagnose.NotYet(diagnose.Seen(p, diagnose.Slow))
}

// attemptsCounted is how long the pod may wait for an attempt to be counted.
const attemptsCounted = fact.VolumeRetry + evidence.CallsPause

// attemptDue reports whether the kubelet's counts have been read for so long that an attempt at a volume
// that keeps failing must be among them. The first attempt comes when the last container has exited. The
// pause before each further one is as long as the time since then, two minutes at most. If the counts are
// read only now and then, as on a busy node, they are not waited for without end.
func attemptDue(p *fact.View) bool {
	since := fact.CountedSince(p)
	wait := fact.VolumeRetry
	if ended := lastExit(p); !ended.IsZero() {
		wait = min(wait, max(0, since.Sub(ended))+evidence.CallsPause)
	}
	return p.Node.Kubelet.VolumeCallsRead.Sub(since) >= wait || p.Time.Sub(p.UnchangedSince) >= attemptsCounted
}
