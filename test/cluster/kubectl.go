package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/nodeagent-io/nodeagent/test/cluster/internal/cluster"
)

func kubectlCommand() *cobra.Command {
	return &cobra.Command{
		Use:                "kubectl [ARGUMENT...]",
		Short:              "Run kubectl as the cluster's administrator",
		DisableFlagParsing: true,
		RunE: onCluster(func(cmd *cobra.Command, h cluster.Handle, args []string) error {
			c, err := h.Dir.Load()
			if err != nil {
				return err
			}
			kubectl := exec.CommandContext(cmd.Context(), filepath.Join(c.BinDir, "kubectl"), args...)
			kubectl.Env = append(os.Environ(), "KUBECONFIG="+h.Dir.Kubeconfig())
			kubectl.Stdin, kubectl.Stdout, kubectl.Stderr = os.Stdin, os.Stdout, os.Stderr
			err = kubectl.Run()
			var exit *exec.ExitError
			if errors.As(err, &exit) {
				return exitCode(exit.ExitCode())
			}
			return err
		}),
	}
}

func kubeconfigCommand() *cobra.Command {
	return pathCommand("kubeconfig", "Print the path of the administrator's kubeconfig",
		func(h cluster.Handle) string { return h.Dir.Kubeconfig() })
}

func auditCommand() *cobra.Command {
	return pathCommand("audit", "Print the path of kube-apiserver's audit log",
		func(h cluster.Handle) string { return h.Dir.Audit() })
}

// pathCommand prints the path of a file of the running cluster.
func pathCommand(use, short string, path func(cluster.Handle) string) *cobra.Command {
	return &cobra.Command{
		Use:   use,
		Short: short,
		Args:  cobra.NoArgs,
		RunE: onCluster(func(_ *cobra.Command, h cluster.Handle, _ []string) error {
			if _, err := h.Dir.Load(); err != nil {
				return err
			}
			_, err := os.Stdout.WriteString(path(h) + "\n")
			return err
		}),
	}
}
