// Wrapper is a stand-in for the small programs that Argo Workflows and Tekton put before the
// program of a step (argoexec emissary, entrypoint): it starts the program, passes signals on to
// it, waits, and ends as that has.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

func main() {
	code, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "wrapper:", err)
	}
	os.Exit(code)
}

func run(argv []string) (code int, err error) {
	if len(argv) == 0 {
		return 64, errors.New("give a program and its arguments")
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	child := exec.Command(argv[0], argv[1:]...)
	child.Stdin, child.Stdout, child.Stderr = os.Stdin, os.Stdout, os.Stderr
	child.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := child.Start(); err != nil {
		return 127, err
	}
	go func() {
		for s := range signals {
			// An error is a child that has ended, of which Wait tells.
			_ = syscall.Kill(-child.Process.Pid, s.(syscall.Signal))
		}
	}()
	err = child.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exitCode(exit), nil
	}
	return 0, err
}

// exitCode returns what a shell would end with: 128 and the signal of a program that was killed.
func exitCode(e *exec.ExitError) int {
	if s, ok := e.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		return 128 + int(s.Signal())
	}
	return e.ExitCode()
}
