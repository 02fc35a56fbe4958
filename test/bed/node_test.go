package bed

import (
	"strings"
	"testing"
)

// Nodes that are alike share what wants a node to itself. The first one has all else.
func TestFor(t *testing.T) {
	node := func(name, kind, kernel string) *Node { return &Node{Name: name, Kind: kind, Kernel: kernel} }
	older := node("native3", "native", "6.18")
	older.Containerd = "2.2.9"
	c := &Cluster{Nodes: []*Node{node("native1", "native", "6.18"), node("native2", "native", "6.18"), older, node("vm1", kindVM, "6.1")}}
	for name, tc := range map[string]struct {
		s    Scenario
		want string
	}{
		"usual":             {Scenario{}, "native1"},
		"alone":             {Scenario{Place: Place{Alone: true}}, "native1|native2"},
		"everywhere":        {Scenario{Place: Place{Everywhere: true}}, "native1, vm1"},
		"alone, everywhere": {Scenario{Place: Place{Alone: true, Everywhere: true}}, "native1|native2, vm1"},
		"needs a kernel":    {Scenario{Place: Place{Alone: true, Needs: []Need{Hang}}}, "vm1"},
		"needs containerd":  {Scenario{Place: Place{Alone: true, Needs: []Need{Containerd22}}}, "native3"},
	} {
		var places []string
		for _, nodes := range c.For(tc.s) {
			var names []string
			for _, n := range nodes {
				names = append(names, n.Name)
			}
			places = append(places, strings.Join(names, "|"))
		}
		if got := strings.Join(places, ", "); got != tc.want {
			t.Errorf("%s: runs on %s, want %s", name, got, tc.want)
		}
	}
	only := &Cluster{Nodes: []*Node{older}}
	if got := only.For(Scenario{}); len(got) != 1 || got[0][0] != older {
		t.Errorf("where there is only containerd 2.2, what needs no other runs on %v", got)
	}
}

func TestSoftware(t *testing.T) {
	for _, tc := range []struct {
		out          string
		psi          bool
		cgroup, runc string
	}{
		{"PSI\ncgroup2fs\nrunc version 1.1.5+ds1\ncommit: 1.1.5+ds1-1+deb12u1\nspec: 1.0.2-dev\n", true, "v2", "1.1.5"},
		{"\ntmpfs\nrunc version 1.4.3\nspec: 1.3.0\n", false, "v1", "1.4.3"},
	} {
		if psi, cgroup, runc := software(tc.out); psi != tc.psi || cgroup != tc.cgroup || runc != tc.runc {
			t.Errorf("%q: PSI %t, cgroup %s, runc %s, want %t, %s and %s", tc.out, psi, cgroup, runc, tc.psi, tc.cgroup, tc.runc)
		}
	}
}
