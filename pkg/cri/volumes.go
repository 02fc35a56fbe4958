package cri

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// status reads what the CRI says of a container. containerd answers this from memory
// (internal/cri/server/container_status.go).
func (r *Runtime) status(ctx context.Context, c *connection, id string) (*runtimeapi.ContainerStatus, error) {
	ctx, cancel := question(ctx, r.read)
	defer cancel()
	s, err := c.cri.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		return nil, fmt.Errorf("read the status of container %s: %w", id, native(err))
	}
	return s.GetStatus(), nil
}

// volumesOf returns what the node calls the volumes of a pod that are mounted in a container, by
// their places there, as far as the specification has a claim there. The kubelet has asked for
// these mounts, and containerd tells them as it was asked. A specification may write one place in
// two ways, as in /data and /data/: what is there is not known.
func volumesOf(s *runtimeapi.ContainerStatus, p *evidence.Pod, container string) map[string]string {
	out := make(map[string]string)
	for _, m := range s.GetMounts() {
		at := evidence.SpecMount{Container: container, Path: path.Clean("/" + m.GetContainerPath())}
		name := volumeOf(m.GetHostPath(), p.RuntimeUID)
		if !slices.ContainsFunc(p.Specified, func(v evidence.SpecVolume) bool { return slices.Contains(v.At, at) }) {
			continue
		}
		if other, twice := out[at.Path]; twice && other != name {
			name = ""
		}
		out[at.Path] = name
	}
	return out
}

// volumeOf returns the name of the volume in a path of the kubelet,
// pods/UID/volumes/PLUGIN/NAME or, of a subPath, pods/UID/volume-subpaths/NAME
// (pkg/kubelet/kubelet_getters.go); "" when it is none of the pod's.
func volumeOf(host, pod string) string {
	_, below, ok := strings.Cut(host, "/pods/"+pod+"/")
	e := strings.Split(below, "/")
	switch {
	case ok && pod != "" && len(e) >= 3 && e[0] == "volumes":
		return e[2]
	case ok && pod != "" && len(e) >= 2 && e[0] == "volume-subpaths":
		return e[1]
	}
	return ""
}

// nameEnded does nameVolumes for containers that have exited, which the kubelet has containerd
// forget some time later: a program may end before its pod is first read.
func (r *Runtime) nameEnded(ctx context.Context, c *connection, p *evidence.Pod, found []listed) {
	for _, l := range found {
		if l.sandbox || l.state != evidence.StateExited || !unnamed(p, l.name) || !hasTime(ctx, r.read) {
			continue
		}
		s, err := r.status(ctx, c, l.id)
		if err != nil {
			return // the next one would have to wait, too
		}
		nameVolumes(p, l.name, volumesOf(s, p, l.name))
	}
}

// unnamed reports whether a container has a volume of which it is not known what the node calls it.
func unnamed(p *evidence.Pod, container string) bool {
	return slices.ContainsFunc(p.Specified, func(s evidence.SpecVolume) bool {
		return s.Node == "" && slices.ContainsFunc(s.At, func(at evidence.SpecMount) bool { return at.Container == container })
	})
}

// nameVolumes notes what the node calls the volumes of the specification that a container has
// mounted.
func nameVolumes(p *evidence.Pod, container string, volumes map[string]string) {
	for i := range p.Specified {
		s := &p.Specified[i]
		for _, at := range s.At {
			if name := volumes[at.Path]; name != "" && at.Container == container {
				s.Node = name
			}
		}
	}
}
