// Package cgroup reads the control groups of a pod, of version 1 or 2: the threads
// in them, who froze them, and what their limits do; and it tells whose a group is
// by its path.
package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kernfile"
)

// A Tree is the host's control groups. It is safe for use by several goroutines.
type Tree struct {
	Root string // where the host's /sys/fs/cgroup is mounted

	mu          sync.Mutex
	kubepods    map[string]kubepods // by directory of the hierarchy
	controllers map[string]string   // directories of version 1's controllers by name
	pods        map[podKey]string   // directory of a pod's group, where Leaders found it
}

// podKey is a pod in a hierarchy.
type podKey struct{ hierarchy, uid string }

// Bounds of the search for a pod's control groups.
const (
	maxSearchDepth = 4      // levels above the first kubepods element
	maxSearchDirs  = 4096   // directories looked into for kubepods elements
	maxGroups      = 1024   // groups below one pod: a pod may run systemd
	maxGroupDepth  = 12     // levels below a pod's group
	maxTasks       = 16_384 // threads of one pod
	searchAgain    = time.Minute
	maxPods        = 1024 // pods of which the directory is remembered
)

// A hierarchy is one mounted tree of control groups: the only one of version 2,
// or that of one controller of version 1.
type hierarchy struct {
	dir     string
	version int
}

// tasksFile is the file that lists exactly the live threads of a group.
// cgroup.procs lists zombie leaders instead of the threads behind them.
func (c hierarchy) tasksFile() kernfile.File {
	if c.version == 1 {
		return kernfile.Tasks
	}
	return kernfile.CgroupThreads
}

// hierarchies lists where a pod may be found. Kubelet makes a pod's group in
// every hierarchy of version 1, and one is enough to find its tasks; on a
// hybrid host the version 2 tree holds no pods.
func hierarchies(root string) ([]hierarchy, error) {
	if kernfile.Exists(root, kernfile.CgroupControllers) {
		return []hierarchy{{root, 2}}, nil
	}
	var out []hierarchy
	for _, name := range []string{"pids", "freezer", "systemd"} {
		dir := filepath.Join(root, name)
		if kernfile.Exists(dir, kernfile.Tasks) {
			out = append(out, hierarchy{dir, 1})
		}
	}
	if len(out) > 0 {
		return out, nil
	}
	entries, _, err := kernfile.List(root, 256)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		dir := filepath.Join(root, e.Name())
		if kernfile.Exists(dir, kernfile.Tasks) {
			out = append(out, hierarchy{dir, 1})
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s contains no cgroups: the host's /sys/fs/cgroup must be mounted there", root)
	}
	return out, nil
}

// podOfElement gives the UID in a path element that is a pod's group: pod<UID> of the cgroupfs driver, or any -pod<UID>.slice of the systemd one,
// which writes _ for -. Where containerd uses cgroupfs and the kubelet systemd, the containers are called <pod's slice>:cri-containerd:<id>.
func podOfElement(element string) (uid string, ok bool) {
	if u, found := strings.CutPrefix(element, "pod"); found && plausibleUID(u) {
		return u, true
	}
	slice, _, _ := strings.Cut(element, ":")
	s, found := strings.CutSuffix(slice, ".slice")
	if !found {
		return "", false
	}
	i := strings.LastIndex(s, "-pod")
	if i < 0 {
		return "", false
	}
	u := strings.ReplaceAll(s[i+4:], "_", "-")
	return u, plausibleUID(u)
}

// plausibleUID accepts a UUID, and the 32 hexadecimal digits that stand for one
// on a static pod.
func plausibleUID(u string) bool {
	if len(u) != 36 && len(u) != 32 {
		return false
	}
	return strings.Trim(u, "0123456789abcdef-") == ""
}

// containerOfElement gives the container's ID that the name of a group directly
// below a pod's holds: <id>, cri-containerd-<id>.scope, crio-<id>.scope,
// docker-<id>.scope; and <slice>:cri-containerd:<id> in place of both.
func containerOfElement(element string) string {
	if i := strings.LastIndexByte(element, ':'); i >= 0 {
		return element[i+1:]
	}
	name, scope := strings.CutSuffix(element, ".scope")
	switch {
	case strings.HasPrefix(name, "crio-conmon-"):
		return "" // the monitor of a container, not the container
	case scope:
		for _, prefix := range []string{"cri-containerd-", "crio-", "docker-", "libpod-"} {
			if id, ok := strings.CutPrefix(name, prefix); ok {
				return id
			}
		}
		return ""
	case strings.HasSuffix(name, ".slice"), strings.HasSuffix(name, ".service"):
		return ""
	}
	return name
}

// ParsePath returns the path of a task's group out of /proc/PID/cgroup: that of
// version 2 where it is not the root, else that of the pids, systemd or any
// other hierarchy; but first one that names a pod, because where both versions are mounted
// the task may be outside of the pod's group in one of them. A zombie shows / in version 1. The suffix " (deleted)" of a
// removed group is cut off.
func ParsePath(b []byte) string {
	best, rank := "", 0
	for line := range bytes.Lines(b) {
		f := bytes.SplitN(bytes.TrimSuffix(line, []byte("\n")), []byte(":"), 3)
		if len(f) != 3 {
			continue
		}
		p := strings.TrimSuffix(kernfile.Printable(f[2]), " (deleted)")
		r := 1
		switch {
		case p == "/":
			r = 0
		case len(f[1]) == 0:
			r = 4
		case listed(string(f[1]), "pids"):
			r = 3
		case listed(string(f[1]), "name=systemd"):
			r = 2
		}
		if uid, _ := PodOfPath(p); uid != "" {
			r += 8
		}
		if best == "" || r > rank {
			best, rank = p, r
		}
	}
	return best
}

// PodOfPath returns the pod's UID and the container's ID that a group's path
// names.
func PodOfPath(p string) (uid, container string) {
	elements := strings.Split(p, "/")
	for i, e := range elements {
		u, ok := podOfElement(e)
		if !ok {
			continue
		}
		if strings.Contains(e, ":") {
			return u, containerOfElement(e)
		}
		if i+1 < len(elements) {
			return u, containerOfElement(elements[i+1])
		}
		return u, ""
	}
	return "", ""
}

// findKubepods looks for the directories of a hierarchy that have an element with kubepods in its name.
func findKubepods(root string) ([]string, error) {
	var out []string
	level := []string{""}
	seen := 0
	for depth := 0; depth <= maxSearchDepth && len(level) > 0; depth++ {
		var next []string
		for _, dir := range level {
			if seen++; seen > maxSearchDirs {
				return nil, fmt.Errorf("look for kubepods below %s: more than %d cgroups", root, maxSearchDirs)
			}
			entries, _, err := kernfile.List(filepath.Join(root, dir), maxSearchDirs)
			if kernfile.Gone(err) && dir != "" {
				continue
			}
			if err != nil {
				return nil, err
			}
			has := false
			for _, e := range entries {
				switch {
				case !e.IsDir():
				case strings.Contains(e.Name(), "kubepods"):
					has = true
				default:
					next = append(next, path.Join(dir, e.Name()))
				}
			}
			if has {
				out = append(out, dir)
			}
		}
		level = next
	}
	return out, nil
}

// A Group is a control group of a pod and the live threads in it.
type Group struct {
	evidence.Cgroup
	TIDs []int
	// Hidden counts threads without a number in the agent's PID namespace.
	Hidden int
}

// Leaders are the processes of one container of a pod, as its own control group
// lists them: in the order in which they came into it in version 2, in that of
// their numbers in version 1.
type Leaders struct {
	Container string
	PIDs      []int
}

// Leaders reads the processes of a pod's containers, without those in groups that
// a container has made inside its own. It opens one file for each container. Now
// tells how old what is remembered is. None and no error means that the pod has no
// control group.
//
// It is asked of each running pod again and again, so the group in which it found all
// containers is remembered: to search for it takes longer than to read it.
func (t *Tree) Leaders(uid string, now time.Time) ([]Leaders, error) {
	snapshot := t.Snapshot(func() time.Time { return now })
	hs, err := snapshot.all()
	if err != nil {
		return nil, err
	}
	for _, c := range hs {
		if out := t.leadersAgain(c, uid); len(out) > 0 {
			return out, nil
		}
	}
	var out []Leaders
	err = snapshot.find(uid, func(c hierarchy, dirs []string) (err error) {
		out, err = leaders(c, dirs)
		// Groups of containers beside the pod's are found by a search only.
		if len(out) > 0 && len(dirs) == 1 && !strings.Contains(path.Base(dirs[0]), ":") {
			t.remember(podKey{c.dir, uid}, dirs[0])
		}
		return err
	})
	return out, err
}

// leadersAgain reads where the pod was found before, and returns nothing when that is
// not known or holds no container any more.
func (t *Tree) leadersAgain(c hierarchy, uid string) []Leaders {
	t.mu.Lock()
	dir, ok := t.pods[podKey{c.dir, uid}]
	t.mu.Unlock()
	if !ok {
		return nil
	}
	out, err := leaders(c, []string{dir})
	if err != nil {
		return nil // the search tells why
	}
	return out
}

func (t *Tree) remember(pod podKey, dir string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pods == nil || len(t.pods) >= maxPods {
		t.pods = make(map[podKey]string) // most were of pods that are gone
	}
	t.pods[pod] = dir
}

// leaders reads the containers' groups in or at the directories of a pod.
func leaders(c hierarchy, dirs []string) ([]Leaders, error) {
	r := kernfile.New()
	var out []Leaders
	add := func(dir, container string) error {
		if container == "" {
			return nil
		}
		b, err := r.Read(filepath.Join(c.dir, dir), kernfile.CgroupProcs)
		if kernfile.Gone(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the processes of cgroup %s: %w", dir, err)
		}
		pids, _ := parseTasks(b)
		out = append(out, Leaders{Container: container, PIDs: pids})
		return nil
	}
	for _, dir := range dirs {
		if strings.Contains(path.Base(dir), ":") {
			if err := add(dir, containerOfElement(path.Base(dir))); err != nil {
				return out, err
			}
			continue
		}
		entries, _, err := kernfile.List(filepath.Join(c.dir, dir), maxGroups+64)
		if err != nil && !kernfile.Gone(err) {
			return out, err
		}
		for _, e := range entries {
			if !e.IsDir() {
				continue
			}
			if err := add(path.Join(dir, e.Name()), containerOfElement(e.Name())); err != nil {
				return out, err
			}
		}
	}
	return out, nil
}

// A walk goes through the groups of one pod.
type walk struct {
	t *Tree
	c hierarchy
	r *kernfile.Reader
	// container is the one whose group the walk begins at, "" when that is the
	// pod's.
	container string
	groups    []Group
	tasks     int
	limits    bool // what they do is asked for
}

// group reads one group and those below it, and says whether a live thread is
// in any of them. Groups that vanish meanwhile are none.
func (w *walk) group(dir, container string, above freezer, depth int) (populated bool, err error) {
	if len(w.groups) == maxGroups || depth > maxGroupDepth {
		return true, fmt.Errorf("cgroups below a pod: %w", kernfile.ErrTooMany)
	}
	tids, hidden, err := w.readTasks(dir)
	if kernfile.Gone(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read tasks of cgroup %s: %w", dir, err)
	}
	g := Group{Cgroup: evidence.Cgroup{Path: "/" + dir, Version: w.c.version, Container: container, Threads: len(tids), PIDs: w.readPIDs(dir)},
		TIDs: tids, Hidden: hidden}
	freezer := w.readFreezer(dir, above)
	g.Frozen, g.FrozenBy = freezer.frozen, freezer.by
	// The limits are the pod's and the containers', not those of groups that a
	// container has made inside.
	if w.limits && (depth == 0 || depth == 1 && container != w.container) {
		g.CPU, g.Memory = w.readCPU(dir), w.readMemory(dir)
	}
	i := len(w.groups)
	w.groups = append(w.groups, g)
	populated = len(tids)+hidden > 0
	if w.tasks += len(tids); w.tasks > maxTasks {
		w.groups[i].TIDs = tids[:max(len(tids)-(w.tasks-maxTasks), 0)]
		w.groups[i].Populated = true
		return populated, fmt.Errorf("threads of a pod: %w", kernfile.ErrTooMany)
	}
	entries, _, err := kernfile.List(filepath.Join(w.c.dir, dir), maxGroups+64)
	if kernfile.Gone(err) {
		err = nil
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		sub := container
		if depth == 0 && sub == "" {
			sub = containerOfElement(e.Name())
		}
		p, subErr := w.group(path.Join(dir, e.Name()), sub, freezer, depth+1)
		populated = populated || p
		if err == nil {
			err = subErr
		}
		if errors.Is(err, kernfile.ErrTooMany) {
			break
		}
	}
	w.groups[i].Populated = populated
	return populated, err
}

func (w *walk) readTasks(dir string) (tids []int, hidden int, err error) {
	b, err := w.r.Read(filepath.Join(w.c.dir, dir), w.c.tasksFile())
	if err != nil {
		return nil, 0, err
	}
	tids, hidden = parseTasks(b)
	return tids, hidden, nil
}

// parseTasks parses a list of thread IDs. A 0 stands for a thread that the
// reader's PID namespace does not know; those are counted as hidden.
func parseTasks(b []byte) (tids []int, hidden int) {
	tids = make([]int, 0, bytes.Count(b, []byte{'\n'}))
	for len(b) > 0 {
		line := b
		if i := bytes.IndexByte(b, '\n'); i >= 0 {
			line, b = b[:i], b[i+1:]
		} else {
			b = nil
		}
		switch n := kernfile.Decimal(line); {
		case n > 0:
			tids = append(tids, n)
		case string(line) == "0":
			hidden++
		}
	}
	return tids, hidden
}

// readPIDs reads pids.current, which counts the zombies that no list of tasks
// shows any more; -1 where there is no pids controller.
func (w *walk) readPIDs(dir string) int64 {
	base := w.c.dir
	if w.c.version == 1 {
		base = filepath.Join(w.t.Root, "pids")
	}
	b, err := w.r.Read(filepath.Join(base, dir), kernfile.PIDsCurrent)
	if err != nil {
		return -1
	}
	n, err := strconv.ParseInt(string(bytes.TrimSpace(b)), 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// A freezer is what a group's freezer shows.
type freezer struct {
	// frozen says that the group is frozen or about to be.
	frozen bool
	// by is the path of the group that was told to freeze, this one or else the
	// next above; "" for none. It is set at once, where frozen of version 2
	// waits until every task has stopped, which one in state D does not.
	by string
}

// readFreezer reads a group's freezer. What holds above holds for it too, also
// while the kernel has not got to it yet.
func (w *walk) readFreezer(dir string, above freezer) freezer {
	f := above
	base, told := filepath.Join(w.c.dir, dir), kernfile.CgroupFreeze
	if w.c.version == 1 {
		base, told = filepath.Join(w.t.Root, "freezer", dir), kernfile.FreezerSelf
		b, err := w.r.Read(base, kernfile.FreezerState)
		f.frozen = f.frozen || err == nil && parseFreezerState(b)
	} else {
		b, err := w.r.Read(base, kernfile.CgroupEvents)
		f.frozen = f.frozen || err == nil && parseKeys(b)["frozen"] == 1
	}
	if n, ok := w.readNumber(base, told); ok && n == 1 {
		f.by = "/" + dir
	}
	return f
}

// controller gives the directory of a controller of version 1, "" when there is
// none. Controllers that are mounted together stand in one directory, cpu,cpuacct,
// mostly with a link for each name, which is looked at first. The answer is remembered:
// what is mounted at the start of the node stays.
func (t *Tree) controller(name string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if dir, ok := t.controllers[name]; ok {
		return dir
	}
	dir := filepath.Join(t.Root, name)
	if !kernfile.Exists(dir, kernfile.CgroupProcs) {
		dir = ""
		entries, _, _ := kernfile.List(t.Root, 256) // what cannot be listed has none
		for _, e := range entries {
			if listed(e.Name(), name) && e.Name() != name {
				dir = filepath.Join(t.Root, e.Name())
			}
		}
	}
	if t.controllers == nil {
		t.controllers = make(map[string]string, 3)
	}
	t.controllers[name] = dir
	return dir
}

// parseFreezerState reads freezer.state of version 1: THAWED, FREEZING, FROZEN.
func parseFreezerState(b []byte) bool {
	s := string(bytes.TrimSpace(b))
	return s == "FROZEN" || s == "FREEZING"
}

// listed reports whether a name is in a list that commas separate.
func listed(list, name string) bool {
	for e := range strings.SplitSeq(list, ",") {
		if e == name {
			return true
		}
	}
	return false
}
