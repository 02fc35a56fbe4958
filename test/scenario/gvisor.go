package scenario

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodeagent-io/nodeagent/test/bed"
)

// gvisors lists the incidents of pods that run under gVisor, and innocent ones that look like
// them.
func gvisors() []bed.Scenario {
	return []bed.Scenario{
		gvisorStopped(), gvisorFrozen(), gvisorContinued(), gvisorDrains(), gvisorNoTrap(), gvisorIgnores(), gvisorKilled(), gvisorGofersStopped(),
		gvisorDevice(), gvisorDeviceSlow(), gvisorFUSESlow(), gvisorNFS(), gvisorNFSSlow(),
	}
}

// gvisorClass is the RuntimeClass of gVisor's pods, and gvisorHandler its name in the
// configuration of a node's containerd.
const (
	gvisorClass   = "gvisor"
	gvisorHandler = "runsc"
)

// installGVisor puts gVisor on the node, and its RuntimeClass into the cluster.
var installGVisor = inTurn(bed.NodeTool("runsc"), bed.NodeTool("containerd-shim-runsc-v1"), bed.OnNode(`cat >/etc/containerd/runsc.toml.$$ <<END
[runsc_config]
platform = "systrap"
systemd-cgroup = "$([ -d /run/systemd/system ] && echo true || echo false)"
END
mv /etc/containerd/runsc.toml.$$ /etc/containerd/runsc.toml`), func(ctx context.Context, n *bed.Node, _ *corev1.Pod) error {
	class := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: gvisorClass}, Handler: gvisorHandler}
	_, err := n.API.NodeV1().RuntimeClasses().Create(ctx, class, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create RuntimeClass %s: %w", gvisorClass, err)
	}
	return nil
})

// ofGVisor is an incident of a pod under gVisor. It has a network of its own: gVisor takes the
// addresses of the one that it is given.
func ofGVisor(name, story string, spec corev1.PodSpec) bed.Scenario {
	class := gvisorClass
	spec.RuntimeClassName = &class
	return bed.Scenario{Name: name, Story: story, Place: bed.Place{Needs: []bed.Need{bed.PodNetwork}, Hungry: true}, Fault: bed.Fault{Pod: spec, Prepare: installGVisor}}
}

// findSentry is a shell script that finds the pod's processes of gVisor on the node: the one that is
// the kernel of its containers, and those that open files for it. Both call themselves exe.
const findSentry = `named() {
  threads=$(grep -ls "^$1" $(for t in $(tasks); do echo /proc/$t/cmdline; done) /dev/null | sed 's/cmdline/status/')
  [ -z "$threads" ] || awk '/^Tgid/{print $2}' $threads | sort -nu
}
sentry=$(named runsc-sandbox)
gofers=$(named runsc-gofer)
`

func gvisorStopped() bed.Scenario {
	s := ofGVisor("gvisor-stopped", "gVisor's process for the pod is stopped, which is to end the containers", victim(120, "drain", "0"))
	s.Break = bed.OnNode(findSentry + "[ -n \"$sentry\" ] && kill -STOP $sentry")
	s.Proof = findSentry + `grep -q "^State:.T" /proc/$sentry/status`
	s.Cause = "SandboxRuntimeStuck"
	s.Family = "Stopped"
	s.Says = []string{"gVisor", "paused (SIGSTOP", "Fix: kill -CONT"}
	s.When = bed.InGrace
	s.Heal = bed.OnNode(findSentry + `[ -z "$sentry" ] || kill -CONT $sentry`)
	return s
}

// gvisorFrozen stays past its deadline with version 2 of cgroups too, where SIGKILL ends what is
// frozen: nobody sends it to gVisor's process. All that is frozen goes on when it is thawed, as a
// node's is when it ends.
func gvisorFrozen() bed.Scenario {
	s := ofGVisor("gvisor-frozen", "the control group of gVisor's process for the pod is frozen", victim(3, "drain", "0"))
	s.Break = bed.OnNode(freezer + findSentry + "[ -n \"$sentry\" ] && freeze $(group $sentry)")
	s.Proof = freezer + findSentry + "frozen $(group $sentry)\n" + logged("context deadline exceeded")
	s.Cause = "SandboxRuntimeStuck"
	s.Family = "Frozen"
	s.Says = []string{"gVisor", "is frozen", "Fix: /sys/fs/cgroup/"}
	s.Heal = bed.OnNode(freezer + findSentry + `[ -z "$sentry" ] || thaw $(group $sentry)`)
	return s
}

// gvisorContinued is innocent: what was stopped goes on before the deadline.
func gvisorContinued() bed.Scenario {
	s := ofGVisor("gvisor-stopped-and-continued", "innocent: gVisor's process for the pod was stopped, and goes on again", victim(60, "drain", "0"))
	s.Break = bed.OnNode(findSentry + "[ -n \"$sentry\" ] && kill -STOP $sentry; sleep 10; kill -CONT $sentry; sleep 2")
	return s
}

// gvisorShimStopped stops one of the pod's shims: gVisor has one for the sandbox, and one for each
// container.
func gvisorShimStopped() bed.Scenario {
	const find = findSentry + `shim=$(for p in $gofers; do awk '/^PPid/{print $2}' /proc/$p/status; done | grep -vx $(awk '/^PPid/{print $2}' /proc/$sentry/status))
[ -n "$shim" ]
`
	s := ofGVisor("gvisor-shim-stopped", "the shim of a container under gVisor is stopped, the one of the sandbox is not", victim(3, "drain", "0"))
	s.Alone = true // while a shim does not answer, the kubelet does not tell what it counts
	s.Break = bed.OnNode(find + "kill -STOP $shim\necho $shim >/run/scenario-$NAME.pid")
	s.Proof = `grep -q "^State:.T" /proc/$(cat /run/scenario-$NAME.pid)/status`
	s.Cause = "ShimHung"
	s.Family = "Stopped"
	s.Says = []string{"shim", "paused (SIGSTOP", "Fix: kill -CONT"}
	s.Heal = bed.OnNode("end CONT /run/scenario-$NAME.pid")
	return s
}

func gvisorDrains() bed.Scenario {
	return ofGVisor("gvisor-drains", "innocent: a program under gVisor takes its time to end", victim(60, "drain", "20"))
}

// gvisorIgnores is innocent: what becomes of the stop signal is not to be seen on the node.
func gvisorIgnores() bed.Scenario {
	return ofGVisor("gvisor-ignores-term", "innocent: a shell under gVisor ignores SIGTERM and uses up its grace period, after which SIGKILL ends it",
		pod(20, bed.BusyboxImage, "sh", "-c", "trap '' TERM; sleep 100000"))
}

// gvisorNoTrap is innocent: to gVisor the first process of a container is one like others, and
// SIGTERM ends it.
func gvisorNoTrap() bed.Scenario {
	return ofGVisor("gvisor-no-trap", "innocent: a shell under gVisor has no handler for SIGTERM, which ends it all the same",
		pod(60, bed.BusyboxImage, "sh", "-c", "sleep 100000; true"))
}

func gvisorKilled() bed.Scenario {
	s := ofGVisor("gvisor-killed", "innocent: gVisor's process for the pod is killed, and its containers end with it", victim(20, "drain", "100"))
	s.Break = bed.OnNode(findSentry + "[ -n \"$sentry\" ] && kill -KILL $sentry")
	return s
}

func gvisorGofersStopped() bed.Scenario {
	s := ofGVisor("gvisor-gofers-stopped", "innocent: the processes that open files for gVisor are stopped, which the end of the pod "+
		"does not need", victim(20, "drain", "0"))
	s.Break = bed.OnNode(findSentry + "[ -n \"$gofers\" ] && kill -STOP $gofers")
	s.Heal = bed.OnNode(findSentry + `for p in $gofers; do kill -CONT $p; done`)
	return s
}

// heldByDisk succeeds when a thread of the pod waits for a disk, and none has been killed.
const heldByDisk = `some D && ! some D 100 && cat $(stacks) | grep -q 'ext4_\|jbd2_\|folio_wait_writeback\|submit_bio'`

// gvisorDevice is a system call of the sentry itself, which opens the pod's files: on what it waits
// only its gofer's mounts tell.
func gvisorDevice() bed.Scenario {
	const name = "gvisor-device-suspended"
	disk := onDevice(name, "the device below a volume of a pod under gVisor is suspended, and a thread of gVisor's waits for it", "sync")
	s := ofGVisor(name, disk.Story, disk.Pod)
	s.Needs = append(s.Needs, bed.Hang, bed.DeviceMapper)
	s.Prepare = inTurn(s.Prepare, disk.Prepare)
	s.Break, s.Heal = disk.Break, disk.Heal
	s.Proof = heldByDisk
	s.Cause, s.Family = disk.Cause, disk.Family
	s.Says = append(disk.Says, ofThread)
	return s
}

// gvisorDeviceSlow is innocent: a thread of gVisor's waits for seconds, and beyond the deadline.
func gvisorDeviceSlow() bed.Scenario {
	const name = "gvisor-device-slow"
	device, dir := "scenario-"+name, directory(name)
	s := ofGVisor(name, "innocent: the device below a volume of a pod under gVisor takes two seconds for a request", onDisk(name, 3, "sync", "/data/f"))
	s.Needs = append(s.Needs, bed.Hang, bed.DeviceMapper)
	s.Prepare = inTurn(s.Prepare, bed.OnNode(mapDevice(device, dir)))
	s.Break = bed.OnNode(delayDevice(device, dir, "2000", "2000"))
	s.Proof = heldByDisk
	return s
}

// ofThread is what the verdict says of a thread that gVisor has on the node.
const ofThread = "Seen: (exe) serves a program of the pod"

// gvisorFUSESlow is innocent: the daemon is asked for a part of the write after the other, eight of which take it
// six seconds each, and SIGKILL ends the program when the last one has been answered.
func gvisorFUSESlow() bed.Scenario {
	const name = "gvisor-fuse-slow"
	s := ofGVisor(name, "innocent: a slow FUSE daemon lets a killed program under gVisor wait far beyond its deadline",
		withVolume(pod(3, bed.BusyboxImage, "dd", "if=/dev/zero", "of=/data/slow", "bs=1M", "conv=notrunc"), "data", hostPath(directory(name))))
	s.Prepare = inTurn(s.Prepare, mountFUSE(name))
	s.Proof = "! some D 100 && cat $(stacks) | grep -q request_wait_answer"
	return s
}

// gvisorNFS hangs in a wait that SIGKILL would end, if it came to the thread.
func gvisorNFS() bed.Scenario {
	const server = "192.0.2.10"
	s := ofGVisor("gvisor-nfs-server-gone", "the NFS server is gone while a pod under gVisor looks for files there",
		withVolume(pod(5, bed.BusyboxImage, "sh", "-c", "while sleep 0.2; do ls /data; done >/dev/null"), "share", nfsVolume(server)))
	s.Needs = append(s.Needs, bed.Hang, bed.NFS)
	s.Prepare = inTurn(s.Prepare, serveNFS(server))
	s.Break = bed.OnNode(cutOff("-I", server) + "\nsleep 5")
	s.Proof = "some D && ! some D 100 && cat $(stacks) | grep -q rpc_wait_bit_killable"
	s.Cause, s.Family = "UninterruptibleSleep", "NFS"
	s.Says = []string{ofThread, "Seen: rpc_wait_bit_killable", "Seen: nfs4", "/data", server, "volume \"share\""}
	s.Heal = bed.OnNode(cutOff("-D", server))
	return s
}

// gvisorNFSSlow is innocent: the server's disk takes seconds for a request.
func gvisorNFSSlow() bed.Scenario {
	const name, server = "gvisor-nfs-slow", "192.0.2.11"
	device, dir := "scenario-"+name, directory(name)
	s := ofGVisor(name, "innocent: the NFS server of a pod under gVisor takes seconds to write what it is sent",
		withVolume(victim(3, "sync", "/data/f"), "share", corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{Server: server, Path: dir}}))
	s.Needs = append(s.Needs, bed.Hang, bed.NFS, bed.DeviceMapper)
	s.Prepare = inTurn(s.Prepare, bed.OnNode("exportfs -u '*:"+dir+"' 2>/dev/null || true\n"+mapDevice(device, dir)+"\nchmod 777 "+dir), serveNFS(server),
		bed.OnNode("exportfs -o rw,sync,no_subtree_check,no_root_squash,insecure '*:"+dir+"'"))
	s.Break = bed.OnNode(delayDevice(device, dir, "2000", "2000"))
	s.Proof = "some D && ! some D 100 && cat $(stacks) | grep -q nfs_"
	return s
}
