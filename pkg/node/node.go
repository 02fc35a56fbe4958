// Package node reads the evidence about the terminating pods of one node, a round
// at a time. A round reads once what its pods share, and then each pod, and says
// of each source when it was read. The loop and `nodeagent capture` read with it
// alike.
//
// What goes in and out is plain data (Ask, evidence), and a Reader keeps nothing
// of a pod: the earlier reading is handed to it. So it can run apart from what
// holds the API server's token; only Reader.Kubelet needs that, and the network.
package node

import (
	"context"
	"errors"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc"
)

// A Source begins rounds of reading.
type Source interface {
	// Round reads what the pods of a round share.
	Round(ctx context.Context, ask Ask) Round
	// Baseline reads what the first processes of a pod do with signals while the pod
	// runs, by the UID in its control groups (evidence.Pod.RuntimeUID); nil when that
	// could not be read. It may not return while the kernel keeps it.
	Baseline(ctx context.Context, uid string) *evidence.Baseline
	// PodDirs returns the UIDs of the pods that the kubelet has directories of.
	PodDirs(ctx context.Context) ([]string, error)
}

// A Round reads pods, side by side if need be. It is as old as what its pods
// share and is meant for a few seconds.
type Round interface {
	// Node returns what the pods of the round share.
	Node() evidence.Node
	// Pod returns a reading of the pod that seed, what its API object says, starts.
	// earlier is the reading before; nil if there was none. It returns when the
	// context ends, with what has been read until then. Of a pod that is HungSince no file is
	// opened.
	Pod(ctx context.Context, seed, earlier *evidence.Pod) *evidence.Pod
}

// An Ask is what a round is asked for.
type Ask struct {
	// Overdue reports whether a pod is past its deadline, read in this round or
	// not: the node's own processes are read then.
	Overdue bool `json:"overdue,omitempty"`
	// Awaiting and LastBegun are as in evidence.Node. While a pod awaits it the processors are looked at.
	Awaiting  int       `json:"awaiting,omitempty"`
	LastBegun time.Time `json:"lastBegun,omitzero"`
	// Unmounting counts the pods of the node whose containers have all ended,
	// terminating or not; the kubelet takes their volumes down. Unmounts reports
	// whether one of them terminates and is past its deadline: the kubelet is asked
	// for what fails then.
	Unmounting int  `json:"unmounting,omitempty"`
	Unmounts   bool `json:"unmounts,omitempty"`
	// Deletable is as in evidence.Node, and Finished reports whether a pod is past its
	// deadline of which the reading before has shown nothing but the API object: the
	// kubelet is asked for its counts then, too.
	Deletable int  `json:"deletable,omitempty"`
	Finished  bool `json:"finished,omitempty"`
	// Unpreparing counts the pods of the node that have resource claims and terminate or have
	// no container that runs: the kubelet may be having the claims unprepared. Unprepares
	// reports whether a pod with claims terminates and is past its deadline: the kubelet's
	// checkpoint of claims is read and the kubelet is asked for its counts then, too.
	Unpreparing int  `json:"unpreparing,omitempty"`
	Unprepares  bool `json:"unprepares,omitempty"`
	// Lists reports whether the kubelet says that it has had no list of the node's containers for
	// long: containerd is asked for them.
	Lists bool `json:"lists,omitempty"`
	// Scanned reports whether the end of a pod past its deadline has waited for a program that scans files
	// for a while: such programs are looked for.
	Scanned bool `json:"scanned,omitempty"`
	// Pulls reports whether a pod is past its deadline of which a container waits: containerd is asked
	// for what it downloads.
	Pulls bool `json:"pulls,omitempty"`
	// Names are the node's pods as namespace/name, by the UID in their control
	// groups (evidence.Pod.RuntimeUID).
	Names map[string]string `json:"names,omitempty"`
	// Drivers are the pods of CSI and DRA drivers, by the name of the driver's directory; one
	// without a name where several pods mount it.
	Drivers map[string]Driver `json:"drivers,omitempty"`
	// Earlier is what the round before returned as Node; nil if there was none.
	Earlier *evidence.Node `json:"earlier,omitempty"`
}

// A Driver is a pod that mounts the directory of a CSI or DRA driver's socket.
type Driver struct {
	// Pod is namespace/name, and State one of those of evidence.Volume.
	Pod   string `json:"pod"`
	State string `json:"state"`
}

// A Runtime tells of containerd and its containers; *cri.Runtime is one.
type Runtime interface {
	Health(ctx context.Context) evidence.ContainerdService
	// Network returns whether the network plugins are ready
	// (evidence.ContainerdService).
	Network(ctx context.Context) string
	// Lists returns what becomes of the questions for all sandboxes and containers.
	Lists(ctx context.Context) []evidence.List
	// Downloads returns what is being downloaded of images.
	Downloads(ctx context.Context) []evidence.Download
	ReadPod(ctx context.Context, p *evidence.Pod)
	// Requests returns how often containerd was asked for what.
	Requests() map[string]uint64
	Close() error
	// Blind returns why nothing of it can be read, as where its socket is not found; nil when it can, or could.
	Blind() error
}

// A Kubelet tells of the kubelet's health and of what is seen on its port, and
// of its work on volumes, on resource claims and with the API server; *kubelet.Client is one.
type Kubelet interface {
	Sight(ctx context.Context) evidence.KubeletSight
	Counts(ctx context.Context) (evidence.Counts, time.Time, error)
}

// A Recorder keeps what a Reader reads, so that all that comes after it can be run again (test/tape).
type Recorder interface {
	// Node is handed what the pods of a round share.
	Node(*evidence.Node)
	// Pod is handed a reading of a pod, and what that was begun with.
	Pod(seed, read *evidence.Pod)
}

// A Reader is the Source on the node itself.
type Reader struct {
	Name    string // of the node
	Proc    *proc.Host
	Runtime Runtime
	// Kubelet may be nil: the kubelet's health is then not known.
	Kubelet Kubelet
	// Recorder is handed what was read, before anything is carried over from an earlier reading; nil is allowed.
	Recorder Recorder
	// Panicked is called when the reading of what the pods share has panicked; nil is allowed.
	Panicked func(value any, stack []byte)
	// Lost is called when the reading of what the pods share has not returned in
	// time; nil is allowed.
	Lost func()

	state atomic.Int32 // of such a reading

	// The last look at all threads of the node: when it began, and how long the search took.
	blockedAt   time.Time
	blockedTook time.Duration
	saw         atomic.Int64 // Unix nanoseconds of when the kubelet's process was seen last; 0 for never
	// clock notices that the node's clock was set, and clockSet is when it first had.
	clock    evidence.Clock
	clockSet time.Time
}

// The states of the reading of what the pods share.
const (
	idle int32 = iota
	underWay
	givenUp
)

// Hanging reports whether the reading of what the pods share was given up and has
// not returned.
func (r *Reader) Hanging() bool { return r.state.Load() == givenUp }

// Blind returns why the agent sees next to nothing of the node: the kubelet's directory, or containerd's socket, is not where it looks for it.
func (r *Reader) Blind() error { return errors.Join(r.Proc.Blind(), r.Runtime.Blind()) }

// Close ends the helper process and the connections. It does not wait for what
// hangs.
func (r *Reader) Close() {
	if r.Proc.Prober != nil {
		r.Proc.Prober.Close()
	}
	_ = r.Runtime.Close() // the program ends; nobody is left to tell
}

// Spent returns the CPU time of this process and of its helpers.
func (r *Reader) Spent() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	spent := time.Duration(u.Utime.Nano() + u.Stime.Nano())
	if r.Proc.Prober != nil {
		spent += r.Proc.Prober.Spent()
	}
	return spent
}

// returnsWithin is how long after the end of its context a reading may return.
const returnsWithin = time.Second

// Round implements Source. It returns soon after the context's end, even when
// something hangs: what was to be read is then missing, and is not read again
// until the one that hangs has returned.
func (r *Reader) Round(ctx context.Context, ask Ask) Round {
	out := &round{reader: r, names: ask.Names, drivers: ask.Drivers, proc: r.Proc.Round()}
	began := time.Now()
	if r.Proc.Prober != nil && ask.Names != nil {
		r.Proc.Prober.Know(ask.Names)
	}
	out.node = r.unread("the reading of the node has not returned")
	if ask.Earlier != nil {
		out.node.Pressure = ask.Earlier.Pressure // what it was is all that is known
	}
	if r.state.CompareAndSwap(idle, underWay) {
		read := make(chan *shared, 1)
		go func() {
			got := out.readNodeCarefully(ctx, &ask)
			r.state.Store(idle) // before the next round can begin
			read <- got
		}()
		if got, ok := await(ctx, read); ok {
			out.node, out.claims = got.node, got.claims
		} else {
			r.state.CompareAndSwap(underWay, givenUp)
			if r.Lost != nil {
				r.Lost()
			}
		}
	}
	out.node.Time, out.node.Read = began, time.Now()
	r.keepTime(&out.node)
	if r.Recorder != nil {
		r.Recorder.Node(&out.node)
	}
	out.node.Since(ask.Earlier)
	return out
}

// loaded is when this program began, for a clock that nobody can set. What has gone by since is taken from the same
// reading as the time of day: the program may be paused between two.
var loaded = time.Now()

// keepTime tells when the node's clock was set. What was noted before, as since when containerd answers, is
// by the clock of then, and is told by the one of now.
func (r *Reader) keepTime(n *evidence.Node) {
	if step := r.clock.Look(n.Read, n.Read.Sub(loaded)); step != 0 {
		r.clockSet = n.Read
	}
	if r.clockSet.IsZero() {
		return
	}
	n.ClockSet = r.clockSet
	for i := range n.Containerd.Downloads {
		d := &n.Containerd.Downloads[i]
		d.Started, d.Updated = r.clock.Present(d.Started), r.clock.Present(d.Updated)
	}
	*n = *n.AfterStep(n.Read, 0)
}

// PodDirs implements Source.
func (r *Reader) PodDirs(ctx context.Context) ([]string, error) { return r.Proc.Round().PodDirs(ctx) }

// unread is the node of which nothing could be read.
func (r *Reader) unread(why string) evidence.Node {
	return evidence.Node{
		Name:       r.Name,
		Containerd: evidence.ContainerdService{Error: why},
		Kubelet:    evidence.KubeletService{Error: why},
	}
}

// await waits for a reading, and no longer than it may take to return.
func await(ctx context.Context, read <-chan *shared) (*shared, bool) {
	select {
	case got := <-read:
		return got, true
	case <-ctx.Done():
	}
	select {
	case got := <-read:
		return got, true
	case <-time.After(returnsWithin):
		return nil, false
	}
}
