package golden

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestMasked(t *testing.T) {
	const text = "web-0  native1  5m30s  (PID 9513)  2026-03-01 03:05:00 UTC, over 03:05:30, nodeagent-x2lp9, 3d6187e7-a2ff-4306-a1a0-4e8442c58aae, 2 pods"
	const want = "web-0  worker1  NmNNs  (PID ####)  YYYY-MM-DD hh:mm:ss UTC, over hh:mm:ss, nodeagent-xxxxx, uuuuuuuu-uuuu-uuuu-uuuu-uuuuuuuuuuuu, 2 pods"
	if got := Masked(text, "native1"); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for a, b := range map[string]string{
		"x  NmNNs  PID ####":                    "x  NNs    PID ###",
		"Timeline      deleted hh:mm:ss, a, b.": "Timeline      b.",
		"for at least 3 seconds (two readings)": "for at least 15 seconds (two readings)",
		"Taints: node.kubernetes.io/unreachable:NoExecute, node.kubernetes.io/unreachable:NoSchedule.": "Taints: node.kubernetes.io/unreachable:NoSchedule.",
	} {
		if !Same(a, b) {
			t.Errorf("%q and %q differ", a, b)
		}
	}
	if Same("no", "yes") {
		t.Error("no and yes do not differ")
	}
}

// What the pages show of the plugin is what it prints on a real cluster.
func TestPagesShowWhatIsPrinted(t *testing.T) {
	const dir = "../e2e/testdata/why"
	files, err := filepath.Glob(dir + "/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	shown := 0
	for _, page := range []string{"../../README.md", "../../docs/on-call.md"} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for i, block := range strings.Split(string(text), "```") {
			// One session may have several commands.
			for command := range strings.SplitSeq(block, "\n$ ") {
				if i%2 == 0 || !strings.HasPrefix(command, "kubectl why-terminating") {
					continue
				}
				shown++
				if !printed(t, files, Masked("$ "+strings.TrimSpace(command)+"\n", Node)) {
					t.Errorf("%s shows what no file in %s has:\n%s", page, dir, command)
				}
			}
		}
	}
	if shown < 3 {
		t.Errorf("the pages show %d outputs", shown)
	}
}

// printed reports whether one of the files has this command and this output.
func printed(t *testing.T, files []string, shown string) bool {
	t.Helper()
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		output, _, _ := strings.Cut(string(text), "# exit status")
		if Same(strings.TrimSpace(output), strings.TrimSpace(shown)) {
			return true
		}
	}
	return false
}
