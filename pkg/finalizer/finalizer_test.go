package finalizer

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

func TestSetters(t *testing.T) {
	at := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	entry := func(manager, fields string) metav1.ManagedFieldsEntry {
		e := metav1.ManagedFieldsEntry{Manager: manager, Time: &at, FieldsV1: new(metav1.FieldsV1)}
		e.FieldsV1.SetRawBytes([]byte(fields))
		return e
	}
	managed := []metav1.ManagedFieldsEntry{
		{Manager: "nothing"},
		entry("broken", `{"f:metadata":`),
		entry("other", `{"f:metadata":{"f:finalizers":[]}}`),
		entry("kubelet", `{"f:status":{}}`),
		entry("one", `{"f:metadata":{"f:finalizers":{".":{},"v:\"example.com/b\"":{},"v:\"example.com/removed\"":{},"k:x":{},"v:x":{}}}}`),
		entry("late", `{"f:metadata":{"f:finalizers":{"v:\"example.com/b\"":{},"v:\"example.com/a\"":{}}}}`),
	}
	want := []evidence.FinalizerSetter{{Finalizer: "example.com/a", Manager: "late", Changed: at.UTC()}, {Finalizer: "example.com/b", Manager: "one",
		Changed: at.UTC()}}
	if diff := cmp.Diff(want, Setters(managed, []string{"example.com/a", "example.com/b", "example.com/c"})); diff != "" {
		t.Error(diff)
	}
}

// The API server has names of its own for clients that it does not know any more, and of
// several clients an order that is not that of time.
func TestSettersThatAreNotKnown(t *testing.T) {
	const apply, update = metav1.ManagedFieldsOperationApply, metav1.ManagedFieldsOperationUpdate
	entry := func(manager string, how metav1.ManagedFieldsOperationType) metav1.ManagedFieldsEntry {
		e := metav1.ManagedFieldsEntry{Manager: manager, Operation: how, FieldsV1: new(metav1.FieldsV1)}
		e.FieldsV1.SetRawBytes([]byte(`{"f:metadata":{"f:finalizers":{"v:\"example.com/a\"":{}}}}`))
		return e
	}
	for name, tc := range map[string]struct {
		managed []metav1.ManagedFieldsEntry
		want    string
	}{
		"one":                         {[]metav1.ManagedFieldsEntry{entry("one", update)}, "one"},
		"two that apply":              {[]metav1.ManagedFieldsEntry{entry("one", apply), entry("two", apply)}, "one"},
		"applied, and updated before": {[]metav1.ManagedFieldsEntry{entry("late", apply), entry("early", update)}, ""},
		"more than ten clients":       {[]metav1.ManagedFieldsEntry{entry("ancient-changes", update)}, ""},
		"before it was known":         {[]metav1.ManagedFieldsEntry{entry("before-first-apply", update), entry("one", update)}, ""},
	} {
		got := ""
		for _, s := range Setters(tc.managed, []string{"example.com/a"}) {
			got = s.Manager
		}
		if got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
