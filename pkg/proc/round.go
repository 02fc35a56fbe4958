package proc

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kernfile"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/mount"
	"github.com/nodeagent-io/nodeagent/pkg/proc/probe"
)

// A Round is one look at the host: its methods read one pod, one service of the
// node, or what is blocked on the node, and share what all of them need. The
// host's mount table is parsed and /proc is listed at most once, each when it is
// first asked for. What the host tells of its connections to file servers, and what
// processes have open (walk), is read once too. It is safe for use by several
// goroutines.
//
// What is shared is as old as the round. A round is meant for a few seconds:
// make a new one for the next look.
type Round struct {
	*Host
	kubelet string // the kubelet's directory, "" while it is not known

	mounts mount.View
	crowd  atomic.Int64 // tasks of the pods that have more than fewTasks
	// connected counts the pods of which the connections were read.
	connected atomic.Int64
	// pids returns the processes that /proc lists, in ascending order.
	pids func() ([]int, error)

	byComm *shared[map[string]*[]int]
	// plugins are the CNI plugins that take down networks and set them up.
	plugins *shared[plugins]
	// unanswered are the connections in the kubelet's network over which nothing has come back,
	// and sockets those that it has open.
	unanswered *shared[unanswered]
	sockets    *shared[[]uint64]
	// emptyDirs are the volumes of this kind of which the kubelet has a directory open.
	emptyDirs *shared[[]probe.OpenEmptyDir]
	// ofContainerd are the limits that containerd has used up.
	ofContainerd *shared[short]

	search *walk[user]
	// others are the processes in other mount namespaces, by these, as far as search has been;
	// who walks may use it. elsewhere is what of these namespaces has to do with the host's.
	others    map[string][]int
	elsewhere *shared[[]namespace]
	openers   *walk[opener]
	placed    map[string]*mount.Line // of the paths of these; who walks may use it
	pipes     *walk[pipeUser]
	indexed   int // how many pipes are kept of these; who walks may use it
}

// Bounds of the tasks that are read in a round, which are kept until the next one. A
// pod of up to fewTasks is always read; all others together have room for maxCrowd.
const (
	fewTasks = 512
	maxCrowd = 32_768
)

// admits reports whether there is room in the round for a pod of so many tasks.
func (r *Round) admits(tasks int) bool {
	return tasks <= fewTasks || r.crowd.Add(int64(tasks)) <= maxCrowd
}

// Round returns a new round. It reads nothing yet.
func (h *Host) Round() *Round {
	dir := h.kubeletDir()
	return &Round{
		Host:    h,
		kubelet: dir,
		byComm:  newShared[map[string]*[]int](),
		plugins: newShared[plugins](),

		unanswered: newShared[unanswered](),
		sockets:    newShared[[]uint64](),
		emptyDirs:  newShared[[]probe.OpenEmptyDir](),

		ofContainerd: newShared[short](),

		search: newWalk[user](),

		others:    make(map[string][]int),
		elsewhere: newShared[[]namespace](),
		openers:   newWalk[opener](),

		placed: make(map[string]*mount.Line),
		pipes:  newWalk[pipeUser](),
		mounts: mount.View{Proc: h.Proc, FUSE: h.FUSE, KubeletDir: filepath.Clean(dir), Blocks: h.Blocks},
		pids: sync.OnceValues(func() ([]int, error) {
			r, err := kernfile.Open(h.Proc)
			if err != nil {
				return nil, err
			}
			defer r.Close()
			return r.PIDs()
		}),
	}
}

// each calls do with the processes of the node, in ascending order, until it returns
// false. With an error it has not been called with all of them.
func (r *Round) each(ctx context.Context, do func(pid int) bool) error {
	return r.eachAfter(ctx, 0, do)
}

// eachAfter is the same, and begins after one of them.
func (r *Round) eachAfter(ctx context.Context, after int, do func(pid int) bool) error {
	pids, err := r.pids()
	if err != nil {
		return err
	}
	if after > 0 {
		i, _ := slices.BinarySearch(pids, after+1)
		pids = slices.Concat(pids[i:], pids[:i])
	}
	for i, pid := range pids {
		switch {
		case i%64 == 0 && ctx.Err() != nil:
			return ctx.Err()
		case i == maxSearched:
			return fmt.Errorf("more than %d processes: %w", maxSearched, kernfile.ErrTooMany)
		}
		if !do(pid) {
			break
		}
	}
	return nil
}

// pidsByComm returns the processes by comm. The comms are read once in a round;
// a process may have changed its own since then, or have ended.
func (r *Round) pidsByComm(ctx context.Context, files *kernfile.Reader) (map[string]*[]int, error) {
	return r.byComm.get(ctx, func() (map[string]*[]int, error) {
		pids, err := r.pids()
		if err != nil {
			return nil, err
		}
		byComm := make(map[string]*[]int)
		for i, pid := range pids {
			if i%64 == 0 && ctx.Err() != nil {
				return nil, ctx.Err()
			}
			b, err := files.Task(pid, kernfile.Comm)
			if err != nil {
				continue // it has ended
			}
			if n := len(b); n > 0 && b[n-1] == '\n' {
				b = b[:n-1]
			}
			if of, ok := byComm[string(b)]; ok {
				*of = append(*of, pid)
			} else {
				byComm[string(b)] = &[]int{pid}
			}
		}
		return byComm, nil
	})
}

// processes returns the processes whose comm is wanted, in order of their IDs.
func (r *Round) processes(ctx context.Context, files *kernfile.Reader, want func(comm string) bool) ([]kernfile.TaskStatus, error) {
	byComm, err := r.pidsByComm(ctx, files)
	if err != nil {
		return nil, err
	}
	var pids []int
	for comm, of := range byComm {
		if want(comm) {
			pids = append(pids, *of...)
		}
	}
	slices.Sort(pids)
	var out []kernfile.TaskStatus
	for _, pid := range pids {
		s, err := files.TaskStatus(pid)
		if kernfile.Gone(err) {
			continue
		}
		if err != nil {
			return out, err
		}
		if want(s.Comm) { // its number may have gone to another process
			out = append(out, s)
		}
	}
	return out, nil
}
