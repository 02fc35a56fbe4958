// Package pkg_test checks the import table of docs/design.md.
package pkg_test

import (
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/nodeagent-io/nodeagent"

// What would let a rule see more than the evidence.
var impure = []string{"os", "net", "os/exec", "log/slog"}

// The table says for each package which of ours it may import, and which trees
// of other modules. The standard library is allowed unless it is forbidden. A
// package without a row belongs to the one above it; a row that ends in /* is for
// packages of which none imports another.
var table = map[string]struct {
	ours, outside, never []string
}{
	"evidence":         {never: []string{"os", "net"}},
	"diagnose":         {ours: []string{"evidence", "diagnose/fact"}, never: impure},
	"diagnose/fact":    {ours: []string{"evidence"}, never: impure},
	"diagnose/cause":   {ours: []string{"evidence", "diagnose", "diagnose/cause/*"}, never: impure},
	"diagnose/cause/*": {ours: []string{"evidence", "diagnose", "diagnose/fact"}, never: impure},
	// Who opens no file cannot open one that hangs: in proc only kernfile, whose
	// list is closed, and probe, in a process that can be thrown away, do.
	"proc":                     {ours: []string{"evidence", "proc/probe", "proc/internal/cgroup", "proc/internal/kernfile", "proc/internal/mount"}, never: opens},
	"proc/probe":               {ours: []string{"evidence", "proc/internal/kernfile"}, outside: []string{"golang.org/x/sys"}},
	"proc/internal/cgroup":     {ours: []string{"evidence", "proc/internal/kernfile"}, never: opens},
	"proc/internal/mount":      {ours: []string{"evidence", "proc/internal/kernfile"}, never: opens},
	"proc/internal/kernfile":   {ours: []string{"evidence"}, outside: []string{"golang.org/x/sys", "github.com/prometheus/procfs"}},
	"proc/internal/kerneltest": {},
	"cri": {
		ours:    []string{"evidence"},
		outside: []string{"github.com/containerd", "google.golang.org", "k8s.io/cri-api", "github.com/opencontainers"},
	},
	"kubelet": {ours: []string{"evidence"}},
	"kube":    {outside: []string{"k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go"}},
	"node":    {ours: []string{"evidence", "proc"}},
	"orphan":  {never: impure},
	// Anybody may copy it to read the message.
	"condition": {never: impure},
	"verdict":   {ours: []string{"condition", "diagnose", "evidence"}, never: impure},
	"report": {
		ours:    []string{"condition", "diagnose", "diagnose/fact", "evidence", "kube", "verdict"},
		outside: []string{"k8s.io/api", "k8s.io/apimachinery", "github.com/prometheus"},
	},
	"terminal":  {never: impure},
	"finalizer": {ours: []string{"evidence"}, outside: []string{"k8s.io/apimachinery"}, never: impure},
	// The plugin's: what it says comes of the API's objects alone.
	"why": {
		ours:    []string{"condition", "diagnose", "diagnose/cause", "finalizer", "terminal", "verdict"},
		outside: []string{"k8s.io/api", "k8s.io/apimachinery"}, never: impure,
	},
	"why/collect": {ours: []string{"why"}, outside: []string{"k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go"}},
	"agent": {ours: []string{"condition", "diagnose", "evidence", "finalizer", "node", "orphan", "verdict"},
		outside: []string{"k8s.io/api", "k8s.io/apimachinery"}},
}

// opens are the packages by which a file can be opened.
var opens = []string{"os", "os/exec", "io/ioutil", "syscall", "golang.org/x/sys/unix", "github.com/prometheus/procfs"}

type pkg struct {
	ImportPath string
	Imports    []string
}

func list(t *testing.T, args ...string) []pkg {
	t.Helper()
	out, err := exec.Command("go", append([]string{"list", "-json=ImportPath,Imports"}, args...)...).Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []pkg
	dec := json.NewDecoder(strings.NewReader(string(out)))
	for {
		var p pkg
		if err := dec.Decode(&p); err == io.EOF {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

func TestImportTable(t *testing.T) {
	for _, p := range list(t, module+"/pkg/...") {
		name := strings.TrimPrefix(p.ImportPath, module+"/pkg/")
		if name == module+"/pkg" {
			continue // this test
		}
		row := rowOf(name)
		rule, ok := table[row]
		if !ok {
			t.Errorf("package %s is not in the import table", name)
			continue
		}
		for _, imp := range p.Imports {
			switch ours, isOurs := strings.CutPrefix(imp, module+"/pkg/"); {
			case isOurs:
				dep := rowOf(ours)
				within := dep == row && !strings.HasSuffix(row, "/*")
				if !within && !slices.Contains(rule.ours, dep) {
					t.Errorf("%s imports %s", name, ours)
				}
			case slices.Contains(rule.never, imp):
				t.Errorf("%s imports %s", name, imp)
			case strings.Contains(imp, ".") && !underAny(imp, rule.outside):
				t.Errorf("%s imports %s", name, imp)
			}
		}
	}
}

// The agent is small: what the plugin is made of does not come into it.
func TestAgentHasNothingOfThePlugin(t *testing.T) {
	for _, p := range list(t, "-deps", module+"/cmd/nodeagent") {
		for _, of := range []string{"k8s.io/cli-runtime", module + "/pkg/why"} {
			if strings.HasPrefix(p.ImportPath, of) {
				t.Errorf("the agent imports %s", p.ImportPath)
			}
		}
	}
}

// docs/design.md has the table for people: the same rows, though not in the same words.
func TestDesignHasTheRows(t *testing.T) {
	design, err := os.ReadFile("../docs/design.md")
	if err != nil {
		t.Fatal(err)
	}
	told := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `pkg/([^`]+)` \\|").FindAllStringSubmatch(string(design), -1) {
		told[m[1]] = true
		if _, ok := table[m[1]]; !ok {
			t.Errorf("docs/design.md has a row about %s, which is not in the import table", m[1])
		}
	}
	for name := range table {
		if !told[name] {
			t.Errorf("docs/design.md has no row about %s", name)
		}
	}
}

// rowOf returns the name of a package's row in the table.
func rowOf(name string) string {
	for {
		if _, ok := table[name]; ok {
			return name
		}
		parent := path.Dir(name)
		if _, ok := table[parent+"/*"]; ok {
			return parent + "/*"
		}
		if parent == "." {
			return name
		}
		name = parent
	}
}

// The rules must not reach the outside even through somebody else.
func TestDiagnoseStaysPure(t *testing.T) {
	for _, p := range list(t, "-deps", module+"/pkg/diagnose/...") {
		if strings.Contains(p.ImportPath, ".") && !strings.HasPrefix(p.ImportPath, module) {
			t.Errorf("diagnose depends on %s", p.ImportPath)
		}
	}
}

func underAny(path string, trees []string) bool {
	for _, t := range trees {
		if path == t || strings.HasPrefix(path, t+"/") {
			return true
		}
	}
	return false
}
