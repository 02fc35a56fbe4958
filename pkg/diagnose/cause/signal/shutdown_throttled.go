package signal

import (
	"slices"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
)

// The families of ShutdownThrottled: which limit it is.
const (
	familyCPU    = "CPU"
	familyMemory = "Memory"
)

// ShutdownThrottled is a program that cannot exit in time because a CPU or
// memory limit slows it down.
var ShutdownThrottled = &diagnose.Rule{
	Cause:  "ShutdownThrottled",
	When:   diagnose.WhenGone,
	Phases: diagnose.WhileProcessesLive,
	Doc: diagnose.Doc{
		Layer:   "signal",
		Title:   "a CPU or memory limit slows the shutdown down",
		Who:     diagnose.ByApp,
		Quiet:   true,
		Message: "container {container}: {quoted}, {limit}, handled {signal} but did not exit within {within}",
		Phrases: map[string][]diagnose.Choice{"limit": {
			{Variant: familyCPU, Text: "mostly throttled by its CPU limit ({cpulimit})"},
			{Variant: familyMemory, Text: "slowed by its memory.high ({memoryhigh})"},
			{Text: "slowed by its CPU or memory limit"},
		}, "shows": {
			{Variant: familyCPU, Text: "For at least half of the grace period, at least three of four periods were throttled (cpu.stat; the limit is {cpulimit})"},
			{Variant: familyMemory, Text: "For at least half of the grace period, it was above memory.high and lost most of the time to " +
				"memory stalls (memory.pressure)"},
			{Text: "The limit slowed it down for at least half of the grace period"},
		}},
		Meaning: "The program has taken the stop signal and works on its shutdown, but the limit of its cgroup makes it wait nearly all the time.",
		Seen: []string{
			"{program} ran as PID {pid} on the node, and handled {signal}",
			"{shows}",
			"The container was killed (exit code 137) at {ended}",
		},
		First:  "nothing now; for the next deletion, raise limits.cpu in the pod template",
		Avoid:  avoidShorter,
		Remedy: "Raise the CPU limit; from Kubernetes 1.33 on also of a running pod (kubectl patch pod --subresource resize).",
		Danger: "A shorter grace period loses more work.",
		Families: []diagnose.Family{
			{Name: familyCPU, Meaning: "The CPU quota (limits.cpu) is used up in nearly every period."},
			{
				Name:    familyMemory,
				Meaning: "The cgroup uses more memory than memory.high, and the kernel makes every allocation wait.",
				First:   "nothing now; for the next deletion, let {program} use less memory, or ask the node admin to raise memory.high",
				Remedy:  "Let the program use less memory, or raise memory.high (set by the kubelet's MemoryQoS or a tool on the node).",
			},
		},
	},
	By: diagnose.By[fact.FirstProcess]{
		From: ofProcesses,
		Of:   fact.FirstProcesses,
		Facts: slices.Concat(unfinished, facts{
			{Says: "The program is no shell that waits for a child from before the deletion: its trap may not have run.",
				Is: diagnose.If(ranTrap), From: ofSuspects},
			{Says: "For half of the grace period or more, up to the last reading, a limit slowed the container down in one of two ways.",
				Is: diagnose.If(limited), From: ofCgroups},
			{Says: "At least three of four enforcement periods of the CPU quota were throttled (nr_throttled and nr_periods in cpu.stat)."},
			{Says: "Or the cgroup used more memory than memory.high, and lost more than half of the time to waiting for memory (memory.pressure)."},
			{Says: "If the limit is the whole pod's, the container used more than half of what the pod used."},
			{Says: "It is always inferred that the limit is what made the shutdown take too long."},
		}),
		Tell: diagnose.Each(tellThrottled),
	},
}

func ranTrap(p *fact.View, fp fact.FirstProcess) bool { return !asked(p, fp).MayPutTrapOff(p) }

func limited(p *fact.View, fp fact.FirstProcess) bool {
	cpu, memory := squeezed(p, fp)
	return cpu != nil || memory != nil
}

func tellThrottled(p *fact.View, fp fact.FirstProcess) diagnose.Finding {
	cpu, memory := squeezed(p, fp)
	f := slowFinding(p, fp)
	f.Confidence = diagnose.Inferred
	if cpu != nil {
		f.Family, f.Objects.CPULimitMillis = familyCPU, cpu.Millis
	} else {
		f.Family, f.Objects.MemoryHigh = familyMemory, memory.High
	}
	return f
}
