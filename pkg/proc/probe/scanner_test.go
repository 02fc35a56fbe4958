package probe

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kerneltest"
)

func TestAsksPermission(t *testing.T) {
	const head = "pos:\t0\nflags:\t02\nmnt_id:\t16\nino:\t1057\n"
	for _, tt := range []struct {
		text string
		cut  bool
		want bool
	}{
		{head + "fanotify flags:4 event-flags:88000\nfanotify ino:4f969 sdev:800013 mflags:0 mask:10000 ignored_mask:0 fhandle-bytes:8 " +
			"fhandle-type:1 f_handle:69f90400c275b5b4\n", false, true},
		{head + "fanotify flags:8 event-flags:88000\nfanotify mnt_id:1e mflags:0 mask:40000 ignored_mask:0\n", false, true},
		{head + "fanotify flags:5 event-flags:88000\nfanotify sdev:800013 mflags:0 mask:3b ignored_mask:0\nfanotify sdev:800014 mflags:0 " +
			"mask:20020 ignored_mask:0\n", false, true},
		{head + "fanotify flags:8 event-flags:88000\nfanotify mnt_id:1e mflags:0 mask:100000 ignored_mask:0\n", false, true},
		{head + "fanotify flags:4 event-flags:88000\nfanotify mnt_id:1e mflags:0 mask:3b ignored_mask:10000\n", false, false}, // is told, and not asked
		{head + "fanotify flags:4 event-flags:88000\nfanotify mnt_id:1e mflags:0 mask:3b ignored_mask:0\n", true, true},       // the rest may have it
		{head + "fanotify flags:4 event-flags:88000\n", false, false},
		{head + "fanotify flags:0 event-flags:88000\nfanotify mnt_id:1e mflags:0 mask:10000 ignored_mask:0\n", true, false}, // a class that is not asked
		{head + "inotify wd:1 ino:1587 sdev:1a mask:10000 ignored_mask:0\n", false, false},
		{head + "fanotify flags:x\n", true, false},
		{"", true, false},
	} {
		if got := asksPermission([]byte(tt.text), tt.cut); got != tt.want {
			t.Errorf("%q: %v", tt.text, got)
		}
	}
}

// A real group is told by the kernel that runs.
func TestScanner(t *testing.T) {
	p, self := newProber(t), &evidence.Task{PID: os.Getpid(), TID: os.Getpid()}
	scans := func() bool {
		t.Helper()
		saw, err := p.Ask(t.Context(), Scanner, "/proc", self, "")
		if err != nil || len(saw.Errors)+len(saw.Denied) > 0 {
			t.Fatalf("%+v, %v", saw, err)
		}
		return saw.Scans
	}
	if scans() {
		t.Fatal("scans without a group")
	}
	for _, tt := range []struct {
		class uint
		mask  uint64
		want  bool
	}{
		{unix.FAN_CLASS_NOTIF, unix.FAN_OPEN, false},
		{unix.FAN_CLASS_CONTENT, unix.FAN_OPEN, false},
		{unix.FAN_CLASS_CONTENT, unix.FAN_OPEN_PERM, true},
		{unix.FAN_CLASS_PRE_CONTENT, unix.FAN_OPEN_EXEC_PERM, true},
	} {
		fd, err := unix.FanotifyInit(tt.class|unix.FAN_CLOEXEC, unix.O_RDONLY)
		if err != nil {
			t.Skipf("fanotify_init: %v", err)
		}
		if err := unix.FanotifyMark(fd, unix.FAN_MARK_ADD, tt.mask, unix.AT_FDCWD, t.TempDir()); err != nil {
			t.Skipf("fanotify_mark: %v", err)
		}
		if got := scans(); got != tt.want {
			t.Errorf("class %x, mask %x: %v", tt.class, tt.mask, got)
		}
		if err := unix.Close(fd); err != nil {
			t.Fatal(err)
		}
	}
}

// A program that does not answer has each file open that it has been asked about.
func TestScannerOfManyFiles(t *testing.T) {
	p, self := newProber(t), &evidence.Task{PID: os.Getpid(), TID: os.Getpid()}
	fd, err := unix.FanotifyInit(unix.FAN_CLASS_CONTENT|unix.FAN_CLOEXEC, unix.O_RDONLY)
	if err != nil {
		t.Skipf("fanotify_init: %v", err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.FanotifyMark(fd, unix.FAN_MARK_ADD, unix.FAN_OPEN_PERM, unix.AT_FDCWD, t.TempDir()); err != nil {
		t.Skipf("fanotify_mark: %v", err)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for range maxFiles {
		n, err := unix.FcntlInt(null.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Skipf("open many files: %v", err)
		}
		defer func() { _ = unix.Close(n) }()
	}
	if saw, err := p.Ask(t.Context(), Scanner, "/proc", self, ""); err != nil || !saw.Scans || saw.Beyond != "" {
		t.Errorf("%+v, %v", saw, err)
	}
	last, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Skipf("open many files: %v", err)
	}
	defer func() { _ = unix.Close(last) }()
	if err := unix.Dup3(int(null.Fd()), fd, unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	if saw, err := p.Ask(t.Context(), Scanner, "/proc", self, ""); err != nil || saw.Scans || saw.Beyond == "" {
		t.Errorf("a group behind them: %+v, %v", saw, err)
	}
}

// A group of a process that cannot be asked is not read: its marks would take the helper's memory.
func TestUnprivilegedGroup(t *testing.T) {
	const kept, dropped = "Name:\tx\nCapEff:\t0000000000000000\nCapBnd:\t000001ffffffffff\nCapAmb:\t0\n", "CapBnd:\t00000000a80425fb\n"
	for text, want := range map[string]bool{kept: true, dropped: false, "CapBnd:\tx\n": false, "": false} {
		if got := bounded([]byte(text)).may(unix.CAP_SYS_ADMIN); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
	fd, err := unix.FanotifyInit(unix.FAN_CLASS_CONTENT|unix.FAN_CLOEXEC, unix.O_RDONLY)
	if err != nil {
		t.Skipf("fanotify_init: %v", err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.FanotifyMark(fd, unix.FAN_MARK_ADD, unix.FAN_OPEN_PERM, unix.AT_FDCWD, t.TempDir()); err != nil {
		t.Skipf("fanotify_mark: %v", err)
	}
	child := exec.Command("sleep", "1000")
	child.ExtraFiles = []*os.File{os.NewFile(uintptr(dup(t, fd)), "group")}
	child.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWUSER, Pdeathsig: syscall.SIGKILL,
		UidMappings: []syscall.SysProcIDMap{{HostID: 0, Size: 1}}, GidMappings: []syscall.SysProcIDMap{{HostID: 0, Size: 1}},
	}
	if err := child.Start(); err != nil {
		t.Skipf("a user namespace: %v", err)
	}
	defer func() {
		_ = child.Process.Kill()
		_ = child.Wait()
	}()
	task := &evidence.Task{PID: child.Process.Pid, TID: child.Process.Pid}
	if saw, err := newProber(t).Ask(t.Context(), Scanner, "/proc", task, ""); err != nil || saw.Scans || len(saw.Errors) != 1 {
		t.Errorf("%+v, %v", saw, err)
	}
}

func dup(t *testing.T, fd int) int {
	t.Helper()
	n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// No helper is started while a program that scans files does not answer about the helper's own: that would stop this process.
func TestProberBehindScanner(t *testing.T) {
	fd, err := unix.FanotifyInit(unix.FAN_CLASS_CONTENT|unix.FAN_CLOEXEC, unix.O_RDONLY)
	if err != nil {
		t.Skipf("fanotify_init: %v", err)
	}
	answer := sync.OnceFunc(func() { _ = unix.Close(fd) })
	defer answer()
	b, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	program := t.TempDir() + "/program"
	if err := os.WriteFile(program, b, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.FanotifyMark(fd, unix.FAN_MARK_ADD, unix.FAN_OPEN_PERM, unix.AT_FDCWD, program); err != nil {
		t.Skipf("fanotify_mark: %v", err)
	}
	p := newProber(t)
	p.Argv[0] = program
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for range 2 {
		if _, err := p.ask(ctx, ownTask()); !errors.Is(err, errHeld) {
			answer()
			t.Fatal(err)
		}
	}
	runtime.GC() // which waits for all threads that do not say that they are in a system call
	answer()
	kerneltest.Eventually(t, "a helper", func() bool {
		_, err := p.ask(t.Context(), ownTask())
		return err == nil
	})
}
