package agent

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/node"
	"github.com/nodeagent-io/nodeagent/pkg/verdict"
)

const (
	// remainsAfter is how long after a pod's object is deleted nothing of the pod is left
	// on the node any more. The kubelet kills a pod that was deleted by force within two
	// seconds, when its loop comes round (housekeeping, pkg/kubelet/kubelet.go), and takes down
	// its volumes and its group in some more.
	remainsAfter = 15 * time.Second
	// remainsPatience is after how long what is left is told, when two looks have found it: one may find a kubelet
	// that is only late, and is late itself then. remainsStarved is the same on a node that has been short of processors,
	// memory or I/O since the deletion, or of which that is not known. It is looked at each remainsAfter until then.
	remainsPatience = 2 * remainsAfter
	remainsStarved  = time.Minute
	// maxDeleted is how many pods are waited for at a time, and maxRecord how long the
	// record of one may be in the log, in bytes.
	maxDeleted = 64
	maxRecord  = 15 << 10
	// lateBy is how far past its deadline a pod was whose last reading is kept in the log.
	// Of those that SIGKILL ends there may be thousands.
	lateBy = 10 * time.Second
)

// A deleted is a pod on which a verdict stood when its object was deleted.
type deleted struct {
	subject verdict.Subject
	cause   string
	seed    *evidence.Pod // for a reading; the last one itself may be large
	at      time.Time     // when it was seen to be deleted
	due     time.Time     // when it is to be looked at
	left    bool          // whether a look has found something of it
	lost    bool          // whether a look at it was given up
}

// outlives takes note of a pod that is gone and on which a verdict stood, and has its
// last reading logged: it is all that will be known of it. A look at it is not under
// way.
func (a *Agent) outlives(c *verdict.Case, now time.Time) {
	stood := c.Standing()
	if stood.Cause == "" || c.Last == nil {
		return
	}
	d := deleted{subject: c.Subject, cause: stood.Cause, seed: afterwards(c.Last, now), at: now, due: now.Add(remainsAfter)}
	log := a.Log.With("namespace", stood.Namespace, "pod", stood.Name, "uid", stood.UID, "cause", stood.Cause)
	if c.Last.Overdue() >= lateBy && a.records.Allow(d.subject, &diagnose.Finding{Cause: d.cause}, now) {
		log.Info("pod with a verdict was deleted; evidence is its last reading, as printed by nodeagent capture", "evidence", evidence.Line(c.Last, maxRecord))
	}
	if len(a.deleted) >= maxDeleted || c.Last.Mirror {
		a.Monitor.Deleted(d.cause, verdict.EndedUnread)
		return
	}
	a.deleted = append(a.deleted, d)
}

// remainsDue returns the deleted pods that are to be read once more, and forgets them.
func (a *Agent) remainsDue(now time.Time) []deleted {
	a.mu.Lock()
	a.deleted, a.again = append(a.deleted, a.again...), nil
	a.mu.Unlock()
	var due []deleted
	a.deleted = slices.DeleteFunc(a.deleted, func(d deleted) bool {
		if now.Before(d.due) {
			return false
		}
		due = append(due, d)
		return true
	})
	return due
}

// named returns a pod of which nothing but its names is known.
func named(s verdict.Subject) *corev1.Pod {
	p := new(corev1.Pod)
	p.Namespace, p.Name, p.UID = s.Namespace, s.Name, types.UID(s.UID)
	return p
}

// afterwards starts the evidence about a pod whose object is deleted, by the last reading of
// it. It is overdue, whenever its deadline was.
func afterwards(l *evidence.Pod, now time.Time) *evidence.Pod {
	e := &evidence.Pod{
		Namespace: l.Namespace, Name: l.Name, UID: l.UID, RuntimeUID: l.RuntimeUID, HostPID: l.HostPID, ShareProcessNamespace: l.ShareProcessNamespace,
		StatefulSet: l.StatefulSet, Phase: l.Phase, Gone: true, DeletionRequested: l.DeletionRequested, Deadline: l.Deadline, Skew: l.Skew, Seen: l.Seen,
	}
	if now.Before(e.Deadline) {
		e.Deadline = now
	}
	for i := range l.Containers {
		if c := &l.Containers[i]; c.Kind != evidence.Sandbox {
			e.Containers = append(e.Containers, evidence.Container{Name: c.Name, Kind: c.Kind})
		}
	}
	return e
}

// lookAfter reads what is left of a deleted pod, and tells of it.
func (a *Agent) lookAfter(ctx context.Context, d *deleted, reading node.Round) {
	timed, cancel := context.WithTimeout(ctx, a.Timeout)
	defer cancel()
	e := reading.Pod(timed, d.seed, nil)
	if ctx.Err() != nil { // the agent ends, or the look was given up: it is repeated once
		if d.lost {
			a.Monitor.Deleted(d.cause, verdict.EndedUnread)
			return
		}
		d.lost = true
		a.lookAgain(d, time.Now())
		return
	}
	_, left, known := diagnose.Remains(e)
	patience := remainsPatience
	if pressure := e.Node.Pressure; pressure == nil || len(pressure.Scarce()) > 0 || pressure.StarvedUntil.After(d.at) {
		patience = remainsStarved
	}
	if left != "" && (!d.left || e.Time.Sub(d.at) < patience) {
		d.left = true
		a.lookAgain(d, e.Time)
		return
	}
	ending := verdict.EndedUnread
	switch {
	case left != "":
		ending = verdict.EndedLeft
	case known && diagnose.Visible(e):
		ending = verdict.EndedClean
	}
	a.Monitor.Deleted(d.cause, ending)
	if left == "" {
		return
	}
	told := a.remains.Allow(d.subject, &diagnose.Finding{Cause: diagnose.DeletedPodRemains}, e.Time)
	a.Log.Warn("deleted pod is not gone from the node", "namespace", e.Namespace, "pod", e.Name, "uid", e.UID, "cause", d.cause, "left", left, "heldBack", !told)
	if told && a.ReportRemains != nil {
		a.ReportRemains(ctx, d.subject, e.Time, d.cause, left)
	}
}

// lookAgain has a deleted pod looked at once more.
func (a *Agent) lookAgain(d *deleted, now time.Time) {
	d.due = now.Add(remainsAfter)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.again = append(a.again, *d)
}
