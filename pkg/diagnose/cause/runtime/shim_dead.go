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
	Doc: diagnose.Doc{
		Layer:   "runtime",
		Title:   "a container's shim is gone, but its processes still run",
		Who:     diagnose.ByNode,
		Message: "the containerd-shim of container {container} is gone, so containerd cannot signal {program} (PID {pid}), which still runs",
		Phrases: map[string][]diagnose.Choice{"version": {{Text: " ({containerd})"}, {Text: ""}}},
		Meaning: "The shim was killed or has crashed. containerd should end the processes of a container without a shim, and record its exit in the " +
			"CRI status. Here it has done neither. A request to stop a container without a task does nothing and returns success, so the " +
			"kubelet repeats it without end.",
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
	By: diagnose.By[*evidence.Container]{
		From: []evidence.Source{evidence.Containers},
		Of:   programs,
		Facts: []diagnose.Fact[*evidence.Container]{
			{
				Says: "For " + fact.Disagree.String() + ", no process on the node was the shim of the pod's sandbox.",
				Pod:  noShimForLong, From: []evidence.Source{evidence.Suspects},
			},
			{Says: "The container's runtime is io.containerd.runc.v2.", Is: diagnose.If(ofRunc)},
			{Says: "The CRI status says that the container runs.", Is: diagnose.If(isRunning)},
			{Says: "containerd has no task for the container.", Is: diagnose.If(isAbsent), Partly: []evidence.Source{evidence.Shims}},
			{
				Says: "The pod's containers do not share their PIDs (hostPID or shareProcessNamespace). With shared PIDs, the first process is not known.",
				Pod:  diagnose.IfPod(ownPIDs),
			},
			{Says: "The container's first process is alive.", Is: diagnose.If(firstLives), From: []evidence.Source{evidence.Processes}},
			{
				Says: "It has not been killed: it has no pending SIGKILL, and is not exiting.",
				Is:   diagnose.If(firstIsNotKilled), From: []evidence.Source{evidence.Processes, evidence.Suspects},
			},
			{Says: "containerd responds.", Pod: responds, From: []evidence.Source{evidence.Containerd}},
			{Says: "containerd has run for a minute or more.", Pod: hasSettled, From: []evidence.Source{evidence.Containerd}},
		},
		Tell: diagnose.Each(tellShimDead),
	},
}

func noShimForLong(p *fact.View) diagnose.Holding {
	return diagnose.Lasted(p, p.NoShimSince, fact.Disagree.With(p), diagnose.Slow)
}

func ownPIDs(p *fact.View) bool { return !p.HostPID && !p.ShareProcessNamespace }

// firstOf returns the first process of a container whose PIDs are its own; nil when there is none.
func firstOf(p *fact.View, c *evidence.Container) *evidence.Task {
	i := slices.IndexFunc(p.Tasks, func(t evidence.Task) bool {
		return t.Container == c.ID && t.Leader() && len(t.NSpid) == 2 && t.NamespaceInit()
	})
	if i < 0 {
		return nil
	}
	return &p.Tasks[i]
}

// firstLives reports whether the first process of a container has not exited, and firstIsNotKilled whether it has not been killed. Else the
// cause is another one.
func firstLives(p *fact.View, c *evidence.Container) bool {
	first := firstOf(p, c)
	return first != nil && first.State != evidence.Zombie
}

func firstIsNotKilled(p *fact.View, c *evidence.Container) bool {
	first := firstOf(p, c)
	return first != nil && !fact.Dying(first)
}

func tellShimDead(p *fact.View, c *evidence.Container) diagnose.Finding {
	return diagnose.Finding{Container: c.Name, Confidence: diagnose.Proved, Objects: diagnose.Objects{
		Process: diagnose.ProcessOf(p, firstOf(p, c)), Containerd: p.Node.Containerd.Version,
	}}
}
