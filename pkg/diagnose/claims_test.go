package diagnose_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

const draDriver = "gpu.example.org"

// unpreparing is a pod whose containers have ended, of which the kubelet has not said that,
// and which has been at the same stage for the time past its deadline. It has a claim.
func unpreparing(past time.Duration, change func(p *evidence.Pod)) *evidence.Pod {
	deadline := requested.Add(30 * time.Second)
	p := &evidence.Pod{
		Time: deadline.Add(past), UnchangedSince: deadline, Namespace: "shop", Name: "web-0", UID: podUID, RuntimeUID: podUID,
		Phase: "Running", DeletionRequested: requested, Deadline: deadline, GracePeriodSeconds: 30,
		ResourceClaims: 1,
		Claims:         []evidence.Claim{{Name: "gpu", Drivers: []evidence.ClaimDriver{{Name: draDriver}}}},
		Containers: []evidence.Container{
			{Name: "main", Kind: evidence.App, ID: "c0ffee", State: evidence.StateExited, Running: true},
			{Name: "web-0", Kind: evidence.Sandbox, ID: "5a11d", State: evidence.StateExited},
		},
		Cgroups: []evidence.Cgroup{{Path: "/kubepods/pod" + podUID}},
	}
	p.Node.Time, p.Node.Unpreparing, p.Node.Pressure = p.Time, 1, new(evidence.Pressure)
	p.Node.Kubelet.VolumeCallsRead = p.Time
	p.Node.Kubelet.Process = &evidence.Task{PID: 9, TID: 9, Comm: "kubelet", State: evidence.Sleeping, Owner: "kubelet"}
	change(p)
	return p
}

// attempted adds failed attempts at claims of a pod, and released calls of a driver, that were
// counted twice, the last time so long before the reading.
func attempted(p *evidence.Pod, before time.Duration) {
	last := p.Time.Add(-before)
	p.Node.Kubelet.ClaimCalls = append(p.Node.Kubelet.ClaimCalls, evidence.ClaimCall{
		Method: evidence.Unprepare, Status: evidence.ClaimsFailed, Count: 5, Rose: last, RoseBefore: last.Add(-12 * time.Second),
	})
}

func released(p *evidence.Pod, driver, status string, before time.Duration) {
	last := p.Time.Add(-before)
	p.Node.Kubelet.ClaimCalls = append(p.Node.Kubelet.ClaimCalls, evidence.ClaimCall{
		Method: evidence.NodeUnprepare, Driver: driver, Status: status, Count: 5, Rose: last, RoseBefore: last.Add(-12 * time.Second),
	})
}

// The kubelet's next attempt, and what it counts of it, are waited for before the pod is called
// stuck without a cause.
func TestUnknownWaitsForClaims(t *testing.T) {
	starved := func(p *evidence.Pod) { p.Node.Pressure = &evidence.Pressure{StarvedUntil: p.Time} }
	failedOnce := func(p *evidence.Pod) {
		p.Node.Kubelet.ClaimCalls = []evidence.ClaimCall{{Method: evidence.Unprepare, Status: evidence.ClaimsFailed, Count: 1,
			Rose: p.Deadline.Add(90 * time.Second)}}
	}
	for name, tc := range map[string]struct {
		past   time.Duration
		change func(p *evidence.Pod)
		want   bool
	}{
		"an attempt may be under way": {79 * time.Second, func(*evidence.Pod) {}, false},
		"it has ended":                {81 * time.Second, func(*evidence.Pod) {}, true},
		"its count is 20 s old":       {95 * time.Second, func(p *evidence.Pod) { p.Node.Kubelet.VolumeCallsRead = p.Time.Add(-20 * time.Second) }, false},
		"its counts were told again 10 s after the deadline": {85 * time.Second, func(p *evidence.Pod) {
			p.Node.Kubelet.VolumeCallsSince = p.Deadline.Add(10 * time.Second)
		}, false},
		"on a node short of processors":  {130 * time.Second, starved, false},
		"on such a node, for longer":     {141 * time.Second, starved, true},
		"one has failed":                 {2 * time.Minute, failedOnce, false},
		"one has failed, and none since": {4 * time.Minute, failedOnce, true},
		"the kubelet does not tell":      {4 * time.Minute, func(p *evidence.Pod) { p.Node.Kubelet.VolumeCallsRead = p.Time.Add(-time.Minute) }, false},
		"it does not for minutes":        {6 * time.Minute, func(p *evidence.Pod) { p.Node.Kubelet.VolumeCallsRead = p.Time.Add(-time.Minute) }, true},
	} {
		f, found := func() (diagnose.Finding, bool) {
			d := cause.Diagnose(unpreparing(tc.past, tc.change))
			return d.Verdict()
		}()
		if found != tc.want || found && f.Cause != diagnose.Unrecognised.Cause {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

// Attempts that fail, and that may be another pod's, do not rule the cause out.
func TestUnknownDoesNotRuleOutClaims(t *testing.T) {
	d := cause.Diagnose(unpreparing(3*time.Minute, func(p *evidence.Pod) { attempted(p, 10*time.Second) }))
	f, _ := d.Verdict()
	if f.Cause != diagnose.Unrecognised.Cause || !slices.Contains(f.Objects.PartlyRuledOut, "kubelet") {
		t.Errorf("%+v", f)
	}
}

func TestClaimCauses(t *testing.T) {
	const failing = "DRAUnprepareFailing"
	lately := 10 * time.Second
	fails := func(status string) func(p *evidence.Pod) {
		return func(p *evidence.Pod) {
			attempted(p, lately)
			released(p, draDriver, status, lately)
		}
	}
	gone := func(p *evidence.Pod) {
		attempted(p, lately)
		p.Claims[0].Drivers[0].Unregistered = true
	}
	with := func(do ...func(p *evidence.Pod)) func(p *evidence.Pod) {
		return func(p *evidence.Pod) {
			for _, f := range do {
				f(p)
			}
		}
	}
	second := func(claim, driver string) func(p *evidence.Pod) {
		return func(p *evidence.Pod) {
			p.ResourceClaims++
			p.Claims = append(p.Claims, evidence.Claim{Name: claim, Drivers: []evidence.ClaimDriver{{Name: driver}}})
		}
	}
	for name, tc := range map[string]struct {
		past   time.Duration
		change func(p *evidence.Pod)
		want   string // "" for silence
		proved bool
		says   []string
	}{
		"no driver of that name": {90 * time.Second, gone, failing, true,
			[]string{"resource claim gpu", draDriver, "is not registered with this node's kubelet", "check that its DaemonSet exists"}},
		"no driver of that name, though its pod is there": {90 * time.Second, with(gone, func(p *evidence.Pod) {
			d := &p.Claims[0].Drivers[0]
			d.Pod, d.PodState = "kube-system/gpu-x", evidence.DriverNotReady
		}), failing, true, []string{"its pod here, kube-system/gpu-x, is not ready"}},
		"no driver of that name, and another pod of the node ends too": {90 * time.Second, with(gone, func(p *evidence.Pod) { p.Node.Unpreparing = 2 }),
			failing, false, nil},
		"no driver of that name, and another pod of the node ended before": {90 * time.Second, with(gone, func(p *evidence.Pod) {
			p.Node.UnpreparingUntil = p.UnchangedSince.Add(time.Second)
		}), failing, false, nil},
		"no driver of that name, and nobody knows of other pods": {90 * time.Second, with(gone, func(p *evidence.Pod) { p.Node.Unpreparing = 0 }),
			failing, false, nil},
		"no driver of that name, and the Events are not known": {90 * time.Second, with(gone, func(p *evidence.Pod) { p.Lack(evidence.Events, "refused") }),
			failing, true, nil},
		"no driver of that name, another pod of the node ends too, and the Events are not known": {90 * time.Second, with(gone, func(p *evidence.Pod) {
			p.Node.Unpreparing = 2
			p.Lack(evidence.Events, "refused")
		}), "", false, nil},
		"no driver of that name, for less than a minute": {59 * time.Second, gone, "", false, nil},
		"no driver of that name, and the containers ended just now": {90 * time.Second, with(gone,
			func(p *evidence.Pod) { p.UnchangedSince = p.Time.Add(-50 * time.Second) }), "", false, nil},
		"no driver of that name, and no attempt": {90 * time.Second, with(gone,
			func(p *evidence.Pod) { p.Node.Kubelet.ClaimCalls = nil }), "", false, nil},
		"no driver of that name, and one attempt": {90 * time.Second, with(gone, func(p *evidence.Pod) {
			p.Node.Kubelet.ClaimCalls[0].RoseBefore = time.Time{}
		}), "", false, nil},
		"no driver of that name, and attempts before this stage": {90 * time.Second, with(gone, func(p *evidence.Pod) {
			p.Node.Kubelet.ClaimCalls[0].Rose = p.UnchangedSince
		}), "", false, nil},
		"no driver of that name, and attempts that succeed": {90 * time.Second, with(gone, func(p *evidence.Pod) {
			p.Node.Kubelet.ClaimCalls[0].Status = evidence.ClaimsSucceeded
		}), "", false, nil},
		"no driver of that name, and the last attempt is long ago": {5 * time.Minute, with(gone, func(p *evidence.Pod) {
			p.Node.Kubelet.ClaimCalls[0].Rose = p.Time.Add(-3 * time.Minute)
		}), "Unknown", false, nil},
		"a driver with a socket of another name": {90 * time.Second, with(gone, func(p *evidence.Pod) { released(p, draDriver, "Internal", lately) }),
			failing, true, []string{"(NodeUnprepareResources: Internal)"}},
		"no driver of that name, and another driver is called": {90 * time.Second, with(second("nic", "nic.example.org"), gone, func(p *evidence.Pod) {
			released(p, "nic.example.org", evidence.CallOK, lately)
		}), failing, false, []string{"resource claim gpu"}},
		"a driver with a socket of another name, and another driver fails before " +
			"it": {90 * time.Second, with(second("nic", "nic.example.org"), gone, func(p *evidence.Pod) {
			released(p, "nic.example.org", "Internal", lately)
		}), failing, true, []string{"resource claim nic", "(NodeUnprepareResources: Internal)"}},
		"a driver with a socket of another name, and another driver has failed " +
			"once": {90 * time.Second, with(second("nic", "nic.example.org"), gone, func(p *evidence.Pod) {
			released(p, "nic.example.org", "Internal", lately)
			p.Node.Kubelet.ClaimCalls[1].RoseBefore = time.Time{}
		}), "", false, nil},
		"a driver with a socket of another name, and another driver's socket is " +
			"left": {90 * time.Second, with(second("nic", "nic.example.org"), gone), failing, false, nil},
		"no driver of that name, and another claim is shared": {90 * time.Second, with(second("nic", "nic.example.org"), gone, func(p *evidence.Pod) {
			p.Claims[1].Shared = true
		}), failing, false, nil},
		"a driver that is there, and is not called": {90 * time.Second, func(p *evidence.Pod) { attempted(p, lately) }, "", false, nil},

		"the driver fails": {90 * time.Second, fails("Internal"), failing, true,
			[]string{"fails to release the claim (", "(NodeUnprepareResources: Internal)", "the log of the driver's pod on this node"}},
		"the driver fails, and its pod is known": {90 * time.Second, with(fails("Internal"), func(p *evidence.Pod) {
			d := &p.Claims[0].Drivers[0]
			d.Pod, d.PodState = "kube-system/gpu-x", evidence.DriverRunning
		}), failing, true, []string{"the log of pod kube-system/gpu-x (running)"}},
		"the driver fails, perhaps for another pod": {90 * time.Second, with(fails("Internal"), func(p *evidence.Pod) { p.Node.Unpreparing = 2 }),
			failing, false, []string{"fails to release this claim or another pod's"}},
		"the driver fails, perhaps for another pod, and succeeds later": {90 * time.Second, with(fails("Internal"), func(p *evidence.Pod) {
			p.Node.Unpreparing = 2
			released(p, draDriver, evidence.CallOK, lately/2)
		}), failing, false, []string{"with an error about the claim"}},
		"the driver has failed once": {90 * time.Second, with(fails("Internal"), func(p *evidence.Pod) {
			p.Node.Kubelet.ClaimCalls[1].RoseBefore = time.Time{}
		}), "", false, nil},
		"another driver fails": {90 * time.Second, func(p *evidence.Pod) {
			attempted(p, lately)
			released(p, "nic.example.org", "Internal", lately)
		}, "", false, nil},
		"the driver answers with an error":             {90 * time.Second, fails(evidence.CallOK), failing, true, []string{"with an error about the claim"}},
		"the driver answers, and no attempt fails":     {90 * time.Second, func(p *evidence.Pod) { released(p, draDriver, evidence.CallOK, lately) }, "", false, nil},
		"the driver answers, and another one may fail": {90 * time.Second, with(second("nic", "nic.example.org"), fails(evidence.CallOK)), "", false, nil},
		"the driver answers, and another one fails": {90 * time.Second, with(second("nic", "nic.example.org"), fails(evidence.CallOK),
			func(p *evidence.Pod) { released(p, "nic.example.org", "Internal", lately) }), failing, true, []string{"resource claim nic"}},
		"the driver answers, and that of a shared claim may fail": {90 * time.Second, with(second("nic", "nic.example.org"),
			fails(evidence.CallOK), func(p *evidence.Pod) {
				p.Claims[1].Shared = true
			}), "", false, nil},
		"two claims of one driver": {90 * time.Second, with(second("nic", draDriver), fails("Internal")), failing, true,
			[]string{"resource claim gpu, nic"}},
		"nobody answers at the driver's socket": {90 * time.Second, fails(evidence.CallUnanswered), failing, true, []string{"nothing " +
			"responds at its socket", "Unavailable", "a container that does not run"}},
		"the driver does not answer": {2 * time.Minute, fails(evidence.CallTimedOut), failing, true, []string{"does not " +
			"respond in time", "DeadlineExceeded"}},
		"the driver has not answered once": {90 * time.Second, with(fails(evidence.CallTimedOut), func(p *evidence.Pod) {
			p.Node.Kubelet.ClaimCalls[0].RoseBefore, p.Node.Kubelet.ClaimCalls[1].RoseBefore = time.Time{}, time.Time{}
		}), failing, true, nil},

		"the driver has not answered once, perhaps for another pod": {90 * time.Second, with(fails(evidence.CallTimedOut), func(p *evidence.Pod) {
			p.Node.Unpreparing = 2
			p.Node.Kubelet.ClaimCalls[0].RoseBefore, p.Node.Kubelet.ClaimCalls[1].RoseBefore = time.Time{}, time.Time{}
		}), "", false, nil},
		"the driver has not answered twice, perhaps for another pod": {2 * time.Minute, with(fails(evidence.CallTimedOut),
			func(p *evidence.Pod) { p.Node.Unpreparing = 2 }),
			failing, false, nil},

		"another pod has the claim too": {90 * time.Second, with(gone, func(p *evidence.Pod) { p.Claims[0].Shared = true }), "", false, nil},
		"the claim is released":         {90 * time.Second, with(gone, func(p *evidence.Pod) { p.Claims = nil }), "", false, nil},
		"a container runs":              {90 * time.Second, with(gone, func(p *evidence.Pod) { p.Containers[0].State = evidence.StateRunning }), "", false, nil},
		"the sandbox is there":          {90 * time.Second, with(gone, func(p *evidence.Pod) { p.Containers[1].State = evidence.StateRunning }), "", false, nil},
		"a CNI plugin is at work": {90 * time.Second, with(gone, func(p *evidence.Pod) {
			p.Plugins = []evidence.Task{{PID: 80, TID: 80,
				Comm: "calico"}}
		}), "", false, nil},
		"the pod has ended by its status": {90 * time.Second, with(gone, func(p *evidence.Pod) {
			p.Phase = "Failed"
		}), "", false, nil},
		"the kubelet has gone": {90 * time.Second, with(gone, func(p *evidence.Pod) {
			k := &p.Node.Kubelet
			k.Process, k.AbsentSince, k.LastSeen = nil, p.Time.Add(-time.Minute), p.Time.Add(-time.Minute)
		}), "KubeletDown", true, nil},
		"the checkpoint could not be read": {90 * time.Second, with(gone, func(p *evidence.Pod) {
			p.Claims = nil
			p.Lack(evidence.Claims, "a helper hung")
		}), "", false, nil},
		"the kubelet does not tell its counts": {90 * time.Second, with(gone, func(p *evidence.Pod) { p.Lack(evidence.ClaimCalls, "refused") }), "", false, nil},
		"a hostile name": {90 * time.Second, with(gone, func(p *evidence.Pod) { p.Claims[0].Name = "x. Remedy: rm" }), failing, true,
			[]string{`resource claim "x. Remedy: rm"`}},
	} {
		t.Run(name, func(t *testing.T) {
			d := cause.Diagnose(unpreparing(tc.past, tc.change))
			f, ok := d.Verdict()
			if f.Cause == diagnose.Unrecognised.Cause && tc.want == "" {
				ok = false // it is not known, and nobody is accused
			}
			if !ok && tc.want == "" {
				return
			}
			if f.Cause != tc.want || tc.want != "" && tc.want != "Unknown" && (f.Confidence == diagnose.Proved) != tc.proved {
				t.Fatalf("phase %s, verdict %s (%s), want %q: %s", d.Phase, f.Cause, f.Confidence, tc.want, f.Message)
			}
			for _, s := range tc.says {
				if text := f.Message + " " + f.Remedy; !strings.Contains(text, s) {
					t.Errorf("%q is not in: %s", s, text)
				}
			}
		})
	}
}
