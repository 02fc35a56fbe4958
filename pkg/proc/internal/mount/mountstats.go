package mount

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kernfile"
)

// Bounds of what is read of a mountstats file, in bytes, and of one line. An
// NFS mount takes some 4 KiB.
const (
	maxMountstats     = 8 << 20
	maxMountstatsLine = 64 << 10
)

// An nfsStats is what mountstats says of one NFS mount (nfs_show_stats,
// xs_tcp_print_stats and rpc_clnt_show_stats of the kernel), since it was
// mounted.
type nfsStats struct {
	point  string
	server string // as it was named when it was mounted
	// transports are the connections to the server. Mounts of one server share
	// them, and then show the same of them.
	transports []nfsTransport
	// requests and transmissions are of the operations of this mount that are
	// over. Mounts of one export share them.
	requests, transmissions int64
}

// An nfsTransport counts the requests sent on a connection, the answers to
// them, and the answers that nobody waited for any more.
type nfsTransport struct {
	// name is the protocol with what seldom changes: the port and how often
	// the client has connected.
	name                     string
	sends, receives, badXIDs int64
}

// readMountstats reads the NFS mounts that a process sees. The file has never
// been seen to block, also while the server is gone.
func readMountstats(dir string) ([]nfsStats, error) {
	f, err := kernfile.Stream(dir, kernfile.Mountstats)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return parseMountstats(f)
}

// parseMountstats parses a mountstats file. A mount begins with the line
//
//	device 10.0.0.9:/export mounted on /mnt with fstype nfs4 statvers=1.1
//
// and has, if it is one of NFS, lines of keys and, at its end, one for each kind
// of operation. What is not understood is passed over.
func parseMountstats(r io.Reader) ([]nfsStats, error) {
	limited := &io.LimitedReader{R: r, N: maxMountstats}
	lines := bufio.NewScanner(limited)
	lines.Buffer(make([]byte, 0, 4096), maxMountstatsLine)
	var out []nfsStats
	var now *nfsStats // nil in a mount that is none of NFS
	operations := false
	for lines.Scan() {
		line := lines.Bytes()
		if bytes.HasPrefix(line, []byte("device ")) || bytes.HasPrefix(line, []byte("no device ")) {
			now, operations = nil, false
			if server, point, ok := nfsDevice(line); ok {
				out = append(out, nfsStats{server: server, point: point})
				now = &out[len(out)-1]
			}
			continue
		}
		key, v, ok := bytes.Cut(bytes.TrimSpace(line), []byte(":"))
		switch {
		case now == nil:
		case !ok:
			operations = operations || string(key) == "per-op statistics"
		case operations:
			// Requests and transmissions come first.
			if n := numbers(bytes.Fields(v)); len(n) >= 2 {
				now.requests += n[0]
				now.transmissions += n[1]
			}
		case string(key) == "xprt":
			if t, ok := parseTransport(bytes.Fields(v)); ok {
				now.transports = append(now.transports, t)
			}
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if limited.N <= 0 {
		return nil, fmt.Errorf("mountstats is larger than %d bytes", maxMountstats)
	}
	return out, nil
}

// nfsDevice gives the server and the mount point in the first line of an NFS
// mount.
func nfsDevice(line []byte) (server, point string, ok bool) {
	i, j := bytes.Index(line, []byte(" mounted on ")), bytes.LastIndex(line, []byte(" with fstype "))
	if i < 0 || j < i {
		return "", "", false
	}
	fstype, _, _ := bytes.Cut(line[j+len(" with fstype "):], []byte(" "))
	if string(fstype) != "nfs" && string(fstype) != "nfs4" {
		return "", "", false
	}
	_, source, _ := bytes.Cut(line[:i], []byte(" "))
	i += len(" mounted on ")
	if i > j {
		return "", "", false
	}
	return hostOfExport(string(appendUnescaped(nil, source))), string(appendUnescaped(nil, line[i:j])), true
}

// parseTransport parses what comes after xprt:, the protocol and its numbers.
// The three that count stand at another place for each protocol.
func parseTransport(f [][]byte) (nfsTransport, bool) {
	if len(f) == 0 {
		return nfsTransport{}, false
	}
	at := 0
	switch string(f[0]) {
	case "tcp", "rdma": // port, binds, connects, time of connecting, idle time
		at = 5
	case "local":
		at = 4
	case "udp": // port, binds
		at = 2
	default:
		return nfsTransport{}, false
	}
	n := numbers(f[1:])
	if len(n) < at+3 {
		return nfsTransport{}, false
	}
	name := string(f[0])
	for _, v := range n[:min(at, 3)] {
		name += " " + strconv.FormatInt(v, 10)
	}
	return nfsTransport{name: kernfile.Printable(name), sends: n[at], receives: n[at+1], badXIDs: n[at+2]}, true
}

// numbers gives the numbers at the beginning of a line.
func numbers(f [][]byte) []int64 {
	out := make([]int64, 0, len(f))
	for _, s := range f {
		n, err := strconv.ParseInt(string(s), 10, 64)
		if err != nil {
			break
		}
		out = append(out, n)
	}
	return out
}

// unanswered is the number of requests that wait for an answer on the
// connections of a mount; not ok when it cannot be told. A request that was sent
// again because the connection was lost counts as sent twice and as answered
// once, for ever, so that what the finished operations of all mounts on the
// connections have repeated is taken off. What a mount has repeated that is not
// there any more cannot be: then the number is too large, as long as another
// mount of that server keeps the connection.
func (s *nfsStats) unanswered(repeated map[string]int64) (n int, ok bool) {
	if len(s.transports) == 0 {
		return 0, false
	}
	open := -repeated[s.connection()]
	for _, t := range s.transports {
		open += t.sends - t.receives - t.badXIDs
	}
	return int(max(open, 0)), true
}

// received is the number of answers that have come on the connections of a mount.
func (s *nfsStats) received() (n int64) {
	for _, t := range s.transports {
		n += t.receives + t.badXIDs
	}
	return n
}

// repeated returns how many requests were sent again, by the name of the connections.
func repeated(all []nfsStats) map[string]int64 {
	type operations struct {
		connection              string
		requests, transmissions int64
	}
	seen := make(map[operations]bool)
	out := make(map[string]int64)
	for i := range all {
		s := &all[i]
		if o := (operations{s.connection(), s.requests, s.transmissions}); !seen[o] {
			seen[o] = true
			out[o.connection] += max(o.transmissions-o.requests, 0)
		}
	}
	return out
}

// connection names the connections of a mount.
func (s *nfsStats) connection() string {
	names := []string{s.server}
	for _, t := range s.transports {
		names = append(names, t.name)
	}
	return strings.Join(names, ",")
}
