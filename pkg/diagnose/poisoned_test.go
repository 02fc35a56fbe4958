//go:build !race

// With the race detector these texts would take ten minutes. make race runs them without it.

package diagnose_test

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/test/hostile"
)

// Whatever stands in a finding, outside of quotation marks its words are ours: each of its
// strings is poisoned, so those that are added later are, too.
func TestWordsAreOurs(t *testing.T) {
	for what, text := range hostile.Texts() {
		for _, r := range cause.All() {
			// A finding is of a family when it shows the variant: Said takes both alike.
			ways := []string{"", "Sandbox", diagnose.Uncalled}
			for _, family := range r.Doc.Families {
				ways = append(ways, family.Name)
			}
			for _, choices := range r.Doc.Phrases {
				for _, c := range choices {
					ways = append(ways, c.Variant)
				}
			}
			slices.Sort(ways)
			f := everything()
			hostile.Poison(reflect.ValueOf(&f).Elem(), text)
			for _, f.Family = range slices.Compact(ways) {
				f.Cause, f.Variants = r.Cause, nil
				said := r.Doc.Said(&f)
				for _, said := range append(said.Seen, said.Message, said.Remedy, said.Danger, said.First, "."+said.Avoid) {
					if err := hostile.Check(said); err != nil {
						t.Fatalf("%s %s, %s: %v", r.Cause, f.Family, what, err)
					}
				}
			}
		}
		for _, name := range diagnose.ValueNames() {
			f := everything()
			hostile.Poison(reflect.ValueOf(&f).Elem(), text)
			said, _ := new(diagnose.Doc).Value(name, &f)
			if err := hostile.Check(said); err != nil {
				t.Errorf("{%s}, %s: %v", name, what, err)
			}
		}
	}
}

// Each string of what is named is poisoned alone as well: with all of them, some words are never said.
func TestWordsOfOnePoisonedField(t *testing.T) {
	check := func(what string, o diagnose.Objects) {
		t.Helper()
		for _, name := range diagnose.ValueNames() {
			said, _ := new(diagnose.Doc).Value(name, &diagnose.Finding{Objects: o})
			if err := hostile.Check(said); err != nil {
				t.Errorf("{%s}, %s: %v", name, what, err)
			}
		}
	}
	for what, text := range hostile.Texts() {
		fields := reflect.TypeFor[diagnose.Process]()
		for i := range fields.NumField() {
			if fields.Field(i).Type.Kind() != reflect.String {
				continue
			}
			p := diagnose.Process{PID: 7, Comm: "app"}
			reflect.ValueOf(&p).Elem().Field(i).SetString(text)
			check(what, diagnose.Objects{Process: &p, Child: &p, Member: &p, Parent: &p, Tracer: &p, Others: []*diagnose.Process{&p}, Alike: 3})
		}
		check(what, diagnose.Objects{Runtimes: []string{"kata " + text, text + " runsc"}})
		check(what, diagnose.Objects{Refuser: &diagnose.Refuser{Policy: text, Binding: text}})
		check(what, diagnose.Objects{Refuser: &diagnose.Refuser{Webhook: text}})
		check(what, diagnose.Objects{Volumes: []string{"a"}, Claimed: []diagnose.Claimed{{Volume: "a", Names: []string{text}, Claims: []string{text, text}}}})
		process := &diagnose.Process{PID: 7, Comm: text, Container: text}
		for _, why := range diagnose.Reasons {
			f := diagnose.Force{Why: why, Process: process, Container: text, Volume: text, Claim: text, Mount: &diagnose.Mount{Type: text},
				Finalizers: []string{text, text}, Cause: text,
				Sources: []evidence.Source{evidence.Source(text)}}
			said := diagnose.WhyOf(&f, &evidence.Pod{Phase: text})
			if err := hostile.Check(said); err != nil {
				t.Errorf("%s, %s: %v", why, what, err)
			}
		}
		outlook := diagnose.Outlook(&evidence.Pod{Finalizers: []string{text}, GracePeriodSeconds: 30, Deadline: requested.Add(time.Minute),
			Time: requested}, new(diagnose.Diagnosis))
		if err := hostile.Check(outlook); err != nil || outlook == "" {
			t.Errorf("%s: %v %s", what, err, outlook)
		}
	}
}
