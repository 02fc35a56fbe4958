// Package bed runs incidents on a cluster of test/cluster: what an incident is, the
// nodes and their pace, a run from the pod's start to its end, and the results. The
// incidents themselves are in test/scenario.
package bed

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// A Cluster is a running cluster of test/cluster.
type Cluster struct {
	API kubernetes.Interface
	// Nodes are the cluster's, those that cost least first.
	Nodes []*Node
	// Agents is the account of the agents that run.
	Agents Account
	// config is the administrator's.
	config *rest.Config
	// command is the cluster program.
	command string
	// pods are those of the incidents, as the API server last told of them.
	pods listers.PodLister
	// ended has each of them that has gone, by its UID.
	ended sync.Map
}

// Find connects to the cluster of this checkout. NODEAGENT_CLUSTER names the
// program of test/cluster that manages it. The context is for as long as the
// cluster is used.
func Find(ctx context.Context) (*Cluster, error) {
	c := &Cluster{command: os.Getenv("NODEAGENT_CLUSTER"), Agents: manifested}
	if c.command == "" {
		return nil, fmt.Errorf("NODEAGENT_CLUSTER is not set; make e2e and make demo set it to the program built from test/cluster")
	}
	config, err := c.run(ctx, "", "kubeconfig")
	if err != nil {
		return nil, err
	}
	if c.config, err = clientcmd.BuildConfigFromFlags("", strings.TrimSpace(config)); err != nil {
		return nil, fmt.Errorf("read kubeconfig of the cluster: %w", err)
	}
	c.config.QPS, c.config.Burst, c.config.WarningHandler = 100, 200, rest.NoWarnings{}
	if c.API, err = kubernetes.NewForConfig(c.config); err != nil {
		return nil, err
	}
	if c.Nodes, err = c.nodes(ctx); err != nil {
		return nil, err
	}
	return c, c.watch(ctx)
}

// WatchAnew follows the incidents' pods by a new watch, which begins now. One that has lost its API server
// waits for up to half a minute before it asks again.
func (c *Cluster) WatchAnew() error { return c.watch(c.Nodes[0].pace.cluster) }

// watch follows the incidents' pods.
func (c *Cluster) watch(ctx context.Context) error {
	factory := informers.NewSharedInformerFactoryWithOptions(c.API, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.LabelSelector = label
	}))
	pods := factory.Core().V1().Pods()
	c.pods = pods.Lister()
	moved := func(object any) *corev1.Pod {
		if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = gone.Obj
		}
		p, ok := object.(*corev1.Pod)
		if !ok {
			return nil
		}
		for _, n := range c.Nodes {
			if n.Name == p.Spec.NodeName {
				n.pace.move()
			}
		}
		return p
	}
	if _, err := pods.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) { moved(object) }, UpdateFunc: func(_, object any) { moved(object) },
		DeleteFunc: func(object any) {
			if p := moved(object); p != nil {
				c.ended.Store(p.UID, &ended{pod: p, at: time.Now()})
			}
		},
	}); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), pods.Informer().HasSynced) {
		return fmt.Errorf("list the incidents' pods: %w", context.Cause(ctx))
	}
	return nil
}

// ended is what was last told of a pod, and when it had gone.
type ended struct {
	pod *corev1.Pod
	at  time.Time
}

// commandLimit is more than any command takes, and any script on a node: one that waits for what
// never comes costs its incident, and not the whole run.
const commandLimit = 15 * time.Minute

// limited is the context of one command.
func limited(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, commandLimit, fmt.Errorf("it does not end within %s", commandLimit))
}

// run runs the cluster program and returns its standard output.
func (c *Cluster) run(ctx context.Context, stdin string, args ...string) (string, error) {
	ctx, cancel := limited(ctx)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.command, args...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Run(); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		// A script for a node is long, and in the checkout.
		shown, _, _ := strings.Cut(strings.Join(args, " "), ";")
		return out.String(), fmt.Errorf("cluster %s: %w\n%s", shown, err, strings.TrimSpace(errs.String()+out.String()))
	}
	return out.String(), nil
}

// follow runs a shell script as root on the node and hands on each line of its
// output as it comes.
func (n *Node) follow(ctx context.Context, script string, each func(line string)) error {
	cmd := exec.CommandContext(ctx, n.command, "exec", n.Name, script)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		each(lines.Text())
	}
	return cmd.Wait()
}

// RestartAPIServer starts the API server anew, with more arguments than it has; none is how it was.
func (c *Cluster) RestartAPIServer(ctx context.Context, more ...string) error {
	if _, err := c.run(ctx, "", "stop", "--now", "kube-apiserver"); err != nil {
		return err
	}
	_, err := c.run(ctx, "", append([]string{"start", "kube-apiserver", "--"}, more...)...)
	return err
}

// Kubectl runs kubectl as the cluster's administrator.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	return c.run(ctx, "", append([]string{"kubectl"}, args...)...)
}

// AsPerson runs a shell command in which kubectl is that of the cluster's administrator.
func (c *Cluster) AsPerson(ctx context.Context, command string) (string, error) {
	ctx, cancel := limited(ctx)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", `kubectl() { "$0" kubectl "$@"; }; `+command, c.command)
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", command, err, bytes.TrimSpace(out))
	}
	return string(out), nil
}

// apply applies a manifest.
func (c *Cluster) apply(ctx context.Context, manifest string) error {
	_, err := c.Apply(ctx, manifest)
	return err
}

// Apply is kubectl apply of a text, with these flags.
func (c *Cluster) Apply(ctx context.Context, manifest string, flags ...string) (string, error) {
	return c.run(ctx, manifest, append([]string{"kubectl", "apply", "-f", "-"}, flags...)...)
}

// Component stops ("stop", "--now", NAME) or starts ("start", NAME) a part of
// the control plane.
func (c *Cluster) Component(ctx context.Context, args ...string) error {
	_, err := c.run(ctx, "", args...)
	return err
}

// AuditLog returns the path of the API server's audit log.
func (c *Cluster) AuditLog(ctx context.Context) (string, error) {
	path, err := c.run(ctx, "", "audit")
	return strings.TrimSpace(path), err
}

// Image makes an image and returns the path of its archive. args are those of the
// cluster program's image command: files, Debian packages.
func (c *Cluster) Image(ctx context.Context, name string, args ...string) (string, error) {
	path, err := c.run(ctx, "", append([]string{"image", name}, args...)...)
	return strings.TrimSpace(path), err
}

// load puts an image archive on those of the nodes where it was not the last one
// that was put there under its file's name, and tells whether there was one.
func (c *Cluster) load(ctx context.Context, archive string, nodes []*Node) (loaded bool, err error) {
	f, err := os.Open(archive)
	if err != nil {
		return false, err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return false, err
	}
	mark := fmt.Sprintf("/run/scenario-images/%s", filepath.Base(archive))
	sum := fmt.Sprintf("%x", h.Sum(nil))
	var without []string
	for _, n := range nodes {
		if _, err := n.Exec(ctx, fmt.Sprintf("[ \"$(cat %s)\" = %s ]", mark, sum)); err != nil {
			without = append(without, n.Name)
		}
	}
	if len(without) == 0 {
		return false, nil
	}
	if _, err := c.run(ctx, "", "load", archive, "--node", strings.Join(without, ",")); err != nil {
		return false, err
	}
	for _, n := range nodes {
		if _, err := n.Exec(ctx, fmt.Sprintf("mkdir -p $(dirname %s) && echo %s >%s", mark, sum, mark)); err != nil {
			return true, err
		}
	}
	return true, nil
}

// Pod reads a pod from the API.
func (c *Cluster) Pod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	return c.API.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
}

// Seen returns a pod of an incident as the API server last told of it.
func (c *Cluster) Seen(namespace, name string) (*corev1.Pod, error) {
	return c.pods.Pods(namespace).Get(name)
}
