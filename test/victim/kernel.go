package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// again is the pause between two of the operations that a victim repeats.
const again = 100 * time.Millisecond

// kernelVictims are the programs that get stuck, or seem to be, inside the
// kernel.
var kernelVictims = map[string]func(string) error{
	"read": func(path string) error {
		return repeat(path, func(fd int) error {
			_, err := syscall.Pread(fd, make([]byte, 512), 0)
			return err
		})
	},
	"close": openAndClose,
	"stat": func(path string) error {
		return repeat(path, func(fd int) error { return syscall.Fstat(fd, new(syscall.Stat_t)) })
	},
	"sync":   func(path string) error { return repeat(path, writeAndSync) },
	"lock":   func(path string) error { return repeat(path, lockAndUnlock) },
	"hold":   hold,
	"finish": finish,
	"exec":   execute,
	"fault":  fault,
	"vfork":  vfork,
	"seize":  seizeAndForget,
}

const kernelUsage = `
victim read PATH             reads the file again and again
victim close PATH            opens and closes the file again and again
victim stat PATH             asks for the open file's size again and again
victim sync PATH             writes to the file and waits for the disk, again and again
victim lock PATH             locks and unlocks the file again and again
victim hold PATH             has the file open until SIGTERM
victim finish PATH           writes to the file and ends on SIGTERM, without waiting for the write
victim exec PATH             has the file open until it executes another program
victim fault PATH            faults in pages of the file while it changes its memory map
victim vfork SECONDS         is vfork's parent, and ends that long after SIGTERM
victim seize PID             traces a process, lets it run and never asks what became of it`

// repeat opens the file and does the same to it without end.
func repeat(path string, do func(fd int) error) error {
	fd, err := syscall.Open(path, syscall.O_CREAT|syscall.O_RDWR|syscall.O_CLOEXEC, 0o644)
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	for {
		if err := do(fd); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		time.Sleep(again)
	}
}

func writeAndSync(fd int) error {
	if _, err := syscall.Pwrite(fd, make([]byte, 4096), 0); err != nil {
		return err
	}
	return syscall.Fsync(fd)
}

func lockAndUnlock(fd int) error {
	l := syscall.Flock_t{Type: syscall.F_WRLCK, Len: 1}
	if err := syscall.FcntlFlock(uintptr(fd), syscall.F_SETLKW, &l); err != nil {
		return err
	}
	l.Type = syscall.F_UNLCK
	return syscall.FcntlFlock(uintptr(fd), syscall.F_SETLKW, &l)
}

func openAndClose(path string) error {
	for {
		fd, err := syscall.Open(path, syscall.O_RDWR|syscall.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open %s: %w", path, err)
		}
		if err := syscall.Close(fd); err != nil {
			return fmt.Errorf("close %s: %w", path, err)
		}
		time.Sleep(again)
	}
}

func hold(path string) error {
	if _, err := syscall.Open(path, syscall.O_RDWR|syscall.O_CLOEXEC, 0); err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	return drain("0")
}

// finish ends the program on SIGTERM while another thread writes. The kernel
// kills that thread, which exits when its write has been answered.
func finish(path string) error {
	stop := catchTERM()
	fd, err := syscall.Open(path, syscall.O_WRONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	failed := make(chan error, 1)
	go func() {
		for {
			if _, err := syscall.Pwrite(fd, make([]byte, 512), 0); err != nil {
				failed <- fmt.Errorf("write %s: %w", path, err)
				return
			}
		}
	}()
	select {
	case err := <-failed:
		return err
	case <-stop:
		return nil
	}
}

// execute waits a moment, so that the container has started, and executes this
// program anew. The kernel closes the file on the way, after the point from
// which it does not return (begin_new_exec, fs/exec.c).
func execute(path string) error {
	if _, err := syscall.Open(path, syscall.O_RDWR|syscall.O_CLOEXEC, 0); err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	time.Sleep(2 * time.Second)
	return syscall.Exec("/proc/self/exe", []string{os.Args[0], "drain", "0"}, nil)
}

// fault has one page after the other of the file made writable in one thread, and
// changes the protection of another piece of memory in a second one. A fault that
// hangs in the first one holds the lock of the memory map, for which the second
// thread waits, and behind that one whoever reads the process's command line. A
// store would hold the lock of its own mapping only (CONFIG_PER_VMA_LOCK).
func fault(path string) error {
	mem, err := mapped(path, 4096*page)
	if err != nil {
		return err
	}
	go func() {
		runtime.LockOSThread()
		const size = 1 << 20
		mem, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
		for err == nil {
			err = syscall.Mprotect(mem, syscall.PROT_READ)
			time.Sleep(again)
			if err == nil {
				err = syscall.Mprotect(mem, syscall.PROT_READ|syscall.PROT_WRITE)
			}
			time.Sleep(again)
		}
		fmt.Fprintln(os.Stderr, "change memory map:", err)
		os.Exit(1)
	}()
	for i := 0; i < len(mem); i += page {
		if err := unix.Madvise(mem[i:i+page], unix.MADV_POPULATE_WRITE); err != nil {
			return fmt.Errorf("populate a page of %s: %w", path, err)
		}
		time.Sleep(200 * time.Millisecond)
	}
	select {}
}

// vfork is the parent of a child that neither executes a program nor ends: the
// first thread waits for it in state D, in a wait that SIGKILL ends. The child
// has a memory of its own and only sleeps.
func vfork(seconds string) error {
	// The waiting thread keeps its place in Go's scheduler.
	runtime.GOMAXPROCS(2)
	go func() {
		if err := drain(seconds); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(0)
	}()
	child, _, errno := syscall.RawSyscall6(syscall.SYS_CLONE, syscall.CLONE_VFORK|uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	if errno != 0 {
		return fmt.Errorf("vfork: %w", errno)
	}
	if child == 0 {
		hour := syscall.Timespec{Sec: 3600}
		for {
			_, _, _ = syscall.RawSyscall(syscall.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&hour)), 0, 0)
		}
	}
	return fmt.Errorf("the child of vfork has ended")
}

// seizeAndForget becomes the tracer of a process, which it does not stop.
func seizeAndForget(pid string) error {
	n, err := strconv.Atoi(pid)
	if err != nil {
		return fmt.Errorf("process: %w", err)
	}
	if err := seize(n, 0); err != nil {
		return err
	}
	return drain("0")
}
