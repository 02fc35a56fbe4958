package fact

import (
	"slices"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// Actors are those who end a pod: the kubelet, containerd, the pod's shim, the command of the runtime and the CNI plugin that are at
// work for it, and the CSI drivers of the volumes that are left, by name.
type Actors struct {
	Kubelet    Actor            `json:"kubelet"`
	Containerd Actor            `json:"containerd"`
	Shim       Actor            `json:"shim"`
	Runc       Actor            `json:"runc"`
	CNI        Actor            `json:"cni"`
	CSI        map[string]Actor `json:"csi,omitempty"`
}

// An Actor is one of those who end a pod.
type Actor struct {
	State State `json:"state"`
	// Since is since when that is seen, zero where it is not known, and Why what shows it, "" where the state says it.
	Since time.Time `json:"since,omitzero"`
	Why   string    `json:"why,omitempty"`
}

// A State is how an Actor is. Of several the first one that holds, in this order, is told.
type State string

// The states.
const (
	Gone      State = "Gone"      // no process of it is there, or nobody listens
	Stopped   State = "Stopped"   // somebody has stopped it, by a signal or as its tracer
	Stuck     State = "Stuck"     // it says of itself that it does nothing, or hangs where that follows
	Silent    State = "Silent"    // it does not answer or return, or is not heard
	Restarted State = "Restarted" // it was started after the request for deletion
	Unseen    State = "Unseen"    // it was not found: it may be a part of another program, or have nothing to do
	Acts      State = "Acts"      // nothing is seen that keeps it from its work
)

// kubelet is Stuck also where its main loop may be what hangs on a volume of a pod that is gone, and where it has no list of the node's
// containers. It is Gone when one is known to have had a name that is looked for, or nobody listens on its port, and else Unseen. It is
// Silent when the API server hears nothing from it.
func kubelet(p *View) Actor {
	k, r := &p.Node.Kubelet, p.Node.Ready
	switch t := k.Process; {
	case !k.AbsentSince.IsZero() && (!k.LastSeen.IsZero() || k.Refused):
		return Actor{State: Gone, Since: k.AbsentSince}
	case k.Health != "" && k.Health != KubeletHealthy:
		return Actor{State: Stuck, Since: k.StalledSince, Why: k.Health}
	case len(k.Strangers) > 0:
		return Actor{State: Stuck, Why: "a thread of it hangs at a volume of a pod that is gone"}
	case r != nil && (r.PLEG != nil || r.RuntimeDown):
		return Actor{State: Stuck, Why: "the Node says that the container runtime is down, or PLEG is not healthy"}
	case r.Unheard():
		return Actor{State: Silent, Since: r.Since, Why: "the API server hears nothing from it"}
	case t != nil && Halted(t):
		return Actor{State: Stopped, Since: t.UnchangedSince}
	case beganAnew(p) > 0:
		return Actor{State: Restarted, Since: t.Probe.Started}
	case t == nil:
		return Actor{State: Unseen}
	}
	return Actor{State: Acts}
}

// containerd is never Restarted: when its process was started is not read.
func containerd(p *View) Actor {
	c := &p.Node.Containerd
	switch {
	case c.Refused:
		return Actor{State: Gone, Since: c.RefusedSince}
	case c.Process != nil && Halted(c.Process):
		return Actor{State: Stopped, Since: c.Process.UnchangedSince}
	case !c.UnansweredSince.IsZero():
		return Actor{State: Silent, Since: c.UnansweredSince}
	}
	return Actor{State: Acts, Why: c.Error}
}

// shim is of the pod; of several the one that does not act.
func shim(p *View) Actor {
	all := Shims(p)
	if i := slices.IndexFunc(all, Halted); i >= 0 {
		return Actor{State: Stopped, Since: all[i].UnchangedSince}
	}
	for i := range p.Containers {
		if t := &p.Containers[i].Task; !t.UnansweredSince.IsZero() {
			return Actor{State: Silent, Since: t.UnansweredSince}
		}
	}
	switch {
	case !p.NoShimSince.IsZero():
		return Actor{State: Gone, Since: p.NoShimSince}
	case len(all) == 0:
		return Actor{State: Unseen}
	}
	return Actor{State: Acts}
}

// runc is the first command of the runtime that is under way, and cni the first CNI plugin.
func runc(p *View) Actor {
	if len(p.RuntimeCommands) == 0 {
		return Actor{State: Unseen}
	}
	return command(p, p.RuntimeCommands[0].Tasks, Command)
}

func cni(p *View) Actor {
	if len(p.Plugins) > 0 {
		return command(p, p.Plugins, Plugin)
	}
	return command(p, p.NetworkSetup, Plugin)
}

// command is the first of some programs, or the last of the processes that it waits for. It is Silent when it does not return for as long
// as one that works may run; a rule may tell one that sleeps before that.
func command(p *View, tasks []evidence.Task, patience Patience) Actor {
	if len(tasks) == 0 {
		return Actor{State: Unseen}
	}
	first := &tasks[0]
	last := LastOf(tasks, first)
	a := Actor{State: Acts, Why: first.Comm}
	if first.Probe != nil {
		a.Since = first.Probe.Started
	}
	switch {
	case Halted(last):
		a.State, a.Since = Stopped, last.UnchangedSince
	case last.State == evidence.Uninterruptible && last.Unchanged(p.Time) >= SlowDevice:
		a.State, a.Since = Stuck, last.UnchangedSince
	case !a.Since.IsZero() && p.Time.Sub(a.Since) >= patience.With(p):
		a.State = Silent
	}
	return a
}

// csi are the drivers: one is Gone when it has no socket, or nobody listens there, and Silent when it does not answer in time. What a
// call has failed for, Why says.
func csi(p *View) map[string]Actor {
	if len(p.Volumes) == 0 {
		return nil
	}
	out := map[string]Actor{}
	for i := range p.Volumes {
		v := &p.Volumes[i]
		switch c := FailedCall(p, v.Driver); {
		case v.Driver == "":
		case c != nil && c.Status == evidence.CallUnanswered:
			out[v.Driver] = Actor{State: Gone, Since: c.Rose, Why: c.Status}
		case c != nil && c.Status == evidence.CallTimedOut:
			out[v.Driver] = Actor{State: Silent, Since: c.Rose, Why: c.Status}
		case c != nil:
			out[v.Driver] = Actor{State: Acts, Since: c.Rose, Why: c.Status}
		case v.Unregistered:
			out[v.Driver] = Actor{State: Gone}
		default:
			out[v.Driver] = Actor{State: Acts}
		}
	}
	return out
}

// Unable returns the first of those between the deletion and a signal that does not act, one first of which it is known since when, and its name; ""
// when nothing is seen that keeps one of them from its work: the kubelet, containerd, the shim and a command of the runtime that is under way.
func (a *Actors) Unable() (name string, idle Actor) {
	for _, each := range []struct {
		name string
		Actor
	}{{"the kubelet", a.Kubelet}, {"containerd", a.Containerd}, {"its shim", a.Shim}, {"runc", a.Runc}} {
		switch each.State {
		case Gone, Stopped, Stuck, Silent:
			if name == "" || idle.Since.IsZero() {
				name, idle = each.name, each.Actor
			}
		case Restarted, Unseen, Acts:
		}
	}
	return name, idle
}

// ActsOnDeletions reports whether nothing is seen for which the kubelet may do nothing about any pod that is deleted.
func (a Actor) ActsOnDeletions() bool {
	return a.State != Gone && a.State != Stuck && a.State != Silent
}

// KubeletHealthy is what /healthz of the kubelet says when all is well.
const KubeletHealthy = "ok"

// Halted reports whether somebody has stopped a task, by a signal or as its tracer.
func Halted(t *evidence.Task) bool { return t.State == evidence.Stopped || t.State == evidence.Traced }

// PluginLives reports whether nobody has ended a CNI plugin, nor has it ended.
func PluginLives(t *evidence.Task) bool {
	return t.State != evidence.Zombie && !t.Killed() && !t.WasKilled && !t.Exiting()
}
