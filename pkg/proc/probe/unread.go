package probe

import (
	"bytes"
	"context"
	"path"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// An Unread is a connection to a device plugin over which a request has come that it has not read.
type Unread struct {
	// Socket is the name of the plugin's socket in the kubelet's directory of such sockets.
	Socket string `json:"socket,omitempty"`
	Bytes  int    `json:"bytes,omitempty"`
}

// Unread asks what a process has not read of what a client, by its PID, has sent it as a device plugin.
func (p *Prober) Unread(ctx context.Context, proc string, t *evidence.Task, owner string, client int) (Seen, error) {
	key := hungKey{what: unread, pid: t.PID, tid: t.TID, state: t.State, switches: t.Switches}
	return p.remember(ctx, request{What: unread, Proc: proc, PID: t.PID, TID: t.TID, Owner: owner, Client: client}, key)
}

// pluginSockets is the directory of the sockets of device plugins, wherever the kubelet's own is (DevicePluginPath,
// k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1).
const pluginSockets = "/var/lib/kubelet/device-plugins"

// unread reads how much is unread in the connections that the process has accepted as a device plugin, where a request
// is: the largest number is told. No file shows that, so these connections are asked, each for as long as that takes over a
// number of the helper's own (pidfd_getfd(2)). No other socket is: whoever gets a number of one puts it into his class of
// network traffic (__receive_sock, net/core/scm.c), which means nothing to one that is local.
//
// A connection belongs to the network namespace of who made it, wherever it was accepted (unix_stream_connect,
// net/unix/af_unix.c): the client's list has it, and that of a plugin in a pod with a network of its own does not.
func (p *probe) unread() {
	client, err := openDir(filepath.Join(p.Proc, strconv.Itoa(p.Client), "task", strconv.Itoa(p.Client)))
	if err != nil {
		return // it has ended
	}
	defer client.close()
	if !p.announce("net/unix") {
		return
	}
	list, err := client.file("net/unix")
	if err != nil {
		p.note("net/unix", err)
		return
	}
	accepted := acceptedByPlugins(list)
	if len(accepted) == 0 || !p.announce("pidfd") {
		return
	}
	process, err := unix.PidfdOpen(p.PID, 0)
	if err != nil {
		p.note("pidfd", err)
		return
	}
	defer unix.Close(process)
	p.links("socket", func(fd int, inode uint64) {
		if !accepted[inode] || !p.announce("fd/"+strconv.Itoa(fd)) {
			return
		}
		socket, err := unix.PidfdGetfd(process, fd, 0)
		if err != nil {
			p.note("socket", err)
			return
		}
		defer unix.Close(socket)
		if name := pluginOf(socket, p.Client); name != "" {
			if n, err := unix.IoctlGetInt(socket, unix.SIOCINQ); err == nil && n > p.seen.Unread.Bytes && requested(socket) {
				p.seen.Unread = Unread{Socket: name, Bytes: n}
			}
		}
	})
}

// requested reports whether a request is among what is unread in a connection. A look takes nothing away
// (MSG_PEEK), unless the plugin has asked for that to count (SO_PEEK_OFF, socket(7)).
func requested(socket int) bool {
	if from, err := unix.GetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_PEEK_OFF); err != nil || from >= 0 {
		return false
	}
	b := make([]byte, 4<<10)
	n, _, err := unix.Recvfrom(socket, b, unix.MSG_PEEK|unix.MSG_DONTWAIT)
	return err == nil && beginsRequest(b[:n])
}

// beginsRequest reports whether a request begins in what a client has sent over HTTP/2: a frame HEADERS (RFC 9113, sections
// 4.1 and 6.2). The others a client sends by itself: of a plugin's every answer it updates the window, pings, and
// acknowledges pings. A connection of which not even the first bytes have been read (PRI * HTTP/2.0) is so new that the
// kubelet has asked over it only what it asks when a plugin registers.
func beginsRequest(b []byte) bool {
	const header, headers, continuation = 9, 1, 9
	for len(b) >= header && b[3] <= continuation {
		if b[3] == headers {
			return true
		}
		next := header + (int(b[0])<<16 | int(b[1])<<8 | int(b[2]))
		if next > len(b) {
			return false
		}
		b = b[next:]
	}
	return false
}

// listens is the flag of a socket in net/unix that connections are made to (__SO_ACCEPTCON, include/linux/net.h).
const listens = "00010000"

// acceptedByPlugins returns the inodes of the connections in a list of local sockets (net/unix, unix_seq_show in
// net/unix/af_unix.c) that were accepted on a socket of a device plugin.
func acceptedByPlugins(list []byte) map[uint64]bool {
	out := make(map[uint64]bool)
	for line := range bytes.Lines(list) {
		// Num RefCount Protocol Flags Type St Inode Path
		f := bytes.Fields(line)
		if len(f) < 8 || string(f[3]) == listens || path.Dir(string(f[7])) != pluginSockets {
			continue
		}
		if inode, err := strconv.ParseUint(string(f[6]), 10, 64); err == nil {
			out[inode] = true
		}
	}
	return out
}

// pluginOf returns the name of the device plugin's socket that a connection of the client was made to; "" when it is
// none. A connection that was accepted has the name of the socket on which it was (unix_stream_connect, net/unix/
// af_unix.c), and the kernel knows who had called connect(2).
func pluginOf(socket, client int) string {
	own, err := unix.Getsockname(socket)
	if err != nil {
		return ""
	}
	address, ok := own.(*unix.SockaddrUnix)
	if !ok || path.Dir(address.Name) != pluginSockets {
		return ""
	}
	if listens, err := unix.GetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_ACCEPTCONN); err != nil || listens != 0 {
		return ""
	}
	peer, err := unix.GetsockoptUcred(socket, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil || int(peer.Pid) != client || client <= 0 {
		return ""
	}
	return path.Base(address.Name)
}
