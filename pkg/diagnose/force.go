package diagnose

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// A Force says of an overdue pod whether a force delete (kubectl delete --force
// --grace-period=0) is safe now. It takes nothing from the node: the API server deletes
// the object, and everybody but the kubelet takes the pod for gone
// (k8s.io/apiserver/pkg/registry/rest/delete.go, BeforeDelete). It is safe when the
// object is all that is left.
type Force struct {
	Answer Answer `json:"answer"`
	// Why is what the answer rests on, and Text says both in words.
	Why  Reason `json:"why"`
	Text string `json:"text"`
	// What the reason is about, as far as it is about any of these: the process that runs, with
	// its container; the container; the volume; the resource claim; the mount of the volume.
	Process   *Process `json:"process,omitempty"`
	Container string   `json:"container,omitempty"`
	Volume    string   `json:"volume,omitempty"`
	Claim     string   `json:"claim,omitempty"`
	Mount     *Mount   `json:"mount,omitempty"`
	// Sources are those that could not be read, Finalizers those that are left, and
	// Cause is the one that takes a yes away.
	Sources    []evidence.Source `json:"sources,omitempty"`
	Finalizers []string          `json:"finalizers,omitempty"`
	Cause      string            `json:"cause,omitempty"`
	// Twin reports whether a StatefulSet would create a pod of the same name at once.
	Twin bool `json:"twin,omitempty"`
}

// An Answer is whether a force delete is safe.
type Answer string

// The answers. ForceNo is for what does not end by itself, or would be used by two;
// ForceNotYet for work of the kubelet that is still to be done; ForceUnknown for what
// cannot be seen.
const (
	ForceNo      Answer = "no"
	ForceNotYet  Answer = "not yet"
	ForceYes     Answer = "yes"
	ForceUnknown Answer = "unknown"
)

// A Reason is what an answer rests on.
type Reason string

// The reasons, in the order in which they are looked for.
const (
	ReasonMirror     Reason = "Mirror"     // the kubelet runs a static pod whatever becomes of the object
	ReasonProcess    Reason = "Process"    // a process runs
	ReasonLeftover   Reason = "Leftover"   // a process runs outside of the pod's control groups
	ReasonGroup      Reason = "Group"      // a control group has tasks that could not be read
	ReasonContainer  Reason = "Container"  // containerd says that a container runs
	ReasonRecord     Reason = "Record"     // containerd says that a container runs of which no process is left
	ReasonHolder     Reason = "Holder"     // a process of the node uses a volume
	ReasonVolume     Reason = "Volume"     // a volume that others can use too is mounted
	ReasonDevice     Reason = "Device"     // a block device is in use
	ReasonUnmount    Reason = "Unmount"    // an unmount hangs
	ReasonStarting   Reason = "Starting"   // a container may still be started
	ReasonLocal      Reason = "Local"      // a volume of the pod's own is to be taken down
	ReasonNetwork    Reason = "Network"    // the sandbox, with its address, is to be taken down
	ReasonFinalizers Reason = "Finalizers" // the object would stay
	ReasonSources    Reason = "Sources"    // sources could not be read
	ReasonHostPID    Reason = "HostPID"    // a process may have left the pod
	ReasonRuntime    Reason = "Runtime"    // another kernel than the node's may run the pod's processes
	ReasonClaim      Reason = "Claim"      // a driver has not released the devices of a claim
	ReasonEmptyGroup Reason = "EmptyGroup" // the kubelet has not removed the control group
	ReasonNotEnded   Reason = "NotEnded"   // the kubelet has not said that the containers have ended
	ReasonNotItsWord Reason = "NotItsWord" // somebody else may have said so
	ReasonUnseen     Reason = "Unseen"     // the pod was never seen where it is missed
	ReasonCause      Reason = "Cause"      // something holds the pod up that is not the object
	ReasonOnce       Reason = "Once"       // one reading alone shows nothing of the pod
	ReasonNothing    Reason = "Nothing"    // nothing is left
)

// ownVolumes are the kubelet's plugins of volumes that are the pod's own and on no disk
// or server that another pod could write to.
var ownVolumes = []string{
	"kubernetes.io~projected", "kubernetes.io~secret", "kubernetes.io~configmap", "kubernetes.io~downward-api", "kubernetes.io~empty-dir",
}

// layerAPI is the layer of the causes that have the object stay when nothing else does.
const layerAPI = "api"

// doubled are the reasons for which a second pod of the same name would use what the
// first one does.
var doubled = []Reason{ReasonProcess, ReasonLeftover, ReasonGroup, ReasonContainer, ReasonVolume, ReasonDevice}

// force answers for an overdue pod, nil for any other one. What is seen to be left
// goes before what could not be seen, and a yes is what remains when nothing else
// does: a cause that was found can take it away, and none can give it.
func force(p *fact.View, d *Diagnosis, layer func(cause string) string) *Force {
	if p.Gone || p.Overdue() <= p.ClockDoubt() {
		return nil
	}
	for _, look := range []func(*fact.View) *Force{
		forceMirror, forceProcesses, forceContainers, forceVolumes, forceClaims, forceNetwork, forceFinalizers, forceUnseen, forceUndone,
	} {
		if f := look(p); f != nil {
			return f.said(p)
		}
	}
	for i := range d.Findings {
		// Only what the API server does, and what is not known, is not about the node.
		if l := layer(d.Findings[i].Cause); l != layerAPI && l != Unrecognised.Doc.Layer {
			return (&Force{Answer: ForceUnknown, Why: ReasonCause, Cause: d.Findings[i].Cause}).said(p)
		}
	}
	if p.BareSince.IsZero() || p.Time.Sub(p.BareSince) < fact.LeastStill || d.Phase != FinalDelete {
		return (&Force{Answer: ForceNotYet, Why: ReasonOnce}).said(p)
	}
	return (&Force{Answer: ForceYes, Why: ReasonNothing}).said(p)
}

// The reasons of Events on the node: DeletedPodRemains about a pod that was deleted while
// a verdict stood and of which something is left there, OrphanedPod about one of which
// something has been left for minutes, whatever was known of it.
const (
	DeletedPodRemains = "DeletedPodRemains"
	OrphanedPod       = "OrphanedPod"
)

// Remains says what is left on its node of a pod whose object is deleted, in a word and
// in words; "" when nothing was found. known reports whether all was read that could
// show it.
func Remains(pod *evidence.Pod) (kind Reason, left string, known bool) {
	p := fact.See(pod)
	for _, look := range []func(*fact.View) *Force{forceProcesses, forceContainers, forceVolumes, forceNetwork} {
		if f := look(p); f != nil {
			return f.Why, string(f.why(p)), true
		}
	}
	return "", "", !fact.Missing(p, evidence.Processes, evidence.Cgroups, evidence.Mounts, evidence.Containers, evidence.Volumes)
}

func forceMirror(p *fact.View) *Force {
	if !p.Mirror {
		return nil
	}
	return &Force{Answer: ForceNo, Why: ReasonMirror}
}

// forceProcesses looks for processes, and for groups with tasks where these could not be read.
func forceProcesses(p *fact.View) *Force {
	if live := fact.AppTasks(p); len(live) > 0 {
		return &Force{Answer: ForceNo, Why: ReasonProcess, Process: ProcessOf(p, toName(p, live))}
	}
	if len(p.Leftovers) > 0 {
		return &Force{Answer: ForceNo, Why: ReasonLeftover, Process: ProcessOf(p, &p.Leftovers[0])}
	}
	if fact.Missing(p, evidence.Processes) {
		for _, g := range p.Cgroups {
			if c, ok := p.Container(g.Container); ok && g.Populated && c.Kind != evidence.Sandbox {
				return &Force{Answer: ForceNo, Why: ReasonGroup, Container: c.Name}
			}
		}
	}
	return nil
}

// forceContainers looks for containers that containerd takes for alive.
func forceContainers(p *fact.View) *Force {
	if fact.Missing(p, evidence.Containers) {
		return nil
	}
	var starting *Force
	for i := range p.Containers {
		switch c := &p.Containers[i]; {
		case c.Kind == evidence.Sandbox:
		case c.State == evidence.StateRunning && !onlyRecord(p, c):
			return &Force{Answer: ForceNo, Why: ReasonContainer, Container: c.Name}
		case c.State == evidence.StateRunning && starting == nil:
			starting = &Force{Answer: ForceNotYet, Why: ReasonRecord, Container: c.Name}
		case c.State == evidence.StateCreated && starting == nil:
			starting = &Force{Answer: ForceNotYet, Why: ReasonStarting, Container: c.Name}
		}
	}
	return starting
}

// onlyRecord reports whether no process is left of a container that containerd records as running: neither the one that it was started with, nor
// any in a control group that was there, and that its pod's processes cannot have left.
func onlyRecord(p *fact.View, c *evidence.Container) bool {
	if !c.Task.PIDGone || fact.Missing(p, evidence.Processes, evidence.Cgroups) || !Visible(p.Pod) {
		return false
	}
	return !slices.ContainsFunc(p.Cgroups, func(g evidence.Cgroup) bool { return g.Populated && (g.Container == c.ID || g.Container == "") })
}

// toName returns the task of the lowest number: which one is named must not change. One
// without a container may be the sandbox's.
func toName(p *fact.View, live []*evidence.Task) *evidence.Task {
	if slices.IndexFunc(live, func(t *evidence.Task) bool { return p.ContainerName(t) != "" }) > 0 {
		live = slices.DeleteFunc(live, func(t *evidence.Task) bool { return p.ContainerName(t) == "" })
	}
	return slices.MinFunc(live, func(a, b *evidence.Task) int { return cmp.Or(cmp.Compare(a.PID, b.PID), cmp.Compare(a.TID, b.TID)) })
}

// forceVolumes looks for what is left of volumes: first what others can use too.
func forceVolumes(p *fact.View) *Force {
	if len(p.Holders) > 0 {
		h := &p.Holders[0]
		f := &Force{Answer: ForceNo, Why: ReasonHolder, Process: ProcessOf(p, &h.Task)}
		mounts := slices.Concat(p.Mounts, p.Devices)
		if i := slices.IndexFunc(mounts, func(m evidence.Mount) bool { return m.ID == h.MountID }); i >= 0 {
			f.Volume = mounts[i].Volume
		}
		return f
	}
	if i := slices.IndexFunc(p.Mounts, func(m evidence.Mount) bool { return !ownMount(p, &m) }); i >= 0 {
		return &Force{Answer: ForceNo, Why: ReasonVolume, Volume: p.Mounts[i].Volume, Mount: MountOf(p, &p.Mounts[i])}
	}
	if len(p.Devices) > 0 {
		return &Force{Answer: ForceNo, Why: ReasonDevice, Volume: p.Devices[0].Volume}
	}
	if i := slices.IndexFunc(p.Volumes, func(v evidence.Volume) bool { return v.Block }); i >= 0 {
		return &Force{Answer: ForceNo, Why: ReasonDevice, Volume: p.Volumes[i].Name}
	}
	if t := fact.Unmounter(p); t != nil && !t.AwaitsScanner() {
		return &Force{Answer: ForceNo, Why: ReasonUnmount, Process: ProcessOf(p, t)}
	}
	if len(p.Mounts) > 0 {
		return &Force{Answer: ForceNotYet, Why: ReasonLocal, Volume: p.Mounts[0].Volume}
	}
	if len(p.Volumes) > 0 {
		return &Force{Answer: ForceNotYet, Why: ReasonLocal, Volume: p.Volumes[0].Name}
	}
	return nil
}

// ownMount reports whether a mount is of a volume of the pod's own. So is the tmpfs of an inline CSI volume, which has secrets or certificates.
func ownMount(p *fact.View, m *evidence.Mount) bool {
	return slices.Contains(ownVolumes, m.Plugin) || m.Plugin == "kubernetes.io~csi" && m.Type == "tmpfs" && claimedBy(p, m.Volume) == nil
}

// forceClaims looks for resource claims that the kubelet has not had released: without the
// pod's object the scheduler gives their devices to other pods.
func forceClaims(p *fact.View) *Force {
	if len(p.Claims) == 0 {
		return nil
	}
	return &Force{Answer: ForceNo, Why: ReasonClaim, Claim: p.Claims[0].Name}
}

// forceNetwork looks for the pod's sandbox, which holds its network, also while it is being
// created: the address is allotted before that.
func forceNetwork(p *fact.View) *Force {
	if !sandboxUp(p) && p.CNI.State == fact.Unseen && len(p.ImageMounts) == 0 && len(p.Tasks) == 0 && p.SandboxStop == nil {
		return nil
	}
	return &Force{Answer: ForceNotYet, Why: ReasonNetwork}
}

func forceFinalizers(p *fact.View) *Force {
	if len(p.Finalizers) == 0 {
		return nil
	}
	return &Force{Answer: ForceNo, Why: ReasonFinalizers, Finalizers: p.Finalizers}
}

// forceUnseen looks for what the agent cannot see.
func forceUnseen(p *fact.View) *Force {
	switch {
	case len(p.Missing) > 0:
		return &Force{Answer: ForceUnknown, Why: ReasonSources, Sources: slices.Sorted(maps.Keys(p.Missing))}
	case p.HostPID:
		return &Force{Answer: ForceUnknown, Why: ReasonHostPID}
	case foreignRuntime(p):
		return &Force{Answer: ForceUnknown, Why: ReasonRuntime}
	}
	return nil
}

// foreignRuntime reports whether a container of the pod has another runtime than runc.
func foreignRuntime(p *fact.View) bool {
	return slices.ContainsFunc(p.Seen.Runtimes, func(r string) bool { return r != fact.RuncV2 })
}

// Visible reports whether a process of the pod would be seen: its containers are runc's,
// a control group of the pod was found before, and none of its processes can have left it.
func Visible(pod *evidence.Pod) bool {
	p := fact.See(pod)
	return !p.HostPID && p.Seen.Group && len(p.Seen.Runtimes) > 0 && !foreignRuntime(p)
}

// forceUndone looks for work of the kubelet's that is not done, and for its word. A
// phase alone is not that: the garbage collector of pods writes Failed too
// (pkg/controller/podgc/gc_controller.go), and not how each container has ended, which
// the kubelet does (TerminatePod, pkg/kubelet/status/status_manager.go).
func forceUndone(p *fact.View) *Force {
	if !p.ContainersEnded() {
		return &Force{Answer: ForceNotYet, Why: ReasonNotEnded}
	}
	if len(p.Cgroups) > 0 {
		return &Force{Answer: ForceNotYet, Why: ReasonEmptyGroup}
	}
	ended := 0
	for i := range p.Containers {
		switch c := &p.Containers[i]; {
		case c.Kind == evidence.Sandbox:
		case c.Exit != nil:
			ended++
		case c.Kind == evidence.App && !c.Waiting, c.ID != "" && c.State != evidence.StateExited:
			return &Force{Answer: ForceUnknown, Why: ReasonNotItsWord, Container: c.Name}
		}
	}
	if ended == 0 {
		return &Force{Answer: ForceUnknown, Why: ReasonNotItsWord}
	}
	if !p.Seen.Group || !p.Seen.Directory || len(p.Seen.Runtimes) == 0 {
		return &Force{Answer: ForceUnknown, Why: ReasonUnseen}
	}
	return nil
}

// most is how long a text that others chose may be in an answer, in bytes.
const most = 60

// said completes an answer with its words.
func (f *Force) said(p *fact.View) *Force {
	text := f.why(p)
	if p.StatefulSet && slices.Contains(doubled, f.Why) {
		f.Twin = true
		text += ". Its StatefulSet would start a second pod with the same name: two writers"
	}
	f.Text = string(f.Answer) + ", " + string(text)
	return f
}

// reasons are the words of what an answer rests on. Their placeholders are those of why.
var reasons = map[Reason]string{
	ReasonMirror:     "it is a static pod: the kubelet keeps running it and re-creates the object. To stop it, remove its manifest on the node",
	ReasonProcess:    "process {process} is still running",
	ReasonLeftover:   "process {process} has left its container and is still running",
	ReasonGroup:      "processes of container {container} are still running",
	ReasonContainer:  "containerd reports container {container} as running",
	ReasonRecord:     "containerd still records container {container} as running, although no process of it is left",
	ReasonHolder:     "volume {volume} is still in use by {process}",
	ReasonVolume:     "volume {volume} is still mounted ({type})",
	ReasonDevice:     "the block device of volume {volume} is still in use",
	ReasonUnmount:    "the unmount of one of its volumes hangs",
	ReasonStarting:   "container {container} may still start",
	ReasonLocal:      "the kubelet has not torn down volume {volume}",
	ReasonNetwork:    "the pod's sandbox is not torn down{address}",
	ReasonFinalizers: "a force delete removes no finalizers: the object remains until its controllers remove {finalizers}",
	ReasonSources:    "nodeagent could not read everything: {sources}",
	ReasonHostPID:    "the pod uses hostPID, so a process of it can leave the pod and keep running",
	ReasonRuntime:    "its containers use a runtime other than runc, and nodeagent cannot see inside",
	ReasonClaim:      "the devices of resource claim {claim} are not released and could be allocated to another pod",
	ReasonEmptyGroup: "the kubelet has not removed the pod's cgroup",
	ReasonNotEnded:   "the kubelet has not reported that all containers have exited",
	ReasonNotItsWord: "the pod's phase is {phase}, but the kubelet has not reported how its containers exited",
	ReasonUnseen:     "nodeagent has not seen the pod on the node before, so it cannot confirm that nothing is left",
	ReasonCause:      "{cause} still holds up the pod",
	ReasonOnce:       "nodeagent has yet to confirm, over several seconds, that nothing of the pod is left on the node",
	ReasonNothing:    "all containers have exited, and nothing of the pod has been left on the node since {since}",
}

// briefs are the same in six words at most, as an Event has them: of "not yet", until when.
var briefs = map[Reason]string{
	ReasonMirror:     "a static pod runs on",
	ReasonProcess:    "{process} still runs",
	ReasonLeftover:   "{process} still runs",
	ReasonGroup:      "container {container} still runs",
	ReasonContainer:  "containerd lists it running",
	ReasonRecord:     "until containerd records the exit",
	ReasonHolder:     "its volume is in use",
	ReasonVolume:     "its volume is mounted",
	ReasonDevice:     "its disk is in use",
	ReasonUnmount:    "its volume is not unmounted",
	ReasonStarting:   "until no container can start",
	ReasonLocal:      "until its volumes are removed",
	ReasonNetwork:    "until its network is removed",
	ReasonFinalizers: "it removes no finalizers",
	ReasonSources:    "not everything could be read",
	ReasonHostPID:    "a process can have left it",
	ReasonRuntime:    "nodeagent cannot see inside",
	ReasonClaim:      "its devices are not released",
	ReasonEmptyGroup: "until its cgroup is removed",
	ReasonNotEnded:   "until the kubelet reports its end",
	ReasonNotItsWord: "the kubelet has not confirmed it",
	ReasonUnseen:     "nodeagent has not seen it before",
	ReasonCause:      "the cause is on the node",
	ReasonOnce:       "until a second look confirms it",
	ReasonNothing:    "nothing of it is left",
}

// Brief is the answer with its reason in a few words, as in "no (java still runs)".
func (f *Force) Brief() string {
	answer := string(f.Answer)
	if f.Answer == ForceUnknown {
		answer += ", so do not"
	}
	if briefs[f.Why] == "" {
		return answer
	}
	process := said("a process")
	if f.Process != nil {
		if name := foreign(f.Process.Comm, commLength); name != "" && !strings.ContainsAny(string(name), ` "`) {
			process = name
		}
	}
	brief := strings.NewReplacer("{process}", string(process), "{container}", string(foreign(f.Container, most))).Replace(briefs[f.Why])
	return answer + " (" + brief + ")"
}

// why returns what an answer rests on, in words.
func (f *Force) why(p *fact.View) said {
	volume := said("of the pod")
	if f.Volume != "" {
		volume = quoted(f.Volume, most)
	}
	if c := claimedBy(p, f.Volume); c != nil && len(c.Claims) == 1 {
		volume = c.quoted() + " (claim " + foreign(c.Claims[0], most) + ")"
	}
	values := map[string]said{
		"{process}":    of(f.Process, (*Process).place),
		"{container}":  foreign(f.Container, most),
		"{volume}":     volume,
		"{type}":       of(f.Mount, func(m *Mount) said { return foreign(m.Type, 20) }),
		"{address}":    map[bool]said{false: ", and its IP address may still be in use"}[p.HostNetwork],
		"{finalizers}": list(f.Finalizers, 2*most),
		"{sources}":    list(f.Sources, most),
		"{claim}":      foreign(f.Claim, most),
		"{phase}":      foreign(p.Phase, 20),
		"{cause}":      foreign(f.Cause, most),
		"{since}":      clock(p.BareSince),
	}
	return said(placeholder.ReplaceAllStringFunc(reasons[f.Why], func(name string) string { return string(values[name]) }))
}

// place names a process and where it runs. Numbers are left out: it is not about what
// to do with the process.
func (p *Process) place() said {
	name := cmp.Or(foreign(p.Comm, commLength), "PID "+p.number())
	switch {
	case p.Container != "":
		return name + " of container " + foreign(p.Container, most)
	case p.PodUID != "":
		return name + " of another pod"
	case p.Pod != "":
		return name + " of pod " + foreign(p.Pod, most)
	}
	return name
}
