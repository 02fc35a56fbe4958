// Package pkg_test checks the import table of docs/design.md.
package pkg_test

import (
	"encoding/json"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/nodeagent-io/nodeagent"

// The table says for each package which of ours it may import, and which trees
// of other modules. The standard library is allowed unless it is forbidden.
var table = map[string]struct {
	ours, outside, never []string
}{
	"evidence": {never: []string{"os", "net"}},
	"diagnose": {ours: []string{"evidence"}, never: []string{"os", "net", "os/exec", "log/slog"}},
	// Who opens no file cannot open one that hangs: in proc only kernfile, whose
	// list is closed, and probe, in a process that can be thrown away, do.
	"proc":                     {ours: []string{"evidence", "proc/probe", "proc/internal/cgroup", "proc/internal/kernfile", "proc/internal/mount"}, never: opens},
	"proc/probe":               {ours: []string{"evidence", "proc/internal/kernfile"}, outside: []string{"golang.org/x/sys"}},
	"proc/internal/cgroup":     {ours: []string{"evidence", "proc/internal/kernfile"}, never: opens},
	"proc/internal/mount":      {ours: []string{"evidence", "proc/internal/kernfile"}, never: opens},
	"proc/internal/kernfile":   {ours: []string{"evidence"}, outside: []string{"golang.org/x/sys"}},
	"proc/internal/kerneltest": {},
	"cri": {
		ours:    []string{"evidence"},
		outside: []string{"github.com/containerd", "google.golang.org", "k8s.io/cri-api", "github.com/opencontainers"},
	},
	"kubelet": {ours: []string{"evidence", "proc"}},
	"kube":    {outside: []string{"k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go"}},
	"report": {
		ours:    []string{"diagnose", "evidence", "kube"},
		outside: []string{"k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go/rest", "k8s.io/utils", "github.com/prometheus"},
	},
	"agent": {ours: []string{"evidence", "diagnose"}, outside: []string{"k8s.io/api"}},
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
		// A package below another one goes by its rule, unless it has one of its own.
		top, _, _ := strings.Cut(name, "/")
		rule, own := table[name]
		ok := own
		if !own {
			rule, ok = table[top]
		}
		if !ok {
			t.Errorf("package %s is not in the import table", name)
			continue
		}
		for _, imp := range p.Imports {
			switch ours, isOurs := strings.CutPrefix(imp, module+"/pkg/"); {
			case isOurs:
				dep, _, _ := strings.Cut(ours, "/")
				if _, listed := table[ours]; !listed && dep == top && !own {
					continue
				}
				if !slices.Contains(rule.ours, ours) {
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

// The rules must not reach the outside even through somebody else.
func TestDiagnoseStaysPure(t *testing.T) {
	for _, p := range list(t, "-deps", module+"/pkg/diagnose") {
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
