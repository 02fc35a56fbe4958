package cri

import (
	"context"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// Network returns what the CRI plugin says of its network plugins: that they are
// ready (evidence.NetworkReady), or why not, in at most 300 bytes; "" when it does not
// answer. It is the answer that the kubelet makes the Node's condition of
// (internal/cri/server/status.go).
func (r *Runtime) Network(ctx context.Context) string {
	c, err := r.current()
	if err != nil {
		return ""
	}
	ctx, cancel := question(ctx, r.read)
	defer cancel()
	answer, err := c.cri.Status(ctx, &runtimeapi.StatusRequest{})
	if err != nil {
		return ""
	}
	for _, condition := range answer.GetStatus().GetConditions() {
		if condition.GetType() != runtimeapi.NetworkReady {
			continue
		}
		if condition.GetStatus() {
			return evidence.NetworkReady
		}
		return bound(strings.TrimSpace(condition.GetReason() + ": " + condition.GetMessage()))
	}
	return ""
}
