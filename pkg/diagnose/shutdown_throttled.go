package diagnose

import (
	"fmt"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// The families of ShutdownThrottled: which limit it is.
const (
	familyCPU    = "CPU"
	familyMemory = "Memory"
)

// ShutdownThrottled is a program that cannot end in time because a limit lets
// it do next to nothing.
var ShutdownThrottled = &Rule{
	Cause:  "ShutdownThrottled",
	When:   AtTheEnd,
	Phases: whileProcessesLive,
	Needs:  []evidence.Source{evidence.Processes, evidence.Containers, evidence.Suspects, evidence.Cgroups},
	Doc: Doc{
		Layer: "signal",
		Title: "a limit on processors or memory slows the shutdown down",
		Message: "container {container}: its program {program} (PID {pid} on the node) has taken {signal} but was not done within the grace period of {grace}: {limit}, " +
			"so SIGKILL ended it at {time}",
		Phrases: map[string]string{"limit": "its limit of processors or memory held it down"},
		Meaning: "The program has taken the stop signal and works on its shutdown, but the control group's limit makes it wait nearly all the time.",
		Evidence: "As SlowShutdown, and for half of the grace period or more, up to the last reading, either three of four enforcement periods were throttled (nr_throttled and nr_periods of cpu.stat), " +
			"or the group uses more memory than memory.high and lost more than half of the time to waiting for memory (memory.pressure).",
		Remedy: "Raise the limit of the container; the pod's resources can be changed while it runs (kubectl patch pod --subresource resize).",
		Danger: "What the program had not finished is lost. A shorter grace period or a force delete makes that worse.",
		Families: []Family{
			{Name: familyCPU, Meaning: "The CPU quota (limits.cpu) is used up in nearly every period."},
			{
				Name:    familyMemory,
				Meaning: "The group is above memory.high, and the kernel makes every allocation wait.",
				Remedy:  "Raise memory.high of the container's group (it comes from the kubelet's MemoryQoS feature, or from a tool on the node), or let the program need less memory.",
			},
		},
	},
	Check: func(p *evidence.Pod) []Finding {
		var out []Finding
		for _, fp := range slow(p) {
			s := fp.squeezed(p)
			if s == nil {
				continue
			}
			f := fp.slowFinding(p, "")
			f.Family, f.Confidence = s.family, Inferred
			f.Values["limit"] = s.limit
			out = append(out, f)
		}
		return out
	},
}

// A squeeze is a limit that held a container down for as long as it was asked
// to stop.
type squeeze struct{ family, limit string }

// squeezed finds the limit that held the program down for half of the grace
// period or more, up to the last reading; nil when there is none.
func (fp firstProcess) squeezed(p *evidence.Pod) *squeeze {
	long := func(since time.Time) bool {
		return !since.IsZero() && p.Time.Sub(since) >= max(grace(p)/2, Stuck)
	}
	for i := range p.Cgroups {
		g := &p.Cgroups[i]
		if g.Container != fp.container.ID && g.Container != "" {
			continue
		}
		if c := g.CPU; c != nil && c.Millis > 0 && long(c.ThrottledSince) {
			return &squeeze{familyCPU, fmt.Sprintf("its limit of %s was used up in most periods", processors(c.Millis))}
		}
		if m := g.Memory; m != nil && m.High > 0 && m.Current > m.High && long(m.StalledSince) {
			return &squeeze{familyMemory, fmt.Sprintf("it uses more memory than memory.high, %d MiB, lets it have, and each allocation has to wait", m.High>>20)}
		}
	}
	return nil
}
