package proc

import (
	"errors"
	"os"
	"slices"
	"testing"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kerneltest"
)

// Of the connections on the node that have no answer those count that are the kubelet's own, to the
// pod's address and a port of a hook of a container that runs.
func TestRequests(t *testing.T) {
	const header = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
	line := func(remote, inode string) string {
		return "  33: 0100F40A:A000 " + remote + " 01 0:0 00:0 0     0        0 " + inode + " 1 0 20 0 0 11 -1\n"
	}
	const pod, other = "0900F40A", "0A00F40A" // 10.244.0.9 and 10.244.0.10
	root := t.TempDir()
	kerneltest.Tree(t, root, map[string]string{
		"7/net/tcp": header + line(pod+":1F90", "500") + line(pod+":1F90", "501") +
			line(pod+":1F91", "502") + line(other+":1F90", "503") + line(pod+":0050", "504"),
		"7/task/7/fdinfo/1": "",
	})
	dir := root + "/7/task/7/fd"
	err := os.Mkdir(dir, 0o755)
	for fd, text := range map[string]string{"1": "socket:[500]", "2": "socket:[502]", "3": "socket:[503]", "4": "socket:[504]",
		"5": "pipe:[501]", "6": "/dev/null"} {
		err = errors.Join(err, os.Symlink(text, dir+"/"+fd))
	}
	if err != nil {
		t.Fatal(err)
	}
	h := newHost(t)
	h.Proc = root
	read := func(change func(p *evidence.Pod)) ([]uint64, error) {
		p := &evidence.Pod{Containers: []evidence.Container{
			{Name: "main", State: evidence.StateRunning, PreStopPort: 8080, PostStartPort: 80},
			{Name: "ended", State: evidence.StateExited, PreStopPort: 8081},
			{Name: "POD", Kind: evidence.Sandbox, State: evidence.StateRunning, IP: "10.244.0.9"},
		}}
		p.Node.Kubelet.Process = &evidence.Task{PID: 7, TID: 7, State: evidence.Sleeping}
		change(p)
		got, err := h.Round().readRequests(t.Context(), p)
		var sockets []uint64
		for _, r := range got {
			sockets = append(sockets, r.Socket)
		}
		return sockets, err
	}
	for name, tc := range map[string]struct {
		change func(p *evidence.Pod)
		want   []uint64
		fails  bool
	}{
		"its own":                       {func(*evidence.Pod) {}, []uint64{500, 504}, false},
		"a pod in the node's network":   {func(p *evidence.Pod) { p.Containers[2].IP = "" }, nil, false},
		"no such hook":                  {func(p *evidence.Pod) { p.Containers[0].PreStopPort, p.Containers[0].PostStartPort = 0, 0 }, nil, false},
		"a container that has ended":    {func(p *evidence.Pod) { p.Containers[0].State = evidence.StateExited }, nil, false},
		"the kubelet is not known":      {func(p *evidence.Pod) { p.Node.Kubelet.Process = nil }, nil, true},
		"the kubelet has ended by now":  {func(p *evidence.Pod) { p.Node.Kubelet.Process.PID = 8 }, nil, true},
		"not known, without such hooks": {func(p *evidence.Pod) { p.Node.Kubelet.Process, p.Containers = nil, nil }, nil, false},
	} {
		if got, err := read(tc.change); !slices.Equal(got, tc.want) || (err != nil) != tc.fails {
			t.Errorf("%s: %d, %v", name, got, err)
		}
	}
	// What cannot be read is not read again for each pod.
	round := h.Round()
	for range 2 {
		p := &evidence.Pod{Containers: []evidence.Container{
			{Name: "main", State: evidence.StateRunning, PreStopPort: 8080}, {Name: "POD", Kind: evidence.Sandbox, IP: "10.244.0.9"},
		}}
		p.Node.Kubelet.Process = &evidence.Task{PID: 9, TID: 9, State: evidence.Sleeping}
		if got, err := round.readRequests(t.Context(), p); err == nil {
			t.Errorf("a list that is read late: %+v", got)
		}
		kerneltest.Tree(t, root, map[string]string{"9/net/tcp": header})
	}
	h.Prober = nil
	if got, err := read(func(*evidence.Pod) {}); err == nil {
		t.Errorf("whose they are is not known: %d", got)
	}
}
