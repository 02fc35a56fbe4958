package artefact

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
)

// hostPackage is a Debian package that this machine needs, and a file that tells
// that it is there.
type hostPackage struct{ name, file string }

// hostPackages lists what `up` and `image` install. etcd is not among them: its
// package would start a server of its own, so it is compiled like the rest.
func hostPackages() []hostPackage {
	return []hostPackage{
		{"mmdebstrap", "/usr/bin/mmdebstrap"},
		{"qemu-system-x86", "/usr/bin/qemu-system-x86_64"},
		{"qemu-utils", "/usr/bin/qemu-img"},
		{"e2fsprogs", "/usr/sbin/mke2fs"},
		{"slirp4netns", "/usr/bin/slirp4netns"},
		{"debian-archive-keyring", debianKeyring},
		{"ca-certificates", "/etc/ssl/certs/ca-certificates.crt"},
		// For runc 1.4, which is C in part.
		{"gcc", "/usr/bin/gcc"},
		{"libc6-dev", "/usr/lib/x86_64-linux-gnu/libc.a"},
		{"libseccomp-dev", "/usr/lib/x86_64-linux-gnu/libseccomp.a"},
		{"pkg-config", "/usr/bin/pkg-config"},
	}
}

const debianKeyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// HostPackages installs what is missing on this machine.
func (m Maker) HostPackages(ctx context.Context) error {
	var missing []string
	for _, p := range hostPackages() {
		if _, err := os.Stat(p.file); errors.Is(err, os.ErrNotExist) {
			missing = append(missing, p.name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return &StepError{Step: "install " + strings.Join(missing, ", "), Err: err,
			Next: "use Debian 12 or later or Ubuntu 22.04 or later, or install the packages by hand"}
	}
	step := "install packages " + strings.Join(missing, " ")
	m.Say("==> %s: about 1 minute", step)
	defer m.progress(step)()
	log, err := m.Cache.LogFile("packages")
	if err != nil {
		return err
	}
	defer log.Close()
	install := command{
		env: []string{"DEBIAN_FRONTEND=noninteractive"},
		// Another apt may be at work, on a fresh cloud machine usually is.
		argv: append([]string{"apt-get", "-y", "-q", "-o", "DPkg::Lock::Timeout=300", "install", "--no-install-recommends"}, missing...),
	}
	err = run(ctx, log, install)
	if err != nil && ctx.Err() == nil {
		// The lists of packages are missing or old.
		update := command{env: install.env, argv: []string{"apt-get", "-q", "-o", "DPkg::Lock::Timeout=300", "update"}}
		if err = run(ctx, log, update); err == nil {
			err = run(ctx, log, install)
		}
	}
	if err != nil {
		return &StepError{Step: step, Log: log.Name(), Err: err, Next: "run `apt-get update` and `apt-get install " + strings.Join(missing, " ") + "` by hand"}
	}
	return nil
}
