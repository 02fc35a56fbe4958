package kernel

import (
	"fmt"
	"slices"
	"time"

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
	By: diagnose.By[kept]{
		From: []evidence.Source{evidence.Processes, evidence.Suspects},
		Of:   otherProcesses,
		Facts: []diagnose.Fact[kept]{
			{Says: "The kernel stack of the container's first process goes through zap_pid_ns_processes.", Is: diagnose.If(zaps)},
			{Says: "The first process did not run between two readings ten seconds or more apart.", Is: initStands},
			{Says: "The container of the first process is known.", Is: diagnose.If(initIsNamed), Partly: []evidence.Source{evidence.Shims}},
			{Says: "Another process of the same PID namespace is still in the process table. It did not run between these readings either.",
				Is: memberStands},
			{Says: "No thread of the other process waits for the kernel's processors (RCU), or it has done so for sixty seconds.",
				Is: isNotInRCU},
			{Says: "If the other process waits for io_uring and a thread is at work there: no thread of it ran between these readings.",
				Is: isNotInRing},
			{Says: "The other process has not ended, or it is a zombie whose parent is known and outside the namespace.", Is: diagnose.If(isKept)},
			{Says: "If the other process is a zombie: readings over " + fact.Process.String() + " show the same. Ten seconds are enough where its parent " +
				"is stopped.", Is: parentHadTime},
			{Says: "Zombies below a first process that lives do not count. They hold nothing up, and are gone when it exits."},
			{Says: "If the other process hangs in the kernel, the cause of that hang is reported instead."},
		},
		Tell: tellKept,
	},
}

// A kept is another process of the container of a first process of a PID namespace, by its leader. Of the first process it is the thread that
// waits, which may be any.
type kept struct{ init, member *evidence.Task }

// Named says what it is.
func (k kept) Named(*fact.View) string {
	return fmt.Sprintf("process %.40q (PID %d), beside the first process %.40q (PID %d)", k.member.Comm, k.member.PID, k.init.Comm, k.init.PID)
}

// otherProcesses returns those that are beside first processes.
func otherProcesses(p *fact.View) (out []kept) {
	for _, init := range threads(p) {
		first := fact.Through(init, fact.ZapPIDNS) || init.Leader() && init.NamespaceInit()
		for _, t := range threads(p) {
			if first && t.Leader() && t.PID != init.PID && t.Container == init.Container {
				out = append(out, kept{init, t})
			}
		}
	}
	return out
}

func zaps(_ *fact.View, k kept) bool { return fact.Through(k.init, fact.ZapPIDNS) }

func initIsNamed(p *fact.View, k kept) bool { return nameIsInTime(p, k.init) }

func initStands(p *fact.View, k kept) diagnose.Holding {
	return diagnose.Still(p, k.init, fact.SlowDevice)
}

func memberStands(p *fact.View, k kept) diagnose.Holding {
	return diagnose.Still(p, k.member, fact.SlowDevice)
}

// isNotInRCU answers whether no thread of a process waits for RCU, as the last one of a mount namespace does at its end, or has done so for long.
func isNotInRCU(p *fact.View, k kept) diagnose.Holding {
	unread := func(t *evidence.Task) bool {
		return t.PID == k.member.PID && t.Probe == nil && t.State != evidence.Zombie && !diagnose.Still(p, t, fact.SlowRCU).Yes()
	}
	if slices.ContainsFunc(threads(p), unread) {
		return diagnose.NotRead(evidence.Suspects)
	}
	return allStand(p, k, fact.SlowRCU, fact.WaitsForRCU)
}

// isNotInRing answers whether a process waits for no other thread in io_uring, or none of it is at work.
func isNotInRing(p *fact.View, k kept) diagnose.Holding {
	return allStand(p, k, fact.SlowDevice, func(*evidence.Task) bool { return awaitsThread(p, k.member) })
}

// allStand answers whether those threads of the other process that are meant have not run for so long.
func allStand(p *fact.View, k kept, long time.Duration, meant func(*evidence.Task) bool) diagnose.Holding {
	for _, t := range threads(p) {
		if h := diagnose.Still(p, t, long); t.PID == k.member.PID && !h.Yes() && meant(t) {
			return h
		}
	}
	return diagnose.Is(true)
}

func isKept(p *fact.View, k kept) bool {
	return !fact.Ended(p, k.member.PID) || outsideParent(p, k) != nil
}

func parentHadTime(p *fact.View, k kept) diagnose.Holding {
	return diagnose.Or(diagnose.Is(!fact.Ended(p, k.member.PID)), diagnose.Still(p, k.member, fact.SlowProcess(p, outsideParent(p, k))))
}

// outsideParent returns the parent of the other process, nil where that is not known or is one of the pod's.
func outsideParent(p *fact.View, k kept) *evidence.Task {
	if parent, inside := fact.ByID(p, k.member.PPID); !inside {
		return parent
	}
	return nil
}

// tellKept tells of each first process what it waits for. A zombie that its parent outside does not reap comes before a process that has not
// ended.
func tellKept(p *fact.View, found []kept) []diagnose.Finding {
	var out []diagnose.Finding
	for i, k := range found {
		if i > 0 && found[i-1].init == k.init {
			continue // told of with that
		}
		f := diagnose.Finding{Container: p.ContainerName(k.init), Confidence: diagnose.Proved, Family: familyMember, Objects: diagnose.Objects{
			Process: diagnose.ProcessOf(p, k.init), Member: diagnose.ProcessOf(p, k.member),
		}}
		zombie := func(o kept) bool {
			return o.init == k.init && fact.Ended(p, o.member.PID) && outsideParent(p, o) != nil
		}
		if z := slices.IndexFunc(found, zombie); z >= 0 {
			parent := outsideParent(p, found[z])
			f.Family = familyOutsideParent
			f.Objects.Member, f.Objects.Parent = diagnose.ProcessOf(p, found[z].member), diagnose.ProcessOf(p, parent)
			if parent.State == evidence.Stopped {
				f.Variants = append(f.Variants, diagnose.Stopped)
			}
			if fact.Essential(parent) {
				f.Variants = append(f.Variants, diagnose.Essential)
			}
		}
		out = append(out, f)
	}
	return out
}
