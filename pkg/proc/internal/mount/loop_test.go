package mount

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

func TestLoops(t *testing.T) {
	const device = "/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/pv-1/dev/u-1"
	dir := t.TempDir()
	for name, text := range map[string]string{
		"7:0/loop/backing_file":    "/var/lib/disk.img\n",
		"7:1/loop/backing_file":    device + "\n",
		"7:1/loop/autoclear":       "0\n",
		"7:1/holders/dm-0/dm/name": "guest-root\n",
		"7:1/holders/dm-0/dm/uuid": "LVM-Ze1OCrSnk0mmdNXlVYzR3lmxqSz2sLdZuWm7TVHDDs3dIRmzKhOlZUbUWlyFmWcD\n",
		"7:1/holders/dm-0/dev":     "254:0\n",
		// What has no name yet, or any more.
		"7:1/holders/dm-9/dev":     "254:9\n",
		"7:1/holders/md9/md/level": "raid1\n",
		"7:2/loop/backing_file":    device + " (deleted)\n",
		"7:2/loop/autoclear":       "1\n",
		"7:3/loop/backing_file":    "\n",
		"7:4/stat":                 "",
		"8:0/loop/backing_file":    device + "\n",

		// Partitions, of which the kernel has the directories in that of the device.
		"7:5/loop/backing_file":            device + "\n",
		"7:5/loop5p1/dev":                  "259:1\n",
		"7:5/loop5p1/holders/dm-1/dm/name": "safe\n",
		"7:5/loop5p1/holders/dm-1/dm/uuid": "CRYPT-LUKS2-1-safe\n",
		"7:5/loop5p1/holders/dm-1/dev":     "254:1\n",
		// On that there is a logical volume, and the file system of another one is mounted.
		"7:5/loop5p1/holders/dm-1/holders/dm-2/dm/name": "in--safe-a--b\n",
		"7:5/loop5p1/holders/dm-1/holders/dm-2/dm/uuid": "LVM-1\n",
		"7:5/loop5p1/holders/dm-1/holders/dm-2/dev":     "254:2\n",
		"7:5/loop5p1/holders/dm-1/holders/dm-3/dm/name": "in--safe-c\n",
		"7:5/loop5p1/holders/dm-1/holders/dm-3/dm/uuid": "LVM-2\n",
		"7:5/loop5p1/holders/dm-1/holders/dm-3/dev":     "254:3\n",
		// One that is on two partitions is told once.
		"7:5/loop5p2/holders/dm-3/dm/name": "in--safe-c\n",
		"7:5/loop5p2/holders/dm-3/dev":     "254:3\n",
		"7:5/loop5p2/dev":                  "259:2\n",
		"7:5/loop5p3/start":                "1\n",
		"7:5/loop51/dev":                   "259:3\n",

		// A software RAID with a partition, on which there is a logical volume, and others.
		"7:6/loop/backing_file":                          device + "\n",
		"7:6/holders/md127/dev":                          "9:127\n",
		"7:6/holders/md127/md/array_state":               "clean\n",
		"7:6/holders/md127/md127p1/dev":                  "259:8\n",
		"7:6/holders/md127/md127p1/holders/dm-4/dm/name": "raid-a\n",
		"7:6/holders/md127/md127p1/holders/dm-4/dm/uuid": "LVM-3\n",
		"7:6/holders/md127/md127p1/holders/dm-4/dev":     "254:4\n",
		"7:6/holders/md127/md127p2/dev":                  "259:9\n",
		"7:6/holders/md127/md/dev-loop6/state":           "in_sync\n",
		"7:6/holders/md_home/dev":                        "9:126\n",
		"7:6/holders/md_home/md/array_state":             "inactive\n",
		"7:6/holders/md_home/md_home1/dev":               "259:10\n",
		"7:6/holders/bcache0/dev":                        "252:0\n",
	} {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	host := &Table{Lines: []Line{
		{ID: 1, Device: "8:1", Point: "/"}, {ID: 90, Device: "7:2", Point: "/media/disk", Type: "ext4"},
		{ID: 91, Device: "259:2", Point: "/media/part", Type: "ext4"}, {ID: 92, Device: "259:3", Point: "/media/another", Type: "ext4"},
		{ID: 93, Device: "254:3", Point: "/media/volume", Type: "xfs"}, {ID: 94, Device: "259:9", Point: "/media/array", Type: "ext4"},
	}}
	devices := []evidence.Mount{{ID: 6, Point: ""}, {ID: 7, Point: device}}
	got, err := (&View{Blocks: dir}).Loops(host, devices)
	slices.SortFunc(got, func(a, b evidence.Loop) int { return strings.Compare(a.Name, b.Name) })
	want := []evidence.Loop{
		{Name: "loop1", MountID: 7, Numbers: []string{"7:1"}, Mapper: []evidence.Mapped{{Name: "guest-root", Logical: "guest/root"}}},
		{Name: "loop2", MountID: 7, Numbers: []string{"7:2"}, Released: true, Mount: &evidence.Mount{ID: 90, Device: "7:2", Point: "/media/disk",
			HostPoint: "/media/disk", Type: "ext4"}},
		{
			Name: "loop5", MountID: 7, Numbers: []string{"7:5", "259:1", "259:2"},
			Mapper: []evidence.Mapped{
				{Name: "safe"}, {Name: "in--safe-a--b", Logical: "in-safe/a-b"},
				{
					Name: "in--safe-c", Logical: "in-safe/c",
					Mount: &evidence.Mount{ID: 93, Device: "254:3", Point: "/media/volume", HostPoint: "/media/volume", Type: "xfs"},
				},
			},
			Mount: &evidence.Mount{ID: 91, Device: "259:2", Point: "/media/part", HostPoint: "/media/part", Type: "ext4"},
		},
		{Name: "loop6", MountID: 7, Numbers: []string{"7:6"}, Mapper: []evidence.Mapped{
			{Kind: evidence.MadeByOther, Name: "bcache0"},
			{Kind: evidence.MadeByMD, Name: "md127", Mount: &evidence.Mount{ID: 94, Device: "259:9", Point: "/media/array", HostPoint: "/media/array", Type: "ext4"}},
			{Kind: evidence.MadeByMD, Name: "md_home"},
			{Name: "raid-a", Logical: "raid/a"},
		}},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v %s", err, diff)
	}
	// Where partitions have minor numbers of the same kind, the device has a number of its own.
	blocks := t.TempDir()
	for _, name := range []string{"7:80", "7:81"} {
		to := map[string]string{"7:80": "loop5", "7:81": "loop5/loop5p1"}[name]
		if err := os.Symlink(filepath.Join(dir, to), filepath.Join(blocks, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Rename(filepath.Join(dir, "7:5"), filepath.Join(dir, "loop5")); err != nil {
		t.Fatal(err)
	}
	got, err = (&View{Blocks: blocks}).Loops(host, devices)
	want[2].Numbers[0] = "7:80"
	if diff := cmp.Diff(want[2:3], got); diff != "" || err != nil {
		t.Errorf("with loop.max_part: %v %s", err, diff)
	}
	if got, err := (&View{Blocks: dir}).Loops(host, nil); got != nil || err != nil {
		t.Errorf("of no device: %v, %v", got, err)
	}
	if _, err := (&View{Blocks: filepath.Join(dir, "none")}).Loops(host, devices); err == nil {
		t.Error("without a directory there are none, and that is known")
	}
}

// The names are what LVM makes of its names for the device mapper.
func TestLogicalVolume(t *testing.T) {
	for name, want := range map[string]string{
		"vg-lv": "vg/lv", "my--vg-my--lv": "my-vg/my-lv", "vg-lv-real": "vg/lv", "a----b-c": "a--b/c", "vg-pool_tmeta": "vg/pool_tmeta",
		"": "", "safe": "", "-lv": "", "vg-": "", "my--vg": "",
	} {
		if got := logicalVolume(name); got != want {
			t.Errorf("%q is %q, want %q", name, got, want)
		}
	}
}

// A path inside of a pod's volume is private, and what is mounted on top of a mount would be
// unmounted in its place.
func TestMountOf(t *testing.T) {
	const volume = "/var/lib/kubelet/pods/u/volumes/kubernetes.io~empty-dir/cache"
	host := &Table{Lines: []Line{
		{ID: 1, Device: "8:1", Point: "/"}, {ID: 2, Device: "254:0", Point: volume + "/secret"},
		{ID: 3, Device: "254:1", Point: "/mnt"}, {ID: 4, Device: "8:2", Point: "/mnt"},
		{ID: 5, Device: "254:2", Point: "/srv"}, {ID: 6, Device: "254:2", Point: "/srv"},
	}}
	v := &View{KubeletDir: "/var/lib/kubelet"}
	for device, want := range map[string][2]string{"254:0": {volume, volume}, "254:1": {"/mnt", ""}, "8:2": {"/mnt", "/mnt"}, "254:2": {"/srv", "/srv"}} {
		if m := v.mountOf(host, device); m == nil || m.Point != want[0] || m.HostPoint != want[1] {
			t.Errorf("%s is %+v, want %q", device, m, want)
		}
	}
	if m := v.mountOf(host, "254:9"); m != nil {
		t.Errorf("a device that is not mounted is at %q", m.Point)
	}
}
