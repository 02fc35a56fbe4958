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
	// The most that is read of them, in bytes, and kept, in series.
	maxMetrics = 32 << 20
	maxCalls   = 256
)

// VolumeCalls returns what the kubelet counts of its attempts to take volumes down,
// and when it was asked for; a zero time when it was not asked because the answer before
// is too recent. It takes at most three seconds. The error is why it is not known.
//
// The kubelet tells these counts on /metrics only, which needs the permission to get
// nodes/metrics, and which port 10248 does not serve.
func (c *Client) VolumeCalls(ctx context.Context) ([]evidence.VolumeCall, time.Time, error) {
	u, err := url.Parse(c.URL)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("the kubelet's address: %w", err)
	}
	if u.Scheme != "https" {
		return nil, time.Time{}, errors.New("the kubelet tells its metrics on port 10250 only; set NODE_IP")
	}
	now := time.Now()
	if last := c.called.Load(); now.UnixNano()-last < int64(callsEvery) {
		return nil, time.Time{}, nil
	}
	c.called.Store(now.UnixNano())
	u.Path = "/metrics"
	ctx, cancel := context.WithTimeout(ctx, c.limit)
	defer cancel()
	var calls []evidence.VolumeCall
	a, err := c.ask(ctx, u, func(a *answer, r io.Reader) (err error) {
		// Whoever takes the kubelet's port, as a pod with a hostPort may, can answer.
		if a.code != http.StatusOK || a.unverified != nil {
			return nil
		}
		body := &io.LimitedReader{R: r, N: maxMetrics}
		if calls, err = parseVolumeCalls(body); err == nil && body.N == 0 {
			err = fmt.Errorf("more than %d bytes", maxMetrics)
		}
		return err
	})
	switch {
	case err != nil:
		return nil, time.Time{}, fmt.Errorf("ask the kubelet for its metrics: %w", err)
	case a.code == http.StatusOK && a.unverified == nil:
		return calls, now, nil
	case a.unverified != nil:
		return nil, time.Time{}, fmt.Errorf("the kubelet at %s does not prove that it is this node's, so it is not sent the token and not asked for its metrics: %w", u.Host, a.unverified)
	}
	return nil, time.Time{}, fmt.Errorf("the kubelet at %s refuses to tell its metrics (%d); give the service account get on nodes/metrics", u.Host, a.code)
}

// The metrics (pkg/volume/util/metrics.go, pkg/volume/csi/csi_metrics.go).
const (
	csiCalls   = "csi_operations_seconds_count{"
	operations = "storage_operation_duration_seconds_count{"
)

// parseVolumeCalls takes from the text of /metrics the attempts to unmount volumes.
func parseVolumeCalls(r io.Reader) ([]evidence.VolumeCall, error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	var out []evidence.VolumeCall
	for lines.Scan() {
		line := lines.Text()
		var labels map[string]string
		var count uint64
		var ok bool
		var call evidence.VolumeCall
		if rest, found := strings.CutPrefix(line, csiCalls); found {
			labels, count, ok = parseSeries(rest)
			call = evidence.VolumeCall{Plugin: csiPlugin, Driver: labels["driver_name"], Status: labels["grpc_status_code"], Count: count}
			_, call.Method, _ = strings.Cut(strings.TrimPrefix(labels["method_name"], "/"), "/")
			ok = ok && call.Method == evidence.NodeUnpublish
		} else if rest, found := strings.CutPrefix(line, operations); found {
			labels, count, ok = parseSeries(rest)
			call = evidence.VolumeCall{Method: labels["operation_name"], Status: labels["status"], Count: count}
			call.Plugin, call.Driver, _ = strings.Cut(labels["volume_plugin"], ":")
			ok = ok && call.Method == evidence.VolumeUnmount
		}
		if !ok {
			continue
		}
		if len(out) == maxCalls {
			return nil, fmt.Errorf("more than %d series about volumes", maxCalls)
		}
		out = append(out, call)
	}
	return out, lines.Err()
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
