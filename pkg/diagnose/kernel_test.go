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
	p.Parents = append(p.Parents, evidence.Task{PID: pid, TID: pid, Comm: comm, State: state, OwnerName: "tools/debugger", Probe: &evidence.Probe{Start: uint64(10 * pid)}})
}

func TestKernelCauses(t *testing.T) {
	nfs := evidence.Mount{Device: "0:50", Point: "/data", Type: "nfs4", Source: "192.0.2.1:/export", Server: "192.0.2.1", Unanswered: new(int), Connection: "SYN_SENT"}
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
		"daemon silent for 20 seconds": {func(*evidence.Pod, *evidence.Task) {}, "UninterruptibleSleep", []string{"/sys/fs/fuse/connections/N/"}},
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
		"NFS server that acknowledges, for 11 seconds":  {connected(0, 11*time.Second), "UninterruptibleSleep", []string{"192.0.2.1:/export, requests without an answer)"}},
		"NFS server that acknowledges nothing":          {connected(3, 4*time.Second), "UninterruptibleSleep", []string{"the server acknowledges nothing"}},
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
		}, "UninterruptibleSleep", []string{"source /dev/mapper/data", "kernel's thread jbd2/dm-3-8 waits too"}},
		"another device's journal": {func(p *evidence.Pod, t *evidence.Task) {
			onDisk(t)
			t.Probe.Mount = &disk
			kernelThread(p, "jbd2/dm-4-8")
		}, "UninterruptibleSleep", []string{"source /dev/mapper/data)"}},
		"device without a mount": {func(p *evidence.Pod, t *evidence.Task) {
			onDisk(t)
			kernelThread(p, "kworker/u8:2+flush-8:16")
			kernelThread(p, "kworker/u8:3+flush-8:16")
		}, "UninterruptibleSleep", []string{"on the device 8:16", "Bring the device 8:16 back"}},
		"two devices without a mount": {func(p *evidence.Pod, t *evidence.Task) {
			onDisk(t)
			kernelThread(p, "xfsaild/sdb")
			kernelThread(p, "jbd2/sdc1-8")
		}, "UninterruptibleSleep", []string{"folio_wait_bit_common."}},

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
		}, "StuckInExit", []string{"process 100 (app)", "thread 102"}},

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
		}, "ZombieHeldByTracer", []string{"gdb (PID 70, of pod tools/debugger), which is stopped, traces it", "grep -qx 700 && kill -CONT 70 || echo not sent;"}},
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
		}, "PIDNamespaceReapWait", []string{"process 101 (sh) is a zombie", "nsenter (PID 70, of pod tools/debugger)"}},
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
		}, "UninterruptibleSleep", []string{"thread 101 (dd)"}},
		"member is still there": {func(p *evidence.Pod, t *evidence.Task) {
			ends(t)
			p.Tasks = append(p.Tasks, task(101, 100, "dd", evidence.Sleeping, ""))
		}, "PIDNamespaceReapWait", []string{"process 101 (dd, state S) is still there"}},
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
			text := v.Message + ". " + v.Remedy
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
		}, "NFS", diagnose.Inferred, []string{"Bring the NFS server 192.0.2.2 back"}, []string{"192.0.2.1"}},
		"the pod's only NFS volume is well": {func(p *evidence.Pod, t *evidence.Task) {
			onNFS(t)
			well := nfs("192.0.2.1", 0, evidence.Established)
			p.Mounts, t.Probe.Candidates = []evidence.Mount{well}, []evidence.Mount{well}
		}, "NFS", diagnose.Inferred, []string{"Find the NFS server", "on an NFS mount"}, []string{"192.0.2.1"}},
		"a server that is not mounted any more is gone, another one is busy": {func(_ *evidence.Pod, t *evidence.Task) {
			onNFS(t)
			t.Probe.Candidates = []evidence.Mount{nfs("192.0.2.1", 1, evidence.Established)}
		}, "NFS", diagnose.Inferred, []string{"Find the NFS server"}, []string{"192.0.2.1"}},
		"NFS by a path, its server is busy": {func(_ *evidence.Pod, t *evidence.Task) {
			onPath(t, nfs("192.0.2.1", 1, evidence.Established), "rpc_wait_bit_killable", "nfs4_proc_getattr")
		}, "NFS", diagnose.Inferred, nil, []string{"192.0.2.1"}},
		"a proxy of the node is gone": {func(_ *evidence.Pod, t *evidence.Task) {
			onNFS(t)
			m := nfs("127.0.0.1", 3, "SYN_SENT")
			t.Probe.Mount = &m
		}, "NFS", diagnose.Proved, []string{"Bring the program that listens on 127.0.0.1 of this node"}, []string{"Bring the NFS server"}},
		"two servers are gone": {func(_ *evidence.Pod, t *evidence.Task) {
			onNFS(t)
			t.Probe.Candidates = []evidence.Mount{nfs("192.0.2.1", 1, "SYN_SENT"), nfs("192.0.2.2", 3, "SYN_SENT")}
		}, "NFS", diagnose.Inferred, []string{"Find the NFS server"}, []string{"192.0.2.1", "192.0.2.2"}},
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
		}, "FsFrozen", diagnose.Proved, []string{"find out which file system is frozen"}, []string{"mounted at /", "fsfreeze -u /", "vda1"}},
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
			p.Node.Blocked = append(p.Node.Blocked, evidence.Task{PID: 9, TID: 9, Comm: "jbd2/sdb1-8", Kernel: true, State: evidence.Uninterruptible, UnchangedSince: p.Deadline})
		}, "Block", diagnose.Inferred, []string{"the device sdb1"}, []string{"reboot"}},
		"the end of asynchronous I/O": {func(_ *evidence.Pod, t *evidence.Task) {
			exits(t, "exit_aio", "mmput")
		}, "Other", diagnose.Proved, nil, []string{"the device"}},
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
		}, "Block", diagnose.Inferred, nil, []string{"reboot"}},
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
			text := v.Message + ". " + v.Remedy + " " + v.Danger
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
		if got := strings.Contains(v.Remedy, "cgroup.freeze"); got != want.thaw {
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
		p.Node.Kubelet = evidence.KubeletService{Health: "ok", Process: &evidence.Task{PID: 5, TID: 5, State: evidence.Sleeping, Probe: &evidence.Probe{Started: started}}}
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
		if v.Cause != "ContainerFrozen" || strings.Contains(v.Message, "SIGKILL at ") != tc.tells || strings.Contains(v.Message, "DEADLINE") {
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
		if v.Cause != name || !strings.Contains(v.Remedy, "Do not end") || strings.Contains(v.Remedy, "kill ") || strings.Contains(v.Remedy, "or end it") {
			t.Errorf("%s: %s: %s", name, v.Cause, v.Remedy)
		}
	}
}
