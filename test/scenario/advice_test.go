package scenario

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
	"github.com/nodeagent-io/nodeagent/test/bed"
)

const adviceFile = "../../docs/advice.md"

const adviceHead = "# What remedies do, tried on real pods\n\n" +
	"A remedy that says what to change about an image or a manifest is done to a real pod: each scenario of this table\n" +
	"(test/scenario/advice.go) is such a pod. `make matrix` deletes it, and asks that its containers end with the exit codes of\n" +
	"the table, that the pod is gone in two thirds of its grace period or less, and that nodeagent tells nothing about it.\n" +
	"Code 7 is one that only the program's own handler gives, 143 is SIGTERM's.\n\n" +
	"Written by `go test ./test/scenario -update`.\n\n" +
	"| cause | case | remedy | the next deletion | scenario | exit codes |\n|---|---|---|---|---|---|\n"

var filled = regexp.MustCompile(`\{([a-zA-Z]+)\}`)

// An advisory is one wording of a remedy, with the variant that it is for.
type advisory struct{ variant, text string }

// advisories returns the wordings of a cause's remedy and of its first step: those of its families, and of each phrase in them.
func advisories(d *diagnose.Doc) []advisory {
	var out []advisory
	var add func(variant, text string)
	add = func(variant, text string) {
		out = append(out, advisory{variant, text})
		for _, m := range filled.FindAllStringSubmatch(text, -1) {
			for _, c := range d.Phrases[m[1]] {
				v := c.Variant
				if v == "" || v == diagnose.Gone { // which is no case of the image
					v = variant
				}
				add(v, c.Text)
			}
		}
	}
	add("", d.Remedy)
	add("", d.First)
	for _, f := range d.Families {
		add(f.Name, f.Remedy)
		add(f.Name, f.First)
	}
	return out
}

// Each remedy that names the image or the manifest is tried on a real pod, or it is told why not.
func TestAdviceIsTried(t *testing.T) {
	words := map[string]*regexp.Regexp{}
	for name, text := range AdviceWords {
		words[name] = regexp.MustCompile(text)
	}
	type key struct{ cause, variant, words string }
	named, missing := map[key]bool{}, map[key]bool{}
	for _, r := range cause.All() {
		for _, a := range advisories(&r.Doc) {
			for name, word := range words {
				if word.MatchString(a.text) {
					named[key{r.Cause, a.variant, name}] = true
					missing[key{r.Cause, a.variant, name}] = true
				}
			}
		}
	}
	scenarios, used := map[string]bed.Scenario{}, map[string]bool{}
	for _, s := range append(All(), Alone()...) {
		scenarios[s.Name] = s
	}
	var tried, untried strings.Builder
	for _, a := range Advices() {
		k := key{a.Cause, a.Variant, a.Words}
		delete(missing, k)
		if !named[k] {
			t.Errorf("no words of %s, variant %q, say %q", a.Cause, a.Variant, a.Words)
		}
		lead := fmt.Sprintf("| [%s](reasons/%[1]s.md) | %s | %s | %s |", a.Cause, a.Variant, a.Words, a.Shows)
		if a.Scenario == "" {
			fmt.Fprintf(&untried, "%s\n", lead)
			continue
		}
		used[a.Scenario] = true
		s := scenarios[a.Scenario]
		if s.Name == "" || s.Cause != "" || len(s.Ends) == 0 {
			t.Errorf("%s: no scenario %q says how an innocent pod ends", a.Cause, a.Scenario)
		}
		var codes []string
		for _, name := range slices.Sorted(maps.Keys(s.Ends)) {
			codes = append(codes, fmt.Sprintf("%s: %d", name, s.Ends[name]))
		}
		fmt.Fprintf(&tried, "%s %s | %s |\n", lead, a.Scenario, strings.Join(codes, ", "))
	}
	for k := range missing {
		t.Errorf("%s, variant %q, says %q: add a row to Advices in test/scenario/advice.go, and a scenario that tries it", k.cause, k.variant, k.words)
	}
	for _, s := range advice() {
		if !used[s.Name] {
			t.Errorf("no row names the scenario %s", s.Name)
		}
	}
	page := adviceHead + tried.String() + "\nNot tried:\n\n| cause | case | remedy | why |\n|---|---|---|---|\n" + untried.String()
	if *update {
		if err := os.WriteFile(adviceFile, []byte(page), 0o644); err != nil { //nolint:gosec // a page
			t.Fatal(err)
		}
	}
	is, err := os.ReadFile(adviceFile)
	if err != nil || !bytes.Equal(is, []byte(page)) {
		t.Errorf("docs/advice.md is not what the table says (%v); write it with: go test ./test/scenario -update", err)
	}
}
