package evidence

import (
	"time"
)

// A TaskState is the letter that the kernel gives a task in the "State:" line
// of /proc/PID/status (fs/proc/array.c).
type TaskState string

// The task states that rules tell apart.
const (
	Runnable        TaskState = "R"
	Sleeping        TaskState = "S"
	Uninterruptible TaskState = "D"
	Stopped         TaskState = "T"
	Traced          TaskState = "t"
	Zombie          TaskState = "Z"
	Dead            TaskState = "X"
	Idle            TaskState = "I"
)

// PFExiting is the bit of Probe.Flags that is set while the task is inside do_exit
// (PF_EXITING, include/linux/sched.h).
const PFExiting = 0x4

// PFIOWorker is the bit of Probe.Flags of a thread that io_uring has started in the
// process: one that works on requests, or polls a ring (PF_IO_WORKER,
// include/linux/sched.h). Before Linux 5.12 these are threads of the kernel.
const PFIOWorker = 0x10

// A Task is one thread, as its files below /proc/PID/task/TID show it.
type Task struct {
	PID int `json:"pid"`
	TID int `json:"tid"`
	// PPID, NSpid, Threads and TracerPID are as in /proc/PID/status. NSpid
	// ends with the PID in the innermost namespace; 1 there is its init.
	PPID      int       `json:"ppid,omitempty"`
	NSpid     []int     `json:"nspid,omitempty"`
	Threads   int       `json:"threads,omitempty"`
	TracerPID int       `json:"tracerPID,omitempty"`
	Comm      string    `json:"comm"`
	State     TaskState `json:"state"`
	// CoreDumping is the process-wide flag of that name.
	CoreDumping bool `json:"coreDumping,omitempty"`
	// Kernel reports whether this is a thread of the kernel.
	Kernel bool `json:"kernel,omitempty"`

	// The signal sets. Pending and Blocked are the thread's own; the others
	// belong to its process.
	Pending       SignalSet `json:"sigPnd,omitempty"`
	SharedPending SignalSet `json:"shdPnd,omitempty"`
	Blocked       SignalSet `json:"sigBlk,omitempty"`
	Ignored       SignalSet `json:"sigIgn,omitempty"`
	Caught        SignalSet `json:"sigCgt,omitempty"`

	// Switches is the sum of voluntary and involuntary context switches.
	// UnchangedSince is when the tasks had been read in the first of the readings in
	// a row that showed the same task in the same state with the same Switches.
	// UnchangedUntil is when the last of these readings began; zero for the tasks of
	// a pod, where it is Pod.Time.
	Switches       uint64    `json:"switches,omitempty"`
	UnchangedSince time.Time `json:"unchangedSince,omitzero"`
	UnchangedUntil time.Time `json:"unchangedUntil,omitzero"`
	// SignalsSince is the same for the readings in a row that showed the same
	// program with the same dispositions of signals: a program that starts has not
	// installed its handlers yet.
	SignalsSince time.Time `json:"signalsSince,omitzero"`
	// ActionsSince is the same whatever the task blocks, where that is longer; else it is zero.
	ActionsSince time.Time `json:"actionsSince,omitzero"`
	// Removed, of a task in a Baseline, are the signals for which an earlier one showed a handler that is not there
	// any more.
	Removed SignalSet `json:"removed,omitempty"`
	// PendingSince is the same for the readings in a row that showed the same
	// signals in SharedPending; zero while there are none.
	PendingSince time.Time `json:"pendingSince,omitzero"`
	// HadChild reports whether this or an earlier reading showed a child of the process in its container: a
	// shell that runs one short program after the other has none in between.
	HadChild bool `json:"hadChild,omitempty"`
	// WasInSigwait reports whether an earlier reading showed the same program in sigwait. One that is woken is
	// runnable until it has a processor, and still shows none of the signals that it waits for.
	WasInSigwait bool `json:"wasInSigwait,omitempty"`
	// WasKilled reports whether an earlier reading showed SIGKILL pending in the task: it has
	// taken it since, and exits.
	WasKilled bool `json:"wasKilled,omitempty"`
	// WasExiting reports whether an earlier reading showed the task inside do_exit.
	WasExiting bool `json:"wasExiting,omitempty"`

	// Container is the ID of the container whose cgroup the task is in.
	// Cgroup is its path below the cgroup mount, kept for tasks outside the
	// pod, and for those in a group that was made inside a container's. Owner is whose it is in one word: a pod's UID, kubelet, containerd,
	// shim or kernel. OwnerName is that pod as namespace/name.
	Container string `json:"container,omitempty"`
	Cgroup    string `json:"cgroup,omitempty"`
	Owner     string `json:"owner,omitempty"`
	OwnerName string `json:"ownerName,omitempty"`

	// Probe is what those files show that may block their reader. It is nil for
	// a task that was not a suspect.
	Probe *Probe `json:"probe,omitempty"`
}

// Leader reports whether the task is the first thread of its process.
func (t *Task) Leader() bool { return t.PID == t.TID }

// InSigwait reports whether the task waits for signals: in sigwait(3), sigwaitinfo(2) or sigtimedwait(2).
func (t *Task) InSigwait() bool {
	return t.Probe != nil && (t.Probe.Syscall == "rt_sigtimedwait" || t.Probe.Syscall == "rt_sigtimedwait_time64")
}

// NamespaceInit reports whether the task's process is PID 1 of a PID namespace
// other than the host's. The kernel drops signals to it that it neither catches,
// ignores nor blocks (SIGNAL_UNKILLABLE, kernel/signal.c).
func (t *Task) NamespaceInit() bool {
	return len(t.NSpid) > 1 && t.NSpid[len(t.NSpid)-1] == 1
}

// Started returns when a task was started, by the wall clock; the zero time of none, and of one of which it was not read.
func (t *Task) Started() time.Time {
	if t == nil || t.Probe == nil {
		return time.Time{}
	}
	return t.Probe.Started
}

// Sent reports whether a signal to the process has been sent and not been taken (ShdPnd).
func (t *Task) Sent(sig Signal) bool { return t.SharedPending.Has(sig) }

// WaitsSince returns since when readings have shown that such a signal waits to be taken; zero where this one is the first, and where none does.
func (t *Task) WaitsSince(sig Signal) time.Time {
	if !t.Sent(sig) {
		return time.Time{}
	}
	return t.PendingSince
}

// Killed reports whether SIGKILL is pending: the task has been killed and has
// not exited yet.
func (t *Task) Killed() bool {
	return t.Pending.Has(SIGKILL) || t.Sent(SIGKILL)
}

// AwaitsScanner reports whether the task waits until a program that scans files has answered whether it may open, read
// or execute one (fanotify_get_response in fs/notify/fanotify/fanotify.c, which compilers make a part of its caller).
func (t *Task) AwaitsScanner() bool {
	if t.State != Uninterruptible || t.Probe == nil {
		return false
	}
	in := t.Probe.Wchan
	if in == "" && len(t.Probe.Stack) > 0 {
		in = t.Probe.Stack[0]
	}
	return in == "fanotify_get_response" || in == "fanotify_handle_event"
}

// Exiting reports whether the task is known to be inside do_exit.
func (t *Task) Exiting() bool { return t.Probe != nil && t.Probe.Flags&PFExiting != 0 }

// IOWorker reports whether the task is known to be a thread that io_uring has started: it
// runs in the kernel only, blocks all signals that can be, and has no system call.
func (t *Task) IOWorker() bool { return t.Probe != nil && t.Probe.Flags&PFIOWorker != 0 }

// Unchanged returns for how long readings prove that the task has not changed.
// now is Pod.Time.
func (t *Task) Unchanged(now time.Time) time.Duration {
	if t.UnchangedSince.IsZero() {
		return 0
	}
	if !t.UnchangedUntil.IsZero() && t.UnchangedUntil.Before(now) {
		now = t.UnchangedUntil
	}
	return max(0, now.Sub(t.UnchangedSince))
}

// same reports whether two readings show the same thread that has not run in
// between, or only to ask in vain again. One that is first seen to exit has, whatever its status says, which was read before
// its probe: a signal may have come in between.
func (t *Task) same(o *Task) bool {
	return t.PID == o.PID && t.TID == o.TID && t.Comm == o.Comm && t.State == o.State &&
		(t.Switches == o.Switches || t.asksInVain(o)) && (!t.Exiting() || o.Exiting() || o.WasExiting) && (t.Probe == nil || o.Probe == nil || t.Probe.same(o.Probe))
}

// asksInVain reports whether two readings show a thread that waits for an answer of the same NFS server, from
// which none has come in between, for this thread or another one: a server that refuses the connection is asked
// again twice a second, and the thread runs for that (call_connect_status, net/sunrpc/clnt.c). A thread that
// waits for others that ask, as for its data to be written back, may get it from another server (pNFS); and where
// requests time out (soft), it may be another call.
func (t *Task) asksInVain(o *Task) bool {
	if t.State != Uninterruptible || t.Probe == nil || o.Probe == nil || t.Probe.Wchan != "rpc_wait_bit_killable" ||
		t.Probe.Syscall != o.Probe.Syscall || t.Probe.VolumePath != o.Probe.VolumePath {
		return false
	}
	m, b := t.Probe.Mount, o.Probe.Mount
	return m != nil && b != nil && m.Device == b.Device && !m.Soft && m.Received != nil && b.Received != nil && *m.Received == *b.Received
}

// same reports whether two probes show the same thread in the same wait, as far as they
// tell. A probe is read after the status: one that a signal has reached in between waits
// for something else now than when its switches were counted.
func (p *Probe) same(o *Probe) bool {
	return p.Start == o.Start && (p.Wchan == o.Wchan || p.Wchan == "" || o.Wchan == "")
}

// sameProgram reports whether two readings show the same process, which runs the same
// program.
func (t *Task) sameProgram(o *Task) bool {
	return t.PID == o.PID && t.Comm == o.Comm && t.Probe != nil && o.Probe != nil && t.Probe.Start == o.Probe.Start && t.Probe.Exe == o.Probe.Exe
}

// sameSignals reports whether two readings show the same program with the same
// dispositions. Comm is compared because it changes with the program that a
// process executes.
func (t *Task) sameSignals(o *Task) bool {
	return t.sameActions(o) && t.Blocked == o.Blocked
}

// sameActions is that without what it blocks.
func (t *Task) sameActions(o *Task) bool {
	return t.PID == o.PID && t.TID == o.TID && t.Comm == o.Comm && t.Ignored == o.Ignored && t.Caught == o.Caught
}

// A Probe is what /proc/PID/task/TID/{stat,wchan,stack,syscall} and the file or
// path behind a blocked system call show. Reading these may never return, so a
// helper process reads them.
type Probe struct {
	// Hung names the files whose read did not return in time. Hung "stat"
	// means that the process is stuck inside execve.
	Hung []string `json:"hung,omitempty"`
	// Start is the start time in clock ticks since boot (stat, field 22).
	Start uint64 `json:"start,omitempty"`
	// Started is the same moment by the wall clock, and Group the process group
	// (stat, field 5).
	Started time.Time `json:"started,omitzero"`
	Group   int       `json:"group,omitempty"`
	// Terminal reports whether the process has a controlling terminal (stat, field 7).
	Terminal bool `json:"terminal,omitempty"`
	// Flags are the PF_ bits (stat, field 9).
	Flags uint64 `json:"flags,omitempty"`
	// Reaped is how many page faults the children of the process had of which it has collected the exit (stat, fields 11
	// and 13). Each program has some, so that it grows with each that has ended.
	Reaped uint64 `json:"reaped,omitempty"`
	// Exe is the base name of the program file (readlink of exe), "" when it
	// could not be read. It names a script's shell, which comm does not.
	Exe string `json:"exe,omitempty"`
	// Wchan is the kernel function the task sleeps in; Stack the kernel stack
	// by function name, innermost first. The names are those of the source,
	// without what a compiler appends (foo for foo.isra.0).
	Wchan string   `json:"wchan,omitempty"`
	Stack []string `json:"stack,omitempty"`
	// Syscall is the name of the system call that blocks, "" when unknown or
	// when the task is not in one (a page fault: Fault is set).
	Syscall string `json:"syscall,omitempty"`
	Fault   bool   `json:"fault,omitempty"`
	// Mount is the mount that the blocked call works on, and Via how it was
	// found: "fd 3", "path", "working directory".
	Mount *Mount `json:"mount,omitempty"`
	Via   string `json:"via,omitempty"`
	// Indirect reports whether Mount was found through no open or mapped file: it is
	// the one that the text of a path names, which is another one where a symbolic
	// link stands in the path, or the only FUSE connection where the task is that has
	// requests waiting.
	Indirect bool `json:"indirect,omitempty"`
	// Candidates are, where no Mount was found, the mounts that the task sees of
	// the kind of network file system that its stack shows, each device once; of a
	// task that has left its namespaces, those of the node. None when there are too
	// many.
	Candidates []Mount `json:"candidates,omitempty"`
	// VolumePath is set when the path argument of the blocked call lies below
	// a pod's directory of the kubelet; it ends with the volume's name.
	VolumePath string `json:"volumePath,omitempty"`
	// Relative reports whether that path was relative to an open directory, as where files are deleted
	// (os.RemoveAll), and not where they are counted (filepath.Walk).
	Relative bool `json:"relative,omitempty"`
}

// A Mount is one line of a mountinfo file (proc(5)), with its octal escapes
// undone and without the options that could hold secrets.
type Mount struct {
	ID       int    `json:"id"`
	ParentID int    `json:"parentID,omitempty"`
	Device   string `json:"device"` // major:minor
	Root     string `json:"root,omitempty"`
	Point    string `json:"point"`
	// HostPoint is where the same device is mounted in the host's mount table,
	// which is what an operator on the node can name; "" when it is not.
	HostPoint string `json:"hostPoint,omitempty"`
	Type      string `json:"type"`
	Source    string `json:"source,omitempty"`
	// Server is the address that a network file system's options name.
	Server   string `json:"server,omitempty"`
	ReadOnly bool   `json:"readOnly,omitempty"`
	// Soft reports whether the requests of a network file system end with an error
	// when they have timed out (options soft and softerr of nfs(5), soft of
	// mount.cifs(8)).
	Soft bool `json:"soft,omitempty"`
	// Volume and Plugin are set for a mount below a pod's directory of the
	// kubelet: pods/UID/volumes/PLUGIN/VOLUME.
	Volume string `json:"volume,omitempty"`
	Plugin string `json:"plugin,omitempty"`
	// Shared reports whether the host has a mount of a volume with the same Plugin and Volume
	// of another pod: of the same PersistentVolume, or of one that stands in both specifications
	// under the same name (Volume.Inline).
	Shared bool `json:"shared,omitempty"`
	// Backing is the mount that holds an overlay's upper directory.
	Backing *Mount `json:"backing,omitempty"`
	// FUSEWaiting is the number of requests that wait for the daemon of a FUSE
	// connection; nil when it could not be read or for other types.
	FUSEWaiting *int `json:"fuseWaiting,omitempty"`
	// OnlyWaiting reports whether no other FUSE connection of the node has requests
	// waiting.
	OnlyWaiting bool `json:"onlyWaiting,omitempty"`
	// Unanswered is the number of requests that the client of an NFS mount has
	// sent without an answer (mountstats); nil when not known. Connection is the
	// state of the TCP connection to the server of an NFS or SMB mount
	// (Established, SYN_SENT, or none), "" when not known. Resent counts the
	// retransmissions of the oldest unacknowledged segment (retrnsmt in
	// /proc/net/tcp).
	Unanswered *int   `json:"unanswered,omitempty"`
	Connection string `json:"connection,omitempty"`
	Resent     int    `json:"resent,omitempty"`
	// Received is how many answers have come from the server of an NFS mount over its connections
	// (mountstats); nil when not known.
	Received *int64 `json:"received,omitempty"`
	// Disk is what the kernel counts of the block device below the file system; nil
	// when it is on none, or it could not be read.
	Disk *Disk `json:"disk,omitempty"`
}

// A Disk is a block device's /sys/dev/block/MAJOR:MINOR/stat
// (Documentation/block/stat.rst), and what the device mapper says of it.
type Disk struct {
	// Completed counts the requests that have ended, well or not, and InFlight
	// those under way.
	Completed uint64 `json:"completed"`
	InFlight  uint64 `json:"inFlight,omitempty"`
	// Suspended reports whether the device mapper holds back what is sent to the
	// device, until dmsetup resume (dm/suspended), and Mapper is its name there
	// (dm/name); "" for other devices.
	Suspended bool   `json:"suspended,omitempty"`
	Mapper    string `json:"mapper,omitempty"`
	// Read is when this was read; UnchangedSince when the first of the readings in a
	// row was that showed the same Completed; and Moved when the last one was that
	// showed another Completed than the one before, zero when none did.
	Read           time.Time `json:"read"`
	UnchangedSince time.Time `json:"unchangedSince,omitzero"`
	Moved          time.Time `json:"moved,omitzero"`
}

// Still returns for how long readings prove that no request has ended.
func (d *Disk) Still() time.Duration {
	if d.UnchangedSince.IsZero() {
		return 0
	}
	return max(0, d.Read.Sub(d.UnchangedSince))
}

// Established is the state of a TCP connection whose handshake is complete, and Unconnected says that there is no
// connection.
const (
	Established = "ESTABLISHED"
	Unconnected = "none"
)

// A Cgroup is one control group of the pod.
type Cgroup struct {
	// Path is below the mount point of the hierarchy.
	Path string `json:"path"`
	// Version is 1 or 2.
	Version int `json:"version"`
	// Container is the ID of the container whose group this is, "" for the
	// pod's own.
	Container string `json:"container,omitempty"`
	Threads   int    `json:"threads,omitempty"`
	// Populated reports whether this group or one below it has a live thread.
	Populated bool `json:"populated,omitempty"`
	// PIDs is pids.current, which counts zombies too; -1 when not read.
	PIDs int64 `json:"pids"`
	// Frozen reports whether the group is frozen: cgroup.events "frozen 1", or
	// freezer.state FROZEN or FREEZING.
	Frozen bool `json:"frozen,omitempty"`
	// FrozenBy is the path of the group, this one or one above it, that was
	// told to freeze (cgroup.freeze, or freezer.self_freezing of version 1).
	FrozenBy string `json:"frozenBy,omitempty"`
	// CPU and Memory are what the group's limits do to it; nil when not read.
	CPU    *CPU    `json:"cpu,omitempty"`
	Memory *Memory `json:"memory,omitempty"`
}

// CPU is what a group may use of the processors, and has used
// (Documentation/admin-guide/cgroup-v2.rst, cpu.stat and cpu.max).
type CPU struct {
	// UsedMicros is the time used, Periods and Throttled count the enforcement
	// periods and those of them in which the quota was used up.
	UsedMicros uint64 `json:"usedMicros"`
	Periods    uint64 `json:"periods,omitempty"`
	Throttled  uint64 `json:"throttled,omitempty"`
	// Millis is the quota in thousandths of a processor; 0 means none.
	Millis int64 `json:"millis,omitempty"`
	// ThrottledSince is the time of the reading since which at least three of
	// four periods have been throttled and half of the quota has been used, on the
	// whole: periods in which nothing runs are not counted. RecentMillis is the use
	// between the last two readings, in thousandths of a processor.
	ThrottledSince time.Time `json:"throttledSince,omitzero"`
	RecentMillis   int64     `json:"recentMillis,omitempty"`
	// What Periods, Throttled and UsedMicros were at ThrottledSince.
	SincePeriods    uint64 `json:"sincePeriods,omitempty"`
	SinceThrottled  uint64 `json:"sinceThrottled,omitempty"`
	SinceUsedMicros uint64 `json:"sinceUsedMicros,omitempty"`
}

// Memory is a group's memory and what its limits do, in bytes
// (cgroup-v2.rst, memory.high and memory.events). Version 1 has no High.
type Memory struct {
	Current int64 `json:"current"`
	// High and Max are the limits; 0 means none.
	High int64 `json:"high,omitempty"`
	Max  int64 `json:"max,omitempty"`
	// HighEvents and MaxEvents count how often the group was throttled at High
	// and had to reclaim at Max.
	HighEvents uint64 `json:"highEvents,omitempty"`
	MaxEvents  uint64 `json:"maxEvents,omitempty"`
	// StalledMicros is the time in which all tasks of the group that had work
	// waited for memory (memory.pressure, full total), read where High is set.
	// StalledSince is the time of the reading since which at least half of the
	// time was lost that way, on the whole. SinceStalled is what StalledMicros
	// was then. The kernel updates the total every two seconds.
	StalledMicros uint64    `json:"stalledMicros,omitempty"`
	StalledSince  time.Time `json:"stalledSince,omitzero"`
	SinceStalled  uint64    `json:"sinceStalled,omitempty"`
}

// leastUID is the length of the shortest UID of a pod, the one of a static pod: an MD5
// sum. The other owners have names.
const leastUID = 32

// InPod reports whether the task belongs to a pod.
func (t *Task) InPod() bool { return len(t.Owner) >= leastUID }
