package proc

import (
	"cmp"
	"context"
	"maps"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kernfile"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/mount"
	"github.com/nodeagent-io/nodeagent/pkg/proc/probe"
)

// Bounds of the look into other mount namespaces, of which a node has one for each container:
// namespaces, mounts that are kept of them, bytes of mount tables that are read for that, and
// processes of one that are asked. What is beyond is not told.
const (
	maxNamespaces = 1024
	maxElsewhere  = 8192
	maxTables     = 32 << 20
	maxAsked      = 256
)

// A namespace is a mount namespace other than the host's, by the text of its link: its processes in ascending
// order, and those of its mounts that may have to do with the host's.
type namespace struct {
	name  string
	pids  []int
	lines []mount.Line
}

// An opener is a process in such a namespace, and the numbers of the loop devices that it has
// open.
type opener struct {
	task   evidence.Task
	blocks []string
}

// inOwn is behind what a process has that is in another mount namespace than the host's.
const inOwn = ", in a mount namespace of its own"

// readElsewhere finds what keeps one of some mounts of the host's, by their IDs, or a loop device on it, in use from other mount
// namespaces than the host's: a file system of the loop device that is mounted in one, a process
// that has the loop device open, and one that uses a copy of the mount that goes with it. A
// namespace is named by its first process. That nothing is found proves nothing.
func (r *Round) readElsewhere(ctx context.Context, files *kernfile.Reader, ids map[int]bool, host *mount.Table, loops ...evidence.Loop) []evidence.Holder {
	spaces, err := r.elsewhere.get(ctx, func() ([]namespace, error) { return r.readNamespaces(ctx) })
	if err != nil {
		return nil
	}
	var out []evidence.Holder
	for i, found := 0, 0; i < len(spaces) && found < maxHolders && ctx.Err() == nil; i++ {
		n, before := &spaces[i], len(out)
		if h, ok := n.mounted(files, loops); ok {
			out = append(out, h)
		} else if len(host.Copies(ids, n.lines)) > 0 {
			out = append(out, r.usersOf(ctx, files, n, ids, host)...)
		}
		if len(out) > before {
			found++
		}
	}
	if len(out) == 0 && len(loops) > 0 && ctx.Err() == nil {
		out = r.openersOf(ctx, files, loops)
	}
	return inTurn(out)
}

// inTurn returns as many as are told of, in turn from each mount namespace.
func inTurn(all []evidence.Holder) []evidence.Holder {
	turns := make([]int, len(all))
	of := make(map[string]int)
	for i := range all {
		turns[i] = of[all[i].Namespace]
		of[all[i].Namespace]++
	}
	var out []evidence.Holder
	for turn := 0; turn < len(all) && len(out) < min(len(all), maxHolders); turn++ {
		for i := range all {
			if turns[i] == turn && len(out) < maxHolders {
				out = append(out, all[i])
			}
		}
	}
	return out
}

// readNamespaces reads the mounts of the other namespaces in which processes have been found.
func (r *Round) readNamespaces(ctx context.Context) ([]namespace, error) {
	all := slices.SortedFunc(maps.Keys(r.others), func(a, b string) int { return cmp.Compare(r.others[a][0], r.others[b][0]) })
	var out []namespace
	kept, read := 0, 0
	for i, name := range all {
		pids := r.others[name]
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if i == maxNamespaces || kept >= maxElsewhere || read >= maxTables {
			break
		}
		table, err := mount.ReadTable(filepath.Join(r.Proc, strconv.Itoa(pids[0])))
		if err != nil {
			continue // it has ended
		}
		read += table.Size
		n := namespace{name: name, pids: slices.Compact(pids)} // a look that was given up is begun again with the same process
		for j := range table.Lines {
			if m := &table.Lines[j]; m.Reaches() {
				n.lines = append(n.lines, *m)
			}
		}
		if kept += len(n.lines); len(n.lines) > 0 {
			out = append(out, n)
		}
	}
	return out, nil
}

// mounted returns the first process of a namespace in which a file system of one of the loop devices
// is mounted. Where the host has mounted it, a copy may go with the host's mount, which comes first.
func (n *namespace) mounted(files *kernfile.Reader, loops []evidence.Loop) (evidence.Holder, bool) {
	for i := range loops {
		l := &loops[i]
		if l.Mount != nil || mount.OnDevice(n.lines, l.Numbers) == nil {
			continue
		}
		for _, pid := range n.pids {
			if s, ok := living(files, pid); ok {
				return evidence.Holder{Task: s.Task, MountID: l.MountID, Via: "the file system of /dev/" + l.Name + inOwn, Namespace: n.name, Mounted: true}, true
			}
		}
	}
	return evidence.Holder{}, false
}

// usersOf finds the processes of a namespace that use a copy of one of the host's mounts, by
// their IDs.
func (r *Round) usersOf(ctx context.Context, files *kernfile.Reader, n *namespace, ids map[int]bool, host *mount.Table) []evidence.Holder {
	var out []evidence.Holder
	for _, pid := range n.pids[:min(len(n.pids), maxAsked)] {
		s, ok := living(files, pid)
		if !ok {
			continue
		}
		saw, err := r.askFiles(ctx, probe.Uses, &s)
		if err != nil {
			continue
		}
		table, err := mount.ReadTable(filepath.Join(r.Proc, strconv.Itoa(pid)))
		if err != nil {
			continue
		}
		copies := host.Copies(ids, table.Lines)
		place := table.Place
		if saw.Dirs["root"] != "/" || !table.Whole() {
			place = func(string) *mount.Line { return nil } // its paths are not those of its table
		}
		for _, u := range usesOf(place, &saw) {
			if id, ok := copies[u.mount]; ok {
				out = append(out, evidence.Holder{Task: s.Task, MountID: id, Via: u.via + inOwn, Namespace: n.name})
				break
			}
		}
	}
	return out
}

// openersOf finds the processes in other mount namespaces that have one of the loop devices open.
func (r *Round) openersOf(ctx context.Context, files *kernfile.Reader, loops []evidence.Loop) []evidence.Holder {
	all, _ := r.openers.all(ctx, r, files, "", func(s *kernfile.TaskStatus) (opener, bool, error) {
		saw, err := r.askFiles(ctx, probe.Blocks, s)
		return opener{s.Task, saw.Blocks}, len(saw.Blocks) > 0, err
	})
	var out []evidence.Holder
	for i := range all {
		for j := range loops {
			l := &loops[j]
			if slices.ContainsFunc(l.Numbers, func(n string) bool { return slices.Contains(all[i].blocks, n) }) {
				out = append(out, evidence.Holder{Task: all[i].task, MountID: l.MountID, Via: "the loop device /dev/" + l.Name + " on " +
					"it" + inOwn, Namespace: r.namespaceOf(all[i].task.PID)})
				break
			}
		}
	}
	return out
}

// namespaceOf returns the mount namespace in which a process has been found, "" for the host's.
func (r *Round) namespaceOf(pid int) string {
	for name, pids := range r.others {
		if slices.Contains(pids, pid) {
			return name
		}
	}
	return ""
}

// living reads a process that has not ended.
func living(files *kernfile.Reader, pid int) (kernfile.TaskStatus, bool) {
	s, err := files.TaskStatus(pid)
	if err != nil || s.Kernel || s.State == evidence.Zombie || s.State == evidence.Dead {
		return kernfile.TaskStatus{}, false
	}
	s.Cgroup = readCgroup(files, pid)
	s.Owner, s.Container = owner(&s.Task)
	return s, true
}
