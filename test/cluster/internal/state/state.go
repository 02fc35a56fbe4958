// Package state is what a command knows about the cluster that another command
// started: one folder per checkout, with one file that describes it.
package state

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/nodeagent-io/nodeagent/test/cluster/internal/cache"
	"github.com/nodeagent-io/nodeagent/test/cluster/internal/process"
)

// Cluster is the state file.
type Cluster struct {
	Checkout string `json:"checkout"`
	// Ready is set when `up` has done all its work; a cluster without it was interrupted.
	Ready    bool   `json:"ready"`
	Ports    Ports  `json:"ports"`
	Nodes    []Node `json:"nodes"`
	BinDir   string `json:"binDir"`   // kube-apiserver, kubectl, etcd and their like
	Accel    string `json:"accel"`    // how qemu runs the nodes: kvm or tcg
	ImageDir string `json:"imageDir"` // folder of the nodes' disk image in the cache
	// Containerds are the folders of what the disk image lacks, containerd and its shim, by Spec.Containerd.
	Containerds map[string]string `json:"containerds,omitempty"`
}

// Dir is the folder of one checkout's cluster.
type Dir struct{ Path string }

// DirOf returns the folder of a checkout: two checkouts have two clusters.
func DirOf(c cache.Cache, checkout string) Dir {
	sum := sha256.Sum256([]byte(checkout))
	return Dir{Path: filepath.Join(c.Dir, "clusters", hex.EncodeToString(sum[:4]))}
}

// File is a file or folder of the state.
func (d Dir) File(name string) string { return filepath.Join(d.Path, name) }

// Logs is the folder of what the parts of the cluster print.
func (d Dir) Logs() string { return d.File("logs") }

// Kubeconfig is the administrator's.
func (d Dir) Kubeconfig() string { return d.File("kubeconfig") }

// Audit is the API server's audit log.
func (d Dir) Audit() string { return filepath.Join(d.Logs(), "audit.log") }

// PKI is a certificate or a key.
func (d Dir) PKI(name string) string { return filepath.Join(d.Path, "pki", name) }

// TunnelSocket is where kube-apiserver reaches the nodes through.
func (d Dir) TunnelSocket() string { return d.File("tunnel.sock") }

// ShellSocket is where shells on the nodes are opened without a login of their own.
func (d Dir) ShellSocket() string { return d.File("shell.sock") }

// NetworkSocket is where the network of a native node takes orders.
func (d Dir) NetworkSocket(node string) string { return d.File(node + ".sock") }

// MonitorSocket is where the emulator or hypervisor of a virtual machine takes commands.
func (d Dir) MonitorSocket(node string) string { return d.File(node + ".qemu") }

// Processes are the programs of this cluster.
func (d Dir) Processes() process.Dir {
	return process.Dir{Pids: d.File("run"), Logs: d.Logs()}
}

// Make creates the folder and its parts.
func (d Dir) Make() error {
	for _, sub := range []string{"run", "logs", "pki", "nodes"} {
		if err := os.MkdirAll(d.File(sub), 0o700); err != nil {
			return fmt.Errorf("make state folder: %w", err)
		}
	}
	// A unix socket's path has 107 bytes.
	if longest := d.NetworkSocket(Native + "100"); len(longest) > 107 {
		return fmt.Errorf("the path %s has %d letters and a socket's may have 107; set NODEAGENT_CACHE to a shorter path", longest, len(longest))
	}
	return nil
}

// ErrNone says that the checkout has no cluster.
var ErrNone = errors.New("no cluster runs for this checkout; start one with `up`")

// Load reads the state file.
func (d Dir) Load() (Cluster, error) {
	var c Cluster
	data, err := os.ReadFile(d.File("state.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return c, ErrNone
	}
	if err != nil {
		return c, fmt.Errorf("read state: %w", err)
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return c, fmt.Errorf("state file %s is broken (%w); run `down`, then `up`", d.File("state.json"), err)
	}
	return c, nil
}

// Save writes the state file in one step, so a reader never sees half of it.
func (d Dir) Save(c Cluster) error {
	data, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	temp := d.File("state.json.new")
	if err := os.WriteFile(temp, data, 0o600); err != nil {
		return fmt.Errorf("write state: %w", err)
	}
	return os.Rename(temp, d.File("state.json"))
}

// Node returns the node of that name.
func (c Cluster) Node(name string) (Node, error) {
	for _, n := range c.Nodes {
		if n.Name == name {
			return n, nil
		}
	}
	var names []string
	for _, n := range c.Nodes {
		names = append(names, n.Name)
	}
	return Node{}, fmt.Errorf("no node %q; this cluster has %v", name, names)
}
