package main

import (
	"github.com/spf13/cobra"

	"github.com/nodeagent-io/nodeagent/test/cluster/internal/cluster"
	"github.com/nodeagent-io/nodeagent/test/cluster/internal/state"
)

func upCommand() *cobra.Command {
	var nodes []string
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Build what is missing and start the cluster of this checkout",
		Long: `Build what is missing and start the cluster of this checkout. A cluster that runs
already keeps its nodes and gets those that it lacks.

  up --node vm --node vm,kernel=6.12,runc=1.4 --node vm,cgroup=v1 --node native

A vm is a virtual machine. A native node runs in namespaces of this machine, on its
kernel and with its version of cgroups: fast, and nothing for what hangs a kernel.
Options behind a comma: containerd=2.4 or 2.2, runc=1.1 or 1.4; of a vm also kernel=6.1 or 6.12, cgroup=v2
or v1 (only with kernel 6.1), memory=MB, psi=0 for a kernel that counts no pressure.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var wanted []state.Spec
			for _, text := range nodes {
				s, err := state.ParseSpec(text)
				if err != nil {
					return err
				}
				wanted = append(wanted, s)
			}
			h, err := cluster.Find()
			if err != nil {
				return err
			}
			return h.Up(cmd.Context(), wanted)
		},
	}
	cmd.Flags().StringArrayVar(&nodes, "node", []string{state.VM}, "one of the nodes, KIND[,KEY=VALUE...]")
	return cmd
}

func buildCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "build",
		Short: "Make what a cluster is built from, and start none",
		Args:  cobra.NoArgs,
		RunE: onCluster(func(cmd *cobra.Command, h cluster.Handle, _ []string) error {
			return h.Build(cmd.Context())
		}),
	}
}

func downCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "End the cluster of this checkout; the cache stays",
		Args:  cobra.NoArgs,
		RunE: onCluster(func(cmd *cobra.Command, h cluster.Handle, _ []string) error {
			return h.Down(cmd.Context())
		}),
	}
}
