package artefact

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/nodeagent-io/nodeagent/test/cluster/internal/cache"
	"github.com/nodeagent-io/nodeagent/test/cluster/internal/image"
	"github.com/nodeagent-io/nodeagent/test/cluster/internal/state"
)

// nodeFiles is copied over the root file system of a node as it is.
//
//go:embed node
var nodeFiles embed.FS

// What every node has without loading anything.
const (
	PauseImage   = "nodeagent.test/pause:1"
	BusyboxImage = "docker.io/library/busybox:test"
)

// nodeSetup runs in the root file system, in a chroot of its own making: it turns
// off whatever costs time on an emulated processor and is of no use there.
const nodeSetup = `set -e
for unit in apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service \
	fstrim.timer getty@tty1.service getty-static.service nfs-blkmap.service rpcbind.service rpcbind.socket \
	systemd-pstore.service systemd-tmpfiles-clean.timer systemd-update-utmp.service systemd-update-utmp-runlevel.service \
	systemd-firstboot.service systemd-hwdb-update.service systemd-journal-catalog-update.service \
	systemd-machine-id-commit.service systemd-udev-settle.service ldconfig.service systemd-random-seed.service \
	serial-getty@ttyS0.service systemd-backlight@.service modprobe@drm.service rpc-statd.service rpc-statd-notify.service \
	smbd.service nmbd.service samba-ad-dc.service mdmonitor.service mdmonitor-oneshot.timer mdcheck_start.timer mdcheck_continue.timer; do
	ln -sf /dev/null "etc/systemd/system/$unit"
done
# The NFS server is for those who start it.
rm -f etc/systemd/system/multi-user.target.wants/nfs-server.service
wants=etc/systemd/system/multi-user.target.wants
mkdir -p "$wants" etc/systemd/system/sysinit.target.wants export opt/cni/bin etc/kubernetes/manifests usr/local/share/images root/.ssh
ln -sf /etc/systemd/system/node-seed.service etc/systemd/system/sysinit.target.wants/
for unit in containerd preload-images kubelet kube-proxy; do
	ln -sf "/etc/systemd/system/$unit.service" "$wants/"
done
rmdir opt/cni/bin && ln -s /usr/lib/cni opt/cni/bin
chmod 777 export
# The shell of exec starts fast and reads no files of its own.
sed -i 's#^\(root:.*:\)/bin/bash$#\1/bin/sh#' etc/passwd
chmod 700 root/.ssh
rm -f etc/ssh/ssh_host_*
# Empty, not missing: else systemd sees a first boot and turns units on and off as it likes.
: > etc/machine-id
printf 'nameserver 10.0.2.3\n' > etc/resolv.conf
printf '127.0.0.1 localhost\n' > etc/hosts
rm -rf var/lib/apt/lists/* var/cache/apt/*.bin
`

// Programs are the folders of what is compiled for a node.
type Programs struct{ Kubernetes, Containerd, Runc, Pause string }

// NodeDisk returns a folder with disk.img (an ext4 file system), and vmlinuz and initrd
// of each kernel, with its version behind a hyphen.
func (m Maker) NodeDisk(ctx context.Context, p Programs) (string, error) {
	rootfs, err := m.rootfs(ctx)
	if err != nil {
		return "", err
	}
	files, err := cache.KeyOfFS(nodeFiles)
	if err != nil {
		return "", err
	}
	key := cache.KeyOf("nodedisk", "2", filepath.Base(rootfs), filepath.Base(p.Kubernetes), filepath.Base(p.Containerd),
		filepath.Base(p.Runc), filepath.Base(p.Pause), string(files), nodeSetup)
	return m.Cache.Entry(ctx, "node", key, func(dir string) error {
		step := "make the node's disk"
		m.Say("==> %s: about 20 seconds", step)
		defer m.progress(step)()
		log, err := m.Cache.LogFile("node")
		if err != nil {
			return err
		}
		defer log.Close()
		err = m.makeDisk(ctx, log, dir, rootfs, p)
		if err != nil {
			return &StepError{Step: step, Log: log.Name(), Err: err, Next: "see whether the cache folder " + m.Cache.Dir + " has 3 GB of space"}
		}
		return nil
	})
}

func (m Maker) makeDisk(ctx context.Context, log *os.File, dir, rootfs string, p Programs) error {
	root := filepath.Join(dir, "root")
	defer os.RemoveAll(root)
	if err := os.Mkdir(root, 0o755); err != nil {
		return err
	}
	if err := run(ctx, log, command{argv: []string{"tar", "-xf", filepath.Join(rootfs, "rootfs.tar"), "--numeric-owner", "-C", root}}); err != nil {
		return err
	}
	if err := run(ctx, log, command{argv: []string{"sh", "-c", nodeSetup}, dir: root}); err != nil {
		return err
	}
	if err := copyNodeFiles(root); err != nil {
		return err
	}
	for program, to := range map[string]string{
		filepath.Join(p.Kubernetes, "kubelet"):                 "bin",
		filepath.Join(p.Kubernetes, "kube-proxy"):              "bin",
		filepath.Join(p.Containerd, "containerd"):              "bin",
		filepath.Join(p.Containerd, "containerd-shim-runc-v2"): "bin",
		filepath.Join(p.Containerd, "ctr"):                     "bin",
		filepath.Join(p.Runc, "runc"):                          "lib/runc-1.4",
	} {
		if err := run(ctx, log, command{argv: []string{"install", "-m", "755", program, filepath.Join(root, "usr/local", to)}}); err != nil {
			return err
		}
	}
	images := filepath.Join(root, "usr/local/share/images")
	if err := writePause(filepath.Join(images, "pause.tar"), p.Pause); err != nil {
		return err
	}
	if err := writeBusybox(ctx, filepath.Join(images, "busybox.tar"), root, filepath.Join(dir, "busybox")); err != nil {
		return err
	}
	for _, kernel := range state.Kernels {
		for name, pattern := range map[string]string{"vmlinuz-": "vmlinuz-" + kernel + ".*", "initrd-": "initrd.img-" + kernel + ".*"} {
			found, err := filepath.Glob(filepath.Join(root, "boot", pattern))
			if err != nil || len(found) != 1 {
				return fmt.Errorf("look for boot/%s: found %v", pattern, found)
			}
			if err := os.Rename(found[0], filepath.Join(dir, name+kernel)); err != nil {
				return err
			}
		}
	}
	// Sparse: 20 GB in size, about 1 GB on disk. All inode tables are made now, else the
	// node would make them in its first minutes.
	return run(ctx, log, command{argv: []string{"/usr/sbin/mke2fs", "-q", "-t", "ext4", "-L", "node", "-N", "500000", "-m", "0",
		"-E", "lazy_itable_init=0,lazy_journal_init=0", "-J", "size=32", "-d", root, filepath.Join(dir, "disk.img"), "20G"}})
}

// copyNodeFiles writes the embedded files. A script is executable, everything else is not.
func copyNodeFiles(root string) error {
	return fs.WalkDir(nodeFiles, "node", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		to := filepath.Join(root, strings.TrimPrefix(path, "node"))
		if d.IsDir() {
			return os.MkdirAll(to, 0o755)
		}
		data, err := nodeFiles.ReadFile(path)
		if err != nil {
			return err
		}
		mode := fs.FileMode(0o644)
		if strings.HasPrefix(string(data), "#!") {
			mode = 0o755
		}
		return os.WriteFile(to, data, mode)
	})
}

func writePause(to, pause string) error {
	return image.Write(to, image.Spec{
		Name:       PauseImage,
		Entrypoint: []string{"/pause"},
		Files:      []image.File{{Source: filepath.Join(pause, "pause"), Destination: "/pause"}},
	})
}

// writeBusybox makes the image that most test pods run: a static busybox under all
// its names, and tini for those who want a first process that handles signals.
func writeBusybox(ctx context.Context, to, root, temp string) error {
	defer os.RemoveAll(temp)
	busybox := filepath.Join(root, "usr/bin/busybox")
	if _, err := os.Stat(busybox); errors.Is(err, fs.ErrNotExist) {
		busybox = filepath.Join(root, "bin/busybox")
	}
	applets, err := exec.CommandContext(ctx, busybox, "--list").Output()
	if err != nil {
		return fmt.Errorf("list the commands of busybox: %w", err)
	}
	if err := os.MkdirAll(filepath.Join(temp, "bin"), 0o755); err != nil {
		return err
	}
	for _, name := range strings.Fields(string(applets)) {
		if name == "busybox" {
			continue
		}
		if err := os.Symlink("busybox", filepath.Join(temp, "bin", name)); err != nil {
			return err
		}
	}
	for name, text := range map[string]string{
		"etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n",
		"etc/group":  "root:x:0:\nnogroup:x:65534:\n",
	} {
		path := filepath.Join(temp, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	for _, dir := range []string{"tmp", "root"} {
		if err := os.Mkdir(filepath.Join(temp, dir), 0o755); err != nil {
			return err
		}
	}
	if err := os.Chmod(filepath.Join(temp, "tmp"), 0o777|fs.ModeSticky); err != nil {
		return err
	}
	return image.Write(to, image.Spec{
		Name: BusyboxImage,
		Cmd:  []string{"/bin/sh"},
		Files: []image.File{
			{Source: temp, Destination: "/"},
			{Source: busybox, Destination: "/bin/busybox"},
			{Source: filepath.Join(root, "usr/bin/tini-static"), Destination: "/bin/tini"},
		},
	})
}
