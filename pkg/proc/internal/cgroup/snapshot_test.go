package cgroup

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kerneltest"
)

// Where pods are is listed once for all of them. A pod that is not there may have come since, and the directories above the pods may have.
func TestSnapshot(t *testing.T) {
	const uid2, uid3 = "0b4ddc3e-2222-4222-8333-444455556666", "0b4ddc3e-3333-4222-8333-444455556666"
	root := t.TempDir()
	write := func(files ...string) {
		t.Helper()
		all := map[string]string{}
		for _, f := range files {
			all[f] = "7\n"
		}
		kerneltest.Tree(t, root, all)
	}
	now := time.Now()
	tree, clock := &Tree{Root: root}, func() time.Time { return now }
	has := func(what string, s *Snapshot, uid string, want int) {
		t.Helper()
		if groups, err := s.Pod(uid, true); err != nil || len(groups) != want {
			t.Errorf("%s: %d groups, %v, want %d", what, len(groups), err, want)
		}
	}
	write("cgroup.controllers")
	has("no kubelet has run yet", tree.Snapshot(clock), uid1, 0)
	write("kubepods/burstable/pod" + uid1 + "/cgroup.threads")
	first := tree.Snapshot(clock)
	has("one has", first, uid1, 1)
	write("kubepods/besteffort/pod"+uid2+"/cgroup.threads", "kind.slice/kubepods.slice/pod"+uid3+"/cgroup.threads")
	has("it came after the listing", first, uid2, 0)
	now = now.Add(listAgain)
	has("it is listed again", first, uid2, 1)
	has("the directory above is another one", tree.Snapshot(clock), uid3, 0)
	if err := os.RemoveAll(filepath.Join(root, "kubepods/burstable")); err != nil {
		t.Fatal(err)
	}
	has("it is gone", first, uid1, 0)
	now = now.Add(searchAgain)
	has("the directory above is looked for again", first, uid3, 1)
}
