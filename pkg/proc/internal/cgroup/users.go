package cgroup

import (
	"path"
	"path/filepath"
	"strings"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kernfile"
)

// maxUsers bounds the groups of which Used reads the use.
const maxUsers = 1024

// processors returns the hierarchy that counts the use of the processors; ok is false where none does.
func (t *Tree) processors() (c hierarchy, ok bool) {
	if kernfile.Exists(t.Root, kernfile.CgroupControllers) {
		return hierarchy{t.Root, 2}, true
	}
	dir := t.controller("cpuacct")
	return hierarchy{dir, 1}, dir != ""
}

// Used returns how much processor time has been used, in microseconds, by the group of each pod, and by each other group
// at the top and each in a slice at the top; none where the kernel does not count that.
func (t *Tree) Used() map[string]uint64 {
	c, ok := t.processors()
	if !ok {
		return nil
	}
	w := walk{t: t, c: c, r: kernfile.New()}
	out := make(map[string]uint64)
	w.used("", 0, out)
	return out
}

// used adds the groups of a directory. Those above the pods' have the use of these in theirs.
func (w *walk) used(dir string, depth int, out map[string]uint64) {
	entries, _, err := kernfile.List(filepath.Join(w.c.dir, dir), maxSearchDirs)
	if err != nil {
		return
	}
	for _, e := range entries {
		name := e.Name()
		sub := path.Join(dir, name)
		_, pod := podOfElement(name)
		pods := !pod && strings.Contains(sub, "kubepods")
		switch {
		case !e.IsDir() || len(out) == maxUsers:
		case pods && depth < maxSearchDepth, !pod && depth == 0 && strings.HasSuffix(name, ".slice"):
			w.used(sub, depth+1, out)
		default:
			if n, ok := w.use(sub); ok {
				out[sub] = n
			}
		}
	}
}

// use reads how much of the processors a group has used, in microseconds.
func (w *walk) use(dir string) (uint64, bool) {
	if w.c.version == 1 {
		nanos, ok := w.readNumber(filepath.Join(w.c.dir, dir), kernfile.CPUAcctUsage)
		return uint64(max(nanos, 0)) / 1000, ok
	}
	b, err := w.r.Read(filepath.Join(w.c.dir, dir), kernfile.CPUStat)
	if err != nil {
		return 0, false
	}
	n, ok := parseKeys(b)["usage_usec"]
	return n, ok
}

// Quotas returns the path of a process's group, as Used has it, and what that one and those above it may use of the processors, by their
// paths; those without a quota are left out. b is the process's file cgroup.
func (t *Tree) Quotas(b []byte) (own string, quotas map[string]evidence.CPU) {
	c, ok := t.processors()
	if !ok {
		return "", nil
	}
	w := walk{t: t, c: c, r: kernfile.New()}
	own, quotas = ownPath(b, c.version, "cpuacct"), make(map[string]evidence.CPU)
	for dir := own; dir != "/" && dir != ""; dir = path.Dir(dir) {
		if cpu := w.readCPU(dir); cpu != nil && cpu.Millis > 0 {
			quotas[strings.TrimPrefix(dir, "/")] = *cpu
		}
	}
	return strings.TrimPrefix(own, "/"), quotas
}
