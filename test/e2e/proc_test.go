//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/nodeagent-io/nodeagent/test/bed"
)

// outcome finds the tests that have failed or were skipped in what a program of tests prints with -test.v.
var outcome = regexp.MustCompile(`(?m)^ *--- (FAIL|SKIP): (\S+)`)

// skipped are the tests that need another version of cgroups than a virtual machine has.
var skipped = []string{"TestReadPodLimits"}

// procTests runs the tests of pkg/proc on the node. With -short they start a tenth of the threads and processes: an
// emulated processor takes minutes for all.
func procTests(x *trial, n *bed.Node, _ *bed.Turn) {
	programs, err := filepath.Glob(filepath.Join(bed.Root(), "bin", "*.test"))
	if err != nil || len(programs) == 0 {
		x.Fatal(errors.Join(err, errors.New("no programs bin/*.test; make proc-tests builds them")))
	}
	for _, p := range programs {
		name := filepath.Base(p)
		if err := bed.NodeTool(name)(x.Context(), n, nil); err != nil {
			x.Fatal(err)
		}
		out, err := n.Exec(x.Context(), "dir=$(mktemp -d) && cd $dir && /usr/local/bin/"+name+` -test.v -test.short -test.timeout 14m >out 2>&1
status=$?
grep -v '^===\|--- PASS' out
rm -r $dir
exit $status`)
		var wrong []string
		for _, m := range outcome.FindAllStringSubmatch(out, -1) {
			if m[1] == "FAIL" || !slices.Contains(skipped, m[2]) {
				wrong = append(wrong, m[2])
			}
		}
		switch {
		case err != nil:
			x.Error(fmt.Errorf("%s on kernel %s: %s: %w", name, n.Kernel, strings.Join(wrong, ", "), err))
		case len(wrong) > 0:
			x.Errorf("%s on kernel %s was to run all tests, and has skipped %s:\n%s", name, n.Kernel, strings.Join(wrong, ", "), out)
		}
	}
	x.row.Verdict = verdictCheck
}
