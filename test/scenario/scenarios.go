package scenario

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// All lists the incidents that can run side by side on one node.
func All() []Scenario {
	return slices.Concat([]Scenario{
		leaderExited(), finalizer(), shimStopped(), volumeBusy(),
	}, signals(), kernel())
}

func finalizer() Scenario {
	return Scenario{
		Name:       "finalizer",
		Story:      "a controller does not remove its finalizer",
		Pod:        pod(5, VictimImage, "/victim", "drain", "0"),
		Finalizers: []string{"example.com/block"},
		Cause:      "FinalizersPending",
		Says:       []string{"example.com/block", "nothing of the pod is left"},
		Heal: func(ctx context.Context, c *Cluster, p *corev1.Pod) error {
			_, err := c.API.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.JSONPatchType,
				[]byte(`[{"op":"remove","path":"/metadata/finalizers"}]`), metav1.PatchOptions{})
			return err
		},
	}
}

func leaderExited() Scenario {
	const leader = `leader=$(for t in $(tasks); do awk '/^Tgid/{g=$2} /^Threads/{n=$2} /^Name/{c=$2} END{if (c=="victim" && n>1) print g}' /proc/$t/status; done | head -1)
[ -n "$leader" ]
`
	return Scenario{
		Name:  "leader-exited",
		Story: "the first thread has ended by itself, so that runc takes the container for stopped and never kills it",
		Pod:   pod(3, VictimImage, "/victim", "leader-exits", "1"),
		Break: onNode("sleep 2\n" + leader + `grep -q "^State:.Z" /proc/$leader/status`),
		Proof: leader + `grep -q "^State:.Z" /proc/$leader/status && ! grep -q "^SigPnd:.*100$" /proc/$leader/task/*/status`,
		Cause: "ZombieLeaderNotKilled",
		Says:  []string{"container main", "victim", "SIGKILL", "kill -KILL"},
		Heal:  onNode(leader + "kill -KILL $leader"),
	}
}

func shimStopped() Scenario {
	const find = `shim=$(for p in /proc/[0-9]*; do
  [ "$(cat $p/comm 2>/dev/null)" = containerd-shim ] || continue
  for c in $(tasks); do [ "$(awk '/^PPid/{print $2}' /proc/$c/status)" = "${p#/proc/}" ] && echo ${p#/proc/} && break; done
done | head -1)
[ -n "$shim" ]
`
	return Scenario{
		Name:  "shim-stopped",
		Story: "the pod's shim is stopped and answers nobody",
		Pod:   pod(3, VictimImage, "/victim", "drain", "0"),
		Break: onNode(find + "kill -STOP $shim"),
		Proof: find + `grep -q "^State:.T" /proc/$shim/status`,
		Cause: "ShimHung",
		Says:  []string{"shim", "stopped by a signal", "kill -CONT"},
		Heal:  onNode(find + "kill -CONT $shim"),
	}
}

func volumeBusy() Scenario {
	return Scenario{
		Name:  "volume-busy",
		Story: "a process of the node sits in the pod's volume: a cause that is not known yet",
		Pod: withVolume(pod(3, VictimImage, "/victim", "drain", "0"), "scratch",
			corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}),
		Break: onNode(`cd /var/lib/kubelet/pods/$UID_/volumes/kubernetes.io~empty-dir/scratch
setsid sleep 100000 </dev/null >/dev/null 2>&1 &
echo $! >/run/scenario-$NAME.pid`),
		Proof: "grep -q /var/lib/kubelet/pods/$UID_/volumes/kubernetes.io~empty-dir/scratch /proc/self/mountinfo && [ -z \"$(tasks)\" ]",
		Cause: "Unknown",
		Says:  []string{"Blocked in phase Volumes", "no known cause matches", "Ruled out: ", "mounts"},
		Heal:  onNode("kill $(cat /run/scenario-$NAME.pid)"),
	}
}

// ContainerdStopped stops the containerd of the whole node, so it runs alone.
func ContainerdStopped() Scenario {
	return Scenario{
		Name:   "containerd-stopped",
		Story:  "containerd is stopped and answers nobody",
		Pod:    pod(3, VictimImage, "/victim", "drain", "0"),
		Break:  onNode("kill -STOP $(pidof containerd)"),
		Proof:  `grep -q "^State:.T" /proc/$(pidof containerd)/status`,
		Cause:  "ContainerdHung",
		Says:   []string{"containerd (PID", "stopped by a signal", "kill -CONT"},
		NoExec: true,
		Heal:   onNode("kill -CONT $(pidof containerd)"),
	}
}

// Another is a frozen file system under another name, for tests that need an
// incident and not a special one.
func Another(name string) Scenario {
	s := frozenFilesystem()
	dir := "/var/lib/scenario-" + name
	s.Name = name
	s.Pod = withVolume(pod(10, VictimImage, "/victim", "write", "/data/f"), "data", hostPath(dir))
	s.Prepare, s.Break, s.Heal = onNode(makeFilesystem(dir)), onNode("fsfreeze -f "+dir), onNode("fsfreeze -u "+dir)
	s.Says = nil
	return s
}

// SameName is a stuck pod, and Again an innocent one of the same name.
func SameName() Scenario { return Another("same-name") }

// Again is the innocent pod that takes the name of SameName.
func Again() Scenario {
	s := handlesTERM()
	s.Name = "same-name"
	return s
}
