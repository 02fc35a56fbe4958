package node

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc"
)

type round struct {
	reader *Reader
	names  map[string]string
	proc   *proc.Round
	node   evidence.Node
}

func (r *round) Node() evidence.Node { return r.node }

// blockedWithin bounds the look at all threads of the node. It is for the
// metrics, and for rules that can do without: what hangs there must not take
// the time of what is read of the kubelet and of the pods.
const blockedWithin = 2 * time.Second

// kubelets are the names of the process that the kubelet is part of: its own, and
// those of MicroK8s and K3s, which have it in one program with others. RKE2 and k0s
// start it under its own.
var kubelets = []string{"kubelet", "kubelite", "k3s-server", "k3s-agent"}

// readNode reads what all pods of the node share. Whatever is blocked on the node,
// and why containerd does not answer, is looked at only when something is
// overdue; the kubelet always, since without it no pod is sent its stop signal.
func (r *round) readNode(ctx context.Context, overdue bool) evidence.Node {
	from := r.reader
	n := evidence.Node{Name: from.Name, Kernel: r.proc.ReadKernel(), CorePattern: r.proc.ReadCorePattern(), Pressure: from.Proc.ReadPressure()}
	var wg sync.WaitGroup
	var health string
	var refused bool
	wg.Go(func() {
		n.Containerd = from.Runtime.Health(ctx)
		if overdue && n.Containerd.Error == "" {
			n.Containerd.Network = from.Runtime.Network(ctx)
		}
		if overdue && n.Containerd.Error != "" {
			// Its state tells why; what could not be read of it is not known.
			var err error
			if n.Containerd.Process, _, err = r.proc.ReadProcess(ctx, "containerd"); n.Containerd.Process == nil && err == nil {
				n.Containerd.AbsentSince = time.Now()
			}
		}
	})
	if overdue {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, blockedWithin)
			defer cancel()
			// What could not be read says nothing about a pod: each is read again
			// with what belongs to it.
			n.Blocked, _ = r.proc.ReadBlocked(ctx)
			r.nameOwners(n.Blocked)
		})
	}
	if from.Kubelet != nil {
		wg.Go(func() { health, refused = from.Kubelet.Health(ctx) })
	}
	wg.Go(func() {
		var err error
		if overdue {
			n.Kubelet.Process, n.Kubelet.Blocked, err = r.proc.ReadProcess(ctx, kubelets...)
		} else {
			n.Kubelet.Process, err = r.proc.ReadMain(ctx, kubelets...)
		}
		switch now := time.Now(); {
		case n.Kubelet.Process != nil:
			from.saw.Store(now.UnixNano())
		case err == nil:
			n.Kubelet.AbsentSince = now
		}
		if saw := from.saw.Load(); saw != 0 {
			n.Kubelet.LastSeen = time.Unix(0, saw)
		}
		if err != nil {
			n.Kubelet.Error = err.Error()
		}
	})
	wg.Wait()
	n.Kubelet.Health, n.Kubelet.Refused = health, refused
	return n
}

// Pod implements Round. The containers come first: the readers of processes make
// use of them.
func (r *round) Pod(ctx context.Context, seed, earlier *evidence.Pod) *evidence.Pod {
	p := *seed
	p.Containers = slices.Clone(seed.Containers)
	p.Time = time.Now()
	p.Node = r.node
	p.KeepDeadline(earlier)
	if why := p.Node.Kubelet.Error; why != "" {
		p.Lack(evidence.Kubelet, why)
	}
	// What containerd does not tell in half the time must not cost the pod the
	// evidence of the kernel.
	half := ctx
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		half, cancel = context.WithTimeout(ctx, time.Until(deadline)/2)
		defer cancel()
	}
	r.reader.Runtime.ReadPod(half, &p)
	p.ContainersRead = time.Now()
	r.proc.ReadPod(ctx, &p)
	r.nameOwners(p.Parents)
	r.nameOwners(p.Leftovers)
	p.Since(earlier)
	return &p
}

// nameOwners names the pods that tasks belong to. Other owners are short words,
// such as kernel or shim, and have no pod.
func (r *round) nameOwners(tasks []evidence.Task) {
	for i := range tasks {
		tasks[i].OwnerName = r.names[tasks[i].Owner]
	}
}
