package scenario

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodeagent-io/nodeagent/test/bed"
)

// claims lists the incidents in which a resource claim is not released, and innocent ones
// that look like them.
func claims() []bed.Scenario {
	return []bed.Scenario{draDriverGone(), draUnprepareFails(), draUnprepareSlow(), draDriverRestarted()}
}

// withClaim is a pod with a device of the scenario's own DRA driver.
func withClaim(name string) corev1.PodSpec {
	spec := victim(3, "drain", "0")
	spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "device", ResourceClaimName: &name}}
	spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "device"}}
	return spec
}

// startDRA is a step that starts test/csidriver on the node as a DRA driver, and makes a claim
// of the scenario's name that has a device of it, as the scheduler does. The controller of
// claims then reserves it for the pod.
func startDRA(name string) bed.Step {
	return inTurn(bed.NodeTool("csidriver"), bed.OnNode("mkdir -p /run/csidriver\n"+runDRA(name)), func(ctx context.Context, n *bed.Node, p *corev1.Pod) error {
		about := n.API.ResourceV1().ResourceClaims(p.Namespace)
		claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name}}
		claim.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "one", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "scenario"}}}
		made, err := about.Create(ctx, claim, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("create ResourceClaim %s: %w", name, err)
		}
		made.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{
			{Request: "one", Driver: csiName(name), Pool: "pool", Device: "device"},
		}}}
		if _, err := about.UpdateStatus(ctx, made, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("allocate ResourceClaim %s: %w", name, err)
		}
		return nil
	})
}

// runDRA returns a script that starts the driver anew, so that it works, and waits until the
// kubelet has registered it: a pod that is there sooner waits for a minute.
func runDRA(name string) string {
	driver := csiName(name)
	return endCSI(name, "TERM") + `
rm -f /run/csidriver/` + driver + ` /run/csidriver/` + driver + `.registered
setsid /usr/local/bin/csidriver -dra ` + driver + ` </dev/null >/run/csidriver/` + driver + `.log 2>&1 &
echo $! >/run/csidriver/` + driver + `.pid
for i in $(seq 60); do [ -e /run/csidriver/` + driver + `.registered ] && break; sleep 0.5; done`
}

// prepared succeeds when the pod's processes are gone and the kubelet has not had its claim
// released.
const prepared = `[ -z "$(tasks)" ] && grep -q $UID_ /var/lib/kubelet/dra_manager_state`

// ofDRA is an incident of a DRA driver.
func ofDRA(name, story, broken string, says ...string) bed.Scenario {
	return bed.Scenario{
		Name:  name,
		Story: story,
		Fault: bed.Fault{
			Pod:     withClaim(name),
			Prepare: startDRA(name),
			Break:   bed.OnNode(broken),
			Proof:   prepared,
			Heal:    bed.OnNode(runDRA(name)),
		},
		Want: bed.Want{
			Cause: "DRAUnprepareFailing",
			Says:  append([]string{"Cause: in phase DynamicResources", "resource claim " + name, "DRA driver " + csiName(name)}, says...),
		},
	}
}

func draDriverGone() bed.Scenario {
	const name = "dra-driver-gone"
	s := ofDRA(name, "the DRA driver of the pod's claim has been removed from the node before the pod", endCSI(name, "TERM"), "is not registered")
	s.Family = "NotRegistered"
	return s
}

// draUnprepareFails is a driver that answers, and names an error about the claim in its answer.
func draUnprepareFails() bed.Scenario {
	const name = "dra-unprepare-fails"
	return ofDRA(name, "the DRA driver of the pod's claim answers with an error when it is to release the "+
		"device", tellCSI(name, "error"), "with an error about the claim")
}

func draUnprepareSlow() bed.Scenario {
	const name = "dra-unprepare-slow"
	return bed.Scenario{
		Name:  name,
		Story: "innocent: the DRA driver takes 20 seconds to release the device of the pod's claim",
		Fault: bed.Fault{
			Pod:     withClaim(name),
			Prepare: startDRA(name),
			Break:   bed.OnNode(tellCSI(name, "slow")),
			Proof:   prepared,
		},
	}
}

func draDriverRestarted() bed.Scenario {
	const name = "dra-driver-restarted"
	return bed.Scenario{
		Name:  name,
		Story: "innocent: the DRA driver is away when the pod is deleted, and comes back 25 seconds later",
		Fault: bed.Fault{
			Pod:     withClaim(name),
			Prepare: startDRA(name),
			Break:   bed.OnNode(endCSI(name, "TERM") + "\n(sleep 25\n" + runDRA(name) + ") </dev/null >/dev/null 2>&1 &"),
			Proof:   prepared,
		},
	}
}
