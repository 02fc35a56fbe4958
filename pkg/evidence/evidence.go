// Package evidence is plain data about one terminating pod, and about its node,
// at one moment. It is what the readers (proc, cri, kubelet) fill in, what the
// rules of package diagnose look at, and what `nodeagent capture` writes: a
// captured incident is one Pod as JSON.
//
// Three things hold everywhere in it. Unknown is not absent: a source that
// could not be read is in Pod.Missing, and its fields are empty. Moments are
// times, never durations, so that a fixture means the same whenever it is read.
// Nothing private is in it: no environment, argument values, annotations, or
// file names inside a pod's volumes.
package evidence

import "time"

// A Source is a place that evidence comes from.
type Source string

// The sources. A fact of a rule names those it reads; without one of them its
// answer is that it was not read.
const (
	Processes  Source = "processes"  // the tasks of the pod's cgroup, and their parents
	Suspects   Source = "suspects"   // the files of suspicious tasks that may block their reader
	Cgroups    Source = "cgroups"    // the pod's control groups
	Mounts     Source = "mounts"     // the host's mount table
	Containers Source = "containers" // the container records of containerd's CRI plugin
	Shims      Source = "shims"      // what the shims answer about their tasks
	Containerd Source = "containerd" // whether containerd answers, and its process
	Kubelet    Source = "kubelet"    // the kubelet's process and health
	Volumes    Source = "volumes"    // the directories of the pod's volumes
	Holders    Source = "holders"    // the processes of the node that use the pod's mounts, or the output of its containers
	// VolumeCalls is what the kubelet counts of its work on volumes.
	VolumeCalls Source = "volume-calls"
	// APICalls is what the kubelet counts of its requests to the API server.
	APICalls Source = "api-calls"
	// Claims are the resource claims that the kubelet has not had unprepared, and ClaimCalls
	// is what it counts of its attempts.
	Claims     Source = "claims"
	ClaimCalls Source = "claim-calls"
	Events     Source = "events"  // the kubelet's Events about the pod
	Plugins    Source = "plugins" // the CNI plugins that containerd runs for the pod
	// RuntimeCommands is what the pod's shim has started, such as runc.
	RuntimeCommands Source = "runtime-commands"
	// NodeObject is what the API server has of the node.
	NodeObject Source = "node-object"
	// Requests are the kubelet's HTTP requests to the pod that have no answer.
	Requests Source = "requests"
	// Limits are those of the pod's shim, of containerd and of the kubelet on tasks and open files, and their disks.
	Limits Source = "limits"
	// Pulls are the images that the kubelet pulls for the pod, by all of its Events about it.
	Pulls Source = "pulls"
)

// A Pod is what is known of one terminating pod at one moment.
type Pod struct {
	// Time is when the reading began, before any source of the pod's own was read.
	// Rules use it and never the clock.
	Time time.Time `json:"time"`
	// ContainersRead, CgroupsRead and TasksRead are when Containers, Cgroups, and
	// the last of Tasks, Parents and Leftovers had been read: later than Time by as
	// long as they, and the sources before them, took; zero when nobody tried.
	// A Probe is read afterwards. What two readings show unchanged has been so at
	// least from the moment at which the earlier one had read it to Time of the
	// later one.
	ContainersRead time.Time `json:"containersRead,omitzero"`
	CgroupsRead    time.Time `json:"cgroupsRead,omitzero"`
	TasksRead      time.Time `json:"tasksRead,omitzero"`
	// UnchangedSince is when the first of the readings in a row had ended that
	// showed the pod at the same stage: the same phase, containers, mounts and
	// cgroups. A slow termination moves on; a stuck one does not.
	UnchangedSince time.Time `json:"unchangedSince,omitzero"`
	// StageSince is the same when what one of two readings does not tell of the containers is taken for unchanged:
	// of those of a shim that answers now and then, each answer, and each silence, is another stage for UnchangedSince.
	StageSince time.Time `json:"stageSince,omitzero"`
	// StageReadSince is when the first of the readings in a row had ended that lack the same sources, if any. Since then a
	// stage that changes has been seen to change.
	StageReadSince time.Time `json:"stageReadSince,omitzero"`
	// BareSince is when the first of the readings in a row had ended that could read
	// all sources and showed nothing of the pod on its node; zero when this one did not.
	// Seen is what was found there before.
	BareSince time.Time `json:"bareSince,omitzero"`
	Seen      Seen      `json:"seen,omitzero"`

	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	// RuntimeUID is the UID under which kubelet's directories, containerd and
	// the cgroups know the pod. It differs from UID for the mirror pod of a
	// static pod only (annotation kubernetes.io/config.hash).
	RuntimeUID string `json:"runtimeUID"`
	Mirror     bool   `json:"mirror,omitempty"`
	// StatefulSet reports whether a StatefulSet is the pod's controller: it creates a
	// pod of the same name as soon as the object of this one is deleted.
	StatefulSet bool `json:"statefulSet,omitempty"`
	// ManifestGraceSeconds is the grace period in the specification of a mirror pod: the
	// static pod gets it when its manifest is removed.
	ManifestGraceSeconds int64 `json:"manifestGraceSeconds,omitempty"`
	// SpecifiedGraceSeconds is the grace period in the specification of another pod, when the deletion has come
	// with a shorter one: what the kubelet began before goes by it, such as to end a container for its liveness probe.
	SpecifiedGraceSeconds int64 `json:"specifiedGraceSeconds,omitempty"`
	// HostPID and ShareProcessNamespace report whether a container's first
	// process is not the init of a PID namespace of its own.
	HostPID               bool `json:"hostPID,omitempty"`
	ShareProcessNamespace bool `json:"shareProcessNamespace,omitempty"`
	// HostNetwork reports whether the pod has no network of its own.
	HostNetwork bool `json:"hostNetwork,omitempty"`
	// ResourceClaims counts the pod's dynamic resource claims, with the one that stands for
	// its extended resources. Claims are those that the kubelet has not had unprepared; they
	// are read when the pod is past its deadline.
	ResourceClaims int     `json:"resourceClaims,omitempty"`
	Claims         []Claim `json:"claims,omitempty"`

	// Phase is status.phase: Pending, Running, Succeeded, Failed. Kubelet sets
	// the last two only when all containers have exited.
	Phase string `json:"phase"`
	// Gone reports whether the pod's API object has been deleted. The rest is
	// then the last reading of the pod before that.
	Gone bool `json:"gone,omitempty"`
	// DeletionRequested is when the deletion was requested, as far as it was
	// seen; Deadline is metadata.deletionTimestamp, which already includes the
	// grace period. The API server writes them by its own clock, in whole seconds;
	// here they are by the node's, like all other moments, as far as Skew tells.
	DeletionRequested time.Time `json:"deletionRequested"`
	Deadline          time.Time `json:"deadline"`
	// Skew is by how much the clocks differ; nil when that was not measured.
	Skew *Skew `json:"skew,omitempty"`
	// DeadlineUnsure reports whether the kubelet may go by another deadline: the pod
	// was being deleted already when it was first seen, with another grace period than
	// its specification's, which a second deletion may have brought. Deadline is then
	// the later one.
	DeadlineUnsure bool `json:"deadlineUnsure,omitempty"`
	// Shortened reports whether the pod was seen to be deleted again with a shorter grace period, to which the kubelet does
	// not keep: Deadline is that of the first deletion.
	Shortened bool `json:"shortened,omitempty"`
	// LongHook is for how long a preStop hook has to run to be told of inside the grace period; 0 for a part
	// of it.
	LongHook time.Duration `json:"longHook,omitempty"`
	// GracePeriodSeconds is metadata.deletionGracePeriodSeconds. 0 means a
	// force delete, or that the kubelet has requested the final delete.
	GracePeriodSeconds int64    `json:"gracePeriodSeconds"`
	Finalizers         []string `json:"finalizers,omitempty"`
	// FinalizerSetters are who has put Finalizers there, as far as it is known; it is
	// asked for only when nothing else is left.
	FinalizerSetters []FinalizerSetter `json:"finalizerSetters,omitempty"`

	// StopBegun reports whether the kubelet has begun to stop the pod, by the generation that it has
	// written into the pod's status, which the deletion has raised; and StopAwaited that it has not. Before
	// Kubernetes 1.34 it may write none, and neither is known.
	StopBegun   bool `json:"stopBegun,omitempty"`
	StopAwaited bool `json:"stopAwaited,omitempty"`
	// StopAwaitedUntil is the Time of the last reading that showed StopAwaited.
	StopAwaitedUntil time.Time `json:"stopAwaitedUntil,omitzero"`

	// Before is what the first processes did with signals before the deletion; nil
	// when that was not read in time, as with a pod that is deleted as soon as it runs
	// or an agent that was started since.
	Before *Baseline `json:"before,omitempty"`

	// Containers has one entry for each container of the pod's specification,
	// and for each one that containerd knows, its sandbox included.
	Containers []Container `json:"containers,omitempty"`
	Cgroups    []Cgroup    `json:"cgroups,omitempty"`
	// Tasks are the live threads in the pod's cgroups, the zombie leaders of
	// live threads, and tasks that have left the cgroup but not the process
	// table: children of the pod's shims that nobody has reaped (first
	// processes among them), and what an exiting init of a PID namespace waits
	// for.
	Tasks []Task `json:"tasks,omitempty"`
	// Unprobed counts the suspects in Tasks that have no Probe because there
	// were too many. Every container with suspects had at least one probed, so
	// Suspects is not Missing because of them.
	Unprobed int `json:"unprobed,omitempty"`
	// Parents are the processes outside the pod's cgroups that are parent or
	// tracer of one of its tasks, and the shims of its containers.
	Parents []Task `json:"parents,omitempty"`
	// NoShimSince is when the first of the readings in a row had ended that looked for
	// the shim of the pod's sandbox and found no such process; zero while there is one,
	// or it could not be looked for.
	NoShimSince time.Time `json:"noShimSince,omitzero"`
	// Leftovers are processes outside the pod's cgroups that hold the standard
	// streams of a container whose first process has exited. They are read only
	// where PIDs are shared (HostPID, ShareProcessNamespace): elsewhere the
	// kernel kills a container's processes when the first one exits.
	Leftovers []Task `json:"leftovers,omitempty"`
	// OutputHolders are the processes besides the pod's shim and its sandbox that can write
	// to a pipe from which the shim copies the output of the pod's containers. They are
	// read when the pod is past its deadline, each container that runs by containerd's
	// record has ended, and the shim has the output of one of them open, and of no process
	// that was executed in one: which pipe is whose is not known.
	OutputHolders []OutputHolder `json:"outputHolders,omitempty"`
	// ShimChildren are the living children of the pod's shim that are not in the pod's
	// control groups: processes that were executed in a container and have left its
	// group, or the runtime that the shim runs. They are read when a container has ended
	// of which the shim says that it runs, and that has Executed.
	ShimChildren []ShimChild `json:"shimChildren,omitempty"`
	// Plugins are the CNI plugins that containerd runs to take down the network of
	// the pod's sandbox: each a child of containerd, followed by its descendants.
	// They are read only when no process of the pod's containers lives.
	Plugins []Task `json:"plugins,omitempty"`
	// NetworkSetup are those, in the same order, that it runs to set up the network of a sandbox of
	// the pod that is yet to be started. They are read only of a pod past its deadline of which
	// nothing runs.
	NetworkSetup []Task `json:"networkSetup,omitempty"`
	// RuntimeCommands are those that the pod's shim has started and that have not
	// returned. They are read of a pod past its deadline, or whose shim does not answer, of shims for runc.
	RuntimeCommands []RuntimeCommand `json:"runtimeCommands,omitempty"`
	// Deletes are the containers that the runtime was seen to be deleting for long, and more than
	// once. Kills are those that it was seen to be killing until that was ended.
	Deletes []Interrupted `json:"deletes,omitempty"`
	Kills   []Interrupted `json:"kills,omitempty"`
	// ScannerWaits is since when commands of the runtime and CNI plugins were seen to wait for a program
	// that scans files, while the pod's containers stayed as they are.
	ScannerWaits ScannerWaits `json:"scannerWaits,omitzero"`
	// Requests are the kubelet's connections to the ports of hooks over which nothing has come
	// back. They are read while a container runs that has a hook of that kind.
	Requests []Request `json:"requests,omitempty"`
	// Connections are the pod's own. They are read from some seconds after the request for deletion until a few after the
	// deadline, of a pod with a network of its own; nil when they were not.
	Connections *Connections `json:"connections,omitempty"`
	// Shortages are the limits that the pod's shim and containerd have used up. They are read when
	// the pod is past its deadline.
	Shortages []Shortage `json:"shortages,omitempty"`
	// Unwritable is when readings showed one for which containerd cannot write down what has become of a
	// container, the last of them NextRecord ago at most; nil when none did.
	Unwritable *Span `json:"unwritable,omitempty"`
	// KillFailures are what the kubelet has said, in Events, of why it could not
	// stop the pod, the last first. They are asked for only once the pod is overdue.
	KillFailures []KillFailure `json:"killFailures,omitempty"`
	// Pulls are the pulls of images for the pod's containers of which the kubelet has told the beginning,
	// in an Event, and no end. They are asked for with KillFailures, while a container waits.
	Pulls []Pull `json:"pulls,omitempty"`
	// Refusal is who has refused nodeagent's own last update of the pod's status; nil when it was
	// written, none was tried, or the answer names nobody.
	Refusal *Refusal `json:"refusal,omitempty"`
	// Daemons are the pods of the node that network plugins talk to, by their names.
	// They are listed only with KillFailures.
	Daemons []Daemon `json:"daemons,omitempty"`
	// Mounts are the host's mounts that belong to the pod: its volumes below
	// the kubelet's pod directory.
	Mounts []Mount `json:"mounts,omitempty"`
	// Devices are the host's mounts by which the kubelet, or a CSI driver, gives the pod
	// block devices: below the kubelet's directory plugins, with the pod's UID as the
	// last name (pkg/volume/util/volumepathhandler, pkg/volume/csi/csi_block.go).
	Devices []Mount `json:"devices,omitempty"`
	// ImageMounts are the host's mounts of the pod's image volumes, below containerd's
	// directory image-volumes and the ID of the sandbox. containerd unmounts them when it has
	// taken down the sandbox and its network (internal/cri/server/container_image_mount.go).
	// They are read when the pod is past its deadline and its sandbox has ended.
	ImageMounts []Mount `json:"imageMounts,omitempty"`
	// Loops are the loop devices that lie on one of Devices, read when Volumes are.
	Loops []Loop `json:"loops,omitempty"`
	// Volumes are the directories that the kubelet keeps for the pod's volumes, and
	// removes when it has taken a volume down; Holders the processes of the node that
	// use one of Mounts, ImageMounts or Devices, or the Rootfs of a container. Both are read when the pod is past
	// its deadline and its containers have ended, or it has no control group and is said to
	// run; before that only Holders of a Rootfs or of ImageMounts.
	Volumes []Volume `json:"volumes,omitempty"`
	Holders []Holder `json:"holders,omitempty"`
	// UnheldSince is when the first reading had ended that showed no Holder of one of Devices any
	// more; zero when none has shown one.
	UnheldSince time.Time `json:"unheldSince,omitzero"`
	// Specified are the volumes of the pod's specification, when one of them is behind a
	// PersistentVolumeClaim; none when there are more than are kept.
	Specified []SpecVolume `json:"specified,omitempty"`
	Node      Node         `json:"node"`

	// HungSince is since when an earlier reading of the pod has not returned from the kernel, zero when all have. What it
	// would read on the node is missing then.
	HungSince time.Time `json:"unreturned,omitzero"`

	// Missing has the reason for each source that could not be read in full.
	Missing map[Source]string `json:"missing,omitempty"`
	// Lacking has since which reading each of Missing has been missing without a break.
	Lacking []Lacking `json:"lacking,omitempty"`
}

// A Lacking is since when a source has been missing.
type Lacking struct {
	Source Source    `json:"source"`
	Since  time.Time `json:"since"`
}

// LackingSince returns since when a source has been missing; zero where it is not, or not known.
func (p *Pod) LackingSince(s Source) time.Time {
	for _, l := range p.Lacking {
		if l.Source == s {
			return l.Since
		}
	}
	return time.Time{}
}

// Lack records why a source could not be read in full. The first reason is kept.
func (p *Pod) Lack(s Source, why string) {
	if _, ok := p.Missing[s]; ok {
		return
	}
	if p.Missing == nil {
		p.Missing = make(map[Source]string)
	}
	p.Missing[s] = why
}

// Container returns the container with a containerd ID, and whether there is one.
func (p *Pod) Container(id string) (*Container, bool) {
	if id == "" {
		return nil, false
	}
	for i := range p.Containers {
		if p.Containers[i].ID == id {
			return &p.Containers[i], true
		}
	}
	return nil, false
}

// ContainerName returns the name of the container that a task belongs to, ""
// for a task in no container's cgroup. Where containerd does not tell, the pod's status does.
func (p *Pod) ContainerName(t *Task) string {
	if c, ok := p.Container(t.Container); ok {
		return c.Name
	}
	for i := range p.Containers {
		if c := &p.Containers[i]; c.ID == "" && c.SaidID != "" && c.SaidID == t.Container {
			return c.Name
		}
	}
	return ""
}

// ContainersEnded reports whether the kubelet has said that all containers have
// ended, by the pod's phase.
func (p *Pod) ContainersEnded() bool { return p.Phase == "Succeeded" || p.Phase == "Failed" }

// NothingLeft reports whether the reading shows nothing of the pod on its node: no
// task, control group, mount, block device or volume, and no container or sandbox that runs. What was
// not read is not absent. A process that has left the pod's control groups, as one of a
// pod with HostPID can, is not seen.
func (p *Pod) NothingLeft() bool {
	for _, s := range []Source{Processes, Cgroups, Mounts, Containers, Volumes} {
		if _, missing := p.Missing[s]; missing {
			return false
		}
	}
	for i := range p.Containers {
		if s := p.Containers[i].State; s != "" && s != StateExited {
			return false
		}
	}
	return len(p.Tasks)+len(p.Leftovers)+len(p.Plugins)+len(p.NetworkSetup)+len(p.Cgroups)+len(p.Mounts)+len(p.ImageMounts)+len(p.Devices)+len(p.Volumes)+len(p.Holders) == 0
}

// Overdue returns how far the pod is past its deadline; negative inside its
// grace period.
func (p *Pod) Overdue() time.Duration { return p.Time.Sub(p.Deadline) }

// A KillFailure is an Event of the kubelet with reason FailedKillPod. Whoever may
// create Events in the pod's namespace can have written it.
type KillFailure struct {
	// First and Last are when it was told first and last, by the node's clock, and
	// Count how often.
	First time.Time `json:"first,omitzero"`
	Last  time.Time `json:"last,omitzero"`
	Count int       `json:"count"`
	// Text is its message, without what looks like a secret. The API server takes
	// 1,024 bytes of it at most, so that its end may be missing.
	Text string `json:"text"`
}

// A Pull is an image that the kubelet pulls for a container. Whoever may create Events in the pod's
// namespace can have written of it.
type Pull struct {
	// Container is "" for the image of a volume.
	Container string `json:"container"`
	// Image is its name as the pod's specification has it, as far as the Event tells it.
	Image string `json:"image,omitempty"`
	// Since is when the kubelet said so, in whole seconds, by the node's clock. It may have waited
	// for its turn since (serializeImagePulls, maxParallelImagePulls).
	Since time.Time `json:"since"`
}

// A RuntimeCommand is a program such as runc that the pod's shim has started about one of
// the pod's containers, or a process that such a program has left behind.
type RuntimeCommand struct {
	// Runtime is the name of the program, such as runc, "" for one that is not among those
	// that are known. Command is what it was told to do, as in kill. No other argument is kept.
	Runtime string `json:"runtime,omitempty"`
	Command string `json:"command,omitempty"`
	// Container is the ID of the pod's container that it is about.
	Container string `json:"container,omitempty"`
	// Left reports whether the program itself has exited: Tasks begin with a process that is
	// the shim's child now and holds open the program's output, which the shim reads to its
	// end before it goes on. Runtime, Command and Container are not known then.
	Left bool `json:"left,omitempty"`
	// Since is when the first of the readings in a row had ended that showed the same.
	Since time.Time `json:"since,omitzero"`
	// Tasks are the program's process and its descendants, parents before children, each with
	// those of its other threads that say more of what it waits for.
	Tasks []Task `json:"tasks"`
}

// same reports whether two readings show the same command of the same process: one that is
// about to execute a program has the arguments of another.
func (c *RuntimeCommand) same(o *RuntimeCommand) bool {
	if len(c.Tasks) == 0 || len(o.Tasks) == 0 {
		return false
	}
	a, b := &c.Tasks[0], &o.Tasks[0]
	return c.Runtime == o.Runtime && c.Command == o.Command && c.Container == o.Container && c.Left == o.Left &&
		a.PID == b.PID && a.Probe != nil && b.Probe != nil && a.Probe.Start == b.Probe.Start
}

// Interrupted is a container that a runtime such as runc does not get deleted, or killed. containerd ends a command that
// deletes after ten seconds (handleEventTimeout, internal/cri/server/events.go), and has it started again after a pause
// that doubles. One that kills is ended with the kubelet's request, after two minutes (runtimeRequestTimeout) and, for a
// container, the grace period; the kubelet tries again within fifteen seconds.
type Interrupted struct {
	// Last is the last command that two readings showed and that had not returned for long, as it was seen last, at
	// Seen: for five seconds if it deletes, and a minute if it kills. Tries is how many of them there were, at most maxTries.
	Last RuntimeCommand `json:"last"`
	Seen time.Time      `json:"seen"`
	// Until is when such a command was seen last, however young: it may have been ended sooner, as when containerd is
	// started anew.
	Until time.Time `json:"until,omitzero"`
	Tries int       `json:"tries"`
}

// A Daemon is another pod of the node, on which something depends.
type Daemon struct {
	Pod         string `json:"pod"` // namespace/name
	Terminating bool   `json:"terminating,omitempty"`
	Ready       bool   `json:"ready,omitempty"` // its condition Ready
}

// SetPulls adds the image pulls that the kubelet has told of, or why they are not known.
func (p *Pod) SetPulls(pulls []Pull, err error) {
	p.Pulls = pulls
	if err != nil {
		p.Lack(Pulls, "list all of the kubelet's Events about the pod: "+err.Error())
	}
}

// SetStopFailures adds what the kubelet has said of why it could not stop the pod, or why that
// is not known.
func (p *Pod) SetStopFailures(failures []KillFailure, err error) {
	p.KillFailures = failures
	if err != nil {
		p.Lack(Events, "list the kubelet's Events about the pod: "+err.Error())
	}
}

// An OutputHolder is a process that keeps the output of a container open.
type OutputHolder struct {
	Task
	// Since is when the first of the readings in a row had ended that showed it.
	Since time.Time `json:"since,omitzero"`
}

// A ShimChild is a child of a shim.
type ShimChild struct {
	Task
	// Output reports whether it can write to a pipe that the shim copies output from.
	Output bool `json:"output,omitempty"`
	// Since is when the first of the readings in a row had ended that showed it.
	Since time.Time `json:"since,omitzero"`
}

// A ContainerKind is a container's role in its pod.
type ContainerKind string

// The kinds of containers. A Sidecar is an init container with restartPolicy
// Always; it is stopped after the app containers. A Sandbox holds the pod's
// network namespace ("pause").
const (
	App       ContainerKind = "app"
	Init      ContainerKind = "init"
	Sidecar   ContainerKind = "sidecar"
	Ephemeral ContainerKind = "ephemeral"
	Sandbox   ContainerKind = "sandbox"
)

// A ContainerState is the CRI's view of a container. Running does not mean
// that a process lives: the CRI says Exited only after the shim has deleted
// its task.
type ContainerState string

// The container states of the CRI. A sandbox is Running while it is READY, and Created while
// containerd has a record of its container and the CRI does not list it yet.
const (
	StateCreated ContainerState = "created"
	StateRunning ContainerState = "running"
	StateExited  ContainerState = "exited"
	StateUnknown ContainerState = "unknown"
)

// Unended reports whether containerd has not recorded the end of a container. Of one whose task it could not delete when it was
// started it says unknown (loadContainer, internal/cri/server/restart.go), and tries again.
func (c *Container) Unended() bool { return c.State == StateRunning || c.State == StateUnknown }

// A Container is what the pod's specification, the CRI and the shim say about
// one container.
type Container struct {
	Name string        `json:"name"`
	Kind ContainerKind `json:"kind"`
	// PreStop reports whether the specification has a preStop hook: the stop
	// signal is sent only after it.
	PreStop bool `json:"preStop,omitempty"`
	// PreStopProgram is the base name of the program that the hook executes in the
	// container; "" for a hook of another kind, or a program without a name.
	PreStopProgram string `json:"preStopProgram,omitempty"`
	// PostStart reports whether the specification has a postStart hook, and
	// PostStartProgram is the same of it. The kubelet runs it when the container has been
	// started.
	PostStart        bool   `json:"postStart,omitempty"`
	PostStartProgram string `json:"postStartProgram,omitempty"`
	// PreStopSleep and PostStartSleep are for how many seconds the kubelet sleeps as that
	// hook; 0 for a hook of another kind.
	PreStopSleep   int64 `json:"preStopSleep,omitempty"`
	PostStartSleep int64 `json:"postStartSleep,omitempty"`
	// PreStopOnlySleeps reports whether the preStop hook executes sleep(1) and nothing else, so that it has asked nobody to end.
	PreStopOnlySleeps bool `json:"preStopOnlySleeps,omitempty"`
	// PreStopPort and PostStartPort are the ports of the pod to which the kubelet sends an
	// HTTP request as that hook; 0 for a hook of another kind, or one that names a host.
	PreStopPort   int `json:"preStopPort,omitempty"`
	PostStartPort int `json:"postStartPort,omitempty"`
	// HookSeen is when a reading last showed a process that may be that of the preStop hook, and HookOver
	// when the first of the readings in a row since then had ended that showed none; of a hook that
	// executes a program.
	HookSeen time.Time `json:"hookSeen,omitzero"`
	HookOver time.Time `json:"hookOver,omitzero"`

	// ID is containerd's, "" when containerd knows no such container, or does not tell. SaidID is the one in the pod's status
	// then, which may be an older container's.
	ID     string         `json:"id,omitempty"`
	SaidID string         `json:"saidID,omitempty"`
	State  ContainerState `json:"state,omitempty"`
	// Runtime is containerd's runtime name, for example io.containerd.runc.v2.
	Runtime string `json:"runtime,omitempty"`
	// Program is the base name of the first argument, "" when not known.
	Program string `json:"program,omitempty"`
	// StopSignal is the effective stop signal: the container's, else the
	// image's STOPSIGNAL, else SIGTERM. 0 when it could not be read.
	StopSignal Signal `json:"stopSignal,omitempty"`
	// Waiting reports whether the container is yet to run, by the pod's status:
	// it has not been created, its postStart hook has not ended, or it waits to
	// be started again.
	Waiting bool `json:"waiting,omitempty"`
	// BackedOff reports whether it waits for the kubelet to try again later, because its
	// image could not be pulled, it could not be created, or it has ended too often (ImagePullBackOff,
	// CreateContainerConfigError, CrashLoopBackOff): nothing is done about it meanwhile.
	BackedOff bool `json:"backedOff,omitempty"`
	// Running reports whether the container runs by the pod's status, as the kubelet has
	// written it last.
	Running bool `json:"running,omitempty"`
	// Exit is how the container ended, as the kubelet has written it into the
	// pod's status; nil while it has not.
	Exit *Exit `json:"exit,omitempty"`

	// StatusError is why containerd does not tell the status of a sandbox that has ended, which
	// the kubelet asks for before each of its steps; "" when it does, and when it was not asked.
	// StatusErrorSince is when the first of the readings in a row had ended that showed the same, but for numbers in it.
	StatusError      string    `json:"statusError,omitempty"`
	StatusErrorSince time.Time `json:"statusErrorSince,omitzero"`

	// IP is the first address of a sandbox, to which the kubelet sends the requests of
	// hooks; "" where no container has such a hook, in the network of the node, and when it is
	// not known.
	IP string `json:"ip,omitempty"`

	Task ShimTask `json:"task"`
	// Rootfs is the mount of its root file system in the host's mount table, which the
	// shim unmounts when it deletes the task; nil when there is none, and while the
	// container has not ended or the pod is not past its deadline.
	Rootfs *Mount `json:"rootfs,omitempty"`
	// VacantSince is when the first of the readings in a row had ended in which no task
	// of the container was left, the CRI said that it runs, and the shim had closed its
	// output and gave the same answer, or containerd had no task; zero while it is not so,
	// or not known.
	VacantSince time.Time `json:"vacantSince,omitzero"`
}

// An Exit is the end of a container.
type Exit struct {
	// Code is its exit status: 128 and the number of the signal that ended it.
	Code int `json:"code"`
	// Started is when it was started, and At when it ended, in whole seconds, by the node's
	// clock; zero where the kubelet does not know, as of one that never ran.
	Started time.Time `json:"started,omitzero"`
	At      time.Time `json:"at,omitzero"`
	// OutOfMemory reports whether the kernel killed it because memory ran out.
	OutOfMemory bool `json:"outOfMemory,omitempty"`
}

// A ShimTask is the shim's answer about a container's task.
type ShimTask struct {
	// Status is containerd's task status in lower case: created, running,
	// stopped, paused, pausing. "" when the shim was not asked or gave none.
	Status string `json:"status,omitempty"`
	// PID is the container's first process on the host, 0 when not known.
	PID int `json:"pid,omitempty"`
	// Absent reports whether containerd answered that it has no such task.
	Absent bool `json:"absent,omitempty"`
	// PIDGone reports whether no process has the number PID any more.
	PIDGone bool `json:"pidGone,omitempty"`
	// Drained reports whether the shim has closed the container's output, as it does
	// when everybody who could write to it has exited; false as well when that is not
	// known.
	Drained bool `json:"drained,omitempty"`
	// Executed reports whether the shim has the output of a process open that was
	// executed in the container; false as well when that is not known.
	Executed bool `json:"executed,omitempty"`
	// HeldUntil is when the last reading had ended that showed, like the one before, that no
	// process had the number PID any more and the shim had not closed the output: somebody
	// held it open. Or when the first reading of the container had ended, if that was long
	// after the deletion: somebody may have until then. Zero when nobody did.
	HeldUntil time.Time `json:"heldUntil,omitzero"`
	// CommandedUntil is when the last reading had ended that showed a runtime such as runc at work about the
	// container, which the shim waits for.
	CommandedUntil time.Time `json:"commandedUntil,omitzero"`
	// Asked is when the shim was last asked. One that did not answer is not
	// asked in every reading.
	Asked time.Time `json:"asked,omitzero"`
	// UnansweredSince is the time of the first request that the shim did not
	// answer within its deadline; zero while it answers. Attempts counts the
	// unanswered requests since then.
	UnansweredSince time.Time `json:"unansweredSince,omitzero"`
	Attempts        int       `json:"attempts,omitempty"`
	// ExcusedAttempts and ExcusedAt are Attempts and Asked at the last request made while a runtime command, such as runc,
	// was running for the shim, or could not be ruled out.
	ExcusedAttempts int       `json:"excused,omitempty"`
	ExcusedAt       time.Time `json:"excusedAt,omitzero"`
}

// NotFound is what the reason begins with of a source that is missing because the agent has not found it on the node, as where a distribution
// has it elsewhere.
const NotFound = "not found: "

// A Node is what the pod's verdict needs to know of its node.
type Node struct {
	// Time is when the reading of the node began, and Read when it had ended. Pods
	// that share it are read afterwards.
	Time time.Time `json:"time,omitzero"`
	Read time.Time `json:"read,omitzero"`
	// ClockSet is when a reading first showed that the node's clock had been set, or that the node had
	// slept, since the one before: times that others wrote before that may be by another clock. Zero when
	// none has.
	ClockSet time.Time `json:"clockSet,omitzero"`

	Name   string `json:"name"`
	Kernel string `json:"kernel,omitempty"`
	// CorePattern is where core dumps go: the first word of
	// /proc/sys/kernel/core_pattern (core(5)), a pipe's program with its |.
	CorePattern string `json:"corePattern,omitempty"`
	// Pressure is nil where the kernel does not tell it.
	Pressure   *Pressure         `json:"pressure,omitempty"`
	Containerd ContainerdService `json:"containerd"`
	Kubelet    KubeletService    `json:"kubelet"`
	// Ready is the condition of that name; nil when the API server was not asked.
	Ready *NodeReady `json:"ready,omitempty"`
	// Unmounting counts the pods of the node whose volumes the kubelet takes down by
	// now: those whose containers have all ended, and directories of pods that the API
	// server does not know any more. 0 when not known. When it is 1, what fails is
	// this pod's.
	Unmounting int `json:"unmounting,omitempty"`
	// UnmountingUntil is the time of the last reading that did not show a single one of
	// them; zero when each of the readings in a row did.
	UnmountingUntil time.Time `json:"unmountingUntil,omitzero"`
	// Deletable counts the pods of the node whose deletion the kubelet may be asking the
	// API server for by now: those that terminate in a terminal phase, and all mirror
	// pods, which it makes anew when they differ from their manifests. 0 when not known.
	Deletable int `json:"deletable,omitempty"`
	// DeletablesUntil is as UnmountingUntil.
	DeletablesUntil time.Time `json:"deletablesUntil,omitzero"`
	// Unpreparing counts the pods of the node of which the kubelet may be having resource
	// claims unprepared by now: those with claims that terminate or of which no container
	// runs, and those that have claims and are gone from the API. 0 when not known.
	Unpreparing int `json:"unpreparing,omitempty"`
	// UnpreparingUntil is as UnmountingUntil.
	UnpreparingUntil time.Time `json:"unpreparingUntil,omitzero"`
	// Awaiting counts the namespaces of the node's pods past their deadline that the kubelet has not begun to stop (Pod.StopAwaited), and
	// LastBegun is when the deletion was requested, of those that it has, that was the last one; zero when none is known.
	Awaiting  int       `json:"awaiting,omitempty"`
	LastBegun time.Time `json:"lastBegun,omitzero"`
	// Processors is nil when it was not read, or not for long enough.
	Processors *Processors `json:"processors,omitempty"`
	// Blocked are the tasks of the whole node that are in state D, with their
	// owners. It is read at most once per period and only while a pod is
	// overdue. Of those that are no threads of the kernel there are at most 512.
	Blocked []Task `json:"blocked,omitempty"`
	// BlockedRead is when the reading of Blocked began, where that is an earlier one:
	// on a node of many threads not each reading has one. Zero means at Time.
	BlockedRead time.Time `json:"blockedRead,omitzero"`
	// Scanners are the processes that the kernel asks before it lets others open, read or execute
	// files (fanotify(7)): each has a group of fanotify open that is asked. They are looked for while a
	// task of the node has waited for such an answer since the reading before, or a pod's end has for a while. ScannersRead is when that
	// look had ended; zero when there was none. ScannersError is why they may not be all.
	Scanners      []Task    `json:"scanners,omitempty"`
	ScannersRead  time.Time `json:"scannersRead,omitzero"`
	ScannersError string    `json:"scannersError,omitempty"`
}

// AwaitsScanner reports whether a task of the node, or of the kubelet, has waited since the earlier reading for a
// program that scans files: the same task, that has not run since.
func (n *Node) AwaitsScanner(earlier *Node) bool {
	if earlier == nil {
		return false
	}
	waited := make(map[int]uint64) // the context switches, by TID
	for _, tasks := range [][]Task{earlier.Blocked, earlier.Kubelet.Blocked} {
		for i := range tasks {
			if t := &tasks[i]; t.AwaitsScanner() {
				waited[t.TID] = t.Switches
			}
		}
	}
	for _, tasks := range [][]Task{n.Blocked, n.Kubelet.Blocked} {
		for i := range tasks {
			t := &tasks[i]
			if switches, ok := waited[t.TID]; ok && t.AwaitsScanner() && t.Switches == switches {
				return true
			}
		}
	}
	return false
}

// Pressure is for which share of the time, in percent, some task of the node
// waited for a processor, for memory or for I/O: the larger one of the last ten
// seconds and the last minute ("some avg10" and "some avg60" of /proc/pressure).
// What is slow to answer under pressure need not hang.
type Pressure struct {
	CPU    float64 `json:"cpu"`
	Memory float64 `json:"memory"`
	IO     float64 `json:"io"`
	// StarvedUntil is the time of the last reading that showed one of them at
	// starved or more; zero when none of the readings in a row did.
	StarvedUntil time.Time `json:"starvedUntil,omitzero"`
}

// starved is the share, in percent, from which on the node is short of something.
const starved = 40

// Scarce names what the node is short of: processors, memory, I/O. It is empty when
// that is not known.
func (p *Pressure) Scarce() []string {
	if p == nil {
		return nil
	}
	var out []string
	for _, r := range []struct {
		name  string
		share float64
	}{{"processors", p.CPU}, {"memory", p.Memory}, {"I/O", p.IO}} {
		if r.share >= starved {
			out = append(out, r.name)
		}
	}
	return out
}

// A ContainerdService is containerd's health as one question to it shows.
type ContainerdService struct {
	// Process is containerd's own process; nil when it was not read or not
	// found. AbsentSince is as for KubeletService; the process is looked for only
	// while containerd does not answer.
	Process     *Task     `json:"process,omitempty"`
	AbsentSince time.Time `json:"absentSince,omitzero"`
	// Error is why the last request failed, "" when it was answered. Refused
	// reports whether nobody listened on the socket, and RefusedSince is the time
	// of the first of the requests in a row that found nobody.
	Error        string    `json:"error,omitempty"`
	Refused      bool      `json:"refused,omitempty"`
	RefusedSince time.Time `json:"refusedSince,omitzero"`
	// Version is its version, as in v2.4.2; "" when it did not answer. ConnectedSince
	// is when the connection was made over which it answers: it has run for at least as
	// long.
	Version        string    `json:"version,omitempty"`
	ConnectedSince time.Time `json:"connectedSince,omitzero"`
	// Asked, UnansweredSince and Attempts are as for ShimTask.
	Asked           time.Time `json:"asked,omitzero"`
	UnansweredSince time.Time `json:"unansweredSince,omitzero"`
	Attempts        int       `json:"attempts,omitempty"`
	// AnsweringSince is when the first of the readings in a row had ended in which it answered; zero
	// when it does not.
	AnsweringSince time.Time `json:"answeringSince,omitzero"`
	// Ends counts how often one that answered was found to have ended, at most maxEnds, and FirstEnd is when that was found
	// first, since it last answered for as long as Young without having been started anew.
	Ends     int       `json:"ends,omitempty"`
	FirstEnd time.Time `json:"firstEnd,omitzero"`
	// Network is what the CRI plugin says of its network plugins: NetworkReady, or
	// why they are not; "" when it was not asked or gave no answer.
	Network string `json:"network,omitempty"`
	// Lists are what became of the questions for all sandboxes and all containers of the node. They
	// are asked while the kubelet says that it has had no such list for long.
	Lists []List `json:"lists,omitempty"`
	// Downloads are what is being downloaded of images, for whomever, the one that was updated last first, at
	// most 64. They are asked for while a pod is past its deadline of which a container waits to be created.
	Downloads []Download `json:"downloads,omitempty"`
	// Content is what of images containerd works on, read with Downloads; nil when that is not known.
	Content *OpenContent `json:"content,omitempty"`
}

// OpenContent counts the files of its content store that containerd has open.
type OpenContent struct {
	// Ingests are the downloads that are under way: those that have ended without the whole, or were
	// under way when containerd was started anew, stay among Downloads and are not open.
	Ingests int `json:"ingests"`
	// Blobs are the parts of images that are read, as they are while an image is unpacked.
	Blobs int `json:"blobs"`
}

// A Download is a part of an image, such as a layer, of which containerd has not stored all yet (an
// ingest of its content store). containerd stores a MiB at a time, or the rest
// (copyWithBuffer, core/content/helpers.go).
type Download struct {
	// Started is when it began, and Updated when data of it was stored last, both as containerd tells.
	Started time.Time `json:"started"`
	Updated time.Time `json:"updated"`
	// Offset is how many bytes are stored, and Total how many there will be; 0 when that is not known.
	Offset int64 `json:"offset"`
	Total  int64 `json:"total,omitempty"`
}

// A List is what became of the question for all sandboxes, or all containers, of the node.
type List struct {
	// Of is Sandboxes or AllContainers.
	Of string `json:"of"`
	// Bytes is how large the answer is, or would have been; 0 for one that is small, or not known.
	Bytes int64 `json:"bytes,omitempty"`
	// Asked, UnansweredSince and Attempts are as for ShimTask.
	Asked           time.Time `json:"asked,omitzero"`
	UnansweredSince time.Time `json:"unansweredSince,omitzero"`
	Attempts        int       `json:"attempts,omitempty"`
}

// What List.Of can be.
const (
	Sandboxes     = "sandboxes"
	AllContainers = "containers"
)

// MaxList is the size, in bytes, from which on the kubelet does not take a list, and containerd by
// default does not send one (maxMsgSize, k8s.io/cri-client/pkg/utils.go; DefaultMaxSendMsgSize,
// defaults/defaults.go of containerd).
const MaxList = 16 << 20

// NetworkReady is the name of a runtime's condition (CRI, RuntimeCondition), and
// what ContainerdService.Network is when it holds.
const NetworkReady = "NetworkReady"

// A KubeletService is the kubelet as seen from outside.
type KubeletService struct {
	// Process is the kubelet's main thread; nil when there is no such process.
	Process *Task `json:"process,omitempty"`
	// AbsentSince is when the first of the readings in a row had ended that found
	// no such process, under any of the names it is known by; zero while there is
	// one, or it could not be looked for.
	AbsentSince time.Time `json:"absentSince,omitzero"`
	// LastSeen is when a reading found the process last; zero if none has since
	// the agent started. One that was never seen may have a name of its own.
	LastSeen time.Time `json:"lastSeen,omitzero"`
	// YoungSince is when the first of the readings in a row had ended that found no such
	// process, or one that was younger than Young; zero while it is older, or its age is not
	// known. Starts counts the processes that were seen since then, each once.
	// StartSeen is when the first of them was seen, and LastStart when the last one was started.
	YoungSince time.Time `json:"youngSince,omitzero"`
	Starts     int       `json:"starts,omitempty"`
	StartSeen  time.Time `json:"startSeen,omitzero"`
	LastStart  time.Time `json:"lastStart,omitzero"`
	// Health is the body or the error of its /healthz: "ok" when healthy, ""
	// when it was not asked, or cannot be known. Refused reports whether nobody
	// listened on the kubelet's port.
	Health  string `json:"health,omitempty"`
	Refused bool   `json:"refused,omitempty"`
	// Answers reports whether somebody on that port has just completed a TLS handshake, or
	// answered: the kubelet's program runs, though what it was asked may not be known.
	Answers bool `json:"answers,omitempty"`
	// SilentSince is when the first of the readings in a row had ended in which nobody did; zero
	// when somebody does. SilentUntil is when the last reading had that nobody had answered in
	// for a while: the kubelet was stopped, short of processors, or away.
	SilentSince time.Time `json:"silentSince,omitzero"`
	SilentUntil time.Time `json:"silentUntil,omitzero"`
	// StalledSince is when the first of the readings in a row had ended in which the kubelet's
	// health check said that its main loop hangs; zero when it does not say so. StalledAfter is
	// when the reading before these began, in which it said that all is well; zero when there was
	// none.
	StalledSince time.Time `json:"stalledSince,omitzero"`
	StalledAfter time.Time `json:"stalledAfter,omitzero"`
	// Error is why its process could not be read in full, "" when it was.
	Error string `json:"error,omitempty"`
	// Blocked are the kubelet's threads in state D, and those that wait for a
	// FUSE daemon, which are in state S.
	Blocked []Task `json:"blocked,omitempty"`
	// Strangers are the UIDs of pods that are not in the API on whose volumes one of Blocked
	// works.
	Strangers []string `json:"strangers,omitempty"`
	// Shortages are the limits that the kubelet has used up, and what the file system of its directory
	// lacks. They are read while a pod is past its deadline; ShortagesError is why they could not be.
	Shortages      []Shortage `json:"shortages,omitempty"`
	ShortagesError string     `json:"shortagesError,omitempty"`
	// LackedUntil is when the last reading had ended that showed one with which the kubelet takes down no volume
	// (Shortage.KeepsVolumes): what it failed at before, and may not try again for two minutes, tells nothing else.
	LackedUntil time.Time `json:"lackedUntil,omitzero"`
	// VolumeCalls are what the kubelet counts of its attempts to take volumes down.
	// They are read while a pod is past its deadline whose containers have ended, and so
	// are APICalls, what it counts of its requests to the API server with DELETE and PATCH.
	// ClaimCalls are what it counts of its attempts to have resource claims unprepared, which it makes of
	// pods without claims too; all are read while a pod with claims is past its deadline, or any pod is and
	// there are Shortages, too.
	// VolumeCallsRead is when they were asked for; zero when they were not read, and
	// VolumeCallsError is why.
	VolumeCalls     []VolumeCall `json:"volumeCalls,omitempty"`
	APICalls        []APICall    `json:"apiCalls,omitempty"`
	ClaimCalls      []ClaimCall  `json:"claimCalls,omitempty"`
	VolumeCallsRead time.Time    `json:"volumeCallsRead,omitzero"`
	// VolumeCallsSince is since when they have been read without a longer pause than
	// CallsPause: what a kubelet that does not answer counts meanwhile cannot be told
	// from what it had counted before.
	VolumeCallsSince time.Time `json:"volumeCallsSince,omitzero"`
	VolumeCallsError string    `json:"volumeCallsError,omitempty"`
	// Listed is when it asked for the last list of the node's containers that it was given, in whole
	// seconds. It is read with VolumeCalls; zero when it is not known.
	Listed time.Time `json:"listed,omitzero"`
}

// unlisted is how old the last list must be for containerd to be asked for one: the kubelet asks once a
// second, and on a busy node an answer takes seconds.
const unlisted = 20 * time.Second

// Unlisted reports whether the kubelet had had no list of the node's containers for long when it was asked
// for its counts.
func (k *KubeletService) Unlisted() bool {
	return !k.Listed.IsZero() && k.VolumeCallsRead.Sub(k.Listed) >= unlisted
}
