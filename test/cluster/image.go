package main

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nodeagent-io/nodeagent/test/cluster/internal/cluster"
	"github.com/nodeagent-io/nodeagent/test/cluster/internal/image"
)

// patterns are paths that a shell takes as one word.
var patterns = regexp.MustCompile(`^(/[\w.*?+-]+)+$`)

func imageCommand() *cobra.Command {
	var packages, leaveOut []string
	var entrypoint, command, stopSignal string
	cmd := &cobra.Command{
		Use:   "image NAME:TAG [SRC:DST...]",
		Short: "Write an image archive from files and Debian packages, and print its path",
		Long: `Write an image archive for this cluster from files and folders of this machine and,
if asked to, Debian packages, and print its path. Pods use it after "load", with
imagePullPolicy: Never.

  image agent:dev --entrypoint "/nodeagent run" ./nodeagent:/nodeagent`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			spec := image.Spec{Name: args[0], Entrypoint: strings.Fields(entrypoint), Cmd: strings.Fields(command), StopSignal: stopSignal}
			for _, arg := range args[1:] {
				f, err := image.ParseFile(arg)
				if err != nil {
					return err
				}
				spec.Files = append(spec.Files, f)
			}
			for _, pattern := range leaveOut {
				if !patterns.MatchString(pattern) {
					return fmt.Errorf("%q: give an absolute path, which may hold * and ?", pattern)
				}
			}
			if len(spec.Files) == 0 && len(packages) == 0 {
				return fmt.Errorf("image %s would be empty; give SRC:DST or --base-packages", spec.Name)
			}
			h, err := cluster.Find()
			if err != nil {
				return err
			}
			path, err := h.Maker().Image(cmd.Context(), spec, packages, leaveOut)
			if err != nil {
				return err
			}
			fmt.Println(path)
			return nil
		},
	}
	cmd.Flags().StringSliceVar(&packages, "base-packages", nil, "Debian packages to put below the files, with all they depend on")
	cmd.Flags().StringSliceVar(&leaveOut, "leave-out", nil, "what of the packages to leave out, paths with wildcards; documentation always is")
	cmd.Flags().StringVar(&entrypoint, "entrypoint", "", "program and arguments, separated by blanks")
	cmd.Flags().StringVar(&command, "cmd", "", "default arguments, separated by blanks")
	cmd.Flags().StringVar(&stopSignal, "stop-signal", "", "signal that asks the program to end, instead of SIGTERM")
	return cmd
}
