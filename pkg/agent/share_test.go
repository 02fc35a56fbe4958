package agent

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodeagent-io/nodeagent/pkg/verdict"
)

// A thousand pods of one tenant, with each of which the agent is busy for half a second, as when it writes to a slow API server, do
// not keep it from another tenant's.
func TestRoundsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		b.Longest = 10 * time.Second
		var pods []*corev1.Pod
		for i := range 1000 {
			p := terminating(types.UID(fmt.Sprint("evil", i)), time.Now().Add(-time.Hour), 30)
			p.Namespace = "evil"
			pods = append(pods, p)
		}
		b.set(pods)
		b.Report = func(_ context.Context, c *verdict.Case) {
			time.Sleep(500 * time.Millisecond)
			b.mu.Lock()
			defer b.mu.Unlock()
			b.reports[c.Subject.UID] = append(b.reports[c.Subject.UID], *c.Last)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { b.Run(ctx); close(done) }()
		time.Sleep(time.Minute)
		begun := time.Now()
		b.set(append(pods, terminating("victim", begun, 30)))
		reported := func(uid string) int {
			b.mu.Lock()
			defer b.mu.Unlock()
			return len(b.reports[uid])
		}
		for reported("victim") == 0 && time.Since(begun) < 10*time.Minute {
			time.Sleep(time.Second)
		}
		if took := time.Since(begun); took > time.Minute {
			t.Errorf("the first look at it was after %s", took)
		}
		time.Sleep(10 * time.Minute)
		for i := range 1000 {
			if n := reported(fmt.Sprint("evil", i)); n == 0 {
				t.Errorf("pod %d was never looked at", i)
				break
			}
		}
		cancel()
		<-done
	})
}
