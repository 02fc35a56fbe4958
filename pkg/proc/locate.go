package proc

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// KubeletDirs are where distributions have the kubelet's root directory: most, K3s and RKE2 among them; k0s; MicroK8s.
var KubeletDirs = []string{"/var/lib/kubelet", "/var/lib/k0s/kubelet", "/var/snap/microk8s/common/var/lib/kubelet"}

// Locate finds the kubelet's directory among Places, once, links in their names followed. Until it has, mounts and volumes are missing: a list
// without any would look as if nothing were mounted.
func (h *Host) Locate(ctx context.Context) (string, error) {
	if dir := h.kubeletDir(); dir != "" || h.Prober == nil {
		return dir, nil
	}
	dir, err := h.Prober.Place(ctx, h.Proc, h.PodUID, h.Places...)
	switch {
	case err != nil:
		err = fmt.Errorf("look for the kubelet's directory: %w", err)
	case dir == "":
		what := "a directory pods"
		if h.PodUID != "" {
			what = "the directory of nodeagent's own pod"
		}
		err = fmt.Errorf("%sthe kubelet's directory: none of %s has %s; set --kubelet-dir to the kubelet's --root-dir",
			evidence.NotFound, strings.Join(h.Places, ", "), what)
	default:
		h.located.Store(&dir)
		return dir, nil
	}
	h.unlocated.Store(&err)
	return "", err
}

// Blind returns why the kubelet's directory is not known, nil when it is.
func (h *Host) Blind() error {
	if h.kubeletDir() != "" {
		return nil
	}
	if err := h.unlocated.Load(); err != nil {
		return *err
	}
	return errors.New("the kubelet's directory has not been looked for yet")
}

// kubeletDir returns the kubelet's directory, "" while it is not known.
func (h *Host) kubeletDir() string {
	if dir := h.located.Load(); dir != nil {
		return *dir
	}
	return h.KubeletDir
}

// mountsUnknown returns why the mounts below the kubelet's directory are not known, "" when they are. The agent's own pod has some.
func (r *Round) mountsUnknown() string {
	if r.kubelet == "" {
		if err := r.Blind(); err != nil {
			return err.Error()
		}
		return "the kubelet's directory has just been found"
	}
	host, err := r.mounts.Host()
	if err != nil || r.PodUID == "" || host.Cut || host.Bad > 0 || r.mounts.Knows(host, r.PodUID) {
		return ""
	}
	return fmt.Sprintf("%sthe kubelet's mounts: the host's mount table has none of nodeagent's own pod below %s; set --kubelet-dir to the kubelet's --root-dir",
		evidence.NotFound, r.kubelet)
}
