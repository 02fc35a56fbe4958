package main

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
)

func explainCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "explain [CAUSE|FAMILY]",
		Short: "Explain a cause or a family and what to do about it, or list all causes",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			causes := cause.All()
			if len(args) == 0 {
				w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
				for _, r := range causes {
					fmt.Fprintf(w, "%s\t%s\t%s\n", r.Cause, r.Doc.Layer, r.Doc.Title)
				}
				return w.Flush()
			}
			for _, r := range causes {
				if strings.EqualFold(r.Cause, args[0]) {
					printPage(cmd.OutOrStdout(), cause.Table().Page(r))
					return nil
				}
			}
			for name, page := range diagnose.FamilyPages(causes) {
				if strings.EqualFold(name, args[0]) {
					printPage(cmd.OutOrStdout(), page)
					return nil
				}
			}
			return fmt.Errorf("no cause or family is called %q; nodeagent explain lists the causes, and the page of each its families", args[0])
		},
	}
}
