package kubelet

import (
	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// PostStartHookRunning is a postStart hook that does not end. The kubelet runs it within the start of the container (startContainer,
// pkg/kubelet/kuberuntime/kuberuntime_container.go). Its worker for the pod turns to the deletion only when the start is complete: SyncPod takes a
// context that the deletion does not cancel (pkg/kubelet/kubelet.go). A hook that sleeps or sends an HTTP request has no process on the node: the
// kubelet does it itself (pkg/kubelet/lifecycle/handlers.go).
var PostStartHookRunning = &diagnose.Rule{
	Cause:  "PostStartHookRunning",
	Phases: []diagnose.Phase{diagnose.Startup, diagnose.PreStop, diagnose.StopSignal},
	Needs:  fact.SignalSources,
	Partly: []evidence.Source{evidence.Requests},
	Doc: diagnose.Doc{
		Layer:   "kubelet",
		Title:   "a postStart hook does not end",
		Who:     diagnose.ByApp,
		Message: "container {container}: its postStart hook {what}. The kubelet stops the pod only after the hook",
		Phrases: map[string][]diagnose.Choice{
			"what": {
				{Variant: sleeps, Text: "sleeps until {until} (sleep of {sleep})"},
				{Variant: requests, Text: "(HTTP request to port {port} of the pod) has had no response since {since}"},
				{Variant: left, Text: "has exited, but {program} (PID {pid} on the node), started by it, holds its output open"},
				{Text: "{program} (PID {pid} on the node) has been running since {since}"},
			},
			"proof": {
				{Variant: sleeps, Text: "The container's specification has a postStart sleep of {sleep}, counted from its first process"},
				{Variant: requests, Text: "A connection of the kubelet to port {port} has been open since {since}, and nothing has come back over it"},
				{Variant: left, Text: "{program} (PID {pid}) has run in the container since {since}, as an orphan in a process group without a leader"},
				{Text: "{program} (PID {pid}) was started by the container's shim at {since}, right after the container's first process"},
			},
			"first": {
				{Variant: left, Text: "if {program} is no longer needed, ask the node admin to end it (SIGTERM command under Fix). If unsure: wait"},
				{Text: "see in the hook's command what it waits for, and provide that. If you cannot: ask the node admin to end the hook " +
					"(SIGTERM command under Fix)"},
			},
			"end": {{Variant: left, Text: "{terminate}"}, {Text: "{terminategroup}"}},
		},
		Seen: []string{
			"{proof}",
			"The kubelet has not reported container {container} as running, and no container of the pod has been sent its stop signal",
		},
		First: "{first}",
		Avoid: "killing the main program (not asked to stop yet)",
		Meaning: "The kubelet runs the postStart hook of a container right after its start, and waits for the hook's end. " +
			"Until then it does nothing else for the pod. " +
			"containerd reports the end of a hook only when everything that holds its output has ended, too. " +
			"The hook is a program that is executed in the container (exec), or the kubelet itself sleeps (sleep) or sends a request (httpGet). " +
			"The grace period begins when the hook has ended.",
		Evidence: []string{
			"containerd runs a container with a postStart hook, and the kubelet has not written into the pod's status that it runs.",
			"The kubelet and containerd have not been restarted since, and the kubelet has started no other container.",
			"exec: a process was started in the container within " + fact.HookBegins.String() + " after its first process. " +
				"It has the hook's name, or any name if the hook is a shell.",
			"exec: the container's shim started it, not another process of the container. It was the only such process, and had no " +
				"terminal, unlike one of kubectl exec -t.",
			"exec, if the hook has ended: an orphan in a process group without a leader counts as left running by the hook, if all " +
				"other containers run.",
			"exec is proved if all other containers run. Otherwise the kubelet may be at their start, and it is inferred. With hostPID " +
				"it is inferred, and shells are left out.",
			"sleep: the container's first process was started less long ago than the hook sleeps. It is inferred, because a kubelet " +
				"before 1.30 may not know such hooks.",
			"httpGet: for five seconds or more, the kubelet has had one connection to the port in the specification, over which nothing " +
				"at all has come back. A begun response or a TLS handshake counts as an answer.",
			"httpGet is inferred, because a hook or a probe of another pod may name this pod's address.",
			"httpGet is not reported for pods in the network of the node. Nor if a probe of the pod has a timeout of five seconds or " +
				"more, or a container with an httpGet preStop hook was restarted.",
		},
		Remedy: "Ask the pod's owner what the hook waits for. To continue without it, on the node: {end}. The kubelet then stops the " +
			"pod; the grace period begins then. " +
			"For the future: give the hook a time limit of its own, timeout 30 PROGRAM || true, since the kubelet kills the container of a hook that fails.",
		Danger: "Do not force-delete the pod: the kubelet still waits for the hook, and the containers keep running with their volumes. " +
			"What the hook sets up, or registers elsewhere, may be left half done.",
		Families: []diagnose.Family{
			{
				Name: sleeps,
				Who:  diagnose.ByApp, Ends: true,
				Meaning: "The hook is a sleep of the kubelet, which may be as long as terminationGracePeriodSeconds. " +
					"It outlasts the grace period of a deletion that requests a shorter one.",
				First: "nothing now: the kubelet stops the pod when the sleep ends. Before the next deletion, shorten the hook's sleep",
				Remedy: "Wait: the sleep ends by itself at {until}, and the kubelet then stops the pod. The grace period begins then. " +
					"For the future: shorten the hook's sleep if that is too late.",
			},
			{
				Name: requests,
				Meaning: "The hook is an HTTP request of the kubelet to a port of the pod, without a time limit. Any response ends it, whatever " +
					"its status is.",
				First: "use kubectl exec to see why port {port} does not respond (kubectl logs fails until the hook ends). Any HTTP response ends the hook",
				Remedy: "Find out why nothing responds on port {port} of the pod. Any response ends the hook, whatever its status. " +
					"So does the exit of the program that accepted the connection. The kubelet then stops the pod. " +
					"For the future: let it respond in time, or use an exec hook with a time limit.",
			},
		},
	},
	Check: func(p *fact.View) diagnose.Result {
		var out []diagnose.Finding
		var open []diagnose.Open
		for i := range p.Containers {
			c := &p.Containers[i]
			if f, ok := withinKubelet(p, c); ok {
				out = append(out, f)
				continue
			}
			if until := fact.MaySleep(p, c); !until.IsZero() {
				open = append(open, diagnose.Open{Container: c.Name, Since: p.Node.Containerd.ConnectedSince, Until: until, Why: diagnose.Restarting})
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
		return diagnose.Result{Found: out, Open: open}
	},
}

// withinKubelet returns the finding of a hook that sleeps or sends an HTTP request, if there is one.
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

// left is the variant in which the hook has ended, and a process that it has started holds its output open.
const left = "Left"
