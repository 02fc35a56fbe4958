package report

import (
	"encoding/json"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/tools/txtar"
	corev1 "k8s.io/api/core/v1"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/verdict"
)

func TestNote(t *testing.T) {
	f := diagnose.Finding{Cause: "A", Confidence: diagnose.Proved, Message: "m", First: "r", Avoid: "d.", Remedy: "R", Danger: "D",
		Who: diagnose.ByNode, NotApp: true}
	inferred, quiet, whole, ends := f, f, f, f
	ends.Ends = true
	inferred.Confidence, quiet.Quiet, whole.WholeNode = diagnose.Inferred, true, true
	whole.Objects.Node = "n1"
	unknown := inferred
	unknown.Cause = diagnose.Unrecognised.Cause
	told, named := f, f
	told.Message, named.Message = "m since 9", "m of "+strings.Repeat("n", 20)+strings.Repeat("m", 20)
	dirty := diagnose.Finding{Cause: "A", Message: "thread 7 (a\nb\x00\xff) "}
	long := f
	long.Remedy = strings.Repeat("long ", 200)
	force := diagnose.Diagnosis{Force: &diagnose.Force{Answer: diagnose.ForceNotYet, Why: diagnose.ReasonNetwork, Text: "not yet, why"}}
	unsure := diagnose.Diagnosis{Force: &diagnose.Force{Answer: diagnose.ForceUnknown, Why: diagnose.ReasonSources}}
	of := verdict.Subject{Namespace: "shop", Name: "web-0"}
	const (
		acts = " Who: node admin (not the app)."
		rest = " Fix and more: kubectl get pod -n shop web-0 -o jsonpath='{.status.conditions[*].message}'"
	)
	for name, c := range map[string]struct {
		f     diagnose.Finding
		d     diagnose.Diagnosis
		want  string
		since string
	}{
		"whole":             {f, diagnose.Diagnosis{}, "Stuck: m." + acts + " First: r. Avoid: d." + rest, ""},
		"inferred":          {inferred, diagnose.Diagnosis{}, "Probably stuck: m." + acts + " First: r. Avoid: d." + rest, ""},
		"unknown":           {unknown, diagnose.Diagnosis{}, "Stuck: m." + acts + " First: r. Avoid: d." + rest, ""},
		"nothing is broken": {quiet, diagnose.Diagnosis{}, "Slow stop: m." + acts + " First: r. Avoid: d." + rest, ""},
		"the whole node":    {whole, diagnose.Diagnosis{}, "WHOLE NODE n1: Stuck: m." + acts + " First: r. Avoid: d." + rest, ""},
		"force":             {f, force, "Stuck: m." + acts + " First: r. Avoid: d. Force delete: not yet (until its network is removed)." + rest, ""},
		"not known":         {f, unsure, "Stuck: m." + acts + " First: r. Avoid: d. Force delete: unknown, so do not (not everything could be read)." + rest, ""},
		"it ends by itself": {ends, diagnose.Diagnosis{}, "Stuck: m. Who: node admin (not the app); ends by itself. First: r. Avoid: d." + rest, ""},
		"dirty":             {dirty, diagnose.Diagnosis{}, "Stuck: thread 7 (a b ?)." + rest, ""},
		"since when":        {inferred, diagnose.Diagnosis{}, "Probably stuck since 10:00:00 UTC: m." + acts + " First: r. Avoid: d." + rest, "10:00:00 UTC"},
		"told already":      {told, diagnose.Diagnosis{}, "Stuck: m since 9." + acts + " First: r. Avoid: d." + rest, "10:00:00 UTC"},
		"a long name": {named, diagnose.Diagnosis{},
			"Stuck since 10:00:00 UTC: m of nnnnnnnnnnnnnn…mmmmmmmmmmmmmmm." + acts + " First: r. Avoid: d." + rest, "10:00:00 UTC"},
	} {
		if got := note(&c.d, &c.f, c.since, of); got != c.want {
			t.Errorf("%s:\n got %q\nwant %q", name, got, c.want)
		}
	}
	// Where there is no condition.
	gone := diagnose.Diagnosis{Gone: true}
	const page = " More: https://github.com/nodeagent-io/nodeagent/blob/main/docs/reasons/A.md"
	for name, c := range map[string]struct {
		got, want string
	}{
		"gone": {about{subject: of, timeline: "T", conditioned: true}.compose(&gone, &f).onPod, "Was stuck: m." + acts + " Fix: R. Avoid: D. Timeline: T." + page},
		"gone, and long": {about{subject: of, timeline: "T", conditioned: true}.compose(&gone, &long).onPod, "Was stuck: m." + acts + " First: r. " +
			"Avoid: d. Timeline: T." + page},
		"a namespace ends": {about{subject: of, timeline: "T", conditioned: true}.compose(&force, &f).onNode, "Pod shop/web-0: Stuck: " +
			"m." + acts + " Fix: R. Avoid: D. Force delete: not yet (until its network is removed). Timeline: T." + page},
		"none was written": {about{subject: of, timeline: "T"}.compose(&force, &f).onPod, "Stuck: m." + acts +
			" Fix: R. Avoid: D. Force delete: not yet (until its network is removed). Timeline: T." + page},
		"in its own, still": {about{subject: of, timeline: "T", conditioned: true}.compose(&force, &f).onPod, "Stuck: m." + acts + " First: r. " +
			"Avoid: d. Force delete: not yet (until its network is removed)." + rest},
	} {
		if c.got != c.want {
			t.Errorf("%s:\n got %q\nwant %q", name, c.got, c.want)
		}
	}
	for want, f := range map[string]diagnose.Finding{corev1.EventTypeWarning: f, corev1.EventTypeNormal: quiet} {
		if e := (about{subject: of, conditioned: true}).compose(&gone, &f); e.kind != want {
			t.Errorf("an Event of type %s, want %s", e.kind, want)
		}
	}
}

func TestMessage(t *testing.T) {
	f := diagnose.Finding{Cause: "A", Confidence: diagnose.Proved, Message: "m", Seen: []string{"s", "t"}, Remedy: "r", Danger: "d."}
	other := diagnose.Finding{Cause: "B", Container: "app", Confidence: diagnose.Inferred}
	for _, c := range []struct {
		name string
		d    diagnose.Diagnosis
		want string
	}{
		{"whole", diagnose.Diagnosis{Phase: diagnose.Kill, Findings: []diagnose.Finding{f}, Force: &diagnose.Force{Text: "no, why"}},
			"Cause: Stuck in phase Kill: m.\nSeen: s. t.\nFix: r.\nAvoid: d.\nForce delete: no, why.\nTimeline: T.\nMore: " + pageOf("A")},
		{"others", diagnose.Diagnosis{Phase: diagnose.PhaseUnknown, Findings: []diagnose.Finding{f, {Cause: "S", Symptom: true}, other}},
			"Cause: Stuck in an unknown phase: m. Also found: B (container app).\nSeen: s. t.\nFix: r.\nAvoid: d.\nTimeline: T.\nMore: " + pageOf("A")},
		{"a shutdown", diagnose.Diagnosis{Phase: diagnose.Kill, Findings: []diagnose.Finding{{Cause: "A", Message: "m"}}, ShutsDown: true},
			"Cause: Stuck in phase Kill: m. The node is shutting down. If it stops first, the pod object remains until the node returns.\n" +
				"Timeline: T.\nMore: " + pageOf("A")},
	} {
		v, _ := c.d.Verdict()
		if got := message(&c.d, &v, "T.", verdict.Subject{}).String(); got != c.want {
			t.Errorf("%s:\n got %q\nwant %q", c.name, got, c.want)
		}
	}
	d := diagnose.Diagnosis{Phase: diagnose.StopSignal, Sidecars: []string{"proxy"}, Findings: []diagnose.Finding{other}}
	if got := message(&d, &other, "", verdict.Subject{}).Cause; !strings.Contains(got, "proxy") || !strings.Contains(got, "app") {
		t.Errorf("a sidecar that waits: %q", got)
	}
}

// However long its parts are, a note is bounded and valid, and what is in it is whole but for the first sentence.
func TestNoteIsBounded(t *testing.T) {
	long := []string{"x", strings.Repeat("é", 40), strings.Repeat("Wörter und Wörter. ", 60), strings.Repeat("漢", 700), strings.Repeat("long ", 130)}
	for _, m := range long {
		for _, r := range long {
			for _, d := range long {
				f := diagnose.Finding{Cause: "A", Message: m, First: r, Avoid: d, Remedy: r, Danger: d}
				e := about{subject: verdict.Subject{Namespace: strings.Repeat("n", 63), Name: strings.Repeat("p", 253)}, timeline: strings.Repeat("t",
					200), conditioned: true}.compose(&diagnose.Diagnosis{}, &f)
				for _, got := range []string{e.onPod, e.onNode} {
					if len(got) > mostNote || !utf8.ValidString(got) {
						t.Errorf("%d bytes, valid %v: %q", len(got), utf8.ValidString(got), got)
					}
					for label, text := range map[string]string{" First: ": r, " Avoid: ": d} {
						if i := strings.Index(got, label); i >= 0 && !strings.HasPrefix(got[i+len(label):], strings.TrimSpace(text)) {
							t.Errorf("%s is cut: %q", label, got)
						}
					}
				}
			}
		}
	}
}

// fixtures calls do with what each reading of pkg/diagnose/testdata leads to, after change has been made to it.
func fixtures(t *testing.T, change func(*evidence.Pod), do func(name string, p *evidence.Pod, d *diagnose.Diagnosis, f *diagnose.Finding)) {
	t.Helper()
	for name, read := range readings(t) {
		p := read()
		change(p)
		d := cause.Diagnose(p)
		if f, ok := d.Verdict(); ok {
			do(name, p, &d, &f)
		}
	}
}

// readings returns those of pkg/diagnose/testdata by the names of the fixtures: each call of one reads it again.
func readings(t *testing.T) map[string]func() *evidence.Pod {
	t.Helper()
	paths, err := filepath.Glob("../diagnose/testdata/*.txtar")
	if err != nil || len(paths) < 200 {
		t.Fatalf("%d fixtures (%v)", len(paths), err)
	}
	all := make(map[string]func() *evidence.Pod)
	for _, path := range paths {
		archive, err := txtar.ParseFile(path)
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(archive.Files, func(f txtar.File) bool { return f.Name == "evidence.json" })
		all[strings.TrimSuffix(filepath.Base(path), ".txtar")] = func() *evidence.Pod {
			p := new(evidence.Pod)
			if err := json.Unmarshal(archive.Files[i].Data, p); err != nil {
				t.Fatal(err)
			}
			return p
		}
	}
	return all
}

// An Event is read in ten seconds.
func TestEventsAreShort(t *testing.T) {
	count := func(change func(*evidence.Pod)) (lengths []int) {
		fixtures(t, change, func(name string, _ *evidence.Pod, d *diagnose.Diagnosis, f *diagnose.Finding) {
			e := about{subject: verdict.Subject{Namespace: "shop", Name: "web-0"}, since: "10:00:00 UTC", conditioned: true}.compose(d, f)
			if len(e.onPod) > mostNote || len(e.onNode) > mostNote {
				t.Errorf("%s: %d and %d bytes", name, len(e.onPod), len(e.onNode))
			}
			if f.First == "" {
				t.Errorf("%s: no first step", name)
			}
			if !d.Gone && !strings.Contains(e.onPod, f.First) {
				t.Errorf("%s: no room for the first step: %s", name, e.onPod)
			}
			lengths = append(lengths, len(e.onPod))
			t.Logf("%s: %d: %s\n%s", name, len(e.onPod), e.onPod, message(d, f, "", verdict.Subject{}))
		})
		slices.Sort(lengths)
		return lengths
	}
	lengths := count(func(*evidence.Pod) {})
	t.Logf("%d Events: median %d, 90 %% %d, longest %d bytes", len(lengths), lengths[len(lengths)/2], lengths[len(lengths)*9/10], lengths[len(lengths)-1])
	if half, most := lengths[len(lengths)/2], lengths[len(lengths)*9/10]; half > usualNote || most > longNote {
		t.Errorf("half of the Events have %d bytes or more, more than %d, or one of ten %d, more than %d", half, usualNote, most, longNote)
	}
	// With names as long as they may be, of which the fixtures have short ones.
	lengths = count(func(p *evidence.Pod) {
		longer := func(name string, n int) {
			if name != "" {
				replace(reflect.ValueOf(p).Elem(), name, name+strings.Repeat("x", max(n-len(name), 0)))
			}
		}
		for i := range p.Containers {
			longer(p.Containers[i].Name, 63)
		}
		for i := range p.Volumes {
			longer(p.Volumes[i].Name, 63)
		}
		longer(p.Namespace, 63)
		longer(p.Name, 200)
		longer(p.Node.Name, 64) // a host name of Linux
	})
	t.Logf("with long names: median %d, longest %d bytes", lengths[len(lengths)/2], lengths[len(lengths)-1])
}

// harmful is what does harm somewhere: whoever is told to avoid it is not told to do it.
var harmful = regexp.MustCompile(`\b(rm|umount -l|fsfreeze|dmsetup|detach\w*|reboot\w*|abort\w*|thaw\w*|nvidia-smi|df|ls)\b`)

// inKernel is what looks like a function of the kernel, outside of quotations.
var inKernel = regexp.MustCompile(`\b[a-z0-9]+(_[a-z0-9]+){2,}\b`)

var quotations = regexp.MustCompile(`"[^"]*"`)

// moment is a time, or how long something takes.
var moment = regexp.MustCompile(`\d\d:\d\d:\d\d|\d+ ?(s|seconds|m|minutes)\b|immediately`)

// Each Event says who acts, since or until when, why a force delete is not safe, and where there is more; what only a kernel developer
// reads stands in the condition.
func TestEventsAreComplete(t *testing.T) {
	fixtures(t, func(*evidence.Pod) {}, func(name string, _ *evidence.Pod, d *diagnose.Diagnosis, f *diagnose.Finding) {
		said := about{subject: verdict.Subject{Namespace: "shop", Name: "web-0"}, since: "10:00:00 UTC", conditioned: true}.compose(d, f).onPod
		if !strings.Contains(said, " Who: "+f.Acts()) || f.Acts() == "" {
			t.Errorf("%s: does not say who acts: %s", name, said)
		}
		if !d.Gone && !moment.MatchString(said) { // of one that is gone the Timeline has the times, where there is room
			t.Errorf("%s: has no time: %s", name, said)
		}
		if !d.Gone && !strings.HasSuffix(said, " Fix and more: kubectl get pod -n shop web-0 -o jsonpath='{.status.conditions[*].message}'") {
			t.Errorf("%s: does not say where there is more: %s", name, said)
		}
		if d.Force != nil && d.Force.Answer != diagnose.ForceYes && !strings.Contains(said, " Force delete: "+string(d.Force.Answer)) {
			t.Errorf("%s: does not say whether a force delete is safe: %s", name, said)
		}
		if d.Force != nil {
			_, why, found := strings.Cut(strings.TrimSuffix(d.Force.Brief(), ")"), " (")
			if n := len(strings.Fields(why)); !found || n == 0 || n > 6 {
				t.Errorf("%s: the reason of %q has %d words", name, d.Force.Brief(), n)
			}
			if d.Force.Answer == diagnose.ForceNotYet && !strings.HasPrefix(why, "until ") {
				t.Errorf("%s: does not say until when: %s", name, d.Force.Brief())
			}
		}
		for _, text := range []string{f.Message, f.Avoid} {
			if fn := inKernel.FindString(quotations.ReplaceAllString(text, "")); fn != "" {
				t.Errorf("%s: %s is for the condition: %s", name, fn, text)
			}
		}
		for _, word := range harmful.FindAllString(f.Avoid, -1) {
			if slices.Contains(harmful.FindAllString(f.First, -1), word) {
				t.Errorf("%s: first %q, and avoid %q: both %s", name, f.First, f.Avoid, word)
			}
		}
	})
}

// The command that an Event ends with shows conditions only: whatever else is in a pod, such as an annotation, its owner may have written.
// Where a name leaves it no room, the Event says where the rest is.
func TestReadCommand(t *testing.T) {
	const want = "kubectl get pod -n shop web-0 -o jsonpath='{.status.conditions[*].message}'"
	if got := readCommand(verdict.Subject{Namespace: "shop", Name: "web-0"}); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	f := diagnose.Finding{Cause: "A", Message: strings.Repeat("m ", 125), First: strings.Repeat("f ", 100)}
	of := verdict.Subject{Namespace: "shop", Name: strings.Repeat("n", 253)}
	if got := note(new(diagnose.Diagnosis), &f, "", of); !strings.HasSuffix(got, " Fix and more: the condition "+verdict.ConditionType+" of this pod") {
		t.Errorf("with a long name: %s", got)
	}
}

// A long name is shortened, and nothing else is.
func TestShortNames(t *testing.T) {
	for in, want := range map[string]string{
		"":                         "",
		"a name of thirty or less": "a name of thirty or less",
		"of web-7d9c5b8f6d-in-a-namespace-x, and":                              "of web-7d9c5b8f6d…n-a-namespace-x, and",
		`"web-7d9c5b8f6d-in-a-namespace-x"`:                                    `"web-7d9c5b8f6d…n-a-namespace-x"`,
		"web-7d9c5b8f6d-in-a-namespace-x web-7d9c5b8f6d-in-a-namespace-y":      "web-7d9c5b8f6d…n-a-namespace-x web-7d9c5b8f6d…n-a-namespace-y",
		"/var/lib/kubelet/pods/9f3e1f0a-5b1d-4b0e-8f3e-1f0a5b1d4b0e/volumes/x": "/var/lib/kubelet/pods/9f3e1f0a-5b1d-4b0e-8f3e-1f0a5b1d4b0e/volumes/x",
	} {
		if got := shortNames(in); got != want {
			t.Errorf("%q is shortened to %q, want %q", in, got, want)
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
