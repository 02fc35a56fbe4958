package state

import (
	"fmt"
	"net/netip"
)

// Every node sits in a network of its own that a program makes up, so all of them see
// the same network and gateway. They get different addresses all the same, because
// Kubernetes tells nodes apart by them.
const (
	// HostAddress is this machine's loopback as a node sees it.
	HostAddress = "10.0.2.2"
	// ServiceNetwork holds the addresses of Services; kube-proxy on each node knows them.
	ServiceNetwork = "10.96.0.0/16"
	// APIServiceAddress is the Service `kubernetes`.
	APIServiceAddress = "10.96.0.1"
	// PodNetwork holds the pods of all nodes.
	PodNetwork = "10.244.0.0/16"
	// MaxNodes is what one byte of an address leaves room for; memory ends earlier.
	MaxNodes = 200
)

// Node is one node of the cluster.
type Node struct {
	Name    string `json:"name"`
	Spec    Spec   `json:"spec"`
	Address string `json:"address"` // its InternalIP
	PodCIDR string `json:"podCIDR"`
	SSHPort int    `json:"sshPort"` // on this machine's loopback
}

// nodeNumber returns node i, counted from 1, without name, kind and port.
func nodeNumber(i int) Node {
	return Node{
		Address: fmt.Sprintf("10.0.2.%d", 14+i),
		PodCIDR: fmt.Sprintf("10.244.%d.0/24", i),
	}
}

// Owner returns the node that an address has to be dialled from: a node owns its
// own address and its pods'. Services are known on every node; the first one stands in.
// An address of nobody has no owner.
func Owner(nodes []Node, addr netip.Addr) (Node, bool) {
	addr = addr.Unmap()
	for _, n := range nodes {
		if own, err := netip.ParseAddr(n.Address); err == nil && own == addr {
			return n, true
		}
		if pods, err := netip.ParsePrefix(n.PodCIDR); err == nil && pods.Contains(addr) {
			return n, true
		}
	}
	if services := netip.MustParsePrefix(ServiceNetwork); services.Contains(addr) && len(nodes) > 0 {
		return nodes[0], true
	}
	return Node{}, false
}
