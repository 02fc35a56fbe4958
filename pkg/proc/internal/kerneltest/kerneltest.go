// Package kerneltest has what the tests of several packages below pkg/proc need:
// files as kernels have shown them, and trees of files in their place.
package kerneltest

import (
	"embed"
	"os"
	"path/filepath"
	"testing"
	"time"
)

//go:embed testdata
var files embed.FS

// File returns a captured file.
func File(t testing.TB, name string) []byte {
	t.Helper()
	b, err := files.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Fuzz runs a parser on seeds and captured files, and on what the fuzzer makes of
// them.
func Fuzz(f *testing.F, seeds []string, parse func([]byte)) {
	f.Helper()
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	entries, err := files.ReadDir("testdata")
	if err != nil {
		f.Fatal(err)
	}
	for _, e := range entries {
		f.Add(File(f, e.Name()))
	}
	f.Fuzz(func(_ *testing.T, b []byte) { parse(b) })
}

// Tree makes files below a directory.
func Tree(t testing.TB, root string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// Eventually tries until a condition holds; kernel states take a moment.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("never: %s", what)
}
