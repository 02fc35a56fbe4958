package storage

import (
	"path"
	"slices"
	"strings"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// uncounted returns how long the kubelet takes to count a failed attempt at a volume of that kind, while one is left.
func uncounted(kind func(v *evidence.Volume) bool) func(*fact.View) (time.Duration, time.Time) {
	return func(p *fact.View) (time.Duration, time.Time) {
		for i := range p.Volumes {
			if kind(&p.Volumes[i]) {
				return fact.UncountedVolumes(p)
			}
		}
		return 0, time.Time{}
	}
}

// ofDrivers is the kind of volume that a CSI driver has to unpublish.
func ofDrivers(v *evidence.Volume) bool { return v.Driver != "" }

// stillThere is the line of settledFor.
const stillThere = "The volume's directory is still there one minute after the deadline, and all readings of that minute show the same."

// settledFor answers whether the kubelet has had the time for several attempts at the
// pod's volumes: it waits half a second after the first one that fails, twice as long
// after each further one, and two minutes at most.
func settledFor(p *fact.View) diagnose.Holding {
	since := fact.Latest(p.Deadline, p.UnchangedSince)
	return diagnose.Lasted(p, since, fact.UnknownAfter, diagnose.Retry)
}

// volumesLeft returns the pod's volumes that are left.
func volumesLeft(p *fact.View) (out []*evidence.Volume) {
	for i := range p.Volumes {
		out = append(out, &p.Volumes[i])
	}
	return out
}

// each reports whether something is so of each volume that is left.
func each(p *fact.View, is func(v *evidence.Volume) bool) bool {
	return !slices.ContainsFunc(volumesLeft(p), func(v *evidence.Volume) bool { return !is(v) })
}

// unmountFails reports whether the kubelet has counted more failed attempts at a volume, and is not seen to delete its files.
func unmountFails(p *fact.View, v *evidence.Volume) bool { return fact.FailedUnmount(p, v) != nil }

// driversLeft returns the CSI drivers of the pod's volumes that are left.
func driversLeft(p *fact.View) (out []string) {
	for i := range p.Volumes {
		if d := p.Volumes[i].Driver; d != "" && !slices.Contains(out, d) {
			out = append(out, d)
		}
	}
	return out
}

// volumesOf returns the names of the volumes of a driver that are left.
func volumesOf(p *fact.View, driver string) (out []string) {
	for i := range p.Volumes {
		if p.Volumes[i].Driver == driver {
			out = append(out, p.Volumes[i].Name)
		}
	}
	return out
}

// calledDriver are the facts of a CSI driver that the kubelet calls to unpublish a volume, and whose calls fail.
var calledDriver = []diagnose.Fact[string]{
	{Says: stillThere, Pod: settledFor},
	{Says: "vol_data.json beside that directory names the driver."},
	{
		Says: "At least one volume of the driver is no block device, or the kubelet's own mount of that device is gone. " +
			"The kubelet calls the driver only after that.",
		Is: diagnose.If(isReached), From: []evidence.Source{evidence.Mounts},
	},
	{
		Says: "Since the pod reached this stage, the kubelet has counted more failed NodeUnpublishVolume calls to that driver (csi_operations_seconds).",
		Is:   diagnose.If(callFails), From: []evidence.Source{evidence.VolumeCalls},
	},
	{
		Says: "None of its calls to that driver has succeeded since the last one that failed. Otherwise the failure was another pod's, or is over.",
		Is:   diagnose.If(noneSucceeds), From: []evidence.Source{evidence.VolumeCalls},
	},
	{Says: "If some of the failed calls are certain to be this pod's, those that may be another pod's do not count."},
}

// countedPerDriver says how sure a finding is that rests on such calls.
const countedPerDriver = "Proved if one volume of the driver is left, and no other pod's volumes were being torn down on the node " +
	"at the last increase. Otherwise inferred: the kubelet counts per driver, not per volume."

// isReached reports whether the kubelet has called a driver for a volume of the pod, as far as is seen. What is counted for another one belongs
// to another pod, perhaps one that is gone.
func isReached(p *fact.View, driver string) bool {
	return slices.ContainsFunc(p.Volumes, func(v evidence.Volume) bool { return v.Driver == driver && !notReached(p, &v) })
}

func callFails(p *fact.View, driver string) bool { return fact.FailedCall(p, driver) != nil }

func noneSucceeds(p *fact.View, driver string) bool {
	last, _ := unpublish(p, driver)
	return last != nil
}

// confidence returns that of a finding that rests on what the kubelet counts for all volumes
// of a driver or plugin. The pod is certain only if no other pod's volumes were being torn
// down, and the volume only if it is the only one.
func confidence(p *fact.View, c *evidence.VolumeCall, volumes []string) diagnose.Confidence {
	if fact.OnlyOneUnmounts(p, c) && len(volumes) == 1 {
		return diagnose.Proved
	}
	return diagnose.Inferred
}

// others is the variant of a pod that is not known to be the only one whose volumes were
// being torn down at the last increase of a count, and orOthers the words for it.
const others = "Others"

var orOthers = []diagnose.Choice{{Variant: others, Text: " or another one of this node"}, {Text: ""}}

// podOfDriver names the pod of a CSI driver on the node.
var podOfDriver = []diagnose.Choice{{Text: "pod {driverpod} ({driverstate})"}, {Text: "pod {driverpod}"}, {Text: "the driver's pod on this node"}}

// Commands for the node, which change nothing there. They show the errors of CSI drivers that the kubelet logs, why it
// cannot tear down a volume or unmap a block device, and the threads in state D.
const (
	driverErrors   = "journalctl -u kubelet --since -10min | grep 'csi: .*rpc error' | tail -3"
	teardownErrors = "journalctl -u kubelet --since -10min | grep 'TearDown failed'"
	unmapErrors    = "journalctl -u kubelet --since -10min | grep UnmapVolume"
	blockedThreads = "ps -eLo stat,pid,wchan:30,comm | grep ^D"
)

// whose returns the variant others where it applies.
func whose(p *fact.View, c *evidence.VolumeCall) []string {
	if fact.OnlyOneUnmounts(p, c) {
		return nil
	}
	return []string{others}
}

// ofDriver describes the volumes of a driver, and the driver.
func ofDriver(p *fact.View, driver string, volumes []string) diagnose.Objects {
	o := diagnose.Objects{Volumes: volumes, Driver: driver}
	for i := range p.Volumes {
		if v := &p.Volumes[i]; v.Driver == driver {
			o.DriverPod, o.DriverState = v.DriverPod, v.DriverPodState
		}
	}
	return o
}

// driverPod returns the pod of the CSI driver of a mount's volume on this node, as
// namespace/name; "" where it is not known.
func driverPod(p *fact.View, m *evidence.Mount) string {
	i := slices.IndexFunc(p.Volumes, func(v evidence.Volume) bool { return v.Name == m.Volume && v.Plugin == m.Plugin })
	if i < 0 {
		return ""
	}
	return p.Volumes[i].DriverPod
}

// unpublish returns the last failed result of the kubelet's calls to a driver, and the last
// one that timed out, both since the pod is at its present stage. They are nil when there is
// none, and when calls have succeeded since: the failure was another pod's, or is over. If
// some are certain to be this pod's, those that may be another's are left out.
func unpublish(p *fact.View, driver string) (last, timedOut *evidence.VolumeCall) {
	var ok *evidence.VolumeCall
	for _, c := range fact.UnpublishCalls(p, driver) {
		switch {
		case !c.Failed():
			ok = c
			continue
		case last != nil && fact.OnlyOneUnmounts(p, last) && !fact.OnlyOneUnmounts(p, c):
			continue
		case last != nil && fact.OnlyOneUnmounts(p, c) && !fact.OnlyOneUnmounts(p, last):
			last, timedOut = nil, nil
		}
		if c.Status == evidence.CallTimedOut {
			timedOut = c
		}
		if last == nil || c.Rose.After(last.Rose) {
			last = c
		}
	}
	if last != nil && ok != nil && !last.Rose.After(ok.Rose) {
		return nil, nil
	}
	return last, timedOut
}

// root returns the mount of a volume itself, nil when nothing is mounted at its
// directory; inner reports whether a mount is inside a volume and not the volume's own.
func root(p *fact.View, m *evidence.Mount) *evidence.Mount {
	var top *evidence.Mount
	for i := range p.Mounts {
		o := &p.Mounts[i]
		if o.Volume == m.Volume && o.Plugin == m.Plugin && isVolumePoint(o) {
			top = o
		}
	}
	return top
}

// isVolumePoint reports whether a mount is at the directory of a volume, or where a
// CSI driver publishes it, and not inside.
func isVolumePoint(m *evidence.Mount) bool {
	dir := path.Join(m.Plugin, m.Volume)
	return m.Plugin != "" && (strings.HasSuffix(m.Point, "/volumes/"+dir) || strings.HasSuffix(m.Point, "/volumes/"+dir+"/mount"))
}

// isInner reports whether a mount is inside a volume. Below volume-subpaths, whose
// mounts the kubelet makes itself, the plugin is not known.
func isInner(m *evidence.Mount) bool { return m.Plugin != "" && m.Volume != "" && !isVolumePoint(m) }
