package probe

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// refuses is the errno that openat2 has in a test process, by a seccomp filter, as before Linux 5.6 or where a profile forbids it.
const refuses = "PROBE_TEST_OPENAT2"

// refuseOpenat2 has the kernel refuse openat2 to this process and all that it starts.
func refuseOpenat2(errno string) error {
	code, err := strconv.ParseUint(errno, 10, 16)
	if err != nil {
		return err
	}
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}, // the number of the call
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: unix.SYS_OPENAT2},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(code)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if _, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog))); e != 0 {
		return e
	}
	if _, err := unix.Openat2(unix.AT_FDCWD, "/", &unix.OpenHow{Flags: unix.O_PATH}); !unserved(err) {
		return errors.New("the filter is in place, and openat2 is still served")
	}
	return nil
}

// What is read of the kubelet's directory is the same where there is no openat2.
func TestWithoutOpenat2(t *testing.T) {
	for name, errno := range map[string]unix.Errno{"ENOSYS": unix.ENOSYS, "EPERM": unix.EPERM} {
		cmd := exec.Command("/proc/self/exe", "-test.v", "-test.run",
			"^(TestVolumes|TestPods|TestPlaces|TestClaims|TestCertificate|TestStore|TestNothingIsFollowed|TestInRoot).*$")
		cmd.Env = append(os.Environ(), refuses+"="+strconv.Itoa(int(errno)))
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "--- PASS: TestVolumes") {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

// Neither links nor mounts are followed, with openat2 and without it.
func TestNothingIsFollowed(t *testing.T) {
	proc, root := kubeletDir(t, map[string]string{"pods/a/x": "", "real/y": ""})
	dir := filepath.Join(root, "var/lib/kubelet")
	if err := os.Symlink("real", filepath.Join(dir, "linked")); err != nil {
		t.Fatal(err)
	}
	const table = `31 23 0:27 / /var/lib/kubelet/pods/a\040b rw - tmpfs tmpfs rw` + "\n"
	if err := os.WriteFile(filepath.Join(proc, "1", "mountinfo"), []byte(table), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "pods", "a b"), 0o755); err != nil {
		t.Fatal(err)
	}
	mounted := unix.Mount("tmpfs", filepath.Join(dir, "pods", "a b"), "tmpfs", 0, "") == nil
	t.Cleanup(func() { _ = unix.Unmount(filepath.Join(dir, "pods", "a b"), unix.MNT_DETACH) })
	at, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(at)
	p := &probe{request: request{Proc: proc, Dir: "/var/lib/kubelet"}}
	for name, want := range map[string]error{
		"pods/a": nil, "pods/a/x": unix.ENOTDIR, "linked": unix.ELOOP, "linked/y": unix.ELOOP, "none": unix.ENOENT,
		"pods/../../..": unix.EXDEV, "pods/a b": unix.EXDEV,
	} {
		if name == "pods/a b" && !mounted && os.Getenv(refuses) == "" {
			continue // who is not root cannot mount
		}
		fd, err := p.beneath(at, p.Dir, name, unix.O_RDONLY|unix.O_DIRECTORY, true)
		if err != want { //nolint:errorlint // as system calls have it
			t.Errorf("%s: %v, want %v", name, err, want)
		}
		if err == nil {
			unix.Close(fd)
		}
	}
}

// Links are followed within the root.
func TestInRoot(t *testing.T) {
	root := t.TempDir()
	for _, d := range []string{"a/b", "c"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{"c/up": "../a", "absolute": "/a/b", "out": "../../../../a", "loop": "loop", "c/twice": "up/b"} {
		if err := os.Symlink(to, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	fd, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	for name, want := range map[string]string{
		"/a/b": "a/b", "c/up": "a", "absolute": "a/b", "out": "a", "c/twice": "a/b", "/": "", "loop": "too many levels", "none": "no such file",
	} {
		got, err := inRoot(fd, name)
		if err != nil {
			if !strings.Contains(err.Error(), want) || want == "" {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		at, _ := os.Readlink("/proc/self/fd/" + strconv.Itoa(got))
		unix.Close(got)
		if at != filepath.Join(root, want) {
			t.Errorf("%s leads to %s", name, at)
		}
	}
}

func TestUnescaped(t *testing.T) {
	for name, want := range map[string]string{`/a\040b`: "/a b", `/a\134b`: `/a\b`, `/a\`: `/a\`, `/a\x12`: `/a\x12`, "/a": "/a"} {
		if got := unescaped(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// Of a mount table that is too long, nothing is known.
func TestMountPointsAreBounded(t *testing.T) {
	for size, known := range map[int]bool{1 << 20: true, largestMountinfo + 1: false} {
		dir := t.TempDir()
		line := "1 1 0:1 / /x rw - tmpfs x rw\n"
		text := strings.Repeat(line, 1+size/len(line))
		if err := os.Mkdir(filepath.Join(dir, "1"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "1", "mountinfo"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		p := &probe{}
		p.Proc = dir
		if points, err := p.mountPoints(); (err == nil) != known || points["/x"] != known {
			t.Errorf("%d bytes: %v, %v", len(text), points, err)
		}
	}
}
