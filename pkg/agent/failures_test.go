package agent

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// failed is an Event of a node's kubelet.
func failed(node, note string, count int32, first, last time.Time) eventsv1.Event {
	return eventsv1.Event{
		Note: note, DeprecatedCount: count, DeprecatedSource: corev1.EventSource{Component: "kubelet", Host: node},
		DeprecatedFirstTimestamp: metav1.NewTime(first), DeprecatedLastTimestamp: metav1.NewTime(last),
	}
}

func TestFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		asked := 0
		var refuse error
		f := &Failures{Node: "n", Ask: func(_ context.Context, namespace string, uid types.UID) ([]eventsv1.Event, error) {
			asked++
			if namespace != "ns" || uid != "u" {
				t.Errorf("asked about %s in %s", uid, namespace)
			}
			return []eventsv1.Event{
				failed("n", "before", 9, start.Add(-time.Hour), start.Add(-time.Hour)),
				failed("n", "first", 1, start.Add(5*time.Second), start.Add(5*time.Second)),
				failed("another", "foreign", 9, start, start.Add(time.Minute)),
				failed("n", "again", 2, start.Add(6*time.Second), start.Add(20*time.Second)),
			}, refuse
		}}
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u", DeletionTimestamp: &metav1.Time{Time: start}}}
		of := func() []evidence.KillFailure {
			t.Helper()
			got, err := f.Of(t.Context(), p)
			if !errors.Is(err, refuse) {
				t.Error(err)
			}
			return got
		}
		if time.Sleep(askAfter - time.Second); of() != nil || asked != 0 {
			t.Errorf("asked %d times before there can be an answer", asked)
		}
		time.Sleep(time.Second)
		want := []evidence.KillFailure{
			{First: start.Add(6 * time.Second), Last: start.Add(20 * time.Second), Count: 2, Text: "again"},
			{First: start.Add(5 * time.Second), Last: start.Add(5 * time.Second), Count: 1, Text: "first"},
		}
		for range 3 {
			if diff := cmp.Diff(want, of()); diff != "" {
				t.Error(diff)
			}
		}
		if asked != 1 {
			t.Errorf("asked %d times at one moment", asked)
		}
		refuse = errors.New("forbidden")
		time.Sleep(askEach)
		of()
		of()
		if asked != 2 {
			t.Errorf("asked %d times, want again after %s", asked, askEach)
		}
		time.Sleep(askLate)
		of()
		time.Sleep(askEach)
		if of(); asked != 3 {
			t.Errorf("asked %d times, want rarely by now", asked)
		}
		f.forget(nil)
		if of(); asked != 4 {
			t.Error("a pod that has gone is remembered")
		}
		p.Status.Phase, refuse = corev1.PodFailed, nil
		if f.forget(nil); of() != nil || asked != 4 {
			t.Error("asked about a pod of which the containers have ended")
		}
	})
}

func TestWithoutSecrets(t *testing.T) {
	for text, want := range map[string]string{
		"plugin type=\"calico\" failed (delete): connection is unauthorized: Unauthorized": "plugin type=\"calico\" failed (delete): " +
			"connection is unauthorized: Unauthorized",
		"get https://admin:hunter22@10.0.0.1/x: refused":                            "get https://REDACTED@10.0.0.1/x: refused",
		"Authorization: Bearer abcdefgh12345":                                       "Authorization: Bearer REDACTED",
		`token=\"abcdefgh12345\" is expired`:                                        `token=\"REDACTED\" is expired`,
		"got eyJhbGciOiJSUzI1NiIsImtpZCI6.eyJhdWQiOlsiaHR0cHM6Ly9r.abc_def-ghi end": "got REDACTED end",
		"Authorization: Basic dXNlcjpwYXNz":                                         "Authorization: Basic REDACTED",
		`password=\\\"p@ss w!\\\" refused`:                                          `password=\\\"REDACTED\\\" refused`,
		"password=hi!2 refused":                                                     "password=REDACTED refused",
		"get https://x/y?sig=ab%2Fc%3D&se=1: 403":                                   "get https://x/y?sig=REDACTED&se=1: 403",
		`{\"clientSecret\":\"a b\",\"x\":1}`:                                        `{\"clientSecret\":\"REDACTED\",\"x\":1}`,
		"-----BEGIN RSA PRIVATE KEY-----\\nMII":                                     "REDACTED",
		"token: expired":                                                            "token: expired",
		"failed to destroy network for sandbox \"0123456789abcdef0123456789abcdef\"": "failed to destroy network for sandbox " +
			"\"0123456789abcdef0123456789abcdef\"",
	} {
		if got := withoutSecrets(text); got != want {
			t.Errorf("%s\nbecomes %s\nwant    %s", text, got, want)
		}
	}
	if got := withoutSecrets(strings.Repeat("ä", maxNote)); len(got) != maxNote {
		t.Errorf("%d bytes", len(got))
	}
}

// What fails as soon as the pod is deleted is told of with the second in which that was.
func TestFailureAtOnce(t *testing.T) {
	requested := time.Date(2026, 1, 1, 0, 0, 9, 34e6, time.UTC)
	for at, want := range map[time.Time]int{requested.Truncate(time.Second): 1, requested.Truncate(time.Second).Add(-time.Second): 0} {
		if got := killFailures([]eventsv1.Event{failed("n", "at once", 1, at, at)}, "n", requested); len(got) != want {
			t.Errorf("of one at %s, %d are kept, want %d", at, len(got), want)
		}
	}
}

// Of a pod of several containers the kubelet tells first why each could not be stopped, in any order.
func TestFailuresOfSeveral(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 9, 0, time.UTC)
	of := func(names ...string) string {
		note := "error killing pod: ["
		for _, n := range names {
			note += `failed to "KillContainer" for "` + n + `" with KillContainerError: "` + strings.Repeat("x", 400) + `", `
		}
		return note + ofSandbox + `"u" with KillPodSandboxError: "why"]`
	}
	got := killFailures([]eventsv1.Event{
		failed("n", of("a", "b", "c"), 2, at, at.Add(20*time.Second)), failed("n", of("c", "b", "a"), 1, at.Add(-time.Second), at.Add(9*time.Second)),
	}, "n", at)
	want := []evidence.KillFailure{{First: at.Add(-time.Second), Last: at.Add(20 * time.Second), Count: 3, Text: ofSandbox + `"u" with KillPodSandboxError: "why"]`}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// The deadline is by the API server's clock, and the kubelet's Events by the node's.
func TestFailuresOfAnotherClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, ahead := range map[string]time.Duration{"behind": -10 * time.Minute, "ahead": 10 * time.Minute} {
			requested := time.Now()
			f := &Failures{Node: "n", Skew: func() (least, most time.Duration, ok bool) { return ahead, ahead, true },
				Ask: func(context.Context, string, types.UID) ([]eventsv1.Event, error) {
					at := requested.Add(5 * time.Second)
					return []eventsv1.Event{failed("n", "why", 1, at, at)}, nil
				}}
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u", DeletionTimestamp: &metav1.Time{Time: requested.Add(ahead)}}}
			if got, _ := f.Of(t.Context(), p); got != nil {
				t.Errorf("%s: asked at the deadline", name)
			}
			time.Sleep(askAfter)
			if got, err := f.Of(t.Context(), p); len(got) != 1 || err != nil {
				t.Errorf("%s: %v, %v", name, got, err)
			}
		}
	})
}
