package runtime

import (
	"cmp"
	"slices"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// sentryFrozen is the family of SandboxRuntimeStuck of which the sentry is frozen, and freezerV1 its
// variant for version 1 of cgroups. goferStopped is the family of which another program of gVisor's is
// stopped, which the sentry waits for, and severalGofers its variant for more than one of them.
const (
	sentryFrozen = "Frozen"
	freezerV1    = "FreezerV1"
	goferStopped = "GoferStopped"

	severalGofers = "SeveralGofers"
)

// How long a shim must have been silent about a container before a gofer that is stopped is said to be why. On a node
// that is short of something a runsc kill that nothing holds up takes seconds too.
const (
	goferPatience        = fact.SlowDevice
	goferPatienceStarved = 40 * time.Second
)

// maxNamedGofers is how many gofers that are stopped are named besides the first one: a container has one.
const maxNamedGofers = 7

// SandboxRuntimeStuck is a pod under gVisor of which the one program cannot run that ends its
// containers, or one for which that waits.
var SandboxRuntimeStuck = &diagnose.Rule{
	Cause:  "SandboxRuntimeStuck",
	When:   diagnose.InGraceAndAfter,
	Phases: append(slices.Clone(diagnose.WhileProcessesLive), diagnose.Runtime, diagnose.Sandbox),
	Needs:  []evidence.Source{evidence.Processes, evidence.Cgroups, evidence.Containers},
	Doc: diagnose.Doc{
		Layer:   "runtime",
		Title:   "a process of gVisor cannot run, and the pod's containers cannot end without it",
		Message: "the pod's containers run under {runtimes}, {which}, {comm} (PID {pid}). {held}. {then}",
		Phrases: map[string][]diagnose.Choice{
			"which": {
				{Variant: goferStopped, Text: "which has a process of the node open files for a container"},
				{Text: "all in one process of the node"},
			},
			"then": {
				{Variant: goferStopped, Text: "A program of the container most likely waits for it, and SIGKILL does not end that program before it is answered"},
				{Text: "Neither the stop signal nor SIGKILL gets to the containers meanwhile: the runtime has this process deliver both"},
			},
			"held": {
				{Variant: severalGofers, Text: "It is stopped by a signal such as SIGSTOP, and so is {also}"},
				{Variant: goferStopped, Text: "It is stopped by a signal such as SIGSTOP"},
				{Variant: diagnose.Stopped, Text: "It is stopped by a signal such as SIGSTOP"},
				{Text: "It is frozen, through its control group or one above it"},
			},
			"others": {{Variant: severalGofers, Text: "Do the same with {also}. "}, {Text: ""}},
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
			"Two readings three seconds or more apart show that it has not run, and why: all its threads are in state T without a tracer, or its control group is frozen. " +
			"A process that opens files (GoferStopped) is a child, without children, of another shim of the pod, and all its threads are in state T. It is inferred, ten seconds after the deadline or later, while the process that is the kernel runs, and no thread of gVisor's waits in the kernel: " +
			"a shim of the pod has not answered three requests about a container in ten seconds or more, or four in forty on a node short of processors, memory or I/O (/proc/pressure).",
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
			{
				Name: goferStopped,
				Meaning: "Somebody has sent SIGSTOP to a process that opens files for the containers (runsc-gofer in ps -ef). " +
					"With gVisor's flag directfs=false it is asked for whatever a program does with names of files and what is known of them, and the answer is waited for without a limit of time. " +
					"To kill a container gVisor halts all programs of the pod first, and so waits for the one that waits. " +
					"With directfs, which is the default, and of a program that asks for no file, such a process holds nothing up.",
				Remedy: "Find out who stopped it. When nobody is at work any more, on the node: {continue}. {others}The program gets its answer and the signal that waits for it, and the pod terminates.",
			},
		},
	},
	Check: func(p *evidence.Pod) []diagnose.Finding {
		threads := fact.Sentry(p)
		if gofers := stoppedGofers(p, threads); len(gofers) > 0 {
			f := diagnose.Finding{Family: goferStopped, Confidence: diagnose.Inferred, Objects: diagnose.Objects{
				Process: diagnose.ProcessOf(p, gofers[0]), Runtimes: []string{fact.RunscV1}, Alike: len(gofers) - 1,
			}}
			for _, g := range gofers[1:min(len(gofers), 1+maxNamedGofers)] {
				f.Objects.Others, f.Variants = append(f.Objects.Others, diagnose.ProcessOf(p, g)), []string{severalGofers}
			}
			return []diagnose.Finding{f}
		}
		if len(threads) == 0 || slices.ContainsFunc(threads, func(t *evidence.Task) bool { return t.Killed() || t.Unchanged(p.Time) < fact.Stuck }) {
			return nil
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
			return nil
		}
		return []diagnose.Finding{f}
	},
}

// stoppedGofers returns the processes that open files for the sentry, of which the threads are given, and that are stopped, where the
// pod shows that one is waited for: a shim waits for a command to the sentry, which runs. That of the sandbox has nothing
// to do for the containers: the shim that has started the sentry has started it too.
func stoppedGofers(p *evidence.Pod, sentry []*evidence.Task) []*evidence.Task {
	if len(sentry) == 0 || fact.FrozenGroup(p, sentry[0]) != nil || !fact.KilledByNow(p) || mayWaitForSentry(p) ||
		!slices.ContainsFunc(sentry, func(t *evidence.Task) bool { return !fact.Halted(t) }) {
		return nil
	}
	patience := goferPatience
	if p.Node.Pressure == nil || fact.Starved(p) {
		patience = goferPatienceStarved
	}
	if !slices.ContainsFunc(p.Containers, func(c evidence.Container) bool {
		return c.Kind != evidence.Sandbox && !c.Task.UnansweredSince.IsZero() && c.Task.Asked.Sub(c.Task.UnansweredSince) >= patience
	}) {
		return nil
	}
	return slices.DeleteFunc(fact.Gofers(p, sentry[0]), func(gofer *evidence.Task) bool {
		return gofer.PPID == sentry[0].PPID || slices.ContainsFunc(p.Tasks, func(t evidence.Task) bool {
			return t.PID == gofer.PID && (t.State != evidence.Stopped || t.TracerPID != 0 || t.Killed() || t.Unchanged(p.Time) < fact.Stuck)
		})
	})
}
