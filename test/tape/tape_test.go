package tape

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var (
	update = flag.Bool("update", false, "write the timelines of the tapes")
	fresh  = flag.String("tapes", "", "directory of tapes that were recorded just now; the causes of their Events must be those of the tapes of before")
)

// behaviours are what no single reading shows, and the incidents that do.
var behaviours = map[string][]string{
	"a verdict is withdrawn":       {"kubelet-disk-read-only-once", "runc-kill-fails-once", "stopped-and-continued"},
	"the agent is started again":   {"agent-killed"},
	"the kubelet is started again": {"kubelet-restarts", "kubelet-crashes", "runc-kill-hangs-on-restart"},
	"containerd is started again":  {"containerd-restarts", "containerd-loops-briefly", "containerd-loops"},
	"the node's clock is set":      {"clock-jumps-forward"},
	"one cause comes after another": {
		"cni-add-again-hangs", "runc-create-sandbox-again-hangs", "runc-kill-hangs-on", "runc-kill-hangs-after-hook",
		"cni-del-fails-before", "stopped-and-held", "rejected-and-held",
	},
	"a patience ends, of the runtime": {
		"runc-kill-hangs", "runc-delete-hangs", "exit-untold", "shim-dead",
		"stdio-held-open", "containerd-stopped", "disk-full", "descriptors-used-up",
	},
	"a patience ends, of the kubelet": {"kubelet-down", "sync-loop-stalled", "image-pull-hangs", "kubelet-cut-off", "status-refused"},
	"a patience ends, of volumes":     {"csi-driver-gone", "volume-busy", "block-open-elsewhere", "volume-dir-mount"},
	"a patience ends, of the network": {"cni-del-hangs", "cni-del-fails"},
	"a patience ends, of a scanner":   {"runc-kill-scanned", "empty-dir-unanswered"},
	"the grace period":                {"sleep-pid1", "dash-trap-deferred", "pre-stop-slept", "slow-shutdown", "in-grace-drains"},
	"Unknown comes, and goes":         {"volume-busy-map", "stray-mount"},
	"slow and healthy, in the runtime": {
		"runc-kill-slow", "runc-create-slow", "exit-found", "output-held",
		"disk-full-once", "rootfs-used", "slow-io", "runc-kill-scanned-slowly",
	},
	"slow and healthy, of the kubelet": {"image-pull-slow", "sync-loop-slow", "kubelet-cut-off-briefly", "final-delete-late", "status-late", "empty-dir-slow"},
	"slow and healthy, of plugins":     {"cni-add-slow", "cni-del-slow", "csi-unpublish-slow", "dra-unprepare-slow"},
	"a finalizer is removed in time":   {"finalizer-removed"},
}

// Each behaviour has a tape, and each tape a behaviour.
func TestBehavioursAreTaped(t *testing.T) {
	named := map[string]bool{}
	for what, names := range behaviours {
		for _, name := range names {
			named[name] = true
			if _, err := os.Stat(filepath.Join("testdata", name+".tape")); err != nil {
				t.Errorf("%s: %v; make tapes NAME=%s records it", what, err, name)
			}
		}
	}
	all, _ := filepath.Glob(filepath.Join("testdata", "*.tape"))
	for _, file := range all {
		if name := strings.TrimSuffix(filepath.Base(file), ".tape"); !named[name] {
			t.Errorf("what is the tape of %s for? behaviours does not name it", name)
		}
	}
}

// What users run records nothing.
func TestNoRecorderForUsers(t *testing.T) {
	out, err := exec.Command("go", "list", "-tags", "grpcnotrace", "-deps", "github.com/nodeagent-io/nodeagent/cmd/nodeagent").Output()
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(out), "/test/tape") {
		t.Error("cmd/nodeagent holds the recorder without the tag tape")
	}
}

// TestTapes runs each tape, and compares what is told with the timeline beside it.
func TestTapes(t *testing.T) {
	dir := "testdata"
	if *fresh != "" {
		dir = *fresh
	}
	all, err := filepath.Glob(filepath.Join(dir, "*.tape"))
	if err != nil || len(all) == 0 {
		t.Fatalf("there are no tapes in %s: %v", dir, err)
	}
	for _, file := range all {
		name := strings.TrimSuffix(filepath.Base(file), ".tape")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lines := read(t, file)
			var got []told
			synctest.Test(t, func(t *testing.T) { got = replay(t, lines) })
			timeline := filepath.Join("testdata", name+".timeline")
			if *update {
				if err := os.WriteFile(timeline, []byte(text(got)), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			compare := differs
			if *fresh != "" {
				compare = tellsOther
			}
			if wrong := compare(expected(t, timeline), got); wrong != "" {
				t.Errorf("%s; told, on a tape of %d lines:\n%s", wrong, len(lines), text(got))
			}
		})
	}
}

func read(t *testing.T, file string) []Line {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines, err := Read(f)
	if err != nil || len(lines) == 0 {
		t.Fatalf("%s has %d lines: %v", file, len(lines), err)
	}
	return lines
}

// text returns a timeline, a line for each thing that was told: seconds after the deletion, and what.
func text(all []told) string {
	var b strings.Builder
	for _, one := range all {
		fmt.Fprintf(&b, "%+5.0f s  %s\n", one.after.Seconds(), one.what)
	}
	return b.String()
}

// expected reads a timeline.
func expected(t *testing.T, file string) []told {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v; go test ./test/tape -update writes it", err)
	}
	var out []told
	for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
		at, what, _ := strings.Cut(s.Text(), " s  ")
		var seconds float64
		if _, err := fmt.Sscanf(strings.TrimSpace(at), "%f", &seconds); err != nil {
			t.Fatalf("%s: %q: %v", file, s.Text(), err)
		}
		out = append(out, told{time.Duration(seconds * float64(time.Second)), what})
	}
	return out
}

// What is told may come that much earlier or later: by so many seconds, or by a part of the time since the deletion.
const (
	band      = 4 * time.Second
	bandShare = 5
)

// differs says how what is told differs from what was; "" when it does not.
func differs(want, got []told) string {
	for i := range max(len(want), len(got)) {
		switch {
		case i >= len(got):
			return fmt.Sprintf("not told any more: %s", want[i].what)
		case i >= len(want):
			return fmt.Sprintf("told, and not before: %s", got[i].what)
		case want[i].what != got[i].what:
			return fmt.Sprintf("told is %q where it was %q", got[i].what, want[i].what)
		}
		if d := (want[i].after - got[i].after).Abs(); d > max(band, want[i].after/bandShare) {
			return fmt.Sprintf("%s is told after %s, and was after %s", want[i].what, got[i].after, want[i].after)
		}
	}
	return ""
}

// tellsOther says how the causes differ of which Events tell, and in which order. When they do, and when the pod is gone, depends on the
// node, on how long the incident was left as it was, and on what else ran there: the times of what is recorded anew are its own.
func tellsOther(want, got []told) string {
	if was, is := causesOf(want), causesOf(got); !slices.Equal(was, is) {
		return fmt.Sprintf("Events tell of %q, and did of %q", is, was)
	}
	return ""
}

// causesOf returns the causes of the Events in a timeline, one after the other.
func causesOf(all []told) []string {
	var out []string
	for _, one := range all {
		if strings.HasPrefix(one.what, "Event ") {
			out = append(out, one.what[strings.LastIndexByte(one.what, ' ')+1:])
		}
	}
	return slices.Compact(out)
}

func TestTellsOther(t *testing.T) {
	at := func(seconds int, what string) told { return told{time.Duration(seconds) * time.Second, what} }
	want := []told{at(6, "condition True A"), at(6, "Event of the Pod A"), at(60, "condition True B"), at(60, "Event of the Pod B"), at(90, "gone")}
	for name, tc := range map[string]struct {
		got  []told
		says string
	}{
		"the same, later and again": {[]told{
			at(40, "Event of the Pod A"), at(50, "Event of the Pod A"), at(60, "condition False Resolved"), at(99, "Event of the Pod B"),
		}, ""},
		"one is missing":   {[]told{at(6, "Event of the Pod A"), at(60, "condition True B")}, `Events tell of ["A"], and did of ["A" "B"]`},
		"in another order": {[]told{at(6, "Event of the Pod B"), at(60, "Event of the Pod A")}, `Events tell of ["B" "A"], and did of ["A" "B"]`},
	} {
		if got := tellsOther(want, tc.got); got != tc.says {
			t.Errorf("%s: %q, want %q", name, got, tc.says)
		}
	}
}

// A timeline that differs is told: by what is missing, by what is new, by another one in its place, and by its time.
func TestDiffers(t *testing.T) {
	at := func(seconds int, what string) told { return told{time.Duration(seconds) * time.Second, what} }
	want := []told{at(6, "A"), at(60, "B")}
	for name, tc := range map[string]struct {
		got  []told
		says string
	}{
		"the same":         {[]told{at(6, "A"), at(60, "B")}, ""},
		"a little later":   {[]told{at(9, "A"), at(70, "B")}, ""},
		"much later":       {[]told{at(11, "A"), at(60, "B")}, "A is told after 11s, and was after 6s"},
		"much earlier":     {[]told{at(6, "A"), at(40, "B")}, "B is told after 40s, and was after 1m0s"},
		"one is missing":   {[]told{at(6, "A")}, "not told any more: B"},
		"one is new":       {[]told{at(6, "A"), at(60, "B"), at(61, "C")}, "told, and not before: C"},
		"another one":      {[]told{at(6, "C"), at(60, "B")}, `told is "C" where it was "A"`},
		"in another order": {[]told{at(6, "B"), at(60, "A")}, `told is "B" where it was "A"`},
	} {
		if got := differs(want, tc.got); got != tc.says {
			t.Errorf("%s: %q, want %q", name, got, tc.says)
		}
	}
}
