package bed

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// StaticPodPath is the kubelet's staticPodPath.
const StaticPodPath = "/etc/kubernetes/manifests"

// createStatic puts the pod's manifest on the node and waits for its mirror pod, whose
// name the run takes.
func (r *Run) createStatic(ctx context.Context, p *corev1.Pod) error {
	p.APIVersion, p.Kind, p.Spec.NodeName = "v1", "Pod", ""
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	// The kubelet reads what has a name without a dot in front.
	if _, err := r.Node.Exec(ctx, fmt.Sprintf("mkdir -p %[1]s && cat >%[1]s/.new <<'END'\n%[2]s\nEND\nmv %[1]s/.new "+
		"%[1]s/%[3]s.json", StaticPodPath, text, p.Name)); err != nil {
		return err
	}
	r.Name = p.Name + "-" + r.Node.Name
	if err := r.Node.Await(ctx, "mirror pod "+r.Name, func() (bool, string) {
		r.Pod, err = r.Node.Seen(p.Namespace, r.Name)
		return err == nil, fmt.Sprint(err)
	}); err != nil {
		return err
	}
	return r.awaitRunning(ctx)
}

// runtimeUID returns the UID by which the node knows a pod. A static pod's, that its
// mirror pod has in an annotation, is another one than that of the mirror pod.
func runtimeUID(p *corev1.Pod) string {
	if hash := p.Annotations["kubernetes.io/config.hash"]; hash != "" {
		return hash
	}
	return string(p.UID)
}
