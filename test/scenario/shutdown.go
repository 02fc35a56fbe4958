package scenario

import corev1 "k8s.io/api/core/v1"

func slowShutdown() Scenario {
	return Scenario{
		Name:     "slow-shutdown",
		Story:    "the program handles SIGTERM and needs longer than its grace period",
		Pod:      victim(60, "drain", "100000"),
		Break:    onFirst(ready + lived),
		Proof:    signalFunctions + "has SigCgt 15 $p",
		Cause:    "SlowShutdown",
		Says:     []string{"container main", "victim", "SIGTERM"},
		WhenGone: true,
	}
}

// withPreStop gives the pod's container a preStop hook.
func withPreStop(spec corev1.PodSpec, command ...string) corev1.PodSpec {
	spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: command}}}
	return spec
}

func preStopHangs() Scenario {
	return Scenario{
		Name:     "pre-stop-hangs",
		Story:    "the preStop hook does not end, and leaves the program two seconds",
		Pod:      withPreStop(pod(30, BusyboxImage, "sleep", "100000"), "sh", "-c", "sleep 100000"),
		Proof:    signalFunctions + `for t in $(tasks); do [ $t != $p ] && tr '\0' ' ' </proc/$t/cmdline | grep -q sleep && exit 0; done; exit 1`,
		Cause:    "PreStopHookRunning",
		Says:     []string{"container main", "preStop hook", "SIGTERM"},
		WhenGone: true,
		Alone:    true, // it must be seen shortly before its end
	}
}

// preStopEnds is innocent: its hook takes a while, and the program ends when it is
// asked to.
func preStopEnds() Scenario {
	return Scenario{
		Name:  "pre-stop-ends",
		Story: "innocent: a preStop hook takes twelve seconds, and then the program ends by SIGTERM",
		Pod:   withPreStop(pod(60, BusyboxImage, "sh", "-c", "trap 'exit 0' TERM; while :; do sleep 1; done"), "sh", "-c", "sleep 12"),
	}
}

func throttledCPU() Scenario {
	return Scenario{
		Name:  "throttled-cpu",
		Needs: []Need{CgroupV2},
		Story: "the program has work to do before it ends, and a quota of a hundredth of a processor",
		Pod:   victim(60, "burn", "60"),
		// Not from the start: throttled so, the program would take a minute to
		// ask for SIGTERM.
		Break:    onFirst(ready + lived + "echo '1000 100000' >/sys/fs/cgroup$(sed -n 's/^0:://p' /proc/$p/cgroup)/cpu.max"),
		Proof:    signalFunctions + `[ $(awk '$1=="nr_throttled"{print $2}' /sys/fs/cgroup$(sed -n 's/^0:://p' /proc/$p/cgroup)/cpu.stat) -gt 20 ]`,
		Cause:    "ShutdownThrottled",
		Family:   "CPU",
		Says:     []string{"container main", "victim", "SIGTERM", "0.01 processors"},
		WhenGone: true,
	}
}

func throttledMemory() Scenario {
	return Scenario{
		Name:  "throttled-memory",
		Needs: []Need{CgroupV2},
		Story: "the program needs memory to end, and memory.high is below what it has",
		Pod:   victim(60, "allocate", "64"),
		Break: onFirst(ready + lived + "echo 16M >/sys/fs/cgroup$(sed -n 's/^0:://p' /proc/$p/cgroup)/memory.high"),
		Proof: signalFunctions + `g=/sys/fs/cgroup$(sed -n 's/^0:://p' /proc/$p/cgroup)
[ $(cat $g/memory.current) -gt $(cat $g/memory.high) ] && [ $(awk '$1=="high"{print $2}' $g/memory.events) -gt 1 ] && grep -q mem_cgroup_handle_over_high /proc/$p/task/*/stack`,
		Cause:    "ShutdownThrottled",
		Family:   "Memory",
		Says:     []string{"container main", "victim", "SIGTERM", "memory.high"},
		WhenGone: true,
	}
}

// coreDump sets the node's core_pattern to a program that does not read what it
// is given, for the thread name of this scenario only.
func coreDump() Scenario {
	const dir = "/var/lib/scenario-core" // nothing in /run may be executed
	return Scenario{
		Name:  "core-dump",
		Needs: []Need{Sysctl},
		Story: "the program crashes when it is asked to stop, and what takes its core dump is slow",
		Pod:   victim(60, "dump", "64"),
		Prepare: onNode(`mkdir -p ` + dir + `
[ -e ` + dir + `/before ] || cat /proc/sys/kernel/core_pattern >` + dir + `/before
cat >` + dir + `/take <<'END'
#!/bin/sh
[ "$1" = scenario-dump ] || exit 0
echo $$ >` + dir + `/pid
exec sleep 100000
END
chmod +x ` + dir + `/take
echo "|` + dir + `/take %e" >/proc/sys/kernel/core_pattern`),
		Break:    onFirst(ready),
		Proof:    signalFunctions + "grep -q '^CoreDumping:.1' /proc/$p/status",
		Cause:    "CoreDumpInProgress",
		Says:     []string{"container main", "crashed", dir + "/take"},
		WhenGone: true,
		Heal: onNode(`[ ! -e ` + dir + `/before ] || cat ` + dir + `/before >/proc/sys/kernel/core_pattern
if [ -e ` + dir + `/pid ] && [ -d /proc/$(cat ` + dir + `/pid) ]; then kill $(cat ` + dir + `/pid); fi
rm -rf ` + dir),
	}
}

// leftover is a pod that shares the node's PIDs and has started a process that
// is not in its control groups any more, as a container engine, systemd-run or a
// session does. As long as that holds the container's output open, the shim waits.
func leftover(name, output, cause string) Scenario {
	group := "/sys/fs/cgroup/" + name
	spec := pod(5, BusyboxImage, "sh", "-c", "trap 'exit 0' TERM; sleep 100000 "+output+" & wait")
	spec.HostPID = true
	s := Scenario{
		Name:  name,
		Needs: []Need{CgroupV2},
		Story: "with hostPID, a process that has left the pod's control groups outlives the container and holds its output",
		Pod:   spec,
		Break: onNode(`for t in $(tasks); do [ "$(cat /proc/$t/comm)" != sleep ] || c=$t; done
mkdir -p ` + group + `
echo $c >` + group + `/cgroup.procs
echo $c >/run/scenario-$NAME.pid`),
		Proof: `c=$(cat /run/scenario-$NAME.pid)
[ "$(cat /proc/$c/comm)" = sleep ] && readlink /proc/$c/fd/1 | grep -q pipe
for t in $(tasks); do [ "$(cat /proc/$t/comm)" != sh ]; done`,
		Cause: cause,
		Says:  []string{"container main", "sleep", "control group " + name},
		Heal: onNode(`c=$(cat /run/scenario-$NAME.pid)
[ ! -e /proc/$c ] || kill $c
while [ -s ` + group + `/cgroup.procs ]; do sleep 1; done
[ ! -e ` + group + ` ] || rmdir ` + group),
	}
	if cause == "" {
		s.Story = "innocent: the process that outlives the container does not hold its output"
		s.Proof = ""
	}
	return s
}
