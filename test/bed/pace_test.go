package bed

import (
	"slices"
	"testing"
)

func TestHungryIncidentsTakeTurnsOnAVirtualMachine(t *testing.T) {
	hungry, other := &Turn{Wish: Wish{Hungry: true}}, &Turn{}
	for _, test := range []struct {
		name             string
		kind             string
		running, waiting []*Turn
		want             int
	}{
		{"nothing runs", kindVM, nil, []*Turn{hungry, other}, 0},
		{"another one runs", kindVM, []*Turn{other}, []*Turn{hungry}, 0},
		{"a hungry one runs", kindVM, []*Turn{hungry}, []*Turn{hungry, other, other}, 1},
		{"only hungry ones wait", kindVM, []*Turn{hungry, other}, []*Turn{hungry, hungry}, -1},
		{"a native node", "native", []*Turn{hungry}, []*Turn{hungry, other}, 0},
	} {
		p := &pace{node: &Node{Kind: test.kind}, running: map[*Turn]bool{}, waiting: slices.Clone(test.waiting)}
		for _, turn := range test.running {
			p.running[turn] = true
		}
		if got := p.next(); got != test.want {
			t.Errorf("%s: %d comes next, want %d", test.name, got, test.want)
		}
	}
}
