package cache

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestKeyOf(t *testing.T) {
	keys := map[Key]string{}
	for name, key := range map[string]Key{
		"two":     KeyOf("ab", "c"),
		"shifted": KeyOf("a", "bc"),
		"joined":  KeyOf("abc"),
		"swapped": KeyOf("c", "ab"),
		"empty":   KeyOf("ab", "c", ""),
	} {
		if other, ok := keys[key]; ok {
			t.Errorf("%s and %s have the same key", name, other)
		}
		keys[key] = name
	}
	if again := KeyOf("ab", "c"); keys[again] != "two" {
		t.Error("the same inputs have two keys")
	}
}

func TestKeyOfTree(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "f")
	key := func() Key {
		t.Helper()
		k, err := KeyOfTree(dir)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	keys := []Key{key()}
	for _, step := range []func() error{
		func() error { return os.WriteFile(file, []byte("1"), 0o644) },
		func() error { return os.WriteFile(file, []byte("2"), 0o644) },
		func() error { return os.Chmod(file, 0o755) },
		func() error { return os.Symlink("f", filepath.Join(dir, "l")) },
		func() error { return os.Rename(file, filepath.Join(dir, "g")) },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
		next := key()
		for i, k := range keys {
			if k == next {
				t.Errorf("step %d has the key of step %d", len(keys), i)
			}
		}
		keys = append(keys, next)
	}
}

func TestEntryIsMadeOnce(t *testing.T) {
	c := Cache{Dir: t.TempDir()}
	made := 0
	build := func(dir string) error {
		made++
		return os.WriteFile(filepath.Join(dir, "f"), []byte("x"), 0o644)
	}
	for range 2 {
		path, err := c.Entry(context.Background(), "thing", KeyOf("k"), build)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(path, "f")); err != nil {
			t.Error(err)
		}
	}
	if made != 1 {
		t.Errorf("built %d times", made)
	}
}

func TestFailedEntryLeavesNothing(t *testing.T) {
	c := Cache{Dir: t.TempDir()}
	broken := errors.New("broken")
	_, err := c.Entry(context.Background(), "thing", KeyOf("k"), func(dir string) error {
		if err := os.WriteFile(filepath.Join(dir, "half"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		return broken
	})
	if !errors.Is(err, broken) {
		t.Fatalf("Entry: %v, want %v", err, broken)
	}
	if _, err := os.Stat(c.Path("thing", KeyOf("k"))); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the entry exists: %v", err)
	}
	// A run that was killed leaves a half-made folder under the temporary name.
	stale := filepath.Join(c.Dir, "tmp", filepath.Base(c.Path("thing", KeyOf("k"))), "half")
	if err := os.MkdirAll(stale, 0o755); err != nil {
		t.Fatal(err)
	}
	path, err := c.Entry(context.Background(), "thing", KeyOf("k"), func(string) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(path, "half")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the rest of a killed run is in the entry: %v", err)
	}
}

func TestTryLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "l")
	unlock, err := TryLock(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := TryLock(path); !errors.Is(err, ErrLocked) {
		t.Errorf("second lock: %v, want ErrLocked", err)
	}
	unlock()
	unlock, err = TryLock(path)
	if err != nil {
		t.Fatal(err)
	}
	unlock()
}

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	for _, test := range []struct {
		env  map[string]string
		want string // empty: an error
	}{
		{map[string]string{"NODEAGENT_CACHE": dir + "/a", "HOME": dir}, dir + "/a"},
		{map[string]string{"XDG_CACHE_HOME": dir + "/x", "HOME": dir}, dir + "/x/nodeagent"},
		{map[string]string{"HOME": dir}, dir + "/.cache/nodeagent"},
		{map[string]string{}, ""},
		{map[string]string{"NODEAGENT_CACHE": "relative"}, ""},
	} {
		c, err := Open(func(name string) string { return test.env[name] })
		if c.Dir != test.want || (err != nil) != (test.want == "") {
			t.Errorf("Open with %v = %q, %v, want %q", test.env, c.Dir, err, test.want)
		}
	}
}
