package proc

import (
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kernfile"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/mount"
)

// When a pod's connections are read: a program that ends shortly after its stop signal waits for nobody, and one that
// lives past its deadline is not what is slow. maxConnected bounds the pods of a round of which they are: the kernel goes
// through the connections of the whole node for each.
const (
	connectedAfter = 5 * time.Second
	connectedUntil = 5 * time.Second
	maxConnected   = 32
)

// readConnections counts the connections of a pod with a network of its own, by its sandbox, whose process stays in that;
// nil when that is not known.
func (r *Round) readConnections(p *evidence.Pod, tasks []kernfile.TaskStatus) *evidence.Connections {
	if p.HostNetwork || p.Mirror || p.Time.Sub(p.DeletionRequested) < connectedAfter || p.Overdue() > connectedUntil {
		return nil
	}
	i := slices.IndexFunc(p.Containers, func(c evidence.Container) bool { return c.Kind == evidence.Sandbox && c.Task.PID > 0 })
	if i < 0 {
		return nil
	}
	c := &p.Containers[i]
	lives := slices.ContainsFunc(tasks, func(t kernfile.TaskStatus) bool {
		return t.PID == c.Task.PID && t.Leader() && t.Container == c.ID && t.State != evidence.Zombie
	})
	if !lives || r.connected.Add(1) > maxConnected {
		return nil
	}
	n, err := mount.CountConnections(filepath.Join(r.Proc, strconv.Itoa(c.Task.PID)))
	if err != nil {
		return nil
	}
	return &n
}
