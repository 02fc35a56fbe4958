package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// A verdict is what the agent told of a pod, in the condition or in an Event.
type verdict struct {
	Cause string `json:"cause"`
	Note  string `json:"note"`
	// After is how long after the deletion it was told first, in whole seconds where an Event says it.
	After time.Duration `json:"after"`
}

// An ending is how a pod ended, by its last status in the API.
type ending struct {
	// Killed reports whether the container in question was ended by SIGKILL at the deadline or later.
	Killed bool `json:"killed"`
	// Code is that container's exit code.
	Code int32 `json:"code"`
	// After is how long after the deletion it ended, in whole seconds.
	After time.Duration `json:"after"`
	// Odd says what else a cell must not show: another container that was killed, a restart, an end before the deletion.
	Odd string `json:"odd,omitempty"`
}

// An outcome is what became of a cell.
type outcome string

const (
	// right is a pod that burnt its grace period, and the agent told why.
	right outcome = "told right"
	// wrong is one of which it told something else.
	wrong outcome = "told wrong"
	// missed is one of which it told nothing.
	missed outcome = "missed"
	// silent is a pod that ended in time, of which it told nothing.
	silent outcome = "silent"
	// accused is one of which it told something.
	accused outcome = "accused"
	// otherwise is a pod that did not end as the cell says: nothing can be said of the agent.
	otherwise outcome = "ended otherwise"
)

// judge compares what was seen of a cell's pod with what is true of it.
func judge(c cell, e ending, verdicts []verdict) (outcome, string) {
	accepted, _ := c.accepts()
	burns := len(accepted) > 0
	switch {
	case e.Odd != "":
		return otherwise, e.Odd
	case burns && !e.Killed:
		return otherwise, fmt.Sprintf("it ended by itself after %.0f s with exit code %d", e.After.Seconds(), e.Code)
	case !burns && e.Killed:
		return otherwise, fmt.Sprintf("it was killed after %.0f s", e.After.Seconds())
	case len(verdicts) == 0 && burns:
		return missed, ""
	case len(verdicts) == 0:
		return silent, ""
	case !burns:
		return accused, verdicts[0].Note
	}
	for _, v := range verdicts {
		if why := c.disagrees(accepted, v); why != "" {
			return wrong, why
		}
	}
	return right, ""
}

// disagrees says what is wrong with a verdict, "" when it is one of those accepted.
func (c cell) disagrees(accepted []told, v verdict) string {
	i := slices.IndexFunc(accepted, func(t told) bool { return t.cause == v.Cause })
	if i < 0 {
		return "another cause: " + v.Note
	}
	for _, want := range append([]string{"container " + c.container()}, accepted[i].says...) {
		if !strings.Contains(v.Note, want) {
			return fmt.Sprintf("it does not say %q: %s", want, v.Note)
		}
	}
	return ""
}
