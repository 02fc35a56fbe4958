package proc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"golang.org/x/sys/unix"
)

// Bounds of the search for what a pod has left behind: processes looked at,
// descriptors of one shim, and processes told of.
const (
	maxSearched  = 32_768
	maxShimFiles = 4096
	maxLeftovers = 64
)

// readLeftovers finds the processes outside the pod's groups that hold the
// standard output or error of a container whose first process has ended. The
// shim reads these pipes until everybody has closed them, and containerd says
// that the container runs until the shim is done. Where PIDs are shared, a
// process that was moved into another group (sudo, systemd-run, a container
// made by the container) lives on when the others of its container are killed.
//
// Only for such a pod is all of /proc looked at. Results that come with an error
// are good but not all. A pipe that a process holds
// under another number than 0, 1 and 2 is not found.
func (r *Round) readLeftovers(ctx context.Context, files *reader, p *evidence.Pod, tasks, parents []status) ([]status, error) {
	if !p.HostPID && !p.ShareProcessNamespace || !slices.ContainsFunc(p.Containers, func(c evidence.Container) bool { return ended(&c, tasks) }) {
		return nil, nil
	}
	pipes := make(map[uint64]bool)
	known := make(map[int]bool)
	mountID, err := pipeMount()
	if err != nil {
		return nil, err
	}
	for i := range tasks {
		known[tasks[i].PID] = true
	}
	for i := range parents {
		if parents[i].Owner != ownerShim {
			continue
		}
		known[parents[i].PID] = true
		if err := readPipes(files, parents[i].PID, mountID, pipes); err != nil {
			return nil, fmt.Errorf("pipes of shim %d: %w", parents[i].PID, err)
		}
	}
	if len(pipes) == 0 {
		return nil, nil
	}
	pids, err := r.pids()
	if err != nil {
		return nil, err
	}
	uid := cmp.Or(p.RuntimeUID, p.UID)
	var out []status
	var hidden error
	for i, pid := range pids {
		switch {
		case i%64 == 0 && ctx.Err() != nil:
			return out, ctx.Err()
		case i == maxSearched:
			return out, fmt.Errorf("more than %d processes: %w", maxSearched, errTooMany)
		case known[pid]:
			continue
		}
		held, err := holdsPipe(files, pid, mountID, pipes)
		if err != nil && hidden == nil {
			hidden = err // the others are looked at all the same
		}
		if !held {
			continue
		}
		s, err := readStatus(files, pid)
		if err != nil {
			continue // it has ended
		}
		s.Cgroup = readCgroup(files, pid)
		if of, _ := podOfPath(s.Cgroup); of == uid || of == "" && (strings.HasPrefix(s.Comm, shimComm) || s.Comm == ownerContainerd) {
			continue
		}
		// Its number may have gone to another process in between.
		if held, _ := holdsPipe(files, pid, mountID, pipes); !held {
			continue
		}
		s.Owner, s.Container = owner(&s.Task)
		if out = append(out, s); len(out) == maxLeftovers {
			break
		}
	}
	return out, hidden
}

// ended says that a container runs by the word of containerd, while its first
// process, which the shim knows, and all others in its group are gone.
func ended(c *evidence.Container, tasks []status) bool {
	return c.Kind != evidence.Sandbox && c.ID != "" && c.State == evidence.StateRunning && c.Task.PID > 0 &&
		!slices.ContainsFunc(tasks, func(s status) bool { return s.Container == c.ID || s.TID == c.Task.PID })
}

// pipeMount gives the ID of the mount that all pipes of the kernel are on. It is
// in no mountinfo; a pipe of our own tells it.
func pipeMount() (int, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer read.Close()
	defer write.Close()
	b, err := readFile("/proc/self/fdinfo/" + strconv.Itoa(int(read.Fd())))
	if err != nil {
		return 0, err
	}
	f, err := parseFDInfo(b)
	if err != nil {
		return 0, err
	}
	if f.inode == 0 {
		return 0, errNoInodes
	}
	return f.mountID, nil
}

var errNoInodes = errors.New("kernels before 5.14 do not tell which pipe a descriptor is")

// readPipes adds the inodes of the pipes that a process reads from.
func readPipes(r *reader, pid, mountID int, pipes map[uint64]bool) error {
	fds, err := listIDs(r.dir, strconv.Itoa(pid)+"/fdinfo")
	if gone(err) {
		return nil
	}
	if denied(err) {
		return fmt.Errorf("%w%s", err, grant("fdinfo", err))
	}
	if err != nil {
		return err
	}
	if len(fds) > maxShimFiles {
		return fmt.Errorf("more than %d descriptors: %w", maxShimFiles, errTooMany)
	}
	for _, fd := range fds {
		f, err := readFDInfo(r, pid, fd)
		if gone(err) {
			continue
		}
		if err != nil {
			return err
		}
		if f.mountID == mountID && !f.writable() {
			pipes[f.inode] = true
		}
	}
	return nil
}

// holdsPipe says that a standard stream of a process writes to one of the pipes.
func holdsPipe(r *reader, pid, mountID int, pipes map[uint64]bool) (bool, error) {
	for fd := range 3 {
		f, err := readFDInfo(r, pid, fd)
		switch {
		case gone(err):
			continue // closed, or the process has ended
		case denied(err):
			return false, fmt.Errorf("read fdinfo of process %d: %w%s", pid, errDenied, grant("fdinfo", nil))
		case errors.Is(err, unix.EINVAL):
			continue // a task that has left its namespaces
		case err != nil:
			return false, err
		}
		if f.mountID == mountID && f.writable() && pipes[f.inode] {
			return true, nil
		}
	}
	return false, nil
}
