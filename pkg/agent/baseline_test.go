package agent

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

func running(uid types.UID) *corev1.Pod {
	p := &corev1.Pod{}
	p.Namespace, p.Name, p.UID = "ns", string(uid), uid
	p.Status.Phase = corev1.PodRunning
	return p
}

// What first processes do with signals is read while the pod is young, rarely when it
// is old, and not any more once it terminates; its evidence then has the last reading
// that is from before the deletion.
func TestBaselines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		ended := running("ended")
		ended.Status.Phase = corev1.PodSucceeded
		b.set([]*corev1.Pod{running("a"), ended})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go b.Run(ctx)
		begin := time.Now()
		time.Sleep(31 * time.Second)
		synctest.Wait()
		if n := b.baselinesOf("a"); n != 8 { // after 0, 4, 8 and so on to 28 seconds
			t.Errorf("read %d times in the first 31 seconds", n)
		}
		time.Sleep(2*time.Hour - 31*time.Second)
		synctest.Wait()
		if n := b.baselinesOf("a"); n < 22 || n > 28 { // 15 in the first 20 minutes, then 6 in an hour
			t.Errorf("read %d times in two hours", n)
		}
		if n := b.baselinesOf("ended"); n != 0 {
			t.Errorf("a pod that has ended was read %d times", n)
		}

		last := b.Before.Of("a", time.Now().Add(time.Hour))
		before := b.Before.Of("a", last.Read.Add(2*time.Second)) // within the margin of clocks
		if before == nil || !before.Read.Before(last.Read) {
			t.Errorf("a reading that may be from after the deletion is taken for one from before: %v", before)
		}
		if got := last.Tasks[0].SignalsSince; got.After(begin.Add(time.Second)) {
			t.Errorf("the same dispositions are known since %s only", got.Sub(begin))
		}
		if got := b.Before.Of("a", begin); got != nil {
			t.Errorf("before it was read the pod was known by %v", got)
		}

		n := b.baselinesOf("a")
		gone := terminating("a", time.Now(), 30)
		gone.Status.Phase = corev1.PodRunning
		b.set([]*corev1.Pod{gone})
		time.Sleep(25 * time.Minute)
		synctest.Wait()
		if b.baselinesOf("a") != n {
			t.Error("a pod that terminates was read")
		}
		reports := b.reports["a"]
		if len(reports) == 0 || reports[0].Before == nil || !reports[0].Before.Read.Equal(last.Read) {
			t.Fatal("the evidence lacks what was known before the deletion")
		}
		b.set(nil)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if len(b.Before.pods) != 0 {
			t.Error("a pod that has gone is kept")
		}
	})
}

// A reading that the kernel keeps does not keep other pods from being read, is not begun again, and counts when it returns.
func TestBaselinesThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		b.hangs = map[string]chan struct{}{}
		pods := []*corev1.Pod{running("a")}
		for i := range maxHungBaselines {
			uid := fmt.Sprint("hangs ", i)
			b.hangs[uid] = make(chan struct{})
			pods = append(pods, running(types.UID(uid)))
		}
		b.set(append(pods, running("z")))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go b.Run(ctx)
		time.Sleep((maxHungBaselines + 1) * (baselineGivenUp + soon))
		synctest.Wait()
		before := map[string]int{}
		for _, uid := range []string{"a", "z"} {
			if before[uid] = b.baselinesOf(uid); before[uid] == 0 {
				t.Errorf("%s was not read", uid)
			}
		}
		time.Sleep(2 * rarely)
		synctest.Wait()
		for _, uid := range []string{"a", "z"} {
			if n := b.baselinesOf(uid); n <= before[uid] {
				t.Errorf("%s was read %d times, and not since", uid, n)
			}
		}
		for uid, hangs := range b.hangs {
			if n := b.baselinesOf(uid); n != 1 {
				t.Errorf("%s was read %d times", uid, n)
			}
			close(hangs)
		}
		synctest.Wait()
		for uid := range b.hangs {
			if b.Before.Of(uid, time.Now().Add(time.Hour)) == nil {
				t.Errorf("what was read of %s is lost", uid)
			}
		}
		b.mu.Lock()
		hung := b.hangs
		b.hangs = nil
		b.mu.Unlock()
		time.Sleep(2 * rarely)
		synctest.Wait()
		for uid := range hung {
			if n := b.baselinesOf(uid); n < 2 {
				t.Errorf("%s was not read again", uid)
			}
		}
	})
}

// A pod of which an init container runs is pending: what its processes do with signals is read
// too, and as often as of a young pod when the others have been started.
func TestBaselinesOfPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		p := running("p")
		p.Status.Phase = corev1.PodPending
		b.set([]*corev1.Pod{p})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go b.Run(ctx)
		time.Sleep(15 * time.Minute)
		synctest.Wait()
		n := b.baselinesOf("p")
		if n < 14 || n > 18 {
			t.Errorf("while it was pending it was read %d times", n)
		}
		b.set([]*corev1.Pod{running("p")})
		time.Sleep(15 * time.Second)
		synctest.Wait()
		if n = b.baselinesOf("p") - n; n != 4 { // after 0, 4, 8 and 12 seconds, or soon after each
			t.Errorf("when it ran it was read %d times in 15 seconds", n)
		}
	})
}
