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
	By: diagnose.Ways{
		diagnose.By[*evidence.Task]{
			Title: "While the shim is stopped (family Stopped)",
			From:  []evidence.Source{evidence.Containers}, Partly: []evidence.Source{evidence.Processes},
			Of: fact.Shims,
			Facts: []diagnose.Fact[*evidence.Task]{
				{Says: "The shim is in state T. A signal has stopped it, so it cannot respond. This alone is proof.", Is: diagnose.If(inStateT)},
				{Says: "It has no tracer.", Is: diagnose.If(isNotTraced)},
				{Says: "Two readings show the same.", Is: stoppedForLong},
				{
					Says: "It is the only shim of the pod. Or, if the pod seems to have several, as under gVisor, a request about one of its containers " +
						"has had no response.",
					Pod: diagnose.IfPodLater(onlyShimOrSilent, diagnose.Slow),
				},
				{Says: "containerd responds to other requests.", Pod: diagnose.IfPodLater(containerdNotSilent, diagnose.Slow)},
			},
			Tell: diagnose.First(tellStoppedShim),
		},
		diagnose.By[*evidence.Container]{
			Title: "While the shim is not stopped",
			From:  []evidence.Source{evidence.Containers}, Partly: []evidence.Source{evidence.Processes, evidence.RuntimeCommands},
			Of: containers,
			Facts: []diagnose.Fact[*evidence.Container]{
				{Says: "A request for the state of the container's task has had no response within two seconds.", Is: diagnose.If(isUnanswered)},
				{Says: "No shim of the pod is found to be stopped.", Pod: diagnose.IfPod(noneStopped)},
				{Says: "The shim is not one of gVisor's. Such a shim waits for the process that is the containers' kernel, and what that waits for is not seen.",
					Pod: notUnderGVisor},
				{Says: "Three such requests have had no response. Two are enough if the last one came five minutes after one that is not counted.",
					Is: unansweredOften},
				{Says: "They came over " + fact.Answer.String() + ".", Is: unansweredLongEnough},
				{Says: "The shim's process exists.", Pod: shimExists},
				{Says: "containerd responds to other requests.", Pod: diagnose.IfPodLater(containerdNotSilent, diagnose.Slow)},
				{Says: "Requests made while a runtime command was running, or while that could not be checked, are not counted. Nor are earlier ones."},
				{Says: "Fewer requests prove nothing: a shim holds its lock while runc kills or deletes a container, which takes seconds on a busy node."},
				{Says: "Inferred: that the shim hangs, and does not wait for something else."},
			},
			Tell: tellSilentShim,
		},
	},
}

func inStateT(_ *fact.View, shim *evidence.Task) bool { return shim.State == evidence.Stopped }

// onlyShimOrSilent reports whether a stopped shim is the pod's. Of several, one may be another pod's: a process of that pod has come into this
// pod's cgroup.
func onlyShimOrSilent(p *fact.View) bool {
	return len(fact.Shims(p)) == 1 || len(silentContainers(p)) > 0
}

// containerdNotSilent answers whether containerd responds: without that, none of a shim is seen.
func containerdNotSilent(p *fact.View) bool {
	c := &p.Node.Containerd
	return c.UnansweredSince.IsZero() && !c.Refused
}

func tellStoppedShim(p *fact.View, shim *evidence.Task) diagnose.Finding {
	f := diagnose.Finding{Family: diagnose.Stopped, Confidence: diagnose.Proved, Objects: diagnose.Objects{Process: diagnose.ProcessOf(p, shim)}}
	aboutSilent(p, &f)
	return f
}

func silentContainers(p *fact.View) []*evidence.Container {
	return containersThat(p, func(c *evidence.Container) bool { return isUnanswered(p, c) })
}

func isUnanswered(_ *fact.View, c *evidence.Container) bool { return !c.Task.UnansweredSince.IsZero() }

func noneStopped(p *fact.View) bool {
	return !onlyShimOrSilent(p) || !slices.ContainsFunc(fact.Shims(p), func(s *evidence.Task) bool {
		return inStateT(p, s) && isNotTraced(p, s) && stoppedForLong(p, s).Yes()
	})
}

// whenAsked returns the Holding of what holds, and else of what the next requests to a shim show that has not responded, but not for long enough
// yet. Soon after the deadline, a shim that does not respond says nothing: it works.
func whenAsked(p *fact.View, holds bool) diagnose.Holding {
	if p.Overdue() < fact.UnknownAfter {
		return diagnose.IsOr(holds, diagnose.Seen(p, diagnose.Moves))
	}
	return diagnose.IsOr(holds, diagnose.Waits(fact.Latest(p.Deadline, fact.Unchanged(p)), fact.ShimPatience(p), diagnose.Slow))
}

// notUnderGVisor answers whether missing responses show by themselves that the shim hangs. A shim of gVisor waits for the sentry in most
// requests. The sentry may wait for a disk, a daemon or a gofer, and not all of that is seen.
func notUnderGVisor(p *fact.View) diagnose.Holding { return whenAsked(p, !fact.UnderGVisor(p)) }

// unansweredOften and unansweredLongEnough answer whether a shim cannot merely wait for a runtime command.
func unansweredOften(p *fact.View, c *evidence.Container) diagnose.Holding {
	t := &c.Task
	asked := t.Attempts - t.ExcusedAttempts
	apart := !t.ExcusedAt.IsZero() && t.Asked.Sub(t.ExcusedAt) >= twoRequests
	return whenAsked(p, asked >= 3 || asked == 2 && apart)
}

func unansweredLongEnough(p *fact.View, c *evidence.Container) diagnose.Holding {
	return whenAsked(p, fact.SilentForLong(p, fact.Latest(c.Task.UnansweredSince, c.Task.ExcusedAt), c.Task.Asked))
}

// shimExists answers whether a process of a shim is seen. Without one, the shim is dead or of another kind.
func shimExists(p *fact.View) diagnose.Holding { return whenAsked(p, len(fact.Shims(p)) > 0) }

// tellSilentShim names the shim if it is the only one: of several, it is not known which one does not respond.
func tellSilentShim(p *fact.View, _ []*evidence.Container) []diagnose.Finding {
	f := diagnose.Finding{Confidence: diagnose.Inferred}
	if shims := fact.Shims(p); len(shims) == 1 {
		f.Objects.Process = diagnose.ProcessOf(p, shims[0])
	}
	aboutSilent(p, &f)
	if f.Objects.Process != nil && mayEnd(p) {
		f.Variants = append(f.Variants, endable)
	}
	return []diagnose.Finding{f}
}

// aboutSilent completes a finding with the containers about which no shim responds.
func aboutSilent(p *fact.View, f *diagnose.Finding) {
	for _, c := range silentContainers(p) {
		if c.Kind == evidence.Sandbox {
			f.Variants = []string{silentSandbox}
		} else {
			f.Objects.Containers = append(f.Objects.Containers, c.Name)
		}
	}
}

// twoRequests is how long after a runtime command was seen at work two requests are enough. They come minutes apart then,
// and a command that is started again is seen during one of them.
const twoRequests = 5 * time.Minute
