package kernel

import (
	"cmp"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// The families of ContainerFrozen: the versions of cgroups differ in what
// SIGKILL does.
const (
	familyFreezerV1 = "CgroupV1"
	familyFreezerV2 = "CgroupV2"
)

// ContainerFrozen is a container whose control group is frozen.
var ContainerFrozen = &diagnose.Rule{
	Cause:  "ContainerFrozen",
	When:   diagnose.InGraceAndAfter,
	Phases: diagnose.WhileProcessesLive,
	Needs:  []evidence.Source{evidence.Processes, evidence.Cgroups, evidence.Containers},
	Doc: diagnose.Doc{
		Layer:   "kernel",
		Title:   "the container's control group is frozen",
		Message: "container {container}: its processes are frozen, through {group}{paused}, so they cannot react to {signal}. {until}",
		Phrases: map[string]string{
			"group":  "its own control group",
			"paused": "",
			"until":  "Unless it is thawed, the pod waits for SIGKILL at DEADLINE",
			"thaw":   "Thaw it on the node: echo 0 > /sys/fs/cgroup/PATH/cgroup.freeze (version 1: echo THAWED > /sys/fs/cgroup/freezer/PATH/freezer.state). If it was paused through containerd: ctr -n k8s.io task resume ID",
		},
		Meaning: "The kernel's freezer has stopped all processes of the control group, or of one above it. Somebody has paused the container (ctr task pause, a checkpoint, a snapshot) or written to the freezer, and it was not thawed.",
		Evidence: "cgroup.events of the group says frozen 1 (freezer.state FROZEN or FREEZING on version 1), and no process of the container has run between two readings three seconds or more apart. " +
			"Frozen processes show S on version 2 and D on version 1, with misleading places in the kernel.",
		Remedy: "{thaw}; the processes go on at once and take the stop signal.",
		Danger: "Find out first who froze it: a checkpoint or a copy of its data may be at work.",
		Families: []diagnose.Family{
			{
				Name:    familyFreezerV2,
				Meaning: "On cgroup v2, SIGKILL ends frozen processes: the pod goes at the end of its grace period.",
			},
			{
				Name:    familyFreezerV1,
				Meaning: "On cgroup v1 not even SIGKILL ends a frozen process. The runtime thaws the container's own group before it kills, but neither those above nor those below it.",
				Danger:  "Find out first who froze it. Do not force-delete: the processes stay on the node, frozen, and go on when somebody thaws them, perhaps after their volume has been given to another pod.",
			},
		},
	},
	Check: func(p *evidence.Pod) []diagnose.Finding {
		var out []diagnose.Finding
		for _, fp := range fact.FirstProcesses(p) {
			g := fact.FrozenGroup(p, fp.Leader)
			if g == nil || g.Version == 2 && p.Overdue() >= fact.KillLatency || !motionlessContainer(p, fp.Container.ID) {
				continue
			}
			f := diagnose.About(p, fp, diagnose.Proved)
			by := cmp.Or(g.FrozenBy, g.Path)
			f.Values["group"] = groupName(p, fp.Container, by)
			f.Values["signal"] = diagnose.SignalName(fp.Container)
			f.Values["paused"] = ""
			f.Family = familyFreezerV2
			f.Values["until"] = "Unless it is thawed, the pod waits for SIGKILL at " + diagnose.Clock(p.Deadline)
			f.Values["thaw"] = "Thaw it on the node: echo 0 > /sys/fs/cgroup" + by + "/cgroup.freeze"
			if g.Version == 1 {
				f.Family = familyFreezerV1
				f.Values["until"] = "SIGKILL does not end them either: the pod stays until it is thawed"
				f.Values["thaw"] = "Thaw it on the node: echo THAWED > /sys/fs/cgroup/freezer" + by + "/freezer.state"
			}
			if fp.Container.Task.Status == "paused" {
				f.Values["paused"] = ", which was paused through containerd"
				f.Values["thaw"] = "Resume it on the node: ctr -n k8s.io task resume " + fp.Container.ID
			}
			out = append(out, f)
		}
		return out
	},
}

// groupName tells a control group by its place.
func groupName(p *evidence.Pod, c *evidence.Container, path string) string {
	for _, g := range p.Cgroups {
		switch {
		case g.Path != path:
		case g.Container == c.ID:
			return "its own control group"
		case g.Container == "":
			return "the pod's control group"
		}
	}
	return "a control group above the pod's"
}

// motionlessContainer reports whether no thread of a container has run between two
// readings.
func motionlessContainer(p *evidence.Pod, id string) bool {
	any := false
	for i := range p.Tasks {
		if t := &p.Tasks[i]; t.Container == id && t.State != evidence.Zombie {
			any = true
			if t.State == evidence.Runnable || t.Unchanged(p.Time) < fact.Stuck {
				return false
			}
		}
	}
	return any
}
