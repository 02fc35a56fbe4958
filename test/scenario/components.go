package scenario

import (
	"fmt"

	"github.com/nodeagent-io/nodeagent/test/bed"
)

// Alone lists the incidents that break what the whole node depends on, so that
// nothing else can run on it meanwhile.
func Alone() []bed.Scenario {
	all := []bed.Scenario{
		containerdStopped(), containerdDown(), kubeletStopped(), kubeletDown(),
		containerdRestarts(), containerdLoops(), containerdLoopsBriefly(), shimStoppedBefore(), kubeletRestarts(), forcedWithoutKubelet(),
		syncLoopStalled(), syncLoopBriefly(), deviceHangs(), deviceSlow(), dbusStopped(), dbusStoppedOnce(),
	}
	for i := range all {
		all[i].NoExec = true
	}
	all = append(all, networkOfNode()...)
	all = append(all, disconnected()...)
	all = append(all, late()...)
	all = append(all, plegs()...)
	all = append(all, scarce()...)
	all = append(all, several()...)
	all = append(all, patientKubelets()...)
	all = append(all, imagesOfNode()...)
	all = append(all, clocks()...)
	// While a shim does not answer, the kubelet does not tell what it counts: its metrics ask
	// containerd for the statistics of all containers.
	all = append(all, shimStopped(), shimSilent(), shimSilentUnknown(), shimSilentBriefly(), gvisorShimStopped(), forcedAndStuck(),
		setRecreated(), setHolds(), csiRecordLostUnmounted())
	for i := range all {
		all[i].Alone = true
	}
	return tiered(all)
}

// StopService has services, for checks.
const StopService = services

// services are shell functions. stop_service NAME [SIGNAL] ends a service of the node
// and keeps what starts services from starting it again; start_service NAME [SECONDS]
// undoes that, then or later.
const services = `
stop_service() {
  if [ -d /run/systemd/system ]; then systemctl kill -s ${2:-TERM} $1; systemctl stop $1; return; fi
  service=$(pgrep -o -x $1)
  loop=$(awk '/^PPid/{print $2}' /proc/$service/status)
  echo $loop >/run/scenario-$1.pid
  kill -${2:-TERM} $service
  while [ -e /proc/$service ]; do sleep 0.1; done
  kill -STOP $loop
}
start_service() {
  if [ -d /run/systemd/system ]; then set -- "systemctl start $1" $2; else set -- "kill -CONT $(cat /run/scenario-$1.pid)" $2; fi
  setsid sh -c "sleep ${2:-0}; $1" </dev/null >/dev/null 2>&1 &
}
`

func containerdDown() bed.Scenario {
	return bed.Scenario{
		Name:  "containerd-down",
		Story: "containerd has been killed and is not started again",
		Fault: bed.Fault{
			Pod:   victim(3, "drain", "0"),
			Break: bed.OnNode(services + "stop_service containerd KILL"),
			Proof: "! pgrep -x containerd && ! timeout 5 ctr version",
			Heal:  bed.OnNode(services + "start_service containerd"),
		},
		Want: bed.Want{
			Cause: "ContainerdDown",
			Says: []string{"containerd has been down since ", "it has no process", "Seen: Connections to containerd's socket have failed " +
				"since", "Fix: systemctl start containerd"},
		},
	}
}

func kubeletDown() bed.Scenario {
	return bed.Scenario{
		Name:  "kubelet-down",
		Story: "the kubelet has ended and is not started again",
		Fault: bed.Fault{
			Pod:   victim(3, "drain", "0"),
			Break: bed.OnNode(services + "stop_service kubelet"),
			Proof: "! pgrep -x kubelet",
			Heal:  bed.OnNode(services + "start_service kubelet"),
		},
		Want: bed.Want{
			Cause: "KubeletDown",
			Says: []string{"the kubelet has not been running since ", "Seen: No process has had a kubelet's name since ", "Seen: " +
				"Connections to the kubelet's port are refused", "systemctl start kubelet"},
		},
	}
}

func kubeletStopped() bed.Scenario {
	return bed.Scenario{
		Name:  "kubelet-stopped",
		Story: "the kubelet is stopped by a signal",
		Fault: bed.Fault{
			Pod:   victim(3, "drain", "0"),
			Break: bed.OnNode("kill -STOP $(pgrep -o -x kubelet)"),
			Proof: `grep -q "^State:.T" /proc/$(pgrep -o -x kubelet)/status`,
			Heal:  bed.OnNode("kill -CONT $(pgrep -o -x kubelet)"),
		},
		Want: bed.Want{
			Cause:  "KubeletDown",
			Family: "Stopped",
			Says:   []string{"(kubelet, PID", "paused (SIGSTOP", "Fix: kill -CONT"},
		},
	}
}

// containerdRestarts and kubeletRestarts are innocent: what was away comes back
// before anybody has to do something.
func containerdRestarts() bed.Scenario {
	return bed.Scenario{
		Name:  "containerd-restarts",
		Story: "innocent: containerd ends as the pod is deleted, and is back after twelve seconds",
		Fault: bed.Fault{
			Pod:   victim(3, "drain", "0"),
			Break: bed.OnNode(services + "stop_service containerd\nstart_service containerd 12"),
		},
	}
}

// ends returns a shell script that ends containerd so many times, so many seconds apart, and is ended by its PID file.
func ends(times, apart int) string {
	return fmt.Sprintf(`setsid sh -c 'i=0; while [ $((i+=1)) -le %d ]; do sleep %d; kill -KILL $(pgrep -o -x containerd); done' </dev/null >/dev/null 2>&1 &
echo $! >/run/scenario-$NAME.pid`, times, apart)
}

// containerdLoops has containerd end before the grace period, for which the kubelet has it wait, is over: SIGKILL is never sent.
func containerdLoops() bed.Scenario {
	return bed.Scenario{
		Name:  "containerd-loops",
		Story: "containerd ends some ten seconds after each of its starts, so that a stop that waits for the grace period begins anew each time",
		Place: bed.Place{Long: true},
		Fault: bed.Fault{
			Pod:   victim(40, "drain", "3600"),
			Break: bed.OnNode(ends(150, 11)), // out of step with the readings, each eight seconds
			Proof: "! timeout 5 ctr version",
			Heal:  bed.OnNode("end TERM /run/scenario-$NAME.pid"),
		},
		Want: bed.Want{
			Cause:  "ContainerdDown",
			Family: "Restarts",
			Says:   []string{"containerd keeps exiting: since ", "Seen: containerd has exited at least ", "journalctl -u containerd"},
		},
	}
}

// containerdLoopsBriefly is innocent: it stays up at last.
func containerdLoopsBriefly() bed.Scenario {
	return bed.Scenario{
		Name:  "containerd-loops-briefly",
		Story: "innocent: containerd ends eight seconds after each of four starts, and then stays up",
		Fault: bed.Fault{
			Pod:   victim(40, "drain", "3600"),
			Break: bed.OnNode(ends(4, 8)),
		},
	}
}

// shimStoppedBefore is innocent: containerd, which waits for each shim as it starts, cleans up what one has left that does not
// answer.
func shimStoppedBefore() bed.Scenario {
	return bed.Scenario{
		Name:  "shim-stopped-before",
		Story: "innocent: the pod's shim has been stopped, and containerd, which is started anew, ends what it has left",
		Fault: bed.Fault{
			Pod:   victim(3, "drain", "0"),
			Break: bed.OnNode(findShim + "kill -STOP $shim\n" + services + "stop_service containerd\nstart_service containerd"),
			Heal:  bed.OnNode("end CONT /run/scenario-$NAME.pid"),
		},
	}
}

func kubeletRestarts() bed.Scenario {
	return bed.Scenario{
		Name:  "kubelet-restarts",
		Story: "innocent: the kubelet ends as the pod is deleted, and is back after twelve seconds",
		Fault: bed.Fault{
			Pod:   victim(3, "drain", "0"),
			Break: bed.OnNode(services + "stop_service kubelet\nstart_service kubelet 12"),
		},
	}
}
