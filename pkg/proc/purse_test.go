package proc

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kerneltest"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kernfile"
)

// What the processes of a pod cost to read is no other pod's loss: 400 with 65,536 groups each, which call themselves shims.
func TestOthersPayNothing(t *testing.T) {
	pod, hostile, h := newTestPod(t), newTestPod(t), newHost(t)
	var charged []string
	h.Dear = func(uid string) { charged = append(charged, uid) }
	sleeper := start(t, 0, "sleep").pid()
	pod.add(t, sleeper)
	many := start(t, 0, "groups", "400", t.TempDir())
	hostile.add(t, many.pid())
	for _, pid := range childrenIn(t, many.pid()) {
		hostile.add(t, pid)
	}
	for range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
		defer cancel()
		r, now := h.Round(), time.Now()
		p := &evidence.Pod{UID: pod.uid, Time: now, DeletionRequested: now.Add(-time.Minute), Deadline: now.Add(-30 * time.Second)}
		p.Containers = []evidence.Container{
			{Name: "main", ID: pod.container, State: evidence.StateRunning, Runtime: runcV2, Task: evidence.ShimTask{PID: sleeper}},
			{Name: "POD", Kind: evidence.Sandbox, ID: strings.Repeat("ab", 32)},
		}
		r.ReadPod(ctx, p)
		files := open(t, h.Proc)
		if _, err := r.children(ctx, files); err != nil {
			t.Errorf("children: %v", err)
		}
		_, before := r.pipeUsers(ctx, files, pod.uid) // some machines hide what the first process has open
		if errors.Is(before, errDear) || ctx.Err() != nil {
			t.Errorf("pipes: %v", before)
		}
		if _, _, err := r.ReadBlocked(ctx); err != nil {
			t.Errorf("blocked: %v", err)
		}
		if _, err := r.ReadMain(ctx, "containerd"); err != nil && ctx.Err() != nil {
			t.Errorf("containerd: %v", err)
		}
		if p.NoShimSince.IsZero() || len(p.Missing) > 0 {
			t.Errorf("no shim since %s, missing: %v", p.NoShimSince, p.Missing)
		}
		if r.pipes.charged[hostile.uid] == nil {
			t.Error("of the hostile pod itself it is not said that some of its processes were not read")
		}
	}
	if !slices.Equal(charged, []string{hostile.uid}) || h.PassedOver() == 0 {
		t.Errorf("charged: %q, %d passed over", charged, h.PassedOver())
	}
}

func open(t testing.TB, dir string) *kernfile.Reader {
	t.Helper()
	files, err := kernfile.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(files.Close)
	return files
}

// childrenIn returns the children of a process that are there.
func childrenIn(t testing.TB, pid int) []int {
	t.Helper()
	return childrenOf(open(t, "/proc"), pid)
}

// What the helper reads of the processes of a pod is charged to it, too: 60 with 4,000 ends of a pipe each.
func TestTheHelpersWorkIsPaid(t *testing.T) {
	pod, hostile, h := newTestPod(t), newTestPod(t), newHost(t)
	pod.add(t, start(t, 0, "sleep").pid())
	many := start(t, 0, "pipes", "60", "4000")
	for _, pid := range childrenIn(t, many.pid()) {
		hostile.add(t, pid)
	}
	var charged []string
	h.Dear = func(uid string) { charged = append(charged, uid) }
	for range 2 {
		r, files := h.Round(), open(t, h.Proc)
		_, err := r.pipeUsers(t.Context(), files, pod.uid) // some machines hide what the first process has open
		if errors.Is(err, errDear) {
			t.Errorf("the other pod: %v", err)
		}
		if !errors.Is(r.pipes.charged[hostile.uid], errDear) {
			t.Errorf("the pod itself: %v", r.pipes.charged[hostile.uid])
		}
	}
	if !slices.Equal(charged, []string{hostile.uid}) || h.PassedOver() == 0 {
		t.Errorf("charged: %q, %d passed over", charged, h.PassedOver())
	}
}

// A pod of which the processes are dear to read does not keep the survey from others for long.
func TestBaselineOfDearProcesses(t *testing.T) {
	pod, h := newTestPod(t), newHost(t)
	many := start(t, 0, "groups", strconv.Itoa(maxBaseline), t.TempDir())
	for _, pid := range childrenIn(t, many.pid()) {
		pod.add(t, pid)
	}
	b, err := h.ReadBaseline(t.Context(), pod.uid)
	if err != nil || len(b.Tasks) == 0 || len(b.Tasks) == maxBaseline {
		t.Errorf("%+v, %v", b, err)
	}
}

// A pod with more processes than are read in a round is searched last, and makes the search no shorter for the others.
func TestManyProcessesAreSearchedLast(t *testing.T) {
	root := t.TempDir()
	kerneltest.Tree(t, root, map[string]string{
		"100/cgroup": "0::/kubepods/pod" + podUID(1) + "/c\n",
		"101/cgroup": "0::/kubepods/pod" + podUID(2) + "/c\n",
		"102/cgroup": "0::/system.slice/x\n",
	})
	pids := append(slices.Repeat([]int{100}, allowance+1), 101, 102)
	h := &Host{Proc: root, Cgroup: filepath.Join(root, "cgroup")}
	r := h.Round()
	r.pids = func() ([]int, error) { return pids, nil }
	var got []int
	if err := r.each(t.Context(), open(t, root), func(p process) bool { got = append(got, p.pid); return len(got) < 2 }); err != nil {
		t.Fatal(err)
	}
	if want := pids[len(pids)-2:]; !slices.Equal(got, want) {
		t.Errorf("searched first are %v, want %v", got, want)
	}
	if dear := slices.Collect(maps.Keys(h.ledger.dear(time.Now()))); !slices.Equal(dear, []string{podUID(1)}) {
		t.Errorf("dear: %v", dear)
	}
	if dear := h.ledger.dear(time.Now().Add(dearFor + time.Second)); len(dear) > 0 {
		t.Errorf("for ever dear: %v", dear)
	}
}

// Where pods that are not dear have more processes than are searched, those with the most come last, and the others are searched in full.
func TestTheLargestAreSearchedLast(t *testing.T) {
	root, files, pids := t.TempDir(), make(map[string]string), []int(nil)
	for i := range 3 {
		files[fmt.Sprintf("%d/cgroup", 100+i)] = "0::/kubepods/pod" + podUID(i) + "/c\n"
		pids = append(pids, slices.Repeat([]int{100 + i}, allowance)...)
	}
	files["200/cgroup"], files["300/cgroup"] = "0::/kubepods/pod"+podUID(7)+"/c\n", "0::/system.slice/x\n"
	kerneltest.Tree(t, root, files)
	r := (&Host{Proc: root, Cgroup: filepath.Join(root, "cgroup")}).Round()
	r.pids = func() ([]int, error) { return append(pids, 200, 300), nil }
	got := make(map[int]bool)
	if err := r.each(t.Context(), open(t, root), func(p process) bool { got[p.pid] = true; return true }); err != nil {
		t.Error(err)
	}
	known, err := r.taken(t.Context(), open(t, root))
	if err != nil || known.cut != nil || known.usual > maxSearched || !got[200] || !got[300] {
		t.Errorf("%d are searched first, %v, %v; all: %v", known.usual, known.cut, err, got)
	}
}

// All dear pods together have one allowance, and others have one each.
func TestAllowances(t *testing.T) {
	h := &Host{}
	h.ledger.note("a", time.Now())
	h.ledger.note("b", time.Now())
	p := newPurse(h)
	p.pay("a", allowance)
	p.pay("c", allowance)
	p.pay("", 10*allowance)
	for payer, want := range map[string]bool{"a": false, "b": false, "c": false, "d": false, "": false} {
		if p.empty(payer) != want {
			t.Errorf("%q: it is said that nothing is left", payer)
		}
	}
	p.pay("b", 1)
	p.pay("c", 1)
	for payer, want := range map[string]bool{"a": true, "b": true, "c": true, "d": false, "": false} {
		if p.empty(payer) != want {
			t.Errorf("%q: nothing is left: %v", payer, !want)
		}
	}
	if h.PassedOver() != 3 {
		t.Errorf("%d are counted", h.PassedOver())
	}
	if costOf(1500) != 1 || costOf(720<<10) < 700 {
		t.Errorf("a usual status costs %d, one of 720 KiB %d", costOf(1500), costOf(720<<10))
	}
}

// Pods that each cost a little less than they may are dear when they are many, and the others are not.
func TestManyBelowTheAllowance(t *testing.T) {
	h := &Host{}
	p := newPurse(h)
	for i := range 50 {
		p.pay(podUID(i), allowance)
		p.pay(podUID(100+i), oneOfMany)
	}
	dear := h.ledger.dear(time.Now())
	if len(dear) < 45 || len(dear) > 50 {
		t.Errorf("%d pods of 50 are dear", len(dear))
	}
	for uid := range dear {
		if p.spent[uid] != allowance {
			t.Errorf("%s has cost %d, and is dear", uid, p.spent[uid])
		}
	}
	// So the next round costs no more than it may.
	p = newPurse(h)
	for i := range 50 {
		if uid := podUID(i); !p.empty(uid) {
			p.pay(uid, allowance)
		}
	}
	if total := p.usual + p.spent[allDear]; total > commonAllowance+2*allowance {
		t.Errorf("the next round costs %d", total)
	}
}

// With version 1 of control groups the zombies of any pod are in the root group, as the kernel's threads are.
func TestZombiesInTheRootGroup(t *testing.T) {
	root := t.TempDir()
	files, pids := map[string]string{}, []int(nil)
	large := "Groups:\t" + strings.Repeat("4294000000 ", 65_536) + "\n"
	for i := range 60 {
		pid := fmt.Sprint(100 + i)
		files[pid+"/cgroup"], files[pid+"/comm"] = "3:pids:/\n", "kubelet\n"
		files[pid+"/status"] = "Name:\tkubelet\nState:\tZ (zombie)\nTgid:\t" + pid + "\nPid:\t" + pid + "\nPPid:\t2\nThreads:\t1\n" + large
		pids = append(pids, 100+i)
	}
	kerneltest.Tree(t, root, files)
	h := &Host{Proc: root}
	r := h.Round()
	r.pids = func() ([]int, error) { return pids, nil }
	n := 0
	if err := r.each(t.Context(), open(t, root), func(p process) bool {
		if _, err := r.read(open(t, root), p); err == nil {
			n++
		}
		return true
	}); err != nil || n == 0 || n > 30 {
		t.Errorf("%d of 60 are read, %v", n, err)
	}
	// Who looks for the kubelet is told that it is not known, and finds one that is in a group of its own.
	if got, err := r.ReadMain(t.Context(), KubeletNames...); got != nil || err == nil {
		t.Errorf("%+v, %v", got, err)
	}
	kerneltest.Tree(t, root, map[string]string{
		"90/cgroup": "3:pids:/system.slice/kubelet.service\n", "90/comm": "kubelet\n",
		"90/status": "Name:\tkubelet\nState:\tS (sleeping)\nTgid:\t90\nPid:\t90\nPPid:\t1\nThreads:\t1\n",
	})
	for what, others := range map[string][]int{"dear ones": pids, "more than are searched": slices.Repeat([]int{100}, maxSearched+1)} {
		r := h.Round()
		r.pids = func() ([]int, error) { return append(slices.Clone(others), 90), nil }
		if got, err := r.ReadMain(t.Context(), KubeletNames...); got == nil || got.PID != 90 || err != nil {
			t.Errorf("beside %s: %+v, %v", what, got, err)
		}
	}
	// Of too many outside of pods nobody knows all.
	kerneltest.Tree(t, root, map[string]string{"91/cgroup": "3:pids:/system.slice/x\n", "91/comm": "x\n"})
	r = h.Round()
	r.pids = func() ([]int, error) { return append(slices.Repeat([]int{91}, maxSearched+1), 90), nil }
	if got, err := r.ReadMain(t.Context(), KubeletNames...); got != nil || err == nil {
		t.Errorf("behind too many: %+v, %v", got, err)
	}
}
