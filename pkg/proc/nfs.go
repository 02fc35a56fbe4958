package proc

import (
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// nfsPort is the server's port unless the mount's options name another.
const nfsPort = 2049

// askNFS fills in whether the server of an NFS mount answers, from what the
// client counts and from the list of connections; nothing is sent. What cannot
// be told stays unknown. The client's files are those of the host's first
// process: the socket belongs to the network namespace of whoever mounted, which
// for the kubelet is the host's.
func (t *tables) askNFS(e *evidence.Mount) {
	if e.Type != "nfs" && e.Type != "nfs4" {
		return
	}
	host, err := t.host()
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
	stats := t.mountstats()
	for i := range stats {
		if points[stats[i].point] {
			if n, ok := unanswered(stats, &stats[i]); ok {
				e.Unanswered = &n
			}
			break
		}
	}
	e.Connection = t.connection(line)
	if e.Connection == tcpNone && e.Plugin == "kubernetes.io~csi" {
		e.Connection = "" // a driver may have mounted from a network of its own
	}
}

// mountstats gives what the host's mountstats says, which is read once.
func (t *tables) mountstats() []nfsStats {
	if !t.nfsRead {
		t.nfsRead = true
		t.nfsStats, _ = readMountstats(filepath.Join(t.h.Proc, "1", "mountstats")) // unknown then
	}
	return t.nfsStats
}

// connection gives the state of a mount's connection to its server, "" when it
// cannot be told.
func (t *tables) connection(l *mountLine) string {
	to, fixed, ok := l.nfsServer()
	if !ok {
		return ""
	}
	state, known := t.connections[to]
	if !known {
		state, _ = readConnection(filepath.Join(t.h.Proc, "1", "net"), to) // unknown then
		if t.connections == nil {
			t.connections = make(map[netip.AddrPort]string)
		}
		t.connections[to] = state
	}
	if state == tcpNone && !fixed {
		return ""
	}
	return state
}

// nfsServer gives the address of an NFS server that is spoken to by TCP. The
// port is not fixed where the client asks the server's rpcbind for it, as before
// version 4; it then is the usual one nearly always.
func (m *mountLine) nfsServer() (to netip.AddrPort, fixed, ok bool) {
	if p := option(m.super, "proto"); p != "tcp" && p != "tcp6" {
		return netip.AddrPort{}, false, false
	}
	addr, err := netip.ParseAddr(option(m.super, "addr"))
	if err != nil {
		return netip.AddrPort{}, false, false
	}
	port := uint64(nfsPort)
	fixed = strings.HasPrefix(option(m.super, "vers"), "4")
	if p := option(m.super, "port"); p != "" && p != "0" {
		if port, err = strconv.ParseUint(p, 10, 16); err != nil {
			return netip.AddrPort{}, false, false
		}
		fixed = true
	}
	return netip.AddrPortFrom(addr.WithZone("").Unmap(), uint16(port)), fixed, true
}
