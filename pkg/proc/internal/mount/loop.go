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
// what is told to be on one of them. A loop device has 255 partitions at most, and its directory
// a few dozen other names (loop_init, drivers/block/loop.c).
const (
	maxBlocks = 4096
	maxOnLoop = 8
	maxInLoop = 512
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
		l := evidence.Loop{Name: "loop" + minor, MountID: devices[i].ID, Numbers: []string{e.Name()}, Mapper: mappedOn(dir), Mount: v.mountOf(host, e.Name())}
		if name, ok := kernfile.Named(dir); ok {
			l.Name = name // each device has several minor numbers where partitions have such (loop.max_part)
		}
		if err := v.partitions(&l, host, dir); err != nil {
			return out, err
		}
		out = append(out, l)
	}
	return out, nil
}

// partitions adds the partitions of a loop device, which are directories in its own, and what
// uses them on the host.
func (v *View) partitions(l *evidence.Loop, host *Table, dir string) error {
	names, truncated, err := kernfile.List(dir, maxInLoop)
	if err != nil {
		return err
	}
	if truncated {
		return kernfile.ErrTooMany
	}
	for _, n := range names {
		if !strings.HasPrefix(n.Name(), l.Name+"p") {
			continue
		}
		part := filepath.Join(dir, n.Name())
		b, err := kernfile.Read(part, kernfile.BlockNumber)
		if err != nil {
			continue // it has been removed
		}
		number := kernfile.Printable(bytes.TrimSpace(b))
		l.Numbers = append(l.Numbers, number)
		l.Mapper = append(l.Mapper, mappedOn(part)...)
		if l.Mount == nil {
			l.Mount = v.mountOf(host, number)
		}
	}
	slices.Sort(l.Numbers[1:])
	slices.Sort(l.Mapper)
	l.Mapper = slices.Compact(l.Mapper)
	return nil
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
