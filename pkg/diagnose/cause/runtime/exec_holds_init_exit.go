package runtime

import (
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
	Needs:  []evidence.Source{evidence.Processes, evidence.Suspects, evidence.Cgroups, evidence.Containers, evidence.Containerd},
	Partly: []evidence.Source{evidence.Shims},
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
		Evidence: []string{
			"The pod uses hostPID or shareProcessNamespace, and is past its deadline.",
			"containerd's CRI status and the shim both say that the container runs.",
			"No process has the PID of the container's first process any more, and the container's cgroup is empty.",
			"The shim has the output of an exec in the container open.",
			"The shim has a child outside the pod's cgroups. The child leads its process group, as a process started by an exec does, and can " +
				"write to a pipe of the shim.",
			"This has been so for " + fact.Disagree.String() + ".",
			"Inferred: the shim does not report which of its children was started by an exec.",
			"Not reported if the shim has any other child, such as a runc that does not return.",
		},
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
	Check: func(p *fact.View) diagnose.Result {
		shim := ownShim(p)
		if p.Overdue() < 0 || shim == nil || fact.Halted(shim) || !p.HostPID && !p.ShareProcessNamespace {
			return diagnose.Result{}
		}
		first, n := executed(p)
		if first == nil {
			return diagnose.Result{}
		}
		var out []diagnose.Finding
		for i := range p.Containers {
			c := &p.Containers[i]
			if c.Kind == evidence.Sandbox || c.Runtime != fact.RuncV2 || c.State != evidence.StateRunning ||
				c.Task.Status != running || !c.Task.PIDGone || !c.Task.Executed {
				continue
			}
			if g := groupOf(p, c); g != nil && g.Populated {
				continue
			}
			out = append(out, diagnose.Finding{Container: c.Name, Confidence: diagnose.Inferred, Objects: diagnose.Objects{
				Process: diagnose.ProcessOf(p, &first.Task), Alike: n - 1, Cgroup: trimGroup(first.Cgroup),
			}})
		}
		if len(out) > 1 {
			return diagnose.Result{} // which container's exec it is cannot be known
		}
		return diagnose.Found(out...)
	},
}

// executed returns the shim's oldest child that was started by an exec, and how many there are; nil
// when the shim has other children, or one is too young.
func executed(p *fact.View) (first *evidence.ShimChild, n int) {
	for i := range p.ShimChildren {
		c := &p.ShimChildren[i]
		if !c.Output || c.Probe == nil || c.Probe.Group != c.PID || !disagree(p, c.Since) || fact.Essential(&c.Task) {
			return nil, 0
		}
		if n++; first == nil || c.Since.Before(first.Since) {
			first = c
		}
	}
	return first, n
}
