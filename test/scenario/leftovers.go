package scenario

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodeagent-io/nodeagent/test/bed"
)

// leftovers lists the incidents in which a block device or the control group of a pod is
// left on the node, and innocent ones that look like them.
func leftovers() []bed.Scenario {
	return []bed.Scenario{
		blockDeviceBusy(), blockOpenElsewhere(), blockMounted(), blockMountedElsewhere(), blockMapped(),
		blockPartitionMounted(), blockPartitionMapped(), blockMappedForAWhile(), blockRAID(), blockRAIDForAWhile(),
		blockMappedMountedAtTimes(), blockMountedInTurn(),
		blockUnpublishFails(), blockUnpublishSlow(), blockUsed(), csiRecordLost(), cgroupForeign(),
	}
}

// onBlock is a pod with a volume of the scenario's own driver as a block device.
func onBlock(name string) corev1.PodSpec {
	spec := victim(3, "drain", "0")
	spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}}
	spec.Containers[0].VolumeDevices = []corev1.VolumeDevice{{Name: "data", DevicePath: "/dev/data"}}
	return spec
}

// onClaim is a pod with a volume of the scenario's own driver behind a claim.
func onClaim(name string) corev1.PodSpec { return onClaimed(victim(3, "drain", "0"), name) }

func onClaimed(spec corev1.PodSpec, name string) corev1.PodSpec {
	return withVolume(spec, "data", corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}})
}

// volumeName is the name of the PersistentVolume of a pod with a block device.
func volumeName(p *corev1.Pod) string { return p.Namespace + "-" + p.Name }

// bindClaims is a step that makes the volumes and the claims of a pod, of the modes in which the pod
// has them. They stay when the pod is gone.
func bindClaims(ctx context.Context, n *bed.Node, p *corev1.Pod) error {
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		if v.PersistentVolumeClaim == nil {
			continue
		}
		mode, attributes := corev1.PersistentVolumeFilesystem, map[string]string{"source": csiSource(p.Name)}
		if slices.ContainsFunc(p.Spec.Containers[0].VolumeDevices, func(d corev1.VolumeDevice) bool { return d.Name == v.Name }) {
			mode, attributes = corev1.PersistentVolumeBlock, map[string]string{"device": directory(p.Name) + ".device"}
		}
		name := v.PersistentVolumeClaim.ClaimName
		if err := bindClaim(ctx, n, p, name, mode, corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
			Driver: csiName(p.Name), VolumeHandle: p.Namespace + "-" + name, VolumeAttributes: attributes,
		}}); err != nil {
			return err
		}
	}
	return nil
}

// bindClaim makes a volume and a claim for it.
func bindClaim(ctx context.Context, n *bed.Node, p *corev1.Pod, name string, mode corev1.PersistentVolumeMode,
	source corev1.PersistentVolumeSource, mountOptions ...string) error {
	modes, none := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, ""
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")}
	volume := p.Namespace + "-" + name
	_, err := n.API.CoreV1().PersistentVolumes().Create(ctx, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: volume},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: size, AccessModes: modes, VolumeMode: &mode, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			ClaimRef:     &corev1.ObjectReference{Namespace: p.Namespace, Name: name},
			MountOptions: mountOptions, PersistentVolumeSource: source,
		},
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create PersistentVolume %s: %w", volume, err)
	}
	all := n.API.CoreV1().PersistentVolumeClaims(p.Namespace)
	_, err = all.Create(ctx, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: modes, VolumeMode: &mode, VolumeName: volume, StorageClassName: &none,
			Resources: corev1.VolumeResourceRequirements{Requests: size},
		},
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create PersistentVolumeClaim %s: %w", name, err)
	}
	return n.Await(ctx, "claim "+name+" to be bound", func() (bool, string) {
		c, err := all.Get(ctx, name, metav1.GetOptions{})
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
make() { [ -e $1 ] || mknod -m 600 $* || [ -e $1 ]; } # another incident may be quicker
make /dev/loop-control c 10 237
for minor in $(seq 0 63); do make /dev/loop$minor b 7 $minor; done
truncate -s 8M /var/lib/scenario-$NAME.img
loop=$(losetup --find --show /var/lib/scenario-$NAME.img)
ln -sfn $loop /var/lib/scenario-$NAME.device
setsid sh -c 'exec 3<'$loop'; echo $$ >/run/scenario-'$NAME'.source; exec sleep 1200' </dev/null >/dev/null 2>&1 &
until [ -s /run/scenario-$NAME.source ]; do sleep 0.1; done
losetup --detach $loop
`

// takeLoop is a step that has a process of the node wait for the loop device that the
// kubelet puts on the pod's volume, detach it, and then do something with it open as its
// third file.
func takeLoop(then string) bed.Step {
	return func(ctx context.Context, n *bed.Node, p *corev1.Pod) error {
		return bed.OnNode(`setsid sh -c 'echo $$ >/run/scenario-'$NAME'.taker
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
	// partitionLoop makes a partition on the kubelet's loop device, as partprobe does. The
	// kernel removes it when the loop device is detached.
	partitionLoop = `addpart $loop 1 8 2000
until [ -b ${loop}p1 ]; do sleep 0.1; done
`
	// held3 waits until the holder is there.
	held3 = "until [ -s /run/scenario-$NAME.holder ]; do sleep 0.2; done"
	// deviceLeft succeeds when the pod's processes are gone, and a mount of its block device is there.
	deviceLeft = `grep -q "/volumeDevices/.*/$UID_ " /proc/self/mountinfo && [ -z "$(tasks)" ]`
	// loopLeft succeeds when the one is that the kubelet makes. inOwnNamespace does when the
	// holder has a mount namespace of its own.
	loopLeft       = deviceLeft + ` && grep -q "/dev/$UID_ " /proc/self/mountinfo`
	inOwnNamespace = "[ $(readlink /proc/$(cat /run/scenario-$NAME.holder)/ns/mnt) != $(readlink /proc/self/ns/mnt) ]"
)

// mountLoop makes a file system on the kubelet's loop device, or on a device on it, and mounts it.
func mountLoop(device string) string {
	return `mkfs.ext4 -q -F -O ^has_journal ` + device + `
mkdir -p /var/lib/scenario-'$NAME'.mnt
mount -t ext4 ` + device + ` /var/lib/scenario-'$NAME'.mnt
exec 3<&-
`
}

// ofBlock is an incident of a pod with a block device.
func ofBlock(name, story, then string) bed.Scenario {
	return bed.Scenario{
		Name:  name,
		Story: story,
		Fault: bed.Fault{
			Pod:     onBlock(name),
			Prepare: inTurn(startCSI(name), bindClaims, bed.OnNode(sourceDevice), takeLoop(then)),
			Proof:   deviceLeft,
			Heal:    bed.OnNode(endLoops + runCSI(name)),
		},
	}
}

func blockDeviceBusy() bed.Scenario {
	s := ofBlock("block-device-busy", "a process of the node has the loop device open that the kubelet keeps on the pod's block volume", keepLoop)
	s.Break = bed.OnNode(held3)
	s.Proof = loopLeft + ` && [ -e /proc/$(cat /run/scenario-$NAME.holder)/fd/3 ]`
	s.Cause = "BlockVolumeUnmapFailed"
	s.Says = []string{"Cause: in phase Volumes", "block volume \"data\" (claim block-device-busy", "Seen: PersistentVolume " +
		"scenarios-", "sleep (PID ", "the loop device /dev/loop"}
	return s
}

// blockOpenElsewhere is the same of a process with a mount namespace of its own, as a container
// with the node's devices has. What is unmounted on the node is unmounted there too: a copy of
// another incident's mount would keep its device in use.
func blockOpenElsewhere() bed.Scenario {
	s := ofBlock("block-open-elsewhere", "a process in a mount namespace of its own has the loop device open that the kubelet keeps on the pod's block volume",
		`exec unshare -m --propagation slave sh -c "`+keepLoop+`"`)
	s.Break = bed.OnNode(held3)
	s.Proof = loopLeft + ` && [ -e /proc/$(cat /run/scenario-$NAME.holder)/fd/3 ] && ` + inOwnNamespace
	s.Cause = "BlockVolumeUnmapFailed"
	s.Says = []string{"Cause: in phase Volumes", "block volume \"data\" (claim ", "sleep (PID ", "the loop device /dev/loop", "in a mount namespace of its own"}
	return s
}

// blockMounted is a block volume with a file system in it, which somebody has mounted from the
// kubelet's loop device.
func blockMounted() bed.Scenario {
	const dir = "/var/lib/scenario-block-mounted.mnt"
	s := ofBlock("block-mounted", "the file system on the pod's block volume has been mounted on the node, from the loop device that the kubelet keeps on it",
		mountLoop("$loop")+keepLoop)
	s.Break = bed.OnNode(held3)
	s.Proof = loopLeft + " && grep -q ' " + dir + " ' /proc/self/mountinfo"
	s.Cause, s.Family = "BlockVolumeUnmapFailed", "MountInside"
	s.Says = []string{"Cause: in phase Volumes", "block volume \"data\" (claim ", "its ext4 file system is mounted on the node", "umount " + dir}
	s.Heal = bed.OnNode("umount " + dir + "\n" + endLoops + runCSI(s.Name))
	return s
}

// blockMountedElsewhere is one of which the node's mount table does not show that.
func blockMountedElsewhere() bed.Scenario {
	s := ofBlock("block-mounted-elsewhere", "the file system on the pod's block volume has been mounted from the kubelet's loop "+
		"device in a mount namespace of a process's own",
		`exec unshare -m --propagation slave sh -e -c "`+mountLoop("$loop")+keepLoop+`"`)
	s.Break = bed.OnNode(held3)
	s.Proof = loopLeft + ` && grep -q "/scenario-$NAME.mnt " /proc/$(cat /run/scenario-$NAME.holder)/mountinfo && ! grep -q "/scenario-$NAME.mnt " /proc/self/mountinfo`
	s.Cause, s.Family = "BlockVolumeUnmapFailed", "MountElsewhere"
	s.Says = []string{"Cause: in phase Volumes", "block volume \"data\" (claim ", "is mounted in the mount namespace of sleep (PID ", "Fix: findmnt -N "}
	return s
}

// mapLoop makes a device of the device mapper on the kubelet's loop device, or on a partition of it,
// with the name and the UUID that LVM gives a logical volume.
func mapLoop(mapped, device string, sectors int) string {
	return fmt.Sprintf(`dmsetup create %[1]s --uuid LVM-%[1]s --table "0 %[2]d linear %[3]s 0"
exec 3<&-
`, mapped, sectors, device)
}

// blockMapped is a block volume of which the node has activated a logical volume.
func blockMapped() bed.Scenario {
	const mapped = "scenario--block--mapped-data"
	s := ofBlock("block-mapped", "the node has activated a logical volume on the loop device that the kubelet keeps on the pod's block volume",
		mapLoop(mapped, "$loop", 1024)+keepLoop)
	s.Needs = []bed.Need{bed.DeviceMapper}
	s.Break = bed.OnNode(held3)
	s.Proof = loopLeft + " && ls /sys/block/loop*/holders | grep -q dm-"
	s.Cause, s.Family = "BlockVolumeUnmapFailed", "Mapped"
	s.Says = []string{"Cause: in phase Volumes", "block volume \"data\" (claim ", "logical volume scenario-block-mapped/data is " +
		"active on it", "Fix: dmsetup info " + mapped}
	s.Heal = bed.OnNode("dmsetup remove " + mapped + "\n" + endLoops + runCSI(s.Name))
	return s
}

// blockPartitionMounted is a block volume with a partition, as that of a virtual machine, of which
// somebody has mounted the file system. Native nodes have no files for partitions.
func blockPartitionMounted() bed.Scenario {
	const dir = "/var/lib/scenario-block-partition-mounted.mnt"
	s := ofBlock("block-partition-mounted", "the file system on a partition of the pod's block volume has been mounted on the node, "+
		"from the loop device that the kubelet keeps on it",
		partitionLoop+mountLoop("${loop}p1")+keepLoop)
	s.Needs = []bed.Need{bed.DeviceMapper}
	s.Break = bed.OnNode(held3)
	s.Proof = loopLeft + " && grep -q ' " + dir + " .* /dev/loop[0-9]*p1 ' /proc/self/mountinfo"
	s.Cause, s.Family = "BlockVolumeUnmapFailed", "MountInside"
	s.Says = []string{"Cause: in phase Volumes", "block volume \"data\" (claim ", "its partition \"/dev/loop", "p1\" (ext4) is " +
		"mounted on the node", "umount " + dir}
	s.Heal = bed.OnNode("umount " + dir + "\n" + endLoops + runCSI(s.Name))
	return s
}

// blockPartitionMapped is one with a logical volume on the partition, which is mounted.
func blockPartitionMapped() bed.Scenario {
	const mapped, dir = "scenario--block--partition-data", "/var/lib/scenario-block-partition-mapped.mnt"
	s := ofBlock("block-partition-mapped", "the node has activated a logical volume on a partition of the loop device that the "+
		"kubelet keeps on the pod's block volume, and mounted it",
		partitionLoop+mapLoop(mapped, "${loop}p1", 1024)+mountLoop("/dev/mapper/"+mapped)+keepLoop)
	s.Needs = []bed.Need{bed.DeviceMapper}
	s.Break = bed.OnNode(held3)
	s.Proof = loopLeft + " && ls /sys/block/loop*/loop*p1/holders | grep -q dm- && grep -q ' " + dir + " ' /proc/self/mountinfo"
	s.Cause, s.Family = "BlockVolumeUnmapFailed", "Mapped"
	s.Says = []string{
		"Cause: in phase Volumes", "block volume \"data\" (claim ", "logical volume scenario-block-partition/data, mounted at " + dir + " (ext4), is active on it",
		"Fix: dmsetup info " + mapped, "Fix: umount " + dir + ". Then deactivate it",
	}
	s.Heal = bed.OnNode("umount " + dir + "\ndmsetup remove " + mapped + "\n" + endLoops + runCSI(s.Name))
	return s
}

// blockMappedForAWhile is innocent: the logical volume is deactivated in time.
func blockMappedForAWhile() bed.Scenario {
	const mapped = "scenario--block--mapped--for--a--while-data"
	s := ofBlock("block-mapped-for-a-while", "innocent: a logical volume is active on the pod's block volume for some seconds after the deletion",
		mapLoop(mapped, "$loop", 1024)+keepLoop)
	s.Needs = []bed.Need{bed.DeviceMapper}
	s.Break = bed.OnNode(held3 + `
(while [ -n "$(tasks)" ]; do sleep 1; done; sleep 10; dmsetup remove ` + mapped + `) </dev/null >/dev/null 2>&1 &`)
	s.Proof = loopLeft + " && sleep 3 && dmsetup info " + mapped
	s.Heal = bed.OnNode(endLoops)
	return s
}

// blockMappedMountedAtTimes is one of which the file system on the logical volume is mounted every few
// seconds, as by a program that makes backups. What is told of the mount goes by the moments of the
// readings: that it is there, that it comes and goes, or nothing.
func blockMappedMountedAtTimes() bed.Scenario {
	const name, mapped, dir = "block-mapped-mounted-at-times", "scenario--block--at--times-data", "/var/lib/scenario-block-mapped-mounted-at-times.mnt"
	s := ofBlock(name, "the node has activated a logical volume on the loop device that the kubelet keeps on the pod's block volume, "+
		"and mounts it every few seconds",
		mapLoop(mapped, "$loop", 4096)+`mkfs.ext4 -q -F -O ^has_journal /dev/mapper/`+mapped+`
mkdir -p `+dir+`
(while :; do mount -t ext4 /dev/mapper/`+mapped+` `+dir+` && sleep 3; umount `+dir+` && sleep 3 || sleep 0.2; done) &
echo $! >/run/scenario-'$NAME'.mounter
`+keepLoop)
	s.Needs = []bed.Need{bed.DeviceMapper}
	s.Break = bed.OnNode(held3)
	s.Proof = loopLeft + " && dmsetup info " + mapped + " && kill -0 $(cat /run/scenario-$NAME.mounter)"
	s.Cause, s.Family = "BlockVolumeUnmapFailed", "Mapped"
	s.Says = []string{"Cause: in phase Volumes", "block volume \"data\" (claim ", "logical volume scenario-block-at-times/data", "is " +
		"active on it", "Fix: dmsetup info " + mapped, "Fix: eactivate it"}
	s.Heal = bed.OnNode("end KILL /run/scenario-$NAME.mounter\numount " + dir + " || :\nwhile dmsetup info " + mapped + " >/dev/null " +
		"2>&1 && ! dmsetup remove " + mapped + "; do sleep 1; umount " + dir + " || :; done\n" + endLoops + runCSI(s.Name))
	return s
}

// blockMountedInTurn is one of which the file system is mounted at a new place each time before the
// last mount ends.
func blockMountedInTurn() bed.Scenario {
	const name, dir = "block-mounted-in-turn", "/var/lib/scenario-block-mounted-in-turn.mnt"
	s := ofBlock(name, "the file system on the pod's block volume is mounted on the node at one place after another, from the loop "+
		"device that the kubelet keeps on it",
		`mkfs.ext4 -q -F -O ^has_journal $loop
mkdir -p `+dir+`.0 `+dir+`.1 `+dir+`.2 `+dir+`.3 `+dir+`.4
mount -t ext4 $loop `+dir+`.0
exec 3<&-
echo $$ >/run/scenario-'$NAME'.holder
n=0
while :; do last=$n; n=$(((n+1)%5)); mount -t ext4 $loop `+dir+`.$n; umount `+dir+`.$last; sleep 3; done`)
	s.Break = bed.OnNode(held3)
	s.Proof = loopLeft + " && grep -q ' " + dir + "\\.[0-4] ' /proc/self/mountinfo"
	s.Cause, s.Family = "BlockVolumeUnmapFailed", "MountInside"
	s.Says = []string{"Cause: Probably stuck in phase Volumes", "block volume \"data\" (claim ", "one thing after another uses it, " +
		"now a mount at " + dir, "Fix: findmnt shows the present mount"}
	s.Heal = bed.OnNode("end KILL /run/scenario-$NAME.holder\nfor n in 0 1 2 3 4; do umount " + dir + ".$n || :; done\n" + endLoops + runCSI(s.Name))
	return s
}

// assembleLoop makes a software RAID of the kubelet's loop device, as the guest of a virtual machine
// does, and has udev find and assemble it. The loop device has to stay in use meanwhile.
func assembleLoop(name string) string {
	return `modprobe -a md_mod raid1
mdadm --create /dev/md/` + name + ` --homehost=any --run --force --assume-clean --level=1 --raid-devices=1 $loop
mdadm --stop /dev/md/` + name + `
udevadm settle
until ls /sys/block/${loop##*/}/holders | grep md; do
  udevadm trigger --action=change --name-match=$loop
  udevadm settle
  sleep 1
done
exec 3<&-
`
}

const (
	// findRAID finds the software RAID that the kubelet's loop device is part of: udev may give it
	// another name than it had.
	findRAID = `array=$(for loop in /sys/block/loop*/loop/backing_file; do
  case $(cat $loop) in */volumeDevices/*-$NAME/dev/*) ls ${loop%/loop/backing_file}/holders ;; esac
done)
`
	stopRAID = findRAID + `[ -z "$array" ] || mdadm --stop /dev/$array
`
	// inRAID succeeds when there is one.
	inRAID = loopLeft + ` && { ` + findRAID + `[ -e /sys/block/$array/md ]; }`
)

// blockRAID is a block volume with a part of a software RAID on it, which the node has assembled.
func blockRAID() bed.Scenario {
	s := ofBlock("block-raid", "the node has assembled the software RAID that is on the pod's block volume, from the loop device that the kubelet keeps on it",
		assembleLoop("scenario-block-raid")+keepLoop)
	s.Needs = []bed.Need{bed.RAID}
	s.Break = bed.OnNode(held3)
	s.Proof = inRAID
	s.Cause, s.Family = "BlockVolumeUnmapFailed", "RAID"
	s.Says = []string{"Cause: in phase Volumes", "block volume \"data\" (claim ", "software RAID md", " is assembled on it", "Fix: mdadm --stop /dev/md"}
	s.Heal = bed.OnNode(stopRAID + endLoops + runCSI(s.Name))
	return s
}

// blockRAIDForAWhile is innocent: the RAID is stopped in time.
func blockRAIDForAWhile() bed.Scenario {
	s := ofBlock("block-raid-for-a-while", "innocent: a software RAID on the pod's block volume is assembled on the node for some seconds after the deletion",
		assembleLoop("scenario-block-raid-for-a-while")+keepLoop)
	s.Needs = []bed.Need{bed.RAID}
	s.Break = bed.OnNode(held3 + "\n" + findRAID + `(while [ -n "$(tasks)" ]; do sleep 1; done; sleep 10; mdadm --stop /dev/$array) </dev/null >/dev/null 2>&1 &`)
	s.Proof = loopLeft + " && sleep 3 && " + inRAID
	s.Heal = bed.OnNode(endLoops)
	return s
}

// blockUsed is innocent: who has mounted what is on the block volume lets it go in time.
func blockUsed() bed.Scenario {
	s := ofBlock("block-used", "innocent: the file system on the pod's block volume is mounted in a mount namespace of a process's "+
		"own for some seconds after the deletion",
		`exec unshare -m --propagation slave sh -e -c "`+mountLoop("$loop")+keepLoop+`"`)
	s.Break = bed.OnNode(held3 + `
setsid sh -c "sleep 12; kill -KILL $(cat /run/scenario-$NAME.holder)" </dev/null >/dev/null 2>&1 &`)
	s.Proof = loopLeft
	s.Heal = bed.OnNode("end KILL /run/scenario-$NAME.source")
	return s
}

func blockUnpublishFails() bed.Scenario {
	const name = "block-unpublish-fails"
	s := ofBlock(name, "a CSI driver fails to unpublish a block volume", freeLoop)
	s.Break = bed.OnNode(tellCSI(name, "fail"))
	s.Cause = "CSINodeUnpublishFailing"
	s.Says = []string{"Cause: in phase Volumes", "volume \"data\" (claim " + name, "Seen: PersistentVolume scenarios-", "CSI driver " +
		"" + csiName(name), "NodeUnpublishVolume", "Internal"}
	return s
}

// blockUnpublishSlow is innocent: what is open is the device itself, which is in nobody's
// way.
func blockUnpublishSlow() bed.Scenario {
	const name = "block-unpublish-slow"
	s := ofBlock(name, "innocent: the CSI driver takes 20 seconds to unpublish a block volume, whose device a process of the node has open", freeLoop)
	s.Break = bed.OnNode(tellCSI(name, "slow"))
	s.Heal = bed.OnNode(endLoops)
	return s
}

// cgroupForeign is a process of the node that somebody puts into the pod's control group,
// and that the kernel cannot end. What SIGKILL ends holds nothing up: the kubelet has killed
// it, and removed the group, before anybody can put another one there.
func cgroupForeign() bed.Scenario {
	const name = "cgroup-foreign"
	return bed.Scenario{
		Name:  name,
		Story: "a process of the node is in the pod's control group, waits for a FUSE daemon, and cannot be killed by the kubelet",
		Fault: bed.Fault{
			Pod:     victim(3, "drain", "0"),
			Prepare: mountFUSE(name),
			Break: bed.OnNode(`setsid head -c 1 ` + directory(name) + `/read </dev/null >/dev/null 2>&1 &
reader=$!
until [ "$(wchan $reader)" = request_wait_answer ]; do sleep 0.2; done
for group in /sys/fs/cgroup/kubepods*/*/*$CGROUP* /sys/fs/cgroup/*/kubepods*/*/*$UID_*; do
  [ -e $group ] || continue
  [ ! -e $group/cgroup.controllers ] || { group=$group/foreign; mkdir $group; }
  echo $reader >$group/cgroup.procs
done`),
			Proof: "some D 100",
			Heal:  bed.OnNode(unmountFUSE(name)),
		},
		Want: bed.Want{
			Cause:  "UninterruptibleSleep",
			Family: "FUSE",
			Says: []string{"Cause: in phase Cleanup", "in the pod's cgroup, outside all containers", "SIGKILL cannot end head (PID ", "thread " +
				"in D state", "Seen: (head) has a pending SIGKILL", "Seen: request_wait_answer", "fuse.hang", directory(name)},
		},
	}
}

// csiRecordLost is a volume of which the kubelet's record is empty, as after a power failure.
func csiRecordLost() bed.Scenario {
	const name, record = "csi-record-lost", "/var/lib/kubelet/pods/$UID_/volumes/kubernetes.io~csi/data/vol_data.json"
	s := ofCSI(name, "the kubelet's record of a CSI volume has been truncated", "cp "+record+" /run/scenario-$NAME.record\n: >"+record, "CSIVolumeRecordLost")
	s.Says = []string{"Cause: in phase Volumes", "volume \"data\" cannot be unmounted: the kubelet's record of its CSI driver is missing or invalid",
		"Seen: no valid vol_data.json beside that mount", "Fix: umount /var/lib/kubelet/pods/"}
	s.Heal = bed.OnNode("cp /run/scenario-$NAME.record " + record)
	return s
}

// csiRecordLostUnmounted is one of which nothing is mounted any more either. The remedy has the kubelet forget the volume.
func csiRecordLostUnmounted() bed.Scenario {
	const name, volume = "csi-record-lost-unmounted", "/var/lib/kubelet/pods/$UID_/volumes/kubernetes.io~csi/data"
	s := ofCSI(name, "somebody has unmounted a CSI volume and removed the kubelet's record of it",
		"umount "+volume+"/mount\nrm "+volume+"/vol_data.json", "CSIVolumeRecordLost")
	s.Family = "Unmounted"
	s.Proof = "[ -d " + volume + ` ] && [ -z "$(tasks)" ]`
	s.Says = []string{"Cause: in phase Volumes", "Fix: systemctl restart kubelet",
		"the kubelet's record of its CSI driver is missing or invalid, and nothing is mounted there", "Seen: no valid vol_data.json"}
	s.Heal = bed.OnNode(configs + "restart")
	return s
}
