package runtime

import (
	"slices"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// ExecHoldsInitExit is a container whose exit the shim does not report, because a process that was
// started by an exec in it has not exited.
//
// The shim reports the exit of the first process last. When that has exited and PIDs are shared, the
// shim kills what is left in the container's cgroup. It then waits, without a deadline, until all
// processes started by an exec have exited (cmd/containerd-shim-runc-v2/task/service.go, handleInitExit).
var ExecHoldsInitExit = &diagnose.Rule{
	Cause:  "ExecHoldsInitExit",
	Phases: []diagnose.Phase{diagnose.Runtime},
	Doc: diagnose.Doc{
		Layer:   "runtime",
		Title:   "a process started by an exec outlives its container",
		Who:     diagnose.ByApp,
		Message: "container {container} has exited, but {process}, from an exec in it (perhaps kubectl exec), still runs outside the pod{more}",
		Phrases: map[string][]diagnose.Choice{
			"more": {{Text: " (and {alike} more like it)"}, {Text: ""}},
		},
		Meaning: "kubectl exec, a probe and a hook start a process in the container. With hostPID or shareProcessNamespace, this process does not " +
			"end when the container's first process exits. The shim then kills what is left in the container's cgroup. A process that has moved " +
			"to another cgroup (systemd-run, a session of sudo or ssh) survives that. The shim reports the container's exit to containerd when " +
			"all processes started by an exec have exited.",
		Seen: []string{
			"containerd and the shim say that container {container} runs, but its first process is gone and its cgroup is empty",
			"{process} is a child of the shim in cgroup {cgroup}, outside the pod, and writes to a pipe of the shim",
		},
		First: "leave your kubectl exec sessions. If still stuck, ask the node admin whose {comm} is " +
			"(cat /proc/{pid}/cgroup), then that owner to stop it",
		Avoid: "ending {comm} unasked (may be a user's session)",
		Remedy: "On the node: find out what {process} does, and whose it is. " +
			"It probably comes from kubectl exec, a probe or a hook. Ask its owner to end it, or once the owner agrees: {terminate}. " +
			"The pod terminates when all processes like it have exited.",
		Danger: "Do not end the process unasked: it may be a user's session, or work that outlives the container on purpose. " +
			"Do not kill the shim: that ends the pod's other containers. Restarting containerd does not help. " +
			"A force delete leaves the process running with no API object tracking it.",
	},
	By: diagnose.By[*evidence.Container]{
		From: []evidence.Source{evidence.Containers},
		Of:   programs,
		Facts: slices.Concat([]diagnose.Fact[*evidence.Container]{
			{Says: sharesPIDs, Pod: diagnose.IfPod(sharesPID)},
			{Says: runsRunc + ".", Is: diagnose.If(ofRunc)},
			{Says: saysRunning, Is: diagnose.If(isRunning)},
			{Says: "The shim says that it runs, too.", Is: diagnose.If(shimSaysRunning), Partly: shims},
			{Says: pidGone, Is: diagnose.If(isPIDGone), From: processes, Partly: shims},
			{Says: "The container's cgroup has no process.", Is: diagnose.If(groupEmpty), From: []evidence.Source{evidence.Cgroups}},
			{Says: oneShim, Is: diagnose.If(ofOneShim), From: processes},
			{Says: "The shim is not stopped or traced.", Is: diagnose.If(ofLiveShim), From: processes},
			{
				Says: "The shim has the output of an exec in the container open.",
				Is:   diagnose.If(isExecuted), From: []evidence.Source{evidence.Suspects}, Partly: shims,
			},
			{
				Says: "The shim has a child outside the pod's cgroups.",
				Pod:  diagnose.IfPod(hasChild), From: processes, Partly: []evidence.Source{evidence.RuntimeCommands},
			},
			{Says: "It can write to a pipe of the shim, and so can each other child outside the pod's cgroups.", Pod: diagnose.IfPod(childrenWrite)},
			{
				Says: "Each of them leads its process group, as a process started by an exec does. The shim has no other child, such as a runc that " +
					"does not return.",
				Pod: childrenLead, From: []evidence.Source{evidence.Suspects},
			},
			{Says: "None of them serves other pods or the node, as another shim does.", Pod: diagnose.IfPod(childrenSpared)},
			{Says: "Each of them has been there for " + fact.Disagree.String() + ".", Pod: childrenForLong},
		}, containerdSettled[*evidence.Container](), []diagnose.Fact[*evidence.Container]{
			{Says: "Inferred: the shim does not report which of its children was started by an exec."},
		}),
		Alone: "Of several such containers none is reported: it cannot be known in which of them the exec was.",
		Tell:  diagnose.Each(tellExecuted),
	},
}

// The lines that several rules share.
const (
	sharesPIDs = "The pod uses hostPID or shareProcessNamespace."
	pidGone    = "No process has the PID of the container's first process any more."
	oneShim    = "The pod has one shim that is known for certain."
)

func sharesPID(p *fact.View) bool { return p.HostPID || p.ShareProcessNamespace }

func isPIDGone(_ *fact.View, c *evidence.Container) bool { return c.Task.PIDGone }

func isExecuted(_ *fact.View, c *evidence.Container) bool { return c.Task.Executed }

func hasChild(p *fact.View) bool { return len(p.ShimChildren) > 0 }

func childrenWrite(p *fact.View) bool {
	return !slices.ContainsFunc(p.ShimChildren, func(c evidence.ShimChild) bool { return !c.Output })
}

// childrenLead answers whether each child of the shim leads its process group. It is not read of a child that was not probed.
func childrenLead(p *fact.View) diagnose.Holding {
	out := diagnose.Is(true)
	for i := range p.ShimChildren {
		switch c := &p.ShimChildren[i]; {
		case c.Probe == nil:
			out = diagnose.Holding{}
		case c.Probe.Group != c.PID:
			return diagnose.Is(false)
		}
	}
	return out
}

func childrenSpared(p *fact.View) bool {
	return !slices.ContainsFunc(p.ShimChildren, func(c evidence.ShimChild) bool { return fact.Essential(&c.Task) })
}

func childrenForLong(p *fact.View) diagnose.Holding {
	for i := range p.ShimChildren {
		if h := disagreed(p, p.ShimChildren[i].Since); !h.Yes() {
			return h
		}
	}
	return diagnose.Is(true)
}

// tellExecuted tells of the shim's oldest child, and how many more there are.
func tellExecuted(p *fact.View, c *evidence.Container) diagnose.Finding {
	f := diagnose.Finding{Container: c.Name, Confidence: diagnose.Inferred}
	if len(p.ShimChildren) > 0 {
		first := slices.MinFunc(p.ShimChildren, func(a, b evidence.ShimChild) int { return a.Since.Compare(b.Since) })
		f.Objects = diagnose.Objects{Process: diagnose.ProcessOf(p, &first.Task), Alike: len(p.ShimChildren) - 1, Cgroup: trimGroup(first.Cgroup)}
	}
	return f
}
