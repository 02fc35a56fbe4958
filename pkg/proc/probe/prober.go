package probe

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kernfile"
	"golang.org/x/sys/unix"
)

// How a Prober goes about its helpers.
const (
	defaultTimeout      = time.Second
	defaultMaxAbandoned = 8
	// maxOfOne bounds the abandoned helpers of one owner, so that the tasks of one
	// pod cannot take the probing from all others, and maxOfNamespace those of all
	// pods of a namespace. keptForNode are never taken by pods.
	maxOfOne       = 2
	maxOfNamespace = 4
	keptForNode    = 2
	startTimeout   = 5 * time.Second
	// patience is how many timeouts a helper gets that does not answer though
	// it is not asleep in the kernel: on a busy node it may just not have run.
	patience = 3
	// hungMemory is for how long a task that hung a helper is not read again
	// while it has not moved.
	hungMemory = 2 * time.Minute
	maxHung    = 1024
	// slowPart is which part of the timeout an answer may take before its task's owner is charged with it.
	slowPart = 4
	// dearWork is how much work an answer may be (Seen.Work) before it is: that of 8,000 open files, or of two status files with all groups.
	dearWork = 1024
)

// A Prober reads those files of a task that can hang, in one long-lived helper
// process that is ended, and started anew, when it does not answer. A goroutine
// could not do that: it would take an OS thread of the agent with it for ever.
//
// It asks one question at a time, and those about the tasks of an owner that has
// hung a helper of late one at a time of another helper: a pod whose tasks hang
// their readers, each for a second, does not keep the others waiting. It is safe
// for use by several goroutines.
type Prober struct {
	// Argv is the command line of the helper: a program that calls Main
	// with its standard input and output. The default is this program's own
	// file with the argument probe.
	Argv []string
	// Timeout is how long one file may take before its reader counts as hung.
	// The default is one second.
	Timeout time.Duration
	// MaxAbandoned bounds the helpers that were killed and have not ended. The
	// default is 8. Once there are so many, no helper is started until one ends;
	// once two of them are of one owner, none of its tasks is probed, and so it is with
	// four of the pods of one namespace. The last two are for the node's own processes.
	MaxAbandoned int

	once    sync.Once
	usual   lane
	hanging lane // for owners whose tasks have hung a helper of late
	starts  chan startRequest
	// life ends with close.
	life      context.Context
	end       context.CancelFunc
	closeOnce sync.Once

	mu        sync.Mutex
	abandoned []abandoned
	reaping   bool
	hung      map[hungKey]hungTask
	hangers   map[string]time.Time // when a task of an owner has hung a helper, or ended it, last
	names     map[string]string    // of pods, as namespace/name by UID
	opening   bool                 // the helper's program is being opened

	hangs, restarts, refused atomic.Int64
	questions                atomic.Int64
	spent                    atomic.Int64 // nanoseconds
}

// A lane is one helper and the right to use it.
type lane struct {
	turn   chan struct{} // holds one token; who has it may use helper
	helper *helper
}

// An abandoned is a killed helper that has not been reaped: its process ID, and
// the owner of the task that it was asked about.
type abandoned struct {
	pid   int
	owner string
	// namespace is the owner's as it was known then: the pod may be gone since.
	namespace string
}

// A helper is a running helper process.
type helper struct {
	process *os.Process
	in, out *os.File
}

type startRequest struct {
	argv []string
	done chan startResult
}

type startResult struct {
	helper *helper
	err    error
}

// A hungKey names a task in a certain place: as long as its context switches
// are the same, it has not run, and what hung its reader still does.
type hungKey struct {
	what     What
	pid, tid int
	state    evidence.TaskState
	switches uint64
	pod      string // where no task was asked about
}

type hungTask struct {
	seen Seen
	file string
	when time.Time
}

// A HungError says which file did not return.
type HungError struct{ File string }

func (e *HungError) Error() string { return "read of " + e.File + " did not return" }

var (
	errClosed  = errors.New("the prober is closed")
	errStarved = errors.New("the helper process got no chance to run")
	errHeld    = errors.New("the helper's program cannot be opened: a fanotify permission listener (antivirus, EDR) may not respond")
)

// Hangs counts the reads that did not return in time.
func (p *Prober) Hangs() int64 { return p.hangs.Load() }

// Restarts counts the helpers that were started after the first.
func (p *Prober) Restarts() int64 { return max(p.restarts.Load()-1, 0) }

// Refused counts the questions that were not asked because too many helpers
// could not be ended.
func (p *Prober) Refused() int64 { return p.refused.Load() }

// Questions counts those that were sent to helpers.
func (p *Prober) Questions() int64 { return p.questions.Load() }

// Spent returns the CPU time that helpers have taken to answer.
func (p *Prober) Spent() time.Duration { return time.Duration(p.spent.Load()) }

// Abandoned is the number of helpers that were killed and have not ended yet.
func (p *Prober) Abandoned() int {
	p.reap()
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.abandoned)
}

func (p *Prober) prepare() {
	p.once.Do(func() {
		for _, l := range []*lane{&p.usual, &p.hanging} {
			l.turn = make(chan struct{}, 1)
			l.turn <- struct{}{}
		}
		p.starts = make(chan startRequest)
		p.life, p.end = context.WithCancel(context.Background())
		if len(p.Argv) == 0 {
			p.Argv = []string{"/proc/self/exe", "probe"}
		}
		if p.Timeout <= 0 {
			p.Timeout = defaultTimeout
		}
		if p.MaxAbandoned <= 0 {
			p.MaxAbandoned = defaultMaxAbandoned
		}
		go p.start()
	})
}

// Close ends the helper. It does not wait for one that cannot be ended.
func (p *Prober) Close() {
	p.prepare()
	p.closeOnce.Do(func() {
		p.end()
		for _, l := range []*lane{&p.usual, &p.hanging} {
			<-l.turn // never given back
			if l.helper != nil {
				p.abandon(l.helper, "")
				l.helper = nil
			}
		}
	})
}

// start starts helpers, all from one OS thread that lives as long as the
// Prober: the kernel sends Pdeathsig when the thread that forked ends, not when
// the process does (prctl(2)).
func (p *Prober) start() {
	runtime.LockOSThread()
	for {
		select {
		case q := <-p.starts:
			h, err := startHelper(q.argv)
			q.done <- startResult{h, err}
		case <-p.life.Done():
			// Unlocked only now, so that the thread itself stays and no helper
			// on its way out is mistaken for an orphan.
			runtime.UnlockOSThread()
			return
		}
	}
}

func startHelper(argv []string) (*helper, error) {
	inR, inW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		inR.Close()
		inW.Close()
		return nil, err
	}
	// No environment: the helper needs none.
	proc, err := os.StartProcess(argv[0], argv, &os.ProcAttr{
		Env:   []string{},
		Files: []*os.File{inR, outW, os.Stderr},
		Sys:   &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true},
	})
	inR.Close()
	outW.Close()
	if err != nil {
		inW.Close()
		outR.Close()
		return nil, fmt.Errorf("start helper: %w", err)
	}
	return &helper{process: proc, in: inW, out: outR}, nil
}

// ask puts a question to the helper. The answer is what it has seen, also with
// an error: with a *HungError it is what it saw before the file that hung. Who
// has no time left goes, and the helper answers all the same: to end it, and start
// another one, costs a busy node more than any answer.
func (p *Prober) ask(ctx context.Context, q request) (Seen, error) {
	p.prepare()
	l := p.laneOf(q.Owner)
	select {
	case <-l.turn:
	case <-ctx.Done():
		return Seen{}, ctx.Err()
	case <-p.life.Done():
		return Seen{}, errClosed
	}
	if err := ctx.Err(); err != nil {
		l.turn <- struct{}{}
		return Seen{}, err
	}
	type answer struct {
		seen Seen
		err  error
	}
	done := make(chan answer, 1)
	go func() {
		defer func() { l.turn <- struct{}{} }()
		s, err := p.answer(l, q)
		done <- answer{s, err}
	}()
	select {
	case a := <-done:
		return a.seen, a.err
	case <-ctx.Done():
		return Seen{}, ctx.Err()
	}
}

// answer has the helper of a lane, whose turn the caller has, answer a question.
func (p *Prober) answer(l *lane, q request) (Seen, error) {
	if err := p.refusal(q.Owner); err != nil {
		p.refused.Add(1)
		return Seen{}, err
	}
	for attempt := 0; ; attempt++ {
		h, fresh, err := p.ready(l, q.Owner)
		if err != nil {
			return Seen{}, err
		}
		began := time.Now()
		s, err := p.talk(h, q)
		if time.Since(began) > p.Timeout/slowPart || s.Work > dearWork {
			p.charge(q.Owner)
		}
		if err == nil && s.TooLarge {
			p.charge(q.Owner)
			return Seen{Work: s.Work}, &chargedError{errTooLarge}
		}
		if err == nil {
			return s, nil
		}
		l.helper = nil
		p.abandon(h, q.Owner)
		if hung := (*HungError)(nil); errors.As(err, &hung) {
			p.hangs.Add(1)
			p.noteHanger(q.Owner)
			return s, err
		}
		if p.life.Err() != nil {
			return s, errClosed
		}
		// A helper that has ended, perhaps long ago and for want of memory, is
		// no fault of the task. One that ends again is: others are asked about through
		// another one.
		if fresh || attempt > 0 || errors.Is(err, errStarved) {
			p.charge(q.Owner)
			return s, &chargedError{fmt.Errorf("helper process: %w", err)}
		}
	}
}

// laneOf returns the lane for questions about an owner's tasks.
func (p *Prober) laneOf(owner string) *lane {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t, ok := p.hangers[owner]; ok && time.Since(t) < hungMemory {
		return &p.hanging
	}
	return &p.usual
}

// charge has a pod asked about through the other helper, because a task of it takes more of this one than others
// do. Of the node's own processes, which share their words for owners, it is not: the node may be slow.
func (p *Prober) charge(owner string) {
	if inPod(owner) {
		p.noteHanger(owner)
	}
}

// noteHanger takes note that a task of an owner has hung a helper, or is to be charged with another trouble.
func (p *Prober) noteHanger(owner string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hangers == nil {
		p.hangers = make(map[string]time.Time)
	}
	for o, t := range p.hangers {
		if time.Since(t) >= hungMemory || len(p.hangers) >= maxHung {
			delete(p.hangers, o)
		}
	}
	p.hangers[owner] = time.Now()
	time.AfterFunc(hungMemory, p.retire)
}

// retire ends the helper for owners that hang helpers when there are none any more
// and nobody is using it.
func (p *Prober) retire() {
	p.mu.Lock()
	for _, t := range p.hangers {
		if time.Since(t) < hungMemory {
			p.mu.Unlock()
			return
		}
	}
	p.mu.Unlock()
	select {
	case <-p.hanging.turn:
	default:
		return // in use, or closed
	}
	defer func() { p.hanging.turn <- struct{}{} }()
	if h := p.hanging.helper; h != nil {
		p.hanging.helper = nil
		p.abandon(h, "")
	}
}

// Know tells of which pods the owners are, as namespace/name by UID.
func (p *Prober) Know(names map[string]string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.names = names
}

// Name returns which pod an owner is, "" when that is not known.
func (p *Prober) Name(owner string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.names[owner]
}

// namespace returns the namespace of an owner, "" when that is not known. p.mu is held.
func (p *Prober) namespace(owner string) string {
	of, _, _ := strings.Cut(p.names[owner], "/")
	return of
}

// refusal says why nothing of an owner's tasks is read: nil when it is.
func (p *Prober) refusal(owner string) error {
	p.reap()
	p.mu.Lock()
	defer p.mu.Unlock()
	own, ofNamespace, ofPods := 0, 0, 0
	for _, a := range p.abandoned {
		if a.owner == owner {
			own++
		}
		if a.namespace != "" && a.namespace == p.namespace(owner) {
			ofNamespace++
		}
		if inPod(a.owner) {
			ofPods++
		}
	}
	const until = " were killed and have not ended: nothing of it that can hang is read until one does"
	switch {
	case own >= maxOfOne:
		return fmt.Errorf("%d helper processes that read of tasks of this owner"+until, own)
	case ofNamespace >= maxOfNamespace:
		return fmt.Errorf("%d helper processes that read of tasks of pods of this namespace"+until, ofNamespace)
	case inPod(owner) && ofPods >= max(p.MaxAbandoned-keptForNode, 1):
		return fmt.Errorf("%d helper processes that read of tasks of pods"+until, ofPods)
	}
	return nil
}

// inPod reports whether an owner is a pod.
func inPod(owner string) bool {
	t := evidence.Task{Owner: owner}
	return t.InPod()
}

// A chargedError is that a helper has ended, or does not come to run, while it reads of a task,
// or that what it has read is too large, or more than is read.
type chargedError struct{ err error }

func (e *chargedError) Error() string { return e.err.Error() }

func (e *chargedError) Unwrap() error { return e.err }

// Charge returns an error that is the fault of the task that was asked about, if of any.
func Charge(err error) error { return &chargedError{err} }

// Charged reports whether an error is of that kind: the helper has ended, or did not come to run, its
// answer is too large, or the task has more of something than is read.
func Charged(err error) bool {
	var e *chargedError
	return errors.As(err, &e)
}

// ready gives the running helper of a lane, or starts one.
func (p *Prober) ready(l *lane, owner string) (h *helper, fresh bool, err error) {
	if l.helper != nil {
		return l.helper, false, nil
	}
	if n := p.Abandoned(); n >= p.MaxAbandoned {
		p.refused.Add(1)
		return nil, false, fmt.Errorf("%d helper processes were killed and have not ended: nothing that can hang is read until one does", n)
	}
	if err := p.opens(p.Argv[0]); err != nil {
		return nil, false, err
	}
	q := startRequest{argv: p.Argv, done: make(chan startResult, 1)}
	select {
	case p.starts <- q:
	case <-p.life.Done():
		return nil, false, errClosed
	}
	select {
	case r := <-q.done:
		if r.err != nil {
			return nil, false, r.err
		}
		h = r.helper
	case <-p.life.Done():
		go func() { // the start is not over: its helper must not be lost
			if r := <-q.done; r.err == nil {
				p.abandon(r.helper, owner)
			}
		}()
		return nil, false, errClosed
	}
	p.restarts.Add(1)
	// The helper says that it is there. Until then slowness is not a hang.
	stop := h.bound(p.life, time.Now().Add(startTimeout))
	var hello reply
	err = readFrame(h.out, &hello)
	stop()
	if err != nil {
		p.abandon(h, owner)
		return nil, false, fmt.Errorf("start helper %s: %w", filepath.Base(p.Argv[0]), err)
	}
	l.helper = h
	return h, true, nil
}

// opens returns nil once a program can be opened. Where a program that scans files does not answer, what is executed waits in
// the kernel, and so does its parent, with all of this process as soon as the Go runtime collects garbage: it does not know that a
// thread waits in vfork. An open that waits costs a thread, and there is one at a time. A scanner that is asked about
// what is executed only (FAN_OPEN_EXEC_PERM) is not noticed.
func (p *Prober) opens(program string) error {
	p.mu.Lock()
	waits := p.opening
	p.opening = true
	p.mu.Unlock()
	if waits {
		return errHeld
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if f, err := os.Open(program); err == nil { // else to start it tells why not
			f.Close()
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.opening = false
	}()
	select {
	case <-done:
		return nil
	case <-p.life.Done():
		return errClosed
	case <-time.After(p.Timeout):
		return errHeld
	}
}

// bound sets when reads and writes of the helper's pipes give up: at a moment,
// or when the context ends.
func (h *helper) bound(ctx context.Context, t time.Time) (stop func()) {
	_ = h.out.SetReadDeadline(t)
	_ = h.in.SetWriteDeadline(t)
	cancel := context.AfterFunc(ctx, func() {
		_ = h.out.SetReadDeadline(time.Unix(1, 0))
		_ = h.in.SetWriteDeadline(time.Unix(1, 0))
	})
	return func() { cancel() }
}

// talk sends a question and receives the answer.
func (p *Prober) talk(h *helper, q request) (Seen, error) {
	before := h.spent()
	defer func() { p.spent.Add(int64(max(h.spent()-before, 0))) }()
	stop := h.bound(p.life, time.Now().Add(p.Timeout))
	defer func() { stop() }()
	p.questions.Add(1)
	if err := writeFrame(h.in, q); err != nil {
		return Seen{}, err
	}
	var last reply
	late := 0
	var f frames
	for {
		err := f.next(h.out, &last)
		switch {
		case err == nil && last.Done:
			return last.Seen, nil
		case err == nil:
			late = 0
			stop()
			stop = h.bound(p.life, time.Now().Add(p.Timeout))
		case !errors.Is(err, os.ErrDeadlineExceeded) || p.life.Err() != nil:
			return last.Seen, err
		case last.Opening != "" && h.asleep():
			return last.Seen, &HungError{last.Opening}
		default:
			if late++; late >= patience {
				return last.Seen, errStarved
			}
			stop()
			stop = h.bound(p.life, time.Now().Add(p.Timeout))
		}
	}
}

// spent returns the helper's CPU time, 0 when it cannot be told. The clock of another
// process is made from its ID (CPUCLOCK_SCHED, include/linux/posix-timers_types.h).
func (h *helper) spent() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^h.process.Pid<<3|2), &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// asleep reports whether a thread of the helper sleeps in state D and stays
// there, as one does that waits for a lock of another task: all locks that the
// files wait for show as D, whether or not SIGKILL ends the wait. A helper that is
// only slow runs, waits to run, or moves on.
func (h *helper) asleep() bool {
	before := h.sleepers()
	if len(before) == 0 {
		return false
	}
	time.Sleep(20 * time.Millisecond)
	for tid, switches := range h.sleepers() {
		if n, ok := before[tid]; ok && n == switches {
			return true
		}
	}
	return false
}

// sleepers are the threads of the helper in state D with their context
// switches.
func (h *helper) sleepers() map[int]uint64 {
	r, err := kernfile.Open("/proc")
	if err != nil {
		return nil
	}
	defer r.Close()
	tids, err := r.TIDs(h.process.Pid, nil)
	if err != nil {
		return nil
	}
	out := make(map[int]uint64)
	for _, tid := range tids {
		if s, err := r.TaskStatus(tid); err == nil && s.State == evidence.Uninterruptible {
			out[tid] = s.Switches
		}
	}
	return out
}

// frames keeps what has come of a message when a read gives up in the middle.
type frames struct{ buf []byte }

func (f *frames) next(r io.Reader, v *reply) error {
	for {
		if n, err := f.complete(); err != nil {
			return err
		} else if n > 0 {
			*v = reply{}
			err := json.Unmarshal(f.buf[4:n], v)
			f.buf = f.buf[:copy(f.buf, f.buf[n:])]
			return err
		}
		if cap(f.buf)-len(f.buf) < 4096 {
			f.buf = append(make([]byte, 0, 2*cap(f.buf)+8192), f.buf...)
		}
		n, err := r.Read(f.buf[len(f.buf):cap(f.buf)])
		f.buf = f.buf[:len(f.buf)+n]
		if err != nil && n == 0 {
			return err
		}
	}
}

// complete gives the length of the first message with its prefix, 0 while it is
// not complete.
func (f *frames) complete() (int, error) {
	if len(f.buf) < 4 {
		return 0, nil
	}
	n := binary.BigEndian.Uint32(f.buf)
	if n > maxFrame {
		return 0, fmt.Errorf("a message of %d bytes", n)
	}
	if len(f.buf) < 4+int(n) {
		return 0, nil
	}
	return 4 + int(n), nil
}

// abandon kills a helper, which was asked about a task of an owner, and does not
// wait for its end.
func (p *Prober) abandon(h *helper, owner string) {
	pid := h.process.Pid
	_ = h.process.Kill()
	_ = h.process.Release()
	h.in.Close()
	h.out.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.abandoned = append(p.abandoned, p.lost(pid, owner))
	if !p.reaping {
		p.reaping = true
		go p.reapAll()
	}
}

// lost returns what is remembered of a helper that was killed. p.mu is held.
func (p *Prober) lost(pid int, owner string) abandoned {
	return abandoned{pid, owner, p.namespace(owner)}
}

// reapAll reaps abandoned helpers as they end. It asks now and then instead of
// waiting, because a wait would hold an OS thread for each of them.
func (p *Prober) reapAll() {
	for pause := time.Millisecond; ; pause = min(2*pause, time.Second) {
		time.Sleep(pause)
		p.reap()
		p.mu.Lock()
		if len(p.abandoned) == 0 {
			p.reaping = false
			p.mu.Unlock()
			return
		}
		p.mu.Unlock()
	}
}

func (p *Prober) reap() {
	p.mu.Lock()
	defer p.mu.Unlock()
	left := p.abandoned[:0]
	for _, a := range p.abandoned {
		got, err := unix.Wait4(a.pid, nil, unix.WNOHANG, nil)
		if got == 0 && err == nil || errors.Is(err, unix.EINTR) {
			left = append(left, a)
		}
	}
	p.abandoned = left
}

// Ask asks about a task of an owner: the UID of a pod, or a word. Proc is where
// /proc is mounted. The answer is what has been seen, also with an error: with a
// *HungError it is what was seen before the file that hung. A task that hung a
// helper before and has not run since gets the same answer again without being
// asked about: it still sleeps in the same place. All files behind the one that
// hung wait for the same lock, or come after it in order, so that they are not
// tried.
func (p *Prober) Ask(ctx context.Context, what What, proc string, t *evidence.Task, owner string) (Seen, error) {
	key := hungKey{what: what, pid: t.PID, tid: t.TID, state: t.State, switches: t.Switches}
	return p.remember(ctx, request{What: what, Proc: proc, PID: t.PID, TID: t.TID, Owner: owner}, key)
}

// Writes asks which of some pipes a task can write to, by their inodes.
func (p *Prober) Writes(ctx context.Context, proc string, t *evidence.Task, owner string, pipes []uint64) (Seen, error) {
	key := hungKey{what: writes, pid: t.PID, tid: t.TID, state: t.State, switches: t.Switches}
	return p.remember(ctx, request{What: writes, Proc: proc, PID: t.PID, TID: t.TID, Owner: owner, Pipes: pipes}, key)
}

// Disk asks how full the file system of a directory is, as a task gets there; of the one of containerd's records
// when dir is "".
func (p *Prober) Disk(ctx context.Context, proc string, t *evidence.Task, owner, dir string) (Seen, error) {
	key := hungKey{what: disk, pid: t.PID, tid: t.TID, state: t.State, switches: t.Switches}
	return p.remember(ctx, request{What: disk, Proc: proc, PID: t.PID, TID: t.TID, Owner: owner, Dir: dir}, key)
}

// remember asks, unless the same has hung a helper a short time ago.
func (p *Prober) remember(ctx context.Context, q request, key hungKey) (Seen, error) {
	p.mu.Lock()
	before, known := p.hung[key]
	p.mu.Unlock()
	if known && time.Since(before.when) < hungMemory {
		return before.seen, &HungError{before.file}
	}
	s, err := p.ask(ctx, q)
	if hung := (*HungError)(nil); errors.As(err, &hung) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.hung == nil {
			p.hung = make(map[hungKey]hungTask)
		}
		for k, h := range p.hung {
			if time.Since(h.when) >= hungMemory || len(p.hung) >= maxHung {
				delete(p.hung, k)
			}
		}
		p.hung[key] = hungTask{s, hung.File, time.Now()}
	}
	return s, err
}
