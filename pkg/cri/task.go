package cri

import (
	"context"
	"strings"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/errdefs"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// askShim returns the state of one container's first process. Only this request
// fits: containerd passes it on to the shim. A list of tasks would drop those
// whose shim does not answer, and a list of processes would start runc.
func (r *Runtime) askShim(ctx context.Context, c *connection, id string) (evidence.ShimTask, error) {
	ctx, cancel := question(ctx, r.task)
	defer cancel()
	answer, err := c.containerd.TaskService().Get(ctx, &tasks.GetRequest{ContainerID: id})
	if err != nil {
		if err = native(err); errdefs.IsNotFound(err) {
			return evidence.ShimTask{Absent: true}, nil
		}
		return evidence.ShimTask{}, err
	}
	p := answer.GetProcess()
	return evidence.ShimTask{Status: strings.ToLower(p.GetStatus().String()), PID: int(p.GetPid())}, nil
}
