// Lossyshim is containerd's shim for runc, of the same source, that can lose the end of
// a container: it then answers nobody who waits for it, and publishes no event of it.
// It can fall silent, too, about all of its containers.
// Installed in the place of the real one it does as that does for all containers but those
// of which the file /run/scenario-shim/ID says what to lose, and unless the file
// /run/scenario-shim/PID, of its own process, says that it is to be silent.
package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	eventtypes "github.com/containerd/containerd/api/events"
	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2/manager"
	"github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2/task"
	"github.com/containerd/containerd/v2/core/events"
	"github.com/containerd/containerd/v2/pkg/shim"
	"github.com/containerd/containerd/v2/pkg/shutdown"
	"github.com/containerd/containerd/v2/plugins"
	"github.com/containerd/plugin"
	"github.com/containerd/plugin/registry"
	"github.com/containerd/ttrpc"
)

// What the file can say: that the end is not told, or that it is denied as well when
// somebody asks for the container's state; of a process that it answers nothing.
const (
	untold = "untold"
	denied = "denied"
	silent = "silent"
)

// loses returns what the file of a container, or of a process, says, "" when there is none.
func loses(id string) string {
	b, err := os.ReadFile(filepath.Join("/run/scenario-shim", id))
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace(b))
}

// A service is the real one, less what it loses.
type service struct{ taskapi.TTRPCTaskService }

// RegisterTTRPC offers the service to containerd.
func (s service) RegisterTTRPC(server *ttrpc.Server) error {
	taskapi.RegisterTTRPCTaskService(server, s)
	return nil
}

// UnaryServerInterceptor has each request wait, as it would for a lock, while the shim is to be silent.
// Who has asked may have given up: a shim that hangs does not answer that it is too late either.
func (s service) UnaryServerInterceptor() ttrpc.UnaryServerInterceptor {
	self := strconv.Itoa(os.Getpid())
	return func(ctx context.Context, u ttrpc.Unmarshaler, _ *ttrpc.UnaryServerInfo, method ttrpc.Method) (any, error) {
		for loses(self) == silent {
			time.Sleep(100 * time.Millisecond)
		}
		return method(ctx, u)
	}
}

// Wait returns when the process has ended, and never with the end of a container that
// is to be lost.
func (s service) Wait(ctx context.Context, r *taskapi.WaitRequest) (*taskapi.WaitResponse, error) {
	answer, err := s.TTRPCTaskService.Wait(ctx, r)
	if err == nil && r.GetExecID() == "" && loses(r.GetID()) != "" {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return answer, err
}

// State returns the state of a process.
func (s service) State(ctx context.Context, r *taskapi.StateRequest) (*taskapi.StateResponse, error) {
	answer, err := s.TTRPCTaskService.State(ctx, r)
	if err == nil && answer.GetStatus() == tasktypes.Status_STOPPED && loses(r.GetID()) == denied {
		answer.Status = tasktypes.Status_RUNNING
	}
	return answer, err
}

// A publisher is the real one, less what it loses.
type publisher struct{ shim.Publisher }

// Publish sends an event to containerd.
func (p publisher) Publish(ctx context.Context, topic string, event events.Event) error {
	if exit, ok := event.(*eventtypes.TaskExit); ok && loses(exit.GetContainerID()) != "" {
		return nil
	}
	return p.Publisher.Publish(ctx, topic, event)
}

func main() {
	registry.Register(&plugin.Registration{
		Type:     plugins.TTRPCPlugin,
		ID:       "task",
		Requires: []plugin.Type{plugins.EventPlugin, plugins.InternalPlugin},
		InitFn: func(c *plugin.InitContext) (any, error) {
			p, err := c.GetByID(plugins.EventPlugin, "publisher")
			if err != nil {
				return nil, err
			}
			s, err := c.GetByID(plugins.InternalPlugin, "shutdown")
			if err != nil {
				return nil, err
			}
			inner, err := task.NewTaskService(c.Context, publisher{p.(shim.Publisher)}, s.(shutdown.Service))
			return service{inner}, err
		},
	})
	m := manager.NewShimManager("io.containerd.runc.v2")
	if err := adapt(&m); err != nil {
		fmt.Fprintln(os.Stderr, "lossyshim:", err)
		os.Exit(1)
	}
	shim.RunShim(context.Background(), m)
}
