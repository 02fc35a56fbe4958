package main

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	"github.com/nodeagent-io/nodeagent/test/bed"
	"github.com/nodeagent-io/nodeagent/test/scenario"
)

// A phase is a cluster, and what runs on it.
type phase struct {
	name  string
	nodes []string
	// rows says on how many of its nodes an incident runs.
	rows func(bed.Scenario) int
	// checks reports whether a check runs too.
	checks func(bed.Check) bool
}

// phases are all incidents, each on the cheapest node that offers what it needs, and those
// that differ on the older version of control groups and on a newer kernel and runc.
// With nine native nodes beside the virtual machine two processors were under a pressure of 99 %, and one incident of three was late.
var phases = []phase{
	{
		name:  "all",
		nodes: slices.Concat([]string{"vm"}, slices.Repeat([]string{"native"}, 4), []string{"native,containerd=2.2"}),
		rows: func(s bed.Scenario) int {
			switch {
			case slices.Contains(s.Needs, bed.CgroupV1):
				return 0
			case s.Everywhere && !s.OnlyVM():
				return 2
			}
			return 1
		},
		checks: func(bed.Check) bool { return true },
	},
	{
		name:  "cgroup-v1",
		nodes: []string{"vm,cgroup=v1,psi=0"},
		rows:  func(s bed.Scenario) int { return one(s.Everywhere || slices.Contains(s.Needs, bed.CgroupV1)) },
		// The kernel is that of the phase before.
		checks: func(bed.Check) bool { return false },
	},
	{
		name:  "kernel-6.12",
		nodes: []string{"vm,kernel=6.12,runc=1.4"},
		rows: func(s bed.Scenario) int {
			return one(!slices.Contains(s.Needs, bed.CgroupV1) && (s.Everywhere || s.OnlyVM()))
		},
		checks: func(c bed.Check) bool { return c.On == bed.AKernel },
	},
}

func one(is bool) int {
	if is {
		return 1
	}
	return 0
}

// A row is a name in a phase, and how many results that makes.
type row struct {
	phase   int
	name    string
	results int
}

// rows lists what the matrix runs: phase by phase, in each in an order that does not go
// by what incidents have in common, so that its parts take about as long as each other.
func rows() []row {
	var all []row
	for i, p := range phases {
		var of []row
		for _, s := range append(scenario.All(), scenario.Alone()...) {
			if n := p.rows(s); n > 0 {
				of = append(of, row{i, s.Name, n})
			}
		}
		for _, check := range scenario.Checks() {
			if p.checks(check) {
				of = append(of, row{i, check.Name, 1})
			}
		}
		slices.SortFunc(of, func(a, b row) int {
			return cmp.Or(cmp.Compare(hash(a.name), hash(b.name)), cmp.Compare(a.name, b.name))
		})
		all = append(all, of...)
	}
	return all
}

func hash(name string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name))
	return h.Sum32()
}

// cut returns one part of the rows, such as 1/4; all of them for "".
func cut(all []row, part string) ([]row, error) {
	if part == "" {
		return all, nil
	}
	var k, n int
	if _, err := fmt.Sscanf(part, "%d/%d", &k, &n); err != nil || k < 1 || k > n || part != fmt.Sprintf("%d/%d", k, n) {
		return nil, fmt.Errorf("PART=%s is no part; the second of four is PART=2/4", part)
	}
	return all[(k-1)*len(all)/n : k*len(all)/n], nil
}

// names returns those of some rows, as the tests take them.
func names(some []row) string {
	var out []string
	for _, r := range some {
		out = append(out, r.name)
	}
	return strings.Join(out, " ")
}
