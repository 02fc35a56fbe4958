package fact

import (
	"slices"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// BehindClaim returns the volumes of the pod's specification that a volume of the pod on the node
// can be, by its name there; none when the specification has that name, or it is not known.
//
// The kubelet calls what is behind a PersistentVolumeClaim by its PersistentVolume
// (NewSpecFromPersistentVolume and Name, pkg/volume/plugins.go), which the specification does not
// have, and all else as the specification does. So what is called otherwise is behind a claim,
// and behind a certain one where the specification has one of that mode: a container is given
// a block device by volumeDevices only, and a file system by volumeMounts only (createVolumeSpec,
// pkg/kubelet/volumemanager/populator). Of several it is the one that containerd was seen to have
// mounted by this name.
func BehindClaim(p *View, name string) []evidence.SpecVolume {
	block, files := modes(p, name)
	var known, can []evidence.SpecVolume
	for _, s := range p.Specified {
		switch {
		case s.Claim == "" && s.Name == name:
			return nil
		case s.Claim == "" || s.Node != "" && s.Node != name || s.Block && !block || !s.Block && !files:
		case s.Node == name:
			known = append(known, s)
		default:
			can = append(can, s)
		}
	}
	if len(known) > 0 {
		return known
	}
	return can
}

// neverClaimed are the kubelet's plugins of volumes that no PersistentVolume can be of.
var neverClaimed = []string{
	"kubernetes.io~configmap", "kubernetes.io~downward-api", "kubernetes.io~empty-dir", "kubernetes.io~git-repo",
	"kubernetes.io~projected", "kubernetes.io~secret",
}

// modes reports whether the node has a volume of the pod as a block device, and as a file
// system, that may be behind a claim. Two volumes may have one name.
func modes(p *View, name string) (block, files bool) {
	is := func(m evidence.Mount) bool { return m.Volume == name && !slices.Contains(neverClaimed, m.Plugin) }
	block, files = slices.ContainsFunc(p.Devices, is), slices.ContainsFunc(p.Mounts, is)
	for i := range p.Volumes {
		if v := &p.Volumes[i]; v.Name == name && !slices.Contains(neverClaimed, v.Plugin) {
			block, files = block || v.Block, files || !v.Block
		}
	}
	return block, files
}
