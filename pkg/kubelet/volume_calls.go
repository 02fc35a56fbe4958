package kubelet

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

const (
	// callsEvery is how often the kubelet is asked for its metrics, which are some
	// hundred kilobytes and cost it some milliseconds.
	callsEvery = 10 * time.Second
	// callsLast is for how long a question is put to it: less than evidence.CallsPause, so that
	// slow answers still follow one another closely.
	callsLast = 20 * time.Second
	// The most that is read of them, in bytes, and kept, in series about volumes, about
	// the API server and about resource claims.
	maxMetrics    = 32 << 20
	maxCalls      = 256
	maxAPICalls   = 64
	maxClaimCalls = 128
)

// A question is one for the kubelet's metrics.
type question struct {
	asked time.Time
	// What it was told, or why not, when done is closed.
	done   chan struct{}
	counts evidence.Counts
	err    error
}

// Counts returns what the kubelet counts of its attempts to take volumes down and to have
// resource claims unprepared, and of its requests to the API server with DELETE and PATCH, and
// when it was asked for; a zero time when it was not asked because the answer before is too recent. It takes at most
// three seconds. A kubelet on a node that is short of processors may need longer for so many lines: the question
// goes on for up to twenty, and one of the next calls returns its answer. The error is why it is not known.
//
// The kubelet tells these counts on /metrics only, which needs the permission to get
// nodes/metrics, and which port 10248 does not serve.
func (c *Client) Counts(ctx context.Context) (evidence.Counts, time.Time, error) {
	var none evidence.Counts
	u, err := url.Parse(c.URL)
	if err != nil {
		return none, time.Time{}, fmt.Errorf("the kubelet's address: %w", err)
	}
	if u.Scheme != "https" {
		return none, time.Time{}, errors.New("the kubelet tells its metrics on port 10250 only; set NODE_IP")
	}
	u.Path = "/metrics"
	c.mu.Lock()
	defer c.mu.Unlock()
	q, now := c.asks, time.Now()
	if q == nil || now.Sub(q.asked) > evidence.CallsPause { // nobody wanted to know for long
		if now.Sub(c.called) < callsEvery {
			return none, time.Time{}, nil
		}
		q = &question{asked: now, done: make(chan struct{})}
		c.asks, c.called = q, now
		go c.tell(context.WithoutCancel(ctx), u, q)
	}
	wait, cancel := context.WithTimeout(ctx, c.limit)
	defer cancel()
	select {
	case <-q.done:
	case <-wait.Done():
		return none, time.Time{}, fmt.Errorf("the kubelet at %s has not told its metrics yet: %w", u.Host, wait.Err())
	}
	c.asks = nil
	if q.err != nil {
		return none, time.Time{}, q.err
	}
	return q.counts, q.asked, nil
}

// tell puts a question for the kubelet's metrics.
func (c *Client) tell(ctx context.Context, u *url.URL, q *question) {
	defer close(q.done)
	ctx, cancel := context.WithTimeout(ctx, callsLast)
	defer cancel()
	a, err := c.ask(ctx, u, func(a *answer, r io.Reader) (err error) {
		// Whoever takes the kubelet's port, as a pod with a hostPort may, can answer.
		if a.code != http.StatusOK || a.unverified != nil {
			return nil
		}
		body := &io.LimitedReader{R: r, N: maxMetrics}
		if q.counts, err = parseCounts(body); err == nil && body.N == 0 {
			err = fmt.Errorf("more than %d bytes", maxMetrics)
		}
		return err
	})
	switch {
	case err != nil:
		q.err = fmt.Errorf("ask the kubelet for its metrics: %w", err)
	case a.unverified != nil:
		q.err = fmt.Errorf("the kubelet at %s does not prove that it is this node's, so it is not sent the token and not asked for its "+
			"metrics; %s: %w", u.Host, getSigned, a.unverified)
	case a.code != http.StatusOK:
		q.err = fmt.Errorf("the kubelet at %s refuses to tell its metrics (%d); give the service account get on nodes/metrics", u.Host, a.code)
	}
}

// The metrics (pkg/volume/util/metrics.go, pkg/volume/csi/csi_metrics.go, and
// k8s.io/component-base/metrics/prometheus/restclient/metrics.go).
const (
	csiCalls    = "csi_operations_seconds_count{"
	operations  = "storage_operation_duration_seconds_count{"
	apiRequests = "rest_client_requests_total{"
	lastListed  = "kubelet_pleg_last_seen_seconds " // pkg/kubelet/metrics/metrics.go; seconds since 1970
)

// parseCounts takes from the text of /metrics the attempts to unmount volumes and to have
// claims unprepared, and the requests to the API server.
func parseCounts(r io.Reader) (evidence.Counts, error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	var out evidence.Counts
	swaps := false
	for lines.Scan() {
		line := lines.Text()
		swaps = swaps || swapsErrors(line)
		if value, ok := strings.CutPrefix(line, lastListed); ok {
			if s, err := strconv.ParseFloat(value, 64); err == nil && s > 0 && s < 1<<33 {
				out.Listed = time.Unix(int64(s), 0)
			}
		}
		if call, ok := parseVolumeCall(line); ok && !addVolumeCall(out.Volumes, &call) {
			if len(out.Volumes) == maxCalls {
				return evidence.Counts{}, fmt.Errorf("more than %d series about volumes", maxCalls)
			}
			out.Volumes = append(out.Volumes, call)
		}
		if call, ok := parseClaimCall(line); ok {
			if len(out.Claims) == maxClaimCalls {
				return evidence.Counts{}, fmt.Errorf("more than %d series about resource claims", maxClaimCalls)
			}
			out.Claims = append(out.Claims, call)
		}
		if call, ok := parseAPICall(line); ok && !addCall(out.API, &call) {
			if len(out.API) == maxAPICalls {
				return evidence.Counts{}, fmt.Errorf("more than %d series about the API server", maxAPICalls)
			}
			out.API = append(out.API, call)
		}
	}
	if swaps {
		swapErrors(out.Claims)
	}
	return out, lines.Err()
}

// addCall adds a count to the one of the same method and code, which another address of
// the API server has, and reports whether there is one.
func addCall(all []evidence.APICall, call *evidence.APICall) bool {
	for i := range all {
		if all[i].Method == call.Method && all[i].Code == call.Code {
			all[i].Count += call.Count
			return true
		}
	}
	return false
}

// addVolumeCall adds a count to the one of the same volumes, method and status, which those of
// another way to specify a volume have (label migrated: of a plugin that the driver stands in
// for, or the driver's own), and reports whether there is one.
func addVolumeCall(all []evidence.VolumeCall, call *evidence.VolumeCall) bool {
	for i := range all {
		if c := &all[i]; c.Plugin == call.Plugin && c.Driver == call.Driver && c.Method == call.Method && c.Status == call.Status {
			c.Count += call.Count
			return true
		}
	}
	return false
}

// parseAPICall parses a line about requests of a method that rules know.
func parseAPICall(line string) (evidence.APICall, bool) {
	rest, found := strings.CutPrefix(line, apiRequests)
	if !found {
		return evidence.APICall{}, false
	}
	labels, count, ok := parseSeries(rest)
	call := evidence.APICall{Method: labels["method"], Code: labels["code"], Count: count}
	return call, ok && (call.Method == evidence.MethodDelete || call.Method == evidence.MethodPatch)
}

// parseVolumeCall parses a line about attempts to unmount a volume.
func parseVolumeCall(line string) (call evidence.VolumeCall, ok bool) {
	if rest, found := strings.CutPrefix(line, csiCalls); found {
		labels, count, whole := parseSeries(rest)
		call = evidence.VolumeCall{Plugin: csiPlugin, Driver: labels["driver_name"], Status: labels["grpc_status_code"], Count: count}
		_, call.Method, _ = strings.Cut(strings.TrimPrefix(labels["method_name"], "/"), "/")
		return call, whole && call.Method == evidence.NodeUnpublish
	}
	rest, found := strings.CutPrefix(line, operations)
	if !found {
		return call, false
	}
	labels, count, whole := parseSeries(rest)
	call = evidence.VolumeCall{Method: labels["operation_name"], Status: labels["status"], Count: count}
	call.Plugin, call.Driver, _ = strings.Cut(labels["volume_plugin"], ":")
	return call, whole && (call.Method == evidence.VolumeUnmount || call.Method == evidence.VolumeUnmap)
}

const csiPlugin = "kubernetes.io/csi"

// parseSeries parses what follows the brace of a sample in the Prometheus text
// format: label="value",...} 5
func parseSeries(s string) (labels map[string]string, count uint64, ok bool) {
	labels = make(map[string]string)
	for !strings.HasPrefix(s, "}") {
		name, rest, found := strings.Cut(s, `="`)
		if !found {
			return nil, 0, false
		}
		end := 0
		for end < len(rest) && rest[end] != '"' {
			if rest[end] == '\\' {
				end++
			}
			end++
		}
		if end >= len(rest) {
			return nil, 0, false
		}
		labels[name] = rest[:end]
		s = strings.TrimPrefix(rest[end+1:], ",")
	}
	value, _, _ := strings.Cut(strings.TrimSpace(s[1:]), " ")
	f, err := strconv.ParseFloat(value, 64)
	if err != nil || !(f >= 0 && f < 1<<53) {
		return nil, 0, false
	}
	return labels, uint64(f), true
}
