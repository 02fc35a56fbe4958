package probe

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"golang.org/x/sys/unix"
)

func TestEmptyDirOf(t *testing.T) {
	const dir = "/var/lib/kubelet/pods/" + pod + "/volumes/kubernetes.io~empty-dir"
	for path, want := range map[string]string{
		dir + "/scratch":               pod + " scratch",
		dir + "/scratch/a/b":           pod + " scratch",
		dir + "/scratch/a (deleted)":   pod + " scratch",
		dir + "/scratch" + dir + "/no": pod + " scratch",
		dir:                            "",
		"/tmp" + dir + "/scratch":      "",
		"/var/lib/kubelet/pods/" + pod + "/volumes/kubernetes.io~csi/scratch/mount": "",
		"/var/lib/kubelet/pods/" + pod + "/plugins/kubernetes.io~empty-dir/scratch": "",
		"/var/lib/kubelet/pods": "",
		"pipe:[7]":              "",
		"":                      "",
	} {
		got := ""
		if pod, volume, ok := emptyDirOf("/var/lib/kubelet/", path); ok {
			got = pod + " " + volume
		}
		if got != want {
			t.Errorf("%q: %q, want %q", path, got, want)
		}
	}
}

// Of the directories of a volume that are open, the one that changed last tells.
func TestEmptyDirs(t *testing.T) {
	kubelet, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	volume := filepath.Join(kubelet, "pods", pod, "volumes/kubernetes.io~empty-dir/scratch")
	inner, other := filepath.Join(volume, "a/b"), filepath.Join(filepath.Dir(volume), "other")
	for _, dir := range []string{inner, other} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{filepath.Join(inner, "1"), filepath.Join(other, "file")} {
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// No other volume counts than those with a directory open, and a time that a program has set does not.
	for _, name := range []string{volume, inner, filepath.Join(other, "file")} {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
	}
	never := time.Now().Add(time.Hour)
	if err := os.Chtimes(inner, never, never); err != nil {
		t.Fatal(err)
	}
	p, self := newProber(t), &evidence.Task{PID: os.Getpid(), TID: os.Getpid()}
	ask := func() time.Time {
		t.Helper()
		saw, err := p.EmptyDirs(t.Context(), "/proc", self, "kubelet", kubelet)
		if err != nil || len(saw.EmptyDirs) != 1 || saw.EmptyDirs[0].Pod != pod || saw.EmptyDirs[0].Volume != "scratch" {
			t.Fatalf("%+v, %v", saw.EmptyDirs, err)
		}
		if c := saw.EmptyDirs[0].Changed; c.IsZero() || c.After(time.Now()) {
			t.Fatal("changed at", c)
		}
		return saw.EmptyDirs[0].Changed
	}
	first := ask()
	if again := ask(); !again.Equal(first) {
		t.Errorf("nothing was done, and it changed at %v and then at %v", first, again)
	}
	for after := first; !after.After(first); after = ask() { // until the next tick of the kernel's clock
		name := filepath.Join(inner, "1")
		if err := errors.Join(os.WriteFile(name, nil, 0o600), os.Remove(name)); err != nil {
			t.Fatal(err)
		}
	}
}

// A directory in which files are deleted while the helper reads counts.
func TestEmptyDirChangesMeanwhile(t *testing.T) {
	kubelet, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	volume := filepath.Join(kubelet, "pods", pod, "volumes/kubernetes.io~empty-dir/scratch")
	if err := os.MkdirAll(volume, 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(volume)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	asked := writerFunc(func() error { // before each file
		for began := time.Now(); ; {
			name := filepath.Join(volume, "file")
			if err := errors.Join(os.WriteFile(name, nil, 0o600), os.Remove(name)); err != nil {
				return err
			}
			var st unix.Stat_t
			if err := unix.Stat(volume, &st); err != nil || time.Unix(st.Ctim.Unix()).After(began) {
				return err
			}
		}
	})
	p := probe{request: request{What: emptyDirs, Proc: "/proc", PID: os.Getpid(), TID: os.Getpid(), Dir: kubelet}, out: asked}
	if p.run(); p.err != nil || len(p.seen.EmptyDirs) != 1 {
		t.Errorf("%+v, %v", p.seen.EmptyDirs, p.err)
	}
}

// A writerFunc is called before what is written goes nowhere.
type writerFunc func() error

func (f writerFunc) Write(b []byte) (int, error) {
	if err := f(); err != nil {
		return 0, err
	}
	return io.Discard.Write(b)
}
