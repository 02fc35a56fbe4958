package scenario

import (
	"github.com/nodeagent-io/nodeagent/test/bed"
)

func slowShutdown() bed.Scenario {
	return bed.Scenario{
		Name:  "slow-shutdown",
		Story: "the program handles SIGTERM and needs longer than its grace period",
		Fault: bed.Fault{
			Pod:   victim(60, "drain", "100000"),
			Break: onFirst(ready + lived),
			Proof: signalFunctions + "has SigCgt 15 $p",
		},
		Want: bed.Want{
			Cause: "SlowShutdown",
			Says:  []string{"container main", "victim", "SIGTERM"},
			When:  bed.WhenGone,
		},
	}
}

func throttledCPU() bed.Scenario {
	return bed.Scenario{
		Name:  "throttled-cpu",
		Story: "the program has work to do before it ends, and a quota of a hundredth of a processor",
		Place: bed.Place{Needs: []bed.Need{bed.CgroupV2}, Hungry: true},
		Fault: bed.Fault{
			Pod: victim(60, "burn", "60"),
			// Not from the start: throttled so, the program would take a minute to
			// ask for SIGTERM.
			Break: onFirst(ready + lived + "echo '1000 100000' >/sys/fs/cgroup$(sed -n 's/^0:://p' /proc/$p/cgroup)/cpu.max"),
			Proof: signalFunctions + `[ $(awk '$1=="nr_throttled"{print $2}' /sys/fs/cgroup$(sed -n 's/^0:://p' /proc/$p/cgroup)/cpu.stat) -gt 20 ]`,
		},
		Want: bed.Want{
			Cause:  "ShutdownThrottled",
			Family: "CPU",
			Says:   []string{"container main", "victim", "SIGTERM", "0.01 processors"},
			When:   bed.WhenGone,
		},
	}
}

func throttledMemory() bed.Scenario {
	return bed.Scenario{
		Name:  "throttled-memory",
		Story: "the program needs memory to end, and memory.high is below what it has",
		Place: bed.Place{Needs: []bed.Need{bed.CgroupV2}, Hungry: true},
		Fault: bed.Fault{
			Pod:   victim(60, "allocate", "64"),
			Break: onFirst(ready + lived + "echo 16M >/sys/fs/cgroup$(sed -n 's/^0:://p' /proc/$p/cgroup)/memory.high"),
			Proof: signalFunctions + `g=/sys/fs/cgroup$(sed -n 's/^0:://p' /proc/$p/cgroup)
[ $(cat $g/memory.current) -gt $(cat $g/memory.high) ] && [ $(awk '$1=="high"{print $2}' $g/memory.events) -gt 1 ] && grep -q mem_cgroup_handle_over_high /proc/$p/task/*/stack`,
		},
		Want: bed.Want{
			Cause:  "ShutdownThrottled",
			Family: "Memory",
			Says:   []string{"container main", "victim", "SIGTERM", "memory.high"},
			When:   bed.WhenGone,
		},
	}
}

// coreDump sets the node's core_pattern to a program that does not read what it
// is given, for the thread name of this scenario only.
func coreDump() bed.Scenario {
	const dir = "/var/lib/scenario-core" // nothing in /run may be executed
	return bed.Scenario{
		Name:  "core-dump",
		Story: "the program crashes when it is asked to stop, and what takes its core dump is slow",
		Place: bed.Place{Needs: []bed.Need{bed.Sysctl}, Hungry: true},
		Fault: bed.Fault{
			Pod: victim(60, "dump", "64"),
			Prepare: bed.OnNode(`mkdir -p ` + dir + `
[ -e ` + dir + `/before ] || cat /proc/sys/kernel/core_pattern >` + dir + `/before
cat >` + dir + `/take <<'END'
#!/bin/sh
[ "$1" = scenario-dump ] || exit 0
echo $$ >` + dir + `/pid
exec sleep 100000
END
chmod +x ` + dir + `/take
echo "|` + dir + `/take %e" >/proc/sys/kernel/core_pattern`),
			Break: onFirst(ready),
			Proof: signalFunctions + "grep -q '^CoreDumping:.1' /proc/$p/status",
			Heal: bed.OnNode(`[ ! -e ` + dir + `/before ] || cat ` + dir + `/before >/proc/sys/kernel/core_pattern
if [ -e ` + dir + `/pid ] && [ -d /proc/$(cat ` + dir + `/pid) ]; then kill $(cat ` + dir + `/pid); fi
rm -rf ` + dir),
		},
		Want: bed.Want{
			Cause: "CoreDumpInProgress",
			Says:  []string{"container main", "crashed", dir + "/take"},
			When:  bed.WhenGone,
		},
	}
}

// leftover is a pod that shares the node's PIDs and has started a process that
// is not in its control groups any more, as a container engine, systemd-run or a
// session does. As long as that holds the container's output open, the shim waits.
func leftover(name, output, cause string) bed.Scenario {
	group := "/sys/fs/cgroup/" + name
	spec := pod(5, bed.BusyboxImage, "sh", "-c", "trap 'exit 0' TERM; sleep 100000 "+output+" & wait")
	spec.HostPID = true
	s := bed.Scenario{
		Name:  name,
		Story: "with hostPID, a process that has left the pod's control groups outlives the container and holds its output",
		Place: bed.Place{Needs: []bed.Need{bed.CgroupV2}},
		Fault: bed.Fault{
			Pod: spec,
			Break: bed.OnNode(`for t in $(tasks); do [ "$(cat /proc/$t/comm)" != sleep ] || c=$t; done
mkdir -p ` + group + `
echo $c >` + group + `/cgroup.procs
echo $c >/run/scenario-$NAME.pid`),
			Proof: `c=$(cat /run/scenario-$NAME.pid)
[ "$(cat /proc/$c/comm)" = sleep ] && readlink /proc/$c/fd/1 | grep -q pipe
for t in $(tasks); do [ "$(cat /proc/$t/comm)" != sh ]; done`,
			Heal: bed.OnNode(`c=$(cat /run/scenario-$NAME.pid)
[ ! -e /proc/$c ] || kill $c
[ ! -e ` + group + ` ] || until rmdir ` + group + `; do sleep 1; done`),
		},
		Want: bed.Want{
			Cause: cause,
			Says:  []string{"container main", "sleep", "Seen: cgroup " + name},
		},
	}
	if cause == "" {
		s.Story = "innocent: the process that outlives the container does not hold its output"
		s.Proof = ""
	}
	return s
}
