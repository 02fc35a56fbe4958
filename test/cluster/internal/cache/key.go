package cache

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Key is the hash of all inputs of a cache entry.
type Key string

// Short is the part of a key that goes into file names.
func (k Key) Short() string { return string(k[:12]) }

// KeyOf hashes the inputs in their order. Each one is hashed with its length, so
// that moving a letter from one input to the next changes the key.
func KeyOf(inputs ...string) Key {
	h := sha256.New()
	for _, in := range inputs {
		fmt.Fprintf(h, "%d:%s", len(in), in)
	}
	return Key(hex.EncodeToString(h.Sum(nil)))
}

// KeyOfTree hashes names, modes and contents below root, which may also be one file.
func KeyOfTree(root string) (Key, error) {
	h := sha256.New()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		fmt.Fprintf(h, "%d:%s%o", len(rel), rel, info.Mode())
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			fmt.Fprintf(h, "%d:%s", len(target), target)
		case info.Mode().IsRegular():
			f, err := os.Open(path)
			if err != nil {
				return err
			}
			defer f.Close()
			fmt.Fprintf(h, "%d:", info.Size())
			if _, err := io.Copy(h, f); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("hash %s: %w", root, err)
	}
	return Key(hex.EncodeToString(h.Sum(nil))), nil
}

// KeyOfFS hashes names and contents of an embedded folder.
func KeyOfFS(fsys fs.FS) (Key, error) {
	h := sha256.New()
	err := fs.WalkDir(fsys, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(fsys, path)
		if err != nil {
			return err
		}
		fmt.Fprintf(h, "%d:%s%d:", len(path), path, len(data))
		h.Write(data)
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("hash embedded files: %w", err)
	}
	return Key(hex.EncodeToString(h.Sum(nil))), nil
}
