package kubelet

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// As a kubelet 1.36 told it, with a driver that fails and one that is gone, which stands in for
// another plugin too.
const metrics = `# TYPE csi_operations_seconds histogram
csi_operations_seconds_bucket{driver_name="fails.test",grpc_status_code="Internal",method_name="/csi.v1.Node/NodeUnpublishVolume",migrated="false",le="+Inf"} 6
csi_operations_seconds_sum{driver_name="fails.test",grpc_status_code="Internal",method_name="/csi.v1.Node/NodeUnpublishVolume",migrated="false"} 0.009136676
csi_operations_seconds_count{driver_name="fails.test",grpc_status_code="Internal",method_name="/csi.v1.Node/NodeUnpublishVolume",migrated="false"} 6
csi_operations_seconds_count{driver_name="fails.test",grpc_status_code="OK",method_name="/csi.v1.Node/NodePublishVolume",migrated="false"} 1
storage_operation_duration_seconds_count{migrated="false",operation_name="volume_mount",status="success",volume_plugin="kubernetes.io/host-path"} 6
storage_operation_duration_seconds_count{migrated="false",operation_name="volume_unmount",status="fail-unknown",volume_plugin="kubernetes.io/csi:gone.test"} 6
storage_operation_duration_seconds_count{migrated="false",operation_name="volume_unmount",status="success",volume_plugin="kubernetes.io/host-path"} 3
storage_operation_duration_seconds_count{migrated="true",operation_name="volume_unmount",status="fail-unknown",volume_plugin="kubernetes.io/csi:gone.test"} 5
storage_operation_duration_seconds_count{migrated="false",operation_name="unmap_volume",status="fail-unknown",volume_plugin="kubernetes.io/csi:block.test"} 2
storage_operation_duration_seconds_count{migrated="false",operation_name="unmap_device",status="fail-unknown",volume_plugin="kubernetes.io/csi:block.test"} 2
# TYPE rest_client_requests_total counter
rest_client_requests_total{code="200",host="172.20.0.1:6443",method="DELETE"} 4
rest_client_requests_total{code="200",host="172.20.0.1:6443",method="GET"} 1022
rest_client_requests_total{code="422",host="172.20.0.1:6443",method="DELETE"} 7
rest_client_requests_total{code="422",host="172.20.0.2:6443",method="DELETE"} 2
rest_client_requests_total{code="<error>",host="172.20.0.1:6443",method="PATCH"} 3
dra_operations_duration_seconds_count{is_error="false",operation_name="PrepareResources"} 3
dra_operations_duration_seconds_count{is_error="false",operation_name="UnprepareResources"} 2
dra_operations_duration_seconds_count{is_error="true",operation_name="UnprepareResources"} 6
dra_grpc_operations_duration_seconds_count{driver_name="gpu.test",grpc_status_code="OK",method_name="/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources"} 3
dra_grpc_operations_duration_seconds_count{driver_name="gpu.test",grpc_status_code="Internal",method_name="/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodeUnprepareResources"} 6
kubelet_pleg_last_seen_seconds 1.795429958e+09
`

var wantCalls = []evidence.VolumeCall{
	{Plugin: "kubernetes.io/csi", Driver: "fails.test", Method: evidence.NodeUnpublish, Status: "Internal", Count: 6},
	{Plugin: "kubernetes.io/csi", Driver: "gone.test", Method: evidence.VolumeUnmount, Status: "fail-unknown", Count: 11},
	{Plugin: "kubernetes.io/host-path", Method: evidence.VolumeUnmount, Status: "success", Count: 3},
	{Plugin: "kubernetes.io/csi", Driver: "block.test", Method: evidence.VolumeUnmap, Status: "fail-unknown", Count: 2},
}

var wantCounts = evidence.Counts{Volumes: wantCalls, API: []evidence.APICall{
	{Method: evidence.MethodDelete, Code: "200", Count: 4},
	{Method: evidence.MethodDelete, Code: "422", Count: 9},
	{Method: evidence.MethodPatch, Code: evidence.NoAnswer, Count: 3},
}, Claims: []evidence.ClaimCall{
	{Method: evidence.Unprepare, Status: evidence.ClaimsSucceeded, Count: 2},
	{Method: evidence.Unprepare, Status: evidence.ClaimsFailed, Count: 6},
	{Method: evidence.NodeUnprepare, Driver: "gpu.test", Status: "Internal", Count: 6},
}, Listed: time.Unix(1795429958, 0)}

func TestParseCounts(t *testing.T) {
	got, err := parseCounts(strings.NewReader(metrics))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(wantCounts, got); diff != "" {
		t.Error(diff)
	}
	for _, bad := range []string{
		`csi_operations_seconds_count{driver_name="x`,
		`csi_operations_seconds_count{driver_name="x\`,
		`csi_operations_seconds_count{driver_name="x\"} 5`,
		`csi_operations_seconds_count{method_name="/csi.v1.Node/NodeUnpublishVolume"} NaN`,
		`csi_operations_seconds_count{method_name="/csi.v1.Node/NodeUnpublishVolume"} -1`,
		`csi_operations_seconds_count{method_name="/csi.v1.Node/NodeUnpublishVolume"}`,
		`csi_operations_seconds_count{`,
		`rest_client_requests_total{method="DELETE",code="403"} x`,
		`rest_client_requests_total{method="DELETE`,
		`dra_operations_duration_seconds_count{operation_name="UnprepareResources"} x`,
		`dra_operations_duration_seconds_count{operation_name="UnprepareResources`,
		`dra_grpc_operations_duration_seconds_count{method_name="/v1.DRAPlugin/NodeUnprepareResources"} -1`,
		`kubelet_pleg_last_seen_seconds 0`, `kubelet_pleg_last_seen_seconds NaN`, `kubelet_pleg_last_seen_seconds 1e+30`, `kubelet_pleg_last_seen_seconds x`,
	} {
		if got, err := parseCounts(strings.NewReader(bad)); len(got.Volumes)+len(got.API)+len(got.Claims) > 0 || !got.Listed.IsZero() || err != nil {
			t.Errorf("%s: %v, %v", bad, got, err)
		}
	}
	var many strings.Builder
	for i := range maxAPICalls + 1 {
		fmt.Fprintf(&many, "rest_client_requests_total{code=\"%d\",method=\"PATCH\"} 1\n", i)
	}
	if _, err := parseCounts(strings.NewReader(many.String())); err == nil {
		t.Error("no end of series about the API server")
	}
	many.Reset()
	for i := range maxClaimCalls + 1 {
		fmt.Fprintf(&many, "dra_grpc_operations_duration_seconds_count{driver_name=\"d-%d\",method_name=\"x/NodeUnprepareResources\"} 1\n", i)
	}
	if _, err := parseCounts(strings.NewReader(many.String())); err == nil {
		t.Error("no end of series about resource claims")
	}
}

// Before Kubernetes 1.36 the kubelet counts an attempt at claims that succeeds with is_error="true".
func TestAttemptsOfOlderKubelets(t *testing.T) {
	for build, want := range map[string]uint64{ // how many have failed
		"": 6,
		`kubernetes_build_info{git_version="v1.36.0",go_version="go1.26.1",major="1",minor="36"} 1`:                6,
		`kubernetes_build_info{git_version="v1.37.0",major="1",minor="37"} 1`:                                      6,
		`kubernetes_build_info{git_version="v1.35.2",major="1",minor="35"} 1`:                                      2,
		`kubernetes_build_info{git_version="v1.34.1+k3s1",major="1",minor="34"} 1`:                                 2,
		`kubernetes_build_info{git_version="v1.33.5-gke.1080000",go_version="go1.24 X:b",major="1",minor="33+"} 1`: 2,
		`kubernetes_build_info{git_version="v2.0.0",major="2",minor="0"} 1`:                                        6,
		`kubernetes_build_info{major="1",minor=""} 1`:                                                              6,
		`kubernetes_build_info{major="1",minor="35`:                                                                6,
	} {
		got, err := parseCounts(strings.NewReader(metrics + build + "\n"))
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range got.Claims {
			switch {
			case c.Method == evidence.NodeUnprepare && c.Status != "Internal",
				c.Status == evidence.ClaimsFailed && c.Count != want,
				c.Status == evidence.ClaimsSucceeded && c.Count != 8-want:
				t.Errorf("%s: %+v, want %d failed", build, c, want)
			}
		}
	}
}

func TestCounts(t *testing.T) {
	k, c := start(t, true)
	k.trust(t, c)
	k.set(200, metrics, false)
	ask := func() (evidence.Counts, time.Time, error) {
		t.Helper()
		c.called = time.Time{}
		return c.Counts(context.Background())
	}
	got, read, err := ask()
	if err != nil || read.IsZero() {
		t.Fatalf("read at %v, %v", read, err)
	}
	if diff := cmp.Diff(wantCounts, got); diff != "" {
		t.Error(diff)
	}
	if got, read, err := c.Counts(context.Background()); got.Volumes != nil || !read.IsZero() || err != nil {
		t.Errorf("asked again immediately: %v, %v, %v", got, read, err)
	}
	k.set(403, "Forbidden", false)
	if _, _, err := ask(); err == nil || !strings.Contains(err.Error(), "nodes/metrics") {
		t.Errorf("without the permission: %v", err)
	}
	// What is cut may lack the calls that it is about. Its lines are as long as real ones: to read millions
	// of short ones takes longer than an answer may.
	k.set(200, metrics+strings.Repeat("#"+strings.Repeat("x", 126)+"\n", maxMetrics/128), false)
	if got, _, err := ask(); got.Volumes != nil || err == nil || !strings.Contains(err.Error(), "bytes") {
		t.Errorf("cut: %v, %v", got, err)
	}
	// One that cannot be verified gets no token, and is not believed.
	k.set(200, metrics, false)
	c.CAFile += "-none"
	k.heard = nil
	if got, _, err := ask(); got.Volumes != nil || err == nil || !strings.Contains(err.Error(), "not sent the token") {
		t.Errorf("unverified: %v, %v", got, err)
	}
	if strings.Join(k.heard, "") != "" {
		t.Errorf("an unverified kubelet was sent %q", k.heard)
	}
	c.URL = "http://127.0.0.1:10248/healthz"
	if _, _, err := ask(); err == nil || !strings.Contains(err.Error(), "NODE_IP") {
		t.Errorf("without TLS: %v", err)
	}
}

// A kubelet that takes longer than a call is asked once, and its answer is told by a later call.
func TestCountsLate(t *testing.T) {
	k, c := start(t, true)
	k.trust(t, c)
	k.set(200, metrics, false)
	k.holds = make(chan struct{})
	before := time.Now()
	c.limit = short
	for range 3 {
		if got, read, err := c.Counts(t.Context()); got.Volumes != nil || !read.IsZero() || err == nil || !strings.Contains(err.Error(), "not told its metrics yet") {
			t.Errorf("%v, %v, %v", got, read, err)
		}
	}
	asked := time.Now()
	close(k.holds)
	c.limit = long
	got, read, err := c.Counts(t.Context())
	if diff := cmp.Diff(wantCounts, got); diff != "" || err != nil || read.Before(before) || read.After(asked) {
		t.Errorf("read at %v, between %v and %v; %v %s", read, before, asked, err, diff)
	}
	if len(k.heard) != 1 {
		t.Errorf("asked %d times", len(k.heard))
	}
	// What nobody wanted to know is not told much later.
	old := &question{asked: time.Now().Add(-time.Minute), done: make(chan struct{}), counts: evidence.Counts{Listed: before}}
	close(old.done)
	c.asks, c.called = old, old.asked
	if got, read, err := c.Counts(t.Context()); err != nil || !got.Listed.Equal(wantCounts.Listed) || read.Before(asked) {
		t.Errorf("%+v, %v, %v", got.Listed, read, err)
	}
}

func FuzzParseCounts(f *testing.F) {
	f.Add(metrics)
	f.Fuzz(func(t *testing.T, text string) {
		counts, _ := parseCounts(strings.NewReader(text))
		for _, c := range counts.Volumes {
			if c.Method != evidence.NodeUnpublish && c.Method != evidence.VolumeUnmount && c.Method != evidence.VolumeUnmap {
				t.Errorf("%+v", c)
			}
		}
		for _, c := range counts.API {
			if c.Method != evidence.MethodDelete && c.Method != evidence.MethodPatch {
				t.Errorf("%+v", c)
			}
		}
		for _, c := range counts.Claims {
			if c.Method != evidence.Unprepare && c.Method != evidence.NodeUnprepare {
				t.Errorf("%+v", c)
			}
		}
	})
}
