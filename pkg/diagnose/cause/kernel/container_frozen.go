package kernel

import (
	"cmp"
	"slices"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// The families of ContainerFrozen: what SIGKILL does depends on the version of cgroups.
const (
	familyFreezerV1 = "CgroupV1"
	familyFreezerV2 = "CgroupV2"
)

// The other variants of ContainerFrozen: it was paused through containerd, or may have been, because its shim did not report its state;
// and whose cgroup is frozen.
const (
	paused      = "Paused"
	pausedMaybe = "PausedMaybe"
	groupPod    = "PodGroup"
	groupAbove  = "GroupAbove"
	groupInside = "GroupInside"
)

// ContainerFrozen is a container whose cgroup is frozen.
var ContainerFrozen = &diagnose.Rule{
	Cause:  "ContainerFrozen",
	When:   diagnose.InGraceAndAfter,
	Phases: diagnose.WhileProcessesLive,
	Doc: diagnose.Doc{
		Layer:   "kernel",
		Title:   "the container's cgroup is frozen",
		Who:     diagnose.ByNode,
		Message: "container {container}: {group} is frozen{paused}, so its processes cannot handle {sent}. {until}",
		Seen: []string{
			"Cgroup {cgroup} is frozen{record}",
			"Process {pid} ({program}) and the container's other frozen processes did not run between two readings",
		},
		First: "if a checkpoint or a backup runs, wait for its end. If not, {ends} it on the node as Fix says",
		Avoid: "{thawing} during a checkpoint (ruins the copy)",
		Phrases: map[string][]diagnose.Choice{
			"group": {
				{Variant: groupPod, Text: "the pod's cgroup"},
				{Variant: groupAbove, Text: "a cgroup above the pod's"},
				{Variant: groupInside, Text: "a cgroup created inside its own"},
				{Text: "its cgroup"},
			},
			"paused": {{Variant: paused, Text: " (paused through containerd)"}, {Text: ""}},
			"record": {{Variant: paused, Text: ", and containerd reports the container as paused"}, {Text: ""}},
			"sent":   {{Text: "{signal}"}, {Text: "its stop signal"}},
			"until": {
				{Variant: familyFreezerV1, Text: "SIGKILL takes effect only once it is thawed"},
				{Text: "Unless it is thawed, SIGKILL ends them at {deadline}"},
				{Text: "Unless it is thawed, only SIGKILL ends them"},
			},
			"ends":    {{Variant: paused, Text: "resume"}, {Text: "thaw"}},
			"thawing": {{Variant: paused, Text: "resuming"}, {Text: "thawing"}},
			"thaw": {
				{Variant: paused, Text: "resume it on the node: ctr -n k8s.io task resume {containerid}"},
				{Variant: pausedMaybe, Text: "check on the node whether ctr -n k8s.io task ls shows it as PAUSED. If so: ctr -n k8s.io task resume {containerid}. " +
					"Otherwise {write}"},
				{Text: "{write}"},
			},
			"write": {
				{Text: "thaw it on the node: {file}"},
				{Text: "find the frozen cgroup on the node and thaw it: cat /proc/{pid}/cgroup names the container's own. It, or one above it, " +
					"shows 1 in cgroup.freeze or FROZEN in freezer.state"},
			},
			"file": {
				{Variant: familyFreezerV1, Text: "echo THAWED > /sys/fs/cgroup/freezer/{cgroup}/freezer.state"},
				{Text: "echo 0 > /sys/fs/cgroup/{cgroup}/cgroup.freeze"},
			},
		},
		Meaning: "The kernel's freezer has stopped all processes of the container's cgroup, or of one above it. " +
			"Either the container was paused (ctr task pause, a checkpoint, a snapshot), or something wrote to the freezer. It was " +
			"not thawed afterwards.",
		Remedy: "Find out who froze it: a checkpoint, a snapshot or a backup may be running. If none runs, {thaw}; the processes then " +
			"resume and receive the stop signal.",
		Danger: "Do not thaw it while a checkpoint or a copy of its data runs: the copy is then inconsistent.",
		Families: []diagnose.Family{
			{
				Name: familyFreezerV2,
				Who:  diagnose.ByNode, Ends: true,
				Meaning: "On cgroup v2, SIGKILL ends frozen processes: the pod terminates at the end of its grace period.",
				First:   "can wait: SIGKILL ends it. For a clean stop: if no checkpoint or backup runs, {ends} it as Fix says",
			},
			{
				Name: familyFreezerV1,
				Meaning: "On cgroup v1, not even SIGKILL ends a frozen process. " +
					"The runtime thaws the container's own cgroup before it kills, but neither those above nor those below it.",
				Danger: "Do not thaw it while a checkpoint or a copy of its data runs: the copy is then inconsistent. " +
					"Do not force-delete: the frozen processes stay on the node. Once thawed they resume, perhaps after another pod has their volume.",
			},
			{
				Name:    paused,
				Meaning: "The container was paused through containerd, which can resume it.",
			},
		},
	},
	By: diagnose.By[fact.FirstProcess]{
		From: []evidence.Source{evidence.Processes, evidence.Containers},
		Of:   fact.FirstProcesses,
		Facts: []diagnose.Fact[fact.FirstProcess]{
			{Says: "The container's first process is in a frozen cgroup. cgroup v2: cgroup.events of the cgroup shows frozen 1. " +
				"cgroup v1: freezer.state of the cgroup shows FROZEN or FREEZING.", Is: diagnose.If(isFrozen), From: cgroups},
			{Says: "On cgroup v2, it is not ten seconds past the deadline yet: SIGKILL ends frozen processes there.",
				Is: diagnose.If(outlastsKill), From: cgroups},
			{Says: "At least one process of the cgroup is no zombie.", Is: diagnose.If(holdsLive), From: cgroups},
			{Says: "No process of the cgroup is in state R.", Is: diagnose.IfLater(noneRunnable, diagnose.Slow), From: cgroups},
			{Says: "No process of the cgroup ran between two readings three seconds or more apart.", Is: noneRan, From: cgroups},
			{Says: "The process state is no proof. Frozen processes show S on cgroup v2 and D on cgroup v1, and their kernel functions are " +
				"misleading."},
		},
		Tell: diagnose.Each(tellFrozen),
	},
}

// cgroups is the source without which it is not known what is frozen.
var cgroups = []evidence.Source{evidence.Cgroups}

func isFrozen(p *fact.View, fp fact.FirstProcess) bool { return fact.FrozenGroup(p, fp.Leader) != nil }

// outlastsKill reports whether SIGKILL does not end the frozen processes, or has not had its time.
func outlastsKill(p *fact.View, fp fact.FirstProcess) bool {
	g := fact.FrozenGroup(p, fp.Leader)
	return g != nil && (g.Version != 2 || p.Overdue() < fact.KillLatency)
}

// frozenThreads returns those threads of the container that are in a frozen cgroup and are no zombies.
func frozenThreads(p *fact.View, fp fact.FirstProcess) []*evidence.Task {
	return slices.DeleteFunc(threads(p), func(t *evidence.Task) bool {
		return t.Container != fp.Container.ID || t.State == evidence.Zombie || fact.FrozenGroup(p, t) == nil
	})
}

func holdsLive(p *fact.View, fp fact.FirstProcess) bool { return len(frozenThreads(p, fp)) > 0 }

func noneRunnable(p *fact.View, fp fact.FirstProcess) bool {
	return !slices.ContainsFunc(frozenThreads(p, fp), func(t *evidence.Task) bool { return t.State == evidence.Runnable })
}

func noneRan(p *fact.View, fp fact.FirstProcess) diagnose.Holding {
	for _, t := range frozenThreads(p, fp) {
		if h := diagnose.Still(p, t, fact.LeastStill); !h.Yes() {
			return h
		}
	}
	return diagnose.Is(true)
}

func tellFrozen(p *fact.View, fp fact.FirstProcess) diagnose.Finding {
	g := fact.FrozenGroup(p, fp.Leader)
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
	return f
}

// groupOf returns whose cgroup has the given path, "" for the container's own.
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
