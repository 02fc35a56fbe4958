package mount

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A mount in another namespace goes with the host's only if the one below it gets what is
// unmounted there.
func TestCopies(t *testing.T) {
	const volume = "/var/lib/kubelet/pods/u/volumes/kubernetes.io~csi/pv/mount"
	host := scan(t, `27 1 254:0 / / rw shared:1 - ext4 /dev/vda rw
30 27 254:16 / /var/lib/kubelet rw shared:2 - ext4 /dev/vdb rw
40 30 0:50 / `+volume+` rw shared:9 - tmpfs tmpfs rw
41 30 0:51 / /var/lib/kubelet/pods/u/volumes/other rw shared:10 - tmpfs tmpfs rw
45 27 0:60 / /run/private rw - tmpfs tmpfs rw
46 45 0:50 / /run/private/x rw - tmpfs tmpfs rw
`)
	ids := map[int]bool{40: true, 46: true}
	for name, tc := range map[string]struct {
		text string
		want map[int]int
	}{
		"all mounts are slaves": {`127 1 254:0 / / rw master:1 - ext4 /dev/vda rw
130 127 254:16 / /var/lib/kubelet rw master:2 - ext4 /dev/vdb rw
140 130 0:50 / ` + volume + ` rw master:9 - tmpfs tmpfs rw
141 130 0:51 / /var/lib/kubelet/pods/u/volumes/other rw master:10 - tmpfs tmpfs rw
`, map[int]int{140: 40}},
		"a container that has the kubelet's directory elsewhere": {`127 1 0:90 / / rw - overlay overlay rw
130 127 254:16 /pods /host/pods rw master:2 - ext4 /dev/vdb rw
140 130 0:50 / /host/pods/u/volumes/kubernetes.io~csi/pv/mount rw shared:70 master:9 - tmpfs tmpfs rw
`, map[int]int{140: 40}},
		"a peer": {`130 1 254:16 / /k rw shared:2 - ext4 /dev/vdb rw
140 130 0:50 / /k/pods/u/volumes/kubernetes.io~csi/pv/mount rw shared:9 - tmpfs tmpfs rw
`, map[int]int{140: 40}},
		"something is mounted in the copy": {`130 1 254:16 / /k rw shared:2 - ext4 /dev/vdb rw
140 130 0:50 / /k/pods/u/volumes/kubernetes.io~csi/pv/mount rw shared:9 - tmpfs tmpfs rw
150 140 0:70 / /k/pods/u/volumes/kubernetes.io~csi/pv/mount/a rw - tmpfs tmpfs rw
`, map[int]int{}},
		"all mounts are private": {`127 1 254:0 / / rw - ext4 /dev/vda rw
130 127 254:16 / /var/lib/kubelet rw - ext4 /dev/vdb rw
140 130 0:50 / ` + volume + ` rw - tmpfs tmpfs rw
`, map[int]int{}},
		"the mount below was made private since": {`130 127 254:16 / /var/lib/kubelet rw - ext4 /dev/vdb rw
140 130 0:50 / ` + volume + ` rw master:9 - tmpfs tmpfs rw
`, map[int]int{}},
		"it was mounted elsewhere": {`130 127 254:16 / /var/lib/kubelet rw master:2 - ext4 /dev/vdb rw
140 130 0:50 / /var/lib/kubelet/mine rw master:9 - tmpfs tmpfs rw
`, map[int]int{}},
		"another directory of it": {`130 127 254:16 / /var/lib/kubelet rw master:2 - ext4 /dev/vdb rw
140 130 0:50 /a ` + volume + ` rw master:9 - tmpfs tmpfs rw
`, map[int]int{}},
		"below the slave of something else": {`130 127 254:16 / /var/lib/kubelet rw master:3 - ext4 /dev/vdb rw
140 130 0:50 / ` + volume + ` rw master:9 - tmpfs tmpfs rw
`, map[int]int{}},
		"what the copy is mounted on is not known": {`140 130 0:50 / ` + volume + ` rw master:9 - tmpfs tmpfs rw
`, map[int]int{}},
	} {
		if diff := cmp.Diff(tc.want, host.Copies(ids, scan(t, tc.text).Lines)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestMountGroups(t *testing.T) {
	table := scan(t, `1 0 8:1 / / rw - ext4 a rw
2 1 8:2 / /a rw shared:3 - ext4 a rw
3 1 8:3 / /b rw shared:4 master:5 propagate_from:6 - ext4 a rw
4 1 259:1 / /c rw unbindable - ext4 a rw
5 1 7:3 / /d rw master:x - ext4 a rw
`)
	for i, want := range []struct {
		shared, master int
		reaches        bool
	}{{}, {3, 0, true}, {4, 5, true}, {0, 0, true}, {0, 0, true}} {
		if m := &table.Lines[i]; m.Shared != want.shared || m.Master != want.master || m.Reaches() != want.reaches {
			t.Errorf("%s: shared %d, master %d, reaches %t", m.Point, m.Shared, m.Master, m.Reaches())
		}
	}
	if m := OnDevice(table.Lines, []string{"7:2", "259:1"}); m == nil || m.ID != 4 {
		t.Errorf("on the device: %+v", m)
	}
}
