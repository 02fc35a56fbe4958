package diagnose_test

import (
	"slices"
	"testing"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
)

var everybody = []diagnose.Who{
	diagnose.ByApp, diagnose.ByNode, diagnose.ByStorage, diagnose.ByNetwork, diagnose.ByController, diagnose.ByPolicy,
}

// Somebody acts on each cause and family. What the app has not caused is not for its owner.
func TestWhoActs(t *testing.T) {
	check := func(of string, who diagnose.Who, notApp bool) {
		if !slices.Contains(everybody, who) {
			t.Errorf("%s: %q acts", of, who)
		}
		if notApp && who == diagnose.ByApp {
			t.Errorf("%s: the owner of the app acts on what the app has not caused", of)
		}
	}
	for _, r := range cause.All() {
		check(r.Cause, r.Doc.Who, r.Doc.NotApp)
		for _, f := range r.Doc.Families {
			if f.Who != "" {
				check(r.Cause+" "+f.Name, f.Who, f.NotApp)
			} else if f.NotApp || f.Ends || f.Shared {
				t.Errorf("%s %s: nobody acts", r.Cause, f.Name)
			}
		}
	}
	for _, f := range fixtures(t) {
		d := cause.Diagnose(f.evidence)
		for i := range d.Findings {
			check(f.name, d.Findings[i].Who, d.Findings[i].NotApp)
		}
	}
	for _, tc := range []struct {
		f    diagnose.Finding
		want string
	}{
		{diagnose.Finding{}, ""},
		{diagnose.Finding{Who: diagnose.ByApp}, "app owner"},
		{diagnose.Finding{Who: diagnose.ByStorage, NotApp: true}, "storage team (not the app)"},
		{diagnose.Finding{Who: diagnose.ByNetwork, Ends: true}, "network team; ends by itself"},
		{diagnose.Finding{Who: diagnose.ByApp, Ends: true, Quiet: true}, "app owner"}, // the message says when
	} {
		if got := tc.f.Acts(); got != tc.want {
			t.Errorf("%q acts, want %q", got, tc.want)
		}
	}
	f := diagnose.Finding{Who: diagnose.ByNode, NotApp: true}
	if got, want := f.SaysWho(), "the node admin. The app has not caused it. It does not end by itself."; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
