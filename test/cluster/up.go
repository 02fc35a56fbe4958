package main

import (
	"github.com/spf13/cobra"

	"github.com/nodeagent-io/nodeagent/test/cluster/internal/cluster"
	"github.com/nodeagent-io/nodeagent/test/cluster/internal/state"
)

func upCommand() *cobra.Command {
	var o state.Options
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Build what is missing and start the cluster of this checkout",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.Validate(); err != nil {
				return err
			}
			h, err := cluster.Find()
			if err != nil {
				return err
			}
			return h.Up(cmd.Context(), o)
		},
	}
	cmd.Flags().IntVar(&o.Nodes, "nodes", 1, "number of nodes")
	cmd.Flags().StringVar(&o.Cgroup, "cgroup", "v2", "cgroup version of the nodes, v1 or v2")
	cmd.Flags().IntVar(&o.MemoryMB, "memory", 3072, "memory of each node in MB")
	return cmd
}

func downCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "End the cluster of this checkout; the cache stays",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			h, err := cluster.Find()
			if err != nil {
				return err
			}
			return h.Down(cmd.Context())
		},
	}
}
