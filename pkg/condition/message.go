// Package condition is the message of the condition nodeagent.io/TerminationBlocked as text: lines that begin with a label, which people read
// and programs parse. docs/condition.md promises what stays.
package condition

import "strings"

// Max is the most bytes of a message, as the admission policies have it.
const Max = 4096

// A Message is what the condition says of a pod. A part that is empty has no line.
type Message struct {
	// Cause is what is stuck, why, and since when; Who acts on it; Seen the facts that show it.
	Cause, Who, Seen string
	// Fix is what is safe to do, safest first, and Avoid what would do harm.
	Fix, Avoid string
	// ForceDelete answers whether a force delete is safe: its first word is yes, no, "not yet" or unknown.
	ForceDelete string
	// Timeline is when the termination got to which stage, in UTC.
	Timeline string
	// More is where the rest stands: a command, and the page of the cause.
	More string
}

// lines are the parts in their order, each with its label.
func (m *Message) lines() []line {
	return []line{
		{"Cause", &m.Cause}, {"Who", &m.Who}, {"Seen", &m.Seen}, {"Fix", &m.Fix}, {"Avoid", &m.Avoid}, {"Force delete", &m.ForceDelete},
		{"Timeline", &m.Timeline}, {"More", &m.More},
	}
}

type line struct {
	label string
	text  *string
}

// String returns the message, in at most Max bytes.
func (m Message) String() string { return m.Within(Max) }

// Within returns the message in at most n bytes. Lines that do not fit are left out whole, those first without which the others are of
// use: More, Seen, Timeline, Fix, Avoid, Who. A text of one line stays on it.
func (m Message) Within(n int) string {
	for _, drop := range []*string{nil, &m.More, &m.Seen, &m.Timeline, &m.Fix, &m.Avoid, &m.Who, &m.ForceDelete} {
		if drop != nil {
			*drop = ""
		}
		if text := m.text(); len(text) <= n {
			return text
		}
	}
	return ""
}

func (m *Message) text() string {
	var out []string
	for _, l := range m.lines() {
		if text := oneLine(*l.text); text != "" {
			out = append(out, l.label+": "+text)
		}
	}
	return strings.Join(out, "\n")
}

// oneLine keeps what others have chosen from beginning a line.
func oneLine(text string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == 0x85 || r == 0x2028 || r == 0x2029 {
			return ' '
		}
		return r
	}, text))
}

// Parse returns the parts of a message, and whether it is one: it has a Cause, and each line a label. Lines with labels that are not
// known, of a later version, are passed over.
func Parse(text string) (m Message, ok bool) {
	lines := m.lines()
	for _, l := range strings.Split(text, "\n") {
		label, rest, found := strings.Cut(l, ": ")
		if !found || label == "" || label[0] < 'A' || label[0] > 'Z' {
			return Message{}, false
		}
		for _, known := range lines {
			if known.label == label {
				if *known.text != "" {
					return Message{}, false // a label stands once
				}
				*known.text = rest
			}
		}
	}
	return m, m.Cause != ""
}
