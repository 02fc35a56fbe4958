package cri

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/api/services/version/v1"
	"github.com/containerd/containerd/api/types/task"
	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/go-digest"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "cri")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// podOf gives the server a pod with running containers c0, c1, … and no image.
func podOf(s *server, uid string, n int) {
	for i := range n {
		name := fmt.Sprintf("c%d", i)
		s.add(uid, name, name+"-id", 0, runtimeapi.ContainerState_CONTAINER_RUNNING)
	}
}

func (s *server) add(uid, name, id string, attempt uint32, state runtimeapi.ContainerState) {
	s.containers[id] = &runtimeapi.Container{
		Id: id, Metadata: &runtimeapi.ContainerMetadata{Name: name, Attempt: attempt}, State: state,
		CreatedAt: noon.UnixNano() + int64(attempt), Labels: map[string]string{podUID: uid},
	}
	s.signals[id] = runtimeapi.Signal_SIGNAL_SIGTERM
	s.specs[id] = `{"process":{"args":["/usr/bin/` + name + `","--password=hunter2"],"env":["SECRET=1"]}}`
	s.tasks[id] = &task.Process{ID: id, Pid: 4000 + attempt, Status: task.Status_RUNNING}
}

func TestReadPod(t *testing.T) {
	s := newServer()
	config := `{"config":{"StopSignal":"3","Env":["SECRET=1"]}}`
	image := digest.FromString(config).String()
	s.blobs[image] = config
	s.add("uid", "web", "web-1", 1, runtimeapi.ContainerState_CONTAINER_RUNNING)
	s.add("uid", "web", "web-0", 0, runtimeapi.ContainerState_CONTAINER_EXITED)
	s.add("uid", "db", "db-1", 1, runtimeapi.ContainerState_CONTAINER_UNKNOWN)
	s.add("uid", "db", "db-0", 0, runtimeapi.ContainerState_CONTAINER_RUNNING)
	s.add("uid", "setup", "setup-0", 0, runtimeapi.ContainerState_CONTAINER_EXITED)
	s.add("uid", "unstarted", "unstarted-0", 0, runtimeapi.ContainerState_CONTAINER_CREATED)
	s.add("other", "web", "other-0", 0, runtimeapi.ContainerState_CONTAINER_RUNNING)
	s.signals["web-1"] = runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT
	s.containers["web-1"].ImageId = image
	s.signals["db-0"] = runtimeapi.Signal_SIGNAL_SIGRTMINPLUS3
	s.tasks["db-1"] = &task.Process{Pid: 4002, Status: task.Status_STOPPED}
	delete(s.tasks, "unstarted-0")
	delete(s.specs, "unstarted-0")
	s.sandboxes["pause-0"] = &runtimeapi.PodSandbox{
		Id: "pause-0", Metadata: &runtimeapi.PodSandboxMetadata{Name: "pod"}, State: runtimeapi.PodSandboxState_SANDBOX_READY,
		Labels: map[string]string{podUID: "uid"},
	}
	s.specs["pause-0"] = `{"process":{"args":["/pause"]}}`
	s.tasks["pause-0"] = &task.Process{Pid: 3999, Status: task.Status_RUNNING}
	socket, _ := s.serve(t, nil)
	r, _ := open(t, socket, long)

	seed := func() *evidence.Pod {
		return &evidence.Pod{RuntimeUID: "uid", Containers: []evidence.Container{
			{Name: "setup", Kind: evidence.Init},
			{Name: "db", Kind: evidence.Sidecar},
			{Name: "web", Kind: evidence.App, PreStop: true},
			{Name: "unstarted", Kind: evidence.App},
			{Name: "unknown", Kind: evidence.Ephemeral},
		}}
	}
	running := func(pid int) evidence.ShimTask {
		return evidence.ShimTask{Status: "running", PID: pid, Asked: noon}
	}
	const runc = "io.containerd.runc.v2"
	want := []evidence.Container{
		{Name: "setup", Kind: evidence.Init, ID: "setup-0", State: evidence.StateExited},
		{Name: "db", Kind: evidence.Sidecar, ID: "db-1", State: evidence.StateUnknown, Runtime: runc, Program: "db",
			StopSignal: evidence.SIGTERM, Task: evidence.ShimTask{Status: "stopped", PID: 4002, Asked: noon}},
		{Name: "web", Kind: evidence.App, PreStop: true, ID: "web-1", State: evidence.StateRunning, Runtime: runc, Program: "web",
			StopSignal: evidence.SIGQUIT, Task: running(4001)},
		{Name: "unstarted", Kind: evidence.App, ID: "unstarted-0", State: evidence.StateCreated,
			Task: evidence.ShimTask{Absent: true, Asked: noon}},
		{Name: "unknown", Kind: evidence.Ephemeral},
		{Name: "db", Kind: evidence.Sidecar, ID: "db-0", State: evidence.StateRunning, Runtime: runc, Program: "db",
			StopSignal: 37, Task: running(4000)},
		{Name: "POD", Kind: evidence.Sandbox, ID: "pause-0", State: evidence.StateRunning, Runtime: runc, Program: "pause", Task: running(3999)},
	}
	for range 2 {
		p := seed()
		r.ReadPod(context.Background(), p)
		if diff := cmp.Diff(want, p.Containers); diff != "" {
			t.Error(diff)
		}
		if len(p.Missing) > 0 {
			t.Errorf("missing: %v", p.Missing)
		}
	}
	if n := s.count("record web-1"); n != 1 {
		t.Errorf("the record was read %d times", n)
	}
	if n := s.count("image"); n != 1 {
		t.Errorf("the image was read %d times", n)
	}
	if n := s.count("task setup-0"); n != 0 {
		t.Error("the shim was asked about a container that has ended")
	}
}

// Whoever may create pods may call one the mirror pod of a static pod; the kubelet calls both of
// them by one name.
func TestMirrorPodOfAnotherPod(t *testing.T) {
	s := newServer()
	podOf(s, "hash", 1)
	s.sandboxes["pause-0"] = &runtimeapi.PodSandbox{
		Id: "pause-0", Metadata: &runtimeapi.PodSandboxMetadata{Namespace: "kube-system", Name: "etcd-node"}, Labels: map[string]string{podUID: "hash"},
	}
	socket, _ := s.serve(t, nil)
	r, _ := open(t, socket, long)
	for name, test := range map[string]struct {
		namespace, name string
		want            string
	}{
		"its own":              {"kube-system", "etcd-node", "hash"},
		"of another name":      {"kube-system", "web", "uid"},
		"of another namespace": {"shop", "etcd-node", "uid"},
	} {
		p := &evidence.Pod{Namespace: test.namespace, Name: test.name, UID: "uid", RuntimeUID: "hash", Mirror: true}
		r.ReadPod(t.Context(), p)
		if p.RuntimeUID != test.want || len(p.Containers) > 0 != (test.want == "hash") {
			t.Errorf("%s: UID %s, %d containers", name, p.RuntimeUID, len(p.Containers))
		}
	}
}

// containerd is asked for the status of a sandbox that has ended, once the pod is late, and only
// an error that is about the sandbox is kept.
func TestStatusOfASandbox(t *testing.T) {
	for name, test := range map[string]struct {
		state runtimeapi.PodSandboxState
		late  bool
		fails error
		hangs bool
		want  string
		asked int
	}{
		"an error": {runtimeapi.PodSandboxState_SANDBOX_NOTREADY, true, status.Error(codes.Unknown, "check network namespace "+
			"closed: no"), false, "check network namespace closed: no", 1},
		"all is well":      {runtimeapi.PodSandboxState_SANDBOX_NOTREADY, true, nil, false, "", 1},
		"it is removed":    {runtimeapi.PodSandboxState_SANDBOX_NOTREADY, true, status.Error(codes.NotFound, "no"), false, "", 1},
		"no answer":        {runtimeapi.PodSandboxState_SANDBOX_NOTREADY, true, nil, true, "", 1},
		"it runs":          {runtimeapi.PodSandboxState_SANDBOX_READY, true, nil, false, "", 0},
		"it is not late":   {runtimeapi.PodSandboxState_SANDBOX_NOTREADY, false, nil, false, "", 0},
		"it is down, late": {runtimeapi.PodSandboxState_SANDBOX_NOTREADY, true, status.Error(codes.Unavailable, "no"), false, "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer()
			socket, _ := s.serve(t, nil)
			r, _ := open(t, socket, long)
			if test.hangs {
				r.read = asked
			}
			s.set(func() {
				s.sandboxes["pause-0"] = &runtimeapi.PodSandbox{Id: "pause-0", State: test.state, Labels: map[string]string{podUID: "uid"}}
				s.fails["sandbox pause-0"], s.hangs["sandbox"] = test.fails, test.hangs
			})
			p := &evidence.Pod{RuntimeUID: "uid", Time: noon, Deadline: noon.Add(time.Second)}
			if test.late {
				p.Deadline = noon.Add(-time.Second)
			}
			r.ReadPod(context.Background(), p)
			if len(p.Containers) != 1 || p.Containers[0].StatusError != test.want || s.count("sandbox pause-0") != test.asked {
				t.Errorf("asked %d times: %+v", s.count("sandbox pause-0"), p.Containers)
			}
		})
	}
}

// containerd is asked for the address of a sandbox that runs when a hook is a request to the pod.
func TestAddressOfASandbox(t *testing.T) {
	for name, test := range map[string]struct {
		state runtimeapi.PodSandboxState
		port  int
		ip    string
		fails error
		want  string
		asked int
	}{
		"IPv4":                    {runtimeapi.PodSandboxState_SANDBOX_READY, 80, "10.244.0.9", nil, "10.244.0.9", 1},
		"IPv6":                    {runtimeapi.PodSandboxState_SANDBOX_READY, 80, "fd00::9", nil, "fd00::9", 1},
		"the network of the node": {runtimeapi.PodSandboxState_SANDBOX_READY, 80, "", nil, "", 1},
		"not an address":          {runtimeapi.PodSandboxState_SANDBOX_READY, 80, "x", nil, "", 1},
		"an error":                {runtimeapi.PodSandboxState_SANDBOX_READY, 80, "10.244.0.9", status.Error(codes.Unknown, "no"), "", 1},
		"no such hook":            {runtimeapi.PodSandboxState_SANDBOX_READY, 0, "10.244.0.9", nil, "", 0},
		"it has ended":            {runtimeapi.PodSandboxState_SANDBOX_NOTREADY, 80, "10.244.0.9", nil, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer()
			socket, _ := s.serve(t, nil)
			r, _ := open(t, socket, long)
			s.set(func() {
				s.sandboxes["pause-0"] = &runtimeapi.PodSandbox{Id: "pause-0", State: test.state, Labels: map[string]string{podUID: "uid"}}
				s.addresses = map[string]string{"pause-0": test.ip}
				s.fails["sandbox pause-0"] = test.fails
			})
			p := &evidence.Pod{RuntimeUID: "uid", Time: noon, Deadline: noon.Add(time.Second), Containers: []evidence.Container{{Name: "main", PreStopPort: test.port}}}
			r.ReadPod(context.Background(), p)
			if len(p.Containers) != 2 || p.Containers[1].IP != test.want || s.count("sandbox pause-0") != test.asked {
				t.Errorf("asked %d times: %+v", s.count("sandbox pause-0"), p.Containers)
			}
		})
	}
}

// containerd gives up on the shim before we do. From 2.3 on it says so, and before it says nothing of the task's state.
func TestReadPodWithAHungShim(t *testing.T) {
	for name, stateless := range map[string]bool{"an error": false, "no state": true} {
		t.Run(name, func(t *testing.T) {
			s := newServer()
			podOf(s, "uid", 2)
			s.fails["task c0-id"] = status.Error(codes.DeadlineExceeded, "context deadline exceeded")
			socket, _ := s.serve(t, nil)
			r, clock := open(t, socket, long)
			if stateless {
				s.stateless = func() { clock.move(2 * time.Second) }
			}
			read := func() *evidence.Pod {
				p := &evidence.Pod{RuntimeUID: "uid", Containers: []evidence.Container{{Name: "c0"}, {Name: "c1"}}}
				r.ReadPod(context.Background(), p)
				return p
			}
			for _, step := range []struct {
				at       time.Duration // after noon
				attempts int
				asked    time.Duration // when, after noon
			}{
				{0, 1, 0},
				{3*time.Second - 1, 1, 0},
				{3 * time.Second, 2, 3 * time.Second},
				{13*time.Second - 1, 2, 3 * time.Second},
				{13 * time.Second, 3, 13 * time.Second},
				{43 * time.Second, 4, 43 * time.Second},
				{43*time.Second + shimPause - 1, 4, 43 * time.Second},
				{43*time.Second + shimPause, 5, 43*time.Second + shimPause},
			} {
				clock.move(noon.Add(step.at).Sub(clock.now()))
				p := read()
				want := evidence.ShimTask{UnansweredSince: noon, Attempts: step.attempts, Asked: noon.Add(step.asked)}
				if diff := cmp.Diff(want, p.Containers[0].Task); diff != "" {
					t.Errorf("at %s: %s", clock.now(), diff)
				}
				if got := p.Containers[1].Task.Status; got != "running" {
					t.Errorf("at %s: the other container is %q: %v", clock.now(), got, p.Missing)
				}
				if diff := cmp.Diff(map[evidence.Source]string{evidence.Shims: "the shim does not answer about container c0"}, p.Missing); diff != "" {
					t.Errorf("at %s: missing: %s", clock.now(), diff)
				}
				if n := s.count("task c0-id"); n != step.attempts {
					t.Errorf("at %s: asked %d times, want %d", clock.now(), n, step.attempts)
				}
			}

			s.set(func() { s.fails = map[string]error{} })
			clock.move(shimPause)
			p := read()
			if diff := cmp.Diff(evidence.ShimTask{Status: "running", PID: 4000, Asked: clock.now()}, p.Containers[0].Task); diff != "" {
				t.Error(diff)
			}
			if len(p.Missing) > 0 || len(r.silences.m) > 0 {
				t.Errorf("an answer does not end the silence: %v, %v", p.Missing, r.silences.m)
			}
		})
	}
}

// An answer without a state is no answer of the shim. It is a silence when containerd has waited for the shim.
func TestReadPodWithoutAState(t *testing.T) {
	const (
		ago      = 10 * time.Second
		unstated = "ask the shim about container c0: containerd returned no state and no error"
		silent   = "the shim does not answer about container c0"
	)
	for name, test := range map[string]struct {
		after  time.Duration
		before int // unanswered requests, ago
		want   evidence.ShimTask
		lacks  string
	}{
		"immediately":               {0, 0, evidence.ShimTask{}, unstated},
		"too soon":                  {shimTimeout - 1, 0, evidence.ShimTask{}, unstated},
		"in time":                   {shimTimeout, 0, evidence.ShimTask{UnansweredSince: noon, Asked: noon, Attempts: 1}, silent},
		"immediately, in a silence": {0, 2, evidence.ShimTask{UnansweredSince: noon.Add(-ago), Asked: noon.Add(-ago), Attempts: 2}, unstated},
		"in time, in a silence":     {shimTimeout, 2, evidence.ShimTask{UnansweredSince: noon.Add(-ago), Asked: noon, Attempts: 3}, silent},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer()
			podOf(s, "uid", 1)
			s.fails["task"] = status.Error(codes.Unknown, "no")
			socket, _ := s.serve(t, nil)
			r, clock := open(t, socket, long)
			s.stateless = func() { clock.move(test.after) }
			for range test.before {
				r.silences.unanswered("uid", "c0-id", noon.Add(-ago))
			}
			p := &evidence.Pod{RuntimeUID: "uid"}
			r.ReadPod(t.Context(), p)
			if diff := cmp.Diff(test.want, p.Containers[0].Task); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(map[evidence.Source]string{evidence.Shims: test.lacks}, p.Missing); diff != "" {
				t.Errorf("missing: %s", diff)
			}
			if n := r.silences.m["c0-id"].attempts; n != test.want.Attempts {
				t.Errorf("%d silences, want %d", n, test.want.Attempts)
			}
		})
	}
}

// A shim that does not know the state of a task knows its PID.
func TestReadPodWithAPIDWithoutAState(t *testing.T) {
	s := newServer()
	podOf(s, "uid", 1)
	s.tasks["c0-id"] = &task.Process{Pid: 4000}
	socket, _ := s.serve(t, nil)
	r, _ := open(t, socket, long)
	r.silences.unanswered("uid", "c0-id", noon.Add(-shimPause))
	p := &evidence.Pod{RuntimeUID: "uid"}
	r.ReadPod(t.Context(), p)
	if diff := cmp.Diff(evidence.ShimTask{PID: 4000, Asked: noon}, p.Containers[0].Task); diff != "" || len(p.Missing) > 0 || len(r.silences.m) > 0 {
		t.Errorf("missing %v, silences %v: %s", p.Missing, r.silences.m, diff)
	}
}

// Neither the shim nor containerd says anything.
func TestReadPodOwnDeadline(t *testing.T) {
	s := newServer()
	podOf(s, "uid", 1)
	s.hangs["task"] = true
	socket, _ := s.serve(t, nil)
	r, _ := open(t, socket, long)
	r.task = short
	p := &evidence.Pod{RuntimeUID: "uid"}
	r.ReadPod(context.Background(), p)
	if diff := cmp.Diff(evidence.ShimTask{UnansweredSince: noon, Attempts: 1, Asked: noon}, p.Containers[0].Task); diff != "" {
		t.Error(diff)
	}
}

// A shim that is dead is no silent one.
func TestReadPodWithADeadShim(t *testing.T) {
	s := newServer()
	podOf(s, "uid", 1)
	s.fails["task"] = status.Error(codes.Unavailable, "ttrpc: closed")
	socket, _ := s.serve(t, nil)
	r, _ := open(t, socket, long)
	r.silences.unanswered("uid", "c0-id", noon.Add(-shimPause))
	p := &evidence.Pod{RuntimeUID: "uid"}
	r.ReadPod(context.Background(), p)
	if diff := cmp.Diff(evidence.ShimTask{Asked: noon}, p.Containers[0].Task); diff != "" {
		t.Error(diff)
	}
	if !strings.Contains(p.Missing[evidence.Shims], "ttrpc: closed") {
		t.Errorf("missing: %v", p.Missing)
	}
}

func TestReadPodWithoutContainerd(t *testing.T) {
	s := newServer()
	podOf(s, "uid", 1)
	socket, _ := s.serve(t, nil)
	r, _ := open(t, socket, long)
	r.read = short
	p := &evidence.Pod{RuntimeUID: "uid", Node: evidence.Node{Containerd: evidence.ContainerdService{
		Error: "no answer", UnansweredSince: noon, Attempts: 1,
	}}}
	r.ReadPod(context.Background(), p)
	if diff := cmp.Diff(map[evidence.Source]string{evidence.Containers: "no answer", evidence.Shims: "no answer"}, p.Missing); diff != "" {
		t.Error(diff)
	}
	if s.count("list") > 0 {
		t.Error("a containerd that does not answer was asked for its containers")
	}

	for _, question := range []string{"list", "sandboxes"} {
		s.set(func() { s.hangs = map[string]bool{question: true} })
		p = &evidence.Pod{RuntimeUID: "uid"}
		r.ReadPod(context.Background(), p)
		if p.Missing[evidence.Containers] == "" || p.Missing[evidence.Shims] == "" || s.count("task") > 0 {
			t.Errorf("%s hangs: missing %v, shims asked %d times", question, p.Missing, s.count("task"))
		}
	}

	noCRI, _ := s.serve(t, func(g *grpc.Server) { version.RegisterVersionServer(g, versionServer{server: s}) })
	r, _ = open(t, noCRI, long)
	p = &evidence.Pod{RuntimeUID: "uid"}
	r.ReadPod(context.Background(), p)
	if !strings.Contains(p.Missing[evidence.Containers], "disabled_plugins") {
		t.Errorf("missing %v", p.Missing)
	}
}

// The pod's own time bounds everything, and what it cuts off is no silence.
func TestReadPodOutOfTime(t *testing.T) {
	s := newServer()
	podOf(s, "uid", 20)
	s.hangs["record"] = true
	socket, _ := s.serve(t, nil)
	r, _ := open(t, socket, long)
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	p := &evidence.Pod{RuntimeUID: "uid"}
	r.ReadPod(ctx, p)
	if s.count("task") > 0 || p.Missing[evidence.Shims] == "" || len(r.silences.m) > 0 {
		t.Errorf("asked %d, missing %v, silences %v", s.count("task"), p.Missing, r.silences.m)
	}
}

func TestStopSignalUnknown(t *testing.T) {
	s := newServer()
	podOf(s, "uid", 1)
	s.signals["c0-id"] = runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT
	s.containers["c0-id"].ImageId = digest.FromString("gone").String()
	socket, _ := s.serve(t, nil)
	r, _ := open(t, socket, long)
	read := func() evidence.Container {
		p := &evidence.Pod{RuntimeUID: "uid"}
		r.ReadPod(context.Background(), p)
		if len(p.Missing) > 0 {
			t.Errorf("missing %v", p.Missing)
		}
		return p.Containers[0]
	}
	if c := read(); c.StopSignal != 0 || c.Program != "c0" {
		t.Errorf("%+v", c)
	}
	s.set(func() { s.blobs[s.containers["c0-id"].ImageId] = `{"config":{}}` })
	if c := read(); c.StopSignal != evidence.SIGTERM {
		t.Errorf("%+v", c)
	}
}

// A sandbox that is being created is found by containerd's own record of it, which is asked for
// only where the CRI plugin lists nothing of a pod that is late and has not started.
func TestReadPodBeforeItsSandbox(t *testing.T) {
	s := newServer()
	s.starting = map[string]string{"sandbox-1": "uid", "sandbox-2": "other"}
	s.specs["sandbox-1"] = `{"process":{"args":["/pause"]}}`
	socket, _ := s.serve(t, nil)
	r, _ := open(t, socket, long)
	read := func(edit func(p *evidence.Pod)) *evidence.Pod {
		p := &evidence.Pod{
			Time: noon, Deadline: noon.Add(-time.Minute), Phase: podPending, UID: "uid", RuntimeUID: "uid", Namespace: "shop", Name: "web",
			Containers: []evidence.Container{{Name: "main", Kind: evidence.App, Waiting: true}},
		}
		edit(p)
		r.ReadPod(t.Context(), p)
		return p
	}
	p := read(func(*evidence.Pod) {})
	want := evidence.Container{
		Name: sandboxName, Kind: evidence.Sandbox, ID: "sandbox-1", State: evidence.StateCreated, Runtime: "io.containerd.runc.v2", Program: "pause",
		Task: evidence.ShimTask{Absent: true, Asked: noon},
	}
	if len(p.Containers) != 2 || len(p.Missing) > 0 {
		t.Fatalf("containers %+v, missing %v", p.Containers, p.Missing)
	}
	if diff := cmp.Diff(want, p.Containers[1]); diff != "" {
		t.Error(diff)
	}
	if p := read(func(p *evidence.Pod) { p.Mirror, p.UID, p.Name = true, "mine", "mine" }); len(p.Containers) != 1 || p.RuntimeUID != "mine" {
		t.Errorf("a mirror pod that names another pod's UID is given its sandbox: %+v", p.Containers)
	}
	before := s.count("records")
	hurried, cancel := context.WithTimeout(t.Context(), long/2)
	defer cancel()
	p = &evidence.Pod{Time: noon, Deadline: noon.Add(-time.Minute), Phase: podPending, UID: "uid", RuntimeUID: "uid"}
	r.ReadPod(hurried, p)
	if !strings.Contains(p.Missing[evidence.Containers], "no time was left") || s.count("records") != before {
		t.Errorf("a request that is cut short is made: %v", p.Missing)
	}
	for name, edit := range map[string]func(p *evidence.Pod){
		"only just past the deadline": func(p *evidence.Pod) { p.Deadline = noon.Add(-9 * time.Second) },
		"it runs":                     func(p *evidence.Pod) { p.Phase = "Running" },
	} {
		if p := read(edit); len(p.Containers) != 1 || s.count("records") != before {
			t.Errorf("%s: %+v", name, p.Containers)
		}
	}
	s.set(func() { s.fails["records"] = status.Error(codes.Internal, "no") })
	if p := read(func(*evidence.Pod) {}); p.Missing[evidence.Containers] == "" {
		t.Error("records that could not be listed are taken for none")
	}
}

// A sandbox that has ended, and the containers that were in it, do not hide one that is being
// created in its place.
func TestReadPodBeforeItsNextSandbox(t *testing.T) {
	s := newServer()
	labels := map[string]string{podUID: "uid"}
	s.sandboxes["sandbox-1"] = &runtimeapi.PodSandbox{
		Id: "sandbox-1", State: runtimeapi.PodSandboxState_SANDBOX_NOTREADY, Labels: labels,
		Metadata: &runtimeapi.PodSandboxMetadata{Namespace: "shop", Name: "web"}, CreatedAt: noon.Add(-time.Hour).UnixNano(),
	}
	s.containers["main-id"] = &runtimeapi.Container{
		Id: "main-id", State: runtimeapi.ContainerState_CONTAINER_EXITED, Labels: labels,
		Metadata: &runtimeapi.ContainerMetadata{Name: "main"}, CreatedAt: noon.Add(-time.Hour).UnixNano(),
	}
	s.starting = map[string]string{"sandbox-1": "uid", "sandbox-2": "uid", "sandbox-3": "other"} // records stay
	s.specs["sandbox-2"] = `{"process":{"args":["/pause"]}}`
	socket, _ := s.serve(t, nil)
	r, _ := open(t, socket, long)
	read := func(edit func(p *evidence.Pod)) *evidence.Pod {
		p := &evidence.Pod{
			Time: noon, Deadline: noon.Add(-time.Minute), Phase: "Running", UID: "uid", RuntimeUID: "uid", Namespace: "shop", Name: "web",
			Containers: []evidence.Container{{Name: "main", Kind: evidence.App, Running: true}},
		}
		edit(p)
		r.ReadPod(t.Context(), p)
		return p
	}
	nothing := func(*evidence.Pod) {}
	p := read(nothing)
	if len(p.Containers) != 2 || len(p.Missing) > 0 {
		t.Fatalf("containers %+v, missing %v", p.Containers, p.Missing)
	}
	if c := p.Containers[1]; c.ID != "sandbox-2" || c.Kind != evidence.Sandbox || c.State != evidence.StateCreated || c.Runtime == "" {
		t.Errorf("%+v", c)
	}
	first := func(p *evidence.Pod) bool {
		return len(p.Containers) == 2 && p.Containers[1].ID == "sandbox-1" && p.Containers[1].State == evidence.StateExited
	}
	s.set(func() { s.containers["main-id"].CreatedAt = noon.Add(time.Second).UnixNano() })
	if p := read(nothing); !first(p) {
		t.Errorf("a sandbox that containerd has lost is taken for a new one: %+v", p.Containers)
	}
	s.set(func() { s.containers["main-id"].CreatedAt = noon.Add(-time.Hour).UnixNano() })
	before := s.count("records")
	for name, edit := range map[string]func(p *evidence.Pod){
		"only just past the deadline": func(p *evidence.Pod) { p.Deadline = noon.Add(-9 * time.Second) },
		"the containers have ended":   func(p *evidence.Pod) { p.Phase = "Failed" },
	} {
		if p := read(edit); !first(p) || s.count("records") != before {
			t.Errorf("%s: %+v", name, p.Containers)
		}
	}
	s.set(func() { s.containers["main-id"].State = runtimeapi.ContainerState_CONTAINER_RUNNING })
	if read(nothing); s.count("records") != before {
		t.Error("the records are searched though a container runs")
	}
	s.set(func() {
		s.containers["main-id"].State = runtimeapi.ContainerState_CONTAINER_EXITED
		s.fails["records"] = status.Error(codes.Internal, "no")
	})
	if p := read(nothing); !first(p) || len(p.Missing) != 1 || p.Missing[evidence.RuntimeCommands] == "" {
		t.Errorf("what is listed is not known without the records, or nothing is missing: %+v, %v", p.Containers, p.Missing)
	}
}
