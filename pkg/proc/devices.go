package proc

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kernfile"
)

// Bounds of the search for device plugins that are stopped: processes that are asked, and plugins that are told of.
const (
	maxStopped        = 256
	maxStoppedPlugins = 8
)

// ReadStoppedPlugins finds the device plugins that are stopped by a signal and have not read a request of the kubelet's, by its
// PID. Of all processes only those that are stopped are asked for their sockets. Results that come with an
// error are good but not all.
func (r *Round) ReadStoppedPlugins(ctx context.Context, kubelet int) ([]evidence.StoppedPlugin, error) {
	if r.Prober == nil {
		return nil, errNoProber
	}
	files, err := kernfile.Open(r.Proc)
	if err != nil {
		return nil, err
	}
	defer files.Close()
	var out []evidence.StoppedPlugin
	var hidden error
	t, asked := &tables{Round: r}, 0
	err = r.each(ctx, func(pid int) bool {
		s, err := files.TaskStatus(pid)
		if err != nil || s.State != evidence.Stopped || pid == kubelet {
			return true
		}
		s.Cgroup = readCgroup(files, pid)
		s.Owner, s.Container = owner(&s.Task)
		saw, err := r.Prober.Unread(ctx, r.Proc, &s.Task, s.Owner, kubelet)
		if err = complaint(&saw, err, &s, "sockets"); err != nil && hidden == nil {
			hidden = err // the others are asked all the same
		}
		if saw.Unread.Bytes > 0 && r.unmoved(&s) {
			_ = r.probe(ctx, &s, t, "") // when it was started tells it from another process
			out = append(out, evidence.StoppedPlugin{Task: s.Task, Socket: kernfile.Printable(saw.Unread.Socket), Unread: saw.Unread.Bytes})
		}
		if asked++; asked == maxStopped {
			hidden = cmp.Or(hidden, fmt.Errorf("more than %d stopped processes: %w", maxStopped-1, kernfile.ErrTooMany))
		}
		return asked < maxStopped && len(out) < maxStoppedPlugins
	})
	return out, errors.Join(err, hidden)
}

// unmoved reports whether the task is still in the place where its status was
// read.
func (h *Host) unmoved(s *kernfile.TaskStatus) bool {
	r, err := kernfile.Open(h.Proc)
	if err != nil {
		return false
	}
	defer r.Close()
	now, err := r.TaskStatus(s.TID)
	return err == nil && now.PID == s.PID && now.Comm == s.Comm && now.Switches == s.Switches
}
