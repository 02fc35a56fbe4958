package cluster

import (
	"fmt"
	"io"

	"github.com/nodeagent-io/nodeagent/test/cluster/internal/controlplane"
	"github.com/nodeagent-io/nodeagent/test/cluster/internal/node"
)

// Status tells what runs, since when `up` was done, and where to read more.
func (h Handle) Status(w io.Writer) error {
	c, err := h.Dir.Load()
	if err != nil {
		return err
	}
	nodes := describe(c.Nodes)
	if c.Accel != "" {
		nodes += ", virtual machines with " + c.Accel
	}
	fmt.Fprintf(w, "checkout    %s\nnodes       %s\nready       %t\nstate       %s\nkubeconfig  %s\naudit log   %s\n",
		c.Checkout, nodes, c.Ready, h.Dir.Path, h.Dir.Kubeconfig(), h.Dir.Audit())
	row := func(name, log string) {
		p, err := h.Dir.Processes().Find(name)
		state := fmt.Sprintf("process %d", p.PID)
		switch {
		case err != nil:
			state = err.Error()
		case p.PID == 0:
			state = "stopped"
		case !p.Alive():
			state = "ENDED"
		}
		fmt.Fprintf(w, "%-24s %-16s %s\n", name, state, log)
	}
	for _, part := range controlplane.Components(h.Dir, c) {
		row(part.Name, h.Dir.Processes().Log(part.Name))
	}
	row(tunnelName, h.Dir.Processes().Log(tunnelName))
	for _, n := range c.Nodes {
		row(n.Name, node.Console(h.Dir, n))
	}
	fmt.Fprintln(w, "On a node: `exec NODE journalctl -u kubelet`, -u containerd, -u kube-proxy; on a native one /var/log")
	return nil
}
