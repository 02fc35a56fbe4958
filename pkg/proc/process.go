package proc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/cgroup"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kernfile"
	"github.com/nodeagent-io/nodeagent/pkg/proc/probe"
)

// Bounds of the tasks that are probed in one reading: those that are blocked on the
// node, and the threads of one service. A file server that is gone blocks a thread
// of the kubelet for each pod that uses it.
const (
	maxBlocked = 32
	maxThreads = 256
)

// KubeletNames are the comms of programs that are, or contain, a kubelet: its own,
// that of MicroK8s, and those of K3s (RKE2 and k0s run one of the first name).
var KubeletNames = []string{ownerKubelet, "kubelite", "k3s-server", "k3s-agent"}

// ReadMain finds a service of the node, such as kubelet or containerd, by one of the
// comms that it may have, and returns its main thread with its probe, which tells when the process was
// started. nil and no error means that there is no such process.
//
// Processes in pods are passed over, whatever they call themselves. Of several
// the child of the first process is taken, because a service that is about to
// execute a program shows up twice for a moment. Of several containerds of which none
// is another one's child, as on a node with docker beside K3s, it is the one that listens on
// the kubelet's socket (Host.Containerd), and an error when that is none of them: which one the
// kubelet speaks to is not known.
func (r *Round) ReadMain(ctx context.Context, comms ...string) (*evidence.Task, error) {
	files, err := kernfile.Open(r.Proc)
	if err != nil {
		return nil, err
	}
	defer files.Close()
	found, err := r.service(ctx, files, comms)
	if found == nil {
		return nil, err
	}
	return &found.Task, r.probeMain(ctx, found, &tables{Round: r})
}

// probeMain probes the main thread of a service, if that can be done at all.
func (r *Round) probeMain(ctx context.Context, main *kernfile.TaskStatus, t *tables) error {
	if r.Prober == nil || main.Probe != nil {
		return nil
	}
	return r.probe(ctx, main, t, "")
}

// office returns the processes outside of pods of which the comm is wanted, in order of their IDs.
// Whoever is found by a name holds an office of the node: a process in a pod may call itself anything.
// One of which the group cannot be told holds none.
func (r *Round) office(ctx context.Context, files *kernfile.Reader, want func(comm string) bool) ([]kernfile.TaskStatus, error) {
	all, err := r.processes(ctx, files, want)
	out := all[:0]
	for i := range all {
		s := &all[i]
		s.Cgroup = readCgroup(files, r.threadInGroup(files, s))
		if uid, _ := cgroup.PodOfPath(s.Cgroup); uid != "" || s.Cgroup == "" {
			continue
		}
		s.Owner, _ = owner(&s.Task)
		out = append(out, *s)
	}
	return out, err
}

// threadInGroup returns a thread of a process whose group tells the process's: in version 1 a first thread that has
// ended shows the root.
func (r *Round) threadInGroup(files *kernfile.Reader, s *kernfile.TaskStatus) int {
	if s.State != evidence.Zombie || s.Threads < 2 {
		return s.TID
	}
	tids, err := files.TIDs(s.PID, nil)
	if err != nil {
		return s.TID
	}
	for _, tid := range tids {
		if t, err := r.read(files, process{tid, rootGroup}); err == nil && t.PID == s.PID && t.State != evidence.Zombie && t.State != evidence.Dead {
			return tid
		}
	}
	return s.TID
}

// service finds the main thread of a service.
func (r *Round) service(ctx context.Context, files *kernfile.Reader, comms []string) (*kernfile.TaskStatus, error) {
	candidates, err := r.office(ctx, files, func(c string) bool { return slices.Contains(comms, c) })
	if err != nil {
		return nil, fmt.Errorf("look for process %s: %w", comms[0], err)
	}
	var found *kernfile.TaskStatus
	var services []*kernfile.TaskStatus
	apart := 0 // candidates that are no child of another one
	for i := range candidates {
		s := &candidates[i]
		if s.State == evidence.Zombie && s.Threads <= 1 {
			continue // it has ended, and whoever started it has not taken note
		}
		if !slices.ContainsFunc(candidates, func(o kernfile.TaskStatus) bool { return o.PID == s.PPID }) {
			apart++
		}
		if found == nil || s.PPID == 1 && found.PPID != 1 {
			found = s
		}
		services = append(services, s)
	}
	if apart > 1 && slices.Contains(comms, ownerContainerd) {
		if found = r.listening(ctx, services); found == nil {
			return nil, fmt.Errorf("%d processes called %s: %w", apart, ownerContainerd, errSeveral)
		}
	}
	return found, nil
}

// listening returns that of several containerds which listens on the kubelet's socket; nil when none of them is
// known to. One that was started after the socket was connected to has the number of one that has ended.
func (r *Round) listening(ctx context.Context, services []*kernfile.TaskStatus) *kernfile.TaskStatus {
	if r.Containerd == nil {
		return nil
	}
	pid, seen := r.Containerd()
	i := slices.IndexFunc(services, func(s *kernfile.TaskStatus) bool { return s.PID == pid })
	if i < 0 {
		return nil
	}
	s := services[i]
	_ = r.probeMain(ctx, s, &tables{Round: r}) // what could not be read of it is not known
	now := time.Now()
	// When it was started is told by the clock as it is now, which may have been set since.
	if s.Probe == nil || s.Probe.Started.IsZero() || s.Probe.Started.After(now.Add(-now.Sub(seen))) {
		return nil
	}
	return s
}

// errSeveral says that which of several containerds the kubelet speaks to is not known.
var errSeveral = errors.New("which of them the kubelet speaks to is not known")

// ReadProcess is ReadMain, and returns those of the service's threads that are
// blocked as well: in state D, or asleep until a FUSE daemon answers, which shows as
// S. An error can come with results: something could not be read.
func (r *Round) ReadProcess(ctx context.Context, comms ...string) (process *evidence.Task, blocked []evidence.Task, err error) {
	files, err := kernfile.Open(r.Proc)
	if err != nil {
		return nil, nil, err
	}
	defer files.Close()
	found, err := r.service(ctx, files, comms)
	if found == nil {
		return nil, nil, err
	}
	threads, err := files.TIDs(found.PID, nil)
	if err != nil && !kernfile.Gone(err) {
		return &found.Task, nil, fmt.Errorf("list threads of process %d: %w", found.PID, err)
	}
	t := &tables{Round: r}
	var firstErr error
	probed := 0
	for _, tid := range threads {
		s := *found
		if tid != found.TID {
			if s, err = files.TaskStatus(tid); err != nil || s.PID != found.PID {
				continue
			}
			s.Cgroup, s.Owner = found.Cgroup, found.Owner
		}
		is, err := r.blocked(ctx, &s)
		if is && probed < maxThreads {
			probed++
			err = r.probe(ctx, &s, t, "")
		}
		if is {
			blocked = append(blocked, s.Task)
		}
		if tid == found.TID {
			found.Probe = s.Probe
		}
		if err != nil && firstErr == nil {
			firstErr = err
		}
		if ctx.Err() != nil {
			break
		}
	}
	if err := r.probeMain(ctx, found, t); err != nil && firstErr == nil {
		firstErr = err
	}
	return &found.Task, blocked, firstErr
}

// blocked reports whether a thread is in state D or waits for a FUSE daemon.
// Sleepers are asked for their wchan only, because a service has dozens of them
// and nearly all wait for work.
func (h *Host) blocked(ctx context.Context, s *kernfile.TaskStatus) (bool, error) {
	switch {
	case s.State == evidence.Uninterruptible:
		return true, nil
	case s.State != evidence.Sleeping || h.Prober == nil:
		return false, nil
	}
	saw, err := h.Prober.Ask(ctx, probe.Wchan, h.Proc, &s.Task, s.Owner)
	if err != nil {
		return false, fmt.Errorf("read wchan of task %d: %w", s.TID, err)
	}
	return saw.Wchan == "request_wait_answer" || strings.HasPrefix(saw.Wchan, "fuse_"), nil
}
