//go:build e2e

package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/test/bed"
)

// ofPage is the command of the README for a capture by a copy of the program on the node.
var ofPage = regexp.MustCompile(`(?m)^NODE_NAME=NODE KUBECONFIG=\S+ \./nodeagent capture NAMESPACE/NAME$`)

// impostor starts a program that is called /nodeagent, executes what it is told as a shell would, and is in a control
// group with the agent's UID below one that somebody else may write: from there the pods' own names of groups look
// like the kubelet's. $1 is the UID.
const impostor = `root=/sys/fs/cgroup
[ -e $root/cgroup.controllers ] || root=/sys/fs/cgroup/pids
mkdir -p $root/scenario-hostile/pod$1/x
cat /run/scenario-impostor.pid >$root/scenario-hostile/pod$1/x/cgroup.procs`

// captureByCopy follows docs/capture.md on a node with a hostile tree of control groups, and a process in it that looks like
// the agent: the copy tells of the pod, and nothing of the impostor's is executed.
func captureByCopy(x *trial, n *bed.Node, _ *bed.Turn) {
	ctx := x.Context()
	text, err := os.ReadFile(filepath.Join(bed.Root(), "docs/capture.md"))
	if err != nil {
		x.Fatal(err)
	}
	command := ofPage.FindString(string(text))
	if command == "" {
		x.Fatalf("docs/capture.md has no command %s", ofPage)
	}
	p := victimPod(x, n, "capture-by-copy", n.Name)
	if err := n.API.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{}); err != nil {
		x.Fatal(err)
	}
	agent, err := n.AgentPod(ctx)
	if err != nil {
		x.Fatal(err)
	}
	x.Cleanup(func() {
		_, _ = n.Exec(x.Context(), `kill -KILL $(cat /run/scenario-impostor.pid)
rm -f /nodeagent /capture /run/scenario-impostor.pid /run/scenario-impostor
find /sys/fs/cgroup -depth -path '*/scenario-hostile*' -type d -exec rmdir {} + || find /sys/fs/cgroup -depth -path '*/scenario-hostile*' -type d -exec rmdir {} +`)
	})
	if _, err := n.Exec(ctx, `cp "$(readlink -f /bin/bash)" /nodeagent
echo 'id >/run/scenario-impostor' >/capture
cd / && setsid /nodeagent -c 'sleep 900; true' </dev/null >/dev/null 2>&1 &
echo $! >/run/scenario-impostor.pid
`+strings.ReplaceAll(impostor, "$1", string(agent.UID))); err != nil {
		x.Fatal(err)
	}
	command = strings.NewReplacer("NODE_NAME=NODE", "NODE_NAME="+n.Name, "/etc/kubernetes/kubelet.conf", "/etc/kubernetes/kubelet.kubeconfig",
		"./nodeagent", bed.ProgramOnNode, "NAMESPACE/NAME", p.Namespace+"/"+p.Name).Replace(command)
	out, err := n.Exec(ctx, "cd / && "+command)
	if err != nil {
		x.Fatalf("%s: %v", command, err)
	}
	var got evidence.Pod
	if err := json.Unmarshal([]byte(out), &got); err != nil || got.UID != string(p.UID) || !slices.Contains(got.Finalizers, finalizer) {
		x.Errorf("%s: %v: %.300s", command, err, out)
	}
	if out, err := n.Exec(ctx, "[ ! -e /run/scenario-impostor ] || cat /run/scenario-impostor"); err != nil || out != "" {
		x.Errorf("what the impostor holds was executed: %s, %v", out, err)
	}
	if strings.Contains(string(text), "nsenter") {
		x.Errorf("the README sends a person into a container as root")
	}

	// In the agent's own container nobody chooses what is run, read or sent.
	for _, flag := range []string{"--kubeconfig=/dev/stdin", "--proc=/proc/1/root/proc", "--containerd-socket=/proc/1/root/x"} {
		if out, err := n.Capture(ctx, p.Name, flag); err == nil || !strings.Contains(err.Error(), "own container") {
			x.Errorf("capture %s: %s, %v", flag, out, err)
		}
	}
	// None of containerd's directories is mounted for the agent.
	if out, err := n.Exec(ctx, `agent=$(pgrep -o -f '^/nodeagent run')
[ ! -e /proc/$agent/root/run/containerd ] && ! grep -q containerd.sock /proc/$agent/mountinfo`); err != nil {
		x.Errorf("the agent sees files of containerd: %s, %v", out, err)
	}
}
