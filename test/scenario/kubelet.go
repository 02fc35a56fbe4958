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
			Says:   []string{"the kubelet does nothing about this pod", "not in the API any more", "fuse.hang", "/sys/fs/fuse/connections/"},
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

// loopWaits is an incident in which the kubelet's main loop waits for a device plugin, for the device of another pod.
// It is told when the kubelet's health check fails, after five minutes.
func loopWaits(name, story string) bed.Scenario {
	return bed.Scenario{
		Name:  name,
		Story: "the kubelet's main loop waits for a device plugin " + story,
		Place: bed.Place{Long: true},
		Fault: bed.Fault{
			Pod:     victim(3, "drain", "0"),
			Prepare: startDevice(name),
			// The kubelet goes on when the plugin's end has closed its connection.
			Heal: inTurn(bed.OnNode(endCSI(name, "KILL")), endUser(name)),
		},
		Want: bed.Want{
			Late:  true,
			Cause: "KubeletSyncLoopStalled",
			Says:  []string{"the kubelet does nothing about this pod", "its own health check says that its main loop has hung", "device plugin"},
			Force: "no",
		},
	}
}

// hangsInAllocate has the plugin not answer, when it has been asked for its device.
func hangsInAllocate(s *bed.Scenario, name string) {
	s.Break = inTurn(bed.OnNode(tellCSI(name, "hang")), useDevice(name), bed.OnNode("until "+allocates(name)+"; do sleep 1; done"))
	s.Proof = allocates(name) + " && some S"
	s.Family = "NotSeen"
}

func deviceHangs() bed.Scenario {
	const name = "sync-loop-device"
	s := loopWaits(name, "that does not answer Allocate, for the device of another pod")
	hangsInAllocate(&s, name)
	return s
}

// asked is a shell script that succeeds when the kubelet has sent to a device plugin what that has not read.
func asked(name string) string {
	return "ss -xH | awk '$2 == \"ESTAB\" && $3 > 0 && $5 ~ /" + csiName(name) + `\.sock$/ {found = 1} END {exit !found}'`
}

// pluginInState succeeds when a device plugin's process is in a state.
func pluginInState(name, state string) string {
	return "grep -q '^State:." + state + "' /proc/$(cat /run/csidriver/" + csiName(name) + ".pid)/status"
}

func stopPlugin(name string) string {
	return "kill -STOP $(cat /run/csidriver/" + csiName(name) + ".pid)\nuntil " + pluginInState(name, "T") + "; do sleep 0.1; done"
}

func deviceStopped() bed.Scenario {
	const name = "sync-loop-device-stopped"
	s := loopWaits(name, "that is stopped by a signal, for the device of another pod")
	s.Break = inTurn(bed.OnNode(stopPlugin(name)), useDevice(name), bed.OnNode("until "+asked(name)+"; do sleep 1; done"))
	s.Proof = pluginInState(name, "T") + " && " + asked(name) + " && some S"
	s.Family = "Stopped"
	s.Says = append(s.Says, "device plugin behind "+csiName(name)+".sock, csidriver (PID ", "is stopped by a signal", "kill -CONT")
	return s
}

// deviceHangsBeside has another device plugin stopped, of which the kubelet asks nothing: it is not accused.
func deviceHangsBeside() bed.Scenario {
	const name, other = "sync-loop-device-beside", "sync-loop-device-other"
	s := loopWaits(name, "that does not answer, and another one, which is not asked, is stopped by a signal")
	hangsInAllocate(&s, name)
	s.Prepare = inTurn(s.Prepare, startDevice(other))
	s.Break = inTurn(bed.OnNode(stopPlugin(other)), s.Break)
	s.Proof += " && " + pluginInState(other, "T") + " && ! " + asked(other)
	s.Heal = inTurn(bed.OnNode(endCSI(other, "KILL")), s.Heal)
	return s
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
