// Demo breaks pods for real on the test cluster, deletes them, and shows what
// `kubectl describe pod` says about each. `make demo` boots the cluster and
// runs it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/nodeagent-io/nodeagent/test/bed"
	"github.com/nodeagent-io/nodeagent/test/scenario"
)

func main() {
	byChart := flag.Bool("helm", false, "install nodeagent by its chart")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// Where make puts the plugin.
	if err := os.Setenv("PATH", filepath.Join(bed.Root(), "bin")+":"+os.Getenv("PATH")); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
	if err := demo(ctx, *byChart); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// shown returns the incidents of the demo, one of each layer.
func shown() []bed.Scenario {
	var out []bed.Scenario
	for _, s := range scenario.All() {
		switch s.Name {
		case "shell-pid1", "frozen-filesystem", "nfs-server-gone", "shim-stopped", "finalizer", "advice-trap-in-loop":
			out = append(out, s)
		}
	}
	return out
}

func demo(ctx context.Context, byChart bool) (err error) {
	c, err := bed.Find(ctx)
	if err != nil {
		return err
	}
	command, install := "kubectl apply -f deploy/daemonset.yaml", bed.Install
	if byChart {
		command, install = "helm install nodeagent deploy/helm/nodeagent --namespace nodeagent-system", bed.InstallChart
	}
	say("Installing nodeagent: %s", command)
	if err := bed.Images(ctx, c, shown()); err != nil {
		return err
	}
	if err := install(ctx, c); err != nil {
		return err
	}
	var runs []*bed.Run
	for _, s := range shown() {
		places := c.For(s)
		if len(places) == 0 {
			return fmt.Errorf("no node of the cluster offers what %s needs; `bin/cluster up --node vm` adds one", s.Name)
		}
		runs = append(runs, &bed.Run{Scenario: s, Node: places[0][0]})
	}
	say("Starting %d pods, breaking what they need, and deleting them:", len(runs))
	for _, r := range runs {
		fmt.Printf("    %-20s on %-8s %s\n", r.Name, r.Node.Name, r.Story)
	}
	// A demo that fails heals what it has broken: the next one finds a sound cluster.
	// What has been healed is not healed again: some of it waits for its pod.
	defer func() {
		if err == nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Minute)
		defer cancel()
		_ = each(runs, func(r *bed.Run) error { return r.Discard(ctx) }) // the demo has failed already
	}()
	if err := each(runs, func(r *bed.Run) error { return r.Start(ctx) }); err != nil {
		return err
	}
	if err := each(runs, func(r *bed.Run) error {
		err := r.Delete(ctx)
		if errors.Is(err, bed.ErrNoFault) {
			fmt.Printf("    %v; it is begun anew\n", err)
			err = r.Again(ctx)
		}
		return err
	}); err != nil {
		return err
	}
	say("kubectl get pods, right after kubectl delete pod: nothing says why")
	if err := show(ctx, c, "get", "pods", "--all-namespaces", "--selector=scenario"); err != nil {
		return err
	}
	say("Waiting for the verdicts, each at most some seconds past its pod's deadline, and for the innocent pod to go")
	if err := each(runs, func(r *bed.Run) error {
		if r.Cause == "" {
			return r.Mend(ctx)
		}
		if err := r.AwaitVerdict(ctx); err != nil {
			return err
		}
		fmt.Printf("    %-20s %s, after %.0f s\n", r.Name, r.Cause, time.Since(r.Deleted).Seconds())
		return nil
	}); err != nil {
		return err
	}
	for _, r := range runs {
		if r.Cause == "" {
			say("%s is innocent: it went away, and nothing was said about it", r.Name)
			continue
		}
		say("kubectl describe pod %s", r.Name)
		if err := describe(ctx, c, r); err != nil {
			return err
		}
	}
	say("kubectl why-terminating -A: what is stuck, and what holds it")
	if err := why(ctx, c, "-A"); err != nil {
		return err
	}
	for _, r := range runs {
		if _, gone := r.Current(); r.Name == detailed && !apierrors.IsNotFound(gone) {
			say("kubectl why-terminating %s -n %s: what to do", r.Name, r.Pod.Namespace)
			if err := why(ctx, c, r.Name, "-n", r.Pod.Namespace); err != nil {
				return err
			}
		}
	}
	say("The metric, for alerts")
	metrics := map[*bed.Node]string{}
	for _, r := range runs {
		if metrics[r.Node] == "" {
			if metrics[r.Node], err = r.Node.Metrics(ctx); err != nil {
				return err
			}
		}
		for _, s := range bed.Series(metrics[r.Node], "stuck_terminating_seconds", string(r.Pod.UID)) {
			fmt.Println("    " + s)
		}
	}
	say("Healing everything; the pods go away")
	if err := each(runs, func(r *bed.Run) error {
		if r.Cause == "" {
			return nil
		}
		if err := r.Mend(ctx); err != nil {
			return err
		}
		fmt.Printf("    %-20s gone\n", r.Name)
		return nil
	}); err != nil {
		return err
	}
	say(`The cluster runs on: try your own pods with
    export KUBECONFIG=$(bin/cluster kubeconfig); bin/cluster kubectl get pods -A
and end it with make cluster-down.`)
	return nil
}

// describe prints the parts of kubectl describe that matter here. A pod that has
// gone meanwhile, on a slow day, has left its Event.
func describe(ctx context.Context, c *bed.Cluster, r *bed.Run) error {
	text, err := c.Kubectl(ctx, "-n", r.Pod.Namespace, "describe", "pod", r.Name)
	if _, gone := r.Current(); apierrors.IsNotFound(gone) {
		fmt.Printf("    The pod has gone by now. Its Event stays: kubectl get events -n %s\n    %s  %s  %s\n",
			r.Pod.Namespace, r.Event.Type, r.Event.Reason, r.Event.Note)
		return nil
	}
	if err != nil {
		return err
	}
	events := false
	for line := range strings.Lines(text) {
		events = events || strings.HasPrefix(line, "Events:")
		head, _, _ := strings.Cut(line, ":")
		if events || head == "Name" || head == "Status" || head == "Termination Grace Period" {
			fmt.Print("    " + line)
		}
	}
	return nil
}

// detailed is the incident that the plugin is asked about.
const detailed = "frozen-filesystem"

// why prints what kubectl why-terminating says. Its exit status 1 means that something is late.
func why(ctx context.Context, c *bed.Cluster, args ...string) error {
	err := show(ctx, c, append([]string{"why-terminating"}, args...)...)
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 1 {
		return nil
	}
	return err
}

func show(ctx context.Context, c *bed.Cluster, args ...string) error {
	text, err := c.Kubectl(ctx, args...)
	for line := range strings.Lines(text) {
		fmt.Print("    " + line)
	}
	return err
}

// each does one thing for all runs side by side and returns the first error.
func each(runs []*bed.Run, do func(*bed.Run) error) error {
	errs := make([]error, len(runs))
	var wg sync.WaitGroup
	for i, r := range runs {
		wg.Go(func() { errs[i] = do(r) })
	}
	wg.Wait()
	for i, err := range errs {
		if err != nil {
			return fmt.Errorf("%s: %w", runs[i].Name, err)
		}
	}
	return nil
}

func say(format string, args ...any) { fmt.Printf("\n==> "+format+"\n", args...) }
