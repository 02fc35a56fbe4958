package scenario

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/nodeagent-io/nodeagent/test/bed"
)

// removeManifest is a step that takes the pod's manifest away.
func removeManifest(ctx context.Context, n *bed.Node, p *corev1.Pod) error {
	_, err := n.Exec(ctx, fmt.Sprintf("rm -f %s/%s.json", bed.StaticPodPath, strings.TrimSuffix(p.Name, "-"+n.Name)))
	return err
}

func mirrorDeleted() bed.Scenario {
	return bed.Scenario{
		Name:  "mirror-pod-deleted",
		Story: "the mirror pod of a static pod is deleted, whose manifest stays; a finalizer keeps the object",
		Fault: bed.Fault{
			Pod:        victim(3, "drain", "0"),
			Made:       bed.Static,
			Finalizers: []string{"example.com/block"},
			Proof:      `[ -n "$(tasks)" ]`,
			Heal:       endStatic,
		},
		Want: bed.Want{
			Cause: "MirrorPodDeleted",
			Says: []string{"it is only the mirror of a static pod", "finalizer example.com/block keeps this object",
				"which still runs (a delete does not stop it)", "Fix: To stop the static pod, ask its owner, then move its manifest"},
		},
	}
}

// endStatic is a step that ends a static pod, and lets its mirror pod go: in this order,
// because the kubelet makes a new one while the manifest is there.
func endStatic(ctx context.Context, n *bed.Node, p *corev1.Pod) error {
	if err := removeManifest(ctx, n, p); err != nil {
		return err
	}
	if err := bed.ProcessesGone(ctx, n, p); err != nil {
		return err
	}
	if err := removeFinalizers(ctx, n, p); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}

// manifestRemoved is innocent: the kubelet ends the static pod, and the controller takes
// some seconds to remove its finalizer from the mirror pod.
func manifestRemoved() bed.Scenario {
	later := finalizerRemoved().Break
	return bed.Scenario{
		Name:  "static-pod-removed",
		Story: "innocent: the manifest of a static pod is removed, and its mirror pod deleted, which a finalizer keeps for some seconds",
		Fault: bed.Fault{
			Pod:        victim(3, "drain", "0"),
			Made:       bed.Static,
			Finalizers: []string{"example.com/later"},
			Break: func(ctx context.Context, n *bed.Node, p *corev1.Pod) error {
				if err := later(ctx, n, p); err != nil {
					return err
				}
				return removeManifest(ctx, n, p)
			},
			Proof: `[ -z "$(tasks)" ]`,
			Heal:  endStatic,
		},
	}
}
