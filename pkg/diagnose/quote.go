package diagnose

import (
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// said is text that may stand in a message. A constant of ours becomes one by itself; a
// string of the evidence, which anybody may have chosen, does not: it has to go through
// foreign, quoted, own or inCommand. So outside of quotation marks a message is ours.
type said string

// name is what a foreign text looks like that needs no quotation marks: it has nothing
// that renders as a blank, reorders text, or that Markdown, a chat or a shell gives a meaning to, and
// does not end as a sentence or a label does.
var name = regexp.MustCompile(`^[A-Za-z0-9](?:[A-Za-z0-9_.:/@%+=,~-]*[A-Za-z0-9/])?$`)

// foreign is how a text that others chose stands in ours: at most n bytes of it, and in
// quotation marks unless it looks like a name.
func foreign(s string, n int) said {
	if s == "" || name.MatchString(s) && !strings.Contains(s, "://") {
		return said(bound(s, n))
	}
	return quoted(s, n)
}

// Foreign returns how a text that others chose stands in a message: at most n bytes of it,
// and in quotation marks, as ASCII, unless it looks like a name.
func Foreign(s string, n int) string { return string(foreign(s, n)) }

// quoted is how a sentence that others wrote stands in ours: at most n bytes of it, in
// quotation marks and as ASCII; "" when there is none.
func quoted(s string, n int) said {
	if s == "" {
		return ""
	}
	if s = strconv.QuoteToASCII(s[:min(len(s), n)]); len(s) > n {
		s = bound(s, n-1) + `"`
	}
	return said(s)
}

// own is for a text that one of our readers wrote: bare when it is one of theirs.
func own(s string) said {
	if ours.MatchString(s) {
		return said(s)
	}
	return foreign(s, 60)
}

// ours are the texts of our readers that do not look like a name: a containerd issue, a signal without a
// name, a shim without a task, the state of a driver's pod, and what a process has in a mount (evidence.Holder).
var ours = regexp.MustCompile(`^(?:#\d+|signal \d+|no task|` + evidence.DriverNotReady +
	`|(?:an open file|its working directory|its root directory|its program|the loop device /dev/loop\d+ on it|the file system of /dev/loop\d+)` +
	`(?:, in a mount namespace of its own)?)$`)

// join makes one text of several, of at most n bytes.
func join(all []said, separator string, n int) said {
	texts := make([]string, len(all))
	for i, s := range all {
		texts[i] = string(s)
	}
	return said(Cut(strings.Join(texts, separator), n, "…"))
}

// list names things that others named, in at most n bytes.
func list[S ~string](all []S, n int) said {
	return join(each(all, func(s S) said { return foreign(string(s), n) }), ", ", n)
}

// each names things, one by one.
func each[T any](all []T, name func(T) said) []said {
	names := make([]said, len(all))
	for i, t := range all {
		names[i] = name(t)
	}
	return names
}

// Cut shortens a message to at most n bytes, with the mark at its end. A quotation that the
// cut has left open is closed: what follows would pass for a part of it, and the next
// quotation for ours.
func Cut(s string, n int, mark string) string {
	if len(s) <= n {
		return s
	}
	const end = `…"`
	if kept := runes(s, n-len(mark)); !InQuotation(kept) {
		return kept + mark
	}
	kept := runes(s, n-len(end)-len(mark))
	if InQuotation(kept) {
		kept += end
	}
	return kept + mark
}

// InQuotation reports whether a message ends inside of quotation marks.
func InQuotation(s string) bool {
	in := false
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '"':
			in = !in
		case in && s[i] == '\\':
			i++
		}
	}
	return in
}

// inCommand returns a text that others chose for use in a command that a person may
// paste into a shell as root: only in full, and only when it begins as expected and
// consists of what no shell gives a meaning to. Else it returns "", and there is no
// command.
func inCommand(s, prefix string) said {
	if len(s) > maxInCommand || !plain.MatchString(s) || !strings.HasPrefix(s, prefix) ||
		strings.Contains(s, "//") || slices.Contains(strings.Split(s, "/"), "..") {
		return ""
	}
	return said(s)
}

// argument is inCommand for the name of an object, which is no option.
func argument(name string) said {
	if strings.Contains(name, "/") {
		return ""
	}
	return inCommand(name, "")
}

// arguments names several objects behind a command for all of them: "" when one cannot stand in a
// command, or not all of them in n bytes.
func arguments(names []string, n int) said {
	all := make([]said, len(names))
	for i, name := range names {
		if all[i] = argument(name); all[i] == "" {
			return ""
		}
	}
	if s := join(all, ", ", math.MaxInt); len(s) <= n {
		return s
	}
	return ""
}

// maxInCommand leaves room for the rest of a message.
const maxInCommand = 300

// plain is what no shell gives a meaning to. A tilde has one at the beginning of a
// word only; the kubelet's directories have it in kubernetes.io~csi.
var plain = regexp.MustCompile(`^[A-Za-z0-9_./](?:[A-Za-z0-9_./:@%+=,-]|\b~)*$`)

// bound cuts a text to at most n bytes.
func bound(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return runes(s, n-len("…")) + "…"
}

// runes returns the whole runes among the first n bytes of a text.
func runes(s string, n int) string {
	n = max(n, 0)
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
