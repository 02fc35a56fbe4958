package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/nodeagent-io/nodeagent/pkg/cri"
	"github.com/nodeagent-io/nodeagent/pkg/kubelet"
	"github.com/nodeagent-io/nodeagent/pkg/node"
	"github.com/nodeagent-io/nodeagent/pkg/proc"
	"github.com/nodeagent-io/nodeagent/pkg/proc/probe"
)

// hostOptions say where the host's things are, as this process sees them.
type hostOptions struct {
	nodeName, nodeIP   string
	proc, cgroup, fuse string
	blocks             string
	kubeletDir         string
	kubeletCert        string
	containerd         string
}

func (o *hostOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.nodeName, "node-name", os.Getenv("NODE_NAME"), "name of this node (environment: NODE_NAME)")
	f.StringVar(&o.nodeIP, "node-ip", os.Getenv("NODE_IP"), "address of this node on which the kubelet listens (environment: NODE_IP)")
	f.StringVar(&o.proc, "proc", "/proc", "path to the host's proc file system")
	f.StringVar(&o.cgroup, "cgroup", "/sys/fs/cgroup", "path to the host's cgroup file system, v1 or v2")
	f.StringVar(&o.fuse, "fuse-connections", "/sys/fs/fuse/connections", "path to the host's FUSE control file system")
	f.StringVar(&o.blocks, "block-devices", "/sys/dev/block", "path to the block devices by number in sysfs, the container's own or the host's")
	f.StringVar(&o.kubeletDir, "kubelet-dir", os.Getenv("KUBELET_DIR"),
		"path on the host to the kubelet's root directory (its --root-dir). Only names and the kubelet's own records are read there. "+
			"If empty, the first of these that exists: "+strings.Join(proc.KubeletDirs, ", ")+" (environment: KUBELET_DIR)")
	f.StringVar(&o.kubeletCert, "kubelet-cert-file", os.Getenv("KUBELET_CERT_FILE"),
		"path on the host to the certificate that the kubelet has signed itself, never a file with a key. "+
			"If empty, pki/kubelet.crt in the kubelet's directory (environment: KUBELET_CERT_FILE)")
	f.StringVar(&o.containerd, "containerd-socket", os.Getenv("CONTAINERD_SOCKET"),
		"path to containerd's socket. If empty, the first of these that exists on the host: "+strings.Join(cri.Sockets, ", ")+" (environment: CONTAINERD_SOCKET)")
}

// sealed is set in the agent's own container, by the manifest. Who may execute something there is root on the
// node by way of /proc/1/root, and nodeagent itself adds no way to that: it takes no kubeconfig, which may name a
// program to run and files to send, and no paths but those of the manifest.
const sealed = "NODEAGENT_SEALED"

// refuseSealed returns an error when a flag is given that is not for the agent's own container.
func refuseSealed(f *pflag.FlagSet) error {
	if os.Getenv(sealed) == "" {
		return nil
	}
	for _, name := range []string{"kubeconfig", "proc", "cgroup", "fuse-connections", "block-devices", "kubelet-dir", "kubelet-cert-file", "containerd-socket"} {
		if f.Changed(name) {
			return fmt.Errorf("--%s is not allowed in the agent's own container, which uses it as root of the node: "+
				"run a copy of the program on the node instead (docs/capture.md)", name)
		}
	}
	return nil
}

func (o *hostOptions) check() error {
	if o.nodeName == "" {
		return errors.New("the name of the node is not set; set NODE_NAME from the downward API (fieldRef: spec.nodeName), or --node-name")
	}
	for _, dir := range []struct{ path, flag string }{{o.proc, "proc"}, {o.cgroup, "cgroup"}} {
		if _, err := os.Stat(dir.path); err != nil {
			return fmt.Errorf("%w; mount the host's there, or give its path with --%s", err, dir.flag)
		}
	}
	if o.kubeletCert != "" && !filepath.IsAbs(o.kubeletCert) {
		return fmt.Errorf("--kubelet-cert-file=%s: give the absolute path on the host", o.kubeletCert)
	}
	return nil
}

// readWithin is how long the reading of one pod, and of what all of them share,
// may take.
const readWithin = 8 * time.Second

// open makes the reader of the evidence, and the client that it asks the kubelet with.
func (o *hostOptions) open() (*node.Reader, *kubelet.Client, error) {
	prober := new(probe.Prober)
	// By its own name, so that ps shows the helper as nodeagent.
	if self, err := os.Executable(); err == nil {
		prober.Argv = []string{self, "probe"}
	}
	runtime, err := cri.Open(o.sockets()...)
	if err != nil {
		return nil, nil, err
	}
	client, err := kubelet.New(o.nodeIP)
	if err != nil {
		return nil, nil, fmt.Errorf("%w; set NODE_IP from the downward API (fieldRef: status.hostIP), or --node-ip", err)
	}
	client.NodeName = o.nodeName // a certificate may carry it instead of the address
	host := &proc.Host{
		Proc: o.proc, Cgroup: o.cgroup, FUSE: o.fuse, Blocks: o.blocks, Places: o.kubeletDirs(), PodUID: os.Getenv("POD_UID"),
		Containerd: runtime.Listener, Prober: prober,
	}
	client.Pin = func(ctx context.Context) ([sha256.Size]byte, error) {
		if o.kubeletCert != "" {
			return prober.Certificate(ctx, o.proc, o.kubeletCert)
		}
		dir, err := host.Locate(ctx)
		if err != nil {
			return [sha256.Size]byte{}, err
		}
		return prober.Certificate(ctx, o.proc, filepath.Join(dir, "pki", "kubelet.crt"))
	}
	return &node.Reader{Name: o.nodeName, Proc: host, Runtime: runtime, Kubelet: client}, client, nil
}

// sockets are where containerd's may be, as this process sees them.
func (o *hostOptions) sockets() []string {
	if o.containerd != "" {
		return []string{o.containerd}
	}
	out := slices.Clone(cri.Sockets)
	for i := range out {
		out[i] = o.proc + cri.HostRoot + out[i]
	}
	return out
}

// kubeletDirs are what the kubelet's directory may be called on the host.
func (o *hostOptions) kubeletDirs() []string {
	if o.kubeletDir != "" {
		return []string{o.kubeletDir}
	}
	return proc.KubeletDirs
}
