package report

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
)

// maxNote is the most bytes that the note of an Event may have
// (pkg/apis/core/validation/events.go, NoteLengthLimit). The condition, which
// has no such limit, says the same words.
const maxNote = 1024

// What each part of a note may take up at least, even when the others are long.
// What it was blocked on is of no use without what to do and what not to do.
const (
	leastRemedy = 300
	leastDanger = 200
	mostAlso    = 120
)

const ellipsis = " …"

// mostForce is how long the sentence about a force delete may be.
const mostForce = 260

// note composes the text that stands on the pod, in the condition and in the
// Event alike: whose turn it is, what is stuck, what to do, what to avoid, and
// whether a force delete is safe.
func note(d *diagnose.Diagnosis, f *diagnose.Finding) string {
	message := sentence(lead(d, f) + clean(f.Message))
	if also := alsoFound(d, f); also != "" {
		message += " Also found: " + cut(also, mostAlso) + "."
	}
	message += sidecars(d, f)
	if d.ShutsDown {
		message += " The kubelet says that the node is shutting down: if that comes first, the pod's object stays until the node is back."
	}
	remedy, danger := labelled("Remedy", f.Remedy), labelled("Danger", f.Danger)

	force := ""
	if d.Force != nil {
		force = cut(labelled("Force delete", d.Force.Text), mostForce)
	}

	room := maxNote - len(force)
	if len(message)+len(remedy)+len(danger) > room {
		// Each part gives up only what it has above its least, the message first.
		message = cut(message, room-min(len(remedy), leastRemedy)-min(len(danger), leastDanger))
		danger = cut(danger, max(leastDanger, room-len(message)-len(remedy)))
		remedy = cut(remedy, room-len(message)-len(danger))
	}
	return message + remedy + danger + force
}

// withTimeline adds the timeline to a note that has room for all of it.
func withTimeline(note, timeline string) string {
	if len(note)+len(timeline) > maxNote {
		return note
	}
	return note + timeline
}

// lead begins the sentence with the phase.
func lead(d *diagnose.Diagnosis, f *diagnose.Finding) string {
	blocked, inferred := "Blocked", f.Confidence == diagnose.Inferred && f.Cause != diagnose.Unrecognised.Cause
	switch {
	case d.Gone && inferred:
		blocked = "Was probably blocked"
	case d.Gone:
		blocked = "Was blocked"
	case inferred:
		blocked = "Probably blocked"
	}
	if d.Phase == "" || d.Phase == diagnose.PhaseUnknown {
		return blocked + " in an unknown phase: "
	}
	return blocked + " in phase " + string(d.Phase) + ": "
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
	after := " stopped after container " + diagnose.Foreign(f.Container, 63) + ", or at the deadline."
	switch names := strings.Join(all, ", "); len(all) {
	case 0:
		return ""
	case 1:
		return " Sidecar " + cut(names, mostNames) + " waits: it is" + after
	default:
		return " Sidecars " + cut(names, mostNames) + " wait: they are" + after
	}
}

func labelled(label, text string) string {
	if text = clean(text); text == "" {
		return ""
	}
	return " " + label + ": " + sentence(text)
}

// sentence ends a text with a full stop unless it has an end of its own.
func sentence(s string) string {
	if s == "" || strings.ContainsRune(".!?…", lastRune(s)) {
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
