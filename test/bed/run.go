package bed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
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

// InGracePeriod is the reason of the condition of a pod that is not stuck.
const InGracePeriod = "InGracePeriod"

// ErrNoFault is a pod that went before its fault was there: nothing was broken,
// and nothing can be said of the agent.
var ErrNoFault = errors.New("the pod has gone without the fault")

// A Run is one scenario on a node.
type Run struct {
	Scenario
	Node *Node
	// Namespace is where the pod is, "" for the node's.
	Namespace string
	// Turn, when there is one, is told how long the pod takes to start.
	Turn *Turn
	Pod  *corev1.Pod
	// Deleted is when the deletion was asked for, Deadline the first
	// deletionTimestamp.
	Deleted, Deadline time.Time
	// Event has the right verdict, Evented is when it was seen.
	Event   eventsv1.Event
	Evented time.Time
	// Wrong lists the other verdicts that were seen on the pod.
	Wrong []string
	// Took is how long each of Steps took.
	Took map[string]time.Duration
}

// Steps are the parts of a run: what the node needs, the pod's start, its
// break, the fault's effect after the deletion, the verdict after that, the
// test's own checks, and the end of the pod when it is healed.
var Steps = []string{"prepare", "start", "break", "fault", "verdict", "check", "end"}

// Step does one of the Steps and notes how long it took.
func (r *Run) Step(name string, do func() error) error {
	begin := time.Now()
	err := do()
	if r.Took == nil {
		r.Took = map[string]time.Duration{}
	}
	r.Took[name] += time.Since(begin)
	return err
}

// Start prepares the node, creates the pod and breaks it when it runs. It
// refuses a node that does not offer what the scenario needs.
func (r *Run) Start(ctx context.Context) error {
	if lacks := r.Node.Lacks(r.Scenario); len(lacks) > 0 {
		return fmt.Errorf("%s needs %s, which %s does not offer", r.Name, lacks[0], r.Node.Name)
	}
	p := r.Manifest(r.Node)
	p.Namespace = cmp.Or(r.Namespace, p.Namespace)
	if err := r.Step("prepare", func() error { return do(ctx, r.Prepare, r.Node, p) }); err != nil {
		return fmt.Errorf("prepare %s: %w", r.Name, err)
	}
	if r.Turn != nil {
		r.Turn.starts()
	}
	if err := r.Step("start", func() error { return r.Create(ctx, p) }); err != nil {
		return err
	}
	if r.Turn != nil && !r.Starting {
		r.Turn.started(r.Took["start"])
	}
	breaks := func() error {
		if r.Break == nil {
			return nil
		}
		if !r.Starting {
			if err := OnNode(executed)(ctx, r.Node, r.Pod); err != nil {
				return fmt.Errorf("wait for the pod's programs: %w", err)
			}
		}
		return r.Break(ctx, r.Node, r.Pod)
	}
	if err := r.Step("break", breaks); err != nil {
		return fmt.Errorf("break %s: %w", r.Name, err)
	}
	if r.Turn != nil && r.Starting {
		r.Turn.started(r.Took["start"] + r.Took["break"])
	}
	return nil
}

func do(ctx context.Context, s Step, n *Node, p *corev1.Pod) error {
	if s == nil {
		return nil
	}
	return s(ctx, n, p)
}

// Create makes the pod and waits for what its start has to come to.
func (r *Run) Create(ctx context.Context, p *corev1.Pod) error {
	switch r.Made {
	case Static:
		return r.createStatic(ctx, p)
	case OfSet:
		return r.createSet(ctx, p)
	}
	made, err := r.Node.API.CoreV1().Pods(p.Namespace).Create(ctx, p, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("%w: an earlier run has left it; bin/cluster kubectl -n %s describe pod %s shows it, and make cluster-down "+
			"ends all of it", err, p.Namespace, p.Name)
	}
	if err != nil {
		return fmt.Errorf("create pod: %w", err)
	}
	r.Pod = made // on an error it is a pod without names
	return r.awaitRunning(ctx)
}

// awaitRunning waits until the pod runs.
func (r *Run) awaitRunning(ctx context.Context) error {
	return r.Node.Await(ctx, "pod "+r.Name+" to run", func() (bool, string) {
		seen, err := r.Node.Seen(r.Pod.Namespace, r.Pod.Name)
		if err != nil || seen.UID != r.Pod.UID {
			return false, "nothing yet"
		}
		r.Pod = seen
		if r.Starting {
			return seen.Status.StartTime != nil, "the kubelet has not seen it"
		}
		for _, s := range seen.Status.ContainerStatuses {
			if s.State.Running == nil {
				return false, fmt.Sprintf("container %s: %+v", s.Name, s.State)
			}
		}
		return seen.Status.Phase == corev1.PodRunning, "phase " + string(seen.Status.Phase)
	})
}

// executed is a shell script that waits until the pod's programs have taken the place of runc. On a node that is starved that is
// seconds after the container counts as running, and a step that looks for the program finds none before.
const executed = `for i in $(seq 60); do
  grep -qs "^Name:.runc:" $(statuses) /dev/null || break
  sleep 1
done`

// settled is a shell script that waits until the kubelet has run for a while, where there is one. One
// that an incident before has started anew is not said to have heard of a deletion that comes soon
// after.
const settled = `p=$(pgrep -o -x kubelet) || exit 0
while age=$(ps -o etimes= -p $p) && [ $age -lt 15 ]; do sleep 1; done`

// Delete asks for the pod's deletion and proves that the fault is there. The
// error is ErrNoFault when the pod goes without it.
func (r *Run) Delete(ctx context.Context) error {
	if r.When != Overdue {
		if err := r.Step("break", func() error { return OnNode(settled)(ctx, r.Node, r.Pod) }); err != nil {
			return fmt.Errorf("wait for the kubelet: %w", err)
		}
	}
	r.Deleted = time.Now()
	if err := r.Node.API.CoreV1().Pods(r.Pod.Namespace).Delete(ctx, r.Name, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("delete pod: %w", err)
	}
	p, err := r.Node.Pod(ctx, r.Pod.Namespace, r.Name)
	if err != nil {
		return fmt.Errorf("read deleted pod: %w", err)
	}
	r.Pod, r.Deadline = p, p.DeletionTimestamp.Time
	if r.Proof == "" {
		return nil
	}
	// Asked on the node again and again, since each way there costs an emulated
	// node more than the question.
	proof := r.Node.Script("set +e\nfor i in 1 2 3 4 5 6 7 8 9 10; do\n(\nset -e\n"+r.Proof+"\n)\n[ $? != 0 ] || exit 0\nsleep 1\ndone\nexit 1", r.Pod)
	return r.Step("fault", func() error {
		var gone error
		err := r.Node.Await(ctx, r.Name+": the fault to be there", func() (bool, string) {
			_, missing := r.Current() // before the fault is looked for
			_, err := r.Node.Exec(ctx, proof)
			if err != nil && apierrors.IsNotFound(missing) {
				gone = fmt.Errorf("%s: %w", r.Name, ErrNoFault)
			}
			return err == nil || gone != nil, fmt.Sprint(err)
		})
		return errors.Join(err, gone)
	})
}

// Again begins anew after ErrNoFault: the pod has gone, and nothing was broken.
func (r *Run) Again(ctx context.Context) error {
	if err := r.Mend(ctx); err != nil {
		return err
	}
	if err := r.Start(ctx); err != nil {
		return err
	}
	return r.Delete(ctx)
}

// lastWords is for how long a verdict may come after its pod has gone, on a node that is
// not slow.
const lastWords = time.Minute

// AwaitVerdict waits until the right verdict has been told in an Event, and not long
// after the pod has gone. Until then it has to stand in the condition, too, unless the
// scenario tells it WhenGone or has NoCondition. Other verdicts that it sees are remembered.
func (r *Run) AwaitVerdict(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var gone time.Time
	return r.Step("verdict", func() error {
		return r.Node.Await(ctx, r.Name+": verdict "+r.Cause, func() (bool, string) {
			if _, err := r.Current(); gone.IsZero() && apierrors.IsNotFound(err) {
				gone = time.Now()
			}
			told, seen := r.verdict(ctx)
			if late := time.Duration(float64(lastWords) * max(1, r.Node.Slowness())); !gone.IsZero() && time.Since(gone) > late {
				cancel(fmt.Errorf("the pod has been gone for %s; %s", late.Round(time.Second), r.Node.agentHealth(ctx)))
			}
			return told, seen
		})
	})
}

func (r *Run) verdict(ctx context.Context) (told bool, seen string) {
	p, err := r.Current()
	gone := apierrors.IsNotFound(err)
	if err != nil && !gone {
		return false, err.Error()
	}
	if !gone && r.When != WhenGone && !r.NoCondition {
		switch c := Condition(p); {
		case c == nil || c.Status != corev1.ConditionTrue:
			return false, "no verdict"
		case c.Reason != r.Cause:
			if !r.MaySay(c.Reason) || c.Reason == r.Then {
				r.wrong(c)
			}
			return false, c.Reason + ": " + c.Message
		}
	}
	events, err := r.Events(ctx)
	if err != nil {
		return false, err.Error()
	}
	for _, e := range events {
		if e.Reason == r.Cause {
			r.Event, r.Evented = e, time.Now()
			return true, ""
		}
	}
	if gone {
		return false, fmt.Sprintf("the pod has gone, with %d other Events of the agent", len(events))
	}
	return false, "no Event with the verdict"
}

// AwaitWaits waits until the condition says that the pod is inside its grace period, and returns what it says.
func (r *Run) AwaitWaits(ctx context.Context) (says string, err error) {
	err = r.Step("verdict", func() error {
		return r.Node.Await(ctx, r.Name+": condition "+InGracePeriod, func() (bool, string) {
			p, err := r.Current()
			if err != nil {
				return false, err.Error()
			}
			c := Condition(p)
			if c == nil || c.Reason != InGracePeriod {
				return false, fmt.Sprintf("condition %+v", c)
			}
			says = c.Message
			return c.Status == corev1.ConditionFalse, "its status is " + string(c.Status)
		})
	})
	return says, err
}

// AwaitStay watches the verdict for as long as it must stay. Another one, and none, is remembered as wrong.
func (r *Run) AwaitStay(ctx context.Context) error {
	return r.Step("verdict", func() error {
		for time.Since(r.Evented) < r.Stays {
			p, err := r.Current()
			if err != nil {
				return fmt.Errorf("watch the verdict of %s: %w", r.Name, err)
			}
			switch c := Condition(p); {
			case c == nil:
				return fmt.Errorf("the condition of %s has gone", r.Name)
			case c.Status != corev1.ConditionTrue:
				r.wrong(&corev1.PodCondition{Reason: string(c.Status), Message: fmt.Sprintf("withdrawn %s after it was told", time.Since(r.Evented).Round(time.Second))})
			case c.Reason != r.Cause:
				r.wrong(c)
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(time.Second):
			}
		}
		return nil
	})
}

// Current returns the run's own pod, NotFound when it has gone, even if another one
// has its name.
func (r *Run) Current() (*corev1.Pod, error) {
	p, err := r.Node.Seen(r.Pod.Namespace, r.Name)
	if err == nil && p.UID != r.Pod.UID {
		return nil, apierrors.NewNotFound(corev1.Resource("pods"), r.Name)
	}
	return p, err
}

// MaySay reports whether a verdict that is not the scenario's cause may come before it, or after it. Before a late one it may be said that
// the cause is not known, or why the kubelet has not begun.
func (r *Run) MaySay(reason string) bool {
	return r.Late && (reason == "Unknown" || reason == "KubeletLate") || r.Then != "" && reason == r.Then
}

func (r *Run) wrong(c *corev1.PodCondition) {
	if verdict := c.Reason + ": " + c.Message; !slices.Contains(r.Wrong, verdict) {
		r.Wrong = append(r.Wrong, verdict)
	}
}

// Condition returns the agent's condition on a pod, nil when it has none.
func Condition(p *corev1.Pod) *corev1.PodCondition {
	for i := range p.Status.Conditions {
		if p.Status.Conditions[i].Type == condition {
			return &p.Status.Conditions[i]
		}
	}
	return nil
}

// Events returns those that the agent wrote about the pod.
func (r *Run) Events(ctx context.Context) ([]eventsv1.Event, error) {
	return r.events(ctx, func(e *eventsv1.Event) bool { return strings.HasPrefix(e.ReportingController, "nodeagent.io/") })
}

func (r *Run) events(ctx context.Context, wanted func(*eventsv1.Event) bool) ([]eventsv1.Event, error) {
	list, err := r.Node.API.EventsV1().Events(r.Pod.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("regarding.uid", runtimeUID(r.Pod)).String(),
	})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Items, func(e eventsv1.Event) bool { return !wanted(&e) }), nil
}

// Warning returns the reason of the kubelet's first warning about the pod since the deletion, and how long after that it came, in
// whole seconds; "" when there has been none.
func (r *Run) Warning(ctx context.Context) (reason string, after time.Duration, err error) {
	deleted := r.Deleted.Truncate(time.Second)
	all, err := r.events(ctx, func(e *eventsv1.Event) bool {
		return e.DeprecatedSource.Component == "kubelet" && e.Type == corev1.EventTypeWarning && !e.DeprecatedFirstTimestamp.Time.Before(deleted)
	})
	if err != nil || len(all) == 0 {
		return "", 0, err
	}
	first := slices.MinFunc(all, func(a, b eventsv1.Event) int {
		return a.DeprecatedFirstTimestamp.Compare(b.DeprecatedFirstTimestamp.Time)
	})
	return first.Reason, first.DeprecatedFirstTimestamp.Sub(deleted), nil
}

// Mend heals the fault and waits until the pod is gone.
func (r *Run) Mend(ctx context.Context) error {
	return r.Step("end", func() error {
		if err := do(ctx, r.Heal, r.Node, r.Pod); err != nil {
			return fmt.Errorf("heal %s: %w", r.Name, err)
		}
		return r.Node.Await(ctx, r.Name+" to go away", func() (bool, string) {
			p, err := r.Current()
			switch {
			case apierrors.IsNotFound(err):
				return true, ""
			case err != nil:
				return false, err.Error()
			}
			if c := Condition(p); c != nil && c.Status == corev1.ConditionTrue && c.Reason != r.Cause && !r.MaySay(c.Reason) {
				r.wrong(c)
			}
			return false, "phase " + string(p.Status.Phase)
		})
	})
}

// Ended compares how the containers of a pod that has gone have ended with Ends. All of it must have taken less than two
// thirds of the grace period: one that SIGKILL ends takes more than all.
func (r *Run) Ended() error {
	if r.Ends == nil {
		return nil
	}
	last, ok := r.Node.ended.Load(r.Pod.UID)
	if !ok {
		return fmt.Errorf("nobody has told of the end of %s", r.Name)
	}
	var errs []error
	end := last.(*ended)
	grace := time.Duration(*r.Pod.Spec.TerminationGracePeriodSeconds) * time.Second
	if took := end.at.Sub(r.Deleted); took > grace*2/3 {
		errs = append(errs, fmt.Errorf("%s took %s to go, of a grace period of %s", r.Name, took.Round(time.Second), grace))
	}
	codes := map[string]int32{}
	for _, s := range slices.Concat(end.pod.Status.InitContainerStatuses, end.pod.Status.ContainerStatuses) {
		if t := s.State.Terminated; t != nil {
			codes[s.Name] = t.ExitCode
		}
	}
	for name, want := range r.Ends {
		if code, ok := codes[name]; !ok || code != want {
			errs = append(errs, fmt.Errorf("container %s of %s has ended with exit code %d (told: %t), want %d", name, r.Name, code, ok, want))
		}
	}
	return errors.Join(errs...)
}

// healing is for how long Discard lets a node heal.
const healing = time.Minute

// Discard deletes, heals and force-deletes what a failed run may have left, so that it
// harms no other.
func (r *Run) Discard(ctx context.Context) error {
	var errs []error
	remove := func(o metav1.DeleteOptions) {
		err := r.Node.API.CoreV1().Pods(r.Node.Namespace()).Delete(ctx, r.Name, o)
		if err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("delete pod: %w", err))
		}
	}
	if r.Pod != nil {
		remove(metav1.DeleteOptions{}) // to heal may be to wait for the pod's end
		heals, cancel := context.WithTimeout(ctx, healing)
		defer cancel()
		if err := do(heals, r.Heal, r.Node, r.Pod); err != nil {
			errs = append(errs, fmt.Errorf("heal: %w", err))
		}
	}
	remove(metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
	return errors.Join(errs...)
}
