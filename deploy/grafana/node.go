package main

import "github.com/grafana/grafana-foundation-sdk/go/dashboard"

// node is about one node and its agent.
func node() *dashboard.DashboardBuilder {
	const on = `{node="$node"}`
	return start(nodeUID, "nodeagent / Node",
		"The terminating pods of one node, and the agent there. Late means: more than two minutes past the end of the grace period.").
		WithVariable(choice("node", "Node", "label_values(nodeagent_build_info, node)", "")).
		WithPanel(number(panel{
			title: "Late pods", about: "Terminating pods of this node with a verdict that are more than two minutes past the end of their grace period.",
			unit: "short", width: 6, height: 4,
			queries: []query{{expr: `sum(nodeagent_stuck_pods` + on + `) or vector(0)`, legend: "late"}},
		}, 1)).
		WithPanel(number(panel{
			title: "Terminating pods", about: "All pods of this node that terminate, stuck or not.",
			unit: "short", width: 6, height: 4,
			queries: []query{{expr: `sum(nodeagent_terminating_pods` + on + `)`, legend: "terminating"}},
		}, 0)).
		WithPanel(number(panel{
			title: "Age of the last round", about: "Time since the agent's last round ended. Rounds are at most ten seconds apart.",
			unit: "s", width: 6, height: 4,
			queries: []query{{expr: `clamp_min(max(time() - nodeagent_last_loop_timestamp_seconds` + on + `), 0)`, legend: "age"}},
		}, 120)).
		WithPanel(number(panel{
			title: "Hanging readings", about: "Readings of a pod, or of the node, that timed out and have not returned. The agent's log names the pod.",
			unit: "short", width: 6, height: 4,
			queries: []query{{expr: `sum(nodeagent_readings_hanging` + on + `)`, legend: "hanging"}},
		}, 1)).
		WithPanel(lines(panel{
			title: "Terminating pods over time", about: "All pods that terminate, those with a verdict, and the late ones.",
			unit: "short", width: 12, height: 7,
			queries: []query{
				{expr: `sum(nodeagent_terminating_pods` + on + `)`, legend: "terminating"},
				{expr: `count(stuck_terminating_seconds` + on + `) or vector(0)`, legend: "with a verdict"},
				{expr: `sum(nodeagent_stuck_pods` + on + `) or vector(0)`, legend: "late"},
			},
		})).
		WithPanel(stacked(lines(panel{
			title: "Late pods by phase", about: "Whose turn it is: the phase in which each late pod is blocked.",
			unit: "short", width: 12, height: 7,
			queries: []query{{expr: `count by (phase) (stuck_terminating_seconds` + on + ` > 120)`, legend: "{{phase}}", emptyUntil: podIsLate}},
		}))).
		WithPanel(rows(panel{
			title: "Pods with a verdict", about: "The 100 latest pods of this node with a verdict. 0 s late: inside the grace period.",
			unit: "s", width: 24, height: 9,
			queries: []query{{
				expr:   `topk(100, max by (namespace, pod, reason, phase) (stuck_terminating_seconds` + on + `))`,
				legend: "{{namespace}}/{{pod}}", emptyUntil: podHasVerdict,
			}},
		},
			column{of: "namespace", title: "Namespace"},
			column{of: "pod", title: "Pod", link: to(podUID, "var-namespace=${__data.fields.Namespace}&var-pod=${__value.raw}")},
			column{of: "reason", title: "Cause", link: causePage},
			column{of: "phase", title: "Phase"},
			column{of: "Value", title: "Late by", unit: "s", width: 130})).
		WithPanel(stacked(lines(panel{
			title: "Blocked tasks by owner and family", about: "Tasks in D state (uninterruptible sleep), by what they belong to and what they wait for.",
			unit: "short", width: 12, height: 7,
			queries: []query{{expr: `sum by (owner, family) (nodeagent_blocked_tasks` + on + `)`, legend: "{{owner}}: {{family}}", emptyUntil: taskIsBlocked}},
		}))).
		WithPanel(bars(panel{
			title: "Missing evidence, by source", about: "Readings in the time range in which a source was incomplete. The agent's log says why.",
			unit: "short", width: 12, height: 7,
			queries: []query{counted("nodeagent_evidence_missing_total", on, "source", "{{source}}", sourceMissing)},
		}, orange)).
		WithPanel(lines(panel{
			title: "Helper process",
			about: "The helper reads files that can hang. A hung read costs a helper; one that cannot exit is abandoned. Reads are skipped while too many are.",
			unit:  "short", width: 12, height: 7,
			queries: []query{
				{expr: `sum(increase(nodeagent_probe_hangs_total` + on + `[$__rate_interval]))`, legend: "hung reads"},
				{expr: `sum(increase(nodeagent_probe_restarts_total` + on + `[$__rate_interval]))`, legend: "restarts"},
				{expr: `sum(increase(nodeagent_probe_refused_total` + on + `[$__rate_interval]))`, legend: "skipped reads"},
				{expr: `sum(nodeagent_probe_abandoned_helpers` + on + `)`, legend: "abandoned now"},
			},
		})).
		WithPanel(lines(panel{
			title: "Requests to containerd", about: "Requests a second, by method, of those that the agent has made. All of them only read.",
			unit: "reqps", width: 12, height: 7,
			queries: []query{{
				expr: `sum by (method) (label_replace(rate(nodeagent_containerd_requests_total` + on + `[$__rate_interval]) and nodeagent_containerd_requests_total` +
					on + ` > 0, "method", "$1", "method", ".*[.]([^.]+)"))`,
				legend: "{{method}}",
			}},
		})).
		WithPanel(lines(panel{
			title: "Round period", about: "Time between two rounds. It grows with the cost of a round, and further under CPU pressure.",
			unit: "s", width: 8, height: 7,
			queries: []query{{expr: `max(nodeagent_round_period_seconds` + on + `)`, legend: "period"}},
		})).
		WithPanel(lines(panel{
			title: "Duration of a reading", about: "Time to read one pod. There is no value while no pod is read.",
			unit: "s", width: 8, height: 7,
			queries: []query{
				{expr: readingQuantile("0.5", on), legend: "median", every: "1m"},
				{expr: readingQuantile("0.9", on), legend: "90th percentile", every: "1m"},
			},
		})).
		WithPanel(notShown(8, 7, `- Why nothing is reported while the node is lost: its agent is not scraped either.
- The late pods of a node beyond those that are latest, by phase. The number of late pods has all of them.
- What the kubelet and containerd themselves measure.
- D state while no pod is past its grace period.
`))
}

// readingQuantile is a quantile of the time that readings take.
func readingQuantile(q, on string) string {
	return `histogram_quantile(` + q + `, sum by (le) (rate(nodeagent_gather_duration_seconds_bucket` + on + `[$__rate_interval])))`
}
