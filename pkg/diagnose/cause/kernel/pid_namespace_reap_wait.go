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

// PIDNamespaceReapWait is a container's first process that has ended and waits
// for another process of its PID namespace to go.
var PIDNamespaceReapWait = &diagnose.Rule{
	Cause: "PIDNamespaceReapWait",
	Needs: []evidence.Source{evidence.Processes, evidence.Suspects},
	Doc: diagnose.Doc{
		Layer:   "kernel",
		Title:   "a container's first process waits until its PID namespace is empty",
		Message: "{where}the first process {pid} ({comm}) has ended and waits in the kernel (zap_pid_ns_processes) until its PID namespace is empty, but {held}",
		Phrases: map[string][]diagnose.Choice{
			"held": {
				{Variant: familyOutsideParent, Text: "process {memberpid} ({member}) is a zombie, and its parent {parent} outside of the namespace{stopped} does not reap it"},
				{Variant: familyMember, Text: "process {memberpid} ({member}, state {memberstate}) is still there"},
				{Text: "another process is still there"},
			},
			"stopped": {{Variant: diagnose.Stopped, Text: ", which is stopped,"}, {Text: ""}},
			"letreap": {
				{Variant: diagnose.Stopped, Text: "Let the parent go on, so that it reaps its child, on the node: {continueparent}"},
				{Text: "Find out why the parent does not reap its child"},
			},
			"end": {
				{Variant: diagnose.Essential, Text: "Do not end it: it serves other pods, or the whole node. Find out why it does not reap its child"},
				{Text: "Else, on the node: {terminateparent}; another process reaps the child of a parent that has exited, and the pod terminates immediately"},
			},
		},
		Meaning: "When the first process of a PID namespace ends, the kernel kills all others in it, and the first one is gone only after the last of them has been reaped. " +
			"One that entered the namespace from outside (nsenter, a debugger, an exec) is reaped by its parent out there.",
		Evidence: "The kernel stack of the container's first process goes through zap_pid_ns_processes, and another process of the same namespace is still in the process table; " +
			"neither moves in two readings ten seconds or more apart. " +
			"Zombies of a first process that lives hold up nothing: they go with it. " +
			"Of a member that hangs in the kernel, the member's own cause is the verdict.",
		Remedy: "Find out what the other process waits for.",
		Danger: "Another SIGKILL does nothing: the first process has ended already. " +
			"A force delete leaves both, and the shim waits permanently.",
		Families: []diagnose.Family{
			{
				Name:    familyOutsideParent,
				Meaning: "The other process is a zombie, and its parent outside of the namespace does not reap it, because it is stopped, hangs or has a bug.",
				Remedy:  "{letreap}. {end}.",
				Danger:  "What else the parent does ends with it. A force delete leaves both processes, and the shim waits permanently.",
			},
			{
				Name:    familyMember,
				Meaning: "The other process has been killed and has not ended yet.",
				Remedy:  "Look at /proc/{memberpid}/task/*/status and stack on the node and repair what it waits for.",
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

// heldNamespace says what an ending init waits for: rather a zombie that its
// parent outside does not reap than a process that has not ended.
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

// staysInNamespace reports whether a task is the leader of another process in the container of an ending init, and is not
// about to go.
func staysInNamespace(p *fact.View, init, t *evidence.Task) bool {
	return t.Leader() && t.PID != init.PID && t.Container == init.Container && t.Unchanged(p.Time) >= fact.SlowDevice &&
		!endsInRCU(p, t.PID) && !endsInRing(p, t)
}

// endsInRCU reports whether a thread of a process waits for the processors, as
// the last one of a mount namespace does at its end, and has not done so for
// long.
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
