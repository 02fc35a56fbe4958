package mount

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kernfile"
)

// readFUSEWaiting gives the number of requests that wait for the daemon of a
// FUSE connection. A connection is named after the minor number of its mount's
// device (Documentation/filesystems/fuse.rst); dir is
// /sys/fs/fuse/connections. A healthy connection goes back to 0.
func readFUSEWaiting(dir, device string) (int, error) {
	_, minor, _ := strings.Cut(device, ":")
	if _, err := strconv.ParseUint(minor, 10, 32); err != nil {
		return 0, fmt.Errorf("device %q has no minor number", device)
	}
	b, err := kernfile.Read(filepath.Join(dir, minor), kernfile.FUSEWaiting)
	if err != nil {
		return 0, err
	}
	return parseFUSEWaiting(b)
}

func parseFUSEWaiting(b []byte) (int, error) {
	n, err := strconv.Atoi(string(bytes.TrimSpace(b)))
	if err != nil {
		return 0, fmt.Errorf("requests of a FUSE connection: %w", err)
	}
	return n, nil
}

// WaitingConnections gives the minor numbers of the FUSE connections of the
// whole kernel that have requests waiting. The directory lists those of all
// mount namespaces.
func WaitingConnections(dir string) ([]string, error) {
	entries, truncated, err := kernfile.List(dir, 4096)
	if err != nil {
		return nil, err
	}
	if truncated {
		return nil, fmt.Errorf("more than %d FUSE connections", len(entries))
	}
	var out []string
	for _, e := range entries {
		n, err := readFUSEWaiting(dir, "0:"+e.Name())
		if kernfile.Gone(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if n > 0 {
			out = append(out, e.Name())
		}
	}
	return out, nil
}

// AskDaemon fills in whether a FUSE mount is the only one of the node whose daemon
// has requests to answer.
func (v *View) AskDaemon(e *evidence.Mount) {
	if e.FUSEWaiting == nil || *e.FUSEWaiting == 0 {
		return
	}
	waiting, err := WaitingConnections(v.FUSE)
	_, minor, _ := strings.Cut(e.Device, ":")
	e.OnlyWaiting = err == nil && len(waiting) == 1 && waiting[0] == minor
}

// OnlyFUSE returns the mount of one of the connections, nil when none or several
// of them are mounted.
func (t *Table) OnlyFUSE(minors []string) *Line {
	var found *Line
	for i := range t.Lines {
		m := &t.Lines[i]
		major, minor, _ := strings.Cut(m.Device, ":")
		if major != "0" || !strings.HasPrefix(m.Type, "fuse") || !slices.Contains(minors, minor) {
			continue
		}
		if found != nil && found.Device != m.Device {
			return nil
		}
		if found == nil {
			found = m
		}
	}
	return found
}
