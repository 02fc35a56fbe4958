package controlplane

import (
	"fmt"
	"os"

	"github.com/nodeagent-io/nodeagent/test/cluster/internal/state"
)

func apiserverArgs(d state.Dir, p state.Ports) []string {
	return []string{
		"--bind-address=127.0.0.1",
		"--secure-port=" + port(p.APIServer),
		// Pods find the apiserver through the Service `kubernetes`, whose endpoint this is.
		"--advertise-address=" + state.HostAddress,
		"--service-cluster-ip-range=" + state.ServiceNetwork,
		"--etcd-servers=https://127.0.0.1:" + port(p.Etcd),
		"--etcd-cafile=" + d.PKI("ca.crt"),
		"--etcd-certfile=" + d.PKI("apiserver-client.crt"),
		"--etcd-keyfile=" + d.PKI("apiserver-client.key"),
		"--tls-cert-file=" + d.PKI("apiserver.crt"),
		"--tls-private-key-file=" + d.PKI("apiserver.key"),
		"--client-ca-file=" + d.PKI("ca.crt"),
		// As kubeadm leaves it: kubelets sign their certificates themselves, so it does not verify them.
		"--kubelet-client-certificate=" + d.PKI("apiserver-client.crt"),
		"--kubelet-client-key=" + d.PKI("apiserver-client.key"),
		"--kubelet-preferred-address-types=InternalIP",
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + d.PKI("service-accounts.key"),
		"--service-account-signing-key-file=" + d.PKI("service-accounts.key"),
		"--requestheader-client-ca-file=" + d.PKI("ca.crt"),
		"--requestheader-allowed-names=front-proxy",
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + d.PKI("front-proxy.crt"),
		"--proxy-client-key-file=" + d.PKI("front-proxy.key"),
		// Services are reached at a pod's address, which the tunnel knows the way to.
		"--enable-aggregator-routing",
		"--egress-selector-config-file=" + d.File("egress.yaml"),
		"--allow-privileged",
		"--audit-policy-file=" + d.File("audit-policy.yaml"),
		"--audit-log-path=" + d.Audit(),
		// One file: rotation would take the beginning of a test away.
		"--audit-log-maxsize=10000",
		"--profiling=false",
	}
}

// auditPolicy records who did what, and the whole text of what is written to pods
// and as Events.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: RequestResponse
  verbs: [create, update, patch, delete, deletecollection]
  resources:
  - group: ""
    resources: [pods, pods/status, pods/ephemeralcontainers, pods/eviction, pods/binding, pods/resize, events]
  - group: events.k8s.io
    resources: [events]
- level: Metadata
`

// WriteConfig writes the files that the flags above name.
func WriteConfig(d state.Dir) error {
	egress := fmt.Sprintf(`apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
- name: cluster
  connection:
    proxyProtocol: HTTPConnect
    transport:
      uds: {udsName: %s}
`, d.TunnelSocket())
	for name, text := range map[string]string{"egress.yaml": egress, "audit-policy.yaml": auditPolicy} {
		if err := os.WriteFile(d.File(name), []byte(text), 0o600); err != nil {
			return fmt.Errorf("write configuration of kube-apiserver: %w", err)
		}
	}
	return nil
}
