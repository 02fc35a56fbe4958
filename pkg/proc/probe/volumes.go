package probe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kernfile"
	"golang.org/x/sys/unix"
)

// A VolumeDir is a directory of the kubelet for a volume of a pod (evidence.Volume).
type VolumeDir struct {
	Name     string `json:"-"` // among those of volumeDirs
	Plugin   string `json:"plugin,omitempty"`
	Block    bool   `json:"block,omitempty"`
	Driver   string `json:"driver,omitempty"`
	Inline   bool   `json:"inline,omitempty"`
	NoRecord bool   `json:"noRecord,omitempty"`
	Subpaths int    `json:"subpaths,omitempty"`
}

// A volumeDirs is directories of volumes one after the other that differ by their names only.
// A pod may have hundreds, and the helper tells them in a fraction of the time.
type volumeDirs struct {
	VolumeDir
	Names []string `json:"names"`
}

// alike puts directories together that differ by their names only, and apart takes them apart
// again, in the same order.
func alike(dirs []VolumeDir) []volumeDirs {
	var out []volumeDirs
	for _, d := range dirs {
		name := d.Name
		d.Name = ""
		if n := len(out); n == 0 || out[n-1].VolumeDir != d {
			out = append(out, volumeDirs{VolumeDir: d})
		}
		last := &out[len(out)-1]
		last.Names = append(last.Names, name)
	}
	return out
}

func apart(all []volumeDirs) []VolumeDir {
	var out []VolumeDir
	for _, dirs := range all {
		for _, name := range dirs.Names {
			d := dirs.VolumeDir
			d.Name = name
			out = append(out, d)
		}
	}
	return out
}

// Bounds of what is listed, in names.
const (
	maxVolumes = 512
	maxSockets = 512
	maxPods    = 4096
	// largestData bounds a vol_data.json, in bytes.
	largestData = 64 << 10
)

// Volumes asks for the directories of a pod's volumes, and for the names of the
// sockets in plugins_registry; found reports whether there is a directory of the pod.
// dir is the kubelet's directory as the host names it. devices are the names of the block
// devices of CSI drivers that are mounted: they are among the volumes, with their drivers,
// although the kubelet removes the pod's names of them first.
func (p *Prober) Volumes(ctx context.Context, proc, dir, pod string, devices ...string) (dirs []VolumeDir, sockets []string, found bool, err error) {
	saw, err := p.askDir(ctx, request{What: volumes, Proc: proc, PID: 1, TID: 1, Owner: "kubelet", Dir: dir, Pod: pod, Devices: devices})
	return apart(saw.Volumes), saw.Sockets, saw.Found, err
}

// Pods asks for the names of the directories of all pods.
func (p *Prober) Pods(ctx context.Context, proc, dir string) ([]string, error) {
	saw, err := p.askDir(ctx, request{What: pods, Proc: proc, PID: 1, TID: 1, Owner: "kubelet", Dir: dir})
	return saw.Pods, err
}

func (p *Prober) askDir(ctx context.Context, q request) (Seen, error) {
	saw, err := p.remember(ctx, q, hungKey{what: q.What, pod: q.Pod})
	switch {
	case err != nil:
		return Seen{}, err
	case len(saw.Denied) > 0:
		return Seen{}, fmt.Errorf("read %s: permission denied", saw.Denied[0])
	case len(saw.Errors) > 0:
		return Seen{}, errors.New(saw.Errors[0])
	}
	return saw, nil
}

// kubelet opens the kubelet's directory in the mount namespace of the first
// process. Nothing of it is held open behind the request. Below it no mount is crossed and no link
// followed: names are listed of directories of the kubelet's own file system.
func (p *probe) kubelet() *dir {
	if !p.announce(p.Dir) {
		return nil
	}
	// The one link that is followed is that of the kernel to the host's root.
	root, err := unix.Open(filepath.Join(p.Proc, "1", "root"), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		p.note("root", err)
		return nil
	}
	defer unix.Close(root)
	fd, err := p.beneath(root, "/", strings.TrimPrefix(p.Dir, "/"), unix.O_PATH|unix.O_DIRECTORY, false)
	if err != nil {
		p.problem(p.Dir, err)
		return nil
	}
	return &dir{fd: fd}
}

func (p *probe) problem(name string, err error) {
	p.seen.Errors = append(p.seen.Errors, fmt.Sprintf("open %s: %v", name, err))
}

// names lists a directory below the kubelet's; nothing when there is none.
func (p *probe) names(kubelet *dir, name string, limit int) []string {
	if !p.announce(path.Join(p.Dir, name)) {
		return nil
	}
	fd, err := p.beneath(kubelet.fd, p.Dir, name, unix.O_RDONLY|unix.O_DIRECTORY, true)
	if err != nil {
		if !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTDIR) {
			p.problem(path.Join(p.Dir, name), err)
		}
		return nil
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	all, err := f.Readdirnames(limit + 1)
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		p.problem(path.Join(p.Dir, name), err)
	case len(all) > limit:
		p.problem(path.Join(p.Dir, name), fmt.Errorf("more than %d names: %w", limit, kernfile.ErrTooMany))
	}
	slices.Sort(all)
	return all
}

// exists reports whether a directory below the kubelet's can be opened.
func (p *probe) exists(kubelet *dir, name string) bool {
	if !p.announce(path.Join(p.Dir, name)) {
		return false
	}
	fd, err := p.beneath(kubelet.fd, p.Dir, name, unix.O_PATH|unix.O_DIRECTORY, true)
	if err != nil {
		return false // names tells why, if it is not because there is none
	}
	_ = unix.Close(fd) // nothing was written
	return true
}

func (p *probe) pods() {
	if kubelet := p.kubelet(); kubelet != nil {
		defer kubelet.close()
		p.seen.Pods = p.names(kubelet, "pods", maxPods)
	}
}

// volumes lists the directories of the pod's volumes. They are told when all are known: one
// that is missing would count as absent.
func (p *probe) volumes() {
	kubelet := p.kubelet()
	if kubelet == nil {
		return
	}
	defer kubelet.close()
	if p.Pod == "" || p.Pod != filepath.Base(p.Pod) || p.Pod == ".." {
		p.problem("the pod's directory", unix.EINVAL)
		return
	}
	pod := path.Join("pods", p.Pod)
	p.seen.Found = p.exists(kubelet, pod)
	var found []VolumeDir
	csi := false
	for _, kind := range []string{"volumes", "volumeDevices"} {
		for _, plugin := range p.names(kubelet, path.Join(pod, kind), maxVolumes) {
			for _, name := range p.names(kubelet, path.Join(pod, kind, plugin), maxVolumes) {
				v := VolumeDir{Name: name, Plugin: plugin, Block: kind == "volumeDevices"}
				switch {
				case plugin != csiPlugin:
				case v.Block:
					v.Driver, csi = p.deviceDriver(kubelet, name), true
				default:
					data, none := p.volData(kubelet, path.Join(pod, kind, plugin, name, "vol_data.json"))
					v.Driver, v.Inline, v.NoRecord = data.DriverName, data.LifecycleMode == inlineMode, none
					csi = true
				}
				found = append(found, v)
			}
		}
	}
	for _, name := range p.Devices {
		if slices.ContainsFunc(found, func(v VolumeDir) bool { return v.Block && v.Name == name && v.Plugin == csiPlugin }) {
			continue
		}
		csi = true
		found = append(found, VolumeDir{Name: name, Plugin: csiPlugin, Block: true, Driver: p.deviceDriver(kubelet, name)})
	}
	for _, name := range p.names(kubelet, path.Join(pod, "volume-subpaths"), maxVolumes) {
		n := 0
		for _, container := range p.names(kubelet, path.Join(pod, "volume-subpaths", name), maxVolumes) {
			n += len(p.names(kubelet, path.Join(pod, "volume-subpaths", name, container), maxVolumes))
		}
		if i := slices.IndexFunc(found, func(v VolumeDir) bool { return v.Name == name }); i >= 0 {
			found[i].Subpaths = n
		} else if n > 0 {
			found = append(found, VolumeDir{Name: name, Subpaths: n})
		}
	}
	if csi {
		p.seen.Sockets = p.names(kubelet, "plugins_registry", maxSockets)
	}
	p.seen.Volumes = alike(found)
}

// csiPlugin is the name of the directories of volumes of CSI drivers.
const csiPlugin = "kubernetes.io~csi"

// deviceDriver reads the name of the CSI driver of a block device (getVolumeDeviceDataDir,
// pkg/volume/csi/csi_util.go).
func (p *probe) deviceDriver(kubelet *dir, name string) string {
	data, _ := p.volData(kubelet, path.Join("plugins/kubernetes.io/csi/volumeDevices", name, "data/vol_data.json"))
	return data.DriverName
}

// volData is what is read of a vol_data.json (pkg/volume/csi/csi_mounter.go): the CSI driver,
// and inlineMode where the volume stands in the pod's specification itself.
type volData struct {
	DriverName    string `json:"driverName"`
	LifecycleMode string `json:"volumeLifecycleMode"`
}

const inlineMode = "Ephemeral"

// volData reads a vol_data.json, which the kubelet writes beside the volume's mount; what is not
// known of it is empty. none reports whether there is no such file, or none that the kubelet could use: one that
// cannot be read here says nothing.
func (p *probe) volData(kubelet *dir, name string) (data volData, none bool) {
	if !p.announce(path.Join(p.Dir, name)) {
		return volData{}, false
	}
	fd, err := p.beneath(kubelet.fd, p.Dir, name, unix.O_RDONLY|unix.O_NONBLOCK, true)
	if err != nil {
		return volData{}, errors.Is(err, unix.ENOENT)
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return volData{}, false
	}
	b, err := io.ReadAll(io.LimitReader(f, largestData))
	if err != nil || len(b) == largestData {
		return volData{}, false
	}
	if json.Unmarshal(b, &data) != nil {
		return volData{}, true
	}
	return data, false
}
