package state

import (
	"errors"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/nodeagent-io/nodeagent/test/cluster/internal/cache"
)

func TestOwner(t *testing.T) {
	nodes := []Node{nodeNumber(1), nodeNumber(2)}
	nodes[0].Name, nodes[1].Name = "node1", "node2"
	for address, want := range map[string]string{
		"10.0.2.15":         "node1",
		"10.0.2.16":         "node2",
		"10.244.1.7":        "node1",
		"10.244.2.254":      "node2",
		"::ffff:10.244.2.9": "node2",
		"10.96.0.1":         "node1",
		"10.244.3.1":        "", // a third node's
		"10.0.2.2":          "", // this machine
		"127.0.0.1":         "",
		"fd00::1":           "",
	} {
		got, ok := Owner(nodes, netip.MustParseAddr(address))
		if got.Name != want || ok != (want != "") {
			t.Errorf("Owner(%s) = %q, %t, want %q", address, got.Name, ok, want)
		}
	}
	if _, ok := Owner(nil, netip.MustParseAddr("10.96.0.1")); ok {
		t.Error("a Service has an owner without nodes")
	}
}

func TestNodesAreDifferent(t *testing.T) {
	seen := map[string]bool{}
	for i := 1; i <= MaxNodes; i++ {
		n := nodeNumber(i)
		if _, err := netip.ParseAddr(n.Address); err != nil {
			t.Error(err)
		}
		if _, err := netip.ParsePrefix(n.PodCIDR); err != nil {
			t.Error(err)
		}
		for _, s := range []string{n.Address, n.PodCIDR} {
			if seen[s] {
				t.Errorf("node %d shares %s with another", i, s)
			}
			seen[s] = true
		}
	}
}

func TestFreePorts(t *testing.T) {
	ports, err := FreePorts(20)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	for _, p := range ports {
		if p <= 0 || seen[p] {
			t.Errorf("port %d in %v", p, ports)
		}
		seen[p] = true
	}
}

func TestStateFile(t *testing.T) {
	d := Dir{Path: t.TempDir()}
	if _, err := d.Load(); !errors.Is(err, ErrNone) {
		t.Fatalf("Load without a cluster: %v, want ErrNone", err)
	}
	want := Cluster{
		Checkout: "/somewhere", Ready: true, Accel: "tcg", Ports: Ports{APIServer: 6443},
		Nodes: []Node{{Name: "vm1", Spec: Spec{Kind: VM, Cgroup: "v2", MemoryMB: 2048}}},
	}
	if err := d.Save(want); err != nil {
		t.Fatal(err)
	}
	got, err := d.Load()
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("Load = %+v, want %+v", got, want)
	}
	if _, err := got.Node("vm9"); err == nil || !strings.Contains(err.Error(), "vm1") {
		t.Errorf("Node(vm9): %v, want an error that names the nodes", err)
	}
}

func TestCheckoutsHaveTheirOwnCluster(t *testing.T) {
	c := cache.Cache{Dir: "/cache"}
	if DirOf(c, "/a") == DirOf(c, "/b") {
		t.Error("two checkouts share a folder")
	}
}

func TestTooLongPath(t *testing.T) {
	d := Dir{Path: t.TempDir() + "/" + strings.Repeat("x", 120)}
	if err := d.Make(); err == nil || !strings.Contains(err.Error(), "NODEAGENT_CACHE") {
		t.Errorf("Make below a long path: %v, want an error that says what to set", err)
	}
}
