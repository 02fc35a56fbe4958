package image

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func TestFullName(t *testing.T) {
	for short, want := range map[string]string{
		"busybox:test":            "docker.io/library/busybox:test",
		"me/agent:1":              "docker.io/me/agent:1",
		"nodeagent.test/pause:1":  "nodeagent.test/pause:1",
		"localhost:5000/a/b:dev":  "localhost:5000/a/b:dev",
		"agent":                   "",
		"UPPER:1":                 "",
		"docker.io/library/x:tag": "docker.io/library/x:tag",
	} {
		got, err := FullName(short)
		if got != want || (err != nil) != (want == "") {
			t.Errorf("FullName(%s) = %q, %v, want %q", short, got, err, want)
		}
	}
}

func TestParseFile(t *testing.T) {
	if got, err := ParseFile("a/b:/c/../d"); err != nil || got != (File{"a/b", "/d"}) {
		t.Errorf("ParseFile = %+v, %v", got, err)
	}
	for _, broken := range []string{"", "a", ":/b", "a:", "a:b"} {
		if _, err := ParseFile(broken); err == nil {
			t.Errorf("ParseFile(%q) gives no error", broken)
		}
	}
}

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	source := filepath.Join(dir, "source")
	if err := os.MkdirAll(filepath.Join(source, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(source, "sub", "run"), []byte("text"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("run", filepath.Join(source, "sub", "link")); err != nil {
		t.Fatal(err)
	}
	spec := Spec{
		Name: "a:1", Entrypoint: []string{"/opt/x/sub/run"}, StopSignal: "SIGQUIT",
		Files: []File{{source, "/opt/x"}, {filepath.Join(source, "sub", "run"), "/opt/run"}},
	}
	to := filepath.Join(dir, "a.tar")
	if err := Write(to, spec); err != nil {
		t.Fatal(err)
	}
	img, err := tarball.ImageFromPath(to, nil)
	if err != nil {
		t.Fatal(err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.OS != "linux" || config.Architecture != "amd64" || !slices.Equal(config.Config.Entrypoint, spec.Entrypoint) || config.Config.StopSignal != "SIGQUIT" {
		t.Errorf("config %+v", config)
	}
	layers, err := img.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers, %v", len(layers), err)
	}
	content, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	var got []string
	for r := tar.NewReader(content); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%s %o %s", h.Name, h.Mode, h.Linkname))
	}
	want := []string{"opt/ 755 ", "opt/x/ 755 ", "opt/x/sub/ 755 ", "opt/x/sub/link 777 run", "opt/x/sub/run 755 ", "opt/run 755 "}
	if !slices.Equal(got, want) {
		t.Errorf("files %q, want %q", got, want)
	}
	if left, _ := filepath.Glob(to + ".*"); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}
