package scenario

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Namespace is where the scenarios' pods live.
const Namespace = "scenarios"

// The images that the scenarios' pods run. VictimImage is made from test/victim.
const (
	BusyboxImage = "docker.io/library/busybox:test"
	VictimImage  = "docker.io/library/victim:test"
)

// A Scenario is one incident.
type Scenario struct {
	Name string
	// Story says in a line what is broken.
	Story string
	// Pod is the manifest, without name, namespace and node.
	Pod corev1.PodSpec
	// Finalizers are put on the pod.
	Finalizers []string
	// Prepare sets up on the node what the pod needs; Break breaks it when the
	// pod runs, before it is deleted.
	Prepare, Break func(context.Context, *Cluster, *corev1.Pod) error
	// Proof is the scenario's own reading, on the node, of the kernel's files:
	// a shell script that ends with 0 when the fault is really there. It is
	// asked again until it does.
	Proof string
	// Cause, Family and Says are what the agent must find and name; no Cause
	// means that it must be silent.
	Cause, Family string
	Says          []string
	// Early says that the verdict must come inside the grace period.
	Early bool
	// Posthumous says that the verdict may come as an Event when the pod has
	// gone already.
	Posthumous bool
	// CgroupV1 says that the incident is also tried on a node with cgroup v1,
	// and OnlyCgroupV1 that it is tried nowhere else.
	CgroupV1, OnlyCgroupV1 bool
	// NoExec says that nothing can be executed in containers meanwhile.
	NoExec bool
	// Heal ends the fault; the pod must go away then. nil means that it goes
	// by itself.
	Heal func(context.Context, *Cluster, *corev1.Pod) error
}

// Manifest is the scenario's pod.
func (s *Scenario) Manifest(node string) *corev1.Pod {
	spec := *s.Pod.DeepCopy()
	spec.NodeName = node
	spec.RestartPolicy = corev1.RestartPolicyNever
	no := false
	spec.AutomountServiceAccountToken = &no
	spec.EnableServiceLinks = &no
	spec.DNSPolicy = corev1.DNSDefault // the cluster has no DNS of its own
	for i := range spec.Containers {
		spec.Containers[i].ImagePullPolicy = corev1.PullNever
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: s.Name, Namespace: Namespace, Finalizers: s.Finalizers,
			Labels: map[string]string{"scenario": s.Name},
		},
		Spec: spec,
	}
}

// pod is a specification of one container.
func pod(grace int64, image string, command ...string) corev1.PodSpec {
	return corev1.PodSpec{
		TerminationGracePeriodSeconds: &grace,
		Containers:                    []corev1.Container{{Name: "main", Image: image, Command: command}},
	}
}

// withVolume mounts a volume at /data in all containers.
func withVolume(spec corev1.PodSpec, name string, source corev1.VolumeSource) corev1.PodSpec {
	spec.Volumes = append(spec.Volumes, corev1.Volume{Name: name, VolumeSource: source})
	for i := range spec.Containers {
		spec.Containers[i].VolumeMounts = append(spec.Containers[i].VolumeMounts, corev1.VolumeMount{Name: name, MountPath: "/data"})
	}
	return spec
}

func hostPath(path string) corev1.VolumeSource {
	return corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path}}
}

// onNode is a step that runs a shell script on the node. UID in it is the
// pod's UID, and CGROUP its form in cgroup names.
func onNode(script string) func(context.Context, *Cluster, *corev1.Pod) error {
	return func(ctx context.Context, c *Cluster, p *corev1.Pod) error {
		_, err := c.Exec(ctx, ForPod(script, p))
		return err
	}
}

// ForPod fills the pod's names into a script for the node.
func ForPod(script string, p *corev1.Pod) string {
	uid := string(p.UID)
	return fmt.Sprintf("UID_=%s; CGROUP=%s; NAME=%s\nset -e\n%s\n%s", uid, strings.ReplaceAll(uid, "-", "_"), p.Name, functions, script)
}

// functions are shell functions for scripts on the node. tasks prints the
// thread IDs in the pod's cgroups; some STATE [PENDING] succeeds when one of
// them is in the state with the pending signals (hexadecimal, as the kernel
// prints them).
const functions = `
tasks() { find /sys/fs/cgroup -path "*pod$CGROUP*" \( -name cgroup.threads -o -name tasks \) -exec cat {} + 2>/dev/null | sort -un; }
some() {
  for t in $(tasks); do
    grep -q "^State:.$1" /proc/$t/status 2>/dev/null || continue
    [ -z "$2" ] || grep -q "^SigPnd:.*$2$" /proc/$t/status || continue
    return 0
  done
  return 1
}
`
