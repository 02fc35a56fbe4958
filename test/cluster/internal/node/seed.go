// Package node runs the nodes, in virtual machines or natively, and opens shells in them.
package node

import (
	"archive/tar"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"

	"golang.org/x/crypto/ssh"

	"github.com/nodeagent-io/nodeagent/test/cluster/internal/pki"
	"github.com/nodeagent-io/nodeagent/test/cluster/internal/state"
)

// seedFile is the node's second disk.
func seedFile(d state.Dir, n state.Node) string {
	return filepath.Join(d.File("nodes"), n.Name+".seed")
}

// writeSeed writes the node's second disk: a tar archive with all that is this
// node's own, which is containerd where it is not the disk's. The node unpacks it before
// anything else starts.
func writeSeed(d state.Dir, c state.Cluster, n state.Node, a *pki.Authority) error {
	server := fmt.Sprintf("https://%s:%d", state.HostAddress, c.Ports.APIServer)
	kubelet, err := a.Issue(pki.Identity{User: "system:node:" + n.Name, Groups: []string{"system:nodes"}})
	if err != nil {
		return err
	}
	proxy, err := a.Issue(pki.Identity{User: "system:kube-proxy"})
	if err != nil {
		return err
	}
	keys, err := readKeys(d)
	if err != nil {
		return err
	}
	files := map[string][]byte{
		"etc/hostname":                         []byte(n.Name + "\n"),
		"etc/hosts":                            fmt.Appendf(nil, "127.0.0.1 localhost\n%s %s\n", n.Address, n.Name),
		"etc/kubernetes/node.env":              nodeEnv(n),
		"etc/kubernetes/ca.crt":                a.CertPEM,
		"etc/kubernetes/kubelet.kubeconfig":    a.Kubeconfig(server, kubelet),
		"etc/kubernetes/kube-proxy.kubeconfig": a.Kubeconfig(server, proxy),
		"etc/cni/net.d/10-bridge.conflist":     []byte(cniConfig(n)),
		"etc/ssh/ssh_host_ed25519_key":         keys.hostPEM,
		"root/.ssh/authorized_keys":            ssh.MarshalAuthorizedKey(keys.client.PublicKey()),
	}
	if err := writeArchive(seedFile(d, n), files, c.Containerds[n.Spec.Containerd]); err != nil {
		return fmt.Errorf("write configuration of %s: %w", n.Name, err)
	}
	return nil
}

// writeArchive writes a tar archive of files, and of the programs in a folder, "" for none, which go to /usr/local/bin.
func writeArchive(to string, files map[string][]byte, programs string) error {
	archive, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer archive.Close()
	w := tar.NewWriter(archive)
	var names []string
	for name := range files {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(files[name]))}); err != nil {
			return err
		}
		if _, err := w.Write(files[name]); err != nil {
			return err
		}
	}
	if programs != "" {
		if err := addPrograms(w, programs); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	size, err := archive.Seek(0, io.SeekCurrent)
	if err != nil {
		return err
	}
	// A disk has whole sectors.
	if err := archive.Truncate((size + 4095) / 4096 * 4096); err != nil {
		return err
	}
	return archive.Close()
}

func addPrograms(w *tar.Writer, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			continue // of the compiler
		}
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		if err := w.WriteHeader(&tar.Header{Name: "usr/local/bin/" + e.Name(), Mode: 0o755, Size: int64(len(data))}); err != nil {
			return err
		}
		if _, err := w.Write(data); err != nil {
			return err
		}
	}
	return nil
}

// nodeEnv is what the units of a node read. Its labels tell what it is: kind,
// versions of containerd and runc.
func nodeEnv(n state.Node) []byte {
	return fmt.Appendf(nil, "NODE_NAME=%s\nNODE_ADDRESS=%s\nHOST_ADDRESS=%s\nRUNC=%s\n"+
		"NODE_LABELS=nodeagent.test/kind=%s,nodeagent.test/containerd=%s,nodeagent.test/runc=%s\n",
		n.Name, n.Address, state.HostAddress, n.Spec.Runc, n.Spec.Kind, n.Spec.Containerd, n.Spec.Runc)
}

func cniConfig(n state.Node) string {
	return fmt.Sprintf(`{
  "cniVersion": "1.0.0",
  "name": "bridge",
  "plugins": [
    {
      "type": "bridge",
      "bridge": "cni0",
      "isGateway": true,
      "ipMasq": true,
      "hairpinMode": true,
      "ipam": {
        "type": "host-local",
        "ranges": [[{"subnet": %q}]],
        "routes": [{"dst": "0.0.0.0/0"}]
      }
    },
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}
`, n.PodCIDR)
}
