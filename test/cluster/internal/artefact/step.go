// Package artefact makes what a cluster is built from: programs compiled from Go
// modules, a Debian root file system and the disk of a node. Each is a cache entry.
package artefact

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/nodeagent-io/nodeagent/test/cluster/internal/cache"
)

// Maker makes cache entries and tells what it does.
type Maker struct {
	Cache cache.Cache
	// Say gets one line for each step.
	Say func(format string, args ...any)
}

// StepError names the step that went wrong, its log and what to try next.
type StepError struct {
	Step, Log, Next string
	Err             error
}

func (e *StepError) Error() string {
	s := fmt.Sprintf("%s: %v", e.Step, e.Err)
	if e.Log != "" {
		s += "\n  log:  " + e.Log + lastLines(e.Log, 5)
	}
	if e.Next != "" {
		s += "\n  next: " + e.Next
	}
	return s
}

func (e *StepError) Unwrap() error { return e.Err }

func lastLines(file string, n int) string {
	data, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	lines = lines[max(0, len(lines)-n):]
	if len(lines) == 0 || lines[0] == "" {
		return " (empty)"
	}
	return "\n        " + strings.Join(lines, "\n        ")
}

// command is a program to run to its end as part of a step.
type command struct {
	argv  []string
	dir   string
	env   []string
	stdin string
}

// run runs a command with its output in the log. When ctx ends the whole process
// group is told to end, so compilers and package managers do not stay behind.
func run(ctx context.Context, log *os.File, c command) error {
	fmt.Fprintf(log, "$ %s\n", strings.Join(c.argv, " "))
	cmd := exec.CommandContext(ctx, c.argv[0], c.argv[1:]...)
	cmd.Dir = c.dir
	cmd.Env = append(os.Environ(), c.env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Stdin = strings.NewReader(c.stdin)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 20 * time.Second
	err := cmd.Run()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", c.argv[0], err)
	}
	return nil
}

// progress repeats, every 30 seconds, that a step still runs.
func (m Maker) progress(step string) (done func()) {
	start := time.Now()
	stop := make(chan struct{})
	go func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(30 * time.Second):
				m.Say("    … %s, %d s so far", step, int(time.Since(start).Seconds()))
			}
		}
	}()
	return func() {
		close(stop)
		m.Say("    %s: done in %.1f s", step, time.Since(start).Seconds())
	}
}
