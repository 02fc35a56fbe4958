package runtime

import (
	"slices"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// silentSandbox is the variant of ShimHung of which the shim does not answer about the
// pod's sandbox.
const silentSandbox = "Sandbox"

// ShimHung is a shim that lives and does not answer containerd.
var ShimHung = &diagnose.Rule{
	Cause:  "ShimHung",
	Phases: []diagnose.Phase{diagnose.StopSignal, diagnose.Kill, diagnose.Runtime, diagnose.Sandbox, diagnose.PhaseUnknown},
	Needs:  []evidence.Source{evidence.Containers},
	Partly: []evidence.Source{evidence.Processes, evidence.RuntimeCommands},
	Doc: diagnose.Doc{
		Layer:   "runtime",
		Title:   "the pod's shim is alive but does not respond to containerd",
		Message: "{how}, so the kubelet cannot stop {whom}",
		Phrases: map[string][]diagnose.Choice{
			"how": {
				{Variant: diagnose.Stopped, Text: "the pod's shim (PID {pid}) is paused (SIGSTOP or similar)"},
				{Text: "the pod's shim (PID {pid}) does not respond to containerd"},
				{Text: "a shim of the pod does not respond to containerd"},
			},
			"whom": {
				{Variant: silentSandbox, Text: "{containers} and the pod's sandbox"},
				{Variant: silentSandbox, Text: "the pod's sandbox"},
				{Text: "{containers}"},
				{Text: "the pod"},
			},
			"saw": {
				{Variant: diagnose.Stopped, Text: "The shim ({comm}, PID {pid}) is in state T without a tracer"},
				{Text: "Repeated requests about {whom} had no response within two seconds each"},
			},
			"save":     {{Text: "{dump}"}, {Text: "send SIGUSR1 to the pod's shims"}},
			"children": {{Text: "cat /proc/{pid}/task/*/children"}, {Text: "ps -eo pid,ppid,stat,wchan:30,comm --forest"}},
		},
		Meaning: "Each pod has a shim, a small process that starts, signals and reaps its containers for containerd. When it hangs, the stop request never reaches the container or its end is never seen. " +
			"containerd does not end a hung shim by itself.",
		Evidence: []string{"A shim in state T, in two readings, has been stopped by a signal and can answer nobody: that is proof by itself. Where the pod seems to have several, as under gVisor, a container of it must be without an answer besides. " +
			"Of any other shim, three requests for a task's state, over " + fact.Answer.String() + ", were each not answered within two seconds, " +
			"while containerd answers others and the shim's process exists. " +
			"Fewer prove nothing: a shim holds its lock while runc kills or deletes a container, which takes seconds on a busy node. " +
			"So a request does not count beside which such a command was seen at work, however long it takes, or could not be looked for, nor do those before it; of those after it two are enough when the last one comes five minutes after it. " +
			"Under gVisor no silence counts: a shim waits there for the process that is the containers' kernel, and what that waits for is not seen."},
		Seen:  []string{"{saw}", "containerd itself responds"},
		First: "on the node: {children} shows the shim's children; a hung runc there is the cause: repair what it waits for",
		Avoid: "restarting containerd (kills the containers), killing the shim",
		Remedy: "On the node: {children} shows the shim's children. A hung runc there is the cause: the shim resumes when it returns. " +
			"Without such a child, save a goroutine dump, which goes to containerd's log: {save}. " +
			"Then drain the node and reboot it; kubectl drain with --skip-wait-for-delete-timeout=60 does not wait for this pod.",
		Danger: "Do not kill the shim: that loses the exit codes and the output of all containers of the pod. It does not end their processes either. " +
			"Do not remove its directory below /run/containerd. " +
			"Do not restart containerd: it gives each shim five seconds as it starts, then kills the containers (containerd 2.4). " +
			"A force delete leaves the containers running with no API object tracking them.",
		Families: []diagnose.Family{{
			Name:    diagnose.Stopped,
			Meaning: "The shim's process is stopped: somebody or something sent it SIGSTOP.",
			First:   "resume the shim, on the node: {continue}",
			Remedy:  "On the node: {continue}. The shim resumes immediately, and the pod terminates. Then find out who stopped it.",
		}},
	},
	Check: func(p *fact.View) diagnose.Result {
		return diagnose.Result{Found: silentShims(p), Open: shimsOpen(p)}
	},
}

// shimsOpen says of a shim that is silent, and has not been for long enough, until when that is known.
func shimsOpen(p *fact.View) []diagnose.Open {
	if p.Overdue() < fact.UnknownAfter || !slices.ContainsFunc(p.Containers, func(c evidence.Container) bool {
		return !c.Task.UnansweredSince.IsZero() && !hangs(p, &c.Task)
	}) {
		return nil
	}
	return []diagnose.Open{diagnose.Waits(fact.Latest(p.Deadline, fact.Unchanged(p)), fact.ShimPatience(p), diagnose.Slow)}
}

// silentShims returns the finding of a shim that hangs.
func silentShims(p *fact.View) []diagnose.Finding {
	if !p.Node.Containerd.UnansweredSince.IsZero() || p.Node.Containerd.Refused {
		return nil // no answer of a shim comes through a containerd that gives none
	}
	var silent []evidence.Container
	for i := range p.Containers {
		if !p.Containers[i].Task.UnansweredSince.IsZero() {
			silent = append(silent, p.Containers[i])
		}
	}
	shims := fact.Shims(p)
	stopped := slices.IndexFunc(shims, func(s *evidence.Task) bool {
		return s.State == evidence.Stopped && s.TracerPID == 0 && s.Unchanged(p.Time) >= fact.LeastStill
	})
	f := diagnose.Finding{Confidence: diagnose.Inferred}
	switch {
	case stopped >= 0 && (len(shims) == 1 || len(silent) > 0): // of several one may be another pod's, of which a process has come into this pod's group
		f.Family, f.Confidence, f.Objects.Process = diagnose.Stopped, diagnose.Proved, diagnose.ProcessOf(p, shims[stopped])
	case len(shims) == 0 || !slices.ContainsFunc(silent, func(c evidence.Container) bool { return hangs(p, &c.Task) }):
		return nil // without its process it is a dead shim, or one of another kind
	case len(shims) == 1: // of several it is not known which one is silent
		f.Objects.Process = diagnose.ProcessOf(p, shims[0])
	}
	for i := range silent {
		if silent[i].Kind == evidence.Sandbox {
			f.Variants = []string{silentSandbox}
		} else {
			f.Objects.Containers = append(f.Objects.Containers, silent[i].Name)
		}
	}
	return []diagnose.Finding{f}
}

// hangs reports whether a shim that does not answer about a container is seen to hang by that alone, and may not merely wait for
// a command of the runtime, nor, as one of gVisor's does in most of what it is asked, for the sentry: that may wait for a disk,
// a daemon or a gofer, and not all of it is seen.
func hangs(p *fact.View, t *evidence.ShimTask) bool {
	if fact.UnderGVisor(p) {
		return false
	}
	asked := t.Attempts - t.Excused
	apart := !t.ExcusedAt.IsZero() && t.Asked.Sub(t.ExcusedAt) >= twoRequests
	return (asked >= 3 || asked == 2 && apart) && fact.SilentForLong(p, fact.Latest(t.UnansweredSince, t.ExcusedAt), t.Asked)
}

// twoRequests is how long after a command of the runtime was seen at work two requests are enough: they come minutes apart
// then, and what is begun again is seen beside one of them.
const twoRequests = 5 * time.Minute
