package evidence

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
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
	p.SetNodeReady(nil, nil)
	if len(p.Missing) != 0 {
		t.Error("nobody asked, and something is missing")
	}
	p.SetNodeReady(nil, errRefused)
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
		for what, got := range map[string][2]time.Time{"since": {n.Kubelet.StalledSince, at(begin, tc.since, 100*time.Millisecond)},
			"after": {n.Kubelet.StalledAfter, at(begin, tc.after, 0)}} {
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

func TestHearNotReady(t *testing.T) {
	said := time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)
	active := said.Add(-187*time.Second - 17*time.Millisecond)
	unhealthy := &PLEG{Said: said, First: said, Active: active, Unhealthy: active.Add(3 * time.Minute)}
	for name, tc := range map[string]struct {
		status, message string
		want            *PLEG
		down            bool
	}{
		"ready": {"True", "kubelet is posting ready status", nil, false},
		"PLEG":  {"False", "PLEG is not healthy: pleg was last seen active 3m7.017s ago; threshold is 3m0s", unhealthy, false},
		"PLEG and another": {"False", "[container runtime network not ready: NetworkReady=false, PLEG is not healthy: pleg was last " +
			"seen active 3m7.017s ago; threshold is 3m0s]", unhealthy, false},
		"PLEG and a shutdown":  {"False", "[PLEG is not healthy: pleg was last seen active 3m7.017s ago; threshold is 3m0s, node is shutting down]", unhealthy, true},
		"never":                {"False", "PLEG is not healthy: pleg has yet to be successful", &PLEG{Said: said, First: said}, false},
		"a shutdown":           {"False", "node is shutting down", nil, true},
		"the network":          {"False", "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady", nil, false},
		"said before":          {"Unknown", "PLEG is not healthy: pleg was last seen active 3m7.017s ago; threshold is 3m0s", nil, false},
		"shorter than allowed": {"False", "PLEG is not healthy: pleg was last seen active 2m59s ago; threshold is 3m0s", nil, false},
		"no time":              {"False", "PLEG is not healthy: pleg was last seen active m ago; threshold is 3m0s", nil, false},
		"no threshold":         {"False", "PLEG is not healthy: pleg was last seen active 3m7.017s ago; threshold is 0s", nil, false},
	} {
		r := &NodeReady{Status: tc.status}
		r.Hear(tc.message, said)
		if diff := cmp.Diff(tc.want, r.PLEG); diff != "" || r.ShuttingDown != tc.down {
			t.Errorf("%s: shutting down: %v, PLEG: %s", name, r.ShuttingDown, diff)
		}
	}
}

// The kubelet tells in each message how long ago it had a list; the list is the same one.
func TestFollowPLEG(t *testing.T) {
	said := time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)
	first := &NodeReady{Status: "False", Asked: said}
	first.Hear("PLEG is not healthy: pleg was last seen active 3m7.9s ago; threshold is 3m0s", said)
	first.Follow(nil, said)
	next := &NodeReady{Status: "False", Asked: said.Add(10 * time.Second)}
	next.Hear("PLEG is not healthy: pleg was last seen active 3m19.2s ago; threshold is 3m0s", said.Add(10*time.Second))
	next.Follow(first, said.Add(10*time.Second))
	if !next.PLEG.Active.Equal(first.PLEG.Active) || !next.PLEG.Unhealthy.Equal(first.PLEG.Unhealthy) ||
		!next.PLEG.Said.Equal(said.Add(10*time.Second)) || !next.PLEG.First.Equal(said) {
		t.Errorf("%+v, want the times of %+v", next.PLEG, first.PLEG)
	}
	other := &NodeReady{Status: "False", Asked: said.Add(20 * time.Second)}
	other.Hear("PLEG is not healthy: pleg was last seen active 3m1s ago; threshold is 3m0s", said.Add(20*time.Second))
	other.Follow(next, said.Add(20*time.Second))
	if other.PLEG.Active.Equal(first.PLEG.Active) || !other.PLEG.First.Equal(other.PLEG.Said) {
		t.Errorf("there was a list in between: %+v", other.PLEG)
	}
	var never *NodeReady
	for range 2 {
		r := &NodeReady{Status: "False", Asked: said}
		r.Hear("PLEG is not healthy: pleg has yet to be successful", said)
		r.Follow(never, said)
		never, said = r, said.Add(10*time.Second)
	}
	if never.PLEG.Said.Sub(never.PLEG.First) != 10*time.Second {
		t.Errorf("%+v", never.PLEG)
	}
}

// What the kubelet says of the container runtime.
func TestHearRuntimeDown(t *testing.T) {
	for message, want := range map[string]bool{
		"container runtime is down": true,
		"[container runtime is down, PLEG is not healthy: pleg was last seen active 3m7.017s ago; threshold is 3m0s]":             true,
		"container runtime status check may not have completed yet":                                                               true,
		"container runtime not ready: RuntimeReady=false reason:ContainerdNotReady message:containerd is not ready":               true,
		"container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:cni plugin not initialized": false,
		"": false,
	} {
		for _, status := range []string{"False", "True", "Unknown"} {
			r := NodeReady{Status: status, RuntimeDown: true}
			if r.Hear(message, time.Unix(1000, 0)); r.RuntimeDown != (want && status == "False") {
				t.Errorf("%s, %q: %v", status, message, r.RuntimeDown)
			}
		}
	}
}
