package runtime

import (
	"slices"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// ShimDead is a container whose processes still run, but whose shim is gone.
var ShimDead = &diagnose.Rule{
	Cause:  "ShimDead",
	Phases: []diagnose.Phase{diagnose.StopSignal, diagnose.Kill, diagnose.Runtime},
	Needs:  []evidence.Source{evidence.Processes, evidence.Suspects, evidence.Containers, evidence.Containerd},
	Partly: []evidence.Source{evidence.Shims},
	Doc: diagnose.Doc{
		Layer:   "runtime",
		Title:   "a container's shim is gone, but its processes still run",
		Who:     diagnose.ByNode,
		Message: "the containerd-shim of container {container} is gone, so containerd cannot signal {program} (PID {pid}), which still runs",
		Phrases: map[string][]diagnose.Choice{"version": {{Text: " ({containerd})"}, {Text: ""}}},
		Meaning: "The shim was killed or has crashed. containerd should end the processes of a container without a shim, and record its exit in the " +
			"CRI status. Here it has done neither. A request to stop a container without a task does nothing and returns success, so the " +
			"kubelet repeats it without end.",
		Evidence: []string{
			"For " + fact.Disagree.String() + ", no process on the node was the shim of the pod's sandbox.",
			"containerd responds, and has run for a minute or more.",
			"containerd has no task for the container, but its CRI status says that the container runs.",
			"The container's first process is alive and has not been killed.",
			"Not reported if containers share their PIDs (hostPID or shareProcessNamespace): which process is the first is then not known.",
		},
		Seen: []string{
			"No process on the node is the shim of the pod's sandbox",
			"containerd{version} has no task for container {container}, but its CRI status says running",
			"{process} is alive and has no pending SIGKILL",
		},
		First: "on the node, as root: {terminate}. " +
			"If it still runs after a minute: with the app owner's OK, SIGKILL. Then the last step of Fix",
		Avoid: "restarting containerd before the check in Fix (can end all pods)",
		Remedy: "On the node: journalctl -u containerd | grep -A20 'cleaning up after shim disconnected' shows when the shim was lost. " +
			"What follows there says why containerd did not clean up: runc, or the disk of /var/lib/containerd, may have failed. " +
			"Then end the container's first process: {terminate}. If it still runs after a minute: {kill}. " +
			"Then, if systemctl show -p KillMode containerd prints KillMode=process: systemctl restart containerd. That rewrites the record.",
		Danger: "SIGKILL loses what the processes have not written. Do not restart containerd with a KillMode other than process: that " +
			"kills every container on the node. " +
			"A force delete leaves the processes running with no API object tracking them.",
	},
	Check: func(p *fact.View) diagnose.Result {
		if !disagree(p, p.NoShimSince) || p.HostPID || p.ShareProcessNamespace {
			return diagnose.Result{}
		}
		var out []diagnose.Finding
		for i := range p.Containers {
			c := &p.Containers[i]
			if c.Kind == evidence.Sandbox || c.State != evidence.StateRunning || !c.Task.Absent || c.Runtime != fact.RuncV2 {
				continue
			}
			first := slices.IndexFunc(p.Tasks, func(t evidence.Task) bool {
				return t.Container == c.ID && t.Leader() && len(t.NSpid) == 2 && t.NamespaceInit()
			})
			if first < 0 || p.Tasks[first].State == evidence.Zombie || fact.Dying(&p.Tasks[first]) {
				continue // it has exited or was killed: the cause is another one
			}
			out = append(out, diagnose.Finding{Container: c.Name, Confidence: diagnose.Proved, Objects: diagnose.Objects{
				Process: diagnose.ProcessOf(p, &p.Tasks[first]), Containerd: p.Node.Containerd.Version,
			}})
		}
		return diagnose.Found(out...)
	},
}
