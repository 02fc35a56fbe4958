package fact

import (
	"fmt"
	"slices"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// A Patience is for how long something must have lasted before it is said to hang, or before it is said that it does not end:
// what works has been seen to take less.
type Patience struct {
	What string
	// Usual is on most nodes, and Pressed on one under pressure: short of processors, memory or I/O, or that does not tell.
	Usual, Pressed time.Duration
	// Why is what takes that long and is well, or what ends before.
	Why string
}

// The patience with those that end a pod.
var (
	Answer = Patience{"containerd or a shim does not answer", time.Minute, 5 * time.Minute,
		"On a node without a processor to spare containerd was silent for more than a minute, with all of its shims, and well."}
	Disagree = Patience{"containerd, a shim and the kernel say different things of a container, and all answer", 30 * time.Second, 90 * time.Second,
		"None of them is silent, so that it takes less than a silence does."}
	Command = Patience{"a command of the runtime, such as runc, does not return", time.Minute, 5 * time.Minute,
		"The kubelet gives up after two minutes and the grace period, and most commands are killed then."}
	Again = Patience{"the kubelet does not try again to have a container killed", 45 * time.Second, 2 * time.Minute,
		"It tries again ten to fifteen seconds later, with the preStop hook first (completeWork, pkg/kubelet/pod_workers.go)."}
	Plugin = Patience{"a CNI plugin does not return", time.Minute, 100 * time.Second,
		"Plugins that work have waited half a minute for their daemon; the kubelet gives up after two minutes."}
	Download = Patience{"no image's download moves", 90 * time.Second, 3 * time.Minute,
		"containerd stores a MiB at a time, so that it is less than 12 KiB in a second; a disk may be what is slow."}
	Fanotify = Patience{"a fanotify permission listener answers nobody", time.Minute, 100 * time.Second,
		"Each of its answers wakes all that wait for one (process_access_response, fs/notify/fanotify/fanotify_user.c); a command that waits is " +
			"killed after two minutes."}
	List = Patience{"containerd does not list all containers", 40 * time.Second, 5 * time.Minute,
		"Three requests in a row have had no answer."}
	Process = Patience{"a parent or a tracer does not do its part for a process", SlowDevice, UnknownAfter,
		"One that runs may be late; one that is stopped does nothing, which three seconds show."}
	HookBegins = Patience{"a process of a postStart hook has not begun", 10 * time.Second, 60 * time.Second,
		"The kubelet asks for it when the container runs. " +
			"Where the kernel does not tell the pressure it is the shorter one: what comes later may be another program."}
	HookDelay = Patience{"the kubelet has not begun with a preStop hook", evidence.HookDelay, evidence.HookDelayStarved,
		"It begins when it has got to know of the deletion and its worker for the pod is free. " +
			"Where the kernel does not tell the pressure, and the hook was seen, it is the shorter one: else nothing would be said in a grace " +
			"period of a minute."}
	Progress = Patience{"a step of the kubelet makes no progress", UnknownAfter, 2 * UnknownAfter,
		"It tries again after ten to fifteen seconds (backOffPeriod, pkg/kubelet/kubelet.go)."}
	VolumeTry = Patience{"the kubelet does not try again to take a volume down", VolumeRetry, VolumeRetry + UnknownAfter,
		"Its pauses double up to 2 minutes and 2 seconds (pkg/util/goroutinemap/exponentialbackoff)."}
	ClaimTry = Patience{"the kubelet does not try again to release resource claims", ClaimRetry, ClaimRetry + UnknownAfter,
		"It gives a driver 45 seconds for its answer (pkg/kubelet/cm/dra/plugin)."}
)

// Patiences are all of them, in the order in which docs/patience.md has them.
func Patiences() []Patience {
	return []Patience{Answer, Disagree, Command, Again, Plugin, Download, Fanotify, List, Process, HookBegins, HookDelay, Progress, VolumeTry, ClaimTry}
}

// With returns the patience on the node of a pod.
func (a Patience) With(p *View) time.Duration {
	if p.Pressed {
		return a.Pressed
	}
	return a.Usual
}

// Told is With, but as usual where the node does not tell its pressure.
func (a Patience) Told(p *View) time.Duration {
	if p.Starved() {
		return a.Pressed
	}
	return a.Usual
}

// String is in words.
func (a Patience) String() string {
	return fmt.Sprintf("%s (%s under pressure)", Spell(a.Usual), Spell(a.Pressed))
}

// Spell writes a duration in the unit that it is a whole number of.
func Spell(d time.Duration) string {
	for _, unit := range []struct {
		of   time.Duration
		name string
	}{{time.Minute, "minute"}, {time.Second, "second"}} {
		switch n := d / unit.of; {
		case d%unit.of != 0:
		case n == 1:
			return "1 " + unit.name
		default:
			return fmt.Sprintf("%d %ss", n, unit.name)
		}
	}
	return d.String()
}

// UnderPressure explains the words under pressure.
const UnderPressure = "A node is under pressure if it lacks CPU time, memory or I/O (/proc/pressure), did so in the last minute, " +
	"or does not report its pressure."

// SilentForLong reports whether a silence of containerd or a shim, from the first
// question without an answer to the last, has lasted long enough to be a hang. What
// was asked while the node was short of something may only wait for its turn, so
// the shorter patience counts from when that was over.
func SilentForLong(p *View, since, asked time.Time) bool {
	if asked.Sub(since) >= Answer.Pressed {
		return true
	}
	if p.Node.Pressure == nil {
		return false
	}
	return asked.Sub(Latest(since, p.Node.Pressure.StarvedUntil)) >= Answer.Usual
}

// shimAskedAgain is how long after a request without an answer a shim is asked again at the latest (shimPause,
// pkg/cri), with the time of a round.
const shimAskedAgain = 3*time.Minute + 15*time.Second

// ShimPatience returns after what time it is known whether a silent shim hangs, which is when it is asked for the first time after
// it has been silent for long (SilentForLong), from when something has last changed. One of gVisor's may wait for the sentry, and that
// for what is slow.
func ShimPatience(p *View) time.Duration {
	if UnderGVisor(p) {
		return Answer.Pressed + shimAskedAgain
	}
	silent := Answer.With(p)
	if s := p.Node.Pressure; s != nil && !s.StarvedUntil.IsZero() {
		after := s.StarvedUntil.Add(Answer.Usual).Sub(Latest(p.Deadline, Unchanged(p)))
		silent = min(Answer.Pressed, max(silent, after))
	}
	return silent + shimAskedAgain
}

// StepPatience returns how long a step of the kubelet may take. One that has lost the API server may find it
// again, and one that was just started may end again.
func StepPatience(p *View) time.Duration {
	patience := Progress.With(p)
	if p.Node.Ready.Unheard() {
		patience += Reconnects
	}
	if p.Node.Kubelet.Starts > 0 || p.Node.Containerd.Ends > 0 {
		patience += CrashLoop
	}
	if Pull(p) != nil {
		// Whether it hangs is not known before, and its image may be unpacked meanwhile.
		patience = max(patience, DownloadGivenUp)
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

// FlapPatience is after what time it is no progress any more that a shim, or a kubelet, answers, or does not: one that waits for a slow
// disk, as under gVisor, may do either for as long as the pod is there.
const FlapPatience = 10 * time.Minute

// Unchanged returns since when a pod has made no progress.
func Unchanged(p *View) time.Time {
	if !p.StageSince.IsZero() && min(p.Overdue(), p.Time.Sub(p.StageSince)) >= FlapPatience {
		return p.StageSince
	}
	return p.UnchangedSince
}

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
	// SandboxTimeout is when the kubelet gives up on a sandbox: after twice runtimeRequestTimeout,
	// which is two minutes by default (RunPodSandbox, pkg/kubelet/cri/remote/remote_runtime.go).
	SandboxTimeout = 4 * time.Minute
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
