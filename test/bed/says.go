package bed

import (
	"fmt"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"

	conditions "github.com/nodeagent-io/nodeagent/pkg/condition"
)

// A saying of Want.Says is looked for in the Event. One that begins with the label of a line of the condition, as in "Fix: kill -CONT",
// is looked for in that line: the Event is short, and has no room for it.
func inCondition(says string, m *conditions.Message) (line, text string, ok bool) {
	for label, line := range map[string]string{
		"Cause": m.Cause, "Who": m.Who, "Seen": m.Seen, "Fix": m.Fix, "Avoid": m.Avoid, "Force delete": m.ForceDelete, "Timeline": m.Timeline, "More": m.More,
	} {
		if text, ok := strings.CutPrefix(says, label+": "); ok {
			return line, text, true
		}
	}
	return "", says, false
}

// How an Event, and the Cause of a condition, begins; where an Event goes on after what is stuck; and what an Event has that says what to do.
var (
	lead = regexp.MustCompile(`^(?:WHOLE NODE[^:]*: )?(?:Was probably |Was |Probably )?(?i:stuck|slow stop)(?: in phase [A-Za-z]+| in an unknown phase| since [0-9: -]+UTC)?: `)
	then = regexp.MustCompile(` (?:Who|First|Fix|Next time|Avoid|Force delete|Timeline|More|Fix and more): `)
	todo = regexp.MustCompile(` (?:First|Fix|Next time): `)
)

// Malformed returns what each verdict has and the words of this one have not. note is the Event's. c is nil where there is no condition, of
// a pod that is gone or of which none can be written.
func (r *Run) Malformed(note string, c *corev1.PodCondition) (wrong []error) {
	begin := lead.FindString(note)
	if begin == "" {
		wrong = append(wrong, fmt.Errorf("the Event does not begin as a verdict does:\n%s", note))
	}
	if !todo.MatchString(note) || !strings.Contains(note, " More: ") && !strings.Contains(note, " Fix and more: ") {
		wrong = append(wrong, fmt.Errorf("the Event does not say what to do, or where there is more:\n%s", note))
	}
	if c == nil {
		return wrong
	}
	m, ok := conditions.Parse(c.Message)
	if !ok || m.Fix == "" || m.Avoid == "" {
		wrong = append(wrong, fmt.Errorf("the condition's message lacks a line:\n%s", c.Message))
	}
	if len(c.Message) > conditions.Max {
		wrong = append(wrong, fmt.Errorf("the condition's message has %d bytes", len(c.Message)))
	}
	// Unknown names the sources that a look could not read, which come and go.
	stuck := then.Split(note[len(begin):], 2)[0]
	if says := m.Cause[len(lead.FindString(m.Cause)):]; !shortened(stuck).MatchString(says) && r.Cause != "Unknown" {
		wrong = append(wrong, fmt.Errorf("the Event and the condition differ:\n%s\n%s", note, m.Cause))
	}
	return wrong
}

// shortened returns what matches a text of the condition by what the Event has of it, which shortens long names in the middle.
func shortened(text string) *regexp.Regexp {
	return regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(text), "…", `(?:…|[\w.:-]+)`))
}

// Unsaid returns what the words of the scenario's verdict have to say and do not.
func (r *Run) Unsaid(note string, c *corev1.PodCondition) (wrong []error) {
	var m conditions.Message
	if c != nil {
		m, _ = conditions.Parse(c.Message)
	}
	for _, says := range r.sayings() {
		where, in := "Event", note
		if strings.Contains(strings.ReplaceAll(note, " …", ""), "…") {
			in += "\n" + m.Cause // it has the names whole
		}
		line, text, labelled := inCondition(says, &m)
		if labelled {
			where, in = "condition", line
		}
		if !strings.Contains(in, text) {
			wrong = append(wrong, fmt.Errorf("the %s does not say %q:\n%s", where, says, in))
		}
	}
	return wrong
}

// sayings returns what the words of the verdict have to hold.
func (r *Run) sayings() []string {
	var out []string
	for _, s := range r.Says {
		out = append(out, strings.ReplaceAll(s, "NAMESPACE", r.Node.Namespace()))
	}
	return out
}
