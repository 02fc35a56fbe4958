package scenario

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodeagent-io/nodeagent/test/bed"
)

// kernel lists the incidents in which the kernel cannot end a thread, and
// innocent ones that look like them. How a kernel hangs differs between versions,
// so that some run on every kernel that there is; make e2e NODES=vm,kernel=VERSION
// runs all of them on one.
func kernel() []bed.Scenario {
	everywhere := []bed.Scenario{frozenFilesystem(), zombieLeader(), nfsServerGone(), execStuck()}
	for i := range everywhere {
		everywhere[i].Everywhere = true
	}
	hang := append(everywhere,
		frozenXFS(), mmapLock(), twoContainers(),
		frozenThroughLink(), suspendedDevice(), blockDevice(), blockOverlay(), blockZombieLeader(),
		nfsWrite(), nfsZombieLeader(), nfsLock(), nfsProxyGone(), nfsServerMoved(), cifsSync(), pidnsExec(),
	)
	for i := range hang {
		hang[i].Needs = append(hang[i].Needs, bed.Hang)
	}
	// What these wait for ends with a signal to somebody.
	return slices.Concat(hang, fuse(), []bed.Scenario{pidnsParent(), zombieTracer(), vforkParent(), nfsMountLost()})
}

// inTurn does several steps.
func inTurn(steps ...bed.Step) bed.Step {
	return func(ctx context.Context, n *bed.Node, p *corev1.Pod) error {
		for _, s := range steps {
			if err := s(ctx, n, p); err != nil {
				return err
			}
		}
		return nil
	}
}

// endPod deletes another pod of the incident, which may have gone.
func endPod(name string) bed.Step {
	return func(ctx context.Context, n *bed.Node, _ *corev1.Pod) error {
		err := n.API.CoreV1().Pods(n.Namespace()).Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
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

// onFrozen is an incident of a program that works with a file of an ext4 that is frozen when
// the pod runs.
func onFrozen(name, story, program string) bed.Scenario {
	dir := directory(name)
	return bed.Scenario{
		Name:  name,
		Story: story,
		Fault: bed.Fault{
			Pod:     onDisk(name, 3, program, "/data/f"),
			Prepare: bed.OnNode(makeFilesystem(dir)),
			Break:   bed.OnNode("fsfreeze -f " + dir),
			Proof:   "some D 100",
			Heal:    bed.OnNode("fsfreeze -u " + dir),
		},
		Want: bed.Want{
			Cause:  "UninterruptibleSleep",
			Family: "FsFrozen",
			Says:   []string{"Seen: percpu_rwsem_wait", "ext4", "/data", "fsfreeze -u " + dir},
		},
	}
}

func frozenFilesystem() bed.Scenario {
	return onFrozen("frozen-filesystem", "the container writes to a file system that a snapshot left frozen", "write")
}

func frozenXFS() bed.Scenario {
	const name = "frozen-xfs"
	s := onFrozen(name, "the same on XFS", "write")
	s.Prepare = bed.OnNode(makeFilesystemOf(directory(name), "320M", "mkfs.xfs -q -f"))
	s.Says[1] = "xfs"
	return s
}

// mmapLock is a process whose command line and maps cannot be read for as long
// as it has not been killed: its reader would wait without end.
func mmapLock() bed.Scenario {
	const name = "mmap-lock"
	s := onFrozen(name, "a page fault hangs on a frozen file system and holds the lock of the process's memory map", "fault")
	s.Break = inTurn(s.Break, bed.OnNode(`for i in 1 2 3 4 5 6 7 8 9 10; do
  for t in $(tasks); do
    [ "$(cat /proc/$t/comm)" = victim ] || continue
    timeout -s KILL 2 cat /proc/$t/cmdline >/dev/null || exit 0
  done
  sleep 1
done
exit 1`))
	s.Says = []string{"Seen: percpu_rwsem_wait", "fsfreeze -u "}
	return s
}

func twoContainers() bed.Scenario {
	s := onFrozen("two-containers", "one of two containers ends, the other one hangs", "write")
	s.Pod.Containers[0].Name = "writer"
	s.Pod.Containers = append(s.Pod.Containers, corev1.Container{Name: "bystander", Image: bed.VictimImage, Command: []string{"/victim", "drain", "0"}})
	s.Says = append(s.Says, "container writer: SIGKILL cannot end victim (PID ")
	return s
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

func zombieLeader() bed.Scenario {
	s := onFrozen("zombie-leader", "the first thread has died of SIGKILL, another one hangs in a write and cannot", "write-in-thread")
	s.Proof = behindZombie + s.Proof + " && behind_zombie D"
	s.Cause = "ThreadStuckBehindZombieLeader"
	s.Says = append(s.Says, "looks like a zombie")
	return s
}

// execStuck needs a kernel that tells the stack of a thread that executes a program: those
// that close files under exec_update_lock do not (fs/exec.c, do_close_on_exec).
func execStuck() bed.Scenario {
	s := onFUSE("exec-stuck", "a process executes a program, and a FUSE daemon does not answer the close that is part of it", "exec", "flush")
	const executes = "for t in $(tasks); do timeout -s KILL 2 cat /proc/$t/stack | grep -q begin_new_exec && exit 0; done\n"
	s.Break = bed.OnNode("while true; do\n" + executes + "sleep 0.5\ndone")
	s.Proof = executes + "exit 1"
	s.Cause = "StuckInExec"
	s.Says = append(s.Says, "victim", "execve")
	return s
}

// vforkParent is innocent: its first thread is in state D all the time, in a
// wait that a signal would end.
func vforkParent() bed.Scenario {
	return bed.Scenario{
		Name:  "vfork-parent",
		Story: "innocent: the first thread is in state D, in vfork, while another one ends the program",
		Fault: bed.Fault{
			Pod:   victim(60, "vfork", "12"),
			Proof: "some D && for t in $(tasks); do wchan $t; done | grep -qE 'kernel_clone|wait_for_vfork'",
		},
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
func onDevice(name, story, program string) bed.Scenario {
	device, dir := "scenario-"+name, directory(name)
	return bed.Scenario{
		Name:  name,
		Story: story,
		Place: bed.Place{Needs: []bed.Need{bed.DeviceMapper}},
		Fault: bed.Fault{
			Pod:     onDisk(name, 3, program, "/data/f"),
			Prepare: bed.OnNode(mapDevice(device, dir)),
			Break:   bed.OnNode("dmsetup suspend --noflush --nolockfs " + device),
			Proof:   waitingForDisk,
			Heal:    bed.OnNode("dmsetup resume " + device),
		},
		Want: bed.Want{
			Cause:  "UninterruptibleSleep",
			Family: "Suspended",
			Says:   []string{"ext4", "/data", "Seen: /dev/mapper/" + device, "Seen: " + dir, "Fix: dmsetup resume " + device},
		},
	}
}

// onDelay is one of a program that writes to an ext4 on a device that takes requests
// and completes them much later.
func onDelay(name, story, reads, writes string) bed.Scenario {
	s := onDevice(name, story, "sync")
	device, dir := "scenario-"+name, directory(name)
	s.Break = bed.OnNode(delayDevice(device, dir, reads, writes))
	s.Family = "Block"
	s.Says = []string{"ext4", "/data", "/dev/mapper/" + device, "Seen: " + dir}
	s.Heal = bed.OnNode(delayDevice(device, dir, "0", "0"))
	return s
}

const anHour = "3600000" // milliseconds

func blockDevice() bed.Scenario {
	return onDelay("block-ext4", "the device below an ext4 completes no I/O any more", anHour, anHour)
}

// suspendedDevice is a file system that is frozen because its device is suspended: a
// thaw would hang too.
func suspendedDevice() bed.Scenario {
	const name = "suspended-ext4"
	s := onDevice(name, "a snapshot has suspended the device below an ext4, and frozen it, and never resumed it", "write")
	s.Break = bed.OnNode("dmsetup suspend scenario-" + name)
	s.Proof = "some D 100 && cat $(stacks) | grep -q percpu_rwsem_wait"
	return s
}

// frozenThroughLink is frozen behind a symbolic link in the container's root, whose
// own file system is well. The kernel does not tell which one the program waits for.
func frozenThroughLink() bed.Scenario {
	const name = "frozen-through-link"
	s := onFrozen(name, "the container creates files in a frozen file system, by a path that leads through a symbolic link", "")
	s.Pod = withVolume(pod(3, bed.BusyboxImage, "sh", "-c", "ln -s /data /logs; while :; do : >/logs/file; sleep 1; done"),
		"data", hostPath(directory(name)))
	s.Proof += " && cat $(stacks) | grep -q mnt_want_write"
	s.Says = []string{"Seen: percpu_rwsem_wait", "find out which file system is frozen"}
	return s
}

func blockZombieLeader() bed.Scenario {
	s := onDevice("block-zombie-leader", "the first thread has died, another one waits for a device that is suspended", "sync-in-thread")
	s.Proof = behindZombie + s.Proof + " && behind_zombie D"
	s.Cause = "ThreadStuckBehindZombieLeader"
	s.Says = append(s.Says, "looks like a zombie")
	return s
}

func blockOverlay() bed.Scenario {
	const name, device = "block-overlay", "scenario-block-overlay"
	dir := directory(name)
	disk := dir + ".disk"
	return bed.Scenario{
		Name:  name,
		Story: "the device below the upper directory of an overlay is suspended",
		Place: bed.Place{Needs: []bed.Need{bed.DeviceMapper}},
		Fault: bed.Fault{
			Pod: onDisk(name, 3, "sync", "/data/f"),
			Prepare: bed.OnNode("umount " + dir + " 2>/dev/null || true\n" + mapDevice(device, disk) + `
mkdir -p ` + disk + `/upper ` + disk + `/work ` + dir + ` ` + dir + `.lower
mount -t overlay overlay -o lowerdir=` + dir + `.lower,upperdir=` + disk + `/upper,workdir=` + disk + `/work ` + dir),
			Break: bed.OnNode("dmsetup suspend --noflush --nolockfs " + device),
			Proof: waitingForDisk,
			Heal:  bed.OnNode("dmsetup resume " + device),
		},
		Want: bed.Want{
			Cause:  "UninterruptibleSleep",
			Family: "Suspended",
			Says:   []string{"ext4", "Seen: /dev/mapper/" + device, disk, "Fix: dmsetup resume " + device},
		},
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
func serveNFS(server string) bed.Step {
	return bed.OnNode(addServer(server) + `printf '[ NFSMount_Global_Options ]\nDefaultvers=4.0\nacdirmin=1\nacdirmax=1\n' >/etc/nfsmount.conf
systemctl start nfs-server`)
}

// mountSMB starts the server under an address of its own and mounts its share.
func mountSMB(server, dir string) bed.Step {
	return bed.OnNode(addServer(server) + `systemctl is-active -q scenario-smbd || systemd-run -q --collect --unit=scenario-smbd smbd --foreground --no-process-group
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
func cifsSync() bed.Scenario {
	const name, server = "cifs-fsync", "192.0.2.4"
	dir := directory(name)
	return bed.Scenario{
		Name:  name,
		Story: "the SMB server is gone while a program waits until its data has been written",
		Place: bed.Place{Needs: []bed.Need{bed.SMB}},
		Fault: bed.Fault{
			Pod:     onDisk(name, 3, "sync", "/data/f"),
			Prepare: mountSMB(server, dir),
			Break:   bed.OnNode(cutOff("-I", server) + "\nsleep 5"),
			Proof:   "some D 100 && cat $(stacks) | grep -q cifs_",
			Heal:    bed.OnNode(cutOff("-D", server)),
		},
		Want: bed.Want{
			Cause:  "UninterruptibleSleep",
			Family: "CIFS",
			Says:   []string{"cifs", "/data", server, "Seen: " + dir, "SMB server"},
		},
	}
}

// kubeletHangs succeeds when a thread of the kubelet waits for a server.
const kubeletHangs = `for status in $(grep -ls "^State:.D" /proc/$(pidof kubelet)/task/*/status); do
  grep -q 'rpc\|nfs' ${status%status}stack && exit 0
done
exit 1`

func nfsServerGone() bed.Scenario {
	const server = "192.0.2.5"
	return bed.Scenario{
		Name:  "nfs-server-gone",
		Story: "the NFS server is gone while the pod has written data that has not reached it",
		Place: bed.Place{Needs: []bed.Need{bed.NFS}},
		Fault: bed.Fault{
			Pod:     withVolume(victim(5, "dirty", "/data/f"), "share", nfsVolume(server)),
			Prepare: serveNFS(server),
			Break:   bed.OnNode(cutOff("-I", server) + "\nsleep 8"),
			Proof:   kubeletHangs,
			Heal:    bed.OnNode(cutOff("-D", server)),
		},
		Want: bed.Want{
			Cause: "NetworkFilesystemUnreachable",
			Says:  []string{"volume \"share\"", "NFS server " + server, "kubelet thread ", "Seen: rpc_wait_bit_killable", "Seen: kubernetes.io~nfs/share"},
		},
	}
}

// nfsServerMoved has the server answer under another address: the mount goes to the one that it had.
func nfsServerMoved() bed.Scenario {
	const server, now = "192.0.2.8", "192.0.2.9"
	return bed.Scenario{
		Name:  "nfs-server-moved",
		Story: "the NFS server has got another address while the pod has written data that has not reached it",
		Place: bed.Place{Needs: []bed.Need{bed.NFS}},
		Fault: bed.Fault{
			Pod:     withVolume(victim(5, "dirty", "/data/f"), "share", nfsVolume(server)),
			Prepare: serveNFS(server),
			Break:   bed.OnNode(addServer(now) + cutOff("-I", server) + "\nsleep 8"),
			Proof:   "socat -u OPEN:/dev/null TCP4:" + now + ":2049,connect-timeout=5 || exit 1\n" + kubeletHangs,
			Heal:    bed.OnNode(cutOff("-D", server)),
		},
		Want: bed.Want{
			Cause: "NetworkFilesystemUnreachable",
			Says:  []string{"volume \"share\"", "NFS server " + server, "kubelet thread ", "Fix: at the same address"},
		},
	}
}

// nfsProxyGone is what the drivers of cloud file systems make, which mount through a proxy of the node (stunnel).
func nfsProxyGone() bed.Scenario {
	const server, name = "192.0.2.6", "nfs-proxy-gone"
	const proxy = "scenario-" + name
	return bed.Scenario{
		Name:  name,
		Story: "the NFS server is mounted through a proxy of the node, which has ended while data has not reached the server",
		Place: bed.Place{Needs: []bed.Need{bed.NFS}},
		Fault: bed.Fault{
			Pod: onClaimed(victim(5, "dirty", "/data/f"), name),
			Prepare: inTurn(serveNFS(server), bed.OnNode("systemctl stop "+proxy+` 2>/dev/null || true
systemd-run -q --collect --unit=`+proxy+` socat TCP4-LISTEN:20490,bind=127.0.0.1,fork,reuseaddr TCP4:`+server+`:2049
until socat -u OPEN:/dev/null TCP4:127.0.0.1:20490 2>/dev/null; do sleep 0.5; done`),
				func(ctx context.Context, n *bed.Node, p *corev1.Pod) error {
					return bindClaim(ctx, n, p, name, corev1.PersistentVolumeFilesystem,
						corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "127.0.0.1", Path: "/export"}}, "port=20490")
				}),
			Break: bed.OnNode("systemctl stop " + proxy + "\nsleep 8"),
			Proof: kubeletHangs,
			Heal: bed.OnNode("systemctl is-active -q " + proxy + " || systemd-run -q --collect --unit=" + proxy + " socat " +
				"TCP4-LISTEN:20490,bind=127.0.0.1,fork,reuseaddr TCP4:" + server + ":2049"),
		},
		Want: bed.Want{
			Cause: "NetworkFilesystemUnreachable",
			Says: []string{"volume \"data\" (claim " + name, "Seen: PersistentVolume scenarios-", "the NFS server behind 127.0.0.1 (this node) does not respond",
				"Fix: a proxy (stunnel or efs-proxy of the EFS CSI driver)", "Fix: No data is lost"},
		},
	}
}

// nfsMountLost needs no thread that hangs.
func nfsMountLost() bed.Scenario {
	const server, dir = "192.0.2.7", "/var/lib/kubelet/pods/$UID_/volumes/kubernetes.io~nfs/share"
	return bed.Scenario{
		Name:  "nfs-mount-lost",
		Story: "somebody has unmounted the pod's volume on the node, and a file was written to its directory meanwhile",
		Place: bed.Place{Needs: []bed.Need{bed.NFS}},
		Fault: bed.Fault{
			Pod:     withVolume(victim(3, "drain", "0"), "share", nfsVolume(server)),
			Prepare: serveNFS(server),
			Break:   bed.OnNode("umount " + dir + "\necho important >" + dir + "/file"),
			Proof:   "[ -e " + dir + `/file ] && [ -z "$(tasks)" ]`,
			Heal:    bed.OnNode("rm -f " + dir + "/file"),
		},
		Want: bed.Want{
			Cause:  "VolumeDirTeardownFailed",
			Family: "MountLost",
			Says:   []string{"Cause: in phase Volumes", "volume \"share\"", "it is no longer mounted", "Seen: kubernetes.io/nfs", "Fix: move them to where they belong"},
		},
	}
}

func nfsWrite() bed.Scenario {
	const server = "192.0.2.1"
	return bed.Scenario{
		Name:  "nfs-write",
		Story: "the NFS server is gone, and a write waits until the one before it has been written back",
		Place: bed.Place{Needs: []bed.Need{bed.NFS}},
		Fault: bed.Fault{
			Pod:     withVolume(victim(5, "write", "/data/written"), "share", nfsVolume(server)),
			Prepare: serveNFS(server),
			Break:   bed.OnNode(cutOff("-I", server) + "\nsleep 5"),
			Proof:   "some D 100 && cat $(stacks) | grep -q nfs_",
			Heal:    bed.OnNode(cutOff("-D", server)),
		},
		Want: bed.Want{
			Cause:  "UninterruptibleSleep",
			Family: "NFS",
			Says:   []string{"Seen: nfs4", "/data", server, "volume \"share\""},
		},
	}
}

func nfsZombieLeader() bed.Scenario {
	const server = "192.0.2.3"
	s := nfsWrite()
	s.Name = "nfs-zombie-leader"
	s.Story = "the first thread has died, another one waits for an NFS server that is gone"
	s.Pod = withVolume(victim(5, "write-in-thread", "/data/threaded"), "share", nfsVolume(server))
	s.Prepare, s.Break, s.Heal = serveNFS(server), bed.OnNode(cutOff("-I", server)+"\nsleep 5"), bed.OnNode(cutOff("-D", server))
	s.Proof = behindZombie + s.Proof + " && behind_zombie D"
	s.Cause = "ThreadStuckBehindZombieLeader"
	s.Says = []string{"looks like a zombie", "Seen: nfs4", "/data", server, "volume \"share\""}
	return s
}

func nfsLock() bed.Scenario {
	const server = "192.0.2.2"
	return bed.Scenario{
		Name:  "nfs-lock",
		Story: "the NFS server is gone while the pod asks for a lock",
		Place: bed.Place{Needs: []bed.Need{bed.NFS}},
		Fault: bed.Fault{
			Pod:     withVolume(victim(5, "lock", "/data/locked"), "share", nfsVolume(server)),
			Prepare: serveNFS(server),
			Break:   bed.OnNode(cutOff("-I", server) + "\nsleep 5"),
			Proof:   kubeletHangs,
			Heal:    bed.OnNode(cutOff("-D", server)),
		},
		Want: bed.Want{
			Cause: "NetworkFilesystemUnreachable",
			Says:  []string{"volume \"share\"", "NFS server " + server},
		},
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

func pidnsExec() bed.Scenario {
	const name = "pidns-exec"
	s := onFrozen(name, "a program that was executed in the container hangs, and the container's first process waits for it", "")
	s.Pod = onDisk(name, 3, "drain", "0")
	s.Break = inTurn(bed.OnNode(findInit+`container=$(ctr -n k8s.io containers ls -q "labels.\"io.kubernetes.pod.uid\"==$UID_,labels.\"io.kubernetes.container.name\"==main")
ctr -n k8s.io tasks exec --detach --exec-id hangs $container /victim write /data/f
sleep 3`), s.Break)
	s.Proof += " && " + waitsForNamespace
	s.Says = append(s.Says, "container main: SIGKILL cannot end victim (PID ")
	return s
}

func pidnsParent() bed.Scenario {
	return bed.Scenario{
		Name:  "pidns-parent",
		Story: "a process outside has a child in the container's PID namespace and does not reap it",
		Fault: bed.Fault{
			Pod: victim(3, "drain", "0"),
			Break: bed.OnNode(findInit + `setsid nsenter -t $init -p sleep 100000 </dev/null >/dev/null 2>&1 &
parent=$!
echo $parent >/run/scenario-$NAME.parent
for i in $(seq 60); do
  for child in $(cat /proc/$parent/task/$parent/children); do
    [ "$(cat /proc/$child/comm)" = sleep ] && kill -STOP $parent && exit 0
  done
  sleep 0.5
done
exit 1`),
			Proof: waitsForNamespace + ` && grep -q "^State:.Z" /proc/$(cat /proc/$(cat /run/scenario-$NAME.parent)/task/*/children | tr -d ' ')/status`,
			Heal:  bed.OnNode("kill -KILL $(cat /run/scenario-$NAME.parent)"),
		},
		Want: bed.Want{
			Cause:  "PIDNamespaceReapWait",
			Family: "OutsideParent",
			Says:   []string{"container main", "victim", "sleep", "nsenter (PID ", "has not collected its exit"},
		},
	}
}

// zombieTracer lets the process die before its deletion, because a signal would
// stop it first, which is another cause.
func zombieTracer() bed.Scenario {
	return bed.Scenario{
		Name:  "zombie-tracer",
		Story: "a tracer never asks what became of the container's first process, which has been killed",
		Fault: bed.Fault{
			Pod:     victim(3, "drain", "0"),
			Prepare: bed.NodeTool("victim"),
			Break: bed.OnNode(findInit + `setsid /usr/local/bin/victim seize $init </dev/null >/dev/null 2>&1 &
tracer=$!
echo $tracer >/run/scenario-$NAME.tracer
for i in $(seq 60); do
  grep -q "^TracerPid:.$tracer$" /proc/$init/status && kill -KILL $init && exit 0
  sleep 0.5
done
exit 1`),
			Proof: `status=/proc/$(cat /run/scenario-$NAME.init)/status
grep -q "^State:.Z" $status && grep -q "^Threads:.1$" $status && ! grep -q "^TracerPid:.0$" $status`,
			Heal: bed.OnNode("kill -KILL $(cat /run/scenario-$NAME.tracer)"),
		},
		Want: bed.Want{
			Cause: "ZombieHeldByTracer",
			Says:  []string{"container main", "its tracer victim (PID ", "has not collected its exit", "Fix: kill "},
		},
	}
}
