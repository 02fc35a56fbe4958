package runtime

import (
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
	Needs:  []evidence.Source{evidence.Processes},
	Partly: []evidence.Source{evidence.Limits, evidence.Containers, evidence.Events, evidence.Suspects, evidence.Shims, evidence.Cgroups, evidence.Containerd},
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
		Evidence: []string{
			"All readings over ten seconds or more find a limit used up. Either pids.current of the process's cgroup, or of one above it, is " +
				"not below pids.max. Or the process has as many files open as /proc/PID/limits allows.",
			"A file system counts as full if it has less than 1 MiB free, also for root, or no free inode (statfs).",
			"In addition, one of the next four is the case. First: containerd has not reported the sandbox's status for ten seconds, because it " +
				"can open no file. No process of the pod's containers is alive.",
			"Second: containerd has no task for an exited container, but its CRI status has said running for " + fact.Disagree.String() + ". From soon after the " +
				"exit on, containerd can open no file, or the file system of its records is full or read-only.",
			"Third: containerd has not responded to any request of nodeagent, for as long as ContainerdHung requires. Before that, it could " +
				"open no file.",
			"Fourth: the kubelet has reported at least twice that the stop failed with the kernel's error for this limit (Events of this pod " +
				"with reason FailedKillPod). The reports came since the deletion, over eight seconds or more.",
			"The last of these reports is recent, and the limit has been used up since before it. The ID of the container, or of the sandbox, " +
				"in it is compared with containerd's.",
			"If the shim could not signal a container, the container's first process is alive, and none of its threads has a pending SIGKILL.",
			"Inferred, except for the first. A containerd that hangs for another reason also runs out of files, because clients that retry open " +
				"connections.",
			"Not reported if the limit is used up only for a moment. Limits of the pod's own cgroup and of the whole node (kernel.pid_max, " +
				"kernel.threads-max, fs.file-max) are not checked.",
		},
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
	Check: func(p *fact.View) diagnose.Result {
		return diagnose.Result{Found: exhausted(p), Open: mayBeExhausted(p)}
	},
}

// mayBeExhausted returns until when it is open whether the next attempt succeeds: the limit is not used up any more, or
// the record can be written again.
func mayBeExhausted(p *fact.View) []diagnose.Open {
	if p.ContainersEnded() {
		return nil // it has been stopped
	}
	var out []diagnose.Open
	if f := fact.SandboxStop(p); f != nil && relieved(p, f) {
		out = append(out, diagnose.Waits(f.Last, fact.FailureSilence, diagnose.Retry))
	}
	for i := range p.Containers {
		if c := &p.Containers[i]; unwritten(p, c) {
			o := diagnose.Waits(p.Unwritable.Last, fact.Retries, diagnose.Retry)
			o.Container = c.Name
			if last := c.VacantSince.Add(diagnose.LastWait); o.Until.After(last) { // it runs short again and again
				o.Since, o.Until = c.VacantSince, last
			}
			out = append(out, o)
		}
	}
	return out
}

// exhausted returns what has used up a limit, or its disk.
func exhausted(p *fact.View) []diagnose.Finding {
	if s, err := shortForStatus(p); s != nil {
		return []diagnose.Finding{{Family: s.Resource, Confidence: diagnose.Proved, Objects: usedUp(s, err)}}
	}
	if s := unacceptedBy(p); s != nil {
		return []diagnose.Finding{{Family: s.Resource, Confidence: diagnose.Inferred, Variants: []string{unaccepted}, Objects: usedUp(s, "")}}
	}
	if out := unrecordedEnds(p); len(out) > 0 {
		return out
	}
	return failedStop(p)
}

// failedStop returns the limit that makes each stop of the pod's sandbox fail, as the kubelet reports. It is the shim's,
// which cannot signal a container that is alive, or containerd's, when all containers have exited.
func failedStop(p *fact.View) []diagnose.Finding {
	f := fact.SandboxStop(p)
	if f == nil || fact.Missing(p, evidence.Containers, evidence.Events, evidence.Suspects, evidence.Shims) ||
		f.TimedOut() || !f.Persists(p) || !f.StillTries(p) || !ofLate(p, f) {
		return nil
	}
	if _, text, signals := strings.Cut(f.Error, afterKill); signals {
		c, known := p.Container(f.ID)
		s, own := shortage(p, shim, fact.Exhausted(f.Error), f.Last), ownShim(p)
		if s == nil || own == nil || own.PID != s.PID || !known || alive(p, c) == nil {
			return nil // also if several shims may be the pod's
		}
		out := about(c, diagnose.Inferred)
		out.Family, out.Objects = s.Resource, usedUp(s, text)
		return []diagnose.Finding{out}
	}
	if s := shortage(p, containerd, fact.Exhausted(f.Error), f.Last); s != nil && !containersLeft(p) {
		return []diagnose.Finding{{Family: s.Resource, Confidence: diagnose.Inferred, Objects: usedUp(s, f.Error)}}
	}
	return nil
}

// shortForStatus returns the limit for which containerd cannot report the sandbox's status, because it can open no file;
// nil when there is none. The kubelet requests that status before each of its steps.
func shortForStatus(p *fact.View) (s *evidence.Shortage, err string) {
	for i := range p.Containers {
		c := &p.Containers[i]
		if c.Kind != evidence.Sandbox || fact.Exhausted(c.StatusError) != evidence.Descriptors || c.StatusErrorSince.IsZero() ||
			p.Time.Sub(c.StatusErrorSince) < fact.SlowDevice || containersLeft(p) {
			continue
		}
		if s := shortage(p, containerd, evidence.Descriptors, p.Time); s != nil {
			return s, c.StatusError
		}
	}
	return nil, ""
}

// unacceptedBy returns the limit for which containerd accepts no connection. It has responded to no request of nodeagent
// for as long as ContainerdHung requires. The kubelet was connected before.
func unacceptedBy(p *fact.View) *evidence.Shortage {
	c := &p.Node.Containerd
	if c.Refused || c.UnansweredSince.IsZero() || c.Attempts < 3 || !fact.SilentForLong(p, c.UnansweredSince, c.Asked) {
		return nil
	}
	if c.Process != nil && c.Process.State == evidence.Uninterruptible {
		return nil // it hangs, and runs out of files because of that
	}
	// The first reading of a node may see both.
	if s := shortage(p, containerd, evidence.Descriptors, p.Time); s != nil && s.Since.Sub(c.UnansweredSince) < fact.SlowDevice {
		return s
	}
	return nil
}

// unrecordedEnds returns the containers that have exited and whose task containerd has deleted, but whose record it
// cannot write. All readings show that, for as long as views have to disagree.
func unrecordedEnds(p *fact.View) []diagnose.Finding {
	s := unwritable(p)
	if s == nil || !disagree(p, s.Since) || fact.Missing(p, evidence.Containers, evidence.Suspects, evidence.Cgroups, evidence.Containerd) {
		return nil
	}
	var out []diagnose.Finding
	for i := range p.Containers {
		c := &p.Containers[i]
		if unwritten(p, c) && disagree(p, c.VacantSince) {
			out = append(out, diagnose.Finding{
				Container: c.Name, Family: s.Resource, Confidence: diagnose.Inferred, Variants: []string{unrecorded}, Objects: usedUp(s, ""),
			})
		}
	}
	return out
}

// usedUp returns the objects of a finding about a limit. The text ends with what runc has printed, or with <nil> if it was
// not started (runOrError in github.com/containerd/go-runc).
func usedUp(s *evidence.Shortage, text string) diagnose.Objects {
	return diagnose.Objects{
		Process: &diagnose.Process{PID: s.PID, Comm: s.Owner}, Cgroup: s.Cgroup, Limit: s.Limit, Dir: s.Dir,
		Error: strings.TrimSuffix(strings.TrimSuffix(text, `\n`), ": <nil>"),
	}
}

// unwritten reports whether containerd has no task for a container that its record calls running, and cannot write that
// record, or could not at its last attempt: it tries again. The shortage must have been seen soon after the exit. One
// that began later has not kept containerd from writing.
func unwritten(p *fact.View, c *evidence.Container) bool {
	return c.Kind != evidence.Sandbox && c.Runtime == fact.RuncV2 && c.State == evidence.StateRunning && c.Task.Absent &&
		p.Unwritable != nil && p.Unwritable.First.Sub(c.VacantSince) < soonAfter
}

// unwritable returns the oldest shortage for which containerd can write no record, and that readings in a row have shown
// for SlowDevice; nil when there is none.
func unwritable(p *fact.View) *evidence.Shortage {
	var out *evidence.Shortage
	for i := range p.Shortages {
		s := &p.Shortages[i]
		if s.Unwritable() && shortage(p, s.Owner, s.Resource, p.Time) == s && (out == nil || s.Since.Before(out.Since)) {
			out = s
		}
	}
	return out
}

// shortage returns an owner's limit on a resource that readings in a row have shown used up, for fact.SlowDevice and since
// before the given time of a failure; nil when there is none.
func shortage(p *fact.View, owner, resource string, failed time.Time) *evidence.Shortage {
	for i := range p.Shortages {
		s := &p.Shortages[i]
		if s.Owner == owner && s.Resource == resource && s.Ended.IsZero() && !s.Since.IsZero() && p.Time.Sub(s.Since) >= fact.SlowDevice && failed.After(s.Since) {
			return s
		}
	}
	return nil
}

// relieved reports whether the next attempt may succeed: the limit is not used up any more, and no failure has been
// reported since.
func relieved(p *fact.View, f *fact.SandboxFailure) bool {
	resource := fact.Exhausted(f.Error)
	return slices.ContainsFunc(p.Shortages, func(s evidence.Shortage) bool {
		return s.Resource == resource && !s.Ended.IsZero() && !f.Last.After(s.Ended)
	})
}

// soonAfter is how long after a container's exit the first reading may come that shows that containerd cannot record it:
// on a busy node that is some rounds later.
const soonAfter = 30 * time.Second
