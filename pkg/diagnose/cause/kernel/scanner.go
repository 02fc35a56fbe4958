package kernel

import (
	"slices"
	"strings"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// countedPlugins are the kubelet's plugins of volumes whose files it counts one by one now and then (NewMetricsDu in pkg/volume):
// it opens their directories by absolute paths, and those in which it deletes from the one above.
var countedPlugins = []string{
	"kubernetes.io~empty-dir", "kubernetes.io~configmap", "kubernetes.io~secret", "kubernetes.io~projected", "kubernetes.io~downward-api", "kubernetes.io~git-repo",
}

// kubeletAwaitsScanner returns a thread of the kubelet that waits for a program that scans files, at one of the
// pod's volumes, whose name is returned too; of several the one that has waited for the longest time. One that only counts the
// volume's files is left out. Of one that may not be what takes the volume down, and that is at a volume of which the
// kubelet fails to do so meanwhile, nothing is known.
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

// failedMeanwhile reports whether the kubelet has counted a failed attempt at a volume, or at one that may be it, while a
// thread of its waited.
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

// runtimeAwaitsScanner returns a process that waits for a program that scans files, and without which the pod is not
// stopped: a command that the pod's shim has started, such as runc, also one that is yet to be executed; or a CNI plugin,
// which takes down the pod's network; or a thread of gVisor's, which a program of the pod waits for. Of several it is the
// one that has waited for the longest time. What is to be executed in a container that lives, such as a probe, holds nothing up,
// and neither does what is to kill one that has been killed.
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

// scannerSilentForLong reports whether a task has waited for a program that scans files for so long that it
// is not merely slow. Each of its answers, whoever it is for, wakes all that wait for one (process_access_response,
// fs/notify/fanotify/fanotify_user.c), so in that time it has given none. Where all such programs of the node are
// stopped, ten seconds tell.
func scannerSilentForLong(p *fact.View, t *evidence.Task) bool {
	patience := fact.Fanotify.With(p)
	if scannersHalted(p) {
		patience = fact.SlowDevice
	}
	return t.Unchanged(p.Time) >= patience
}

// heldAfter is for how long commands that end a pod must have waited for a program that scans files, the one after the other, without
// a sign of an answer, for it to hold them: longer than the kubelet gives two of its tries to stop a container
// (runtimeRequestTimeout). leastWaits is how many looks must have shown it.
const (
	heldAfter  = 5 * time.Minute
	leastWaits = 5
)

// scannerHolds reports whether the pod's end does not get on because of a program that scans files and answers nobody, though each
// command that waits for it is killed before that has lasted: in minutes no look shows a sign of an answer, and no container has
// ended. What a thread of gVisor's waits for shows nothing of it.
func scannerHolds(p *fact.View) bool {
	w := &p.ScannerWaits
	t := runtimeAwaitsScanner(p)
	return !w.UnansweredSince.IsZero() && w.Last.Sub(w.UnansweredSince) >= heldAfter && w.Waits >= leastWaits && !scannersHalted(p) &&
		(t == nil || !fact.OfGVisor(p, t))
}

// scannedUntil returns until when the pod's end may be held by such a program, which takes minutes to see, or may be again with
// the next try: the pauses before those to delete a container double. While the kubelet may not have had the time to have the pod
// killed, nothing is told of such a program. It is zero when it is not so.
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

// scannersHalted reports whether the programs of the node that scan files are known, and all of them are stopped by a signal.
func scannersHalted(p *fact.View) bool {
	all := p.Node.Scanners
	return len(all) > 0 && p.Node.ScannersError == "" && !slices.ContainsFunc(all, func(t evidence.Task) bool {
		return t.State != evidence.Stopped || t.Unchanged(p.Time) < fact.LeastStill // SIGCONT does not free what a tracer holds
	})
}
