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
		l := evidence.Loop{Name: "loop" + minor, MountID: devices[i].ID, Numbers: []string{e.Name()}, Mapper: v.mappedOn(host, dir), Mount: v.mountOf(host, e.Name())}
		if name, ok := kernfile.Named(dir); ok {
			l.Name = name // each device has several minor numbers where partitions have such (loop.max_part)
		}
		if b, err := kernfile.Read(dir, kernfile.LoopReleased); err == nil {
			l.Released = string(bytes.TrimSpace(b)) == "1"
		}
		if err := v.partitions(&l, host, dir); err != nil {
			return out, err
		}
		out = append(out, l)
	}
	return out, nil
}

// partitions adds the partitions of a loop device, and what uses them on the host.
func (v *View) partitions(l *evidence.Loop, host *Table, dir string) error {
	parts, err := partitionsOf(dir, l.Name)
	if err != nil {
		return err
	}
	for _, part := range parts {
		b, err := kernfile.Read(part, kernfile.BlockNumber)
		if err != nil {
			continue // it has been removed
		}
		number := kernfile.Printable(bytes.TrimSpace(b))
		l.Numbers = append(l.Numbers, number)
		for _, m := range v.mappedOn(host, part) {
			if len(l.Mapper) < maxOnLoop && !among(l.Mapper, &m) {
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

// partitionsOf returns the directories of the partitions of a block device of the given name,
// which are in its own. A p is before their number where the name ends with one (add_partition,
// block/partitions/core.c).
func partitionsOf(dir, name string) ([]string, error) {
	names, truncated, err := kernfile.List(dir, maxInLoop)
	if err != nil {
		return nil, err
	}
	if truncated {
		return nil, kernfile.ErrTooMany
	}
	if c := name[len(name)-1]; '0' <= c && c <= '9' {
		name += "p"
	}
	slices.SortFunc(names, byName)
	var out []string
	for _, n := range names {
		if number, ok := strings.CutPrefix(n.Name(), name); ok && number != "" && strings.Trim(number, "0123456789") == "" {
			out = append(out, filepath.Join(dir, n.Name()))
		}
	}
	return out, nil
}

// mappedOn returns the block devices that the kernel has made of one
// (Documentation/ABI/stable/sysfs-block, holders), and those that it has made of these or of
// their partitions, as a logical volume on a LUKS, in this order.
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
			m, parts, ok := v.mapped(host, held, h.Name())
			if !ok || len(out) == maxOnLoop || among(out, &m) {
				continue
			}
			out, dirs = append(out, m), append(append(dirs, held), parts...)
		}
	}
	return out
}

func byName(a, b kernfile.Entry) int { return strings.Compare(a.Name(), b.Name()) }

// among reports whether a device is among some.
func among(all []evidence.Mapped, d *evidence.Mapped) bool {
	return slices.ContainsFunc(all, func(m evidence.Mapped) bool { return m.Kind == d.Kind && m.Name == d.Name })
}

// mapped reads a device that the kernel has made of another one, and calls by a name; not ok when
// it is gone. It returns the directories of its partitions, which those of the device mapper do
// not have.
func (v *View) mapped(host *Table, dir, kernel string) (m evidence.Mapped, parts []string, ok bool) {
	number, err := kernfile.Read(dir, kernfile.BlockNumber)
	if err != nil {
		return m, nil, false
	}
	m.Mount = v.mountOf(host, kernfile.Printable(bytes.TrimSpace(number)))
	if name, err := kernfile.Read(dir, kernfile.DMName); err == nil {
		m.Name = kernfile.Printable(bytes.TrimSpace(name))
		if uuid, err := kernfile.Read(dir, kernfile.DMUUID); err == nil && bytes.HasPrefix(uuid, []byte(lvmUUID)) {
			m.Logical = logicalVolume(m.Name)
		}
		return m, nil, true
	}
	m.Kind, m.Name = evidence.MadeByOther, kernfile.Printable([]byte(kernel))
	if kernfile.Exists(dir, kernfile.MDState) {
		m.Kind = evidence.MadeByMD
	}
	parts, err = partitionsOf(dir, kernel)
	if err != nil {
		return m, nil, false
	}
	for _, part := range parts {
		if b, err := kernfile.Read(part, kernfile.BlockNumber); err == nil && m.Mount == nil {
			m.Mount = v.mountOf(host, kernfile.Printable(bytes.TrimSpace(b)))
		}
	}
	return m, parts, !strings.HasPrefix(kernel, "dm-") // of which the rest is gone, or is yet to come
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
