package agent

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/verdict"
)

// delete has the agent run while pod a terminates, on which there is a verdict, until the object is deleted, which it
// notes, and on from there.
func (b *bench) delete(t *testing.T, verdict string, before, after time.Duration, deleted *time.Time) {
	b.verdict["a"] = verdict
	pod := terminating("a", time.Now(), 5)
	b.set([]*corev1.Pod{pod})
	ctx, cancel := context.WithCancel(t.Context())
	go b.Run(ctx)
	time.Sleep(before)
	*deleted = time.Now()
	b.set(nil, pod)
	time.Sleep(after)
	cancel()
	synctest.Wait()
}

// What is left of a pod that was deleted with a verdict is looked at a while after that,
// and told on the node when the next look finds it too.
func TestRemainsOfDeletedPods(t *testing.T) {
	for name, tc := range map[string]struct {
		remains func(p *evidence.Pod)
		verdict string
		mirror  bool
		want    []string
		told    string
		before  func(p *evidence.Pod)
	}{
		"nothing": {func(*evidence.Pod) {}, "ShimHung", false, []string{"ShimHung clean"}, "", nil},
		"a process": {func(p *evidence.Pod) {
			p.Tasks = []evidence.Task{{PID: 7, TID: 7, Comm: "app", State: evidence.Sleeping}}
		}, "ShimHung", false, []string{"ShimHung left"}, "process app is still running", nil},
		"a mount": {func(p *evidence.Pod) {
			p.Mounts = []evidence.Mount{{ID: 1, Volume: "data", Type: "ext4"}}
		}, "VolumeUnmountBusy", false, []string{"VolumeUnmountBusy left"}, `volume "data" is still mounted (ext4)`, nil},
		"a mount beside what was not read": {func(p *evidence.Pod) {
			p.Mounts = []evidence.Mount{{ID: 1, Volume: "data", Type: "ext4"}}
			p.Lack(evidence.Containers, "containerd is silent")
		}, "ContainerdHung", false, []string{"ContainerdHung left"}, `volume "data"`, nil},
		"a sandbox that is being created": {func(p *evidence.Pod) {
			p.Containers = append(p.Containers, evidence.Container{Name: "POD", Kind: evidence.Sandbox, ID: "s", State: evidence.StateCreated,
				Runtime: "io.containerd.runc.v2"})
		}, "RuntimeCommandHanging", false, []string{"RuntimeCommandHanging left"}, "the pod's sandbox is not torn down", nil},
		"what was not read":       {func(p *evidence.Pod) { p.Lack(evidence.Mounts, "too long") }, "ShimHung", false, []string{"ShimHung unread"}, "", nil},
		"a pod without a verdict": {func(p *evidence.Pod) { p.Tasks = []evidence.Task{{PID: 7, TID: 7}} }, "", false, nil, "", nil},
		"another runtime": {func(*evidence.Pod) {}, "ShimHung", false, []string{"ShimHung " +
			"unread"}, "", func(p *evidence.Pod) { p.Containers[0].Runtime = "io.containerd.kata.v2" }},
		"hostPID":                      {func(*evidence.Pod) {}, "ShimHung", false, []string{"ShimHung unread"}, "", func(p *evidence.Pod) { p.HostPID = true }},
		"groups that were never found": {func(*evidence.Pod) {}, "ShimHung", false, []string{"ShimHung unread"}, "", func(p *evidence.Pod) { p.Cgroups = nil }},
		"a mirror pod goes on": {func(p *evidence.Pod) { p.Tasks = []evidence.Task{{PID: 7, TID: 7}} }, "KubeletDown", true,
			[]string{"KubeletDown unread"}, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench()
				var log bytes.Buffer
				b.Log = slog.New(slog.NewTextHandler(&log, nil))
				var told []string
				var at time.Time
				b.ReportRemains = func(_ context.Context, s verdict.Subject, now time.Time, cause, left string) {
					told, at = append(told, s.UID+" "+cause+" "+left), now
				}
				after := 0
				b.gather = func(_ context.Context, p *evidence.Pod) {
					p.Mirror, p.Node.Pressure = tc.mirror, new(evidence.Pressure)
					if !p.Gone {
						p.Cgroups = []evidence.Cgroup{{Path: "/kubepods/a"}}
						p.Containers = []evidence.Container{{Name: "main", Runtime: "io.containerd.runc.v2"}}
						if tc.before != nil {
							tc.before(p)
						}
					} else {
						after++
						tc.remains(p)
					}
				}
				var gone time.Time
				b.delete(t, tc.verdict, 20*time.Second, time.Minute, &gone)
				if !slices.Equal(b.deletions, tc.want) {
					t.Errorf("counted %q, want %q", b.deletions, tc.want)
				}
				if tc.told == "" && told != nil || tc.told != "" && (len(told) != 1 || !strings.Contains(told[0], tc.told)) {
					t.Errorf("told %q, want %q", told, tc.told)
				}
				if wait := at.Sub(gone); tc.told != "" && (wait < remainsPatience || wait > remainsPatience+6*b.Period) {
					t.Errorf("told after %s", wait)
				}
				want := len(tc.want)
				if tc.told != "" {
					want = 2
				}
				if after != want && !tc.mirror {
					t.Errorf("%d readings afterwards, want %d", after, want)
				}
				if logged := strings.Contains(log.String(), "evidence="); logged != (tc.verdict != "") {
					t.Errorf("the last reading is in the log: %t\n%s", logged, &log)
				}
			})
		})
	}
}

// The kubelet may be late, and on a node that is short of something it is given more time.
func TestRemainsOfALateKubelet(t *testing.T) {
	// at gives the pressure of a node that is short of processors for so long after the deletion.
	at := func(share float64, until time.Duration) func(time.Duration) *evidence.Pressure {
		return func(since time.Duration) *evidence.Pressure {
			switch {
			case share == 0:
				return new(evidence.Pressure)
			case since < until:
				return &evidence.Pressure{CPU: share, StarvedUntil: time.Now()}
			}
			return &evidence.Pressure{StarvedUntil: time.Now().Add(until - since)}
		}
	}
	for name, tc := range map[string]struct {
		gone     time.Duration // when the last process has
		period   time.Duration
		pressure func(since time.Duration) *evidence.Pressure // so long after the deletion
		want     []string
	}{
		"a little":               {20 * time.Second, 2 * time.Second, at(0, 0), []string{"ShimHung clean"}},
		"late, on a short node":  {40 * time.Second, 2 * time.Second, at(80, time.Hour), []string{"ShimHung clean"}},
		"never, on a short node": {time.Hour, 2 * time.Second, at(80, time.Hour), []string{"ShimHung left"}},
		"late, on a node that was short until a while ago": {40 * time.Second, 2 * time.Second, at(80, 20*time.Second), []string{"ShimHung clean"}},
		"late, and the kernel does not tell what is short": {40 * time.Second, 2 * time.Second,
			func(time.Duration) *evidence.Pressure { return nil }, []string{"ShimHung clean"}},
		"late, and nodeagent is late too": {50 * time.Second, 40 * time.Second, at(0, 0), []string{"ShimHung clean"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench()
				b.Period = tc.period
				var deleted, told time.Time
				b.ReportRemains = func(_ context.Context, _ verdict.Subject, now time.Time, _, _ string) { told = now }
				b.gather = func(_ context.Context, p *evidence.Pod) {
					if !p.Gone {
						p.Node.Pressure = tc.pressure(0)
						p.Cgroups = []evidence.Cgroup{{Path: "/kubepods/a"}}
						p.Containers = []evidence.Container{{Name: "main", Runtime: "io.containerd.runc.v2"}}
						return
					}
					if p.Node.Pressure = tc.pressure(time.Since(deleted)); time.Since(deleted) < tc.gone {
						p.Tasks = []evidence.Task{{PID: 7, TID: 7, Comm: "app"}}
					}
				}
				b.delete(t, "ShimHung", 10*tc.period, 4*time.Minute, &deleted)
				if !slices.Equal(b.deletions, tc.want) {
					t.Errorf("counted %q, want %q", b.deletions, tc.want)
				}
				if wait := told.Sub(deleted); !told.IsZero() && wait < remainsStarved {
					t.Errorf("told after %s", wait)
				}
			})
		})
	}
}

// A look that does not return in time is repeated once.
func TestRemainsOfALostLook(t *testing.T) {
	for lost, want := range map[int]string{1: "ShimHung left", 2: "ShimHung unread"} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench()
			looks := 0
			b.gather = func(_ context.Context, p *evidence.Pod) {
				if p.Node.Pressure = new(evidence.Pressure); !p.Gone {
					return
				}
				p.Tasks = []evidence.Task{{PID: 7, TID: 7, Comm: "app"}}
				if looks++; looks <= lost {
					time.Sleep(b.Timeout + lateAfter + time.Second)
				}
			}
			b.delete(t, "ShimHung", 20*time.Second, 3*time.Minute, new(time.Time))
			if !slices.Equal(b.deletions, []string{want}) {
				t.Errorf("%d lost: counted %q, want %q", lost, b.deletions, want)
			}
		})
	}
}

// A pod that was deleted by force inside its grace period is overdue afterwards.
func TestRemainsInsideTheGracePeriod(t *testing.T) {
	now := time.Now()
	last := &evidence.Pod{Deadline: now.Add(time.Hour), Containers: []evidence.Container{{Name: "main", Kind: evidence.App, ID: "c"},
		{Name: "POD", Kind: evidence.Sandbox}}}
	e := afterwards(last, now)
	if e.Time = now.Add(remainsAfter); e.Overdue() != remainsAfter || !e.Gone || len(e.Containers) != 1 || e.Containers[0].ID != "" {
		t.Errorf("%+v", e)
	}
}

// Many pods that are deleted at once are counted, and not all waited for or logged.
func TestManyDeletedPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		var log bytes.Buffer
		b.Log = slog.New(slog.NewTextHandler(&log, nil))
		told := 0
		b.ReportRemains = func(context.Context, verdict.Subject, time.Time, string, string) {
			b.mu.Lock()
			defer b.mu.Unlock()
			told++
		}
		b.gather = func(_ context.Context, p *evidence.Pod) {
			if p.Node.Pressure = new(evidence.Pressure); p.Gone {
				p.Tasks = []evidence.Task{{PID: 7, TID: 7, Comm: "app"}}
			}
		}
		var pods []*corev1.Pod
		controlled := true
		for i := range 200 {
			p := terminating(types.UID("pod-"+strconv.Itoa(i)), time.Now(), 1)
			p.OwnerReferences = []metav1.OwnerReference{{UID: "set", Controller: &controlled}}
			b.verdict[string(p.UID)] = "ShimHung"
			pods = append(pods, p)
		}
		b.set(pods)
		ctx, cancel := context.WithCancel(t.Context())
		go b.Run(ctx)
		time.Sleep(30 * time.Second)
		b.set(nil, pods...)
		time.Sleep(60 * time.Second)
		cancel()
		synctest.Wait()
		left := 0
		for _, d := range b.deletions {
			if d == "ShimHung left" {
				left++
			}
		}
		if len(b.deletions) != 200 || left != maxDeleted || told != perMinute {
			t.Errorf("%d counted, %d of them read, %d told", len(b.deletions), left, told)
		}
		if n := strings.Count(log.String(), "evidence="); n != perMinute {
			t.Errorf("%d records in the log", n)
		}
	})
}

// Whoever may create pods may name any owner: only what the API server calls a
// StatefulSet is one.
func TestSeedKnowsStatefulSets(t *testing.T) {
	is, not := true, false
	for name, tc := range map[string]struct {
		owner metav1.OwnerReference
		want  bool
	}{
		"a StatefulSet":          {metav1.OwnerReference{Kind: "StatefulSet", APIVersion: "apps/v1", Controller: &is}, true},
		"another group's":        {metav1.OwnerReference{Kind: "StatefulSet", APIVersion: "apps.kruise.io/v1", Controller: &is}, false},
		"one that controls none": {metav1.OwnerReference{Kind: "StatefulSet", APIVersion: "apps/v1", Controller: &not}, false},
		"a ReplicaSet":           {metav1.OwnerReference{Kind: "ReplicaSet", APIVersion: "apps/v1", Controller: &is}, false},
	} {
		p := terminating("a", time.Now(), 1)
		p.OwnerReferences = []metav1.OwnerReference{tc.owner}
		trimmed, err := Trim(p)
		if err != nil {
			t.Fatal(err)
		}
		if got := Seed(trimmed.(*corev1.Pod)).StatefulSet; got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
