package signal

import (
	"slices"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// StopSignalMismatch is a container whose program handles other signals than the
// container's stop signal.
var StopSignalMismatch = &diagnose.Rule{
	Cause: "StopSignalMismatch",
	When:  diagnose.InGrace,
	Doc: diagnose.Doc{
		Layer: "signal",
		Title: "the program has no handler for its stop signal",
		Who:   diagnose.ByApp,
		Message: "container {container}: {program} {has} no handler for its stop signal {signal}, but one for {handled}. " +
			"{killed}",
		Meaning: "The image, or the container's specification, sets another stop signal than SIGTERM. " +
			"The program in the container handles SIGTERM or another signal, but not that one, so nothing asks it to exit. " +
			"It happens when a pod overrides the command of an image that was made for another program. " +
			"It also happens when the image inherits STOPSIGNAL from its base.",
		Phrases: map[string][]diagnose.Choice{"killed": killed, "has": verb("has", "had")},
		Seen: []string{
			"Process {pid} ({comm}) has a handler for {handled} (SigCgt)",
			"It has none for {signal} now, and had none before the deletion",
		},
		First: "nothing now; for the next deletion, set the stop signal to {handled} (lifecycle.stopSignal if set, else STOPSIGNAL)",
		Avoid: avoidForce,
		Remedy: "{fine}. " +
			"To make the next deletion fast, set the stop signal to {handled}. Set it as STOPSIGNAL in the image, " +
			"or as lifecycle.stopSignal with os.name in the pod (if the feature gate ContainerStopSignals is on). Or let the program handle {signal}.",
		Danger: "The program is killed{unasked}: unwritten data may be lost. " +
			"A force delete does not speed this up: the kubelet still waits the grace period, with no API object tracking the pod.",
		Quiet: true,
	},
	By: diagnose.By[fact.FirstProcess]{
		From: ofProcesses,
		Of:   fact.FirstProcesses,
		Facts: slices.Concat(heard, facts{
			{Says: "The stop signal is not SIGTERM.", Is: diagnose.If(notTerm)},
			{Says: "SIGTERM, SIGINT or SIGQUIT is in SigCgt. For a shell, only SIGTERM counts, and only while it runs no program.",
				Is: diagnose.If(handlesAnother), From: ofSuspects},
			{Says: "The stop signal's bit is not in SigCgt of the first process, and the first thread does not block it.",
				Is: diagnose.If(reachesNothing), From: ofSuspects},
			noSigwait,
		}, sameBefore),
		Tell: diagnose.Each(tellMismatch),
	},
}

func notTerm(_ *fact.View, fp fact.FirstProcess) bool {
	return fp.Container.StopSignal != evidence.SIGTERM
}

func handlesAnother(_ *fact.View, fp fact.FirstProcess) bool { return fp.HandledInstead() != 0 }

// reachesNothing reports whether the stop signal does nothing in the process, unless that waits for it in sigwait.
func reachesNothing(p *fact.View, fp fact.FirstProcess) bool {
	return shows(fact.Dropped)(p, fp).Yes() || shows(fact.Ignored)(p, fp).Yes() || !notInSigwait(p, fp)
}

func tellMismatch(p *fact.View, fp fact.FirstProcess) diagnose.Finding {
	f := tell(p, fp, fact.Dropped)
	f.Objects.Handled = fp.HandledInstead().String()
	return f
}
