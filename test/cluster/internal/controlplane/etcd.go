package controlplane

import (
	"github.com/nodeagent-io/nodeagent/test/cluster/internal/state"
)

func etcdArgs(d state.Dir, p state.Ports) []string {
	client := "https://127.0.0.1:" + port(p.Etcd)
	peer := "http://127.0.0.1:" + port(p.EtcdPeer)
	return []string{
		"--name=main",
		"--data-dir=" + d.File("etcd"),
		"--listen-client-urls=" + client,
		"--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer,
		"--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=main=" + peer,
		"--cert-file=" + d.PKI("etcd.crt"),
		"--key-file=" + d.PKI("etcd.key"),
		"--client-cert-auth",
		"--trusted-ca-file=" + d.PKI("ca.crt"),
		// The cluster does not outlive the machine, so nothing has to reach the disk.
		"--unsafe-no-fsync",
		"--log-level=warn",
	}
}
