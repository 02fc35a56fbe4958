package mount

import (
	"net/netip"
	"path/filepath"
	"slices"
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
	if !remote(e.Type) {
		return
	}
	host, err := v.Host()
	if err != nil {
		return
	}
	v.servers.once.Do(func() { v.findServers(host) })
	s, ok := v.servers.of[e.Device]
	if !ok {
		return
	}
	if s.stats != nil {
		if n, ok := s.stats.unanswered(v.servers.repeated); ok {
			e.Unanswered = &n
			received := s.stats.received()
			e.Received = &received
		}
	}
	c := v.connectionOf(s.line)
	if c.state == tcpNone && e.Plugin == "kubernetes.io~csi" {
		return // a driver may have mounted from a network of its own
	}
	e.Connection, e.Resent = c.state, c.resent
}

// remote reports whether a type of file system is one of which AskServer asks.
func remote(kind string) bool {
	switch kind {
	case "nfs", "nfs4", "cifs", "smb3":
		return true
	}
	return false
}

// A fileServer is what the host shows of a file system of a server.
type fileServer struct {
	line *Line // the last mount of it
	// stats are those of its mounts that come first in mountstats; nil when there are none.
	stats *nfsStats
}

// findServers looks for the file systems of servers that the host has mounted. They may
// have thousands of mounts, of each of which AskServer asks.
func (v *View) findServers(host *Table) {
	all, _ := readMountstats(filepath.Join(v.Proc, "1")) // unknown then
	v.servers.repeated = repeated(all)
	at := make(map[string]int, len(all))
	for i := range slices.Backward(all) {
		at[all[i].point] = i
	}
	first := make(map[string]int) // by device
	v.servers.of = make(map[string]fileServer)
	for i := range host.Lines {
		l := &host.Lines[i]
		if !remote(l.Type) {
			continue
		}
		s := v.servers.of[l.Device]
		s.line = l
		if i, ok := at[l.Point]; ok && (s.stats == nil || i < first[l.Device]) {
			s.stats, first[l.Device] = &all[i], i
		}
		v.servers.of[l.Device] = s
	}
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
