package kernfile

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

func TestPressure(t *testing.T) {
	proc := t.TempDir()
	if p := Pressure(proc); p != nil {
		t.Errorf("without files: %+v, want nil", p)
	}
	if err := os.Mkdir(filepath.Join(proc, "pressure"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, some := range map[string]string{"cpu": "96.75", "memory": "0.00", "io": "1.50"} {
		text := "some avg10=1.00 avg60=" + some + " avg300=69.67 total=7002080882\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
		if err := os.WriteFile(filepath.Join(proc, "pressure", name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want := &evidence.Pressure{CPU: 96.75, IO: 1.5, Memory: 1}
	if diff := cmp.Diff(want, Pressure(proc)); diff != "" {
		t.Errorf("pressure differs (-want +got):\n%s", diff)
	}
}
