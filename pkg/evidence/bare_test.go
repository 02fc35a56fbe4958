package evidence

import (
	"slices"
	"testing"
	"time"
)

// Only readings in a row that could read everything and found nothing count.
func TestBareSince(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	reading := func(after time.Duration, change func(p *Pod)) *Pod {
		p := &Pod{
			UID: "u", Phase: "Failed", Time: start.Add(after), TasksRead: start.Add(after + time.Second), Deadline: start.Add(-time.Minute),
			Containers: []Container{{Name: "main", ID: "c", State: StateExited}, {Name: "POD", Kind: Sandbox, ID: "s", State: StateExited}},
		}
		if change != nil {
			change(p)
		}
		return p
	}
	for name, change := range map[string]func(p *Pod){
		"a source was missing":    func(p *Pod) { p.Lack(Volumes, "denied") },
		"a process":               func(p *Pod) { p.Tasks = []Task{{PID: 1}} },
		"a leftover":              func(p *Pod) { p.Leftovers = []Task{{PID: 1}} },
		"a plugin":                func(p *Pod) { p.Plugins = []Task{{PID: 1}} },
		"a network is set up":     func(p *Pod) { p.NetworkSetup = []Task{{PID: 1}} },
		"the shim":                func(p *Pod) { p.Parents = []Task{{PID: 1, Owner: "shim"}} },
		"a group":                 func(p *Pod) { p.Cgroups = []Cgroup{{Path: "/x"}} },
		"a mount":                 func(p *Pod) { p.Mounts = []Mount{{ID: 1}} },
		"a block device":          func(p *Pod) { p.Devices = []Mount{{ID: 1}} },
		"a directory":             func(p *Pod) { p.Volumes = []Volume{{Name: "v"}} },
		"a container":             func(p *Pod) { p.Containers[0].State = StateUnknown },
		"the sandbox":             func(p *Pod) { p.Containers[1].State = StateRunning },
		"the kubelet's word":      func(p *Pod) { p.Phase = "Running" },
		"not past the deadline":   func(p *Pod) { p.Deadline = p.Time },
		"processes were not read": func(p *Pod) { p.TasksRead = time.Time{} },
	} {
		first, other, last := reading(0, nil), reading(10*time.Second, change), reading(20*time.Second, nil)
		first.Since(nil)
		other.Since(first)
		last.Since(other)
		if want := start.Add(time.Second); !first.BareSince.Equal(want) {
			t.Errorf("%s: at first bare since %s, want %s", name, first.BareSince, want)
		}
		if !other.BareSince.IsZero() {
			t.Errorf("%s: bare since %s", name, other.BareSince)
		}
		if want := start.Add(21 * time.Second); !last.BareSince.Equal(want) {
			t.Errorf("%s: afterwards bare since %s, want %s", name, last.BareSince, want)
		}
	}
	first, next := reading(0, nil), reading(10*time.Second, nil)
	first.Since(nil)
	next.Since(first)
	if !next.BareSince.Equal(first.BareSince) {
		t.Errorf("bare since %s, before %s", next.BareSince, first.BareSince)
	}
}

// What was seen of a pod once is known of it from then on, and not of another pod.
func TestSeen(t *testing.T) {
	first := &Pod{UID: "u", Cgroups: []Cgroup{{Path: "/x"}}, Containers: []Container{{Name: "main", Runtime: "b"}, {Name: "POD",
		Runtime: "a"}}, Seen: Seen{Directory: true}}
	first.Since(nil)
	next, other, early := &Pod{UID: "u"}, &Pod{UID: "v"}, &Pod{UID: "u", Before: &Baseline{Tasks: []Task{{PID: 1}}}}
	next.Since(first)
	other.Since(first)
	early.Since(nil)
	if s := next.Seen; !s.Group || !s.Directory || !slices.Equal(s.Runtimes, []string{"a", "b"}) {
		t.Errorf("%+v", s)
	}
	if s := other.Seen; s.Group || s.Directory || s.Runtimes != nil {
		t.Errorf("of another pod: %+v", s)
	}
	if s := early.Seen; !s.Group || s.Directory {
		t.Errorf("before the deletion: %+v", s)
	}
}
