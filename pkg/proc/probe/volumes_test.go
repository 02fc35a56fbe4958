package probe

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// kubeletDir makes a root directory with that of a kubelet, and a /proc of which
// process 1 has it as its root.
func kubeletDir(t *testing.T, files map[string]string) (proc, root string) {
	t.Helper()
	proc, root = t.TempDir(), t.TempDir()
	for name, text := range files {
		name = filepath.Join(root, "var/lib/kubelet", name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(proc, "1"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(root, filepath.Join(proc, "1", "root")); err != nil {
		t.Fatal(err)
	}
	tellMounts(t, proc, root)
	return proc, root
}

// tellMounts writes the mount table of the first process as the kernel has it below root.
func tellMounts(t *testing.T, proc, root string) {
	t.Helper()
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	var own strings.Builder
	for line := range strings.Lines(string(table)) {
		if f := strings.Split(line, " "); strings.HasPrefix(f[4], root+"/") {
			f[4] = strings.TrimPrefix(f[4], root)
			own.WriteString(strings.Join(f, " "))
		}
	}
	if err := os.WriteFile(filepath.Join(proc, "1", "mountinfo"), []byte(own.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}

const pod = "0b4ddc3e-1111-4222-8333-444455556666"

func TestVolumes(t *testing.T) {
	proc, root := kubeletDir(t, map[string]string{
		"pods/" + pod + "/volumes/kubernetes.io~csi/pv-1/vol_data.json":    `{"driverName":"a.test","volumeHandle":"secret","volumeLifecycleMode":"Persistent"}`,
		"pods/" + pod + "/volumes/kubernetes.io~csi/inline/vol_data.json":  `{"driverName":"a.test","volumeLifecycleMode":"Ephemeral"}`,
		"pods/" + pod + "/volumes/kubernetes.io~csi/torn/vol_data.json":    `{"drive`,
		"pods/" + pod + "/volumes/kubernetes.io~csi/none/mount/x":          "",
		"pods/" + pod + "/volumes/kubernetes.io~csi/long/vol_data.json":    `{"driverName":"` + strings.Repeat("x", largestData) + `"}`,
		"pods/" + pod + "/volumes/kubernetes.io~empty-dir/scratch/private": "",
		"pods/" + pod + "/volumeDevices/kubernetes.io~csi/pv-2":            "",
		"plugins/kubernetes.io/csi/volumeDevices/pv-2/data/vol_data.json":  `{"driverName":"b.test"}`,
		"pods/" + pod + "/volume-subpaths/scratch/main/0/private":          "",
		"pods/" + pod + "/volume-subpaths/host/main/1":                     "",
		"plugins_registry/a.test-reg.sock":                                 "",
		"pods/another/volumes/kubernetes.io~empty-dir/x/y":                 "",
	})
	// A link is not followed, and so a pod cannot make one.
	if err := os.Symlink("/etc", filepath.Join(root, "var/lib/kubelet/pods", pod, "volumes/linked")); err != nil {
		t.Fatal(err)
	}
	p := newProber(t)
	got, _, _, err := p.Volumes(t.Context(), proc, "/var/lib/kubelet", pod)
	if err == nil || !strings.Contains(err.Error(), "linked") {
		t.Errorf("a link among the plugins: %v, %v", got, err)
	}
	if err := os.Remove(filepath.Join(root, "var/lib/kubelet/pods", pod, "volumes/linked")); err != nil {
		t.Fatal(err)
	}
	got, sockets, found, err := p.Volumes(t.Context(), proc, "/var/lib/kubelet", pod)
	if err != nil || !found {
		t.Fatal(found, err)
	}
	const csi = "kubernetes.io~csi"
	want := []VolumeDir{
		{Name: "inline", Plugin: csi, Driver: "a.test", Inline: true}, {Name: "long", Plugin: csi}, {Name: "none", Plugin: csi, NoRecord: true},
		{Name: "pv-1", Plugin: csi, Driver: "a.test"}, {Name: "torn", Plugin: csi, NoRecord: true},
		{Name: "scratch", Plugin: "kubernetes.io~empty-dir", Subpaths: 1},
		{Name: "pv-2", Plugin: csi, Block: true, Driver: "b.test"},
		{Name: "host", Subpaths: 1},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"a.test-reg.sock"}, sockets); diff != "" {
		t.Error(diff)
	}
	// The kubelet removes the pod's name of a block device before it unmounts the device.
	got, _, _, err = p.Volumes(t.Context(), proc, "/var/lib/kubelet", "no-such-pod", "pv-2", "../pv-1")
	if diff := cmp.Diff([]VolumeDir{{Name: "pv-2", Plugin: csi, Block: true, Driver: "b.test"}, {Name: "../pv-1", Plugin: csi, Block: true}},
		got); diff != "" || err != nil {
		t.Errorf("%v %s", err, diff)
	}
	if got, _, found, err := p.Volumes(t.Context(), proc, "/var/lib/kubelet", "no-such-pod"); err != nil || got != nil || found {
		t.Errorf("a pod without directories: %v, %v", got, err)
	}
	for _, uid := range []string{"", "..", "../../x", "a/b"} {
		if got, _, _, err := p.Volumes(t.Context(), proc, "/var/lib/kubelet", uid); err == nil {
			t.Errorf("the pod %q has %v", uid, got)
		}
	}
	if _, _, _, err := p.Volumes(t.Context(), proc, "/no/such/directory", pod); err == nil {
		t.Error("a kubelet's directory that is not there has no volumes, and that is known")
	}
	pods, err := p.Pods(t.Context(), proc, "/var/lib/kubelet")
	if diff := cmp.Diff([]string{pod, "another"}, pods); diff != "" || err != nil {
		t.Errorf("%v %s", err, diff)
	}
}

// What is mounted on a directory of the kubelet is not looked into.
func TestVolumesCrossNoMount(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: mounts a file system")
	}
	proc, root := kubeletDir(t, map[string]string{"pods/" + pod + "/volumes/kubernetes.io~csi/pv/mount/x": ""})
	at := filepath.Join(root, "var/lib/kubelet/pods", pod, "volumes/kubernetes.io~csi/pv")
	if err := unix.Mount("test", at, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(at, unix.MNT_DETACH)
	tellMounts(t, proc, root)
	if err := os.WriteFile(filepath.Join(at, "vol_data.json"), []byte(`{"driverName":"forged"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	got, _, _, err := newProber(t).Volumes(t.Context(), proc, "/var/lib/kubelet", pod)
	if diff := cmp.Diff([]VolumeDir{{Name: "pv", Plugin: "kubernetes.io~csi"}}, got); diff != "" || err != nil {
		t.Errorf("%v %s", err, diff)
	}
}

// A pod may have hundreds of volumes. They are told once, and not with each directory that
// is opened.
func TestVolumesAreToldOnce(t *testing.T) {
	files := make(map[string]string)
	for i := range 100 {
		files[fmt.Sprintf("pods/%s/volumes/%s/pv-%d/vol_data.json", pod, csiPlugin, i)] = `{"driverName":"a.test"}`
	}
	proc, _ := kubeletDir(t, files)
	var out bytes.Buffer
	p := probe{request: request{What: volumes, Proc: proc, Dir: "/var/lib/kubelet", Pod: pod}, out: &out}
	p.run()
	if p.err != nil || len(p.seen.Volumes) != 1 || len(apart(p.seen.Volumes)) != 100 {
		t.Fatal(p.seen, p.err)
	}
	if n := bytes.Count(out.Bytes(), []byte("opening")); n < 100 || out.Len() > 200*n {
		t.Errorf("%d bytes before the answer, for %d files", out.Len(), n)
	}
}
