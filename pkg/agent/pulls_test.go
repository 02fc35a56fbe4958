package agent

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// What the kubelet tells of a container after its pull is the end of that, and so is that it stops one.
func TestPulls(t *testing.T) {
	at := func(s int) time.Time { return time.Date(2026, 1, 1, 0, 0, s, 0, time.UTC) }
	said := func(reason, path, note string, s int) eventsv1.Event {
		e := failed("n", note, 1, at(s), at(s))
		e.Reason, e.Regarding = reason, corev1.ObjectReference{FieldPath: path}
		return e
	}
	const web, first = "spec.containers{web}", "spec.initContainers{first}"
	begun := said("Pulling", web, `Pulling image "example.com/web:1"`, 10)
	foreign := begun
	foreign.DeprecatedSource.Host = "another"
	pull := []evidence.Pull{{Container: "web", Image: "example.com/web:1", Since: at(10)}}
	for name, test := range map[string]struct {
		events []eventsv1.Event
		want   []evidence.Pull
	}{
		"one is under way":                   {[]eventsv1.Event{begun}, pull},
		"it has ended":                       {[]eventsv1.Event{said("Pulled", web, "", 12), begun}, nil},
		"it has failed":                      {[]eventsv1.Event{begun, said("Failed", web, "", 40)}, nil},
		"it has failed in this second":       {[]eventsv1.Event{begun, said("Failed", web, "", 10)}, nil},
		"an earlier one has failed":          {[]eventsv1.Event{begun, said("Failed", web, "", 9)}, pull},
		"the pod is stopped":                 {[]eventsv1.Event{begun, said("Killing", first, "", 20)}, nil},
		"another container was started":      {[]eventsv1.Event{begun, said("Started", first, "", 20)}, pull},
		"of another node's kubelet":          {[]eventsv1.Event{foreign}, nil},
		"another one begins":                 {[]eventsv1.Event{begun, said("Pulling", first, "", 5)}, []evidence.Pull{{Container: "first", Since: at(5)}, pull[0]}},
		"of something else than a container": {[]eventsv1.Event{said("Pulling", "spec.containers{a b}", "", 5)}, nil},
		"of a volume":                        {[]eventsv1.Event{said("Scheduled", "", "", 1), said("Pulling", "", `Pulling image "data:1"`, 5)}, []evidence.Pull{{Image: "data:1", Since: at(5)}}},
		"of a volume, and it has ended":      {[]eventsv1.Event{said("Pulling", "", "", 5), said("Pulled", "", "", 8)}, nil},
		"of a volume, and the end was lost":  {[]eventsv1.Event{said("Pulling", "", "", 5), begun}, pull},
	} {
		if diff := cmp.Diff(test.want, pulls(nil, test.events, "n")); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// An Event is kept for an hour, and a pull may hang for longer.
func TestPullsOutliveEvents(t *testing.T) {
	at := func(s int) time.Time { return time.Date(2026, 1, 1, 0, 0, s, 0, time.UTC) }
	before := []evidence.Pull{{Container: "web", Image: "example.com/web:1", Since: at(10)}}
	if diff := cmp.Diff(before, pulls(before, nil, "n")); diff != "" {
		t.Error(diff)
	}
	ended := failed("n", "", 1, at(20), at(20))
	ended.Reason, ended.Regarding = "Failed", corev1.ObjectReference{FieldPath: "spec.containers{web}"}
	if got := pulls(before, []eventsv1.Event{ended}, "n"); len(got) > 0 {
		t.Errorf("%+v, though it has ended", got)
	}
}

// Whoever may create Events can tell of one container after the other, which the pod does not have.
func TestPullsOfPod(t *testing.T) {
	said := failed("n", "", 1, time.Now(), time.Now())
	said.Reason, said.Regarding.FieldPath = "Pulling", "spec.containers{web}"
	forged := said
	forged.Regarding.FieldPath = "spec.containers{x1}"
	f := &Failures{Node: "n", AskAll: func(context.Context, string, types.UID) ([]eventsv1.Event, error) {
		return []eventsv1.Event{forged, said}, nil
	}}
	p := &corev1.Pod{
		Spec:   corev1.PodSpec{Containers: []corev1.Container{{Name: "web"}}},
		Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}}}},
	}
	p.DeletionTimestamp = &metav1.Time{Time: time.Now().Add(-time.Hour)}
	if got, err := f.Pulls(t.Context(), p); err != nil || len(got) != 1 || got[0].Container != "web" {
		t.Errorf("%+v, %v", got, err)
	}
}
