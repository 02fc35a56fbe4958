package signal

import (
	"slices"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// The families of ShutdownThrottled: which limit it is.
const (
	familyCPU    = "CPU"
	familyMemory = "Memory"
)

// ShutdownThrottled is a program that cannot end in time because a limit lets
// it do next to nothing.
var ShutdownThrottled = &diagnose.Rule{
	Cause:  "ShutdownThrottled",
	When:   diagnose.WhenGone,
	Phases: diagnose.WhileProcessesLive,
	Needs:  append(slices.Clone(slowSources), evidence.Cgroups),
	Doc: diagnose.Doc{
		Layer: "signal",
		Title: "a limit on processors or memory slows the shutdown down",
		Message: "container {container}: its program {program} (PID {pid} on the node) has taken {signal} but was not done within {within}: " +
			"{limit}, so SIGKILL ended it at {ended}",
		Phrases: map[string][]diagnose.Choice{"limit": {
			{Variant: familyCPU, Text: "its limit of {cpulimit} was used up in most periods"},
			{Variant: familyMemory, Text: "it uses more memory than memory.high, {memoryhigh}, lets it have, and each allocation has to wait"},
			{Text: "its limit of processors or memory held it down"},
		}},
		Meaning: "The program has taken the stop signal and works on its shutdown, but the control group's limit makes it wait nearly all the time.",
		Evidence: "As SlowShutdown, and for half of the grace period or more, up to the last reading, " +
			"either three of four enforcement periods were throttled (nr_throttled and nr_periods of cpu.stat), " +
			"or the group uses more memory than memory.high and lost more than half of the time to waiting for memory (memory.pressure). " +
			"Where the limit is the whole pod's, the container uses more than half of what the pod uses.",
		Remedy: "Raise the limit of the container; from Kubernetes 1.33 on the pod's resources can be changed while it runs (kubectl patch pod --subresource resize).",
		Danger: "What the program had not finished is lost. A shorter grace period or a force delete makes that worse.",
		Families: []diagnose.Family{
			{Name: familyCPU, Meaning: "The CPU quota (limits.cpu) is used up in nearly every period."},
			{
				Name:    familyMemory,
				Meaning: "The group is above memory.high, and the kernel makes every allocation wait.",
				Remedy:  "Raise memory.high of the container's group (it comes from the kubelet's MemoryQoS feature, or from a tool on the node), or let the program need less memory.",
			},
		},
	},
	Check: func(p *fact.View) diagnose.Result {
		var out []diagnose.Finding
		for _, fp := range slow(p) {
			if asked(p, fp).MayPutTrapOff(p) {
				continue
			}
			cpu, memory := squeezed(p, fp)
			f := slowFinding(p, fp)
			f.Confidence = diagnose.Inferred
			switch {
			case cpu != nil:
				f.Family, f.Objects.CPULimitMillis = familyCPU, cpu.Millis
			case memory != nil:
				f.Family, f.Objects.MemoryHigh = familyMemory, memory.High
			default:
				continue
			}
			out = append(out, f)
		}
		return diagnose.Found(out...)
	},
}
