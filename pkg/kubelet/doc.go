// Package kubelet asks the node's kubelet for its health. Package proc reads what
// the kubelet's process does; this package makes only the one request that the
// kubelet answers about itself.
//
// # Where it is asked
//
// The kubelet answers /healthz in two places. On 127.0.0.1:10248 it does so
// without authentication, but only a pod in the host's network can reach that.
// Every pod can reach port 10250 of the node's address, where requests are
// authenticated. The agent has no other need of the host's network, so it asks
// on port 10250.
//
// # Who gets the token
//
// The agent's service account token goes only to a peer whose certificate a
// known authority has signed for this node. Anybody else who listens there could
// use it to read the pods of the cluster and to write their status. Many
// kubelets have a certificate that they signed themselves. They are asked
// without the token: their refusal shows that they answer, and their health is
// not known. serverTLSBootstrap in the kubelet's configuration, or the kubelet's
// certificate as CAFile, makes it known.
//
// With the token, the answer needs the permission to get nodes/healthz
// (Kubernetes 1.33 and later: KubeletFineGrainedAuthz). It does not need
// nodes/proxy, which allows running commands in every pod.
//
// # Directories of volumes
//
// The package does not read which volume directories of a pod are left. To see
// the kubelet's directory, the agent would have to mount it, and would then hold
// the pods' volumes itself.
package kubelet
