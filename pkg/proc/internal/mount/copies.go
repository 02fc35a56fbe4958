package mount

import (
	"path"
	"slices"
	"strings"
)

// Reaches reports whether a mount in another namespace than the host's may be one of those that
// Copies and OnDevice look for, or hold one: it gets what is mounted from another mount, or it
// can be on a loop device or a partition of one, which have the majors 7 and 259
// (Documentation/admin-guide/devices.txt).
func (m *Line) Reaches() bool {
	return m.Shared > 0 || m.Master > 0 || strings.HasPrefix(m.Device, "7:") || strings.HasPrefix(m.Device, "259:")
}

// OnDevice returns the first mount that is on one of some block devices, by their numbers; nil
// when none is.
func OnDevice(lines []Line, numbers []string) *Line {
	if i := slices.IndexFunc(lines, func(m Line) bool { return slices.Contains(numbers, m.Device) }); i >= 0 {
		return &lines[i]
	}
	return nil
}

// Copies returns which lines of another namespace are copies of some of the host's mounts that
// the kernel unmounts with these, by their IDs with those of the host's mounts: one that is in use keeps the
// host's busy (propagate_mount_busy, fs/pnode.c). A copy shows the same, at the same place of
// a mount that gets what is mounted on the one that the host's mount is on. One with a mount of its
// own on it is left out, as the kernel leaves it. That it all goes through a third mount is not seen.
func (t *Table) Copies(ids map[int]bool, lines []Line) map[int]int {
	out := make(map[int]int)
	other := Table{Lines: lines}
	for i := range t.Lines {
		m := &t.Lines[i]
		if !ids[m.ID] {
			continue
		}
		on := t.ByID(m.Parent)
		if on == nil || on.Shared == 0 {
			continue
		}
		for j := range lines {
			c := &lines[j]
			if c.ID == m.ID || c.Device != m.Device || c.Root != m.Root || slices.ContainsFunc(lines, func(l Line) bool { return l.Parent == c.ID }) {
				continue
			}
			under := other.ByID(c.Parent)
			if under != nil && (under.Shared == on.Shared || under.Master == on.Shared) && under.place(c.Point) == on.place(m.Point) {
				out[c.ID] = m.ID
			}
		}
	}
	return out
}

// place returns where in the file system of a mount a path is that lies on it.
func (m *Line) place(p string) string { return path.Join(m.Root, "/", strings.TrimPrefix(p, m.Point)) }
