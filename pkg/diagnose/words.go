package diagnose

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// This file makes words of a finding's objects. Whatever was not written by us is
// bounded and quoted here.

var placeholder = regexp.MustCompile(`\{[a-zA-Z]+\}`)

// values are the placeholders that a Doc may use besides its own phrases; ""
// means that the finding has no such object.
var values = map[string]func(*Finding) said{
	"container":   func(f *Finding) said { return foreign(f.Container, 63) },
	"containers":  func(f *Finding) said { return list(f.Objects.Containers, 150) },
	"containerid": func(f *Finding) said { return inCommand(f.Objects.ContainerID, "") },

	// The process, and what of it a reader can act on.
	"program": func(f *Finding) said { return of(f.Objects.Process, (*Process).program) },
	"quoted": func(f *Finding) said {
		return of(f.Objects.Process, func(p *Process) said { return quoted(p.Comm, commLength) })
	},
	"process":   func(f *Finding) said { return of(f.Objects.Process, (*Process).whose) },
	"pid":       func(f *Finding) said { return of(f.Objects.Process, (*Process).number) },
	"starttime": func(f *Finding) said { return of(f.Objects.Process, (*Process).start) },
	"comm": func(f *Finding) said {
		return cmp.Or(of(f.Objects.Thread, (*Thread).name), of(f.Objects.Process, (*Process).name))
	},
	"thread": func(f *Finding) said {
		return of(f.Objects.Thread, func(t *Thread) said { return number(int64(t.TID)) })
	},
	"function": func(f *Finding) said { return of(f.Objects.Thread, (*Thread).function) },
	"syscall": func(f *Finding) said {
		return of(f.Objects.Thread, func(t *Thread) said { return foreign(t.Syscall, 40) })
	},
	"state": func(f *Finding) said {
		return of(f.Objects.Thread, func(t *Thread) said { return foreign(string(t.State), 20) })
	},
	"alike":   func(f *Finding) said { return number(int64(f.Objects.Alike)) },
	"also":    func(f *Finding) said { return f.Objects.also() },
	"spared":  func(f *Finding) said { return processes(f.Objects.Spared, (*Process).short, "") },
	"threads": func(f *Finding) said { return count(f.Objects.Alike, "thread") },

	// The others.
	"child":           func(f *Finding) said { return of(f.Objects.Child, (*Process).name) },
	"childpid":        func(f *Finding) said { return of(f.Objects.Child, (*Process).number) },
	"childstarttime":  func(f *Finding) said { return of(f.Objects.Child, (*Process).start) },
	"foreground":      func(f *Finding) said { return of(f.Objects.Foreground, (*Process).name) },
	"foregroundpid":   func(f *Finding) said { return of(f.Objects.Foreground, (*Process).number) },
	"tracer":          func(f *Finding) said { return of(f.Objects.Tracer, (*Process).whose) },
	"tracerpid":       func(f *Finding) said { return of(f.Objects.Tracer, (*Process).number) },
	"tracerstarttime": func(f *Finding) said { return of(f.Objects.Tracer, (*Process).start) },
	"member":          func(f *Finding) said { return of(f.Objects.Member, (*Process).name) },
	"memberpid":       func(f *Finding) said { return of(f.Objects.Member, (*Process).number) },
	"memberstate": func(f *Finding) said {
		return of(f.Objects.Member, func(p *Process) said { return foreign(string(p.State), 20) })
	},
	"parent":          func(f *Finding) said { return of(f.Objects.Parent, (*Process).whose) },
	"parentpid":       func(f *Finding) said { return of(f.Objects.Parent, (*Process).number) },
	"parentstarttime": func(f *Finding) said { return of(f.Objects.Parent, (*Process).start) },

	// What is waited for.
	"mountpoint": func(f *Finding) said {
		return of(f.Objects.Mount, func(m *Mount) said { return foreign(cmp.Or(m.HostPoint, m.Point), 200) })
	},
	// Where the node sees it, for a command, and the number by which it is found
	// where that cannot stand in one.
	"hostmount": func(f *Finding) said {
		return of(f.Objects.Mount, func(m *Mount) said { return inCommand(m.HostPoint, "/") })
	},
	"mountnumber": func(f *Finding) said {
		return of(f.Objects.Mount, func(m *Mount) said { return inCommand(m.Device, "") })
	},
	"point": func(f *Finding) said {
		return of(f.Objects.Mount, func(m *Mount) said { return foreign(m.Point, 180) })
	},
	"fstype": func(f *Finding) said {
		return of(f.Objects.Mount, func(m *Mount) said { return foreign(m.Type, 40) })
	},
	"protocol": func(f *Finding) said {
		return of(f.Objects.Mount, func(m *Mount) said { return foreign(m.Family, 20) })
	},
	"source": func(f *Finding) said {
		return of(f.Objects.Mount, func(m *Mount) said { return foreign(m.Source, 120) })
	},
	"server": func(f *Finding) said {
		return of(f.Objects.Mount, func(m *Mount) said { return foreign(cmp.Or(m.Server, m.Source), 120) })
	},
	"volume": func(f *Finding) said {
		return of(f.Objects.Mount, func(m *Mount) said { return f.Objects.volume(m.Volume) })
	},
	"innertype": func(f *Finding) said {
		return of(f.Objects.Inner, func(m *Mount) said { return foreign(m.Type, 40) })
	},
	"innersource": func(f *Finding) said {
		return of(f.Objects.Inner, func(m *Mount) said { return foreign(m.Source, 120) })
	},
	"innerpoint": func(f *Finding) said {
		return of(f.Objects.Inner, func(m *Mount) said { return inCommand(m.HostPoint, "/") })
	},
	"mapped":      func(f *Finding) said { return argument(f.Objects.Device) },
	"via":         func(f *Finding) said { return own(f.Objects.Via) },
	"volumes":     func(f *Finding) said { return f.Objects.volumes() },
	"claims":      func(f *Finding) said { return list(f.Objects.Claims, 150) },
	"plugin":      func(f *Finding) said { return foreign(f.Objects.Plugin, 80) },
	"driver":      func(f *Finding) said { return foreign(f.Objects.Driver, 80) },
	"driverpod":   func(f *Finding) said { return foreign(f.Objects.DriverPod, 120) },
	"driverstate": func(f *Finding) said { return own(f.Objects.DriverState) },
	"code":        func(f *Finding) said { return foreign(f.Objects.Code, 40) },
	"connection":  func(f *Finding) said { return of(f.Objects.Mount, (*Mount).connection) },
	"silence":     func(f *Finding) said { return of(f.Objects.Mount, (*Mount).silence) },
	"mapper": func(f *Finding) said {
		return of(f.Objects.Mount, func(m *Mount) said { return inCommand(m.Mapper, "") })
	},
	"details": func(f *Finding) said {
		return of(f.Objects.Mount, func(m *Mount) said { return m.details(f.Objects.volume(m.Volume)) })
	},
	"device":  func(f *Finding) said { return foreign(f.Objects.Device, 40) },
	"logical": func(f *Finding) said { return foreign(f.Objects.Logical, 80) },
	"rest":    func(f *Finding) said { return arguments(f.Objects.Rest, 120) },
	"cgroup":  func(f *Finding) said { return inCommand(strings.TrimPrefix(f.Objects.Cgroup, "/"), "") },
	"target":  func(f *Finding) said { return foreign(f.Objects.CorePattern, 120) },

	"daemon": func(f *Finding) said { return foreign(f.Objects.Daemon, 120) },
	"error":  func(f *Finding) said { return quoted(f.Objects.Error, 300) },

	"signal":  func(f *Finding) said { return own(f.Objects.Signal) },
	"handled": func(f *Finding) said { return own(f.Objects.Handled) },
	"deadline": func(f *Finding) said {
		at := dated(f.Objects.Deadline, f.Objects.Requested)
		if f.Objects.Latest {
			at += " at the latest"
		}
		return at
	},
	"since":      func(f *Finding) said { return dated(f.Objects.Since, f.Objects.Deadline) },
	"until":      func(f *Finding) said { return dated(f.Objects.Until, f.Objects.Deadline) },
	"list":       func(f *Finding) said { return own(f.Objects.List) },
	"sleep":      func(f *Finding) said { return seconds(f.Objects.SleepSeconds) },
	"hookleft":   func(f *Finding) said { return seconds(f.Objects.HookLeftSeconds) },
	"port":       func(f *Finding) said { return number(int64(f.Objects.Port)) },
	"ended":      func(f *Finding) said { return clock(f.Objects.Ended) },
	"grace":      func(f *Finding) said { return seconds(f.Objects.GraceSeconds) },
	"group":      func(f *Finding) said { return foreign(f.Objects.Cgroup, 200) },
	"users":      func(f *Finding) said { return join(each(f.Objects.Users, User.said), ", ", 300) },
	"cpulimit":   func(f *Finding) said { return processors(f.Objects.CPULimitMillis) },
	"cpuused":    func(f *Finding) said { return processors(f.Objects.CPUUsedMillis) },
	"memoryhigh": func(f *Finding) said { return mebibytes(f.Objects.MemoryHigh) },

	"connections": func(f *Finding) said { return count(f.Objects.Connections, "TCP connection") },

	"command": func(f *Finding) said { return foreign(f.Objects.Command, 60) },

	"image":    func(f *Finding) said { return quoted(f.Objects.Image, 120) },
	"registry": func(f *Finding) said { return argument(registry(f.Objects.Image)) },
	"limit":    func(f *Finding) said { return number(f.Objects.Limit) },
	"size":     func(f *Finding) said { return mebibytes(f.Objects.Limit) },
	"dir":      func(f *Finding) said { return foreign(f.Objects.Dir, 120) },
	"root":     func(f *Finding) said { return inCommand(f.Objects.Dir, "/") },

	"kernel":     func(f *Finding) said { return foreign(f.Objects.Kernel, 60) },
	"containerd": func(f *Finding) said { return foreign(f.Objects.Containerd, 40) },
	"issue":      func(f *Finding) said { return own(f.Objects.Issue) },
	"fixed":      func(f *Finding) said { return foreign(f.Objects.FixedIn, 20) },

	"finalizers": func(f *Finding) said { return finalizers(f.Objects.Finalizers) },
	"domain":     func(f *Finding) said { return domain(f.Objects.Finalizers) },
	"manager":    func(f *Finding) said { return quoted(f.Objects.Manager, 80) },
	"changed":    func(f *Finding) said { return day(f.Objects.Changed) },

	"refuser": func(f *Finding) said { return of(f.Objects.Refuser, (*Refuser).said) },

	"podnamespace": func(f *Finding) said {
		namespace, _, _ := strings.Cut(f.Objects.Pod, "/")
		return argument(namespace)
	},
	"podname": func(f *Finding) said {
		_, name, _ := strings.Cut(f.Objects.Pod, "/")
		return argument(name)
	},
	"node":   func(f *Finding) said { return argument(f.Node()) },
	"poduid": func(f *Finding) said { return argument(f.Objects.PodUID) },
	"left": func(f *Finding) said {
		return said(strings.Replace(string(list(f.Objects.Left, 200)), LeftCgroup, "its "+LeftCgroup, 1))
	},
	"layers": func(f *Finding) said { return list(f.Objects.RuledOut, 200) },
	"partly": func(f *Finding) said { return list(f.Objects.PartlyRuledOut, 200) },
	"unread": func(f *Finding) said { return list(f.Objects.Unread, 200) },
	"undecided": func(f *Finding) said {
		return join(each(f.Objects.Undecided, func(u Undecided) said {
			if u.At.IsZero() {
				return own(u.Cause)
			}
			return own(u.Cause) + " (not before " + clock(u.At) + ")"
		}), ", ", 300)
	},
	"scarce": func(f *Finding) said {
		return join(each(f.Objects.Scarce, func(what string) said {
			if what == "processors" {
				return "CPU"
			}
			return foreign(what, 40)
		}), ", ", 40)
	},
	"runtimes": func(f *Finding) said { return join(each(f.Objects.Runtimes, runtimeName), ", ", 160) },
	"views":    func(f *Finding) said { return join(each(f.Objects.Views, View.said), "; ", 240) },
}

// common are the phrases that every Doc may use.
var common = map[string][]Choice{
	// What becomes of a process that does not end by its stop signal.
	"fine": {{Variant: Gone, Text: "Nothing is broken"}, {Text: "Nothing is broken: the pod ends at {deadline}"}},
	"behind": {
		{Variant: BehindHook, Text: ". Its preStop hook{mayhaveasked} left {hookleft} of the {grace} grace period"},
		{Variant: BehindHook, Text: ". Its preStop hook{mayhaveasked} is over"},
		{Text: ""},
	},
	"mayhaveasked": {{Variant: AskedByHook, Text: " may have asked the program to stop and"}, {Text: ""}},
	"unasked":      {{Variant: AskedByHook, Text: ""}, {Text: " without having been asked to stop"}},
	"within": {
		{Variant: BehindHook, Text: "the {hookleft} that its preStop hook left of the {grace} grace period"},
		{Variant: BehindHook, Text: "the rest of its {grace} grace period after the preStop hook"},
		{Text: "its {grace} grace period"},
	},
	"where": {{Variant: aboutSandbox, Text: "the pod's sandbox: "}, {Text: "container {container}: "}, {Text: ""}},
	"unfreeze": {
		{Text: "fsfreeze -u {hostmount}"},
		{Text: "find where the file system with the number {mountnumber} is mounted (findmnt -o TARGET,MAJ:MIN) and run fsfreeze -u with that directory"},
		{Text: "find out which file system is frozen, and run fsfreeze -u with the directory that it is mounted on"},
	},
	// Numbers of FUSE connections are used again, as PIDs are.
	"abort": {
		{Text: "grep -q ' 0:{connection} [^ ]* {hostmount} ' /proc/1/mountinfo && echo 1 > /sys/fs/fuse/connections/{connection}/abort " +
			"|| echo nothing done"},
		{Text: "find the number of the connection (findmnt -o TARGET,MAJ:MIN shows it behind 0:) and write 1 to abort in its directory " +
			"below /sys/fs/fuse/connections"},
	},

	// Whose a process is, which works without systemd, too.
	"whose":       {{Text: "cat /proc/{pid}/cgroup shows whose it is (service or pod UID)"}},
	"whosetracer": {{Text: "cat /proc/{tracerpid}/cgroup shows whose the tracer is (service or pod UID)"}},
	"whoseparent": {{Text: "cat /proc/{parentpid}/cgroup shows whose the parent is (service or pod UID)"}},
	"whoseeach":   {{Text: "cat /proc/PID/cgroup shows whose each process is (service or pod UID)"}},
	"askowner":    {{Text: "on the node: {whose}. Ask that owner to stop it"}},

	"continue":        send("CONT", "process", ""),
	"continuetracer":  send("CONT", "tracer", "tracer"),
	"continueparent":  send("CONT", "parent", "parent"),
	"dump":            send("USR1", "process", ""),
	"terminate":       send("TERM", "process", ""),
	"terminategroup":  sendGroup("TERM"),
	"terminatetracer": send("TERM", "tracer", "tracer"),
	"terminatechild":  send("TERM", "child", "child"),
	"terminateparent": send("TERM", "parent", "parent"),
	"kill":            send("KILL", "process", ""),
	"raisefiles": {
		{Text: guarded("{pid}", "{starttime}", "prlimit --pid {pid} --nofile=LIMIT:LIMIT")},
		{Text: "prlimit --pid PID --nofile=LIMIT:LIMIT (PID: that of {process}, if that is still the same process)"},
	},
}

// send returns the words for sending a signal to the process of a finding whose
// placeholders begin with the given prefix; {who} names it. An Event is read an hour
// later, and PIDs are used again: the command does nothing when the PID has gone to
// another process, which has another start time (proc(5), field 22 of
// /proc/PID/stat, counted here from behind the name, in which anything may stand).
// There is no command for a process whose start time is not known.
func send(signal, who, prefix string) []Choice {
	pid, start := "{"+prefix+"pid}", "{"+prefix+"starttime}"
	return []Choice{
		{Text: guarded(pid, start, "kill -"+signal+" "+pid)},
		{Text: "send SIG" + signal + " to {" + who + "}, if that is still the same process"},
	}
}

// guarded is a command that is run only where the PID is still that of the process with the start time.
func guarded(pid, start, command string) string {
	return `grep -qE '\) ([^ )]* ){19}` + start + ` ' /proc/` + pid + "/stat && " + command + " || echo nothing done"
}

// sendGroup is send to all of the process group that the process leads. dash takes no -- before
// its number.
func sendGroup(signal string) []Choice {
	choices := send(signal, "process", "")
	choices[0].Text = strings.Replace(choices[0].Text, " {pid} ||", " -{pid} ||", 1)
	return choices
}

// say puts the Doc's words about its objects into a finding.
func (d *Doc) say(f *Finding) {
	of := d.advice(f)
	f.Message, f.Remedy, f.Danger, f.First, f.Avoid = d.fill(d.Message, f), d.fill(of.Remedy, f), d.fill(of.Danger, f), d.fill(of.First, f), d.fill(of.Avoid, f)
	f.WholeNode, f.Quiet, f.Seen = d.WholeNode && !f.is(OnePod), d.Quiet, nil
	f.Who, f.NotApp, f.Ends = of.Who, of.NotApp, of.Ends && !f.is(Gone) || d.Quiet
	for _, fact := range d.Seen {
		if said := d.fill(fact, f); said != "" && d.complete(fact, f) {
			f.Seen = append(f.Seen, said)
		}
	}
	for _, c := range f.Objects.Claimed {
		if len(c.Claims) == 1 {
			f.Seen = append(f.Seen, "Volume "+string(c.quoted())+" is PersistentVolume "+string(foreign(c.Volume, 80)))
		}
	}
}

// advice returns the texts of the finding's family, else the Doc's own.
func (d *Doc) advice(f *Finding) Family {
	own := Family{Remedy: d.Remedy, Danger: d.Danger, First: d.First, Avoid: d.Avoid, Who: d.Who, NotApp: d.NotApp, Ends: d.Ends}
	var out Family
	for _, v := range append(slices.Clone(d.Families), own) {
		if f.is(v.Name) {
			out.Remedy, out.Danger = cmp.Or(out.Remedy, v.Remedy), cmp.Or(out.Danger, v.Danger)
			out.First, out.Avoid = cmp.Or(out.First, v.First), cmp.Or(out.Avoid, v.Avoid)
			if out.Who == "" {
				out.Who, out.NotApp, out.Ends = v.Who, v.NotApp, v.Ends
			}
		}
	}
	return out
}

// sandboxName is the name of a pod's sandbox among its containers (pkg/cri/list.go), and
// aboutSandbox the variant of a finding that is about it.
const (
	sandboxName  = "POD"
	aboutSandbox = "Sandbox"
)

// BehindHook is the variant of a finding about a container of which the preStop hook is over, and AskedByHook of one whose hook may
// have asked the program to stop.
const (
	BehindHook  = "BehindHook"
	AskedByHook = "AskedByHook"
)

// Uncalled is the variant of a finding of which the Refuser is a webhook that the API server cannot
// call.
const Uncalled = "Uncalled"

// is reports whether the finding shows a variant of its cause, as every finding
// does the variant "".
func (f *Finding) is(variant string) bool {
	return variant == "" || variant == f.Family || slices.Contains(f.Variants, variant) || variant == aboutSandbox && f.Container == sandboxName
}

// fill puts what a finding says into a text. A placeholder without a value is
// shown as on a page, so that the reader sees what to look up.
func (d *Doc) fill(text string, f *Finding) string {
	return placeholder.ReplaceAllStringFunc(text, func(m string) string {
		name := m[1 : len(m)-1]
		if v, ok := d.value(name, f); ok {
			return v
		}
		return strings.ToUpper(name)
	})
}

// value returns what a placeholder stands for in a finding, and whether the
// finding has it. Of a phrase that is the first of its choices that applies and
// is complete.
func (d *Doc) value(name string, f *Finding) (string, bool) {
	choices, ok := d.phrase(name)
	if !ok {
		get, known := values[name]
		if !known {
			return "", false
		}
		v := get(f)
		return string(v), v != ""
	}
	for _, c := range choices {
		if f.is(c.Variant) && d.complete(c.Text, f) {
			return d.fill(c.Text, f), true
		}
	}
	return "", false
}

func (d *Doc) complete(text string, f *Finding) bool {
	for _, m := range placeholder.FindAllString(text, -1) {
		if _, ok := d.value(m[1:len(m)-1], f); !ok {
			return false
		}
	}
	return true
}

func (d *Doc) phrase(name string) ([]Choice, bool) {
	if choices, ok := d.Phrases[name]; ok {
		return choices, true
	}
	choices, ok := common[name]
	return choices, ok
}

// of applies words to an object, "" when there is none.
func of[T any](o *T, words func(*T) said) said {
	if o == nil {
		return ""
	}
	return words(o)
}

const commLength = 40

func (p *Process) name() said   { return foreign(p.Comm, commLength) }
func (p *Process) number() said { return number(int64(p.PID)) }

// start is for a command: nobody sends a signal to the node's first process.
func (p *Process) start() said {
	if p.PID <= 1 || p.Start == 0 {
		return ""
	}
	return said(strconv.FormatUint(p.Start, 10))
}

// program is the name of what the process was started as.
func (p *Process) program() said { return foreign(cmp.Or(p.Program, p.Comm), 80) }

// whose names a process by its comm and PID, and by whose it is.
func (p *Process) whose() said {
	switch pid := "PID " + p.number(); {
	case p.Comm == "":
		return pid
	case p.Pod != "" && p.PodUID != "":
		return p.name() + " (" + pid + ", of another pod of this name, with UID " + foreign(p.PodUID, 64) + ")"
	case p.Pod != "":
		return p.name() + " (" + pid + ", of pod " + foreign(p.Pod, 120) + ")"
	case p.PodUID != "":
		return p.name() + " (" + pid + ", of the pod with UID " + foreign(p.PodUID, 64) + ")"
	case p.Unit != "":
		return p.name() + " (" + pid + ", of " + foreign(p.Unit, 80) + ")"
	case p.Container == sandboxName:
		return p.name() + " (" + pid + ", of the pod's sandbox)"
	case p.Container != "":
		return p.name() + " (" + pid + ", of container " + foreign(p.Container, 63) + ")"
	default:
		return p.name() + " (" + pid + ")"
	}
}

// short names a process where there is no room for whose it is: a remedy is cut at its end.
func (p *Process) short() said {
	if p.Comm == "" {
		return p.whose()
	}
	return p.name() + " (PID " + p.number() + ")"
}

// also names the first of the other processes, and counts the rest.
func (o *Objects) also() said {
	if len(o.Others) == 0 {
		return ""
	}
	rest := number(int64(max(0, o.Alike-len(o.Others))))
	switch {
	case o.AtLeast && rest != "":
		rest = "at least " + rest + " more"
	case o.AtLeast:
		rest = "perhaps more"
	case rest != "":
		rest += " more"
	}
	return processes(o.Others, (*Process).whose, rest)
}

// processes names processes, and says what else there is.
func processes(all []*Process, name func(*Process) said, rest said) said {
	names := each(all, name)
	if rest != "" {
		names = append(names, rest)
	}
	if n := len(names); n > 1 {
		names = append(names[:n-2], names[n-2]+" and "+names[n-1])
	}
	return join(names, ", ", 500)
}

func (t *Thread) name() said { return foreign(t.Comm, commLength) }

func (t *Thread) function() said { return cmp.Or(foreign(t.Function, 80), "an unknown function") }

// connection is the number of a FUSE mount's connection: the second part of its
// device number (Documentation/filesystems/fuse.rst).
func (m *Mount) connection() said {
	_, minor, _ := strings.Cut(m.Device, ":")
	if n, err := strconv.Atoi(minor); err == nil {
		return number(int64(n))
	}
	return ""
}

// silence says what supports that the server does not answer. Numbers are left
// out, because they change while a pod is stuck.
func (m *Mount) silence() said {
	var s []said
	if m.Unanswered {
		s = append(s, "requests without an answer")
	}
	switch {
	case m.OutOfReach && m.Connection == evidence.Established:
		s = append(s, "the server acknowledges nothing")
	case m.OutOfReach:
		s = append(s, "no TCP connection")
	}
	return join(s, ", ", 500)
}

// details are what helps to find a mount, and to believe that it hangs. volume is what its
// volume is called.
func (m *Mount) details(volume said) said {
	var s []said
	if m.HostPoint != "" && m.HostPoint != m.Point {
		s = append(s, "on the node "+foreign(m.HostPoint, 150))
	}
	if m.Source != "" && m.Source != "none" {
		s = append(s, "source "+foreign(m.Source, 120))
	}
	if volume != "" {
		s = append(s, "volume "+volume)
	}
	if silence := m.silence(); silence != "" {
		s = append(s, silence)
	}
	if m.KernelThread != "" {
		s = append(s, "for which the kernel's thread "+foreign(m.KernelThread, commLength)+" waits too")
	}
	return join(s, ", ", 500)
}

// registry returns the host of an image's registry: Docker Hub's where the name has none (splitDockerDomain, distribution/reference).
func registry(image string) string {
	host, _, found := strings.Cut(image, "/")
	switch {
	case image == "":
		return ""
	case !found || !strings.ContainsAny(host, ".:") && host != "localhost":
		return "registry-1.docker.io"
	}
	return host
}

// volumes names the volumes of a finding.
func (o *Objects) volumes() said {
	return join(each(o.Volumes, o.volume), ", ", 300)
}

// volume names a volume: as in the pod's specification where that is certain.
func (o *Objects) volume(name string) said {
	i := slices.IndexFunc(o.Claimed, func(c Claimed) bool { return c.Volume == name })
	if i < 0 {
		return quoted(name, 80)
	}
	c := &o.Claimed[i]
	if len(c.Claims) > 1 {
		return quoted(name, 80) + " (PersistentVolume of claim " + either(c.Claims, 120) + ")"
	}
	return c.quoted() + " (claim " + foreign(c.Claims[0], 80) + ")"
}

// quoted is what the specification calls a volume of one claim, which can have several names.
func (c *Claimed) quoted() said {
	return join(each(c.Names, func(name string) said { return quoted(name, 60) }), " or ", 60)
}

// either names several things of which it is one.
func either(names []string, n int) said {
	return join(each(names, func(name string) said { return foreign(name, n) }), " or ", n)
}

// runtimeName is what is said of a runtime: containerd's name of it, and the project that it is
// of, where the name is one that its documentation gives it.
func runtimeName(name string) said {
	for _, of := range []struct {
		part    string
		project said
	}{{"kata", "Kata Containers"}, {"runsc", "gVisor"}, {"firecracker", "Firecracker"}} {
		if strings.Contains(name, of.part) {
			return foreign(name, 80) + " (" + of.project + ")"
		}
	}
	return foreign(name, 80)
}

// said is what is said of a container. The number of its threads is left out: it may change
// while a pod is stuck.
func (v View) said() said {
	processes := said("processes")
	if v.Tasks == 0 {
		processes = "no process"
	}
	shim := said("")
	if v.Shim != "" {
		shim = "the shim: " + own(v.Shim) + ", "
	}
	return foreign(v.Container, 63) + " (containerd's record: " + foreign(string(v.Record), 20) + ", " + shim + "the kernel: " + processes + ")"
}

// said names who uses the processors.
func (u User) said() said {
	switch {
	case u.Pod != "":
		return "pod " + foreign(u.Pod, 120)
	case u.PodUID != "":
		return "the pod with UID " + foreign(u.PodUID, 64)
	}
	return "cgroup " + foreign(u.Cgroup, 120)
}

// said names a webhook, or a policy.
func (r *Refuser) said() said {
	if r.Webhook != "" {
		return "the webhook " + quoted(r.Webhook, 100)
	}
	return "the ValidatingAdmissionPolicy " + quoted(r.Policy, 100) + " (binding " + quoted(r.Binding, 100) + ")"
}

// finalizers names finalizers.
func finalizers(all []string) said {
	switch len(all) {
	case 0:
		return ""
	case 1:
		return "finalizer " + foreign(all[0], 180)
	}
	return "finalizers " + list(all, 180)
}

// domain is that of the first finalizer, which by convention names its
// controller.
func domain(all []string) said {
	if len(all) == 0 {
		return ""
	}
	d, _, _ := strings.Cut(all[0], "/")
	return foreign(d, 100)
}

// clock is how messages tell a moment: it does not grow while a pod is stuck.
func clock(t time.Time) said {
	if t.IsZero() {
		return ""
	}
	return said(t.UTC().Format("15:04:05 UTC"))
}

// day is clock of a moment that may be days ago.
func day(t time.Time) said {
	if t.IsZero() {
		return ""
	}
	return said(t.UTC().Format("2006-01-02 15:04:05 UTC"))
}

// dated is the same of a moment that may be of another day than what the reader knows.
func dated(t, known time.Time) said {
	if t.IsZero() || known.IsZero() || t.UTC().Format(time.DateOnly) == known.UTC().Format(time.DateOnly) {
		return clock(t)
	}
	return day(t)
}

func seconds(n int64) said {
	if n == 0 {
		return ""
	}
	return said((time.Duration(n) * time.Second).String())
}

// processors says thousandths of a processor in words.
func processors(millis int64) said {
	if millis == 0 {
		return ""
	}
	if millis < 10 {
		return said(fmt.Sprintf("0.%03d processors", millis))
	}
	return said(fmt.Sprintf("%d.%02d processors", millis/1000, millis%1000/10))
}

func mebibytes(n int64) said {
	if n == 0 {
		return ""
	}
	return said(fmt.Sprintf("%d MiB", n>>20))
}

func number(n int64) said {
	if n == 0 {
		return ""
	}
	return said(strconv.FormatInt(n, 10))
}

// count says a number of things in words, as in 1 thread or 2 threads.
func count(n int, thing said) said {
	switch n {
	case 0:
		return ""
	case 1:
		return "1 " + thing
	}
	return number(int64(n)) + " " + thing + "s"
}
