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
	"sync"
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
	// Shared is the group of mounts that it is a peer in, and Master the one that it gets what
	// is mounted and unmounted from (mount_namespaces(7)); 0 for none.
	Shared, Master int
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

// readers are those of Parse: a table is read for many a task of a round.
var readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, 64<<10) }}

// Parse reads a mountinfo file. A line that is not understood is counted and takes
// no other with it. Lines may be long: an overlay of many layers has one that is
// longer than a bufio.Scanner takes, and a pod that mounts for the node
// (Bidirectional mount propagation) chooses what its lines look like.
func Parse(r io.Reader) (*Table, error) {
	var t Table
	var text []byte // that is kept of a line
	in := readers.Get().(*bufio.Reader)
	in.Reset(r)
	defer func() {
		in.Reset(nil) // it keeps no file
		readers.Put(in)
	}()
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
			text = t.add(bytes.TrimSuffix(line, []byte("\n")), text)
		}
		if err != nil || t.Cut {
			return &t, nil
		}
	}
}

// add parses a line, for which it uses a buffer, and returns that.
func (t *Table) add(line, text []byte) []byte {
	m, text, err := parseMountLine(line, text)
	if err != nil {
		t.Bad++
		return text
	}
	size := int(unsafe.Sizeof(m)) + len(text)
	if t.Cut = t.Size+size > maxTable; t.Cut {
		return text
	}
	t.Size += size
	if n := len(t.Lines); n == cap(t.Lines) {
		t.Lines = slices.Grow(t.Lines, max(n, 64)) // append alone would copy them more often
	}
	t.Lines = append(t.Lines, m)
	return text
}

var errMountLine = errors.New("a mountinfo line of unknown form")

// parseMountLine parses one line:
//
//	36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
//
// The fields are separated by one space each, so that an empty source is one.
// There can be any number of tags before the lone dash. What is kept of the line is put
// into a buffer, which is returned, and of that the fields are parts of one string: a
// node has thousands of lines, and they are read in each round.
func parseMountLine(line, text []byte) (m Line, kept []byte, err error) {
	text = text[:0]
	mounted, fileSystem, ok := bytes.Cut(line, []byte(" - "))
	if !ok {
		return Line{}, text, errMountLine
	}
	var f [6][]byte
	for i := range f {
		if !ok {
			return Line{}, text, errMountLine
		}
		f[i], mounted, ok = bytes.Cut(mounted, []byte(" "))
	}
	kind, rest, ok := bytes.Cut(fileSystem, []byte(" "))
	// The options of the file system are the last field.
	source, super, _ := bytes.Cut(rest, []byte(" "))
	var err1, err2 error
	m.ID, err1 = strconv.Atoi(string(f[0]))
	m.Parent, err2 = strconv.Atoi(string(f[1]))
	if !ok || err1 != nil || err2 != nil || bytes.IndexByte(f[2], ':') < 0 || len(f[4]) == 0 || len(kind) == 0 {
		return Line{}, text, errMountLine
	}
	var ends [6]int
	for i, field := range [...][]byte{f[2], f[3], f[4], f[5], kind, source} {
		text = appendUnescaped(text, field)
		ends[i] = len(text)
	}
	text = appendWanted(text, super)
	all := string(text)
	m.Device, m.Root, m.Point, m.Options = all[:ends[0]], all[ends[0]:ends[1]], all[ends[1]:ends[2]], all[ends[2]:ends[3]]
	m.Type, m.Source, m.Super = all[ends[3]:ends[4]], all[ends[4]:ends[5]], all[ends[5]:]
	if len(mounted) > 0 {
		m.Shared, m.Master = parseGroups(mounted)
	}
	return m, text, nil
}

// parseGroups returns the groups in the tags of a mount, as in shared:2 master:1.
func parseGroups(tags []byte) (shared, master int) {
	for tag := range bytes.SplitSeq(tags, []byte(" ")) {
		name, number, _ := bytes.Cut(tag, []byte(":"))
		n, err := strconv.Atoi(string(number))
		if err != nil {
			continue
		}
		switch string(name) {
		case "shared":
			shared = n
		case "master":
			master = n
		}
	}
	return shared, master
}

// appendWanted appends those of the options of a file system that are asked for. Of those
// of an overlay the lower directories, which are not, are the most.
func appendWanted(out, super []byte) []byte {
	begin := len(out)
	for more := true; more; {
		var option []byte
		option, super, more = bytes.Cut(super, []byte(","))
		name, _, _ := bytes.Cut(option, []byte("="))
		switch string(name) {
		case "ro", "soft", "softerr", "addr", "mon_addr", "upperdir", "proto", "vers", "port":
			if len(out) > begin {
				out = append(out, ',')
			}
			out = appendUnescaped(out, option)
		}
	}
	return out
}

// appendUnescaped appends a field without the octal escapes \040 (blank), \011 (tab),
// \012 (newline), \134 (backslash) and \043 (#) of fs/proc_namespace.c (mangle).
func appendUnescaped(out, field []byte) []byte {
	for {
		i := bytes.IndexByte(field, '\\')
		if i < 0 {
			return append(out, field...)
		}
		out, field = append(out, field[:i]...), field[i:]
		if len(field) > 3 {
			if n, err := strconv.ParseUint(string(field[1:4]), 8, 8); err == nil {
				out, field = append(out, byte(n)), field[4:]
				continue
			}
		}
		out, field = append(out, field[0]), field[1:]
	}
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

// Place returns the mount that an absolute path lies on, as Holding does; nil when another
// one is at the same place, so that the path does not tell which of them is meant.
func (t *Table) Place(p string) *Line {
	m := t.Holding(p)
	if m == nil {
		return nil
	}
	for i := range t.Lines {
		if t.Lines[i].Point == m.Point && t.Lines[i].ID != m.ID {
			return nil
		}
	}
	return m
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
	rest, ok := strings.CutPrefix(p, kubeletDir+"/pods/")
	var e [5]string // the elements of the path below pods, of which no more are looked at
	n := 0
	for ; ok && n < len(e); n++ {
		e[n], rest, ok = strings.Cut(rest, "/")
	}
	keep := func(n int) string {
		end := len(kubeletDir + "/pods")
		for i := range n {
			end += len("/") + len(e[i])
		}
		return p[:end]
	}
	switch {
	case n >= 4 && e[1] == "volumes":
		if e[2] != "kubernetes.io~csi" || e[4] != "mount" {
			n = 4
		}
		return volumeName{pod: e[0], plugin: e[2], volume: e[3], point: keep(n)}, true
	case n >= 3 && e[1] == "volume-subpaths":
		return volumeName{pod: e[0], volume: e[2], point: keep(n)}, true
	}
	return volumeName{}, false
}

// Mount makes evidence of a line.
func (v *View) Mount(m *Line) evidence.Mount {
	e := evidence.Mount{
		ID:       m.ID,
		ParentID: m.Parent,
		Device:   m.Device,
		Root:     kernfile.Printable(m.Root),
		Point:    kernfile.Printable(m.Point),
		Type:     kernfile.Printable(m.Type),
		Source:   kernfile.Printable(publicSource(m.Source)),
		Server:   kernfile.Printable(m.server()),
		ReadOnly: m.readOnly(),
		Soft:     m.soft(),
	}
	if name, ok := parseVolumePath(v.KubeletDir, m.Point); ok {
		e.Volume, e.Plugin = kernfile.Printable(name.volume), kernfile.Printable(name.plugin)
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
		e.HostPoint = kernfile.Printable(l.Point)
		if name, ok := parseVolumePath(v.KubeletDir, l.Point); ok && e.Volume == "" {
			e.Volume, e.Plugin = kernfile.Printable(name.volume), kernfile.Printable(name.plugin)
		}
	} else if l := host.sameDevice(m); l != nil {
		e.HostPoint = kernfile.Printable(l.Point)
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
