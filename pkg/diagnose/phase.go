package diagnose

import (
	"slices"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// A Phase is a stage of a pod's termination: who holds the baton.
type Phase string

// The phases, in the order in which a termination goes through them.
const (
	Delivery         Phase = "Delivery"         // the kubelet has not been told
	Startup          Phase = "Startup"          // the kubelet is still starting the pod
	PreStop          Phase = "PreStop"          // a preStop hook may run
	StopSignal       Phase = "StopSignal"       // the stop signal is sent, the processes live on
	Kill             Phase = "Kill"             // SIGKILL is sent, the kernel has not ended them
	Runtime          Phase = "Runtime"          // the processes are gone, or containerd does not answer
	Sandbox          Phase = "Sandbox"          // the sandbox and its network are taken down
	DynamicResources Phase = "DynamicResources" // resource claims are unprepared, and the kubelet writes that down
	Volumes          Phase = "Volumes"          // volumes are unmounted
	Cleanup          Phase = "Cleanup"          // what volumes without a mount hold is deleted, or the pod's cgroup removed
	FinalDelete      Phase = "FinalDelete"      // the kubelet writes the last status and asks the API server for the final delete
	Finalizers       Phase = "Finalizers"       // nothing is left on the node, a finalizer is
	PhaseUnknown     Phase = "Unknown"          // the evidence does not tell
)

// WhileProcessesLive are the phases in which processes of the pod's containers
// are there.
var WhileProcessesLive = []Phase{PreStop, StopSignal, Kill}

// locate says which phase the pod's termination is in. Kubelet sets a terminal
// status.phase only when no container can run any more
// (pkg/kubelet/status/status_manager.go, hasPodTransitionedToTerminalPhase), so
// it splits the phases in two halves.
func locate(p *fact.View, table Table) Phase {
	if p.Phase == "Succeeded" || p.Phase == "Failed" {
		return locateAfterContainers(p)
	}
	if !p.Node.Containerd.UnansweredSince.IsZero() || p.Node.Containerd.Refused {
		return Runtime
	}
	if fact.Missing(p, evidence.Processes, evidence.Cgroups) {
		return PhaseUnknown
	}
	var held []*evidence.Task
	for i := range p.Tasks {
		if t := &p.Tasks[i]; fact.HeldUnderGVisor(p, t) {
			held = append(held, t)
		}
	}
	switch {
	case len(held) == 0:
	case !p.Kubelet.ActsOnDeletions() && p.Delivery.NoStopSeen:
		return locateAmongTasks(p, held, table) // of a SIGKILL nothing is seen
	default:
		return Kill // delivered inside of gVisor, of which a process may be in the sandbox's control group
	}
	live := fact.AppTasks(p)
	if len(live) > 0 {
		return locateAmongTasks(p, live, table)
	}
	if fact.Missing(p, evidence.Containers) {
		return PhaseUnknown
	}
	return locateInRuntime(p)
}

// afterContainers are the phases that follow the kubelet's word that all containers have ended, and
// FinalDelete may be seen before it.
var afterContainers = []Phase{Volumes, Cleanup, FinalDelete, Finalizers}

// phaseSources are those without which the phase may not be known.
var phaseSources = []evidence.Source{evidence.Processes, evidence.Cgroups, evidence.Containers, evidence.Mounts}

// mayBeIn reports whether a pod of which the phase is not known may be in one of these.
func mayBeIn(p *fact.View, phases []Phase) bool {
	return slices.ContainsFunc(phases, func(at Phase) bool {
		return at == FinalDelete || slices.Contains(afterContainers, at) == p.ContainersEnded()
	})
}

// locateAmongTasks is for a pod of which processes live.
func locateAmongTasks(p *fact.View, live []*evidence.Task, table Table) Phase {
	switch d := &p.Delivery; {
	case slices.ContainsFunc(live, fact.Dying):
		return Kill
	case starting(p, live), table.show(p, Startup):
		return Startup
	case d.DeletionNotReceived, d.LoopStalledBefore && d.NoStopSeen && !fact.Missing(p, evidence.Containers) && p.Overdue() >= fact.KillLatency:
		return Delivery
	case p.Overdue() < 0 && slices.ContainsFunc(p.Containers, func(c evidence.Container) bool { return mayRunHook(p, &c) }):
		return PreStop
	}
	return StopSignal
}

// starting reports whether the kubelet is known to be starting a container of a pod of which processes live.
func starting(p *fact.View, live []*evidence.Task) bool {
	executed := func(t *evidence.Task) bool { // runc init waits to be told to execute the program
		c, ok := p.Container(t.Container)
		return !ok || c.State != evidence.StateCreated
	}
	return !slices.ContainsFunc(live, executed) || fact.Pull(p) != nil
}

// show reports whether a rule says of a pod that it is in a phase, by what could be read.
func (t Table) show(p *fact.View, phase Phase) bool {
	return slices.ContainsFunc(t, func(row Row) bool { return row.Rule.Shows == phase && row.Rule.By.met(p) })
}

// mayRunHook reports whether a container runs of which the preStop hook is not known to be over, as it is while the runtime signals it.
func mayRunHook(p *fact.View, c *evidence.Container) bool {
	return c.State == evidence.StateRunning && !p.Hook(c).Past() &&
		!slices.ContainsFunc(p.RuntimeCommands, func(r evidence.RuntimeCommand) bool { return r.Command == "kill" && r.Container == c.ID })
}

// locateInRuntime is for a pod without a live process of its containers, of
// which the kubelet has not said yet that they have ended.
func locateInRuntime(p *fact.View) Phase {
	switch {
	case groupRemoved(p):
		return FinalDelete // the status is older
	case setsUpNetwork(p):
		return Startup
	}
	known := false
	for i := range p.Containers {
		switch c := &p.Containers[i]; {
		case c.State == evidence.StateCreated:
			return Startup
		case c.Kind != evidence.Sandbox && (c.State == evidence.StateRunning || c.State == evidence.StateUnknown):
			return Runtime
		case c.ID != "":
			known = true
		}
	}
	switch {
	case !known:
	case takesDownSandbox(p):
		return Sandbox
	case sandboxUp(p):
		return locateAtSandbox(p)
	case fact.HoldsClaims(p) || fact.CheckpointFails(p) != nil:
		return DynamicResources
	}
	// Either the kubelet never started the pod, or it cannot write the status:
	// the evidence here does not tell the two apart.
	return PhaseUnknown
}

// locateAtSandbox is for a pod of which only the sandbox runs, and is not seen to be taken down.
func locateAtSandbox(p *fact.View) Phase {
	switch {
	case fact.Pull(p) != nil:
		return Startup
	case slices.ContainsFunc(p.Containers, func(c evidence.Container) bool { return c.ID == "" && c.Waiting && c.Exit == nil && !c.BackedOff }):
		// An image is pulled for a container, or a sandbox in which none was ever
		// created is taken down: both look the same.
		return PhaseUnknown
	}
	return Sandbox
}

// takesDownSandbox reports whether the pod's sandbox is seen to be taken down, or that to have failed: only one that has ended has a StatusError.
func takesDownSandbox(p *fact.View) bool {
	return len(p.Plugins) > 0 || len(p.ImageMounts) > 0 || p.SandboxStop != nil ||
		slices.ContainsFunc(p.Containers, func(c evidence.Container) bool { return c.StatusError != "" })
}

// sandboxUp reports whether a sandbox of the pod runs, or is being created.
func sandboxUp(p *fact.View) bool {
	return slices.ContainsFunc(p.Containers, func(c evidence.Container) bool {
		return c.Kind == evidence.Sandbox && (c.State == evidence.StateRunning || c.State == evidence.StateCreated)
	})
}

// groupRemoved reports whether the kubelet has removed the control group of a pod that was said to run, the last
// thing of it on the node (SyncTerminatedPod, pkg/kubelet/kubelet.go): a reading has found it, or the kubelet that
// ran the pod is still there. A node that was started anew has no group of a pod of before. Nor is the kubelet done
// with a pod of which it has said since that its sandbox cannot be stopped.
func groupRemoved(p *fact.View) bool {
	if !p.NothingLeft() || !fact.SaidToRun(p) || fact.HoldsClaims(p) || p.Mirror {
		return false
	}
	f := p.SandboxStop
	return (p.Seen.Group || p.Kill.Stayed) && (f == nil || !f.Last.After(p.UnchangedSince))
}

// locateAfterContainers is for a pod in a terminal phase. What is left on the
// node comes before finalizers: a force delete, or the deletion of a pod that
// had ended, sets a grace period of 0 at once while the node still works.
func locateAfterContainers(p *fact.View) Phase {
	switch {
	case fact.Missing(p, evidence.Mounts):
		return PhaseUnknown
	case len(p.Mounts) > 0 || fact.DevicesLeft(p) || fact.Unmounter(p) != nil || fact.VolumesLeft(p):
		return Volumes
	case fact.Missing(p, evidence.Cgroups):
		return PhaseUnknown
	case len(p.Cgroups) > 0:
		// The kubelet removes the group when it is done with the volumes, and those
		// without a mount, such as an emptyDir, show nowhere that the agent may look.
		return Cleanup
	case len(p.Finalizers) > 0 && p.GracePeriodSeconds == 0:
		return Finalizers
	}
	return FinalDelete
}

// setsUpNetwork reports whether a CNI plugin runs, and not only children of one, that sets up the
// pod's network. For one that has been killed, which containerd does when the kubelet has given up,
// the kubelet does not wait any more.
func setsUpNetwork(p *fact.View) bool {
	return slices.ContainsFunc(p.NetworkSetup, func(t evidence.Task) bool {
		return fact.PluginLives(&t) && !slices.ContainsFunc(p.NetworkSetup, func(of evidence.Task) bool { return of.PID == t.PPID })
	})
}
