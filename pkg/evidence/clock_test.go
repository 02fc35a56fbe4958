package evidence

import (
	"reflect"
	"testing"
	"time"
)

func TestClock(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	var c Clock
	for _, s := range []struct{ wall, elapsed, step time.Duration }{
		{0, time.Hour, 0},
		{2 * time.Second, time.Hour + 2*time.Second, 0},
		{2*time.Hour + 3*time.Second, 3*time.Hour + 2*time.Second, 0}, // by a second
		{2*time.Hour + 10*time.Minute, 3*time.Hour + 4*time.Second, 10*time.Minute - 4*time.Second},
		{2*time.Hour + 11*time.Minute, 3*time.Hour + 64*time.Second, 0},
		{time.Hour, 3*time.Hour + 66*time.Second, -71*time.Minute - 2*time.Second},
		// Again and again by less than a second.
		{time.Hour + 2600*time.Millisecond, 3*time.Hour + 68*time.Second, 0},
		{time.Hour + 5200*time.Millisecond, 3*time.Hour + 70*time.Second, 1200 * time.Millisecond},
		{time.Hour + 7800*time.Millisecond, 3*time.Hour + 72*time.Second, 0},
	} {
		if got := c.Step(start.Add(s.wall), s.elapsed); got != s.step {
			t.Errorf("%+v: %s", s, got)
		}
		if got := c.Look(start.Add(s.wall), s.elapsed); got != s.step {
			t.Errorf("%+v: %s", s, got)
		}
	}
}

func TestAfterStep(t *testing.T) {
	deadline := time.Date(2026, 1, 2, 3, 0, 30, 0, time.UTC)
	probe := &Probe{Started: deadline}
	p := &Pod{
		Deadline: deadline, Before: &Baseline{Read: deadline},
		Tasks:   []Task{{PID: 7, UnchangedSince: deadline, Probe: probe}},
		Missing: map[Source]string{Pulls: "why"},
		Node:    Node{Containerd: ContainerdService{Downloads: []Download{{Updated: deadline}}}},
	}
	const step = -10 * time.Minute
	got, want := p.AfterStep(deadline, step), deadline.Add(step)
	for name, at := range map[string]time.Time{
		"deadline": got.Deadline, "baseline": got.Before.Read, "task": got.Tasks[0].UnchangedSince,
		"probe": got.Tasks[0].Probe.Started, "download": got.Node.Containerd.Downloads[0].Updated,
	} {
		if !at.Equal(want) {
			t.Errorf("%s at %s, not %s", name, at, want)
		}
	}
	if !got.DeletionRequested.IsZero() || got.Tasks[0].PID != 7 || got.Missing[Pulls] != "why" {
		t.Errorf("%+v", got)
	}
	if !p.Deadline.Equal(deadline) || !p.Tasks[0].UnchangedSince.Equal(deadline) || !probe.Started.Equal(deadline) {
		t.Error("the reading itself was changed")
	}
}

func TestPresent(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	const m = time.Minute
	for name, test := range map[string]struct{ step, written, want time.Duration }{
		"set forward, from before": {10 * m, -2 * m, 8 * m},
		"set forward, from after":  {10 * m, 11 * m, 11 * m},
		"set back, from before":    {-10 * m, -15 * m, -25 * m},
		"set back, just before":    {-10 * m, 0, -10 * m},
		"set back, from after":     {-10 * m, -9 * m, -9 * m},
	} {
		var c Clock
		c.Look(start, 0)
		c.Look(start.Add(test.step+time.Second), time.Second)
		c.Look(start.Add(test.step+2*m), 2*m)
		if got := c.Present(start.Add(test.written)); !got.Equal(start.Add(test.want)) {
			t.Errorf("%s: %s, not %s", name, got.Sub(start), test.want)
		}
	}
	var c Clock
	if c.Look(start, 0); !c.Present(start).Equal(start) || !c.Present(time.Time{}).IsZero() {
		t.Error("of a clock that nobody has set")
	}
}

// A clock that was set wrong, and right again: what was written before both is by the same clock as what is written now.
func TestPresentAfterTwoSteps(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	const m, s = time.Minute, time.Second
	for name, test := range map[string]struct{ step, written, want time.Duration }{
		"forward and back, from before":      {10 * m, -2 * m, -2 * m},
		"forward and back, from in between":  {10 * m, 10*m + 30*s, 30 * s},
		"forward and back, from after":       {10 * m, 90 * s, 90 * s},
		"back and forward, from before":      {-10 * m, -2 * m, -2 * m},
		"back and forward, from long before": {-10 * m, -20 * m, -20 * m},
		"back and forward, from in between":  {-10 * m, -10*m + 30*s, 30 * s},
		"back and forward, from after":       {-10 * m, 90 * s, 90 * s},
	} {
		var c Clock
		c.Look(start, 0)
		c.Look(start.Add(test.step+s), s)
		c.Look(start.Add(test.step+m), m)
		c.Look(start.Add(m+s), m+s)
		for _, later := range []time.Duration{2 * m, 9 * m, 30 * m} {
			if c.Look(start.Add(later), later); name == "forward and back, from in between" && later >= 9*m {
				continue // it comes twice
			}
			if got := c.Present(start.Add(test.written)); !got.Equal(start.Add(test.want)) {
				t.Errorf("%s, after %s: %s, not %s", name, later, got.Sub(start), test.want)
			}
		}
	}
}

// What is written after a step, and before that is noticed, is by the new clock, however small the step is.
func TestPresentBeforeNoticed(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	const s = time.Second
	for name, step := range map[string]time.Duration{"forward": 4 * s, "far forward": time.Hour, "back": -4 * s, "far back": -time.Hour} {
		for later, by := range map[string]time.Duration{"once": 0, "and again": 10 * time.Minute} {
			var c Clock
			c.Look(start, 0)
			// The clock is set after a second, and that is noticed after five.
			c.Look(start.Add(step+5*s), 5*s)
			c.Look(start.Add(step+60*s), 60*s)
			c.Look(start.Add(step+by+65*s), 65*s)
			for after := 2 * s; after <= 5*s; after += s {
				got := c.Present(start.Add(step + after))
				if want := start.Add(step + by + after); !got.Equal(want) {
					t.Errorf("%s, %s, after %s: it is wrong by %s", name, later, after, got.Sub(want))
				}
			}
		}
	}
}

// AfterStep finds each time that there is: none is in a map, an array or an interface, or not exported.
func TestNoTimeIsHidden(t *testing.T) {
	seen := make(map[reflect.Type]bool)
	var has func(reflect.Type) bool
	has = func(t reflect.Type) bool {
		if t == typeOfTime || seen[t] {
			return t == typeOfTime
		}
		seen[t] = true
		switch t.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
			return has(t.Elem())
		case reflect.Interface:
			return true
		case reflect.Struct:
			for i := range t.NumField() {
				if has(t.Field(i).Type) {
					return true
				}
			}
		}
		return false
	}
	walked := make(map[reflect.Type]bool)
	var walk func(reflect.Type, string)
	walk = func(of reflect.Type, path string) {
		if of == typeOfTime || walked[of] {
			return
		}
		walked[of] = true
		clear(seen)
		switch of.Kind() {
		case reflect.Pointer, reflect.Slice:
			walk(of.Elem(), path)
		case reflect.Array, reflect.Map, reflect.Interface:
			if has(of) {
				t.Errorf("%s: %s", path, of)
			}
		case reflect.Struct:
			for i := range of.NumField() {
				f := of.Field(i)
				if clear(seen); !f.IsExported() && has(f.Type) {
					t.Errorf("%s.%s is not exported", path, f.Name)
				}
				walk(f.Type, path+"."+f.Name)
			}
		}
	}
	walk(reflect.TypeFor[Pod](), "Pod")
	walk(reflect.TypeFor[Baseline](), "Baseline")
}
