package mount

import (
	"os"
	"path/filepath"
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
		"7:1/holders/dm-0/dm/name": "guest-root\n",
		"7:2/loop/backing_file":    device + " (deleted)\n",
		"7:3/loop/backing_file":    "\n",
		"7:4/stat":                 "",
		"8:0/loop/backing_file":    device + "\n",
	} {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	host := &Table{Lines: []Line{{ID: 1, Device: "8:1", Point: "/"}, {ID: 90, Device: "7:2", Point: "/media/disk", Type: "ext4"}}}
	devices := []evidence.Mount{{ID: 6, Point: ""}, {ID: 7, Point: device}}
	got, err := (&View{Blocks: dir}).Loops(host, devices)
	want := []evidence.Loop{
		{Name: "loop1", MountID: 7, Mapper: []string{"guest-root"}},
		{Name: "loop2", MountID: 7, Mount: &evidence.Mount{ID: 90, Device: "7:2", Point: "/media/disk", HostPoint: "/media/disk", Type: "ext4"}},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v %s", err, diff)
	}
	if got, err := (&View{Blocks: dir}).Loops(host, nil); got != nil || err != nil {
		t.Errorf("of no device: %v, %v", got, err)
	}
	if _, err := (&View{Blocks: filepath.Join(dir, "none")}).Loops(host, devices); err == nil {
		t.Error("without a directory there are none, and that is known")
	}
}
