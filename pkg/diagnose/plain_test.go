package diagnose_test

import (
	"testing"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
	"github.com/nodeagent-io/nodeagent/test/plain"
)

// What is reported of a cause is in plain words and short sentences, whatever variant it is.
func TestPlainWords(t *testing.T) {
	docs := map[string]*diagnose.Doc{"Unknown": &diagnose.Unrecognised.Doc}
	for _, r := range cause.All() {
		docs[r.Cause] = &r.Doc
	}
	for name, d := range docs {
		check := func(of, text string) {
			if err := plain.Check(text); err != nil {
				t.Errorf("%s, %s: %v", name, of, err)
			}
		}
		check("Title", d.Title)
		check("Message", d.Message)
		for _, fact := range d.Seen {
			check("Seen", fact)
		}
		for _, f := range append(d.Families, diagnose.Family{Remedy: d.Remedy, Danger: d.Danger, First: d.First, Avoid: d.Avoid}) {
			for of, text := range map[string]string{"Remedy": f.Remedy, "Danger": f.Danger, "First": f.First, "Avoid": f.Avoid} {
				check(f.Name+" "+of, text)
			}
		}
		for phrase, choices := range d.Phrases {
			for _, c := range choices {
				check("{"+phrase+"}", c.Text)
			}
		}
	}
	if len(docs) < 60 {
		t.Errorf("only %d causes", len(docs))
	}
}
