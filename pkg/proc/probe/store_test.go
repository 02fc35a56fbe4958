package probe

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kerneltest"
)

// ext4 says that it has stopped to write among its options only.
func TestHasStopped(t *testing.T) {
	const other = "26 1 7:1 / / rw,noatime shared:1 - ext4 /dev/loop1 rw,emergency_ro\n"
	for text, want := range map[string]bool{
		other + "27 26 7:0 / /a rw,noatime shared:1 - ext4 /dev/loop0 rw,nobarrier,emergency_ro\n": true,
		other + "27 26 7:0 / /a rw,noatime - ext4 /dev/loop0 rw,shutdown\n":                        true,
		other + "27 26 7:0 /emergency_ro /a rw,emergency_ro - ext4 /dev/loop0 rw\n":                false,
		other + "27 26 7:0 / /a rw\n": false,
		other + "27\n":                false,
		"":                            false,
	} {
		if got := hasStopped([]byte(text), 27); got != want {
			t.Errorf("%q: %t", text, got)
		}
	}
}

func FuzzHasStopped(f *testing.F) {
	kerneltest.Fuzz(f, []string{"27 26 7:0 / /a rw - ext4 /dev/loop0 rw,shutdown\n"}, func(b []byte) { hasStopped(b, 27) })
}

// A link leads where it leads the process, and not where it would lead the helper.
func TestStatfsOfALink(t *testing.T) {
	proc := t.TempDir()
	for _, name := range []string{"root/var/lib", "root/data/kubelet"} {
		if err := os.MkdirAll(filepath.Join(proc, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	outside := t.TempDir()
	for name, target := range map[string]string{"kubelet": "/data/kubelet", "relative": "../../data/kubelet",
		"above": "../../../../../data/kubelet", "outside": outside} {
		if err := os.Symlink(target, filepath.Join(proc, "root/var/lib", name)); err != nil {
			t.Fatal(err)
		}
	}
	fd, err := unix.Open(proc, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	d := &dir{fd: fd}
	defer unix.Close(fd)
	for name, want := range map[string]error{
		"/data/kubelet": nil, "/var/lib/kubelet": nil, "/var/lib/relative": nil, "/var/lib/above": nil,
		"/var/lib/outside": unix.ENOENT, "/var/lib/none": unix.ENOENT,
	} {
		if s, mount, err := d.statfs(name); !errors.Is(err, want) || err == nil && (s.Blocks == 0 || mount == 0) {
			t.Errorf("%s: mount %d, %v, want %v", name, mount, err, want)
		}
	}
}
