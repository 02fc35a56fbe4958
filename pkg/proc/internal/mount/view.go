package mount

import (
	"iter"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// A View is the host's mounts in one round: its mount table, and what it tells of
// its connections to file servers. Each is read when it is first asked for, and
// once. It is safe for use by several goroutines.
type View struct {
	Proc       string // the host's /proc
	FUSE       string // the host's /sys/fs/fuse/connections; "" when there is none
	KubeletDir string // the kubelet's root directory, as the host names it, without / at its end
	Blocks     string // the host's /sys/dev/block; "" when there is none

	table struct {
		once once
		*Table
		err error
	}
	pods struct {
		once once
		// lines are the indices in the host's table of the mounts at or below each
		// directory of the kubelet's pods, by its name, and devices those of the mounts
		// below its directory plugins, by the last element of the mount point.
		lines, devices map[string][]int
		// containers are those that can be of a container, by its ID.
		containers map[string][]int
		// volumes has for each plugin and name of a volume the pod for which it is mounted,
		// and several for more than one.
		volumes map[[2]string]string
	}
	servers struct {
		once     once
		of       map[string]fileServer // by the device of the file system
		repeated map[string]int64      // by the connections
	}
	mu          sync.Mutex
	connections map[netip.AddrPort]connection
}

// A once is a sync.Once that panics for everybody: nobody takes for read what has panicked.
type once struct {
	sync.Once
	panicked any
}

func (o *once) Do(read func()) {
	o.Once.Do(func() {
		defer func() { o.panicked = recover() }()
		read()
	})
	if o.panicked != nil {
		panic(o.panicked)
	}
}

// Host returns the host's mount table, that of its first process.
func (v *View) Host() (*Table, error) {
	v.table.once.Do(func() { v.table.Table, v.table.err = ReadTable(filepath.Join(v.Proc, "1")) })
	return v.table.Table, v.table.err
}

// connection returns the connection of the host's first process to a server.
// Its state is "" when it cannot be told.
func (v *View) connection(to netip.AddrPort) connection {
	v.mu.Lock()
	c, known := v.connections[to]
	v.mu.Unlock()
	if known {
		return c
	}
	c, _ = readConnection(filepath.Join(v.Proc, "1"), to) // unknown then
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.connections == nil {
		v.connections = make(map[netip.AddrPort]connection)
	}
	v.connections[to] = c
	return c
}

// index notes whose the mounts of the host's table are.
func (v *View) index(host *Table) {
	v.pods.lines, v.pods.devices, v.pods.containers = make(map[string][]int), make(map[string][]int), make(map[string][]int)
	v.pods.volumes = make(map[[2]string]string)
	pods, plugins := filepath.Join(v.KubeletDir, "pods")+"/", filepath.Join(v.KubeletDir, "plugins")+"/"
	for i := range host.Lines {
		point := host.Lines[i].Point
		if below, ok := strings.CutPrefix(point, pods); ok {
			pod, _, _ := strings.Cut(below, "/")
			v.pods.lines[pod] = append(v.pods.lines[pod], i)
			v.noteVolume(point)
		} else if strings.HasPrefix(point, plugins) {
			name := point[strings.LastIndexByte(point, '/')+1:]
			v.pods.devices[name] = append(v.pods.devices[name], i)
		}
		for id := range containersIn(point) {
			if of := v.pods.containers[id]; len(of) == 0 || of[len(of)-1] != i {
				v.pods.containers[id] = append(of, i)
			}
		}
	}
}

// several stands for the UIDs of more than one pod.
const several = "*"

// noteVolume notes for which pod a volume is mounted.
func (v *View) noteVolume(point string) {
	name, ok := parseVolumePath(v.KubeletDir, point)
	if !ok || name.plugin == "" {
		return
	}
	key := [2]string{name.plugin, name.volume}
	if pod, known := v.pods.volumes[key]; known && pod != name.pod {
		name.pod = several
	}
	v.pods.volumes[key] = name.pod
}

// Directories of containerd that have one for each container, called by its ID: Tasks with
// its root file system, ImageVolumes with the image volumes of a sandbox (imageVolumeDir in
// internal/cri/server/helpers.go).
const (
	Tasks        = "/io.containerd.runtime.v2.task/k8s.io/"
	ImageVolumes = "/io.containerd.grpc.v1.cri/image-volumes/"
)

// containersIn yields the IDs of the containers that a mount point can be of. A path can
// hold several, because what is inside of a volume is called as its owner likes.
func containersIn(point string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, dir := range []string{Tasks, ImageVolumes} {
			rest := point
			for i := strings.Index(rest, dir); i >= 0; i = strings.Index(rest, dir) {
				id, _, _ := strings.Cut(rest[i+len(dir):], "/")
				if !yield(id) {
					return
				}
				rest = rest[i+1:]
			}
		}
	}
}

// OfContainer returns the lines of the host's table that can be of a container, by its ID,
// in their order: no others have its directory in their path.
func (v *View) OfContainer(host *Table, id string) []*Line {
	v.pods.once.Do(func() { v.index(host) })
	var out []*Line
	for _, i := range v.pods.containers[id] {
		out = append(out, &host.Lines[i])
	}
	return out
}

// PodMounts returns the mounts of the host's table at or below the pod's directory of the
// kubelet.
func (v *View) PodMounts(host *Table, uid string) []evidence.Mount {
	v.pods.once.Do(func() { v.index(host) })
	out := v.mountsAt(host, v.pods.lines[uid])
	for i := range out {
		out[i].Shared = out[i].Plugin != "" && v.pods.volumes[[2]string{out[i].Plugin, out[i].Volume}] == several
	}
	return out
}

// Knows reports whether the host has a mount below the directory of a pod.
func (v *View) Knows(host *Table, uid string) bool {
	v.pods.once.Do(func() { v.index(host) })
	return len(v.pods.lines[uid]) > 0
}

// PodDevices returns the host's mounts by which a pod is given block devices. Their
// names end with the pod's UID.
func (v *View) PodDevices(host *Table, uid string) []evidence.Mount {
	v.pods.once.Do(func() { v.index(host) })
	out := v.mountsAt(host, v.pods.devices[uid])
	for i := range out {
		out[i].Plugin, out[i].Volume = deviceOf(strings.TrimPrefix(out[i].Point, filepath.Join(v.KubeletDir, "plugins")+"/"))
	}
	return out
}

// deviceOf returns the plugin, in the form of the directories of pods, and the name of the
// PersistentVolume that are in the path of a pod's device below the directory plugins:
// PLUGIN/volumeDevices/NAME/UID, and of CSI drivers NAME/dev/UID, which the kubelet makes,
// or publish/NAME/UID, which the driver does (GetGlobalMapPath and getPublishPath of
// pkg/volume/csi/csi_block.go).
func deviceOf(path string) (plugin, volume string) {
	dir := filepath.Dir(path)
	if filepath.Base(dir) == "dev" {
		dir = filepath.Dir(dir)
	}
	plugin, _, _ = strings.Cut(path, "/volumeDevices/")
	return strings.ReplaceAll(plugin, "/", "~"), filepath.Base(dir)
}

func (v *View) mountsAt(host *Table, lines []int) []evidence.Mount {
	out := slices.Grow([]evidence.Mount(nil), len(lines))
	for _, i := range lines {
		e := v.Mount(&host.Lines[i])
		e.HostPoint = e.Point
		out = append(out, e)
	}
	return out
}

// Volume returns the path of the volume, of any pod, that a path is at or below,
// without what is inside of the volume; not ok when it is in none.
func (v *View) Volume(p string) (point string, ok bool) {
	name, ok := parseVolumePath(v.KubeletDir, p)
	return name.point, ok
}
