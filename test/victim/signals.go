package main

import (
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const signalsUsage = `
victim term-only SECONDS     drain, with the default action for SIGQUIT
victim burn SECONDS          ends after that much computing after SIGTERM
victim allocate MEGABYTES    holds so much memory, and takes eight times as much after SIGTERM, then ends
victim dump MEGABYTES        holds so much memory and crashes after SIGTERM
victim trace-stop PID        attaches to a process, which stops it, and leaves it so
victim trace-follow PID      attaches and lets the process run, as strace does
victim trace-exit PID        the same, but when the process reports that it is about to end it does not let it`

// signals runs the commands about signals and what delays their handlers.
func signals(command, arg string) error {
	n, err := strconv.Atoi(arg)
	if err != nil {
		return fmt.Errorf("%s: %w", command, err)
	}
	switch command {
	case "term-only":
		if err := defaultAction(syscall.SIGQUIT); err != nil {
			return err
		}
		return drain(arg)
	case "burn":
		return burn(time.Duration(n) * time.Second)
	case "allocate":
		held := dirtyMemory(n << 20)
		<-catchTERM()
		more := dirtyMemory(8 * n << 20)
		fmt.Println(held[0] + more[0])
		return nil
	case "dump":
		return dump(n << 20)
	case "trace-stop":
		return traceStop(n)
	case "trace-exit":
		return traceFollow(n, unix.PTRACE_O_TRACEEXIT)
	}
	return traceFollow(n, 0)
}

// defaultAction takes away a signal's handler. Go's runtime has installed one
// for each signal, and package signal cannot.
func defaultAction(sig syscall.Signal) error {
	var action struct {
		handler, flags, restorer uintptr
		mask                     uint64
	}
	_, _, errno := syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&action)), 0, 8, 0, 0)
	if errno != 0 {
		return fmt.Errorf("default action of %s: %w", sig, errno)
	}
	return nil
}

// burn needs so much time of a processor to end, however long that takes.
func burn(need time.Duration) error {
	<-catchTERM()
	start, err := used()
	if err != nil {
		return err
	}
	for {
		for range 1 << 20 { // asking is no work
		}
		now, err := used()
		if err != nil || now-start >= need {
			return err
		}
	}
}

// used returns the processor time that the process has had.
func used() (time.Duration, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t); err != nil {
		return 0, fmt.Errorf("processor time: %w", err)
	}
	return time.Duration(t.Nano()), nil
}

// dirtyMemory takes memory page by page and writes into each.
func dirtyMemory(bytes int) []byte {
	mem := make([]byte, bytes)
	for i := 0; i < bytes; i += os.Getpagesize() {
		mem[i] = 1
	}
	return mem
}

// dump crashes with SIGSEGV. Go's runtime would catch it, and a signal that
// PID 1 of a container sends itself does not end it: a fault does. The thread's
// name tells the node's core handler that this crash is wanted.
func dump(bytes int) error {
	held := dirtyMemory(bytes)
	<-catchTERM()
	if err := unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(unsafe.StringData("scenario-dump\x00"))), 0, 0, 0); err != nil {
		return fmt.Errorf("name the thread: %w", err)
	}
	if err := defaultAction(syscall.SIGSEGV); err != nil {
		return err
	}
	var nowhere *int
	*nowhere = len(held)
	return nil
}

// traceStop attaches to a process of one thread as a debugger does.
func traceStop(pid int) error {
	if err := syscall.PtraceAttach(pid); err != nil {
		return fmt.Errorf("attach to process %d: %w", pid, err)
	}
	if _, err := syscall.Wait4(pid, nil, syscall.WALL, nil); err != nil {
		return fmt.Errorf("wait for process %d: %w", pid, err)
	}
	<-catchTERM()
	return nil
}

// traceFollow attaches to a process of one thread and passes on its signals at
// once. It does not let go on what reports its end, which it does only when asked
// to (PTRACE_O_TRACEEXIT).
func traceFollow(pid, options int) error {
	if err := seize(pid, options); err != nil {
		return err
	}
	for {
		var status syscall.WaitStatus
		if _, err := syscall.Wait4(pid, &status, syscall.WALL, nil); err != nil {
			return fmt.Errorf("wait for process %d: %w", pid, err)
		}
		if !status.Stopped() {
			return nil
		}
		sig := int(status.StopSignal())
		switch status >> 16 {
		case unix.PTRACE_EVENT_EXIT:
			<-catchTERM()
			return nil
		case unix.PTRACE_EVENT_STOP:
			sig = 0
		}
		if err := syscall.PtraceCont(pid, sig); err != nil {
			return fmt.Errorf("continue process %d: %w", pid, err)
		}
	}
}

func seize(pid, options int) error {
	if _, _, errno := syscall.RawSyscall6(syscall.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(pid), 0, uintptr(options), 0, 0); errno != 0 {
		return fmt.Errorf("seize process %d: %w", pid, errno)
	}
	return nil
}
