package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
)

func explainCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "explain [CAUSE|FAMILY]",
		Short: "Explain a cause or a family and what to do about it, or list all causes",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				fmt.Fprint(cmd.OutOrStdout(), cause.Index())
				return nil
			}
			page, ok := cause.Explain(args[0])
			if !ok {
				return fmt.Errorf("no cause or family is called %q; nodeagent explain lists the causes, and the page of each its families", args[0])
			}
			printPage(cmd.OutOrStdout(), page)
			return nil
		},
	}
}
