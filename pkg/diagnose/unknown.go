package diagnose

import (
	"slices"
	"strings"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// Unrecognised is what is reported of an overdue pod when no rule finds a cause. It is not in the table of causes, because it checks nothing.
var Unrecognised = &Rule{
	Cause: "Unknown",
	Doc: Doc{
		Layer:   "unknown",
		Title:   "stuck, and no known cause matches",
		Who:     ByNode,
		Message: "{state}{leftovers}{unheld}{awaited}{unseen}{nosocket}{nodir}{inside}{disagree}{starved}",
		Seen: []string{
			"Ruled out: {ruledout}",
			"{unreadtoo}",
			"Only partly checked: the known causes of {partly}",
			"Neither found nor ruled out: {undecided}",
			"The API server does not accept nodeagent's own update of the pod's status, because of {refuser}",
		},
		First: "{first}",
		Avoid: "umount -l, rm (may lose data; cause not known)",
		Phrases: map[string][]Choice{
			"state": {
				{Variant: doneOnNode, Text: "no known cause matches. Nothing of the pod is left on the node, but its API object remains"},
				{Text: "no known cause matches"},
			},
			"ruledout":  {{Text: "the known causes of {layers}"}, {Text: "nothing"}},
			"leftovers": {{Text: ". Left on the node: {left}"}, {Text: ""}},
			"unheld":    {{Variant: noHolder, Text: ". The kubelet cannot unmount volume {volumes}, and no process is seen using it"}, {Text: ""}},
			"awaited":   {{Variant: notBegun, Text: ". The kubelet has not begun to stop the pod (status.observedGeneration)"}, {Text: ""}},
			"unseen": {
				{Variant: readingHangs, Text: ". nodeagent's own reading of the pod hangs in the kernel, so it has not seen everything"},
				{Text: ". Not read in full: {unread}"}, {Text: ""},
			},
			"nosocket":  {{Variant: noSocket, Text: ". nodeagent has not found containerd's socket on this node (--containerd-socket)"}, {Text: ""}},
			"nodir":     {{Variant: noKubeletDir, Text: ". nodeagent has not found the kubelet's directory on this node (--kubelet-dir)"}, {Text: ""}},
			"unreadtoo": {{Variant: readingHangs, Text: "Not read in full: {unread}"}, {Text: ""}}, // else the message says it
			"inside":    {{Text: ". nodeagent cannot see inside its runtime {runtimes}"}, {Text: ""}},
			"disagree":  {{Text: ". Container states disagree: {views}"}, {Text: ""}},
			"starved":   {{Text: ". The node is under {scarce} pressure, so the pod may only be slow"}, {Text: ""}},
			"first": {
				{Variant: Uncalled, Text: "ask the owner of {refuser} to get its pods Ready: the API server cannot call it. " +
					"If still stuck: use Fix"},
				{Variant: doneOnNode, Text: "ask the owner of {refuser} (it rejects nodeagent's update) whether it also rejects the kubelet's. " +
					"If not: use Fix"},
				{Variant: readingHangs, Text: "on the node, as root: grep fanotify /proc/PID/task/*/stack (PID: that of /nodeagent run). " +
					"If a line: ask the antivirus or EDR team. If none: use Fix"},
				{Variant: noHolder, Text: "on the node, as root: losetup -a, swapon --show, exportfs -v. If one names this volume, ask its owner. " +
					"If none: use Fix"},
				{Variant: doneOnNode, Text: "on the node: search the kubelet's last log (journalctl -u kubelet --since=-10min) for {named}. " +
					"If no error: open an issue with the capture (Fix)"},
				{Text: "on the node: search the kubelet's last log (journalctl -u kubelet --since=-10min) for {named} and UnmountVolume. " +
					"If an error: ask the owner of what it names. If none: open an issue with the capture (Fix)"},
			},
			"named": {{Text: "{podnamespace}/{podname}"}, {Text: "this pod's name"}},
			"log": {
				{Text: "journalctl -u kubelet --since=-10min | grep -e {podnamespace}/{podname} -e UnmountVolume"},
				{Text: "journalctl -u kubelet --since=-10min"},
			},
			"unmounts": {{Text: "journalctl -u kubelet --since=-10min | grep UnmountVolume"}},
			"capture": {
				{Text: "kubectl -n nodeagent-system exec NODEAGENT -- /nodeagent capture {podnamespace}/{podname} (NODEAGENT: its pod on that node)"},
			},
		},
		Meaning: "The pod is well past its deadline and has made no progress for a minute. nodeagent has checked everything it can read, " +
			"and none of the causes it knows is there. It reports that instead of guessing.",

		Remedy: "On the node, read the kubelet's errors about this pod: {log}. Look for \"Error syncing pod, skipping\". " +
			"Save the evidence for an issue: {capture}.",
		Danger: "Do not force delete before you know what holds the pod: its processes, volumes and addresses may still be in use.",
		Families: []Family{
			{
				Name:    onlyObject,
				Meaning: "All containers have exited, and nothing of the pod is left on its node.",
				Avoid:   "a force delete before the capture (hides why)",
				Remedy: "Save the evidence first: {capture}. " +
					"On the node, read the kubelet's errors about this pod: {log}.",
				Danger: "A force delete hides why the object remains, and the next pod may remain too: save the evidence first.",
			},
			{
				Name: noHolder,
				Meaning: "No process is seen to have the volume as its root or working directory, or a file of it open. " +
					"One in another mount namespace may be missed. " +
					"A file that is mapped and not open any more, a socket, or a loop device on one of its files may hold the volume. " +
					"So may a swap file, or the kernel's NFS server. nodeagent looks for none of these. Or the kubelet fails for another reason.",
				Remedy: "On the node, read why each attempt failed: {unmounts}. If the target is busy: losetup -a lists loop devices, swapon " +
					"--show swap files, exportfs -v NFS exports. " +
					"For programs that have mapped a file: timeout -s KILL 10 grep -l PATH /proc/[0-9]*/maps (PATH: the volume's, in the container and on the node). " +
					"Keep the timeout: reading the maps of a hung program may hang. " +
					"Save the evidence for an issue: {capture}.",
			},
			{
				Name: readingHangs,
				Meaning: "nodeagent hangs in a file that it has opened to read about the pod. This can be a file of the pod's cgroup while a " +
					"fanotify permission listener does not respond. " +
					"What holds nodeagent there may hold the kubelet and the runtime too.",
				Remedy: "On the node, as root: cat /proc/PID/task/*/stack (PID: that of /nodeagent run) shows what its thread waits for in the kernel. " +
					"With fanotify_ functions it waits for a fanotify permission listener (antivirus, EDR): find it with ls -l /proc/[0-9]*/fd | grep fanotify. " +
					"Then read the kubelet's errors about this pod: {log}.",
			},
			{
				Name: otherRuntime,
				Meaning: "By containerd's metadata, the containers run under another runtime than runc: in a virtual machine (Kata, " +
					"Firecracker), or on a kernel that is a program of its own (gVisor). " +
					"nodeagent sees the node's kernel only. It cannot tell whether a process inside hangs, or the virtual machine does.",
				Remedy: "On the node, read the errors about this pod: {log}; journalctl -u containerd --since=-10min. " +
					"Check that the runtime's own process runs: qemu-system, cloud-hypervisor, firecracker or runsc-sandbox in ps -eo pid,ppid,stat,args. " +
					"The runtime's own tools show what happens inside. " +
					"Save the evidence for an issue: {capture}.",
				Danger: "Do not force delete before you know what holds the pod. Killing the virtual machine's process ends all containers of " +
					"the pod, and may leave devices bound to it.",
			},
		},
	},
	By: By[ThePod]{
		Of: func(*fact.View) []ThePod { return nil }, // it is what remains when nothing is found
		Facts: []Fact[ThePod]{
			{Says: "The grace period is over, and the pod has made no progress for a minute or longer. None of the known causes is there."},
			{Says: "The phase shows which component has to act next: see the phases in docs/design.md."},
			{Says: "The layers of causes that were checked and ruled out are named. nodeagent explain lists the causes of each layer."},
			{Says: "The sources that could not be read are named, too."},
			{Says: "No image for the pod is being downloaded, and the kubelet does not delete the files of its emptyDir volumes."},
		},
	},
}

// The families and variants of Unknown.
const (
	doneOnNode   = "Done"         // the pod is done on its node, as far as is seen
	onlyObject   = "OnlyObject"   // nothing but the pod's object can be left
	otherRuntime = "OtherRuntime" // the containers run under another runtime than runc
	readingHangs = "ReadingHangs" // a reading of the pod has not returned
	notBegun     = "NotBegun"     // by the pod's status, the kubelet has not begun to stop it
	noHolder     = "NoHolder"     // a volume is not unmounted, and no process is seen using it
	noSocket     = "NoSocket"     // nodeagent has not found containerd's socket
	noKubeletDir = "NoKubeletDir" // nodeagent has not found the kubelet's directory
)

// cleanupPatience is for how long the kubelet may delete files of a volume unseen, as with a single large one. While files are seen to be deleted
// (evidence.Volume.LastDeleted) it may take any time.
const cleanupPatience = 4 * time.Minute

// underWay returns what may still end, or be tried again, whatever the cause. The pod is stuck when it has made no progress for longer than that.
func underWay(p *fact.View, at Phase, table Table) []Open {
	long := max(fact.StepPatience(p), endsSlowly(p))
	switch {
	case at == Cleanup:
		long += cleanupPatience
	case at == PhaseUnknown && p.ContainersEnded(): // it may be there
		long = max(long, cleanupPatience)
	}
	unchanged := fact.Unchanged(p)
	since := fact.Latest(unchanged, lastDeleted(p))
	step := fact.Latest(p.Deadline.Add(p.Kill.Late), since.Add(p.Kill.Still))
	// What was tried before the deadline counts from then on.
	tries := fact.Latest(p.Deadline, since)
	retries := max(fact.NextTry(p, unchanged), patienceWithVolumes(p, table)) - tries.Sub(since)
	return []Open{Waits(step, long, Slow), Waits(tries, retries, Retry)}
}

// endsSlowly returns for how long a pod may stand still while a process of it is seen to run on its way out: the kernel takes back the memory of a
// large one for minutes, and longer under a CPU limit (exit_mmap, mm/mmap.c). 0 where none is.
func endsSlowly(p *fact.View) time.Duration {
	if !slices.ContainsFunc(fact.AppTasks(p), func(t *evidence.Task) bool {
		return fact.Dying(t) && t.State != evidence.Zombie && (t.State == evidence.Runnable || t.Unchanged(p.Time) < fact.LeastStill)
	}) {
		return 0
	}
	return fact.FlapPatience
}

// patienceWithVolumes returns for how long a pod must have made no progress to be stuck
// without a known cause: what was in the way of its volumes may have ended since the
// kubelet's last attempt. A kubelet that has answered before and does not tell now what it
// has tried, as while a shim of the node hangs, is waited for. It is 0 when nothing is left
// of its volumes.
func patienceWithVolumes(p *fact.View, table Table) time.Duration {
	if !p.ContainersEnded() || len(p.Mounts)+len(p.Volumes) == 0 && !fact.DevicesLeft(p) {
		return 0
	}
	switch k := &p.Node.Kubelet; {
	case k.VolumeCallsRead.IsZero(): // nobody may ask it
		return fact.VolumeRetry
	case p.Time.Sub(k.VolumeCallsRead) > evidence.CallsPause:
		return fact.Retries
	default:
		if long := table.awaits(p); long > 0 {
			return long // then it is known why
		}
		return fact.UntilCounted(p, fact.VolumeTry.With(p)+p.Time.Sub(k.VolumeCallsRead))
	}
}

// awaits returns what the rules await of a pod.
func (t Table) awaits(p *fact.View) (long time.Duration) {
	for _, row := range t {
		if row.Rule.Awaits != nil {
			long = max(long, row.Rule.Awaits(p))
		}
	}
	return long
}

// lastDeleted returns when the kubelet was seen last to delete a file of one of the pod's volumes, without which it cannot
// remove the pod; zero when it was not.
func lastDeleted(p *fact.View) (last time.Time) {
	for i := range p.Volumes {
		last = fact.Latest(last, fact.LastDeleted(p, &p.Volumes[i]))
	}
	return last
}

func unknown(p *fact.View, at Phase, looked *search, notRead []Unknown, force *Force) Finding {
	f := Finding{Cause: Unrecognised.Cause, Confidence: Inferred, Objects: Objects{Pod: p.Namespace + "/" + p.Name}}
	o := &f.Objects
	o.RuledOut, o.PartlyRuledOut = looked.ruledOut()
	o.Undecided = undecided(p, looked.d.Open)
	if len(fact.AppTasks(p)) > 0 {
		o.Left = append(o.Left, LeftProcesses)
	}
	if len(p.Mounts)+len(p.Devices) > 0 {
		o.Left = append(o.Left, LeftMounts)
	}
	if len(p.Cgroups) > 0 {
		o.Left = append(o.Left, LeftCgroup)
	}
	for _, u := range notRead {
		o.Unread = append(o.Unread, u.Source)
	}
	if done(p) {
		f.Variants = append(f.Variants, doneOnNode)
		f.RefusedBy(fact.OwnRefusal(p))
	}
	o.Scarce = p.Node.Pressure.Scarce()
	o.Views = views(p)
	if force != nil && force.Answer == ForceYes {
		f.Variants = append(f.Variants, onlyObject)
	}
	if o.Runtimes = otherRuntimes(p); len(o.Runtimes) > 0 {
		f.Variants = append(f.Variants, otherRuntime)
	}
	if p.StopAwaited && mayAwaitStop(p, at) {
		f.Variants = append(f.Variants, notBegun)
	}
	if v := unheld(p, at); v != nil {
		f.Variants, o.Volumes = append(f.Variants, noHolder), []string{v.Name}
	}
	if !p.HungSince.IsZero() {
		f.Variants = append(f.Variants, readingHangs)
	}
	if strings.HasPrefix(p.Missing[evidence.Containerd], evidence.NotFound) {
		f.Variants = append(f.Variants, noSocket)
	}
	if strings.HasPrefix(p.Missing[evidence.Mounts], evidence.NotFound) {
		f.Variants = append(f.Variants, noKubeletDir)
	}
	f.node = p.Node.Name
	Unrecognised.Doc.say(&f)
	return f
}

// An Undecided is a cause that is neither found nor ruled out, and when it is known at the latest, zero where another reading may show it at any
// time.
type Undecided struct {
	Cause string    `json:"cause"`
	At    time.Time `json:"at,omitzero"`
}

// mostUndecided is how many of them are told.
const mostUndecided = 6

// undecided returns the causes that are open, each once, in the order of the table.
func undecided(p *fact.View, open []Open) (out []Undecided) {
	for _, o := range open {
		at := fact.Latest(o.Until, o.Known)
		if !at.After(p.Time) {
			at = time.Time{}
		}
		for _, cause := range o.Causes {
			known := slices.ContainsFunc(out, func(u Undecided) bool { return u.Cause == cause })
			if !known && len(out) < mostUndecided {
				out = append(out, Undecided{cause, at})
			}
		}
	}
	return out
}

// mayAwaitStop reports whether only its status can tell how far the pod's termination is. A pod that is stopped for an eviction or for
// activeDeadlineSeconds does not count: the kubelet has begun before the deletion, and writes no generation before it is through. Nor does a pod
// that is done: the kubelet writes none any more. Where nodeagent's own update of the status is refused, the kubelet's may be too.
func mayAwaitStop(p *fact.View, at Phase) bool {
	return slices.Contains([]Phase{Delivery, Startup, PreStop, StopSignal, Runtime, PhaseUnknown}, at) &&
		!p.ContainersEnded() && !done(p) && fact.OwnRefusal(p) == nil
}

// otherRuntimes returns the names of the runtimes of the pod's containers that nodeagent cannot see into, each once.
func otherRuntimes(p *fact.View) []string {
	var out []string
	for i := range p.Containers {
		if c := &p.Containers[i]; fact.Sandboxed(c) && !slices.Contains(out, c.Runtime) {
			out = append(out, c.Runtime)
		}
	}
	return out
}

// unmountFails returns a mounted volume that the kubelet fails to unmount; nil when there is none. The failing volume may be one of the same kind of
// another pod. Its holder may be something that nodeagent does not look for, and a process that is seen using it need not be the holder.
func unmountFails(p *fact.View, at Phase) *evidence.Volume {
	if at != Volumes || fact.Missing(p, evidence.Mounts) {
		return nil
	}
	for i := range p.Volumes {
		if v := &p.Volumes[i]; failsToUnmount(p, v) != nil && len(mountsOf(p, v.Plugin, v.Name)) > 0 {
			return v
		}
	}
	return nil
}

// unheld returns such a volume when it is the pod's only one of its kind, the failing unmount can be no other pod's, and no process is seen using
// it.
func unheld(p *fact.View, at Phase) *evidence.Volume {
	v := unmountFails(p, at)
	if v == nil || fact.Missing(p, evidence.Holders) || !fact.OnlyOneUnmounts(p, failsToUnmount(p, v)) {
		return nil
	}
	for _, m := range mountsOf(p, v.Plugin, "") {
		if m.Volume != v.Name || slices.ContainsFunc(p.Holders, func(h evidence.Holder) bool { return h.MountID == m.ID }) {
			return nil
		}
	}
	return v
}

// mountsOf returns the mounts of a volume, or of all of a plugin.
func mountsOf(p *fact.View, plugin, volume string) []evidence.Mount {
	return slices.DeleteFunc(slices.Clone(p.Mounts), func(m evidence.Mount) bool {
		return m.Plugin != plugin || volume != "" && m.Volume != volume
	})
}

// done reports whether all that the kubelet does on the node is done. It is not known for a pod with hostPID, whose processes may have left its
// cgroups, and for a static pod, which is not what its object says.
func done(p *fact.View) bool {
	return p.NothingLeft() && !p.HostPID && !p.Mirror && (p.ContainersEnded() || fact.SaidToRun(p))
}

// views returns the containers whose state differs between containerd's CRI status, the shim and the kernel, as far as all three are known.
func views(p *fact.View) []View {
	if fact.Missing(p, evidence.Containers, evidence.Processes) {
		return nil
	}
	var out []View
	for i := range p.Containers {
		c := &p.Containers[i]
		if c.Kind == evidence.Sandbox || c.ID == "" {
			continue
		}
		v := View{Container: c.Name, Record: c.State, Shim: c.Task.Status}
		if c.Task.Absent {
			v.Shim = "no task"
		}
		for j := range p.Tasks {
			if t := &p.Tasks[j]; t.Container == c.ID && t.State != evidence.Zombie && t.State != evidence.Dead {
				v.Tasks++
			}
		}
		if v.differs(c.Runtime) {
			out = append(out, v)
		}
	}
	return out
}

// failsToUnmount is fact.FailedUnmount for an attempt that is not followed by one that should have been counted by now.
func failsToUnmount(p *fact.View, v *evidence.Volume) *evidence.VolumeCall {
	if c := fact.FailedUnmount(p, v); c != nil && p.Time.Sub(c.Rose) <= 2*fact.VolumeRetry {
		return c
	}
	return nil
}

// differs reports whether the states of a container differ. Under another runtime than runc, the kernel need not know the processes.
func (v *View) differs(runtime string) bool {
	switch v.Record {
	case evidence.StateCreated:
		return false
	case evidence.StateExited:
		return v.Tasks > 0
	case evidence.StateRunning:
		return runtime == fact.RuncV2 && v.Shim != "" && (v.Shim != "running" || v.Tasks == 0)
	}
	return true
}
