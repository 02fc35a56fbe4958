package cri

import (
	"slices"
	"sync"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// shimRetries are the pauses before a shim that has not answered is asked again, each longer than the one before: while
// it unmounts a root file system that is in use it answers nobody for two seconds and a half (pkg/shim's lock,
// mount.UnmountRecursive), and containerd has it try again, soon at first. Then it is asked every shimPause, because each
// request leaves a blocked goroutine in a shim that hangs (containerd#14081).
var shimRetries = []time.Duration{3 * time.Second, 10 * time.Second, 30 * time.Second}

const shimPause = 3 * time.Minute

// forgotten is how long a silence is kept whose pod nobody asks about any more.
const forgotten = 10 * time.Minute

// A silence is a shim that has not answered about a container.
type silence struct {
	pod      string
	since    time.Time // of the first request without an answer
	asked    time.Time // of the last one
	attempts int
	wanted   time.Time // when due was last called for it
}

func (s silence) task() evidence.ShimTask {
	return evidence.ShimTask{Asked: s.asked, UnansweredSince: s.since, Attempts: s.attempts}
}

// silences are kept by container ID.
type silences struct {
	mu sync.Mutex
	m  map[string]silence
}

// due reports whether the shim may be asked about a container at the time now,
// and returns what is known of it without asking.
func (s *silences) due(id string, now time.Time) (evidence.ShimTask, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one, ok := s.m[id]
	if !ok {
		return evidence.ShimTask{}, true
	}
	one.wanted = now
	s.m[id] = one
	pause := shimPause
	if one.attempts <= len(shimRetries) {
		pause = shimRetries[one.attempts-1]
	}
	return one.task(), now.Sub(one.asked) >= pause
}

// unanswered adds a request, made at the time asked, that was not answered.
func (s *silences) unanswered(pod, id string, asked time.Time) evidence.ShimTask {
	s.mu.Lock()
	defer s.mu.Unlock()
	one, ok := s.m[id]
	if !ok {
		s.makeRoom(asked)
		one = silence{pod: pod, since: asked}
	}
	one.asked, one.wanted = asked, asked
	one.attempts++
	s.m[id] = one
	return one.task()
}

// answered ends a silence.
func (s *silences) answered(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.m, id)
}

// keep forgets the silences of a pod's containers that are gone.
func (s *silences) keep(pod string, ids []string, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, one := range s.m {
		if one.pod == pod && !slices.Contains(ids, id) || now.Sub(one.wanted) > forgotten {
			delete(s.m, id)
		}
	}
}

// makeRoom drops the silence that was last wanted the longest time ago, when
// there are too many.
func (s *silences) makeRoom(now time.Time) {
	if s.m == nil {
		s.m = make(map[string]silence)
	}
	if len(s.m) < most {
		return
	}
	oldest, at := "", now
	for id, one := range s.m {
		if oldest == "" || one.wanted.Before(at) {
			oldest, at = id, one.wanted
		}
	}
	delete(s.m, oldest)
}
