package node

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"fmt"
	"os"

	"golang.org/x/crypto/ssh"

	"github.com/nodeagent-io/nodeagent/test/cluster/internal/state"
)

// keys open the shell of every node of one cluster: ours, and the one by which we
// know that it is our node that answers at that port.
type keys struct {
	client  ssh.Signer
	host    ssh.PublicKey
	hostPEM []byte
}

// WriteKeys makes both keys.
func WriteKeys(d state.Dir) error {
	for _, name := range []string{"ssh-client", "ssh-host"} {
		_, key, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			return fmt.Errorf("make %s key: %w", name, err)
		}
		block, err := ssh.MarshalPrivateKey(key, "")
		if err != nil {
			return fmt.Errorf("encode %s key: %w", name, err)
		}
		if err := os.WriteFile(d.PKI(name), pem.EncodeToMemory(block), 0o600); err != nil {
			return fmt.Errorf("write %s key: %w", name, err)
		}
	}
	return nil
}

func readKeys(d state.Dir) (keys, error) {
	var k keys
	client, err := os.ReadFile(d.PKI("ssh-client"))
	if err != nil {
		return k, fmt.Errorf("read key of the node's shell: %w", err)
	}
	if k.client, err = ssh.ParsePrivateKey(client); err != nil {
		return k, fmt.Errorf("read key of the node's shell: %w", err)
	}
	if k.hostPEM, err = os.ReadFile(d.PKI("ssh-host")); err != nil {
		return k, fmt.Errorf("read host key: %w", err)
	}
	host, err := ssh.ParsePrivateKey(k.hostPEM)
	if err != nil {
		return k, fmt.Errorf("read host key: %w", err)
	}
	k.host = host.PublicKey()
	return k, nil
}
