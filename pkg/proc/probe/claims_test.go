package probe

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// As a kubelet 1.36 wrote it.
const checkpointData = `{"kind":"DRACheckpoint","apiVersion":"checkpoint.dra.kubelet.k8s.io/v1","ClaimInfoStateList":[` +
	`{"ClaimUID":"u-1","ClaimName":"gpu","Namespace":"shop","PodUIDs":{"pod-b":{},"pod-a":{}},"DriverState":{"gpu.test":{"Devices":[{"PoolName":"p","DeviceName":"d","ShareID":null,"RequestNames":null,"CDIDeviceIDs":["vendor/gpu=secret"]}]}}},` +
	`{"ClaimUID":"u-2","ClaimName":"both","Namespace":"shop","PodUIDs":{"pod-a":{}},"DriverState":{"nic.test":{"Devices":null},"gpu.test":{"Devices":null}}}]}`

func checkpointOf(t *testing.T, data string) string {
	t.Helper()
	b, err := json.Marshal(map[string]any{"Data": data, "Checksum": 7})
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestClaims(t *testing.T) {
	proc, root := kubeletDir(t, map[string]string{checkpoint: checkpointOf(t, checkpointData), "plugins_registry/gpu.test-reg.sock": ""})
	p := newProber(t)
	ask := func() ([]ClaimState, []string, error) { return p.Claims(t.Context(), proc, "/var/lib/kubelet") }
	got, sockets, err := ask()
	if err != nil {
		t.Fatal(err)
	}
	want := []ClaimState{
		{Name: "gpu", Pods: []string{"pod-a", "pod-b"}, Drivers: []string{"gpu.test"}},
		{Name: "both", Pods: []string{"pod-a"}, Drivers: []string{"gpu.test", "nic.test"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"gpu.test-reg.sock"}, sockets); diff != "" {
		t.Error(diff)
	}
	file := filepath.Join(root, "var/lib/kubelet", checkpoint)
	var many strings.Builder
	for i := range maxClaims + 1 {
		fmt.Fprintf(&many, `,{"ClaimName":"c-%d"}`, i)
	}
	pods := make(map[string]struct{})
	for i := range maxClaimants + 1 {
		pods[fmt.Sprint("pod-", i)] = struct{}{}
	}
	crowd, _ := json.Marshal(pods)
	for name, text := range map[string]string{
		"torn":             `{"Data":"{`,
		"torn inside":      checkpointOf(t, `{"kind":"DRACheck`),
		"of another kind":  checkpointOf(t, `{"kind":"Other"}`),
		"of an older form": `{"version":"v1","entries":[]}`,
		"too long":         strings.Repeat(" ", largestCheckpoint+1),
		"too many claims":  checkpointOf(t, `{"kind":"DRACheckpoint","ClaimInfoStateList":[`+many.String()[1:]+`]}`),
		"too many pods":    checkpointOf(t, `{"kind":"DRACheckpoint","ClaimInfoStateList":[{"ClaimName":"c","PodUIDs":`+string(crowd)+`}]}`),
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, _, err := ask(); err == nil {
			t.Errorf("%s: %v", name, got)
		}
	}
	if err := os.WriteFile(file, []byte(checkpointOf(t, `{"kind":"DRACheckpoint","ClaimInfoStateList":null}`)), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, _, err := ask(); err != nil || len(got) > 0 {
		t.Errorf("without claims: %v, %v", got, err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if got, _, err := ask(); err == nil {
		t.Errorf("a checkpoint that is not there has no claims, and that is known: %v", got)
	}
	if err := os.Symlink("/etc/passwd", file); err != nil {
		t.Fatal(err)
	}
	if got, _, err := ask(); err == nil {
		t.Errorf("a link is followed: %v", got)
	}
}

func FuzzParseCheckpoint(f *testing.F) {
	f.Add([]byte(`{"Data":"{\"kind\":\"DRACheckpoint\"}"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if all, err := parseCheckpoint(b); err != nil && all != nil {
			t.Errorf("%v, %v", all, err)
		}
	})
}
