package scenario

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
)

// condition is the type of the condition that the agent writes.
const condition corev1.PodConditionType = "nodeagent.io/TerminationBlocked"

// patience is how long a step may take on a slow, emulated node, where a normal
// termination can take a minute when many pods come and go at once.
const patience = 5 * time.Minute

// A Run is one scenario on a cluster.
type Run struct {
	Scenario
	Cluster *Cluster
	Pod     *corev1.Pod
	// Deleted is when the deletion was asked for, Deadline the first
	// deletionTimestamp.
	Deleted, Deadline time.Time
	// Told is when the right verdict stood on the pod, Evented when its Event
	// was there.
	Told, Evented time.Time
	// Wrong lists the other verdicts that were seen on the pod.
	Wrong []string
}

// Start prepares the node, creates the pod and breaks it when it runs.
func (r *Run) Start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	p := r.Manifest(r.Cluster.Node)
	if r.Prepare != nil {
		if err := r.Prepare(ctx, r.Cluster, p); err != nil {
			return fmt.Errorf("prepare %s: %w", r.Name, err)
		}
	}
	pods := r.Cluster.API.CoreV1().Pods(Namespace)
	if _, err := pods.Create(ctx, p, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create pod: %w", err)
	}
	err := Until(ctx, "pod "+r.Name+" to run", func() (bool, string) {
		var err error
		if r.Pod, err = r.Cluster.Pod(ctx, Namespace, r.Name); err != nil {
			return false, err.Error()
		}
		for _, s := range r.Pod.Status.ContainerStatuses {
			if s.State.Running == nil {
				return false, fmt.Sprintf("container %s: %+v", s.Name, s.State)
			}
		}
		return r.Pod.Status.Phase == corev1.PodRunning, "phase " + string(r.Pod.Status.Phase)
	})
	if err != nil {
		return err
	}
	if r.Break != nil {
		if err := r.Break(ctx, r.Cluster, r.Pod); err != nil {
			return fmt.Errorf("break %s: %w", r.Name, err)
		}
	}
	return nil
}

// Delete asks for the pod's deletion and proves that the fault is there.
func (r *Run) Delete(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	r.Deleted = time.Now()
	if err := r.Cluster.API.CoreV1().Pods(Namespace).Delete(ctx, r.Name, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("delete pod: %w", err)
	}
	p, err := r.Cluster.Pod(ctx, Namespace, r.Name)
	if err != nil {
		return fmt.Errorf("read deleted pod: %w", err)
	}
	r.Pod, r.Deadline = p, p.DeletionTimestamp.Time
	if r.Proof == "" {
		return nil
	}
	return Until(ctx, r.Name+": the fault to be there", func() (bool, string) {
		_, err := r.Cluster.Exec(ctx, ForPod(r.Proof, r.Pod))
		return err == nil, fmt.Sprint(err)
	})
}

// AwaitVerdict waits until the right verdict stands on the pod, in the
// condition and in an Event. Other verdicts that it sees are remembered.
func (r *Run) AwaitVerdict(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return Until(ctx, r.Name+": verdict "+r.Cause, func() (bool, string) {
		c, err := r.condition(ctx)
		if err != nil {
			return false, err.Error()
		}
		if c == nil || c.Status != corev1.ConditionTrue {
			return false, "no verdict"
		}
		if c.Reason != r.Cause {
			r.wrong(c.Reason + ": " + c.Message)
			return false, c.Reason + ": " + c.Message
		}
		if r.Told.IsZero() {
			r.Told = time.Now()
		}
		events, err := r.Events(ctx)
		if err != nil {
			return false, err.Error()
		}
		for _, e := range events {
			if e.Reason == r.Cause {
				r.Evented = time.Now()
				return true, ""
			}
		}
		return false, "the condition is there, its Event is not"
	})
}

// AwaitEvent waits for the Event with the right verdict; the pod may have gone.
func (r *Run) AwaitEvent(ctx context.Context) (ev eventsv1.Event, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err = Until(ctx, r.Name+": Event "+r.Cause, func() (bool, string) {
		events, err := r.Events(ctx)
		if err != nil {
			return false, err.Error()
		}
		for _, ev = range events {
			if ev.Reason == r.Cause {
				r.Evented = time.Now()
				return true, ""
			}
		}
		return false, fmt.Sprintf("%d other Events", len(events))
	})
	return ev, err
}

func (r *Run) wrong(verdict string) {
	for _, w := range r.Wrong {
		if w == verdict {
			return
		}
	}
	r.Wrong = append(r.Wrong, verdict)
}

// condition is the agent's condition on the pod, nil when it has none.
func (r *Run) condition(ctx context.Context) (*corev1.PodCondition, error) {
	p, err := r.Cluster.Pod(ctx, Namespace, r.Name)
	if err != nil {
		return nil, err
	}
	return Condition(p), nil
}

// Condition is the agent's condition on a pod, nil when it has none.
func Condition(p *corev1.Pod) *corev1.PodCondition {
	for i := range p.Status.Conditions {
		if p.Status.Conditions[i].Type == condition {
			return &p.Status.Conditions[i]
		}
	}
	return nil
}

// Events are those that the agent wrote about the pod.
func (r *Run) Events(ctx context.Context) ([]eventsv1.Event, error) {
	list, err := r.Cluster.API.EventsV1().Events(Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("regarding.uid", string(r.Pod.UID)).String(),
	})
	if err != nil {
		return nil, err
	}
	var out []eventsv1.Event
	for _, e := range list.Items {
		if strings.HasPrefix(e.ReportingController, "nodeagent.io/") {
			out = append(out, e)
		}
	}
	return out, nil
}

// Mend heals the fault and waits until the pod is gone.
func (r *Run) Mend(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if r.Heal != nil {
		if err := r.Heal(ctx, r.Cluster, r.Pod); err != nil {
			return fmt.Errorf("heal %s: %w", r.Name, err)
		}
	}
	return Until(ctx, r.Name+" to go away", func() (bool, string) {
		p, err := r.Cluster.Pod(ctx, Namespace, r.Name)
		switch {
		case apierrors.IsNotFound(err) || err == nil && p.UID != r.Pod.UID:
			return true, ""
		case err != nil:
			return false, err.Error()
		}
		if c := Condition(p); c != nil && c.Status == corev1.ConditionTrue && c.Reason != r.Cause {
			r.wrong(c.Reason + ": " + c.Message)
		}
		return false, "phase " + string(p.Status.Phase)
	})
}

// Discard heals and force-deletes what a failed run may have left, so that it
// harms no other.
func (r *Run) Discard(ctx context.Context) error {
	var errs []error
	if r.Heal != nil && r.Pod != nil {
		errs = append(errs, r.Heal(ctx, r.Cluster, r.Pod))
	}
	err := r.Cluster.API.CoreV1().Pods(Namespace).Delete(ctx, r.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
	if err != nil && !apierrors.IsNotFound(err) {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
