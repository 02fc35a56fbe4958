package agent

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

func TestNextPeriod(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	pressure := func(cpu float64) *evidence.Pressure { return &evidence.Pressure{CPU: cpu, Memory: 100, IO: 100} }
	for _, tc := range []struct {
		name     string
		before   time.Duration
		pressure *evidence.Pressure
		cost     time.Duration
		want     time.Duration
	}{
		{"a node with room", 2 * s, pressure(0), 20 * ms, 2 * s},
		{"the kernel does not tell the pressure", 2 * s, nil, 20 * ms, 2 * s},
		{"a busy node", 2 * s, pressure(pressedFrom), 20 * ms, 2 * s},
		{"a starved one, where rounds cost next to nothing", 8 * s, pressure(100), 20 * ms, 2 * s},
		{"a pressed one", 4 * s, pressure(40), 300 * ms, 6 * s},
		{"a starved one", 8 * s, pressure(100), 400 * ms, 10 * s},
		{"it grows step by step", 2 * s, pressure(100), 400 * ms, 4 * s},
		{"and shrinks without", 10 * s, pressure(0), 100 * ms, 2 * s},
		{"rounds that cost", 4 * s, pressure(0), 600 * ms, 6 * s},
		{"rounds that cost more than there is", 10 * s, nil, 10 * s, 10 * s},
		{"at first", 0, pressure(100), 10 * s, 2 * s},
	} {
		if got := nextPeriod(tc.before, 2*s, 10*s, tc.pressure, tc.cost); got != tc.want {
			t.Errorf("%s: %s after %s, want %s", tc.name, got, tc.before, tc.want)
		}
	}
}

// A node of which the processors are pressed is read more rarely, but a pod that is at
// its deadline is not.
func TestRoundsGiveWay(t *testing.T) {
	readings := func(cpu float64, cost time.Duration) (periods []time.Duration, last []evidence.Pod, n int) {
		synctest.Test(t, func(t *testing.T) {
			b := newBench()
			b.Longest = 10 * time.Second
			b.pressure = &evidence.Pressure{CPU: cpu}
			var spent time.Duration
			b.Spent = func() time.Duration { return spent }
			b.gather = func(context.Context, *evidence.Pod) { spent += cost }
			b.set([]*corev1.Pod{terminating("a", time.Now(), 31)})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			b.Run(ctx)
			periods, last, n = b.periods, b.reports["a"], b.nodeReads
		})
		return periods, last, n
	}
	_, _, calm := readings(90, 10*time.Millisecond)
	for name, tc := range map[string]struct {
		cpu  float64
		cost time.Duration
	}{
		"pressure": {90, 400 * time.Millisecond},
		"cost":     {0, time.Second},
	} {
		periods, pods, n := readings(tc.cpu, tc.cost)
		if n > calm/3 {
			t.Errorf("%s: %d rounds in a minute, of %d without", name, n, calm)
		}
		if got := periods[len(periods)-1]; got != 10*time.Second {
			t.Errorf("%s: the period is %s", name, got)
		}
		// Whenever the pod ends within four seconds after its deadline, it was seen no more
		// than four seconds before.
		for end := time.Duration(0); end <= 4*time.Second; end += time.Second {
			if !slices.ContainsFunc(pods, func(p evidence.Pod) bool {
				before := p.Deadline.Add(end).Sub(p.Time)
				return before >= 0 && before <= 4*time.Second
			}) {
				t.Errorf("%s: a pod that ends %s after its deadline was not seen in the four seconds before", name, end)
			}
		}
	}
}

// containerd ends a command that deletes a container after ten seconds. However rare the rounds
// are, it is seen twice, and no more often once it is that old: it may last.
func TestFleetingCommandIsSeenTwice(t *testing.T) {
	const tries, pause = 4, 30 * time.Second
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		b.Longest = 10 * time.Second
		b.pressure = &evidence.Pressure{CPU: 90}
		var spent time.Duration
		b.Spent = func() time.Duration { return spent }
		begun := time.Now()
		seen := map[time.Time][]time.Duration{} // the ages of each command when it was read
		b.gather = func(_ context.Context, p *evidence.Pod) {
			spent += 400 * time.Millisecond
			age := time.Since(begun) % pause
			started := time.Now().Add(-age)
			if last := started.Sub(begun) >= (tries-1)*pause; age < 10*time.Second || last {
				p.RuntimeCommands = []evidence.RuntimeCommand{{Command: "delete", Tasks: []evidence.Task{{PID: 7, Probe: &evidence.Probe{Started: started}}}}}
				seen[started] = append(seen[started], age)
			}
		}
		b.set([]*corev1.Pod{terminating("a", time.Now().Add(-time.Minute), 0)})
		ctx, cancel := context.WithTimeout(t.Context(), tries*pause)
		defer cancel()
		b.Run(ctx)
		if len(seen) != tries {
			t.Errorf("%d commands were seen, want %d", len(seen), tries)
		}
		for started, ages := range seen {
			if len(ages) < 2 || ages[len(ages)-1] < 5*time.Second {
				t.Errorf("the command of %s was seen at the ages %s", started.Sub(begun), ages)
			}
			if old := slices.IndexFunc(ages, func(age time.Duration) bool { return age >= 10*time.Second }); old >= 0 && len(ages)-old > 3 {
				t.Errorf("one that lasts was seen at the ages %s", ages)
			}
		}
	})
}

// What a round on a pressed node was is forgotten with its last pod.
func TestPaceEndsWithTheLastPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		b.Longest = 10 * time.Second
		b.pressure = &evidence.Pressure{CPU: 100}
		var spent time.Duration
		b.Spent = func() time.Duration { return spent }
		b.gather = func(context.Context, *evidence.Pod) { spent += time.Second }
		b.set([]*corev1.Pod{terminating("a", time.Now(), 0)})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { b.Run(ctx); close(done) }()
		time.Sleep(31 * time.Second)
		b.set(nil)
		time.Sleep(3 * time.Second)
		b.set([]*corev1.Pod{terminating("b", time.Now(), 30)})
		time.Sleep(3 * time.Second)
		cancel()
		<-done
		if len(b.reports["b"]) == 0 {
			t.Error("a pod waits for its first reading after the node was idle")
		}
	})
}
