package main

import (
	"github.com/spf13/cobra"

	"github.com/nodeagent-io/nodeagent/test/cluster/internal/cluster"
)

func loadCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "load IMAGE.tar...",
		Short: "Import OCI or docker image archives on every node",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			h, err := cluster.Find()
			if err != nil {
				return err
			}
			return h.Load(cmd.Context(), args)
		},
	}
}
