// Package kubelet asks the node's kubelet for its health, and what of its work on volumes and
// resource claims fails. Package proc reads what the kubelet's process does; this package makes
// the two requests that the kubelet answers about itself: /healthz and /metrics.
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
// The agent's service account token goes only to a peer that proves that it is this node's kubelet: anybody else who listens there could
// use it to read the pods of the cluster and to write their status. There are two proofs. Either a known authority has signed its
// certificate for this node. Or it presents the very certificate that the kubelet has signed itself and keeps on the node (pki/kubelet.crt
// in its directory, or what --kubelet-cert-file names), with its key: InitializeTLS in cmd/kubelet/app/server.go keeps such a pair without
// end, so neither its names nor its end are looked at. Who can present it has the key, which root alone can read, or can write that file.
// A peer that proves nothing is asked without the token: its refusal shows that it answers, and its health is not known.
//
// With the token, the answer needs the permission to get nodes/healthz
// (Kubernetes 1.33 and later: KubeletFineGrainedAuthz). It does not need
// nodes/proxy, which allows running commands in every pod.
//
// # What fails with volumes
//
// The kubelet sends no Event when a volume cannot be taken down. It counts its
// attempts, by plugin and driver, and the calls to each CSI driver, by gRPC code, in
// its metrics. With them comes what it counts of its requests to the API server, of which
// it sends no Event either (evidence.APICall), and of its attempts to have resource claims
// unprepared (evidence.ClaimCall). They are read only while a pod is past its deadline whose
// containers have ended, that has resource claims, or of which only the API object is left, at
// most once in ten seconds, and need the permission to get nodes/metrics, which Prometheus has
// too. They do not tell which volume or claim: the directories that are left do, which package
// proc lists, and the kubelet's checkpoint of claims. The kubelet's log would tell both, but
// holds what is private, and its place and form differ from node to node.
//
// While a shim of the node hangs the kubelet does not answer for its counts: among them are the sizes of all
// containers' logs, for which it has containerd ask each shim. They are unknown then for all pods of the node.
package kubelet
