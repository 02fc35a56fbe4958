package diagnose

import (
	"path"
	"slices"
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

// firstProcesses finds the first processes of the running containers whose turn
// to end has come. Left out are sidecars while an app container lives, because
// they are stopped after it, and sandboxes, because their stop signal is not
// what they wait for.
func firstProcesses(p *evidence.Pod) []firstProcess {
	appLives := false
	for _, c := range p.Containers {
		appLives = appLives || c.Kind == evidence.App && c.State == evidence.StateRunning
	}
	var out []firstProcess
	for i := range p.Containers {
		c := &p.Containers[i]
		if c.State != evidence.StateRunning || c.Kind == evidence.Sandbox || c.Kind == evidence.Sidecar && appLives {
			continue
		}
		leader := firstLeader(p, c)
		if leader == nil {
			continue
		}
		out = append(out, process(p, c, leader))
	}
	return out
}

// firstLeader finds the leader of a container's first process: the shim knows
// its number, else it is the init of the container's own PID namespace.
func firstLeader(p *evidence.Pod, c *evidence.Container) *evidence.Task {
	var init *evidence.Task
	for i := range p.Tasks {
		t := &p.Tasks[i]
		switch {
		case t.Container != c.ID || !t.Leader():
		case t.PID == c.Task.PID:
			return t
		case t.NamespaceInit() && !foreign(p, t):
			init = t
		}
	}
	return init
}

// process gathers the threads and the children of a process.
func process(p *evidence.Pod, c *evidence.Container, leader *evidence.Task) firstProcess {
	fp := firstProcess{container: c, leader: leader}
	for i := range p.Tasks {
		t := &p.Tasks[i]
		switch {
		case t.PID == leader.PID:
			fp.threads = append(fp.threads, t)
		case t.Leader() && t.PPID == leader.PID && t.State != evidence.Zombie:
			fp.children = append(fp.children, t)
		}
	}
	return fp
}

// signalled are the first processes that have been sent their stop signal and
// whose dispositions of signals are known. Left out are containers whose
// specification has a preStop hook, because the hook may run until the end of
// the grace period and end the program itself; and processes whose dispositions
// have not been the same for two readings, because a program that starts
// installs its handlers first.
func signalled(p *evidence.Pod) []firstProcess {
	return slices.DeleteFunc(firstProcesses(p), func(fp firstProcess) bool {
		return fp.container.PreStop || fp.container.StopSignal == 0 || !settled(p, fp.leader)
	})
}

func settled(p *evidence.Pod, t *evidence.Task) bool {
	return !t.SignalsSince.IsZero() && p.Time.Sub(t.SignalsSince) >= Stuck
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
// (SIGNAL_UNKILLABLE, kernel/signal.c), unless the leader, which it is sent to,
// blocks it (sig_ignored); the masks of other threads do not matter. A thread in sigwait shows no trace of
// the signals it waits for, neither caught nor blocked, so the system call that
// the leader sleeps in must be known.
func (fp firstProcess) receives(sig evidence.Signal) reception {
	t := fp.leader
	if sig == evidence.SIGKILL || sig == evidence.SIGSTOP || t.State == evidence.Zombie || dying(t) {
		return receptionUnknown
	}
	allBlock := true
	for _, th := range fp.threads {
		if waitsForSignals(th) {
			return caught
		}
		allBlock = allBlock && th.Blocked.Has(sig)
	}
	switch {
	case t.Caught.Has(sig):
		return caught
	case t.Ignored.Has(sig):
		return ignored
	case allBlock:
		return blocked
	case t.Blocked.Has(sig):
		// It stays pending for the other threads, and one may be about to wait
		// for it.
		return receptionUnknown
	case t.Probe == nil || t.Probe.Syscall == "":
		return receptionUnknown
	case t.NamespaceInit():
		return dropped
	}
	return fatal
}

// unheard gives a finding for each first process that its stop signal does not
// reach for the given reason, and of which is says so.
func unheard(p *evidence.Pod, why reception, is func(firstProcess) bool) []Finding {
	var out []Finding
	for _, fp := range signalled(p) {
		if fp.receives(fp.container.StopSignal) == why && !fp.mismatched() && is(fp) {
			out = append(out, fp.finding(p, Proved))
		}
	}
	return out
}

// shellOverChild says that the process is a shell that runs a program.
func (fp firstProcess) shellOverChild() bool { return shell(fp.leader) && len(fp.children) > 0 }

func (fp firstProcess) finding(p *evidence.Pod, c Confidence) Finding {
	return Finding{Container: fp.container.Name, Confidence: c, Values: fp.values(p)}
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
	v := map[string]string{
		"container": fp.container.Name,
		"signal":    fp.container.StopSignal.String(),
		"program":   fp.program(),
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

// program is the name of what the process runs. The container's own name for it
// says most, unless the process has executed another program since.
func (fp firstProcess) program() string {
	name, t := fp.container.Program, fp.leader
	const maxComm = 15 // TASK_COMM_LEN less the NUL (include/linux/sched.h)
	if name != "" && (strings.HasPrefix(name, t.Comm) && (len(name) == len(t.Comm) || len(t.Comm) == maxComm) ||
		t.Probe != nil && t.Probe.Exe == name) {
		return name
	}
	return t.Comm
}

// clock is how messages tell a moment: it does not grow while a pod is stuck.
func clock(t time.Time) string { return t.UTC().Format("15:04:05 UTC") }
