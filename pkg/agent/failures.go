package agent

import (
	"cmp"
	"context"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// AskFailures asks for the Events in which the kubelet says why it could not stop a
// pod; (*kube.Client).KillFailures is one.
type AskFailures func(ctx context.Context, namespace string, uid types.UID) ([]eventsv1.Event, error)

// When the Events about a pod are asked for: the kubelet's first failure is not there
// before askAfter, and one that goes on is asked about less often.
const (
	askAfter     = 10 * time.Second // past the deadline
	askEach      = 15 * time.Second
	askEachLate  = time.Minute
	askLate      = 3 * time.Minute // past the deadline
	failuresTime = 3 * time.Second // for one answer
)

// Failures knows what the kubelet has said of why it could not stop a pod.
//
// Whoever may create Events in a namespace can forge one. So a rule believes an Event only together with what the node
// shows: the number of the sandbox, that it has ended, and that no process lives. Strangers do not know that number,
// but the pod itself reads it in its own mountinfo. A tenant can have a wrong error reported, in quotation marks, about
// its own pod that hangs there, and nothing about one that does not. Where such an Event would accuse a process of the
// node, the cause is inferred (ImageVolumeUnmountBusy).
//
// The kubelet can create no Event in a namespace that is being deleted. A pod there, held by what only an Event shows,
// is Unknown.
type Failures struct {
	Ask AskFailures
	// AskAll asks for all that the kubelet says of a pod whose start may wait for an image; nil is not
	// asked.
	AskAll AskEvents
	// Skew is as in Agent; nil is allowed.
	Skew func() (least, most time.Duration, ok bool)
	// Node is whose kubelet is listened to.
	Node string

	// present returns a time of the kubelet's by the clock as it is now; nil is by the same.
	present func(time.Time) time.Time

	mu    sync.Mutex
	known map[types.UID]answer
	pulls map[types.UID]answer
}

// An answer is what the API server had about a pod, and when it was asked.
type answer struct {
	asked    time.Time
	failures []evidence.KillFailure
	pulls    []evidence.Pull
	err      error
}

// Of returns the failures to stop a pod that the kubelet has told of since the
// deletion was requested, the last first: none before the pod is well overdue, or when
// its containers have ended by what the kubelet says. It asks the API server at most
// every quarter of a minute about a pod.
func (f *Failures) Of(ctx context.Context, p *corev1.Pod) ([]evidence.KillFailure, error) {
	now, ahead := time.Now(), f.ahead()
	if p.DeletionTimestamp == nil || now.Add(ahead).Sub(p.DeletionTimestamp.Time) < askAfter ||
		p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return nil, nil
	}
	each := askEach
	if now.Add(ahead).Sub(p.DeletionTimestamp.Time) > askLate {
		each = askEachLate
	}
	return f.within(ctx, p, each)
}

// InGrace is Of for a pod inside its grace period about which something is about to be told: a
// runtime that could not send the stop signal has said so then.
func (f *Failures) InGrace(ctx context.Context, p *corev1.Pod) ([]evidence.KillFailure, error) {
	return f.within(ctx, p, askEach)
}

// within returns what was heard about a pod, no longer ago than that, and asks otherwise.
func (f *Failures) within(ctx context.Context, p *corev1.Pod, each time.Duration) ([]evidence.KillFailure, error) {
	f.mu.Lock()
	a, ok := f.known[p.UID]
	f.mu.Unlock()
	if ok && time.Since(a.asked) < each {
		return a.failures, a.err
	}
	a = f.ask(ctx, p, Seed(p).DeletionRequested.Add(-f.ahead()))
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.known == nil {
		f.known = make(map[types.UID]answer)
	}
	f.known[p.UID] = a
	return a.failures, a.err
}

// ahead is how far the API server's clock, by which it writes a pod's deadline, is ahead of the node's; 0
// where that is not known.
func (f *Failures) ahead() time.Duration {
	if f.Skew == nil {
		return 0
	}
	least, most, _ := f.Skew()
	return (least + most) / 2
}

// Last returns the failures to stop a pod that is gone that the kubelet has told of since
// its deletion was requested. It asks the API server.
func (f *Failures) Last(ctx context.Context, p *corev1.Pod, requested time.Time) ([]evidence.KillFailure, error) {
	a := f.ask(ctx, p, requested)
	return a.failures, a.err
}

func (f *Failures) ask(ctx context.Context, p *corev1.Pod, requested time.Time) answer {
	now := time.Now()
	ctx, cancel := context.WithTimeout(ctx, failuresTime)
	defer cancel()
	events, err := f.Ask(ctx, p.Namespace, p.UID)
	f.toPresent(events)
	return answer{asked: now, failures: killFailures(events, f.Node, requested), err: err}
}

// toPresent has the times of Events be by the clock as it is now.
func (f *Failures) toPresent(events []eventsv1.Event) {
	if f.present == nil {
		return
	}
	for i := range events {
		e := &events[i]
		for _, t := range []*time.Time{&e.DeprecatedFirstTimestamp.Time, &e.DeprecatedLastTimestamp.Time, &e.EventTime.Time} {
			*t = f.present(*t)
		}
		if e.Series != nil {
			e.Series.LastObservedTime.Time = f.present(e.Series.LastObservedTime.Time)
		}
	}
}

// afterStep has the times that were heard be by the clock as it is now, which was set forward by step.
func (f *Failures) afterStep(step time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for uid, a := range f.known {
		a.failures = slices.Clone(a.failures)
		for i := range a.failures {
			a.failures[i].First, a.failures[i].Last = a.failures[i].First.Add(step), a.failures[i].Last.Add(step)
		}
		f.known[uid] = a
	}
	for uid, a := range f.pulls {
		a.pulls = slices.Clone(a.pulls)
		for i := range a.pulls {
			a.pulls[i].Since = a.pulls[i].Since.Add(step)
		}
		f.pulls[uid] = a
	}
}

// forget forgets the pods that are not here any more.
func (f *Failures) forget(here map[string]bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for uid := range f.known {
		if !here[string(uid)] {
			delete(f.known, uid)
		}
	}
	for uid := range f.pulls {
		if !here[string(uid)] {
			delete(f.pulls, uid)
		}
	}
}

// maxKept is how many failures of a pod are kept: the kubelet tells the same one
// again and again, in one Event.
const maxKept = 8

// ofSandbox is how the kubelet begins to tell why it could not stop a pod's sandbox.
const ofSandbox = `failed to "KillPodSandbox" for `

// killFailures returns the failures that a node's kubelet has told of since a moment. It tells whole seconds.
// Before why the sandbox could not be stopped it tells why each container could not, in the order in which they
// failed: that is left out, so that the same is not taken for several, and is not beyond what is kept.
func killFailures(events []eventsv1.Event, node string, since time.Time) []evidence.KillFailure {
	var out []evidence.KillFailure
	since = since.Truncate(time.Second)
	for i := range events {
		e := &events[i]
		if e.DeprecatedSource.Host != node && e.ReportingInstance != node {
			continue
		}
		note := e.Note
		if i := strings.Index(note, ofSandbox); i >= 0 {
			note = note[i:]
		}
		f := evidence.KillFailure{First: e.DeprecatedFirstTimestamp.Time, Last: e.DeprecatedLastTimestamp.Time,
			Count: max(1, int(e.DeprecatedCount)), Text: withoutSecrets(note)}
		if e.Series != nil {
			f.Count, f.Last = max(f.Count, int(e.Series.Count)), e.Series.LastObservedTime.Time
		}
		if f.First.IsZero() {
			f.First = e.EventTime.Time
		}
		if f.Last.IsZero() {
			f.Last = f.First
		}
		if f.Last.Before(since) {
			continue
		}
		if i := slices.IndexFunc(out, func(o evidence.KillFailure) bool { return o.Text == f.Text }); i >= 0 {
			o := &out[i]
			o.Count += f.Count
			if f.First.Before(o.First) {
				o.First = f.First
			}
			if f.Last.After(o.Last) {
				o.Last = f.Last
			}
			continue
		}
		out = append(out, f)
	}
	slices.SortFunc(out, func(a, b evidence.KillFailure) int {
		return cmp.Or(b.Last.Compare(a.Last), cmp.Compare(a.Text, b.Text))
	})
	return out[:min(len(out), maxKept)]
}

// maxNote is how much the API server takes of an Event's note, in bytes.
const maxNote = 1024

// secrets are what an error text may hold and must not be passed on: credentials in an
// address, what stands behind a name of one (in quotation marks, which may be escaped
// and escaped again; behind an equals sign; and as a word long enough to be one, since
// "token: expired" is none), keys, and tokens (RFC 7519). What the first two groups of
// each match is kept.
var secrets = []*regexp.Regexp{
	regexp.MustCompile(`(://)[^/@\s"]+(@)`),
	regexp.MustCompile(`(` + secretName + `[\\"']*\s*[:=]\s*\\*["'](?:(?i:basic|bearer|negotiate)\s+)?)[^"'\\]+()`),
	regexp.MustCompile(`(` + secretName + `=)[^\s\\"'&,;]+()`),
	regexp.MustCompile(`(` + secretName + `[\\"']*\s*[:=]?\s*(?:(?i:basic|bearer|negotiate)\s+)?)[A-Za-z0-9+/_.~%=-]{8,}()`),
	regexp.MustCompile(`()eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_.-]*()`),
	regexp.MustCompile(`()-----BEGIN [A-Z ]*PRIVATE KEY-----.*()`),
}

const secretName = `(?i:basic|bearer|negotiate|token|password|passwd|passphrase|pwd|secret|(?:api|access|private|account)[_-]?key|signature|\bsig|authorization)`

// withoutSecrets returns a text without what looks like a secret.
func withoutSecrets(text string) string {
	if len(text) > maxNote {
		text = strings.ToValidUTF8(text[:maxNote], "")
	}
	for _, s := range secrets {
		text = s.ReplaceAllString(text, "${1}REDACTED${2}")
	}
	return text
}
