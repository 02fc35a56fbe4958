package controlplane

import (
	"github.com/nodeagent-io/nodeagent/test/cluster/internal/state"
)

func controllerManagerArgs(d state.Dir, p state.Ports) []string {
	return []string{
		"--bind-address=127.0.0.1",
		"--secure-port=" + port(p.ControllerManager),
		"--kubeconfig=" + d.PKI("controller-manager.kubeconfig"),
		"--authentication-kubeconfig=" + d.PKI("controller-manager.kubeconfig"),
		"--authorization-kubeconfig=" + d.PKI("controller-manager.kubeconfig"),
		"--use-service-account-credentials",
		"--service-account-private-key-file=" + d.PKI("service-accounts.key"),
		"--root-ca-file=" + d.PKI("ca.crt"),
		"--cluster-signing-cert-file=" + d.PKI("ca.crt"),
		"--cluster-signing-key-file=" + d.PKI("ca.key"),
		"--cluster-cidr=" + state.PodNetwork,
		"--service-cluster-ip-range=" + state.ServiceNetwork,
		// There is one of it, so a restart need not wait for a lease to run out.
		"--leader-elect=false",
		"--tls-cert-file=" + d.PKI("controller-manager.crt"),
		"--tls-private-key-file=" + d.PKI("controller-manager.key"),
	}
}

func schedulerArgs(d state.Dir, p state.Ports) []string {
	return []string{
		"--bind-address=127.0.0.1",
		"--secure-port=" + port(p.Scheduler),
		"--kubeconfig=" + d.PKI("scheduler.kubeconfig"),
		"--authentication-kubeconfig=" + d.PKI("scheduler.kubeconfig"),
		"--authorization-kubeconfig=" + d.PKI("scheduler.kubeconfig"),
		"--leader-elect=false",
		"--tls-cert-file=" + d.PKI("scheduler.crt"),
		"--tls-private-key-file=" + d.PKI("scheduler.key"),
	}
}
