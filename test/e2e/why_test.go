//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodeagent-io/nodeagent/test/bed"
	"github.com/nodeagent-io/nodeagent/test/golden"
	"github.com/nodeagent-io/nodeagent/test/scenario"
)

// updateVariable, when set, has what the plugin prints written to testdata/why instead of compared.
const updateVariable = "NODEAGENT_UPDATE"

// whyTerminating asks about pods that are stuck for several reasons beside an agent, and as a user who may do nothing but list pods.
func whyTerminating(x *trial, n *bed.Node, _ *bed.Turn) {
	ctx := x.Context()
	namespace := whyNamespaceOf(x, n, "shop")
	asks := asker{x, n}
	asks.golden("nothing", "kubectl why-terminating -n "+namespace)

	stuck := scenario.ThreeStuck()
	for i, name := range []string{"runner", "web", "batch"} {
		stuck[i].Name = name
	}
	stuck = append(stuck, scenario.Foreground("ledger"), scenario.Draining("mailer", 400, 150))
	var runs []*bed.Run
	for _, s := range stuck {
		runs = append(runs, &bed.Run{Scenario: s, Node: n, Namespace: namespace})
	}
	x.Cleanup(func() {
		for _, r := range runs {
			if r.Heal == nil || r.Pod == nil {
				continue
			}
			if _, err := n.Pod(context.Background(), namespace, r.Name); !apierrors.IsNotFound(err) { // the shim's has gone
				if err := r.Heal(context.Background(), n, r.Pod); err != nil && !apierrors.IsNotFound(err) {
					x.Error(err)
				}
			}
		}
	})
	if err := each(runs, func(r *bed.Run) error { return r.Start(ctx) }); err != nil {
		x.Fatal(err)
	}
	foreground := metav1.DeletePropagationForeground
	for _, r := range runs {
		if err := n.API.CoreV1().Pods(namespace).Delete(ctx, r.Name, metav1.DeleteOptions{PropagationPolicy: &foreground}); err != nil {
			x.Fatal(err)
		}
		// The table has the latest first, and what is left to finalizers is late by when the kubelet was done.
		if r.Name == stuck[0].Name {
			if err := n.Await(ctx, "the kubelet to be done with "+r.Name, func() (bool, string) {
				p, err := r.Current()
				if err != nil {
					return false, err.Error()
				}
				g := p.DeletionGracePeriodSeconds
				return g != nil && *g == 0, "not yet"
			}); err != nil {
				x.Fatal(err)
			}
		}
		time.Sleep(3 * time.Second)
	}
	for _, r := range runs {
		if err := n.Await(ctx, r.Name+": verdict "+r.Cause, func() (bool, string) {
			p, err := r.Current()
			if err != nil {
				return false, err.Error()
			}
			c := bed.Condition(p)
			if r.Cause == "" {
				return c != nil && c.Reason == bed.InGracePeriod, fmt.Sprintf("condition %+v", c)
			}
			return c != nil && c.Status == corev1.ConditionTrue && c.Reason == r.Cause, fmt.Sprintf("condition %+v", c)
		}); err != nil {
			x.Fatal(err)
		}
	}
	for name, pod := range map[string]string{"finalizer": "runner", "shim": "web", "program": "batch", "foreground": "ledger", "grace-period": "mailer"} {
		asks.golden(name, "kubectl why-terminating "+pod+" -n "+namespace)
	}
	for _, r := range runs {
		if r.Cause != "" {
			shows(x, asks, r)
		}
	}
	asks.golden("table", "kubectl why-terminating -n "+namespace)
	asks.golden("names", "kubectl why-terminating -n "+namespace+" --late-only -o name | sort | xargs kubectl get -n "+namespace+" -o name")
	asks.golden("completion", "kubectl __complete why-terminating -n "+namespace+" '' 2>/dev/null")
	asks.golden("unknown-pod", "kubectl why-terminating nope -n "+namespace)

	// One who may list pods in this namespace, and nothing else.
	rbac, name := n.API.RbacV1(), metav1.ObjectMeta{Name: "why"}
	if _, err := rbac.Roles(namespace).Create(ctx, &rbacv1.Role{ObjectMeta: name, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list"}},
	}}, metav1.CreateOptions{}); err != nil {
		x.Fatal(err)
	}
	if _, err := rbac.RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: name, RoleRef: rbacv1.RoleRef{Kind: "Role", Name: name.Name}, Subjects: []rbacv1.Subject{{Kind: "User", Name: "jane"}},
	}, metav1.CreateOptions{}); err != nil {
		x.Fatal(err)
	}
	if err := n.Await(ctx, "the role", func() (bool, string) {
		out, _ := asks.run("kubectl get pods --as=jane -n " + namespace)
		return !strings.Contains(out, "Forbidden"), out
	}); err != nil {
		x.Fatal(err)
	}
	asks.golden("limited-user", "kubectl why-terminating batch --as=jane -n "+namespace)
	asks.golden("limited-user-table", "kubectl why-terminating --as=jane -n "+namespace)
	asks.golden("limited-user-all", "kubectl why-terminating --as=jane -A")

	// From the alert to the fix, as docs/on-call.md has it: what is said about the shim is done, and the pod ends.
	out, _ := asks.run("kubectl why-terminating web -n " + namespace)
	fix := ""
	for line := range strings.Lines(out) {
		if strings.Contains(line, "kill -CONT") {
			fix = strings.TrimSpace(line)
		}
	}
	if fix == "" {
		x.Fatalf("no command to continue the shim:\n%s", out)
	}
	if out, err := n.Exec(ctx, fix); err != nil || strings.Contains(out, "nothing done") {
		x.Fatalf("%s: %s, %v", fix, out, err)
	}
	if err := n.Await(ctx, "the pod to go", func() (bool, string) {
		_, err := n.Pod(ctx, namespace, "web")
		return apierrors.IsNotFound(err), fmt.Sprint(err)
	}); err != nil {
		x.Fatal(err)
	}
	asks.golden("shim-gone", "kubectl why-terminating web -n "+namespace)
	x.row.Verdict = verdictCheck
}

// deletedAgain deletes a pod with a grace period of minutes, and again with one of seconds: the kubelet keeps to the first one, the agent and the
// plugin say so, and what they say to do about it ends the pod.
func deletedAgain(x *trial, n *bed.Node, _ *bed.Turn) {
	ctx := x.Context()
	namespace := whyNamespaceOf(x, n, "shop-again")
	asks := asker{x, n}
	r := &bed.Run{Scenario: scenario.Draining("mailer", 900, 800), Node: n, Namespace: namespace}
	if err := r.Start(ctx); err != nil {
		x.Fatal(err)
	}
	remove := func(seconds *int64) {
		if err := n.API.CoreV1().Pods(namespace).Delete(ctx, r.Name, metav1.DeleteOptions{GracePeriodSeconds: seconds}); err != nil {
			x.Fatal(err)
		}
	}
	says := func(part string) (message string) {
		if err := n.Await(ctx, "the condition to say "+part, func() (bool, string) {
			p, err := r.Current()
			if err != nil {
				return false, err.Error()
			}
			c := bed.Condition(p)
			if c == nil || c.Reason != bed.InGracePeriod {
				return false, fmt.Sprintf("condition %+v", c)
			}
			message = c.Message
			return strings.Contains(message, part), message
		}); err != nil {
			x.Fatal(err)
		}
		return message
	}
	remove(nil) // the specification's
	until := func(message string) string {
		_, at, _ := strings.Cut(message, "it will be killed at ")
		at, _, _ = strings.Cut(at, " UTC")
		return at
	}
	first := until(says("Not stuck: "))
	const seconds = 15
	remove(new(int64(seconds)))
	again := says("That it was deleted again with a shorter grace period has no effect on this kubelet. ")
	if got := until(again); got != first {
		x.Errorf("it will be killed at %q, and by the first deletion at %q", got, first)
	}
	time.Sleep((seconds + 15) * time.Second)
	if got := until(says("Not stuck: ")); got != first {
		x.Errorf("after the second deadline: it will be killed at %q, not %q", got, first)
	}
	asks.golden("deleted-again", "kubectl why-terminating "+r.Name+" -n "+namespace)
	_, command, ok := strings.Cut(again, "on the node: ")
	if !ok {
		x.Fatalf("no command: %s", again)
	}
	if out, err := n.Exec(ctx, command); err != nil {
		x.Fatalf("%s: %s, %v", command, out, err)
	}
	if err := n.Await(ctx, "the pod to go", func() (bool, string) {
		_, err := n.Pod(ctx, namespace, r.Name)
		return apierrors.IsNotFound(err), fmt.Sprint(err)
	}); err != nil {
		x.Fatal(err)
	}
	x.row.Verdict = verdictCheck
}

// agentGoesOn lets an agent go on that was stopped with the kubelet.
const agentGoesOn = `kill -CONT $(pgrep -x nodeagent)`

// loseNode stops the kubelet and the agent of a node by a signal, and returns what brings them back, once. The kubelet goes on, and
// registers its node, when it is started anew.
func loseNode(x *trial, n *bed.Node) (back func() error) {
	x.Helper()
	if _, err := n.Exec(x.Context(), `kill -STOP $(pgrep -x kubelet) $(pgrep -x nodeagent)`); err != nil {
		x.Fatal(err)
	}
	return sync.OnceValue(func() error {
		if _, err := n.Exec(context.Background(), `kill -KILL $(pgrep -x kubelet); `+agentGoesOn); err != nil {
			return err
		}
		return n.Await(context.Background(), "the node and its agent to be back", func() (bool, string) {
			node, err := n.API.CoreV1().Nodes().Get(context.Background(), n.Name, metav1.GetOptions{})
			if err != nil {
				return false, err.Error()
			}
			agent, err := n.AgentPod(context.Background())
			if err != nil {
				return false, err.Error()
			}
			return nodeIs(node, corev1.ConditionTrue) && podIsReady(agent), "not ready"
		})
	})
}

// whyLostNode stops a kubelet and its agent until nobody hears from the node, has the agent go on, deletes the node, and takes the agent away from it when
// it is back.
func whyLostNode(x *trial, n *bed.Node, _ *bed.Turn) {
	ctx := x.Context()
	namespace := whyNamespaceOf(x, n, "shop-lost")
	asks := asker{x, n}
	start := func(s bed.Scenario) *bed.Run {
		r := &bed.Run{Scenario: s, Node: n, Namespace: namespace}
		if err := r.Start(ctx); err != nil {
			x.Fatal(err)
		}
		return r
	}
	remove := func(r *bed.Run) {
		if err := n.API.CoreV1().Pods(namespace).Delete(ctx, r.Name, metav1.DeleteOptions{}); err != nil {
			x.Fatal(err)
		}
	}
	plain, held := start(scenario.Sleeper("plain", 5)), start(scenario.Finished("held"))
	x.Cleanup(func() { _ = held.Heal(context.Background(), n, held.Pod) })

	back := loseNode(x, n)
	defer func() {
		if err := back(); err != nil {
			x.Error(err)
		}
	}()
	// The table has the latest first.
	remove(held)
	time.Sleep(2 * time.Second)
	remove(plain)
	if err := n.Await(ctx, "the node not to be heard of", func() (bool, string) {
		node, err := n.API.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{})
		return err == nil && nodeIs(node, corev1.ConditionUnknown) && len(node.Spec.Taints) > 0, fmt.Sprint(err)
	}); err != nil {
		x.Fatal(err)
	}
	time.Sleep(5 * time.Second) // a second taint may come
	asks.golden("lost-node", "kubectl why-terminating plain -n "+namespace)
	asks.golden("lost-node-table", "kubectl why-terminating -n "+namespace)
	script := "kubectl why-terminating -n " + namespace + " --node " + n.Name + " --script"
	asks.golden("lost-node-script", script)

	// The agent alone gets through again: the machine runs, so the script has no command.
	if _, err := n.Exec(ctx, agentGoesOn); err != nil {
		x.Fatal(err)
	}
	if err := n.Await(ctx, "the agent's verdict", func() (bool, string) {
		p, err := n.Pod(ctx, namespace, plain.Name)
		if err != nil {
			return false, err.Error()
		}
		c := bed.Condition(p)
		return c != nil && c.Status == corev1.ConditionTrue, fmt.Sprintf("condition %+v", c)
	}); err != nil {
		x.Fatal(err)
	}
	asks.golden("stopped-kubelet", "kubectl why-terminating plain -n "+namespace)
	asks.golden("stopped-kubelet-script", script)

	if err := n.API.CoreV1().Nodes().Delete(ctx, n.Name, metav1.DeleteOptions{}); err != nil {
		x.Fatal(err)
	}
	asks.golden("deleted-node", "kubectl why-terminating plain -n "+namespace)
	// The script does what it says: the plain pod's object goes, the other one's stays.
	if out, err := asks.run(script + " | CONFIRMED_OFF=" + n.Name + " sh"); err != nil {
		x.Errorf("%s: %v", out, err)
	}
	if err := n.Await(ctx, "the pod of the script to go", func() (bool, string) {
		_, err := n.Pod(ctx, namespace, plain.Name)
		return apierrors.IsNotFound(err), fmt.Sprint(err)
	}); err != nil {
		x.Error(err)
	}
	if _, err := n.Pod(ctx, namespace, held.Name); err != nil {
		x.Errorf("what the script leaves out: %v", err)
	}
	// The pod garbage collector force-deletes it, and its finalizer is what is left.
	if err := n.Await(ctx, "the pod garbage collector", func() (bool, string) {
		p, err := n.Pod(ctx, namespace, held.Name)
		if err != nil {
			return false, err.Error()
		}
		g := p.DeletionGracePeriodSeconds
		return g != nil && *g == 0, "not yet"
	}); err != nil {
		x.Fatal(err)
	}
	asks.golden("deleted-node-finalizer", "kubectl why-terminating "+held.Name+" -n "+namespace)
	if err := back(); err != nil {
		x.Fatal(err)
	}
	if err := held.Heal(ctx, n, held.Pod); err != nil {
		x.Error(err)
	}

	// A DaemonSet has no pod on a node of another system.
	system := func(name string) error {
		_, err := n.API.CoreV1().Nodes().Patch(context.Background(), n.Name, types.MergePatchType,
			[]byte(`{"metadata":{"labels":{"kubernetes.io/os":"`+name+`"}}}`), metav1.PatchOptions{})
		return err
	}
	if err := system("none"); err != nil {
		x.Fatal(err)
	}
	defer func() {
		if err := errors.Join(system("linux"), n.Await(context.Background(), "the agent", func() (bool, string) {
			agent, err := n.AgentPod(context.Background())
			return err == nil && podIsReady(agent), fmt.Sprint(err)
		})); err != nil {
			x.Error(err)
		}
	}()
	if err := n.Await(ctx, "the agent to go", func() (bool, string) {
		_, err := n.AgentPod(ctx)
		return err != nil, "it is there"
	}); err != nil {
		x.Fatal(err)
	}
	without := start(scenario.Another("without-agent"))
	remove(without)
	finished := start(scenario.Finished("held-without-agent"))
	remove(finished)
	if err := n.Await(ctx, "the pod to be late, and the other one to end", func() (bool, string) {
		p, err := n.Pod(ctx, namespace, without.Name)
		if err != nil {
			return false, err.Error()
		}
		f, err := n.Pod(ctx, namespace, finished.Name)
		if err != nil {
			return false, err.Error()
		}
		return time.Since(p.DeletionTimestamp.Time) > 15*time.Second && *f.DeletionGracePeriodSeconds == 0 &&
			time.Since(f.DeletionTimestamp.Time) > 15*time.Second, "not yet"
	}); err != nil {
		x.Error(err)
	}
	asks.golden("no-agent", "kubectl why-terminating without-agent -n "+namespace)
	asks.golden("no-agent-finalizer", "kubectl why-terminating held-without-agent -n "+namespace)
	if err := errors.Join(without.Heal(ctx, n, without.Pod), finished.Heal(ctx, n, finished.Pod)); err != nil {
		x.Error(err)
	}
	x.row.Verdict = verdictCheck
}

// whyNamespace asks about a namespace that is being deleted, and watches over a restart of the API server.
func whyNamespace(x *trial, n *bed.Node, _ *bed.Turn) {
	ctx := x.Context()
	asks := asker{x, n}
	namespace := whyNamespaceOf(x, n, "old-shop")
	held := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "held", Finalizers: []string{"example.com/block"}}}
	if _, err := n.API.CoreV1().ConfigMaps(namespace).Create(ctx, held, metav1.CreateOptions{FieldManager: "backup-controller"}); err != nil {
		x.Fatal(err)
	}
	x.Cleanup(func() {
		_, _ = n.API.CoreV1().ConfigMaps(namespace).Patch(context.Background(), held.Name, types.MergePatchType,
			[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	})
	const service = `{"apiVersion":"apiregistration.k8s.io/v1","kind":"APIService","metadata":{"name":"v1beta1.dead.example.com"},
		"spec":{"group":"dead.example.com","version":"v1beta1","groupPriorityMinimum":100,"versionPriority":100,"insecureSkipTLSVerify":true,"service":{"namespace":"default","name":"dead"}}}`
	revive := asks.apply(service, "apiservice v1beta1.dead.example.com")
	defer revive()
	if err := n.API.CoreV1().Namespaces().Delete(ctx, namespace, metav1.DeleteOptions{}); err != nil {
		x.Fatal(err)
	}
	failed := func(kind corev1.NamespaceConditionType, status corev1.ConditionStatus) func() (bool, string) {
		return func() (bool, string) {
			ns, err := n.API.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
			if err != nil {
				return false, err.Error()
			}
			for _, c := range ns.Status.Conditions {
				if c.Type == kind && c.Status == status {
					return true, ""
				}
			}
			return false, fmt.Sprintf("%+v", ns.Status.Conditions)
		}
	}
	if err := n.Await(ctx, "the namespace controller to fail", failed(corev1.NamespaceDeletionDiscoveryFailure, corev1.ConditionTrue)); err != nil {
		x.Fatal(err)
	}
	asks.golden("namespace-dead-apiservice", "kubectl why-terminating ns/"+namespace)
	revive()
	if err := n.Await(ctx, "the namespace controller to go on", failed(corev1.NamespaceDeletionDiscoveryFailure, corev1.ConditionFalse)); err != nil {
		x.Fatal(err)
	}
	asks.golden("namespace-finalizer", "kubectl why-terminating ns/"+namespace)

	// A webhook that nobody answers for refuses the deletion.
	const webhook = `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration","metadata":{"name":"dead"},
		"webhooks":[{"name":"keep.dead.example.com","admissionReviewVersions":["v1"],"sideEffects":"None","failurePolicy":"Fail",
		"clientConfig":{"service":{"namespace":"default","name":"dead"}},
		"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"old-shop"}},
		"rules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["DELETE"],"resources":["configmaps"]}]}]}`
	allow := asks.apply(webhook, "validatingwebhookconfiguration dead")
	defer allow()
	if err := n.Await(ctx, "the webhook to refuse", failed(corev1.NamespaceDeletionContentFailure, corev1.ConditionTrue)); err != nil {
		x.Fatal(err)
	}
	asks.golden("namespace-dead-webhook", "kubectl why-terminating ns/"+namespace)
	allow()

	// It goes on when the API server is back.
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	var seen buffer
	cmd := asks.command(watching, "kubectl why-terminating --watch --request-timeout=2s -n "+namespace)
	cmd.Stdout, cmd.Stderr = &seen, &seen
	if err := cmd.Start(); err != nil {
		x.Fatal(err)
	}
	says := func(text string) {
		x.Helper()
		seen.reset()
		if err := n.Await(ctx, "--watch to say "+text, func() (bool, string) { return strings.Contains(seen.String(), text), seen.String() }); err != nil {
			x.Error(err)
		}
	}
	says("No pods are terminating")
	if err := n.Component(ctx, "stop", "--now", "kube-apiserver"); err != nil {
		x.Fatal(err)
	}
	says("; trying again")
	if err := errors.Join(n.Component(context.Background(), "start", "kube-apiserver"), n.WatchAnew()); err != nil {
		x.Fatal(err)
	}
	says("No pods are terminating")
	cancel()
	_ = cmd.Wait()
	x.row.Verdict = verdictCheck
}

func nodeIs(n *corev1.Node, status corev1.ConditionStatus) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == status
		}
	}
	return false
}

func podIsReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// whyNamespaceOf makes a namespace for the time of a check.
func whyNamespaceOf(x *trial, n *bed.Node, name string) string {
	x.Helper()
	namespaces := n.API.CoreV1().Namespaces()
	if _, err := namespaces.Create(x.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		x.Fatal(err)
	}
	x.Cleanup(func() {
		ctx := context.Background()
		err := errors.Join(n.API.CoreV1().Pods(name).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}, metav1.ListOptions{}),
			n.Await(ctx, "namespace "+name+" to go", func() (bool, string) {
				err := namespaces.Delete(ctx, name, metav1.DeleteOptions{})
				return apierrors.IsNotFound(err), fmt.Sprint(err)
			}))
		if err != nil {
			x.Error(err)
		}
	})
	return name
}

// An asker runs what a person types.
type asker struct {
	*trial
	node *bed.Node
}

// command is a line of a shell whose PATH has the cluster's kubectl, the plugin and its completion.
func (a asker) command(ctx context.Context, line string) *exec.Cmd {
	a.Helper()
	dir := a.TempDir()
	kubectl := fmt.Sprintf("#!/bin/sh\nexec '%s' kubectl \"$@\"\n", os.Getenv("NODEAGENT_CLUSTER"))
	if err := os.WriteFile(filepath.Join(dir, "kubectl"), []byte(kubectl), 0o755); err != nil {
		a.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, "sh", "-c", line)
	path := []string{dir, filepath.Join(bed.Root(), "bin"), filepath.Join(bed.Root(), "deploy", "krew"), os.Getenv("PATH")}
	cmd.Env = append(os.Environ(), "PATH="+strings.Join(path, ":"))
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// shows runs the command that an Event ends with: it shows the condition's message whole.
func shows(x *trial, asks asker, r *bed.Run) {
	x.Helper()
	command := ""
	if err := r.Node.Await(x.Context(), "an Event of "+r.Name+" that ends with a command", func() (bool, string) {
		events, err := r.Events(x.Context())
		if err != nil {
			return false, err.Error()
		}
		for _, e := range events {
			_, command, _ = strings.Cut(e.Note, " Fix and more: ")
		}
		return command != "", fmt.Sprintf("%d Events", len(events))
	}); err != nil {
		x.Fatal(err)
	}
	p, err := r.Current()
	if err != nil {
		x.Fatal(err)
	}
	out, _ := asks.run(command)
	for line := range strings.SplitSeq(bed.Condition(p).Message, "\n") {
		if !strings.Contains(out, line) {
			x.Errorf("%s does not show %q:\n%s", command, line, out)
		}
	}
}

// run runs a line, and returns all that it prints.
func (a asker) run(line string) (string, error) {
	out, err := a.command(a.Context(), line).CombinedOutput()
	return string(out), err
}

// apply applies an object, and returns what deletes it again, once.
func (a asker) apply(object, name string) (remove func()) {
	a.Helper()
	if out, err := a.run("echo '" + object + "' | kubectl apply -f -"); err != nil {
		a.Fatalf("%s: %v", out, err)
	}
	return sync.OnceFunc(func() {
		if out, err := a.run("kubectl delete " + name); err != nil {
			a.Errorf("%s: %v", out, err)
		}
	})
}

// golden runs a line and compares what it prints, and its exit status, with testdata/why/NAME.txt.
func (a asker) golden(name, line string) {
	a.Helper()
	out, err := a.run(line)
	status := 0
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		status = exit.ExitCode()
	case err != nil:
		a.Fatal(err)
	}
	raw := fmt.Sprintf("$ %s\n%s# exit status %d\n", line, out, status)
	got := golden.Masked(raw, a.node.Name)
	if err := os.WriteFile(filepath.Join(artifacts(), "why."+name+".txt"), []byte(raw), 0o644); err != nil {
		a.Error(err)
	}
	path := filepath.Join("testdata", "why", name+".txt")
	if os.Getenv(updateVariable) != "" {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(got), 0o644)); err != nil {
			a.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		a.Fatal(fmt.Errorf("%w; UPDATE=1 writes it", err))
	}
	if !golden.Same(got, string(want)) {
		a.Errorf("%s is not what is printed; UPDATE=1 writes it anew:\n%s", path, got)
	}
}

// A buffer is written and read by two.
type buffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func (b *buffer) reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.text.Reset()
}
