package why

import (
	"cmp"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
	"github.com/nodeagent-io/nodeagent/pkg/terminal"
)

// phases are the stages of a termination, in their order.
var phases = []struct {
	diagnose.Phase
	// always is that each pod goes through it.
	always bool
}{
	{diagnose.Delivery, false}, {diagnose.Startup, false}, {diagnose.PreStop, false}, {diagnose.StopSignal, true},
	{diagnose.Kill, true}, {diagnose.Runtime, true}, {diagnose.Sandbox, true}, {diagnose.DynamicResources, false},
	{diagnose.Volumes, true}, {diagnose.Cleanup, false}, {diagnose.FinalDelete, true}, {diagnose.Finalizers, false},
}

// bar shows how far a termination has got: what is over, [where it is], and what is to come.
func (s Style) bar(phase string) string {
	bar, passed := "", true
	for _, p := range phases {
		switch {
		case string(p.Phase) == phase:
			bar, passed = bar+s.bold("["+phase+"]"), false
		case passed && p.always:
			bar += string(p.Phase) + " > "
		case p.always:
			bar += " · " + string(p.Phase)
		}
	}
	if passed {
		return ""
	}
	return bar
}

// Details prints all that is known of each pod, and what could not be read.
func (s Style) Details(w io.Writer, answers []Answer, v *View) {
	for i := range answers {
		if i > 0 {
			fmt.Fprintln(w)
		}
		s.one(w, &answers[i], v)
	}
	if len(v.Unread) > 0 {
		fmt.Fprintln(w)
	}
	s.unread(w, v.Unread)
}

func (s Style) one(w io.Writer, a *Answer, v *View) {
	head := a.Namespace + "/" + a.Name
	if a.Node != "" {
		head += " on " + a.Node
	}
	switch left := a.Deadline.Sub(v.Now); {
	case a.Late():
		head += " is " + Age(-left) + " late."
	case left > 0:
		head += " has been terminating for " + Age(v.Now.Sub(a.Deleted)) + ", and has " + Age(left) + " left."
	default:
		head += " has been terminating for " + Age(v.Now.Sub(a.Deleted)) + "."
	}
	fmt.Fprintln(w, s.bold(terminal.Printable(head)))
	fmt.Fprintln(w)
	s.line(w, "Cause", cmp.Or(a.Cause, "not known"))
	message := a.Message
	if bar := s.bar(a.Phase); bar != "" {
		fmt.Fprintln(w, s.bold("Phase")+strings.Repeat(" ", label-len("Phase"))+bar)
		message = strings.Replace(message, " in phase "+a.Phase+":", ":", 1)
	}
	s.line(w, "Why", message)
	s.line(w, "Who", a.Who)
	s.line(w, "Seen", a.Seen)
	for _, also := range a.Also {
		s.line(w, "Also", also)
	}
	if a.Unverified {
		s.line(w, "Fix", a.Fix)
		s.line(w, "Avoid", a.Avoid)
	} else {
		s.fix(w, a.Fix)
		s.avoid(w, a.Avoid)
	}
	force := a.Force
	if a.ForceWhy != "" {
		force += ": " + a.ForceWhy
	}
	s.line(w, "Force delete", force)
	s.line(w, "Timeline", a.Timeline)
	s.line(w, "Reported by", s.reported(a, v))
	if _, ok := cause.Explain(a.Cause); ok {
		s.line(w, "More", "kubectl why-terminating explain "+a.Cause)
	}
}

// reported says who says what an answer says, since when, and how the agent of the node is.
func (s Style) reported(a *Answer, v *View) string {
	by, it := "", "nodeagent on "+a.Node
	switch a.Source {
	case FromAgent:
		if a.Unverified {
			return "a condition that is " + unverified + "; whoever may patch the status of pods can write one"
		}
		by, it = it+" for "+Age(v.Now.Sub(a.Said))+"; ", "it"
	case FromAPI:
		by = "the API server; "
	case FromNone:
	}
	since := ""
	if !a.AgentSince.IsZero() {
		since = " for " + Age(v.Now.Sub(a.AgentSince))
	}
	switch {
	case a.Node == "" || a.Cause == NodeGone:
		return strings.TrimSuffix(by, "; ")
	case a.Agent == AgentReady:
		return by + it + " is Ready"
	case a.Agent == AgentNotReady:
		return by + it + " has not been Ready" + since
	case a.Agent == AgentMissing && a.Source == FromAgent:
		return by + "no nodeagent is on that node now"
	case a.Agent == AgentMissing:
		return by + "no nodeagent is on " + a.Node
	}
	return by + "whether " + it + " is Ready could not be read"
}

const (
	// label is how wide labels are.
	label = 14
	// mostWidth is how wide a line is that is good to read.
	mostWidth = 120
)

func (s Style) line(w io.Writer, name, text string) {
	if text != "" {
		s.lines(w, name, []string{text})
	}
}

// avoid prints what would do harm, each sentence on a line of its own.
func (s Style) avoid(w io.Writer, text string) {
	if text != "" {
		s.lines(w, "Avoid", sentences(text))
	}
}

// fix prints what to do, each sentence on a line of its own, and each command, which is copied, unwrapped and without the full stop.
func (s Style) fix(w io.Writer, text string) {
	if text == "" {
		return
	}
	var steps []string
	for _, sentence := range sentences(text) {
		at := command.FindStringIndex(sentence)
		if at == nil || diagnose.InQuotation(sentence[:at[0]]) || ofSentence.MatchString(sentence[at[0]:]) {
			steps = append(steps, sentence)
			continue
		}
		line, then := strings.TrimSuffix(sentence[at[0]+2:], "."), ""
		if end := afterCommand.FindStringIndex(line); end != nil {
			line, then = line[:end[0]], strings.TrimLeft(line[end[0]:], ";, ")+"."
			then = strings.ToUpper(then[:1]) + then[1:]
		}
		steps = append(steps, sentence[:at[0]+1], commandMark+line)
		if then != "" {
			steps = append(steps, then)
		}
	}
	s.lines(w, "Fix", steps)
}

var (
	// command is where a command begins in a sentence: a word that is none of a sentence's, or one with what only commands have behind it.
	command = regexp.MustCompile(`: (?:(?:crictl|ctr|curl|df|dmesg|dmsetup|fsfreeze|grep|iostat|journalctl|kubectl|mdadm|openssl|prlimit|ss|systemctl|umount) |` +
		`(?:cat|echo|find|findmnt|for|kill|ls|ps) (?:[-/'"$]|\w+ (?:in|>) ))`)
	// afterCommand is where the sentence goes on behind a command.
	afterCommand = regexp.MustCompile(`; (?:each|it|its|once|that|the|then the) |, (?:or|then|which) | \([A-Z]+: `)
	// ofSentence is what follows on a command that is the subject of a sentence.
	ofSentence = regexp.MustCompile(` (?:shows?|lists|says|names|on the node)\b`)
)

// commandMark stands before a step that is a command.
const commandMark = "\x00"

// sentences splits a text between its sentences.
func sentences(text string) (out []string) {
	for from := 0; ; {
		end := sentenceEnd.FindStringIndex(text[from:])
		switch {
		case end == nil:
			return append(out, text)
		case diagnose.InQuotation(text[:from+end[0]]):
			from += end[1] - 1 // what others have written is one word of ours
		default:
			out, text, from = append(out, text[:from+end[0]+1]), text[from+end[1]-1:], 0
		}
	}
}

// sentenceEnd is a full stop and the first letter of the next sentence.
var sentenceEnd = regexp.MustCompile(`\. [A-Z]`)

func (s Style) lines(w io.Writer, name string, texts []string) {
	first, rest := name+strings.Repeat(" ", label-len(name)), strings.Repeat(" ", label)
	for i, text := range texts {
		width := s.Width
		if width > 0 {
			width = min(max(width, label+30), mostWidth)
		}
		begin := rest
		if i == 0 {
			begin = first
		}
		if line, is := strings.CutPrefix(text, commandMark); is {
			text, begin, width = strings.ReplaceAll(line, "kubectl ", "kubectl"+s.Flags+" "), rest+gap, 0
		}
		out := terminal.Wrap(terminal.Printable(text), begin, rest, width)
		if i == 0 {
			out = s.bold(name) + strings.TrimPrefix(out, name)
		}
		fmt.Fprint(w, out)
	}
}
