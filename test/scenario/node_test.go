package scenario

import (
	"slices"
	"testing"
)

// Nodes that are alike share the work: what wants a node to itself is apart.
func TestFor(t *testing.T) {
	node := func(name, kind, kernel string) *Node { return &Node{Name: name, Kind: kind, Kernel: kernel} }
	c := &Cluster{Nodes: []*Node{node("native1", "native", "6.18"), node("native2", "native", "6.18"), node("vm1", kindVM, "6.1")}}
	for name, tc := range map[string]struct {
		s    Scenario
		want []string
	}{
		"usual":             {Scenario{}, []string{"native1"}},
		"alone":             {Scenario{Alone: true}, []string{"native2"}},
		"everywhere":        {Scenario{Everywhere: true}, []string{"native1", "vm1"}},
		"alone, everywhere": {Scenario{Alone: true, Everywhere: true}, []string{"native2", "vm1"}},
		"needs a kernel":    {Scenario{Alone: true, Needs: []Need{Hang}}, []string{"vm1"}},
	} {
		var got []string
		for _, n := range c.For(tc.s) {
			got = append(got, n.Name)
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: runs on %v, want %v", name, got, tc.want)
		}
	}
	if n := c.Calm(); n.Name != "native2" {
		t.Errorf("the calm node is %s", n.Name)
	}
	// What wants a node to itself is spread over all but the first.
	c.Nodes = append(c.Nodes, node("native3", "native", "6.18"))
	runs := map[string]int{}
	for _, s := range Alone() {
		runs[c.For(s)[0].Name]++
	}
	if runs["native1"] > 0 || runs["native2"] < 3 || runs["native3"] < 3 {
		t.Errorf("what wants a node to itself runs on %v", runs)
	}
}

func TestSoftware(t *testing.T) {
	for _, tc := range []struct{ out, cgroup, runc string }{
		{"cgroup2fs\nrunc version 1.1.5+ds1\ncommit: 1.1.5+ds1-1+deb12u1\nspec: 1.0.2-dev\n", "v2", "1.1.5"},
		{"tmpfs\nrunc version 1.4.3\nspec: 1.3.0\n", "v1", "1.4.3"},
	} {
		if cgroup, runc := software(tc.out); cgroup != tc.cgroup || runc != tc.runc {
			t.Errorf("%q: cgroup %s, runc %s, want %s and %s", tc.out, cgroup, runc, tc.cgroup, tc.runc)
		}
	}
}
