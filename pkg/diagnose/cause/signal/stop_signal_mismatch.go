package signal

import (
	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
)

// StopSignalMismatch is a container whose program handles other signals than the
// container's stop signal.
var StopSignalMismatch = &diagnose.Rule{
	Cause: "StopSignalMismatch",
	When:  diagnose.InGrace,
	Needs: fact.SignalSources,
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
		Evidence: []string{
			"The stop signal is not SIGTERM. It is the container's own (lifecycle.stopSignal), else the image's STOPSIGNAL.",
			"Its bit is not in SigCgt of the first process, and the process does not wait for it with sigwait or signalfd.",
			"It was so before the deletion too, as with SignalDroppedByPID1.",
			"SIGTERM, SIGINT or SIGQUIT is in SigCgt. For a shell, only SIGTERM counts, and only while it runs no program.",
			"It is proved if the process has not run since a reading from before the deletion. Otherwise it is inferred.",
		},
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
	Check: func(p *fact.View) diagnose.Result {
		var out []diagnose.Finding
		for _, fp := range fact.Signalled(p) {
			if !fp.Mismatched() {
				continue
			}
			f := diagnose.About(p, fp, confidence(p, fp.Leader, fact.Dropped))
			f.Objects.Handled = fp.HandledInstead().String()
			out = append(out, f)
		}
		return diagnose.Found(out...)
	},
}
