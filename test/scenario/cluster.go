// Package scenario holds real incidents: a pod, how it is broken for real on
// the node, what the agent has to say about it, and how it is healed. The tests
// in test/e2e and the demo run them on a cluster of test/cluster.
package scenario

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// A Cluster is a running cluster of test/cluster.
type Cluster struct {
	API kubernetes.Interface
	// Node is the name of the node that the scenarios run on.
	Node string
	// command is the cluster program.
	command string
}

// Find connects to the cluster of this checkout. NODEAGENT_CLUSTER names the
// program of test/cluster that manages it.
func Find(ctx context.Context) (*Cluster, error) {
	c := &Cluster{command: os.Getenv("NODEAGENT_CLUSTER")}
	if c.command == "" {
		return nil, fmt.Errorf("NODEAGENT_CLUSTER is not set; make e2e and make demo set it to the program built from test/cluster")
	}
	config, err := c.run(ctx, "", "kubeconfig")
	if err != nil {
		return nil, err
	}
	rest, err := clientcmd.BuildConfigFromFlags("", strings.TrimSpace(config))
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig of the cluster: %w", err)
	}
	rest.QPS, rest.Burst = 100, 200
	if c.API, err = kubernetes.NewForConfig(rest); err != nil {
		return nil, err
	}
	nodes, err := c.API.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	if len(nodes.Items) == 0 {
		return nil, fmt.Errorf("the cluster has no node")
	}
	c.Node = nodes.Items[0].Name
	return c, nil
}

// run runs the cluster program and returns its standard output.
func (c *Cluster) run(ctx context.Context, stdin string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, c.command, args...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("cluster %s: %w\n%s", strings.Join(args, " "), err, strings.TrimSpace(errs.String()+out.String()))
	}
	return out.String(), nil
}

// Exec runs a shell script as root on the node and returns its output.
func (c *Cluster) Exec(ctx context.Context, script string) (string, error) {
	return c.run(ctx, "", "exec", c.Node, script)
}

// CgroupVersion is the version of control groups on the node.
func (c *Cluster) CgroupVersion(ctx context.Context) (int, error) {
	out, err := c.Exec(ctx, "stat -fc %T /sys/fs/cgroup")
	switch {
	case err != nil:
		return 0, err
	case strings.TrimSpace(out) == "cgroup2fs":
		return 2, nil
	}
	return 1, nil
}

// Kubectl runs kubectl as the cluster's administrator.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	return c.run(ctx, "", append([]string{"kubectl"}, args...)...)
}

// Apply applies a manifest.
func (c *Cluster) Apply(ctx context.Context, manifest string) error {
	_, err := c.run(ctx, manifest, "kubectl", "apply", "-f", "-")
	return err
}

// Component stops ("stop", "--now", NAME) or starts ("start", NAME) a part of
// the control plane.
func (c *Cluster) Component(ctx context.Context, args ...string) error {
	_, err := c.run(ctx, "", args...)
	return err
}

// AuditLog is the path of the API server's audit log.
func (c *Cluster) AuditLog(ctx context.Context) (string, error) {
	path, err := c.run(ctx, "", "audit")
	return strings.TrimSpace(path), err
}

// Image makes an image and puts it on the nodes. args are those of the cluster
// program's image command: files, Debian packages.
func (c *Cluster) Image(ctx context.Context, name string, args ...string) error {
	path, err := c.run(ctx, "", append([]string{"image", name}, args...)...)
	if err != nil {
		return err
	}
	_, err = c.load(ctx, strings.TrimSpace(path))
	return err
}

// load puts an image archive on the nodes, unless it was the last one that was
// put there under its file's name.
func (c *Cluster) load(ctx context.Context, archive string) (loaded bool, err error) {
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
	if _, err := c.Exec(ctx, fmt.Sprintf("[ \"$(cat %s)\" = %s ]", mark, sum)); err == nil {
		return false, nil
	}
	if _, err := c.run(ctx, "", "load", archive); err != nil {
		return false, err
	}
	_, err = c.Exec(ctx, fmt.Sprintf("mkdir -p $(dirname %s) && echo %s >%s", mark, sum, mark))
	return true, err
}

// Pod reads a pod from the API.
func (c *Cluster) Pod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	return c.API.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
}

// Until asks again and again until it is told true. The error of a context that
// ends first says what was waited for and what was seen last.
func Until(ctx context.Context, what string, check func() (done bool, seen string)) error {
	seen := ""
	for {
		var done bool
		if done, seen = check(); done {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited in vain for %s; last seen: %s", what, seen)
		case <-time.After(500 * time.Millisecond):
		}
	}
}
