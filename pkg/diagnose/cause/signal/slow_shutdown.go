package signal

import (
	"slices"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// The variants of SlowShutdown: what the program did when it was last seen.
const (
	waited = "Waited"
	slept  = "Slept"
	ran    = "Ran"
)

// The variants of the process that it runs and that has not exited. The program waits for it; or waits for one that it has
// started since the deletion; or has started one or several, and is not seen to wait for them.
const (
	awaits  = "Awaits"
	helper  = "Helper"
	fresh   = "Fresh"
	one     = "One"
	several = "Several"
)

// The variants of what to check if the program is not seen to wait for the process that it runs: the process may be only a
// helper, or it is a worker of the same name.
const (
	maybe   = "Maybe"
	workers = "Workers"
)

// The variants of what such a process does with the stop signal. That it blocks it is the variant blocks.
const (
	ignores = "Ignores"
	handles = "Handles"
	taken   = "Taken"
	unsent  = "Unsent"
)

// fates are these variants by what happens to the signal.
var fates = map[fact.Reception]string{fact.Ignored: ignores, fact.Caught: handles, fact.Took: taken, fact.Blocked: blocks, fact.Fatal: unsent}

// The variants of what to do about it: a program that has removed its handler, and
// programs that do not exit on SIGTERM.
const (
	removed  = "Removed"
	uwsgi    = "Uwsgi"
	systemd  = "Systemd"
	postgres = "Postgres"
)

// The families of SlowShutdown besides the ordinary one.
const (
	familyNetwork = "Network"
	familyTrap    = "Trap"
)

// What shows why a process does not exit: what it logs.
const (
	logSteps  = "let {child} log its steps to see which is slow, and limit its time"
	logSignal = "let {child} log when {signal} arrives and what follows. If {signal} does not arrive, let {program} forward it"
)

// SlowShutdown is a program that handles its stop signal and is not done when
// the grace period ends. While the program runs, nothing shows that it has been
// signalled: on a slow node, each step before the signal may be late. SIGKILL
// shows it, because it comes one grace period after the stop signal
// (StopContainer of the CRI).
var SlowShutdown = &diagnose.Rule{
	Cause:  "SlowShutdown",
	When:   diagnose.WhenGone,
	Phases: diagnose.WhileProcessesLive,
	Doc: diagnose.Doc{
		Layer: "signal",
		Title: "the program's shutdown takes longer than the grace period",
		Who:   diagnose.ByApp,
		Quiet: true,
		Message: "container {container}: program {quoted} {took} {signal} but did not exit " +
			"within {within}{last}",
		Phrases: map[string][]diagnose.Choice{
			"took": {
				{Variant: familyTrap, Text: "received"},
				{Variant: removed, Text: "received"},
				{Text: "handled"},
			},
			"last": {
				{Variant: familyNetwork, Text: "{unanswered}"},
				{Variant: familyTrap, Text: "{lingers}"},
				{Variant: helper, Text: "{lingers}"},
				{Variant: fresh, Text: "{lingers}"},
				{Variant: awaits, Text: "{lingers}"},
				{Variant: several, Text: "{lingers}"},
				{Variant: one, Text: "{lingers}"},
				{Variant: waited, Text: "; its main thread was last seen waiting for I/O"},
				{Text: "; {doing}"},
				{Text: ""},
			},
			"doing": {
				{Variant: waited, Text: "its main thread was last seen waiting for I/O in {function}"},
				{Variant: slept, Text: "its main thread was last seen in {syscall}"},
				{Variant: ran, Text: "its main thread was last seen running"},
				{Text: "its main thread was last seen in state {state}"},
			},
			"used": {{Text: "; the container used {cpuused}"}, {Text: ""}},
			"lingers": {
				{Variant: familyTrap, Text: ". Its child {child} did not exit: if it ran in the foreground, the shell never ran its trap"},
				{Variant: helper, Text: ". It was waiting for {child}, which it had started after the deletion"},
				{Variant: fresh, Text: ". It was running {child}, which it had started after the deletion"},
				{Variant: awaits, Text: ". It was waiting for {child}, which {fate}"},
				{Variant: several, Text: ". Of its {alike} subprocesses, the youngest ({child}) {fate}"},
				{Variant: one, Text: ". Its subprocess {child} {fate}"},
				{Text: ""},
			},
			"fate": {
				{Variant: ignores, Text: "was set to ignore {signal}"},
				{Variant: handles, Text: "had a handler for {signal} and did not exit"},
				{Variant: taken, Text: "took {signal} and did not exit"},
				{Variant: blocks, Text: "blocked {signal} and had not taken it"},
				{Variant: unsent, Text: "was not sent {signal}, although that would have ended it"},
				{Text: "did not exit"},
			},
			"unanswered": {
				{Variant: familyNetwork, Text: ". Since {since}, data on {connections} of the pod was not acknowledged"},
				{Text: ""},
			},
			"look": {
				{Variant: removed, Text: "{program} has no handler for {signal} any more. If it is a Node.js program without a listener for {signal}, add one. " +
					"Otherwise it removed its handler: check what it does on {signal}"},
				{Variant: uwsgi, Text: "uwsgi reloads on SIGTERM unless die-on-term is set: set it. Otherwise check what {program} does on {signal}"},
				{Variant: systemd, Text: "systemd re-executes itself on SIGTERM and keeps running: set the stop signal to SIGRTMIN+3. " +
					"Otherwise check what systemd waits for"},
				{Variant: postgres, Text: "On SIGTERM, PostgreSQL waits until all clients have disconnected: set the stop signal to SIGINT. " +
					"Otherwise check what its clients do"},
				{Variant: fresh, Text: "Check why {child} takes so long"},
				{Variant: helper, Text: "Check why {child} takes so long"},
				{Variant: workers, Text: "Check what {child} does on {signal}"},
				{Variant: maybe, Text: "Check what {program} waits for. If that is {child}, {how}"},
				{Variant: ignores, Text: "Let {child} handle {signal}: remove a trap '' set before it starts"},
				{Variant: blocks, Text: "Let {child} take {signal}, which it blocks"},
				{Variant: unsent, Text: "Check what {program} waits for. If that is {child}, let {program} forward {signal}, or start {child} with exec instead"},
				{Variant: handles, Text: "Check what {child} does on {signal} and whether {program} forwards it"},
				{Variant: taken, Text: "Check what {child} does on {signal}"},
				{Text: "Check what {program} does on {signal}"},
			},
			"how": {
				{Variant: ignores, Text: "let {child} handle {signal}"},
				{Variant: blocks, Text: "let {child} take {signal}, which it blocks"},
				{Variant: unsent, Text: "let {program} forward {signal}, or start {child} with exec instead"},
				{Variant: handles, Text: "check what {child} does on {signal} and whether {program} forwards it"},
				{Text: "check what {child} does on {signal}"},
			},
			"first": slices.Concat([]diagnose.Choice{
				{Variant: pipeline, Text: asPipeline},
				{Variant: familyTrap, Text: inBackground},
				{Variant: removed, Text: "if {program} is Node.js, add a listener for {signal}. If not, let it log what it does on {signal}"},
				{Variant: uwsgi, Text: "set die-on-term in the configuration of uwsgi"},
				{Variant: systemd, Text: "set the stop signal to SIGRTMIN+3"},
				{Variant: postgres, Text: "set the stop signal to SIGINT"},
				{Variant: fresh, Text: logSteps},
				{Variant: helper, Text: logSteps},
				{Variant: maybe, Text: "let {program} log what it waits for; if that is {child}, {do}"},
				{Variant: ignores, Text: "let {child} " + notIgnored},
				{Variant: blocks, Text: "in the code of {child}, let one thread take {signal}, or unblock {signal}"},
				{Variant: unsent, Text: "let {program} forward {signal}, or start {child} with exec instead"},
			}, firstLimits(), []diagnose.Choice{
				{Variant: workers, Text: "let the subprocess {child} log its shutdown steps to see which is slow"},
				{Variant: handles, Text: logSignal},
				{Variant: taken, Text: logSteps},
				{Text: "let {program} log its shutdown steps to see which is slow, or {raise}"},
			}),
			"do": {
				{Variant: ignores, Text: "let {child} handle {signal}"},
				{Variant: blocks, Text: "let {child} take {signal}, which it blocks"},
				{Variant: unsent, Text: "let {program} forward {signal}, or start {child} with exec instead"},
				{Variant: taken, Text: logSteps},
				{Text: "let {child} log if and when {signal} arrives"},
			},
			"background": {
				{Variant: pipeline, Text: pipelineOf("{child}")},
				{Text: "Run the program in the background: program & pid=$!; trap 'kill -TERM $pid' TERM; wait $pid; wait $pid. " +
					"If no trap is needed, start the program with exec"},
			},
			"limit": ownLimits(),
			"raise": {
				{Variant: diagnose.BehindHook, Text: "raise terminationGracePeriodSeconds by the preStop hook's time"},
				{Text: "raise terminationGracePeriodSeconds"},
			},
		},
		Meaning: "The program has taken the stop signal and works on its shutdown: it drains connections, writes what it has in memory, or waits for others. " +
			"The grace period is over before it is done, and the kernel kills it in the middle of that. " +
			"A program whose handler does nothing looks the same. " +
			"So does one that only forwards the signal to another program and waits for it, as npm and supervisord do: " +
			"the process that it runs and that has not exited is named.\n\n" +
			"A server that waits for its last connections waits without end, unless it has a limit for that. Some have one: " + settings() + ".",
		Seen: []string{
			"{program} (PID {pid} on the node): {doing}{used}",
			"{child} (PID {childpid} on the node) {fate}",
			"From {since} until the end, data on {connections} of the pod was not acknowledged",
			"The container was killed (exit code 137) at {ended}",
		},
		First:  "nothing now; for the next deletion, {first}",
		Avoid:  avoidShorter,
		Remedy: "Nothing is broken. {look}. {limit}, or {raise}.",
		Danger: "A shorter grace period loses more work.",
		Families: []diagnose.Family{
			{
				Name: familyTrap,
				Meaning: "The program is a shell with a trap for the stop signal. It sleeps in wait4 and has a child from before the deletion. " +
					"If it waits for the child in its foreground, it defers its trap until the child has exited. " +
					"If the child is in the background, the trap may have asked it to exit, and it has not. " +
					"It is not known which of the two is the case, so this is inferred. " +
					"Where it is known, ShellPID1TrapDeferred is reported.",
				Remedy: "Nothing is broken. {background}. " +
					"If the script does so already, check what {child} does on {signal}. " +
					"{limit}, or {raise}.",
			},
			{
				Name: familyNetwork,
				Meaning: "Until the end, most of the pod's TCP connections, two or more, had data to send that was not acknowledged: " +
					"the kernel sent it again and again. " +
					"Either the program lost its network while it worked on its shutdown, or its peers are gone. " +
					"In the pod, both look the same.",
				First: "nothing now. Ask the network team if the pod's network was removed before the pod ended. If not, " +
					"ask the owners of what {program} talked to",
				Remedy: "Find out whether the pod's network was removed before the program was done, or whether its peers are gone. " +
					"Whatever the network needs must stay until the pod is gone: " +
					"network policies, endpoints and CNI objects. " +
					"A foreground deletion can delete CNI objects with the pod, such as a CiliumEndpoint. " +
					"More time does not help without a network. If the peers are gone, the program needs a limit. {limit}.",
			},
		},
	},
	By: diagnose.By[fact.FirstProcess]{
		From: ofProcesses,
		Of:   fact.FirstProcesses,
		Facts: slices.Concat(unfinished, facts{
			{Says: "No limit of CPU or memory slowed the container down for half of the grace period. With one, it is ShutdownThrottled.",
				Is: diagnose.If(unlimited), From: ofCgroups},
			{Says: "The last readings show what the program did. If all its threads sleep, they show what it runs: its children in the same container, " +
				"except programs such as sleep and tail. If such a child is a shell, or waits for a child, its own child is named."},
			{Says: "That it waited for a process is reported only for a system call that waits for children (wait4, waitid), and a single child. " +
				"Otherwise the process has merely not exited either."},
			{Says: "The masks of that process show what it does with the stop signal. " +
				"They show whether it was sent the signal only if it has taken it, leaves it pending, or would have ended by it."},
			{Says: "It is inferred for a shell with a trap that waits for a child from before the deletion: its trap may not have run."},
		}),
		Tell: diagnose.Each(tellSlow),
	},
}

func unlimited(p *fact.View, fp fact.FirstProcess) bool { return !limited(p, fp) }

func tellSlow(p *fact.View, fp fact.FirstProcess) diagnose.Finding {
	f, program := slowFinding(p, fp), asked(p, fp)
	t := program.Leader
	f.Objects.Thread = diagnose.ThreadOf(t)
	switch {
	case t.State == evidence.Uninterruptible:
		f.Variants = append(f.Variants, waited)
	case t.State == evidence.Sleeping && f.Objects.Thread.Syscall != "":
		f.Variants = append(f.Variants, slept)
	case t.State == evidence.Runnable:
		f.Variants = append(f.Variants, ran)
	}
	if v := onSignal(fp, program); v != "" {
		f.Variants = append(f.Variants, v)
	}
	last := tellLingering(p, program, &f)
	if v := limitOf(fp, program, last); v != "" {
		f.Variants = append(f.Variants, v)
	}
	if c := p.Connections; networkTakenAway(p) && f.Family == "" && !explained(f.Variants) {
		f.Family, f.Objects.Connections, f.Objects.Since = familyNetwork, c.Unanswered, c.Since
	}
	if g := containerGroup(p, fp.Container.ID); g != nil && g.CPU != nil {
		f.Objects.CPUUsedMillis = g.CPU.RecentMillis
	}
	return f
}

// onSignal returns the variant of what the program does on its stop signal, "" for nothing special.
func onSignal(fp, program fact.FirstProcess) string {
	switch {
	case program.Receives(fp.Container.StopSignal) == fact.Took, program.HadHandler(fp.Container.StopSignal):
		return removed
	case fp.Container.StopSignal != evidence.SIGTERM:
	case program.Runs("uwsgi"):
		return uwsgi
	case fp.Runs("systemd"):
		return systemd
	case program.Runs("postgres"):
		return postgres
	}
	return ""
}

// explained reports whether it is known what the program waits for, whatever its connections do.
func explained(variants []string) bool {
	return slices.ContainsFunc(variants, func(v string) bool {
		return slices.Contains([]string{removed, uwsgi, systemd, postgres, ignores, unsent}, v)
	})
}

// tellLingering puts the process that the program runs and that has not exited into the finding, and returns it; nil when
// there is none.
func tellLingering(p *fact.View, program fact.FirstProcess, f *diagnose.Finding) *evidence.Task {
	f.Objects.Child = nil
	if program.MayPutTrapOff(p) {
		f.Confidence = diagnose.Inferred
	}
	if child, role := program.KeepsTrapOff(p); child != nil {
		f.Family, f.Objects.Child = familyTrap, diagnose.ProcessOf(p, child)
		if role == fact.Piped {
			f.Variants = append(f.Variants, pipeline)
		}
		return child
	}
	l := program.Lingers(p)
	if l == nil {
		return nil
	}
	f.Objects.Child, f.Variants = diagnose.ProcessOf(p, l.Task), append(f.Variants, lingering(program, l)...)
	if l.Alike > 1 {
		f.Objects.Alike = l.Alike
	}
	return l.Task
}

// lingering returns the variants for how the program runs the process that has not exited, and for what that does with the
// stop signal.
func lingering(program fact.FirstProcess, l *fact.Lingering) []string {
	var out []string
	look := maybe
	if l.Task.Comm == program.Leader.Comm {
		look = workers
	}
	switch {
	case l.Awaited && l.New:
		return []string{helper}
	case l.New && l.Alike == 1 && fact.Shell(program.Leader):
		return []string{fresh}
	case l.Awaited:
		out = []string{awaits}
	case l.Alike > 1:
		out = []string{several, look}
	default:
		out = []string{one, look}
	}
	if fate, known := fates[l.Meets]; known {
		out = append(out, fate)
	}
	return out
}

// containerGroup returns the cgroup of a container, nil when it is not known.
func containerGroup(p *fact.View, id string) *evidence.Cgroup {
	for i := range p.Cgroups {
		if p.Cgroups[i].Container == id {
			return &p.Cgroups[i]
		}
	}
	return nil
}

// networkTakenAway reports whether the data of most of the pod's connections, two or more, has not been acknowledged for a
// quarter of the grace period or more. Peers that are gone look the same. A single connection may be that of a client that
// has vanished.
func networkTakenAway(p *fact.View) bool {
	c := p.Connections
	return c != nil && c.Unanswered > 1 && c.Unanswered*2 > c.All && !c.Since.IsZero() && p.Time.Sub(c.Since) >= max(fact.Grace(p)/4, fact.LeastStill)
}
