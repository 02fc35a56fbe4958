// Package mount reads mount tables and makes evidence of them: which volume of which
// pod a mount is, how many requests wait for a FUSE daemon, and whether a file server
// answers.
package mount

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kernfile"
)

// Bounds of what is kept of one mountinfo file, and of a line of it, in bytes. Linux
// allows 100,000 mounts in a namespace (fs.mount-max), each with a mount point of 4 KiB,
// and anybody who may make a user namespace can make them. A node with 500 pods of ten
// mounts has 2 MiB. An overlay with 128 lower directories has a line of some 20 KiB, of
// which little is kept.
const (
	maxTable     = 4 << 20
	maxMountLine = 1 << 20
)

// A Line is one line of a mountinfo file (proc(5)) with its escapes undone.
type Line struct {
	ID, Parent int
	Device     string // major:minor
	Root       string // the directory of the file system that is mounted
	Point      string // relative to the root of the task whose file it is
	Options    string // of the mount
	Type       string // of the file system
	Source     string
	Super      string // those options of the file system that are asked for; others can hold secrets
}

// A Table is a mountinfo file.
type Table struct {
	Lines []Line
	// Bad counts lines that were not understood. They say nothing about the others.
	Bad int
	// Cut reports whether the file was read in part only, because it is too long.
	Cut bool
	// Size is about the memory that the table takes, in bytes.
	Size int
}

// Whole reports whether each mount is in the table, so that what is not there is not
// mounted.
func (t *Table) Whole() bool { return t.Bad == 0 && !t.Cut }

// ReadTable reads the mounts that a task sees, whose directory is given. A task that has left its
// namespaces gives EINVAL.
func ReadTable(dir string) (*Table, error) {
	f, err := kernfile.Stream(dir, kernfile.Mountinfo)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return Parse(f)
}

// Parse reads a mountinfo file. A line that is not understood is counted and takes
// no other with it. Lines may be long: an overlay of many layers has one that is
// longer than a bufio.Scanner takes, and a pod that mounts for the node
// (Bidirectional mount propagation) chooses what its lines look like.
func Parse(r io.Reader) (*Table, error) {
	var t Table
	in := bufio.NewReaderSize(r, 64<<10)
	var begun []byte // a line that the buffer does not hold
	skipping := false
	for {
		line, err := in.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			if begun = append(begun, line...); skipping || len(begun) > maxMountLine {
				begun, skipping = begun[:0], true
			}
			continue
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		if len(begun) > 0 {
			begun = append(begun, line...)
			line, begun = begun, begun[:0]
		}
		switch {
		case skipping:
			t.Bad++
			skipping = false
		case len(line) > 0:
			t.add(bytes.TrimSuffix(line, []byte("\n")))
		}
		if err != nil || t.Cut {
			return &t, nil
		}
	}
}

func (t *Table) add(line []byte) {
	m, err := parseMountLine(line)
	if err != nil {
		t.Bad++
		return
	}
	size := int(unsafe.Sizeof(m)) + len(m.Device) + len(m.Root) + len(m.Point) + len(m.Options) + len(m.Type) + len(m.Source) + len(m.Super)
	if t.Cut = t.Size+size > maxTable; t.Cut {
		return
	}
	t.Size += size
	t.Lines = append(t.Lines, m)
}

var errMountLine = errors.New("a mountinfo line of unknown form")

// parseMountLine parses one line:
//
//	36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
//
// The fields are separated by one space each, so that an empty source is one.
// There can be any number of tags before the lone dash.
func parseMountLine(line []byte) (Line, error) {
	mounted, fileSystem, ok := bytes.Cut(line, []byte(" - "))
	if !ok {
		return Line{}, errMountLine
	}
	// The options of the file system are the last field; of those of an overlay the
	// lower directories are the most.
	super := ""
	if words := bytes.SplitN(fileSystem, []byte(" "), 3); len(words) == 3 {
		super = wanted(words[2])
		fileSystem = fileSystem[:len(fileSystem)-len(words[2])-1]
	}
	f := strings.SplitN(string(mounted), " ", 7)
	g := strings.SplitN(string(fileSystem), " ", 2)
	if len(f) < 6 || len(g) < 2 {
		return Line{}, errMountLine
	}
	var m Line
	var err1, err2 error
	m.ID, err1 = strconv.Atoi(f[0])
	m.Parent, err2 = strconv.Atoi(f[1])
	if err1 != nil || err2 != nil || !strings.Contains(f[2], ":") || f[4] == "" || g[0] == "" {
		return Line{}, errMountLine
	}
	m.Device = f[2]
	m.Root = unescape(f[3])
	m.Point = unescape(f[4])
	m.Options = f[5]
	m.Type = unescape(g[0])
	m.Source = unescape(g[1])
	m.Super = unescape(super)
	return m, nil
}

// superOptions are the options of file systems that are asked for.
var superOptions = []string{"ro", "addr", "mon_addr", "upperdir", "proto", "vers", "port", "soft", "softerr"}

// wanted returns those of the options of a file system that are asked for.
func wanted(super []byte) string {
	var out []byte
	for o := range bytes.SplitSeq(super, []byte(",")) {
		if name, _, _ := bytes.Cut(o, []byte("=")); slices.Contains(superOptions, string(name)) {
			if len(out) > 0 {
				out = append(out, ',')
			}
			out = append(out, o...)
		}
	}
	return string(out)
}

// unescape undoes the octal escapes \040 (blank), \011 (tab), \012 (newline),
// \134 (backslash) and \043 (#) of fs/proc_namespace.c (mangle).
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				out = append(out, byte(n))
				i += 3
				continue
			}
		}
		out = append(out, s[i])
	}
	return string(out)
}

// ByID finds a mount by its ID.
func (t *Table) ByID(id int) *Line {
	for i := range t.Lines {
		if t.Lines[i].ID == id {
			return &t.Lines[i]
		}
	}
	return nil
}

// Holding finds the mount that an absolute path lies on, going by names only:
// the longest mount point that is the path or a directory above it, and of
// those stacked on each other the last, which hides the ones below.
func (t *Table) Holding(p string) *Line {
	var best *Line
	for i := range t.Lines {
		m := &t.Lines[i]
		if within(p, m.Point) && (best == nil || len(m.Point) >= len(best.Point)) {
			best = m
		}
	}
	return best
}

// Stacked reports whether another mount is at the same place, so that a path does
// not tell which one is meant.
func (t *Table) Stacked(m *Line) bool {
	for i := range t.Lines {
		if t.Lines[i].Point == m.Point && t.Lines[i].ID != m.ID {
			return true
		}
	}
	return false
}

// within reports whether a path is the directory or lies below it.
func within(p, dir string) bool {
	if dir == "/" {
		return strings.HasPrefix(p, "/")
	}
	return strings.HasPrefix(p, dir) && (len(p) == len(dir) || p[len(dir)] == '/')
}

func (m *Line) readOnly() bool { return hasOption(m.Options, "ro") || hasOption(m.Super, "ro") }

// soft reports whether requests of a network file system time out.
func (m *Line) soft() bool {
	switch m.Type {
	case "nfs", "nfs4", "cifs", "smb3":
		return hasOption(m.Super, "soft") || hasOption(m.Super, "softerr")
	}
	return false
}

func hasOption(options, name string) bool {
	for o := range strings.SplitSeq(options, ",") {
		if o == name {
			return true
		}
	}
	return false
}

func option(options, name string) string {
	for o := range strings.SplitSeq(options, ",") {
		if v, ok := strings.CutPrefix(o, name+"="); ok {
			return v
		}
	}
	return ""
}

// server is the address behind a network file system: what the kernel resolved
// it to, else the name in the source; "" for others.
func (m *Line) server() string {
	switch m.Type {
	case "nfs", "nfs4":
		if a := option(m.Super, "addr"); a != "" {
			return a
		}
		return hostOfExport(m.Source)
	case "cifs", "smb3":
		if a := option(m.Super, "addr"); a != "" {
			return a
		}
		host, _, _ := strings.Cut(strings.TrimLeft(m.Source, `/\`), "/")
		if _, h, ok := strings.Cut(host, "@"); ok {
			host = h
		}
		return host
	case "ceph":
		if a := option(m.Super, "mon_addr"); a != "" {
			return a
		}
		// Before version 2 of the syntax: mon1:6789,mon2:6789:/path.
		if mons, _, ok := strings.Cut(m.Source, ":/"); ok {
			return mons
		}
	case "fuse.glusterfs":
		return hostOfExport(m.Source)
	}
	return ""
}

// hostOfExport is the host in host:/path, [address]:/path or address:/path.
func hostOfExport(source string) string {
	i := strings.Index(source, ":/")
	if i < 0 {
		return ""
	}
	host := strings.TrimSuffix(strings.TrimPrefix(source[:i], "["), "]")
	if strings.Contains(host, ":") {
		if _, err := netip.ParseAddr(host); err != nil {
			return ""
		}
	}
	return host
}

// publicSource is the source without what a user may have put into it for the
// server's eyes only: scheme://user:password@host.
func publicSource(source string) string {
	scheme, rest, ok := strings.Cut(source, "://")
	if !ok {
		return source
	}
	authority, after, slash := strings.Cut(rest, "/")
	i := strings.LastIndexByte(authority, '@')
	if i < 0 {
		return source
	}
	out := scheme + "://" + authority[i+1:]
	if slash {
		out += "/" + after
	}
	return out
}

// A volumeName is what the kubelet calls a volume of a pod.
type volumeName struct {
	pod    string // UID
	plugin string // "" for a subpath, whose directory does not tell
	volume string
	point  string // path of the volume, without anything inside it
}

// parseVolumePath recognises a path at or below a volume's directory,
// pods/UID/volumes/PLUGIN/VOLUME or pods/UID/volume-subpaths/VOLUME/CONTAINER/N
// (pkg/kubelet/kubelet_getters.go). What lies inside the volume is cut off: the
// names of a pod's files are private. The directory mount of a CSI volume is
// the kubelet's own name and stays.
func parseVolumePath(kubeletDir, p string) (volumeName, bool) {
	rest, ok := strings.CutPrefix(p, path.Join(kubeletDir, "pods")+"/")
	if !ok {
		return volumeName{}, false
	}
	e := strings.Split(rest, "/")
	keep := func(n int) string { return path.Join(kubeletDir, "pods", path.Join(e[:n]...)) }
	switch {
	case len(e) >= 4 && e[1] == "volumes":
		n := 4
		if e[2] == "kubernetes.io~csi" && len(e) > 4 && e[4] == "mount" {
			n = 5
		}
		return volumeName{pod: e[0], plugin: e[2], volume: e[3], point: keep(n)}, true
	case len(e) >= 3 && e[1] == "volume-subpaths":
		return volumeName{pod: e[0], volume: e[2], point: keep(min(len(e), 5))}, true
	}
	return volumeName{}, false
}

// Mount makes evidence of a line.
func (v *View) Mount(m *Line) evidence.Mount {
	e := evidence.Mount{
		ID:       m.ID,
		ParentID: m.Parent,
		Device:   m.Device,
		Root:     kernfile.Printable([]byte(m.Root)),
		Point:    kernfile.Printable([]byte(m.Point)),
		Type:     kernfile.Printable([]byte(m.Type)),
		Source:   kernfile.Printable([]byte(publicSource(m.Source))),
		Server:   kernfile.Printable([]byte(m.server())),
		ReadOnly: m.readOnly(),
		Soft:     m.soft(),
	}
	if name, ok := parseVolumePath(v.KubeletDir, m.Point); ok {
		e.Volume, e.Plugin = kernfile.Printable([]byte(name.volume)), kernfile.Printable([]byte(name.plugin))
	}
	if v.FUSE != "" && (m.Type == "fuse" || m.Type == "fuseblk" || strings.HasPrefix(m.Type, "fuse.")) {
		if n, err := readFUSEWaiting(v.FUSE, m.Device); err == nil {
			e.FUSEWaiting = &n
		}
	}
	return e
}

// MountOfTask makes evidence of a line of a task's own table, and says where
// the same file system stands in the host's: which volume of which pod it is,
// and what an operator on the node calls it.
func (v *View) MountOfTask(m *Line, host *Table, podUID string) *evidence.Mount {
	e := v.Mount(m)
	if host == nil {
		return &e
	}
	if l := host.volumeOf(v.KubeletDir, m, podUID); l != nil {
		e.HostPoint = kernfile.Printable([]byte(l.Point))
		if name, ok := parseVolumePath(v.KubeletDir, l.Point); ok && e.Volume == "" {
			e.Volume, e.Plugin = kernfile.Printable([]byte(name.volume)), kernfile.Printable([]byte(name.plugin))
		}
	} else if l := host.sameDevice(m); l != nil {
		e.HostPoint = kernfile.Printable([]byte(l.Point))
	}
	if m.Type == "overlay" {
		if upper := option(m.Super, "upperdir"); path.IsAbs(upper) {
			// Upperdir is a path of whoever mounted it, which is the runtime.
			if b := host.Holding(path.Clean(upper)); b != nil && b.Type != "overlay" {
				backing := v.Mount(b)
				backing.HostPoint = backing.Point
				e.Backing = &backing
			}
		}
	}
	return &e
}

// volumeOf finds the volume of a pod that a line of another namespace shows.
// Exports of one NFS server, and directories of one disk, share a device, so
// that the volume's root must be the line's or above it; when two volumes fit
// equally well there is no answer.
func (t *Table) volumeOf(kubeletDir string, m *Line, podUID string) *Line {
	var best *Line
	ambiguous := false
	for i := range t.Lines {
		l := &t.Lines[i]
		if l.Device != m.Device || !within(m.Root, l.Root) {
			continue
		}
		v, ok := parseVolumePath(kubeletDir, l.Point)
		if !ok || podUID != "" && v.pod != podUID {
			continue
		}
		switch {
		case best == nil || len(l.Root) > len(best.Root):
			best, ambiguous = l, false
		case len(l.Root) == len(best.Root):
			b, _ := parseVolumePath(kubeletDir, best.Point)
			switch {
			case b.volume != v.volume || b.pod != v.pod:
				ambiguous = true
			case b.plugin == "":
				best = l
			}
		}
	}
	if ambiguous {
		return nil
	}
	return best
}

// sameDevice finds where the host has mounted the file system of a line: with
// the same root if it can be, else the mount with the shortest root above.
func (t *Table) sameDevice(m *Line) *Line {
	var best *Line
	for i := range t.Lines {
		l := &t.Lines[i]
		if l.Device != m.Device || !within(m.Root, l.Root) {
			continue
		}
		if best == nil || len(l.Root) > len(best.Root) || len(l.Root) == len(best.Root) && len(l.Point) < len(best.Point) {
			best = l
		}
	}
	return best
}
