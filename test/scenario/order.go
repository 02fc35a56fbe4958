package scenario

import corev1 "k8s.io/api/core/v1"

// order lists the incidents in which the kubelet waits before it stops a container.
func order() []Scenario {
	return []Scenario{postStartHangs(), postStartEnds(), sidecarWaits()}
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

func postStartHangs() Scenario {
	return Scenario{
		Name:     "post-start-hangs",
		Story:    "the postStart hook does not end, so that the kubelet does not turn to the deletion",
		Pod:      withPostStart(victim(3, "drain", "0"), "/victim", "drain", "0"),
		Starting: true,
		Break:    onFirst(hook + "until p=$(first) && hook victim; do sleep 1; done"),
		Proof:    signalFunctions + hook + "h=$(hook victim) && ! grep -q '^ShdPnd:.*[1-9a-f]' /proc/$h/status",
		Cause:    "PostStartHookRunning",
		Says:     []string{"Blocked in phase Startup", "container main", "postStart hook victim", "no container of the pod has been sent its stop signal", "kill -TERM"},
		Heal:     onNode(signalFunctions + hook + "[ -z \"$p\" ] || ! h=$(hook victim) || kill -TERM $h"),
	}
}

// postStartEnds is innocent: the kubelet gives it the whole grace period when the hook has
// ended, so that its program may drain beyond the deadline.
func postStartEnds() Scenario {
	return Scenario{
		Name:  "post-start-ends",
		Story: "innocent: a postStart hook ends within the grace period, and the program then drains beyond the deadline",
		Pod: withPostStart(pod(60, BusyboxImage, "sh", "-c", "trap 'until [ -e /done ]; do sleep 1; done; exit 0' TERM; while :; do sleep 1; done"),
			"sh", "-c", "until [ -e /go ]; do sleep 1; done"),
		Starting: true,
		Break: onFirst(hook + `until p=$(first) && hook sh; do sleep 1; done
setsid sh -c "cd /proc/$p/root; sleep $((GRACE/2)); : >go; sleep $((GRACE/2+2)); : >late; sleep 10; : >done" </dev/null >/dev/null 2>&1 &`),
		Proof: signalFunctions + hook + "[ -e /proc/$p/root/late ] && ! hook sh",
	}
}

// sidecarWaits has a sidecar without a handler, too: it has not been sent the signal, so
// nothing is said against it.
func sidecarWaits() Scenario {
	s := sleepPID1()
	s.Name = "sidecar-waits"
	s.Story = "PID 1 has no handler for SIGTERM, and a native sidecar waits until its container has ended"
	always, proxy := corev1.ContainerRestartPolicyAlways, s.Pod.Containers[0]
	proxy.Name, proxy.RestartPolicy, proxy.ImagePullPolicy = "proxy", &always, corev1.PullNever
	s.Pod.InitContainers = []corev1.Container{proxy}
	s.Says = append(s.Says, "Sidecar proxy waits: it is stopped after container main, or at the deadline.")
	return s
}
