// Package orphan says which pods are on a node and not in the API any more: the
// kubelet has a directory of them, and the API server no object. It is pure: it is
// handed what there is, and the time.
package orphan

import (
	"cmp"
	"regexp"
	"slices"
	"sync"
	"time"
)

// A Kind is what is left of a pod.
type Kind string

// The kinds, the worst one first. Of a Directory nothing is left but that, or files in it
// that were the pod's own.
const (
	Process   Kind = "process"
	Volume    Kind = "volume"
	Sandbox   Kind = "sandbox"
	Directory Kind = "directory"
)

// kinds are all of them.
var kinds = []Kind{Process, Volume, Sandbox, Directory}

// A Pod is one of the API's.
type Pod struct {
	UID, Namespace, Name string
	Grace                time.Duration // of its specification
}

const (
	// again is how long after a reading of an orphan it is read again, or of an empty
	// directory or one that could not be read, againEmpty; and tellAgain after how long it is
	// told of again: an Event lives for an hour by default.
	again      = time.Minute
	againEmpty = 5 * time.Minute
	tellAgain  = time.Hour
	// most is how many are read after one search. Others have their turn later.
	most = 4
)

// A Tracker keeps for how long pods have been missing in the API. It is safe for use by
// several goroutines.
type Tracker struct {
	// After is for how long a pod must be missing to be an orphan; longer for one that
	// has a long grace period, as far as that is known.
	After time.Duration

	mu   sync.Mutex
	pods map[string]*state // by UID, those that have a directory
}

type state struct {
	Pod
	missing time.Time // since when it is not in the API; zero while it is
	read    time.Time // when it was read last
	kind    Kind      // "" before that is known
	told    time.Time
}

// made is the form of a UID that the API server has made. That of a static pod, which
// is never in the API under it, is an MD5 sum (applyDefaults,
// pkg/kubelet/config/common.go).
var made = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

// Search takes note of the kubelet's directories, by UID, and of the pods that the
// watch shows, and returns the UIDs of those that may be orphans and are to be read: a
// fresh list of the API has to confirm first that they are not there.
func (t *Tracker) Search(now time.Time, directories []string, pods []Pod) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	known := make(map[string]Pod, len(pods))
	for _, p := range pods {
		known[p.UID] = p
	}
	kept := make(map[string]*state, len(directories))
	var due []*state
	for _, uid := range directories {
		if !made.MatchString(uid) {
			continue
		}
		s := t.pods[uid]
		if s == nil {
			s = &state{Pod: Pod{UID: uid}}
		}
		kept[uid] = s
		if p, ok := known[uid]; ok {
			*s = state{Pod: p}
			continue
		}
		if s.missing.IsZero() {
			s.missing = now
		}
		if now.Sub(s.missing) >= t.patience(s) && (s.read.IsZero() || now.Sub(s.read) >= t.rest(s)) {
			due = append(due, s)
		}
	}
	t.pods = kept
	slices.SortFunc(due, func(a, b *state) int {
		return cmp.Or(a.read.Compare(b.read), a.missing.Compare(b.missing), cmp.Compare(a.UID, b.UID))
	})
	var out []string
	for _, s := range due[:min(len(due), most)] {
		out = append(out, s.UID)
	}
	return out
}

// mostGrace bounds the grace period that is waited for: a tenant may give its pod ten years.
const mostGrace = time.Hour

// patience returns for how long a pod must be missing. A kubelet needs four minutes more
// than the grace period to give up on a container (pkg/kubelet/kuberuntime).
func (t *Tracker) patience(s *state) time.Duration {
	return max(t.After, min(s.Grace, mostGrace)+t.After*4/5)
}

// rest returns how long after a reading there is another one.
func (t *Tracker) rest(s *state) time.Duration {
	if s.kind == "" || s.kind == Directory {
		return againEmpty
	}
	return min(again, t.After)
}

// Confirm takes note of a fresh list of the API, and returns those of the UIDs that are
// not in it.
func (t *Tracker) Confirm(uids []string, listed map[string]bool) []Pod {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []Pod
	for _, uid := range uids {
		s := t.pods[uid]
		switch {
		case s == nil:
		case listed[uid]:
			s.missing, s.kind = time.Time{}, "" // the watch is behind
		default:
			out = append(out, s.Pod)
		}
	}
	return out
}

// Read takes note of what a reading of an orphan showed, "" when that is not known, and
// reports whether it is to be told.
func (t *Tracker) Read(uid string, now time.Time, kind Kind) (tell bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.pods[uid]
	if s == nil || s.missing.IsZero() {
		return false
	}
	s.read = now
	if kind == "" {
		return false
	}
	changed := kind != s.kind
	s.kind = kind
	// A directory alone holds nothing.
	if kind == Directory || !changed && now.Sub(s.told) < tellAgain {
		return false
	}
	s.told = now
	return true
}

// Count returns how many orphans there are of each kind.
func (t *Tracker) Count() map[Kind]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make(map[Kind]int, len(kinds))
	for _, k := range kinds {
		out[k] = 0
	}
	for _, s := range t.pods {
		if s.kind != "" && !s.missing.IsZero() {
			out[s.kind]++
		}
	}
	return out
}
