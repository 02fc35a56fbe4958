//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodeagent-io/nodeagent/test/bed"
	"github.com/nodeagent-io/nodeagent/test/scenario"
)

// shorter are the times of the rules, and those with which the test does not wait for minutes.
var shorter = [][2]string{
	{`nodeagent-system/nodeagent"}) > 120`, `nodeagent-system/nodeagent"}) > 5`},
	{"kube_pod_deletion_timestamp) > 300", "kube_pod_deletion_timestamp) > 10"},
	{"[1h]", "[1m]"}, {"[10m]", "[5s]"}, {"[15m]", "[30s]"},
}

// monitored starts a Prometheus with the project's rules, at shorter times, and the inhibition that docs/alerts.md gives.
func monitored(x *trial, n *bed.Node) *bed.Prometheus {
	x.Helper()
	text, err := os.ReadFile(filepath.Join(bed.Root(), "deploy", "prometheus", "alerts.yaml"))
	if err != nil {
		x.Fatal(err)
	}
	rules := regexp.MustCompile(`(?m)^( +(?:keep_firing_)?for: ).*$`).ReplaceAllString(string(text), "${1}5s")
	for _, s := range shorter {
		if !strings.Contains(rules, s[0]) {
			x.Fatalf("no rule has %q", s[0])
		}
		rules = strings.ReplaceAll(rules, s[0], s[1])
	}
	page, err := os.ReadFile(filepath.Join(bed.Root(), "docs", "alerts.md"))
	if err != nil {
		x.Fatal(err)
	}
	inhibit := regexp.MustCompile("(?s)```yaml\n(inhibit_rules:.*?)```").FindSubmatch(page)
	if inhibit == nil {
		x.Fatalf("docs/alerts.md has no inhibit_rules")
	}
	exporter := httptest.NewServer(stateMetrics(n.Cluster))
	ctx, cancel := context.WithCancel(x.Context())
	dir := x.TempDir()
	x.Cleanup(func() {
		cancel()
		exporter.Close()
		if x.Failed() {
			for _, log := range []string{"prometheus.log", "unshare.log"} {
				text, _ := os.ReadFile(filepath.Join(dir, log))
				x.Logf("%s: …%s", log, text[max(0, len(text)-2000):])
			}
		}
	})
	m, err := n.StartPrometheus(ctx, dir, rules, string(inhibit[1]), exporter.Listener.Addr().String())
	if err != nil {
		x.Fatal(err)
	}
	return m
}

// stateMetrics serves the four metrics of kube-state-metrics that the rules use, as its documentation describes them: it cannot be had as a
// module.
func stateMetrics(c *bed.Cluster) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		registry := prometheus.NewRegistry()
		gauge := func(name string, labels ...string) *prometheus.GaugeVec {
			g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: name}, labels)
			registry.MustRegister(g)
			return g
		}
		deleted := gauge("kube_pod_deletion_timestamp", "namespace", "pod", "uid")
		info := gauge("kube_pod_info", "namespace", "pod", "uid", "node")
		ready := gauge("kube_node_status_condition", "node", "condition", "status")
		unavailable := gauge("kube_daemonset_status_number_unavailable", "namespace", "daemonset")
		pods, errPods := c.API.CoreV1().Pods("").List(r.Context(), metav1.ListOptions{})
		nodes, errNodes := c.API.CoreV1().Nodes().List(r.Context(), metav1.ListOptions{})
		sets, errSets := c.API.AppsV1().DaemonSets("").List(r.Context(), metav1.ListOptions{})
		if err := errors.Join(errPods, errNodes, errSets); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		for _, p := range pods.Items {
			info.WithLabelValues(p.Namespace, p.Name, string(p.UID), p.Spec.NodeName).Set(1)
			if t := p.DeletionTimestamp; t != nil {
				deleted.WithLabelValues(p.Namespace, p.Name, string(p.UID)).Set(float64(t.Unix()))
			}
		}
		for _, n := range nodes.Items {
			for _, c := range n.Status.Conditions {
				for _, status := range []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown} {
					is := 0.0
					if c.Status == status {
						is = 1
					}
					ready.WithLabelValues(n.Name, string(c.Type), strings.ToLower(string(status))).Set(is)
				}
			}
		}
		for _, s := range sets.Items {
			unavailable.WithLabelValues(s.Namespace, s.Name).Set(float64(s.Status.NumberUnavailable))
		}
		promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, r)
	})
}

// A label set by which an alert is known.
type alertLabels = map[string]string

// fires waits until a person has got an alert with these labels, and returns it.
func fires(x *trial, n *bed.Node, m *bed.Prometheus, labels alertLabels) bed.Notification {
	x.Helper()
	return notified(x, n, m, labels, "firing")
}

// resolves waits until a person has been told that it is over.
func resolves(x *trial, n *bed.Node, m *bed.Prometheus, labels alertLabels) {
	x.Helper()
	notified(x, n, m, labels, "resolved")
}

func notified(x *trial, n *bed.Node, m *bed.Prometheus, labels alertLabels, status string) (last bed.Notification) {
	x.Helper()
	if err := n.Await(x.Context(), fmt.Sprintf("a notification that %v is %s", labels, status), func() (bool, string) {
		all := m.Notified(labels)
		if len(all) == 0 {
			return false, "there is none"
		}
		last = all[len(all)-1]
		return last.Status == status, "the last one says " + last.Status
	}); err != nil {
		x.Error(err)
		return last
	}
	if status == "firing" {
		keepAlert(x, last)
		for name, text := range last.Annotations {
			if text == "" || strings.Contains(text, "<no value>") || strings.Contains(text, "  ") {
				x.Errorf("%s of %v: %q", name, labels, text)
			}
		}
	}
	return last
}

// keepAlert appends what a person gets to a file of the run's artifacts.
func keepAlert(x *trial, a bed.Notification) {
	f, err := os.OpenFile(filepath.Join(artifacts(), "alerts.txt"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = fmt.Fprintf(f, "[%s] %s\n%s\n%s\n%s\n%v\n\n", strings.ToUpper(a.Status), a.Labels["alertname"], a.Annotations["summary"],
			a.Annotations["description"], a.Annotations["runbook_url"], a.Labels)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		x.Error(err)
	}
}

// alertLife follows the alert about a stuck pod: there is none, it is pending, it fires, a person gets it, and it is resolved after the
// repair. The histogram of phases then leads to pods.
func alertLife(x *trial, n *bed.Node, turn *bed.Turn) {
	ctx := x.Context()
	m := monitored(x, n)
	s := scenario.Another("alert-life")
	labels := alertLabels{"alertname": "PodStuckTerminating", "namespace": n.Namespace(), "pod": s.Name}
	var states []promv1.AlertState
	state := func() (promv1.AlertState, error) {
		all, err := m.Alerts(ctx)
		if err != nil {
			return "", err
		}
		for _, a := range all.Alerts {
			if string(a.Labels["alertname"]) == labels["alertname"] && string(a.Labels["namespace"]) == labels["namespace"] && string(a.Labels["pod"]) == s.Name {
				return a.State, nil
			}
		}
		return promv1.AlertStateInactive, nil
	}
	see := func(wanted promv1.AlertState) {
		x.Helper()
		if err := n.Await(ctx, "the alert to be "+string(wanted), func() (bool, string) {
			now, err := state()
			if err != nil {
				return false, err.Error()
			}
			if len(states) == 0 || states[len(states)-1] != now {
				states = append(states, now)
			}
			return now == wanted, string(now)
		}); err != nil {
			x.Fatal(err)
		}
	}
	see(promv1.AlertStateInactive)
	r := start(x, n, s, turn)
	see(promv1.AlertStateFiring)
	if want := []promv1.AlertState{promv1.AlertStateInactive, promv1.AlertStatePending, promv1.AlertStateFiring}; !slices.Equal(states, want) {
		x.Errorf("the alert was %v, not %v", states, want)
	}
	got := fires(x, n, m, labels)
	if got.Labels["node"] != n.Name || got.Labels["reason"] != r.Cause || got.Labels["severity"] != "warning" {
		x.Errorf("labels %v", got.Labels)
	}
	for _, want := range []string{" on node " + n.Name + " is ", "kubectl describe pod -n " + n.Namespace() + " " + s.Name} {
		if !strings.Contains(got.Annotations["description"], want) {
			x.Errorf("%q does not have %q", got.Annotations["description"], want)
		}
	}
	if url := got.Annotations["runbook_url"]; !strings.HasSuffix(url, "/docs/reasons/"+r.Cause+".md") {
		x.Errorf("runbook_url %s", url)
	}
	if err := r.AwaitVerdict(ctx); err != nil {
		x.Error(err)
	}
	if err := r.Mend(ctx); err != nil {
		x.Error(err)
	}
	resolves(x, n, m, labels)
	// A bucket has one exemplar, and that of this pod may be another one's before it is scraped.
	if err := n.Await(ctx, "an exemplar that names a pod of the namespace", func() (bool, string) {
		found, err := m.QueryExemplars(ctx, "nodeagent_termination_phase_seconds_bucket", x.begun, time.Now())
		for _, series := range found {
			for _, e := range series.Exemplars {
				if string(e.Labels["namespace"]) == r.Pod.Namespace && e.Labels["pod"] != "" {
					return true, ""
				}
			}
		}
		return false, fmt.Sprint(len(found), " series have exemplars, ", err)
	}); err != nil {
		x.Error(err)
	}
	x.row.Verdict = verdictCheck
}

// alertsByCause has each of these alerts fire by what it is about, and end: an agent that does not answer, containerd stopped, an orphan, a
// policy without its binding, a dead node, and many pods of one cause.
func alertsByCause(x *trial, n *bed.Node, turn *bed.Turn) {
	m := monitored(x, n)
	many := manyStuck(x, n)

	agentSilent(x, n, m, turn)

	down, err := scenario.Named("containerd-down")
	if err != nil {
		x.Fatal(err)
	}
	r := start(x, n, down[0], turn)
	stuck := alertLabels{"alertname": "PodStuckTerminating", "pod": r.Pod.Name, "node": n.Name, "reason": "ContainerdDown"}
	fires(x, n, m, stuck)
	if err := r.Mend(x.Context()); err != nil {
		x.Error(err)
	}
	resolves(x, n, m, stuck)

	orphan, none := alertLabels{"alertname": "OrphanedPods", "node": n.Name, "kind": "process"}, int64(0)
	r = start(x, n, scenario.Another("alert-orphan"), turn)
	if err := r.AwaitVerdict(x.Context()); err != nil {
		x.Error(err)
	}
	if err := n.API.CoreV1().Pods(r.Pod.Namespace).Delete(x.Context(), r.Pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &none}); err != nil {
		x.Error(err)
	}
	fires(x, n, m, alertLabels{"alertname": "DeletedPodRemains", "node": n.Name, "reason": r.Cause})
	fires(x, n, m, orphan)
	if err := r.Mend(x.Context()); err != nil {
		x.Error(err)
	}
	resolves(x, n, m, orphan)

	held := alertLabels{"alertname": "NodeagentTokenNotHeld", "node": n.Name, "policy": ownNodePolicy}
	unbound(x, n, func() { fires(x, n, m, held) })
	resolves(x, n, m, held)

	nodeLost(x, n, m)

	manyFire(x, n, m, many)
	x.row.Verdict = verdictCheck
}

// agentSilent stops the agent with a signal, so that nothing is known of a stuck pod of its node.
func agentSilent(x *trial, n *bed.Node, m *bed.Prometheus, turn *bed.Turn) {
	x.Helper()
	if _, err := n.Exec(x.Context(), "kill -STOP $(pgrep -x nodeagent)"); err != nil {
		x.Fatal(err)
	}
	r := start(x, n, scenario.Another("alert-unexplained"), turn)
	unexplained := alertLabels{"alertname": "PodTerminatingUnexplained", "pod": r.Pod.Name}
	missing := alertLabels{"alertname": "NodeagentMissingOnNodes"}
	fires(x, n, m, unexplained)
	fires(x, n, m, missing)
	if _, err := n.Exec(context.Background(), "kill -CONT $(pgrep -x nodeagent)"); err != nil {
		x.Error(err)
	}
	resolves(x, n, m, unexplained)
	resolves(x, n, m, missing)
	if err := r.AwaitVerdict(x.Context()); err != nil {
		x.Error(err)
	}
	if err := r.Mend(x.Context()); err != nil {
		x.Error(err)
	}
}

// nodeLost stops the kubelet and the agent of a node for good.
func nodeLost(x *trial, n *bed.Node, m *bed.Prometheus) {
	x.Helper()
	r := &bed.Run{Scenario: scenario.Sleeper("alert-lost-node", 5), Node: n}
	x.Cleanup(func() { _ = r.Discard(context.Background()) })
	if err := r.Start(x.Context()); err != nil {
		x.Fatal(err)
	}
	back := loseNode(x, n)
	defer func() {
		if err := back(); err != nil {
			x.Error(err)
		}
	}()
	if err := n.API.CoreV1().Pods(r.Pod.Namespace).Delete(x.Context(), r.Pod.Name, metav1.DeleteOptions{}); err != nil {
		x.Fatal(err)
	}
	lost := alertLabels{"alertname": "PodsTerminatingOnLostNode", "node": n.Name}
	fires(x, n, m, lost)
	if err := back(); err != nil {
		x.Fatal(err)
	}
	resolves(x, n, m, lost)
}

// enough pods with one cause are one incident.
const enough = 5

// manyStuck deletes pods of which a finalizer is left.
func manyStuck(x *trial, n *bed.Node) (all []*bed.Run) {
	x.Helper()
	for i := range enough {
		all = append(all, &bed.Run{Scenario: scenario.Finished(fmt.Sprint("alert-many-", i)), Node: n})
	}
	x.Cleanup(func() {
		if x.Failed() {
			_ = each(all, func(r *bed.Run) error { return r.Discard(context.Background()) })
		}
	})
	if err := each(all, func(r *bed.Run) error { return errors.Join(r.Start(x.Context()), r.Delete(x.Context())) }); err != nil {
		x.Fatal(err)
	}
	return all
}

// manyFire waits for the alert about all of them, which keeps back those about each: when these have ended, they do not come again.
func manyFire(x *trial, n *bed.Node, m *bed.Prometheus, many []*bed.Run) {
	x.Helper()
	labels := alertLabels{"alertname": "ManyPodsStuckTerminating", "reason": "FinalizersPending"}
	got := fires(x, n, m, labels)
	if want := "barepod " + n.Namespace() + "/alert-many-0 (1),"; !strings.Contains(got.Annotations["description"], want) {
		x.Errorf("%q does not have %q", got.Annotations["description"], want)
	}
	if err := each(many, func(r *bed.Run) error { return r.Mend(x.Context()) }); err != nil {
		x.Error(err)
	}
	resolves(x, n, m, labels)
}
