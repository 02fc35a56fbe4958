package diagnose_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
)

// How those are who end a pod, in what was seen on a cluster.
func TestActors(t *testing.T) {
	csi := func(a fact.Actors) fact.Actor { return slices.Collect(maps.Values(a.CSI))[0] }
	want := map[string]struct {
		of    func(fact.Actors) fact.Actor
		state fact.State
	}{
		"kubelet_down":                 {func(a fact.Actors) fact.Actor { return a.Kubelet }, fact.Gone},
		"containerd_hung_stopped":      {func(a fact.Actors) fact.Actor { return a.Containerd }, fact.Stopped},
		"containerd_down":              {func(a fact.Actors) fact.Actor { return a.Containerd }, fact.Gone},
		"shim_dead":                    {func(a fact.Actors) fact.Actor { return a.Shim }, fact.Gone},
		"runtime_command_hanging_exec": {func(a fact.Actors) fact.Actor { return a.Runc }, fact.Silent},
		"cni_del_hanging":              {func(a fact.Actors) fact.Actor { return a.CNI }, fact.Silent},
		"healthy_cni_del_slow":         {func(a fact.Actors) fact.Actor { return a.CNI }, fact.Acts},
		"signal_dropped_by_pid1":       {func(a fact.Actors) fact.Actor { return a.CNI }, fact.Unseen},
		"csi_driver_not_registered":    {csi, fact.Gone},
		"csi_node_unpublish_hanging":   {csi, fact.Silent},
		"csi_node_unpublish_failing":   {csi, fact.Acts},
		"healthy_csi_driver_restarted": {csi, fact.Gone},
	}
	for _, f := range fixtures(t) {
		w, ok := want[f.name]
		if !ok {
			continue
		}
		delete(want, f.name)
		if got := w.of(fact.See(f.evidence).Actors); got.State != w.state {
			t.Errorf("%s: %+v, want %s", f.name, got, w.state)
		}
	}
	for name := range want {
		t.Errorf("no fixture is named %s", name)
	}
}
