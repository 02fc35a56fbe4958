package report

import (
	"maps"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/verdict"
)

// The kinds of writes, a label of nodeagent_writes_total.
const (
	kindCondition   = "condition"
	kindEvent       = "event"
	kindNodeEvent   = "node_event"
	kindEventSeries = "event_series"
)

// Counts are what other parts of the program count by themselves.
type Counts struct {
	// Of the helper process, which reads files that may hang: how many reads hung,
	// how often it was started again, and how many were killed and have not exited.
	// Refused are the reads that were not tried because too many of them had not.
	Hangs, Restarts, Refused uint64
	Abandoned                int
	// ReadingsHanging are the readings, of pods and of the node, that were given up
	// and have not returned.
	ReadingsHanging int
	// PassedOver are the processes and threads that were left out of searches of the node, because those of their pod cost too much.
	PassedOver uint64
	// Outside are the terminating pods for which the watch has no room.
	Outside int
	// LinesDropped are the lines of the log that nobody read in time.
	LinesDropped uint64
	// Requests are those to containerd, by their gRPC name.
	Requests map[string]uint64
	// Orphans are the pods that are on the node and not in the API, by what is left.
	Orphans map[string]int
	// Held tells of the agent's admission policies whether they hold its token.
	Held map[string]Held
}

// A blockedTasks names one time series of nodeagent_blocked_tasks.
type blockedTasks struct{ owner, family string }

// Metrics counts what the agent finds and does. It is one collector, and holds
// no state that a restart loses for good.
type Metrics struct {
	now    func() time.Time
	counts func() Counts
	cases  *verdict.Cases
	who    map[string]diagnose.Who

	mu      sync.Mutex
	blocked map[blockedTasks]int

	terminating atomic.Int64
	loops       atomic.Uint64
	lastLoop    atomic.Int64 // Unix milliseconds, 0 before the first
	period      atomic.Int64 // nanoseconds

	missing *prometheus.CounterVec
	writes  *prometheus.CounterVec
	told    *prometheus.CounterVec
	held    *prometheus.CounterVec
	deleted *prometheus.CounterVec
	lost    prometheus.Counter
	// killed counts the containers that were killed at their deadline, and unexplained those of them of which no cause was found.
	killed, unexplained prometheus.Counter
	// shortened counts condition messages that the policies of an older version have refused for their size.
	shortened prometheus.Counter
	gather    prometheus.Histogram
	passed    *prometheus.HistogramVec
	build     prometheus.Gauge

	stuckDesc, stuckPodsDesc, reasonDesc, terminatingDesc *prometheus.Desc
	lastLoopDesc                                          *prometheus.Desc
	periodDesc                                            *prometheus.Desc
	blockedDesc, droppedDesc                              *prometheus.Desc
	hangsDesc, restartsDesc, abandonedHelpersDesc         *prometheus.Desc
	linesDroppedDesc, refusedDesc, hangingDesc            *prometheus.Desc
	orphanedDesc, loopsDesc, requestsDesc                 *prometheus.Desc
	tokenHeldDesc, passedOverDesc, outsideDesc            *prometheus.Desc
}

// NewMetrics makes the metrics. who says who acts on which cause, now is the clock at a scrape; cases holds the
// verdicts that stand, and counts is asked, at a scrape; counts may be nil.
func NewMetrics(version string, who map[string]diagnose.Who, now func() time.Time, cases *verdict.Cases, counts func() Counts) *Metrics {
	if counts == nil {
		counts = func() Counts { return Counts{} }
	}
	m := &Metrics{
		now:    now,
		counts: counts,
		cases:  cases,
		who:    who,

		missing: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nodeagent_evidence_missing_total",
			Help: "Readings of a terminating pod in which an evidence source was incomplete, by source.",
		}, []string{"source"}),
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nodeagent_writes_total",
			Help: "Writes to the API server, by kind and result: done, gone (the object no longer exists), refused (rejected by the API server), failed.",
		}, []string{"kind", "result"}),
		told: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nodeagent_verdicts_told_total",
			Help: "New Events about terminating pods, by cause (reason). Events about pods that were already deleted count too.",
		}, []string{"reason"}),
		held: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nodeagent_verdicts_held_back_total",
			Help: "Verdicts not reported on the pod, by cause (reason): the pod is not overdue, and the budget of the node is used up. A " +
				"verdict that still stands when the pod is overdue is reported then.",
		}, []string{"reason"}),
		deleted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nodeagent_deleted_with_verdict_total",
			Help: "Pods deleted while a verdict stood, by cause (reason) and by what was left on the node 15 seconds to a minute later " +
				"(ending): clean (nothing of the pod), left (something), unread (not known).",
		}, []string{"reason", "ending"}),
		killed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "nodeagent_containers_killed_at_deadline_total",
			Help: "Containers that SIGKILL ended at the end of the grace period of a deleted pod. Force deletes do not count.",
		}),
		unexplained: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "nodeagent_containers_killed_unexplained_total",
			Help: "Containers that SIGKILL ended at the end of the grace period of a deleted pod, and for which no cause was found. The log has " +
				"the last reading of such pods.",
		}),
		shortened: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "nodeagent_conditions_shortened_total",
			Help: "Condition messages that the admission policies of an older version rejected for their size. The agent then writes at " +
				"most 1,024 bytes until it restarts. Apply the policies of this version.",
		}),
		lost: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "nodeagent_readings_lost_total",
			Help: "Readings of a terminating pod, or of the node, that timed out. The next reading starts when they return.",
		}),
		gather: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "nodeagent_gather_duration_seconds",
			Help:    "Time to gather the evidence about one pod.",
			Buckets: []float64{0.01, 0.1, 0.5, 1, 3, 10},
		}),
		passed: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "nodeagent_termination_phase_seconds",
			Help: "Duration of the parts of pod terminations, stuck or not, by part (phase): GracePeriod, Overdue, Sandbox, Volumes, Finalizers. " +
				"A part is counted when it is over, to within one round. A part that began before the agent started is not counted.",
			Buckets: []float64{1, 2, 5, 10, 30, 60, 120, 300, 900},
			// The same as a native histogram, for a Prometheus that scrapes these: buckets of 10 %, at most 100 at a time.
			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100, NativeHistogramMinResetDuration: time.Hour,
		}, []string{"phase"}),
		build: prometheus.NewGauge(prometheus.GaugeOpts{
			Name:        "nodeagent_build_info",
			Help:        "Always 1. The label is the version of the agent.",
			ConstLabels: prometheus.Labels{"version": version},
		}),

		stuckDesc: prometheus.NewDesc("stuck_terminating_seconds",
			"Seconds that a terminating pod with a verdict is past its grace period, by cause (reason, including Unknown) and phase. "+
				"0 inside the grace period. Of the 250 pods on the node that are furthest past theirs.",
			[]string{"namespace", "pod", "uid", "reason", "phase"}, nil),
		stuckPodsDesc: prometheus.NewDesc("nodeagent_stuck_pods",
			"Terminating pods with a verdict that are more than two minutes past their grace period, by workload (barepod: a pod without a "+
				"controller) and cause (reason, including Unknown). Of the 200 workloads with the most of them; the others are one, without names.",
			[]string{"namespace", "workload", "workload_type", "reason"}, nil),
		reasonDesc: prometheus.NewDesc("nodeagent_reason_info",
			"Always 1, while a verdict with this cause (reason) stands. Who acts on it: app (the owner of the pod), "+
				"node, storage, network, controller (which has set a finalizer), policy (the owner of a webhook or an admission policy).",
			[]string{"reason", "who"}, nil),
		terminatingDesc: prometheus.NewDesc("nodeagent_terminating_pods",
			"Terminating pods on the node in the last round, stuck or not.", nil, nil),
		blockedDesc: prometheus.NewDesc("nodeagent_blocked_tasks",
			"Tasks on the node in uninterruptible sleep (D state), by owner (pod, kubelet, containerd, shim, kernel, other) and by what "+
				"they wait for (family). The series exist only while a pod is past its grace period.",
			[]string{"owner", "family"}, nil),
		droppedDesc: prometheus.NewDesc("nodeagent_verdicts_dropped_total",
			"Readings skipped because too many pods were terminating.", nil, nil),
		lastLoopDesc: prometheus.NewDesc("nodeagent_last_loop_timestamp_seconds",
			"Unix time at which the last round over the node's terminating pods ended.", nil, nil),
		periodDesc: prometheus.NewDesc("nodeagent_round_period_seconds",
			"Time between two rounds over the terminating pods. It grows with the cost of a round, and further under CPU pressure.", nil, nil),
		loopsDesc: prometheus.NewDesc("nodeagent_loops_total",
			"Rounds over the node's terminating pods, including rounds in which no pod was due.", nil, nil),
		requestsDesc: prometheus.NewDesc("nodeagent_containerd_requests_total",
			"Requests to containerd, by gRPC method (method). containerd calls the pod's shim in turn for "+
				"containerd.services.tasks.v1.Tasks/Get, and nothing else for the others.",
			[]string{"method"}, nil),
		linesDroppedDesc: prometheus.NewDesc("nodeagent_log_lines_dropped_total",
			"Log lines dropped because standard error was not read in time, for example while containerd hangs.", nil, nil),
		hangsDesc: prometheus.NewDesc("nodeagent_probe_hangs_total",
			"Reads of a suspect task's files that hung. The helper process was killed each time.", nil, nil),
		restartsDesc: prometheus.NewDesc("nodeagent_probe_restarts_total",
			"Restarts of the helper process.", nil, nil),
		refusedDesc: prometheus.NewDesc("nodeagent_probe_refused_total",
			"Reads of a suspect task's files that were skipped because too many killed helper processes had not exited.", nil, nil),
		passedOverDesc: prometheus.NewDesc("nodeagent_processes_passed_over_total",
			"Processes and threads that searches of the node left out, because those of their pod take too long to read.", nil, nil),
		outsideDesc: prometheus.NewDesc("nodeagent_terminating_pods_not_kept",
			"Terminating pods of the node about which nothing is reported, because there are more than are kept.", nil, nil),
		orphanedDesc: prometheus.NewDesc("nodeagent_orphaned",
			"Pods on the node that have been missing from the API for five minutes or more (--orphans-after), by what is left (kind): "+
				"process, volume, sandbox, directory (the kubelet's, empty or with files of emptyDir volumes).",
			[]string{"kind"}, nil),
		tokenHeldDesc: prometheus.NewDesc("nodeagent_token_held",
			"1 if an admission policy (policy) rejects what the agent's token must not do, 0 if it does not, "+
				"-1 if something else rejects it first. Tested hourly, and each minute until it is 1.",
			[]string{"policy"}, nil),
		hangingDesc: prometheus.NewDesc("nodeagent_readings_hanging",
			"Readings of a terminating pod, or of the node, that timed out and have not returned yet.", nil, nil),
		abandonedHelpersDesc: prometheus.NewDesc("nodeagent_probe_abandoned_helpers",
			"Helper processes that were killed but have not exited.", nil, nil),
	}
	m.build.Set(1)
	// A counter that starts to exist with its first increment hides it from rate().
	for _, kind := range []string{kindCondition, kindEvent, kindNodeEvent, kindEventSeries} {
		for _, result := range []string{resultDone, resultGone, resultRefused, resultFailed} {
			m.writes.WithLabelValues(kind, result)
		}
	}
	for _, p := range verdict.Parts {
		m.passed.WithLabelValues(string(p))
	}
	for _, s := range []evidence.Source{
		evidence.Processes, evidence.Suspects, evidence.Cgroups, evidence.Mounts, evidence.Volumes, evidence.Holders,
		evidence.Containers, evidence.Shims, evidence.Containerd, evidence.Plugins, evidence.RuntimeCommands,
		evidence.Kubelet, evidence.NodeObject, evidence.VolumeCalls, evidence.APICalls, evidence.Claims, evidence.ClaimCalls, evidence.Events,
		evidence.Requests, evidence.Limits, evidence.Pulls,
	} {
		m.missing.WithLabelValues(string(s))
	}
	return m
}

// Handler serves the metrics, with those of the Go runtime and the process,
// from a registry of its own.
func (m *Metrics) Handler() http.Handler {
	r := prometheus.NewRegistry()
	r.MustRegister(m, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	// Exemplars are in the OpenMetrics format only.
	return newAnswers(promhttp.HandlerFor(r, promhttp.HandlerOpts{EnableOpenMetrics: true}))
}

// Ticked takes note of the end of a loop.
func (m *Metrics) Ticked(now time.Time, terminating int, period time.Duration) {
	m.period.Store(int64(period))
	m.lastLoop.Store(now.UnixMilli())
	m.terminating.Store(int64(terminating))
	m.loops.Add(1)
	if terminating == 0 {
		m.Blocked(nil)
	}
}

// HeldBack counts a verdict that is not told on the pod.
func (m *Metrics) HeldBack(cause string) { m.held.WithLabelValues(cause).Inc() }

// Deleted counts a pod that was deleted while a verdict stood.
func (m *Metrics) Deleted(cause, ending string) { m.deleted.WithLabelValues(cause, ending).Inc() }

// Killed counts containers that SIGKILL has ended at the deadline, and those of them of which no cause was found.
func (m *Metrics) Killed(containers, unexplained int) {
	m.killed.Add(float64(containers))
	m.unexplained.Add(float64(unexplained))
}

// Lost counts a reading that has not returned in time.
func (m *Metrics) Lost() { m.lost.Inc() }

// Gathered takes note of how long the gathering about one pod took.
func (m *Metrics) Gathered(d time.Duration) { m.gather.Observe(d.Seconds()) }

// Passed takes note of a part of a pod's termination that is over, with the pod as exemplar.
func (m *Metrics) Passed(s verdict.Subject, p verdict.Passage) {
	of := m.passed.WithLabelValues(string(p.Part))
	if pod := (prometheus.Labels{"namespace": s.Namespace, "pod": s.Name}); fitsExemplar(pod) {
		of.(prometheus.ExemplarObserver).ObserveWithExemplar(p.Took.Seconds(), pod)
		return
	}
	of.Observe(p.Took.Seconds())
}

// fitsExemplar reports whether labels are as short as OpenMetrics wants those of an exemplar.
func fitsExemplar(labels prometheus.Labels) bool {
	n := 0
	for name, value := range labels {
		n += utf8.RuneCountInString(name) + utf8.RuneCountInString(value)
	}
	return n <= prometheus.ExemplarMaxRunes
}

// Blocked takes note of the tasks of the node in state D, in place of those
// before. It is to be called in each round in which a pod is read; without one
// Ticked takes the series away.
func (m *Metrics) Blocked(tasks []evidence.Task) {
	count := make(map[blockedTasks]int)
	for i := range tasks {
		count[blockedTasks{ownerKind(tasks[i].Owner), fact.FamilyOf(&tasks[i])}]++
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.blocked = count
}

// ownerKind makes a label of few values out of a task's owner, which for one in
// a pod is that pod's UID.
func ownerKind(owner string) string {
	switch owner {
	case "":
		return "other"
	case "kubelet", "containerd", "shim", "kernel":
		return owner
	}
	return "pod"
}

func (m *Metrics) looked(e *evidence.Pod) {
	for s := range e.Missing {
		m.missing.WithLabelValues(string(s)).Inc()
	}
}

func (m *Metrics) wrote(kind, result string) { m.writes.WithLabelValues(kind, result).Inc() }

// Describe is part of prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		m.stuckDesc, m.stuckPodsDesc, m.reasonDesc, m.terminatingDesc, m.blockedDesc, m.droppedDesc, m.lastLoopDesc, m.periodDesc, m.hangsDesc, m.restartsDesc,
		m.abandonedHelpersDesc, m.linesDroppedDesc, m.refusedDesc, m.hangingDesc, m.orphanedDesc, m.loopsDesc, m.requestsDesc, m.tokenHeldDesc,
		m.passedOverDesc, m.outsideDesc,
	} {
		ch <- d
	}
	for _, c := range m.counted() {
		c.Describe(ch)
	}
}

// Collect is part of prometheus.Collector. A pod's time grows between two looks
// at it, so it is counted here. It never is negative: a clock may be behind the
// API server's, and some causes are told before the grace period ends.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	now := m.now()
	m.mu.Lock()
	blocked := maps.Clone(m.blocked)
	m.mu.Unlock()
	for b, n := range blocked {
		gauge(m.blockedDesc, float64(n), b.owner, b.family)
	}
	standing := m.cases.Standing()
	told := make(map[string]bool)
	for _, s := range standing {
		if !told[s.Cause] && m.who[s.Cause] != "" {
			gauge(m.reasonDesc, 1, s.Cause, string(m.who[s.Cause]))
		}
		told[s.Cause] = true
		// A counter that starts to exist with its first increment hides it from increase().
		m.deleted.WithLabelValues(s.Cause, verdict.EndedLeft)
	}
	for w, n := range stuckByWorkload(standing, now) {
		gauge(m.stuckPodsDesc, float64(n), w.namespace, w.workload.Name, w.workload.Type, w.cause)
	}
	for _, s := range latest(standing) {
		gauge(m.stuckDesc, max(0, now.Sub(s.Deadline).Seconds()), s.Namespace, s.Name, s.UID, s.Cause, string(s.Phase))
	}
	ch <- prometheus.MustNewConstMetric(m.droppedDesc, prometheus.CounterValue, float64(m.cases.Refused()))

	gauge(m.terminatingDesc, float64(m.terminating.Load()))
	// Before the first loop there is no time to give; 0 would say 1970.
	if last := m.lastLoop.Load(); last != 0 {
		gauge(m.lastLoopDesc, float64(last)/1000)
		gauge(m.periodDesc, time.Duration(m.period.Load()).Seconds())
	}
	ch <- prometheus.MustNewConstMetric(m.loopsDesc, prometheus.CounterValue, float64(m.loops.Load()))
	n := m.counts()
	for method, count := range n.Requests {
		ch <- prometheus.MustNewConstMetric(m.requestsDesc, prometheus.CounterValue, float64(count), method)
	}
	ch <- prometheus.MustNewConstMetric(m.linesDroppedDesc, prometheus.CounterValue, float64(n.LinesDropped))
	ch <- prometheus.MustNewConstMetric(m.hangsDesc, prometheus.CounterValue, float64(n.Hangs))
	ch <- prometheus.MustNewConstMetric(m.restartsDesc, prometheus.CounterValue, float64(n.Restarts))
	ch <- prometheus.MustNewConstMetric(m.refusedDesc, prometheus.CounterValue, float64(n.Refused))
	ch <- prometheus.MustNewConstMetric(m.passedOverDesc, prometheus.CounterValue, float64(n.PassedOver))
	gauge(m.outsideDesc, float64(n.Outside))
	for kind, count := range n.Orphans {
		gauge(m.orphanedDesc, float64(count), kind)
	}
	for policy, held := range n.Held {
		gauge(m.tokenHeldDesc, float64(held), policy)
	}
	gauge(m.abandonedHelpersDesc, float64(n.Abandoned))
	gauge(m.hangingDesc, float64(n.ReadingsHanging))
	for _, c := range m.counted() {
		c.Collect(ch)
	}
}

func (m *Metrics) counted() []prometheus.Collector {
	return []prometheus.Collector{m.missing, m.writes, m.told, m.held, m.deleted, m.killed, m.unexplained, m.lost, m.shortened, m.gather, m.passed, m.build}
}
