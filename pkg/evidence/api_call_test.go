package evidence

import (
	"testing"
	"time"
)

func TestAPICallsRise(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var earlier *Node
	for i, step := range []struct {
		count        uint64 // 0 for a reading in which the kubelet was not asked
		rose, before int    // the reading before the last rise, and before the one before; -1 for none
	}{{7, -1, -1}, {7, -1, -1}, {8, 1, -1}, {0, 1, -1}, {8, 1, -1}, {10, 4, 1}, {10, 4, 1}, {2, 6, -1}, {3, 7, 6}} {
		n := new(Node)
		if step.count > 0 {
			n.Kubelet = KubeletService{VolumeCallsRead: start.Add(time.Duration(i) * time.Second), APICalls: []APICall{{Method: MethodDelete,
				Code: "403", Count: step.count}}}
		}
		n.Since(earlier)
		at := func(reading int) (t time.Time) {
			if reading >= 0 {
				t = start.Add(time.Duration(reading) * time.Second)
			}
			return t
		}
		c := n.Kubelet.APICalls[0]
		if !c.Rose.Equal(at(step.rose)) || !c.RoseBefore.Equal(at(step.before)) {
			t.Errorf("reading %d: %+v, want it risen after %d and %d", i, c, step.rose, step.before)
		}
		earlier = n
	}
}

// That there was another pod to delete is remembered: what was refused may have been that.
func TestDeletablesAreRemembered(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var earlier *Node
	for i, step := range []struct{ pods, until int }{{1, -1}, {2, 1}, {1, 1}, {0, 3}, {3, 4}, {1, 4}} {
		n := &Node{Deletable: step.pods, Read: start.Add(time.Duration(i) * time.Second)}
		n.Since(earlier)
		if want := start.Add(time.Duration(step.until) * time.Second); step.until < 0 && !n.DeletablesUntil.IsZero() || step.until >= 0 &&
			!n.DeletablesUntil.Equal(want) {
			t.Errorf("reading %d: until %s, want reading %d", i, n.DeletablesUntil, step.until)
		}
		earlier = n
	}
}

func TestAPICodes(t *testing.T) {
	for code, want := range map[string]struct{ refused, trouble bool }{
		"200": {}, "404": {}, "409": {}, "403": {true, false}, "422": {true, false}, "400": {true, false}, "413": {true, false},
		"401": {false, true}, "408": {false, true}, "429": {false, true}, "500": {false, true}, "503": {false, true}, NoAnswer: {false, true},
		"": {}, "4": {}, "4000": {},
	} {
		c := APICall{Code: code}
		if c.Refused() != want.refused || c.Trouble() != want.trouble {
			t.Errorf("%q: refused %t, trouble %t", code, c.Refused(), c.Trouble())
		}
	}
}

func TestNothingLeft(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(p *Pod)
		want   bool
	}{
		"nothing":           {func(*Pod) {}, true},
		"an ended one":      {func(p *Pod) { p.Containers = []Container{{State: StateExited}, {}} }, true},
		"a sandbox":         {func(p *Pod) { p.Containers = []Container{{Kind: Sandbox, State: StateRunning}} }, false},
		"one unknown":       {func(p *Pod) { p.Containers = []Container{{State: StateUnknown}} }, false},
		"a task":            {func(p *Pod) { p.Tasks = []Task{{}} }, false},
		"a leftover":        {func(p *Pod) { p.Leftovers = []Task{{}} }, false},
		"a plugin":          {func(p *Pod) { p.Plugins = []Task{{}} }, false},
		"a network's setup": {func(p *Pod) { p.NetworkSetup = []Task{{}} }, false},
		"a group":           {func(p *Pod) { p.Cgroups = []Cgroup{{}} }, false},
		"a mount":           {func(p *Pod) { p.Mounts = []Mount{{}} }, false},
		"a block device":    {func(p *Pod) { p.Devices = []Mount{{}} }, false},
		"a volume":          {func(p *Pod) { p.Volumes = []Volume{{}} }, false},
		"a holder":          {func(p *Pod) { p.Holders = []Holder{{}} }, false},
		"unread processes":  {func(p *Pod) { p.Lack(Processes, "x") }, false},
		"unread volumes":    {func(p *Pod) { p.Lack(Volumes, "x") }, false},
		"unread containers": {func(p *Pod) { p.Lack(Containers, "x") }, false},
		"unread shims":      {func(p *Pod) { p.Lack(Shims, "x") }, true},
	} {
		p := new(Pod)
		tc.change(p)
		if p.NothingLeft() != tc.want {
			t.Errorf("%s: %t", name, !tc.want)
		}
	}
}
