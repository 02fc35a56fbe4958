package main

import (
	"bufio"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// The test binary is also the other process of TestOnlyTrustedPeers: it listens on the second address, prints what it is told over the first one, and
// waits for the end of its input.
func TestMain(m *testing.M) {
	if len(os.Args) != 4 || os.Args[1] != "peer" {
		os.Exit(m.Run())
	}
	_, err := net.Listen("unix", os.Args[3])
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	c, err := net.Dial("unix", os.Args[2])
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	told, err := io.ReadAll(c)
	fmt.Printf("%s, %v\n", told, err)
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// An agent and its captures talk to nobody of another user or another PID namespace: neither to who comes, nor to who has the address.
func TestOnlyTrustedPeers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes a PID namespace and a process of another user")
	}
	const greeting = "a baseline"
	for who, tc := range map[string]struct {
		attributes syscall.SysProcAttr
		trusted    bool
	}{
		"of the same":              {syscall.SysProcAttr{}, true},
		"of another user":          {syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}, false},
		"of another PID namespace": {syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}, false},
	} {
		t.Run(who, func(t *testing.T) {
			ours, theirs := "@nodeagent-test-"+rand.Text(), "@nodeagent-test-"+rand.Text()
			listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", ours)
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			go func() {
				for {
					c, err := trustedListener{listener}.Accept()
					if err != nil {
						return
					}
					_, _ = io.WriteString(c, greeting)
					_ = c.Close()
				}
			}()
			cmd := exec.Command("/proc/self/exe", "peer", ours, theirs)
			cmd.SysProcAttr = &tc.attributes
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
			defer func() { _, _ = in.Close(), cmd.Wait() }()
			want := ", <nil>\n"
			if tc.trusted {
				want = greeting + want
			}
			if said, err := bufio.NewReader(out).ReadString('\n'); err != nil || said != want {
				t.Errorf("the listener told it %q, %v", said, err)
			}
			c, err := dialTrusted(t.Context(), theirs)
			if (err == nil) != tc.trusted {
				t.Errorf("its address is used: %v; error %v", err == nil, err)
			}
			if c != nil {
				_ = c.Close()
			}
		})
	}
}
