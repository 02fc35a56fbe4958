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
//
// A gofer that is stopped holds nothing up, unless runsc's flag directfs is off. That is not looked for, and neither is
// a wait for a FUSE daemon: such a pod is Unknown.
var SandboxRuntimeStuck = &diagnose.Rule{
	Cause:  "SandboxRuntimeStuck",
	When:   diagnose.InGraceAndAfter,
	Phases: append(slices.Clone(diagnose.WhileProcessesLive), diagnose.Runtime, diagnose.Sandbox),
	Needs:  []evidence.Source{evidence.Processes, evidence.Cgroups, evidence.Containers},
	Doc: diagnose.Doc{
		Layer:   "runtime",
		Title:   "gVisor's sandbox process is stopped or frozen",
		Message: "gVisor's process {comm} (PID {pid}) is {held}, so no signal, not even SIGKILL, reaches the pod's containers",
		Phrases: map[string][]diagnose.Choice{
			"held": {
				{Variant: diagnose.Stopped, Text: "paused (SIGSTOP or similar)"},
				{Text: "frozen (its cgroup or one above)"},
			},
			"saw": {
				{Variant: diagnose.Stopped, Text: "All threads of {comm} (PID {pid}) are in state T without a tracer"},
				{Text: "Cgroup {cgroup}, of {comm} (PID {pid}) or above, is frozen"},
				{Text: "The cgroup of {comm} (PID {pid}), or one above it, is frozen"},
			},
			"thaw": {
				{Variant: freezerV1, Text: "echo THAWED > /sys/fs/cgroup/freezer/{cgroup}/freezer.state"},
				{Text: "echo 0 > /sys/fs/cgroup/{cgroup}/cgroup.freeze"},
				{Text: "thaw the cgroup in /proc/{pid}/cgroup, or the frozen one above it (cgroup.freeze or freezer.state)"},
			},
		},
		Meaning: "gVisor runs the containers of a pod on a kernel that is a program of the node, called runsc-sandbox by ps -ef and exe by the kernel. " +
			"To signal a container the shim runs runsc kill, which asks that program to do it, without a limit of time. When the program does not run, the containers cannot end, not even at the end of the grace period. " +
			"What runs in them gets no further than its next system call. nodeagent does not see it.",
		Evidence: []string{"By containerd's record the runtime is io.containerd.runsc.v1. The process is a child of a shim of the pod, in the pod's control group, and the shim names it as that of the sandbox. " +
			"When the shim does not answer, it is the only such child that has children there, in which it has the containers' programs run; with gVisor's platform KVM it has none, and nothing is said then. " +
			"Two readings three seconds or more apart show that it has not run, and why: " +
			"all its threads are in state T without a tracer, or its control group is frozen."},
		Seen:  []string{"{saw}", "It runs all containers of the pod, under {runtimes}"},
		First: "ask who stopped it; then resume it, on the node: {continue}",
		Avoid: "doing so during a checkpoint; killing the shim",
		Remedy: "Find out who stopped the process. When no checkpoint or debugger works on it any more, on the node: {continue}. " +
			"The containers resume, receive their pending signals, and the pod terminates.",
		Danger: "Do not continue it while a checkpoint or a debugger works on it. " +
			"Do not kill the shim: that loses the exit codes and the output of the pod's containers. " +
			"A force delete leaves the process and all it runs on the node, with no API object tracking it. " +
			"If it is continued later, its programs resume, perhaps on volumes that another pod uses by then.",
		Families: []diagnose.Family{
			{
				Name:    diagnose.Stopped,
				Meaning: "Somebody has sent SIGSTOP to the process.",
			},
			{
				Name: sentryFrozen,
				Meaning: "The kernel's freezer has stopped all processes of the control group, or of one above it. " +
					"With cgroup v2 SIGKILL would end a frozen process, but nobody sends it to this one.",
				First: "ask who froze it; then on the node: {thaw}",
				Remedy: "Find out who froze the cgroup. When no checkpoint or debugger works on it any more, on the node: {thaw}. " +
					"The containers resume, receive their pending signals, and the pod terminates.",
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
