package diagnose_test

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

func captured(t *testing.T, p *evidence.Pod) io.Reader {
	t.Helper()
	var b bytes.Buffer
	if err := evidence.Encode(&b, p); err != nil {
		t.Fatal(err)
	}
	return &b
}

// A capture is asked why a cause is found, or why not: each condition has its answer.
func TestExplainFor(t *testing.T) {
	twin, twice, early := fixtureNamed(t, "healthy_cni_del_slow"), fixtureNamed(t, "exec_holds_init_exit"), fixtureNamed(t, "kubelet_sync_loop_stalled")
	early.Deadline = early.Time.Add(-30 * time.Second)
	for _, c := range twice.Containers {
		if c.Kind == evidence.App {
			c.Name = "second"
			twice.Containers = append(twice.Containers, c)
		}
	}
	for name, tc := range map[string]struct {
		cause string
		pod   *evidence.Pod
		want  []string
	}{
		"not yet": {"cnidelhanging", twin, []string{"- yes: It has not exited.", "- not before 08:18:44 UTC: It was started more than", "So it is open"}},
		"found":   {"CNIDelHanging", fixtureNamed(t, "cni_del_hanging"), []string{"- yes: It was started more than", "So it is found."}},
		"no": {"FinalizersPending", twin, []string{"not told in this reading: the pod is in phase Sandbox",
			"- no: metadata.finalizers is not empty", "So it is not the cause."}},
		"nothing":  {"ZombieHeldByTracer", twin, []string{"Nothing in this reading can be the cause."}},
		"not read": {"CNIDelHanging", without(twin, evidence.Plugins), []string{"- not read (plugins): "}},
		"held back": {"ExitEventLost", fixtureNamed(t, "node_resource_exhausted_space"), []string{
			"It is not told in this reading: it may come from NodeResourceExhausted, which is not ruled out.",
			"So all conditions are met, and it is not told, for the reason above.",
		}},
		"not the only one": {"ExecHoldsInitExit", twice, []string{"So all conditions are met, and it is not told. "}},
		"too early": {"KubeletSyncLoopStalled", early, []string{
			"- not before 19:01:11 UTC: The pod is 45 seconds past its deadline.", "So it is not the cause by this reading. A later one may show it.",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			page, err := cause.ExplainFor(tc.cause, captured(t, tc.pod))
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range tc.want {
				if !strings.Contains(page, want) {
					t.Errorf("%q is not in\n%s", want, page)
				}
			}
		})
	}
	for name, tc := range map[string]struct{ cause, text, want string }{
		"cause":   {"Nonsense", "{}", `"Nonsense"`},
		"Unknown": {"Unknown", "{}", `"Unknown"`},
		"no JSON": {"CNIDelHanging", "hello", "nodeagent capture NAMESPACE/POD"},
		"cut":     {"CNIDelHanging", `{"namespace": "shop", "na`, "no whole capture"},
		"other":   {"CNIDelHanging", `{"kind": "Pod"}`, `another version of nodeagent, or is none: json: unknown field "kind"`},
		"empty":   {"CNIDelHanging", `{}`, "has no pod"},
		"two":     {"CNIDelHanging", `{"uid": "u", "time": "2026-11-20T12:00:00Z"} {}`, "more in the file than one capture"},
		"family":  {"fuse", "{}", "it is a family"},
		"large":   {"CNIDelHanging", `{"namespace": "` + strings.Repeat("x", 64<<20), "64 MiB"},
	} {
		if _, err := cause.ExplainFor(tc.cause, strings.NewReader(tc.text)); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}

func without(p *evidence.Pod, s evidence.Source) *evidence.Pod {
	less := *p
	less.Missing = nil
	less.Lack(s, "not permitted")
	return &less
}

// What a pod's programs are called cannot forge an answer.
func TestExplainForQuotesNames(t *testing.T) {
	p := fixtureNamed(t, "cni_del_hanging")
	p.Name = "a\n- yes: x"
	for i := range p.Plugins {
		p.Plugins[i].Comm = "a\n\n- yes: x"
	}
	page, err := cause.ExplainFor("CNIDelHanging", captured(t, p))
	if err != nil || strings.Contains(page, "\n- yes: x") {
		t.Errorf("%v\n%s", err, page)
	}
}
