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
	{FamilyBlock, []string{"ext4_", "jbd2_", "xfs_", "xlog_", "btrfs_", "blk_", "blkdev_", "submit_bio", "nbd_", "dm_", "iomap_", "bio_", "wb_wait_for", "folio_wait_writeback"}},
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
	if d := diskOf(t.Probe.Mount); d != nil && d.Suspended && (family == FamilyFsFrozen || family == FamilyBlock) {
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
	for _, sf := range stackFamilies {
		for _, fn := range append([]string{t.Probe.Wchan}, t.Probe.Stack...) {
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
	if p.Wchan != "percpu_rwsem_wait" {
		return false
	}
	// What the file system does for itself waits in sb_start_intwrite; deeper in these
	// functions other semaphores of the kind are waited for.
	if i := slices.IndexFunc(p.Stack, func(fn string) bool { return !strings.Contains(fn, "percpu_") }); i >= 0 {
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
