package controlplane

import (
	"fmt"
	"os"

	"github.com/nodeagent-io/nodeagent/test/cluster/internal/pki"
	"github.com/nodeagent-io/nodeagent/test/cluster/internal/state"
)

// WriteIdentities makes all certificates of the control plane and the kubeconfig of
// the administrator.
func WriteIdentities(d state.Dir, a *pki.Authority, p state.Ports) error {
	local := []string{"localhost", "127.0.0.1"}
	identities := []struct {
		file       string
		identity   pki.Identity
		kubeconfig string
	}{
		{"admin", pki.Identity{User: "admin", Groups: []string{"system:masters"}}, d.Kubeconfig()},
		{"etcd", pki.Identity{User: "etcd", Hosts: local}, ""},
		{"apiserver", pki.Identity{User: "kube-apiserver", Hosts: append([]string{
			state.HostAddress, state.APIServiceAddress, "kubernetes", "kubernetes.default",
			"kubernetes.default.svc", "kubernetes.default.svc.cluster.local"}, local...)}, ""},
		{"apiserver-client", pki.Identity{User: "kube-apiserver-kubelet-client", Groups: []string{"system:masters"}}, ""},
		{"front-proxy", pki.Identity{User: "front-proxy"}, ""},
		{"controller-manager", pki.Identity{User: "system:kube-controller-manager", Hosts: local}, d.PKI("controller-manager.kubeconfig")},
		{"scheduler", pki.Identity{User: "system:kube-scheduler", Hosts: local}, d.PKI("scheduler.kubeconfig")},
	}
	files := map[string][]byte{d.PKI("ca.crt"): a.CertPEM, d.PKI("ca.key"): a.KeyPEM}
	for _, id := range identities {
		pair, err := a.Issue(id.identity)
		if err != nil {
			return err
		}
		files[d.PKI(id.file+".crt")] = pair.CertPEM
		files[d.PKI(id.file+".key")] = pair.KeyPEM
		if id.kubeconfig != "" {
			files[id.kubeconfig] = a.Kubeconfig("https://127.0.0.1:"+port(p.APIServer), pair)
		}
	}
	tokens, err := pki.SigningKey()
	if err != nil {
		return err
	}
	files[d.PKI("service-accounts.key")] = tokens
	for path, data := range files {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			return fmt.Errorf("write certificates: %w", err)
		}
	}
	return nil
}

// Authority is what WriteIdentities was given.
func Authority(d state.Dir) (*pki.Authority, error) {
	cert, err := os.ReadFile(d.PKI("ca.crt"))
	if err != nil {
		return nil, fmt.Errorf("read certificate authority: %w", err)
	}
	key, err := os.ReadFile(d.PKI("ca.key"))
	if err != nil {
		return nil, fmt.Errorf("read certificate authority: %w", err)
	}
	return pki.Load(cert, key)
}
