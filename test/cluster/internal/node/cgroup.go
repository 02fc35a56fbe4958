package node

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodeagent-io/nodeagent/test/cluster/internal/state"
)

// A hierarchy of cgroups, where this machine has it mounted.
type hierarchy struct {
	dir string
	// names are those of its controllers, or name=… for one without; a v2 hierarchy has none.
	names string
	v2    bool
}

// hierarchies are those of this machine that a native node gets a group in: all of
// v1, with v2 beside them for the processes alone, or v2.
func hierarchies() ([]hierarchy, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	all := parseHierarchies(string(data))
	if hierarchyNames(all) == "" {
		return nil, errors.New("cgroups with the controllers cpu, memory and pids, mounted below /sys/fs/cgroup")
	}
	return all, nil
}

func parseHierarchies(mountinfo string) []hierarchy {
	var all []hierarchy
	for line := range strings.Lines(mountinfo) {
		mount, source, ok := strings.Cut(strings.TrimSpace(line), " - ")
		m, s := strings.Fields(mount), strings.Fields(source)
		if !ok || len(m) < 5 || len(s) < 3 || (s[0] != "cgroup" && s[0] != "cgroup2") {
			continue
		}
		h := hierarchy{dir: m[4], v2: s[0] == "cgroup2"}
		if !h.v2 {
			h.names = controllers(s[2])
		}
		if strings.ContainsAny(h.dir, `\`) || (!h.v2 && h.names == "") {
			continue
		}
		if !slices.ContainsFunc(all, func(o hierarchy) bool { return o.v2 == h.v2 && o.names == h.names }) {
			all = append(all, h)
		}
	}
	return all
}

// controllers takes the options of the mount from the controllers: both are in one list.
func controllers(options string) string {
	other := []string{"rw", "ro", "xattr", "noprefix", "clone_children", "cpuset_v2_mode"}
	var names []string
	for option := range strings.SplitSeq(options, ",") {
		if !slices.Contains(other, option) && !strings.HasPrefix(option, "release_agent=") {
			names = append(names, option)
		}
	}
	return strings.Join(names, ",")
}

// hierarchyNames is what the node mounts: the hierarchies of v1 by their names, else v2.
func hierarchyNames(all []hierarchy) string {
	var names []string
	memory, v2 := false, false
	for _, h := range all {
		v2 = v2 || h.v2
		if !h.v2 {
			names = append(names, h.names)
			memory = memory || slices.Contains(strings.Split(h.names, ","), "memory")
		}
	}
	switch {
	case memory:
		return strings.Join(names, " ")
	case v2:
		return "v2"
	}
	return ""
}

// groupName is the cluster's: two caches may hold a cluster of the same checkout.
func groupName(d state.Dir) string {
	sum := sha256.Sum256([]byte(d.Path))
	return "nodeagent-" + hex.EncodeToString(sum[:4])
}

// nodeGroups are the folders of a node's cgroups.
func nodeGroups(d state.Dir, all []hierarchy, name string) []string {
	var dirs []string
	for _, h := range all {
		dirs = append(dirs, filepath.Join(h.dir, groupName(d), name))
	}
	return dirs
}

// Natives are the native nodes that have cgroups, whatever the state file says.
func Natives(d state.Dir) []string {
	all, _ := hierarchies()
	names := map[string]bool{}
	for _, h := range all {
		entries, _ := os.ReadDir(filepath.Join(h.dir, groupName(d)))
		for _, e := range entries {
			if e.IsDir() {
				names[e.Name()] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// makeGroups makes the cluster's group and the node's below it in every hierarchy.
func makeGroups(d state.Dir, all []hierarchy, name string) error {
	unified := hierarchyNames(all) == "v2"
	for _, h := range all {
		if h.v2 && unified {
			if err := handOn(d, h.dir); err != nil {
				return err
			}
		}
		for dir, rest := h.dir, []string{groupName(d), name}; len(rest) > 0; rest = rest[1:] {
			parent := dir
			dir = filepath.Join(dir, rest[0])
			if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("make its cgroup: %w", err)
			}
			if h.v2 && unified && len(rest) > 1 {
				if err := enable(dir, available(dir)); err != nil {
					return err
				}
			}
			if !h.v2 {
				inherit(parent, dir)
			}
		}
	}
	return nil
}

// inherit gives a new group of v1 what one of v2 has by itself: its parent's
// processors, and a limit that counts for the groups below, too. Most hierarchies
// have no such files.
func inherit(parent, dir string) {
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		if value, err := os.ReadFile(filepath.Join(parent, file)); err == nil {
			_ = os.WriteFile(filepath.Join(dir, file), value, 0)
		}
	}
	if value, err := os.ReadFile(filepath.Join(dir, "memory.use_hierarchy")); err == nil && string(value) == "0\n" {
		_ = os.WriteFile(filepath.Join(dir, "memory.use_hierarchy"), []byte("1"), 0)
	}
}

// handedOn is where handOn keeps what it did.
func handedOn(d state.Dir) string { return d.File("cgroup-controllers") }

// handOn makes the top of the v2 hierarchy hand the controllers on that a node needs,
// where it does not do so already.
func handOn(d state.Dir, top string) error {
	data, err := os.ReadFile(filepath.Join(top, "cgroup.subtree_control"))
	if err != nil {
		return err
	}
	on, can := strings.Fields(string(data)), available(top)
	var missing []string
	for _, c := range []string{"cpu", "memory", "pids", "cpuset"} {
		switch {
		case slices.Contains(on, c):
		case slices.Contains(can, c):
			missing = append(missing, c)
		case c != "cpuset":
			return fmt.Errorf("its cgroup needs the controller %s, which %s does not have", c, top)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	kept, err := os.ReadFile(handedOn(d))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.WriteFile(handedOn(d), append(kept, strings.Join(missing, " ")+"\n"...), 0o600); err != nil {
		return err
	}
	return enable(top, missing)
}

func available(dir string) []string {
	data, _ := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	return strings.Fields(string(data))
}

func enable(dir string, controllers []string) error {
	for _, c := range controllers {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+c), 0); err != nil {
			return fmt.Errorf("hand the controller %s on to the cgroups in %s: %w", c, dir, err)
		}
	}
	return nil
}

// endGroups kills every process in these groups and below, and returns when none is
// left. A frozen one would not even die, so all are thawed first, and the cluster's
// group above them.
func endGroups(ctx context.Context, dirs []string) error {
	for {
		pids := processesIn(dirs)
		if len(pids) == 0 {
			return nil
		}
		for _, dir := range dirs {
			thaw(filepath.Dir(dir))
		}
		below(dirs, thaw)
		for _, pid := range pids {
			killIn(pid, dirs)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the end of its processes: %w: %s", context.Cause(ctx), processNames(pids))
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func thaw(dir string) {
	for file, value := range map[string]string{"freezer.state": "THAWED", "cgroup.freeze": "0"} {
		if _, err := os.Stat(filepath.Join(dir, file)); err == nil {
			_ = os.WriteFile(filepath.Join(dir, file), []byte(value), 0)
		}
	}
}

// below calls f for each of the folders and all folders in them, parents first.
func below(dirs []string, f func(dir string)) {
	for _, dir := range dirs {
		_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err == nil && e.IsDir() {
				f(path)
			}
			return nil
		})
	}
}

func processesIn(dirs []string) []int {
	pids := map[int]bool{}
	below(dirs, func(dir string) {
		data, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		for _, field := range bytes.Fields(data) {
			if pid, err := strconv.Atoi(string(field)); err == nil && pid > 0 {
				pids[pid] = true
			}
		}
	})
	return slices.Sorted(maps.Keys(pids))
}

// killIn kills a process if it is in one of these groups. The handle is opened before
// that is looked up, so the pid cannot pass to another in between.
func killIn(pid int, dirs []string) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return
	}
	for _, dir := range dirs {
		own := "/" + filepath.Base(filepath.Dir(dir)) + "/" + filepath.Base(dir)
		if strings.Contains(string(data)+"/", own+"\n") || strings.Contains(string(data), own+"/") {
			_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
			return
		}
	}
}

// processNames tells what processes are and what they wait for in the kernel.
func processNames(pids []int) string {
	var all []string
	for _, pid := range pids[:min(len(pids), 5)] {
		name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		if err != nil {
			continue
		}
		where, _ := os.ReadFile(fmt.Sprintf("/proc/%d/wchan", pid))
		all = append(all, fmt.Sprintf("%d (%s, in %s)", pid, strings.TrimSpace(string(name)), where))
	}
	return strings.Join(all, ", ")
}

// removeGroups removes the node's groups, and the cluster's with the last of them.
func removeGroups(ctx context.Context, d state.Dir, all []hierarchy, name string) error {
	for _, dir := range nodeGroups(d, all, name) {
		for {
			err := removeTree(dir)
			if err == nil {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("remove its cgroup: %w", err)
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
	for _, h := range all {
		// Another node may still be in it.
		err := os.Remove(filepath.Join(h.dir, groupName(d)))
		if !h.v2 || (err != nil && !errors.Is(err, fs.ErrNotExist)) {
			continue
		}
		kept, _ := os.ReadFile(handedOn(d))
		for _, c := range strings.Fields(string(kept)) {
			// Refused where somebody else has come to need it.
			_ = os.WriteFile(filepath.Join(h.dir, "cgroup.subtree_control"), []byte("-"+c), 0)
		}
		_ = os.Remove(handedOn(d))
	}
	return nil
}

// removeTree removes a folder of cgroups and those in it; their files go with them.
func removeTree(dir string) error {
	var dirs []string
	below([]string{dir}, func(dir string) { dirs = append(dirs, dir) })
	for _, dir := range slices.Backward(dirs) {
		if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.ENOENT) {
			return &fs.PathError{Op: "rmdir", Path: dir, Err: err}
		}
	}
	return nil
}
