package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/nodeagent-io/nodeagent/test/bed"
)

// The limits of the verdicts' latencies: from the deadline or, where the cause
// is known before, from the deletion, to the Event. The condition is written
// before the Event.
var limits = []struct {
	scenario     string
	fromDeletion bool
	limit        time.Duration
}{
	{"shell-pid1", true, 8 * time.Second},
	{"sleep-pid1", true, 8 * time.Second},
	{"frozen-filesystem", false, 10 * time.Second},
	{"zombie-leader", false, 10 * time.Second},
	{"finalizer", false, 10 * time.Second},
	{"nfs-server-gone", false, 15 * time.Second},
	{"shim-stopped", false, 15 * time.Second},
	{"containerd-stopped", false, 15 * time.Second},
}

// verdicts reads the results of the last runs of the tests, of the first node that
// each scenario ran on. That there are none is no failure: a run takes longer
// than all the rest here.
func verdicts(context.Context) ([]row, error) {
	hint := []row{{what: "Latency of verdicts", measured: "run make e2e first, both with NODEAGENT_ARTIFACTS=DIR"}}
	dir := os.Getenv("NODEAGENT_ARTIFACTS")
	if dir == "" {
		return hint, nil
	}
	results, err := bed.ReadResults(dir)
	if err != nil || len(results) == 0 {
		return hint, err
	}
	return latencies(results), nil
}

// warned tells when the kubelet's own first warning about the pod came, from the deletion or from the deadline, as the verdict.
func warned(r *bed.Result, fromDeletion bool) string {
	if r.Warning == "" {
		return "none while the fault lasted"
	}
	after := r.Warned
	if !fromDeletion {
		after -= r.Deletion - r.Deadline
	}
	return fmt.Sprintf("%s (%s)", after.Round(time.Second), r.Warning)
}

func latencies(results bed.Results) []row {
	rows := []row{{what: "Latency of verdicts", measured: "in the last run of each"}}
	for _, l := range limits {
		r := row{what: "  " + l.scenario + ": deadline to Event"}
		if l.fromDeletion {
			r.what = "  " + l.scenario + ": deletion to Event"
		}
		r.target = "≤" + l.limit.String()
		i := slices.IndexFunc(results, func(e bed.Result) bool { return e.Name == l.scenario })
		switch {
		case i < 0:
			r.target, r.measured = "", "not in the run"
		case results[i].Deletion == 0:
			r.measured = "no verdict"
		default:
			v := results[i].Deadline
			if l.fromDeletion {
				v = results[i].Deletion
			}
			r.measured, r.met = v.Round(100*time.Millisecond).String()+" on "+results[i].Node+"; the kubelet's own first: "+
				""+warned(&results[i], l.fromDeletion), v <= l.limit
		}
		rows = append(rows, r)
	}
	return rows
}
