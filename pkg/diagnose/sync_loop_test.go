package diagnose_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// goesOn is a pod that runs as if it were not deleted, on a node whose kubelet has a thread
// that hangs on a volume of a pod that is gone.
func goesOn(past time.Duration, change func(p *evidence.Pod)) *evidence.Pod {
	const stranger = "5ca1ab1e-0000-4000-8000-00000000dead"
	const point = "/var/lib/kubelet/pods/" + stranger + "/volumes/kubernetes.io~csi/pv/mount"
	deadline := requested.Add(30 * time.Second)
	p := &evidence.Pod{
		Time: deadline.Add(past), UnchangedSince: requested, Namespace: "shop", Name: "web-0", UID: podUID, RuntimeUID: podUID,
		Phase: "Running", DeletionRequested: requested, Deadline: deadline, GracePeriodSeconds: 30,
		Containers: []evidence.Container{
			{Name: "main", Kind: evidence.App, ID: "c1", State: evidence.StateRunning, Running: true, StopSignal: evidence.SIGTERM,
				Task: evidence.ShimTask{Status: "running", PID: 40}},
			{Name: "web-0", Kind: evidence.Sandbox, ID: "5a11d", State: evidence.StateRunning},
		},
	}
	live(p, "sh")
	p.Node.Time, p.Node.Read, p.Node.Pressure = p.Time, p.Time, new(evidence.Pressure)
	k := &p.Node.Kubelet
	k.Process = &evidence.Task{PID: 9, TID: 9, Comm: "kubelet", State: evidence.Sleeping, Owner: "kubelet"}
	k.Health, k.Strangers = "ok", []string{stranger}
	k.Blocked = []evidence.Task{{
		PID: 9, TID: 11, Comm: "kubelet", Owner: "kubelet", State: evidence.Sleeping, UnchangedSince: p.Time.Add(-70 * time.Second), UnchangedUntil: p.Time,
		Probe: &evidence.Probe{
			Syscall: "newfstatat", VolumePath: point, Wchan: "request_wait_answer",
			Mount: &evidence.Mount{ID: 90, Device: "0:77", Point: point, HostPoint: point, Type: "fuse.gcsfuse", Source: "bucket"},
		},
	}}
	change(p)
	return p
}

// ownVolume adds a thread of the kubelet that hangs on a volume of the pod itself.
func ownVolume(p *evidence.Pod, syscall string) {
	k := &p.Node.Kubelet
	t := k.Blocked[0]
	probe := *t.Probe
	probe.Syscall, probe.VolumePath = syscall, "/var/lib/kubelet/pods/"+podUID+"/volumes/kubernetes.io~csi/pv/mount"
	t.TID, t.Probe, t.UnchangedSince = 12, &probe, p.Time.Add(-60*time.Second)
	k.Blocked = append(k.Blocked, t)
}

// onlySaid has the kubelet itself say, for so long, that its loop hangs, and nothing be seen of that.
func onlySaid(ago time.Duration, more ...func(p *evidence.Pod)) func(p *evidence.Pod) {
	return func(p *evidence.Pod) {
		k := &p.Node.Kubelet
		k.Blocked, k.Strangers, k.Health, k.StalledSince = nil, nil, "failing checks: ping, syncloop", p.Time.Add(-ago)
		p.Node.Ready = &evidence.NodeReady{Status: "True", Reason: "KubeletReady"}
		for _, change := range more {
			change(p)
		}
	}
}

// notBegun is a pod of which nothing is on the node, and of which the kubelet has written nothing.
func notBegun(p *evidence.Pod) {
	p.Phase, p.Tasks, p.Cgroups, p.Parents = "Pending", nil, nil, nil
	p.Containers = []evidence.Container{{Name: "main", Kind: evidence.App}}
}

func TestSyncLoopStalled(t *testing.T) {
	const stalled = "KubeletSyncLoopStalled"
	for name, tc := range map[string]struct {
		past   time.Duration
		change func(p *evidence.Pod)
		want   string // "" for anything else
		proved bool
		says   []string
	}{
		"the loop may hang": {70 * time.Second, func(*evidence.Pod) {}, stalled, false, []string{"request_wait_answer", "/sys/fs/fuse/connections/77/abort"}},
		"the kubelet says so": {6 * time.Minute, func(p *evidence.Pod) { p.Node.Kubelet.Health = "failing checks: syncloop" },
			stalled, true, nil},
		"NFS": {70 * time.Second, func(p *evidence.Pod) {
			m := p.Node.Kubelet.Blocked[0].Probe.Mount
			m.Type, m.Source, m.Server = "nfs4", "192.0.2.1:/export", "192.0.2.1"
		}, stalled, false, []string{"192.0.2.1", "Make 192.0.2.1 respond again"}},
		"for less than 45 seconds": {70 * time.Second, func(p *evidence.Pod) {
			p.Node.Kubelet.Blocked[0].UnchangedSince = p.Time.Add(-44 * time.Second)
		}, "", false, nil},
		"the deadline was less than 45 seconds ago": {44 * time.Second, func(*evidence.Pod) {}, "", false, nil},
		"the pod of the volume is in the API":       {70 * time.Second, func(p *evidence.Pod) { p.Node.Kubelet.Strangers = nil }, "", false, nil},
		"its mount is not known":                    {70 * time.Second, func(p *evidence.Pod) { p.Node.Kubelet.Blocked[0].Probe.Mount = nil }, "", false, nil},
		"SIGKILL is sent": {70 * time.Second, func(p *evidence.Pod) {
			p.Tasks[0].Pending, p.Tasks[0].SharedPending = bitKILL, bitKILL
		}, "", false, nil},
		"the container has ended": {70 * time.Second, func(p *evidence.Pod) { p.Tasks, p.Containers[0].State = nil, evidence.StateExited }, "", false, nil},
		"a container starts":      {70 * time.Second, func(p *evidence.Pod) { p.Containers[0].Running, p.Containers[0].Waiting = false, true }, "", false, nil},
		"the shim is silent":      {70 * time.Second, func(p *evidence.Pod) { p.Lack(evidence.Shims, "no answer") }, "", false, nil},
		"containerd is silent":    {70 * time.Second, func(p *evidence.Pod) { p.Node.Containerd.Error = "no answer" }, "", false, nil},
		"a command of runc runs": {70 * time.Second, func(p *evidence.Pod) {
			p.RuntimeCommands = []evidence.RuntimeCommand{{Runtime: "runc", Command: "kill"}}
		}, "", false, nil},
		"the kubelet has tried":       {70 * time.Second, func(p *evidence.Pod) { p.KillFailures = []evidence.KillFailure{{Count: 1}} }, "", false, nil},
		"the deadline is not certain": {70 * time.Second, func(p *evidence.Pod) { p.DeadlineUnsure = true }, "", false, nil},
		"it asks whether something is mounted": {70 * time.Second, func(p *evidence.Pod) {
			probe := p.Node.Kubelet.Blocked[0].Probe
			probe.Syscall, probe.VolumePath = "statx", strings.ReplaceAll(probe.VolumePath, "kubernetes.io~csi", "kubernetes.io~nfs")
		}, stalled, false, nil},
		"a volume that is not CSI's is taken down": {70 * time.Second, func(p *evidence.Pod) {
			probe := p.Node.Kubelet.Blocked[0].Probe
			probe.VolumePath = strings.ReplaceAll(probe.VolumePath, "kubernetes.io~csi", "kubernetes.io~nfs")
		}, "", false, nil},
		"it unmounts":             {70 * time.Second, func(p *evidence.Pod) { p.Node.Kubelet.Blocked[0].Probe.Syscall = "umount2" }, "", false, nil},
		"it removes what is left": {70 * time.Second, func(p *evidence.Pod) { p.Node.Kubelet.Blocked[0].Probe.Syscall = "unlinkat" }, "", false, nil},
		"it asks how full it is":  {70 * time.Second, func(p *evidence.Pod) { p.Node.Kubelet.Blocked[0].Probe.Syscall = "statfs" }, "", false, nil},
		"another loop than that": {6 * time.Minute, func(p *evidence.Pod) {
			p.Node.Kubelet.Blocked[0].Probe.Syscall, p.Node.Kubelet.Health = "umount2", "failing checks: syncloop"
		}, "", false, nil},
		"the kubelet began anew": {70 * time.Second, func(p *evidence.Pod) {
			p.Node.Kubelet.Process.Probe = &evidence.Probe{Start: 1, Started: requested.Add(20 * time.Second)}
		}, "", false, nil},
		"it hangs on a volume of this pod too": {70 * time.Second, func(p *evidence.Pod) {
			ownVolume(p, "newfstatat")
		}, "", false, nil},
		"it hangs there, and the kubelet says so": {6 * time.Minute, func(p *evidence.Pod) {
			ownVolume(p, "newfstatat")
			p.Node.Kubelet.Health = "failing checks: syncloop"
		}, stalled, true, nil},
		"it asks how full a volume of this pod is": {70 * time.Second, func(p *evidence.Pod) {
			ownVolume(p, "statfs")
		}, stalled, false, nil},
		"the kubelet would say so by now": {6 * time.Minute, func(p *evidence.Pod) {
			p.Node.Kubelet.Blocked[0].UnchangedSince = p.Time.Add(-331 * time.Second)
		}, "", false, nil},
		"the kubelet will say so in a moment": {6 * time.Minute, func(p *evidence.Pod) {
			p.Node.Kubelet.Blocked[0].UnchangedSince = p.Time.Add(-329 * time.Second)
		}, stalled, false, nil},
		"the kubelet does not tell": {6 * time.Minute, func(p *evidence.Pod) {
			p.Node.Kubelet.Blocked[0].UnchangedSince, p.Node.Kubelet.Health = p.Time.Add(-331*time.Second), ""
		}, stalled, false, nil},
		"only the kubelet says so": {6 * time.Minute, onlySaid(10 * time.Second), stalled, true,
			[]string{"its health check (syncloop) fails", "no round for at least five minutes", "is not visible, possibly a device " +
				"plugin", "Deleting the plugin's pod has no effect"}},
		"it said so five minutes after the deletion": {6 * time.Minute, onlySaid(10*time.Second, func(p *evidence.Pod) {
			p.Node.Kubelet.StalledAfter = requested.Add(5*time.Minute + 10*time.Second)
		}), stalled, true, nil},
		"its loop came round after the deletion": {6 * time.Minute, onlySaid(10*time.Second, func(p *evidence.Pod) {
			p.Node.Kubelet.StalledAfter = requested.Add(5*time.Minute + 11*time.Second)
		}), "", false, nil},
		"it has said so for a moment": {6 * time.Minute, onlySaid(9 * time.Second), "", false, nil},
		"another check fails": {6 * time.Minute, onlySaid(time.Minute, func(p *evidence.Pod) {
			p.Node.Kubelet.Health = "failing checks: watchsyncloop"
		}), "", false, nil},
		"it says so, and unmounts something": {6 * time.Minute, onlySaid(time.Minute, func(p *evidence.Pod) {
			goesOn(0, func(q *evidence.Pod) {
				p.Node.Kubelet.Blocked, p.Node.Kubelet.Strangers = q.Node.Kubelet.Blocked, q.Node.Kubelet.Strangers
			})
			p.Node.Kubelet.Blocked[0].Probe.Syscall = "umount2"
		}), stalled, true, []string{"is not visible"}},
		"it says so, and hangs on a volume of the pod": {6 * time.Minute, onlySaid(time.Minute, func(p *evidence.Pod) {
			p.Node.Kubelet.Blocked = goesOn(0, func(*evidence.Pod) {}).Node.Kubelet.Blocked
			ownVolume(p, "newfstatat")
			p.Node.Kubelet.Blocked = p.Node.Kubelet.Blocked[1:]
		}), stalled, true, []string{"is not visible"}},
		"it says so, and a thread hangs on a stranger's volume since a while": {6 * time.Minute, onlySaid(time.Minute, func(p *evidence.Pod) {
			q := goesOn(6*time.Minute, func(*evidence.Pod) {})
			p.Node.Kubelet.Blocked, p.Node.Kubelet.Strangers = q.Node.Kubelet.Blocked, q.Node.Kubelet.Strangers
			p.Node.Kubelet.Blocked[0].UnchangedSince = p.Time.Add(-44 * time.Second)
		}), "", false, nil},
		"it says so, and a thread hangs on a disk": {6 * time.Minute, onlySaid(time.Minute, func(p *evidence.Pod) {
			p.Node.Kubelet.Blocked = []evidence.Task{{
				PID: 9, TID: 11, Comm: "kubelet", Owner: "kubelet", State: evidence.Uninterruptible, UnchangedSince: p.Time.Add(-3 * time.Second), UnchangedUntil: p.Time,
				Probe: &evidence.Probe{Syscall: "fsync", Wchan: "jbd2_log_wait_commit"},
			}}
		}), "", false, nil},
		"it says so, and a thread that could not be asked hangs": {6 * time.Minute, onlySaid(time.Minute, func(p *evidence.Pod) {
			p.Node.Kubelet.Blocked = []evidence.Task{{PID: 9, TID: 11, State: evidence.Uninterruptible, UnchangedSince: p.Time.Add(-3 * time.Second),
				UnchangedUntil: p.Time}}
		}), "", false, nil},
		"it says so, and not all of its threads could be read": {6 * time.Minute, onlySaid(time.Minute,
			func(p *evidence.Pod) { p.Node.Kubelet.Error = "denied" }), "", false, nil},
		// The loop skips its rounds while PLEG is not healthy.
		"it says so, and that the node is not ready": {6 * time.Minute, onlySaid(time.Minute,
			func(p *evidence.Pod) { p.Node.Ready.Status = "False" }), "", false, nil},
		"it says so, and the node is ready since a moment": {6 * time.Minute, onlySaid(time.Minute, func(p *evidence.Pod) {
			p.Node.Ready.Transition = p.Time.Add(-19 * time.Second)
		}), "", false, nil},
		"it says so, and the node is ready since a while": {6 * time.Minute, onlySaid(time.Minute, func(p *evidence.Pod) {
			p.Node.Ready.Transition = p.Time.Add(-20 * time.Second)
		}), stalled, true, nil},
		"it says so, and of the node nothing is known": {6 * time.Minute, onlySaid(time.Minute, func(p *evidence.Pod) { p.Node.Ready = nil }), "", false, nil},
		"it says so, and SIGKILL is sent": {6 * time.Minute, onlySaid(time.Minute, func(p *evidence.Pod) {
			p.Tasks[0].Pending, p.Tasks[0].SharedPending = bitKILL, bitKILL
		}), "", false, nil},
		"it says so, and containerd is silent": {6 * time.Minute, onlySaid(time.Minute,
			func(p *evidence.Pod) { p.Node.Containerd.Error = "no answer" }), "", false, nil},
		"it says so, and has tried to stop it": {6 * time.Minute, onlySaid(time.Minute,
			func(p *evidence.Pod) { p.KillFailures = []evidence.KillFailure{{Count: 1}} }), "", false, nil},
		"it says so, and is stopped": {6 * time.Minute, onlySaid(time.Minute, func(p *evidence.Pod) {
			k := p.Node.Kubelet.Process
			k.State, k.UnchangedSince, k.UnchangedUntil = evidence.Stopped, p.Time.Add(-time.Minute), p.Time
		}), "KubeletDown", true, nil},
		"it says so of a static pod": {6 * time.Minute, onlySaid(time.Minute, func(p *evidence.Pod) { p.Mirror = true }), "", false, nil},
		"it has not begun with the pod": {6 * time.Minute, onlySaid(time.Minute, notBegun), stalled, true, []string{"its health " +
			"check (syncloop) fails", "no round for at least five minutes"}},
		"it has not begun, and hangs there": {6 * time.Minute, func(p *evidence.Pod) {
			notBegun(p)
			p.Node.Kubelet.Health = "failing " +
				"checks: syncloop"
		}, stalled, true, []string{"gcsfuse"}},
		"it has not begun, and may hang": {70 * time.Second, notBegun, "", false, nil},
		"it has begun with the pod": {6 * time.Minute, onlySaid(time.Minute, notBegun,
			func(p *evidence.Pod) { p.Containers[0].Waiting = true }), "", false, nil},
		"it has not begun, but left a group": {6 * time.Minute, onlySaid(time.Minute, notBegun,
			func(p *evidence.Pod) { p.Cgroups = []evidence.Cgroup{{Path: "/x"}} }), "", false, nil},
		"it is a static pod": {6 * time.Minute, func(p *evidence.Pod) {
			p.Mirror, p.Node.Kubelet.Health = true, "failing checks: syncloop"
		}, "", false, nil},
		"the kubelet is stopped": {70 * time.Second, func(p *evidence.Pod) {
			k := p.Node.Kubelet.Process
			k.State, k.UnchangedSince, k.UnchangedUntil = evidence.Stopped, p.Time.Add(-time.Minute), p.Time
		}, "KubeletDown", true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			d := cause.Diagnose(goesOn(tc.past, tc.change))
			f, _ := d.Verdict()
			if tc.want == "" && f.Cause != stalled {
				return
			}
			if f.Cause != tc.want || (f.Confidence == diagnose.Proved) != tc.proved {
				t.Fatalf("phase %s, verdict %s (%s), want %q: %s", d.Phase, f.Cause, f.Confidence, tc.want, f.Message)
			}
			for _, s := range tc.says {
				if text := f.Message + " " + strings.Join(f.Seen, " ") + " " + f.Remedy; !strings.Contains(text, s) {
					t.Errorf("%q is not in: %s", s, text)
				}
			}
		})
	}
}

// As long as the kubelet's health check cannot say that the loop hangs, that is not ruled out.
func TestSyncLoopMayStall(t *testing.T) {
	for name, tc := range map[string]struct {
		past   time.Duration
		change func(p *evidence.Pod)
		want   bool
	}{
		"the check is well":               {70 * time.Second, func(*evidence.Pod) {}, true},
		"and would fail by now":           {loopTold - 30*time.Second, func(*evidence.Pod) {}, false},
		"what it says is not known":       {time.Hour, func(p *evidence.Pod) { p.Node.Kubelet.Health = "" }, true},
		"the kubelet has not begun":       {70 * time.Second, notBegun, true},
		"the kubelet is at work":          {70 * time.Second, func(p *evidence.Pod) { p.KillFailures = []evidence.KillFailure{{Count: 1}} }, false},
		"it is a static pod":              {70 * time.Second, func(p *evidence.Pod) { p.Mirror = true }, false},
		"the deadline is not long passed": {44 * time.Second, func(*evidence.Pod) {}, false},
		"the pod is gone":                 {70 * time.Second, func(p *evidence.Pod) { p.Gone = true }, false},
	} {
		d := cause.Diagnose(goesOn(tc.past, func(p *evidence.Pod) {
			p.Node.Kubelet.Blocked, p.Node.Kubelet.Strangers = nil, nil
			tc.change(p)
		}))
		if got := d.NotLookedFor("KubeletSyncLoopStalled"); got != tc.want {
			t.Errorf("%s: undecided %v", name, got)
		}
		if v, _ := d.Verdict(); tc.want && (v.Cause != "Unknown" || strings.Contains(said(&v), "Ruled out: the known causes "+
			"of") && !strings.Contains(said(&v), "Only partly checked: the known causes of kubelet")) {
			t.Errorf("%s: %s: %s", name, v.Cause, v.Message)
		}
	}
}

// loopTold is when the kubelet's health check has failed at the latest, after the deletion.
const loopTold = 330 * time.Second
