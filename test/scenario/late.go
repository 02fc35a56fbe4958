package scenario

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodeagent-io/nodeagent/test/bed"
)

// late lists the incidents in which the kubelet runs and does not get around to stopping the pod, and innocent ones that look
// like them.
func late() []bed.Scenario {
	return []bed.Scenario{kubeletThrottled(), kubeletThrottledBriefly(), kubeletStarved(), kubeletStarvedBriefly(), watchLost(), watchLostBriefly()}
}

// throttle gives the kubelet a millisecond of a processor in a second, and unthrottle is what the remedy says.
const (
	throttle   = "systemctl set-property --runtime kubelet.service CPUQuota=0.1% CPUQuotaPeriodSec=1s\n"
	unthrottle = "systemctl set-property --runtime kubelet.service CPUQuota=\n"
)

func kubeletThrottled() bed.Scenario {
	return bed.Scenario{
		Name:  "kubelet-throttled",
		Story: "the kubelet's unit has a CPU quota that is far too small",
		Place: bed.Place{Needs: []bed.Need{bed.Systemd}, NoExec: true},
		Fault: bed.Fault{
			Pod:   sleeper(3),
			Break: bed.OnNode(throttle),
			Proof: `grep -qx "1000 1000000" /sys/fs/cgroup/system.slice/kubelet.service/cpu.max && [ -n "$(tasks)" ]`,
			Heal:  inTurn(bed.OnNode(unthrottle), heard),
		},
		Want: bed.Want{
			Cause:  "KubeletLate",
			Family: "Throttled",
			Says: []string{"the kubelet has not begun to stop the pod: ", "Seen: status.observedGeneration",
				"the CPU limit of its cgroup system.slice/kubelet.service (0.001 processors) throttles it",
				"Seen: throttled the kubelet in at least three of four periods", "Fix: CPUQuota="},
			Force: "no",
		},
	}
}

// kubeletThrottledBriefly is innocent: the kubelet begins some seconds after the deadline.
func kubeletThrottledBriefly() bed.Scenario {
	s := kubeletThrottled()
	s.Name, s.Want = "kubelet-throttled-briefly", bed.Want{}
	s.Story = "innocent: the kubelet's unit has a CPU quota that is far too small, for half a minute"
	s.Break = bed.OnNode(throttle + "(sleep 30\n" + unthrottle + ") </dev/null >/dev/null 2>&1 &")
	s.Heal = heard
	return s
}

// burners use up what the control group of the kubelet gets of the processors, as a plugin of its that has run wild:
// nearly nothing is left for the kubelet beside them. unburn ends them.
const (
	burners = `group=/sys/fs/cgroup$(sed -n 's/^0:://p' /proc/$(pgrep -o -x kubelet)/cgroup)
for i in $(seq 32); do
  setsid sh -c "echo \$\$ >$group/cgroup.procs; exec nice -n -20 sh -c 'while :; do :; done'" </dev/null >/dev/null 2>&1 &
  echo $! >>/run/scenario-$NAME.burners
done
`
	unburn = "[ ! -e /run/scenario-$NAME.burners ] || kill $(cat /run/scenario-$NAME.burners)\nrm -f /run/scenario-$NAME.burners\n"
)

func kubeletStarved() bed.Scenario {
	return bed.Scenario{
		Name:  "kubelet-starved",
		Story: "processes in the kubelet's control group leave it no processor",
		Place: bed.Place{Needs: []bed.Need{bed.Systemd}, NoExec: true},
		Fault: bed.Fault{
			Pod:   sleeper(3),
			Break: bed.OnNode(burners),
			Proof: `kill -0 $(cat /run/scenario-$NAME.burners) && [ -n "$(tasks)" ]`,
			Heal:  inTurn(bed.OnNode(unburn), heard),
		},
		Want: bed.Want{
			Cause:  "KubeletLate",
			Family: "Starved",
			Says: []string{"it gets no CPU time. Most is used by other processes in its own cgroup system.slice/kubelet.service",
				"Seen: waited for a CPU at least 20 times as long as they ran (schedstat)", "Fix: The kubelet then stops the pod by itself"},
			Force: "no",
		},
	}
}

// kubeletStarvedBriefly is innocent: the kubelet begins some seconds after the deadline.
func kubeletStarvedBriefly() bed.Scenario {
	s := kubeletStarved()
	s.Name, s.Want = "kubelet-starved-briefly", bed.Want{}
	s.Story = "innocent: processes in the kubelet's control group leave it no processor for half a minute"
	s.Break = bed.OnNode(burners + "(sleep 30\n" + unburn + ") </dev/null >/dev/null 2>&1 &")
	s.Heal = heard
	return s
}

// muted is the file that has test/mutewatch hold watches back. throughProxy has the kubelet ask the API server through that,
// and pastProxy directly again.
const (
	muted        = "/run/scenario-muted"
	throughProxy = configs + `keep
rm -f ` + muted + `
setsid mutewatch -kubeconfig $kept/kubelet.kubeconfig -listen 127.0.0.1:16443 -mute ` + muted + ` </dev/null >/run/scenario-mutewatch.log 2>&1 &
echo $! >/run/scenario-mutewatch.pid
sed -i 's,server: .*,server: https://127.0.0.1:16443,; s,certificate-authority-data: .*,insecure-skip-tls-verify: true,' ` + kubeconfig + `
old=$(pgrep -o -x kubelet)
restart
until new=$(pgrep -o -x kubelet) && [ $new != $old ]; do sleep 1; done
`
	pastProxy = configs + "restore\nend KILL /run/scenario-mutewatch.pid\nrm -f " + muted + "\n"
)

// watchLost has a second pod, of another namespace, of which the kubelet does not hear either: of one alone it would not be known that
// it is not the pod's. It is told when the kubelet's health check would show a main loop that hangs. The remedy helps while the watch is as dead
// as before.
func watchLost() bed.Scenario {
	const name = "kubelet-watch-lost"
	return bed.Scenario{
		Name:  name,
		Story: "what is between the kubelet and the API server holds back what comes over watches, and all else goes through",
		Place: bed.Place{NoExec: true, Long: true},
		Fault: bed.Fault{
			Pod:     sleeper(3),
			Prepare: inTurn(bed.NodeTool("mutewatch"), bed.OnNode(throughProxy)),
			Break:   inTurn(startOther(name), bed.OnNode("touch "+muted), endOther(name)),
			Proof:   "[ -e " + muted + ` ] && kill -0 $(cat /run/scenario-mutewatch.pid) && [ -n "$(tasks)" ]`,
			Heal:    inTurn(bed.OnNode(configs+"restart"), finallyDeleted, bed.OnNode(pastProxy), heard),
		},
		Want: bed.Want{
			Cause:  "KubeletLate",
			Family: "WatchLost",
			Says: []string{"WHOLE NODE", "nor any other pod deleted since", "it probably no longer hears of deletions",
				"Seen: Pods of other namespaces wait for the kubelet in the same way", "Fix: systemctl restart kubelet"},
			Force: "no",
		},
	}
}

// watchLostBriefly is innocent: what was held back comes through some seconds after the deadline.
func watchLostBriefly() bed.Scenario {
	s := watchLost()
	s.Name, s.Want = s.Name+"-briefly", bed.Want{}
	s.Story = "innocent: what is between the kubelet and the API server holds back what comes over watches for half a minute"
	s.Break = inTurn(startOther(s.Name), bed.OnNode("touch "+muted+"\n(sleep 30\nrm -f "+muted+") </dev/null >/dev/null 2>&1 &"), endOther(s.Name))
	s.Proof = "kill -0 $(cat /run/scenario-mutewatch.pid)"
	s.Heal = inTurn(finallyDeleted, bed.OnNode(pastProxy), heard)
	return s
}

// startOther is a step that starts another pod and waits until it runs, and endOther one that deletes it.
func startOther(name string) bed.Step {
	return func(ctx context.Context, n *bed.Node, _ *corev1.Pod) error {
		p := other(n, name)
		if _, err := n.API.CoreV1().Pods(p.Namespace).Create(ctx, p, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
		return n.Await(ctx, p.Name+" to run", func() (bool, string) {
			now, err := n.API.CoreV1().Pods(p.Namespace).Get(ctx, p.Name, metav1.GetOptions{})
			if err != nil {
				return false, err.Error()
			}
			return now.Status.Phase == corev1.PodRunning, string(now.Status.Phase)
		})
	}
}

func endOther(name string) bed.Step {
	return func(ctx context.Context, n *bed.Node, _ *corev1.Pod) error {
		p := other(n, name)
		return n.API.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{})
	}
}

// other is in another namespace, and has no account there.
func other(n *bed.Node, name string) *corev1.Pod {
	s := bed.Scenario{Name: name + "-other", Fault: bed.Fault{Pod: sleeper(2)}}
	p := s.Manifest(n)
	p.Namespace = metav1.NamespaceDefault
	return p
}
