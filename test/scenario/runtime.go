package scenario

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodeagent-io/nodeagent/test/bed"
)

// runtimes lists the incidents in which containerd, the shim and the kernel disagree
// about a container, and innocent ones that look like them.
func runtimes() []bed.Scenario {
	return []bed.Scenario{
		exitUntold(), exitDenied(), exitUnrecorded(), shimDead(), shimDeadBesideImpostors(),
		shimKilled(), outputHeld(), exitMeanwhile(), exitFound(),
	}
}

// installShim puts test/lossyshim in the place of the node's shim, once: until somebody
// asks it to lose something it does as that does.
var installShim = inTurn(bed.NodeTool("lossyshim"), bed.OnNode(`mkdir -p /run/scenario-shim
exec 9>/run/scenario-shim.lock
flock 9
cmp -s /usr/local/bin/lossyshim /usr/local/bin/containerd-shim-runc-v2 || {
  cp /usr/local/bin/lossyshim /usr/local/bin/containerd-shim-runc-v2.new
  mv /usr/local/bin/containerd-shim-runc-v2.new /usr/local/bin/containerd-shim-runc-v2
}`))

// findShim is a shell script that finds the shim of the pod, and the ID of the container that
// runs a victim, while that lives.
const findShim = `victim=$(awk '/^Name/{c=$2} /^Tgid/ && c=="victim"{print $2; exit}' $(statuses))
[ -n "$victim" ]
shim=$(awk '/^PPid/{print $2}' /proc/$victim/status)
id=$(grep -o '[0-9a-f]\{64\}' /proc/$victim/cgroup | tail -n 1)
[ -n "$shim" ] && [ -n "$id" ]
echo $shim >/run/scenario-$NAME.pid
`

// noVictim is a shell script that succeeds when no victim is left in the pod.
const noVictim = `! grep -q "^Name:.victim" $(statuses) /dev/null
`

// lose is a step that makes the pod's shim lose the end of its container.
func lose(what string) bed.Step {
	return bed.OnNode(findShim + "echo " + what + " >/run/scenario-shim/$id")
}

// endShim is a step that ends the shim of a pod, after which containerd cleans up.
var endShim = bed.OnNode(`shim=$(cat /run/scenario-$NAME.pid)
! grep -qs containerd-shim /proc/$shim/comm || kill -KILL $shim`)

// silence is a step that has the pod's shim answer nothing any more, whatever is asked about its containers, and speak ends
// that.
var silence, speak = bed.OnNode(findShim + "echo silent >/run/scenario-shim/$shim"), bed.OnNode(speaks)

const speaks = "rm -f /run/scenario-shim/$(cat /run/scenario-$NAME.pid)\n"

// isSilent is a shell script that succeeds when the shim sleeps, as one does that waits for requests, and does not answer one:
// containerd says so after two seconds, or waits.
const isSilent = findShim + `grep -q '^State:.S' /proc/$shim/status
if timeout 5 ctr -n k8s.io task ps $id; then exit 1; fi
`

// endsAll waits until no process of the pod is left.
var endsAll = bed.OnNode(`for i in $(seq 60); do [ -n "$(tasks)" ] || exit 0; sleep 0.5; done
echo "processes are left: $(tasks)"
exit 1`)

// shimSilent is what containerd 2.4 says of by an error. It is healed as the remedy says: without its shim containerd ends the containers.
func shimSilent() bed.Scenario {
	return bed.Scenario{
		Name:  "shim-silent",
		Story: "the pod's shim sleeps as any other does, and answers nothing",
		Place: bed.Place{Long: true},
		Fault: bed.Fault{
			Pod:     victim(3, "drain", "0"),
			Prepare: installShim,
			Break:   silence,
			Proof:   "some S\n" + isSilent,
			Heal:    inTurn(endShim, endsAll, speak),
		},
		Want: bed.Want{
			Cause: "ShimHung",
			Says: []string{"the pod's shim (PID ", "does not respond to containerd", "Seen: Repeated requests about main",
				"Fix: send SIGKILL to containerd-shim (PID ", "end the shim as Fix says (SIGKILL for its containers)"},
		},
	}
}

// isUnknown is a shell script that succeeds when containerd answers so for the shim.
const isUnknown = `ctr -n k8s.io task ls | grep -q "^$id  *0  *UNKNOWN"
`

// shimSilentUnknown is the same where containerd answers for the shim: that the status is unknown, and the PID 0.
func shimSilentUnknown() bed.Scenario {
	s := shimSilent()
	s.Name = "shim-silent-unknown"
	s.Story += "; containerd, asked about it, says that the status is unknown"
	s.Needs = []bed.Need{bed.Containerd22}
	s.Proof += isUnknown
	// This version leaves the containers of a shim alone that has ended.
	s.Heal, s.Says = speak, slices.DeleteFunc(s.Says, func(part string) bool {
		return strings.HasPrefix(part, "Fix: send SIGKILL") || strings.HasPrefix(part, "end the shim ")
	})
	return s
}

// shimSilentBriefly is innocent: the shim answers again, and containerd has said that the status is unknown meanwhile.
func shimSilentBriefly() bed.Scenario {
	s := shimSilentUnknown()
	s.Name = "shim-silent-briefly"
	s.Long = false
	s.Story = "innocent: the pod's shim answers nothing for half a minute, of which containerd says that the status is unknown"
	s.Break = inTurn(silence, bed.OnNode(after("30", speaks)))
	// So that what is captured is past the deadline.
	s.Proof = findShim + isUnknown + "[ $(($(date +%s) - $(stat -c %Y /run/scenario-shim/$shim))) -ge 10 ]"
	s.Want = bed.Want{}
	s.Heal = bed.OnNode(passed)
	return s
}

func exitUntold() bed.Scenario {
	return bed.Scenario{
		Name:  "exit-untold",
		Story: "the shim does not tell containerd that the container has ended",
		Fault: bed.Fault{
			Pod:     victim(3, "drain", "0"),
			Prepare: installShim,
			Break:   lose("untold"),
			Proof:   noVictim + "[ -e /proc/$(cat /run/scenario-$NAME.pid) ]\nctr -n k8s.io task ls | grep -q STOPPED",
			Heal:    endShim,
		},
		Want: bed.Want{
			Cause: "ExitEventLost",
			Says:  []string{"container main has exited", "says stopped", "Fix: systemctl restart containerd"},
		},
	}
}

func exitDenied() bed.Scenario {
	return bed.Scenario{
		Name:  "exit-denied",
		Story: "the shim has missed the end of the container and says that it runs",
		Fault: bed.Fault{
			Pod:     victim(3, "drain", "0"),
			Prepare: installShim,
			Break:   lose("denied"),
			Proof:   noVictim + "[ -e /proc/$(cat /run/scenario-$NAME.pid) ]",
			Heal:    endShim,
		},
		Want: bed.Want{
			Cause:  "ExitEventLost",
			Family: "ShimDenies",
			Says:   []string{"container main has exited", "records it as running, and so does its shim (PID ", "Fix: ps -o pid,ppid,stat"},
		},
	}
}

// exitUnrecorded makes the directory read-only in which containerd keeps the container's
// record.
func exitUnrecorded() bed.Scenario {
	const directory = "/var/lib/containerd/io.containerd.grpc.v1.cri/containers/"
	return bed.Scenario{
		Name:  "exit-unrecorded",
		Story: "containerd cannot write that the container has ended: its directory is read-only",
		Fault: bed.Fault{
			Pod: victim(3, "drain", "0"),
			Break: bed.OnNode(findShim + "directory=" + directory + `$id
echo $directory >/run/scenario-$NAME.directory
mount --bind $directory $directory
mount -o remount,bind,ro $directory`),
			Proof: noVictim + "! ctr -n k8s.io task ls | grep -q $(basename $(cat /run/scenario-$NAME.directory))",
			Heal:  bed.OnNode("directory=$(cat /run/scenario-$NAME.directory)\n! mountpoint -q $directory || umount $directory"),
		},
		Want: bed.Want{
			Cause:  "ExitEventLost",
			Family: "TaskGone",
			Says:   []string{"container main has exited", "it has no task for it", "failed to update container state"},
		},
	}
}

// shimDead takes from runc what it knows of the container, without which it does not end the
// processes when the shim is gone.
func shimDead() bed.Scenario {
	s := exitUnrecorded()
	s.Name = "shim-dead"
	s.Story = "the shim has been killed, containerd could not end the container's processes, nor write that they have ended"
	s.Break = inTurn(s.Break, bed.OnNode(`id=$(basename $(cat /run/scenario-$NAME.directory))
mv /run/containerd/runc/k8s.io/$id /run/scenario-$NAME.runc
kill -KILL $(cat /run/scenario-$NAME.pid)`))
	s.Proof = "some S && grep -q '^PPid:.1$' $(statuses)"
	s.Cause = "ShimDead"
	s.Family = ""
	s.Says = []string{"the containerd-shim of container main is gone", "victim (PID", "Seen: has no task for container main", "Fix: kill -KILL"}
	s.Heal = inTurn(bed.OnNode(`grep -l "^Name:.victim" $(statuses) | cut -d/ -f3 | xargs -r kill -KILL || true`), s.Heal)
	return s
}

// shimDeadBesideImpostors is told as well where a pod has processes that call themselves shims, of whose
// command lines there is no end.
func shimDeadBesideImpostors() bed.Scenario {
	const impostors = "shim-dead-impostors-pod"
	s := shimDead()
	s.Name = "shim-dead-impostors"
	s.Story = "the shim is dead, while a hundred processes of another pod call themselves shims, with command lines of 2 MB"
	s.Prepare = func(ctx context.Context, n *bed.Node, _ *corev1.Pod) error {
		other := bed.Scenario{Name: impostors, Fault: bed.Fault{Pod: victim(3, "shims", "100x2000000")}}
		if _, err := n.API.CoreV1().Pods(n.Namespace()).Create(ctx, other.Manifest(n), metav1.CreateOptions{}); err != nil {
			return err
		}
		return n.Await(ctx, "a hundred impostors", func() (bool, string) {
			out, err := n.Exec(ctx, "grep -lx containerd-shim /proc/[0-9]*/comm | wc -l")
			count, _ := strconv.Atoi(strings.TrimSpace(out))
			return count >= 100, fmt.Sprintf("%d, %v", count, err)
		})
	}
	s.Heal = inTurn(s.Heal, endPod(impostors))
	return s
}

// shimKilled is innocent: containerd cleans up after the shim.
func shimKilled() bed.Scenario {
	return bed.Scenario{
		Name:  "shim-killed",
		Story: "innocent: the shim is killed, and containerd ends what it has left",
		Fault: bed.Fault{
			Pod:   victim(3, "drain", "0"),
			Break: bed.OnNode(findShim + "kill -KILL $shim"),
		},
	}
}

// outputHeld keeps containerd waiting for the container's output.
func outputHeld() bed.Scenario {
	return bed.Scenario{
		Name:  "output-held",
		Story: "innocent: a process of the node holds the container's output open for a while",
		Fault: bed.Fault{
			Pod:   victim(3, "drain", "0"),
			Break: bed.OnNode(findShim + "setsid sh -c 'exec sleep 45' </dev/null >/proc/$victim/fd/1 2>/dev/null &"),
		},
	}
}

// exitMeanwhile and exitFound are innocent: containerd learns of the end late.
func exitMeanwhile() bed.Scenario {
	return bed.Scenario{
		Name:  "exit-meanwhile",
		Story: "innocent: the container ends while containerd is stopped, which continues after twelve seconds, in the grace period",
		Place: bed.Place{Alone: true, NoExec: true},
		Fault: bed.Fault{
			Pod: victim(60, "drain", "0"),
			Break: bed.OnNode(findShim + `containerd=$(pidof containerd)
kill -STOP $containerd
kill -KILL $victim
setsid sh -c "sleep 12; kill -CONT $containerd" </dev/null >/dev/null 2>&1 &`),
		},
	}
}

func exitFound() bed.Scenario {
	return bed.Scenario{
		Name:  "exit-found",
		Story: "innocent: the shim does not tell that the container has ended, and containerd, started anew, asks it",
		Place: bed.Place{Alone: true, NoExec: true},
		Fault: bed.Fault{
			Pod:     victim(3, "drain", "0"),
			Prepare: installShim,
			Break:   inTurn(lose("untold"), bed.OnNode(`setsid sh -c "sleep 20; kill -TERM $(pidof containerd)" </dev/null >/dev/null 2>&1 &`)),
		},
	}
}
