package scenario

import (
	"github.com/nodeagent-io/nodeagent/test/bed"

	corev1 "k8s.io/api/core/v1"
)

// scarce lists the incidents in which containerd or the kubelet has used up a limit, or its disk, and innocent ones that look like
// them. A shim that has used up its tasks is not among them: as often as not it needs a thread itself, ends for
// want of one (newosproc, runtime/os_linux.go), and containerd cleans up after it.
func scarce() []bed.Scenario {
	return []bed.Scenario{
		descriptorsUsedUp(), descriptorsUsedUpOnce(), diskFull(), diskFullOnce(), diskInodes(), diskReadOnly(),
		kubeletDescriptors(), kubeletDiskFull(), kubeletReadOnly(), kubeletReadOnlyOnce(), kubeletReadOnlyVolume(), kubeletReadOnlyVolumeOnce(),
	}
}

// openAll and closeAll are openAllOf and closeAllOf for containerd.
var openAll, closeAll = openAllOf("containerd"), closeAllOf("containerd")

// openAllOf is a shell script that gives a service a limit on open files below which all are open, as
// where it leaks some: its standard input and outputs, since it may open one of any number below the limit that
// becomes free. closeAllOf undoes that.
func openAllOf(service string) string {
	return `service=$(pgrep -o -x ` + service + `)
prlimit --pid $service --nofile --noheadings --output SOFT >/run/scenario-$NAME.limit
prlimit --pid $service --nofile=3:
`
}

func closeAllOf(service string) string {
	return `prlimit --pid $(pgrep -o -x ` + service + `) --nofile=$(cat /run/scenario-$NAME.limit):
`
}

// allOpenOf succeeds when a service has all files open that it may.
func allOpenOf(service string) string {
	return `service=$(pgrep -o -x ` + service + `)
limit=$(($(prlimit --pid $service --nofile --noheadings --output SOFT)))
[ $(ls /proc/$service/fd | awk -v limit=$limit '$1 < limit' | wc -l) -eq $limit ]
`
}

// after is a shell script that has another one run some seconds later, and passed waits until it has.
func after(seconds, script string) string {
	return "touch /run/scenario-$NAME.passes\n(\nsleep " + seconds + "\n" + script + "rm /run/scenario-$NAME.passes\n) </dev/null >/dev/null 2>&1 &"
}

const passed = "while [ -e /run/scenario-$NAME.passes ]; do sleep 0.5; done\n"

func descriptorsUsedUp() bed.Scenario {
	return bed.Scenario{
		Name:  "descriptors-used-up",
		Story: "containerd has as many files open as it may have, so that it cannot write down that the container has ended",
		Place: bed.Place{Needs: []bed.Need{bed.PodNetwork}, NoExec: true},
		Fault: bed.Fault{
			Pod:   victim(3, "drain", "0"),
			Break: bed.OnNode(openAll),
			Proof: noVictim + allOpenOf("containerd") + "grep -q 'failed to update container state.*too many open files' " +
				"/var/log/containerd.log || journalctl -u containerd | grep -q 'failed to update container state.*too many open files'",
			Heal: bed.OnNode(closeAll),
		},
		Want: bed.Want{
			Cause:  "NodeResourceExhausted",
			Family: "Descriptors",
			Says: []string{"Cause: in phase Runtime", "containerd cannot record that container main exited", "Seen: containerd (PID ", "it " +
				"has reached its open file limit (RLIMIT_NOFILE 3)",
				"prlimit", "Fix: LimitNOFILE"},
		},
	}
}

// descriptorsUsedUpOnce is innocent: containerd tries again to write it down.
func descriptorsUsedUpOnce() bed.Scenario {
	return bed.Scenario{
		Name:  "descriptors-used-up-once",
		Story: "innocent: containerd has as many files open as it may have when the container ends, and some seconds later no more",
		Place: bed.Place{Needs: []bed.Need{bed.PodNetwork}, NoExec: true},
		Fault: bed.Fault{
			Pod:   victim(1, "drain", "0"),
			Break: bed.OnNode(openAll + after("12", closeAll)),
			Proof: noVictim,
			Heal:  bed.OnNode(passed),
		},
	}
}

// records is where containerd writes down what has become of containers. On the node's own disk something is freed
// at all times: what is full here for sure is a file system of their own, where only the record of another container
// may be removed.
const records = "/var/lib/containerd/io.containerd.grpc.v1.cri/containers"

// ownDisk is a shell script that puts the records on a file system with options of mount(8), and uses that up by
// another script, again and again; freed makes room there, and commonDisk undoes it.
func ownDisk(options, use string) string {
	return `mkdir -p /run/scenario-records
mount -t tmpfs -o ` + options + ` tmpfs /run/scenario-records
cp -a ` + records + `/. /run/scenario-records/
mount --bind /run/scenario-records ` + records + `
(cd ` + records + " && " + use + `)
(cd ` + records + " && while :; do " + use + `; sleep 0.1; done) </dev/null >/dev/null 2>&1 &
echo $! >/run/scenario-$NAME.filler
`
}

const (
	useSpace   = "{ cat /dev/zero >>fill 2>/dev/null || true; }"
	useInodes  = "i=${i:-0}; while true >fill$i; do i=$((i + 1)); done"
	freed      = "end KILL /run/scenario-$NAME.filler\nrm -f /run/scenario-records/fill*\n"
	commonDisk = freed + "! mountpoint -q " + records + " || { umount -l " + records + "; cp -a /run/scenario-records/. " +
		"" + records + "/; umount -l /run/scenario-records; }\n"
)

// findRecord keeps the number of the container, and unwritten succeeds when containerd has deleted its task and
// the record of it does not have the end.
var findRecord = bed.OnNode(findShim + "echo $id >/run/scenario-$NAME.record")

const unwritten = `id=$(cat /run/scenario-$NAME.record)
! ctr -n k8s.io task ls | grep -q $id
grep -q '"FinishedAt":0,' ` + records + `/$id/status
`

func diskFull() bed.Scenario {
	return bed.Scenario{
		Name:  "disk-full",
		Story: "the file system of containerd's records is full, so that containerd cannot write down that the container has ended",
		Place: bed.Place{Needs: []bed.Need{bed.PodNetwork}, NoExec: true},
		Fault: bed.Fault{
			Pod:   victim(3, "drain", "0"),
			Break: inTurn(findRecord, bed.OnNode(ownDisk("size=4m", useSpace))),
			Proof: noVictim + unwritten,
			Heal:  bed.OnNode(commonDisk),
		},
		Want: bed.Want{
			Cause:  "NodeResourceExhausted",
			Family: "Space",
			Says: []string{"Cause: in phase Runtime", "containerd cannot record that container main exited", "records is full (size 4 MiB)", "Seen: " + records,
				"df " + records, "Avoid: Do not restart containerd"},
		},
	}
}

// diskFullOnce is innocent: containerd tries again to write it down.
func diskFullOnce() bed.Scenario {
	return bed.Scenario{
		Name:  "disk-full-once",
		Story: "innocent: the file system of containerd's records is full when the container ends, and some seconds later no more",
		Place: bed.Place{Needs: []bed.Need{bed.PodNetwork}, NoExec: true},
		Fault: bed.Fault{
			Pod:   victim(1, "drain", "0"),
			Break: inTurn(findRecord, bed.OnNode(ownDisk("size=4m", useSpace)+after("15", freed))),
			Proof: noVictim + unwritten,
			Heal:  bed.OnNode(passed + commonDisk),
		},
	}
}

func diskInodes() bed.Scenario {
	return bed.Scenario{
		Name:  "disk-without-inodes",
		Story: "the file system of containerd's records has no inode left, and the container ends long before the deadline",
		Place: bed.Place{Needs: []bed.Need{bed.PodNetwork}, NoExec: true},
		Fault: bed.Fault{
			Pod:   victim(45, "drain", "0"),
			Break: inTurn(findRecord, bed.OnNode(ownDisk("nr_inodes=500", useInodes))),
			Proof: noVictim + unwritten,
			Heal:  bed.OnNode(commonDisk),
		},
		Want: bed.Want{
			Cause:  "NodeResourceExhausted",
			Family: "Inodes",
			Says: []string{"containerd cannot record that container main exited",
				"records has no free inode (of 500)", "Seen: " + records, "du -x --inodes"},
		},
	}
}

// diskReadOnly has containerd's directory mounted read-only.
func diskReadOnly() bed.Scenario {
	return bed.Scenario{
		Name:  "disk-read-only",
		Story: "the file system of containerd's directory is read-only, so that containerd cannot write down that the container has ended",
		Place: bed.Place{Needs: []bed.Need{bed.PodNetwork}, NoExec: true},
		Fault: bed.Fault{
			Pod:   victim(3, "drain", "0"),
			Break: inTurn(findRecord, bed.OnNode("mount --bind /var/lib/containerd /var/lib/containerd && mount -o remount,bind,ro /var/lib/containerd")),
			Proof: noVictim + unwritten,
			Heal:  bed.OnNode("! mountpoint -q /var/lib/containerd || umount -l /var/lib/containerd"),
		},
		Want: bed.Want{
			Cause:  "NodeResourceExhausted",
			Family: "ReadOnly",
			Says: []string{"Cause: in phase Runtime", "containerd cannot record that container main exited", "records is read-only", "Seen: " + records,
				"dmesg", "Fix: findmnt -T " + records},
		},
	}
}

// notCheckpointed succeeds when the kubelet's log tells that its checkpoint of claims cannot be written.
func notCheckpointed(why string) string {
	return noVictim + "{ cat /var/log/kubelet.log 2>/dev/null || journalctl -u kubelet; } | tail -n 300 | grep -q 'could not save " +
		"checkpoint dra_manager_state: .*" + why + "'\n"
}

func kubeletDescriptors() bed.Scenario {
	return bed.Scenario{
		Name:  "kubelet-descriptors-used-up",
		Story: "the kubelet has as many files open as it may have, so that it cannot write its checkpoint of claims when the container has ended",
		Place: bed.Place{Needs: []bed.Need{bed.PodNetwork}, NoExec: true},
		Fault: bed.Fault{
			Pod:   victim(3, "drain", "0"),
			Break: bed.OnNode(openAllOf("kubelet")),
			Proof: allOpenOf("kubelet") + notCheckpointed("too many open files"),
			Heal:  bed.OnNode(closeAllOf("kubelet")),
		},
		Want: bed.Want{
			Cause:  "KubeletResourceExhausted",
			Family: "Descriptors",
			Says: []string{"Seen: All containers of the pod have exited", "kubelet (PID ", "has reached its open file limit " +
				"(RLIMIT_NOFILE 3)", "systemctl restart kubelet", "Fix: LimitNOFILE"},
		},
	}
}

func kubeletDiskFull() bed.Scenario {
	return bed.Scenario{
		Name:  "kubelet-disk-full",
		Story: "the file system of the kubelet's directory is full when the container ends",
		Place: bed.Place{Needs: []bed.Need{bed.PodNetwork}, NoExec: true},
		Fault: bed.Fault{
			Pod: victim(3, "drain", "0"),
			Break: bed.OnNode(`mkdir -p /run/scenario-kubelet
mount --rbind /var/lib/kubelet /run/scenario-kubelet
mount --make-rprivate /run/scenario-kubelet
mount -t tmpfs -o size=4m tmpfs /var/lib/kubelet
mount --make-private /var/lib/kubelet
cd /run/scenario-kubelet
for name in *; do
  if [ -d $name ]; then mkdir /var/lib/kubelet/$name; mount --rbind $name /var/lib/kubelet/$name; else cp -a $name /var/lib/kubelet/; fi
done
cat /dev/zero >/var/lib/kubelet/fill || true`),
			Proof: notCheckpointed("no space left on device"),
			Heal: bed.OnNode(`! mountpoint -q /run/scenario-kubelet || {
  rm -f /var/lib/kubelet/fill
  while ctr -n k8s.io c ls | grep -q victim; do sleep 1; done
  cp -a /var/lib/kubelet/dra_manager_state /run/scenario-kubelet/
  umount -l /var/lib/kubelet
  umount -l /run/scenario-kubelet
}`),
		},
		Want: bed.Want{
			Cause:  "KubeletResourceExhausted",
			Family: "Space",
			Says: []string{"Seen: All containers of the pod have exited", "cannot save its state and " +
				"complete the deletion", "Seen: dra_manager_state", "\"/var/lib/kubelet\" is full (size 4 MiB)", "df /var/lib/kubelet",
				"Avoid: Do not remove anything in the kubelet's directory by hand"},
		},
	}
}

// readOnlyKubelet is a shell script that has the kubelet's directory mounted read-only, and writableKubelet undoes it.
const (
	readOnlyKubelet = `mount --rbind /var/lib/kubelet /var/lib/kubelet
mount --make-rprivate /var/lib/kubelet
mount -o remount,bind,ro /var/lib/kubelet
`
	writableKubelet = "! mountpoint -q /var/lib/kubelet || umount -l /var/lib/kubelet\n"
)

func kubeletReadOnly() bed.Scenario {
	return bed.Scenario{
		Name:  "kubelet-disk-read-only",
		Story: "the file system of the kubelet's directory is read-only when the container ends",
		Place: bed.Place{Needs: []bed.Need{bed.PodNetwork}, NoExec: true},
		Fault: bed.Fault{
			Pod:   victim(3, "drain", "0"),
			Break: bed.OnNode(readOnlyKubelet),
			Proof: notCheckpointed("read-only file system"),
			Heal:  bed.OnNode(writableKubelet),
		},
		Want: bed.Want{
			Cause:  "KubeletResourceExhausted",
			Family: "ReadOnly",
			Says: []string{"Cause: in phase DynamicResources", "Seen: All containers of the pod have exited", "\"/var/lib/kubelet\" is read-only",
				"dmesg", "Fix: findmnt -T /var/lib/kubelet", "Avoid: its volumes stay mounted on the node"},
		},
	}
}

// kubeletReadOnlyOnce is innocent: the kubelet tries again.
func kubeletReadOnlyOnce() bed.Scenario {
	return bed.Scenario{
		Name:  "kubelet-disk-read-only-once",
		Story: "innocent: the file system of the kubelet's directory is read-only when the container ends, and some seconds later no more",
		Place: bed.Place{Needs: []bed.Need{bed.PodNetwork}, NoExec: true},
		Fault: bed.Fault{
			Pod:   victim(3, "drain", "0"),
			Break: bed.OnNode(readOnlyKubelet + after("12", writableKubelet)),
			Proof: notCheckpointed("read-only file system"),
			Heal:  bed.OnNode(passed),
		},
	}
}

// readOnlyThen is a shell script that has the file system become read-only when the kubelet has written its checkpoint,
// and is at the volume: a file that cannot be removed holds it up until then. stillScratch succeeds when nothing but
// that keeps it.
func readOnlyThen(next string) string {
	return `touch ` + scratch + `/fixed /run/scenario-$NAME.before /run/scenario-$NAME.passes
chattr +i ` + scratch + `/fixed
mkdir -p /run/scenario-scratch
mount --bind ` + scratch + ` /run/scenario-scratch
(
while pgrep -x victim || ! [ /var/lib/kubelet/dra_manager_state -nt /run/scenario-$NAME.before ]; do sleep 0.2; done
` + readOnlyKubelet + `chattr -i /run/scenario-scratch/fixed
umount -l /run/scenario-scratch
` + next + `) </dev/null >/dev/null 2>&1 &`
}

const stillScratch = noVictim + "mountpoint -q /var/lib/kubelet\n[ -e " + scratch + "/fixed ]\n! lsattr " + scratch + "/fixed | grep -q '^....i'"

func kubeletReadOnlyVolume() bed.Scenario {
	return bed.Scenario{
		Name:  "kubelet-disk-read-only-volume",
		Story: "the file system of the kubelet's directory becomes read-only while the kubelet takes down a volume",
		Place: bed.Place{Needs: []bed.Need{bed.PodNetwork}, NoExec: true},
		Fault: bed.Fault{
			Pod:   withVolume(victim(3, "drain", "0"), "scratch", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}),
			Break: bed.OnNode(readOnlyThen("")),
			Proof: stillScratch,
			Heal:  bed.OnNode(writableKubelet),
		},
		Want: bed.Want{
			Cause:  "KubeletResourceExhausted",
			Family: "ReadOnly",
			Says:   []string{"Cause: in phase Volumes", "cannot tear down volume \"scratch\"", "\"/var/lib/kubelet\" is read-only"},
		},
	}
}

// kubeletReadOnlyVolumeOnce is innocent: the kubelet tries again.
func kubeletReadOnlyVolumeOnce() bed.Scenario {
	s := kubeletReadOnlyVolume()
	s.Name = "kubelet-disk-read-only-volume-once"
	s.Story = "innocent: the file system of the kubelet's directory is read-only for some seconds while the kubelet takes down a volume"
	s.Break = bed.OnNode(readOnlyThen("sleep 12\n" + writableKubelet + "rm /run/scenario-$NAME.passes\n"))
	s.Cause, s.Family, s.Says, s.Heal = "", "", nil, bed.OnNode(passed)
	return s
}
