//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodeagent-io/nodeagent/test/bed"
	"github.com/nodeagent-io/nodeagent/test/dashboard/grafana"
	"github.com/nodeagent-io/nodeagent/test/scenario"
)

// replicas is a workload whose pods ignore their stop signal, so that the second one is not reported where one verdict is in a minute.
const replicas = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"dashboards","namespace":"NAMESPACE"},"spec":{"replicas":3,
"selector":{"matchLabels":{"app":"dashboards"}},"template":{"metadata":{"labels":{"app":"dashboards"}},"spec":{"nodeName":"NODE",
"terminationGracePeriodSeconds":40,"automountServiceAccountToken":false,"dnsPolicy":"Default","containers":[{"name":"main",
"image":"docker.io/library/busybox:test","imagePullPolicy":"Never","command":["sh","-c","sleep 100000; true"]}]}}}}`

// dashboardsHaveData asks a Prometheus all queries of the dashboards: while all is well those that are to be empty then are, and the others
// have data; and when pods are stuck each has had some.
func dashboardsHaveData(x *trial, n *bed.Node, turn *bed.Turn) {
	ctx := x.Context()
	three := scenario.ThreeStuck()
	queries := dashboardQueries(x, map[string]string{
		"__rate_interval": "30s", "__range": "10m", "node": n.Name, "namespace": n.Namespace(), "pod": three[0].Name,
	})

	// Agents that have counted nothing yet, and are soon to keep verdicts back.
	defer func() {
		if err := bed.Install(context.Background(), n.Cluster); err != nil {
			x.Error(err)
		}
	}()
	if _, err := n.Kubectl(ctx, "-n", n.Agents.Namespace, "patch", "daemonset", "nodeagent", "--type=json", "-p",
		`[{"op":"add","path":"/spec/template/spec/containers/0/args/-","value":"--verdicts-per-minute=1"}]`); err != nil {
		x.Fatal(err)
	}
	if _, err := n.Kubectl(ctx, "-n", n.Agents.Namespace, "rollout", "status", "daemonset/nodeagent", "--timeout=5m"); err != nil {
		x.Fatal(err)
	}
	m := monitored(x, n)
	data := func(q grafana.Query) (bool, error) {
		value, warnings, _, err := m.Query(ctx, q.Expr, time.Now())
		if err == nil && len(warnings) > 0 {
			err = errors.New(strings.Join(warnings, "; "))
		}
		if err != nil {
			return false, fmt.Errorf("%s, %s: %w in %s", q.Dashboard, q.Panel, err, q.Expr)
		}
		vector, ok := value.(model.Vector)
		return ok && len(vector) > 0, nil
	}
	// lacking returns the queries that have no data.
	lacking := func(queries []grafana.Query) (without []grafana.Query, err error) {
		for _, q := range queries {
			has, failed := data(q)
			if err = errors.Join(err, failed); !has {
				without = append(without, q)
			}
		}
		return without, err
	}
	var always []grafana.Query
	for _, q := range queries {
		if q.EmptyUntil == "" {
			always = append(always, q)
			continue
		}
		if has, err := data(q); err != nil || has {
			x.Errorf("%s, %s is not empty while all is well, %v", q.Dashboard, q.Panel, err)
		}
	}
	wait := func(what string, queries []grafana.Query) {
		x.Helper()
		if err := n.Await(ctx, what, func() (bool, string) {
			var err error
			queries, err = lacking(queries)
			if err != nil {
				return false, err.Error()
			}
			return len(queries) == 0, fmt.Sprintf("no data yet: %v", queries)
		}); err != nil {
			x.Error(err)
		}
	}
	wait("the panels that always have data", always)

	var runs []*bed.Run
	for _, s := range append(three, scenario.OfCapabilities()[0]) {
		runs = append(runs, start(x, n, s, turn))
	}
	deleteReplicas(x, n)
	forced, none := start(x, n, scenario.Another("dashboards-forced"), turn), int64(0)
	if err := forced.AwaitVerdict(ctx); err != nil {
		x.Error(err)
	}
	if err := n.API.CoreV1().Pods(forced.Pod.Namespace).Delete(ctx, forced.Pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &none}); err != nil {
		x.Error(err)
	}
	wait("data in each panel", queries)
	wait("three pods that are late, for the pictures", []grafana.Query{{Expr: "sum(nodeagent_stuck_pods) >= 3"}})
	draw(x, m, n)
	for _, r := range append(runs, forced) {
		if err := r.Mend(ctx); err != nil {
			x.Error(err)
		}
	}
	x.row.Verdict = verdictCheck
}

// dashboardQueries are those of all dashboards.
func dashboardQueries(x *trial, values map[string]string) (all []grafana.Query) {
	x.Helper()
	dashboards, err := grafana.ReadAll(filepath.Join(bed.Root(), "deploy", "grafana"))
	if err != nil {
		x.Fatal(err)
	}
	for _, d := range dashboards {
		queries, err := d.Queries(values)
		if err != nil {
			x.Fatal(err)
		}
		all = append(all, queries...)
	}
	return all
}

// deleteReplicas makes a Deployment, and deletes it when its programs have run long enough to be known.
func deleteReplicas(x *trial, n *bed.Node) {
	x.Helper()
	manifest := strings.NewReplacer("NAMESPACE", n.Namespace(), "NODE", n.Name).Replace(replicas)
	x.Cleanup(func() {
		_, _ = n.Kubectl(context.Background(), "-n", n.Namespace(), "delete", "deployment", "dashboards", "--ignore-not-found")
	})
	if _, err := n.Apply(x.Context(), manifest); err != nil {
		x.Fatal(err)
	}
	if _, err := n.Kubectl(x.Context(), "-n", n.Namespace(), "rollout", "status", "deployment/dashboards", "--timeout=5m"); err != nil {
		x.Fatal(err)
	}
	time.Sleep(25 * time.Second)
	if _, err := n.Kubectl(x.Context(), "-n", n.Namespace(), "delete", "deployment", "dashboards"); err != nil {
		x.Error(err)
	}
}

// draw keeps a picture of each dashboard among the run's artifacts.
func draw(x *trial, m *bed.Prometheus, n *bed.Node) {
	x.Helper()
	for _, name := range []string{"fleet", "node", "pod"} {
		cmd := exec.CommandContext(x.Context(), "go", "run", "./test/dashboard", "-prometheus", m.URL, "-range", "10m", "-scrape", "2s", "-node", n.Name,
			"-namespace", n.Namespace(), "-pod", scenario.ThreeStuck()[0].Name, "-dashboard", filepath.Join("deploy", "grafana", name+".json"),
			"-out", filepath.Join(artifacts(), name+".html"))
		cmd.Dir = bed.Root()
		if out, err := cmd.CombinedOutput(); err != nil {
			x.Errorf("%v: %s", err, out)
		}
	}
}
