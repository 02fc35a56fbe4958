package proc

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kerneltest"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kernfile"
	"github.com/nodeagent-io/nodeagent/pkg/proc/probe"
)

func TestCorePattern(t *testing.T) {
	for text, want := range map[string]string{
		"core\n": "core",
		"|/usr/lib/systemd/systemd-coredump %P %u %g %s %t %c %h\n": "|/usr/lib/systemd/systemd-coredump",
		"| /bin/handler %p":   "|/bin/handler",
		"/var/cores/%e.%p\n":  "/var/cores/%e.%p",
		"@/run/dump.socket\n": "@/run/dump.socket",
		"\n":                  "",
		"|\n":                 "",
	} {
		if got := corePattern(strings.Fields(text)); got != want {
			t.Errorf("%q: %q", text, got)
		}
	}
	h := &Host{Proc: "/proc"}
	if release := h.ReadKernel(); release == "" || strings.ContainsAny(release, " \n") {
		t.Errorf("the kernel is %q", release)
	}
}

// Both questions that read such names get the bare ones.
func TestSeenFunctions(t *testing.T) {
	root := t.TempDir()
	kerneltest.Tree(t, root, map[string]string{
		"7/task/7/status": "Name:\todd\nState:\tS\nTgid:\t7\nPid:\t7\n",
		"7/task/7/stat":   string(kerneltest.File(t, "stat_odd_comm")),
		"7/task/7/wchan":  "request_wait_answer.isra.0",
		"7/task/7/stack":  "[<0>] request_wait_answer.isra.0+0x12f/0x220 [fuse]\n[<0>] fuse_flush.part.0+0x1d2/0x260 [fuse]\n[<0>] do_exit.cold+0x8/0x10\n",
	})
	h := newHost(t)
	h.Proc = root
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	saw, err := h.Prober.Ask(ctx, probe.Task, root, &evidence.Task{PID: 7, TID: 7}, "")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"request_wait_answer", "fuse_flush", "do_exit"}, saw.Stack); d != "" || saw.Wchan != "request_wait_answer" {
		t.Errorf("wchan %s, stack %s", saw.Wchan, d)
	}
	if yes, err := h.blocked(ctx, &kernfile.TaskStatus{Task: evidence.Task{PID: 7, TID: 7, State: evidence.Sleeping}}); !yes || err != nil {
		t.Errorf("blocked: %v, %v", yes, err)
	}
}

func FuzzSmallFiles(f *testing.F) {
	kerneltest.Fuzz(f, []string{"12\n0\n"}, func(b []byte) {
		parseChildren(b)
	})
}
