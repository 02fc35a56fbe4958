package main

import (
	"github.com/spf13/cobra"

	"github.com/nodeagent-io/nodeagent/test/cluster/internal/cluster"
)

func loadCommand() *cobra.Command {
	var nodes []string
	cmd := &cobra.Command{
		Use:   "load IMAGE.tar...",
		Short: "Import OCI or docker image archives on the nodes",
		Args:  cobra.MinimumNArgs(1),
		RunE: onCluster(func(cmd *cobra.Command, h cluster.Handle, args []string) error {
			return h.Load(cmd.Context(), args, nodes)
		}),
	}
	cmd.Flags().StringSliceVar(&nodes, "node", nil, "names of the nodes, comma separated; all when there are none")
	return cmd
}
