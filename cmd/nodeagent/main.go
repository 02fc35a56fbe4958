// Nodeagent says on a pod why it is stuck Terminating.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/nodeagent-io/nodeagent/pkg/proc/probe"
)

// version is set by the linker.
var version = "unknown"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := root().ExecuteContext(ctx); err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "nodeagent:", ascii(err.Error()))
		os.Exit(1)
	}
}

func root() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "nodeagent",
		Short: "Find out why pods are stuck Terminating, and report it on the pod",
		Long: `Nodeagent runs on every node and finds out why a pod is stuck Terminating. It
reports the cause in the condition nodeagent.io/TerminationBlocked, in an Event that
kubectl describe shows, and in the metric stuck_terminating_seconds. It only
observes: it never kills, unmounts or deletes anything.`,
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cmd.CompletionOptions.DisableDefaultCmd = true
	cmd.AddCommand(runCommand(), captureCommand(), explainCommand(), probeCommand())
	return cmd
}

// probeCommand is the helper process that package probe starts for the reads
// that can hang. It is not for people.
func probeCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "probe",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if code := probe.Main(os.Stdin, os.Stdout); code != 0 {
				os.Exit(code)
			}
			return nil
		},
	}
}
