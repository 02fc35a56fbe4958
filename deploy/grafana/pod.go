package main

import (
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// pod is about one pod, by the names that a StatefulSet's pods share from one to the next.
func pod() *dashboard.DashboardBuilder {
	const stuck = `stuck_terminating_seconds{namespace="$namespace", pod="$pod"}`
	page := dashboard.NewDashboardLinkBuilder("the cause's page").Type(dashboard.DashboardLinkTypeLink).
		Url(pages + "/reasons/${__field.labels.reason}.md").TargetBlank(true)
	links := []cog.Builder[dashboard.DashboardLink]{page}
	return start(podUID, "nodeagent / Pod", "Why one pod is stuck Terminating, and since when. Choose an earlier time range for a pod that is deleted.").
		WithVariable(choice("namespace", "Namespace", "label_values(stuck_terminating_seconds, namespace)", podHasVerdict)).
		WithVariable(choice("pod", "Pod", `label_values(stuck_terminating_seconds{namespace="$namespace"}, pod)`, podHasVerdict)).
		WithPanel(number(panel{
			title: "Late by", about: "Time past the end of the grace period. 0 inside it.",
			unit: "s", width: 5, height: 4,
			queries: []query{{expr: `max(` + stuck + `)`, legend: "late by", emptyUntil: podHasVerdict}},
		}, 120)).
		WithPanel(name(panel{
			title: "Cause", about: "What blocks the pod. A click leads to the page about the cause.",
			unit: "short", width: 9, height: 4,
			queries: []query{{expr: `max by (reason) (` + stuck + `)`, legend: "{{reason}}", emptyUntil: podHasVerdict}},
		}).DataLinks(links)).
		WithPanel(name(panel{
			title: "Phase", about: "Whose turn it is to end the pod.",
			unit: "short", width: 5, height: 4,
			queries: []query{{expr: `max by (phase) (` + stuck + `)`, legend: "{{phase}}", emptyUntil: podHasVerdict}},
		})).
		WithPanel(name(panel{
			title: "Node", about: "Where the pod is.",
			unit: "short", width: 5, height: 4,
			queries: []query{{expr: `max by (node) (` + stuck + `)`, legend: "{{node}}", emptyUntil: podHasVerdict}},
		}).DataLinks([]cog.Builder[dashboard.DashboardLink]{
			dashboard.NewDashboardLinkBuilder("the node's dashboard").Type(dashboard.DashboardLinkTypeLink).Url(to(nodeUID, "var-node=${__field.labels.node}")),
		})).
		WithPanel(states(panel{
			title: "Cause and phase over time", about: "A row for each verdict that stood, while it stood. A click leads to the page about the cause.",
			unit: "short", width: 24, height: 6,
			queries: []query{{expr: `group by (reason, phase) (` + stuck + `)`, legend: "{{reason}} in {{phase}}", emptyUntil: podHasVerdict}},
		}, vermilion).DataLinks(links)).
		WithPanel(lines(panel{
			title: "Late by, over time", about: "Time past the end of the grace period, by cause. Two lines at one time are two pods with the same name.",
			unit: "s", width: 24, height: 7,
			queries: []query{{expr: `max by (uid, reason) (` + stuck + `)`, legend: "{{reason}}", emptyUntil: podHasVerdict}},
		}).DataLinks(links)).
		WithPanel(coloured(lines(panel{
			title: "90th percentile of all terminations, by phase",
			about: "For comparison, of all pods in the cluster. The points are exemplars: their labels namespace and pod name a termination that took so long.",
			unit:  "s", width: 16, height: 7,
			queries: []query{quantile("0.9")},
		}), phaseColours, phases...)).
		WithPanel(notShown(8, 7, `- The evidence, what to do and what to avoid. They are on the pod: `+"`kubectl why-terminating POD -n NAMESPACE`"+`.
- A pod whose node has very many that are later.
- A pod without a verdict: it ends in time, or no agent is on its node.
- What ended the pod. A line that ends means: the pod is deleted, or the verdict was withdrawn.
`))
}
