//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodeagent-io/nodeagent/test/bed"
	"github.com/nodeagent-io/nodeagent/test/scenario"
)

// ours are the kinds of objects that the manifest and the chart make.
const ours = "daemonsets,serviceaccounts,configmaps,networkpolicies,resourcequotas,clusterroles,clusterrolebindings," +
	"validatingadmissionpolicies,validatingadmissionpolicybindings"

// chartUpgraded installs the release before this one, and the chart from its archive over it, upgrades that to a newer one and
// uninstalls it, while a pod is stuck: its condition stands all the time, and at the end there is left what NOTES say. On the way
// each release of the agent runs with the admission policies of the other one.
func chartUpgraded(x *trial, n *bed.Node, turn *bed.Turn) {
	ctx := x.Context()
	defer installAgain(x, n)
	must := func(errs ...error) {
		x.Helper()
		if err := errors.Join(errs...); err != nil {
			x.Fatal(err)
		}
	}
	stuck := func(name string) *bed.Run {
		x.Helper()
		r := start(x, n, scenario.Finished(name), turn)
		must(r.AwaitVerdict(ctx))
		return r
	}
	must(removeManifest(ctx, n), bed.InstallPrevious(ctx, n.Cluster))
	runs := []*bed.Run{stuck("chart-stuck-before")}
	stop := conditionStands(x, runs[0])

	made, err := n.Helm(ctx, "template", "nodeagent", bed.Chart(), "--namespace", n.Agents.Namespace, "--show-only", "templates/policies.yaml")
	must(err, second(n.Apply(ctx, made)))
	runs = append(runs, stuck("chart-older-agent"))

	install := func(version string, values ...string) string {
		x.Helper()
		dir := filepath.Join(x.TempDir(), version)
		must(os.CopyFS(dir, os.DirFS(bed.Chart())))
		packed, err := n.Helm(ctx, "package", dir, "--version", version, "--destination", x.TempDir())
		must(err)
		fields := strings.Fields(packed) // …saved it to: ARCHIVE
		notes, err := n.UpgradeChart(ctx, fields[len(fields)-1], values...)
		must(err)
		return notes
	}
	notes := install("0.1.0")
	must(n.AwaitAgents(ctx))
	for _, want := range []string{"rollout status daemonset/nodeagent", "No PodMonitor was created", "helm uninstall nodeagent -n nodeagent-system leaves"} {
		if !strings.Contains(notes, want) {
			x.Errorf("the notes do not say %q:\n%s", want, notes)
		}
	}
	// Its namespace has the label of Pod Security.
	if strings.Contains(notes, "kubectl label namespace") {
		x.Errorf("the notes want a label that is there:\n%s", notes)
	}
	runs = append(runs, stuck("chart-stuck"))

	older, err := bed.Manifest(bed.Previous())
	must(err)
	for _, doc := range strings.Split(older, "\n---\n") {
		if strings.Contains(doc, "\nkind: ValidatingAdmissionPolicy") {
			must(second(n.Apply(ctx, doc)))
		}
	}
	runs = append(runs, stuck("chart-newer-agent"))

	install("0.1.1", "podAnnotations.upgraded=yes")
	must(n.AwaitAgents(ctx))
	measured(x, runs[0]) // the agent of the newer chart has it
	stop()

	must(second(n.Helm(ctx, "uninstall", "nodeagent", "--namespace", n.Agents.Namespace, "--wait")))
	if left, err := n.Kubectl(ctx, "get", ours, "-A", "-l", bed.AgentSelector, "-o", "name"); err != nil || strings.TrimSpace(left) != "" {
		x.Errorf("helm uninstall leaves %s, %v", left, err)
	}
	if condition, events := standing(x, runs[0]); condition.Status != corev1.ConditionTrue || len(events) == 0 {
		x.Errorf("helm uninstall leaves the condition %+v and %d Events", condition, len(events))
	}
	must(second(n.API.CoreV1().Namespaces().Get(ctx, n.Agents.Namespace, metav1.GetOptions{})))
	for _, r := range runs {
		if err := r.Mend(ctx); err != nil {
			x.Error(err)
		}
	}
	x.row.Verdict = verdictCheck
}

// installAgain has the agents be as the other checks want them.
func installAgain(x *trial, n *bed.Node) {
	x.Helper()
	ctx := context.Background()
	_, err := n.Kubectl(ctx, "-n", n.Agents.Namespace, "delete", "daemonset/nodeagent", "--ignore-not-found", "--wait=true")
	if err := errors.Join(err, bed.Install(ctx, n.Cluster)); err != nil {
		x.Error(err)
	}
}

// conditionsStand is conditionStands of several pods.
func conditionsStand(x *trial, stuck []*bed.Run, or ...string) (stop func()) {
	var stops []func()
	for _, r := range stuck {
		stops = append(stops, conditionStands(x, r, or...))
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
	}
}

// conditionStands looks each half second whether a pod's condition is there and True, with its cause, until it is told to stop. Other
// causes may stand there for a while, and end before that is found again.
func conditionStands(x *trial, r *bed.Run, or ...string) (stop func()) {
	ctx, cancel := context.WithCancel(x.Context())
	var looks int
	var missed []string
	var stands string
	var done sync.WaitGroup
	done.Go(func() {
		for ; ctx.Err() == nil; time.Sleep(500 * time.Millisecond) {
			p, err := r.Node.API.CoreV1().Pods(r.Pod.Namespace).Get(ctx, r.Name, metav1.GetOptions{})
			if ctx.Err() != nil {
				return
			}
			looks++
			if err != nil {
				missed = append(missed, err.Error())
				continue
			}
			c := bed.Condition(p)
			if c != nil && c.Status == corev1.ConditionTrue {
				stands = c.Reason
			}
			if other := slices.Contains(or, stands); c == nil || !other && (c.Status != corev1.ConditionTrue || c.Reason != r.Cause) {
				missed = append(missed, fmt.Sprintf("%s: %+v", time.Now().Format(time.TimeOnly), c))
			}
		}
	})
	return func() {
		cancel()
		done.Wait()
		x.Logf("the condition of %s stood in %d of %d looks", r.Name, looks-len(missed), looks)
		if len(missed) > 0 || looks < 10 {
			x.Errorf("the condition of %s was lost in %d of %d looks: %s", r.Name, len(missed), looks, strings.Join(missed, "; "))
		}
	}
}

// chartRestricted installs the chart in a namespace of its own, with as little as it can work with: the Pod Security level of
// the namespace keeps it out until it has the label of the notes, a stuck pod gets its verdict, and a stolen token is held.
func chartRestricted(x *trial, n *bed.Node, turn *bed.Turn) {
	const namespace = "scenario-observe"
	ctx := x.Context()
	manifest := n.Agents
	defer func() {
		ctx := context.Background()
		_, uninstalled := n.Helm(ctx, "uninstall", "nodeagent", "--namespace", namespace, "--wait")
		_, deleted := n.Kubectl(ctx, "delete", "namespace", namespace, "--ignore-not-found")
		if err := errors.Join(uninstalled, deleted); err != nil {
			x.Error(err)
		}
		n.Agents = manifest
		installAgain(x, n)
	}()
	if err := removeManifest(ctx, n); err != nil {
		x.Fatal(err)
	}
	if _, err := n.Kubectl(ctx, "create", "namespace", namespace); err != nil {
		x.Fatal(err)
	}
	label := func(level string) {
		if _, err := n.Kubectl(ctx, "label", "--overwrite", "namespace", namespace, "pod-security.kubernetes.io/enforce="+level); err != nil {
			x.Fatal(err)
		}
	}
	label("baseline")
	n.Agents = bed.Account{Namespace: namespace, Name: "termination-observer"}
	notes, err := n.Helm(ctx, "install", "nodeagent", bed.Chart(), "--namespace", namespace,
		"--values", filepath.Join(bed.Chart(), "ci", "restricted-values.yaml"), "--set", bed.ChartForTests())
	if err != nil {
		x.Fatal(err)
	}
	if want := "kubectl label namespace " + namespace + " pod-security.kubernetes.io/enforce=privileged"; !strings.Contains(notes, want) {
		x.Errorf("the notes do not say %q:\n%s", want, notes)
	}
	if err := n.Await(ctx, "Pod Security to refuse the pods", func() (bool, string) {
		events, err := n.Kubectl(ctx, "-n", namespace, "get", "events")
		return strings.Contains(events, "violates PodSecurity"), fmt.Sprint(events, err)
	}); err != nil {
		x.Error(err)
	}
	label("privileged")
	if err := n.AwaitAgents(ctx); err != nil {
		x.Fatal(err)
	}
	r := start(x, n, scenario.Another("chart-restricted-stuck"), turn)
	if err := errors.Join(r.AwaitVerdict(ctx), r.Mend(ctx)); err != nil {
		x.Error(err)
	}
	stolenToken(x, n, turn)
	x.row.Verdict = verdictCheck
}

// removeManifest deletes all that the manifest has made but the namespace.
func removeManifest(ctx context.Context, n *bed.Node) error {
	_, err := n.Kubectl(ctx, "delete", ours, "-A", "-l", bed.AgentSelector, "--wait=true")
	return err
}

// strictly are flags by which the API server checks everything, and changes nothing.
var strictly = []string{"--dry-run=server", "--server-side", "--force-conflicts", "--validate=strict"}

// chartValues has the API server check what the chart makes of each set of values, with the CRDs of the Prometheus operator.
func chartValues(x *trial, n *bed.Node, _ *bed.Turn) {
	ctx := x.Context()
	crds := filepath.Join(os.Getenv("NODEAGENT_CRDS"), "monitoring.coreos.com_")
	for _, kind := range []string{"podmonitors", "prometheusrules"} {
		if _, err := n.Kubectl(ctx, "apply", "--server-side", "-f", crds+kind+".yaml"); err != nil {
			x.Fatal(err)
		}
		x.Cleanup(func() {
			if _, err := n.Kubectl(context.Background(), "delete", "-f", crds+kind+".yaml"); err != nil {
				x.Error(err)
			}
		})
	}
	if _, err := n.Kubectl(ctx, "wait", "--for=condition=Established", "crd", "--all", "--timeout=1m"); err != nil {
		x.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(bed.Chart(), "ci", "*-values.yaml"))
	if err != nil || len(files) < 10 {
		x.Fatalf("%d sets of values, %v", len(files), err)
	}
	kinds := map[string]bool{}
	for _, file := range files {
		made, err := n.Helm(ctx, "template", "nodeagent", bed.Chart(), "--namespace", n.Agents.Namespace, "--values", file)
		if err != nil {
			x.Error(err)
			continue
		}
		checked, err := n.Apply(ctx, made, strictly...)
		if err != nil {
			x.Errorf("%s: %v", filepath.Base(file), err)
		}
		for line := range strings.Lines(checked) {
			kind, _, _ := strings.Cut(line, "/")
			kinds[kind] = true
		}
		x.Logf("%s: %d objects", filepath.Base(file), strings.Count(checked, "serverside-applied"))
	}
	for _, kind := range []string{"podmonitor.monitoring.coreos.com", "prometheusrule.monitoring.coreos.com", "networkpolicy.networking.k8s.io", "resourcequota"} {
		if !kinds[kind] {
			x.Errorf("no %s was checked, of %d kinds", kind, len(kinds))
		}
	}
	// It would refuse what is wrong.
	made, err := n.Helm(ctx, "template", "nodeagent", bed.Chart(), "--set", "podMonitor.enabled=true")
	if err != nil {
		x.Fatal(err)
	}
	if out, err := n.Apply(ctx, strings.Replace(made, "honorLabels:", "honourLabels:", 1), strictly...); err == nil {
		x.Errorf("a misspelled field is not refused: %s", out)
	}
	x.row.Verdict = verdictCheck
}
