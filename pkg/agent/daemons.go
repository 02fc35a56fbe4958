package agent

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// networkDaemons are the beginnings of the names of the pods that network plugins talk to
// on a node: those of the DaemonSets that each network's own manifests have.
var networkDaemons = []string{
	"antrea-agent-", "aws-node-", "azure-cns-", "calico-node-", "canal-", "cilium-", "kube-flannel-ds-", "kube-multus-ds-", "kube-ovn-cni-",
	"kube-router-", "multus-", "ovnkube-node-", "spiderpool-agent-", "terway-", "weave-net-",
}

// Daemons returns the node's pods that network plugins talk to, sorted by name. Only a
// pod in the node's network can be one, which tenants may not make where anybody looks
// after that.
func Daemons(pods []*corev1.Pod) []evidence.Daemon {
	var out []evidence.Daemon
	for _, p := range pods {
		if !p.Spec.HostNetwork || !slices.ContainsFunc(networkDaemons, func(begin string) bool { return strings.HasPrefix(p.Name, begin) }) {
			continue
		}
		out = append(out, evidence.Daemon{Pod: p.Namespace + "/" + p.Name, Terminating: p.DeletionTimestamp != nil, Ready: ready(p)})
	}
	slices.SortFunc(out, func(a, b evidence.Daemon) int { return strings.Compare(a.Pod, b.Pod) })
	return out
}

func ready(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}
