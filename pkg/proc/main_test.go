package proc

import (
	"fmt"
	"os"
	"testing"

	"github.com/nodeagent-io/nodeagent/pkg/proc/probe"
)

// The test binary is also the helper of the Probers under test, and the
// processes that they look at.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "probe":
			os.Exit(probe.Main(os.Stdin, os.Stdout))
		case "scanner":
			if err := scanner(os.Args[2]); err != nil {
				fmt.Fprintln(os.Stderr, "scanner:", err)
				os.Exit(1)
			}
			os.Exit(0)
		case "victim":
			if err := victim(os.Args[2], os.Args[3:]); err != nil {
				fmt.Fprintln(os.Stderr, "victim:", err)
				os.Exit(1)
			}
			os.Exit(0)
		}
	}
	os.Exit(m.Run())
}
