package pki

import (
	"encoding/base64"
	"fmt"
)

// Kubeconfig is a kubeconfig file that holds everything it needs, so it may be copied.
func (a *Authority) Kubeconfig(server string, user Pair) []byte {
	b64 := base64.StdEncoding.EncodeToString
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: nodeagent
contexts:
- name: nodeagent
  context: {cluster: nodeagent, user: nodeagent}
clusters:
- name: nodeagent
  cluster:
    server: %s
    certificate-authority-data: %s
users:
- name: nodeagent
  user:
    client-certificate-data: %s
    client-key-data: %s
`, server, b64(a.CertPEM), b64(user.CertPEM), b64(user.KeyPEM))
}
