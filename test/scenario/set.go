package scenario

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodeagent-io/nodeagent/test/bed"
)

// endSet is a step that deletes a pod's StatefulSet, and not the pod.
func endSet(ctx context.Context, n *bed.Node, p *corev1.Pod) error {
	orphan := metav1.DeletePropagationOrphan
	err := n.API.AppsV1().StatefulSets(p.Namespace).Delete(ctx, strings.TrimSuffix(p.Name, bed.SetSuffix), metav1.DeleteOptions{PropagationPolicy: &orphan})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// successor waits for the pod that has taken another one's name and place, and runs.
func successor(ctx context.Context, n *bed.Node, p *corev1.Pod) (*corev1.Pod, error) {
	var next *corev1.Pod
	err := n.Await(ctx, "the next pod "+p.Name+" to run", func() (bool, string) {
		now, err := n.Seen(p.Namespace, p.Name)
		if err != nil {
			return false, err.Error()
		}
		next = now
		return now.UID != p.UID && now.Status.Phase == corev1.PodRunning, string(now.UID) + " " + string(now.Status.Phase)
	})
	return next, err
}

// emptied has a StatefulSet delete its pod.
func emptied(ctx context.Context, n *bed.Node, p *corev1.Pod) error {
	_, err := n.API.AppsV1().StatefulSets(p.Namespace).Patch(ctx, strings.TrimSuffix(p.Name, bed.SetSuffix), types.MergePatchType,
		[]byte(`{"spec":{"replicas":0}}`), metav1.PatchOptions{})
	return err
}

// endsUnheard waits until a pod that ends by itself is gone. The error says what the agent had
// to say of it.
func endsUnheard(ctx context.Context, n *bed.Node, p *corev1.Pod) error {
	r, said := bed.Run{Scenario: bed.Scenario{Name: p.Name}, Node: n, Pod: p}, ""
	if err := n.Await(ctx, "the next pod "+p.Name+" to go away", func() (bool, string) {
		now, err := r.Current()
		if err != nil {
			return apierrors.IsNotFound(err), err.Error()
		}
		if c := bed.Condition(now); c != nil {
			said = c.Reason + ": " + c.Message
		}
		return false, "phase " + string(now.Status.Phase)
	}); err != nil {
		return err
	}
	if err := noRemains(ctx, n, p); err != nil {
		return err
	}
	events, err := r.Events(ctx)
	for _, e := range events {
		said = e.Reason + ": " + e.Note
	}
	if said != "" {
		err = errors.Join(err, fmt.Errorf("the agent says of the next pod %s (UID %s): %q", p.Name, p.UID, said))
	}
	return err
}

// endsBusy has the volume of a pod be in use when its StatefulSet deletes it, and has the agent
// say so of this pod.
func endsBusy(ctx context.Context, n *bed.Node, p *corev1.Pod) error {
	s := volumeBusy()
	s.Name = p.Name
	r := bed.Run{Scenario: s, Node: n, Pod: p}
	if err := s.Break(ctx, n, p); err != nil {
		return err
	}
	told := func() error {
		if err := emptied(ctx, n, p); err != nil {
			return err
		}
		if err := r.AwaitVerdict(ctx); err != nil {
			return err
		}
		now, err := r.Current()
		if err != nil {
			return err
		}
		c := bed.Condition(now)
		if c == nil {
			return fmt.Errorf("the next pod has no condition")
		}
		if wrong := append(r.Malformed(r.Event.Note, c), r.Unsaid(r.Event.Note, c)...); wrong != nil {
			return fmt.Errorf("about the next pod: %w", errors.Join(wrong...))
		}
		if strings.Contains(r.Event.Note+c.Message, "shim") || len(r.Wrong) > 0 {
			return fmt.Errorf("the agent says of the next pod what is true of the old one: %q %q %q", r.Event.Note, c.Message, r.Wrong)
		}
		return nil
	}()
	if err := errors.Join(told, r.Mend(ctx)); err != nil {
		return err
	}
	return noRemains(ctx, n, p)
}

// writer is a pod that writes its UID to a file of the node once a second, and that takes the
// given number of seconds to end.
func writer(name string, grace int64, drains int) corev1.PodSpec {
	spec := withVolume(pod(grace, bed.BusyboxImage, "sh", "-c",
		fmt.Sprintf(`trap 'for i in $(seq %d); do sleep 1; done; exit 0' TERM; while :; do echo $POD >>/data/log; sleep 1; done`, drains)),
		"data", hostPath(directory(name)))
	spec.Containers[0].Env = []corev1.EnvVar{ownUID}
	return spec
}

// ownUID is the environment variable with the UID of the pod itself.
var ownUID = corev1.EnvVar{Name: "POD", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.uid"}}}

// withScratch adds the volume of onTmpfs to a pod that has another one at its place.
func withScratch(spec *corev1.PodSpec) {
	spec.Volumes = append(spec.Volumes, onTmpfs().Volumes...)
	spec.Containers[0].VolumeMounts = append(spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "scratch", MountPath: "/scratch"})
}

// written returns a script that waits until each of some pods has written to a writer's file
// since then, and fails when that takes a minute.
func written(name string, pods ...*corev1.Pod) string {
	log := directory(name) + "/log"
	script := ": >" + log
	for _, p := range pods {
		script += fmt.Sprintf("\nfor i in $(seq 60); do ! grep -q %[1]s %[2]s || break; sleep 1; done\ngrep -q %[1]s %[2]s", p.UID, log)
	}
	return script
}

// setRecreated is a pod of a StatefulSet that nobody can stop, and that is deleted by force in
// spite of what its Event says: the StatefulSet makes another one of its name, on the same node,
// beside it.
func setRecreated() bed.Scenario {
	const name = "stateful-set-recreated"
	s := shimStopped()
	s.Name = name
	s.Story = "a pod of a StatefulSet, whose shim is stopped, is deleted by force; the next pod of its name writes to the same directory of the node beside it"
	s.Pod = writer(name, 3, 0)
	withScratch(&s.Pod)
	s.Made = bed.OfSet
	s.Prepare = bed.OnNode("mkdir -p " + directory(name))
	s.Says = append(s.Says, "Force delete: no, process sh of container main is still running. Its StatefulSet would start a second "+
		"pod with the same name: two writers")
	s.Force = "no"
	goOn := s.Heal
	s.Heal = func(ctx context.Context, n *bed.Node, p *corev1.Pod) error {
		err := forceDelete(ctx, n, p)
		if err == nil {
			err = beside(ctx, n, name, p)
		}
		err = errors.Join(err, endSet(ctx, n, p), goOn(ctx, n, p))
		if err == nil {
			err = bed.ProcessesGone(ctx, n, p)
		}
		return err
	}
	return s
}

// beside has the next pod of a StatefulSet come while processes of the one before go on, and be
// stuck for another reason. What is told on the node is about the old one, and what is told on
// the next one is true of that.
func beside(ctx context.Context, n *bed.Node, name string, old *corev1.Pod) error {
	next, err := successor(ctx, n, old)
	if err != nil {
		return err
	}
	if _, err := n.Exec(ctx, n.Script(written(name, old, next), old)); err != nil {
		return fmt.Errorf("not both of the pods write: %w", err)
	}
	if err := toldOf(ctx, n, old, "process sh "); err != nil {
		return err
	}
	return endsBusy(ctx, n, next)
}

// toldOf waits until the agent has told on the node what is left of a pod, of which there is
// another one with its name.
func toldOf(ctx context.Context, n *bed.Node, old *corev1.Pod, left string) error {
	whose := "Pod " + old.Namespace + "/" + old.Name + " (UID " + string(old.UID) + ") is "
	for _, reason := range []string{deletedPodRemains, orphanedPod} {
		if err := n.Await(ctx, "the Event "+reason+" about the old "+old.Name, func() (bool, string) {
			note, err := remains(ctx, n, old, reason)
			return strings.HasPrefix(note, whose) && strings.Contains(note, left), fmt.Sprint(note, err)
		}); err != nil {
			return err
		}
	}
	return nil
}

// setHolds is a pod of a StatefulSet that is deleted by force like that, and of which the next pod
// of its name uses a volume when it ends at last. The two are not taken for one.
func setHolds() bed.Scenario {
	const pods = "/var/lib/kubelet/pods"
	s := shimStopped()
	s.Name = "stateful-set-holds"
	s.Story = "a pod of a StatefulSet, whose shim is stopped, is deleted by force; when it ends, the next pod of its name has its working directory in its volume"
	s.Pod = withVolume(pod(3, bed.BusyboxImage, "sh", "-c", `trap 'exit 0' TERM
while :; do
  for d in /data/*/volumes/kubernetes.io~empty-dir/scratch; do case $d in */$POD/*) ;; *) cd $d ;; esac; done
  sleep 1
done`), "data", hostPath(pods))
	main := &s.Pod.Containers[0]
	propagation := corev1.MountPropagationHostToContainer
	main.VolumeMounts[0].MountPropagation = &propagation
	main.Env = []corev1.EnvVar{ownUID}
	withScratch(&s.Pod)
	s.Made = bed.OfSet
	s.Says = append(s.Says, "Force delete: no, process sh of container main is still running. Its StatefulSet would start a second pod")
	goOn := s.Heal
	s.Heal = func(ctx context.Context, n *bed.Node, p *corev1.Pod) error {
		next, err := (*corev1.Pod)(nil), forceDelete(ctx, n, p)
		if err == nil {
			if next, err = successor(ctx, n, p); err == nil {
				_, err = n.Exec(ctx, n.Script(`cd_there() { for sh in $(pgrep -x sh); do [ "$(readlink /proc/$sh/cwd)" != /data/$UID_/volumes/kubernetes.io~empty-dir/scratch ] || return 0; done; return 1; }
for i in $(seq 60); do ! cd_there || exit 0; sleep 1; done
exit 1`, p))
			}
		}
		err = errors.Join(err, goOn(ctx, n, p))
		if err == nil {
			err = toldOf(ctx, n, p, `volume "scratch" is still in use by sh of another pod`)
		}
		if err == nil {
			err = emptied(ctx, n, next)
		}
		if err == nil {
			err = endsUnheard(ctx, n, next)
		}
		return errors.Join(err, endSet(ctx, n, p))
	}
	return s
}

// setReplaced is the twin of that: the kubelet kills the old pod, and only the next one writes.
func setReplaced() bed.Scenario {
	const name = "stateful-set-replaced"
	return bed.Scenario{
		Name:  name,
		Story: "innocent: a pod of a StatefulSet is deleted by force while it drains, and is killed; the next pod of its name takes its place and ends in time",
		Fault: bed.Fault{
			Pod:     writer(name, 60, 12),
			Made:    bed.OfSet,
			Prepare: bed.OnNode("mkdir -p " + directory(name)),
			Heal: func(ctx context.Context, n *bed.Node, p *corev1.Pod) error {
				// On a busy node it may be over before that, and the next pod there.
				if err := forceDelete(ctx, n, p); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
					return errors.Join(err, endSet(ctx, n, p))
				}
				return errors.Join(inItsPlace(ctx, n, name, p), endSet(ctx, n, p))
			},
		},
	}
}

// inItsPlace has the next pod of a StatefulSet come and end when the one before is gone, of which
// nothing is told either.
func inItsPlace(ctx context.Context, n *bed.Node, name string, old *corev1.Pod) error {
	next, err := successor(ctx, n, old)
	if err != nil {
		return err
	}
	if _, err := n.Exec(ctx, n.Script(`while [ -n "$(tasks)" ]; do sleep 0.5; done
`+written(name, next)+"\n! grep -q $UID_ "+directory(name)+"/log", old)); err != nil {
		return fmt.Errorf("not only the next pod writes: %w", err)
	}
	// With noRemains this is as long as the agent waits until it calls a pod an orphan, and its
	// searches and rounds are apart.
	if err := pause(ctx, time.Duration(*old.Spec.TerminationGracePeriodSeconds)*time.Second); err != nil {
		return err
	}
	if err := noRemains(ctx, n, old); err != nil {
		return err
	}
	if err := emptied(ctx, n, next); err != nil {
		return err
	}
	return endsUnheard(ctx, n, next)
}
