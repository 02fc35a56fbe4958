package fact

import (
	"slices"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// For how long containerd or a shim that is neither stopped nor blocked must
// have been silent before it is said to hang. A shim was seen to be silent for
// ten seconds on a busy node, while runc deleted a container, and to be well; on
// a node without a processor to spare containerd was, for more than a minute,
// with all of its shims.
const (
	runtimePatience        = time.Minute
	runtimePatienceStarved = 5 * time.Minute
)

// shimAskedAgain is how long after a request without an answer a shim is asked again at the latest (shimPause,
// pkg/cri), with the time of a round.
const shimAskedAgain = 3*time.Minute + 15*time.Second

// SilentForLong reports whether a silence of the container runtime, from its first
// question without an answer to its last, has lasted long enough to be a hang. What
// was asked while the node was short of something may only wait for its turn, so
// the shorter patience counts from when that was over. Where the kernel does not
// tell the pressure, the node may have been short of anything.
func SilentForLong(n *evidence.Node, since, asked time.Time) bool {
	if asked.Sub(since) >= runtimePatienceStarved {
		return true
	}
	if n.Pressure == nil {
		return false
	}
	if until := n.Pressure.StarvedUntil; until.After(since) {
		since = until
	}
	return asked.Sub(since) >= runtimePatience
}

// ShimSilentForLong reports whether a shim has been silent about a container for so long that it hangs. What it was silent
// about while it may have waited for a command of the runtime does not count.
func ShimSilentForLong(p *View, t *evidence.ShimTask) bool {
	return SilentForLong(&p.Node, latest(t.UnansweredSince, t.ExcusedAt), t.Asked)
}

// PatienceWithStep returns how long a step of the kubelet may take from then on.
func PatienceWithStep(p *View) time.Duration {
	patience := UnknownAfter
	patience = onStarved(p, patience)
	if p.Node.Ready.Unheard() {
		patience += Reconnects
	}
	if p.Node.Kubelet.Starts > 0 || p.Node.Containerd.Ends > 0 {
		patience += CrashLoop
	}
	if pull(p) != nil {
		// Whether it hangs is not known before, and its image may be unpacked meanwhile.
		patience = max(patience, downloadGivenUp)
	}
	if slices.ContainsFunc(p.Containers, func(c evidence.Container) bool { return !c.Task.UnansweredSince.IsZero() }) {
		patience = max(patience, ShimPatience(p))
	}
	if len(p.Deletes) > 0 {
		// containerd tries again to have a container deleted: the next tries tell.
		patience = max(patience, Retries)
	}
	return patience
}

// onStarved returns for how long something is waited for that takes so long: on a node that is short of something, for longer.
func onStarved(p *View, long time.Duration) time.Duration {
	if Starved(p) {
		return long + UnknownAfter
	}
	return long
}

// ShimPatience returns after what time it is known whether a silent shim hangs, which is when it is asked for the first time after
// it has been silent for long. One of gVisor's may wait for the sentry, and that for what is slow.
func ShimPatience(p *View) time.Duration {
	if UnderGVisor(p) || Starved(p) || p.Node.Pressure == nil {
		return runtimePatienceStarved + shimAskedAgain
	}
	return runtimePatience + shimAskedAgain
}

// comesAndGoes is after what time it is no progress any more that a shim answers, or does not: one that waits for a slow
// disk, as under gVisor, may do either for as long as the pod is there.
const comesAndGoes = 10 * time.Minute

// Unchanged returns since when a pod has made no progress.
func Unchanged(p *View) time.Time {
	if !p.StageSince.IsZero() && min(p.Overdue(), p.Time.Sub(p.StageSince)) >= comesAndGoes {
		return p.StageSince
	}
	return p.UnchangedSince
}

// Standstill returns since when a pod is late and has made no progress.
func Standstill(p *View) time.Time { return latest(p.Deadline, Unchanged(p)) }

// Starved reports whether the node is short of processors, memory or I/O, or was a
// moment ago.
func Starved(p *View) bool {
	pressure := p.Node.Pressure
	return pressure != nil && !pressure.StarvedUntil.IsZero() && p.Time.Sub(pressure.StarvedUntil) < runtimePatience
}
