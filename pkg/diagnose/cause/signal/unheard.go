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

// unheard returns one finding for each first process that receives its stop signal in the given way, and that matches, with the
// variants that this gives.
func unheard(p *fact.View, why fact.Reception, matches func(fact.FirstProcess) (variants []string, ok bool)) []diagnose.Finding {
	var out []diagnose.Finding
	for _, fp := range fact.Signalled(p) {
		if p.Gone && !hadItsTurn(p, fp.Container) || fp.Receives(fp.Container.StopSignal) != why || fp.Mismatched() {
			continue // the containers before it may have used up the grace period
		}
		if variants, ok := matches(fp); ok {
			f := diagnose.About(p, fp, confidence(p, fp.Leader, why))
			f.Variants = append(f.Variants, variants...)
			out = append(out, f)
		}
	}
	return out
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
