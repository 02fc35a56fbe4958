package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
	"github.com/nodeagent-io/nodeagent/test/bed"
)

// Each two that can come together do.
func TestPairwise(t *testing.T) {
	all := shapes()
	want := make(map[[2]string]bool)
	for _, h := range hooks {
		for _, b := range behaviours {
			want[[2]string{string(h), string(b)}] = true
		}
		for _, s := range all {
			if !s.init || h == noHook {
				want[[2]string{s.name, string(h)}] = true
			}
		}
	}
	for _, s := range all {
		for _, b := range behaviours {
			if s.can(b) {
				want[[2]string{s.name, string(b)}] = true
			}
		}
	}
	names := make(map[string]bool)
	for _, c := range pairwise(all) {
		if names[c.name()] {
			t.Errorf("%s comes twice", c.name())
		}
		names[c.name()] = true
		if !c.shape.can(c.behaviour) {
			t.Errorf("%s: the shape cannot behave so", c.name())
		}
		delete(want, [2]string{c.shape.name, string(c.hook)})
		delete(want, [2]string{c.shape.name, string(c.behaviour)})
		delete(want, [2]string{string(c.hook), string(c.behaviour)})
	}
	for pair := range maps.Keys(want) {
		t.Errorf("%s and %s never come together", pair[0], pair[1])
	}
	if n := len(names); n < 110 || n > 130 {
		t.Errorf("there are %d cells, want about 120", n)
	}
}

func TestShapes(t *testing.T) {
	all := shapes()
	if len(all) != 27 {
		t.Errorf("there are %d shapes, want 27", len(all))
	}
	stand := 0
	for _, s := range all {
		if s.standIn != "" {
			stand++
		}
		if !s.can(inTime) || !s.can(tooSlow) {
			t.Errorf("%s lacks one of the behaviours that each shape has", s.name)
		}
		for b, p := range s.programs {
			switch {
			case p.why == "":
				t.Errorf("%s, %s: nothing says why", s.name, b)
			case b == inTime && len(p.burns) > 0:
				t.Errorf("%s ends in time and has a cause", s.name)
			case b == tooSlow && len(p.burns) == 0:
				t.Errorf("%s is too slow and has no cause", s.name)
			case p.client != nil && s.port == 0:
				t.Errorf("%s has a client and no port", s.name)
			}
		}
	}
	if stand > 5 {
		t.Errorf("%d shapes are stand-ins, want at most five", stand)
	}
}

// What the cells want to be told are causes that there are.
func TestCauses(t *testing.T) {
	for _, c := range pairwise(shapes()) {
		accepts, _ := c.accepts()
		for _, a := range accepts {
			if !slices.ContainsFunc(cause.All(), func(r *diagnose.Rule) bool { return r.Cause == a.cause }) {
				t.Errorf("%s: there is no cause %s", c.name(), a.cause)
			}
		}
	}
}

// What the programs are started with is in the images.
func TestFiles(t *testing.T) {
	for _, c := range pairwise(shapes()) {
		for _, word := range c.program().command {
			for _, part := range strings.Fields(strings.Trim(word, "'")) {
				name, ours := strings.CutPrefix(strings.Trim(part, "';"), "/everyday/")
				if !ours {
					continue
				}
				if _, err := os.Stat(filepath.Join(bed.Root(), "test", "everyday", "files", name)); err != nil {
					t.Errorf("%s: %v", c.name(), err)
				}
			}
		}
	}
}
