// Package cache keeps what is expensive to make: compiled binaries, the Debian
// root file system, the node's disk. An entry is a folder whose name holds the
// hash of everything it was made from, so it never has to be invalidated.
package cache

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Cache is a folder outside every checkout.
type Cache struct{ Dir string }

// Open returns the cache that the environment names: $NODEAGENT_CACHE, else
// nodeagent below $XDG_CACHE_HOME, else ~/.cache/nodeagent.
func Open(getenv func(string) string) (Cache, error) {
	dir := getenv("NODEAGENT_CACHE")
	if dir == "" {
		base := getenv("XDG_CACHE_HOME")
		if base == "" {
			home := getenv("HOME")
			if home == "" {
				return Cache{}, errors.New("no place for the cache: HOME is empty; set NODEAGENT_CACHE to a folder with 6 GB of space")
			}
			base = filepath.Join(home, ".cache")
		}
		dir = filepath.Join(base, "nodeagent")
	}
	if !filepath.IsAbs(dir) {
		return Cache{}, fmt.Errorf("cache folder %q is relative; set NODEAGENT_CACHE to an absolute path", dir)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return Cache{}, fmt.Errorf("make cache folder: %w", err)
	}
	return Cache{Dir: dir}, nil
}

// Path is where the entry of that name and key is, or will be.
func (c Cache) Path(name string, key Key) string {
	return filepath.Join(c.Dir, "artefacts", name+"-"+key.Short())
}

// Entry returns the folder of an entry and lets build make it when it is missing.
// build gets an empty folder under a temporary name; only a finished folder gets
// the entry's name, so an interrupted run leaves nothing that looks complete.
// A second process that wants the same entry waits for the first.
func (c Cache) Entry(ctx context.Context, name string, key Key, build func(dir string) error) (string, error) {
	path := c.Path(name, key)
	if exists(path) {
		return path, nil
	}
	unlock, err := Lock(ctx, filepath.Join(c.Dir, "locks", filepath.Base(path)))
	if err != nil {
		return "", fmt.Errorf("lock cache entry %s: %w", name, err)
	}
	defer unlock()
	if exists(path) {
		return path, nil
	}
	// Whoever holds the lock is alone with this name: what lies there was left
	// by a run that was killed.
	temp := filepath.Join(c.Dir, "tmp", filepath.Base(path))
	if err := os.RemoveAll(temp); err != nil {
		return "", fmt.Errorf("remove the rest of an interrupted run: %w", err)
	}
	for _, dir := range []string{temp, filepath.Dir(path)} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return "", fmt.Errorf("make cache entry %s: %w", name, err)
		}
	}
	defer os.RemoveAll(temp)
	if err := build(temp); err != nil {
		return "", err
	}
	if err := os.Rename(temp, path); err != nil {
		return "", fmt.Errorf("finish cache entry %s: %w", name, err)
	}
	return path, nil
}

// LogFile is where the output of the step that makes an entry goes. It outlives
// the step, so a failure can be read afterwards.
func (c Cache) LogFile(name string) (*os.File, error) {
	dir := filepath.Join(c.Dir, "logs")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make log folder: %w", err)
	}
	return os.Create(filepath.Join(dir, name+".log"))
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}
