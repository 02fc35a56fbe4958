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

// underGVisor is a pod past its deadline whose containers run under gVisor: its sentry has two
// threads, and a process of the node runs the container's program for it.
func underGVisor(change func(p *evidence.Pod, sentry []evidence.Task)) *evidence.Pod {
	return stopping(func(p *evidence.Pod, _ *evidence.Task) {
		p.Time, p.Node.Pressure = p.Deadline.Add(20*time.Second), &evidence.Pressure{}
		p.Containers[0].Runtime = "io.containerd.runsc.v1"
		p.Containers = append(p.Containers, evidence.Container{
			Name: "POD", Kind: evidence.Sandbox, ID: sandboxID, State: evidence.StateRunning, Runtime: "io.containerd.runsc.v1",
			Task: evidence.ShimTask{Status: "running", PID: 100},
		})
		p.Cgroups = []evidence.Cgroup{
			{Path: "/kubepods/podu", Version: 2, Threads: 3, Populated: true},
			{Path: "/kubepods/podu/c", Version: 2, Container: "c"},
		}
		p.Tasks = nil
		for _, id := range [][3]int{{100, 100, 90}, {100, 101, 90}, {110, 110, 100}} {
			t := task(id[0], id[2], "exe", evidence.Sleeping, "futex")
			t.TID, t.Container, t.UnchangedSince = id[1], "", p.Time.Add(-10*time.Second)
			p.Tasks = append(p.Tasks, t)
		}
		stub := &p.Tasks[2]
		stub.State, stub.TracerPID = evidence.Traced, 100
		p.Parents = []evidence.Task{{PID: 90, TID: 90, Comm: "containerd-shim", Owner: "shim", State: evidence.Sleeping, UnchangedSince: p.Time}}
		change(p, p.Tasks[:2])
	})
}

// TestSandboxRuntimeStuck checks that a sentry is said not to run when that is seen, and only then.
func TestSandboxRuntimeStuck(t *testing.T) {
	all := func(state evidence.TaskState) func(*evidence.Pod, []evidence.Task) {
		return func(_ *evidence.Pod, sentry []evidence.Task) {
			for i := range sentry {
				sentry[i].State = state
			}
		}
	}
	and := func(more ...func(*evidence.Pod, []evidence.Task)) func(*evidence.Pod, []evidence.Task) {
		return func(p *evidence.Pod, sentry []evidence.Task) {
			for _, do := range more {
				do(p, sentry)
			}
		}
	}
	frozen := func(i int) func(*evidence.Pod, []evidence.Task) {
		return func(p *evidence.Pod, _ []evidence.Task) {
			p.Cgroups[i].Frozen, p.Cgroups[i].FrozenBy = true, p.Cgroups[i].Path
		}
	}
	for name, test := range map[string]struct {
		change func(p *evidence.Pod, sentry []evidence.Task)
		want   string // a part of the message, "" for no such finding
	}{
		"healthy": {all(evidence.Sleeping), ""},
		"stopped": {all(evidence.Stopped), "gVisor's process exe (PID 100) is paused (SIGSTOP or similar), so no signal, not even " +
			"SIGKILL, reaches the pod's containers"},
		"stopped, in its grace period": {and(all(evidence.Stopped), func(p *evidence.Pod, _ []evidence.Task) {
			p.Time = requested.Add(20 * time.Second)
			for i := range p.Tasks {
				p.Tasks[i].UnchangedSince = requested
			}
		}), "is paused (SIGSTOP or similar)"},
		"stopped a second ago": {and(all(evidence.Stopped), func(p *evidence.Pod, sentry []evidence.Task) {
			sentry[0].UnchangedSince = p.Time.Add(-time.Second)
		}), ""},
		"one thread is stopped":        {func(_ *evidence.Pod, sentry []evidence.Task) { sentry[0].State = evidence.Stopped }, ""},
		"stopped, and has been killed": {and(all(evidence.Stopped), func(_ *evidence.Pod, s []evidence.Task) { s[0].Pending |= 1 << 8 }), ""},
		"stopped, but under runc": {and(all(evidence.Stopped), func(p *evidence.Pod,
			_ []evidence.Task) {
			p.Containers[1].Runtime = "io.containerd.runc.v2"
		}), ""},
		"stopped, but under Kata": {and(all(evidence.Stopped), func(p *evidence.Pod,
			_ []evidence.Task) {
			p.Containers[1].Runtime = "io.containerd.kata.v2"
		}), ""},
		"stopped, and the shim is silent": {and(all(evidence.Stopped), func(p *evidence.Pod, _ []evidence.Task) {
			p.Containers[1].Task = evidence.ShimTask{UnansweredSince: p.Time}
		}), "is paused (SIGSTOP or similar)"},
		"stopped, but the shim names another": {and(all(evidence.Stopped), func(p *evidence.Pod, _ []evidence.Task) { p.Containers[1].Task.PID = 99 }), ""},
		"a gofer is stopped": {func(p *evidence.Pod, _ []evidence.Task) {
			gofer := task(105, 90, "exe", evidence.Stopped, "")
			gofer.Container, gofer.UnchangedSince = "", p.Time.Add(-10*time.Second)
			p.Tasks = append(p.Tasks, gofer)
		}, ""},
		"a gofer is stopped, and the shim is silent": {func(p *evidence.Pod, _ []evidence.Task) {
			gofer := task(105, 90, "exe", evidence.Stopped, "")
			gofer.Container, gofer.UnchangedSince = "", p.Time.Add(-10*time.Second)
			p.Tasks, p.Containers[1].Task = append(p.Tasks, gofer), evidence.ShimTask{UnansweredSince: p.Time}
		}, ""},
		"stopped, on KVM": {and(all(evidence.Stopped), func(p *evidence.Pod, _ []evidence.Task) { p.Tasks = p.Tasks[:2] }), "is paused (SIGSTOP or similar)"},
		"stopped, on KVM, and the shim is silent": {and(all(evidence.Stopped), func(p *evidence.Pod, _ []evidence.Task) {
			p.Tasks, p.Containers[1].Task = p.Tasks[:2], evidence.ShimTask{UnansweredSince: p.Time}
		}), ""},
		"stopped, but somebody else has started it": {and(all(evidence.Stopped), func(p *evidence.Pod, _ []evidence.Task) {
			p.Parents[0].Owner,
				p.Parents[0].Comm = "", "sh"
		}), ""},
		"stopped, in a container's group": {and(all(evidence.Stopped), func(_ *evidence.Pod, s []evidence.Task) {
			s[0].Container,
				s[1].Container = "c", "c"
		}), ""},
		"stopped, in the sandbox's group": {and(all(evidence.Stopped), func(_ *evidence.Pod, s []evidence.Task) {
			s[0].Container,
				s[1].Container = sandboxID, sandboxID
		}), "is paused (SIGSTOP or similar)"},
		"only what runs the container's program is stopped": {func(p *evidence.Pod, _ []evidence.Task) {
			p.Tasks[2].State, p.Tasks[2].TracerPID = evidence.Stopped, 0
		}, ""},
		"a tracer holds it":                  {and(all(evidence.Traced), func(_ *evidence.Pod, s []evidence.Task) { s[0].TracerPID, s[1].TracerPID = 400, 400 }), ""},
		"a tracer follows it":                {func(_ *evidence.Pod, s []evidence.Task) { s[0].TracerPID, s[1].TracerPID = 400, 400 }, ""},
		"the pod's group is frozen":          {frozen(0), "is frozen (its cgroup or one above)"},
		"the container's group is frozen":    {frozen(1), ""},
		"stopped, while its group is frozen": {and(all(evidence.Stopped), frozen(0)), "is paused (SIGSTOP or similar)"},
		"frozen, and it runs":                {and(frozen(0), func(p *evidence.Pod, s []evidence.Task) { s[1].UnchangedSince = p.Time }), ""},
		"cgroups were not read":              {and(all(evidence.Stopped), func(p *evidence.Pod, _ []evidence.Task) { p.Lack(evidence.Cgroups, "no") }), ""},
	} {
		t.Run(name, func(t *testing.T) {
			if m, _, _ := found(underGVisor(test.change), "SandboxRuntimeStuck"); !strings.Contains(m, test.want) || (m != "") != (test.want != "") {
				t.Errorf("%q, want %q", m, test.want)
			}
		})
	}
	// It is why the shim does not answer.
	d := cause.Diagnose(underGVisor(and(all(evidence.Stopped), func(p *evidence.Pod, _ []evidence.Task) {
		p.Containers[0].Task = evidence.ShimTask{Asked: p.Time, UnansweredSince: p.Time.Add(-5 * time.Minute), Attempts: 4}
	})))
	if v, _ := d.Verdict(); v.Cause != "SandboxRuntimeStuck" || len(d.Findings) != 1 {
		t.Errorf("%+v", d.Findings)
	}
	// A group of which the name cannot stand in a command.
	_, r, _ := found(underGVisor(func(p *evidence.Pod, _ []evidence.Task) {
		p.Cgroups[0].Frozen, p.Cgroups[0].FrozenBy = true, `/a\x2db.slice`
	}), "SandboxRuntimeStuck")
	if !strings.Contains(r, "on the node: thaw the cgroup in /proc/100/cgroup") {
		t.Error(r)
	}
	// It is not why the shim is stopped as well.
	d = cause.Diagnose(underGVisor(and(all(evidence.Stopped), func(p *evidence.Pod, _ []evidence.Task) {
		p.Parents[0].State, p.Parents[0].UnchangedSince = evidence.Stopped, p.Time.Add(-10*time.Second)
	})))
	if v, _ := d.Verdict(); v.Cause != "SandboxRuntimeStuck" || len(d.Findings) != 2 || d.Findings[1].Symptom {
		t.Errorf("%+v", d.Findings)
	}
}

// awaitDaemon makes a thread wait for a FUSE daemon, without a signal.
func awaitDaemon(t *evidence.Task) {
	waiting := 1
	t.State, t.Probe = evidence.Sleeping, &evidence.Probe{Syscall: "preadv2"}
	hangs(t, "request_wait_answer", "request_wait_answer", "fuse_direct_io", "vfs_iter_read")
	t.Probe.Mount = &evidence.Mount{Device: "0:77", Point: "/data", Type: "fuse.s3", Source: "s3", HostPoint: "/var/lib/data", FUSEWaiting: &waiting}
}

// TestThreadOfGVisor checks that a thread of gVisor's is called stuck when it is seen to be, though
// nobody has killed it.
func TestThreadOfGVisor(t *testing.T) {
	for name, test := range map[string]struct {
		change func(p *evidence.Pod, thread *evidence.Task)
		want   string // a part of the message, "" for no such finding
	}{
		"a suspended device": {func(*evidence.Pod, *evidence.Task) {},
			`gVisor (exe, PID 100 on the node) hangs in D state, so SIGKILL cannot end the pod's program: device data (ext4 at "/data") is suspended`},
		"in the sandbox's group":                    {func(_ *evidence.Pod, t *evidence.Task) { t.Container = sandboxID }, "Thread 101 (exe) serves a program of the pod"},
		"the kubelet has not begun to stop the pod": {func(p *evidence.Pod, _ *evidence.Task) { p.StopAwaited = true }, ""},
		"of a gofer": {func(p *evidence.Pod, t *evidence.Task) {
			gofer := *t
			gofer.PID, gofer.TID, t.State = 105, 105, evidence.Sleeping
			p.Tasks = append(p.Tasks, gofer)
		}, "Thread 105 (exe) serves a program of the pod"},
		"a program's page": {func(p *evidence.Pod, t *evidence.Task) {
			p.Tasks[2].State, p.Tasks[2].Probe, p.Tasks[2].UnchangedSince, t.State = evidence.Uninterruptible, t.Probe, t.UnchangedSince, evidence.Sleeping
		}, "Thread 110 (exe) serves a program of the pod"},
		"a wait for a server that a signal would end": {func(_ *evidence.Pod, t *evidence.Task) {
			hangs(t, "rpc_wait_bit_killable", "rpc_wait_bit_killable", "nfs4_proc_getattr")
			t.Probe.Mount = &evidence.Mount{Device: "0:50", Point: "/data", Type: "nfs4", Server: "192.0.2.1", Connection: "SYN_SENT"}
		}, `NFS server 192.0.2.1 (nfs4 at "/data") does not respond`},
		"a FUSE daemon, which is not seen": {func(_ *evidence.Pod, t *evidence.Task) { awaitDaemon(t) }, ""},
		"a FUSE daemon, and a signal has come": {func(_ *evidence.Pod, t *evidence.Task) {
			awaitDaemon(t)
			t.State = evidence.Uninterruptible
		}, `the FUSE daemon of fuse.s3 at "/data" does not respond`},
		"the kubelet gives the grace period again": {func(p *evidence.Pod, _ *evidence.Task) { p.DeadlineUnsure = true }, ""},
		"the API server cannot have ended the pod": {func(p *evidence.Pod, _ *evidence.Task) { p.Mirror = true }, ""},
		"a program that scans files": {func(_ *evidence.Pod, t *evidence.Task) {
			hangs(t, asks, asks, "fanotify_handle_event", "fsnotify", "vfs_read")
		}, ""},
		"for nine seconds":                {func(p *evidence.Pod, t *evidence.Task) { t.UnchangedSince = p.Time.Add(-9 * time.Second) }, ""},
		"it sleeps":                       {func(_ *evidence.Pod, t *evidence.Task) { t.State = evidence.Sleeping }, ""},
		"nine seconds after the deadline": {func(p *evidence.Pod, _ *evidence.Task) { p.Time = p.Deadline.Add(9 * time.Second) }, ""},
		"in the grace period":             {func(p *evidence.Pod, _ *evidence.Task) { p.Time = p.Deadline.Add(-time.Second) }, ""},
		"the device completes its requests": {func(p *evidence.Pod, t *evidence.Task) {
			t.Probe.Mount.Disk = &evidence.Disk{Completed: 9, InFlight: 1, Read: p.Time, Moved: p.Time.Add(-time.Second)}
		}, ""},
		"its group is frozen": {func(p *evidence.Pod, _ *evidence.Task) {
			p.Cgroups[0].Frozen, p.Cgroups[0].FrozenBy = true, p.Cgroups[0].Path
		}, ""},
		"it is frozen, and its group was not read": {func(p *evidence.Pod, t *evidence.Task) {
			p.Time = p.Deadline.Add(70 * time.Second)
			hangs(t, "__refrigerator", "__refrigerator", "get_signal")
			t.Probe.Mount = nil
		}, ""},
		"the time did not suffice for others": {func(p *evidence.Pod, _ *evidence.Task) { p.Lack(evidence.Suspects, "7 of 11") }, "Thread 101 (exe) serves a program of the pod"},
		"under runc": {func(p *evidence.Pod, _ *evidence.Task) {
			p.Containers[0].Runtime, p.Containers[1].Runtime = "io.containerd.runc.v2", "io.containerd.runc.v2"
		}, ""},
		"somebody of the node has put it there": {func(p *evidence.Pod, t *evidence.Task) {
			other := *t
			other.PID, other.TID, other.PPID, t.State = 300, 300, 1, evidence.Sleeping
			p.Tasks = append(p.Tasks, other)
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := underGVisor(func(p *evidence.Pod, sentry []evidence.Task) {
				thread := &sentry[1]
				thread.State, thread.UnchangedSince = evidence.Uninterruptible, p.Deadline
				thread.Probe.Syscall = "fsync"
				hangs(thread, "folio_wait_bit_common", "folio_wait_bit_common", "folio_wait_writeback", "ext4_sync_file")
				thread.Probe.Mount = &evidence.Mount{
					Device: "254:3", Point: "/data", Type: "ext4", Source: "/dev/mapper/data", HostPoint: "/var/lib/data",
					Disk: &evidence.Disk{Suspended: true, Mapper: "data", Read: p.Time},
				}
				test.change(p, thread)
			})
			if m, _, _ := found(p, "UninterruptibleSleep"); !strings.Contains(m, test.want) || (m != "") != (test.want != "") {
				t.Errorf("%q, want %q", m, test.want)
			}
			if phase := cause.Diagnose(p).Phase; (phase == diagnose.Kill) != (test.want != "") {
				t.Errorf("phase %s", phase)
			}
		})
	}
	// One that waits for a lock may wait for another one, of which nothing is known.
	for waited, want := range map[time.Duration]bool{59 * time.Second: false, 60 * time.Second: true} {
		m, _, _ := found(underGVisor(func(p *evidence.Pod, sentry []evidence.Task) {
			sentry[1].State, sentry[1].UnchangedSince, p.Time = evidence.Uninterruptible, p.Deadline, p.Deadline.Add(waited)
			hangs(&sentry[1], "rwsem_down_write_slowpath", "rwsem_down_write_slowpath", "vfs_write")
			sentry[0].State, sentry[0].Probe = evidence.Uninterruptible, nil
			p.Lack(evidence.Suspects, "7 of 11 suspicious tasks were looked at before the time was over")
		}), "UninterruptibleSleep")
		if (m != "") != want {
			t.Errorf("a lock, for %s: %q", waited, m)
		}
	}
	// The kernel's files of one that is killed say the rest.
	m, r, c := found(underGVisor(func(p *evidence.Pod, sentry []evidence.Task) {
		thread := &sentry[1]
		thread.State, thread.UnchangedSince, thread.Pending = evidence.Uninterruptible, p.Deadline, bitKILL
		sentry[0].State, sentry[0].Threads = evidence.Zombie, 2
		hangs(thread, "percpu_rwsem_wait", "percpu_rwsem_wait", "vfs_write")
	}), "ThreadStuckBehindZombieLeader")
	if !strings.Contains(m, "exe (PID 100 on the node) looks like a zombie, but SIGKILL cannot end its thread in D state") || r == "" || c == "" {
		t.Errorf("%q, %q, %q", m, r, c)
	}
}

// TestNotKilledUnderGVisor checks that a thread of gVisor's that waits for its own reason is not why a pod is there about which the
// kubelet does nothing.
func TestNotKilledUnderGVisor(t *testing.T) {
	under := func(p *evidence.Pod) {
		for i := range p.Containers {
			p.Containers[i].Runtime = "io.containerd.runsc.v1"
		}
		p.Tasks = p.Tasks[:0]
		for _, tid := range []int{100, 101} {
			thread := task(100, 90, "exe", evidence.Sleeping, "futex")
			thread.TID, thread.Container, thread.UnchangedSince = tid, p.Containers[1].ID, p.Time.Add(-time.Minute)
			p.Tasks = append(p.Tasks, thread)
		}
		p.Parents = []evidence.Task{{PID: 90, TID: 90, Comm: "containerd-shim", Owner: "shim", State: evidence.Sleeping, UnchangedSince: p.Time}}
		awaitDaemon(&p.Tasks[1])
		p.Tasks[1].State = evidence.Uninterruptible
	}
	for name, test := range map[string]struct {
		p    *evidence.Pod
		want string
	}{
		"its loop hangs": {goesOn(70*time.Second, under), "KubeletSyncLoopStalled"},
		"it says so": {goesOn(6*time.Minute, func(p *evidence.Pod) {
			under(p)
			p.Node.Kubelet.Health = "failing checks: " +
				"syncloop"
		}), "KubeletSyncLoopStalled"},
		"it is out of touch": {cutOff(20*time.Second, under), "KubeletDisconnected"},
		"it kills the pod": {goesOn(70*time.Second, func(p *evidence.Pod) {
			under(p)
			p.Node.Kubelet.Strangers, p.Node.Kubelet.Blocked = nil,
				nil
		}), "UninterruptibleSleep"},
	} {
		d := cause.Diagnose(test.p)
		if v, _ := d.Verdict(); v.Cause != test.want {
			t.Errorf("%s: %q in phase %s, want %q: %s", name, v.Cause, d.Phase, test.want, v.Message)
		}
	}
}

// TestScannerHoldsGVisor checks that what a thread of gVisor's waits for is not said to be its disk where a program that scans
// files has not answered.
func TestScannerHoldsGVisor(t *testing.T) {
	for waited, want := range map[time.Duration]string{9 * time.Second: "", 10 * time.Second: "FileScannerNotAnswering"} {
		p := underGVisor(func(p *evidence.Pod, sentry []evidence.Task) {
			thread := &sentry[1]
			p.Time = p.Deadline.Add(30 * time.Second)
			thread.State, thread.UnchangedSince = evidence.Uninterruptible, p.Time.Add(-waited)
			thread.Probe.Syscall = "read"
			hangs(thread, asks, asks, "fanotify_handle_event", "fsnotify", "vfs_read")
			thread.Probe.Mount = &evidence.Mount{Device: "254:3", Point: "/data", Type: "ext4", Source: "/dev/sdb", HostPoint: "/var/lib/data"}
			p.Node.Scanners = []evidence.Task{scanner(p, 30, "clamonacc", evidence.Stopped)}
		})
		d := cause.Diagnose(p)
		v, _ := d.Verdict()
		if v.Cause != want || len(d.Findings) > 1 || want != "" && (!strings.HasPrefix(v.Message, "gVisor, serving the "+
			"pod, is blocked: the only fanotify permission listener (antivirus, EDR), clamonacc (PID 30)") || !strings.Contains(said(&v), "Thread 101 (exe)")) {
			t.Errorf("for %s: %q in phase %s, want %q: %s", waited, v.Cause, d.Phase, want, v.Message)
		}
	}
}

// TestShimsOfGVisor checks which of several shims is called hung: none that is only silent.
func TestShimsOfGVisor(t *testing.T) {
	silent := func(p *evidence.Pod) {
		p.Time = p.Deadline.Add(10 * time.Minute)
		p.Containers[0].Task = evidence.ShimTask{Asked: p.Time, UnansweredSince: p.Time.Add(-5 * time.Minute), Attempts: 4}
		p.Parents = append(p.Parents, evidence.Task{PID: 91, TID: 91, Comm: "containerd-shim", Owner: "shim", State: evidence.Sleeping,
			UnchangedSince: p.Time.Add(-time.Minute)})
	}
	for name, test := range map[string]struct {
		change func(p *evidence.Pod)
		want   string
	}{
		"it is not known which": {func(*evidence.Pod) {}, ""},
		"the second is stopped": {func(p *evidence.Pod) { p.Parents[1].State = evidence.Stopped }, "the pod's shim (PID 91) is paused " +
			"(SIGSTOP or similar), so the kubelet cannot stop main"},
		// The container's gofer has gone, and with it what tells of the container's shim.
		"only the sandbox's has a process": {func(p *evidence.Pod) { p.Parents = p.Parents[:1] }, ""},
		"the second is a tenant, stopped":  {func(p *evidence.Pod) { p.Parents[1].Owner, p.Parents[1].State = podUID, evidence.Stopped }, ""},
		"there is one, under runc": {func(p *evidence.Pod) {
			p.Parents = p.Parents[1:]
			for i := range p.Containers {
				p.Containers[i].Runtime = "io.containerd.runc.v2"
			}
		}, "the pod's shim (PID 91) does not respond to containerd, so the kubelet cannot stop main"},
	} {
		t.Run(name, func(t *testing.T) {
			m, r, _ := found(underGVisor(func(p *evidence.Pod, _ []evidence.Task) { silent(p); test.change(p) }), "ShimHung")
			if !strings.HasPrefix(m, test.want) || (m != "") != (test.want != "") || strings.Contains(r, "DUMP") || strings.Contains(r, "SAVE") {
				t.Errorf("%q, want %q; %s", m, test.want, r)
			}
		})
	}
}

// TestSilentShimOfGVisor checks that no shim is called hung that may wait for the sentry, whatever is seen of what that
// waits for, and that the pod is said to be stuck for an unknown reason after a while.
func TestSilentShimOfGVisor(t *testing.T) {
	for name, test := range map[string]struct {
		runtime string
		silent  time.Duration
		asked   time.Duration // when it was asked last
		want    string
		change  func(p *evidence.Pod)
	}{
		"gVisor's":                {"io.containerd.runsc.v1", 403 * time.Second, 403 * time.Second, "", nil},
		"gVisor's, for long":      {"io.containerd.runsc.v1", 495 * time.Second, 403 * time.Second, "Unknown", nil},
		"one of runc's":           {"io.containerd.runc.v2", 61 * time.Second, 61 * time.Second, "ShimHung", nil},
		"runc's, a while ago":     {"io.containerd.runc.v2", 59 * time.Second, 59 * time.Second, "", nil},
		"runc's, not asked since": {"io.containerd.runc.v2", 222 * time.Second, 43 * time.Second, "", nil},
		"runc's, not asked again": {"io.containerd.runc.v2", 255 * time.Second, 43 * time.Second, "Unknown", nil},
		"not asked since":         {"io.containerd.runsc.v1", 495 * time.Second, 223 * time.Second, "Unknown", nil},
		"a thread waits in the kernel": {"io.containerd.runsc.v1", 403 * time.Second, 403 * time.Second, "", func(p *evidence.Pod) {
			p.Tasks[1].State, p.Tasks[1].UnchangedSince = evidence.Uninterruptible, p.Time.Add(-time.Second)
		}},
		"a stub does, of a program's page": {"io.containerd.runsc.v1", 403 * time.Second, 403 * time.Second, "", func(p *evidence.Pod) {
			p.Tasks[2].State, p.Tasks[2].TracerPID, p.Tasks[2].UnchangedSince = evidence.Uninterruptible, 0, p.Time.Add(-time.Second)
		}},
		"a thread waits for a FUSE daemon": {"io.containerd.runsc.v1", 495 * time.Second, 403 * time.Second, "Unknown", func(p *evidence.Pod) {
			awaitDaemon(&p.Tasks[1])
			p.Tasks[1].UnchangedSince = p.Deadline
		}},
		"a gofer is stopped": {"io.containerd.runsc.v1", 495 * time.Second, 403 * time.Second, "Unknown", func(p *evidence.Pod) {
			gofer := task(105, 91, "exe", evidence.Stopped, "")
			gofer.Container, gofer.UnchangedSince = "", p.Deadline
			p.Tasks = append(p.Tasks, gofer)
			p.Parents = append(p.Parents, evidence.Task{
				PID: 91, TID: 91, Comm: "containerd-shim", Owner: "shim", State: evidence.Sleeping, UnchangedSince: p.Time,
			})
		}},
		"the time did not suffice, under runc": {"io.containerd.runc.v2", 61 * time.Second, 61 * time.Second, "ShimHung", func(p *evidence.Pod) {
			p.Lack(evidence.Suspects, "7 of 11")
		}},
	} {
		p := underGVisor(func(p *evidence.Pod, _ []evidence.Task) {
			p.Time = p.Deadline.Add(test.silent)
			p.UnchangedSince = p.Deadline
			for i := range p.Containers {
				p.Containers[i].Runtime = test.runtime
			}
			p.Containers[0].Task = evidence.ShimTask{Asked: p.Deadline.Add(test.asked), UnansweredSince: p.Deadline, Attempts: 4}
			if test.change != nil {
				test.change(p)
			}
		})
		d := cause.Diagnose(p)
		v, _ := d.Verdict()
		if v.Cause != test.want {
			t.Errorf("%s: %q, want %q: %s", name, v.Cause, test.want, v.Message)
		}
		// What another agent has found is not refuted, and nothing of the runtime is ruled out.
		if undecided := v.Cause != "ShimHung" && p.Overdue() >= time.Minute; d.NotLookedFor("ShimHung") != undecided {
			t.Errorf("%s: it is looked for: %t", name, undecided)
		}
		partly := []string{"runtime"}
		if test.runtime == "io.containerd.runsc.v1" {
			partly = []string{"kernel", "runtime"}
		}
		if v.Cause == "Unknown" && !slices.Equal(v.Objects.PartlyRuledOut, partly) {
			t.Errorf("%s: ruled out are %s, and some of %s", name, v.Objects.RuledOut, v.Objects.PartlyRuledOut)
		}
	}
}

// TestUnknownUnderGVisor checks that the pod of a shim that answers now and then is said to be stuck at last.
func TestUnknownUnderGVisor(t *testing.T) {
	for after, want := range map[time.Duration]string{9 * time.Minute: "", 10 * time.Minute: "Unknown"} {
		d := cause.Diagnose(underGVisor(func(p *evidence.Pod, _ []evidence.Task) {
			p.Time = p.Deadline.Add(after)
			p.UnchangedSince, p.StageSince = p.Time.Add(-10*time.Second), p.Deadline
			p.Containers[0].Task = evidence.ShimTask{Asked: p.Time, UnansweredSince: p.Time.Add(-10 * time.Second), Attempts: 2}
		}))
		if v, _ := d.Verdict(); v.Cause != want {
			t.Errorf("after %s: %q, want %q: %s", after, v.Cause, want, v.Message)
		}
	}
}

// TestForeignShim checks that nothing is said of a stopped shim that answers for none of the pod's
// containers: that of another pod, of which a process has come into this one's group.
func TestForeignShim(t *testing.T) {
	for _, name := range []string{"io.containerd.runc.v2", "io.containerd.runsc.v1"} {
		p := underGVisor(func(p *evidence.Pod, _ []evidence.Task) {
			p.Parents = append(p.Parents, evidence.Task{PID: 91, TID: 91, Comm: "containerd-shim", Owner: "shim", State: evidence.Stopped,
				UnchangedSince: p.Time.Add(-time.Minute)})
			for i := range p.Containers {
				p.Containers[i].Runtime = name
			}
		})
		if m, _, _ := found(p, "ShimHung"); m != "" {
			t.Errorf("%s: %s", name, m)
		}
	}
}
