package kubelet

import (
	"path"
	"strconv"
	"strings"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// The metrics about resource claims (pkg/kubelet/metrics/metrics.go).
const (
	claimAttempts = "dra_operations_duration_seconds_count{"
	claimCalls    = "dra_grpc_operations_duration_seconds_count{"
)

// buildInfo is the metric that has the version of the kubelet (k8s.io/component-base/metrics/version.go).
const buildInfo = "kubernetes_build_info{"

// labelledRight is the first minor version of Kubernetes 1 whose kubelet counts a failed attempt with is_error="true".
// The ones before it, which have counted attempts since 1.32, do so of those that succeed (kubernetes#135227).
const labelledRight = 36

// swapsErrors reports whether a line tells that the kubelet counts attempts at claims that succeed as failed, and
// those that fail as successful.
func swapsErrors(line string) bool {
	rest, found := strings.CutPrefix(line, buildInfo)
	if !found {
		return false
	}
	labels, _, ok := parseSeries(rest)
	minor, err := strconv.Atoi(strings.TrimSuffix(labels["minor"], "+"))
	return ok && err == nil && labels["major"] == "1" && minor < labelledRight
}

// swapErrors exchanges the attempts that succeeded and those that failed.
func swapErrors(calls []evidence.ClaimCall) {
	for i := range calls {
		switch c := &calls[i]; {
		case c.Method != evidence.Unprepare:
		case c.Status == evidence.ClaimsFailed:
			c.Status = evidence.ClaimsSucceeded
		default:
			c.Status = evidence.ClaimsFailed
		}
	}
}

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
