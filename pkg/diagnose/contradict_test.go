package diagnose_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
)

// acted are acts in an Event, with what they act on.
var acted = regexp.MustCompile(`\b(restart|kill|end|resum|stop|reboot|delet|remov)` +
	`(?:e|es|s|ing|ping|ting)?(?: the| it| --?\S+)* (containerd|kubelet|shims?|driver|node|it|process|container)\b`)

// qualified begins what limits an act: "restarting it with another KillMode".
var qualified = regexp.MustCompile(`^s?,? ?(with|unless|while|during|before|unasked|other than|now)\b`)

// acts returns what a text says to do, each as the act and its object, and not what it says not to do; limited acts are left out of what is to be avoided.
func acts(text string, avoid bool) []string {
	var out []string
	for _, m := range acted.FindAllStringSubmatchIndex(text, -1) {
		if avoid && qualified.MatchString(text[m[1]:]) || strings.HasSuffix(text[:m[0]], "not ") {
			continue
		}
		object := text[m[4]:m[5]]
		if object == "it" {
			object = "" // what the Event is about
		}
		out = append(out, text[m[2]:m[3]]+" "+strings.TrimSuffix(object, "s"))
	}
	// The signal of a command kills a process of that name.
	if strings.Contains(text, "kill -KILL") && strings.Contains(text, "shim") {
		out = append(out, "kill shim", "end shim")
	}
	return out
}

// What an Event says to do first it does not say to avoid, in any of its words.
func TestFirstAndAvoidAgree(t *testing.T) {
	both := 0
	for _, row := range cause.Table() {
		variants := map[string]bool{"": true}
		for _, choices := range row.Rule.Doc.Phrases {
			for _, c := range choices {
				variants[c.Variant] = true
			}
		}
		families := []string{""}
		for _, f := range row.Rule.Doc.Families {
			families = append(families, f.Name)
		}
		for _, family := range families {
			for variant := range variants {
				f := everything()
				f.Cause, f.Family, f.Variants = row.Rule.Cause, family, []string{variant}
				said := row.Rule.Doc.Said(&f)
				first, avoid := acts(said.First, false), acts(said.Avoid, true)
				if len(first) > 0 && len(avoid) > 0 {
					both++
				}
				for _, a := range avoid {
					about := strings.HasSuffix(a, " ") && slices.ContainsFunc(first, func(b string) bool { return strings.HasPrefix(b, a) })
					if slices.Contains(first, a) || about {
						t.Errorf("%s %s %s: %q is both first and to be avoided:\n%s\n%s", row.Rule.Cause, family, variant, a, said.First, said.Avoid)
					}
				}
			}
		}
	}
	if both == 0 {
		t.Error("no Event has acts on both sides: the words have changed")
	}
}
