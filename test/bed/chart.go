package bed

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Chart is the directory of the chart.
func Chart() string { return filepath.Join(Root(), "deploy", "helm", "nodeagent") }

// InstallChart does the same with the chart, in the same namespace.
func InstallChart(ctx context.Context, c *Cluster) error {
	return c.install(ctx, Root(), func(text string) error {
		namespace, _, _ := strings.Cut(text, "\n---\n")
		if err := c.apply(ctx, namespace); err != nil {
			return err
		}
		c.Agents = manifested
		_, err := c.UpgradeChart(ctx, Chart())
		return err
	})
}

// UpgradeChart installs a chart, or a newer one, with values, each as key=value, in place of what the manifest has installed. It returns
// the chart's notes.
func (c *Cluster) UpgradeChart(ctx context.Context, chart string, values ...string) (string, error) {
	args := []string{
		"upgrade", "--install", "--take-ownership", "--force-conflicts", "nodeagent", chart,
		"--namespace", c.Agents.Namespace, "--set", ChartForTests(),
	}
	for _, value := range values {
		args = append(args, "--set", value)
	}
	return c.Helm(ctx, args...)
}

// ChartForTests are the values by which the chart's agents are those for tests, and are replaced all at once.
func ChartForTests() string {
	return "extraArgs={" + strings.Join(sooner, ",") + "},updateStrategy.rollingUpdate.maxUnavailable=100%"
}

// Helm runs Helm, whose directory make adds to PATH, as the cluster's administrator, and returns what it prints.
func (c *Cluster) Helm(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := limited(ctx)
	defer cancel()
	config, err := c.run(ctx, "", "kubeconfig")
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "helm", args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+strings.TrimSpace(config))
	cmd.WaitDelay = 5 * time.Second
	var out, errs bytes.Buffer // what it warns of is no part of what it makes
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("helm %s: %w\n%s", strings.Join(args, " "), err, bytes.TrimSpace(errs.Bytes()))
	}
	return out.String(), nil
}
