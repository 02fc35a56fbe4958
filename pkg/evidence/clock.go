package evidence

import (
	"reflect"
	"sync"
	"time"
)

// A Clock notices that the node's clock was set: it has gone on by more, or by less, than the kernel's
// monotonic one, which nobody can set and which stands still while the node sleeps.
//
// The kubelet and containerd count a grace period by the monotonic clock, and so do the agent's durations. But the API
// server, the kubelet, containerd and the kernel's start times give a time of day. So each round begins with Look.
// After a step, AfterStep and Present convert what is from before it, and what a look has read in the round of the step
// is dropped. How far the API server's clock is ahead changes by the step immediately. What is written once, such as
// the times in an Event, stays as it was. A node that has slept looks like one whose clock was set, until the API
// server answers.
type Clock struct {
	// zero is what it would have told when nothing had gone by, as it is set now, and wall what it told last.
	zero, wall time.Time
	steps      []clockStep // the last ones
}

// A clockStep is by how much the clock was set forward, when that was noticed, and when nobody had done so yet, both by
// the clock after it: it was set in between.
type clockStep struct {
	at, since time.Time
	by        time.Duration
}

// maxSteps is how many steps are kept, and noticed how long after Look, or Goes, times are written at the most.
const (
	maxSteps = 8
	noticed  = 15 * time.Second
)

// little is what makes no difference. A clock that is slewed, as by NTP, takes the monotonic one along (adjtime(3)).
const little = time.Second

// Step takes a time of day, and what has gone by since some moment by the monotonic clock, and returns by how
// much the clock was set forward since Look has told so last; 0 when it was not.
func (c *Clock) Step(wall time.Time, elapsed time.Duration) time.Duration {
	if c.zero.IsZero() {
		return 0
	}
	if step := wall.Round(0).Sub(c.zero.Add(elapsed)); step.Abs() > little {
		return step
	}
	return 0
}

// Look is Step, and what the next call compares with.
func (c *Clock) Look(wall time.Time, elapsed time.Duration) time.Duration {
	step, before := c.Step(wall, elapsed), c.wall
	c.wall = wall.Round(0)
	if step != 0 || c.zero.IsZero() {
		c.zero = c.wall.Add(-elapsed)
	}
	if step != 0 {
		c.steps = append(c.steps[max(0, len(c.steps)-maxSteps+1):], clockStep{c.wall, before.Add(step), step})
	}
	return step
}

// Goes takes what Look does, and notes that it is as late as that by a clock that nobody has set since Look.
func (c *Clock) Goes(wall time.Time, elapsed time.Duration) {
	if c.Step(wall, elapsed) == 0 {
		c.wall = wall.Round(0)
	}
}

// Present returns a time that the kubelet or containerd has written by the clock as it is now, when it is from
// before the clock was set. Of one that comes twice, because the clock was set back, it is taken for the
// later one.
func (c *Clock) Present(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	// Of the times between two steps it is from the last in which it can have been written, and each step after that
	// counts. A step is noticed a while after it, and what was written in between is by the new clock.
	for i := len(c.steps); i >= 0; i-- {
		if i < len(c.steps) && t.After(c.steps[i].at.Add(-c.steps[i].by)) || i == len(c.steps) && c.toCome(t) {
			continue
		}
		if i > 0 && t.Before(c.steps[i-1].since) {
			continue
		}
		for _, s := range c.steps[i:] {
			t = t.Add(s.by)
		}
		return t
	}
	return t
}

// toCome reports whether a time is still to come by the clock that was set back.
func (c *Clock) toCome(t time.Time) bool {
	if len(c.steps) == 0 {
		return false
	}
	by := c.steps[len(c.steps)-1].by
	return by < 0 && t.After(c.wall.Add(min(-by/2, noticed)))
}

// AfterStep returns a copy of a reading from before the node's clock was set forward by step, with all of its
// times by the clock as it is now: it is to be compared with those of later readings, and told.
func (p *Pod) AfterStep(now time.Time, step time.Duration) *Pod { return afterStep(p, now, step) }

// AfterStep is for a node what it is for a pod.
func (n *Node) AfterStep(now time.Time, step time.Duration) *Node { return afterStep(n, now, step) }

// AfterStep is for a baseline what it is for a pod.
func (b *Baseline) AfterStep(now time.Time, step time.Duration) *Baseline {
	return afterStep(b, now, step)
}

// MomentAfterStep returns a moment by the clock as it is now. One that was taken from the monotonic clock too
// keeps that.
func MomentAfterStep(t, now time.Time, step time.Duration) time.Time {
	switch {
	case t.IsZero():
		return t
	case t != t.Round(0):
		return now.Add(t.Sub(now))
	}
	return t.Add(step)
}

func afterStep[T any](v *T, now time.Time, step time.Duration) *T {
	return withTimes(v, func(_ string, t time.Time) time.Time { return MomentAfterStep(t, now, step) })
}

// withTimes returns a copy of a value with the time that change returns for each one in it, and for the name of the field
// that holds it.
func withTimes[T any](v *T, change func(field string, t time.Time) time.Time) *T {
	if v == nil {
		return nil
	}
	out := *v
	changing(change).in("", reflect.ValueOf(&out).Elem())
	return &out
}

// A changing changes the times in a value. What it refers to and has times is copied first, and what has none is shared.
type changing func(field string, t time.Time) time.Time

var typeOfTime = reflect.TypeFor[time.Time]()

// in changes the times in a value that a field of that name holds.
func (s changing) in(field string, v reflect.Value) {
	fields := timed.fields(v.Type())
	switch kind := v.Kind(); {
	case len(fields) == 0:
	case v.Type() == typeOfTime:
		t := v.Addr().Interface().(*time.Time)
		*t = s(field, *t)
	case kind == reflect.Struct:
		for _, f := range fields {
			s.in(f.name, v.Field(f.index))
		}
	case v.IsNil():
	case kind == reflect.Pointer:
		out := reflect.New(v.Type().Elem())
		out.Elem().Set(v.Elem())
		s.in(field, out.Elem())
		v.Set(out)
	case kind == reflect.Slice:
		out := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		reflect.Copy(out, v)
		for i := range out.Len() {
			s.in(field, out.Index(i))
		}
		v.Set(out)
	}
}

// timed has the fields of a struct that may have times in them. Of a slice, a pointer and a time it has one without a name if they
// may.
var timed timedTypes

type (
	timedTypes struct{ m sync.Map } // []timedField by reflect.Type
	timedField struct {
		index int
		name  string
	}
)

func (x *timedTypes) fields(t reflect.Type) []timedField {
	if known, ok := x.m.Load(t); ok {
		return known.([]timedField)
	}
	fields := x.find(t, map[reflect.Type]bool{t: true})
	x.m.Store(t, fields)
	return fields
}

// find is fields for a type that is inside of others. One that is inside of itself may have times.
func (x *timedTypes) find(t reflect.Type, inside map[reflect.Type]bool) (fields []timedField) {
	has := func(t reflect.Type) bool {
		if inside[t] {
			return true
		}
		inside[t] = true
		defer delete(inside, t)
		return len(x.find(t, inside)) > 0
	}
	switch {
	case t == typeOfTime:
		return []timedField{{}}
	case t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice:
		if has(t.Elem()) {
			return []timedField{{}}
		}
	case t.Kind() == reflect.Struct:
		for i := range t.NumField() {
			if f := t.Field(i); f.IsExported() && has(f.Type) {
				fields = append(fields, timedField{i, f.Name})
			}
		}
	}
	return fields
}
