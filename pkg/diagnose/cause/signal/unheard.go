package signal

import (
	"slices"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// The variants of what the program is to the first process, and of what can be done about that.
const (
	// wrapper is a process that only runs another program, as npm and conda run do. If it exits, the kernel kills that program.
	wrapper = "Wrapper"
	// fixed is a program that has no setting by which it ends on a signal.
	fixed = "Fixed"
	// daemon is a program in the background, beside one that only keeps the container running.
	daemon = "Daemon"
	// inTurn is a shell that runs one program after the other, as in a loop, which exec would end.
	inTurn = "InTurn"
	// pipeline is a program that writes to a filter, in a shell.
	pipeline = "Pipeline"
	// jobs is a shell that runs programs in its background.
	jobs = "Several"
	// harmless is a stop signal that ends no program by its default action.
	harmless = "Harmless"
	// notTERM is that of a container whose stop signal is not SIGTERM.
	notTERM = "NotTERM"
)

// asPipeline is what to do about a pipeline. In front of a filter, exec replaces only a part of the shell.
const asPipeline = "replace the pipe by exec PROGRAM, or in bash: exec PROGRAM > >(tee FILE) 2>&1"

// inBackground is what to do about a child in the foreground of a shell with a trap.
const inBackground = "run {child} as: program & pid=$!; trap 'kill -TERM $pid' TERM; wait $pid; wait $pid" + endsWait

// endsWait says why a script waits twice.
const endsWait = " (a signal ends the first wait)"

// notIgnored is what to do about a program that may have inherited from a script that it ignores the signal.
const notIgnored = "handle {signal}. If its script sets trap '' for {signal}, remove that"

// What an Event tells not to do: while the container is in its grace period, and for the next deletion.
const (
	avoidForce   = "force delete (not faster, only hides the pod)"
	avoidShorter = "a shorter grace period (loses unsaved data)"
)

// killed says in an Event what becomes of a container that does not exit by its stop signal.
var killed = []diagnose.Choice{
	{Variant: diagnose.Gone, Text: "The container was killed at {ended}{behind}"},
	{Text: "SIGKILL is due at {deadline}{behind}"},
}

// verb is a word of a message about a pod that is there, and about one that is gone.
func verb(is, was string) []diagnose.Choice {
	return []diagnose.Choice{{Variant: diagnose.Gone, Text: was}, {Text: is}}
}

// pipelineOf is asPipeline at length, where the placeholder is that of the program before the filter.
func pipelineOf(program string) string {
	return "In a pipeline, exec and traps do not help: the shell waits for the filter. " +
		"For a fast and clean next deletion, log to stdout only and start " + program + " with exec in the script. " +
		"Or keep the file, in bash: exec PROGRAM > >(tee FILE) 2>&1; its last lines may be missing. " +
		"PROGRAM is then PID 1: without a handler for {signal}, start it as exec tini -- PROGRAM. " +
		"Do not put the pipeline into the background: $! is the filter, and " + program + " gets SIGKILL before it can stop by itself"
}

// facts are asked of first processes.
type facts = []diagnose.Fact[fact.FirstProcess]

var (
	ofProcesses = []evidence.Source{evidence.Processes, evidence.Containers}
	ofSuspects  = []evidence.Source{evidence.Suspects}
	ofCgroups   = []evidence.Source{evidence.Cgroups}
)

// sent are the facts by which a first process has been sent its stop signal, as far as can be seen.
var sent = facts{
	{Says: "First processes are looked at: those that runc's shim has started, of the running containers whose turn to end has come."},
	{Says: "The turn of a sidecar comes after the containers of the app, and after the sidecars behind it in the specification."},
	killedIfGone,
	{Says: "Nothing is seen that delays the stop signal: the kubelet, containerd and the shim work, and no container is being started. " +
		"The kubelet has reported no failure to stop the pod, and the deadline is certain.", Pod: delivered, Partly: []evidence.Source{evidence.Kubelet}},
	{Says: "The node does not shut down: it may have sent the stop signal before the deletion.", Pod: nodeStays},
	{Says: "The stop signal is known. It is the container's own (lifecycle.stopSignal), else the image's STOPSIGNAL, else SIGTERM.",
		Is: diagnose.If(signalKnown)},
	{Says: "The container has no preStop hook, or the hook is over. A sleep of the kubelet is over ten seconds after its time. " +
		"Of a request to a port it is not known.", Is: hookOver},
	{Says: "A hook that runs a program is over when nothing is left that was executed in the container with the deletion. " +
		"At the earliest, that is " + fact.HookDelay.String() + " after the deletion."},
}

var killedIfGone = diagnose.Fact[fact.FirstProcess]{
	Says: "When the pod is gone: SIGKILL ended the container (exit code 137) at the deadline or later. Three seconds earlier count too: clocks may differ.",
	Is:   diagnose.If(wasKilledIfGone),
}

// heard are the facts by which it is known what a process does with the stop signal that it has been sent.
var heard = slices.Concat(sent, facts{
	{Says: "Two readings, three seconds or more apart, show that the process does the same with signals (SigCgt, SigIgn and SigBlk). " +
		"A shell blocks all signals while it starts a program: that does not count.", Is: settled, Partly: ofSuspects},
	{
		Says: "The container has no preStop hook but a sleep, or the pod is gone. Another hook may have asked the program to exit.",
		Is:   hookAskedNothing,
	},
})

// inTime are heard, of a container that has had the grace period.
var inTime = slices.Concat(heard, facts{hadTurn})

var hadTurn = diagnose.Fact[fact.FirstProcess]{
	Says: "When the pod is gone: a sidecar has had the grace period. Those that it waits for had exited within 5 seconds after the deletion, " +
		"or within a quarter of the grace period if that is shorter.",
	Is: diagnose.If(hadItsTurn),
}

// sameBefore are the facts by which the signal met what the process does with it now.
var sameBefore = facts{
	{Says: "A reading from before the deletion shows the same, and the process has not run since. " +
		"Or it had shown the same for 15 seconds up to then, and for as long as the reading is old (15 minutes at most).",
		Is: metTheSame, From: ofSuspects},
	{Says: "Without such a reading it is not known: a handler can remove itself. A program that was asked to stop then shows no bit either. " +
		"It is not known either if a handler was removed within the grace period before the deletion."},
	{Says: "It is proved if the process has not run since that reading. Otherwise it is inferred."},
}

var noSigwait = diagnose.Fact[fact.FirstProcess]{
	Says: "It does not sleep in sigwait. A program that does, such as tini, shows no bit either: its system call tells it apart.",
	Is:   diagnose.If(notInSigwait), From: ofSuspects,
}

var noMismatch = diagnose.Fact[fact.FirstProcess]{
	Says: "The stop signal is SIGTERM, or the process has no handler for another signal that asks programs to exit. " +
		"With one, it is StopSignalMismatch.",
	Is: diagnose.If(notMismatched), From: ofSuspects,
}

// dropped are the facts by which the kernel drops the stop signal.
var dropped = slices.Concat(inTime, facts{
	{Says: "The process is PID 1 of its PID namespace: the last number of NSpid in /proc/PID/status is 1. In a pod with a shared one, it is not.",
		Is: diagnose.If(isPID1)},
	{Says: "The stop signal's bit is in none of SigCgt, SigIgn and SigBlk.", Is: noHandler, From: ofSuspects},
	noSigwait, noMismatch,
}, sameBefore)

// pending are the facts by which a process blocks its stop signal and never takes it (fact.FirstProcess.LeavesPending).
var pending = facts{
	{Says: "The stop signal's bit is in SigBlk of every thread of the process.", Is: shows(fact.Blocked), From: ofSuspects},
	{Says: "It stays in ShdPnd for three seconds or more. Programs that take signals with sigwait or signalfd block them and do not leave them there.",
		Is: staysPending},
	{Says: "Half of the grace period is over. A program that must not be interrupted for a while also blocks the signal, and takes it afterwards.",
		Is: halfIsOver},
	{Says: "The threads have not run since soon after the deletion was requested. If the pod was first seen late, " +
		"they have not run for half of the grace period.", Is: asleep},
}

// untilGone returns an answer that a later reading may change. Of a pod that is gone there is none.
func untilGone(p *fact.View, h diagnose.Holding) diagnose.Holding {
	if p.Gone && !h.Yes() {
		return diagnose.Is(false)
	}
	return h
}

// inTheGracePeriod is not yet, as long as that lasts.
func inTheGracePeriod(p *fact.View, why diagnose.Why) diagnose.Holding {
	return diagnose.NotYet(diagnose.Waits(p.DeletionRequested, p.Deadline.Sub(p.DeletionRequested), why))
}

// delivered answers whether nothing is seen that stands before the stop signal (fact.Delivery). Until the deadline, what the signal met is not
// known then.
func delivered(p *fact.View) diagnose.Holding { return orUnsure(p, p.Delivery.Likely) }

// orUnsure answers yes, or not before the deadline.
func orUnsure(p *fact.View, is bool) diagnose.Holding {
	if is {
		return diagnose.Is(true)
	}
	return untilGone(p, inTheGracePeriod(p, diagnose.Late))
}

// wasKilledIfGone reports whether the pod is there, or the container did not exit before its deadline.
func wasKilledIfGone(p *fact.View, fp fact.FirstProcess) bool {
	return !p.Gone || fact.KilledAtDeadline(p, fp.Container)
}

func nodeStays(p *fact.View) diagnose.Holding { return orUnsure(p, !p.Delivery.NodeShuttingDown) }

func signalKnown(_ *fact.View, fp fact.FirstProcess) bool { return fp.Container.StopSignal != 0 }

// hookOver answers whether no preStop hook stands before the stop signal (fact.Hook). Of one that asks a port no reading tells.
func hookOver(p *fact.View, fp fact.FirstProcess) diagnose.Holding {
	if h := p.Hook(fp.Container); h.Past() || h.State == fact.HookUntold {
		return diagnose.Is(h.Past())
	}
	return untilGone(p, diagnose.NotYet(diagnose.Seen(p, diagnose.Slow)))
}

// settled answers whether what a process does with signals is known (fact.Settled): a program that starts installs its handlers first.
func settled(p *fact.View, fp fact.FirstProcess) diagnose.Holding {
	return untilGone(p, diagnose.IsOr(fact.Settled(p, fp.Leader), diagnose.Seen(p, diagnose.Restarting)))
}

// hookAskedNothing answers whether the preStop hook has not asked the program to end. Whether it ends by that no reading shows before it is gone.
func hookAskedNothing(p *fact.View, fp fact.FirstProcess) diagnose.Holding {
	if p.Gone || !fact.HookMayHaveAsked(fp.Container) {
		return diagnose.Is(true)
	}
	return inTheGracePeriod(p, diagnose.Slow)
}

// metTheSame answers whether the stop signal met what the process does with it now. A reading from before the deletion shows that. Without
// one it stays unknown until the deadline.
func metTheSame(p *fact.View, fp fact.FirstProcess) diagnose.Holding {
	switch sig := fp.Container.StopSignal; fp.Receives(sig) {
	case fp.Shows(sig):
		return diagnose.Is(true)
	case fact.ReceptionUnknown:
		return orUnsure(p, false)
	default:
		return diagnose.Is(false)
	}
}

func isPID1(_ *fact.View, fp fact.FirstProcess) bool { return fp.Leader.NamespaceInit() }

// noHandler answers whether the stop signal would do nothing in PID 1, unless that waits for it in sigwait.
func noHandler(p *fact.View, fp fact.FirstProcess) diagnose.Holding {
	return diagnose.Or(diagnose.Is(!notInSigwait(p, fp)), shows(fact.Dropped)(p, fp), shows(fact.Fatal)(p, fp))
}

func notInSigwait(_ *fact.View, fp fact.FirstProcess) bool {
	return !fp.Expects(fp.Container.StopSignal)
}

func notMismatched(_ *fact.View, fp fact.FirstProcess) bool {
	return fp.Container.StopSignal == evidence.SIGTERM || fp.HandledInstead() == 0
}

// shows makes a fact of what becomes of the stop signal in the process, if it is sent now. It is not known of a process that sleeps in a call
// that could not be read, and that now has a handler which it had not before the deletion: the signal comes once.
func shows(r fact.Reception) func(*fact.View, fact.FirstProcess) diagnose.Holding {
	return func(p *fact.View, fp fact.FirstProcess) diagnose.Holding {
		sig := fp.Container.StopSignal
		got := fp.Shows(sig)
		if got != r && (got == fact.ReceptionUnknown && fact.SleepsUnseen(fp.Leader) && !fact.Dying(fp.Leader) || got == fact.Caught && fp.HandlesSince(sig)) {
			return orUnsure(p, false)
		}
		return diagnose.Is(got == r)
	}
}

func staysPending(p *fact.View, fp fact.FirstProcess) diagnose.Holding {
	return untilGone(p, diagnose.Lasted(p, fp.Leader.WaitsSince(fp.Container.StopSignal), fact.LeastStill, diagnose.Slow))
}

func halfIsOver(p *fact.View, fp fact.FirstProcess) diagnose.Holding {
	if over := hookOver(p, fp); !over.Yes() {
		return over
	}
	return untilGone(p, diagnose.Lasted(p, p.Hook(fp.Container).SignalAt, fact.HalfOf(p, fp.Container), diagnose.Slow))
}

// asleep answers whether no thread of the process has run with the signal pending. One that has run may still sleep for half of the grace period.
func asleep(p *fact.View, fp fact.FirstProcess) diagnose.Holding {
	if over := hookOver(p, fp); !over.Yes() {
		return over
	}
	from, ran, half := fp.AsleepFrom(p), fp.Ran(), fact.HalfOf(p, fp.Container)
	switch still := fact.Latest(ran, fp.Leader.PendingSince); {
	case !ran.After(from):
		return untilGone(p, diagnose.Lasted(p, from, fact.LeastStill, diagnose.Slow))
	case still.Add(half).After(p.Deadline):
		return diagnose.Is(false)
	default:
		return untilGone(p, diagnose.Lasted(p, still, half, diagnose.Slow))
	}
}

// tell returns the finding about a first process that does not react to its stop signal, with the variants of what it is.
func tell(p *fact.View, fp fact.FirstProcess, why fact.Reception, variants ...string) diagnose.Finding {
	f := diagnose.About(p, fp, confidence(p, fp.Leader, why))
	f.Variants = append(f.Variants, variants...)
	return f
}

// variantsOf returns the variant of a role, as far as a cause has one, and that of another stop signal than SIGTERM.
func variantsOf(fp fact.FirstProcess, role string) []string {
	var out []string
	if role != "" {
		out = append(out, role)
	}
	if fp.Container.StopSignal != evidence.SIGTERM {
		out = append(out, notTERM)
	}
	if slices.Contains([]evidence.Signal{evidence.SIGCHLD, evidence.SIGCONT, evidence.SIGURG, evidence.SIGWINCH}, fp.Container.StopSignal) {
		out = append(out, harmless)
	}
	return out
}

// confidence returns how sure it is what happened to the stop signal in a process. A
// blocked signal is seen to be pending. A signal that was dropped or ignored leaves no
// trace: that is proved only if the process has not run since before the deletion.
func confidence(p *fact.View, t *evidence.Task, why fact.Reception) diagnose.Confidence {
	if why == fact.Blocked || fact.SleptThrough(p, t) {
		return diagnose.Proved
	}
	return diagnose.Inferred
}
