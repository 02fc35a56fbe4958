package why

import (
	"math/rand/v2"
	"regexp"
	"regexp/syntax"
	"strings"
	"testing"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
)

// In no command that is printed stands a word of those that others may choose, whichever way a text of ours is made.
func TestCommandsHaveNoProse(t *testing.T) {
	const others = "WORDS-OF-OTHERS"
	r := rand.New(rand.NewPCG(1, 2))
	commands, sentences := 0, 0
	for _, line := range cause.Wordings() {
		parts := strings.SplitN(line, "\t", 3)
		re, err := syntax.Parse(strings.ReplaceAll(parts[2], diagnose.Prose, others), syntax.Perl)
		if err != nil {
			t.Fatal(err)
		}
		whole := regexp.MustCompile(parts[2])
		for range 50 {
			var text, out strings.Builder
			sample(r, re, &text)
			if !whole.MatchString(text.String()) {
				t.Fatalf("%s: %q is no text of it", parts[0], text.String())
			}
			Style{}.fix(&out, text.String())
			for line := range strings.Lines(out.String()) {
				has := strings.Contains(line, others)
				switch is := strings.HasPrefix(line, strings.Repeat(" ", label)+gap); {
				case is && has:
					t.Errorf("%s: a command with words of others: %s", parts[0], line)
				case is:
					commands++
				case has:
					sentences++
				}
			}
			if t.Failed() {
				break
			}
		}
	}
	if commands < 500 || sentences < 500 {
		t.Errorf("only %d commands and %d sentences with words of others were seen", commands, sentences)
	}
}

// sample writes a text that a regular expression matches.
func sample(r *rand.Rand, re *syntax.Regexp, b *strings.Builder) {
	switch re.Op {
	case syntax.OpLiteral:
		b.WriteString(string(re.Rune))
	case syntax.OpAlternate:
		sample(r, re.Sub[r.IntN(len(re.Sub))], b)
	case syntax.OpQuest, syntax.OpStar:
		if r.IntN(2) == 0 {
			sample(r, re.Sub[0], b)
		}
	case syntax.OpCharClass:
		b.WriteRune(re.Rune[0])
	default:
		for _, sub := range re.Sub {
			sample(r, sub, b)
		}
	}
}
