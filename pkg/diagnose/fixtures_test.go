package diagnose_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

var update = flag.Bool("update", false, "rewrite the diagnoses that the fixtures expect, and what is generated from the rules")

// A fixture is one captured incident: its story, the evidence, and the whole
// diagnosis expected of it. The story's line "Healthy twin of: CAUSE" says that
// the pod looks like the cause and is innocent of it.
type fixture struct {
	name     string
	archive  *txtar.Archive
	evidence *evidence.Pod
	want     []byte
	twinOf   []string
}

var twinLine = regexp.MustCompile(`(?m)^Healthy twin of: (.+)$`)

func fixtures(t *testing.T) []fixture {
	t.Helper()
	paths, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no fixtures in testdata (%v)", err)
	}
	var out []fixture
	for _, p := range paths {
		out = append(out, readFixture(t, p))
	}
	return out
}

// fixtureNamed returns the evidence of one fixture, to be changed.
func fixtureNamed(t *testing.T, name string) *evidence.Pod {
	t.Helper()
	return readFixture(t, filepath.Join("testdata", name+".txtar")).evidence
}

func readFixture(t testing.TB, path string) fixture {
	t.Helper()
	a, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f := fixture{name: strings.TrimSuffix(filepath.Base(path), ".txtar"), archive: a, evidence: new(evidence.Pod)}
	for _, file := range a.Files {
		switch file.Name {
		case "evidence.json":
			d := json.NewDecoder(bytes.NewReader(file.Data))
			d.DisallowUnknownFields()
			if err := d.Decode(f.evidence); err != nil {
				t.Fatalf("%s: %v", path, err)
			}
		case "diagnosis.json":
			f.want = file.Data
		default:
			t.Fatalf("%s: unexpected part %s", path, file.Name)
		}
	}
	if f.evidence.UID == "" {
		t.Fatalf("%s has no evidence.json of a pod", path)
	}
	if len(strings.TrimSpace(string(a.Comment))) == 0 {
		t.Errorf("%s tells no story", path)
	}
	for _, m := range twinLine.FindAllSubmatch(a.Comment, -1) {
		f.twinOf = append(f.twinOf, strings.Split(string(m[1]), ", ")...)
	}
	return f
}

// Every fixture goes through all rules: one that fires where it should not
// breaks somebody else's fixture.
func TestFixtures(t *testing.T) {
	for _, f := range fixtures(t) {
		t.Run(f.name, func(t *testing.T) {
			d := cause.Diagnose(f.evidence)
			got, err := json.MarshalIndent(d, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, '\n')
			var laidOut bytes.Buffer
			if err := evidence.Encode(&laidOut, f.evidence); err != nil {
				t.Fatal(err)
			}
			if *update {
				f.write(t, "evidence.json", laidOut.Bytes())
				f.write(t, "diagnosis.json", got)
				return
			}
			if !bytes.Equal(laidOut.Bytes(), f.part("evidence.json").Data) {
				t.Errorf("evidence.json is not as nodeagent capture writes it; go test ./pkg/diagnose -update rewrites it")
			}
			if diff := cmp.Diff(string(f.want), string(got)); diff != "" {
				t.Errorf("diagnosis differs (-want +got); go test ./pkg/diagnose -update rewrites it:\n%s", diff)
			}
			for _, cause := range f.twinOf {
				// One that is looked for, and takes longer to be ruled out, is not said all the same.
				missing := slices.ContainsFunc(d.Unknown, func(u diagnose.Unknown) bool { return slices.Contains(u.Causes, cause) })
				if missing || d.NotLookedFor(cause) && !checked(cause, f.evidence) {
					t.Errorf("is no twin of %s: it was not looked for: %v", cause, d.Unknown)
				}
				for _, finding := range d.Findings {
					if finding.Cause == cause {
						t.Errorf("accuses an innocent pod of %s: %s", cause, finding.Message)
					}
				}
			}
		})
	}
}

// A node that does not tell its pressure, as RHEL 8 and 9 without psi=1, or that is under pressure, is told the same verdicts or fewer, and what is
// less in doubt is not told otherwise.
func TestFixturesUnderPressure(t *testing.T) {
	same, fewer := 0, 0
	for _, f := range fixtures(t) {
		told := func(pressure *evidence.Pressure) []string {
			p := *f.evidence
			p.Node.Pressure = pressure
			d := cause.Diagnose(&p)
			var causes []string
			for _, finding := range d.Findings {
				causes = append(causes, finding.Cause)
			}
			return causes
		}
		calm := told(&evidence.Pressure{})
		for name, pressure := range map[string]*evidence.Pressure{"not told": nil, "starved": {CPU: 97, StarvedUntil: f.evidence.Time}} {
			got := told(pressure)
			for _, c := range got {
				if !slices.Contains(calm, c) {
					t.Errorf("%s, pressure %s: %s is told, and without pressure %v", f.name, name, c, calm)
				}
			}
			if len(got) < len(calm) {
				fewer++
			} else {
				same++
			}
		}
	}
	t.Logf("%d the same, %d fewer", same, fewer)
	if fewer == 0 {
		t.Error("pressure makes no difference")
	}
}

// What is open ends, whatever the evidence is: it would mute a pod for ever.
func TestOpensEnd(t *testing.T) {
	const long = 15 * time.Minute
	names := map[string]bool{}
	for _, r := range cause.All() {
		names[r.Cause] = true
	}
	seen := map[diagnose.Why]bool{}
	for _, f := range fixtures(t) {
		if f.evidence.Gone {
			continue
		}
		for _, by := range []time.Duration{0, time.Minute, long} {
			p := after(f.evidence, by)
			d := cause.Diagnose(p)
			for _, o := range d.Open {
				seen[o.Why] = true
				switch {
				case o.Since.IsZero() || o.Until.Before(o.Since) || o.Until.Sub(o.Since) > long || o.Why == "":
					t.Errorf("%s after %s: open without an end: %+v", f.name, by, o)
				case slices.ContainsFunc(o.Causes, func(c string) bool { return !names[c] }):
					t.Errorf("%s: %v is no cause", f.name, o.Causes)
				case by == long && o.Until.After(p.Time) && o.Why != diagnose.Late && o.Since.Before(p.Time.Add(-long)):
					t.Errorf("%s: after %s without a sign of anything it is still open: %+v", f.name, by, o)
				}
			}
			if _, found := d.Verdict(); by == long && !found && p.Overdue() >= 2*long {
				t.Errorf("%s: muted for %s by %+v", f.name, p.Overdue(), d.Open)
			}
		}
	}
	for _, why := range []diagnose.Why{diagnose.Slow, diagnose.Retry, diagnose.Next, diagnose.Moves, diagnose.Unread, diagnose.HeldBack, diagnose.Late} {
		if !seen[why] {
			t.Errorf("no fixture shows anything that is open for %s", why)
		}
	}
}

// checked reports whether a cause's Check is run on some evidence.
func checked(name string, p *evidence.Pod) bool {
	return slices.ContainsFunc(cause.All(), func(r *diagnose.Rule) bool { return r.Cause == name && cause.Table().Tried(r, p) })
}

// A cause that no fixture shows, or that has no healthy twin, is not proven. Twins of
// which the rule's Check never sees the evidence, because it is too early or the pod is
// in another phase, say nothing about the rule.
func TestEveryCauseHasAFixtureAndATwin(t *testing.T) {
	shown, twins := map[string]bool{}, map[string]bool{}
	rules := map[string]*diagnose.Rule{}
	for _, r := range cause.All() {
		rules[r.Cause] = r
	}
	for _, f := range fixtures(t) {
		d := cause.Diagnose(f.evidence)
		if v, ok := d.Verdict(); ok {
			shown[v.Cause] = true
		}
		for _, c := range f.twinOf {
			if rules[c] == nil {
				t.Errorf("fixture %s is the twin of %q, which is no cause", f.name, c)
				continue
			}
			twins[c] = twins[c] || checked(c, f.evidence)
		}
	}
	for _, r := range cause.All() {
		if !shown[r.Cause] {
			t.Errorf("no fixture shows %s", r.Cause)
		}
		if !twins[r.Cause] {
			t.Errorf("%s has no healthy twin that its Check is run on: a fixture with the line \"Healthy twin of: %[1]s\", late enough, or gone with its exit codes", r.Cause)
		}
	}
}

// What a finding says is complete: no placeholder is left, and those that a
// finding does not know stand in capitals only where a page would have them.
func TestFindingsAreComplete(t *testing.T) {
	for _, f := range fixtures(t) {
		for _, finding := range cause.Diagnose(f.evidence).Findings {
			for _, text := range append(finding.Seen, finding.Message, finding.Remedy, finding.Danger, finding.First, "."+finding.Avoid) {
				if text == "" || placeholder.MatchString(text) {
					t.Errorf("%s: %s says %q", f.name, finding.Cause, text)
				}
			}
		}
	}
}

func TestRulesAreWhole(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range cause.All() {
		if seen[r.Cause] {
			t.Errorf("%s stands twice in the list", r.Cause)
		}
		seen[r.Cause] = true
		d := r.Doc
		for name, text := range map[string]string{
			"Layer": d.Layer, "Title": d.Title, "Message": d.Message, "Meaning": d.Meaning, "By": strings.Join(r.Recognised(), ""),
			"Remedy": d.Remedy, "Danger": d.Danger,
		} {
			if text == "" {
				t.Errorf("%s: Doc.%s is empty", r.Cause, name)
			}
		}
		if d.Layer == diagnose.Unrecognised.Doc.Layer {
			continue
		}
		if !slices.Contains(filesOf(t, d.Layer), strings.ToLower(r.Cause)) {
			t.Errorf("%s has no file of its own in cause/%s", r.Cause, d.Layer)
		}
	}
}

// filesOf lists the files of a layer by what would be the name of their cause, in
// lower case.
func filesOf(t *testing.T, layer string) []string {
	t.Helper()
	paths, err := filepath.Glob("cause/" + layer + "/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range paths {
		paths[i] = strings.ReplaceAll(strings.TrimSuffix(filepath.Base(p), ".go"), "_", "")
	}
	return paths
}

// part returns the file of that name, an empty one when there is none yet.
func (f fixture) part(name string) *txtar.File {
	i := slices.IndexFunc(f.archive.Files, func(x txtar.File) bool { return x.Name == name })
	if i < 0 {
		f.archive.Files = append(f.archive.Files, txtar.File{Name: name})
		i = len(f.archive.Files) - 1
	}
	return &f.archive.Files[i]
}

// write replaces one part of a fixture.
func (f fixture) write(t *testing.T, name string, text []byte) {
	t.Helper()
	f.part(name).Data = text
	if err := os.WriteFile("testdata/"+f.name+".txtar", txtar.Format(f.archive), 0o644); err != nil {
		t.Fatal(err)
	}
}
