package tape

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodeagent-io/nodeagent/pkg/agent"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/node"
)

// A Recorder writes what an agent is handed into files of a directory, one for the node and one for each pod.
type Recorder struct {
	dir   string
	log   *slog.Logger
	began time.Time

	mu    sync.Mutex
	files map[string]*os.File
	// versions are those of the objects that were written last, by UID.
	versions map[string]string
	skew     [2]time.Duration
}

// Record has all that the agent is handed from now on written into a directory, behind what earlier agents have written.
func Record(dir string, a *agent.Agent, r *node.Reader, log *slog.Logger) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	rec := &Recorder{dir: dir, log: log, began: time.Now(), files: make(map[string]*os.File), versions: make(map[string]string)}
	r.Recorder = rec
	a.Reader = recordedSource{r, rec}
	a.Watch = &recordedWatch{a.Watch, rec, a.Skew}
	a.Failures.Ask = rec.failures(a.Failures.Ask)
	a.Failures.AskAll = rec.events(a.Failures.AskAll)
	a.Readiness.Ask = rec.ready(a.Readiness.Ask)
	a.Setters.Ask = rec.metadata(a.Setters.Ask)
	return nil
}

// named is a UID that can be the name of a file.
var named = regexp.MustCompile(`^[0-9a-f-]{1,64}$`)

// nodeFile is the name of the file about the node.
const nodeFile = "node"

// write appends a line to the file of what it is about.
func (r *Recorder) write(l Line) {
	now := time.Now()
	l.Run, l.At, l.Up = r.began.UnixNano(), now.Round(0), now.Sub(r.began)
	name := nodeFile
	if l.UID != "" {
		name = l.UID
	}
	text, err := json.Marshal(&l)
	if err == nil && !named.MatchString(name) && name != nodeFile {
		err = errors.New("the UID is none")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.files[name]
	if err == nil && f == nil {
		f, err = os.OpenFile(filepath.Join(r.dir, name), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		r.files[name] = f
	}
	if err == nil {
		_, err = f.Write(append(text, '\n'))
	}
	if err != nil {
		r.log.Error("record a tape", "uid", l.UID, "error", err)
	}
}

// Node implements node.Recorder.
func (r *Recorder) Node(n *evidence.Node) { r.write(Line{Node: n}) }

// Pod implements node.Recorder. What the pods share is in a line of its own.
func (r *Recorder) Pod(seed, read *evidence.Pod) {
	from, to := *seed, *read
	from.Node, to.Node = evidence.Node{}, evidence.Node{}
	r.write(Line{UID: read.UID, Look: &Look{Seed: &from, Read: &to}})
}

// A recordedSource records what is read of pods that run.
type recordedSource struct {
	node.Source
	r *Recorder
}

func (s recordedSource) Baseline(ctx context.Context, uid string) *evidence.Baseline {
	b := s.Source.Baseline(ctx, uid)
	if b != nil {
		s.r.write(Line{UID: uid, Baseline: b})
	}
	return b
}

// A recordedWatch records the objects of pods as they change.
type recordedWatch struct {
	agent.Watch
	r    *Recorder
	skew func() (least, most time.Duration, ok bool)
}

func (w *recordedWatch) All() []*corev1.Pod {
	all := w.Watch.All()
	for _, p := range all {
		w.r.changed(p)
	}
	return all
}

func (w *recordedWatch) Round() (terminating, gone []*corev1.Pod) {
	if least, most, ok := w.skew(); ok {
		if now := [2]time.Duration{least, most}; now != w.r.skew {
			w.r.skew = now
			w.r.write(Line{Skew: &now})
		}
	}
	terminating, gone = w.Watch.Round()
	for _, p := range terminating {
		w.r.changed(p)
	}
	for _, p := range gone {
		w.r.write(Line{UID: string(p.UID), Gone: p})
	}
	return terminating, gone
}

// changed records an object unless it is the one that was recorded last.
func (r *Recorder) changed(p *corev1.Pod) {
	r.mu.Lock()
	same := r.versions[string(p.UID)] == p.ResourceVersion
	r.versions[string(p.UID)] = p.ResourceVersion
	r.mu.Unlock()
	if !same {
		r.write(Line{UID: string(p.UID), Pod: p})
	}
}

func answer[T any](got T, err error) *Answer[T] {
	if err != nil {
		return &Answer[T]{Error: err.Error()}
	}
	return &Answer[T]{Got: got}
}

func (r *Recorder) failures(ask agent.AskFailures) agent.AskFailures {
	return func(ctx context.Context, namespace string, uid types.UID) ([]eventsv1.Event, error) {
		got, err := ask(ctx, namespace, uid)
		r.write(Line{UID: string(uid), Failures: answer(got, err)})
		return got, err
	}
}

func (r *Recorder) events(ask agent.AskEvents) agent.AskEvents {
	return func(ctx context.Context, namespace string, uid types.UID) ([]eventsv1.Event, error) {
		got, err := ask(ctx, namespace, uid)
		r.write(Line{UID: string(uid), Events: answer(got, err)})
		return got, err
	}
}

func (r *Recorder) ready(ask func(context.Context) (*corev1.NodeCondition, error)) func(context.Context) (*corev1.NodeCondition, error) {
	return func(ctx context.Context) (*corev1.NodeCondition, error) {
		got, err := ask(ctx)
		r.write(Line{Ready: answer(got, err)})
		return got, err
	}
}

func (r *Recorder) metadata(ask agent.AskMetadata) agent.AskMetadata {
	return func(ctx context.Context, namespace, name string) (*metav1.PartialObjectMetadata, error) {
		got, err := ask(ctx, namespace, name)
		if err == nil {
			r.write(Line{UID: string(got.UID), Metadata: answer(got, err)})
		}
		return got, err
	}
}
