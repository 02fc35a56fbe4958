package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
	"k8s.io/cli-runtime/pkg/genericclioptions"
)

// pseudoTerminal returns both ends of a pseudo-terminal of some width.
func pseudoTerminal(t *testing.T, width uint16) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(int(slave.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: width, Row: 24}); err != nil {
		t.Fatal(err)
	}
	return master, slave
}

// onTerminal returns what the plugin prints on a terminal.
func onTerminal(t *testing.T, width uint16, kubeconfig string, args ...string) string {
	t.Helper()
	master, slave := pseudoTerminal(t, width)
	out := make(chan string)
	go func() {
		b, _ := io.ReadAll(master) // it ends with an error, as the other end is closed
		out <- string(b)
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second) // for --watch
	defer cancel()
	o := &options{config: genericclioptions.NewConfigFlags(false), out: slave}
	cmd := command(o)
	*o.config.KubeConfig = kubeconfig
	cmd.SetArgs(args)
	if err := cmd.ExecuteContext(ctx); err != nil {
		t.Error(err)
	}
	slave.Close()
	return strings.ReplaceAll(<-out, "\r\n", "\n")
}

func TestTerminals(t *testing.T) {
	long := strings.NewReplacer("web-0", "payments-reconciler-6d9c7b8f5-x2lp9", `"n1"`, `"ip-10-0-12-34.eu-west-1.compute.internal"`).Replace(latePod)
	kubeconfig := apiServer(t, map[string]string{inShop: pods(long, gracePod), "/api/v1/nodes/n1": nodeOK, "/api/v1/pods": noPods})
	for _, c := range []struct {
		width   uint16
		env     string
		args    []string
		escapes bool
	}{
		{80, "TERM=xterm", nil, true},
		{120, "TERM=xterm", nil, true},
		{80, "NO_COLOR=1", nil, false},
		{80, "TERM=dumb", nil, false},
		{80, "TERM=dumb", []string{"--watch"}, false},
		{80, "TERM=xterm", []string{"--watch"}, true},
		{80, "TERM=xterm", []string{"--color=never"}, false},
		{80, "TERM=dumb", []string{"--color=always"}, true},
		{80, "NO_COLOR=1", []string{"-o", "json"}, false},
	} {
		t.Run(fmt.Sprint(c.width, c.env, c.args), func(t *testing.T) {
			t.Setenv("TERM", "xterm")
			t.Setenv("NO_COLOR", "")
			name, value, _ := strings.Cut(c.env, "=")
			t.Setenv(name, value)
			out := onTerminal(t, c.width, kubeconfig, c.args...)
			if !strings.Contains(out, "payments-reconciler-6d9c7b8f5-x2lp9") || strings.Contains(out, "\x1b") != c.escapes {
				t.Errorf("%q", out)
			}
			if len(c.args) > 0 {
				return
			}
			for line := range strings.Lines(out) {
				line = strings.NewReplacer("\x1b[1m", "", "\x1b[31m", "", "\x1b[0m", "", "\n", "").Replace(line)
				if n := utf8.RuneCountInString(line); n > int(c.width) && !strings.HasPrefix(line, "Details:") {
					t.Errorf("%d columns: %s", n, line)
				}
			}
			t.Log("\n" + out)
		})
	}
}

// Without a terminal COLUMNS says how wide lines are, as in `watch`.
func TestColumns(t *testing.T) {
	t.Setenv("COLUMNS", "90")
	out, _, _ := run(t, apiServer(t, map[string]string{inShop: pods(latePod), "/api/v1/nodes/n1": nodeOK, "/api/v1/pods": noPods}))
	if strings.Contains(out, "\x1b") || !strings.Contains(out, "\nweb-0") {
		t.Errorf("%q", out)
	}
}
