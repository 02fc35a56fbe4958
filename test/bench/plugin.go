package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/nodeagent-io/nodeagent/test/bed"
)

const (
	// many pods are on absent nodes of which no kubelet says anything, and some of them terminate.
	manyPods, someTerminate, absentNodes = 20_000, 2_000, 100

	maxPluginTime = 5 * time.Second
	maxPluginRSS  = 300 << 20
	// writers write side by side.
	writers = 40
)

// plugin measures kubectl why-terminating on a large cluster, beside kubectl get pods of the same.
func plugin(ctx context.Context) (rows []row, err error) {
	c, err := bed.Find(ctx)
	if err != nil {
		return nil, err
	}
	client, kubeconfig, err := unlimited(ctx)
	if err != nil {
		return nil, err
	}
	if err := makeNamespace(ctx, c.Nodes[0]); err != nil {
		return nil, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		progress("  removing the pods")
		err = errors.Join(err, sideBySide(absentNodes, func(i int) error {
			return client.CoreV1().Nodes().Delete(ctx, absent(i), metav1.DeleteOptions{})
		}), sideBySide(manyPods, func(i int) error {
			err := client.CoreV1().Pods(namespace).Delete(ctx, sleeper("", i).Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return err
		}), disperse(ctx, c.Nodes[0]))
	}()
	progress(fmt.Sprintf("  making %d pods on %d absent nodes", manyPods, absentNodes))
	if err := sideBySide(absentNodes, func(i int) error {
		_, err := client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: absent(i)}}, metav1.CreateOptions{})
		return err
	}); err != nil {
		return nil, err
	}
	pods := client.CoreV1().Pods(namespace)
	if err := sideBySide(manyPods, func(i int) error {
		p := sleeper(absent(i%absentNodes), i)
		p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		p.Annotations = map[string]string{"example.com/about": strings.Repeat("as large as a usual pod ", 150)}
		_, err := pods.Create(ctx, p, metav1.CreateOptions{})
		return err
	}); err != nil {
		return nil, err
	}
	if err := sideBySide(someTerminate, func(i int) error {
		return pods.Delete(ctx, sleeper(absent(i%absentNodes), i).Name, metav1.DeleteOptions{})
	}); err != nil {
		return nil, err
	}
	// Nobody has heard from these nodes: that is known after a while.
	if err := sleep(ctx, time.Minute); err != nil {
		return nil, err
	}
	kubectl, _, err := run(ctx, kubeconfig, "", os.Getenv("NODEAGENT_CLUSTER"), "kubectl", "get", "pods", "-A", "--no-headers")
	if err != nil {
		return nil, err
	}
	why, said, err := run(ctx, kubeconfig, "terminating", filepath.Join(bed.Root(), "bin", "kubectl-why_terminating"), "-A", "--kubeconfig", kubeconfig)
	if err != nil {
		return nil, err
	}
	what := fmt.Sprintf("kubectl why-terminating -A, %d of %d pods terminate", someTerminate, manyPods)
	return []row{
		{
			what: what, target: "≤" + maxPluginTime.String(), met: why.took <= maxPluginTime,
			measured: fmt.Sprintf("%.1f s, %.1f times kubectl get pods -A: %s", why.took.Seconds(), why.took.Seconds()/kubectl.took.Seconds(), said),
		},
		{what: "  its memory", target: fmt.Sprintf("≤%d MiB", maxPluginRSS>>20), met: why.rss <= maxPluginRSS, measured: fmt.Sprintf("%d MiB", why.rss>>20)},
	}, nil
}

func absent(i int) string { return fmt.Sprintf("absent-%d", i) }

// unlimited returns a client of the cluster that does not hold itself back, and the path of its kubeconfig.
func unlimited(ctx context.Context) (kubernetes.Interface, string, error) {
	out, err := exec.CommandContext(ctx, os.Getenv("NODEAGENT_CLUSTER"), "kubeconfig").Output()
	if err != nil {
		return nil, "", err
	}
	path := strings.TrimSpace(string(out))
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, "", err
	}
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	return client, path, err
}

// sideBySide does something for each number below n.
func sideBySide(n int, do func(int) error) error {
	errs := make([]error, writers)
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for i := w; i < n && errs[w] == nil; i += writers {
				errs[w] = do(i)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// cost is what a command took.
type cost struct {
	took time.Duration
	rss  int64
}

// run runs a command and returns its cost, and the line of its output with some word. That something is late is no failure.
func run(ctx context.Context, kubeconfig, word string, name string, args ...string) (cost, string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	begun := time.Now()
	err := cmd.Run()
	took := time.Since(begun)
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1 || word == "") {
		return cost{}, "", fmt.Errorf("%s: %w: %s", name, err, errs.String())
	}
	said := ""
	for line := range strings.Lines(out.String()) {
		if word != "" && strings.Contains(line, word) && !strings.Contains(line, "kubectl") {
			said = strings.TrimSpace(line)
		}
	}
	usage, _ := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	return cost{took: took, rss: usage.Maxrss << 10}, said, nil
}
