package fact

import (
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// How long things take before anything is concluded from them.
const (
	// LeastStill is the least time between two equal readings of something that is
	// called stuck.
	LeastStill = 3 * time.Second
	// SlowDevice is the same where a device or a daemon is waited for: one that
	// works may take seconds for a request.
	SlowDevice = 10 * time.Second
	// SlowDisk is the same where the block device is known to work: what waits for a
	// place in its queue is told of as slow, and only when that takes long.
	SlowDisk = 30 * time.Second
	// SlowRCU is the same where the kernel waits for its own processors.
	SlowRCU = 60 * time.Second
	// SlowRing is the same where the kernel waits for io_uring: requests may be under way
	// of which no thread tells, on a disk that is slow too.
	SlowRing = 45 * time.Second
	// KillLatency is how long after the deadline SIGKILL may come: the kubelet
	// counts the grace period from when it was told of the deletion.
	KillLatency = 10 * time.Second
	// Restart is longer than a service of the node that has ended waits to be started
	// again: units have five or ten seconds (RestartSec).
	Restart = 20 * time.Second
	// UnknownAfter is the time past the deadline, and without any progress,
	// after which a pod without a recognised cause is reported as such. Kubelet
	// itself needs some seconds for each of its steps, and more on a busy node.
	UnknownAfter = 60 * time.Second
)

// SlowProcess is for how long another process, its parent or its tracer, must not have
// done its part for a task, to be said not to do it: one that runs is given time, and
// more of it on a node that is short of something. A stopped one does nothing.
func SlowProcess(p *View, other *evidence.Task) time.Duration {
	if other != nil && Halted(other) {
		return LeastStill
	}
	return Process.With(p)
}
