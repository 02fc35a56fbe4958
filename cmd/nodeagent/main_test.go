package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause/kernel"
)

// Bad input ends the program with an error that names the thing and the next
// step.
func TestBadInput(t *testing.T) {
	empty := t.TempDir()
	for name, tc := range map[string]struct {
		args []string
		want []string
	}{
		"no node name": {[]string{"run"}, []string{"NODE_NAME", "--node-name"}},
		"no proc":      {[]string{"run", "--node-name=n", "--proc=" + empty + "/none"}, []string{empty + "/none", "--proc"}},
		"no cgroup":    {[]string{"run", "--node-name=n", "--cgroup=" + empty + "/none"}, []string{empty + "/none", "--cgroup"}},
		"no kubeconfig": {[]string{"run", "--node-name=n", "--cgroup=" + empty, "--kubeconfig=" + empty + "/none"},
			[]string{"kubeconfig", empty + "/none"}},
		"outside a cluster": {[]string{"run", "--node-name=n", "--cgroup=" + empty}, []string{"service account", "--kubeconfig"}},
		"no node address": {[]string{"run", "--node-name=n", "--cgroup=" + empty, "--kubeconfig=" + kubeconfig(t),
			"--node-ip=node-1"}, []string{"node-1", "NODE_IP", "--node-ip"}},
		"no own pod": {[]string{"run", "--node-name=n", "--cgroup=" + empty, "--require-policies"}, []string{"POD_NAME",
			"--require-policies"}},
		"log format":   {[]string{"run", "--node-name=n", "--log-format=xml"}, []string{"--log-format", "xml", "json"}},
		"log level":    {[]string{"run", "--log-level=loud"}, []string{"--log-level", "loud"}},
		"short period": {[]string{"run", "--node-name=n", "--cgroup=" + empty, "--period=1ms"}, []string{"--period", "1ms"}},
		"sealed, capture with a kubeconfig": {[]string{"capture", "--node-name=n", "--kubeconfig=/dev/stdin", "a/b"}, []string{"--kubeconfig",
			"own container", "copy of the program"}},
		"sealed, capture with a proc": {[]string{"capture", "--node-name=n", "--proc=/proc/1/root", "a/b"}, []string{"--proc", "own container"}},
		"sealed, capture with a socket": {[]string{"capture", "--node-name=n", "--containerd-socket=/x", "a/b"},
			[]string{"--containerd-socket", "own container"}},
		"sealed, run with a kubeconfig": {[]string{"run", "--node-name=n", "--kubeconfig=/dev/stdin"}, []string{"--kubeconfig", "own container"}},
		"sealed, run with a proc":       {[]string{"run", "--node-name=n", "--proc=/proc/1/root"}, []string{"--proc", "own container"}},
		"a capture elsewhere": {[]string{"capture", "--node-name=n", "--cgroup=" + empty, "--kubeconfig=" + empty + "/none", "a/b"},
			[]string{"kubeconfig", empty + "/none"}},
		"capture a name":      {[]string{"capture", "--node-name=n", "--cgroup=" + empty, "pod"}, []string{"pod", "NAMESPACE/POD"}},
		"unknown cause":       {[]string{"explain", "Nonsense"}, []string{"Nonsense", "nodeagent explain"}},
		"explain for what":    {[]string{"explain", "--for=/dev/null"}, []string{"--for", "nodeagent explain CAUSE"}},
		"explain for nothing": {[]string{"explain", "ShimHung", "--for=" + empty + "/none"}, []string{empty + "/none"}},
		"explain for no JSON": {[]string{"explain", "ShimHung", "--for=/dev/null"}, []string{"no whole capture", "nodeagent capture"}},
		"sealed, explain for": {[]string{"explain", "ShimHung", "--for=/proc/1/root/x"}, []string{"--for", "standard input"}},
		"unknown command":     {[]string{"heal"}, []string{"heal"}},
	} {
		t.Run(name, func(t *testing.T) {
			if strings.HasPrefix(name, "sealed") {
				t.Setenv(sealed, "true")
			}
			for _, env := range []string{"NODE_NAME", "NODE_IP", "POD_NAME", "POD_NAMESPACE", "KUBECONFIG", "KUBERNETES_SERVICE_HOST"} {
				t.Setenv(env, "")
			}
			cmd := root()
			cmd.SetArgs(tc.args)
			cmd.SetOut(new(bytes.Buffer))
			err := cmd.ExecuteContext(t.Context())
			if err == nil {
				t.Fatal("no error")
			}
			for _, w := range tc.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("the error does not say %q: %v", w, err)
				}
			}
		})
	}
}

// kubeconfig writes one that names a server and is not used.
func kubeconfig(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	const text = `{"clusters":[{"name":"c","cluster":{"server":"https://192.0.2.1"}}],"contexts":[{"name":"c","context":{"cluster":"c"}}],"current-context":"c"}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestExplain(t *testing.T) {
	for _, args := range [][]string{{"explain"}, {"explain", "uninterruptiblesleep"}, {"explain", "nfs"}} {
		var out bytes.Buffer
		cmd := root()
		cmd.SetArgs(args)
		cmd.SetOut(&out)
		if err := cmd.ExecuteContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), kernel.UninterruptibleSleep.Cause) {
			t.Errorf("%v prints:\n%s", args, out.String())
		}
	}
}
