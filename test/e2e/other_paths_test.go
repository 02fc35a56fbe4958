//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodeagent-io/nodeagent/test/bed"
	"github.com/nodeagent-io/nodeagent/test/scenario"
)

// Where K3s has containerd's socket, and a kubelet's directory by a name with a link in it.
const (
	k3sSocket   = "/run/k3s/containerd/containerd.sock"
	usualSocket = "/run/containerd/containerd.sock"
	linkedDir   = "/run/linked/kubelet"
	moveSocket  = "mkdir -p /run/k3s/containerd && mv " + usualSocket + " " + k3sSocket + " && ln -s " + k3sSocket + " " + usualSocket
	moveBack    = "[ ! -S " + k3sSocket + " ] || mv -f " + k3sSocket + " " + usualSocket + "; rm -rf /run/k3s /run/linked"
	linkDir     = "mkdir -p /run/linked && ln -sfn /var/lib/kubelet " + linkedDir
)

// otherPaths has containerd's socket where K3s has it, and the kubelet's directory by a name with a link in it. Agents that the manifest has
// installed find both, and what those of the chart with platform k3s say is the same. Then it has them look where neither is: they say so in
// the log, are not ready, and Unknown names it.
func otherPaths(x *trial, n *bed.Node, turn *bed.Turn) {
	ctx := x.Context()
	everywhere := func(ctx context.Context, script string) error {
		var errs []error
		for _, node := range n.Nodes {
			if _, err := node.Exec(ctx, script); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", node.Name, err))
			}
		}
		return errors.Join(errs...)
	}
	set := func(values ...string) error { return second(n.UpgradeChart(ctx, bed.Chart(), values...)) }
	defer func() {
		_, err := n.Helm(context.Background(), "uninstall", "nodeagent", "--namespace", n.Agents.Namespace, "--wait")
		if err := errors.Join(err, everywhere(context.Background(), moveBack)); err != nil {
			x.Error(err)
		}
		installAgain(x, n)
	}()
	if err := everywhere(ctx, moveSocket+" && "+linkDir); err != nil {
		x.Fatal(err)
	}
	// Where nothing is set they look for it.
	if _, err := n.Kubectl(ctx, "-n", n.Agents.Namespace, "rollout", "restart", "daemonset/nodeagent"); err != nil {
		x.Fatal(err)
	}
	if err := n.AwaitAgents(ctx); err != nil {
		x.Fatal(err)
	}
	if err := set("platform=k3s", "kubelet.rootDir="+linkedDir); err != nil {
		x.Fatal(err)
	}
	if err := n.AwaitAgents(ctx); err != nil {
		x.Fatal(err)
	}
	// One after the other: the kubelet does not tell what it counts while a shim does not answer.
	for _, s := range scenario.OfPlaces() {
		r := start(x, n, s, turn)
		if err := errors.Join(r.AwaitVerdict(ctx), r.Mend(ctx)); err != nil {
			x.Error(err)
		}
	}

	if err := set("kubelet.rootDir=/nowhere", "containerd.socket=/nowhere.sock"); err != nil {
		x.Fatal(err)
	}
	var on *bed.Node
	err := n.Await(ctx, "an agent that finds nothing", func() (bool, string) {
		pods, err := n.API.CoreV1().Pods(n.Agents.Namespace).List(ctx, metav1.ListOptions{LabelSelector: bed.AgentSelector})
		if err != nil {
			return false, err.Error()
		}
		for i := range pods.Items {
			p := &pods.Items[i]
			if p.DeletionTimestamp != nil || !slices.ContainsFunc(p.Spec.Containers[0].Env, func(e corev1.EnvVar) bool { return e.Value == "/nowhere" }) {
				continue
			}
			out, err := n.Kubectl(ctx, "-n", n.Agents.Namespace, "logs", p.Name)
			if err != nil || !strings.Contains(out, "none of /nowhere has the directory of nodeagent's own pod") || !strings.Contains(out, "/nowhere.sock") {
				return false, fmt.Sprintf("%s, %v", out, err)
			}
			if slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue }) {
				return false, p.Name + " is ready"
			}
			on = n.Nodes[slices.IndexFunc(n.Nodes, func(o *bed.Node) bool { return o.Name == p.Spec.NodeName })]
			return true, ""
		}
		return false, "no agent has been replaced"
	})
	if err != nil {
		x.Fatal(err)
	}
	blind := start(x, on, scenario.Blind(), turn)
	if err := errors.Join(blind.AwaitVerdict(ctx), blind.Mend(ctx)); err != nil {
		x.Error(err)
	}
	x.row.Verdict = verdictCheck
}
