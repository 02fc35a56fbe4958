package probe

import (
	"os"
	"path/filepath"
	"testing"
)

// The kubelet's directory is the one with the pod's; and it is told without links, as the mount table has it.
func TestPlaces(t *testing.T) {
	proc, root := t.TempDir(), t.TempDir()
	for _, dir := range []string{"old/pods/u-1", "data/kubelet/pods/u-2", "empty"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(root, "var"), 0o755); err != nil {
		t.Fatal(err)
	}
	// Of a name that begins with / it is the host's root that is meant.
	for name, to := range map[string]string{"var/kubelet": "/data/kubelet", "var/loop": "loop", "var/outside": "../../../../data/kubelet"} {
		if err := os.Symlink(to, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(proc, "1"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(root, filepath.Join(proc, "1", "root")); err != nil {
		t.Fatal(err)
	}
	p := newProber(t)
	for _, tc := range []struct {
		pod  string
		of   []string
		want string
	}{
		{"", []string{"/absent", "/empty", "/old", "/var/kubelet"}, "/old"},
		{"u-2", []string{"/old", "/var/kubelet"}, "/data/kubelet"},
		{"u-3", []string{"/var/kubelet", "/old"}, ""},
		{"u-2", []string{"/var/outside"}, "/data/kubelet"},
		{"../pods/u-1", []string{"/old"}, ""},
		{"u-1", []string{"/var/loop", "/absent", "/empty"}, ""},
	} {
		got, err := p.Place(t.Context(), proc, tc.pod, tc.of...)
		if err != nil || got != tc.want {
			t.Errorf("%+v: %q, %v", tc, got, err)
		}
	}
}
