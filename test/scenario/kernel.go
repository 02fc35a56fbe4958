package scenario

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
)

// kernel lists the incidents in which the kernel cannot end a thread, and
// innocent ones that look like them. How a kernel hangs differs between versions,
// so that some run on every kernel that there is; make e2e NODES=vm,kernel=VERSION
// runs all of them on one.
func kernel() []Scenario {
	everywhere := []Scenario{frozenFilesystem(), zombieLeader(), nfsServerGone(), execStuck()}
	for i := range everywhere {
		everywhere[i].Everywhere = true
	}
	hang := append(everywhere,
		frozenXFS(), mmapLock(), twoContainers(),
		frozenThroughLink(), suspendedDevice(), blockDevice(), blockOverlay(), blockZombieLeader(),
		nfsWrite(), nfsZombieLeader(), nfsLock(), nfsProxyGone(), nfsServerMoved(), cifsSync(), pidnsExec(),
	)
	for i := range hang {
		hang[i].Needs = append(hang[i].Needs, Hang)
	}
	// What these wait for ends with a signal to somebody.
	return slices.Concat(hang, fuse(), []Scenario{pidnsParent(), zombieTracer(), vforkParent(), nfsMountLost()})
}

// inTurn does several steps.
func inTurn(steps ...step) step {
	return func(ctx context.Context, n *Node, p *corev1.Pod) error {
		for _, s := range steps {
			if err := s(ctx, n, p); err != nil {
				return err
			}
		}
		return nil
	}
}

// directory returns where a scenario's file system is mounted on the node.
func directory(name string) string { return "/var/lib/scenario-" + name }

// onDisk is a pod that works with a directory of the node, at /data.
func onDisk(name string, grace int64, command ...string) corev1.PodSpec {
	return withVolume(victim(grace, command...), "data", hostPath(directory(name)))
}

// makeFilesystem makes a file system of its own, that can be frozen, also where
// an earlier run has left one.
func makeFilesystem(dir string) string { return makeFilesystemOf(dir, "64M", "mkfs.ext4 -q -F") }

func makeFilesystemOf(dir, size, mkfs string) string {
	return `if mountpoint -q ` + dir + `; then fsfreeze -u ` + dir + ` 2>/dev/null || true; umount ` + dir + `; fi
mkdir -p ` + dir + `
truncate -s ` + size + ` ` + dir + `.img
` + mkfs + ` ` + dir + `.img
mount -o loop ` + dir + `.img ` + dir
}

func frozenFilesystem() Scenario {
	const name = "frozen-filesystem"
	dir := directory(name)
	return Scenario{
		Name:    name,
		Story:   "the container writes to a file system that a snapshot left frozen",
		Pod:     onDisk(name, 3, "write", "/data/f"),
		Prepare: onNode(makeFilesystem(dir)),
		Break:   onNode("fsfreeze -f " + dir),
		Proof:   "some D 100",
		Cause:   "UninterruptibleSleep",
		Family:  "FsFrozen",
		Says:    []string{"percpu_rwsem_wait", "ext4", "/data", "fsfreeze -u " + dir},
		Heal:    onNode("fsfreeze -u " + dir),
	}
}

func frozenXFS() Scenario {
	const name = "frozen-xfs"
	dir := directory(name)
	return Scenario{
		Name:    name,
		Story:   "the same on XFS",
		Pod:     onDisk(name, 3, "write", "/data/f"),
		Prepare: onNode(makeFilesystemOf(dir, "320M", "mkfs.xfs -q -f")),
		Break:   onNode("fsfreeze -f " + dir),
		Proof:   "some D 100",
		Cause:   "UninterruptibleSleep",
		Family:  "FsFrozen",
		Says:    []string{"percpu_rwsem_wait", "xfs", "/data", "fsfreeze -u " + dir},
		Heal:    onNode("fsfreeze -u " + dir),
	}
}

// mmapLock is a process whose command line and maps cannot be read for as long
// as it has not been killed: its reader would wait without end.
func mmapLock() Scenario {
	const name = "mmap-lock"
	dir := directory(name)
	return Scenario{
		Name:    name,
		Story:   "a page fault hangs on a frozen file system and holds the lock of the process's memory map",
		Pod:     onDisk(name, 3, "fault", "/data/f"),
		Prepare: onNode(makeFilesystem(dir)),
		Break: onNode("fsfreeze -f " + dir + `
for i in 1 2 3 4 5 6 7 8 9 10; do
  for t in $(tasks); do
    [ "$(cat /proc/$t/comm)" = victim ] || continue
    timeout -s KILL 2 cat /proc/$t/cmdline >/dev/null || exit 0
  done
  sleep 1
done
exit 1`),
		Proof:  "some D 100",
		Cause:  "UninterruptibleSleep",
		Family: "FsFrozen",
		Says:   []string{"percpu_rwsem_wait", "fsfreeze -u "},
		Heal:   onNode("fsfreeze -u " + dir),
	}
}

func twoContainers() Scenario {
	const name = "two-containers"
	dir := directory(name)
	spec := onDisk(name, 3, "write", "/data/f")
	spec.Containers[0].Name = "writer"
	spec.Containers = append(spec.Containers, corev1.Container{Name: "bystander", Image: VictimImage, Command: []string{"/victim", "drain", "0"}})
	return Scenario{
		Name:    name,
		Story:   "one of two containers ends, the other one hangs",
		Pod:     spec,
		Prepare: onNode(makeFilesystem(dir)),
		Break:   onNode("fsfreeze -f " + dir),
		Proof:   "some D 100",
		Cause:   "UninterruptibleSleep",
		Family:  "FsFrozen",
		Says:    []string{"container writer: thread ", "/data", "fsfreeze -u " + dir},
		Heal:    onNode("fsfreeze -u " + dir),
	}
}

// behindZombie succeeds when a thread of the pod is in the state and the first
// thread of its process is a zombie.
const behindZombie = `behind_zombie() {
  for g in $(awk -v state=$1 '/^State/{is=$2==state} /^Tgid/ && is{print $2}' $(statuses)); do
    grep -q "^State:.Z" /proc/$g/status && return 0
  done
  return 1
}
`

func zombieLeader() Scenario {
	const name = "zombie-leader"
	dir := directory(name)
	return Scenario{
		Name:    name,
		Story:   "the first thread has died of SIGKILL, another one hangs in a write and cannot",
		Pod:     onDisk(name, 3, "write-in-thread", "/data/f"),
		Prepare: onNode(makeFilesystem(dir)),
		Break:   onNode("fsfreeze -f " + dir),
		Proof:   behindZombie + "some D 100 && behind_zombie D",
		Cause:   "ThreadStuckBehindZombieLeader",
		Family:  "FsFrozen",
		Says:    []string{"looks like a zombie", "percpu_rwsem_wait", "ext4", "/data", "fsfreeze -u " + dir},
		Heal:    onNode("fsfreeze -u " + dir),
	}
}

// tools are the programs that were put on a node.
type tools struct {
	mu  sync.Mutex
	has map[string]bool
}

// nodeTool puts one of the programs of bin on the node, in /usr/local/bin.
func nodeTool(name string) step {
	return func(ctx context.Context, n *Node, _ *corev1.Pod) error {
		n.tools.mu.Lock()
		defer n.tools.mu.Unlock()
		if n.tools.has[name] {
			return nil
		}
		b, err := os.ReadFile(filepath.Join(Root(), "bin", name))
		if err != nil {
			return fmt.Errorf("%w; make bin/%s builds it", err, name)
		}
		path := "/usr/local/bin/" + name
		// A program that runs cannot be written to, but replaced.
		if _, err := n.run(ctx, string(b), "exec", n.Name, fmt.Sprintf("cat >%s.new && chmod 755 %s.new && mv %s.new %s", path, path, path, path)); err != nil {
			return err
		}
		if n.tools.has == nil {
			n.tools.has = map[string]bool{}
		}
		n.tools.has[name] = true
		return nil
	}
}

// execStuck needs a kernel that tells the stack of a thread that executes a program:
// later ones do not (exec_update_lock).
func execStuck() Scenario {
	s := onFUSE("exec-stuck", "a process executes a program, and a FUSE daemon does not answer the close that is part of it", "exec", "flush")
	const executes = "for t in $(tasks); do timeout -s KILL 2 cat /proc/$t/stack | grep -q begin_new_exec && exit 0; done\n"
	s.Break = onNode("while true; do\n" + executes + "sleep 0.5\ndone")
	s.Proof = executes + "exit 1"
	s.Cause = "StuckInExec"
	s.Says = append(s.Says, "victim", "execve")
	return s
}

// vforkParent is innocent: its first thread is in state D all the time, in a
// wait that a signal would end.
func vforkParent() Scenario {
	return Scenario{
		Name:  "vfork-parent",
		Story: "innocent: the first thread is in state D, in vfork, while another one ends the program",
		Pod:   victim(60, "vfork", "12"),
		Proof: "some D && for t in $(tasks); do wchan $t; done | grep -qE 'kernel_clone|wait_for_vfork'",
	}
}

// mapDevice makes an ext4 on a device of the device mapper, which can be
// suspended: it takes requests and completes none. Name is the device's.
func mapDevice(name, dir string) string {
	return removeDevice(name, dir) + `
mkdir -p ` + dir + `
truncate -s 64M ` + dir + `.img
loop=$(losetup --find --show ` + dir + `.img)
dmsetup create ` + name + ` --table "0 $(blockdev --getsz $loop) linear $loop 0"
mkfs.ext4 -q -F /dev/mapper/` + name + `
mount /dev/mapper/` + name + ` ` + dir
}

func removeDevice(name, dir string) string {
	return `if dmsetup info ` + name + ` >/dev/null 2>&1; then
  dmsetup resume ` + name + `
  umount ` + dir + ` 2>/dev/null || true
  dmsetup remove ` + name + `
  losetup -j ` + dir + `.img | cut -d: -f1 | xargs -r losetup -d
fi`
}

// delayDevice returns a script that has a device of mapDevice delay reads and writes,
// each by milliseconds; without a delay it completes what waits immediately. It does not
// wait for udev, which reads the device.
func delayDevice(name, dir, reads, writes string) string {
	return `loop=$(losetup -j ` + dir + `.img | cut -d: -f1)
modprobe dm-delay
dmsetup load ` + name + ` --table "0 $(blockdev --getsz $loop) delay $loop 0 ` + reads + ` $loop 0 ` + writes + `"
dmsetup resume --noudevsync --nolockfs ` + name + "\n"
}

// waitingForDisk succeeds when a killed thread of the pod waits for a disk.
const waitingForDisk = `some D 100 && cat $(stacks) | grep -q 'ext4_\|jbd2_\|folio_wait_writeback\|submit_bio'`

// onDevice is an incident of a program that writes to an ext4 on a device that
// is suspended, below the file system, which is not frozen.
func onDevice(name, story, program string) Scenario {
	device, dir := "scenario-"+name, directory(name)
	return Scenario{
		Name:    name,
		Needs:   []Need{DeviceMapper},
		Story:   story,
		Pod:     onDisk(name, 3, program, "/data/f"),
		Prepare: onNode(mapDevice(device, dir)),
		Break:   onNode("dmsetup suspend --noflush --nolockfs " + device),
		Proof:   waitingForDisk,
		Cause:   "UninterruptibleSleep",
		Family:  "Suspended",
		Says:    []string{"ext4", "/data", "/dev/mapper/" + device, dir, "dmsetup resume " + device},
		Heal:    onNode("dmsetup resume " + device),
	}
}

// onDelay is one of a program that writes to an ext4 on a device that takes requests
// and completes them much later.
func onDelay(name, story, reads, writes string) Scenario {
	s := onDevice(name, story, "sync")
	device, dir := "scenario-"+name, directory(name)
	s.Break = onNode(delayDevice(device, dir, reads, writes))
	s.Family = "Block"
	s.Says = []string{"ext4", "/data", "/dev/mapper/" + device, dir}
	s.Heal = onNode(delayDevice(device, dir, "0", "0"))
	return s
}

const anHour = "3600000" // milliseconds

func blockDevice() Scenario {
	s := onDelay("block-ext4", "the device below an ext4 completes no I/O any more", anHour, anHour)
	s.Says = append(s.Says, "Bring the device")
	return s
}

// suspendedDevice is a file system that is frozen because its device is suspended: a
// thaw would hang too.
func suspendedDevice() Scenario {
	const name = "suspended-ext4"
	s := onDevice(name, "a snapshot has suspended the device below an ext4, and frozen it, and never resumed it", "write")
	s.Break = onNode("dmsetup suspend scenario-" + name)
	s.Proof = "some D 100 && cat $(stacks) | grep -q percpu_rwsem_wait"
	return s
}

// frozenThroughLink is frozen behind a symbolic link in the container's root, whose
// own file system is well. The kernel does not tell which one the program waits for.
func frozenThroughLink() Scenario {
	const name = "frozen-through-link"
	dir := directory(name)
	return Scenario{
		Name:  name,
		Story: "the container creates files in a frozen file system, by a path that leads through a symbolic link",
		Pod: withVolume(pod(3, BusyboxImage, "sh", "-c", "ln -s /data /logs; while :; do : >/logs/file; sleep 1; done"),
			"data", hostPath(dir)),
		Prepare: onNode(makeFilesystem(dir)),
		Break:   onNode("fsfreeze -f " + dir),
		Proof:   "some D 100 && cat $(stacks) | grep -q mnt_want_write",
		Cause:   "UninterruptibleSleep",
		Family:  "FsFrozen",
		Says:    []string{"percpu_rwsem_wait", "find out which file system is frozen"},
		Heal:    onNode("fsfreeze -u " + dir),
	}
}

func blockZombieLeader() Scenario {
	s := onDevice("block-zombie-leader", "the first thread has died, another one waits for a device that is suspended", "sync-in-thread")
	s.Proof = behindZombie + s.Proof + " && behind_zombie D"
	s.Cause = "ThreadStuckBehindZombieLeader"
	s.Says = append(s.Says, "looks like a zombie")
	return s
}

func blockOverlay() Scenario {
	const name, device = "block-overlay", "scenario-block-overlay"
	dir := directory(name)
	disk := dir + ".disk"
	return Scenario{
		Name:  name,
		Needs: []Need{DeviceMapper},
		Story: "the device below the upper directory of an overlay is suspended",
		Pod:   onDisk(name, 3, "sync", "/data/f"),
		Prepare: onNode("umount " + dir + " 2>/dev/null || true\n" + mapDevice(device, disk) + `
mkdir -p ` + disk + `/upper ` + disk + `/work ` + dir + ` ` + dir + `.lower
mount -t overlay overlay -o lowerdir=` + dir + `.lower,upperdir=` + disk + `/upper,workdir=` + disk + `/work ` + dir),
		Break:  onNode("dmsetup suspend --noflush --nolockfs " + device),
		Proof:  waitingForDisk,
		Cause:  "UninterruptibleSleep",
		Family: "Suspended",
		Says:   []string{"ext4", "/dev/mapper/" + device, disk, "dmsetup resume " + device},
		Heal:   onNode("dmsetup resume " + device),
	}
}

// nfsVolume returns the node's export, from one of its addresses.
func nfsVolume(server string) corev1.VolumeSource {
	return corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{Server: server, Path: "/export"}}
}

// cutOff returns a script that adds (-I) or deletes (-D) the rules that drop what
// goes to and from a server's ports of NFS and SMB.
func cutOff(what, server string) string {
	return `iptables ` + what + ` INPUT -d ` + server + ` -p tcp -m multiport --dports 2049,445 -j DROP
iptables ` + what + ` OUTPUT -s ` + server + ` -p tcp -m multiport --sports 2049,445 -j DROP`
}

// addServer returns a script that gives the node one more address, for a server of
// its own, which nothing is cut off from.
func addServer(server string) string {
	return `ip address replace ` + server + `/32 dev lo
while { ` + cutOff("-D", server) + `; } 2>/dev/null; do :; done
`
}

// serveNFS starts the server under an address of its own. With version 4.0 the
// client keeps a connection for each address; with later ones it finds that all
// are one server and uses one connection for all.
//
// The client keeps what it knows of a directory for a second instead of 30 to 60
// of them. Before the kubelet unmounts, it asks for the state of the mount's root
// (PathExists, k8s.io/mount-utils); an answer from memory sends it on to
// umount(8), which it forces after a minute: the data is lost, and the pod goes.
func serveNFS(server string) step {
	return onNode(addServer(server) + `printf '[ NFSMount_Global_Options ]\nDefaultvers=4.0\nacdirmin=1\nacdirmax=1\n' >/etc/nfsmount.conf
systemctl start nfs-server`)
}

// mountSMB starts the server under an address of its own and mounts its share.
func mountSMB(server, dir string) step {
	return onNode(addServer(server) + `systemctl is-active -q scenario-smbd || systemd-run -q --collect --unit=scenario-smbd smbd --foreground --no-process-group
if mountpoint -q ` + dir + `; then umount ` + dir + `; fi
mkdir -p ` + dir + `
for i in $(seq 60); do
  mount -i -t cifs //` + server + `/export ` + dir + ` -o ip=` + server + `,sec=none,hard,nostrictsync && exit 0
  sleep 1
done
exit 1`)
}

// cifsSync waits for the write-back in fsync. What asks the server itself, such
// as an open or a stat, waits in a way that SIGKILL ends (wait_for_response,
// fs/smb/client/transport.c). So does the second half of an fsync, which has the
// server write to its disk, unless the mount has nostrictsync: a program that the
// server's end met there was killed, and there was no fault.
func cifsSync() Scenario {
	const name, server = "cifs-fsync", "192.0.2.4"
	dir := directory(name)
	return Scenario{
		Name:    name,
		Needs:   []Need{SMB},
		Story:   "the SMB server is gone while a program waits until its data has been written",
		Pod:     onDisk(name, 3, "sync", "/data/f"),
		Prepare: mountSMB(server, dir),
		Break:   onNode(cutOff("-I", server) + "\nsleep 5"),
		Proof:   "some D 100 && cat $(stacks) | grep -q cifs_",
		Cause:   "UninterruptibleSleep",
		Family:  "CIFS",
		Says:    []string{"cifs", "/data", server, dir, "SMB server"},
		Heal:    onNode(cutOff("-D", server)),
	}
}

// kubeletHangs succeeds when a thread of the kubelet waits for a server.
const kubeletHangs = `for status in $(grep -ls "^State:.D" /proc/$(pidof kubelet)/task/*/status); do
  grep -q 'rpc\|nfs' ${status%status}stack && exit 0
done
exit 1`

func nfsServerGone() Scenario {
	const server = "192.0.2.5"
	return Scenario{
		Name:    "nfs-server-gone",
		Needs:   []Need{NFS},
		Story:   "the NFS server is gone while the pod has written data that has not reached it",
		Pod:     withVolume(victim(5, "dirty", "/data/f"), "share", nfsVolume(server)),
		Prepare: serveNFS(server),
		Break:   onNode(cutOff("-I", server) + "\nsleep 8"),
		Proof:   kubeletHangs,
		Cause:   "NetworkFilesystemUnreachable",
		Says:    []string{"volume share", "NFS server " + server, "kubelet's thread", "rpc_wait_bit_killable", "kubernetes.io~nfs/share"},
		Heal:    onNode(cutOff("-D", server)),
	}
}

// nfsServerMoved has the server answer under another address: the mount goes to the one that it had.
func nfsServerMoved() Scenario {
	const server, now = "192.0.2.8", "192.0.2.9"
	return Scenario{
		Name:    "nfs-server-moved",
		Needs:   []Need{NFS},
		Story:   "the NFS server has got another address while the pod has written data that has not reached it",
		Pod:     withVolume(victim(5, "dirty", "/data/f"), "share", nfsVolume(server)),
		Prepare: serveNFS(server),
		Break:   onNode(addServer(now) + cutOff("-I", server) + "\nsleep 8"),
		Proof:   "socat -u OPEN:/dev/null TCP4:" + now + ":2049,connect-timeout=5 || exit 1\n" + kubeletHangs,
		Cause:   "NetworkFilesystemUnreachable",
		Says:    []string{"volume share", "NFS server " + server, "kubelet's thread", "under the same address"},
		Heal:    onNode(cutOff("-D", server)),
	}
}

// nfsProxyGone is what the drivers of cloud file systems make, which mount through a proxy of the node (stunnel).
func nfsProxyGone() Scenario {
	const server, name = "192.0.2.6", "nfs-proxy-gone"
	const proxy = "scenario-" + name
	return Scenario{
		Name:  name,
		Needs: []Need{NFS},
		Story: "the NFS server is mounted through a proxy of the node, which has ended while data has not reached the server",
		Pod:   onClaimed(victim(5, "dirty", "/data/f"), name),
		Prepare: inTurn(serveNFS(server), onNode("systemctl stop "+proxy+` 2>/dev/null || true
systemd-run -q --collect --unit=`+proxy+` socat TCP4-LISTEN:20490,bind=127.0.0.1,fork,reuseaddr TCP4:`+server+`:2049
until socat -u OPEN:/dev/null TCP4:127.0.0.1:20490 2>/dev/null; do sleep 0.5; done`),
			func(ctx context.Context, n *Node, p *corev1.Pod) error {
				return bindClaim(ctx, n, p, name, corev1.PersistentVolumeFilesystem,
					corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "127.0.0.1", Path: "/export"}}, "port=20490")
			}),
		Break: onNode("systemctl stop " + proxy + "\nsleep 8"),
		Proof: kubeletHangs,
		Cause: "NetworkFilesystemUnreachable",
		Says: []string{"volume data (claim " + name + ", PersistentVolume scenarios-", "the NFS server behind this node's own address 127.0.0.1 does not answer",
			"a proxy (stunnel or efs-proxy of the EFS CSI driver)", "No data is lost"},
		Heal: onNode("systemctl is-active -q " + proxy + " || systemd-run -q --collect --unit=" + proxy + " socat TCP4-LISTEN:20490,bind=127.0.0.1,fork,reuseaddr TCP4:" + server + ":2049"),
	}
}

// nfsMountLost needs no thread that hangs.
func nfsMountLost() Scenario {
	const server, dir = "192.0.2.7", "/var/lib/kubelet/pods/$UID_/volumes/kubernetes.io~nfs/share"
	return Scenario{
		Name:    "nfs-mount-lost",
		Needs:   []Need{NFS},
		Story:   "somebody has unmounted the pod's volume on the node, and a file was written to its directory meanwhile",
		Pod:     withVolume(victim(3, "drain", "0"), "share", nfsVolume(server)),
		Prepare: serveNFS(server),
		Break:   onNode("umount " + dir + "\necho important >" + dir + "/file"),
		Proof:   "[ -e " + dir + `/file ] && [ -z "$(tasks)" ]`,
		Cause:   "VolumeDirTeardownFailed",
		Family:  "MountLost",
		Says:    []string{"locked in phase Volumes", "volume share", "it is not mounted any more", "kubernetes.io/nfs", "move them to where they belong"},
		Heal:    onNode("rm -f " + dir + "/file"),
	}
}

func nfsWrite() Scenario {
	const server = "192.0.2.1"
	return Scenario{
		Name:    "nfs-write",
		Needs:   []Need{NFS},
		Story:   "the NFS server is gone, and a write waits until the one before it has been written back",
		Pod:     withVolume(victim(5, "write", "/data/written"), "share", nfsVolume(server)),
		Prepare: serveNFS(server),
		Break:   onNode(cutOff("-I", server) + "\nsleep 5"),
		Proof:   "some D 100 && cat $(stacks) | grep -q nfs_",
		Cause:   "UninterruptibleSleep",
		Family:  "NFS",
		Says:    []string{"nfs4", "/data", server, "volume share"},
		Heal:    onNode(cutOff("-D", server)),
	}
}

func nfsZombieLeader() Scenario {
	const server = "192.0.2.3"
	s := nfsWrite()
	s.Name = "nfs-zombie-leader"
	s.Story = "the first thread has died, another one waits for an NFS server that is gone"
	s.Pod = withVolume(victim(5, "write-in-thread", "/data/threaded"), "share", nfsVolume(server))
	s.Prepare, s.Break, s.Heal = serveNFS(server), onNode(cutOff("-I", server)+"\nsleep 5"), onNode(cutOff("-D", server))
	s.Proof = behindZombie + s.Proof + " && behind_zombie D"
	s.Cause = "ThreadStuckBehindZombieLeader"
	s.Says = []string{"looks like a zombie", "nfs4", "/data", server, "volume share"}
	return s
}

func nfsLock() Scenario {
	const server = "192.0.2.2"
	return Scenario{
		Name:    "nfs-lock",
		Needs:   []Need{NFS},
		Story:   "the NFS server is gone while the pod asks for a lock",
		Pod:     withVolume(victim(5, "lock", "/data/locked"), "share", nfsVolume(server)),
		Prepare: serveNFS(server),
		Break:   onNode(cutOff("-I", server) + "\nsleep 5"),
		Proof:   kubeletHangs,
		Cause:   "NetworkFilesystemUnreachable",
		Says:    []string{"volume share", "NFS server " + server},
		Heal:    onNode(cutOff("-D", server)),
	}
}

// findInit finds the first process of the pod's container and keeps its number
// for later, when the process is in no cgroup any more.
const findInit = `init=$(awk '
  /^Name/{c=$2} /^Tgid/{g=$2} /^Pid/{p=$2}
  /^NSpid/ && c=="victim" && g==p && $NF==1{print p; exit}' $(statuses))
[ -n "$init" ]
echo $init >/run/scenario-$NAME.init
`

// waitsForNamespace succeeds when the pod's first process waits until its PID
// namespace is empty.
const waitsForNamespace = `cat /proc/$(cat /run/scenario-$NAME.init)/task/*/stack | grep -q zap_pid_ns_processes`

func pidnsExec() Scenario {
	const name = "pidns-exec"
	dir := directory(name)
	return Scenario{
		Name:    name,
		Story:   "a program that was executed in the container hangs, and the container's first process waits for it",
		Pod:     onDisk(name, 3, "drain", "0"),
		Prepare: onNode(makeFilesystem(dir)),
		Break: onNode(findInit + `container=$(ctr -n k8s.io containers ls -q "labels.\"io.kubernetes.pod.uid\"==$UID_,labels.\"io.kubernetes.container.name\"==main")
ctr -n k8s.io tasks exec --detach --exec-id hangs $container /victim write /data/f
sleep 3
fsfreeze -f ` + dir),
		Proof:  "some D 100 && " + waitsForNamespace,
		Cause:  "UninterruptibleSleep",
		Family: "FsFrozen",
		Says:   []string{"container main: thread ", "percpu_rwsem_wait", "fsfreeze -u " + dir},
		Heal:   onNode("fsfreeze -u " + dir),
	}
}

func pidnsParent() Scenario {
	return Scenario{
		Name:  "pidns-parent",
		Story: "a process outside has a child in the container's PID namespace and does not reap it",
		Pod:   victim(3, "drain", "0"),
		Break: onNode(findInit + `setsid nsenter -t $init -p sleep 100000 </dev/null >/dev/null 2>&1 &
parent=$!
echo $parent >/run/scenario-$NAME.parent
for i in $(seq 60); do
  for child in $(cat /proc/$parent/task/$parent/children); do
    [ "$(cat /proc/$child/comm)" = sleep ] && kill -STOP $parent && exit 0
  done
  sleep 0.5
done
exit 1`),
		Proof:  waitsForNamespace + ` && grep -q "^State:.Z" /proc/$(cat /proc/$(cat /run/scenario-$NAME.parent)/task/*/children | tr -d ' ')/status`,
		Cause:  "PIDNamespaceReapWait",
		Family: "OutsideParent",
		Says:   []string{"container main", "victim", "sleep", "nsenter", "does not reap"},
		Heal:   onNode("kill -KILL $(cat /run/scenario-$NAME.parent)"),
	}
}

// zombieTracer lets the process die before its deletion, because a signal would
// stop it first, which is another cause.
func zombieTracer() Scenario {
	return Scenario{
		Name:    "zombie-tracer",
		Story:   "a tracer never asks what became of the container's first process, which has been killed",
		Pod:     victim(3, "drain", "0"),
		Prepare: nodeTool("victim"),
		Break: onNode(findInit + `setsid /usr/local/bin/victim seize $init </dev/null >/dev/null 2>&1 &
tracer=$!
echo $tracer >/run/scenario-$NAME.tracer
for i in $(seq 60); do
  grep -q "^TracerPid:.$tracer$" /proc/$init/status && kill -KILL $init && exit 0
  sleep 0.5
done
exit 1`),
		Proof: `status=/proc/$(cat /run/scenario-$NAME.init)/status
grep -q "^State:.Z" $status && grep -q "^Threads:.1$" $status && ! grep -q "^TracerPid:.0$" $status`,
		Cause: "ZombieHeldByTracer",
		Says:  []string{"container main", "victim (PID ", "traces it", "kill "},
		Heal:  onNode("kill -KILL $(cat /run/scenario-$NAME.tracer)"),
	}
}
