package deploy_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/nodeagent-io/nodeagent/pkg/cri"
	"github.com/nodeagent-io/nodeagent/pkg/proc"
	"github.com/nodeagent-io/nodeagent/test/generated"
)

var update = flag.Bool("update", false, "write daemonset.yaml and the files of the chart that are made from others")

const chart = "helm/nodeagent"

// The chart's tools, which make race fetches: two versions of Helm, and what makes and tests the chart.
const (
	helm4    = "helm"
	helm3    = "helm3"
	docs     = "helm-docs"
	unittest = "helm-unittest"
)

// tool runs one of them, without configuration of this machine's, and returns what it prints.
func tool(t *testing.T, name string, args ...string) (string, error) {
	t.Helper()
	fetched(t, name)
	home := t.TempDir()
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home, "KUBECONFIG=/dev/null")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, &stderr)
	}
	return stdout.String(), nil
}

// render returns what helm template makes of the chart.
func render(t *testing.T, args ...string) string {
	t.Helper()
	out, err := tool(t, helm4, append([]string{"template", name, chart, "--namespace", namespace}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// objects are the documents of a rendered chart, by kind and name.
func objects(t *testing.T, rendered string) map[string]map[string]any {
	t.Helper()
	out := map[string]map[string]any{}
	for _, doc := range strings.Split("\n"+rendered, "\n---\n") {
		var o map[string]any
		if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
			t.Fatalf("%v:\n%s", err, doc)
		}
		if o == nil {
			continue
		}
		id := fmt.Sprint(o["kind"], " ", o["metadata"].(map[string]any)["name"])
		if out[id] != nil {
			t.Errorf("%s is there twice", id)
		}
		out[id] = o
	}
	return out
}

// rendered returns the DaemonSet that the chart makes with these values.
func rendered(t *testing.T, args ...string) (set appsv1.DaemonSet) {
	t.Helper()
	o := objects(t, render(t, args...))["DaemonSet nodeagent"]
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(text, &set); err != nil {
		t.Fatal(err)
	}
	return set
}

// same checks that a file has the content that it is made of, or writes it.
func same(t *testing.T, file, made string) {
	t.Helper()
	generated.Check(t, file, made, "make chart", *update)
}

var onlyHelms = regexp.MustCompile(`(?m)^(# Source: .*| *app.kubernetes.io/managed-by: Helm| *helm.sh/chart: .*|)\n`)

// daemonset.yaml is the Namespace and the chart with default values, without the labels by which Helm knows its own.
func TestManifestIsTheChart(t *testing.T) {
	head, err := os.ReadFile("namespace.yaml")
	if err != nil {
		t.Fatal(err)
	}
	body := onlyHelms.ReplaceAllString(render(t), "")
	same(t, "daemonset.yaml", "# Installs nodeagent on every Linux node:  kubectl apply -f daemonset.yaml\n"+
		"# It is the chart helm/nodeagent with default values: make chart writes it.\n"+string(head)+body)
}

// A chart holds its files: the alerts are those for a Prometheus without the operator.
func TestChartHasTheAlerts(t *testing.T) {
	alerts, err := os.ReadFile("prometheus/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	same(t, chart+"/files/alerts.yaml", string(alerts))
}

// So are the dashboards those that are imported by hand.
func TestChartHasTheDashboards(t *testing.T) {
	files, err := filepath.Glob("grafana/*.json")
	if err != nil || len(files) != 3 {
		t.Fatalf("%s, %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		same(t, chart+"/files/dashboards/"+filepath.Base(file), string(text))
	}
}

// A ConfigMap of the dashboards holds them as they are, but for the last newline.
func TestConfigMapHasTheDashboards(t *testing.T) {
	data, _ := objects(t, render(t, "--set", "dashboards.enabled=true"))["ConfigMap nodeagent-dashboards"]["data"].(map[string]any)
	if len(data) != 3 {
		t.Errorf("%d files", len(data))
	}
	for file, got := range data {
		want, err := os.ReadFile("grafana/" + strings.TrimPrefix(file, "nodeagent-"))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(strings.TrimSpace(string(want)), got); diff != "" {
			t.Errorf("%s is not the file (-file +ConfigMap):\n%s", file, diff)
		}
	}
}

// valueFiles are the sets of values that the chart is tried with.
func valueFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(chart + "/ci/*-values.yaml")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d sets of values, %v", len(files), err)
	}
	return files
}

// Both versions of Helm find nothing wrong, and make the same of each set of values. One that is not a release takes the cluster for an old one.
func TestChartWithBothHelms(t *testing.T) {
	for _, file := range valueFiles(t) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			var made []map[string]map[string]any
			for _, version := range []string{helm4, helm3} {
				if out, err := tool(t, version, "lint", "--strict", chart, "--values", file); err != nil {
					t.Errorf("%v\n%s", err, out)
				}
				out, err := tool(t, version, "template", name, chart, "--namespace", namespace, "--kube-version", "v1.36.0", "--values", file)
				if err != nil {
					t.Fatal(err)
				}
				made = append(made, objects(t, out))
			}
			if diff := cmp.Diff(made[0], made[1]); diff != "" {
				t.Errorf("Helm 3 makes something else (-4 +3):\n%s", diff)
			}
		})
	}
}

// What a user mistypes is refused, and the answer names it.
func TestTyposAreRefused(t *testing.T) {
	for _, typo := range [][2]string{
		{"podMonitor.enabled=yes", "/podMonitor/enabled"},
		{"podMonitors.enabled=true", "podMonitors"},
		{"platform=k3", "/platform"},
		{"image.tag=v1 2", "/image/tag"},
		{"image.digest=0123abcd", "/image/digest"},
		{"image.pullPolicy=ifNotPresent", "/image/pullPolicy"},
		{"containerd.socket=unix:///run/containerd/containerd.sock", "/containerd/socket"},
		{"kubelet.rootdir=/data/kubelet", "rootdir"},
		{"tolerations=Exists", "/tolerations"},
		{"extraArgs={-log-format=json}", "/extraArgs/0"},
		{"admissionPolicy=false", "/admissionPolicy"},
		{"prometheusRule.overrides.PodStuckTerminating.For=5m", "For"},
		{"networkPolicy.ingressFrom.namespaceSelector=x", "/networkPolicy/ingressFrom"},
		{"dashboards.enable=true", "enable"},
		{"serviceAccount.name=node_agent", "/serviceAccount/name"},
	} {
		t.Run(typo[0], func(t *testing.T) {
			t.Parallel()
			_, err := tool(t, helm4, "template", name, chart, "--set", typo[0])
			if err == nil || !strings.Contains(err.Error(), typo[1]) || !strings.Contains(err.Error(), "schema") {
				t.Errorf("%v, which does not name %s", err, typo[1])
			}
		})
	}
}

// Another chart that has this one in it hands down global values of its own, and the condition by which it is left out.
func TestChartInAnother(t *testing.T) {
	dir := t.TempDir()
	for file, content := range map[string]string{
		"Chart.yaml":  "apiVersion: v2\nname: all\nversion: 1.0.0\ndependencies:\n  - {name: nodeagent, version: 0.x.x, condition: nodeagent.enabled}\n",
		"values.yaml": "global: {clusterName: prod, imageRegistry: r.example.com}\nnodeagent: {enabled: true}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.CopyFS(filepath.Join(dir, "charts", "nodeagent"), os.DirFS(chart)); err != nil {
		t.Fatal(err)
	}
	out, err := tool(t, helm4, "template", "all", dir)
	if err != nil || !strings.Contains(out, "image: r.example.com/nodeagent-io/nodeagent:") {
		t.Errorf("%v\n%.2000s", err, out)
	}
}

// leaves are the paths of a tree's values, with dots; what is empty, or a list, is a value.
func leaves(prefix string, tree map[string]any) []string {
	var out []string
	for key, value := range tree {
		if below, ok := value.(map[string]any); ok && len(below) > 0 {
			out = append(out, leaves(prefix+key+".", below)...)
		} else {
			out = append(out, prefix+key)
		}
	}
	slices.Sort(out)
	return out
}

// Each value that the schema allows has its default and its comment in values.yaml, and a template uses it.
func TestEachValueServes(t *testing.T) {
	var values, schema map[string]any
	for file, into := range map[string]*map[string]any{"/values.yaml": &values, "/values.schema.json": &schema} {
		text, err := os.ReadFile(chart + file)
		if err == nil {
			err = yaml.Unmarshal(text, into)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var templates strings.Builder
	files, err := filepath.Glob(chart + "/templates/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		templates.Write(text)
	}
	for _, path := range leaves("", values) {
		used := false
		for p := path; p != "" && !used; p = above(p) {
			// Maps of others' making are used whole: resources, not resources.limits.
			used = regexp.MustCompile(`\.Values\.` + regexp.QuoteMeta(p) + `\b[^.]`).MatchString(templates.String())
		}
		if !used {
			t.Errorf("no template uses %s", path)
		}
	}
	// With lint --strict, which refuses what the schema lacks, the two are the same.
	var allowed func(prefix string, schema map[string]any, values map[string]any)
	allowed = func(prefix string, schema, values map[string]any) {
		props, _ := schema["properties"].(map[string]any)
		for key, p := range props {
			value, ok := values[key]
			below, isMap := value.(map[string]any)
			switch {
			case prefix+key == "enabled": // for a chart that has this one in it
			case !ok:
				t.Errorf("the schema allows %s%s, which values.yaml lacks", prefix, key)
			case isMap && len(below) > 0 && prefix == "":
				allowed(key+".", p.(map[string]any), below)
			}
		}
	}
	allowed("", schema, values)
}

// above is a path without its last element.
func above(path string) string { return path[:max(0, strings.LastIndex(path, "."))] }

// A platform's paths are among those that the agent looks at by itself: what finds them by itself is tested with them.
func TestPlatformsAreKnownToTheAgent(t *testing.T) {
	found := 0
	for _, file := range valueFiles(t) {
		platform := strings.TrimSuffix(filepath.Base(file), "-values.yaml")
		text, err := os.ReadFile(file)
		if err != nil || string(text) != "platform: "+platform+"\n" {
			continue
		}
		for _, e := range rendered(t, "--values", file).Spec.Template.Spec.Containers[0].Env {
			switch socket, _ := strings.CutPrefix(e.Value, "/proc/1/root"); {
			case e.Name == "CONTAINERD_SOCKET" && !slices.Contains(cri.Sockets, socket):
				t.Errorf("%s: the agent does not know %s", platform, e.Value)
			case e.Name == "KUBELET_DIR" && !slices.Contains(proc.KubeletDirs, e.Value):
				t.Errorf("%s: the agent does not know %s", platform, e.Value)
			case e.Name == "CONTAINERD_SOCKET" || e.Name == "KUBELET_DIR":
				found++
			}
		}
	}
	if found < 2*len(cri.Sockets) {
		t.Errorf("%d paths of platforms", found)
	}
}

// What is packaged twice is the same, and holds what is for users only.
func TestArchiveIsReproducible(t *testing.T) {
	var archives [][]byte
	for range 2 {
		dir := t.TempDir()
		if _, err := tool(t, helm4, "package", chart, "--destination", dir); err != nil {
			t.Fatal(err)
		}
		files, err := filepath.Glob(dir + "/nodeagent-*.tgz")
		if err != nil || len(files) != 1 {
			t.Fatalf("%v, %v", files, err)
		}
		b, err := os.ReadFile(files[0])
		if err != nil {
			t.Fatal(err)
		}
		archives = append(archives, b)
	}
	if !bytes.Equal(archives[0], archives[1]) {
		t.Error("two archives of the chart differ")
	}
	z, err := gzip.NewReader(bytes.NewReader(archives[0]))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(h.Name, "/templates/") {
			got = append(got, strings.TrimPrefix(h.Name, "nodeagent/"))
		}
	}
	slices.Sort(got)
	if diff := cmp.Diff([]string{".helmignore", "Chart.yaml", "README.md", "files/alerts.yaml",
		"files/dashboards/fleet.json", "files/dashboards/node.json", "files/dashboards/pod.json", "values.schema.json", "values.yaml"}, got); diff != "" {
		t.Errorf("the archive differs (-want +got):\n%s", diff)
	}
}

// README.md of the chart is made of its template and the comments in values.yaml.
func TestChartsReadme(t *testing.T) {
	readme, err := tool(t, docs, "--chart-search-root", chart, "--dry-run", "--log-level=warning", "--sort-values-order=file")
	if err != nil {
		t.Fatal(err)
	}
	same(t, chart+"/README.md", readme)
}

func TestChartsOwnTests(t *testing.T) {
	out, err := tool(t, unittest, chart)
	if t.Log(out); err != nil {
		t.Error(err)
	}
}

// An upgrade must not change what is immutable in a DaemonSet that kubectl apply has made.
func TestSelectorStays(t *testing.T) {
	want := map[string]string{"app.kubernetes.io/name": "nodeagent"}
	for _, file := range valueFiles(t) {
		if got := rendered(t, "--values", file).Spec.Selector; !reflect.DeepEqual(got.MatchLabels, want) || len(got.MatchExpressions) > 0 {
			t.Errorf("%s: selector %v", file, got)
		}
	}
}

// The quota of GKE admits the class of the pods.
func TestQuotaAdmitsThePods(t *testing.T) {
	var quota corev1.ResourceQuota
	all := objects(t, render(t, "--set", "platform=gke,priorityClassName=system-cluster-critical"))
	text, err := json.Marshal(all["ResourceQuota nodeagent"])
	if err == nil {
		err = yaml.UnmarshalStrict(text, &quota)
	}
	if err != nil || quota.Spec.ScopeSelector == nil {
		t.Fatalf("%v, %s", err, text)
	}
	if got := quota.Spec.ScopeSelector.MatchExpressions[0].Values; !slices.Equal(got, []string{"system-cluster-critical"}) {
		t.Errorf("the quota admits %v", got)
	}
}
