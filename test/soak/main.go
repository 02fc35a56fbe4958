// Soak runs incidents at random on the test cluster, several side by side, and
// restarts the agent, containerd and the kubelet meanwhile. `make soak FOR=1h` boots
// the cluster and runs it. In the end it tells how many verdicts were right, wrong and
// lost, and what the agent took.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodeagent-io/nodeagent/test/bed"
	"github.com/nodeagent-io/nodeagent/test/scenario"
)

const (
	// sideBySide is how many incidents run at a time.
	sideBySide = 8
	// Disturbances of a node come between calm/2 and 3*calm/2 apart, so that about half of
	// the incidents see one.
	calm = 3 * time.Minute
	// ends is how long the last incidents may take to end.
	ends = 15 * time.Minute
)

// disturbances restart parts of a node. The agent's pod is deleted, as by an update of its
// DaemonSet: a process that is killed again and again is started later each time.
var disturbances = map[string]func(context.Context, *bed.Node) error{
	"the agent": func(ctx context.Context, n *bed.Node) error {
		p, err := n.AgentPod(ctx)
		if err != nil {
			return err
		}
		return n.API.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{})
	},
	"containerd":  restart("containerd"),
	"the kubelet": restart("kubelet"),
}

// restart ends a program of the node, which starts it again.
func restart(program string) func(context.Context, *bed.Node) error {
	return func(ctx context.Context, n *bed.Node) error {
		_, err := n.Exec(ctx, "pkill -x "+program)
		return err
	}
}

// leftOut are scenarios that a restart breaks: a containerd that is started waits for the
// stopped shim, a kubelet that is started unmounts the volume in another way, and neither waits for
// a postStart hook any more.
var leftOut = []string{"shim-stopped", "volume-busy", "post-start-hangs", "post-start-sleeps", "post-start-http-hangs"}

func main() {
	length := flag.Duration("for", time.Hour, "how long incidents begin")
	seed := flag.Uint64("seed", uint64(time.Now().UnixNano()), "of the choices")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := soak(ctx, *length, *seed); err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}

// A tally counts what has become of the incidents.
type tally struct {
	mu                          sync.Mutex
	right, silent, wrong, taken int
	lost, undecided, failed     int
	disturbed                   map[string]int
	last                        map[string]time.Time // when a node was disturbed last
	peak                        int64                // bytes, of the agent's resident memory
	restarts                    int                  // of the agent that nobody has asked for
}

func (t *tally) count(n *int, format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	*n++
	if format != "" {
		say(format, args...)
	}
}

func say(format string, args ...any) {
	fmt.Printf(time.Now().Format(time.TimeOnly)+" "+format+"\n", args...)
}

func soak(ctx context.Context, length time.Duration, seed uint64) error {
	c, err := bed.Find(ctx)
	if err != nil {
		return err
	}
	all := slices.DeleteFunc(scenario.All(), func(s bed.Scenario) bool {
		return s.Alone || slices.Contains(leftOut, s.Name) || len(c.For(s)) == 0
	})
	if err := bed.Images(ctx, c, all); err != nil {
		return err
	}
	if err := bed.Install(ctx, c); err != nil {
		return err
	}
	say("%d scenarios for %s, seed %d", len(all), length, seed)
	begun := time.Now()
	t := &tally{disturbed: map[string]int{}, last: map[string]time.Time{}}
	begins, done := context.WithTimeout(ctx, length)
	defer done()
	runs, cancel := context.WithTimeout(ctx, length+ends)
	defer cancel()

	var wg sync.WaitGroup
	for _, n := range c.Nodes {
		wg.Go(func() { t.disturb(begins, n, rand.New(rand.NewPCG(seed, 0))) }) //nolint:gosec // no secret
		wg.Go(func() { t.watch(begins, n) })
	}
	// A scenario's pod and files have its name, so it runs once at a time.
	var mu sync.Mutex
	running := map[string]bool{}
	dice := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // no secret
	next := func() bed.Scenario {
		mu.Lock()
		defer mu.Unlock()
		for {
			if s := all[dice.IntN(len(all))]; !running[s.Name] {
				running[s.Name] = true
				return s
			}
		}
	}
	for range min(sideBySide, len(all)) {
		wg.Go(func() {
			for begins.Err() == nil {
				s := next()
				t.incident(runs, c.For(s)[0][0], s)
				mu.Lock()
				delete(running, s.Name)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	fmt.Printf(`
%s of incidents: %d verdicts right, %d innocent and silent; %d wrong, %d lost; Unknown before the cause: %d
beside a restart %d without a verdict; %d could not be run; restarted: %v
restarts of the agent that nobody asked for: %d; its resident memory at most %d MiB
`, time.Since(begun).Round(time.Second), t.right, t.silent, t.wrong, t.lost, t.undecided, t.taken, t.failed, t.disturbed, t.restarts, t.peak>>20)
	if t.wrong > 0 || t.lost > 0 || t.restarts > 0 {
		return errors.New("there were wrong or lost verdicts, or the agent has ended by itself")
	}
	return ctx.Err()
}

// incident runs a scenario and counts what was said of it. A verdict that never came is
// lost, unless something was restarted meanwhile: that ends many a fault, and takes what
// the agent had read before the deletion.
func (t *tally) incident(ctx context.Context, n *bed.Node, s bed.Scenario) {
	begun := time.Now()
	r := &bed.Run{Scenario: s, Node: n}
	err := r.Start(ctx)
	if err == nil {
		err = r.Delete(ctx)
	}
	if err != nil {
		t.count(&t.failed, "%s could not be run: %s", s.Name, firstLine(err))
		t.discard(ctx, r)
		return
	}
	told := s.Cause == ""
	if !told {
		verdict := r.AwaitVerdict(ctx)
		if told = verdict == nil; !told {
			t.count(t.either(&t.lost, n, begun), "%s: %s", s.Name, firstLine(verdict))
		}
	}
	if err := r.Mend(ctx); err != nil {
		t.count(&t.failed, "%s does not end: %s", s.Name, firstLine(err))
		t.discard(ctx, r)
		return
	}
	events, err := r.Events(ctx)
	if err != nil {
		t.count(&t.failed, "%s: %s", s.Name, firstLine(err))
		return
	}
	var wrong []string
	undecided := false
	for _, said := range append(slices.Clone(r.Wrong), notes(events)...) {
		switch reason, _, _ := strings.Cut(said, ":"); {
		case reason == s.Cause:
		case reason == unknown && s.Cause != "": // nobody is accused
			undecided = true
		default:
			wrong = append(wrong, said)
		}
	}
	if undecided {
		t.count(&t.undecided, "")
	}
	switch {
	case len(wrong) > 0:
		t.count(&t.wrong, "%s: WRONG, want %q: %s", s.Name, s.Cause, strings.Join(wrong, "\n  "))
	case s.Cause == "":
		t.count(&t.silent, "")
	case told:
		t.count(&t.right, "")
	}
}

// unknown is the reason of a pod that is stuck without a known cause.
const unknown = "Unknown"

// notes are the reasons and words of Events.
func notes(events []eventsv1.Event) []string {
	var out []string
	for i := range events {
		out = append(out, events[i].Reason+": "+events[i].Note)
	}
	return out
}

// either returns the number that counts what did not come true: that of what a restart
// explains, or else n.
func (t *tally) either(n *int, node *bed.Node, begun time.Time) *int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last[node.Name].After(begun) {
		return &t.taken
	}
	return n
}

// discard heals what is left of a run, so that it harms no other.
func (t *tally) discard(ctx context.Context, r *bed.Run) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	if err := r.Discard(ctx); err != nil {
		say("%s: clean up: %s", r.Name, firstLine(err))
	}
	if r.Pod == nil {
		return
	}
	_ = bed.Until(ctx, r.Name+" to go", func() (bool, string) { // the next run of it fails then
		_, err := r.Current()
		return apierrors.IsNotFound(err), "still there"
	})
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// disturb restarts parts of the node at random.
func (t *tally) disturb(ctx context.Context, n *bed.Node, dice *rand.Rand) {
	var names []string
	for name := range disturbances {
		names = append(names, name)
	}
	slices.Sort(names)
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(calm/2 + time.Duration(dice.Int64N(int64(calm)))):
		}
		name := names[dice.IntN(len(names))]
		if err := disturbances[name](ctx, n); err == nil {
			say("%s of %s is restarted", name, n.Name)
			t.mu.Lock()
			t.disturbed[name]++
			t.last[n.Name] = time.Now()
			t.mu.Unlock()
		}
	}
}

// watch notes the agent's memory, and how often its container has ended: nobody ends it
// but with its pod.
func (t *tally) watch(ctx context.Context, n *bed.Node) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(5 * time.Second):
		}
		out, err := n.Exec(ctx, `p=$(pgrep -o -x nodeagent) && awk '/^VmHWM/{print $2}' /proc/$p/status`)
		var kib int64
		if _, scanErr := fmt.Sscan(out, &kib); err != nil || scanErr != nil {
			continue // it is being started
		}
		p, err := n.AgentPod(ctx)
		if err != nil || len(p.Status.ContainerStatuses) == 0 {
			continue
		}
		t.mu.Lock()
		t.peak = max(t.peak, kib<<10)
		t.restarts = max(t.restarts, int(p.Status.ContainerStatuses[0].RestartCount))
		t.mu.Unlock()
	}
}
