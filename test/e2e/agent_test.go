//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodeagent-io/nodeagent/test/bed"
	"github.com/nodeagent-io/nodeagent/test/scenario"
)

// checks are what the checks of test/scenario do.
var checks = map[string]func(*trial, *bed.Node, *bed.Turn){
	"stolen-token":       stolenToken,
	"same-name-again":    sameNameAgain,
	"namespace-deleted":  namespaceDeleted,
	"termination-phases": terminationPhases,
	"capture-by-copy":    captureByCopy,
	"why-terminating":    whyTerminating,
	"why-lost-node":      whyLostNode,
	"why-namespace":      whyNamespace,
	"deleted-again":      deletedAgain,
	"policy-unbound":     policyUnbound,
	"alert-life":         alertLife,
	"alerts-by-cause":    alertsByCause,
	"dashboards":         dashboardsHaveData,
	"agent-killed":       agentKilled,
	"agent-ends-in-time": agentEnds,
	"api-server-stopped": apiServerStopped,
	"old-kernel":         oldKernel,
	"proc-tests":         procTests,
	"other-paths":        otherPaths,
	"capabilities":       capabilities,
	"chart-values":       chartValues,
	"chart-upgraded":     chartUpgraded,
	"chart-restricted":   chartRestricted,
	// It takes the processors of all nodes. An emulated one takes five minutes for it:
	// NODES=vm.
	"starved-node": starvedNode,
}

// onKernel is what a check about a kernel needs of its node.
var onKernel = bed.Scenario{Place: bed.Place{Needs: []bed.Need{bed.Hang}, Alone: true}}

// checkJob is a check on a node where an incident costs least, or on one that has nothing
// else to do, or on the whole cluster. It is not ok when no node offers what the check needs.
func checkJob(c *bed.Cluster, check bed.Check) (j job, ok bool) {
	j = job{name: check.Name, wish: bed.Wish{Order: orderUsual}}
	switch check.On {
	case bed.Nothing:
		j.nodes = c.Nodes[:1]
	case bed.ANode:
		j.nodes, j.wish = c.For(bed.Scenario{Place: bed.Place{Alone: true}})[0], bed.Wish{Order: orderAlone, Alone: true}
	case bed.AKernel:
		places := c.For(onKernel)
		if len(places) == 0 {
			return j, false
		}
		j.nodes, j.wish = places[0], bed.Wish{Order: orderAlone, Alone: true}
	case bed.TheCluster:
	}
	j.do = func(t *testing.T, turn *bed.Turn) {
		n, row := c.Nodes[0], bed.Result{Name: check.Name, Tier: check.Tier.String(), On: j.on(), Verdict: verdictCheck}
		if turn != nil {
			n, row.Node = turn.Node, turn.Node.Name
		}
		try(t, table, row, func(x *trial) { checks[check.Name](x, n, turn) })
	}
	return j, true
}

// starvedNode lets programs compute on all processors of the node, if it is not short
// of them as it is, while pods end in time, and one does not: that one is told right,
// nobody else is accused, and the agent takes little of a processor.
func starvedNode(x *trial, n *bed.Node, turn *bed.Turn) {
	const innocents, spinners = 10, 16
	is := scenario.Frozen()
	if len(n.Lacks(is)) > 0 {
		is = scenario.Another("starved-stuck")
	}
	stuck := start(x, n, is, turn)
	var others []*bed.Run
	for i := range innocents {
		others = append(others, &bed.Run{Scenario: scenario.Innocent(fmt.Sprintf("starved-%d", i)), Node: n})
	}
	x.Cleanup(func() {
		if x.Failed() {
			_ = each(others, func(r *bed.Run) error { return r.Discard(context.Background()) })
		}
	})
	if err := each(others, func(r *bed.Run) error { return r.Start(x.Context()) }); err != nil {
		x.Fatal(err)
	}
	const group = "/run/scenario-spinners"
	stop := fmt.Sprintf("[ ! -e %s ] || kill $(cat %[1]s); rm -f %[1]s", group)
	pressed := func() (bool, string) {
		out, err := n.Exec(x.Context(), `sed -n 's/some avg10=\([0-9]*\).*/\1/p' /proc/pressure/cpu`)
		if err != nil {
			return false, err.Error()
		}
		var percent int
		_, err = fmt.Sscan(out, &percent)
		return err == nil && percent >= 60, out
	}
	if is, _ := pressed(); is {
		x.Log("the node has no processor to spare as it is")
	} else if _, err := n.Exec(x.Context(), fmt.Sprintf(`for i in $(seq %d); do setsid sh -c 'while :; do :; done' </dev/null >/dev/null 2>&1 & echo $! >>%s; done`, spinners, group)); err != nil {
		x.Fatal(err)
	}
	defer func() {
		if _, err := n.Exec(context.Background(), stop); err != nil {
			x.Error(err)
		}
	}()
	if err := n.Await(x.Context(), "the pressure on the node", pressed); err != nil {
		x.Fatal(err)
	}
	spent, begin := agentCPU(x, n), time.Now()
	if err := each(others, func(r *bed.Run) error { return r.Delete(x.Context()) }); err != nil {
		x.Fatal(err)
	}
	if err := stuck.AwaitVerdict(x.Context()); err != nil {
		x.Fatal(err)
	}
	x.row.Deletion = stuck.Evented.Sub(stuck.Deleted)
	// Rounds that cost next to nothing need not be rarer.
	metrics, err := n.Metrics(x.Context())
	if err != nil {
		x.Fatal(err)
	}
	if share := (agentCPU(x, n) - spent) / time.Since(begin).Seconds(); share > 0.1 && !strings.Contains(metrics, "\nnodeagent_round_period_seconds 10\n") {
		x.Errorf("on a starved node the agent took %.0f %% of a processor, and its %s", 100*share, lines(metrics, "nodeagent_round_period_seconds"))
	}
	innocent(x, others...)
	if _, err := n.Exec(x.Context(), stop); err != nil {
		x.Error(err)
	}
	if err := stuck.Mend(x.Context()); err != nil {
		x.Error(err)
	}
	x.row.Verdict = verdictCheck
}

// each does something with some runs side by side.
func each(runs []*bed.Run, do func(*bed.Run) error) error {
	errs := make([]error, len(runs))
	var all sync.WaitGroup
	for i, r := range runs {
		all.Go(func() { errs[i] = do(r) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// lines returns the lines of some metrics.
func lines(metrics string, names ...string) string {
	var out strings.Builder
	for line := range strings.Lines(metrics) {
		for _, name := range names {
			if strings.HasPrefix(line, name+" ") {
				out.WriteString(line)
			}
		}
	}
	return out.String()
}

// sameNameAgain deletes a stuck pod by force and makes a new one of the same
// name, as a StatefulSet does: what holds the old one must not be said of it.
func sameNameAgain(x *trial, n *bed.Node, turn *bed.Turn) {
	old := start(x, n, scenario.SameName(), turn)
	if err := old.AwaitVerdict(x.Context()); err != nil {
		x.Fatal(err)
	}
	if err := n.API.CoreV1().Pods(old.Pod.Namespace).Delete(x.Context(), old.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
		x.Fatal(err)
	}
	r := &bed.Run{Scenario: scenario.Again(), Node: n}
	if err := r.Start(x.Context()); err != nil {
		x.Fatal(err)
	}
	cleared(x, old)
	if err := r.Delete(x.Context()); err != nil {
		x.Fatal(err)
	}
	innocent(x, r)
	if err := old.Heal(x.Context(), n, old.Pod); err != nil {
		x.Error(err)
	}
}

// namespaceDeleted deletes a namespace with pods of which each is stuck for a reason of its own. Such a
// namespace takes no new Events, so that each is told in its condition, and in an Event on the node.
func namespaceDeleted(x *trial, n *bed.Node, _ *bed.Turn) {
	const name = "scenario-namespace-deleted"
	namespaces := n.API.CoreV1().Namespaces()
	if _, err := namespaces.Create(x.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		x.Fatal(err)
	}
	var runs []*bed.Run
	defer func() {
		for _, r := range runs {
			if err := r.Heal(context.Background(), n, r.Pod); err != nil {
				x.Error(err)
			}
		}
		if err := n.Await(context.Background(), "the namespace to go away", func() (bool, string) {
			_, err := namespaces.Get(context.Background(), name, metav1.GetOptions{})
			return apierrors.IsNotFound(err), fmt.Sprint(err)
		}); err != nil {
			x.Error(err)
		}
	}()
	for _, s := range scenario.ThreeStuck() {
		r := &bed.Run{Scenario: s, Node: n, Namespace: name}
		if err := r.Start(x.Context()); err != nil {
			x.Fatal(err)
		}
		runs = append(runs, r)
	}
	if err := namespaces.Delete(x.Context(), name, metav1.DeleteOptions{}); err != nil {
		x.Fatal(err)
	}
	for _, r := range runs {
		if err := n.Await(x.Context(), r.Name+": verdict "+r.Cause, func() (bool, string) {
			p, err := r.Current()
			if err != nil {
				return false, err.Error()
			}
			if c := bed.Condition(p); c == nil || c.Status != corev1.ConditionTrue || c.Reason != r.Cause {
				return false, fmt.Sprintf("condition %+v", c)
			}
			events, err := n.API.EventsV1().Events("").List(x.Context(), metav1.ListOptions{FieldSelector: "regarding.kind=Node,reason=" + r.Cause})
			if err != nil {
				return false, err.Error()
			}
			for _, e := range events.Items {
				if strings.Contains(e.Note, name+"/"+r.Name) {
					return true, ""
				}
			}
			return false, fmt.Sprintf("none of the node's %d Events of this reason names the pod", len(events.Items))
		}); err != nil {
			x.Fatal(err)
		}
	}
	x.row.Verdict = verdictCheck
}

// terminationPhases ends a healthy pod, whose parts are counted. Other pods end meanwhile,
// unless nothing else was asked for.
func terminationPhases(x *trial, n *bed.Node, turn *bed.Turn) {
	read := func() map[string]float64 {
		metrics, err := n.Metrics(x.Context())
		if err != nil {
			x.Fatal(err)
		}
		out := map[string]float64{}
		for line := range strings.Lines(metrics) {
			if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && strings.HasPrefix(name, "nodeagent_termination_phase_seconds_") {
				if out[strings.TrimPrefix(name, "nodeagent_termination_phase_seconds_")], err = strconv.ParseFloat(value, 64); err != nil {
					x.Fatal(err)
				}
			}
		}
		return out
	}
	alone := os.Getenv(namesVariable) == "termination-phases"
	before := read()
	r := start(x, n, scenario.Innocent("termination-phases"), turn)
	innocent(x, r)
	after := read()
	since := func(series, phase string) float64 {
		name := fmt.Sprintf("%s{phase=%q}", series, phase)
		return after[name] - before[name]
	}
	for phase, want := range map[string]float64{"GracePeriod": 1, "Overdue": 0, "Sandbox": 1, "Volumes": 1, "Finalizers": 0} {
		got, took := since("count", phase), since("sum", phase)
		x.Logf("%s: %v pods in %v s", phase, got, took)
		if got < want || alone && got != want {
			x.Errorf("%v terminations are counted in %s, want %v", got, phase, want)
		}
		if phase == "GracePeriod" && (took < 15 || alone && took > 30) {
			x.Errorf("the pod took %v s of its grace period, want about 20", took)
		}
	}
	x.row.Verdict = verdictCheck
}

// agentKilled restarts parts of a node in the middle of incidents of five layers, and while another pod is said to be inside its
// grace period. The conditions stand all the time, and the next agent says the same, and nothing twice.
func agentKilled(x *trial, n *bed.Node, turn *bed.Turn) {
	ctx := x.Context()
	draining := &bed.Run{Scenario: scenario.Draining("agent-killed-draining", 400, 150), Node: n}
	// What was on the node before may have started the kubelet anew: then it is not known whether it has sent the stop signal.
	draining.Waits = []string{"Not stuck: ", " is inside its grace period of ", "it will be killed"}
	runs := []*bed.Run{draining}
	for _, s := range scenario.OfLayers() {
		runs = append(runs, &bed.Run{Scenario: s, Node: n})
	}
	x.Cleanup(func() {
		if x.Failed() {
			_ = each(runs, func(r *bed.Run) error { return r.Discard(context.Background()) })
		}
	})
	must := func(err error) {
		x.Helper()
		if err != nil {
			x.Fatal(err)
		}
	}
	must(each(runs, func(r *bed.Run) error {
		if err := r.Start(ctx); err != nil {
			return err
		}
		return r.Delete(ctx)
	}))
	finished := start(x, n, scenario.Finished("agent-killed"), turn)
	waits(x, draining)
	stuck := append(runs[1:], finished)
	must(each(stuck, func(r *bed.Run) error { return r.AwaitVerdict(ctx) }))
	before, events := standing(x, finished)

	on := func(script string) func() error {
		return func() error { _, err := n.Exec(ctx, script); return err }
	}
	standOver(x, "a kill of the agent", stuck, on("pkill -9 -x nodeagent"))
	after, eventsAfter := standing(x, finished)
	if !after.LastTransitionTime.Equal(&before.LastTransitionTime) || after.Reason != before.Reason || after.Message != before.Message {
		x.Errorf("the condition changed over the restart:\n%+v\n%+v", before, after)
	}
	if len(events) != 1 || len(eventsAfter) != 1 || events[0].Name != eventsAfter[0].Name {
		x.Errorf("%d Events before the restart, %d after it, want the same one", len(events), len(eventsAfter))
	}
	must(finished.Mend(ctx))
	recorded(x, finished, before.LastTransitionTime.Time)

	stuck = runs[1:]
	standOver(x, "a rollout of the DaemonSet", stuck, func() error {
		if _, err := n.Kubectl(ctx, "-n", n.Agents.Namespace, "rollout", "restart", "daemonset/nodeagent"); err != nil {
			return err
		}
		return n.AwaitAgents(ctx)
	})
	// The end of containerd ends the kubelet's wait for the hook, and the next one sees that the process has ended which the tracer holds.
	mend := func(r *bed.Run) error { return r.Mend(ctx) }
	must(each(stuck[3:], mend))
	stuck = stuck[:3]
	standOver(x, "a restart of containerd", stuck, on("if [ -d /run/systemd/system ]; then systemctl restart containerd; else pkill -x containerd; fi"))
	// A kubelet that was started unmounts volumes in another way.
	must(mend(stuck[0]))
	stuck = stuck[1:]
	// The first round of an agent has seen a kubelet that is stopped then, for a minute.
	stands := conditionsStand(x, stuck, "KubeletDown")
	must(on("pkill -9 -x nodeagent")())
	toldAgain(x, stuck)
	must(on(scenario.StopService + "stop_service kubelet")())
	time.Sleep(time.Minute)
	must(on(scenario.StopService + "start_service kubelet")())
	toldAgain(x, stuck)
	time.Sleep(settles)
	stands()
	must(each(stuck, mend))
	innocent(x, draining) // that is one write
}

// settles is more than the time after which a verdict is withdrawn that looks do not find, and two rounds: a shim that does not answer
// after a start of containerd puts that off.
const settles = time.Minute

// standOver does something while the pods are stuck. Their conditions stand meanwhile, and until a verdict would have been withdrawn.
func standOver(x *trial, what string, stuck []*bed.Run, do func() error) {
	x.Helper()
	begin := time.Now()
	stands := conditionsStand(x, stuck)
	if err := do(); err != nil {
		x.Fatal(err)
	}
	toldAgain(x, stuck)
	told := time.Since(begin).Round(time.Second)
	time.Sleep(settles)
	stands()
	x.Logf("%s, after which the metrics have all causes: %s", what, told)
}

// toldAgain waits until the metrics of the node's agent, which may be a new one, have the pods' causes.
func toldAgain(x *trial, stuck []*bed.Run) {
	x.Helper()
	if err := each(stuck, func(r *bed.Run) error {
		return r.Node.Await(x.Context(), "the series of "+r.Name, func() (bool, string) {
			m, _, err := series(x.Context(), r)
			if err != nil {
				return false, err.Error()
			}
			return len(m) == 1 && strings.Contains(m[0], fmt.Sprintf("reason=%q", r.Cause)), strings.Join(m, "; ")
		})
	}); err != nil {
		x.Fatal(err)
	}
}

// recorded waits for what the agent's log says of a pod when it has gone: which verdict held it to the end, and since when.
func recorded(x *trial, r *bed.Run, since time.Time) {
	x.Helper()
	begin := fmt.Sprintf(`msg="verdict ended" namespace=%s pod=%s uid=%s `, r.Pod.Namespace, r.Pod.Name, r.Pod.UID)
	if err := r.Node.Await(x.Context(), "the record of the verdict", func() (bool, string) {
		agent, err := r.Node.AgentPod(x.Context())
		if err != nil {
			return false, err.Error()
		}
		log, err := r.Node.Kubectl(x.Context(), "-n", agent.Namespace, "logs", agent.Name)
		if err != nil {
			return false, err.Error()
		}
		_, record, found := strings.Cut(log, begin)
		record, _, _ = strings.Cut(record, "\n")
		right := strings.Contains(record, " cause="+r.Cause+" ") && strings.Contains(record, " ending=deleted since="+since.UTC().Format("2006-01-02T15:04:05.000Z")+" ")
		return found && right && strings.Count(log, begin) == 1, fmt.Sprintf("%d records; the first: %s", strings.Count(log, begin), record)
	}); err != nil {
		x.Error(err)
	}
}

// apiServerStopped stops the API server when a pod is about to be stuck. The
// metric tells meanwhile, and the condition is written when it is back.
func apiServerStopped(x *trial, n *bed.Node, turn *bed.Turn) {
	agent, err := n.AgentPod(x.Context())
	if err != nil {
		x.Fatal(err)
	}
	r := start(x, n, scenario.Another("api-stopped"), turn)
	if err := n.Component(x.Context(), "stop", "--now", "kube-apiserver"); err != nil {
		x.Fatal(err)
	}
	stopped := time.Now()
	back := sync.OnceValue(func() error { return n.Component(context.Background(), "start", "kube-apiserver") })
	defer func() { _ = back() }()
	if err := n.Await(x.Context(), "the metric while the API server is down", func() (bool, string) {
		m, err := n.MetricsOnNode(x.Context(), agent.Status.PodIP)
		if err != nil {
			return false, err.Error()
		}
		s := bed.Series(m, "stuck_terminating_seconds", string(r.Pod.UID))
		return len(s) == 1 && strings.Contains(s[0], r.Cause), strings.Join(s, "\n")
	}); err != nil {
		x.Fatal(err)
	}
	time.Sleep(time.Until(stopped.Add(60 * time.Second)))
	m, err := n.MetricsOnNode(x.Context(), agent.Status.PodIP)
	if err != nil || len(bed.Series(m, "stuck_terminating_seconds", string(r.Pod.UID))) != 1 {
		x.Errorf("the series did not stay through the outage (%v)", err)
	}
	if err := errors.Join(back(), n.WatchAnew()); err != nil {
		x.Fatal(err)
	}
	if err := r.AwaitVerdict(x.Context()); err != nil {
		x.Fatal(err)
	}
	if err := r.Mend(x.Context()); err != nil {
		x.Error(err)
	}
}

// agentEnds measures that the agent's container ends within a second of
// SIGTERM while a pod is stuck.
func agentEnds(x *trial, n *bed.Node, turn *bed.Turn) {
	r := start(x, n, scenario.Another("agent-ends"), turn)
	if err := r.AwaitVerdict(x.Context()); err != nil {
		x.Fatal(err)
	}
	out, err := n.Exec(x.Context(), `pid=$(pgrep -o -x nodeagent); kill -TERM $pid; i=0
while [ -e /proc/$pid ] && ! grep -q "^State:.Z" /proc/$pid/status 2>/dev/null; do sleep 0.1; i=$((i+1)); [ $i -lt 100 ] || break; done; echo $i`)
	if err != nil {
		x.Fatal(err)
	}
	x.Logf("the agent ended after about %s tenths of a second", strings.TrimSpace(out))
	if strings.TrimSpace(out) == "100" {
		x.Errorf("the agent still runs ten seconds after SIGTERM")
	}
	if err := r.Mend(x.Context()); err != nil {
		x.Error(err)
	}
}

// standing returns the condition and the Events of the agent on a pod.
func standing(x *trial, r *bed.Run) (corev1.PodCondition, []eventsv1.Event) {
	x.Helper()
	p, err := r.Node.Pod(x.Context(), r.Pod.Namespace, r.Name)
	if err != nil {
		x.Fatal(err)
	}
	c := bed.Condition(p)
	if c == nil {
		x.Fatal(errors.New("the pod has no condition of the agent"))
	}
	events, err := r.Events(x.Context())
	if err != nil {
		x.Fatal(err)
	}
	return *c, events
}

// agentCPU returns the processor time that a node's agent has had, in seconds.
func agentCPU(x *trial, n *bed.Node) float64 {
	metrics, err := n.Metrics(x.Context())
	if err != nil {
		x.Fatal(err)
	}
	const name = "process_cpu_seconds_total "
	for l := range strings.Lines(metrics) {
		if text, is := strings.CutPrefix(l, name); is {
			seconds, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
			if err != nil {
				x.Fatal(err)
			}
			return seconds
		}
	}
	x.Fatal(errors.New("the agent does not tell its processor time"))
	return 0
}
