package scenario

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodeagent-io/nodeagent/test/bed"
)

// forced lists what a force delete is asked about.
func forced() []bed.Scenario {
	return []bed.Scenario{forcedAndGone(), setReplaced()}
}

// The reasons of the agent's Events on a node about what deleted pods have left there.
const (
	deletedPodRemains = "DeletedPodRemains"
	orphanedPod       = "OrphanedPod"
)

// forcedAndStuck is a pod that nobody can stop, and whose object is deleted in spite of
// what its Event says.
func forcedAndStuck() bed.Scenario {
	s := shimStopped()
	s.Name = "forced-and-stuck"
	s.Story = "a pod whose shim is stopped is deleted by force, and goes on running"
	s.Says = append(s.Says, "Force delete: no, process victim of container main is still running")
	s.Force = "no"
	goOn := s.Heal
	s.Heal = func(ctx context.Context, n *bed.Node, p *corev1.Pod) error {
		err := forceDelete(ctx, n, p)
		for _, reason := range []string{deletedPodRemains, orphanedPod} {
			if err == nil {
				err = n.Await(ctx, "the Event "+reason+" about "+p.Name, func() (bool, string) {
					note, err := remains(ctx, n, p, reason)
					return strings.Contains(note, "process victim "), fmt.Sprint(note, err)
				})
			}
		}
		return errors.Join(err, goOn(ctx, n, p))
	}
	return s
}

// forcedAndGone is the twin of that: the kubelet kills the pod, though its grace period
// is long.
func forcedAndGone() bed.Scenario {
	s := ignoresTERM("forced-and-gone", bed.BusyboxImage, "sh")
	s.Story = "a pod that ignores its stop signal is deleted by force, and is killed"
	s.Heal = func(ctx context.Context, n *bed.Node, p *corev1.Pod) error {
		// On a busy node it may be over before that.
		if err := forceDelete(ctx, n, p); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		return noRemains(ctx, n, p)
	}
	return s
}

// forcedWithoutKubelet is a pod that is deleted by force while the kubelet is stopped by a
// signal. The kubelet that is started in its place does not know the pod, and ends it.
func forcedWithoutKubelet() bed.Scenario {
	s := kubeletStopped()
	s.Name = "forced-without-kubelet"
	s.Story = "a pod is deleted by force while the kubelet is stopped, and the kubelet is then started anew"
	s.Says = append(s.Says, "Force delete: no, process victim of container main is still running")
	s.Heal = func(ctx context.Context, n *bed.Node, p *corev1.Pod) error {
		err := forceDelete(ctx, n, p)
		if err == nil {
			err = n.Await(ctx, "the Event "+orphanedPod+" about "+p.Name, func() (bool, string) {
				note, err := remains(ctx, n, p, orphanedPod)
				return strings.Contains(note, "process victim "), fmt.Sprint(note, err)
			})
		}
		_, killed := n.Exec(ctx, n.Script("kill -KILL $(pgrep -o -x kubelet)", p))
		if err = errors.Join(err, killed); err != nil {
			return err
		}
		return n.Await(ctx, "no orphan with a process on "+n.Name, func() (bool, string) {
			metrics, err := n.Metrics(ctx)
			return strings.Contains(metrics, `nodeagent_orphaned{kind="process"} 0`), fmt.Sprint(err)
		})
	}
	return s
}

// pause waits for so long, or until the context ends.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// forceDelete does what kubectl delete --force --grace-period=0 does.
func forceDelete(ctx context.Context, n *bed.Node, p *corev1.Pod) error {
	uid, none := p.UID, int64(0)
	return n.API.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: &none, Preconditions: &metav1.Preconditions{UID: &uid}})
}

// remains returns what the agent's Event of a reason says, on the node, of what a
// deleted pod has left there.
func remains(ctx context.Context, n *bed.Node, p *corev1.Pod, reason string) (string, error) {
	list, err := n.API.EventsV1().Events(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{FieldSelector: "regarding.kind=Node,reason=" + reason})
	if err != nil {
		return "", err
	}
	for i := range list.Items {
		if e := &list.Items[i]; e.Regarding.Name == n.Name && strings.Contains(e.Note, string(p.UID)) {
			return e.Note, nil
		}
	}
	return "", nil
}

// noRemains returns an error if the agent says on the node that something is left of a pod that
// is gone. It waits before as long as the agent does until it looks a second time, and its rounds are apart.
func noRemains(ctx context.Context, n *bed.Node, p *corev1.Pod) error {
	if err := pause(ctx, 40*time.Second); err != nil {
		return err
	}
	for _, reason := range []string{deletedPodRemains, orphanedPod} {
		if note, err := remains(ctx, n, p, reason); note != "" || err != nil {
			return errors.Join(fmt.Errorf("the agent says of a pod that is gone (UID %s): %q", p.UID, note), err)
		}
	}
	return nil
}

// answers is a step that waits until the pod's condition says of a force delete what it has to:
// a source that could not be read in one reading is read in another.
func answers(text string) bed.Step {
	return func(ctx context.Context, n *bed.Node, p *corev1.Pod) error {
		return n.Await(ctx, "the condition of "+p.Name+" to say "+text, func() (bool, string) {
			now, err := n.Pod(ctx, p.Namespace, p.Name)
			if err != nil {
				return false, err.Error()
			}
			c := bed.Condition(now)
			return c != nil && strings.Contains(c.Message, text), fmt.Sprintf("%+v", c)
		})
	}
}
