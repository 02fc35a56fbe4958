package kernfile

import (
	"bytes"
	"errors"
	"strconv"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// A TaskStatus is what /proc/PID/status says of one thread (fs/proc/array.c,
// proc_pid_status). The file is there for every thread ID, though only those of
// leaders are listed in /proc.
type TaskStatus struct {
	evidence.Task
	// HasMemory says that the task has an address space. A task that is neither
	// a kernel thread nor a zombie and has none is inside do_exit, past exit_mm
	// and perhaps stuck in closing its files: nothing else in this file tells.
	HasMemory bool
	// Size is that of the file, in bytes, where it was read (Reader.TaskStatus). The kernel takes the longer for it the more supplementary groups it names.
	Size int
}

// TaskStatus reads the status of a thread. The Reader is open on /proc.
func (r *Reader) TaskStatus(tid int) (TaskStatus, error) {
	b, err := r.Task(tid, Status)
	if err != nil {
		return TaskStatus{}, err
	}
	s, err := ParseStatus(b)
	s.Size = len(b)
	return s, err
}

// asked has the first letters of the lines that are asked for: a file has some fifty others.
var asked = func() (first [256]bool) {
	for _, c := range "NSTPVKCvn" {
		first[c] = true
	}
	return first
}()

var errStatus = errors.New("a status file without State and Pid")

// ParseStatus parses a status file. Comm is kept as this file shows it, with
// newlines and backslashes escaped: it then stands on one line wherever it is
// printed. Lines that are not known, or are added by later kernels, are passed
// over.
func ParseStatus(b []byte) (TaskStatus, error) {
	var s TaskStatus
	kernel := -1
	for len(b) > 0 {
		line := b
		if i := bytes.IndexByte(b, '\n'); i >= 0 {
			line, b = b[:i], b[i+1:]
		} else {
			b = nil
		}
		if len(line) < 2 || !asked[line[0]] {
			continue
		}
		colon := bytes.IndexByte(line, ':')
		if colon < 0 {
			continue
		}
		v := bytes.TrimLeft(line[colon+1:], " \t")
		switch string(line[:colon]) {
		case "Name":
			// A name of blanks is legal: only the tab belongs to the file.
			s.Comm = Printable(bytes.TrimPrefix(line[colon+1:], []byte{'\t'}))
		case "State":
			if len(v) > 0 {
				s.State = taskState(v[0])
			}
		case "Tgid":
			s.PID = Decimal(v)
		case "Pid":
			s.TID = Decimal(v)
		case "PPid":
			s.PPID = Decimal(v)
		case "TracerPid":
			s.TracerPID = Decimal(v)
		case "NSpid":
			fields := bytes.Fields(v)
			s.NSpid = make([]int, len(fields))
			for i, f := range fields {
				s.NSpid[i] = Decimal(f)
			}
		case "VmSize":
			s.HasMemory = true
		case "Kthread":
			kernel = Decimal(v)
		case "CoreDumping":
			s.CoreDumping = Decimal(v) == 1
		case "Threads":
			s.Threads = Decimal(v)
		case "SigPnd":
			s.Pending = signals(v)
		case "ShdPnd":
			s.SharedPending = signals(v)
		case "SigBlk":
			s.Blocked = signals(v)
		case "SigIgn":
			s.Ignored = signals(v)
		case "SigCgt":
			s.Caught = signals(v)
		case "voluntary_ctxt_switches", "nonvoluntary_ctxt_switches":
			n, _ := strconv.ParseUint(string(v), 10, 64)
			s.Switches += n
		}
	}
	if s.State == "" || s.TID == 0 {
		return TaskStatus{}, errStatus
	}
	// Kernels before 6.8 have no Kthread line. Their threads have no memory
	// and are children of kthreadd, which is process 2 of the host.
	const kthreadd = 2
	s.Kernel = kernel == 1 || kernel < 0 && !s.HasMemory && s.State != evidence.Zombie &&
		len(s.NSpid) <= 1 && (s.PID == kthreadd || s.PPID == kthreadd)
	return s, nil
}

// taskState avoids an allocation for each task.
func taskState(c byte) evidence.TaskState {
	const letters = "RSDTtXZPIKWx"
	if i := bytes.IndexByte([]byte(letters), c); i >= 0 {
		return evidence.TaskState(letters[i : i+1])
	}
	return evidence.TaskState(Printable([]byte{c}))
}

// Decimal returns the number at the beginning of a text; 0 when there is none.
func Decimal(b []byte) int {
	n := 0
	for _, c := range b {
		if c < '0' || c > '9' || n > 1<<40 {
			break
		}
		n = n*10 + int(c-'0')
	}
	return n
}

func signals(b []byte) evidence.SignalSet {
	var n uint64
	for _, c := range b {
		switch {
		case c >= '0' && c <= '9':
			n = n<<4 | uint64(c-'0')
		case c >= 'a' && c <= 'f':
			n = n<<4 | uint64(c-'a'+10)
		default:
			return evidence.SignalSet(n)
		}
	}
	return evidence.SignalSet(n)
}

// ExitingByStatus says that the task has given back its memory and is still
// there: it is inside do_exit.
func (s *TaskStatus) ExitingByStatus() bool {
	return !s.HasMemory && !s.Kernel && s.State != evidence.Zombie && s.State != evidence.Dead
}

// QuickStatus gives the state, and the number of threads of the process, out of
// a status file without parsing the rest. The name cannot forge the lines
// because the kernel escapes newlines in it.
func QuickStatus(b []byte) (state byte, threads int) {
	if i := bytes.Index(b, []byte("\nState:\t")); i >= 0 && i+8 < len(b) {
		state = b[i+8]
	}
	if i := bytes.Index(b, []byte("\nThreads:\t")); i >= 0 {
		threads = Decimal(b[i+10:])
	}
	return state, threads
}
