package diagnose_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// finished is a pod of which nothing is left on the node for the time past its deadline,
// and which the kubelet wants to delete.
func finished(past time.Duration, change func(p *evidence.Pod)) *evidence.Pod {
	deadline := requested.Add(30 * time.Second)
	p := &evidence.Pod{
		Time: deadline.Add(past), UnchangedSince: deadline, Namespace: "shop", Name: "web-0", UID: podUID, RuntimeUID: podUID,
		Phase: "Succeeded", DeletionRequested: requested, Deadline: deadline, GracePeriodSeconds: 30,
		Containers: []evidence.Container{{Name: "main", Kind: evidence.App, Exit: &evidence.Exit{At: deadline}}},
	}
	p.Node.Time, p.Node.Name, p.Node.Deletable = p.Time, "node1", 1
	p.Node.Kubelet.Process = &evidence.Task{PID: 9, TID: 9, Comm: "kubelet", State: evidence.Sleeping, Owner: "kubelet"}
	p.Node.Kubelet.VolumeCallsRead = p.Time
	change(p)
	return p
}

// answered adds requests of the kubelet that were counted twice, the last time so long
// before the reading.
func answered(p *evidence.Pod, method, code string, before time.Duration) {
	last := p.Time.Add(-before)
	p.Node.Kubelet.APICalls = append(p.Node.Kubelet.APICalls, evidence.APICall{Method: method, Code: code, Count: 7, Rose: last,
		RoseBefore: last.Add(-10 * time.Second)})
}

// unsaid makes it a pod of which the kubelet has not written that it has ended.
func unsaid(p *evidence.Pod) {
	p.Phase = "Running"
	p.Containers[0] = evidence.Container{Name: "main", Kind: evidence.App, ID: "c0ffee", State: evidence.StateExited, Running: true}
}

func TestAPICauses(t *testing.T) {
	const del, patch = evidence.MethodDelete, evidence.MethodPatch
	refused := func(code string) func(p *evidence.Pod) {
		return func(p *evidence.Pod) { answered(p, del, code, 10*time.Second) }
	}
	with := func(do ...func(p *evidence.Pod)) func(p *evidence.Pod) {
		return func(p *evidence.Pod) {
			for _, f := range do {
				f(p)
			}
		}
	}
	unwritten := func(p *evidence.Pod) { unsaid(p); answered(p, patch, "422", 10*time.Second) }
	uncalled := func(p *evidence.Pod) {
		unsaid(p)
		answered(p, patch, "500", 10*time.Second)
		p.Refusal = &evidence.Refusal{Webhook: "billing.test", Uncalled: true, Code: "500", At: p.Time.Add(-10 * time.Second)}
	}
	const itsObject = "the API server rejects the kubelet's delete of the pod ("
	for name, tc := range map[string]struct {
		past   time.Duration
		change func(p *evidence.Pod)
		want   string   // "" for silence
		says   []string // what begins with ! is not said
	}{
		"a policy refuses the final delete": {40 * time.Second, refused("422"), "FinalDeleteRejected",
			[]string{itsObject + "HTTP 422)", "kubectl delete --dry-run=server -n shop pod web-0 --force --as=system:node:node1 --as-group=system:nodes."}},
		"a webhook or RBAC does": {40 * time.Second, refused("403"), "FinalDeleteRejected", []string{itsObject, "(HTTP 403)"}},
		"also for a pod with a finalizer, which is not what it waits for": {40 * time.Second, with(refused("403"), func(p *evidence.Pod) {
			p.Finalizers = []string{"example.com/block"}
		}), "FinalDeleteRejected", []string{itsObject}},
		"the node has another pod that waits for its final delete": {40 * time.Second, with(refused("403"), func(p *evidence.Pod) { p.Node.Deletable = 2 }),
			"FinalDeleteRejected", []string{"delete of this pod or another pod of the node (HTTP 403)"}},
		"the node had another one that waited for it": {40 * time.Second, with(refused("403"), func(p *evidence.Pod) {
			p.Node.DeletablesUntil = p.Node.Kubelet.APICalls[0].RoseBefore
		}), "FinalDeleteRejected", []string{"delete of this pod or another pod of the node (HTTP 403)"}},
		"the node had another one long before": {40 * time.Second, with(refused("403"), func(p *evidence.Pod) {
			p.Node.DeletablesUntil = p.Node.Kubelet.APICalls[0].RoseBefore.Add(-time.Second)
		}), "FinalDeleteRejected", []string{itsObject}},
		"nobody knows which other pods there are": {40 * time.Second, with(refused("403"), func(p *evidence.Pod) { p.Node.Deletable = 0 }),
			"FinalDeleteRejected", []string{"delete of this pod or another pod of the node"}},
		"the node's name is no argument": {40 * time.Second, with(refused("403"), func(p *evidence.Pod) { p.Node.Name = "-x" }),
			"FinalDeleteRejected", []string{itsObject, "--as=system:node:NODE"}},
		"refused once":              {40 * time.Second, with(refused("403"), func(p *evidence.Pod) { p.Node.Kubelet.APICalls[0].RoseBefore = time.Time{} }), "", nil},
		"the first time too early":  {25 * time.Second, func(p *evidence.Pod) { answered(p, del, "403", 20*time.Second) }, "", nil},
		"refused before this stage": {3 * time.Minute, func(p *evidence.Pod) { answered(p, del, "403", 4*time.Minute) }, "Unknown", nil},
		"refused, but not lately":   {3 * time.Minute, func(p *evidence.Pod) { answered(p, del, "403", 61*time.Second) }, "Unknown", nil},
		"another method is refused": {40 * time.Second, func(p *evidence.Pod) { answered(p, patch, "403", 10*time.Second) }, "", nil},
		"the delete succeeds":       {40 * time.Second, refused("200"), "", nil},
		"the pod is not known":      {40 * time.Second, refused("404"), "", nil},
		"another pod has its name":  {40 * time.Second, refused("409"), "", nil},
		"too many requests":         {40 * time.Second, refused("429"), "", nil},
		"the kubelet is not known":  {40 * time.Second, refused("401"), "", nil},
		"a webhook is down":         {40 * time.Second, refused("500"), "", nil},
		"no answer":                 {40 * time.Second, refused(evidence.NoAnswer), "", nil},
		"the API server is in trouble besides": {40 * time.Second, with(refused("403"), func(p *evidence.Pod) {
			answered(p, patch, "503", 10*time.Second)
		}), "", nil},
		"the API server was in trouble before": {2 * time.Hour, with(refused("403"), func(p *evidence.Pod) {
			answered(p, patch, "503", 2*time.Minute)
		}), "FinalDeleteRejected", []string{itsObject}},
		"the volume's directory is left": {40 * time.Second, with(refused("403"), func(p *evidence.Pod) {
			p.Volumes = []evidence.Volume{{Name: "scratch", Plugin: "kubernetes.io~empty-dir"}}
		}), "", nil},
		"a block device is left": {40 * time.Second, with(refused("403"), func(p *evidence.Pod) {
			p.Devices = []evidence.Mount{{ID: 9, Volume: "pv-1"}}
		}), "", nil},
		"a force delete":     {40 * time.Second, with(refused("403"), func(p *evidence.Pod) { p.GracePeriodSeconds = 0 }), "", nil},
		"a mirror pod":       {40 * time.Second, with(refused("403"), func(p *evidence.Pod) { p.Mirror = true }), "", nil},
		"k3s":                {40 * time.Second, with(refused("403"), func(p *evidence.Pod) { p.Node.Kubelet.Process.Comm = "k3s-server" }), "", nil},
		"no kubelet is seen": {40 * time.Second, with(refused("403"), func(p *evidence.Pod) { p.Node.Kubelet.Process = nil }), "", nil},
		"the volumes could not be listed": {40 * time.Second, with(refused("403"), func(p *evidence.Pod) {
			p.Lack(evidence.Volumes, "a helper hung")
		}), "", nil},

		"the status cannot be written": {40 * time.Second, unwritten, "StatusUpdateRejected", []string{"its status still reports a running container", "(HTTP 422)"}},
		"the status cannot be written, and a policy refuses nodeagent's own update": {40 * time.Second, with(unwritten, func(p *evidence.Pod) {
			p.Refusal = &evidence.Refusal{Policy: "billing", Binding: "all", Code: "422", At: p.Time.Add(-10 * time.Second)}
		}), "StatusUpdateRejected", []string{`does not accept nodeagent's own update of this pod's status either, because of the ValidatingAdmissionPolicy "billing" (binding "all")`}},
		"and one did long ago": {40 * time.Second, with(unwritten, func(p *evidence.Pod) {
			p.Refusal = &evidence.Refusal{Webhook: "billing.test", Code: "422", At: p.Time.Add(-7 * time.Minute)}
		}), "StatusUpdateRejected", []string{"rejects the kubelet's pod status updates", "!nodeagent's"}},
		"and one does with another code": {40 * time.Second, with(unwritten, func(p *evidence.Pod) {
			p.Refusal = &evidence.Refusal{Webhook: "billing.test", Code: "403", At: p.Time.Add(-10 * time.Second)}
		}), "StatusUpdateRejected", []string{"rejects the kubelet's pod status updates", "!nodeagent's"}},
		"and one cannot be called": {40 * time.Second, with(unwritten, func(p *evidence.Pod) {
			p.Refusal = &evidence.Refusal{Webhook: "billing.test", Uncalled: true, Code: "500", At: p.Time.Add(-10 * time.Second)}
		}), "StatusUpdateRejected", []string{"the API server rejects the kubelet's pod status updates", "!nodeagent's"}},
		"the final delete is refused, and a webhook denies nodeagent's own update": {40 * time.Second, with(refused("403"), func(p *evidence.Pod) {
			p.Refusal = &evidence.Refusal{Webhook: "billing.test", Code: "403", At: p.Time.Add(-10 * time.Second)}
		}), "FinalDeleteRejected", []string{"RBAC forbids it", "!nodeagent's"}},
		"a webhook cannot be called": {40 * time.Second, uncalled, "StatusUpdateRejected", []string{
			`the API server does not accept the kubelet's pod status updates (HTTP 500) because it cannot call the webhook "billing.test"`,
			`does not accept nodeagent's own update of this pod's status either, because of the webhook "billing.test"`, "Check that its pods run",
		}},
		"a webhook cannot be called, and the node is k3s": {3 * time.Minute, with(uncalled,
			func(p *evidence.Pod) { p.Node.Kubelet.Process.Comm = "k3s-server" }), "Unknown", []string{
			`The API server does not accept nodeagent's own update of the pod's status, because of the webhook "billing.test"`,
			`ask the owner of the webhook "billing.test" to get its pods Ready: the API server cannot call it`,
		}},
		"a webhook denies nodeagent's update, and nobody knows of the kubelet's": {3 * time.Minute, with(unsaid, func(p *evidence.Pod) {
			p.Refusal = &evidence.Refusal{Webhook: "billing.test", At: p.Time.Add(-10 * time.Second)}
		}), "Unknown", []string{`The API server does not accept nodeagent's own update of the pod's status, because of the webhook "billing.test"`, "!cannot call it"}},
		"a webhook denies nodeagent's update, and the kubelet's end with an error of the API server": {40 * time.Second, with(uncalled, func(p *evidence.Pod) {
			p.Refusal.Uncalled = false
		}), "", nil},
		"a webhook could not be called before this stage": {40 * time.Second, with(uncalled,
			func(p *evidence.Pod) { p.Refusal.At = p.UnchangedSince }), "", nil},
		"the kubelet's updates fail, and nodeagent's does not": {40 * time.Second, with(uncalled, func(p *evidence.Pod) { p.Refusal = nil }), "", nil},
		"a webhook cannot be called, and the API server is in trouble besides": {40 * time.Second, with(uncalled, func(p *evidence.Pod) {
			answered(p, del, "503", 10*time.Second)
		}), "", nil},
		"a webhook cannot be called, and the kubelet's updates get through": {40 * time.Second, with(unsaid, func(p *evidence.Pod) {
			p.Refusal = &evidence.Refusal{Webhook: "billing.test", Uncalled: true, At: p.Time.Add(-10 * time.Second)}
			answered(p, patch, "200", 10*time.Second)
		}), "", nil},
		"a webhook cannot be called, and the kubelet has deletes that fail": {40 * time.Second, with(unsaid, func(p *evidence.Pod) {
			p.Refusal = &evidence.Refusal{Webhook: "billing.test", Uncalled: true, At: p.Time.Add(-10 * time.Second)}
			answered(p, del, "500", 10*time.Second)
		}), "", nil},
		"and containerd has forgotten the container": {40 * time.Second, with(unwritten, func(p *evidence.Pod) {
			p.Containers[0].ID, p.Containers[0].State = "", ""
		}), "StatusUpdateRejected", nil},
		"the status of another pod cannot be written, and this one runs": {40 * time.Second, with(unwritten, func(p *evidence.Pod) {
			p.Containers[0].State = evidence.StateRunning
		}), "", nil},
		"the pod has never run": {40 * time.Second, with(unwritten, func(p *evidence.Pod) {
			p.Phase, p.Containers[0] = "Pending", evidence.Container{Name: "main", Kind: evidence.App, Waiting: true}
		}), "", nil},
		"its volumes are there, and the node was started anew": {40 * time.Second, with(unwritten, func(p *evidence.Pod) {
			p.Volumes = []evidence.Volume{{Name: "scratch", Plugin: "kubernetes.io~empty-dir"}}
		}), "", nil},
		"the node was started anew, and the pod has no volumes": {40 * time.Second, with(unwritten, func(p *evidence.Pod) {
			p.Node.Kubelet.Process.Probe = &evidence.Probe{Started: requested.Add(10 * time.Second)}
		}), "", nil},
		"the kubelet was started anew, and has removed the control group": {40 * time.Second, with(unwritten, func(p *evidence.Pod) {
			p.Node.Kubelet.Process.Probe, p.Seen.Group = &evidence.Probe{Started: requested.Add(10 * time.Second)}, true
		}), "StatusUpdateRejected", nil},
		"the kubelet says that the network cannot be taken down": {40 * time.Second, with(unwritten, func(p *evidence.Pod) {
			p.Containers = append(p.Containers, evidence.Container{Name: "POD", Kind: evidence.Sandbox, ID: sandboxID, State: evidence.StateExited})
			p.KillFailures = []evidence.KillFailure{kubeletSays(p, `rpc error: code = Unknown desc = failed to destroy network for sandbox \"`+sandboxID+`\": failed to read netns`)}
		}), "CNIDelFailing", nil},
		"the kubelet said so before it removed the control group": {40 * time.Second, with(unwritten, func(p *evidence.Pod) {
			p.Containers = append(p.Containers, evidence.Container{Name: "POD", Kind: evidence.Sandbox, ID: sandboxID, State: evidence.StateExited})
			p.KillFailures = []evidence.KillFailure{kubeletSays(p, `rpc error: code = Unknown desc = failed to destroy network for sandbox \"`+sandboxID+`\": failed to read netns`)}
			p.KillFailures[0].First, p.KillFailures[0].Last = p.UnchangedSince.Add(-20*time.Second), p.UnchangedSince.Add(-2*time.Second)
		}), "StatusUpdateRejected", nil},
		"its control group is there": {40 * time.Second, with(unwritten, func(p *evidence.Pod) { p.Cgroups = []evidence.Cgroup{{Path: "/kubepods/a"}} }), "", nil},
		"its claims are there": {40 * time.Second, with(unwritten, func(p *evidence.Pod) {
			p.ResourceClaims, p.Claims = 1, []evidence.Claim{{Name: "gpu"}}
		}), "", nil},
		"its claims may be there": {40 * time.Second, with(unwritten, func(p *evidence.Pod) {
			p.ResourceClaims = 1
			p.Lack(evidence.Claims, "a helper hung")
		}), "", nil},
		"its claims are released":  {40 * time.Second, with(unwritten, func(p *evidence.Pod) { p.ResourceClaims = 1 }), "StatusUpdateRejected", nil},
		"only deletes are refused": {40 * time.Second, with(unsaid, refused("403")), "", nil},
		"the API server is in trouble, and the status is not written": {40 * time.Second, with(unwritten, func(p *evidence.Pod) {
			answered(p, patch, "500", 10*time.Second)
		}), "", nil},

		"only the object is left": {2 * time.Minute, func(*evidence.Pod) {}, "Unknown", []string{"no known cause matches. Nothing of the " +
			"pod is left on the node, but its API object remains"}},
		"its processes may be elsewhere": {2 * time.Minute, func(p *evidence.Pod) { p.HostPID = true }, "Unknown",
			[]string{"no known cause matches", "!Nothing of the pod is left"}},
		"not all was read": {2 * time.Minute, func(p *evidence.Pod) { p.Lack(evidence.Containers, "containerd is silent") }, "Unknown",
			[]string{"no known cause matches", "!Nothing of the pod is left"}},
		"its block device is there": {2 * time.Minute, func(p *evidence.Pod) { p.Devices = []evidence.Mount{{ID: 9, Volume: "pv-1"}} }, "Unknown",
			[]string{"no known cause matches. Left on the node: mounts"}},
		"it may never have run": {2 * time.Minute, func(p *evidence.Pod) { p.Phase, p.Containers[0].Exit = "Pending", nil }, "Unknown",
			[]string{"no known cause matches", "!Nothing of the pod is left"}},
	} {
		t.Run(name, func(t *testing.T) {
			f, _ := new(diagnose.Diagnosis).Verdict()
			d := cause.Diagnose(finished(tc.past, tc.change))
			if v, ok := d.Verdict(); ok {
				f = v
			}
			if f.Cause != tc.want || tc.want != "" && f.Confidence != diagnose.Inferred {
				t.Fatalf("phase %s, verdict %q (%s), want %q, inferred: %s", d.Phase, f.Cause, f.Confidence, tc.want, f.Message)
			}
			for _, want := range tc.says {
				if text, not := strings.CutPrefix(want, "!"); strings.Contains(said(&f), text) == not {
					t.Errorf("does not say %q: %s", want, said(&f))
				}
			}
		})
	}
}

// Whose finalizer it is follows from its whole name only.
func TestKnownFinalizers(t *testing.T) {
	for finalizer, want := range map[string]struct{ family, says string }{
		"batch.kubernetes.io/job-tracking":  {"JobTracking", "the Job controller"},
		"foregroundDeletion":                {"ForegroundDeletion", "the garbage collector"},
		"orphan":                            {"ForegroundDeletion", "the garbage collector"},
		"workflows.argoproj.io/status":      {"ArgoWorkflows", "the workflow-controller of Argo Workflows"},
		"kueue.x-k8s.io/managed":            {"Kueue", "kueue-controller-manager"},
		"actions.summerwind.dev/runner-pod": {"ActionsRunner", "actions-runner-controller"},
		"juicefs.com/finalizer":             {"JuiceFS", "the JuiceFS CSI driver"},
		"kueue.x-k8s.io/other":              {"", "the controller of kueue.x-k8s.io"},
		"example.com/managed":               {"", "the controller of example.com"},
	} {
		p := finished(2*time.Minute, func(p *evidence.Pod) { p.GracePeriodSeconds, p.Finalizers = 0, []string{finalizer} })
		d := cause.Diagnose(p)
		if v, _ := d.Verdict(); v.Cause != "FinalizersPending" || v.Family != want.family || !strings.Contains(v.Message, "finalizer "+
			""+finalizer+" keeps the API object; "+want.says+" has not removed it") {
			t.Errorf("%s: %s %q: %s", finalizer, v.Cause, v.Family, v.Message)
		}
	}
}

// The controller is refused where nodeagent cannot see it. What refuses nodeagent's own update of the
// same object is told, and is not the cause.
func TestWhoMayRefuseTheRemoval(t *testing.T) {
	for name, tc := range map[string]struct {
		refusal *evidence.Refusal
		ago     time.Duration
		says    string
	}{
		"a webhook denies":           {&evidence.Refusal{Webhook: "billing.test", Code: "403"}, 10 * time.Second, `nodeagent's own update of this pod's status, because of the webhook "billing.test"; it may not accept the removal either`},
		"a policy denies":            {&evidence.Refusal{Policy: "billing", Binding: "all", Code: "422"}, 10 * time.Second, `nodeagent's own update of this pod's status, because of the ValidatingAdmissionPolicy "billing"`},
		"a webhook cannot be called": {&evidence.Refusal{Webhook: "billing.test", Uncalled: true, Code: "500"}, 10 * time.Second, `ask the owner of the webhook "billing.test" to get its pods Ready: the API server cannot call it, and may not accept the removal`},
		"it was another stage's":     {&evidence.Refusal{Webhook: "billing.test", Code: "403"}, 2 * time.Minute, ""},
		"nothing does":               {nil, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := finished(time.Minute, func(p *evidence.Pod) {
				p.GracePeriodSeconds, p.Finalizers = 0, []string{"example.com/block"}
				if tc.refusal != nil {
					p.Refusal = tc.refusal
					p.Refusal.At = p.Time.Add(-tc.ago)
				}
			})
			d := cause.Diagnose(p)
			v, _ := d.Verdict()
			if v.Cause != "FinalizersPending" || v.Confidence != diagnose.Proved {
				t.Fatalf("%s %s", v.Confidence, v.Cause)
			}
			if tc.says == "" && strings.Contains(said(&v), "nodeagent's own") || !strings.Contains(said(&v), tc.says) {
				t.Errorf("says %s", said(&v))
			}
			if command := `kubectl patch --dry-run=server -n shop pod web-0 --type=json -p '[{"op":"remove","path":"/metadata/finalizers"}]'`; !strings.Contains(v.Remedy, command) {
				t.Errorf("advises %s", v.Remedy)
			}
		})
	}
}

// mirror is the object of a static pod with a grace period of ten seconds, which has been
// deleted for so long, and runs on.
func mirror(past time.Duration, change func(p *evidence.Pod)) *evidence.Pod {
	return finished(past, func(p *evidence.Pod) {
		p.Mirror, p.RuntimeUID, p.ManifestGraceSeconds, p.Phase = true, "0123456789abcdef0123456789abcdef", 10, "Running"
		p.Containers[0] = evidence.Container{Name: "main", Kind: evidence.App, ID: "c0ffee", State: evidence.StateRunning, Running: true}
		p.Tasks = []evidence.Task{{PID: 7, TID: 7, Comm: "etcd", State: evidence.Sleeping, Container: "c0ffee"}}
		p.Cgroups = []evidence.Cgroup{{Path: "/kubepods/a", Populated: true}}
		change(p)
	})
}

func TestMirrorPodDeleted(t *testing.T) {
	for name, tc := range map[string]struct {
		past   time.Duration
		change func(p *evidence.Pod)
		want   string // "" for silence
		says   string
	}{
		"a finalizer keeps it": {30 * time.Second, func(p *evidence.Pod) { p.Finalizers = []string{"example.com/block"} },
			"MirrorPodDeleted", "finalizer example.com/block keeps this object"},
		"something else keeps it":                            {30 * time.Second, func(*evidence.Pod) {}, "MirrorPodDeleted", "the kubelet cannot delete this object"},
		"the kubelet may still end it, without its manifest": {24 * time.Second, func(*evidence.Pod) {}, "", ""},
		"its grace period is long":                           {50 * time.Second, func(p *evidence.Pod) { p.ManifestGraceSeconds = 60 }, "", ""},
		"it runs anew":                                       {time.Minute, func(p *evidence.Pod) { p.UnchangedSince = p.Time.Add(-20 * time.Second) }, "", ""},
		"a container has ended": {30 * time.Second, func(p *evidence.Pod) {
			p.Containers = append(p.Containers, evidence.Container{Name: "other", Kind: evidence.App, ID: "decaf", State: evidence.StateExited})
		}, "", ""},
		"it has been killed":     {30 * time.Second, func(p *evidence.Pod) { p.Tasks[0].Pending = 1 << (evidence.SIGKILL - 1) }, "", ""},
		"it has ended":           {30 * time.Second, func(p *evidence.Pod) { p.Phase = "Succeeded" }, "", ""},
		"nothing of it runs":     {30 * time.Second, func(p *evidence.Pod) { p.Tasks = nil }, "", ""},
		"it is no mirror pod":    {30 * time.Second, func(p *evidence.Pod) { p.Mirror = false }, "", ""},
		"the kubelet is stopped": {30 * time.Second, func(p *evidence.Pod) { p.Node.Kubelet.Process.State = evidence.Stopped }, "", ""},
		"the kubelet is unwell":  {30 * time.Second, func(p *evidence.Pod) { p.Node.Kubelet.Health = "failing checks: syncloop" }, "", ""},
		"the API server hears nothing from the kubelet": {30 * time.Second, func(p *evidence.Pod) {
			p.Node.Ready = &evidence.NodeReady{Status: "Unknown", Reason: "NodeStatusUnknown"}
		}, "", ""},
		"the kubelet is well":     {30 * time.Second, func(p *evidence.Pod) { p.Node.Kubelet.Health = "ok" }, "MirrorPodDeleted", ""},
		"the kubelet is not seen": {30 * time.Second, func(p *evidence.Pod) { p.Node.Kubelet.Process = nil }, "", ""},
		"the kubelet has just come": {30 * time.Second, func(p *evidence.Pod) {
			p.Node.Kubelet.Process.Probe = &evidence.Probe{Started: p.Time.Add(-50 * time.Second)}
		}, "", ""},
		"the kubelet came a while ago": {30 * time.Second, func(p *evidence.Pod) {
			p.Node.Kubelet.Process.Probe = &evidence.Probe{Started: p.Time.Add(-time.Hour)}
		}, "MirrorPodDeleted", ""},
	} {
		d := cause.Diagnose(mirror(tc.past, tc.change))
		v, _ := d.Verdict()
		if v.Cause != tc.want || !strings.Contains(v.Message, tc.says) {
			t.Errorf("%s: phase %s, verdict %q, want %q: %s", name, d.Phase, v.Cause, tc.want, v.Message)
		}
	}
}

// The controllers that count many pods have two minutes, and meanwhile nothing else is told.
func TestBatchFinalizersTakeTime(t *testing.T) {
	for _, finalizer := range []string{"batch.kubernetes.io/job-tracking", "kueue.x-k8s.io/managed"} {
		for past, want := range map[time.Duration]string{30 * time.Second: "", 119 * time.Second: "", 2 * time.Minute: "FinalizersPending"} {
			d := cause.Diagnose(finished(past, func(p *evidence.Pod) { p.GracePeriodSeconds, p.Finalizers = 0, []string{finalizer} }))
			if v, _ := d.Verdict(); v.Cause != want {
				t.Errorf("%s after %s: %q, want %q", finalizer, past, v.Cause, want)
			}
		}
	}
}
