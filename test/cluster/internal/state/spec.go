package state

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// The kinds of nodes.
const (
	// VM is a virtual machine with a kernel of its own: whatever hangs in it is
	// gone with it.
	VM = "vm"
	// Native is a node in namespaces of this machine, on this machine's kernel.
	Native = "native"
)

// The kernels and the versions of runc that a node's disk holds, and those of containerd, the default first. The disk
// holds that one alone; a node that is to have another one gets it beside its configuration.
var (
	Kernels     = []string{"6.1", "6.12"}
	Containerds = []string{"2.4", "2.2"}
	Runcs       = []string{"1.1", "1.4"}
)

// A Spec says what kind of node is wanted.
type Spec struct {
	Kind       string `json:"kind"`
	Containerd string `json:"containerd"`
	Runc       string `json:"runc"`
	Cgroup     string `json:"cgroup,omitempty"`   // v1 or v2; a native node has this machine's
	Kernel     string `json:"kernel,omitempty"`   // of a virtual machine
	MemoryMB   int    `json:"memoryMB,omitempty"` // of a virtual machine
	// NoPSI reports whether the kernel of a virtual machine does not count pressure (psi=0), as on RHEL 8 and 9.
	NoPSI bool `json:"noPSI,omitempty"`
}

// ParseSpec reads KIND[,KEY=VALUE...], such as vm,kernel=6.12,runc=1.4.
func ParseSpec(text string) (Spec, error) {
	kind, rest, _ := strings.Cut(text, ",")
	s := Spec{Kind: kind, Containerd: Containerds[0], Runc: Runcs[0]}
	switch kind {
	case VM:
		s.Cgroup, s.Kernel, s.MemoryMB = "v2", Kernels[0], 3072
	case Native:
		s.Runc = Runcs[len(Runcs)-1]
	default:
		return Spec{}, fmt.Errorf("--node %s: give %s or %s, and options behind a comma", text, VM, Native)
	}
	for option := range strings.SplitSeq(rest, ",") {
		if option == "" {
			continue
		}
		if err := s.set(option); err != nil {
			return Spec{}, fmt.Errorf("--node %s: %w", text, err)
		}
	}
	if s.Kernel == "6.12" && s.Cgroup == "v1" {
		// kubelet ends at once: "Cgroup subsystem not mounted: [cpuset memory]".
		return Spec{}, fmt.Errorf("--node %s: Debian's kernel 6.12 has no memory and cpuset of cgroup v1; take kernel=6.1", text)
	}
	return s, nil
}

func (s *Spec) set(option string) error {
	key, value, _ := strings.Cut(option, "=")
	one := func(of []string) error {
		if !slices.Contains(of, value) {
			return fmt.Errorf("%s: give %s", option, strings.Join(of, " or "))
		}
		return nil
	}
	if s.Kind == Native && key != "containerd" && key != "runc" {
		return fmt.Errorf("%s: a native node has this machine's; its options are containerd and runc", option)
	}
	switch key {
	case "containerd":
		s.Containerd = value
		return one(Containerds)
	case "runc":
		s.Runc = value
		return one(Runcs)
	case "cgroup":
		s.Cgroup = value
		return one([]string{"v1", "v2"})
	case "kernel":
		s.Kernel = value
		return one(Kernels)
	case "psi":
		s.NoPSI = value == "0"
		return one([]string{"0", "1"})
	case "memory":
		mb, err := strconv.Atoi(value)
		if err != nil || mb < 1024 {
			return fmt.Errorf("%s: give megabytes, at least 1024", option)
		}
		s.MemoryMB = mb
		return nil
	}
	return fmt.Errorf("%s: the options are containerd, runc, cgroup, kernel, memory and psi", option)
}

// String is what ParseSpec reads.
func (s Spec) String() string {
	if s.Kind == Native {
		return fmt.Sprintf("%s,containerd=%s,runc=%s", s.Kind, s.Containerd, s.Runc)
	}
	text := fmt.Sprintf("%s,kernel=%s,cgroup=%s,containerd=%s,runc=%s,memory=%d", s.Kind, s.Kernel, s.Cgroup, s.Containerd, s.Runc, s.MemoryMB)
	if s.NoPSI {
		text += ",psi=0"
	}
	return text
}

// Missing are those of the wanted nodes that the cluster does not have.
func (c Cluster) Missing(wanted []Spec) []Spec {
	var have []Spec
	for _, n := range c.Nodes {
		have = append(have, n.Spec)
	}
	var missing []Spec
	for _, s := range wanted {
		if i := slices.Index(have, s); i >= 0 {
			have = slices.Delete(have, i, i+1)
			continue
		}
		missing = append(missing, s)
	}
	return missing
}

// Add gives the cluster one more node: the first number that is free, and a name
// of its kind.
func (c *Cluster) Add(s Spec, sshPort int) (Node, error) {
	taken := map[string]bool{}
	for _, n := range c.Nodes {
		taken[n.Name], taken[n.Address] = true, true
	}
	for i := 1; i <= MaxNodes; i++ {
		n := nodeNumber(i)
		if taken[n.Address] {
			continue
		}
		for k := 1; n.Name == "" || taken[n.Name]; k++ {
			n.Name = fmt.Sprintf("%s%d", s.Kind, k)
		}
		n.Spec, n.SSHPort = s, sshPort
		c.Nodes = append(c.Nodes, n)
		return n, nil
	}
	return Node{}, fmt.Errorf("a cluster has at most %d nodes", MaxNodes)
}
