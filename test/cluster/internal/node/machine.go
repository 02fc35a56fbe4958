package node

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/nodeagent-io/nodeagent/test/cluster/internal/pki"
	"github.com/nodeagent-io/nodeagent/test/cluster/internal/state"
)

const qemu = "/usr/bin/qemu-system-x86_64"

// Console is what the node's kernel and systemd write to their serial line. A native
// node has neither; what comes before its services writes there.
func Console(d state.Dir, n state.Node) string {
	if n.Spec.Kind == state.Native {
		return d.Processes().Log(n.Name)
	}
	return filepath.Join(d.Logs(), n.Name+"-console.log")
}

// bootMachine starts the virtual machine of a node. Its disk is an overlay over the cached
// one: nothing is copied, and nothing stays.
func bootMachine(ctx context.Context, d state.Dir, c state.Cluster, n state.Node, a *pki.Authority) error {
	if err := writeSeed(d, c, n, a); err != nil {
		return err
	}
	overlay := filepath.Join(d.File("nodes"), n.Name+".qcow2")
	base := filepath.Join(c.ImageDir, "disk.img")
	out, err := exec.CommandContext(ctx, "qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", base, overlay).CombinedOutput()
	if err != nil {
		return fmt.Errorf("boot %s: make its disk: %w: %s", n.Name, err, out)
	}
	argv := machineArgs(d, c, n, overlay)
	if _, err := d.Processes().Start(n.Name, argv, nil); err != nil {
		return fmt.Errorf("boot %s: %w", n.Name, err)
	}
	return nil
}

func machineArgs(d state.Dir, c state.Cluster, n state.Node, overlay string) []string {
	argv := []string{qemu, "-name", n.Name}
	if c.Accel != "kvm" {
		argv = append(ahead, argv...)
	}
	argv = append(argv, accelArgs(c.Accel)...)
	return append(argv,
		"-smp", "2", "-m", fmt.Sprint(n.Spec.MemoryMB),
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-kernel", filepath.Join(c.ImageDir, "vmlinuz-"+n.Spec.Kernel),
		"-initrd", filepath.Join(c.ImageDir, "initrd-"+n.Spec.Kernel),
		"-append", strings.Join(kernelCommandLine(n), " "),
		// What a flush is for, a crash of this machine, `down` throws away anyhow.
		"-drive", "file="+overlay+",format=qcow2,if=virtio,cache=unsafe,discard=unmap",
		"-drive", "file="+filepath.Join(d.File("nodes"), n.Name+".seed")+",format=raw,if=virtio,readonly=on",
		"-netdev", fmt.Sprintf("user,id=net0,net=10.0.2.0/24,host=%s,dhcpstart=%s,hostfwd=tcp:127.0.0.1:%d-%s:22",
			state.HostAddress, n.Address, n.SSHPort, n.Address),
		"-device", "virtio-net-pci,netdev=net0,romfile=",
		"-serial", "file:"+Console(d, n),
		"-monitor", "unix:"+d.MonitorSocket(n.Name)+",server=on,wait=off",
	)
}

// ahead runs an emulator so that it gets two and a half times the part of a processor that others get: beside native nodes a
// machine is the slowest node by far, and what it runs is what all wait for in the end. Six times as much (-8) leaves ten nodes
// on two processors too little: they cannot tell in time why their pods are stuck. A kernel that groups processes by session
// (autogroup in sched(7)) weighs the group against others, and the nice value of a process only within it.
var ahead = []string{"sh", "-c", `[ ! -e /proc/self/autogroup ] || echo -4 >/proc/self/autogroup; exec nice -n -4 "$0" "$@"`}

func accelArgs(accel string) []string {
	if accel == "kvm" {
		return []string{"-machine", "q35", "-accel", "kvm", "-cpu", "host"}
	}
	return []string{"-machine", "q35", "-accel", "tcg,thread=multi,tb-size=1024", "-cpu", emulated}
}

// emulated is the processor that an emulator is quick at. Without la57 a page table has
// four levels instead of five to walk in software. Without erms and fsrm the kernel and
// the C library copy words and not, as the emulator does for "rep movsb", byte by byte.
// Without xsave, and with it AVX, programs use no large registers, and a switch between
// two of them saves fewer. Three containers started one after the other take 6 s of a
// processor instead of 14.
const emulated = "max,la57=off,erms=off,fsrm=off,xsave=off"

func kernelCommandLine(n state.Node) []string {
	line := []string{
		"console=ttyS0", "root=/dev/vda", "rw", "rootfstype=ext4", "net.ifnames=0",
		"systemd.hostname=" + n.Name, "systemd.show_status=0", "loglevel=4", "fsck.mode=skip",
		// All of it only costs time on an emulated processor.
		// Code at the same addresses is translated once for all processes: a program
		// starts in a third of the time.
		"norandmaps",
		"mitigations=off", "apparmor=0", "selinux=0", "audit=0", "nokaslr", "random.trust_cpu=on", "no_timer_check",
	}
	if n.Spec.Cgroup == "v1" {
		line = append(line, "systemd.unified_cgroup_hierarchy=0", "systemd.legacy_systemd_cgroup_controller=1")
	}
	if n.Spec.NoPSI {
		line = append(line, "psi=0")
	}
	return line
}

// Accel finds out how to run nodes. That /dev/kvm exists does not mean that it boots
// our kernel (nested machines, broken hosts), so the first time a kernel is booted
// for real; the answer is kept for this machine.
func Accel(ctx context.Context, cacheDir, imageDir string) (string, error) {
	if f, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0); err != nil {
		return "tcg", nil
	} else {
		f.Close()
	}
	machine, _ := os.ReadFile("/etc/machine-id")
	kernel, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return "", err
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	id := string(machine) + string(kernel) + string(boot) + filepath.Base(imageDir)
	file := filepath.Join(cacheDir, "accel")
	if data, err := os.ReadFile(file); err == nil {
		if accel, of, ok := strings.Cut(string(data), "\n"); ok && of == id {
			return accel, nil
		}
	}
	accel := "tcg"
	if kvmBoots(ctx, imageDir) {
		accel = "kvm"
	}
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	temp := file + fmt.Sprint(os.Getpid())
	if err := os.WriteFile(temp, []byte(accel+"\n"+id), 0o644); err != nil {
		return "", fmt.Errorf("keep the answer whether KVM works: %w", err)
	}
	return accel, os.Rename(temp, file)
}
