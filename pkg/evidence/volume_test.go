package evidence

import (
	"testing"
	"time"
)

func TestCallsRise(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	reading := func(after time.Duration, earlier *Node, calls ...VolumeCall) *Node {
		n := &Node{Kubelet: KubeletService{VolumeCalls: calls}}
		if calls != nil {
			n.Kubelet.VolumeCallsRead = start.Add(after)
		}
		n.Since(earlier)
		return n
	}
	fails := func(n uint64) VolumeCall {
		return VolumeCall{Driver: "a", Method: NodeUnpublish, Status: "Internal", Count: n}
	}
	want := func(what string, n *Node, after time.Duration) {
		t.Helper()
		var at time.Time
		if after > 0 {
			at = start.Add(after)
		}
		if got := n.Kubelet.VolumeCalls[0].Rose; !got.Equal(at) {
			t.Errorf("%s: rose at %v, want %v", what, got, at)
		}
	}
	first := reading(1, nil, fails(7))
	want("the first reading", first, 0)
	second := reading(2, first, fails(7))
	want("the same", second, 0)
	third := reading(3, second, fails(8))
	want("one more", third, 2)
	fourth := reading(4, third)
	want("not read", fourth, 2)
	fifth := reading(5, fourth, fails(8))
	want("the same again", fifth, 2)
	want("a kubelet that was started anew", reading(6, fifth, fails(1)), 5)
	other := VolumeCall{Driver: "b", Method: NodeUnpublish, Status: "Internal", Count: 1}
	want("the first of its kind", reading(6, fifth, other, fails(8)), 5)
	// What rose while nobody asked is not taken for new.
	want("one more after an hour", reading(time.Hour, fifth, fails(9)), 5)
}

func TestHoldersStay(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	held := func(pid, id int, comm, via string) Holder {
		return Holder{Task: Task{PID: pid, Comm: comm}, MountID: id, Via: via}
	}
	before := []Holder{held(1, 5, "a", "x"), held(2, 5, "b", "x")}
	sinceHolders(before, nil, start)
	now := []Holder{held(1, 5, "a", "x"), held(2, 6, "b", "x"), held(3, 5, "c", "x"), held(2, 5, "another", "x")}
	sinceHolders(now, before, start.Add(time.Second))
	for i, h := range now {
		if stayed := h.Since.Equal(start); stayed != (i == 0) {
			t.Errorf("%+v has stayed: %t", h, stayed)
		}
	}
}

func TestVolumesAreAStage(t *testing.T) {
	before := []Volume{{Name: "a", Plugin: "kubernetes.io~csi", Driver: "d", DriverPodState: DriverRunning}, {Name: "b", Unregistered: true}}
	for name, tc := range map[string]struct {
		now  []Volume
		want bool
	}{
		"the same":                        {before, true},
		"the driver's pod has ended":      {[]Volume{{Name: "a", Plugin: "kubernetes.io~csi", Driver: "d"}, before[1]}, true},
		"the driver is gone":              {[]Volume{{Name: "a", Plugin: "kubernetes.io~csi", Unregistered: true}, before[1]}, true},
		"the driver's pod is ready again": {[]Volume{before[0], {Name: "b", Unregistered: true, DriverPodState: DriverRunning}}, false},
		"the driver has come back":        {[]Volume{before[0], {Name: "b"}}, false},
		"a volume has been taken down":    {before[:1], false},
		"a subpath has been removed":      {[]Volume{before[0], {Name: "b", Unregistered: true, Subpaths: 1}}, false},
	} {
		if got := sameVolumes(tc.now, before); got != tc.want {
			t.Errorf("%s: the same stage %t", name, got)
		}
	}
}

// What was counted while nobody looked, as in the hours between two pods that were
// stuck, tells nothing about the pod that is looked at now.
func TestCallsOfAnEarlierTime(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	reading := func(after time.Duration, earlier *Node, count uint64) *Node {
		n := &Node{Kubelet: KubeletService{VolumeCallsRead: start.Add(after), VolumeCalls: []VolumeCall{{Driver: "a", Method: NodeUnpublish,
			Status: "Internal", Count: count}}}}
		n.Since(earlier)
		return n
	}
	first := reading(0, nil, 3)
	late := reading(time.Hour, first, 8)
	if rose := late.Kubelet.VolumeCalls[0].Rose; !rose.Equal(start) {
		t.Errorf("rose at %v, and only a reading of %v showed less", rose, start)
	}
	next := reading(time.Hour+10*time.Second, late, 9)
	if rose := next.Kubelet.VolumeCalls[0].Rose; !rose.Equal(late.Kubelet.VolumeCallsRead) {
		t.Errorf("rose at %v, want %v", rose, late.Kubelet.VolumeCallsRead)
	}
	if since := next.Kubelet.VolumeCallsSince; !since.Equal(late.Kubelet.VolumeCallsRead) {
		t.Errorf("read all the time since %v, want %v", since, late.Kubelet.VolumeCallsRead)
	}
}

// What a container's end takes away stays known.
func TestNamesOnTheNodeStay(t *testing.T) {
	before := &Pod{UID: "u", Specified: []SpecVolume{{Name: "data", Claim: "a", Node: "pv-1"}, {Name: "logs", Claim: "b", Node: "pv-2"}}}
	now := &Pod{UID: "u", Specified: []SpecVolume{{Name: "data", Claim: "a"}, {Name: "logs", Claim: "another"}, {Name: "more", Claim: "a"}}}
	now.Since(before)
	for i, want := range []string{"pv-1", "", ""} {
		if got := now.Specified[i]; got.Node != want {
			t.Errorf("%+v, want %q", got, want)
		}
	}
	stranger := &Pod{UID: "v", Specified: []SpecVolume{{Name: "data", Claim: "a"}}}
	if stranger.Since(before); stranger.Specified[0].Node != "" {
		t.Errorf("of another pod: %+v", stranger.Specified[0])
	}
}

// A reading in which the kubelet has no directory of a volume open does not forget when it deleted something there.
func TestLastDeleted(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	volume := func(name string, deleted time.Time) Volume {
		return Volume{Name: name, Plugin: "kubernetes.io~empty-dir", LastDeleted: deleted}
	}
	before := &Pod{UID: "u", Volumes: []Volume{volume("a", start), volume("b", start), {Name: "c", Plugin: "kubernetes.io~nfs", LastDeleted: start}}}
	now := &Pod{UID: "u", Volumes: []Volume{volume("a", time.Time{}), volume("b", start.Add(time.Second)), volume("c", time.Time{})}}
	now.Since(before)
	for i, want := range []time.Time{start, start.Add(time.Second), {}} {
		if got := now.Volumes[i].LastDeleted; !got.Equal(want) {
			t.Errorf("%s: %v, want %v", now.Volumes[i].Name, got, want)
		}
	}
}
