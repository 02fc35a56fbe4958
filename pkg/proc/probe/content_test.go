package probe

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

func TestParseContent(t *testing.T) {
	const store = "/data/containerd/io.containerd.content.v1.content/"
	for file, want := range map[string][2]bool{
		store + "ingest/0a1b/data":                                {true, false},
		store + "ingest/0a1b/data (deleted)":                      {},
		store + "ingest/0a1b/ref":                                 {},
		store + "blobs/sha256/0a1b":                               {false, true},
		store + "blobs/sha256/0a1b (deleted)":                     {false, true},
		"/data/containerd/io.containerd.metadata.v1.bolt/meta.db": {},
		"/ingest/0a1b/data":                                       {},
		"socket:[17]":                                             {},
	} {
		if ingest, blob := parseContent(file); ingest != want[0] || blob != want[1] {
			t.Errorf("%s: ingest %t, blob %t", file, ingest, blob)
		}
	}
}

// A download counts while its file is open, and not because it is there.
func TestContent(t *testing.T) {
	store := filepath.Join(t.TempDir(), "io.containerd.content.v1.content")
	create := func(name string) *os.File {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(store, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		f, err := os.Create(filepath.Join(store, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	create("ingest/1/data")
	create("ingest/2/data").Close()
	create("blobs/sha256/3")
	saw, err := newProber(t).Ask(t.Context(), Content, "/proc", &evidence.Task{PID: os.Getpid(), TID: os.Getpid()}, "")
	if err != nil || saw.Ingests != 1 || saw.Blobs != 1 {
		t.Errorf("%d downloads, %d blobs, %v", saw.Ingests, saw.Blobs, err)
	}
}
