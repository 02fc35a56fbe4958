package diagnose

import (
	"strings"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// The families of what an unkillable task waits for. They are names in Docs.
const (
	familyNFS      = "NFS"
	familyCIFS     = "CIFS"
	familyCeph     = "Ceph"
	familyFUSE     = "FUSE"
	familyFsFrozen = "FsFrozen"
	familyGPU      = "GPU"
	familyBlock    = "Block"
	familyOther    = "Other"
)

// stackFamilies tell a family by the start of a kernel function's name. The
// order matters: what names a backend comes before what any file system shows.
var stackFamilies = []struct {
	family   string
	prefixes []string
}{
	{familyFUSE, []string{"fuse_", "request_wait_answer"}},
	{familyNFS, []string{"nfs_", "nfs3_", "nfs4_", "rpc_", "__nfs_", "nlmclnt_"}},
	{familyCIFS, []string{"cifs_", "smb2_", "SMB2_", "smb3_"}},
	{familyCeph, []string{"ceph_", "rbd_"}},
	{familyGPU, []string{"nvidia_", "_nv0", "uvm_", "amdgpu_", "kfd_", "os_acquire_mutex"}},
	{familyBlock, []string{"ext4_", "jbd2_", "xfs_", "xlog_", "btrfs_", "blk_", "blkdev_", "submit_bio", "nbd_", "dm_", "iomap_", "bio_", "wb_wait_for", "folio_wait_writeback"}},
}

// networkTypes maps a network file system's type to its family.
var networkTypes = map[string]string{
	"nfs": familyNFS, "nfs4": familyNFS, "cifs": familyCIFS, "smb3": familyCIFS, "ceph": familyCeph,
}

// FamilyOf says what kind of backend a task in state D waits for, one of a few
// words: NFS, CIFS, Ceph, FUSE, FsFrozen, GPU, Block or Other. It is Other for a
// task that was not probed: threads of the kernel are not, and only the first of
// many others.
func FamilyOf(t *evidence.Task) string { return familyOf(t) }

// familyOf says what kind of backend a probed task waits for, from its kernel
// stack first, because that shows where it is, and its mount second.
func familyOf(t *evidence.Task) string {
	if t.Probe == nil {
		return familyOther
	}
	if frozenFilesystem(t.Probe) {
		return familyFsFrozen
	}
	// What is above a wait for the processors in the stack is not what hangs.
	if waitsForProcessors(t.Probe) {
		return familyOther
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
	if m := backing(t.Probe.Mount); m != nil {
		if f := familyOfType(m.Type); f != "" {
			return f
		}
		if strings.HasPrefix(m.Source, "/dev/") {
			return familyBlock
		}
	}
	return familyOther
}

// familyOfType is the family of a file system that has a server or a daemon, ""
// for others.
func familyOfType(fstype string) string {
	if fstype == "fuse" || strings.HasPrefix(fstype, "fuse.") || fstype == "fuseblk" {
		return familyFUSE
	}
	return networkTypes[fstype]
}

// frozenFilesystem recognises a writer that waits until its file system is
// thawed: sb_start_write sleeps in percpu_rwsem_wait (include/linux/fs.h).
// Another user of such a semaphore does not come from these callers.
func frozenFilesystem(p *evidence.Probe) bool {
	if p.Wchan != "percpu_rwsem_wait" {
		return false
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

// backing is the mount that carries the data: of an overlay its upper one.
func backing(m *evidence.Mount) *evidence.Mount {
	if m != nil && m.Backing != nil {
		return m.Backing
	}
	return m
}

// unknownFunction stands for a kernel function that could not be read.
const unknownFunction = "an unknown function"

// sleepsIn names the kernel function that a task waits in.
func sleepsIn(t *evidence.Task) string {
	if t.Probe == nil {
		return unknownFunction
	}
	if t.Probe.Wchan != "" {
		return t.Probe.Wchan
	}
	for _, fn := range t.Probe.Stack {
		if fn != "" {
			return fn
		}
	}
	return unknownFunction
}

// operatorPoint is the mount point that an operator on the node can name.
func operatorPoint(m *evidence.Mount) string {
	if m.HostPoint != "" {
		return m.HostPoint
	}
	return m.Point
}

// minor is the second part of a device number; of a FUSE mount it is the number
// of its connection (Documentation/filesystems/fuse.rst).
func minor(device string) string {
	_, m, _ := strings.Cut(device, ":")
	return m
}
