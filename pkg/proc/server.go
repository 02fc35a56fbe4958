package proc

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// The servers' ports unless the mount's options name another.
const (
	nfsPort = 2049
	smbPort = 445
)

// askServer fills in whether the server of an NFS or SMB mount answers, from what
// the client counts and from the list of connections; nothing is sent. What
// cannot be told stays unknown. The client's files are those of the host's first
// process: the socket belongs to the network namespace of whoever mounted, which
// for the kubelet is the host's.
func (r *Round) askServer(e *evidence.Mount) {
	switch e.Type {
	case "nfs", "nfs4", "cifs", "smb3":
	default:
		return
	}
	host, err := r.mountTable()
	if err != nil {
		return
	}
	var line *mountLine
	points := make(map[string]bool)
	for i := range host.lines {
		if l := &host.lines[i]; l.device == e.Device {
			line, points[l.point] = l, true
		}
	}
	if line == nil {
		return
	}
	stats := r.mountstats()
	for i := range stats {
		if points[stats[i].point] {
			if n, ok := unanswered(stats, &stats[i]); ok {
				e.Unanswered = &n
			}
			break
		}
	}
	c := r.connectionOf(line)
	if c.state == tcpNone && e.Plugin == "kubernetes.io~csi" {
		return // a driver may have mounted from a network of its own
	}
	e.Connection, e.Resent = c.state, c.resent
}

// connectionOf gives a mount's connection to its server; its state is "" when it
// cannot be told.
func (r *Round) connectionOf(l *mountLine) connection {
	to, fixed, ok := l.serverAddress()
	if !ok {
		return connection{}
	}
	c := r.connection(to)
	if c.state == tcpNone && !fixed {
		return connection{}
	}
	return c
}

// serverAddress gives the address of an NFS or SMB server that is spoken to by
// TCP. The port is not fixed where the client asks the server's rpcbind for it,
// as NFS did before version 4, and where the options do not show it, as with SMB;
// it then is the usual one nearly always.
func (m *mountLine) serverAddress() (to netip.AddrPort, fixed, ok bool) {
	port := uint64(smbPort)
	if m.fstype == "nfs" || m.fstype == "nfs4" {
		if p := option(m.super, "proto"); p != "tcp" && p != "tcp6" {
			return netip.AddrPort{}, false, false
		}
		port, fixed = nfsPort, strings.HasPrefix(option(m.super, "vers"), "4")
	}
	addr, err := netip.ParseAddr(option(m.super, "addr"))
	if err != nil {
		return netip.AddrPort{}, false, false
	}
	if p := option(m.super, "port"); p != "" && p != "0" {
		if port, err = strconv.ParseUint(p, 10, 16); err != nil {
			return netip.AddrPort{}, false, false
		}
		fixed = true
	}
	return netip.AddrPortFrom(addr.WithZone("").Unmap(), uint16(port)), fixed, true
}
