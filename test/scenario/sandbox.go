package scenario

import (
	"github.com/nodeagent-io/nodeagent/test/bed"

	corev1 "k8s.io/api/core/v1"
)

// sandboxes lists the incidents in which the containers have ended and the pod's sandbox
// cannot be stopped or taken down, and innocent ones that look like them.
func sandboxes() []bed.Scenario {
	return []bed.Scenario{
		sandboxTraced(), sandboxDeleteFails(), sandboxRootfsBusy(),
		netnsImmutable(), netnsImmutableOnce(), imageVolumeBusy(), imageVolumeBusyElsewhere(), imageVolumeUsed(),
	}
}

// findSandbox is a shell script that finds, behind findShim, the ID of the pod's sandbox and
// its process.
const findSandbox = `sandbox=$(tr '\0' '\n' </proc/$shim/cmdline | awk 'found{print; exit} $0=="-id"{found=1}')
pause=$(pgrep -P $shim -x pause)
[ -n "$sandbox" ] && [ -n "$pause" ]
`

// sandboxTraced is a sandbox that SIGKILL does not end, because a tracer holds it.
func sandboxTraced() bed.Scenario {
	return bed.Scenario{
		Name:  "sandbox-traced",
		Story: "a tracer on the node is told of the end of the sandbox's process and does not let it end: not even SIGKILL does",
		Fault: bed.Fault{
			Pod:     victim(3, "drain", "0"),
			Prepare: bed.NodeTool("victim"),
			Break: bed.OnNode(findShim + findSandbox + `echo $pause >/run/scenario-$NAME.pause
setsid /usr/local/bin/victim trace-exit $pause </dev/null >/dev/null 2>&1 &
echo $! >/run/scenario-$NAME.tracer
for i in $(seq 60); do ! grep -q "^TracerPid:.$!$" /proc/$pause/status || exit 0; sleep 0.5; done
exit 1`),
			Proof: noVictim + `pause=$(cat /run/scenario-$NAME.pause)
grep -q "^State:.t" /proc/$pause/status && grep -q do_exit /proc/$pause/stack`,
			Heal: bed.OnNode("kill -KILL $(cat /run/scenario-$NAME.tracer)"),
		},
		Want: bed.Want{
			Cause:  "ProcessTraced",
			Family: "HeldAtExit",
			Says:   []string{"Cause: in phase Sandbox", "the pod's sandbox: pause (PID", "held at exit by its tracer victim", "SIGKILL has no effect"},
		},
	}
}

// sandboxDeleteFails has the sandbox's process end, and runc fail to delete the sandbox.
func sandboxDeleteFails() bed.Scenario {
	return bed.Scenario{
		Name:  "sandbox-delete-fails",
		Story: "the sandbox's process has ended, and runc fails each time that it is to delete the sandbox",
		Fault: bed.Fault{
			Pod:     victim(3, "drain", "0"),
			Prepare: installRunc,
			Break:   onCommand("sandbox", "delete", "echo 'unable to remove the state directory: read-only file system' >&2; exit 1"),
			Proof: noVictim + `! pgrep -P $(cat /run/scenario-$NAME.pid) -x pause
ctr -n k8s.io task ls | grep -q STOPPED`,
			Heal: inTurn(runcAsBefore, endShim),
		},
		Want: bed.Want{
			Cause: "ExitEventLost",
			Says: []string{"Cause: in phase Sandbox", "the pod's sandbox has exited, but containerd still records it as running", "says stopped",
				"handle sandbox exit"},
		},
	}
}

// sandboxRootfsBusy is rootfsBusy of the sandbox.
func sandboxRootfsBusy() bed.Scenario {
	return bed.Scenario{
		Name:  "sandbox-rootfs-busy",
		Story: "a shell of the node has changed into the sandbox's root file system, which the shim cannot unmount",
		Fault: bed.Fault{
			Pod:   victim(3, "drain", "0"),
			Break: bed.OnNode(findShim + findSandbox + "id=$sandbox\ncd " + rootfs + "\n" + hold(">/dev/null 2>&1")),
			Proof: noVictim + `! pgrep -P $(cat /run/scenario-$NAME.pid) -x pause
ctr -n k8s.io task ls | grep -q STOPPED`,
			Heal: letGo,
		},
		Want: bed.Want{
			Cause: "RootfsUnmountBusy",
			Says:  []string{"Cause: in phase Sandbox", "the pod's sandbox has exited", "sleep (PID", "its working directory", "EBUSY", "Fix: kill -TERM"},
		},
	}
}

// fixNetns is a shell script that makes the file immutable that the pod's network namespace is
// mounted on, and looseNetns one that undoes it. The file is seen where its directory is mounted once more, in a mount
// namespace that lasts as long: elsewhere the namespaces of new pods would be mounted there, too, and be busy.
const (
	belowNetns = `below() {
  mkdir -p /run/scenario-$NAME.netns
  unshare -m sh -ec 'mount --bind $(dirname $2) $3; [ ! -e $3/$(basename $2) ] || chattr $1 $3/$(basename $2)' sh $1 $file /run/scenario-$NAME.netns
}
`
	fixNetns = findShim + findSandbox + belowNetns + `file=$(awk -v netns="$(readlink /proc/$pause/ns/net)" '$4==netns{print $5; exit}' /proc/self/mountinfo)
[ -n "$file" ]
echo $file >/run/scenario-$NAME.file
below +i
`
	looseNetns = belowNetns + `file=$(cat /run/scenario-$NAME.file)
below -i
`
)

// logged is a shell script that succeeds when the kubelet has written that containerd fails so
// for the pod.
func logged(text string) string {
	return `{ cat /var/log/kubelet.log || journalctl -u kubelet; } | grep -q "` + text + `.*/$NAME"`
}

func netnsImmutable() bed.Scenario {
	return bed.Scenario{
		Name:  "netns-immutable",
		Story: "the file of the pod's network namespace is immutable, so that containerd cannot remove it",
		Place: bed.Place{Needs: []bed.Need{bed.PodNetwork}},
		Fault: bed.Fault{
			Pod:   victim(3, "drain", "0"),
			Break: bed.OnNode(fixNetns),
			Proof: `[ -z "$(tasks)" ]` + "\n" + logged("operation not permitted"),
			Heal:  bed.OnNode(looseNetns),
		},
		Want: bed.Want{
			Cause:  "SandboxStopFailing",
			Family: "NetworkNamespace",
			Says:   []string{"Cause: in phase Sandbox", "containerd cannot remove the pod's network namespace", "operation not permitted", "lsattr"},
		},
	}
}

// netnsImmutableOnce is innocent: the kubelet's next try succeeds.
func netnsImmutableOnce() bed.Scenario {
	return bed.Scenario{
		Name:  "netns-immutable-once",
		Story: "innocent: containerd cannot remove the pod's network namespace the first time, and the next try succeeds",
		Place: bed.Place{Needs: []bed.Need{bed.PodNetwork}},
		Fault: bed.Fault{
			Pod: victim(1, "drain", "0"),
			Break: bed.OnNode(fixNetns + `(
until ` + logged("operation not permitted") + `; do sleep 1; done
sleep 7
` + looseNetns + `
rm /run/scenario-$NAME.file
) </dev/null >/dev/null 2>&1 &`),
			Proof: logged("operation not permitted"),
			Heal: bed.OnNode(`for i in $(seq 60); do [ -e /run/scenario-$NAME.file ] || exit 0; sleep 1; done
` + looseNetns),
		},
	}
}

// withImage is a pod with a volume that is an image.
func withImage(grace int64) corev1.PodSpec {
	return withVolume(victim(grace, "drain", "0"), "files", corev1.VolumeSource{
		Image: &corev1.ImageVolumeSource{Reference: bed.BusyboxImage, PullPolicy: corev1.PullNever},
	})
}

// intoImage is a shell script that changes into the directory where the image is mounted on the
// node.
const intoImage = findShim + findSandbox + `cd $(awk -v sandbox="/image-volumes/$sandbox/" 'index($5, sandbox){print $5; exit}' /proc/self/mountinfo)
case $PWD in *image-volumes*) ;; *) exit 1 ;; esac
`

// stillAnImage is a shell script that succeeds when nothing is left of the pod but its image
// volume.
const stillAnImage = `[ -z "$(tasks)" ]
grep -q /image-volumes/ /proc/self/mountinfo
`

func imageVolumeBusy() bed.Scenario {
	return bed.Scenario{
		Name:  "image-volume-busy",
		Story: "a shell of the node has changed into an image volume of the pod, which containerd cannot unmount",
		Fault: bed.Fault{
			Pod:   withImage(3),
			Break: bed.OnNode(intoImage + hold(">/dev/null 2>&1")),
			Proof: stillAnImage + logged("failed to cleanup image mounts"),
			Heal:  letGo,
		},
		Want: bed.Want{
			Cause: "ImageVolumeUnmountBusy",
			Says: []string{"Cause: in phase Sandbox", "sleep (PID", "cannot unmount an image volume of the pod", "uses it (its working " +
				"directory)", "EBUSY", "Seen: image-volumes", "Fix: kill -TERM"},
		},
	}
}

// imageVolumeBusyElsewhere is the same of a program in a mount namespace of its own.
func imageVolumeBusyElsewhere() bed.Scenario {
	s := imageVolumeBusy()
	s.Name = "image-volume-busy-elsewhere"
	s.Story = "a process in a mount namespace of its own, which the node's mounts are propagated to, is in an image volume of the pod, which " +
		"containerd cannot unmount"
	s.Break = bed.OnNode(intoImage + holdElsewhere("slave"))
	s.Says = []string{"Cause: in phase Sandbox", "sleep (PID", "uses it (its working directory, in a mount namespace of its own)", "EBUSY", "Fix: kill -TERM"}
	return s
}

// imageVolumeUsed is innocent: what uses the volume has exited before the kubelet's next try.
func imageVolumeUsed() bed.Scenario {
	return bed.Scenario{
		Name:  "image-volume-used",
		Story: "innocent: a shell of the node uses an image volume of the pod when containerd is to unmount it, and leaves it then",
		Fault: bed.Fault{
			Pod: withImage(1),
			Break: bed.OnNode(intoImage + hold(">/dev/null 2>&1") + `(
cd /
until ` + logged("failed to cleanup image mounts") + `; do sleep 1; done
sleep 8
kill -KILL $(cat /run/scenario-$NAME.holder)
) </dev/null >/dev/null 2>&1 &`),
			Proof: stillAnImage + logged("failed to cleanup image mounts"),
			Heal:  letGo,
		},
	}
}
