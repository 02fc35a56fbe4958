package proc

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kerneltest"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kernfile"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/mount"
	"github.com/nodeagent-io/nodeagent/pkg/proc/probe"
)

func TestHolds(t *testing.T) {
	const dir = "/var/lib/kubelet/pods/u/volumes/p/v"
	line := func(id int, point string) mount.Line { return mount.Line{ID: id, Point: point} }
	host := &mount.Table{Lines: []mount.Line{line(1, "/"), line(7, dir), line(8, dir+"/inner"), line(9, dir+"2")}}
	p := &evidence.Pod{Mounts: []evidence.Mount{{ID: 7, Point: dir}, {ID: 8, Point: dir + "/inner"}}}
	for _, tc := range []struct {
		name string
		saw  probe.Seen
		id   int
		via  string
	}{
		{"a file", probe.Seen{InHost: true, Mounts: []int{3, 8}}, 8, "an open file"},
		{"a file of another namespace", probe.Seen{Mounts: []int{7}}, 0, ""},
		{"a directory", probe.Seen{InHost: true, Dirs: map[string]string{"cwd": dir + "/a", "root": "/"}}, 7, "its working directory"},
		{"a directory inside", probe.Seen{InHost: true, Dirs: map[string]string{"root": dir + "/inner/a"}}, 8, "its root directory"},
		{"a program that was removed", probe.Seen{InHost: true, Dirs: map[string]string{"exe": dir + "/a (deleted)"}}, 7, "its program"},
		{"a volume of a like name", probe.Seen{InHost: true, Dirs: map[string]string{"cwd": dir + "2/a"}}, 0, ""},
		{"nothing", probe.Seen{InHost: true, Mounts: []int{1}, Dirs: map[string]string{"cwd": "/", "exe": "/bin/x"}}, 0, ""},
	} {
		if id, via := holds(mountIDs(p.Mounts), uses(host.Place, &tc.saw)); id != tc.id || via != tc.via {
			t.Errorf("%s: mount %d by %q, want %d by %q", tc.name, id, via, tc.id, tc.via)
		}
	}
	host.Lines = append(host.Lines, line(10, dir))
	if id, via := holds(mountIDs(p.Mounts), uses(host.Place, &probe.Seen{InHost: true, Dirs: map[string]string{"cwd": dir}})); via != "" {
		t.Errorf("with two mounts at one place: mount %d by %q", id, via)
	}
}

// What is called as a loop device counts on the host's /dev only.
func TestOpenLoops(t *testing.T) {
	line := func(id int, point string) mount.Line { return mount.Line{ID: id, Point: point} }
	host := &mount.Table{Lines: []mount.Line{line(1, "/"), line(5, "/dev"), line(6, "/dev/loop6")}}
	open := func(path string, mount int) probe.OpenLoop { return probe.OpenLoop{Path: path, MountID: mount} }
	saw := probe.Seen{InHost: true, Loops: []probe.OpenLoop{open("/dev/loop3", 5), open("/dev/loop4", 1), open("/dev/loop6", 6)}}
	if got := openLoops(host, &saw); !slices.Equal(got, []string{"loop3"}) {
		t.Errorf("%v", got)
	}
	saw.InHost = false
	if got := openLoops(host, &saw); got != nil {
		t.Errorf("in another namespace: %v", got)
	}
}

// A partition keeps its loop device busy.
func TestOpenOfALoop(t *testing.T) {
	for open, want := range map[string]string{"loop4": "loop4", "loop4p1": "loop4p1", "loop41": "", "loop41p1": "", "loop3": ""} {
		if got := openOf(&evidence.Loop{Name: "loop4"}, []string{"loop7", open}); got != want {
			t.Errorf("%s: %q, want %q", open, got, want)
		}
	}
}

// Without its control group a pod that is said to run may be done, or its node was started
// anew: its volumes tell.
func TestLooksDone(t *testing.T) {
	for name, tc := range map[string]struct {
		p    evidence.Pod
		want bool
	}{
		"ended":               {evidence.Pod{Phase: "Failed", Cgroups: []evidence.Cgroup{{}}}, true},
		"deleted":             {evidence.Pod{Gone: true}, true},
		"said to run":         {evidence.Pod{Containers: []evidence.Container{{}, {Running: true}}}, true},
		"and runs":            {evidence.Pod{Containers: []evidence.Container{{Running: true, State: evidence.StateRunning}}}, false},
		"with a group":        {evidence.Pod{Containers: []evidence.Container{{Running: true}}, Cgroups: []evidence.Cgroup{{}}}, false},
		"it may not have run": {evidence.Pod{Containers: []evidence.Container{{Waiting: true}}}, false},
	} {
		if looksDone(&tc.p) != tc.want {
			t.Errorf("%s: %t", name, !tc.want)
		}
	}
}

// What the processes of the node use is read once in a round: who has no time left
// leaves the rest to the next one.
func TestUsersAreReadOnce(t *testing.T) {
	h := newHost(t)
	files, err := kernfile.Open(h.Proc)
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	r := h.Round()
	host, err := r.mounts.Host()
	if err != nil {
		t.Fatal(err)
	}
	late, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.users(late, files, "", host); err == nil {
		t.Error("all were read in no time")
	}
	first, hidden := r.users(t.Context(), files, "", host) // some machines hide what the first process uses
	pids, err := r.pids()
	if err != nil || r.search.next != len(pids) {
		t.Fatalf("%d of %d processes read, %v", r.search.next, len(pids), err)
	}
	if _, err := os.Readlink("/proc/1/ns/mnt"); err == nil && len(first) == 0 {
		t.Errorf("no process is in the host's namespace, not even this one: %v", hidden)
	}
	spent := h.Prober.Spent()
	again, err := r.users(t.Context(), files, "", host)
	if len(again) != len(first) || (err == nil) != (hidden == nil) || h.Prober.Spent() != spent {
		t.Errorf("%d processes with %v, and %d with %v when asked again, for which a helper worked", len(first), hidden, len(again), err)
	}
}

func TestKubeletsByOtherNames(t *testing.T) {
	for comm, want := range map[string]string{"kubelet": "kubelet", "kubelite": "kubelet", "k3s-server": "kubelet", "k3s-agent": "kubelet",
		"k3s": "", "kubelet2": ""} {
		if got, _ := owner(&evidence.Task{Comm: comm}); got != want {
			t.Errorf("%s is of %q, want %q", comm, got, want)
		}
	}
}

func TestWhoUnmountsIsProbedFirst(t *testing.T) {
	order := func(comm, owner string) int {
		s := kernfile.TaskStatus{Task: evidence.Task{Comm: comm, Owner: owner}}
		return probeOrder(&s)
	}
	if u, other, k := order("umount.nfs4", "kubelet"), order("kworker", "kernel"), order("kubelet", "kubelet"); u >= other || other >= k {
		t.Errorf("umount %d, another %d, the kubelet %d", u, other, k)
	}
}

// A process may have no open file at all. One that exits has none either, and may yet be at
// work on closing them.
func TestNoOpenFiles(t *testing.T) {
	requireRoot(t)
	pid := start(t, 0, "no-files").pid()
	kerneltest.Eventually(t, "no open files", func() bool {
		open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		return err == nil && len(open) == 0 && stateOf(t, pid).Comm == "sleep"
	})
	settled(t, pid, evidence.Sleeping) // and has its libraries
	h := newHost(t)
	s := stateOf(t, pid)
	for _, what := range []probe.What{probe.Pipes, probe.Ends} {
		if saw, err := h.Round().askFiles(t.Context(), what, &s); err != nil || len(saw.Mounts)+len(saw.Pipes) > 0 {
			t.Errorf("%s: %+v, %v", what, saw, err)
		}
	}
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "7/task/7/fd"), 0o755); err != nil {
		t.Fatal(err)
	}
	h.Proc, s.PID, s.TID = root, 7, 7
	if saw, err := h.Round().askFiles(t.Context(), probe.Ends, &s); err == nil {
		t.Errorf("without a program: %+v", saw)
	}
}

// What the kubelet deletes is told of the volume, and of the pod, of which it is.
func TestEmptyDirs(t *testing.T) {
	root := t.TempDir()
	const dir = "/kubelet/pods/u/volumes/kubernetes.io~empty-dir/"
	kerneltest.Tree(t, root, map[string]string{dir + "scratch/a/file": "", dir + "spool/file": "", "/7/task/7/exe": ""})
	if err := os.Mkdir(root+"/7/task/7/fd", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(root+dir+"scratch/a", root+"/7/task/7/fd/3"); err != nil {
		t.Fatal(err)
	}
	h := newHost(t)
	h.Proc, h.KubeletDir = root, root+"/kubelet"
	for name, tc := range map[string]struct {
		uid    string
		change func(p *evidence.Pod)
		want   []bool
	}{
		"one of two":               {"u", func(*evidence.Pod) {}, []bool{true, false}},
		"another pod":              {"v", func(*evidence.Pod) {}, []bool{false, false}},
		"another kind":             {"u", func(p *evidence.Pod) { p.Volumes[0].Plugin = "kubernetes.io~nfs" }, []bool{false, false}},
		"the kubelet has ended":    {"u", func(p *evidence.Pod) { p.Node.Kubelet.Process.PID = 8 }, []bool{false, false}},
		"the kubelet is not known": {"u", func(p *evidence.Pod) { p.Node.Kubelet.Process = nil }, []bool{false, false}},
	} {
		p := &evidence.Pod{Volumes: []evidence.Volume{{Name: "scratch", Plugin: emptyDir}, {Name: "spool", Plugin: emptyDir}}}
		p.Node.Kubelet.Process = &evidence.Task{PID: 7, TID: 7, State: evidence.Sleeping}
		tc.change(p)
		h.Round().readEmptyDirs(t.Context(), p, tc.uid)
		for i, want := range tc.want {
			if got := p.Volumes[i].LastDeleted; got.IsZero() == want {
				t.Errorf("%s: volume %s: %v", name, p.Volumes[i].Name, got)
			}
		}
	}
}
