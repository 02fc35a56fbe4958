package main

import (
	"errors"
	"os"

	"github.com/spf13/cobra"

	"github.com/nodeagent-io/nodeagent/test/cluster/internal/cluster"
	"github.com/nodeagent-io/nodeagent/test/cluster/internal/node"
)

func execCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "exec NODE COMMAND [ARGUMENT...]",
		Short: "Run a command as root on a node",
		Long: `Run a command as root on a node. One word is a line for the node's shell:

  exec vm1 'echo 1 > /proc/sys/vm/drop_caches'

Several words are a program and its arguments, taken as they are:

  exec vm1 sh -c 'cat > /root/script' < script

Standard input is passed on, and the exit status is the command's (255 when the node
could not be reached, 128 and the signal's number when a signal ended the command).`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 {
				return errors.New("exec: give a node and a command, such as: exec vm1 'ps aux'")
			}
			return nil
		},
		RunE: onCluster(func(cmd *cobra.Command, h cluster.Handle, args []string) error {
			c, err := h.Dir.Load()
			if err != nil {
				return err
			}
			n, err := c.Node(args[0])
			if err != nil {
				return err
			}
			client, err := node.Shell(cmd.Context(), h.Dir, n)
			if err != nil {
				cmd.PrintErrln("Error:", err)
				return exitCode(255)
			}
			defer client.Close()
			code, err := node.Run(cmd.Context(), client, node.CommandLine(args[1:]), os.Stdin, os.Stdout, os.Stderr)
			if err != nil {
				cmd.PrintErrln("Error:", err)
				return exitCode(255)
			}
			if code != 0 {
				return exitCode(code)
			}
			return nil
		}),
	}
	// Flags behind the node's name are the command's.
	cmd.Flags().SetInterspersed(false)
	return cmd
}
