package proc

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kernfile"
)

// plugin listens on a socket as a device plugin does, accepts one connection, greets, and reads nothing, until its
// input ends.
func plugin(socket string) error {
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	conn, err := l.Accept()
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.Write([]byte{0}); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// A real process that is stopped, and that has not read what this one, as the kubelet, has sent it.
func TestStoppedPlugins(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounts a file system")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, dir, unshare string
		found              bool
	}{
		{"a plugin", "/var/lib/kubelet/device-plugins", "--mount", true},
		{"a plugin with a network of its own", "/var/lib/kubelet/device-plugins", "--mount --net", true},
		{"another service", "/var/lib/kubelet/plugins", "--mount", false}, // the loop does not wait for it
	} {
		t.Run(test.name, func(t *testing.T) {
			cmd := waiting(t, exec.Command("sh", "-c", "exec unshare "+test.unshare+` sh -c 'mount -t tmpfs tmpfs /var/lib && mkdir -p "$2" && exec "$1" plugin "$2"/example.sock' sh "$@"`, "sh", self, test.dir))
			pid := cmd.Process.Pid
			conn, err := net.Dial("unix", filepath.Join("/proc", strconv.Itoa(pid), "root", test.dir, "example.sock"))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil { // it has accepted
				t.Fatal(err)
			}
			h := newHost(t)
			find := func(kubelet int) []evidence.StoppedPlugin {
				t.Helper()
				all, err := h.Round().ReadStoppedPlugins(t.Context(), kubelet)
				if err != nil {
					t.Logf("not all: %v", err) // there may be others
				}
				var own []evidence.StoppedPlugin
				for _, s := range all {
					if s.PID == pid {
						own = append(own, s)
					}
				}
				return own
			}
			send := func(b []byte) {
				t.Helper()
				if _, err := conn.Write(b); err != nil {
					t.Fatal(err)
				}
			}
			frame := func(kind byte, length int) []byte {
				return append([]byte{0, 0, byte(length), kind}, make([]byte, 5+length)...)
			}
			byItself := slices.Concat(frame(4, 0), frame(8, 4), frame(8, 4), frame(6, 8), frame(6, 8)) // SETTINGS, WINDOW_UPDATE, PING
			send(byItself)
			if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = unix.Kill(pid, unix.SIGCONT) }()
			awaitState(t, pid, evidence.Stopped)
			if got := find(os.Getpid()); len(got) > 0 {
				t.Errorf("that much the kubelet sends by itself: %+v", got)
			}
			send(frame(1, 7)) // HEADERS
			got := find(os.Getpid())
			if (len(got) == 1) != test.found || test.found && (got[0].Socket != "example.sock" || got[0].Unread != len(byItself)+9+7 || got[0].Probe == nil) {
				t.Errorf("%+v, want it: %t", got, test.found)
			}
			if got := find(os.Getppid()); len(got) > 0 {
				t.Errorf("of another client: %+v", got)
			}
			if err := unix.Kill(pid, unix.SIGCONT); err != nil {
				t.Fatal(err)
			}
			awaitState(t, pid, evidence.Sleeping)
			if got := find(os.Getpid()); len(got) > 0 {
				t.Errorf("of one that runs: %+v", got)
			}
		})
	}
}

// awaitState waits until a process is in a state.
func awaitState(t *testing.T, pid int, want evidence.TaskState) {
	t.Helper()
	files, err := kernfile.Open("/proc")
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	for {
		s, err := files.TaskStatus(pid)
		if err != nil {
			t.Fatal(err)
		}
		if s.State == want {
			return
		}
	}
}
