package main

import (
	"slices"
	"testing"

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
