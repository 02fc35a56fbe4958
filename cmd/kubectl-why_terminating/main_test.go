package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/nodeagent-io/nodeagent/test/plain"
)

// An apiServer answers for paths as it is told, and knows nothing else.
func apiServer(t *testing.T, answers map[string]string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Date", date)
		body, ok := answers[r.URL.Path]
		switch {
		case !ok:
			w.WriteHeader(http.StatusNotFound)
			body = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"message":"not found"}`
		case body == "forbidden":
			w.WriteHeader(http.StatusForbidden)
			body = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"no"}`
		case body == "hangs":
			<-r.Context().Done()
			return
		}
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(server.Close)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	config := `{"apiVersion":"v1","kind":"Config","clusters":[{"name":"c","cluster":{"server":"` + server.URL +
		`"}}],"contexts":[{"name":"c","context":{"cluster":"c","user":"u","namespace":"shop"}}],"current-context":"c","users":[{"name":"u","user":{}}]}`
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// now is the API server's time; date is it as an answer has it.
var (
	now  = time.Date(2026, 3, 1, 3, 10, 0, 0, time.UTC)
	date = now.Format(http.TimeFormat)
)

// run runs the plugin, and returns what it prints, its exit status and its error.
func run(t *testing.T, kubeconfig string, args ...string) (string, int, error) {
	t.Helper()
	var out bytes.Buffer
	o := &options{config: genericclioptions.NewConfigFlags(false), out: &out}
	cmd := command(o)
	*o.config.KubeConfig = kubeconfig
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	if err != nil {
		o.status = cannotTell
	}
	return out.String(), o.status, err
}

const (
	latePod  = `{"metadata":{"namespace":"shop","name":"web-0","uid":"u1","deletionTimestamp":"2026-03-01T03:00:00Z","deletionGracePeriodSeconds":30},"spec":{"nodeName":"n1"},"status":{"phase":"Running"}}`
	gracePod = `{"metadata":{"namespace":"shop","name":"web-1","uid":"u2","deletionTimestamp":"2026-03-01T03:10:20Z","deletionGracePeriodSeconds":30},"spec":{"nodeName":"n1"},"status":{"phase":"Running"}}`
	runs     = `{"metadata":{"namespace":"shop","name":"web-2","uid":"u3"},"spec":{"nodeName":"n1"}}`
	noPods   = `{"kind":"PodList","apiVersion":"v1","items":[]}`
	nodeOK   = `{"kind":"Node","apiVersion":"v1","metadata":{"name":"n1"},"status":{"conditions":[{"type":"Ready","status":"True"}]}}`
	inShop   = "/api/v1/namespaces/shop/pods"
)

func pods(items ...string) string {
	return `{"kind":"PodList","apiVersion":"v1","items":[` + strings.Join(items, ",") + `]}`
}

func TestExitStatus(t *testing.T) {
	for name, c := range map[string]struct {
		answers map[string]string
		args    []string
		status  int
		says    string
	}{
		"nothing":  {map[string]string{inShop: noPods}, nil, nothingLate, "No pods are terminating in namespace shop. Use -A for all namespaces."},
		"in grace": {map[string]string{inShop: pods(gracePod, runs), "/api/v1/nodes/n1": nodeOK, "/api/v1/pods": noPods}, nil, nothingLate, "web-1"},
		"late": {map[string]string{inShop: pods(latePod, gracePod), "/api/v1/nodes/n1": nodeOK, "/api/v1/pods": noPods}, nil,
			somethingIs, "no nodeagent on n1"},
		"late only": {map[string]string{inShop: pods(latePod, gracePod), "/api/v1/nodes/n1": nodeOK, "/api/v1/pods": noPods},
			[]string{"--late-only"}, somethingIs, "2 pods are terminating in namespace shop, 1 of them late."},
		"a partial view": {map[string]string{inShop: pods(latePod), "/api/v1/nodes/n1": "forbidden", "/api/v1/pods": "forbidden",
			"/api/v1/namespaces/nodeagent-system/pods": "forbidden"}, nil, somethingIs, "Not read: get nodes (forbidden): lost nodes are not recognized."},
		"all":       {map[string]string{"/api/v1/pods": pods(latePod), "/api/v1/nodes/n1": nodeOK}, []string{"-A"}, somethingIs, "NAMESPACE"},
		"forbidden": {map[string]string{inShop: "forbidden"}, nil, cannotTell, "you may not list pods in shop: ask for that permission"},
		"one": {map[string]string{inShop + "/web-0": latePod, "/api/v1/nodes/n1": nodeOK, "/api/v1/pods": noPods}, []string{"web-0"},
			somethingIs, "shop/web-0 on n1 is 10m late."},
		"one, as -o name has": {map[string]string{inShop + "/web-0": latePod, "/api/v1/nodes/n1": nodeOK, "/api/v1/pods": noPods},
			[]string{"pod/web-0"}, somethingIs, "shop/web-0"},
		"unknown": {map[string]string{}, []string{"nope"}, cannotTell, `pod "nope" not found in namespace "shop"`},
		"it runs": {map[string]string{inShop + "/web-2": runs}, []string{"web-2"}, cannotTell, "is not being deleted"},
		"hangs":   {map[string]string{inShop: "hangs"}, []string{"--request-timeout=200ms"}, cannotTell, "did not answer in time"},
		"a namespace, and it hangs": {map[string]string{"/api/v1/namespaces/shop": "hangs"}, []string{"ns/shop", "--request-timeout=200ms"}, cannotTell,
			"did not answer in time"},
		"discovery hangs":    {map[string]string{"/api/v1/namespaces/shop": `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"shop","deletionTimestamp":"2026-03-01T03:00:00Z"}}`, "/api": "hangs", "/apis": "hangs"}, []string{"ns/shop", "--request-timeout=200ms"}, somethingIs, "could not be listed"},
		"a node that is not": {map[string]string{inShop: noPods}, []string{"--node", "typo"}, cannotTell, `node "typo" not found`},
		"a selector": {map[string]string{inShop: noPods}, []string{"-l", "app=x"}, nothingLate,
			"No pods are terminating in namespace shop with labels app=x. Use -A"},
		"another cluster": {map[string]string{inShop: pods(latePod), "/api/v1/nodes/n1": nodeOK, "/api/v1/pods": noPods}, []string{"--context",
			"c"}, somethingIs, "why-terminating web-0 -n shop --kubeconfig="},
		"output":              {map[string]string{}, []string{"-o", "xml"}, cannotTell, `unknown output format "xml"`},
		"script without node": {map[string]string{}, []string{"--script"}, cannotTell, "--script needs --node"},
		"script once":         {map[string]string{}, []string{"--script", "--node=n1", "-w"}, cannotTell, "leave out --watch"},
		"watched names":       {map[string]string{}, []string{"-w", "-o", "json"}, cannotTell, "leave out -o json"},
		"name and node":       {map[string]string{}, []string{"web-0", "--node=n1"}, cannotTell, "leave out --selector and --node"},
		"color":               {map[string]string{}, []string{"--color=no"}, cannotTell, `unknown --color "no"`},
		"a page":              {map[string]string{}, []string{"explain", "uninterruptiblesleep"}, nothingLate, "UninterruptibleSleep"},
		"no page":             {map[string]string{}, []string{"explain", "Nonsense"}, cannotTell, `no cause is called "Nonsense"`},
		"names": {map[string]string{inShop: pods(latePod), "/api/v1/nodes/n1": nodeOK, "/api/v1/pods": noPods}, []string{"-o", "name"},
			somethingIs, "pod/web-0\n"},
	} {
		out, status, err := run(t, apiServer(t, c.answers), c.args...)
		said := out
		if err != nil {
			said += err.Error()
		}
		if status != c.status || !strings.Contains(said, c.says) || strings.Contains(said, "\x1b") {
			t.Errorf("%s: exit status %d, want %d: %v\n%s", name, status, c.status, err, out)
		}
	}
}

func TestReportsFollowTheSchema(t *testing.T) {
	c := jsonschema.NewCompiler()
	schema, err := c.Compile("report.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	answers := map[string]string{inShop: pods(latePod, gracePod), "/api/v1/nodes/n1": nodeOK, "/api/v1/pods": "forbidden",
		"/api/v1/namespaces/nodeagent-system/pods": "forbidden",
		"/api/v1/namespaces/shop":                  `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"shop","deletionTimestamp":"2026-03-01T03:00:00Z"}}`,
		"/api":                                     `{"kind":"APIVersions","versions":["v1"]}`, "/apis": `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`,
		"/api/v1": `{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"pods","namespaced":true,"kind":"Pod","verbs":["list","delete"]}]}`,
		"/apis/apiregistration.k8s.io/v1/apiservices": `{"items":[{"metadata":{"name":"v1.x"},"status":{"conditions":[{"type":"Available","status":"False","reason":"R"}]}}]}`,
	}
	for _, args := range [][]string{{"-o", "json"}, {"ns/shop", "-o", "json"}} {
		out, _, err := run(t, apiServer(t, answers), args...)
		if err != nil {
			t.Fatalf("%s: %v", args, err)
		}
		var report any
		if err := json.Unmarshal([]byte(out), &report); err != nil {
			t.Fatalf("%s: %v\n%s", args, err, out)
		}
		if err := schema.Validate(report); err != nil {
			t.Errorf("%s: %v\n%s", args, err, out)
		}
	}
}

// What others chose does nothing in a terminal, as JSON and as YAML either.
func TestReportsArePrintable(t *testing.T) {
	const text = "a\u202eb\u009bc\x1b[31md ä"
	for output, want := range map[string]string{"json": `a\u202eb\u009bc\u001b[31md \u00e4`, "yaml": `a\u202eb\u009bc\x1b[31md ä`} {
		var b strings.Builder
		o := &options{output: output}
		if err := o.encode(&b, map[string]any{"pods": []any{map[string]any{"message": text, "lateSeconds": 3600000}}}); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(b.String(), want) || !strings.Contains(b.String(), "3600000") {
			t.Errorf("%s: %q", output, b.String())
		}
	}
}

func TestPlainHelp(t *testing.T) {
	o := &options{config: genericclioptions.NewConfigFlags(false)}
	cmd := command(o)
	cluster := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.config.AddFlags(cluster)
	check := func(of, text string) {
		if err := plain.Check(text); err != nil {
			t.Errorf("%s: %v", of, err)
		}
	}
	check("short", cmd.Short)
	check("long", cmd.Long)
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if cluster.Lookup(f.Name) == nil { // kubectl's own
			check(f.Name, f.Usage)
		}
	})
	if len(cmd.Short) > 50 {
		t.Errorf("the short description has %d characters, krew takes 50", len(cmd.Short))
	}
}
