package fact

import (
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

// Answers reports whether the server of a mount is known to have answered
// everything.
func Answers(m *evidence.Mount) bool {
	return m.Unanswered != nil && *m.Unanswered == 0 && m.Connection == evidence.Established && m.Resent == 0
}

// WorkingDisk reports whether readings show that the block device below a mount
// completes requests.
func WorkingDisk(m *evidence.Mount) bool {
	d := DiskOf(m)
	return d != nil && !d.Moved.IsZero() && d.Read.Sub(d.Moved) < SlowDevice
}

// mayWork reports whether a task waits for a block device that completes requests, or that is
// not known because a worker of io_uring does not show its file.
func mayWork(t *evidence.Task) bool {
	return FamilyOf(t) == FamilyBlock && (WorkingDisk(t.Probe.Mount) || t.IOWorker() && t.Probe.Mount == nil)
}

// DiskOf returns the counters of the block device that carries the data of a mount,
// nil when they were not read.
func DiskOf(m *evidence.Mount) *evidence.Disk {
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

// DeviceOf returns the block device that a stuck thread of the kernel works for,
// by name or as major:minor, "" for others: jbd2/sda1-8 writes ext4's journal
// (fs/jbd2/journal.c), xfsaild/sda1 XFS's (fs/xfs/xfs_trans_ail.c), and a
// kworker that writes back shows what it does behind its name, as in
// kworker/u8:2+flush-8:0 (kernel/workqueue.c, wq_worker_comm).
func DeviceOf(p *View, t *evidence.Task) string {
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
