package main

import (
	"slices"
	"testing"

	"github.com/nodeagent-io/nodeagent/test/bed"
	"github.com/nodeagent-io/nodeagent/test/scenario"
)

func TestEveryIncidentIsInTheMatrix(t *testing.T) {
	runs := map[string]bool{}
	for _, r := range rows() {
		runs[r.name] = true
	}
	for _, s := range append(scenario.All(), scenario.Alone()...) {
		if !runs[s.Name] {
			t.Errorf("%s is in no phase", s.Name)
		}
	}
}

// What asks a kernel runs on each of them, any other check once.
func TestEveryCheckIsInTheMatrix(t *testing.T) {
	for _, check := range scenario.Checks() {
		var on []string
		for _, r := range rows() {
			if r.name == check.Name {
				on = append(on, phases[r.phase].name)
			}
		}
		want := []string{"all"}
		if check.On == bed.AKernel {
			want = append(want, "kernel-6.12")
		}
		if !slices.Equal(on, want) {
			t.Errorf("%s runs in %v, want %v", check.Name, on, want)
		}
	}
}

func TestPartsAreTheWhole(t *testing.T) {
	all := rows()
	var sum []row
	for _, part := range []string{"1/3", "2/3", "3/3"} {
		some, err := cut(all, part)
		if err != nil {
			t.Fatal(err)
		}
		sum = append(sum, some...)
	}
	if !slices.Equal(sum, all) {
		t.Errorf("three parts have %d rows, all have %d", len(sum), len(all))
	}
	for _, part := range []string{"0/4", "5/4", "1", "one/four", "1/4x", "-1/4", "1/0"} {
		if some, err := cut(all, part); err == nil {
			t.Errorf("PART=%s is taken for %d rows", part, len(some))
		}
	}
}
