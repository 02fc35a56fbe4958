package scenario

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodeagent-io/nodeagent/test/bed"
)

// storage lists the incidents in which a volume is not unmounted, and innocent ones
// that look like them.
func storage() []bed.Scenario {
	return []bed.Scenario{
		volumeBusy(), volumeBusyByFile(), volumeBusyByMap(), volumeBusyByMount(), volumeBusyOnClaim(), volumeBusyOnClaims(),
		volumeBusyElsewhere(), volumeBusyElsewheres(), volumeUsedPrivately(), volumeDirMount(), volumeDirImmutable(), emptyDirSlow(),
		emptyDirStands(), emptyDirUnanswered(), volumeDirScanned(), readingHangs(), subPathLeft(),
		csiUnpublishFails(), csiUnpublishHangs(), csiRecordScanned(), csiDriverGone(), csiDriverTerminating(), csiDriverDead(),
		csiUnpublishLies(), csiUnpublishLiesBusy(), strayMount(), csiUnpublishSlow(), csiDriverRestarted(),
		csiUnmountHangs(),
	}
}

// scratch is the directory of the pod's volume on the node.
const scratch = "/var/lib/kubelet/pods/$UID_/volumes/kubernetes.io~empty-dir/scratch"

// onTmpfs is a pod with a volume of its own in memory, which the kubelet mounts.
func onTmpfs() corev1.PodSpec {
	return withVolume(victim(3, "drain", "0"), "scratch",
		corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}})
}

// background starts a command on the node that outlives the step, and keeps its
// number.
func background(command string) string {
	return "setsid " + command + ` </dev/null >/dev/null 2>&1 &
echo $! >/run/scenario-$NAME.pid`
}

const (
	endBackground = "kill $(cat /run/scenario-$NAME.pid)"
	// stillMounted succeeds when the pod's processes are gone and its volume is
	// mounted.
	stillMounted = "grep -q " + scratch + ` /proc/self/mountinfo && [ -z "$(tasks)" ]`
)

func volumeBusy() bed.Scenario {
	return bed.Scenario{
		Name:  "volume-busy",
		Story: "a process of the node has its working directory in the pod's volume",
		Fault: bed.Fault{
			Pod:   onTmpfs(),
			Break: bed.OnNode("cd " + scratch + "\n" + background("sleep 100000")),
			Proof: stillMounted,
			Heal:  bed.OnNode(endBackground),
		},
		Want: bed.Want{
			Cause: "VolumeUnmountBusy",
			Says:  []string{"Cause: in phase Volumes", "volume \"scratch\"", "sleep (PID ", "working directory"},
		},
	}
}

func volumeBusyByFile() bed.Scenario {
	return bed.Scenario{
		Name:  "volume-busy-file",
		Story: "a process of the node has a file of the pod's volume open",
		Fault: bed.Fault{
			Pod:   onTmpfs(),
			Break: bed.OnNode("exec 9>" + scratch + "/log\n" + background("sleep 100000") + "\nexec 9>&-"),
			Proof: stillMounted,
			Heal:  bed.OnNode(endBackground),
		},
		Want: bed.Want{
			Cause: "VolumeUnmountBusy",
			Says:  []string{"volume \"scratch\"", "sleep (PID ", "an open file"},
		},
	}
}

// volumeBusyByMap is held by something that nodeagent does not look for.
func volumeBusyByMap() bed.Scenario {
	return bed.Scenario{
		Name:  "volume-busy-map",
		Story: "a process of the node has mapped a file of the pod's volume, and does not keep it open: a cause that is not known yet",
		Place: bed.Place{
			Alone: true, // its failed attempts are known to be of this pod
			Long:  true,
		},
		Fault: bed.Fault{
			Pod:     onTmpfs(),
			Prepare: bed.NodeTool("victim"),
			Break:   bed.OnNode(background("/usr/local/bin/victim map "+scratch+"/library") + "\nuntil grep -q /library /proc/$!/maps; do sleep 0.2; done"),
			Proof:   stillMounted,
			Heal:    bed.OnNode(endBackground),
		},
		Want: bed.Want{
			Cause: "Unknown",
			Says: []string{"Cause: in phase Volumes", "no known cause matches", "Seen: the known causes of storage", "The kubelet cannot " +
				"unmount volume \"scratch\", and no process is seen using it", "Fix: grep -l PATH /proc/[0-9]*/maps"},
		},
	}
}

func volumeBusyByMount() bed.Scenario {
	return bed.Scenario{
		Name:  "volume-busy-mount",
		Story: "something else is mounted inside the pod's volume",
		Fault: bed.Fault{
			Pod:   onTmpfs(),
			Break: bed.OnNode("mkdir " + scratch + "/inner\nmount -t tmpfs inner " + scratch + "/inner"),
			Proof: stillMounted,
			Heal:  bed.OnNode("umount " + scratch + "/inner"),
		},
		Want: bed.Want{
			Cause: "VolumeUnmountBusy",
			Says:  []string{"volume \"scratch\"", "tmpfs (source inner) is mounted inside it"},
		},
	}
}

// volumeBusyOnClaim is a volume that the node calls by its PersistentVolume.
func volumeBusyOnClaim() bed.Scenario {
	const name = "volume-busy-claim"
	return bed.Scenario{
		Name:  name,
		Story: "a process of the node has its working directory in a volume that is behind a PersistentVolumeClaim",
		Fault: bed.Fault{
			Pod:     onClaim(name),
			Prepare: inTurn(startCSI(name), bindClaims),
			Break:   bed.OnNode("cd /var/lib/kubelet/pods/$UID_/volumes/kubernetes.io~csi/*/mount\n" + background("sleep 100000")),
			Proof:   `grep -q "/$UID_/volumes/kubernetes.io~csi/" /proc/self/mountinfo && [ -z "$(tasks)" ]`,
			Heal:    bed.OnNode(endBackground + "\n" + runCSI(name)),
		},
		Want: bed.Want{
			Cause: "VolumeUnmountBusy",
			Says:  []string{"volume \"data\" (claim volume-busy-claim)", "Seen: PersistentVolume scenarios-", "sleep (PID ", "working directory"},
		},
	}
}

// volumeBusyOnClaims is the same of a pod with two claims, of which one volume is busy.
func volumeBusyOnClaims() bed.Scenario {
	const name = "volume-busy-claims"
	s := volumeBusyOnClaim()
	s.Name = name
	s.Story = "a process of the node has its working directory in one of two volumes that are behind PersistentVolumeClaims"
	// Which claim is mounted where is asked of containerd, while there is the container.
	s.Pod = onClaimed(victim(30, "drain", "10"), name)
	s.Pod.Volumes = append(s.Pod.Volumes, corev1.Volume{Name: "more",
		VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name + "-more"}}})
	s.Pod.Containers[0].VolumeMounts = append(s.Pod.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "more", MountPath: "/more"})
	s.Prepare = inTurn(startCSI(name), bindClaims)
	s.Break = bed.OnNode("cd /var/lib/kubelet/pods/$UID_/volumes/kubernetes.io~csi/*-more/mount\n" + background("sleep 100000"))
	s.Says = []string{"volume \"more\" (claim volume-busy-claims-more)", "Seen: PersistentVolume scenarios-", "sleep (PID ", "working directory"}
	s.Heal = bed.OnNode(endBackground + "\n" + runCSI(name))
	return s
}

// volumeBusyElsewhere is a process in a mount namespace into which the node's mounts are
// propagated, as that of a container with mountPropagation HostToContainer or of a service of
// systemd with PrivateTmp: the kernel does not unmount the node's mount while the copy is in use.
func volumeBusyElsewhere() bed.Scenario {
	return bed.Scenario{
		Name:  "volume-busy-elsewhere",
		Story: "a process in a mount namespace of its own, which the node's mounts are propagated to, has a file of the pod's volume open",
		Fault: bed.Fault{
			Pod:   onTmpfs(),
			Break: bed.OnNode(background("unshare -m --propagation slave sh -c \"exec 9>" + scratch + "/log; exec sleep 100000\"")),
			Proof: stillMounted + " && [ $(readlink /proc/$(cat /run/scenario-$NAME.pid)/ns/mnt) != $(readlink /proc/self/ns/mnt) ]",
			Heal:  bed.OnNode(endBackground),
		},
		Want: bed.Want{
			Cause: "VolumeUnmountBusy",
			Says:  []string{"Cause: in phase Volumes", "volume \"scratch\"", "sleep (PID ", "an open file, in a mount namespace of its own"},
		},
	}
}

// volumeBusyElsewheres is the same of three mount namespaces, of which one has two processes.
func volumeBusyElsewheres() bed.Scenario {
	user := func(n int, command string) string {
		return fmt.Sprintf(`setsid unshare -m --propagation slave sh -c "echo \$\$ >/run/scenario-$NAME.%d; %s" </dev/null >/dev/null 2>&1 &
`, n, command)
	}
	const open = "exec 9>" + scratch + "/log; exec sleep 100000"
	return bed.Scenario{
		Name:  "volume-busy-elsewheres",
		Story: "processes in three mount namespaces of their own, which the node's mounts are propagated to, have a file of the pod's volume open",
		Fault: bed.Fault{
			Pod: onTmpfs(),
			Break: bed.OnNode(user(1, "cd "+scratch+"; exec tail -f /dev/null") + user(2, open) + user(3, "sh -c 'cd "+scratch+"; exec sleep 100001' & "+open) +
				"for n in 1 2 3; do until [ -s /run/scenario-$NAME.$n ]; do sleep 0.1; done; done; sleep 1"),
			Proof: stillMounted + " && ! umount " + scratch,
			Heal:  bed.OnNode(`for n in 1 2 3; do pkill -KILL -s $(cat /run/scenario-$NAME.$n) || :; done; rm -f /run/scenario-$NAME.?`),
		},
		Want: bed.Want{
			Cause: "VolumeUnmountBusy",
			Says: []string{"Cause: in phase Volumes", "volume \"scratch\"", "tail (PID ", "in a mount namespace of its own", ", and so do " +
				"sleep (PID ", ") and 1 more", "Fix: Ask their owners to stop them"},
		},
	}
}

// volumeUsedPrivately is innocent: nothing is unmounted in a mount namespace with private mounts,
// and the node's mount is not busy. It lets go of what others of these incidents have mounted.
func volumeUsedPrivately() bed.Scenario {
	const name = "volume-used-privately"
	return bed.Scenario{
		Name: name,
		Story: "innocent: a process in a mount namespace of its own, whose mounts are private, has a file of the pod's volume open, " +
			"while the CSI driver takes 20 seconds to unpublish it",
		Fault: bed.Fault{
			Pod:     onCSI(name),
			Prepare: startCSI(name),
			Break: bed.OnNode(background("unshare -m --propagation private sh -c \"umount -l /var/lib/scenario-*.mnt; exec "+
				"9>/var/lib/kubelet/pods/$UID_/volumes/kubernetes.io~csi/data/mount/log; exec sleep 120\"") +
				"\n" + tellCSI(name, "slow")),
			Proof: published,
		},
	}
}

// volumeDirMount is a volume that is a directory of the disk: the kubelet removes
// it, and what is mounted inside cannot be removed.
func volumeDirMount() bed.Scenario {
	return bed.Scenario{
		Name:  "volume-dir-mount",
		Story: "something is mounted inside a volume that is a plain directory",
		Fault: bed.Fault{
			Pod:   withVolume(victim(3, "drain", "0"), "scratch", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}),
			Break: bed.OnNode("mkdir " + scratch + "/inner\nmount -t tmpfs inner " + scratch + "/inner"),
			Proof: stillMounted,
			Heal:  bed.OnNode("umount " + scratch + "/inner"),
		},
		Want: bed.Want{
			Cause: "VolumeDirTeardownFailed",
			Says:  []string{"volume \"scratch\"", "tmpfs", "is mounted inside"},
		},
	}
}

func volumeDirImmutable() bed.Scenario {
	return bed.Scenario{
		Name:  "volume-dir-immutable",
		Story: "a file in a volume that is a plain directory is immutable",
		Fault: bed.Fault{
			Pod:   withVolume(victim(3, "drain", "0"), "scratch", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}),
			Break: bed.OnNode("touch " + scratch + "/fixed\nchattr +i " + scratch + "/fixed"),
			Proof: "[ -e " + scratch + `/fixed ] && [ -z "$(tasks)" ]`,
			Heal:  bed.OnNode("chattr -i " + scratch + "/fixed"),
		},
		Want: bed.Want{
			Cause: "VolumeDirTeardownFailed",
			Says:  []string{"Cause: in phase Volumes", "volume \"scratch\"", "Seen: kubernetes.io/empty-dir", "nothing is mounted there"},
		},
	}
}

// scannedDirectories is how many directories there are in the volume of an incident in which each is looked at before it may
// be opened: enough to have Unknown be told, on a node that is short of something too, if it were not seen that they go.
const scannedDirectories = 1400

// scanned is an incident in which the kubelet deletes the directories in a volume while a virus scanner has the opening of
// each take 0.3 seconds, for as long as the scanner runs: slow nodes take longer for each.
func scanned(name, story, runs string) bed.Scenario {
	return bed.Scenario{
		Name:  name,
		Story: story,
		Place: bed.Place{Long: true},
		Fault: bed.Fault{
			Pod:     withVolume(victim(3, "drain", "0"), "scratch", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}),
			Prepare: bed.NodeTool("victim"),
			Break: bed.OnNode(fmt.Sprintf("(cd "+scratch+"; mkdir $(seq %d))\n", scannedDirectories) +
				scan(runs, "scan", scratch)),
			Proof: fmt.Sprintf(`[ -z "$(tasks)" ] && [ $(stat -c %%h `+scratch+`) -lt %d ]`, scannedDirectories),
		},
	}
}

// scan returns a script that has a virus scanner look at a file, or at a directory and what is in it, for some seconds.
func scan(runs, how, path string) string {
	return `setsid timeout -s KILL ` + runs + ` sh -c 'echo $$ >/run/scenario-'$NAME'.pid; exec /usr/local/bin/victim ` + how + ` '` + path + ` </dev/null >/dev/null 2>&1 &
until grep -qs "^fanotify ino" /proc/$(cat /run/scenario-$NAME.pid)/fdinfo/*; do sleep 0.2; done`
}

const (
	stopScan     = "kill -STOP $(cat /run/scenario-$NAME.pid)"
	scanStopped  = `grep -q "^State:.T" /proc/$(cat /run/scenario-$NAME.pid)/status`
	endScan      = "end KILL /run/scenario-$NAME.pid"
	scansNothing = "/run/scenario-$NAME.scanned"
)

// emptyDirSlow is innocent: for more than six minutes it is seen that directories go.
func emptyDirSlow() bed.Scenario {
	s := scanned("empty-dir-slow", "innocent: the kubelet takes minutes to delete the files of an emptyDir, because a virus scanner "+
		"looks at each directory in it", "430")
	s.Heal = func(ctx context.Context, n *bed.Node, p *corev1.Pod) error {
		return n.Await(ctx, "the files of "+p.Name+" to be deleted", func() (bool, string) {
			left, err := n.Exec(ctx, n.Script("stat -c %h "+scratch+" 2>/dev/null || echo none", p))
			return err == nil && strings.TrimSpace(left) == "none", fmt.Sprint(left, err)
		})
	}
	return s
}

// emptyDirStands is one in which the scanner does not answer any more when the kubelet has begun.
func emptyDirStands() bed.Scenario {
	s := scanned("empty-dir-stands", "the kubelet hangs in the midst of the files of an emptyDir, because a virus scanner that has to "+
		"look at them has been stopped", "1h")
	s.Break = inTurn(s.Break, bed.OnNode(fmt.Sprintf(`(until [ $(stat -c %%h `+scratch+`) -lt %d ]; do sleep 0.5; done
`+stopScan+`) </dev/null >/dev/null 2>&1 &`, scannedDirectories-20)))
	s.Proof += " && " + scanStopped
	s.Cause = "FileScannerNotAnswering"
	s.Says = []string{"Cause: Stuck in phase Volumes", "kubelet thread ", "is blocked at volume \"scratch\"", "fanotify", "victim (PID "}
	s.Heal = bed.OnNode(endScan)
	return s
}

// emptyDirUnanswered is one in which the scanner runs, and answers nobody.
func emptyDirUnanswered() bed.Scenario {
	return bed.Scenario{
		Name:  "empty-dir-unanswered",
		Story: "the kubelet hangs before the files of an emptyDir, because a virus scanner that has to look at it runs and does not answer",
		Fault: bed.Fault{
			Pod:     withVolume(victim(3, "drain", "0"), "scratch", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}),
			Prepare: bed.NodeTool("victim"),
			Break:   bed.OnNode("mkdir " + scratch + "/inner\n" + scan("1h", "scan-never", scratch)),
			Proof:   `[ -z "$(tasks)" ] && [ -e ` + scratch + `/inner ] && grep -q fanotify /proc/$(pgrep -o -x kubelet)/task/*/wchan`,
			Heal:    bed.OnNode(endScan),
		},
		Want: bed.Want{
			Cause: "FileScannerNotAnswering",
			Says:  []string{"Cause: Stuck in phase Volumes", "kubelet thread ", "is blocked at volume \"scratch\"", "fanotify", "victim (PID ", "restart "},
		},
	}
}

// volumeDirScanned is one of which the scanner is innocent: it has been stopped, and another process of the node waits
// for it.
func volumeDirScanned() bed.Scenario {
	s := volumeDirImmutable()
	s.Name = "volume-dir-scanned"
	s.Story = "a file in a volume that is a plain directory is immutable, and a virus scanner on the node has been stopped, for which another program waits"
	s.Prepare = bed.NodeTool("victim")
	s.Break = inTurn(s.Break, bed.OnNode("mkdir -p "+scansNothing+"\n"+scan("1h", "scan", scansNothing)+"\n"+stopScan+"\nsetsid ls "+
		""+scansNothing+" </dev/null >/dev/null 2>&1 &"))
	s.Proof += " && " + scanStopped
	s.Heal = inTurn(s.Heal, bed.OnNode(endScan+"\nrmdir "+scansNothing))
	return s
}

// readingHangs is one of which a file of the pod's control group lets nobody go who opens it, nodeagent among them: that the kubelet
// fails at a volume cannot be seen then.
func readingHangs() bed.Scenario {
	s := volumeDirImmutable()
	s.Name = "reading-hangs"
	s.Story = "a file in a volume that is a plain directory is immutable, and nodeagent hangs as it reads about the pod, because a " +
		"virus scanner that has to look at a file of its control group does not answer"
	s.Long = true
	s.Alone = true // the kubelet's thread hangs too that reads what it counts
	s.Prepare = bed.NodeTool("victim")
	s.Break = inTurn(s.Break, bed.OnNode(findShim+`group=$(sed -n 's/^0:://p; s/^[0-9]*:.*cpuacct.*://p' /proc/$victim/cgroup | head -n 1)
file=$(ls -d /sys/fs/cgroup/*cpuacct*$(dirname $group)/cpuacct.usage /sys/fs/cgroup$(dirname $group)/cpu.stat 2>/dev/null | head -n 1)
[ -n "$file" ]
`+scan("1h", "scan-never", "$file")))
	s.Proof += " && grep -q fanotify /proc/$(pgrep -o -x nodeagent)/task/*/wchan"
	s.Cause = "Unknown"
	s.Says = []string{"no known cause matches", "nodeagent's own reading of the pod hangs in the kernel", "/proc/PID/task/*/stack"}
	s.Heal = inTurn(bed.OnNode(endScan), s.Heal)
	return s
}

// subPathLeft is a directory that is not empty where the kubelet expects a mount of
// its own, as after a program has written there when the mount was lost.
func subPathLeft() bed.Scenario {
	const left = "/var/lib/kubelet/pods/$UID_/volume-subpaths/scratch/main/9"
	spec := withVolume(victim(3, "drain", "0"), "scratch", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})
	spec.Containers[0].VolumeMounts[0].SubPath = "inner"
	return bed.Scenario{
		Name:  "sub-path-left",
		Story: "the kubelet cannot remove what is below the pod's volume-subpaths",
		Place: bed.Place{
			Long: true, // the kubelet tries again after two minutes
		},
		Fault: bed.Fault{
			Pod:   spec,
			Break: bed.OnNode("mkdir -p " + left + "/written"),
			Proof: "[ -e " + left + ` ] && [ -z "$(tasks)" ]`,
			Heal:  bed.OnNode("rmdir " + left + "/written"),
		},
		Want: bed.Want{
			Cause: "SubPathCleanupFailed",
			Says:  []string{"Cause: in phase Volumes", "volume \"scratch\"", "subPath", "/volume-subpaths' /proc/1/mountinfo"},
		},
	}
}

// csiSource is where test/csidriver finds a volume's data on the node.
func csiSource(name string) string { return directory(name) + ".source" }

// onCSI is a pod with a volume of the scenario's own driver.
func onCSI(name string) corev1.PodSpec {
	return withVolume(victim(3, "drain", "0"), "data", corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{
		Driver: csiName(name), VolumeAttributes: map[string]string{"source": csiSource(name)},
	}})
}

func csiName(name string) string { return name + ".test" }

// startCSI is a step that starts test/csidriver on the node, as the scenario's own
// driver, and waits until the kubelet has registered it.
func startCSI(name string) bed.Step {
	driver := csiName(name)
	return inTurn(bed.NodeTool("csidriver"), func(ctx context.Context, n *bed.Node, _ *corev1.Pod) error {
		no := false
		_, err := n.API.StorageV1().CSIDrivers().Create(ctx, &storagev1.CSIDriver{
			ObjectMeta: metav1.ObjectMeta{Name: driver},
			Spec: storagev1.CSIDriverSpec{
				AttachRequired: &no, PodInfoOnMount: &no,
				VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecycleEphemeral, storagev1.VolumeLifecyclePersistent},
			},
		}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create CSIDriver %s: %w", driver, err)
		}
		return nil
	}, bed.OnNode("mkdir -p /run/csidriver\n"+runCSI(name)), func(ctx context.Context, n *bed.Node, _ *corev1.Pod) error {
		return n.Await(ctx, "the kubelet to register "+driver, func() (bool, string) {
			of, err := n.API.StorageV1().CSINodes().Get(ctx, n.Name, metav1.GetOptions{})
			if err != nil {
				return false, err.Error()
			}
			for _, d := range of.Spec.Drivers {
				if d.Name == driver {
					return true, ""
				}
			}
			return false, "not among the drivers of the CSINode"
		})
	})
}

// runCSI returns a script that starts the driver anew, so that it works.
func runCSI(name string) string {
	driver := csiName(name)
	return endCSI(name, "TERM") + `
rm -f /run/csidriver/` + driver + `
setsid /usr/local/bin/csidriver ` + driver + ` $(hostname) </dev/null >/run/csidriver/` + driver + `.log 2>&1 &
echo $! >/run/csidriver/` + driver + `.pid
for i in $(seq 60); do [ -S /var/lib/kubelet/plugins_registry/` + driver + `-reg.sock ] && break; sleep 0.5; done`
}

// endCSI returns a script that ends the driver by a signal.
func endCSI(name, signal string) string {
	file := "/run/csidriver/" + csiName(name) + ".pid"
	return `if [ -e ` + file + ` ]; then
  pid=$(cat ` + file + `)
  kill -` + signal + ` $pid 2>/dev/null || true
  while grep -qs csidriver /proc/$pid/comm; do sleep 0.1; done
fi`
}

// tellCSI returns a script that tells the driver what to do from now on.
func tellCSI(name, mode string) string { return "echo " + mode + " >/run/csidriver/" + csiName(name) }

// published succeeds when the pod's processes are gone and its CSI volume is there.
const published = `[ -e /var/lib/kubelet/pods/$UID_/volumes/kubernetes.io~csi/data/vol_data.json ] && [ -z "$(tasks)" ]`

// ofCSI is an incident of a driver.
func ofCSI(name, story, broken, cause string, says ...string) bed.Scenario {
	return bed.Scenario{
		Name:  name,
		Story: story,
		Fault: bed.Fault{
			Pod:     onCSI(name),
			Prepare: startCSI(name),
			Break:   bed.OnNode(broken),
			Proof:   published,
			Heal:    bed.OnNode(runCSI(name)),
		},
		Want: bed.Want{
			Cause: cause,
			Says:  append([]string{"Cause: in phase Volumes", "volume \"data\"", "CSI driver " + csiName(name)}, says...),
		},
	}
}

func csiUnpublishFails() bed.Scenario {
	const name = "csi-unpublish-fails"
	return ofCSI(name, "a CSI driver fails to unpublish the pod's volume", tellCSI(name, "fail"), "CSINodeUnpublishFailing", "NodeUnpublishVolume", "Internal")
}

func csiUnpublishHangs() bed.Scenario {
	const name = "csi-unpublish-hangs"
	s := ofCSI(name, "a CSI driver does not answer when it is to unpublish the pod's "+
		"volume", tellCSI(name, "hang"), "CSINodeUnpublishHanging", "NodeUnpublishVolume", "Seen: DeadlineExceeded")
	s.Long = true                      // two minutes for each call
	s.Then = "CSINodeUnpublishFailing" // the call that hangs ends with the driver, which is started again, and the next one comes up to two minutes later
	return s
}

// csiRecordScanned has the kubelet wait before it calls the driver, in the loop by which it takes down the volumes of all pods:
// it reads there which driver that is.
func csiRecordScanned() bed.Scenario {
	const name, record = "csi-record-scanned", "/var/lib/kubelet/pods/$UID_/volumes/kubernetes.io~csi/data/vol_data.json"
	s := ofCSI(name, "the kubelet hangs before it has a volume unpublished, because a virus scanner that runs and does not answer has "+
		"to look at its own record of that", "", "FileScannerNotAnswering")
	s.Alone = true
	s.Prepare = inTurn(s.Prepare, bed.NodeTool("victim"))
	s.Break = bed.OnNode(scan("1h", "scan-never", record))
	s.Proof = published + " && grep -q fanotify /proc/$(pgrep -o -x kubelet)/task/*/wchan"
	s.Says = []string{"Cause: Probably stuck in phase Volumes", "kubelet thread ", "is blocked at volume \"data\"", "fanotify", "victim (PID ", "restart "}
	s.Heal = bed.OnNode(endScan)
	return s
}

func csiDriverGone() bed.Scenario {
	const name = "csi-driver-gone"
	return ofCSI(name, "the CSI driver has been removed from the node before the pod", endCSI(name, "TERM"), "CSIDriverNotRegistered", "not registered")
}

// csiDriverTerminating is a driver of which the pod is deleted, and takes its time: its DaemonSet makes no other
// before that.
func csiDriverTerminating() bed.Scenario {
	const name, suffix = "csi-driver-terminating", "-driver"
	s := ofCSI(name, "the CSI driver's own pod is deleted and has stopped to serve, and its hook goes on", "", "CSIDriverNotRegistered",
		"not registered", "the driver's pod NAMESPACE/"+name+suffix+" does not end")
	s.Break = func(ctx context.Context, n *bed.Node, p *corev1.Pod) error {
		kind := corev1.HostPathDirectory
		driver := bed.Scenario{
			Name: name + suffix,
			Fault: bed.Fault{
				Pod: withVolume(victim(600, "drain", "0"), "driver", corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{
					Path: "/var/lib/kubelet/plugins/" + csiName(name), Type: &kind,
				}}),
			},
		}
		driver.Pod.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 590}}}
		r := bed.Run{Scenario: driver, Node: n}
		if err := r.Start(ctx); err != nil {
			return err
		}
		if err := n.API.CoreV1().Pods(p.Namespace).Delete(ctx, r.Name, metav1.DeleteOptions{}); err != nil {
			return err
		}
		return bed.OnNode(endCSI(name, "TERM"))(ctx, n, p)
	}
	s.Heal = inTurn(s.Heal, func(ctx context.Context, n *bed.Node, p *corev1.Pod) error {
		one := int64(1)
		err := n.API.CoreV1().Pods(p.Namespace).Delete(ctx, name+suffix, metav1.DeleteOptions{GracePeriodSeconds: &one})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
	return s
}

// csiDriverDead leaves the sockets behind, so that the kubelet takes the driver for
// registered.
func csiDriverDead() bed.Scenario {
	const name = "csi-driver-dead"
	return ofCSI(name, "the CSI driver has been killed, and its sockets are left", endCSI(name, "KILL"), "CSINodeUnpublishFailing", "Unavailable")
}

// csiUnpublishLies is a driver of which the kubelet's one call succeeds, and the mount stays.
func csiUnpublishLies() bed.Scenario {
	const name = "csi-unpublish-lies"
	s := ofCSI(name, "the CSI driver says that it has unpublished the volume and has not", tellCSI(name, "lie"), "VolumeLeftMounted")
	s.Long, s.Late = true, true // what tells of other tries may come late
	s.Says = []string{"Cause: Probably stuck in phase Volumes", "volume \"data\"", "CSI driver " + csiName(name) + " reported it " +
		"unpublished", "Fix: umount /var/lib/kubelet/pods/"}
	s.Heal = bed.OnNode("umount /var/lib/kubelet/pods/$UID_/volumes/kubernetes.io~csi/data/mount\n" + runCSI(name))
	return s
}

// csiUnpublishLiesBusy is one of a volume that is in use: who has let it go still has to unmount it.
func csiUnpublishLiesBusy() bed.Scenario {
	const name, dir = "csi-unpublish-lies-busy", "/var/lib/kubelet/pods/$UID_/volumes/kubernetes.io~csi/data/mount"
	s := ofCSI(name, "a process of the node has its working directory in the volume, and the CSI driver says that it has unpublished that",
		"cd "+dir+"\n"+background("sleep 100000")+"\n"+tellCSI(name, "lie"), "VolumeUnmountBusy")
	s.Long = true
	s.Says = []string{"Cause: Probably stuck in phase Volumes", "volume \"data\"", "sleep (PID ", "working directory", "Seen: CSI " +
		"driver " + csiName(name), "Fix: umount /var/lib/kubelet/pods/"}
	s.Heal = inTurn(
		answers("CSI driver "+csiName(name)+" still reported it as unpublished"),
		bed.OnNode(endBackground+"\nsleep 1\numount "+dir+"\n"+runCSI(name)),
	)
	return s
}

// strayMount is a mount in the directory of a pod's volumes that no volume of the pod has: the
// kubelet waits for it to go and knows nothing of it.
func strayMount() bed.Scenario {
	const dir = "/var/lib/kubelet/pods/$UID_/volumes/kubernetes.io~empty-dir/stray"
	return bed.Scenario{
		Name:  "stray-mount",
		Story: "somebody has mounted a file system among the pod's volumes: a cause that is not known yet",
		Place: bed.Place{Long: true},
		Fault: bed.Fault{
			Pod:   victim(3, "drain", "0"),
			Break: bed.OnNode("mkdir -p " + dir + "\nmount -t tmpfs stray " + dir),
			Heal:  bed.OnNode("umount " + dir + "\nrmdir " + dir),
		},
		Want: bed.Want{
			Cause: "Unknown",
			Says:  []string{"Cause: Stuck in phase Volumes", "no known cause matches", "Seen: Ruled out: ", "mounts"},
		},
	}
}

func csiUnpublishSlow() bed.Scenario {
	const name = "csi-unpublish-slow"
	return bed.Scenario{
		Name:  name,
		Story: "innocent: the CSI driver takes 20 seconds to unpublish the pod's volume",
		Fault: bed.Fault{
			Pod:     onCSI(name),
			Prepare: startCSI(name),
			Break:   bed.OnNode(tellCSI(name, "slow")),
			Proof:   published,
		},
	}
}

func csiDriverRestarted() bed.Scenario {
	const name = "csi-driver-restarted"
	return bed.Scenario{
		Name:  name,
		Story: "innocent: the CSI driver is away when the pod is deleted, and comes back 20 seconds later",
		Fault: bed.Fault{
			Pod:     onCSI(name),
			Prepare: startCSI(name),
			Break:   bed.OnNode(endCSI(name, "TERM") + "\n(sleep 25\n" + runCSI(name) + ") </dev/null >/dev/null 2>&1 &"),
			Proof:   published,
		},
	}
}

// csiUnmountHangs is a driver that has mounted a file system of its own, and that hangs
// in the kernel when it unmounts it.
func csiUnmountHangs() bed.Scenario {
	const name = "csi-unmount-hangs"
	device, dir := "scenario-"+name, directory(name)
	s := ofCSI(name, "the device below a CSI volume completes no I/O any more, so that the driver hangs while it unmounts the volume",
		"dmsetup suspend --noflush --nolockfs "+device, "VolumeUnmountHanging")
	s.Needs = []bed.Need{bed.DeviceMapper}
	s.Pod.Volumes[0].CSI.VolumeAttributes = map[string]string{"device": "/dev/mapper/" + device}
	s.Prepare = inTurn(bed.OnNode(mapDevice(device, dir)+"\numount "+dir), startCSI(name))
	s.Proof = `[ -z "$(tasks)" ] && grep -qs "^State:.D" /proc/$(cat /run/csidriver/` + csiName(name) + `.pid)/task/*/status`
	s.Says = []string{"Cause: in phase Volumes", "volume \"data\"", "csidriver (PID ", "is blocked while unmounting it"}
	s.Heal = bed.OnNode("dmsetup resume " + device)
	return s
}
