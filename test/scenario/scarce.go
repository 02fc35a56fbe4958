package scenario

// scarce lists the incidents in which containerd has used up a limit, and innocent ones that look like
// them. A shim that has used up its tasks is not among them: as often as not it needs a thread itself, ends for
// want of one (newosproc, runtime/os_linux.go), and containerd cleans up after it.
func scarce() []Scenario { return []Scenario{descriptorsUsedUp(), descriptorsUsedUpOnce()} }

// openAll is a shell script that gives containerd a limit on open files below which all are open, as
// where it leaks some: it may open one of any number below the limit that is free. closeAll undoes that.
const (
	openAll = `containerd=$(pgrep -o -x containerd)
prlimit --pid $containerd --nofile --noheadings --output SOFT >/run/scenario-$NAME.limit
free=0
while [ -L /proc/$containerd/fd/$free ]; do free=$((free + 1)); done
prlimit --pid $containerd --nofile=$free:
`
	closeAll = `prlimit --pid $(pgrep -o -x containerd) --nofile=$(cat /run/scenario-$NAME.limit):
`
	// allOpen succeeds when containerd has all files open that it may.
	allOpen = `containerd=$(pgrep -o -x containerd)
limit=$(prlimit --pid $containerd --nofile --noheadings --output SOFT)
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
		Says: []string{"locked in phase Runtime", "containerd cannot write down that container main has ended", "containerd (PID ", "has as many files open as it may have (",
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
