package scenario

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/nodeagent-io/nodeagent/test/bed"
)

// clocks lists the incidents in which the node's clock is set while a pod terminates.
func clocks() []bed.Scenario {
	return []bed.Scenario{clockForward(), clockBack()}
}

// setClock returns a script that sets the node's clock so many seconds ahead of what it would be if nobody
// had set it. What it goes by is kept, so that it can be called again.
func setClock(ahead int) string {
	return fmt.Sprintf(`base=/run/scenario-clock
read -r up rest </proc/uptime
[ -e $base ] || echo "$(date +%%s.%%N) $up" >$base
read -r at was <$base
date -s "@$(awk -v at=$at -v was=$was -v up=$up 'BEGIN{printf "%%.3f", at+up-was+%d}')"`, ahead)
}

// clockRight is a step that sets the node's clock right again.
var clockRight = bed.OnNode("[ ! -e /run/scenario-clock ] || {\n" + setClock(0) + "\nrm $base\n}")

// onDeletion is a step that does another one so long after the pod is deleted, and does not wait for it.
func onDeletion(after time.Duration, do bed.Step) bed.Step {
	return func(ctx context.Context, n *bed.Node, p *corev1.Pod) error {
		ctx = context.WithoutCancel(ctx)
		go func() {
			err := n.Await(ctx, "the deletion of "+p.Name, func() (bool, string) {
				now, err := n.Seen(p.Namespace, p.Name)
				return apierrors.IsNotFound(err) || err == nil && now.DeletionTimestamp != nil, "not yet"
			})
			if err == nil && pause(ctx, after) == nil {
				_ = do(ctx, n, p) // else the proof does not come
			}
		}()
		return nil
	}
}

// clockSet is the proof that the clock was set.
const clockSet = "[ -e /run/scenario-clock ]"

// clockForward is innocent: the pod is past its deadline by the clock, and not by the time that passes.
func clockForward() bed.Scenario {
	return bed.Scenario{
		Name:  "clock-jumps-forward",
		Story: "innocent: the node's clock is set ten minutes forward while the pod drains",
		Place: bed.Place{Needs: []bed.Need{bed.Clock}, Long: true},
		Fault: bed.Fault{
			Pod:   pod(100, bed.BusyboxImage, "sh", "-c", "trap 'for i in $(seq 30); do sleep 1; done; exit 0' TERM; while :; do sleep 1; done"),
			Break: inTurn(bed.OnNode(known), onDeletion(10*time.Second, bed.OnNode(setClock(600)))),
			Proof: clockSet,
			Heal: func(ctx context.Context, n *bed.Node, p *corev1.Pod) error {
				err := n.Await(ctx, p.Name+" to go away", func() (bool, string) {
					now, err := n.Seen(p.Namespace, p.Name)
					return apierrors.IsNotFound(err) || err == nil && now.UID != p.UID, "it is there"
				})
				if wrong := clockRight(ctx, n, p); wrong != nil {
					return wrong
				}
				return err
			},
		},
	}
}

// clockBack is of a pod that looks as if its deletion were still to come. The certificates of the test
// cluster may be younger than ten minutes.
func clockBack() bed.Scenario {
	s := sleepPID1()
	s.Name = "clock-jumps-back"
	s.Needs, s.Long = []bed.Need{bed.Clock}, true
	s.Story = "PID 1 has no handler for SIGTERM, and the node's clock is set four minutes back just after the deletion"
	s.Break = inTurn(s.Break, onDeletion(time.Second, bed.OnNode(setClock(-240))))
	s.Proof = clockSet + "\n" + strings.TrimSpace(s.Proof)
	s.Heal = clockRight
	return s
}
