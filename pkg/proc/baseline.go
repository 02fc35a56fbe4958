package proc

import (
	"context"
	"fmt"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kernfile"
)

// maxBaseline is how many processes of a container are in a Baseline: the first
// one, and the program under a small init or a shell.
const maxBaseline = 4

// baselineAllowance is what a Baseline may cost (costOf), because pods are read one after the other. What is beyond it is not known.
const baselineAllowance = allowance / 8

// ReadBaseline returns what the first processes of a pod's containers do with
// signals. It reads status files only, which cannot hang, one for each process, and
// a list of processes for each container. uid is evidence.Pod.RuntimeUID.
func (h *Host) ReadBaseline(ctx context.Context, uid string) (*evidence.Baseline, error) {
	containers, err := h.tree().Leaders(uid, time.Now())
	if err != nil {
		return nil, err
	}
	files, err := kernfile.Open(h.Proc)
	if err != nil {
		return nil, err
	}
	defer files.Close()
	out, left := new(evidence.Baseline), baselineAllowance
	for _, c := range containers {
		for _, pid := range c.PIDs[:min(len(c.PIDs), maxBaseline)] {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			if left <= 0 {
				break
			}
			s, err := files.TaskStatus(pid)
			left -= costOf(s.Size)
			if kernfile.Gone(err) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("read status of process %d: %w", pid, err)
			}
			s.Container = c.Container
			out.Tasks = append(out.Tasks, s.Task)
		}
	}
	out.Read = time.Now()
	return out, nil
}
