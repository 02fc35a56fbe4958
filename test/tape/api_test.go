package tape

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodeagent-io/nodeagent/pkg/verdict"
)

// A told is something that was written, and how long after the deletion was seen first.
type told struct {
	after time.Duration
	what  string
}

// An api is an API server that takes all that is written, and answers without a network.
type api struct {
	mu         sync.Mutex
	deleted    time.Time // when a deletion was seen first
	conditions map[types.UID]corev1.PodCondition
	events     map[string]eventsv1.Event
	told       []told
}

// begin notes when a deletion is seen first.
func (a *api) begin(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.deleted.IsZero() {
		a.deleted = now
	}
}

func (a *api) tell(what string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.note(what)
}

func (a *api) note(what string) { a.told = append(a.told, told{time.Since(a.deleted), what}) }

// with returns a pod with the condition that was written here in place of the one that it was recorded with.
func (a *api) with(p *corev1.Pod) *corev1.Pod {
	a.mu.Lock()
	defer a.mu.Unlock()
	p = p.DeepCopy()
	var others []corev1.PodCondition
	for _, c := range p.Status.Conditions {
		if c.Type != verdict.ConditionType {
			others = append(others, c)
		}
	}
	if c, ok := a.conditions[p.UID]; ok {
		others = append(others, c)
	}
	p.Status.Conditions = others
	return p
}

// RoundTrip implements http.RoundTripper.
func (a *api) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
	}
	code, answer := a.serve(r.Method, r.URL.Path, body)
	text, err := json.Marshal(answer)
	if err != nil {
		return nil, err
	}
	return &http.Response{
		Request: r, StatusCode: code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(text)),
	}, nil
}

func (a *api) serve(method, at string, body []byte) (code int, answer any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	name := path.Base(at)
	switch {
	case method == http.MethodPatch && strings.HasSuffix(at, "/status"):
		var p corev1.Pod
		if err := json.Unmarshal(body, &p); err != nil {
			return refuse(http.StatusBadRequest, err.Error())
		}
		for _, c := range p.Status.Conditions {
			a.conditions[p.UID] = c
			a.note(fmt.Sprintf("condition %s %s", c.Status, c.Reason))
		}
		return http.StatusOK, struct{}{}
	case method == http.MethodPost && name == "events":
		var e eventsv1.Event
		if err := json.Unmarshal(body, &e); err != nil {
			return refuse(http.StatusBadRequest, err.Error())
		}
		if _, there := a.events[e.Name]; there {
			return refuse(http.StatusConflict, "AlreadyExists")
		}
		a.events[e.Name] = e
		a.note(fmt.Sprintf("Event of the %s %s", e.Regarding.Kind, e.Reason))
		return http.StatusCreated, e
	case method == http.MethodPatch && strings.Contains(at, "/events/"):
		a.note("Event again " + a.events[name].Reason)
		return http.StatusOK, a.events[name]
	case method == http.MethodGet && strings.Contains(at, "/events/"):
		if e, there := a.events[name]; there {
			return http.StatusOK, e
		}
		return refuse(http.StatusNotFound, "NotFound")
	}
	return refuse(http.StatusForbidden, "not expected: "+method+" "+at)
}

// refuse answers with an error.
func refuse(code int, reason string) (int, any) {
	return code, metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
		Code: int32(code), Reason: metav1.StatusReason(reason), Message: reason,
	}
}
