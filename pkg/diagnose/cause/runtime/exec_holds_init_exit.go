package runtime

import (
	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// ExecHoldsInitExit is a container of which the shim does not tell the end, because a process
// that was executed in it has not exited.
//
// The shim tells of the first process's exit last. When that has exited, the shim kills
// what is left in the container's control group if PIDs are shared, and then waits without a
// deadline until no executed process runs any more
// (cmd/containerd-shim-runc-v2/task/service.go, handleInitExit).
var ExecHoldsInitExit = &diagnose.Rule{
	Cause:  "ExecHoldsInitExit",
	Phases: []diagnose.Phase{diagnose.Runtime},
	Needs:  []evidence.Source{evidence.Processes, evidence.Suspects, evidence.Cgroups, evidence.Containers, evidence.Containerd},
	Doc: diagnose.Doc{
		Layer:   "runtime",
		Title:   "a process started by an exec outlives its container",
		Message: "container {container} has exited, but the shim waits for {process}, an exec in it that still runs outside the pod{more}",
		Phrases: map[string][]diagnose.Choice{
			"more": {{Text: " (and {alike} more like it)"}, {Text: ""}},
		},
		Meaning: "kubectl exec, a probe and a hook execute a process in a container. With hostPID or shareProcessNamespace the end of the container's first process does not end it. " +
			"The shim then kills what is left in the container's control group; a process that has moved to another group (systemd-run, a session of sudo or ssh) is not among them. " +
			"The shim tells containerd that the container has ended when all executed processes have exited.",
		Evidence: []string{"The pod shares PIDs and is past its deadline. By containerd's record the container runs, and its shim says so too, although no process has the number of its first process any more and its control group is empty. " +
			"The shim has the output of a process open that was executed in the container. " +
			"It has a child outside of the pod's control groups that leads its process group, as an executed process does, and that can write to a " +
			"pipe of the shim. That has been so for " + fact.Disagree.String() + ". " +
			"The shim has no other child, such as a runc that does not return. " +
			"Which child was executed the shim does not tell, so this is inferred."},
		Seen: []string{
			"containerd and the shim say that container {container} runs, but its first process is gone and its cgroup is empty",
			"{process} is a child of the shim in cgroup {cgroup}, outside the pod, and writes to a pipe of the shim",
		},
		First: "on the node: systemctl status {pid} shows whose it is; ask its owner to stop it",
		Avoid: "killing the shim (ends other containers)",
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
			return diagnose.Result{} // whose it is is not known
		}
		return diagnose.Found(out...)
	},
}

// executed returns the child of the shim that was executed in a container, the one that has
// lived for the longest time, and how many there are; nil when the shim has other children,
// or one is too young.
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
