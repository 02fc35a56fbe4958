package scenario

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodeagent-io/nodeagent/test/bed"
)

// orphanUID is that of a pod that the API server does not have.
const orphanUID = "5ca1ab1e-0000-4000-8000-00000000dead"

// orphan is the directory of such a pod's CSI volume, orphanMount where test/fusehang is mounted in it,
// and orphanDaemon has the PID of the daemon.
const (
	orphan       = "/var/lib/kubelet/pods/" + orphanUID + "/volumes/kubernetes.io~csi/pv-of-the-dead"
	orphanMount  = orphan + "/mount"
	orphanDaemon = "/run/scenario-orphan.daemon"
)

// mountOrphan returns a script that mounts there and stops the daemon, as of a driver that does
// not answer any more, and waits until the kubelet has found the directory.
func mountOrphan() string {
	return unmountOrphan() + "\nmkdir -p " + orphanMount + "\n" + serveFUSE("-ask", orphanMount, orphanDaemon) + `
kill -STOP $(cat ` + orphanDaemon + `)
for i in $(seq 60); do (` + kubeletWaits + `) && break; sleep 0.5; done`
}

// unmountOrphan returns a script that aborts the connection and removes what is there, as the
// kubelet may do meanwhile.
func unmountOrphan() string {
	return abortFUSE(orphanMount, orphanDaemon) + `
rm -f ` + orphanDaemon + `
rm -df ` + orphanMount + ` ` + orphan
}

// kubeletWaits succeeds when a thread of the kubelet waits for a FUSE daemon.
const kubeletWaits = `for task in /proc/$(pgrep -o -x kubelet)/task/*; do
  case $(wchan ${task##*/}) in request_wait_answer*) exit 0 ;; esac
done
exit 1`

func syncLoopStalled() bed.Scenario {
	return bed.Scenario{
		Name:  "sync-loop-stalled",
		Story: "the kubelet's main loop hangs on the CSI volume of a pod that is gone, of which the FUSE daemon does not answer",
		Fault: bed.Fault{
			Pod:     victim(3, "drain", "0"),
			Prepare: bed.NodeTool("fusehang"),
			Break:   bed.OnNode(mountOrphan()),
			Proof:   kubeletWaits,
			Heal:    bed.OnNode(unmountOrphan()),
		},
		Want: bed.Want{
			Cause:  "KubeletSyncLoopStalled",
			Family: "FUSE",
			Says:   []string{"Seen: the kubelet has done nothing about it", "of a removed pod", "fuse.hang", "Fix: /sys/fs/fuse/connections/"},
		},
	}
}

// syncLoopBriefly is innocent: the requests fail half a minute later.
func syncLoopBriefly() bed.Scenario {
	return bed.Scenario{
		Name:  "sync-loop-slow",
		Story: "innocent: the kubelet's main loop hangs for half a minute on the CSI volume of a pod that is gone",
		Fault: bed.Fault{
			Pod:     victim(3, "drain", "0"),
			Prepare: bed.NodeTool("fusehang"),
			Break:   bed.OnNode(mountOrphan() + "\n(sleep 25\n" + unmountOrphan() + ") </dev/null >/dev/null 2>&1 &"),
			Proof:   kubeletWaits,
		},
	}
}

// deviceResource is the resource of the scenario's own device plugin.
func deviceResource(name string) corev1.ResourceName {
	return corev1.ResourceName("device.test/" + csiName(name))
}

// startDevice is a step that starts test/csidriver on the node as a device plugin, and waits until
// the node has its device.
func startDevice(name string) bed.Step {
	driver := csiName(name)
	return inTurn(bed.NodeTool("csidriver"), bed.OnNode("mkdir -p /run/csidriver\n"+endCSI(name, "TERM")+`
rm -f /run/csidriver/`+driver+`*
setsid /usr/local/bin/csidriver -device `+driver+` </dev/null >/run/csidriver/`+driver+`.log 2>&1 &
echo $! >/run/csidriver/`+driver+`.pid
for i in $(seq 60); do [ -e /run/csidriver/`+driver+`.registered ] && break; sleep 0.5; done`), func(ctx context.Context, n *bed.Node, _ *corev1.Pod) error {
		return n.Await(ctx, "the node to have "+string(deviceResource(name)), func() (bool, string) {
			node, err := n.API.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{})
			if err != nil {
				return false, err.Error()
			}
			has := node.Status.Allocatable[deviceResource(name)]
			return has.Value() > 0, "it has none"
		})
	})
}

// deviceUser is a pod that needs the device.
func deviceUser(n *bed.Node, name string) *corev1.Pod {
	one := corev1.ResourceList{deviceResource(name): resource.MustParse("1")}
	s := bed.Scenario{Name: name + "-user", Fault: bed.Fault{Pod: victim(3, "drain", "0")}}
	s.Pod.Containers[0].Resources = corev1.ResourceRequirements{Limits: one, Requests: one}
	return s.Manifest(n)
}

// useDevice is a step that has another pod ask for the device, and endUser one that deletes that.
func useDevice(name string) bed.Step {
	return func(ctx context.Context, n *bed.Node, _ *corev1.Pod) error {
		p := deviceUser(n, name)
		_, err := n.API.CoreV1().Pods(p.Namespace).Create(ctx, p, metav1.CreateOptions{})
		return err
	}
}

func endUser(name string) bed.Step {
	return func(ctx context.Context, n *bed.Node, _ *corev1.Pod) error {
		p := deviceUser(n, name)
		err := n.API.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}
}

// allocates is a shell script that succeeds when the device plugin has been asked for its device.
func allocates(name string) string { return "[ -e /run/csidriver/" + csiName(name) + ".allocating ]" }

// deviceHangs is told when the kubelet's health check fails, after five minutes.
func deviceHangs() bed.Scenario {
	const name = "sync-loop-device"
	return bed.Scenario{
		Name:  name,
		Story: "the kubelet's main loop waits for a device plugin that does not answer Allocate, for the device of another pod",
		Place: bed.Place{Long: true},
		Fault: bed.Fault{
			Pod:     victim(3, "drain", "0"),
			Prepare: startDevice(name),
			Break:   inTurn(bed.OnNode(tellCSI(name, "hang")), useDevice(name), bed.OnNode("until "+allocates(name)+"; do sleep 1; done")),
			Proof:   allocates(name) + " && some S",
			// The kubelet goes on when the plugin's end has closed its connection.
			Heal: inTurn(bed.OnNode(endCSI(name, "KILL")), endUser(name)),
		},
		Want: bed.Want{
			Late:   true,
			Cause:  "KubeletSyncLoopStalled",
			Family: "NotSeen",
			Says: []string{"Seen: the kubelet has done nothing about it", "its health check (syncloop) fails",
				"Seen: no round for at least five minutes", "device plugin"},
			Force: "no",
		},
	}
}

// deviceSlow is innocent: the plugin answers after twenty seconds.
func deviceSlow() bed.Scenario {
	const name = "sync-loop-device-slow"
	return bed.Scenario{
		Name:  name,
		Story: "innocent: the kubelet's main loop waits for twenty seconds for a device plugin to answer Allocate, for the device of another pod",
		Fault: bed.Fault{
			Pod:     victim(3, "drain", "0"),
			Prepare: startDevice(name),
			Break:   inTurn(bed.OnNode(tellCSI(name, "slow")), useDevice(name), bed.OnNode("until "+allocates(name)+"; do sleep 1; done")),
			Proof:   allocates(name) + " && some S",
			Heal:    inTurn(bed.OnNode(endCSI(name, "KILL")), endUser(name)),
		},
	}
}
