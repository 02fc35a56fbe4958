package kernel

import (
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// dumpOverdue is how far past the deadline the grace period is over for certain. The kubelet counts it from when it receives the deletion,
// so it kills a little later than the deadline.
const dumpOverdue = 2 * time.Second

// CoreDumpInProgress is a process that has crashed and writes its memory.
var CoreDumpInProgress = &diagnose.Rule{
	Cause:  "CoreDumpInProgress",
	When:   diagnose.AtTheEnd,
	Phases: diagnose.WhileProcessesLive,
	Doc: diagnose.Doc{
		Layer:   "kernel",
		Title:   "a crashed process dumps core past the grace period",
		Who:     diagnose.ByApp,
		Message: "{where}{comm} (PID {pid} on the node) crashed; {dumps}",
		Seen: []string{
			"Process {pid} ({comm}) {dumped} CoreDumping: 1 in /proc/{pid}/status",
			"core_pattern sends core dumps to {target}",
		},
		First: "nothing now. Next time, kubectl logs -f may show why {comm} crashes. A longer terminationGracePeriodSeconds lets the " +
			"dump finish",
		Avoid: "{useless}",
		Phrases: map[string][]diagnose.Choice{
			"calm": {{Variant: diagnose.Gone, Text: ""}, {Text: "Nothing is broken. "}},
			"dumps": {
				{Variant: diagnose.Gone, Text: "SIGKILL at the end of the grace period cut off its core dump to {file}"},
				{Text: "it is still writing its core dump to {file} past the grace period. SIGKILL ends that"},
			},
			"file":    {{Text: "{target}"}, {Text: "the target in core_pattern"}},
			"useless": {{Variant: diagnose.Gone, Text: "trusting this core dump (incomplete)"}, {Text: "a force delete (no faster)"}},
			"dumped":  {{Variant: diagnose.Gone, Text: "last showed"}, {Text: "shows"}},
		},
		Meaning: "The process got a signal that ends it with a core dump. The kernel writes its memory to a file or hands it to a program. " +
			"The process does not exit until that is done. SIGKILL ends the dump, which is then incomplete.",
		Remedy: "{calm}" +
			"Find out why {comm} crashes while the pod stops. Then send core dumps to faster storage, make them smaller (LimitCORE= of containerd's unit, " +
			"ulimit -c in the image's entrypoint), or give the pod a longer terminationGracePeriodSeconds.",
		Danger: "Do not rely on a core dump that SIGKILL cut off: it is incomplete. A force delete does not speed this up.",
		Quiet:  true,
	},
	By: diagnose.By[*evidence.Task]{
		From: []evidence.Source{evidence.Processes},
		Of:   threads,
		Facts: []diagnose.Fact[*evidence.Task]{
			{Says: "CoreDumping in /proc/PID/status is 1. When the pod is gone, it was 1 in the last reading of the pod.", Is: diagnose.If(dumps)},
			{Says: "The process is not one that was executed in the container (kubectl exec): the container does not wait for that.",
				Is: diagnose.If(isNotExecuted), Partly: []evidence.Source{evidence.Shims}},
			{Says: "The pod is no static pod: the deletion of its mirror pod does not end it.", Pod: diagnose.IfPod(isNotMirror)},
			{Says: "The kubelet keeps to the pod's deadline, as far as is seen.", Pod: diagnose.IfPod(deadlineKnown)},
			{Says: "While the pod is there, its deadline passed two seconds ago or more.", Pod: pastDeadline},
			{Says: "While the pod is there, its deadline passed a minute ago or less: SIGKILL ends a dump.", Pod: diagnose.IfPod(killIsNear)},
			{Says: "When the pod is gone, the container was seen shortly before the deadline, and was killed at the deadline.",
				Is: diagnose.If(endedAtDeadline), Partly: []evidence.Source{evidence.Containers}},
			{Says: "/proc/sys/kernel/core_pattern names the file, or the program that takes the dump."},
		},
		Tell: tellDumps,
	},
}

// threads returns all of the pod.
func threads(p *fact.View) []*evidence.Task { return all(p.Tasks) }

// all returns pointers to tasks.
func all(tasks []evidence.Task) []*evidence.Task {
	out := make([]*evidence.Task, 0, len(tasks))
	for i := range tasks {
		out = append(out, &tasks[i])
	}
	return out
}

func dumps(_ *fact.View, t *evidence.Task) bool { return t.CoreDumping }

// executed reports whether a process is, or comes from, one that was executed in a container,
// as by kubectl exec: the end of the first process ends it, and does not wait for it.
func executed(p *fact.View, c *evidence.Container, t *evidence.Task) bool {
	first, shims := fact.FirstLeader(p, c), fact.Shims(p)
	if first == nil || len(shims) == 0 {
		return false
	}
	pid, parent := t.PID, t.PPID
	for range p.Tasks { // no more than there are, whatever they say
		if pid == first.PID {
			return false
		}
		if parent == shims[0].PID {
			return true
		}
		up, inside := fact.ByID(p, parent)
		if up == nil || !inside {
			return false
		}
		pid, parent = up.PID, up.PPID
	}
	return false
}

func isNotExecuted(p *fact.View, t *evidence.Task) bool {
	c, ok := p.Container(t.Container)
	return !ok || !executed(p, c, t)
}

func isNotMirror(p *fact.View) bool { return !p.Mirror }

func deadlineKnown(p *fact.View) bool { return p.Kill.Known }

func pastDeadline(p *fact.View) diagnose.Holding {
	return diagnose.Or(diagnose.Is(p.Gone), diagnose.Lasted(p, p.Deadline, dumpOverdue, diagnose.Late))
}

func killIsNear(p *fact.View) bool { return p.Gone || p.Overdue() <= fact.UnknownAfter }

func endedAtDeadline(p *fact.View, t *evidence.Task) bool {
	c, ok := p.Container(t.Container)
	return !p.Gone || ok && fact.EndedAtDeadline(p, c)
}

// tellDumps tells of the first thread of each process.
func tellDumps(p *fact.View, found []*evidence.Task) []diagnose.Finding {
	seen := make(map[int]bool)
	var out []diagnose.Finding
	for _, t := range found {
		if seen[t.PID] {
			continue
		}
		seen[t.PID] = true
		f := diagnose.Finding{Container: p.ContainerName(t), Confidence: diagnose.Proved, Objects: diagnose.Objects{
			Process: diagnose.ProcessOf(p, t), CorePattern: p.Node.CorePattern,
		}}
		if p.Gone {
			f.Variants = []string{diagnose.Gone}
		}
		out = append(out, f)
	}
	return out
}
