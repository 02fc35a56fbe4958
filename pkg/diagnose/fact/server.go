package fact

import (
	"path"
	"slices"
	"strings"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

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
