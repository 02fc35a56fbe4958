package evidence

import (
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
)

// Since carries over from an earlier reading of the same pod since when what is
// unchanged has been so. A nil earlier reading means that this is the first.
// Rules that claim that something is stuck rest on it: one reading shows a
// state, only two show that nothing moves. A reading takes time, so what this one
// shows for the first time begins when its source had been read, and ends, in
// later ones, at their Time, before anything was read.
func (p *Pod) Since(earlier *Pod) {
	var e Pod
	if earlier != nil && earlier.UID == p.UID {
		e = *earlier
	}
	p.sinceLacking(&e)
	p.keepIDs(&e)
	for i := range p.Containers {
		if c := &p.Containers[i]; c.ID != "" {
			c.SaidID = ""
		}
	}
	ended := latest(p.Time, p.ContainersRead, p.CgroupsRead, p.TasksRead)
	p.UnchangedSince = ended
	if !e.UnchangedSince.IsZero() && p.sameStage(&e) {
		p.UnchangedSince = e.UnchangedSince
	}
	if p.StageReadSince = ended; !e.StageReadSince.IsZero() && p.lacksTheSame(&e) {
		p.StageReadSince = e.StageReadSince
	}
	if p.StageSince = ended; !e.StageSince.IsZero() && p.besidesContainers(&e) && p.sameContainers(&e) {
		p.StageSince = e.StageSince
	}
	tasks := latest(p.Time, p.TasksRead)
	p.sinceStop(&e)
	since(p.Tasks, e.Tasks, tasks)
	p.children()
	since(p.Parents, e.Parents, tasks)
	since(p.Leftovers, e.Leftovers, tasks)
	p.Seen.since(&e.Seen, p)
	p.bareSince(&e, tasks)
	p.sinceDisks(&e)
	sinceVolumes(p.Volumes, e.Volumes)
	sinceHolders(p.Holders, e.Holders, tasks)
	p.sinceHeld(&e, tasks)
	sinceLoops(p.Loops, e.Loops, tasks)
	sinceSpecified(p.Specified, e.Specified)
	sinceOutputHolders(p.OutputHolders, e.OutputHolders, tasks)
	sinceShimChildren(p.ShimChildren, e.ShimChildren, tasks)
	sinceRequests(p.Requests, e.Requests, tasks)
	p.Connections.since(e.Connections, tasks)
	p.sinceShortages(&e, tasks)
	since(p.Plugins, e.Plugins, tasks)
	since(p.NetworkSetup, e.NetworkSetup, tasks)
	p.sinceCommands(&e, tasks)
	p.sinceHooks(&e, tasks)
	p.Deletes = p.interrupted(e.Deletes, deleteCommand, longDelete, longDelete)
	p.Kills = p.interrupted(e.Kills, killCommand, longKill, surelyLongKill)
	p.sinceScannerWaits(&e, tasks)
	p.vacantSince(&e, latest(p.ContainersRead, tasks))
	if !p.NoShimSince.IsZero() {
		p.NoShimSince = firstOf(e.NoShimSince, tasks)
	}
	now, before := latest(p.Time, p.CgroupsRead), latest(e.Time, e.CgroupsRead)
	for i := range p.Cgroups {
		for j := range e.Cgroups {
			if p.Cgroups[i].Path == e.Cgroups[j].Path {
				p.Cgroups[i].CPU.since(e.Cgroups[j].CPU, now, before)
				p.Cgroups[i].Memory.since(e.Cgroups[j].Memory, now, before)
			}
		}
	}
}

// sinceStop carries over that the kubelet has begun to stop the pod, of which whoever changes its specification raises the
// generation once more, as by a container to debug it, and until when it had not. A second deletion does not raise it.
func (p *Pod) sinceStop(e *Pod) {
	if e.StopBegun {
		p.StopBegun, p.StopAwaited = true, false
	}
	if p.StopAwaitedUntil = e.StopAwaitedUntil; p.StopAwaited {
		p.StopAwaitedUntil = p.Time
	}
}

// keepIDs gives the containers of which containerd did not tell, as on a busy node,
// the IDs that an earlier reading saw, by which tasks are of a container, and their runtimes. A pod that
// terminates starts none anew. What else was seen of them then is not known now.
func (p *Pod) keepIDs(e *Pod) {
	if _, missing := p.Missing[Containers]; !missing {
		return
	}
	for _, c := range e.Containers {
		i := slices.IndexFunc(p.Containers, func(o Container) bool { return o.Kind == c.Kind && o.Name == c.Name })
		switch {
		case c.ID == "":
		case i < 0 && c.Kind == Sandbox:
			p.Containers = append(p.Containers, Container{Name: c.Name, Kind: c.Kind, ID: c.ID, Runtime: c.Runtime})
		case i >= 0 && p.Containers[i].ID == "":
			p.Containers[i].ID, p.Containers[i].Runtime = c.ID, c.Runtime
		}
	}
}

// sinceOutputHolders carries over since when the same processes have kept output open.
func sinceOutputHolders(now, before []OutputHolder, t time.Time) {
	for i := range now {
		h := &now[i]
		h.Since = t
		for j := range before {
			if before[j].sameProgram(&h.Task) {
				h.Since = before[j].Since
			}
		}
	}
}

// sinceShimChildren carries over since when a shim has had the same children.
func sinceShimChildren(now, before []ShimChild, t time.Time) {
	for i := range now {
		c := &now[i]
		c.Since = t
		for j := range before {
			if before[j].sameProgram(&c.Task) && before[j].Output == c.Output {
				c.Since = before[j].Since
			}
		}
	}
}

// soonSeen is how long after the deletion a container may be seen first for it to be no
// matter who held its output before: containerd, which doubles the time after which it tries
// again from one second on (internal/cri/server/events/events.go), tries again within 30
// seconds then.
const soonSeen = 10 * time.Second

// vacantSince sets VacantSince of the containers. read is when all that it rests on
// had been read.
func (p *Pod) vacantSince(e *Pod, read time.Time) {
	for i := range p.Containers {
		c := &p.Containers[i]
		o, ok := e.Container(c.ID)
		if !ok {
			o = &Container{}
		}
		c.VacantSince, c.Task.HeldUntil, c.Task.CommandedUntil = time.Time{}, o.Task.HeldUntil, o.Task.CommandedUntil
		if slices.ContainsFunc(p.RuntimeCommands, func(r RuntimeCommand) bool { return r.Container == c.ID }) {
			c.Task.CommandedUntil = read
		}
		if _, unknown := p.Missing[Containers]; unknown {
			c.Task.Asked, c.Task.ExcusedAttempts, c.Task.ExcusedAt = o.Task.Asked, o.Task.ExcusedAttempts, o.Task.ExcusedAt
		}
		c.Task.excuse(&o.Task, p.mayOccupy(c) || e.mayOccupy(c))
		if c.StatusErrorSince = (time.Time{}); c.StatusError != "" {
			c.StatusErrorSince = latest(p.Time, p.ContainersRead)
			if sameWords(c.StatusError, o.StatusError) {
				c.StatusErrorSince = firstOf(o.StatusErrorSince, c.StatusErrorSince)
			}
		}
		unseen := !ok && c.State == StateRunning && read.Sub(p.DeletionRequested) > soonSeen &&
			!slices.ContainsFunc(p.Tasks, func(t Task) bool { return t.Container == c.ID })
		if unseen || c.Task.held() && o.Task.held() {
			c.Task.HeldUntil = read
		}
		if !p.vacant(c) {
			continue
		}
		c.VacantSince = read
		if !o.VacantSince.IsZero() && o.Task.Status == c.Task.Status && o.Task.Absent == c.Task.Absent {
			c.VacantSince = o.VacantSince
		}
	}
}

// sameWords reports whether two errors are the same but for the numbers in them, as those of
// processes and ports.
func sameWords(a, b string) bool {
	wordsOf := func(s string) string {
		return strings.Map(func(r rune) rune {
			if unicode.IsDigit(r) {
				return -1
			}
			return r
		}, s)
	}
	return wordsOf(a) == wordsOf(b)
}

// held reports whether the output of a container that has ended is open. The shim needs a
// moment to close it, so that one reading does not show that somebody else holds it.
func (t *ShimTask) held() bool { return t.PIDGone && !t.Drained }

// vacant reports whether this reading shows that no task of a container is left, of which
// the CRI says that it runs, and that the shim has copied all of its output, which it does
// before it deletes the task. A shim that answers that it runs has not reaped its first
// process, unless no process has that number: it may have left the container's cgroup.
func (p *Pod) vacant(c *Container) bool {
	_, noTasks := p.Missing[Processes]
	_, noGroups := p.Missing[Cgroups]
	switch {
	case noTasks, noGroups, c.ID == "", !c.Unended(), p.TasksRead.IsZero():
		return false
	case c.Task.Absent, c.Task.Drained && (c.Task.Status == "stopped" || c.Task.Status == "running" && c.Task.PIDGone):
	default:
		return false
	}
	return !slices.ContainsFunc(p.Tasks, func(t Task) bool { return t.Container == c.ID || t.PID == c.Task.PID })
}

// longCommand is from which age on a command of the runtime is seen to hold the shim up: one
// that deletes a container is killed after ten seconds and started again.
const longCommand = 30 * time.Second

// shimHeld reports whether the shim has waited for a command of the runtime for long, or waits
// for what one has left behind.
func (p *Pod) shimHeld() bool {
	return slices.ContainsFunc(p.RuntimeCommands, func(c RuntimeCommand) bool {
		return c.Left || len(c.Tasks) > 0 && c.Tasks[0].Probe != nil && !c.Tasks[0].Probe.Started.IsZero() && p.Time.Sub(c.Tasks[0].Probe.Started) >= longCommand
	})
}

// sinceCommands carries over since when the shim's commands are the same.
func (p *Pod) sinceCommands(e *Pod, read time.Time) {
	for i := range p.RuntimeCommands {
		c := &p.RuntimeCommands[i]
		c.Since = read
		var before []Task
		if j := slices.IndexFunc(e.RuntimeCommands, func(o RuntimeCommand) bool { return c.same(&o) }); j >= 0 {
			c.Since, before = firstOf(e.RuntimeCommands[j].Since, read), e.RuntimeCommands[j].Tasks
		}
		since(c.Tasks, before, read)
	}
}

// mayOccupy reports whether the shim may not answer about a container because of what its commands do. It holds the lock of a
// container during those about it, but for exec. That of all of them it holds while it creates one, before containerd 2.3.2
// (service.Create, cmd/containerd-shim-runc-v2/task/service.go), and before 1.7.8 while it waits for the lock of one that has
// ended (handleProcessExit), as during runc kill.
func (p *Pod) mayOccupy(c *Container) bool {
	for _, s := range []Source{RuntimeCommands, Containers} {
		if _, unknown := p.Missing[s]; unknown {
			return true
		}
	}
	return slices.ContainsFunc(p.RuntimeCommands, func(r RuntimeCommand) bool {
		return !r.Left && r.Command != execCommand && (r.Container == c.ID || r.Command == killCommand || slices.Contains(createCommands, r.Command))
	})
}

// excuse carries over which requests without an answer say nothing against the shim; occupied reports whether one of this
// reading says nothing.
func (t *ShimTask) excuse(before *ShimTask, occupied bool) {
	if t.UnansweredSince.IsZero() {
		return
	}
	if !before.ExcusedAt.Before(t.UnansweredSince) {
		t.ExcusedAttempts, t.ExcusedAt = before.ExcusedAttempts, before.ExcusedAt
	}
	if occupied && !t.Asked.Equal(before.Asked) {
		t.ExcusedAttempts, t.ExcusedAt = t.Attempts, t.Asked
	}
}

// createCommands are what a runtime is told to create a container with.
var createCommands = []string{"create", "run", "restore"}

// execCommand is what a runtime is told to execute something in a container with, killCommand to
// kill one, and deleteCommand to delete one. One that does so takes less than longDelete, and
// containerd gives it deleteLimit. One that kills takes less than longKill, and on a node that is short of
// something less than surelyLongKill; of two that are ended after the same time one may be seen for littleLess. maxTries is
// enough of them to say that it does not get done.
const (
	execCommand    = "exec"
	killCommand    = "kill"
	deleteCommand  = "delete"
	longKill       = time.Minute
	surelyLongKill = 100 * time.Second
	littleLess     = 10 * time.Second
	longDelete     = 5 * time.Second
	deleteLimit    = 10 * time.Second
	maxTries       = 3
)

// Deleting reports whether the runtime is deleting a container and has not taken all of the time
// that containerd gives it for that.
func (p *Pod) Deleting() bool {
	return slices.ContainsFunc(p.RuntimeCommands, func(c RuntimeCommand) bool {
		return !c.Left && c.Command == deleteCommand && len(c.Tasks) > 0 && c.Tasks[0].Probe != nil && p.Time.Sub(c.Tasks[0].Probe.Started) < deleteLimit
	})
}

// interrupted returns for how many of the tries to delete or to kill a container that runs the command took long, the tries
// before among them. The try before stays the last one until the next has taken about as long, or surely long on any node.
func (p *Pod) interrupted(before []Interrupted, command string, long, surely time.Duration) (out []Interrupted) {
	_, unknown := p.Missing[Containers]
	for _, d := range before {
		if c, ok := p.Container(d.Last.Container); ok && (unknown || c.State == StateRunning) {
			out = append(out, d)
		}
	}
	for _, c := range p.RuntimeCommands {
		i := slices.IndexFunc(out, func(d Interrupted) bool { return d.Last.Container == c.Container })
		if i >= 0 && !c.Left && c.Command == command {
			out[i].Until = p.Time
		}
		if c.Left || c.Command != command || len(c.Tasks) == 0 || c.Tasks[0].Probe == nil || c.Tasks[0].Probe.Started.IsZero() ||
			p.Time.Sub(c.Tasks[0].Probe.Started) < long || !c.Since.Before(p.Time) {
			continue
		}
		switch {
		case i < 0:
			out = append(out, Interrupted{Last: c, Seen: p.Time, Until: p.Time, Tries: 1})
		case out[i].Last.same(&c):
			out[i].Last, out[i].Seen = c, p.Time
		case p.Time.Sub(c.Tasks[0].Probe.Started) < min(surely, out[i].lasted()-littleLess):
		default:
			out[i] = Interrupted{Last: c, Seen: p.Time, Until: p.Time, Tries: min(out[i].Tries+1, maxTries)}
		}
	}
	return out
}

// lasted returns for how long the last try was seen.
func (d *Interrupted) lasted() time.Duration { return d.Seen.Sub(d.Last.Tasks[0].Probe.Started) }

// latest returns the last of some moments.
func latest(moments ...time.Time) time.Time {
	return slices.MaxFunc(moments, time.Time.Compare)
}

// KeepDeadline gives the pod the first deadline and request that an earlier
// reading of it saw. The deletionTimestamp moves: the kubelet's final delete,
// with a grace period of 0, sets it to the present while finalizers are left
// (k8s.io/apiserver/pkg/registry/rest/delete.go), and a later delete may shorten
// the grace period, which the kubelet does not heed once it has begun to kill:
// UpdatePod cancels the worker's context then, but SyncTerminatingPod kills with
// another one (pkg/kubelet/kubelet.go of 1.36, kubernetes#113606).
func (p *Pod) KeepDeadline(earlier *Pod) {
	if earlier == nil || earlier.UID != p.UID {
		return
	}
	if earlier.DeletionRequested.Before(p.DeletionRequested) {
		p.DeletionRequested = earlier.DeletionRequested
	}
	if !p.Deadline.Before(earlier.Deadline) || p.GracePeriodSeconds != 0 {
		p.Shortened = earlier.Deadline.Sub(p.Deadline) > BaselineMargin // less may come of the clocks
		p.Deadline = earlier.Deadline
	}
}

func (c *CPU) since(e *CPU, now, before time.Time) {
	if c == nil || e == nil || c.UsedMicros < e.UsedMicros || !now.After(before) {
		return
	}
	c.RecentMillis = int64(float64(c.UsedMicros-e.UsedMicros) / 1000 / now.Sub(before).Seconds())
	throttled := func(at time.Time, periods, throttled, used uint64) bool {
		quota := float64(c.Millis) / 1000 * now.Sub(at).Seconds() * 1e6 // microseconds
		return c.Periods > periods && (c.Throttled-throttled)*4 >= (c.Periods-periods)*3 &&
			c.UsedMicros >= used && float64(c.UsedMicros-used) >= quota/2
	}
	switch {
	case !e.ThrottledSince.IsZero() && throttled(e.ThrottledSince, e.SincePeriods, e.SinceThrottled, e.SinceUsedMicros):
		c.ThrottledSince, c.SincePeriods, c.SinceThrottled, c.SinceUsedMicros = e.ThrottledSince, e.SincePeriods, e.SinceThrottled, e.SinceUsedMicros
	case throttled(before, e.Periods, e.Throttled, e.UsedMicros):
		c.ThrottledSince, c.SincePeriods, c.SinceThrottled, c.SinceUsedMicros = before, e.Periods, e.Throttled, e.UsedMicros
	}
}

func (m *Memory) since(e *Memory, now, before time.Time) {
	if m == nil || e == nil || m.StalledMicros < e.StalledMicros {
		return
	}
	stalled := func(since time.Time, micros uint64) bool {
		lost := time.Duration(m.StalledMicros-micros) * time.Microsecond
		return lost > 0 && lost >= now.Sub(since)/2
	}
	switch {
	case !e.StalledSince.IsZero() && stalled(e.StalledSince, e.SinceStalled):
		m.StalledSince, m.SinceStalled = e.StalledSince, e.SinceStalled
	case stalled(before, e.StalledMicros):
		m.StalledSince, m.SinceStalled = before, e.StalledMicros
	}
}

// disks calls do with the block device below the mount of each task, and with its
// number.
func (p *Pod) disks(do func(device string, d *Disk)) {
	for _, tasks := range [][]Task{p.Tasks, p.Parents} {
		for i := range tasks {
			if tasks[i].Probe == nil {
				continue
			}
			for m := tasks[i].Probe.Mount; m != nil; m = m.Backing {
				if m.Disk != nil {
					do(m.Device, m.Disk)
				}
			}
		}
	}
}

// sinceDisks carries over since when no request of a block device has ended.
func (p *Pod) sinceDisks(e *Pod) {
	before := make(map[string]*Disk)
	e.disks(func(device string, d *Disk) { before[device] = d })
	p.disks(func(device string, d *Disk) {
		b := before[device]
		switch d.UnchangedSince, d.Moved = d.Read, (time.Time{}); {
		case b == nil || d.Completed < b.Completed || b.Mapper != d.Mapper:
		case d.Completed == b.Completed:
			d.UnchangedSince, d.Moved = b.UnchangedSince, b.Moved
		default:
			d.Moved = d.Read
		}
	})
}

// firstOf returns the time of the first of some readings in a row.
func firstOf(earlier, t time.Time) time.Time {
	if earlier.IsZero() {
		return t
	}
	return earlier
}

// sameStage reports whether two readings show the pod at the same stage of its
// termination. Its threads are not compared: a program may start and end threads
// without end and get nowhere. Nor are containers that have all ended, which the
// kubelet has containerd forget a minute later. Whether nothing has changed is not known of two of which one could
// not read the pod's files. That what was in the way of a volume is
// there no more is a new stage: the kubelet tries again within two minutes. So is that a command
// of the runtime has returned: containerd tries again later what could not be done meanwhile.
func (p *Pod) sameStage(o *Pod) bool {
	return p.besidesContainers(o) &&
		(p.ContainersEnded() || slices.EqualFunc(p.Containers, o.Containers, func(a, b Container) bool {
			return a.ID == b.ID && a.State == b.State && a.Task.Status == b.Task.Status
		}))
}

// lacksTheSame reports whether the same sources are missing in two readings.
func (p *Pod) lacksTheSame(o *Pod) bool {
	return p.HungSince.IsZero() == o.HungSince.IsZero() && maps.EqualFunc(p.Missing, o.Missing, func(string, string) bool { return true })
}

// sameContainers reports whether two readings do not differ in what both tell of the containers.
func (p *Pod) sameContainers(o *Pod) bool {
	return p.ContainersEnded() || !slices.ContainsFunc(p.Containers, func(a Container) bool {
		b, ok := o.Container(a.ID)
		status := func(t *ShimTask) bool { return t.Status != "" || t.Absent }
		return ok && (a.State != b.State && a.State != "" && b.State != "" ||
			a.Task.Status != b.Task.Status && status(&a.Task) && status(&b.Task))
	})
}

// besidesContainers is sameStage for all but the containers.
func (p *Pod) besidesContainers(o *Pod) bool {
	return p.Phase == o.Phase && p.HungSince.IsZero() == o.HungSince.IsZero() && p.GracePeriodSeconds == o.GracePeriodSeconds &&
		len(p.Tasks) > 0 == (len(o.Tasks) > 0) && len(p.Mounts) == len(o.Mounts) && len(p.Devices) == len(o.Devices) && len(p.ImageMounts) == len(o.ImageMounts) &&
		len(p.Holders) > 0 == (len(o.Holders) > 0) && len(p.Loops) > 0 == (len(o.Loops) > 0) && sameVolumes(p.Volumes, o.Volumes) &&
		sameClaims(p.Claims, o.Claims) && p.shimHeld() == o.shimHeld() &&
		slices.Equal(p.Finalizers, o.Finalizers) &&
		slices.EqualFunc(p.Cgroups, o.Cgroups, func(a, b Cgroup) bool { return a.Path == b.Path })
}

// Since does for the node's part, which the pods of one round share, what
// Pod.Since does for a pod's own. The pods are read some time after it, so their
// Time does not date it: each task has the time until which it was unchanged.
func (n *Node) Since(earlier *Node) {
	var e Node
	if earlier != nil {
		e = *earlier
	}
	n.Pressure.since(e.Pressure, n.Read)
	n.Kubelet.sinceCalls(&e.Kubelet)
	n.sinceYoung(&e)
	n.sinceSilent(&e)
	n.sinceStalled(&e)
	n.Kubelet.sinceShortages(&e.Kubelet, e.Read, n.Read)
	n.UnmountingUntil = e.Unmounts().until(n.Unmounting, n.Read)
	n.DeletablesUntil = e.Deletes().until(n.Deletable, n.Read)
	n.UnpreparingUntil = e.Unprepares().until(n.Unpreparing, n.Read)
	if n.BlockedRead.IsZero() {
		since(n.Blocked, e.Blocked, n.Read)
		until(n.Blocked, n.Time)
	}
	since(n.Scanners, e.Scanners, n.Read)
	until(n.Scanners, n.Time)
	until(n.Kubelet.Blocked, n.Time)
	since(n.Kubelet.Blocked, e.Kubelet.Blocked, n.Read)
	sinceOne(n.Kubelet.Process, e.Kubelet.Process, n.Read)
	sinceOne(n.Containerd.Process, e.Containerd.Process, n.Read)
	if !n.Kubelet.AbsentSince.IsZero() {
		n.Kubelet.AbsentSince = firstOf(e.Kubelet.AbsentSince, n.Read)
	}
	if c := &n.Containerd; c.Error == "" && !c.Refused && c.UnansweredSince.IsZero() {
		if c.AnsweringSince = n.Read; n.Time.Sub(e.Read) < Young {
			c.AnsweringSince = firstOf(e.Containerd.AnsweringSince, n.Read)
		}
	}
	n.sinceEnds(&e)
	if !n.Containerd.AbsentSince.IsZero() {
		n.Containerd.AbsentSince = firstOf(e.Containerd.AbsentSince, n.Read)
	}
	for _, t := range []*Task{n.Kubelet.Process, n.Containerd.Process} {
		if t != nil {
			t.UnchangedUntil = n.Time
		}
	}
}

func (p *Pressure) since(e *Pressure, read time.Time) {
	switch {
	case p == nil:
	case len(p.Scarce()) > 0:
		p.StarvedUntil = read
	case e != nil:
		p.StarvedUntil = e.StarvedUntil
	}
}

// children notes which processes have a child in their container.
func (p *Pod) children() {
	type key struct {
		pid       int
		container string
	}
	parents := make(map[key]bool)
	for i := range p.Tasks {
		if t := &p.Tasks[i]; t.Leader() && t.State != Zombie {
			parents[key{t.PPID, t.Container}] = true
		}
	}
	for i := range p.Tasks {
		t := &p.Tasks[i]
		t.HadChild = t.Leader() && (t.HadChild || parents[key{t.PID, t.Container}])
	}
}

func until(tasks []Task, t time.Time) {
	for i := range tasks {
		tasks[i].UnchangedUntil = t
	}
}

func since(now, before []Task, t time.Time) {
	type key struct{ pid, tid int }
	seen := make(map[key]*Task, len(before))
	for i := range before {
		seen[key{before[i].PID, before[i].TID}] = &before[i]
	}
	for i := range now {
		sinceOne(&now[i], seen[key{now[i].PID, now[i].TID}], t)
	}
}

func sinceOne(now, before *Task, t time.Time) {
	if now == nil {
		return
	}
	now.UnchangedSince, now.SignalsSince = t, t
	if now.SharedPending != 0 {
		now.PendingSince = t
	}
	if before == nil {
		return
	}
	if now.SharedPending != 0 && now.SharedPending == before.SharedPending && now.PID == before.PID && now.TID == before.TID {
		now.PendingSince = firstOf(before.PendingSince, t)
	}
	if !before.UnchangedSince.IsZero() && now.same(before) {
		now.UnchangedSince = before.UnchangedSince
	}
	if !before.SignalsSince.IsZero() && now.sameSignals(before) {
		now.SignalsSince = before.SignalsSince
	}
	if since := firstOf(before.ActionsSince, before.SignalsSince); now.sameActions(before) && since.Before(now.SignalsSince) {
		now.ActionsSince = since
	}
	now.WasExiting = now.PID == before.PID && now.TID == before.TID && (before.WasExiting || before.Exiting())
	sameProcess := now.PID == before.PID && now.TID == before.TID && (now.Probe == nil || before.Probe == nil || now.Probe.Start == before.Probe.Start)
	now.HadChild = sameProcess && before.HadChild
	now.WasInSigwait = sameProcess && now.Comm == before.Comm && (before.WasInSigwait || before.InSigwait())
	now.WasKilled = now.PID == before.PID && now.TID == before.TID && (before.WasKilled || before.Killed())
}

// sinceLacking carries over since when a source has been missing.
func (p *Pod) sinceLacking(e *Pod) {
	p.Lacking = nil
	for _, s := range slices.Sorted(maps.Keys(p.Missing)) {
		since := e.LackingSince(s)
		if since.IsZero() {
			since = p.Time
		}
		p.Lacking = append(p.Lacking, Lacking{Source: s, Since: since})
	}
}
