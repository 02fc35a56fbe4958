package state

import (
	"fmt"
	"os"
	"path/filepath"
)

// Checkout finds the checkout that a folder is in: the cluster belongs to it.
func Checkout(from string) (string, error) {
	from, err := filepath.EvalSymlinks(from)
	if err != nil {
		return "", fmt.Errorf("find the checkout: %w", err)
	}
	for dir := from; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "test", "cluster", "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("%s is in no checkout of nodeagent; run this inside one", from)
		}
	}
}
