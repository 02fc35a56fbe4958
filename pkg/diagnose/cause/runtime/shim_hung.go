package runtime

import (
	"slices"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// silentSandbox is the variant of ShimHung where the shim does not respond about the
// pod's sandbox.
const silentSandbox = "Sandbox"

// endable is the variant of what to do about a shim that may be killed: containerd then has its containers ended by runc delete --force
// (cleanupAfterDeadShim, core/runtime/v2/shim.go), for which it takes five seconds, and publishes their exits. A process that the kernel cannot
// end, or a runc that is at work, would outlast that, and an exit be recorded that was none.
const endable = "Endable"

// mayEnd reports whether nothing of a pod whose time is over is seen that would outlast the end of its shim.
func mayEnd(p *fact.View) bool {
	outlasts := func(t evidence.Task) bool {
		return t.State == evidence.Uninterruptible && t.Unchanged(p.Time) >= fact.LeastStill || fact.Dying(&t)
	}
	return p.Kill.Done && !p.Mirror && endsContainers(p.Node.Containerd.Version) && len(p.RuntimeCommands) == 0 &&
		!fact.Missing(p, evidence.Processes, evidence.RuntimeCommands) && !slices.ContainsFunc(p.Tasks, outlasts)
}

// endsContainers reports whether containerd ends the containers of a shim that has ended. Versions 2.0 to 2.3 do so for the sandbox only
// (ShimManager.Start, core/runtime/v2/shim_manager.go; containerd#13309).
func endsContainers(version string) bool {
	v, ok := parseVersion(version)
	return ok && (v[0] == 1 || slices.Compare(v[:], []int{2, 4, 0}) >= 0)
}

// The first step about a shim that does not respond: about one that may be ended, and about any other. Fix has the command that lists its children.
const (
	runcOrEnd = "on the node, as root: run ps as in Fix. If runc (crun), an exec or state D shows, leave the shim. " +
		"If not, with the app owner's OK: end the shim as Fix says (SIGKILL for its containers)"
	runcOrSave = "on the node, as root: run ps as in Fix. If runc (crun) or an exec shows, repair what it waits for (WCHAN). " +
		"If not: save the dump (Fix)"
)

// resumes is the first step about a process of the runtime that a signal has stopped.
const resumes = "on the node, as root, unless it was paused on purpose: {continue}"

// endShim is what a remedy says of the end of a shim.
const endShim = "Then end the shim: {kill}. containerd then ends its containers (runc delete --force), and their exit codes and last output are lost"

// keepShim is the danger of it.
var keepShim = []diagnose.Choice{
	{Variant: endable, Text: "Do not end the shim while a process of the pod is in D state, or a runc of it runs. " +
		"containerd waits five seconds for runc, then records an exit that did not happen. " +
		"From then on, only the pod's cgroup shows whether it still runs. What still runs gets SIGKILL without having been asked to stop. "},
	{Text: "Do not kill the shim: that loses the exit codes and the output of all containers of the pod. " +
		"Versions 2.0 to 2.3 of containerd do not end their processes then. "},
}

// ShimHung is a shim that is alive but does not respond to containerd.
var ShimHung = &diagnose.Rule{
	Cause:  "ShimHung",
	Phases: []diagnose.Phase{diagnose.StopSignal, diagnose.Kill, diagnose.Runtime, diagnose.Sandbox, diagnose.PhaseUnknown},
	Needs:  []evidence.Source{evidence.Containers},
	Partly: []evidence.Source{evidence.Processes, evidence.RuntimeCommands},
	Doc: diagnose.Doc{
		Layer:   "runtime",
		Title:   "the pod's shim is alive but does not respond to containerd",
		Who:     diagnose.ByNode,
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
			"first": {
				{Variant: endable, Text: runcOrEnd},
				{Text: runcOrSave},
			},
			"keep": keepShim,
			"avoid": {
				{Variant: endable, Text: "restarting containerd (ends the containers)"},
				{Text: "restarting containerd (kills containers), killing the shim"},
			},
			"last": {
				{Variant: endable, Text: endShim},
				{Text: "Then drain the node and reboot it; kubectl drain with --skip-wait-for-delete-timeout=60 does not wait for this pod"},
			},
			"save":     {{Text: "{dump}"}, {Text: "send SIGUSR1 to the pod's shims"}},
			"children": {{Text: "ps -o pid,ppid,stat,wchan:30,comm --ppid {pid} -p {pid}"}, {Text: "ps -eo pid,ppid,stat,wchan:30,comm --forest"}},
		},
		Meaning: "Each pod has a shim, a small process that starts, signals and reaps its containers for containerd. When it hangs, the stop request " +
			"never reaches the container, or its exit is never seen. containerd does not end a hung shim by itself.",
		Evidence: []string{
			"Family Stopped: the shim is in state T in two readings. A signal has stopped it, so it cannot respond. This alone is proof.",
			"If the pod seems to have several shims, as under gVisor, a request about one of its containers must also have no response.",
			"In all other cases it is inferred. The shim's process exists, and containerd responds to other requests.",
			"Three requests for a task's state, over " + fact.Answer.String() + ", had no response within two seconds each. Fewer prove nothing: a shim holds its " +
				"lock while runc kills or deletes a container, which takes seconds on a busy node.",
			"Requests made while a runtime command was running, or while that could not be checked, are not counted. Nor are earlier ones.",
			"After such a request, two requests are enough if the last one comes five minutes later.",
			"Not reported under gVisor unless the shim is stopped. There, a shim waits for the process that is the containers' kernel, and what " +
				"that waits for is not seen.",
		},
		Seen:  []string{"{saw}", "containerd itself responds"},
		First: "{first}",
		Avoid: "{avoid}",
		Remedy: "On the node: {children} shows the shim's children. A hung runc there is the cause: the shim resumes when it returns. " +
			"Without such a child, save a goroutine dump, which goes to containerd's log: {save}. " +
			"{last}.",
		Danger: "{keep}Do not remove its directory below /run/containerd. " +
			"Do not restart containerd: it gives each shim five seconds as it starts, then kills the containers (containerd 2.4). " +
			"A force delete leaves the containers running with no API object tracking them.",
		Families: []diagnose.Family{{
			Name:    diagnose.Stopped,
			Who:     diagnose.ByNode,
			Meaning: "The shim's process is stopped: a user or a program sent it SIGSTOP.",
			First:   resumes,
			Remedy:  "On the node: {continue}. The shim resumes immediately, and the pod terminates. Then find out who stopped it.",
		}},
	},
	Check: func(p *fact.View) diagnose.Result {
		return diagnose.Result{Found: silentShims(p), Open: shimsOpen(p)}
	},
}

// shimsOpen returns until when it is open whether a shim hangs that has not responded, but not for long enough yet.
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
		return nil // without a response from containerd, none from a shim is seen
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
	case stopped >= 0 && (len(shims) == 1 || len(silent) > 0): // of several, one may be another pod's: a process of that pod has come into this pod's cgroup
		f.Family, f.Confidence, f.Objects.Process = diagnose.Stopped, diagnose.Proved, diagnose.ProcessOf(p, shims[stopped])
	case len(shims) == 0 || !slices.ContainsFunc(silent, func(c evidence.Container) bool { return hangs(p, &c.Task) }):
		return nil // without a process, the shim is dead or of another kind
	case len(shims) == 1: // of several, it is not known which one does not respond
		f.Objects.Process = diagnose.ProcessOf(p, shims[0])
	}
	for i := range silent {
		if silent[i].Kind == evidence.Sandbox {
			f.Variants = []string{silentSandbox}
		} else {
			f.Objects.Containers = append(f.Objects.Containers, silent[i].Name)
		}
	}
	if f.Family == "" && f.Objects.Process != nil && mayEnd(p) {
		f.Variants = append(f.Variants, endable)
	}
	return []diagnose.Finding{f}
}

// hangs reports whether the missing responses about a container show by themselves that the shim hangs: it cannot merely
// wait for a runtime command. A shim of gVisor waits for the sentry in most requests. The sentry may wait for a disk, a
// daemon or a gofer, and not all of that is seen.
func hangs(p *fact.View, t *evidence.ShimTask) bool {
	if fact.UnderGVisor(p) {
		return false
	}
	asked := t.Attempts - t.ExcusedAttempts
	apart := !t.ExcusedAt.IsZero() && t.Asked.Sub(t.ExcusedAt) >= twoRequests
	return (asked >= 3 || asked == 2 && apart) && fact.SilentForLong(p, fact.Latest(t.UnansweredSince, t.ExcusedAt), t.Asked)
}

// twoRequests is how long after a runtime command was seen at work two requests are enough. They come minutes apart then,
// and a command that is started again is seen during one of them.
const twoRequests = 5 * time.Minute
