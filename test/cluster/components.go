package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/nodeagent-io/nodeagent/test/cluster/internal/cluster"
	"github.com/nodeagent-io/nodeagent/test/cluster/internal/state"
	"github.com/nodeagent-io/nodeagent/test/cluster/internal/tunnel"
)

const componentNames = "COMPONENT is etcd, kube-apiserver, kube-controller-manager or kube-scheduler."

func stopCommand() *cobra.Command {
	var now bool
	cmd := &cobra.Command{
		Use:   "stop COMPONENT",
		Short: "Stop one part of the control plane and wait for its end",
		Long:  "Stop one part of the control plane and wait for its end. " + componentNames,
		Args:  cobra.ExactArgs(1),
		RunE: onCluster(func(cmd *cobra.Command, h cluster.Handle, args []string) error {
			return h.Stop(cmd.Context(), args[0], now)
		}),
	}
	cmd.Flags().BoolVar(&now, "now", false, "kill it; kube-apiserver takes a minute to end in an orderly way")
	return cmd
}

func startCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "start COMPONENT [-- ARGUMENT...]",
		Short: "Start one part of the control plane again and wait until it is ready",
		Long: "Start one part of the control plane again, with more arguments than it has, and wait until it is ready. " +
			"The arguments are for this start only. " + componentNames,
		Args: cobra.MinimumNArgs(1),
		RunE: onCluster(func(cmd *cobra.Command, h cluster.Handle, args []string) error {
			return h.Start(cmd.Context(), args[0], args[1:]...)
		}),
	}
}

func statusCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Tell what runs and where its log is",
		Args:  cobra.NoArgs,
		RunE: onCluster(func(_ *cobra.Command, h cluster.Handle, _ []string) error {
			return h.Status(os.Stdout)
		}),
	}
}

// tunnelCommand returns the command of this program in the background; `up` starts it.
func tunnelCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "tunnel STATE-FOLDER",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			d := state.Dir{Path: args[0]}
			c, err := d.Load()
			if err != nil {
				return err
			}
			return tunnel.Serve(cmd.Context(), d, c.Nodes)
		},
	}
}
