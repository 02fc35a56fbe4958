package scenario

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// manifests is the kubelet's staticPodPath.
const manifests = "/etc/kubernetes/manifests"

// createStatic puts the pod's manifest on the node and waits for its mirror pod, whose
// name the run takes.
func (r *Run) createStatic(ctx context.Context, p *corev1.Pod) error {
	p.APIVersion, p.Kind, p.Spec.NodeName = "v1", "Pod", ""
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	// The kubelet reads what has a name without a dot in front.
	if _, err := r.Node.Exec(ctx, fmt.Sprintf("mkdir -p %[1]s && cat >%[1]s/.new <<'END'\n%[2]s\nEND\nmv %[1]s/.new %[1]s/%[3]s.json", manifests, text, p.Name)); err != nil {
		return err
	}
	r.Name = p.Name + "-" + r.Node.Name
	if err := r.Node.Await(ctx, "mirror pod "+r.Name, func() (bool, string) {
		r.Pod, err = r.Node.pods.Pods(p.Namespace).Get(r.Name)
		return err == nil, fmt.Sprint(err)
	}); err != nil {
		return err
	}
	return r.awaitRunning(ctx)
}

// removeManifest is a step that takes the pod's manifest away.
func removeManifest(ctx context.Context, n *Node, p *corev1.Pod) error {
	_, err := n.Exec(ctx, fmt.Sprintf("rm -f %s/%s.json", manifests, strings.TrimSuffix(p.Name, "-"+n.Name)))
	return err
}

// runtimeUID returns the UID by which the node knows a pod. A static pod's, that its
// mirror pod has in an annotation, is another one than that of the mirror pod.
func runtimeUID(p *corev1.Pod) string {
	if hash := p.Annotations["kubernetes.io/config.hash"]; hash != "" {
		return hash
	}
	return string(p.UID)
}

func mirrorDeleted() Scenario {
	return Scenario{
		Name:       "mirror-pod-deleted",
		Story:      "the mirror pod of a static pod is deleted, whose manifest stays; a finalizer keeps the object",
		Pod:        victim(3, "drain", "0"),
		Static:     true,
		Finalizers: []string{"example.com/block"},
		Proof:      `[ -n "$(tasks)" ]`,
		Cause:      "MirrorPodDeleted",
		Says:       []string{"the mirror pod of a static pod, which runs on", "because of finalizer example.com/block", "remove its manifest on the node"},
		Heal:       endStatic,
	}
}

// endStatic is a step that ends a static pod, and lets its mirror pod go: in this order,
// because the kubelet makes a new one while the manifest is there.
func endStatic(ctx context.Context, n *Node, p *corev1.Pod) error {
	if err := removeManifest(ctx, n, p); err != nil {
		return err
	}
	if err := processesGone(ctx, n, p); err != nil {
		return err
	}
	if err := removeFinalizers(ctx, n, p); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}

// manifestRemoved is innocent: the kubelet ends the static pod, and the controller takes
// some seconds to remove its finalizer from the mirror pod.
func manifestRemoved() Scenario {
	later := finalizerRemoved().Break
	return Scenario{
		Name:       "static-pod-removed",
		Story:      "innocent: the manifest of a static pod is removed, and its mirror pod deleted, which a finalizer keeps for some seconds",
		Pod:        victim(3, "drain", "0"),
		Static:     true,
		Finalizers: []string{"example.com/later"},
		Break: func(ctx context.Context, n *Node, p *corev1.Pod) error {
			if err := later(ctx, n, p); err != nil {
				return err
			}
			return removeManifest(ctx, n, p)
		},
		Proof: `[ -z "$(tasks)" ]`,
		Heal:  endStatic,
	}
}
