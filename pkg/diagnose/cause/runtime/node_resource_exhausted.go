package runtime

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// The owners of limits, as evidence.Shortage has them, and the variant of a containerd that cannot record the exit of a
// container.
const (
	shim       = "shim"
	containerd = "containerd"
	unrecorded = "Unrecorded"
	unaccepted = "Unaccepted" // a containerd that accepts no connection
)

// NodeResourceExhausted is a shim or a containerd that cannot stop the pod, because a limit or its disk is used up.
//
// A limit that one reading shows used up has room in the next, and the kernel's words for it (EAGAIN, EMFILE) may be
// about another limit. So two things have to show it: a component that reports the refusal, and readings over ten
// seconds, from before that, of the limit that these words name. The pod's own cgroup is left out, because a pod can
// fill it at will. Pressure (PSI) is a remark, never this cause.
var NodeResourceExhausted = &diagnose.Rule{
	Cause:  "NodeResourceExhausted",
	Phases: []diagnose.Phase{diagnose.StopSignal, diagnose.Runtime, diagnose.Sandbox},
	Doc: diagnose.Doc{
		Layer:   "runtime",
		Title:   "containerd or a shim has reached a limit, or its disk is full",
		Who:     diagnose.ByNode,
		Message: "{what}: {short}",
		Phrases: map[string][]diagnose.Choice{
			"what": {
				{Variant: unaccepted, Text: "{process} accepts no new connection"},
				{Variant: unrecorded, Text: "containerd cannot record that container {container} exited"},
				{Variant: aboutSandbox, Text: "each attempt to stop the pod's sandbox fails"},
				{Text: "each attempt to stop container {container} fails"},
				{Text: "each attempt to stop the pod's sandbox fails"},
			},
			"short": {
				{Variant: evidence.Descriptors, Text: "{who} has reached its open file limit (RLIMIT_NOFILE {limit})"},
				{Variant: evidence.Tasks, Text: "{who} can start no process: cgroup {cgroup} has reached pids.max ({limit})"},
				{Variant: evidence.Tasks, Text: "{who} can start no process: its cgroup has reached pids.max ({limit})"},
				{Variant: evidence.Space, Text: "the file system of its records is full (size {size})"},
				{Variant: evidence.Inodes, Text: "the file system of its records has no free inode (of {limit})"},
				{Variant: evidence.ReadOnly, Text: "the file system of its records is read-only"},
				{Text: "{process} has reached a limit"},
			},
			"who": {{Variant: unaccepted, Text: "it"}, {Variant: unrecorded, Text: "it"}, {Text: "{process}"}},
			"measured": {
				{Variant: evidence.Descriptors, Text: "{process} has all {limit} files open that it may have"},
				{Variant: evidence.Tasks, Text: "pids.current has reached pids.max ({limit}) in the cgroup of {process}, or in one above it"},
				{Variant: evidence.Space, Text: "The file system of {dir} has less than 1 MiB free, also for root"},
				{Variant: evidence.Inodes, Text: "The file system of {dir} has no free inode"},
				{Variant: evidence.ReadOnly, Text: "The file system of {dir} is read-only"},
				{Text: "{process} has reached a limit"},
			},
			"said": {
				{Variant: unaccepted, Text: "containerd has not responded to any recent request, and had no open file to spare before that"},
				{Variant: unrecorded, Text: "The CRI status says that container {container} runs, but containerd has no task for it"},
				{Text: "The stop failed with {error}"},
			},
			"retry": {
				{Variant: unaccepted, Text: "containerd then accepts connections again"},
				{Variant: unrecorded, Text: "containerd tries again within five minutes"},
				{Text: "The kubelet's next attempt then succeeds"},
			},
			"restart": {
				{Variant: unaccepted, Text: "restarting kubelet or containerd (may not start)"},
				{Text: "restarting containerd (may not start), killing shims (ends pods)"},
			},
			"kubelet": {
				{Variant: unaccepted, Text: "Do not restart the kubelet: containerd would not accept its new connection. "},
				{Text: ""},
			},
			"df":      {{Text: "df {root}"}, {Text: "df"}},
			"findmnt": {{Text: "findmnt -T {root}"}, {Text: "findmnt"}},
			"group":   {{Text: "/{cgroup}"}, {Text: "of the process (cat /proc/{pid}/cgroup)"}},
		},
		Meaning: "To stop a pod, containerd and the pod's shim start programs (runc, CNI plugins) and open files. The kernel refuses this to a " +
			"process that has used up a limit. containerd also records what has become of each container, for which it makes a new file. " +
			"Nothing is wrong with the pod. Other pods on the node that are started or stopped meet the same limit.",
		Seen:   []string{"{measured}", "{said}"},
		First:  "on the node: raise the limit or free space, as Fix says",
		Avoid:  "{restart}",
		Remedy: "On the node: raise the limit, or free space. {retry}. Then find what used it up.",
		Danger: "{kubelet}Do not restart containerd: without free threads, files or disk space it may not start. " +
			"Do not kill shims to make room: that ends their containers. " +
			"A force delete leaves the pod's containers or sandbox on the node with no API object tracking them.",
		Families: []diagnose.Family{
			{
				Name: evidence.Tasks,
				Meaning: "Shims are in the cgroup of the process that started them. On most nodes all of them are in the cgroup of containerd's unit, each " +
					"with about a dozen threads. A limit on that cgroup (TasksMax of the unit, or of a slice above it) applies to all of them together.",
				First: "ask the owner of that cgroup's limit (TasksMax of a unit, or pids.max) to raise it. How, without a restart: Fix",
				Remedy: "On the node: raise the limit of cgroup {group}. " +
					"If its name ends with .service or .slice, it is a systemd unit: systemctl set-property UNIT TasksMax=infinity, with no restart. " +
					"Otherwise write max to its file pids.max below /sys/fs/cgroup. {retry}. " +
					"Then find what filled it: systemd-cgls, or its file cgroup.procs.",
			},
			{
				Name: evidence.Descriptors,
				Meaning: "containerd needs some open files for each container, connection and watch. A limit below some tens of thousands (LimitNOFILE of " +
					"the unit) is too low for it. With a higher limit, something leaks.",
				First: "on the node, as root: the prlimit command under Fix raises the limit. Use a LIMIT above {limit}. No restart is needed",
				Remedy: "Raise the limit of {process}, on the node: {raisefiles}. Choose a LIMIT above {limit}. {retry}. " +
					"Then see what it has open (ls -l /proc/{pid}/fd), and raise LimitNOFILE of containerd's unit.",
			},
			{
				Name: evidence.Space,
				Meaning: "Before its disk is full, the kubelet removes unused images and evicts pods (imageGCHighThresholdPercent, evictionHard). It does " +
					"not stop what fills the disk faster, or what is on a separate disk.",
				First: "on the node, as root: {df}, then du -xh -d3 MOUNTPOINT | sort -h | tail. " +
					"Ask the owner of the biggest to free space, or enlarge the disk",
				Avoid: "deleting containerd's files, restarting containerd (may not start)",
				Remedy: "On the node: {df} names the mount point, and du -xh on that shows what fills the file system. " +
					"Free space with files that their owners do not need, such as old logs. " +
					"Delete what a running container wrote from inside that container (kubectl exec). Or enlarge the file system. " +
					"containerd tries again within five minutes.",
				Danger: "Do not remove anything in containerd's directory by hand. Do not restart containerd while the disk is full: it may not start. " +
					"Removing unused images (crictl rmi --prune) works only with some space left. An image that was loaded by hand does not come back. " +
					"A force delete leaves the pod's volumes on the node with no API object tracking them.",
			},
			{
				Name: evidence.Inodes,
				Meaning: "Each file and directory needs an inode. ext4 has a fixed number of them, set when the file system is made. Many small files use " +
					"them up while there is still space.",
				First: "on the node, as root: df -i, then du -x --inodes -d3 MOUNTPOINT | sort -n | tail. " +
					"Ask the owner of the most files to remove some",
				Avoid: "deleting containerd's files, restarting containerd (may not start)",
				Remedy: "On the node: {df} names the mount point, and du -x --inodes on that shows where the files are. " +
					"Remove files there that their owners do not need. containerd tries again within five minutes.",
				Danger: "Do not remove anything in containerd's directory by hand. Do not restart containerd before that: it may not start. " +
					"A force delete leaves the pod's volumes on the node with no API object tracking them.",
			},
			{
				Name: evidence.ReadOnly,
				Meaning: "The kernel makes a file system read-only when it finds an error in it or in its disk (mount option errors=remount-ro). No pod on " +
					"the node can be started, and no stop is completed.",
				First: "on the node, as root: if dmesg | grep -iE 'remounting|forced readonly' names that disk: with the pod owners' OK, " +
					"drain (cluster rights), then reboot or replace. If no line: ask who mounted it so",
				Avoid: "making the disk writable before a check (can damage it)",
				Remedy: "On the node: dmesg says why (\"Remounting filesystem read-only\"). If the disk has failed, replace the disk or the node. " +
					"After another error, drain the node as far as possible, then reboot it, so that the file system is checked. " +
					"Without an error, an administrator mounted it so: {findmnt} names the mount, and mount -o remount,rw of that undoes it. " +
					"containerd then tries again within five minutes.",
				Danger: "After an error, do not make the file system writable before it was checked: that can damage it further. " +
					"A force delete leaves the pod's volumes on the node with no API object tracking them.",
			},
		},
	},
	By: diagnose.Ways{forStatus, unaccepting, unrecording, unsignalling, unstopping, relieving, rewriting},
}

// forStatus is that containerd cannot report the sandbox's status, because it can open no file. The kubelet requests that status before each
// of its steps.
var forStatus = diagnose.By[lack]{
	Title: "containerd cannot report the sandbox's status",
	From:  []evidence.Source{evidence.Processes, evidence.Containers}, Partly: limits, Of: statusLacks,
	Facts: slices.Concat(lasting, []diagnose.Fact[lack]{
		{
			Says: "containerd does not report the sandbox's status, because it can open no file.",
			Is:   inLack(failsForFiles),
		},
		{Says: "This has been so for ten seconds.", Is: failsForLong},
		{Says: noneLeft, Pod: diagnose.IfPod(allExited)},
		{Says: "Limits of the pod's own cgroup and of the whole node (kernel.pid_max, kernel.threads-max, fs.file-max) are not checked."},
	}),
	Tell: diagnose.First(tellForStatus),
}

// unaccepting is that containerd accepts no connection. The kubelet was connected before.
var unaccepting = diagnose.By[lack]{
	Title: "containerd accepts no connection",
	From:  processes, Partly: limits, Of: connectionLacks,
	Facts: slices.Concat(lasting, silent[lack](), []diagnose.Fact[lack]{
		{Says: "Three such requests or more have had no response.", Pod: silentThrice},
		{Says: "This has been so for " + fact.Answer.String() + ", as ContainerdHung requires.", Pod: unansweredForLong, Partly: ofContainerd},
		{
			Says: "containerd's main thread is not in uninterruptible sleep (D state). One that is hangs, and runs out of files because of that.",
			Pod:  diagnose.IfPod(notBlocked),
		},
		{Says: "containerd could open no file before that, or at most ten seconds later.", Is: diagnose.If(lackedBefore), Partly: ofContainerd},
		{Says: notAbove, Pod: diagnose.IfPod(reportsStatus)},
		{Says: "Inferred: a containerd that hangs for another reason also runs out of files, because clients that retry open connections."},
	}),
	Tell: diagnose.First(tellUnaccepting),
}

// unrecording is that containerd has deleted the task of a container that has exited, and cannot write its record.
var unrecording = diagnose.By[lack]{
	Title: "containerd cannot record that a container has exited",
	From:  processes, Partly: limits, Of: recordLacks,
	Facts: slices.Concat(lasting, unwritten, []diagnose.Fact[lack]{
		{
			Says: "The exit was " + fact.Disagree.String() + " ago or more.",
			Is:   exitedLongAgo, From: []evidence.Source{evidence.Containers, evidence.Suspects, evidence.Cgroups}, Partly: shims,
		},
		{Says: "The limit has been used up for as long.", Is: lackedForLong},
		{Says: "containerd responds.", Pod: responds, From: []evidence.Source{evidence.Containerd}},
		{Says: "containerd has run for a minute or more.", Pod: hasSettledSeen, From: []evidence.Source{evidence.Containerd}},
		{Says: notAbove, Pod: diagnose.IfPod(accepting)},
		{Says: "Inferred: something else may keep containerd from recording the exit."},
	}),
	Tell: tellUnrecorded,
}

// unsignalling is that the shim, which cannot signal a container that is alive, makes each stop of the pod's sandbox fail, as the kubelet reports.
var unsignalling = diagnose.By[lack]{
	Title: "The shim cannot signal a container",
	From:  reports, Partly: limits, Of: shimLacks,
	Facts: slices.Concat(lasting, failing, []diagnose.Fact[lack]{
		{Says: "By the reports, the shim could not signal a container.", Is: diagnose.If(failsToSignal)},
		{Says: "The limit is that of the pod's shim. " + oneShim, Is: diagnose.If(ofOwnShim)},
		{Says: runsRunc + ".", Is: inLack(ofRunc)},
		{Says: saysRunning, Is: inLack(isRunning)},
		{Says: "The shim says that it runs, too.", Is: inLack(shimSaysRunning), Partly: shims},
		{Says: "The container's first process is alive, and none of its threads has a pending SIGKILL.", Is: inLack(firstIsAlive), Partly: shims},
		{Says: notAbove, Pod: diagnose.IfPod(recording)},
		{Says: "Inferred: any client that may write Events can write these."},
	}),
	Tell: diagnose.First(tellUnsignalling),
}

// unstopping is the same of containerd, when all containers have exited.
var unstopping = diagnose.By[lack]{
	Title: "containerd cannot stop the sandbox",
	From:  reports, Partly: limits, Of: containerdLacks,
	Facts: slices.Concat(lasting, failing, []diagnose.Fact[lack]{
		{Says: "The reports are not about a container that the shim could not signal.", Is: diagnose.If(failsOtherwise)},
		{Says: noneLeft, Pod: diagnose.IfPod(allExited)},
		{Says: notAbove, Pod: diagnose.IfPod(recording)},
		{Says: "Inferred: any client that may write Events can write these."},
	}),
	Tell: diagnose.First(tellUnstopping),
}

// relieving and rewriting leave open whether the next attempt succeeds: the limit is not used up any more, or the record can be written again.
var (
	relieving = diagnose.By[diagnose.ThePod]{
		Title: "The next stop may succeed",
		From:  processes, Partly: limits,
		Facts: []diagnose.Fact[diagnose.ThePod]{
			{Says: "status.phase is not terminal.", Pod: diagnose.IfPod(notEnded)},
			{
				Says: "A limit that the kubelet's last report names has room again, and no failure was reported since.",
				Pod:  diagnose.IfPod(isRelieved), Partly: []evidence.Source{evidence.Events, evidence.Containers},
			},
			{Says: "The kubelet has tried again. It may report that up to six minutes later.", Pod: stopTried},
			{Says: nothingReported},
		},
	}
	rewriting = diagnose.By[lack]{
		Title: "The record may still be written",
		From:  processes, Partly: limits, Of: exits,
		Facts: slices.Concat(unwritten, []diagnose.Fact[lack]{
			{Says: "status.phase is not terminal.", Pod: diagnose.IfPod(notEnded)},
			{Says: "containerd has tried again since it could not write the record. It does so within five minutes.", Is: writeTried},
			{Says: nothingReported},
		}),
	}
)

// The lines and sources that several ways share.
const (
	noneLeft        = "By the CRI status all containers have exited."
	notAbove        = "It is not reported in one of the ways above."
	nothingReported = "Nothing is reported in this way: it only says for how long the cause is not ruled out."
)

var (
	processes = []evidence.Source{evidence.Processes}
	limits    = []evidence.Source{evidence.Limits}
	shims     = []evidence.Source{evidence.Shims}
	reports   = []evidence.Source{evidence.Processes, evidence.Containers, evidence.Events}
)

// lasting are the facts about what is used up.
var lasting = []diagnose.Fact[lack]{
	{
		Says: "A limit is used up. Either pids.current of the process's cgroup, or of one above it, is not below pids.max. Or the process has as " +
			"many files open as /proc/PID/limits allows.",
		Is: diagnose.If(isUsedUp),
	},
	{Says: "Or a file system is full: it has less than 1 MiB free, also for root, or no free inode (statfs). Or it is read-only."},
	{Says: "All readings over ten seconds or more show that.", Is: usedUpForLong},
}

// unwritten are the facts about a container that has exited and whose record containerd cannot write, or could not at its last attempt: it tries
// again. The shortage must have been seen soon after the exit. One that began later has not kept containerd from writing.
var unwritten = []diagnose.Fact[lack]{
	{Says: runsRunc + ".", Is: inLack(ofRunc), From: []evidence.Source{evidence.Containers}},
	{Says: saysRunning, Is: inLack(isRunning), From: []evidence.Source{evidence.Containers}},
	{Says: "containerd has no task for the container.", Is: inLack(isAbsent), Partly: shims},
	{
		Says: "From soon after the exit on, containerd can open no file, or the file system of its records is full or read-only.",
		Is:   inLack(soonLacked), Partly: []evidence.Source{evidence.Containers, evidence.Suspects, evidence.Cgroups, evidence.Shims},
	},
}

// failing are the facts about a stop that fails, as the kubelet reports.
var failing = slices.Concat([]diagnose.Fact[lack]{
	{
		Says: "The kubelet has reported the kernel's error for this limit (Events of this pod with reason FailedKillPod). The ID of the container, " +
			"or of the sandbox, in it is compared with containerd's.",
		Is: diagnose.If(isNamed), From: []evidence.Source{evidence.Suspects, evidence.Shims},
	},
	{Says: "The request has not timed out.", Is: diagnose.If(inTime)},
}, diagnose.StopFails(stopOf), []diagnose.Fact[lack]{
	{Says: recent, Is: diagnose.IfLater(isOfLate, diagnose.Retry)},
	{Says: "The limit has been used up since before that.", Is: diagnose.IfLater(lackedAtLast, diagnose.Retry)},
})

// A lack is what is used up, with what shows that it holds the pod up.
type lack struct {
	*evidence.Shortage
	container *evidence.Container  // that cannot be stopped or recorded, nil for none
	stop      *fact.SandboxFailure // what the kubelet reports of the stop, nil for nothing
}

// Named returns what it is, in words.
func (l lack) Named(*fact.View) string {
	var of []string
	if l.Shortage != nil {
		of = append(of, fmt.Sprintf("the limit of %.40q (PID %d) on %s", l.Owner, l.PID, l.Resource))
	}
	if l.container != nil {
		of = append(of, fmt.Sprintf("container %.63q", l.container.Name))
	}
	return strings.Join(of, ", ")
}

// lacks returns what an owner has used up of a resource, for each of some containers.
func lacks(p *fact.View, owner string, of func(*evidence.Shortage) bool, stop *fact.SandboxFailure, about ...*evidence.Container) (out []lack) {
	for _, c := range about {
		for i := range p.Shortages {
			if s := &p.Shortages[i]; s.Owner == owner && of(s) {
				out = append(out, lack{s, c, stop})
			}
		}
	}
	return out
}

func ofFiles(s *evidence.Shortage) bool { return s.Resource == evidence.Descriptors }

func statusLacks(p *fact.View) []lack {
	sandboxes := slices.DeleteFunc(containers(p), func(c *evidence.Container) bool { return c.Kind != evidence.Sandbox })
	return lacks(p, containerd, ofFiles, nil, sandboxes...)
}

func connectionLacks(p *fact.View) []lack { return lacks(p, containerd, ofFiles, nil, nil) }

func recordLacks(p *fact.View) []lack {
	return lacks(p, containerd, (*evidence.Shortage).Unwritable, nil, programs(p)...)
}

func shimLacks(p *fact.View) []lack { return stopLacks(p, shim) }

func containerdLacks(p *fact.View) []lack { return stopLacks(p, containerd) }

// stopLacks returns what an owner has used up, of a pod whose stop fails.
func stopLacks(p *fact.View, owner string) []lack {
	f := p.SandboxStop
	if f == nil {
		return nil
	}
	c, _ := p.Container(f.ID)
	return lacks(p, owner, func(*evidence.Shortage) bool { return true }, f, c)
}

// exits returns the containers.
func exits(p *fact.View) (out []lack) {
	for _, c := range programs(p) {
		out = append(out, lack{container: c})
	}
	return out
}

// inLack makes a fact of one about the container.
func inLack(is func(*fact.View, *evidence.Container) bool) func(*fact.View, lack) diagnose.Holding {
	return func(p *fact.View, l lack) diagnose.Holding {
		return diagnose.Is(l.container != nil && is(p, l.container))
	}
}

func isUsedUp(_ *fact.View, l lack) bool { return l.Ended.IsZero() }

// usedUpForLong answers whether readings in a row have shown it used up for fact.SlowDevice. What others fail at is not held back before that.
func usedUpForLong(p *fact.View, l lack) diagnose.Holding {
	return diagnose.Lasted(p, l.Since, fact.SlowDevice, diagnose.Slow).Unawaited(p)
}

func failsForFiles(_ *fact.View, c *evidence.Container) bool {
	return fact.Exhausted(c.StatusError) == evidence.Descriptors
}

func failsForLong(p *fact.View, l lack) diagnose.Holding {
	return diagnose.Lasted(p, l.container.StatusErrorSince, fact.SlowDevice, diagnose.Slow).Unawaited(p)
}

func allExited(p *fact.View) bool { return !containersLeft(p) }

func notBlocked(p *fact.View) bool {
	return !slices.ContainsFunc(containerdProcess(p), func(t *evidence.Task) bool { return isBlocked(p, t) })
}

// lackedBefore reports whether it was used up before containerd's silence began. The first reading of a node may see both.
func lackedBefore(p *fact.View, l lack) bool {
	return l.Since.Sub(p.Node.Containerd.UnansweredSince) < fact.SlowDevice
}

func soonLacked(p *fact.View, c *evidence.Container) bool {
	return p.Unwritable != nil && p.Unwritable.First.Sub(c.VacantSince) < soonAfter
}

func exitedLongAgo(p *fact.View, l lack) diagnose.Holding {
	return vacantForLong(p, l.container).Unawaited(p)
}

func lackedForLong(p *fact.View, l lack) diagnose.Holding { return disagreed(p, l.Since).Unawaited(p) }

func hasSettledSeen(p *fact.View) diagnose.Holding { return hasSettled(p).Unawaited(p) }

func isNamed(_ *fact.View, l lack) bool { return l.Resource == fact.Exhausted(l.stop.Error) }

func inTime(_ *fact.View, l lack) bool { return !l.stop.TimedOut() }

func stopOf(_ *fact.View, l lack) *fact.SandboxFailure { return l.stop }

func isOfLate(p *fact.View, l lack) bool { return ofLate(p, l.stop) }

func lackedAtLast(_ *fact.View, l lack) bool { return l.stop.Last.After(l.Since) }

func failsToSignal(_ *fact.View, l lack) bool { return strings.Contains(l.stop.Error, afterKill) }

func failsOtherwise(p *fact.View, l lack) bool { return !failsToSignal(p, l) }

func ofOwnShim(p *fact.View, l lack) bool {
	own := ownShim(p)
	return own != nil && own.PID == l.PID
}

func firstIsAlive(p *fact.View, c *evidence.Container) bool { return alive(p, c) != nil }

func notEnded(p *fact.View) bool { return !p.ContainersEnded() }

// reportsStatus, accepting and recording report whether none of the first ways finds anything.
func reportsStatus(p *fact.View) bool { return !finds(p, forStatus) }

func accepting(p *fact.View) bool { return reportsStatus(p) && !finds(p, unaccepting) }

func recording(p *fact.View) bool { return accepting(p) && !finds(p, unrecording) }

// finds reports whether all facts of a way are so for something that is used up.
func finds(p *fact.View, by diagnose.By[lack]) bool {
	return slices.ContainsFunc(by.Of(p), func(l lack) bool {
		return !slices.ContainsFunc(by.Facts, func(f diagnose.Fact[lack]) bool {
			return fact.Missing(p, f.From...) || f.Is != nil && !f.Is(p, l).Yes() || f.Pod != nil && !f.Pod(p).Yes()
		})
	})
}

// stopTried answers whether the kubelet has tried again, which its next report shows.
func stopTried(p *fact.View) diagnose.Holding {
	f := p.SandboxStop
	if f == nil {
		return diagnose.Is(true)
	}
	return diagnose.NotYet(diagnose.Waits(f.Last, fact.FailureSilence, diagnose.Retry))
}

// writeTried answers whether containerd has tried again to write the record of a container, which the record shows. It runs short again and again:
// that is open until shortly before diagnose.LastWait has passed since the exit.
func writeTried(p *fact.View, l lack) diagnose.Holding {
	if p.Unwritable == nil {
		return diagnose.Is(true)
	}
	o := diagnose.Waits(p.Unwritable.Last, fact.Retries, diagnose.Retry)
	o.Container = l.container.Name
	if last := l.container.VacantSince.Add(diagnose.LastWait); o.Until.After(last) {
		o.Since, o.Until = l.container.VacantSince, last
	}
	return diagnose.NotYet(o)
}

func tellForStatus(_ *fact.View, l lack) diagnose.Finding {
	return diagnose.Finding{Family: l.Resource, Confidence: diagnose.Proved, Objects: usedUp(l.Shortage, l.container.StatusError)}
}

func tellUnaccepting(_ *fact.View, l lack) diagnose.Finding {
	return diagnose.Finding{Family: l.Resource, Confidence: diagnose.Inferred, Variants: []string{unaccepted}, Objects: usedUp(l.Shortage, "")}
}

// tellUnrecorded tells of each container with what has been used up for the longest time.
func tellUnrecorded(_ *fact.View, found []lack) (out []diagnose.Finding) {
	oldest := slices.MinFunc(found, func(a, b lack) int { return a.Since.Compare(b.Since) })
	for _, l := range found {
		if l.Shortage == oldest.Shortage {
			out = append(out, diagnose.Finding{
				Container: l.container.Name, Family: l.Resource, Confidence: diagnose.Inferred, Variants: []string{unrecorded}, Objects: usedUp(l.Shortage, ""),
			})
		}
	}
	return out
}

func tellUnsignalling(_ *fact.View, l lack) diagnose.Finding {
	_, text, _ := strings.Cut(l.stop.Error, afterKill)
	out := about(l.container, diagnose.Inferred)
	out.Family, out.Objects = l.Resource, usedUp(l.Shortage, text)
	return out
}

func tellUnstopping(_ *fact.View, l lack) diagnose.Finding {
	return diagnose.Finding{Family: l.Resource, Confidence: diagnose.Inferred, Objects: usedUp(l.Shortage, l.stop.Error)}
}

// usedUp returns the objects of a finding about a limit. The text ends with what runc has printed, or with <nil> if it was
// not started (runOrError in github.com/containerd/go-runc).
func usedUp(s *evidence.Shortage, text string) diagnose.Objects {
	return diagnose.Objects{
		Process: &diagnose.Process{PID: s.PID, Comm: s.Owner}, Cgroup: s.Cgroup, Limit: s.Limit, Dir: s.Dir,
		Error: strings.TrimSuffix(strings.TrimSuffix(text, `\n`), ": <nil>"),
	}
}

// isRelieved reports whether the next attempt may succeed: the limit is not used up any more, and no failure has been
// reported since.
func isRelieved(p *fact.View) bool {
	f := p.SandboxStop
	return f != nil && slices.ContainsFunc(p.Shortages, func(s evidence.Shortage) bool {
		return s.Resource == fact.Exhausted(f.Error) && !s.Ended.IsZero() && !f.Last.After(s.Ended)
	})
}

// soonAfter is how long after a container's exit the first reading may come that shows that containerd cannot record it:
// on a busy node that is some rounds later.
const soonAfter = 30 * time.Second
