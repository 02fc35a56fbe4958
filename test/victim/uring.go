package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const uringUsage = `
victim uring-read PATH       has an io_uring worker read the file again and again, and does not heed SIGTERM
victim uring-write PATH      has an io_uring worker write to the file again and again
victim uring-poll-read PATH  reads the file again and again through a ring that a thread polls, whose worker does it
victim uring-idle SECONDS    has io_uring threads that are idle, and ends that long after SIGTERM
victim uring-lock PID:PATH   holds the lock of the first io_uring of another process while the file cannot be read
victim uring-ignore SECONDS  has io_uring threads that are idle, ignores SIGTERM and ends that long after its start`

// Of include/uapi/linux/io_uring.h.
const (
	opNop         = 0       // IORING_OP_NOP
	opRead        = 22      // IORING_OP_READ
	opWrite       = 23      // IORING_OP_WRITE
	inWorker      = 1 << 4  // IOSQE_ASYNC
	polled        = 1 << 1  // IORING_SETUP_SQPOLL
	waitForResult = 1 << 0  // IORING_ENTER_GETEVENTS
	wakePoller    = 1 << 1  // IORING_ENTER_SQ_WAKEUP
	requestsAt    = 1 << 28 // IORING_OFF_SQES
	requestSize   = 64      // struct io_uring_sqe
	resultSize    = 16      // struct io_uring_cqe

	registerBuffers = 0 // IORING_REGISTER_BUFFERS
)

// ringParams is struct io_uring_params.
type ringParams struct {
	Requests, Results, Flags, PollCPU, PollIdleMillis, Features, WorkersOf uint32
	_                                                                      [3]uint32
	Submit                                                                 struct {
		Head, Tail, Mask, Entries, Flags, Dropped, Array, _ uint32
		_                                                   uint64
	}
	Complete struct {
		Head, Tail, Mask, Entries, Overflow, Results, Flags, _ uint32
		_                                                      uint64
	}
}

// A ring is an io_uring (io_uring(7)) with one request at a time.
type ring struct {
	fd      int
	params  ringParams
	queues  []byte
	request []byte
	buffer  [512]byte
}

func newRing(flags uint32) (*ring, error) {
	r := &ring{params: ringParams{Flags: flags}}
	if flags&polled != 0 {
		r.params.PollIdleMillis = 1000 // after which its thread sleeps
	}
	fd, _, errno := syscall.Syscall(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&r.params)), 0)
	if errno != 0 {
		return nil, fmt.Errorf("set up io_uring: %w", errno)
	}
	r.fd = int(fd)
	p := &r.params
	size := max(p.Submit.Array+4*p.Requests, p.Complete.Results+resultSize*p.Results)
	var err error
	if r.queues, err = syscall.Mmap(r.fd, 0, int(size), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED); err != nil {
		return nil, fmt.Errorf("map io_uring's queues: %w", err)
	}
	if r.request, err = syscall.Mmap(r.fd, requestsAt, requestSize, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED); err != nil {
		return nil, fmt.Errorf("map io_uring's requests: %w", err)
	}
	return r, nil
}

// at returns a number of the queues, which the kernel writes too.
func (r *ring) at(offset uint32) *uint32 { return (*uint32)(unsafe.Pointer(&r.queues[offset])) }

// do hands a request on a file to a worker and waits for its result. The queue of
// requests has the one entry, to which the kernel's zeroes point.
func (r *ring) do(op byte, fd int) error {
	clear(r.request)
	r.request[0], r.request[1] = op, inWorker
	if op != opNop {
		*(*int32)(unsafe.Pointer(&r.request[4])) = int32(fd)
		*(*uintptr)(unsafe.Pointer(&r.request[16])) = uintptr(unsafe.Pointer(&r.buffer[0]))
		*(*uint32)(unsafe.Pointer(&r.request[24])) = uint32(len(r.buffer))
	}
	atomic.AddUint32(r.at(r.params.Submit.Tail), 1)
	head, tail := r.at(r.params.Complete.Head), r.at(r.params.Complete.Tail)
	for submit := uintptr(1); atomic.LoadUint32(tail) == *head; submit = 0 {
		_, _, errno := syscall.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(r.fd), submit, 1, waitForResult|wakePoller, 0, 0)
		if errno != 0 && !errors.Is(errno, syscall.EINTR) {
			return fmt.Errorf("wait for io_uring: %w", errno)
		}
	}
	result := int32(*r.at(r.params.Complete.Results + resultSize*(*head&*r.at(r.params.Complete.Mask)) + 8))
	atomic.AddUint32(head, 1)
	if result < 0 {
		return syscall.Errno(-result)
	}
	return nil
}

// uring runs the commands about io_uring. The runtime's default seccomp profile
// forbids it (contrib/seccomp in containerd).
func uring(command, arg string) error {
	switch command {
	case "uring-read":
		catchTERM() // and never heed it
		return repeatInRing(0, opRead, arg)
	case "uring-write":
		return repeatInRing(0, opWrite, arg)
	case "uring-poll-read":
		return repeatInRing(polled, opRead, arg)
	case "uring-lock":
		return lockRing(arg)
	}
	seconds, err := strconv.Atoi(arg)
	if err != nil {
		return fmt.Errorf("%s: %w", command, err)
	}
	if command == "uring-ignore" {
		signal.Ignore(syscall.SIGTERM)
	}
	// A worker of this thread, a thread that polls, and a worker of that one.
	for _, flags := range []uint32{0, polled} {
		r, err := newRing(flags)
		if err != nil {
			return err
		}
		if err := r.do(opNop, 0); err != nil {
			return fmt.Errorf("a request that does nothing: %w", err)
		}
	}
	if command == "uring-ignore" {
		time.Sleep(time.Duration(seconds) * time.Second)
		return nil
	}
	return drain(arg)
}

// repeatInRing opens the file and does the same to it without end.
func repeatInRing(flags uint32, op byte, path string) error {
	r, err := newRing(flags)
	if err != nil {
		return err
	}
	return repeat(path, func(fd int) error { return r.do(op, fd) })
}

// lockRing takes the first ring of another process and registers a page of the file as its
// buffer. The kernel has the page read meanwhile, and holds the ring's lock (uring_lock,
// io_uring/register.c).
func lockRing(arg string) error {
	number, path, _ := strings.Cut(arg, ":")
	pid, err := strconv.Atoi(number)
	if err != nil {
		return fmt.Errorf("process: %w", err)
	}
	theirs, err := firstRing(pid)
	if err != nil {
		return err
	}
	process, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return fmt.Errorf("open process %d: %w", pid, err)
	}
	ours, err := unix.PidfdGetfd(process, theirs, 0)
	if err != nil {
		return fmt.Errorf("take descriptor %d of process %d: %w", theirs, pid, err)
	}
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	page, err := syscall.Mmap(fd, 0, os.Getpagesize(), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE)
	if err != nil {
		return fmt.Errorf("map %s: %w", path, err)
	}
	// Without reading ahead the wait is one that shows as S.
	if err := unix.Madvise(page, unix.MADV_RANDOM); err != nil {
		return fmt.Errorf("map %s: %w", path, err)
	}
	buffer := syscall.Iovec{Base: &page[0], Len: uint64(len(page))}
	if _, _, errno := syscall.Syscall6(unix.SYS_IO_URING_REGISTER, uintptr(ours), registerBuffers, uintptr(unsafe.Pointer(&buffer)), 1, 0, 0); errno != 0 {
		return fmt.Errorf("register a buffer: %w", errno)
	}
	return nil
}

// firstRing returns the lowest descriptor of a process that is an io_uring.
func firstRing(pid int) (int, error) {
	for fd := range 100 {
		if text, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", pid, fd)); err == nil && text == "anon_inode:[io_uring]" {
			return fd, nil
		}
	}
	return 0, fmt.Errorf("process %d has no io_uring", pid)
}
