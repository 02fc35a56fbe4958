package runtime

import (
	"slices"
	"strings"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// What a shim can answer about a task.
const (
	running = "running"
	stopped = "stopped"
)

// The families of ExitEventLost.
const (
	shimDenies = "ShimDenies" // the shim says that the container runs
	taskGone   = "TaskGone"   // containerd has no task of the container any more
)

// shimBlocked is the variant of ShimDenies where a thread of the shim hangs in the kernel.
const shimBlocked = "ShimBlocked"

// ExitEventLost is a container that has exited, but that containerd still records as running.
var ExitEventLost = &diagnose.Rule{
	Cause:  "ExitEventLost",
	Phases: []diagnose.Phase{diagnose.StopSignal, diagnose.Kill, diagnose.Runtime, diagnose.Sandbox},
	Doc: diagnose.Doc{
		Layer:   "runtime",
		Title:   "containerd still records an exited container as running",
		Who:     diagnose.ByNode,
		Message: "{what} has exited, but containerd still records it as running{shim}",
		Phrases: map[string][]diagnose.Choice{
			"what":   {{Variant: aboutSandbox, Text: "the pod's sandbox"}, {Text: "container {container}"}},
			"attach": {{Variant: aboutSandbox, Text: ""}, {Text: "End every kubectl attach to the container. "}},
			"grep": {
				{Variant: aboutSandbox, Text: "journalctl -u containerd | grep -E 'handle sandbox (exit|TaskExit)'"},
				{Text: "journalctl -u containerd | grep 'handle container TaskExit'"},
			},
			"logged": {{Variant: aboutSandbox, Text: "'handle sandbox exit' (1.7: 'sandbox TaskExit')"}, {Text: "'handle container TaskExit'"}},
			"shim": {
				{Variant: shimBlocked, Text: ", and so does its shim (PID {pid}). A thread of the shim hangs in the kernel (D state)"},
				{Variant: shimDenies, Text: ", and so does its shim (PID {pid})"},
				{Variant: taskGone, Text: ", though it has no task for it"},
				{Text: ", although its shim (PID {pid}) says stopped"},
			},
			"saw": {
				{Variant: shimBlocked, Text: "The shim (PID {pid}) says running, and thread {thread} of the shim is in D state in {function}"},
				{Variant: shimDenies, Text: "The shim (PID {pid}) says running"},
				{Variant: taskGone, Text: "containerd has no task for it"},
				{Text: "The shim (PID {pid}) says stopped"},
			},
			"look": {
				{Variant: shimBlocked, Text: "on the node, as root: timeout 5 cat /proc/{pid}/task/*/stack. " +
					"If it shows fanotify, have the antivirus or EDR restarted. If not: Fix"},
				{Variant: endable, Text: runcOrEnd},
				{Text: runcOrSave},
			},
			"waited": {
				{Variant: shimBlocked, Text: "repair what the shim's thread {thread} waits for in {function}; cat /proc/{thread}/stack shows it. " +
					"If that is a fanotify function, a permission listener (antivirus, EDR) has not responded: restart that listener. The shim then resumes"},
				{Text: "ps -o pid,ppid,stat,wchan:30,comm --ppid {pid} -p {pid} lists the shim's children. " +
					"A hung runc there, or a process from an exec that has left the container's cgroup, is the cause. Repair what it waits for. " +
					"Without such a child, save a goroutine dump, which goes to containerd's log: {dump}. {last}. " +
					"Restarting containerd alone does not help: it asks the same shim"},
			},
			"last": {
				{Variant: endable, Text: endShim},
				{Text: "Then drain the node and reboot it; kubectl drain with --skip-wait-for-delete-timeout=60 does not wait for this pod"},
			},
			"keep":    keepShim,
			"spare":   {{Variant: endable, Text: "restarting containerd (asks the same shim)"}, {Text: "killing the shim (loses exit codes and output)"}},
			"version": {{Text: " ({containerd})"}, {Text: ""}},
			"known": {
				{Text: "containerd {containerd} is known to lose the exit of a container: containerd issue {issue}, fixed in {fixed}"},
				{Text: "It is reported, but not confirmed, that containerd {containerd} can lose the exit of a container: containerd issue {issue}"},
			},
		},
		Meaning: "When a container exits, its shim reports that to containerd. containerd deletes the task, and writes the exit to the CRI status " +
			"that the kubelet reads. Here that has not happened. The kubelet requests the stop again and again, and each request times out. The " +
			"same can happen to the pod's sandbox, the container in which the pause program runs and which exits last.",
		Seen: []string{"The CRI status of containerd{version} says running, but the kernel shows no process of {what}", "{saw}", "{known}"},
		First: "on the node, as root: repair the error at {logged} with its ID in containerd's log (journalctl -u containerd). " +
			"If no line: the check under Fix",
		Avoid: "restarting containerd before that check (can end all pods)",
		Remedy: "On the node: {grep}. A match for this pod means that containerd knows of the exit, and names the reason: repair that. {attach}" +
			"Without a match, if systemctl show -p KillMode containerd prints KillMode=process: systemctl restart containerd. " +
			"containerd then asks the shim as it starts, and the pod terminates. Containers keep running through the restart.",
		Danger: "Do not restart containerd with a KillMode other than process: that kills every container on the node. Do not remove " +
			"anything below /run/containerd. " +
			"A force delete leaves the pod's sandbox, addresses and volumes on the node with no API object tracking them.",
		Families: []diagnose.Family{
			{
				Name: shimDenies,
				Meaning: "The shim itself has not handled the exit of the container. It may wait for a runc that it has started, or for a lock. Or it waits " +
					"in the kernel, where it opens files of the container's cgroup.",
				First:  "{look}",
				Avoid:  "{spare}",
				Remedy: "On the node: {waited}.",
				Danger: "{keep}" +
					"A force delete leaves the pod's sandbox, addresses and volumes on the node with no API object tracking them.",
			},
			{
				Name: taskGone,
				Meaning: "containerd has deleted the task, but has not updated the CRI status. It could not write the update, for a reason that was not " +
					"seen, or it was interrupted.",
				First: "on the node, as root: repair the error at 'failed to update container state' with its ID in containerd's log (retried within 5 minutes). " +
					"If no line: Fix",
				Avoid: "restarting containerd before the check in Fix (can end all pods)",
				Remedy: "On the node: journalctl -u containerd | grep 'failed to update container state' says why the write failed. " +
					"dmesg and df show whether the disk of /var/lib/containerd works and has space. Repair that: containerd tries again within five minutes. " +
					"If the disk works and the pod stays, and if systemctl show -p KillMode containerd prints KillMode=process: systemctl restart containerd.",
			},
		},
	},
	By: diagnose.Ways{
		diagnose.By[*evidence.Container]{
			Title: "The exit is lost",
			From:  []evidence.Source{evidence.Containers},
			Of:    containers,
			Facts: slices.Concat([]diagnose.Fact[*evidence.Container]{
				{Says: runsRunc + ": its processes are visible to the node's kernel.", Is: diagnose.If(ofRunc)},
				{Says: saysRunning, Is: diagnose.If(isRunning)},
				vacant,
				{Says: "This has lasted for " + fact.Disagree.String() + ".", Is: vacantForLong, From: vacant.From, Partly: shims},
			}, containerdSettled[*evidence.Container](), []diagnose.Fact[*evidence.Container]{
				{
					Says: "It has also lasted for as long as the pod had been past its deadline when it began, up to five minutes. containerd retries " +
						"after pauses that double.",
					Is: nextTryFailed, From: vacant.From, Partly: shims,
				},
				{Says: afterContainers, Is: diagnose.If(containersFirst)},
				{
					Says: "containerd has a task for it, if it is the sandbox. The kubelet waits for no sandbox without one.",
					Is:   diagnose.If(sandboxHasTask),
				},
				{Says: "The container's cgroup has no process.", Is: diagnose.If(groupEmpty), From: []evidence.Source{evidence.Cgroups}},
				{
					Says: "The pod has one shim that is known for certain, or containerd has no task for the container.",
					Is:   unlessGone(diagnose.If(ofOneShim)), From: processes, Partly: shims,
				},
				{
					Says: "The shim is not stopped or traced, or containerd has no task for the container.",
					Is:   unlessGone(diagnose.If(ofLiveShim)), From: processes, Partly: shims,
				},
				{
					Says: "The container's cgroup still exists, unless systemd manages it, or containerd has no task for the container. runc would have " +
						"removed the cgroup if containerd had begun to delete the task.",
					Is: unlessGone(diagnose.If(groupLeft)), From: []evidence.Source{evidence.Cgroups}, Partly: shims,
				},
				{
					Says: "No process has held the container's output open for five minutes, as far as nodeagent has seen, or containerd has no task for " +
						"the container.",
					Is: unlessGone(notHeldOf), From: []evidence.Source{evidence.Suspects},
				},
				{
					Says: "The shim does not wait for an exec: it has no output of one open in the container, or no child outside the pod's cgroups. " +
						"Asked only if the shim says that the container runs.",
					Is: diagnose.If(noExec), From: []evidence.Source{evidence.Suspects},
				},
				{
					Says: "No runtime command such as runc is at work on the container: the shim would wait for that. Asked only if the shim says that " +
						"the container runs.",
					Is: diagnose.If(noCommand), Partly: []evidence.Source{evidence.RuntimeCommands},
				},
				{
					Says: "No runtime command has been at work on it for " + fact.Disagree.String() + ", or containerd has no task for the container.",
					Is:   unlessGone(noCommandForLong),
				},
				{Says: "A thread of the shim is named if it has been in D state without moving for half a minute."},
				{Says: "Inferred: runc may fail to start or to delete the container (see containerd's log). Or containerd may still be writing the last " +
					"output: /var/log/pods is on a slow disk, or a kubectl attach does not read."},
			}),
			Tell: diagnose.Each(tellLost),
		},
		diagnose.By[*evidence.Container]{
			Title: "The exit may still be recorded",
			From:  []evidence.Source{evidence.Containers},
			Of:    containers,
			Facts: []diagnose.Fact[*evidence.Container]{
				{Says: vacant.Says, Is: vacant.Is},
				{
					Says: "containerd has tried again since a process held the container's output open. It does so within five minutes.",
					Is:   triedAgain,
				},
				{Says: "Nothing is reported in this way. Until the next try, containerd may still record the exit, whatever else is seen."},
			},
		},
	},
}

// The lines that several rules share.
const (
	runsRunc        = "The container's runtime is io.containerd.runc.v2"
	saysRunning     = "containerd's CRI status says that the container runs."
	afterContainers = "By the CRI status all containers have exited, if it is the sandbox: containerd stops it when they have."
)

// vacant is that no task of a container is left, and the shim need not wait for any: a reading shows all of it, or nothing.
var vacant = diagnose.Fact[*evidence.Container]{
	Says: "The kernel shows no task of it. The shim has closed its output, and says that it has stopped, or that it runs although no process has " +
		"its PID any more (ShimDenies). Or containerd has no task for it (TaskGone).",
	Is:   diagnose.If(isVacant),
	From: []evidence.Source{evidence.Processes, evidence.Cgroups, evidence.Suspects}, Partly: shims,
}

// containerdSettled are the facts about containerd where views of a container are compared.
func containerdSettled[T any]() []diagnose.Fact[T] {
	return []diagnose.Fact[T]{
		{Says: "containerd responds.", Pod: responds, From: []evidence.Source{evidence.Containerd}},
		{Says: "containerd has run for a minute or more.", Pod: hasSettled, From: []evidence.Source{evidence.Containerd}},
	}
}

// responds answers whether containerd responds. One that does not may do so at the next request.
func responds(p *fact.View) diagnose.Holding {
	return diagnose.IsOr(p.Node.Containerd.Error == "", diagnose.Seen(p, diagnose.Slow))
}

// hasSettled answers whether containerd has run for as long as settles.
func hasSettled(p *fact.View) diagnose.Holding {
	since := p.Node.Containerd.ConnectedSince
	if since.IsZero() {
		return diagnose.NotRead(evidence.Containerd)
	}
	return diagnose.LastedOnNode(p, since, settles, diagnose.Restarting)
}

// disagreed answers whether views have disagreed since a time for as long as they have to: not yet before that.
func disagreed(p *fact.View, since time.Time) diagnose.Holding {
	return diagnose.Lasted(p, since, fact.Disagree.With(p), diagnose.Slow)
}

func isVacant(_ *fact.View, c *evidence.Container) bool { return !c.VacantSince.IsZero() }

func vacantForLong(p *fact.View, c *evidence.Container) diagnose.Holding {
	return disagreed(p, c.VacantSince)
}

func nextTryFailed(p *fact.View, c *evidence.Container) diagnose.Holding {
	return diagnose.Lasted(p, c.VacantSince, fact.NextTry(p, c.VacantSince), diagnose.Retry)
}

// containersFirst reports whether all containers have exited, of a container that is the sandbox.
func containersFirst(p *fact.View, c *evidence.Container) bool {
	return c.Kind != evidence.Sandbox || !containersLeft(p)
}

func sandboxHasTask(_ *fact.View, c *evidence.Container) bool {
	return c.Kind != evidence.Sandbox || !c.Task.Absent
}

func groupEmpty(p *fact.View, c *evidence.Container) bool {
	g := groupOf(p, c)
	return g == nil || !g.Populated
}

// unlessGone makes a fact about what the shim may wait for. Where containerd has no task of the container it need not be so.
func unlessGone(is func(*fact.View, *evidence.Container) diagnose.Holding) func(*fact.View, *evidence.Container) diagnose.Holding {
	return func(p *fact.View, c *evidence.Container) diagnose.Holding {
		if c.Task.Absent {
			return diagnose.Is(true)
		}
		return is(p, c)
	}
}

func ofOneShim(p *fact.View, _ *evidence.Container) bool { return ownShim(p) != nil }

func ofLiveShim(p *fact.View, _ *evidence.Container) bool {
	shim := ownShim(p)
	return shim != nil && !fact.Halted(shim)
}

func groupLeft(p *fact.View, c *evidence.Container) bool { return groupOf(p, c) != nil || bySystemd(p) }

// notHeldOf answers whether no process has held a container's output open for as long as containerd waits between two tries. The second way
// says until when that is open.
func notHeldOf(p *fact.View, c *evidence.Container) diagnose.Holding {
	if triedAgain(p, c).Yes() {
		return diagnose.Is(true)
	}
	return diagnose.NotYet(diagnose.Open{})
}

// triedAgain answers whether containerd has tried again to record the exit of a container since something may have held its output open.
func triedAgain(p *fact.View, c *evidence.Container) diagnose.Holding {
	if p.Time.Sub(c.Task.HeldUntil) >= fact.Retries {
		return diagnose.Is(true)
	}
	o := diagnose.Waits(c.Task.HeldUntil, fact.Retries, diagnose.Next)
	o.Container = c.Name
	return diagnose.NotYet(o)
}

func noExec(p *fact.View, c *evidence.Container) bool {
	return c.Task.Status != running || !c.Task.Executed || len(p.ShimChildren) == 0
}

// noCommand reports whether no runtime command of the shim is at work on a container, as far as is seen. The shim reports
// the exit when what is being executed there has exited.
func noCommand(p *fact.View, c *evidence.Container) bool {
	return c.Task.Status != running || !commanded(p, c)
}

// noCommandForLong answers the same for a while: the shim may have waited until a moment ago. Commands may come and go.
func noCommandForLong(p *fact.View, c *evidence.Container) diagnose.Holding {
	if c.Task.CommandedUntil.IsZero() {
		return diagnose.Is(true)
	}
	return disagreed(p, c.Task.CommandedUntil).Unawaited(p)
}

func tellLost(p *fact.View, c *evidence.Container) diagnose.Finding {
	f := about(c, diagnose.Inferred)
	f.Objects.Containerd = p.Node.Containerd.Version
	shim := ownShim(p)
	if c.Task.Absent || shim == nil {
		f.Family = taskGone // containerd may try again
		return f
	}
	if c.Task.Status == running {
		f.Family = shimDenies
		if t := blockedThread(p, shim); t != nil {
			f.Objects.Thread, f.Variants = diagnose.ThreadOf(t), append(f.Variants, shimBlocked)
		} else if mayEnd(p) {
			f.Variants = append(f.Variants, endable)
		}
	}
	f.Objects.Process = diagnose.ProcessOf(p, shim)
	if b := knownBug(p, c); b != nil {
		f.Objects.Issue, f.Objects.FixedIn = b.issue, b.fixed.String()
	}
	return f
}

// blockedThread returns a thread of the shim that has hung in the kernel for as long as views have
// to disagree; nil when none is seen.
func blockedThread(p *fact.View, shim *evidence.Task) *evidence.Task {
	i := slices.IndexFunc(p.Node.Blocked, func(t evidence.Task) bool {
		return t.PID == shim.PID && fact.SleepsIn(&t) != "" && t.Unchanged(p.Time) >= fact.Disagree.Usual
	})
	if i < 0 {
		return nil
	}
	return &p.Node.Blocked[i]
}

// settles is how long containerd must have run before views of a container are compared. As it starts, it reads all
// its containers, with ten seconds for each (internal/cri/server/restart.go, loadContainerTimeout). Here containerd
// and the shim respond, so less patience is needed than with one that does not (fact.SilentForLong).
const (
	settles = time.Minute
)

// about starts a finding about a container, or about the pod's sandbox.
func about(c *evidence.Container, confidence diagnose.Confidence) diagnose.Finding {
	if c.Kind == evidence.Sandbox {
		return diagnose.Finding{Variants: []string{aboutSandbox}, Confidence: confidence}
	}
	return diagnose.Finding{Container: c.Name, Confidence: confidence}
}

// commanded reports whether a runtime command of the shim is at work on a container, or that is not known. The shim
// reports the exit when what is being executed there has exited.
func commanded(p *fact.View, c *evidence.Container) bool {
	return fact.Missing(p, evidence.RuntimeCommands) ||
		slices.ContainsFunc(p.RuntimeCommands, func(r evidence.RuntimeCommand) bool { return r.Container == c.ID })
}

// containersLeft reports whether the CRI status says that a container of the pod has not exited. containerd stops the
// sandbox when all have (internal/cri/server/sandbox_stop.go, stopPodSandbox).
func containersLeft(p *fact.View) bool {
	return slices.ContainsFunc(p.Containers, func(c evidence.Container) bool {
		return c.Kind != evidence.Sandbox && c.ID != "" && c.State != evidence.StateExited
	})
}

// ownShim returns the pod's shim; nil when there is none, or several may be it. That is so with a process that came
// from another pod, or with an older sandbox: which shim responds for the container is then not known.
func ownShim(p *fact.View) *evidence.Task {
	all := fact.Shims(p)
	if len(all) == 0 || all[0].Owner != "shim" {
		return nil // only its name is that of a shim
	}
	for i := range p.Parents {
		if t := &p.Parents[i]; t != all[0] && t.Owner == "shim" {
			return nil
		}
	}
	return all[0]
}

// bySystemd reports whether systemd manages the pod's cgroups. It removes a container's scope as soon as that is empty.
func bySystemd(p *fact.View) bool {
	return slices.ContainsFunc(p.Cgroups, func(g evidence.Cgroup) bool { return g.Container == "" && strings.HasSuffix(g.Path, ".slice") })
}

// groupOf returns the cgroup of a container, nil when there is none.
func groupOf(p *fact.View, c *evidence.Container) *evidence.Cgroup {
	i := slices.IndexFunc(p.Cgroups, func(g evidence.Cgroup) bool { return g.Container == c.ID })
	if i < 0 {
		return nil
	}
	return &p.Cgroups[i]
}
