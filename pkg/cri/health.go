package cri

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/types/known/emptypb"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// The pauses before a containerd that has not answered is asked again: a short
// one, because two requests prove a hang, then longer ones, because requests
// queue up in a stopped process.
const (
	healthRetry = 3 * time.Second
	healthPause = 15 * time.Second
)

// noRecord is an ID that no container has; looking for it reads the metadata.
const noRecord = "nodeagent-health"

// Health asks containerd for its version and for a record of its metadata
// database. The first touches no disk, so a containerd that answers only that
// is stuck on its storage. Health takes at most two seconds. It remembers since
// when containerd has not answered; any answer ends that, an error too.
func (r *Runtime) Health(ctx context.Context) evidence.ContainerdService {
	r.asking.Lock()
	defer r.asking.Unlock()

	now := r.now()
	if now.Sub(r.asked) > 2*healthPause {
		// Nobody has asked for a while, as when no pod terminates: whether what was
		// silent then has answered since is not known.
		r.service = evidence.ContainerdService{}
	}
	if s := r.service; s.Attempts > 0 {
		pause := healthRetry
		if s.Attempts > 1 {
			pause = healthPause
		}
		if now.Sub(r.asked) < pause {
			return s
		}
	}
	s := evidence.ContainerdService{}
	if !hasTime(ctx, r.health) {
		if s = r.service; s.Error == "" {
			s.Error = "containerd was not asked: no time was left"
		}
		return s
	}
	verdict, err := r.ask(ctx, &s)
	if ctx.Err() != nil && verdict != answered {
		if s = r.service; s.Error == "" {
			s.Error = "the request to containerd was cancelled: " + context.Cause(ctx).Error()
		}
		return s
	}
	switch verdict {
	case answered:
		r.answered.Store(true)
	case refused:
		s.Refused, s.Asked, s.RefusedSince = true, now, r.service.RefusedSince
		if s.RefusedSince.IsZero() {
			s.RefusedSince = now
		}
	case unanswered:
		s.Asked, s.UnansweredSince, s.Attempts = now, r.service.UnansweredSince, r.service.Attempts+1
		if s.UnansweredSince.IsZero() {
			s.UnansweredSince = now
		}
	}
	if err != nil {
		s.Error = bound(err.Error())
	}
	r.service, r.asked = s, now
	return s
}

// An outcome is what became of a request.
type outcome int

const (
	answered   outcome = iota
	refused            // nobody listens
	unanswered         // somebody listens and does not answer
	failed             // everything else: an error is an answer
)

// ask makes the two requests, and notes in s what they tell of containerd. The error is
// worded for an operator.
func (r *Runtime) ask(ctx context.Context, s *evidence.ContainerdService) (outcome, error) {
	c, err := r.usable()
	if err != nil {
		return failed, err
	}
	ctx, cancel := question(ctx, r.health)
	defer cancel()

	version, err := c.version(ctx)
	if errdefs.IsUnavailable(err) && c.dialError() == nil {
		// The connection was to a containerd that has exited: ask the one that
		// runs now.
		if c, err = r.renew(); err != nil {
			return failed, err
		}
		version, err = c.version(ctx)
	}
	if err != nil {
		return r.explain(ctx, c, err)
	}
	if len(r.sockets) > 1 && !r.answered.Load() {
		if _, err := c.cri.Version(ctx, &runtimeapi.VersionRequest{}); errdefs.IsNotImplemented(native(err)) {
			r.others.Store(*r.socket.Load(), true)
			err := r.noCRI()
			_, _ = r.renew() // to ask another one the next time
			return failed, err
		}
	}
	s.Version, s.ConnectedSince = version, time.Unix(0, c.made.Load())
	_, err = c.containerd.ContainerService().Get(ctx, noRecord)
	switch {
	case err == nil || errdefs.IsNotFound(err):
		return answered, nil
	case silent(err):
		return unanswered, fmt.Errorf("containerd at %s answers, but has not read from its metadata database within %s", r.at(), r.health)
	}
	return failed, fmt.Errorf("containerd at %s cannot read its metadata database: %w", r.at(), err)
}

// version returns containerd's version, as in v2.4.2.
func (c *connection) version(ctx context.Context) (string, error) {
	answer, err := c.containerd.VersionService().Version(ctx, &emptypb.Empty{})
	if err == nil {
		c.answered.Store(true)
	}
	return bound(answer.GetVersion()), native(err)
}

// explain returns what the failure of the first request means.
func (r *Runtime) explain(ctx context.Context, c *connection, err error) (outcome, error) {
	switch dial := c.dialError(); {
	case errors.Is(dial, syscall.ECONNREFUSED), errors.Is(dial, syscall.ENOENT) && r.answered.Load():
		return refused, fmt.Errorf("nothing listens on containerd's socket %s; see systemctl status containerd", r.at())
	case errors.Is(dial, syscall.ENOENT):
		// containerd has started the container that this runs in.
		return failed, r.noSocket()
	case errors.Is(dial, syscall.EAGAIN):
		return unanswered, fmt.Errorf("containerd at %s accepts no connections: its queue is full", r.at())
	case dial != nil:
		return failed, fmt.Errorf("connect to containerd: %w", dial)
	case silent(err):
		return unanswered, fmt.Errorf("containerd at %s has not answered within %s", r.at(), r.health)
	case errdefs.IsNotImplemented(err):
		return failed, fmt.Errorf("%s belongs to %s, not to containerd; set --containerd-socket to containerd's (nodeagent reads no other runtime)",
			r.at(), whose(ctx, c))
	case errdefs.IsUnavailable(err):
		return failed, fmt.Errorf("%s is not the socket of a running containerd: %w", r.at(), err)
	}
	return failed, fmt.Errorf("ask containerd at %s for its version: %w", r.at(), err)
}

// whose returns who else serves gRPC on the socket.
func whose(ctx context.Context, c *connection) string {
	v, err := c.cri.Version(ctx, &runtimeapi.VersionRequest{})
	if err != nil || v.GetRuntimeName() == "" {
		return "another service"
	}
	return "the runtime " + v.GetRuntimeName()
}
