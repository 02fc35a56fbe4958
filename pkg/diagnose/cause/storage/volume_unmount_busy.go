package storage

import (
	"cmp"
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
	Needs:  []evidence.Source{evidence.Mounts, evidence.Holders},
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
		Evidence: []string{
			"Two readings ten seconds or more apart show a process in the host's mount namespace on this very mount. It has a file open there " +
				"(mnt_id in /proc/PID/fdinfo), or its working directory, root directory or program.",
			"Or the mount table shows a mount inside the volume's mount.",
			"If no process in the host's mount namespace is found, other mount namespaces that have a process are checked. A process there that " +
				"uses a copy keeps the mount busy if the kernel unmounts both together (a slave or a peer, mount_namespaces(7)).",
			"A copy in a mount namespace whose mounts are private does not count.",
			"Of several processes, the first ones are named: one of each mount namespace before a second one of any.",
			"The driver unmounts a CSI volume. If the kubelet's counts are known, nodeagent waits until an attempt must be among them. Inferred " +
				"if they show no failed call to the driver (NodeUnpublishVolume).",
			"The driver may have returned OK without unmounting: the kubelet then does not retry (VolumeLeftMounted). nodeagent reports that if " +
				"the kubelet has counted an OK, or nothing for five minutes.",
			"A process of the driver's own pod may be the one that unmounts. It counts only if the kubelet has counted a failed call and none " +
				"that timed out. Inferred.",
			"Inferred if the process was started ten seconds or more after the containers had exited. Such a process is not reported while the " +
				"CSI driver fails: what failed before it was started may fail now.",
			"Not reported if the volume's CSI driver is not registered, or nothing answers on its socket: then nothing has tried to unmount the " +
				"volume.",
		},
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
	Check: func(p *fact.View) diagnose.Result { return diagnose.Found(keptBusy(p)...) },
}

// keptBusy finds a mount of the pod that is in use.
func keptBusy(p *fact.View) []diagnose.Finding {
	if p.Overdue() < fact.KillLatency || p.Time.Sub(p.UnchangedSince) < fact.SlowDevice {
		return nil
	}
	for i := range p.Mounts {
		in := &p.Mounts[i]
		if !isInner(in) {
			continue
		}
		if m := root(p, in); m != nil && !driverAway(p, m) {
			f := diagnose.Finding{Family: inside, Confidence: diagnose.Proved, Objects: diagnose.Objects{
				Mount: diagnose.MountOf(p, m), Inner: diagnose.MountOf(p, in), Volumes: []string{m.Volume},
			}}
			if !saysOfDriver(p, &f, m) {
				return nil
			}
			return []diagnose.Finding{f}
		}
	}
	return heldBy(p)
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

// heldBy finds the processes that use one of the pod's mounts.
func heldBy(p *fact.View) []diagnose.Finding {
	all := holders(p, p.Mounts)
	if len(all) == 0 {
		return nil
	}
	m := byID(p.Mounts, all[0].MountID)
	if driverAway(p, m) || cameLater(p, all[0]) && (driverFails(p, m) || hasGivenUp(p, m)) {
		return nil
	}
	f := heldFinding(p, m, all)
	if !saysOfDriver(p, &f, m) {
		return nil
	}
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
// that has reported the volume as unpublished is not called again. It returns false while the kubelet's
// next attempt may still show that the driver fails.
func saysOfDriver(p *fact.View, f *diagnose.Finding, m *evidence.Mount) bool {
	i := slices.IndexFunc(p.Volumes, func(v evidence.Volume) bool { return v.Name == m.Volume && v.Plugin == m.Plugin && v.Driver != "" })
	if i < 0 {
		return true
	}
	o := ofDriver(p, p.Volumes[i].Driver, f.Objects.Volumes)
	f.Objects.Driver, f.Objects.DriverPod, f.Objects.DriverState = o.Driver, o.DriverPod, o.DriverState
	if fact.FailedCall(p, o.Driver) != nil {
		return true
	}
	f.Variants = append(f.Variants, unfailed)
	if hasGivenUp(p, m) {
		_, f.Objects.Since = fact.GivenUp(p)
		f.Confidence, f.Variants = diagnose.Inferred, append(f.Variants, givenUp)
		return true
	}
	f.Confidence = diagnose.Inferred
	if p.Node.Kubelet.VolumeCallsRead.IsZero() {
		return true // the counts may not be read, or have not been yet
	}
	if !attemptDue(p) {
		return false
	}
	if calls := fact.UnpublishCalls(p, o.Driver); len(calls) > 0 {
		f.Variants = append(append(f.Variants, saidOK), whose(p, calls[0])...)
	}
	return true
}

// hasGivenUp reports whether the kubelet does not try any more to unmount a volume.
func hasGivenUp(p *fact.View, m *evidence.Mount) bool {
	left, _ := fact.GivenUp(p)
	return slices.ContainsFunc(left, func(l fact.MountedVolume) bool { return l.Mount.Volume == m.Volume && l.Mount.Plugin == m.Plugin })
}

// cameLater reports whether a process was started after the containers had exited, as the kubelet
// reports. The first attempt at the volumes may have failed without it.
func cameLater(p *fact.View, h *evidence.Holder) bool {
	var ended time.Time
	for i := range p.Containers {
		if e := p.Containers[i].Exit; e != nil && e.At.After(ended) {
			ended = e.At
		}
	}
	return !ended.IsZero() && h.Probe != nil && h.Probe.Started.Sub(ended) >= fact.SlowDevice
}

// driverFails reports whether the CSI driver of a volume fails to unpublish volumes.
func driverFails(p *fact.View, m *evidence.Mount) bool {
	return slices.ContainsFunc(p.Volumes, func(v evidence.Volume) bool {
		return v.Name == m.Volume && v.Plugin == m.Plugin && v.Driver != "" && fact.FailedCall(p, v.Driver) != nil
	})
}

// holders returns the processes that use one of the mounts, all of them the same one. If possible, the first
// process was there before the containers had exited, and may be stopped.
func holders(p *fact.View, mounts []evidence.Mount) []*evidence.Holder {
	var all []*evidence.Holder
	for i := range p.Holders {
		h := &p.Holders[i]
		m := byID(mounts, h.MountID)
		if m == nil || h.Since.IsZero() || p.Time.Sub(h.Since) < fact.SlowDevice || unmounts(&h.Task) || attempts(p, m, &h.Task) {
			continue
		}
		all = append(all, h)
	}
	if len(all) == 0 {
		return nil
	}
	slices.SortStableFunc(all, func(a, b *evidence.Holder) int {
		return cmp.Or(last(cameLater(p, a), cameLater(p, b)), last(serves(p, a), serves(p, b)), a.Since.Compare(b.Since))
	})
	first := all[0]
	return slices.DeleteFunc(all, func(h *evidence.Holder) bool { return h.MountID != first.MountID || h.Mounted != first.Mounted })
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
func serves(p *fact.View, h *evidence.Holder) bool {
	return ofDriverPod(p, &h.Task) || fact.Essential(&h.Task)
}

// named is how many of the further processes are named.
const named = 2

// heldFinding is about a mount, and the processes that use it.
func heldFinding(p *fact.View, m *evidence.Mount, all []*evidence.Holder) diagnose.Finding {
	first := all[0]
	if serves(p, first) { // those that serve nothing came later
		all = slices.DeleteFunc(all, func(h *evidence.Holder) bool { return !serves(p, h) })
	}
	rest := oneOfEach(all)[1:]
	f := diagnose.Finding{Confidence: diagnose.Proved, Objects: diagnose.Objects{
		Mount: diagnose.MountOf(p, m), Process: holderOf(p, first), Via: first.Via, Alike: len(rest),
		AtLeast: len(p.Holders) >= evidence.MaxHolders, Volumes: []string{m.Volume},
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

func holderOf(p *fact.View, h *evidence.Holder) *diagnose.Process {
	o := diagnose.ProcessOf(p, &h.Task)
	if h.Owner == "" {
		o.Unit = fact.UnitOf(h.Cgroup)
	}
	return o
}

// oneOfEach returns holders so that the first ones are each of another mount namespace.
func oneOfEach(all []*evidence.Holder) []*evidence.Holder {
	var out, others []*evidence.Holder
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

// driverAway reports whether nothing would unmount a volume: its CSI driver is not registered, does not respond at its
// socket, or is not known to the kubelet. What uses the volume has then not made an unmount fail yet.
func driverAway(p *fact.View, m *evidence.Mount) bool {
	for i := range p.Volumes {
		v := &p.Volumes[i]
		if v.Name != m.Volume || v.Plugin != m.Plugin || v.Driver == "" && !v.NoRecord {
			continue
		}
		return v.NoRecord || p.CSI[v.Driver].State == fact.Gone
	}
	return false
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

// attempts reports whether a process may use a volume in order to unmount it, for example in a sync
// before that. It belongs to the pod of the volume's CSI driver, and no call to the driver is known to
// have failed, or one has timed out. If the kubelet itself has to unmount first, the driver has not
// been called yet.
func attempts(p *fact.View, m *evidence.Mount, t *evidence.Task) bool {
	for i := range p.Volumes {
		v := &p.Volumes[i]
		if v.Name != m.Volume || v.Plugin != m.Plugin || v.DriverPod == "" || v.DriverPod != t.OwnerName || notReached(p, v) {
			continue
		}
		last, timedOut := unpublish(p, v.Driver)
		return last == nil || timedOut != nil
	}
	return false
}

// attemptDue reports whether the kubelet's counts have been read for so long that an attempt at a volume
// that keeps failing must be among them. The first attempt comes when the last container has exited. The
// pause before each further one is as long as the time since then, two minutes at most. If the counts are
// read only now and then, as on a busy node, they are not waited for without end.
func attemptDue(p *fact.View) bool {
	since := fact.CountedSince(p)
	var ended time.Time
	for i := range p.Containers {
		if e := p.Containers[i].Exit; e != nil && e.At.After(ended) {
			ended = e.At
		}
	}
	wait := fact.VolumeRetry
	if !ended.IsZero() {
		wait = min(wait, max(0, since.Sub(ended))+evidence.CallsPause)
	}
	return p.Node.Kubelet.VolumeCallsRead.Sub(since) >= wait || p.Time.Sub(p.UnchangedSince) >= fact.VolumeRetry+evidence.CallsPause
}
