package proc

import (
	"context"
	"slices"
	"strings"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kernfile"
	"github.com/nodeagent-io/nodeagent/pkg/proc/probe"
)

// Claims are the resource claims that the kubelet has had prepared, and has not had unprepared.
type Claims struct {
	all     []probe.ClaimState
	sockets []string
}

// ReadClaims reads the kubelet's checkpoint of resource claims.
func (r *Round) ReadClaims(ctx context.Context) (*Claims, error) {
	if r.Prober == nil {
		return nil, errNoProber
	}
	all, sockets, err := r.Prober.Claims(ctx, r.Proc, r.kubelet)
	if err != nil {
		return nil, err
	}
	return &Claims{all, sockets}, nil
}

// Of returns the claims of the pod with a UID.
func (c *Claims) Of(uid string) []evidence.Claim {
	var out []evidence.Claim
	for i := range c.all {
		s := &c.all[i]
		if !slices.Contains(s.Pods, uid) {
			continue
		}
		claim := evidence.Claim{Name: kernfile.Printable(s.Name), Shared: len(s.Pods) > 1}
		for _, name := range s.Drivers {
			claim.Drivers = append(claim.Drivers, evidence.ClaimDriver{
				Name:         kernfile.Printable(name),
				Unregistered: !slices.ContainsFunc(c.sockets, func(s string) bool { return strings.HasPrefix(s, name) }),
			})
		}
		out = append(out, claim)
	}
	slices.SortFunc(out, func(a, b evidence.Claim) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Pods returns the UIDs of the pods that have claims, in ascending order.
func (c *Claims) Pods() []string {
	var out []string
	for i := range c.all {
		out = append(out, c.all[i].Pods...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
