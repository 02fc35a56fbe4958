package node

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"testing"
)

// A node that is to have another containerd than its disk gets the programs, which can be executed, and not what they were
// compiled from. All others get no program.
func TestSeedHoldsPrograms(t *testing.T) {
	programs := t.TempDir()
	if err := os.MkdirAll(filepath.Join(programs, "source"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"containerd": "new", "source/go.mod": "module x"} {
		if err := os.WriteFile(filepath.Join(programs, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for dir, want := range map[string]map[string]string{
		"":       {"etc/hostname": "600 vm1"},
		programs: {"etc/hostname": "600 vm1", "usr/local/bin/containerd": "755 new"},
	} {
		file := filepath.Join(t.TempDir(), "seed")
		if err := writeArchive(file, map[string][]byte{"etc/hostname": []byte("vm1")}, dir); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if len(data)%4096 != 0 {
			t.Errorf("the disk has %d bytes, which are no whole sectors", len(data))
		}
		if got := contents(t, data); !maps.Equal(got, want) {
			t.Errorf("with programs of %q the disk holds %v, want %v", dir, got, want)
		}
	}
}

// contents returns mode and text of the files of a tar archive.
func contents(t *testing.T, archive []byte) map[string]string {
	t.Helper()
	files := map[string]string{}
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name] = fmt.Sprintf("%o %s", h.Mode, text)
	}
}
