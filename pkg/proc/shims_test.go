package proc

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// Of pods without a process, the shim is looked for among all of the node. Each shim is asked once in a round, however many such pods there are.
func TestShimsAreAskedOnce(t *testing.T) {
	requireRoot(t)
	const shims = 5
	for i := range shims {
		start(t, 0, "shim", "-id", strings.Repeat("5a", i+1))
	}
	h := newHost(t)
	ask := func(pods int) int64 {
		before := h.Prober.Questions()
		r := h.Round()
		for range pods {
			p := &evidence.Pod{
				Time: time.Now(), Deadline: time.Now().Add(time.Minute), RuntimeUID: "00000000-0000-4000-8000-000000000000",
				Containers: []evidence.Container{{Kind: evidence.Sandbox, ID: "none of these"}},
			}
			if r.ReadPod(context.Background(), p); p.NoShimSince.IsZero() {
				t.Errorf("no shim has this sandbox; missing %v", p.Missing)
			}
		}
		return h.Prober.Questions() - before
	}
	one, many := ask(1), ask(20)
	if one < shims || many >= 2*one { // the machine may have others, which come and go
		t.Errorf("%d questions for one pod, %d for 20, of %d shims", one, many, shims)
	}
}

// Who has no time to ask all shims leaves the rest to the next pod.
func TestShimsAreAskedOn(t *testing.T) {
	requireRoot(t)
	v := start(t, 0, "shim", "-id", "5a4d")
	r := newHost(t).Round()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if s, err := r.Shim(ctx, "5a4d"); s != nil || err == nil {
		t.Errorf("without time: shim %v, %v", s, err)
	}
	if s, err := r.Shim(t.Context(), "5a4d"); err != nil || s == nil || s.PID != v.pid() {
		t.Errorf("shim %v, %v", s, err)
	}
}
