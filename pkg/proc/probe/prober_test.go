package probe

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kerneltest"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kernfile"
)

func ownTask() request {
	return request{What: Task, Proc: "/proc", PID: os.Getpid(), TID: os.Getpid()}
}

// A helper that is slow, or gone, is no hang of the task that it was asked for.
func TestProberHelperTrouble(t *testing.T) {
	p := newProber(t)
	p.Timeout = time.Second
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := p.ask(ctx, ownTask()); err != nil {
		t.Fatal(err)
	}
	if err := p.usual.helper.process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	pid := p.usual.helper.process.Pid
	kerneltest.Eventually(t, "the helper stopped", func() bool {
		r, err := kernfile.Open("/proc")
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		s, err := r.TaskStatus(pid)
		return err == nil && s.State == evidence.Stopped
	})
	if _, err := p.ask(ctx, ownTask()); !errors.Is(err, errStarved) || p.Hangs() != 0 {
		t.Errorf("a stopped helper: %v, %d hangs", err, p.Hangs())
	}
	if _, err := p.ask(ctx, ownTask()); err != nil {
		t.Fatal(err)
	}
	if err := p.usual.helper.process.Kill(); err != nil {
		t.Fatal(err)
	}
	if s, err := p.ask(ctx, ownTask()); err != nil || s.Start == 0 {
		t.Errorf("after the helper was killed: %+v, %v", s, err)
	}
	if n := p.Restarts(); n != 2 {
		t.Errorf("%d restarts", n)
	}
	kerneltest.Eventually(t, "helpers reaped", func() bool { return p.Abandoned() == 0 })

	if s, err := p.ask(ctx, request{What: Task, Proc: "/proc", PID: 1 << 22, TID: 1 << 22}); err != nil || !s.Gone {
		t.Errorf("no such task: %+v, %v", s, err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if _, err := p.ask(ctx, ownTask()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	p.Close()
	p.Close()
	if _, err := p.ask(ctx, ownTask()); !errors.Is(err, errClosed) {
		t.Errorf("closed: %v", err)
	}
}

// Helpers that cannot be ended are few, and said to be there.
func TestProberTooManyAbandoned(t *testing.T) {
	p := newProber(t)
	v := exec.Command("sleep", "600") // lives on
	if err := v.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = v.Process.Kill(), v.Wait() })
	lives := abandoned{pid: v.Process.Pid, owner: "a pod"}
	p.MaxAbandoned = 1
	p.abandoned = []abandoned{lives}
	own := &evidence.Task{PID: os.Getpid(), TID: os.Getpid()}
	_, err := p.Ask(t.Context(), Task, "/proc", own, "another pod")
	if err == nil || !strings.Contains(err.Error(), "1 helper processes") || p.Refused() != 1 {
		t.Errorf("%v, %d refused", err, p.Refused())
	}
	// The tasks of one owner do not take the probing from those of others.
	p.MaxAbandoned = maxOfOne + 1
	p.abandoned = slices.Repeat([]abandoned{lives}, maxOfOne)
	if _, err := p.Ask(t.Context(), Task, "/proc", own, "a pod"); err == nil || !strings.Contains(err.Error(), "of this owner") || p.Refused() != 2 {
		t.Errorf("%v, %d refused", err, p.Refused())
	}
	if saw, err := p.Ask(t.Context(), Task, "/proc", own, "another pod"); err != nil || saw.Start == 0 {
		t.Errorf("another pod: %+v, %v", saw, err)
	}
	p.abandoned = nil
	if saw, err := p.Ask(t.Context(), Task, "/proc", own, "a pod"); err != nil || saw.Start == 0 {
		t.Errorf("%+v, %v", saw, err)
	}
}

// Questions about an owner whose task has hung a helper of late hold up nobody
// else's.
func TestProberLanes(t *testing.T) {
	p := newProber(t)
	p.noteHanger("a pod")
	own := &evidence.Task{PID: os.Getpid(), TID: os.Getpid()}
	p.prepare()
	<-p.hanging.turn // a question about the pod takes its time
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := p.Ask(ctx, Task, "/proc", own, "another pod"); err != nil {
		t.Error(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := p.Ask(short, Task, "/proc", own, "a pod"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the pod itself: %v", err)
	}
	p.hanging.turn <- struct{}{}
	if _, err := p.Ask(ctx, Task, "/proc", own, "a pod"); err != nil {
		t.Error(err)
	}
}

// Who has no time left does not take the helper with it.
func TestProberOutlivesItsAskers(t *testing.T) {
	p := newProber(t)
	if _, err := p.ask(t.Context(), ownTask()); err != nil {
		t.Fatal(err)
	}
	late := 0
	for i := range 500 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*time.Microsecond)
		if _, err := p.ask(ctx, ownTask()); errors.Is(err, context.DeadlineExceeded) {
			late++
		} else if err != nil {
			t.Error(err)
		}
		cancel()
	}
	if _, err := p.ask(t.Context(), ownTask()); err != nil || late == 0 || p.Restarts() > 0 {
		t.Errorf("%v after %d questions that came too late, %d restarts", err, late, p.Restarts())
	}
}

func TestProberCannotStart(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, argv := range [][]string{{"/no/such/program"}, {"/bin/true"}} {
		p := &Prober{Argv: argv}
		if _, err := p.ask(ctx, ownTask()); err == nil {
			t.Errorf("%v is a helper", argv)
		}
		p.Close()
	}
}

// The helper of owners that hang helpers is ended when there are none any more.
func TestRetire(t *testing.T) {
	p := newProber(t)
	q := ownTask()
	q.Owner = "a pod"
	p.noteHanger(q.Owner)
	if _, err := p.ask(t.Context(), q); err != nil || p.hanging.helper == nil {
		t.Fatalf("asked %v of %v", err, p.hanging.helper)
	}
	if p.retire(); p.hanging.helper == nil {
		t.Error("ended while its owner may hang it")
	}
	p.mu.Lock()
	p.hangers[q.Owner] = time.Now().Add(-hungMemory)
	p.mu.Unlock()
	<-p.hanging.turn
	if p.retire(); p.hanging.helper == nil {
		t.Error("ended while it was used")
	}
	p.hanging.turn <- struct{}{}
	if p.retire(); p.hanging.helper != nil {
		t.Error("still there")
	}
	kerneltest.Eventually(t, "the helper reaped", func() bool { return p.Abandoned() == 0 })
	if _, err := p.ask(t.Context(), q); err != nil {
		t.Error(err)
	}
}

// What helpers answer costs CPU time, and no more than they have had.
func TestProberSpent(t *testing.T) {
	p := newProber(t)
	for range 20 {
		if _, err := p.ask(t.Context(), ownTask()); err != nil {
			t.Fatal(err)
		}
	}
	if has := p.usual.helper.spent(); p.Spent() <= 0 || p.Spent() > has {
		t.Errorf("%s were spent on answers by a helper that has had %s", p.Spent(), has)
	}
}

// The pods of one namespace do not take the probing from others, and those of all not from the
// node's own processes.
func TestProberQuotas(t *testing.T) {
	p := newProber(t)
	v := exec.Command("sleep", "600") // lives on
	if err := v.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = v.Process.Kill(), v.Wait() })
	pod := func(n int) string { return strings.Repeat(strconv.Itoa(n), 36) }
	all := map[string]string{pod(1): "evil/a", pod(2): "evil/b", pod(3): "evil/c", pod(4): "good/a", pod(5): "shop/a", pod(6): "shop/b"}
	left := map[string]string{pod(3): "evil/c", pod(4): "good/a"}
	own := &evidence.Task{PID: os.Getpid(), TID: os.Getpid()}
	for name, tc := range map[string]struct {
		known                 map[string]string // since
		lost, probed, refused []string
	}{
		"two of one pod":           {all, []string{pod(1), pod(1)}, []string{pod(2), pod(4), ""}, []string{pod(1)}},
		"four of one namespace":    {all, []string{pod(1), pod(1), pod(2), pod(2)}, []string{pod(4), pod(7), "", "shim"}, []string{pod(1), pod(2), pod(3)}},
		"and the pods were forced": {left, []string{pod(1), pod(1), pod(2), pod(2)}, []string{pod(4), pod(7), "", "shim"}, []string{pod(3)}},
		"six of all pods":          {all, []string{pod(1), pod(1), pod(2), pod(2), pod(5), pod(6)}, []string{"", "kubelet"}, []string{pod(3), pod(4), pod(7)}},
		"six of pods not known":    {all, []string{pod(7), pod(7), pod(8), pod(8), pod(9), pod(9)}, []string{"", "shim"}, []string{pod(4)}},
		"two of the node's shims":  {all, []string{"shim", "shim"}, []string{pod(4), ""}, []string{"shim"}},
	} {
		p.Know(all)
		p.abandoned = nil
		for _, owner := range tc.lost {
			p.abandoned = append(p.abandoned, p.lost(v.Process.Pid, owner))
		}
		p.Know(tc.known)
		for _, owner := range tc.probed {
			if saw, err := p.Ask(t.Context(), Task, "/proc", own, owner); err != nil || saw.Start == 0 {
				t.Errorf("%s: %.8q is not probed: %v", name, owner, err)
			}
		}
		for _, owner := range tc.refused {
			if _, err := p.Ask(t.Context(), Task, "/proc", own, owner); err == nil {
				t.Errorf("%s: %.8q is probed", name, owner)
			}
		}
	}
	p.abandoned = nil
}

// What finds no room in an answer is said of its task, and costs no helper.
func TestProberAnswerTooLarge(t *testing.T) {
	p := newProber(t)
	p.Argv = []string{"/proc/self/exe", "probe-large"}
	pod := strings.Repeat("a", 36) // a UID
	own := &evidence.Task{PID: os.Getpid(), TID: os.Getpid()}
	for range 3 {
		if _, err := p.Ask(t.Context(), Task, "/proc", own, pod); !Charged(err) || !errors.Is(err, errTooLarge) {
			t.Errorf("too large an answer: %v", err)
		}
	}
	// One helper for each of the lanes.
	if n := p.Restarts(); n != 1 {
		t.Errorf("%d helpers have ended", n)
	}
	if p.laneOf(pod) != &p.hanging || p.laneOf(strings.Repeat("b", 36)) != &p.usual {
		t.Error("the owner is not charged")
	}
}

// The node's own processes have a slow node in common, and no other helper.
func TestProberChargesPodsOnly(t *testing.T) {
	p := newProber(t)
	pod := strings.Repeat("a", 36)
	for _, owner := range []string{"", "shim", "kubelet", pod} {
		p.charge(owner)
	}
	for owner, want := range map[string]*lane{"": &p.usual, "shim": &p.usual, "kubelet": &p.usual, pod: &p.hanging} {
		if p.laneOf(owner) != want {
			t.Errorf("%.8q has the wrong helper", owner)
		}
	}
}
