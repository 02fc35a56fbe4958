//go:build e2e

package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/test/bed"
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

// ciVariable is set where nobody looks on. Of what goes as it should one row in oneIn is printed then, so that
// what fails is not lost in a long log.
const (
	ciVariable = "CI"
	oneIn      = 20
)

type results struct {
	mu      sync.Mutex
	begun   time.Time
	cluster *bed.Cluster
	planned int
	rows    bed.Results
	notRun  []string
	earlier bed.Results
	commit  string
	// first are the tries that are followed by another.
	first bed.Results
	// running are those under way, told is when the last one ended, or what runs was printed.
	running []*trial
	told    time.Time
}

// quiet is after how long without the end of a row it is told what runs.
const quiet = 2 * time.Minute

// begins notes that a row is under way.
func (r *results) begins(x *trial) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running = append(r.running, x)
}

// ends notes that a row has ended.
func (r *results) ends(x *trial) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running = slices.DeleteFunc(r.running, func(other *trial) bool { return other == x })
	r.told = time.Now()
}

// tellsWhatRuns prints what is under way when no row has ended for a while, until the context ends.
func (r *results) tellsWhatRuns(ctx context.Context) {
	tick := time.NewTicker(quiet / 4)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		r.mu.Lock()
		if len(r.running) > 0 && time.Since(r.told) > quiet {
			var names []string
			for _, x := range r.running {
				names = append(names, fmt.Sprintf("%s on %s (%.0f s)", x.row.Name, cmp.Or(x.row.Node, "all nodes"), time.Since(x.begun).Seconds()))
			}
			fmt.Printf("%s %3d/%d  under way: %s\n", time.Now().Format(time.TimeOnly), len(r.rows), r.planned, strings.Join(names, ", "))
			r.told = time.Now()
		}
		r.mu.Unlock()
	}
}

// again notes a try that is followed by another.
func (r *results) again(row bed.Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.first = append(r.first, row)
	fmt.Printf("%s    -/%d  %-8s %-26s %4.0f s  %s, to be tried once more: %s\n", time.Now().Format(time.TimeOnly), r.planned,
		row.Node, row.Name, row.Whole.Seconds(), row.Verdict, short(row.Failures[0], 200))
}

// tryAgain returns the jobs that are tried once more.
func (r *results) tryAgain(jobs []job) []job {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(jobs), func(j job) bool {
		_, ok := r.first.Of(j.name, j.on())
		return !ok
	})
}

// missed returns what the first try at a row failed with.
func (r *results) missed(name, on string) (string, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	row, ok := r.first.Of(name, on)
	if !ok {
		return "", false
	}
	return row.Failures[0], true
}

func (r *results) add(row bed.Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	row.Commit = r.commit
	r.rows = append(r.rows, row)
	if err := r.keep(); err != nil {
		fmt.Println(err)
	}
	outcome := row.Verdict
	if len(row.Failures) > 0 {
		outcome += ", FAILED: " + short(row.Failures[0], 200)
	} else if os.Getenv(ciVariable) != "" && len(r.rows)%oneIn != 0 && len(r.rows) != r.planned {
		return
	}
	fmt.Printf("%s %3d/%d  %-8s %-26s %4.0f s  %s%s\n", time.Now().Format(time.TimeOnly), len(r.rows), r.planned,
		row.Node, row.Name, row.Whole.Seconds(), outcome, r.failedBefore(row.Name))
}

// failedBefore says which rows before this one have failed, for who reads only a part of a long
// log.
func (r *results) failedBefore(name string) string {
	const most = 3
	var names []string
	for _, row := range r.rows {
		if len(row.Failures) > 0 && row.Name != name {
			names = append(names, row.Name)
		}
	}
	switch more := len(names) - most; {
	case len(names) == 0:
		return ""
	case more > 0:
		return fmt.Sprintf("  (failed before: %s and %d more)", strings.Join(names[:most], ", "), more)
	}
	return fmt.Sprintf("  (failed before: %s)", strings.Join(names, ", "))
}

// keep writes the results, together with those of earlier runs that this one did
// not repeat.
func (r *results) keep() error { return r.rows.With(r.earlier).Write(artifacts()) }

// artifacts returns the folder that the run's files go to.
func artifacts() string { return os.Getenv("NODEAGENT_ARTIFACTS") }

// print writes the table of scenarios and verdicts, and at the end what failed. Then the rows that are as they should be
// are in the file of the table only.
func (r *results) print() {
	var rows, odd, b strings.Builder
	slices.SortFunc(r.rows, func(a, b bed.Result) int {
		return cmp.Or(cmp.Compare(a.Want, b.Want), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Node, b.Node))
	})
	head := fmt.Sprintf("\n%-24s %-8s %-8s %5s  %-29s %-8s %9s %9s %9s  %-44s %s\n", "SCENARIO", "TIER", "NODE", "BEGAN", "TRUE "+
		"CAUSE", "VERDICT", "DELETION", "DEADLINE", "KUBELET",
		strings.Join(bed.Steps, " "), "WRONG NAMES")
	verdicts, failed, second := map[string]int{}, 0, 0
	for _, row := range r.rows {
		verdicts[row.Verdict]++
		if row.Missed != "" {
			second++
		}
		if len(row.Failures) > 0 {
			failed++
		}
		if row.Verdict == verdictCheck {
			continue
		}
		deletion, deadline, kubelet := "", "", ""
		if row.Deletion != 0 {
			deletion, deadline = fmt.Sprintf("%+.1f s", row.Deletion.Seconds()), fmt.Sprintf("%+.1f s", row.Deadline.Seconds())
		}
		if row.Warning != "" {
			kubelet = fmt.Sprintf("%+.0f s", row.Warned.Seconds())
		}
		wrong := "none"
		if len(row.Wrong) > 0 {
			wrong = strings.Join(row.Wrong, "; ")
		}
		if row.Missed != "" {
			wrong += " (at the second try; the first: " + short(row.Missed, 900) + ")"
		}
		if row.Again > 0 {
			wrong += " (the first pod went without the fault)"
		}
		line := fmt.Sprintf("%-24s %-8s %-8s %5s  %-29s %-8s %9s %9s %9s  %-44s "+
			"%s\n", row.Name, row.Tier, row.Node, clock(row.Began), row.Want, row.Verdict, deletion, deadline, kubelet, steps(row.Took), wrong)
		rows.WriteString(line)
		if len(row.Failures) > 0 || row.Missed != "" {
			odd.WriteString(line)
		}
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
	for _, step := range append([]string{"turn"}, bed.Steps...) {
		fmt.Fprintf(&b, " %s %.0f", step, sums[step].Seconds())
	}
	fmt.Fprintf(&b, "; the run took %s\n", time.Since(r.begun).Round(time.Second))
	fmt.Fprintf(&b, "the last to end: %s\n", r.last())
	fmt.Fprintln(&b, r.warnings())
	fmt.Fprintf(&b, "%s: %d scenarios: %d true, %d innocent and silent, %d missed, %d accused; %d other checks; %d failed; %d tried twice\n",
		time.Now().UTC().Format(time.DateTime), len(r.rows)-verdicts[verdictCheck], verdicts[verdictTrue], verdicts[verdictSilent],
		verdicts[verdictMissed], verdicts[verdictAccused], verdicts[verdictCheck], failed, second)
	if err := os.WriteFile(filepath.Join(artifacts(), "verdicts.txt"), []byte(head+rows.String()+b.String()), 0o644); err != nil {
		fmt.Println(err)
	}
	if failed == 0 {
		fmt.Print(head, rows.String(), b.String())
		return
	}
	fmt.Print(head, odd.String(), b.String())
	fmt.Printf("\nWhat failed (make test FAILED=1 runs it again; describe, capture, the agent's log and the whole table, verdicts.txt, are in %s):\n", artifacts())
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

// clock writes a time of the run.
func clock(d time.Duration) string {
	return fmt.Sprintf("%d:%02d", int(d.Minutes()), int(d.Seconds())%60)
}

// last lists the rows that the run has waited for at its end, the last one first.
func (r *results) last() string {
	const most = 12
	ended := func(row bed.Result) time.Duration { return row.Began + row.Whole }
	rows := slices.SortedFunc(slices.Values(r.rows), func(a, b bed.Result) int { return cmp.Compare(ended(b), ended(a)) })
	var all []string
	for _, row := range rows[:min(most, len(rows))] {
		all = append(all, fmt.Sprintf("%s %s-%s", row.Name, clock(row.Began), clock(ended(row))))
	}
	return strings.Join(all, ", ")
}

// warnings says whether the kubelet's own first warning about a pod (KUBELET, from the deletion) came before the agent's verdict.
func (r *results) warnings() string {
	all, before, after := 0, 0, 0
	for _, row := range r.rows {
		switch {
		case row.Verdict != verdictTrue:
			continue
		case row.Warning != "" && row.Warned <= row.Deletion:
			before++
		case row.Warning != "":
			after++
		}
		all++
	}
	return fmt.Sprintf("the kubelet's own first warning about %d pods came before the verdict of %d, after that of %d, and until the "+
		"fault was healed not about %d",
		all, before, after, all-before-after)
}

// steps prints the seconds of the steps, each below its name.
func steps(took map[string]time.Duration) string {
	var b strings.Builder
	for i, step := range bed.Steps {
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

// A trial is one try at a row. On a machine that is busy with other things an incident may
// be missed, or not get as far: that is tried once more when all others have ended, and
// the table says so. What was said, and was wrong, is final.
type trial struct {
	*testing.T
	// ctx ends when the row takes too long.
	ctx   context.Context
	row   bed.Result
	begun time.Time
	run   *bed.Run
	// final reports whether another try would change nothing.
	final bool
}

// try does the row's test, and adds it to the table when its clean-up has ended.
func try(t *testing.T, table *results, row bed.Result, do func(*trial)) {
	x := &trial{T: t, row: row, begun: time.Now(), final: byName()}
	x.row.Began = x.begun.Sub(table.begun)
	ctx, cancel := inTime(t)
	t.Cleanup(cancel)
	x.ctx, cancel = context.WithTimeoutCause(ctx, rowLimit, fmt.Errorf("the row does not end within %s", rowLimit))
	t.Cleanup(cancel)
	table.begins(x)
	if missed, ok := table.missed(row.Name, row.On); ok {
		x.final, x.row.Missed = true, missed
	}
	t.Cleanup(x.end)
	ended := make(chan struct{})
	go func() { // Fatal ends it, and not the test, which may be tried again
		defer close(ended)
		do(x)
	}()
	<-ended
}

// rowLimit is more than any row takes: one that waits for what never comes is told, and what it waited for.
const rowLimit = 20 * time.Minute

// inTime returns a context that ends so early that the table is printed before the whole test has taken too long.
func inTime(t *testing.T) (context.Context, context.CancelFunc) {
	end, ok := t.Deadline()
	if !ok {
		return context.WithCancel(t.Context())
	}
	return context.WithDeadlineCause(t.Context(), end.Add(-5*time.Minute), errors.New("the time of the whole test is over"))
}

// Context ends when the row takes too long.
func (x *trial) Context() context.Context { return x.ctx }

// end adds the row to the table, or to what is tried again.
func (x *trial) end() {
	defer table.ends(x)
	x.row.Whole = time.Since(x.begun)
	if x.run != nil {
		x.row.Took = maps.Clone(x.run.Took)
		for _, w := range x.run.Wrong {
			if !slices.Contains(x.row.Wrong, w) {
				x.row.Wrong = append(x.row.Wrong, w)
			}
		}
	}
	switch {
	case !x.Failed():
		table.add(x.row)
	case x.final || slices.ContainsFunc(x.row.Wrong, isCause):
		for _, f := range x.row.Failures {
			x.T.Error(f)
		}
		table.add(x.row)
	default:
		table.again(x.row)
	}
}

// isCause reports whether a verdict that a pod had wrongly names a cause. That none is known is
// no wrong one, and may be said for a while where the evidence comes late.
func isCause(verdict string) bool {
	reason, _, _ := strings.Cut(verdict, ":")
	return reason != diagnose.Unrecognised.Cause
}

// Failed reports whether this try has failed.
func (x *trial) Failed() bool { return len(x.row.Failures) > 0 }

// Errorf is for what was said or counted, and is wrong.
func (x *trial) Errorf(format string, args ...any) {
	x.row.Failures = append(x.row.Failures, fmt.Sprintf(format, args...))
	x.final = true
}

// Error is for what could not be seen in time.
func (x *trial) Error(err error) {
	x.row.Failures = append(x.row.Failures, err.Error())
}

// Fatal is Error, and ends the try.
func (x *trial) Fatal(err error) {
	x.Error(err)
	runtime.Goexit()
}
