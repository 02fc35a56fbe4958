package artefact

import (
	"context"
	"path/filepath"
	"strings"

	"github.com/nodeagent-io/nodeagent/test/cluster/internal/cache"
)

// nodePackages are the Debian packages of a node. Of the kernels the first is
// Debian 12's own (6.1), the second comes with its security updates; a node boots one
// of them. The cloud kernels have the clients of NFS and SMB, the server of NFS, FUSE,
// XFS, loop, device mapper and RAID as modules. Their own server of SMB does not go with
// Debian's tools for it.
func nodePackages() []string {
	return []string{
		"linux-image-cloud-amd64", kernel612, "systemd-sysv", "udev", "dbus", "kmod", "netbase", "ca-certificates",
		"openssh-server", "iproute2", "iptables", "conntrack", "ethtool", "socat", "iputils-ping",
		"runc", "containernetworking-plugins", "busybox-static", "tini",
		"nfs-common", "nfs-kernel-server", "samba", "fuse3", "dmsetup", "mdadm", "e2fsprogs", "xfsprogs",
		"util-linux", "procps", "psmisc", "strace",
	}
}

// kernel612 always depends on the newest 6.12.
const kernel612 = "linux-image-6.12-cloud-amd64"

// The initial RAM disk needs the root disk's driver and no other.
const smallInitrd = `mkdir -p "$1/etc/initramfs-tools/conf.d" "$1/usr/share/initramfs-tools/modules.d" && ` +
	`echo MODULES=list > "$1/etc/initramfs-tools/conf.d/nodeagent" && ` +
	`printf 'virtio_pci\nvirtio_blk\n' > "$1/usr/share/initramfs-tools/modules.d/nodeagent"`

// The newer kernel's modules are compressed, which an emulated processor pays for at
// each boot.
const plainModules = `chroot "$1" sh -ec '
find /usr/lib/modules -name "*.ko.xz" | xargs -r busybox unxz
for kernel in /usr/lib/modules/*; do depmod "${kernel##*/}"; done'`

// What mdadm has in the initial RAM disk loads modules for all levels of RAID, of which one does not
// bear an emulated processor.
const noRAIDAtBoot = "path-exclude=/usr/share/initramfs-tools/*mdadm*"

func rootfsKey() cache.Key {
	return cache.KeyOf("rootfs", "2", debianSuite, strings.Join(nodePackages(), ","), smallInitrd, plainModules, noRAIDAtBoot)
}

// rootfs returns a folder with the Debian of a node as rootfs.tar.
func (m Maker) rootfs(ctx context.Context) (string, error) {
	return m.Cache.Entry(ctx, "rootfs", rootfsKey(), func(dir string) error {
		step := "install Debian for the nodes"
		m.Say("==> %s: about 1 minute the first time", step)
		defer m.progress(step)()
		log, err := m.Cache.LogFile("rootfs")
		if err != nil {
			return err
		}
		defer log.Close()
		err = run(ctx, log, mmdebstrap(ctx, "minbase", nodePackages(), filepath.Join(dir, "rootfs.tar"), dir,
			"--dpkgopt="+noRAIDAtBoot, "--essential-hook="+smallInitrd, "--customize-hook="+plainModules))
		if err != nil {
			return &StepError{Step: step, Log: log.Name(), Err: err,
				Next: "see whether `apt-get update` works on this machine and the log misses no package (" + kernel612 +
					" is in " + debianSecurity + "), then run the command again"}
		}
		return nil
	})
}

// Rootfs makes the root file system ahead of its use.
func (m Maker) Rootfs(ctx context.Context) error {
	_, err := m.rootfs(ctx)
	return err
}
