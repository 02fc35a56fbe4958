package diagnose_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// What containerd answers when the shim can start no process, and when containerd itself can open no
// file, or start no plugin.
const (
	cannotFork  = `fork/exec /usr/local/sbin/runc: resource temporarily unavailable: <nil>`
	shimIsShort = `rpc error: code = Unknown desc = failed to stop container \"c\": failed to kill container \"c\": unknown error after kill: ` + cannotFork
	noNetns     = `rpc error: code = Unknown desc = failed to check network namespace closed: get netns fd: open /var/run/netns/cni-1: too many open files`
	noPlugin    = `plugin type=\"bridge\" failed (delete): netplugin failed with no error message: `
)

// short is a pod whose shim, number 50, has had as many tasks as it may have for 20 seconds.
func short(change func(p *evidence.Pod, s *evidence.Shortage)) *evidence.Pod {
	return unsignalled(func(p *evidence.Pod, _ *evidence.Task) {
		p.KillFailures = []evidence.KillFailure{kubeletSays(p, shimIsShort)}
		p.Parents = []evidence.Task{{PID: 50, TID: 50, Comm: "containerd-shim", State: evidence.Sleeping, Owner: "shim"}}
		p.Shortages = []evidence.Shortage{{
			Resource: evidence.Tasks, Owner: "shim", PID: 50, Cgroup: "/system.slice/containerd.service", Limit: 512, Used: 512, Since: p.Time.Add(-20 * time.Second),
		}}
		change(p, &p.Shortages[0])
	})
}

// shortContainerd is one whose containers have ended, and whose containerd, number 60, has as many
// files open as it may.
func shortContainerd(answer string, change func(p *evidence.Pod, s *evidence.Shortage)) *evidence.Pod {
	return tornDown("", func(p *evidence.Pod) {
		p.KillFailures = []evidence.KillFailure{kubeletSays(p, answer)}
		p.Shortages = []evidence.Shortage{{Resource: evidence.Descriptors, Owner: "containerd", PID: 60, Limit: 1024, Used: 1024,
			Since: p.Time.Add(-20 * time.Second)}}
		change(p, &p.Shortages[0])
	})
}

func TestNodeResourceExhausted(t *testing.T) {
	type change = func(p *evidence.Pod, s *evidence.Shortage)
	nothing := func(*evidence.Pod, *evidence.Shortage) {}
	says := func(old, text string) change {
		return func(p *evidence.Pod, _ *evidence.Shortage) {
			p.KillFailures[0].Text = strings.ReplaceAll(p.KillFailures[0].Text, old, text)
		}
	}
	network := func(text string) string {
		return `rpc error: code = Unknown desc = failed to destroy network for sandbox \"` + sandboxID + `\": ` + text
	}
	forkless := func(_ *evidence.Pod, s *evidence.Shortage) {
		s.Resource, s.Cgroup, s.Limit = evidence.Tasks, "/system.slice/containerd.service", 512
	}
	both := func(a, b change) change {
		return func(p *evidence.Pod, s *evidence.Shortage) { a(p, s); b(p, s) }
	}
	// itself has containerd say so, without an Event.
	itself := func(ago time.Duration) change {
		return func(p *evidence.Pod, _ *evidence.Shortage) {
			p.KillFailures = nil
			p.Containers[1].StatusError = "failed to get sandbox ip: check network namespace closed: get netns fd: open /var/run/netns/cni-1: too many open files"
			p.Containers[1].StatusErrorSince = p.Time.Add(-ago)
		}
	}
	// silentSince is seven minutes after the kubelet's last report, after which it sends one in five minutes.
	silentSince := func(p *evidence.Pod, s *evidence.Shortage) {
		p.KillFailures[0].Count = 25
		p.Time = p.Time.Add(7 * time.Minute)
		s.Since = p.KillFailures[0].First.Add(-time.Minute)
	}
	for name, test := range map[string]struct {
		pod   *evidence.Pod
		want  string // the family and a part of the message; "" when it is not said
		other string
	}{
		"the shim": {short(nothing), "Tasks: each attempt to stop container main fails: shim (PID 50) can start no process: cgroup " +
			"system.slice/containerd.service has reached pids.max (512)\n" +
			"pids.current has reached pids.max (512) in the cgroup of shim (PID 50), or in one above it\nThe stop failed with \"fork/exec " +
			"/usr/local/sbin/runc: resource temporarily unavailable\"", ""},
		"a group whose name is no word": {short(func(_ *evidence.Pod, s *evidence.Shortage) { s.Cgroup = "/a b; reboot" }), "Tasks: its " +
			"cgroup has reached pids.max (512)", ""},
		"runc gets too few threads": {short(says(cannotFork, "runc did not terminate successfully: exit status 2: runtime: failed to "+
			"create new OS thread (have 3 already; errno=11)")),
			"Tasks: failed to create new OS thread", ""},
		"the pod's sandbox": {short(func(p *evidence.Pod, _ *evidence.Shortage) {
			p.KillFailures[0].Text = strings.NewReplacer("failed to stop container", "failed to stop sandbox", `\"c\"`, `\"`+sandboxID+`\"`).Replace(p.KillFailures[0].Text)
			p.Containers[0].State, p.Tasks[0].Container = evidence.StateExited, sandboxID
			p.Containers[1].Task = evidence.ShimTask{Status: "running", PID: 100}
			p.Cgroups = nil
		}), "Tasks: each attempt to stop the pod's sandbox fails: shim (PID 50)", ""},
		"nine seconds": {short(func(p *evidence.Pod, s *evidence.Shortage) { s.Since = p.Time.Add(-9 * time.Second) }), "", "RuntimeCommandFailing"},
		"only since it failed": {short(func(p *evidence.Pod, s *evidence.Shortage) {
			p.KillFailures[0].First, p.KillFailures[0].Last = s.Since.Add(-10*time.Second), s.Since
		}), "", "RuntimeCommandFailing"},
		"not any more, and it has not failed since": {short(func(p *evidence.Pod, s *evidence.Shortage) { s.Ended = p.Time.Add(-4 * time.Second) }), "", ""},
		"not any more, and it has failed since": {short(func(p *evidence.Pod,
			s *evidence.Shortage) {
			s.Ended = p.Time.Add(-6 * time.Second)
		}), "", "RuntimeCommandFailing"},
		"one reading":  {short(func(_ *evidence.Pod, s *evidence.Shortage) { s.Since = time.Time{} }), "", "RuntimeCommandFailing"},
		"not any more": {short(func(p *evidence.Pod, _ *evidence.Shortage) { p.Shortages = nil }), "", "RuntimeCommandFailing"},
		"not read": {short(func(p *evidence.Pod,
			_ *evidence.Shortage) {
			p.Shortages = nil
			p.Lack(evidence.Limits, "denied")
		}), "", "RuntimeCommandFailing"},
		"of containerd":   {short(func(_ *evidence.Pod, s *evidence.Shortage) { s.Owner = "containerd" }), "", "RuntimeCommandFailing"},
		"of another shim": {short(func(_ *evidence.Pod, s *evidence.Shortage) { s.PID = 51 }), "", "RuntimeCommandFailing"},
		"of one of two shims": {short(func(p *evidence.Pod, _ *evidence.Shortage) {
			p.Parents = append(p.Parents,
				p.Parents[0])
		}), "", "RuntimeCommandFailing"},
		"of files": {short(func(_ *evidence.Pod, s *evidence.Shortage) { s.Resource = evidence.Descriptors }),
			"", "RuntimeCommandFailing"},
		"another error": {short(says(cannotFork, "permission denied")), "", "RuntimeCommandFailing"},
		"runc says so of something else": {short(says(cannotFork, "runc did not terminate successfully: exit status 1: flock: "+
			"resource temporarily unavailable")), "", "RuntimeCommandFailing"},
		"once, and before for another reason": {short(func(p *evidence.Pod, _ *evidence.Shortage) {
			other := p.KillFailures[0]
			other.Text = strings.ReplaceAll(other.Text, cannotFork, "permission denied")
			p.KillFailures[0].Count, p.KillFailures[0].First = 1, p.KillFailures[0].Last
			p.KillFailures = append(p.KillFailures, other)
		}), "", ""},
		"once":                             {short(func(p *evidence.Pod, _ *evidence.Shortage) { p.KillFailures[0].Count = 1 }), "", ""},
		"long ago":                         {short(func(p *evidence.Pod, _ *evidence.Shortage) { p.Time = p.Time.Add(90 * time.Second) }), "", ""},
		"25 times, the last time long ago": {short(silentSince), "", ""},
		"containerd, 25 times, the last time long ago": {shortContainerd(noNetns, silentSince), "", ""},
		"before the deletion": {short(func(p *evidence.Pod, _ *evidence.Shortage) {
			p.KillFailures[0].First, p.KillFailures[0].Last = p.DeletionRequested.Add(-time.Minute), p.DeletionRequested.Add(10*time.Second)
		}), "", ""},
		"of another pod":             {short(says(`for "u"`, `for "v"`)), "", ""},
		"SIGKILL has come":           {short(func(p *evidence.Pod, _ *evidence.Shortage) { p.Tasks[0].SharedPending = bitKILL }), "", ""},
		"it has ended":               {short(func(p *evidence.Pod, _ *evidence.Shortage) { p.Tasks[0].State = evidence.Zombie }), "", ""},
		"inside the grace period":    {short(func(p *evidence.Pod, _ *evidence.Shortage) { p.Deadline = p.Time.Add(time.Minute) }), "", ""},
		"Events could not be listed": {short(func(p *evidence.Pod, _ *evidence.Shortage) { p.Lack(evidence.Events, "forbidden") }), "", ""},
		"a kubelet that is gone": {short(func(p *evidence.Pod, _ *evidence.Shortage) {
			p.Node.Kubelet.AbsentSince, p.Node.Kubelet.LastSeen = p.Time, p.DeletionRequested
		}), "", ""},
		"the shim was not asked": {short(func(p *evidence.Pod, _ *evidence.Shortage) { p.Lack(evidence.Shims, "no answer") }), "", ""},
		"containerd": {shortContainerd(noNetns, nothing), "Descriptors: each attempt to stop the pod's sandbox fails: containerd (PID " +
			"60) has reached its open file limit (RLIMIT_NOFILE 1024)\n" +
			"containerd (PID 60) has all 1024 files open that it may have\nThe stop failed with \"failed to check network namespace closed", ""},
		"containerd says so itself": {shortContainerd("", itself(11*time.Second)), "Descriptors: containerd (PID " +
			"60) has all 1024 files open that it may have\nThe stop failed with \"failed to get sandbox ip", ""},
		"containerd says so for nine seconds": {shortContainerd("", itself(9*time.Second)), "", ""},
		"containerd says so, and may open more": {shortContainerd("", both(itself(time.Minute), func(p *evidence.Pod,
			_ *evidence.Shortage) {
			p.Shortages = nil
		})), "", ""},
		"containerd says so, and a container is left": {shortContainerd("", both(itself(time.Minute), func(p *evidence.Pod,
			_ *evidence.Shortage) {
			p.Containers[0].State = evidence.StateRunning
		})), "", ""},
		"containerd says so, and Events were not listed": {shortContainerd("", both(itself(time.Minute), func(p *evidence.Pod,
			_ *evidence.Shortage) {
			p.Lack(evidence.Events, "forbidden")
		})), "Descriptors: failed to get sandbox ip", ""},
		"containerd, of the whole node": {shortContainerd(strings.ReplaceAll(noNetns, "open files", "open files in system"), nothing), "", ""},
		"containerd, the network": {shortContainerd(network(noPlugin+"open /dev/null: too many open "+
			"files"), nothing), "Descriptors: containerd (PID 60)", ""},
		"containerd, a plugin's process": {shortContainerd(network(noPlugin+"fork/exec /opt/cni/bin/bridge: resource "+
			"temporarily unavailable"), forkless), "Tasks: containerd (PID 60) can start no process", ""},
		"containerd, a plugin's own error": {shortContainerd(network(`plugin type=\"calico\" failed (delete): dial tcp: resource temporarily unavailable`), forkless), "", "CNIDelFailing"},
		"containerd, and a container is left": {shortContainerd(noNetns, func(p *evidence.Pod, _ *evidence.Shortage) {
			p.Containers[0].State = evidence.StateRunning
		}), "", ""},
		"containerd, for nine seconds": {shortContainerd(network(noPlugin+"pipe2: too many open "+
			"files"), func(p *evidence.Pod, s *evidence.Shortage) { s.Since = p.Time.Add(-9 * time.Second) }), "", "CNIDelFailing"},
		"containerd, of another sandbox": {shortContainerd(strings.ReplaceAll(network(noPlugin+"pipe2: too many open files"), sandboxID, "0ther"), nothing), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := cause.Diagnose(test.pod)
			family, part, _ := strings.Cut(test.want, ": ")
			got, verdict := "", ""
			for _, f := range d.Findings {
				if f.Cause == "NodeResourceExhausted" {
					got = f.Family + ": " + strings.Join(append([]string{f.Message}, f.Seen...), "\n")
					// Others may have written an Event.
					if itself := strings.HasPrefix(name, "containerd says so"); (f.Confidence == diagnose.Proved) != itself {
						t.Errorf("it is %s", f.Confidence)
					}
				}
			}
			if v, ok := d.Verdict(); ok {
				verdict = v.Cause
			}
			switch {
			case test.want != "" && (verdict != "NodeResourceExhausted" || !strings.HasPrefix(got, family+": ") || !strings.Contains(got, part)):
				t.Errorf("%s: %q, want %q", verdict, got, test.want)
			case test.want == "" && (got != "" || test.other != "" && verdict != test.other):
				t.Errorf("%s: %q, want %s", verdict, got, test.other)
			}
		})
	}
}

// The kernel's words for a limit are told from others that are like them.
func TestExhausted(t *testing.T) {
	for text, want := range map[string]string{
		"fork/exec /usr/bin/runc: resource temporarily unavailable: <nil>":   evidence.Tasks,
		"runtime: failed to create new OS thread (have 2 already; errno=11)": evidence.Tasks,
		"read unix: resource temporarily unavailable":                        "",
		"fork/exec /usr/bin/runc: no such file or directory":                 "",
		"pipe2: too many open files":                                         evidence.Descriptors,
		"open /x: too many open files in system":                             "",
		"no space left on device":                                            "",
		"":                                                                   "",
	} {
		if got := fact.Exhausted(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// When the limit is raised, the verdict stands until the kubelet has tried again, and no other is told of.
func TestRelieved(t *testing.T) {
	network := `rpc error: code = Unknown desc = failed to destroy network for sandbox \"` + sandboxID + `\": ` + noPlugin + `pipe2: too many open files`
	ended := func(ago time.Duration) func(p *evidence.Pod, s *evidence.Shortage) {
		return func(p *evidence.Pod, s *evidence.Shortage) { s.Ended = p.Time.Add(-ago) }
	}
	for ago, want := range map[time.Duration]bool{4 * time.Second: true, 6 * time.Second: false} {
		for _, p := range []*evidence.Pod{short(ended(ago)), shortContainerd(network, ended(ago))} {
			d := cause.Diagnose(p)
			if v, told := d.Verdict(); told == want || d.NotLookedFor("NodeResourceExhausted") != want {
				t.Errorf("it has ended %s ago: %q", ago, v.Message)
			}
		}
	}
}

// For as long as a failure is taken to go on it accuses nobody else of what was used up when it was told last.
func TestRelievedAndNotToldAgain(t *testing.T) {
	for _, ago := range []time.Duration{10 * time.Second, 2 * time.Minute, 5 * time.Minute} {
		spent := func(p *evidence.Pod, s *evidence.Shortage) {
			for i := range p.KillFailures {
				p.KillFailures[i].First, p.KillFailures[i].Last = p.Time.Add(-ago-20*time.Second), p.Time.Add(-ago)
			}
			p.DeletionRequested, p.Deadline = p.Time.Add(-ago-time.Minute), p.Time.Add(-ago-30*time.Second)
			p.UnchangedSince, p.StageSince = p.Deadline, p.Deadline
			s.Since, s.Ended = p.Time.Add(-ago-15*time.Second), p.Time.Add(-ago+time.Second)
		}
		stop := `rpc error: code = Unknown desc = failed to stop sandbox container \"` + sandboxID + `\": pipe2: too many open files`
		for _, p := range []*evidence.Pod{short(spent), shortContainerd(stop, spent)} {
			d := cause.Diagnose(p)
			if v, _ := d.Verdict(); v.Cause != "" && v.Cause != diagnose.Unrecognised.Cause || !d.NotLookedFor("NodeResourceExhausted") {
				t.Errorf("told last %s ago: %s %q; open: %+v", ago, v.Cause, v.Message, d.Open)
			}
		}
	}
}

// A kubelet that takes the container runtime for down hears of no deletion: that the stop signal was
// sent is not known, and nothing is said of what it met.
func TestRuntimeDownForTheKubelet(t *testing.T) {
	for _, down := range []bool{false, true} {
		d := cause.Diagnose(stopping(func(p *evidence.Pod, _ *evidence.Task) {
			p.Node.Ready = &evidence.NodeReady{Status: "False", Reason: "KubeletNotReady", RuntimeDown: down}
		}))
		if v, told := d.Verdict(); told == down {
			t.Errorf("down: %v, verdict: %s %q", down, v.Cause, v.Message)
		}
	}
}

// containerd cannot note the end of a container for as long as it may open no file, and what it could not
// note is not said to be lost as long as it is about to try again.
func TestEndNotWrittenDown(t *testing.T) {
	on := func(resource string) func(*evidence.Pod, *evidence.Shortage) {
		return func(_ *evidence.Pod, s *evidence.Shortage) {
			s.Resource, s.Dir, s.Limit = resource, "/var/lib/containerd", 40<<30
		}
	}
	because := map[string]string{
		evidence.Descriptors: "it has reached its open file limit (RLIMIT_NOFILE 1024)\ncontainerd (PID 60) has all 1024 files open that it may have",
		evidence.Space: "the file system of its records is full (size 40960 MiB)\nThe file system of \"/var/lib/containerd\" has " +
			"less than 1 MiB free, also for root",
		evidence.Inodes:   "the file system of its records has no free inode (of 42949672960)\nThe file system of \"/var/lib/containerd\" has no free inode",
		evidence.ReadOnly: "the file system of its records is read-only\nThe file system of \"/var/lib/containerd\" is read-only",
	}
	for name, test := range map[string]struct {
		change func(p *evidence.Pod, s *evidence.Shortage)
		want   string // the verdict
	}{
		"it may open none":           {func(*evidence.Pod, *evidence.Shortage) {}, "NodeResourceExhausted"},
		"its disk is full":           {on(evidence.Space), "NodeResourceExhausted"},
		"its disk has no inode left": {on(evidence.Inodes), "NodeResourceExhausted"},
		"its disk is read-only":      {on(evidence.ReadOnly), "NodeResourceExhausted"},
		"its disk was full":          {func(p *evidence.Pod, s *evidence.Shortage) { on(evidence.Space)(p, s); s.Ended = p.Time }, ""},
		"its disk was full until two minutes ago": {func(p *evidence.Pod, s *evidence.Shortage) {
			p.Shortages, p.Unwritable = nil, &evidence.Span{First: s.Since, Last: p.Time.Add(-2 * time.Minute)}
		}, ""},
		"its disk is full now and then, for long": {func(p *evidence.Pod, _ *evidence.Shortage) {
			p.Containers[0].VacantSince = p.Time.Add(-10 * time.Minute)
			p.Shortages, p.Unwritable = nil, &evidence.Span{First: p.Containers[0].VacantSince, Last: p.Time}
		}, ""},
		"its disk has been full since later": {func(p *evidence.Pod, s *evidence.Shortage) {
			on(evidence.Space)(p, s)
			p.Containers[0].VacantSince = s.Since.Add(-30 * time.Second)
		}, "ExitEventLost"},
		"its disk is full, and files are used up since later": {func(p *evidence.Pod, s *evidence.Shortage) {
			on(evidence.Space)(p, s)
			p.Shortages = append(p.Shortages, evidence.Shortage{Owner: "containerd", Resource: evidence.Descriptors, PID: 60, Limit: 1024,
				Since: p.Time.Add(-31 * time.Second)})
		}, "NodeResourceExhausted"},
		"its disk is full, and for a reading there was room": {func(p *evidence.Pod, s *evidence.Shortage) {
			on(evidence.Space)(p, s)
			p.Unwritable = &evidence.Span{First: s.Since, Last: p.Time}
			p.Containers[0].VacantSince = s.Since.Add(-time.Second)
			s.Since = p.Time.Add(-31 * time.Second)
		}, "NodeResourceExhausted"},
		"for less than half a minute": {func(p *evidence.Pod, s *evidence.Shortage) { s.Since = p.Time.Add(-29 * time.Second) }, ""},
		"ended less than half a minute ago": {func(p *evidence.Pod, _ *evidence.Shortage) {
			p.Containers[0].VacantSince = p.Time.Add(-29 * time.Second)
		}, ""},
		"on a starved node":              {func(p *evidence.Pod, _ *evidence.Shortage) { p.Node.Pressure.StarvedUntil = p.Time }, ""},
		"of the shim":                    {func(_ *evidence.Pod, s *evidence.Shortage) { s.Owner = "shim" }, "ExitEventLost"},
		"of tasks":                       {func(_ *evidence.Pod, s *evidence.Shortage) { s.Resource = evidence.Tasks }, "ExitEventLost"},
		"none":                           {func(p *evidence.Pod, _ *evidence.Shortage) { p.Shortages = nil }, "ExitEventLost"},
		"it may open some again":         {func(p *evidence.Pod, s *evidence.Shortage) { s.Ended = p.Time }, ""},
		"there is a task":                {func(p *evidence.Pod, _ *evidence.Shortage) { p.Containers[0].Task = evidence.ShimTask{} }, ""},
		"the record says that it exited": {func(p *evidence.Pod, _ *evidence.Shortage) { p.Containers[0].State = evidence.StateExited }, ""},
		"of another runtime":             {func(p *evidence.Pod, _ *evidence.Shortage) { p.Containers[0].Runtime = "io.containerd.kata.v2" }, ""},
		"groups were not read":           {func(p *evidence.Pod, _ *evidence.Shortage) { p.Lack(evidence.Cgroups, "no") }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := shortContainerd("", func(p *evidence.Pod, s *evidence.Shortage) {
				p.KillFailures = nil
				p.Time = p.Time.Add(30 * time.Second)
				p.UnchangedSince = p.Time
				p.Containers[0].State, p.Containers[0].Runtime = evidence.StateRunning, fact.RuncV2
				p.Containers[0].Task, p.Containers[0].VacantSince = evidence.ShimTask{Absent: true}, p.Time.Add(-45*time.Second)
				s.Since = p.Time.Add(-40 * time.Second)
				p.Node.Time, p.Node.Containerd.Version, p.Node.Containerd.ConnectedSince = p.Time, "v2.4.2", p.Time.Add(-time.Hour)
				if test.change(p, s); len(p.Shortages) > 0 && p.Shortages[0].Unwritable() && p.Unwritable == nil {
					p.Unwritable = &evidence.Span{First: p.Shortages[0].Since, Last: p.Time}
				}
			})
			d := cause.Diagnose(p)
			v, _ := d.Verdict()
			if v.Cause != test.want || v.Cause == "NodeResourceExhausted" && !strings.HasPrefix(said(&v), "containerd cannot record that "+
				"container main exited: "+because[v.Family]+"\n") {
				t.Errorf("%s: %q, want %s", v.Cause, said(&v), test.want)
			}
		})
	}
}

// Who connects to a containerd that may open no file gets no answer, as from one that hangs.
func TestNoConnectionAccepted(t *testing.T) {
	before := func(p *evidence.Pod, s *evidence.Shortage) { s.Since = p.Time.Add(-63 * time.Second) }
	for name, test := range map[string]struct {
		change func(p *evidence.Pod, s *evidence.Shortage)
		want   string // the verdict
	}{
		"it may open none":        {before, "NodeResourceExhausted"},
		"it fills up as it hangs": {func(*evidence.Pod, *evidence.Shortage) {}, "ContainerdHung"},
		"it hangs on its disk": {func(p *evidence.Pod, s *evidence.Shortage) {
			before(p, s)
			p.Node.Containerd.Process = &evidence.Task{PID: 60, TID: 60, Comm: "containerd", State: evidence.Uninterruptible, UnchangedSince: p.Time.Add(-time.Minute)}
		}, "ContainerdHung"},
		"it may open some":       {func(p *evidence.Pod, _ *evidence.Shortage) { p.Shortages = nil }, "ContainerdHung"},
		"it may open some again": {func(p *evidence.Pod, s *evidence.Shortage) { s.Ended = p.Time }, "ContainerdHung"},
		"for nine seconds":       {func(p *evidence.Pod, s *evidence.Shortage) { s.Since = p.Time.Add(-9 * time.Second) }, "ContainerdHung"},
		"of the shim":            {func(_ *evidence.Pod, s *evidence.Shortage) { s.Owner = "shim" }, "ContainerdHung"},
		"not for long": {func(p *evidence.Pod, _ *evidence.Shortage) {
			p.Node.Containerd.UnansweredSince = p.Time.Add(-50 * time.Second)
		}, ""},
		"stopped by a signal": {func(p *evidence.Pod, _ *evidence.Shortage) {
			p.Node.Containerd.Process = &evidence.Task{PID: 60, TID: 60, Comm: "containerd", State: evidence.Stopped, UnchangedSince: p.Time.Add(-time.Minute)}
		}, "ContainerdHung"},
	} {
		t.Run(name, func(t *testing.T) {
			p := shortContainerd("", func(p *evidence.Pod, s *evidence.Shortage) {
				p.KillFailures, p.UnchangedSince = nil, p.Time
				p.Node.Containerd.UnansweredSince, p.Node.Containerd.Asked, p.Node.Containerd.Attempts = p.Time.Add(-62*time.Second), p.Time, 5
				p.Node.Containerd.Error = "no answer"
				for _, source := range []evidence.Source{evidence.Containers, evidence.Shims, evidence.Containerd} {
					p.Lack(source, "no answer")
				}
				test.change(p, s)
			})
			d := cause.Diagnose(p)
			if v, _ := d.Verdict(); v.Cause != test.want || v.Cause == "NodeResourceExhausted" && !strings.HasPrefix(v.Message,
				"containerd (PID 60) accepts no new connection: it has reached its open file limit (RLIMIT_NOFILE 1024)") {
				t.Errorf("%s: %q, want %s", v.Cause, v.Message, test.want)
			}
		})
	}
}

// A kubelet that cannot write its checkpoint of claims fails for pods without any, and one that cannot change its directory
// fails at volumes.
func TestKubeletResourceExhausted(t *testing.T) {
	type change = func(p *evidence.Pod, s *evidence.Shortage)
	// readOnly is a pod without claims whose containers have ended 70 seconds ago, and with them the room on the kubelet's disk.
	readOnly := func(changes ...change) *evidence.Pod {
		return unpreparing(70*time.Second, func(p *evidence.Pod) {
			p.ResourceClaims, p.Claims = 0, nil
			p.Node.Kubelet.Shortages = []evidence.Shortage{{
				Resource: evidence.ReadOnly, Owner: "kubelet", PID: 9, Dir: "/var/lib/kubelet", Since: p.Time.Add(-68 * time.Second),
			}}
			attempted(p, 10*time.Second)
			for _, c := range changes {
				c(p, &p.Node.Kubelet.Shortages[0])
			}
		})
	}
	began := func(ago time.Duration) change {
		return func(p *evidence.Pod, s *evidence.Shortage) { s.Since = p.Time.Add(-ago) }
	}
	lacks := func(resource string, limit int64) change {
		return func(_ *evidence.Pod, s *evidence.Shortage) { s.Resource, s.Limit = resource, limit }
	}
	uncounted := func(p *evidence.Pod, _ *evidence.Shortage) { p.Node.Kubelet.ClaimCalls = nil }
	// silent is a kubelet that has not told its counts for so long, and answers nobody.
	silent := func(ago time.Duration) change {
		return func(p *evidence.Pod, _ *evidence.Shortage) {
			p.Node.Kubelet.SilentSince = p.Time.Add(-60 * time.Second)
			p.Node.Kubelet.ClaimCalls, p.Node.Kubelet.VolumeCallsRead = nil, p.Time.Add(-ago)
		}
	}
	// volume has the kubelet say that the containers have ended, and fail at a volume, the last time so long ago.
	volume := func(ago time.Duration) change {
		return func(p *evidence.Pod, _ *evidence.Shortage) {
			p.Phase = "Succeeded"
			p.Volumes = []evidence.Volume{{Name: "scratch", Plugin: "kubernetes.io~empty-dir"}}
			p.Node.Kubelet.ClaimCalls = nil
			p.Node.Kubelet.VolumeCalls = []evidence.VolumeCall{{
				Plugin: "kubernetes.io/empty-dir", Method: evidence.VolumeUnmount, Status: "fail-unknown", Count: 3, Rose: p.Time.Add(-ago),
			}}
		}
	}
	// succeeds has the kubelet count an attempt that succeeded so long ago.
	succeeds := func(ago time.Duration) change {
		return func(p *evidence.Pod, _ *evidence.Shortage) {
			p.Node.Kubelet.ClaimCalls = append(p.Node.Kubelet.ClaimCalls, evidence.ClaimCall{
				Method: evidence.Unprepare, Status: evidence.ClaimsSucceeded, Count: 9, Rose: p.Time.Add(-ago),
			})
		}
	}
	// left has so many bytes be free of 1 GiB.
	left := func(free int64) change {
		return func(_ *evidence.Pod, s *evidence.Shortage) {
			s.Resource, s.Limit, s.Used = evidence.Space, 1<<30, 1<<30-free
		}
	}
	answers := func(p *evidence.Pod, _ *evidence.Shortage) { released(p, draDriver, "Internal", 10*time.Second) }
	// unpublish has a CSI driver's calls for the volume end so, the last one so long ago.
	unpublish := func(status string, ago time.Duration) change {
		return func(p *evidence.Pod, _ *evidence.Shortage) {
			p.Volumes = []evidence.Volume{{Name: "pvc-1", Plugin: "kubernetes.io~csi", Driver: "ebs"}}
			p.Node.Kubelet.VolumeCalls[0].Plugin, p.Node.Kubelet.VolumeCalls[0].Driver = "kubernetes.io/csi", "ebs"
			p.Node.Kubelet.VolumeCalls = append(p.Node.Kubelet.VolumeCalls, evidence.VolumeCall{
				Plugin: "kubernetes.io/csi", Driver: "ebs", Method: evidence.NodeUnpublish, Status: status, Count: 3, Rose: p.Time.Add(-ago),
			})
		}
	}
	const noVolume = `Descriptors: the kubelet cannot tear down volume "pvc-1"`
	const checkpoint = "so the kubelet cannot save its state and complete the deletion"
	for name, test := range map[string]struct {
		pod  *evidence.Pod
		want string // the family and a part of the message; "" when it is not said
	}{
		"read-only": {readOnly(), "ReadOnly: on the node, the file system of \"/var/lib/kubelet\" is " +
			"read-only, " + checkpoint + "\nAll containers of the pod have exited\n"},
		"full": {readOnly(lacks(evidence.Space, 4<<20)), "Space: on the node, the file system of " +
			"\"/var/lib/kubelet\" is full (size 4 MiB)"},
		"without inodes": {readOnly(lacks(evidence.Inodes, 500)), "Inodes: has no free inode (of 500)"},
		"no file to open, and counted": {readOnly(lacks(evidence.Descriptors, 1024)), "Descriptors: kubelet (PID 9) has reached its open " +
			"file limit (RLIMIT_NOFILE 1024), " + checkpoint},
		"part of another program": {readOnly(lacks(evidence.Descriptors, 1024), func(p *evidence.Pod, _ *evidence.Shortage) {
			p.Node.Kubelet.Process.Comm = "k3s-server"
		}), "Descriptors: k3s-server (PID 9) has reached its open file limit (RLIMIT_NOFILE 1024)"},
		"started anew since": {readOnly(lacks(evidence.Descriptors, 1024), func(p *evidence.Pod, _ *evidence.Shortage) {
			p.Node.Kubelet.Process.PID, p.Node.Kubelet.Process.Comm = 10, "k3s-server"
		}), "Descriptors: kubelet (PID 9) has reached its open file limit"},
		"no file to open, and silent": {readOnly(lacks(evidence.Descriptors, 1024), silent(69*time.Second)), "Descriptors: so the " +
			"kubelet does not complete the deletion, though all containers have exited"},
		"silent for another reason": {readOnly(lacks(evidence.Descriptors, 1024), silent(40*time.Second)), ""},
		"not for long":              {readOnly(lacks(evidence.Descriptors, 1024), began(30*time.Second), silent(65*time.Second)), ""},
		"silent, and it answers": {readOnly(lacks(evidence.Descriptors, 1024), silent(69*time.Second), func(p *evidence.Pod, _ *evidence.Shortage) {
			p.Node.Kubelet.Answers, p.Node.Kubelet.SilentSince = true, time.Time{}
		}), ""},
		"silent, and it has just answered": {readOnly(lacks(evidence.Descriptors, 1024), silent(69*time.Second), func(p *evidence.Pod, _ *evidence.Shortage) {
			p.Node.Kubelet.SilentSince = p.Time.Add(-9 * time.Second)
		}), ""},
		"one reading, and none since": {readOnly(lacks(evidence.Descriptors, 1024), silent(69*time.Second), func(p *evidence.Pod, s *evidence.Shortage) {
			s.Until = s.Since
			p.Lack(evidence.Limits, "no helper")
		}), ""},
		"a minute of readings, and none since": {readOnly(lacks(evidence.Descriptors, 1024), silent(69*time.Second), func(_ *evidence.Pod, s *evidence.Shortage) {
			s.Until = s.Since.Add(time.Minute)
		}), "Descriptors: so the kubelet does not complete the deletion, though all containers have exited"},
		"read-only in one reading, and none since": {readOnly(func(_ *evidence.Pod, s *evidence.Shortage) { s.Until = s.Since.Add(9 * time.Second) }), ""},
		"a silent one on a disk":                   {readOnly(silent(69 * time.Second)), ""},
		"tasks":                                    {readOnly(lacks(evidence.Tasks, 512)), ""},
		"for a moment":                             {readOnly(began(9 * time.Second)), ""},
		"since the first failure":                  {readOnly(began(20 * time.Second)), ""},
		"no more":                                  {readOnly(func(p *evidence.Pod, s *evidence.Shortage) { s.Ended = p.Time.Add(-5 * time.Second) }), ""},
		"nothing fails":                            {readOnly(uncounted), ""},
		"failures of before":                       {readOnly(func(p *evidence.Pod, _ *evidence.Shortage) { p.UnchangedSince = p.Time.Add(-15 * time.Second) }), ""},
		"a process lives": {readOnly(func(p *evidence.Pod, _ *evidence.Shortage) {
			p.Tasks = []evidence.Task{{PID: 70, TID: 70, Comm: "web", State: evidence.Sleeping, Container: "c0ffee"}}
		}), ""},
		"with a driver that is away": {readOnly(func(p *evidence.Pod, _ *evidence.Shortage) {
			p.ResourceClaims, p.Claims = 1, []evidence.Claim{{Name: "gpu", Drivers: []evidence.ClaimDriver{{Name: draDriver, Unregistered: true}}}}
		}), "ReadOnly: " + checkpoint},
		"attempts of others succeed":      {readOnly(left(900<<10), succeeds(10*time.Second)), ""},
		"they succeeded before that":      {readOnly(left(900<<10), succeeds(69*time.Second)), "Space: " + checkpoint},
		"before the containers had ended": {readOnly(left(900<<10), began(90*time.Second), succeeds(80*time.Second)), "Space: " + checkpoint},
		"little room, and a driver fails": {readOnly(left(64<<10), answers), ""},
		"no room, and a driver fails":     {readOnly(left(60<<10), answers), "Space: " + checkpoint},
		"read-only, and a driver fails":   {readOnly(answers), "ReadOnly: " + checkpoint},
		"little room":                     {readOnly(left(900 << 10)), "Space: " + checkpoint},
		"little room, and a driver has failed": {readOnly(left(900<<10), func(p *evidence.Pod, _ *evidence.Shortage) {
			released(p, draDriver,
				"Internal", 69*time.Second)
		}), "Space: " + checkpoint},
		"little room, and a driver is away": {readOnly(left(900<<10), func(p *evidence.Pod, _ *evidence.Shortage) {
			p.ResourceClaims, p.Claims = 1, []evidence.Claim{{Name: "gpu", Drivers: []evidence.ClaimDriver{{Name: draDriver, Unregistered: true}}}}
		}), ""},
		"a volume":                {readOnly(volume(10 * time.Second)), `ReadOnly: on the node, the file system of "/var/lib/kubelet" is read-only, so the kubelet cannot tear down volume "scratch"`},
		"a volume on a full disk": {readOnly(lacks(evidence.Space, 4<<20), volume(10*time.Second)), ""},
		"a volume of before":      {readOnly(volume(69 * time.Second)), ""},
		"a CSI driver that nobody reaches": {readOnly(lacks(evidence.Descriptors, 1024), volume(10*time.Second),
			unpublish(evidence.CallUnanswered, 10*time.Second)), noVolume},
		"a CSI driver's own error":       {readOnly(lacks(evidence.Descriptors, 1024), volume(10*time.Second), unpublish("Internal", 10*time.Second)), ""},
		"a CSI driver's error of before": {readOnly(lacks(evidence.Descriptors, 1024), volume(10*time.Second), unpublish("Internal", 69*time.Second)), noVolume},
		"a CSI driver, read-only":        {readOnly(volume(10*time.Second), unpublish("Internal", 10*time.Second)), `ReadOnly: the kubelet cannot tear down volume "pvc-1"`},
		"no volume is left":              {readOnly(volume(10*time.Second), func(p *evidence.Pod, _ *evidence.Shortage) { p.Volumes = nil }), ""},
	} {
		d := cause.Diagnose(test.pod)
		f, _ := d.Verdict()
		if (f.Cause == "KubeletResourceExhausted") != (test.want != "") {
			t.Errorf("%s: %s: %s", name, f.Cause, f.Message)
			continue
		}
		if family, part, _ := strings.Cut(test.want, ": "); test.want != "" && (f.Family != family || !strings.Contains(said(&f), part) ||
			f.Confidence != diagnose.Inferred) {
			t.Errorf("%s: %s, %s: %s", name, f.Confidence, f.Family, f.Message)
		}
	}
}

// What the kubelet failed at while its disk was read-only tells nothing of the volume or of the driver, until it has
// tried again.
func TestFailedWhileTheKubeletLacked(t *testing.T) {
	// lacked is a pod at a volume, or at its claims, of which the last failure was counted so long ago.
	lacked := func(claims bool, failed time.Duration, change func(p *evidence.Pod)) *evidence.Pod {
		return unpreparing(3*time.Minute, func(p *evidence.Pod) {
			if claims {
				p.Claims[0].Drivers[0].Unregistered = true
				attempted(p, failed)
			} else {
				p.ResourceClaims, p.Claims, p.Phase = 0, nil, "Succeeded"
				p.Volumes = []evidence.Volume{{Name: "scratch", Plugin: "kubernetes.io~empty-dir"}}
				p.Node.Kubelet.VolumeCalls = []evidence.VolumeCall{{
					Plugin: "kubernetes.io/empty-dir", Method: evidence.VolumeUnmount, Status: "fail-unknown", Count: 3, Rose: p.Time.Add(-failed),
				}}
			}
			change(p)
		})
	}
	// relieved is a shortage that had begun two minutes ago and has ended.
	relieved := func(ago time.Duration) func(p *evidence.Pod) {
		return func(p *evidence.Pod) {
			p.Node.Kubelet.LackedUntil = p.Time.Add(-ago - time.Second)
			p.Node.Kubelet.Shortages = []evidence.Shortage{{Resource: evidence.ReadOnly, Owner: "kubelet", PID: 9, Dir: "/var/lib/kubelet",
				Since: p.Time.Add(-2 * time.Minute), Ended: p.Time.Add(-ago)}}
		}
	}
	began := func(resource string) func(p *evidence.Pod) { // in this reading
		return func(p *evidence.Pod) {
			if resource != evidence.Space {
				p.Node.Kubelet.LackedUntil = p.Time
			}
			p.Node.Kubelet.Shortages = []evidence.Shortage{{Resource: resource, Owner: "kubelet", PID: 9, Dir: "/var/lib/kubelet", Since: p.Time}}
		}
	}
	// nowAndThen is a kubelet that had a file to open again a moment ago, as it had before.
	nowAndThen := func(p *evidence.Pod) {
		p.Node.Kubelet.LackedUntil = p.Time.Add(-2 * time.Second)
		p.Node.Kubelet.Shortages = []evidence.Shortage{{Resource: evidence.Descriptors, Owner: "kubelet", PID: 9, Limit: 1024, Used: 1024,
			Since: p.Time.Add(-4 * time.Second), Ended: p.Time}}
	}
	little := func(p *evidence.Pod) { // room for the checkpoint
		p.Node.Kubelet.Shortages = []evidence.Shortage{{Resource: evidence.Space, Owner: "kubelet", PID: 9, Dir: "/var/lib/kubelet",
			Limit: 4 << 20, Used: 4<<20 - 900<<10, Since: p.Time.Add(-2 * time.Minute)}}
	}
	// silent is a kubelet that has had no file to open for so long, and has not answered since.
	silent := func(ago, unchanged time.Duration) func(p *evidence.Pod) {
		return func(p *evidence.Pod) {
			k := &p.Node.Kubelet
			k.VolumeCalls, k.VolumeCallsError, k.VolumeCallsRead = nil, "no answer", time.Time{}
			k.SilentSince, k.LackedUntil, p.UnchangedSince, p.Phase = p.Time.Add(-ago), p.Time, p.Time.Add(-unchanged), "Running"
			k.Shortages = []evidence.Shortage{{Resource: evidence.Descriptors, Owner: "kubelet", PID: 9, Limit: 3, Used: 3, Since: p.Time.Add(-ago)}}
		}
	}
	well := func(*evidence.Pod) {}
	for name, test := range map[string]struct {
		pod  *evidence.Pod
		want string
	}{
		"a volume":                               {lacked(false, 20*time.Second, well), "VolumeDirTeardownFailed"},
		"a volume, before the next attempt":      {lacked(false, 40*time.Second, relieved(30*time.Second)), ""},
		"a volume, after the next attempt":       {lacked(false, 20*time.Second, relieved(30*time.Second)), "VolumeDirTeardownFailed"},
		"a volume, and no next attempt":          {lacked(false, 170*time.Second, relieved(140*time.Second)), "Unknown"},
		"a volume, and a disk just read-only":    {lacked(false, 20*time.Second, began(evidence.ReadOnly)), "Unknown"},
		"a volume, on a full disk":               {lacked(false, 20*time.Second, began(evidence.Space)), "VolumeDirTeardownFailed"},
		"a driver":                               {lacked(true, 20*time.Second, well), "DRAUnprepareFailing"},
		"a driver, before the next attempts":     {lacked(true, 40*time.Second, relieved(30*time.Second)), ""},
		"a driver, after one attempt":            {lacked(true, 20*time.Second, relieved(30*time.Second)), ""},
		"a driver, after two attempts":           {lacked(true, 5*time.Second, relieved(30*time.Second)), "DRAUnprepareFailing"},
		"a driver, and a disk that is just full": {lacked(true, 20*time.Second, began(evidence.Space)), ""}, // the next attempts tell
		"a volume, and files used up at times":   {lacked(false, 20*time.Second, nowAndThen), "Unknown"},
		"no file to open for almost a minute":    {lacked(false, 20*time.Second, silent(58*time.Second, 61*time.Second)), ""},
		"no file to open for a minute":           {lacked(false, 20*time.Second, silent(60*time.Second, 63*time.Second)), "KubeletResourceExhausted"},
		"no file to open, and a longer stage":    {lacked(false, 20*time.Second, silent(58*time.Second, 5*time.Minute)), "Unknown"},
		"a driver, and little room":              {lacked(true, 20*time.Second, little), "DRAUnprepareFailing"},
	} {
		d := cause.Diagnose(test.pod)
		f, _ := d.Verdict()
		if f.Cause != test.want {
			t.Errorf("%s: %q, want %q: %s", name, f.Cause, test.want, f.Message)
		}
	}
}

// A kubelet that does not tell what it counts is not known to write its checkpoint, so that the cause is not ruled out,
// and a verdict of before is not taken back.
func TestCheckpointUncounted(t *testing.T) {
	for name, test := range map[string]struct {
		change func(p *evidence.Pod)
		want   bool
	}{
		"not read":      {func(*evidence.Pod) {}, true},
		"read":          {func(p *evidence.Pod) { p.Node.Kubelet.VolumeCallsError = "" }, false},
		"for a moment":  {func(p *evidence.Pod) { p.Node.Kubelet.Shortages[0].Since = p.Time.Add(-9 * time.Second) }, false},
		"no more":       {func(p *evidence.Pod) { p.Node.Kubelet.Shortages[0].Ended = p.Time.Add(-time.Second) }, false},
		"it is written": {func(p *evidence.Pod) { p.Phase = "Succeeded" }, false},
		"a process lives": {func(p *evidence.Pod) {
			p.Tasks = []evidence.Task{{PID: 70, TID: 70, Comm: "web", State: evidence.Sleeping, Container: "c0ffee"}}
		}, false},
	} {
		d := cause.Diagnose(unpreparing(4*time.Minute, func(p *evidence.Pod) {
			p.ResourceClaims, p.Claims = 0, nil
			p.Node.Kubelet.Shortages = []evidence.Shortage{{Resource: evidence.ReadOnly, Owner: "kubelet", PID: 9, Dir: "/var/lib/kubelet",
				Since: p.Time.Add(-3 * time.Minute)}}
			p.Node.Kubelet.VolumeCallsError, p.Node.Kubelet.VolumeCallsRead = "refused", time.Time{}
			test.change(p)
		}))
		f, _ := d.Verdict()
		if got := d.NotLookedFor("KubeletResourceExhausted"); got != test.want {
			t.Errorf("%s: not looked for: %v", name, got)
		}
		if test.want && (f.Cause != diagnose.Unrecognised.Cause || !strings.Contains(said(&f), "Only partly checked: the known causes of kubelet")) {
			t.Errorf("%s: %s: %s", name, f.Cause, f.Message)
		}
	}
}
