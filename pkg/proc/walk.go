package proc

import (
	"cmp"
	"context"
	"errors"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kernfile"
	"github.com/nodeagent-io/nodeagent/pkg/proc/probe"
)

// A walk is the look of a round at all processes of the node, of which it keeps something:
// for one pod it costs as much as for all. Who has no time left leaves the rest to the next
// pod. The zero value is not ready for use.
type walk[T any] struct {
	turn   chan struct{} // holds one token; who has it may use the rest
	next   int           // of the round's processes
	found  []T
	hidden error // the first one, of a process that could not be read
	// charged is the first one of each pod that is nobody else's trouble (hides).
	charged map[string]error
	// zombies reports whether zombies are looked at, too.
	zombies bool
}

func newWalk[T any]() *walk[T] {
	w := &walk[T]{turn: make(chan struct{}, 1), charged: make(map[string]error)}
	w.turn <- struct{}{}
	return w
}

// hides reports whether what could not be read of a process is a reason not to know something of others.
// What a pod makes too large, or too many, and that it makes the helper end, is no such reason.
func hides(s *kernfile.TaskStatus, err error) bool {
	return err != nil && (!s.InPod() || !probe.Charged(err))
}

// all returns what look keeps of the processes. Kernel threads are left out, and so are zombies, which use nothing. With an error it is
// not of all of them; uid is the pod that wants to know.
func (w *walk[T]) all(
	ctx context.Context, r *Round, files *kernfile.Reader, uid string, look func(s *kernfile.TaskStatus) (kept T, ok bool, err error),
) ([]T, error) {
	known, err := r.taken(ctx, files)
	if err != nil {
		return nil, err
	}
	select {
	case <-w.turn:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { w.turn <- struct{}{} }()
	for ; w.next < len(known.all); w.next++ {
		if ctx.Err() != nil {
			return w.found, ctx.Err()
		}
		p := known.all[w.next]
		s, err := r.read(files, p)
		if errors.Is(err, errDear) && w.charged[p.payer] == nil {
			w.charged[p.payer] = err
		}
		if err != nil || s.Kernel || s.State == evidence.Zombie && !w.zombies {
			continue
		}
		s.Cgroup = readCgroup(files, s.PID)
		s.Owner, s.Container = owner(&s.Task)
		kept, ok, err := look(&s)
		if ctx.Err() != nil {
			return w.found, ctx.Err()
		}
		switch {
		case hides(&s, err) && w.hidden == nil:
			w.hidden = err // the others are looked at all the same
		case err != nil && !hides(&s, err) && w.charged[s.Owner] == nil:
			w.charged[s.Owner] = err
		}
		if ok {
			w.found = append(w.found, kept)
		}
	}
	return w.found, cmp.Or(w.hidden, known.cut, w.charged[uid])
}
