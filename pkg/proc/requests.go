package proc

import (
	"context"
	"errors"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kernfile"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/mount"
	"github.com/nodeagent-io/nodeagent/pkg/proc/probe"
)

var errNoKubelet = errors.New("the kubelet's process is not known")

// An unanswered is what a round knows of the connections without an answer. A list that is too long
// is so for all pods, and it takes as long to find out as to read it.
type unanswered struct {
	all []mount.Unanswered
	err error
}

// readRequests finds the kubelet's connections to the ports of the pod's hooks over which nothing
// has come back. The kernel lists those of the whole network namespace; which are the kubelet's
// tell the numbers of the sockets that it has open, which are asked for only when one fits. A
// kubelet that has had an answer keeps the connection for its next request, so that one alone
// shows no request (insecureContainerLifecycleHTTPClient, pkg/kubelet/kubelet.go).
func (r *Round) readRequests(ctx context.Context, p *evidence.Pod) ([]evidence.Request, error) {
	var to []netip.AddrPort
	for i := range p.Containers {
		ip, err := netip.ParseAddr(p.Containers[i].IP)
		if err != nil {
			continue // no sandbox, or one in the network of the node, where the kubelet asks nobody
		}
		for _, port := range hookPorts(p) {
			to = append(to, netip.AddrPortFrom(ip, port))
		}
	}
	if len(to) == 0 {
		return nil, nil
	}
	k := p.Node.Kubelet.Process
	if k == nil {
		return nil, errNoKubelet
	}
	u, err := r.unanswered.get(ctx, func() (unanswered, error) {
		all, err := mount.ReadUnanswered(filepath.Join(r.Proc, strconv.Itoa(k.PID)))
		return unanswered{all, err}, nil
	})
	if err = errors.Join(err, u.err); err != nil {
		return nil, err
	}
	all := slices.DeleteFunc(slices.Clone(u.all), func(u mount.Unanswered) bool { return !slices.Contains(to, u.To) })
	if len(all) == 0 {
		return nil, nil
	}
	own, err := r.sockets.get(ctx, func() ([]uint64, error) {
		saw, err := r.askFiles(ctx, probe.Sockets, &kernfile.TaskStatus{Task: *k})
		return saw.Inodes, err
	})
	if err != nil {
		return nil, err
	}
	var out []evidence.Request
	for _, u := range all {
		if slices.Contains(own, u.Inode) && len(out) < maxRequests {
			out = append(out, evidence.Request{Port: int(u.To.Port()), Socket: u.Inode, State: u.State})
		}
	}
	return out, nil
}

// maxRequests bounds the requests to one pod that are told of: its containers have two hooks each.
const maxRequests = 64

// hookPorts returns the ports that the hooks of the pod's running containers ask.
func hookPorts(p *evidence.Pod) []uint16 {
	var out []uint16
	for i := range p.Containers {
		c := &p.Containers[i]
		for _, port := range []int{c.PreStopPort, c.PostStartPort} {
			if n := uint16(port); c.State == evidence.StateRunning && n != 0 && !slices.Contains(out, n) {
				out = append(out, n)
			}
		}
	}
	return out
}
