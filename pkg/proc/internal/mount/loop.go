package mount

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kernfile"
)

// Bounds of the search for loop devices: block devices of the node that are looked at, and
// what is told to be on one of them.
const (
	maxBlocks = 4096
	maxOnLoop = 8
)

// loopMajor is the major number of loop devices (Documentation/admin-guide/devices.txt).
const loopMajor = "7:"

// Loops returns the loop devices that lie on one of a pod's block devices, and what uses
// them on the host. A device that the kernel has cannot be missed, but for those that come
// meanwhile. An error says that not all were looked at.
func (v *View) Loops(host *Table, devices []evidence.Mount) ([]evidence.Loop, error) {
	if v.Blocks == "" || len(devices) == 0 {
		return nil, nil
	}
	all, truncated, err := kernfile.List(v.Blocks, maxBlocks)
	if err != nil {
		return nil, err
	}
	if truncated {
		return nil, kernfile.ErrTooMany
	}
	var out []evidence.Loop
	for _, e := range all {
		minor, ok := strings.CutPrefix(e.Name(), loopMajor)
		if !ok {
			continue
		}
		dir := filepath.Join(v.Blocks, e.Name())
		b, err := kernfile.Read(dir, kernfile.LoopFile)
		if err != nil {
			continue // it has no file, as most of them
		}
		file := strings.TrimSuffix(string(bytes.TrimSuffix(b, []byte("\n"))), " (deleted)")
		i := slices.IndexFunc(devices, func(m evidence.Mount) bool { return m.Point == file })
		if i < 0 || file == "" {
			continue
		}
		out = append(out, evidence.Loop{Name: "loop" + minor, MountID: devices[i].ID, Mapper: mappedOn(dir), Mount: v.mountOf(host, e.Name())})
	}
	return out, nil
}

// mappedOn returns the names of the devices of the device mapper that hold a block device
// (Documentation/ABI/stable/sysfs-block, holders).
func mappedOn(dir string) []string {
	holders, _, err := kernfile.List(filepath.Join(dir, "holders"), maxOnLoop)
	if err != nil {
		return nil
	}
	var out []string
	for _, h := range holders {
		if b, err := kernfile.Read(filepath.Join(dir, "holders", h.Name()), kernfile.DMName); err == nil {
			out = append(out, kernfile.Printable(bytes.TrimSpace(b)))
		}
	}
	slices.Sort(out)
	return out
}

// mountOf returns the first mount of a block device's file system on the host, nil when
// there is none.
func (v *View) mountOf(host *Table, device string) *evidence.Mount {
	for i := range host.Lines {
		if host.Lines[i].Device == device {
			e := v.Mount(&host.Lines[i])
			e.HostPoint = e.Point
			return &e
		}
	}
	return nil
}
