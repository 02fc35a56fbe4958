// Package kubelet asks the node's kubelet how it is. What the kubelet's process
// does is for package proc to read; here is only the one question that the
// kubelet answers about itself.
//
// # Where it is asked
//
// The kubelet answers /healthz in two places: without authentication on
// 127.0.0.1:10248, which only a pod in the host's network can reach, and on
// port 10250 of the node's address, which every pod can, and where it wants to
// know who asks. The agent has no other need of the host's network, so it asks
// on port 10250.
//
// # Who gets the token
//
// The agent's service account token goes only to a peer whose certificate a
// known authority has signed for this node: whoever else listens there could
// use it to read the pods of the cluster and to write their status. Many
// kubelets have a certificate that they signed themselves. They are asked
// without the token, and their refusal shows at least that they serve; their
// health is then not known. serverTLSBootstrap in the kubelet's configuration,
// or the kubelet's certificate as CAFile, makes it known.
//
// With the token, the answer needs the permission to get nodes/healthz
// (Kubernetes 1.33 and later: KubeletFineGrainedAuthz). It does not need
// nodes/proxy, which allows to run commands in every pod.
//
// # Directories of volumes
//
// Which volume directories are left of a pod is not read. To see the kubelet's
// directory the agent would have to mount it, and would then hold the pods'
// volumes itself.
package kubelet
