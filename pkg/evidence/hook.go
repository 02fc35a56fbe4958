package evidence

import (
	"strings"
	"time"
)

// ClockSkew is how far the node's clock, by which processes start and containers end, may be from the API server's, by which the deletion is
// requested and the deadline set. Both count whole seconds where the API server writes them.
const ClockSkew = 3 * time.Second

// HookDelay is how long after the kubelet has begun to stop a pod its hooks have been started, and
// HookDelayStarved the same on a node that is short of something (Starved).
const (
	HookDelay        = 10 * time.Second
	HookDelayStarved = 70 * time.Second
)

// Starved reports whether the node says that it is short of processors, memory or I/O, or was in the last minute.
func (p *Pod) Starved() bool {
	s := p.Node.Pressure
	return s != nil && !s.StarvedUntil.IsZero() && p.Time.Sub(s.StarvedUntil) < time.Minute
}

// HooksBegunBy returns when the preStop hooks of the pod have been started at the latest: what is executed in
// a container later is no hook.
func (p *Pod) HooksBegunBy() time.Time {
	began := latest(p.DeletionRequested, p.StopAwaitedUntil)
	if p.Starved() {
		return began.Add(HookDelayStarved)
	}
	return began.Add(HookDelay)
}

// MayBeHooks returns the processes of a container that may be its preStop hook, or what that has
// left: of those that the shim has executed there since the request for deletion, without a
// terminal, and of orphans that are members of a process group without a leader, which may hold the output
// for which containerd waits. ok is false where the processes do not tell: they or the shim are not
// known, or what the program leaves becomes the shim's child as well, as with hostPID.
func (p *Pod) MayBeHooks(c *Container) (hooks []*Task, ok bool) {
	_, noTasks := p.Missing[Processes]
	_, noCommands := p.Missing[RuntimeCommands]
	shim, first := p.shimPID(), p.firstPID(c)
	if noTasks || noCommands || p.HostPID || shim == 0 || first == 0 {
		return nil, false
	}
	for i := range p.RuntimeCommands {
		if r := &p.RuntimeCommands[i]; r.Container == c.ID && r.Command == execCommand {
			return nil, false // it may be about to start
		}
	}
	leads := make(map[int]bool)
	for i := range p.Tasks {
		leads[p.Tasks[i].PID] = true
	}
	for i := range p.Tasks {
		t := &p.Tasks[i]
		if t.Container != c.ID || !t.Leader() || t.PID == first || t.State == Zombie || t.State == Dead {
			continue
		}
		left := t.PPID != shim && t.Probe != nil && t.Probe.Group != 0 && !leads[t.Probe.Group] && p.sinceDeletion(t)
		ofOther := !c.HookOver.IsZero() && t.Started().After(latest(p.HooksBegunBy(), c.HookOver)) // a probe, or somebody's kubectl exec
		if left && !ofOther || t.PPID == shim && p.MayBeHook(t) {
			hooks = append(hooks, t)
		}
	}
	return hooks, true
}

// MayBeHook reports whether a process that the shim has executed in a container may be its preStop hook. What is executed later than the kubelet
// begins is a probe, or somebody's kubectl exec, and so is one with a terminal.
func (p *Pod) MayBeHook(t *Task) bool {
	return p.sinceDeletion(t) && !t.Started().After(p.HooksBegunBy()) && (t.Probe == nil || !t.Probe.Terminal)
}

// sinceDeletion reports whether a process may have been started since the request for deletion.
func (p *Pod) sinceDeletion(t *Task) bool {
	return t.Started().IsZero() || !t.Started().Before(p.DeletionRequested.Add(-ClockSkew))
}

// shimPID returns the PID of the only shim of the pod, 0 where there is none or several.
func (p *Pod) shimPID() int {
	pid := 0
	for i := range p.Parents {
		if s := &p.Parents[i]; strings.HasPrefix(s.Comm, "containerd-shim") && !s.InPod() {
			if pid != 0 {
				return 0
			}
			pid = s.PID
		}
	}
	return pid
}

// firstPID returns the PID of a container's first process: the shim's, else that of the init of its
// PID namespace whose parent the shim is; 0 where it is not known.
func (p *Pod) firstPID(c *Container) int {
	if c.Task.PID != 0 {
		return c.Task.PID
	}
	for i := range p.Tasks {
		if t := &p.Tasks[i]; t.Container == c.ID && t.Leader() && t.NamespaceInit() && t.PPID == p.shimPID() {
			return t.PID
		}
	}
	return 0
}

// sinceHooks carries over when the hooks of the containers were seen, and since when they have not been.
func (p *Pod) sinceHooks(e *Pod, read time.Time) {
	for i := range p.Containers {
		c := &p.Containers[i]
		if c.PreStopProgram == "" || c.ID == "" {
			continue
		}
		if o, ok := e.Container(c.ID); ok {
			c.HookSeen, c.HookOver = o.HookSeen, o.HookOver
		}
		switch hooks, known := p.MayBeHooks(c); {
		case !known && p.Time.Before(p.HooksBegunBy()):
			c.HookOver = time.Time{} // it may be the hook that is being executed
		case !known:
		case len(hooks) > 0:
			c.HookSeen, c.HookOver = read, time.Time{}
		default:
			c.HookOver = firstOf(c.HookOver, read)
		}
	}
}
