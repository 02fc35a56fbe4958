package kernfile

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kerneltest"
)

func TestParseStatus(t *testing.T) {
	const comm = `a) R (\n\\` + "\ufffd\ufffd"
	for _, tt := range []struct {
		file string
		want TaskStatus
	}{
		{"status_odd_comm", TaskStatus{HasMemory: true, Task: evidence.Task{
			PID: 8729, TID: 8729, PPID: 8688, NSpid: []int{8729}, Threads: 1, Comm: comm, State: "S",
			Blocked: 1, Ignored: 0x1005000, Caught: 2, Switches: 1,
		}}},
		{"status_stopped", TaskStatus{HasMemory: true, Task: evidence.Task{
			PID: 8729, TID: 8729, PPID: 8688, NSpid: []int{8729}, Threads: 1, Comm: comm, State: "T",
			SharedPending: 1, Blocked: 1, Ignored: 0x1005000, Caught: 2, Switches: 2,
		}}},
		{"status_zombie", TaskStatus{Task: evidence.Task{
			PID: 8729, TID: 8729, PPID: 8688, NSpid: []int{8729}, Threads: 1, Comm: comm, State: "Z",
			SharedPending: 0x101, Blocked: 1, Ignored: 0x1005000, Caught: 2, Switches: 3,
		}}},
		{"status_kthread", TaskStatus{Task: evidence.Task{
			PID: 2, TID: 2, NSpid: []int{2}, Threads: 1, Comm: "kthreadd", State: "S", Kernel: true,
			Ignored: 0xffffffffffffffff, Switches: 79,
		}}},
	} {
		t.Run(tt.file, func(t *testing.T) {
			b := kerneltest.File(t, tt.file)
			got, err := ParseStatus(b)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Error(d)
			}
			state, threads := QuickStatus(b)
			if string(state) != string(got.State) || threads != got.Threads {
				t.Errorf("quickly %c, %d", state, threads)
			}
			text, err := json.Marshal(got.Task)
			if err != nil || !utf8.Valid(text) {
				t.Errorf("JSON %q, %v", text, err)
			}
		})
	}
	for _, bad := range []string{"", "Name:\tx\n", "State:\tS\n", "Pid:\t1\n"} {
		if _, err := ParseStatus([]byte(bad)); err == nil {
			t.Errorf("%q is a status", bad)
		}
	}
}

func TestExitingByStatus(t *testing.T) {
	for _, tt := range []struct {
		status string
		want   bool
	}{
		{"Name:\tx\nState:\tS (sleeping)\nPid:\t9\nPPid:\t5\nKthread:\t0\n", true},
		{"Name:\tx\nState:\tS (sleeping)\nPid:\t9\nPPid:\t5\nKthread:\t0\nVmSize:\t1 kB\n", false},
		{"Name:\tx\nState:\tZ (zombie)\nPid:\t9\nPPid:\t5\nKthread:\t0\n", false},
		{"Name:\tx\nState:\tI (idle)\nPid:\t9\nPPid:\t2\nNSpid:\t9\n", false}, // a kernel thread before 6.8
		{"Name:\tx\nState:\tD (disk sleep)\nPid:\t9\nPPid:\t2\nNSpid:\t9\nKthread:\t1\n", false},
	} {
		s, err := ParseStatus([]byte(tt.status))
		if err != nil || s.ExitingByStatus() != tt.want {
			t.Errorf("%q: %v, %v", tt.status, s.ExitingByStatus(), err)
		}
	}
}

func FuzzParseStatus(f *testing.F) {
	kerneltest.Fuzz(f, nil, func(b []byte) {
		s, err := ParseStatus(b)
		if err == nil && (!utf8.ValidString(s.Comm) || strings.ContainsAny(s.Comm, "\n\x1b")) {
			panic(s.Comm)
		}
		QuickStatus(b)
	})
}

func BenchmarkParseStatus(b *testing.B) {
	text := kerneltest.File(b, "status_odd_comm")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParseStatus(text); err != nil {
			b.Fatal(err)
		}
	}
}
