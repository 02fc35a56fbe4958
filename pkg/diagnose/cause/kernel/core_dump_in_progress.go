package kernel

import (
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// dumpOverdue is how far past the deadline the grace period is over for certain:
// the kubelet counts from when it was told of the deletion, so it kills a little
// later than the deadline.
const dumpOverdue = 2 * time.Second

// CoreDumpInProgress is a process that has crashed and writes its memory.
var CoreDumpInProgress = &diagnose.Rule{
	Cause:  "CoreDumpInProgress",
	When:   diagnose.AtTheEnd,
	Phases: diagnose.WhileProcessesLive,
	Needs:  []evidence.Source{evidence.Processes},
	Doc: diagnose.Doc{
		Layer:   "kernel",
		Title:   "a process has crashed and its core dump takes longer than the grace period",
		Message: "{where}process {comm} (PID {pid} on the node) {crashed} its core dump to {file} {when}",
		Phrases: map[string][]diagnose.Choice{
			"crashed": {{Variant: diagnose.Gone, Text: "had crashed and was writing"}, {Text: "has crashed and is writing"}},
			"file":    {{Text: "{target}"}, {Text: "where core_pattern says"}},
			"when":    {{Variant: diagnose.Gone, Text: "when the grace period was over and SIGKILL ended it"}, {Text: "past the end of the grace period"}},
		},
		Meaning: "The process got a signal that ends it with a core dump, and the kernel writes its memory to a file or hands it to a program. " +
			"Until that is done the process does not exit. SIGKILL ends the dump, which is then not whole.",
		Evidence: "CoreDumping in /proc/PID/status is 1 past the deadline, or was when the pod was last seen before it was killed at the deadline. " +
			"A process that was executed in the container (kubectl exec) does not count: the container does not wait for it. " +
			"/proc/sys/kernel/core_pattern names the file or the program.",
		Remedy: "Nothing on the node is broken. " +
			"Find out why the program crashes when it is asked to stop; let core dumps go to faster storage, make them smaller (ulimit -c, /proc/PID/coredump_filter), " +
			"or give the pod a longer terminationGracePeriodSeconds.",
		Danger: "The core dump that was cut off is not whole. A force delete does not speed this up.",
	},
	Check: func(p *fact.View) diagnose.Result {
		if p.Mirror || !p.Gone && (!p.Kill.Known || p.Overdue() < dumpOverdue || p.Overdue() > fact.UnknownAfter) {
			return diagnose.Result{}
		}
		seen := make(map[int]bool)
		var out []diagnose.Finding
		for i := range p.Tasks {
			t := &p.Tasks[i]
			c, ok := p.Container(t.Container)
			if !t.CoreDumping || seen[t.PID] || p.Gone && (!ok || !fact.EndedAtDeadline(p, c)) || ok && fact.Executed(p, c, t) {
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
		return diagnose.Found(out...)
	},
}
