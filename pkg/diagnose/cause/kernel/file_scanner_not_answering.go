package kernel

import (
	"slices"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// The variants of FileScannerNotAnswering: a command of the runtime or of the network waits; more than one listener may have been asked;
// all of them are stopped; the only one hangs itself, or is frozen.
const (
	ofRuntime      = "Runtime"
	severalOfThem  = "Several"
	allStopped     = "AllStopped"
	hangsItself    = "Hangs"
	frozenItself   = "Frozen"
	maxNamedOthers = 3
)

// FileScannerNotAnswering is a fanotify permission listener that does not respond: a program, such as an antivirus, that the kernel asks
// before it lets others open, read or execute files.
//
// No file shows which fanotify group an event was sent to. So all groups that can be asked are looked for, while the
// same thread waits in two readings: one is named, several are named as candidates.
//
// Not reported is a program that has lost a single question and answers others, because the thread runs again and
// again. What a slow one holds up is a command that does not return, or nothing. Nor is it reported where a file of no
// volume is opened by the kubelet, or any file by containerd: no reading shows whose pod waits for that.
var FileScannerNotAnswering = &diagnose.Rule{
	Cause:  "FileScannerNotAnswering",
	Phases: []diagnose.Phase{diagnose.StopSignal, diagnose.Runtime, diagnose.Sandbox, diagnose.Volumes, diagnose.Cleanup},
	Doc: diagnose.Doc{
		Layer:   "kernel",
		Title:   "a fanotify permission listener (antivirus, EDR) does not respond",
		Who:     diagnose.ByNode,
		Message: "{who}: {scanner}",
		Seen: []string{
			"Thread {thread} ({comm}) is in state {state} in {function}: it waits for a permission response",
			"{found}",
		},
		First: "{repair}",
		Avoid: "restarting kubelet or containerd (blocks again)",
		Phrases: map[string][]diagnose.Choice{
			"who": {
				{Variant: ofRuntime, Text: "{child} (PID {childpid}), needed to stop this pod, is blocked"},
				{Variant: variantGVisor, Text: "gVisor, serving the pod, is blocked"},
				{Text: "a kubelet thread is blocked at volume {volumes}"},
			},
			"scanner": {
				{Variant: diagnose.Stopped, Text: "the only fanotify permission listener (antivirus, EDR), {process}, is paused"},
				{Variant: frozenItself, Text: "the only fanotify permission listener (antivirus, EDR), {process}, is frozen"},
				{Variant: hangsItself, Text: "the only fanotify permission listener (antivirus, EDR), {process}, is itself stuck in the kernel"},
				{Variant: allStopped, Text: "all fanotify permission listeners (antivirus, EDR) are paused; they are {process}, {also}"},
				{Variant: severalOfThem, Text: "a fanotify permission listener (antivirus, EDR) has not responded; candidates: {process}, {also}"},
				{Variant: severalOfThem, Text: "a fanotify permission listener (antivirus, EDR) has not responded; candidates: {process} or another one"},
				{Text: "the only fanotify permission listener (antivirus, EDR), {process}, has not responded"},
				{Text: "a fanotify permission listener (antivirus, EDR) has not responded; which one could not be read"},
			},
			"found": {
				{Variant: severalOfThem, Text: "{process} has a fanotify descriptor that must permit file access, and is not the only one"},
				{Text: "{process} has the node's only fanotify descriptor that must permit file access"},
				{Text: "Which processes have a fanotify descriptor could not be read"},
			},
			"repair": {
				{Variant: diagnose.Stopped, Text: "on the node: {whose}. If cat hangs: Fix. If that owner agrees, " +
					"as root: {continue}"},
				{Variant: allStopped, Text: "ask the owner of each listener (on the node: cat /proc/PID/cgroup) to resume it (SIGCONT), or to restart " +
					"its service or pod"},
				{Variant: severalOfThem, Text: "ask the owners of these listeners (on the node: cat /proc/PID/cgroup) to restart them one by one, until " +
					"the pod ends"},
				{Variant: frozenItself, Text: "on the node: {whose}. Ask that owner to thaw it"},
				{Variant: hangsItself, Text: "on the node: {whose}. Ask that owner to repair what " +
					"it waits for (see Fix)"},
				{Text: "on the node: {whose}. Ask that owner to restart it. If cat hangs: Fix"},
				{Text: "on the node, as root: grep -rls fanotify /proc/[0-9]*/fdinfo lists them. Ask the owners to restart them. If none: ask the " +
					"security team"},
			},
			"restart": {
				{Variant: allStopped, Text: "find out who stopped the listeners named above. Send SIGCONT to each, or restart its service or its pod"},
				{Variant: severalOfThem, Text: "restart the listeners named above one after the other: the service or the pod of each"},
				{Variant: frozenItself, Text: "have {process} thawed by whoever froze it (cat /proc/{pid}/cgroup names its cgroup). A frozen " +
					"process may not end at a restart. Otherwise restart its service or its pod"},
				{Variant: hangsItself, Text: "repair what {process} waits for (as root: timeout 5 cat /proc/{pid}/task/*/stack). A stuck " +
					"process may not end at a restart. Otherwise restart its service or its pod"},
				{Text: "restart {process}: its service or its pod"},
				{Text: "find the listener (grep -rls fanotify /proc/[0-9]*/fdinfo) and restart its service or its pod"},
			},
		},
		Meaning: "Antivirus programs and security agents use fanotify permission events: the kernel asks them before a file is opened, " +
			"read or executed. " +
			"Until the listener responds, whatever opens the file waits in the kernel, without a limit. " +
			"Since Linux 5.1, SIGKILL ends a pod's own process in that wait. The kubelet and the container runtime get no SIGKILL: " +
			"their part of the termination waits. " +
			"Before 5.1, SIGKILL does not end the pod's process either, which is then reported as UninterruptibleSleep. " +
			"None of them logs the wait, and the kubelet reports itself healthy.",
		Remedy: "On the node: {restart}. Ask its owner first: it may be a security agent. When it exits, the kernel releases all that " +
			"wait for it (fanotify_release), and the pod terminates. " +
			"If no program can be started any more, kill the listener from a shell that is already open: kill is a shell builtin.",
		Danger: "Until the listener runs again, files are opened and executed unscanned. Do not restart the kubelet or containerd: what " +
			"they open next blocks as well. " +
			"A force delete leaves what the pod still has on the node, with no API object tracking it.",
		Families: []diagnose.Family{{
			Name:    diagnose.Stopped,
			Meaning: "The listener's process is stopped: it received SIGSTOP.",
			Remedy: "On the node: {continue}; everything that waits for it resumes immediately, and the pod terminates. " +
				"If no program can be started any more, send SIGCONT from a shell that is already open: kill is a shell builtin. Then find out who stopped it.",
			Danger: "Do not restart the kubelet or containerd: what they open next blocks as well. If you restart the listener instead, " +
				"files are opened and executed unscanned until it runs again. " +
				"A force delete leaves what the pod still has on the node, with no API object tracking it.",
		}},
	},
	By: diagnose.Ways{
		diagnose.By[*evidence.Task]{
			Title: "While volumes are torn down",
			Of:    kubeletThreads, Partly: []evidence.Source{evidence.Kubelet},
			Facts: slices.Concat([]diagnose.Fact[*evidence.Task]{
				{Says: "All containers of the pod have ended.", Pod: diagnose.IfPod(containersEnded)},
			}, waitsAtVolume, []diagnose.Fact[*evidence.Task]{
				{Says: silentForLong, Pod: kubeletWaitsForLong},
				{Says: "Ten seconds are enough where all listeners that are found are stopped by a signal."},
				{Says: "Listeners are found by their open descriptors anon_inode:[fanotify]. In fdinfo these show a permission class, and marks " +
					"with permission events."},
				{Says: "It is proved where the path is relative to an open directory, as where the kubelet deletes files. Everything else is " +
					"inferred."},
			}),
			Tell: tellKubeletWaits,
		},
		diagnose.By[*evidence.Task]{
			Title: "Before that",
			Of:    runtimeThreads, Partly: []evidence.Source{evidence.Processes, evidence.Containers, evidence.RuntimeCommands, evidence.Plugins},
			Facts: slices.Concat([]diagnose.Fact[*evidence.Task]{
				{Says: "Not all containers of the pod have ended.", Pod: diagnose.IfPod(containersLeft)},
			}, waitsToStop, []diagnose.Fact[*evidence.Task]{
				{Says: "The kubelet has had the time to have the pod killed, which is no static pod.", Pod: killedMeanwhile},
				{Says: silentForLong + " Or no sample of five minutes showed a response, and no container of the pod has ended in them.",
					Pod: runtimeWaitsForLong},
				{Says: "A waiting command may be killed sooner and started again: one that deletes a container is after ten seconds. " +
					"So it is also reported after these five minutes, unless a gVisor thread waits, or all listeners are stopped."},
				{Says: "In these five minutes, five or more samples showed such commands or plugins, and each of them waited. None resumed, or " +
					"completed in less than a minute (five seconds for one that deletes a container)."},
			}),
			Tell: tellRuntimeWaits,
		},
		diagnose.By[diagnose.ThePod]{
			Title: "Between two tries",
			Facts: []diagnose.Fact[diagnose.ThePod]{
				{Says: "No such thread or process waits at this moment.", Pod: diagnose.IfPod(noneWaits)},
				{Says: "One waited, and the next try shows whether it waits again.", Pod: waitsAgain},
			},
		},
	},
}

// silentForLong is a line of both ways.
var silentForLong = "The one that waits longest has not run for " + fact.Fanotify.String() + ". Each response of a listener wakes all that wait " +
	"for it, so it has responded to no request in that time."

func containersEnded(p *fact.View) bool { return p.ContainersEnded() }

func containersLeft(p *fact.View) bool { return !p.ContainersEnded() }

// kubeletWaitsForLong answers whether a listener does not answer the kubelet. It may answer others, each of which wakes the kubelet, and never that.
func kubeletWaitsForLong(p *fact.View) diagnose.Holding {
	switch t := kubeletAwaitsScanner(p); {
	case t == nil:
		return diagnose.NotYet(diagnose.Seen(p, diagnose.Slow))
	case scannerSilentForLong(p, t):
		return diagnose.Is(true)
	}
	return diagnose.NotYet(diagnose.Waits(p.UnchangedSince, diagnose.LastWait, diagnose.Slow))
}

func runtimeWaitsForLong(p *fact.View) diagnose.Holding {
	if t := runtimeAwaitsScanner(p); t != nil && scannerSilentForLong(p, t) || scannerHolds(p) {
		return diagnose.Is(true)
	}
	return diagnose.NotYet(scanned(p))
}

// killedMeanwhile answers whether the kubelet has had the time to have the pod killed. A static pod is not killed. That is said when it is known
// that the listener does not respond: until then its shim is not said to hang either.
func killedMeanwhile(p *fact.View) diagnose.Holding {
	if p.Kill.Done || p.Mirror && runtimeWaitsForLong(p).Yes() {
		return diagnose.Is(p.Kill.Done)
	}
	return diagnose.NotYet(scanned(p))
}

func noneWaits(p *fact.View) bool {
	if p.ContainersEnded() {
		return kubeletAwaitsScanner(p) == nil
	}
	return runtimeAwaitsScanner(p) == nil
}

// waitsAgain answers that what waited for a listener may do so again, until the next try must have come.
func waitsAgain(p *fact.View) diagnose.Holding {
	if mayBeScanned(p) {
		return diagnose.NotYet(scanned(p))
	}
	return diagnose.Is(false)
}

// scanned returns what is open while a listener may hold what ends the pod.
func scanned(p *fact.View) diagnose.Open {
	since := p.ScannerWaits.Last
	if since.IsZero() {
		since = p.Time
	}
	return diagnose.Waits(since, max(0, scannedUntil(p).Sub(since)), diagnose.Slow) // no time when it answers others
}

func tellKubeletWaits(p *fact.View, found []*evidence.Task) []diagnose.Finding {
	t := longest(p, found, nil)
	f := diagnose.Finding{Confidence: diagnose.Inferred, Objects: diagnose.Objects{Thread: diagnose.ThreadOf(t)}}
	_, volume := volumeOfPath(t.Probe.VolumePath)
	f.Objects.Volumes = []string{volume}
	if t.Probe.Relative {
		f.Confidence = diagnose.Proved
	}
	return []diagnose.Finding{byScanner(p, f)}
}

func tellRuntimeWaits(p *fact.View, found []*evidence.Task) []diagnose.Finding {
	t := longest(p, found, nil)
	f := diagnose.Finding{Confidence: diagnose.Inferred, Variants: []string{ofRuntime}}
	if fact.OfGVisor(p, t) {
		f.Variants = []string{variantGVisor}
	}
	f.Objects.Thread, f.Objects.Child = diagnose.ThreadOf(t), diagnose.ProcessOf(p, t)
	return []diagnose.Finding{byScanner(p, f)}
}

// byScanner adds the listeners that may not have responded.
func byScanner(p *fact.View, f diagnose.Finding) diagnose.Finding {
	all, o := p.Node.Scanners, &f.Objects
	for i := range all {
		s := diagnose.ProcessOf(p, &all[i])
		s.Unit = fact.UnitOf(all[i].Cgroup)
		switch {
		case i == 0:
			o.Process = s
		case i <= maxNamedOthers:
			o.Others = append(o.Others, s)
		}
	}
	o.Alike, o.AtLeast = max(0, len(all)-1), p.Node.ScannersError != "" && len(all) > 0
	switch {
	case len(all) == 0:
	case len(all) > 1 || o.AtLeast:
		f.Variants = append(f.Variants, severalOfThem)
		if scannersHalted(p) {
			f.Variants = append(f.Variants, allStopped)
		}
	case scannersHalted(p):
		f.Family = diagnose.Stopped
	case fact.Through(&all[0], "do_freezer_trap", "__refrigerator"):
		f.Variants = append(f.Variants, frozenItself)
	case slices.ContainsFunc(p.Node.Blocked, func(t evidence.Task) bool { return t.PID == all[0].PID && t.Unchanged(p.Time) >= fact.SlowDevice }):
		f.Variants = append(f.Variants, hangsItself)
	}
	return f
}
