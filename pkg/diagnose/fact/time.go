package fact

import "time"

// How long things take before anything is concluded from them.
const (
	// Stuck is the least time between two equal readings of something that is
	// called stuck.
	Stuck = 3 * time.Second
	// SlowDevice is the same where a device or a daemon is waited for: one that
	// works may take seconds for a request.
	SlowDevice = 10 * time.Second
	// SlowRCU is the same where the kernel waits for its own processors.
	SlowRCU = 60 * time.Second
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
