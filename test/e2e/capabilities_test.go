//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/nodeagent-io/nodeagent/test/bed"
	"github.com/nodeagent-io/nodeagent/test/scenario"
)

// shown notes which fields the evidence about an incident has of what the pod's tasks do, as "hangs tasks[].probe.stack", and whether it
// has holders. What is not read of the rest is in missing.
func shown(into map[string]bool, name string, evidence map[string]any) {
	if len(list(evidence["holders"])) > 0 {
		into[name+" holders"] = true
	}
	for _, task := range list(evidence["tasks"]) {
		probe, _ := task.(map[string]any)["probe"].(map[string]any)
		for field := range probe {
			into[name+" tasks[].probe."+field] = true
		}
	}
}

func list(value any) []any {
	l, _ := value.([]any)
	return l
}

// withCapabilities has the agents run with these capabilities.
func withCapabilities(ctx context.Context, n *bed.Node, capabilities []string) error {
	add, err := json.Marshal(capabilities)
	if err != nil {
		return err
	}
	escalation := slices.Contains(capabilities, "SYS_ADMIN")
	_, err = n.Kubectl(ctx, "-n", n.Agents.Namespace, "patch", "daemonset", "nodeagent", "--type=json", "-p", fmt.Sprintf(`[
		{"op":"replace","path":"/spec/updateStrategy","value":{"type":"RollingUpdate","rollingUpdate":{"maxUnavailable":"100%%"}}},
		{"op":"replace","path":"/spec/template/spec/containers/0/securityContext/allowPrivilegeEscalation","value":%t},
		{"op":"replace","path":"/spec/template/spec/containers/0/securityContext/capabilities/add","value":%s}]`, escalation, add))
	if err != nil {
		return err
	}
	return n.Await(ctx, "an agent with "+strings.Join(capabilities, ", "), func() (bool, string) {
		p, err := n.AgentPod(ctx)
		if err != nil {
			return false, err.Error()
		}
		var got []string
		for _, c := range p.Spec.Containers[0].SecurityContext.Capabilities.Add {
			got = append(got, string(c))
		}
		return slices.Equal(got, capabilities) && p.Status.ContainerStatuses[0].State.Running != nil, strings.Join(got, ", ")
	})
}

// capabilities takes each of the agent's capabilities away in turn, and compares what a capture shows of three pods with what it shows with all of them.
// What is lost is what pkg/diagnose/testdata/capabilities.yaml says. docs/security.md lists the causes that need it.
func capabilities(x *trial, n *bed.Node, turn *bed.Turn) {
	ctx := x.Context()
	defer installAgain(x, n)
	set, err := n.AgentPod(ctx)
	if err != nil {
		x.Fatal(err)
	}
	var all []string
	for _, c := range set.Spec.Containers[0].SecurityContext.Capabilities.Add {
		all = append(all, string(c))
	}
	var listed map[string]struct {
		Lost, Missing []string
	}
	file := filepath.Join(bed.Root(), "pkg", "diagnose", "testdata", "capabilities.yaml")
	if text, err := os.ReadFile(file); err != nil {
		x.Fatal(err)
	} else if err := yaml.Unmarshal(text, &listed); err != nil {
		x.Fatal(err)
	}
	var runs []*bed.Run
	for _, s := range scenario.OfCapabilities() {
		r := start(x, n, s, turn)
		if s.Cause != "" {
			if err := r.AwaitVerdict(ctx); err != nil {
				x.Fatal(err)
			}
		}
		runs = append(runs, r)
	}
	look := func() (fields, missing map[string]bool) {
		x.Helper()
		fields, missing = map[string]bool{}, map[string]bool{}
		for _, r := range runs {
			text, err := n.Capture(ctx, r.Name, bed.ShortWait)
			var evidence map[string]any
			if err == nil {
				err = json.Unmarshal([]byte(text[max(0, strings.Index(text, "{")):]), &evidence)
			}
			if err != nil {
				x.Fatal(err)
			}
			if m, ok := evidence["missing"].(map[string]any); ok {
				for source := range m {
					missing[source] = true
				}
			}
			shown(fields, strings.TrimPrefix(r.Name, "capabilities-"), evidence)
		}
		return fields, missing
	}
	full, fullMissing := look()
	for _, taken := range all {
		without := slices.DeleteFunc(slices.Clone(all), func(c string) bool { return c == taken })
		if err := withCapabilities(ctx, n, without); err != nil {
			x.Fatal(err)
		}
		fields, missing := look()
		var lost, sources []string
		for field := range full {
			if !fields[field] {
				lost = append(lost, field)
			}
		}
		for source := range missing {
			if !fullMissing[source] {
				sources = append(sources, source)
			}
		}
		slices.Sort(lost)
		slices.Sort(sources)
		x.Logf("without %s are lost %s; missing %s", taken, strings.Join(lost, ", "), strings.Join(sources, ", "))
		if want := listed[taken]; !slices.Equal(lost, want.Lost) || !slices.Equal(sources, want.Missing) {
			x.Errorf("%s has something else for %s than a capture without it:\nlost: %q\nmissing: %q", file, taken, lost, sources)
		}
	}
	if err := withCapabilities(ctx, n, all); err != nil {
		x.Fatal(err)
	}
	if err := n.AwaitAgents(ctx); err != nil {
		x.Fatal(err)
	}
	var errs []error
	for _, r := range runs {
		errs = append(errs, r.Mend(ctx))
	}
	if err := errors.Join(errs...); err != nil {
		x.Error(err)
	}
	x.row.Verdict = verdictCheck
}
