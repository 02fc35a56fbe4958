package runtime

import (
	"slices"
	"strings"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// The owners of what can be used up, as evidence.Shortage has them; and the variant of a containerd that
// cannot write into its record that a container has ended.
const (
	shim       = "shim"
	containerd = "containerd"
	unrecorded = "Unrecorded"
	unaccepted = "Unaccepted" // a containerd that accepts no connection
)

// NodeResourceExhausted is a shim, or a containerd, that has used up a limit or its disk and so cannot stop the pod.
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
				{Variant: unaccepted, Text: "restarting the kubelet or containerd (may not start)"},
				{Text: "restarting containerd (may not start), killing shims (ends containers)"},
			},
			"kubelet": {
				{Variant: unaccepted, Text: "Do not restart the kubelet: containerd would not accept its new connection. "},
				{Text: ""},
			},
			"df":      {{Text: "df {root}"}, {Text: "df"}},
			"findmnt": {{Text: "findmnt -T {root}"}, {Text: "findmnt"}},
			"group":   {{Text: "/{cgroup}"}, {Text: "of the process (cat /proc/{pid}/cgroup)"}},
		},
		Meaning: "To stop a pod, containerd and the pod's shim start programs (runc, CNI plugins) and open files. The kernel refuses that to who has used up a limit. " +
			"It also writes down what has become of each container, for which it makes a new file. " +
			"Nothing is wrong with the pod. Other pods of the node that are to be stopped or started meet the same limit.",
		Evidence: []string{"One of these, and a limit that readings in a row have found used up over ten seconds or more. " +
			"First, containerd itself has not told the status of the sandbox for ten seconds, because it may open no file, and no process of the pod's containers lives. " +
			"Second, a container has ended, containerd has no task of it, and its record says that it runs, for " + fact.Disagree.String() + ", in " +
			"which it may open no file, or the file system of its records is full or read-only, as it was soon after the end. " +
			"Third, containerd has answered none of nodeagent's requests, for as long as one that hangs has not (ContainerdHung), and could open no file before that. " +
			"That is inferred: one that hangs for another reason fills up with the connections of those who try again. " +
			"Or the kubelet has said at least twice, over eight seconds or more and since the deletion, in an Event of reason FailedKillPod about this pod, that the stop failed with the kernel's words for this limit; " +
			"the number of the container, or of the sandbox, is compared with containerd's. It has said so of late. " +
			"The limit was used up from before it said so last. Used up means: " +
			"pids.current of the process's control group, or of one above it, is not below pids.max, or the process has all files open of the numbers that /proc/PID/limits allows. " +
			"A file system is full with less than 1 MiB free, also for root, or with no inode free (statfs). " +
			"Where the shim could not signal a container, its first process lives and SIGKILL is not pending in any of its threads. " +
			"A limit of the pod's own control group is not looked at, nor one of the whole node (kernel.pid_max, kernel.threads-max, fs.file-max). A limit that is used up for a moment is not told."},
		Seen:   []string{"{measured}", "{said}"},
		First:  "on the node: raise the limit, or free space",
		Avoid:  "{restart}",
		Remedy: "On the node: raise the limit, or free space. {retry}. Then find what used it up.",
		Danger: "{kubelet}Do not restart containerd: without free threads, files or disk space it may not start. " +
			"Do not kill shims to make room: that ends their containers. " +
			"A force delete leaves the pod's containers or sandbox on the node with no API object tracking them.",
		Families: []diagnose.Family{
			{
				Name: evidence.Tasks,
				Meaning: "Shims are in the control group of whoever started them: on most nodes all of them are in that of containerd's unit, each with about a dozen threads. " +
					"A limit on that group (TasksMax of the unit, or of a slice above it) holds for all of them together.",
				First: "on the node: raise that pids.max; if it is a systemd unit: systemctl set-property UNIT TasksMax=infinity",
				Remedy: "On the node: raise the limit of cgroup {group}. " +
					"If its name ends with .service or .slice, it is a systemd unit: systemctl set-property UNIT TasksMax=infinity, with no restart. " +
					"Otherwise write max to its file pids.max below /sys/fs/cgroup. {retry}. " +
					"Then find what filled it: systemd-cgls, or its file cgroup.procs.",
			},
			{
				Name: evidence.Descriptors,
				Meaning: "Each container, connection and watch takes some files of containerd's. " +
					"A limit below some tens of thousands (LimitNOFILE of the unit) is too low for it; with a higher one something leaks.",
				First: "on the node: {raisefiles}, with a LIMIT above {limit}",
				Remedy: "Raise the limit of {process}, on the node: {raisefiles}, with a LIMIT above {limit}. {retry}. " +
					"Then see what it has open (ls -l /proc/{pid}/fd), and raise LimitNOFILE of containerd's unit.",
			},
			{
				Name: evidence.Space,
				Meaning: "The kubelet removes unused images, and ends pods, before its disk is full (imageGCHighThresholdPercent, evictionHard); " +
					"what fills it faster, or is on a disk of its own, it does not stop.",
				First: "on the node: {df} shows the mount point, du -xh MOUNTPOINT what fills it; ask the files' owner before you delete any",
				Avoid: "deleting containerd's own files, restarting containerd (may not start)",
				Remedy: "On the node: {df} names the mount point, and du -xh on that shows what fills the file system. " +
					"Free space with files that their owners do not need, such as old logs. " +
					"Delete what a running container wrote from inside that container (kubectl exec). Or enlarge the file system. " +
					"containerd tries again within five minutes.",
				Danger: "Do not remove anything in containerd's directory by hand. Do not restart containerd while the disk is full: it may not start. " +
					"Removing unused images (crictl rmi --prune) works only with some space left. An image that was loaded by hand does not come back. " +
					"A force delete leaves the pod's volumes on the node with no API object tracking them.",
			},
			{
				Name:    evidence.Inodes,
				Meaning: "Each file and directory needs an inode, of which ext4 has a number that is set when it is made. Many small files use them up while there is space.",
				First:   "on the node: {df} shows the mount point, du -x --inodes MOUNTPOINT where the files are; ask the owner before you delete",
				Avoid:   "deleting containerd's own files, restarting containerd (may not start)",
				Remedy: "On the node: {df} names the mount point, and du -x --inodes on that shows where the files are. " +
					"Remove files there that their owners do not need. containerd tries again within five minutes.",
				Danger: "Do not remove anything in containerd's directory by hand. Do not restart containerd before that: it may not start. " +
					"A force delete leaves the pod's volumes on the node with no API object tracking them.",
			},
			{
				Name:    evidence.ReadOnly,
				Meaning: "The kernel makes a file system read-only when it meets an error in it or of its disk (mount option errors=remount-ro). No pod of the node can be started, and the stop of none is completed.",
				First:   "on the node: dmesg | grep -i read-only says why; after a disk error: ask the owners of its pods, drain it, then reboot (checks it) or replace the node",
				Avoid:   "remounting it writable before a check (can damage it)",
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

// mayBeExhausted says until when it is known of a limit that is used up no more, or of a record that can be written again,
// whether the next try succeeds.
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
			if last := c.VacantSince.Add(diagnose.LastWait); o.Until.After(last) { // it is short again and again
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

// failedStop returns the limit for which, as the kubelet says, each stop of the pod's sandbox fails: that of the shim, which cannot
// signal a container that lives, or that of containerd, when all of them have ended.
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
			return nil // also when which of several shims is the pod's is not known
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

// shortForStatus returns why containerd does not tell the status of the pod's sandbox, which the
// kubelet asks for before each of its steps, when that is that it may open no file; nil when it is not.
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

// unacceptedBy returns the limit by which containerd accepts no connection: it has answered none of
// nodeagent's requests for as long as one that hangs has not. The kubelet was connected before.
func unacceptedBy(p *fact.View) *evidence.Shortage {
	c := &p.Node.Containerd
	if c.Refused || c.UnansweredSince.IsZero() || c.Attempts < 3 || !fact.SilentForLong(p, c.UnansweredSince, c.Asked) {
		return nil
	}
	if c.Process != nil && c.Process.State == evidence.Uninterruptible {
		return nil // it hangs, and fills up for that
	}
	if s := shortage(p, containerd, evidence.Descriptors, p.Time); s != nil && !s.Since.After(c.UnansweredSince) {
		return s
	}
	return nil
}

// unrecordedEnds returns the containers that have ended and of which containerd has deleted the task, but
// not changed the record, which it cannot write: in all readings for as long as views have to disagree.
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

// usedUp is what a finding about a limit is about. The text ends with what runc has printed, and where
// it was not started with <nil> in its place (runOrError in github.com/containerd/go-runc).
func usedUp(s *evidence.Shortage, text string) diagnose.Objects {
	return diagnose.Objects{
		Process: &diagnose.Process{PID: s.PID, Comm: s.Owner}, Cgroup: s.Cgroup, Limit: s.Limit, Dir: s.Dir,
		Error: strings.TrimSuffix(strings.TrimSuffix(text, `\n`), ": <nil>"),
	}
}

// unwritten reports whether containerd has no task of a container that runs by its record, and can write nothing
// there, or could not when it tried last: it tries again. That is seen since soon after the end, as far as that was
// seen itself; a shortage of later has not kept it from writing.
func unwritten(p *fact.View, c *evidence.Container) bool {
	return c.Kind != evidence.Sandbox && c.Runtime == fact.RuncV2 && c.State == evidence.StateRunning && c.Task.Absent &&
		p.Unwritable != nil && p.Unwritable.First.Sub(c.VacantSince) < soonAfter
}

// unwritable returns why containerd can write no record, which has lasted the longest of what readings in a
// row have shown for SlowDevice; nil when there is nothing of the kind.
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

// shortage returns the limit of an owner on a resource that readings in a row have shown used up: for
// fact.SlowDevice, and since before something failed at the moment that is given. nil when there is none.
func shortage(p *fact.View, owner, resource string, failed time.Time) *evidence.Shortage {
	for i := range p.Shortages {
		s := &p.Shortages[i]
		if s.Owner == owner && s.Resource == resource && s.Ended.IsZero() && !s.Since.IsZero() && p.Time.Sub(s.Since) >= fact.SlowDevice && failed.After(s.Since) {
			return s
		}
	}
	return nil
}

// relieved reports whether what failed for want of something may succeed at the next try: the limit
// that readings had shown used up is not any more, and nothing has been told of a failure since.
func relieved(p *fact.View, f *fact.SandboxFailure) bool {
	resource := fact.Exhausted(f.Error)
	return slices.ContainsFunc(p.Shortages, func(s evidence.Shortage) bool {
		return s.Resource == resource && !s.Ended.IsZero() && !f.Last.After(s.Ended)
	})
}

// soonAfter is how long after the end of a container the first reading may be that shows that containerd cannot write
// that down: of a node that is busy some rounds later.
const soonAfter = 30 * time.Second
