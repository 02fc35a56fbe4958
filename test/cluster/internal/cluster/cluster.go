// Package cluster starts and ends the cluster of one checkout.
package cluster

import (
	"fmt"
	"os"

	"github.com/nodeagent-io/nodeagent/test/cluster/internal/artefact"
	"github.com/nodeagent-io/nodeagent/test/cluster/internal/cache"
	"github.com/nodeagent-io/nodeagent/test/cluster/internal/state"
)

// Handle is the cluster of one checkout, running or not.
type Handle struct {
	Checkout string
	Cache    cache.Cache
	Dir      state.Dir
}

// Find returns the cluster of the checkout that this process works in.
func Find() (Handle, error) {
	wd, err := os.Getwd()
	if err != nil {
		return Handle{}, err
	}
	checkout, err := state.Checkout(wd)
	if err != nil {
		return Handle{}, err
	}
	c, err := cache.Open(os.Getenv)
	if err != nil {
		return Handle{}, err
	}
	return Handle{Checkout: checkout, Cache: c, Dir: state.DirOf(c, checkout)}, nil
}

// Maker makes artefacts and tells about it on standard error.
func (h Handle) Maker() artefact.Maker { return artefact.Maker{Cache: h.Cache, Say: say} }

func say(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

// lockPath is outside the state folder, which `down` removes.
func (h Handle) lockPath() string { return h.Cache.Dir + "/locks/cluster-" + baseName(h.Dir.Path) }
