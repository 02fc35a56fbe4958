package network

import (
	"strings"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// daemonOf maps the types of CNI plugins that call a daemon to how the name of its pod on
// the node begins, by each network's own manifests.
var daemonOf = map[string]string{
	"antrea": "antrea-agent-", "aws-cni": "aws-node-", "azure-vnet": "azure-cns-", "calico": "calico-node-", "calico-ipam": "calico-node-",
	"cilium-cni": "cilium-", "flannel": "kube-flannel-ds-", "kube-ovn": "kube-ovn-cni-", "multus": "kube-multus-ds-", "multus-shim": "kube-multus-ds-",
	"ovn-k8s-cni-overlay": "ovnkube-node-", "spiderpool": "spiderpool-agent-", "terway": "terway-eniip-", "weave-net": "weave-net-",
}

// daemon returns the pod of a plugin's daemon on this node, if there is one such pod and
// it terminates or is not ready; nil if it is ready, or not known. A network has other
// pods whose names begin alike, such as cilium-operator and cilium-envoy: after the name
// of its DaemonSet, a pod has just five letters or digits.
func daemon(p *fact.View, f *fact.SandboxFailure) *evidence.Daemon {
	begin, ok := daemonOf[f.Plugin]
	var found *evidence.Daemon
	for i := range p.Daemons {
		d := &p.Daemons[i]
		_, name, _ := strings.Cut(d.Pod, "/")
		if rest, has := strings.CutPrefix(name, begin); !ok || !has || len(rest) != suffix || strings.Contains(rest, "-") {
			continue
		}
		if found != nil || d.Ready && !d.Terminating {
			return nil
		}
		found = d
	}
	return found
}

// suffix is the number of characters that the API server adds to a name (k8s.io/apiserver/pkg/storage/names).
const suffix = 5
