package diagnose_test

import (
	"slices"
	"testing"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// A cause explains a symptom where it happens, not in another container.
func TestExplainsWithinAContainer(t *testing.T) {
	for name, tc := range map[string]struct {
		cause, symptom string // the containers, "" for the pod
		want           bool
	}{
		"the same container":      {"main", "main", true},
		"another container":       {"main", "other", false},
		"the pod, by a container": {"main", "", true},
		"a container, by the pod": {"", "main", false},
		"the pod, by the pod":     {"", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			in := func(container string) func(*fact.View) diagnose.Result {
				return func(*fact.View) diagnose.Result { return diagnose.Found(diagnose.Finding{Container: container}) }
			}
			symptom := &diagnose.Rule{Cause: "Symptom", Check: in(tc.symptom)}
			cause := &diagnose.Rule{Cause: "Cause", Check: in(tc.cause)}
			p := &evidence.Pod{Time: requested, Deadline: requested.Add(-1)}
			for _, f := range diagnose.Run(p, diagnose.Table{{Rule: symptom}, {Rule: cause, Explains: []*diagnose.Rule{symptom}}}).Findings {
				if want := tc.want && f.Cause == "Symptom"; f.Symptom != want {
					t.Errorf("%s in %q is a symptom: %v, want %v", f.Cause, f.Container, f.Symptom, want)
				}
			}
		})
	}
}

// A hang in one container says nothing about a first process of another one that
// waits for a zombie which its parent outside does not reap.
func TestUnrelatedSymptomIsFound(t *testing.T) {
	p := killed(func(p *evidence.Pod, _ *evidence.Task) {
		other := p.Containers[0]
		other.Name, other.ID, other.Task.PID = "other", "d", 200
		p.Containers = append(p.Containers, other)
		init := task(200, 50, "app", evidence.Sleeping, "")
		init.NSpid = []int{200, 1}
		ends(&init)
		z := member(p, 70)
		z.PID, z.TID, z.NSpid = 201, 201, []int{201, 2}
		init.Container, z.Container = "d", "d"
		init.UnchangedSince = p.Deadline
		p.Tasks = append(p.Tasks, init, z)
		outside(p, 70, "nsenter", evidence.Sleeping)
	})
	symptoms := map[string]bool{}
	for _, f := range cause.Diagnose(p).Findings {
		symptoms[f.Cause+" in "+f.Container] = f.Symptom
	}
	for _, want := range []string{"UninterruptibleSleep in main", "PIDNamespaceReapWait in other"} {
		if symptom, found := symptoms[want]; !found || symptom {
			t.Errorf("%s: found %v, symptom %v", want, found, symptom)
		}
	}
}

// Of causes that explain each other in a circle none would be told.
func TestExplanationsEnd(t *testing.T) {
	explains := map[*diagnose.Rule][]*diagnose.Rule{}
	for _, row := range cause.Table() {
		explains[row.Rule] = slices.Concat(row.Explains, row.Holds)
	}
	var follow func(r *diagnose.Rule, path []string)
	follow = func(r *diagnose.Rule, path []string) {
		if slices.Contains(path, r.Cause) {
			t.Fatalf("a cycle: %v, %s", path, r.Cause)
		}
		if _, ok := explains[r]; !ok {
			t.Errorf("%v explain %s, which is not in the table", path, r.Cause)
		}
		for _, symptom := range explains[r] {
			follow(symptom, append(path, r.Cause))
		}
	}
	for r := range explains {
		follow(r, nil)
	}
}
