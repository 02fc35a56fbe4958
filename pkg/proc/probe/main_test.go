package probe

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// The test binary is also the helper of the Probers under test, and a scene.
func TestMain(m *testing.M) {
	if errno := os.Getenv(refuses); errno != "" {
		if err := refuseOpenat2(errno); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "probe":
			os.Exit(Main(os.Stdin, os.Stdout))
		case "probe-large":
			os.Exit(answerLargely(os.Stdin, os.Stdout))
		case "scene-pids":
			if err := scenePIDs(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			os.Exit(0)
		}
	}
	os.Exit(m.Run())
}

func newProber(t testing.TB) *Prober {
	p := &Prober{Argv: []string{"/proc/self/exe", "probe"}}
	t.Cleanup(p.Close)
	return p
}

// answerLargely is a helper of which each answer is larger than it may be.
func answerLargely(in io.Reader, out io.Writer) int {
	p := probe{out: out}
	if p.send(reply{Done: true}) != nil {
		return 1
	}
	for readFrame(in, &p.request) == nil {
		p.seen = Seen{Wchan: strings.Repeat("x", maxFrame)}
		if p.send(reply{Opening: "stat", Seen: p.seen}) != nil || p.send(reply{Done: true, Seen: p.seen}) != nil {
			return 1
		}
	}
	return 0
}

// scenePIDs is the init of a PID namespace with a /proc of its own, in which
// one process number is used twice. It looks at that itself.
func scenePIDs() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return err
	}
	first := exec.Command("/bin/sleep", "3600")
	if err := first.Start(); err != nil {
		return err
	}
	pid := first.Process.Pid
	d, err := openDir(fmt.Sprintf("/proc/%d/task/%d", pid, pid))
	if err != nil {
		return err
	}
	defer d.close()
	old := probe{request: request{What: Task, Proc: "/proc", PID: pid, TID: pid}, dir: d, out: io.Discard}
	_ = first.Process.Kill()
	_ = first.Wait()
	if err := os.WriteFile("/proc/sys/kernel/ns_last_pid", []byte(strconv.Itoa(pid-1)), 0); err != nil {
		return err
	}
	second := exec.Command("/bin/sleep", "3600")
	if err := second.Start(); err != nil {
		return err
	}
	defer second.Process.Kill()
	if second.Process.Pid != pid {
		return fmt.Errorf("the second process is %d, not %d", second.Process.Pid, pid)
	}
	old.task()
	fmt.Println("old", old.seen.Gone, old.seen.Start == 0, old.seen.Wchan == "")
	fresh := probe{request: old.request, out: io.Discard}
	fresh.run()
	fmt.Println("new", !fresh.seen.Gone, fresh.seen.Start != 0)
	return nil
}
