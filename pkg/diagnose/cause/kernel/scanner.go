package kernel

import (
	"slices"
	"strings"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// countedPlugins are the volume plugins whose files the kubelet counts one by one now and then (NewMetricsDu in pkg/volume). To count, it opens
// directories by absolute paths; to delete, it opens them from the one above.
var countedPlugins = []string{
	"kubernetes.io~empty-dir", "kubernetes.io~configmap", "kubernetes.io~secret", "kubernetes.io~projected", "kubernetes.io~downward-api",
	"kubernetes.io~git-repo",
}

// kubeletThreads returns the threads of the kubelet in state D.
func kubeletThreads(p *fact.View) []*evidence.Task { return all(p.Node.Kubelet.Blocked) }

// waitsAtVolume tell a thread of the kubelet that waits for a fanotify permission listener as it tears down a volume of the pod.
var waitsAtVolume = []diagnose.Fact[*evidence.Task]{
	{Says: "A kubelet thread is in state D in fanotify_get_response (fs/notify/fanotify/fanotify.c) or its caller fanotify_handle_event.",
		Is: diagnose.If(awaitsScanner)},
	{Says: "Two readings three seconds or more apart show the same.", Is: waitsStill},
	{Says: "The path of its system call is a volume of this pod.", Is: diagnose.If(isAtVolume)},
	{Says: "If the path is not relative, it is of no volume whose files the kubelet counts now and then (empty-dir, configmap, secret, " +
		"projected, downward-api, git-repo).", Is: diagnose.If(isNotCounting)},
	{Says: "If the path is not relative, the kubelet counts no failed attempt at the volume during the wait.", Is: diagnose.If(failsNowhere)},
}

// kubeletAwaitsScanner returns the one of these threads that has waited longest.
func kubeletAwaitsScanner(p *fact.View) *evidence.Task {
	return longest(p, kubeletThreads(p), waitsAtVolume)
}

// longest returns the task that has not changed for the longest time, of those for which some facts are so.
func longest(p *fact.View, tasks []*evidence.Task, facts []diagnose.Fact[*evidence.Task]) (first *evidence.Task) {
	for _, t := range tasks {
		isNot := func(f diagnose.Fact[*evidence.Task]) bool { return !f.Is(p, t).Yes() }
		if !slices.ContainsFunc(facts, isNot) && (first == nil || t.UnchangedSince.Before(first.UnchangedSince)) {
			first = t
		}
	}
	return first
}

func awaitsScanner(_ *fact.View, t *evidence.Task) bool { return t.AwaitsScanner() }

func waitsStill(p *fact.View, t *evidence.Task) diagnose.Holding {
	return diagnose.Still(p, t, fact.LeastStill)
}

func isAtVolume(p *fact.View, t *evidence.Task) bool {
	if t.Probe == nil || p.RuntimeUID == "" || !strings.Contains(t.Probe.VolumePath, "/pods/"+p.RuntimeUID+"/") {
		return false
	}
	_, name := volumeOfPath(t.Probe.VolumePath)
	return name != ""
}

func isNotCounting(_ *fact.View, t *evidence.Task) bool {
	plugin, _ := volumeOfPath(t.Probe.VolumePath)
	return t.Probe.Relative || !slices.Contains(countedPlugins, plugin)
}

// failsNowhere reports whether a thread of the kubelet is the one that tears its volume down, as far as is seen.
func failsNowhere(p *fact.View, t *evidence.Task) bool {
	plugin, name := volumeOfPath(t.Probe.VolumePath)
	return t.Probe.Relative || !failedMeanwhile(p, t, plugin, name)
}

// failedMeanwhile reports whether the kubelet has counted a failed attempt at a volume, or at one that may be it, while its thread waited.
func failedMeanwhile(p *fact.View, t *evidence.Task, plugin, volume string) bool {
	return slices.ContainsFunc(p.Volumes, func(v evidence.Volume) bool {
		return v.Name == volume && (v.Plugin == plugin || plugin == "") && fact.FailedUnmountAfter(p, &v, fact.Latest(fact.StageSince(p), t.UnchangedSince)) != nil
	})
}

// volumeOfPath returns the plugin and the volume of a path of evidence.Probe.VolumePath: no plugin for a subpath.
func volumeOfPath(path string) (plugin, volume string) {
	if _, rest, ok := strings.Cut(path, "/volume-subpaths/"); ok {
		volume, _, _ = strings.Cut(rest, "/")
		return "", volume
	}
	_, rest, _ := strings.Cut(path, "/volumes/")
	plugin, rest, _ = strings.Cut(rest, "/")
	volume, _, _ = strings.Cut(rest, "/")
	return plugin, volume
}

// runtimeThreads returns the processes and threads without which the pod is not stopped:
//   - commands that the pod's shim has started, such as runc, also one that is yet to be executed;
//   - CNI plugins, which tear the pod's network down;
//   - threads of gVisor, which a program of the pod waits for.
func runtimeThreads(p *fact.View) (out []*evidence.Task) {
	for _, c := range p.RuntimeCommands {
		out = append(out, all(c.Tasks)...)
	}
	out = append(out, all(p.Plugins)...)
	out = append(out, slices.DeleteFunc(threads(p), func(t *evidence.Task) bool { return !fact.OfGVisor(p, t) })...)
	shims := fact.Shims(p)
	if len(shims) != 1 || shims[0].Owner != "shim" {
		return out // which of them is the pod's is not known
	}
	// What has come out of a container is in a process group of its own. A shim is the leader of its group (newCommand,
	// cmd/containerd-shim-runc-v2/manager/manager_linux.go).
	return append(out, slices.DeleteFunc(all(p.Node.Blocked), func(t *evidence.Task) bool {
		return t.PPID != shims[0].PID || t.Probe == nil || t.Probe.Group != shims[0].PID || t.InPod()
	})...)
}

// waitsToStop tell such a process or thread that waits for a fanotify permission listener, and that the end of the pod waits for.
var waitsToStop = []diagnose.Fact[*evidence.Task]{
	{Says: "A process that the pod's shim started, such as runc (also before it is executed), a CNI plugin, or a gVisor thread is in the same " +
		"wait.", Is: diagnose.If(awaitsScanner)},
	{Says: "If it belongs to a runtime command: the command itself has not exited.", Is: ifCommand(isNotLeft)},
	{Says: "If it belongs to a runtime command: that executes nothing, such as a probe, in a live container.", Is: ifCommand(isNoProbe)},
	{Says: "If it belongs to a kill command: a process of the container to kill has neither been killed nor exits, or none is left.",
		Is: ifCommand(killsNotInVain)},
	{Says: "If it is a gVisor thread: SIGKILL is not pending in it. The exit of a program does not end such a thread.",
		Is: diagnose.If(isNotKilledGVisor)},
}

// runtimeAwaitsScanner returns the one of these that has waited longest.
func runtimeAwaitsScanner(p *fact.View) *evidence.Task {
	return longest(p, runtimeThreads(p), waitsToStop)
}

// ifCommand makes a fact of a function about the command of the runtime that a task is of. It is so of others.
func ifCommand(is func(*fact.View, *evidence.RuntimeCommand) bool) func(*fact.View, *evidence.Task) diagnose.Holding {
	return func(p *fact.View, t *evidence.Task) diagnose.Holding {
		i := slices.IndexFunc(p.RuntimeCommands, func(c evidence.RuntimeCommand) bool { return slices.Contains(all(c.Tasks), t) })
		return diagnose.Is(i < 0 || is(p, &p.RuntimeCommands[i]))
	}
}

func isNotLeft(_ *fact.View, c *evidence.RuntimeCommand) bool { return !c.Left }

func isNoProbe(p *fact.View, c *evidence.RuntimeCommand) bool {
	return c.Command != "exec" || !slices.ContainsFunc(p.Tasks, func(t evidence.Task) bool { return t.Container == c.Container })
}

func killsNotInVain(p *fact.View, c *evidence.RuntimeCommand) bool { return !p.KillsInVain(c) }

func isNotKilledGVisor(p *fact.View, t *evidence.Task) bool {
	return !t.Killed() || !slices.Contains(threads(p), t)
}

// scannerSilentForLong reports whether a task has waited for a fanotify permission listener for so long that it is not merely slow. Each response
// of a listener wakes all that wait for one (process_access_response, fs/notify/fanotify/fanotify_user.c), so it has given none in that time.
// Where all listeners of the node are stopped, ten seconds are enough.
func scannerSilentForLong(p *fact.View, t *evidence.Task) bool {
	patience := fact.Fanotify.With(p)
	if scannersHalted(p) {
		patience = fact.SlowDevice
	}
	return t.Unchanged(p.Time) >= patience
}

// heldAfter is for how long commands that end a pod must have waited for a listener, one after the other and without a sign of a response, for the
// listener to hold them. It is longer than two of the kubelet's tries to stop a container may take (runtimeRequestTimeout). leastWaits is how many
// readings must have shown it.
const (
	heldAfter  = 5 * time.Minute
	leastWaits = 5
)

// scannerHolds reports whether a listener that does not respond holds the pod's end up, though each command that waits for it is killed too soon to
// show that: for minutes no reading shows a sign of a response, and no container has ended. What a thread of gVisor waits for shows nothing of it.
func scannerHolds(p *fact.View) bool {
	w := &p.ScannerWaits
	t := runtimeAwaitsScanner(p)
	return !w.UnansweredSince.IsZero() && w.Last.Sub(w.UnansweredSince) >= heldAfter && w.Waits >= leastWaits && !scannersHalted(p) &&
		(t == nil || !fact.OfGVisor(p, t))
}

// scannedUntil returns until when a listener may hold the pod's end, which takes minutes to see, or may do so again at the next try; zero for never.
// The pauses between tries to delete a container double. Nothing is reported before the kubelet has had the time to have the pod killed.
func scannedUntil(p *fact.View) time.Time {
	w := &p.ScannerWaits
	pause := fact.Fanotify.Pressed
	if len(p.Deletes) > 0 {
		pause = fact.Retries
	}
	switch {
	case scannerHolds(p) && p.Mirror:
	case scannerHolds(p):
		return w.Last.Add(fact.Retries)
	case !p.Mirror && !p.Kill.Done && runtimeAwaitsScanner(p) != nil:
		return p.Deadline.Add(p.Kill.Late + fact.StepPatience(p))
	case !w.Since.IsZero() && w.Last.Sub(w.Since) < heldAfter:
		return w.Last.Add(pause)
	}
	return time.Time{}
}

// mayBeScanned reports whether that time has not come.
func mayBeScanned(p *fact.View) bool { return p.Time.Before(scannedUntil(p)) }

// scannersHalted reports whether the fanotify permission listeners of the node are known, and all of them are stopped by a signal.
func scannersHalted(p *fact.View) bool {
	all := p.Node.Scanners
	return len(all) > 0 && p.Node.ScannersError == "" && !slices.ContainsFunc(all, func(t evidence.Task) bool {
		return t.State != evidence.Stopped || t.Unchanged(p.Time) < fact.LeastStill // SIGCONT does not free what a tracer holds
	})
}
