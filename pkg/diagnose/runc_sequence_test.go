package diagnose_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/verdict"
)

// A work is a command of the runtime, from one second to another.
type work struct {
	command, container string
	from, to           float64
	unquiet            bool // its child moves all the time
}

// A play is what happens to a pod of which only the sandbox is left, from its deadline on, and in which readings it is not seen well.
type play struct {
	works  []work
	hung   [2]float64 // when the shim answers nobody by itself
	every  float64    // the seconds between two readings
	until  float64
	ended  float64                           // when the sandbox ends, 0 for never
	change func(at float64, p *evidence.Pod) // after the reading
	blind  func(at float64) string           // "list" for one in which containerd does not list containers, "proc" when /proc cannot be opened
	alive  bool                              // whether the container lives, too, and is what is to be killed
}

// look is what one reading leads to.
type look struct {
	at             float64
	found, stands  string
	outcome        verdict.Outcome
	excused, asked int
}

func (l look) String() string {
	return fmt.Sprintf("%.1f found %q stands %q (%d of %d)", l.at, l.found, l.stands, l.excused, l.asked)
}

// run plays it, with requests to the shim as pkg/cri makes them.
func (s *play) run() []look {
	var out []look
	var earlier *evidence.Pod
	var c verdict.Case
	var since, asked time.Time
	attempts := 0
	if s.every == 0 {
		s.every = 2
	}
	of, id := 1, sandboxID
	if s.alive {
		of, id = 0, "c"
	}
	locked := func(from, to float64) bool {
		if s.hung[1] > 0 && from >= s.hung[0] && to <= s.hung[1] {
			return true
		}
		return slices.ContainsFunc(s.works, func(w work) bool {
			return w.from <= from && to <= w.to && w.command != "exec" && (w.container == id || w.command == "create")
		})
	}
	for at := 0.0; at < s.until; at += s.every {
		p := commanded(0, func(*evidence.Pod, *evidence.RuntimeCommand) {})
		t0 := p.Deadline.Add(time.Second)
		moment := func(second float64) time.Time { return t0.Add(time.Duration(second * float64(time.Second))) }
		p.Time, p.RuntimeCommands, p.UnchangedSince = moment(at), nil, time.Time{}
		if s.alive {
			p.Containers[0].State, p.Containers[0].Task.Status, p.Containers[0].Running = evidence.StateRunning, "running", true
			p.Containers[1].Task = evidence.ShimTask{Status: "running", PID: 90}
			p.Tasks = []evidence.Task{task(100, 50, "app", evidence.Sleeping, "epoll_wait"), task(90, 50, "pause", evidence.Sleeping, "pause")}
			p.Tasks[0].UnchangedSince, p.Tasks[1].UnchangedSince, p.Tasks[1].Container = time.Time{}, time.Time{}, sandboxID
			p.Cgroups = []evidence.Cgroup{{Path: "/kubepods/podu/c", Version: 2, Container: "c", Threads: 1, Populated: true}}
		}
		if s.ended > 0 && at >= s.ended {
			p.Containers[of].State = evidence.StateExited
		}
		how := ""
		if s.blind != nil {
			how = s.blind(at)
		}
		read := at + 0.2
		if how == "list" {
			for _, source := range []evidence.Source{evidence.Containers, evidence.Shims} {
				p.Lack(source, "containerd has not listed containers within 2s")
			}
			p.Containers = []evidence.Container{{Name: "main", Kind: evidence.App}}
			read += 2
		} else {
			pauses := []time.Duration{0, 3 * time.Second, 10 * time.Second, 30 * time.Second, 3 * time.Minute}
			if attempts == 0 || p.Time.Sub(asked) >= pauses[min(attempts, 4)] {
				if locked(at, at+2) {
					read += 2
					if attempts++; attempts == 1 {
						since = p.Time
					}
					asked = p.Time
				} else {
					attempts = 0
				}
			}
			if attempts > 0 {
				p.Containers[of].Task = evidence.ShimTask{Asked: asked, UnansweredSince: since, Attempts: attempts}
				p.Lack(evidence.Shims, "the shim does not answer about container POD")
			} else {
				p.Containers[of].Task = evidence.ShimTask{Asked: p.Time, Status: "running", PID: 90}
			}
		}
		p.ContainersRead, p.CgroupsRead, p.TasksRead = moment(read), moment(read), moment(read)
		switch how {
		case "proc":
			p.Lack(evidence.Processes, "open /proc: too many open files")
			p.Lack(evidence.RuntimeCommands, "open /proc: too many open files")
			p.Parents, p.TasksRead = nil, time.Time{}
		case "list":
		default:
			for i, w := range s.works {
				if w.from > read || read >= w.to {
					continue
				}
				runc, child := task(200+2*i, 50, "runc", evidence.Sleeping, "wait4"), task(201+2*i, 200+2*i, "sleep", evidence.Sleeping, "clock_nanosleep")
				for _, t := range []*evidence.Task{&runc, &child} {
					t.Container, t.Owner, t.Probe.Started, t.UnchangedSince = "", "shim", moment(w.from), time.Time{}
				}
				if w.unquiet {
					child.Switches = uint64(read * 10)
				}
				child.Probe.Wchan = "hrtimer_nanosleep"
				p.RuntimeCommands = append(p.RuntimeCommands, evidence.RuntimeCommand{
					Runtime: "runc", Command: w.command, Container: w.container, Tasks: []evidence.Task{runc, child},
				})
			}
		}
		if s.change != nil {
			s.change(at, p)
		}
		p.Since(earlier)
		earlier = p
		d := cause.Diagnose(p)
		c.Judge(verdict.Subject{Kind: verdict.Pod, Namespace: "n", Name: "p", UID: "u"}, p, d)
		l := look{at: at, stands: c.Standing().Cause, outcome: c.Outcome(), asked: attempts}
		if f, ok := d.Verdict(); ok {
			l.found = f.Cause
		}
		if o, ok := p.Container(id); ok {
			l.excused = o.Task.ExcusedAttempts
		}
		out = append(out, l)
	}
	return out
}

// changes returns when what stands changes.
func changes(looks []look) string {
	var out []string
	before := ""
	for _, l := range looks {
		if l.stands != before {
			out = append(out, fmt.Sprintf("%.0f %s", l.at, l.stands))
			before = l.stands
		}
	}
	return strings.Join(out, ", ")
}

func kills(pairs ...float64) (out []work) {
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, work{command: "kill", container: sandboxID, from: pairs[i], to: pairs[i+1]})
	}
	return out
}

// inContainer is kills of the container.
func inContainer(pairs ...float64) []work {
	out := kills(pairs...)
	for i := range out {
		out[i].container = "c"
	}
	return out
}

// at is for readings in which containerd does not list the containers, as while it is started anew.
func at(times ...float64) func(float64) string {
	return func(now float64) string {
		if slices.Contains(times, now) {
			return "list"
		}
		return ""
	}
}

// What stands about a shim that waits for one runc after the other, and what about one that hangs, from reading to reading.
func TestRuncOneAfterTheOther(t *testing.T) {
	three := kills(0, 120, 132, 252, 265, 385)
	for name, test := range map[string]struct {
		play play
		want string
	}{
		"it is begun again twice":   {play{works: three, until: 500}, "60 RuntimeCommandHanging, 446 "},
		"it is begun again at once": {play{works: kills(0, 120, 120.5, 240.5, 241, 361), until: 480}, "60 RuntimeCommandHanging, 422 "},
		"containerd is started anew in the second": {play{works: kills(0, 120, 132, 250, 264, 384), until: 500, blind: at(250, 252,
			254)}, "60 RuntimeCommandHanging, 444 "},
		"containerd and the kubelet are started anew soon after": {play{works: kills(0, 120, 120.5, 240.5, 241, 305, 332, 452), until: 600,
			blind: at(306, 308, 310, 312, 314, 316)}, "60 RuntimeCommandHanging, 512 "},
		"a starved node, and looks are rare": {play{works: kills(0, 120, 120.5, 240.5, 253, 373), every: 10, until: 540,
			change: func(_ float64, p *evidence.Pod) { p.Node.Pressure.StarvedUntil = p.Time }}, "100 RuntimeCommandHanging, 510 "},
		"it is healed, and a probe is executed in the container all the time": {play{alive: true, until: 400, works: append(inContainer(0, 120, 132, 252),
			work{command: "exec", container: "c", from: 253, to: 400})}, "60 RuntimeCommandHanging, 312 "},
		"containers are not listed between two": {play{works: three, until: 500, blind: at(254)}, "60 RuntimeCommandHanging, 446 "},
		"/proc could not be opened while it was at work": {play{works: three, until: 500, blind: func(now float64) string {
			if now < 256 {
				return "proc"
			}
			return ""
		}}, "258 Unknown, 326 RuntimeCommandHanging, 446 "},
		"the kubelet gives it 90 seconds": {play{works: kills(0, 90, 102, 192, 204, 294, 306, 396), until: 480}, "60 RuntimeCommandHanging, 456 "},
		"a preStop hook takes a minute before it is begun again": {play{works: kills(0, 120, 192, 312), until: 400, change: func(_ float64, p *evidence.Pod) {
			p.Containers[1].PreStop, p.Containers[1].PreStopSleep = true, 60
		}}, "60 RuntimeCommandHanging"},
		"long after one that took its time": {play{works: kills(0, 105, 400, 415), until: 450}, "60 RuntimeCommandHanging, 166 "},
		"the container lives, and the kubelet asks for its sandbox, " +
			"too": {play{alive: true, works: inContainer(0, 120, 120.1, 240, 252, 402, 402.1, 522), until: 600}, "60 RuntimeCommandHanging, 582 "},
		"the shim hangs": {play{hung: [2]float64{0, 1000}, until: 500}, "224 ShimHung"},
		"it hangs, and containers are not listed now and then": {play{hung: [2]float64{0, 1000}, until: 500, blind: at(30, 60, 90, 120, 150, 180,
			210)}, "224 ShimHung"},
		"it hangs since runc was at work for 45 seconds": {play{hung: [2]float64{45, 1000}, works: kills(0, 46), until: 500}, "302 Unknown, 404 ShimHung"},
		"it hangs since runc was at work":                {play{hung: [2]float64{4, 1000}, works: kills(0, 4.5), until: 500}, "224 ShimHung"},
	} {
		if got := changes(test.play.run()); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}
