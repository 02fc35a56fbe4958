package report

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/verdict"
)

// stand makes a verdict stand about each of n pods, the i-th by late(i) past its deadline.
func stand(t *testing.T, n int, workload func(i int) verdict.Workload, late func(i int) time.Duration) *Metrics {
	t.Helper()
	cases, d := new(verdict.Cases), blocked("ShimHung")
	for i := range n {
		one := cases.Open(fmt.Sprint(i))
		if one == nil {
			t.Fatalf("no room for pod %d", i)
		}
		s := verdict.Subject{Kind: verdict.Pod, Namespace: "shop", Name: fmt.Sprintf("web-%d", i), UID: fmt.Sprint(i), Workload: workload(i)}
		one.Judge(s, &evidence.Pod{Time: start, UID: s.UID, Deadline: start.Add(-late(i))}, d)
	}
	return NewMetrics("v1", cause.Who(), func() time.Time { return start }, cases, nil)
}

// 2,000 stuck pods on two nodes: the series are few, and say how many there are of which workload.
func TestSeriesAreBounded(t *testing.T) {
	web := func(int) verdict.Workload { return verdict.Workload{Name: "web", Type: "deployment"} }
	for range 2 {
		m := stand(t, 1000, web, func(i int) time.Duration { return time.Duration(i) * time.Second })
		if n := testutil.CollectAndCount(m, "stuck_terminating_seconds"); n != maxPodSeries {
			t.Errorf("%d series of pods", n)
		}
		text := serve(m, "")
		for i, want := range map[int]bool{999: true, 750: true, 749: false, 0: false} {
			if has := strings.Contains(text, fmt.Sprintf(`stuck_terminating_seconds{namespace="shop",phase="Kill",pod="web-%d",`, i)); has != want {
				t.Errorf("a series of the pod that is %d s late: %v", i, has)
			}
		}
		want := `
# HELP nodeagent_stuck_pods Terminating pods with a verdict that are more than two minutes past their grace period, by workload (barepod: a pod without a controller) and cause (reason, including Unknown). Of the 200 workloads with the most of them; the others are one, without names.
# TYPE nodeagent_stuck_pods gauge
nodeagent_stuck_pods{namespace="shop",reason="ShimHung",workload="web",workload_type="deployment"} 879
`
		if err := testutil.CollectAndCompare(m, strings.NewReader(want), "nodeagent_stuck_pods"); err != nil {
			t.Error(err)
		}
	}
}

// Pods without controllers are workloads of their own: of the last ones only the cause is known.
func TestWorkloadsAreBounded(t *testing.T) {
	bare := func(i int) verdict.Workload {
		return verdict.Workload{Name: fmt.Sprintf("web-%d", max(1, i)), Type: "barepod"}
	}
	m := stand(t, 1000, bare, func(int) time.Duration { return time.Hour })
	if n := testutil.CollectAndCount(m, "nodeagent_stuck_pods"); n != maxWorkloadSeries+1 {
		t.Errorf("%d series of workloads", n)
	}
	text := serve(m, "")
	for _, want := range []string{
		`nodeagent_stuck_pods{namespace="",reason="ShimHung",workload="",workload_type=""} 799`,
		`nodeagent_stuck_pods{namespace="shop",reason="ShimHung",workload="web-1",workload_type="barepod"} 2`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("no %s", want)
		}
	}
}

// Most pods that are late are gone a second later.
func TestLateIsNotStuck(t *testing.T) {
	web := func(int) verdict.Workload { return verdict.Workload{Name: "web", Type: "deployment"} }
	m := stand(t, 2, web, func(i int) time.Duration { return stuckAfter + time.Duration(i)*time.Millisecond })
	if text := serve(m, ""); !strings.Contains(text, `workload_type="deployment"} 1`+"\n") {
		t.Error(text)
	}
}

// The pods and workloads of one namespace do not take the series from another one's, though they have been stuck for longer.
func TestSeriesAreShared(t *testing.T) {
	cases, d := new(verdict.Cases), blocked("ShimHung")
	for i := range 400 {
		s := verdict.Subject{Kind: verdict.Pod, Namespace: "evil", Name: fmt.Sprint("web-", i), UID: fmt.Sprint(i)}
		s.Workload.Name = fmt.Sprint(i % 300)
		if i == 399 {
			s.Namespace, s.Name, s.Workload.Name = "good", "victim", "victim"
		}
		cases.Open(s.UID).Judge(s, &evidence.Pod{Time: start, UID: s.UID, Deadline: start.Add(time.Duration(i-1000) * time.Second)}, d)
	}
	text := serve(NewMetrics("v1", cause.Who(), func() time.Time { return start }, cases, nil), "")
	for _, want := range []string{`stuck_terminating_seconds{namespace="good",`, `nodeagent_stuck_pods{namespace="good",`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s", want)
		}
	}
}

// Who acts is said of each cause that stands, once, and of no other one.
func TestReasonInfo(t *testing.T) {
	none := NewMetrics("v1", cause.Who(), func() time.Time { return start }, new(verdict.Cases), nil)
	if n := testutil.CollectAndCount(none, "nodeagent_reason_info"); n != 0 {
		t.Errorf("%d series without a verdict", n)
	}
	m := stand(t, 10, func(int) verdict.Workload { return verdict.Workload{} }, func(int) time.Duration { return time.Hour })
	if text := serve(m, ""); strings.Count(text, "\nnodeagent_reason_info{") != 1 ||
		!strings.Contains(text, `nodeagent_reason_info{reason="ShimHung",who="node"} 1`) {
		t.Error("who acts on ShimHung is not said once")
	}
}
