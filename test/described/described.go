// Package described lists the metrics that a collector describes. Only tests import it.
package described

import (
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// A Desc has no other way to tell its name and labels.
var desc = regexp.MustCompile(`fqName: "([^"]+)".*constLabels: \{(?:(\w+)=.*)?\}, variableLabels: \{([^}]*)\}`)

// Labels returns the names of each metric's labels, in their order, by the name of the metric.
func Labels(t *testing.T, c prometheus.Collector) map[string][]string {
	t.Helper()
	ch := make(chan *prometheus.Desc)
	go func() {
		c.Describe(ch)
		close(ch)
	}()
	out := map[string][]string{}
	for d := range ch {
		m := desc.FindStringSubmatch(d.String())
		if m == nil {
			t.Errorf("no name in %s", d)
			continue
		}
		out[m[1]] = strings.FieldsFunc(m[2]+","+m[3], func(r rune) bool { return r == ',' })
	}
	return out
}
