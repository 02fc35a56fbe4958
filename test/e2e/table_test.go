//go:build e2e

package e2e

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nodeagent-io/nodeagent/test/scenario"
)

// The verdicts in the table.
const (
	verdictTrue    = "true"
	verdictSilent  = "silent"
	verdictMissed  = "MISSED"
	verdictAccused = "ACCUSED"
	// verdictFailed is for an incident that did not get as far.
	verdictFailed = "FAILED"
	// verdictCheck is for what is no incident: how the agent behaves.
	verdictCheck = "check"
)

type results struct {
	mu      sync.Mutex
	begun   time.Time
	cluster *scenario.Cluster
	planned int
	rows    scenario.Results
	notRun  []string
	earlier scenario.Results
}

func (r *results) add(row scenario.Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rows = append(r.rows, row)
	outcome := row.Verdict
	if len(row.Failures) > 0 {
		outcome += ", FAILED: " + short(row.Failures[0], 200)
	}
	fmt.Printf("%s %3d/%d  %-8s %-26s %4.0f s  %s\n", time.Now().Format(time.TimeOnly), len(r.rows), r.planned,
		row.Node, row.Name, row.Whole.Seconds(), outcome)
}

// keep writes the results, together with those of earlier runs that this one did
// not repeat.
func (r *results) keep() error { return r.rows.With(r.earlier).Write(artifacts()) }

// artifacts returns the folder that the run's files go to.
func artifacts() string { return os.Getenv("NODEAGENT_ARTIFACTS") }

// print writes the table of scenarios and verdicts, and at the end what failed.
func (r *results) print() {
	var b strings.Builder
	slices.SortFunc(r.rows, func(a, b scenario.Result) int {
		return cmp.Or(cmp.Compare(a.Want, b.Want), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Node, b.Node))
	})
	fmt.Fprintf(&b, "\n%-24s %-8s %-29s %-8s %9s %9s  %-44s %s\n", "SCENARIO", "NODE", "TRUE CAUSE", "VERDICT", "DELETION", "DEADLINE",
		strings.Join(scenario.Steps, " "), "WRONG NAMES")
	verdicts, failed := map[string]int{}, 0
	for _, row := range r.rows {
		verdicts[row.Verdict]++
		if len(row.Failures) > 0 {
			failed++
		}
		if row.Verdict == verdictCheck {
			continue
		}
		deletion, deadline := "", ""
		if row.Deletion != 0 {
			deletion, deadline = fmt.Sprintf("%+.1f s", row.Deletion.Seconds()), fmt.Sprintf("%+.1f s", row.Deadline.Seconds())
		}
		wrong := "none"
		if len(row.Wrong) > 0 {
			wrong = strings.Join(row.Wrong, "; ")
		}
		if row.Again > 0 {
			wrong += " (the first pod went without the fault)"
		}
		fmt.Fprintf(&b, "%-24s %-8s %-29s %-8s %9s %9s  %-44s %s\n", row.Name, row.Node, row.Want, row.Verdict, deletion, deadline, steps(row.Took), wrong)
	}
	fmt.Fprintln(&b)
	for _, n := range r.cluster.Nodes {
		fmt.Fprintf(&b, "%s; at most %d incidents side by side, slowness %.1f at the end\n", n, n.SideBySide(), n.Slowness())
	}
	for _, s := range r.notRun {
		fmt.Fprintf(&b, "not run: %s\n", s)
	}
	sums := map[string]time.Duration{}
	for _, row := range r.rows {
		for step, took := range row.Took {
			sums[step] += took
		}
	}
	fmt.Fprintf(&b, "seconds in all:")
	for _, step := range append([]string{"turn"}, scenario.Steps...) {
		fmt.Fprintf(&b, " %s %.0f", step, sums[step].Seconds())
	}
	fmt.Fprintf(&b, "; the run took %s\n", time.Since(r.begun).Round(time.Second))
	fmt.Fprintf(&b, "%s: %d scenarios: %d true, %d innocent and silent, %d missed, %d accused; %d other checks; %d failed\n",
		time.Now().UTC().Format(time.DateTime), len(r.rows)-verdicts[verdictCheck], verdicts[verdictTrue], verdicts[verdictSilent],
		verdicts[verdictMissed], verdicts[verdictAccused], verdicts[verdictCheck], failed)
	fmt.Print(b.String())
	if err := os.WriteFile(filepath.Join(artifacts(), "verdicts.txt"), []byte(b.String()), 0o644); err != nil {
		fmt.Println(err)
	}
	if failed == 0 {
		return
	}
	fmt.Printf("\nWhat failed (make test FAILED=1 runs it again; describe, capture and the agent's log are in %s):\n", artifacts())
	const most = 12
	shown := 0
	for _, row := range r.rows {
		if len(row.Failures) == 0 {
			continue
		}
		if shown++; shown > most {
			continue
		}
		fmt.Printf("  %s on %s (%s)\n", row.Name, row.Node, row.Verdict)
		for _, f := range row.Failures[:min(2, len(row.Failures))] {
			fmt.Printf("      %s\n", short(f, 600))
		}
	}
	if shown > most {
		fmt.Printf("  and %d more, in results.json there\n", shown-most)
	}
}

// steps prints the seconds of the steps, each below its name.
func steps(took map[string]time.Duration) string {
	var b strings.Builder
	for i, step := range scenario.Steps {
		if i > 0 {
			b.WriteByte(' ')
		}
		text := ""
		if took[step] != 0 {
			text = fmt.Sprintf("%.0f", took[step].Seconds())
		}
		fmt.Fprintf(&b, "%*s", len(step), text)
	}
	return b.String()
}

// short makes one line of a text.
func short(text string, most int) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > most {
		text = text[:most] + " …"
	}
	return text
}

// A trial is the test of one row.
type trial struct {
	*testing.T
	row   scenario.Result
	begun time.Time
	run   *scenario.Run
}

// try begins the test of a row, which is added to the table when it has ended.
func try(t *testing.T, table *results, row scenario.Result) *trial {
	x := &trial{T: t, row: row, begun: time.Now()}
	t.Cleanup(func() {
		x.row.Whole = time.Since(x.begun)
		if x.run != nil {
			x.row.Took = maps.Clone(x.run.Took)
			for _, w := range x.run.Wrong {
				if !slices.Contains(x.row.Wrong, w) {
					x.row.Wrong = append(x.row.Wrong, w)
				}
			}
		}
		if t.Failed() && len(x.row.Failures) == 0 {
			x.row.Failures = []string{"failed without a word; a panic, or the run was interrupted"}
		}
		table.add(x.row)
	})
	return x
}

// Errorf fails the trial and keeps the words for the end of the run.
func (x *trial) Errorf(format string, args ...any) {
	x.Helper()
	x.row.Failures = append(x.row.Failures, fmt.Sprintf(format, args...))
	x.T.Errorf(format, args...)
}

// Error is Errorf for an error.
func (x *trial) Error(err error) {
	x.Helper()
	x.Errorf("%v", err)
}

// Fatal is Error, and ends the trial.
func (x *trial) Fatal(err error) {
	x.Helper()
	x.Errorf("%v", err)
	x.FailNow()
}
