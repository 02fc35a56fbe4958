package kernel

import (
	"cmp"
	"time"

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

// The other variants of ContainerFrozen: that it was paused through containerd, or may
// have been, since its shim has not said, and whose group it is.
const (
	paused      = "Paused"
	pausedMaybe = "PausedMaybe"
	groupPod    = "PodGroup"
	groupAbove  = "GroupAbove"
	groupInside = "GroupInside"
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
		Message: "container {container}: its processes are frozen, through {group}{paused}, so they cannot react to {sent}. {until}",
		Phrases: map[string][]diagnose.Choice{
			"group": {
				{Variant: groupPod, Text: "the pod's control group"},
				{Variant: groupAbove, Text: "a control group above the pod's"},
				{Variant: groupInside, Text: "a control group that was made inside its own"},
				{Text: "its own control group"},
			},
			"paused": {{Variant: paused, Text: ", which was paused through containerd"}, {Text: ""}},
			"sent":   {{Text: "{signal}"}, {Text: "its stop signal"}},
			"until": {
				{Variant: familyFreezerV1, Text: "SIGKILL does not end them either: the pod stays until it is thawed"},
				{Text: "Unless it is thawed, the pod waits for SIGKILL at {deadline}"},
				{Text: "Unless it is thawed, the pod waits for SIGKILL"},
			},
			"thaw": {
				{Variant: paused, Text: "resume it on the node: ctr -n k8s.io task resume {containerid}"},
				{Variant: pausedMaybe, Text: "resume it on the node if ctr -n k8s.io task ls calls it PAUSED: ctr -n k8s.io task resume {containerid}. " +
					"Otherwise {write}"},
				{Text: "{write}"},
			},
			"write": {
				{Variant: familyFreezerV1, Text: "thaw it on the node: echo THAWED > /sys/fs/cgroup/freezer/{cgroup}/freezer.state"},
				{Text: "thaw it on the node: echo 0 > /sys/fs/cgroup/{cgroup}/cgroup.freeze"},
				{Text: "thaw it on the node: /proc/{pid}/cgroup names its control group; it, or one above it, is frozen, as its cgroup.freeze or freezer.state shows"},
			},
		},
		Meaning: "The kernel's freezer has stopped all processes of the control group, or of one above it. " +
			"Somebody has paused the container (ctr task pause, a checkpoint, a snapshot) or written to the freezer, and it was not thawed.",
		Evidence: "cgroup.events of the group says frozen 1 (freezer.state FROZEN or FREEZING on version 1), " +
			"and no process of the group has run between two readings three seconds or more apart. " +
			"Frozen processes show S on version 2 and D on version 1, with misleading places in the kernel.",
		Remedy: "Find out who froze it. When nobody is at work any more, {thaw}; the processes continue immediately and take the stop signal.",
		Danger: "A checkpoint or a copy of its data may be at work.",
		Families: []diagnose.Family{
			{
				Name:    familyFreezerV2,
				Meaning: "On cgroup v2, SIGKILL ends frozen processes: the pod terminates at the end of its grace period.",
			},
			{
				Name: familyFreezerV1,
				Meaning: "On cgroup v1 not even SIGKILL ends a frozen process. " +
					"The runtime thaws the container's own group before it kills, but neither those above nor those below it.",
				Danger: "A checkpoint or a copy of its data may be at work. " +
					"Do not force-delete: the processes stay on the node, frozen, and continue when somebody thaws them, perhaps after their volume has been given to another pod.",
			},
			{
				Name:    paused,
				Meaning: "The container was paused through containerd, which can resume it.",
			},
		},
	},
	Check: func(p *fact.View) diagnose.Result {
		var out []diagnose.Finding
		for _, fp := range fact.FirstProcesses(p) {
			g := fact.FrozenGroup(p, fp.Leader)
			if g == nil || g.Version == 2 && p.Overdue() >= fact.KillLatency || !motionlessContainer(p, fp.Container.ID) {
				continue
			}
			f := diagnose.About(p, fp, diagnose.Proved)
			f.Family = familyFreezerV2
			if g.Version == 1 {
				f.Family = familyFreezerV1
			}
			f.Objects.Cgroup = cmp.Or(g.FrozenBy, g.Path)
			f.Objects.ContainerID = fp.Container.ID
			if v := groupOf(p, fp.Container, f.Objects.Cgroup); v != "" {
				f.Variants = append(f.Variants, v)
			}
			if p.Overdue() >= 0 || !p.Kill.Known {
				f.Objects.Deadline = time.Time{} // it has passed, or is another one
			}
			switch own := len(f.Variants) == 0; {
			case fp.Container.Task.Status == "paused" || fp.Container.Task.Status == "pausing":
				f.Variants = append(f.Variants, paused)
			case fp.Container.Task.Status == "" && own:
				f.Variants = append(f.Variants, pausedMaybe)
			}
			out = append(out, f)
		}
		return diagnose.Found(out...)
	},
}

// groupOf tells whose control group has the given path, "" for the container's
// own.
func groupOf(p *fact.View, c *evidence.Container, path string) string {
	for _, g := range p.Cgroups {
		switch {
		case g.Path != path:
		case g.Container == c.ID && fact.Nested(p, &g):
			return groupInside
		case g.Container == c.ID:
			return ""
		case g.Container == "":
			return groupPod
		}
	}
	return groupAbove
}

// motionlessContainer reports whether no thread of a container that is in a frozen
// group has run between two readings.
func motionlessContainer(p *fact.View, id string) bool {
	any := false
	for i := range p.Tasks {
		if t := &p.Tasks[i]; t.Container == id && t.State != evidence.Zombie && fact.FrozenGroup(p, t) != nil {
			any = true
			if t.State == evidence.Runnable || t.Unchanged(p.Time) < fact.LeastStill {
				return false
			}
		}
	}
	return any
}
