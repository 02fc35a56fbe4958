package proc

import (
	"bufio"
	"cmp"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kernfile"
)

// A real process that may open more files, as also where only a number below the limit is free, and one that
// may not.
func TestOpenFilesUsedUp(t *testing.T) {
	cmd := waiting(t, exec.Command("sh", "-c", "exec 3</dev/null 5</dev/null; echo ready; read wait"))
	pid := cmd.Process.Pid
	h := newHost(t)
	files, err := kernfile.Open(h.Proc)
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	for limit, want := range map[uint64]bool{1000: false, 3: true, 4: true, 5: false} {
		if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: limit, Max: 1000}, nil); err != nil {
			t.Fatal(err)
		}
		got, err := h.Round().shortages(t.Context(), files, &kernfile.TaskStatus{Task: evidence.Task{PID: pid, TID: pid, Owner: ownerContainerd}})
		if err != nil {
			t.Fatal(err)
		}
		if (len(got) == 1) != want || want && (got[0].Resource != evidence.Descriptors || got[0].Limit != int64(limit) ||
			got[0].Used != int64(limit) || got[0].PID != pid) {
			t.Errorf("limit %d: %+v", limit, got)
		}
	}
}

// waiting starts a command that says when it is ready, and waits for the end of its input.
func waiting(t *testing.T, cmd *exec.Cmd) *exec.Cmd {
	t.Helper()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Wait()
	})
	// The dynamic linker has done its part.
	if _, err := bufio.NewReader(stdout).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	return cmd
}

// A real process that has containerd's database open, on a file system of its own, and what a named directory lacks.
func TestDirectoryOfContainerd(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounts a file system")
	}
	h := newHost(t)
	for name, test := range map[string]struct {
		options, spoil string
		want, named    string // the shortage, and that of the directory by its name where it is another one; "" for none
	}{
		"well":        {"size=4m,nr_inodes=100", "true", "", ""},
		"full":        {"size=4m,nr_inodes=100", "head -c 3200000 /dev/zero >full", evidence.Space, ""},
		"many files":  {"size=4m,nr_inodes=10", "touch 1 2 3 4 5 6 7 8 9 2>/dev/null", evidence.Inodes, ""},
		"read-only":   {"size=4m,nr_inodes=100", "mount -o remount,bind,ro .", evidence.ReadOnly, ""},
		"another one": {"size=4m,nr_inodes=100", "head -c 3200000 /dev/zero >full; exec 4>&-", "", evidence.Space},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			cmd := waiting(t, exec.Command("unshare", "--mount", "sh", "-c", `cd "$1" && mount -t tmpfs -o "$2" tmpfs "$1" && cd "$1" &&
mkdir io.containerd.metadata.v1.bolt && exec 4>>io.containerd.metadata.v1.bolt/meta.db && mount --bind . . && cd "$1" && { eval "$3"; echo ready; read wait; }`,
				"sh", dir, test.options, test.spoil))
			pid := cmd.Process.Pid
			got, err := h.Round().full(t.Context(), &kernfile.TaskStatus{Task: evidence.Task{PID: pid, TID: pid, Owner: ownerContainerd}}, "")
			if err != nil {
				t.Fatal(err)
			}
			named, err := h.Round().full(t.Context(), &kernfile.TaskStatus{Task: evidence.Task{PID: pid, TID: pid, Owner: ownerKubelet}}, dir)
			if err != nil {
				t.Fatal(err)
			}
			if want := cmp.Or(test.want, test.named); (len(named) == 1) != (want != "") || len(named) == 1 && (named[0].Resource != want ||
				named[0].Dir != dir || named[0].Owner != ownerKubelet) {
				t.Errorf("%+v of the named directory, want %q", named, want)
			}
			if (len(got) == 1) != (test.want != "") || len(got) == 1 && (got[0].Resource != test.want || got[0].Dir != dir ||
				(got[0].Limit > 0) != (test.want != evidence.ReadOnly)) {
				t.Errorf("%+v, want %q of %s", got, test.want, dir)
			}
		})
	}
}
