package cri

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/containerd/errdefs"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// sandboxName stands for a sandbox's name. Names of containers are lower case
// (RFC 1123 labels), so nothing else is called so.
const sandboxName = "POD"

// podUID is the label under which kubelet tells the runtime whose a container
// is (pkg/kubelet/types/labels.go).
const podUID = "io.kubernetes.pod.uid"

// A listed is one line of the CRI's lists: one attempt of a container, or a
// sandbox.
type listed struct {
	name    string
	sandbox bool
	pod     string // of a sandbox, whose it is, as namespace/name
	id      string
	state   evidence.ContainerState
	image   string // the digest of the image's configuration
	created int64  // nanoseconds since 1970
	attempt uint32
}

// list reads the pod's containers and sandboxes. containerd answers this from
// memory, without its shims (internal/cri/server/container_list.go).
func (r *Runtime) list(ctx context.Context, c *connection, uid string) ([]listed, error) {
	if uid == "" {
		return nil, errors.New("list containers: the pod has no UID")
	}
	ctx, cancel := question(ctx, r.read)
	defer cancel()
	selector := map[string]string{podUID: uid}

	containers, err := c.cri.ListContainers(ctx, &runtimeapi.ListContainersRequest{
		Filter: &runtimeapi.ContainerFilter{LabelSelector: selector},
	})
	if err != nil {
		return nil, r.listError("containers", err)
	}
	sandboxes, err := c.cri.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{
		Filter: &runtimeapi.PodSandboxFilter{LabelSelector: selector},
	})
	if err != nil {
		return nil, r.listError("sandboxes", err)
	}

	var all []listed
	for _, s := range sandboxes.GetItems() {
		l := listed{name: sandboxName, sandbox: true, id: s.GetId(), state: evidence.StateExited,
			created: s.GetCreatedAt(), attempt: s.GetMetadata().GetAttempt(),
			pod: s.GetMetadata().GetNamespace() + "/" + s.GetMetadata().GetName()}
		if s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY {
			l.state = evidence.StateRunning
		}
		all = append(all, l)
	}
	for _, k := range containers.GetContainers() {
		l := listed{name: k.GetMetadata().GetName(), id: k.GetId(), state: containerState(k.GetState()),
			image: k.GetImageId(), created: k.GetCreatedAt(), attempt: k.GetMetadata().GetAttempt()}
		if l.image == "" {
			l.image = k.GetImageRef()
		}
		all = append(all, l)
	}
	return all, nil
}

// sandboxRecords are the labels by which containerd's own records tell a sandbox, and whose it is
// (internal/cri/server/podsandbox/sandbox_run.go).
const sandboxRecords = `labels."io.cri-containerd.kind"==sandbox,labels."` + podUID + `"==%q`

// unlistedAfter is how far past its deadline a pod of which nothing runs must be for containerd to
// search its records, all of which it reads for that: mostly the kubelet is done with such a pod by
// then.
const unlistedAfter = 10 * time.Second

// unlisted returns the sandboxes of a pod that are being created: the CRI plugin lists one when its
// container has been started, and containerd has a record of that from before runc creates it, and
// before 2.0 from before its network is set up. A
// sandbox that has ended is made anew when all that was in it has ended. One that is older than what
// is listed is none of these: containerd has lost it.
func (r *Runtime) unlisted(ctx context.Context, c *connection, p *evidence.Pod, known []listed) ([]listed, error) {
	if p.ContainersEnded() || len(known) == 0 && p.Phase != podPending || p.Overdue() < unlistedAfter ||
		slices.ContainsFunc(known, func(l listed) bool { return l.state != evidence.StateExited }) {
		return nil, nil
	}
	if !hasTime(ctx, r.read) {
		return nil, errors.New("containerd was not asked for its records of sandboxes: no time was left")
	}
	ctx, cancel := question(ctx, r.read)
	defer cancel()
	records, err := c.containerd.ContainerService().List(ctx, fmt.Sprintf(sandboxRecords, p.RuntimeUID))
	if err != nil {
		return nil, r.listError("records of sandboxes", err)
	}
	var all []listed
	for _, k := range records {
		if slices.ContainsFunc(known, func(l listed) bool { return l.id == k.ID || l.created >= k.CreatedAt.UnixNano() }) {
			continue
		}
		all = append(all, listed{name: sandboxName, sandbox: true, id: k.ID, state: evidence.StateCreated, created: k.CreatedAt.UnixNano(),
			pod: k.Labels["io.kubernetes.pod.namespace"] + "/" + k.Labels["io.kubernetes.pod.name"]})
	}
	return all, nil
}

// podPending is the phase of a pod of which no container runs yet.
const podPending = "Pending"

func (r *Runtime) listError(what string, err error) error {
	err = native(err)
	switch {
	case silent(err):
		return fmt.Errorf("containerd at %s has not listed %s within %s", r.at(), what, r.read)
	case errdefs.IsNotImplemented(err):
		return r.noCRI()
	}
	return fmt.Errorf("list %s of containerd at %s: %w", what, r.at(), err)
}

func containerState(s runtimeapi.ContainerState) evidence.ContainerState {
	switch s {
	case runtimeapi.ContainerState_CONTAINER_CREATED:
		return evidence.StateCreated
	case runtimeapi.ContainerState_CONTAINER_RUNNING:
		return evidence.StateRunning
	case runtimeapi.ContainerState_CONTAINER_EXITED:
		return evidence.StateExited
	}
	return evidence.StateUnknown
}

// disown makes a mirror pod one of its own UID, of which the node knows nothing, when the UID that
// it names is that of another pod's sandbox: whoever may create pods may call one the mirror pod
// of any static pod. The kubelet calls both of them by one name
// (GetPodByMirrorPod, pkg/kubelet/pod/pod_manager.go).
func disown(p *evidence.Pod, found []listed) []listed {
	if !p.Mirror || !slices.ContainsFunc(found, func(l listed) bool { return l.sandbox && l.pod != p.Namespace+"/"+p.Name }) {
		return found
	}
	p.RuntimeUID = p.UID
	return nil
}

// choose returns the list without older attempts that have exited. Of each name
// the newest attempt comes first.
func choose(all []listed) []listed {
	newestFirst := slices.Clone(all)
	slices.SortStableFunc(newestFirst, func(a, b listed) int {
		return cmp.Or(cmp.Compare(b.created, a.created), cmp.Compare(b.attempt, a.attempt), cmp.Compare(a.id, b.id))
	})
	seen := make(map[string]bool)
	return slices.DeleteFunc(newestFirst, func(l listed) bool {
		older := seen[l.name]
		seen[l.name] = true
		return older && l.state == evidence.StateExited
	})
}

// A placed is a listed container and its index in Pod.Containers.
type placed struct {
	listed
	at int
}

// place writes the lists into p.Containers, and returns those about which there
// is more to ask: all that have not exited, and the sandboxes, for which the CRI
// has one state for both unknown and exited.
func place(p *evidence.Pod, found []listed) []placed {
	at := make(map[string]int) // the entry of the specification, or of the newest attempt
	for i, c := range p.Containers {
		at[c.Name] = i
	}
	var asked []placed
	for _, l := range found {
		i, known := at[l.name]
		switch {
		case !known:
			kind := evidence.App
			if l.sandbox {
				kind = evidence.Sandbox
			}
			p.Containers = append(p.Containers, evidence.Container{Name: l.name, Kind: kind})
			i = len(p.Containers) - 1
			at[l.name] = i
		case p.Containers[i].ID != "":
			older := p.Containers[i]
			p.Containers = append(p.Containers, evidence.Container{Name: older.Name, Kind: older.Kind, PreStop: older.PreStop})
			i = len(p.Containers) - 1
		}
		p.Containers[i].ID, p.Containers[i].State = l.id, l.state
		if l.sandbox || l.state != evidence.StateExited {
			asked = append(asked, placed{l, i})
		}
	}
	return asked
}
