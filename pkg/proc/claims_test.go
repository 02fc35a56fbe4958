package proc

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc/probe"
)

func TestClaimsOfAPod(t *testing.T) {
	c := Claims{
		all: []probe.ClaimState{
			{Name: "nic", Pods: []string{"a", "b"}, Drivers: []string{"nic.test"}},
			{Name: "gpu", Pods: []string{"a"}, Drivers: []string{"gpu.test", "nic.test"}},
			{Name: "other", Pods: []string{"c"}, Drivers: []string{"gpu.test"}},
		},
		sockets: []string{"gpu.test-0b4ddc3e-reg.sock"},
	}
	want := []evidence.Claim{
		{Name: "gpu", Drivers: []evidence.ClaimDriver{{Name: "gpu.test"}, {Name: "nic.test", Unregistered: true}}},
		{Name: "nic", Shared: true, Drivers: []evidence.ClaimDriver{{Name: "nic.test", Unregistered: true}}},
	}
	if diff := cmp.Diff(want, c.Of("a")); diff != "" {
		t.Error(diff)
	}
	if got := c.Of("d"); got != nil {
		t.Errorf("a pod without claims has %+v", got)
	}
	if diff := cmp.Diff([]string{"a", "b", "c"}, c.Pods()); diff != "" {
		t.Error(diff)
	}
}
