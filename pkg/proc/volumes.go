package proc

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kernfile"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/mount"
	"github.com/nodeagent-io/nodeagent/pkg/proc/probe"
)

// PodDirs returns the UIDs of the pods that the kubelet has directories of.
func (r *Round) PodDirs(ctx context.Context) ([]string, error) {
	if r.Prober == nil {
		return nil, errNoProber
	}
	return r.Prober.Pods(ctx, r.Proc, r.kubelet)
}

// readVolumes fills in what is left of the pod's volumes, and who uses their mounts.
func (r *Round) readVolumes(ctx context.Context, files *kernfile.Reader, p *evidence.Pod, uid string) {
	if r.Prober == nil {
		p.Lack(evidence.Volumes, errNoProber.Error())
		p.Lack(evidence.Holders, errNoProber.Error())
		return
	}
	if why := r.mountsUnknown(); why != "" {
		p.Lack(evidence.Volumes, why)
		p.Lack(evidence.Holders, why)
		return
	}
	dirs, sockets, found, err := r.Prober.Volumes(ctx, r.Proc, r.kubelet, uid, namesOfDevices(p)...)
	if err != nil {
		p.Lack(evidence.Volumes, fmt.Sprintf("list the directories of the pod's volumes: %v", err))
	}
	p.Seen.Directory = p.Seen.Directory || found
	p.Volumes = slices.Grow(p.Volumes, len(dirs))
	for _, d := range dirs {
		v := evidence.Volume{Name: kernfile.Printable(d.Name), Plugin: kernfile.Printable(d.Plugin), Block: d.Block,
			Driver: kernfile.Printable(d.Driver), Inline: d.Inline, NoRecord: d.NoRecord, Subpaths: d.Subpaths}
		v.Unregistered = d.Driver != "" && !slices.ContainsFunc(sockets, func(s string) bool { return strings.HasPrefix(s, d.Driver) })
		p.Volumes = append(p.Volumes, v)
	}
	r.readEmptyDirs(ctx, p, uid)
	for _, m := range p.Devices {
		if !slices.ContainsFunc(p.Volumes, func(v evidence.Volume) bool { return v.Block && v.Name == m.Volume && v.Plugin == m.Plugin }) {
			p.Volumes = append(p.Volumes, evidence.Volume{Name: m.Volume, Plugin: m.Plugin, Block: true})
		}
	}
	if len(p.Mounts)+len(p.Devices) == 0 || p.Overdue() < holdersAfter {
		return
	}
	host, err := r.mounts.Host()
	if err != nil {
		return // Mounts is missing
	}
	if p.Loops, err = r.mounts.Loops(host, p.Devices); err != nil {
		p.Lack(evidence.Holders, fmt.Sprintf("look for loop devices on the pod's block devices: %v", err))
	}
	ids := mountIDs(p.Mounts, p.Devices)
	users, err := r.readHolders(ctx, files, uid, ids, host, p.Loops...)
	if err != nil {
		p.Lack(evidence.Holders, fmt.Sprintf("look for processes that use the pod's mounts: %v", err))
	}
	if len(users) == 0 && ctx.Err() == nil {
		users = r.readElsewhere(ctx, files, ids, host, p.Loops...)
	}
	r.probeHolders(ctx, p, users)
	p.Holders = append(p.Holders, users...)
}

// emptyDir is the kubelet's plugin of volumes whose files it deletes itself.
const emptyDir = "kubernetes.io~empty-dir"

// readEmptyDirs notes when the kubelet has deleted something in the pod's emptyDir volumes, of those that it has open.
// The directories in which it deletes are open to it meanwhile, each of them up to the volume's own. What cannot be read
// shows nothing.
func (r *Round) readEmptyDirs(ctx context.Context, p *evidence.Pod, uid string) {
	k := p.Node.Kubelet.Process
	if k == nil || !slices.ContainsFunc(p.Volumes, func(v evidence.Volume) bool { return v.Plugin == emptyDir }) {
		return
	}
	open, err := r.emptyDirs.get(ctx, func() ([]probe.OpenEmptyDir, error) {
		saw, err := r.Prober.EmptyDirs(ctx, r.Proc, k, k.Owner, r.kubelet)
		return saw.EmptyDirs, err
	})
	if err != nil {
		return
	}
	for i := range p.Volumes {
		v := &p.Volumes[i]
		for _, d := range open {
			if v.Plugin == emptyDir && d.Pod == uid && d.Volume == v.Name {
				v.LastDeleted = d.Changed
			}
		}
	}
}

// namesOfDevices returns the names of the pod's block devices of CSI drivers.
func namesOfDevices(p *evidence.Pod) []string {
	var out []string
	for _, m := range p.Devices {
		if m.Plugin == "kubernetes.io~csi" && !slices.Contains(out, m.Volume) && len(out) < maxHolders {
			out = append(out, m.Volume)
		}
	}
	return out
}

const (
	// maxHolders bounds the processes that are told of.
	maxHolders = evidence.MaxHolders
	// holdersAfter is how far past its deadline a pod is when the files of all
	// processes are looked at: most volumes are unmounted within a second.
	holdersAfter = 10 * time.Second
	// maxPlaced bounds the paths of which the mounts are kept in a round.
	maxPlaced = 1024
)

// readHolders finds the processes in the host's mount namespace that use one of some
// mounts, by their IDs, or a loop device that lies on one. An open file names its mount by
// its ID. Of a directory or a program only the path is known, so that nothing is said where
// two mounts are at one place.
// Results that come with an error are good but not all.
func (r *Round) readHolders(
	ctx context.Context, files *kernfile.Reader, uid string, mounts map[int]bool, host *mount.Table, loops ...evidence.Loop,
) ([]evidence.Holder, error) {
	users, err := r.users(ctx, files, uid, host)
	var out []evidence.Holder
	for _, u := range users {
		id, via := holds(mounts, u.uses)
		for _, l := range loops {
			if open := openOf(&l, u.loops); via == "" && open != "" {
				id, via = l.MountID, "the loop device /dev/"+open+" on it"
			}
		}
		if via == "" {
			continue
		}
		if out = append(out, evidence.Holder{Task: u.task, MountID: id, Via: via}); len(out) == maxHolders {
			break
		}
	}
	return out, err
}

// A user is a process in the host's mount namespace and what it uses of it.
type user struct {
	task  evidence.Task
	uses  []use
	loops []string // the names of the loop devices that it has open
}

// A use is of a mount, by its ID, and by what.
type use struct {
	mount int
	via   string
}

// users returns the processes in the host's mount namespace. Those that come with an
// error are not all of them.
func (r *Round) users(ctx context.Context, files *kernfile.Reader, uid string, host *mount.Table) ([]user, error) {
	// Most processes work in few directories.
	place := func(p string) *mount.Line {
		m, known := r.placed[p]
		if !known {
			m = host.Place(p)
		}
		if len(r.placed) < maxPlaced {
			r.placed[p] = m
		}
		return m
	}
	return r.search.all(ctx, r, files, uid, func(s *kernfile.TaskStatus) (user, bool, error) {
		saw, err := r.askFiles(ctx, probe.Holds, s)
		if saw.Namespace != "" {
			r.others[saw.Namespace] = append(r.others[saw.Namespace], s.PID)
		}
		if !saw.InHost {
			return user{}, false, err
		}
		return user{s.Task, uses(place, &saw), openLoops(host, &saw)}, true, err
	})
}

// mountIDs returns the IDs of mounts.
func mountIDs(mounts ...[]evidence.Mount) map[int]bool {
	out := make(map[int]bool)
	for _, list := range mounts {
		for i := range list {
			out[list[i].ID] = true
		}
	}
	return out
}

// holds returns the first of some mounts, by their IDs, that is used, and by what; "" when
// none is.
func holds(mounts map[int]bool, uses []use) (id int, via string) {
	for _, u := range uses {
		if mounts[u.mount] {
			return u.mount, u.via
		}
	}
	return 0, ""
}

// uses returns what a process uses of the host's mounts: none in another namespace. place
// returns the one that a path lies on, nil when that is not certain.
func uses(place func(path string) *mount.Line, saw *probe.Seen) []use {
	if !saw.InHost {
		return nil
	}
	return usesOf(place, saw)
}

// usesOf is uses of any namespace, of which place is.
func usesOf(place func(path string) *mount.Line, saw *probe.Seen) []use {
	var out []use
	for _, id := range saw.Mounts {
		out = append(out, use{id, "an open file"})
	}
	for _, link := range []struct{ name, via string }{
		{"cwd", "its working directory"}, {"root", "its root directory"}, {"exe", "its program"},
	} {
		text := strings.TrimSuffix(saw.Dirs[link.name], " (deleted)")
		if text == "" {
			continue
		}
		if m := place(text); m != nil {
			out = append(out, use{m.ID, link.via})
		}
	}
	return out
}

// openOf returns which of the loop devices that a process has open is the given one, or a
// partition of it, which keeps it busy as well (bdev_open, block/bdev.c); "" for none.
func openOf(l *evidence.Loop, open []string) string {
	i := slices.IndexFunc(open, func(name string) bool { return name == l.Name || strings.HasPrefix(name, l.Name+"p") })
	if i < 0 {
		return ""
	}
	return open[i]
}

// openLoops returns the names of the loop devices that a process has open in the host's
// /dev: elsewhere anything can have such a name.
func openLoops(host *mount.Table, saw *probe.Seen) []string {
	var out []string
	for _, l := range saw.Loops {
		if m := host.Holding(l.Path); saw.InHost && m != nil && m.ID == l.MountID && m.Point != l.Path {
			out = append(out, strings.TrimPrefix(l.Path, "/dev/"))
		}
	}
	return out
}
