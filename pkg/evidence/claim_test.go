package evidence

import (
	"testing"
	"time"
)

func TestClaimCallsRise(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var earlier *Node
	for i, step := range []struct {
		count        uint64 // 0 for a reading in which the kubelet was not asked
		rose, before int    // the reading before the last rise, and before the one before; -1 for none
	}{{7, -1, -1}, {7, -1, -1}, {8, 1, -1}, {0, 1, -1}, {10, 2, 1}, {2, 4, -1}, {3, 5, 4}} {
		n := new(Node)
		if step.count > 0 {
			n.Kubelet = KubeletService{VolumeCallsRead: start.Add(time.Duration(i) * time.Second), ClaimCalls: []ClaimCall{
				{Method: NodeUnprepare, Driver: "nic.test", Status: CallOK, Count: 1},
				{Method: NodeUnprepare, Driver: "gpu.test", Status: CallOK, Count: step.count},
			}}
		}
		n.Since(earlier)
		at := func(reading int) (t time.Time) {
			if reading >= 0 {
				t = start.Add(time.Duration(reading) * time.Second)
			}
			return t
		}
		if c := n.Kubelet.ClaimCalls[1]; !c.Rose.Equal(at(step.rose)) || !c.RoseBefore.Equal(at(step.before)) {
			t.Errorf("reading %d: %+v, want it risen after %d and %d", i, c, step.rose, step.before)
		}
		if c := n.Kubelet.ClaimCalls[0]; !c.Rose.IsZero() {
			t.Errorf("reading %d: another driver's count rose: %+v", i, c)
		}
		earlier = n
	}
}

// That there was another pod with claims to release is remembered.
func TestUnpreparingIsRemembered(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var earlier *Node
	for i, step := range []struct{ pods, until int }{{1, -1}, {2, 1}, {1, 1}, {0, 3}, {3, 4}, {1, 4}} {
		n := &Node{Unpreparing: step.pods, Read: start.Add(time.Duration(i) * time.Second)}
		n.Since(earlier)
		if want := start.Add(time.Duration(step.until) * time.Second); step.until < 0 && !n.UnpreparingUntil.IsZero() || step.until >= 0 &&
			!n.UnpreparingUntil.Equal(want) {
			t.Errorf("reading %d: until %s, want reading %d", i, n.UnpreparingUntil, step.until)
		}
		earlier = n
	}
}

// That another pod's volumes were taken down, or that it was not known, is remembered.
func TestUnmountingIsRemembered(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var earlier *Node
	for i, step := range []struct{ pods, until int }{{1, -1}, {2, 1}, {1, 1}, {0, 3}, {1, 3}} {
		n := &Node{Unmounting: step.pods, Read: start.Add(time.Duration(i) * time.Second)}
		n.Since(earlier)
		if want := start.Add(time.Duration(step.until) * time.Second); step.until < 0 && !n.UnmountingUntil.IsZero() || step.until >= 0 &&
			!n.UnmountingUntil.Equal(want) {
			t.Errorf("reading %d: until %s, want reading %d", i, n.UnmountingUntil, step.until)
		}
		earlier = n
	}
}

// A claim that is released, or a driver that comes back, is a new stage.
func TestStageOfClaims(t *testing.T) {
	of := func(change func(c *Claim)) *Pod {
		c := Claim{Name: "gpu", Drivers: []ClaimDriver{{Name: "gpu.test", Unregistered: true, PodState: DriverNotReady}}}
		change(&c)
		return &Pod{Claims: []Claim{c}}
	}
	before := of(func(*Claim) {})
	for name, tc := range map[string]struct {
		now  *Pod
		same bool
	}{
		"nothing has changed": {of(func(*Claim) {}), true},
		"it is released":      {&Pod{}, false},
		"it is another one":   {of(func(c *Claim) { c.Name = "nic" }), false},
		"nobody else has it":  {of(func(c *Claim) { c.Shared = true }), false},
		"the driver is back":  {of(func(c *Claim) { c.Drivers[0].Unregistered = false }), false},
		"its pod runs":        {of(func(c *Claim) { c.Drivers[0].PodState = DriverRunning }), false},
		"its pod is deleted":  {of(func(c *Claim) { c.Drivers[0].PodState = DriverTerminating }), true},
	} {
		if got := tc.now.sameStage(before); got != tc.same {
			t.Errorf("%s: same stage %t", name, got)
		}
	}
	back := of(func(c *Claim) { c.Drivers[0].Unregistered = false })
	if !before.sameStage(back) {
		t.Error("a driver that goes away is a new stage")
	}
}
