package scenario

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodeagent-io/nodeagent/test/bed"
)

// held lists the incidents in which somebody on the node holds what is left of a container
// that has ended, and innocent ones that look like them.
func held() []bed.Scenario {
	return []bed.Scenario{stdioHeldOpen(), rootfsBusy(), rootfsBusyElsewhere(), rootfsUsed(), rootfsUsedPrivately(), execOutlives(), execEnds()}
}

// hold is a shell script that starts a program on the node, with its PID in a file.
func hold(redirect string) string {
	return `setsid sh -c 'echo $$ >/run/scenario-'$NAME'.holder; exec sleep 100000' </dev/null ` + redirect + ` &
until [ -s /run/scenario-$NAME.holder ]; do sleep 1; done
`
}

// holdElsewhere is the same of a program in a mount namespace of its own, in the directory that the script has changed into. It is as in
// a container with the propagation HostToContainer (slave) or None (private).
func holdElsewhere(propagation string) string {
	return `setsid unshare -m --propagation ` + propagation + ` sh -c 'echo $$ >/run/scenario-'$NAME'.holder; exec sleep 100000' </dev/null >/dev/null 2>&1 &
until [ -s /run/scenario-$NAME.holder ]; do sleep 1; done
`
}

// letGo is a step that ends the program.
var letGo = bed.OnNode(`holder=$(cat /run/scenario-$NAME.holder)
[ ! -e /proc/$holder ] || kill -KILL $holder`)

func stdioHeldOpen() bed.Scenario {
	return bed.Scenario{
		Name:  "stdio-held-open",
		Story: "a process of the node holds the container's output open, as its third file, and containerd waits for more of it",
		Fault: bed.Fault{
			Pod:   victim(3, "drain", "0"),
			Break: bed.OnNode(findShim + hold("3>/proc/$victim/fd/1 >/dev/null 2>&1")),
			Proof: noVictim + "[ -e /proc/$(cat /run/scenario-$NAME.holder)/fd/3 ]\nctr -n k8s.io task ls | grep -q STOPPED",
			Heal:  letGo,
		},
		Want: bed.Want{
			Cause: "StdioHeldOpen",
			Says:  []string{"container main has exited", "sleep (PID", "still runs outside the pod", "Fix: kill -TERM"},
		},
	}
}

// rootfs is the directory of the container's root file system, which the shim unmounts.
const rootfs = "/run/containerd/io.containerd.runtime.v2.task/k8s.io/$id/rootfs"

func rootfsBusy() bed.Scenario {
	return bed.Scenario{
		Name:  "rootfs-busy",
		Story: "a shell of the node has changed into the container's root file system, which the shim cannot unmount",
		Fault: bed.Fault{
			Pod:   victim(3, "drain", "0"),
			Break: bed.OnNode(findShim + "cd " + rootfs + "\n" + hold(">/dev/null 2>&1")),
			Proof: noVictim + "grep -q /rootfs /proc/self/mountinfo\nctr -n k8s.io task ls | grep -q STOPPED",
			Heal:  letGo,
		},
		Want: bed.Want{
			Cause: "RootfsUnmountBusy",
			Says:  []string{"container main has exited", "sleep (PID", "its working directory", "EBUSY", "Fix: kill -TERM"},
		},
	}
}

// rootfsBusyElsewhere is the same of a program in a mount namespace of its own, as of a DaemonSet that reads logs, or traces.
func rootfsBusyElsewhere() bed.Scenario {
	s := rootfsBusy()
	s.Name = "rootfs-busy-elsewhere"
	s.Story = "a process in a mount namespace of its own, which the node's mounts are propagated to, is in the container's root file system, " +
		"which the shim cannot unmount"
	s.Break = bed.OnNode(findShim + "cd " + rootfs + "\n" + holdElsewhere("slave"))
	s.Says = []string{"container main has exited", "sleep (PID", "its working directory, in a mount namespace of its own", "EBUSY", "Fix: kill -TERM"}
	return s
}

// rootfsUsedPrivately is innocent: the kernel unmounts the node's mount whatever a copy is used for that does not go with it.
func rootfsUsedPrivately() bed.Scenario {
	return bed.Scenario{
		Name:  "rootfs-used-privately",
		Story: "innocent: a process in a mount namespace of its own, whose mounts are private, is in the container's root file system",
		Fault: bed.Fault{
			Pod:   victim(3, "drain", "0"),
			Break: bed.OnNode(findShim + "cd " + rootfs + "\n" + holdElsewhere("private")),
			Proof: `[ -e /proc/$(cat /run/scenario-$NAME.holder)/cwd ]`,
			Heal:  letGo,
		},
	}
}

// rootfsUsed is innocent: what uses the root file system has exited before containerd tries
// again for the last time.
func rootfsUsed() bed.Scenario {
	return bed.Scenario{
		Name:  "rootfs-used",
		Story: "innocent: a shell of the node uses the container's root file system for a while",
		Fault: bed.Fault{
			Pod:   victim(1, "drain", "0"),
			Break: bed.OnNode(findShim + "cd " + rootfs + "\nsetsid sh -c 'exec sleep 25' </dev/null >/dev/null 2>&1 &"),
		},
	}
}

// groups is a shell script that lists the roots of the node's control groups, each
// hierarchy's of version 1.
const groups = `roots=/sys/fs/cgroup
[ -e $roots/cgroup.procs ] || roots=$(ls -d /sys/fs/cgroup/*)
`

// execute is a step that executes a program in the pod, as kubectl exec does, and does not
// wait for it.
func execute(command ...string) bed.Step {
	return func(ctx context.Context, n *bed.Node, p *corev1.Pod) error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Minute)
		go func() {
			defer cancel()
			// It fails when the program is killed.
			_, _ = n.Kubectl(ctx, append([]string{"-n", p.Namespace, "exec", p.Name, "--"}, command...)...)
		}()
		return nil
	}
}

// execOutlives is a pod that shares the node's PIDs. A process was executed in its container
// and has left the pod's control groups, as one does that systemd-run or a session has
// started.
func execOutlives() bed.Scenario {
	spec := pod(5, bed.BusyboxImage, "sh", "-c", "trap 'exit 0' TERM; while :; do sleep 1; done")
	spec.HostPID = true
	return bed.Scenario{
		Name:  "exec-outlives",
		Story: "with hostPID, a process that was executed in the container has left the pod's control groups and outlives the container",
		Fault: bed.Fault{
			Pod: spec,
			Break: inTurn(execute("sleep", "100000"), bed.OnNode(`until [ -n "$c" ]; do
  for t in $(tasks); do if tr '\0' ' ' </proc/$t/cmdline | grep -qx 'sleep 100000 '; then c=$t; fi; done
  sleep 1
done
echo $c >/run/scenario-$NAME.holder
`+groups+`for root in $roots; do
  [ -e $root/cgroup.procs ] || continue
  mkdir -p $root/$NAME
  for limit in cpuset.cpus cpuset.mems; do [ ! -e $root/tasks ] || [ ! -e $root/$limit ] || cat $root/$limit >$root/$NAME/$limit; done
  echo $c >$root/$NAME/cgroup.procs
done`)),
			Proof: `[ "$(cat /proc/$(cat /run/scenario-$NAME.holder)/comm)" = sleep ]
for t in $(tasks); do [ "$(cat /proc/$t/comm)" != sh ]; done
ctr -n k8s.io task ls | grep -q RUNNING`,
			Heal: inTurn(letGo, bed.OnNode(groups+`for root in $roots; do
  [ ! -e $root/$NAME ] || until rmdir $root/$NAME; do sleep 1; done
done`)),
		},
		Want: bed.Want{
			Cause: "ExecHoldsInitExit",
			Says:  []string{"container main has exited", "sleep (PID", "an exec in it", "Fix: kill -TERM"},
		},
	}
}

// execEnds is innocent: what was executed ends by itself.
func execEnds() bed.Scenario {
	s := execOutlives()
	s.Name = "exec-ends"
	s.Story = "innocent: with hostPID, a process that was executed in the container outlives it for a while"
	s.Break = inTurn(s.Break, bed.OnNode(`setsid sh -c "sleep 25; kill -KILL $(cat /run/scenario-$NAME.holder)" </dev/null >/dev/null 2>&1 &`))
	s.Cause, s.Says, s.Proof = "", nil, ""
	return s
}
