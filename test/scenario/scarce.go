package scenario

// scarce lists the incidents in which containerd has used up a limit, or its disk, and innocent ones that look like
// them. A shim that has used up its tasks is not among them: as often as not it needs a thread itself, ends for
// want of one (newosproc, runtime/os_linux.go), and containerd cleans up after it.
func scarce() []Scenario {
	return []Scenario{descriptorsUsedUp(), descriptorsUsedUpOnce(), diskFull(), diskFullOnce(), diskReadOnly()}
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
		Break: onNode(openAll + `(
sleep 12
` + closeAll + `) </dev/null >/dev/null 2>&1 &`),
		Proof: noVictim,
		Heal:  onNode(closeAll),
	}
}

// fillDisk is a shell script that fills the node's disk, and goes on to where something is freed, as a log would that
// grows; emptyDisk undoes that.
const (
	fillDisk = `rm -f /scenario-fill
(
size=$(($(stat -f -c '(%f - 4096) * %S' /) - (8 << 20))) # ext4 keeps that many blocks
fallocate -l $size /scenario-fill
for by in 65536 4096; do
	while fallocate -o $size -l $by /scenario-fill; do size=$((size + by)); done
done
echo full >/run/scenario-$NAME.full
while :; do
	sleep 0.1
	while fallocate -o $size -l 4096 /scenario-fill; do size=$((size + 4096)); done
done
) </dev/null >/dev/null 2>&1 &
echo $! >/run/scenario-$NAME.filler
until [ -e /run/scenario-$NAME.full ]; do sleep 0.2; done
rm /run/scenario-$NAME.full
`
	emptyDisk = `end KILL /run/scenario-$NAME.filler
rm -f /scenario-fill
`
)

// findRecord keeps the name of containerd's record of the container, and unwritten succeeds as long as that does
// not have the end.
var findRecord = onNode(findShim + "echo /var/lib/containerd/io.containerd.grpc.v1.cri/containers/$id/status >/run/scenario-$NAME.record")

const unwritten = `grep -q '"FinishedAt":0,' $(cat /run/scenario-$NAME.record)` + "\n"

func diskFull() Scenario {
	return Scenario{
		Name:   "disk-full",
		Needs:  []Need{PodNetwork},
		Story:  "the node's disk is full, so that containerd cannot write down that the container has ended",
		Pod:    victim(3, "drain", "0"),
		NoExec: true,
		Break:  inTurn(findRecord, onNode(fillDisk)),
		Proof:  noVictim + "[ $(stat -f -c %a /) -lt 16 ]\n" + unwritten,
		Cause:  "NodeResourceExhausted",
		Family: "Space",
		Says: []string{"locked in phase Runtime", "containerd cannot write down that container main has ended", "the file system of /var/lib/containerd is full (", "df /var/lib/containerd",
			"Do not restart containerd"},
		Heal: onNode(emptyDisk),
	}
}

// diskFullOnce is innocent: containerd tries again to write it down.
func diskFullOnce() Scenario {
	s := diskFull()
	return Scenario{
		Name:   "disk-full-once",
		Needs:  s.Needs,
		Story:  "innocent: the node's disk is full when the container ends, and some seconds later no more",
		Pod:    victim(1, "drain", "0"),
		NoExec: true,
		Break:  inTurn(findRecord, onNode(fillDisk+"(\nsleep 12\n"+emptyDisk+") </dev/null >/dev/null 2>&1 &")),
		Proof:  noVictim + unwritten,
		Heal:   onNode(emptyDisk),
	}
}

// diskReadOnly has containerd's directory mounted read-only.
func diskReadOnly() Scenario {
	return Scenario{
		Name:   "disk-read-only",
		Needs:  []Need{PodNetwork},
		Story:  "the file system of containerd's directory is read-only, so that containerd cannot write down that the container has ended",
		// It ends long before the deadline, as most do, when nobody looks for what is used up.
		Pod:    victim(45, "drain", "0"),
		NoExec: true,
		Break:  inTurn(findRecord, onNode("mount --bind /var/lib/containerd /var/lib/containerd && mount -o remount,bind,ro /var/lib/containerd")),
		Proof:  noVictim + unwritten,
		Cause:  "NodeResourceExhausted",
		Family: "ReadOnly",
		Says: []string{"locked in phase Runtime", "containerd cannot write down that container main has ended", "the file system of /var/lib/containerd, where containerd (PID ", "is read-only",
			"dmesg", "mount -o remount,rw"},
		Heal: onNode("! mountpoint -q /var/lib/containerd || umount -l /var/lib/containerd"),
	}
}
