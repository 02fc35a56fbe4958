package diagnose

import (
	"fmt"
	"strconv"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// HostPIDLeftover is a process that outlives its container, because the
// container shares its PIDs, and keeps the container's output open.
var HostPIDLeftover = &Rule{
	Cause:  "HostPIDLeftover",
	Phases: []Phase{Runtime},
	Needs:  []evidence.Source{evidence.Processes, evidence.Containers},
	Doc: Doc{
		Layer:   "runtime",
		Title:   "a process of a container with shared PIDs lives on outside the pod and holds its output",
		Message: "container {container} has ended, but {leftover} lives on outside the pod's control groups ({cgroup}) and holds its output open{more}, so the shim does not finish",
		Meaning: "With hostPID or shareProcessNamespace the end of a container's first process does not end the others. The runtime kills what is left in the container's control group; " +
			"a process that has moved to another group (systemd-run, a container engine inside the container, a session of sudo or ssh) is not among them. " +
			"As long as it keeps the container's standard output or error open, the shim waits for more output.",
		Evidence: "The pod shares PIDs, containerd says that the container runs, no task of it is left in the pod's control groups, and a process outside of them has a pipe of the container's output as its standard input, output or error, " +
			"in two readings three seconds or more apart.",
		Remedy: "Ask the program to end that process when it stops. On the node, after a look at what it is: kill {pid}; the pod goes on at once.",
		Danger: "The process may be at work that outlives the container on purpose. A force delete leaves it running, unseen.",
	},
	Check: func(p *evidence.Pod) []Finding {
		byContainer := make(map[string][]*evidence.Task)
		var order []string
		for i := range p.Leftovers {
			t := &p.Leftovers[i]
			if t.State == evidence.Zombie || p.Time.Sub(t.SignalsSince) < Stuck || t.SignalsSince.IsZero() {
				continue
			}
			if _, ok := byContainer[t.Container]; !ok {
				order = append(order, t.Container)
			}
			byContainer[t.Container] = append(byContainer[t.Container], t)
		}
		var out []Finding
		for _, id := range order {
			c, ok := p.Container(id)
			if !ok || c.State != evidence.StateRunning {
				continue
			}
			tasks := byContainer[id]
			v := map[string]string{
				"container": c.Name, "leftover": named(tasks[0]), "pid": strconv.Itoa(tasks[0].PID),
				"cgroup": bound(tasks[0].Cgroup, 150), "more": "",
			}
			if n := len(tasks) - 1; n > 0 {
				v["more"] = fmt.Sprintf(" (and %d more like it)", n)
			}
			out = append(out, Finding{Container: c.Name, Confidence: Proved, Values: v})
		}
		return out
	},
}
