package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// An agent and its captures talk over an address that every process of their network namespace
// has, which is the node's where somebody runs the agent with hostNetwork. So each of them makes
// sure whom it talks to.

// trusted returns an error unless the other end of a connection is of this process's user and PID
// namespace: a container has one of its own, the agent and what is executed beside it have the node's.
func trusted(c net.Conn) error {
	s, ok := c.(*net.UnixConn)
	if !ok {
		return errors.New("not a Unix socket")
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return err
	}
	var peer *unix.Ucred
	if ctlErr := raw.Control(func(fd uintptr) { peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err == nil {
		err = ctlErr
	}
	if err != nil {
		return fmt.Errorf("SO_PEERCRED: %w", err)
	}
	if int(peer.Uid) != os.Geteuid() {
		return fmt.Errorf("the other end is of user %d", peer.Uid)
	}
	own, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return err
	}
	theirs, err := os.Readlink("/proc/" + strconv.Itoa(int(peer.Pid)) + "/ns/pid")
	if err != nil {
		return err
	}
	if own != theirs {
		return errors.New("the other end is in another PID namespace")
	}
	return nil
}

// A trustedListener accepts trusted connections only.
type trustedListener struct{ net.Listener }

func (l trustedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if trusted(c) == nil {
			return c, nil
		}
		_ = c.Close()
	}
}

// dialTrusted connects to a trusted listener.
func dialTrusted(ctx context.Context, socket string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	if err := trusted(c); err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}
