package node

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodeagent-io/nodeagent/test/cluster/internal/pki"
	"github.com/nodeagent-io/nodeagent/test/cluster/internal/state"
)

// A native node is what kind runs, without Docker: a copy of the nodes' disk, mounted
// in namespaces of this machine, with a network that slirp4netns makes up as qemu does
// for a virtual machine. Its process is its PID 1; the kernel ends all others with it.

//go:embed native.sh
var nativeScript string

const (
	slirp           = "/usr/bin/slirp4netns"
	leaveOut        = "leave native out: up --node vm"
	nativeNamespace = syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC
)

// networkName is the process that is the network of a native node.
func networkName(node string) string { return node + "-network" }

// disk is the file system of a native node, and root where the node mounts it.
func disk(d state.Dir, name string) string { return filepath.Join(d.File("nodes"), name+".img") }
func root(d state.Dir, name string) string { return filepath.Join(d.File("nodes"), name+".root") }

// PreflightNative tells what this machine lacks for native nodes. It loads modules of
// the kernel, which stay loaded.
func PreflightNative() error {
	loadModules()
	var missing []string
	for what, file := range map[string]string{"loop devices": "/dev/loop-control", "TUN devices": "/dev/net/tun"} {
		if _, err := os.Stat(file); err != nil {
			missing = append(missing, what+" ("+file+")")
		}
	}
	filesystems, _ := os.ReadFile("/proc/filesystems")
	for _, name := range []string{"overlay", "ext4"} {
		if !strings.Contains(string(filesystems), "\t"+name+"\n") {
			missing = append(missing, "the file system "+name)
		}
	}
	if _, err := hierarchies(); err != nil {
		missing = append(missing, err.Error())
	}
	if len(missing) > 0 {
		return fmt.Errorf("a native node needs what this machine lacks: %s\n  next: %s", strings.Join(missing, ", "), leaveOut)
	}
	if err := inotify(nodeWatches); err != nil {
		return fmt.Errorf("a native node needs %d more instances of inotify, for its kubelet, containerd and agent, and this machine has not as many left for this user (%w)\n"+
			"  next: sysctl -w fs.inotify.max_user_instances=1024, or %s", nodeWatches, err, leaveOut)
	}
	probe := exec.Command("/usr/bin/unshare", "--cgroup", "/bin/true")
	probe.SysProcAttr = &syscall.SysProcAttr{Cloneflags: nativeNamespace}
	if err := probe.Run(); err != nil {
		return fmt.Errorf("a native node needs namespaces of mounts, processes, network, names and cgroups, and this machine gives none (%w); "+
			"it takes root with CAP_SYS_ADMIN and CAP_NET_ADMIN, as no ordinary container has it\n  next: %s", err, leaveOut)
	}
	return nil
}

// nodeWatches is how many instances of inotify a native node uses. All nodes, and what
// else the same user runs, share those of the machine.
const nodeWatches = 16

// inotify makes as many instances of inotify as are asked for, and gives them back.
func inotify(instances int) error {
	for range instances {
		fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
		if err != nil {
			return fmt.Errorf("inotify_init1: %w", err)
		}
		defer unix.Close(fd)
	}
	return nil
}

// loadModules loads what may be a module. Bridges of this machine go on as they did
// before br_netfilter was there.
func loadModules() {
	const bridges = "/proc/sys/net/bridge"
	_, err := os.Stat(bridges)
	had := err == nil
	for _, name := range []string{"loop", "tun", "overlay", "fuse", "veth", "bridge", "br_netfilter", "nf_conntrack"} {
		_ = exec.Command("modprobe", "-q", name).Run()
	}
	if had {
		return
	}
	for _, of := range []string{"ip", "ip6", "arp"} {
		_ = os.WriteFile(filepath.Join(bridges, "bridge-nf-call-"+of+"tables"), []byte("0"), 0)
	}
}

// startNative starts a native node. It is down again when `up` dies before the node's
// pid file is written, and found by its cgroups ever after.
func startNative(ctx context.Context, d state.Dir, c state.Cluster, n state.Node, a *pki.Authority) error {
	if err := writeSeed(d, c, n, a); err != nil {
		return err
	}
	if err := os.MkdirAll(root(d, n.Name), 0o700); err != nil {
		return err
	}
	if err := copyDisk(ctx, filepath.Join(c.ImageDir, "disk.img"), disk(d, n.Name)); err != nil {
		return fmt.Errorf("start %s: %w", n.Name, err)
	}
	all, err := hierarchies()
	if err != nil {
		return fmt.Errorf("start %s: %w\n  next: %s", n.Name, err, leaveOut)
	}
	groups := nodeGroups(d, all, n.Name)
	if err := makeGroups(d, all, n.Name); err != nil {
		return fmt.Errorf("start %s: %w\n  next: %s", n.Name, err, leaveOut)
	}
	pipes, err := newPipes()
	if err != nil {
		return err
	}
	defer pipes.close()
	cmd := exec.Command("/bin/sh", "-c", nativeScript, n.Name)
	cmd.Env = append(os.Environ(), "DISK="+disk(d, n.Name), "ROOT="+root(d, n.Name),
		"SEED="+seedFile(d, n), "CGROUPS="+strings.Join(groups, " "), "HIERARCHIES="+hierarchyNames(all))
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: nativeNamespace}
	cmd.ExtraFiles = []*os.File{pipes.goOut, pipes.lifeIn, pipes.readyIn}
	p, err := d.Processes().StartCommand(n.Name, cmd)
	if err != nil {
		return fmt.Errorf("start %s: %w\n  next: %s", n.Name, err, leaveOut)
	}
	pipes.goOut.Close()
	pipes.lifeIn.Close()
	pipes.readyIn.Close()
	if err := startNetwork(ctx, d, n, p.PID, pipes.lifeOut); err != nil {
		return fmt.Errorf("start %s: %w", n.Name, err)
	}
	if _, err := pipes.goIn.WriteString("go\n"); err != nil {
		return fmt.Errorf("start %s: %w", n.Name, err)
	}
	if err := readLine(ctx, pipes.readyOut); err != nil {
		return fmt.Errorf("start %s: %w: %s\n  next: read %s, or %s", n.Name, err, lastLines(d.Processes().Log(n.Name)), d.Processes().Log(n.Name), leaveOut)
	}
	return nil
}

// copyDisk copies what is not empty of a disk, where the file system can by reference.
func copyDisk(ctx context.Context, from, to string) error {
	cmd := exec.CommandContext(ctx, "cp", "--reflink=auto", "--sparse=always", from, to)
	// It ends with `up`, else it would write what `down` removes. The signal comes
	// when the thread ends that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("copy its disk: %w: %s", err, out)
	}
	return nil
}

// startNetwork gives the node its eth0. What the node sends to HostAddress goes to
// this machine's loopback, and its shell listens at the node's port there.
func startNetwork(ctx context.Context, d state.Dir, n state.Node, pid int, life *os.File) error {
	readyOut, readyIn, err := os.Pipe()
	if err != nil {
		return err
	}
	defer readyOut.Close()
	name := networkName(n.Name)
	socket := d.NetworkSocket(n.Name)
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	cmd := exec.Command(slirp, "--mtu=1500", "--cidr=10.0.2.0/24", "--api-socket="+socket, "--exit-fd=3", "--ready-fd=4", fmt.Sprint(pid), "eth0")
	cmd.ExtraFiles = []*os.File{life, readyIn}
	_, err = d.Processes().StartCommand(name, cmd)
	readyIn.Close()
	if err != nil {
		return err
	}
	// slirp4netns writes a digit and no end of line.
	if err := readLine(ctx, readyOut); err != nil {
		return fmt.Errorf("make its network: %w: %s\n  next: read %s", err, lastLines(d.Processes().Log(name)), d.Processes().Log(name))
	}
	if err := forward(ctx, socket, n.SSHPort, n.Address); err != nil {
		return fmt.Errorf("pass port %d of this machine on to it: %w", n.SSHPort, err)
	}
	return nil
}

// forward lets slirp4netns listen for the node's shell.
func forward(ctx context.Context, socket string, port int, address string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	for err != nil && ctx.Err() == nil {
		time.Sleep(10 * time.Millisecond)
		conn, err = (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	request := map[string]any{"execute": "add_hostfwd", "arguments": map[string]any{
		"proto": "tcp", "host_addr": "127.0.0.1", "host_port": port, "guest_addr": address, "guest_port": 22,
	}}
	if err := json.NewEncoder(conn).Encode(request); err != nil {
		return err
	}
	if err := conn.(*net.UnixConn).CloseWrite(); err != nil {
		return err
	}
	var answer struct {
		Error *struct{ Desc string }
	}
	if err := json.NewDecoder(conn).Decode(&answer); err != nil {
		return err
	}
	if answer.Error != nil {
		return fmt.Errorf("slirp4netns answers %q", answer.Error.Desc)
	}
	return nil
}

// removeNative ends a native node, whatever it has come to, and returns when nothing
// of it is left: no process, no cgroup, no device, no file.
func removeNative(ctx context.Context, d state.Dir, name string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 30*time.Second, errors.New("not after 30 seconds"))
	defer cancel()
	all, err := hierarchies()
	if err != nil {
		all = nil // None was made, then.
	}
	if err := endGroups(ctx, nodeGroups(d, all, name)); err != nil {
		return fmt.Errorf("remove %s: %w", name, err)
	}
	for _, process := range []string{name, networkName(name)} {
		if err := d.Processes().Stop(ctx, process, 0); err != nil {
			return fmt.Errorf("remove %s: %w", name, err)
		}
	}
	if err := removeGroups(ctx, d, all, name); err != nil {
		return fmt.Errorf("remove %s: %w", name, err)
	}
	// The kernel lets go of the device when the last of the node's mounts is gone.
	for device := loopDevice(disk(d, name)); device != ""; device = loopDevice(disk(d, name)) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("remove %s: wait for the end of %s: %w", name, device, context.Cause(ctx))
		case <-time.After(10 * time.Millisecond):
		}
	}
	for _, file := range []string{disk(d, name), root(d, name), d.NetworkSocket(name), filepath.Join(d.File("nodes"), name+".seed")} {
		if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove %s: %w", name, err)
		}
	}
	return nil
}

// loopDevice is the loop device that a file lies behind, if there is one.
func loopDevice(file string) string {
	files, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err == nil && strings.TrimSuffix(strings.TrimSpace(string(data)), " (deleted)") == file {
			return filepath.Join("/dev", filepath.Base(filepath.Dir(filepath.Dir(f))))
		}
	}
	return ""
}

// pipes are between `up` and the first process of a node, which has goOut, lifeIn and
// readyIn.
type pipes struct{ goOut, goIn, lifeOut, lifeIn, readyOut, readyIn *os.File }

func newPipes() (p pipes, err error) {
	for _, ends := range [][2]**os.File{{&p.goOut, &p.goIn}, {&p.lifeOut, &p.lifeIn}, {&p.readyOut, &p.readyIn}} {
		if *ends[0], *ends[1], err = os.Pipe(); err != nil {
			p.close()
			return p, err
		}
	}
	return p, nil
}

func (p pipes) close() {
	for _, f := range []*os.File{p.goOut, p.goIn, p.lifeOut, p.lifeIn, p.readyOut, p.readyIn} {
		f.Close()
	}
}

// readLine waits until the other end of a pipe writes something. An end that is
// closed instead is an error.
func readLine(ctx context.Context, f *os.File) error {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("not after a minute"))
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = f.SetReadDeadline(time.Now()) })()
	if _, err := bufio.NewReader(f).ReadByte(); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return errors.New("it ended at once")
	}
	return nil
}

// lastLines is the end of a log.
func lastLines(file string) string {
	data, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	return strings.Join(lines[max(0, len(lines)-3):], "; ")
}
