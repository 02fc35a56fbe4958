package report

import (
	"fmt"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/verdict"
)

const stuckHeader = `
# HELP stuck_terminating_seconds Seconds that a terminating pod with a verdict is past its grace period, by cause (reason, including Unknown) and phase. 0 inside the grace period. Of the 250 pods on the node that are furthest past theirs.
# TYPE stuck_terminating_seconds gauge
`

func (g *rig) stuckIs(want string) {
	g.t.Helper()
	if want != "" {
		want = stuckHeader + want + "\n"
	}
	if err := testutil.CollectAndCompare(g.metrics, strings.NewReader(want), "stuck_terminating_seconds"); err != nil {
		g.t.Error(err)
	}
}

func TestSeriesAppearsAndVanishes(t *testing.T) {
	g := newRig(t)
	g.look(0, nothing)
	g.stuckIs("")
	g.look(0, blocked("ShimHung"))
	g.stuckIs(`stuck_terminating_seconds{namespace="shop",phase="Kill",pod="web-0",reason="ShimHung",uid="u1"} 60`)
	g.now = g.now.Add(90 * time.Second) // it grows without a look
	g.stuckIs(`stuck_terminating_seconds{namespace="shop",phase="Kill",pod="web-0",reason="ShimHung",uid="u1"} 150`)
	moved := blocked("UninterruptibleSleep")
	moved.Phase = diagnose.Volumes
	g.look(0, moved)
	g.stuckIs(`stuck_terminating_seconds{namespace="shop",phase="Volumes",pod="web-0",reason="UninterruptibleSleep",uid="u1"} 150`)
	g.forget()
	g.stuckIs("")
}

func TestSeriesEndsWhenResolved(t *testing.T) {
	g := newRig(t)
	g.look(0, blocked("ShimHung"))
	g.look(seconds, nothing)
	if len(g.cases.Standing()) != 1 {
		t.Error("the series is gone while the condition stands")
	}
	g.look(withdrawAfter, nothing)
	g.stuckIs("")
}

// Before the deadline a pod is not late by less than nothing.
func TestSeriesIsNeverNegative(t *testing.T) {
	g := newRig(t)
	d := blocked("ShellPID1NoTrap")
	d.Phase = diagnose.StopSignal
	g.cases.Open("u1").Judge(g.pod, &evidence.Pod{Time: g.now, UID: "u1", Deadline: g.now.Add(20 * time.Second)}, d)
	g.stuckIs(`stuck_terminating_seconds{namespace="shop",phase="StopSignal",pod="web-0",reason="ShellPID1NoTrap",uid="u1"} 0`)
}

// What there was no room for is counted.
func TestDroppedReadingsAreCounted(t *testing.T) {
	g := newRig(t)
	for i := 0; g.cases.Open(fmt.Sprint(i)) != nil; i++ {
	}
	want := `
# HELP nodeagent_verdicts_dropped_total Readings skipped because too many pods were terminating.
# TYPE nodeagent_verdicts_dropped_total counter
nodeagent_verdicts_dropped_total 1
`
	if err := testutil.CollectAndCompare(g.metrics, strings.NewReader(want), "nodeagent_verdicts_dropped_total"); err != nil {
		t.Error(err)
	}
}

func TestSelfMetrics(t *testing.T) {
	m := NewMetrics("v1", cause.Who(), func() time.Time { return start }, new(verdict.Cases), func() Counts {
		return Counts{Hangs: 3, Restarts: 2, Refused: 5, PassedOver: 7, Outside: 8, Abandoned: 1, ReadingsHanging: 6, LinesDropped: 4,
			Requests: map[string]uint64{"runtime.v1.RuntimeService/Version": 8}}
	})
	m.Ticked(time.UnixMilli(1_772_000_000_500), 7, 2*time.Second)
	m.Gathered(40 * time.Millisecond)
	m.Gathered(2 * time.Second)
	m.looked(&evidence.Pod{Missing: map[evidence.Source]string{evidence.Kubelet: "refused"}})
	m.wrote(kindCondition, resultRefused)
	m.Lost()
	m.Killed(3, 1)
	m.Passed(verdict.Subject{Namespace: "shop", Name: "web-0"}, verdict.Passage{Part: verdict.Volumes, Took: 40 * time.Second})
	want := `
# HELP nodeagent_build_info Always 1. The label is the version of the agent.
# TYPE nodeagent_build_info gauge
nodeagent_build_info{version="v1"} 1
# HELP nodeagent_containerd_requests_total Requests to containerd, by gRPC method (method). containerd calls the pod's shim in turn for containerd.services.tasks.v1.Tasks/Get, and nothing else for the others.
# TYPE nodeagent_containerd_requests_total counter
nodeagent_containerd_requests_total{method="runtime.v1.RuntimeService/Version"} 8
# HELP nodeagent_containers_killed_at_deadline_total Containers that SIGKILL ended at the end of the grace period of a deleted pod. Force deletes do not count.
# TYPE nodeagent_containers_killed_at_deadline_total counter
nodeagent_containers_killed_at_deadline_total 3
# HELP nodeagent_containers_killed_unexplained_total Containers that SIGKILL ended at the end of the grace period of a deleted pod, and for which no cause was found. The log has the last reading of such pods.
# TYPE nodeagent_containers_killed_unexplained_total counter
nodeagent_containers_killed_unexplained_total 1
# HELP nodeagent_loops_total Rounds over the node's terminating pods, including rounds in which no pod was due.
# TYPE nodeagent_loops_total counter
nodeagent_loops_total 1
# HELP nodeagent_evidence_missing_total Readings of a terminating pod in which an evidence source was incomplete, by source.
# TYPE nodeagent_evidence_missing_total counter
nodeagent_evidence_missing_total{source="api-calls"} 0
nodeagent_evidence_missing_total{source="cgroups"} 0
nodeagent_evidence_missing_total{source="claim-calls"} 0
nodeagent_evidence_missing_total{source="claims"} 0
nodeagent_evidence_missing_total{source="containerd"} 0
nodeagent_evidence_missing_total{source="containers"} 0
nodeagent_evidence_missing_total{source="events"} 0
nodeagent_evidence_missing_total{source="holders"} 0
nodeagent_evidence_missing_total{source="kubelet"} 1
nodeagent_evidence_missing_total{source="limits"} 0
nodeagent_evidence_missing_total{source="mounts"} 0
nodeagent_evidence_missing_total{source="node-object"} 0
nodeagent_evidence_missing_total{source="plugins"} 0
nodeagent_evidence_missing_total{source="processes"} 0
nodeagent_evidence_missing_total{source="pulls"} 0
nodeagent_evidence_missing_total{source="requests"} 0
nodeagent_evidence_missing_total{source="runtime-commands"} 0
nodeagent_evidence_missing_total{source="shims"} 0
nodeagent_evidence_missing_total{source="suspects"} 0
nodeagent_evidence_missing_total{source="volume-calls"} 0
nodeagent_evidence_missing_total{source="volumes"} 0
# HELP nodeagent_gather_duration_seconds Time to gather the evidence about one pod.
# TYPE nodeagent_gather_duration_seconds histogram
nodeagent_gather_duration_seconds_bucket{le="0.01"} 0
nodeagent_gather_duration_seconds_bucket{le="0.1"} 1
nodeagent_gather_duration_seconds_bucket{le="0.5"} 1
nodeagent_gather_duration_seconds_bucket{le="1"} 1
nodeagent_gather_duration_seconds_bucket{le="3"} 2
nodeagent_gather_duration_seconds_bucket{le="10"} 2
nodeagent_gather_duration_seconds_bucket{le="+Inf"} 2
nodeagent_gather_duration_seconds_sum 2.04
nodeagent_gather_duration_seconds_count 2
# HELP nodeagent_last_loop_timestamp_seconds Unix time at which the last round over the node's terminating pods ended.
# TYPE nodeagent_last_loop_timestamp_seconds gauge
nodeagent_last_loop_timestamp_seconds 1.7720000005e+09
# HELP nodeagent_readings_hanging Readings of a terminating pod, or of the node, that timed out and have not returned yet.
# TYPE nodeagent_readings_hanging gauge
nodeagent_readings_hanging 6
# HELP nodeagent_probe_refused_total Reads of a suspect task's files that were skipped because too many killed helper processes had not exited.
# TYPE nodeagent_probe_refused_total counter
nodeagent_probe_refused_total 5
# HELP nodeagent_terminating_pods_not_kept Terminating pods of the node about which nothing is reported, because there are more than are kept.
# TYPE nodeagent_terminating_pods_not_kept gauge
nodeagent_terminating_pods_not_kept 8
# HELP nodeagent_processes_passed_over_total Processes and threads that searches of the node left out, because those of their pod take too long to read.
# TYPE nodeagent_processes_passed_over_total counter
nodeagent_processes_passed_over_total 7
# HELP nodeagent_readings_lost_total Readings of a terminating pod, or of the node, that timed out. The next reading starts when they return.
# TYPE nodeagent_readings_lost_total counter
nodeagent_readings_lost_total 1
# HELP nodeagent_round_period_seconds Time between two rounds over the terminating pods. It grows with the cost of a round, and further under CPU pressure.
# TYPE nodeagent_round_period_seconds gauge
nodeagent_round_period_seconds 2
# HELP nodeagent_log_lines_dropped_total Log lines dropped because standard error was not read in time, for example while containerd hangs.
# TYPE nodeagent_log_lines_dropped_total counter
nodeagent_log_lines_dropped_total 4
# HELP nodeagent_probe_abandoned_helpers Helper processes that were killed but have not exited.
# TYPE nodeagent_probe_abandoned_helpers gauge
nodeagent_probe_abandoned_helpers 1
# HELP nodeagent_probe_hangs_total Reads of a suspect task's files that hung. The helper process was killed each time.
# TYPE nodeagent_probe_hangs_total counter
nodeagent_probe_hangs_total 3
# HELP nodeagent_probe_restarts_total Restarts of the helper process.
# TYPE nodeagent_probe_restarts_total counter
nodeagent_probe_restarts_total 2
# HELP nodeagent_terminating_pods Terminating pods on the node in the last round, stuck or not.
# TYPE nodeagent_terminating_pods gauge
nodeagent_terminating_pods 7
# HELP nodeagent_verdicts_dropped_total Readings skipped because too many pods were terminating.
# TYPE nodeagent_verdicts_dropped_total counter
nodeagent_verdicts_dropped_total 0
# HELP nodeagent_conditions_shortened_total Condition messages that the admission policies of an older version rejected for their size. The agent then writes at most 1,024 bytes until it restarts. Apply the policies of this version.
# TYPE nodeagent_conditions_shortened_total counter
nodeagent_conditions_shortened_total 0
# HELP nodeagent_writes_total Writes to the API server, by kind and result: done, gone (the object no longer exists), refused (rejected by the API server), failed.
# TYPE nodeagent_writes_total counter
`
	for _, kind := range []string{kindCondition, kindEvent, kindEventSeries, kindNodeEvent} {
		for _, result := range []string{resultDone, resultFailed, resultGone, resultRefused} {
			n := 0
			if kind == kindCondition && result == resultRefused {
				n = 1
			}
			want += fmt.Sprintf("nodeagent_writes_total{kind=%q,result=%q} %d\n", kind, result, n)
		}
	}
	want += "# HELP nodeagent_termination_phase_seconds Duration of the parts of pod terminations, stuck or not, by part (phase): " +
		"GracePeriod, Overdue, Sandbox, Volumes, Finalizers. " +
		"A part is counted when it is over, to within one round. A part that began before the agent started is not counted.\n" +
		"# TYPE nodeagent_termination_phase_seconds histogram\n"
	for _, part := range verdict.Parts {
		n := 0
		for _, le := range []string{"1", "2", "5", "10", "30", "60", "120", "300", "900", "+Inf"} {
			if part == verdict.Volumes && le == "60" {
				n = 1
			}
			want += fmt.Sprintf("nodeagent_termination_phase_seconds_bucket{phase=%q,le=%q} %d\n", part, le, n)
		}
		want += fmt.Sprintf("nodeagent_termination_phase_seconds_sum{phase=%q} %d\nnodeagent_termination_phase_seconds_count{phase=%q} %d\n", part, 40*n, part, n)
	}
	if err := testutil.CollectAndCompare(m, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

func TestBlockedTasks(t *testing.T) {
	m := NewMetrics("v1", cause.Who(), time.Now, new(verdict.Cases), nil)
	compare := func(want string) {
		t.Helper()
		if err := testutil.CollectAndCompare(m, strings.NewReader(want), "nodeagent_blocked_tasks"); err != nil {
			t.Error(err)
		}
	}
	compare("")
	nfs := &evidence.Probe{Wchan: "rpc_wait_bit_killable"}
	m.Blocked([]evidence.Task{
		{Owner: "0b4ddc3e-1111-4222-8333-444455556666", Probe: nfs},
		{Owner: "0b4ddc3e-1111-4222-8333-444455557777", Probe: nfs},
		{Owner: "kubelet", Probe: nfs},
		{Owner: "kernel"},
		{Owner: ""},
	})
	m.Ticked(time.Now(), 1, time.Second)
	compare(`
# HELP nodeagent_blocked_tasks Tasks on the node in uninterruptible sleep (D state), by owner (pod, kubelet, containerd, shim, kernel, other) and by what they wait for (family). The series exist only while a pod is past its grace period.
# TYPE nodeagent_blocked_tasks gauge
nodeagent_blocked_tasks{family="NFS",owner="kubelet"} 1
nodeagent_blocked_tasks{family="NFS",owner="pod"} 2
nodeagent_blocked_tasks{family="Other",owner="kernel"} 1
nodeagent_blocked_tasks{family="Other",owner="other"} 1
`)
	m.Blocked(nil) // a pod terminates, but none is overdue
	compare("")
	m.Blocked([]evidence.Task{{Owner: "shim"}})
	m.Ticked(time.Now(), 0, time.Second)
	compare("")
}

func TestWritesAreCounted(t *testing.T) {
	g := newRig(t)
	count := func(kind, result string) float64 {
		return testutil.ToFloat64(g.metrics.writes.WithLabelValues(kind, result))
	}
	g.look(0, blocked("ShimHung"))
	g.look(seconds, blocked("ShimHung"))
	g.api.answer = broken
	g.look(seconds, blocked("ContainerdHung"))
	g.api.answer = notFound
	g.look(time.Minute, blocked("ContainerdHung"))
	for _, c := range []struct {
		kind, result string
		want         float64
	}{
		{kindCondition, resultDone, 1},
		{kindEvent, resultDone, 1},
		{kindCondition, resultFailed, 1},
		{kindCondition, resultGone, 1},
		{kindEvent, resultGone, 1},
	} {
		if got := count(c.kind, c.result); got != c.want {
			t.Errorf("%s %s: %v, want %v", c.kind, c.result, got, c.want)
		}
	}
}

func TestMetricsLint(t *testing.T) {
	g := newRig(t)
	g.look(0, blocked("ShimHung"))
	g.metrics.Ticked(g.now, 1, time.Second)
	problems, err := testutil.CollectAndLint(g.metrics)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func TestHandler(t *testing.T) {
	g := newRig(t)
	g.look(0, blocked("ShimHung"))
	w := httptest.NewRecorder()
	g.metrics.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for _, want := range []string{"stuck_terminating_seconds{", "process_resident_memory_bytes", "go_goroutines"} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s is not served", want)
		}
	}
}

// A series that begins with its first increment hides that from rate(): each source that a
// rule needs has one from the start.
func TestEachSourceHasItsSeries(t *testing.T) {
	m := NewMetrics("v1", cause.Who(), time.Now, new(verdict.Cases), nil)
	have := testutil.CollectAndCount(m, "nodeagent_evidence_missing_total")
	for _, r := range cause.All() {
		for _, s := range r.Sources() {
			m.missing.WithLabelValues(string(s))
		}
	}
	if all := testutil.CollectAndCount(m, "nodeagent_evidence_missing_total"); all != have {
		t.Errorf("%d series at the start, and %d with the sources of all rules", have, all)
	}
}

// serve returns the body of a scrape that accepts a format.
func serve(m *Metrics, accept string) string {
	r := httptest.NewRequest("GET", "/metrics", nil)
	r.Header.Set("Accept", accept)
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, r)
	return w.Body.String()
}

// From a slow part of terminations to one of the pods.
func TestPhasesHaveExemplars(t *testing.T) {
	m := NewMetrics("v1", cause.Who(), time.Now, new(verdict.Cases), nil)
	m.Passed(verdict.Subject{Namespace: "shop", Name: "web-0"}, verdict.Passage{Part: verdict.Volumes, Took: 40 * time.Second})
	m.Passed(verdict.Subject{Namespace: "shop", Name: strings.Repeat("ä", 112)}, verdict.Passage{Part: verdict.Volumes, Took: 20 * time.Second})
	m.Passed(verdict.Subject{Namespace: "shop", Name: strings.Repeat("w", 113)}, verdict.Passage{Part: verdict.Volumes, Took: 4 * time.Second})
	body := serve(m, "application/openmetrics-text; version=1.0.0")
	// The labels of an exemplar are in no order.
	const begin, either = `(?m)^nodeagent_termination_phase_seconds_bucket\{phase="Volumes",`, `\{(namespace="shop",pod="%[1]s"|pod="%[1]s",namespace="shop")\}`
	for _, want := range []string{
		begin + `le="60.0"\} 3 # ` + fmt.Sprintf(either, "web-0") + " 40.0 ",
		begin + `le="30.0"\} 2 # ` + fmt.Sprintf(either, strings.Repeat("ä", 112)) + " 20.0 ",
		begin + `le="5.0"\} 1$`, // the labels would be 129 characters
		"(?m)^# EOF$",
	} {
		if !regexp.MustCompile(want).MatchString(body) {
			t.Errorf("%s is not served", want)
		}
	}
}

// A Prometheus that scrapes native histograms gets both.
func TestPhasesAreNativeHistogramsToo(t *testing.T) {
	m := NewMetrics("v1", cause.Who(), time.Now, new(verdict.Cases), nil)
	m.Passed(verdict.Subject{}, verdict.Passage{Part: verdict.Volumes, Took: 40 * time.Second})
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(m)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "nodeagent_termination_phase_seconds" {
			continue
		}
		for _, one := range f.GetMetric() {
			if h := one.GetHistogram(); one.GetLabel()[0].GetValue() == string(verdict.Volumes) &&
				(len(h.GetPositiveSpan()) != 1 || len(h.GetBucket()) == 0 || h.GetSchema() != 3) {
				t.Errorf("%s", h)
			}
		}
		return
	}
	t.Error("there is no histogram")
}
