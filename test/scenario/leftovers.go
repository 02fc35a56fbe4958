package scenario

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// leftovers lists the incidents in which a block device or the control group of a pod is
// left on the node, and innocent ones that look like them.
func leftovers() []Scenario {
	return []Scenario{blockDeviceBusy(), blockUnpublishFails(), blockUnpublishSlow(), csiRecordLost(), cgroupForeign()}
}

// onBlock is a pod with a volume of the scenario's own driver as a block device.
func onBlock(name string) corev1.PodSpec {
	spec := victim(3, "drain", "0")
	spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}}
	spec.Containers[0].VolumeDevices = []corev1.VolumeDevice{{Name: "data", DevicePath: "/dev/data"}}
	return spec
}

// volumeName is the name of the PersistentVolume of a pod with a block device.
func volumeName(p *corev1.Pod) string { return p.Namespace + "-" + p.Name }

// claim is a step that makes the volume and the claim of a pod with a block device. They
// stay when the pod is gone.
func claim(ctx context.Context, n *Node, p *corev1.Pod) error {
	block, none := corev1.PersistentVolumeBlock, ""
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")}
	_, err := n.API.CoreV1().PersistentVolumes().Create(ctx, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: volumeName(p)},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: size, AccessModes: modes, VolumeMode: &block, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			ClaimRef: &corev1.ObjectReference{Namespace: p.Namespace, Name: p.Name},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: csiName(p.Name), VolumeHandle: volumeName(p), VolumeAttributes: map[string]string{"device": directory(p.Name) + ".device"},
			}},
		},
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create PersistentVolume %s: %w", volumeName(p), err)
	}
	claims := n.API.CoreV1().PersistentVolumeClaims(p.Namespace)
	_, err = claims.Create(ctx, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: p.Name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: modes, VolumeMode: &block, VolumeName: volumeName(p), StorageClassName: &none,
			Resources: corev1.VolumeResourceRequirements{Requests: size},
		},
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create PersistentVolumeClaim %s: %w", p.Name, err)
	}
	return n.Await(ctx, "claim "+p.Name+" to be bound", func() (bool, string) {
		c, err := claims.Get(ctx, p.Name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		return c.Status.Phase == corev1.ClaimBound, string(c.Status.Phase)
	})
}

// sourceDevice makes the loop device that is the pod's volume, behind the link that the
// driver is told of. A native node has no files for loop devices.
//
// Loop devices are the machine's. One that is detached while somebody has it open is free
// when the last one closes it (drivers/block/loop.c, loop_clr_fd): here that is done at
// once, so that none is left when the node ends, however it does. What has one open ends by
// itself after 20 minutes.
const sourceDevice = `end KILL /run/scenario-$NAME.taker
end KILL /run/scenario-$NAME.holder
end KILL /run/scenario-$NAME.source
rm -f /run/scenario-$NAME.*
[ -e /dev/loop-control ] || mknod -m 600 /dev/loop-control c 10 237
for minor in $(seq 0 63); do [ -e /dev/loop$minor ] || mknod -m 600 /dev/loop$minor b 7 $minor; done
truncate -s 1M /var/lib/scenario-$NAME.img
loop=$(losetup --find --show /var/lib/scenario-$NAME.img)
ln -sfn $loop /var/lib/scenario-$NAME.device
setsid sh -c 'exec 3<'$loop'; echo $$ >/run/scenario-'$NAME'.source; exec sleep 1200' </dev/null >/dev/null 2>&1 &
until [ -s /run/scenario-$NAME.source ]; do sleep 0.1; done
losetup --detach $loop
`

// takeLoop is a step that has a process of the node wait for the loop device that the
// kubelet puts on the pod's volume, detach it, and then do something with it open as its
// third file.
func takeLoop(then string) step {
	return func(ctx context.Context, n *Node, p *corev1.Pod) error {
		return onNode(`setsid sh -c 'echo $$ >/run/scenario-'$NAME'.taker
for i in $(seq 3000); do
  for file in /sys/block/loop*/loop/backing_file; do
    read -r of <$file || continue
    case $of in */volumeDevices/`+volumeName(p)+`/dev/*) ;; *) continue ;; esac
    loop=${file%/loop/backing_file}
    loop=/dev/${loop##*/}
    sleep 0.3
    exec 3<$loop
    losetup --detach $loop
    `+then+`
  done
  sleep 0.1
done' </dev/null >/dev/null 2>&1 &`)(ctx, n, p)
	}
}

const (
	// keepLoop keeps the kubelet's loop device in use; freeLoop does not.
	keepLoop = `echo $$ >/run/scenario-'$NAME'.holder; exec sleep 1200`
	freeLoop = `exit`
	// endLoops has the loop devices be free as soon as the kubelet and the driver are
	// done with them.
	endLoops = `end KILL /run/scenario-$NAME.holder
end KILL /run/scenario-$NAME.source
`
	// deviceLeft succeeds when the pod's processes are gone, and a mount of its block device is there.
	deviceLeft = `grep -q "/volumeDevices/.*/$UID_ " /proc/self/mountinfo && [ -z "$(tasks)" ]`
)

// ofBlock is an incident of a pod with a block device.
func ofBlock(name, story, then string) Scenario {
	return Scenario{
		Name:    name,
		Story:   story,
		Pod:     onBlock(name),
		Prepare: inTurn(startCSI(name), claim, onNode(sourceDevice), takeLoop(then)),
		Proof:   deviceLeft,
		Heal:    onNode(endLoops + runCSI(name)),
	}
}

func blockDeviceBusy() Scenario {
	s := ofBlock("block-device-busy", "a process of the node has the loop device open that the kubelet keeps on the pod's block volume", keepLoop)
	s.Break = onNode("until [ -s /run/scenario-$NAME.holder ]; do sleep 0.2; done")
	s.Proof = deviceLeft + ` && grep -q "/dev/$UID_ " /proc/self/mountinfo && [ -e /proc/$(cat /run/scenario-$NAME.holder)/fd/3 ]`
	s.Cause = "BlockVolumeUnmapFailed"
	s.Says = []string{"locked in phase Volumes", "block volume scenarios-", "sleep (PID ", "the loop device /dev/loop"}
	return s
}

func blockUnpublishFails() Scenario {
	const name = "block-unpublish-fails"
	s := ofBlock(name, "a CSI driver fails to unpublish a block volume", freeLoop)
	s.Break = onNode(tellCSI(name, "fail"))
	s.Cause = "CSINodeUnpublishFailing"
	s.Says = []string{"locked in phase Volumes", "volume scenarios-", "CSI driver " + csiName(name), "NodeUnpublishVolume", "Internal"}
	return s
}

// blockUnpublishSlow is innocent: what is open is the device itself, which is in nobody's
// way.
func blockUnpublishSlow() Scenario {
	const name = "block-unpublish-slow"
	s := ofBlock(name, "innocent: the CSI driver takes 20 seconds to unpublish a block volume, whose device a process of the node has open", freeLoop)
	s.Break = onNode(tellCSI(name, "slow"))
	s.Heal = onNode(endLoops)
	return s
}

// cgroupForeign is a process of the node that somebody puts into the pod's control group,
// and that the kernel cannot end. What SIGKILL ends holds nothing up: the kubelet has killed
// it, and removed the group, before anybody can put another one there.
func cgroupForeign() Scenario {
	const name = "cgroup-foreign"
	return Scenario{
		Name:    name,
		Story:   "a process of the node is in the pod's control group, waits for a FUSE daemon, and cannot be killed by the kubelet",
		Pod:     victim(3, "drain", "0"),
		Prepare: mountFUSE(name),
		Break: onNode(`setsid head -c 1 ` + directory(name) + `/read </dev/null >/dev/null 2>&1 &
reader=$!
until [ "$(wchan $reader)" = request_wait_answer ]; do sleep 0.2; done
for group in /sys/fs/cgroup/kubepods*/*/*$CGROUP* /sys/fs/cgroup/*/kubepods*/*/*$UID_*; do
  [ -e $group ] || continue
  [ ! -e $group/cgroup.controllers ] || { group=$group/foreign; mkdir $group; }
  echo $reader >$group/cgroup.procs
done`),
		Proof:  "some D 100",
		Cause:  "UninterruptibleSleep",
		Family: "FUSE",
		Says:   []string{"locked in phase Cleanup", "in the pod's control group", "(head) has been killed but cannot die", "request_wait_answer", "fuse.hang", directory(name)},
		Heal:   onNode(unmountFUSE(name)),
	}
}

// csiRecordLost is a volume of which the kubelet's record is empty, as after a power failure.
func csiRecordLost() Scenario {
	const name, record = "csi-record-lost", "/var/lib/kubelet/pods/$UID_/volumes/kubernetes.io~csi/data/vol_data.json"
	s := ofCSI(name, "the kubelet's record of a CSI volume has been truncated", "cp "+record+" /run/scenario-$NAME.record\n: >"+record, "CSIVolumeRecordLost")
	s.Says = []string{"locked in phase Volumes", "volume data: vol_data.json", "umount /var/lib/kubelet/pods/"}
	s.Heal = onNode("cp /run/scenario-$NAME.record " + record)
	return s
}
