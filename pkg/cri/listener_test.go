package cri

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The test binary is also the other processes of the tests: one that listens on a socket and accepts nothing until its
// input ends, and one that connects to it and prints who listens there.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 {
		switch socket := os.Args[2]; os.Args[1] {
		case "listen":
			if _, err := net.Listen("unix", socket); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			fmt.Println("ready")
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(0)
		case "connect":
			r, err := Open(socket)
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			r.Health(context.Background())
			pid, seen := r.Listener()
			fmt.Println(pid, !seen.IsZero())
			os.Exit(0)
		}
	}
	os.Exit(m.Run())
}

// listening starts a process that listens on the socket.
func listening(t *testing.T, socket string) (pid int, end func()) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", "listen", socket)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := false
	end = func() {
		if ended {
			return
		}
		ended = true
		_ = in.Close()
		_ = cmd.Wait()
	}
	t.Cleanup(end)
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid, end
}

func TestListener(t *testing.T) {
	socket := filepath.Join(shortDir(t), "s.sock")
	r, clock := open(t, socket, long)
	ask := func(deadline time.Duration, want int) {
		t.Helper()
		clock.move(time.Minute)
		r.health = deadline
		before := time.Now()
		health := r.Health(context.Background())
		pid, seen := r.Listener()
		if pid != want || pid != 0 && health.Error == "" && seen.Before(before) {
			t.Errorf("PID %d, seen %s after the question, want %d; %+v", pid, seen.Sub(before), want, health)
		}
	}
	ask(long, 0) // there is no socket
	stop := newServer().serveAt(t, socket, nil)
	ask(long, os.Getpid())
	stop()
	// Of one that has ended, and that nobody has taken the place of, the number stays.
	ask(long, os.Getpid())
	// Who accepts nothing listens all the same.
	first, end := listening(t, socket)
	ask(short, first)
	end()
	if err := os.Remove(socket); err != nil {
		t.Fatal(err)
	}
	second, _ := listening(t, socket)
	ask(short, second)
}

// A process in a PID namespace that is not visible has no number.
func TestListenerElsewhere(t *testing.T) {
	socket, _ := newServer().serve(t, nil)
	cmd := exec.Command("/proc/self/exe", "connect", socket)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWPID,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.Output()
	if err != nil {
		t.Skipf("no PID namespace can be made: %v", err)
	}
	number, seen, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	if pid, err := strconv.Atoi(number); err != nil || pid != 0 || seen != "true" {
		t.Errorf("%q, want no PID, and that somebody listens", out)
	}
}
