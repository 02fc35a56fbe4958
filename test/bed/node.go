package bed

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A Need is something that an incident needs of its node.
type Need string

// What incidents need.
const (
	// Hang is a kernel that may hang: what it hangs in ends with the virtual
	// machine, and on any other node would outlive the test.
	Hang Need = "a kernel that may hang"
	// NFS, SMB, DeviceMapper and RAID are what only the virtual machines' kernels and
	// programs are sure to have.
	NFS          Need = "an NFS server and client"
	SMB          Need = "an SMB server and client"
	DeviceMapper Need = "the device mapper"
	RAID         Need = "software RAIDs"
	// Sysctl is a setting of the whole machine.
	Sysctl Need = "settings of the kernel"
	// Clock is a clock of the node's own: that of the machine is never set.
	Clock Need = "a clock of its own"
	// PodNetwork is a network of the pod's own, which costs an emulated node more than the
	// rest of a pod.
	PodNetwork Need = "a network of the pod's own"
	// Systemd is a node whose control groups systemd makes and names.
	Systemd Need = "systemd"
	// CgroupV1 and CgroupV2 are the versions of control groups.
	CgroupV1 Need = "cgroup v1"
	CgroupV2 Need = "cgroup v2"
	// Containerd22 is a version of containerd.
	Containerd22 Need = "containerd 2.2"
)

const (
	// kindLabel is the label by which test/cluster tells what a node is.
	kindLabel = "nodeagent.test/kind"
	// kindVM is a node with a kernel of its own.
	kindVM = "vm"
)

// A Node is a node of the cluster.
type Node struct {
	*Cluster
	Name, Address string
	// Kind is vm or native, Kernel, Containerd and Runc are versions, Cgroup is v1
	// or v2.
	Kind, Kernel, Containerd, Runc, Cgroup string
	// PSI reports whether the kernel counts pressure.
	PSI bool

	pace  *pace
	tools *tools
}

// nodes returns the cluster's nodes, those that cost least first.
func (c *Cluster) nodes(ctx context.Context) ([]*Node, error) {
	list, err := c.API.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	var nodes []*Node
	for _, item := range list.Items {
		info := item.Status.NodeInfo
		n := &Node{
			Cluster: c, Name: item.Name, Kind: item.Labels[kindLabel], Kernel: info.KernelVersion,
			Containerd: strings.TrimPrefix(info.ContainerRuntimeVersion, "containerd://"), tools: &tools{},
		}
		for _, a := range item.Status.Addresses {
			if a.Type == corev1.NodeInternalIP {
				n.Address = a.Address
			}
		}
		// containerd looks for runc in this order, too.
		out, err := n.Exec(ctx, "[ -e /proc/pressure/cpu ] && echo PSI || echo; stat -fc %T /sys/fs/cgroup; PATH=/usr/local/sbin:/usr/sbin:$PATH runc --version")
		if err != nil {
			return nil, err
		}
		n.PSI, n.Cgroup, n.Runc = software(out)
		n.pace = newPace(ctx, n)
		nodes = append(nodes, n)
	}
	slices.SortStableFunc(nodes, func(a, b *Node) int { return strings.Compare(a.Kind, b.Kind) })
	if len(nodes) == 0 {
		return nil, fmt.Errorf("the cluster has no node; bin/cluster up starts one")
	}
	return nodes, nil
}

// software reads whether the kernel counts pressure, the type of the cgroup file system and behind it what runc says
// of its version. Debian appends its own to that, as in 1.1.5+ds1.
func software(out string) (psi bool, cgroup, runc string) {
	pressure, out, _ := strings.Cut(out, "\n")
	fs, version, _ := strings.Cut(out, "\n")
	cgroup = "v1"
	if fs == "cgroup2fs" {
		cgroup = "v2"
	}
	if f := strings.Fields(version); len(f) > 2 && f[0] == "runc" && f[1] == "version" {
		runc, _, _ = strings.Cut(f[2], "+")
	}
	return pressure == "PSI", cgroup, runc
}

// String names the node and what it is.
func (n *Node) String() string { return fmt.Sprintf("%s: %s, %s", n.Name, n.Kind, n.Software()) }

// Software returns what runs on the node, as fixtures name it.
func (n *Node) Software() string {
	cgroup := n.Cgroup
	if !n.PSI {
		cgroup += ", no PSI"
	}
	return fmt.Sprintf("kernel %s, cgroup %s, containerd %s, runc %s", n.Kernel, cgroup, n.Containerd, n.Runc)
}

// Namespace returns where the pods of the incidents on this node live: the same
// incident may run on several nodes at once.
func (n *Node) Namespace() string { return "scenarios-" + n.Name }

// offers reports whether the node has something that an incident may need.
func (n *Node) offers(need Need) bool {
	switch need {
	case CgroupV1:
		return n.Cgroup == "v1"
	case CgroupV2:
		return n.Cgroup == "v2"
	case Containerd22:
		return strings.HasPrefix("containerd "+n.Containerd, string(need)+".")
	}
	return n.Kind == kindVM || !need.ofVM()
}

// ofVM reports whether only virtual machines offer it.
func (n Need) ofVM() bool {
	return n != CgroupV1 && n != CgroupV2 && n != Containerd22 && n != PodNetwork
}

// OnlyVM reports whether no native node offers what the scenario needs.
func (s Scenario) OnlyVM() bool { return slices.ContainsFunc(s.Needs, Need.ofVM) }

// Emulated reports whether the node's processors may be emulated, so that what is
// started there costs much.
func (n *Node) Emulated() bool { return n.Kind == kindVM }

// Lacks returns what a scenario needs and the node does not offer.
func (n *Node) Lacks(s Scenario) []Need {
	var out []Need
	for _, need := range s.Needs {
		if !n.offers(need) {
			out = append(out, need)
		}
	}
	return out
}

// For lists where a scenario runs: on the cheapest node that offers what it needs, or on
// one of each software of these. Nodes that are alike are listed together. One with another
// containerd is for what needs that, where there are others.
func (c *Cluster) For(s Scenario) [][]*Node {
	var kinds []string
	alike := make(map[string][]*Node)
	another := func(n *Node) bool { return n.offers(Containerd22) && !slices.Contains(s.Needs, Containerd22) }
	nodes := slices.DeleteFunc(slices.Clone(c.Nodes), another)
	if len(nodes) == 0 {
		nodes = c.Nodes
	}
	for _, n := range nodes {
		if len(n.Lacks(s)) > 0 {
			continue
		}
		kind := n.Software()
		if alike[kind] == nil {
			kinds = append(kinds, kind)
		}
		alike[kind] = append(alike[kind], n)
	}
	var out [][]*Node
	for _, kind := range kinds {
		nodes := alike[kind]
		if !s.Alone {
			nodes = nodes[:1] // the others are for what wants one to itself
		}
		out = append(out, nodes)
	}
	if !s.Everywhere && len(out) > 1 {
		return out[:1]
	}
	return out
}

// Exec runs a shell script as root on the node and returns its output. It fails after commandLimit.
func (n *Node) Exec(ctx context.Context, script string) (string, error) {
	return n.run(ctx, "", "exec", n.Name, script)
}

// Health returns a line about each of those that a termination depends on, for the
// error of a wait that was in vain.
func (n *Node) Health(ctx context.Context) string {
	out, err := n.Exec(ctx, `
for name in kubelet containerd nodeagent; do
  p=$(pgrep -o -x $name) || { echo "$name does not run"; continue; }
  before=$(awk '{print $14+$15}' /proc/$p/stat); sleep 1
  after=$(awk '{print $14+$15}' /proc/$p/stat 2>/dev/null)
  echo "$name (PID $p) is in state $(awk '/^State/{print $2}' /proc/$p/status) and used $((after-before)) % of a processor"
done
timeout 5 bash -c 'exec 3<>/dev/tcp/127.0.0.1/10248; printf "GET /healthz HTTP/1.0\r\n\r\n" >&3; head -1 <&3' || echo "the kubelet does not answer"
for r in cpu memory io; do echo "pressure $r: $(head -1 /proc/pressure/$r)"; done
echo "load $(cat /proc/loadavg)"`)
	if err != nil {
		return fmt.Sprintf("node %s cannot be asked: %v", n.Name, err)
	}
	return fmt.Sprintf("node %s: %s", n.Name, strings.Join(strings.Split(strings.TrimSpace(out), "\n"), "; "))
}
