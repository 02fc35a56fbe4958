package evidence

import (
	"testing"
	"time"
)

// What containerd lacks is carried over where it was not read, and that it could write nothing is kept until it has tried again.
func TestSinceUnwritable(t *testing.T) {
	t0 := time.Unix(10_000, 0)
	at := func(s int) time.Time { return t0.Add(time.Duration(s) * time.Second) }
	full := func(size int64) *Pod {
		return &Pod{Shortages: []Shortage{{Resource: Space, Owner: "containerd", PID: 7, Dir: "/var/lib/containerd", Limit: size}}}
	}
	tasks := func() *Pod {
		return &Pod{Shortages: []Shortage{{Resource: Tasks, Owner: "containerd", PID: 7, Limit: 9}}}
	}
	room := func() *Pod { return &Pod{} }
	unread := func() *Pod { p := &Pod{}; p.Lack(Limits, "denied"); return p }
	rooms := []*Pod{full(9)}
	for range 32 {
		rooms = append(rooms, room())
	}
	for name, test := range map[string]struct {
		readings    []*Pod // one each 10 s
		since       int    // of the last reading's shortage, -1 for none that goes on
		first, last int    // of Unwritable, -1 for none
	}{
		"full":                       {[]*Pod{full(9), full(9)}, 0, 0, 10},
		"of a size that moves":       {[]*Pod{full(9), full(8)}, 0, 0, 10},
		"not read once":              {[]*Pod{full(9), unread(), full(9)}, 0, 0, 20},
		"not read last":              {[]*Pod{full(9), unread()}, 0, 0, 0},
		"room once":                  {[]*Pod{full(9), room(), full(9)}, 20, 0, 20},
		"room since":                 {[]*Pod{full(9), room(), room()}, -1, 0, 0},
		"only tasks":                 {[]*Pod{tasks(), tasks()}, 0, -1, -1},
		"room for more than a pause": {rooms, -1, -1, -1},
	} {
		before := &Pod{}
		for i, p := range test.readings {
			p.sinceShortages(before, at(10*i))
			before = p
		}
		since := -1
		for _, s := range before.Shortages {
			if s.Ended.IsZero() {
				since = int(s.Since.Sub(t0).Seconds())
			}
		}
		first, last := -1, -1
		if before.Unwritable != nil {
			first, last = int(before.Unwritable.First.Sub(t0).Seconds()), int(before.Unwritable.Last.Sub(t0).Seconds())
		}
		if since != test.since || first != test.first || last != test.last {
			t.Errorf("%s: since %d, want %d; unwritable from %d to %d, want %d to %d", name, since, test.since, first, last, test.first, test.last)
		}
	}
}

// What the kubelet lacks is carried over where it was not read, and is not known to last meanwhile.
func TestSinceKubeletShortages(t *testing.T) {
	t0 := time.Unix(10_000, 0)
	at := func(s int) time.Time { return t0.Add(time.Duration(s) * time.Second) }
	lacks := func() *Node {
		return &Node{Kubelet: KubeletService{Shortages: []Shortage{{Resource: ReadOnly, Owner: "kubelet", PID: 7, Dir: "/var/lib/kubelet"}}}}
	}
	room := func() *Node { return &Node{} }
	unread := func() *Node { return &Node{Kubelet: KubeletService{ShortagesError: "no helper"}} }
	partly := func() *Node { n := lacks(); n.Kubelet.ShortagesError = "denied"; return n }
	for name, test := range map[string]struct {
		readings []*Node // one each 10 s
		lasted   int     // of the last reading's shortage, -1 for none that goes on
	}{
		"all readings":        {[]*Node{lacks(), lacks(), lacks()}, 20},
		"not read since":      {[]*Node{lacks(), unread(), unread(), unread()}, 0},
		"not read last":       {[]*Node{lacks(), lacks(), unread()}, 10},
		"not read once":       {[]*Node{lacks(), unread(), lacks()}, 20},
		"read in part":        {[]*Node{lacks(), partly(), partly()}, 20},
		"room since":          {[]*Node{lacks(), unread(), room()}, -1},
		"room once, and lost": {[]*Node{lacks(), room(), lacks(), unread()}, 0},
	} {
		before := &Node{}
		for i, n := range test.readings {
			n.Read = at(10 * i)
			n.Since(before)
			before = n
		}
		lasted := -1
		for i := range before.Kubelet.Shortages {
			s := &before.Kubelet.Shortages[i]
			if s.Ended.IsZero() {
				lasted = int(s.Lasted(before.Read).Seconds())
			}
		}
		if lasted != test.lasted {
			t.Errorf("%s: %d s, want %d", name, lasted, test.lasted)
		}
	}
}
