package cri

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// What containerd has mounted in a container tells what the node calls the volumes of the
// specification.
func TestVolumesAreNamed(t *testing.T) {
	const dir = "/var/lib/kubelet/pods/uid/"
	s := newServer()
	podOf(s, "uid", 2)
	s.add("uid", "ended", "ended-id", 0, runtimeapi.ContainerState_CONTAINER_EXITED)
	s.add("uid", "other", "other-id", 0, runtimeapi.ContainerState_CONTAINER_EXITED)
	s.mounts = map[string][]*runtimeapi.Mount{
		"c0-id": {
			{ContainerPath: "/data/", HostPath: dir + "volumes/kubernetes.io~csi/pvc-1/mount"},
			{ContainerPath: "/logs", HostPath: dir + "volume-subpaths/pvc-2/c0/1"},
			{ContainerPath: "/other", HostPath: "/var/lib/kubelet/pods/another/volumes/kubernetes.io~csi/pvc-9/mount"},
			{ContainerPath: "/host", HostPath: "/srv"},
			{ContainerPath: "/twice", HostPath: dir + "volumes/kubernetes.io~csi/pvc-5/mount"},
			{ContainerPath: "/twice/", HostPath: dir + "volumes/kubernetes.io~csi/pvc-6/mount"},
			{ContainerPath: "/above", HostPath: dir + "volumes/kubernetes.io~csi/pvc-7/mount"},
			{ContainerPath: "/above/", HostPath: "/srv/pods/other"},
			{ContainerPath: "/dev/termination-log", HostPath: dir + "containers/c0/1"},
		},
		"c1-id":    {{ContainerPath: "/data", HostPath: dir + "volumes/kubernetes.io~nfs/pvc-3"}},
		"ended-id": {{ContainerPath: "/data", HostPath: dir + "volumes/kubernetes.io~csi/pvc-4/mount"}},
	}
	socket, _ := s.serve(t, nil)
	r, _ := open(t, socket, long)
	of := func(name, container, path, node string) evidence.SpecVolume {
		return evidence.SpecVolume{Name: name, Claim: name, At: []evidence.SpecMount{{Container: container, Path: path}}, Node: node}
	}
	for range 2 { // the second time from the cache
		p := &evidence.Pod{RuntimeUID: "uid", Specified: []evidence.SpecVolume{
			of("a", "c0", "/data", ""), of("b", "c0", "/logs", ""), of("c", "c0", "/other", ""), of("d", "c0", "/host", ""), of("e", "c1", "/data",
				""), of("f", "c1", "/logs", ""), of("g", "ended", "/data", ""),
			// Two volumes at one place, written in two ways.
			of("h", "c0", "/twice", ""), of("i", "c0", "/twice", ""), of("j", "c0", "/above", ""), of("k", "c0", "/above", ""),
		}}
		r.ReadPod(t.Context(), p)
		if diff := cmp.Diff([]evidence.SpecVolume{
			of("a", "c0", "/data", "pvc-1"), of("b", "c0", "/logs", "pvc-2"), of("c", "c0", "/other", ""), of("d", "c0", "/host", ""), of("e", "c1",
				"/data", "pvc-3"), of("f", "c1", "/logs", ""), of("g", "ended", "/data", "pvc-4"),
			of("h", "c0", "/twice", ""), of("i", "c0", "/twice", ""), of("j", "c0", "/above", ""), of("k", "c0", "/above", ""),
		}, p.Specified); diff != "" {
			t.Error(diff)
		}
	}
	// Of one that has ended it is asked for as long as it is not known, and of no other.
	p := &evidence.Pod{RuntimeUID: "uid", Specified: []evidence.SpecVolume{of("g", "ended", "/data", "pvc-4"), of("h", "c0", "/data", "")}}
	s.mu.Lock()
	before := s.asked["status"]
	s.mu.Unlock()
	if r.ReadPod(t.Context(), p); s.asked["status"] != before {
		t.Errorf("asked %d times more", s.asked["status"]-before)
	}
}
