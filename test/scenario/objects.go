package scenario

import (
	"context"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodeagent-io/nodeagent/test/bed"
)

// objects lists incidents, and innocent pods that look like them, in which something besides the pod's
// processes decides when its object goes.
func objects() []bed.Scenario {
	return []bed.Scenario{foreground(), ofJob(), stoppedAndHeld(), rejectedAndHeld(), graceShortened()}
}

// foreground is a pod that is deleted as an owner: the garbage collector deletes first what depends on it.
func foreground() bed.Scenario {
	return bed.Scenario{
		Name:  "finalizer-foreground",
		Story: "a ConfigMap, which a finalizer keeps, names the pod as its owner, and the garbage collector waits for it",
		Fault: bed.Fault{
			Pod:        victim(5, "drain", "0"),
			Finalizers: []string{metav1.FinalizerDeleteDependents},
			Break:      ownConfigMap,
			Proof:      nothingLeft,
			Heal:       freeConfigMap, // the garbage collector does the rest
		},
		Want: bed.Want{
			Cause:  "FinalizersPending",
			Family: "ForegroundDeletion",
			Says:   []string{"finalizer foregroundDeletion keeps the API object; the garbage collector has not removed it", "blockOwnerDeletion"},
		},
	}
}

// ownConfigMap is a step that makes a ConfigMap of which the pod is the owner.
func ownConfigMap(ctx context.Context, n *bed.Node, p *corev1.Pod) error {
	blocks := true
	_, err := n.API.CoreV1().ConfigMaps(p.Namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name: p.Name, Finalizers: []string{"example.com/block"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: p.UID, BlockOwnerDeletion: &blocks}},
	}}, metav1.CreateOptions{})
	return err
}

func freeConfigMap(ctx context.Context, n *bed.Node, p *corev1.Pod) error {
	_, err := n.API.CoreV1().ConfigMaps(p.Namespace).Patch(ctx, p.Name, types.JSONPatchType,
		[]byte(`[{"op":"remove","path":"/metadata/finalizers"}]`), metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// ofJob is a pod of a Job that another controller than Kubernetes' own looks after, which does not run.
func ofJob() bed.Scenario {
	return bed.Scenario{
		Name:  "finalizer-job",
		Story: "a pod of a Job is deleted, and the Job's controller does not run",
		Fault: bed.Fault{
			Pod:        victim(5, "drain", "0"),
			Finalizers: []string{batchv1.JobTrackingFinalizer},
			Prepare:    makeJob,
			Proof:      nothingLeft,
			Heal:       inTurn(removeFinalizers, deleteJob),
		},
		Want: bed.Want{
			Cause:  "FinalizersPending",
			Family: "JobTracking",
			Says: []string{"finalizer batch.kubernetes.io/job-tracking keeps the API object; the Job controller has not removed " +
				"it", "Fix: --dry-run=server", "the Job loses count"},
		},
	}
}

// makeJob is a step that makes the Job that the pod is of. A Job that names another controller is left alone
// by Kubernetes' own.
func makeJob(ctx context.Context, n *bed.Node, p *corev1.Pod) error {
	other, is := "example.com/controller", true
	job, err := n.API.BatchV1().Jobs(p.Namespace).Create(ctx, &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: p.Name},
		Spec: batchv1.JobSpec{ManagedBy: &other, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "main", Image: bed.VictimImage}},
		}}},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create Job %s: %w", p.Name, err)
	}
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: job.Name, UID: job.UID, Controller: &is}}
	return nil
}

func deleteJob(ctx context.Context, n *bed.Node, p *corev1.Pod) error {
	background := metav1.DeletePropagationBackground
	err := n.API.BatchV1().Jobs(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{PropagationPolicy: &background})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// stoppedAndHeld has two reasons to stay, of which the second one counts only when the first has gone.
func stoppedAndHeld() bed.Scenario {
	s := stopped()
	s.Name, s.Story = "stopped-and-held", "somebody has stopped the first process with SIGSTOP, and a controller does not remove its finalizer either"
	s.Finalizers = []string{"example.com/block"}
	s.Heal = inTurn(s.Heal, told("FinalizersPending"), removeFinalizers)
	s.Then = "FinalizersPending"
	return s
}

// told is a step that waits until the pod's condition has a reason.
func told(reason string) bed.Step {
	return func(ctx context.Context, n *bed.Node, p *corev1.Pod) error {
		return n.Await(ctx, "the condition of "+p.Name+" to say "+reason, func() (bool, string) {
			now, err := n.Pod(ctx, p.Namespace, p.Name)
			if err != nil {
				return false, err.Error()
			}
			c := bed.Condition(now)
			return c != nil && c.Status == corev1.ConditionTrue && c.Reason == reason, fmt.Sprintf("%+v", c)
		})
	}
}

// rejectedAndHeld is a pod that the kubelet does not admit, because its node does not have the label that it
// asks for, so that nothing of it ever ran. Without a finalizer it goes when it is deleted.
func rejectedAndHeld() bed.Scenario {
	spec := victim(5, "drain", "0")
	spec.NodeSelector = map[string]string{"scenario.test/none": "here"}
	return bed.Scenario{
		Name:  "rejected-and-held",
		Story: "the kubelet has not admitted the pod, and a controller does not remove its finalizer",
		Fault: bed.Fault{
			Pod:        spec,
			Finalizers: []string{"example.com/block"},
			Starting:   true,
			Break:      failed,
			Heal:       removeFinalizers,
		},
		Want: bed.Want{
			Cause: "FinalizersPending",
			Says:  []string{"finalizer example.com/block", "Force delete: no, a force delete removes no finalizers", "Timeline: node done by "},
		},
	}
}

// failed is a step that waits until the kubelet has said that the pod has failed.
func failed(ctx context.Context, n *bed.Node, p *corev1.Pod) error {
	return n.Await(ctx, p.Name+" to fail", func() (bool, string) {
		now, err := n.Pod(ctx, p.Namespace, p.Name)
		if err != nil {
			return false, err.Error()
		}
		return now.Status.Phase == corev1.PodFailed, string(now.Status.Phase) + " " + now.Status.Reason
	})
}

// graceShortened is innocent: somebody who does not want to wait deletes the pod again, with a shorter grace
// period, and the kubelet kills it by that.
func graceShortened() bed.Scenario {
	return bed.Scenario{
		Name:  "grace-shortened",
		Story: "innocent: somebody deletes the pod, which drains, once more with a grace period of two seconds",
		Fault: bed.Fault{
			Pod: victim(60, "drain", "50"),
			Break: func(ctx context.Context, n *bed.Node, p *corev1.Pod) error {
				ctx = context.WithoutCancel(ctx)
				go func() {
					_ = n.Await(ctx, "the deletion of "+p.Name, func() (bool, string) {
						now, err := n.Seen(p.Namespace, p.Name)
						return err != nil || now.DeletionTimestamp != nil, "not yet"
					})
					time.Sleep(8 * time.Second)
					seconds := int64(2)
					_ = n.API.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: &seconds})
				}()
				return nil
			},
		},
	}
}
