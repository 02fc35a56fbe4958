//go:build e2e

// Package e2e runs the agent on a real cluster against real incidents. `make
// e2e` boots the cluster, builds the images and runs these tests.
package e2e

import (
	"cmp"
	"context"
	"encoding/json"
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

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/test/scenario"
)

// A result is a row of the table that the run ends with.
type result struct {
	name, want, verdict string
	deletion, deadline  time.Duration // to the Event; 0 when there is none
	wrong               []string
}

type results struct {
	cgroup int // the version on the node
	mu     sync.Mutex
	rows   []result
}

// The verdicts in the table.
const (
	verdictTrue    = "true"
	verdictSilent  = "silent"
	verdictMissed  = "MISSED"
	verdictAccused = "ACCUSED"
)

func (r *results) add(row result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rows = append(r.rows, row)
}

// print writes the table of scenarios and verdicts.
func (r *results) print() {
	slices.SortFunc(r.rows, func(a, b result) int {
		return cmp.Or(cmp.Compare(a.want, b.want), cmp.Compare(a.name, b.name))
	})
	var b strings.Builder
	fmt.Fprintf(&b, "\ncgroup v%d, %s\n", r.cgroup, time.Now().UTC().Format(time.DateTime))
	fmt.Fprintf(&b, "%-22s %-30s %-9s %14s %14s  %s\n", "SCENARIO", "TRUE CAUSE", "VERDICT", "FROM DELETION", "FROM DEADLINE", "WRONG NAMES")
	for _, row := range r.rows {
		deletion, deadline := "", ""
		if row.deletion != 0 {
			deletion, deadline = row.deletion.Round(100*time.Millisecond).String(), row.deadline.Round(100*time.Millisecond).String()
		}
		wrong := "none"
		if len(row.wrong) > 0 {
			wrong = strings.Join(row.wrong, "; ")
		}
		fmt.Fprintf(&b, "%-22s %-30s %-9s %14s %14s  %s\n", row.name, row.want, row.verdict, deletion, deadline, wrong)
	}
	verdicts := map[string]int{}
	for _, row := range r.rows {
		verdicts[row.verdict]++
	}
	fmt.Fprintf(&b, "\n%d scenarios: %d true, %d innocent and silent, %d missed, %d accused\n",
		len(r.rows), verdicts[verdictTrue], verdicts[verdictSilent], verdicts[verdictMissed], verdicts[verdictAccused])
	fmt.Println(b.String())
	if dir := os.Getenv("NODEAGENT_ARTIFACTS"); dir != "" {
		_ = os.WriteFile(filepath.Join(dir, fmt.Sprintf("verdicts-v%d.txt", r.cgroup)), []byte(b.String()), 0o644)
	}
}

func TestCluster(t *testing.T) {
	ctx := t.Context()
	c, err := scenario.Find(ctx)
	if err != nil {
		t.Fatal(err)
	}
	version, err := c.CgroupVersion(ctx)
	if err != nil {
		t.Fatal(err)
	}
	scenarios := slices.DeleteFunc(scenario.All(), func(s scenario.Scenario) bool {
		return version == 1 && !s.CgroupV1 || version == 2 && s.OnlyCgroupV1
	})
	if err := scenario.Images(ctx, c, scenarios); err != nil {
		t.Fatal(err)
	}
	if err := scenario.Install(ctx, c); err != nil {
		t.Fatal(err)
	}
	table := &results{cgroup: version}
	t.Cleanup(table.print)

	t.Run("side by side", func(t *testing.T) {
		for _, s := range scenarios {
			if !s.Posthumous {
				t.Run(s.Name, func(t *testing.T) {
					t.Parallel()
					incident(t, c, s, table)
				})
			}
		}
		t.Run("same-name-again", func(t *testing.T) {
			t.Parallel()
			sameNameAgain(t, c)
		})
	})
	// What is killed at its deadline must have been seen shortly before, so these
	// have the node to themselves.
	t.Run("killed at the deadline", func(t *testing.T) {
		for _, s := range scenarios {
			if s.Posthumous {
				t.Run(s.Name, func(t *testing.T) {
					t.Parallel()
					incident(t, c, s, table)
				})
			}
		}
	})
	if version == 1 {
		return // the rest is the same on both
	}
	// What stops the whole node, the agent or the API server runs alone.
	t.Run("agent killed", func(t *testing.T) { agentKilled(t, c) })
	t.Run("API server stopped", func(t *testing.T) { apiServerStopped(t, c) })
	t.Run("containerd stopped", func(t *testing.T) { incident(t, c, scenario.ContainerdStopped(), table) })
	t.Run("agent ends in time", func(t *testing.T) { agentEnds(t, c) })
}

// start runs a scenario up to the deletion of its broken pod.
func start(t *testing.T, c *scenario.Cluster, s scenario.Scenario) *scenario.Run {
	t.Helper()
	r := &scenario.Run{Scenario: s, Cluster: c}
	t.Cleanup(func() {
		if t.Failed() {
			dump(t, r)
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			if err := r.Discard(ctx); err != nil {
				t.Log("clean up:", err)
			}
		}
	})
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.Delete(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

// incident runs one scenario from end to end.
func incident(t *testing.T, c *scenario.Cluster, s scenario.Scenario, table *results) {
	row := result{name: s.Name, want: s.Cause, verdict: verdictMissed}
	defer func() { table.add(row) }()
	r := start(t, c, s)
	if s.Cause == "" {
		row.want, row.verdict = "(innocent)", verdictAccused
		innocent(t, r)
		row.verdict = verdictSilent
		return
	}
	if s.Posthumous {
		posthumous(t, r, &row)
		return
	}
	err := r.AwaitVerdict(t.Context())
	row.wrong = r.Wrong
	if err != nil {
		t.Fatal(err)
	}
	row.verdict, row.deletion, row.deadline = verdictTrue, r.Evented.Sub(r.Deleted), r.Evented.Sub(r.Deadline)
	for _, w := range r.Wrong {
		t.Errorf("another verdict stood on the pod: %s", w)
	}
	if s.Early && !r.Told.Before(r.Deadline) {
		t.Errorf("told %s after the deadline, want inside the grace period", r.Told.Sub(r.Deadline))
	}
	described(t, r)
	measured(t, r)
	captured(t, r)
	if err := r.Mend(t.Context()); err != nil {
		t.Fatal(err)
	}
	row.wrong = r.Wrong
	cleared(t, r)
}

// posthumous is for a pod that is killed at its deadline: the verdict may come
// when it has gone, as an Event.
func posthumous(t *testing.T, r *scenario.Run, row *result) {
	captured(t, r) // while there is something
	ev, err := r.AwaitEvent(t.Context())
	if err != nil {
		events, _ := r.Events(t.Context())
		for _, e := range events {
			row.wrong = append(row.wrong, e.Reason)
		}
		t.Fatal(err)
	}
	row.verdict, row.deletion, row.deadline = verdictTrue, r.Evented.Sub(r.Deleted), r.Evented.Sub(r.Deadline)
	artifact(t, r.Name+".describe.txt", ev.Note)
	for _, want := range append([]string{"Remedy:", "Danger:"}, r.Says...) {
		if !strings.Contains(ev.Note, want) {
			t.Errorf("the Event does not say %q:\n%s", want, ev.Note)
		}
	}
	if err := r.Mend(t.Context()); err != nil {
		t.Fatal(err)
	}
	events, err := r.Events(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		if e.Reason != r.Cause {
			row.wrong = append(row.wrong, e.Reason)
			t.Errorf("another verdict: %s: %s", e.Reason, e.Note)
		}
	}
	cleared(t, r)
}

// described checks what a person reads in kubectl describe, and the condition.
func described(t *testing.T, r *scenario.Run) {
	t.Helper()
	text, err := r.Cluster.Kubectl(t.Context(), "-n", scenario.Namespace, "describe", "pod", r.Name)
	if err != nil {
		t.Fatal(err)
	}
	artifact(t, r.Name+".describe.txt", text)
	var line string
	for l := range strings.Lines(text) {
		if strings.Contains(l, "Warning") && strings.Contains(l, r.Cause) {
			line = l
		}
	}
	p, err := r.Cluster.Pod(t.Context(), scenario.Namespace, r.Name)
	if err != nil {
		t.Fatal(err)
	}
	c := scenario.Condition(p)
	if c == nil || c.Status != corev1.ConditionTrue || c.Reason != r.Cause {
		t.Fatalf("condition is %+v, want True with reason %s", c, r.Cause)
	}
	for _, want := range append([]string{"Remedy:", "Danger:"}, r.Says...) {
		if !strings.Contains(line, want) {
			t.Errorf("kubectl describe does not say %q; its line is:\n%s", want, line)
		}
		if !strings.Contains(c.Message, want) {
			t.Errorf("the condition does not say %q:\n%s", want, c.Message)
		}
	}
	if len(c.Message) > 1024 {
		t.Errorf("the condition's message has %d bytes", len(c.Message))
	}
	// Unknown names the sources that a look could not read, which come and go.
	if !strings.Contains(line, c.Message) && r.Cause != "Unknown" {
		t.Errorf("the Event and the condition differ:\n%s\n%s", line, c.Message)
	}
}

// measured checks the metrics. A round in which the node's tasks could not be
// read in time counts none of them as blocked; the next one does.
func measured(t *testing.T, r *scenario.Run) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := scenario.Until(ctx, "the metrics of "+r.Name, func() (bool, string) {
		m, err := scenario.Metrics(ctx, r.Cluster)
		if err != nil {
			return false, err.Error()
		}
		series := scenario.Series(m, "stuck_terminating_seconds", string(r.Pod.UID))
		if len(series) != 1 || !strings.Contains(series[0], fmt.Sprintf("reason=%q", r.Cause)) ||
			!strings.Contains(series[0], fmt.Sprintf("pod=%q", r.Name)) || !strings.Contains(series[0], `phase="`) {
			return false, fmt.Sprintf("series of the pod: %q", series)
		}
		blocked := fmt.Sprintf("nodeagent_blocked_tasks{family=%q,owner=\"pod\"}", r.Family)
		return r.Cause != "UninterruptibleSleep" || strings.Contains(m, blocked), "no " + blocked
	}); err != nil {
		t.Error(err)
	}
}

// oneCapture holds captures to one at a time, as one person makes them: each is
// a process in the agent's container, whose memory is bounded.
var oneCapture sync.Mutex

// captured keeps the evidence: it is how fixtures are made.
func captured(t *testing.T, r *scenario.Run) {
	t.Helper()
	oneCapture.Lock()
	defer oneCapture.Unlock()
	capture := scenario.Capture
	if r.NoExec {
		capture = scenario.CaptureOnNode
	}
	text, err := capture(t.Context(), r.Cluster, r.Name)
	if p, gone := r.Cluster.Pod(t.Context(), scenario.Namespace, r.Name); err != nil && (apierrors.IsNotFound(gone) || gone == nil && p.UID != r.Pod.UID) {
		t.Log("the pod has gone before it was its turn to be captured")
		return
	}
	if err != nil {
		t.Error(err)
		return
	}
	if !strings.Contains(text, string(r.Pod.UID)) {
		t.Errorf("capture does not hold the pod's UID:\n%.500s", text)
	}
	artifact(t, r.Name+".json", text)
	var p evidence.Pod
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		t.Errorf("capture is no evidence: %v", err)
		return
	}
	// What needs more than a capture's two readings is not in it.
	d := diagnose.Run(&p, diagnose.Rules())
	if v, ok := d.Verdict(); ok && v.Cause == r.Cause && r.Family != "" && v.Family != r.Family {
		t.Errorf("the captured evidence shows family %q, want %q", v.Family, r.Family)
	}
}

// cleared checks that nothing of a healed pod is left in the metrics.
func cleared(t *testing.T, r *scenario.Run) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := scenario.Until(ctx, "the series of "+r.Name+" to go", func() (bool, string) {
		m, err := scenario.Metrics(ctx, r.Cluster)
		if err != nil {
			return false, err.Error()
		}
		s := scenario.Series(m, "stuck_terminating_seconds", string(r.Pod.UID))
		return len(s) == 0, strings.Join(s, "\n")
	}); err != nil {
		t.Error(err)
	}
}

// innocent checks that a pod that ends by itself gets no condition, no Event
// and no write of the agent at all.
func innocent(t *testing.T, r *scenario.Run) {
	t.Helper()
	if err := r.Mend(t.Context()); err != nil {
		t.Fatal(err)
	}
	events, err := r.Events(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		t.Errorf("an innocent pod has the Event %s: %s", e.Reason, e.Note)
	}
	// The audit log's entries of the pod's last seconds are written at once,
	// but the agent's next round may still come.
	time.Sleep(5 * time.Second)
	writes, err := scenario.Writes(t.Context(), r.Cluster, r.Deleted)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range writes {
		if w.Name == r.Name || strings.Contains(w.Body, string(r.Pod.UID)) || strings.HasPrefix(w.Name, r.Name+".") {
			t.Errorf("the agent wrote about an innocent pod: %+v", w)
		}
	}
}

// sameNameAgain deletes a stuck pod by force and makes a new one of the same
// name, as a StatefulSet does: what holds the old one must not be said of it.
func sameNameAgain(t *testing.T, c *scenario.Cluster) {
	s := scenario.SameName()
	old := start(t, c, s)
	if err := old.AwaitVerdict(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.API.CoreV1().Pods(scenario.Namespace).Delete(t.Context(), s.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
		t.Fatal(err)
	}
	again := scenario.Again()
	r := &scenario.Run{Scenario: again, Cluster: c}
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	cleared(t, old)
	if err := r.Delete(t.Context()); err != nil {
		t.Fatal(err)
	}
	innocent(t, r)
	if err := old.Heal(t.Context(), c, old.Pod); err != nil {
		t.Error(err)
	}
}

// agentKilled kills the agent in the middle of an incident. The next one says
// the same, and nothing twice.
func agentKilled(t *testing.T, c *scenario.Cluster) {
	r := start(t, c, scenario.Another("agent-killed"))
	if err := r.AwaitVerdict(t.Context()); err != nil {
		t.Fatal(err)
	}
	before, events := standing(t, r)
	agent, err := scenario.AgentPod(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	restarts := agent.Status.ContainerStatuses[0].RestartCount
	if _, err := c.Exec(t.Context(), "pkill -9 -x nodeagent"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	if err := scenario.Until(ctx, "the agent to be back with its verdict", func() (bool, string) {
		a, err := scenario.AgentPod(ctx, c)
		if err != nil {
			return false, err.Error()
		}
		if s := a.Status.ContainerStatuses[0]; s.RestartCount <= restarts || !s.Ready {
			return false, fmt.Sprintf("restarts %d, ready %t", s.RestartCount, s.Ready)
		}
		m, err := scenario.Metrics(ctx, c)
		if err != nil {
			return false, err.Error()
		}
		return len(scenario.Series(m, "stuck_terminating_seconds", string(r.Pod.UID))) == 1, "no series yet"
	}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(5 * time.Second) // two more rounds
	after, eventsAfter := standing(t, r)
	if !after.LastTransitionTime.Equal(&before.LastTransitionTime) || after.Reason != before.Reason || after.Message != before.Message {
		t.Errorf("the condition changed over the restart:\n%+v\n%+v", before, after)
	}
	if len(events) != 1 || len(eventsAfter) != 1 || events[0].Name != eventsAfter[0].Name {
		t.Errorf("%d Events before the restart, %d after it, want the same one", len(events), len(eventsAfter))
	}
	if err := r.Mend(t.Context()); err != nil {
		t.Error(err)
	}
}

// apiServerStopped stops the API server when a pod is about to be stuck. The
// metric tells meanwhile, and the condition is written when it is back.
func apiServerStopped(t *testing.T, c *scenario.Cluster) {
	agent, err := scenario.AgentPod(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, c, scenario.Another("api-stopped"))
	if err := c.Component(t.Context(), "stop", "--now", "kube-apiserver"); err != nil {
		t.Fatal(err)
	}
	stopped := time.Now()
	back := sync.OnceValue(func() error { return c.Component(context.Background(), "start", "kube-apiserver") })
	defer func() { _ = back() }()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := scenario.Until(ctx, "the metric while the API server is down", func() (bool, string) {
		m, err := scenario.MetricsOnNode(ctx, c, agent.Status.PodIP)
		if err != nil {
			return false, err.Error()
		}
		s := scenario.Series(m, "stuck_terminating_seconds", string(r.Pod.UID))
		return len(s) == 1 && strings.Contains(s[0], r.Cause), strings.Join(s, "\n")
	}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Until(stopped.Add(60 * time.Second)))
	m, err := scenario.MetricsOnNode(t.Context(), c, agent.Status.PodIP)
	if err != nil || len(scenario.Series(m, "stuck_terminating_seconds", string(r.Pod.UID))) != 1 {
		t.Errorf("the series did not stay through the outage (%v)", err)
	}
	if err := back(); err != nil {
		t.Fatal(err)
	}
	if err := r.AwaitVerdict(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.Mend(t.Context()); err != nil {
		t.Error(err)
	}
}

// agentEnds measures that the agent's container ends within a second of
// SIGTERM while a pod is stuck.
func agentEnds(t *testing.T, c *scenario.Cluster) {
	r := start(t, c, scenario.Another("agent-ends"))
	if err := r.AwaitVerdict(t.Context()); err != nil {
		t.Fatal(err)
	}
	out, err := c.Exec(t.Context(), `pid=$(pgrep -o -x nodeagent); kill -TERM $pid; i=0
while [ -e /proc/$pid ] && ! grep -q "^State:.Z" /proc/$pid/status 2>/dev/null; do sleep 0.1; i=$((i+1)); [ $i -lt 100 ] || break; done; echo $i`)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the agent ended after about %s tenths of a second", strings.TrimSpace(out))
	if strings.TrimSpace(out) == "100" {
		t.Error("the agent still runs ten seconds after SIGTERM")
	}
	if err := r.Mend(t.Context()); err != nil {
		t.Error(err)
	}
}

// standing is the condition and the Events of the agent on a pod.
func standing(t *testing.T, r *scenario.Run) (corev1.PodCondition, []eventsv1.Event) {
	t.Helper()
	p, err := r.Cluster.Pod(t.Context(), scenario.Namespace, r.Name)
	if err != nil {
		t.Fatal(err)
	}
	c := scenario.Condition(p)
	if c == nil {
		t.Fatal("the pod has no condition of the agent")
	}
	events, err := r.Events(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return *c, events
}

// artifact keeps a file of the run where NODEAGENT_ARTIFACTS says.
func artifact(t *testing.T, name, text string) {
	t.Helper()
	dir := os.Getenv("NODEAGENT_ARTIFACTS")
	if dir == "" {
		return
	}
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
		t.Error(err)
	}
}

// dump logs what there is to see of a failed scenario.
func dump(t *testing.T, r *scenario.Run) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	out, err := r.Cluster.Kubectl(ctx, "-n", scenario.AgentNamespace, "logs", "daemonset/nodeagent", "--tail=2000")
	var about strings.Builder
	for line := range strings.Lines(out) {
		if slices.Contains(strings.Fields(line), "pod="+r.Name) || strings.Contains(line, "level=ERROR") {
			about.WriteString(line)
		}
	}
	t.Logf("the agent's log about %s (%v)\n%s", r.Name, err, about.String())
	out, err = r.Cluster.Kubectl(ctx, "-n", scenario.Namespace, "describe", "pod", r.Name)
	t.Logf("kubectl describe (%v)\n%s", err, out)
	if out, err := scenario.Capture(ctx, r.Cluster, r.Name); err == nil {
		t.Logf("capture\n%s", out)
	}
}
