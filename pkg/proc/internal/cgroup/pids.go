package cgroup

import (
	"bytes"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kernfile"
)

// A Full is a control group that has as many tasks as it may have: the kernel refuses to start
// another one there, with EAGAIN (pids_can_fork, kernel/cgroup/pids.c).
type Full struct {
	Path string // below the mount point of its hierarchy
	// Tasks and Limit are pids.current and pids.max. What is moved into a group, or a limit that is
	// lowered, can make it hold more than it may.
	Tasks, Limit int64
}

// Full returns the group of a process, or the first one above it, that is full; nil when none is.
// b is the process's file cgroup. Groups of pods are passed over: a pod can fill its own by itself.
func (t *Tree) Full(b []byte, pid int) (*Full, error) {
	base, version := t.Root, 2
	if !kernfile.Exists(t.Root, kernfile.CgroupControllers) {
		if base, version = t.controller("pids"), 1; base == "" {
			return nil, nil // the kernel limits no tasks
		}
	}
	r := kernfile.New()
	own := ownPath(b, version, "pids")
	for dir := own; dir != "/" && dir != ""; dir = path.Dir(dir) {
		if uid, _ := PodOfPath(dir); uid != "" {
			continue
		}
		tasks, ok1 := readCount(r, filepath.Join(base, dir), kernfile.PIDsCurrent)
		limit, ok2 := readCount(r, filepath.Join(base, dir), kernfile.PIDsMax)
		if !ok1 || !ok2 || tasks < limit {
			continue
		}
		// The path is as the agent's own namespace of control groups shows it, which need not begin
		// where the hierarchy does.
		procs, err := r.Read(filepath.Join(base, own), kernfile.CgroupProcs)
		if err != nil {
			return nil, fmt.Errorf("read the processes of cgroup %s: %w", own, err)
		}
		if pids, _ := parseTasks(procs); !slices.Contains(pids, pid) {
			return nil, fmt.Errorf("process %d is not in cgroup %s", pid, own)
		}
		return &Full{Path: dir, Tasks: tasks, Limit: limit}, nil
	}
	return nil, nil
}

// ownPath returns the path of a task's group in the hierarchy that has a controller, "" where
// there is none. Outside of the reader's namespace of control groups it begins with /.. (cgroup_namespaces(7)).
func ownPath(b []byte, version int, controller string) string {
	for line := range bytes.Lines(b) {
		f := strings.SplitN(strings.TrimSuffix(string(line), "\n"), ":", 3)
		if len(f) != 3 || version == 2 && f[1] != "" || version == 1 && !listed(f[1], controller) {
			continue
		}
		return path.Clean("/" + strings.TrimSuffix(f[2], " (deleted)"))
	}
	return ""
}

// readCount reads a file that holds a number; not ok where the word for no limit stands, or there
// is none, as at the root.
func readCount(r *kernfile.Reader, dir string, f kernfile.File) (int64, bool) {
	b, err := r.Read(dir, f)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(string(bytes.TrimSpace(b)), 10, 64)
	return n, err == nil
}
