//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/test/bed"
)

// start runs a scenario up to the deletion of its broken pod.
func start(x *trial, n *bed.Node, s bed.Scenario, turn *bed.Turn) *bed.Run {
	r := &bed.Run{Scenario: s, Node: n, Turn: turn}
	x.run = r
	x.Cleanup(func() {
		if dir := bed.Tapes(); dir != "" && !x.Failed() && isTaped(s.Name) {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			if err := r.Tape(ctx, dir); err != nil {
				x.Error(err)
			}
		}
		if x.Failed() {
			dump(x, r)
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
			defer cancel()
			if err := r.Discard(ctx); err != nil {
				x.Log("clean up:", err)
			}
		}
	})
	if err := r.Start(x.Context()); err != nil {
		x.Fatal(err)
	}
	err := r.Delete(x.Context())
	if errors.Is(err, bed.ErrNoFault) {
		x.row.Again++
		x.Log(err, "and is begun anew")
		err = r.Again(x.Context())
	}
	if err != nil {
		x.Fatal(err)
	}
	x.row.Grace = *r.Pod.Spec.TerminationGracePeriodSeconds
	return r
}

// isTaped reports whether a tape of an incident is wanted: when it was named, or there is one of before.
func isTaped(name string) bool {
	_, err := os.Stat(filepath.Join(bed.Root(), "test", "tape", "testdata", name+".tape"))
	return byName() || err == nil
}

// incident runs one scenario from end to end.
func incident(t *testing.T, s bed.Scenario, turn *bed.Turn) {
	n := turn.Node
	row := bed.Result{Name: s.Name, Tier: s.Tier.String(), Node: n.Name, On: n.Software(), Want: s.Cause, Verdict: verdictFailed}
	if s.Cause == "" {
		row.Want = "(innocent)"
	}
	try(t, table, row, func(x *trial) { tell(x, n, s, turn) })
}

func tell(x *trial, n *bed.Node, s bed.Scenario, turn *bed.Turn) {
	if s.Cause == "" {
		r := start(x, n, s, turn)
		if byName() {
			captured(x, r) // for a healthy twin
		}
		if len(r.Waits) > 0 {
			waits(x, r)
		}
		innocent(x, r)
		return
	}
	r := start(x, n, s, turn)
	if s.When == bed.WhenGone {
		captured(x, r) // while there is something
	}
	if err := r.AwaitVerdict(x.Context()); err != nil {
		x.row.Verdict = verdictMissed
		x.Fatal(err)
	}
	x.row.Verdict, x.row.Deletion, x.row.Deadline = verdictTrue, r.Evented.Sub(r.Deleted), r.Evented.Sub(r.Deadline)
	// Both by the API server's clock, in whole seconds.
	if told := r.Event.CreationTimestamp.Time; s.When == bed.InGrace && told.After(r.Deadline) {
		x.Error(fmt.Errorf("told %s after the deadline, want inside the grace period of %d s", told.Sub(r.Deadline), x.row.Grace))
	}
	if err := r.Step("check", func() error { checked(x, r); return nil }); err != nil {
		x.Fatal(err)
	}
	err := r.AwaitStay(x.Context())
	if err != nil {
		x.Fatal(err)
	}
	if x.row.Warning, x.row.Warned, err = r.Warning(x.Context()); err != nil {
		x.Fatal(err)
	}
	if err := r.Mend(x.Context()); err != nil {
		x.Fatal(err)
	}
	events, err := r.Events(x.Context())
	if err != nil {
		x.Fatal(err)
	}
	for _, e := range events {
		if e.Reason != r.Cause && !r.MaySay(e.Reason) {
			x.row.Wrong = append(x.row.Wrong, e.Reason)
			x.Error(fmt.Errorf("another verdict: %s: %s", e.Reason, e.Note))
		}
	}
	for _, w := range r.Wrong {
		x.Error(fmt.Errorf("another verdict stood on the pod: %s", w))
	}
	cleared(x, r)
}

// checked compares all that is said with what has to be said.
func checked(x *trial, r *bed.Run) {
	if r.When == bed.WhenGone {
		worded(x, r, nil)
		artifact(x, r, "describe.txt", r.Event.Note)
		return
	}
	described(x, r)
	measured(x, r)
	captured(x, r)
}

// described checks what a person reads in kubectl describe, and the condition.
func described(x *trial, r *bed.Run) {
	x.Helper()
	text, err := r.Node.Kubectl(x.Context(), "-n", r.Pod.Namespace, "describe", "pod", r.Name)
	if err != nil {
		x.Fatal(err)
	}
	artifact(x, r, "describe.txt", text)
	shown := func(line string) bool {
		return strings.HasPrefix(strings.TrimSpace(line), r.Event.Type+" ") && strings.Contains(line, " "+r.Cause+" ") && strings.Contains(line, r.Event.Note)
	}
	if !slices.ContainsFunc(slices.Collect(strings.Lines(text)), shown) {
		x.Errorf("kubectl describe does not show the %s %s: %s", r.Event.Type, r.Cause, r.Event.Note)
	}
	p, err := r.Node.Pod(x.Context(), r.Pod.Namespace, r.Name)
	if err != nil {
		x.Fatal(err)
	}
	c := bed.Condition(p)
	if r.NoCondition {
		if c != nil && c.Status == corev1.ConditionTrue {
			x.Errorf("condition is %+v, and cannot be written", c)
		}
		worded(x, r, nil)
		return
	}
	if c == nil || c.Status != corev1.ConditionTrue || c.Reason != r.Cause {
		x.Errorf("condition is %+v, want True with reason %s", c, r.Cause)
		return
	}
	worded(x, r, c)
	if strings.HasPrefix(r.Event.Note, "WHOLE NODE") {
		toldOnNode(x, r)
	}
}

// toldOnNode checks that what holds up all pods of the node is told on the Node, too.
func toldOnNode(x *trial, r *bed.Run) {
	x.Helper()
	if err := r.Node.Await(x.Context(), "the Event on the Node", func() (bool, string) {
		list, err := r.Node.API.EventsV1().Events(metav1.NamespaceDefault).List(x.Context(), metav1.ListOptions{
			FieldSelector: "regarding.kind=Node,reason=" + r.Cause,
		})
		if err != nil {
			return false, err.Error()
		}
		return slices.ContainsFunc(list.Items, func(e eventsv1.Event) bool {
			return e.Regarding.Name == r.Node.Name && strings.HasPrefix(e.Note, "WHOLE NODE "+r.Node.Name+": ")
		}), fmt.Sprintf("%d Events of this reason on Nodes", len(list.Items))
	}); err != nil {
		x.Error(err)
	}
}

// worded checks the words of the Event and of the condition, nil where there is none.
func worded(x *trial, r *bed.Run, c *corev1.PodCondition) {
	x.Helper()
	for _, err := range slices.Concat(r.Malformed(r.Event.Note, c), r.Unsaid(r.Event.Note, c)) {
		x.Error(err)
	}
}

// series returns the labels of the pod's time series.
func series(ctx context.Context, r *bed.Run) (labels []string, metrics string, err error) {
	metrics, err = r.Node.Metrics(ctx)
	if err != nil {
		return nil, "", err
	}
	for _, s := range bed.Series(metrics, "stuck_terminating_seconds", string(r.Pod.UID)) {
		// The value grows by itself, which is no progress.
		labels = append(labels, s[:strings.LastIndex(s, "}")+1])
	}
	return labels, metrics, nil
}

// measured checks the metrics. A round in which the node's tasks could not be
// read in time counts none of them as blocked; the next one does.
func measured(x *trial, r *bed.Run) {
	x.Helper()
	if err := r.Node.Await(x.Context(), "the metrics of "+r.Name, func() (bool, string) {
		series, metrics, err := series(x.Context(), r)
		if err != nil {
			return false, err.Error()
		}
		if len(series) != 1 || !strings.Contains(series[0], fmt.Sprintf("reason=%q", r.Cause)) ||
			!strings.Contains(series[0], fmt.Sprintf("pod=%q", r.Name)) || !strings.Contains(series[0], `phase="`) {
			return false, fmt.Sprintf("series of the pod: %q", series)
		}
		blocked := fmt.Sprintf("nodeagent_blocked_tasks{family=%q,owner=\"pod\"}", r.Family)
		return r.Cause != "UninterruptibleSleep" || strings.Contains(metrics, blocked), "no " + blocked
	}); err != nil {
		x.Error(err)
	}
}

// oneCapture holds captures to one at a time on a node, as one person makes them:
// each is a process in the agent's container, whose memory is bounded.
var oneCapture sync.Map

// byName reports whether the incidents to run were named. Then their evidence is
// wanted, and there is time to take it.
func byName() bool { return os.Getenv(namesVariable) != "" }

// captured keeps the evidence, which make fixture takes.
func captured(x *trial, r *bed.Run) {
	x.Helper()
	lock, _ := oneCapture.LoadOrStore(r.Node.Name, &sync.Mutex{})
	lock.(*sync.Mutex).Lock()
	defer lock.(*sync.Mutex).Unlock()
	text, err := capture(x.Context(), r)
	if _, gone := r.Current(); err != nil && apierrors.IsNotFound(gone) {
		x.Log("the pod has gone before it was its turn to be captured")
		return
	}
	if err != nil {
		x.Error(err)
		return
	}
	if !strings.Contains(text, string(r.Pod.UID)) {
		x.Errorf("capture does not hold the pod's UID:\n%.500s", text)
	}
	artifact(x, r, "json", text)
	var p evidence.Pod
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		x.Errorf("capture is no evidence: %v", err)
		return
	}
	// What needs more than a capture's two readings is not in it.
	d := cause.Diagnose(&p)
	if r.Force != "" && (d.Force == nil || string(d.Force.Answer) != r.Force) {
		x.Errorf("the captured evidence says of a force delete %+v, want %q", d.Force, r.Force)
	}
	if v, ok := d.Verdict(); ok && v.Cause == r.Cause && r.Family != "" && v.Family != r.Family {
		x.Errorf("the captured evidence shows family %q, want %q", v.Family, r.Family)
	}
}

// capture returns the evidence about the pod, from the agent's container where that
// is possible and cheap. Its two readings are as far apart as a user's when the pod
// is stuck for as long.
func capture(ctx context.Context, r *bed.Run) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	flags := []string{bed.ShortWait}
	if byName() && r.Cause != "" && r.When == bed.Overdue {
		flags = nil
	}
	if r.NoExec || r.Node.Emulated() {
		return r.Node.CaptureOnNode(ctx, r.Name, flags...)
	}
	return r.Node.Capture(ctx, r.Name, flags...)
}

// cleared checks that nothing of a healed pod is left in the metrics.
func cleared(x *trial, r *bed.Run) {
	x.Helper()
	if err := r.Node.Await(x.Context(), "the series of "+r.Name+" to go", func() (bool, string) {
		series, _, err := series(x.Context(), r)
		if err != nil {
			return false, err.Error()
		}
		return len(series) == 0, strings.Join(series, "\n")
	}); err != nil {
		x.Error(err)
	}
}

// waits checks what the condition says of a pod inside its grace period.
func waits(x *trial, r *bed.Run) {
	x.Helper()
	says, err := r.AwaitWaits(x.Context())
	if err != nil {
		x.Fatal(err)
	}
	artifact(x, r, "describe.txt", says)
	for _, want := range r.Waits {
		if !strings.Contains(says, want) {
			x.Errorf("the condition does not say %q:\n%s", want, says)
		}
	}
}

// mayWait reports whether a write says that a pod is inside its grace period, when a minute of that has passed.
func mayWait(w bed.Write, r *bed.Run) bool {
	return w.Subresource == "status" && strings.Contains(w.Body, `"reason":"`+bed.InGracePeriod+`"`) && strings.Contains(w.Body, `"status":"False"`) &&
		w.Time.Sub(r.Deleted) >= time.Minute-2*time.Second
}

// innocent checks that pods that end by themselves get no condition, no Event and no write of the
// agent at all, but one that says after a minute that they are inside their grace period.
func innocent(x *trial, runs ...*bed.Run) {
	x.Helper()
	if err := each(runs, func(r *bed.Run) error { return r.Mend(x.Context()) }); err != nil {
		x.Fatal(err)
	}
	for _, r := range runs {
		events, err := r.Events(x.Context())
		if err != nil {
			x.Fatal(err)
		}
		for _, e := range events {
			x.row.Verdict = verdictAccused
			x.Errorf("an innocent pod has the Event %s: %s", e.Reason, e.Note)
		}
	}
	// The audit log's entries of the pod's last seconds are written at once,
	// but the agent's next round may still come.
	if err := runs[0].Step("check", func() error { time.Sleep(5 * time.Second); return nil }); err != nil {
		x.Fatal(err)
	}
	for _, r := range runs {
		if err := r.Ended(); err != nil {
			x.Error(err)
		}
		writes, err := bed.Writes(x.Context(), r.Node.Cluster, r.Deleted)
		if err != nil {
			x.Fatal(err)
		}
		said := false
		for _, w := range writes {
			about := w.Namespace == r.Pod.Namespace && w.Name == r.Name || strings.Contains(w.Body, string(r.Pod.UID))
			if about && !said && mayWait(w, r) {
				said = true
				continue
			}
			if about {
				x.row.Verdict = verdictAccused
				x.Errorf("the agent wrote about an innocent pod: %+v", w)
			}
		}
	}
	if x.row.Verdict == verdictFailed && !x.Failed() {
		x.row.Verdict = verdictSilent
	}
}

// artifact keeps a file of the run where NODEAGENT_ARTIFACTS says.
func artifact(x *trial, r *bed.Run, suffix, text string) {
	path := filepath.Join(artifacts(), x.row.Name+"."+r.Node.Name+"."+suffix)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		x.Error(err)
	}
}

// dump keeps what there is to see of a failed scenario, and prints it when it
// was asked for by name.
func dump(x *trial, r *bed.Run) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	var b strings.Builder
	for _, f := range x.row.Failures {
		fmt.Fprintln(&b, f)
	}
	section := func(title, text string, err error) {
		if err != nil {
			text += "\n" + err.Error()
		}
		fmt.Fprintf(&b, "\n=== %s\n%s\n", title, strings.TrimSpace(text))
	}
	text, err := r.Node.Kubectl(ctx, "-n", r.Node.Namespace(), "describe", "pod", r.Name)
	section("kubectl describe pod", text, err)
	if agent, err := r.Node.AgentPod(ctx); err != nil {
		section("the agent's log", "", err)
	} else {
		text, err = r.Node.Kubectl(ctx, "-n", r.Node.Agents.Namespace, "logs", agent.Name, "--tail=5000")
		var about strings.Builder
		for line := range strings.Lines(text) {
			if slices.Contains(strings.Fields(line), "pod="+r.Name) || strings.Contains(line, "level=ERROR") {
				about.WriteString(line)
			}
		}
		section("the agent's log about it", about.String(), err)
	}
	section("the node", r.Node.Health(ctx), nil)
	text, err = capture(ctx, r)
	section("nodeagent capture", text, err)
	if err == nil {
		artifact(x, r, "json", text) // a cause without a rule is always missed
	}
	artifact(x, r, "failed.txt", b.String())
	if byName() {
		fmt.Print(b.String())
	}
}
