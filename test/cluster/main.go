// Cluster runs a real Kubernetes cluster on one machine, without a registry and
// without touching the machine's own mounts, sysctls or firewall: the control plane
// as processes, the nodes as virtual machines or in namespaces of the machine.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/nodeagent-io/nodeagent/test/cluster/internal/cluster"
)

// exitCode ends this program with the status of the command that it ran for the user.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := root().ExecuteContext(withGoRun(ctx))
	stop()
	var code exitCode
	switch {
	case errors.As(err, &code):
		os.Exit(int(code))
	case err != nil:
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

// onCluster makes a command's function of one that is about the cluster of this checkout.
func onCluster(do func(*cobra.Command, cluster.Handle, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		h, err := cluster.Find()
		if err != nil {
			return err
		}
		return do(cmd, h, args)
	}
}

func root() *cobra.Command {
	cmd := &cobra.Command{
		Use:           "cluster",
		Short:         "A real Kubernetes cluster on one machine",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	cmd.CompletionOptions.DisableDefaultCmd = true
	cmd.AddCommand(buildCommand(), upCommand(), downCommand(), statusCommand(), execCommand(), loadCommand(), imageCommand(),
		kubeconfigCommand(), kubectlCommand(), auditCommand(), stopCommand(), startCommand(), tunnelCommand())
	return cmd
}
