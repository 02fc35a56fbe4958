package scenario

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodeagent-io/nodeagent/test/bed"
)

// signals lists the incidents in which the stop signal does not end a container
// in time, and the pods that look like them and are innocent.
func signals() []bed.Scenario {
	return []bed.Scenario{
		// No handler.
		shellPID1(), sleepPID1(), loopsShortly(), readsBetween(), dashLoops(),
		noTrap("bash-no-trap", bed.ProgramsImage, "bash"),
		noTrap("dash-no-trap", bed.ProgramsImage, "dash"),
		initNoTrap(), noTrapBeside(), noTrapOverPipeline(), noTrapBesideCron(), tailOverDaemon(),
		entrypoint("ash-entrypoint", "docker-entrypoint.sh"), entrypoint("ash-script", "run"), shellExecutes(), pythonNoHandler(), nodeNoHandler(),
		handlesTERM(), handlesTERMInPython(), handlesTERMInNode(), handlesTERMInJava(),

		// A handler that removes itself, which then looks like none.
		resets("node-once-drains", known, "node", "-e", "process.once('SIGTERM', () => setTimeout(() => process.exit(0), 20000)); setInterval(() => {}, 1000)"),
		resets("node-once-drains-at-once", "", "node", "-e", "process.once('SIGTERM', () => setTimeout(() => process.exit(0), 20000)); setInterval(() => {}, 1000)"),
		resets("python-handler-resets", known, "python3", "-c", resetsTERM("SIG_DFL")),
		resets("python-handler-resets-at-once", "", "python3", "-c", resetsTERM("SIG_DFL")),
		resets("python-handler-ignores", known, "python3", "-c", resetsTERM("SIG_IGN")),
		resets("bash-trap-resets", known, "bash", "-c", trapOverDrain("trap - TERM; kill $!; wait $!")),
		resets("bash-trap-resets-at-once", "", "bash", "-c", trapOverDrain("trap - TERM; kill $!; wait $!")),
		resets("bash-trap-ignores", known, "bash", "-c", trapOverDrain("trap \"\" TERM; kill 0; wait")),
		resets("dash-trap-ignores", known, "dash", "-c", trapOverDrain("trap \"\" TERM; kill 0; wait")),
		tiniOverReset(),

		// A handler that does not run.
		trapDeferred("bash-trap-deferred", bed.ProgramsImage, "bash"),
		trapDeferred("dash-trap-deferred", bed.ProgramsImage, "dash"),
		trapDeferred("ash-trap-deferred", bed.BusyboxImage, "sh"),
		trapOverPython("bash-trap-over-python", "bash"),
		trapOverPython("dash-trap-over-python", "dash"),
		dashTrapOverNode(), sleepsInLoop("dash-sleeps-in-loop", "dash"), sleepsInLoop("bash-sleeps-in-loop", "bash"),
		trapAndWait("bash-trap-and-wait", bed.ProgramsImage, "bash"),
		trapAndWait("dash-trap-and-wait", bed.ProgramsImage, "dash"),
		trapAndWait("ash-trap-and-wait", bed.BusyboxImage, "sh"),
		trapPassesOn(), trapOverTee(), trapOnExit(),

		// Ignored, blocked, another signal.
		ignoresTERM("bash-ignores-term", bed.ProgramsImage, "bash"),
		ignoresTERM("dash-ignores-term", bed.ProgramsImage, "dash"),
		ignoresTERM("ash-ignores-term", bed.BusyboxImage, "sh"),
		interactive("bash-interactive", bed.ProgramsImage, "bash"),
		interactive("dash-interactive", bed.ProgramsImage, "dash"),
		interactive("ash-interactive", bed.BusyboxImage, "sh"),
		debugged(),
		blocksTERM(), blocksForAWhile(), computes(), waitsInSigwait(), readsSignalfd(), stopSignalMismatch(),

		// A small init before the program.
		tiniOverShell(), tiniGroup(), dumbInit(), dumbInitOverTrap(),
		initOverTrap("tini-over-trap", bed.BusyboxImage, "/bin/tini", "--", "sh"),
		initOverTrap("dumb-init-over-trap", bed.ProgramsImage, "dumb-init", "-c", "bash"),
		tiniOverIgnoring(), dumbInitRewrites(),
		groupDrains("dumb-init-group-drains", "dumb-init"), groupDrains("tini-group-drains", "tini", "-g", "--"),
		groupOutlived(),

		// The program cannot run.
		stopped(), stoppedAndContinued(),
		traced(), tracedAtExit(), tracedAndRuns(),
		frozenContainer(), frozenPod(), frozenPodV1(), frozenInside(), pausedContainer(),

		// The program is not done in time.
		slowShutdown(),
		throttledCPU(), throttledMemory(), coreDump(),

		// The program is done, what it has started is not.
		leftover("hostpid-leftover", "", "HostPIDLeftover"),
		leftover("hostpid-silent-leftover", ">/dev/null 2>&1", ""),
	}
}

// signalFunctions are shell functions for scripts on the node about the first
// process of the container main. first prints its PID, and p has it, or nothing;
// has and lacks FIELD SIGNAL PID look a signal up in a mask of /proc/PID/status;
// state STATE PID compares; child PID prints the oldest child.
const signalFunctions = `
first() {
  files=$(statuses)
  [ -n "$files" ] && awk '
    $1=="Name:"{name=$2} $1=="Tgid:"{group=$2} $1=="Pid:"{pid=$2}
    $1=="NSpid:" && name!="pause" && pid==group && NF>2 && $NF==1{print pid; found=1; exit}
    END{exit !found}' $files 2>/dev/null
}
bit() { mask=$(awk -v f="$1:" '$1==f{print substr($2,9)}' /proc/$3/status) && echo $((0x$mask >> ($2-1) & 1)); }
has() { [ "$(bit $*)" = 1 ]; }
lacks() { [ "$(bit $*)" = 0 ]; }
state() { grep -q "^State:.$1" /proc/$2/status; }
child() { read -r child rest </proc/$1/task/$1/children || [ -n "$child" ] && echo $child; }
p=$(first || true)
`

// onFirst is a step on the node, in which p is the first process.
func onFirst(script string) bed.Step {
	return bed.OnNode(signalFunctions + script)
}

// handles waits until the first process has installed its handler for SIGTERM:
// on a slow node that takes a while.
const handles = "until p=$(first) && has SigCgt 15 $p; do sleep 1; done\n"

// ready does that for test/victim, which tells when it has: Go's runtime has a
// handler from the start on, which ends the program unless it has asked for more.
const ready = "until p=$(first) && [ -e /proc/$p/root/ready ]; do sleep 1; done\n"

// outlive waits for longer than the grace period, so that what runs in the
// foreground cannot be expected to end within it.
const outlive = "sleep $((GRACE+5))\n"

// known waits until the agent has read what the program does with signals, a while
// before the deletion: it reads a pod when it is seen to run, and again when it has run
// for half as long again. knownLong does for a program that runs all the time: it must
// have been the same for a while. lived waits until a program has lived for so long that its
// handlers count as from before the deletion, whenever the agent reads it.
const (
	known     = "sleep $((GRACE/2+5))\n"
	knownLong = "sleep 45\n"
	lived     = "sleep 25\n"
)

// noHandler is the proof that the first process neither catches nor ignores nor
// blocks SIGTERM.
const noHandler = signalFunctions + "lacks SigCgt 15 $p && lacks SigIgn 15 $p && lacks SigBlk 15 $p\n"

func shellPID1() bed.Scenario { return noTrap("shell-pid1", bed.BusyboxImage, "sh") }

func noTrap(name, image, shell string) bed.Scenario {
	return bed.Scenario{
		Name:  name,
		Story: "a shell is PID 1 and keeps SIGTERM from the program it runs",
		Fault: bed.Fault{
			Pod:   pod(40, image, shell, "-c", "sleep 100000; true"),
			Break: bed.OnNode(known),
			Proof: noHandler + `[ "$(cat /proc/$(child $p)/comm)" = sleep ]`,
		},
		Want: bed.Want{
			Cause: "ShellPID1NoTrap",
			Says:  []string{"container main", "shell " + shell, "SIGTERM", "none of its programs receives it"},
			When:  bed.InGrace,
		},
	}
}

// initNoTrap waits for something that does not come, as for a database.
func initNoTrap() bed.Scenario {
	spec := pod(40, bed.BusyboxImage, "sleep", "100000")
	spec.InitContainers = []corev1.Container{{Name: "wait", Image: bed.BusyboxImage, ImagePullPolicy: corev1.PullNever, Command: []string{"sh",
		"-c", "until [ -e /there ]; do sleep 2; done"}}}
	return bed.Scenario{
		Name:  "init-no-trap",
		Story: "the shell of an init container waits in a loop and keeps SIGTERM from the program it runs",
		Fault: bed.Fault{
			Pod:      spec,
			Starting: true,
			Break:    onFirst("until p=$(first); do sleep 1; done\n" + knownLong),
			Proof:    noHandler + `[ "$(cat /proc/$(child $p)/comm)" = sleep ]`,
		},
		Want: bed.Want{
			Cause: "ShellPID1NoTrap",
			Says:  []string{"container wait", "shell sh", "SIGTERM"},
			When:  bed.InGrace,
		},
	}
}

// noTrapBeside has a container that the kubelet cannot create, so that the pod stays pending.
func noTrapBeside() bed.Scenario {
	s := shellPID1()
	s.Name = "no-trap-beside-missing"
	s.Story = "a shell is PID 1 and keeps SIGTERM from the program it runs, and the ConfigMap for a second container is missing"
	missing := corev1.EnvFromSource{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "missing"}}}
	s.Pod.Containers = append(s.Pod.Containers, corev1.Container{Name: "second", Image: bed.BusyboxImage, Command: []string{"sleep", "100000"},
		EnvFrom: []corev1.EnvFromSource{missing}})
	s.Starting = true
	s.Break = onFirst("until p=$(first) && child $p >/dev/null; do sleep 1; done\n" + known)
	return s
}

// noTrapOverPipeline has a program that writes to a filter, with which exec does not help.
func noTrapOverPipeline() bed.Scenario {
	return bed.Scenario{
		Name:  "dash-no-trap-pipeline",
		Story: "a shell is PID 1, runs a Python program that writes to tee, and keeps SIGTERM from it",
		Fault: bed.Fault{
			Pod:   pod(40, bed.ProgramsImage, "dash", "-c", "python3 -c 'import time; time.sleep(1e5)' | tee /log"),
			Break: onFirst("until has SigCgt 2 $(child $p); do sleep 1; done\n" + known),
			Proof: noHandler + `[ "$(cat /proc/$(child $p)/comm)" = python3 ]`,
		},
		Want: bed.Want{
			Cause: "ShellPID1NoTrap",
			Says:  []string{"container main", "shell dash", "SIGTERM", "python3 never receives it", "exec PROGRAM > >(tee FILE) 2>&1"},
			When:  bed.InGrace,
		},
	}
}

// noTrapBesideCron has a daemon that was started first, and is not the program.
func noTrapBesideCron() bed.Scenario {
	return bed.Scenario{
		Name:  "no-trap-beside-cron",
		Story: "a shell is PID 1, has started cron as a daemon, and keeps SIGTERM from nginx in its foreground",
		Fault: bed.Fault{
			Pod: pod(40, bed.ServersImage, "sh", "-c", "cron; nginx -c /everyday/nginx.conf; true"),
			Break: onFirst(`until for t in $(tasks); do [ "$(cat /proc/$t/comm)" = nginx ] && has SigCgt 15 $t && break; done; do sleep 1; done
` + known),
			Proof: noHandler,
		},
		Want: bed.Want{
			Cause: "ShellPID1NoTrap",
			Says:  []string{"container main", "shell sh", "SIGTERM", "nginx never receives it", "start nginx with exec in the script"},
			When:  bed.InGrace,
		},
	}
}

// tailOverDaemon has a program that serves beside PID 1, to which nobody can give a handler.
func tailOverDaemon() bed.Scenario {
	return bed.Scenario{
		Name:  "tail-over-daemon",
		Story: "a script has started a Python program as a daemon and replaced itself with tail, which is PID 1 and has no handler for SIGTERM",
		Fault: bed.Fault{
			Pod: pod(40, bed.ProgramsImage, "dash", "-c", inDaemon("import time; time.sleep(1e5)")+"exec tail -f /dev/null"),
			Break: onFirst(`until [ "$(cat /proc/$p/comm)" = tail ] && has SigIgn 13 $(child $p); do sleep 1; done
` + known), // Python ignores SIGPIPE when it has started
			Proof: noHandler + `[ "$(cat /proc/$(child $p)/comm)" = python3 ]`,
		},
		Want: bed.Want{
			Cause: "SignalDroppedByPID1",
			Says:  []string{"container main", "tail", "SIGTERM", "start python3 in the foreground, with exec and without tail"},
			When:  bed.InGrace,
		},
	}
}

// loopsShortly is a shell that a reading often finds between two programs: it stays the same verdict.
func loopsShortly() bed.Scenario {
	spec := pod(150, bed.BusyboxImage, "sh", "-c", "while true; do /bin/true; done")
	spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("50m")}
	return bed.Scenario{
		Name:  "shell-loops-shortly",
		Story: "a shell without a trap is PID 1 and runs one program after the other that each take milliseconds",
		Fault: bed.Fault{
			Pod:   spec,
			Break: bed.OnNode(knownLong),
			Proof: noHandler,
		},
		Want: bed.Want{
			Cause: "ShellPID1NoTrap",
			Says:  []string{"container main", "shell sh", "SIGTERM"},
			When:  bed.InGrace,
			Stays: 30 * time.Second,
		},
	}
}

// readsBetween is a shell that for long runs no program between two of its programs.
func readsBetween() bed.Scenario {
	return bed.Scenario{
		Name:  "shell-reads-between",
		Story: "a shell without a trap is PID 1, runs a short program from time to time and waits in a command of its own in between",
		Fault: bed.Fault{
			Pod:   pod(150, bed.BusyboxImage, "sh", "-c", "mkfifo /fifo; exec 3<>/fifo; while true; do date; read -t 25 line <&3; done"),
			Break: bed.OnNode(knownLong),
			Proof: noHandler,
		},
		Want: bed.Want{
			Cause: "ShellPID1NoTrap",
			Says:  []string{"container main", "shell sh", "SIGTERM"},
			When:  bed.InGrace,
			Stays: 40 * time.Second,
		},
	}
}

// dashLoops is the same in dash, which blocks all signals while it starts a program: two of five readings show that.
func dashLoops() bed.Scenario {
	s := loopsShortly()
	s.Name = "dash-loops-shortly"
	s.Story = "dash without a trap is PID 1 and runs one program after the other, for each of which it blocks all signals for a moment"
	s.Pod.Containers[0].Image, s.Pod.Containers[0].Command[0] = bed.ProgramsImage, "dash"
	s.Says = []string{"container main", "shell dash", "SIGTERM"}
	return s
}

func sleepPID1() bed.Scenario {
	return bed.Scenario{
		Name:  "sleep-pid1",
		Story: "PID 1 has no handler for SIGTERM",
		Fault: bed.Fault{
			Pod:   pod(40, bed.BusyboxImage, "sleep", "100000"),
			Break: bed.OnNode(known),
			Proof: noHandler,
		},
		Want: bed.Want{
			Cause: "SignalDroppedByPID1",
			Says:  []string{"container main", "sleep", "SIGTERM"},
			When:  bed.InGrace,
		},
	}
}

func shellExecutes() bed.Scenario {
	return bed.Scenario{
		Name:  "shell-executes",
		Story: "a shell has replaced itself with a program that has no handler for SIGTERM: no shell is left",
		Fault: bed.Fault{
			Pod:   pod(40, bed.ProgramsImage, "dash", "-c", "exec sleep 100000"),
			Break: bed.OnNode(known),
			Proof: noHandler + `[ "$(cat /proc/$p/comm)" = sleep ]`,
		},
		Want: bed.Want{
			Cause: "SignalDroppedByPID1",
			Says:  []string{"container main", "sleep", "SIGTERM"},
			When:  bed.InGrace,
		},
	}
}

func pythonNoHandler() bed.Scenario {
	return bed.Scenario{
		Name:  "python-no-handler",
		Story: "a Python program without a handler for SIGTERM is PID 1",
		Fault: bed.Fault{
			Pod:   python(40, "import time; time.sleep(1e5)"),
			Break: onFirst("until has SigCgt 2 $p; do sleep 1; done\n" + known), // it has started
			Proof: noHandler,
		},
		Want: bed.Want{
			Cause: "SignalDroppedByPID1",
			Says:  []string{"container main", "python3", "SIGTERM"},
			When:  bed.InGrace,
		},
	}
}

// nodeNoHandler catches SIGTERM, like every Node.js program. Without a listener
// its handler restores the default action and sends the signal again, which the
// kernel drops. One whose listener removes itself and drains looks the same to the
// last bit, so nothing is said before SIGKILL has ended the program.
func nodeNoHandler() bed.Scenario {
	return bed.Scenario{
		Name:  "node-no-handler",
		Story: "a Node.js program without a listener for SIGTERM is PID 1",
		Fault: bed.Fault{
			Pod:   pod(60, bed.LanguagesImage, "node", "-e", "setInterval(() => {}, 1000)"),
			Break: onFirst(handles + known),
			Proof: noHandler,
		},
		Want: bed.Want{
			Cause: "SlowShutdown",
			Says:  []string{"container main", "node", "SIGTERM", "add a listener"},
			When:  bed.WhenGone,
		},
	}
}

// resets is a program of which the handler for SIGTERM changes what the process does
// with the signal, and that ends twenty seconds later.
func resets(name, wait string, command ...string) bed.Scenario {
	image := bed.ProgramsImage
	if command[0] == "node" {
		image = bed.LanguagesImage
	}
	return bed.Scenario{
		Name:  name,
		Story: "innocent: the program's handler for SIGTERM removes itself, and the program drains and ends in time",
		Fault: bed.Fault{
			Pod:   pod(60, image, command...),
			Break: onFirst(handles + wait),
		},
	}
}

// resetsTERM is a Python program whose handler gives SIGTERM another action.
func resetsTERM(action string) string {
	return `import signal, sys, time
def stop(*_):
    signal.signal(signal.SIGTERM, signal.` + action + `)
    time.sleep(20)
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
while True: time.sleep(1000)`
}

// drains is a Python program that takes twenty seconds to end.
const drains = `import signal, sys, time
def stop(*_):
    time.sleep(20)
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
while True: time.sleep(1000)`

// trapOverDrain is a shell script with a trap, over a program in its background that
// takes twenty seconds to end.
func trapOverDrain(trap string) string {
	return "trap '" + trap + "' TERM; python3 -c \"" + drains + "\" & wait"
}

func tiniOverReset() bed.Scenario {
	return bed.Scenario{
		Name:  "tini-over-trap-ignores",
		Story: "innocent: tini forwards SIGTERM to a shell whose trap ignores further ones and waits for a program that drains",
		Fault: bed.Fault{
			Pod:   pod(60, bed.ProgramsImage, "tini", "--", "bash", "-c", trapOverDrain("trap \"\" TERM; kill 0; wait")),
			Break: onFirst(underInit + known),
		},
	}
}

// entrypoint is a script, run by busybox, of whose name the kernel shows 15 letters.
func entrypoint(name, file string) bed.Scenario {
	script, comm := "/tmp/"+file, file[:min(len(file), 15)]
	return bed.Scenario{
		Name:  name,
		Story: "a shell script that busybox runs is PID 1 and keeps SIGTERM from the program it runs",
		Fault: bed.Fault{
			Pod: pod(40, bed.BusyboxImage, "sh", "-c",
				"mkdir -p /tmp; printf '#!/bin/sh\\nsleep 100000; true\\n' >"+script+"; chmod +x "+script+"; exec "+script),
			Break: onFirst(`until [ "$(cat /proc/$p/comm)" = ` + comm + ` ]; do sleep 1; done
` + known),
			Proof: noHandler + `[ "$(cat /proc/$(child $p)/comm)" = sleep ]`,
		},
		Want: bed.Want{
			Cause: "ShellPID1NoTrap",
			Says:  []string{"container main", "shell " + comm, "SIGTERM", "none of its programs receives it"},
			When:  bed.InGrace,
		},
	}
}

// computes is a program that never sleeps, so that no system call of it is ever seen.
func computes() bed.Scenario {
	spec := pod(40, bed.BusyboxImage, "sh", "-c", "while :; do :; done")
	spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("50m")}
	return bed.Scenario{
		Name:  "computes",
		Story: "PID 1 computes all the time and has no handler for SIGTERM",
		Fault: bed.Fault{
			Pod:   spec,
			Break: bed.OnNode(knownLong),
			Proof: noHandler + "state R $p",
		},
		Want: bed.Want{
			Cause: "SignalDroppedByPID1",
			Says:  []string{"container main", "SIGTERM"},
			When:  bed.InGrace,
		},
	}
}

func handlesTERM() bed.Scenario {
	return bed.Scenario{
		Name:  "handles-term",
		Story: "innocent: the program handles SIGTERM and takes its time",
		Fault: bed.Fault{
			Pod: victim(60, "drain", "20"),
		},
	}
}

func handlesTERMInPython() bed.Scenario {
	return bed.Scenario{
		Name:  "python-handles-term",
		Story: "innocent: a Python program has a handler for SIGTERM",
		Fault: bed.Fault{
			Pod:   python(60, endsOnTERM),
			Break: onFirst(handles),
		},
	}
}

func handlesTERMInNode() bed.Scenario {
	return bed.Scenario{
		Name:  "node-handles-term",
		Story: "innocent: a Node.js program has a listener for SIGTERM, and drains",
		Fault: bed.Fault{
			Pod: pod(60, bed.LanguagesImage, "node", "-e", "process.on('SIGTERM', () => setTimeout(() => process.exit(0), 20000)); "+
				"setInterval(() => {}, 1000); process.title = 'ready'"),
			Break: onFirst(`until [ "$(cat /proc/$p/comm)" = ready ]; do sleep 1; done`),
		},
	}
}

func handlesTERMInJava() bed.Scenario {
	return bed.Scenario{
		Name:  "java-handles-term",
		Story: "innocent: a Java program ends by SIGTERM without any work of its own",
		Fault: bed.Fault{
			Pod:   pod(60, bed.LanguagesImage, "rmiregistry", "-J-Xmx32m"),
			Break: onFirst(handles),
		},
	}
}

// trapDeferred is deleted when its child has run for so long that it cannot be
// expected to end in time.
func trapDeferred(name, image, shell string) bed.Scenario {
	return bed.Scenario{
		Name:  name,
		Story: "a shell is PID 1 and puts its trap for SIGTERM off until the program in its foreground has ended",
		Fault: bed.Fault{
			Pod:   pod(40, image, shell, "-c", "trap 'exit 0' TERM; sleep 100000; true"),
			Break: onFirst(handles + outlive),
			Proof: signalFunctions + `c=$(child $p); has SigCgt 15 $p && [ "$(cat /proc/$c/comm)" = sleep ] && lacks SigIgn 2 $c && wchan $p | grep -q do_wait`,
		},
		Want: bed.Want{
			Cause: "ShellPID1TrapDeferred",
			Says:  []string{"container main", "shell " + shell, "SIGTERM", "sleep"},
			When:  bed.InGrace,
		},
	}
}

// trapOverPython has a child that catches SIGINT, which one in the background would
// ignore.
func trapOverPython(name, shell string) bed.Scenario {
	return bed.Scenario{
		Name:  name,
		Story: "a shell is PID 1 and puts its trap for SIGTERM off until the Python program in its foreground has ended",
		Fault: bed.Fault{
			Pod:   pod(40, bed.ProgramsImage, shell, "-c", "trap 'exit 0' TERM; python3 -c 'import time; time.sleep(1e5)'; true"),
			Break: onFirst(handles + "until has SigCgt 2 $(child $p); do sleep 1; done\n" + outlive),
			Proof: signalFunctions + `c=$(child $p); has SigCgt 15 $p && has SigCgt 2 $c && wchan $p | grep -q do_wait`,
		},
		Want: bed.Want{
			Cause: "ShellPID1TrapDeferred",
			Says:  []string{"container main", "shell " + shell, "SIGTERM", "python3"},
			When:  bed.InGrace,
		},
	}
}

// dashTrapOverNode has a child that catches SIGINT wherever it runs. dash waits for
// its background in another system call.
func dashTrapOverNode() bed.Scenario {
	return bed.Scenario{
		Name:  "dash-trap-over-node",
		Story: "a shell is PID 1 and puts its trap for SIGTERM off until the Node.js program in its foreground has ended",
		Fault: bed.Fault{
			Pod:   pod(40, bed.LanguagesImage, "dash", "-c", "trap 'exit 0' TERM; node -e 'setInterval(() => {}, 1000)'; true"),
			Break: onFirst(handles + "until has SigCgt 2 $(child $p); do sleep 1; done\n" + outlive),
			Proof: signalFunctions + `c=$(child $p); has SigCgt 15 $p && has SigCgt 2 $c && wchan $p | grep -q do_wait`,
		},
		Want: bed.Want{
			Cause: "ShellPID1TrapDeferred",
			Says:  []string{"container main", "shell dash", "SIGTERM", "node"},
			When:  bed.InGrace,
		},
	}
}

// sleepsInLoop is deleted when its second sleep has run for so long that it will have
// run for what is left of the grace period before it ends.
func sleepsInLoop(name, shell string) bed.Scenario {
	return bed.Scenario{
		Name:  name,
		Story: "innocent: a shell with a trap for SIGTERM sleeps in a loop and comes to its trap between two sleeps",
		Fault: bed.Fault{
			Pod:   pod(60, bed.ProgramsImage, shell, "-c", "trap 'exit 0' TERM; while :; do sleep 28; done"),
			Break: onFirst(handles + "first=$(child $p); while [ \"$(child $p)\" = $first ]; do sleep 1; done; sleep 7"),
		},
	}
}

func trapAndWait(name, image, shell string) bed.Scenario {
	return bed.Scenario{
		Name:  name,
		Story: "innocent: a shell has a trap for SIGTERM and waits for a program in its background",
		Fault: bed.Fault{
			Pod:   pod(60, image, shell, "-c", "trap 'exit 0' TERM; sleep 100000 & wait"),
			Break: onFirst(handles + outlive),
		},
	}
}

// trapPassesOn has a server in its background that handles SIGINT too, as uvicorn and
// gunicorn do, although it was started with SIGINT ignored.
func trapPassesOn() bed.Scenario {
	return bed.Scenario{
		Name:  "bash-trap-passes-on",
		Story: "innocent: a shell passes SIGTERM on to a Python server in its background, which handles SIGINT as well and drains",
		Fault: bed.Fault{
			Pod: pod(60, bed.ProgramsImage, "bash", "-c",
				"python3 -c \"import signal; signal.signal(signal.SIGINT, lambda *_: None)\n"+drains+"\" & trap 'kill -TERM $!; wait $!' TERM; wait $!"),
			Break: onFirst(handles + "until c=$(child $p) && has SigCgt 15 $c && has SigCgt 2 $c; do sleep 1; done\n" + outlive),
		},
	}
}

// trapOverTee has bash start tee in the background, which is told so by nothing that
// the kernel shows of it.
func trapOverTee() bed.Scenario {
	return bed.Scenario{
		Name:  "bash-trap-over-tee",
		Story: "innocent: a shell that writes through tee passes SIGTERM on to a Python server in its background, which drains",
		Fault: bed.Fault{
			Pod: pod(60, bed.ProgramsImage, "bash", "-c",
				"exec > >(tee /log); python3 -c \""+drains+"\" & trap 'kill -TERM $!; wait $!' TERM; wait $!"),
			Break: onFirst(handles + `until for c in $(tasks); do [ "$(cat /proc/$c/comm)" != python3 ] || has SigCgt 15 $c && break; done; do sleep 1; done
[ "$(cat /proc/$(child $p)/comm)" = tee ] && lacks SigIgn 2 $(child $p)
` + outlive),
		},
	}
}

// trapOnExit has bash run its trap immediately, although a program is in its foreground.
func trapOnExit() bed.Scenario {
	return bed.Scenario{
		Name:  "bash-trap-on-exit",
		Story: "innocent: a shell over tail has a trap for EXIT only, which stops a Python server in its background that drains",
		Fault: bed.Fault{
			Pod: pod(60, bed.ProgramsImage, "bash", "-c",
				"python3 -c \""+drains+"\" & pid=$!; trap 'kill -TERM $pid; wait $pid' EXIT; tail -f /dev/null"),
			Break: onFirst(handles + "until c=$(child $p) && has SigCgt 15 $c; do sleep 1; done\n" + outlive),
		},
	}
}

func ignoresTERM(name, image, shell string) bed.Scenario {
	return bed.Scenario{
		Name:  name,
		Story: "a shell ignores SIGTERM, and so does the program it runs",
		Fault: bed.Fault{
			Pod:   pod(40, image, shell, "-c", "trap '' TERM; sleep 100000; true"),
			Break: bed.OnNode(known),
			Proof: signalFunctions + "has SigIgn 15 $p && has SigIgn 15 $(child $p)",
		},
		Want: bed.Want{
			Cause: "StopSignalIgnored",
			Says:  []string{"container main", shell, "SIGTERM"},
			When:  bed.InGrace,
		},
	}
}

func interactive(name, image, shell string) bed.Scenario {
	spec := pod(40, image, shell)
	spec.Containers[0].Stdin, spec.Containers[0].TTY = true, true
	return bed.Scenario{
		Name:  name,
		Story: "a shell with a terminal ignores SIGTERM",
		Fault: bed.Fault{
			Pod:   spec,
			Break: bed.OnNode(known),
			Proof: signalFunctions + "has SigIgn 15 $p",
		},
		Want: bed.Want{
			Cause: "StopSignalIgnored",
			Says:  []string{"container main", shell, "SIGTERM"},
			When:  bed.InGrace,
		},
	}
}

// debugged has an interactive shell, which ignores SIGTERM, in the PID namespace of
// its container, as of kubectl debug --target. The kernel kills it when the container's
// first process ends.
func debugged() bed.Scenario {
	return bed.Scenario{
		Name:  "debugged",
		Story: "innocent: somebody debugs the program with a shell in its PID namespace, and the program drains and ends in time",
		Fault: bed.Fault{
			Pod: python(60, drains),
			Break: func(ctx context.Context, n *bed.Node, p *corev1.Pod) error {
				if err := onFirst(handles)(ctx, n, p); err != nil {
					return err
				}
				pods := n.API.CoreV1().Pods(p.Namespace)
				with := p.DeepCopy()
				with.Spec.EphemeralContainers = []corev1.EphemeralContainer{{
					EphemeralContainerCommon: corev1.EphemeralContainerCommon{
						Name: "debugger", Image: bed.ProgramsImage, ImagePullPolicy: corev1.PullNever, Command: []string{"bash"}, Stdin: true, TTY: true,
					},
					TargetContainerName: "main",
				}}
				if _, err := pods.UpdateEphemeralContainers(ctx, p.Name, with, metav1.UpdateOptions{}); err != nil {
					return fmt.Errorf("debug pod %s: %w", p.Name, err)
				}
				if err := n.Await(ctx, "the debugger to run", func() (bool, string) {
					now, err := pods.Get(ctx, p.Name, metav1.GetOptions{})
					if err != nil {
						return false, err.Error()
					}
					s := now.Status.EphemeralContainerStatuses
					return len(s) == 1 && s[0].State.Running != nil, fmt.Sprintf("%+v", s)
				}); err != nil {
					return err
				}
				return bed.OnNode("until grep -l '^Name:.bash' $(statuses) >/dev/null; do sleep 1; done\n"+known)(ctx, n, p)
			},
		},
	}
}

func blocksTERM() bed.Scenario {
	return bed.Scenario{
		Name:  "blocks-term",
		Story: "a program blocks SIGTERM in its only thread and never takes it",
		Fault: bed.Fault{
			Pod:   python(60, "import signal, time; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM]); time.sleep(1e5)"),
			Break: onFirst("until has SigBlk 15 $p; do sleep 1; done"),
			Proof: signalFunctions + "has SigBlk 15 $p && has ShdPnd 15 $p",
		},
		Want: bed.Want{
			Cause: "StopSignalBlocked",
			Says:  []string{"container main", "python3", "SIGTERM"},
			When:  bed.InGrace,
		},
	}
}

// blocksForAWhile leaves the signal pending until its work is done.
func blocksForAWhile() bed.Scenario {
	return bed.Scenario{
		Name:  "blocks-term-for-a-while",
		Story: "innocent: a program blocks SIGTERM while it must not be interrupted, and takes it afterwards",
		Fault: bed.Fault{
			Pod: python(60, `import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
while True:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    time.sleep(20)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])`),
			Break: onFirst("until has SigBlk 15 $p; do sleep 1; done"),
		},
	}
}

func waitsInSigwait() bed.Scenario {
	return bed.Scenario{
		Name:  "waits-in-sigwait",
		Story: "innocent: a program takes SIGTERM with sigwait, which leaves no trace in its masks",
		Fault: bed.Fault{
			Pod:   python(60, "import signal; s = {signal.SIGTERM}; signal.pthread_sigmask(signal.SIG_BLOCK, s); signal.sigwait(s)"),
			Break: onFirst("until [ $(wchan $p) = do_sigtimedwait ]; do sleep 1; done"),
		},
	}
}

// readsSignalfd runs script(1), which blocks SIGTERM and reads it from a signalfd.
func readsSignalfd() bed.Scenario {
	return bed.Scenario{
		Name:  "reads-signalfd",
		Story: "innocent: a program blocks SIGTERM and reads it from a signalfd",
		Fault: bed.Fault{
			Pod:   pod(60, bed.ProgramsImage, "script", "-qc", "sleep 100000", "/dev/null"),
			Break: onFirst("until grep -q '^sigmask:.*[4-7c-f]...$' /proc/$p/fdinfo/*; do sleep 1; done"),
		},
	}
}

func stopSignalMismatch() bed.Scenario {
	return bed.Scenario{
		Name:  "stop-signal-mismatch",
		Story: "the image asks for SIGQUIT, and the program handles SIGTERM only",
		Fault: bed.Fault{
			Pod:   pod(40, bed.QuitImage, "/victim", "term-only", "0"),
			Break: onFirst(ready + "until lacks SigCgt 3 $p; do sleep 1; done\n" + knownLong),
			Proof: signalFunctions + "has SigCgt 15 $p && lacks SigCgt 3 $p && lacks SigIgn 3 $p",
		},
		Want: bed.Want{
			Cause: "StopSignalMismatch",
			Says:  []string{"container main", "SIGQUIT", "victim", "SIGTERM"},
			When:  bed.InGrace,
		},
	}
}

func tiniOverShell() bed.Scenario {
	return bed.Scenario{
		Name:  "tini-over-shell",
		Story: "innocent: tini is PID 1 and forwards SIGTERM to a shell",
		Fault: bed.Fault{
			Pod: pod(60, bed.BusyboxImage, "/bin/tini", "--", "sh", "-c", "sleep 100000; true"),
		},
	}
}

// underInit waits until the program under a small init has its trap.
const underInit = "until c=$(child $p) && has SigCgt 15 $c; do sleep 1; done\n"

func tiniGroup() bed.Scenario {
	return bed.Scenario{
		Name:  "tini-group",
		Story: "innocent: tini forwards SIGTERM to the whole process group, the program in the shell's foreground too",
		Fault: bed.Fault{
			Pod:   pod(60, bed.ProgramsImage, "tini", "-g", "--", "bash", "-c", "trap 'exit 0' TERM; sleep 100000; true"),
			Break: onFirst(underInit + outlive),
		},
	}
}

func dumbInit() bed.Scenario {
	return bed.Scenario{
		Name:  "dumb-init",
		Story: "innocent: dumb-init is PID 1 and forwards SIGTERM to a shell without a trap",
		Fault: bed.Fault{
			Pod:   pod(60, bed.ProgramsImage, "dumb-init", "bash", "-c", "sleep 100000; true"),
			Break: onFirst("until child $(child $p) >/dev/null; do sleep 1; done"),
		},
	}
}

func dumbInitOverTrap() bed.Scenario {
	return bed.Scenario{
		Name:  "dumb-init-group",
		Story: "innocent: dumb-init forwards SIGTERM to the whole process group, the program in the shell's foreground too",
		Fault: bed.Fault{
			Pod:   pod(60, bed.ProgramsImage, "dumb-init", "bash", "-c", "trap 'exit 0' TERM; sleep 100000; true"),
			Break: onFirst(underInit + outlive),
		},
	}
}

func initOverTrap(name, image string, init ...string) bed.Scenario {
	return bed.Scenario{
		Name:  name,
		Story: "a small init forwards SIGTERM to a shell, which puts its trap off until the program in its foreground has ended",
		Fault: bed.Fault{
			Pod:   pod(40, image, append(init, "-c", "trap 'exit 0' TERM; sleep 100000; true")...),
			Break: onFirst(underInit + outlive),
			Proof: signalFunctions + `c=$(child $p); g=$(child $c); has SigCgt 15 $c && [ "$(cat /proc/$g/comm)" = sleep ] && lacks SigIgn 2 $g`,
		},
		Want: bed.Want{
			Cause: "ChildIgnoresForwardedSignal",
			Says:  []string{"container main", strings.TrimPrefix(init[0], "/bin/"), init[len(init)-1], "SIGTERM", "sleep"},
			When:  bed.InGrace,
		},
	}
}

func tiniOverIgnoring() bed.Scenario {
	return bed.Scenario{
		Name:  "tini-over-ignoring",
		Story: "tini forwards SIGTERM to a program that ignores it",
		Fault: bed.Fault{
			Pod:   pod(40, bed.BusyboxImage, "/bin/tini", "--", "sh", "-c", "trap '' TERM; exec sleep 100000"),
			Break: onFirst("until has SigIgn 15 $(child $p); do sleep 1; done\n" + known),
			Proof: signalFunctions + `c=$(child $p); has SigIgn 15 $c && [ "$(cat /proc/$c/comm)" = sleep ]`,
		},
		Want: bed.Want{
			Cause: "ChildIgnoresForwardedSignal",
			Says:  []string{"container main", "tini", "SIGTERM", "sleep", "ignores"},
			When:  bed.InGrace,
		},
	}
}

// dumbInitRewrites passes SIGQUIT on in place of SIGTERM.
func dumbInitRewrites() bed.Scenario {
	return bed.Scenario{
		Name:  "dumb-init-rewrites",
		Story: "innocent: dumb-init passes SIGQUIT on in place of SIGTERM, to a program that ignores SIGTERM and drains by SIGQUIT",
		Fault: bed.Fault{
			Pod: pod(60, bed.ProgramsImage, "dumb-init", "--rewrite", "15:3", "python3", "-c", `import signal, sys, time
def stop(*_):
    time.sleep(20)
    sys.exit(0)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGQUIT, stop)
while True: time.sleep(1000)`),
			Break: onFirst("until c=$(child $p) && has SigCgt 3 $c; do sleep 1; done\n" + known),
		},
	}
}

// groupDrains has the program in the shell's foreground signalled as well.
func groupDrains(name string, init ...string) bed.Scenario {
	return bed.Scenario{
		Name:  name,
		Story: "innocent: a small init forwards SIGTERM to the whole process group, and the program in the shell's foreground drains",
		Fault: bed.Fault{
			Pod:   pod(60, bed.ProgramsImage, append(init, "bash", "-c", "trap 'exit 0' TERM; python3 -c \""+drains+"\"; true")...),
			Break: onFirst(underInit + "until g=$(child $c) && has SigCgt 15 $g; do sleep 1; done\n" + outlive),
		},
	}
}

// groupOutlived is a script that ignores what its program handles.
func groupOutlived() bed.Scenario {
	return bed.Scenario{
		Name:  "tini-group-outlived",
		Story: "innocent: tini forwards SIGTERM to the whole process group, of which the script ignores it and its program drains",
		Fault: bed.Fault{
			Pod:   pod(60, bed.ProgramsImage, "tini", "-g", "--", "bash", "-c", "trap '' TERM; python3 -c \""+drains+"\"; true"),
			Break: onFirst("until c=$(child $p) && has SigIgn 15 $c && g=$(child $c) && has SigCgt 15 $g; do sleep 1; done\n" + known),
		},
	}
}

// endsOnTERM is a Python program of one thread that handles SIGTERM.
const endsOnTERM = `import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
while True: time.sleep(1000)`

func python(grace int64, program string) corev1.PodSpec {
	return pod(grace, bed.ProgramsImage, "python3", "-c", program)
}
