package scenario

// scarce lists the incidents in which containerd has used up a limit, or its disk, and innocent ones that look like
// them. A shim that has used up its tasks is not among them: as often as not it needs a thread itself, ends for
// want of one (newosproc, runtime/os_linux.go), and containerd cleans up after it.
func scarce() []Scenario {
	return []Scenario{descriptorsUsedUp(), descriptorsUsedUpOnce(), diskFull(), diskFullOnce(), diskInodes(), diskReadOnly()}
}

// openAll is a shell script that gives containerd a limit on open files below which all are open, as
// where it leaks some: its standard input and outputs, since it may open one of any number below the limit that
// becomes free. closeAll undoes that.
const (
	openAll = `containerd=$(pgrep -o -x containerd)
prlimit --pid $containerd --nofile --noheadings --output SOFT >/run/scenario-$NAME.limit
prlimit --pid $containerd --nofile=3:
`
	closeAll = `prlimit --pid $(pgrep -o -x containerd) --nofile=$(cat /run/scenario-$NAME.limit):
`
	// allOpen succeeds when containerd has all files open that it may.
	allOpen = `containerd=$(pgrep -o -x containerd)
limit=$(($(prlimit --pid $containerd --nofile --noheadings --output SOFT)))
[ $(ls /proc/$containerd/fd | awk -v limit=$limit '$1 < limit' | wc -l) -eq $limit ]
`
)

// after is a shell script that has another one run some seconds later, and passed waits until it has.
func after(seconds, script string) string {
	return "touch /run/scenario-$NAME.passes\n(\nsleep " + seconds + "\n" + script + "rm /run/scenario-$NAME.passes\n) </dev/null >/dev/null 2>&1 &"
}

const passed = "while [ -e /run/scenario-$NAME.passes ]; do sleep 0.5; done\n"

func descriptorsUsedUp() Scenario {
	return Scenario{
		Name:   "descriptors-used-up",
		Needs:  []Need{PodNetwork},
		Story:  "containerd has as many files open as it may have, so that it cannot write down that the container has ended",
		Pod:    victim(3, "drain", "0"),
		NoExec: true,
		Break:  onNode(openAll),
		Proof:  noVictim + allOpen + "grep -q 'failed to update container state.*too many open files' /var/log/containerd.log || journalctl -u containerd | grep -q 'failed to update container state.*too many open files'",
		Cause:  "NodeResourceExhausted",
		Family: "Descriptors",
		Says: []string{"locked in phase Runtime", "containerd cannot write down that container main has ended", "containerd (PID ", "has as many files open as it may have (3)",
			"prlimit", "LimitNOFILE"},
		Heal: onNode(closeAll),
	}
}

// descriptorsUsedUpOnce is innocent: containerd tries again to write it down.
func descriptorsUsedUpOnce() Scenario {
	return Scenario{
		Name:   "descriptors-used-up-once",
		Needs:  []Need{PodNetwork},
		Story:  "innocent: containerd has as many files open as it may have when the container ends, and some seconds later no more",
		Pod:    victim(1, "drain", "0"),
		NoExec: true,
		Break:  onNode(openAll + after("12", closeAll)),
		Proof:  noVictim,
		Heal:   onNode(passed),
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
	commonDisk = freed + "! mountpoint -q " + records + " || { umount -l " + records + "; cp -a /run/scenario-records/. " + records + "/; umount -l /run/scenario-records; }\n"
)

// findRecord keeps the number of the container, and unwritten succeeds when containerd has deleted its task and
// the record of it does not have the end.
var findRecord = onNode(findShim + "echo $id >/run/scenario-$NAME.record")

const unwritten = `id=$(cat /run/scenario-$NAME.record)
! ctr -n k8s.io task ls | grep -q $id
grep -q '"FinishedAt":0,' ` + records + `/$id/status
`

func diskFull() Scenario {
	return Scenario{
		Name:   "disk-full",
		Needs:  []Need{PodNetwork},
		Story:  "the file system of containerd's records is full, so that containerd cannot write down that the container has ended",
		Pod:    victim(3, "drain", "0"),
		NoExec: true,
		Break:  inTurn(findRecord, onNode(ownDisk("size=4m", useSpace))),
		Proof:  noVictim + unwritten,
		Cause:  "NodeResourceExhausted",
		Family: "Space",
		Says: []string{"locked in phase Runtime", "containerd cannot write down that container main has ended", "records is full (4 MiB, at " + records + ")", "df " + records,
			"Do not restart containerd"},
		Heal: onNode(commonDisk),
	}
}

// diskFullOnce is innocent: containerd tries again to write it down.
func diskFullOnce() Scenario {
	return Scenario{
		Name:   "disk-full-once",
		Needs:  []Need{PodNetwork},
		Story:  "innocent: the file system of containerd's records is full when the container ends, and some seconds later no more",
		Pod:    victim(1, "drain", "0"),
		NoExec: true,
		Break:  inTurn(findRecord, onNode(ownDisk("size=4m", useSpace)+after("15", freed))),
		Proof:  noVictim + unwritten,
		Heal:   onNode(passed + commonDisk),
	}
}

func diskInodes() Scenario {
	return Scenario{
		Name:   "disk-without-inodes",
		Needs:  []Need{PodNetwork},
		Story:  "the file system of containerd's records has no inode left, and the container ends long before the deadline",
		Pod:    victim(45, "drain", "0"),
		NoExec: true,
		Break:  inTurn(findRecord, onNode(ownDisk("nr_inodes=500", useInodes))),
		Proof:  noVictim + unwritten,
		Cause:  "NodeResourceExhausted",
		Family: "Inodes",
		Says:   []string{"containerd cannot write down that container main has ended", "records has no inode left (500 files and directories, at " + records + ")", "du -x --inodes"},
		Heal:   onNode(commonDisk),
	}
}

// diskReadOnly has containerd's directory mounted read-only.
func diskReadOnly() Scenario {
	return Scenario{
		Name:   "disk-read-only",
		Needs:  []Need{PodNetwork},
		Story:  "the file system of containerd's directory is read-only, so that containerd cannot write down that the container has ended",
		Pod:    victim(3, "drain", "0"),
		NoExec: true,
		Break:  inTurn(findRecord, onNode("mount --bind /var/lib/containerd /var/lib/containerd && mount -o remount,bind,ro /var/lib/containerd")),
		Proof:  noVictim + unwritten,
		Cause:  "NodeResourceExhausted",
		Family: "ReadOnly",
		Says: []string{"locked in phase Runtime", "containerd cannot write down that container main has ended", "records is read-only (at " + records + ")",
			"dmesg", "findmnt -T " + records},
		Heal: onNode("! mountpoint -q /var/lib/containerd || umount -l /var/lib/containerd"),
	}
}
