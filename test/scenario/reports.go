package scenario

// A Report is an incident that somebody has told in public, and the scenario that breaks
// a pod the same way.
type Report struct {
	// Issue is OWNER/REPOSITORY#NUMBER on GitHub.
	Issue string
	// Told is what is told there, in a line.
	Told string
	// Inferred reports whether nobody there has found the cause: it is read from what
	// they show.
	Inferred bool
	Scenario string
}

// Reports are the public reports that are rebuilt. What is rebuilt is what holds the pod
// up, not the system of those who met it.
func Reports() []Report {
	return []Report{
		// Runtime, sandbox, network, kubelet.
		{Issue: "cilium/cilium#22053", Told: "The network was uninstalled, and its configuration with it, before the pods were gone", Scenario: "cni-config-removed"},
		{Issue: "aws/amazon-vpc-cni-k8s#2487", Told: "The daemon of the CNI plugin was down while pods ended: it refused the plugin's " +
			"connections", Scenario: "cni-del-fails"},
		{Issue: "containerd/containerd#9064", Told: "A CNI DEL that fails is tried again without end", Scenario: "cni-del-fails"},
		{Issue: "projectcalico/calico#4084", Told: "The plugin does not find what it had set up for the pod, and fails", Scenario: "cni-del-fails"},
		{Issue: "cilium/cilium#22067", Told: "The plugin waits for the socket of an agent that is gone", Scenario: "cni-del-hangs"},
		{Issue: "replicatedhq/kURL#4568", Told: "Pods of the old network stay after the network was replaced by " +
			"another", Inferred: true, Scenario: "cni-binary-missing"},
		{Issue: "containerd/containerd#6953", Told: "containerd does not come up again, and all pods of the node stay", Inferred: true, Scenario: "containerd-down"},
		{Issue: "Azure/AKS#369", Told: "Nothing can be stopped, because containerd cannot be reached", Inferred: true, Scenario: "containerd-down"},
		{Issue: "awslabs/amazon-eks-ami#563", Told: "The runtime's daemon runs and answers nothing", Inferred: true, Scenario: "containerd-stopped"},
		{Issue: "kubernetes/kubernetes#96842", Told: "After a long outage some kubelets do not connect to the API server again, and pods " +
			"stay Terminating", Scenario: "kubelet-cut-off"},
		{Issue: "kubernetes-sigs/kueue#6757", Told: "The kubelet is down, and terminating pods keep their quota", Scenario: "kubelet-down"},
		{Issue: "containerd/containerd#8285", Told: "Containers are called running, and their shim does not exist", Scenario: "shim-dead"},
		{Issue: "moby/moby#43491", Told: "The shim was killed, and nobody notes that its container has ended with it", Scenario: "shim-dead"},
		{Issue: "containerd/containerd#2438", Told: "One shim answers nothing, and whoever asks it waits", Scenario: "shim-stopped"},
		{Issue: "containerd/containerd#14081", Told: "Requests to stop a container are repeated for days to a shim that does not answer " +
			"them", Scenario: "shim-stopped"},
		{Issue: "containerd/containerd#13814", Told: "The shim waits before it publishes the exit of a container, without a limit", Scenario: "exit-untold"},
		{Issue: "containerd/containerd#3177", Told: "Exits of containers are not published when many end together", Scenario: "exit-untold"},
		{Issue: "containerd/containerd#4016", Told: "containerd asks to stop a container of which runc says that it does not exist", Scenario: "exit-denied"},
		{Issue: "containerd/containerd#12600", Told: "containerd was restarted while it stopped a container: the process is gone, the " +
			"record says running", Scenario: "exit-unrecorded"},
		{Issue: "aws/amazon-vpc-cni-k8s#3216", Told: "The node's disk is full, and pods, that of the network itself among them, stay " +
			"Terminating", Inferred: true, Scenario: "disk-full"},
		{Issue: "jupyterhub/mybinder.org-deploy#2722", Told: "A server's disk fails and becomes read-only, and its pods stay " +
			"Terminating", Inferred: true, Scenario: "disk-read-only"},
		{Issue: "kubernetes/node-problem-detector#274", Told: "A node's disk becomes read-only: the kubelet cannot write its " +
			"checkpoints, and pods do not terminate", Inferred: true, Scenario: "kubelet-disk-read-only"},
		{Issue: "METR/vivaria#537", Told: "Stopping a sandbox exceeds its deadline again and again; newer releases of containerd do not " +
			"lose the exit", Inferred: true, Scenario: "exit-unrecorded"},
		{Issue: "containerd/containerd#13377", Told: "A child of the container's process keeps its output open, and the shim waits for " +
			"the end of it", Scenario: "stdio-held-open"},
		{Issue: "containerd/containerd#11353", Told: "The container's root file system cannot be unmounted: device or resource busy", Scenario: "rootfs-busy"},
		{Issue: "opencontainers/runc#3821", Told: "runc kill fails each time", Inferred: true, Scenario: "runc-kill-fails"},
		{Issue: "kubernetes/kubernetes#116032", Told: "A pod whose postStart hook still runs is not stopped, not even after the grace " +
			"period", Scenario: "post-start-hangs"},
		{Issue: "kubernetes/kubernetes#15925", Told: "A pod that is deleted while its image is pulled is not stopped before the pull has " +
			"ended", Scenario: "image-pull-hangs"},
		{Issue: "containerd/containerd#11650", Told: "An image is pulled over a bad network for an hour, and the pod that is deleted " +
			"meanwhile stays Terminating", Scenario: "image-pull-hangs"},
		{Issue: "kubernetes/kubernetes#93097", Told: "The preStop hook does not end", Inferred: true, Scenario: "pre-stop-hangs"},
		{Issue: "kubernetes/kubernetes#129402", Told: "The DRA driver is gone, so the kubelet cannot release the pod's claims", Scenario: "dra-driver-gone"},
		{Issue: "kubernetes/kubernetes#117435", Told: "A device plugin is stopped, and the kubelet, which waits for its answer, is " +
			"stuck", Scenario: "sync-loop-device"},
		{Issue: "kubernetes/kubernetes#31272", Told: "The kubelet hangs on an NFS mount whose server is gone", Scenario: "nfs-server-gone"},
		// Volumes.
		{Issue: "kubernetes/kubernetes#66387", Told: "The pod of the NFS server was deleted before the pods that use it, so that its " +
			"Service refuses the connection", Inferred: true, Scenario: "nfs-proxy-gone"},
		{Issue: "kubernetes/kubernetes#51835", Told: "A chart was uninstalled, and its NFS server ended before the pods that use it", Scenario: "nfs-server-gone"},
		{Issue: "rook/rook#6327", Told: "An NFS server was deleted with its namespace, before the pods that use it", Scenario: "nfs-server-gone"},
		{Issue: "kubernetes-sigs/aws-efs-csi-driver#401", Told: "Killing a container times out while an NFS share is mounted in " +
			"it", Inferred: true, Scenario: "nfs-write"},
		{Issue: "kubernetes/kubernetes#113426", Told: "A volume stays mounted: target is busy", Scenario: "volume-busy"},
		{Issue: "longhorn/longhorn#1719", Told: "The volume failed and was salvaged; then it is busy", Inferred: true, Scenario: "volume-busy-file"},
		{Issue: "kubernetes/kubernetes#131308", Told: "The directory of a volume cannot be removed, because something is mounted in " +
			"it", Scenario: "volume-dir-mount"},
		{Issue: "kubernetes/kubernetes#71584", Told: "The directory of a subPath cannot be cleaned up: stale file handle", Scenario: "sub-path-left"},
		{Issue: "IBM/ibm-spectrum-scale-csi#246", Told: "The node was taken out of the CSI driver's node selector while pods used the " +
			"driver", Scenario: "csi-driver-gone"},
		{Issue: "spiffe/helm-charts#437", Told: "The chart of a CSI driver was uninstalled before its users", Scenario: "csi-driver-gone"},
		{Issue: "kubernetes-sigs/secrets-store-csi-driver#1582", Told: "The pod of the CSI driver was deleted before its users", Scenario: "csi-driver-gone"},
		{Issue: "kubernetes-sigs/azurefile-csi-driver#2694", Told: "NodeUnpublishVolume fails with the same error each time", Scenario: "csi-unpublish-fails"},
		{Issue: "kubevirt/csi-driver#163", Told: "NodeUnpublishVolume fails because the mount is gone already", Scenario: "csi-unpublish-fails"},
		{Issue: "kubernetes-sigs/aws-fsx-csi-driver#495", Told: "umount does not return in the CSI driver, which holds the volume's lock " +
			"for weeks", Scenario: "csi-unmount-hangs"},
		{Issue: "rook/rook#14893", Told: "umount processes hang on several nodes", Inferred: true, Scenario: "csi-unmount-hangs"},
		{Issue: "kubevirt/project-infra#5070", Told: "Processes wait for days for a block device that does not answer", Scenario: "block-ext4"},
		{Issue: "kubernetes/kubernetes#110163", Told: "A raw block device stays in use, because a logical volume was made on it", Scenario: "block-mapped"},
		{Issue: "kubernetes-sigs/vsphere-csi-driver#338", Told: "NodeUnpublishVolume of a raw block volume fails each time", Scenario: "block-unpublish-fails"},
		// The kernel.
		{Issue: "actions/actions-runner-controller#3903", Told: "Processes of Node.js cannot be killed since an update of the nodes' " +
			"kernel, which has a bug in io_uring", Inferred: true, Scenario: "uring-locked"},
		{Issue: "bottlerocket-os/bottlerocket#4308", Told: "Processes that use io_uring hang and cannot be killed since an update of the " +
			"kernel", Inferred: true, Scenario: "uring-locked"},
		{Issue: "awslabs/amazon-eks-ami#2070", Told: "Processes that use io_uring hang since an update of the nodes' " +
			"image", Inferred: true, Scenario: "uring-locked"},
		// The API, and force deletes.
		{Issue: "kubernetes/kubernetes#121828", Told: "A finalizer stays on the pod of a job", Scenario: "finalizer-job"},
		{Issue: "kubernetes/kubernetes#65569", Told: "foregroundDeletion stays among the finalizers", Scenario: "finalizer-foreground"},
		{Issue: "kubernetes/kubernetes#62666", Told: "A webhook changes the pod in the garbage collector's update, which the API server " +
			"refuses; the finalizer stays", Inferred: true, Scenario: "finalizer-refused"},
		{Issue: "intel/intel-device-plugins-for-kubernetes#1357", Told: "Updates of pods pass a webhook that does not answer, and pods " +
			"stay Terminating", Inferred: true, Scenario: "finalizer-denied"},
		{Issue: "actions/actions-runner-controller#1307", Told: "The controller's finalizer stays, and the grace period is 0", Inferred: true, Scenario: "finalizer"},
		{Issue: "kubernetes-client/go#33", Told: "An admission controller refuses what the deletion of a finished pod needs", Scenario: "final-delete-refused"},
		{Issue: "SAP-archive/karydia#252", Told: "A webhook refuses the updates of a pod that terminates", Scenario: "status-refused"},
		{Issue: "kubernetes/kubernetes#22625", Told: "Deleting a mirror pod does not stop its static pod", Scenario: "mirror-pod-deleted"},
		{Issue: "kubernetes/kubernetes#135698", Told: "A pod was force-deleted while the kubelet did not run, and a part of its " +
			"directory stays", Scenario: "forced-without-kubelet"},
		{Issue: "containerd/containerd#5708", Told: "Pods stay for days and are force-deleted by hand, while the shim still runs", Scenario: "forced-and-stuck"},
	}
}
