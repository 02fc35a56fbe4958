package evidence

import (
	"slices"
	"time"
)

// A Volume is a directory of the kubelet for a volume of the pod:
// pods/UID/volumes/PLUGIN/NAME, volumeDevices/PLUGIN/NAME for one that is a block
// device, or volume-subpaths/NAME (pkg/kubelet/kubelet_getters.go). Only names are
// read, and never what is mounted there.
//
// The kubelet removes the name of a block device before it unmounts the device
// (pkg/volume/util/util.go, UnmapBlockVolume): what Devices shows is a Volume too.
type Volume struct {
	// Name is that of the pod's volume, or of its PersistentVolume.
	Name string `json:"name"`
	// Plugin is the directory's name, as in kubernetes.io~csi; "" where only
	// subpaths are left.
	Plugin string `json:"plugin,omitempty"`
	Block  bool   `json:"block,omitempty"`
	// Driver is the CSI driver that vol_data.json names, "" when it could not be read
	// and for other plugins. Unregistered reports whether the kubelet's directory
	// plugins_registry has no socket that begins with the driver's name, as that of
	// node-driver-registrar does.
	Driver       string `json:"driver,omitempty"`
	Unregistered bool   `json:"unregistered,omitempty"`
	// Inline reports whether vol_data.json says that the volume stands in the pod's
	// specification itself (CSI ephemeral), so that no other pod has it.
	Inline bool `json:"inline,omitempty"`
	// NoRecord reports whether there is no vol_data.json, or it was read and is no JSON,
	// of a volume of a CSI driver that is no block device.
	NoRecord bool `json:"noRecord,omitempty"`
	// DriverPod is the pod of this node, as namespace/name, that mounts the directory
	// of the driver's socket, plugins/DRIVER below the kubelet's, and DriverPodState
	// what its status says: running, terminating, or not ready. "" when not
	// exactly one pod mounts a directory of that name.
	DriverPod      string `json:"driverPod,omitempty"`
	DriverPodState string `json:"driverPodState,omitempty"`
	// Subpaths counts what is left below volume-subpaths.
	Subpaths int `json:"subpaths,omitempty"`
	// LastDeleted is when the kubelet was seen last to delete something in an emptyDir: the last change of one of those
	// of its directories that the kubelet has open, in this reading or one before. When the containers have ended
	// nobody else changes them, but processes of the node. It is read of the pods of which Volumes are, and zero
	// when no reading showed one open or the kubelet's open files could not be read.
	LastDeleted time.Time `json:"lastDeleted,omitzero"`
}

// sinceVolumes keeps when something was deleted last.
func sinceVolumes(now, before []Volume) {
	for i := range now {
		v := &now[i]
		for j := range before {
			if b := &before[j]; b.Name == v.Name && b.Plugin == v.Plugin && b.LastDeleted.After(v.LastDeleted) {
				v.LastDeleted = b.LastDeleted
			}
		}
	}
}

// A SpecVolume is a volume of the pod's specification.
type SpecVolume struct {
	Name string `json:"name"`
	// Claim is its PersistentVolumeClaim, "" for a volume of another kind.
	Claim string `json:"claim,omitempty"`
	// Block reports whether a container has it as a device (volumeDevices).
	Block bool `json:"block,omitempty"`
	// At are places where containers have it, of a volume with a Claim, and Node is what the node calls it,
	// its PersistentVolume: known when containerd told, while a container ran, what is mounted there.
	At   []SpecMount `json:"at,omitempty"`
	Node string      `json:"node,omitempty"`
}

// A SpecMount is a volume mount of a container of the specification.
type SpecMount struct {
	Container string `json:"container"`
	Path      string `json:"path"`
}

// sinceSpecified keeps what the node was seen to call volumes.
func sinceSpecified(now, before []SpecVolume) {
	for i := range now {
		s := &now[i]
		for j := range before {
			if b := &before[j]; s.Node == "" && b.Name == s.Name && b.Claim == s.Claim {
				s.Node = b.Node
			}
		}
	}
}

// The states of a DriverPod.
const (
	DriverRunning     = "running"
	DriverTerminating = "terminating"
	DriverNotReady    = "not ready"
)

// sameVolumes reports whether two readings show the same of the volumes' directories,
// and no driver that has come back.
func sameVolumes(now, before []Volume) bool {
	return slices.EqualFunc(now, before, func(a, b Volume) bool {
		return a.Name == b.Name && a.Plugin == b.Plugin && a.Block == b.Block && a.Subpaths == b.Subpaths && a.NoRecord == b.NoRecord &&
			(a.Unregistered || !b.Unregistered) &&
			(a.DriverPodState != DriverRunning || b.DriverPodState == DriverRunning)
	})
}

// A Loop is a loop device on one of the pod's block devices. The kubelet makes one for
// as long as the pod has the device, so that the device's number goes to no other
// (pkg/volume/util/volumepathhandler, AttachFileDevice). It has the same content, and
// while it is in use the device's mount is too.
type Loop struct {
	// Name is as in loop7, and MountID that of the Device.
	Name    string `json:"name"`
	MountID int    `json:"mountID"`
	// Numbers are its own and those of its partitions, as in 7:9 and 259:3, as far as the kernel
	// has looked for partitions.
	Numbers []string `json:"numbers,omitempty"`
	// Mapper are the block devices that the kernel has made of it or of a partition, and those of
	// these: logical volumes, for one, that the node has found there and activated, or a RAID.
	Mapper []Mapped `json:"mapper,omitempty"`
	// Mount is where the host has mounted the file system that is on it or on a partition.
	Mount *Mount `json:"mount,omitempty"`
	// Released reports whether the kubelet has released it already, while it was in use: the kernel
	// does so at the last close (autoclear; loop_clr_fd, drivers/block/loop.c).
	Released bool `json:"released,omitempty"`
	// Since is when the first of the readings in a row had ended that showed the same, and
	// UsedSince when the first one had that each showed something on it, which may be one after
	// another. UsedUntil is when the last reading had ended that showed something there.
	Since     time.Time `json:"since,omitzero"`
	UsedSince time.Time `json:"usedSince,omitzero"`
	UsedUntil time.Time `json:"usedUntil,omitzero"`
}

// Used reports whether something is on the device that keeps it in use.
func (l *Loop) Used() bool { return len(l.Mapper) > 0 || l.Mount != nil }

func sinceLoops(now, before []Loop, t time.Time) {
	for i := range now {
		l := &now[i]
		l.Since = t
		if l.Used() {
			l.UsedSince, l.UsedUntil = t, t
		}
		var b Loop
		if j := slices.IndexFunc(before, func(b Loop) bool { return b.Name == l.Name && b.MountID == l.MountID }); j >= 0 {
			b = before[j]
			if slices.EqualFunc(b.Mapper, l.Mapper, sameMapped) && sameMount(b.Mount, l.Mount) {
				l.Since = b.Since
			}
			if l.Used() && !b.UsedSince.IsZero() {
				l.UsedSince = b.UsedSince
			}
			if !l.Used() {
				l.UsedUntil = b.UsedUntil
			}
		}
		sinceMapped(l.Mapper, b.Mapper, t)
	}
}

func sinceMapped(now, before []Mapped, t time.Time) {
	for i := range now {
		m := &now[i]
		m.Since, m.MountSince = t, t
		if m.Mount != nil {
			m.Mounts = 1
		}
		j := slices.IndexFunc(before, func(b Mapped) bool { return b.Kind == m.Kind && b.Name == m.Name && b.Logical == m.Logical })
		if j < 0 {
			continue
		}
		b := &before[j]
		m.Since, m.Unmounted = b.Since, b.Unmounted
		if sameMount(m.Mount, b.Mount) {
			m.MountSince, m.Mounts = b.MountSince, b.Mounts
			continue
		}
		m.Mounts += b.Mounts
		if b.Mount != nil {
			m.Unmounted = b.Mount
		}
	}
}

// A Mapped is a block device that the kernel has made of another one.
type Mapped struct {
	// Kind is what has made it: the device mapper, MadeByMD, or MadeByOther.
	Kind string `json:"kind,omitempty"`
	// Name is the device mapper's, as dmsetup(8) takes it: that of a logical volume is vg-lv.
	// That of another kind is the kernel's, as in md127.
	Name string `json:"name"`
	// Logical is the logical volume of LVM that it is, as in vg/lv; "" for anything else.
	Logical string `json:"logical,omitempty"`
	// Mount is where the host has mounted the file system that is on it or on a partition of it,
	// and Unmounted the last one that is over. Mounts counts the different ones that the readings in a
	// row have shown.
	Mount     *Mount `json:"mount,omitempty"`
	Unmounted *Mount `json:"unmounted,omitempty"`
	Mounts    int    `json:"mounts,omitempty"`
	// Since is when the first of the readings in a row had ended that showed it, mounted or not,
	// and MountSince when the first one had with this mount, or with none.
	Since      time.Time `json:"since,omitzero"`
	MountSince time.Time `json:"mountSince,omitzero"`
}

// The kinds of a Mapped: of the device mapper, a software RAID, and what is neither.
const (
	MadeByMapper = ""
	MadeByMD     = "md"
	MadeByOther  = "other"
)

func sameMapped(a, b Mapped) bool {
	return a.Kind == b.Kind && a.Name == b.Name && a.Logical == b.Logical && sameMount(a.Mount, b.Mount)
}

// sameMount reports whether two readings show the same mount, or none both.
func sameMount(a, b *Mount) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.ID == b.ID && a.Device == b.Device && a.Point == b.Point
}

// A Holder is a process that uses a mount of the pod. The kernel refuses to unmount it meanwhile
// (EBUSY, umount(2)). It is in the host's mount namespace; or in another one, and what it uses there
// is the loop device, or goes with the host's mount.
type Holder struct {
	Task
	// MountID is that of the Mount, and Via what the process has there: an open file,
	// its working directory, its root directory, its program, or the loop device on it.
	MountID int    `json:"mountID"`
	Via     string `json:"via"`
	// Namespace is its mount namespace, as in mnt:[4026532208], where that is another one than the
	// host's, and Mounted reports whether it is the first process there and a file system of the
	// loop device is mounted there.
	Namespace string `json:"namespace,omitempty"`
	Mounted   bool   `json:"mounted,omitempty"`
	// Since is when the first of the readings in a row had ended that showed it.
	Since time.Time `json:"since,omitzero"`
}

// MaxHolders is the most holders that a reading looks for: where it has as many there may be more.
const MaxHolders = 16

// A VolumeCall is how often the kubelet has tried something with volumes and how
// that ended, since the kubelet was started.
type VolumeCall struct {
	// Plugin is that of the volumes, as in kubernetes.io/csi, and Driver the CSI
	// driver.
	Plugin string `json:"plugin,omitempty"`
	Driver string `json:"driver,omitempty"`
	// Method is the call of CSI, as in NodeUnpublishVolume, and Status its gRPC code
	// (csi_operations_seconds); or Method is VolumeUnmount or VolumeUnmap, the kubelet's
	// whole attempt, and Status success or fail-unknown
	// (storage_operation_duration_seconds).
	Method string `json:"method"`
	Status string `json:"status"`
	Counter
}

// The methods and states of a VolumeCall that rules know.
const (
	VolumeUnmount  = "volume_unmount"
	VolumeUnmap    = "unmap_volume" // of a block device
	NodeUnpublish  = "NodeUnpublishVolume"
	CallSucceeded  = "success"
	CallOK         = "OK"
	CallTimedOut   = "DeadlineExceeded"
	CallUnanswered = "Unavailable"
)

// Failed reports whether the calls failed.
func (c *VolumeCall) Failed() bool { return c.Status != CallSucceeded && c.Status != CallOK }

func sinceHolders(now, before []Holder, t time.Time) {
	for i := range now {
		h := &now[i]
		h.Since = t
		for j := range before {
			if b := &before[j]; b.same(h) && (h.Since.Equal(t) || b.Since.Before(h.Since)) {
				h.Since = b.Since
			}
		}
	}
}

// sinceHeld carries over since when nobody has used a block device of the pod any more. A reading
// that could not look shows neither.
func (p *Pod) sinceHeld(e *Pod, t time.Time) {
	held := func(p *Pod) bool {
		return slices.ContainsFunc(p.Holders, func(h Holder) bool {
			return slices.ContainsFunc(p.Devices, func(m Mount) bool { return m.ID == h.MountID })
		})
	}
	_, missing := p.Missing[Holders]
	switch {
	case held(p):
		p.UnheldSince = time.Time{}
	case held(e), missing && !e.UnheldSince.IsZero():
		p.UnheldSince = t
	default:
		p.UnheldSince = e.UnheldSince
	}
}

// same reports whether two readings show the same: the process and what it has there, or the mount
// namespace in which a file system is mounted, the first process of which may be another one.
func (h *Holder) same(as *Holder) bool {
	if h.MountID != as.MountID || h.Via != as.Via || h.Mounted != as.Mounted {
		return false
	}
	return h.Mounted && h.Namespace != "" && h.Namespace == as.Namespace ||
		h.PID == as.PID && h.Comm == as.Comm && (h.Probe == nil || as.Probe == nil || h.Probe.Start == as.Probe.Start)
}

// CallsPause is how far apart two readings of the kubelet's counts are at most, for those to
// be called read all the time.
const CallsPause = 30 * time.Second

// sinceCalls carries over when the counts rose.
func (k *KubeletService) sinceCalls(e *KubeletService) {
	if k.VolumeCallsRead.IsZero() {
		// They were not asked for, or could not be read: what was known is known still.
		k.VolumeCalls, k.APICalls, k.ClaimCalls = e.VolumeCalls, e.APICalls, e.ClaimCalls
		k.VolumeCallsRead, k.VolumeCallsSince, k.Listed = e.VolumeCallsRead, e.VolumeCallsSince, e.Listed
		return
	}
	k.VolumeCallsSince = k.VolumeCallsRead
	if e.VolumeCallsRead.IsZero() {
		return
	}
	if k.VolumeCallsRead.Sub(e.VolumeCallsRead) <= CallsPause {
		k.VolumeCallsSince = e.VolumeCallsSince
	}
	countersSince(k.VolumeCalls, e.VolumeCalls, e.VolumeCallsRead)
	countersSince(k.APICalls, e.APICalls, e.VolumeCallsRead)
	countersSince(k.ClaimCalls, e.ClaimCalls, e.VolumeCallsRead)
}

func (c *VolumeCall) counter() (counts string, n *Counter) {
	return c.Plugin + " " + c.Driver + " " + c.Method + " " + c.Status, &c.Counter
}
