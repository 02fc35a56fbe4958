package cgroup

import (
	"fmt"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kernfile"
)

// A Snapshot is where the groups of pods are at one moment. The directories above them are listed once for all pods, and the freezers above them
// read once. A pod that is not among them may have come since: they are listed anew for it after listAgain. It is safe for use by several goroutines.
type Snapshot struct {
	t     *Tree
	clock func() time.Time

	mu          sync.Mutex
	hierarchies []hierarchy
	pods        map[string]podDirs // by directory of the hierarchy
	above       map[string]freezer // by directory of the freezer's group
}

// listAgain is how old a listing of the pods' groups may be that does not have a pod.
const listAgain = 2 * time.Second

// podDirs are the directories of pods' groups below a hierarchy, and when they were listed.
type podDirs struct {
	of     map[string][]string // by UID
	listed time.Time
}

// Snapshot returns a new one, which reads nothing yet. The clock tells how old is what it and the Tree remember.
func (t *Tree) Snapshot(clock func() time.Time) *Snapshot {
	return &Snapshot{t: t, clock: clock, pods: make(map[string]podDirs), above: make(map[string]freezer)}
}

// Pod reads all groups of a pod, and what the limits of the pod's and the containers' do if that is asked for. None and no error means that the pod
// has none.
func (s *Snapshot) Pod(uid string, limits bool) ([]Group, error) {
	var out []Group
	err := s.find(uid, func(c hierarchy, dirs []string) error {
		for _, dir := range dirs {
			w := walk{t: s.t, c: c, r: kernfile.New(), groups: out, limits: limits}
			if strings.Contains(path.Base(dir), ":") {
				w.container = containerOfElement(path.Base(dir))
			}
			_, err := w.group(dir, w.container, s.freezerAbove(&w, dir), 0)
			out = w.groups
			if err != nil {
				return err
			}
		}
		return nil
	})
	return out, err
}

// find calls read with the directories of a pod's groups in the first hierarchy that has some: one, or one for each container where the drivers of
// kubelet and runtime differ. It is not called for a pod that has no group any more.
func (s *Snapshot) find(uid string, read func(c hierarchy, dirs []string) error) error {
	if uid == "" || strings.ContainsAny(uid, "/\x00") {
		return fmt.Errorf("the pod's UID %q names no cgroup", uid)
	}
	hs, err := s.all()
	if err != nil {
		return err
	}
	for _, c := range hs {
		dirs, err := s.findIn(c, uid)
		if err != nil {
			return err
		}
		if len(dirs) > 0 {
			return read(c, dirs)
		}
	}
	return nil
}

// all returns the hierarchies.
func (s *Snapshot) all() ([]hierarchy, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hierarchies == nil {
		hs, err := hierarchies(s.t.Root)
		if err != nil {
			return nil, err
		}
		s.hierarchies = hs
	}
	return s.hierarchies, nil
}

// findIn returns the directories of a pod's groups in a hierarchy.
//
// The groups hang below elements with kubepods in their name, at the top or below a prefix (--cgroup-root, kind). Where these are is remembered,
// because to find them every group of the host must be listed, and it does not change while a kubelet runs. To know that a pod has none, they are
// looked for again after a minute, and in each listing while there are none.
func (s *Snapshot) findIn(c hierarchy, uid string) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock()
	known := s.pods[c.dir]
	if age := now.Sub(known.listed); len(known.of[uid]) > 0 || !known.listed.IsZero() && age >= 0 && age < listAgain {
		return known.of[uid], nil
	}
	roots := s.t.roots(c)
	listed, err := s.list(c, roots, now)
	if err != nil {
		return nil, err
	}
	age := now.Sub(roots.found)
	if len(listed.of[uid]) == 0 && (len(roots.dirs) == 0 || age < 0 || age >= searchAgain) {
		if roots.dirs, err = findKubepods(c.dir); err != nil {
			return nil, err
		}
		roots.found = now
		s.t.setRoots(c, roots)
		if listed, err = s.list(c, roots, now); err != nil {
			return nil, err
		}
	}
	s.pods[c.dir] = listed
	return listed.of[uid], nil
}

// list lists the pods' groups in the two or three levels kubepods, class of service, pod. A pod of the class Guaranteed has no class element.
func (s *Snapshot) list(c hierarchy, roots kubepods, now time.Time) (podDirs, error) {
	out := podDirs{of: make(map[string][]string), listed: now}
	var search func(dir string, depth int) error
	search = func(dir string, depth int) error {
		entries, _, err := kernfile.List(filepath.Join(c.dir, dir), maxSearchDirs)
		if kernfile.Gone(err) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, e := range entries {
			name := e.Name()
			sub := path.Join(dir, name)
			switch uid, pod := podOfElement(name); {
			case !e.IsDir():
			case pod:
				out.of[uid] = append(out.of[uid], sub)
			case depth < 2 && (strings.Contains(name, "kubepods") || depth > 0 && (name == "burstable" || name == "besteffort")):
				if err := search(sub, depth+1); err != nil {
					return err
				}
			}
		}
		return nil
	}
	for _, dir := range roots.dirs {
		if err := search(dir, 0); err != nil {
			return podDirs{}, err
		}
	}
	return out, nil
}

// freezerAbove returns the freezer above a group.
func (s *Snapshot) freezerAbove(w *walk, dir string) freezer {
	parent := path.Dir(dir)
	if parent == "." || parent == "/" {
		return freezer{}
	}
	key := filepath.Join(w.c.dir, parent)
	s.mu.Lock()
	f, ok := s.above[key]
	s.mu.Unlock()
	if !ok {
		f = w.readFreezer(parent, s.freezerAbove(w, parent))
		s.mu.Lock()
		s.above[key] = f
		s.mu.Unlock()
	}
	return f
}

// kubepods are the directories of a hierarchy that have an element with kubepods in its name, and when they were looked for.
type kubepods struct {
	dirs  []string
	found time.Time
}

func (t *Tree) roots(c hierarchy) kubepods {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.kubepods[c.dir]
}

func (t *Tree) setRoots(c hierarchy, k kubepods) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.kubepods == nil {
		t.kubepods = make(map[string]kubepods)
	}
	t.kubepods[c.dir] = k
}
