package diagnose_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

const (
	scannedDir = volumesDir + "kubernetes.io~empty-dir/scratch"
	asks       = "fanotify_get_response"
)

// scanned is a pod of which the kubelet deletes an emptyDir's files, and has waited so long for the one program that scans
// files, which is stopped.
func scanned(waited time.Duration, change func(p *evidence.Pod, t *evidence.Task)) *evidence.Pod {
	return unmounting(10*time.Minute, func(p *evidence.Pod) {
		p.Cgroups = []evidence.Cgroup{{Path: "/kubepods/besteffort/pod" + podUID, Version: 2}}
		p.Mounts, p.Volumes = nil, []evidence.Volume{{Name: "scratch", Plugin: "kubernetes.io~empty-dir"}}
		p.Node.Pressure = new(evidence.Pressure)
		p.Node.Kubelet.Blocked = []evidence.Task{{
			PID: 9, TID: 11, Comm: "kubelet", Owner: "kubelet", State: evidence.Uninterruptible, UnchangedSince: p.Time.Add(-waited),
			Probe: &evidence.Probe{Syscall: "openat", VolumePath: scannedDir, Relative: true, Wchan: asks},
		}}
		p.Node.Scanners, p.Node.ScannersRead = []evidence.Task{scanner(p, 30, "clamonacc", evidence.Stopped)}, p.Time
		p.Node.Scanners[0].Cgroup = "/system.slice/clamav-clamonacc.service"
		change(p, &p.Node.Kubelet.Blocked[0])
	})
}

func scanner(p *evidence.Pod, pid int, comm string, state evidence.TaskState) evidence.Task {
	return evidence.Task{PID: pid, TID: pid, Comm: comm, State: state, UnchangedSince: p.Time.Add(-time.Hour), Probe: &evidence.Probe{Start: uint64(pid) * 10}}
}

func TestFileScannerNotAnswering(t *testing.T) {
	type change = func(p *evidence.Pod, t *evidence.Task)
	none := func(*evidence.Pod, *evidence.Task) {}
	runs := func(p *evidence.Pod, _ *evidence.Task) { p.Node.Scanners[0].State = evidence.Sleeping }
	starved := func(p *evidence.Pod, t *evidence.Task) {
		runs(p, t)
		p.Node.Pressure.StarvedUntil = p.Time
	}
	another := func(p *evidence.Pod, _ *evidence.Task) {
		p.Node.Scanners = append(p.Node.Scanners, scanner(p, 31, "falcon sensor", evidence.Sleeping))
		p.Node.Scanners[1].Owner, p.Node.Scanners[1].OwnerName = "1c4ddc3e-1111-4222-8333-444455556666", "security/agent-x"
	}
	for name, tc := range map[string]struct {
		waited     time.Duration
		change     change
		cause      string
		confidence diagnose.Confidence
		says       string // of the message, or the remedy
	}{
		"the scanner is stopped": {10 * time.Second, none, "", diagnose.Proved, "the only fanotify permission listener (antivirus, EDR), " +
			"clamonacc (PID 30, of clamav-clamonacc.service), is paused"},
		"what to do about it": {10 * time.Second, none, "", diagnose.Proved, signalling("continue", 30, 300)},
		"for a moment":        {9 * time.Second, none, "none", "", ""},
		"the scanner runs": {time.Minute, runs, "", diagnose.Proved, "the only fanotify permission listener (antivirus, EDR), " +
			"clamonacc (PID 30, of clamav-clamonacc.service), has not responded"},
		"it is to be restarted": {time.Minute, runs, "", diagnose.Proved, "restart clamonacc (PID 30, of clamav-clamonacc.service): its service or its pod"},
		"it runs, and is slow":  {59 * time.Second, runs, "none", "", ""},
		"it answers others": {5 * time.Second, func(p *evidence.Pod, t *evidence.Task) {
			runs(p, t)
			p.UnchangedSince = p.Time.Add(-14*time.Minute + time.Second)
		}, "none", "", ""},
		"it answers others for ever, and not the kubelet": {5 * time.Second, func(p *evidence.Pod, t *evidence.Task) {
			runs(p, t)
			p.UnchangedSince = p.Time.Add(-14 * time.Minute)
		}, "Unknown", "", ""},
		"the node is short":     {99 * time.Second, starved, "none", "", ""},
		"for as long as it may": {100 * time.Second, starved, "", diagnose.Proved, ""},
		"it has just been stopped": {30 * time.Second, func(p *evidence.Pod, _ *evidence.Task) {
			p.Node.Scanners[0].UnchangedSince = p.Time.Add(-2 * time.Second)
		}, "none", "", ""},
		"a tracer holds it, for a moment": {59 * time.Second, func(p *evidence.Pod, _ *evidence.Task) { p.Node.Scanners[0].State = evidence.Traced }, "none", "", ""},
		"a tracer holds it": {time.Minute, func(p *evidence.Pod, _ *evidence.Task) { p.Node.Scanners[0].State = evidence.Traced }, "", diagnose.Proved,
			"restart clamonacc (PID 30, of clamav-clamonacc.service)"},
		"it hangs itself": {time.Minute, func(p *evidence.Pod, t *evidence.Task) {
			runs(p, t)
			p.Node.Blocked = []evidence.Task{{PID: 30, TID: 33, State: evidence.Uninterruptible, UnchangedSince: p.Time.Add(-time.Minute)}}
		}, "", diagnose.Proved, "clamonacc (PID 30, of clamav-clamonacc.service), is itself stuck in the kernel"},
		"what to do when it hangs": {time.Minute, func(p *evidence.Pod, t *evidence.Task) {
			runs(p, t)
			p.Node.Blocked = []evidence.Task{{PID: 30, TID: 33, State: evidence.Uninterruptible, UnchangedSince: p.Time.Add(-time.Minute)}}
		}, "", diagnose.Proved, "repair what clamonacc (PID 30, of clamav-clamonacc.service) waits for (as root: timeout 5 cat /proc/30/task/*/stack"},
		"what to do when it is frozen": {time.Minute, func(p *evidence.Pod, t *evidence.Task) {
			runs(p, t)
			p.Node.Scanners[0].Probe.Wchan = "do_freezer_trap"
		}, "", diagnose.Proved, "have clamonacc (PID 30, of clamav-clamonacc.service) thawed by whoever froze it"},
		"it is frozen": {time.Minute, func(p *evidence.Pod, t *evidence.Task) {
			runs(p, t)
			p.Node.Scanners[0].Probe.Wchan = "do_freezer_trap"
		}, "", diagnose.Proved, "is frozen"},
		"there are two":             {time.Minute, another, "", diagnose.Proved, `candidates: clamonacc (PID 30, of clamav-clamonacc.service), "falcon sensor" (PID 31, of pod security/agent-x)`},
		"the other one may be slow": {59 * time.Second, another, "none", "", ""},
		"there are two, and both are stopped": {10 * time.Second, func(p *evidence.Pod, t *evidence.Task) {
			another(p, t)
			p.Node.Scanners[1].State = evidence.Stopped
		}, "", diagnose.Proved, `are paused; they are clamonacc (PID 30, of clamav-clamonacc.service), "falcon sensor" (PID 31, of pod security/agent-x)`},
		"there are many": {time.Minute, func(p *evidence.Pod, _ *evidence.Task) {
			for pid := range 7 {
				p.Node.Scanners = append(p.Node.Scanners, scanner(p, 40+pid, "worker", evidence.Sleeping))
			}
			p.Node.ScannersError = "more than 8"
		}, "", diagnose.Proved, "worker (PID 40), worker (PID 41), worker (PID 42) and at least 4 more"},
		"one is known, of perhaps more": {time.Minute, func(p *evidence.Pod, _ *evidence.Task) { p.Node.ScannersError = "denied" }, "",
			diagnose.Proved, "candidates: clamonacc (PID 30, of clamav-clamonacc.service) or another one"},
		"none could be read": {time.Minute, func(p *evidence.Pod, _ *evidence.Task) {
			p.Node.Scanners, p.Node.ScannersError = nil, "denied"
		}, "", diagnose.Proved, "which one could not be read"},
		"another name of the function": {time.Minute, func(_ *evidence.Pod, t *evidence.Task) { t.Probe.Wchan = "fanotify_handle_event" }, "", diagnose.Proved, ""},
		"by its stack alone": {time.Minute, func(_ *evidence.Pod, t *evidence.Task) {
			t.Probe.Wchan, t.Probe.Stack = "", []string{asks, "fanotify_handle_event", "fsnotify"}
		}, "", diagnose.Proved, ""},
		"it waits for something else": {10 * time.Minute, func(_ *evidence.Pod, t *evidence.Task) {
			t.Probe.Wchan, t.Probe.Stack = "io_schedule", []string{"io_schedule", "fanotify_handle_event"}
		}, "Unknown", "", ""},
		"a thread that counts the files": {10 * time.Minute, func(_ *evidence.Pod, t *evidence.Task) { t.Probe.Relative = false }, "Unknown", "", ""},
		"a volume of another kind": {time.Minute, func(_ *evidence.Pod, t *evidence.Task) {
			t.Probe.Relative, t.Probe.VolumePath = false, volumesDir+"kubernetes.io~csi/data"
		}, "", diagnose.Inferred, `a kubelet thread is blocked at volume "data"`},
		"a subpath": {time.Minute, func(_ *evidence.Pod, t *evidence.Task) {
			t.Probe.Relative, t.Probe.VolumePath = false, "/var/lib/kubelet/pods/"+podUID+"/volume-subpaths/data/main/0"
		}, "", diagnose.Inferred, `a kubelet thread is blocked at volume "data"`},
		"a volume of another pod": {10 * time.Minute, func(_ *evidence.Pod, t *evidence.Task) {
			t.Probe.VolumePath = strings.ReplaceAll(t.Probe.VolumePath, podUID, "1c4ddc3e-1111-4222-8333-444455556666")
		}, "Unknown", "", ""},
		"no volume": {10 * time.Minute, func(_ *evidence.Pod, t *evidence.Task) { t.Probe.VolumePath = "" }, "Unknown", "", ""},
		"the kubelet has failed at a volume meanwhile, which is another one": {5 * time.Minute, func(p *evidence.Pod, _ *evidence.Task) {
			tried(p, "kubernetes.io/empty-dir", "", time.Minute)
		}, "", diagnose.Proved, ""},
		"the same, and the scanner may only be slow": {90 * time.Second, func(p *evidence.Pod, t *evidence.Task) {
			starved(p, t)
			tried(p, "kubernetes.io/empty-dir", "", time.Minute)
		}, "none", "", ""},
		"it fails at one of which the thread may not be what takes it down": {5 * time.Minute, func(p *evidence.Pod, t *evidence.Task) {
			t.Probe.Relative, t.Probe.VolumePath = false, volumesDir+"kubernetes.io~csi/data"
			p.Volumes = []evidence.Volume{{Name: "data", Plugin: "kubernetes.io~csi", Driver: csiDriver}}
			tried(p, "kubernetes.io/csi", csiDriver, time.Minute)
		}, "Unknown", "", ""},
		"it had failed there before": {time.Minute, func(p *evidence.Pod, _ *evidence.Task) {
			tried(p, "kubernetes.io/empty-dir", "", 2*time.Minute)
			p.UnchangedSince = p.Time.Add(-90 * time.Second)
		}, "", diagnose.Proved, ""},
		"a mount is to be unmounted": {time.Minute, func(p *evidence.Pod, _ *evidence.Task) {
			p.Mounts = []evidence.Mount{{ID: 7, Device: "0:50", Point: scannedDir, HostPoint: scannedDir, Type: "nfs4", Volume: "scratch",
				Plugin: "kubernetes.io~empty-dir"}}
		}, "", diagnose.Proved, ""},
		"a container is yet to end": {time.Minute, func(p *evidence.Pod, _ *evidence.Task) { p.Phase = "Running" }, "Unknown", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := cause.Diagnose(scanned(tc.waited, tc.change))
			want := tc.cause
			if want == "" {
				want = "FileScannerNotAnswering"
			}
			v, _ := d.Verdict()
			if v.Cause != strings.TrimPrefix(want, "none") || tc.confidence != "" && v.Confidence != tc.confidence {
				t.Fatalf("%s verdict %q in phase %s, want %q: %s", v.Confidence, v.Cause, d.Phase, want, v.Message)
			}
			if !strings.Contains(v.Message, tc.says) && !strings.Contains(v.Remedy, tc.says) {
				t.Errorf("says %q and %q, want %q", v.Message, v.Remedy, tc.says)
			}
			if d.Force != nil && d.Force.Why == diagnose.ReasonUnmount && want != "Unknown" {
				t.Error("nothing is unmounted")
			}
		})
	}
}

// What the shim, or containerd, has started to stop the pod waits for a program that scans files.
func TestFileScannerBeforeRuntime(t *testing.T) {
	waits := func(p *evidence.Pod, t *evidence.Task) {
		t.State, t.Probe.Wchan, t.Probe.Syscall = evidence.Uninterruptible, asks, "openat"
		p.Node.Scanners = []evidence.Task{scanner(p, 30, "clamonacc", evidence.Stopped)}
	}
	child := func(p *evidence.Pod, _ *evidence.RuntimeCommand) {
		exec := task(210, 50, "containerd-shim", evidence.Uninterruptible, "execve")
		exec.Container, exec.Owner, exec.UnchangedSince = "", "shim", p.Time.Add(-time.Minute)
		exec.Probe.Group = 50
		waits(p, &exec)
		p.RuntimeCommands, p.Node.Blocked = nil, []evidence.Task{exec}
	}
	type change = func(p *evidence.Pod, c *evidence.RuntimeCommand)
	both := func(a, b change) change {
		return func(p *evidence.Pod, c *evidence.RuntimeCommand) { a(p, c); b(p, c) }
	}
	for name, tc := range map[string]struct {
		ago    time.Duration
		change change
		says   string // "" where nothing is said of it
	}{
		"runc's child waits": {10 * time.Second, func(p *evidence.Pod, c *evidence.RuntimeCommand) { waits(p, &c.Tasks[1]) }, "sleep " +
			"(PID 201), needed to stop this pod, is blocked"},
		"for a moment":        {9 * time.Second, func(p *evidence.Pod, c *evidence.RuntimeCommand) { waits(p, &c.Tasks[1]) }, ""},
		"runc is left behind": {10 * time.Second, func(p *evidence.Pod, c *evidence.RuntimeCommand) { waits(p, &c.Tasks[1]); c.Left = true }, ""},
		"it executes something in a container": {10 * time.Second, func(p *evidence.Pod, c *evidence.RuntimeCommand) {
			waits(p, &c.Tasks[1])
			c.Command, c.Container = "exec", "c"
		}, "sleep (PID 201), needed to stop"},
		"it does in one that lives, as a probe": {10 * time.Second, func(p *evidence.Pod, c *evidence.RuntimeCommand) {
			waits(p, &c.Tasks[1])
			c.Command, c.Container = "exec", "c"
			p.Containers[0].State = evidence.StateRunning
			p.Tasks = []evidence.Task{task(100, 50, "app", evidence.Sleeping, "epoll_wait")}
		}, ""},
		"it kills what has been killed": {time.Minute, func(p *evidence.Pod, c *evidence.RuntimeCommand) {
			waits(p, &c.Tasks[1])
			first := task(100, 50, "app", evidence.Uninterruptible, "write")
			first.Container, first.Pending, first.UnchangedSince = sandboxID, 1<<8, p.Time.Add(-time.Minute)
			p.Tasks = []evidence.Task{first}
		}, ""},
		"another thread has not been": {time.Minute, func(p *evidence.Pod, c *evidence.RuntimeCommand) {
			waits(p, &c.Tasks[1])
			first, other := task(100, 50, "app", evidence.Uninterruptible, "write"), task(101, 50, "app", evidence.Sleeping, "futex")
			first.Container, first.Pending, other.Container = sandboxID, 1<<8, sandboxID
			p.Tasks = []evidence.Task{first, other}
		}, "sleep (PID 201), needed to stop"},
		"when SIGKILL comes is not known": {10 * time.Second, func(p *evidence.Pod, c *evidence.RuntimeCommand) {
			waits(p, &c.Tasks[1])
			p.DeadlineUnsure, p.Deadline = true, p.Time.Add(-30*time.Second)
		}, ""},
		"it must have come long since": {10 * time.Second, func(p *evidence.Pod, c *evidence.RuntimeCommand) {
			waits(p,
				&c.Tasks[1])
			p.DeadlineUnsure = true
		}, "sleep (PID 201), needed to stop"},
		"it may be about to come": {10 * time.Second, func(p *evidence.Pod, c *evidence.RuntimeCommand) {
			waits(p, &c.Tasks[1])
			p.Deadline = p.Time.Add(-9 * time.Second)
		}, ""},
		"it waits for another program": {10 * time.Second, func(p *evidence.Pod, c *evidence.RuntimeCommand) {
			waits(p, &c.Tasks[1])
			c.Tasks[1].State, c.Tasks[1].Probe.Wchan = evidence.Sleeping, "hrtimer_nanosleep"
		}, ""},
		"runc is yet to be executed": {time.Minute, child, "containerd-shim (PID 210), needed to stop"},
		"it is another shim's child": {time.Minute, both(child, func(p *evidence.Pod, _ *evidence.RuntimeCommand) { p.Node.Blocked[0].PPID = 51 }), ""},
		"it has come out of a container, and left its group": {time.Minute, both(child, func(p *evidence.Pod, _ *evidence.RuntimeCommand) {
			p.Node.Blocked[0].Comm, p.Node.Blocked[0].Owner, p.Node.Blocked[0].Probe.Group = "find", "", 205
		}), ""},
		"it is a pod's": {time.Minute, both(child, func(p *evidence.Pod, _ *evidence.RuntimeCommand) {
			p.Node.Blocked[0].Owner = podUID
		}), ""},
		"which shim is the pod's is not known": {time.Minute, both(child, func(p *evidence.Pod, _ *evidence.RuntimeCommand) {
			p.Parents = append(p.Parents, evidence.Task{PID: 52, TID: 52, Comm: "containerd-shim", Owner: "shim"})
		}), ""},
		"a CNI plugin waits": {time.Minute, func(p *evidence.Pod, _ *evidence.RuntimeCommand) {
			plugin := task(220, 7, "bridge", evidence.Uninterruptible, "openat")
			plugin.Container, plugin.Owner, plugin.UnchangedSince = "", "containerd", p.Time.Add(-time.Minute)
			waits(p, &plugin)
			p.RuntimeCommands, p.Plugins = nil, []evidence.Task{plugin}
		}, "bridge (PID 220), needed to stop"},
	} {
		t.Run(name, func(t *testing.T) {
			d := cause.Diagnose(commanded(tc.ago, tc.change))
			i := slices.IndexFunc(d.Findings, func(f diagnose.Finding) bool { return f.Cause == "FileScannerNotAnswering" })
			if (i >= 0) != (tc.says != "") {
				t.Fatalf("phase %s: %+v", d.Phase, d.Findings)
			}
			if v, _ := d.Verdict(); i >= 0 && (v.Cause != "FileScannerNotAnswering" || v.Confidence != diagnose.Inferred ||
				!strings.Contains(v.Message, tc.says) || !strings.Contains(said(&v), " in fanotify_get_response")) {
				t.Errorf("verdict %s: %s", v.Cause, v.Message)
			}
		})
	}
}

// A program that scans files, and of which no look shows a sign of an answer, though each command that waits for it is killed soon, is
// told after minutes, and stays so between two tries.
func TestFileScannerAnswersNone(t *testing.T) {
	type change = func(p *evidence.Pod, w *evidence.ScannerWaits)
	none := func(*evidence.Pod, *evidence.ScannerWaits) {}
	ended := func(p *evidence.Pod, _ *evidence.ScannerWaits) { p.RuntimeCommands = nil }
	for name, tc := range map[string]struct {
		lasted    time.Duration
		change    change
		want      string
		says      string
		undecided bool
	}{
		"for minutes": {5 * time.Minute, none, "FileScannerNotAnswering",
			"sleep (PID 201), needed to stop this pod, is blocked: the only fanotify permission listener (antivirus, EDR), clamonacc (PID " +
				"30), has not responded", false},
		"it waits itself at this moment": {5 * time.Minute, func(p *evidence.Pod, _ *evidence.ScannerWaits) {
			p.Node.Blocked = []evidence.Task{{PID: 30, TID: 33, State: evidence.Uninterruptible, UnchangedSince: p.Time.Add(-20 * time.Second)}}
		}, "FileScannerNotAnswering", "the only fanotify permission listener (antivirus, EDR), clamonacc (PID 30), is itself stuck in the kernel", false},
		"not for as long": {299 * time.Second, none, "", "", true},
		"one has got done": {10 * time.Minute, func(p *evidence.Pod, w *evidence.ScannerWaits) {
			w.UnansweredSince = p.Time.Add(-299 * time.Second)
		}, "Unknown", "", true},
		"none waits since": {10 * time.Minute, func(_ *evidence.Pod, w *evidence.ScannerWaits) {
			w.UnansweredSince, w.Waits = time.Time{}, 0
		}, "Unknown", "", true},
		"a handful of looks": {5 * time.Minute, func(_ *evidence.Pod, w *evidence.ScannerWaits) { w.Waits = 4 }, "Unknown", "", true},
		"a thread of gVisor's waits": {5 * time.Minute, func(p *evidence.Pod, _ *evidence.ScannerWaits) {
			p.Containers[0].Runtime, p.Containers[1].Runtime = "io.containerd.runsc.v1", "io.containerd.runsc.v1"
			th := p.RuntimeCommands[0].Tasks[1]
			th.PID, th.TID, th.PPID, th.Comm, th.Owner, th.Container = 300, 300, 50, "exe", podUID, sandboxID
			p.RuntimeCommands, p.Tasks = nil, []evidence.Task{th}
		}, "Unknown", "", true},
		"a mirror pod": {5 * time.Minute, func(p *evidence.Pod, _ *evidence.ScannerWaits) { p.Mirror = true }, "Unknown", "", false},
		"the scanner is stopped": {5 * time.Minute, func(p *evidence.Pod,
			_ *evidence.ScannerWaits) {
			p.Node.Scanners[0].State = evidence.Stopped
		}, "Unknown", "", true},
		"between two tries":         {5 * time.Minute, ended, "", "", true},
		"between two tries, before": {4 * time.Minute, ended, "", "", true},
		"a wait of a while ago": {4 * time.Minute, func(p *evidence.Pod, w *evidence.ScannerWaits) {
			ended(p, w)
			w.Since, w.Last, w.UnansweredSince = w.Since.Add(-100*time.Second), w.Last.Add(-100*time.Second), w.UnansweredSince.Add(-100*time.Second)
		}, "Unknown", "", false},
		"no try comes any more": {5 * time.Minute, func(p *evidence.Pod, w *evidence.ScannerWaits) {
			ended(p, w)
			w.Since, w.Last, w.UnansweredSince = w.Since.Add(-6*time.Minute), w.Last.Add(-6*time.Minute), w.UnansweredSince.Add(-6*time.Minute)
		}, "Unknown", "", false},
	} {
		d := cause.Diagnose(commanded(10*time.Second, func(p *evidence.Pod, c *evidence.RuntimeCommand) {
			thread := &c.Tasks[1]
			thread.State, thread.Probe.Wchan, thread.Probe.Syscall = evidence.Uninterruptible, asks, "openat"
			thread.UnchangedSince = p.Time.Add(-5 * time.Second)
			p.Node.Scanners = []evidence.Task{scanner(p, 30, "clamonacc", evidence.Sleeping)}
			since := p.Time.Add(-tc.lasted)
			p.ScannerWaits = evidence.ScannerWaits{Since: since, Last: p.Time, UnansweredSince: since, Waits: 75}
			tc.change(p, &p.ScannerWaits)
		}))
		v, _ := d.Verdict()
		if v.Cause != tc.want || !strings.Contains(v.Message, tc.says) {
			t.Errorf("%s: verdict %q, want %q: %s", name, v.Cause, tc.want, v.Message)
		}
		if v.Cause == "FileScannerNotAnswering" && (v.Family != "" || v.Confidence != diagnose.Inferred) {
			t.Errorf("%s: %s, family %q", name, v.Confidence, v.Family)
		}
		if d.NotLookedFor("FileScannerNotAnswering") != tc.undecided {
			t.Errorf("%s: undecided %t", name, !tc.undecided)
		}
	}
}

// The shim, which waits for such a command, is not accused before it is known whether the kubelet has had the time to have the pod
// killed, and one that has begun late has had it soon.
func TestFileScannerBeforeTheKill(t *testing.T) {
	late := func(p *evidence.Pod) { p.StopBegun, p.StopAwaitedUntil = true, p.DeletionRequested.Add(12*time.Second) }
	anew := func(p *evidence.Pod) {
		p.Node.Kubelet.Process = &evidence.Task{PID: 9, TID: 9, Comm: "kubelet", State: evidence.Sleeping,
			Probe: &evidence.Probe{Started: p.DeletionRequested.Add(10 * time.Minute)}}
	}
	for name, tc := range map[string]struct {
		past   time.Duration
		change func(p *evidence.Pod)
		want   string
	}{
		"it has begun late":                   {6 * time.Minute, late, "FileScannerNotAnswering"},
		"it was started anew":                 {6 * time.Minute, anew, ""},
		"it was, and the pod is a static one": {4 * time.Minute, func(p *evidence.Pod) { anew(p); p.Mirror = true }, ""},
		"it was, and has had a time":          {20 * time.Minute, anew, "FileScannerNotAnswering"},
	} {
		d := cause.Diagnose(commanded(10*time.Second, func(p *evidence.Pod, c *evidence.RuntimeCommand) {
			p.Time = p.Deadline.Add(tc.past)
			p.Containers[0].Task = evidence.ShimTask{Asked: p.Time, UnansweredSince: p.Time.Add(-tc.past), Attempts: 9}
			thread := &c.Tasks[1]
			thread.State, thread.Probe.Wchan, thread.Probe.Syscall = evidence.Uninterruptible, asks, "openat"
			thread.UnchangedSince = p.Time.Add(-5 * time.Second)
			p.Node.Scanners = []evidence.Task{scanner(p, 30, "clamonacc", evidence.Sleeping)}
			since := p.Time.Add(-tc.past)
			p.ScannerWaits = evidence.ScannerWaits{Since: since, Last: p.Time, UnansweredSince: since, Waits: 75}
			tc.change(p)
		}))
		if v, _ := d.Verdict(); v.Cause != tc.want {
			t.Errorf("%s: %q, want %q: %s", name, v.Cause, tc.want, v.Message)
		}
	}
}

// Between two tries to delete a container for which a program that scans files was waited, and before it is known to hold them
// all, they are not said to hang by themselves.
func TestDeletesAwaitScanner(t *testing.T) {
	for name, tc := range map[string]struct {
		since, last time.Duration
		want        string
	}{
		"for minutes":           {20 * time.Minute, 4 * time.Minute, ""},
		"not for as long":       {5 * time.Minute, 2 * time.Minute, ""},
		"no try comes any more": {20 * time.Minute, 6 * time.Minute, "Unknown"},
	} {
		d := cause.Diagnose(commanded(9*time.Second, func(p *evidence.Pod, c *evidence.RuntimeCommand) {
			p.Time = p.Deadline.Add(30 * time.Minute)
			c.Command = "delete"
			seen := p.Time.Add(-tc.last)
			for i := range c.Tasks {
				c.Tasks[i].UnchangedSince = seen.Add(-5 * time.Second)
			}
			c.Tasks[1].State, c.Tasks[1].Probe.Wchan, c.Tasks[1].Probe.Syscall = evidence.Uninterruptible, asks, "openat"
			p.Deletes = []evidence.Interrupted{{Last: *c, Seen: seen, Tries: 3}}
			p.ScannerWaits = evidence.ScannerWaits{Since: p.Time.Add(-tc.since), Last: seen, UnansweredSince: p.Time.Add(-tc.since), Waits: 20}
			p.RuntimeCommands = nil
		}))
		if v, _ := d.Verdict(); v.Cause != tc.want || tc.want == "" && !d.NotLookedFor("RuntimeCommandHanging") {
			t.Errorf("%s: verdict %q, want %q: %s", name, v.Cause, tc.want, v.Message)
		}
	}
}

// A shim that does not answer because its command waits for a program that scans files, which may be slow, is not said to hang: the node
// would be rebooted. Nor is a plugin.
func TestScannerHoldsShimAndPlugin(t *testing.T) {
	for name, tc := range map[string]struct {
		plugin bool
		since  time.Duration
		none   bool // no sign of an answer
		want   string
	}{
		"a shim":                 {false, 75 * time.Second, true, ""},
		"a shim, for minutes":    {false, 5 * time.Minute, true, "FileScannerNotAnswering"},
		"a shim, and answers":    {false, 75 * time.Second, false, ""},
		"a plugin":               {true, 75 * time.Second, true, ""},
		"a plugin, for minutes":  {true, 5 * time.Minute, true, "FileScannerNotAnswering"},
		"a plugin, and answers":  {true, 75 * time.Second, false, ""},
		"and answers for longer": {true, 5 * time.Minute, false, "CNIDelHanging"},
	} {
		d := cause.Diagnose(commanded(80*time.Second, func(p *evidence.Pod, c *evidence.RuntimeCommand) {
			thread := &c.Tasks[1]
			thread.State, thread.Probe.Wchan, thread.Probe.Syscall = evidence.Uninterruptible, asks, "openat"
			thread.UnchangedSince = p.Time.Add(-15 * time.Second)
			p.Node.Scanners = []evidence.Task{scanner(p, 30, "clamonacc", evidence.Sleeping)}
			p.ScannerWaits = evidence.ScannerWaits{Since: p.Time.Add(-tc.since), Last: p.Time, UnansweredSince: p.Time, Waits: 1}
			if tc.none {
				p.ScannerWaits.UnansweredSince, p.ScannerWaits.Waits = p.ScannerWaits.Since, 30
			}
			if tc.plugin {
				plugin(p, 80*time.Second)
				p.Plugins[len(p.Plugins)-1] = *thread
				p.Plugins[len(p.Plugins)-1].PPID, p.RuntimeCommands = p.Plugins[0].PID, nil
			} else {
				p.Containers[1].Task = evidence.ShimTask{Asked: p.Time, UnansweredSince: p.Time.Add(-75 * time.Second), Attempts: 3}
			}
		}))
		if v, _ := d.Verdict(); v.Cause != tc.want {
			t.Errorf("%s: verdict %q in phase %s, want %q: %s", name, v.Cause, d.Phase, tc.want, v.Message)
		}
		for _, cause := range []string{"ShimHung", "CNIDelHanging"} {
			if tc.want == "" && (cause == "CNIDelHanging") == tc.plugin && !d.NotLookedFor(cause) {
				t.Errorf("%s: %s is ruled out", name, cause)
			}
		}
	}
}

// While a program that scans files may answer, what it holds up is not said to hang by itself, for a while.
func TestRuntimeCommandAwaitsScanner(t *testing.T) {
	none := func(*evidence.Pod, *evidence.RuntimeCommand) {}
	for name, tc := range map[string]struct {
		command   string
		age       time.Duration
		waited    time.Duration
		change    func(*evidence.Pod, *evidence.RuntimeCommand)
		want      string
		undecided bool
	}{
		"it may answer":        {"kill", 65 * time.Second, 59 * time.Second, none, "", true},
		"it does not":          {"kill", 65 * time.Second, time.Minute, none, "FileScannerNotAnswering", false},
		"before the start":     {"create", 65 * time.Second, 59 * time.Second, none, "", true},
		"it is not waited for": {"kill", 65 * time.Second, 0, none, "RuntimeCommandHanging", false},
		"it answers others":    {"kill", 299 * time.Second, 40 * time.Second, none, "", true},
		"it answers others, and never the command":  {"kill", 300 * time.Second, 40 * time.Second, none, "RuntimeCommandHanging", false},
		"a command that was started anew waits too": {"kill", 5 * time.Second, 4 * time.Second, none, "", true},
		"it is asked about a command that has been left behind": {"kill", 65 * time.Second, 59 * time.Second, func(p *evidence.Pod, c *evidence.RuntimeCommand) {
			c.Left = true
			p.Containers[0].Task = evidence.ShimTask{Asked: p.Time, UnansweredSince: p.Time.Add(-50 * time.Second), Attempts: 2}
		}, "RuntimeCommandHanging", false},
		"it is asked about a probe": {"exec", 2 * time.Second, time.Second, func(p *evidence.Pod, c *evidence.RuntimeCommand) {
			c.Container, p.Containers[0].State = "c", evidence.StateRunning
			p.Tasks = []evidence.Task{task(100, 50, "app", evidence.Sleeping, "epoll_wait")}
		}, "Unknown", false},
	} {
		d := cause.Diagnose(commanded(tc.age, func(p *evidence.Pod, c *evidence.RuntimeCommand) {
			c.Command = tc.command
			if tc.waited == 0 {
				return
			}
			// Of one that is left behind nothing but itself is seen.
			t := &c.Tasks[1]
			if tc.change(p, c); c.Left {
				c.Tasks, t = c.Tasks[:1], &c.Tasks[0]
			}
			t.State, t.Probe.Wchan, t.Probe.Syscall = evidence.Uninterruptible, asks, "openat"
			t.UnchangedSince = p.Time.Add(-tc.waited)
			if !c.Left && c.Command != "exec" {
				p.ScannerWaits = evidence.ScannerWaits{Since: p.Time.Add(-tc.age), Last: p.Time, UnansweredSince: t.UnchangedSince, Waits: 2}
			}
			p.Node.Scanners = []evidence.Task{scanner(p, 30, "clamonacc", evidence.Stopped), scanner(p, 31, "agent", evidence.Sleeping)}
		}))
		if v, _ := d.Verdict(); v.Cause != tc.want {
			t.Errorf("%s: verdict %q, want %q: %s", name, v.Cause, tc.want, v.Message)
		}
		if d.NotLookedFor("RuntimeCommandHanging") != tc.undecided {
			t.Errorf("%s: undecided %t", name, !tc.undecided)
		}
	}
}

// A server that is gone holds the kubelet, and the scanner, which holds another thread of the kubelet's for longer.
func TestFileScannerBesideAServer(t *testing.T) {
	for name, tc := range map[string]struct {
		relative bool
		want     []string
	}{
		"it counts files":  {false, []string{"NetworkFilesystemUnreachable"}},
		"it deletes files": {true, []string{"FileScannerNotAnswering", "NetworkFilesystemUnreachable"}},
	} {
		d := cause.Diagnose(scanned(2*time.Minute, func(p *evidence.Pod, t *evidence.Task) {
			const point = volumesDir + "kubernetes.io~nfs/data"
			t.Probe.Relative = tc.relative
			p.Mounts = []evidence.Mount{{ID: 7, Device: "0:50", Point: point, HostPoint: point, Type: "nfs4", Source: "192.0.2.1:/x",
				Server: "192.0.2.1", Connection: "SYN_SENT", Volume: "data", Plugin: "kubernetes.io~nfs"}}
			p.Volumes = append(p.Volumes, evidence.Volume{Name: "data", Plugin: "kubernetes.io~nfs"})
			p.Node.Kubelet.Blocked = append(p.Node.Kubelet.Blocked, evidence.Task{
				PID: 9, TID: 12, Comm: "kubelet", Owner: "kubelet", State: evidence.Uninterruptible, UnchangedSince: p.Time.Add(-time.Minute),
				Probe: &evidence.Probe{Syscall: "newfstatat", VolumePath: point, Wchan: "rpc_wait_bit_killable", Mount: &p.Mounts[0]},
			})
		}))
		var got []string
		for _, f := range d.Findings {
			got = append(got, f.Cause)
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}
