package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc"
)

const uid = "0b4ddc3e-1111-4222-8333-444455556666"

// A runtime is a containerd that takes its time.
type runtime struct {
	healthTakes, podTakes time.Duration
	hangs                 chan struct{} // Health returns when it is closed
	panics                string        // Health panics with it
	asked                 int
}

func (r *runtime) Health(context.Context) evidence.ContainerdService {
	r.asked++
	if r.panics != "" {
		panic(r.panics)
	}
	time.Sleep(r.healthTakes)
	if r.hangs != nil {
		<-r.hangs
	}
	return evidence.ContainerdService{}
}

func (r *runtime) ReadPod(ctx context.Context, p *evidence.Pod) {
	select {
	case <-time.After(r.podTakes):
	case <-ctx.Done():
		p.Lack(evidence.Containers, "no time was left")
	}
}

func (r *runtime) Network(context.Context) string { return evidence.NetworkReady }

func (r *runtime) Downloads(context.Context) []evidence.Download { return nil }

func (r *runtime) Lists(context.Context) []evidence.List { return nil }

func (r *runtime) Requests() map[string]uint64 { return nil }

func (r *runtime) Blind() error { return nil }

func (r *runtime) Close() error { return nil }

// newReader returns the reader of a node with a kubelet, process 9, and a pod of
// one process, 7, both in state D.
func newReader(t *testing.T, r *runtime) *Reader {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	process := func(pid int, comm string) {
		status := fmt.Sprintf("Name:\t%s\nState:\tD (disk sleep)\nTgid:\t%d\nPid:\t%d\nPPid:\t1\nTracerPid:\t0\nNSpid:\t%d\nThreads:\t1\n", comm, pid, pid, pid)
		status += "VmSize:\t1 kB\nSigPnd:\t0\nShdPnd:\t0\nSigBlk:\t0\nSigIgn:\t0\nSigCgt:\t0\nvoluntary_ctxt_switches:\t3\nnonvoluntary_ctxt_switches:\t0\n"
		for _, at := range []string{"", fmt.Sprintf("task/%d/", pid)} {
			write(fmt.Sprintf("proc/%d/%sstatus", pid, at), status)
			write(fmt.Sprintf("proc/%d/%scomm", pid, at), comm+"\n")
		}
	}
	write("proc/1/mountinfo", "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n")
	process(7, "stuck")
	process(9, "kubelet")
	write("proc/9/cgroup", "3:pids:/system.slice/kubelet.service\n")
	write("cgroup/pids/tasks", "9\n")
	write("cgroup/pids/kubepods/tasks", "")
	write("cgroup/pids/kubepods/besteffort/tasks", "")
	write("cgroup/pids/kubepods/besteffort/pod"+uid+"/tasks", "")
	write("cgroup/pids/kubepods/besteffort/pod"+uid+"/"+strings.Repeat("c0ffee00", 8)+"/tasks", "7\n")
	write("cgroup/pids/kubepods/besteffort/pod"+uid+"/"+strings.Repeat("c0ffee00", 8)+"/cgroup.procs", "7\n8\n")
	return &Reader{Name: "n", Proc: &proc.Host{Proc: dir + "/proc", Cgroup: dir + "/cgroup", KubeletDir: "/var/lib/kubelet"}, Runtime: r}
}

func seed(start time.Time) *evidence.Pod {
	return &evidence.Pod{UID: uid, RuntimeUID: uid, DeletionRequested: start, Deadline: start}
}

// A source that is slow once makes no proof of immobility: what a task is said
// not to have changed for is no longer than the time between the two readings of
// it.
func TestSlowContainersAreNoProof(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &runtime{podTakes: 3 * time.Second}
		r := newReader(t, slow)
		start := time.Now()
		first := r.Round(t.Context(), Ask{}).Pod(t.Context(), seed(start), nil)
		slow.podTakes = 0
		second := r.Round(t.Context(), Ask{}).Pod(t.Context(), seed(start), first)
		if len(second.Tasks) != 1 || second.Missing[evidence.Processes] != "" {
			t.Fatalf("tasks %+v, missing %v", second.Tasks, second.Missing)
		}
		if got := second.Tasks[0].Unchanged(second.Time); got != 0 {
			t.Errorf("two readings at the same moment prove that the task has not changed for %s", got)
		}
		if !second.UnchangedSince.Equal(second.Time) {
			t.Errorf("the pod is said to be unchanged for %s", second.Time.Sub(second.UnchangedSince))
		}
		time.Sleep(4 * time.Second)
		slow.podTakes = 3 * time.Second
		third := r.Round(t.Context(), Ask{}).Pod(t.Context(), seed(start), second)
		if got := third.Tasks[0].Unchanged(third.Time); got != 4*time.Second {
			t.Errorf("unchanged for %s, want 4 s", got)
		}
		if want := start.Add(10 * time.Second); !third.ContainersRead.Equal(want) || !third.CgroupsRead.Equal(want) || !third.TasksRead.Equal(want) {
			t.Errorf("containers, cgroups and tasks were read at %s, %s, %s, want %s", third.ContainersRead, third.CgroupsRead, third.TasksRead, want)
		}
	})
}

// The same holds for the tasks of the node, which are read before the pods that
// share them, and for a pod whose turn comes late.
func TestSlowNodeIsNoProof(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &runtime{healthTakes: 4 * time.Second}
		r := newReader(t, slow)
		ask := Ask{Overdue: true}
		read := func() *evidence.Pod {
			round := r.Round(t.Context(), ask)
			time.Sleep(5 * time.Second) // its turn comes late
			p := round.Pod(t.Context(), seed(time.Now()), nil)
			n := round.Node()
			ask.Earlier = &n
			return p
		}
		unchanged := func(p *evidence.Pod, want time.Duration) {
			t.Helper()
			if len(p.Node.Blocked) != 2 || len(p.Node.Kubelet.Blocked) != 1 || p.Node.Kubelet.Process == nil {
				t.Fatalf("node %+v", p.Node)
			}
			for _, task := range []evidence.Task{p.Node.Blocked[0], p.Node.Kubelet.Blocked[0], *p.Node.Kubelet.Process} {
				if got := task.Unchanged(p.Time); got != want {
					t.Errorf("%s is proved not to have changed for %s, want %s", task.Comm, got, want)
				}
			}
		}
		unchanged(read(), 0) // at 0 s, until 4 s
		slow.healthTakes = 0
		unchanged(read(), 5*time.Second)  // at 9 s
		unchanged(read(), 10*time.Second) // at 14 s
	})
}

// On a node of very many threads the look at all of them is had rarely. What it saw
// then is kept, and proves no more than it did.
func TestManyThreadsAreReadRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReader(t, &runtime{})
		ask := Ask{Overdue: true}
		start := time.Now()
		read := func(after time.Duration) evidence.Node {
			time.Sleep(time.Until(start.Add(after)))
			n := r.Round(t.Context(), ask).Node()
			ask.Earlier = &n
			r.blockedTook = time.Second // on a node that takes so long for it
			if len(n.Blocked) != 2 {
				t.Fatalf("blocked after %s: %+v", after, n.Blocked)
			}
			return n
		}
		read(0)
		for _, after := range []time.Duration{2 * time.Second, 19 * time.Second} {
			n := read(after)
			if task := n.Blocked[0]; !n.BlockedRead.Equal(start) || task.Unchanged(start.Add(after)) != 0 {
				t.Errorf("after %s: blocked as read at %s, and said not to have changed for %s", after, n.BlockedRead.Sub(start), task.Unchanged(start.Add(after)))
			}
		}
		if n := read(20 * time.Second); !n.BlockedRead.IsZero() || n.Blocked[0].Unchanged(start.Add(20*time.Second)) != 20*time.Second {
			t.Errorf("after 20 s: read at %s, unchanged for %s", n.BlockedRead, n.Blocked[0].Unchanged(start.Add(20*time.Second)))
		}
	})
}

// The reading of the node that never returns holds up nobody: pods are read
// without it, and there is one of its kind.
func TestNodeThatNeverReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hung := &runtime{hangs: make(chan struct{})}
		r := newReader(t, hung)
		lost := 0
		r.Lost = func() { lost++ }
		start := time.Now()
		for i := range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
			round := r.Round(ctx, Ask{Overdue: true})
			cancel()
			if got := time.Since(start); got != 8*time.Second+returnsWithin {
				t.Fatalf("round %d begins to read pods after %s", i, got)
			}
			p := round.Pod(t.Context(), seed(start), nil)
			if len(p.Tasks) != 1 || p.Node.Containerd.Error == "" || p.Missing[evidence.Kubelet] == "" {
				t.Errorf("round %d: tasks %+v, containerd %+v, missing %v", i, p.Tasks, p.Node.Containerd, p.Missing)
			}
		}
		synctest.Wait()
		if hung.asked != 1 || lost != 1 || !r.Hanging() {
			t.Errorf("containerd was asked %d times and %d readings were lost, want one; hanging: %t", hung.asked, lost, r.Hanging())
		}
		close(hung.hangs)
		synctest.Wait()
		if r.Hanging() {
			t.Error("what has returned hangs")
		}
		hung.hangs = nil
		if n := r.Round(t.Context(), Ask{Overdue: true}).Node(); n.Containerd.Error != "" || n.Kubelet.Process == nil {
			t.Errorf("after it has returned: %+v", n)
		}
	})
}

// What containerd does not tell in half the time does not cost the pod the
// evidence of the kernel.
func TestContainersGetHalfTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReader(t, &runtime{podTakes: time.Hour})
		ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
		defer cancel()
		p := r.Round(ctx, Ask{}).Pod(ctx, seed(time.Now()), nil)
		if got := p.TasksRead.Sub(p.Time); got != 4*time.Second || len(p.Tasks) != 1 || p.Missing[evidence.Containers] == "" {
			t.Errorf("after %s: tasks %+v, missing %v", got, p.Tasks, p.Missing)
		}
	})
}

// While an earlier reading has not returned no file of the pod is opened; containerd is asked.
func TestUnreturned(t *testing.T) {
	r := newReader(t, &runtime{})
	p := seed(time.Now())
	p.HungSince = time.Now()
	got := r.Round(t.Context(), Ask{}).Pod(t.Context(), p, nil)
	if len(got.Tasks)+len(got.Cgroups) != 0 || !got.TasksRead.IsZero() {
		t.Errorf("read %+v, %+v", got.Tasks, got.Cgroups)
	}
	for _, s := range proc.Sources {
		if got.Missing[s] == "" {
			t.Errorf("%s is not missing", s)
		}
	}
	if got.Missing[evidence.Containers] != "" {
		t.Errorf("containers: %s", got.Missing[evidence.Containers])
	}
}

// What a reading finds is not in the seed, which is that of another reading when this one has been given up.
func TestSeedIsKept(t *testing.T) {
	r := newReader(t, &runtime{podTakes: time.Hour})
	p := seed(time.Now())
	p.Missing = map[evidence.Source]string{evidence.Shims: "why"}
	p.Specified = []evidence.SpecVolume{{Name: "data", Claim: "data"}}
	earlier := &evidence.Pod{UID: uid, Specified: []evidence.SpecVolume{{Name: "data", Claim: "data", Node: "pv"}}}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := r.Round(t.Context(), Ask{}).Pod(ctx, p, earlier); len(got.Missing) < 2 || got.Specified[0].Node != "pv" {
		t.Fatalf("missing %v, %+v", got.Missing, got.Specified)
	}
	if len(p.Missing) != 1 || p.Specified[0].Node != "" {
		t.Errorf("the seed has %v, %+v", p.Missing, p.Specified)
	}
}

func TestOwnersAreNamed(t *testing.T) {
	r := &round{names: map[string]string{uid: "ns/web"}}
	tasks := []evidence.Task{{Owner: uid}, {Owner: "kubelet"}, {Owner: ""}, {Owner: "another-pod"}}
	r.nameOwners(tasks)
	var got []string
	for _, k := range tasks {
		got = append(got, k.OwnerName)
	}
	if diff := cmp.Diff([]string{"ns/web", "", "", ""}, got); diff != "" {
		t.Error(diff)
	}
}

// A pod that runs is read without a question to containerd; a process of it that has
// ended meanwhile, and a pod that has, are passed over.
func TestBaseline(t *testing.T) {
	containerd := &runtime{}
	r := newReader(t, containerd)
	if other := r.Baseline(t.Context(), strings.Replace(uid, "0b4", "0b5", 1)); other != nil {
		t.Errorf("baseline of a pod that is not there: %+v", other)
	}
	got := r.Baseline(t.Context(), uid)
	if got == nil || len(got.Tasks) != 1 {
		t.Fatalf("baseline %+v", got)
	}
	if one := got.Tasks[0]; one.Comm != "stuck" || one.Container != strings.Repeat("c0ffee00", 8) || got.Read.IsZero() {
		t.Errorf("process %+v, read at %s", one, got.Read)
	}
	if containerd.asked != 0 {
		t.Error("containerd was asked")
	}
}

// A kubelet tells its counts, or why not.
type kubelet struct {
	calls []evidence.VolumeCall
	err   error
	asked int
}

func (k *kubelet) Sight(context.Context) evidence.KubeletSight {
	return evidence.KubeletSight{Health: "ok", Answers: true}
}

func (k *kubelet) Counts(context.Context) (evidence.Counts, time.Time, error) {
	k.asked++
	if k.err != nil {
		return evidence.Counts{}, time.Time{}, k.err
	}
	return evidence.Counts{Volumes: k.calls, API: []evidence.APICall{{Method: evidence.MethodDelete, Code: "403", Count: 1}}}, time.Now(), nil
}

// The kubelet is asked for its counts while volumes of an overdue pod are taken down,
// and that they are missing is said of such pods only.
func TestVolumeCallsAreAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &kubelet{calls: []evidence.VolumeCall{{Method: evidence.VolumeUnmount, Count: 1}}}
		r := newReader(t, &runtime{})
		r.Kubelet = k
		ended := seed(time.Now().Add(-time.Minute))
		ended.Phase = "Succeeded"
		if p := r.Round(t.Context(), Ask{Overdue: true}).Pod(t.Context(), ended, nil); k.asked != 0 || p.Missing[evidence.VolumeCalls] != "" {
			t.Errorf("asked %d times for nothing, missing %v", k.asked, p.Missing)
		}
		ask := Ask{Overdue: true, Unmounts: true, Unmounting: 1, Drivers: map[string]Driver{"": {Pod: "none"}}}
		if p := r.Round(t.Context(), ask).Pod(t.Context(), ended, nil); len(p.Node.Kubelet.VolumeCalls) != 1 || p.Missing[evidence.VolumeCalls] != "" {
			t.Errorf("kubelet %+v, missing %v", p.Node.Kubelet, p.Missing)
		} else if p.Node.Unmounting != 0 {
			t.Errorf("without a helper process the directories of pods cannot be listed, and %d are", p.Node.Unmounting)
		}
		k.err = errors.New("refused")
		round := r.Round(t.Context(), ask)
		if p := round.Pod(t.Context(), ended, nil); p.Missing[evidence.VolumeCalls] != "refused" {
			t.Errorf("missing %v", p.Missing)
		}
		if p := round.Pod(t.Context(), seed(time.Now()), nil); p.Missing[evidence.VolumeCalls] != "" {
			t.Errorf("of a pod whose containers run: missing %v", p.Missing)
		}
		k.err = nil
		short := &evidence.Node{Kubelet: evidence.KubeletService{Shortages: []evidence.Shortage{{Resource: evidence.ReadOnly}}}}
		if n := r.Round(t.Context(), Ask{Overdue: true, Earlier: short}).Node(); len(n.Kubelet.VolumeCalls) != 1 {
			t.Errorf("of a kubelet that lacks something: %+v", n.Kubelet)
		}
		finished := r.Round(t.Context(), Ask{Overdue: true, Finished: true, Deletable: 2}).Node()
		if len(finished.Kubelet.APICalls) != 1 || finished.Deletable != 2 || finished.Unmounting != 0 {
			t.Errorf("with a pod of which only the object is left: %+v", finished)
		}
	})
}

// What is not known of a pod's claims is said of late pods with claims only.
func TestClaimsAreAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &kubelet{err: errors.New("refused")}
		r := newReader(t, &runtime{}) // without a helper process
		r.Kubelet = k
		late, plain, early := seed(time.Now().Add(-time.Minute)), seed(time.Now().Add(-time.Minute)), seed(time.Now().Add(time.Minute))
		late.ResourceClaims, early.ResourceClaims = 1, 1
		for name, tc := range map[string]struct {
			ask     Ask
			pod     *evidence.Pod
			missing bool
		}{
			"late":           {Ask{Overdue: true, Unprepares: true, Unpreparing: 1}, late, true},
			"not asked for":  {Ask{Overdue: true, Unmounts: true}, late, true},
			"without claims": {Ask{Overdue: true, Unprepares: true}, plain, false},
			"in grace":       {Ask{Overdue: true, Unprepares: true}, early, false},
		} {
			p := r.Round(t.Context(), tc.ask).Pod(t.Context(), tc.pod, nil)
			if got := p.Missing[evidence.Claims] != "" && p.Missing[evidence.ClaimCalls] != ""; got != tc.missing || p.Node.Unpreparing != 0 {
				t.Errorf("%s: missing %v, %d pods", name, p.Missing, p.Node.Unpreparing)
			}
		}
		if k.asked != 4 {
			t.Errorf("the kubelet was asked %d times", k.asked)
		}
	})
}

// A kubelet is missed when there was one, whatever happens between two rounds.
func TestKubeletThatIsAway(t *testing.T) {
	r := newReader(t, &runtime{})
	before := time.Now()
	here := r.Round(t.Context(), Ask{}).Node().Kubelet
	if !here.AbsentSince.IsZero() || here.LastSeen.Before(before) {
		t.Errorf("while it runs: %+v", here)
	}
	if err := os.RemoveAll(filepath.Join(r.Proc.Proc, "9")); err != nil {
		t.Fatal(err)
	}
	away := r.Round(t.Context(), Ask{Overdue: true}).Node()
	if away.Kubelet.Process != nil || away.Kubelet.AbsentSince.IsZero() || !away.Kubelet.LastSeen.Equal(here.LastSeen) {
		t.Errorf("after its end: %+v", away.Kubelet)
	}
	again := r.Round(t.Context(), Ask{Overdue: true, Earlier: &away}).Node().Kubelet
	if !again.AbsentSince.Equal(away.Kubelet.AbsentSince) {
		t.Errorf("away since %s, and later since %s", away.Kubelet.AbsentSince, again.AbsentSince)
	}
}

// What panics costs the reading that it is in, and not the agent: what the pods share is unknown then.
func TestPanicOfARound(t *testing.T) {
	r := newReader(t, &runtime{panics: "a bug"})
	var told any
	r.Panicked = func(v any, stack []byte) {
		if len(stack) > 0 {
			told = v
		}
	}
	n := r.Round(t.Context(), Ask{Overdue: true}).Node()
	if told != "a bug" || !strings.Contains(n.Containerd.Error, "panicked") || !strings.Contains(n.Kubelet.Error, "panicked") || n.Name == "" {
		t.Errorf("told %v of %+v", told, n)
	}
	// The next one reads.
	r.Runtime = new(runtime)
	if n := r.Round(t.Context(), Ask{}).Node(); n.Containerd.Error != "" || n.Kubelet.Error != "" {
		t.Errorf("after a panic: %+v", n)
	}
}
