package scenario

// scarce lists the incidents in which the pod's shim has used up a limit, and innocent ones that look
// like them. scarceOfNode lists those in which containerd has.
func scarce() []Scenario { return []Scenario{tasksUsedUp(), tasksUsedUpOnce()} }

func scarceOfNode() []Scenario { return []Scenario{descriptorsUsedUp(), descriptorsUsedUpOnce()} }

// confine is a shell script that puts the pod's shim into a control group of its own that may hold fewer
// tasks than it has, as where a unit's TasksMax is reached; release undoes that. With as many as it has
// there would be room again when a thread of the shim ends.
const (
	confine = findShim + `root=/sys/fs/cgroup
[ -e $root/cgroup.controllers ] || root=$root/pids
group=$root/scenario-$NAME
mkdir -p $group
echo $group >/run/scenario-$NAME.group
echo max >$group/pids.max
echo $shim >$group/cgroup.procs
echo 1 >$group/pids.max
`
	release = `group=$(cat /run/scenario-$NAME.group)
[ ! -e $group ] || echo max >$group/pids.max`
	// confined succeeds when the kernel refuses to start anything there.
	confined = `group=$(cat /run/scenario-$NAME.group)
[ $(cat $group/pids.current) -ge $(cat $group/pids.max) ]
grep -q "^max [1-9]" $group/pids.events
`
	noTask = "resource temporarily unavailable"
)

func tasksUsedUp() Scenario {
	return Scenario{
		Name:   "tasks-used-up",
		Story:  "the control group of the pod's shim has more tasks than it may have, so that the shim cannot start runc",
		Pod:    victim(3, "drain", "0"),
		Break:  onNode(confine),
		Proof:  "some S\n" + confined + logged(noTask),
		Cause:  "NodeResourceExhausted",
		Family: "Tasks",
		Says: []string{"locked in phase StopSignal", "the stop of container main fails each time", "shim (PID ", "may start no process: its control group scenario-tasks-used-up has",
			"fork/exec", noTask, "TasksMax"},
		Heal: onNode(release),
	}
}

// tasksUsedUpOnce is innocent: the kubelet's next try succeeds.
func tasksUsedUpOnce() Scenario {
	return Scenario{
		Name:  "tasks-used-up-once",
		Story: "innocent: the control group of the pod's shim has more tasks than it may have when the shim is to start runc the first time",
		Pod:   victim(1, "drain", "0"),
		Break: onNode(confine + `(
until ` + logged(noTask) + `; do sleep 1; done
sleep 7
` + release + `
) </dev/null >/dev/null 2>&1 &`),
		Proof: logged(noTask),
		Heal:  onNode(release),
	}
}

// openAll is a shell script that gives containerd a limit on open files below which all are open, as
// where it leaks some; closeAll undoes that.
const (
	openAll = `containerd=$(pgrep -o -x containerd)
prlimit --pid $containerd --nofile --noheadings --output SOFT >/run/scenario-$NAME.limit
prlimit --pid $containerd --nofile=8:
`
	closeAll = `prlimit --pid $(pgrep -o -x containerd) --nofile=$(cat /run/scenario-$NAME.limit):
`
	// allOpen succeeds when containerd has all files open that it may.
	allOpen = `containerd=$(pgrep -o -x containerd)
[ $(ls /proc/$containerd/fd | wc -l) -ge $(prlimit --pid $containerd --nofile --noheadings --output SOFT) ]
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
		Says: []string{"locked in phase Runtime", "containerd cannot write down that container main has ended", "containerd (PID ", "has as many files open as it may have (8)",
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
