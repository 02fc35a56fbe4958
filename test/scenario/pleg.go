package scenario

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodeagent-io/nodeagent/test/bed"
)

// plegs lists the incidents in which the kubelet gets no list of the node's containers, and
// innocent ones that look like them.
func plegs() []bed.Scenario {
	return []bed.Scenario{listTooLarge(), listTooLargeLater(), listTooLargeBriefly(), listHangs()}
}

// fillers are how many pods with as large annotations as the API server takes, 256 KiB, make
// the list of all sandboxes larger than 16 MiB, with some to spare.
const fillers = 68

// fillerLabel is on them; its value is the name of the incident's pod.
const fillerLabel = "scenario-filler"

// fill is a step that creates pods with large annotations, which end by themselves. What is
// left of them until they are deleted is in containerd's list.
func fill(ctx context.Context, n *bed.Node, p *corev1.Pod) error {
	text := strings.Repeat("0123456789abcdef", 16<<10-64)
	for i := range fillers {
		s := bed.Scenario{Name: fillerName(p.Name, i), Fault: bed.Fault{Pod: pod(1, bed.BusyboxImage, "true")}}
		filler := s.Manifest(n)
		filler.Labels = map[string]string{fillerLabel: p.Name}
		filler.Annotations = map[string]string{"example.com/workflow": text}
		filler.Spec.HostNetwork = true // nothing has to be set up
		if _, err := n.API.CoreV1().Pods(filler.Namespace).Create(ctx, filler, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create pod %s: %w", filler.Name, err)
		}
	}
	return nil
}

// unlisted is a shell script that waits until the kubelet's log says that it gets no list, and
// relisting one that succeeds when it says so now.
const (
	relisting = `log() { if [ -e /var/log/kubelet.log ]; then tail -n 400 /var/log/kubelet.log; else journalctl -q -u kubelet -n 400; fi; }
unlisted() { log | tail -n 60 | grep -q "GenericPLEG: Unable to retrieve pods"; }
`
	unlisted = relisting + `for i in $(seq 200); do ! unlisted || exit 0; sleep 2; done
exit 1`
)

func fillerName(name string, i int) string { return fmt.Sprintf("%s-filler-%d", name, i) }

// ofFillers returns the UIDs of the pods of fill, as arguments.
func ofFillers(ctx context.Context, n *bed.Node, p *corev1.Pod) (string, error) {
	list, err := n.API.CoreV1().Pods(n.Namespace()).List(ctx, metav1.ListOptions{LabelSelector: fillerLabel + "=" + p.Name})
	if err != nil {
		return "", fmt.Errorf("list the pods with large annotations: %w", err)
	}
	var uids []string
	for i := range list.Items {
		uids = append(uids, string(list.Items[i].UID))
	}
	return strings.Join(uids, " "), nil
}

// unfill deletes the pods of fill, removes from containerd what it has of them, and waits until the
// kubelet goes on.
var unfill = inTurn(func(ctx context.Context, n *bed.Node, p *corev1.Pod) error {
	uids, err := ofFillers(ctx, n, p)
	if err != nil || uids == "" {
		return err
	}
	for i := range fillers {
		// One by one: the audit log has each answer in a line.
		err := n.API.CoreV1().Pods(n.Namespace()).Delete(ctx, fillerName(p.Name, i), metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete the pods with large annotations: %w", err)
		}
	}
	_, err = n.Exec(ctx, "rmpods "+uids)
	return err
}, heard)

// gone is a step that waits until the pod is gone from the API.
func gone(ctx context.Context, n *bed.Node, p *corev1.Pod) error {
	r := bed.Run{Scenario: bed.Scenario{Name: p.Name}, Node: n, Pod: p}
	return n.Await(ctx, p.Name+" to go away", func() (bool, string) {
		now, err := r.Current()
		if err != nil {
			return apierrors.IsNotFound(err), err.Error()
		}
		return false, "phase " + string(now.Status.Phase)
	})
}

// notReady is a step that waits until the kubelet says that the node is not ready.
var notReady = readiness(corev1.ConditionFalse)

func listTooLarge() bed.Scenario {
	return bed.Scenario{
		Name:  "pleg-list-too-large",
		Story: "containerd's list of all sandboxes, with the pods' annotations, is larger than the kubelet takes, and has been for three minutes",
		Place: bed.Place{Long: true},
		Fault: bed.Fault{
			Pod:     sleeper(40),
			Prepare: bed.NodeTool("rmpods"),
			Break:   inTurn(fill, bed.OnNode(unlisted), notReady, bed.OnNode("sleep 12")),
			Proof:   relisting + `unlisted && pgrep -x kubelet && [ -n "$(tasks)" ]`,
			Heal:    unfill,
		},
		Want: bed.Want{
			Cause:  "PLEGUnhealthy",
			Family: "ListTooLarge",
			Says: []string{"Cause: in phase Delivery", "PLEG is not healthy", "list of all sandboxes > 16 MiB",
				"Seen: it has not seen this one", "Fix: io.kubernetes.pod.uid"},
		},
	}
}

// listTooLargeLater is deleted when the kubelet still reads deletions: it stops the pod, and does not
// get further.
func listTooLargeLater() bed.Scenario {
	s := listTooLarge()
	s.Name = "pleg-list-too-large-later"
	s.Story = "containerd's list of all sandboxes, with the pods' annotations, is larger than the kubelet takes, as of shortly before the deletion"
	s.Pod = victim(3, "drain", "0")
	s.Late = true // the kubelet calls the list old after three minutes
	s.Break = inTurn(fill, bed.OnNode(unlisted))
	s.Proof = relisting + `unlisted && pgrep -x kubelet`
	s.Says = []string{"PLEG is not healthy", "list of all sandboxes > 16 MiB", "Seen: after the kubelet's last complete list"}
	return s
}

// listTooLargeBriefly is innocent: the kubelet gets a list again some seconds after the deletion, and stops
// the pod.
func listTooLargeBriefly() bed.Scenario {
	s := listTooLarge()
	s.Name = "pleg-list-too-large-briefly"
	s.Story = "innocent: the kubelet gets a list again some seconds after the deletion, and stops the pod, which takes until after its deadline"
	s.Pod = victim(40, "drain", "38")
	s.When = bed.InGrace // its grace period becomes no shorter
	s.Break = inTurn(fill, bed.OnNode(unlisted), notReady, func(ctx context.Context, n *bed.Node, p *corev1.Pod) error {
		uids, err := ofFillers(ctx, n, p)
		if err != nil {
			return err
		}
		return bed.OnNode("(sleep 8; rmpods "+uids+") </dev/null >/dev/null 2>&1 &")(ctx, n, p)
	})
	s.Proof, s.Cause, s.Family, s.Says = "", "", "", nil
	s.Heal = inTurn(gone, unfill)
	return s
}

// listHangs has containerd hang as it writes the record of another pod's container: it keeps the lock
// of that meanwhile, which each question for all containers needs (internal/cri/store/container/status.go).
func listHangs() bed.Scenario {
	const name = "pleg-list-hangs"
	const records = "/var/lib/containerd/io.containerd.grpc.v1.cri/containers/"
	heal := bed.OnNode("directory=$(cat /run/scenario-$NAME.directory)\n" + abortFUSE("$directory", daemon(name)))
	return bed.Scenario{
		Name:  name,
		Story: "containerd hangs on its disk as it writes that a container of another pod has ended, and has given no list of all containers for three minutes",
		Place: bed.Place{
			Long:   true,
			NoExec: true, // the kubelet looks for the container in such a list
		},
		Fault: bed.Fault{
			Pod:     sleeper(40),
			Prepare: bed.NodeTool("fusehang"),
			Break: inTurn(func(ctx context.Context, n *bed.Node, p *corev1.Pod) error {
				other := bed.Run{Scenario: bed.Scenario{Name: name + "-other", Fault: bed.Fault{Pod: victim(3, "drain", "0")}}, Node: n}
				if err := other.Create(ctx, other.Manifest(n)); err != nil {
					return err
				}
				_, id, _ := strings.Cut(other.Pod.Status.ContainerStatuses[0].ContainerID, "://")
				if err := bed.OnNode("directory="+records+id+`
[ -e $directory/status ]
echo $directory >/run/scenario-$NAME.directory
`+serveFUSE("", "$directory", daemon(name))+"kill -STOP $(cat "+daemon(name)+")")(ctx, n, p); err != nil {
					return err
				}
				return n.API.CoreV1().Pods(n.Namespace()).Delete(ctx, other.Name, metav1.DeleteOptions{})
			}, notReady, bed.OnNode("sleep 12")),
			Proof: `[ -n "$(tasks)" ]
for task in /proc/$(pgrep -o -x containerd)/task/*; do
  case $(wchan ${task##*/}) in request_wait_answer*) exit 0 ;; esac
done
exit 1`,
			Heal: inTurn(heal, heard, func(ctx context.Context, n *bed.Node, _ *corev1.Pod) error {
				other, err := n.API.CoreV1().Pods(n.Namespace()).Get(ctx, name+"-other", metav1.GetOptions{})
				if apierrors.IsNotFound(err) {
					return nil
				}
				return errors.Join(err, gone(ctx, n, other))
			}),
		},
		Want: bed.Want{
			Cause:  "PLEGUnhealthy",
			Family: "ListUnanswered",
			Says:   []string{"PLEG is not healthy", "no response to a request for all containers", "Seen: it has not seen this one"},
		},
	}
}
