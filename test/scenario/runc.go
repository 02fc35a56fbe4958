package scenario

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodeagent-io/nodeagent/test/bed"
)

// commands lists the incidents in which a command of the runtime, such as runc kill, hangs or
// fails, and innocent ones that look like them.
func commands() []bed.Scenario {
	all := []bed.Scenario{runcHangs(), runcHangsOn(), runcHangsOnRestart(), runcHangsInGrace(), runcDeleteHangs(), runcExecHangs(),
		runcLeaves(), runcFails(), runcFailsSeveral(), runcFailsSandbox(), runcSlow(), runcSlowInGrace(), runcFailsOnce(), runcHangsAfterHook(),
		runcFailsInGrace(), runcHangsAfterEnd()}
	for i := range all {
		all[i].Prepare = installRunc
	}
	return append(all, runcScanned(), runcScannedSlowly(), runcNotExecuted(),
		runcCreateSandboxHangs(), runcCreateSandboxAgainHangs(), runcCreateSlow(), runcCreateSandboxSlow())
}

// The wrapper stands in the place of the node's runc, once and for all. It does as that does,
// but for the containers and commands of which there is a file ID-COMMAND in this directory: it
// does first what the file says. Of what has yet to start nobody knows the ID: there the file is
// POD.CONTAINER-COMMAND, and POD-COMMAND for the sandbox.
const runcDirectory = "/run/scenario-runc"

const runcScript = `#!/bin/sh
case " $* " in
*" kill "*) command=kill ;;
*" delete "*) command=delete ;;
*" exec "*) command=exec ;;
*" create "*) command=create ;;
*" start "*) command=start ;;
*) exec REAL "$@" ;;
esac
for argument; do [ ${#argument} != 64 ] || of=$argument; done
case $command in
create | start) of=$(sed -n 's/.*"io.kubernetes.cri.container-name":"\([^"]*\)".*"io.kubernetes.cri.sandbox-name":"\([^"]*\)".*/\2.\1/p; t
  s/.*"io.kubernetes.cri.sandbox-name":"\([^"]*\)".*/\1/p' /run/containerd/io.containerd.runtime.v2.task/k8s.io/$of/config.json) ;;
esac
file=` + runcDirectory + `/$of-$command
[ ! -e "$file" ] || . "$file"
exec REAL "$@"
`

// installRunc puts the wrapper into the directory that shims look into first. A new runc there
// is a link.
var installRunc = bed.OnNode(`mkdir -p ` + runcDirectory + `
exec 9>` + runcDirectory + `.lock
flock 9
place=/usr/local/sbin/runc
grep -qs ` + runcDirectory + ` $place || {
  real=$(readlink -f $(command -v runc))
  sed "s,REAL,$real,g" >$place.new <<'END'
` + runcScript + `END
  chmod 755 $place.new
  mv $place.new $place
}`)

// onRunc is a step that lets the runtime do something when a container of the pod is told to
// end: the one that runs a victim, or the pod's sandbox.
func onRunc(which, script string) bed.Step { return onCommand(which, "kill", script) }

// onCommand is the same of any command: kill, delete or exec.
func onCommand(which, command, script string) bed.Step {
	return bed.OnNode(findShim + findSandbox + `file=` + runcDirectory + `/$` + which + `-` + command + instruct(script))
}

// instruct is a shell script that puts what the runtime is to do into a file.
func instruct(script string) string {
	return `
echo $file >/run/scenario-$NAME.file
cat >$file.new <<'END'
` + script + `
END
mv $file.new $file`
}

// onStart is a step that lets the runtime do something when it is told to create or start what a
// pod that is yet to be made consists of: its sandbox, or the container main. hasBegun is one that
// waits until it does.
func onStart(what, command, script string) bed.Step {
	return inTurn(installRunc, bed.OnNode(`file=`+runcDirectory+`/`+what+`-`+command+`
rm -f $file.begun $file.pids`+instruct(": >$file.begun\n"+script)))
}

const itsSandbox, itsContainer = "$NAME", "$NAME.main"

var hasBegun = bed.OnNode("until [ -e $(cat /run/scenario-$NAME.file).begun ]; do sleep 1; done")

// hang is what a command does that waits for a child.
const hang = "sleep 100000 </dev/null >/dev/null 2>&1 &\necho $! >>$file.pids\nwait"

// hangs is a shell script that succeeds while a command does.
const hangs = "read -r file </run/scenario-$NAME.file\ngrep -q sleep /proc/$(tail -n 1 $file.pids)/comm"

// runcAsBefore is a step that undoes onRunc.
var runcAsBefore = bed.OnNode(`read -r file </run/scenario-$NAME.file
rm -f $file
end TERM $file.pids
rm -f $file.pids`)

// runcHangs has a program in the place of runc wait for a child. The shim ends the program
// when the kubelet's request has run out of time, and is asked again.
func runcHangs() bed.Scenario {
	return bed.Scenario{
		Name:  "runc-kill-hangs",
		Story: "runc does not return while it kills the pod's sandbox",
		Fault: bed.Fault{
			Pod:   victim(3, "drain", "0"),
			Break: onRunc("sandbox", hang),
			Proof: "! grep -q '^Name:.victim' $(statuses)\n" + hangs,
			Heal:  runcAsBefore,
		},
		Want: bed.Want{
			Cause: "RuntimeCommandHanging",
			Says: []string{"Cause: in phase Sandbox", "the shim waits for runc kill (PID ", "for the pod's sandbox)", "Seen: has not returned",
				"which waits for its child sleep (PID ", "Seen: clock_nanosleep"},
		},
	}
}

// runcHangsOn watches that for as long as it takes the kubelet to give up twice, and to begin again.
func runcHangsOn() bed.Scenario {
	s := runcHangs()
	s.Name = "runc-kill-hangs-on"
	s.Story += ", nor when it is tried again"
	s.Stays, s.Long = 5*time.Minute, true
	return s
}

// runcHangsOnRestart has containerd and the kubelet be started anew, as when they are upgraded, when the shim has not answered for so
// long that it would be said to hang on any node. containerd is away for longer than it takes until the next look at a pod of which
// the verdict has settled.
func runcHangsOnRestart() bed.Scenario {
	s := runcHangsOn()
	s.Name = "runc-kill-hangs-on-restart"
	s.Story += ", nor when containerd and the kubelet have been started anew"
	s.Alone, s.Stays = true, 8*time.Minute
	s.Break = inTurn(s.Break, bed.OnNode(services+`file=$(cat /run/scenario-$NAME.file)
(
until [ -s $file.pids ]; do sleep 1; done
sleep 425
stop_service kubelet
stop_service containerd
start_service containerd 12
start_service kubelet 20
) </dev/null >/dev/null 2>&1 &`))
	return s
}

// runcHangsInGrace keeps the stop signal from being sent. The shim answers nobody about the container meanwhile.
func runcHangsInGrace() bed.Scenario {
	return bed.Scenario{
		Name:  "runc-kill-hangs-in-grace",
		Story: "runc does not return while it sends the stop signal to the container",
		Place: bed.Place{Long: true},
		Fault: bed.Fault{
			Pod:   victim(300, "drain", "0"),
			Break: onCommand("id", "kill", hang),
			Proof: hangs,
			Heal:  runcAsBefore,
		},
		Want: bed.Want{
			Cause: "RuntimeCommandHanging",
			Says: []string{"the shim waits for runc kill (PID ", "for container main)", "Seen: has not returned",
				"which waits for its child sleep (PID ", "Seen: clock_nanosleep", ". SIGTERM may not have arrived", "Fix: send SIGTERM to the " +
					"container's first process by hand"},
			When: bed.InGrace,
		},
	}
}

// runcHangsAfterHook is the same of a container of which the preStop hook has ended, which nothing shows.
func runcHangsAfterHook() bed.Scenario {
	s := runcHangsInGrace()
	s.Name = "runc-kill-hangs-after-hook"
	s.Story += ", of which the preStop hook has ended"
	s.Pod = preStop(victim(300, "drain", "0"), executing("/victim", "nothing"))
	s.Says = append(slices.Clone(s.Says), "Cause: in phase StopSignal")
	return s
}

// runcHangsAfterEnd is the same of a program that ends by itself: it waits for no stop signal any more.
func runcHangsAfterEnd() bed.Scenario {
	s := runcHangsInGrace()
	s.Name = "runc-kill-hangs-after-end"
	s.Story += ", of which the program ends by itself"
	s.Pod = pod(300, bed.BusyboxImage, "sleep", "75")
	s.Break = bed.OnNode(`p=$(awk '/^Name/{c=$2} /^Tgid/ && c=="sleep"{print $2; exit}' $(statuses))
id=$(grep -o '[0-9a-f]\{64\}' /proc/$p/cgroup | tail -n 1)
file=` + runcDirectory + `/$id-kill` + instruct(hang) + "\nsleep 20")
	s.Says = []string{"the shim waits for runc kill (PID ", "for container main)", "which waits for its child sleep (PID ", "). " +
		"Who: node admin. First: ", // and nothing about a stop signal between
		"Seen: sleeps in clock_nanosleep (hrtimer_nanosleep)"}
	return s
}

// runcDeleteHangs has containerd end the program after ten seconds, and start it again.
func runcDeleteHangs() bed.Scenario {
	return bed.Scenario{
		Name:  "runc-delete-hangs",
		Story: "runc does not return while it deletes the container, each time that containerd tries it",
		Fault: bed.Fault{
			Pod:   victim(3, "drain", "0"),
			Break: onCommand("id", "delete", hang),
			Proof: noVictim + "read -r file </run/scenario-$NAME.file\n[ $(wc -l <$file.pids) -ge 2 ]",
			Heal:  runcAsBefore,
		},
		Want: bed.Want{
			Cause: "RuntimeCommandHanging",
			Says: []string{"Cause: in phase Runtime", "the shim cannot delete container main: runc delete does not return, so containerd kills it each time after 10s",
				"runc last waited for sleep", "Seen: The child sleep of runc was last seen in clock_nanosleep"},
		},
	}
}

// runcExecHangs has kubectl exec into the container hang in runc, which nobody limits: the shim
// does not tell that the container has ended before the exec has.
func runcExecHangs() bed.Scenario {
	return bed.Scenario{
		Name:  "runc-exec-hangs",
		Story: "runc does not return while it executes something in the container for kubectl exec, and the container has ended",
		Fault: bed.Fault{
			Pod: victim(3, "drain", "0"),
			Break: inTurn(onCommand("id", "exec", hang),
				execute("/victim", "drain", "0"), bed.OnNode("until [ -s $(cat /run/scenario-$NAME.file).pids ]; do sleep 1; done")),
			Proof: noVictim + hangs,
			Heal:  runcAsBefore,
		},
		Want: bed.Want{
			Cause: "RuntimeCommandHanging",
			Says: []string{"the shim waits for runc exec (PID ", "for container main)", "Seen: has not returned", "which waits for its " +
				"child sleep (PID ", "Seen: clock_nanosleep"},
		},
	}
}

// patientKubelets lists the incidents in which runc hangs before the kubelet has turned to the
// deletion. By default the kubelet gives up two minutes after it has asked for the start, which is
// soon after a verdict on a busy node: there it is told to wait for longer, as some are.
func patientKubelets() []bed.Scenario { return []bed.Scenario{runcCreateHangs(), runcStartHangs()} }

// bePatient is a step after which the kubelet waits for ten minutes, and beAsBefore undoes it.
var (
	bePatient = bed.OnNode(configs + `keep
echo 'runtimeRequestTimeout: 10m' >>` + kubeletConfig + `
old=$(pgrep -o -x kubelet)
restart
until new=$(pgrep -o -x kubelet) && [ $new != $old ]; do sleep 1; done`)
	beAsBefore = inTurn(bed.OnNode(configs+"restore"), heard)
)

func runcCreateHangs() bed.Scenario {
	return bed.Scenario{
		Name:  "runc-create-hangs",
		Story: "runc does not return while it creates the container, so that the kubelet, which waits for ten minutes, does not turn to the deletion",
		Fault: bed.Fault{
			Pod:      victim(3, "drain", "0"),
			Starting: true,
			Prepare:  inTurn(bePatient, onStart(itsContainer, "create", hang)),
			Break:    hasBegun,
			Proof:    noVictim + hangs,
			Heal:     inTurn(runcAsBefore, beAsBefore),
		},
		Want: bed.Want{
			Cause: "RuntimeCommandHanging",
			Says: []string{"Cause: in phase Startup", "the shim waits for runc create (PID ", "for container main)", "Seen: has not returned",
				"which waits for its child sleep (PID ", "Seen: clock_nanosleep", "The kubelet waits 2m", "Seen: runtimeRequestTimeout", "Fix: " +
					"The kubelet then handles the deletion"},
			Force: "not yet", // the container may still be started
		},
	}
}

// runcStartHangs is the same when the container has been created: runc init waits to be told to
// execute the program.
func runcStartHangs() bed.Scenario {
	s := runcCreateHangs()
	s.Name = "runc-start-hangs"
	s.Story = "runc does not return while it starts the container, so that the kubelet, which waits for ten minutes, does not turn to the deletion"
	s.Prepare = inTurn(bePatient, onStart(itsContainer, "start", hang))
	s.Proof += "\ngrep -q '^Name:.runc' $(statuses)"
	s.Says[1] = "the shim waits for runc start (PID "
	s.Force = "no" // runc init lives
	return s
}

// runcCreateSlow is innocent: the container starts late, and gets its stop signal when it has.
func runcCreateSlow() bed.Scenario {
	return bed.Scenario{
		Name:  "runc-create-slow",
		Story: "innocent: runc takes half a minute to create the container of a pod that is deleted meanwhile",
		Fault: bed.Fault{
			Pod:      victim(3, "drain", "0"),
			Starting: true,
			Prepare:  onStart(itsContainer, "create", "sleep 30"),
			Break:    hasBegun,
			// So that what is captured is past the deadline.
			Proof: noVictim + "read -r file </run/scenario-$NAME.file\n[ $(($(date +%s) - $(stat -c %Y $file.begun))) -ge 12 ]",
		},
	}
}

// runcCreateSandboxHangs is told without a patient kubelet: it gives the sandbox four minutes.
func runcCreateSandboxHangs() bed.Scenario {
	return bed.Scenario{
		Name:  "runc-create-sandbox-hangs",
		Story: "runc does not return while it creates the pod's sandbox, so that the kubelet does not turn to the deletion",
		Fault: bed.Fault{
			Pod:      victim(3, "drain", "0"),
			Starting: true,
			Prepare:  onStart(itsSandbox, "create", hang),
			Break:    hasBegun,
			Proof:    hangs,
			Heal:     runcAsBefore,
		},
		Want: bed.Want{
			Cause: "RuntimeCommandHanging",
			Says: []string{"Cause: in phase Startup", "the shim waits for runc create (PID ", "for the pod's sandbox)", "Seen: has not returned",
				"which waits for its child sleep (PID ", "Seen: clock_nanosleep", "The kubelet waits 4m", "Seen: twice runtimeRequestTimeout"},
			Force: "not yet",
		},
	}
}

// runcCreateSandboxAgainHangs is the same of a sandbox that the kubelet has made in the place of one
// that has ended, of which containerd still tells.
func runcCreateSandboxAgainHangs() bed.Scenario {
	s := runcCreateSandboxHangs()
	s.Name = "runc-create-sandbox-again-hangs"
	s.Story = "the pod's sandbox has ended, and runc does not return while it creates the next one, so that the kubelet does not turn to the deletion"
	s.Pod.RestartPolicy = corev1.RestartPolicyAlways // of another one the kubelet makes no second sandbox
	s.Starting = false
	s.Prepare = nil
	s.Break = inTurn(onStart(itsSandbox, "create", hang), bed.OnNode(findShim+findSandbox+"kill -KILL $pause"), hasBegun)
	s.Proof = noVictim + s.Proof
	return s
}

// runcCreateSandboxSlow is innocent: the whole pod starts late.
func runcCreateSandboxSlow() bed.Scenario {
	s := runcCreateSlow()
	s.Name = "runc-create-sandbox-slow"
	s.Story = "innocent: runc takes half a minute to create the sandbox of a pod that is deleted meanwhile"
	s.Prepare = onStart(itsSandbox, "create", "sleep 30")
	return s
}

// runcLeaves has a command leave a process behind that holds its output open.
func runcLeaves() bed.Scenario {
	return bed.Scenario{
		Name:  "runc-leaves-child",
		Story: "runc has killed the pod's sandbox, and a process that it has started holds its output open",
		Fault: bed.Fault{
			Pod:   victim(3, "drain", "0"),
			Break: onRunc("sandbox", "sleep 100000 </dev/null &\necho $! >>$file.pids"),
			Proof: hangs + "\ngrep -q \"^PPid:.$(cat /run/scenario-$NAME.pid)$\" /proc/$(tail -n 1 $file.pids)/status",
			Heal:  runcAsBefore,
		},
		Want: bed.Want{
			Cause:  "RuntimeCommandHanging",
			Family: "LeftBehind",
			Says:   []string{"shim is blocked: sleep (PID ", "left by a runtime command", "holds that command's output open", "Fix: kill -TERM"},
		},
	}
}

// runcSlow is innocent: the node's runc takes a while.
func runcSlow() bed.Scenario {
	return bed.Scenario{
		Name:  "runc-kill-slow",
		Story: "innocent: runc takes twenty seconds to kill the pod's sandbox",
		Fault: bed.Fault{
			Pod:   victim(3, "drain", "0"),
			Break: onRunc("sandbox", "sleep 20"),
			Heal:  runcAsBefore,
		},
	}
}

// runcSlowInGrace is one that gets the stop signal sent after all.
func runcSlowInGrace() bed.Scenario {
	return bed.Scenario{
		Name:  "runc-kill-slow-in-grace",
		Story: "innocent: runc takes 45 seconds to send the stop signal to the container, which has minutes to end",
		Fault: bed.Fault{
			Pod:   victim(200, "drain", "0"),
			Break: onRunc("id", "sleep 45"),
			Heal:  runcAsBefore,
		},
	}
}

// runcScanned has a virus scanner not answer whether runc may open a file: what stands in the place of runc opens it.
func runcScanned() bed.Scenario {
	return bed.Scenario{
		Name:  "runc-kill-scanned",
		Story: "runc waits for a virus scanner that has been stopped, each time that it is to signal the container",
		Fault: bed.Fault{
			Pod:     victim(3, "drain", "0"),
			Prepare: inTurn(bed.NodeTool("victim"), installRunc),
			Break:   inTurn(onRunc("id", ":"), bed.OnNode("read -r file </run/scenario-$NAME.file\n"+scan("1h", "scan", "$file")+"\n"+stopScan)),
			Proof:   "some S && " + scanStopped + " && grep -q fanotify /proc/[0-9]*/wchan",
			Heal:    inTurn(bed.OnNode(endScan), runcAsBefore),
		},
		Want: bed.Want{
			Cause: "FileScannerNotAnswering",
			Says:  []string{"Cause: Probably stuck in phase StopSignal", "needed to stop this pod, is blocked", "fanotify", "victim (PID "},
		},
	}
}

// runcScannedSlowly is innocent: the scanner takes its time, and answers.
func runcScannedSlowly() bed.Scenario {
	s := runcScanned()
	s.Name = "runc-kill-scanned-slowly"
	s.Story = "innocent: a virus scanner takes five seconds to let runc open a file, each time that it is to signal the container"
	s.Break = inTurn(onRunc("id", ":"), bed.OnNode("read -r file </run/scenario-$NAME.file\n"+scan("1h", "scan-slowly", "$file")))
	s.Proof, s.Cause, s.Says = "grep -q fanotify /proc/[0-9]*/wchan", "", nil
	s.Heal = inTurn(bed.ProcessesGone, s.Heal)
	return s
}

// runcNotExecuted has the scanner not answer whether the shim may execute runc, for all pods of the node.
func runcNotExecuted() bed.Scenario {
	s := runcScanned()
	s.Name = "runc-not-executed"
	s.Story = "a virus scanner that has been stopped is to say whether runc may be executed, so that no shim of the node starts it"
	s.Alone, s.NoExec = true, true
	s.Break = bed.OnNode(scan("1h", "scan", "/usr/local/sbin/runc") + "\n" + stopScan)
	s.Says = []string{"Cause: Probably stuck in phase StopSignal", "containerd-shim (PID ", "needed to stop this pod, is blocked", "fanotify", "victim (PID "}
	s.Heal = bed.OnNode(endScan)
	return s
}

// runcFailure is what a runtime prints that is not allowed to signal.
const runcFailure = "echo 'unable to signal init: permission denied' >&2; exit 1"

func runcFails() bed.Scenario {
	return bed.Scenario{
		Name:  "runc-kill-fails",
		Story: "runc fails each time that it is to signal the container",
		Fault: bed.Fault{
			Pod:   victim(3, "drain", "0"),
			Break: onRunc("id", runcFailure),
			Proof: "some S\n{ cat /var/log/kubelet.log || journalctl -u kubelet; } | grep -q \"unable to signal init: permission denied.*/$NAME\"",
			Heal:  runcAsBefore,
		},
		Want: bed.Want{
			Cause: "RuntimeCommandFailing",
			Says: []string{"Cause: in phase StopSignal", "container main still runs: the runtime fails to signal it each time",
				"did not terminate successfully: exit status 1", "unable to signal init: permission denied", "Fix: kill -KILL"},
		},
	}
}

// runcFailsSeveral is runcFails of a pod with sidecars. Each try of the kubelet tells of all of them, in the order in which they
// failed, before it tells which of them containerd has tried to stop first for the sandbox.
func runcFailsSeveral() bed.Scenario {
	s := runcFails()
	s.Name = "runc-kill-fails-several"
	s.Story += ", or another one of the pod's four"
	for _, name := range []string{"proxy", "logs", "metrics"} {
		s.Pod.Containers = append(s.Pod.Containers, corev1.Container{Name: name, Image: bed.VictimImage, Command: []string{"/victim", "drain", "0"}})
	}
	s.Break = bed.OnNode(`for task in $(tasks); do
  grep -qs victim /proc/$task/comm || continue
  file=` + runcDirectory + `/$(grep -o '[0-9a-f]\{64\}' /proc/$task/cgroup | tail -n 1)-kill
  echo "` + strings.ReplaceAll(runcFailure, `"`, `\"`) + `" >$file
  echo $file >>/run/scenario-$NAME.files
done`)
	s.Says = []string{"Cause: in phase StopSignal", "still runs: the runtime fails to signal it each time", "unable to signal init: permission denied"}
	s.Heal = bed.OnNode("xargs rm -f </run/scenario-$NAME.files")
	return s
}

// runcFailsInGrace is runcFails of a shell that would not have heeded its stop signal: it has got none.
func runcFailsInGrace() bed.Scenario {
	s := runcFails()
	s.Name = "runc-kill-fails-in-grace"
	s.Story += ", a shell that would not have heeded its stop signal"
	s.Pod = pod(60, bed.BusyboxImage, "sh", "-c", "sleep 100000; true")
	s.Break = inTurn(onFirst("until p=$(first) && child $p >/dev/null; do sleep 1; done\n"+known), bed.OnNode(signalFunctions+`id=$(grep -o '[0-9a-f]\{64\}' /proc/$p/cgroup | tail -n 1)
file=`+runcDirectory+`/$id-kill`+instruct(runcFailure)))
	return s
}

// runcFailsSandbox is the same of the pod's sandbox, when the container has ended.
func runcFailsSandbox() bed.Scenario {
	return bed.Scenario{
		Name:  "runc-kill-sandbox-fails",
		Story: "runc fails each time that it is to signal the pod's sandbox",
		Fault: bed.Fault{
			Pod:   victim(3, "drain", "0"),
			Break: onRunc("sandbox", runcFailure),
			Proof: noVictim + logged("unable to signal init: permission denied"),
			Heal:  runcAsBefore,
		},
		Want: bed.Want{
			Cause: "RuntimeCommandFailing",
			Says: []string{"Cause: in phase Sandbox", "the pod's sandbox still runs: the runtime fails to signal it each time", "unable to " +
				"signal init: permission denied", "Fix: kill -KILL"},
		},
	}
}

// runcFailsOnce is innocent: the first try to stop the pod fails, after its deadline.
func runcFailsOnce() bed.Scenario {
	return bed.Scenario{
		Name:  "runc-kill-fails-once",
		Story: "innocent: runc fails to signal the container for as long as the first try takes, and the next one succeeds",
		Fault: bed.Fault{
			Pod:   victim(1, "drain", "0"),
			Break: onRunc("id", "tries=$(cat $file.tries || echo 0)\necho $((tries + 1)) >$file.tries\n[ $tries -ge 2 ] || { "+runcFailure+"; }"),
			Heal:  runcAsBefore,
		},
	}
}

// dbusStopped has runc wait for systemd, by way of which it removes control groups.
func dbusStopped() bed.Scenario {
	return bed.Scenario{
		Name:  "dbus-stopped",
		Story: "the daemon of D-Bus is stopped, through which runc has systemd remove the control group of the container that has ended",
		Place: bed.Place{Needs: []bed.Need{bed.Systemd}},
		Fault: bed.Fault{
			Pod:   victim(3, "drain", "0"),
			Break: bed.OnNode("kill -STOP $(pgrep -x dbus-daemon)"),
			Proof: noVictim + `grep -q "^State:.T" /proc/$(pgrep -x dbus-daemon)/status && pgrep -f '^runc .* delete'`,
			Heal:  bed.OnNode("kill -CONT $(pgrep -x dbus-daemon)"),
		},
		Want: bed.Want{
			Cause: "RuntimeCommandHanging",
			Says:  []string{"runc delete does not return", "kills it each time after 10s", "Fix: With the systemd cgroup driver, busctl status must respond"},
		},
	}
}

// dbusStoppedOnce is innocent: containerd tries again.
func dbusStoppedOnce() bed.Scenario {
	s := dbusStopped()
	s.Name = "dbus-stopped-once"
	s.Story = "innocent: the daemon of D-Bus is stopped for some seconds while runc deletes a container"
	s.Break = bed.OnNode("p=$(pgrep -x dbus-daemon)\nkill -STOP $p\n" + after("8", "kill -CONT $p\n"))
	s.Proof = noVictim + "pgrep -f '^runc .* delete'"
	s.Cause, s.Says, s.Heal = "", nil, bed.OnNode(passed)
	return s
}
