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
	By: diagnose.By[*evidence.Task]{
		From: []evidence.Source{evidence.Processes},
		Of:   childrenOfShims,
		Facts: []diagnose.Fact[*evidence.Task]{
			{
				Says: "containerd's CRI status names the runtime io.containerd.runsc.v1.",
				Pod:  diagnose.IfPod(fact.UnderGVisor), From: []evidence.Source{evidence.Containers},
			},
			{Says: "It says that the pod's sandbox runs.", Pod: diagnose.IfPod(gVisorRuns), From: []evidence.Source{evidence.Containers}},
			{
				Says: "The process, a child of a shim of the pod, is in the pod's cgroup, or in that of the sandbox.",
				Is:   diagnose.If(inGroupOfSandbox), From: []evidence.Source{evidence.Containers},
			},
			{
				Says: "The shim names it as the process of the sandbox. If the shim does not respond, the process has children of its own there: " +
					"gVisor runs the containers' programs in these.",
				Is: diagnose.If(mayBeSentry), From: []evidence.Source{evidence.Containers}, Partly: shims,
			},
			{Says: "It is the only such process.", Is: diagnose.If(isOnlySentry), From: []evidence.Source{evidence.Containers}, Partly: shims},
			{Says: "No thread of it has a pending SIGKILL.", Is: diagnose.If(noKillPending)},
			{
				Says: "One of two keeps it from running: all its threads are in state T without a tracer (Stopped), or its cgroup is frozen (Frozen).",
				Is:   diagnose.If(isHeld), From: []evidence.Source{evidence.Cgroups},
			},
			{Says: "Two readings three seconds or more apart show that it has not run.", Is: heldStill},
			{Says: "If the shim does not respond and gVisor uses its platform KVM, the process has no children, and is not found."},
		},
		Tell: diagnose.First(tellSentry),
	},
}

// childrenOfShims returns the processes of the pod that a shim of it has started. Among them is the sentry, the program that is the kernel of the
// containers of a pod under gVisor: a child of a shim, in the pod's own cgroup, or in that of the sandbox where systemd makes the cgroups
// (setPodCgroup, pkg/shim/v1/runsc/service.go).
func childrenOfShims(p *fact.View) (out []*evidence.Task) {
	for i := range p.Tasks {
		if t := &p.Tasks[i]; t.Leader() && slices.ContainsFunc(p.Parents, func(s evidence.Task) bool { return s.PID == t.PPID && s.Owner == "shim" }) {
			out = append(out, t)
		}
	}
	return out
}

// gVisorSandbox returns the pod's sandbox under gVisor that runs, by the CRI status; nil when there is none.
func gVisorSandbox(p *fact.View) *evidence.Container {
	i := slices.IndexFunc(p.Containers, func(c evidence.Container) bool {
		return c.Kind == evidence.Sandbox && c.State == evidence.StateRunning && c.Runtime == fact.RunscV1
	})
	if i < 0 {
		return nil
	}
	return &p.Containers[i]
}

func gVisorRuns(p *fact.View) bool { return gVisorSandbox(p) != nil }

func inGroupOfSandbox(p *fact.View, t *evidence.Task) bool {
	s := gVisorSandbox(p)
	return s != nil && (t.Container == "" || t.Container == s.ID)
}

// mayBeSentry reports whether the shim gives the number of a process as that of the sandbox. When the sentry does not run the shim does not answer
// as a rule. Then it is the one that has processes of its own there, in which it has the containers' programs run: gofers have none, and
// with gVisor's platform KVM the sentry has none either.
func mayBeSentry(p *fact.View, t *evidence.Task) bool {
	s := gVisorSandbox(p)
	return s != nil && (s.Task.PID == t.PID ||
		s.Task.PID == 0 && slices.ContainsFunc(p.Tasks, func(o evidence.Task) bool { return o.Leader() && o.PPID == t.PID }))
}

func isOnlySentry(p *fact.View, t *evidence.Task) bool {
	return !slices.ContainsFunc(childrenOfShims(p), func(o *evidence.Task) bool {
		return o != t && inGroupOfSandbox(p, o) && mayBeSentry(p, o)
	})
}

func noKillPending(p *fact.View, leader *evidence.Task) bool {
	return !slices.ContainsFunc(p.Tasks, func(t evidence.Task) bool { return t.PID == leader.PID && t.Killed() })
}

// isHeld reports whether a signal or the freezer holds a process.
func isHeld(p *fact.View, t *evidence.Task) bool {
	return allStopped(p, t) || fact.FrozenGroup(p, t) != nil
}

func allStopped(p *fact.View, leader *evidence.Task) bool {
	return !slices.ContainsFunc(p.Tasks, func(t evidence.Task) bool {
		return t.PID == leader.PID && (t.State != evidence.Stopped || t.TracerPID != 0)
	})
}

func heldStill(p *fact.View, leader *evidence.Task) diagnose.Holding {
	for i := range p.Tasks {
		if t := &p.Tasks[i]; t.PID == leader.PID {
			if h := diagnose.Still(p, t, fact.LeastStill); !h.Yes() {
				return h
			}
		}
	}
	return diagnose.Is(true)
}

func tellSentry(p *fact.View, t *evidence.Task) diagnose.Finding {
	f := diagnose.Finding{Confidence: diagnose.Proved, Objects: diagnose.Objects{Process: diagnose.ProcessOf(p, t), Runtimes: []string{fact.RunscV1}}}
	group := fact.FrozenGroup(p, t)
	switch {
	// The freezer does not cause state T: this process does not run after it is thawed either.
	case allStopped(p, t):
		f.Family = diagnose.Stopped
	case group != nil:
		f.Family, f.Objects.Cgroup = sentryFrozen, cmp.Or(group.FrozenBy, group.Path)
		if group.Version == 1 {
			f.Variants = []string{freezerV1}
		}
	}
	return f
}
