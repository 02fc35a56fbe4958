// Package finalizer tells who has put finalizers on an object, by its managedFields: a name that any client may give itself.
package finalizer

import (
	"encoding/json"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// The names under which the API server keeps what it does not know the client of any
// more (capmanagers.go and skipnonapplied.go of apimachinery, pkg/util/managedfields/internal).
var noManagers = []string{"ancient-changes", "before-first-apply"}

// Setters returns which manager owns each of the finalizers: the one that was
// there first, where several do. What no manager owns is left out, and what one has applied
// and another one has updated: the former stand first, whenever that was.
func Setters(managed []metav1.ManagedFieldsEntry, finalizers []string) []evidence.FinalizerSetter {
	var out []evidence.FinalizerSetter
	how := make(map[string]metav1.ManagedFieldsOperationType)
	unsure := make(map[string]bool)
	for i := range managed {
		m := &managed[i]
		if m.FieldsV1 == nil {
			continue
		}
		var fields struct {
			Metadata struct {
				Finalizers map[string]json.RawMessage `json:"f:finalizers"`
			} `json:"f:metadata"`
		}
		if json.Unmarshal(m.FieldsV1.GetRawBytes(), &fields) != nil {
			continue
		}
		for key := range fields.Metadata.Finalizers {
			var name string
			value, isValue := strings.CutPrefix(key, "v:") // a set's member (structured-merge-diff)
			if !isValue || json.Unmarshal([]byte(value), &name) != nil || !slices.Contains(finalizers, name) {
				continue
			}
			first, known := how[name]
			unsure[name] = unsure[name] || known && first != m.Operation || slices.Contains(noManagers, m.Manager)
			if known {
				continue
			}
			how[name] = m.Operation
			f := evidence.FinalizerSetter{Finalizer: name, Manager: strings.Clone(m.Manager)}
			if m.Time != nil {
				f.Changed = m.Time.UTC()
			}
			out = append(out, f)
		}
	}
	out = slices.DeleteFunc(out, func(s evidence.FinalizerSetter) bool { return unsure[s.Finalizer] })
	slices.SortFunc(out, func(a, b evidence.FinalizerSetter) int { return strings.Compare(a.Finalizer, b.Finalizer) })
	return out
}
