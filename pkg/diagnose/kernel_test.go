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

// killed is a pod twenty seconds past its deadline, of which the first process
// has SIGKILL pending and has been in state D for that long.
func killed(change func(p *evidence.Pod, first *evidence.Task)) *evidence.Pod {
	return stopping(func(p *evidence.Pod, first *evidence.Task) {
		p.Time = p.Deadline.Add(20 * time.Second)
		p.Cgroups = nil
		first.State, first.Pending, first.SharedPending = evidence.Uninterruptible, bitKILL, bitKILL|bitTERM
		first.UnchangedSince, first.SignalsSince = p.Deadline, p.Deadline
		first.Probe.Syscall = "write"
		hangs(first, "request_wait_answer", "request_wait_answer", "fuse_direct_io", "vfs_write")
		change(p, first)
	})
}

// hangs puts a task into a kernel function.
func hangs(t *evidence.Task, wchan string, stack ...string) {
	t.Probe.Wchan, t.Probe.Stack = wchan, stack
}

// exits makes a killed task one that is inside do_exit.
func exits(t *evidence.Task, stack ...string) {
	t.State, t.Pending, t.SharedPending = evidence.Sleeping, 0, 0
	t.Probe.Flags |= evidence.PFExiting
	hangs(t, stack[0], append(stack, "do_exit", "do_group_exit")...)
}

// ends makes the first process an init that waits for the others.
func ends(t *evidence.Task) { exits(t, "zap_pid_ns_processes") }

// member is a zombie in the PID namespace of the first process.
func member(p *evidence.Pod, parent int) evidence.Task {
	z := task(101, parent, "sh", evidence.Zombie, "")
	z.Probe, z.UnchangedSince = nil, p.Deadline
	return z
}

func outside(p *evidence.Pod, pid int, comm string, state evidence.TaskState) {
	p.Parents = append(p.Parents, evidence.Task{PID: pid, TID: pid, Comm: comm, State: state, OwnerName: "tools/debugger",
		Probe: &evidence.Probe{Start: uint64(10 * pid)}})
}

func TestKernelCauses(t *testing.T) {
	nfs := evidence.Mount{Device: "0:50", Point: "/data", Type: "nfs4", Source: "192.0.2.1:/export", Server: "192.0.2.1", Unanswered: new(int),
		Connection: "SYN_SENT"}
	*nfs.Unanswered = 3
	connected := func(resent int, since time.Duration) func(*evidence.Pod, *evidence.Task) {
		return func(p *evidence.Pod, t *evidence.Task) {
			hangs(t, "folio_wait_bit_common", "folio_wait_bit_common", "nfs_wb_all", "nfs4_file_flush")
			m := nfs
			m.Connection, m.Resent = "ESTABLISHED", resent
			t.Probe.Mount = &m
			t.UnchangedSince = p.Time.Add(-since)
		}
	}
	disk := evidence.Mount{Device: "254:3", Point: "/data", Type: "ext4", Source: "/dev/mapper/data"}
	onDisk := func(t *evidence.Task) {
		hangs(t, "folio_wait_bit_common", "folio_wait_bit_common", "folio_wait_writeback", "ext4_sync_file")
	}
	kernelThread := func(p *evidence.Pod, comm string) {
		p.Node.Blocked = append(p.Node.Blocked, evidence.Task{PID: 9, TID: 9, Comm: comm, Kernel: true, State: evidence.Uninterruptible, UnchangedSince: p.Deadline})
	}
	for name, tc := range map[string]struct {
		change func(p *evidence.Pod, first *evidence.Task)
		want   string // "" for silence
		says   []string
	}{
		"daemon silent for 20 seconds": {func(*evidence.Pod, *evidence.Task) {}, "UninterruptibleSleep", []string{"grep -H . /sys/fs/fuse/connections/*/waiting"}},
		"daemon silent for 9 seconds": {func(p *evidence.Pod, t *evidence.Task) {
			t.UnchangedSince = p.Time.Add(-9 * time.Second)
		}, "", nil},
		"NFS server silent for 9 seconds": {func(p *evidence.Pod, t *evidence.Task) {
			hangs(t, "rpc_wait_bit_killable", "rpc_wait_bit_killable", "nfs_wait_bit_killable", "nfs_file_flush")
			t.UnchangedSince = p.Time.Add(-9 * time.Second)
		}, "", nil},
		"NFS server silent for 11 seconds": {func(p *evidence.Pod, t *evidence.Task) {
			hangs(t, "rpc_wait_bit_killable", "rpc_wait_bit_killable", "nfs_wait_bit_killable", "nfs_file_flush")
			t.UnchangedSince = p.Time.Add(-11 * time.Second)
		}, "UninterruptibleSleep", nil},
		"NFS server that acknowledges, for 9 seconds":   {connected(0, 9*time.Second), "", nil},
		"NFS server after a lost packet, for 9 seconds": {connected(2, 9*time.Second), "", nil},
		"NFS server that acknowledges, for 11 seconds": {connected(0, 11*time.Second), "UninterruptibleSleep",
			[]string{"192.0.2.1:/export, requests without an answer)"}},
		"NFS server that acknowledges nothing": {connected(3, 4*time.Second), "UninterruptibleSleep", []string{"the server acknowledges nothing"}},
		"NFS server without a connection, for 4 seconds": {func(p *evidence.Pod, t *evidence.Task) {
			connected(0, 4*time.Second)(p, t)
			t.Probe.Mount.Connection = "SYN_SENT"
		}, "UninterruptibleSleep", []string{"no TCP connection"}},
		"frozen file system for 4 seconds": {func(p *evidence.Pod, t *evidence.Task) {
			hangs(t, "percpu_rwsem_wait", "percpu_rwsem_wait", "vfs_write", "ksys_write")
			t.UnchangedSince = p.Time.Add(-4 * time.Second)
		}, "UninterruptibleSleep", nil},
		"killed, and the probe came to nothing": {func(_ *evidence.Pod, t *evidence.Task) { t.Probe = nil }, "", nil},
		"killed, and awake when it was probed":  {func(_ *evidence.Pod, t *evidence.Task) { hangs(t, "") }, "", nil},
		"state D but not killed": {func(_ *evidence.Pod, t *evidence.Task) {
			t.Pending, t.SharedPending = 0, 0
			hangs(t, "kernel_clone", "kernel_clone", "__do_sys_vfork")
		}, "", nil},
		"not killed yet": {func(p *evidence.Pod, t *evidence.Task) {
			p.Time = p.Deadline.Add(4 * time.Second)
			t.State, t.Pending, t.SharedPending, t.Caught = evidence.Sleeping, 0, 0, bitTERM
		}, "", nil},
		"not killed yet, and not in the kernel's hands": {func(p *evidence.Pod, t *evidence.Task) {
			p.Time = p.Deadline.Add(4 * time.Second)
			t.State, t.Pending, t.SharedPending, t.Caught = evidence.Sleeping, 0, 0, bitTERM
			hangs(t, "ep_poll", "ep_poll", "do_epoll_wait")
		}, "", nil},
		"frozen by its cgroup, version 1": {func(p *evidence.Pod, t *evidence.Task) {
			p.Cgroups = []evidence.Cgroup{{Path: "/kubepods/podu/c", Version: 1, Container: "c", Frozen: true, FrozenBy: "/kubepods/podu/c"}}
			hangs(t, "hrtimer_nanosleep", "hrtimer_nanosleep")
		}, "ContainerFrozen", nil},
		"NFS server silent": {func(_ *evidence.Pod, t *evidence.Task) {
			hangs(t, "folio_wait_bit_common", "folio_wait_bit_common", "nfs_wb_all", "nfs4_file_flush")
			t.Probe.Mount = &nfs
		}, "UninterruptibleSleep", []string{"192.0.2.1:/export, requests without an answer, no TCP connection)"}},
		"device and journal silent": {func(p *evidence.Pod, t *evidence.Task) {
			onDisk(t)
			t.Probe.Mount = &disk
			kernelThread(p, "jbd2/dm-3-8")
		}, "UninterruptibleSleep", []string{`source "/dev/mapper/data"`, "kernel's thread jbd2/dm-3-8 waits too"}},
		"another device's journal": {func(p *evidence.Pod, t *evidence.Task) {
			onDisk(t)
			t.Probe.Mount = &disk
			kernelThread(p, "jbd2/dm-4-8")
		}, "UninterruptibleSleep", []string{`source "/dev/mapper/data")`}},
		"device without a mount": {func(p *evidence.Pod, t *evidence.Task) {
			onDisk(t)
			kernelThread(p, "kworker/u8:2+flush-8:16")
			kernelThread(p, "kworker/u8:3+flush-8:16")
		}, "UninterruptibleSleep", []string{"I/O on device 8:16 does not complete", "Restore device 8:16 ("}},
		"two devices without a mount": {func(p *evidence.Pod, t *evidence.Task) {
			onDisk(t)
			kernelThread(p, "xfsaild/sdb")
			kernelThread(p, "jbd2/sdc1-8")
		}, "UninterruptibleSleep", []string{"I/O on a block device does not complete\n", " in folio_wait_bit_common "}},

		"exit": {func(_ *evidence.Pod, t *evidence.Task) {
			exits(t, "request_wait_answer", "fuse_flush", "put_files_struct")
		}, "StuckInExit", nil},
		"exit in state D": {func(_ *evidence.Pod, t *evidence.Task) {
			exits(t, "folio_wait_bit_common", "nfs4_file_flush", "put_files_struct")
			t.State, t.Pending = evidence.Uninterruptible, bitKILL
		}, "StuckInExit", nil},
		"exit that moves": {func(p *evidence.Pod, t *evidence.Task) {
			exits(t, "request_wait_answer", "fuse_flush")
			t.UnchangedSince = p.Time
		}, "", nil},
		"exit that waits for a core dump":                    {func(_ *evidence.Pod, t *evidence.Task) { exits(t, "coredump_task_exit") }, "", nil},
		"exit that waits for a core dump, before Linux 5.16": {func(_ *evidence.Pod, t *evidence.Task) { exits(t, "exit_mm") }, "", nil},
		"exit of the leader's last thread": {func(p *evidence.Pod, t *evidence.Task) {
			last := *t
			last.TID, last.Probe = 102, &evidence.Probe{}
			exits(&last, "request_wait_answer", "fuse_flush")
			t.State, t.Threads, t.Pending, t.SharedPending, t.Probe = evidence.Zombie, 2, 0, 0, nil
			p.Tasks = append(p.Tasks, last)
			p.Node.Kubelet.Process = &evidence.Task{PID: 5, TID: 5, State: evidence.Sleeping}
		}, "StuckInExit", []string{"app (PID 100 on the node) cannot finish its exit", "Thread 102 (app)"}},

		"execve": {func(_ *evidence.Pod, t *evidence.Task) {
			hangs(t, "request_wait_answer", "fuse_flush", "do_close_on_exec", "begin_new_exec", "bprm_execve")
		}, "StuckInExec", nil},
		"execve that cannot be read": {func(_ *evidence.Pod, t *evidence.Task) {
			t.Probe = &evidence.Probe{Hung: []string{"stat"}}
		}, "StuckInExec", []string{"read only status and comm"}},
		"execve of a static pod, which nobody has killed": {func(p *evidence.Pod, t *evidence.Task) {
			p.Mirror, t.State, t.Pending, t.SharedPending = true, evidence.Sleeping, 0, 0
			hangs(t, "request_wait_answer", "fuse_flush", "do_close_on_exec", "begin_new_exec", "bprm_execve")
		}, "", nil},
		"execve that waits for its threads": {func(_ *evidence.Pod, t *evidence.Task) {
			t.State, t.Pending, t.SharedPending = evidence.Sleeping, 0, 0
			hangs(t, "de_thread", "de_thread", "begin_new_exec", "bprm_execve")
		}, "", nil},
		"memory map that cannot be read": {func(_ *evidence.Pod, t *evidence.Task) {
			hangs(t, "percpu_rwsem_wait", "percpu_rwsem_wait", "ext4_page_mkwrite", "handle_mm_fault")
			t.Probe.Hung = []string{"maps"}
		}, "UninterruptibleSleep", nil},

		"tracer does not ask": {func(p *evidence.Pod, t *evidence.Task) {
			t.State, t.TracerPID, t.Probe = evidence.Zombie, 70, nil
			outside(p, 70, "gdb", evidence.Stopped)
		}, "ZombieHeldByTracer", []string{"its tracer gdb (PID 70, of pod tools/debugger), which is paused, has not collected " +
			"its exit", signalling("continue", 70, 700) + ";"}},
		"zombie without a tracer": {func(_ *evidence.Pod, t *evidence.Task) { t.State, t.Probe = evidence.Zombie, nil }, "", nil},
		"tracer is the parent": {func(p *evidence.Pod, t *evidence.Task) {
			t.State, t.TracerPID, t.PPID, t.Probe = evidence.Zombie, 70, 70, nil
			outside(p, 70, "gdb", evidence.Sleeping)
		}, "", nil},
		"traced zombie that nobody waits for": {func(p *evidence.Pod, t *evidence.Task) {
			t.State, t.Pending, t.SharedPending, t.Caught = evidence.Sleeping, 0, 0, bitTERM
			z := member(p, 100)
			z.TracerPID = 70
			p.Tasks = append(p.Tasks, z)
			outside(p, 70, "gdb", evidence.Sleeping)
		}, "", nil},

		"parent outside does not reap": {func(p *evidence.Pod, t *evidence.Task) {
			ends(t)
			p.Tasks = append(p.Tasks, member(p, 70))
			outside(p, 70, "nsenter", evidence.Sleeping)
		}, "PIDNamespaceReapWait", []string{"zombie sh remains", "has not collected its exit", "Process 101 (sh) of this namespace",
			"its parent nsenter (PID 70, of pod tools/debugger)", "outside the container"}},
		"zombie is traced": {func(p *evidence.Pod, t *evidence.Task) {
			ends(t)
			z := member(p, 100)
			z.TracerPID = 71
			p.Tasks = append(p.Tasks, z)
			outside(p, 71, "gdb", evidence.Sleeping)
		}, "ZombieHeldByTracer", nil},
		"member hangs": {func(p *evidence.Pod, t *evidence.Task) {
			stuck := task(101, 100, "dd", evidence.Uninterruptible, "write")
			stuck.Pending = bitKILL
			hangs(&stuck, "percpu_rwsem_wait", "percpu_rwsem_wait", "vfs_write")
			ends(t)
			p.Tasks = append(p.Tasks, stuck)
		}, "UninterruptibleSleep", []string{"SIGKILL cannot end dd (PID 101 on the node", "Thread 101 (dd)"}},
		"member is still there": {func(p *evidence.Pod, t *evidence.Task) {
			ends(t)
			p.Tasks = append(p.Tasks, task(101, 100, "dd", evidence.Sleeping, ""))
		}, "PIDNamespaceReapWait", []string{"dd (PID 101 on the node) was killed and has not exited", "Process 101 (dd) of this namespace is in state S"}},
		"namespace seems empty": {func(_ *evidence.Pod, t *evidence.Task) { ends(t) }, "", nil},
		"zombie of a living init": {func(p *evidence.Pod, t *evidence.Task) {
			t.State, t.Pending, t.SharedPending, t.Caught = evidence.Sleeping, 0, 0, bitTERM
			p.Tasks = append(p.Tasks, member(p, 100))
		}, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			d := cause.Diagnose(killed(tc.change))
			v, _ := d.Verdict()
			if v.Cause != tc.want {
				t.Fatalf("verdict %q, want %q: %s", v.Cause, tc.want, v.Message)
			}
			text := said(&v)
			if i := slices.IndexFunc(tc.says, func(s string) bool { return !strings.Contains(text, s) }); i >= 0 {
				t.Errorf("does not say %q: %s", tc.says[i], text)
			}
		})
	}
}

// A mount, a server or a connection is named for what is seen of itself, and else not.
func TestCulprits(t *testing.T) {
	number := func(n int) *int { return &n }
	onPath := func(t *evidence.Task, m evidence.Mount, wchan string, stack ...string) {
		hangs(t, wchan, append([]string{wchan}, stack...)...)
		t.Probe.Mount, t.Probe.Indirect = &m, true
	}
	onNFS := func(t *evidence.Task) {
		hangs(t, "folio_wait_bit_common", "folio_wait_bit_common", "nfs_wb_all", "nfs4_file_flush", "filp_close")
	}
	nfs := func(server string, unanswered int, connection string) evidence.Mount {
		return evidence.Mount{Device: "0:5" + server[len(server)-1:], Point: "/" + server, HostPoint: "/mnt/" + server, Type: "nfs4",
			Source: server + ":/export", Server: server, Unanswered: number(unanswered), Connection: connection}
	}
	fuse := func(waiting int, only bool) evidence.Mount {
		return evidence.Mount{Device: "0:77", Point: "/s3", HostPoint: "/mnt/s3", Type: "fuse.s3", Source: "s3", FUSEWaiting: number(waiting), OnlyWaiting: only}
	}
	root := evidence.Mount{Device: "0:40", Point: "/", Type: "overlay", Source: "overlay",
		Backing: &evidence.Mount{Device: "8:1", Point: "/", HostPoint: "/", Type: "ext4", Source: "/dev/vda1"}}
	data := evidence.Mount{Device: "254:3", Point: "/data", HostPoint: "/mnt/data", Type: "ext4", Source: "/dev/mapper/vg-data"}
	disk := func(p *evidence.Pod, d evidence.Disk) evidence.Mount {
		m := data
		d.Read = p.Time
		if d.UnchangedSince.IsZero() {
			d.UnchangedSince = p.Time
		}
		m.Disk = &d
		return m
	}
	sync := func(t *evidence.Task, m evidence.Mount) {
		hangs(t, "folio_wait_bit_common", "folio_wait_bit_common", "folio_wait_writeback", "ext4_sync_file")
		t.Probe.Mount = &m
	}
	frozenWriter := func(t *evidence.Task, m evidence.Mount) {
		hangs(t, "percpu_rwsem_wait", "percpu_rwsem_wait", "vfs_write", "ksys_write")
		t.Probe.Mount = &m
	}
	for name, tc := range map[string]struct {
		change     func(p *evidence.Pod, first *evidence.Task)
		family     string // "" for silence
		confidence diagnose.Confidence
		says, not  []string
	}{
		"FUSE by an open file": {func(_ *evidence.Pod, t *evidence.Task) {
			m := fuse(1, false)
			t.Probe.Mount = &m
		}, "FUSE", diagnose.Proved, []string{"/s3", "connections/77/abort"}, nil},
		"FUSE by an open file, but its daemon has answered everything": {func(_ *evidence.Pod, t *evidence.Task) {
			m := fuse(0, false)
			t.Probe.Mount = &m
		}, "FUSE", diagnose.Inferred, []string{"behind 0:) and write 1 to abort"}, []string{"/s3", "77"}},
		"FUSE by a path, requests waiting there only": {func(_ *evidence.Pod, t *evidence.Task) {
			onPath(t, fuse(2, true), "request_wait_answer", "fuse_do_getattr")
		}, "FUSE", diagnose.Proved, []string{"/s3"}, nil},
		"FUSE by a path, requests waiting elsewhere too": {func(_ *evidence.Pod, t *evidence.Task) {
			onPath(t, fuse(2, false), "request_wait_answer", "fuse_do_getattr")
		}, "FUSE", diagnose.Inferred, []string{"/s3"}, nil},
		"FUSE by a path, no request waiting": {func(_ *evidence.Pod, t *evidence.Task) {
			onPath(t, fuse(0, false), "request_wait_answer", "fuse_do_getattr")
		}, "FUSE", diagnose.Inferred, nil, []string{"/s3", "77"}},

		"a hostPath's server is gone, the pod's own volume is well": {func(p *evidence.Pod, t *evidence.Task) {
			onNFS(t)
			well := nfs("192.0.2.1", 0, evidence.Established)
			p.Mounts = []evidence.Mount{well}
			t.Probe.Candidates = []evidence.Mount{well, nfs("192.0.2.2", 3, "SYN_SENT")}
		}, "NFS", diagnose.Inferred, []string{"Restore NFS server 192.0.2.2 at the same address"}, []string{"192.0.2.1"}},
		"the pod's only NFS volume is well": {func(p *evidence.Pod, t *evidence.Task) {
			onNFS(t)
			well := nfs("192.0.2.1", 0, evidence.Established)
			p.Mounts, t.Probe.Candidates = []evidence.Mount{well}, []evidence.Mount{well}
		}, "NFS", diagnose.Inferred, []string{"Restore the NFS server that does not respond (on the node: ss ", "an NFS server does not " +
			"respond"}, []string{"192.0.2.1"}},
		"a server that is not mounted any more is gone, another one is busy": {func(_ *evidence.Pod, t *evidence.Task) {
			onNFS(t)
			t.Probe.Candidates = []evidence.Mount{nfs("192.0.2.1", 1, evidence.Established)}
		}, "NFS", diagnose.Inferred, []string{"Restore the NFS server that does not respond (on the node: ss "}, []string{"192.0.2.1"}},
		"NFS by a path, its server is busy": {func(_ *evidence.Pod, t *evidence.Task) {
			onPath(t, nfs("192.0.2.1", 1, evidence.Established), "rpc_wait_bit_killable", "nfs4_proc_getattr")
		}, "NFS", diagnose.Inferred, nil, []string{"192.0.2.1"}},
		"a proxy of the node is gone": {func(_ *evidence.Pod, t *evidence.Task) {
			onNFS(t)
			m := nfs("127.0.0.1", 3, "SYN_SENT")
			t.Probe.Mount = &m
		}, "NFS", diagnose.Proved, []string{"Restore the proxy that listens on 127.0.0.1 of this node"}, []string{"Restore NFS server"}},
		"two servers are gone": {func(_ *evidence.Pod, t *evidence.Task) {
			onNFS(t)
			t.Probe.Candidates = []evidence.Mount{nfs("192.0.2.1", 1, "SYN_SENT"), nfs("192.0.2.2", 3, "SYN_SENT")}
		}, "NFS", diagnose.Inferred, []string{"Restore the NFS server that does not respond (on the node: ss "}, []string{"192.0.2.1", "192.0.2.2"}},
		"NFS by a path, its server is well": {func(_ *evidence.Pod, t *evidence.Task) {
			onPath(t, nfs("192.0.2.1", 0, evidence.Established), "rpc_wait_bit_killable", "nfs4_proc_getattr")
		}, "NFS", diagnose.Inferred, nil, []string{"192.0.2.1"}},
		"NFS by an open file, its server has answered everything": {func(_ *evidence.Pod, t *evidence.Task) {
			onNFS(t)
			m := nfs("192.0.2.1", 0, evidence.Established)
			t.Probe.Mount = &m
		}, "NFS", diagnose.Inferred, []string{"192.0.2.1"}, nil},

		"frozen, through a link in the container's root": {func(_ *evidence.Pod, t *evidence.Task) {
			onPath(t, root, "percpu_rwsem_wait", "mnt_want_write", "path_openat")
		}, "FsFrozen", diagnose.Proved, []string{"find out which file system is frozen"}, []string{`mounted at "/"`, "fsfreeze -u /", "vda1"}},
		"frozen, by a path below a volume": {func(_ *evidence.Pod, t *evidence.Task) {
			onPath(t, data, "percpu_rwsem_wait", "mnt_want_write", "path_openat")
			t.Probe.Via = "path"
		}, "FsFrozen", diagnose.Inferred, []string{"fsfreeze -u /mnt/data", `It was opening a file below "/data", unless a symbolic link leads elsewhere`}, nil},
		"frozen, by a path in the container's root": {func(_ *evidence.Pod, t *evidence.Task) {
			onPath(t, root, "percpu_rwsem_wait", "mnt_want_write", "path_openat")
			t.Probe.Via = "path"
		}, "FsFrozen", diagnose.Proved, []string{"find out which file system is frozen"}, []string{"fsfreeze -u /", "unless a symbolic link"}},
		"NFS, by a path, is not named for that": {func(_ *evidence.Pod, t *evidence.Task) {
			onPath(t, nfs("192.0.2.1", 0, evidence.Established), "rpc_wait_bit_killable", "nfs4_proc_getattr")
			t.Probe.Via = "path"
		}, "NFS", diagnose.Inferred, nil, []string{"192.0.2.1", "unless a symbolic link"}},
		"frozen, and a task of the node that has it open agrees": {func(p *evidence.Pod, t *evidence.Task) {
			onPath(t, data, "percpu_rwsem_wait", "mnt_want_write", "path_openat")
			other := task(500, 1, "backup", evidence.Uninterruptible, "write")
			frozenWriter(&other, data)
			p.Node.Blocked = append(p.Node.Blocked, other)
		}, "FsFrozen", diagnose.Inferred, []string{"fsfreeze -u /mnt/data"}, nil},
		"frozen, and a task of the node waits for another one": {func(p *evidence.Pod, t *evidence.Task) {
			onPath(t, root, "percpu_rwsem_wait", "mnt_want_write", "path_openat")
			other := task(500, 1, "backup", evidence.Uninterruptible, "write")
			frozenWriter(&other, data)
			p.Node.Blocked = append(p.Node.Blocked, other)
		}, "FsFrozen", diagnose.Proved, nil, []string{"fsfreeze -u /"}},
		"frozen, for what the file system does for itself": {func(_ *evidence.Pod, t *evidence.Task) {
			hangs(t, "percpu_rwsem_wait", "percpu_rwsem_wait", "__percpu_down_read", "ext4_evict_inode", "evict", "do_unlinkat")
			t.Probe.Mount = &data
		}, "FsFrozen", diagnose.Proved, []string{"fsfreeze -u /mnt/data"}, nil},
		"frozen, on Linux 4.18": {func(_ *evidence.Pod, t *evidence.Task) {
			hangs(t, "call_rwsem_down_read_failed", "call_rwsem_down_read_failed", "__percpu_down_read", "__sb_start_write", "mnt_want_write", "do_sys_ftruncate")
			t.Probe.Mount = &data
		}, "FsFrozen", diagnose.Proved, []string{"fsfreeze -u /mnt/data"}, nil},
		"frozen, on Linux 5.4": {func(_ *evidence.Pod, t *evidence.Task) {
			hangs(t, "rwsem_down_read_slowpath", "rwsem_down_read_slowpath", "__percpu_down_read", "__sb_start_write", "vfs_write")
			t.Probe.Mount = &data
		}, "FsFrozen", diagnose.Proved, []string{"fsfreeze -u /mnt/data"}, nil},
		"another lock of Linux 5.4": {func(_ *evidence.Pod, t *evidence.Task) {
			hangs(t, "rwsem_down_read_slowpath", "rwsem_down_read_slowpath", "ext4_map_blocks", "vfs_write")
			t.Probe.Mount = &data
		}, "Block", diagnose.Inferred, nil, []string{"fsfreeze"}},
		"another semaphore of ext4": {func(_ *evidence.Pod, t *evidence.Task) {
			hangs(t, "percpu_rwsem_wait", "percpu_rwsem_wait", "__percpu_down_read", "ext4_writepages", "do_writepages", "ext4_evict_inode")
			t.Probe.Mount = &data
		}, "Block", diagnose.Inferred, nil, []string{"fsfreeze"}},
		"a freeze is under way": {func(p *evidence.Pod, t *evidence.Task) {
			frozenWriter(t, data)
			other := task(500, 1, "fsfreeze", evidence.Uninterruptible, "ioctl")
			hangs(&other, "percpu_down_write", "percpu_down_write", "freeze_super", "do_vfs_ioctl")
			p.Node.Blocked = append(p.Node.Blocked, other)
		}, "FsFrozen", diagnose.Inferred, nil, nil},
		"the end of asynchronous I/O, and one device is stuck": {func(p *evidence.Pod, t *evidence.Task) {
			exits(t, "exit_aio", "mmput")
			p.Node.Blocked = append(p.Node.Blocked, evidence.Task{PID: 9, TID: 9, Comm: "jbd2/sdb1-8", Kernel: true, State: evidence.Uninterruptible,
				UnchangedSince: p.Deadline})
		}, "Block", diagnose.Inferred, []string{"device sdb1 "}, []string{"reboot"}},
		"the end of asynchronous I/O": {func(_ *evidence.Pod, t *evidence.Task) {
			exits(t, "exit_aio", "mmput")
		}, "Other", diagnose.Proved, nil, []string{"on device", "the device"}},
		"frozen, because its device is suspended": {func(p *evidence.Pod, t *evidence.Task) {
			frozenWriter(t, disk(p, evidence.Disk{Suspended: true, Mapper: "vg-data", UnchangedSince: p.Deadline}))
		}, "Suspended", diagnose.Proved, []string{"dmsetup resume vg-data", "Do not run fsfreeze -u"}, []string{"fsfreeze -u /"}},
		"suspended without being frozen": {func(p *evidence.Pod, t *evidence.Task) {
			sync(t, disk(p, evidence.Disk{Suspended: true, Mapper: "a;b", UnchangedSince: p.Deadline}))
		}, "Suspended", diagnose.Proved, []string{"dmsetup info"}, []string{"a;b", "reboot"}},

		"a disk with requests under way that completes none": {func(p *evidence.Pod, t *evidence.Task) {
			sync(t, disk(p, evidence.Disk{Completed: 7, InFlight: 1, UnchangedSince: p.Deadline}))
		}, "Block", diagnose.Proved, []string{"reboot"}, nil},
		"a disk with nothing under way": {func(p *evidence.Pod, t *evidence.Task) {
			sync(t, disk(p, evidence.Disk{Completed: 7, UnchangedSince: p.Deadline}))
		}, "Block", diagnose.Inferred, []string{"which has no request in flight", "dmsetup status"}, []string{"reboot", "Restore", "restore the device"}},
		"a disk that nothing is known of": {func(_ *evidence.Pod, t *evidence.Task) { sync(t, data) }, "Block", diagnose.Inferred, nil, []string{"reboot"}},
		"a disk that completes requests, for 20 seconds": {func(p *evidence.Pod, t *evidence.Task) {
			sync(t, disk(p, evidence.Disk{Completed: 7, InFlight: 9, Moved: p.Time}))
		}, "", "", nil, nil},
		"behind a thread that waits for a disk that completes requests": {func(p *evidence.Pod, t *evidence.Task) {
			hangs(t, "rwsem_down_write_slowpath", "rwsem_down_write_slowpath", "down_write")
			writer := task(100, 50, "app", evidence.Uninterruptible, "fsync")
			writer.TID, writer.Pending, writer.UnchangedSince = 102, bitKILL, t.UnchangedSince
			sync(&writer, disk(p, evidence.Disk{Completed: 7, InFlight: 9, Moved: p.Time}))
			p.Tasks = append(p.Tasks, writer)
		}, "", "", nil, nil},
		"a disk that completes requests, for 31 seconds": {func(p *evidence.Pod, t *evidence.Task) {
			p.Time = p.Time.Add(11 * time.Second)
			sync(t, disk(p, evidence.Disk{Completed: 7, InFlight: 9, Moved: p.Time}))
		}, "SlowBlock", diagnose.Inferred, []string{"Wait", "/dev/mapper/vg-data"}, []string{"drain the node"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := cause.Diagnose(killed(tc.change))
			v, _ := d.Verdict()
			text := said(&v)
			if v.Family != tc.family || v.Confidence != tc.confidence {
				t.Fatalf("%s %s, want %s %s: %s", v.Confidence, v.Family, tc.confidence, tc.family, text)
			}
			for _, s := range tc.says {
				if !strings.Contains(text, s) {
					t.Errorf("does not say %q: %s", s, text)
				}
			}
			for _, s := range tc.not {
				if strings.Contains(text, s) {
					t.Errorf("says %q: %s", s, text)
				}
			}
		})
	}
}

// A thread is told though the time did not suffice to look at others, and though its own files were not all read, when that
// cannot change what is said.
func TestPartlyReadSuspects(t *testing.T) {
	fsync := []string{"folio_wait_bit_common", "folio_wait_writeback", "ext4_sync_file"}
	for name, tc := range map[string]struct {
		waited     time.Duration
		wchan      string
		stack      []string
		family     string // "" for silence
		confidence diagnose.Confidence
	}{
		"a FUSE daemon": {10 * time.Second, "request_wait_answer", []string{"request_wait_answer", "fuse_direct_io",
			"vfs_write"}, "FUSE", diagnose.Inferred},
		"a disk that is not known":           {29 * time.Second, fsync[0], fsync, "", ""},
		"a disk that is not known, for long": {30 * time.Second, fsync[0], fsync, "Block", diagnose.Inferred},
		"a lock, and nobody else is seen":    {59 * time.Second, "rwsem_down_write_slowpath", []string{"rwsem_down_write_slowpath", "vfs_write"}, "", ""},
		"a lock, for long": {60 * time.Second, "rwsem_down_write_slowpath", []string{"rwsem_down_write_slowpath",
			"vfs_write"}, "Other", diagnose.Inferred},
		"its stack may not be read":                {2 * time.Minute, fsync[0], nil, "", ""},
		"the kernel's processors, without a stack": {50 * time.Second, "wait_for_completion", nil, "", ""},
	} {
		d := cause.Diagnose(killed(func(p *evidence.Pod, first *evidence.Task) {
			p.Time, p.Node.Kernel = p.Deadline.Add(tc.waited), "6.1.115-1"
			hangs(first, tc.wchan, tc.stack...)
			p.Lack(evidence.Suspects, "7 of 11 suspicious tasks were looked at before the time was over")
		}))
		v, ok := d.Verdict()
		if v.Cause == "Unknown" {
			v, ok = diagnose.Finding{}, false
		}
		if ok != (tc.family != "") || ok && v.Cause != "UninterruptibleSleep" || v.Family != tc.family || v.Confidence != tc.confidence {
			t.Errorf("%s: %s %s/%s, want %s %s: %s", name, v.Confidence, v.Cause, v.Family, tc.confidence, tc.family, v.Message)
		}
		if !d.NotLookedFor("UninterruptibleSleep") {
			t.Errorf("%s: it is ruled out", name)
		}
	}
}

// A thread that waits for a lock may wait for one that waits for the kernel's own processors, and is given as much time.
func TestLockBehindProcessors(t *testing.T) {
	for waited, want := range map[time.Duration]string{20 * time.Second: "", 59 * time.Second: "", 60 * time.Second: "UninterruptibleSleep"} {
		for _, exit := range []bool{false, true} {
			d := cause.Diagnose(killed(func(p *evidence.Pod, first *evidence.Task) {
				p.Time = p.Deadline.Add(waited)
				holder := *first
				holder.PID, holder.TID, holder.Probe = 102, 102, &evidence.Probe{Start: first.Probe.Start}
				hangs(&holder, "wait_for_completion", "wait_for_completion", "__wait_rcu_gp", "synchronize_rcu")
				if exit {
					exits(first, "rwsem_down_write_slowpath", "filp_close")
				} else {
					hangs(first, "rwsem_down_write_slowpath", "rwsem_down_write_slowpath", "down_write")
				}
				p.Tasks = append(p.Tasks, holder)
			}))
			v, _ := d.Verdict()
			if v.Cause == "Unknown" {
				v = diagnose.Finding{}
			}
			if v.Cause != want {
				t.Errorf("%s, exits %t: %s, want %q: %s", waited, exit, v.Cause, want, v.Message)
			}
		}
	}
}

// The same holds of one that exits, that is in execve, or that a zombie stands before.
func TestPartlyReadSuspectsOfOthers(t *testing.T) {
	exiting := func(stack ...string) func(p *evidence.Pod, first *evidence.Task) {
		return func(_ *evidence.Pod, first *evidence.Task) { exits(first, stack...) }
	}
	unread := func(_ *evidence.Pod, first *evidence.Task) { hangs(first, "") }
	behindZombie := func(p *evidence.Pod, first *evidence.Task) {
		th := *first
		th.TID, th.Threads = 102, 2
		th.Probe = &evidence.Probe{Start: first.Probe.Start}
		hangs(&th, "request_wait_answer", "request_wait_answer", "fuse_direct_io", "vfs_write")
		first.State, first.Threads, first.Probe = evidence.Zombie, 2, nil
		p.Tasks = append(p.Tasks, th)
	}
	for name, tc := range map[string]struct {
		waited time.Duration
		change func(p *evidence.Pod, first *evidence.Task)
		want   string
	}{
		"one exits at a FUSE daemon":    {10 * time.Second, exiting("request_wait_answer", "fuse_flush", "filp_close"), "StuckInExit"},
		"one exits at a lock":           {59 * time.Second, exiting("rwsem_down_write_slowpath", "filp_close"), ""},
		"one exits at a lock, for long": {60 * time.Second, exiting("rwsem_down_write_slowpath", "filp_close"), "StuckInExit"},
		"one in execve": {10 * time.Second, func(_ *evidence.Pod, first *evidence.Task) {
			hangs(first, "request_wait_answer", "request_wait_answer", "fuse_flush", "filp_close", "do_close_on_exec", "begin_new_exec")
		}, "StuckInExec"},
		"the stack of one could not be read": {2 * time.Minute, func(p *evidence.Pod, first *evidence.Task) {
			unread(p,
				first)
			first.Probe.Hung = []string{"stack"}
		}, ""},
		"one exits, and its stack may not be read": {2 * time.Minute, func(p *evidence.Pod, first *evidence.Task) {
			exits(first,
				"request_wait_answer")
			unread(p, first)
		}, ""},
		"one behind a zombie": {10 * time.Second, behindZombie, "ThreadStuckBehindZombieLeader"},
		"one behind a zombie, and nothing is known": {2 * time.Minute, func(p *evidence.Pod, first *evidence.Task) {
			behindZombie(p, first)
			unread(p, &p.Tasks[len(p.Tasks)-1])
		}, ""},
	} {
		d := cause.Diagnose(killed(func(p *evidence.Pod, first *evidence.Task) {
			p.Time = p.Deadline.Add(tc.waited)
			tc.change(p, first)
			p.Lack(evidence.Suspects, "7 of 11 suspicious tasks were looked at before the time was over")
		}))
		v, _ := d.Verdict()
		if v.Cause == "Unknown" {
			v = diagnose.Finding{}
		}
		if v.Cause != tc.want {
			t.Errorf("%s: %q, want %q: %s", name, v.Cause, tc.want, v.Message)
		}
	}
}

// A thread that waits for io_uring waits for another thread of its process, as long as one
// lives.
func TestRings(t *testing.T) {
	// A thread of the first process, in state D like it.
	thread := func(first *evidence.Task, tid int, comm string, wchan string, stack ...string) evidence.Task {
		th := *first
		th.TID, th.Comm, th.Pending, th.Probe = tid, comm, bitKILL, &evidence.Probe{Start: first.Probe.Start, Flags: evidence.PFIOWorker}
		hangs(&th, wchan, append([]string{wchan}, stack...)...)
		return th
	}
	onFUSE := func(first *evidence.Task) evidence.Task {
		return thread(first, 102, "iou-wrk-100", "request_wait_answer", "fuse_direct_io", "io_read", "io_issue_sqe", "io_wq_submit_work", "io_wq_worker")
	}
	working := func(p *evidence.Pod, first *evidence.Task) evidence.Task {
		w := thread(first, 102, "iou-wrk-100", "folio_wait_bit_common", "ext4_sync_file", "io_fsync", "io_issue_sqe", "io_wq_submit_work", "io_wq_worker")
		w.UnchangedSince = p.Time
		return w
	}
	for name, tc := range map[string]struct {
		change     func(p *evidence.Pod, first *evidence.Task)
		want       string // "" for silence
		family     string
		confidence diagnose.Confidence
		says, not  []string
	}{
		"its worker hangs": {func(p *evidence.Pod, first *evidence.Task) {
			p.Tasks = append(p.Tasks, onFUSE(first))
		}, "UninterruptibleSleep", "FUSE", diagnose.Inferred, []string{"Thread 102 (iou-wrk-100, io_uring worker of process 100) has a " +
			"pending SIGKILL"}, []string{"more like it", "UV_USE_IO_URING"}},
		"its worker hangs, and it has ended by itself": {func(p *evidence.Pod, first *evidence.Task) {
			first.SharedPending = 0
			p.Tasks = append(p.Tasks, onFUSE(first))
		}, "UninterruptibleSleep", "FUSE", diagnose.Inferred, []string{"Thread 102 "}, nil},
		"the worker of its thread that polls hangs": {func(p *evidence.Pod, first *evidence.Task) {
			w, poller := onFUSE(first), thread(first, 103, "iou-sqp-100", "", "io_uring_cancel_generic", "io_sq_thread")
			w.Comm, poller.State, poller.UnchangedSince = "iou-wrk-103", evidence.Runnable, p.Time // it tries again and again
			first.State, first.Threads, first.Probe = evidence.Zombie, 3, nil
			p.Tasks = append(p.Tasks, w, poller)
		}, "ThreadStuckBehindZombieLeader", "FUSE", diagnose.Inferred, []string{"Thread 102 (iou-wrk-103, io_uring worker of process " +
			"100)"}, []string{"more like it"}},
		"its worker hangs in something unknown": {func(p *evidence.Pod, first *evidence.Task) {
			p.Tasks = append(p.Tasks, thread(first, 102, "iou-wrk-100", "msleep", "ublk_stop_dev", "io_uring_cmd", "io_wq_submit_work", "io_wq_worker"))
		}, "UninterruptibleSleep", "Other", diagnose.Proved, []string{"Thread 102 ", "in msleep"}, []string{"more like it", "UV_USE_IO_URING"}},
		"its worker works": {func(p *evidence.Pod, first *evidence.Task) {
			p.Tasks = append(p.Tasks, working(p, first))
		}, "", "", "", nil, nil},
		"its worker is not known": {func(p *evidence.Pod, first *evidence.Task) {
			w := onFUSE(first)
			w.Probe = nil
			p.Tasks = append(p.Tasks, w)
		}, "", "", "", nil, nil},
		"its thread that polls works": {func(p *evidence.Pod, first *evidence.Task) {
			w := thread(first, 102, "iou-sqp-100", "io_sq_thread")
			w.State, w.UnchangedSince = evidence.Sleeping, p.Time
			p.Tasks = append(p.Tasks, w)
		}, "", "", "", nil, nil},
		"a healthy thread of its process": {func(p *evidence.Pod, first *evidence.Task) {
			w := thread(first, 102, "app", "ep_poll", "do_epoll_wait")
			w.State, w.Probe.Flags = evidence.Sleeping, 0
			p.Tasks = append(p.Tasks, w)
		}, "", "", "", nil, nil},
		"no thread is left": {func(_ *evidence.Pod, _ *evidence.Task) {
		}, "StuckInExit", "IoUring", diagnose.Inferred, []string{"app (PID 100 on the node) cannot finish its " +
			"exit", "Thread 100 (app) is in state ", " in io_wq_put_and_exit ", "Linux 6.1.115-1", "UV_USE_IO_URING=0"}, nil},
		"no thread is left, for 44 seconds": {func(p *evidence.Pod, first *evidence.Task) {
			first.UnchangedSince = p.Time.Add(-44 * time.Second)
		}, "", "", "", nil, nil},
		"no thread is left, and it has ended by itself": {func(_ *evidence.Pod, first *evidence.Task) {
			first.SharedPending = 0
			hangs(first, "io_uring_del_tctx_node", "io_uring_del_tctx_node", "io_uring_clean_tctx", "io_uring_cancel_generic", "do_exit", "__x64_sys_exit_group")
		}, "StuckInExit", "IoUring", diagnose.Inferred, []string{" in io_uring_del_tctx_node "}, nil},
		"all wait for its lock": {func(p *evidence.Pod, first *evidence.Task) {
			hangs(first, "io_uring_del_tctx_node", "io_uring_del_tctx_node", "io_uring_clean_tctx", "io_uring_cancel_generic", "do_exit", "get_signal")
			p.Tasks = append(p.Tasks, thread(first, 102, "iou-sqp-100", "io_sq_thread", "ret_from_fork"))
		}, "UninterruptibleSleep", "IoUring", diagnose.Inferred, []string{"Thread 102 (iou-sqp-100, io_uring worker of process " +
			"100)", " in io_sq_thread ", "Linux 6.1.115-1"}, nil},
		"it waits for its lock and does not exit": {func(_ *evidence.Pod, first *evidence.Task) {
			hangs(first, "__do_sys_io_uring_enter", "__do_sys_io_uring_enter", "do_syscall_64")
		}, "UninterruptibleSleep", "IoUring", diagnose.Inferred, []string{` in "__do_sys_io_uring_enter" `}, nil},
		"another process of the container hangs in something unknown": {func(p *evidence.Pod, first *evidence.Task) {
			o := thread(first, 200, "job", "msleep", "ublk_stop_dev", "io_uring_cmd", "io_submit_sqes", "__do_sys_io_uring_enter")
			o.PID, o.PPID, o.Probe.Flags = 200, 100, 0
			p.Tasks = append(p.Tasks, o)
		}, "UninterruptibleSleep", "Other", diagnose.Proved, []string{"job (PID 200 on the node, thread in D state)", "Thread 200 (job)"}, nil},
		"another process of the container, which may share its ring, works": {func(p *evidence.Pod, first *evidence.Task) {
			o := working(p, first)
			o.PID, o.TID, o.PPID, o.Comm, o.Probe.Flags = 200, 200, 100, "job", 0
			p.Tasks = append(p.Tasks, o)
		}, "", "", "", nil, nil},
		"a process of the node, which may share its ring, hangs": {func(p *evidence.Pod, first *evidence.Task) {
			o := thread(first, 300, "holder", "folio_wait_bit_common", "filemap_fault", "io_pin_pages", "io_sqe_buffers_register", "__do_sys_io_uring_register")
			o.PID, o.Pending, o.SharedPending, o.Container, o.Probe.Flags = 300, 0, 0, "", 0
			p.Node.Blocked = append(p.Node.Blocked, o)
		}, "", "", "", nil, nil},
		"another process of the pod was not looked at, which may share its ring": {func(p *evidence.Pod, first *evidence.Task) {
			hangs(first, "__do_sys_io_uring_enter", "__do_sys_io_uring_enter", "do_syscall_64")
			o := onFUSE(first)
			o.PID, o.TID, o.PPID, o.Comm, o.Probe = 200, 202, 100, "iou-wrk-200", nil
			p.Tasks = append(p.Tasks, o)
			p.Lack(evidence.Suspects, "7 of 11 suspicious tasks were looked at before the time was over")
		}, "", "", "", nil, nil},
		"a process of another pod hangs at work in io_uring": {func(p *evidence.Pod, first *evidence.Task) {
			o := thread(first, 300, "iou-wrk-299", "request_wait_answer", "fuse_direct_io", "io_read", "io_issue_sqe", "io_wq_submit_work", "io_wq_worker")
			o.PID, o.Pending, o.SharedPending, o.Container, o.Owner = 299, 0, 0, "", "1c4ddc3e-1111-4222-8333-444455556666"
			p.Node.Blocked = append(p.Node.Blocked, o)
		}, "StuckInExit", "IoUring", diagnose.Inferred, nil, nil},
		"a process of the node hangs in something else": {func(p *evidence.Pod, first *evidence.Task) {
			o := thread(first, 300, "other", "rpc_wait_bit_killable", "nfs4_file_flush", "filp_close")
			o.PID, o.Pending, o.SharedPending, o.Container, o.Probe.Flags = 300, 0, 0, "", 0
			p.Node.Blocked = append(p.Node.Blocked, o)
		}, "StuckInExit", "IoUring", diagnose.Inferred, nil, nil},
		// What these wait for can be a disk, a server or a FUSE daemon that no thread shows: direct I/O needs none.
		"its requests do not end, and nothing works on them": {func(_ *evidence.Pod, first *evidence.Task) {
			hangs(first, "io_uring_cancel_generic", "io_uring_cancel_generic", "do_exit", "do_group_exit", "get_signal")
		}, "StuckInExit", "Other", diagnose.Inferred, []string{" in io_uring_cancel_generic "}, []string{"UV_USE_IO_URING", "newer kernel"}},
		"its thread that polls waits for them and has a lock that it wants": {func(p *evidence.Pod, first *evidence.Task) {
			hangs(first, "io_uring_del_tctx_node", "io_uring_del_tctx_node", "io_uring_clean_tctx", "io_uring_cancel_generic", "do_exit", "get_signal")
			p.Tasks = append(p.Tasks, thread(first, 102, "iou-sqp-100", "io_uring_cancel_generic", "io_sq_thread", "ret_from_fork"))
		}, "UninterruptibleSleep", "Other", diagnose.Inferred, []string{" in io_uring_cancel_generic "}, []string{"UV_USE_IO_URING", "newer kernel"}},
		"that of another process of the container does": {func(p *evidence.Pod, first *evidence.Task) {
			hangs(first, "io_sq_thread_park", "io_sq_thread_park", "io_uring_del_tctx_node", "io_uring_clean_tctx", "io_uring_cancel_generic", "do_exit", "get_signal")
			o := thread(first, 202, "iou-sqp-200", "io_uring_cancel_generic", "io_sq_thread", "ret_from_fork")
			o.PID, o.Pending, o.SharedPending = 200, 0, 0
			p.Tasks = append(p.Tasks, o)
		}, "StuckInExit", "Other", diagnose.Inferred, nil, []string{"UV_USE_IO_URING", "newer kernel"}},
		"the same in execve": {func(_ *evidence.Pod, first *evidence.Task) {
			first.Pending = bitKILL
			hangs(first, "io_uring_cancel_generic", "io_uring_cancel_generic", "__io_uring_cancel", "begin_new_exec", "load_elf_binary")
		}, "StuckInExec", "Other", diagnose.Inferred, nil, []string{"UV_USE_IO_URING"}},
		"its workers are threads of the kernel": {func(p *evidence.Pod, _ *evidence.Task) {
			p.Node.Kernel = "5.10.225-213.878.amzn2.x86_64"
		}, "StuckInExit", "Other", diagnose.Inferred, nil, []string{"UV_USE_IO_URING", "newer kernel"}},
		"the kernel is not known": {func(p *evidence.Pod, _ *evidence.Task) {
			p.Node.Kernel = ""
		}, "StuckInExit", "Other", diagnose.Inferred, nil, []string{"UV_USE_IO_URING", "newer kernel"}},
		"a thread of its process is not seen": {func(_ *evidence.Pod, first *evidence.Task) {
			first.Threads = 2
		}, "", "", "", nil, nil},
		"its process waits for results, and lives": {func(p *evidence.Pod, first *evidence.Task) {
			th := thread(first, 102, "app", "io_uring_del_tctx_node", "io_uring_clean_tctx", "io_uring_cancel_generic", "do_exit", "__x64_sys_exit")
			th.Pending, th.SharedPending, th.Probe.Flags = 0, 0, 0
			first.State, first.SharedPending, first.Ignored, first.Probe.Syscall = evidence.Sleeping, 0, bitTERM, "io_uring_enter"
			hangs(first, "io_cqring_wait", "io_cqring_wait", "__do_sys_io_uring_enter")
			p.Tasks = append(p.Tasks, th)
		}, "", "", "", nil, nil},
		"its worker waits for a disk that may be slow": {func(p *evidence.Pod, first *evidence.Task) {
			w := working(p, first)
			w.UnchangedSince = p.Time.Add(-20 * time.Second)
			p.Tasks = append(p.Tasks, w)
		}, "", "", "", nil, nil},
		"one of its workers waits for it, and another for a lock of the file": {func(p *evidence.Pod, first *evidence.Task) {
			w, o := working(p, first), thread(first, 103, "iou-wrk-100", "rwsem_down_write_slowpath", "io_write", "io_issue_sqe", "io_wq_submit_work", "io_wq_worker")
			w.UnchangedSince, o.UnchangedSince = p.Time.Add(-20*time.Second), p.Time.Add(-20*time.Second)
			p.Tasks = append(p.Tasks, w, o)
		}, "", "", "", nil, nil},
		"the first process waits for another one, whose worker works": {func(p *evidence.Pod, first *evidence.Task) {
			o, w := *first, working(p, first)
			probe := *first.Probe
			o.PID, o.TID, o.PPID, o.NSpid, o.Comm, o.Threads, o.Probe = 200, 200, 100, []int{200, 2}, "db", 2, &probe
			w.PID, w.TID, w.PPID, w.NSpid, w.Comm, w.Threads = 200, 202, 100, []int{202, 3}, "iou-wrk-200", 2
			ends(first)
			p.Tasks = append(p.Tasks, o, w)
		}, "", "", "", nil, nil},
		"the first process waits for another one, whose worker is not known": {func(p *evidence.Pod, first *evidence.Task) {
			o, w := *first, working(p, first)
			probe := *first.Probe
			o.PID, o.TID, o.PPID, o.NSpid, o.Comm, o.Threads, o.Probe = 200, 200, 100, []int{200, 2}, "db", 2, &probe
			w.PID, w.TID, w.PPID, w.NSpid, w.Comm, w.Threads, w.Probe, w.UnchangedSince = 200, 202, 100, []int{202, 3}, "iou-wrk-200", 2, nil, p.Deadline
			ends(first)
			p.Tasks = append(p.Tasks, o, w)
		}, "PIDNamespaceReapWait", "Member", diagnose.Proved, []string{"db (PID 200 on the node) was killed", "Process 200 (db) of this namespace is in state D"}, nil},
		"its worker waits for a disk": {func(p *evidence.Pod, first *evidence.Task) {
			w := working(p, first)
			w.UnchangedSince = p.Time.Add(-31 * time.Second)
			p.Tasks = append(p.Tasks, w)
		}, "UninterruptibleSleep", "Block", diagnose.Inferred, []string{"Thread 102 ", "whether it is only slow"}, nil},
		"a mount that its last call worked on": {func(_ *evidence.Pod, first *evidence.Task) {
			first.Probe.Syscall, first.Probe.Via = "read", "fd 3"
			first.Probe.Mount = &evidence.Mount{Device: "254:3", Point: "/data", Type: "ext4", Source: "/dev/vdb"}
		}, "StuckInExit", "IoUring", diagnose.Inferred, nil, []string{"/dev/vdb", "/data"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := cause.Diagnose(killed(func(p *evidence.Pod, first *evidence.Task) {
				p.Time = p.Deadline.Add(100 * time.Second)
				p.Node.Kernel = "6.1.115-1"
				first.Pending = 0
				hangs(first, "io_wq_put_and_exit", "io_wq_put_and_exit", "io_uring_clean_tctx", "io_uring_cancel_generic", "do_exit", "do_group_exit", "get_signal")
				tc.change(p, first)
			}))
			v, _ := d.Verdict()
			text := said(&v)
			if v.Cause == diagnose.Unrecognised.Cause {
				v = diagnose.Finding{} // nothing is said of what holds it up
			}
			if v.Cause != tc.want || v.Family != tc.family || v.Confidence != tc.confidence {
				t.Fatalf("%s %s %s, want %s %s %s: %s", v.Confidence, v.Cause, v.Family, tc.confidence, tc.want, tc.family, text)
			}
			for _, s := range tc.says {
				if !strings.Contains(text, s) {
					t.Errorf("does not say %q: %s", s, text)
				}
			}
			for _, s := range tc.not {
				if strings.Contains(text, s) {
					t.Errorf("says %q: %s", s, text)
				}
			}
		})
	}
}

// What is frozen in a group that a container has made holds only the tasks in it.
func TestNestedFrozenGroup(t *testing.T) {
	inner := evidence.Cgroup{Path: "/kubepods/podu/c/inner", Version: 2, Container: "c", Frozen: true, FrozenBy: "/kubepods/podu/c/inner"}
	for name, tc := range map[string]struct {
		pod  *evidence.Pod
		want string
	}{
		"the first process is outside": {stopping(func(p *evidence.Pod, first *evidence.Task) {
			first.Caught = bitTERM
			p.Cgroups = append(p.Cgroups, inner)
			child := task(101, 100, "job", evidence.Sleeping, "")
			child.Cgroup = inner.Path
			p.Tasks = append(p.Tasks, child)
		}), ""},
		"the first process is inside": {stopping(func(p *evidence.Pod, first *evidence.Task) {
			first.Caught, first.Cgroup = bitTERM, inner.Path
			p.Cgroups = append(p.Cgroups, inner)
		}), "ContainerFrozen"},
		"a group of a similar name": {stopping(func(p *evidence.Pod, first *evidence.Task) {
			first.Caught, first.Cgroup = bitTERM, inner.Path+"2"
			p.Cgroups = append(p.Cgroups, inner)
		}), ""},
		"an unkillable task beside a frozen group": {killed(func(p *evidence.Pod, _ *evidence.Task) {
			p.Cgroups = []evidence.Cgroup{{Path: "/kubepods/podu/c", Version: 2, Container: "c"}, inner}
		}), "UninterruptibleSleep"},
	} {
		d := cause.Diagnose(tc.pod)
		if v, _ := d.Verdict(); v.Cause != tc.want {
			t.Errorf("%s: verdict %q, want %q: %s", name, v.Cause, tc.want, v.Message)
		}
	}
}

// A finalizer is what the pod waits for when nothing else has been left for long
// enough, whatever the deadline was.
func TestFinalizerAfterTheNode(t *testing.T) {
	for name, tc := range map[string]struct {
		overdue, alone time.Duration
		want           string
	}{
		"the node's work ended late":                    {time.Minute, 5 * time.Second, ""},
		"the controller has had time":                   {time.Minute, 20 * time.Second, "FinalizersPending"},
		"the first reading":                             {time.Minute, 0, ""},
		"the node's clock is behind, and the pod ended": {-2 * time.Second, 20 * time.Second, ""},
	} {
		p := stopping(func(p *evidence.Pod, _ *evidence.Task) {
			p.Time = p.Deadline.Add(tc.overdue)
			p.UnchangedSince = p.Time.Add(-tc.alone)
			p.Phase, p.GracePeriodSeconds, p.Finalizers = "Succeeded", 0, []string{"example.com/block"}
			p.Cgroups, p.Tasks, p.Containers[0].State = nil, nil, evidence.StateExited
		})
		d := cause.Diagnose(p)
		if v, _ := d.Verdict(); d.Phase != diagnose.Finalizers || v.Cause != tc.want {
			t.Errorf("%s: %s, verdict %q, want %q", name, d.Phase, v.Cause, tc.want)
		}
	}
}

// Writing to the control group of a container that containerd has paused leaves it paused
// for containerd. A shim that has not said so may be late.
func TestFrozenThaw(t *testing.T) {
	for status, want := range map[string]struct{ resume, thaw bool }{
		"paused":  {true, false},
		"pausing": {true, false},
		"running": {false, true},
		"":        {true, true},
	} {
		d := cause.Diagnose(stopping(func(p *evidence.Pod, t *evidence.Task) {
			p.Cgroups[0].Frozen, t.Caught, p.Containers[0].Task.Status = true, bitTERM, status
		}))
		v, _ := d.Verdict()
		if got := strings.Contains(v.Remedy, "task resume"); v.Cause != "ContainerFrozen" || got != want.resume {
			t.Errorf("%q: %s: %s", status, v.Cause, v.Remedy)
		}
		if got := strings.Contains(v.Remedy, "echo 0 > /sys/fs/cgroup/"); got != want.thaw {
			t.Errorf("%q: %s", status, v.Remedy)
		}
	}
	// A group above is not containerd's.
	d := cause.Diagnose(stopping(func(p *evidence.Pod, t *evidence.Task) {
		p.Cgroups[0].Frozen, p.Cgroups[0].FrozenBy, t.Caught, p.Containers[0].Task.Status = true, "/kubepods.slice", bitTERM, ""
	}))
	v, _ := d.Verdict()
	if v.Cause != "ContainerFrozen" || strings.Contains(v.Remedy, "task resume") {
		t.Errorf("above: %s: %s", v.Cause, v.Remedy)
	}
}

// A deadline is told while it is to come, and when the kubelet goes by it.
func TestFrozenDeadline(t *testing.T) {
	frozen := func(p *evidence.Pod) {
		p.Cgroups[0].Frozen, p.Tasks[0].Caught = true, bitTERM
	}
	kubelet := func(p *evidence.Pod, started time.Time) {
		p.Node.Kubelet = evidence.KubeletService{Health: "ok", Process: &evidence.Task{PID: 5, TID: 5, State: evidence.Sleeping,
			Probe: &evidence.Probe{Started: started}}}
	}
	for name, tc := range map[string]struct {
		change func(p *evidence.Pod)
		tells  bool
	}{
		"in the grace period":            {func(*evidence.Pod) {}, true},
		"the kubelet was there before":   {func(p *evidence.Pod) { kubelet(p, requested.Add(-time.Hour)) }, true},
		"the kubelet was started since":  {func(p *evidence.Pod) { kubelet(p, requested.Add(5*time.Second)) }, false},
		"another deadline may have been": {func(p *evidence.Pod) { p.DeadlineUnsure = true }, false},
		"it has passed":                  {func(p *evidence.Pod) { p.Time = p.Deadline.Add(2 * time.Second) }, false},
	} {
		d := cause.Diagnose(stopping(func(p *evidence.Pod, _ *evidence.Task) { frozen(p); tc.change(p) }))
		v, _ := d.Verdict()
		if v.Cause != "ContainerFrozen" || strings.Contains(v.Message, "SIGKILL ends them at ") != tc.tells || strings.Contains(v.Message, "DEADLINE") {
			t.Errorf("%s: %s: %s", name, v.Cause, v.Message)
		}
	}
}

// Nobody is accused by a deadline that the kubelet does not go by, or for the seconds
// by which clocks differ.
func TestDeadlineInDoubt(t *testing.T) {
	dropped := func(change func(p *evidence.Pod)) *evidence.Pod {
		return stopping(func(p *evidence.Pod, _ *evidence.Task) {
			p.Time = p.Deadline.Add(-4 * time.Second)
			change(p)
		})
	}
	for name, tc := range map[string]struct {
		change func(p *evidence.Pod)
		want   string
	}{
		"known":                        {func(*evidence.Pod) {}, "SignalDroppedByPID1"},
		"a second deletion":            {func(p *evidence.Pod) { p.DeadlineUnsure = true }, ""},
		"clocks that were compared":    {func(p *evidence.Pod) { p.Time = p.Deadline.Add(-2 * time.Second); p.SetSkew(0, 0) }, "SignalDroppedByPID1"},
		"clocks that may differ":       {func(p *evidence.Pod) { p.Time = p.Deadline.Add(-2 * time.Second) }, ""},
		"clocks that differ by 5 s":    {func(p *evidence.Pod) { p.SetSkew(5*time.Second, 5*time.Second) }, ""}, // it is over by now
		"clocks that differ by -100 s": {func(p *evidence.Pod) { p.SetSkew(-100*time.Second, -100*time.Second) }, ""},
	} {
		d := cause.Diagnose(dropped(tc.change))
		if v, _ := d.Verdict(); v.Cause != tc.want {
			t.Errorf("%s: verdict %q, want %q: %s", name, v.Cause, tc.want, v.Message)
		}
	}
	late := stopping(func(p *evidence.Pod, _ *evidence.Task) {
		p.Phase, p.Time, p.UnchangedSince = "Succeeded", p.Deadline.Add(90*time.Second), p.Deadline
		p.Cgroups = nil
		p.Node.Kubelet.Process = &evidence.Task{PID: 5, TID: 5, State: evidence.Sleeping, Probe: &evidence.Probe{Started: requested.Add(time.Minute)}}
	})
	if d := cause.Diagnose(late); len(d.Findings) > 0 {
		t.Errorf("a kubelet that was started anew waits for the whole grace period again: %+v", d.Findings)
	}
	late.Node.Kubelet.Process = nil
	if d := cause.Diagnose(late); len(d.Findings) != 1 {
		t.Errorf("stuck for 90 s: %+v", d.Findings)
	}
	lives := stopping(func(p *evidence.Pod, t *evidence.Task) {
		t.Caught, p.Time, p.UnchangedSince = bitTERM, p.Deadline.Add(90*time.Second), p.Deadline
		p.Node.Containerd.ConnectedSince = requested.Add(31 * time.Second)
	})
	if d := cause.Diagnose(lives); len(d.Findings) > 0 {
		t.Errorf("the kubelet asks a containerd that was started anew to wait for the whole grace period again: %+v", d.Findings)
	}
	lives.Node.Containerd.ConnectedSince = requested.Add(29 * time.Second)
	if d := cause.Diagnose(lives); len(d.Findings) != 1 {
		t.Errorf("a grace period and a minute have passed since containerd was started: %+v", d.Findings)
	}
	lives.StopBegun, lives.StopAwaitedUntil = true, requested.Add(31*time.Second)
	if d := cause.Diagnose(lives); len(d.Findings) > 0 {
		t.Errorf("a kubelet that has begun late gives the whole grace period: %+v", d.Findings)
	}
	lives.StopAwaitedUntil = requested.Add(29 * time.Second)
	if d := cause.Diagnose(lives); len(d.Findings) != 1 {
		t.Errorf("a grace period and a minute have passed since the kubelet has begun: %+v", d.Findings)
	}
	killed := stopping(func(p *evidence.Pod, t *evidence.Task) {
		p.Time, p.UnchangedSince, t.SharedPending = p.Deadline.Add(90*time.Second), p.Deadline, bitKILL
		p.Node.Containerd.ConnectedSince = requested.Add(31 * time.Second)
	})
	if d := cause.Diagnose(killed); len(d.Findings) != 1 {
		t.Errorf("what has been killed does not wait for the grace period again: %+v", d.Findings)
	}
	// A pod that was deleted hours before need not stand still for hours.
	hours := requested.Add(10 * time.Hour)
	for name, change := range map[string]func(p *evidence.Pod){
		"an agent that comes late":      func(p *evidence.Pod) { p.Node.Containerd.ConnectedSince = hours },
		"a kubelet that has begun late": func(p *evidence.Pod) { p.StopBegun, p.StopAwaitedUntil = true, hours },
		"a kubelet that was started anew": func(p *evidence.Pod) {
			p.Node.Kubelet.Process = &evidence.Task{PID: 5, TID: 5, State: evidence.Sleeping, Probe: &evidence.Probe{Started: hours}}
		},
	} {
		p := stopping(func(p *evidence.Pod, t *evidence.Task) {
			t.Caught, p.Time, p.UnchangedSince = bitTERM, hours.Add(20*time.Minute), hours
			change(p)
		})
		if v, _ := ptr(cause.Diagnose(p)).Verdict(); v.Cause != "Unknown" {
			t.Errorf("20 minutes after %s: %q", name, v.Cause)
		}
	}
}

// A kubelet that has begun late gives the whole grace period, and SIGKILL comes that much later.
func TestKilledLate(t *testing.T) {
	for until, want := range map[time.Duration]string{14 * time.Second: "SIGKILL is due at 03:00:44 " +
		"UTC", 2 * time.Second: "SIGKILL is due at 03:00:30 UTC"} {
		p := stopping(func(p *evidence.Pod, _ *evidence.Task) {
			p.Time, p.StopBegun, p.StopAwaitedUntil = requested.Add(20*time.Second), true, requested.Add(until)
		})
		if v, _ := ptr(cause.Diagnose(p)).Verdict(); !strings.Contains(v.Message, want) {
			t.Errorf("begun after %s: %q, want %q", until, v.Message, want)
		}
	}
}

// A tracer and a parent outside are given time: a node without a processor to spare
// lets them wait for their turn.
func TestSlowHolders(t *testing.T) {
	for name, tc := range map[string]struct {
		since   time.Duration
		state   evidence.TaskState
		starved bool
		told    bool
	}{
		"for 5 s":                      {5 * time.Second, evidence.Sleeping, false, false},
		"for 11 s":                     {11 * time.Second, evidence.Sleeping, false, true},
		"for 20 s, on a starved node":  {20 * time.Second, evidence.Runnable, true, false},
		"stopped for 11 s, on one too": {11 * time.Second, evidence.Stopped, true, true},
	} {
		pod := func(change func(p *evidence.Pod, first *evidence.Task)) *evidence.Pod {
			return killed(func(p *evidence.Pod, first *evidence.Task) {
				p.Node.Pressure = &evidence.Pressure{}
				if tc.starved {
					p.Node.Pressure.StarvedUntil = p.Time
				}
				outside(p, 70, "gdb", tc.state)
				change(p, first)
			})
		}
		for want, p := range map[string]*evidence.Pod{
			"ZombieHeldByTracer": pod(func(p *evidence.Pod, first *evidence.Task) {
				first.State, first.TracerPID, first.Probe, first.UnchangedSince = evidence.Zombie, 70, nil, p.Time.Add(-tc.since)
			}),
			"PIDNamespaceReapWait": pod(func(p *evidence.Pod, first *evidence.Task) {
				ends(first)
				z := member(p, 70)
				z.UnchangedSince = p.Time.Add(-tc.since)
				p.Tasks = append(p.Tasks, z)
			}),
		} {
			d := cause.Diagnose(p)
			if v, _ := d.Verdict(); (v.Cause == want) != tc.told {
				t.Errorf("%s %s: verdict %q: %s", want, name, v.Cause, v.Message)
			}
		}
	}
}

// Nobody is told to end a shim, however a program got it to be its tracer or the
// parent of what it waits for.
func TestEssentialHolders(t *testing.T) {
	shim := evidence.Task{PID: 50, TID: 50, Comm: "containerd-shim", State: evidence.Sleeping, Owner: "shim"}
	for name, p := range map[string]*evidence.Pod{
		"ProcessTraced": stopping(func(p *evidence.Pod, first *evidence.Task) {
			first.State, first.TracerPID, first.Caught = evidence.Traced, 50, bitTERM
			p.Parents = append(p.Parents, shim)
		}),
		"PIDNamespaceReapWait": killed(func(p *evidence.Pod, first *evidence.Task) {
			ends(first)
			p.Tasks = append(p.Tasks, member(p, 50))
			p.Parents = append(p.Parents, shim)
		}),
	} {
		d := cause.Diagnose(p)
		v, _ := d.Verdict()
		if v.Cause != name || !strings.Contains(v.Remedy, "Do not end") || strings.Contains(said(&v), "kill ") {
			t.Errorf("%s: %s: %s", name, v.Cause, v.Remedy)
		}
	}
}
