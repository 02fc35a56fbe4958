package mount

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strconv"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kernfile"
)

// maxNetTCP bounds what is read of a list of connections, in bytes: 50,000 lines.
const maxNetTCP = 8 << 20

// States of a TCP connection, as evidence names them; all others are on the way
// to its end.
const (
	tcpEstablished = evidence.Established
	tcpSynSent     = "SYN_SENT"
	tcpNone        = evidence.Unconnected
)

var errManyConnections = errors.New("too many connections")

// A connection is the best one from a network namespace to an address.
type connection struct {
	// state is ESTABLISHED, SYN_SENT while it is being made, or none.
	state string
	// resent is how often what was sent has been sent again without being
	// acknowledged.
	resent int
}

// readConnection looks for a connection to an address. Dir is a /proc/PID.
func readConnection(dir string, to netip.AddrPort) (connection, error) {
	file := kernfile.NetTCP
	if to.Addr().Is6() {
		file = kernfile.NetTCP6
	}
	f, err := kernfile.Stream(dir, file)
	if err != nil {
		return connection{}, err
	}
	defer f.Close()
	return parseConnection(f, to)
}

// parseConnection parses a list of connections (Documentation/networking/
// proc_net_tcp.rst; get_tcp4_sock, net/ipv4/tcp_ipv4.c). A line begins with
//
//	sl  local_address rem_address   st tx_queue:rx_queue tr:tm->when       retrnsmt
//	 0: 0F02000A:02C4 0F02000A:0801 01 000003D4:00000000 01:0000038F 00000006
func parseConnection(r io.Reader, to netip.AddrPort) (connection, error) {
	best := connection{state: tcpNone}
	err := eachConnection(r, func(f [][]byte) {
		if remote, ok := parseTCPAddress(f[2]); !ok || remote != to {
			return
		}
		switch string(f[3]) {
		case stateEstablished:
			resent := 0
			if len(f) > 6 {
				n, _ := strconv.ParseUint(string(f[6]), 16, 16) // 0 when unknown
				resent = int(n)
			}
			if best.state != tcpEstablished || resent < best.resent {
				best = connection{tcpEstablished, resent}
			}
		case stateSynSent:
			if best.state == tcpNone {
				best.state = tcpSynSent
			}
		}
	})
	if err != nil {
		return connection{}, err
	}
	return best, nil
}

// States of a connection as the list has them (include/net/tcp_states.h).
const (
	stateEstablished = "01"
	stateSynSent     = "02"
	stateFinWait1    = "04"
	stateCloseWait   = "08"
	stateLastAck     = "09"
	stateListen      = "0A"
	stateClosing     = "0B"
)

// eachConnection calls do with the fields of each line of a list of connections, of which
// there are four or more.
func eachConnection(r io.Reader, do func(fields [][]byte)) error {
	limited := &io.LimitedReader{R: r, N: maxNetTCP}
	lines := bufio.NewScanner(limited)
	for lines.Scan() {
		if f := bytes.Fields(lines.Bytes()); len(f) >= 4 {
			do(f)
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	if limited.N <= 0 {
		return fmt.Errorf("list of connections of %d bytes: %w", maxNetTCP, errManyConnections)
	}
	return nil
}

// resentForSilence is how often the same has been sent again, without an acknowledgement, when nothing has come back for
// six seconds at the least (TCP_RTO_MIN doubled four times, include/net/tcp.h).
const resentForSilence = 5

// CountConnections returns the connections in a process's network namespace that a process has open and that can
// send, and those of them that get no answer. Dir is a /proc/PID.
func CountConnections(dir string) (evidence.Connections, error) {
	var out evidence.Connections
	for _, file := range []kernfile.File{kernfile.NetTCP, kernfile.NetTCP6} {
		f, err := kernfile.Stream(dir, file)
		if kernfile.Gone(err) && file == kernfile.NetTCP6 {
			continue // a kernel without IPv6
		}
		if err != nil {
			return evidence.Connections{}, err
		}
		err = countConnections(f, &out)
		f.Close()
		if err != nil {
			return evidence.Connections{}, err
		}
	}
	return out, nil
}

// countConnections adds those of a list. What waits to be acknowledged is behind tx_queue, and tr is 1 while the timer
// runs by which it is sent again; with 4 the other side has no room, and says so (get_tcp4_sock, net/ipv4/tcp_ipv4.c).
// What nobody has open any more has no inode.
func countConnections(r io.Reader, to *evidence.Connections) error {
	return eachConnection(r, func(f [][]byte) {
		const queues, timer, resent, inode = 4, 5, 6, 9
		if len(f) <= inode || string(f[inode]) == "0" || internal(f[1], f[2]) {
			return
		}
		switch string(f[3]) {
		case stateEstablished, stateFinWait1, stateCloseWait, stateLastAck, stateClosing:
		default:
			return
		}
		to.All++
		waits, _, _ := bytes.Cut(f[queues], []byte(":"))
		n, err := strconv.ParseUint(string(f[resent]), 16, 32)
		if err == nil && n >= resentForSilence && bytes.HasPrefix(f[timer], []byte("01:")) && len(bytes.Trim(waits, "0")) > 0 {
			to.Unanswered++
		}
	})
}

// internal reports whether a connection is one of the namespace with itself: to a sidecar, or to 127.0.0.1. Nothing that is
// done to the pod's network shows there. A sidecar that is redirected to has the pod's address as the other side.
func internal(local, remote []byte) bool {
	from, ok := parseTCPAddress(local)
	to, known := parseTCPAddress(remote)
	return ok && known && (from.Addr().Unmap().IsLoopback() || to.Addr().Unmap().IsLoopback() || from.Addr() == to.Addr())
}

// maxUnanswered bounds the connections that ReadUnanswered returns.
const maxUnanswered = 4096

// An Unanswered is a TCP connection over which nothing has been received, since it was made.
type Unanswered struct {
	To netip.AddrPort
	// State is evidence.Established, or SYN_SENT while it is being made.
	State string
	Inode uint64 // of the socket

	from uint16 // the port on this side
}

// ReadUnanswered returns the connections in a process's network namespace over which nothing has
// been received. Dir is a /proc/PID. Connections from a port on which somebody listens are left
// out: those were made to it, and whoever makes one has the choice of the port that it comes from.
func ReadUnanswered(dir string) ([]Unanswered, error) {
	var out []Unanswered
	listens := make(map[uint16]bool)
	for _, file := range []kernfile.File{kernfile.NetTCP, kernfile.NetTCP6} {
		f, err := kernfile.Stream(dir, file)
		if kernfile.Gone(err) && file == kernfile.NetTCP6 {
			continue // a kernel without IPv6
		}
		if err != nil {
			return nil, err
		}
		found, err := parseUnanswered(f, listens)
		f.Close()
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
	}
	out = slices.DeleteFunc(out, func(u Unanswered) bool { return listens[u.from] })
	if len(out) > maxUnanswered {
		return nil, fmt.Errorf("more than %d connections without an answer: %w", maxUnanswered, errManyConnections)
	}
	return out, nil
}

// parseUnanswered parses the same list, and adds the ports on which somebody listens. Of the others a line goes on with
//
//	uid  timeout inode ref pointer          rto ato quick cwnd ssthresh
//	  0        0 50320 1   000000005c72287d 20  4   30    11   -1
//
// ato is the timeout of delayed acknowledgements, which is 0 until the first data has been
// received, and never again (tcp_event_data_recv, net/ipv4/tcp_input.c). A connection that is
// kept for the next request has had an answer to the one before.
func parseUnanswered(r io.Reader, listens map[uint16]bool) ([]Unanswered, error) {
	var out []Unanswered
	err := eachConnection(r, func(f [][]byte) {
		const inode, ato = 9, 13
		u := Unanswered{State: tcpEstablished}
		switch {
		case string(f[3]) == stateListen:
			if local, ok := parseTCPAddress(f[1]); ok {
				listens[local.Port()] = true
			}
			return
		case len(f) <= ato || string(f[ato]) != "0" || len(out) > maxUnanswered:
			return
		case string(f[3]) == stateSynSent:
			u.State = tcpSynSent
		case string(f[3]) != stateEstablished:
			return
		}
		local, known := parseTCPAddress(f[1])
		remote, ok := parseTCPAddress(f[2])
		n, err := strconv.ParseUint(string(f[inode]), 10, 64)
		if !known || !ok || err != nil || n == 0 {
			return
		}
		u.To, u.Inode, u.from = netip.AddrPortFrom(remote.Addr().Unmap(), remote.Port()), n, local.Port()
		out = append(out, u)
	})
	return out, err
}

// parseTCPAddress parses an address and a port in hexadecimal. The address is
// one number, or four of IPv6, in the byte order of the machine.
func parseTCPAddress(b []byte) (netip.AddrPort, bool) {
	host, port, ok := bytes.Cut(b, []byte(":"))
	if !ok || len(host) != 8 && len(host) != 32 {
		return netip.AddrPort{}, false
	}
	n, err := strconv.ParseUint(string(port), 16, 16)
	if err != nil {
		return netip.AddrPort{}, false
	}
	raw := make([]byte, len(host)/2)
	if _, err := hex.Decode(raw, host); err != nil {
		return netip.AddrPort{}, false
	}
	for i := 0; i < len(raw); i += 4 {
		binary.NativeEndian.PutUint32(raw[i:], binary.BigEndian.Uint32(raw[i:]))
	}
	addr, _ := netip.AddrFromSlice(raw)
	return netip.AddrPortFrom(addr, uint16(n)), true
}
