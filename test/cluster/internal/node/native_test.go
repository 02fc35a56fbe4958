package node

import (
	"errors"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

// A process that may open few files cannot make many instances; the kernel's error is
// the one of a user who has used up those of the machine.
func TestInotifyTellsWhenThereAreNoMore(t *testing.T) {
	const few = "NODEAGENT_TEST_FEW_FILES"
	if os.Getenv(few) == "" {
		cmd := exec.Command("sh", "-c", `ulimit -n 40 && exec "$0" -test.run '^TestInotifyTells'`, os.Args[0])
		cmd.Env = append(os.Environ(), few+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("with 40 files: %v\n%s", err, out)
		}
		return
	}
	if err := inotify(100); !errors.Is(err, unix.EMFILE) {
		t.Errorf("100 instances: %v, want %v", err, unix.EMFILE)
	}
	if err := inotify(1); err != nil {
		t.Errorf("the instances were not given back: %v", err)
	}
}
