package diagnose_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/verdict"
)

// A pod that is stuck is told of within a quarter of an hour, whatever goes on beside it, and what has moved on is not accused.

// watch runs readings through Since, the rules and a Case, as the agent does; see gets what stands.
func watch(to time.Duration, read func(at time.Duration) *evidence.Pod, see func(at time.Duration, found, stands string)) {
	last := new(evidence.Pod)
	var c verdict.Case
	for at := time.Duration(0); at <= to; at += 4 * time.Second {
		p := read(at)
		p.Node.Time, p.Node.Read, p.TasksRead = p.Time, p.Time, p.Time
		p.Node.Since(&last.Node)
		p.Since(last)
		d := cause.Diagnose(p)
		c.Judge(verdict.Subject{UID: p.UID}, p, d)
		f, _ := d.Verdict()
		see(at, f.Cause, c.Standing().Cause)
		last = p
	}
}

// toldWithin fails unless something stands after 15 minutes.
func toldWithin(t *testing.T, name string, read func(at time.Duration) *evidence.Pod) {
	t.Helper()
	watch(time.Hour, read, func(at time.Duration, _, stands string) {
		if at%(15*time.Minute) == 0 && at > 0 && stands == "" {
			t.Errorf("%s: nothing is told %s past the deadline", name, at)
		}
	})
}

// The kubelet hangs, so its Node is Unknown and its port silent.
func TestSilentKubelet(t *testing.T) {
	for name, change := range map[string]func(p *evidence.Pod){"the pod runs on": func(*evidence.Pod) {}, "nothing is left": bare} {
		toldWithin(t, name, func(at time.Duration) *evidence.Pod {
			return cutOff(at, func(p *evidence.Pod) {
				p.Node.Kubelet.Answers, p.Node.Kubelet.Health = false, "no answer from 192.0.2.1:10250 within 3s"
				p.Node.Ready.Since, p.Node.Ready.Asked = requested, p.Time
				change(p)
			})
		})
	}
}

// A preStop hook of five seconds, on a kernel without PSI.
func TestHookWhereThePressureIsNotKnown(t *testing.T) {
	p := last(readings(30*sec, every(1*sec, 29*sec, 2*sec), func(_ time.Duration, p *evidence.Pod, first *evidence.Task) {
		first.Ignored = bitTERM
		p.Before = known(p)
		p.Before.Tasks = p.Before.Tasks[:1]
		withHook(p, 500*time.Millisecond, 5*sec)
		p.Node.Pressure = nil
	}))
	if v := verdictOf(p); v.Cause != "StopSignalIgnored" {
		t.Errorf("a second before the deadline: %q", v.Cause)
	}
}

// A limit on tasks was used up and is raised; the kubelet's next try waits for the grace period and then kills.
func TestRelievedForTwoMinutes(t *testing.T) {
	const grace, relief = 5 * time.Minute, 90 * time.Second
	watch(relief+grace, func(at time.Duration) *evidence.Pod {
		return short(func(p *evidence.Pod, s *evidence.Shortage) {
			p.GracePeriodSeconds, p.Deadline = 300, p.DeletionRequested.Add(grace)
			p.Time, s.Since = p.Deadline.Add(at), time.Time{}
			f := &p.KillFailures[0]
			f.First, f.Last, f.Count = p.Deadline.Add(-20*time.Second), p.Deadline.Add(min(at, relief-2*time.Second)), 6
			if at >= relief {
				p.Shortages = nil
			}
		})
	}, func(at time.Duration, found, _ string) {
		if at > relief && found == "RuntimeCommandFailing" {
			t.Errorf("%s after the relief: %s", at-relief, found)
		}
	})
}

// A download is one that began, and came last, so long after the pull did.
func download(pull time.Time, began time.Duration, last time.Time, offset int64) evidence.Download {
	return evidence.Download{Started: pull.Add(began), Updated: last, Offset: offset, Total: 9 << 30}
}

// A pull hangs, on a node that pulls several images at once (serializeImagePulls: false): it has just begun, or goes on with what an
// attempt before it has stored.
func TestPullBesideOthers(t *testing.T) {
	for name, began := range map[string]time.Duration{"a pull hangs": time.Second, "a second attempt hangs": -3 * time.Minute} {
		toldWithin(t, name, func(at time.Duration) *evidence.Pod {
			return pulling(at, 2*time.Minute, func(p *evidence.Pod, pull time.Time) []evidence.Download {
				all := []evidence.Download{download(pull, began, pull.Add(time.Second), 0)}
				if at > time.Minute { // of another pod
					all = append(all, evidence.Download{Started: p.Time.Add(-20 * time.Second), Updated: p.Time.Add(-time.Second), Offset: 1 << 20, Total: 9 << 20})
				}
				return all
			})
		})
	}
}

// pulling is a pod that is so long past its deadline, and whose pull began so long before that.
func pulling(at, began time.Duration, downloads func(p *evidence.Pod, pull time.Time) []evidence.Download) *evidence.Pod {
	return pulls(func(p *evidence.Pod) {
		p.Time = p.Deadline.Add(at)
		p.Node.Time, p.Pulls[0].Since = p.Time, p.Deadline.Add(-began)
		p.Node.Containerd.Downloads = downloads(p, p.Pulls[0].Since)
	})
}

// A large image comes, and beside it something does not move: layers of its own that wait for their turn, or what another pod's pull has left.
func TestLargeImageComes(t *testing.T) {
	for name, still := range map[string]func(pull time.Time) evidence.Download{
		"layers that wait": func(pull time.Time) evidence.Download { return download(pull, time.Second, pull.Add(time.Second), 0) },
		"another pod's pull": func(pull time.Time) evidence.Download {
			return download(pull, 20*time.Second, pull.Add(30*time.Second), 1<<20)
		},
	} {
		watch(25*time.Minute, func(at time.Duration) *evidence.Pod {
			return pulling(at, time.Minute, func(p *evidence.Pod, pull time.Time) []evidence.Download {
				return []evidence.Download{download(pull, time.Second, p.Time.Add(-time.Second), 1<<20+int64(at/time.Millisecond)), still(pull)}
			})
		}, func(at time.Duration, _, stands string) {
			if stands != "" {
				t.Errorf("%s: %s past the deadline: %s", name, at, stands)
			}
		})
	}
}

// Nobody may ask the kubelet for its counts, or it does not tell them in time: its next attempt is waited for.
func TestClaimsNotCounted(t *testing.T) {
	for name, p := range map[string]*evidence.Pod{
		"never": unpreparing(70*time.Second, func(p *evidence.Pod) {
			p.Node.Kubelet.VolumeCallsRead = time.Time{}
			p.Lack(evidence.ClaimCalls, "403")
		}),
		"not now": unpreparing(100*time.Second, func(p *evidence.Pod) {
			attempted(p, 30*time.Second)
			p.Node.Kubelet.ClaimCalls[0].RoseBefore, p.Node.Kubelet.VolumeCallsRead = time.Time{}, p.Time.Add(-8*time.Second)
			p.Lack(evidence.ClaimCalls, "timeout")
		}),
	} {
		if v := verdictOf(p); v.Cause != "" {
			t.Errorf("%s: %s", name, v.Cause)
		}
	}
}

// A kubelet that is not heard answers on its port now and then, as on a node that thrashes.
func TestKubeletAnswersNowAndThen(t *testing.T) {
	for name, change := range map[string]func(p *evidence.Pod){"the pod runs on": func(*evidence.Pod) {}, "nothing is left": bare} {
		toldWithin(t, name, func(at time.Duration) *evidence.Pod {
			return cutOff(at, func(p *evidence.Pod) {
				if at%(28*time.Second) < 24*time.Second {
					p.Node.Kubelet.Answers, p.Node.Kubelet.Health = false, "no answer from 192.0.2.1:10250 within 3s"
				}
				p.Node.Ready.Since, p.Node.Ready.Asked = requested, p.Time
				change(p)
			})
		})
	}
}

// Inside the grace period runc kill waits for a scanner that answers it, file by file.
func TestCommandScannedInGrace(t *testing.T) {
	for _, ago := range []time.Duration{50 * time.Second, 62 * time.Second, 95 * time.Second} {
		p := commanded(ago, func(p *evidence.Pod, c *evidence.RuntimeCommand) {
			p.GracePeriodSeconds, p.DeletionRequested = 600, p.Time.Add(-ago-2*time.Second)
			p.Deadline = p.DeletionRequested.Add(10 * time.Minute)
			c.Container, c.Tasks = "c", c.Tasks[:1]
			p.Containers[0].State = evidence.StateRunning
			p.Containers[0].Task = evidence.ShimTask{PID: 100, Asked: p.Time, UnansweredSince: p.Time.Add(-ago), Attempts: 2}
			p.Tasks = []evidence.Task{task(100, 50, "app", evidence.Sleeping, "epoll_wait")}
			p.Tasks[0].Container = "c"
			runc := &c.Tasks[0]
			runc.State, runc.Probe.Wchan, runc.Probe.Syscall, runc.UnchangedSince = evidence.Uninterruptible, asks, "openat", p.Time.Add(-4*time.Second)
			p.ScannerWaits = evidence.ScannerWaits{Since: p.Time.Add(-ago), Last: p.Time, UnansweredSince: p.Time, Waits: 1}
		})
		if v := verdictOf(p); v.Cause != "" {
			t.Errorf("after %s: %s: %s", ago, v.Cause, v.Message)
		}
	}
}

// A hook that begins late, on a kernel without PSI, is not said to be over before it was seen.
func TestHookBeginsLate(t *testing.T) {
	p := last(readings(60*sec, every(1*sec, 22*sec, 2*sec), func(_ time.Duration, p *evidence.Pod, first *evidence.Task) {
		first.Ignored = bitTERM
		p.Before = known(p)
		p.Before.Tasks = p.Before.Tasks[:1]
		withHook(p, 40*sec, 50*sec)
		p.Node.Pressure = nil
	}))
	d := cause.Diagnose(p)
	if w, _ := diagnose.WaitsFor(p, &d); len(d.Findings) > 0 || strings.Contains(w.Message, "had ended") {
		t.Errorf("%v; %q", d.Findings, w.Message)
	}
}

// containerd's disk is full most of the time, and there is room for some seconds again and again.
func TestDiskFullNowAndThen(t *testing.T) {
	for _, psi := range []*evidence.Pressure{nil, {}} {
		full, of := 80*time.Second, 90*time.Second
		if psi != nil {
			full, of = 24*time.Second, 32*time.Second
		}
		toldWithin(t, full.String()+" of "+of.String(), func(at time.Duration) *evidence.Pod {
			return shortContainerd("", func(p *evidence.Pod, s *evidence.Shortage) {
				p.Time, p.KillFailures, p.Node.Pressure = p.Deadline.Add(at), nil, psi
				c := &p.Containers[0]
				c.State, c.Runtime, c.Task = evidence.StateRunning, "io.containerd.runc.v2", evidence.ShimTask{Absent: true}
				p.Node.Containerd.Version, p.Node.Containerd.ConnectedSince = "v2.4.2", p.Time.Add(-time.Hour)
				*s = evidence.Shortage{Owner: "containerd", Resource: evidence.Space, PID: 60, Dir: "/var/lib/containerd", Limit: 40 << 30}
				if at%of >= full {
					p.Shortages = nil
				}
			})
		})
	}
}

// A limit is raised, the sandbox is stopped, and the kubelet deletes the files of a large emptyDir.
func TestStaleAfterRelief(t *testing.T) {
	answer := `rpc error: code = Unknown desc = failed to destroy network for sandbox \"` + sandboxID + `\": ` + noPlugin + `pipe2: too many open files`
	const relief = 90 * time.Second
	watch(6*time.Minute, func(at time.Duration) *evidence.Pod {
		return shortContainerd(answer, func(p *evidence.Pod, s *evidence.Shortage) {
			p.Time, s.Since = p.Deadline.Add(at), time.Time{}
			f := &p.KillFailures[0]
			f.First, f.Last, f.Count = p.Deadline.Add(-20*time.Second), p.Deadline.Add(min(at, relief-2*time.Second)), 6
			if at >= relief {
				p.Shortages, p.Phase = nil, "Succeeded"
				p.Cgroups = []evidence.Cgroup{{Path: "/kubepods/podu", Version: 2}}
				p.Volumes = []evidence.Volume{{Name: "scratch", Plugin: "kubernetes.io~empty-dir", LastDeleted: p.Time}}
			}
		})
	}, func(at time.Duration, _, stands string) {
		if at >= relief+40*time.Second && stands == "NodeResourceExhausted" {
			t.Errorf("%s after the sandbox was stopped %s stands", at-relief, stands)
		}
	})
}
