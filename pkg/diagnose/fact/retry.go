package fact

import (
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// Retries is the longest time after which containerd tries again to handle the end of a
// container, and what that takes (backOffMaxDuration, internal/cri/server/events/events.go).
const Retries = evidence.NextRecord

// tryTakes is what a try takes (loadContainerTimeout and handleEventTimeout,
// internal/cri/server).
const tryTakes = 10 * time.Second

// NextTry returns for how long nothing may have moved since a moment before the next try
// has failed too. containerd doubles its pauses, and so does the kubelet about volumes, so
// that a pause is no longer than the time in which they have tried already: since the
// deadline, as far as is known.
func NextTry(p *View, since time.Time) time.Duration {
	return min(max(0, since.Sub(p.Deadline))+tryTakes, Retries)
}
