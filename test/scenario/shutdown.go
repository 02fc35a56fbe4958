package scenario

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

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

// withPreStop gives the pod's container a preStop hook.
func withPreStop(spec corev1.PodSpec, command ...string) corev1.PodSpec {
	spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: command}}}
	return spec
}

func preStopHangs() bed.Scenario {
	return bed.Scenario{
		Name:  "pre-stop-hangs",
		Story: "the preStop hook does not end, and leaves the program two seconds",
		Place: bed.Place{
			Alone: true, // it must be seen shortly before its end
		},
		Fault: bed.Fault{
			Pod:   withPreStop(pod(30, bed.BusyboxImage, "sleep", "100000"), "sh", "-c", "sleep 100000"),
			Proof: signalFunctions + `for t in $(tasks); do [ $t != $p ] && tr '\0' ' ' </proc/$t/cmdline | grep -q sleep && exit 0; done; exit 1`,
		},
		Want: bed.Want{
			Cause: "PreStopHookRunning",
			Says:  []string{"container main", "preStop hook", "SIGTERM"},
			When:  bed.WhenGone,
		},
	}
}

// preStopEnds is innocent: its hook takes a while, and the program ends when it is
// asked to.
func preStopEnds() bed.Scenario {
	return bed.Scenario{
		Name:  "pre-stop-ends",
		Story: "innocent: a preStop hook takes twelve seconds, and then the program ends by SIGTERM",
		Fault: bed.Fault{
			Pod: withPreStop(pod(60, bed.BusyboxImage, "sh", "-c", "trap 'exit 0' TERM; while :; do sleep 1; done"), "sh", "-c", "sleep 12"),
		},
	}
}

// sleeping is a hook that is a sleep of the kubelet.
func sleeping(seconds int64) *corev1.LifecycleHandler {
	return &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: seconds}}
}

// asking is a hook that is a request of the kubelet to port 8080, on which victim serve listens.
func asking() *corev1.LifecycleHandler {
	return &corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/", Port: intstr.FromInt32(8080)}}
}

// preStop gives the pod's container a preStop hook of any kind.
func preStop(spec corev1.PodSpec, hook *corev1.LifecycleHandler) corev1.PodSpec {
	spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: hook}
	return spec
}

// noting is a program that takes SIGTERM, writes that down in /stopped, and goes on.
var noting = []string{"sh", "-c", "trap ': >/stopped' TERM; while :; do sleep 1; done"}

// The state of the kubelet's connection to port 8080, by the node's list: one over which nothing
// has come back, and one that has had an answer and stays open.
const (
	requestPending  = `awk '$3~/:1F90$/ && $4=="01" && $14=="0"{found=1} END{exit !found}' /proc/net/tcp`
	requestAnswered = `awk '$3~/:1F90$/ && $4=="01" && $14!="0"{found=1} END{exit !found}' /proc/net/tcp`
)

func preStopSleeps() bed.Scenario {
	return bed.Scenario{
		Name:  "pre-stop-sleeps",
		Story: "the preStop hook sleeps as long as the grace period, and leaves the program two seconds",
		Fault: bed.Fault{
			Pod:   preStop(pod(60, bed.BusyboxImage, noting...), sleeping(60)),
			Break: onFirst(handles),
			Proof: signalFunctions + "sleep 5; [ ! -e /proc/$p/root/stopped ] && [ -e /proc/$p/root/bin ]",
		},
		Want: bed.Want{
			Cause:  "PreStopHookRunning",
			Family: "Sleep",
			Says:   []string{"container main", "preStop hook, a sleep of ", "used up the grace period", "SIGTERM"},
			When:   bed.WhenGone,
		},
	}
}

// preStopSleepEnds is innocent: what is left of the grace period is not enough for its program,
// which is another story than a hook that takes all of it.
func preStopSleepEnds() bed.Scenario {
	return bed.Scenario{
		Name:  "pre-stop-sleep-ends",
		Story: "innocent: a preStop hook sleeps for a third of the grace period, and the program then uses the rest",
		Fault: bed.Fault{
			Pod:   preStop(pod(60, bed.BusyboxImage, noting...), sleeping(20)),
			Break: onFirst(handles),
			Proof: signalFunctions + "[ -e /proc/$p/root/stopped ]",
		},
	}
}

func preStopUnanswered() bed.Scenario {
	return bed.Scenario{
		Name:  "pre-stop-http-hangs",
		Story: "the preStop hook is an HTTP request that is never answered, and leaves the program two seconds",
		Place: bed.Place{
			Needs: []bed.Need{bed.PodNetwork},
			Alone: true, // it must be seen shortly before its end
		},
		Fault: bed.Fault{
			Pod:   preStop(victim(90, "serve", "/other"), asking()),
			Break: onFirst(ready),
			Proof: requestPending,
		},
		Want: bed.Want{
			Cause:  "PreStopHookRunning",
			Family: "HTTP",
			Says:   []string{"container main", "an HTTP request to port 8080 of the pod, had no answer", "SIGTERM"},
			When:   bed.WhenGone,
		},
	}
}

// preStopUnreachable has a firewall of the node drop what the kubelet sends to the port, so that its
// connection is never made.
func preStopUnreachable() bed.Scenario {
	firewall := func(script string) bed.Step {
		return func(ctx context.Context, n *bed.Node, p *corev1.Pod) error {
			return bed.OnNode("rule='OUTPUT -p tcp -d "+p.Status.PodIP+" --dport 8080 -j DROP'\n"+script)(ctx, n, p)
		}
	}
	s := preStopUnanswered()
	s.Name = "pre-stop-http-unreachable"
	s.Story = "the preStop hook is an HTTP request of which the packets are dropped, and leaves the program two seconds"
	s.Break = firewall("iptables -w -I $rule")
	s.Proof = `awk '$3~/:1F90$/ && $4=="02"{found=1} END{exit !found}' /proc/net/tcp`
	s.Heal = firewall("! iptables -w -C $rule 2>/dev/null || iptables -w -D $rule")
	return s
}

// preStopAnswered is innocent: the kubelet keeps the connection of its hook for the next request, and
// its probe has no answer.
func preStopAnswered() bed.Scenario {
	spec := preStop(victim(60, "serve", "/"), asking())
	spec.Containers[0].ReadinessProbe = &corev1.Probe{PeriodSeconds: 1, TimeoutSeconds: 4, ProbeHandler: corev1.ProbeHandler{
		HTTPGet: &corev1.HTTPGetAction{Path: "/ready", Port: intstr.FromInt32(8080)},
	}}
	return bed.Scenario{
		Name:  "pre-stop-http-answered",
		Story: "innocent: the preStop hook is an HTTP request that is answered immediately, over a connection that stays open, a probe of the same port is not, and the program uses the grace period",
		Place: bed.Place{Needs: []bed.Need{bed.PodNetwork}},
		Fault: bed.Fault{
			Pod:   spec,
			Break: onFirst(ready),
			Proof: requestAnswered,
		},
	}
}

func throttledCPU() bed.Scenario {
	return bed.Scenario{
		Name:  "throttled-cpu",
		Story: "the program has work to do before it ends, and a quota of a hundredth of a processor",
		Place: bed.Place{Needs: []bed.Need{bed.CgroupV2}},
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
		Place: bed.Place{Needs: []bed.Need{bed.CgroupV2}},
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
		Place: bed.Place{Needs: []bed.Need{bed.Sysctl}},
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
			Says:  []string{"container main", "sleep", "control group " + name},
		},
	}
	if cause == "" {
		s.Story = "innocent: the process that outlives the container does not hold its output"
		s.Proof = ""
	}
	return s
}
