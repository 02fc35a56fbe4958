package scenario

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodeagent-io/nodeagent/test/bed"
)

func stopped() bed.Scenario {
	return bed.Scenario{
		Name:  "stopped",
		Story: "somebody has stopped the first process with SIGSTOP",
		Fault: bed.Fault{
			Pod:   python(120, endsOnTERM),
			Break: onFirst(handles + "kill -STOP $p"),
			Proof: signalFunctions + "state T $p && has ShdPnd 15 $p",
			Heal:  bed.OnNode(signalFunctions + `[ -z "$p" ] || kill -CONT $p`),
		},
		Want: bed.Want{
			Cause: "ProcessStopped",
			Says:  []string{"container main", "python3", "SIGTERM", "Fix: kill -CONT"},
			When:  bed.InGrace,
		},
	}
}

func stoppedAndContinued() bed.Scenario {
	return bed.Scenario{
		Name:  "stopped-and-continued",
		Story: "innocent: the first process was stopped, and goes on again",
		Fault: bed.Fault{
			Pod:   python(60, endsOnTERM),
			Break: onFirst(handles + "kill -STOP $p; sleep 10; state T $p; kill -CONT $p; sleep 2; state S $p"),
		},
	}
}

func traced() bed.Scenario {
	return bed.Scenario{
		Name:  "traced",
		Story: "a debugger in another pod has stopped the first process",
		Fault: bed.Fault{
			Pod:   python(120, endsOnTERM),
			Break: trace("trace-stop"),
			Proof: signalFunctions + "state t $p && has ShdPnd 15 $p",
			Heal:  endTracer,
		},
		Want: bed.Want{
			Cause:  "ProcessTraced",
			Family: "Held",
			Says:   []string{"container main", "python3", "victim", "NAMESPACE/traced-tracer", "SIGTERM"},
			When:   bed.InGrace,
		},
	}
}

func tracedAtExit() bed.Scenario {
	return bed.Scenario{
		Name:  "traced-at-exit",
		Story: "a tracer in another pod is told of the end of the first process and does not let it end: not even SIGKILL does",
		Fault: bed.Fault{
			Pod:   python(5, endsOnTERM),
			Break: trace("trace-exit"),
			Proof: signalFunctions + "state t $p && grep -q do_exit /proc/$p/stack",
			Heal:  endTracer,
		},
		Want: bed.Want{
			Cause:  "ProcessTraced",
			Family: "HeldAtExit",
			Says:   []string{"container main", "python3", "victim", "NAMESPACE/traced-at-exit-tracer", "exit"},
		},
	}
}

func tracedAndRuns() bed.Scenario {
	return bed.Scenario{
		Name:  "traced-and-runs",
		Story: "innocent: a tracer in another pod follows the first process and lets it run, as strace does",
		Fault: bed.Fault{
			Pod:   python(60, endsOnTERM),
			Break: trace("trace-follow"),
			Heal:  endTracer,
		},
	}
}

// trace is a step that has the first process traced by a program in a pod of its
// own, as a profiler's DaemonSet or a debugging pod would.
func trace(how string) bed.Step {
	return func(ctx context.Context, n *bed.Node, p *corev1.Pod) error {
		out, err := n.Exec(ctx, n.Script(signalFunctions+handles+"echo $p", p))
		if err != nil {
			return err
		}
		pid, err := strconv.Atoi(strings.TrimSpace(out))
		if err != nil {
			return fmt.Errorf("first process: %w", err)
		}
		s := bed.Scenario{Name: p.Name + "-tracer", Fault: bed.Fault{Pod: victim(1, how, strconv.Itoa(pid))}}
		s.Pod.HostPID = true
		privileged := true
		s.Pod.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: &privileged}
		if _, err := n.API.CoreV1().Pods(n.Namespace()).Create(ctx, s.Manifest(n), metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create the tracer's pod: %w", err)
		}
		return n.Await(ctx, "the tracer to attach", func() (bool, string) {
			_, err := n.Exec(ctx, fmt.Sprintf("! grep -q '^TracerPid:.0$' /proc/%d/status", pid))
			return err == nil, fmt.Sprint(err)
		})
	}
}

// endTracer ends the tracer's pod; the kernel lets go what it held.
func endTracer(ctx context.Context, n *bed.Node, p *corev1.Pod) error {
	err := n.API.CoreV1().Pods(n.Namespace()).Delete(ctx, p.Name+"-tracer", metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// freezer are shell functions that freeze and thaw a control group, named by its
// path below the mount point, on both versions of cgroups.
const freezer = `
group() { if [ -e /sys/fs/cgroup/cgroup.controllers ]; then sed -n 's/^0:://p' /proc/$1/cgroup; else sed -n 's/.*:freezer://p' /proc/$1/cgroup; fi; }
freeze() {
  if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
    echo 1 >/sys/fs/cgroup$1/cgroup.freeze
    until grep -q 'frozen 1' /sys/fs/cgroup$1/cgroup.events; do sleep 1; done
  else
    echo FROZEN >/sys/fs/cgroup/freezer$1/freezer.state
    until grep -q FROZEN /sys/fs/cgroup/freezer$1/freezer.state; do sleep 1; done
  fi
}
thaw() {
  if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
    echo 0 >/sys/fs/cgroup$1/cgroup.freeze
  else
    echo THAWED >/sys/fs/cgroup/freezer$1/freezer.state
  fi
}
frozen() {
  if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
    grep -q 'frozen 1' /sys/fs/cgroup$1/cgroup.events
  else
    grep -q FROZEN /sys/fs/cgroup/freezer$1/freezer.state
  fi
}
`

func frozenContainer() bed.Scenario {
	return bed.Scenario{
		Name:  "frozen-container",
		Story: "the container's control group is frozen",
		Place: bed.Place{Needs: []bed.Need{bed.CgroupV2, bed.Systemd}},
		Fault: bed.Fault{
			Pod:   victim(120, "drain", "0"),
			Break: onFirst(freezer + ready + "freeze $(group $p)"),
			Proof: signalFunctions + freezer + "frozen $(group $p) && has ShdPnd 15 $p",
			Heal:  bed.OnNode(signalFunctions + freezer + `[ -z "$p" ] || thaw $(group $p)`),
		},
		Want: bed.Want{
			Cause:  "ContainerFrozen",
			Family: "CgroupV2",
			Says:   []string{"container main", "Seen: cri-containerd-", "Seen: .scope", "SIGTERM"},
			When:   bed.InGrace,
		},
	}
}

// frozenInside is innocent: docker pause in a container that runs docker, and systemctl
// freeze in one that runs systemd, freeze a group that is made inside the container's.
func frozenInside() bed.Scenario {
	const inner = "/sys/fs/cgroup$(group $p)/inner"
	return bed.Scenario{
		Name:  "frozen-inside",
		Story: "innocent: a container drains, in which a group of its own that holds another program is frozen",
		Place: bed.Place{Needs: []bed.Need{bed.CgroupV2, bed.Systemd}},
		Fault: bed.Fault{
			Pod: pod(90, bed.BusyboxImage, "sh", "-c", "sleep 100000 & trap 'sleep 25; exit 0' TERM; wait"),
			Break: onFirst(freezer + handles + `mkdir ` + inner + `
for child in $(cat /proc/$p/task/$p/children); do echo $child >` + inner + `/cgroup.procs; done
freeze $(group $p)/inner`),
			Proof: signalFunctions + freezer + "frozen $(group $p)/inner && ! frozen $(group $p)",
		},
	}
}

func frozenPod() bed.Scenario {
	return bed.Scenario{
		Name:  "frozen-pod",
		Story: "the pod's control group is frozen",
		Place: bed.Place{Needs: []bed.Need{bed.CgroupV2, bed.Systemd}},
		Fault: bed.Fault{
			Pod:   victim(120, "drain", "0"),
			Break: onFirst(freezer + ready + "freeze $(dirname $(group $p))"),
			Proof: signalFunctions + freezer + "frozen $(dirname $(group $p)) && has ShdPnd 15 $p",
			Heal:  bed.OnNode(signalFunctions + freezer + `[ -z "$p" ] || thaw $(dirname $(group $p))`),
		},
		Want: bed.Want{
			Cause:  "ContainerFrozen",
			Family: "CgroupV2",
			Says:   []string{"container main", "Seen: .slice", "so its processes cannot handle "}, // which signal it is may not have been read yet
			When:   bed.InGrace,
		},
	}
}

// frozenPodV1 is told past the deadline too: not even SIGKILL ends it.
func frozenPodV1() bed.Scenario {
	s := frozenPod()
	s.Name = "frozen-pod-v1"
	s.Story = "the pod's control group is frozen, and with cgroup v1 not even SIGKILL ends what is in it"
	s.Pod = victim(5, "drain", "0")
	// The signals that the runtime sends stand in the threads' own masks.
	s.Proof = signalFunctions + freezer + "frozen $(dirname $(group $p)) && some D"
	s.Family = "CgroupV1"
	s.Says = append(s.Says, "SIGKILL takes effect only once it is thawed")
	s.When, s.Needs = bed.Overdue, []bed.Need{bed.CgroupV1, bed.Hang}
	return s
}

// container prints the ID of the container main.
const container = `container() { group $p | sed 's/.*cri-containerd-//; s/\.scope.*//'; }
`

func pausedContainer() bed.Scenario {
	return bed.Scenario{
		Name:  "paused-container",
		Story: "somebody has paused the container through containerd",
		Place: bed.Place{Needs: []bed.Need{bed.CgroupV2, bed.Systemd}},
		Fault: bed.Fault{
			Pod:   victim(120, "drain", "0"),
			Break: onFirst(freezer + container + ready + "ctr -n k8s.io task pause $(container)"),
			Proof: signalFunctions + freezer + "frozen $(group $p) && has ShdPnd 15 $p",
			Heal: bed.OnNode(signalFunctions + freezer + container + `
# The program ends at once, and runc may find no group to look at any more.
[ -z "$p" ] || ctr -n k8s.io task resume $(container) || [ ! -d /sys/fs/cgroup$(group $p) ] || ! frozen $(group $p)`),
		},
		Want: bed.Want{
			Cause:  "ContainerFrozen",
			Family: "CgroupV2",
			Says:   []string{"container main", "SIGTERM", "Fix: ctr -n k8s.io task resume"},
			When:   bed.InGrace,
		},
	}
}
