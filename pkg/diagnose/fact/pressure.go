package fact

import (
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// For how long containerd or a shim that is neither stopped nor blocked must
// have been silent before it is said to hang. A shim was seen to be silent for
// ten seconds on a busy node, while runc deleted a container, and to be well; on
// a node without a processor to spare containerd was, for more than a minute,
// with all of its shims.
const (
	runtimePatience        = time.Minute
	runtimePatienceStarved = 5 * time.Minute
)

// starved is the share of the last minute, in percent, from which on a node has
// too little of something: what does not answer there may only wait for its turn.
const starved = 40

// PatienceWithRuntime returns how long a silence of the container runtime must
// have lasted on this node to be a hang. Where the kernel does not tell the
// pressure, the node is taken for one that has none.
func PatienceWithRuntime(n *evidence.Node) time.Duration {
	if p := n.Pressure; p != nil && max(p.CPU, p.Memory, p.IO) >= starved {
		return runtimePatienceStarved
	}
	return runtimePatience
}
