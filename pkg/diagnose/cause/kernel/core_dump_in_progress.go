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
	Needs:  []evidence.Source{evidence.Processes},
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
		Evidence: []string{
			"CoreDumping in /proc/PID/status is 1 past the deadline.",
			"When the pod is gone: CoreDumping was 1 when the pod was last seen, before it was killed at the deadline.",
			"/proc/sys/kernel/core_pattern names the file, or the program that takes the dump.",
			"Not reported for a process that was executed in the container (kubectl exec): the container does not wait for it.",
		},
		Remedy: "{calm}" +
			"Find out why {comm} crashes while the pod stops. Then send core dumps to faster storage, make them smaller (LimitCORE= of containerd's unit, " +
			"ulimit -c in the image's entrypoint), or give the pod a longer terminationGracePeriodSeconds.",
		Danger: "Do not rely on a core dump that SIGKILL cut off: it is incomplete. A force delete does not speed this up.",
		Quiet:  true,
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
