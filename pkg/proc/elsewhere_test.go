package proc

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kernfile"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/mount"
	"github.com/nodeagent-io/nodeagent/pkg/proc/probe"
)

// mounted makes a file system in memory at a directory for a test.
func mounted(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("mount: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
}

// unshared starts a process in a mount namespace of its own that begins with a command of the shell.
func unshared(t *testing.T, propagation, command string) int {
	t.Helper()
	cmd := exec.Command("unshare", "-m", "--propagation", propagation, "sh", "-c", command+"; echo; exec sleep 600")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Skipf("unshare: %v", err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Skipf("unshare: %v", err)
	}
	return cmd.Process.Pid
}

// procOf makes a /proc of this process, as the first one, and of another one: the machine's own first
// process may be in another mount namespace, or hidden.
func procOf(t *testing.T, pid int) string {
	t.Helper()
	dir := t.TempDir()
	for name, of := range map[string]int{"1": os.Getpid(), strconv.Itoa(pid): pid} {
		at := filepath.Join(dir, name)
		if err := os.Mkdir(at, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount("/proc/"+strconv.Itoa(of), at, "", unix.MS_BIND, ""); err != nil {
			t.Skipf("mount: %v", err)
		}
		t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
	}
	return dir
}

// The kernel does not unmount a mount while a copy that goes with it is in use, and does while one is
// that does not. Who is named is who the kernel says is in the way.
func TestUsersElsewhere(t *testing.T) {
	requireRoot(t)
	dir := t.TempDir()
	mounted(t, dir)
	if err := unix.Mount("", dir, "", unix.MS_SHARED, ""); err != nil {
		t.Fatal(err)
	}
	volume := filepath.Join(dir, "volume")
	const open, place = "an open file, in a mount namespace of its own", "its working directory, in a mount namespace of its own"
	for _, tc := range []struct{ propagation, command, via string }{
		{"slave", "exec 9>" + volume + "/log", open},
		{"slave", "cd " + volume, place},
		{"unchanged", "exec 9>" + volume + "/log", open},
		{"private", "exec 9>" + volume + "/log", ""},
		{"private", "cd " + volume, ""},
	} {
		t.Run(tc.propagation+" "+tc.via, func(t *testing.T) {
			mounted(t, volume)
			pid, busy := unshared(t, tc.propagation, tc.command), tc.via != ""
			h := newHost(t)
			h.Proc = procOf(t, pid)
			r := h.Round()
			files, err := kernfile.Open(h.Proc)
			if err != nil {
				t.Fatal(err)
			}
			defer files.Close()
			host, err := r.mounts.Host()
			if err != nil {
				t.Fatal(err)
			}
			p := &evidence.Pod{}
			for _, m := range host.Lines {
				if m.Point == volume {
					p.Mounts = append(p.Mounts, evidence.Mount{ID: m.ID, Point: m.Point})
				}
			}
			if users, _ := r.readHolders(t.Context(), files, "", mountIDs(p.Mounts), host); len(users) > 0 {
				t.Errorf("in the host's namespace: %+v", users)
			}
			got := r.readElsewhere(t.Context(), files, mountIDs(p.Mounts), host)
			if err := unix.Unmount(volume, 0); errors.Is(err, unix.EBUSY) != busy {
				t.Errorf("unmount: %v", err)
			}
			if !busy {
				if len(got) > 0 {
					t.Errorf("nobody is in the way, and named are %+v", got)
				}
				return
			}
			if len(got) != 1 || got[0].PID != pid || got[0].MountID != p.Mounts[0].ID || got[0].Via != tc.via {
				t.Errorf("%d is in the way, and named are %+v", pid, got)
			}
			// It has no loop device open.
			s := stateOf(t, pid)
			if saw, err := r.askFiles(t.Context(), probe.Blocks, &s); err != nil || saw.Blocks != nil {
				t.Errorf("%+v, %v", saw, err)
			}
		})
	}
}

// A file system of the loop device that is mounted in a namespace is told of its first process
// that lives.
func TestMountedElsewhere(t *testing.T) {
	files, err := kernfile.Open("/proc")
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	const none = 1 << 22 // above the largest PID (kernel.pid_max)
	n := &namespace{name: "mnt:[7]", pids: []int{none, os.Getpid()}, lines: []mount.Line{{ID: 3, Device: "7:4"}, {ID: 4, Device: "259:1"}}}
	loop := func(name string, numbers ...string) []evidence.Loop {
		return []evidence.Loop{{Name: "loop0", MountID: 6, Numbers: []string{"7:0"}}, {Name: name, MountID: 7, Numbers: numbers}}
	}
	for name, tc := range map[string]struct {
		loops []evidence.Loop
		want  bool
	}{
		"the device":     {loop("loop4", "7:4"), true},
		"a partition":    {loop("loop5", "7:5", "259:1"), true},
		"another device": {loop("loop5", "7:5", "259:2"), false},
		"none":           {nil, false},
		"the host's too": {[]evidence.Loop{{Name: "loop4", MountID: 7, Numbers: []string{"7:4"}, Mount: &evidence.Mount{ID: 2}}}, false},
	} {
		h, ok := n.mounted(files, tc.loops)
		if ok != tc.want || ok && (h.PID != os.Getpid() || h.MountID != 7 || !h.Mounted || h.Namespace != "mnt:[7]") {
			t.Errorf("%s: %t, %+v", name, ok, h)
		}
	}
	if h, ok := (&namespace{pids: []int{none}, lines: n.lines}).mounted(files, loop("loop4", "7:4")); ok {
		t.Errorf("without a process: %+v", h)
	}
}

// A namespace of many processes does not keep the others from being told of.
func TestInTurn(t *testing.T) {
	var all []evidence.Holder
	add := func(namespace string, n int) {
		for range n {
			all = append(all, evidence.Holder{Task: evidence.Task{PID: len(all)}, Namespace: namespace})
		}
	}
	if got := inTurn(all); got != nil {
		t.Errorf("of none: %+v", got)
	}
	add("a", 3)
	add("b", 1)
	if got := inTurn(all); len(got) != 4 || got[0].PID != 0 || got[1].PID != 3 || got[2].PID != 1 || got[3].PID != 2 {
		t.Errorf("%+v", got)
	}
	all = nil
	add("a", 300)
	add("b", 2)
	add("c", 1)
	got := inTurn(all)
	if len(got) != maxHolders || got[1].PID != 300 || got[2].PID != 302 || got[3].PID != 1 || got[4].PID != 301 || got[5].PID != 2 {
		t.Errorf("%+v", got)
	}
}

// Any program that may make mount namespaces can fill each of them with mounts. What is read of
// them is bounded, and a process counts once.
func TestNamespacesAreBounded(t *testing.T) {
	const small = "2 1 7:9 / /a rw shared:3 - ext4 /dev/loop9 rw\n"
	var large strings.Builder
	large.WriteString(small)
	for i := range 16 << 10 {
		fmt.Fprintf(&large, "%d 1 0:50 / /%s/%d rw - tmpfs tmpfs rw\n", i+3, strings.Repeat("x", 100), i)
	}
	for name, tc := range map[string]struct {
		text             string
		namespaces, most int
	}{
		"small tables": {small, 100, 100},
		"large tables": {large.String(), 100, 32},
	} {
		h := newHost(t)
		h.Proc = t.TempDir()
		full := filepath.Join(h.Proc, "mountinfo")
		if err := os.WriteFile(full, []byte(tc.text), 0o600); err != nil {
			t.Fatal(err)
		}
		r := h.Round()
		for i := range tc.namespaces {
			dir := filepath.Join(h.Proc, strconv.Itoa(10+i))
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Link(full, filepath.Join(dir, "mountinfo")); err != nil {
				t.Fatal(err)
			}
			r.others[strconv.Itoa(i)] = []int{10 + i, 10 + i}
		}
		got, err := r.readNamespaces(t.Context())
		if err != nil || len(got) == 0 || len(got) > tc.most || tc.most == tc.namespaces && len(got) != tc.most {
			t.Errorf("%s: %d namespaces, %v", name, len(got), err)
		}
		for _, n := range got {
			if len(n.pids) != 1 {
				t.Errorf("%s: %v", name, n.pids)
			}
		}
	}
}
