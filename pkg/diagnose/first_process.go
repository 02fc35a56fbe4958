package diagnose

import (
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// A firstProcess is the process of a container that gets the stop signal, as
// far as it matters whether the signal reaches it.
type firstProcess struct {
	container *evidence.Container
	leader    *evidence.Task
	threads   []*evidence.Task // all of them, the leader too
	children  []*evidence.Task // leaders in the same container
}

// firstProcesses finds the first processes of the containers that have been
// sent their stop signal by now.
//
// Left out are containers whose specification has a preStop hook, because the
// hook may run until the end of the grace period and end the program itself;
// sidecars while an app container lives, because they are stopped after it;
// sandboxes, because their stop signal is not what they wait for; and processes
// whose dispositions have not been the same for two readings, because a program
// that starts installs its handlers first.
func firstProcesses(p *evidence.Pod) []firstProcess {
	appLives := false
	for _, c := range p.Containers {
		appLives = appLives || c.Kind == evidence.App && c.State == evidence.StateRunning
	}
	var out []firstProcess
	for i := range p.Containers {
		c := &p.Containers[i]
		if c.State != evidence.StateRunning || c.Kind == evidence.Sandbox || c.PreStop ||
			c.Kind == evidence.Sidecar && appLives || c.StopSignal == 0 {
			continue
		}
		fp := firstProcess{container: c}
		for j := range p.Tasks {
			t := &p.Tasks[j]
			if t.Container == c.ID && t.Leader() && t.NamespaceInit() && !foreign(p, t) {
				fp.leader = t
			}
		}
		if fp.leader == nil || p.Time.Sub(fp.leader.SignalsSince) < Stuck || fp.leader.SignalsSince.IsZero() {
			continue
		}
		for j := range p.Tasks {
			t := &p.Tasks[j]
			switch {
			case t.PID == fp.leader.PID:
				fp.threads = append(fp.threads, t)
			case t.Leader() && t.PPID == fp.leader.PID && t.State != evidence.Zombie:
				fp.children = append(fp.children, t)
			}
		}
		out = append(out, fp)
	}
	return out
}

// foreign says that a process, though the init of some PID namespace, is not
// the one that the runtime signals: a container in the container has an init
// of its own, whose parent is in the pod.
func foreign(p *evidence.Pod, t *evidence.Task) bool {
	for i := range p.Tasks {
		if o := &p.Tasks[i]; o.Leader() && o.PID == t.PPID {
			return true
		}
	}
	return false
}

// A reception is what becomes of a signal that is sent to a process.
type reception int

const (
	receptionUnknown reception = iota
	caught                     // a handler, sigwait or signalfd takes it
	ignored                    // its action is to ignore
	blocked                    // every thread blocks it
	dropped                    // the kernel drops it, because the process is the init of a PID namespace
	fatal                      // its default action ends the process
)

// receives says what becomes of the container's stop signal. The kernel drops a
// signal to the init of a PID namespace that has no handler for it
// (SIGNAL_UNKILLABLE, kernel/signal.c). A thread in sigwait shows no trace of
// the signals it waits for, neither caught nor blocked, so the system call that
// the leader sleeps in must be known.
func (fp firstProcess) receives(sig evidence.Signal) reception {
	t := fp.leader
	if sig == evidence.SIGKILL || sig == evidence.SIGSTOP || t.State == evidence.Zombie || dying(t) {
		return receptionUnknown
	}
	anyBlocks, allBlock := false, true
	for _, th := range fp.threads {
		if waitsForSignals(th) {
			return caught
		}
		if th.Blocked.Has(sig) {
			anyBlocks = true
		} else {
			allBlock = false
		}
	}
	switch {
	case t.Caught.Has(sig):
		return caught
	case t.Ignored.Has(sig):
		return ignored
	case allBlock:
		return blocked
	case anyBlocks:
		// Some thread may be about to wait for it.
		return receptionUnknown
	case t.Probe == nil || t.Probe.Syscall == "":
		return receptionUnknown
	case t.NamespaceInit():
		return dropped
	}
	return fatal
}

// droppedStopSignals gives a finding for each first process for which the kernel
// drops the stop signal and that is, or is not, a shell with a child.
func droppedStopSignals(p *evidence.Pod, shellWithChild bool) []Finding {
	var out []Finding
	for _, fp := range firstProcesses(p) {
		if fp.receives(fp.container.StopSignal) == dropped && (shell(fp.leader) && len(fp.children) > 0) == shellWithChild {
			out = append(out, Finding{Container: fp.container.Name, Confidence: Proved, Values: fp.values(p)})
		}
	}
	return out
}

func waitsForSignals(t *evidence.Task) bool {
	return t.Probe != nil && (t.Probe.Syscall == "rt_sigtimedwait" || t.Probe.Syscall == "rt_sigtimedwait_time64")
}

// shells are the programs whose file or name says that they are a shell.
var shells = map[string]bool{
	"sh": true, "bash": true, "dash": true, "ash": true, "ksh": true, "mksh": true, "zsh": true, "busybox": true,
}

// shell says that the process is a command interpreter. Of a script, comm is
// the script's name, so the program file decides where it is known; busybox is
// any of its applets, so there the name decides.
func shell(t *evidence.Task) bool {
	comm := strings.TrimPrefix(t.Comm, "-")
	if t.Probe != nil && t.Probe.Exe != "" && t.Probe.Exe != "busybox" {
		return shells[t.Probe.Exe]
	}
	return comm != "busybox" && shells[comm] || path.Ext(comm) == ".sh"
}

// values are those that all findings about a first process share.
func (fp firstProcess) values(p *evidence.Pod) map[string]string {
	program := fp.leader.Comm
	if fp.container.Program != "" {
		program = fp.container.Program
	}
	v := map[string]string{
		"container": fp.container.Name,
		"signal":    fp.container.StopSignal.String(),
		"program":   program,
		"pid":       strconv.Itoa(fp.leader.PID),
		"deadline":  clock(p.Deadline),
	}
	if len(fp.children) > 0 {
		c := fp.children[len(fp.children)-1]
		v["child"] = c.Comm
		v["childpid"] = strconv.Itoa(c.PID)
	}
	return v
}

// clock is how messages tell a moment: it does not grow while a pod is stuck.
func clock(t time.Time) string { return t.UTC().Format("15:04:05 UTC") }
