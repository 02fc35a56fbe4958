package diagnose

import "github.com/nodeagent-io/nodeagent/pkg/evidence"

// StopSignalMismatch is a container whose stop signal is another one than those
// that its program handles.
var StopSignalMismatch = &Rule{
	Cause: "StopSignalMismatch",
	When:  InGrace,
	Needs: []evidence.Source{evidence.Processes, evidence.Containers, evidence.Suspects},
	Doc: Doc{
		Layer: "signal",
		Title: "the stop signal is not one that the program handles",
		Message: "container {container}: its stop signal is {signal}, for which its first process {program} (PID {pid} on the node) has no handler; it has one for {handled}. " +
			"Unless it ends by itself, the pod waits for SIGKILL at {deadline}",
		Meaning: "The image, or the container's specification, asks for another stop signal than SIGTERM. The program that runs in the container handles SIGTERM or another signal, " +
			"but not that one, so nothing asks it to end. It happens when a pod overrides the command of an image that was made for another program, or when the image inherits STOPSIGNAL from its base.",
		Evidence: "The stop signal is not SIGTERM: it is the container's own (lifecycle.stopSignal), else the image's STOPSIGNAL. Its bit is not in the SigCgt of the first process, nor is it waited for with sigwait or signalfd, " +
			"and SIGTERM, SIGINT or SIGQUIT is in SigCgt.",
		Remedy: "Nothing is broken: the pod goes at {deadline}. To make the next deletion fast, set the stop signal to {handled} (STOPSIGNAL in the image, or lifecycle.stopSignal in the pod where the cluster allows it), " +
			"or let the program handle {signal}.",
		Danger: "The program is ended by SIGKILL without having been asked to stop: it may lose what it has not written. A force delete does not speed this up.",
	},
	Check: func(p *evidence.Pod) []Finding {
		var out []Finding
		for _, fp := range signalled(p) {
			if !fp.mismatched() {
				continue
			}
			f := fp.finding(p, Proved)
			f.Values["handled"] = fp.handledInstead().String()
			out = append(out, f)
		}
		return out
	},
}

// mismatched says that the stop signal is not SIGTERM and reaches nothing, while
// the process has a handler for another signal that asks programs to end.
func (fp firstProcess) mismatched() bool {
	sig := fp.container.StopSignal
	if sig == evidence.SIGTERM || fp.handledInstead() == 0 {
		return false
	}
	r := fp.receives(sig)
	return r == dropped || r == ignored
}

// handledInstead is the signal that asks programs to end and that the process
// has a handler for, 0 for none.
func (fp firstProcess) handledInstead() evidence.Signal {
	for _, s := range []evidence.Signal{evidence.SIGTERM, evidence.SIGINT, evidence.SIGQUIT} {
		if s != fp.container.StopSignal && fp.leader.Caught.Has(s) {
			return s
		}
	}
	return 0
}
