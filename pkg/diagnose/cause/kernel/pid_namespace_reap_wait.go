package kernel

import (
	"slices"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// The families of PIDNamespaceReapWait.
const (
	familyOutsideParent = "OutsideParent"
	familyMember        = "Member"
)

// PIDNamespaceReapWait is a container's first process that has ended and waits for the end of another process of its PID namespace.
var PIDNamespaceReapWait = &diagnose.Rule{
	Cause: "PIDNamespaceReapWait",
	Needs: []evidence.Source{evidence.Processes, evidence.Suspects},
	Doc: diagnose.Doc{
		Layer:   "kernel",
		Title:   "PID 1 waits until its PID namespace is empty",
		Who:     diagnose.ByNode,
		Message: "{where}PID 1 ({comm}) cannot finish its exit: {held}",
		Seen: []string{
			"Process {pid} waits in zap_pid_ns_processes until its PID namespace is empty",
			"Process {memberpid} ({member}) of this namespace is in state {memberstate}",
			"Its parent is {parent}, outside the namespace",
			"None of them ran between two readings, ten seconds or more apart",
		},
		First: "{find}",
		Phrases: map[string][]diagnose.Choice{
			"held": {
				{Variant: familyOutsideParent, Text: "zombie {member} remains, because its parent {parent}, outside the container{stopped}, " +
					"has not collected its exit"},
				{Variant: familyMember, Text: "{member} (PID {memberpid} on the node) was killed and has not exited"},
				{Text: "it waits for another process of its PID namespace"},
			},
			"stopped": {{Variant: diagnose.Stopped, Text: " and paused"}, {Text: ""}},
			"find": {
				{Variant: diagnose.Stopped, Text: "on the node: {whoseparent}. If that owner agrees, as root: " +
					"{continueparent}"},
				{Variant: diagnose.Essential, Text: "on the node: {whoseparent}. " +
					"Ask that owner why it does not collect the exit"},
				{Variant: familyOutsideParent, Text: "on the node: {whoseparent}. " +
					"Ask that owner to stop it, or to let it collect the exit"},
				{Variant: familyMember, Text: "on the node, as root: timeout 5 cat /proc/{memberpid}/task/*/stack may name a driver or file system: " +
					"ask its owner. If unclear: see Fix"},
				{Text: "on the node, as root: the stack of the other process (/proc/PID/stack) may name a driver or file system. Ask its owner to repair it"},
			},
			"letreap": {
				{Variant: diagnose.Stopped, Text: "Continue the parent, so that it reaps its child, on the node: {continueparent}"},
				{Text: "Find out why {parent} does not reap its child"},
				{Text: "Find out why the parent does not reap its child"},
			},
			"end": {
				{Variant: diagnose.Essential, Text: "Do not end it: it serves other pods or the whole node"},
				{Text: "If that does not help, ask its owner, then on the node: {terminateparent}; once it has exited, another process reaps " +
					"its child, and the pod terminates"},
			},
			"spare": {{Variant: diagnose.Essential, Text: "ending {parent} (serves other pods)"}, {Text: "killing the containerd-shim (loses exit codes)"}},
		},
		Meaning: "When the first process of a PID namespace exits, the kernel kills all others in it. The first one is gone only after " +
			"the last of them has been reaped. " +
			"A process that entered the namespace from outside (nsenter, a debugger, an exec) is reaped by its parent outside.",
		Evidence: []string{
			"The kernel stack of the container's first process goes through zap_pid_ns_processes.",
			"Another process of the same PID namespace is still in the process table.",
			"Neither of them ran between two readings ten seconds or more apart.",
			"Zombies below a first process that lives do not count. They hold nothing up, and are gone when it exits.",
			"If the other process hangs in the kernel, the cause of that hang is reported instead.",
		},
		Remedy: "Find out what the other process waits for.",
		Danger: "Another SIGKILL has no effect: PID 1 is already exiting. " +
			"A force delete leaves both processes on the node, and the shim waits permanently.",
		Avoid: "{spare}",
		Families: []diagnose.Family{
			{
				Name: familyOutsideParent,
				Who:  diagnose.ByNode, NotApp: true,
				Meaning: "The other process is a zombie. Its parent outside the namespace does not reap it, because that parent is stopped, " +
					"hangs or has a bug.",
				Remedy: "{letreap}. {end}.",
				Danger: "Ending the parent also ends its other work. Another SIGKILL has no effect: both processes have exited or are exiting. " +
					"A force delete leaves both on the node, and the shim waits permanently.",
			},
			{
				Name:    familyMember,
				Meaning: "The other process has been killed and has not exited yet.",
				Remedy: "On the node, as root: timeout 5 cat /proc/{memberpid}/task/*/stack, and the same of status. Repair what the process " +
					"waits for; it then exits, and so does PID 1.",
			},
		},
	},
	Check: func(p *fact.View) diagnose.Result {
		var out []diagnose.Finding
		for i := range p.Tasks {
			init := &p.Tasks[i]
			if !fact.Through(init, fact.ZapPIDNS) || init.Unchanged(p.Time) < fact.SlowDevice || fact.NameIsLate(p, init) {
				continue
			}
			if f, ok := heldNamespace(p, init); ok {
				out = append(out, f)
			}
		}
		return diagnose.Found(out...)
	},
}

// heldNamespace returns what an exiting init waits for. A zombie that its parent outside does not reap comes before a process that has not
// ended.
func heldNamespace(p *fact.View, init *evidence.Task) (diagnose.Finding, bool) {
	f := diagnose.Finding{Container: p.ContainerName(init), Confidence: diagnose.Proved, Objects: diagnose.Objects{Process: diagnose.ProcessOf(p, init)}}
	for i := range p.Tasks {
		t := &p.Tasks[i]
		if !staysInNamespace(p, init, t) {
			continue
		}
		parent, inside := fact.ByID(p, t.PPID)
		switch ended := fact.Ended(p, t.PID); {
		case !ended && f.Family == "":
			f.Family = familyMember
			f.Objects.Member = diagnose.ProcessOf(p, t)
		case ended && !inside && parent != nil && t.Unchanged(p.Time) >= fact.SlowProcess(p, parent):
			f.Family = familyOutsideParent
			f.Objects.Member, f.Objects.Parent = diagnose.ProcessOf(p, t), diagnose.ProcessOf(p, parent)
			if parent.State == evidence.Stopped {
				f.Variants = append(f.Variants, diagnose.Stopped)
			}
			if fact.Essential(parent) {
				f.Variants = append(f.Variants, diagnose.Essential)
			}
			return f, true
		}
	}
	return f, f.Family != ""
}

// staysInNamespace reports whether a task is the leader of another process in the container of an exiting init, and will not end soon by
// itself.
func staysInNamespace(p *fact.View, init, t *evidence.Task) bool {
	return t.Leader() && t.PID != init.PID && t.Container == init.Container && t.Unchanged(p.Time) >= fact.SlowDevice &&
		!endsInRCU(p, t.PID) && !endsInRing(p, t)
}

// endsInRCU reports whether a thread of a process waits for RCU, as the last one of a mount namespace does at its end, and has not done so
// for long.
func endsInRCU(p *fact.View, pid int) bool {
	return slices.ContainsFunc(p.Tasks, func(t evidence.Task) bool {
		return t.PID == pid && fact.WaitsForRCU(&t) && t.Unchanged(p.Time) < fact.SlowRCU
	})
}

// endsInRing reports whether a process waits for io_uring while a thread of it is at work.
func endsInRing(p *fact.View, leader *evidence.Task) bool {
	return awaitsThread(p, leader) && slices.ContainsFunc(p.Tasks, func(t evidence.Task) bool {
		return t.PID == leader.PID && t.Unchanged(p.Time) < fact.SlowDevice
	})
}
