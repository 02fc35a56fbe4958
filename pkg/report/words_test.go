package report

import (
	"encoding/json"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/nodeagent-io/nodeagent/pkg/condition"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/verdict"
	"github.com/nodeagent-io/nodeagent/test/hostile"
)

// texts collects the strings below a value, each once.
func texts(v reflect.Value, seen map[string]bool) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			texts(v.Elem(), seen)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			texts(v.Field(i), seen)
		}
	case reflect.Slice:
		for i := range v.Len() {
			texts(v.Index(i), seen)
		}
	case reflect.String:
		seen[v.String()] = true
	}
}

// replace puts one string into the places of another one.
func replace(v reflect.Value, old, text string) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			replace(v.Elem(), old, text)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			replace(v.Field(i), old, text)
		}
	case reflect.Slice:
		for i := range v.Len() {
			replace(v.Index(i), old, text)
		}
	case reflect.String:
		if v.CanSet() && v.String() == old {
			v.SetString(text)
		}
	}
}

// Whatever text a reading holds, one after the other in all of its places, the condition and
// the Event are our words outside of quotation marks, also where they are cut.
func TestConditionIsOurs(t *testing.T) {
	forged := hostile.Mark + "\u2800\". Remedy: " + hostile.Mark + ` \" <http://a|` + hostile.Mark + "> \u202e"
	checked := 0
	for path, read := range readings(t) {
		seen := map[string]bool{}
		texts(reflect.ValueOf(read()).Elem(), seen)
		for text := range seen {
			for _, forged := range []string{forged, strings.Repeat(forged, 20)} {
				p := read()
				replace(reflect.ValueOf(p).Elem(), text, forged)
				d := cause.Diagnose(p)
				f, ok := d.Verdict()
				if !ok {
					continue
				}
				e, inCondition := about{conditioned: true}.compose(&d, &f), message(&d, &f, "", verdict.Subject{}).String()
				for _, said := range append(strings.Split(inCondition, "\n"), e.onPod, e.onNode) {
					if err := hostile.Check(said); err != nil {
						t.Fatalf("%s, %q forged: %v", path, text, err)
					}
				}
				if m, ok := condition.Parse(inCondition); !ok || m.String() != inCondition || max(len(e.onPod), len(e.onNode)) > mostNote ||
					len(inCondition) > condition.Max {
					t.Fatalf("%s, %q forged: %d, %d and %d bytes, %v", path, text, len(e.onPod), len(e.onNode), len(inCondition), ok)
				}
				if strings.Contains(inCondition, hostile.Mark) {
					checked++
				}
			}
		}
	}
	if checked < 1000 {
		t.Errorf("only %d messages hold a forged text", checked)
	}
}

// So are the Events on the node.
func TestNodeEventsAreOurs(t *testing.T) {
	for what, text := range hostile.Texts() {
		g := newRig(t)
		s := verdict.Subject{Kind: verdict.Pod, Namespace: text, Name: text, UID: text}
		g.r.ReportRemains(t.Context(), s, g.now, text, diagnose.Foreign(text, 60))
		g.r.ReportOrphan(t.Context(), s, g.now, diagnose.Foreign(text, 60))
		g.r.ReportOrphan(t.Context(), verdict.Subject{UID: text}, g.now, diagnose.Foreign(text, 60))
		f := diagnose.Finding{Cause: "ShimHung", Message: diagnose.Foreign(text, 60)}
		made := append(g.api.took(), request{Body: `{"note":` + strconv.Quote(about{subject: s, conditioned: true}.compose(new(diagnose.Diagnosis), &f).onNode) + "}"})
		if len(made) != 4 {
			t.Fatalf("%s: %d requests", what, len(made))
		}
		for _, r := range made {
			var ev struct{ Note string }
			if err := json.Unmarshal([]byte(r.Body), &ev); err != nil {
				t.Fatal(err)
			}
			if err := hostile.Check(ev.Note); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
}

// What stands beside the verdict is quoted, too, and a cut of any length leaves no quotation open.
func TestNoteIsOurs(t *testing.T) {
	for what, text := range hostile.Texts() {
		d := diagnose.Diagnosis{Phase: diagnose.StopSignal, Sidecars: []string{text, text}, Findings: []diagnose.Finding{
			{Cause: "A", Container: text, Message: "m"}, {Cause: "B", Container: text},
		}}
		for _, sidecars := range [][]string{d.Sidecars, d.Sidecars[:1]} {
			d.Sidecars = sidecars
			of := verdict.Subject{Namespace: text, Name: text}
			for _, said := range []string{note(&d, &d.Findings[0], "", of), message(&d, &d.Findings[0], "", of).More} {
				if err := hostile.Check(said); err != nil {
					t.Errorf("%s: %v", what, err)
				}
			}
		}
		said := "a process " + diagnose.Foreign(text, 300) + " of container " + diagnose.Foreign(text, 300) + ". It waits. Then " + diagnose.Foreign(text, 300)
		for n := 20; n < len(said); n++ {
			if err := hostile.Check(cut(said, n)); err != nil {
				t.Fatalf("%s, cut to %d: %v", what, n, err)
			}
		}
	}
}

// A command that asks without effect says so first: what a cut takes away is the end.
func TestCommandsSayFirstThatTheyChangeNothing(t *testing.T) {
	with := regexp.MustCompile(`kubectl( \S+)* (patch|delete)\b`)
	for _, r := range cause.All() {
		page := r.Page()
		for _, at := range with.FindAllStringIndex(page, -1) {
			if rest := page[at[1]:]; !strings.HasPrefix(rest, " --dry-run=server") && strings.Contains(page[at[0]:min(at[0]+200, len(page))], "--dry-run") {
				t.Errorf("%s: %.120s", r.Cause, page[at[0]:])
			}
		}
	}
}

// The admission policies take what the agent says.
func TestPoliciesTakeTheAgentsWords(t *testing.T) {
	manifest, err := os.ReadFile("../../deploy/daemonset.yaml")
	if err != nil {
		t.Fatal(err)
	}
	of := func(field string) *regexp.Regexp {
		m := regexp.MustCompile(regexp.QuoteMeta(field) + `\.orValue\(""\)\.matches\("([^"]+)"\)`).FindSubmatch(manifest)
		if m == nil {
			t.Fatalf("the policies hold no %s", field)
		}
		return regexp.MustCompile(string(m[1]))
	}
	eventNote, eventReason, conditionMessage, reason := of("object.?note"), of("object.?reason"), of("c.?message"), of("c.?reason")
	fixtures(t, func(*evidence.Pod) {}, func(name string, p *evidence.Pod, d *diagnose.Diagnosis, f *diagnose.Finding) {
		said, inCondition := about{subject: verdict.Subject{Namespace: "shop", Name: "web-0"}, since: "03:00:00 " +
			"UTC", conditioned: true}.compose(d, f), message(d, f, "", verdict.Subject{}).String()
		if !eventNote.MatchString(said.onPod) || !eventNote.MatchString(said.onNode) || !p.Gone && !conditionMessage.MatchString(inCondition) {
			t.Errorf("%s: the policies refuse %.100s or %.100s", name, said, inCondition)
		}
	})
	reasons := []string{verdict.Resolved, diagnose.InGracePeriod, diagnose.DeletedPodRemains, diagnose.OrphanedPod}
	for _, r := range cause.All() {
		reasons = append(reasons, r.Cause)
	}
	for _, r := range reasons {
		if !eventReason.MatchString(r) || !reason.MatchString(r) {
			t.Errorf("the policies refuse the reason %s", r)
		}
	}
	waits, _ := diagnose.WaitsFor(draining(start.Add(60*seconds)), new(diagnose.Diagnosis))
	for _, m := range []string{resolvedMessage, waits.Message} {
		if !conditionMessage.MatchString(m) {
			t.Errorf("the policies refuse %q", m)
		}
	}
	g := newRig(t)
	s := verdict.Subject{Kind: verdict.Pod, Namespace: "shop", Name: "web-0", UID: "u1"}
	g.r.ReportRemains(t.Context(), s, g.now, "ShimHung", "left")
	g.r.ReportOrphan(t.Context(), s, g.now, "left")
	g.r.ReportOrphan(t.Context(), verdict.Subject{UID: "u1"}, g.now, "left")
	for _, r := range g.api.took() {
		var ev struct{ Note string }
		if err := json.Unmarshal([]byte(r.Body), &ev); err != nil || !eventNote.MatchString(ev.Note) {
			t.Errorf("the policies refuse %s (%v)", ev.Note, err)
		}
	}
}
