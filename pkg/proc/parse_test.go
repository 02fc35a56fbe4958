package proc

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"testing/iotest"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kerneltest"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kernfile"
	"github.com/nodeagent-io/nodeagent/pkg/proc/probe"
)

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

// Both questions that read such names get the bare ones.
func TestSeenFunctions(t *testing.T) {
	root := t.TempDir()
	kerneltest.Tree(t, root, map[string]string{
		"7/task/7/stat":  string(kerneltest.File(t, "stat_odd_comm")),
		"7/task/7/wchan": "request_wait_answer.isra.0",
		"7/task/7/stack": "[<0>] request_wait_answer.isra.0+0x12f/0x220 [fuse]\n[<0>] fuse_flush.part.0+0x1d2/0x260 [fuse]\n[<0>] do_exit.cold+0x8/0x10\n",
	})
	h := newHost(t)
	h.Proc = root
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	saw, err := h.Prober.Ask(ctx, probe.Task, root, &evidence.Task{PID: 7, TID: 7}, "")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"request_wait_answer", "fuse_flush", "do_exit"}, saw.Stack); d != "" || saw.Wchan != "request_wait_answer" {
		t.Errorf("wchan %s, stack %s", saw.Wchan, d)
	}
	if yes, err := h.blocked(ctx, &kernfile.TaskStatus{Task: evidence.Task{PID: 7, TID: 7, State: evidence.Sleeping}}); !yes || err != nil {
		t.Errorf("blocked: %v, %v", yes, err)
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

func FuzzMountinfo(f *testing.F) {
	kerneltest.Fuzz(f, []string{hostMounts, containerMounts, `1 2 3: / \0 r - t \777 `}, func(b []byte) {
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
		refutes(&probe.Seen{}, &evidence.Mount{})
	})
}

func FuzzSmallFiles(f *testing.F) {
	kerneltest.Fuzz(f, []string{"12\n0\n", "|/bin/x %p\n"}, func(b []byte) {
		parseCorePattern(b)
		parseChildren(b)
		_, _ = parseFUSEWaiting(b)
	})
}
