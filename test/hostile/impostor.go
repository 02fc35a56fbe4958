package hostile

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Impersonate gives this process the name of a shim, and a command line of so many bytes that
// names a sandbox. It takes no privilege where the kernel has CONFIG_CHECKPOINT_RESTORE
// (prctl(2), PR_SET_MM_MAP). It is called on the process's first thread.
func Impersonate(size int) error {
	comm := append([]byte("containerd-shim"), 0)
	if err := unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&comm[0])), 0, 0, 0); err != nil {
		return err
	}
	line := append([]byte("x\x00-id\x00"), bytes.Repeat([]byte("a"), size)...)
	line = append(line, 0)
	page, err := unix.Mmap(-1, 0, len(line), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return err
	}
	copy(page, line)
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return err
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	field := func(n int) uint64 { // as proc(5) counts them
		v, _ := strconv.ParseUint(fields[n-3], 10, 64)
		return v
	}
	begin := uint64(uintptr(unsafe.Pointer(&page[0])))
	// struct prctl_mm_map; the heap's end is where it begins, which a Go program does not use.
	mm := struct {
		startCode, endCode, startData, endData, startBrk, brk, startStack, argStart, argEnd, envStart, envEnd, auxv uint64
		auxvSize, exe                                                                                               uint32
	}{
		startCode: field(26), endCode: field(27), startData: field(45), endData: field(46), startBrk: field(47), brk: field(47),
		startStack: field(28), argStart: begin, argEnd: begin + uint64(len(page)), envStart: field(50), envEnd: field(51), exe: ^uint32(0),
	}
	const setMap = 14 // PR_SET_MM_MAP
	if err := unix.Prctl(unix.PR_SET_MM, setMap, uintptr(unsafe.Pointer(&mm)), unsafe.Sizeof(mm), 0); err != nil {
		return fmt.Errorf("PR_SET_MM_MAP: %w", err)
	}
	return nil
}
