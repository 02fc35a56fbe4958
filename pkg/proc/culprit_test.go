package proc

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kerneltest"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kernfile"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/mount"
	"github.com/nodeagent-io/nodeagent/pkg/proc/probe"
)

func TestCulpritDoubts(t *testing.T) {
	own, err := mount.Parse(strings.NewReader(kerneltest.ContainerMounts))
	if err != nil {
		t.Fatal(err)
	}
	paths := func(name string, p ...string) *probe.Seen {
		s := &probe.Seen{Call: probe.Call{Name: name}}
		for _, x := range p {
			s.Paths = append(s.Paths, probe.CallPath{Path: []byte(x), Via: "path"})
		}
		return s
	}
	for _, tt := range []struct {
		saw  *probe.Seen
		want string
	}{
		{paths("stat", "/data/x"), "/data"},
		{paths("stat", "/data/../s3"), ""},
		{paths("rename", "/data/x", "/data/y"), "/data"},
		{paths("rename", "/data/x", "/s3/y"), ""},
		{paths("rename", "/data/x"), ""},
		{paths("mount", "/data"), ""},
		{paths("umount2", "/data"), "/data"},
		{paths("umount2", "/gone"), ""},
	} {
		got := ""
		if m, _ := byPaths(own, tt.saw); m != nil {
			got = m.Point
		}
		if got != tt.want {
			t.Errorf("%s %v: %q", tt.saw.Call.Name, tt.saw.Paths, got)
		}
	}
	for _, tt := range []struct {
		stack []string
		mount evidence.Mount
		want  bool
	}{
		{nil, evidence.Mount{Type: "ext4"}, false},
		{[]string{"percpu_rwsem_wait", "vfs_write"}, evidence.Mount{Type: "xfs"}, false},
		{[]string{"request_wait_answer", "fuse_lookup_name"}, evidence.Mount{Type: "overlay", Backing: &evidence.Mount{Type: "ext4"}}, true},
		{[]string{"request_wait_answer", "fuse_lookup_name"}, evidence.Mount{Type: "fuse.s3"}, false},
		{[]string{"rpc_wait_bit_killable", "nfs4_proc_getattr"}, evidence.Mount{Type: "ext4"}, true},
		{[]string{"xfs_file_write_iter", "ovl_write_iter"}, evidence.Mount{Type: "overlay", Backing: &evidence.Mount{Type: "xfs"}}, false},
		{[]string{"fuse_file_read_iter", "ovl_read_iter"}, evidence.Mount{Type: "overlay", Backing: &evidence.Mount{Type: "xfs"}}, false},
	} {
		if got := refutes(&probe.Seen{Stack: tt.stack}, &tt.mount); got != tt.want {
			t.Errorf("%v, %s: %v", tt.stack, tt.mount.Type, got)
		}
	}
	// What a thread waits for that exits is not what its last call worked on.
	call := probe.Seen{Call: probe.Call{Name: "read"}, Files: []probe.OpenFile{{FD: 3, MountID: own.Lines[1].ID}}}
	if m, via := byCall(own, own, &call, false); m == nil || via != "fd 3" {
		t.Errorf("a read is on %+v, by %s", m, via)
	}
	call.Stack = []string{"io_wq_put_and_exit", "io_uring_clean_tctx", "io_uring_cancel_generic", "do_exit", "do_group_exit", "get_signal"}
	if m, _ := byCall(own, own, &call, false); m != nil {
		t.Errorf("an exit is on %+v", m)
	}
	fault := &probe.Seen{Stack: []string{"ext4_page_mkwrite", "asm_exc_page_fault"}, Maps: []probe.Mapping{{Device: "254:0", Shared: false},
		{Device: "0:51", Shared: true}}}
	if m := mapped(own, fault); m != nil {
		t.Errorf("mapped %+v", m)
	}
	fault.Maps[0].Shared = true // two directories of the device are mounted
	if m := mapped(own, fault); m != nil {
		t.Errorf("mapped %+v", m)
	}
	fault = &probe.Seen{Stack: []string{"filemap_fault", "asm_exc_page_fault"}, Maps: []probe.Mapping{{Device: "0:50", Shared: false},
		{Device: "8:1", Shared: false}}}
	if m := mapped(own, fault); m == nil || m.Point != "/data" {
		t.Errorf("mapped %+v", m)
	}
}

// TestOpenedElsewhere checks that what a descriptor is on is found where another process of the
// pod sees it, as gVisor's gofers do.
func TestOpenedElsewhere(t *testing.T) {
	parse := func(lines string) *mount.Table {
		table, err := mount.Parse(strings.NewReader(lines))
		if err != nil {
			t.Fatal(err)
		}
		return table
	}
	own := parse("10 1 0:20 / / rw - tmpfs none rw\n")
	gofer := parse("20 1 0:30 / / rw - overlay overlay rw\n21 20 254:3 /sub /data rw - ext4 /dev/mapper/data rw\n")
	tasks := &tables{
		own:   map[int]*mount.Table{100: own, 105: gofer},
		first: []*evidence.Task{{PID: 100, TID: 100}, {PID: 105, TID: 105}},
	}
	sentry := func(state evidence.TaskState) *kernfile.TaskStatus {
		return &kernfile.TaskStatus{Task: evidence.Task{PID: 100, TID: 103, State: state}}
	}
	on := func(mounts ...int) *probe.Seen {
		saw := &probe.Seen{Call: probe.Call{Name: "fsync"}}
		for i, id := range mounts {
			saw.Files = append(saw.Files, probe.OpenFile{FD: 3 + i, MountID: id})
		}
		return saw
	}
	for name, tt := range map[string]struct {
		state evidence.TaskState
		saw   *probe.Seen
		want  string
	}{
		"the gofer's":              {evidence.Uninterruptible, on(21), "/data"},
		"its own":                  {evidence.Uninterruptible, on(10), "/"},
		"a pipe":                   {evidence.Uninterruptible, on(15), ""},
		"one of each":              {evidence.Uninterruptible, on(10, 21), ""},
		"a pipe and the gofer's":   {evidence.Uninterruptible, on(15, 21), "/data"},
		"it is not blocked":        {evidence.Sleeping, on(21), ""},
		"of two mounts of another": {evidence.Uninterruptible, on(20, 21), ""},
	} {
		s := sentry(tt.state)
		got := ""
		if m, _ := byCall(own, tasks.opened(s, own, tt.saw), tt.saw, false); m != nil {
			got = m.Point
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
	// A path is looked for where the task is.
	path := &probe.Seen{Call: probe.Call{Name: "stat"}, Paths: []probe.CallPath{{Path: []byte("/data/f")}}}
	if m, _ := byCall(own, tasks.opened(sentry(evidence.Uninterruptible), own, path), path, false); m == nil || m.Point != "/" {
		t.Errorf("a path is on %+v", m)
	}
	// Unless it is relative to a directory that the task does not see.
	at := func(paths ...probe.CallPath) *probe.Seen {
		return &probe.Seen{Call: probe.Call{Name: "openat"}, Paths: paths}
	}
	for name, tt := range map[string]struct {
		saw  *probe.Seen
		want string
	}{
		"the gofer's":           {at(probe.CallPath{Path: []byte("/data/f"), Via: "fd 62", MountID: 21}), "/data"},
		"its own":               {at(probe.CallPath{Path: []byte("/f"), Via: "fd 62", MountID: 10}), "/"},
		"nobody's":              {at(probe.CallPath{Path: []byte("/data/f"), Via: "fd 62", MountID: 15}), ""},
		"it climbs":             {at(probe.CallPath{Path: []byte("/data/../f"), Via: "fd 62", MountID: 21}), ""},
		"of two mounts":         {at(probe.CallPath{Path: []byte("/data/f"), MountID: 21}, probe.CallPath{Path: []byte("/f"), MountID: 20}), ""},
		"and a path of its own": {at(probe.CallPath{Path: []byte("/data/f"), MountID: 21}, probe.CallPath{Path: []byte("/f")}), ""},
		"of two of its two":     {at(probe.CallPath{Path: []byte("/data/f"), MountID: 21}, probe.CallPath{Path: []byte("/data/g"), MountID: 21}), "/data"},
	} {
		got := ""
		if m, _ := byCall(own, tasks.opened(sentry(evidence.Uninterruptible), own, tt.saw), tt.saw, false); m != nil {
			got = m.Point
		}
		if got != tt.want {
			t.Errorf("below a directory, %s: %q, want %q", name, got, tt.want)
		}
	}
}

// Of several FUSE connections with requests waiting, a task waits for one that
// is mounted where it is.
func TestOnlyWaitingFUSE(t *testing.T) {
	dir := t.TempDir()
	for minor, waiting := range map[string]string{"41": "1\n", "42": "3\n", "43": "0\n"} {
		if err := os.MkdirAll(filepath.Join(dir, minor), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, minor, "waiting"), []byte(waiting), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h := &Host{FUSE: dir}
	table := func(devices ...string) *mount.Table {
		out := new(mount.Table)
		for _, d := range devices {
			out.Lines = append(out.Lines, mount.Line{Device: d, Type: "fuse.x", Point: "/" + d})
		}
		return out
	}
	saw := &probe.Seen{Wchan: "request_wait_answer"}
	for _, tt := range []struct {
		name      string
		own, host *mount.Table
		want      string
	}{
		{"one of them is mounted here", table("0:42", "0:43"), table("0:41", "0:42", "0:43"), "0:42"},
		{"one of them is mounted here, twice", table("0:42", "0:42"), nil, "0:42"},
		{"both are mounted here", table("0:41", "0:42"), nil, ""},
		{"none is mounted here", table("0:43"), table("0:41"), ""},
		{"the task has no mounts any more, both are on the node", table(), table("0:41", "0:42"), ""},
	} {
		got := ""
		if m := h.onlyWaitingFUSE(tt.own, tt.host, saw); m != nil {
			got = m.Device
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	if m := h.onlyWaitingFUSE(table("0:42"), nil, &probe.Seen{Wchan: "do_wait"}); m != nil {
		t.Errorf("a task that does not wait for FUSE waits for %s", m.Device)
	}
}

// What a call does not name is one of the mounts of its kind that the task sees.
func TestCandidates(t *testing.T) {
	round := (&Host{Proc: t.TempDir()}).Round()
	own := &mount.Table{Lines: []mount.Line{
		{Device: "0:50", Type: "nfs4", Point: "/data", Source: "192.0.2.1:/a"},
		{Device: "0:50", Type: "nfs4", Point: "/again", Source: "192.0.2.1:/a"},
		{Device: "0:51", Type: "nfs4", Point: "/host", Source: "192.0.2.2:/b"},
		{Device: "0:52", Type: "cifs", Point: "/share"}, {Device: "254:0", Type: "ext4", Point: "/"},
	}}
	saw := func(stack ...string) *probe.Seen { return &probe.Seen{Stack: stack} }
	points := func(own, host *mount.Table, saw *probe.Seen) (out []string) {
		for _, m := range (&tables{Round: round}).candidates(&kernfile.TaskStatus{}, own, host, saw, "u") {
			out = append(out, m.Point)
		}
		return out
	}
	for _, tt := range []struct {
		own, host *mount.Table
		saw       *probe.Seen
		want      string
	}{
		{own, nil, saw("folio_wait_bit_common", "nfs_wb_all", "filp_close"), "/data /host"},
		{own, nil, saw("rpc_wait_bit_killable"), "/data /host"},
		{own, nil, saw("cifs_flush"), "/share"},
		{own, nil, saw("ext4_sync_file"), ""},
		{own, nil, saw("do_wait"), ""},
		{&mount.Table{}, own, saw("nfs4_file_flush", "do_exit"), "/data /host"},
		{&mount.Table{}, nil, saw("nfs4_file_flush", "do_exit"), ""},
	} {
		if got := strings.Join(points(tt.own, tt.host, tt.saw), " "); got != tt.want {
			t.Errorf("%v: %q, want %q", tt.saw.Stack, got, tt.want)
		}
	}
	// gVisor's sentry sees none, and its gofers do.
	sentry := &tables{Round: round, own: map[int]*mount.Table{105: {Lines: own.Lines[:1]}, 106: own}, first: []*evidence.Task{{PID: 105}, {PID: 106}}}
	none := &mount.Table{Lines: []mount.Line{{Type: "tmpfs", Point: "/"}}}
	found := sentry.candidates(&kernfile.TaskStatus{Task: evidence.Task{Comm: "exe"}}, none, nil, saw("rpc_wait_bit_killable"), "u")
	if len(found) != 2 || found[0].Point != "/data" || found[1].Point != "/host" {
		t.Errorf("%+v", found)
	}
	// What another program waits for may have been unmounted where it is, and be none of its neighbours'.
	if found := sentry.candidates(&kernfile.TaskStatus{Task: evidence.Task{Comm: "sh"}}, none, nil, saw("rpc_wait_bit_killable"), "u"); len(found) > 0 {
		t.Errorf("%+v", found)
	}
	many := new(mount.Table)
	for i := range maxCandidates + 1 {
		many.Lines = append(many.Lines, mount.Line{Device: fmt.Sprintf("0:%d", i), Type: "nfs4", Point: "/x"})
	}
	if got := points(many, nil, saw("nfs_wb_all")); len(got) > 0 {
		t.Errorf("%d of too many", len(got))
	}
}
