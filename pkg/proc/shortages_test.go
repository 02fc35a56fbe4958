package proc

import (
	"bufio"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kernfile"
)

// A real process that may open more files, as also where only a number below the limit is free, and one that
// may not.
func TestOpenFilesUsedUp(t *testing.T) {
	cmd := exec.Command("sh", "-c", "exec 3</dev/null 5</dev/null; echo ready; read wait")
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
	pid := cmd.Process.Pid
	h := newHost(t)
	files, err := kernfile.Open(h.Proc)
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	for limit, want := range map[uint64]bool{1000: false, 3: true, 4: true, 5: false} {
		if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: limit, Max: 1000}, nil); err != nil {
			t.Skip(err)
		}
		got, err := h.Round().shortages(t.Context(), files, &kernfile.TaskStatus{Task: evidence.Task{PID: pid, TID: pid, Owner: ownerContainerd}})
		if err != nil {
			t.Fatal(err)
		}
		if (len(got) == 1) != want || want && (got[0].Resource != evidence.Descriptors || got[0].Limit != int64(limit) || got[0].Used != int64(limit) || got[0].PID != pid) {
			t.Errorf("limit %d: %+v", limit, got)
		}
	}
}
