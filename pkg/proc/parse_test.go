package proc

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"golang.org/x/sys/unix"
)

func testdata(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestParseStatus(t *testing.T) {
	const comm = `a) R (\n\\` + "\ufffd\ufffd"
	for _, tt := range []struct {
		file string
		want status
	}{
		{"status_odd_comm", status{hasMemory: true, Task: evidence.Task{
			PID: 8729, TID: 8729, PPID: 8688, NSpid: []int{8729}, Threads: 1, Comm: comm, State: "S",
			Blocked: 1, Ignored: 0x1005000, Caught: 2, Switches: 1,
		}}},
		{"status_stopped", status{hasMemory: true, Task: evidence.Task{
			PID: 8729, TID: 8729, PPID: 8688, NSpid: []int{8729}, Threads: 1, Comm: comm, State: "T",
			SharedPending: 1, Blocked: 1, Ignored: 0x1005000, Caught: 2, Switches: 2,
		}}},
		{"status_zombie", status{Task: evidence.Task{
			PID: 8729, TID: 8729, PPID: 8688, NSpid: []int{8729}, Threads: 1, Comm: comm, State: "Z",
			SharedPending: 0x101, Blocked: 1, Ignored: 0x1005000, Caught: 2, Switches: 3,
		}}},
		{"status_kthread", status{Task: evidence.Task{
			PID: 2, TID: 2, NSpid: []int{2}, Threads: 1, Comm: "kthreadd", State: "S", Kernel: true,
			Ignored: 0xffffffffffffffff, Switches: 79,
		}}},
	} {
		t.Run(tt.file, func(t *testing.T) {
			b := testdata(t, tt.file)
			got, err := parseStatus(b)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.want, got, cmp.AllowUnexported(status{})); d != "" {
				t.Error(d)
			}
			state, threads := quickStatus(b)
			if string(state) != string(got.State) || threads != got.Threads {
				t.Errorf("quickly %c, %d", state, threads)
			}
			text, err := json.Marshal(got.Task)
			if err != nil || !utf8.Valid(text) {
				t.Errorf("JSON %q, %v", text, err)
			}
		})
	}
	for _, bad := range []string{"", "Name:\tx\n", "State:\tS\n", "Pid:\t1\n"} {
		if _, err := parseStatus([]byte(bad)); err == nil {
			t.Errorf("%q is a status", bad)
		}
	}
}

func TestExitingByStatus(t *testing.T) {
	for _, tt := range []struct {
		status string
		want   bool
	}{
		{"Name:\tx\nState:\tS (sleeping)\nPid:\t9\nPPid:\t5\nKthread:\t0\n", true},
		{"Name:\tx\nState:\tS (sleeping)\nPid:\t9\nPPid:\t5\nKthread:\t0\nVmSize:\t1 kB\n", false},
		{"Name:\tx\nState:\tZ (zombie)\nPid:\t9\nPPid:\t5\nKthread:\t0\n", false},
		{"Name:\tx\nState:\tI (idle)\nPid:\t9\nPPid:\t2\nNSpid:\t9\n", false}, // a kernel thread before 6.8
		{"Name:\tx\nState:\tD (disk sleep)\nPid:\t9\nPPid:\t2\nNSpid:\t9\nKthread:\t1\n", false},
	} {
		s, err := parseStatus([]byte(tt.status))
		if err != nil || s.exitingByStatus() != tt.want {
			t.Errorf("%q: %v, %v", tt.status, s.exitingByStatus(), err)
		}
	}
}

func TestParseStat(t *testing.T) {
	for file, want := range map[string]stat{
		"stat_odd_comm": {Group: 8684, Flags: 4194368, Start: 291972},
		"stat_zombie":   {Group: 8684, Flags: 4195660, Start: 291972},
	} {
		got, err := parseStat(testdata(t, file))
		if err != nil || got.Start != want.Start || got.Group != want.Group {
			t.Errorf("%s: %+v, %v", file, got, err)
		}
		if exiting := got.Flags&evidence.PFExiting != 0; exiting != (file == "stat_zombie") {
			t.Errorf("%s: exiting %v", file, exiting)
		}
	}
	for _, bad := range []string{"", "1 (x", "1 (x) S 1 2", "1 (x) S 1 1 1 1 1 x 1 1 1 1 1 1 1 1 1 1 1 1 1"} {
		if _, err := parseStat([]byte(bad)); err == nil {
			t.Errorf("%q is a stat", bad)
		}
	}
}

func TestStartedAt(t *testing.T) {
	now := time.Date(2026, 7, 1, 12, 0, 0, 1234567, time.UTC)
	for _, tt := range []struct {
		start uint64
		boot  time.Duration
		want  time.Time
	}{
		{0, time.Hour, time.Time{}}, // not read
		{100, time.Hour, time.Date(2026, 7, 1, 11, 0, 1, 0, time.UTC)},
		{360_000, time.Hour, time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)},
		{360_000, time.Hour + 4*time.Millisecond, time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)},
		{360_050, time.Hour, time.Time{}}, // later than now
		{1 << 63, time.Hour, time.Time{}},
	} {
		if got := startedAt(tt.start, now, tt.boot); !got.Equal(tt.want) {
			t.Errorf("%d ticks, %v after boot: %v", tt.start, tt.boot, got)
		}
	}
}

func TestParseCorePattern(t *testing.T) {
	for text, want := range map[string]string{
		"core\n": "core",
		"|/usr/lib/systemd/systemd-coredump %P %u %g %s %t %c %h\n": "|/usr/lib/systemd/systemd-coredump",
		"| /bin/handler %p":   "|/bin/handler",
		"/var/cores/%e.%p\n":  "/var/cores/%e.%p",
		"@/run/dump.socket\n": "@/run/dump.socket",
		"\n":                  "",
		"|\n":                 "",
	} {
		if got := parseCorePattern([]byte(text)); got != want {
			t.Errorf("%q: %q", text, got)
		}
	}
	h := &Host{Proc: "/proc"}
	if release := h.ReadKernel(); release == "" || strings.ContainsAny(release, " \n") {
		t.Errorf("the kernel is %q", release)
	}
}

func TestParseStackAndWchan(t *testing.T) {
	want := []string{"hrtimer_nanosleep", "common_nsleep_timens", "__x64_sys_clock_nanosleep", "do_syscall_64", "entry_SYSCALL_64_after_hwframe"}
	if d := cmp.Diff(want, parseStack(testdata(t, "stack_odd_comm"))); d != "" {
		t.Error(d)
	}
	if got := parseStack([]byte("[<0>] ovl_write_iter+0x1/0x2 [overlay]\n[<0>] 0xffffffff81000000\n[<ffffffff8>] vfs_write+0x1/0x2\n")); len(got) != 2 || got[0] != "ovl_write_iter" {
		t.Errorf("%q", got)
	}
	if got := parseStack(bytes.Repeat([]byte("[<0>] f+0x1/0x2\n"), 40)); len(got) != maxFrames {
		t.Errorf("%d frames", len(got))
	}
	for text, want := range map[string]string{"0": "", "": "", "do_wait": "do_wait", "do_wait\n": "do_wait"} {
		if got := parseWchan([]byte(text)); got != want {
			t.Errorf("wchan %q: %q", text, got)
		}
	}
}

// What the compiler appends to a function's name is not part of it.
func TestFunction(t *testing.T) {
	for symbol, want := range map[string]string{
		"do_sigtimedwait":                     "do_sigtimedwait",
		"do_sigtimedwait.isra.0":              "do_sigtimedwait",
		"__xfs_write_fault.constprop.0":       "__xfs_write_fault",
		"ptrace_stop.part.0":                  "ptrace_stop",
		"fuse_get_dev.part.13":                "fuse_get_dev",
		"do_exit.cold":                        "do_exit",
		"de_thread.lto_priv.0":                "de_thread",
		"down_read.localalias":                "down_read",
		"request_wait_answer.llvm.4086182673": "request_wait_answer",
		"request_wait_answer.llvm.9af3e1":     "request_wait_answer",
		"foo.isra.0.cold":                     "foo",
		"foo.constprop.0.isra.0":              "foo",
		"foo.part.0.constprop.0":              "foo",
		"foo.constprop.0.isra.0.cold":         "foo",
		"foo.lto_priv.0.cold":                 "foo",
		"foo.cold.1":                          "foo",

		// Whole names.
		"__x64_sys_rt_sigtimedwait":     "__x64_sys_rt_sigtimedwait",
		"__pfx_do_sigtimedwait.isra.0":  "__pfx_do_sigtimedwait",
		"__pfx_do_wait":                 "__pfx_do_wait",
		"cold":                          "cold",
		"part_stat_show":                "part_stat_show",
		".slowpath":                     ".slowpath",
		".cold":                         ".cold",
		"foo.":                          "foo.",
		"foo.colder":                    "foo.colder",
		"foo.llvm_x":                    "foo.llvm_x",
		"foo.7":                         "foo.7",
		"bpf_prog_6deef7357e7b4530_a.b": "bpf_prog_6deef7357e7b4530_a.b",
	} {
		if got := function([]byte(symbol)); got != want {
			t.Errorf("%s: %q instead of %q", symbol, got, want)
		}
		if got := parseWchan([]byte(symbol)); got != want {
			t.Errorf("wchan %s: %q instead of %q", symbol, got, want)
		}
		for _, line := range []string{"[<0>] %+0x156/0x1f0\n", "[<0>] %+0x156/0x1f0 [fuse]\n", "[<ffffffff810a2c60>] %+0x156/0x1f0\n"} {
			line = strings.Replace(line, "%", symbol, 1)
			if got := parseStack([]byte(line)); !slices.Equal(got, []string{want}) {
				t.Errorf("stack line %q: %q instead of %q", line, got, want)
			}
		}
	}
}

// Both questions that read such names get the bare ones.
func TestSeenFunctions(t *testing.T) {
	root := t.TempDir()
	write(t, root, map[string]string{
		"7/task/7/stat":  string(testdata(t, "stat_odd_comm")),
		"7/task/7/wchan": "request_wait_answer.isra.0",
		"7/task/7/stack": "[<0>] request_wait_answer.isra.0+0x12f/0x220 [fuse]\n[<0>] fuse_flush.part.0+0x1d2/0x260 [fuse]\n[<0>] do_exit.cold+0x8/0x10\n",
	})
	h := newHost(t)
	h.Proc = root
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	saw, err := h.Prober.ask(ctx, request{What: askTask, Proc: root, PID: 7, TID: 7})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"request_wait_answer", "fuse_flush", "do_exit"}, saw.Stack); d != "" || saw.Wchan != "request_wait_answer" {
		t.Errorf("wchan %s, stack %s", saw.Wchan, d)
	}
	if yes, err := h.blocked(ctx, &status{Task: evidence.Task{PID: 7, TID: 7, State: evidence.Sleeping}}); !yes || err != nil {
		t.Errorf("blocked: %v, %v", yes, err)
	}
}

func TestParseSyscall(t *testing.T) {
	number := strconv.Itoa(unix.SYS_OPENAT)
	for _, tt := range []struct {
		text string
		want call
	}{
		{"running\n", call{}},
		{"-1 0x0 0x0\n", call{}},
		{"-1 0x7ffc2c6b6658 0x7f243feed503\n", call{Outside: true}},
		{number + " 0xffffff9c 0x7ffc2c6b6670 0x1 0x2 0x3 0x4 0x7ffc2c6b6658 0x7f243feed503\n",
			call{Name: "openat", Args: [6]uint64{0xffffff9c, 0x7ffc2c6b6670, 1, 2, 3, 4}}},
		// A 32-bit program: its number 5 is another call.
		{"5 0x1 0x2 0x3 0x4 0x5 0x6 0xffffd000 0xf7f00000\n", call{Args: [6]uint64{1, 2, 3, 4, 5, 6}}},
		{"9999 0x1 0x2 0x3 0x4 0x5 0x6 0x7ffc2c6b6658 0x1\n", call{Args: [6]uint64{1, 2, 3, 4, 5, 6}}},
		// Without a call, but in kernel mode on the way out.
		{"-1 0x1 0x2 0x3 0x4 0x5 0x6 0x7ffc2c6b6658 0x1\n", call{Args: [6]uint64{1, 2, 3, 4, 5, 6}}},
	} {
		got, err := parseSyscall([]byte(tt.text))
		if err != nil {
			t.Errorf("%q: %v", tt.text, err)
		}
		if d := cmp.Diff(tt.want, got); d != "" {
			t.Errorf("%q: %s", tt.text, d)
		}
	}
	for _, bad := range []string{"", "x", "1 2 3 4", "1 0xg 0x2"} {
		if _, err := parseSyscall([]byte(bad)); err == nil {
			t.Errorf("%q is a syscall", bad)
		}
	}
	for n, name := range map[int]string{unix.SYS_READ: "read", unix.SYS_CLOSE: "close", unix.SYS_RT_SIGTIMEDWAIT: "rt_sigtimedwait", unix.SYS_UMOUNT2: "umount2", unix.SYS_STATX: "statx", unix.SYS_EXECVE: "execve"} {
		if syscallNames[n] != name {
			t.Errorf("call %d is %q, not %s", n, syscallNames[n], name)
		}
	}
}

// mounts of a host and of a container on it.
const hostMounts = `27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard
40 27 0:50 / /var/lib/kubelet/pods/u-1/volumes/kubernetes.io~nfs/vol\0401 rw,relatime shared:7 - nfs4 10.0.0.9:/export rw,vers=4.2,clientaddr=10.0.0.1,addr=10.0.0.9
41 27 0:50 / /var/lib/kubelet/pods/u-2/volumes/kubernetes.io~nfs/vol rw,relatime - nfs4 10.0.0.9:/export rw,addr=10.0.0.9
42 27 0:51 / /var/lib/kubelet/pods/u-1/volumes/kubernetes.io~csi/pvc-7/mount rw,relatime - fuse.s3 https://key:secret@s3.example/bucket rw,user_id=0
43 27 254:0 /data/x /var/lib/kubelet/pods/u-1/volume-subpaths/cfg/app/0 ro,relatime - ext4 /dev/vda rw,discard
44 27 0:52 / /run/containerd/o/rootfs rw,relatime - overlay overlay rw,lowerdir=/l,upperdir=/var/lib/containerd/7/fs,workdir=/w
45 27 254:16 / /var/lib/containerd rw - xfs /dev/vdb rw
this line is bad
46 27 0:53 / /mnt/share rw - cifs //user@files.example/share rw,password=secret
47 27 0:54 / /mnt/ceph rw - ceph 10.0.0.1:6789,10.0.0.2:6789:/dir rw
48 27 0:55 / /mnt/empty rw -  
49 27 0:56 / /mnt/nosource rw - tmpfs  rw
`

const containerMounts = `100 90 0:52 / / rw,relatime - overlay overlay rw,lowerdir=/l,upperdir=/var/lib/containerd/7/fs,workdir=/w
101 100 0:50 /sub /data rw,relatime - nfs4 10.0.0.9:/export/sub rw,addr=10.0.0.9
102 100 254:0 /data/x /cfg ro,relatime - ext4 /dev/vda rw
103 100 254:0 /var/lib/kubelet/pods/u-1/etc-hosts /etc/hosts rw - ext4 /dev/vda rw
104 100 0:51 / /s3 rw - fuse.s3 x rw
`

func scan(t testing.TB, text string) *mountTable {
	t.Helper()
	m, err := scanMountinfo(iotest.OneByteReader(strings.NewReader(text)))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestMountinfo(t *testing.T) {
	host := scan(t, hostMounts)
	if host.bad != 2 {
		t.Errorf("%d bad lines", host.bad)
	}
	h := &Host{KubeletDir: "/var/lib/kubelet"}
	var got []evidence.Mount
	for i := range host.lines {
		got = append(got, h.mount(&host.lines[i]))
	}
	want := []evidence.Mount{
		{ID: 27, ParentID: 1, Device: "254:0", Root: "/", Point: "/", Type: "ext4", Source: "/dev/vda"},
		{ID: 40, ParentID: 27, Device: "0:50", Root: "/", Point: "/var/lib/kubelet/pods/u-1/volumes/kubernetes.io~nfs/vol 1", Type: "nfs4", Source: "10.0.0.9:/export", Server: "10.0.0.9", Volume: "vol 1", Plugin: "kubernetes.io~nfs"},
		{ID: 41, ParentID: 27, Device: "0:50", Root: "/", Point: "/var/lib/kubelet/pods/u-2/volumes/kubernetes.io~nfs/vol", Type: "nfs4", Source: "10.0.0.9:/export", Server: "10.0.0.9", Volume: "vol", Plugin: "kubernetes.io~nfs"},
		{ID: 42, ParentID: 27, Device: "0:51", Root: "/", Point: "/var/lib/kubelet/pods/u-1/volumes/kubernetes.io~csi/pvc-7/mount", Type: "fuse.s3", Source: "https://s3.example/bucket", Volume: "pvc-7", Plugin: "kubernetes.io~csi"},
		{ID: 43, ParentID: 27, Device: "254:0", Root: "/data/x", Point: "/var/lib/kubelet/pods/u-1/volume-subpaths/cfg/app/0", Type: "ext4", Source: "/dev/vda", ReadOnly: true, Volume: "cfg"},
		{ID: 44, ParentID: 27, Device: "0:52", Root: "/", Point: "/run/containerd/o/rootfs", Type: "overlay", Source: "overlay"},
		{ID: 45, ParentID: 27, Device: "254:16", Root: "/", Point: "/var/lib/containerd", Type: "xfs", Source: "/dev/vdb"},
		{ID: 46, ParentID: 27, Device: "0:53", Root: "/", Point: "/mnt/share", Type: "cifs", Source: "//user@files.example/share", Server: "files.example"},
		{ID: 47, ParentID: 27, Device: "0:54", Root: "/", Point: "/mnt/ceph", Type: "ceph", Source: "10.0.0.1:6789,10.0.0.2:6789:/dir", Server: "10.0.0.1:6789,10.0.0.2:6789"},
		{ID: 49, ParentID: 27, Device: "0:56", Root: "/", Point: "/mnt/nosource", Type: "tmpfs"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if n := len(h.podMounts(host, "u-1")); n != 3 {
		t.Errorf("%d mounts of the pod", n)
	}

	own := scan(t, containerMounts)
	for _, tt := range []struct{ path, hostPoint, volume, backing string }{
		{"/data/file", "/var/lib/kubelet/pods/u-1/volumes/kubernetes.io~nfs/vol 1", "vol 1", ""},
		{"/cfg", "/var/lib/kubelet/pods/u-1/volume-subpaths/cfg/app/0", "cfg", ""},
		{"/etc/hosts", "/", "", ""},
		{"/s3/x", "/var/lib/kubelet/pods/u-1/volumes/kubernetes.io~csi/pvc-7/mount", "pvc-7", ""},
		{"/database", "/run/containerd/o/rootfs", "", "xfs"},
	} {
		m := h.mountOfTask(own.holding(tt.path), host, "u-1")
		backing := ""
		if m.Backing != nil {
			backing = m.Backing.Type
		}
		if m.HostPoint != tt.hostPoint || m.Volume != tt.volume || backing != tt.backing {
			t.Errorf("%s: host's %q, volume %q, backing %q", tt.path, m.HostPoint, m.Volume, backing)
		}
	}
	// Without a pod, the volume of either pod would do: no guess.
	if m := h.mountOfTask(own.holding("/data"), host, ""); m.Volume != "" {
		t.Errorf("volume %q of a device that two pods have", m.Volume)
	}

	long := "50 27 0:60 / /m rw - overlay overlay rw,lowerdir=" + strings.Repeat("/l:", 100_000) + "\n"
	if table := scan(t, long); len(table.lines) != 1 {
		t.Errorf("a long line: %d, bad %d", len(table.lines), table.bad)
	}
	huge := "50 27 0:60 / /m rw - overlay overlay " + strings.Repeat("x", 3*maxMountLine) + "\n51 27 0:61 / /n rw - tmpfs t rw\n"
	if table, err := scanMountinfo(strings.NewReader(huge)); err != nil || len(table.lines) != 1 || table.bad != 1 || table.lines[0].point != "/n" {
		t.Errorf("a line without end: %+v, %v", table, err)
	}
}

func TestParseVolumePath(t *testing.T) {
	const dir = "/var/lib/kubelet"
	for p, want := range map[string]string{
		dir + "/pods/u/volumes/kubernetes.io~nfs/v":               dir + "/pods/u/volumes/kubernetes.io~nfs/v",
		dir + "/pods/u/volumes/kubernetes.io~nfs/v/private/file":  dir + "/pods/u/volumes/kubernetes.io~nfs/v",
		dir + "/pods/u/volumes/kubernetes.io~csi/v/mount/private": dir + "/pods/u/volumes/kubernetes.io~csi/v/mount",
		dir + "/pods/u/volumes/kubernetes.io~csi/v/vol_data.json": dir + "/pods/u/volumes/kubernetes.io~csi/v",
		dir + "/pods/u/volumes/kubernetes.io~nfs/v/mount":         dir + "/pods/u/volumes/kubernetes.io~nfs/v",
		dir + "/pods/u/volume-subpaths/v/app/0/private":           dir + "/pods/u/volume-subpaths/v/app/0",
		dir + "/pods/u/volumes":                                   "",
		dir + "/pods/u/etc-hosts":                                 "",
		dir + "/plugins/kubernetes.io/csi/x/globalmount":          "",
		"/data/file": "",
	} {
		v, ok := parseVolumePath(dir, p)
		if v.point != want || ok != (want != "") {
			t.Errorf("%s: %+v", p, v)
		}
	}
}

func TestServer(t *testing.T) {
	for _, tt := range []struct{ fstype, source, super, want string }{
		{"nfs", "filer:/vol", "rw", "filer"},
		{"nfs4", "[fd00::1]:/vol", "rw", "fd00::1"},
		{"nfs4", "fd00::1:/vol", "rw", "fd00::1"},
		{"nfs", "filer:/vol", "rw,mountaddr=10.0.0.2,addr=10.0.0.1", "10.0.0.1"},
		{"cifs", `//files/share`, "rw,addr=10.0.0.3", "10.0.0.3"},
		{"ceph", "user@fsid.fs=/", "rw,mon_addr=10.0.0.1:6789/10.0.0.2:6789", "10.0.0.1:6789/10.0.0.2:6789"},
		{"fuse.glusterfs", "gluster:/vol", "rw", "gluster"},
		{"ext4", "/dev/vda", "rw", ""},
	} {
		m := mountLine{fstype: tt.fstype, source: tt.source, super: tt.super}
		if got := m.server(); got != tt.want {
			t.Errorf("%+v: %q", tt, got)
		}
	}
}

func TestParseMaps(t *testing.T) {
	const maps = `559c7f0a0000-559c7f0a1000 r--p 00000000 fe:00 1234                       /usr/bin/sleep
7f0c8e800000-7f0c8e801000 rw-s 00000000 07:01 12                         /data/a b
7f0c8e900000-7f0c8e901000 r--p 00000000 07:01 12                         /data/a b
7f0c8ea00000-7f0c8ea01000 rw-p 00000000 00:00 0
bad
`
	want := []mapping{{"254:0", false}, {"7:1", true}}
	if d := cmp.Diff(want, parseMaps([]byte(maps))); d != "" {
		t.Error(d)
	}
}

func TestCulpritDoubts(t *testing.T) {
	own := scan(t, containerMounts)
	paths := func(name string, p ...string) *seen {
		s := &seen{Call: call{Name: name}}
		for _, x := range p {
			s.Paths = append(s.Paths, callPath{Path: []byte(x), Via: "path"})
		}
		return s
	}
	for _, tt := range []struct {
		saw  *seen
		want string
	}{
		{paths("stat", "/data/x"), "/data"},
		{paths("stat", "/data/../s3"), ""},
		{paths("rename", "/data/x", "/data/y"), "/data"},
		{paths("rename", "/data/x", "/s3/y"), ""},
		{paths("rename", "/data/x"), ""},
		{paths("mount", "/data"), ""},
		{paths("umount2", "/data"), "/data"},
		{paths("umount2", "/gone"), ""},
	} {
		got := ""
		if m, _ := byPaths(own, tt.saw); m != nil {
			got = m.point
		}
		if got != tt.want {
			t.Errorf("%s %q: %q", tt.saw.Call.Name, tt.saw.Paths, got)
		}
	}
	for _, tt := range []struct {
		stack []string
		mount evidence.Mount
		want  bool
	}{
		{nil, evidence.Mount{Type: "ext4"}, false},
		{[]string{"percpu_rwsem_wait", "vfs_write"}, evidence.Mount{Type: "xfs"}, false},
		{[]string{"request_wait_answer", "fuse_lookup_name"}, evidence.Mount{Type: "overlay", Backing: &evidence.Mount{Type: "ext4"}}, true},
		{[]string{"request_wait_answer", "fuse_lookup_name"}, evidence.Mount{Type: "fuse.s3"}, false},
		{[]string{"rpc_wait_bit_killable", "nfs4_proc_getattr"}, evidence.Mount{Type: "ext4"}, true},
		{[]string{"xfs_file_write_iter", "ovl_write_iter"}, evidence.Mount{Type: "overlay", Backing: &evidence.Mount{Type: "xfs"}}, false},
		{[]string{"fuse_file_read_iter", "ovl_read_iter"}, evidence.Mount{Type: "overlay", Backing: &evidence.Mount{Type: "xfs"}}, false},
	} {
		if got := refutes(&seen{Stack: tt.stack}, &tt.mount); got != tt.want {
			t.Errorf("%v, %s: %v", tt.stack, tt.mount.Type, got)
		}
	}
	fault := &seen{Stack: []string{"ext4_page_mkwrite", "asm_exc_page_fault"}, Maps: []mapping{{"254:0", false}, {"0:51", true}}}
	if m := mapped(own, fault); m != nil {
		t.Errorf("mapped %+v", m)
	}
	fault.Maps[0].Shared = true // two directories of the device are mounted
	if m := mapped(own, fault); m != nil {
		t.Errorf("mapped %+v", m)
	}
	fault = &seen{Stack: []string{"filemap_fault", "asm_exc_page_fault"}, Maps: []mapping{{"0:50", false}, {"8:1", false}}}
	if m := mapped(own, fault); m == nil || m.point != "/data" {
		t.Errorf("mapped %+v", m)
	}
}

func TestParseShimCmdline(t *testing.T) {
	for text, want := range map[string]string{
		"/usr/bin/containerd-shim-runc-v2\x00-namespace\x00k8s.io\x00-id\x00abc\x00-address\x00/run/x\x00": "abc",
		"shim\x00-id=abc\x00": "abc",
		"shim\x00-id":         "",
		"-id\x00abc":          "",
		"":                    "",
	} {
		if got := parseShimCmdline([]byte(text)); got != want {
			t.Errorf("%q: %q", text, got)
		}
	}
}

func fuzz(f *testing.F, seeds []string, parse func([]byte)) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	entries, _ := os.ReadDir("testdata")
	for _, e := range entries {
		if !e.IsDir() {
			f.Add(testdata(f, e.Name()))
		}
	}
	f.Fuzz(func(_ *testing.T, b []byte) { parse(b) })
}

func FuzzParseStatus(f *testing.F) {
	fuzz(f, nil, func(b []byte) {
		s, err := parseStatus(b)
		if err == nil && (!utf8.ValidString(s.Comm) || strings.ContainsAny(s.Comm, "\n\x1b")) {
			panic(s.Comm)
		}
		quickStatus(b)
	})
}

func FuzzParseStat(f *testing.F) { fuzz(f, nil, func(b []byte) { _, _ = parseStat(b) }) }

func FuzzParseStack(f *testing.F) {
	seeds := []string{"do_sigtimedwait.isra.0", "[<0>] foo.constprop.0.isra.0.cold+0x1/0x2 [fuse]\n[<0>] .slowpath+0x1/0x2\n", "foo.llvm.123456", ".cold.part.0", "a..cold", "a.b.lto_priv.0"}
	fuzz(f, seeds, func(b []byte) {
		for _, fn := range append(parseStack(b), parseWchan(b)) {
			if !utf8.ValidString(fn) || function([]byte(fn)) != fn {
				panic(fn)
			}
			for _, word := range appended {
				if i := strings.Index(fn+".", "."+word+"."); i > 0 {
					panic(fn)
				}
			}
		}
		if len(b) > 0 && len(function(b)) == 0 {
			panic("nothing is left")
		}
	})
}

func FuzzParseSyscall(f *testing.F) {
	fuzz(f, []string{"running", "-1 0x1 0x2"}, func(b []byte) {
		c, _ := parseSyscall(b)
		operands(c.Name)
	})
}

func FuzzMountinfo(f *testing.F) {
	fuzz(f, []string{hostMounts, containerMounts, `1 2 3: / \0 r - t \777 `}, func(b []byte) {
		table, err := scanMountinfo(bytes.NewReader(b))
		if err != nil {
			panic(err)
		}
		h := &Host{KubeletDir: "/var/lib/kubelet"}
		for i := range table.lines {
			m := h.mountOfTask(&table.lines[i], table, "u-1")
			if !utf8.ValidString(m.Point) {
				panic(m.Point)
			}
			table.holding(table.lines[i].point)
		}
		refutes(&seen{}, &evidence.Mount{})
	})
}

func FuzzCgroupFiles(f *testing.F) {
	fuzz(f, []string{"0::/kubepods/pod1/x\n", "frozen 1\n", "12\n0\n", "50000 100000\n", "max 100000\n",
		"usage_usec 19\nnr_periods 3\nnr_throttled 2\n", "9223372036854771712\n", "max\n"}, func(b []byte) {
		podOfPath(parseCgroup(b))
		parseTasks(b)
		parseKeys(b)
		_, _ = parseFDInfo(0, b)
		parseCorePattern(b)
		_, _ = parseNumber(b)
		_, _ = parseCPUMax(b)
		parseFreezerState(b)
		parseChildren(b)
		_, _ = parseFUSEWaiting(b)
	})
}

func TestParseDirents(t *testing.T) {
	entry := func(size int, name string) []byte {
		b := make([]byte, size)
		binary.NativeEndian.PutUint16(b[16:], uint16(size))
		copy(b[19:], name)
		return b
	}
	var all []byte
	for _, name := range []string{".", "..", "1", "42", "self", "4x", "", "123456"} {
		all = append(all, entry(32, name)...)
	}
	want := []int{7, 1, 42, 123456}
	if d := cmp.Diff(want, parseDirents(all, []int{7})); d != "" {
		t.Error(d)
	}
	// An entry that is cut off, one without a length, one without an end.
	for _, bad := range [][]byte{entry(32, "8")[:31], make([]byte, 40), entry(20, "8")} {
		got := parseDirents(append(entry(24, "1"), bad...), nil)
		if len(got) == 0 || got[0] != 1 {
			t.Errorf("%q: %d", bad, got)
		}
	}
	r, err := newReader("/proc")
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	r.buf = make([]byte, 64) // a few entries at a time
	r.name = append(r.name[:0], '.')
	small, err := r.ids(nil)
	if err != nil || !slices.Contains(small, os.Getpid()) || !slices.IsSorted(small) {
		t.Errorf("the processes are %d, %v", small, err)
	}
}

func FuzzDirents(f *testing.F) {
	fuzz(f, []string{strings.Repeat("\x00", 16) + "\x18\x00\x0412\x00\x00\x00"}, func(b []byte) {
		for _, n := range parseDirents(b, nil) {
			if n < 0 {
				panic(n)
			}
		}
	})
}

func FuzzMapsAndCmdline(f *testing.F) {
	fuzz(f, []string{"1-2 rw-s 0 07:01 12 /x\n", "shim\x00-id\x00x"}, func(b []byte) {
		parseMaps(b)
		parseShimCmdline(b)
		pidOfLink(string(b))
	})
}
