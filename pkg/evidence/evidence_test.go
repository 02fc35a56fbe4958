package evidence

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParseSignal(t *testing.T) {
	for _, tc := range []struct {
		text string
		want Signal
	}{
		{"15", SIGTERM}, {"TERM", SIGTERM}, {"SIGTERM", SIGTERM}, {"sigterm", SIGTERM}, {"SIGQUIT", SIGQUIT},
		{"37", 37}, {"RTMIN+3", 37}, {"SIGRTMIN+3", 37}, {"RTMAX", 64}, {"RTMAX-1", 63}, {"WINCH", 28},
	} {
		got, err := ParseSignal(tc.text)
		if err != nil || got != tc.want {
			t.Errorf("ParseSignal(%q) = %v, %v; want %v", tc.text, got, err, tc.want)
		}
	}
	for _, text := range []string{"", "0", "65", "-1", "SIG", "NONSENSE", "RTMIN-1", "RTMAX+1", "RTMIN+x", "TERM "} {
		if got, err := ParseSignal(text); err == nil {
			t.Errorf("ParseSignal(%q) = %v, want an error", text, got)
		}
	}
}

func FuzzParseSignal(f *testing.F) {
	for _, s := range []string{"15", "SIGTERM", "RTMIN+3", "", "RTMAX-99999999999999999999"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		sig, err := ParseSignal(s)
		if err != nil {
			return
		}
		if sig < 1 || sig > sigRTMax {
			t.Fatalf("%q is signal %d", s, int(sig))
		}
		if again, err := ParseSignal(sig.String()); sig != 32 && sig != 33 && (err != nil || again != sig) {
			t.Fatalf("%q is %v, which reads back as %v, %v", s, sig, again, err)
		}
	})
}

func TestSignalSet(t *testing.T) {
	s := SignalSet(0x4002)
	if !s.Has(SIGTERM) || !s.Has(SIGINT) || s.Has(SIGKILL) || s.Has(0) || s.Has(65) {
		t.Errorf("set %x", uint64(s))
	}
	var back struct{ S SignalSet }
	b, err := json.Marshal(struct{ S SignalSet }{1 << 63})
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &back); err != nil || back.S != 1<<63 {
		t.Errorf("%s reads back as %x, %v", b, uint64(back.S), err)
	}
}

// What is unchanged keeps the time of its first reading; what has moved, and
// what is another task under the same number, starts anew.
func TestSince(t *testing.T) {
	t0 := time.Unix(1000, 0)
	at := func(s int) time.Time { return t0.Add(time.Duration(s) * time.Second) }
	stuck := Task{PID: 1, TID: 1, Comm: "a", State: Uninterruptible, Switches: 7, Caught: 1}
	pod := func(s int, tasks ...Task) *Pod { return &Pod{UID: "u", Time: at(s), Tasks: tasks} }

	first := pod(0, stuck)
	first.Since(nil)
	second := pod(4, stuck)
	second.Since(first)
	third := pod(8, stuck)
	third.Since(second)
	if got := third.Tasks[0].Unchanged(third.Time); got != 8*time.Second {
		t.Errorf("a stuck task is unchanged for %s, want 8 s", got)
	}

	for name, change := range map[string]func(*Task){
		"switched context": func(t *Task) { t.Switches++ },
		"other state":      func(t *Task) { t.State = Sleeping },
		"other program":    func(t *Task) { t.Comm = "b" },
		"other task":       func(t *Task) { t.TID = 2 },
	} {
		moved := stuck
		change(&moved)
		next := pod(12, moved)
		next.Since(third)
		if got := next.Tasks[0].Unchanged(next.Time); got != 0 {
			t.Errorf("%s: unchanged for %s", name, got)
		}
	}

	killed, exits := pod(12, stuck), pod(16, stuck)
	killed.Tasks[0].Pending = 1 << (SIGKILL - 1)
	exits.Since(killed)
	last := pod(20, stuck)
	last.Since(exits)
	if exits.Tasks[0].Killed() || !exits.Tasks[0].WasKilled || !last.Tasks[0].WasKilled || third.Tasks[0].WasKilled {
		t.Error("it is forgotten which task has taken SIGKILL")
	}

	loop, spawned := stuck, stuck
	loop.PID, loop.TID, spawned.PID, spawned.TID, spawned.PPID = 7, 7, 8, 8, 7
	runs, between, younger := pod(12, loop), pod(16, loop), pod(20, spawned)
	runs.Tasks = append(runs.Tasks, spawned)
	runs.Since(nil)
	between.Since(runs)
	younger.Since(between)
	if !runs.Tasks[0].HadChild || runs.Tasks[1].HadChild || !between.Tasks[0].HadChild || younger.Tasks[0].HadChild {
		t.Error("which process has had a child is not kept")
	}

	blocks := func(at int, set SignalSet) *Pod {
		shell := stuck
		shell.Blocked = set
		return pod(at, shell)
	}
	waits, starts, moves := blocks(12, 0), blocks(16, 1<<(SIGTERM-1)), blocks(20, 0)
	waits.Since(nil)
	starts.Since(waits)
	moves.Since(starts)
	if w, m := waits.Tasks[0], moves.Tasks[0]; !m.ActionsSince.Equal(w.SignalsSince) || !m.SignalsSince.After(starts.Tasks[0].SignalsSince) ||
		!w.ActionsSince.IsZero() {
		t.Errorf("actions since %s, and since %s at first", m.ActionsSince, w.SignalsSince)
	}

	reused := stuck
	reused.Probe = &Probe{Start: 2}
	before := pod(12, stuck)
	before.Tasks[0].Probe = &Probe{Start: 1}
	before.Tasks[0].UnchangedSince = t0
	next := pod(16, reused)
	next.Since(before)
	if got := next.Tasks[0].Unchanged(next.Time); got != 0 {
		t.Errorf("a reused PID counts as unchanged for %s", got)
	}

	// SIGKILL sends it into another wait after its status was read.
	waits, elsewhere := pod(12, stuck), pod(16, stuck)
	waits.Tasks[0].Probe, elsewhere.Tasks[0].Probe = &Probe{Start: 1, Wchan: "ep_poll"}, &Probe{Start: 1, Wchan: "zap_pid_ns_processes"}
	waits.Tasks[0].UnchangedSince = t0
	elsewhere.Since(waits)
	if got := elsewhere.Tasks[0].Unchanged(elsewhere.Time); got != 0 {
		t.Errorf("one that waits for something else counts as unchanged for %s", got)
	}

	// It was not probed before, and is seen to exit: it does from now on, also where it is not
	// probed again at once.
	asleep, begins, unprobed, goesOn := pod(12, stuck), pod(16, stuck), pod(20, stuck), pod(24, stuck)
	asleep.Tasks[0].UnchangedSince = t0
	begins.Tasks[0].Probe, goesOn.Tasks[0].Probe = &Probe{Start: 1, Flags: PFExiting}, &Probe{Start: 1, Flags: PFExiting}
	begins.Since(asleep)
	unprobed.Since(begins)
	goesOn.Since(unprobed)
	if first, later := begins.Tasks[0].Unchanged(begins.Time), goesOn.Tasks[0].Unchanged(goesOn.Time); first != 0 || later != 8*time.Second {
		t.Errorf("one that exits counts as unchanged for %s, and 8 s later for %s", first, later)
	}

	other := pod(20, stuck)
	other.UID = "v"
	other.Since(third)
	if got := other.Tasks[0].Unchanged(other.Time); got != 0 {
		t.Errorf("another pod's reading was carried over: %s", got)
	}

	// A busy program keeps its dispositions.
	busy := stuck
	busy.Switches, busy.State = 99, Runnable
	next = pod(24, busy)
	next.Since(third)
	if got := next.Time.Sub(next.Tasks[0].SignalsSince); got != 24*time.Second {
		t.Errorf("dispositions are %s old, want 24 s", got)
	}
}

// What is unchanged has been so from the end of the reading that showed it first.
func TestSinceBeginsWhenItWasRead(t *testing.T) {
	t0 := time.Unix(1000, 0)
	at := func(s int) time.Time { return t0.Add(time.Duration(s) * time.Second) }
	stuck := Task{PID: 1, TID: 1, State: Uninterruptible, Caught: 1, SharedPending: 1}
	first := &Pod{UID: "u", Time: at(0), ContainersRead: at(3), CgroupsRead: at(4), TasksRead: at(5), Tasks: []Task{stuck},
		Parents: []Task{stuck}, Leftovers: []Task{stuck}}
	second := &Pod{UID: "u", Time: at(5), Tasks: []Task{stuck}, Parents: []Task{stuck}, Leftovers: []Task{stuck}}
	first.Since(nil)
	second.Since(first)
	for _, tasks := range [][]Task{second.Tasks, second.Parents, second.Leftovers} {
		if k := tasks[0]; !k.UnchangedSince.Equal(at(5)) || !k.SignalsSince.Equal(at(5)) || !k.PendingSince.Equal(at(5)) || k.Unchanged(second.Time) != 0 {
			t.Errorf("unchanged since %s, signals since %s, pending since %s; read at %s", k.UnchangedSince, k.SignalsSince, k.PendingSince, at(5))
		}
	}
	if first.Tasks[0].Unchanged(first.Time) != 0 || !second.UnchangedSince.Equal(at(5)) {
		t.Errorf("the first reading shows a task unchanged for %s, the second the pod since %s", first.Tasks[0].Unchanged(first.Time), second.UnchangedSince)
	}
}

// When a runtime was at work about a container last is kept, of that container.
func TestSinceCommanded(t *testing.T) {
	t0 := time.Unix(1000, 0)
	read := func(s int, of ...string) *Pod {
		p := &Pod{UID: "u", Time: t0.Add(time.Duration(s) * time.Second), Containers: []Container{{ID: "a"}, {ID: "b"}}}
		for _, id := range of {
			p.RuntimeCommands = append(p.RuntimeCommands, RuntimeCommand{Container: id, Command: "exec"})
		}
		return p
	}
	first, second, third := read(0, "a"), read(4, "a"), read(8)
	first.Since(nil)
	second.Since(first)
	third.Since(second)
	if a, b := third.Containers[0].Task.CommandedUntil, third.Containers[1].Task.CommandedUntil; !a.Equal(t0.Add(4*time.Second)) || !b.IsZero() {
		t.Errorf("until %s and %s, want until the second reading, and never", a, b)
	}
}

// A thread that runs only to ask a server again, from which nothing comes back, still waits for the same.
func TestSinceAsksInVain(t *testing.T) {
	t0 := time.Unix(1000, 0)
	asks := func(switches uint64, received *int64, change func(*Task)) *Task {
		out := &Task{PID: 1, TID: 2, State: Uninterruptible, Switches: switches, Probe: &Probe{
			Wchan: "rpc_wait_bit_killable", Syscall: "newfstatat", VolumePath: "/pods/u/volumes/a", Mount: &Mount{Device: "0:61", Received: received},
		}}
		change(out)
		return out
	}
	one, two, same := int64(28), int64(29), func(*Task) {}
	for name, test := range map[string]struct {
		second *Task
		want   time.Duration
	}{
		"it has asked again":             {asks(9, &one, same), 4 * time.Second},
		"something has come back":        {asks(9, &two, same), 0},
		"what has come back is unknown":  {asks(9, nil, same), 0},
		"it asks another server":         {asks(9, &one, func(k *Task) { k.Probe.Mount.Device = "0:62" }), 0},
		"it asks about something else":   {asks(9, &one, func(k *Task) { k.Probe.VolumePath = "/pods/u/volumes/b" }), 0},
		"it asks for something else":     {asks(9, &one, func(k *Task) { k.Probe.Syscall = "umount2" }), 0},
		"it waits for something else":    {asks(9, &one, func(k *Task) { k.Probe.Wchan = "folio_wait_bit" }), 0},
		"requests time out":              {asks(9, &one, func(k *Task) { k.Probe.Mount.Soft = true }), 0},
		"what it sleeps in is not known": {asks(9, &one, func(k *Task) { k.Probe.Wchan = "" }), 0},
		"what it waits for is not known": {asks(9, &one, func(k *Task) { k.Probe = nil }), 0},
		"it runs":                        {asks(9, &one, func(k *Task) { k.State = Runnable }), 0},
	} {
		before := asks(7, &one, same)
		sinceOne(before, nil, t0)
		sinceOne(test.second, before, t0.Add(4*time.Second))
		if got := test.second.Unchanged(t0.Add(4 * time.Second)); got != test.want {
			t.Errorf("%s: unchanged for %s, want %s", name, got, test.want)
		}
	}
}

// What a group has used is by the moments at which it was read.
func TestUseIsByWhenGroupsWereRead(t *testing.T) {
	t0 := time.Unix(1000, 0)
	read := func(began, groups int, micros uint64) *Pod {
		return &Pod{UID: "u", Time: t0.Add(time.Duration(began) * time.Second), CgroupsRead: t0.Add(time.Duration(groups) * time.Second),
			Cgroups: []Cgroup{{Path: "/c", CPU: &CPU{UsedMicros: micros}}}}
	}
	second := read(3, 5, 2_000_000)
	second.Since(read(0, 1, 0))
	if got := second.Cgroups[0].CPU.RecentMillis; got != 500 {
		t.Errorf("%d thousandths of a processor, want 500: 2 s in 4 s", got)
	}
}

func TestKeepDeadline(t *testing.T) {
	t0 := time.Unix(1000, 0)
	at := func(s int) time.Time { return t0.Add(time.Duration(s) * time.Second) }
	pod := func(requested, deadline int, grace int64) *Pod {
		return &Pod{UID: "u", DeletionRequested: at(requested), Deadline: at(deadline), GracePeriodSeconds: grace}
	}
	for name, tc := range map[string]struct {
		earlier, now        *Pod
		requested, deadline int
	}{
		"first reading":       {nil, pod(0, 30, 30), 0, 30},
		"nothing new":         {pod(0, 30, 30), pod(0, 30, 30), 0, 30},
		"final delete":        {pod(0, 30, 30), pod(40, 40, 0), 0, 30},
		"early final delete":  {pod(0, 30, 30), pod(10, 10, 0), 0, 10},
		"shortened, unheeded": {pod(0, 300, 300), pod(9, 10, 1), 0, 300},
		"clocks, by a second": {pod(0, 300, 300), pod(0, 299, 300), 0, 300},
		"another pod":         {&Pod{UID: "v", Deadline: at(1)}, pod(0, 30, 30), 0, 30},
	} {
		tc.now.KeepDeadline(tc.earlier)
		if !tc.now.DeletionRequested.Equal(at(tc.requested)) || !tc.now.Deadline.Equal(at(tc.deadline)) {
			t.Errorf("%s: requested %s, deadline %s", name, tc.now.DeletionRequested.Sub(t0), tc.now.Deadline.Sub(t0))
		}
		if want := strings.HasPrefix(name, "shortened"); tc.now.Shortened != want {
			t.Errorf("%s: shortened is %t", name, tc.now.Shortened)
		}
	}
}

// A pod that moves on, however slowly, is not stuck.
func TestSinceSeesStages(t *testing.T) {
	t0 := time.Unix(1000, 0)
	at := func(s int) *Pod {
		return &Pod{
			UID: "u", Time: t0.Add(time.Duration(s) * time.Second), Phase: "Running",
			Containers: []Container{{ID: "c", State: StateRunning}}, Mounts: []Mount{{ID: 1}}, Tasks: []Task{{TID: s}},
		}
	}
	first, second := at(0), at(60)
	first.Since(nil)
	second.Since(first)
	if !second.UnchangedSince.Equal(t0) {
		t.Errorf("other threads count as another stage")
	}
	for name, change := range map[string]func(*Pod){
		"phase":     func(p *Pod) { p.Phase = "Failed" },
		"container": func(p *Pod) { p.Containers[0].State = StateExited },
		"mount":     func(p *Pod) { p.Mounts = nil },
		"processes": func(p *Pod) { p.Tasks = nil },
		"finalizer": func(p *Pod) { p.Finalizers = []string{"f"} },
		"unread":    func(p *Pod) { p.HungSince = p.Time.Add(-time.Minute) },
	} {
		next := at(120)
		change(next)
		next.Since(second)
		if !next.UnchangedSince.Equal(next.Time) {
			t.Errorf("%s: no new stage", name)
		}
	}
}

// A shim that answers now and then moves nothing on.
func TestSinceSeesAnswers(t *testing.T) {
	t0 := time.Unix(1000, 0)
	for name, test := range map[string]struct {
		statuses  []string // "" is no answer
		unchanged int      // the first of the readings that show no change
		stage     int
	}{
		"it answers":                      {[]string{"running", "running", "running"}, 0, 0},
		"it does not":                     {[]string{"running", "", ""}, 1, 0},
		"it does again":                   {[]string{"running", "", "running"}, 2, 0},
		"it says that the container ends": {[]string{"running", "running", "stopped"}, 2, 2},
	} {
		var before *Pod
		for i, status := range test.statuses {
			p := &Pod{
				UID: "u", Time: t0.Add(time.Duration(i) * time.Minute), Phase: "Running", Tasks: []Task{{TID: 1}},
				Containers: []Container{{ID: "c", State: StateRunning, Task: ShimTask{Status: status}}},
			}
			p.Since(before)
			before = p
		}
		at := func(i int) time.Time { return t0.Add(time.Duration(i) * time.Minute) }
		if !before.UnchangedSince.Equal(at(test.unchanged)) || !before.StageSince.Equal(at(test.stage)) {
			t.Errorf("%s: unchanged for %s, at the same stage for %s", name, before.Time.Sub(before.UnchangedSince), before.Time.Sub(before.StageSince))
		}
	}
}

func TestLackKeepsTheFirstReason(t *testing.T) {
	var p Pod
	p.Lack(Shims, "first")
	p.Lack(Shims, "second")
	if diff := cmp.Diff(map[Source]string{Shims: "first"}, p.Missing); diff != "" {
		t.Error(diff)
	}
}

func TestSinceOfWhatIsMissing(t *testing.T) {
	begun := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	var last *Pod
	for i, want := range []time.Duration{-1, 1, 1, -1, 4} { // of Shims, in seconds; -1 is none
		p := &Pod{UID: "u", Time: begun.Add(time.Duration(i) * time.Second)}
		if want >= 0 {
			p.Lack(Shims, "no answer")
		}
		p.Since(last)
		at := p.LackingSince(Shims)
		if at.IsZero() != (want < 0) || want >= 0 && !at.Equal(begun.Add(want*time.Second)) {
			t.Errorf("reading %d: missing since %v, want %d s", i, at, want)
		}
		last = p
	}
}

func TestLimitsSince(t *testing.T) {
	start := time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)
	reading := func(seconds int, cpu CPU, memory Memory) *Pod {
		return &Pod{UID: "u", Time: start.Add(time.Duration(seconds) * time.Second), Cgroups: []Cgroup{{Path: "/c", CPU: &cpu, Memory: &memory}}}
	}
	var last *Pod
	for _, tc := range []struct {
		seconds          int
		cpu              CPU
		memory           Memory
		throttled, stall int // seconds after start, -1 for not
	}{
		{0, CPU{UsedMicros: 100, Periods: 10, Throttled: 10}, Memory{StalledMicros: 0}, -1, -1},
		{2, CPU{UsedMicros: 20_100, Periods: 30, Throttled: 28}, Memory{StalledMicros: 2_000_000}, 0, 0},
		// One reading in between that shows nothing does not end what is true as a whole.
		{4, CPU{UsedMicros: 40_100, Periods: 50, Throttled: 42}, Memory{StalledMicros: 2_000_000}, 0, 0},
		{6, CPU{UsedMicros: 60_100, Periods: 90, Throttled: 42}, Memory{StalledMicros: 2_100_000}, -1, -1},
		{8, CPU{UsedMicros: 80_100, Periods: 110, Throttled: 62}, Memory{StalledMicros: 4_600_000}, 6, 6},
		{10, CPU{UsedMicros: 0, Periods: 1, Throttled: 1}, Memory{StalledMicros: 0}, -1, -1}, // another group of the name
	} {
		p := reading(tc.seconds, tc.cpu, tc.memory)
		p.Since(last)
		last = p
		at := func(s int) time.Time {
			if s < 0 {
				return time.Time{}
			}
			return start.Add(time.Duration(s) * time.Second)
		}
		g := p.Cgroups[0]
		if !g.CPU.ThrottledSince.Equal(at(tc.throttled)) || !g.Memory.StalledSince.Equal(at(tc.stall)) {
			t.Errorf("after %d s: throttled since %v, stalled since %v, want %v and "+
				"%v", tc.seconds, g.CPU.ThrottledSince, g.Memory.StalledSince, at(tc.throttled), at(tc.stall))
		}
		if tc.seconds == 4 && g.CPU.RecentMillis != 10 {
			t.Errorf("used %d thousandths of a processor, want 10", g.CPU.RecentMillis)
		}
	}
}

// A look for which containerd was too busy knows the containers of the one before,
// and no more of them than that.
func TestSinceKeepsIDs(t *testing.T) {
	seen := &Pod{UID: "u", Containers: []Container{
		{Name: "main", Kind: App, ID: "a", State: StateRunning, Task: ShimTask{PID: 7}}, {Name: "POD", Kind: Sandbox, ID: "p", State: StateRunning},
	}}
	busy := &Pod{UID: "u", Containers: []Container{{Name: "main", Kind: App}}}
	busy.Lack(Containers, "no answer")
	busy.Since(seen)
	want := []Container{{Name: "main", Kind: App, ID: "a"}, {Name: "POD", Kind: Sandbox, ID: "p"}}
	if diff := cmp.Diff(want, busy.Containers); diff != "" {
		t.Errorf("containers differ (-want +got):\n%s", diff)
	}
	other := &Pod{UID: "v", Containers: []Container{{Name: "main", Kind: App}}}
	other.Lack(Containers, "no answer")
	other.Since(seen)
	if other.Containers[0].ID != "" {
		t.Error("another pod's container was taken")
	}
	told := &Pod{UID: "u", Containers: []Container{{Name: "main", Kind: App}}}
	told.Since(seen)
	if told.Containers[0].ID != "" {
		t.Error("containerd has told that it knows no such container")
	}
}

// That no task of a container is left while its record says that it runs counts from the
// first of the readings in a row that showed it, with the same answer of the shim.
func TestSinceOfAVacantContainer(t *testing.T) {
	t0 := time.Unix(1000, 0)
	stopped := ShimTask{Status: "stopped", PID: 7, Drained: true}
	var earlier *Pod
	for i, step := range []struct {
		change func(p *Pod, c *Container)
		want   int // the number of the reading since which it is so, -1 for not
	}{
		{func(*Pod, *Container) {}, 0},
		{func(*Pod, *Container) {}, 0},
		{func(_ *Pod, c *Container) { c.Task.Status = "running" }, -1}, // it may have left its cgroup
		{func(_ *Pod, c *Container) { c.Task.Status, c.Task.PIDGone = "running", true }, 3},
		{func(_ *Pod, c *Container) { c.Task = ShimTask{Absent: true} }, 4},
		{func(_ *Pod, c *Container) { c.Task = ShimTask{Absent: true} }, 4},
		{func(_ *Pod, c *Container) { c.Task = ShimTask{UnansweredSince: t0, Attempts: 1} }, -1},
		{func(*Pod, *Container) {}, 7},
		{func(p *Pod, _ *Container) { p.Tasks = []Task{{PID: 9, TID: 9, Container: "c"}} }, -1},
		{func(*Pod, *Container) {}, 9},
		{func(p *Pod, _ *Container) { p.Tasks = []Task{{PID: 7, TID: 7}} }, -1}, // a zombie
		{func(_ *Pod, c *Container) { c.State = StateExited }, -1},
		{func(*Pod, *Container) {}, 12},
		{func(p *Pod, _ *Container) { p.Lack(Processes, "no") }, -1},
		{func(p *Pod, _ *Container) { p.Lack(Cgroups, "no") }, -1},
		{func(p *Pod, _ *Container) { p.TasksRead = time.Time{} }, -1},
		{func(*Pod, *Container) {}, 16},
		{func(_ *Pod, c *Container) { c.Task.Drained = false }, -1},
		{func(_ *Pod, c *Container) { c.Task.Drained, c.Task.PIDGone = false, true }, -1},
		{func(_ *Pod, c *Container) { c.Task.Drained, c.Task.PIDGone = false, true }, -1},
		{func(*Pod, *Container) {}, 20},
	} {
		at := t0.Add(time.Duration(i) * time.Minute)
		p := &Pod{Time: at, ContainersRead: at.Add(time.Second), TasksRead: at.Add(2 * time.Second), UID: "u", NoShimSince: at, DeletionRequested: t0,
			Containers: []Container{{ID: "c", State: StateRunning, Task: stopped}}}
		step.change(p, &p.Containers[0])
		p.Since(earlier)
		want := time.Time{}
		if step.want >= 0 {
			want = t0.Add(time.Duration(step.want)*time.Minute + 2*time.Second)
		}
		if got := p.Containers[0].VacantSince; !got.Equal(want) {
			t.Errorf("reading %d: since %s, want %s", i, got, want)
		}
		if held := p.Containers[0].Task.HeldUntil; !held.Equal(map[bool]time.Time{true: t0.Add(19*time.Minute + 2*time.Second)}[i >= 19]) {
			t.Errorf("reading %d: held until %s", i, held)
		}
		if !p.NoShimSince.Equal(t0.Add(2 * time.Second)) {
			t.Errorf("reading %d: no shim since %s", i, p.NoShimSince)
		}
		earlier = p
	}
}

// Who held the output of a container that was first seen long after the deletion, and had
// ended by then, is not known.
func TestSinceOfAContainerSeenLate(t *testing.T) {
	t0 := time.Unix(1000, 0)
	for name, tc := range map[string]struct {
		after time.Duration
		tasks []Task
		held  bool
	}{
		"at once": {10 * time.Second, nil, false},
		"late":    {11 * time.Second, nil, true},
		"alive":   {11 * time.Second, []Task{{PID: 7, TID: 7, Container: "c"}}, false},
	} {
		at := t0.Add(tc.after)
		var last *Pod
		for range 2 {
			p := &Pod{Time: at, TasksRead: at, UID: "u", DeletionRequested: t0, Tasks: tc.tasks,
				Containers: []Container{{ID: "c", State: StateRunning, Task: ShimTask{Status: "stopped", PID: 7, Drained: true}}}}
			p.Since(last)
			at, last = at.Add(time.Minute), p
		}
		if got := last.Containers[0].Task.HeldUntil; !got.Equal(map[bool]time.Time{true: t0.Add(tc.after)}[tc.held]) {
			t.Errorf("%s: held until %s", name, got)
		}
	}
}

func TestScarce(t *testing.T) {
	for name, tc := range map[string]struct {
		pressure *Pressure
		want     []string
	}{
		"not known": {nil, nil},
		"at ease":   {&Pressure{CPU: starved - 0.1, Memory: 1, IO: 1}, nil},
		"one":       {&Pressure{CPU: starved}, []string{"processors"}},
		"all":       {&Pressure{CPU: 99, Memory: 50, IO: 60}, []string{"processors", "memory", "I/O"}},
	} {
		if got := tc.pressure.Scarce(); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

// A disk is still for as long as readings show the same number of requests that have
// ended, and works while that number moves.
func TestSinceOfDisks(t *testing.T) {
	begin := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	var last *Pod
	for i, tt := range []struct {
		completed uint64
		still     time.Duration
		moved     bool
	}{
		{7, 0, false}, {7, 10 * time.Second, false}, {8, 0, true}, {8, 10 * time.Second, true}, {9, 0, true},
		{1, 0, false}, // another device under the same number
	} {
		read := begin.Add(time.Duration(i) * 10 * time.Second)
		p := &Pod{UID: "u", Time: read, Tasks: []Task{{PID: 1, TID: 1, Probe: &Probe{Mount: &Mount{
			Device: "0:40", Backing: &Mount{Device: "8:1", Disk: &Disk{Completed: tt.completed, Read: read}},
		}}}}}
		p.Since(last)
		d := p.Tasks[0].Probe.Mount.Backing.Disk
		if d.Still() != tt.still || d.Moved.IsZero() == tt.moved {
			t.Errorf("reading %d: still for %s, moved %s", i, d.Still(), d.Moved)
		}
		last = p
	}
	if d := (&Disk{Read: begin}); d.Still() != 0 {
		t.Errorf("read once, and still for %s", d.Still())
	}
}

// That a service is away counts from the first of the readings in a row.
func TestSinceOfTheNode(t *testing.T) {
	t0 := time.Unix(1000, 0)
	read := func(s int, absent bool, earlier *Node) *Node {
		n := &Node{Time: t0.Add(time.Duration(s) * time.Second), Read: t0.Add(time.Duration(s+1) * time.Second)}
		if absent {
			n.Kubelet.AbsentSince, n.Containerd.AbsentSince = n.Time, n.Time
		}
		n.Since(earlier)
		return n
	}
	first := read(0, true, nil)
	second := read(4, true, first)
	third := read(8, false, second)
	fourth := read(12, true, third)
	for i, tc := range []struct {
		n      *Node
		absent int // seconds, 0 for not
	}{{first, 1}, {second, 1}, {third, 0}, {fourth, 13}} {
		want := time.Time{}
		if tc.absent > 0 {
			want = t0.Add(time.Duration(tc.absent) * time.Second)
		}
		if !tc.n.Kubelet.AbsentSince.Equal(want) || !tc.n.Containerd.AbsentSince.Equal(want) {
			t.Errorf("reading %d: %+v, %+v", i, tc.n.Kubelet, tc.n.Containerd)
		}
	}
}

// A child of the shim that has not executed its program yet has the arguments of another, and
// a PID is used again.
func TestSinceOfRuntimeCommands(t *testing.T) {
	at := func(second int) time.Time { return time.Date(2026, 1, 2, 3, 4, second, 0, time.UTC) }
	read := func(second int, change func(c *RuntimeCommand)) *Pod {
		c := RuntimeCommand{Runtime: "runc", Command: "kill", Container: "c", Tasks: []Task{{PID: 7, TID: 7, Probe: &Probe{Start: 70}}, {PID: 8, TID: 8, PPID: 7}}}
		change(&c)
		return &Pod{UID: "u", Time: at(second), TasksRead: at(second + 1), RuntimeCommands: []RuntimeCommand{c}}
	}
	same := func(*RuntimeCommand) {}
	for name, test := range map[string]struct {
		change func(c *RuntimeCommand)
		want   time.Time
	}{
		"the same":               {same, at(1)},
		"another command":        {func(c *RuntimeCommand) { c.Command = "delete" }, at(5)},
		"of another container":   {func(c *RuntimeCommand) { c.Container = "d" }, at(5)},
		"another process":        {func(c *RuntimeCommand) { c.Tasks[0].Probe = &Probe{Start: 71} }, at(5)},
		"left behind":            {func(c *RuntimeCommand) { c.Left = true }, at(5)},
		"its start is not known": {func(c *RuntimeCommand) { c.Tasks[0].Probe = nil }, at(5)},
	} {
		first, second := read(0, same), read(4, test.change)
		first.Since(nil)
		second.Since(first)
		if got := second.RuntimeCommands[0].Since; !got.Equal(test.want) {
			t.Errorf("%s: since %s, want %s", name, got, test.want)
		}
		if got := second.RuntimeCommands[0].Tasks[1].UnchangedSince; test.want.Equal(at(1)) && !got.Equal(at(1)) {
			t.Errorf("%s: its child unchanged since %s", name, got)
		}
	}
}

// Looks at commands that end a pod count from the first one on that waits for a program that scans files, and again from the
// first one after a sign of an answer.
func TestSinceOfScannerWaits(t *testing.T) {
	begin := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	const waits, works, probes, left, vain, plugin, none, unread = "waits", "works", "probes", "left", "vain", "plugin", "none", "unread"
	minute := func(n int) time.Time { return begin.Add(time.Duration(n) * time.Minute) }
	waited := func(since, last, unanswered, waits int) ScannerWaits {
		return ScannerWaits{Since: minute(since), Last: minute(last), UnansweredSince: minute(unanswered), Waits: waits}
	}
	for name, tc := range map[string]struct {
		looks []string       // a minute apart
		state ContainerState // of the container in the last one
		want  ScannerWaits
	}{
		"none":                            {looks: []string{works, none, works}},
		"two of three":                    {looks: []string{works, waits, works, none, waits}, want: waited(1, 4, 4, 1)},
		"all of them":                     {looks: []string{waits, none, waits, waits}, want: waited(0, 3, 0, 3)},
		"it works at last":                {looks: []string{waits, works}, want: ScannerWaits{Since: begin, Last: begin}},
		"a plugin":                        {looks: []string{plugin}, want: waited(0, 0, 0, 1)},
		"a probe, and what is left":       {looks: []string{probes, left}},
		"it kills what has been killed":   {looks: []string{vain}},
		"a container has ended":           {looks: []string{waits, waits}, state: StateExited, want: waited(1, 1, 1, 1)},
		"a container has ended, and none": {looks: []string{waits, none}, state: StateExited},
		"one may have got done unseen":    {looks: []string{waits, unread, waits}, want: waited(0, 2, 2, 1)},
		"the next try is long ago":        {looks: []string{waits, none, none, none, none, none, none}},
	} {
		var before *Pod
		for i, look := range tc.looks {
			p := &Pod{UID: "u", Time: begin.Add(time.Duration(i) * time.Minute), Containers: []Container{{ID: "c", State: StateRunning}}}
			if i == len(tc.looks)-1 && tc.state != "" {
				p.Containers[0].State = tc.state
			}
			asking := Task{PID: 7, TID: 7, State: Uninterruptible, Probe: &Probe{Wchan: "fanotify_get_response"}}
			c := RuntimeCommand{Runtime: "runc", Command: "kill", Container: "c", Tasks: []Task{asking}}
			switch look {
			case works:
				c.Tasks[0].Probe.Wchan = "do_wait"
			case probes:
				c.Command = "exec"
			case left:
				c.Left = true
			case vain:
				p.Tasks = []Task{{PID: 5, TID: 5, Container: "c", State: Uninterruptible, Pending: 1 << 8}}
			case plugin:
				p.Plugins = c.Tasks
			case unread:
				p.HungSince = p.Time.Add(-time.Minute)
			}
			if look != none && look != plugin && look != unread {
				p.RuntimeCommands = []RuntimeCommand{c}
			}
			p.Since(before)
			before = p
		}
		if before.ScannerWaits != tc.want {
			t.Errorf("%s: %+v, want %+v", name, before.ScannerWaits, tc.want)
		}
	}
}

// That a program that scans files answers is seen when what waits has run, and that a command has got done when it is gone before
// it is killed.
func TestSinceOfScannerAnswers(t *testing.T) {
	begin := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	type look struct {
		at, started int // seconds; no command where it has not started
		switches    uint64
		plugin      int // the PID of another plugin that waits
	}
	for name, tc := range map[string]struct {
		command string
		looks   []look
		want    int // since when none is answered, in seconds, -1 for a sign of an answer since the last wait
	}{
		"it has run":                           {"kill", []look{{10, 5, 1, 0}, {30, 5, 2, 0}}, 30},
		"it has not":                           {"kill", []look{{10, 5, 1, 0}, {30, 5, 1, 0}}, 10},
		"not for a while since":                {"kill", []look{{10, 5, 1, 0}, {30, 5, 2, 0}, {60, 5, 2, 0}}, 30},
		"another one has run more":             {"delete", []look{{10, 5, 1, 0}, {30, 25, 2, 0}}, 10},
		"it is gone soon":                      {"kill", []look{{10, 5, 1, 0}, {30, 0, 0, 0}}, -1},
		"another one has come":                 {"kill", []look{{10, 5, 1, 0}, {30, 28, 0, 0}}, 30},
		"it may have been killed":              {"kill", []look{{10, 5, 1, 0}, {65, 0, 0, 0}}, 10},
		"a container may have been deleted":    {"delete", []look{{10, 9, 1, 0}, {13, 0, 0, 0}}, -1},
		"that may have been killed":            {"delete", []look{{10, 9, 1, 0}, {14, 0, 0, 0}}, 10},
		"a plugin is gone that another called": {"kill", []look{{10, 5, 1, 9}, {30, 5, 1, 0}}, 30},
	} {
		var before *Pod
		for _, look := range tc.looks {
			at := begin.Add(time.Duration(look.at) * time.Second)
			p := &Pod{UID: "u", Time: at, TasksRead: at, Containers: []Container{{ID: "c", State: StateRunning}}}
			waits := func(pid, parent int) Task {
				started := begin.Add(time.Duration(look.started) * time.Second)
				return Task{PID: pid, TID: pid, PPID: parent, State: Uninterruptible, Switches: look.switches,
					Probe: &Probe{Wchan: "fanotify_get_response", Start: uint64(look.started), Started: started}}
			}
			pid := 100 + look.started
			switch {
			case look.started == 0:
			case strings.HasPrefix(name, "a plugin"):
				if p.Plugins = []Task{waits(pid, 7)}; look.plugin != 0 {
					p.Plugins = append(p.Plugins, waits(look.plugin, pid))
				}
			default:
				p.RuntimeCommands = []RuntimeCommand{{Runtime: "runc", Command: tc.command, Container: "c", Tasks: []Task{waits(pid, 50)}}}
			}
			p.Since(before)
			before = p
		}
		moment := func(t time.Time) int {
			if t.IsZero() {
				return -1
			}
			return int(t.Sub(begin).Seconds())
		}
		if w := before.ScannerWaits; moment(w.UnansweredSince) != tc.want {
			t.Errorf("%s: %+v", name, w)
		}
	}
}

// Tries to delete a container that take long are counted, each once, until the container has
// ended by containerd's record.
func TestSinceOfDeletes(t *testing.T) {
	at := func(second int) time.Time { return time.Date(2026, 1, 2, 3, 4, second, 0, time.UTC) }
	read := func(second int, start uint64, started int) *Pod {
		p := &Pod{UID: "u", Time: at(second), TasksRead: at(second), Containers: []Container{{ID: "c", State: StateRunning}}}
		if start != 0 {
			p.RuntimeCommands = []RuntimeCommand{{Command: "delete", Container: "c", Tasks: []Task{{PID: 7, TID: 7, Probe: &Probe{Start: start, Started: at(started)}}}}}
		}
		return p
	}
	changed := func(p *Pod, change func(p *Pod)) *Pod {
		change(p)
		return p
	}
	for name, test := range map[string]struct {
		readings []*Pod
		want     int
	}{
		"two tries":      {[]*Pod{read(2, 70, 0), read(6, 70, 0), read(9, 70, 0), read(11, 0, 0), read(13, 71, 12), read(18, 71, 12), read(24, 0, 0)}, 2},
		"one try":        {[]*Pod{read(2, 70, 0), read(6, 70, 0), read(9, 70, 0)}, 1},
		"short ones":     {[]*Pod{read(2, 70, 0), read(4, 70, 0), read(6, 71, 5), read(9, 71, 5)}, 0},
		"each seen once": {[]*Pod{read(9, 70, 0), read(20, 71, 11), read(31, 72, 22)}, 0},
		"no more than are needed": {[]*Pod{read(1, 70, 0), read(6, 70, 0), read(11, 71, 10), read(16, 71, 10), read(21, 72, 20), read(26, 72, 20),
			read(31, 73, 30), read(36, 73, 30)}, 3},
		"it is deleted": {[]*Pod{read(2, 70, 0), read(6, 70, 0), changed(read(11, 0, 0), func(p *Pod) { p.Containers[0].State = StateExited })}, 0},
		"containerd does not answer": {[]*Pod{read(2, 70, 0), read(6, 70, 0), changed(read(11, 0, 0), func(p *Pod) {
			p.Containers[0].State = ""
			p.Lack(Containers, "no answer")
		})}, 1},
		"another command": {[]*Pod{changed(read(2, 70, 0), func(p *Pod) { p.RuntimeCommands[0].Command = "kill" }),
			changed(read(6, 70, 0), func(p *Pod) { p.RuntimeCommands[0].Command = "kill" })}, 0},
	} {
		var before *Pod
		for _, p := range test.readings {
			p.Since(before)
			before = p
		}
		tries := 0
		for _, d := range before.Deletes {
			tries += d.Tries
		}
		if tries != test.want {
			t.Errorf("%s: %d tries, want %d", name, tries, test.want)
		}
	}
}

// The ends of a containerd are counted until it has answered for a minute.
func TestSinceOfContainerdsEnds(t *testing.T) {
	t0 := time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC)
	at := func(second int) time.Time { return t0.Add(time.Duration(second) * time.Second) }
	// up is a reading in which it answers over a connection that was made at the second since; down one that is refused.
	up := func(second, since int) *Node {
		return &Node{Time: at(second), Read: at(second), Containerd: ContainerdService{Asked: at(second), ConnectedSince: at(since)}}
	}
	down := func(second int) *Node {
		return &Node{Time: at(second), Read: at(second), Containerd: ContainerdService{Error: "refused", Refused: true, Asked: at(second)}}
	}
	silent := func(second int) *Node {
		return &Node{Time: at(second), Read: at(second), Containerd: ContainerdService{Error: "no answer", UnansweredSince: at(second), Asked: at(second)}}
	}
	for name, test := range map[string]struct {
		readings []*Node
		ends     int
		first    int // -1 for none
	}{
		"it stays up":                         {[]*Node{up(0, -600), up(30, -600), up(59, -600)}, 0, -1},
		"it has stayed up":                    {[]*Node{up(0, -600), up(30, -600), up(60, -600)}, 0, -1},
		"it ends":                             {[]*Node{up(0, -600), down(5), down(7), up(10, 9)}, 1, 5},
		"it ends, and nobody sees it refused": {[]*Node{up(0, -600), up(5, 4), up(10, 9)}, 2, 5},
		"it ends for ever": {[]*Node{up(0, -600), down(5), up(10, 9), down(20), up(30, 29), down(40), up(50, 49), down(60),
			up(70, 69)}, maxEnds, 5},
		"it stays up at last":             {[]*Node{up(0, -600), down(5), up(10, 9), down(20), up(30, 29), up(60, 29), up(89, 29)}, 2, 5},
		"it has stayed up at last":        {[]*Node{up(0, -600), down(5), up(10, 9), down(20), up(30, 29), up(60, 29), up(90, 29)}, 0, -1},
		"it does not answer now and then": {[]*Node{up(0, -600), silent(5), up(10, -600), silent(20), up(30, -600)}, 0, -1},
		"nobody has looked for a while":   {[]*Node{up(0, -600), down(5), up(10, 9), up(75, 70)}, 0, -1},
	} {
		var n *Node
		for _, next := range test.readings {
			next.Since(n)
			n = next
		}
		moment := func(second int) time.Time {
			if second < 0 {
				return time.Time{}
			}
			return at(second)
		}
		if c := &n.Containerd; c.Ends != test.ends || !c.FirstEnd.Equal(moment(test.first)) {
			t.Errorf("%s: %d ends, the first at %s", name, c.Ends, c.FirstEnd)
		}
	}
}

// A command that was to kill a container, and did not get done, is kept until the container has ended.
func TestSinceOfKills(t *testing.T) {
	t0 := time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC)
	read := func(second int, start uint64, started int, state ContainerState) *Pod {
		at := t0.Add(time.Duration(second) * time.Second)
		p := &Pod{UID: "u", Time: at, TasksRead: at, Containers: []Container{{ID: "c", State: state}}}
		if start != 0 {
			p.RuntimeCommands = []RuntimeCommand{{Command: killCommand, Container: "c", Tasks: []Task{{PID: 7, TID: 7, Probe: &Probe{
				Start: start, Started: t0.Add(time.Duration(started) * time.Second),
			}}}}}
		}
		return p
	}
	for name, test := range map[string]struct {
		readings []*Pod
		tries    int
		seen     int
	}{
		"it hangs":             {[]*Pod{read(90, 70, 0, StateRunning), read(101, 70, 0, StateRunning), read(118, 70, 0, StateRunning)}, 1, 118},
		"it has been ended":    {[]*Pod{read(90, 70, 0, StateRunning), read(118, 70, 0, StateRunning), read(130, 0, 0, StateRunning)}, 1, 118},
		"another one is young": {[]*Pod{read(90, 70, 0, StateRunning), read(118, 70, 0, StateRunning), read(140, 71, 135, StateRunning)}, 1, 118},
		"another one hangs": {[]*Pod{read(90, 70, 0, StateRunning), read(118, 70, 0, StateRunning), read(140, 71, 135, StateRunning), read(236,
			71, 135, StateRunning)}, 2, 236},
		"a short one":  {[]*Pod{read(50, 70, 0, StateRunning), read(59, 70, 0, StateRunning), read(61, 0, 0, StateRunning)}, 0, 0},
		"it is killed": {[]*Pod{read(90, 70, 0, StateRunning), read(118, 70, 0, StateRunning), read(130, 0, 0, StateExited)}, 0, 0},
	} {
		var p *Pod
		for _, next := range test.readings {
			next.Since(p)
			p = next
		}
		if len(p.Deletes) > 0 || len(p.Kills) != min(test.tries, 1) {
			t.Errorf("%s: %+v, deletes %+v", name, p.Kills, p.Deletes)
			continue
		}
		for _, k := range p.Kills {
			if k.Tries != test.tries || k.Seen.Sub(t0) != time.Duration(test.seen)*time.Second {
				t.Errorf("%s: %d tries, want %d, the last seen at %s", name, k.Tries, test.tries, k.Seen)
			}
		}
	}
}

// What a shim does not answer while a command of the runtime is at work for it says nothing against it.
func TestSinceOfExcuses(t *testing.T) {
	t0 := time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC)
	// read is a reading whose last request, the attempt of that number, was made at the second asked, if that is not 0.
	read := func(second, asked, attempt int, commands ...RuntimeCommand) *Pod {
		at := t0.Add(time.Duration(second) * time.Second)
		p := &Pod{UID: "u", Time: at, TasksRead: at, Containers: []Container{{ID: "c"}}, RuntimeCommands: commands}
		if attempt > 0 {
			p.Containers[0].Task = ShimTask{Asked: t0.Add(time.Duration(asked) * time.Second), UnansweredSince: t0, Attempts: attempt}
		}
		return p
	}
	command := func(name, container string) RuntimeCommand {
		return RuntimeCommand{Command: name, Container: container, Tasks: []Task{{PID: 7, TID: 7}}}
	}
	kill := command(killCommand, "c")
	unread := func(p *Pod) *Pod {
		p.Lack(RuntimeCommands, "more than 32")
		return p
	}
	// unlisted is a reading in which containerd does not list the containers.
	unlisted := func(second int) *Pod {
		p := read(second, 0, 0)
		p.Containers[0].ID = ""
		p.Lack(Containers, "not listed within 2s")
		return p
	}
	for name, test := range map[string]struct {
		readings []*Pod
		want     int
	}{
		"containers are not listed":          {[]*Pod{read(0, 0, 1, kill), read(3, 3, 2, kill), unlisted(5), unlisted(7), read(9, 3, 2)}, 2},
		"they are not, of one that hangs":    {[]*Pod{read(0, 0, 1), unlisted(2), read(4, 0, 1), read(6, 6, 2), unlisted(8), read(10, 6, 2)}, 0},
		"they are not, and it has answered":  {[]*Pod{read(0, 0, 1, kill), unlisted(5), read(7, 0, 0), read(9, 0, 0)}, 0},
		"no command":                         {[]*Pod{read(0, 0, 1), read(3, 3, 2), read(13, 13, 3)}, 0},
		"a command each time":                {[]*Pod{read(0, 0, 1, kill), read(3, 3, 2, kill), read(13, 13, 3, kill)}, 3},
		"a command at last":                  {[]*Pod{read(0, 0, 1), read(3, 3, 2), read(13, 13, 3, kill)}, 3},
		"a command at first":                 {[]*Pod{read(0, 0, 1, kill), read(2, 0, 1), read(3, 3, 2), read(13, 13, 3)}, 1},
		"a command that has just been ended": {[]*Pod{read(0, 0, 1, kill), read(3, 3, 2), read(13, 13, 3)}, 2},
		"a command when nobody asks":         {[]*Pod{read(0, 0, 1), read(2, 0, 1, kill), read(4, 0, 1, kill), read(6, 0, 1), read(8, 8, 2)}, 0},
		"about another container":            {[]*Pod{read(0, 0, 1, command("delete", "d")), read(3, 3, 2, command("delete", "d"))}, 0},
		"another container is killed":        {[]*Pod{read(0, 0, 1, command(killCommand, "d")), read(3, 3, 2, command(killCommand, "d"))}, 2},
		"another container is created":       {[]*Pod{read(0, 0, 1, command("create", "d")), read(3, 3, 2, command("create", "d"))}, 2},
		"it executes something":              {[]*Pod{read(0, 0, 1, command(execCommand, "c")), read(3, 3, 2, command(execCommand, "c"))}, 0},
		"left behind":                        {[]*Pod{read(0, 0, 1, RuntimeCommand{Left: true}), read(3, 3, 2, RuntimeCommand{Left: true})}, 0},
		"it is not known":                    {[]*Pod{unread(read(0, 0, 1)), unread(read(3, 3, 2))}, 2},
		"it has answered":                    {[]*Pod{read(0, 0, 1, kill), read(3, 3, 2, kill), read(13, 0, 0)}, 0},
	} {
		var p *Pod
		for _, next := range test.readings {
			next.Since(p)
			p = next
		}
		task := &p.Containers[0].Task
		if task.ExcusedAttempts != test.want || task.ExcusedAt.IsZero() != (test.want == 0) {
			t.Errorf("%s: %d of %d requests excused, the last of %s, want %d", name, task.ExcusedAttempts, task.Attempts, task.ExcusedAt, test.want)
		}
	}
}

// That the shim does not wait any more is progress: containerd tries again later.
func TestStageOfRuntimeCommands(t *testing.T) {
	at := func(second int) time.Time { return time.Date(2026, 1, 2, 3, 4, second, 0, time.UTC) }
	read := func(second int, commands ...RuntimeCommand) *Pod {
		return &Pod{UID: "u", Time: at(second), TasksRead: at(second), RuntimeCommands: commands}
	}
	left := RuntimeCommand{Left: true, Tasks: []Task{{PID: 7, TID: 7, Probe: &Probe{Start: 70}}}}
	short := RuntimeCommand{Command: "delete", Tasks: []Task{{PID: 7, TID: 7, Probe: &Probe{Start: 70, Started: at(0)}}}}
	for name, test := range map[string]struct {
		first, second *Pod
		want          time.Time
	}{
		"it has gone":                {read(2, left), read(5), at(5)},
		"it is there":                {read(2, left), read(5, left), at(2)},
		"a command begins":           {read(2), read(5, short), at(2)},
		"a command takes long":       {read(2, short), read(31, short), at(31)},
		"one that took long is over": {read(31, short), read(33), at(33)},
	} {
		test.first.Since(nil)
		test.second.Since(test.first)
		if got := test.second.UnchangedSince; !got.Equal(test.want) {
			t.Errorf("%s: since %s, want %s", name, got, test.want)
		}
	}
}

// Who holds what is left of a container has held it since the first of the readings in a row
// that showed the same process.
func TestSinceOfHolders(t *testing.T) {
	t0 := time.Unix(1000, 0)
	read := func(s int, start uint64, exe string) *Pod {
		k := Task{PID: 7, TID: 7, Comm: "sleep", Probe: &Probe{Start: start, Exe: exe}}
		return &Pod{UID: "u", Time: t0.Add(time.Duration(s) * time.Second), OutputHolders: []OutputHolder{{Task: k}}, ShimChildren: []ShimChild{{Task: k}}}
	}
	first := read(0, 1, "sleep")
	first.Since(nil)
	for name, test := range map[string]struct {
		now  *Pod
		want time.Time
	}{
		"the same":                        {read(5, 1, "sleep"), t0},
		"its PID is another process's":    {read(5, 2, "sleep"), t0.Add(5 * time.Second)},
		"it has executed another program": {read(5, 1, "cat"), t0.Add(5 * time.Second)},
		"whether it is the same is not known": {&Pod{UID: "u", Time: t0.Add(5 * time.Second), OutputHolders: []OutputHolder{{Task: Task{PID: 7,
			Comm: "sleep"}}}, ShimChildren: []ShimChild{{}}}, t0.Add(5 * time.Second)},
	} {
		test.now.Since(first)
		if h, c := test.now.OutputHolders[0].Since, test.now.ShimChildren[0].Since; !h.Equal(test.want) || !c.Equal(test.want) {
			t.Errorf("%s: since %s and %s, want %s", name, h, c, test.want)
		}
	}
}

// The error of a sandbox counts since the same has been answered, whatever numbers are in it.
func TestSinceOfAStatusError(t *testing.T) {
	const left, full = "check network namespace closed: remove netns: try 7", "check network namespace closed: too many open files"
	t0 := time.Unix(1000, 0)
	var earlier *Pod
	for i, step := range []struct {
		err  string
		want int // the number of the reading since which it is so, -1 for not
	}{{full, 0}, {full, 0}, {left, 2}, {strings.ReplaceAll(left, "7", "12"), 2}, {"", -1}, {left, 5}} {
		at := func(reading int) time.Time { return t0.Add(time.Duration(reading) * time.Minute) }
		p := &Pod{Time: at(i), UID: "u", Containers: []Container{{Kind: Sandbox, ID: "s", State: StateExited, StatusError: step.err}}}
		p.Since(earlier)
		want := at(step.want)
		if step.want < 0 {
			want = time.Time{}
		}
		if got := p.Containers[0].StatusErrorSince; !got.Equal(want) {
			t.Errorf("reading %d, %q: since %s, want %s", i, step.err, got, want)
		}
		earlier = p
	}
}

// Nobody uses a block device any more from the first reading on that looked and found nobody.
func TestSinceHeld(t *testing.T) {
	var earlier *Pod
	for i, step := range []struct {
		mount   int // that is held; 0 for none
		missing bool
		want    int // the reading from which on nobody does, 0 for none
	}{
		{0, false, 0}, {8, false, 0}, {7, false, 0}, {7, false, 0}, {0, true, 4}, {0, true, 5}, {0, false, 5}, {8, false, 5}, {7, false, 0}, {8, false, 9},
	} {
		now := &Pod{UID: "u", Time: time.Unix(int64(1000+10*i), 0), Devices: []Mount{{ID: 7}}}
		if step.mount != 0 {
			now.Holders = []Holder{{MountID: step.mount}}
		}
		if step.missing {
			now.Lack(Holders, "a helper hung")
		}
		now.Since(earlier)
		if want := time.Unix(int64(1000+10*step.want), 0); step.want == 0 && !now.UnheldSince.IsZero() || step.want != 0 && !now.UnheldSince.Equal(want) {
			t.Errorf("reading %d: %s", i, now.UnheldSince)
		}
		earlier = now
	}
}

// What is on a loop device has been there since the same mount and the same devices are.
func TestSinceOfLoops(t *testing.T) {
	t0 := time.Unix(1000, 0)
	at := func(id int, device, point string) *Mount { return &Mount{ID: id, Device: device, Point: point} }
	read := func(s int, m *Mount, mapper ...Mapped) *Pod {
		return &Pod{UID: "u", Time: t0.Add(time.Duration(s) * time.Second), Loops: []Loop{{Name: "loop3", MountID: 7, Mount: m, Mapper: mapper}}}
	}
	mapped := func(name, logical string, m *Mount) Mapped { return Mapped{Name: name, Logical: logical, Mount: m} }
	for name, test := range map[string]struct {
		before, now *Pod
		same        bool
	}{
		"nothing":                     {read(0, nil), read(5, nil), true},
		"the same mount":              {read(0, at(90, "7:3", "/a")), read(5, at(90, "7:3", "/a")), true},
		"mounted now":                 {read(0, nil), read(5, at(90, "7:3", "/a")), false},
		"mounted anew":                {read(0, at(90, "7:3", "/a")), read(5, at(91, "7:3", "/a")), false},
		"mounted elsewhere, anew":     {read(0, at(90, "7:3", "/a")), read(5, at(90, "7:3", "/b")), false},
		"a logical volume, as before": {read(0, nil, mapped("vg-a", "vg/a", nil)), read(5, nil, mapped("vg-a", "vg/a", nil)), true},
		"another logical volume":      {read(0, nil, mapped("vg-a", "vg/a", nil)), read(5, nil, mapped("vg-b", "vg/b", nil)), false},
		"another one of this name":    {read(0, nil, mapped("vg-a", "", nil)), read(5, nil, mapped("vg-a", "vg/a", nil)), false},
		"one that is mounted now":     {read(0, nil, mapped("vg-a", "vg/a", nil)), read(5, nil, mapped("vg-a", "vg/a", at(91, "254:0", "/a"))), false},
	} {
		test.before.Since(nil)
		test.now.Since(test.before)
		if got := test.now.Loops[0].Since.Equal(t0); got != test.same {
			t.Errorf("%s: since %s", name, test.now.Loops[0].Since)
		}
	}
}

// A device is the same while its file system is mounted now and then, and what comes after another
// one keeps the loop device in use as well.
func TestSinceOfWhatComesAndGoes(t *testing.T) {
	t0 := time.Unix(1000, 0)
	at := func(id int) *Mount { return &Mount{ID: id, Device: "254:0", Point: "/a"} }
	var before *Pod
	for i, step := range []struct {
		mount                       *Mount
		mapper                      []Mapped
		used, until, device, mount0 int // when each of them began, -1 for never
		mounts, unmounted           int
	}{
		{nil, nil, -1, -1, -1, -1, 0, 0},
		{nil, []Mapped{{Name: "vg-a"}}, 1, 1, 1, 1, 0, 0},
		{nil, []Mapped{{Name: "vg-a", Mount: at(90)}}, 1, 2, 1, 2, 1, 0},
		{nil, []Mapped{{Name: "vg-a", Mount: at(90)}, {Name: "vg-b"}}, 1, 3, 1, 2, 1, 0},
		{nil, []Mapped{{Name: "vg-a"}}, 1, 4, 1, 4, 1, 90},
		{nil, []Mapped{{Name: "vg-a", Mount: at(91)}}, 1, 5, 1, 5, 2, 90},
		{nil, []Mapped{{Name: "vg-b", Mount: at(91)}}, 1, 6, 6, 6, 1, 0},
		{at(92), nil, 1, 7, -1, -1, 0, 0},
		{nil, nil, -1, 7, -1, -1, 0, 0},
		{nil, nil, -1, 7, -1, -1, 0, 0},
		{nil, []Mapped{{Name: "vg-a"}}, 10, 10, 10, 10, 0, 0},
	} {
		time0 := func(s int) time.Time {
			if s < 0 {
				return time.Time{}
			}
			return t0.Add(time.Duration(s) * time.Second)
		}
		now := &Pod{UID: "u", Time: time0(i), Loops: []Loop{{Name: "loop3", MountID: 7, Mount: step.mount, Mapper: step.mapper}}}
		now.Since(before)
		l := &now.Loops[0]
		if !l.UsedSince.Equal(time0(step.used)) || !l.UsedUntil.Equal(time0(step.until)) {
			t.Errorf("reading %d: used since %s until %s", i, l.UsedSince, l.UsedUntil)
		}
		if step.device >= 0 {
			m, unmounted := &l.Mapper[0], 0
			if m.Unmounted != nil {
				unmounted = m.Unmounted.ID
			}
			if !m.Since.Equal(time0(step.device)) || !m.MountSince.Equal(time0(step.mount0)) || m.Mounts != step.mounts || unmounted != step.unmounted {
				t.Errorf("reading %d: %+v", i, m)
			}
		}
		before = now
	}
}

// A request is the same as long as it is over the same connection.
func TestSinceRequests(t *testing.T) {
	t0 := time.Unix(1000, 0)
	first := &Pod{UID: "u", Time: t0, TasksRead: t0.Add(time.Second), Requests: []Request{{Port: 80, Socket: 500}, {Port: 81, Socket: 501}}}
	first.Since(nil)
	second := &Pod{UID: "u", Time: t0.Add(10 * time.Second), Requests: []Request{{Port: 80, Socket: 500}, {Port: 81, Socket: 502}}}
	second.Since(first)
	if got, next := second.Requests[0].Since, second.Requests[1].Since; !got.Equal(t0.Add(time.Second)) || !next.Equal(second.Time) {
		t.Errorf("since %s and %s", got, next)
	}
}

// A limit is used up for as long as it is the same one, of the same process. One that is not any more is
// kept for a while.
func TestSinceShortages(t *testing.T) {
	t0 := time.Unix(1000, 0)
	at := func(after time.Duration, before *Pod, all ...Shortage) *Pod {
		p := &Pod{UID: "u", Time: t0.Add(after), Shortages: all}
		p.Since(before)
		return p
	}
	first := Shortage{Resource: Tasks, Owner: "shim", PID: 50, Cgroup: "/a", Limit: 12, Used: 12}
	second := Shortage{Resource: Descriptors, Owner: "containerd", PID: 60, Limit: 1024, Used: 1024}
	begin := at(0, nil, first, second)
	for name, test := range map[string]struct {
		change func(s *Shortage)
		same   bool
	}{
		"the same":         {func(*Shortage) {}, true},
		"more is used":     {func(s *Shortage) { s.Used++ }, true},
		"another limit":    {func(s *Shortage) { s.Limit++ }, false},
		"another group":    {func(s *Shortage) { s.Cgroup = "/" }, false},
		"started anew":     {func(s *Shortage) { s.PID++ }, false},
		"another resource": {func(s *Shortage) { s.Resource = Descriptors }, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := first
			test.change(&s)
			p := at(10*time.Second, begin, second, s)
			if got, want := p.Shortages[1].Since.Equal(t0), test.same; got != want || !p.Shortages[0].Since.Equal(t0) || len(p.Shortages) != 2 && test.same {
				t.Errorf("since %s: %+v", p.Shortages[1].Since, p.Shortages)
			}
			if test.same {
				return
			}
			if len(p.Shortages) != 3 || !p.Shortages[2].Ended.Equal(p.Time) || !p.Shortages[2].Since.Equal(t0) {
				t.Errorf("what was is %+v", p.Shortages)
			}
		})
	}
	p := begin
	for _, after := range []time.Duration{10 * time.Second, 20 * time.Second, 360 * time.Second} {
		if p = at(after, p, second); len(p.Shortages) != 2 || !p.Shortages[1].Ended.Equal(t0.Add(10*time.Second)) || !p.Shortages[0].Ended.IsZero() {
			t.Errorf("after %s: %+v", after, p.Shortages)
		}
	}
	again := at(365*time.Second, p, second, first)
	if len(again.Shortages) != 2 || !again.Shortages[1].Since.Equal(again.Time) || !again.Shortages[1].Ended.IsZero() {
		t.Errorf("used up again: %+v", again.Shortages)
	}
	if p = at(370*time.Second, p, second); len(p.Shortages) != 1 {
		t.Errorf("it is kept without end: %+v", p.Shortages)
	}
}

// What keeps the kubelet from its volumes is known of for longer than it lasts.
func TestLackedUntil(t *testing.T) {
	t0 := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var earlier *Node
	for _, step := range []struct {
		after    time.Duration
		resource string // what is lacking, "" for nothing
		want     time.Duration
	}{
		{0, Space, -1},
		{2 * time.Second, ReadOnly, 2 * time.Second},
		{4 * time.Second, Descriptors, 4 * time.Second},
		{6 * time.Second, Tasks, 4 * time.Second},
		{10 * time.Minute, "", 4 * time.Second},
	} {
		n := &Node{Read: t0.Add(step.after)}
		if step.resource != "" {
			n.Kubelet.Shortages = []Shortage{{Resource: step.resource, Owner: "kubelet", PID: 9}}
		}
		n.Since(earlier)
		if got := n.Kubelet.LackedUntil; step.want < 0 && !got.IsZero() || step.want >= 0 && !got.Equal(t0.Add(step.want)) {
			t.Errorf("after %s: %s", step.after, got)
		}
		earlier = n
	}
}

// The processes that scan files are looked for while the same task waits for one in two readings.
func TestAwaitsScanner(t *testing.T) {
	waits := func(change func(*Task)) *Node {
		t := Task{PID: 7, TID: 8, State: Uninterruptible, Switches: 9, Probe: &Probe{Wchan: "fanotify_get_response"}}
		change(&t)
		return &Node{Blocked: []Task{t}}
	}
	same := func(*Task) {}
	kubelets := func(n *Node) *Node { return &Node{Kubelet: KubeletService{Blocked: n.Blocked}} }
	for name, test := range map[string]struct {
		now, earlier *Node
		want         bool
	}{
		"the same":                {waits(same), waits(same), true},
		"a thread of the kubelet": {kubelets(waits(same)), kubelets(waits(same)), true},
		"the first reading":       {waits(same), nil, false},
		"the next file":           {waits(same), waits(func(t *Task) { t.Switches-- }), false},
		"another task":            {waits(same), waits(func(t *Task) { t.TID++ }), false},
		"by its stack":            {waits(func(t *Task) { t.Probe = &Probe{Stack: []string{"fanotify_handle_event", "fsnotify"}} }), waits(same), true},
		"it waits in a lock":      {waits(func(t *Task) { t.Probe = &Probe{Wchan: "down_read", Stack: []string{"fanotify_handle_event"}} }), waits(same), false},
		"it was not probed":       {waits(func(t *Task) { t.Probe = nil }), waits(same), false},
		"it is asleep":            {waits(func(t *Task) { t.State = Sleeping }), waits(same), false},
	} {
		if got := test.now.AwaitsScanner(test.earlier); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// A reading knows which handlers an earlier one has shown, of the same program.
func TestBaselineKnowsRemovedHandlers(t *testing.T) {
	const term, hup = SignalSet(1 << (SIGTERM - 1)), SignalSet(1 << (SIGHUP - 1))
	read := func(comm string, caught SignalSet, earlier *Baseline) *Baseline {
		b := &Baseline{Read: time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC), Tasks: []Task{{PID: 1, TID: 1, Comm: comm, Caught: caught}}}
		b.Since(earlier)
		return b
	}
	both := read("a", term|hup, nil)
	one := read("a", hup, both)
	for name, tc := range map[string]struct {
		b    *Baseline
		want SignalSet
	}{
		"first": {both, 0}, "next": {one, term}, "later": {read("a", hup, one), term}, "none is left": {read("a", 0, one), term | hup},
		"there again": {read("a", term|hup, one), 0}, "another program": {read("b", hup, one), 0},
	} {
		if got := tc.b.Tasks[0].Removed; got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

// A task whose container containerd does not tell of is of the one that the pod's status names.
func TestContainerNameByStatus(t *testing.T) {
	for name, tc := range map[string]struct{ id, said, want string }{
		"containerd tells": {"a", "", "main"}, "another one": {"b", "a", ""},
		"the status does": {"", "a", "main"}, "the status has an older one": {"", "b", ""}, "nobody does": {"", "", ""},
	} {
		p := &Pod{Containers: []Container{{Name: "main", Kind: App, ID: tc.id, SaidID: tc.said}}}
		p.Since(nil)
		if got := p.ContainerName(&Task{Container: "a"}); got != tc.want {
			t.Errorf("%s: %q", name, got)
		}
		if c := &p.Containers[0]; c.ID != "" && c.SaidID != "" {
			t.Errorf("%s: has both %q and %q", name, c.ID, c.SaidID)
		}
	}
	none := &Pod{Containers: []Container{{Name: "main", Kind: App}}}
	if got := none.ContainerName(new(Task)); got != "" {
		t.Errorf("of a task in no container's group: %q", got)
	}
}

// That the kubelet has begun to stop a pod stays so when somebody has raised the generation once more.
func TestStopBegunStays(t *testing.T) {
	begin := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	var last *Pod
	for i, p := range []*Pod{{}, {StopAwaited: true}, {StopAwaited: true}, {StopBegun: true}, {StopAwaited: true}} {
		p.Time = begin.Add(time.Duration(i) * time.Second)
		p.Since(last)
		last = p
	}
	if !last.StopBegun || last.StopAwaited || !last.StopAwaitedUntil.Equal(begin.Add(2*time.Second)) {
		t.Errorf("begun %v, awaited %v until %s", last.StopBegun, last.StopAwaited, last.StopAwaitedUntil.Sub(begin))
	}
}
