package agent

import (
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/node"
	"github.com/nodeagent-io/nodeagent/pkg/orphan"
	"github.com/nodeagent-io/nodeagent/pkg/verdict"
)

// Orphans looks for pods of which the kubelet has a directory and the API server no
// object. A search runs beside the loop, which only reads what it has found.
type Orphans struct {
	*orphan.Tracker
	// Each hands on the node's pods, as the API server has them now.
	Each func(ctx context.Context, each func(*corev1.Pod)) error
	// Report tells on the node what is left of an orphan.
	Report func(ctx context.Context, s verdict.Subject, t time.Time, left string)

	next     time.Time // of the next search
	underWay sync.Mutex

	mu    sync.Mutex
	found []orphan.Pod
}

// known returns the UIDs under which the node knows the pods that the API server has now.
func (o *Orphans) known(ctx context.Context) (map[string]bool, error) {
	uids := make(map[string]bool)
	err := o.Each(ctx, func(p *corev1.Pod) {
		uid, _ := runtimeUID(p)
		uids[string(p.UID)], uids[uid] = true, true
	})
	return uids, err
}

// searchEvery is the time between two searches, and searchWithin how long one may take.
const (
	searchEvery  = time.Minute
	searchWithin = 20 * time.Second
)

// search begins a search when it is time for it, and returns what the one before has
// found. all is nil while the pods are not known.
func (o *Orphans) search(ctx context.Context, from node.Source, all []*corev1.Pod, now time.Time, careful func(string, func()) func()) []orphan.Pod {
	if o == nil || all == nil {
		return nil
	}
	if !now.Before(o.next) && o.underWay.TryLock() {
		o.next = now.Add(min(searchEvery, max(o.After/2, time.Second)))
		pods := make([]orphan.Pod, 0, len(all))
		for _, p := range all {
			one := orphan.Pod{UID: string(p.UID), Namespace: p.Namespace, Name: p.Name}
			if g := p.Spec.TerminationGracePeriodSeconds; g != nil {
				one.Grace = time.Duration(*g) * time.Second
			}
			pods = append(pods, one)
		}
		go careful("the search for orphans", func() {
			defer o.underWay.Unlock()
			ctx, cancel := context.WithTimeout(ctx, searchWithin)
			defer cancel()
			o.look(ctx, from, pods, now)
		})()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	found := o.found
	o.found = nil
	return found
}

// look lists the directories, and asks the API server only when one may be an orphan's.
// What cannot be listed is not known.
func (o *Orphans) look(ctx context.Context, from node.Source, pods []orphan.Pod, now time.Time) {
	directories, err := from.PodDirs(ctx)
	if err != nil {
		return
	}
	due := o.Search(now, directories, pods)
	if len(due) == 0 {
		return
	}
	listed, err := o.known(ctx)
	if err != nil {
		return
	}
	found := o.Confirm(due, listed)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.found = found
}

// remainsKinds are the kinds of orphans by what is left of them.
var remainsKinds = map[diagnose.Reason]orphan.Kind{
	diagnose.ReasonProcess: orphan.Process, diagnose.ReasonLeftover: orphan.Process, diagnose.ReasonGroup: orphan.Process,
	diagnose.ReasonContainer: orphan.Process, diagnose.ReasonStarting: orphan.Process,
	diagnose.ReasonHolder: orphan.Volume, diagnose.ReasonVolume: orphan.Volume, diagnose.ReasonDevice: orphan.Volume,
	diagnose.ReasonUnmount: orphan.Volume, diagnose.ReasonLocal: orphan.Volume,
	diagnose.ReasonNetwork: orphan.Sandbox,
}

// emptyDir is the kubelet's plugin of volumes that are only files.
const emptyDir = "kubernetes.io~empty-dir"

// onlyFiles reports whether all that is left of a pod's volumes is files of its own on the
// node's disk. A kubelet that is well takes minutes to delete millions of them, and nobody
// else can be given them.
func onlyFiles(e *evidence.Pod) bool {
	return len(e.Mounts) == 0 && !slices.ContainsFunc(e.Volumes, func(v evidence.Volume) bool { return v.Plugin != emptyDir || v.Subpaths > 0 })
}

// lookAtOrphan reads what is left of an orphan.
func (a *Agent) lookAtOrphan(ctx context.Context, o orphan.Pod, reading node.Round) {
	timed, cancel := context.WithTimeout(ctx, a.Timeout)
	defer cancel()
	now := time.Now()
	e := reading.Pod(timed, &evidence.Pod{
		Namespace: o.Namespace, Name: o.Name, UID: o.UID, RuntimeUID: o.UID, Gone: true, Deadline: now.Add(-time.Minute), DeletionRequested: now.Add(-time.Minute),
	}, nil)
	if ctx.Err() != nil {
		return
	}
	var kind orphan.Kind
	reason, left, known := diagnose.Remains(e)
	switch {
	case reason == diagnose.ReasonLocal && onlyFiles(e):
		kind = orphan.Directory
	case reason != "":
		kind = remainsKinds[reason]
	case known:
		kind = orphan.Directory
	}
	if !a.Orphans.Read(o.UID, now, kind) {
		return
	}
	a.Log.Warn("pod is on the node but not in the API", "namespace", o.Namespace, "pod", o.Name, "uid", o.UID, "left", left, "kind", kind)
	a.Orphans.Report(ctx, verdict.Subject{Kind: verdict.Pod, Namespace: o.Namespace, Name: o.Name, UID: o.UID}, now, left)
}
