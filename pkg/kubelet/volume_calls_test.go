package kubelet

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// As a kubelet 1.36 told it, with a driver that fails and one that is gone.
const metrics = `# TYPE csi_operations_seconds histogram
csi_operations_seconds_bucket{driver_name="fails.test",grpc_status_code="Internal",method_name="/csi.v1.Node/NodeUnpublishVolume",migrated="false",le="+Inf"} 6
csi_operations_seconds_sum{driver_name="fails.test",grpc_status_code="Internal",method_name="/csi.v1.Node/NodeUnpublishVolume",migrated="false"} 0.009136676
csi_operations_seconds_count{driver_name="fails.test",grpc_status_code="Internal",method_name="/csi.v1.Node/NodeUnpublishVolume",migrated="false"} 6
csi_operations_seconds_count{driver_name="fails.test",grpc_status_code="OK",method_name="/csi.v1.Node/NodePublishVolume",migrated="false"} 1
storage_operation_duration_seconds_count{migrated="false",operation_name="volume_mount",status="success",volume_plugin="kubernetes.io/host-path"} 6
storage_operation_duration_seconds_count{migrated="false",operation_name="volume_unmount",status="fail-unknown",volume_plugin="kubernetes.io/csi:gone.test"} 6
storage_operation_duration_seconds_count{migrated="false",operation_name="volume_unmount",status="success",volume_plugin="kubernetes.io/host-path"} 3
`

var wantCalls = []evidence.VolumeCall{
	{Plugin: "kubernetes.io/csi", Driver: "fails.test", Method: evidence.NodeUnpublish, Status: "Internal", Count: 6},
	{Plugin: "kubernetes.io/csi", Driver: "gone.test", Method: evidence.VolumeUnmount, Status: "fail-unknown", Count: 6},
	{Plugin: "kubernetes.io/host-path", Method: evidence.VolumeUnmount, Status: "success", Count: 3},
}

func TestParseVolumeCalls(t *testing.T) {
	got, err := parseVolumeCalls(strings.NewReader(metrics))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(wantCalls, got); diff != "" {
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
	} {
		if got, err := parseVolumeCalls(strings.NewReader(bad)); len(got) > 0 || err != nil {
			t.Errorf("%s: %v, %v", bad, got, err)
		}
	}
}

func TestVolumeCalls(t *testing.T) {
	k, c := start(t, true)
	k.trust(t, c)
	k.set(200, metrics, false)
	ask := func() ([]evidence.VolumeCall, time.Time, error) {
		t.Helper()
		c.called.Store(0)
		return c.VolumeCalls(context.Background())
	}
	got, read, err := ask()
	if err != nil || read.IsZero() {
		t.Fatalf("read at %v, %v", read, err)
	}
	if diff := cmp.Diff(wantCalls, got); diff != "" {
		t.Error(diff)
	}
	if got, read, err := c.VolumeCalls(context.Background()); got != nil || !read.IsZero() || err != nil {
		t.Errorf("asked again immediately: %v, %v, %v", got, read, err)
	}
	k.set(403, "Forbidden", false)
	if _, _, err := ask(); err == nil || !strings.Contains(err.Error(), "nodes/metrics") {
		t.Errorf("without the permission: %v", err)
	}
	// What is cut may lack the calls that it is about.
	k.set(200, metrics+strings.Repeat("#\n", maxMetrics/2), false)
	if got, _, err := ask(); got != nil || err == nil || !strings.Contains(err.Error(), "bytes") {
		t.Errorf("cut: %v, %v", got, err)
	}
	// One that cannot be verified gets no token, and is not believed.
	k.set(200, metrics, false)
	c.CAFile += "-none"
	k.heard = nil
	if got, _, err := ask(); got != nil || err == nil || !strings.Contains(err.Error(), "not sent the token") {
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

func FuzzParseVolumeCalls(f *testing.F) {
	f.Add(metrics)
	f.Fuzz(func(t *testing.T, text string) {
		calls, _ := parseVolumeCalls(strings.NewReader(text))
		for _, c := range calls {
			if c.Method != evidence.NodeUnpublish && c.Method != evidence.VolumeUnmount {
				t.Errorf("%+v", c)
			}
		}
	})
}
