package fact

import (
	"slices"
	"strings"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// The families of what an unkillable task waits for: names in the words of causes
// and a label of the metric of blocked tasks.
const (
	FamilyNFS      = "NFS"
	FamilyCIFS     = "CIFS"
	FamilyCeph     = "Ceph"
	FamilyFUSE     = "FUSE"
	FamilyFsFrozen = "FsFrozen"
	// FamilySuspended is a file system of which the device mapper has suspended the
	// device, with or without freezing it.
	FamilySuspended = "Suspended"
	FamilyGPU       = "GPU"
	FamilyBlock     = "Block"
	// FamilySlowBlock is a block device that completes requests. It takes readings to
	// tell from Block, so FamilyOf does not return it.
	FamilySlowBlock = "SlowBlock"
	// FamilyIoUring is io_uring itself: a lock of it, or the end of requests on which
	// others work. Whether it is to blame, RingAtFault tells.
	FamilyIoUring = "IoUring"
	FamilyOther   = "Other"
)

// stackFamilies tell a family by the start of a kernel function's name. The
// order matters: what names a backend comes before what any file system shows.
var stackFamilies = []struct {
	family   string
	prefixes []string
}{
	{FamilyFUSE, []string{"fuse_", "request_wait_answer"}},
	{FamilyNFS, []string{"nfs_", "nfs3_", "nfs4_", "rpc_", "__nfs_", "nlmclnt_"}},
	{FamilyCIFS, []string{"cifs_", "smb2_", "SMB2_", "smb3_"}},
	{FamilyCeph, []string{"ceph_", "rbd_"}},
	{FamilyGPU, []string{"nvidia_", "_nv0", "uvm_", "amdgpu_", "kfd_", "os_acquire_mutex"}},
	{FamilyBlock, []string{"ext4_", "jbd2_", "xfs_", "xlog_", "btrfs_", "blk_", "blkdev_", "submit_bio", "nbd_", "dm_", "iomap_", "bio_",
		"wb_wait_for", "folio_wait_writeback"}},
}

// networkTypes maps a network file system's type to its family.
var networkTypes = map[string]string{
	"nfs": FamilyNFS, "nfs4": FamilyNFS, "cifs": FamilyCIFS, "smb3": FamilyCIFS, "ceph": FamilyCeph,
}

// FamilyOf returns what kind of backend a task in state D waits for, one of a few
// words: NFS, CIFS, Ceph, FUSE, FsFrozen, Suspended, GPU, Block, IoUring or Other. The kernel stack
// comes first, because it shows where the task is, and its mount second. It is
// Other for a task that was not probed: threads of the kernel are not, and only
// the first of many others.
func FamilyOf(t *evidence.Task) string {
	if t.Probe == nil {
		return FamilyOther
	}
	family := familyOfProbe(t)
	if d := DiskOf(t.Probe.Mount); d != nil && d.Suspended && (family == FamilyFsFrozen || family == FamilyBlock) {
		return FamilySuspended
	}
	return family
}

func familyOfProbe(t *evidence.Task) string {
	if frozenFilesystem(t.Probe) {
		return FamilyFsFrozen
	}
	// What is above a wait for the processors in the stack is not what hangs.
	if waitsForProcessors(t.Probe) {
		return FamilyOther
	}
	functions := append([]string{t.Probe.Wchan}, t.Probe.Stack...)
	for _, sf := range stackFamilies {
		for _, fn := range functions {
			for _, prefix := range sf.prefixes {
				if strings.HasPrefix(fn, prefix) {
					return sf.family
				}
			}
		}
	}
	if waitsForRing(t.Probe) {
		return FamilyIoUring
	}
	if m := Backing(t.Probe.Mount); m != nil {
		if f := FamilyOfType(m.Type); f != "" {
			return f
		}
		if strings.HasPrefix(m.Source, "/dev/") {
			return FamilyBlock
		}
	}
	return FamilyOther
}

// FamilyOfType returns the family of a file system that has a server or a
// daemon, "" for others.
func FamilyOfType(fstype string) string {
	if fstype == "fuse" || strings.HasPrefix(fstype, "fuse.") || fstype == "fuseblk" {
		return FamilyFUSE
	}
	return networkTypes[fstype]
}

// NetworkFamily returns the family of a network file system, "" for others.
func NetworkFamily(fstype string) string { return networkTypes[fstype] }

// frozenFilesystem recognises a writer that waits until its file system is
// thawed: sb_start_write sleeps in percpu_rwsem_wait (include/linux/fs.h).
// Another user of such a semaphore does not come from these callers.
func frozenFilesystem(p *evidence.Probe) bool {
	if !waitsForWriter(p) {
		return false
	}
	// What the file system does for itself waits in sb_start_intwrite; deeper in these
	// functions other semaphores of the kind are waited for.
	if i := slices.IndexFunc(p.Stack, func(fn string) bool { return !strings.Contains(fn, "percpu_") && !slices.Contains(rwsemReader, fn) }); i >= 0 {
		switch p.Stack[i] {
		case "ext4_evict_inode", "xfs_trans_alloc", "sb_start_intwrite":
			return true
		}
	}
	for _, fn := range p.Stack {
		switch fn {
		case "vfs_write", "mnt_want_write", "vfs_iter_write", "sb_start_write", "__sb_start_write",
			"ext4_page_mkwrite", "__xfs_write_fault", "__xfs_filemap_fault", "xfs_filemap_page_mkwrite", "vfs_fallocate",
			"do_iter_write", "do_iter_readv_writev", "vfs_iocb_iter_write", "aio_write", "io_write", "do_sys_ftruncate", "mnt_want_write_file":
			return true
		}
		if strings.HasSuffix(fn, "_page_mkwrite") {
			return true
		}
	}
	return false
}

// rwsemReader are the functions in which a reader of an rwsem waits, from Linux 4.18 to 5.6 (kernel/locking/rwsem.c, rwsem-xadd.c, and
// arch/x86/lib/rwsem.S for the first).
var rwsemReader = []string{"call_rwsem_down_read_failed", "rwsem_down_read_failed", "rwsem_down_read_slowpath", "__down_read", "down_read"}

// waitsForWriter reports whether a task waits for the writer of a percpu_rw_semaphore. Before Linux 5.7 its slow path, __percpu_down_read,
// takes the rwsem inside of it (kernel/locking/percpu-rwsem.c). That is from the source, and was not tried.
func waitsForWriter(p *evidence.Probe) bool {
	if p.Wchan == "percpu_rwsem_wait" {
		return true
	}
	i := slices.Index(p.Stack, "__percpu_down_read")
	return i >= 0 && (p.Wchan == "__percpu_down_read" || slices.Contains(rwsemReader, p.Wchan)) &&
		!slices.ContainsFunc(p.Stack[:i], func(fn string) bool { return !slices.Contains(rwsemReader, fn) })
}

// ringFunctions are how functions of io_uring begin in which a task can wait
// (io_uring/io_uring.c, io-wq.c, tctx.c, cancel.c, sqpoll.c, poll.c).
var ringFunctions = []string{
	"io_uring_", "__io_uring_", "__do_sys_io_uring_", "__x64_sys_io_uring_", "__arm64_sys_io_uring_",
	"io_wq_", "io_worker_exit", "io_ring_", "io_sq_thread", "io_sqd_", "io_cqring_", "__io_cqring_", "io_submit_sqes",
	"io_poll_task_func", "io_req_task_", "io_handle_tw_list", "tctx_task_work",
}

// waitsForRing reports whether a task waits for io_uring itself and not for what a request
// does, by the innermost function: for a ring's lock (uring_lock), or for the end of requests
// and of their workers (io_uring_cancel_generic, io_wq_put_and_exit). The functions that lock
// and wait are in neither wchan nor stack.
func waitsForRing(p *evidence.Probe) bool {
	fn := p.Wchan
	if fn == "" && len(p.Stack) > 0 {
		fn = p.Stack[0]
	}
	return OfRing(fn)
}

// OfRing reports whether a function of the kernel is one of io_uring in which a task can wait.
func OfRing(fn string) bool {
	return slices.ContainsFunc(ringFunctions, func(prefix string) bool { return strings.HasPrefix(fn, prefix) })
}

// Exits reports whether a task is known to be inside do_exit. The requests of io_uring are
// waited for before it gets the flag (do_exit, kernel/exit.c).
func Exits(t *evidence.Task) bool {
	return t.Exiting() || Through(t, "do_exit") && FamilyOf(t) == FamilyIoUring
}

// ZapPIDNS is the kernel function in which the init of a PID namespace waits for
// the others (kernel/pid_namespace.c).
const ZapPIDNS = "zap_pid_ns_processes"

// Through reports whether a task's kernel stack goes through one of the
// functions.
func Through(t *evidence.Task, functions ...string) bool {
	return t.Probe != nil && (slices.Contains(functions, t.Probe.Wchan) ||
		slices.ContainsFunc(t.Probe.Stack, func(fn string) bool { return slices.Contains(functions, fn) }))
}

// SleepsIn returns the kernel function that a task waits in, "" when it could
// not be read.
func SleepsIn(t *evidence.Task) string {
	if t.Probe == nil {
		return ""
	}
	if t.Probe.Wchan != "" {
		return t.Probe.Wchan
	}
	for _, fn := range t.Probe.Stack {
		if fn != "" {
			return fn
		}
	}
	return ""
}

// WaitsForRCU reports whether a task waits until all processors have gone
// through a quiescent state, as the last task of a mount namespace does at its
// end (namespace_unlock, fs/namespace.c), or one that closes an inotify
// descriptor. Where the processors are busy, or emulated, that takes seconds,
// and the kernel itself complains after 21 (Documentation/RCU/stallwarn.rst).
// Readers of SRCU may sleep: these waits can be true hangs and are told later.
func WaitsForRCU(t *evidence.Task) bool {
	return t.Probe != nil && slices.ContainsFunc(append([]string{t.Probe.Wchan}, t.Probe.Stack...), isRCUWait)
}

// waitsForProcessors reports the same without SRCU, behind which a driver or a
// device may stand.
func waitsForProcessors(probe *evidence.Probe) bool {
	waits := func(fn string) bool { return isRCUWait(fn) && !strings.Contains(fn, "srcu") }
	return waits(probe.Wchan) || slices.ContainsFunc(probe.Stack, waits)
}

// isRCUWait knows the functions of kernel/rcu that wait, from Linux 5.14 to 6.18.
func isRCUWait(fn string) bool {
	switch fn {
	case "__wait_rcu_gp", "exp_funnel_lock", "rcu_sync_enter", "srcu_barrier", "cleanup_srcu_struct", "fsnotify_wait_marks_destroyed":
		return true
	}
	for _, prefix := range []string{"synchronize_rcu", "synchronize_srcu", "__synchronize_srcu", "rcu_barrier", "kvfree_rcu_barrier"} {
		if strings.HasPrefix(fn, prefix) {
			return true
		}
	}
	return false
}
