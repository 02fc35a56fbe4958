// Neighbours names the incidents near a change: those of the causes whose rules reach a changed
// function, or need a source of evidence that a changed function reads. `make test CHANGED=REVISION`
// runs them beside the sentinels.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/tools/txtar"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
	"github.com/nodeagent-io/nodeagent/test/bed"
	"github.com/nodeagent-io/nodeagent/test/scenario"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: neighbours REVISION")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "neighbours:", err)
		os.Exit(1)
	}
}

func run(revision string) error {
	lines, err := changedSince(revision)
	if err != nil {
		return err
	}
	g, err := load(bed.Root())
	if err != nil {
		return err
	}
	causes := map[string]bool{}
	for _, d := range g.changed(lines) {
		near := g.near(d)
		if len(near) == 0 {
			fmt.Fprintf(os.Stderr, "%s: no cause of its own; make matrix runs all\n", d.name)
		} else {
			fmt.Fprintf(os.Stderr, "%s: %s\n", d.name, strings.Join(near, ", "))
		}
		for _, c := range near {
			causes[c] = true
		}
	}
	names, err := incidents(causes)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "%d incidents beside the sentinels\n", len(names))
	fmt.Println(strings.Join(names, " "))
	return nil
}

// near returns the causes that a declaration may change.
func (g *graph) near(d *decl) []string {
	out := g.rules(d)
	missing := g.missing(d)
	for _, r := range cause.All() {
		for _, s := range missing {
			if slices.Contains(r.Sources(), s) {
				out = append(out, r.Cause)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// incidents returns the incidents of some causes and their healthy twins, as far as they are no
// sentinels.
func incidents(causes map[string]bool) ([]string, error) {
	twins, err := twinsOf(causes)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, s := range append(scenario.All(), scenario.Alone()...) {
		if s.Tier != bed.Sentinel && (causes[s.Cause] || s.Cause == "" && twins[s.Name]) {
			out = append(out, s.Name)
		}
	}
	return out, nil
}

var twinLine = regexp.MustCompile(`(?m)^Healthy twin of: (.+)$`)

// twinsOf returns the pods whose fixtures are healthy twins of some causes.
func twinsOf(causes map[string]bool) (map[string]bool, error) {
	files, err := filepath.Glob(filepath.Join(bed.Root(), "pkg", "diagnose", "testdata", "*.txtar"))
	if err != nil {
		return nil, err
	}
	out := map[string]bool{}
	for _, file := range files {
		a, err := txtar.ParseFile(file)
		if err != nil {
			return nil, err
		}
		is := slices.ContainsFunc(twinLine.FindAllSubmatch(a.Comment, -1), func(m [][]byte) bool {
			return slices.ContainsFunc(strings.Split(string(m[1]), ", "), func(c string) bool { return causes[c] })
		})
		if !is {
			continue
		}
		for _, f := range a.Files {
			var p struct{ Name string }
			if err := json.Unmarshal(f.Data, &p); err != nil {
				return nil, fmt.Errorf("%s: %s: %w", file, f.Name, err)
			}
			out[p.Name] = out[p.Name] || f.Name == "evidence.json"
		}
	}
	return out, nil
}

// changed returns the declarations that have lines of a change.
func (g *graph) changed(lines map[string][][2]int) []*decl {
	var out []*decl
	for _, d := range g.decls {
		for _, l := range lines[d.file] {
			if l[0] <= d.last && d.first <= l[1] {
				out = append(out, d)
				break
			}
		}
	}
	return out
}

var (
	fileLine = regexp.MustCompile(`^\+\+\+ b/(.*)$`)
	hunkLine = regexp.MustCompile(`^@@ -\S+ \+(\d+)(?:,(\d+))? @@`)
)

// changedSince returns the lines of the agent's files, first and last, that are not as in a revision.
func changedSince(revision string) (map[string][][2]int, error) {
	diff := exec.Command("git", "diff", "-U0", "--no-color", "--no-ext-diff", "--src-prefix=a/", "--dst-prefix=b/", "--end-of-options", revision, "--", "pkg/*.go")
	diff.Dir, diff.Stderr = bed.Root(), os.Stderr
	out, err := diff.Output()
	if err != nil {
		return nil, fmt.Errorf("what has changed since %q: %w; CHANGED takes a revision of git, such as HEAD or origin/main", revision, err)
	}
	lines, file := map[string][][2]int{}, ""
	for line := range strings.Lines(string(out)) {
		if m := fileLine.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
			file = m[1]
		}
		m := hunkLine.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		first, err := strconv.Atoi(m[1])
		if err != nil {
			return nil, err
		}
		count := 1
		if m[2] != "" {
			if count, err = strconv.Atoi(m[2]); err != nil {
				return nil, err
			}
		}
		// What was only taken away has no line: it was between this one and the next.
		lines[file] = append(lines[file], [2]int{first, first + max(0, count-1)})
	}
	untracked := exec.Command("git", "ls-files", "--others", "--exclude-standard", "--", "pkg/*.go")
	untracked.Dir = bed.Root()
	if out, err = untracked.Output(); err != nil {
		return nil, fmt.Errorf("git ls-files: %w", err)
	}
	for file := range strings.FieldsSeq(string(out)) {
		lines[file] = [][2]int{{1, 1 << 30}}
	}
	return lines, nil
}
