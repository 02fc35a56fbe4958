package main

import "github.com/grafana/grafana-foundation-sdk/go/dashboard"

// fleet is about all nodes.
func fleet() *dashboard.DashboardBuilder {
	const late = "more than two minutes past the end of their grace period"
	return start(fleetUID, "nodeagent / Fleet", "Which pods of the cluster are stuck Terminating, and why. Late means: "+late+".").
		WithPanel(number(panel{
			title: "Late pods", about: "Terminating pods with a verdict that are " + late + ".",
			unit: "short", width: 4, height: 4,
			queries: []query{{expr: `sum(nodeagent_stuck_pods) or vector(0)`, legend: "late"}},
		}, 1)).
		WithPanel(number(panel{
			title: "Terminating pods", about: "All pods that terminate, stuck or not.",
			unit: "short", width: 4, height: 4,
			queries: []query{{expr: `sum(nodeagent_terminating_pods) or vector(0)`, legend: "terminating"}},
		}, 0)).
		WithPanel(number(panel{
			title: "Agents", about: "Agents that Prometheus scrapes. There should be one for each Linux node.",
			unit: "short", width: 4, height: 4,
			queries: []query{{expr: `count(nodeagent_build_info) or vector(0)`, legend: "agents"}},
		}, 0)).
		WithPanel(number(panel{
			title: "Oldest round", about: "Time since the end of the last round, of the agent where it is longest. Rounds are at most ten seconds apart.",
			unit: "s", width: 4, height: 4,
			queries: []query{{expr: `clamp_min(max(time() - nodeagent_last_loop_timestamp_seconds), 0)`, legend: "oldest"}},
		}, 120)).
		WithPanel(number(panel{
			title: "Tokens not held", about: "Agents whose token is not held by an admission policy, or where the test of the policy failed.",
			unit: "short", width: 4, height: 4,
			queries: []query{{expr: `count(min by (instance) (nodeagent_token_held) < 1) or vector(0)`, legend: "not held"}},
		}, 1)).
		WithPanel(number(panel{
			title: "Hanging readings", about: "Readings of a pod, or of a node, that timed out and have not returned.",
			unit: "short", width: 4, height: 4,
			queries: []query{{expr: `sum(nodeagent_readings_hanging) or vector(0)`, legend: "hanging"}},
		}, 1)).
		WithPanel(bars(panel{
			title: "Late pods by cause", about: "What blocks the late pods. Many pods with one cause are one incident.",
			unit: "short", width: 12, height: 7,
			queries: []query{{expr: `sort_desc(sum by (reason) (nodeagent_stuck_pods))`, legend: "{{reason}}", emptyUntil: podIsLate}},
		}, vermilion)).
		WithPanel(rows(panel{
			title: "Late pods by node", about: "Nodes with late pods, all pods that terminate there, and how late the latest pod is.",
			unit: "short", width: 12, height: 7,
			queries: []query{
				{expr: `topk(50, sum by (node) (nodeagent_stuck_pods))`, legend: "{{node}}", emptyUntil: podIsLate},
				{expr: `sum by (node) (nodeagent_terminating_pods) and on (node) nodeagent_stuck_pods`, legend: "{{node}}", emptyUntil: podIsLate},
				{expr: `max by (node) (stuck_terminating_seconds > 120)`, legend: "{{node}}", emptyUntil: podIsLate},
			},
		},
			column{of: "node", title: "Node", link: to(nodeUID, "var-node=${__value.raw}")},
			column{of: "Value #B", title: "Terminating", width: 110},
			column{of: "Value #C", title: "Latest", unit: "s", width: 110},
			column{of: "Value #A", title: "Late pods", width: 110})).
		WithPanel(rows(panel{
			title: "Late pods by workload and cause",
			about: "The 50 workloads and causes with the most late pods. A node reports many workloads by name, and the rest as one without a name.",
			unit:  "short", width: 24, height: 8,
			queries: []query{{
				expr:   `topk(50, sum by (namespace, workload, workload_type, reason) (nodeagent_stuck_pods))`,
				legend: "{{namespace}}/{{workload}}", emptyUntil: podIsLate,
			}},
		},
			column{of: "namespace", title: "Namespace", link: to(podUID, "var-namespace=${__value.raw}")},
			column{of: "workload", title: "Workload"},
			column{of: "workload_type", title: "Kind"},
			column{of: "reason", title: "Cause", link: causePage},
			column{of: "Value", title: "Late pods", width: 110})).
		WithPanel(coloured(lines(panel{
			title: "Median duration of terminations, by phase",
			about: "Half of the terminations took at most so long in each phase, stuck or not. A phase counts when it is over. GracePeriod is the program's own time.",
			unit:  "s", width: 12, height: 7,
			queries: []query{quantile("0.5")},
		}), phaseColours, phases...)).
		WithPanel(coloured(lines(panel{
			title: "90th percentile of terminations, by phase",
			about: "Nine of ten terminations took at most so long in each phase, stuck or not. The points are exemplars: their labels name a pod.",
			unit:  "s", width: 12, height: 7,
			queries: []query{quantile("0.9")},
		}), phaseColours, phases...)).
		WithPanel(bars(panel{
			title: "Events reported, by cause", about: "New Events about pods in the time range.",
			unit: "short", width: 6, height: 7,
			queries: []query{counted("nodeagent_verdicts_told_total", "", "reason", "{{reason}}", eventIsReported)},
		}, blue)).
		WithPanel(bars(panel{
			title: "Verdicts held back, by cause",
			about: "Verdicts in the time range that are in the log only, because the node has used up its reports for the minute.",
			unit:  "short", width: 6, height: 7,
			queries: []query{counted("nodeagent_verdicts_held_back_total", "", "reason", "{{reason}}", verdictIsHeld)},
		}, orange)).
		WithPanel(bars(panel{
			title: "Deleted with a verdict, by ending",
			about: "Pods deleted in the time range while a verdict stood, by what was left on the node: clean (nothing), left (something), unread (not known).",
			unit:  "short", width: 6, height: 7,
			queries: []query{counted("nodeagent_deleted_with_verdict_total", "", "ending", "{{ending}}", podHasVerdict)},
		}, purple)).
		WithPanel(bars(panel{
			title: "Killed at the deadline",
			about: "Containers in the time range that used up their grace period and were killed, and those of them for which no cause was found.",
			unit:  "short", width: 6, height: 7,
			queries: []query{
				{expr: `round(sum(increase(nodeagent_containers_killed_at_deadline_total[$__range])))`, legend: "killed"},
				{expr: `round(sum(increase(nodeagent_containers_killed_unexplained_total[$__range])))`, legend: "without a cause"},
			},
		}, blue)).
		WithPanel(bars(panel{
			title: "Orphans by kind",
			about: "Pods that are on a node and have been missing from the API for five minutes, by what is left. A process or a volume is the dangerous kind.",
			unit:  "short", width: 8, height: 7,
			queries: []query{{expr: `sort_desc(sum by (kind) (nodeagent_orphaned))`, legend: "{{kind}}"}},
		}, vermilion)).
		WithPanel(bars(panel{
			title: "Missing evidence, by source",
			about: "Readings in the time range in which a source was incomplete. The causes that need this source were not evaluated.",
			unit:  "short", width: 8, height: 7,
			queries: []query{counted("nodeagent_evidence_missing_total", "", "source", "{{source}}", sourceMissing)},
		}, orange)).
		WithPanel(notShown(8, 7, `- Pods on a node without an agent, or on a node that is lost. Nothing there can say why.
- Pods that are late and have no verdict yet.
- Which pod it is, if a node has very many: `+"`stuck_terminating_seconds`"+` has its latest pods only. `+"`nodeagent_stuck_pods`"+` counts all of them.
- What to do. That is on the pod: `+"`kubectl why-terminating POD -n NAMESPACE`"+`.
- Phases that began before the agent started.
`))
}
