package evidence

import (
	"testing"
	"time"
)

func TestUnheard(t *testing.T) {
	for name, r := range map[string]*NodeReady{
		"not asked":     nil,
		"ready":         {Status: "True", Reason: "KubeletReady"},
		"not ready":     {Status: "False", Reason: "KubeletNotReady"},
		"never updated": {Status: "Unknown", Reason: "NodeStatusNeverUpdated"},
	} {
		if r.Unheard() {
			t.Errorf("%s: unheard", name)
		}
	}
	p := new(Pod)
	p.HeardOfNode(nil, nil)
	if len(p.Missing) != 0 {
		t.Error("nobody asked, and something is missing")
	}
	p.HeardOfNode(nil, errRefused)
	if p.Missing[NodeObject] == "" || p.Node.Ready.Unheard() {
		t.Errorf("%+v", p.Missing)
	}
}

type refusedError struct{}

func (refusedError) Error() string { return "refused" }

var errRefused error = refusedError{}

func TestYoungKubelet(t *testing.T) {
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	at := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
	var last *Node
	// read is a reading at a second, of a kubelet that was started at another one.
	read := func(second float64, kubelet KubeletService) *KubeletService {
		n := &Node{Time: at(second), Read: at(second + 0.1), Kubelet: kubelet}
		n.Since(last)
		last = n
		return &n.Kubelet
	}
	from := func(second float64) KubeletService {
		return KubeletService{Process: &Task{PID: 9, Probe: &Probe{Start: 1, Started: at(second)}}}
	}
	away := KubeletService{AbsentSince: start}
	if k := read(0, from(-61)); !k.YoungSince.IsZero() || k.Starts != 0 {
		t.Errorf("an old one: %+v", k)
	}
	if k := read(2, away); !k.YoungSince.Equal(at(2.1)) || k.Starts != 0 {
		t.Errorf("it ends: %+v", k)
	}
	if k := read(12, from(11)); !k.YoungSince.Equal(at(2.1)) || k.Starts != 1 {
		t.Errorf("it is started: %+v", k)
	}
	if k := read(14, from(11.02)); k.Starts != 1 {
		t.Errorf("the same: %+v", k)
	}
	if k := read(16, KubeletService{Error: "not read"}); !k.YoungSince.Equal(at(2.1)) || k.Starts != 1 {
		t.Errorf("not read: %+v", k)
	}
	if k := read(18, KubeletService{Process: &Task{PID: 9}}); !k.YoungSince.Equal(at(2.1)) || k.Starts != 1 {
		t.Errorf("its age is not known: %+v", k)
	}
	if k := read(24, from(22)); !k.YoungSince.Equal(at(2.1)) || k.Starts != 2 || !k.StartSeen.Equal(at(12.1)) {
		t.Errorf("again: %+v", k)
	}
	read(53, from(22))
	if k := read(83, from(22)); !k.YoungSince.IsZero() || k.Starts != 0 {
		t.Errorf("it stays: %+v", k)
	}
	read(90, away)
	if k := read(155, from(154)); !k.YoungSince.Equal(at(155.1)) || k.Starts != 1 {
		t.Errorf("nobody looked meanwhile: %+v", k)
	}
}

// A kubelet that was stopped for a while, or away, has not been able to be heard until then. One that
// is started again within its unit's time has, and so has one that is late once.
func TestSilentKubelet(t *testing.T) {
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	at := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
	var last *Node
	read := func(second float64, answers bool) *KubeletService {
		n := &Node{Time: at(second), Read: at(second + 0.1), Kubelet: KubeletService{Answers: answers}}
		n.Since(last)
		last = n
		return &n.Kubelet
	}
	for _, tc := range []struct {
		second  float64
		answers bool
		until   float64 // 0 for never
	}{{0, true, 0}, {10, false, 0}, {30, false, 0}, {32, true, 0}, {40, false, 0}, {60.1, false, 60.2}, {62, false, 62.1}, {64, true, 62.1}, {66, false, 62.1}} {
		want := time.Time{}
		if tc.until != 0 {
			want = at(tc.until)
		}
		if k := read(tc.second, tc.answers); !k.SilentUntil.Equal(want) || k.SilentSince.IsZero() != tc.answers {
			t.Errorf("after %g seconds: %+v", tc.second, k)
		}
	}
}

// Between two answers far apart the kubelet may have been away, and nobody have seen it.
func TestFollow(t *testing.T) {
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	earlier := &NodeReady{Status: "Unknown", Reason: "NodeStatusUnknown", Asked: start.Add(time.Minute), Since: start}
	for after, want := range map[time.Duration]time.Duration{50 * time.Second: -time.Minute, 61 * time.Second: 61 * time.Second} {
		r := &NodeReady{Status: "Unknown", Reason: "NodeStatusUnknown"}
		r.Follow(earlier, earlier.Asked.Add(after))
		if got := r.Since.Sub(earlier.Asked); got != want {
			t.Errorf("asked %s later: since %s, want %s", after, got, want)
		}
	}
}

// Since when the kubelet's main loop hangs is told by its health check, and so is until when it was
// well before.
func TestStalledLoop(t *testing.T) {
	begin := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	const stalls = "failing checks: ping, syncloop"
	var earlier *Node
	for second, tc := range []struct {
		health       string
		since, after int // seconds from begin on, -1 for zero
	}{
		{"failing checks: ping", -1, -1},
		{stalls, 1, -1},
		{"ok", -1, -1},
		{stalls, 3, 2},
		{stalls, 3, 2},
		{"", -1, -1},
		{stalls, 6, -1},
	} {
		n := &Node{Time: begin.Add(time.Duration(second) * time.Second)}
		n.Read = n.Time.Add(100 * time.Millisecond)
		n.Kubelet.Health = tc.health
		n.Since(earlier)
		for what, got := range map[string][2]time.Time{"since": {n.Kubelet.StalledSince, at(begin, tc.since, 100*time.Millisecond)}, "after": {n.Kubelet.StalledAfter, at(begin, tc.after, 0)}} {
			if !got[0].Equal(got[1]) {
				t.Errorf("second %d, %q: %s %s, want %s", second, tc.health, what, got[0], got[1])
			}
		}
		earlier = n
	}
	// It may have come round while nobody looked.
	n := &Node{Time: earlier.Read.Add(time.Minute)}
	n.Read, n.Kubelet.Health = n.Time, stalls
	if n.Since(earlier); !n.Kubelet.StalledSince.Equal(n.Read) {
		t.Errorf("since %s, want %s", n.Kubelet.StalledSince, n.Read)
	}
}

// at returns some seconds after a time, and a bit; the zero time for less than none.
func at(begin time.Time, seconds int, more time.Duration) time.Time {
	if seconds < 0 {
		return time.Time{}
	}
	return begin.Add(time.Duration(seconds)*time.Second + more)
}
