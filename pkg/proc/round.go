package proc

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/cgroup"
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

	podGroups *cgroup.Snapshot
	mounts    mount.View
	tasks     atomic.Int64 // that were admitted
	// connected counts the pods of which the connections were read.
	connected atomic.Int64
	// pids returns the processes that /proc lists, in ascending order.
	pids   func() ([]int, error)
	census *shared[census]
	// purse is for the processes of pods, and threads for their threads.
	purse, threads *purse

	byComm *shared[map[string]*[]process]
	shims  *shims
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
	members   *walk[member]
}

// maxTasks bounds the tasks that are read in a round, which are kept until the next one. The more of it is used up, the fewer a
// pod may have to be read: the last part is for pods of up to fewTasks, of which there is room for twice as many as a kubelet runs.
const (
	maxTasks = 49_152
	fewTasks = 64
)

// admits reports whether there is room in the round for a pod of so many tasks.
func (r *Round) admits(tasks int) bool {
	room := int64(maxTasks)
	switch {
	case tasks > 8*fewTasks:
		room = maxTasks * 4 / 6
	case tasks > fewTasks:
		room = maxTasks * 5 / 6
	}
	for {
		kept := r.tasks.Load()
		if kept+int64(tasks) > room {
			return false
		}
		if r.tasks.CompareAndSwap(kept, kept+int64(tasks)) {
			return true
		}
	}
}

// Round returns a new round. It reads nothing yet.
func (h *Host) Round() *Round {
	dir := h.kubeletDir()
	return &Round{
		Host:      h,
		kubelet:   dir,
		podGroups: h.tree().Snapshot(time.Now),
		census:    newShared[census](),
		purse:     newPurse(h),
		threads:   newPurse(h),
		byComm:    newShared[map[string]*[]process](),
		shims:     newShims(),
		plugins:   newShared[plugins](),

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

		members: newMembers(),
		mounts:  mount.View{Proc: h.Proc, FUSE: h.FUSE, KubeletDir: filepath.Clean(dir), Blocks: h.Blocks},
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

// pidsByComm returns the processes outside of pods by comm. The comms are read once in a round;
// a process may have changed its own since then, or have ended.
func (r *Round) pidsByComm(ctx context.Context, files *kernfile.Reader) (map[string]*[]process, error) {
	return r.byComm.get(ctx, func() (map[string]*[]process, error) {
		known, err := r.taken(ctx, files)
		if err != nil {
			return nil, err
		}
		byComm := make(map[string]*[]process)
		for _, p := range known.all {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			if p.payer != "" && p.payer != rootGroup {
				continue
			}
			b, err := files.Task(p.pid, kernfile.Comm)
			if err != nil {
				continue // it has ended
			}
			if n := len(b); n > 0 && b[n-1] == '\n' {
				b = b[:n-1]
			}
			if of, ok := byComm[string(b)]; ok {
				*of = append(*of, p)
			} else {
				byComm[string(b)] = &[]process{p}
			}
		}
		return byComm, known.cut
	})
}

// processes returns the processes outside of pods whose comm is wanted, in order of their IDs.
func (r *Round) processes(ctx context.Context, files *kernfile.Reader, want func(comm string) bool) ([]kernfile.TaskStatus, error) {
	byComm, err := r.pidsByComm(ctx, files)
	if err != nil {
		return nil, err
	}
	var wanted []process
	for comm, of := range byComm {
		if want(comm) {
			wanted = append(wanted, *of...)
		}
	}
	slices.SortFunc(wanted, func(a, b process) int { return a.pid - b.pid })
	var out []kernfile.TaskStatus
	var dear error
	for _, p := range wanted {
		if ctx.Err() != nil {
			return out, ctx.Err()
		}
		s, err := r.read(files, p)
		if kernfile.Gone(err) {
			continue
		}
		if errors.Is(err, errDear) {
			dear = err
			continue
		}
		if err != nil {
			return out, err
		}
		if want(s.Comm) { // its number may have gone to another process
			out = append(out, s)
		}
	}
	if len(out) > 0 {
		return out, nil // what is dear is a zombie of a pod, in the root group of version 1
	}
	return out, dear
}
