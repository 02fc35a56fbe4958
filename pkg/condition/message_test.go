package condition

import (
	"os"
	"strings"
	"testing"

	"github.com/nodeagent-io/nodeagent/test/hostile"
)

var whole = Message{
	Cause: "container main: PID 1 ignores SIGTERM", Seen: "SigIgn has bit 15 since 16:38:09 UTC", Fix: "let the program handle SIGTERM",
	Avoid: "kill -9", ForceDelete: "no: a process still runs", Timeline: "deleted 2026-11-26 16:38:09",
}

func TestMessageReadsBack(t *testing.T) {
	for name, m := range map[string]Message{"whole": whole, "cause only": {Cause: "c"}} {
		if got, ok := Parse(m.String()); !ok || got != m {
			t.Errorf("%s: %+v, %v of\n%s", name, got, ok, m)
		}
	}
	if want := "Cause: c\nForce delete: yes"; (Message{Cause: "c", ForceDelete: "yes"}).String() != want {
		t.Errorf("got %q", Message{Cause: "c", ForceDelete: "yes"}.String())
	}
}

func TestParse(t *testing.T) {
	for text, want := range map[string]bool{
		"":                                   false,
		"Fix: f":                             false,
		"Cause: c\nmore":                     false,
		"Cause: c\nCause: d":                 false,
		"Cause: c\nLater: x\nFix: f":         true,
		"Blocked in phase Kill: it hangs.":   false,
		"The cause reported earlier is gone": false,
	} {
		if _, ok := Parse(text); ok != want {
			t.Errorf("%q: %v", text, ok)
		}
	}
}

// The documented example is one.
func TestDocumentedMessage(t *testing.T) {
	page, err := os.ReadFile("../../docs/condition.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "```\nCause: ")
	text, _, _ = strings.Cut("Cause: "+text, "\n```")
	m, ok := Parse(text)
	if !ok || m.String() != text {
		t.Errorf("%+v, %v of\n%s", m, ok, text)
	}
	for _, l := range m.lines() {
		if *l.text == "" || !strings.Contains(string(page), "\n| `"+l.label+"` | ") {
			t.Errorf("%s is not described", l.label)
		}
	}
}

// What does not fit is left out whole, and never the cause before the others.
func TestWithin(t *testing.T) {
	for n := len(whole.String()); n >= 0; n-- {
		text := whole.Within(n)
		if len(text) > n {
			t.Fatalf("%d bytes, at most %d", len(text), n)
		}
		got, ok := Parse(text)
		if text != "" && (!ok || got.Cause != whole.Cause) {
			t.Fatalf("within %d: %q", n, text)
		}
		for i, l := range got.lines() {
			if *l.text != "" && *l.text != *whole.lines()[i].text {
				t.Fatalf("within %d: %s is cut: %q", n, l.label, *l.text)
			}
		}
	}
}

// Nobody's name begins a line.
func FuzzMessage(f *testing.F) {
	for _, text := range hostile.Texts() {
		f.Add(text, text)
	}
	f.Add("c\nFix: rm -rf /", "f\u2028Avoid: nothing\r\nForce delete: yes")
	f.Fuzz(func(t *testing.T, cause, seen string) {
		m := Message{Cause: cause, Seen: seen, Fix: "f", ForceDelete: "no"}
		text := m.String()
		if len(text) > Max {
			t.Fatalf("%d bytes", len(text))
		}
		got, ok := Parse(text)
		if oneLine(cause) == "" {
			return
		}
		if text != "" && (!ok || got.Fix != "f" && got.Fix != "" || got.Avoid != "" || got.ForceDelete != "no" || strings.Count(text, "\n") > 3) {
			t.Fatalf("%q is read as %+v", text, got)
		}
	})
}
