package mount

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kerneltest"
)

func scan(t testing.TB, text string) *Table {
	t.Helper()
	m, err := Parse(iotest.OneByteReader(strings.NewReader(text)))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestMountinfo(t *testing.T) {
	host := scan(t, kerneltest.HostMounts)
	if host.Bad != 2 {
		t.Errorf("%d bad lines", host.Bad)
	}
	v := &View{KubeletDir: "/var/lib/kubelet"}
	var got []evidence.Mount
	for i := range host.Lines {
		got = append(got, v.Mount(&host.Lines[i]))
	}
	want := []evidence.Mount{
		{ID: 27, ParentID: 1, Device: "254:0", Root: "/", Point: "/", Type: "ext4", Source: "/dev/vda"},
		{ID: 40, ParentID: 27, Device: "0:50", Root: "/", Point: "/var/lib/kubelet/pods/u-1/volumes/kubernetes.io~nfs/vol " +
			"1", Type: "nfs4", Source: "10.0.0.9:/export", Server: "10.0.0.9", Volume: "vol 1", Plugin: "kubernetes.io~nfs"},
		{ID: 41, ParentID: 27, Device: "0:50", Root: "/", Point: "/var/lib/kubelet/pods/u-2/volumes/kubernetes.io~nfs/vol", Type: "nfs4",
			Source: "10.0.0.9:/export", Server: "10.0.0.9", Volume: "vol", Plugin: "kubernetes.io~nfs"},
		{ID: 42, ParentID: 27, Device: "0:51", Root: "/", Point: "/var/lib/kubelet/pods/u-1/volumes/kubernetes.io~csi/pvc-7/mount",
			Type: "fuse.s3", Source: "https://s3.example/bucket", Volume: "pvc-7", Plugin: "kubernetes.io~csi"},
		{ID: 43, ParentID: 27, Device: "254:0", Root: "/data/x", Point: "/var/lib/kubelet/pods/u-1/volume-subpaths/cfg/app/0", Type: "ext4",
			Source: "/dev/vda", ReadOnly: true, Volume: "cfg"},
		{ID: 44, ParentID: 27, Device: "0:52", Root: "/", Point: "/run/containerd/o/rootfs", Type: "overlay", Source: "overlay"},
		{ID: 45, ParentID: 27, Device: "254:16", Root: "/", Point: "/var/lib/containerd", Type: "xfs", Source: "/dev/vdb"},
		{ID: 46, ParentID: 27, Device: "0:53", Root: "/", Point: "/mnt/share", Type: "cifs", Source: "//user@files.example/share", Server: "files.example"},
		{ID: 47, ParentID: 27, Device: "0:54", Root: "/", Point: "/mnt/ceph", Type: "ceph", Source: "10.0.0.1:6789,10.0.0.2:6789:/dir",
			Server: "10.0.0.1:6789,10.0.0.2:6789"},
		{ID: 49, ParentID: 27, Device: "0:56", Root: "/", Point: "/mnt/nosource", Type: "tmpfs"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if n := len(v.PodMounts(host, "u-1")); n != 3 {
		t.Errorf("%d mounts of the pod", n)
	}

	const published = "/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/publish/pvc-9/u-1"
	host.Lines = append(host.Lines, Line{ID: 60, Point: published}, Line{ID: 61, Point: published + "/inner"}, Line{ID: 62, Point: "/mnt/u-1"})
	v = &View{KubeletDir: v.KubeletDir}
	if d := v.PodDevices(host, "u-1"); len(d) != 1 || d[0].ID != 60 || d[0].Volume != "pvc-9" || d[0].Plugin != "kubernetes.io~csi" {
		t.Errorf("the pod's block devices: %+v", d)
	}
	for path, want := range map[string][2]string{
		"kubernetes.io/csi/volumeDevices/pvc-9/dev/u-1":             {"kubernetes.io~csi", "pvc-9"},
		"kubernetes.io/csi/volumeDevices/publish/pvc-9/u-1":         {"kubernetes.io~csi", "pvc-9"},
		"kubernetes.io~local-volume/volumeDevices/pv-1/u-1":         {"kubernetes.io~local-volume", "pv-1"},
		"kubernetes.io/fc/volumeDevices/50060e801049cfd1-lun-0/u-1": {"kubernetes.io~fc", "50060e801049cfd1-lun-0"},
	} {
		if plugin, volume := deviceOf(path); plugin != want[0] || volume != want[1] {
			t.Errorf("%s: volume %s of plugin %s", path, volume, plugin)
		}
	}
	if d := v.PodDevices(host, "u-2"); len(d) != 0 {
		t.Errorf("another pod's block devices: %+v", d)
	}
	v, host.Lines = &View{KubeletDir: v.KubeletDir}, host.Lines[:len(host.Lines)-3]

	own := scan(t, kerneltest.ContainerMounts)
	for _, tt := range []struct{ path, hostPoint, volume, backing string }{
		{"/data/file", "/var/lib/kubelet/pods/u-1/volumes/kubernetes.io~nfs/vol 1", "vol 1", ""},
		{"/cfg", "/var/lib/kubelet/pods/u-1/volume-subpaths/cfg/app/0", "cfg", ""},
		{"/etc/hosts", "/", "", ""},
		{"/s3/x", "/var/lib/kubelet/pods/u-1/volumes/kubernetes.io~csi/pvc-7/mount", "pvc-7", ""},
		{"/database", "/run/containerd/o/rootfs", "", "xfs"},
	} {
		m := v.MountOfTask(own.Holding(tt.path), host, "u-1")
		backing := ""
		if m.Backing != nil {
			backing = m.Backing.Type
		}
		if m.HostPoint != tt.hostPoint || m.Volume != tt.volume || backing != tt.backing {
			t.Errorf("%s: host's %q, volume %q, backing %q", tt.path, m.HostPoint, m.Volume, backing)
		}
	}
	// Without a pod, the volume of either pod would do: no guess.
	if m := v.MountOfTask(own.Holding("/data"), host, ""); m.Volume != "" {
		t.Errorf("volume %q of a device that two pods have", m.Volume)
	}

	long := "50 27 0:60 / /m rw - overlay overlay rw,lowerdir=" + strings.Repeat("/l:", 100_000) + "\n"
	if table := scan(t, long); len(table.Lines) != 1 {
		t.Errorf("a long line: %d, bad %d", len(table.Lines), table.Bad)
	}
	huge := "50 27 0:60 / /m rw - overlay overlay " + strings.Repeat("x", 3*maxMountLine) + "\n51 27 0:61 / /n rw - tmpfs t rw\n"
	if table, err := Parse(strings.NewReader(huge)); err != nil || len(table.Lines) != 1 || table.Bad != 1 || table.Lines[0].Point != "/n" {
		t.Errorf("a line without end: %+v, %v", table, err)
	}
}

// However many mounts there are and however long their names: the table is bounded, and
// says that it is cut.
func TestTableIsBounded(t *testing.T) {
	for _, point := range []int{1, 200, 4000} {
		var text strings.Builder
		for i := range 30_000 {
			fmt.Fprintf(&text, "%d 27 0:60 / /%d/%s rw - tmpfs t rw,size=%s\n", i, i, strings.Repeat("x", point), strings.Repeat("9", 100))
		}
		table, err := Parse(strings.NewReader(text.String()))
		if err != nil || table.Size > maxTable {
			t.Fatalf("%d bytes in the table, %v", table.Size, err)
		}
		if table.Cut == (len(table.Lines) == 30_000) || table.Whole() == table.Cut {
			t.Errorf("points of %d: %d lines, cut %v, whole %v", point, len(table.Lines), table.Cut, table.Whole())
		}
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		table.Lines = nil
		runtime.GC()
		runtime.ReadMemStats(&after)
		if held := int64(before.HeapAlloc) - int64(after.HeapAlloc); held > 2*maxTable {
			t.Errorf("points of %d: the table holds %d bytes", point, held)
		}
	}
}

// The options of a file system that nobody asks for are not kept.
func TestOnlyWantedOptionsAreKept(t *testing.T) {
	table := scan(t, "50 27 0:60 / /m rw - overlay overlay ro,lowerdir=/a:/b,upperdir=/u,workdir=/w\n"+
		"51 27 0:61 / /n rw - cifs //s/x rw,username=me,password=secret,addr=10.0.0.1\n52 27 0:62 / /o rw - tmpfs t\n"+
		"53 27 0:63 / /p rw - nfs4 s:/x rw,vers=4.2,soft,timeo=600,addr=10.0.0.1\n")
	var got []string
	for _, l := range table.Lines {
		got = append(got, l.Super)
	}
	if diff := cmp.Diff([]string{"ro,upperdir=/u", "addr=10.0.0.1", "", "vers=4.2,soft,addr=10.0.0.1"}, got); diff != "" {
		t.Error(diff)
	}
	if v := new(View); !v.Mount(&table.Lines[3]).Soft || v.Mount(&table.Lines[1]).Soft {
		t.Error("a soft mount is not known, or another one is called soft")
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
		m := Line{Type: tt.fstype, Source: tt.source, Super: tt.super}
		if got := m.server(); got != tt.want {
			t.Errorf("%+v: %q", tt, got)
		}
	}
}

func FuzzMountinfo(f *testing.F) {
	kerneltest.Fuzz(f, []string{kerneltest.HostMounts, kerneltest.ContainerMounts, `1 2 3: / \0 r - t \777 `}, func(b []byte) {
		_, _ = parseFUSEWaiting(b)
		table, err := Parse(bytes.NewReader(b))
		if err != nil {
			panic(err)
		}
		v := &View{KubeletDir: "/var/lib/kubelet"}
		for i := range table.Lines {
			m := v.MountOfTask(&table.Lines[i], table, "u-1")
			if !utf8.ValidString(m.Point) {
				panic(m.Point)
			}
			table.Holding(table.Lines[i].Point)
		}
	})
}

// BenchmarkParse measures the mount table of a node with 5,000 mounts.
func BenchmarkParse(b *testing.B) {
	var text bytes.Buffer
	for i := range 5000 {
		fmt.Fprintf(&text, "%d 27 0:%d / /var/lib/kubelet/pods/0b4ddc3e-1111-4222-8333-4444555566%02d/volumes/kubernetes.io~csi/pvc-%d/mount rw,relatime shared:%d"+
			" - nfs4 10.0.0.9:/export rw,vers=4.2,proto=tcp,timeo=600,clientaddr=10.0.0.1,addr=10.0.0.9\n", 100+i, 50+i, i%100, i, i)
	}
	b.ReportAllocs()
	for b.Loop() {
		if t, err := Parse(bytes.NewReader(text.Bytes())); err != nil || len(t.Lines) != 5000 {
			b.Fatal(err)
		}
	}
}

// That requests end with an error when they have timed out is among the options that
// are kept: of another mount it is said that no data is lost.
func TestSoftIsKept(t *testing.T) {
	const line = "36 35 0:40 / /mnt rw shared:1 - nfs4 10.0.0.1:/a rw,vers=4.2,%s,proto=tcp,addr=10.0.0.1\n"
	for option, want := range map[string]bool{"soft": true, "softerr": true, "hard": false} {
		table, err := Parse(strings.NewReader(strings.Replace(line, "%s", option, 1)))
		if err != nil || len(table.Lines) != 1 {
			t.Fatal(table, err)
		}
		if m := (&View{}).Mount(&table.Lines[0]); m.Soft != want {
			t.Errorf("%s: soft %t", option, m.Soft)
		}
	}
}

// A table of thousands of mounts is read in each round: a line costs one allocation.
func TestALineIsAllocatedOnce(t *testing.T) {
	const n = 1000
	text := []byte(strings.Repeat(`40 27 0:50 / /var/lib/kubelet/pods/u-1/volumes/kubernetes.io~nfs/vol\0401 rw,relatime shared:7 - nfs4 10.0.0.9:/export rw,vers=4.2,addr=10.0.0.9`+"\n", n))
	if got := testing.AllocsPerRun(5, func() {
		if table, err := Parse(bytes.NewReader(text)); err != nil || len(table.Lines) != n {
			t.Fatal(table, err)
		}
	}); got > n+50 {
		t.Errorf("%.0f allocations for %d lines", got, n)
	}
}

// Each container in whose directory a mount can be is found, and a line once.
func TestOfContainer(t *testing.T) {
	const c1, s1 = "/run" + Tasks + "c1", "/run" + ImageVolumes + "s1"
	points := []string{"/", c1 + "/rootfs", c1 + "/rootfs" + Tasks + "c1/rootfs" + s1 + "/a", s1 + "/a",
		"/run" + Tasks[:len(Tasks)-1] + Tasks + "c2/rootfs", "/c1/rootfs"}
	var host Table
	for i, p := range points {
		host.Lines = append(host.Lines, Line{ID: i, Point: p})
	}
	v := &View{KubeletDir: "/var/lib/kubelet"}
	for id, want := range map[string][]int{"c1": {1, 2}, "s1": {2, 3}, "c2": {4}, "c": nil} {
		var got []int
		for _, l := range v.OfContainer(&host, id) {
			got = append(got, l.ID)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", id, diff)
		}
	}
}

// A volume is shared when one of the same plugin and name is mounted for another pod.
func TestShared(t *testing.T) {
	const pods = "/var/lib/kubelet/pods/"
	host := &Table{Lines: []Line{
		{ID: 1, Point: pods + "u-1/volumes/kubernetes.io~csi/pvc-7/mount"},
		{ID: 2, Point: pods + "u-1/volumes/kubernetes.io~csi/pvc-7/mount"},
		{ID: 3, Point: pods + "u-1/volumes/kubernetes.io~csi/pvc-8/mount"},
		{ID: 4, Point: pods + "u-1/volumes/kubernetes.io~nfs/pvc-8"},
		{ID: 5, Point: pods + "u-1/volume-subpaths/pvc-9/main/0"},
		{ID: 6, Point: pods + "u-2/volumes/kubernetes.io~csi/pvc-8/mount"},
		{ID: 7, Point: pods + "u-2/volume-subpaths/pvc-9/main/0"},
	}}
	v := &View{KubeletDir: "/var/lib/kubelet"}
	for pod, want := range map[string][]int{"u-1": {3}, "u-2": {6}} {
		var got []int
		for _, m := range v.PodMounts(host, pod) {
			if m.Shared {
				got = append(got, m.ID)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("volumes of %s that another pod has: %v, want %v", pod, got, want)
		}
	}
}
