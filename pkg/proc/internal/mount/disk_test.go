package mount

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

func TestAskDisk(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("254:3/stat", "     100       0     800      10       20        0      160        5        3       15       15        4     "+
		"   0        0        0        2        1\n")
	write("254:3/dm/suspended", "1\n")
	write("254:3/dm/name", "vg-data\n")
	write("8:1/stat", "     100       0     800      10       20        0      160        5        0       15       15\n") // before Linux 4.18
	write("8:2/stat", "1 2\n")
	v := &View{Blocks: dir}
	m := &evidence.Mount{Device: "0:40", Type: "overlay", Backing: &evidence.Mount{Device: "254:3", Type: "ext4"}}
	v.AskDisk(m)
	if d := m.Backing.Disk; m.Disk != nil || d == nil || d.Completed != 126 || d.InFlight != 3 || !d.Suspended || d.Mapper != "vg-data" || d.Read.IsZero() {
		t.Errorf("backing %+v", m.Backing.Disk)
	}
	for device, want := range map[string]bool{"8:1": true, "8:2": false, "8:3": false, "../x:1": false, "8:1/..": false} {
		m := &evidence.Mount{Device: device}
		v.AskDisk(m)
		if d := m.Disk; (d != nil) != want || want && (d.Completed != 120 || d.Suspended) {
			t.Errorf("%s: %+v", device, d)
		}
	}
	m = &evidence.Mount{Device: "8:1"}
	if new(View).AskDisk(m); m.Disk != nil {
		t.Errorf("without a directory: %+v", m.Disk)
	}
}
