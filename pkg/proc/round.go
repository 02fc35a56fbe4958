package proc

import (
	"context"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
)

// A Round is one look at the host: its methods read one pod, one service of the
// node, or what is blocked on the node, and share what all of them need. The
// host's mount table is parsed and /proc is listed at most once, each when it is
// first asked for, and what the host tells of its connections to file servers is
// read once too. It is safe for use by several goroutines.
//
// What is shared is as old as the round. A round is meant for a few seconds:
// make a new one for the next look.
type Round struct {
	*Host

	// mountTable returns the host's mount table, that of its first process.
	mountTable func() (*mountTable, error)
	// pids returns the processes that /proc lists, in ascending order.
	pids func() ([]int, error)
	// mountstats returns what the host's mountstats says; nothing when it cannot
	// be read.
	mountstats func() []nfsStats

	mu          sync.Mutex
	byComm      map[string][]int // nil until it is asked for
	connections map[netip.AddrPort]connection
}

// Round returns a new round. It reads nothing yet.
func (h *Host) Round() *Round {
	return &Round{
		Host: h,
		mountTable: sync.OnceValues(func() (*mountTable, error) {
			return readMountinfo(filepath.Join(h.Proc, "1", "mountinfo"))
		}),
		pids: sync.OnceValues(func() ([]int, error) {
			r, err := newReader(h.Proc)
			if err != nil {
				return nil, err
			}
			defer r.close()
			return listIDs(r.dir, ".")
		}),
		mountstats: sync.OnceValue(func() []nfsStats {
			stats, _ := readMountstats(filepath.Join(h.Proc, "1", "mountstats")) // unknown then
			return stats
		}),
	}
}

// pidsByComm returns the processes by comm. The comms are read once in a round;
// a process may have changed its own since then, or have ended.
func (r *Round) pidsByComm(ctx context.Context, files *reader) (map[string][]int, error) {
	pids, err := r.pids()
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byComm != nil {
		return r.byComm, nil
	}
	byComm := make(map[string][]int)
	for i, pid := range pids {
		if i%64 == 0 && ctx.Err() != nil {
			return nil, ctx.Err() // whoever has more time begins again
		}
		b, err := files.ofTask(pid, "comm")
		if err != nil {
			continue // it has ended
		}
		if n := len(b); n > 0 && b[n-1] == '\n' {
			b = b[:n-1]
		}
		byComm[string(b)] = append(byComm[string(b)], pid)
	}
	r.byComm = byComm
	return byComm, nil
}

// processes returns the processes whose comm is wanted, in order of their IDs.
func (r *Round) processes(ctx context.Context, files *reader, want func(comm string) bool) ([]status, error) {
	byComm, err := r.pidsByComm(ctx, files)
	if err != nil {
		return nil, err
	}
	var pids []int
	for comm, of := range byComm {
		if want(comm) {
			pids = append(pids, of...)
		}
	}
	slices.Sort(pids)
	var out []status
	for _, pid := range pids {
		s, err := readStatus(files, pid)
		if gone(err) {
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

// connection returns the connection of the host's first process to a server.
// Its state is "" when it cannot be told.
func (r *Round) connection(to netip.AddrPort) connection {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, known := r.connections[to]
	if !known {
		c, _ = readConnection(filepath.Join(r.Proc, "1", "net"), to) // unknown then
		if r.connections == nil {
			r.connections = make(map[netip.AddrPort]connection)
		}
		r.connections[to] = c
	}
	return c
}
