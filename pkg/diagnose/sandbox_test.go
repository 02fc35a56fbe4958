package diagnose_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

const (
	netnsFails = `rpc error: code = Unknown desc = failed to remove network namespace for sandbox \"` + sandboxID + `\": failed to remove netns: unlinkat /run/netns/cni-1: operation not permitted`
	imageBusy  = `rpc error: code = Unknown desc = failed to cleanup image mounts for sandbox \"` + sandboxID + `\": failed to unmount image volume component \"/run/containerd/io.containerd.grpc.v1.cri/image-volumes/` +
		sandboxID + `/abc\": failed to unmount target /run/containerd/io.containerd.grpc.v1.cri/image-volumes/` + sandboxID + `/abc: device or resource busy`
	filesFail = `rpc error: code = Unknown desc = failed to stop sandbox \"` + sandboxID + `\": failed to cleanup sandbox files: failed to unmount \"/x/shm\": device or resource busy`
)

// TestSandboxStopFailing checks what is said when containerd fails at a step of stopping a
// sandbox, and that it is not said of another step, by another's word, or too soon.
func TestSandboxStopFailing(t *testing.T) {
	says := func(answers ...string) func(*evidence.Pod) {
		return func(p *evidence.Pod) {
			p.KillFailures = nil
			for _, a := range answers {
				p.KillFailures = append(p.KillFailures, kubeletSays(p, a))
			}
		}
	}
	both := func(all ...func(*evidence.Pod)) func(*evidence.Pod) {
		return func(p *evidence.Pod) {
			for _, do := range all {
				do(p)
			}
		}
	}
	told := func(i, count int, ago, first time.Duration) func(*evidence.Pod) {
		return func(p *evidence.Pod) {
			f := &p.KillFailures[i]
			f.Count, f.Last, f.First = count, p.Time.Add(-ago), p.Time.Add(-first)
		}
	}
	// netns has containerd itself say so, without an Event.
	netns := func(ago time.Duration) func(*evidence.Pod) {
		return func(p *evidence.Pod) {
			p.KillFailures = nil
			p.Containers[1].StatusError = "failed to get sandbox ip: check network namespace closed: remove netns: unlinkat " +
				"/var/run/netns/cni-1: operation not permitted"
			p.Containers[1].StatusErrorSince = p.Time.Add(-ago)
		}
	}
	unchangedFor := func(d time.Duration) func(*evidence.Pod) {
		return func(p *evidence.Pod) { p.UnchangedSince = p.Time.Add(-d) }
	}
	sameStageFor := func(d time.Duration) func(*evidence.Pod) {
		return func(p *evidence.Pod) { p.StageSince = p.Time.Add(-d) }
	}
	for name, test := range map[string]struct {
		change func(*evidence.Pod)
		want   string // the family and a part of the message; "" when it is not said
	}{
		"the network namespace": {says(netnsFails), "NetworkNamespace: containerd cannot remove the pod's network " +
			"namespace: \"failed to remove netns: unlinkat /run/netns/cni-1: operation not permitted\""},
		"containerd says so itself": {netns(11 * time.Second), "NetworkNamespace: containerd cannot remove the pod's " +
			"network namespace: \"remove netns: unlinkat /var/run/netns/cni-1: operation not permitted\""},
		"it says so for nine seconds":         {netns(9 * time.Second), ""},
		"it says so, and a container is left": {both(netns(time.Minute), func(p *evidence.Pod) { p.Containers[0].State = evidence.StateRunning }), ""},
		"it says so, and Events were not listed": {both(netns(time.Minute), func(p *evidence.Pod) { p.Lack(evidence.Events, "forbidden") }),
			"NetworkNamespace: cannot remove"},
		"it says something else": {both(netns(time.Minute), func(p *evidence.Pod) { p.Containers[1].StatusError = "rpc error: no such file" }), ""},
		"it cannot open the file": {both(netns(time.Minute), func(p *evidence.Pod) {
			p.Containers[1].StatusError = "failed to get sandbox ip: check network namespace closed: get netns fd: open /var/run/netns/cni-1: too many open files"
		}), ""},
		"a plugin runs":  {both(says(netnsFails), func(p *evidence.Pod) { plugin(p, 9*time.Second) }), "NetworkNamespace: cannot remove"},
		"a plugin hangs": {both(says(netnsFails), func(p *evidence.Pod) { plugin(p, 11*time.Second) }), ""},
		"image volumes":  {says(imageBusy), "ImageVolume: containerd cannot unmount the pod's image volume: \"failed to unmount target /run/containerd"},
		"image volumes, and who was in the way has gone since": {
			both(says(imageBusy), told(0, 2, 35*time.Second, 55*time.Second), unchangedFor(32*time.Second)), "",
		},
		"image volumes, and a shim that answers now and then": {
			both(says(imageBusy), unchangedFor(2*time.Second), told(0, 2, time.Second, 20*time.Second)), "ImageVolume: cannot unmount",
		},
		"image volumes, and who is in the way may not be known yet": {
			both(says(imageBusy), unchangedFor(29*time.Second), sameStageFor(29*time.Second)), "",
		},
		"image volumes, just past the deadline": {
			both(says(imageBusy), func(p *evidence.Pod) { p.Deadline = p.Time.Add(-29 * time.Second) }), "",
		},
		"the sandbox's files": {both(says(filesFail), func(p *evidence.Pod) { p.Containers[1].State = evidence.StateRunning }), ": " +
			"containerd cannot stop the pod's sandbox: \"failed to cleanup sandbox files"},
		"the sandbox's files, by containerd 1.7": {both(says(strings.ReplaceAll(filesFail, "sandbox \\\""+sandboxID+"\\\"", "sandbox "+
			"container \\\""+sandboxID+"\\\" in \\\"SANDBOX_READY\\\" state")), func(p *evidence.Pod) { p.Containers[1].State = evidence.StateRunning }),
			": containerd cannot stop the pod's sandbox: \"failed to cleanup sandbox files"},
		"a runtime that fails to signal":   {says(strings.ReplaceAll(filesFail, "failed to cleanup sandbox files", "unknown error after kill")), ""},
		"no answer":                        {says(`rpc error: code = DeadlineExceeded desc = context deadline exceeded`), ""},
		"it ran out of time":               {says(strings.ReplaceAll(filesFail, "device or resource busy", "context deadline exceeded")), ""},
		"a plugin":                         {says(`rpc error: code = Unknown desc = failed to destroy network for sandbox \"` + sandboxID + `\": ` + refused), ""},
		"of another sandbox":               {says(strings.ReplaceAll(netnsFails, sandboxID, "0ther")), ""},
		"once":                             {both(says(netnsFails), told(0, 1, 5*time.Second, 5*time.Second)), ""},
		"long ago":                         {both(says(netnsFails), func(p *evidence.Pod) { p.Time = p.Time.Add(7 * time.Minute) }), ""},
		"a claim comes next":               {both(says(netnsFails), told(0, 2, 50*time.Second, 70*time.Second), func(p *evidence.Pod) { p.ResourceClaims = 1 }), ""},
		"a container is left":              {both(says(filesFail), func(p *evidence.Pod) { p.Containers[0].State = evidence.StateRunning }), ""},
		"a container is yet to be started": {both(says(filesFail), func(p *evidence.Pod) { p.Containers[0].State = evidence.StateCreated }), ""},
		"the kubelet that told it is gone": {both(says(netnsFails), func(p *evidence.Pod) {
			p.Node.Kubelet.AbsentSince, p.Node.Kubelet.LastSeen = p.Time, p.DeletionRequested
		}), ""},
		"Events could not be listed": {both(says(netnsFails), func(p *evidence.Pod) { p.Lack(evidence.Events, "forbidden") }), ""},
		"inside the grace period":    {both(says(netnsFails), func(p *evidence.Pod) { p.Deadline = p.Time.Add(time.Second) }), ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			for _, f := range cause.Diagnose(tornDown(refused, test.change)).Findings {
				if f.Cause == "SandboxStopFailing" {
					got = f.Family + ": " + f.Message
					if (f.Confidence == diagnose.Proved) != strings.Contains(name, " says so") {
						t.Errorf("it is %s", f.Confidence)
					}
				}
			}
			family, text, _ := strings.Cut(test.want, ": ")
			if (got == "") != (test.want == "") || !strings.HasPrefix(got, family+": ") && got != "" || !strings.Contains(got, text) {
				t.Errorf("found %q, want %q", got, test.want)
			}
		})
	}
}

// imageUsed is a pod of which only an image volume is left, which a process of the node has
// used for 11 seconds.
func imageUsed(change func(p *evidence.Pod, h *evidence.Holder)) *evidence.Pod {
	return tornDown("", func(p *evidence.Pod) {
		p.KillFailures = []evidence.KillFailure{kubeletSays(p, imageBusy)}
		point := "/run/containerd/io.containerd.grpc.v1.cri/image-volumes/" + sandboxID + "/abc"
		p.ImageMounts = []evidence.Mount{{ID: 500, Type: "overlay", Point: point, HostPoint: point}}
		p.Holders = []evidence.Holder{{Task: sleeper(4436), MountID: 500, Via: "its working directory", Since: p.Time.Add(-11 * time.Second)}}
		change(p, &p.Holders[0])
	})
}

func TestImageVolumeUnmountBusy(t *testing.T) {
	for name, test := range map[string]struct {
		change          func(p *evidence.Pod, h *evidence.Holder)
		message, remedy string // parts; "" when it is not said
	}{
		"a shell of the node": {func(*evidence.Pod, *evidence.Holder) {},
			"containerd cannot unmount an image volume of the pod (EBUSY): sleep (PID 4436) uses it (its working directory)\nThe image " +
				"volume is mounted at \"/run/containerd/io.containerd.grpc.v1.cri/image-volumes/", "kill -TERM 4436"},
		"two of them": {func(p *evidence.Pod, h *evidence.Holder) {
			p.Holders = append(p.Holders, *h)
		}, "and 1 more like it", "kill -TERM"},
		"containerd": {func(_ *evidence.Pod, h *evidence.Holder) { h.Comm, h.Owner = "containerd", "containerd" }, "containerd (PID 4436)", "do not stop it"},
		"a service":  {func(_ *evidence.Pod, h *evidence.Holder) { h.Cgroup = "/system.slice/scan.service" }, "sleep (PID 4436, of scan.service)", "kill -TERM 4436"},
		"for nine seconds": {func(p *evidence.Pod, h *evidence.Holder) {
			h.Since = p.Time.Add(-9 * time.Second)
		}, "", ""},
		"a network plugin runs":  {func(p *evidence.Pod, _ *evidence.Holder) { plugin(p, 9*time.Second) }, "sleep (PID 4436)", "kill -TERM"},
		"a network plugin hangs": {func(p *evidence.Pod, _ *evidence.Holder) { plugin(p, 11*time.Second) }, "", ""},
		"it was started since the last try": {func(p *evidence.Pod, h *evidence.Holder) {
			p.KillFailures[0].Last, h.Probe.Started = p.Time.Add(-15*time.Second), p.Time.Add(-12*time.Second)
		}, "", ""},
		"it was there at the last try": {func(p *evidence.Pod, h *evidence.Holder) {
			p.KillFailures[0].Last, h.Probe.Started = p.Time.Add(-15*time.Second), p.Time.Add(-16*time.Second)
		}, "sleep (PID 4436)", "kill -TERM"},
		"containerd is told another path": {func(p *evidence.Pod, _ *evidence.Holder) {
			p.KillFailures[0].Text = strings.ReplaceAll(p.KillFailures[0].Text, "/run/containerd/", "/var/run/containerd/")
		}, "sleep (PID 4436)", "kill -TERM"},
		"another volume of the pod is busy": {func(p *evidence.Pod, _ *evidence.Holder) {
			p.ImageMounts[0].Point += "d"
			p.ImageMounts[0].HostPoint += "d"
		}, "", ""},
		"what is mounted inside is used": {func(p *evidence.Pod, _ *evidence.Holder) {
			p.ImageMounts[0].HostPoint += "/inside"
		}, "", ""},
		"a mount elsewhere that ends alike": {func(p *evidence.Pod, _ *evidence.Holder) {
			p.ImageMounts[0].HostPoint = "/mnt" + p.ImageMounts[0].HostPoint
		}, "", ""},
		"one reading":           {func(_ *evidence.Pod, h *evidence.Holder) { h.Since = time.Time{} }, "", ""},
		"another mount":         {func(_ *evidence.Pod, h *evidence.Holder) { h.MountID = 501 }, "", ""},
		"what unmounts it":      {func(_ *evidence.Pod, h *evidence.Holder) { h.Comm = "umount" }, "", ""},
		"nobody":                {func(p *evidence.Pod, _ *evidence.Holder) { p.Holders = nil }, "", ""},
		"nothing was said":      {func(p *evidence.Pod, _ *evidence.Holder) { p.KillFailures = nil }, "", ""},
		"said once":             {func(p *evidence.Pod, _ *evidence.Holder) { p.KillFailures[0].Count = 1 }, "", ""},
		"something else failed": {func(p *evidence.Pod, _ *evidence.Holder) { p.KillFailures[0] = kubeletSays(p, netnsFails) }, "", ""},
		"it is not busy": {func(p *evidence.Pod, _ *evidence.Holder) {
			p.KillFailures[0] = kubeletSays(p, strings.ReplaceAll(imageBusy, "device or resource busy", "no such file"))
		}, "", ""},
		"Events could not be listed": {func(p *evidence.Pod, _ *evidence.Holder) { p.Lack(evidence.Events, "forbidden") }, "", ""},
		"holders were not looked at": {func(p *evidence.Pod, _ *evidence.Holder) { p.Lack(evidence.Holders, "no") }, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := imageUsed(test.change)
			message, remedy, c := found(p, "ImageVolumeUnmountBusy")
			if test.message == "" && message != "" || !strings.Contains(message, test.message) || !strings.Contains(remedy, test.remedy) ||
				message != "" && c != diagnose.Inferred {
				t.Errorf("%q, and %q (%s)", message, remedy, c)
			}
			if strings.Contains(test.remedy, "do not stop it") && strings.Contains(remedy, "kill -") {
				t.Errorf("ends what the node needs: %s", remedy)
			}
			if other, _, _ := found(p, "SandboxStopFailing"); message != "" && other != "" {
				t.Errorf("the same is told twice: %s", other)
			}
		})
	}
}

// While an image volume is mounted containerd has not taken the sandbox down.
func TestImageVolumeTellsThePhase(t *testing.T) {
	d := cause.Diagnose(imageUsed(func(p *evidence.Pod, _ *evidence.Holder) { p.KillFailures = nil }))
	if d.Phase != diagnose.Sandbox {
		t.Errorf("phase %s", d.Phase)
	}
}

// A tracer holds the sandbox's process as it does that of any container.
func TestSandboxTraced(t *testing.T) {
	held := func(change func(p *evidence.Pod, pause *evidence.Task)) *evidence.Pod {
		return tornDown("", func(p *evidence.Pod) {
			p.KillFailures = nil
			p.Containers[1].State, p.Containers[1].Task = evidence.StateRunning, evidence.ShimTask{Status: "running", PID: 300}
			pause := task(300, 50, "pause", evidence.Traced, "")
			pause.Container, pause.TracerPID, pause.UnchangedSince = sandboxID, 400, p.Time.Add(-10*time.Second)
			pause.Probe.Stack = []string{"ptrace_stop", "ptrace_event", "do_exit"}
			tracer := evidence.Task{PID: 400, TID: 400, Comm: "gdb", State: evidence.Sleeping, Probe: &evidence.Probe{Start: 8}}
			p.Tasks, p.Parents = []evidence.Task{pause}, []evidence.Task{tracer}
			change(p, &p.Tasks[0])
		})
	}
	const want = "the pod's sandbox: pause (PID 300 on the node) is held at exit by its tracer gdb (PID 400). SIGKILL has no effect"
	for name, test := range map[string]struct {
		change func(p *evidence.Pod, pause *evidence.Task)
		want   bool
	}{
		"it has been killed":     {func(*evidence.Pod, *evidence.Task) {}, true},
		"the tracer stopped it":  {func(_ *evidence.Pod, pause *evidence.Task) { pause.Probe.Stack = []string{"ptrace_stop"} }, false},
		"it runs on":             {func(_ *evidence.Pod, pause *evidence.Task) { pause.State = evidence.Sleeping }, false},
		"it has been let go now": {func(p *evidence.Pod, pause *evidence.Task) { pause.UnchangedSince = p.Time }, false},
	} {
		t.Run(name, func(t *testing.T) {
			if m, _, _ := found(held(test.change), "ProcessTraced"); m != "" != test.want || test.want && !strings.HasPrefix(m, want) {
				t.Error(m)
			}
		})
	}
}

// Unknown says which runtime keeps nodeagent from looking.
func TestUnknownNamesTheRuntime(t *testing.T) {
	for runtime, want := range map[string]string{
		"io.containerd.runc.v2":    "",
		"":                         "",
		"io.containerd.kata.v2":    ". nodeagent cannot see inside its runtime io.containerd.kata.v2 (Kata Containers)",
		"io.containerd.runsc.v1":   "inside its runtime io.containerd.runsc.v1 (gVisor)",
		"io.containerd.wasmtime.x": "inside its runtime io.containerd.wasmtime.x",
		"io; run this":             `inside its runtime "io; run this"`,
	} {
		p := stopping(func(p *evidence.Pod, first *evidence.Task) {
			first.Caught = bitTERM
			p.Time, p.UnchangedSince = p.Deadline.Add(5*time.Minute), p.Deadline
			p.Node.Pressure = &evidence.Pressure{}
			p.Containers[0].Runtime = runtime
		})
		d := cause.Diagnose(p)
		v, _ := d.Verdict()
		if v.Cause != "Unknown" || !strings.Contains(v.Message, want) || strings.Contains(v.Message, "inside its runtime") != (want != "") ||
			strings.Contains(v.Remedy, "runsc-sandbox") != (want != "") {
			t.Errorf("%q: %s: %s; %s", runtime, v.Cause, v.Message, v.Remedy)
		}
	}
}
