package report

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
)

func TestNote(t *testing.T) {
	f := diagnose.Finding{Cause: "A", Confidence: diagnose.Proved, Message: "m", Remedy: "r", Danger: "d."}
	inferred := f
	inferred.Confidence = diagnose.Inferred
	unknown := inferred
	unknown.Cause = diagnose.Unrecognised.Cause
	symptom := diagnose.Finding{Cause: "S", Symptom: true}
	other := diagnose.Finding{Cause: "B", Container: "app"}
	dirty := diagnose.Finding{Cause: "A", Message: "thread 7 (a\nb\x00\xff) "}
	for _, c := range []struct {
		name string
		d    diagnose.Diagnosis
		want string
	}{
		{"whole", diagnose.Diagnosis{Phase: diagnose.Kill, Findings: []diagnose.Finding{f}}, "Blocked in phase Kill: m. Remedy: r. Danger: d."},
		{"inferred", diagnose.Diagnosis{Phase: diagnose.Volumes, Findings: []diagnose.Finding{inferred}}, "Probably blocked in phase Volumes: m. Remedy: r. Danger: d."},
		{"unknown", diagnose.Diagnosis{Phase: diagnose.PhaseUnknown, Findings: []diagnose.Finding{unknown}}, "Blocked in an unknown phase: m. Remedy: r. Danger: d."},
		{"others", diagnose.Diagnosis{Phase: diagnose.Kill, Findings: []diagnose.Finding{f, symptom, other}}, "Blocked in phase Kill: m. Also found: B (container app). Remedy: r. Danger: d."},
		{"force", diagnose.Diagnosis{Phase: diagnose.Kill, Findings: []diagnose.Finding{f}, Force: &diagnose.Force{Text: "no, why"}}, "Blocked in phase Kill: m. Remedy: r. Danger: d. Force delete: no, why."},
		{"a sidecar", diagnose.Diagnosis{Phase: diagnose.StopSignal, Findings: []diagnose.Finding{other}, Sidecars: []string{"proxy"}}, "Blocked in phase StopSignal: . Sidecar proxy waits: it is stopped after container app, or at the deadline."},
		{"sidecars", diagnose.Diagnosis{Phase: diagnose.StopSignal, Findings: []diagnose.Finding{other}, Sidecars: []string{"proxy", "logs"}}, "Blocked in phase StopSignal: . Sidecars proxy, logs wait: they are stopped after container app, or at the deadline."},
		{"a shutdown", diagnose.Diagnosis{Phase: diagnose.Kill, Findings: []diagnose.Finding{f}, ShutsDown: true},
			"Blocked in phase Kill: m. The kubelet says that the node is shutting down: if that comes first, the pod's object stays until the node is back. Remedy: r. Danger: d."},
		{"dirty", diagnose.Diagnosis{Phase: diagnose.Kill, Findings: []diagnose.Finding{dirty}}, "Blocked in phase Kill: thread 7 (a b ?)."},
	} {
		verdict, _ := c.d.Verdict()
		if got := note(&c.d, &verdict); got != c.want {
			t.Errorf("%s:\n got %q\nwant %q", c.name, got, c.want)
		}
	}
}

// However long its parts are, a note is bounded, valid, and says what to do and
// what to avoid.
func TestNoteIsBounded(t *testing.T) {
	long := []string{"x", strings.Repeat("é", 40), strings.Repeat("Wörter und Wörter. ", 60), strings.Repeat("漢", 700), strings.Repeat("long ", 130)}
	for _, m := range long {
		for _, r := range long {
			for _, d := range long {
				f := diagnose.Finding{Cause: "A", Message: m, Remedy: r, Danger: d}
				answer := &diagnose.Force{Text: strings.Repeat("no, é ", 40)}
				got := note(&diagnose.Diagnosis{Phase: diagnose.DynamicResources, Findings: []diagnose.Finding{f}, Force: answer}, &f)
				got, last, _ := strings.Cut(got, " Force delete: ")
				if len(last) < mostForce/2 {
					t.Errorf("%d bytes of the answer about a force delete are left: %q", len(last), last)
				}
				if len(got)+len(" Force delete: ")+len(last) > maxNote {
					t.Errorf("%d bytes", len(got))
				}
				if !utf8.ValidString(got) {
					t.Errorf("cut inside a rune: %q", got)
				}
				remedy, danger := strings.Index(got, " Remedy: "), strings.Index(got, " Danger: ")
				if remedy < 0 || danger < remedy {
					t.Fatalf("a part is missing: %q", got)
				}
				if n := danger - remedy; n < min(len(r), leastRemedy/2) {
					t.Errorf("%d bytes of a remedy of %d are left: %q", n, len(r), got)
				}
				if n := len(got) - danger; n < min(len(d), leastDanger/2) {
					t.Errorf("%d bytes of a danger of %d are left: %q", n, len(d), got)
				}
			}
		}
	}
}

func TestCut(t *testing.T) {
	for _, c := range []struct {
		in   string
		n    int
		want string
	}{
		{"short", 10, "short"},
		{"One. Two is longer.", 14, "One. Two …"},
		{"Umount it. Then remove the directory.", 20, "Umount it. …"},
		{"aaaaaaaaaaaaaaaaaaaa", 10, "aaaaaa …"},
		{"ééééééé", 10, "ééé …"},
	} {
		if got := cut(c.in, c.n); got != c.want || len(got) > max(c.n, len(c.in)) {
			t.Errorf("cut(%q, %d) = %q, want %q", c.in, c.n, got, c.want)
		}
	}
}
