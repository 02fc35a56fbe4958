package proc

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// While the kubelet's directory is not known, and where the host's mounts do not have those of the agent's own pod, no list of mounts or
// volumes looks as if there were none.
func TestUnlocated(t *testing.T) {
	const own, other = "0b4ddc3e-1111-4222-8333-444455556666", "8f1c3b52-0c7e-4f0e-9d55-2f6f0f9b6a01"
	now := time.Now()
	for name, tc := range map[string]struct {
		dir, pod, mounted string
		want              string // "" for nothing missing
	}{
		"known":                 {"/var/lib/kubelet", own, own, ""},
		"outside of a pod":      {"/var/lib/kubelet", "", other, ""},
		"not known":             {"", own, own, "has not been looked for yet"},
		"its mounts are others": {"/var/lib/kubelet", own, other, "none of nodeagent's own pod below /var/lib/kubelet"},
	} {
		proc := t.TempDir()
		if err := os.Mkdir(filepath.Join(proc, "1"), 0o755); err != nil {
			t.Fatal(err)
		}
		table := "30 1 8:1 / / rw - ext4 /dev/sda rw\n" +
			"31 30 0:40 / /var/lib/kubelet/pods/" + tc.mounted + "/volumes/kubernetes.io~projected/token rw - tmpfs tmpfs rw\n"
		if err := os.WriteFile(filepath.Join(proc, "1", "mountinfo"), []byte(table), 0o600); err != nil {
			t.Fatal(err)
		}
		h := newHost(t)
		h.Proc, h.KubeletDir, h.Places, h.PodUID = proc, tc.dir, []string{"/a", "/b"}, tc.pod
		p := &evidence.Pod{RuntimeUID: other, UID: other, Phase: "Failed", Time: now, Deadline: now.Add(-time.Minute)}
		h.Round().ReadPod(t.Context(), p)
		why := p.Missing[evidence.Mounts]
		if (why == "") != (tc.want == "") || !strings.Contains(why, tc.want) || p.Missing[evidence.Volumes] != why {
			t.Errorf("%s: %q", name, why)
		}
		if (h.Blind() != nil) != (tc.dir == "") {
			t.Errorf("%s: blind: %v", name, h.Blind())
		}
	}
}

// A host on which none of the places is there, and one on which it is found later.
func TestLocate(t *testing.T) {
	h := newHost(t)
	root := t.TempDir()
	h.Proc, h.KubeletDir, h.Places = t.TempDir(), "", []string{"/kubelet"}
	if err := errors.Join(os.Mkdir(filepath.Join(h.Proc, "1"), 0o755), os.Symlink(root, filepath.Join(h.Proc, "1", "root"))); err != nil {
		t.Fatal(err)
	}
	if got, err := h.Locate(t.Context()); got != "" || err == nil ||
		!strings.HasPrefix(err.Error(), evidence.NotFound) || h.Blind() == nil || h.Blind().Error() != err.Error() {
		t.Errorf("%q, %v, %v", got, err, h.Blind())
	}
	if err := os.MkdirAll(filepath.Join(root, "kubelet", "pods"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got, err := h.Locate(t.Context()); got != "/kubelet" || err != nil || h.Blind() != nil || h.Round().kubelet != got {
		t.Errorf("%q, %v, %v", got, err, h.Blind())
	}
}
