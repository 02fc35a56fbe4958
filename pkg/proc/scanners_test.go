package proc

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kernfile"
)

// scanner is asked before a file in a directory is opened, and does not answer, until its input ends.
func scanner(dir string) error {
	fd, err := unix.FanotifyInit(unix.FAN_CLASS_CONTENT|unix.FAN_CLOEXEC, unix.O_RDONLY)
	if err != nil {
		return err
	}
	if err := unix.FanotifyMark(fd, unix.FAN_MARK_ADD, unix.FAN_OPEN_PERM|unix.FAN_EVENT_ON_CHILD, unix.AT_FDCWD, dir); err != nil {
		return err
	}
	fmt.Println("ready")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// A real process that scans files, and one that waits for it.
func TestScanners(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: fanotify")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	h, dir := newHost(t), t.TempDir()
	if err := os.WriteFile(dir+"/file", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	find := func(pid int) *evidence.Task {
		t.Helper()
		all, err := h.Round().ReadScanners(t.Context())
		if err != nil {
			t.Logf("not all: %v", err) // there may be others
		}
		for i := range all {
			if all[i].PID == pid {
				return &all[i]
			}
		}
		return nil
	}
	if got := find(os.Getpid()); got != nil {
		t.Errorf("it scans nothing: %+v", got)
	}
	cmd := waiting(t, exec.Command(self, "scanner", dir))
	opens := exec.Command("cat", dir+"/file")
	if err := opens.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = opens.Process.Kill()
		_ = opens.Wait()
	}()
	awaitState(t, opens.Process.Pid, evidence.Uninterruptible)
	if got := find(cmd.Process.Pid); got == nil || got.Probe == nil || got.Probe.Start == 0 {
		t.Errorf("%+v", got)
	}
	tasks, _, err := h.Round().ReadBlocked(t.Context())
	if err != nil {
		t.Logf("not all: %v", err)
	}
	for i := range tasks {
		if tasks[i].PID == opens.Process.Pid {
			if !tasks[i].AwaitsScanner() {
				t.Errorf("waits for no scanner: %+v", tasks[i].Probe)
			}
			return
		}
	}
	t.Errorf("process %d is not among the blocked ones", opens.Process.Pid)
}

// The kernel wakes all that wait for a program that scans files when it answers one of them: where nobody has been woken,
// it has answered nobody.
func TestAnswerWakesAll(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: fanotify")
	}
	dir := t.TempDir()
	fd, err := unix.FanotifyInit(unix.FAN_CLASS_CONTENT|unix.FAN_CLOEXEC, unix.O_RDONLY|unix.O_CLOEXEC)
	if err != nil {
		t.Skipf("fanotify_init: %v", err)
	}
	defer func() { _ = unix.Close(fd) }()
	open := func(name string) *exec.Cmd {
		t.Helper()
		if err := os.WriteFile(dir+name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := unix.FanotifyMark(fd, unix.FAN_MARK_ADD, unix.FAN_OPEN_PERM, unix.AT_FDCWD, dir+name); err != nil {
			t.Skipf("fanotify_mark: %v", err)
		}
		cmd := exec.Command("cat", dir+name)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		awaitState(t, cmd.Process.Pid, evidence.Uninterruptible)
		return cmd
	}
	first := open("/first")
	defer func() {
		_ = first.Process.Kill()
		_ = first.Wait()
	}()
	files, err := kernfile.Open("/proc")
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	before, err := files.TaskStatus(first.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	second := open("/second")
	b := make([]byte, 4096)
	n, err := unix.Read(fd, b)
	if err != nil {
		t.Fatal(err)
	}
	for ; n > 0; b, n = b[unix.FAN_EVENT_METADATA_LEN:], n-unix.FAN_EVENT_METADATA_LEN {
		var e unix.FanotifyEventMetadata
		if _, err := binary.Decode(b, binary.NativeEndian, &e); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = unix.Close(int(e.Fd)) }()
		if int(e.Pid) != second.Process.Pid {
			continue
		}
		answer, err := binary.Append(nil, binary.NativeEndian, unix.FanotifyResponse{Fd: e.Fd, Response: unix.FAN_ALLOW})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := unix.Write(fd, answer); err != nil {
			t.Fatal(err)
		}
	}
	if err := second.Wait(); err != nil {
		t.Fatal(err)
	}
	for woken := false; !woken; {
		now, err := files.TaskStatus(first.Process.Pid)
		if err != nil || now.State == evidence.Zombie {
			t.Fatalf("it is not waiting any more: %+v, %v", now, err)
		}
		woken = now.Switches > before.Switches
	}
}

// awaitState waits until a process is in a state.
func awaitState(t *testing.T, pid int, want evidence.TaskState) {
	t.Helper()
	files, err := kernfile.Open("/proc")
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	for {
		s, err := files.TaskStatus(pid)
		if err != nil {
			t.Fatal(err)
		}
		if s.State == want {
			return
		}
	}
}
