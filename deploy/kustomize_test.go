package deploy_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// The examples in docs/install.md make what they say, with this checkout in place of the addresses.
func TestKustomizations(t *testing.T) {
	page, err := os.ReadFile("../docs/install.md")
	if err != nil {
		t.Fatal(err)
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	var examples []string
	for _, m := range regexp.MustCompile("(?s)```yaml\n# kustomization.yaml\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		examples = append(examples, m[1])
	}
	want := []struct{ object, has string }{
		{"ResourceQuota nodeagent", "values:[system-node-critical]"},
		{"ValidatingAdmissionPolicy nodeagent-own-events", `== "system:serviceaccount:monitoring:nodeagent"`},
		{"DaemonSet nodeagent", "name:KUBELET_CERT_FILE value:/etc/kubernetes/certs/kubeletserver.crt"},
	}
	if len(examples) != 2 {
		t.Fatalf("docs/install.md has %d kustomizations", len(examples))
	}
	examples = append(examples, strings.Replace(examples[0], "components/gke", "components/aks", 1))
	for i, example := range examples {
		dir := t.TempDir()
		back, err := filepath.Rel(dir, here)
		if err != nil {
			t.Fatal(err)
		}
		example = regexp.MustCompile(`https://github.com/nodeagent-io/nodeagent/deploy([^?\n]*)\?ref=v[0-9.]+`).ReplaceAllString(example, back+"$1")
		if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(example), 0o600); err != nil {
			t.Fatal(err)
		}
		made, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
		if err != nil {
			t.Fatalf("%v\n%s", err, example)
		}
		text, err := made.AsYaml()
		if err != nil {
			t.Fatal(err)
		}
		all := objects(t, string(text))
		if got := fmt.Sprint(all[want[i].object]); !strings.Contains(got, want[i].has) || len(all) < 9 {
			t.Errorf("%d objects, and %s lacks %s: %s", len(all), want[i].object, want[i].has, got)
		}
	}
}
