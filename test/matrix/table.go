package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/nodeagent-io/nodeagent/test/bed"
)

// document is where the table of the last whole matrix is.
const document = "docs/matrix.md"

// partly is where the table of a matrix that is not whole is.
const partly = "bin/matrix/matrix.md"

// A result is one of a phase.
type result struct {
	phase int
	bed.Result
}

// A table is what the phases have said of one commit.
type table struct {
	commit  string
	results []result
	// missing are the rows that have not run.
	missing []string
}

// read reads what the phases have left.
func read(all []row, commit string) (table, error) {
	t := table{commit: commit}
	for i, p := range phases {
		results, err := bed.ReadResults(folder(i))
		if err != nil {
			return t, err
		}
		results = slices.DeleteFunc(results, func(e bed.Result) bool { return e.Commit != commit })
		for _, r := range all {
			if r.phase != i {
				continue
			}
			mine := of(results, r.name)
			if len(mine) < r.results {
				t.missing = append(t.missing, r.name+" in "+p.name)
			}
			for _, e := range mine {
				t.results = append(t.results, result{i, e})
			}
		}
	}
	slices.SortFunc(t.results, func(a, b result) int {
		return cmp.Or(cmp.Compare(a.phase, b.phase), cmp.Compare(a.Want, b.Want), cmp.Compare(a.Name, b.Name), cmp.Compare(a.On, b.On))
	})
	return t, nil
}

// cells are what a row of the table has, below head.
var head = []string{"scenario", "tier", "on", "true cause", "verdict", "after deadline", "took"}

func (e result) cells() []string {
	deadline, verdict := "", e.Verdict
	if e.Deletion != 0 {
		deadline = fmt.Sprintf("%+.0f s", e.Deadline.Seconds())
	}
	switch {
	case len(e.Failures) > 0:
		verdict += ", failed"
	case e.Missed != "":
		verdict += ", at the second try"
	}
	return []string{e.Name, e.Tier, cmp.Or(node(e.On), "the cluster"), e.Want, verdict, deadline, fmt.Sprintf("%.0f s", e.Whole.Seconds())}
}

// node is what tells nodes apart, of their software: of containerd only the one that few have.
func node(on string) string {
	var out []string
	for part := range strings.SplitSeq(on, ", ") {
		if !strings.HasPrefix(part, "containerd ") || strings.HasPrefix(part, string(bed.Containerd22)+".") {
			out = append(out, part)
		}
	}
	return strings.Join(out, ", ")
}

// rows is the table for a terminal.
func (t table) rows() string {
	var b strings.Builder
	line := func(c []string) {
		fmt.Fprintf(&b, "%-30s %-8s %-46s %-28s %-24s %14s %6s\n", c[0], c[1], c[2], c[3], c[4], c[5], c[6])
	}
	b.WriteByte('\n')
	line(head)
	for _, e := range t.results {
		line(e.cells())
	}
	return b.String()
}

// markdown is the table as docs/matrix.md has it.
func (t table) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, `# The matrix

All incidents of test/scenario, each against a real kubelet, containerd and kernel, as `+"`make matrix`"+` ran them.
Written by it. "Tier" says whether an incident runs with `+"`make test`"+` too.

- Commit: %s
- Date: %s
- %s

`, t.commit, time.Now().UTC().Format(time.DateOnly), t.sum())
	if len(t.missing) > 0 {
		fmt.Fprintf(&b, "%d rows have not run: %s.\n\n", len(t.missing), strings.Join(t.missing, ", "))
	}
	line := func(cells []string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	line(head)
	line(slices.Repeat([]string{"---"}, len(head)))
	for _, e := range t.results {
		line(e.cells())
	}
	return b.String()
}

// sum counts the verdicts.
func (t table) sum() string {
	verdicts, failed, second := map[string]int{}, 0, 0
	for _, e := range t.results {
		verdicts[e.Verdict]++
		failed += one(len(e.Failures) > 0)
		second += one(e.Missed != "")
	}
	return fmt.Sprintf("%d rows: %d told right, %d innocent and silent, %d missed, %d accused, %d checks; %d failed; %d at the second try",
		len(t.results), verdicts["true"], verdicts["silent"], verdicts["MISSED"], verdicts["ACCUSED"], verdicts["check"], failed, second)
}

// failures is what failed, for the end of a long log.
func (t table) failures() string {
	const most = 18 // with two lines each
	var b strings.Builder
	failed := slices.DeleteFunc(slices.Clone(t.results), func(e result) bool { return len(e.Failures) == 0 })
	for _, e := range failed[:min(most, len(failed))] {
		text := strings.Join(strings.Fields(e.Failures[0]), " ")
		fmt.Fprintf(&b, "%s on %s: %s\n    %.300s\n", e.Name, e.Node, e.Verdict, text)
	}
	if more := len(failed) - most; more > 0 {
		fmt.Fprintf(&b, "and %d more; bin/matrix has all of it\n", more)
	}
	return b.String()
}

// told are the parts of the agent that decide what is said of a pod.
var told = []string{"pkg/diagnose", "pkg/evidence", "pkg/proc", "pkg/cri", "pkg/kubelet", "pkg/node", "pkg/verdict"}

var commitLine = regexp.MustCompile(`(?m)^- Commit: ([0-9a-f]{40})$`)

// printAge says how many commits to rules and readers have come since the matrix.
func printAge(ctx context.Context) error {
	text, err := os.ReadFile(filepath.Join(bed.Root(), document))
	if errors.Is(err, fs.ErrNotExist) {
		fmt.Println("the matrix has never run: make matrix")
		return nil
	}
	if err != nil {
		return err
	}
	m := commitLine.FindSubmatch(text)
	if m == nil {
		return fmt.Errorf("%s names no commit; make matrix writes it", document)
	}
	commit := string(m[1])
	if exec.CommandContext(ctx, "git", "-C", bed.Root(), "cat-file", "-e", commit+"^{commit}").Run() != nil {
		fmt.Printf("the matrix is of %.12s, a commit that this clone does not have\n", commit)
		return nil
	}
	args := []string{"-C", bed.Root(), "rev-list", "--count", commit + "..HEAD", "--"}
	args = append(append(args, told...), ":!*_test.go", ":!*/testdata/*")
	out, err := exec.CommandContext(ctx, "git", args...).Output()
	if err != nil {
		return fmt.Errorf("count the commits since %s: %w", commit, err)
	}
	fmt.Printf("the matrix is of %.12s; commits to rules and readers since then: %s\n", commit, strings.TrimSpace(string(out)))
	return nil
}
