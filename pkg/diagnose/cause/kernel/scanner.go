package kernel

import (
	"slices"
	"strings"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// countedPlugins are the volume plugins whose files the kubelet counts one by one now and then (NewMetricsDu in pkg/volume). To count, it opens
// directories by absolute paths; to delete, it opens them from the one above.
var countedPlugins = []string{
	"kubernetes.io~empty-dir", "kubernetes.io~configmap", "kubernetes.io~secret", "kubernetes.io~projected", "kubernetes.io~downward-api",
	"kubernetes.io~git-repo",
}

// kubeletAwaitsScanner returns the thread of the kubelet that has waited longest for a fanotify permission listener at one of the pod's volumes, and
// the name of that volume. A thread that only counts the volume's files is left out. So is a thread that may not be the one that tears the volume
// down, if the kubelet's attempts at the volume fail at the same time.
func kubeletAwaitsScanner(p *fact.View) (first *evidence.Task, volume string) {
	for i := range p.Node.Kubelet.Blocked {
		t := &p.Node.Kubelet.Blocked[i]
		if !fact.BusyWithVolume(p, t) || !t.AwaitsScanner() || first != nil && !t.UnchangedSince.Before(first.UnchangedSince) {
			continue
		}
		plugin, name := volumeOfPath(t.Probe.VolumePath)
		if name == "" || !t.Probe.Relative && (slices.Contains(countedPlugins, plugin) || failedMeanwhile(p, t, plugin, name)) {
			continue
		}
		first, volume = t, name
	}
	return first, volume
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

// runtimeAwaitsScanner returns the process that has waited longest for a fanotify permission listener, of those without which the pod is not
// stopped:
//   - a command that the pod's shim has started, such as runc, also one that is yet to be executed;
//   - a CNI plugin, which tears the pod's network down;
//   - a thread of gVisor, which a program of the pod waits for.
//
// What is to be executed in a live container, such as a probe, holds nothing up. Neither does a kill of a container that has been killed.
func runtimeAwaitsScanner(p *fact.View) *evidence.Task {
	var first *evidence.Task
	look := func(tasks []evidence.Task, counts func(*evidence.Task) bool) {
		for i := range tasks {
			t := &tasks[i]
			if t.AwaitsScanner() && counts(t) && (first == nil || t.UnchangedSince.Before(first.UnchangedSince)) {
				first = t
			}
		}
	}
	all := func(*evidence.Task) bool { return true }
	for i := range p.RuntimeCommands {
		c := &p.RuntimeCommands[i]
		lives := slices.ContainsFunc(p.Tasks, func(t evidence.Task) bool { return t.Container == c.Container })
		if !c.Left && (c.Command != "exec" || !lives) && !p.KillsInVain(c) {
			look(c.Tasks, all)
		}
	}
	look(p.Plugins, all)
	look(p.Tasks, func(t *evidence.Task) bool { return !t.Killed() && fact.OfGVisor(p, t) })
	if shims := fact.Shims(p); len(shims) == 1 && shims[0].Owner == "shim" { // else which of them is the pod's is not known
		// What has come out of a container is in a process group of its own. A shim is the leader of its group (newCommand,
		// cmd/containerd-shim-runc-v2/manager/manager_linux.go).
		look(p.Node.Blocked, func(t *evidence.Task) bool {
			return t.PPID == shims[0].PID && t.Probe.Group == shims[0].PID && !t.InPod()
		})
	}
	return first
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
