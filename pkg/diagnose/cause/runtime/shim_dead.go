package runtime

import (
	"slices"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// ShimDead is a container whose processes live on without a shim.
var ShimDead = &diagnose.Rule{
	Cause:  "ShimDead",
	Phases: []diagnose.Phase{diagnose.StopSignal, diagnose.Kill, diagnose.Runtime},
	Needs:  []evidence.Source{evidence.Processes, evidence.Suspects, evidence.Containers, evidence.Containerd},
	Doc: diagnose.Doc{
		Layer: "runtime",
		Title: "the shim of a container is gone and its processes live on",
		Message: "container {container} has no shim any more, so nobody signals its processes: {process} lives, no shim of the pod does, " +
			"containerd has no task of the container, and the record of containerd{version} says that it runs",
		Phrases: map[string][]diagnose.Choice{"version": {{Text: " ({containerd})"}, {Text: ""}}},
		Meaning: "The shim has been killed or has crashed. containerd ends the processes of a container without a shim and notes its end in the record; here it has done neither. " +
			"To stop a container of which it has no task it does nothing and reports success, so the kubelet asks again without end.",
		Evidence: "For " + fact.Disagree.String() + ", no process on the node was the shim of the pod's sandbox, " +
			"while containerd answers and has run for a minute or more. " +
			"containerd says that it has no task of the container, its record says that the container runs, and its first process lives and has not been killed. " +
			"Where containers share their PIDs, which process is the first is not known, and nothing is said.",
		Remedy: "On the node: look in containerd's log for \"cleaning up after shim disconnected\" and what follows: runc, or the disk of /var/lib/containerd, may have failed. " +
			"Then end the container's first process: {kill}. If systemctl show -p KillMode containerd says process, run systemctl restart containerd, which writes the record anew.",
		Danger: "The processes may be at work; SIGKILL loses what they have not written. With another KillMode a restart of containerd kills every container of the node. " +
			"A force delete leaves the processes running, unseen.",
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
				continue // it has ended, or it has been killed: what keeps it is something else
			}
			out = append(out, diagnose.Finding{Container: c.Name, Confidence: diagnose.Proved, Objects: diagnose.Objects{
				Process: diagnose.ProcessOf(p, &p.Tasks[first]), Containerd: p.Node.Containerd.Version,
			}})
		}
		return diagnose.Found(out...)
	},
}
