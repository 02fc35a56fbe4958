package artefact

import (
	"strings"
	"testing"

	"github.com/nodeagent-io/nodeagent/test/cluster/internal/state"
)

// A containerd calls itself what its module file compiles, and what a node asked for.
func TestContainerds(t *testing.T) {
	keys := map[string]string{}
	for _, v := range state.Containerds {
		c, b := containerds[v], containerdBinaries(v)
		if !strings.HasPrefix(c.version, "v"+v+".") {
			t.Errorf("containerd %s is version %q", v, c.version)
		}
		if required := c.module + " " + c.version + " "; !strings.Contains(b.files["go.mod"], required) {
			t.Errorf("the module file of containerd %s does not require %s", v, required)
		}
		if b.files["go.sum"] == "" {
			t.Errorf("containerd %s has no sums", v)
		}
		for _, p := range b.programs {
			if !strings.Contains(b.files["go.mod"], p.pkg+"\n") {
				t.Errorf("the module file of containerd %s has no tool %s", v, p.pkg)
			}
		}
		key := string(b.key("go1"))
		if other := keys[key]; other != "" {
			t.Errorf("containerd %s and %s are the same cache entry", v, other)
		}
		keys[key] = v
	}
	if len(containerds) != len(state.Containerds) {
		t.Errorf("%d versions of containerd can be made, and %d asked for", len(containerds), len(state.Containerds))
	}
}
