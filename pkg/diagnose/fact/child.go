package fact

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// A Role is what the program that a container is there for is to its first process.
type Role int

// The roles of a program.
const (
	Unnamed Role = iota // none can be told from the others
	Itself              // it is the first process: what that runs helps it
	Awaited             // the first process does nothing but wait for it
	Daemon              // it has put itself into the background, beside what only keeps the container running
	Piped               // a shell waits for it and for the filter that it writes to
	InTurn              // a shell runs one program after the other
	Several             // a shell runs programs in its background
)

// Main returns the program that the container is there for, as far as the first process and its children show it, nil where
// none can be named, and what it is to the first process.
func (fp FirstProcess) Main(p *View) (program *evidence.Task, role Role) {
	if child := fp.ForwardsTo(); child != nil {
		return child, Awaited
	}
	if Shell(fp.Leader) {
		return fp.mainOfShell(p)
	}
	programs := fp.programs()
	wraps := wrapsOne(fp.Leader) || wrappers[fp.Container.Program]
	startedToo := func(t *evidence.Task) bool {
		return unfixed(t) && t.Started().Sub(fp.Leader.Started()).Abs() < startTakes
	}
	switch {
	case isSideshow(fp.Leader.Comm) && fp.Container.Program != fp.Leader.Comm && slices.ContainsFunc(programs, startedToo):
		return only(programs, startedToo), Daemon // a script has started both; else it is what kubectl exec has left
	case len(programs) == 1 && (wraps || fp.awaitsOne() && !forked(fp.Leader, programs[0])):
		return lastInLine(p, programs[0], fp.Container.StopSignal), Awaited
	case len(programs) > 1 && wraps:
		return nil, Unnamed
	}
	return fp.Leader, Itself
}

// mainOfShell is Main of a shell.
func (fp FirstProcess) mainOfShell(p *View) (program *evidence.Task, role Role) {
	if len(fp.Children) == 0 {
		if fp.between() {
			return nil, InTurn
		}
		return fp.Leader, Itself
	}
	started := fp.jobs()
	program, role = started.waitedFor()
	switch {
	case role != Piped && started.haveBesides(program):
		return nil, Several
	case program == nil:
		return started.daemon(fp.Leader)
	case isSideshow(program.Comm) || program.Started().After(p.DeletionRequested) || role == Awaited && fp.mayGoOn(p, program):
		return nil, InTurn // the next reading may show another one
	}
	last := lastInLine(p, program, fp.Container.StopSignal)
	switch {
	case Shell(last):
		return nil, Unnamed
	case fp.pipedInScript(p, last):
		return last, Piped
	}
	return last, role
}

// jobs are the children of a shell that live, by where it has started them, the oldest first. What a shell has in its
// foreground is in its process group and does not ignore SIGINT, as what it has started in the background does (POSIX,
// Asynchronous Lists). A daemon has left the group. A program that sets up its handlers wherever it runs looks like one in the
// foreground, which was started last.
type jobs struct{ front, behind, apart []*evidence.Task }

func (fp FirstProcess) jobs() (j jobs) {
	for _, c := range fp.living() {
		switch {
		case group(fp.Leader) != 0 && group(c) != 0 && group(c) != group(fp.Leader):
			j.apart = append(j.apart, c)
		case !fp.mayWaitForOne() || c.Ignored.Has(evidence.SIGINT) && !fp.Leader.Ignored.Has(evidence.SIGINT):
			j.behind = append(j.behind, c)
		default:
			j.front = append(j.front, c)
		}
	}
	return j
}

// waitedFor returns the program that the shell waits for, Piped or Awaited; nil for none, and for a sideshow.
func (j jobs) waitedFor() (program *evidence.Task, role Role) {
	mayBePiped := j.front
	if len(j.front) == 0 {
		mayBePiped = j.behind // a shell waits for such a pipeline too
	}
	if program = piped(mayBePiped); program != nil {
		return program, Piped
	}
	if n := len(j.front); n > 0 && !isSideshow(j.front[n-1].Comm) {
		return j.front[n-1], Awaited
	}
	return nil, Unnamed
}

// haveBesides reports whether the shell runs another program than this one that the container may be there for.
func (j jobs) haveBesides(program *evidence.Task) bool {
	all := slices.Concat(j.front, j.behind)
	alone := len(all) == 1 // then it serves no other one, and may ignore SIGINT by itself, as rsyslogd -n does
	return slices.ContainsFunc(all, func(t *evidence.Task) bool {
		return t != program && (unfixed(t) || alone && services[t.Comm]) && !filters[t.Comm]
	})
}

// daemon is Main of a shell that waits for no program, or for a sideshow.
func (j jobs) daemon(shell *evidence.Task) (program *evidence.Task, role Role) {
	switch n := len(j.front); {
	case n == 0 && len(j.apart) > 0:
		return nil, Unnamed
	case n > 0 && stays(shell, j.front[n-1]):
		before := func(c *evidence.Task) bool { // kubectl exec leaves younger ones
			return !isSideshow(c.Comm) && !services[c.Comm] && Older(c, j.front[0])
		}
		if slices.ContainsFunc(j.apart, before) {
			return only(j.apart, before), Daemon
		}
	}
	return nil, InTurn
}

// pipedInScript reports whether a program is the first of a pipeline in a script that the shell runs.
func (fp FirstProcess) pipedInScript(p *View, program *evidence.Task) bool {
	script, inside := ByID(p, program.PPID)
	return inside && script != fp.Leader && Shell(script) && piped(Assemble(p, fp.Container, script).living()) == program
}

// mayGoOn reports whether a shell may go through short programs, as a loop or a job of several steps does: the one that it waits for has run for
// less than twice as long as all that was before it.
func (fp FirstProcess) mayGoOn(p *View, program *evidence.Task) bool {
	began, shell := program.Started(), fp.Leader.Started()
	return !began.IsZero() && !shell.IsZero() && p.Time.Sub(began) < 2*began.Sub(shell)
}

// forked reports whether a process is a copy of its parent, as a worker is: nobody can start it alone.
func forked(parent, child *evidence.Task) bool {
	same := parent.Probe == nil || child.Probe == nil || parent.Probe.Exe == "" || child.Probe.Exe == "" || parent.Probe.Exe == child.Probe.Exe
	return parent.Comm == child.Comm && same
}

// between reports whether the process is a shell that has run a program, since the deletion or ever before, and runs
// none in this reading. It is between two of them, as in a loop, or goes on alone: which one can take long to show, since
// a loop may wait in a command of the shell's own, as in read -t.
func (fp FirstProcess) between() bool {
	t := fp.Leader
	return t.HadChild || t.Probe != nil && t.Probe.Reaped > 0
}

// mayWaitForOne reports whether a shell may have a program in its foreground: for that bash, dash and busybox sleep in wait4.
func (fp FirstProcess) mayWaitForOne() bool {
	sh := fp.Leader.Probe
	return sh == nil || sh.Syscall == "" || sh.Syscall == "wait4" || !slices.Contains([]string{"bash", "dash", "busybox"}, sh.Exe)
}

// living returns the children that have neither ended nor been killed, the oldest first, and programs those of them that are no
// sideshows.
func (fp FirstProcess) living() []*evidence.Task {
	all := slices.DeleteFunc(slices.Clone(fp.Children), func(c *evidence.Task) bool { return c.Container != fp.Container.ID || !lives(c) })
	slices.SortFunc(all, byAge)
	return all
}

func (fp FirstProcess) programs() []*evidence.Task {
	return slices.DeleteFunc(fp.living(), func(c *evidence.Task) bool { return isSideshow(c.Comm) })
}

// awaitsOne reports whether the process sleeps in a system call that waits for its children, of which there is one.
func (fp FirstProcess) awaitsOne() bool { return len(fp.Children) == 1 && waitsForChildren(fp.Leader) }

// waitsForChildren reports whether a task sleeps in a system call that returns when a child has ended.
func waitsForChildren(t *evidence.Task) bool {
	return t.Probe != nil && (t.Probe.Syscall == "wait4" || t.Probe.Syscall == "waitid")
}

// wrappers are programs that run another one, and wait for it in no such system call.
var wrappers = map[string]bool{"npm": true, "npx": true, "yarn": true, "pnpm": true, "conda": true}

// wrapsOne reports whether the process calls itself one of them, as "npm start".
func wrapsOne(t *evidence.Task) bool {
	name, _, _ := strings.Cut(t.Comm, " ")
	return wrappers[name]
}

// sideshows are programs that serve nobody, which scripts run beside the one that
// does.
var sideshows = map[string]bool{
	"sleep": true, "tail": true, "cat": true, "tee": true, "logger": true, "inotifywait": true, "fswatch": true, "entr": true,
}

// isSideshow reports whether a program of that name serves nobody: a script runs it beside the one that does, or in a loop.
func isSideshow(comm string) bool { return sideshows[comm] }

// Fixed reports whether a program of that name has no handlers for signals that ask it to end, and no setting gives it one.
func Fixed(comm string) bool { return sideshows[comm] || comm == "cron" || comm == "crond" }

// services are daemons that serve other programs of the container.
var services = map[string]bool{
	"rsyslogd": true, "syslogd": true, "syslog-ng": true, "ssh-agent": true, "gpg-agent": true, "dbus-daemon": true, "atd": true, "Xvfb": true, "Xorg": true,
}

func unfixed(t *evidence.Task) bool { return !Fixed(t.Comm) && !services[t.Comm] }

// filters are programs that read what another one writes, at the end of a pipeline.
var filters = map[string]bool{
	"tee": true, "cat": true, "awk": true, "gawk": true, "mawk": true, "sed": true, "grep": true, "logger": true, "rotatelogs": true,
	"cronolog": true, "multilog": true, "svlogd": true, "s6-log": true, "ts": true, "jq": true,
}

// What a shell starts for a pipeline it starts within a few clock ticks. Of programs that are filters by their name a second
// will do: a container that is throttled takes long.
const (
	fewTicks = 5
	aSecond  = 100
)

// piped returns the first program of the pipeline that a shell has in its foreground, where the others are the youngest children
// and filters; nil for none. front is what the shell may have there, the oldest first.
func piped(front []*evidence.Task) *evidence.Task {
	first := len(front) - 1
	for first > 0 && readsFrom(front[first-1], front[first]) {
		first--
	}
	if first < 0 || first == len(front)-1 {
		return nil
	}
	return front[first]
}

// readsFrom reports whether a program may be the filter behind another one.
func readsFrom(writer, reader *evidence.Task) bool {
	if writer.Probe == nil || reader.Probe == nil || reader.Comm == "tail" {
		return false
	}
	apart := reader.Probe.Start - writer.Probe.Start
	return filters[reader.Comm] && apart <= aSecond || reads(reader) && apart <= fewTicks
}

// reads reports whether a process waits for something to read. One that its parent writes to, such as rotatelogs, awk and
// the resource tracker of Python, ends when that has ended.
func reads(t *evidence.Task) bool {
	return t.Threads == 1 && t.Probe != nil && t.Probe.Syscall == "read"
}

// stays reports whether a shell waits for one sideshow for good, as for tail -f /dev/null, and does not run it again and again.
func stays(shell, sideshow *evidence.Task) bool {
	if sideshow.Comm != "sleep" {
		return true
	}
	return !sideshow.Started().IsZero() && !shell.Started().IsZero() && sideshow.Started().Sub(shell.Started()) < startTakes
}

// startTakes is within what time after its shell a sleep without an end begins. Later it may be one of a loop.
const startTakes = 5 * time.Second

// maxLine bounds how many processes of which each runs the next one are gone through.
const maxLine = 8

// lastInLine returns the last one of a line of processes, of which each has nothing to do but to wait for the next: a
// shell, a wrapper, one that sleeps in a system call that waits for children, and one of a single thread that has given the next
// one a process group of its own, as a supervisor does. One that ignores the signal is the last, but for a shell.
func lastInLine(p *View, t *evidence.Task, sig evidence.Signal) *evidence.Task {
	for range maxLine {
		var below []*evidence.Task
		for i := range p.Tasks {
			if c := &p.Tasks[i]; c.Leader() && c.PPID == t.PID && c.Container == t.Container && lives(c) && !isSideshow(c.Comm) {
				below = append(below, c)
			}
		}
		if len(below) != 1 || t.State != evidence.Sleeping || !Shell(t) && (t.Ignored.Has(sig) || !handsOver(t, below[0])) {
			return t
		}
		t = below[0]
	}
	return t
}

func handsOver(t, next *evidence.Task) bool {
	return wrapsOne(t) || waitsForChildren(t) && !starters[t.Comm] || t.Threads == 1 && group(next) == next.PID && !servers[t.Comm]
}

// starters wait for short programs of their own, and servers of one thread start what their clients ask for in a group of its own.
var (
	starters = map[string]bool{"make": true, "gmake": true, "ninja": true, "xargs": true, "parallel": true}
	servers  = map[string]bool{"sshd": true, "cron": true, "crond": true, "dropbear": true, "inetd": true, "xinetd": true}
)

// lives reports whether a process has neither ended nor been killed.
func lives(t *evidence.Task) bool {
	return t.State != evidence.Zombie && t.State != evidence.Dead && !Dying(t)
}

// group returns the number of a process's group, 0 when it is not known.
func group(t *evidence.Task) int {
	if t.Probe == nil {
		return 0
	}
	return t.Probe.Group
}

// Older reports whether a process was started before another one; where that is not
// known, by their numbers.
func Older(a, b *evidence.Task) bool { return byAge(a, b) < 0 }

func byAge(a, b *evidence.Task) int {
	if a.Probe == nil || b.Probe == nil || a.Probe.Start == b.Probe.Start {
		return cmp.Compare(a.PID, b.PID)
	}
	return cmp.Compare(a.Probe.Start, b.Probe.Start)
}
