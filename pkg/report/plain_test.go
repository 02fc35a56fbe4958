package report

import (
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodeagent-io/nodeagent/pkg/condition"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/verdict"
	"github.com/nodeagent-io/nodeagent/test/plain"
)

// What people read is in plain words and short sentences, whatever a fixture leads to.
func TestPlainWords(t *testing.T) {
	fixtures(t, func(*evidence.Pod) {}, func(name string, p *evidence.Pod, d *diagnose.Diagnosis, f *diagnose.Finding) {
		e := about{subject: verdict.Subject{Namespace: "shop", Name: "web-0"}, conditioned: true}.compose(d, f)
		for _, said := range append(strings.Split(message(d, f, "", verdict.Subject{}).String(), "\n"), e.onPod, e.onNode) {
			if err := plain.Check(said); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if w, ok := diagnose.WaitsFor(p, d); ok {
			if err := plain.Check(w.Message); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

func TestPlainHelp(t *testing.T) {
	m := newRig(t).metrics
	descs := make(chan *prometheus.Desc, 100)
	m.Describe(descs)
	close(descs)
	checked := 0
	for d := range descs {
		_, help, _ := strings.Cut(d.String(), `help: "`)
		help, _, _ = strings.Cut(help, `", constLabels`)
		checked++
		if err := plain.Check(help); err != nil || help == "" {
			t.Errorf("%s: %v", d, err)
		}
	}
	if checked < 20 {
		t.Errorf("only %d metrics", checked)
	}
}

// The parts of each message can be read by a program.
func TestConditionsAreParsed(t *testing.T) {
	fixtures(t, func(*evidence.Pod) {}, func(name string, _ *evidence.Pod, d *diagnose.Diagnosis, f *diagnose.Finding) {
		want := message(d, f, "deleted 2026-11-27 10:00:00.", verdict.Subject{})
		text := want.String()
		got, ok := condition.Parse(text)
		if !ok || got.Cause == "" || got.Fix == "" || got.Timeline != "deleted 2026-11-27 10:00:00." || len(text) > condition.Max {
			t.Errorf("%s: %d bytes: %q", name, len(text), text)
		}
		if !d.Gone && len(f.Seen) == 0 {
			t.Errorf("%s: nothing is said to have been seen", name)
		}
		if slices.ContainsFunc(f.Seen, func(s string) bool { return strings.Contains(s, " ago") }) {
			t.Errorf("%s: an age grows: %q", name, f.Seen)
		}
	})
}
