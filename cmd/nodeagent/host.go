package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"

	"github.com/nodeagent-io/nodeagent/pkg/agent"
	"github.com/nodeagent-io/nodeagent/pkg/cri"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/kubelet"
	"github.com/nodeagent-io/nodeagent/pkg/proc"
	"github.com/nodeagent-io/nodeagent/pkg/proc/probe"
)

// hostOptions say where the host's things are, as this process sees them.
type hostOptions struct {
	nodeName, nodeIP   string
	proc, cgroup, fuse string
	kubeletDir         string
	containerd         string
}

func (o *hostOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.nodeName, "node-name", os.Getenv("NODE_NAME"), "name of this node (environment: NODE_NAME)")
	f.StringVar(&o.nodeIP, "node-ip", os.Getenv("NODE_IP"), "address of this node, where its kubelet listens (environment: NODE_IP)")
	f.StringVar(&o.proc, "proc", "/proc", "the host's proc file system")
	f.StringVar(&o.cgroup, "cgroup", "/sys/fs/cgroup", "the host's cgroup file system, version 1 or 2")
	f.StringVar(&o.fuse, "fuse-connections", "/sys/fs/fuse/connections", "the host's FUSE control file system")
	f.StringVar(&o.kubeletDir, "kubelet-dir", "/var/lib/kubelet", "the kubelet's root directory, as the host names it; it is not opened")
	f.StringVar(&o.containerd, "containerd-socket", "/run/containerd/containerd.sock", "containerd's socket")
}

func (o *hostOptions) check() error {
	if o.nodeName == "" {
		return errors.New("the name of the node is not set; set NODE_NAME from the downward API (fieldRef: spec.nodeName), or --node-name")
	}
	for _, dir := range []struct{ path, flag string }{{o.proc, "proc"}, {o.cgroup, "cgroup"}} {
		if _, err := os.Stat(dir.path); err != nil {
			return fmt.Errorf("%w; mount the host's there, or name the place with --%s", err, dir.flag)
		}
	}
	return nil
}

// A host is where evidence comes from.
type host struct {
	name    string
	proc    *proc.Host
	prober  *probe.Prober
	runtime *cri.Runtime
	kubelet *kubelet.Client
	// round is the reading of this round, which node begins.
	round atomic.Pointer[proc.Round]
	// pods lists the pods of the node, for their names; nil is allowed.
	pods func() []*corev1.Pod
}

func (o *hostOptions) open() (*host, error) {
	h := &host{name: o.nodeName, prober: new(probe.Prober)}
	// By its own name, so that ps shows the helper as nodeagent.
	if self, err := os.Executable(); err == nil {
		h.prober.Argv = []string{self, "probe"}
	}
	h.proc = &proc.Host{Proc: o.proc, Cgroup: o.cgroup, FUSE: o.fuse, KubeletDir: o.kubeletDir, Prober: h.prober}
	h.round.Store(h.proc.Round())
	var err error
	if h.runtime, err = cri.Open(o.containerd); err != nil {
		return nil, err
	}
	if h.kubelet, err = kubelet.New(o.nodeIP); err != nil {
		return nil, err
	}
	h.kubelet.NodeName = o.nodeName // a kubelet that signs its own certificate puts its name there
	return h, nil
}

// close ends the helper process and the connections. It does not wait for what
// hangs.
func (h *host) close() {
	h.prober.Close()
	_ = h.runtime.Close() // the program ends; nobody is left to tell
}

// blockedWithin bounds the look at all threads of the node. It is for the
// metrics, and for rules that can do without: what hangs there must not take
// the time of what is read of the kubelet and of the pods.
const blockedWithin = 2 * time.Second

// node begins a round and reads what all pods of the node share. The processes of containerd and
// the kubelet, and whatever else is blocked on the node, are looked at only when
// something is overdue.
func (h *host) node(ctx context.Context, overdue bool) evidence.Node {
	round := h.proc.Round()
	h.round.Store(round)
	n := evidence.Node{Name: h.name, Kernel: h.proc.ReadKernel(), CorePattern: h.proc.ReadCorePattern()}
	var wg sync.WaitGroup
	wg.Go(func() {
		n.Containerd = h.runtime.Health(ctx)
		if overdue && n.Containerd.Error != "" {
			// Its state tells why; that it was not found is told by Error.
			n.Containerd.Process, _, _ = round.ReadProcess(ctx, "containerd")
		}
	})
	if overdue {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, blockedWithin)
			defer cancel()
			// What could not be read says nothing about a pod: each is read again
			// with what belongs to it.
			n.Blocked, _ = round.ReadBlocked(ctx)
			h.nameOwners(n.Blocked)
		})
		wg.Go(func() { n.Kubelet.Health = h.kubelet.Health(ctx) })
		wg.Go(func() {
			var err error
			if n.Kubelet.Process, n.Kubelet.Blocked, err = round.ReadProcess(ctx, "kubelet"); err != nil {
				n.Kubelet.Error = err.Error()
			}
		})
	}
	wg.Wait()
	return n
}

// gather fills in the evidence about one pod, in the round that node began. The containers come first: the
// readers of processes make use of them.
func (h *host) gather(ctx context.Context, p *evidence.Pod) {
	if p.Node.Kubelet.Error != "" {
		p.Lack(evidence.Kubelet, p.Node.Kubelet.Error)
	}
	// What containerd does not tell in half the time must not cost the pod the
	// evidence of the kernel.
	half := ctx
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		half, cancel = context.WithTimeout(ctx, time.Until(deadline)/2)
		defer cancel()
	}
	h.runtime.ReadPod(half, p)
	h.round.Load().ReadPod(ctx, p)
	h.nameOwners(p.Parents)
	h.nameOwners(p.Leftovers)
}

// nameOwners names the pods that tasks belong to. Other owners are short words,
// such as kernel or shim, and have no pod.
func (h *host) nameOwners(tasks []evidence.Task) {
	const shortestUID = 32 // of a static pod
	names := make(map[string]string)
	for i := range tasks {
		uid := tasks[i].Owner
		if len(uid) < shortestUID {
			continue
		}
		name, ok := names[uid]
		if !ok {
			name = h.podName(uid)
			names[uid] = name
		}
		tasks[i].OwnerName = name
	}
}

// podName gives namespace/name of the pod of this node that has a UID in its
// control groups: its own, or for a static pod the hash of its manifest. It is
// "" for one that is not known.
func (h *host) podName(uid string) string {
	if h.pods == nil {
		return ""
	}
	for _, p := range h.pods() {
		if agent.Seed(p, time.Time{}).RuntimeUID == uid {
			return p.Namespace + "/" + p.Name
		}
	}
	return ""
}
