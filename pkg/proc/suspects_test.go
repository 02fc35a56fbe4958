package proc

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kernfile"
)

const (
	uid1 = "0b4ddc3e-1111-4222-8333-444455556666"
	id1  = "c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1"
)

func TestSuspects(t *testing.T) {
	var tasks []kernfile.TaskStatus
	for i := range 300 {
		tasks = append(tasks, kernfile.TaskStatus{HasMemory: true, Task: evidence.Task{PID: 100, TID: 100 + i, Threads: 300, State: "D",
			Container: "a", NSpid: []int{100 + i, 1 + i}}})
	}
	tasks = append(tasks,
		kernfile.TaskStatus{Task: evidence.Task{PID: 900, TID: 900, State: "S", Container: "b"}},                  // exiting
		kernfile.TaskStatus{HasMemory: true, Task: evidence.Task{PID: 901, TID: 901, State: "S", Container: "b"}}, // healthy
		kernfile.TaskStatus{Task: evidence.Task{PID: 902, TID: 902, State: "Z", Threads: 1, Container: "b"}},
		kernfile.TaskStatus{HasMemory: true, Task: evidence.Task{PID: 903, TID: 903, State: "R", Container: "c"}},
	)
	chosen, left := suspects(&evidence.Pod{}, tasks)
	if len(chosen) != maxSuspects || left != 301-maxSuspects {
		t.Errorf("%d chosen, %d left", len(chosen), left)
	}
	if chosen[0].TID != 100 || chosen[1].TID != 900 {
		t.Errorf("the first are %d and %d", chosen[0].TID, chosen[1].TID)
	}
	for _, s := range chosen {
		if s.TID > 900 {
			t.Errorf("task %d is a suspect", s.TID)
		}
	}
	// Threads of an init without a handler may be in sigwait.
	tasks = []kernfile.TaskStatus{
		{HasMemory: true, Task: evidence.Task{PID: 5, TID: 5, Threads: 3, State: "S", NSpid: []int{5, 1}}},
		{HasMemory: true, Task: evidence.Task{PID: 5, TID: 6, Threads: 3, State: "S", NSpid: []int{6, 2}}},
	}
	if chosen, _ := suspects(&evidence.Pod{}, tasks); len(chosen) != 2 {
		t.Errorf("%d chosen of an init with a thread", len(chosen))
	}
	tasks[0].Caught = 1 << (evidence.SIGTERM - 1)
	if chosen, _ := suspects(&evidence.Pod{}, tasks); len(chosen) != 1 {
		t.Errorf("%d chosen of an init with a handler", len(chosen))
	}
	// Behind a leader that is a zombie, a thread may be inside exit.
	tasks[0].State = evidence.Zombie
	if chosen, _ := suspects(&evidence.Pod{}, tasks); len(chosen) != 2 {
		t.Errorf("%d chosen of a zombie with a thread", len(chosen))
	}
}

// A shell waits for its child: that is probed too, and its children, but of
// hundreds only a few, and they take nobody else's place.
func TestSuspectsChildren(t *testing.T) {
	process := func(pid, ppid int, container string) kernfile.TaskStatus {
		return kernfile.TaskStatus{HasMemory: true, Task: evidence.Task{PID: pid, TID: pid, PPID: ppid, Threads: 1, State: "S",
			Container: container, NSpid: []int{pid}}}
	}
	// PIDs are shared: only the shim knows which processes are first.
	p := &evidence.Pod{Containers: []evidence.Container{{ID: "a", Task: evidence.ShimTask{PID: 10}}, {ID: "b", Task: evidence.ShimTask{PID: 20}}}}
	dead := process(13, 10, "a")
	dead.State, dead.HasMemory = "Z", false
	thread := process(12, 10, "a")
	thread.TID = 14
	tasks := []kernfile.TaskStatus{
		process(10, 1, "a"), process(11, 10, "a"), process(12, 10, "a"), dead, thread,
		process(15, 11, "a"), process(16, 15, "a"), process(17, 1, "a"),
		process(20, 1, "b"),
	}
	for i := range 40 {
		tasks = append(tasks, process(100+i, 20, "b"))
	}
	chosen, left := suspects(p, tasks)
	var got []int
	for _, s := range chosen {
		got = append(got, s.TID)
	}
	slices.Sort(got)
	want := []int{10, 11, 12, 15, 20}
	for i := range maxChildren {
		want = append(want, 100+i)
	}
	if d := cmp.Diff(want, got); d != "" || left != 0 {
		t.Errorf("%d left, %s", left, d)
	}
	// A blocked process comes before all of them.
	blocked := process(99, 1, "b")
	blocked.State = "D"
	chosen, _ = suspects(p, append(tasks, blocked))
	foremost := chosen[0].TID
	rest := slices.DeleteFunc(chosen, func(s *kernfile.TaskStatus) bool { return s.Container != "b" })
	if foremost != 99 || rest[1].TID != 20 {
		t.Errorf("the first is %d, and the second of its container %d", foremost, rest[1].TID)
	}
}

// What a shim has executed in a container with a preStop hook may be the hook. In
// other containers it is nobody's business, nor is what the program itself runs.
func TestSuspectsHook(t *testing.T) {
	tasks := []kernfile.TaskStatus{
		{HasMemory: true, Task: evidence.Task{PID: 5, TID: 5, PPID: 2, Threads: 1, State: "S", Container: id1, NSpid: []int{5, 1}}},
		{HasMemory: true, Task: evidence.Task{PID: 7, TID: 7, PPID: 2, Threads: 1, State: "S", Container: id1, NSpid: []int{7, 9}}},
		{HasMemory: true, Task: evidence.Task{PID: 8, TID: 8, PPID: 7, Threads: 1, State: "S", Container: id1, NSpid: []int{8, 10}}},
	}
	for program, want := range map[string]int{"": 1, "sh": 2} {
		for _, c := range []evidence.Container{{ID: id1, PreStop: program != "", PreStopProgram: program}, {ID: id1, PostStartProgram: program}} {
			chosen, left := suspects(&evidence.Pod{Containers: []evidence.Container{c}}, tasks)
			if len(chosen) != want || left != 0 {
				t.Errorf("hook %q: %d chosen, %d left, want %d", program, len(chosen), left, want)
			}
		}
	}
}

// Who traces a task, or has not reaped it, is probed: a command is to find that
// process and no other.
func TestHolders(t *testing.T) {
	parent := kernfile.TaskStatus{Task: evidence.Task{PID: 7, TID: 7, State: evidence.Sleeping}}
	for name, tc := range map[string]struct {
		task evidence.Task
		want bool
	}{
		"parent":              {evidence.Task{PPID: 7, State: evidence.Sleeping}, false},
		"parent of a zombie":  {evidence.Task{PPID: 7, State: evidence.Zombie}, true},
		"tracer":              {evidence.Task{PPID: 1, TracerPID: 7, State: evidence.Zombie}, true},
		"another one's child": {evidence.Task{PPID: 1, State: evidence.Zombie}, false},
	} {
		if got := holdsTask(&parent, []kernfile.TaskStatus{{Task: tc.task}}); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
