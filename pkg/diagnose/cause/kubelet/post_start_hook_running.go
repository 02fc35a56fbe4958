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
// does not cancel, pkg/kubelet/kubelet.go). A hook that sleeps or asks a port has no process on
// the node: the kubelet does it itself (pkg/kubelet/lifecycle/handlers.go).
var PostStartHookRunning = &diagnose.Rule{
	Cause:  "PostStartHookRunning",
	Phases: []diagnose.Phase{diagnose.Startup, diagnose.PreStop, diagnose.StopSignal},
	Needs:  fact.SignalSources,
	Partly: []evidence.Source{evidence.Requests},
	Doc: diagnose.Doc{
		Layer: "kubelet",
		Title: "a postStart hook does not end",
		Message: "container {container}: its postStart hook{what}. " +
			"The kubelet completes the start of a container before it stops a pod, without a time limit: " +
			"no container of the pod has been sent its stop signal",
		Phrases: map[string][]diagnose.Choice{
			"what": {
				{Variant: sleeps, Text: ", a sleep of {sleep}, lasts until {until}"},
				{Variant: requests, Text: ", an HTTP request to port {port} of the pod, has had no answer since {since}"},
				{Variant: left, Text: " has ended, and {program} (PID {pid} on the node), which it has left running since {since}, holds its output"},
				{Text: " {program} (PID {pid} on the node) has run since {since} and has not ended"},
			},
			"end": {{Variant: left, Text: "{terminate}"}, {Text: "{terminategroup}"}},
		},
		Meaning: "The kubelet runs the postStart hook of a container right after its start, and waits for the hook's end. " +
			"Nothing else is done about the pod meanwhile. " +
			"containerd reports the end of a hook when everything that holds its output has ended, too. " +
			"The hook is a program that is executed in the container (exec), or the kubelet itself sleeps (sleep) or sends a request (httpGet). " +
			"The grace period begins when the hook has ended.",
		Evidence: "Containerd runs a container with a postStart hook, and the kubelet has not written into the pod's status that it does. " +
			"The kubelet and containerd have not been started anew since, and the kubelet has started no other container. " +
			"exec: a process of the hook's name, or any after a shell, was started in the container within " + fact.HookBegins.String() + " after its first process. " +
			"Its shim has started it, not another process of the container; it was the only such process, and had no terminal, as kubectl exec -t gives one. " +
			"It is proved when all other containers run, and otherwise inferred, because the kubelet may be at their start. " +
			"With hostPID it is inferred, and shells are left out. " +
			"Of a hook that has ended, an orphan in a process group without a leader is taken for what it has left running, where all other containers run. " +
			"sleep: the container's first process was started less long ago than the hook sleeps. " +
			"It is inferred, because a kubelet before 1.30 may not know such hooks. " +
			"httpGet: the kubelet has had one connection to the port in the specification for five seconds or more, over which nothing at all has come back. " +
			"It is inferred, because a hook or a probe of another pod may name this pod's address. " +
			"It is not looked for when a probe of the pod has a timeout of five seconds or more, or a container with a preStop hook of this kind was started anew. " +
			"An answer that has begun and does not end, and a TLS handshake, are answers. Pods in the network of the node are left out.",
		Remedy: "Find out what the hook waits for. To go on without it, end it on the node: {end}. " +
			"The kubelet then stops the pod. Give the hook a time limit of its own, timeout 30 PROGRAM || true: the kubelet kills the container of a hook that fails.",
		Danger: "Do not force-delete: the kubelet still waits for the hook, and the containers run on with their volumes. " +
			"What the hook was to set up, or to register elsewhere, may be left half done.",
		Families: []diagnose.Family{
			{
				Name: sleeps,
				Meaning: "The hook is a sleep of the kubelet, which may be as long as terminationGracePeriodSeconds. " +
					"It outlasts the grace period of a deletion that asks for a shorter one.",
				Remedy: "Wait: the sleep ends by itself, and the kubelet then stops the pod. Let the hook sleep for less time if that is too late.",
			},
			{
				Name:    requests,
				Meaning: "The hook is an HTTP request of the kubelet to a port of the pod, without a time limit. Any answer ends it, whatever its status is.",
				Remedy: "Find out why nothing answers on port {port} of the pod. " +
					"The kubelet goes on when an answer comes, or when the program that has accepted the connection exits. " +
					"Let it answer in time, or use a hook that executes a program with a time limit.",
			},
		},
	},
	Check: func(p *fact.View) diagnose.Result {
		var out []diagnose.Finding
		for i := range p.Containers {
			c := &p.Containers[i]
			if f, ok := withinKubelet(p, c); ok {
				out = append(out, f)
				continue
			}
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
		return diagnose.Found(out...)
	},
}

// withinKubelet returns the finding of a hook that sleeps or asks a port, if there is one.
func withinKubelet(p *fact.View, c *evidence.Container) (diagnose.Finding, bool) {
	f := diagnose.Finding{Container: c.Name, Confidence: diagnose.Inferred, Objects: diagnose.Objects{Deadline: p.Deadline}}
	if first, until := fact.PostStartSleep(p, c); first != nil {
		f.Family = sleeps
		f.Objects.Until, f.Objects.SleepSeconds = until, c.PostStartSleep
		return f, true
	}
	r := fact.PostStartRequest(p, c)
	if r == nil {
		return f, false
	}
	f.Family = requests
	f.Objects.Since, f.Objects.Port = r.Since, r.Port
	return f, true
}

// left is the variant in which the hook has ended and something that it has started holds
// its output.
const left = "Left"
