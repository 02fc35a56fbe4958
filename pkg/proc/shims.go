package proc

import (
	"context"
	"strings"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kernfile"
	"github.com/nodeagent-io/nodeagent/pkg/proc/probe"
)

// shims are the shims of the node, and the sandbox that each of them names in its command line. Each is asked once in a round, for all pods.
// Who has no time left leaves the rest to the next pod. The zero value is not ready for use.
type shims struct {
	turn chan struct{} // holds one token; who has it may use the rest
	// all are the shims, in order of their PIDs, once they are listed.
	all    []kernfile.TaskStatus
	listed bool
	// asked are the answers, by PID.
	asked map[int]sandboxName
}

// A sandboxName is what a shim calls its sandbox, "" for one that has exited, or why it is not known.
type sandboxName struct {
	id  string
	err error
}

func newShims() *shims {
	s := &shims{turn: make(chan struct{}, 1), asked: make(map[int]sandboxName)}
	s.turn <- struct{}{}
	return s
}

// take waits until nobody else uses the shims. The caller has to give them back.
func (s *shims) take(ctx context.Context) error {
	select {
	case <-s.turn:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *shims) giveBack() { s.turn <- struct{}{} }

// ask returns the sandbox of a shim. Its command line is read by a Prober, because that file can hang.
func (s *shims) ask(ctx context.Context, r *Round, shim *kernfile.TaskStatus) (string, error) {
	if of, ok := s.asked[shim.PID]; ok {
		return of.id, of.err
	}
	saw, err := r.Prober.Ask(ctx, probe.Shim, r.Proc, &shim.Task, shim.Owner)
	err = complaint(&saw, err, shim, "cmdline")
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	s.asked[shim.PID] = sandboxName{saw.ShimID, err}
	return saw.ShimID, err
}

// Shim finds the shim of a sandbox when no task is left to be its child; nil
// and no error when there is none.
func (r *Round) Shim(ctx context.Context, sandboxID string) (*evidence.Task, error) {
	files, err := kernfile.Open(r.Proc)
	if err != nil {
		return nil, err
	}
	defer files.Close()
	s, err := r.shim(ctx, files, sandboxID)
	if s == nil {
		return nil, err
	}
	return &s.Task, err
}

func (r *Round) shim(ctx context.Context, files *kernfile.Reader, sandboxID string) (*kernfile.TaskStatus, error) {
	if r.Prober == nil {
		return nil, errNoProber
	}
	if err := r.shims.take(ctx); err != nil {
		return nil, err
	}
	defer r.shims.giveBack()
	if !r.shims.listed {
		all, err := r.office(ctx, files, func(c string) bool { return strings.HasPrefix(c, shimComm) })
		if err != nil {
			return nil, err
		}
		r.shims.all, r.shims.listed = all, true
	}
	var hidden error
	for i := range r.shims.all {
		s := r.shims.all[i]
		switch id, err := r.shims.ask(ctx, r, &s); {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil:
			hidden = err
		case id == sandboxID:
			return &s, nil
		}
	}
	return nil, hidden
}

// sandboxOf returns the sandbox of a shim, "" for one that has exited.
func (r *Round) sandboxOf(ctx context.Context, shim *kernfile.TaskStatus) (string, error) {
	if err := r.shims.take(ctx); err != nil {
		return "", err
	}
	defer r.shims.giveBack()
	return r.shims.ask(ctx, r, shim)
}
