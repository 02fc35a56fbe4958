package node

import (
	"bufio"
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/nodeagent-io/nodeagent/test/cluster/internal/state"
)

// kvmBoots boots the node's kernel under KVM as far as its first process.
func kvmBoots(ctx context.Context, imageDir string) bool {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	argv := append(accelArgs("kvm"), "-smp", "2", "-m", "512", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-kernel", filepath.Join(imageDir, "vmlinuz-"+state.Kernels[0]), "-initrd", filepath.Join(imageDir, "initrd-"+state.Kernels[0]),
		"-append", "console=ttyS0 panic=-1 root=/dev/none rootdelay=60 loglevel=7", "-serial", "stdio")
	cmd := exec.CommandContext(ctx, qemu, argv...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return false
	}
	if err := cmd.Start(); err != nil {
		return false
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if strings.Contains(lines.Text(), "Run /init as init process") {
			return true
		}
	}
	return false
}
