package diagnose_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

const (
	podUID     = "0b4ddc3e-1111-4222-8333-444455556666"
	csiDriver  = "disk.example.org"
	volumesDir = "/var/lib/kubelet/pods/" + podUID + "/volumes/"
)

// unmounting is a pod whose containers have ended, and which has been at the same
// stage for the time past its deadline. A CSI volume and an emptyDir are left.
func unmounting(past time.Duration, change func(p *evidence.Pod)) *evidence.Pod {
	deadline := requested.Add(30 * time.Second)
	p := &evidence.Pod{
		Time: deadline.Add(past), UnchangedSince: deadline, Namespace: "shop", Name: "web-0", UID: podUID, RuntimeUID: podUID,
		Phase: "Succeeded", DeletionRequested: requested, Deadline: deadline, GracePeriodSeconds: 30,
		Mounts: []evidence.Mount{{
			ID: 7, Device: "8:16", Point: volumesDir + "kubernetes.io~csi/data/mount", HostPoint: volumesDir + "kubernetes.io~csi/data/mount",
			Type: "ext4", Source: "/dev/sdb", Volume: "data", Plugin: "kubernetes.io~csi",
		}},
		Containers: []evidence.Container{{Name: "main", Kind: evidence.App, Exit: &evidence.Exit{At: deadline}}},
		Volumes: []evidence.Volume{
			{Name: "data", Plugin: "kubernetes.io~csi", Driver: csiDriver},
			{Name: "scratch", Plugin: "kubernetes.io~empty-dir"},
		},
	}
	p.Node.Unmounting, p.Node.Pressure = 1, new(evidence.Pressure)
	p.Node.Kubelet.VolumeCallsRead = p.Time
	p.Node.Kubelet.Process = &evidence.Task{PID: 9, TID: 9, Comm: "kubelet", State: evidence.Sleeping, Owner: "kubelet"}
	change(p)
	return p
}

// called adds calls to the driver, and attempts at a volume, that the kubelet counts
// for the last time so long before the reading.
func called(p *evidence.Pod, status string, before time.Duration) {
	p.Node.Kubelet.VolumeCalls = append(p.Node.Kubelet.VolumeCalls, evidence.VolumeCall{
		Plugin: "kubernetes.io/csi", Driver: csiDriver, Method: evidence.NodeUnpublish, Status: status, Count: 3, Rose: p.Time.Add(-before),
	})
}

func tried(p *evidence.Pod, plugin, driver string, before time.Duration) {
	p.Node.Kubelet.VolumeCalls = append(p.Node.Kubelet.VolumeCalls, evidence.VolumeCall{
		Plugin: plugin, Driver: driver, Method: evidence.VolumeUnmount, Status: "fail-unknown", Count: 3, Rose: p.Time.Add(-before),
	})
}

func holder(p *evidence.Pod, comm, owner string, mount int, held time.Duration) {
	p.Holders = append(p.Holders, evidence.Holder{
		Task: evidence.Task{PID: 70, TID: 70, Comm: comm, Owner: owner, Cgroup: "/system.slice/backup.service"}, MountID: mount,
		Via: "an open file", Since: p.Time.Add(-held),
	})
}

// driverHolds has a process of the volume's own CSI driver, which is a pod, hold the mount.
func driverHolds(p *evidence.Pod) {
	p.Volumes[0].DriverPod, p.Volumes[0].DriverPodState = "kube-system/disk-x", evidence.DriverRunning
	holder(p, "sync", "1c4ddc3e-1111-4222-8333-444455556666", 7, 12*time.Second)
	p.Holders[0].OwnerName, p.Holders[0].Via = "kube-system/disk-x", "an open file, in a mount namespace of its own"
}

// kubeletHangs blocks a thread of the kubelet in a call on one of the pod's volumes.
func kubeletHangs(p *evidence.Pod, state evidence.TaskState, path string, since time.Duration) {
	p.Node.Kubelet.Blocked = append(p.Node.Kubelet.Blocked, evidence.Task{
		PID: 9, TID: 11, Comm: "kubelet", Owner: "kubelet", State: state, UnchangedSince: p.Time.Add(-since),
		Probe: &evidence.Probe{Syscall: "newfstatat", VolumePath: path, Wchan: "request_wait_answer"},
	})
}

// umounts blocks a process of another pod in umount2, at a path by which the pod's
// volume is called.
func umounts(p *evidence.Pod, pod string) {
	p.Node.Blocked = []evidence.Task{{
		PID: 60, TID: 60, Comm: "driver", State: evidence.Uninterruptible, UnchangedSince: p.Time.Add(-12 * time.Second),
		Owner: "1c4ddc3e-1111-4222-8333-444455556666", OwnerName: pod,
		Probe: &evidence.Probe{Syscall: "umount2", VolumePath: volumesDir + "kubernetes.io~csi/data/mount", Wchan: "jbd2_log_wait_commit"},
	}}
}

const (
	devicesDir = "/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/"
	ownDevice  = devicesDir + "pv-7/dev/" + podUID
	published  = devicesDir + "publish/pv-7/" + podUID
)

// block makes the CSI volume a block device, of which these mounts are left.
func block(p *evidence.Pod, points ...string) {
	p.Cgroups = []evidence.Cgroup{{Path: "/kubepods/besteffort/pod" + podUID, Version: 2}}
	p.Mounts, p.Volumes = nil, []evidence.Volume{{Name: "pv-7", Plugin: "kubernetes.io~csi", Block: true, Driver: csiDriver}}
	for i, point := range points {
		p.Devices = append(p.Devices, evidence.Mount{ID: 7 + i, Device: "0:6", Root: "/loop3", Point: point, HostPoint: point, Type: "devtmpfs",
			Source: "udev", Volume: "pv-7", Plugin: "kubernetes.io~csi"})
	}
}

// unmapped adds attempts at a block device that have failed.
func unmapped(p *evidence.Pod, before time.Duration) {
	tried(p, "kubernetes.io/csi", csiDriver, before)
	p.Node.Kubelet.VolumeCalls[len(p.Node.Kubelet.VolumeCalls)-1].Method = evidence.VolumeUnmap
}

// looped puts a loop device on the kubelet's mount of the block device.
func looped(p *evidence.Pod, since time.Duration, change func(l *evidence.Loop)) {
	p.Loops = []evidence.Loop{{Name: "loop9", MountID: 7, Since: p.Time.Add(-since)}}
	change(&p.Loops[0])
}

// flaps has the first device on the loop device be there for so long, and its file system be mounted so often.
func flaps(p *evidence.Pod, since time.Duration, mounts int, now *evidence.Mount) {
	d := &p.Loops[0].Mapper[0]
	d.Since, d.MountSince, d.Mounts, d.Mount = p.Time.Add(-since), p.Time.Add(-2*time.Second), mounts, now
	d.Unmounted = &evidence.Mount{ID: 91, Device: "254:0", Point: "/media/a", HostPoint: "/media/a", Type: "ext4", Source: "/dev/mapper/guest-root"}
}

// ofAnother is the mount of a device's file system as a volume of another pod.
func ofAnother(device, source string) *evidence.Mount {
	const at = "/var/lib/kubelet/pods/1c4ddc3e-1111-4222-8333-444455556666/volumes/kubernetes.io~csi/pv-8/mount"
	return &evidence.Mount{ID: 91, Device: device, Point: at, HostPoint: at, Type: "ext4", Source: source, Volume: "pv-8", Plugin: "kubernetes.io~csi"}
}

// later has a process hold the CSI volume's mount that was started so long after the containers
// had ended.
func later(p *evidence.Pod, after time.Duration) {
	p.Containers = []evidence.Container{{Name: "main", Kind: evidence.App, Exit: &evidence.Exit{At: p.Deadline}}}
	holder(p, "rsync", "", 7, 12*time.Second)
	p.Holders[0].Probe = &evidence.Probe{Start: 1, Started: p.Deadline.Add(after)}
}

// unseenNFS makes the CSI volume one of NFS, of which so many requests have no answer, and
// blocks a thread of the kubelet on a volume that is not known.
func unseenNFS(p *evidence.Pod, unanswered *int) {
	m := &p.Mounts[0]
	m.Type, m.Source, m.Server, m.Connection, m.Unanswered = "nfs4", "192.0.2.1:/export", "192.0.2.1", evidence.Established, unanswered
	kubeletHangs(p, evidence.Uninterruptible, "", 40*time.Second)
	t := &p.Node.Kubelet.Blocked[0]
	t.UnchangedUntil = p.Time
	hangs(t, "rpc_wait_bit_killable", "rpc_wait_bit_killable", "nfs4_proc_getattr")
}

func TestStorageCauses(t *testing.T) {
	logicalVolume := func(l *evidence.Loop) { l.Mapper = []evidence.Mapped{{Name: "guest-root", Logical: "guest/root"}} }
	const csiMount = volumesDir + "kubernetes.io~csi/data/mount"
	fuse := func(p *evidence.Pod) {
		p.Mounts[0].Type, p.Mounts[0].Device, p.Mounts[0].Source = "fuse.gcsfuse", "0:77", "bucket"
	}
	inner := func(p *evidence.Pod, point string) {
		p.Mounts = append(p.Mounts, evidence.Mount{ID: 8, ParentID: 7, Device: "0:60", Point: point, Type: "tmpfs", Source: "tmpfs",
			Volume: "data", Plugin: "kubernetes.io~csi"})
	}
	for name, tc := range map[string]struct {
		past   time.Duration
		change func(p *evidence.Pod)
		want   string // "" for silence
		proved bool
		says   []string
	}{
		"the driver fails": {90 * time.Second, func(p *evidence.Pod) { called(p, "Internal", 20*time.Second) },
			"CSINodeUnpublishFailing", true, []string{`volume "data"`, csiDriver, "Internal"}},
		"the driver fails, and other pods' volumes are taken down too": {90 * time.Second, func(p *evidence.Pod) {
			p.Node.Unmounting = 2
			called(p, "Internal", 20*time.Second)
		}, "CSINodeUnpublishFailing", false, []string{"or another one of this node: NodeUnpublishVolume"}},
		"the driver fails, and two of its volumes are left": {90 * time.Second, func(p *evidence.Pod) {
			p.Volumes = append(p.Volumes, evidence.Volume{Name: "more", Plugin: "kubernetes.io~csi", Driver: csiDriver})
			called(p, "Internal", 20*time.Second)
		}, "CSINodeUnpublishFailing", false, []string{`volume "data", "more"`}},
		"the driver fails, and nobody knows for whom": {90 * time.Second, func(p *evidence.Pod) {
			p.Node.Unmounting = 0
			called(p, "Internal", 20*time.Second)
		}, "CSINodeUnpublishFailing", false, nil},
		"the driver failed, and another pod's volume was taken down until a moment ago": {90 * time.Second, func(p *evidence.Pod) {
			p.Node.UnmountingUntil = p.Time.Add(-19 * time.Second)
			called(p, "Internal", 20*time.Second)
		}, "CSINodeUnpublishFailing", false, []string{"or another one of this node: NodeUnpublishVolume"}},
		"the driver failed once more since the other pod is gone": {90 * time.Second, func(p *evidence.Pod) {
			p.Node.UnmountingUntil = p.Time.Add(-21 * time.Second)
			called(p, "Internal", 20*time.Second)
		}, "CSINodeUnpublishFailing", true, nil},
		"the driver did not answer for a pod that is gone, and fails for this one": {150 * time.Second, func(p *evidence.Pod) {
			p.Node.UnmountingUntil = p.Time.Add(-50 * time.Second)
			called(p, "DeadlineExceeded", 60*time.Second)
			called(p, "Internal", 20*time.Second)
		}, "CSINodeUnpublishFailing", true, []string{"Internal"}},
		"the driver did not answer, for this pod or one that is gone": {150 * time.Second, func(p *evidence.Pod) {
			p.Node.UnmountingUntil = p.Time.Add(-50 * time.Second)
			called(p, "DeadlineExceeded", 60*time.Second)
		}, "CSINodeUnpublishHanging", false, []string{"or another one of this node"}},
		"the driver fails, and has succeeded since": {90 * time.Second, func(p *evidence.Pod) {
			called(p, "Internal", 20*time.Second)
			called(p, "OK", 10*time.Second)
		}, "", false, nil},
		"a subpath is left, and the driver failed and succeeded since": {90 * time.Second, func(p *evidence.Pod) {
			p.Volumes[0].Subpaths = 1
			called(p, "Internal", 20*time.Second)
			called(p, "OK", 10*time.Second)
			tried(p, "kubernetes.io/csi", csiDriver, 20*time.Second)
		}, "", false, nil},
		"a block device is left, and the driver failed at another one and succeeded since": {90 * time.Second, func(p *evidence.Pod) {
			block(p, ownDevice, published)
			called(p, "Internal", 20*time.Second)
			called(p, "OK", 10*time.Second)
			unmapped(p, 20*time.Second)
		}, "", false, nil},
		"an emptyDir of a pod that is gone could not be removed": {90 * time.Second, func(p *evidence.Pod) {
			p.Node.UnmountingUntil = p.Time.Add(-10 * time.Second)
			tried(p, "kubernetes.io/empty-dir", "", 20*time.Second)
		}, "VolumeDirTeardownFailed", false, []string{"or another one of this node"}},
		"a subpath of a pod that is gone could not be removed": {90 * time.Second, func(p *evidence.Pod) {
			p.Node.UnmountingUntil = p.Time.Add(-10 * time.Second)
			p.Volumes[1].Subpaths = 1
			tried(p, "kubernetes.io/empty-dir", "", 20*time.Second)
		}, "SubPathCleanupFailed", false, nil},
		"a block device of a pod that is gone could not be taken back": {90 * time.Second, func(p *evidence.Pod) {
			p.Node.UnmountingUntil = p.Time.Add(-10 * time.Second)
			block(p, ownDevice, published)
			unmapped(p, 20*time.Second)
		}, "BlockVolumeUnmapFailed", false, []string{"or another one of this node"}},
		"a driver that is away for a moment, and answered another pod before": {90 * time.Second, func(p *evidence.Pod) {
			p.Node.Unmounting = 2
			p.Volumes[0].Unregistered = true
			tried(p, "kubernetes.io/csi", csiDriver, 40*time.Second)
			called(p, "Internal", 40*time.Second)
			called(p, "OK", 20*time.Second)
		}, "", false, nil},
		"the driver has failed for less than a minute": {59 * time.Second, func(p *evidence.Pod) { called(p, "Internal", 20*time.Second) }, "", false, nil},
		"the driver failed before this stage":          {90 * time.Second, func(p *evidence.Pod) { called(p, "Internal", 91*time.Second) }, "", false, nil},
		"the driver failed before anybody looked": {90 * time.Second, func(p *evidence.Pod) {
			called(p, "Internal", 0)
			p.Node.Kubelet.VolumeCalls[0].Rose = time.Time{}
		}, "", false, nil},
		"another driver fails": {90 * time.Second, func(p *evidence.Pod) {
			called(p, "Internal", 20*time.Second)
			p.Node.Kubelet.VolumeCalls[0].Driver = "nfs.example.org"
		}, "", false, nil},
		"the driver's last call succeeds, perhaps for another pod": {90 * time.Second, func(p *evidence.Pod) {
			p.Node.Unmounting = 2
			called(p, "Internal", 20*time.Second)
			called(p, "OK", 10*time.Second)
		}, "", false, nil},
		"the driver's name is not known": {90 * time.Second, func(p *evidence.Pod) {
			p.Volumes[0].Driver = ""
			called(p, "Internal", 20*time.Second)
		}, "", false, nil},
		"nobody answers at the driver's socket": {90 * time.Second, func(p *evidence.Pod) {
			called(p, "Unavailable", 20*time.Second)
			tried(p, "kubernetes.io/csi", csiDriver, 20*time.Second)
		}, "CSINodeUnpublishFailing", true, []string{"Unavailable", "the driver's pod on this node", "a container that is not running"}},
		"the driver does not answer": {150 * time.Second, func(p *evidence.Pod) { called(p, "DeadlineExceeded", 20*time.Second) },
			"CSINodeUnpublishHanging", true, []string{csiDriver}},
		"the driver does not answer, and refuses a second call meanwhile": {150 * time.Second, func(p *evidence.Pod) {
			called(p, "DeadlineExceeded", 60*time.Second)
			called(p, "Aborted", 20*time.Second)
		}, "CSINodeUnpublishHanging", true, nil},
		"no driver of that name": {90 * time.Second, func(p *evidence.Pod) {
			p.Volumes[0].Unregistered = true
			tried(p, "kubernetes.io/csi", csiDriver, 20*time.Second)
		}, "CSIDriverNotRegistered", true, []string{csiDriver}},
		"the driver fails, and its pod is known": {90 * time.Second, func(p *evidence.Pod) {
			called(p, "Internal", 20*time.Second)
			p.Volumes[0].DriverPod, p.Volumes[0].DriverPodState = "kube-system/disk-x", evidence.DriverRunning
		}, "CSINodeUnpublishFailing", true, []string{"the log of pod kube-system/disk-x (running)"}},
		"no driver of that name, though its pod is there": {90 * time.Second, func(p *evidence.Pod) {
			p.Volumes[0].Unregistered, p.Volumes[0].DriverPod, p.Volumes[0].DriverPodState = true, "kube-system/disk-x", evidence.DriverNotReady
			tried(p, "kubernetes.io/csi", csiDriver, 20*time.Second)
		}, "CSIDriverNotRegistered", true, []string{"check why the driver's pod kube-system/disk-x (not ready) does not register"}},
		"no driver of that name, and its pod is deleted itself": {90 * time.Second, func(p *evidence.Pod) {
			p.Volumes[0].Unregistered, p.Volumes[0].DriverPod, p.Volumes[0].DriverPodState = true, "kube-system/disk-x", evidence.DriverTerminating
			tried(p, "kubernetes.io/csi", csiDriver, 20*time.Second)
		}, "CSIDriverNotRegistered", true, []string{"find what keeps the driver's pod kube-system/disk-x terminating"}},
		"no driver of that name, and no attempt": {90 * time.Second, func(p *evidence.Pod) { p.Volumes[0].Unregistered = true }, "", false, nil},
		"a driver with a socket of another name": {90 * time.Second, func(p *evidence.Pod) {
			p.Volumes[0].Unregistered = true
			tried(p, "kubernetes.io/csi", csiDriver, 20*time.Second)
			called(p, "Internal", 20*time.Second)
		}, "CSINodeUnpublishFailing", true, nil},
		"a driver that is there, and is not asked": {90 * time.Second, func(p *evidence.Pod) {
			tried(p, "kubernetes.io/csi", csiDriver,
				20*time.Second)
		}, "", false, nil},
		"only the directory of the CSI volume is left": {90 * time.Second, func(p *evidence.Pod) {
			p.Mounts = nil
			called(p, "Internal", 20*time.Second)
			tried(p, "kubernetes.io/csi", csiDriver, 20*time.Second)
		}, "CSINodeUnpublishFailing", true, nil},

		"the kubelet's record of a volume is lost": {90 * time.Second, func(p *evidence.Pod) { p.Volumes[0].Driver, p.Volumes[0].NoRecord = "", true },
			"CSIVolumeRecordLost", true, []string{`volume "data" cannot be unmounted: the kubelet's record of its CSI driver is missing or invalid`,
				"no valid vol_data.json beside that mount", "umount " + csiMount}},
		"it has been lost for less than a minute": {59 * time.Second, func(p *evidence.Pod) {
			p.Volumes[0].Driver, p.Volumes[0].NoRecord = "",
				true
		}, "", false, nil},
		"it is lost, and the kubelet tries all the same": {90 * time.Second, func(p *evidence.Pod) {
			p.Volumes[0].Driver, p.Volumes[0].NoRecord = "", true
			tried(p, "kubernetes.io/csi", "", 20*time.Second)
		}, "", false, nil},
		"it is lost, and so is the mount": {90 * time.Second, func(p *evidence.Pod) {
			p.Mounts, p.Volumes[0].Driver, p.Volumes[0].NoRecord = nil, "", true
		}, "", false, nil},
		"it could not be read": {90 * time.Second, func(p *evidence.Pod) { p.Volumes[0].Driver = "" }, "", false, nil},
		"it is lost, and a process holds the mount": {90 * time.Second, func(p *evidence.Pod) {
			p.Volumes[0].Driver, p.Volumes[0].NoRecord = "", true
			holder(p, "rsync", "", 7, 80*time.Second)
		}, "CSIVolumeRecordLost", true, nil},
		"it has been lost for less than a minute, and a process holds the mount": {30 * time.Second, func(p *evidence.Pod) {
			p.Volumes[0].Driver, p.Volumes[0].NoRecord = "", true
			holder(p, "rsync", "", 7, 25*time.Second)
		}, "", false, nil},
		"a process holds the mount": {30 * time.Second, func(p *evidence.Pod) { holder(p, "rsync", "", 7, 12*time.Second) },
			"VolumeUnmountBusy", false, []string{"rsync (PID 70, of backup.service)", "an open file"}},
		"a process has held the mount for 9 seconds": {30 * time.Second, func(p *evidence.Pod) { holder(p, "rsync", "", 7, 9*time.Second) }, "", false, nil},
		"a process that was started when the containers had ended holds the mount": {60 * time.Second, func(p *evidence.Pod) { later(p, 20*time.Second) },
			"VolumeUnmountBusy", false, []string{"rsync (PID 70, of backup.service)"}},
		"a process that was started just before they had ended holds it": {60 * time.Second, func(p *evidence.Pod) { later(p, -time.Second) },
			"VolumeUnmountBusy", false, nil},
		"the driver fails, and a process that was started since holds the mount": {90 * time.Second, func(p *evidence.Pod) {
			later(p, 20*time.Second)
			called(p, "Internal", 20*time.Second)
		}, "CSINodeUnpublishFailing", true, nil},
		"the driver fails, and a process that was there before holds the mount": {90 * time.Second, func(p *evidence.Pod) {
			later(p, -time.Second)
			called(p, "Internal", 20*time.Second)
		}, "VolumeUnmountBusy", true, nil},
		"a process holds another mount": {30 * time.Second, func(p *evidence.Pod) { holder(p, "rsync", "", 99, 12*time.Second) }, "", false, nil},
		"a shim holds the mount": {30 * time.Second, func(p *evidence.Pod) { holder(p, "containerd-shim", "shim", 7, 12*time.Second) },
			"VolumeUnmountBusy", false, []string{": do not stop it"}},
		"the driver fails because a process holds the mount": {90 * time.Second, func(p *evidence.Pod) {
			holder(p, "rsync", "", 7, 80*time.Second)
			called(p, "Internal", 20*time.Second)
		}, "VolumeUnmountBusy", true, nil},
		"a process holds the mount, and nobody answers at the driver's socket": {90 * time.Second, func(p *evidence.Pod) {
			holder(p, "rsync", "", 7, 80*time.Second)
			called(p, "Unavailable", 20*time.Second)
		}, "CSINodeUnpublishFailing", true, nil},
		"a mount inside of the mount, and no driver of that name": {90 * time.Second, func(p *evidence.Pod) {
			inner(p, csiMount+"/private")
			p.Volumes[0].Unregistered = true
			tried(p, "kubernetes.io/csi", csiDriver, 20*time.Second)
		}, "CSIDriverNotRegistered", true, nil},
		"the process that unmounts has the mount open": {30 * time.Second, func(p *evidence.Pod) { holder(p, "umount", "", 7, 12*time.Second) }, "", false, nil},
		"a mount inside of the mount": {30 * time.Second, func(p *evidence.Pod) { inner(p, csiMount+"/private") },
			"VolumeUnmountBusy", false, []string{"tmpfs (source tmpfs) is mounted inside it", "grep " + csiMount + "/ /proc/1/mountinfo lists what is mounted inside"}},
		"a mount that has just come": {30 * time.Second, func(p *evidence.Pod) {
			inner(p, csiMount+"/private")
			p.UnchangedSince = p.Time.Add(-9 * time.Second)
		}, "", false, nil},

		"the kubelet waits for a FUSE daemon": {30 * time.Second, func(p *evidence.Pod) {
			fuse(p)
			kubeletHangs(p, evidence.Sleeping, csiMount, 12*time.Second)
		}, "VolumeUnmountHanging", true, []string{`volume "data"`, "kubelet (PID 9)", "Thread 11", "fuse.gcsfuse", "Check the pod of its CSI driver on this node", "/sys/fs/fuse/connections/77/abort"}},
		"the kubelet waits for a FUSE daemon, and the pod of the CSI driver is known": {30 * time.Second, func(p *evidence.Pod) {
			fuse(p)
			p.Volumes[0].DriverPod, p.Volumes[0].DriverPodState = "kube-system/disk-x", evidence.DriverRunning
			kubeletHangs(p, evidence.Sleeping, csiMount, 12*time.Second)
		}, "VolumeUnmountHanging", true, []string{"Check pod kube-system/disk-x of its CSI driver"}},
		"the kubelet waits for a FUSE daemon, and the volume is of no CSI driver": {30 * time.Second, func(p *evidence.Pod) {
			fuse(p)
			p.Mounts[0].Plugin, p.Mounts[0].Point, p.Mounts[0].HostPoint = "example.org~bucket", volumesDir+"example.org~bucket/data",
				volumesDir+"example.org~bucket/data"
			p.Volumes[0].Plugin, p.Volumes[0].Driver = "example.org~bucket", ""
			kubeletHangs(p, evidence.Sleeping, volumesDir+"example.org~bucket/data", 12*time.Second)
		}, "VolumeUnmountHanging", true, []string{"Check the process that has /dev/fuse open for it"}},
		"the kubelet has waited for a FUSE daemon for 9 seconds": {30 * time.Second, func(p *evidence.Pod) {
			fuse(p)
			kubeletHangs(p, evidence.Sleeping, csiMount, 9*time.Second)
		}, "", false, nil},
		"the kubelet waits for a FUSE daemon whose mount is inside the volume's": {30 * time.Second, func(p *evidence.Pod) {
			kubeletHangs(p, evidence.Sleeping, csiMount, 12*time.Second)
		}, "", false, nil},
		"the kubelet waits in another pod's volume": {30 * time.Second, func(p *evidence.Pod) {
			fuse(p)
			kubeletHangs(p, evidence.Uninterruptible, strings.ReplaceAll(csiMount, podUID, "another"), 12*time.Second)
		}, "", false, nil},
		"the kubelet waits for its own disk": {30 * time.Second, func(p *evidence.Pod) {
			kubeletHangs(p, evidence.Uninterruptible, volumesDir+"kubernetes.io~empty-dir/scratch", 12*time.Second)
		}, "", false, nil},
		"umount hangs, and has detached the mount": {30 * time.Second, func(p *evidence.Pod) {
			p.Mounts = nil
			p.Node.Blocked = []evidence.Task{{
				PID: 60, TID: 60, PPID: 9, Comm: "umount", State: evidence.Uninterruptible, UnchangedSince: p.Time.Add(-12 * time.Second),
				Probe: &evidence.Probe{Syscall: "umount2", VolumePath: csiMount, Wchan: "jbd2_log_wait_commit"},
			}}
		}, "VolumeUnmountHanging", true, []string{`volume "data": a thread of umount (PID 60) is blocked`, "Thread 60 is in state", "the file system (already detached) does not respond"}},
		"the kubelet only asks how full the volume is": {30 * time.Second, func(p *evidence.Pod) {
			fuse(p)
			kubeletHangs(p, evidence.Sleeping, csiMount, 12*time.Second)
			p.Node.Kubelet.Blocked[0].Probe.Syscall = "statfs"
		}, "VolumeUnmountHanging", false, []string{"is blocked before unmounting it"}},
		"the kubelet asks how full it is, and unmounts it": {30 * time.Second, func(p *evidence.Pod) {
			fuse(p)
			kubeletHangs(p, evidence.Sleeping, csiMount, 12*time.Second)
			p.Node.Kubelet.Blocked[0].Probe.Syscall = "statfs"
			kubeletHangs(p, evidence.Sleeping, csiMount, 11*time.Second)
		}, "VolumeUnmountHanging", true, nil},
		"another pod has a path of that name": {30 * time.Second, func(p *evidence.Pod) { umounts(p, "evil/pod") }, "", false, nil},
		"the driver's pod hangs in umount": {30 * time.Second, func(p *evidence.Pod) {
			umounts(p, "kube-system/disk-x")
			p.Volumes[0].DriverPod = "kube-system/disk-x"
		}, "VolumeUnmountHanging", true, []string{"a thread of driver (PID 60, of pod kube-system/disk-x) is blocked while unmounting it", "Thread 60 is in state"}},
		"somebody else hangs in a stat of the volume": {30 * time.Second, func(p *evidence.Pod) {
			p.Node.Blocked = []evidence.Task{{
				PID: 60, TID: 60, Comm: "node_exporter", State: evidence.Uninterruptible, UnchangedSince: p.Time.Add(-12 * time.Second),
				Probe: &evidence.Probe{Syscall: "statfs", VolumePath: csiMount, Wchan: "jbd2_log_wait_commit"},
			}}
		}, "", false, nil},

		"the kubelet hangs on some NFS volume, and the pod has one": {70 * time.Second, func(p *evidence.Pod) { unseenNFS(p, new(3)) },
			"NetworkFilesystemUnreachable", false, []string{"192.0.2.1"}},
		"the kubelet hangs on the pod's NFS volume": {30 * time.Second, func(p *evidence.Pod) {
			unseenNFS(p, new(3))
			p.Node.Kubelet.Blocked[0].Probe.VolumePath = csiMount
		}, "NetworkFilesystemUnreachable", true, []string{"192.0.2.1"}},
		"the kubelet hangs on the pod's NFS volume, whose server may be starting again": {35 * time.Second, func(p *evidence.Pod) {
			unseenNFS(p, new(0))
			p.Mounts[0].Connection = evidence.Unconnected
			p.Node.Kubelet.Blocked[0].Probe.VolumePath = csiMount
			p.Node.Kubelet.Blocked[0].UnchangedSince = p.Time.Add(-29 * time.Second)
		}, "", false, nil},
		"the kubelet hangs on the pod's NFS volume, whose server is not connected for half a minute": {35 * time.Second, func(p *evidence.Pod) {
			unseenNFS(p, new(0))
			p.Mounts[0].Connection = evidence.Unconnected
			p.Node.Kubelet.Blocked[0].Probe.VolumePath = csiMount
			p.Node.Kubelet.Blocked[0].UnchangedSince = p.Time.Add(-30 * time.Second)
		}, "NetworkFilesystemUnreachable", true, []string{"192.0.2.1", "restore this node's access to it: routes, firewall"}},
		"the kubelet hangs on the pod's NFS volume, and its server has answered everything": {30 * time.Second, func(p *evidence.Pod) {
			unseenNFS(p, new(0))
			p.Node.Kubelet.Blocked[0].Probe.VolumePath = csiMount
		}, "", false, nil},
		"the kubelet hangs on some NFS volume, and the server of the pod's is " +
			"well": {70 * time.Second, func(p *evidence.Pod) { unseenNFS(p, new(0)) }, "", false, nil},
		"an emptyDir cannot be removed": {90 * time.Second, func(p *evidence.Pod) { tried(p, "kubernetes.io/empty-dir", "", 20*time.Second) },
			"VolumeDirTeardownFailed", true, []string{`volume "scratch"`, "kubernetes.io/empty-dir"}},
		"an NFS volume has lost its mount, and its directory is not empty": {90 * time.Second, func(p *evidence.Pod) {
			p.Volumes = []evidence.Volume{{Name: "scratch", Plugin: "kubernetes.io~nfs"}}
			p.Mounts = nil
			tried(p, "kubernetes.io/nfs", "", 20*time.Second)
		}, "VolumeDirTeardownFailed", true, []string{`volume "scratch": it is no longer mounted, and the kubelet cannot remove its directory`, "kubernetes.io/nfs", "move them to where they belong"}},
		"an emptyDir of somebody may not be removable": {90 * time.Second, func(p *evidence.Pod) {
			p.Node.Unmounting = 3
			tried(p, "kubernetes.io/empty-dir", "", 20*time.Second)
		}, "VolumeDirTeardownFailed", false, []string{"the kubelet cannot remove its directory or another one of this node"}},
		"an emptyDir is being deleted, and one of somebody cannot be": {90 * time.Second, func(p *evidence.Pod) {
			p.Node.Unmounting = 3
			p.Volumes[1].LastDeleted = p.Time.Add(-29 * time.Second)
			tried(p, "kubernetes.io/empty-dir", "", 20*time.Second)
		}, "", false, nil},
		"nothing of an emptyDir has been deleted for a while": {90 * time.Second, func(p *evidence.Pod) {
			p.Volumes[1].LastDeleted = p.Time.Add(-30 * time.Second)
			tried(p, "kubernetes.io/empty-dir", "", 20*time.Second)
		}, "VolumeDirTeardownFailed", true, []string{`volume "scratch"`}},
		"one of two emptyDirs is being deleted": {90 * time.Second, func(p *evidence.Pod) {
			p.Volumes = append(p.Volumes, evidence.Volume{Name: "spool", Plugin: "kubernetes.io~empty-dir", LastDeleted: p.Time})
			tried(p, "kubernetes.io/empty-dir", "", 20*time.Second)
		}, "VolumeDirTeardownFailed", true, []string{`volume "scratch": `}},
		"what is mounted inside of an emptyDir is being deleted": {90 * time.Second, func(p *evidence.Pod) {
			p.Volumes[1].LastDeleted = p.Time
			p.Mounts = append(p.Mounts, evidence.Mount{ID: 9, Point: volumesDir + "kubernetes.io~empty-dir/scratch/private", Type: "tmpfs",
				Volume: "scratch", Plugin: "kubernetes.io~empty-dir"})
			tried(p, "kubernetes.io/empty-dir", "", 20*time.Second)
		}, "VolumeDirTeardownFailed", true, []string{`volume "scratch": tmpfs is mounted inside`}},
		"one of two emptyDirs cannot be removed": {90 * time.Second, func(p *evidence.Pod) {
			p.Volumes = append(p.Volumes, evidence.Volume{Name: "spool", Plugin: "kubernetes.io~empty-dir"})
			tried(p, "kubernetes.io/empty-dir", "", 20*time.Second)
		}, "VolumeDirTeardownFailed", false, []string{`volume "scratch", "spool": the kubelet cannot remove the directory of at least one of them`}},
		"one of two emptyDirs has a mount inside": {90 * time.Second, func(p *evidence.Pod) {
			p.Volumes = append(p.Volumes, evidence.Volume{Name: "spool", Plugin: "kubernetes.io~empty-dir"})
			p.Mounts = append(p.Mounts, evidence.Mount{ID: 9, Point: volumesDir + "kubernetes.io~empty-dir/spool/private", Type: "tmpfs",
				Volume: "spool", Plugin: "kubernetes.io~empty-dir"})
			tried(p, "kubernetes.io/empty-dir", "", 20*time.Second)
		}, "VolumeDirTeardownFailed", true, []string{`volume "spool": tmpfs is mounted inside`}},
		"a subpath is left by a kubelet of before, and the driver fails": {90 * time.Second, func(p *evidence.Pod) {
			p.Volumes = append(p.Volumes, evidence.Volume{Name: "host", Subpaths: 1})
			called(p, "Internal", 20*time.Second)
			tried(p, "kubernetes.io/csi", csiDriver, 20*time.Second)
		}, "CSINodeUnpublishFailing", true, nil},
		"the driver fails at a volume, of another a subpath is left": {90 * time.Second, func(p *evidence.Pod) {
			p.Volumes[0].Subpaths = 1
			called(p, "Internal", 20*time.Second)
			tried(p, "kubernetes.io/csi", csiDriver, 20*time.Second)
		}, "CSINodeUnpublishFailing", true, nil},
		"a subpath cannot be removed, and the driver has a socket of another name": {90 * time.Second, func(p *evidence.Pod) {
			p.Volumes[0].Subpaths, p.Volumes[0].Unregistered = 1, true
			tried(p, "kubernetes.io/csi", csiDriver, 20*time.Second)
		}, "SubPathCleanupFailed", true, []string{`volume "data"`}},
		"the driver gives up by itself after seconds": {90 * time.Second, func(p *evidence.Pod) { called(p, "DeadlineExceeded", 20*time.Second) },
			"CSINodeUnpublishHanging", true, []string{"does not respond to NodeUnpublishVolume for volume", "ended with DeadlineExceeded"}},
		"a subpath of an emptyDir is left": {90 * time.Second, func(p *evidence.Pod) {
			p.Volumes[1].Subpaths = 1
			tried(p, "kubernetes.io/empty-dir", "", 20*time.Second)
		}, "SubPathCleanupFailed", true, []string{`volume "scratch"`}},
		"only a subpath of a hostPath is left": {90 * time.Second, func(p *evidence.Pod) {
			p.Mounts, p.Volumes = nil, []evidence.Volume{{Name: "host", Subpaths: 1}}
			tried(p, "kubernetes.io/host-path", "", 20*time.Second)
		}, "SubPathCleanupFailed", true, []string{`volume "host"`}},
		"only a subpath is left, and another pod's volume may be what fails": {90 * time.Second, func(p *evidence.Pod) {
			p.Node.Unmounting = 2
			p.Mounts, p.Volumes = nil, []evidence.Volume{{Name: "host", Subpaths: 1}}
			tried(p, "kubernetes.io/host-path", "", 20*time.Second)
		}, "", false, nil},
		"a subpath of which no attempt has failed": {90 * time.Second, func(p *evidence.Pod) { p.Volumes[1].Subpaths = 1 }, "", false, nil},
		"a process has the block device's loop device open": {30 * time.Second, func(p *evidence.Pod) {
			block(p, ownDevice, published)
			looped(p, 20*time.Second, func(*evidence.Loop) {})
			holder(p, "qemu-nbd", "", 7, 12*time.Second)
			p.Holders[0].Via = "the loop device /dev/loop9 on it"
		}, "BlockVolumeUnmapFailed", true, []string{"block volume \"pv-7\" cannot be unmapped (EBUSY): qemu-nbd (PID 70, of " +
			"backup.service) uses it (the loop device /dev/loop9 on it)"}},
		"a process has had the block device open for 9 seconds": {30 * time.Second, func(p *evidence.Pod) {
			block(p, ownDevice, published)
			holder(p, "dd", "", 7, 9*time.Second)
		}, "", false, nil},
		"the kubelet has the block device open": {30 * time.Second, func(p *evidence.Pod) {
			block(p, ownDevice)
			holder(p, "kubelet", "kubelet", 7, 12*time.Second)
		}, "BlockVolumeUnmapFailed", true, []string{": do not stop it"}},
		"the file system on a block device is mounted in a container": {30 * time.Second, func(p *evidence.Pod) {
			block(p, ownDevice, published)
			looped(p, 20*time.Second, func(*evidence.Loop) {})
			holder(p, "virt-launcher", "", 7, 12*time.Second)
			p.Holders[0].Via, p.Holders[0].Mounted = "the file system of /dev/loop9, in a mount namespace of its own", true
		}, "BlockVolumeUnmapFailed", true, []string{"is mounted in the mount namespace of virt-launcher (PID 70, of backup.service)", "findmnt -N 70"}},
		"it is in two containers": {30 * time.Second, func(p *evidence.Pod) {
			block(p, ownDevice, published)
			looped(p, 20*time.Second, func(*evidence.Loop) {})
			for i := range 2 {
				holder(p, "virt-launcher", "", 7, 12*time.Second)
				p.Holders[i].PID, p.Holders[i].Namespace, p.Holders[i].Mounted = 70+i, fmt.Sprint(i), true
			}
		}, "BlockVolumeUnmapFailed", true, []string{
			"is mounted in the mount namespace of virt-launcher (PID 70, of backup.service) and in that of virt-launcher (PID 71, of backup.service)",
			"findmnt -N 70 lists the mounts of the first mount namespace. Ask the owners to unmount it in both namespaces",
		}},
		"it has been for 9 seconds": {30 * time.Second, func(p *evidence.Pod) {
			block(p, ownDevice, published)
			looped(p, 20*time.Second, func(*evidence.Loop) {})
			holder(p, "virt-launcher", "", 7, 9*time.Second)
			p.Holders[0].Mounted = true
		}, "", false, nil},
		"it is, in a mount namespace whose first process serves the node": {30 * time.Second, func(p *evidence.Pod) {
			block(p, ownDevice, published)
			holder(p, "containerd", "containerd", 7, 12*time.Second)
			p.Holders[0].Mounted = true
		}, "BlockVolumeUnmapFailed", true, []string{"is mounted in the mount namespace of containerd (PID 70)", ": do not stop it"}},
		"it has been since the containers had ended": {60 * time.Second, func(p *evidence.Pod) {
			block(p, ownDevice, published)
			later(p, 20*time.Second)
			p.Holders[0].Mounted = true
		}, "BlockVolumeUnmapFailed", false, []string{"is mounted in the mount namespace of rsync"}},
		"a process with a mount namespace of its own holds the mount": {30 * time.Second, func(p *evidence.Pod) {
			holder(p, "node_exporter", "1c4ddc3e-1111-4222-8333-444455556666", 7, 12*time.Second)
			p.Holders[0].OwnerName, p.Holders[0].Via = "monitoring/node-exporter", "an open file, in a mount namespace of its own"
		}, "VolumeUnmountBusy", false, []string{"node_exporter (PID 70, of pod monitoring/node-exporter) uses it (an open file, in a mount namespace of its own)"}},

		"processes of three mount namespaces hold the mount": {30 * time.Second, func(p *evidence.Pod) {
			for i, comm := range []string{"node_exporter", "node_exporter", "falcon", "backup"} {
				holder(p, comm, "", 7, 12*time.Second)
				p.Holders[i].PID, p.Holders[i].Namespace = 70+i, "mnt:["+[]string{"1", "1", "2", "3"}[i]+"]"
			}
		}, "VolumeUnmountBusy", false, []string{
			"node_exporter (PID 70, of backup.service) uses it (an open file), and so do falcon (PID 72, of backup.service), backup (PID " +
				"73, of backup.service) and 1 more\n",
			"Find out what these processes do with the volume. Ask their owners to stop them",
		}},
		"more processes hold the mount than are looked for": {30 * time.Second, func(p *evidence.Pod) {
			for i := range evidence.MaxHolders {
				holder(p, "tail", "", 7, 12*time.Second)
				p.Holders[i].PID = 70 + i
			}
		}, "VolumeUnmountBusy", false, []string{"tail (PID 72, of backup.service) and at least 13 more\n"}},
		"a process that serves the node holds it, and one that does not": {30 * time.Second, func(p *evidence.Pod) {
			holder(p, "kubelet", "kubelet", 7, 20*time.Second)
			holder(p, "rsync", "", 7, 12*time.Second)
		}, "VolumeUnmountBusy", false, []string{"rsync (PID 70, of backup.service) uses it (an open file), and so does kubelet (PID " +
			"70)\n", "Find out what both processes do with the volume. Ask their owners to stop them or to close the volume, but not kubelet (PID 70)"}},
		"a process that serves the node holds it, and three that do not": {30 * time.Second, func(p *evidence.Pod) {
			for i, comm := range []string{"rsync", "tar", "cp", "containerd"} {
				holder(p, comm, "", 7, 12*time.Second)
				p.Holders[i].PID = 70 + i
			}
			p.Holders[3].Owner = "containerd"
		}, "VolumeUnmountBusy", false, []string{"tar (PID 71, of backup.service), cp (PID 72, of backup.service) and 1 more\n", "Ask " +
			"their owners to stop them or to close the volume, but not containerd (PID 73), which the node needs"}},
		"a process that serves the node holds it, and one that came later": {60 * time.Second, func(p *evidence.Pod) {
			later(p, 20*time.Second)
			holder(p, "kubelet", "kubelet", 7, 20*time.Second)
		}, "VolumeUnmountBusy", false, []string{"kubelet (PID 70) uses it (an open file)\n", "kubelet (PID 70) serves the node: do not stop it"}},
		"processes hold two volumes": {30 * time.Second, func(p *evidence.Pod) {
			p.Mounts = append(p.Mounts, evidence.Mount{ID: 17, Point: volumesDir + "kubernetes.io~csi/logs/mount", Volume: "logs", Plugin: "kubernetes.io~csi"})
			holder(p, "rsync", "", 7, 20*time.Second)
			holder(p, "tail", "", 17, 12*time.Second)
		}, "VolumeUnmountBusy", false, []string{"volume \"data\" cannot be unmounted (EBUSY): rsync (PID 70, of backup.service) uses it (an open file)\n"}},
		"a process of the volume's own CSI driver, which may be unmounting it": {30 * time.Second, driverHolds, "", false, nil},
		"a process of another pod holds it too": {30 * time.Second, func(p *evidence.Pod) {
			driverHolds(p)
			holder(p, "rsync", "", 7, 12*time.Second)
		}, "VolumeUnmountBusy", false, []string{"rsync (PID 70, of backup.service) uses it (an open file)\n"}},
		"a process of the volume's own CSI driver, and the driver fails": {90 * time.Second, func(p *evidence.Pod) {
			driverHolds(p)
			called(p, "Internal", 20*time.Second)
		}, "VolumeUnmountBusy", false, []string{"sync (PID 70, of pod kube-system/disk-x) uses it", ": do not stop it"}},
		"a process of the volume's own CSI driver, and the driver hangs": {90 * time.Second, func(p *evidence.Pod) {
			driverHolds(p)
			called(p, "DeadlineExceeded", 20*time.Second)
		}, "CSINodeUnpublishHanging", true, nil},
		"a process of the next pod of this name": {30 * time.Second, func(p *evidence.Pod) {
			holder(p, "dd", "1c4ddc3e-1111-4222-8333-444455556666", 7, 12*time.Second)
			p.Holders[0].OwnerName = p.Namespace + "/" + p.Name
		}, "VolumeUnmountBusy", false, []string{"dd (PID 70, of another pod of this name, with UID 1c4ddc3e-1111-4222-8333-444455556666) uses it"}},
		"a process of the CSI driver has the device open that the kubelet has to take back first": {30 * time.Second, func(p *evidence.Pod) {
			block(p, ownDevice, published)
			driverHolds(p)
		}, "BlockVolumeUnmapFailed", false, []string{"sync (PID 70, of pod kube-system/disk-x) uses it", ": do not stop it"}},

		"a logical volume on a block device": {30 * time.Second, func(p *evidence.Pod) {
			block(p, ownDevice, published)
			looped(p, 12*time.Second, logicalVolume)
		}, "BlockVolumeUnmapFailed", true, []string{"logical volume guest/root is active on it\n", "dmsetup info guest-root shows what " +
			"it is. Ask the volume's owner before you change it. Deactivate it when nothing is mounted from it"}},
		"a logical volume on a block device, which is mounted, and one that is not": {30 * time.Second, func(p *evidence.Pod) {
			block(p, ownDevice, published)
			looped(p, 12*time.Second, func(l *evidence.Loop) {
				at := &evidence.Mount{ID: 91, Device: "254:0", Point: "/media/root", HostPoint: "/media/root", Type: "xfs", Source: "/dev/mapper/guest-root"}
				l.Mapper = []evidence.Mapped{{Name: "guest-root", Logical: "guest/root", Mount: at}, {Name: "guest-swap", Logical: "guest/swap"}}
			})
		}, "BlockVolumeUnmapFailed", true, []string{"logical volume guest/root, mounted at /media/root (xfs), is active on it", "On the " +
			"node: dmsetup info guest-root shows what it is. Ask the volume's owner before you change it. If the mount is no longer needed: " +
			"umount /media/root. Then deactivate it"}},
		"a logical volume on a block device, which is a volume of another pod": {30 * time.Second, func(p *evidence.Pod) {
			block(p, ownDevice, published)
			looped(p, 12*time.Second, func(l *evidence.Loop) {
				l.Mapper = []evidence.Mapped{{Name: "pool-a", Logical: "pool/a", Mount: ofAnother("254:0", "/dev/mapper/pool-a")}}
			})
		}, "BlockVolumeUnmapFailed", true, []string{"logical volume pool/a, mounted as a volume of a pod (ext4), is active on it", "Do " +
			"not unmount it: the pod whose UID findmnt shows must terminate first."}},
		"the file system on a block device is a volume of another pod": {30 * time.Second, func(p *evidence.Pod) {
			block(p, ownDevice, published)
			looped(p, 12*time.Second, func(l *evidence.Loop) { l.Mount = ofAnother("7:9", "/dev/loop9") })
		}, "BlockVolumeUnmapFailed", true, []string{"its ext4 file system is mounted on the node", "Do not unmount it: it is a volume of " +
			"the pod whose UID findmnt shows. That pod must terminate first"}},
		"a logical volume on a block device came a moment ago, and the kubelet fails": {90 * time.Second, func(p *evidence.Pod) {
			block(p, ownDevice, published)
			looped(p, 4*time.Second, logicalVolume)
			unmapped(p, 20*time.Second)
		}, "", false, nil},
		"a logical volume on a block device is mounted again and again": {30 * time.Second, func(p *evidence.Pod) {
			block(p, ownDevice, published)
			looped(p, 2*time.Second, logicalVolume)
			flaps(p, 12*time.Second, 2, nil)
		}, "BlockVolumeUnmapFailed", true, []string{"logical volume guest/root, mounted again and again (ext4), is active on it", "Find " +
			"out what mounts it again and again"}},
		"a logical volume on a block device was mounted once": {30 * time.Second, func(p *evidence.Pod) {
			block(p, ownDevice, published)
			looped(p, 2*time.Second, logicalVolume)
			flaps(p, 12*time.Second, 1, nil)
		}, "BlockVolumeUnmapFailed", true, []string{"logical volume guest/root is active on it\n", "Deactivate it when nothing is mounted from it"}},
		"a logical volume on a block device has been mounted again and again, and is no more": {60 * time.Second, func(p *evidence.Pod) {
			block(p, ownDevice, published)
			looped(p, 20*time.Second, logicalVolume)
			flaps(p, 50*time.Second, 5, nil)
			p.Loops[0].Mapper[0].MountSince = p.Time.Add(-20 * time.Second)
		}, "BlockVolumeUnmapFailed", true, []string{"logical volume guest/root is active on it\n"}},
		"a software RAID on a block device is mounted again and again": {30 * time.Second, func(p *evidence.Pod) {
			block(p, ownDevice, published)
			looped(p, 2*time.Second, func(l *evidence.Loop) { l.Mapper = []evidence.Mapped{{Kind: evidence.MadeByMD, Name: "md127"}} })
			flaps(p, 12*time.Second, 2, &evidence.Mount{ID: 92, Device: "9:127", Point: "/media/b", HostPoint: "/media/b", Type: "ext4"})
		}, "BlockVolumeUnmapFailed", true, []string{"software RAID md127, mounted again and again (ext4), is assembled on it", "Then " +
			"stop the RAID: mdadm --stop /dev/md127"}},
		"a logical volume stays while another one comes and goes": {30 * time.Second, func(p *evidence.Pod) {
			block(p, ownDevice, published)
			looped(p, 2*time.Second, logicalVolume)
			flaps(p, 12*time.Second, 0, nil)
			l := &p.Loops[0]
			l.Mapper[0].Unmounted = nil
			l.Mapper = append(l.Mapper, evidence.Mapped{Name: "guest-swap", Logical: "guest/swap", Since: p.Time.Add(-2 * time.Second)})
		}, "BlockVolumeUnmapFailed", true, []string{"logical volume guest/root is active on it\n"}},
		"logical volumes on a block device come and go": {30 * time.Second, func(p *evidence.Pod) {
			block(p, ownDevice, published)
			looped(p, 2*time.Second, logicalVolume)
			p.Loops[0].UsedSince, p.Loops[0].Released = p.Time.Add(-12*time.Second), true
		}, "BlockVolumeUnmapFailed", false, []string{"one thing after another uses it, now logical volume guest/root", "Find out what activates it again and again"}},
		"logical volumes on a block device have come and gone for 9 seconds": {30 * time.Second, func(p *evidence.Pod) {
			block(p, ownDevice, published)
			looped(p, 2*time.Second, logicalVolume)
			p.Loops[0].UsedSince, p.Loops[0].Released = p.Time.Add(-9*time.Second), true
		}, "", false, nil},
		"a file system on a block device is mounted now and then, and the kubelet has not released the loop device": {30 * time.Second, func(p *evidence.Pod) {
			block(p, ownDevice, published)
			looped(p, 2*time.Second, func(l *evidence.Loop) {
				l.Mount = &evidence.Mount{ID: 90, Device: "7:9", Point: "/media/disk", HostPoint: "/media/disk", Type: "ext4"}
				l.UsedSince = p.Time.Add(-12 * time.Second)
			})
		}, "", false, nil},
		"a file system on a block device is mounted at one place after another": {30 * time.Second, func(p *evidence.Pod) {
			block(p, ownDevice, published)
			looped(p, 2*time.Second, func(l *evidence.Loop) {
				l.Mount = &evidence.Mount{ID: 90, Device: "7:9", Point: "/media/disk", HostPoint: "/media/disk", Type: "ext4"}
				l.UsedSince, l.Released = p.Time.Add(-12*time.Second), true
			})
		}, "BlockVolumeUnmapFailed", false, []string{"one thing after another uses it, now a mount at /media/disk (ext4)", "Find out " +
			"what mounts it again and again (on the node: findmnt shows the present mount)"}},
		"something was on a block device until a moment ago, and the kubelet fails": {90 * time.Second, func(p *evidence.Pod) {
			block(p, ownDevice, published)
			looped(p, 2*time.Second, func(l *evidence.Loop) { l.UsedUntil = p.Time.Add(-4 * time.Second) })
			unmapped(p, 20*time.Second)
		}, "", false, nil},
		"something was on a block device, and the kubelet has failed before a reading showed that it is gone": {90 * time.Second, func(p *evidence.Pod) {
			block(p, ownDevice, published)
			looped(p, 18*time.Second, func(l *evidence.Loop) { l.UsedUntil = p.Time.Add(-28 * time.Second) })
			unmapped(p, 20*time.Second)
		}, "", false, nil},
		"a process has just come to a block device, and the kubelet fails": {90 * time.Second, func(p *evidence.Pod) {
			block(p, ownDevice, published)
			holder(p, "rsync", "", 7, 8*time.Second)
			unmapped(p, 9*time.Second)
		}, "", false, nil},
		"a process has left a block device, and the kubelet has failed before": {90 * time.Second, func(p *evidence.Pod) {
			block(p, ownDevice, published)
			p.UnheldSince = p.Time.Add(-18 * time.Second)
			unmapped(p, 20*time.Second)
		}, "", false, nil},
		"a process has left a block device, and the kubelet has failed since": {90 * time.Second, func(p *evidence.Pod) {
			block(p, ownDevice, published)
			p.UnheldSince = p.Time.Add(-22 * time.Second)
			unmapped(p, 20*time.Second)
		}, "BlockVolumeUnmapFailed", true, []string{"cannot be unmapped: the kubelet's attempts fail (plugin kubernetes.io/csi)"}},
		"something was on a block device, and the kubelet has failed since": {90 * time.Second, func(p *evidence.Pod) {
			block(p, ownDevice, published)
			looped(p, 22*time.Second, func(l *evidence.Loop) { l.UsedUntil = p.Time.Add(-24 * time.Second) })
			unmapped(p, 20*time.Second)
		}, "BlockVolumeUnmapFailed", true, []string{"cannot be unmapped: the kubelet's attempts fail (plugin kubernetes.io/csi)"}},
		"a file system on a block device is mounted again and again, and the kubelet fails": {90 * time.Second, func(p *evidence.Pod) {
			block(p, ownDevice, published)
			looped(p, 4*time.Second, func(l *evidence.Loop) {
				l.Mount = &evidence.Mount{ID: 90, Device: "7:9", Point: "/media/disk", Type: "ext4"}
			})
			unmapped(p, 20*time.Second)
		}, "", false, nil},
		"a logical volume on a LUKS on a block device": {30 * time.Second, func(p *evidence.Pod) {
			block(p, ownDevice, published)
			looped(p, 12*time.Second, func(l *evidence.Loop) {
				l.Mapper = []evidence.Mapped{{Name: "safe"}, {Name: "guest-root", Logical: "guest/root"}}
			})
		}, "BlockVolumeUnmapFailed", true, []string{"logical volume guest/root is active on it\n", "dmsetup info guest-root", "is on " +
			"this device). After it, remove in this order: safe (dmsetup remove, or mdadm --stop for a RAID). The kubelet"}},
		"a logical volume on a device with a name that is a command": {30 * time.Second, func(p *evidence.Pod) {
			block(p, ownDevice, published)
			looped(p, 12*time.Second, func(l *evidence.Loop) {
				l.Mapper = []evidence.Mapped{{Name: "x;reboot"}, {Name: "guest-root", Logical: "guest/root"}}
			})
		}, "BlockVolumeUnmapFailed", true, []string{"is on this device). The kubelet"}},
		"a software RAID on a block device": {30 * time.Second, func(p *evidence.Pod) {
			block(p, ownDevice, published)
			looped(p, 12*time.Second, func(l *evidence.Loop) { l.Mapper = []evidence.Mapped{{Kind: evidence.MadeByMD, Name: "md127"}} })
		}, "BlockVolumeUnmapFailed", true, []string{"software RAID md127 is assembled on it\n", "cat /proc/mdstat and lsblk show what is " +
			"on it. Ask the volume's owner before you change it. Stop the RAID when nothing uses it: mdadm --stop /dev/md127. The kubelet"}},
		"a software RAID on a block device for 9 seconds": {30 * time.Second, func(p *evidence.Pod) {
			block(p, ownDevice, published)
			looped(p, 9*time.Second, func(l *evidence.Loop) { l.Mapper = []evidence.Mapped{{Kind: evidence.MadeByMD, Name: "md127"}} })
		}, "", false, nil},
		"a software RAID on a block device, which is mounted": {30 * time.Second, func(p *evidence.Pod) {
			block(p, ownDevice, published)
			looped(p, 12*time.Second, func(l *evidence.Loop) {
				at := &evidence.Mount{ID: 91, Device: "9:127", Point: "/media/array", HostPoint: "/media/array", Type: "xfs", Source: "/dev/md127"}
				l.Mapper = []evidence.Mapped{{Kind: evidence.MadeByMD, Name: "md127", Mount: at}}
			})
		}, "BlockVolumeUnmapFailed", true, []string{"software RAID md127, mounted at /media/array (xfs), is assembled on it", "umount " +
			"/media/array. Then stop the RAID: mdadm --stop /dev/md127"}},
		"a software RAID on a block device, which is a volume of another pod": {30 * time.Second, func(p *evidence.Pod) {
			block(p, ownDevice, published)
			looped(p, 12*time.Second, func(l *evidence.Loop) {
				l.Mapper = []evidence.Mapped{{Kind: evidence.MadeByMD, Name: "md127", Mount: ofAnother("9:127", "/dev/md127")}}
			})
		}, "BlockVolumeUnmapFailed", true, []string{"software RAID md127, mounted as a volume of a pod (ext4), is assembled on it", "Do not unmount what is on it"}},
		"a logical volume on a software RAID": {30 * time.Second, func(p *evidence.Pod) {
			block(p, ownDevice, published)
			looped(p, 12*time.Second, func(l *evidence.Loop) {
				l.Mapper = []evidence.Mapped{{Kind: evidence.MadeByMD, Name: "md127"}, {Name: "guest-root", Logical: "guest/root"}}
			})
		}, "BlockVolumeUnmapFailed", true, []string{"logical volume guest/root is active on it\n", "After it, remove in this order: " +
			"md127 (dmsetup remove, or mdadm --stop for a RAID)"}},
		"a software RAID with a name that is a command": {30 * time.Second, func(p *evidence.Pod) {
			block(p, ownDevice)
			looped(p, 12*time.Second, func(l *evidence.Loop) { l.Mapper = []evidence.Mapped{{Kind: evidence.MadeByMD, Name: "md_x;reboot"}} })
		}, "BlockVolumeUnmapFailed", true, []string{"Stop the RAID when nothing uses it: mdadm --stop. The kubelet"}},
		"a block device of another kind on a block device": {30 * time.Second, func(p *evidence.Pod) {
			block(p, ownDevice)
			looped(p, 12*time.Second, func(l *evidence.Loop) { l.Mapper = []evidence.Mapped{{Kind: evidence.MadeByOther, Name: "bcache0"}} })
		}, "BlockVolumeUnmapFailed", true, []string{"block device bcache0 is built on it", "lsblk shows what it is. Ask the volume's " +
			"owner before you change it. Remove it when nothing uses it"}},
		"a LUKS on a block device": {30 * time.Second, func(p *evidence.Pod) {
			block(p, ownDevice, published)
			looped(p, 12*time.Second, func(l *evidence.Loop) {
				at := &evidence.Mount{ID: 91, Device: "254:0", Point: "/media/a b", HostPoint: "/media/a b", Type: "ext4", Source: "/dev/mapper/safe"}
				l.Mapper = []evidence.Mapped{{Name: "safe", Mount: at}}
			})
		}, "BlockVolumeUnmapFailed", true, []string{"device-mapper device safe, mounted on the node (ext4), is active on it", "dmsetup " +
			"info safe shows what it is. Ask the volume's owner before you change it. Deactivate it when nothing is mounted from it"}},
		"a logical volume with a name that is a command": {30 * time.Second, func(p *evidence.Pod) {
			block(p, ownDevice)
			looped(p, 12*time.Second, func(l *evidence.Loop) { l.Mapper = []evidence.Mapped{{Name: "x;reboot"}} })
		}, "BlockVolumeUnmapFailed", true, []string{"dmsetup ls --tree"}},
		"a logical volume on a block device for 9 seconds": {30 * time.Second, func(p *evidence.Pod) {
			block(p, ownDevice, published)
			looped(p, 9*time.Second, logicalVolume)
		}, "", false, nil},
		"a logical volume on a device that is not the pod's any more": {30 * time.Second, func(p *evidence.Pod) {
			block(p, published)
			p.Devices[0].ID = 8
			looped(p, 12*time.Second, logicalVolume)
		}, "", false, nil},
		"the file system on a block device is mounted": {30 * time.Second, func(p *evidence.Pod) {
			block(p, ownDevice, published)
			looped(p, 12*time.Second, func(l *evidence.Loop) {
				l.Mount = &evidence.Mount{ID: 90, Device: "7:9", Point: "/media/disk", HostPoint: "/media/disk", Type: "ext4", Source: "/dev/loop9"}
			})
		}, "BlockVolumeUnmapFailed", true, []string{"its ext4 file system is mounted on the node", "umount /media/disk"}},
		"the file system on a partition of a block device is mounted": {30 * time.Second, func(p *evidence.Pod) {
			block(p, ownDevice, published)
			looped(p, 12*time.Second, func(l *evidence.Loop) {
				l.Numbers = []string{"7:9", "259:3"}
				l.Mount = &evidence.Mount{ID: 90, Device: "259:3", Point: "/media/part", HostPoint: "/media/part", Type: "ext4", Source: "/dev/loop9p1"}
			})
		}, "BlockVolumeUnmapFailed", true, []string{`its partition "/dev/loop9p1" (ext4) is mounted on the node`, "umount /media/part"}},
		"a process has a block device open that the kubelet has forgotten": {30 * time.Second, func(p *evidence.Pod) {
			block(p, ownDevice, published)
			holder(p, "dd", "", 7, 12*time.Second)
			p.Cgroups = nil
		}, "", false, nil},
		"a logical volume on a block device, and nobody answers at the driver's socket": {90 * time.Second, func(p *evidence.Pod) {
			block(p, published)
			looped(p, 12*time.Second, logicalVolume)
			called(p, "Unavailable", 20*time.Second)
			unmapped(p, 20*time.Second)
		}, "CSINodeUnpublishFailing", true, nil},
		"what releases the loop device has it open": {30 * time.Second, func(p *evidence.Pod) {
			block(p, ownDevice, published)
			holder(p, "losetup", "kubelet", 7, 12*time.Second)
		}, "", false, nil},
		"the kubelet's loop device alone": {90 * time.Second, func(p *evidence.Pod) {
			block(p, ownDevice, published)
			looped(p, 80*time.Second, func(*evidence.Loop) {})
		}, "", false, nil},
		"the kubelet fails to take a block device back": {90 * time.Second, func(p *evidence.Pod) {
			block(p, ownDevice, published)
			unmapped(p, 20*time.Second)
		}, "BlockVolumeUnmapFailed", true, []string{"cannot be unmapped: the kubelet's attempts fail (plugin kubernetes.io/csi)", "grep " +
			"UnmapVolume. The error names the step and the path"}},
		"the kubelet fails to take some block device back": {90 * time.Second, func(p *evidence.Pod) {
			p.Node.Unmounting = 3
			block(p, ownDevice, published)
			unmapped(p, 20*time.Second)
		}, "BlockVolumeUnmapFailed", false, []string{"cannot be unmapped: the kubelet's attempts fail, at it or another one of this node (plugin"}},
		"the kubelet fails at a mount, and a block device is left": {90 * time.Second, func(p *evidence.Pod) {
			block(p, ownDevice, published)
			tried(p, "kubernetes.io/csi", csiDriver, 20*time.Second)
		}, "", false, nil},
		"the driver fails to unpublish a block device": {90 * time.Second, func(p *evidence.Pod) {
			block(p, published)
			called(p, "Internal", 20*time.Second)
			unmapped(p, 20*time.Second)
		}, "CSINodeUnpublishFailing", true, []string{`volume "pv-7"`}},
		"the driver fails, and the kubelet does not get to the block device": {90 * time.Second, func(p *evidence.Pod) {
			block(p, ownDevice, published)
			called(p, "Internal", 20*time.Second)
		}, "", false, nil},
		"the driver does not answer, and the kubelet does not get to the block device": {150 * time.Second, func(p *evidence.Pod) {
			block(p, ownDevice, published)
			called(p, "DeadlineExceeded", 20*time.Second)
		}, "Unknown", false, nil},
		"the driver fails to unpublish a block device that a process has open": {90 * time.Second, func(p *evidence.Pod) {
			block(p, published)
			holder(p, "dd", "", 7, 12*time.Second)
			called(p, "Internal", 20*time.Second)
			unmapped(p, 20*time.Second)
		}, "BlockVolumeUnmapFailed", true, []string{"dd (PID 70"}},
		"a process has a block device open, and nobody answers at the driver's socket": {90 * time.Second, func(p *evidence.Pod) {
			block(p, published)
			holder(p, "dd", "", 7, 12*time.Second)
			called(p, "Unavailable", 20*time.Second)
			unmapped(p, 20*time.Second)
		}, "CSINodeUnpublishFailing", true, nil},
		"no driver of the block device's name": {90 * time.Second, func(p *evidence.Pod) {
			block(p, published)
			p.Volumes[0].Unregistered = true
			unmapped(p, 20*time.Second)
		}, "CSIDriverNotRegistered", true, nil},
		"no driver of the block device's name, and the kubelet does not get to it": {90 * time.Second, func(p *evidence.Pod) {
			block(p, ownDevice, published)
			p.Volumes[0].Unregistered = true
			unmapped(p, 20*time.Second)
		}, "BlockVolumeUnmapFailed", true, nil},
		"nothing is known of the attempts": {90 * time.Second, func(p *evidence.Pod) {
			called(p, "Internal", 20*time.Second)
			p.Lack(evidence.VolumeCalls, "the kubelet refuses")
		}, "", false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			d := cause.Diagnose(unmounting(tc.past, tc.change))
			v, found := d.Verdict()
			if v.Cause != tc.want {
				t.Fatalf("verdict %q in phase %s, want %q: %s", v.Cause, d.Phase, tc.want, v.Message)
			}
			if !found {
				return
			}
			if proved := v.Confidence == diagnose.Proved; proved != tc.proved || d.Phase != diagnose.Volumes {
				t.Errorf("%s in phase %s", v.Confidence, d.Phase)
			}
			for _, s := range tc.says {
				if !strings.Contains(said(&v), s) {
					t.Errorf("does not say %q: %s", s, said(&v))
				}
			}
			if strings.Contains(said(&v), "private") {
				t.Errorf("tells the name of a file in the volume: %s", said(&v))
			}
		})
	}
}

// What was in the way of a volume may have ended since the kubelet's last attempt: a
// pod is not called stuck without a cause before the next one.
func TestUnknownWaitsForTheNextAttempt(t *testing.T) {
	none := func(*evidence.Pod) {}
	starved := func(p *evidence.Pod) { p.Node.Pressure = &evidence.Pressure{StarvedUntil: p.Time} }
	for name, tc := range map[string]struct {
		past   time.Duration
		change func(*evidence.Pod)
		want   bool
	}{
		"before it":                    {134 * time.Second, none, false},
		"after it":                     {136 * time.Second, none, true},
		"before it is counted":         {145 * time.Second, func(p *evidence.Pod) { p.Node.Kubelet.VolumeCallsRead = p.Time.Add(-20 * time.Second) }, false},
		"before it, on a starved node": {194 * time.Second, starved, false},
		"after it, on a starved node":  {196 * time.Second, starved, true},
	} {
		d := cause.Diagnose(unmounting(tc.past, tc.change))
		if found := slices.ContainsFunc(d.Findings, func(f diagnose.Finding) bool { return f.Cause == "Unknown" }); found != tc.want {
			t.Errorf("%s: %v", name, d.Findings)
		}
	}
}

// A kubelet that did not tell what it counts, as while a shim of the node hung, has tried
// again before the pod is called stuck without a cause; one that never tells is not waited for.
func TestUnknownWaitsForTheCounts(t *testing.T) {
	for name, tc := range map[string]struct {
		past   time.Duration
		change func(k *evidence.KubeletService, now time.Time)
		want   bool
	}{
		"told all the time":         {136 * time.Second, func(k *evidence.KubeletService, now time.Time) { k.VolumeCallsSince = now.Add(-time.Hour) }, true},
		"tells again for a minute":  {3 * time.Minute, func(k *evidence.KubeletService, now time.Time) { k.VolumeCallsSince = now.Add(-time.Minute) }, false},
		"tells for one more try":    {4 * time.Minute, func(k *evidence.KubeletService, now time.Time) { k.VolumeCallsSince = now.Add(-136 * time.Second) }, true},
		"does not tell for a while": {4 * time.Minute, func(k *evidence.KubeletService, now time.Time) { k.VolumeCallsRead = now.Add(-2 * time.Minute) }, false},
		"does not tell any more":    {6 * time.Minute, func(k *evidence.KubeletService, now time.Time) { k.VolumeCallsRead = now.Add(-5 * time.Minute) }, true},
		"tells now and then":        {11 * time.Minute, func(k *evidence.KubeletService, now time.Time) { k.VolumeCallsSince = now.Add(-time.Minute) }, true},
		"has never told":            {136 * time.Second, func(k *evidence.KubeletService, _ time.Time) { k.VolumeCallsRead = time.Time{} }, true},
	} {
		d := cause.Diagnose(unmounting(tc.past, func(p *evidence.Pod) { tc.change(&p.Node.Kubelet, p.Time) }))
		if found := slices.ContainsFunc(d.Findings, func(f diagnose.Finding) bool { return f.Cause == "Unknown" }); found != tc.want {
			t.Errorf("%s: %v", name, d.Findings)
		}
	}
}

// Of a volume that may be given up Unknown waits for as long as it takes to find out, and not where
// that will not be said.
func TestUnknownWaitsForTheGivenUp(t *testing.T) {
	for name, tc := range map[string]struct {
		past   time.Duration
		change func(p *evidence.Pod)
		want   string
	}{
		"not yet":                        {299 * time.Second, func(*evidence.Pod) {}, ""},
		"the counts are of a moment ago": {305 * time.Second, func(p *evidence.Pod) { p.Node.Kubelet.VolumeCallsRead = p.Time.Add(-10 * time.Second) }, ""},
		"its containers ended an hour before its deadline": {2 * time.Minute, func(p *evidence.Pod) {
			p.UnchangedSince, p.Node.Kubelet.VolumeCallsSince = p.Deadline.Add(-time.Hour), p.Deadline
		}, ""},
		"it may not have been mounted": {136 * time.Second, func(p *evidence.Pod) { p.Containers = nil }, "Unknown"},
		"another volume is left": {136 * time.Second, func(p *evidence.Pod) {
			p.Volumes = append(p.Volumes, evidence.Volume{Name: "scratch", Plugin: "kubernetes.io~empty-dir"})
		}, "Unknown"},
		"the kubelet is not well": {136 * time.Second, func(p *evidence.Pod) { p.Node.Kubelet.Health = "failing checks: syncloop" }, "Unknown"},
		"the kubelet tells its counts now and then": {11 * time.Minute,
			func(p *evidence.Pod) { p.Node.Kubelet.VolumeCallsSince = p.Time.Add(-time.Minute) }, "Unknown"},
	} {
		d := cause.Diagnose(unmounting(tc.past, func(p *evidence.Pod) { leftMounted(p); tc.change(p) }))
		if v, _ := d.Verdict(); v.Cause != tc.want {
			t.Errorf("%s: verdict %q, want %q", name, v.Cause, tc.want)
		}
	}
}

// Of a pod with a finalizer it is not said that nothing is left on the node while the
// kubelet keeps a directory of a volume. Where that is not known it is said, and not proved: without a cgroup
// for each pod (cgroupsPerQOS: false) nothing else shows that the kubelet is at work.
func TestFinalizerIsNotAlone(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(p *evidence.Pod)
		want   bool
	}{
		"nothing is left":              {func(p *evidence.Pod) { p.Volumes = nil }, true},
		"the directory of a volume is": {func(*evidence.Pod) {}, false},
		"a process has left its container": {func(p *evidence.Pod) {
			p.Volumes, p.Leftovers = nil, []evidence.Task{{PID: 70, TID: 70, Comm: "sleep", State: evidence.Sleeping}}
		}, false},
		"a block device is":             {func(p *evidence.Pod) { p.Volumes, p.Devices = nil, []evidence.Mount{{Volume: "pv-1"}} }, false},
		"the directories are not known": {func(p *evidence.Pod) { p.Volumes = nil; p.Lack(evidence.Volumes, "denied") }, true},
	} {
		d := cause.Diagnose(unmounting(30*time.Second, func(p *evidence.Pod) {
			p.Mounts, p.Finalizers, p.GracePeriodSeconds = nil, []string{"example.org/a"}, 0
			tc.change(p)
		}))
		if got := slices.ContainsFunc(d.Findings, func(f diagnose.Finding) bool { return f.Cause == "FinalizersPending" }); got != tc.want ||
			d.Phase != diagnose.Finalizers {
			t.Errorf("%s: told %t in phase %s", name, got, d.Phase)
		}
		v, _ := d.Verdict()
		unread := strings.Contains(v.Message, "its volume directories could not be read") && !strings.Contains(said(&v), "volume directory,")
		if known := name != "the directories are not known"; tc.want && (unread == known || (v.Confidence == diagnose.Proved) != known) {
			t.Errorf("%s: %s %s", name, v.Confidence, said(&v))
		}
	}
}

// leftMounted has the CSI volume of a pod be the only one that is left, and the kubelet count no
// attempt since the containers have ended, after one that has succeeded.
func leftMounted(p *evidence.Pod) {
	p.Volumes = p.Volumes[:1]
	p.Containers = []evidence.Container{{Name: "main", Kind: evidence.App, Exit: &evidence.Exit{Started: requested.Add(-time.Minute), At: p.Deadline}}}
	called(p, "OK", 0)
	tried(p, "kubernetes.io/csi", csiDriver, 0)
	k := &p.Node.Kubelet
	k.VolumeCalls[1].Status = evidence.CallSucceeded
	for i := range k.VolumeCalls {
		k.VolumeCalls[i].Rose = requested
	}
	k.VolumeCallsSince, k.Health = requested, "ok"
	k.Process.Probe = &evidence.Probe{Start: 1, Started: requested.Add(-time.Hour)}
}

// another has a second CSI volume of the pod be mounted too, of this driver.
func another(p *evidence.Pod, driver string) {
	v, m := p.Volumes[0], p.Mounts[0]
	v.Name, v.Driver, m.ID, m.Volume = "logs", driver, 8, "logs"
	m.Point = volumesDir + "kubernetes.io~csi/logs/mount"
	m.HostPoint = m.Point
	p.Volumes, p.Mounts = append(p.Volumes, v), append(p.Mounts, m)
}

// A volume is given up when the kubelet, which is well and has mounted it for containers that
// have run, has counted nothing for two of its longest pauses, and nothing else of the pod's
// volumes is left.
func TestVolumeLeftMounted(t *testing.T) {
	const enough = 301 * time.Second
	for name, tc := range map[string]struct {
		past   time.Duration
		change func(p *evidence.Pod)
		want   string
	}{
		"two pauses":     {enough, func(*evidence.Pod) {}, "VolumeLeftMounted"},
		"not two pauses": {299 * time.Second, func(*evidence.Pod) {}, ""},
		// What was counted between the reading before the containers had ended and the one
		// after may be from before: a call that hangs comes half a minute and two pauses later.
		"two pauses without the half minute": {271 * time.Second, func(*evidence.Pod) {}, ""},
		"two pauses, and not read to the end": {enough, func(p *evidence.Pod) {
			p.Node.Kubelet.VolumeCallsRead = p.Time.Add(-25 * time.Second)
		}, ""},
		"a call has failed":    {enough, func(p *evidence.Pod) { called(p, "Internal", 240*time.Second) }, "CSINodeUnpublishFailing"},
		"a call has succeeded": {enough, func(p *evidence.Pod) { called(p, "OK", 240*time.Second) }, "Unknown"},
		"an attempt has failed, and a call has succeeded after it": {enough, func(p *evidence.Pod) {
			tried(p, "kubernetes.io/csi", csiDriver, 240*time.Second)
			called(p, "OK", 239*time.Second)
		}, "Unknown"},
		"one at a driver that is not known has failed": {enough, func(p *evidence.Pod) { tried(p, "kubernetes.io/csi", "", 240*time.Second) }, "Unknown"},
		"one at another driver has, of another pod": {enough, func(p *evidence.Pod) {
			tried(p, "kubernetes.io/csi", "other.example.org",
				240*time.Second)
		}, "VolumeLeftMounted"},
		"a call has succeeded five minutes ago": {10 * time.Minute, func(p *evidence.Pod) { called(p, "OK", enough+30*time.Second) }, "VolumeLeftMounted"},
		"an attempt has failed after the first reading of an agent that came late": {10 * time.Minute, func(p *evidence.Pod) {
			tried(p, "kubernetes.io/csi", csiDriver, enough)
			called(p, "OK", enough)
			p.Node.Kubelet.VolumeCallsSince = p.Time.Add(-enough)
		}, ""},
		"one at another plugin has, of another pod": {enough, func(p *evidence.Pod) {
			tried(p, "kubernetes.io/empty-dir", "", 240*time.Second)
		}, "VolumeLeftMounted"},
		"a call of another driver has succeeded": {enough, func(p *evidence.Pod) {
			called(p, "OK", 240*time.Second)
			p.Node.Kubelet.VolumeCalls[2].Driver = "other.example.org"
		}, "VolumeLeftMounted"},
		"no call has ever succeeded": {enough, func(p *evidence.Pod) { p.Node.Kubelet.VolumeCalls = nil }, "Unknown"},
		"no attempt is ever counted": {enough, func(p *evidence.Pod) { p.Node.Kubelet.VolumeCalls = p.Node.Kubelet.VolumeCalls[:1] }, "Unknown"},
		"the counts are new":         {enough, func(p *evidence.Pod) { p.Node.Kubelet.VolumeCallsSince = p.Time.Add(-299 * time.Second) }, ""},
		"the counts are old":         {enough, func(p *evidence.Pod) { p.Node.Kubelet.VolumeCallsRead = p.Time.Add(-31 * time.Second) }, ""},
		"nothing is counted":         {enough, func(p *evidence.Pod) { p.Lack(evidence.VolumeCalls, "the kubelet refuses") }, "Unknown"},
		"the kubelet was restarted":  {enough, func(p *evidence.Pod) { p.Node.Kubelet.Process.Probe.Started = requested.Add(time.Second) }, "Unknown"},
		"the kubelet is not well":    {enough, func(p *evidence.Pod) { p.Node.Kubelet.Health = "failing checks: syncloop" }, "Unknown"},
		"nobody knows if it is":      {enough, func(p *evidence.Pod) { p.Node.Kubelet.Health = "" }, "Unknown"},
		"the API server does not hear it": {enough, func(p *evidence.Pod) {
			p.Node.Ready = &evidence.NodeReady{Status: "Unknown", Reason: "NodeStatusUnknown"}
		}, "Unknown"},
		"it has lost its record":      {enough, func(p *evidence.Pod) { p.Volumes[0].NoRecord = true }, "CSIVolumeRecordLost"},
		"only a directory is left":    {enough, func(p *evidence.Pod) { p.Mounts = nil }, "Unknown"},
		"a subpath is left, too":      {enough, func(p *evidence.Pod) { p.Volumes[0].Subpaths = 1 }, "Unknown"},
		"something mounted inside":    {enough, func(p *evidence.Pod) { p.Mounts[0].Point += "/inner" }, "Unknown"},
		"the driver has gone":         {enough, func(p *evidence.Pod) { p.Volumes[0].Unregistered = true }, "Unknown"},
		"another plugin":              {enough, func(p *evidence.Pod) { p.Volumes[0].Driver = "" }, "Unknown"},
		"its containers may not have": {enough, func(p *evidence.Pod) { p.Phase = "Running" }, "Unknown"},
		// The kubelet mounts it still, or changes the owner of its files.
		"no container has run": {enough, func(p *evidence.Pod) { p.Containers[0].Exit = nil }, "Unknown"},
		"a container is said to have ended that has not run": {enough, func(p *evidence.Pod) {
			p.Containers[0].Exit = &evidence.Exit{Code: 137}
		}, "Unknown"},
		// It does so once more when it is started anew.
		"the kubelet was restarted while they ran": {enough, func(p *evidence.Pod) { p.Node.Kubelet.Process.Probe.Started = requested.Add(-time.Second) }, "Unknown"},
		"it was, and one of them since": {enough, func(p *evidence.Pod) {
			p.Node.Kubelet.Process.Probe.Started = requested.Add(-30 * time.Second)
			p.Containers = append(p.Containers, evidence.Container{Name: "side", Kind: evidence.App,
				Exit: &evidence.Exit{Started: requested.Add(-20 * time.Second), At: p.Deadline}})
		}, "VolumeLeftMounted"},
		// An operation for the other pod comes first.
		"another pod has one of the same name": {enough, func(p *evidence.Pod) { p.Mounts[0].Shared, p.Volumes[0].Inline = true, true }, "VolumeLeftMounted"},
		"another pod has the volume":           {enough, func(p *evidence.Pod) { p.Mounts[0].Shared = true }, "Unknown"},
		// The kubelet takes all volumes of a pod down at once.
		"an emptyDir is left, too": {enough, func(p *evidence.Pod) {
			p.Volumes = append(p.Volumes, evidence.Volume{Name: "scratch", Plugin: "kubernetes.io~empty-dir"})
		}, "Unknown"},
		"a block device is left, too": {enough, func(p *evidence.Pod) {
			p.Volumes = append(p.Volumes, evidence.Volume{Name: "pv-7", Plugin: "kubernetes.io~csi", Driver: csiDriver, Block: true})
		}, "Unknown"},
		"two volumes": {enough, func(p *evidence.Pod) { another(p, csiDriver) }, "VolumeLeftMounted"},
		"two volumes, of which one is of a driver that has unpublished none": {enough, func(p *evidence.Pod) { another(p, "other.example.org") }, "Unknown"},
		"mounted twice": {enough, func(p *evidence.Pod) {
			p.Mounts = append(p.Mounts, p.Mounts[0])
			p.Mounts[1].ID = 8
		}, "VolumeLeftMounted"},
		"a process holds it": {enough, func(p *evidence.Pod) {
			holder(p, "dd", "", 7, 12*time.Second)
			called(p, "Internal", 240*time.Second)
		}, "VolumeUnmountBusy"},
		"a process holds it, and the driver has said that it is unpublished": {enough, func(p *evidence.Pod) {
			holder(p, "dd", "", 7, 12*time.Second)
		}, "VolumeUnmountBusy"},
		"a process has come that holds it": {enough, func(p *evidence.Pod) {
			holder(p, "sh", "", 7, 12*time.Second)
			p.Holders[0].Probe = &evidence.Probe{Start: 1, Started: p.Deadline.Add(200 * time.Second)}
		}, "VolumeLeftMounted"},
		"a thread of the kubelet hangs there": {enough, func(p *evidence.Pod) {
			kubeletHangs(p, evidence.Uninterruptible, p.Mounts[0].Point, time.Minute)
		}, "Unknown"},
		"a thread of the kubelet hangs at another pod's volume": {enough, func(p *evidence.Pod) {
			kubeletHangs(p, evidence.Uninterruptible, "/var/lib/kubelet/pods/1c4ddc3e-1111-4222-8333-444455556666/volumes/kubernetes.io~nfs/share", time.Minute)
		}, "VolumeLeftMounted"},
		"a thread of the kubelet hangs, and nobody knows where": {enough, func(p *evidence.Pod) {
			kubeletHangs(p, evidence.Uninterruptible, "", time.Minute)
		}, "Unknown"},
		"a thread of the kubelet hangs that cannot be looked at": {enough, func(p *evidence.Pod) {
			kubeletHangs(p, evidence.Uninterruptible, "", time.Minute)
			p.Node.Kubelet.Blocked[0].Probe = nil
		}, "Unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			d := cause.Diagnose(unmounting(tc.past, func(p *evidence.Pod) { leftMounted(p); tc.change(p) }))
			v, found := d.Verdict()
			if v.Cause != tc.want {
				t.Errorf("verdict %q, want %q: %s", v.Cause, tc.want, v.Message)
			}
			if !found || tc.want != "VolumeLeftMounted" {
				return
			}
			if v.Confidence == diagnose.Proved || !strings.Contains(v.Message, "has not retried since") || !strings.Contains(v.Remedy, "umount "+volumesDir) {
				t.Errorf("%s: %s %s", v.Confidence, v.Message, v.Remedy)
			}
		})
	}
}

// What is said of a mount that is in use goes with what is said of one that the kubelet does not try to
// unmount any more.
func TestUnmountBusyAndUnpublished(t *testing.T) {
	const again = "The kubelet then unmounts within two minutes"
	inner := func(p *evidence.Pod) {
		p.Mounts = append(p.Mounts, evidence.Mount{ID: 8, ParentID: 7, Device: "0:60", Point: p.Mounts[0].Point + "/inner", Type: "tmpfs",
			Source: "tmpfs", Volume: "data", Plugin: "kubernetes.io~csi"})
	}
	held := func(p *evidence.Pod) { holder(p, "dd", "", 7, 12*time.Second) }
	for name, tc := range map[string]struct {
		past    time.Duration
		change  func(p *evidence.Pod)
		proved  bool
		message string
		remedy  string
	}{
		"a call has failed": {90 * time.Second, func(p *evidence.Pod) { held(p); called(p, "Internal", 20*time.Second) }, true, "No " +
			"process of the pod is left", again + "."},
		"no call is known to have": {90 * time.Second, held, false, "No process of the pod is left",
			again + ", unless the CSI driver has reported the volume as unpublished. In that case, on the node: umount " + volumesDir},
		"the counts are not known": {90 * time.Second, func(p *evidence.Pod) {
			held(p)
			p.Lack(evidence.VolumeCalls, "the kubelet refuses")
			p.Node.Kubelet.VolumeCallsRead = time.Time{}
		}, false,
			"No process of the pod is left", again + ", unless the CSI driver has reported"},
		"a call has succeeded": {90 * time.Second, func(p *evidence.Pod) { held(p); called(p, "OK", 20*time.Second) }, false,
			"CSI driver " + csiDriver + " has since reported the volume as unpublished, and no call has failed", again + ", unless the CSI driver has reported"},
		"a call has, perhaps another pod's": {90 * time.Second, func(p *evidence.Pod) { held(p); called(p, "OK", 20*time.Second); p.Node.Unmounting = 2 }, false,
			"has since reported the volume or another one of this node as unpublished", again + ", unless the CSI driver has reported"},
		"the kubelet has given up": {301 * time.Second, held, false,
			"CSI driver " + csiDriver + " still reported it as unpublished, so the kubelet has not retried since ", "The kubelet does not " +
				"retry. Then, on the node: umount " + volumesDir},
		"the kubelet has given up a volume with a mount inside": {301 * time.Second, inner, false,
			"still reported it as unpublished", "innermost first, without -f or -l. The kubelet does not retry. Then, on the node: umount " + volumesDir},
		"the kubelet itself holds it and has given up": {301 * time.Second, func(p *evidence.Pod) { holder(p, "kubelet", "kubelet", 7, 12*time.Second) }, false,
			"still reported it as unpublished", "when the other pods allow it. The kubelet does not retry. Then"},
		"an emptyDir": {90 * time.Second, func(p *evidence.Pod) {
			held(p)
			p.Volumes[0].Driver, p.Volumes[0].Plugin, p.Mounts[0].Plugin = "", "kubernetes.io~empty-dir", "kubernetes.io~empty-dir"
		}, true, "No process of the pod is left", again + "."},
	} {
		d := cause.Diagnose(unmounting(tc.past, func(p *evidence.Pod) { leftMounted(p); tc.change(p) }))
		v, _ := d.Verdict()
		if v.Cause != "VolumeUnmountBusy" || (v.Confidence == diagnose.Proved) != tc.proved || !strings.Contains(said(&v), tc.message) ||
			!strings.Contains(v.Remedy, tc.remedy) {
			t.Errorf("%s: %s %s: %s | %s", name, v.Confidence, v.Cause, v.Message, v.Remedy)
		}
		for i := range d.Findings {
			if f := &d.Findings[i]; f.Cause != v.Cause && !f.Symptom {
				t.Errorf("%s: and %s", name, f.Cause)
			}
		}
	}
}

// A driver that fails has been counted to when the kubelet's next attempt is over, and nothing is said
// before.
func TestUnmountBusyWaitsForAnAttempt(t *testing.T) {
	for name, tc := range map[string]struct {
		past   time.Duration
		change func(p *evidence.Pod)
		want   string
	}{
		"no attempt yet":                   {29 * time.Second, func(*evidence.Pod) {}, ""},
		"one must have been made":          {31 * time.Second, func(*evidence.Pod) {}, "VolumeUnmountBusy"},
		"one has failed":                   {25 * time.Second, func(p *evidence.Pod) { called(p, "Internal", 10*time.Second) }, "VolumeUnmountBusy"},
		"nothing is counted":               {25 * time.Second, func(p *evidence.Pod) { p.Node.Kubelet.VolumeCallsRead = time.Time{} }, "VolumeUnmountBusy"},
		"the containers ended long before": {50 * time.Second, func(p *evidence.Pod) { p.Containers[0].Exit.At = p.Deadline.Add(-25 * time.Second) }, ""},
		"and the next attempt is over":     {56 * time.Second, func(p *evidence.Pod) { p.Containers[0].Exit.At = p.Deadline.Add(-25 * time.Second) }, "VolumeUnmountBusy"},
		"the counts are from before": {60 * time.Second, func(p *evidence.Pod) {
			k := &p.Node.Kubelet
			k.VolumeCallsRead = p.Time.Add(-35 * time.Second)
			k.VolumeCallsSince = k.VolumeCallsRead
		}, ""},
		"they are read again": {60 * time.Second, func(p *evidence.Pod) { p.Node.Kubelet.VolumeCallsSince = p.Time }, ""},
		"the counts are from before, and the longest pause is over": {166 * time.Second, func(p *evidence.Pod) {
			k := &p.Node.Kubelet
			k.VolumeCallsRead = p.Time.Add(-35 * time.Second)
			k.VolumeCallsSince = k.VolumeCallsRead
		}, "VolumeUnmountBusy"},
		"they are read again, and the longest pause is over": {166 * time.Second,
			func(p *evidence.Pod) { p.Node.Kubelet.VolumeCallsSince = p.Time }, "VolumeUnmountBusy"},
		"an init container ended an hour before": {31 * time.Second, func(p *evidence.Pod) {
			p.Containers = append(p.Containers, evidence.Container{Name: "init", Kind: evidence.Init, Exit: &evidence.Exit{At: p.Deadline.Add(-time.Hour)}})
		}, "VolumeUnmountBusy"},
		"nobody knows when they ended":  {134 * time.Second, func(p *evidence.Pod) { p.Containers = nil }, ""},
		"they ended an hour before":     {134 * time.Second, func(p *evidence.Pod) { p.Containers[0].Exit.At = p.Deadline.Add(-time.Hour) }, ""},
		"and the longest pause is over": {136 * time.Second, func(p *evidence.Pod) { p.Containers[0].Exit.At = p.Deadline.Add(-time.Hour) }, "VolumeUnmountBusy"},
	} {
		d := cause.Diagnose(unmounting(tc.past, func(p *evidence.Pod) { leftMounted(p); holder(p, "dd", "", 7, 12*time.Second); tc.change(p) }))
		if v, _ := d.Verdict(); v.Cause != tc.want {
			t.Errorf("%s: %s: %s", name, v.Cause, v.Message)
		}
	}
}

// Each volume that is left is told of once, and only with the last of them the pod goes.
func TestVolumesLeftMounted(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(p *evidence.Pod)
		want   []string
	}{
		"one":           {func(*evidence.Pod) {}, []string{"data"}},
		"two":           {func(p *evidence.Pod) { another(p, csiDriver) }, []string{"data", "logs"}},
		"mounted twice": {func(p *evidence.Pod) { p.Mounts = append(p.Mounts, p.Mounts[0]) }, []string{"data"}},
		"two, and one is in use": {func(p *evidence.Pod) {
			another(p, csiDriver)
			holder(p, "dd", "", 7, 12*time.Second)
		}, []string{"data", "logs"}},
		"one is in use, and a second one is a volume of a driver that still tries": {func(p *evidence.Pod) {
			another(p, "other.example.org")
			holder(p, "dd", "", 7, 12*time.Second)
		}, []string{"data"}},
	} {
		d := cause.Diagnose(unmounting(301*time.Second, func(p *evidence.Pod) { leftMounted(p); tc.change(p) }))
		var got []string
		for i := range d.Findings {
			if !d.Findings[i].Symptom {
				got = append(got, d.Findings[i].Objects.Volumes...)
			}
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

// Where the kubelet fails to unmount a volume and nobody is seen to use it, Unknown does not rule the causes of volumes out, and says
// of which one as far as that is known.
func TestUnknownOfAVolumeWithoutAHolder(t *testing.T) {
	busy := func(change func(p *evidence.Pod)) *evidence.Pod {
		return unmounting(15*time.Minute, func(p *evidence.Pod) {
			p.Mounts = []evidence.Mount{{ID: 8, Device: "0:50", Point: scannedDir, HostPoint: scannedDir, Type: "tmpfs", Source: "tmpfs",
				Volume: "scratch", Plugin: "kubernetes.io~empty-dir"}}
			p.Volumes, p.Node.Pressure = []evidence.Volume{{Name: "scratch", Plugin: "kubernetes.io~empty-dir"}}, new(evidence.Pressure)
			tried(p, "kubernetes.io/empty-dir", "", 10*time.Second)
			change(p)
		})
	}
	for name, tc := range map[string]struct {
		change      func(p *evidence.Pod)
		part, named bool
	}{
		"nobody uses it":               {func(*evidence.Pod) {}, true, true},
		"it may be another pod's":      {func(p *evidence.Pod) { p.Node.Unmounting = 2 }, true, false},
		"nothing has failed":           {func(p *evidence.Pod) { p.Node.Kubelet.VolumeCalls = nil }, false, false},
		"somebody uses it by now":      {func(p *evidence.Pod) { holder(p, "backup", "", 8, time.Second) }, true, false},
		"it has failed once, long ago": {func(p *evidence.Pod) { p.Node.Kubelet.VolumeCalls[0].Rose = p.Time.Add(-14 * time.Minute) }, false, false},
		"there is another one of the kind": {func(p *evidence.Pod) {
			other := p.Mounts[0]
			other.ID, other.Volume = 9, "cache"
			other.Point, other.HostPoint = volumesDir+"kubernetes.io~empty-dir/cache", volumesDir+"kubernetes.io~empty-dir/cache"
			p.Mounts, p.Volumes = append(p.Mounts, other), append(p.Volumes, evidence.Volume{Name: "cache", Plugin: "kubernetes.io~empty-dir"})
		}, true, false},
		"who uses it could not be read": {func(p *evidence.Pod) { p.Lack(evidence.Holders, "no time was left") }, true, false},
	} {
		v, _ := ptr(cause.Diagnose(busy(tc.change))).Verdict()
		if v.Cause != "Unknown" {
			t.Errorf("%s: %s: %s", name, v.Cause, v.Message)
			continue
		}
		if got := slices.Contains(v.Objects.PartlyRuledOut, "storage"); got != tc.part {
			t.Errorf("%s: storage is ruled out in part: %t: %s", name, got, v.Message)
		}
		if got := strings.Contains(v.Message, `The kubelet cannot unmount volume "scratch", and no process is seen using it`); got != tc.named || strings.Contains(v.Remedy, "losetup -a") != got {
			t.Errorf("%s: says %q and %q", name, v.Message, v.Remedy)
		}
	}
}
