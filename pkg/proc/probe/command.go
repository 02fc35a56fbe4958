package probe

import (
	"path"
	"slices"
	"strings"
)

// runtimes are the programs that the shim for runc is known to run, and commands what it
// tells them to do (github.com/containerd/go-runc). What is in neither is not told: a name
// is what somebody chose.
var (
	runtimes = []string{
		"runc", "crun", "youki", "runc-dmz", "sysbox-runc",
		"nvidia-container-runtime", "nvidia-container-runtime.cdi", "nvidia-container-runtime.legacy",
	}
	commands = []string{
		"create", "start", "run", "exec", "kill", "delete", "pause", "resume", "update", "checkpoint", "restore",
		"state", "ps", "events", "features", "list", "--version",
	}
)

// How a runtime's command line looks: the program, which may be a script behind its
// interpreter and an argument of that, then global options that begin with --root, whose
// values are arguments of their own but for those with an equals sign.
const (
	maxBefore   = 4
	firstOption = "--root"
	containerID = 64 // digits of an ID of containerd's CRI plugin
)

// flags are the global options without a value (go-runc, Runc.args).
var flags = []string{"--debug", "--systemd-cgroup"}

// parseCommand gives what a command line tells a runtime to do. Everything else in it is
// dropped here.
func parseCommand(b []byte) CommandLine {
	args := strings.Split(strings.TrimRight(string(b), "\x00"), "\x00")
	if strings.HasPrefix(path.Base(args[0]), "containerd-shim") {
		return CommandLine{Shim: true}
	}
	root := slices.Index(args[:min(len(args), maxBefore)], firstOption)
	if root < 1 {
		return CommandLine{}
	}
	c := CommandLine{Is: true}
	if name := path.Base(args[root-1]); slices.Contains(runtimes, name) {
		c.Runtime = name
	}
	i := root
	for i < len(args) && strings.HasPrefix(args[i], "--") && !slices.Contains(commands, args[i]) {
		if slices.Contains(flags, args[i]) || strings.Contains(args[i], "=") {
			i++
		} else {
			i += 2
		}
	}
	if i >= len(args) || !slices.Contains(commands, args[i]) {
		return c
	}
	c.Command = args[i]
	for _, a := range args[i+1:] {
		if len(a) == containerID && strings.Trim(a, "0123456789abcdef") == "" {
			c.ContainerID = a
		}
	}
	return c
}
