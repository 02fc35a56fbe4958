package evidence

import (
	"regexp"
	"slices"
	"strings"
	"time"
)

// A NodeReady is the condition Ready of a Node, as the API server has it. The kubelet writes it,
// and renews its Lease. When it has done neither for a while, 50 seconds by default, the node
// controller makes it Unknown (tryUpdateNodeHealth,
// pkg/controller/nodelifecycle/node_lifecycle_controller.go). A kubelet that gets through finds
// that within ten seconds and writes it anew (syncNodeStatus, pkg/kubelet/kubelet_node_status.go).
type NodeReady struct {
	Status string `json:"status"`
	Reason string `json:"reason,omitempty"`
	// Transition is when the status changed last, by the clock of who wrote it.
	Transition time.Time `json:"transition,omitzero"`
	// Asked is when the API server was asked, and Since when it had given the first of the
	// answers in a row that were the same: as the transition is, too, it was so in between.
	Asked time.Time `json:"asked"`
	Since time.Time `json:"since"`
	// RuntimeDown reports whether the kubelet says that the container runtime is down: containerd has
	// not told its status for 30 seconds, or never to this kubelet, whether it answers with an error or not at
	// all (updateRuntimeUp, pkg/kubelet/kubelet.go), or says that it is not ready. Its main loop does nothing then, and hears of no deletion.
	RuntimeDown bool `json:"runtimeDown,omitempty"`
	// PLEG is what the kubelet says of its pod lifecycle event generator while that is not healthy,
	// and ShuttingDown reports whether it says that the node is shutting down.
	PLEG         *PLEG `json:"pleg,omitempty"`
	ShuttingDown bool  `json:"shuttingDown,omitempty"`
}

// A PLEG is the kubelet's pod lifecycle event generator, which asks containerd once a second for all
// sandboxes and containers of the node. The kubelet calls it unhealthy when it has had no answer
// for three minutes (Healthy, pkg/kubelet/pleg/generic.go), and its main loop does nothing until it
// is healthy again (syncLoop, pkg/kubelet/kubelet.go).
type PLEG struct {
	// Said is when the kubelet has said so last, in whole seconds. It says so anew every ten. First is
	// when it said so first, of what has been heard of the same list.
	Said  time.Time `json:"said"`
	First time.Time `json:"first,omitzero"`
	// Active is when it asked for the last list that it was given, and Unhealthy since when the
	// kubelet calls it unhealthy. Both are zero where no list was given since the kubelet was started.
	Active    time.Time `json:"active,omitzero"`
	Unhealthy time.Time `json:"unhealthy,omitzero"`
}

// A KubeletSight is what is seen of a kubelet on its port, as in KubeletService.
type KubeletSight struct {
	Health           string
	Refused, Answers bool
}

// TokenRefused is what the health of a kubelet begins with that does not take the agent's token
// any more: it has the API server review tokens, and keeps an answer for two minutes.
const TokenRefused = "does not take the agent's token any more"

// Unheard reports whether the API server has heard nothing from the kubelet for so long that the
// node controller has said so; false when that is not known.
func (r *NodeReady) Unheard() bool {
	return r != nil && r.Status == "Unknown" && r.Reason == "NodeStatusUnknown"
}

// What the kubelet writes as the message of the condition Ready (runtimeErrors,
// pkg/kubelet/runtime.go; Healthy, pkg/kubelet/pleg/generic.go; ShutdownStatus,
// pkg/kubelet/nodeshutdown/nodeshutdown_manager_linux.go).
var plegActive = regexp.MustCompile(`PLEG is not healthy: pleg was last seen active ([0-9a-zµ.]+) ago; threshold is ([0-9a-z.]+)`)

const (
	plegNever    = "PLEG is not healthy: pleg has yet to be successful"
	shuttingDown = "node is shutting down"
)

// What the kubelet says there of a container runtime without which its main loop does nothing: it is down,
// has not answered since the kubelet was started, or says that it is not ready. That its network is not
// ("container runtime network not ready") does not stop the loop.
var runtimeDown = []string{
	"container runtime is down", "container runtime status check may not have completed yet", "container runtime not ready",
}

// Hear notes what the message of the condition tells, which the kubelet wrote at that time.
func (r *NodeReady) Hear(message string, said time.Time) {
	r.PLEG, r.ShuttingDown, r.RuntimeDown = nil, false, false
	if r.Status != "False" {
		return
	}
	r.ShuttingDown, r.RuntimeDown = strings.Contains(message, shuttingDown), slices.ContainsFunc(runtimeDown,
		func(s string) bool { return strings.Contains(message, s) })
	if strings.Contains(message, plegNever) {
		r.PLEG = &PLEG{Said: said, First: said}
	}
	m := plegActive.FindStringSubmatch(message)
	if m == nil || said.IsZero() {
		return
	}
	ago, err := time.ParseDuration(m[1])
	threshold, wrong := time.ParseDuration(m[2])
	if err != nil || wrong != nil || ago < threshold || threshold <= 0 {
		return
	}
	active := said.Add(-ago)
	r.PLEG = &PLEG{Said: said, First: said, Active: active, Unhealthy: active.Add(threshold)}
}

// sameList is how far apart the times may be that two messages tell of the same list: the kubelet
// tells when it has written one in whole seconds only.
const sameList = 2 * time.Second

// follow keeps the times that an earlier message told of the same list.
func (g *PLEG) follow(e *PLEG) {
	if g != nil && e != nil && g.Active.IsZero() == e.Active.IsZero() && g.Active.Sub(e.Active).Abs() <= sameList {
		g.Active, g.Unhealthy, g.First = e.Active, e.Unhealthy, e.First
	}
}

// Follow sets Since. earlier is the answer before, nil if there was none, and answered when
// this one was given.
func (r *NodeReady) Follow(earlier *NodeReady, answered time.Time) {
	r.Since = answered
	if earlier != nil {
		r.PLEG.follow(earlier.PLEG)
	}
	// When nobody asked for a while, nobody may have looked at the kubelet either.
	if earlier != nil && answered.Sub(earlier.Asked) < Young && earlier.Status == r.Status && earlier.Reason == r.Reason &&
		earlier.Transition.Equal(r.Transition) {
		r.Since = earlier.Since
	}
}

// SetNodeReady adds what the API server has of the pod's node, or why that is not known. Both are
// nil when it was not asked.
func (p *Pod) SetNodeReady(r *NodeReady, err error) {
	p.Node.Ready = r
	if err != nil {
		p.Lack(NodeObject, "read the condition Ready of the Node: "+err.Error())
	}
}

// Young is the age up to which a kubelet, or containerd, may not have begun its work, or may be about to end again
// because it cannot.
const Young = time.Minute

// sinceYoung carries over since when the kubelet has been away or young. The readings are those
// of now and earlier; between them it cannot have been older than that if they are close together.
func (n *Node) sinceYoung(earlier *Node) {
	k, e := &n.Kubelet, &earlier.Kubelet
	if n.Time.Sub(earlier.Read) >= Young {
		e = new(KubeletService)
	}
	t := k.Process
	if t == nil && k.AbsentSince.IsZero() || t != nil && (t.Probe == nil || t.Probe.Started.IsZero()) {
		k.YoungSince, k.Starts, k.StartSeen, k.LastStart = e.YoungSince, e.Starts, e.StartSeen, e.LastStart // it could not be read
		return
	}
	if t != nil && n.Time.Sub(t.Probe.Started) >= Young {
		return
	}
	k.YoungSince, k.Starts, k.StartSeen, k.LastStart = firstOf(e.YoungSince, n.Read), e.Starts, e.StartSeen, e.LastStart
	// The start is worked out from ticks since boot, and is not the same to the millisecond.
	if t != nil && t.Probe.Started.Sub(e.LastStart).Abs() > time.Second {
		k.Starts, k.StartSeen, k.LastStart = e.Starts+1, firstOf(e.StartSeen, n.Read), t.Probe.Started
	}
}

// maxEnds is how many ends of containerd are enough to say that it does not stay up.
const maxEnds = 3

// sinceEnds carries over since when containerd has not stayed up, and how often it has ended. AnsweringSince has been carried over before.
func (n *Node) sinceEnds(earlier *Node) {
	c, e := &n.Containerd, &earlier.Containerd
	if n.Time.Sub(earlier.Read) >= Young {
		e = new(ContainerdService)
	}
	answers := !c.AnsweringSince.IsZero()
	if answers && n.Time.Sub(latest(c.AnsweringSince, c.ConnectedSince)) >= Young {
		return
	}
	c.Ends, c.FirstEnd = e.Ends, e.FirstEnd
	if !e.AnsweringSince.IsZero() && (c.Refused || answers && c.ConnectedSince.After(e.ConnectedSince)) {
		c.Ends, c.FirstEnd = min(c.Ends+1, maxEnds), firstOf(c.FirstEnd, n.Read)
	}
}

// silent is for how long nobody must answer on the kubelet's port to be more than a moment's delay,
// or the time that its unit takes to start it again.
const silent = 20 * time.Second

// LoopStalls reports whether the kubelet's health check says that its main loop hangs: the loop has
// not come round for five minutes, or longer where it is told to come round more rarely
// (SyncLoopHealthCheck, pkg/kubelet/kubelet.go).
func (k *KubeletService) LoopStalls() bool {
	checks, failing := strings.CutPrefix(k.Health, "failing checks: ")
	return failing && slices.Contains(strings.Split(checks, ", "), "syncloop")
}

// sinceStalled sets StalledSince and StalledAfter.
func (n *Node) sinceStalled(earlier *Node) {
	k, e := &n.Kubelet, &earlier.Kubelet
	if n.Time.Sub(earlier.Read) >= Young {
		e = new(KubeletService) // the loop may have come round in between
	}
	k.StalledSince, k.StalledAfter = time.Time{}, time.Time{}
	switch {
	case !k.LoopStalls():
	case !e.StalledSince.IsZero():
		k.StalledSince, k.StalledAfter = e.StalledSince, e.StalledAfter
	default:
		k.StalledSince = n.Read
		if e.Health == "ok" {
			k.StalledAfter = earlier.Time
		}
	}
}

// sinceSilent carries over since when and until when nobody has answered on the kubelet's port.
func (n *Node) sinceSilent(earlier *Node) {
	k, e := &n.Kubelet, &earlier.Kubelet
	if k.SilentUntil = e.SilentUntil; k.Answers {
		return
	}
	if k.SilentSince = firstOf(e.SilentSince, n.Read); n.Time.Sub(k.SilentSince) >= silent {
		k.SilentUntil = n.Read
	}
}
