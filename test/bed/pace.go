package bed

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// The bounds of the pace.
const (
	// sideBySide and sideBySideEmulated bound the incidents on one node. With more
	// on an emulated one containerd takes many seconds for an answer, and what is
	// tested is the emulation. With more on the machine's own kernel, beside an emulator
	// on two processors, its processes are in states that no healthy node knows for long.
	sideBySide         = 24
	sideBySideEmulated = 6
	// waiters is how many incidents that only wait for minutes count as one that does something.
	waiters = 4
	// startOf is how long a pod takes to start on a node for which the grace
	// periods of the scenarios are made.
	startOf = 15 * time.Second
	// pressed is the share of time in which some task of a virtual machine waits
	// for a processor, from which on no more than startsPressed pods are started at
	// once there. Starting is what costs; an incident that hangs costs little.
	pressed       = 0.6
	startsPressed = 2
	// late is by how much longer than the quickest one a start may take.
	late = 6
	// unanswered is how old the last reading of a node may be that nothing more is
	// begun on; they come every two seconds.
	unanswered = 6 * time.Second
	// tick is how often an incident may begin.
	tick = 300 * time.Millisecond
)

// A pace lets as many incidents run side by side on a node as the node bears:
// one always, another when the node answers, its kubelet does not take much
// longer to start pods than it could, and, where the processors are pressed, few
// pods are being started.
type pace struct {
	node *Node
	// cluster ends when the cluster is used no more, whoever waits for a turn.
	cluster context.Context

	mu       sync.Mutex
	waiting  []*Turn
	running  map[*Turn]bool
	most     int
	alone    bool // the running one wants to be alone
	deciding bool
	quickest time.Duration
	recent   time.Duration // moving average
	starting map[*Turn]time.Time
	moved    time.Time
}

// A Wish is what an incident wants of its turn.
type Wish struct {
	// Order is its place in the queue: the lowest comes first.
	Order int
	// Alone is to have the node to itself.
	Alone bool
	// Hungry is to run beside no other hungry incident, on a virtual machine.
	Hungry bool
	// Waits says that the incident, when it has begun, waits for minutes and does little else.
	Waits bool
}

// A Turn is an incident that waits for its start, or has it.
type Turn struct {
	Wish
	// Node is where the incident has its turn.
	Node *Node

	taken atomic.Bool
	begin chan struct{}
}

func newPace(cluster context.Context, n *Node) *pace {
	return &pace{node: n, cluster: cluster, running: map[*Turn]bool{}, starting: map[*Turn]time.Time{}, moved: time.Now()}
}

// Wait waits until one of some nodes bears one more incident, or has none left beside one
// that wants to be alone.
func Wait(ctx context.Context, nodes []*Node, wish Wish) (*Turn, error) {
	t := &Turn{Wish: wish, begin: make(chan struct{})}
	for _, n := range nodes {
		n.pace.queue(t)
	}
	select {
	case <-t.begin:
		return t, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for a turn on one of %d nodes: %w", len(nodes), context.Cause(ctx))
	}
}

func (p *pace) queue(t *Turn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting = append(p.waiting, t)
	slices.SortStableFunc(p.waiting, func(a, b *Turn) int { return a.Order - b.Order })
	if !p.deciding {
		p.deciding = true
		go p.decide(p.cluster)
	}
}

// begins gives an incident its turn on the pace's node, unless another node has.
func (t *Turn) begins(p *pace) bool {
	if !t.taken.CompareAndSwap(false, true) {
		return false
	}
	t.Node = p.node
	return true
}

// starts notes that the node has been prepared and the pod is made now.
func (t *Turn) starts() {
	p := t.Node.pace
	p.mu.Lock()
	defer p.mu.Unlock()
	p.starting[t] = time.Now()
}

// started notes how long the incident's pod took to start.
func (t *Turn) started(took time.Duration) {
	p := t.Node.pace
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.starting, t)
	p.measured(took)
}

func (p *pace) measured(took time.Duration) {
	if p.quickest == 0 || took < p.quickest {
		p.quickest = took
	}
	if p.recent == 0 {
		p.recent = took
	}
	p.recent = (2*p.recent + took) / 3
}

// Done lets the next one begin.
func (t *Turn) Done() {
	p := t.Node.pace
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.starting, t)
	delete(p.running, t)
	if t.Alone {
		p.alone = false
	}
}

// SideBySide returns how many incidents ran on the node at once, at most.
func (n *Node) SideBySide() int {
	n.pace.mu.Lock()
	defer n.pace.mu.Unlock()
	return n.pace.most
}

// Slowness returns how slow the node is now, compared to the one that the scenarios'
// grace periods are made for: from 0.5, where they can be shorter, to 8.
func (n *Node) Slowness() float64 {
	p := n.pace
	p.mu.Lock()
	defer p.mu.Unlock()
	took := p.recent
	for _, since := range p.starting {
		took = max(took, time.Since(since))
	}
	if took == 0 {
		return 1
	}
	return min(8, max(0.5, took.Seconds()/startOf.Seconds()))
}

// grace returns a grace period in seconds on this node. Short ones, of incidents in
// which not even SIGKILL helps, become no shorter.
func (n *Node) grace(seconds int64) int64 {
	slowness := n.Slowness()
	if seconds <= 10 {
		slowness = max(1, slowness)
	}
	return int64(math.Ceil(float64(seconds) * slowness))
}

// decide gives turns until nobody waits.
func (p *pace) decide(ctx context.Context) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	lines := p.watch(ctx)
	tick := time.NewTicker(tick)
	defer tick.Stop()
	begun := time.Now() // of the incidents that are queued now, all come first
	var total, share, at = time.Duration(0), 1.0, time.Time{}
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-lines:
			if !at.IsZero() {
				share = float64(now-total) / float64(time.Since(at))
			}
			total, at = now, time.Now()
			continue
		case <-tick.C:
		}
		if time.Since(begun) < time.Second {
			continue
		}
		p.mu.Lock()
		p.waiting = slices.DeleteFunc(p.waiting, func(t *Turn) bool { return t.taken.Load() })
		// The pressure that a native node shows is the whole machine's.
		quiet := time.Since(at) < unanswered && (!p.node.Emulated() || share < pressed || len(p.starting) < startsPressed)
		if len(p.waiting) == 0 {
			p.deciding = false
			p.mu.Unlock()
			return
		}
		i := p.next()
		if i >= 0 && (len(p.running) == 0 || quiet && !p.alone && !p.waiting[i].Alone && p.busy() < p.bound() && !p.late()) {
			next := p.waiting[i]
			p.waiting = slices.Delete(p.waiting, i, i+1)
			if next.begins(p) {
				p.running[next] = true
				p.starting[next] = time.Now()
				p.alone = next.Alone
				p.most = max(p.most, len(p.running))
				close(next.begin)
				share = 1 // What it costs shows from the next reading on.
			}
		}
		p.mu.Unlock()
	}
}

// next returns which of those that wait comes next, -1 for none: the first, but for hungry ones while one of them runs on a virtual machine.
func (p *pace) next() int {
	full := p.node.Emulated() && p.hungry()
	return slices.IndexFunc(p.waiting, func(t *Turn) bool { return !t.Hungry || !full })
}

// hungry reports whether a hungry incident runs.
func (p *pace) hungry() bool {
	for t := range p.running {
		if t.Hungry {
			return true
		}
	}
	return false
}

// busy returns how many incidents run, of those that only wait a part.
func (p *pace) busy() int {
	busy, waiting := 0, 0
	for t := range p.running {
		if _, starts := p.starting[t]; t.Waits && !starts {
			waiting++
		} else {
			busy++
		}
	}
	return busy + waiting/waiters
}

// bound returns how many incidents may be busy at once.
func (p *pace) bound() int {
	if p.node.Emulated() {
		return sideBySideEmulated
	}
	return sideBySide
}

// late reports whether pods take much longer to start than they could.
func (p *pace) late() bool {
	// A second more or less means nothing.
	limit := late*p.quickest + 5*time.Second
	if p.quickest == 0 {
		return len(p.starting) > 0 // the first start is a measurement
	}
	for _, since := range p.starting {
		if time.Since(since) > limit {
			return true
		}
	}
	return len(p.starting) > 0 && p.recent > limit
}

// waited is a shell script that prints it. A kernel that counts no pressure counts for how long all tasks together have waited
// (Documentation/scheduler/sched-stats.rst), which is no less.
const waited = `all() { awk '/^cpu/ { ns += $9 } END { printf "some total=%d\n", ns / 1000 }' /proc/schedstat; }
while cat /proc/pressure/cpu 2>/dev/null || all; do sleep 2; done`

// watch returns a channel that gets, every two seconds, for how long so far some
// task of the node has waited for a processor.
func (p *pace) watch(ctx context.Context) <-chan time.Duration {
	lines := make(chan time.Duration)
	go func() {
		for ctx.Err() == nil {
			// An error is a node that does not answer; it is asked again.
			_ = p.node.follow(ctx, waited, func(line string) {
				_, number, _ := strings.Cut(line, "total=")
				us, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
				if err != nil || !strings.HasPrefix(line, "some ") {
					return
				}
				select {
				case lines <- time.Duration(us) * time.Microsecond:
				case <-ctx.Done():
				}
			})
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}()
	return lines
}
