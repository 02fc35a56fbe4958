package scenario

import corev1 "k8s.io/api/core/v1"

// kernel lists the incidents in which the kernel cannot end a thread.
func kernel() []Scenario {
	return []Scenario{frozenFilesystem(), zombieLeader(), nfsServerGone()}
}

// makeFilesystem makes a file system of its own, that can be frozen, also where
// an earlier run has left one.
func makeFilesystem(dir string) string {
	return `if mountpoint -q ` + dir + `; then fsfreeze -u ` + dir + ` 2>/dev/null || true; umount ` + dir + `; fi
mkdir -p ` + dir + `
truncate -s 64M ` + dir + `.img
mkfs.ext4 -q -F ` + dir + `.img
mount -o loop ` + dir + `.img ` + dir
}

func frozenFilesystem() Scenario {
	const dir = "/var/lib/scenario-frozen"
	return Scenario{
		Name:    "frozen-filesystem",
		Story:   "the container writes to a file system that a snapshot left frozen",
		Pod:     withVolume(pod(3, VictimImage, "/victim", "write", "/data/f"), "data", hostPath(dir)),
		Prepare: onNode(makeFilesystem(dir)),
		Break:   onNode("fsfreeze -f " + dir),
		Proof:   "some D 100",
		Cause:   "UninterruptibleSleep",
		Family:  "FsFrozen",
		Says:    []string{"percpu_rwsem_wait", "ext4", "/data", "fsfreeze -u " + dir},
		Heal:    onNode("fsfreeze -u " + dir),
	}
}

func zombieLeader() Scenario {
	const dir = "/var/lib/scenario-zombie"
	return Scenario{
		Name:    "zombie-leader",
		Story:   "the first thread has died of SIGKILL, another one hangs in a write and cannot",
		Pod:     withVolume(pod(3, VictimImage, "/victim", "write-in-thread", "/data/f"), "data", hostPath(dir)),
		Prepare: onNode(makeFilesystem(dir)),
		Break:   onNode("fsfreeze -f " + dir),
		Proof: `some D 100
for t in $(tasks); do grep -q "^State:.Z" /proc/$(awk '/^Tgid/{print $2}' /proc/$t/status)/status && exit 0; done
exit 1`,
		Cause:  "ThreadStuckBehindZombieLeader",
		Family: "FsFrozen",
		Says:   []string{"looks like a zombie", "percpu_rwsem_wait", "ext4", "/data"},
		Heal:   onNode("fsfreeze -u " + dir),
	}
}

// nfsServer is the address of the first node, which exports /export to itself.
const nfsServer = "10.0.2.15"

func nfsServerGone() Scenario {
	return Scenario{
		Name:  "nfs-server-gone",
		Story: "the NFS server is gone while the pod has written data that has not reached it",
		Pod: withVolume(pod(5, VictimImage, "/victim", "dirty", "/data/f"),
			"share", corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{Server: nfsServer, Path: "/export"}}),
		Prepare: onNode("systemctl start nfs-server"),
		Break: onNode(`iptables -I INPUT -p tcp --dport 2049 -j DROP
iptables -I OUTPUT -p tcp --sport 2049 -j DROP
sleep 8`),
		Proof: `for t in /proc/$(pidof kubelet)/task/*; do
  grep -q "^State:.D" $t/status && grep -q 'rpc\|nfs' $t/stack && exit 0
done
exit 1`,
		Cause: "NetworkFilesystemUnreachable",
		Says:  []string{"volume share", "NFS server " + nfsServer, "kubelet's thread", "rpc_wait_bit_killable", "kubernetes.io~nfs/share"},
		Heal: onNode(`iptables -D INPUT -p tcp --dport 2049 -j DROP
iptables -D OUTPUT -p tcp --sport 2049 -j DROP`),
	}
}
