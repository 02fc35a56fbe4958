package tape

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/nodeagent-io/nodeagent/pkg/agent"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/kube"
	"github.com/nodeagent-io/nodeagent/pkg/node"
	"github.com/nodeagent-io/nodeagent/pkg/report"
	"github.com/nodeagent-io/nodeagent/pkg/verdict"
)

// A player hands an agent what one run of the recorded one was handed, at the same times.
type player struct {
	lines []Line // in order
	api   *api

	mu      sync.Mutex
	began   time.Time     // when the run was begun here, which is when it has seen the first line
	stepped time.Duration // by how much the clock was set forward since
}

// replay runs an agent, and another one for each later run, and returns what they have written.
func replay(t *testing.T, lines []Line) []told {
	t.Helper()
	slices.SortStableFunc(lines, func(a, b Line) int { return cmp.Or(cmp.Compare(a.Run, b.Run), cmp.Compare(a.Up, b.Up)) })
	server := &api{conditions: make(map[types.UID]corev1.PodCondition), events: make(map[string]eventsv1.Event)}
	for begin := 0; begin < len(lines); {
		end := begin
		for end < len(lines) && lines[end].Run == lines[begin].Run {
			end++
		}
		play(t, lines[begin:end], server)
		begin = end
	}
	return server.told
}

// after is for how long a run goes on after the last line.
const after = 3 * time.Second

func play(t *testing.T, lines []Line, server *api) {
	t.Helper()
	time.Sleep(time.Until(lines[0].At))
	p := &player{lines: lines, api: server, began: time.Now()}
	client, err := kube.New(&rest.Config{Host: "http://api", QPS: -1, Transport: server})
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	a := &agent.Agent{
		Watch: &watch{player: p}, Reader: &source{player: p, round: -1}, Skew: p.skew, Elapsed: p.elapsed,
		Setters:   &agent.Setters{Ask: p.metadata},
		Failures:  &agent.Failures{Ask: p.failures, AskAll: p.events, Skew: p.skew, Node: p.nodeName()},
		Readiness: &agent.Readiness{Ask: p.ready},
		Diagnose:  cause.Diagnose,
		Cases:     new(verdict.Cases),
		Budget:    &verdict.Budget{PerMinute: 20},

		InGraceAfter: time.Minute, LongHook: 90 * time.Second,

		Period: 2 * time.Second, Longest: 10 * time.Second, Timeout: 8 * time.Second, Workers: 8,
		Log: log,
	}
	metrics := report.NewMetrics("tape", cause.Who(), time.Now, a.Cases, func() report.Counts { return report.Counts{} })
	reporter := report.New(client, p.nodeName(), metrics, log)
	a.Monitor, a.Report, a.ReportGone, a.ReportRemains = monitor{metrics, p}, reporter.Report, reporter.ReportGone, reporter.ReportRemains
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var ahead time.Duration // by how much the clock is set forward
	for i := range lines {
		ahead = max(ahead, p.ahead(i))
	}
	time.AfterFunc(lines[len(lines)-1].Up-lines[0].Up+ahead+after, cancel)
	a.Run(ctx)
}

// elapsed returns Up at a moment.
func (p *player) elapsed(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.up(now)
}

func (p *player) up(now time.Time) time.Duration { return p.lines[0].Up + now.Sub(p.began) - p.stepped }

// ahead returns by how much the clock was set forward before a line.
func (p *player) ahead(line int) time.Duration {
	l, first := &p.lines[line], &p.lines[0]
	return l.At.Sub(first.At) - (l.Up - first.Up)
}

// sleep returns when the line was written.
func (p *player) sleep(ctx context.Context, l *Line) {
	select {
	case <-ctx.Done():
	case <-time.After(l.Up - p.elapsed(time.Now())):
	}
}

// last returns the index of the last line that is like that and was written until then; -1 for none.
func (p *player) last(until time.Duration, is func(*Line) bool) int {
	for i := len(p.lines) - 1; i >= 0; i-- {
		if l := &p.lines[i]; l.Up <= until && is(l) {
			return i
		}
	}
	return -1
}

// next returns the index of the first line that is like that behind another one; -1 for none.
func (p *player) next(behind int, is func(*Line) bool) int {
	for i := behind + 1; i < len(p.lines); i++ {
		if is(&p.lines[i]) {
			return i
		}
	}
	return -1
}

func (p *player) nodeName() string {
	if i := p.next(-1, isNode); i >= 0 {
		return p.lines[i].Node.Name
	}
	return ""
}

func isNode(l *Line) bool { return l.Node != nil }

// A monitor has the clock set where it was between two rounds.
type monitor struct {
	*report.Metrics
	p *player
}

// Ticked implements agent.Monitor. A clock is set forward only: time does not go back here.
func (m monitor) Ticked(now time.Time, terminating int, period time.Duration) {
	m.Metrics.Ticked(now, terminating, period)
	p := m.p
	p.mu.Lock()
	up := p.up(now)
	var step time.Duration
	if i := p.next(p.last(up, isNode), isNode); i >= 0 && p.lines[i].Up-up < soon+2*time.Second { // no reading of after the step is had before
		step = p.ahead(i) - p.stepped
	}
	if step > time.Second {
		p.stepped += step
	}
	p.mu.Unlock()
	if step > time.Second {
		time.Sleep(step)
	}
}

// A watch has the pods as the tape has them, with the conditions that were written here.
type watch struct {
	*player
	gone int // the line of the last one that is gone
}

// All implements agent.Watch.
func (w *watch) All() []*corev1.Pod {
	up := w.elapsed(time.Now())
	now := make(map[string]*corev1.Pod)
	for i := range w.lines {
		switch l := &w.lines[i]; {
		case l.Up > up:
		case l.Pod != nil:
			now[l.UID] = l.Pod
		case l.Gone != nil:
			delete(now, l.UID)
		}
	}
	out := make([]*corev1.Pod, 0, len(now))
	for _, p := range now {
		out = append(out, w.api.with(p))
	}
	slices.SortFunc(out, func(a, b *corev1.Pod) int { return cmp.Compare(a.UID, b.UID) })
	return out
}

// Round implements agent.Watch.
func (w *watch) Round() (terminating, gone []*corev1.Pod) {
	for _, p := range w.All() {
		if p.DeletionTimestamp != nil {
			terminating = append(terminating, p)
			w.api.begin(time.Now())
		}
	}
	for up := w.elapsed(time.Now()); w.gone < len(w.lines) && w.lines[w.gone].Up <= up; w.gone++ {
		if p := w.lines[w.gone].Gone; p != nil {
			gone = append(gone, w.api.with(p))
			w.api.tell("gone")
		}
	}
	return terminating, gone
}

// A source has the readings of the tape.
type source struct {
	*player
	round int // the line of the last round; -1 for none
}

// soon is how much later than the agent asks for it a reading may begin.
const soon = 6 * time.Second

// Round implements node.Source: it is the last round that the tape has and that was not had yet, or the next one if that
// is soon. When there is none time stands still.
func (s *source) Round(ctx context.Context, ask node.Ask) node.Round {
	up := s.elapsed(time.Now())
	at := s.last(up, isNode)
	if i := s.next(max(at, s.round), isNode); at <= s.round && i >= 0 && s.lines[i].Up-up < soon {
		at = i
	}
	at = max(at, s.round)
	if at < 0 {
		const why = "not on the tape"
		none := evidence.Node{Containerd: evidence.ContainerdService{Error: why}, Kubelet: evidence.KubeletService{Error: why}}
		return &round{source: s, begins: -1, node: none}
	}
	s.round = at
	s.sleep(ctx, &s.lines[at])
	r := &round{source: s, begins: at, ends: s.next(at, isNode), node: *clone(s.lines[at].Node)}
	r.node.Since(ask.Earlier)
	return r
}

// Baseline implements node.Source.
func (s *source) Baseline(_ context.Context, uid string) *evidence.Baseline {
	i := s.last(s.elapsed(time.Now()), func(l *Line) bool { return l.Baseline != nil && l.UID == uid })
	if i < 0 {
		return nil
	}
	return clone(s.lines[i].Baseline)
}

// PodDirs implements node.Source.
func (s *source) PodDirs(context.Context) ([]string, error) {
	return nil, errors.New("not on the tape")
}

// A round is one of the tape.
type round struct {
	*source
	begins, ends int // the lines of it and of the next one; -1 for none
	node         evidence.Node
}

// Node implements node.Round.
func (r *round) Node() evidence.Node { return r.node }

// Pod implements node.Round: it is the reading of that round, or the last one before when there is none.
func (r *round) Pod(ctx context.Context, seed, earlier *evidence.Pod) *evidence.Pod {
	isLook := func(l *Line) bool { return l.Look != nil && l.UID == seed.UID }
	at := r.next(r.begins, isLook)
	if at < 0 || r.ends >= 0 && at > r.ends {
		at = r.last(r.elapsed(time.Now()), isLook)
	}
	var p *evidence.Pod
	if at < 0 {
		p = clone(seed)
		p.Time = time.Now()
		p.KeepDeadline(earlier)
		for _, source := range []evidence.Source{evidence.Processes, evidence.Cgroups, evidence.Mounts, evidence.Volumes, evidence.Containers, evidence.Shims} {
			p.Lack(source, "not on the tape")
		}
	} else {
		r.sleep(ctx, &r.lines[at])
		from := *seed
		from.KeepDeadline(earlier)
		p = over(&from, r.lines[at].Look)
	}
	p.Node = r.node
	p.Since(earlier)
	return p
}

// over returns a reading that was begun with a seed of now.
func over(seed *evidence.Pod, l *Look) *evidence.Pod {
	out, from, to := fields(seed), fields(l.Seed), fields(l.Read)
	for name, v := range to {
		if !bytes.Equal(v, from[name]) {
			out[name] = v
		}
	}
	for name := range from {
		if _, ok := to[name]; !ok {
			delete(out, name)
		}
	}
	return recode[evidence.Pod](out)
}

func fields(p *evidence.Pod) map[string]json.RawMessage {
	return *recode[map[string]json.RawMessage](p)
}

// clone returns a copy that shares nothing.
func clone[T any](v *T) *T { return recode[T](v) }

func recode[T any](v any) *T {
	text, err := json.Marshal(v)
	out := new(T)
	if err == nil {
		err = json.Unmarshal(text, out)
	}
	if err != nil {
		panic(err)
	}
	return out
}

func (p *player) skew() (least, most time.Duration, ok bool) {
	i := p.last(p.elapsed(time.Now()), func(l *Line) bool { return l.Skew != nil })
	if i < 0 {
		return 0, 0, false
	}
	s := p.lines[i].Skew
	return s[0], s[1], true
}

// longestAnswer is for how long the agent waits for one.
const longestAnswer = 10 * time.Second

// heard returns the last answer of the API server until now. Where there is none yet, the one that comes is waited for: it was asked for now.
func heard[T any](ctx context.Context, p *player, of func(*Line) *Answer[T]) (got T, err error) {
	is := func(l *Line) bool { return of(l) != nil }
	i := p.last(p.elapsed(time.Now()), is)
	if i < 0 {
		if i = p.next(-1, is); i < 0 || p.lines[i].Up-p.elapsed(time.Now()) > longestAnswer {
			return got, errors.New("not on the tape")
		}
		p.sleep(ctx, &p.lines[i])
	}
	if a := of(&p.lines[i]); a.Error != "" {
		return got, errors.New(a.Error)
	} else {
		return *clone(&a.Got), nil
	}
}

func (p *player) failures(ctx context.Context, _ string, uid types.UID) ([]eventsv1.Event, error) {
	return heard(ctx, p, func(l *Line) *Answer[[]eventsv1.Event] {
		if l.UID != string(uid) {
			return nil
		}
		return l.Failures
	})
}

func (p *player) events(ctx context.Context, _ string, uid types.UID) ([]eventsv1.Event, error) {
	return heard(ctx, p, func(l *Line) *Answer[[]eventsv1.Event] {
		if l.UID != string(uid) {
			return nil
		}
		return l.Events
	})
}

func (p *player) ready(ctx context.Context) (*corev1.NodeCondition, error) {
	return heard(ctx, p, func(l *Line) *Answer[*corev1.NodeCondition] { return l.Ready })
}

func (p *player) metadata(ctx context.Context, _, _ string) (*metav1.PartialObjectMetadata, error) {
	return heard(ctx, p, func(l *Line) *Answer[*metav1.PartialObjectMetadata] { return l.Metadata })
}
