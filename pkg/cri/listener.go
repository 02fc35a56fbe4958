package cri

import (
	"net"
	"syscall"
	"time"
)

// A listener is who listens on the socket.
type listener struct {
	pid  int       // 0 when not known
	seen time.Time // with a reading of the monotonic clock
}

// Listener returns the PID of the process that listened on the socket when it was last
// connected to, and when that was. 0 means that it is not known: there was no connection
// yet, or the process is in a PID namespace that is not visible here.
//
// The process may have ended since then. It is the one that has called listen(2)
// (SO_PEERCRED, unix(7)), as containerd does itself: of a socket that somebody else has
// made, such as a proxy, it is that one. Nothing is asked for, so that one that hangs
// is known as well.
func (r *Runtime) Listener() (pid int, seen time.Time) {
	if l := r.listener.Load(); l != nil {
		return l.pid, l.seen
	}
	return 0, time.Time{}
}

// listenerOf asks the kernel who listens at the other end of a connection.
func listenerOf(conn net.Conn) *listener {
	l := &listener{seen: time.Now()}
	socket, ok := conn.(*net.UnixConn)
	if !ok {
		return l
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return l
	}
	_ = raw.Control(func(fd uintptr) { // an error is that of a connection that is closed
		if peer, err := syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED); err == nil {
			l.pid = int(peer.Pid)
		}
	})
	return l
}
