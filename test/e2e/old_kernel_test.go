//go:build e2e

package e2e

import (
	"context"
	"errors"
	"strings"

	"github.com/nodeagent-io/nodeagent/test/bed"
	"github.com/nodeagent-io/nodeagent/test/scenario"
)

// noOpenat2 is a seccomp profile with which openat2 is refused as by a kernel before 5.6: it answers ENOSYS.
const noOpenat2 = `{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":["openat2"],"action":"SCMP_ACT_ERRNO","errnoRet":38}]}`

// oldKernel has the agents do without openat2, on all nodes: what they say is the same.
func oldKernel(x *trial, n *bed.Node, turn *bed.Turn) {
	ctx := x.Context()
	for _, node := range n.Nodes {
		if _, err := node.Exec(ctx, "mkdir -p /var/lib/kubelet/seccomp && echo '"+noOpenat2+"' >/var/lib/kubelet/seccomp/no-openat2.json"); err != nil {
			x.Fatal(err)
		}
	}
	profile := func(ctx context.Context, profile string) error {
		_, err := n.Kubectl(ctx, "-n", n.Agents.Namespace, "patch", "daemonset", "nodeagent", "-p",
			`{"spec":{"template":{"spec":{"containers":[{"name":"nodeagent","securityContext":{"seccompProfile":`+profile+`}}]}}}}`)
		return err
	}
	defer func() {
		ctx := context.Background()
		if err := errors.Join(profile(ctx, `{"type":"RuntimeDefault","localhostProfile":null}`), bed.Install(ctx, n.Cluster)); err != nil {
			x.Error(err)
		}
	}()
	if err := profile(ctx, `{"type":"Localhost","localhostProfile":"no-openat2.json"}`); err != nil {
		x.Fatal(err)
	}
	if _, err := n.Kubectl(ctx, "-n", n.Agents.Namespace, "rollout", "status", "daemonset/nodeagent", "--timeout=5m"); err != nil {
		x.Fatal(err)
	}
	if out, err := n.Exec(ctx, "grep Seccomp: /proc/$(pgrep -o -x nodeagent)/status"); err != nil || !strings.Contains(out, "2") {
		x.Fatalf("no filter is on the agent: %s, %v", out, err)
	}
	var runs []*bed.Run
	for _, s := range scenario.OfVolumes() {
		r := start(x, n, s, turn)
		runs = append(runs, r)
	}
	for _, r := range runs {
		if err := r.AwaitVerdict(ctx); err != nil {
			x.Error(err)
		}
	}
	if err := each(runs, func(r *bed.Run) error { return r.Mend(ctx) }); err != nil {
		x.Error(err)
	}
	x.row.Verdict = verdictCheck
}
