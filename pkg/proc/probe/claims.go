package probe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kernfile"
)

// A ClaimState is a resource claim that the kubelet has had prepared (evidence.Claim).
type ClaimState struct {
	Name string `json:"name"`
	// Pods are the UIDs of those that have it, and Drivers the names of its drivers.
	Pods    []string `json:"pods,omitempty"`
	Drivers []string `json:"drivers,omitempty"`
}

// Bounds of the kubelet's checkpoint: in bytes, in claims, and in the pods and drivers of all
// of them together.
const (
	largestCheckpoint = 4 << 20
	maxClaims         = 1024
	maxClaimants      = 4096
)

// Claims asks for the resource claims in the kubelet's checkpoint, and for the names of the
// sockets in plugins_registry. dir is the kubelet's directory as the host names it.
func (p *Prober) Claims(ctx context.Context, proc, dir string) (all []ClaimState, sockets []string, err error) {
	saw, err := p.askDir(ctx, request{What: claims, Proc: proc, PID: 1, TID: 1, Owner: "kubelet", Dir: dir})
	return saw.Claims, saw.Sockets, err
}

// checkpoint is the file in which the kubelet keeps the claims that it has had prepared
// (draManagerStateFileName, pkg/kubelet/cm/dra/manager.go). It writes another one and renames it.
const checkpoint = "dra_manager_state"

func (p *probe) claims() {
	kubelet := p.kubelet()
	if kubelet == nil {
		return
	}
	defer kubelet.close()
	all, err := p.checkpoint(kubelet)
	if err != nil {
		p.problem(path.Join(p.Dir, checkpoint), err)
		return
	}
	p.seen.Claims = all
	p.seen.Sockets = p.names(kubelet, "plugins_registry", maxSockets)
}

// checkpoint reads the claims. A kubelet that has never had the feature has no such file, and a
// pod with claims does not run on it.
func (p *probe) checkpoint(kubelet *dir) ([]ClaimState, error) {
	if !p.announce(path.Join(p.Dir, checkpoint)) {
		return nil, nil
	}
	fd, err := p.beneath(kubelet.fd, p.Dir, checkpoint, unix.O_RDONLY|unix.O_NONBLOCK, true)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), checkpoint)
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.New("it is no regular file")
	}
	b, err := io.ReadAll(io.LimitReader(f, largestCheckpoint+1))
	if err != nil {
		return nil, err
	}
	if len(b) > largestCheckpoint {
		return nil, fmt.Errorf("more than %d bytes: %w", largestCheckpoint, kernfile.ErrTooMany)
	}
	return parseCheckpoint(b)
}

// parseCheckpoint parses the checkpoint of Kubernetes 1.32 and later: JSON, with JSON in a
// string (Checkpoint and CheckpointData, pkg/kubelet/cm/dra/state/checkpoint.go).
func parseCheckpoint(b []byte) ([]ClaimState, error) {
	var file struct{ Data *string }
	if err := json.Unmarshal(b, &file); err != nil {
		return nil, err
	}
	if file.Data == nil {
		return nil, errors.New("it is of a version that is not known")
	}
	var data struct {
		Kind               string `json:"kind"`
		ClaimInfoStateList []struct {
			ClaimName   string
			PodUIDs     map[string]json.RawMessage
			DriverState map[string]json.RawMessage
		}
	}
	if err := json.Unmarshal([]byte(*file.Data), &data); err != nil {
		return nil, err
	}
	if data.Kind != "DRACheckpoint" {
		return nil, errors.New("it is of a version that is not known")
	}
	if len(data.ClaimInfoStateList) > maxClaims {
		return nil, fmt.Errorf("more than %d claims: %w", maxClaims, kernfile.ErrTooMany)
	}
	all, parts := make([]ClaimState, 0, len(data.ClaimInfoStateList)), 0
	for _, c := range data.ClaimInfoStateList {
		if parts += len(c.PodUIDs) + len(c.DriverState); parts > maxClaimants {
			return nil, fmt.Errorf("more than %d pods and drivers of claims: %w", maxClaimants, kernfile.ErrTooMany)
		}
		all = append(all, ClaimState{Name: c.ClaimName, Pods: sorted(c.PodUIDs), Drivers: sorted(c.DriverState)})
	}
	return all, nil
}

func sorted(m map[string]json.RawMessage) []string {
	var names []string
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
