package cri

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/containerd/containerd/api/types/task"
	"golang.org/x/tools/txtar"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// A shim that hangs is found, whatever containerd answers of one. What only its answer could rule out is not ruled out before that, nor where
// containerd does not say why it has no answer.
func TestHungShimIsFound(t *testing.T) {
	for name, test := range map[string]struct {
		stateless bool
		takes     time.Duration
		found     bool
	}{
		"containerd from 2.3 on":      {false, 0, true},
		"containerd before 2.3":       {true, 2 * time.Second, true},
		"containerd without a reason": {true, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer()
			first := asleep(t)
			for _, c := range first.Containers {
				s.fails["task "+c.ID] = status.Error(codes.DeadlineExceeded, "context deadline exceeded")
				s.specs[c.ID] = `{"process":{"args":["` + c.Program + `"]}}`
				s.tasks[c.ID] = &task.Process{Pid: 1, Status: task.Status_RUNNING}
				if c.Kind == evidence.Sandbox {
					s.sandboxes[c.ID] = &runtimeapi.PodSandbox{
						Id: c.ID, State: runtimeapi.PodSandboxState_SANDBOX_READY, Labels: map[string]string{podUID: first.RuntimeUID},
						Metadata: &runtimeapi.PodSandboxMetadata{Namespace: first.Namespace, Name: first.Name},
					}
				} else {
					s.add(first.RuntimeUID, c.Name, c.ID, 0, runtimeapi.ContainerState_CONTAINER_RUNNING)
				}
			}
			socket, _ := s.serve(t, nil)
			r, clock := open(t, socket, long)
			clock.t = first.Time
			if test.stateless {
				s.stateless = func() { clock.move(test.takes) }
			}
			var last *evidence.Pod
			for clock.now().Before(first.Time.Add(10 * time.Minute)) {
				p := asleep(t)
				p.Time = clock.now()
				p.Node.Time, p.Node.Read = p.Time, p.Time
				p.Containers = []evidence.Container{{Name: "main", Kind: evidence.App, Running: true}}
				r.ReadPod(t.Context(), p)
				p.ContainersRead, p.CgroupsRead, p.TasksRead = clock.now(), clock.now(), clock.now()
				p.Since(last)
				last = p
				clock.move(15 * time.Second)
			}
			d := cause.Diagnose(last)
			v, _ := d.Verdict()
			if (v.Cause == "ShimHung") != test.found || test.found && !slices.Contains(v.Variants, "Sandbox") {
				t.Errorf("verdict %q %q, last answer %+v", v.Cause, v.Variants, last.Containers[0].Task)
			}
			// What else needs the shim's answer is ruled out by what is seen without it.
			if c := "NodeResourceExhausted"; !d.NotLookedFor(c) {
				t.Errorf("%s counts as ruled out; not known is %+v", c, d.Unknown)
			}
		})
	}
}

// asleep is a pod whose shim does not answer and is not stopped.
func asleep(t *testing.T) *evidence.Pod {
	t.Helper()
	a, err := txtar.ParseFile("../diagnose/testdata/shim_hung_stateful_set.txtar")
	if err != nil {
		t.Fatal(err)
	}
	p := new(evidence.Pod)
	if err := json.Unmarshal(a.Files[0].Data, p); err != nil {
		t.Fatal(err)
	}
	p.Missing = nil
	shim := &p.Parents[0]
	shim.State, shim.Probe.Wchan, shim.Probe.Stack = evidence.Sleeping, "futex_do_wait", nil
	return p
}
