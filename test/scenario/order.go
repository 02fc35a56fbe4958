package scenario

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodeagent-io/nodeagent/test/bed"
)

// order lists the incidents in which the kubelet waits before it stops a container.
func order() []bed.Scenario {
	return []bed.Scenario{postStartHangs(), postStartEnds(), postStartSleeps(), postStartSleepEnds(), postStartUnanswered(), sidecarWaits()}
}

// withPostStart gives the pod's container a postStart hook.
func withPostStart(spec corev1.PodSpec, command ...string) corev1.PodSpec {
	spec.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: command}}}
	return spec
}

// hook is a shell function that prints the PID of a process that was executed in the
// container beside the first one, and runs the program of that name.
const hook = `
hook() {
  for t in $(tasks); do
    awk -v name=$1 -v first=$p '
      $1=="Name:"{is=$2==name} $1=="Tgid:"{group=$2} $1=="Pid:"{pid=$2}
      $1=="PPid:"{if (is && pid==group && pid!=first && $2!=first) {print pid; found=1}}
      END{exit !found}' /proc/$t/status 2>/dev/null && return 0
  done
  return 1
}
`

func postStartHangs() bed.Scenario {
	return bed.Scenario{
		Name:  "post-start-hangs",
		Story: "the postStart hook does not end, so that the kubelet does not turn to the deletion",
		Fault: bed.Fault{
			Pod:      withPostStart(victim(3, "drain", "0"), "/victim", "drain", "0"),
			Starting: true,
			Break:    onFirst(hook + "until p=$(first) && hook victim; do sleep 1; done"),
			Proof:    signalFunctions + hook + "h=$(hook victim) && ! grep -q '^ShdPnd:.*[1-9a-f]' /proc/$h/status",
			Heal:     bed.OnNode(signalFunctions + hook + "[ -z \"$p\" ] || ! h=$(hook victim) || kill -TERM $h"),
		},
		Want: bed.Want{
			Cause: "PostStartHookRunning",
			Says: []string{"Cause: Stuck in phase Startup", "container main", "postStart hook victim", "Seen: no container of the pod has " +
				"been sent its stop signal", "Fix: kill -TERM"},
		},
	}
}

// postStartEnds is innocent: the kubelet gives it the whole grace period when the hook has
// ended, so that its program may drain beyond the deadline.
func postStartEnds() bed.Scenario {
	return bed.Scenario{
		Name:  "post-start-ends",
		Story: "innocent: a postStart hook ends within the grace period, and the program then drains beyond the deadline",
		Fault: bed.Fault{
			Pod: withPostStart(pod(60, bed.BusyboxImage, "sh", "-c", "trap 'until [ -e /done ]; do sleep 1; done; exit 0' TERM; while :; do sleep 1; done"),
				"sh", "-c", "until [ -e /go ]; do sleep 1; done"),
			Starting: true,
			Break: onFirst(hook + `until p=$(first) && hook sh; do sleep 1; done
setsid sh -c "cd /proc/$p/root; sleep $((GRACE/2)); : >go; sleep $((GRACE/2+2)); : >late; sleep 10; : >done" </dev/null >/dev/null 2>&1 &`),
			Proof: signalFunctions + hook + "[ -e /proc/$p/root/late ] && ! hook sh",
		},
	}
}

// postStartSleeps is deleted with a shorter grace period than the pod has, as kubectl delete --now
// does it: the API server bounds the sleep by the longer one.
func postStartSleeps() bed.Scenario {
	spec := pod(180, bed.BusyboxImage, "sh", "-c", "trap ': >/stopped; exit 0' TERM; while :; do sleep 1; done")
	spec.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: sleeping(180)}
	return bed.Scenario{
		Name:  "post-start-sleeps",
		Story: "the postStart hook sleeps for longer than the grace period of the deletion",
		Fault: bed.Fault{
			Pod:      spec,
			Starting: true,
			Break: func(ctx context.Context, n *bed.Node, p *corev1.Pod) error {
				if err := onFirst(handles)(ctx, n, p); err != nil {
					return err
				}
				uid, grace := p.UID, int64(3)
				return n.API.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: &grace,
					Preconditions: &metav1.Preconditions{UID: &uid}})
			},
			Proof: signalFunctions + "sleep 4; [ ! -e /proc/$p/root/stopped ] && [ -e /proc/$p/root/bin ]",
		},
		Want: bed.Want{
			Cause:  "PostStartHookRunning",
			Family: "Sleep",
			Says: []string{"Cause: Probably stuck in phase Startup", "container main", "postStart hook sleeps until ", "(sleep of " +
				"", "Seen: no container of the pod has been sent its stop signal"},
		},
	}
}

// postStartSleepEnds is innocent: the kubelet gives it the whole grace period when the sleep has
// ended.
func postStartSleepEnds() bed.Scenario {
	spec := pod(120, bed.BusyboxImage, "sh", "-c", "trap ': >/stopped; until [ -e /done ]; do sleep 1; done; exit 0' TERM; while :; do sleep 1; done")
	spec.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: sleeping(80)}
	return bed.Scenario{
		Name:  "post-start-sleep-ends",
		Story: "innocent: a postStart hook sleeps for a part of the grace period, and the program then drains beyond the deadline",
		Fault: bed.Fault{
			Pod:      spec,
			Starting: true,
			Break:    onFirst(handles + `setsid sh -c "cd /proc/$p/root; sleep $((GRACE+2)); : >late; sleep $((GRACE/3)); : >done" </dev/null >/dev/null 2>&1 &`),
			Proof:    signalFunctions + "[ -e /proc/$p/root/late ] && [ -e /proc/$p/root/stopped ]",
		},
	}
}

// postStartUnanswered asks the port of a sidecar, which was started before.
func postStartUnanswered() bed.Scenario {
	spec := victim(3, "drain", "0")
	spec.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: asking()}
	always, server := corev1.ContainerRestartPolicyAlways, victim(3, "serve", "/other").Containers[0]
	server.Name, server.RestartPolicy, server.ImagePullPolicy = "server", &always, corev1.PullNever
	spec.InitContainers = []corev1.Container{server}
	const serving = `serving() { for t in $(tasks); do if tr '\0' ' ' </proc/$t/cmdline | grep -q '^/victim serve'; then echo $t; return; fi; done; return 1; }
`
	// In the pod's own network: others ask the port of their pods.
	const asked = `s=$(serving) && cat /proc/$s/net/tcp /proc/$s/net/tcp6 | awk '$2~/:1F90$/ && $4=="01"{found=1} END{exit !found}'`
	return bed.Scenario{
		Name:  "post-start-http-hangs",
		Story: "the postStart hook is an HTTP request that is never answered, so that the kubelet does not turn to the deletion",
		Place: bed.Place{Needs: []bed.Need{bed.PodNetwork}},
		Fault: bed.Fault{
			Pod:      spec,
			Starting: true,
			Break:    bed.OnNode(serving + "until " + asked + "; do sleep 1; done"),
			Proof:    serving + asked,
			Heal:     bed.OnNode(serving + "! s=$(serving) || kill -KILL $s"),
		},
		Want: bed.Want{
			Cause:  "PostStartHookRunning",
			Family: "HTTP",
			Says: []string{"Cause: Probably stuck in phase Startup", "container main", "postStart hook (HTTP request to port 8080 of the " +
				"pod) has had no response", "Seen: no container of the pod has been sent its stop signal"},
		},
	}
}

// sidecarWaits has a sidecar without a handler, too: it has not been sent the signal, so
// nothing is said against it.
func sidecarWaits() bed.Scenario {
	s := sleepPID1()
	s.Name = "sidecar-waits"
	s.Story = "PID 1 has no handler for SIGTERM, and a native sidecar waits until its container has ended"
	always, proxy := corev1.ContainerRestartPolicyAlways, s.Pod.Containers[0]
	proxy.Name, proxy.RestartPolicy, proxy.ImagePullPolicy = "proxy", &always, corev1.PullNever
	s.Pod.InitContainers = []corev1.Container{proxy}
	s.Says = append(s.Says, "Cause: Sidecar proxy is waiting: the kubelet stops it after container main exits, or at the deadline.")
	return s
}
