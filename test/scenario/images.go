package scenario

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodeagent-io/nodeagent/test/bed"
)

// images lists the incidents in which the pod is deleted while an image is pulled.
func images() []bed.Scenario { return []bed.Scenario{pullHangs(), pullHangsBeside()} }

// imagesOfNode lists those that cannot run beside another pull: a download that moves tells that
// none hangs.
func imagesOfNode() []bed.Scenario { return []bed.Scenario{pullQueued(), pullSlow()} }

// registryAddress is where test/registry listens on a node. containerd takes a registry that is
// called localhost for one without TLS.
const (
	registryAddress   = "localhost:5999"
	registryDirectory = "/run/scenario-registry"
)

// pulled is a pod of test/victim in an image of its own, from test/registry.
func pulled(name string) corev1.PodSpec {
	spec := pod(3, registryAddress+"/"+name+":test", "/victim", "drain", "0")
	spec.Containers[0].ImagePullPolicy = corev1.PullIfNotPresent
	return spec
}

// serveImage is a step that starts the registry on the node, once, and has it send an image in a way:
// stall, or slow.
func serveImage(name, how string) bed.Step {
	return inTurn(bed.NodeTool("victim"), bed.NodeTool("registry"), bed.OnNode(`mkdir -p `+registryDirectory+`
exec 9>`+registryDirectory+`.lock
flock 9
echo `+how+` >`+registryDirectory+`/`+name+`
pid=$(cat `+registryDirectory+`.pid 2>/dev/null) && grep -qs registry /proc/$pid/comm || {
  setsid /usr/local/bin/registry `+registryAddress+` /usr/local/bin/victim </dev/null >/run/scenario-registry.log 2>&1 9>&- &
  echo $! >`+registryDirectory+`.pid
}`))
}

// takeImage is a step after which the registry has not got an image any more: a pull of it fails.
func takeImage(name string) bed.Step { return bed.OnNode("rm -f " + registryDirectory + "/" + name) }

// downloads is a shell script that succeeds when containerd has a download that is not complete, or
// was asked for the image.
const downloads = "[ -n \"$(ls /var/lib/containerd/io.containerd.content.v1.content/ingest)\" ]"

// pulling is a step that waits until the kubelet has told that it pulls the pod's image.
func pulling(ctx context.Context, n *bed.Node, p *corev1.Pod) error {
	return n.Await(ctx, "the image of pod "+p.Name+" to be pulled", func() (bool, string) {
		events, err := n.API.CoreV1().Events(p.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(p.UID) + ",reason=Pulling"})
		if err != nil {
			return false, err.Error()
		}
		return len(events.Items) > 0, "no Event says so"
	})
}

func pullHangs() bed.Scenario {
	const name = "image-pull-hangs"
	return bed.Scenario{
		Name:  name,
		Story: "the registry sends the manifest of an image and no byte of its layer; the pod is deleted meanwhile",
		Place: bed.Place{Long: true},
		Fault: bed.Fault{
			Pod:      pulled(name),
			Starting: true,
			Prepare:  serveImage(name, "stall"),
			Break:    inTurn(pulling, bed.OnNode("until "+downloads+"; do sleep 1; done")),
			Proof:    noVictim + downloads,
			Heal:     takeImage(name),
		},
		Want: bed.Want{
			Cause: "ImagePullHanging",
			Says: []string{"Cause: in phase Startup", "the deletion waits for the pull of image ", "(container main)", registryAddress + "/" + name + ":test",
				"no image data arrived since ", "Fix: has no time limit of the kubelet's own"},
			Force: "not yet", // the container may still be started
		},
	}
}

// pullHangsBeside has the kubelet start one container, which runs, and wait for the image of the next one.
func pullHangsBeside() bed.Scenario {
	const name = "image-pull-hangs-beside"
	s := pullHangs()
	s.Name = name
	s.Story = "a container of the pod runs, and the registry sends no byte of a layer of the next one's image; the pod is deleted meanwhile"
	s.Pod = pulled(name)
	first := pod(3, bed.BusyboxImage, "sh", "-c", "trap 'exit 0' TERM; while :; do sleep 1; done").Containers[0]
	first.Name = "first"
	s.Pod.Containers = append([]corev1.Container{first}, s.Pod.Containers...)
	s.Prepare = serveImage(name, "stall")
	s.Proof += "\n[ -n \"$(tasks)\" ]"
	s.Says = strings.Split(strings.ReplaceAll(strings.Join(s.Says, "\n"), "image-pull-hangs", name), "\n")
	s.Force = "no"
	s.Heal = takeImage(name)
	return s
}

// pullQueued is told of a pod of which the kubelet has not asked containerd for the image: it pulls
// one after the other, as it does by default.
func pullQueued() bed.Scenario {
	const name, first = "image-pull-queued", "image-pull-queued-first"
	ahead := func(n *bed.Node) *corev1.Pod {
		s := bed.Scenario{Name: first, Fault: bed.Fault{Pod: pulled(first)}}
		return s.Manifest(n)
	}
	s := pullHangs()
	s.Name = name
	s.Story = "the kubelet pulls one image after the other, and the one of another pod does not come; the pod that waits for its turn is deleted"
	s.Pod = pulled(name)
	s.Prepare = inTurn(bed.OnNode(configs+`keep
sed -i 's/^serializeImagePulls: false/serializeImagePulls: true/' `+kubeletConfig+`
old=$(pgrep -o -x kubelet)
restart
until new=$(pgrep -o -x kubelet) && [ $new != $old ]; do sleep 1; done`), serveImage(name, "slow"), serveImage(first, "stall"),
		func(ctx context.Context, n *bed.Node, _ *corev1.Pod) error {
			p, err := n.API.CoreV1().Pods(n.Namespace()).Create(ctx, ahead(n), metav1.CreateOptions{})
			if err != nil {
				return err
			}
			return inTurn(pulling, bed.OnNode("until "+downloads+"; do sleep 1; done\nsleep 3"))(ctx, n, p)
		})
	s.Break = pulling
	s.Says = append(strings.Split(strings.ReplaceAll(strings.Join(s.Says, "\n"), "image-pull-hangs", name), "\n"),
		"Seen: The stalled download began before this pull. This pull probably waits for its turn")
	s.Heal = inTurn(takeImage(first), takeImage(name), bed.OnNode(configs+"restore"), heard, endPod(first))
	return s
}

// pullSlow is innocent: the pod starts late, and gets its stop signal when it has.
func pullSlow() bed.Scenario {
	const name = "image-pull-slow"
	return bed.Scenario{
		Name:  name,
		Story: "innocent: the registry takes more than a minute and a half to send an image; the pod is deleted meanwhile",
		Place: bed.Place{Long: true},
		Fault: bed.Fault{
			Pod:      pulled(name),
			Starting: true,
			Prepare:  serveImage(name, "slow"),
			Break:    inTurn(pulling, bed.OnNode("until "+downloads+"; do sleep 1; done")),
			// So that what is captured is long past the deadline.
			Proof: noVictim + "[ -n \"$(find /var/lib/containerd/io.containerd.content.v1.content/ingest -mindepth 1 -maxdepth 1 -mmin +1.4)\" ]",
			Heal:  takeImage(name),
		},
	}
}
