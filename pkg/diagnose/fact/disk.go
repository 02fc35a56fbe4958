package fact

import "github.com/nodeagent-io/nodeagent/pkg/evidence"

// DeadDisk reports whether the block device below a mount has requests under way and
// has completed none for long: a disk that is merely slow completes some.
func DeadDisk(m *evidence.Mount) bool {
	d := diskOf(m)
	return d != nil && d.InFlight > 0 && d.Still() >= SlowDevice
}

// WorkingDisk reports whether readings show that the block device below a mount
// completes requests.
func WorkingDisk(m *evidence.Mount) bool {
	d := diskOf(m)
	return d != nil && !d.Moved.IsZero() && d.Read.Sub(d.Moved) < SlowDevice
}

// MayWork reports whether a task waits for a block device that completes requests, or that is
// not known because a worker of io_uring does not show its file.
func MayWork(t *evidence.Task) bool {
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
