// Package golden compares what a command prints on a real cluster with what it printed before: times, ages, UIDs, process IDs and the node's name
// differ from run to run, and are masked.
package golden

import (
	"regexp"
	"strings"
)

// Node stands for the node's name. It is as wide as one of test/cluster.
const Node = "worker1"

// masks replace what differs by something as wide, so that tables stay aligned.
var masks = []struct {
	what *regexp.Regexp
	by   string
}{
	{regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`), "uuuuuuuu-uuuu-uuuu-uuuu-uuuuuuuuuuuu"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d`), "YYYY-MM-DD hh:mm:ss"},
	{regexp.MustCompile(`\b\d\d:\d\d:\d\d\b`), "hh:mm:ss"},
	{regexp.MustCompile(`\bnodeagent-[a-z0-9]{5}\b`), "nodeagent-xxxxx"},
	{regexp.MustCompile(`\b[0-9a-f]{64}\b`), "CONTAINER-ID"},
}

var (
	age     = regexp.MustCompile(`\b\d+[smhd](\d+[smh])?\b`)
	process = regexp.MustCompile(`\b\d{3,8}\b`)
	digit   = regexp.MustCompile(`\d`)
)

// Masked returns what was printed about a node.
func Masked(text, node string) string {
	text = strings.ReplaceAll(text, node, Node)
	for _, m := range masks {
		text = m.what.ReplaceAllString(text, m.by)
	}
	text = age.ReplaceAllStringFunc(text, func(s string) string { return digit.ReplaceAllString(s, "N") })
	return process.ReplaceAllStringFunc(text, func(s string) string { return digit.ReplaceAllString(s, "#") })
}

var (
	// varies is what depends on when the agent has looked, and on how many nodes of the cluster are lost.
	varies    = regexp.MustCompile(`(Timeline) .*|(for at least) \d+ seconds|node\.kubernetes\.io/unreachable:NoExecute, `)
	maskedAge = regexp.MustCompile(`\bN+[smhd](N+[smh])?\b`)
	maskedID  = regexp.MustCompile(`#+`)
	blanks    = regexp.MustCompile(` {2,}`)
)

// Same reports whether two masked texts differ in nothing but how wide the masked parts were.
func Same(a, b string) bool { return narrow(a) == narrow(b) }

func narrow(text string) string {
	text = varies.ReplaceAllString(text, "$1$2")
	text = maskedAge.ReplaceAllString(text, "N")
	text = maskedID.ReplaceAllString(text, "#")
	return blanks.ReplaceAllString(text, "  ")
}
