package scenario

import (
	"context"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/nodeagent-io/nodeagent/test/bed"
)

// hooks lists the incidents behind a preStop hook and deep inside a long grace period, and the pods that
// look like them and are innocent.
func hooks() []bed.Scenario {
	return []bed.Scenario{
		// A program that does not end by its signal, when its hook is over.
		preStopSlept(), preStopShellSlept(), preStopThenIgnores(), preStopLeavesLittle(), preStopThenSlow(), preStopSleepThenSlow(),
		preStopDrains(), preStopLeavesBehind(), preStopEnds(), handlesLate(),

		// A hook that takes the grace period.
		preStopHangs(), preStopHangsThenEnds(), preStopSleeps(), preStopUnanswered(), preStopUnreachable(), preStopAnswered(), preStopWaits(),

		// Inside the grace period.
		inGraceDrains(), inGraceHook(), inGraceBesideSidecar(),
	}
}

// executing is a hook that is a program that is executed in the container.
func executing(command ...string) *corev1.LifecycleHandler {
	return &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: command}}
}

// preStopSlept has a hook that is over long before the deadline, after which the program is sent SIGTERM.
func preStopSlept() bed.Scenario {
	s := shellPID1()
	s.Name = "pre-stop-slept"
	s.Story = "a preStop hook sleeps for an eighth of the grace period, and then a shell keeps SIGTERM from the program it runs"
	s.Pod = preStop(s.Pod, sleeping(5))
	return s
}

// preStopShellSlept has the commonest hook of all.
func preStopShellSlept() bed.Scenario {
	s := shellPID1()
	s.Name = "pre-stop-shell-slept"
	s.Story = "a preStop hook executes sh -c \"sleep 5\", and then a shell keeps SIGTERM from the program it runs"
	s.Pod = preStop(s.Pod, executing("sh", "-c", "sleep 5"))
	// A node that is short of something may not have started the hook before.
	s.Says, s.When = append(s.Says, "Its preStop hook "), bed.WhenGone
	return s
}

// preStopThenIgnores has a hook that is a script of several programs, after which the signal is ignored.
func preStopThenIgnores() bed.Scenario {
	s := ignoresTERM("pre-stop-then-ignores", bed.ProgramsImage, "bash")
	s.Story = "a preStop hook takes the pod out of service in a script, and then the program ignores SIGTERM"
	s.Pod = preStop(s.Pod, executing("bash", "-c", "touch /draining; for i in 1 2 3; do sleep 1; done; rm /draining"))
	s.Says, s.When = append(s.Says, "Its preStop hook may have asked the program to stop and "), bed.WhenGone
	return s
}

// preStopLeavesLittle has a hook that is over so late that the verdict may come when the pod has gone.
func preStopLeavesLittle() bed.Scenario {
	return bed.Scenario{
		Name:  "pre-stop-leaves-little",
		Story: "a preStop hook takes most of the grace period, and PID 1 has no handler for SIGTERM",
		Fault: bed.Fault{
			Pod:   preStop(pod(60, bed.BusyboxImage, "sleep", "100000"), executing("sh", "-c", "sleep 22; true")),
			Break: bed.OnNode(known),
			Proof: noHandler,
		},
		Want: bed.Want{
			Cause: "SignalDroppedByPID1",
			Says:  []string{"container main", "sleep", "SIGTERM", "Its preStop hook "},
			When:  bed.WhenGone,
		},
	}
}

// preStopThenSlow has what is left not be enough for its program, and preStopSleepThenSlow is the same of a sleep of the kubelet.
func preStopThenSlow() bed.Scenario {
	return bed.Scenario{
		Name:  "pre-stop-then-slow",
		Story: "a preStop hook sleeps for a part of the grace period, and the program then uses the rest",
		Fault: bed.Fault{
			Pod:   preStop(pod(60, bed.BusyboxImage, noting...), executing("sh", "-c", "sleep 5")),
			Break: onFirst(handles + lived),
			Proof: signalFunctions + "[ -e /proc/$p/root/stopped ]",
		},
		Want: bed.Want{
			Cause: "SlowShutdown",
			Says:  []string{"container main", `program "sh" handled SIGTERM`, "preStop hook"},
			When:  bed.WhenGone,
		},
	}
}

func preStopSleepThenSlow() bed.Scenario {
	s := preStopThenSlow()
	s.Name = "pre-stop-sleep-then-slow"
	s.Story = "a preStop hook is a sleep of the kubelet for a third of the grace period, and the program then uses the rest"
	s.Pod = preStop(pod(60, bed.BusyboxImage, noting...), sleeping(20))
	return s
}

// preStopDrains is innocent: its hook asks the program to end, waits for that, and both take a while.
func preStopDrains() bed.Scenario {
	return bed.Scenario{
		Name:  "pre-stop-drains",
		Story: "innocent: a preStop hook asks the program to end and waits until it has drained",
		Fault: bed.Fault{
			Pod: preStop(pod(90, bed.BusyboxImage, "sh", "-c", "trap 'sleep 12; exit 0' USR1; trap 'exit 0' TERM; while :; do sleep 1; done"),
				executing("sh", "-c", "kill -USR1 1; while [ -e /proc/1 ]; do sleep 1; done")),
			Break: onFirst(handles),
		},
	}
}

// preStopLeavesBehind is innocent: its hook has ended, and what it has left holds the output that containerd waits for.
func preStopLeavesBehind() bed.Scenario {
	return bed.Scenario{
		Name:  "pre-stop-leaves-behind",
		Story: "innocent: a preStop hook leaves a program running that holds its output, and then the program ends by SIGTERM",
		Fault: bed.Fault{
			Pod:   preStop(pod(90, bed.BusyboxImage, "sh", "-c", "trap 'exit 0' TERM; while :; do sleep 1; done"), executing("sh", "-c", "sleep 25 & true")),
			Break: onFirst(handles),
		},
	}
}

// handlesLate installs a handler when its signal is gone, which brings that not back.
func handlesLate() bed.Scenario {
	return bed.Scenario{
		Name:  "handles-late",
		Story: "a shell without a trap is PID 1 and installs one when SIGTERM has been dropped",
		Fault: bed.Fault{
			Pod: pod(120, bed.BusyboxImage, "sh", "-c",
				"while [ ! -e /late ]; do sleep 2; done; sleep 25; trap 'exit 0' TERM; while :; do sleep 2; done"),
			Break: bed.OnNode(known),
			Proof: noHandler + ": >/proc/$p/root/late",
		},
		Want: bed.Want{
			Cause: "ShellPID1NoTrap",
			Says:  []string{"container main", "shell sh", "SIGTERM"},
			When:  bed.InGrace,
			Stays: 45 * time.Second,
		},
	}
}

// preStopHangsThenEnds has the program end by its signal, which the hook has kept from it until the end.
func preStopHangsThenEnds() bed.Scenario {
	s := preStopHangs()
	s.Name = "pre-stop-hangs-then-ends"
	s.Story = "the preStop hook does not end, and the program then ends by SIGTERM immediately"
	s.Pod = preStop(pod(30, bed.BusyboxImage, "sh", "-c", "trap 'exit 0' TERM; while :; do sleep 1; done"), executing("sh", "-c", "sleep 100000"))
	s.Break = onFirst(handles)
	s.Says = []string{"container main", "preStop hook", "used up the grace period", "SIGTERM came only then", "the program exited at "}
	return s
}

// preStopWaits is a hook that waits for something that does not come, as for a quorum. What the remedy says ends the hook, and then
// the program is sent its signal.
func preStopWaits() bed.Scenario {
	return bed.Scenario{
		Name:  "pre-stop-waits",
		Story: "a preStop hook waits for a quorum that does not come, for much of a long grace period",
		Fault: bed.Fault{
			Pod: preStop(pod(170, bed.BusyboxImage, "sh", "-c", "trap 'exit 0' TERM; while :; do sleep 1; done"),
				executing("sh", "-c", "until [ -e /quorum ]; do sleep 1; done")),
			Break: onFirst(handles),
			Proof: signalFunctions + waitingHook + "[ -n \"$h\" ]",
			Heal:  onFirst(waitingHook + "[ -z \"$h\" ] || kill -TERM -$h"),
		},
		Want: bed.Want{
			Cause: "PreStopHookRunning",
			Says:  []string{"container main", "its preStop hook sh (PID ", "SIGTERM comes only after the hook; SIGKILL comes at ", "Fix: kill -TERM -"},
			When:  bed.InGrace,
		},
	}
}

// waitingHook has h be the PID of the hook's shell, or nothing.
const waitingHook = `h=; for t in $(tasks); do ! tr '\0' ' ' </proc/$t/cmdline 2>/dev/null | grep -q quorum || h=$t; done` + "\n"

// inGraceDrains is innocent: it drains for longer than a minute, and has a long time for that.
func inGraceDrains() bed.Scenario {
	return bed.Scenario{
		Name:  "in-grace-drains",
		Story: "innocent: a program drains for 75 seconds of a long grace period",
		Fault: bed.Fault{
			Pod:   victim(180, "drain", "75"),
			Break: onFirst(ready),
		},
		Want: bed.Want{Waits: []string{
			"Not stuck: container main is inside its grace period of ", "Process victim (PID ", "was sent SIGTERM at ", "it will be killed at ",
		}},
	}
}

// inGraceHook is innocent: it is its hook that takes longer than a minute.
func inGraceHook() bed.Scenario {
	return bed.Scenario{
		Name:  "in-grace-hook",
		Story: "innocent: a preStop hook takes 75 seconds of a long grace period",
		Fault: bed.Fault{
			Pod:   preStop(pod(180, bed.BusyboxImage, "sh", "-c", "trap 'exit 0' TERM; while :; do sleep 1; done"), executing("sh", "-c", "sleep 75; true")),
			Break: onFirst(handles),
		},
		Want: bed.Want{Waits: []string{"container main is inside its grace period of ", "Process sh (PID ", "its preStop hook (PID ", ", " +
			"and SIGTERM follows", "it will be killed at "}},
	}
}

// inGraceBesideSidecar is innocent: one of its containers has ended, and another one waits for its connections.
func inGraceBesideSidecar() bed.Scenario {
	s := inGraceDrains()
	s.Name = "in-grace-proxy"
	s.Story = "innocent: the program has ended, and a proxy beside it drains for 75 seconds of a long grace period"
	proxy := s.Pod.Containers[0]
	proxy.Name = "proxy"
	s.Pod = pod(180, bed.BusyboxImage, "sh", "-c", "trap 'exit 0' TERM; while :; do sleep 1; done")
	s.Pod.Containers = append(s.Pod.Containers, proxy)
	s.Break = onFirst(handles)
	s.Waits = []string{"container proxy is inside its grace period of ", "Process victim (PID ", "was sent SIGTERM at ", "it will be killed at "}
	return s
}

func preStopHangs() bed.Scenario {
	return bed.Scenario{
		Name:  "pre-stop-hangs",
		Story: "the preStop hook does not end, and leaves the program two seconds",
		Place: bed.Place{
			Alone: true, // it must be seen shortly before its end
		},
		Fault: bed.Fault{
			Pod:   preStop(pod(30, bed.BusyboxImage, "sleep", "100000"), executing("sh", "-c", "sleep 100000")),
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
			Pod: preStop(pod(60, bed.BusyboxImage, "sh", "-c", "trap 'exit 0' TERM; while :; do sleep 1; done"), executing("sh", "-c", "sleep 12")),
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
			Says:   []string{"container main", "preStop hook (sleep of ", "used up the grace period", "SIGTERM"},
			When:   bed.WhenGone,
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
			Says:   []string{"container main", "preStop hook (HTTP request to port 8080 of the pod) had no response", "SIGTERM"},
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
		Name: "pre-stop-http-answered",
		Story: "innocent: the preStop hook is an HTTP request that is answered immediately, over a connection that stays open, " +
			"a probe of the same port is not, and the program uses the grace period",
		Place: bed.Place{Needs: []bed.Need{bed.PodNetwork}},
		Fault: bed.Fault{
			Pod:   spec,
			Break: onFirst(ready),
			Proof: requestAnswered,
		},
	}
}

// Draining is a pod of another name that drains for long inside its grace period.
func Draining(name string, grace, seconds int64) bed.Scenario {
	s := inGraceDrains()
	s.Name, s.Pod = name, victim(grace, "drain", strconv.FormatInt(seconds, 10))
	return s
}
