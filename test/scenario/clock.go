package scenario

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Clock is a clock of the node's own: that of the machine is never set.
const Clock Need = "a clock of its own"

// clocks lists the incidents in which the node's clock is set while a pod terminates.
func clocks() []Scenario {
	return []Scenario{clockForward(), clockBack()}
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
var clockRight = onNode("[ ! -e /run/scenario-clock ] || {\n" + setClock(0) + "\nrm $base\n}")

// onDeletion is a step that does another one so long after the pod is deleted, and does not wait for it.
func onDeletion(after time.Duration, do step) step {
	return func(ctx context.Context, n *Node, p *corev1.Pod) error {
		ctx = context.WithoutCancel(ctx)
		go func() {
			err := n.Await(ctx, "the deletion of "+p.Name, func() (bool, string) {
				now, err := n.pods.Pods(p.Namespace).Get(p.Name)
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
func clockForward() Scenario {
	return Scenario{
		Name:  "clock-jumps-forward",
		Needs: []Need{Clock},
		Long:  true,
		Story: "innocent: the node's clock is set ten minutes forward while the pod drains",
		Pod:   pod(100, BusyboxImage, "sh", "-c", "trap 'for i in $(seq 30); do sleep 1; done; exit 0' TERM; while :; do sleep 1; done"),
		Break: inTurn(onNode(known), onDeletion(10*time.Second, onNode(setClock(600)))),
		Proof: clockSet,
		Heal: func(ctx context.Context, n *Node, p *corev1.Pod) error {
			err := n.Await(ctx, p.Name+" to go away", func() (bool, string) {
				now, err := n.pods.Pods(p.Namespace).Get(p.Name)
				return apierrors.IsNotFound(err) || err == nil && now.UID != p.UID, "it is there"
			})
			if wrong := clockRight(ctx, n, p); wrong != nil {
				return wrong
			}
			return err
		},
	}
}

// clockBack is of a pod that looks as if its deletion were still to come. The certificates of the test
// cluster may be younger than ten minutes.
func clockBack() Scenario {
	s := sleepPID1()
	s.Name = "clock-jumps-back"
	s.Needs, s.Long = []Need{Clock}, true
	s.Story = "PID 1 has no handler for SIGTERM, and the node's clock is set four minutes back just after the deletion"
	s.Break = inTurn(s.Break, onDeletion(time.Second, onNode(setClock(-240))))
	s.Proof = clockSet + "\n" + strings.TrimSpace(s.Proof)
	s.Heal = clockRight
	return s
}
