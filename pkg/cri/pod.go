package cri

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/containerd/errdefs"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// sideBySide is how many containers of one pod are asked about at a time. With
// a hung shim each of them takes two seconds.
const sideBySide = 4

// ReadPod fills in p.Containers what containerd and its shims know, and in p.Specified what the node
// calls volumes. Entries of
// the pod's specification are completed by name. A further attempt of a
// container that still runs gets an entry of its own. So does each sandbox,
// under the name POD, which no container can have; one that is being created, and is not listed yet,
// has the state created. A mirror pod that names the UID of a pod of
// another name gets its own UID as RuntimeUID.
//
// When p.Node.Containerd has an error, or the lists cannot be read, nothing more
// is asked, and both Containers and Shims are missing. When only a shim does not
// answer, Shims is missing. A record or a stop signal that could not be read
// makes no source missing: its fields are empty, which means not known. Of a
// container that has exited only the ID and the state are read, and its mounts as long as what the
// node calls a volume is not known.
func (r *Runtime) ReadPod(ctx context.Context, p *evidence.Pod) {
	lack := func(why string) {
		p.Lack(evidence.Containers, why)
		p.Lack(evidence.Shims, why)
	}
	if s := p.Node.Containerd; s.Error != "" {
		if !s.Refused && s.Attempts == 0 {
			p.Lack(evidence.Containerd, s.Error) // neither known to be up nor to be down
		}
		lack(s.Error)
		return
	}
	c, err := r.current()
	if err != nil {
		lack(err.Error())
		return
	}
	found, err := r.list(ctx, c, p.RuntimeUID)
	if err == nil {
		creating, unread := r.unlisted(ctx, c, p, found)
		if unread != nil && len(found) > 0 {
			// What is listed is known all the same.
			p.Lack(evidence.RuntimeCommands, bound(unread.Error()))
		} else {
			err = unread
		}
		found = append(found, creating...)
	}
	if err != nil {
		lack(bound(err.Error()))
		return
	}
	found = choose(disown(p, found))
	asked := place(p, found)

	ids := make([]string, 0, len(found))
	for _, f := range found {
		ids = append(ids, f.id)
	}
	r.silences.keep(p.RuntimeUID, ids, r.now())

	asksPod := slices.ContainsFunc(p.Containers, func(c evidence.Container) bool { return c.PreStopPort != 0 || c.PostStartPort != 0 })
	errs, records := make([]error, len(asked)), make([]record, len(asked))
	slots := make(chan struct{}, sideBySide)
	var wg sync.WaitGroup
	for i, a := range asked {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			defer func() {
				if v := recover(); v != nil {
					errs[i] = fmt.Errorf("the reading of a container has panicked: %v", v)
				}
			}()
			records[i] = r.record(ctx, c, p, a.listed)
			errs[i] = r.readContainer(ctx, c, p.RuntimeUID, &p.Containers[a.at], a.listed, &records[i])
			if a.sandbox && a.state == evidence.StateExited && p.Overdue() > 0 {
				p.Containers[a.at].StatusError = r.statusError(ctx, c, a.id)
			}
			if a.sandbox && a.state == evidence.StateRunning && asksPod {
				p.Containers[a.at].IP = r.address(ctx, c, a.id)
			}
		})
	}
	wg.Wait()
	for i, a := range asked {
		nameVolumes(p, a.name, records[i].volumes)
	}
	r.nameEnded(ctx, c, p, found)
	for _, err := range errs {
		if err != nil {
			p.Lack(evidence.Shims, bound(err.Error()))
			return
		}
	}
}

// statusError returns why containerd does not tell the status of a sandbox, in at most 300
// bytes; "" when it does, has no such sandbox, or does not answer. containerd answers this
// without the shim, and looks for the sandbox's network namespace, as it does for the kubelet
// every second (internal/cri/server/sandbox_status.go).
func (r *Runtime) statusError(ctx context.Context, c *connection, id string) string {
	if !hasTime(ctx, r.read) {
		return ""
	}
	ctx, cancel := question(ctx, r.read)
	defer cancel()
	_, err := c.cri.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id})
	if err = native(err); err == nil || silent(err) || errdefs.IsNotFound(err) || errdefs.IsUnavailable(err) || errdefs.IsNotImplemented(err) {
		return ""
	}
	return bound(err.Error())
}

// address returns the first address of a sandbox, where the kubelet takes it from too
// (determinePodSandboxIPs, pkg/kubelet/kuberuntime); "" for one in the network of the node, and
// when containerd does not tell. It answers without the shim.
func (r *Runtime) address(ctx context.Context, c *connection, id string) string {
	if !hasTime(ctx, r.read) {
		return ""
	}
	ctx, cancel := question(ctx, r.read)
	defer cancel()
	answer, err := c.cri.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id})
	if err != nil {
		return ""
	}
	ip, err := netip.ParseAddr(answer.GetStatus().GetNetwork().GetIp())
	if err != nil {
		return ""
	}
	return ip.Unmap().String()
}

// readContainer completes one container, of which the record is known. It returns why the shim's
// view of it is not known.
func (r *Runtime) readContainer(ctx context.Context, c *connection, pod string, into *evidence.Container, l listed, rec *record) error {
	into.Runtime, into.Program, into.StopSignal = rec.runtime, rec.program, rec.stopSignal

	now := r.now()
	task, due := r.silences.due(l.id, now)
	into.Task = task
	if !due {
		return fmt.Errorf("the shim does not answer about container %s", into.Name)
	}
	if !hasTime(ctx, r.task) {
		return fmt.Errorf("the shim was not asked about container %s: no time was left", into.Name)
	}
	task, err := r.askShim(ctx, c, l.id)
	task.Asked = now
	switch {
	case err == nil:
		r.silences.answered(l.id)
		into.Task = task
		return nil
	case ctx.Err() != nil || c.dialError() != nil || errors.Is(err, errNoState):
		return fmt.Errorf("ask the shim about container %s: %w", into.Name, err)
	case silent(err):
		into.Task = r.silences.unanswered(pod, l.id, now)
		return fmt.Errorf("the shim does not answer about container %s", into.Name)
	}
	r.silences.answered(l.id) // an error is an answer
	into.Task = evidence.ShimTask{Asked: now}
	if errdefs.IsUnavailable(err) {
		return fmt.Errorf("the shim of container %s cannot be reached: %w", into.Name, err)
	}
	return fmt.Errorf("ask the shim about container %s: %w", into.Name, err)
}
