package proc

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kerneltest"
)

func TestAskServer(t *testing.T) {
	root := t.TempDir()
	volume := func(plugin string) string { return "/var/lib/kubelet/pods/" + uid1 + "/volumes/" + plugin + "/vol" }
	stats := strings.ReplaceAll(string(kerneltest.File(t, "mountstats_outage")), "/mnt/n1", volume("kubernetes.io~nfs"))
	options := " rw,relatime shared:7 - nfs4 10.0.2.15:/export rw,vers=4.2,proto=tcp,addr="
	kerneltest.Tree(t, root, map[string]string{
		"cgroup/cgroup.controllers": "",
		"proc/1/mountinfo": "40 27 0:50 / " + volume("kubernetes.io~nfs") + options + "10.0.2.15\n" +
			"41 27 0:51 / " + volume("kubernetes.io~csi") + options + "10.0.2.16\n" +
			"42 27 0:52 / " + volume("kubernetes.io~glusterfs") + options + "10.0.2.17\n" +
			"43 27 0:53 / " + volume("kubernetes.io~empty-dir") + " rw - tmpfs t rw\n",
		"proc/1/mountstats": stats,
		"proc/1/net/tcp":    string(kerneltest.File(t, "net_tcp_outage")),
	})
	h := &Host{Proc: filepath.Join(root, "proc"), Cgroup: filepath.Join(root, "cgroup"), KubeletDir: "/var/lib/kubelet"}
	type answer struct {
		Unanswered int
		Connection string
	}
	read := func(overdue time.Duration) []answer {
		now := time.Now()
		p := &evidence.Pod{Time: now, Deadline: now.Add(-overdue), RuntimeUID: uid1}
		h.Round().ReadPod(t.Context(), p)
		var out []answer
		for _, m := range p.Mounts {
			a := answer{-1, m.Connection}
			if m.Unanswered != nil {
				a.Unanswered = *m.Unanswered
			}
			out = append(out, a)
		}
		return out
	}
	unknown := answer{-1, ""}
	// A driver may have mounted from a network of its own, where the connection is.
	want := []answer{{4, "SYN_SENT"}, unknown, {-1, "none"}, unknown}
	if d := cmp.Diff(want, read(time.Minute)); d != "" {
		t.Error(d)
	}
	want = []answer{unknown, unknown, unknown, unknown}
	if d := cmp.Diff(want, read(-time.Minute)); d != "" {
		t.Errorf("inside the grace period: %s", d)
	}
	for _, name := range []string{"mountstats", "net/tcp"} {
		if err := os.Remove(filepath.Join(root, "proc/1", name)); err != nil {
			t.Fatal(err)
		}
	}
	if d := cmp.Diff(want, read(time.Minute)); d != "" {
		t.Errorf("without the files: %s", d)
	}
}
