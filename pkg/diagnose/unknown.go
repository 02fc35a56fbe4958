package diagnose

import (
	"slices"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// Unrecognised is what is said of an overdue pod when no rule speaks. It is not
// in the table of causes: it looks for nothing.
var Unrecognised = &Rule{
	Cause: "Unknown",
	Doc: Doc{
		Layer:   "unknown",
		Title:   "stuck, and no known cause matches",
		Message: "{state}, and no known cause matches. Ruled out: {ruledout}{awaited}{unheld}{unseen}{inside}{disagree}{starved}{own}",
		Phrases: map[string][]Choice{
			"state": {
				{Variant: doneOnNode, Text: "nothing of the pod is left on the node, only its API object remains"},
				{Text: "the termination is stuck{leftovers}"},
			},
			"leftovers": {{Text: " (left on the node: {left})"}, {Text: ""}},
			"ruledout": {
				{Text: "the known causes of {layers}; some of {partly}"}, {Text: "the known causes of {layers}"},
				{Text: "some of {partly}"}, {Text: "nothing"},
			},
			"unheld":  {{Variant: noHolder, Text: ". The kubelet fails to unmount volume {volumes}, and no process is seen that uses it"}, {Text: ""}},
			"awaited": {{Variant: notBegun, Text: ". By the pod's status (observedGeneration) the kubelet has not begun to stop it"}, {Text: ""}},
			"own": {
				{Variant: Uncalled, Text: ". The API server does not take nodeagent's own update of the pod's status, because it cannot call {refuser}"},
				{Text: ". nodeagent's own update of the pod's status is refused, by {refuser}"}, {Text: ""},
			},
			"unseen": {
				{Variant: readingHangs, Text: ". nodeagent's own reading of the pod hangs in the kernel, where other programs may hang too. Not known therefore: {unread}"},
				{Text: ". Could not be read in full: {unread}"}, {Text: ""},
			},
			"inside":   {{Text: ". Its containers run under {runtimes}, and what happens inside of that cannot be seen"}, {Text: ""}},
			"disagree": {{Text: ". The views differ of {views}"}, {Text: ""}},
			"starved":  {{Text: ". The node is short of {scarce}: what holds the pod may only be slow"}, {Text: ""}},
		},
		Meaning: "The pod is well past its deadline, has made no progress for a minute, nodeagent has looked at everything it can read, and none of the causes it knows is there. " +
			"It says so instead of guessing.",
		Evidence: "The phase says whose turn it is: see the phases in docs/design.md. " +
			"The layers of causes that were looked for and not found are named, and so are the sources that could not be read: nodeagent explain lists the causes of each layer. " +
			"It is not said for as long as an image for the pod is seen to be downloaded, or the kubelet is seen to delete the files of its emptyDir volumes.",
		Remedy: "Look at the kubelet's log on the node for this pod (journalctl -u kubelet, line \"Error syncing pod, skipping\"). " +
			"Save what is known for an issue: kubectl -n nodeagent-system exec NODEAGENT -- /nodeagent capture {podnamespace}/{podname} (NODEAGENT: its pod on that node).",
		Danger: "Do not force-delete before you know what holds it: the processes, volumes and addresses may still be in use.",
		Families: []Family{
			{
				Name:    onlyObject,
				Meaning: "All containers have ended, and nothing of the pod is left on its node.",
				Danger:  "A force delete does not tell why the object has stayed, and the next pod may stay too: save first what is known.",
			},
			{
				Name: notBegun,
				Meaning: "The deletion has raised the pod's metadata.generation, and the kubelet writes into status.observedGeneration which one it acts upon, which is an older one. " +
					"Its worker for the pod is at something else first, such as ending a container for its liveness probe with the whole grace period; or it does not know of the deletion; or it cannot write the status. " +
					"Or it stops the pod since before the deletion, as for an eviction, or somebody has changed the specification since.",
				Remedy: "On the node: look at the kubelet's log for this pod (journalctl -u kubelet): what it began before the deletion, and has not ended. " +
					"If nothing is under way there, systemctl restart kubelet has it list its pods anew, and containers keep running. " +
					"Save what is known first: kubectl -n nodeagent-system exec NODEAGENT -- /nodeagent capture {podnamespace}/{podname} (NODEAGENT: its pod on that node).",
			},
			{
				Name: noHolder,
				Meaning: "No process is seen to have the volume as its root or working directory, or a file of it open; one in another mount namespace may be missed. It may be held by a file that is mapped and not open any more, a socket, a loop device on one of its files, a swap file, or the kernel's NFS server, which nodeagent does not look for; " +
					"or the kubelet fails for another reason.",
				Remedy: "On the node: the kubelet's log has the reason of each attempt (journalctl -u kubelet, lines with UnmountVolume). If it says that the target is busy: losetup -a shows loop devices, swapon --show files for swapping, exportfs -v what is exported, " +
					"and timeout -s KILL 10 grep -l PATH /proc/[0-9]*/maps programs that have mapped a file (PATH: the volume's in the container, and on the node; the maps of a program that hangs may not let their reader go). " +
					"Save what is known for an issue: kubectl -n nodeagent-system exec NODEAGENT -- /nodeagent capture {podnamespace}/{podname} (NODEAGENT: its pod on that node).",
			},
			{
				Name: readingHangs,
				Meaning: "A file that nodeagent has opened to read about the pod does not let it go, such as one of its control group while a program that scans files does not answer. " +
					"What holds nodeagent there may hold the kubelet and the runtime too.",
				Remedy: "On the node: cat /proc/PID/task/*/stack, as root (PID: that of /nodeagent run), shows what its thread waits for in the kernel: in fanotify_ functions for a program that scans files, of which ls -l /proc/[0-9]*/fd | grep fanotify shows whether there is one. " +
					"Then look at the kubelet's log for this pod (journalctl -u kubelet, line \"Error syncing pod, skipping\").",
			},
			{
				Name: otherRuntime,
				Meaning: "The containers run under another runtime than runc, by containerd's record: in a virtual machine (Kata, Firecracker) or on a kernel in a program of its own (gVisor). " +
					"nodeagent sees the node's kernel only. Whether a process inside hangs, or the virtual machine does, it cannot tell.",
				Remedy: "On the node: look at the kubelet's log for this pod (journalctl -u kubelet, line \"Error syncing pod, skipping\"), at containerd's log, " +
					"and whether the runtime's own process runs (qemu-system, cloud-hypervisor, firecracker or runsc-sandbox in ps -eo pid,ppid,stat,args). The runtime's own tools say what happens inside. " +
					"Save what is known for an issue: kubectl -n nodeagent-system exec NODEAGENT -- /nodeagent capture {podnamespace}/{podname} (NODEAGENT: its pod on that node).",
				Danger: "Do not force-delete before you know what holds it. Ending the virtual machine's process ends all of the pod's containers, and may leave devices bound to it.",
			},
		},
	},
	Check: func(*fact.View) Result { return Result{} },
}

// doneOnNode is the variant of Unknown for a pod that is done on its node, as far as is seen,
// and onlyObject the family of those of which nothing but the object can be left.
// otherRuntime is the family of those of which the containers run under another runtime than runc, notBegun of those that the
// kubelet has not begun to stop, by their status, noHolder of those of which a volume is not unmounted and nobody is seen to use it, and
// readingHangs of those of which a reading has not returned.
const (
	doneOnNode   = "Done"
	onlyObject   = "OnlyObject"
	otherRuntime = "OtherRuntime"
	readingHangs = "ReadingHangs"
	notBegun     = "NotBegun"
	noHolder     = "NoHolder"
)

// deletesFiles is for how long the kubelet may be busy with the files of a volume without that being seen, as with a single
// large one. While files are seen to go (evidence.Volume.LastDeleted) it may take any time.
const deletesFiles = 4 * time.Minute

// underWay returns what takes its time and then ends, or is tried again, whatever the cause: the pod is stuck when it has made no
// progress for longer.
func underWay(p *fact.View, at Phase) []Open {
	long := fact.StepPatience(p)
	switch {
	case at == Cleanup:
		long += deletesFiles
	case at == PhaseUnknown && p.ContainersEnded(): // it may be there
		long = max(long, deletesFiles)
	}
	unchanged := fact.Unchanged(p)
	since := fact.Latest(unchanged, fact.LastDeleted(p))
	step := fact.Latest(p.Deadline.Add(p.Kill.Late), since.Add(p.Kill.Still))
	// What was tried before the deadline counts from then on.
	tries := fact.Latest(p.Deadline, since)
	retries := max(fact.NextTry(p, unchanged), fact.PatienceWithVolumes(p)) - tries.Sub(since)
	return []Open{Waits(step, long, Slow), Waits(tries, retries, Retry)}
}

func unknown(p *fact.View, at Phase, looked *search, notRead []Unknown, force *Force) Finding {
	f := Finding{Cause: Unrecognised.Cause, Confidence: Inferred, Objects: Objects{Pod: p.Namespace + "/" + p.Name}}
	o := &f.Objects
	o.RuledOut, o.PartlyRuledOut = looked.ruledOut()
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
	if !p.Unreturned.IsZero() {
		f.Variants = append(f.Variants, readingHangs)
	}
	f.Message, f.Remedy, f.Danger = Unrecognised.Doc.words(&f)
	return f
}

// mayAwaitStop reports whether nothing but its status tells how far the pod's end has got. What the kubelet stops for an eviction,
// or for activeDeadlineSeconds, it has begun with before the deletion, and writes no generation before it has got through;
// and of a pod that is done it writes none any more. Where nodeagent's own update of the status is refused, the kubelet's may be too.
func mayAwaitStop(p *fact.View, at Phase) bool {
	return slices.Contains([]Phase{Delivery, Startup, PreStop, StopSignal, Runtime, PhaseUnknown}, at) &&
		!p.ContainersEnded() && !done(p) && fact.OwnRefusal(p) == nil
}

// otherRuntimes returns the names of the runtimes of the pod's containers into which nodeagent
// cannot look, each once.
func otherRuntimes(p *fact.View) []string {
	var out []string
	for i := range p.Containers {
		if c := &p.Containers[i]; fact.Sandboxed(c) && !slices.Contains(out, c.Runtime) {
			out = append(out, c.Runtime)
		}
	}
	return out
}

// unmountFails returns a volume that is mounted and that the kubelet fails to unmount, or one of the same kind of another pod; nil when
// there is none. What holds it may be something that is not looked for, and may be seen and not be it.
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

// unheld returns such a volume when it is the pod's only one of its kind, it can be no other pod's that is not unmounted, and nobody is
// seen to use it.
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

// done reports whether all that the kubelet does on the node is done: a process that
// shares the node's PIDs may have left the pod's control groups, and a static pod is not what
// its object says.
func done(p *fact.View) bool {
	return p.NothingLeft() && !p.HostPID && !p.Mirror && (p.ContainersEnded() || fact.SaidToRun(p))
}

// views returns the containers of which containerd's record, the shim and the kernel do not
// say the same, as far as all three are known.
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

// differs reports whether what is said of a container of a runtime differs. Of another runtime than runc's the kernel
// need not know the processes.
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
