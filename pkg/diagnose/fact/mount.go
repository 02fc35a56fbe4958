package fact

import (
	"path"
	"slices"
	"strings"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// Backing returns the mount that carries the data: of an overlay its upper one.
func Backing(m *evidence.Mount) *evidence.Mount {
	if m != nil && m.Backing != nil {
		return m.Backing
	}
	return m
}

// minor returns the second part of a device number; of a FUSE mount it is the
// number of its connection (Documentation/filesystems/fuse.rst).
func minor(device string) string {
	_, m, _ := strings.Cut(device, ":")
	return m
}

// Answers reports whether the server of a mount is known to have answered
// everything.
func Answers(m *evidence.Mount) bool {
	return m.Unanswered != nil && *m.Unanswered == 0 && m.Connection == evidence.Established && m.Resent == 0
}

// DeadDisk reports whether the block device below a mount has requests under way and
// has completed none for long: a disk that is merely slow completes some.
func DeadDisk(m *evidence.Mount) bool {
	d := diskOf(m)
	return d != nil && d.InFlight > 0 && d.Still() >= SlowDevice
}

// IdleDisk reports whether the block device below a mount has had no request under way for long. What is waited for is above it, or in it:
// a target of the device mapper that keeps requests, as a thin pool without space does, counts them when it hands them on
// (accounts_remapped_io, drivers/md, since Linux 5.18).
func IdleDisk(m *evidence.Mount) bool {
	d := diskOf(m)
	return d != nil && !d.Suspended && d.InFlight == 0 && d.Still() >= SlowDevice
}

// WorkingDisk reports whether readings show that the block device below a mount
// completes requests.
func WorkingDisk(m *evidence.Mount) bool {
	d := diskOf(m)
	return d != nil && !d.Moved.IsZero() && d.Read.Sub(d.Moved) < SlowDevice
}

// mayWork reports whether a task waits for a block device that completes requests, or that is
// not known because a worker of io_uring does not show its file.
func mayWork(t *evidence.Task) bool {
	return FamilyOf(t) == FamilyBlock && (WorkingDisk(t.Probe.Mount) || t.IOWorker() && t.Probe.Mount == nil)
}

// diskOf returns the counters of the block device that carries the data of a mount,
// nil when they were not read.
func diskOf(m *evidence.Mount) *evidence.Disk {
	if m = Backing(m); m == nil {
		return nil
	}
	return m.Disk
}

// resentForLoss is how often the client has to have sent the same again, which
// takes 1.4 seconds at the least (TCP_RTO_MIN doubled twice, include/net/tcp.h).
const resentForLoss = 3

// OutOfReach reports whether nothing at all comes back from a mount's server. One
// that is merely slow acknowledges what it is sent: its kernel does.
func OutOfReach(m *evidence.Mount) bool {
	return m != nil && m.Connection != "" && (m.Connection != evidence.Established || m.Resent >= resentForLoss)
}

// MountPatience returns for how long a wait for a mount must not have moved to be called
// stuck. A disk, a server or a daemon that is merely slow can take seconds for
// one request.
func MountPatience(m *evidence.Mount) time.Duration {
	if OutOfReach(m) {
		return LeastStill
	}
	return SlowDevice
}

// DeviceThread returns a thread of the kernel that is in state D without moving
// and whose name tells that it works for a mount's block device. It supports
// that the device, and not the task, is the reason.
func DeviceThread(p *View, m *evidence.Mount) *evidence.Task {
	for i := range p.Node.Blocked {
		t := &p.Node.Blocked[i]
		if d := deviceOf(p, t); d != "" && (d == m.Device || m.Source != "" && d == path.Base(m.Source) ||
			strings.HasPrefix(m.Source, "/dev/mapper/") && d == "dm-"+minor(m.Device)) {
			return t
		}
	}
	return nil
}

// OnlyDevice returns the device for which threads of the kernel are stuck, when
// there is one such device on the node.
func OnlyDevice(p *View) string {
	var devices []string
	for i := range p.Node.Blocked {
		if d := deviceOf(p, &p.Node.Blocked[i]); d != "" && !slices.Contains(devices, d) {
			devices = append(devices, d)
		}
	}
	if len(devices) != 1 {
		return ""
	}
	return devices[0]
}

// deviceOf returns the block device that a stuck thread of the kernel works for,
// by name or as major:minor, "" for others: jbd2/sda1-8 writes ext4's journal
// (fs/jbd2/journal.c), xfsaild/sda1 XFS's (fs/xfs/xfs_trans_ail.c), and a
// kworker that writes back shows what it does behind its name, as in
// kworker/u8:2+flush-8:0 (kernel/workqueue.c, wq_worker_comm).
func deviceOf(p *View, t *evidence.Task) string {
	if !t.Kernel || t.State != evidence.Uninterruptible || t.Unchanged(p.Time) < SlowDevice {
		return ""
	}
	if d, ok := strings.CutPrefix(t.Comm, "jbd2/"); ok {
		if i := strings.LastIndexByte(d, '-'); i > 0 {
			return d[:i]
		}
		return d
	}
	if d, ok := strings.CutPrefix(t.Comm, "xfsaild/"); ok {
		return d
	}
	if strings.HasPrefix(t.Comm, "kworker/") {
		if _, d, ok := strings.Cut(t.Comm, "flush-"); ok {
			return d
		}
	}
	return ""
}

// ByID returns a task by the number that another one knows it by, its parent's
// or its tracer's, and says whether it is one of the pod's.
func ByID(p *View, pid int) (t *evidence.Task, inside bool) {
	for i := range p.Tasks {
		if p.Tasks[i].TID == pid {
			return &p.Tasks[i], true
		}
	}
	for i := range p.Parents {
		if p.Parents[i].TID == pid {
			return &p.Parents[i], false
		}
	}
	return nil, false
}

// Ended reports whether of a process only zombies are left.
func Ended(p *View, pid int) bool {
	for i := range p.Tasks {
		if t := &p.Tasks[i]; t.PID == pid && t.State != evidence.Zombie && t.State != evidence.Dead {
			return false
		}
	}
	return true
}

// NameIsLate reports whether the container of a process is not known yet. One
// that has ended is in no control group any more: its container is the one whose
// shim names it, and a shim that is late is asked again.
func NameIsLate(p *View, t *evidence.Task) bool {
	_, late := p.Missing[evidence.Shims]
	return late && p.ContainerName(t) == ""
}

// Essential reports whether a process serves other pods or the whole node, so that
// nobody may be told to end it: a shim, containerd, the kubelet, the first process.
// A program can make its shim its tracer by itself (PTRACE_TRACEME).
func Essential(t *evidence.Task) bool {
	switch t.Owner {
	case "shim", "containerd", "kubelet", "kernel":
		return true
	}
	return t.PID == 1 || strings.HasPrefix(t.Comm, "containerd-shim")
}

// UnitOf returns the unit of systemd that a control group is named after, "" when there
// is none.
func UnitOf(cgroup string) string {
	name := cgroup[strings.LastIndexByte(cgroup, '/')+1:]
	if strings.HasSuffix(name, ".service") || strings.HasSuffix(name, ".scope") {
		return name
	}
	return ""
}
