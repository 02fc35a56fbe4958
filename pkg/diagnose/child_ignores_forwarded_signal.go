package diagnose

import (
	"strconv"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// forwarders are the small inits that pass their signals on to one child and
// end when that ends.
var forwarders = map[string]bool{"tini": true, "tini-static": true, "docker-init": true, "dumb-init": true, "catatonit": true, "podman-init": true}

// ChildIgnoresForwardedSignal is a program that does not end by the signal that
// the init before it passes on.
var ChildIgnoresForwardedSignal = &Rule{
	Cause: "ChildIgnoresForwardedSignal",
	When:  InGrace,
	Needs: []evidence.Source{evidence.Processes, evidence.Containers, evidence.Suspects},
	Doc: Doc{
		Layer: "signal",
		Title: "the program under tini or dumb-init does not take the signal that is passed on",
		Message: "container {container}: {init} passes {signal} on to {child} (PID {childpid} on the node), which {how}. " +
			"Unless it ends by itself, the pod waits for SIGKILL at {deadline}",
		Phrases: map[string]string{
			"how": "ignores it",
		},
		Meaning: "The container has a small init as its first process, which does its part: it hands the stop signal to the program that it runs. The program does not act on it, and the init waits for it.",
		Evidence: "The first process is tini, docker-init, dumb-init or catatonit and sleeps in sigwait. Its oldest child ignores the stop signal, or blocks it and leaves it pending, " +
			"or is a shell with a trap that waits for a program in its foreground; in two readings.",
		Remedy: "Nothing is broken on the node: the pod goes at {deadline}. Let the program handle {signal}: remove a trap '' or nohup before it, or start it with exec in the script. " +
			"For a shell with a trap, tini -g and dumb-init without -c send the signal to the whole process group, so that the program in the foreground ends too.",
		Danger: "The program is ended by SIGKILL without having acted on the signal: it may lose what it has not written. A force delete does not speed this up.",
	},
	Check: func(p *evidence.Pod) []Finding {
		var out []Finding
		for _, fp := range signalled(p) {
			child, how := fp.deafChild(p)
			if child == nil {
				continue
			}
			f := fp.finding(p, Proved)
			f.Values["init"] = fp.leader.Comm
			f.Values["child"], f.Values["childpid"], f.Values["how"] = child.Comm, strconv.Itoa(child.PID), how
			out = append(out, f)
		}
		return out
	},
}

// forwardsTo is the process that the first process hands its signals to, nil
// when it is no such init.
func (fp firstProcess) forwardsTo() *evidence.Task {
	if !forwarders[fp.leader.Comm] && (fp.leader.Probe == nil || !forwarders[fp.leader.Probe.Exe]) {
		return nil
	}
	// Orphans of the container become children of its init, too. The program
	// was there before them.
	var oldest *evidence.Task
	for _, c := range fp.children {
		if c.Probe == nil || c.Probe.Start == 0 {
			return nil
		}
		if oldest == nil || c.Probe.Start < oldest.Probe.Start {
			oldest = c
		}
	}
	return oldest
}

// deafChild is the child of a forwarding init that does not act on the stop
// signal, and why.
func (fp firstProcess) deafChild(p *evidence.Pod) (*evidence.Task, string) {
	t := fp.forwardsTo()
	if t == nil || !settled(p, t) || fp.receives(fp.container.StopSignal) != caught {
		return nil, ""
	}
	child := process(p, fp.container, t)
	sig := fp.container.StopSignal
	switch child.receives(sig) {
	case ignored:
		return t, "ignores it"
	case blocked:
		if pending(p, t, sig) {
			return t, "blocks it in every thread and has not taken it"
		}
	case caught:
		if fg, _ := child.foreground(p); fg != nil {
			return t, "has a trap for it, but as a shell puts that off until " + fg.Comm + " (PID " + strconv.Itoa(fg.PID) + ") in its foreground has ended"
		}
	}
	return nil, ""
}
