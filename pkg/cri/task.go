package cri

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types/task"
	"github.com/containerd/errdefs"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// shimTimeout is for how long containerd waits for a shim at the least: two seconds (stateTimeout, plugins/services/tasks/local.go), less
// a little for the clocks.
const shimTimeout = 1900 * time.Millisecond

// errNoState is the error of an answer that names neither a state nor a process, sooner than a shim can be said not to answer. Why is in
// containerd's log only.
var errNoState = errors.New("containerd returned no state and no error")

// askShim returns the state of one container's first process. Only this request
// fits: containerd passes it on to the shim. A list of tasks would drop those
// whose shim does not answer, and a list of processes would start runc.
//
// When the shim returns an error, or does not answer, containerd may answer that the status is UNKNOWN and the PID 0
// (getProcessState, plugins/services/tasks/local.go). Before 2.3 it does so for a shim that does not answer, before 1.7 for one that
// cannot be reached, and in all versions for other errors.
func (r *Runtime) askShim(ctx context.Context, c *connection, id string) (evidence.ShimTask, error) {
	ctx, cancel := question(ctx, r.task)
	defer cancel()
	began := r.now()
	answer, err := c.containerd.TaskService().Get(ctx, &tasks.GetRequest{ContainerID: id})
	if err != nil {
		if err = native(err); errdefs.IsNotFound(err) {
			return evidence.ShimTask{Absent: true}, nil
		}
		return evidence.ShimTask{}, err
	}
	p := answer.GetProcess()
	switch {
	case p.GetStatus() != task.Status_UNKNOWN:
		return evidence.ShimTask{Status: strings.ToLower(p.GetStatus().String()), PID: int(p.GetPid())}, nil
	case p.GetPid() != 0: // the shim's answer: only it knows the PID
		return evidence.ShimTask{PID: int(p.GetPid())}, nil
	case r.now().Sub(began) < shimTimeout:
		return evidence.ShimTask{}, errNoState
	}
	return evidence.ShimTask{}, context.DeadlineExceeded
}
