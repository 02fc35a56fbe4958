package kubelet

import (
	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// PostStartHookRunning is a postStart hook that does not end. The kubelet runs it within
// the start of the container (startContainer,
// pkg/kubelet/kuberuntime/kuberuntime_container.go), and its worker for the pod does not
// turn to the deletion before that is complete (SyncPod takes a context that the deletion
// does not cancel, pkg/kubelet/kubelet.go). Hooks of other kinds than exec leave no trace on
// the node.
var PostStartHookRunning = &diagnose.Rule{
	Cause:  "PostStartHookRunning",
	Phases: []diagnose.Phase{diagnose.Startup, diagnose.PreStop, diagnose.StopSignal},
	Needs:  fact.SignalSources,
	Doc: diagnose.Doc{
		Layer: "kubelet",
		Title: "a postStart hook does not end",
		Message: "container {container}: its postStart hook {what}. " +
			"The kubelet completes the start of a container before it stops a pod, without a time limit: " +
			"no container of the pod has been sent its stop signal",
		Phrases: map[string][]diagnose.Choice{
			"what": {
				{Variant: left, Text: "has ended, and {program} (PID {pid} on the node), which it has left running since {since}, holds its output"},
				{Text: "{program} (PID {pid} on the node) has run since {since} and has not ended"},
			},
			"end": {{Variant: left, Text: "{terminate}"}, {Text: "{terminategroup}"}},
		},
		Meaning: "The kubelet runs the postStart hook of a container right after its start, and waits for the hook's end. " +
			"Nothing else is done about the pod meanwhile. " +
			"containerd reports the end of a hook when everything that holds its output has ended, too. " +
			"The grace period begins when the hook has ended.",
		Evidence: "The container's specification has a postStart hook that executes a program. " +
			"Containerd runs the container, and the kubelet has not written into the pod's status that it does. " +
			"A process of the hook's name, or any after a shell, was started in the container within ten seconds of its first process, or a minute on a node short of something. " +
			"Its shim has started it, not another process of the container; it was the only such process, and had no terminal, as kubectl exec -t gives one. " +
			"The kubelet and containerd have not been started anew since, and the kubelet has started no other container. " +
			"It is proved when all other containers run, and otherwise inferred, because the kubelet may be at their start. " +
			"With hostPID it is inferred, and shells are left out. " +
			"Of a hook that has ended, an orphan in a process group without a leader is taken for what it has left running, where all other containers run.",
		Remedy: "Find out what the hook waits for. To go on without it, end it on the node: {end}. " +
			"The kubelet then stops the pod. Give the hook a time limit of its own, as with timeout(1).",
		Danger: "Do not force-delete: the kubelet still waits for the hook, and the containers run on with their volumes. " +
			"What the hook was to set up, or to register elsewhere, may be left half done.",
	},
	Check: func(p *evidence.Pod) []diagnose.Finding {
		var out []diagnose.Finding
		for i := range p.Containers {
			c := &p.Containers[i]
			hook, sure := fact.PostStartHook(p, c)
			var variants []string
			if hook == nil {
				if hook = fact.PostStartLeft(p, c); hook == nil {
					continue
				}
				variants = []string{left}
			}
			f := diagnose.Finding{Container: c.Name, Confidence: diagnose.Proved, Variants: variants, Objects: diagnose.Objects{
				Process: diagnose.ProcessOf(p, hook), Since: hook.Probe.Started, Deadline: p.Deadline,
			}}
			if !sure {
				f.Confidence = diagnose.Inferred
			}
			out = append(out, f)
		}
		return out
	},
}

// left is the variant in which the hook has ended and something that it has started holds
// its output.
const left = "Left"
