package scenario

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/client-go/rest"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/kube"
	"github.com/nodeagent-io/nodeagent/pkg/report"
	"github.com/nodeagent-io/nodeagent/pkg/verdict"
	"github.com/nodeagent-io/nodeagent/test/bed"
)

// A scribe takes what the agent writes for an API server.
type scribe struct {
	note      string
	condition *corev1.PodCondition
}

// RoundTrip implements http.RoundTripper.
func (s *scribe) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	var e eventsv1.Event
	var p corev1.Pod
	if r.Method == http.MethodPost {
		err = json.Unmarshal(body, &e)
		s.note = e.Note
	} else if err = json.Unmarshal(body, &p); err == nil {
		s.condition = &p.Status.Conditions[0]
	}
	if err != nil {
		return nil, err
	}
	return &http.Response{Request: r, StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(bytes.NewReader(body))}, nil
}

// wordsOf returns what the agent writes of the pod of a reading: the cause, the Event's note, and the condition, nil for a pod that is gone.
func wordsOf(t *testing.T, p *evidence.Pod) (reason, note string, condition *corev1.PodCondition) {
	t.Helper()
	s := new(scribe)
	client, err := kube.New(&rest.Config{Host: "http://api", QPS: -1, Transport: s})
	if err != nil {
		t.Fatal(err)
	}
	cases := new(verdict.Cases)
	metrics := report.NewMetrics("test", cause.Who(), time.Now, cases, func() report.Counts { return report.Counts{} })
	r := report.New(client, "node", metrics, slog.New(slog.DiscardHandler))
	c, d := cases.Open(p.UID), cause.Diagnose(p)
	c.Subject = verdict.Subject{Kind: verdict.Pod, Namespace: p.Namespace, Name: p.Name, UID: p.UID}
	v, _ := d.Verdict()
	if p.Gone {
		r.ReportGone(t.Context(), c, p.Time, d)
		return v.Cause, s.note, nil
	}
	for i := range 3 { // Unknown is told after some seconds, and an Event at the second look
		look := *p
		look.Time = p.Time.Add(time.Duration(i) * 20 * time.Second)
		c.Judge(c.Subject, &look, d)
		r.Report(t.Context(), c)
	}
	return v.Cause, s.note, s.condition
}

// fixturesOf returns the readings of the fixtures by the names of their scenarios.
func fixturesOf(t *testing.T) map[string][]*evidence.Pod {
	t.Helper()
	files, err := filepath.Glob(testdata + "/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no fixtures: %v", err)
	}
	fixtures := map[string][]*evidence.Pod{}
	for _, file := range files {
		a, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(a.Files, func(f txtar.File) bool { return f.Name == "evidence.json" })
		p := new(evidence.Pod)
		if err := json.Unmarshal(a.Files[i].Data, p); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		fixtures[p.Name] = append(fixtures[p.Name], p)
	}
	return fixtures
}

// notSaid are what scenarios want to be said and the fixtures taken from them do not say: they are older than the scenario is as it is
// now, or were taken of a pod that was seen for a shorter time.
var notSaid = map[string][]string{
	"finalizer":             {"Seen: The client that set it calls itself \""},
	"volume-busy-claims":    {"volume \"more\" (claim volume-busy-claims-more)", "Seen: PersistentVolume scenarios-"},
	"frozen-filesystem":     {"fsfreeze -u /var/lib/scenario-frozen-filesystem"},
	"zombie-leader":         {"fsfreeze -u /var/lib/scenario-zombie-leader"},
	"nfs-server-gone":       {"NFS server 192.0.2.5"},
	"block-overlay":         {"Fix: dmsetup resume scenario-block-overlay"},
	"block-zombie-leader":   {"Seen: /dev/mapper/scenario-block-zombie-leader", "Fix: dmsetup resume scenario-block-zombie-leader"},
	"fuse-close":            {"fuse.hang", "/data", "Seen: /var/lib/scenario-fuse-close"},
	"fuse-stopped":          {"fuse.hang", "/data", "Seen: /var/lib/scenario-fuse-stopped"},
	"zombie-tracer":         {"Fix: kill "},
	"block-device-busy":     {"block volume \"data\" (claim block-device-busy", "Seen: PersistentVolume scenarios-"},
	"block-unpublish-fails": {"volume \"data\" (claim block-unpublish-fails", "Seen: PersistentVolume scenarios-"},
	"descriptors-used-up":   {"containerd cannot record that container main exited", "it has reached its open file limit (RLIMIT_NOFILE 3)"},
	"disk-read-only": {"Seen: /var/lib/containerd/io.containerd.grpc.v1.cri/containers", "Fix: findmnt -T " +
		"/var/lib/containerd/io.containerd.grpc.v1.cri/containers"},
}

// What the scenarios want to be said is said of the pods of the fixtures that were taken from them, by the agent's own writers.
func TestFixturesSayWhatTheScenariosWant(t *testing.T) {
	fixtures := fixturesOf(t)
	checked := 0
	for _, s := range append(All(), Alone()...) {
		said, of := map[string]bool{}, 0
		for _, p := range fixtures[s.Name] {
			reason, note, condition := wordsOf(t, p)
			if s.Cause == "" || reason != s.Cause {
				continue
			}
			of++
			if s.NoCondition || s.When == bed.WhenGone {
				condition = nil
			}
			r := bed.Run{Scenario: s, Node: &bed.Node{Name: strings.TrimPrefix(p.Namespace, "scenarios-")}}
			if wrong := r.Malformed(note, condition); wrong != nil {
				t.Errorf("%s: %v", s.Name, errors.Join(wrong...))
			}
			for _, says := range s.Says {
				r.Says = []string{strings.ReplaceAll(says, "NAMESPACE", p.Namespace)}
				said[says] = said[says] || r.Unsaid(note, condition) == nil
			}
		}
		if of == 0 {
			continue
		}
		checked++
		for says, is := range said {
			if want := !slices.Contains(notSaid[s.Name], says); is != want {
				t.Errorf("%s: %q is said by its fixtures: %t, want %t", s.Name, says, is, want)
			}
		}
	}
	if checked < 120 {
		t.Errorf("only %d scenarios have a fixture", checked)
	}
}

// Where there may be no condition, nothing is wanted of it.
func TestSayingsWithoutACondition(t *testing.T) {
	label := regexp.MustCompile(`^(Cause|Seen|Fix|Avoid|Force delete|Timeline): `)
	for _, s := range append(All(), Alone()...) {
		for _, says := range s.Says {
			if label.MatchString(says) && (s.When == bed.WhenGone || s.NoCondition) {
				t.Errorf("%s: there may be no condition to say %q", s.Name, says)
			}
		}
	}
}

// The command that a scenario takes from a condition's Fix is whole, and about its pod.
func TestDryRun(t *testing.T) {
	asked := false
	for _, p := range fixturesOf(t)["finalizer"] {
		reason, _, c := wordsOf(t, p)
		if reason != "FinalizersPending" {
			continue
		}
		asked = true
		want := "kubectl patch --dry-run=server -n " + p.Namespace + " pod finalizer --type=json -p '[{\"op\":\"remove\",\"path\":\"/metadata/finalizers\"}]'"
		if got := dryRun(c.Message); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if !asked {
		t.Error("no fixture has a finalizer that is not removed")
	}
	const without = "Cause: Stuck in phase Finalizers: x.\nSeen: kubectl patch --dry-run=server -n a pod b -p '[{}]'.\nFix: wait."
	if got := dryRun(without); got != "" {
		t.Errorf("got %q of another line than Fix", got)
	}
}
