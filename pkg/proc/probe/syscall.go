package probe

import (
	"bytes"
	"errors"
	"strconv"
)

//go:generate go run gensyscalls.go

// A Call is what /proc/PID/task/TID/syscall says: the system call that a task
// is blocked in, with its arguments as they were when it began.
type Call struct {
	// Name is "" when the task is in no system call, or in one unknown here.
	Name string    `json:"name,omitempty"`
	Args [6]uint64 `json:"args"`
	// Outside says that the task is blocked, but in no system call: it faulted
	// on a page, or it was stopped in user mode.
	Outside bool `json:"outside,omitempty"`
}

var errSyscall = errors.New("a syscall file of unknown form")

// parseSyscall parses a syscall file (fs/proc/base.c, proc_pid_syscall), which
// is one of
//
//	running
//	-1 sp pc
//	number a0 a1 a2 a3 a4 a5 sp pc
//
// A task of a 32-bit program numbers its calls differently, and the file does
// not say so. Its stack lies below 4 GiB, where that of a 64-bit one does not,
// so that for such a stack no name is given rather than a wrong one. A thread that
// io_uring has started shows the call in which it was started, with no stack at all
// (copy_thread, arch/x86/kernel/process.c).
func parseSyscall(b []byte) (Call, error) {
	f := bytes.Fields(b)
	if len(f) == 1 && string(f[0]) == "running" {
		return Call{}, nil
	}
	if len(f) != 3 && len(f) != 9 {
		return Call{}, errSyscall
	}
	n, err := strconv.ParseInt(string(f[0]), 10, 64)
	if err != nil {
		return Call{}, errSyscall
	}
	var v [8]uint64
	for i, t := range f[1:] {
		if v[i], err = strconv.ParseUint(string(bytes.TrimPrefix(t, []byte("0x"))), 16, 64); err != nil {
			return Call{}, errSyscall
		}
	}
	if len(f) == 3 {
		// A zombie shows "-1 0x0 0x0".
		return Call{Outside: n == -1 && v[1] != 0}, nil
	}
	c := Call{Args: [6]uint64(v[:6])}
	sp := v[6]
	if n >= 0 && n < int64(len(syscallNames)) && sp >= 1<<32 {
		c.Name = syscallNames[n]
	}
	return c, nil
}

// An Operand is where a system call has the file or path that it works on. The numbers are
// indexes of arguments, -1 where there is none.
type Operand struct {
	FD    int // the file descriptor that the call works on
	Path  int // the path
	DirFD int // what the path is relative to; -1 for the working directory
}

// Operands lists the operands of a system call; none for one that works on no
// file, or on one that is not certain any more when the call blocks: close
// takes its descriptor out of the table first, and the threads of exit and the
// descriptors closed by execve leave no trace.
func Operands(name string) []Operand {
	fd := func(args ...int) []Operand {
		var out []Operand
		for _, a := range args {
			out = append(out, Operand{FD: a, Path: -1, DirFD: -1})
		}
		return out
	}
	path := func(arg int) []Operand { return []Operand{{FD: -1, Path: arg, DirFD: -1}} }
	at := func(dirfd, arg int) []Operand { return []Operand{{FD: -1, Path: arg, DirFD: dirfd}} }
	switch name {
	case "read", "pread64", "readv", "preadv", "preadv2", "write", "pwrite64", "writev", "pwritev", "pwritev2",
		"fsync", "fdatasync", "sync_file_range", "syncfs", "fallocate", "ftruncate", "fadvise64", "readahead", "cachestat",
		"getdents", "getdents64", "lseek", "ioctl", "flock", "fcntl", "fstat", "fstatfs", "fchmod", "fchown", "fchdir",
		"fsetxattr", "fgetxattr", "flistxattr", "fremovexattr", "vmsplice":
		return fd(0)
	case "sendfile":
		return fd(0, 1)
	case "copy_file_range", "splice":
		return fd(0, 2)
	case "open", "creat", "stat", "lstat", "access", "truncate", "statfs", "mkdir", "rmdir", "unlink", "readlink",
		"chmod", "chown", "lchown", "chdir", "chroot", "mknod", "utime", "utimes", "uselib", "acct", "swapon", "swapoff",
		"setxattr", "lsetxattr", "getxattr", "lgetxattr", "listxattr", "llistxattr", "removexattr", "lremovexattr",
		"umount2", "execve":
		return path(0)
	case "mount", "inotify_add_watch", "symlink":
		return path(1)
	case "rename", "link":
		return append(path(0), path(1)...)
	case "openat", "openat2", "mkdirat", "mknodat", "fchownat", "futimesat", "newfstatat", "unlinkat", "readlinkat",
		"fchmodat", "fchmodat2", "faccessat", "faccessat2", "utimensat", "statx", "name_to_handle_at", "execveat",
		"open_tree", "fspick", "setxattrat", "getxattrat", "listxattrat", "removexattrat", "file_getattr", "file_setattr":
		return at(0, 1)
	case "symlinkat":
		return at(1, 2)
	case "renameat", "renameat2", "linkat":
		return append(at(0, 1), at(2, 3)...)
	}
	return nil
}
