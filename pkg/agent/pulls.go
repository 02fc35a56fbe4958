package agent

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// AskEvents asks for all Events of kubelets about a pod; (*kube.Client).KubeletEvents is one.
type AskEvents func(ctx context.Context, namespace string, uid types.UID) ([]eventsv1.Event, error)

// Pulls returns the pulls of images for a pod of which the kubelet has told no end: none before the pod
// is well overdue, or when no container waits. It asks the API server as often as Of does.
func (f *Failures) Pulls(ctx context.Context, p *corev1.Pod) ([]evidence.Pull, error) {
	now, ahead := time.Now(), f.ahead()
	if f.AskAll == nil || p.DeletionTimestamp == nil || now.Add(ahead).Sub(p.DeletionTimestamp.Time) < askAfter || !mayPull(p) {
		return nil, nil
	}
	each := askEach
	if now.Add(ahead).Sub(p.DeletionTimestamp.Time) > askLate {
		each = askEachLate
	}
	f.mu.Lock()
	a, ok := f.pulls[p.UID]
	f.mu.Unlock()
	if ok && now.Sub(a.asked) < each {
		return a.pulls, a.err
	}
	ctx, cancel := context.WithTimeout(ctx, failuresTime)
	defer cancel()
	events, err := f.AskAll(ctx, p.Namespace, p.UID)
	f.toPresent(events)
	a = answer{asked: now, pulls: ofPod(pulls(a.pulls, events, f.Node), p), err: err}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.pulls == nil {
		f.pulls = make(map[types.UID]answer)
	}
	f.pulls[p.UID] = a
	return a.pulls, a.err
}

// ofPod returns those pulls that are for a container of the pod, or for a volume. Whoever may create Events, and
// delete them, can tell of one container after the other; what was told of is kept for as long as the pod is there.
func ofPod(all []evidence.Pull, p *corev1.Pod) []evidence.Pull {
	return slices.DeleteFunc(all, func(pull evidence.Pull) bool {
		is := func(c corev1.Container) bool { return c.Name == pull.Container }
		return pull.Container != "" && !slices.ContainsFunc(p.Spec.InitContainers, is) && !slices.ContainsFunc(p.Spec.Containers, is)
	})
}

// What the kubelet's Events say of images and of containers (pkg/kubelet/events/event.go). Those that
// follow a pull are all others about a container; Killing is said of any container only when
// no pull for the pod is under way. Of a volume's image they say it of the whole pod, and all others but
// the pod's own come when there is no such pull any more (getImageVolumes,
// pkg/kubelet/kuberuntime/kuberuntime_manager.go).
const (
	pulling = "Pulling"
	killing = "Killing"
)

// The container that an Event is about, and the image of one that says Pulling
// (pkg/kubelet/images/image_manager.go).
var (
	ofContainer = regexp.MustCompile(`^spec\.(?:initContainers|containers)\{([a-z0-9-]{1,63})\}$`)
	ofImage     = regexp.MustCompile(`^Pulling image "([^"]+)"$`)
)

// pulls returns the pulls that a node's kubelet has begun and not ended, the oldest first. before are those
// that it had begun when it was asked last: Events are kept for an hour.
func pulls(before []evidence.Pull, events []eventsv1.Event, node string) []evidence.Pull {
	begun, ended := map[string]evidence.Pull{}, map[string]time.Time{}
	for _, pull := range before {
		begun[pull.Container] = pull
	}
	var killed time.Time
	for i := range events {
		e := &events[i]
		if e.DeprecatedSource.Host != node && e.ReportingInstance != node {
			continue
		}
		last := e.DeprecatedLastTimestamp.Time
		if e.Series != nil {
			last = e.Series.LastObservedTime.Time
		}
		if last.IsZero() {
			last = e.EventTime.Time
		}
		if e.Reason == killing && last.After(killed) {
			killed = last
		}
		name := ""
		if m := ofContainer.FindStringSubmatch(e.Regarding.FieldPath); m != nil {
			name = m[1]
		} else if e.Regarding.FieldPath != "" {
			continue
		}
		if e.Reason != pulling && last.After(ended[name]) {
			ended[name] = last
		}
		if name != "" && last.After(ended[""]) {
			ended[""] = last
		}
		if e.Reason != pulling {
			continue
		}
		if last.After(begun[name].Since) {
			pull := evidence.Pull{Container: name, Since: last}
			if m := ofImage.FindStringSubmatch(e.Note); m != nil {
				pull.Image = withoutSecrets(m[1])
			}
			begun[name] = pull
		}
	}
	var out []evidence.Pull
	for name, pull := range begun {
		// Times are in whole seconds: what was said in the same one may be the end.
		if ended[name].Before(pull.Since) && killed.Before(pull.Since) {
			out = append(out, pull)
		}
	}
	slices.SortFunc(out, func(a, b evidence.Pull) int {
		if c := a.Since.Compare(b.Since); c != 0 {
			return c
		}
		return strings.Compare(a.Container, b.Container)
	})
	return out
}
