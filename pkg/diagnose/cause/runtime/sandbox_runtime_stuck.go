package runtime

import (
	"cmp"
	"slices"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// sentryFrozen is the family of SandboxRuntimeStuck of which the sentry is frozen, and freezerV1 its
// variant for version 1 of cgroups.
const (
	sentryFrozen = "Frozen"
	freezerV1    = "FreezerV1"
)

// SandboxRuntimeStuck is a pod under gVisor of which the one program cannot run that ends its
// containers.
var SandboxRuntimeStuck = &diagnose.Rule{
	Cause:  "SandboxRuntimeStuck",
	When:   diagnose.InGraceAndAfter,
	Phases: append(slices.Clone(diagnose.WhileProcessesLive), diagnose.Runtime, diagnose.Sandbox),
	Needs:  []evidence.Source{evidence.Processes, evidence.Cgroups, evidence.Containers},
	Doc: diagnose.Doc{
		Layer: "runtime",
		Title: "a process of gVisor cannot run, and the pod's containers cannot end without it",
		Message: "the pod's containers run under {runtimes}, all in one process of the node, {comm} (PID {pid}). {held}. " +
			"Neither the stop signal nor SIGKILL gets to the containers meanwhile: the runtime has this process deliver both",
		Phrases: map[string][]diagnose.Choice{
			"held": {
				{Variant: diagnose.Stopped, Text: "It is stopped by a signal such as SIGSTOP"},
				{Text: "It is frozen, through its control group or one above it"},
			},
			"thaw": {
				{Variant: freezerV1, Text: "echo THAWED > /sys/fs/cgroup/freezer/{cgroup}/freezer.state"},
				{Text: "echo 0 > /sys/fs/cgroup/{cgroup}/cgroup.freeze"},
				{Text: "thaw the control group that /proc/{pid}/cgroup names, or the one above it that is frozen, as cgroup.freeze or freezer.state there shows"},
			},
		},
		Meaning: "gVisor runs the containers of a pod on a kernel that is a program of the node, called runsc-sandbox by ps -ef and exe by the kernel. " +
			"To signal a container the shim runs runsc kill, which asks that program to do it, without a limit of time. When the program does not run, the containers cannot end, not even at the end of the grace period. " +
			"What runs in them gets no further than its next system call. nodeagent does not see it.",
		Evidence: "By containerd's record the runtime is io.containerd.runsc.v1. The process is a child of a shim of the pod, in the pod's control group, and the shim names it as that of the sandbox. " +
			"When the shim does not answer, it is the only such child that has children there, in which it has the containers' programs run; with gVisor's platform KVM it has none, and nothing is said then. " +
			"Two readings three seconds or more apart show that it has not run, and why: " +
			"all its threads are in state T without a tracer, or its control group is frozen.",
		Remedy: "Find out who stopped it. When nobody is at work any more, on the node: {continue}; the containers go on, take the signals that wait for them, and the pod terminates.",
		Danger: "A checkpoint or a debugger may be at work. Do not kill the shim. " +
			"A force delete leaves the process on the node with all that runs in it, unseen, and when somebody continues it, that goes on, perhaps with volumes that another pod has by then.",
		Families: []diagnose.Family{
			{
				Name:    diagnose.Stopped,
				Meaning: "Somebody has sent SIGSTOP to the process.",
			},
			{
				Name: sentryFrozen,
				Meaning: "The kernel's freezer has stopped all processes of the control group, or of one above it. " +
					"With cgroup v2 SIGKILL would end a frozen process, but nobody sends it to this one.",
				Remedy: "Find out who froze it. When nobody is at work any more, on the node: {thaw}; the containers go on, take the signals that wait for them, and the pod terminates.",
			},
		},
	},
	Check: func(p *fact.View) diagnose.Result {
		threads := fact.Sentry(p)
		if len(threads) == 0 || slices.ContainsFunc(threads, func(t *evidence.Task) bool { return t.Killed() || t.Unchanged(p.Time) < fact.LeastStill }) {
			return diagnose.Result{}
		}
		first := threads[0]
		f := diagnose.Finding{Confidence: diagnose.Proved, Objects: diagnose.Objects{
			Process: diagnose.ProcessOf(p, first), Runtimes: []string{fact.RunscV1},
		}}
		group := fact.FrozenGroup(p, first)
		switch {
		// The freezer does not make a state T: this one does not run when it is thawed either.
		case !slices.ContainsFunc(threads, func(t *evidence.Task) bool { return t.State != evidence.Stopped || t.TracerPID != 0 }):
			f.Family = diagnose.Stopped
		case group != nil:
			f.Family, f.Objects.Cgroup = sentryFrozen, cmp.Or(group.FrozenBy, group.Path)
			if group.Version == 1 {
				f.Variants = []string{freezerV1}
			}
		default:
			return diagnose.Result{}
		}
		return diagnose.Found(f)
	},
}
