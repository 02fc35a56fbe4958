package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
)

func explainCommand() *cobra.Command {
	var capture string
	cmd := &cobra.Command{
		Use:   "explain [CAUSE|FAMILY]",
		Short: "Explain a cause or a family and what to do about it, or list all causes",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case capture != "" && len(args) == 0:
				return errors.New("--for needs a cause: nodeagent explain CAUSE --for FILE")
			case capture != "":
				page, err := explainFor(args[0], capture, cmd.InOrStdin())
				if err == nil {
					printPage(cmd.OutOrStdout(), page)
				}
				return err
			case len(args) == 0:
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
	cmd.Flags().StringVar(&capture, "for", "", "print which conditions of the cause a pod meets: FILE is a capture of it, - is standard input")
	return cmd
}

// explainFor prints which conditions of a cause a pod meets, by a capture in a file.
func explainFor(name, file string, stdin io.Reader) (page string, err error) {
	if file == "-" {
		return cause.ExplainFor(name, stdin)
	}
	if os.Getenv(sealed) != "" {
		return "", errors.New("--for opens no file in the agent's own container, which is root of the node: pass the capture on standard input, with --for -")
	}
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	return cause.ExplainFor(name, f)
}
