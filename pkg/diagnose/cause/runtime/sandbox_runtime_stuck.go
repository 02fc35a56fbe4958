package runtime

import (
	"cmp"
	"slices"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// sentryFrozen is the family of SandboxRuntimeStuck whose sentry is frozen, and freezerV1 its variant for cgroup v1.
const (
	sentryFrozen = "Frozen"
	freezerV1    = "FreezerV1"
)

// SandboxRuntimeStuck is a pod under gVisor whose sentry, the one program that can end its containers, cannot run.
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
		Who:     diagnose.ByNode,
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
		Meaning: "gVisor runs a pod's containers on a kernel that is a program on the node. ps -ef calls it runsc-sandbox, and the node's kernel " +
			"calls it exe. To signal a container, the shim runs runsc kill, which passes the request to that program without a time limit. When " +
			"the program does not run, the containers cannot exit, not even at the end of the grace period. A process in them gets no further " +
			"than its next system call. nodeagent does not see these processes.",
		Evidence: []string{
			"containerd's CRI status names the runtime io.containerd.runsc.v1.",
			"The process is a child of a shim of the pod, and in the pod's cgroup. The shim names it as the process of the sandbox.",
			"If the shim does not respond, it is the only such child that has children of its own there. gVisor runs the containers' programs " +
				"in these.",
			"Two readings three seconds or more apart show that it has not run.",
			"The reason is one of two: all its threads are in state T without a tracer (Stopped), or its cgroup is frozen (Frozen).",
			"Not reported if the shim does not respond and gVisor uses its platform KVM: the process then has no children.",
		},
		Seen:  []string{"{saw}", "It runs all containers of the pod, under {runtimes}"},
		First: "if a checkpoint or debugger may use gVisor, wait. If none does, on the node, as root: {continue}",
		Avoid: "resuming during a checkpoint or killing the shim (can lose data)",
		Remedy: "Find out who stopped the process. When no checkpoint or debugger works on it any more, on the node: {continue}. " +
			"The containers resume, receive their pending signals, and the pod terminates.",
		Danger: "Do not continue it while a checkpoint or a debugger works on it. " +
			"Do not kill the shim: that loses the exit codes and the output of the pod's containers. " +
			"A force delete leaves the process and all it runs on the node, with no API object tracking it. " +
			"If it is continued later, its programs resume, perhaps on volumes that another pod uses by then.",
		Families: []diagnose.Family{
			{
				Name: diagnose.Stopped,
				Who:  diagnose.ByNode, NotApp: true,
				Meaning: "A user or a program has sent SIGSTOP to the process.",
			},
			{
				Name: sentryFrozen,
				Meaning: "The kernel's freezer has stopped all processes of the cgroup, or of one above it. With cgroup v2, SIGKILL would end a frozen " +
					"process, but none is sent to this one.",
				First: "if a checkpoint or debugger may use gVisor, wait. If none does, thaw it on the node as Fix says",
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
		// The freezer does not cause state T: this process does not run after it is thawed either.
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
