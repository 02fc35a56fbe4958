package mount

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kerneltest"
)

func TestParseMountstats(t *testing.T) {
	for _, tt := range []struct {
		file string
		want int
	}{
		// Three writers, and the server's port is blocked for 45 seconds.
		{"mountstats_outage", 4},
		// The same mount after another outage: four requests were sent twice.
		{"mountstats_healed", 0},
	} {
		all, err := parseMountstats(bytes.NewReader(kerneltest.File(t, tt.file)))
		if err != nil || len(all) != 1 {
			t.Fatalf("%s: %d mounts, %v", tt.file, len(all), err)
		}
		s := all[0]
		if s.point != "/mnt/n1" || s.server != "10.0.2.15" || len(s.transports) != 1 || s.requests == 0 {
			t.Errorf("%s: %+v", tt.file, s)
		}
		if n, ok := s.unanswered(repeated(all)); n != tt.want || !ok {
			t.Errorf("%s: %d unanswered, %v: %+v", tt.file, n, ok, s)
		}
	}
}

func TestUnanswered(t *testing.T) {
	const (
		a = "device filer:/a mounted on /mnt/a\\040b with fstype nfs4 statvers=1.1\n"
		b = "device filer:/b mounted on /mnt/b with fstype nfs statvers=1.1\n"
		c = "device other:/b mounted on /mnt/c with fstype nfs statvers=1.1\n"
		d = "device filer:/a mounted on /mnt/d with fstype nfs4 statvers=1.1\n" // once more
	)
	tcp := func(sends, receives, bad int) string {
		return fmt.Sprintf("\txprt:\ttcp 0 1 2 0 4 %d %d %d 26 0 2 0 0\n", sends, receives, bad)
	}
	operations := func(requests, transmissions int) string {
		return fmt.Sprintf("\tper-op statistics\n\t        NULL: 1 1 0 44 24 19 4 24 0\n\t       WRITE: %d %d 0 224 184 0 8 10 0\n", requests, transmissions)
	}
	for _, tt := range []struct {
		name, text string
		point      string
		want       int
		known      bool
	}{
		{"quiet", a + tcp(10, 10, 0) + operations(9, 9), "/mnt/a b", 0, true},
		{"outage", a + tcp(14, 10, 0) + operations(9, 9), "/mnt/a b", 4, true},
		{"outage over", a + tcp(14, 10, 0) + operations(9, 13), "/mnt/a b", 0, true},
		{"nobody waited", a + tcp(14, 10, 4) + operations(9, 9), "/mnt/a b", 0, true},
		{"late answers", a + tcp(14, 10, 4) + operations(9, 13), "/mnt/a b", 0, true},
		{"two mounts of one server", a + tcp(14, 10, 0) + operations(5, 6) + b + tcp(14, 10, 0) + operations(4, 6), "/mnt/b", 1, true},
		{"one export twice", a + tcp(14, 10, 0) + operations(5, 6) + d + tcp(14, 10, 0) + operations(5, 6), "/mnt/d", 3, true},
		{"another server", a + tcp(14, 10, 0) + operations(5, 6) + c + tcp(14, 10, 0) + operations(4, 7), "/mnt/a b", 3, true},
		{"several connections", a + tcp(14, 10, 0) + tcp(7, 6, 0) + operations(5, 6), "/mnt/a b", 4, true},
		{"udp", b + "\txprt:\tudp 895 1 14 10 1 26 0 2 0 0\n" + operations(5, 5), "/mnt/b", 3, true},
		{"no transport", b + operations(5, 5), "/mnt/b", 0, false},
		{"short transport", b + "\txprt:\ttcp 0 1 2 0 4 9\n", "/mnt/b", 0, false},
		{"unknown transport", b + "\txprt:\tquic 0 1 2 0 4 9 9 9\n", "/mnt/b", 0, false},
	} {
		all, err := parseMountstats(strings.NewReader("device proc mounted on /proc with fstype proc\n" + tt.text + "no device mounted " +
			"on /x with fstype tmpfs\n\txprt:\ttcp 0 1 2 0 4 99 1 0\n"))
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for i := range all {
			if all[i].point == tt.point {
				found = true
				if n, ok := all[i].unanswered(repeated(all)); n != tt.want || ok != tt.known {
					t.Errorf("%s: %d, %v", tt.name, n, ok)
				}
			}
		}
		if !found {
			t.Errorf("%s: no mount %s in %+v", tt.name, tt.point, all)
		}
	}
	if _, err := parseMountstats(strings.NewReader(strings.Repeat(a, maxMountstats/len(a)+1))); err == nil {
		t.Error("a file without end is read")
	}
	if _, err := parseMountstats(strings.NewReader(strings.Repeat("x", maxMountstatsLine+1))); err == nil {
		t.Error("a line without end is read")
	}
}

func TestParseConnection(t *testing.T) {
	server := netip.MustParseAddrPort("10.0.2.15:2049")
	text := string(kerneltest.File(t, "net_tcp_outage"))
	const header = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
	for _, tt := range []struct {
		name, text string
		to         netip.AddrPort
		want       connection
	}{
		{"outage", text, server, connection{tcpSynSent, 0}},
		{"another port", text, netip.MustParseAddrPort("10.0.2.15:2050"), connection{tcpNone, 0}},
		{"another server", text, netip.MustParseAddrPort("10.0.2.16:2049"), connection{tcpNone, 0}},
		{"healthy", header + "   0: 0F02000A:02C4 0F02000A:0801 02 0:0\n   1: 0F02000A:02C5 0F02000A:0801 01 0:0\n", server, connection{tcpEstablished, 0}},
		// The server's own end of it, on the same machine.
		{"server", header + "   0: 0F02000A:0801 0F02000A:02C4 01 0:0\n", server, connection{tcpNone, 0}},
		{"closing", header + "   0: 0F02000A:02C4 0F02000A:0801 04 0:0\n   1: 0F02000A:02C4 0F02000A:0801 06 0:0\n", server, connection{tcpNone, 0}},
		{"ipv6", header + "   0: 000000FD000000000000000001000000:02C4 000000FD000000000000000002000000:0801 01 " +
			"0:0\n", netip.MustParseAddrPort("[fd00::2]:2049"), connection{tcpEstablished, 0}},
		{"not acknowledged", header + "   7: 0F02000A:02C4 0F02000A:0801 01 000003D4:00000000 01:0000038F 0000000A     0        0 16507 " +
			"2\n", server, connection{tcpEstablished, 10}},
		{"one of two", header + "   7: 0F02000A:02C4 0F02000A:0801 01 000003D4:00000000 01:0000038F 00000006\n   8: 0F02000A:02C5 " +
			"0F02000A:0801 01 00000000:00000000 00:00000000 00000000\n", server, connection{tcpEstablished, 0}},
		{"nonsense", "x\n 0: 1 2 3\n 0: 0F02000A:02C4 XX02000A:0801 01\n 0: 0F02000A:02C4 0F02000A:10801 01\n", server, connection{tcpNone, 0}},
	} {
		if got, err := parseConnection(strings.NewReader(tt.text), tt.to); got != tt.want || err != nil {
			t.Errorf("%s: %+v, %v", tt.name, got, err)
		}
	}
	if got, err := parseConnection(strings.NewReader(strings.Repeat(header, maxNetTCP/len(header)+1)), server); err == nil {
		t.Errorf("of a list without end: %+v", got)
	}
}

// Those that can send count, and of them those of which the same was sent again and again: not one of which the other
// side has no room, nor one that nobody has open any more.
func TestCountConnections(t *testing.T) {
	const header = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
	line := func(state, waits, timer, resent, inode string) string {
		return "  33: 0100F40A:A000 0900F40A:1F90 " + state + " " + waits + ":00000000 " + timer + ":0000038F " + resent +
			"     0        0 " + inode + " 1 0 20 0 0 11 -1\n"
	}
	dir := t.TempDir()
	kerneltest.Tree(t, dir, map[string]string{
		"net/tcp": header + line("01", "00000000", "00", "00000000", "500") + // it has nothing to send
			line("01", "00000010", "01", "00000001", "501") + // it may be answered
			line("01", "00000010", "01", "00000005", "502") +
			line("04", "00000001", "01", "0000000A", "503") +
			line("01", "00000010", "04", "00000007", "504") + // no room
			line("04", "00000001", "01", "00000007", "0") + // of nobody
			line("02", "00000001", "01", "00000007", "505") + // it is being made
			line("0A", "00000000", "00", "00000000", "506") + "  1: x\n",
		"net/tcp6": header + line("09", "00000001", "01", "00000006", "507"),
	})
	if got, err := CountConnections(dir); got != (evidence.Connections{All: 6, Unanswered: 3}) || err != nil {
		t.Errorf("%+v, %v", got, err)
	}
	if err := os.Remove(dir + "/net/tcp6"); err != nil {
		t.Fatal(err)
	}
	if got, err := CountConnections(dir); got.Unanswered != 2 || err != nil {
		t.Errorf("without IPv6: %+v, %v", got, err)
	}
	if got, err := CountConnections(t.TempDir()); err == nil {
		t.Errorf("of no process: %+v", got)
	}
}

// Of a list that the kernel has printed: a request without an answer, one whose connection was kept
// after the answer, and one of which nobody has accepted the connection.
func TestParseUnanswered(t *testing.T) {
	const header = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
	text := header +
		"  33: 0100007F:A13A 0100007F:96B1 01 00000000:00000000 00:00000000 00000000     0        0 503206 1 000000005c72287d 20 0 0 11 -1\n" +
		"  23: 0100007F:A13C 0100007F:96B1 01 00000000:00000000 00:00000000 00000000     0        0 503207 1 000000005c72287d 20 4 30 11 -1\n" +
		"  26: 0100007F:AE56 0100007F:96B1 01 00000000:00000000 02:0000000F 00000000     0        0 503450 2 00000000422ff3b2 20 0 0 11 -1\n" +
		"  27: 0100007F:AE58 0100007F:96B1 02 00000001:00000000 01:00000064 00000003     0        0 503451 2 00000000422ff3b2 400 0 0 1 7\n" +
		"  28: 0100007F:AE5A 0100007F:96B1 06 00000000:00000000 03:00000F3A 00000000     0        0 0 3 0000000000000000\n" +
		"  29: 0100007F:AE5C 0100007F:96B1 08 00000000:00000000 00:00000000 00000000     0        0 503452 1 00000000422ff3b2 20 0 0 11 -1\n" +
		"  30: 0100007F:96B1 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 503205 1 0000000000000000 100 0 0 10 0\n" +
		"  31: 0000000000000000FFFF00000100007F:AE5E 0000000000000000FFFF00000200007F:96B1 01 0:0 00:0 0     0        0 503460 1 0 20 0 0 11 -1\n"
	to := netip.MustParseAddrPort("127.0.0.1:38577")
	want := []Unanswered{
		{to, "ESTABLISHED", 503206, 0xA13A}, {to, "ESTABLISHED", 503450, 0xAE56}, {to, "SYN_SENT", 503451, 0xAE58},
		{netip.MustParseAddrPort("127.0.0.2:38577"), "ESTABLISHED", 503460, 0xAE5E},
	}
	listens := make(map[uint16]bool)
	got, err := parseUnanswered(strings.NewReader(text), listens)
	if !slices.Equal(got, want) || err != nil || len(listens) != 1 || !listens[0x96B1] {
		t.Errorf("%+v, %v, listens %v", got, err, listens)
	}
	for _, text := range []string{"", "x", header, "0: 1 2 01 4 5 6 7 8 9 10 11 12 0", "0: 0100007F:1 0100007F:1 01 4 5 6 7 8 x 10 11 12 0"} {
		if got, err := parseUnanswered(strings.NewReader(text), listens); len(got) != 0 || err != nil {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}

// A pod that connects to a server of the kubelet, from a port of its own choice, makes nothing that
// looks like a request of the kubelet to that port.
func TestReadUnansweredLeavesOutAccepted(t *testing.T) {
	const header = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
	const own = "  33: 0100F40A:A000 0900F40A:1F90 01 0:0 00:0 0     0        0 500 1 0 20 0 0 11 -1\n"
	const accepted4 = "  34: 0100F40A:2802 0900F40A:1F90 01 0:0 00:0 0     0        0 501 1 0 20 0 0 11 -1\n"
	const listens4 = "   1: 00000000:2802 00000000:0000 0A 0:0 00:0 0     0        0 510 1 0 100 0 0 10 0\n"
	const accepted6 = "   2: 0000000000000000FFFF00000100F40A:280A 0000000000000000FFFF00000900F40A:1F90 01 0:0 00:0 0     0        0 502 1 0 20 0 0 11 -1\n"
	const listens6 = "   1: 00000000000000000000000000000000:280A 00000000000000000000000000000000:0000 0A 0:0 00:0 0     0        0 511 1 0 100 0 0 10 0\n"
	dir := t.TempDir()
	kerneltest.Tree(t, dir, map[string]string{
		"net/tcp":  header + accepted4 + own + listens4,
		"net/tcp6": header + accepted6 + listens6,
	})
	got, err := ReadUnanswered(dir)
	if len(got) != 1 || got[0].Inode != 500 || err != nil {
		t.Errorf("%+v, %v", got, err)
	}
}

// A connection of our own over which nothing has come back is found, and is not any more when an
// answer has come, and none is ever taken for a request when it is kept.
func TestReadUnanswered(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	own, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	if _, err := own.Write([]byte("GET / HTTP/1.1\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	other, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	there := func(to net.Addr) bool {
		t.Helper()
		all, err := ReadUnanswered("/proc/self")
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(all, func(u Unanswered) bool {
			return u.To.String() == to.String() && u.State == "ESTABLISHED"
		})
	}
	if !there(l.Addr()) {
		t.Error("a request without an answer is not found")
	}
	silent, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if there(silent.LocalAddr()) {
		t.Error("a connection that was accepted is taken for a request")
	}
	if err := errors.Join(silent.Close(), accepted.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := other.Write([]byte("HTTP/1.1 200 OK\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	if _, err := own.Read(make([]byte, 64)); err != nil {
		t.Fatal(err)
	}
	if there(l.Addr()) {
		t.Error("a connection that is kept after the answer is taken for a request")
	}
}

func TestServerAddress(t *testing.T) {
	for _, tt := range []struct {
		super, want string
		fixed, ok   bool
	}{
		{"cifs rw,vers=3.1.1,sec=none,addr=10.0.0.9", "10.0.0.9:445", false, true},
		{"cifs rw,vers=3.1.1,port=1445,addr=fd00::1", "[fd00::1]:1445", true, true},
		{"rw,vers=4.2,proto=tcp,addr=10.0.0.9", "10.0.0.9:2049", true, true},
		{"rw,vers=4.1,proto=tcp6,addr=fd00::1", "[fd00::1]:2049", true, true},
		{"rw,vers=4.1,proto=tcp6,addr=fe80::1%eth0", "[fe80::1]:2049", true, true},
		{"rw,vers=4.2,port=3049,proto=tcp,addr=10.0.0.9", "10.0.0.9:3049", true, true},
		{"rw,vers=3,proto=tcp,mountaddr=10.0.0.8,addr=10.0.0.9", "10.0.0.9:2049", false, true},
		{"rw,vers=3,port=2049,proto=tcp,addr=10.0.0.9", "10.0.0.9:2049", true, true},
		{"rw,vers=3,proto=udp,addr=10.0.0.9", "", false, false},
		{"rw,vers=4.2,proto=rdma,addr=10.0.0.9", "", false, false},
		{"rw,vers=4.2,proto=tcp,addr=filer", "", false, false},
		{"rw,vers=4.2,proto=tcp,port=x,addr=10.0.0.9", "", false, false},
	} {
		fstype, super, ok := strings.Cut(tt.super, " ")
		if !ok {
			fstype, super = "nfs4", tt.super
		}
		to, fixed, ok := (&Line{Type: fstype, Super: super}).serverAddress()
		if ok != tt.ok || fixed != tt.fixed || ok && to.String() != tt.want {
			t.Errorf("%s: %v, %v, %v", tt.super, to, fixed, ok)
		}
	}
}

func FuzzNFS(f *testing.F) {
	kerneltest.Fuzz(f, []string{string(kerneltest.File(f, "mountstats_outage")), string(kerneltest.File(f, "net_tcp_outage"))}, func(b []byte) {
		if all, err := parseMountstats(bytes.NewReader(b)); err == nil {
			for i := range all {
				if n, _ := all[i].unanswered(repeated(all)); n < 0 {
					panic(n)
				}
			}
		}
		_, _ = parseUnanswered(bytes.NewReader(b), make(map[uint16]bool))
		_, _ = parseConnection(bytes.NewReader(b), netip.MustParseAddrPort("10.0.2.15:2049"))
		parseTCPAddress(b)
		m := Line{Super: string(b)}
		_, _, _ = m.serverAddress()
	})
}

// Of a file system with many mounts those count that mountstats tells of first, and that are
// mounted last.
func TestFindServers(t *testing.T) {
	root := t.TempDir()
	stats := "device filer:/x mounted on %s with fstype nfs4 statvers=1.1\n\txprt:\ttcp 0 1 2 0 4 %d 10 0 26 0 2 0 0\n"
	kerneltest.Tree(t, root, map[string]string{
		"1/mountstats": fmt.Sprintf(stats, "/b", 12) + fmt.Sprintf(stats, "/c", 14) + fmt.Sprintf(stats, "/a", 15) + fmt.Sprintf(stats, "/b", 19),
	})
	host := scan(t, "40 27 0:50 / /a rw - nfs4 filer:/x rw\n41 27 0:50 / /b rw - nfs4 filer:/x rw\n42 27 0:51 / /c rw - nfs4 filer:/x rw\n"+
		"43 27 0:50 / /d rw - nfs4 filer:/x rw\n44 27 0:52 / /e rw - cifs //filer/x rw\n45 27 0:53 / /b rw - tmpfs t rw\n")
	v := &View{Proc: root}
	v.findServers(host)
	got := make(map[string]string)
	for device, s := range v.servers.of {
		n := 0
		if s.stats != nil {
			n, _ = s.stats.unanswered(v.servers.repeated)
		}
		got[device] = fmt.Sprint(s.line.Point, " ", n)
	}
	if diff := cmp.Diff(map[string]string{"0:50": "/d 2", "0:51": "/c 4", "0:52": "/e 0"}, got); diff != "" {
		t.Error(diff)
	}
}

// The list is one that the kernel has printed, twelve seconds after the other side of 10.9.0.0/24 went down: of a pod with a sidecar on
// 127.0.0.1:15001, of which three connections are cut, one of a pool is idle, and one was closed after a time-out (FIN_WAIT1, of nobody).
func TestCountConnectionsOfACutNetwork(t *testing.T) {
	const text = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n" +
		"   0: 0100007F:3A99 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 2449613 1 0 100 0 0 10 0\n" +
		"   1: 0100007F:3A99 0100007F:D6D4 01 00000000:00000000 00:00000000 00000000     0        0 2449621 1 0 20 4 30 10 -1\n" +
		"   2: 0100007F:3A99 0100007F:D6C6 01 00000000:00000000 00:00000000 00000000     0        0 2449618 1 0 20 4 30 10 -1\n" +
		"   3: 0100007F:D6BA 0100007F:3A99 01 00000000:00000000 00:00000000 00000000     0        0 2449614 1 0 20 0 0 11 -1\n" +
		"   4: 0100007F:D6C6 0100007F:3A99 01 00000000:00000000 00:00000000 00000000     0        0 2449617 1 0 20 0 0 11 -1\n" +
		"   5: 0100007F:D6D4 0100007F:3A99 01 00000000:00000000 00:00000000 00000000     0        0 2449620 1 0 20 0 0 11 -1\n" +
		"   6: 0100090A:B9C8 0200090A:1538 01 00000001:00000000 01:0000002F 00000007     0        0 2449616 2 0 326 0 0 1 -1\n" +
		"   7: 0100090A:B9D8 0200090A:1538 01 00000001:00000000 01:0000002F 00000007     0        0 2449619 2 0 326 0 0 1 -1\n" +
		"   8: 0100090A:B9E4 0200090A:1538 01 00000001:00000000 01:0000002F 00000007     0        0 2449622 2 0 326 0 0 1 -1\n" +
		"   9: 0100090A:B9F2 0200090A:1538 04 00000002:00000000 01:0000002F 00000007     0        0 0 2 0 326 0 0 1 -1\n" +
		"  10: 0100090A:B9F4 0200090A:1538 01 00000000:00000000 00:00000000 00000000     0        0 2449624 1 0 20 0 0 10 -1\n" +
		"  11: 0100007F:3A99 0100007F:D6BA 01 00000000:00000000 00:00000000 00000000     0        0 2449615 1 0 20 4 30 10 -1\n"
	dir := t.TempDir()
	kerneltest.Tree(t, dir, map[string]string{"net/tcp": text})
	if got, err := CountConnections(dir); got != (evidence.Connections{All: 4, Unanswered: 3}) || err != nil {
		t.Errorf("%+v, %v", got, err)
	}
}
