package kubelet

import (
	"path"
	"strings"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// The metrics about resource claims (pkg/kubelet/metrics/metrics.go).
const (
	claimAttempts = "dra_operations_duration_seconds_count{"
	claimCalls    = "dra_grpc_operations_duration_seconds_count{"
)

// parseClaimCall parses a line about attempts to have resource claims unprepared. The method
// of a driver's call begins with the name and version of its service.
func parseClaimCall(line string) (call evidence.ClaimCall, ok bool) {
	if rest, found := strings.CutPrefix(line, claimCalls); found {
		labels, count, whole := parseSeries(rest)
		call = evidence.ClaimCall{Method: path.Base(labels["method_name"]), Driver: labels["driver_name"], Status: labels["grpc_status_code"], Count: count}
		return call, whole && call.Method == evidence.NodeUnprepare
	}
	rest, found := strings.CutPrefix(line, claimAttempts)
	if !found {
		return call, false
	}
	labels, count, whole := parseSeries(rest)
	call = evidence.ClaimCall{Method: labels["operation_name"], Status: evidence.ClaimsFailed, Count: count}
	if labels["is_error"] != "true" {
		call.Status = evidence.ClaimsSucceeded
	}
	return call, whole && call.Method == evidence.Unprepare
}
