package report

import (
	"math"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/nodeagent-io/nodeagent/pkg/condition"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/verdict"
)

// mostNote is the most bytes that the note of an Event has here. The API server takes 1,024 (NoteLengthLimit,
// pkg/apis/core/validation/events.go).
const mostNote = 700

// What half of the Events, and nine of ten, have at most.
const (
	usualNote = 510
	longNote  = 570
)

// What each part may take up at most. A name that others have chosen is cut before that.
const (
	mostAlso  = 120
	mostForce = 260
)

const ellipsis = " …"

// note composes the text of an Event on a pod, whose condition has the rest: what is stuck and why, who acts, the first safe step, what
// would do harm, and whether a force delete is safe.
// since, "" for not known, is said of a message that tells no time.
func note(d *diagnose.Diagnosis, f *diagnose.Finding, since string, of verdict.Subject) string {
	when := ""
	if since != "" && !f.Quiet && !strings.Contains(f.Message, " since ") {
		when = " since " + since
	}
	parts := []string{lead(d, f, when) + shortNames(clean(f.Message)), labelled("Who", f.Acts()), labelled("First", f.First),
		labelled("Avoid", shortNames(f.Avoid)), forceWord(d)}
	command := fixAndMore + readCommand(of)
	if text := within(mostNote, append(parts, command)...); strings.HasSuffix(text, command) {
		return text
	}
	return within(mostNote, append(parts, fixAndMore+readCommand(verdict.Subject{}))...) // a long name leaves it no room
}

// alone composes the text of an Event where there is no condition, as about a pod that is gone: it has the fix and the timeline, too, as
// far as there is room. about, "" for none, says which pod it is.
func alone(d *diagnose.Diagnosis, f *diagnose.Finding, timeline, about string) string {
	first := about + lead(d, f, "") + clean(f.Message)
	who := labelled("Who", f.Acts())
	fix, avoid, when := labelled("Fix", f.Remedy), labelled("Avoid", f.Danger), labelled("Timeline", timeline)
	briefly, briefAvoid := labelled("First", f.First), labelled("Avoid", f.Avoid)
	page := more + pageOf(f.Cause)
	all := [][]string{
		{first, who, fix, avoid, forceWord(d), when, page},
		{first, who, briefly, briefAvoid, forceWord(d), when, page},
	}
	if d.Gone && f.Quiet {
		all = all[1:] // nothing is to be done now
	}
	for _, parts := range all {
		if text := within(math.MaxInt, parts...); len(text) <= mostNote {
			return text
		}
	}
	return within(mostNote, first, who, briefly, briefAvoid, forceWord(d), page)
}

// objectName is what stands in a command as it is: a name that the API server takes for an object.
var objectName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$`)

// readCommand is the command that shows a pod's condition.
func readCommand(of verdict.Subject) string {
	if !objectName.MatchString(of.Namespace) || !objectName.MatchString(of.Name) {
		return "the condition " + verdict.ConditionType + " of this pod"
	}
	return "kubectl get pod -n " + of.Namespace + " " + of.Name + " -o jsonpath='{.status.conditions[*].message}'"
}

// pageOf is the address of the runbook page of a cause.
func pageOf(cause string) string {
	return "https://github.com/nodeagent-io/nodeagent/blob/main/docs/reasons/" + cause + ".md"
}

// causeName is that of a cause: it stands in an address as it is.
var causeName = regexp.MustCompile(`^[A-Za-z0-9]{1,63}$`)

// pageIn is the address of a cause's page in brackets, "" where the cause is not a name.
func pageIn(cause string) string {
	if !causeName.MatchString(cause) {
		return ""
	}
	return " (" + pageOf(cause) + ")"
}

// moreOf says in the condition where the rest stands: with the plugin, on the agent of the node, and as a page.
func moreOf(cause string, of verdict.Subject) string {
	if !objectName.MatchString(of.Namespace) || !objectName.MatchString(of.Name) {
		return pageOf(cause)
	}
	return pageOf(cause) + ", or with the plugin: kubectl why-terminating " + of.Name + " -n " + of.Namespace
}

// longName is a name that is longer than a reader takes in: 31 characters or more. A path is none.
var longName = regexp.MustCompile(`(^|[\s"(])([A-Za-z0-9][\w.:-]{29,}[A-Za-z0-9])($|[\s"),.;:])`)

// shortNames shortens long names in the middle, to 14 and 15 characters. The condition has them whole.
func shortNames(text string) string {
	for range 2 { // two names may share the blank between them
		text = longName.ReplaceAllStringFunc(text, func(at string) string {
			m := longName.FindStringSubmatch(at)
			return m[1] + m[2][:14] + "…" + m[2][len(m[2])-15:] + m[3]
		})
	}
	return text
}

// The labels of where the rest stands: a command that shows the condition with its Fix, and the address of a page.
const (
	fixAndMore = "Fix and more: "
	more       = "More: "
)

// within joins sentences that have room in n bytes, from the first to the last. One that has none is left out whole, but for the first.
func within(n int, parts ...string) string {
	var b strings.Builder
	for i, part := range parts {
		part = sentence(part)
		switch {
		case part == "":
		case i == 0:
			b.WriteString(cut(part, n))
		case b.Len()+1+len(part) <= n:
			b.WriteString(" " + part)
		}
	}
	return b.String()
}

// message composes what the condition says.
func message(d *diagnose.Diagnosis, f *diagnose.Finding, timeline string, of verdict.Subject) condition.Message {
	phase := " in an unknown phase"
	if d.Phase != "" && d.Phase != diagnose.PhaseUnknown {
		phase = " in phase " + string(d.Phase)
	}
	m := condition.Message{Cause: sentence(lead(d, f, phase) + clean(f.Message)), Who: f.SaysWho(), Fix: sentence(clean(f.Remedy)),
		Avoid: sentence(clean(f.Danger)), Timeline: timeline, More: moreOf(f.Cause, of)}
	if also := alsoFound(d, f); also != "" {
		m.Cause += " Also found: " + cut(also, mostAlso) + "."
	}
	m.Cause += sidecars(d, f)
	if d.ShutsDown {
		m.Cause += " The node is shutting down. If it stops first, the pod object remains until the node returns."
	}
	var seen []string
	for _, fact := range f.Seen {
		seen = append(seen, sentence(clean(fact)))
	}
	m.Seen = strings.Join(seen, " ")
	if d.Force != nil {
		m.ForceDelete = sentence(cut(clean(d.Force.Text), mostForce))
	}
	return m
}

// forceWord answers in a few words whether a force delete is safe.
func forceWord(d *diagnose.Diagnosis) string {
	if d.Force == nil {
		return ""
	}
	return labelled("Force delete", d.Force.Brief())
}

// lead begins the sentence about what is stuck. where is in which phase, or since when.
func lead(d *diagnose.Diagnosis, f *diagnose.Finding, where string) string {
	words := "stuck"
	if f.Quiet {
		words = "slow stop"
	}
	if f.Confidence == diagnose.Inferred && f.Cause != diagnose.Unrecognised.Cause {
		words = "probably " + words
	}
	if d.Gone && !f.Quiet {
		words = "was " + words
	}
	scope := ""
	if f.WholeNode {
		scope = "WHOLE NODE: "
		if f.Node() != "" {
			scope = "WHOLE NODE " + diagnose.Foreign(f.Node(), 63) + ": "
		}
	}
	return scope + strings.ToUpper(words[:1]) + words[1:] + where + ": "
}

// alsoFound names the other causes that hold the pod up by themselves.
func alsoFound(d *diagnose.Diagnosis, verdict *diagnose.Finding) string {
	var names []string
	for i := range d.Findings {
		f := &d.Findings[i]
		if f.Symptom || f.Cause == verdict.Cause && f.Container == verdict.Container {
			continue
		}
		name := f.Cause
		if f.Container != "" {
			name += " (container " + diagnose.Foreign(f.Container, 63) + ")"
		}
		names = append(names, name)
	}
	return strings.Join(names, ", ")
}

// sidecars says of those that wait for the container of the verdict that they do.
func sidecars(d *diagnose.Diagnosis, f *diagnose.Finding) string {
	const mostNames = 80
	all := make([]string, len(d.Sidecars))
	for i, name := range d.Sidecars {
		all[i] = diagnose.Foreign(name, 63)
	}
	after := " after container " + diagnose.Foreign(f.Container, 63) + " exits, or at the deadline."
	switch names := strings.Join(all, ", "); len(all) {
	case 0:
		return ""
	case 1:
		return " Sidecar " + cut(names, mostNames) + " is waiting: the kubelet stops it" + after
	default:
		return " Sidecars " + cut(names, mostNames) + " are waiting: the kubelet stops them" + after
	}
}

func labelled(label, text string) string {
	if text = clean(text); text == "" {
		return ""
	}
	return label + ": " + sentence(text)
}

// sentence ends a text with a full stop unless it has an end of its own, or is a command or an address to copy.
func sentence(s string) string {
	if s == "" || strings.ContainsRune(".!?…", lastRune(s)) || strings.HasPrefix(s, fixAndMore) || strings.HasPrefix(s, more) {
		return s
	}
	return s + "."
}

func lastRune(s string) rune {
	r, _ := utf8.DecodeLastRuneInString(s)
	return r
}

// clean makes one line of valid UTF-8 of a text: the name of a thread, which
// its program chooses, may hold anything.
func clean(s string) string {
	s = strings.ToValidUTF8(s, "?")
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s))
}

// cut shortens a text to at most n bytes. It leaves whole sentences if that
// keeps half of the room in use, since half a command is worse than none, else
// whole words, and cuts in a quotation only when nothing else is left.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	room := max(n-len(ellipsis), 0)
	for _, end := range []string{". ", " "} {
		for i := strings.LastIndex(s[:room], end); i >= room/2; i = strings.LastIndex(s[:i], end) {
			if !diagnose.InQuotation(s[:i]) {
				return strings.TrimSuffix(s[:i]+end, " ") + ellipsis
			}
		}
	}
	return diagnose.Cut(s, n, ellipsis)
}
