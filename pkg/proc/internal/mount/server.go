package mount

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

// AskServer fills in whether the server of an NFS or SMB mount answers, from what
// the client counts and from the list of connections; nothing is sent. What
// cannot be told stays unknown. The client's files are those of the host's first
// process: the socket belongs to the network namespace of whoever mounted, which
// for the kubelet is the host's.
func (v *View) AskServer(e *evidence.Mount) {
	switch e.Type {
	case "nfs", "nfs4", "cifs", "smb3":
	default:
		return
	}
	host, err := v.Host()
	if err != nil {
		return
	}
	var line *Line
	points := make(map[string]bool)
	for i := range host.Lines {
		if l := &host.Lines[i]; l.Device == e.Device {
			line, points[l.Point] = l, true
		}
	}
	if line == nil {
		return
	}
	stats := v.mountstats()
	for i := range stats {
		if points[stats[i].point] {
			if n, ok := unanswered(stats, &stats[i]); ok {
				e.Unanswered = &n
			}
			break
		}
	}
	c := v.connectionOf(line)
	if c.state == tcpNone && e.Plugin == "kubernetes.io~csi" {
		return // a driver may have mounted from a network of its own
	}
	e.Connection, e.Resent = c.state, c.resent
}

// connectionOf gives a mount's connection to its server; its state is "" when it
// cannot be told.
func (v *View) connectionOf(l *Line) connection {
	to, fixed, ok := l.serverAddress()
	if !ok {
		return connection{}
	}
	c := v.connection(to)
	if c.state == tcpNone && !fixed {
		return connection{}
	}
	return c
}

// serverAddress gives the address of an NFS or SMB server that is spoken to by
// TCP. The port is not fixed where the client asks the server's rpcbind for it,
// as NFS did before version 4, and where the options do not show it, as with SMB;
// it then is the usual one nearly always.
func (m *Line) serverAddress() (to netip.AddrPort, fixed, ok bool) {
	port := uint64(smbPort)
	if m.Type == "nfs" || m.Type == "nfs4" {
		if p := option(m.Super, "proto"); p != "tcp" && p != "tcp6" {
			return netip.AddrPort{}, false, false
		}
		port, fixed = nfsPort, strings.HasPrefix(option(m.Super, "vers"), "4")
	}
	addr, err := netip.ParseAddr(option(m.Super, "addr"))
	if err != nil {
		return netip.AddrPort{}, false, false
	}
	if p := option(m.Super, "port"); p != "" && p != "0" {
		if port, err = strconv.ParseUint(p, 10, 16); err != nil {
			return netip.AddrPort{}, false, false
		}
		fixed = true
	}
	return netip.AddrPortFrom(addr.WithZone("").Unmap(), uint16(port)), fixed, true
}
