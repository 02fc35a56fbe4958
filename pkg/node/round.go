package node

import (
	"context"
	"errors"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc"
)

type round struct {
	reader *Reader
	names  map[string]string
	// drivers are the pods of CSI and DRA drivers by the driver's name.
	drivers map[string]Driver
	proc    *proc.Round
	node    evidence.Node
	claims  claims
}

// claims are the node's resource claims, nil when they were not read, and why they could not be.
type claims struct {
	all *proc.Claims
	err error
}

func (r *round) Node() evidence.Node { return r.node }

// blockedWithin bounds the look at all threads of the node, and the search for programs that scan files. It is for the
// metrics, and for rules that can do without: what hangs there must not take
// the time of what is read of the kubelet and of the pods.
const blockedWithin = 2 * time.Second

// On a node of many threads that look is had more rarely: it takes no more than one
// blockedShare'th of the time, as far as blockedRarest allows.
const (
	blockedShare  = 20
	blockedRarest = 30 * time.Second
)

// readBlocked reads the blocked tasks of the node, or keeps those of the last reading
// while it is too soon.
func (r *round) readBlocked(ctx context.Context, n *evidence.Node, earlier *evidence.Node) {
	from, now := r.reader, time.Now()
	if earlier != nil && !earlier.Time.IsZero() && now.Sub(from.blockedAt) < min(from.blockedTook*blockedShare, blockedRarest) {
		n.Blocked, n.BlockedRead = slices.Clone(earlier.Blocked), earlier.BlockedRead
		if n.BlockedRead.IsZero() {
			n.BlockedRead = earlier.Time
		}
		return
	}
	ctx, cancel := context.WithTimeout(ctx, blockedWithin)
	defer cancel()
	// What could not be read says nothing about a pod: each is read again
	// with what belongs to it.
	n.Blocked, from.blockedTook, _ = r.proc.ReadBlocked(ctx)
	from.blockedAt = now
	r.nameOwners(n.Blocked)
}

// shared is what all pods of the node share.
type shared struct {
	node   evidence.Node
	claims claims
}

// readNodeCarefully is readNode. Of a reading that panics nothing is known.
func (r *round) readNodeCarefully(ctx context.Context, ask *Ask) (got *shared) {
	defer func() {
		if v := recover(); v != nil {
			what, ok := v.(caught)
			if !ok {
				what = caught{v, debug.Stack()}
			}
			if r.reader.Panicked != nil {
				r.reader.Panicked(what.value, what.stack)
			}
			got = &shared{node: r.reader.unread("the reading of the node has panicked")}
		}
	}()
	return r.readNode(ctx, ask)
}

// A crew does parts of a reading side by side. A panic in one of them is that of who waits.
type crew struct {
	sync.WaitGroup
	caught atomic.Pointer[caught]
}

// A caught is what has panicked, and where.
type caught struct {
	value any
	stack []byte
}

func (c *crew) Go(do func()) {
	c.WaitGroup.Go(func() {
		defer func() {
			if v := recover(); v != nil {
				c.caught.Store(&caught{v, debug.Stack()})
			}
		}()
		do()
	})
}

func (c *crew) Wait() {
	c.WaitGroup.Wait()
	if v := c.caught.Load(); v != nil {
		panic(*v)
	}
}

// readNode reads what all pods of the node share. Whatever is blocked on the node,
// and why containerd does not answer, is looked at only when something is
// overdue; the kubelet always, since without it no pod is sent its stop signal.
func (r *round) readNode(ctx context.Context, ask *Ask) *shared {
	from, got := r.reader, new(shared)
	n := &got.node
	*n = evidence.Node{Name: from.Name, Kernel: r.proc.ReadKernel(), CorePattern: r.proc.ReadCorePattern(), Pressure: from.Proc.ReadPressure()}
	var wg crew
	var sight evidence.KubeletSight
	wg.Go(func() {
		n.Containerd = from.Runtime.Health(ctx)
		if ask.Overdue && n.Containerd.Error == "" {
			n.Containerd.Network = from.Runtime.Network(ctx)
		}
		if ask.Overdue && (ask.Lists || ask.Earlier != nil && ask.Earlier.Kubelet.Unlisted()) && n.Containerd.Error == "" {
			n.Containerd.Lists = from.Runtime.Lists(ctx)
		}
		if ask.Pulls && n.Containerd.Error == "" {
			// What is not known of its open files is told by less.
			n.Containerd.Content, _ = r.proc.ReadContent(ctx)
			n.Containerd.Downloads = from.Runtime.Downloads(ctx)
		}
		if ask.Overdue && n.Containerd.Error != "" {
			// Its state tells why; what could not be read of it is not known.
			var err error
			if n.Containerd.Process, _, err = r.proc.ReadProcess(ctx, "containerd"); n.Containerd.Process == nil && err == nil {
				n.Containerd.AbsentSince = time.Now()
			}
		}
	})
	if ask.Overdue {
		wg.Go(func() { r.readBlocked(ctx, n, ask.Earlier) })
	} else {
		from.blockedAt = time.Time{}
	}
	if from.Kubelet != nil {
		wg.Go(func() { sight = from.Kubelet.Sight(ctx) })
	}
	if ask.Unmounts {
		wg.Go(func() { n.Unmounting = r.unmounting(ctx, ask) })
	}
	if ask.Unprepares {
		wg.Go(func() { got.claims.all, got.claims.err = r.proc.ReadClaims(ctx) })
	}
	if n.Awaiting, n.LastBegun = ask.Awaiting, ask.LastBegun; n.Awaiting > 0 {
		wg.Go(func() { n.Processors, _ = r.proc.ReadProcessors(ctx) }) // what could not be read is not known
	}
	if ask.Unmounts || ask.Finished {
		n.Deletable = ask.Deletable
	}
	// What a kubelet without a disk, or without files, fails at shows in its counts only.
	short := ask.Overdue && ask.Earlier != nil && len(ask.Earlier.Kubelet.Shortages) > 0
	if ask.Unmounts || ask.Finished || ask.Unprepares || short {
		wg.Go(func() {
			k, err := &n.Kubelet, errNoKubelet
			if from.Kubelet != nil {
				var counts evidence.Counts
				counts, k.VolumeCallsRead, err = from.Kubelet.Counts(ctx)
				k.VolumeCalls, k.APICalls, k.ClaimCalls, k.Listed = counts.Volumes, counts.API, counts.Claims, counts.Listed
			}
			if err != nil {
				k.VolumeCallsError = err.Error()
			}
		})
	}
	if ask.Overdue {
		wg.Go(func() {
			var err error
			if n.Kubelet.Shortages, err = r.proc.ReadKubeletShortages(ctx); err != nil {
				n.Kubelet.ShortagesError = err.Error()
			}
		})
	}
	wg.Go(func() {
		var err error
		if ask.Overdue {
			n.Kubelet.Process, n.Kubelet.Blocked, err = r.proc.ReadProcess(ctx, proc.KubeletNames...)
		} else {
			n.Kubelet.Process, err = r.proc.ReadMain(ctx, proc.KubeletNames...)
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
	n.Kubelet.Health, n.Kubelet.Refused, n.Kubelet.Answers = sight.Health, sight.Refused, sight.Answers
	if ask.Overdue && (ask.Scanned || n.AwaitsScanner(ask.Earlier)) {
		// Which program is waited for is not known without it, but that one is.
		limited, cancel := context.WithTimeout(ctx, blockedWithin)
		var err error
		if n.Scanners, err = r.proc.ReadScanners(limited); err != nil {
			n.ScannersError = err.Error()
		}
		cancel()
		n.ScannersRead = time.Now()
		r.nameOwners(n.Scanners)
	}
	if n.Processors != nil {
		n.Processors = r.nameUsers(*n.Processors)
	}
	n.Kubelet.Strangers = strangers(n.Kubelet.Blocked, ask.Names)
	n.Unpreparing = got.claims.unpreparing(ask)
	return got
}

// strangers returns the UIDs of pods on whose volumes the kubelet's tasks work and that are not
// in the API, as far as they have the form of the API server's. No names mean that the pods of the node are not known.
func strangers(tasks []evidence.Task, names map[string]string) []string {
	if len(names) == 0 {
		return nil
	}
	var out []string
	for i := range tasks {
		if tasks[i].Probe == nil {
			continue
		}
		_, rest, _ := strings.Cut(tasks[i].Probe.VolumePath, "/pods/")
		uid, _, _ := strings.Cut(rest, "/")
		// A static pod has a hash instead, and its mirror pod may be yet to come.
		if _, known := names[uid]; !known && strings.Count(uid, "-") == 4 && !slices.Contains(out, uid) {
			out = append(out, uid)
		}
	}
	return out
}

// unpreparing counts the pods of which the kubelet may be having resource claims unprepared,
// those that are gone from the API included; 0 when that cannot be told.
func (c *claims) unpreparing(ask *Ask) int {
	if c.all == nil {
		return 0
	}
	n := ask.Unpreparing
	for _, uid := range c.all.Pods() {
		if _, known := ask.Names[uid]; !known {
			n++
		}
	}
	return n
}

// give fills in the pod's claims and the pods of their drivers.
func (c *claims) give(p *evidence.Pod, drivers map[string]Driver) {
	switch {
	case p.ResourceClaims == 0 || p.Overdue() <= 0:
		return
	case c.err != nil:
		p.Lack(evidence.Claims, "read the kubelet's checkpoint of resource claims: "+c.err.Error())
		return
	case c.all == nil:
		p.Lack(evidence.Claims, "the kubelet's checkpoint of resource claims was not read")
		return
	}
	p.Claims = c.all.Of(p.RuntimeUID)
	for i := range p.Claims {
		for j := range p.Claims[i].Drivers {
			d := &p.Claims[i].Drivers[j]
			d.Pod, d.PodState = drivers[d.Name].Pod, drivers[d.Name].State
		}
	}
}

var errNoKubelet = errors.New("the kubelet is not asked")

// unmounting counts the pods whose volumes the kubelet takes down, those that are
// gone from the API included; 0 when that cannot be told.
func (r *round) unmounting(ctx context.Context, ask *Ask) int {
	uids, err := r.proc.PodDirs(ctx)
	if err != nil {
		return 0
	}
	n := ask.Unmounting
	for _, uid := range uids {
		if _, known := ask.Names[uid]; !known {
			n++
		}
	}
	return n
}

// Pod implements Round. The containers come first: the readers of processes make
// use of them.
func (r *round) Pod(ctx context.Context, seed, earlier *evidence.Pod) *evidence.Pod {
	p := *seed
	// The seed may be used for another reading, also before this one has returned.
	p.Containers, p.Specified, p.Missing = slices.Clone(seed.Containers), slices.Clone(seed.Specified), maps.Clone(seed.Missing)
	p.Time = time.Now()
	p.Node = r.node
	p.KeepDeadline(earlier)
	if why := p.Node.Kubelet.Error; why != "" {
		p.Lack(evidence.Kubelet, why)
	}
	if why := p.Node.Kubelet.ShortagesError; why != "" {
		p.Lack(evidence.Limits, "look for what the kubelet lacks: "+why)
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
	if p.HungSince.IsZero() {
		r.proc.ReadPod(ctx, &p)
	} else {
		for _, s := range proc.Sources {
			p.Lack(s, "an earlier reading has not returned")
		}
	}
	r.nameOwners(p.Parents)
	r.nameOwners(p.Leftovers)
	r.nameHolders(p.Holders)
	for i := range p.OutputHolders {
		p.OutputHolders[i].OwnerName = r.names[p.OutputHolders[i].Owner]
	}
	for i := range p.Volumes {
		d := r.drivers[p.Volumes[i].Driver]
		p.Volumes[i].DriverPod, p.Volumes[i].DriverPodState = d.Pod, d.State
	}
	r.claims.give(&p, r.drivers)
	if why := p.Node.Kubelet.VolumeCallsError; why != "" {
		if p.ResourceClaims > 0 && p.Overdue() > 0 {
			p.Lack(evidence.ClaimCalls, why)
		}
		if p.ContainersEnded() {
			p.Lack(evidence.VolumeCalls, why)
		}
		if p.ContainersEnded() || p.NothingLeft() {
			p.Lack(evidence.APICalls, why)
		}
	}
	if r.reader.Recorder != nil {
		r.reader.Recorder.Pod(seed, &p)
	}
	p.Since(earlier)
	return &p
}

// nameUsers returns a copy in which the pods have their names.
func (r *round) nameUsers(p evidence.Processors) *evidence.Processors {
	p.Users = slices.Clone(p.Users)
	for i := range p.Users {
		p.Users[i].Pod = r.names[p.Users[i].PodUID]
	}
	return &p
}

// nameOwners names the pods that tasks belong to. Other owners are short words,
// such as kernel or shim, and have no pod.
func (r *round) nameOwners(tasks []evidence.Task) {
	for i := range tasks {
		tasks[i].OwnerName = r.names[tasks[i].Owner]
	}
}

func (r *round) nameHolders(holders []evidence.Holder) {
	for i := range holders {
		holders[i].OwnerName = r.names[holders[i].Owner]
	}
}
