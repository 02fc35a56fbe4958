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
	tcpNone        = "none"
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
	limited := &io.LimitedReader{R: r, N: maxNetTCP}
	lines := bufio.NewScanner(limited)
	best := connection{state: tcpNone}
	for lines.Scan() {
		f := bytes.Fields(lines.Bytes())
		if len(f) < 4 {
			continue
		}
		if remote, ok := parseTCPAddress(f[2]); !ok || remote != to {
			continue
		}
		switch string(f[3]) { // include/net/tcp_states.h
		case "01":
			resent := 0
			if len(f) > 6 {
				n, _ := strconv.ParseUint(string(f[6]), 16, 16) // 0 when unknown
				resent = int(n)
			}
			if best.state != tcpEstablished || resent < best.resent {
				best = connection{tcpEstablished, resent}
			}
		case "02":
			if best.state == tcpNone {
				best.state = tcpSynSent
			}
		}
	}
	if err := lines.Err(); err != nil {
		return connection{}, err
	}
	if limited.N <= 0 {
		return connection{}, fmt.Errorf("list of connections of %d bytes: %w", maxNetTCP, errManyConnections)
	}
	return best, nil
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
