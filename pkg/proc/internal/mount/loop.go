package mount

import (
	"bytes"
	"io/fs"
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
		l := evidence.Loop{Name: "loop" + minor, MountID: devices[i].ID, Numbers: []string{e.Name()}, Mapper: v.mappedOn(host, dir), Mount: v.mountOf(host, e.Name())}
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
	slices.SortFunc(names, byName)
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
		for _, m := range v.mappedOn(host, part) {
			if len(l.Mapper) < maxOnLoop && !among(l.Mapper, m.Name) {
				l.Mapper = append(l.Mapper, m)
			}
		}
		if l.Mount == nil {
			l.Mount = v.mountOf(host, number)
		}
	}
	slices.Sort(l.Numbers[1:])
	return nil
}

// mappedOn returns the devices of the device mapper that hold a block device
// (Documentation/ABI/stable/sysfs-block, holders), and those that hold these, as a logical
// volume on a LUKS does, in this order.
func (v *View) mappedOn(host *Table, dir string) []evidence.Mapped {
	var out []evidence.Mapped
	for dirs := []string{dir}; len(dirs) > 0; dirs = dirs[1:] {
		holders, _, err := kernfile.List(filepath.Join(dirs[0], "holders"), maxOnLoop)
		if err != nil {
			continue
		}
		slices.SortFunc(holders, byName)
		for _, h := range holders {
			held := filepath.Join(dirs[0], "holders", h.Name())
			m, ok := v.mapped(host, held)
			if !ok || len(out) == maxOnLoop || among(out, m.Name) {
				continue
			}
			out, dirs = append(out, m), append(dirs, held)
		}
	}
	return out
}

func byName(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) }

// among reports whether a device of that name is among some.
func among(all []evidence.Mapped, name string) bool {
	return slices.ContainsFunc(all, func(m evidence.Mapped) bool { return m.Name == name })
}

// mapped reads a device of the device mapper; not ok when it is another device.
func (v *View) mapped(host *Table, dir string) (m evidence.Mapped, ok bool) {
	name, err := kernfile.Read(dir, kernfile.DMName)
	if err != nil {
		return m, false
	}
	m.Name = kernfile.Printable(bytes.TrimSpace(name))
	if uuid, err := kernfile.Read(dir, kernfile.DMUUID); err == nil && bytes.HasPrefix(uuid, []byte(lvmUUID)) {
		m.Logical = logicalVolume(m.Name)
	}
	if number, err := kernfile.Read(dir, kernfile.BlockNumber); err == nil {
		m.Mount = v.mountOf(host, kernfile.Printable(bytes.TrimSpace(number)))
	}
	return m, true
}

// lvmUUID is what LVM begins the UUIDs of its devices with (lib/misc/lvm-string.h).
const lvmUUID = "LVM-"

// logicalVolume returns the logical volume of LVM, as in vg/lv, that the device of a name is;
// "" for none. A dash stands between the two, and before a layer of the volume, as in
// vg-lv-real; one that is part of a name is doubled (dm_build_dm_name, libdm/libdm-string.c).
func logicalVolume(name string) string {
	parts := strings.Split(strings.ReplaceAll(name, "--", "\x00"), "-")
	if len(parts) < 2 || parts[0] == "" || parts[1] == "" {
		return ""
	}
	return strings.ReplaceAll(parts[0]+"/"+parts[1], "\x00", "-")
}

// mountOf returns the first mount of a block device's file system on the host, nil when
// there is none. One on which another file system is mounted has no HostPoint: umount would take
// that. Of one in a pod's volume the place is that of the volume (parseVolumePath).
func (v *View) mountOf(host *Table, device string) *evidence.Mount {
	i := slices.IndexFunc(host.Lines, func(l Line) bool { return l.Device == device })
	if i < 0 {
		return nil
	}
	e := v.Mount(&host.Lines[i])
	if name, ok := parseVolumePath(v.KubeletDir, host.Lines[i].Point); ok {
		e.Point = kernfile.Printable(name.point)
	}
	on := func(l Line) bool { return l.Point == host.Lines[i].Point && l.Device != device }
	if !slices.ContainsFunc(host.Lines[i+1:], on) {
		e.HostPoint = e.Point
	}
	return &e
}
