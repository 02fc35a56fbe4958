package bed

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// AgentSelector selects the agent's objects.
const AgentSelector = "app.kubernetes.io/name=nodeagent"

// An Account is the namespace that the agent is in, and its service account.
type Account struct{ Namespace, Name string }

// manifested is the account in deploy/daemonset.yaml.
var manifested = Account{"nodeagent-system", "nodeagent"}

// user is what the API server calls it.
func (a Account) user() string { return "system:serviceaccount:" + a.Namespace + ":" + a.Name }

// Root returns the checkout: the nearest directory with a go.mod, from the one that
// the program or the test was started in upwards; without one that one itself.
func Root() string {
	cwd, err := os.Getwd()
	if err != nil {
		return "."
	}
	for dir := cwd; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			return cwd
		}
	}
}

// Commit returns the commit of the checkout, with -dirty behind it when something else than the
// tables that make matrix and make recall write is not committed.
func Commit(ctx context.Context) (string, error) {
	git := func(args ...string) (string, error) {
		out, err := exec.CommandContext(ctx, "git", append([]string{"-C", Root()}, args...)...).Output()
		if err != nil {
			return "", fmt.Errorf("git %s: %w", args[0], err)
		}
		return strings.TrimSpace(string(out)), nil
	}
	head, err := git("rev-parse", "HEAD")
	if err != nil {
		return "", err
	}
	if changed, err := git("status", "--porcelain", "--", ".", ":!docs/matrix.md", ":!docs/recall.md"); err != nil || changed == "" {
		return head, err
	}
	return head + "-dirty", nil
}

// sooner are flags of the agent's for tests, which do not wait for five minutes.
var sooner = []string{"--orphans-after=20s", "--long-hook=90s"}

// previousVariable has the directory of the release before this one, built.
const previousVariable = "NODEAGENT_PREVIOUS"

// Manifest is deploy/daemonset.yaml of a checkout.
func Manifest(root string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, "deploy", "daemonset.yaml"))
	return string(text), err
}

// Install puts the agent's image on the nodes, applies deploy/daemonset.yaml as
// a user would, but for these flags, and waits until every agent is ready.
func Install(ctx context.Context, c *Cluster) error {
	return c.install(ctx, Root(), c.applyManifest(ctx))
}

// Previous is the checkout of the release before this one.
func Previous() string { return os.Getenv(previousVariable) }

// InstallPrevious does the same with the release before this one.
func InstallPrevious(ctx context.Context, c *Cluster) error {
	return c.install(ctx, Previous(), c.applyManifest(ctx))
}

// withFlags has the agents of a manifest started with flags.
func withFlags(manifest string) string {
	const none, run = "args: [run]", "            - run\n"
	return strings.NewReplacer(
		none, "args: [run, "+strings.Join(sooner, ", ")+"]",
		run, run+"            - "+strings.Join(sooner, "\n            - ")+"\n",
	).Replace(manifest)
}

func (c *Cluster) applyManifest(ctx context.Context) func(string) error {
	return func(text string) error {
		if text = withFlags(text); Tapes() != "" {
			text = recording.Replace(text)
		}
		c.Agents = manifested
		return c.apply(ctx, text)
	}
}

// install puts the agent's image of a checkout on the nodes, has the agent applied, and waits until every agent is ready.
func (c *Cluster) install(ctx context.Context, root string, apply func(manifest string) error) error {
	archive := filepath.Join(root, "bin", "nodeagent-image.tar")
	if _, err := os.Stat(archive); err != nil {
		return fmt.Errorf("the agent's image: %w; make image builds it", err)
	}
	loaded, err := c.load(ctx, archive, c.Nodes)
	if err != nil {
		return err
	}
	manifest, err := Manifest(root)
	if err != nil {
		return err
	}
	image := imageName.FindStringSubmatch(manifest)
	if image == nil {
		return errors.New("deploy/daemonset.yaml names no image")
	}
	if err := apply(manifest); err != nil {
		return err
	}
	if loaded {
		// An agent that runs already is started anew, with the new image.
		if _, err := c.Kubectl(ctx, "-n", c.Agents.Namespace, "rollout", "restart", "daemonset/nodeagent"); err != nil {
			return err
		}
	}
	for _, n := range c.Nodes {
		script := fmt.Sprintf(installCopy, image[1])
		if !loaded {
			script = "[ -e " + ProgramOnNode + " ] || {\n" + script + "\n}"
		}
		if _, err := n.Exec(ctx, script); err != nil {
			return fmt.Errorf("copy the agent's program to node %s: %w", n.Name, err)
		}
	}
	for _, n := range c.Nodes {
		namespace := `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"` + n.Namespace() + `"}}`
		if err := c.apply(ctx, namespace); err != nil {
			return err
		}
	}
	return c.AwaitAgents(ctx)
}

var imageName = regexp.MustCompile(`(?m)^ *image: (\S+)$`)

// AwaitAgents waits until the agent of the DaemonSet as it is now is ready on each node.
func (c *Cluster) AwaitAgents(ctx context.Context) error {
	for _, n := range c.Nodes {
		if err := n.awaitAgent(ctx); err != nil {
			return err
		}
	}
	return nil
}

// awaitAgent waits for the agent of the newest manifest. How long its container
// took to start is the first measure of the node's speed.
func (n *Node) awaitAgent(ctx context.Context) error {
	return n.Await(ctx, "the agent on node "+n.Name, func() (bool, string) {
		set, err := n.API.AppsV1().DaemonSets(n.Agents.Namespace).Get(ctx, "nodeagent", metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		if set.Status.ObservedGeneration < set.Generation {
			return false, "the DaemonSet has not been looked at yet"
		}
		p, err := n.AgentPod(ctx)
		if err != nil {
			return false, err.Error()
		}
		// The set's own generation counts changes that replace no pod, too.
		if got, want := p.Labels["pod-template-generation"], set.Annotations[appsv1.DeprecatedTemplateGeneration]; got != want {
			return false, "an earlier agent still runs"
		}
		s := p.Status.ContainerStatuses[0]
		if !s.Ready || s.State.Running == nil {
			return false, "it is not ready"
		}
		n.pace.mu.Lock()
		n.pace.measured(max(time.Second, s.State.Running.StartedAt.Sub(p.CreationTimestamp.Time)))
		n.pace.mu.Unlock()
		return true, ""
	})
}

// AgentPod returns the agent that runs on the node.
func (n *Node) AgentPod(ctx context.Context) (*corev1.Pod, error) {
	list, err := n.API.CoreV1().Pods(n.Agents.Namespace).List(ctx, metav1.ListOptions{LabelSelector: AgentSelector})
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		p := &list.Items[i]
		if p.Spec.NodeName == n.Name && p.DeletionTimestamp == nil && p.Status.Phase == corev1.PodRunning {
			return p, nil
		}
	}
	return nil, fmt.Errorf("no agent runs on node %s", n.Name)
}

// Token returns a client with a new token of the agent's account, such as the
// agent of a pod has, or bound to no pod when that is nil.
func (c *Cluster) Token(ctx context.Context, p *corev1.Pod) (kubernetes.Interface, error) {
	request := &authenticationv1.TokenRequest{}
	if p != nil {
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: p.UID}
	}
	answer, err := c.API.CoreV1().ServiceAccounts(c.Agents.Namespace).CreateToken(ctx, c.Agents.Name, request, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("make a token of the agent: %w", err)
	}
	config := rest.AnonymousClientConfig(c.config)
	config.BearerToken = answer.Status.Token
	return kubernetes.NewForConfig(config)
}

// AsKubelet returns a client of the API server that speaks as the node's kubelet.
func (n *Node) AsKubelet() (kubernetes.Interface, error) {
	config := rest.CopyConfig(n.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:node:" + n.Name, Groups: []string{"system:nodes"}}
	return kubernetes.NewForConfig(config)
}

// metricsLimit is for an answer by way of the API server, which itself waits for one without end.
const metricsLimit = time.Minute

// Metrics reads the agent's metrics through the API server.
func (n *Node) Metrics(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, metricsLimit, fmt.Errorf("the agent on node %s does not answer within %s", n.Name, metricsLimit))
	defer cancel()
	p, err := n.AgentPod(ctx)
	if err != nil {
		return "", err
	}
	return n.Kubectl(ctx, "get", "--raw", fmt.Sprintf("/api/v1/namespaces/%s/pods/%s:9732/proxy/metrics", n.Agents.Namespace, p.Name))
}

// tellsOfDelays are the agent's metrics that say why a verdict may have come late, or not at all.
var tellsOfDelays = []string{
	"nodeagent_last_loop_timestamp_seconds", "nodeagent_loops_total", "nodeagent_round_period_seconds", "nodeagent_writes_total",
	"nodeagent_readings_", "nodeagent_evidence_missing_total", "nodeagent_verdicts_dropped_total", "nodeagent_verdicts_held_back_total",
	"nodeagent_probe_", "process_start_time_seconds",
}

// agentHealth returns, in one line, what the agent's metrics tell of delays.
func (n *Node) agentHealth(ctx context.Context) string {
	metrics, err := n.Metrics(ctx)
	if err != nil {
		return fmt.Sprintf("the agent's metrics cannot be read: %v", err)
	}
	out := []string{fmt.Sprintf("the agent at %d:", time.Now().Unix())}
	for line := range strings.Lines(metrics) {
		line = strings.TrimSpace(line)
		if !strings.HasSuffix(line, " 0") && slices.ContainsFunc(tellsOfDelays, func(name string) bool { return strings.HasPrefix(line, name) }) {
			out = append(out, line)
		}
	}
	return strings.Join(out, " ")
}

// MetricsOnNode reads them on the node, without the API server.
func (n *Node) MetricsOnNode(ctx context.Context, podIP string) (string, error) {
	return n.Exec(ctx, fmt.Sprintf(`bash -c 'exec 3<>/dev/tcp/%s/9732; printf "GET /metrics HTTP/1.0\r\n\r\n" >&3; timeout 10 cat <&3'`, podIP))
}

// Series returns the lines of a metric about a pod.
func Series(metrics, name, uid string) []string {
	var out []string
	for line := range strings.Lines(metrics) {
		if strings.HasPrefix(line, name+"{") && strings.Contains(line, `uid="`+uid+`"`) {
			out = append(out, strings.TrimSpace(line))
		}
	}
	return out
}

// ShortWait is a flag of `nodeagent capture`, for captures that are made one
// after the other, or of a pod that is soon gone.
const ShortWait = "--wait=3.5s"

// Capture returns the evidence about a pod as `nodeagent capture` prints it,
// executed in the agent's container, as a user would.
func (n *Node) Capture(ctx context.Context, pod string, flags ...string) (string, error) {
	a, err := n.AgentPod(ctx)
	if err != nil {
		return "", err
	}
	args := append([]string{"-n", n.Agents.Namespace, "exec", a.Name, "--", "/nodeagent", "capture", n.Namespace() + "/" + pod}, flags...)
	return n.Kubectl(ctx, args...)
}

// ProgramOnNode is where Install puts a copy of the agent's program on each node.
const ProgramOnNode = "/usr/local/bin/nodeagent"

// installCopy takes it out of the image.
const installCopy = `mkdir -p /run/scenario-copy
ctr -n k8s.io images mount %s /run/scenario-copy >/dev/null
cp /run/scenario-copy/nodeagent ` + ProgramOnNode + `
ctr -n k8s.io images unmount --rm /run/scenario-copy >/dev/null`

// CaptureOnNode does the same with the copy of the program on the node, for when containerd cannot execute
// anything in a container, and where that costs much. It has the agent's token and is in its network, so that it
// knows what a capture in the agent's container does.
func (n *Node) CaptureOnNode(ctx context.Context, pod string, flags ...string) (string, error) {
	a, err := n.AgentPod(ctx)
	if err != nil {
		return "", err
	}
	api, err := n.API.CoreV1().Services(metav1.NamespaceDefault).Get(ctx, "kubernetes", metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	_, id, _ := strings.Cut(a.Status.ContainerStatuses[0].ContainerID, "://")
	return n.Exec(ctx, fmt.Sprintf(`agent=$(grep -lsE '/(cri-containerd-)?%s(\.scope)?$' /proc/[0-9]*/cgroup | cut -d/ -f3 | sort -n | head -1)
exec unshare -m sh -e -c 'secrets=/run/secrets/kubernetes.io/serviceaccount
mkdir -p $secrets
mount -t tmpfs none $secrets
cp -L /proc/$1/root/var/$secrets/token /proc/$1/root/var/$secrets/ca.crt $secrets
exec nsenter -t $1 -n env -i NODEAGENT_SEALED=true NODE_NAME=%s NODE_IP=%s KUBERNETES_SERVICE_HOST=%s KUBERNETES_SERVICE_PORT=%d %s capture %s/%s %s' sh $agent`,
		id, n.Name, a.Status.HostIP, api.Spec.ClusterIP, api.Spec.Ports[0].Port, ProgramOnNode, n.Namespace(), pod, strings.Join(flags, " ")))
}

// A Write is one request of the agent that changes something, as the API
// server's audit log has it.
type Write struct {
	Time                                   time.Time
	Verb, Resource, Subresource, Namespace string
	Name, Body                             string
}

// Writes returns all requests of the agent, of the kinds that change something,
// since a moment.
func Writes(ctx context.Context, c *Cluster, since time.Time) ([]Write, error) {
	path, err := c.AuditLog(ctx)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var out []Write
	s := bufio.NewScanner(f)
	s.Buffer(nil, 64<<20)
	for s.Scan() {
		if !strings.Contains(s.Text(), c.Agents.user()) {
			continue
		}
		var e struct {
			Stage          string
			Verb           string
			StageTimestamp time.Time
			User           struct{ Username string }
			ObjectRef      struct{ Resource, Subresource, Namespace, Name string }
			RequestObject  json.RawMessage
		}
		if err := json.Unmarshal(s.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("audit log: %w", err)
		}
		switch e.Verb {
		case "get", "list", "watch":
			continue
		}
		if e.Stage != "ResponseComplete" || e.User.Username != c.Agents.user() || e.StageTimestamp.Before(since) {
			continue
		}
		out = append(out, Write{e.StageTimestamp, e.Verb, e.ObjectRef.Resource, e.ObjectRef.Subresource, e.ObjectRef.Namespace, e.ObjectRef.Name,
			string(e.RequestObject)})
	}
	return out, s.Err()
}
