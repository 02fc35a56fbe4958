package cgroup

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kerneltest"
)

// Where pods are is listed once for all of them, and the directories above them are looked for again after a minute.
func TestSnapshot(t *testing.T) {
	const uid2 = "0b4ddc3e-2222-4222-8333-444455556666"
	root := t.TempDir()
	kerneltest.Tree(t, root, map[string]string{
		"cgroup.controllers": "pids",
		"kubepods/burstable/pod" + uid1 + "/cgroup.threads": "7\n",
	})
	tree, now := &Tree{Root: root}, time.Now()
	has := func(s *Snapshot, uid string, want int) {
		t.Helper()
		if groups, err := s.Pod(uid, true); err != nil || len(groups) != want {
			t.Errorf("pod %s: %d groups, %v, want %d", uid, len(groups), err, want)
		}
	}
	first := tree.Snapshot(now)
	has(first, uid1, 1)
	kerneltest.Tree(t, root, map[string]string{
		"kubepods/besteffort/pod" + uid2 + "/cgroup.threads":       "8\n",
		"kind.slice/kubepods.slice/pod" + uid2 + "/cgroup.threads": "9\n",
	})
	has(first, uid2, 0) // it came later
	has(tree.Snapshot(now), uid2, 1)
	if err := os.RemoveAll(filepath.Join(root, "kubepods")); err != nil {
		t.Fatal(err)
	}
	has(first, uid1, 0) // it is gone
	has(tree.Snapshot(now.Add(searchAgain-time.Second)), uid2, 0)
	has(tree.Snapshot(now.Add(searchAgain)), uid2, 1)
}
