package diagnose

import (
	"path"
	"slices"
	"strings"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// Objects are what a finding is about, as data: its words are made of nothing
// else. What does not apply is left out. Names and paths are as the kernel, the
// runtime and the API server gave them: any text may stand there.
type Objects struct {
	// Process is the one that the finding is about, and Thread a thread of it.
	// Of a container it is the first process, or the one that this hands its
	// signals to; of the runtime, containerd or the shim.
	Process *Process `json:"process,omitempty"`
	Thread  *Thread  `json:"thread,omitempty"`
	// Alike counts further threads, or processes, of which the same is true.
	// Others are the first of these processes, AtLeast reports whether there may be more, and Spared
	// are those among them that nobody may be told to end.
	Alike   int        `json:"alike,omitempty"`
	Others  []*Process `json:"others,omitempty"`
	AtLeast bool       `json:"atLeast,omitempty"`
	Spared  []*Process `json:"spared,omitempty"`
	// Child is the program that Process runs; Foreground the one that Child waits
	// for.
	Child      *Process `json:"child,omitempty"`
	Foreground *Process `json:"foreground,omitempty"`
	// Tracer is the process that traces Process.
	Tracer *Process `json:"tracer,omitempty"`
	// Member is the process that keeps a PID namespace from being empty, and
	// Parent its parent outside of the namespace.
	Member *Process `json:"member,omitempty"`
	Parent *Process `json:"parent,omitempty"`

	// Containers are names of the pod's containers, where it is about several.
	Containers []string `json:"containers,omitempty"`
	// ContainerID is containerd's ID of the finding's container.
	ContainerID string `json:"containerID,omitempty"`
	// Cgroup is the path of a control group below the mount point of its hierarchy.
	Cgroup string `json:"cgroup,omitempty"`
	// Mount is what is waited for; Device the block device, by name or as
	// major:minor, where only that is known.
	Mount  *Mount `json:"mount,omitempty"`
	Device string `json:"device,omitempty"`
	// Logical is the logical volume of LVM that Device is, as in vg/lv.
	Logical string `json:"logical,omitempty"`
	// Rest are devices that have to be removed after Device, in this order.
	Rest []string `json:"rest,omitempty"`
	// Inner is a mount inside of Mount, or of what is on it, and Via what Process has there.
	Inner *Mount `json:"inner,omitempty"`
	Via   string `json:"via,omitempty"`
	// Volumes are names of the pod's volumes, or of their PersistentVolumes; Plugin
	// is their volume plugin, or the type of a CNI plugin, Driver their CSI driver, and
	// Code the gRPC code that the driver's calls end with, or the HTTP status of the API
	// server's answers.
	Volumes []string `json:"volumes,omitempty"`
	Plugin  string   `json:"plugin,omitempty"`
	Driver  string   `json:"driver,omitempty"`
	// Claimed are those of Volumes, and of the volumes of Mount and Inner, that the pod's
	// specification does not name as the node does.
	Claimed []Claimed `json:"claimed,omitempty"`
	// Claims are names of the pod's resource claims, and Driver their DRA driver.
	Claims []string `json:"claims,omitempty"`
	// DriverPod is the driver's pod on this node, as namespace/name, and DriverState
	// how it is, as evidence.Volume has it.
	DriverPod   string `json:"driverPod,omitempty"`
	DriverState string `json:"driverState,omitempty"`
	Code        string `json:"code,omitempty"`
	// CorePattern is where core dumps go: the first word of core_pattern (core(5)).
	CorePattern string `json:"corePattern,omitempty"`

	// Error is what a CNI plugin, or containerd, answered, and Daemon the pod, as
	// namespace/name, of the daemon that the plugin talks to.
	Daemon string `json:"daemon,omitempty"`
	Error  string `json:"error,omitempty"`

	// Signal is the container's stop signal, as in SIGTERM; Handled another one
	// that its program has a handler for.
	Signal  string `json:"signal,omitempty"`
	Handled string `json:"handled,omitempty"`
	// Deadline is when the grace period ends, by the API server's clock, and
	// GraceSeconds how long it is. Requested is when the deletion was requested.
	Requested time.Time `json:"requested,omitzero"`
	Deadline  time.Time `json:"deadline,omitzero"`
	// Latest says that the kubelet may have the pod killed before Deadline: when it heard of the deletion is not known.
	Latest       bool  `json:"latest,omitempty"`
	GraceSeconds int64 `json:"graceSeconds,omitempty"`
	// Since is when a silence began; Until when what it waits for ends; Ended when the
	// container ended.
	Since time.Time `json:"since,omitzero"`
	Until time.Time `json:"until,omitzero"`
	Ended time.Time `json:"ended,omitzero"`
	// SleepSeconds is for how long a hook sleeps, and Port the pod's to which a hook sends a
	// request. HookLeftSeconds is about how much of the grace period a preStop hook has left.
	SleepSeconds    int64 `json:"sleepSeconds,omitempty"`
	Port            int   `json:"port,omitempty"`
	HookLeftSeconds int64 `json:"hookLeftSeconds,omitempty"`

	// Connections counts TCP connections of the pod over which nobody answers.
	Connections int `json:"connections,omitempty"`

	// CPULimitMillis and CPUUsedMillis are the container's quota and last use in
	// thousandths of a processor, MemoryHigh its memory.high in bytes.
	CPULimitMillis int64 `json:"cpuLimitMillis,omitempty"`
	CPUUsedMillis  int64 `json:"cpuUsedMillis,omitempty"`
	MemoryHigh     int64 `json:"memoryHigh,omitempty"`
	// Users are those who use most of the node's processors.
	Users []User `json:"users,omitempty"`

	// Command is what Process was told to do, as in kill, which runc is.
	Command string `json:"command,omitempty"`

	// Image is the name of an image as the pod's specification has it.
	Image string `json:"image,omitempty"`

	// Limit is one on processes and threads, or on open files, that is used up, or the size of a file system in
	// bytes or inodes. Dir is the directory of containerd's records, or the kubelet's, whose file system it is.
	Limit int64  `json:"limit,omitempty"`
	Dir   string `json:"dir,omitempty"`

	// Kernel is the kernel's release, as uname -r prints it.
	Kernel string `json:"kernel,omitempty"`

	// Containerd is containerd's version. Issue is one of its issues, as in #10589, by which
	// that version is known, and FixedIn the version without it.
	Containerd string `json:"containerd,omitempty"`
	Issue      string `json:"issue,omitempty"`
	FixedIn    string `json:"fixedIn,omitempty"`

	// List is what a list of the whole node is of, as evidence.List has it.
	List string `json:"list,omitempty"`

	// Finalizers are those that are left. Manager is what the client calls itself that
	// put a single one there, and Changed when it last changed the pod.
	Finalizers []string  `json:"finalizers,omitempty"`
	Manager    string    `json:"manager,omitempty"`
	Changed    time.Time `json:"changed,omitzero"`

	// Refuser is what has refused nodeagent's own update of the pod's status.
	Refuser *Refuser `json:"refuser,omitempty"`

	// Node is the name of the pod's node.
	Node string `json:"node,omitempty"`

	// PodUID is the UID that the kubelet's directories of the pod have.
	PodUID string `json:"podUID,omitempty"`

	// Pod is namespace/name. Left is what is left of the pod on the node. RuledOut
	// are the layers of which every cause was looked for that can hold the pod up,
	// PartlyRuledOut those of which some were, and Unread the sources that were
	// missing for the others. Undecided are at most six causes that are neither found nor ruled out. Scarce is what the node is short of.
	Pod            string            `json:"pod,omitempty"`
	Left           []string          `json:"left,omitempty"`
	RuledOut       []string          `json:"ruledOut,omitempty"`
	PartlyRuledOut []string          `json:"partlyRuledOut,omitempty"`
	Unread         []evidence.Source `json:"unread,omitempty"`
	Undecided      []Undecided       `json:"undecided,omitempty"`
	Scarce         []string          `json:"scarce,omitempty"`
	// Runtimes are those of the pod's containers into which nodeagent cannot look, by
	// containerd's names of them.
	Runtimes []string `json:"runtimes,omitempty"`
	// Views are the containers of which containerd, the shim and the kernel disagree.
	Views []View `json:"views,omitempty"`
}

// A User of the processors is a pod, as namespace/name or by its UID, or another control group by its path.
type User struct {
	Pod    string `json:"pod,omitempty"`
	PodUID string `json:"podUID,omitempty"`
	Cgroup string `json:"cgroup,omitempty"`
}

// A Refuser is a webhook, or a ValidatingAdmissionPolicy with its binding, by their names.
type Refuser struct {
	Webhook string `json:"webhook,omitempty"`
	Policy  string `json:"policy,omitempty"`
	Binding string `json:"binding,omitempty"`
}

// RefusedBy notes what has refused nodeagent's own update of the pod's status; nil for nothing.
func (f *Finding) RefusedBy(r *evidence.Refusal) {
	if r == nil {
		return
	}
	f.Objects.Refuser = &Refuser{Webhook: r.Webhook, Policy: r.Policy, Binding: r.Binding}
	if r.Uncalled {
		f.Variants = append(f.Variants, Uncalled)
	}
}

// A Claimed is a PersistentVolume, by which the node calls a volume, and what the pod's
// specification calls it.
type Claimed struct {
	Volume string `json:"volume"`
	// Names are the volumes of the specification that it can be, and Claims their
	// PersistentVolumeClaims, each once. With one claim it is certain.
	Names  []string `json:"names"`
	Claims []string `json:"claims"`
}

// claimed returns what the pod's specification calls the volumes of a finding.
func claimed(p *fact.View, o *Objects) []Claimed {
	names := slices.Clone(o.Volumes)
	for _, m := range []*Mount{o.Mount, o.Inner} {
		if m != nil && m.Volume != "" && !slices.Contains(names, m.Volume) {
			names = append(names, m.Volume)
		}
	}
	var out []Claimed
	for _, name := range names {
		if c := claimedBy(p, name); c != nil {
			out = append(out, *c)
		}
	}
	return out
}

// claimedBy returns it for one volume, nil for one that the specification names as the node does.
func claimedBy(p *fact.View, name string) *Claimed {
	c := &Claimed{Volume: name}
	for _, v := range behindClaim(p, name) {
		c.Names = append(c.Names, v.Name)
		if !slices.Contains(c.Claims, v.Claim) {
			c.Claims = append(c.Claims, v.Claim)
		}
	}
	if len(c.Claims) == 0 {
		return nil
	}
	return c
}

// A View is what containerd's record, the shim and the kernel say of one container.
type View struct {
	Container string                  `json:"container"`
	Record    evidence.ContainerState `json:"record"`
	// Shim is what the shim answers: a status, or no task.
	Shim string `json:"shim"`
	// Tasks counts the container's live threads.
	Tasks int `json:"tasks"`
}

// What can be left of a pod on its node.
const (
	LeftProcesses = "processes"
	LeftMounts    = "mounts"
	LeftCgroup    = "cgroup"
)

// A Process is a process of the node.
type Process struct {
	PID int `json:"pid"`
	// Start is its start time in clock ticks since boot, 0 when not known: a PID is
	// used again, both together are not.
	Start uint64 `json:"start,omitempty"`
	// Comm is the name that the kernel shows, "" when only the PID is known;
	// Program what the container was started with, where that is another name.
	Comm    string             `json:"comm,omitempty"`
	Program string             `json:"program,omitempty"`
	State   evidence.TaskState `json:"state,omitempty"`
	// Container is set for a process of this pod; Pod, as namespace/name, or
	// PodUID for one of another, and both for one of another pod of this name.
	Container string `json:"container,omitempty"`
	Pod       string `json:"pod,omitempty"`
	PodUID    string `json:"podUID,omitempty"`
	// Unit is the unit of systemd that runs a process outside of pods.
	Unit string `json:"unit,omitempty"`
}

// A Thread is a thread of the node.
type Thread struct {
	TID   int                `json:"tid"`
	Comm  string             `json:"comm,omitempty"`
	State evidence.TaskState `json:"state,omitempty"`
	// Function is the kernel function that it sleeps in, Syscall its system call;
	// "" when not known.
	Function string `json:"function,omitempty"`
	Syscall  string `json:"syscall,omitempty"`
}

// A Mount is a mounted file system; of an overlay the one that holds its data.
type Mount struct {
	// Type is that of the mount table, Family what stands behind it (NFS, CIFS,
	// Ceph, FUSE; "" for others).
	Type   string `json:"type"`
	Family string `json:"family,omitempty"`
	Device string `json:"device,omitempty"` // major:minor
	Source string `json:"source,omitempty"`
	Server string `json:"server,omitempty"`
	Volume string `json:"volume,omitempty"`
	// Point is where the process sees it, HostPoint where the node does.
	Point     string `json:"point"`
	HostPoint string `json:"hostPoint,omitempty"`
	// Unanswered says that requests to the server have no answer; OutOfReach that
	// nothing at all comes back from it, over a connection in the state Connection
	// (ESTABLISHED, SYN_SENT, none).
	Unanswered bool   `json:"unanswered,omitempty"`
	OutOfReach bool   `json:"outOfReach,omitempty"`
	Connection string `json:"connection,omitempty"`
	// Mapper is the name of its device with the device mapper, where that has
	// suspended it.
	Mapper string `json:"mapper,omitempty"`
	// KernelThread is a thread of the kernel that waits for the same device.
	KernelThread string `json:"kernelThread,omitempty"`
}

// ProcessOf describes the process of a task.
func ProcessOf(p *fact.View, t *evidence.Task) *Process {
	o := &Process{PID: t.PID, Comm: t.Comm, State: t.State, Container: p.ContainerName(t), Pod: t.OwnerName}
	if t.Leader() && t.Probe != nil {
		o.Start = t.Probe.Start // other threads have start times of their own
	}
	if o.Pod == p.Namespace+"/"+p.Name && t.Owner != p.RuntimeUID && t.Owner != p.UID {
		o.PodUID = t.Owner // the next pod of a StatefulSet would be taken for this one
	}
	if o.Pod == "" && t.InPod() {
		o.PodUID = t.Owner
	}
	return o
}

// ProcessByID describes the process of which a thread has the given number, as
// TracerPid names it.
func ProcessByID(p *fact.View, tid int) *Process {
	if t, _ := fact.ByID(p, tid); t != nil {
		return ProcessOf(p, t)
	}
	return &Process{PID: tid}
}

// EssentialByID reports whether the process of which a thread has the given number is
// one that nobody may be told to end.
func EssentialByID(p *fact.View, tid int) bool {
	if tid == 1 {
		return true
	}
	t, inside := fact.ByID(p, tid)
	return t != nil && !inside && fact.Essential(t)
}

// ThreadOf describes a task.
func ThreadOf(t *evidence.Task) *Thread {
	o := &Thread{TID: t.TID, Comm: t.Comm, State: t.State, Function: fact.SleepsIn(t)}
	if t.Probe != nil {
		o.Syscall = t.Probe.Syscall
	}
	return o
}

// MountOf describes a mount.
func MountOf(p *fact.View, m *evidence.Mount) *Mount {
	b := fact.Backing(m)
	o := &Mount{
		Type: b.Type, Family: fact.FamilyOfType(b.Type), Device: b.Device, Source: b.Source, Server: b.Server,
		Volume: m.Volume, Point: b.Point, HostPoint: b.HostPoint, Unanswered: b.Unanswered != nil && *b.Unanswered > 0,
	}
	if o.Volume == "" {
		o.Volume = b.Volume
	}
	if fact.OutOfReach(b) {
		o.OutOfReach, o.Connection = true, b.Connection
	}
	if b.Disk != nil && b.Disk.Suspended {
		o.Mapper = b.Disk.Mapper
	}
	if t := deviceThread(p, b); t != nil {
		o.KernelThread = t.Comm
	}
	return o
}

// deviceThread returns a thread of the kernel that is in state D without moving
// and whose name tells that it works for a mount's block device. It supports
// that the device, and not the task, is the reason.
func deviceThread(p *fact.View, m *evidence.Mount) *evidence.Task {
	for i := range p.Node.Blocked {
		t := &p.Node.Blocked[i]
		if d := fact.DeviceOf(p, t); d != "" && (d == m.Device || m.Source != "" && d == path.Base(m.Source) ||
			strings.HasPrefix(m.Source, "/dev/mapper/") && d == "dm-"+minor(m.Device)) {
			return t
		}
	}
	return nil
}

// minor returns the second part of a device number; of a FUSE mount it is the
// number of its connection (Documentation/filesystems/fuse.rst).
func minor(device string) string {
	_, m, _ := strings.Cut(device, ":")
	return m
}

// About starts a finding about the first process of a container.
func About(p *fact.View, fp fact.FirstProcess, c Confidence) Finding {
	first, hook := ProcessOf(p, fp.Leader), p.Hook(fp.Container)
	if name := fp.Program(); name != first.Comm {
		first.Program = name
	}
	f := Finding{Container: fp.Container.Name, Confidence: c, Objects: Objects{
		Process: first, Deadline: p.Kill.At, Latest: p.Kill.Latest, Requested: p.DeletionRequested,
		GraceSeconds: int64(fact.Grace(p).Seconds()), HookLeftSeconds: int64(hook.Left.Seconds()),
	}}
	if p.Gone && fp.Container.Exit != nil {
		f.Variants, f.Objects.Ended = []string{Gone}, fp.Container.Exit.At
	}
	if hook.State == fact.HookOver {
		f.Variants = append(f.Variants, BehindHook)
		if fact.HookMayHaveAsked(fp.Container) {
			f.Variants = append(f.Variants, AskedByHook)
		}
	}
	if fp.Container.StopSignal != 0 {
		f.Objects.Signal = fp.Container.StopSignal.String()
	}
	if program, role := fp.Main(p); program != nil && role != fact.Itself {
		f.Objects.Child = ProcessOf(p, program)
	}
	return f
}

// behindClaim returns the volumes of the pod's specification that a volume of the pod on the node
// can be, by its name there; none when the specification has that name, or it is not known.
//
// The kubelet calls what is behind a PersistentVolumeClaim by its PersistentVolume
// (NewSpecFromPersistentVolume and Name, pkg/volume/plugins.go), which the specification does not
// have, and all else as the specification does. So what is called otherwise is behind a claim,
// and behind a certain one where the specification has one of that mode: a container is given
// a block device by volumeDevices only, and a file system by volumeMounts only (createVolumeSpec,
// pkg/kubelet/volumemanager/populator). Of several it is the one that containerd was seen to have
// mounted by this name.
//
// To look up which claim it is would take the right to read all claims.
func behindClaim(p *fact.View, name string) []evidence.SpecVolume {
	block, files := modes(p, name)
	var known, can []evidence.SpecVolume
	for _, s := range p.Specified {
		switch {
		case s.Claim == "" && s.Name == name:
			return nil
		case s.Claim == "" || s.Node != "" && s.Node != name || s.Block && !block || !s.Block && !files:
		case s.Node == name:
			known = append(known, s)
		default:
			can = append(can, s)
		}
	}
	if len(known) > 0 {
		return known
	}
	return can
}

// modes reports whether the node has a volume of the pod as a block device, and as a file
// system, that may be behind a claim. Two volumes may have one name.
func modes(p *fact.View, name string) (block, files bool) {
	is := func(m evidence.Mount) bool { return m.Volume == name && !slices.Contains(neverClaimed, m.Plugin) }
	block, files = slices.ContainsFunc(p.Devices, is), slices.ContainsFunc(p.Mounts, is)
	for i := range p.Volumes {
		if v := &p.Volumes[i]; v.Name == name && !slices.Contains(neverClaimed, v.Plugin) {
			block, files = block || v.Block, files || !v.Block
		}
	}
	return block, files
}

// neverClaimed are the kubelet's plugins of volumes that no PersistentVolume can be of.
var neverClaimed = []string{
	"kubernetes.io~configmap", "kubernetes.io~downward-api", "kubernetes.io~empty-dir", "kubernetes.io~git-repo",
	"kubernetes.io~projected", "kubernetes.io~secret",
}
