package proc

import (
	"bytes"
	"errors"
	"io"
	"net/netip"
	"path"
	"strconv"
	"strings"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kernfile"
)

// Bounds of what is kept of one mountinfo file: mounts, and bytes of a line.
// Linux allows 100,000 mounts in a namespace (fs.mount-max); an overlay with
// 128 lower directories has a line of some 20 KiB.
const (
	maxMounts    = 100_000
	maxMountLine = 1 << 20
)

// A mountLine is one line of a mountinfo file (proc(5)) with its escapes undone.
type mountLine struct {
	id, parent int
	device     string // major:minor
	root       string // the directory of the file system that is mounted
	point      string // relative to the root of the task whose file it is
	options    string // of the mount
	fstype     string
	source     string
	super      string // options of the file system, which can hold secrets
}

// A mountTable is a mountinfo file.
type mountTable struct {
	lines []mountLine
	// bad counts lines that were not understood, or of which there were too
	// many. They say nothing about the others.
	bad int
}

// readMountinfo reads the mounts that a task sees, whose directory is given. A task that has left its
// namespaces gives EINVAL.
func readMountinfo(dir string) (*mountTable, error) {
	f, err := kernfile.Stream(dir, kernfile.Mountinfo)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return scanMountinfo(f)
}

// scanMountinfo reads lines of any length in a buffer that grows, up to a
// bound, with the longest line and not with the file.
func scanMountinfo(r io.Reader) (*mountTable, error) {
	var t mountTable
	buf := make([]byte, 0, 64<<10)
	skipping := false
	for {
		if len(buf) == cap(buf) {
			if len(buf) >= maxMountLine {
				buf, skipping = buf[:0], true
			} else {
				buf = append(buf, 0)[:len(buf)]
			}
		}
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		for {
			i := bytes.IndexByte(buf, '\n')
			if i < 0 {
				break
			}
			if skipping {
				t.bad++
				skipping = false
			} else {
				t.add(buf[:i])
			}
			buf = buf[:copy(buf, buf[i+1:])]
		}
		if errors.Is(err, io.EOF) {
			if len(buf) > 0 || skipping {
				if skipping {
					t.bad++
				} else {
					t.add(buf)
				}
			}
			return &t, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

func (t *mountTable) add(line []byte) {
	m, err := parseMountLine(line)
	if err != nil || len(t.lines) >= maxMounts {
		t.bad++
		return
	}
	t.lines = append(t.lines, m)
}

var errMountLine = errors.New("a mountinfo line of unknown form")

// parseMountLine parses one line:
//
//	36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
//
// The fields are separated by one space each, so that an empty source is one.
// There can be any number of tags before the lone dash.
func parseMountLine(line []byte) (mountLine, error) {
	before, after, ok := bytes.Cut(line, []byte(" - "))
	if !ok {
		return mountLine{}, errMountLine
	}
	f := bytes.SplitN(before, []byte(" "), 7)
	g := bytes.SplitN(after, []byte(" "), 3)
	if len(f) < 6 || len(g) < 2 {
		return mountLine{}, errMountLine
	}
	var m mountLine
	var err1, err2 error
	m.id, err1 = strconv.Atoi(string(f[0]))
	m.parent, err2 = strconv.Atoi(string(f[1]))
	if err1 != nil || err2 != nil || bytes.IndexByte(f[2], ':') < 0 || len(f[4]) == 0 || len(g[0]) == 0 {
		return mountLine{}, errMountLine
	}
	m.device = string(f[2])
	m.root = unescape(f[3])
	m.point = unescape(f[4])
	m.options = string(f[5])
	m.fstype = unescape(g[0])
	m.source = unescape(g[1])
	if len(g) == 3 {
		m.super = unescape(g[2])
	}
	return m, nil
}

// unescape undoes the octal escapes \040 (blank), \011 (tab), \012 (newline),
// \134 (backslash) and \043 (#) of fs/proc_namespace.c (mangle).
func unescape(b []byte) string {
	if bytes.IndexByte(b, '\\') < 0 {
		return string(b)
	}
	out := make([]byte, 0, len(b))
	for i := 0; i < len(b); i++ {
		if b[i] == '\\' && i+3 < len(b) {
			if n, err := strconv.ParseUint(string(b[i+1:i+4]), 8, 8); err == nil {
				out = append(out, byte(n))
				i += 3
				continue
			}
		}
		out = append(out, b[i])
	}
	return string(out)
}

// byID finds a mount by its ID.
func (t *mountTable) byID(id int) *mountLine {
	for i := range t.lines {
		if t.lines[i].id == id {
			return &t.lines[i]
		}
	}
	return nil
}

// holding finds the mount that an absolute path lies on, going by names only:
// the longest mount point that is the path or a directory above it, and of
// those stacked on each other the last, which hides the ones below.
func (t *mountTable) holding(p string) *mountLine {
	var best *mountLine
	for i := range t.lines {
		m := &t.lines[i]
		if within(p, m.point) && (best == nil || len(m.point) >= len(best.point)) {
			best = m
		}
	}
	return best
}

// within reports whether a path is the directory or lies below it.
func within(p, dir string) bool {
	if dir == "/" {
		return strings.HasPrefix(p, "/")
	}
	return strings.HasPrefix(p, dir) && (len(p) == len(dir) || p[len(dir)] == '/')
}

func (m *mountLine) readOnly() bool { return hasOption(m.options, "ro") || hasOption(m.super, "ro") }

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
func (m *mountLine) server() string {
	switch m.fstype {
	case "nfs", "nfs4":
		if a := option(m.super, "addr"); a != "" {
			return a
		}
		return hostOfExport(m.source)
	case "cifs", "smb3":
		if a := option(m.super, "addr"); a != "" {
			return a
		}
		host, _, _ := strings.Cut(strings.TrimLeft(m.source, `/\`), "/")
		if _, h, ok := strings.Cut(host, "@"); ok {
			host = h
		}
		return host
	case "ceph":
		if a := option(m.super, "mon_addr"); a != "" {
			return a
		}
		// Before version 2 of the syntax: mon1:6789,mon2:6789:/path.
		if mons, _, ok := strings.Cut(m.source, ":/"); ok {
			return mons
		}
	case "fuse.glusterfs":
		return hostOfExport(m.source)
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

// mount makes evidence of a line.
func (h *Host) mount(m *mountLine) evidence.Mount {
	e := evidence.Mount{
		ID:       m.id,
		ParentID: m.parent,
		Device:   m.device,
		Root:     kernfile.Printable([]byte(m.root)),
		Point:    kernfile.Printable([]byte(m.point)),
		Type:     kernfile.Printable([]byte(m.fstype)),
		Source:   kernfile.Printable([]byte(publicSource(m.source))),
		Server:   kernfile.Printable([]byte(m.server())),
		ReadOnly: m.readOnly(),
	}
	if v, ok := parseVolumePath(h.KubeletDir, m.point); ok {
		e.Volume, e.Plugin = kernfile.Printable([]byte(v.volume)), kernfile.Printable([]byte(v.plugin))
	}
	if h.FUSE != "" && (m.fstype == "fuse" || m.fstype == "fuseblk" || strings.HasPrefix(m.fstype, "fuse.")) {
		if n, err := readFUSEWaiting(h.FUSE, m.device); err == nil {
			e.FUSEWaiting = &n
		}
	}
	return e
}

// mountOfTask makes evidence of a line of a task's own table, and says where
// the same file system stands in the host's: which volume of which pod it is,
// and what an operator on the node calls it.
func (h *Host) mountOfTask(m *mountLine, host *mountTable, podUID string) *evidence.Mount {
	e := h.mount(m)
	if host == nil {
		return &e
	}
	if v := host.volumeOf(h.KubeletDir, m, podUID); v != nil {
		e.HostPoint = kernfile.Printable([]byte(v.point))
		if name, ok := parseVolumePath(h.KubeletDir, v.point); ok && e.Volume == "" {
			e.Volume, e.Plugin = kernfile.Printable([]byte(name.volume)), kernfile.Printable([]byte(name.plugin))
		}
	} else if l := host.sameDevice(m); l != nil {
		e.HostPoint = kernfile.Printable([]byte(l.point))
	}
	if m.fstype == "overlay" {
		if upper := option(m.super, "upperdir"); path.IsAbs(upper) {
			// Upperdir is a path of whoever mounted it, which is the runtime.
			if b := host.holding(path.Clean(upper)); b != nil && b.fstype != "overlay" {
				backing := h.mount(b)
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
func (t *mountTable) volumeOf(kubeletDir string, m *mountLine, podUID string) *mountLine {
	var best *mountLine
	ambiguous := false
	for i := range t.lines {
		l := &t.lines[i]
		if l.device != m.device || !within(m.root, l.root) {
			continue
		}
		v, ok := parseVolumePath(kubeletDir, l.point)
		if !ok || podUID != "" && v.pod != podUID {
			continue
		}
		switch {
		case best == nil || len(l.root) > len(best.root):
			best, ambiguous = l, false
		case len(l.root) == len(best.root):
			b, _ := parseVolumePath(kubeletDir, best.point)
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
func (t *mountTable) sameDevice(m *mountLine) *mountLine {
	var best *mountLine
	for i := range t.lines {
		l := &t.lines[i]
		if l.device != m.device || !within(m.root, l.root) {
			continue
		}
		if best == nil || len(l.root) > len(best.root) || len(l.root) == len(best.root) && len(l.point) < len(best.point) {
			best = l
		}
	}
	return best
}
